-- Deadlines, cancelling, reading and retention.

-- Ends up to so many joins whose deadline has passed. Mode deadline: by the steps that have ended; other modes: failed.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Expire"
    @MaxJoins INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Place INT = 1, @Last INT, @Id UNIQUEIDENTIFIER;
    DECLARE @Due TABLE ("Place" INT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL);
    -- Ended in the order of their ids as they are written, as everything that locks several of them does.
    INSERT INTO @Due ("Place", "Id")
    SELECT ROW_NUMBER() OVER (ORDER BY CAST(d."Id" AS CHAR(36))), d."Id"
      FROM (SELECT TOP (@MaxJoins) j."Id" FROM "{{schema}}"."{{joins}}" j WITH (NOLOCK) WHERE j."Status" = 0 AND j."DeadlineAt" <= @Now ORDER BY j."DeadlineAt", j."Seq") d;
    SET @Last = (SELECT MAX("Place") FROM @Due);
    IF @Own = 1 BEGIN TRANSACTION;
    WHILE @Place <= @Last
    BEGIN
        SELECT @Id = d."Id" FROM @Due d WHERE d."Place" = @Place;
        EXEC "{{schema}}"."{{joins}}_Lapse" @Id, @Now, 1;
        SET @Place = @Place + 1;
    END
    IF @Own = 1 COMMIT;
END
GO
-- Ends a join without a continuation and cancels those of its messages that wait and that nobody else has in hand. Tells their ids; null if the join had ended.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Cancel"
    @JoinId UNIQUEIDENTIFIER,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    -- Whether results of their own tell what this has counted for joins (one column, counted): for Mainstay itself.
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Cancelled BIT, @Count INT, @Ids NVARCHAR(MAX), @Items NVARCHAR(MAX), @Was NVARCHAR(MAX), @Complaint NVARCHAR(300), @Key NVARCHAR(510);
    DECLARE @Keys TABLE ("OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED);
    DECLARE @Waiting TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Endings "{{schema}}"."{{outbox}}_ending";
    IF NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @JoinId)
    BEGIN
        SET @Complaint = N'joins_cancel: there is no join ' + COALESCE(LOWER(CAST(@JoinId AS NVARCHAR(36))), N'null');
        THROW 50002, @Complaint, 1;
    END
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Keys ("OrderingKey")
    SELECT DISTINCT o."OrderingKey" FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) JOIN "{{schema}}"."{{joins}}_member" m WITH (NOLOCK) ON m."WorkItemId" = o."Id"
     WHERE m."JoinId" = @JoinId AND m."State" = 0 AND o."OrderingKey" IS NOT NULL;
    SET @Key = (SELECT MIN("OrderingKey") FROM @Keys);
    WHILE @Key IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{outbox}}_Lock" @Key, 1;
        SET @Key = (SELECT MIN("OrderingKey") FROM @Keys WHERE "OrderingKey" > @Key);
    END
    -- The items first, as everybody does. What somebody has in hand is left alone.
    UPDATE "{{schema}}"."{{outbox}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "Status" = "Status"
    OUTPUT inserted."Seq", inserted."Id" INTO @Waiting
     WHERE "Status" = 0 AND "Id" IN (SELECT m."WorkItemId" FROM "{{schema}}"."{{joins}}_member" m WHERE m."JoinId" = @JoinId AND m."State" = 0);
    SELECT @Was = N'{"state":"pending","completed":' + CAST(j."Completed" AS NVARCHAR(10)) + N',"failed":' + CAST(j."Failed" AS NVARCHAR(10)) + N'}' FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @JoinId;
    UPDATE "{{schema}}"."{{joins}}" SET "Status" = 3, "UpdatedAt" = @Now, "EndedAt" = @Now WHERE "Id" = @JoinId AND "Status" = 0;
    SET @Cancelled = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    IF @Cancelled = 1
    BEGIN
        SET @Ids = (SELECT w."Id" AS id FROM @Waiting w FOR JSON PATH);
        SET @Count = (SELECT COUNT(*) FROM @Waiting);
        SET @Items = (
            SELECT TOP (20) LOWER(CAST(o."Id" AS NVARCHAR(36))) AS "id", o."Topic" AS "topic", N'ready' AS "before.status", N'failed' AS "after.status", N'cancelled' AS "after.reason"
              FROM @Waiting w JOIN "{{schema}}"."{{outbox}}" o WITH (FORCESEEK) ON o."Id" = w."Id" ORDER BY o."Seq" FOR JSON PATH);
        -- Other joins count them as failed by this; the cancelled one counts nothing any more.
        INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
        SELECT w."Seq", 3, N'cancelled', N'cancelled', 0, 1, 0 FROM @Waiting w;
        EXEC "{{schema}}"."{{outbox}}_Retire" @Endings, @Now, @TellJoins;
        UPDATE "{{schema}}"."{{joins}}_member" SET "State" = 3, "UpdatedAt" = @Now WHERE "JoinId" = @JoinId AND "State" = 0 AND "WorkItemId" IN (SELECT w."Id" FROM @Waiting w);
        DECLARE @Data NVARCHAR(MAX) = N'{"before":' + @Was + N',"after":{"state":"cancelled"},"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + COALESCE(@Items, N'[]') + N'}';
        DECLARE @Anchors NVARCHAR(MAX) = (
            SELECT x.kind AS kind, x.value AS value
              FROM (SELECT N'join' AS kind, LOWER(CAST(@JoinId AS NVARCHAR(36))) AS value UNION ALL SELECT N'outbox', LOWER(CAST(w."Id" AS NVARCHAR(36))) FROM @Waiting w) x FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'join.cancel', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Cancelled AS cancelled, @Ids AS ids_json;
END
GO
ALTER PROCEDURE "{{schema}}"."{{joins}}_List"
    @Id UNIQUEIDENTIFIER = NULL,
    @GroupingKey NVARCHAR(510) = NULL,
    @State INT = NULL,
    -- The last join of the page before.
    @Before UNIQUEIDENTIFIER = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    -- By the id as it is written: a uniqueidentifier sorts in an order of its own, in which time means nothing.
    DECLARE @Place CHAR(36) = UPPER(CAST(@Before AS CHAR(36)));
    SELECT TOP (@MaxRows) j."Id" AS id, j."GroupingKey" AS grouping_key, j."Mode" AS mode, j."Needed" AS needed, j."ExpectedSteps" AS expected, j."Completed" AS completed, j."Failed" AS failed,
           j."Status" AS state, j."Reason" AS reason, j."DeadlineAt" AS deadline_at, j."CreatedAt" AS created_at, j."UpdatedAt" AS updated_at, j."EndedAt" AS ended_at
      FROM "{{schema}}"."{{joins}}" j
     WHERE (@Id IS NULL OR j."Id" = @Id) AND (@GroupingKey IS NULL OR j."GroupingKey" = @GroupingKey) AND (@State IS NULL OR j."Status" = @State)
       AND (@Place IS NULL OR UPPER(CAST(j."Id" AS CHAR(36))) < @Place)
     ORDER BY UPPER(CAST(j."Id" AS CHAR(36))) DESC;
END
GO
ALTER PROCEDURE "{{schema}}"."{{joins}}_Members"
    @JoinId UNIQUEIDENTIFIER,
    @After UNIQUEIDENTIFIER = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Place CHAR(36) = UPPER(CAST(@After AS CHAR(36)));
    SELECT TOP (@MaxRows) m."WorkItemId" AS work_item_id, m."State" AS state, m."UpdatedAt" AS updated_at
      FROM "{{schema}}"."{{joins}}_member" m
     WHERE m."JoinId" = @JoinId AND (@Place IS NULL OR UPPER(CAST(m."WorkItemId" AS CHAR(36))) > @Place)
     ORDER BY UPPER(CAST(m."WorkItemId" AS CHAR(36)));
END
GO
ALTER PROCEDURE "{{schema}}"."{{joins}}_OfItem"
    @WorkItemId UNIQUEIDENTIFIER
AS
BEGIN
    SET NOCOUNT ON;
    SELECT TOP (1000) m."JoinId" AS join_id FROM "{{schema}}"."{{joins}}_member" m WHERE m."WorkItemId" = @WorkItemId ORDER BY UPPER(CAST(m."JoinId" AS CHAR(36)));
END
GO
-- How long it is until the nearest deadline of all that wait, in microseconds. Null if there is none.
ALTER PROCEDURE "{{schema}}"."{{joins}}_NextDeadline"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), MIN(j."DeadlineAt")) AS left_microseconds FROM "{{schema}}"."{{joins}}" j WITH (NOLOCK) WHERE j."Status" = 0 AND j."DeadlineAt" IS NOT NULL;
END
GO
ALTER PROCEDURE "{{schema}}"."{{joins}}_Stats"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT COUNT(*) AS pending, COUNT(CASE WHEN j."DeadlineAt" <= SYSUTCDATETIME() THEN 1 END) AS overdue FROM "{{schema}}"."{{joins}}" j WHERE j."Status" = 0;
END
GO
-- Deletes joins that ended longer ago than that, with their members, up to so many members and joins. Call it until that is 0.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Purge"
    @OlderThanSeconds FLOAT,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @OlderThanSeconds IS NULL OR NOT (@OlderThanSeconds >= 0 AND @OlderThanSeconds <= 100000000000)
        THROW 50001, N'joins_purge: older_than_seconds must be 0 to 100000000000', 1;
    IF @MaxRows IS NULL OR @MaxRows < 1
        THROW 50001, N'joins_purge: max_rows must be 1 or more', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(SYSUTCDATETIME(), @OlderThanSeconds);
    DECLARE @Place INT = 1, @Last INT, @Id UNIQUEIDENTIFIER, @Room INT = @MaxRows;
    DECLARE @Old TABLE ("Place" INT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL);
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Old ("Place", "Id")
    SELECT ROW_NUMBER() OVER (ORDER BY d."EndedAt", d."Seq"), d."Id"
      FROM (SELECT TOP (@MaxRows) j."Id", j."EndedAt", j."Seq" FROM "{{schema}}"."{{joins}}" j WITH (UPDLOCK, READPAST, ROWLOCK) WHERE j."EndedAt" <= @Until ORDER BY j."EndedAt", j."Seq") d;
    SET @Last = (SELECT MAX("Place") FROM @Old);
    WHILE @Place <= @Last AND @Room > 0
    BEGIN
        SELECT @Id = o."Id" FROM @Old o WHERE o."Place" = @Place;
        SET @Place = @Place + 1;
        DELETE FROM "{{schema}}"."{{joins}}_member" WHERE "Seq" IN (SELECT TOP (@Room) m."Seq" FROM "{{schema}}"."{{joins}}_member" m WHERE m."JoinId" = @Id);
        SET @Room = @Room - @@ROWCOUNT;
        -- The join goes last: one with many members takes several calls.
        IF @Room > 0
        BEGIN
            DELETE FROM "{{schema}}"."{{joins}}_continuation" WHERE "JoinId" = @Id;
            DELETE FROM "{{schema}}"."{{joins}}" WHERE "Id" = @Id;
            SET @Room = @Room - 1;
        END
    END
    DECLARE @Purged INT = @MaxRows - @Room;
    IF @Actor IS NOT NULL AND @Purged > 0
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Purged AS NVARCHAR(20)) + N',"older_than_seconds":' + CAST(CAST(FLOOR(@OlderThanSeconds) AS BIGINT) AS NVARCHAR(20)) + N'}';
        EXEC "{{schema}}"."{{audit}}_Note" N'join.purge', @Actor, @ActorCorrelationId, @Data, NULL;
    END
    IF @Own = 1 COMMIT;
    SELECT @Purged AS purged;
END
GO
