            -- The end of a run is kept in the ledger.
            UPDATE l SET "Outcome" = CASE WHEN h."Status" = 2 THEN 1 WHEN h."Reason" = N'cancelled' THEN 4 ELSE 2 END, "EndedAt" = h."ProcessedAt", "Attempts" = h."Attempts",
                   "Error" = CASE h."Status" WHEN 3 THEN COALESCE(h."LastError" COLLATE Latin1_General_BIN2, h."Reason") END
              FROM "{{schema}}"."{{jobs}}_ledger" l WITH (ROWLOCK) JOIN "{{schema}}"."{{outbox}}_history" h ON h."Id" = l."Id" JOIN @Pick p ON p."Seq" = h."Seq"
             WHERE l."Outcome" IS NULL OPTION (LOOP JOIN);
