-- Ending claims, many at once and each in its own way. An item changes only if id, owner and generation are those of the claim that holds it; a
-- worker that lost its claim changes nothing.
--
-- Locks, in this order: those of the ordering keys, in the order of the keys, waited for; then the rows, each found by its id. Whoever else
-- waits for two rows waits for them as a claim does, which is never.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Settle"
    @OwnerToken UNIQUEIDENTIFIER,
    -- A list of objects: id, generation (none compares the owner alone), outcome (0 ack, 1 abandon, 2 fail, 3 release, 4 fail: delivery limit, 5 fail:
    -- expired, 6 fail: cancelled, 7 never handed out: delivery limit, 8 never handed out: expired), delay (microseconds), error.
    @Settlements NVARCHAR(MAX),
    @KeepPayload BIT = 1,
    -- Whether results of their own tell what this has counted for joins (one column, counted): for Mainstay itself.
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @OwnerToken IS NULL OR @OwnerToken = '00000000-0000-0000-0000-000000000000'
        THROW 50001, N'{{queue:kind}}_settle: owner must not be null or nil', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Key NVARCHAR(510);
    DECLARE @Asked TABLE ("N" INT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "Generation" BIGINT NULL, "Outcome" INT NOT NULL, "Delay" BIGINT NULL, "Error" NVARCHAR(MAX) NULL);
    -- By this the rows are found, one by one (LOOP JOIN): a scan would lock those of others on its way.
    DECLARE @Ids TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Keys TABLE ("OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED);
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "Generation" BIGINT NOT NULL);
    DECLARE @Back TABLE ("Id" UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Endings "{{schema}}"."{{queue}}_ending";
    INSERT INTO @Asked ("N", "Id", "Generation", "Outcome", "Delay", "Error")
    SELECT ROW_NUMBER() OVER (ORDER BY s.id), s.id, s.generation, s.outcome, s.delay, NULLIF(LEFT("{{schema}}"."{{outbox}}_text"(s.error), 4096), N'')
      FROM OPENJSON(@Settlements) WITH (id UNIQUEIDENTIFIER '$.id', generation BIGINT '$.generation', outcome INT '$.outcome', delay BIGINT '$.delay', error NVARCHAR(MAX) '$.error') s;
    IF EXISTS (SELECT 1 FROM @Asked WHERE "Outcome" NOT BETWEEN 0 AND 8)
        THROW 50001, N'{{queue:kind}}_settle: outcomes must be 0 (ack), 1 (abandon), 2 (fail), 3 (release), 4 (fail: delivery limit), 5 (fail: expired), 6 (fail: cancelled), 7 (never handed out: delivery limit) or 8 (never handed out: expired)', 1;
    IF EXISTS (SELECT 1 FROM @Asked WHERE "Delay" <= 0)
        THROW 50001, N'{{queue:kind}}_settle: delays must be more than 0', 1;

    INSERT INTO @Ids ("Id") SELECT DISTINCT a."Id" FROM @Asked a;

    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Keys ("OrderingKey")
    SELECT DISTINCT o."OrderingKey" FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK)
     WHERE o."OrderingKey" IS NOT NULL AND o."Id" IN (SELECT i."Id" FROM @Ids i);
    SET @Key = (SELECT MIN("OrderingKey") FROM @Keys);
    WHILE @Key IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{queue}}_Lock" @Key, 1;
        SET @Key = (SELECT MIN("OrderingKey") FROM @Keys WHERE "OrderingKey" > @Key);
    END
    SET @Now = SYSUTCDATETIME();

    -- Two statements change items then. All are locked before, in the order of their ids, as an attach to a join locks them.
    IF EXISTS (SELECT 1 FROM @Asked WHERE "Outcome" IN (1, 3)) AND EXISTS (SELECT 1 FROM @Asked WHERE "Outcome" NOT IN (1, 3))
        UPDATE "{{schema}}"."{{queue}}" WITH (ROWLOCK) SET "LockedUntil" = "LockedUntil"
         WHERE "Id" IN (SELECT i."Id" FROM @Ids i) AND "OwnerToken" = @OwnerToken AND "Status" = 1 OPTION (LOOP JOIN);
    IF EXISTS (SELECT 1 FROM @Asked WHERE "Outcome" NOT IN (1, 3))
    BEGIN
        -- Takes the rows' locks and says which they are: from here on nobody else can have them.
        UPDATE "{{schema}}"."{{queue}}" WITH (ROWLOCK) SET "LockedUntil" = "LockedUntil"
        OUTPUT inserted."Seq", inserted."Id", inserted."Generation" INTO @Hit
         WHERE "Id" IN (SELECT i."Id" FROM @Ids i) AND "OwnerToken" = @OwnerToken AND "Status" = 1
           AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Id" = "{{schema}}"."{{queue}}"."Id" AND a."Outcome" NOT IN (1, 3)
                          AND (a."Generation" IS NULL OR a."Generation" = "{{schema}}"."{{queue}}"."Generation")) OPTION (LOOP JOIN);
        INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
        SELECT h."Seq", CASE a."Outcome" WHEN 0 THEN 2 ELSE 3 END,
               CASE a."Outcome" WHEN 2 THEN N'handler' WHEN 4 THEN N'delivery-limit' WHEN 5 THEN N'expired' WHEN 6 THEN N'cancelled'
                                WHEN 7 THEN N'delivery-limit' WHEN 8 THEN N'expired' END,
               a."Error", 0, CASE WHEN @KeepPayload = 1 OR a."Outcome" <> 0 THEN 1 ELSE 0 END, CASE WHEN a."Outcome" IN (7, 8) THEN 1 ELSE 0 END
          FROM @Hit h
          JOIN @Asked a ON a."Id" = h."Id" AND (a."Generation" IS NULL OR a."Generation" = h."Generation") AND a."Outcome" NOT IN (1, 3)
         WHERE a."N" = (SELECT MIN(f."N") FROM @Asked f WHERE f."Id" = h."Id" AND (f."Generation" IS NULL OR f."Generation" = h."Generation") AND f."Outcome" NOT IN (1, 3));
        EXEC "{{schema}}"."{{queue}}_Retire" @Endings, @Now, @TellJoins;
    END
    IF EXISTS (SELECT 1 FROM @Asked WHERE "Outcome" IN (1, 3))
        -- 1, 2, 4 … 60 seconds by the number of deliveries before this one. A release was no delivery.
        UPDATE "{{schema}}"."{{queue}}" WITH (ROWLOCK)
           SET "Status" = 0, "OwnerToken" = NULL, "LockedUntil" = NULL,
               "Attempts" = CASE WHEN "Attempts" > 0 AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Id" = "{{schema}}"."{{queue}}"."Id" AND a."Outcome" = 3
                                   AND (a."Generation" IS NULL OR a."Generation" = "{{schema}}"."{{queue}}"."Generation")) THEN "Attempts" - 1 ELSE "Attempts" END,
               "LastError" = COALESCE((SELECT TOP (1) a."Error" FROM @Asked a WHERE a."Id" = "{{schema}}"."{{queue}}"."Id" AND a."Outcome" IN (1, 3)
                                   AND (a."Generation" IS NULL OR a."Generation" = "{{schema}}"."{{queue}}"."Generation") ORDER BY a."N"), "LastError"),
               "DueAt" = "{{schema}}"."{{outbox}}_after"(@Now, (
                   SELECT TOP (1) COALESCE(a."Delay", CASE WHEN a."Outcome" = 3 THEN 0 WHEN "Attempts" > 6 THEN 60000000
                                                    WHEN "Attempts" < 1 THEN 1000000 ELSE CAST(POWER(2, "Attempts" - 1) AS BIGINT) * 1000000 END)
                     FROM @Asked a WHERE a."Id" = "{{schema}}"."{{queue}}"."Id" AND a."Outcome" IN (1, 3)
                      AND (a."Generation" IS NULL OR a."Generation" = "{{schema}}"."{{queue}}"."Generation") ORDER BY a."N"))
        OUTPUT inserted."Id" INTO @Back
         WHERE "Id" IN (SELECT i."Id" FROM @Ids i) AND "OwnerToken" = @OwnerToken AND "Status" = 1
           AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Id" = "{{schema}}"."{{queue}}"."Id" AND a."Outcome" IN (1, 3)
                          AND (a."Generation" IS NULL OR a."Generation" = "{{schema}}"."{{queue}}"."Generation")) OPTION (LOOP JOIN);
    {{returned}}
    IF @Own = 1 COMMIT;
    SELECT h."Id" AS id FROM @Hit h
    UNION ALL SELECT b."Id" FROM @Back b;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Ack"
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids "{{schema}}"."{{outbox}}_IdList" READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Settlements NVARCHAR(MAX) = (SELECT i."Id" AS id, i."Generation" AS generation, 0 AS outcome FROM @Ids i FOR JSON PATH);
    EXEC "{{schema}}"."{{queue}}_Settle" @OwnerToken, @Settlements;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Abandon"
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids "{{schema}}"."{{outbox}}_IdList" READONLY,
    @LastError NVARCHAR(MAX) = NULL,
    @DelaySeconds FLOAT = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Settlements NVARCHAR(MAX) = (
        SELECT i."Id" AS id, i."Generation" AS generation, 1 AS outcome, CAST(@DelaySeconds * 1000000 AS BIGINT) AS delay, "{{schema}}"."{{outbox}}_listed"(@LastError) AS error FROM @Ids i FOR JSON PATH);
    EXEC "{{schema}}"."{{queue}}_Settle" @OwnerToken, @Settlements;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Fail"
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids "{{schema}}"."{{outbox}}_IdList" READONLY,
    @LastError NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Settlements NVARCHAR(MAX) = (
        SELECT i."Id" AS id, i."Generation" AS generation, 2 AS outcome, "{{schema}}"."{{outbox}}_listed"(@LastError) AS error FROM @Ids i FOR JSON PATH);
    EXEC "{{schema}}"."{{queue}}_Settle" @OwnerToken, @Settlements;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Release"
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids "{{schema}}"."{{outbox}}_IdList" READONLY,
    @DelaySeconds FLOAT = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Settlements NVARCHAR(MAX) = (
        SELECT i."Id" AS id, i."Generation" AS generation, 3 AS outcome, CAST(@DelaySeconds * 1000000 AS BIGINT) AS delay FROM @Ids i FOR JSON PATH);
    EXEC "{{schema}}"."{{queue}}_Settle" @OwnerToken, @Settlements;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_RenewMany"
    @OwnerToken UNIQUEIDENTIFIER,
    -- A list of objects with id and generation.
    @Claims NVARCHAR(MAX),
    @LeaseSeconds FLOAT = 30
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @OwnerToken IS NULL OR @OwnerToken = '00000000-0000-0000-0000-000000000000'
        THROW 50001, N'{{queue:kind}}_renew: owner must not be null or nil', 1;
    IF @LeaseSeconds IS NULL OR NOT (@LeaseSeconds > 0 AND @LeaseSeconds <= 1000000000)
        THROW 50001, N'{{queue:kind}}_renew: lease_seconds must be more than 0 and at most 1000000000', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Until DATETIME2(6);
    DECLARE @Asked TABLE ("Id" UNIQUEIDENTIFIER NOT NULL, "Generation" BIGINT NULL);
    DECLARE @Ids TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Locked TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE ("Id" UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Free TABLE ("Id" UNIQUEIDENTIFIER NOT NULL, "Live" BIT NOT NULL);
    INSERT INTO @Asked ("Id", "Generation")
    SELECT DISTINCT s.id, s.generation FROM OPENJSON(@Claims) WITH (id UNIQUEIDENTIFIER '$.id', generation BIGINT '$.generation') s;
    INSERT INTO @Ids ("Id") SELECT DISTINCT a."Id" FROM @Asked a;
    -- What somebody has locked is not waited for: most likely its handler is ending it, in a transaction that may take a while, and every other
    -- renewal of the call would wait for that. The clock is read once the rows are locked: the table may have been locked for long.
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Locked ("Id")
    SELECT o."Id" FROM @Ids i JOIN "{{schema}}"."{{queue}}" o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON o."Id" = i."Id"
     WHERE o."OwnerToken" = @OwnerToken AND o."Status" = 1 OPTION (LOOP JOIN);
    SET @Now = SYSUTCDATETIME();
    SET @Until = "{{schema}}"."{{outbox}}_after"(@Now, CAST(@LeaseSeconds * 1000000 AS BIGINT));
    -- A lapsed claim that nobody took over is still good. Not so with an ordering key: another item of the key may have been started on the
    -- strength of the lapse. (The claim of that other item ends this one, so nothing hangs on how exact the clock is.)
    UPDATE "{{schema}}"."{{queue}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "LockedUntil" = @Until
    OUTPUT inserted."Id" INTO @Held
     WHERE "Id" IN (SELECT l."Id" FROM @Locked l) AND "OwnerToken" = @OwnerToken AND "Status" = 1 AND ("OrderingKey" IS NULL OR "LockedUntil" > @Now)
       AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Id" = "{{schema}}"."{{queue}}"."Id" AND (a."Generation" IS NULL OR a."Generation" = "{{schema}}"."{{queue}}"."Generation")) OPTION (LOOP JOIN);
    IF @Own = 1 COMMIT;
    -- The other claims are looked up once more. A row found unlocked tells the truth: another transaction had it above and has ended since. Its claim counts as held
    -- until the lease ends. The status makes the lookup lock the row itself, which is what others lock: the index of ids alone would be free.
    INSERT INTO @Free ("Id", "Live")
    SELECT o."Id", CASE WHEN o."OwnerToken" = @OwnerToken AND o."Status" = 1 AND o."LockedUntil" > SYSUTCDATETIME()
                         AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Id" = o."Id" AND (a."Generation" IS NULL OR a."Generation" = o."Generation")) THEN 1 ELSE 0 END
      FROM @Ids i JOIN "{{schema}}"."{{queue}}" o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON o."Id" = i."Id"
     WHERE o."Status" < 9 AND NOT EXISTS (SELECT 1 FROM @Held h WHERE h."Id" = i."Id") OPTION (LOOP JOIN);
    -- A row that is still locked, in the queue or in the history, is being changed. Its claim counts as held, too, and keeps its lease.
    SELECT h."Id" AS id, CAST(1 AS BIT) AS extended FROM @Held h
    UNION ALL
    SELECT f."Id", CAST(0 AS BIT) FROM @Free f WHERE f."Live" = 1
    UNION ALL
    SELECT i."Id", CAST(0 AS BIT) FROM @Ids i
     WHERE NOT EXISTS (SELECT 1 FROM @Held h WHERE h."Id" = i."Id")
       AND NOT EXISTS (SELECT 1 FROM @Free f WHERE f."Id" = i."Id")
       AND (EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK) WHERE o."Id" = i."Id")
            OR EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_history" o WITH (NOLOCK) WHERE o."Id" = i."Id"))
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_history" o WITH (READCOMMITTEDLOCK, READPAST) WHERE o."Id" = i."Id");
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Renew"
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids "{{schema}}"."{{outbox}}_IdList" READONLY,
    @LeaseSeconds FLOAT = 30
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Claims NVARCHAR(MAX) = (SELECT i."Id" AS id, i."Generation" AS generation FROM @Ids i FOR JSON PATH);
    EXEC "{{schema}}"."{{queue}}_RenewMany" @OwnerToken, @Claims, @LeaseSeconds;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_ReapExpired"
    @MaxRows INT = 1000
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME(), @Reaped INT;
    DECLARE @Pick TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Back TABLE ("Id" UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "Generation" BIGINT NOT NULL);
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Pick ("Seq")
    SELECT TOP (@MaxRows) o."Seq" FROM "{{schema}}"."{{queue}}" o WITH (UPDLOCK, READPAST, ROWLOCK) WHERE o."Status" = 1 AND o."LockedUntil" <= @Now;
    UPDATE "{{schema}}"."{{queue}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "Status" = 0, "OwnerToken" = NULL, "LockedUntil" = NULL
    OUTPUT inserted."Id" INTO @Back
     WHERE "Seq" IN (SELECT p."Seq" FROM @Pick p) AND "Status" = 1 AND "LockedUntil" <= @Now OPTION (LOOP JOIN);
    SET @Reaped = @@ROWCOUNT;
    {{returned}}
    IF @Own = 1 COMMIT;
    SELECT @Reaped AS reaped;
END
GO
