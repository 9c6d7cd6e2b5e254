-- Starting a join, with what is to follow.

ALTER PROCEDURE "{{schema}}"."{{joins}}_Start"
    @ExpectedSteps INT,
    @GroupingKey NVARCHAR(MAX) = NULL,
    -- all, any, quorum (with the number) or deadline.
    @Mode NVARCHAR(20) = N'all',
    @Quorum INT = NULL,
    @DeadlineAt DATETIMEOFFSET(6) = NULL,
    @DeadlineInSeconds FLOAT = NULL,
    @Id UNIQUEIDENTIFIER = NULL,
    -- The messages that follow, at most one for completed and one for failed: a list of objects with n (from 1), outcome (1 completed, 2 failed), topic, and as wanted id,
    -- message_id, correlation_id, ordering_key, hold, priority. In texts `~` is written `~0`.
    @Continuations NVARCHAR(MAX) = N'[]',
    -- A list of texts: the payload of the first, its headers (a JSON text, or null), and so on.
    @Bodies NVARCHAR(MAX) = N'[]',
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME(), @Deadline DATETIME2(6) = CAST(SWITCHOFFSET(CAST(@DeadlineAt AS DATETIMEOFFSET(6)), '+00:00') AS DATETIME2(6));
    DECLARE @Code INT = CASE @Mode WHEN N'all' THEN 0 WHEN N'any' THEN 1 WHEN N'quorum' THEN 2 WHEN N'deadline' THEN 3 END;
    DECLARE @Needed INT = CASE @Code WHEN 1 THEN 1 WHEN 2 THEN @Quorum ELSE @ExpectedSteps END;
    SET @GroupingKey = NULLIF(@GroupingKey, N'');
    SET @Id = COALESCE(@Id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()));
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @ExpectedSteps IS NULL OR @ExpectedSteps NOT BETWEEN 1 AND 1000000000 THEN N'expected_steps must be 1 to 1000000000'
        WHEN "{{schema}}"."{{outbox}}_exceeds"(@GroupingKey, 255) = 1 THEN N'grouping_key must be at most 255 characters' + "{{schema}}"."{{outbox}}_got"(@GroupingKey)
        WHEN @Code IS NULL THEN N'mode must be all, any, quorum or deadline'
        WHEN @Needed IS NULL OR @Needed NOT BETWEEN 1 AND @ExpectedSteps THEN N'quorum must be 1 to the expected steps'
        WHEN @DeadlineAt IS NOT NULL AND @DeadlineInSeconds IS NOT NULL THEN N'deadline_in_seconds must not stand beside deadline_at'
        WHEN @DeadlineInSeconds < 0 OR @DeadlineInSeconds > 100000000000 THEN N'deadline_in_seconds must be 0 to 100000000000'
        WHEN @Code = 3 AND @DeadlineAt IS NULL AND @DeadlineInSeconds IS NULL THEN N'deadline_at must be given where the mode is deadline'
    END;
    DECLARE @Next TABLE ("N" INT NOT NULL PRIMARY KEY, "Outcome" INT NULL, "Id" UNIQUEIDENTIFIER NOT NULL, "MessageId" UNIQUEIDENTIFIER NOT NULL, "Topic" NVARCHAR(MAX) NULL,
                         "CorrelationId" NVARCHAR(MAX) NULL, "OrderingKey" NVARCHAR(MAX) NULL, "Hold" BIT NOT NULL, "Priority" INT NOT NULL, "Payload" NVARCHAR(MAX) NULL, "Headers" NVARCHAR(MAX) NULL);
    DECLARE @Body TABLE ("N" INT NOT NULL PRIMARY KEY, "Text" NVARCHAR(MAX) NULL);
    INSERT INTO @Body ("N", "Text") SELECT CAST(b."key" AS INT), "{{schema}}"."{{outbox}}_text"(b."value") FROM OPENJSON(@Bodies) b;
    INSERT INTO @Next ("N", "Outcome", "Id", "MessageId", "Topic", "CorrelationId", "OrderingKey", "Hold", "Priority", "Payload", "Headers")
    SELECT c.n, c.outcome, COALESCE(c.id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID())), COALESCE(c.message_id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID())), "{{schema}}"."{{outbox}}_text"(c.topic), NULLIF("{{schema}}"."{{outbox}}_text"(c.correlation_id), N''),
           "{{schema}}"."{{outbox}}_text"(c.ordering_key), COALESCE(c.hold, 0), COALESCE(c.priority, 0), p."Text", x."Text"
      FROM OPENJSON(@Continuations) WITH (n INT '$.n', outcome INT '$.outcome', id UNIQUEIDENTIFIER '$.id', message_id UNIQUEIDENTIFIER '$.message_id', topic NVARCHAR(MAX) '$.topic',
           correlation_id NVARCHAR(MAX) '$.correlation_id', ordering_key NVARCHAR(MAX) '$.ordering_key', hold BIT '$.hold', priority INT '$.priority') c
      LEFT JOIN @Body p ON p."N" = 2 * c.n - 2
      LEFT JOIN @Body x ON x."N" = 2 * c.n - 1;
    SET @Complaint = COALESCE(@Complaint, (
        SELECT MIN(CASE WHEN n."Outcome" IS NULL OR n."Outcome" NOT IN (1, 2) THEN N'outcomes must be completed or failed'
                        WHEN n."Topic" IS NULL OR DATALENGTH(n."Topic") = 0 OR "{{schema}}"."{{outbox}}_exceeds"(n."Topic", 255) = 1 THEN N'topics must be 1 to 255 characters'
                        WHEN n."Payload" IS NULL THEN N'payloads must not be null (an empty text is fine)'
                        WHEN n."Priority" NOT BETWEEN -9 AND 9 THEN N'priorities must be -9 to 9'
                        WHEN n."Headers" IS NOT NULL AND ISJSON(n."Headers") = 0 THEN N'headers must be JSON objects' END) FROM @Next n));
    IF @Complaint IS NULL AND EXISTS (SELECT 1 FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @Id)
        SET @Complaint = N'id must be new, but there is a join ' + LOWER(CAST(@Id AS NVARCHAR(36))) + N' already';
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'joins_start: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO "{{schema}}"."{{joins}}" ("Id", "GroupingKey", "Mode", "ExpectedSteps", "Needed", "Completed", "Failed", "Status", "DeadlineAt", "CreatedAt", "UpdatedAt")
    VALUES (@Id, @GroupingKey, @Code, @ExpectedSteps, @Needed, 0, 0, 0,
            COALESCE(@Deadline, "{{schema}}"."{{outbox}}_after"(@Now, CAST(@DeadlineInSeconds * 1000000 AS BIGINT))), @Now, @Now);
    INSERT INTO "{{schema}}"."{{joins}}_continuation" (
        "JoinId", "Outcome", "Id", "MessageId", "Topic", "Priority", "HoldOnFailure", "OrderingKey", "CorrelationId", "Headers", "Payload", "CreatedAt")
    SELECT @Id, n."Outcome", n."Id", n."MessageId", n."Topic", n."Priority", n."Hold", n."OrderingKey", n."CorrelationId",
           JSON_MODIFY(COALESCE(n."Headers", N'{}'), '$."mainstay-join"', LOWER(CAST(@Id AS NVARCHAR(36)))), n."Payload", @Now
      FROM @Next n ORDER BY n."N";
    -- Applications that go about their business start joins all the time: that is recorded when somebody is named.
    IF @Actor IS NOT NULL
    BEGIN
        DECLARE @Completed NVARCHAR(510) = (SELECT TOP (1) n."Topic" FROM @Next n WHERE n."Outcome" = 1), @Failed NVARCHAR(510) = (SELECT TOP (1) n."Topic" FROM @Next n WHERE n."Outcome" = 2);
        DECLARE @Data NVARCHAR(MAX) = N'{"before":null,"after":' + (
            SELECT @ExpectedSteps AS expected, @Needed AS needed, @Mode AS mode, @GroupingKey AS grouping_key, REPLACE(CONVERT(NVARCHAR(30), @Deadline, 126), N' ', N'T') + N'Z' AS deadline_at,
                   @DeadlineInSeconds AS deadline_in_seconds, @Completed AS on_completed, @Failed AS on_failed FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER) + N'}';
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'join' AS kind, LOWER(CAST(@Id AS NVARCHAR(36))) AS value FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'join.start', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Id AS join_id;
END
GO
