    -- Nor is one that is to be dispatched after all.
    UPDATE "{{schema}}"."{{jobs}}_ledger" WITH (ROWLOCK) SET "Outcome" = NULL, "EndedAt" = NULL, "Error" = NULL, "StartedAt" = NULL WHERE "DispatchedAt" IS NULL AND "Id" IN (SELECT x."Id" FROM @Hit x) OPTION (LOOP JOIN);
