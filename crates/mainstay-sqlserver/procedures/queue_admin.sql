-- What people and retention do to items, and what they see of them. What is done by hand is recorded in the audit trail within the same
-- transaction, if it changed anything.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Get"
    @Id UNIQUEIDENTIFIER
AS
BEGIN
    SET NOCOUNT ON;
    -- An id that its caller has used again stands for its last item.
    SELECT TOP (1) m."Id" AS id, m."MessageId" AS message_id, m."Topic" AS topic, m."Payload" AS payload, m."CorrelationId" AS correlation_id, m."Status" AS status,
           m."Reason" AS reason, m."Attempts" AS attempts, m."CreatedAt" AS created_at, m."RequestedDueAt" AS requested_due_at, m."DueAt" AS due_at, m."ExpiresAt" AS expires_at,
           m."OwnerToken" AS owner_token, m."LockedUntil" AS locked_until, m."Generation" AS generation, m."ProcessedAt" AS processed_at, m."ProcessedBy" AS processed_by,
           m."LastError" AS last_error, m."Priority" AS priority, m."OrderingKey" AS ordering_key, m."IdempotencyKey" AS idempotency_key, m."Headers" AS headers
      FROM "{{schema}}"."{{queue}}_message" m
     WHERE m."Id" = @Id
     ORDER BY m."Seq" DESC;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_List"
    @Topic NVARCHAR(510) = NULL,
    @Status INT = NULL,
    @Reason NVARCHAR(20) = NULL,
    @CorrelationId NVARCHAR(510) = NULL,
    @SettledAfter DATETIME2(6) = NULL,
    @SettledBefore DATETIME2(6) = NULL,
    @Before UNIQUEIDENTIFIER = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    -- By the id as it is written: a uniqueidentifier sorts in an order of its own, in which time means nothing.
    DECLARE @Place CHAR(36) = UPPER(CAST(@Before AS CHAR(36)));
    SELECT TOP (@MaxRows) m."Id" AS id, m."MessageId" AS message_id, m."Topic" AS topic, m."Payload" AS payload, m."CorrelationId" AS correlation_id, m."Status" AS status,
           m."Reason" AS reason, m."Attempts" AS attempts, m."CreatedAt" AS created_at, m."RequestedDueAt" AS requested_due_at, m."DueAt" AS due_at, m."ExpiresAt" AS expires_at,
           m."OwnerToken" AS owner_token, m."LockedUntil" AS locked_until, m."Generation" AS generation, m."ProcessedAt" AS processed_at, m."ProcessedBy" AS processed_by,
           m."LastError" AS last_error, m."Priority" AS priority, m."OrderingKey" AS ordering_key, m."IdempotencyKey" AS idempotency_key, m."Headers" AS headers
      FROM "{{schema}}"."{{queue}}_message" m
     WHERE (@Topic IS NULL OR m."Topic" = @Topic) AND (@Status IS NULL OR m."Status" = @Status) AND (@Reason IS NULL OR m."Reason" = @Reason)
       AND (@CorrelationId IS NULL OR m."CorrelationId" = @CorrelationId)
       AND (@SettledAfter IS NULL OR m."ProcessedAt" >= @SettledAfter) AND (@SettledBefore IS NULL OR m."ProcessedAt" < @SettledBefore)
       AND (@Place IS NULL OR UPPER(CAST(m."Id" AS CHAR(36))) < @Place)
     ORDER BY UPPER(CAST(m."Id" AS CHAR(36))) DESC;
END
GO
-- All of them in the order of their enqueueing, page by page. By place, which an item keeps when it is settled or requeued: so none is left out or comes twice.
ALTER PROCEDURE "{{schema}}"."{{queue}}_Export"
    @After BIGINT = NULL,
    @Topic NVARCHAR(510) = NULL,
    @Status INT = NULL,
    @Reason NVARCHAR(20) = NULL,
    @CorrelationId NVARCHAR(510) = NULL,
    @SettledAfter DATETIME2(6) = NULL,
    @SettledBefore DATETIME2(6) = NULL,
    @MaxRows INT = 100,
    -- As many of them as have this much in their payloads and headers together; one that is larger comes alone.
    @MaxBytes BIGINT = 16777216
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Place BIGINT = COALESCE(@After, -9223372036854775807);
    DECLARE @Pick TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "HoldOnFailure" BIT NOT NULL, "Bytes" BIGINT NOT NULL);
    INSERT INTO @Pick ("Seq", "HoldOnFailure", "Bytes")
    SELECT TOP (@MaxRows) x."Seq", x."HoldOnFailure", COALESCE(x."Bytes", 0)
      FROM (SELECT o."Seq", o."HoldOnFailure", CAST(DATALENGTH(o."Payload") AS BIGINT) + COALESCE(DATALENGTH(o."Headers"), 0) AS "Bytes" FROM "{{schema}}"."{{queue}}" o
             WHERE o."Seq" > @Place AND (@Topic IS NULL OR o."Topic" = @Topic) AND (@Status IS NULL OR o."Status" = @Status)
               AND (@CorrelationId IS NULL OR o."CorrelationId" = @CorrelationId) AND @Reason IS NULL AND @SettledAfter IS NULL AND @SettledBefore IS NULL
            UNION ALL
            SELECT h."Seq", h."HoldOnFailure", CAST(DATALENGTH(h."Payload") AS BIGINT) + COALESCE(DATALENGTH(h."Headers"), 0) FROM "{{schema}}"."{{queue}}_history" h
             WHERE h."Seq" > @Place AND (@Topic IS NULL OR h."Topic" = @Topic) AND (@Status IS NULL OR h."Status" = @Status)
               AND (@CorrelationId IS NULL OR h."CorrelationId" = @CorrelationId) AND (@Reason IS NULL OR h."Reason" = @Reason)
               AND (@SettledAfter IS NULL OR h."ProcessedAt" >= @SettledAfter) AND (@SettledBefore IS NULL OR h."ProcessedAt" < @SettledBefore)) x
     ORDER BY x."Seq";
    DECLARE @Last BIGINT = (
        SELECT MIN(s."Seq") FROM (SELECT p."Seq", SUM(p."Bytes") OVER (ORDER BY p."Seq" ROWS UNBOUNDED PRECEDING) AS "Sum" FROM @Pick p) s WHERE s."Sum" >= @MaxBytes);
    DELETE FROM @Pick WHERE "Seq" > @Last;
    SELECT m."Id" AS id, m."MessageId" AS message_id, m."Topic" AS topic, m."Payload" AS payload, m."CorrelationId" AS correlation_id, m."Status" AS status,
           m."Reason" AS reason, m."Attempts" AS attempts, m."CreatedAt" AS created_at, m."RequestedDueAt" AS requested_due_at, m."DueAt" AS due_at, m."ExpiresAt" AS expires_at,
           m."OwnerToken" AS owner_token, m."LockedUntil" AS locked_until, m."Generation" AS generation, m."ProcessedAt" AS processed_at, m."ProcessedBy" AS processed_by,
           m."LastError" AS last_error, m."Priority" AS priority, m."OrderingKey" AS ordering_key, m."IdempotencyKey" AS idempotency_key, m."Headers" AS headers,
           CAST(p."HoldOnFailure" AS INT) AS hold_on_failure, m."Seq" AS seq
      FROM "{{schema}}"."{{queue}}_message" m JOIN @Pick p ON p."Seq" = m."Seq"
     ORDER BY m."Seq";
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Stats"
    -- Also what is done, and the topics, for which the history is walked through.
    @Whole BIT = 1
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT COUNT(CASE WHEN o."Status" = 0 AND o."DueAt" <= @Now THEN 1 END) AS ready, COUNT(CASE WHEN o."Status" = 0 AND o."DueAt" > @Now THEN 1 END) AS scheduled,
           COUNT(CASE WHEN o."Status" = 1 THEN 1 END) AS in_progress, COUNT(CASE WHEN o."Status" = 1 AND o."LockedUntil" <= @Now THEN 1 END) AS lapsed,
           (SELECT COUNT(*) FROM "{{schema}}"."{{queue}}_history" h WHERE @Whole = 1 AND h."Status" = 2) AS done,
           (SELECT COUNT(*) FROM "{{schema}}"."{{queue}}_history" h WHERE h."Status" = 3) AS failed,
           (SELECT COUNT(*) FROM "{{schema}}"."{{queue}}_hold") AS held_keys,
           -- What somebody has paused is not late.
           (SELECT DATEDIFF_BIG(MICROSECOND, MIN(w."DueAt"), @Now) FROM "{{schema}}"."{{queue}}" w
             WHERE w."Status" = 0 AND w."DueAt" <= @Now AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WHERE x."Topic" = w."Topic")) AS oldest_ready
      FROM "{{schema}}"."{{queue}}" o;
    IF @Whole = 1
        EXEC "{{schema}}"."{{queue}}_Topics";
END
GO
-- What stands where, by topic, without what is done; and for how long the first that is due has been.
ALTER PROCEDURE "{{schema}}"."{{queue}}_Topics"
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT t."Topic" AS topic, SUM(t."Ready") AS ready, SUM(t."Scheduled") AS scheduled, SUM(t."InProgress") AS in_progress, SUM(t."Failed") AS failed,
           DATEDIFF_BIG(MICROSECOND, MIN(t."Since"), @Now) AS oldest_ready
      FROM (SELECT o."Topic", CASE WHEN o."Status" = 0 AND o."DueAt" <= @Now THEN 1 ELSE 0 END AS "Ready", CASE WHEN o."Status" = 0 AND o."DueAt" > @Now THEN 1 ELSE 0 END AS "Scheduled",
                   CASE WHEN o."Status" = 1 THEN 1 ELSE 0 END AS "InProgress", 0 AS "Failed", CASE WHEN o."Status" = 0 AND o."DueAt" <= @Now THEN o."DueAt" END AS "Since"
              FROM "{{schema}}"."{{queue}}" o
            UNION ALL
            SELECT h."Topic", 0, 0, 0, 1, NULL FROM "{{schema}}"."{{queue}}_history" h WHERE h."Status" = 3) t
     GROUP BY t."Topic" ORDER BY t."Topic";
END
GO
-- When there will be something to claim, in microseconds from now: 0 if it is due, null if nothing is planned. What waits for its ordering key or is paused does not
-- count, or a waiter would be woken for nothing without end.
ALTER PROCEDURE "{{schema}}"."{{queue}}_NextDue"
    @OnlyTopics NVARCHAR(MAX) = NULL,
    @ExceptTopics NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Paused BIT = CASE WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" WITH (NOLOCK)) THEN 1 ELSE 0 END;
    DECLARE @Ready DATETIME2(6) = (
        SELECT MIN(x."DueAt")
          FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0), (-1), (-2), (-3), (-4), (-5), (-6), (-7), (-8), (-9)) v(p)
         CROSS APPLY (
               SELECT TOP (1) o."DueAt" FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK)
                WHERE o."Status" = 0 AND o."Priority" = v.p
                  AND (@OnlyTopics IS NULL OR o."Topic" IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@OnlyTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
                  AND (@ExceptTopics IS NULL OR o."Topic" NOT IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@ExceptTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
                  AND (@Paused = 0 OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WITH (NOLOCK) WHERE x."Topic" = o."Topic"))
                  AND (o."OrderingKey" IS NULL OR (
                       NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" a WITH (NOLOCK) WHERE a."OrderingKey" = o."OrderingKey" AND a."OrderingKey" IS NOT NULL AND a."Seq" < o."Seq")
                       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_hold" h WITH (NOLOCK) WHERE h."OrderingKey" = o."OrderingKey")
                       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" r WITH (NOLOCK)
                                        WHERE r."OrderingKey" = o."OrderingKey" AND r."OrderingKey" IS NOT NULL AND r."Seq" > o."Seq" AND r."Status" = 1 AND r."LockedUntil" > @Now)))
                ORDER BY o."DueAt", o."Seq") x);
    DECLARE @Lapse DATETIME2(6) = (
        SELECT MIN(o."LockedUntil") FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK)
         WHERE o."Status" = 1
           AND (@OnlyTopics IS NULL OR o."Topic" IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@OnlyTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
           AND (@ExceptTopics IS NULL OR o."Topic" NOT IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@ExceptTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
           AND (@Paused = 0 OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WITH (NOLOCK) WHERE x."Topic" = o."Topic")));
    DECLARE @Due DATETIME2(6) = CASE WHEN @Lapse IS NULL OR @Ready < @Lapse THEN @Ready ELSE @Lapse END;
    SELECT CASE WHEN @Due <= @Now THEN 0 ELSE DATEDIFF_BIG(MICROSECOND, @Now, @Due) END AS due_in;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_CancelMany"
    -- A list of objects with an id.
    @Ids NVARCHAR(MAX),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    -- Whether results of their own tell what this has counted for joins (one column, counted): for Mainstay itself.
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Key NVARCHAR(510);
    DECLARE @Asked TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Keys TABLE ("OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED);
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "Topic" NVARCHAR(510) NOT NULL);
    DECLARE @Endings "{{schema}}"."{{queue}}_ending";
    INSERT INTO @Asked ("Id") SELECT DISTINCT i.id FROM OPENJSON(@Ids) WITH (id UNIQUEIDENTIFIER '$.id') i;
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Keys ("OrderingKey")
    SELECT DISTINCT o."OrderingKey" FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK) WHERE o."OrderingKey" IS NOT NULL AND o."Id" IN (SELECT a."Id" FROM @Asked a);
    SET @Key = (SELECT MIN("OrderingKey") FROM @Keys);
    WHILE @Key IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{queue}}_Lock" @Key, 1;
        SET @Key = (SELECT MIN("OrderingKey") FROM @Keys WHERE "OrderingKey" > @Key);
    END
    SET @Now = SYSUTCDATETIME();
    -- Takes the rows' locks and says which they are.
    UPDATE "{{schema}}"."{{queue}}" WITH (ROWLOCK) SET "Status" = 0
    OUTPUT inserted."Seq", inserted."Id", inserted."Topic" INTO @Hit
     WHERE "Status" = 0 AND "Id" IN (SELECT a."Id" FROM @Asked a) OPTION (LOOP JOIN);
    INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
    SELECT h."Seq", 3, N'cancelled', N'cancelled', 0, 1, 0 FROM @Hit h;
    EXEC "{{schema}}"."{{queue}}_Retire" @Endings, @Now, @TellJoins;
    -- A timer that an application takes back is its own business, and recorded when somebody is named.
    IF EXISTS (SELECT 1 FROM @Hit) AND (@Actor IS NOT NULL OR N'{{queue:kind}}' <> N'timers')
    BEGIN
        DECLARE @Count INT = (SELECT COUNT(*) FROM @Hit);
        DECLARE @Items NVARCHAR(MAX) = (
            SELECT TOP (20) LOWER(CAST(h."Id" AS NVARCHAR(36))) AS "id", h."Topic" AS "topic", N'ready' AS "before.status", N'failed' AS "after.status", N'cancelled' AS "after.reason"
              FROM @Hit h ORDER BY h."Seq" FOR JSON PATH);
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'{{queue:kind}}' AS kind, LOWER(CAST(h."Id" AS NVARCHAR(36))) AS value FROM @Hit h FOR JSON PATH);
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + @Items + N'}';
        EXEC "{{schema}}"."{{audit}}_Note" N'{{queue:kind}}.cancel', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT h."Id" AS id FROM @Hit h;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_RequeueMany"
    -- A list of objects with an id.
    @Ids NVARCHAR(MAX),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    -- By what they were found, for the record.
    @Filter NVARCHAR(MAX) = NULL,
    -- Answers and records nothing, for those who have an answer and a record of their own.
    @Silent BIT = 0
-- To put an item back under its own number takes a right on the table, which a caller need not have.
WITH EXECUTE AS OWNER
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Key NVARCHAR(510);
    DECLARE @Asked TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Keys TABLE ("OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED);
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "Topic" NVARCHAR(510) NOT NULL, "Reason" NVARCHAR(20) NULL, "Attempts" INT NOT NULL,
                        "OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL, "ProcessedAt" DATETIME2(6) NOT NULL);
    INSERT INTO @Asked ("Id") SELECT DISTINCT i.id FROM OPENJSON(@Ids) WITH (id UNIQUEIDENTIFIER '$.id') i;
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Keys ("OrderingKey")
    SELECT DISTINCT h."OrderingKey" FROM "{{schema}}"."{{queue}}_history" h WITH (NOLOCK)
     WHERE h."OrderingKey" IS NOT NULL AND h."Status" = 3 AND h."Id" IN (SELECT a."Id" FROM @Asked a);
    SET @Key = (SELECT MIN("OrderingKey") FROM @Keys);
    WHILE @Key IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{queue}}_Lock" @Key, 1;
        SET @Key = (SELECT MIN("OrderingKey") FROM @Keys WHERE "OrderingKey" > @Key);
    END
    SET @Now = SYSUTCDATETIME();
    -- Takes the rows' locks and says which they are. Not beside an open item that its caller has given the same id, and only the last of several.
    UPDATE "{{schema}}"."{{queue}}_history" WITH (ROWLOCK) SET "Status" = 3
    OUTPUT inserted."Seq", inserted."Id", inserted."Topic", inserted."Reason", inserted."Attempts", inserted."OrderingKey", inserted."ProcessedAt" INTO @Hit
     WHERE "Status" = 3 AND "Id" IN (SELECT a."Id" FROM @Asked a)
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" o WHERE o."Id" = "{{schema}}"."{{queue}}_history"."Id")
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_history" l WHERE l."Id" = "{{schema}}"."{{queue}}_history"."Id" AND l."Seq" > "{{schema}}"."{{queue}}_history"."Seq") OPTION (LOOP JOIN);
    -- Same place in its ordering key, and generations go on counting: a worker that still has the old claim can't settle it.
    SET IDENTITY_INSERT "{{schema}}"."{{queue}}" ON;
    INSERT INTO "{{schema}}"."{{queue}}" (
        "Seq", "Id", "MessageId", "Topic", "CreatedAt", "DueAt", "RequestedDueAt", "ExpiresAt", "Generation", "Priority", "HoldOnFailure", "OrderingKey",
        "IdempotencyKey", "CorrelationId", "LastError", "Headers", "Payload")
    SELECT h."Seq", h."Id", h."MessageId", h."Topic", h."CreatedAt", @Now, h."RequestedDueAt", CASE WHEN h."ExpiresAt" > @Now THEN h."ExpiresAt" END, h."Generation", h."Priority",
           h."HoldOnFailure", h."OrderingKey", h."IdempotencyKey", h."CorrelationId", h."LastError", h."Headers", h."Payload"
      FROM @Hit x JOIN "{{schema}}"."{{queue}}_history" h WITH (FORCESEEK) ON h."Seq" = x."Seq";
    SET IDENTITY_INSERT "{{schema}}"."{{queue}}" OFF;
    DELETE FROM "{{schema}}"."{{queue}}_history" WITH (ROWLOCK) WHERE "Seq" IN (SELECT x."Seq" FROM @Hit x) OPTION (LOOP JOIN);
    DELETE FROM "{{schema}}"."{{queue}}_hold" WHERE "OrderingKey" IN (SELECT x."OrderingKey" FROM @Hit x WHERE x."OrderingKey" IS NOT NULL);
    {{requeued}}
    IF @Silent = 0 AND EXISTS (SELECT 1 FROM @Hit)
    BEGIN
        DECLARE @Count INT = (SELECT COUNT(*) FROM @Hit);
        DECLARE @Items NVARCHAR(MAX) = (
            SELECT TOP (20) LOWER(CAST(h."Id" AS NVARCHAR(36))) AS "id", h."Topic" AS "topic", N'failed' AS "before.status", h."Reason" AS "before.reason", h."Attempts" AS "before.attempts",
                   N'ready' AS "after.status", 0 AS "after.attempts"
              FROM @Hit h ORDER BY h."Seq" FOR JSON PATH);
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'{{queue:kind}}' AS kind, LOWER(CAST(h."Id" AS NVARCHAR(36))) AS value FROM @Hit h FOR JSON PATH);
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + @Items + COALESCE(N',"filter":' + @Filter, N'') + N'}';
        EXEC "{{schema}}"."{{audit}}_Note" N'{{queue:kind}}.requeue', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    IF @Silent = 0
        SELECT h."Id" AS id FROM @Hit h ORDER BY h."ProcessedAt", h."Seq";
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_RequeueWhere"
    @Topic NVARCHAR(510) = NULL,
    @Reason NVARCHAR(20) = NULL,
    @CorrelationId NVARCHAR(510) = NULL,
    @SettledAfter DATETIME2(6) = NULL,
    @SettledBefore DATETIME2(6) = NULL,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Ids NVARCHAR(MAX) = (
        SELECT TOP (@MaxRows) h."Id" AS id FROM "{{schema}}"."{{queue}}_history" h
         WHERE h."Status" = 3 AND (@Topic IS NULL OR h."Topic" = @Topic) AND (@Reason IS NULL OR h."Reason" = @Reason)
           AND (@CorrelationId IS NULL OR h."CorrelationId" = @CorrelationId)
           AND (@SettledAfter IS NULL OR h."ProcessedAt" >= @SettledAfter) AND (@SettledBefore IS NULL OR h."ProcessedAt" < @SettledBefore)
         ORDER BY h."ProcessedAt", h."Seq" FOR JSON PATH);
    DECLARE @Filter NVARCHAR(MAX) = (
        SELECT @Topic AS topic, @Reason AS reason, @CorrelationId AS correlation_id, CONVERT(NVARCHAR(30), @SettledAfter, 126) AS failed_after,
               CONVERT(NVARCHAR(30), @SettledBefore, 126) AS failed_before, @MaxRows AS max_rows
           FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
    EXEC "{{schema}}"."{{queue}}_RequeueMany" @Ids, @Actor, @ActorCorrelationId, @Filter;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_ReleaseKey"
    @OrderingKey NVARCHAR(510),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{queue}}_Lock" @OrderingKey, 1;
    DELETE FROM "{{schema}}"."{{queue}}_hold" WHERE "OrderingKey" = @OrderingKey;
    DECLARE @Released INT = @@ROWCOUNT;
    IF @Released > 0
    BEGIN
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'ordering_key' AS kind, "{{schema}}"."{{outbox}}_listed"(@OrderingKey) AS value FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'{{queue:kind}}.release_key', @Actor, @ActorCorrelationId, N'{"before":{"held":true},"after":{"held":false}}', @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Released AS released;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Purge"
    @DoneOlderThanSeconds FLOAT = NULL,
    @FailedOlderThanSeconds FLOAT = NULL,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Age FLOAT, @Status TINYINT = 2, @Room INT = @MaxRows, @Purged INT = 0, @Until DATETIME2(6);
    DECLARE @Pick TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Gone TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "IdempotencyKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL);
    IF @Own = 1 BEGIN TRANSACTION;
    -- First the done, then the failed.
    WHILE @Status <= 3
    BEGIN
        SET @Age = CASE @Status WHEN 2 THEN @DoneOlderThanSeconds ELSE @FailedOlderThanSeconds END;
        IF @Age IS NOT NULL AND @Room > 0
        BEGIN
            SET @Until = "{{schema}}"."{{outbox}}_before"(@Now, @Age);
            DELETE FROM @Pick;
            INSERT INTO @Pick ("Seq")
            SELECT TOP (@Room) h."Seq" FROM "{{schema}}"."{{queue}}_history" h WITH (UPDLOCK, READPAST, ROWLOCK)
             WHERE h."Status" = @Status AND h."ProcessedAt" <= @Until ORDER BY h."ProcessedAt", h."Seq";
    {{purging}}
            DELETE FROM "{{schema}}"."{{queue}}_history" WITH (ROWLOCK)
            OUTPUT deleted."Seq", deleted."Id", deleted."IdempotencyKey" INTO @Gone
             WHERE "Status" = @Status AND "ProcessedAt" <= @Until AND "Seq" IN (SELECT p."Seq" FROM @Pick p) OPTION (LOOP JOIN);
            SET @Room = @Room - @@ROWCOUNT;
        END
        SET @Status = @Status + 1;
    END
    SET @Purged = @MaxRows - @Room;
    DELETE FROM "{{schema}}"."{{queue}}_idempotency" WITH (ROWLOCK)
     WHERE "IdempotencyKey" IN (SELECT g."IdempotencyKey" FROM @Gone g WHERE g."IdempotencyKey" IS NOT NULL) AND EXISTS (SELECT 1 FROM @Gone g WHERE g."IdempotencyKey" = "{{schema}}"."{{queue}}_idempotency"."IdempotencyKey" AND g."Id" = "{{schema}}"."{{queue}}_idempotency"."Id") OPTION (LOOP JOIN);
    IF @Actor IS NOT NULL AND @Purged > 0
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = (
            SELECT @Purged AS "count", CAST(FLOOR(@DoneOlderThanSeconds) AS BIGINT) AS older_than_seconds, CAST(FLOOR(@FailedOlderThanSeconds) AS BIGINT) AS failed_older_than_seconds
               FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
        EXEC "{{schema}}"."{{audit}}_Note" N'{{queue:kind}}.purge', @Actor, @ActorCorrelationId, @Data, NULL;
    END
    IF @Own = 1 COMMIT;
    SELECT @Purged AS purged;
END
GO
