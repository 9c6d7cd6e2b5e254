    -- What was settled in the ledger while a worker had it goes no further.
    DECLARE @Settled UNIQUEIDENTIFIER = (SELECT MIN(CAST(b."Id" AS CHAR(36))) FROM @Back b JOIN "{{schema}}"."{{inbox}}_entry" e ON e."WorkItemId" = b."Id" WHERE e."State" >= 2 AND e."WorkItemId" IS NOT NULL);
    WHILE @Settled IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{inbox}}_Withdraw" @Settled, @Now;
        DELETE FROM @Back WHERE "Id" = @Settled;
        INSERT INTO @Hit ("Seq", "Id", "Generation") SELECT COALESCE(MAX("Seq"), 0) + 1, @Settled, 0 FROM @Hit;
        SET @Settled = (SELECT MIN(CAST(b."Id" AS CHAR(36))) FROM @Back b JOIN "{{schema}}"."{{inbox}}_entry" e ON e."WorkItemId" = b."Id" WHERE e."State" >= 2 AND e."WorkItemId" IS NOT NULL);
    END
