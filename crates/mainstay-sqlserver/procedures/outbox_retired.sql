    -- What has ended is counted for its joins.
    IF EXISTS (SELECT 1 FROM "{{schema}}"."{{joins}}" j WITH (NOLOCK) WHERE j."Status" = 0)
    BEGIN
        DECLARE @Steps NVARCHAR(MAX) = (
            SELECT o."Id" AS id, e."Status" AS outcome FROM @Endings e JOIN "{{schema}}"."{{outbox}}" o WITH (FORCESEEK) ON o."Seq" = e."Seq"
             WHERE EXISTS (SELECT 1 FROM "{{schema}}"."{{joins}}_member" m WITH (FORCESEEK) WHERE m."WorkItemId" = o."Id" AND m."State" = 0) FOR JSON PATH);
        IF @Steps IS NOT NULL
            EXEC "{{schema}}"."{{joins}}_Ended" @Steps, NULL, @TellJoins;
    END
