-- Adding items, in the caller's transaction if there is one.
--
-- An id is used once. Ids that a caller brings are looked up among open and settled items; the lookup is by the index of each.
--
-- Locks: the application lock of the idempotency key, if there is one, so that of two callers with the same key the second waits and
-- then finds the first one's ids; then the new rows' own. An enqueue never waits for a claim, nor a claim for it.

ALTER PROCEDURE "{{schema}}"."{{queue}}_EnqueueMany"
    -- A list of objects: n (their order, from 1), topic, and as wanted id, message_id, correlation_id, due_at or due_in
    -- (microseconds), expires_at or expires_in, idempotency_key, ordering_key, hold (0 or 1), priority,
    -- joins (a list of ids). In texts `~` is written `~0`. An id is looked up, unless new_id is 1: it was made for this very item.
    @Messages NVARCHAR(MAX),
    -- A list of texts: the payload of the first, its headers (a JSON text, or null), the payload of the second, and so on.
    @Bodies NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @New TABLE ("N" INT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NULL, "MessageId" UNIQUEIDENTIFIER NULL,
                        "Key" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL, "Added" BIT NOT NULL, "Own" BIT NOT NULL, "Complaint" NVARCHAR(200) NULL);
    INSERT INTO @New ("N", "Id", "MessageId", "Key", "Added", "Own", "Complaint")
    SELECT m.n, COALESCE(m.id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID())), COALESCE(m.message_id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID())), "{{schema}}"."{{outbox}}_text"(m.idempotency_key), 1,
           CASE WHEN m.id IS NOT NULL AND COALESCE(m.new_id, 0) = 0 THEN 1 ELSE 0 END,
           CASE WHEN m.topic IS NULL OR DATALENGTH(m.topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"("{{schema}}"."{{outbox}}_text"(m.topic), 255) = 1 THEN N'topic must be 1 to 255 characters'
                WHEN m.priority NOT BETWEEN -9 AND 9 THEN N'priority must be -9 to 9' END
      FROM OPENJSON(@Messages) WITH (
           n INT '$.n', id UNIQUEIDENTIFIER '$.id', new_id BIT '$.new_id', message_id UNIQUEIDENTIFIER '$.message_id', topic NVARCHAR(MAX) '$.topic',
           idempotency_key NVARCHAR(MAX) '$.idempotency_key', priority INT '$.priority') m;
    DECLARE @Body TABLE ("N" INT NOT NULL PRIMARY KEY, "Text" NVARCHAR(MAX) NULL);
    INSERT INTO @Body ("N", "Text") SELECT CAST(b."key" AS INT), "{{schema}}"."{{outbox}}_text"(b."value") FROM OPENJSON(@Bodies) b;
    UPDATE n SET "Complaint" = N'payload must not be null (an empty text is fine)' FROM @New n
     WHERE NOT EXISTS (SELECT 1 FROM @Body b WHERE b."N" = 2 * n."N" - 2 AND b."Text" IS NOT NULL);
    DECLARE @Complaint NVARCHAR(300) = (SELECT MIN(N'{{queue:kind}}_enqueue: ' + "Complaint") FROM @New);
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;

    IF @Own = 1 BEGIN TRANSACTION;
    IF EXISTS (SELECT 1 FROM @New WHERE "Key" IS NOT NULL)
    BEGIN
        -- In one order, so that callers with the same keys wait for each other in it.
        DECLARE @Key NVARCHAR(510) = (SELECT MIN("Key") FROM @New);
        WHILE @Key IS NOT NULL
        BEGIN
            EXEC "{{schema}}"."{{queue}}_OnceLock" @Key;
            SET @Key = (SELECT MIN("Key") FROM @New WHERE "Key" > @Key);
        END
        DECLARE @NewKeys TABLE ("Key" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL);
        INSERT INTO @NewKeys ("Key")
        SELECT DISTINCT n."Key" FROM @New n
         WHERE n."Key" IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_idempotency" i WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE i."IdempotencyKey" = n."Key");
        -- The first of a repeated key stands for all.
        INSERT INTO "{{schema}}"."{{queue}}_idempotency" ("IdempotencyKey", "Id", "MessageId", "CreatedAt")
        SELECT n."Key", n."Id", n."MessageId", SYSUTCDATETIME()
          FROM @New n
         WHERE n."Key" IN (SELECT f."Key" FROM @NewKeys f)
           AND n."N" = (SELECT MIN(f."N") FROM @New f WHERE f."Key" = n."Key")
         ORDER BY n."Key";
        UPDATE n SET "Added" = 0
          FROM @New n
         WHERE n."Key" IS NOT NULL
           -- Not by the id: a caller that tries again brings the same one.
           AND (NOT EXISTS (SELECT 1 FROM @NewKeys f WHERE f."Key" = n."Key") OR n."N" <> (SELECT MIN(f."N") FROM @New f WHERE f."Key" = n."Key"));
        UPDATE n SET "MessageId" = i."MessageId", "Id" = i."Id"
          FROM @New n JOIN "{{schema}}"."{{queue}}_idempotency" i WITH (FORCESEEK) ON i."IdempotencyKey" = n."Key"
         WHERE n."Added" = 0;
    END

    -- The ids that can have been used before.
    DECLARE @Ids NVARCHAR(MAX) = (SELECT n."Id" AS id FROM @New n WHERE n."Own" = 1 AND n."Added" = 1 ORDER BY n."N" FOR JSON PATH);
    IF @Ids IS NOT NULL EXEC "{{schema}}"."{{queue}}_RefuseKnown" @Ids, 0;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    -- A due time in the past means now: it must not jump the queue. Relative times are counted from here, so that the caller's clock
    -- does not matter.
    BEGIN TRY
        -- An id that another transaction has committed since must leave this one fit to look it up.
        IF @Ids IS NOT NULL SET XACT_ABORT OFF;
        INSERT INTO "{{schema}}"."{{queue}}" (
            "Id", "MessageId", "Topic", "Payload", "CreatedAt", "DueAt", "RequestedDueAt", "ExpiresAt", "Priority", "OrderingKey",
            "HoldOnFailure", "IdempotencyKey", "CorrelationId", "Headers")
        SELECT n."Id", n."MessageId", "{{schema}}"."{{outbox}}_text"(m.topic), p."Text", @Now,
               CASE WHEN m.due_at > @Now THEN m.due_at
                    WHEN m.due_in IS NOT NULL THEN "{{schema}}"."{{outbox}}_after"(@Now, m.due_in) ELSE @Now END,
               COALESCE(m.due_at, "{{schema}}"."{{outbox}}_after"(@Now, m.due_in)),
               COALESCE(m.expires_at, "{{schema}}"."{{outbox}}_after"(@Now, m.expires_in)),
               COALESCE(m.priority, 0), "{{schema}}"."{{outbox}}_text"(m.ordering_key), COALESCE(m.hold, 0), n."Key",
               "{{schema}}"."{{outbox}}_text"(m.correlation_id), x."Text"
          FROM OPENJSON(@Messages) WITH (
               n INT '$.n', topic NVARCHAR(MAX) '$.topic', correlation_id NVARCHAR(MAX) '$.correlation_id',
               due_at DATETIME2(6) '$.due_at', due_in BIGINT '$.due_in', expires_at DATETIME2(6) '$.expires_at', expires_in BIGINT '$.expires_in',
               priority SMALLINT '$.priority', ordering_key NVARCHAR(MAX) '$.ordering_key', hold BIT '$.hold') m
          JOIN @New n ON n."N" = m.n
          JOIN @Body p ON p."N" = 2 * m.n - 2
          LEFT JOIN @Body x ON x."N" = 2 * m.n - 1
         WHERE n."Added" = 1
         ORDER BY n."N";
        SET XACT_ABORT ON;
    END TRY
    BEGIN CATCH
        SET XACT_ABORT ON;
        IF @Ids IS NOT NULL AND ERROR_NUMBER() IN (2601, 2627) AND XACT_STATE() = 1
            EXEC "{{schema}}"."{{queue}}_RefuseKnown" @Ids, 0;
        THROW;
    END CATCH
    -- The insert waits for a settle of the id that is under way, and then finds the place free: look again at what is settled.
    IF @Ids IS NOT NULL EXEC "{{schema}}"."{{queue}}_RefuseKnown" @Ids, 1;
    {{enqueued}}
    IF @Own = 1 COMMIT;
    SELECT n."Id" AS id, n."MessageId" AS message_id, n."Added" AS added FROM @New n ORDER BY n."N";
END
GO
-- Internal: refuses the first of these ids that an item has, open or settled, or that comes a second time. Only committed items count, whatever the isolation level.
ALTER PROCEDURE "{{schema}}"."{{queue}}_RefuseKnown"
    -- A list of objects with an id.
    @Ids NVARCHAR(MAX),
    @SettledOnly BIT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Asked TABLE ("N" INT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL);
    INSERT INTO @Asked ("N", "Id") SELECT CAST(i."key" AS INT), CAST(JSON_VALUE(i."value", '$.id') AS UNIQUEIDENTIFIER) FROM OPENJSON(@Ids) i;
    DECLARE @Complaint NVARCHAR(300) = (
        SELECT TOP (1) N'{{queue:kind}}_enqueue: work_item_id ' + LOWER(CAST(k."Id" AS NVARCHAR(36))) + N' belongs to a work item that is '
                       + CASE k."Status" WHEN 0 THEN N'ready' WHEN 1 THEN N'in-progress' WHEN 2 THEN N'done' ELSE N'failed' END
          FROM (SELECT a."N", a."Id",
                       COALESCE(CASE WHEN @SettledOnly = 0 THEN (SELECT MAX(o."Status") FROM "{{schema}}"."{{queue}}" o WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE o."Id" = a."Id") END,
                                (SELECT MAX(h."Status") FROM "{{schema}}"."{{queue}}_history" h WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE h."Id" = a."Id"),
                                CASE WHEN a."Nth" > 1 THEN 0 END) AS "Status"
                  FROM (SELECT u."N", u."Id", ROW_NUMBER() OVER (PARTITION BY u."Id" ORDER BY u."N") AS "Nth" FROM @Asked u) a) k
         WHERE k."Status" IS NOT NULL
         ORDER BY k."N");
    IF @Complaint IS NOT NULL
        THROW 50010, @Complaint, 1;
END
GO
