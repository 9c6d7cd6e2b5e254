    UPDATE "{{schema}}"."{{jobs}}_ledger" WITH (ROWLOCK) SET "DispatchedAt" = @Now WHERE "Id" IN (SELECT f."Id" FROM @Fate f WHERE f."Fate" IN (0, 3)) OPTION (LOOP JOIN);
    -- A run that somebody put into the queue without us is dispatched too.
    SELECT f."Id" AS run, l."Job" AS job, DATEDIFF_BIG(MICROSECOND, l."DueAt", @Now) AS late
      FROM @Fate f LEFT JOIN "{{schema}}"."{{jobs}}_ledger" l ON l."Id" = f."Id" WHERE f."Fate" IN (0, 3) ORDER BY f."DueAt", f."Seq";
