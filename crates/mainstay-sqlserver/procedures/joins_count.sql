-- Counting steps, and the end of a join.
--
-- Locks are taken in one order: items of the outbox, then for each join in the order of their ids its own row and then its members. Whoever counts for a
-- join has its row until its transaction has ended.

-- Internal: ends a join whose row the caller has locked: its continuation is in the outbox.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Finish"
    @Id UNIQUEIDENTIFIER,
    @Status TINYINT,
    @Reason NVARCHAR(20),
    @Now DATETIME2(6)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE "{{schema}}"."{{joins}}" SET "Status" = @Status, "Reason" = @Reason, "UpdatedAt" = @Now, "EndedAt" = @Now WHERE "Id" = @Id AND "Status" = 0;
    -- A continuation whose id another message has (it was a copy of that) gets ids of its own: the end of a join must not fail.
    INSERT INTO "{{schema}}"."{{outbox}}" (
        "Id", "MessageId", "Topic", "Payload", "CreatedAt", "DueAt", "Priority", "OrderingKey", "HoldOnFailure", "CorrelationId", "Headers")
    SELECT CASE WHEN x."Taken" = 1 THEN "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()) ELSE c."Id" END, CASE WHEN x."Taken" = 1 THEN "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()) ELSE c."MessageId" END, c."Topic", c."Payload", @Now, @Now, c."Priority", c."OrderingKey",
           c."HoldOnFailure", c."CorrelationId", c."Headers"
      FROM "{{schema}}"."{{joins}}_continuation" c
     CROSS APPLY (SELECT CASE WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) WHERE o."Id" = c."Id")
                                OR EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" h WITH (NOLOCK) WHERE h."Id" = c."Id") THEN 1 ELSE 0 END AS "Taken") x
     WHERE c."JoinId" = @Id AND c."Outcome" = @Status;
END
GO
-- Internal: ends a join whose deadline has passed, and tells of it if it is asked to; if it had ended before, nothing.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Lapse"
    @Id UNIQUEIDENTIFIER,
    @Now DATETIME2(6),
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Status TINYINT, @Reason NVARCHAR(20);
    UPDATE "{{schema}}"."{{joins}}" SET "UpdatedAt" = "UpdatedAt" WHERE "Id" = @Id AND "Status" = 0 AND "DeadlineAt" <= @Now;
    IF @@ROWCOUNT = 0 RETURN;
    SELECT @Status = CASE WHEN j."Mode" = 3 AND j."Failed" = 0 THEN 1 ELSE 2 END,
           @Reason = CASE WHEN j."Mode" = 3 AND j."Failed" = 0 THEN NULL WHEN j."Mode" = 3 THEN N'steps' ELSE N'deadline' END
      FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @Id;
    EXEC "{{schema}}"."{{joins}}_Finish" @Id, @Status, @Reason, @Now;
    IF @TellJoins = 1
        SELECT N'[["' + LOWER(CAST(@Id AS NVARCHAR(36))) + N'",0,0,' + CAST(@Status AS NVARCHAR(5)) + N',' + COALESCE(N'"' + @Reason + N'"', N'null') + N']]' AS counted;
END
GO
-- Internal: counts the end of items for their joins, or for one of them, as far as there is credit, and ends those that have had all they wait for. Tells what
-- it has counted, if it is asked to, in a result for each join: the join, how many completed and failed, how it stands then, and why.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Ended"
    -- A list of objects: id, outcome (2 done, 3 failed, as items stand).
    @Steps NVARCHAR(MAX),
    @OnlyJoin UNIQUEIDENTIFIER = NULL,
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Key CHAR(36), @Id UNIQUEIDENTIFIER, @Mode TINYINT, @Expected INT, @Needed INT, @Done INT, @Failed INT, @Deadline DATETIME2(6);
    DECLARE @Completions INT, @Failures INT, @Status TINYINT, @Reason NVARCHAR(20), @Left INT;
    -- By this members are found, one by one: a scan would wait for whoever counts for another join.
    DECLARE @Step TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, "Outcome" INT NOT NULL);
    INSERT INTO @Step ("Id", "Outcome") SELECT s.id, MIN(s.outcome) FROM OPENJSON(@Steps) WITH (id UNIQUEIDENTIFIER '$.id', outcome INT '$.outcome') s GROUP BY s.id;
    WHILE 1 = 1
    BEGIN
        SET @Key = (
            SELECT MIN(CAST(m."JoinId" AS CHAR(36))) FROM @Step s JOIN "{{schema}}"."{{joins}}_member" m WITH (FORCESEEK) ON m."WorkItemId" = s."Id"
             WHERE m."State" = 0 AND (@OnlyJoin IS NULL OR m."JoinId" = @OnlyJoin) AND (@Key IS NULL OR CAST(m."JoinId" AS CHAR(36)) > @Key));
        IF @Key IS NULL BREAK;
        SET @Id = @Key;
        UPDATE "{{schema}}"."{{joins}}" SET "UpdatedAt" = "UpdatedAt" WHERE "Id" = @Id AND "Status" = 0;
        IF @@ROWCOUNT = 0 CONTINUE;
        SELECT @Mode = j."Mode", @Expected = j."ExpectedSteps", @Needed = j."Needed", @Done = j."Completed", @Failed = j."Failed", @Deadline = j."DeadlineAt" FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @Id;
        -- A step that ends after the deadline does not count, whether somebody has looked at the deadline or not.
        IF @Deadline <= @Now
        BEGIN
            EXEC "{{schema}}"."{{joins}}_Lapse" @Id, @Now, @TellJoins;
            CONTINUE;
        END
        SET @Status = 0;
        SET @Reason = NULL;
        SET @Left = CASE WHEN @Mode IN (0, 3) THEN @Expected - @Done - @Failed ELSE @Needed - @Done END;
        UPDATE "{{schema}}"."{{joins}}_member" WITH (ROWLOCK) SET "State" = 1, "UpdatedAt" = @Now
         WHERE "State" = 0 AND "JoinId" = @Id AND "Seq" IN (
               SELECT TOP (@Left) m."Seq" FROM @Step s JOIN "{{schema}}"."{{joins}}_member" m WITH (FORCESEEK) ON m."WorkItemId" = s."Id" AND m."JoinId" = @Id
                WHERE m."State" = 0 AND s."Outcome" = 2 ORDER BY m."Seq") OPTION (LOOP JOIN);
        SET @Completions = @@ROWCOUNT;
        SET @Left = CASE WHEN @Mode IN (0, 3) THEN @Left - @Completions
                         -- Where completed steps have ended it, failed ones have come too late.
                         WHEN @Done + @Completions >= @Needed THEN 0
                         ELSE @Expected - @Needed + 1 - @Failed END;
        UPDATE "{{schema}}"."{{joins}}_member" WITH (ROWLOCK) SET "State" = 2, "UpdatedAt" = @Now
         WHERE "State" = 0 AND "JoinId" = @Id AND "Seq" IN (
               SELECT TOP (@Left) m."Seq" FROM @Step s JOIN "{{schema}}"."{{joins}}_member" m WITH (FORCESEEK) ON m."WorkItemId" = s."Id" AND m."JoinId" = @Id
                WHERE m."State" = 0 AND s."Outcome" = 3 ORDER BY m."Seq") OPTION (LOOP JOIN);
        SET @Failures = @@ROWCOUNT;
        -- More than were expected: those without credit are not counted.
        IF @Completions + @Failures = 0 CONTINUE;
        SET @Done = @Done + @Completions;
        SET @Failed = @Failed + @Failures;
        UPDATE "{{schema}}"."{{joins}}" SET "Completed" = @Done, "Failed" = @Failed, "UpdatedAt" = @Now WHERE "Id" = @Id;
        SET @Status = CASE WHEN @Mode IN (0, 3) AND @Done + @Failed < @Expected THEN 0
                           WHEN @Mode IN (0, 3) AND @Failed > 0 THEN 2
                           WHEN @Mode IN (0, 3) THEN 1
                           WHEN @Done >= @Needed THEN 1
                           WHEN @Failed >= @Expected - @Needed + 1 THEN 2
                           ELSE 0 END;
        IF @Status = 2 SET @Reason = N'steps';
        IF @Status <> 0
            EXEC "{{schema}}"."{{joins}}_Finish" @Id, @Status, @Reason, @Now;
        IF @TellJoins = 1
            SELECT N'[["' + LOWER(CAST(@Id AS NVARCHAR(36))) + N'",' + CAST(@Completions AS NVARCHAR(10)) + N',' + CAST(@Failures AS NVARCHAR(10)) + N',' + CAST(@Status AS NVARCHAR(5)) + N','
                   + COALESCE(N'"' + @Reason + N'"', N'null') + N']]' AS counted;
    END
END
GO
