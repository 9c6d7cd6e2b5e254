    -- The ledger follows.
    UPDATE e SET "State" = h."Status", "ProcessedAt" = h."ProcessedAt", "Attempts" = h."Attempts", "OwnerToken" = NULL, "LockedUntil" = NULL, "LastError" = COALESCE(h."LastError", e."LastError")
      FROM "{{schema}}"."{{inbox}}_entry" e WITH (ROWLOCK)
      JOIN "{{schema}}"."{{inbox}}_history" h ON h."Id" = e."WorkItemId"
      JOIN @Endings x ON x."Seq" = h."Seq"
     WHERE e."State" < 2 AND e."WorkItemId" IS NOT NULL OPTION (LOOP JOIN);
