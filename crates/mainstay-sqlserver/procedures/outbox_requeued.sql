    -- A run whose message is open again is not over.
    UPDATE "{{schema}}"."{{jobs}}_ledger" WITH (ROWLOCK) SET "Outcome" = NULL, "EndedAt" = NULL, "Error" = NULL, "StartedAt" = NULL WHERE "Id" IN (SELECT x."Id" FROM @Hit x) OPTION (LOOP JOIN);
