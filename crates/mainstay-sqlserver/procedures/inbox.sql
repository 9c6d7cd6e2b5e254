-- The ledger of received messages.
--
-- Locks, in this order: the application lock of the message's key, waited for; if it has an item in the queue, the lock of that one's ordering key, and the item, found by its id; the entry. A worker that ends an
-- item, or a claim that finds it expired, has the item first and then the entry, too, and never waits for a key's lock: so no circle can close over it.

-- Internal: has a message for the caller's transaction: nobody else changes its entry, or begins or ends its item, until that has ended.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_KeyLock"
    @Digest BINARY(32)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Resource NVARCHAR(255) = N'mainstay ' + CAST(DB_ID() AS NVARCHAR(10)) + N' {{schema:literal}}.{{inbox:literal}} key ' + CAST(CAST(SUBSTRING(@Digest, 1, 8) AS BIGINT) AS NVARCHAR(20));
    DECLARE @Got INT;
    EXEC @Got = sp_getapplock @Resource = @Resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 30000;
    IF @Got < 0
        THROW 50004, N'inbox: a message stayed locked by another transaction', 1;
    -- The item may leave its line for this message: whoever does that has the line's lock, and before the item.
    DECLARE @Item UNIQUEIDENTIFIER = (SELECT e."WorkItemId" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest);
    DECLARE @Lane NVARCHAR(510) = (SELECT q."OrderingKey" FROM "{{schema}}"."{{inbox}}" q WITH (NOLOCK) WHERE q."Id" = @Item);
    IF @Lane IS NOT NULL
        EXEC "{{schema}}"."{{inbox}}_Lock" @Lane, 1;
    UPDATE "{{schema}}"."{{inbox}}" WITH (ROWLOCK) SET "Status" = "Status" WHERE "Id" = @Item;
END
GO
-- Internal: refuses what can't be.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Check"
    @What NVARCHAR(50),
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    @Hash NVARCHAR(MAX) = NULL,
    @LeaseSeconds FLOAT = 30
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Source IS NULL OR DATALENGTH(@Source) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Source, 255) = 1 THEN N'source must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Source)
        WHEN "{{schema}}"."{{outbox}}_blank"(@Source) = 1 THEN N'source must not be blank'
        WHEN @MessageId IS NULL OR DATALENGTH(@MessageId) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@MessageId, 512) = 1 THEN N'message_id must be 1 to 512 characters' + "{{schema}}"."{{outbox}}_got"(@MessageId)
        WHEN "{{schema}}"."{{outbox}}_blank"(@MessageId) = 1 THEN N'message_id must not be blank'
        WHEN @Hash IS NOT NULL AND (LEN(@Hash + N'.') <> 65 OR @Hash COLLATE Latin1_General_BIN2 LIKE N'%[^0-9A-Fa-f]%') THEN N'hash must be 64 digits of hexadecimal, or null'
        WHEN @LeaseSeconds IS NULL OR NOT (@LeaseSeconds > 0 AND @LeaseSeconds <= 1000000000) THEN N'lease_seconds must be more than 0 and at most 1000000000'
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'inbox_' + @What + N': ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
END
GO
-- Whether a message is done. Notes it as seen if it is not known.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_AlreadyProcessed"
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    -- In hexadecimal.
    @Hash NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    EXEC "{{schema}}"."{{inbox}}_Check" N'already_processed', @Source, @MessageId, @Hash;
    SET @Hash = LOWER(@Hash);
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Source + NCHAR(1) + @MessageId);
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    UPDATE "{{schema}}"."{{inbox}}_entry" SET "LastSeenAt" = @Now, "Hash" = COALESCE("Hash", @Hash) WHERE "Digest" = @Digest;
    IF @@ROWCOUNT = 0
        INSERT INTO "{{schema}}"."{{inbox}}_entry" ("Source", "MessageId", "Digest", "State", "Hash", "FirstSeenAt", "LastSeenAt", "Attempts", "Generation")
        VALUES (@Source, @MessageId, @Digest, 0, @Hash, @Now, @Now, 0, 0);
    SELECT CASE WHEN e."State" = 2 THEN 1 ELSE 0 END AS processed, CASE WHEN @Hash IS NOT NULL AND e."Hash" <> @Hash THEN 1 ELSE 0 END AS hash_mismatch
      FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest;
    IF @Own = 1 COMMIT;
END
GO
-- Internal: an item that waits in the queue although its entry is settled leaves it.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Withdraw"
    @Id UNIQUEIDENTIFIER,
    @Now DATETIME2(6)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Endings "{{schema}}"."{{inbox}}_ending";
    -- Most callers have it already; a reap has not.
    DECLARE @Lane NVARCHAR(510) = (SELECT q."OrderingKey" FROM "{{schema}}"."{{inbox}}" q WITH (NOLOCK) WHERE q."Id" = @Id);
    IF @Lane IS NOT NULL
        EXEC "{{schema}}"."{{inbox}}_Lock" @Lane, 1;
    UPDATE "{{schema}}"."{{inbox}}" SET "Status" = 0 OUTPUT inserted."Seq", inserted."Id" INTO @Hit WHERE "Status" = 0 AND "Id" = @Id;
    INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
    SELECT h."Seq", e."State", CASE e."State" WHEN 3 THEN N'handler' END, e."LastError", 0, 1, 0
      FROM @Hit h JOIN "{{schema}}"."{{inbox}}_entry" e ON e."WorkItemId" = h."Id" WHERE e."State" >= 2 AND e."WorkItemId" IS NOT NULL;
    IF EXISTS (SELECT 1 FROM @Endings)
        EXEC "{{schema}}"."{{inbox}}_Retire" @Endings, @Now;
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Mark"
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    -- processing, processed or dead.
    @As NVARCHAR(20),
    @LeaseSeconds FLOAT = 30,
    @Error NVARCHAR(MAX) = NULL,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    EXEC "{{schema}}"."{{inbox}}_Check" N'mark', @Source, @MessageId, NULL, @LeaseSeconds;
    IF @As IS NULL OR @As NOT IN (N'processing', N'processed', N'dead')
        THROW 50001, N'inbox_mark: as must be processing, processed or dead', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Source + NCHAR(1) + @MessageId);
    DECLARE @Was INT, @Changed INT = 0, @Item UNIQUEIDENTIFIER, @Became INT, @Until DATETIME2(6);
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT @Was = e."State" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest;
    IF @Was IS NULL
        INSERT INTO "{{schema}}"."{{inbox}}_entry" ("Source", "MessageId", "Digest", "State", "FirstSeenAt", "LastSeenAt", "Attempts", "Generation")
        VALUES (@Source, @MessageId, @Digest, 0, @Now, @Now, 0, 0);
    ELSE
        UPDATE "{{schema}}"."{{inbox}}_entry" SET "LastSeenAt" = @Now WHERE "Digest" = @Digest;
    IF @As = N'processing'
    BEGIN
        SET @Until = "{{schema}}"."{{outbox}}_after"(@Now, CAST(@LeaseSeconds * 1000000 AS BIGINT));
        UPDATE "{{schema}}"."{{inbox}}_entry"
           SET "State" = 1, "OwnerToken" = NULL, "LockedUntil" = @Until, "Generation" = "Generation" + 1, "Attempts" = "Attempts" + 1
         WHERE "Digest" = @Digest AND "State" < 2 AND NOT ("State" = 1 AND "OwnerToken" IS NOT NULL AND "LockedUntil" > @Now);
        SET @Changed = @@ROWCOUNT;
        -- Keeps workers off a message that somebody has reserved.
        UPDATE q SET "DueAt" = CASE WHEN q."DueAt" > e."LockedUntil" THEN q."DueAt" ELSE e."LockedUntil" END
          FROM "{{schema}}"."{{inbox}}" q JOIN "{{schema}}"."{{inbox}}_entry" e ON e."WorkItemId" = q."Id"
         WHERE e."Digest" = @Digest AND e."State" = 1 AND q."Status" = 0;
    END
    ELSE
    BEGIN
        SET @Became = CASE @As WHEN N'processed' THEN 2 ELSE 3 END;
        UPDATE "{{schema}}"."{{inbox}}_entry"
           SET "State" = @Became, "ProcessedAt" = @Now, "OwnerToken" = NULL, "LockedUntil" = NULL, "LastError" = COALESCE(@Error, "LastError")
         WHERE "Digest" = @Digest AND "State" <> 2 AND "State" <> @Became;
        SET @Changed = @@ROWCOUNT;
        IF @Changed = 0 AND @Became = 3
            UPDATE "{{schema}}"."{{inbox}}_entry" SET "LastError" = COALESCE(@Error, "LastError") WHERE "Digest" = @Digest AND "State" = 3;
        SELECT @Item = e."WorkItemId" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest AND e."State" >= 2;
        IF @Changed > 0 AND @Item IS NOT NULL
        BEGIN
            EXEC "{{schema}}"."{{inbox}}_Withdraw" @Item, @Now;
            -- One that was dead must not be requeued any more.
            IF @Became = 2
                UPDATE "{{schema}}"."{{inbox}}_history" SET "Status" = 2, "Reason" = NULL WHERE "Status" = 3 AND "Id" = @Item;
        END
    END
    IF @Changed > 0 AND @Actor IS NOT NULL
    BEGIN
        SELECT @Became = e."State" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest;
        DECLARE @Data NVARCHAR(MAX) = (
            SELECT CASE @Was WHEN 0 THEN N'seen' WHEN 1 THEN N'processing' WHEN 2 THEN N'done' WHEN 3 THEN N'dead' END AS "before.state",
                   CASE @Became WHEN 0 THEN N'seen' WHEN 1 THEN N'processing' WHEN 2 THEN N'done' WHEN 3 THEN N'dead' END AS "after.state"
               FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
        DECLARE @Anchors NVARCHAR(MAX) = (
            SELECT x.kind AS kind, "{{schema}}"."{{outbox}}_listed"(x.value) AS value
              FROM (SELECT N'inbox' AS kind, CAST(@MessageId AS NVARCHAR(MAX)) AS value UNION ALL SELECT N'source', CAST(@Source AS NVARCHAR(MAX))) x FOR JSON PATH);
        DECLARE @Name NVARCHAR(100) = N'inbox.mark_' + @As;
        EXEC "{{schema}}"."{{audit}}_Note" @Name, @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Changed AS changed;
END
GO
-- Reserves a message, if nobody has it, the queue neither, and it is not settled.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Begin"
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    @OwnerToken UNIQUEIDENTIFIER,
    @LeaseSeconds FLOAT = 30,
    @Hash NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    EXEC "{{schema}}"."{{inbox}}_Check" N'begin', @Source, @MessageId, @Hash, @LeaseSeconds;
    IF @OwnerToken IS NULL OR @OwnerToken = '00000000-0000-0000-0000-000000000000'
        THROW 50001, N'inbox_begin: owner must not be null or nil', 1;
    SET @Hash = LOWER(@Hash);
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Source + NCHAR(1) + @MessageId);
    DECLARE @Taken INT = 0, @State INT, @Item UNIQUEIDENTIFIER;
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_after"(@Now, CAST(@LeaseSeconds * 1000000 AS BIGINT));
    SELECT @State = e."State", @Item = e."WorkItemId" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest;
    IF @State IS NULL
    BEGIN
        INSERT INTO "{{schema}}"."{{inbox}}_entry" ("Source", "MessageId", "Digest", "State", "Hash", "FirstSeenAt", "LastSeenAt", "OwnerToken", "LockedUntil", "Attempts", "Generation")
        VALUES (@Source, @MessageId, @Digest, 1, @Hash, @Now, @Now, @OwnerToken, @Until, 1, 1);
        SET @Taken = 1;
    END
    ELSE
    BEGIN
        UPDATE "{{schema}}"."{{inbox}}_entry"
           SET "State" = 1, "OwnerToken" = @OwnerToken, "LockedUntil" = @Until, "Generation" = "Generation" + 1, "Attempts" = "Attempts" + 1
         WHERE "Digest" = @Digest AND ("State" = 0 OR ("State" = 1 AND "LockedUntil" <= @Now))
           AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{inbox}}" q WHERE q."Id" = @Item);
        SET @Taken = @@ROWCOUNT;
        UPDATE "{{schema}}"."{{inbox}}_entry" SET "LastSeenAt" = @Now, "Hash" = COALESCE("Hash", @Hash) WHERE "Digest" = @Digest;
    END
    SELECT CASE WHEN @Taken = 1 THEN N'new' WHEN x."State" = 2 THEN N'done' WHEN x."State" = 3 THEN N'dead' ELSE N'busy' END AS outcome,
           x."Generation" AS generation, x."Attempts" AS attempts, x."Until" AS held_until, DATEDIFF_BIG(MICROSECOND, @Now, x."Until") AS held_microseconds,
           CASE WHEN @Hash IS NOT NULL AND x."Hash" <> @Hash THEN 1 ELSE 0 END AS hash_mismatch
      FROM (SELECT e."State", e."Generation", e."Attempts", e."Hash",
                   CASE WHEN e."State" < 2 AND q."Status" = 1 THEN q."LockedUntil"
                        WHEN e."State" < 2 AND q."Status" = 0 THEN
                             CASE WHEN q."DueAt" >= COALESCE(e."LockedUntil", @Now) AND q."DueAt" >= @Now THEN q."DueAt"
                                  WHEN e."LockedUntil" >= @Now THEN e."LockedUntil" ELSE @Now END
                        ELSE e."LockedUntil" END AS "Until"
              FROM "{{schema}}"."{{inbox}}_entry" e LEFT JOIN "{{schema}}"."{{inbox}}" q ON q."Id" = e."WorkItemId"
             WHERE e."Digest" = @Digest) x;
    IF @Own = 1 COMMIT;
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_GuardRenew"
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    @OwnerToken UNIQUEIDENTIFIER,
    @Generation BIGINT,
    @LeaseSeconds FLOAT = 30
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    EXEC "{{schema}}"."{{inbox}}_Check" N'guard_renew', @Source, @MessageId, NULL, @LeaseSeconds;
    IF @OwnerToken IS NULL OR @Generation IS NULL
        THROW 50001, N'inbox_guard_renew: owner and generation must not be null', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Source + NCHAR(1) + @MessageId);
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
    -- Once it has lapsed, a worker may have it, or be about to: his claim is waited for, and before the entry is written, which he does after the item.
    DECLARE @Status INT = (
        SELECT q."Status" FROM "{{schema}}"."{{inbox}}" q WITH (UPDLOCK, ROWLOCK)
         WHERE q."Id" = (SELECT e."WorkItemId" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest));
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_after"(SYSUTCDATETIME(), CAST(@LeaseSeconds * 1000000 AS BIGINT));
    UPDATE "{{schema}}"."{{inbox}}_entry" SET "LockedUntil" = @Until
     WHERE "Digest" = @Digest AND "State" = 1 AND "OwnerToken" = @OwnerToken AND "Generation" = @Generation AND COALESCE(@Status, 0) <> 1;
    IF @@ROWCOUNT = 0
        SET @Until = NULL;
    ELSE
        UPDATE q SET "DueAt" = @Until FROM "{{schema}}"."{{inbox}}" q JOIN "{{schema}}"."{{inbox}}_entry" e ON e."WorkItemId" = q."Id"
         WHERE e."Digest" = @Digest AND q."Status" = 0 AND q."DueAt" < @Until;
    IF @Own = 1 COMMIT;
    SELECT @Until AS held_until;
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_GuardEnd"
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    @OwnerToken UNIQUEIDENTIFIER,
    @Generation BIGINT,
    -- 2 complete, 3 fail, 0 release.
    @State TINYINT,
    @Error NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    EXEC "{{schema}}"."{{inbox}}_Check" N'guard_end', @Source, @MessageId;
    IF @OwnerToken IS NULL OR @Generation IS NULL
        THROW 50001, N'inbox_guard_end: owner and generation must not be null', 1;
    IF @State IS NULL OR @State NOT IN (0, 2, 3)
        THROW 50001, N'inbox_guard_end: state must be 2 (complete), 3 (fail) or 0 (give back)', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Source + NCHAR(1) + @MessageId);
    DECLARE @Changed INT, @Item UNIQUEIDENTIFIER;
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT @Item = e."WorkItemId" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest;
    -- As in GuardRenew.
    DECLARE @Status INT = (SELECT q."Status" FROM "{{schema}}"."{{inbox}}" q WITH (UPDLOCK, ROWLOCK) WHERE q."Id" = @Item);
    -- What is given back without an error was no attempt.
    UPDATE "{{schema}}"."{{inbox}}_entry"
       SET "State" = @State, "ProcessedAt" = CASE WHEN @State >= 2 THEN @Now END, "OwnerToken" = NULL, "LockedUntil" = NULL,
           "Attempts" = CASE WHEN @State = 0 AND @Error IS NULL AND "Attempts" > 0 THEN "Attempts" - 1 ELSE "Attempts" END,
           "LastError" = COALESCE(@Error, "LastError")
     WHERE "Digest" = @Digest AND "State" = 1 AND "OwnerToken" = @OwnerToken AND "Generation" = @Generation AND COALESCE(@Status, 0) <> 1;
    SET @Changed = @@ROWCOUNT;
    IF @Changed > 0 AND @Item IS NOT NULL AND @State >= 2
        EXEC "{{schema}}"."{{inbox}}_Withdraw" @Item, @Now;
    -- It was kept from the workers until the end of the reservation.
    IF @Changed > 0 AND @Item IS NOT NULL AND @State = 0
        UPDATE "{{schema}}"."{{inbox}}" SET "DueAt" = CASE WHEN "RequestedDueAt" > @Now THEN "RequestedDueAt" ELSE @Now END
         WHERE "Id" = @Item AND "Status" = 0 AND "Generation" = 0;
    IF @Own = 1 COMMIT;
    SELECT @Changed AS changed;
END
GO
-- Receives messages into the queue, once however often they come.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_ReceiveMany"
    -- A list of objects: n (their order, from 1), source, key (the message's id at its source), hash, topic, and as wanted what Outbox_EnqueueMany takes.
    -- In texts `~` is written `~0`.
    @Messages NVARCHAR(MAX),
    -- Payloads and headers, as there.
    @Bodies NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @In TABLE (
        "N" INT NOT NULL PRIMARY KEY, "Source" NVARCHAR(MAX) NULL, "Key" NVARCHAR(MAX) NULL, "Hash" NVARCHAR(64) NULL, "Id" UNIQUEIDENTIFIER NULL, "MessageId" UNIQUEIDENTIFIER NULL, "Topic" NVARCHAR(MAX) NULL,
        "Payload" NVARCHAR(MAX) NULL, "CorrelationId" NVARCHAR(MAX) NULL, "DueAt" DATETIME2(6) NULL, "DueIn" BIGINT NULL, "ExpiresAt" DATETIME2(6) NULL, "ExpiresIn" BIGINT NULL, "Priority" SMALLINT NULL,
        "OrderingKey" NVARCHAR(MAX) NULL, "Hold" BIT NULL, "Headers" NVARCHAR(MAX) NULL, "Digest" BINARY(32) NULL, "Outcome" NVARCHAR(20) NULL, "Mismatch" BIT NULL, "Item" UNIQUEIDENTIFIER NULL);
    DECLARE @Body TABLE ("N" INT NOT NULL PRIMARY KEY, "Text" NVARCHAR(MAX) NULL);
    INSERT INTO @Body ("N", "Text") SELECT CAST(b."key" AS INT), "{{schema}}"."{{outbox}}_text"(b."value") FROM OPENJSON(@Bodies) b;
    INSERT INTO @In ("N", "Source", "Key", "Hash", "Id", "MessageId", "Topic", "Payload", "CorrelationId", "DueAt", "DueIn", "ExpiresAt", "ExpiresIn", "Priority", "OrderingKey", "Hold", "Headers")
    SELECT m.n, "{{schema}}"."{{outbox}}_text"(m.source), "{{schema}}"."{{outbox}}_text"(m."key"), m.hash, m.id, m.message_id, "{{schema}}"."{{outbox}}_text"(m.topic), p."Text",
           "{{schema}}"."{{outbox}}_text"(m.correlation_id), m.due_at, m.due_in, m.expires_at, m.expires_in, m.priority, "{{schema}}"."{{outbox}}_text"(m.ordering_key), m.hold, x."Text"
      FROM OPENJSON(@Messages) WITH (
           n INT '$.n', source NVARCHAR(MAX) '$.source', "key" NVARCHAR(MAX) '$.key', hash NVARCHAR(64) '$.hash', id UNIQUEIDENTIFIER '$.id', message_id UNIQUEIDENTIFIER '$.message_id', topic NVARCHAR(MAX) '$.topic',
           correlation_id NVARCHAR(MAX) '$.correlation_id', due_at DATETIME2(6) '$.due_at', due_in BIGINT '$.due_in', expires_at DATETIME2(6) '$.expires_at',
           expires_in BIGINT '$.expires_in', priority SMALLINT '$.priority', ordering_key NVARCHAR(MAX) '$.ordering_key', hold BIT '$.hold') m
      LEFT JOIN @Body p ON p."N" = 2 * m.n - 2
      LEFT JOIN @Body x ON x."N" = 2 * m.n - 1;
    DECLARE @Complaint NVARCHAR(300) = (
        SELECT MIN(CASE WHEN i."Source" IS NULL OR DATALENGTH(i."Source") = 0 OR "{{schema}}"."{{outbox}}_exceeds"(i."Source", 255) = 1 THEN N'inbox_enqueue: source must be 1 to 255 characters'
                        WHEN i."Key" IS NULL OR DATALENGTH(i."Key") = 0 OR "{{schema}}"."{{outbox}}_exceeds"(i."Key", 512) = 1 THEN N'inbox_enqueue: message_id must be 1 to 512 characters'
                        WHEN i."Topic" IS NULL OR DATALENGTH(i."Topic") = 0 OR "{{schema}}"."{{outbox}}_exceeds"(i."Topic", 255) = 1 THEN N'inbox_enqueue: topic must be 1 to 255 characters'
                        WHEN i."Payload" IS NULL THEN N'inbox_enqueue: payload must not be null (an empty text is fine)' END) FROM @In i);
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;
    UPDATE @In SET "Digest" = HASHBYTES('SHA2_256', "Source" + NCHAR(1) + "Key");
    IF @Own = 1 BEGIN TRANSACTION;
    -- The locks first, in one order, so that callers with the same messages wait for each other in it.
    DECLARE @Digest BINARY(32), @Place INT = 1;
    DECLARE @Order TABLE ("Place" INT NOT NULL PRIMARY KEY, "Digest" BINARY(32) NOT NULL);
    INSERT INTO @Order ("Place", "Digest") SELECT ROW_NUMBER() OVER (ORDER BY i."Digest"), i."Digest" FROM @In i;
    WHILE @Place <= (SELECT COUNT(*) FROM @Order)
    BEGIN
        SELECT @Digest = o."Digest" FROM @Order o WHERE o."Place" = @Place;
        EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
        SET @Place = @Place + 1;
    END
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @N INT = (SELECT MIN("N") FROM @In);
    DECLARE @State INT, @Item UNIQUEIDENTIFIER, @Status INT, @Reserved DATETIME2(6), @Lane NVARCHAR(510), @Known NVARCHAR(64), @Hash NVARCHAR(64), @Due DATETIME2(6), @Requested DATETIME2(6), @Expires DATETIME2(6), @Outcome NVARCHAR(20);
    WHILE @N IS NOT NULL
    BEGIN
        SELECT @Digest = i."Digest", @Hash = i."Hash", @Requested = COALESCE(i."DueAt", "{{schema}}"."{{outbox}}_after"(@Now, i."DueIn")),
               @Expires = COALESCE(i."ExpiresAt", "{{schema}}"."{{outbox}}_after"(@Now, i."ExpiresIn"))
          FROM @In i WHERE i."N" = @N;
        SET @State = NULL; SET @Item = NULL; SET @Status = NULL; SET @Reserved = NULL; SET @Known = NULL;
        SELECT @State = e."State", @Item = e."WorkItemId", @Reserved = e."LockedUntil", @Known = e."Hash" FROM "{{schema}}"."{{inbox}}_entry" e WHERE e."Digest" = @Digest;
        IF @State IS NULL
        BEGIN
            INSERT INTO "{{schema}}"."{{inbox}}_entry" ("Source", "MessageId", "Digest", "State", "FirstSeenAt", "LastSeenAt", "Attempts", "Generation")
            SELECT i."Source", i."Key", i."Digest", 0, @Now, @Now, 0, 0 FROM @In i WHERE i."N" = @N;
            SET @State = 0;
        END
        ELSE
            UPDATE "{{schema}}"."{{inbox}}_entry" SET "LastSeenAt" = @Now WHERE "Digest" = @Digest;
        UPDATE @In SET "Mismatch" = CASE WHEN @Known IS NOT NULL AND @Hash IS NOT NULL AND @Known <> @Hash THEN 1 ELSE 0 END WHERE "N" = @N;
        SELECT @Status = q."Status" FROM "{{schema}}"."{{inbox}}" q WITH (UPDLOCK, ROWLOCK) WHERE q."Id" = @Item;
        -- Not before the end of a reservation: should its holder die, workers take over.
        SET @Due = CASE WHEN @Requested > @Now THEN @Requested ELSE @Now END;
        IF @Reserved > @Due SET @Due = @Reserved;
        SET @Outcome = CASE WHEN @State = 2 THEN N'done' WHEN @State = 3 THEN N'revived' WHEN @Status = 1 THEN N'in-progress' WHEN @Status = 0 THEN N'replaced' ELSE N'added' END;
        IF @Outcome = N'replaced'
        BEGIN
            UPDATE "{{schema}}"."{{inbox}}_entry" SET "Hash" = @Hash WHERE "Digest" = @Digest;
            -- The new content, in the old place. What has been delivered before waits for its next attempt all the same.
            UPDATE q SET "Topic" = i."Topic", "Payload" = i."Payload", "CorrelationId" = NULLIF(i."CorrelationId", N''), "Headers" = i."Headers", "ExpiresAt" = @Expires, "RequestedDueAt" = @Requested,
                   "DueAt" = CASE WHEN q."Generation" > 0 AND q."DueAt" > @Due THEN q."DueAt" ELSE @Due END
              FROM "{{schema}}"."{{inbox}}" q JOIN @In i ON i."N" = @N WHERE q."Id" = @Item AND q."Status" = 0;
        END
        IF @Outcome = N'revived'
        BEGIN
            -- Dead: as if it were new. It may have been marked while a worker had it: whoever has it finds that it is gone, at his next renewal at the latest. Until then
            -- he may be at it, so neither it nor what stands behind it in its ordering key is claimed before his claim would have lapsed.
            SET @Reserved = NULL; SET @Lane = NULL;
            SELECT @Reserved = CASE WHEN q."LockedUntil" > @Now THEN q."LockedUntil" END, @Lane = q."OrderingKey" FROM "{{schema}}"."{{inbox}}" q WHERE q."Id" = @Item;
            IF @Reserved > @Due SET @Due = @Reserved;
            DELETE FROM "{{schema}}"."{{inbox}}" WHERE "Id" = @Item;
            IF @Reserved IS NOT NULL AND @Lane IS NOT NULL
                UPDATE "{{schema}}"."{{inbox}}" SET "DueAt" = @Reserved
                 WHERE "Status" = 0 AND "DueAt" < @Reserved AND "Seq" = (SELECT MIN(a."Seq") FROM "{{schema}}"."{{inbox}}" a WHERE a."OrderingKey" = @Lane);
            DELETE FROM "{{schema}}"."{{inbox}}_history" WHERE "Id" = @Item;
            UPDATE "{{schema}}"."{{inbox}}_entry" SET "State" = CASE WHEN @Reserved IS NULL THEN 0 ELSE 1 END, "LockedUntil" = @Reserved, "Attempts" = 0, "ProcessedAt" = NULL, "WorkItemId" = NULL WHERE "Digest" = @Digest;
        END
        IF @Outcome IN (N'revived', N'added')
        BEGIN
            SELECT @Item = COALESCE(i."Id", "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID())) FROM @In i WHERE i."N" = @N;
            UPDATE "{{schema}}"."{{inbox}}_entry" SET "Hash" = @Hash, "WorkItemId" = @Item WHERE "Digest" = @Digest;
            INSERT INTO "{{schema}}"."{{inbox}}" (
                "Id", "MessageId", "Topic", "Payload", "CreatedAt", "DueAt", "RequestedDueAt", "ExpiresAt", "Priority", "OrderingKey", "HoldOnFailure", "CorrelationId", "Headers")
            SELECT @Item, COALESCE(i."MessageId", "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID())), i."Topic", i."Payload", @Now, @Due, @Requested, @Expires, COALESCE(i."Priority", 0), i."OrderingKey", COALESCE(i."Hold", 0),
                   NULLIF(i."CorrelationId", N''), i."Headers"
              FROM @In i WHERE i."N" = @N;
        END
        UPDATE @In SET "Outcome" = @Outcome, "Item" = @Item WHERE "N" = @N;
        SET @N = (SELECT MIN("N") FROM @In WHERE "N" > @N);
    END
    IF @Own = 1 COMMIT;
    SELECT i."Item" AS work_item_id, i."Outcome" AS outcome, i."Mismatch" AS hash_mismatch FROM @In i ORDER BY i."N";
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Enqueue"
    @Source NVARCHAR(MAX),
    @MessageId NVARCHAR(MAX),
    @Topic NVARCHAR(MAX),
    @Payload NVARCHAR(MAX),
    @Hash NVARCHAR(MAX) = NULL,
    @CorrelationId NVARCHAR(MAX) = NULL,
    @DueAt DATETIMEOFFSET(6) = NULL,
    @OrderingKey NVARCHAR(MAX) = NULL,
    @Priority INT = 0,
    @ExpiresAt DATETIMEOFFSET(6) = NULL,
    -- A JSON object of texts.
    @Headers NVARCHAR(MAX) = NULL,
    @HoldOnFailure BIT = 0,
    @DueInSeconds FLOAT = NULL,
    @ExpiresInSeconds FLOAT = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    EXEC "{{schema}}"."{{inbox}}_Check" N'enqueue', @Source, @MessageId, @Hash;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Topic IS NULL OR DATALENGTH(@Topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Topic, 255) = 1 THEN N'topic must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Topic)
        WHEN @Payload IS NULL THEN N'payload must not be null (an empty text is fine)'
        WHEN "{{schema}}"."{{outbox}}_exceeds"(@CorrelationId, 255) = 1 THEN N'correlation_id must be at most 255 characters' + "{{schema}}"."{{outbox}}_got"(@CorrelationId)
        WHEN DATALENGTH(@OrderingKey) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@OrderingKey, 255) = 1 THEN N'ordering_key must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@OrderingKey)
        WHEN @Priority IS NULL OR @Priority NOT BETWEEN -9 AND 9 THEN N'priority must be -9 to 9'
        WHEN @Headers IS NOT NULL AND ISJSON(@Headers) = 0 THEN N'headers must be a JSON object'
        WHEN @DueInSeconds IS NOT NULL AND (@DueAt IS NOT NULL OR @DueInSeconds < 0 OR @DueInSeconds > 100000000000) THEN N'due_in_seconds must be 0 to 100000000000, and not beside due_at'
        WHEN @ExpiresInSeconds IS NOT NULL AND (@ExpiresAt IS NOT NULL OR @ExpiresInSeconds < 0 OR @ExpiresInSeconds > 100000000000) THEN N'expires_in_seconds must be 0 to 100000000000, and not beside expires_at'
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'inbox_enqueue: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    -- Of the payload, unless given: in UTF-8, as everywhere. The collation is one whose bytes are that.
    SET @Hash = LOWER(COALESCE(@Hash, "{{schema}}"."{{outbox}}_hex"(HASHBYTES('SHA2_256', CAST(@Payload COLLATE Latin1_General_100_BIN2_UTF8 AS VARCHAR(MAX))))));
    SET @Headers = JSON_MODIFY(JSON_MODIFY(COALESCE(@Headers, N'{}'), '$."mainstay-source"', @Source), '$."mainstay-message-id"', @MessageId);
    DECLARE @Messages NVARCHAR(MAX) = (
        SELECT 1 AS n, "{{schema}}"."{{outbox}}_listed"(@Source) AS source, "{{schema}}"."{{outbox}}_listed"(@MessageId) AS "key", @Hash AS hash,
               "{{schema}}"."{{outbox}}_listed"(@Topic) AS topic,
               "{{schema}}"."{{outbox}}_listed"(@CorrelationId) AS correlation_id, CAST(SWITCHOFFSET(CAST(@DueAt AS DATETIMEOFFSET(6)), '+00:00') AS DATETIME2(6)) AS due_at,
               "{{schema}}"."{{outbox}}_listed"(@OrderingKey) AS ordering_key, @Priority AS priority, @HoldOnFailure AS hold, CAST(@DueInSeconds * 1000000 AS BIGINT) AS due_in,
               CAST(SWITCHOFFSET(CAST(@ExpiresAt AS DATETIMEOFFSET(6)), '+00:00') AS DATETIME2(6)) AS expires_at, CAST(@ExpiresInSeconds * 1000000 AS BIGINT) AS expires_in
           FOR JSON PATH);
    DECLARE @Bodies NVARCHAR(MAX) = N'["' + "{{schema}}"."{{outbox}}_listed"(@Payload) + N'","' + "{{schema}}"."{{outbox}}_listed"(@Headers) + N'"]';
    EXEC "{{schema}}"."{{inbox}}_ReceiveMany" @Messages, @Bodies;
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Entries"
    @Source NVARCHAR(510) = NULL,
    @MessageId NVARCHAR(1024) = NULL,
    @State INT = NULL,
    @Topic NVARCHAR(510) = NULL,
    @AfterSource NVARCHAR(510) = NULL,
    @AfterMessageId NVARCHAR(1024) = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @At DATETIME2(6), @Seq BIGINT;
    IF @AfterSource IS NOT NULL
        SELECT @At = a."FirstSeenAt", @Seq = a."Seq" FROM "{{schema}}"."{{inbox}}_entry" a WHERE a."Digest" = HASHBYTES('SHA2_256', @AfterSource + NCHAR(1) + @AfterMessageId);
    SELECT TOP (@MaxRows) x."Source" AS source, x."MessageId" AS message_id, x."State" AS state, x."Hash" AS hash, x."FirstSeenAt" AS first_seen_at, x."LastSeenAt" AS last_seen_at,
           x."ProcessedAt" AS processed_at, x."Attempts" AS attempts, x."Generation" AS generation, x."OwnerToken" AS owner, x."LockedUntil" AS locked_until, x."LastError" AS last_error,
           x."WorkItemId" AS work_item, x."Topic" AS topic
      FROM "{{schema}}"."{{inbox}}_ledger" x
     WHERE (@Source IS NULL OR x."Source" = @Source) AND (@MessageId IS NULL OR x."MessageId" = @MessageId)
       -- After one that is gone comes nothing.
       AND (@AfterSource IS NULL OR x."FirstSeenAt" < @At OR (x."FirstSeenAt" = @At AND x."Seq" < @Seq))
       AND (@State IS NULL OR x."State" = @State) AND (@Topic IS NULL OR x."Topic" = @Topic)
     ORDER BY x."FirstSeenAt" DESC, x."Seq" DESC;
END
GO
-- Makes dead messages live again: ready in the queue if they were there, otherwise as if only seen.
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Revive"
    -- A list of objects: source, key.
    @Keys NVARCHAR(MAX),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @In TABLE ("Digest" BINARY(32) NOT NULL PRIMARY KEY, "Source" NVARCHAR(510) NOT NULL, "Key" NVARCHAR(1024) NOT NULL, "Item" UNIQUEIDENTIFIER NULL, "Revived" BIT NOT NULL);
    INSERT INTO @In ("Digest", "Source", "Key", "Revived")
    SELECT DISTINCT HASHBYTES('SHA2_256', k.source + NCHAR(1) + k."key"), k.source, k."key", 0
      FROM (SELECT "{{schema}}"."{{outbox}}_text"(x.source) COLLATE Latin1_General_BIN2 AS source, "{{schema}}"."{{outbox}}_text"(x."key") COLLATE Latin1_General_BIN2 AS "key"
              FROM OPENJSON(@Keys) WITH (source NVARCHAR(MAX) '$.source', "key" NVARCHAR(MAX) '$.key') x) k;
    IF @Own = 1 BEGIN TRANSACTION;
    DECLARE @Digest BINARY(32), @Place INT = 1;
    DECLARE @Order TABLE ("Place" INT NOT NULL PRIMARY KEY, "Digest" BINARY(32) NOT NULL);
    INSERT INTO @Order ("Place", "Digest") SELECT ROW_NUMBER() OVER (ORDER BY i."Digest"), i."Digest" FROM @In i;
    WHILE @Place <= (SELECT COUNT(*) FROM @Order)
    BEGIN
        SELECT @Digest = o."Digest" FROM @Order o WHERE o."Place" = @Place;
        EXEC "{{schema}}"."{{inbox}}_KeyLock" @Digest;
        SET @Place = @Place + 1;
    END
    UPDATE i SET "Revived" = 1, "Item" = e."WorkItemId" FROM @In i JOIN "{{schema}}"."{{inbox}}_entry" e ON e."Digest" = i."Digest" WHERE e."State" = 3;
    IF EXISTS (SELECT 1 FROM @In WHERE "Revived" = 1)
    BEGIN
        DECLARE @Count INT = (SELECT COUNT(*) FROM @In WHERE "Revived" = 1);
        DECLARE @Items NVARCHAR(MAX) = (SELECT TOP (20) i."Source" AS "source", i."Key" AS "message_id", N'dead' AS "before.state", N'seen' AS "after.state" FROM @In i WHERE i."Revived" = 1 FOR JSON PATH);
        DECLARE @Anchors NVARCHAR(MAX) = (
            SELECT x.kind AS kind, "{{schema}}"."{{outbox}}_listed"(x.value) AS value
              FROM (SELECT N'inbox' AS kind, CAST(i."Key" AS NVARCHAR(MAX)) AS value FROM @In i WHERE i."Revived" = 1
                    UNION ALL SELECT N'source', CAST(i."Source" AS NVARCHAR(MAX)) FROM @In i WHERE i."Revived" = 1) x FOR JSON PATH);
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + @Items + N'}';
        EXEC "{{schema}}"."{{audit}}_Note" N'inbox.requeue', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    DECLARE @Ids NVARCHAR(MAX) = (SELECT i."Item" AS id FROM @In i WHERE i."Revived" = 1 AND i."Item" IS NOT NULL FOR JSON PATH);
    IF @Ids IS NOT NULL
        EXEC "{{schema}}"."{{inbox}}_RequeueMany" @Ids, NULL, NULL, NULL, 1;
    UPDATE e SET "State" = 0, "ProcessedAt" = NULL, "Attempts" = 0 FROM "{{schema}}"."{{inbox}}_entry" e JOIN @In i ON i."Digest" = e."Digest" WHERE i."Revived" = 1 AND e."State" = 3;
    IF @Own = 1 COMMIT;
    SELECT i."Source" AS revived_source, i."Key" AS revived_message_id FROM @In i WHERE i."Revived" = 1;
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_LedgerStats"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT COUNT(CASE WHEN e."State" = 0 THEN 1 END) AS seen, COUNT(CASE WHEN e."State" = 1 THEN 1 END) AS processing, COUNT(CASE WHEN e."State" = 1 AND e."LockedUntil" <= SYSUTCDATETIME() THEN 1 END) AS lapsed,
           COUNT(CASE WHEN e."State" = 2 THEN 1 END) AS done, COUNT(CASE WHEN e."State" = 3 THEN 1 END) AS dead
      FROM "{{schema}}"."{{inbox}}_entry" e;
END
GO
ALTER PROCEDURE "{{schema}}"."{{inbox}}_Forget"
    @DoneOlderThanSeconds FLOAT = NULL,
    @DeadOlderThanSeconds FLOAT = NULL,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @DoneOlderThanSeconds < 0 OR @DoneOlderThanSeconds > 10000000000
        THROW 50001, N'inbox_forget: done_older_than_seconds must be 0 to 10000000000, or null', 1;
    IF @DeadOlderThanSeconds < 0 OR @DeadOlderThanSeconds > 10000000000
        THROW 50001, N'inbox_forget: dead_older_than_seconds must be 0 to 10000000000, or null', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @State TINYINT = 2, @Age FLOAT, @Until DATETIME2(6), @Room INT = @MaxRows;
    DECLARE @Gone TABLE ("Item" UNIQUEIDENTIFIER NULL);
    IF @Own = 1 BEGIN TRANSACTION;
    WHILE @State <= 3
    BEGIN
        SET @Age = CASE @State WHEN 2 THEN @DoneOlderThanSeconds ELSE @DeadOlderThanSeconds END;
        IF @Age IS NOT NULL AND @Room > 0
        BEGIN
            SET @Until = "{{schema}}"."{{outbox}}_before"(@Now, @Age);
            -- Not what a worker still has, though it was marked.
            DELETE FROM "{{schema}}"."{{inbox}}_entry"
            OUTPUT deleted."WorkItemId" INTO @Gone
             WHERE "State" = @State AND "ProcessedAt" <= @Until
               AND "Seq" IN (SELECT TOP (@Room) e."Seq" FROM "{{schema}}"."{{inbox}}_entry" e WITH (UPDLOCK, READPAST, ROWLOCK)
                              WHERE e."State" = @State AND e."ProcessedAt" <= @Until
                                AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{inbox}}" q WHERE q."Id" = e."WorkItemId") ORDER BY e."ProcessedAt", e."Seq");
            SET @Room = @Room - @@ROWCOUNT;
        END
        SET @State = @State + 1;
    END
    DELETE FROM "{{schema}}"."{{inbox}}_history" WITH (ROWLOCK) WHERE "Id" IN (SELECT g."Item" FROM @Gone g WHERE g."Item" IS NOT NULL) OPTION (LOOP JOIN);
    DECLARE @Forgotten INT = @MaxRows - @Room;
    IF @Actor IS NOT NULL AND @Forgotten > 0
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = (
            SELECT @Forgotten AS "count", CAST(FLOOR(@DoneOlderThanSeconds) AS BIGINT) AS older_than_seconds, CAST(FLOOR(@DeadOlderThanSeconds) AS BIGINT) AS failed_older_than_seconds
               FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
        EXEC "{{schema}}"."{{audit}}_Note" N'inbox.forget', @Actor, @ActorCorrelationId, @Data, NULL;
    END
    IF @Own = 1 COMMIT;
    SELECT @Forgotten AS forgotten;
END
GO
