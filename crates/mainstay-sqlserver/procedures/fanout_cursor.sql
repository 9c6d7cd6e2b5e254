-- How far the shards of fan-outs have come.
--
-- Locks: whoever makes slices, or deletes a fan-out, has the policy's row; then cursors, in the order of their shards. Whoever completes has one cursor alone.

-- Says that the work on a shard is done up to a moment. Its cursor never goes back. Call it in the transaction that does the work.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Complete"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @ShardKey NVARCHAR(512),
    @At DATETIME2(6)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @At IS NULL
        THROW 50001, N'fanout_complete: at must be a moment', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Topic + NCHAR(1) + @WorkKey), @Moved INT = 0;
    IF @Own = 1 BEGIN TRANSACTION;
    -- Whoever comes second waits for the first and compares with what he wrote: so the order of completions does not matter.
    UPDATE "{{schema}}"."{{fanout}}_cursor" WITH (UPDLOCK, HOLDLOCK) SET "UpdatedAt" = "UpdatedAt" WHERE "Digest" = @Digest AND "ShardKey" = @ShardKey;
    IF @@ROWCOUNT > 0
    BEGIN
        UPDATE "{{schema}}"."{{fanout}}_cursor" SET "LastCompletedAt" = @At, "UpdatedAt" = SYSUTCDATETIME()
         WHERE "Digest" = @Digest AND "ShardKey" = @ShardKey AND ("LastCompletedAt" IS NULL OR "LastCompletedAt" < @At);
        SET @Moved = @@ROWCOUNT;
    END
    ELSE
    BEGIN
        INSERT INTO "{{schema}}"."{{fanout}}_cursor" ("Digest", "Topic", "WorkKey", "ShardKey", "LastCompletedAt", "CreatedAt", "UpdatedAt")
        VALUES (@Digest, @Topic, @WorkKey, @ShardKey, @At, SYSUTCDATETIME(), SYSUTCDATETIME());
        SET @Moved = 1;
    END
    IF @Own = 1 COMMIT;
    SELECT @Moved AS moved;
END
GO
-- Makes shards known. Tells how many were not.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_AddShards"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    -- A list of texts, with NCHAR(31) between them.
    @Shards NVARCHAR(MAX),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Topic + NCHAR(1) + @WorkKey), @Now DATETIME2(6) = SYSUTCDATETIME(), @Count INT;
    DECLARE @Added TABLE ("ShardKey" NVARCHAR(512) COLLATE Latin1_General_BIN2 NOT NULL);
    IF @Own = 1 BEGIN TRANSACTION;
    -- As one that deletes the fan-out does.
    UPDATE "{{schema}}"."{{fanout}}" SET "Version" = "Version" WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
    IF @@ROWCOUNT = 0
    BEGIN
        -- Nobody would plan them, and nobody delete them.
        IF @Own = 1 COMMIT;
        SELECT CAST(NULL AS INT) AS added;
        RETURN;
    END
    INSERT INTO "{{schema}}"."{{fanout}}_cursor" ("Digest", "Topic", "WorkKey", "ShardKey", "CreatedAt", "UpdatedAt")
    OUTPUT inserted."ShardKey" INTO @Added
    SELECT @Digest, @Topic, @WorkKey, s.shard, @Now, @Now
      FROM (SELECT DISTINCT CAST(v."value" AS NVARCHAR(512)) COLLATE Latin1_General_BIN2 AS shard FROM STRING_SPLIT(@Shards COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) v) s
     WHERE NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{fanout}}_cursor" c WITH (UPDLOCK, HOLDLOCK) WHERE c."Digest" = @Digest AND c."ShardKey" = s.shard);
    SET @Count = (SELECT COUNT(*) FROM @Added);
    IF @Count > 0
    BEGIN
        -- They are due at once, and the coordinator may have nothing to do until tomorrow.
        UPDATE "{{schema}}"."{{fanout}}" SET "Version" = "Version" + 1 WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
        DECLARE @Items NVARCHAR(MAX) = (
            SELECT N'["' + STRING_AGG(REPLACE(REPLACE(CAST(x."ShardKey" AS NVARCHAR(MAX)) COLLATE Latin1_General_BIN2, N'\', N'\\'), N'"', N'\"'), N'","') + N'"]'
              FROM (SELECT TOP (20) a."ShardKey" FROM @Added a ORDER BY a."ShardKey") x);
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + @Items + N'}';
        DECLARE @Known NVARCHAR(MAX) = (SELECT STRING_AGG(CAST(a."ShardKey" AS NVARCHAR(MAX)), NCHAR(31)) FROM @Added a);
        EXEC "{{schema}}"."{{fanout}}_Note" N'fanout.add_shards', @Actor, @ActorCorrelationId, @Data, @Topic, @WorkKey, @Known;
    END
    IF @Own = 1 COMMIT;
    SELECT @Count AS added;
END
GO
-- Forgets a shard with its cursor. An error while a slice of it is in flight.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_ForgetShard"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @ShardKey NVARCHAR(512),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Topic + NCHAR(1) + @WorkKey), @Slice UNIQUEIDENTIFIER, @Completed DATETIME2(6), @Due DATETIME2(6), @Found INT, @Complaint NVARCHAR(300);
    IF @Own = 1 BEGIN TRANSACTION;
    -- Locked first, and then looked at as it stands: a slice may be made of it just now.
    UPDATE "{{schema}}"."{{fanout}}_cursor" SET "UpdatedAt" = "UpdatedAt" WHERE "Digest" = @Digest AND "ShardKey" = @ShardKey;
    SET @Found = @@ROWCOUNT;
    IF @Found > 0
    BEGIN
        SELECT @Slice = c."SliceId", @Completed = c."LastCompletedAt", @Due = c."SliceDueAt" FROM "{{schema}}"."{{fanout}}_cursor" c WHERE c."Digest" = @Digest AND c."ShardKey" = @ShardKey;
        IF EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WHERE o."Id" = @Slice)
        BEGIN
            SET @Complaint = N'fanout_forget_shard: shard_key has a slice in flight, the message ' + LOWER(CAST(@Slice AS NVARCHAR(36))) + N'; cancel that, or wait for its end';
            THROW 50001, @Complaint, 1;
        END
        DELETE FROM "{{schema}}"."{{fanout}}_cursor" WHERE "Digest" = @Digest AND "ShardKey" = @ShardKey;
        DECLARE @Data NVARCHAR(MAX) = (
            SELECT @ShardKey AS "shard", REPLACE(CONVERT(NVARCHAR(30), @Completed, 126), N' ', N'T') + N'Z' AS "before.last_completed_at",
                   REPLACE(CONVERT(NVARCHAR(30), @Due, 126), N' ', N'T') + N'Z' AS "before.slice_due_at", NULL AS "after" FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
        EXEC "{{schema}}"."{{fanout}}_Note" N'fanout.forget_shard', @Actor, @ActorCorrelationId, @Data, @Topic, @WorkKey, @ShardKey;
    END
    IF @Own = 1 COMMIT;
    SELECT CASE WHEN @Found > 0 THEN 1 ELSE 0 END AS forgotten;
END
GO
-- Deletes a fan-out, and its shards with their cursors. Tells how many shards; no row: there is no such fan-out. An error while a slice of it is in flight.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Delete"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Topic + NCHAR(1) + @WorkKey), @Slice UNIQUEIDENTIFIER, @Was NVARCHAR(MAX), @Found INT, @Shards INT, @Complaint NVARCHAR(300);
    IF @Own = 1 BEGIN TRANSACTION;
    -- Whoever makes slices has this row until they are there.
    UPDATE "{{schema}}"."{{fanout}}" SET "Version" = "Version" WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
    SET @Found = @@ROWCOUNT;
    IF @Found > 0
    BEGIN
        SELECT TOP (1) @Slice = c."SliceId" FROM "{{schema}}"."{{fanout}}_cursor" c JOIN "{{schema}}"."{{outbox}}" o ON o."Id" = c."SliceId" WHERE c."Digest" = @Digest;
        IF @Slice IS NOT NULL
        BEGIN
            SET @Complaint = N'fanout_delete: work_key has a slice in flight, the message ' + LOWER(CAST(@Slice AS NVARCHAR(36))) + N'; cancel that, or wait for its end';
            THROW 50001, @Complaint, 1;
        END
        SET @Was = "{{schema}}"."{{fanout}}_told"(@Topic, @WorkKey);
        DELETE FROM "{{schema}}"."{{fanout}}_cursor" WHERE "Digest" = @Digest;
        SET @Shards = @@ROWCOUNT;
        DELETE FROM "{{schema}}"."{{fanout}}" WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
        DECLARE @Data NVARCHAR(MAX) = N'{"before":' + @Was + N',"after":null,"shards":' + CAST(@Shards AS NVARCHAR(20)) + N'}';
        EXEC "{{schema}}"."{{fanout}}_Note" N'fanout.delete', @Actor, @ActorCorrelationId, @Data, @Topic, @WorkKey;
    END
    IF @Own = 1 COMMIT;
    IF @Found > 0
        SELECT CAST(NULL AS NVARCHAR(36)) AS slice_in_flight, @Shards AS shards;
END
GO
-- The cursors of a fan-out's shards, in their order.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Cursors"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    -- These alone: a list of texts, with NCHAR(31) between them.
    @Shards NVARCHAR(MAX) = NULL,
    @After NVARCHAR(512) = NULL,
    @MaxRows INT = 1000000
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Topic + NCHAR(1) + @WorkKey);
    SELECT TOP (@MaxRows) c."ShardKey" AS shard_key, c."LastCompletedAt" AS last_completed_at, c."SliceId" AS slice_id, c."SliceDueAt" AS slice_due_at, c."SliceCursorAt" AS slice_cursor_at,
           CASE WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) WHERE o."Id" = c."SliceId") THEN 1 ELSE 0 END AS in_flight, c."CreatedAt" AS created_at, c."UpdatedAt" AS updated_at
      FROM "{{schema}}"."{{fanout}}_cursor" c
     WHERE c."Digest" = @Digest AND (@After IS NULL OR c."ShardKey" > @After)
       AND (@Shards IS NULL OR c."ShardKey" IN (SELECT v."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@Shards COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) v))
     ORDER BY c."ShardKey";
END
GO
-- For Mainstay itself: notes planned slices where cursor and policy are what they were planned with. Tells their shards; the caller adds their messages in the same transaction.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Claim"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @Version BIGINT,
    -- A list of objects: shard, completed, last, id, nominal.
    @Slices NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @Topic + NCHAR(1) + @WorkKey), @Now DATETIME2(6) = SYSUTCDATETIME(), @Found INT;
    DECLARE @Plan TABLE ("ShardKey" NVARCHAR(512) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED, "Completed" DATETIME2(6) NULL, "Last" UNIQUEIDENTIFIER NULL, "Id" UNIQUEIDENTIFIER NOT NULL,
                         "Nominal" DATETIME2(6) NOT NULL);
    DECLARE @Take TABLE ("ShardKey" NVARCHAR(512) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED);
    INSERT INTO @Plan ("ShardKey", "Completed", "Last", "Id", "Nominal")
    SELECT "{{schema}}"."{{outbox}}_text"(s.shard), s.completed, s.last, s.id, s.nominal
      FROM OPENJSON(@Slices) WITH (shard NVARCHAR(MAX) '$.shard', completed DATETIME2(6) '$.completed', last UNIQUEIDENTIFIER '$.last', id UNIQUEIDENTIFIER '$.id', nominal DATETIME2(6) '$.nominal') s;
    IF @Own = 1 BEGIN TRANSACTION;
    -- Nobody changes the policy until the slices are made, or they are not made.
    UPDATE "{{schema}}"."{{fanout}}" SET "Version" = "Version" WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey AND "Version" = @Version;
    SET @Found = @@ROWCOUNT;
    IF @Found > 0
    BEGIN
        INSERT INTO "{{schema}}"."{{fanout}}_cursor" ("Digest", "Topic", "WorkKey", "ShardKey", "CreatedAt", "UpdatedAt")
        SELECT @Digest, @Topic, @WorkKey, p."ShardKey", @Now, @Now FROM @Plan p
         WHERE NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{fanout}}_cursor" c WITH (UPDLOCK, HOLDLOCK) WHERE c."Digest" = @Digest AND c."ShardKey" = p."ShardKey")
         ORDER BY p."ShardKey";
        -- Locked first, and then looked at as they stand.
        UPDATE "{{schema}}"."{{fanout}}_cursor" SET "UpdatedAt" = "UpdatedAt" WHERE "Digest" = @Digest AND "ShardKey" IN (SELECT p."ShardKey" FROM @Plan p);
        -- Nobody is waited for: a slice that is being settled by somebody who has not committed yet is in flight still.
        INSERT INTO @Take ("ShardKey")
        SELECT c."ShardKey" FROM "{{schema}}"."{{fanout}}_cursor" c JOIN @Plan p ON p."ShardKey" = c."ShardKey"
         WHERE c."Digest" = @Digest
           AND (c."LastCompletedAt" = p."Completed" OR (c."LastCompletedAt" IS NULL AND p."Completed" IS NULL)) AND (c."SliceId" = p."Last" OR (c."SliceId" IS NULL AND p."Last" IS NULL))
           AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) WHERE o."Id" = c."SliceId")
           AND NOT (EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" h WITH (NOLOCK) WHERE h."Id" = c."SliceId")
                    AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" h WITH (READCOMMITTEDLOCK, READPAST) WHERE h."Id" = c."SliceId"));
        UPDATE c SET "SliceId" = p."Id", "SliceDueAt" = p."Nominal", "SliceCursorAt" = c."LastCompletedAt", "UpdatedAt" = @Now
          FROM "{{schema}}"."{{fanout}}_cursor" c JOIN @Plan p ON p."ShardKey" = c."ShardKey" JOIN @Take t ON t."ShardKey" = c."ShardKey"
         WHERE c."Digest" = @Digest;
    END
    IF @Own = 1 COMMIT;
    SELECT t."ShardKey" AS claimed_shard FROM @Take t ORDER BY t."ShardKey";
END
GO
