-- Leases.
--
-- Locks: an acquisition holds the application lock of the name exclusively, a guard shared, both until their transaction ends; an acquisition waits a
-- quarter of a second for it and then says who has the lease. The row itself is locked only by the statement that changes it, found by its key, so
-- no two of these can wait for each other.

-- Internal: the application lock of a lease's name. 1 if it was to be had.
ALTER PROCEDURE "{{schema}}"."{{lease}}_Lock"
    @Name NVARCHAR(510),
    @Mode NVARCHAR(32),
    @Timeout INT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Digest BIGINT = CAST(SUBSTRING(HASHBYTES('SHA2_256', @Name), 1, 8) AS BIGINT);
    DECLARE @Resource NVARCHAR(255) = N'mainstay ' + CAST(DB_ID() AS NVARCHAR(10)) + N' {{schema:literal}}.{{lease:literal}} ' + CAST(@Digest AS NVARCHAR(20));
    DECLARE @Got INT;
    EXEC @Got = sp_getapplock @Resource = @Resource, @LockMode = @Mode, @LockOwner = N'Transaction', @LockTimeout = @Timeout;
    IF @Got < 0 AND SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL EXEC "{{schema}}"."{{outbox}}_LetGo";
    RETURN CASE WHEN @Got < 0 THEN 0 ELSE 1 END;
END
GO
-- Internal: gives one lease, within the caller's transaction. 1 if it was given.
ALTER PROCEDURE "{{schema}}"."{{lease}}_Take"
    @Name NVARCHAR(510),
    @Owner NVARCHAR(510),
    @DurationSeconds FLOAT,
    @Context NVARCHAR(MAX),
    @Reentrant BIT,
    @Timeout INT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Got INT, @Given INT = 0;
    EXEC @Got = "{{schema}}"."{{lease}}_Lock" @Name, N'Exclusive', @Timeout;
    IF @Got = 0 RETURN 0;
    -- Taken after the wait. A moment from before would be late: it only ever makes the lease shorter.
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_after"(@Now, CAST(@DurationSeconds * 1000000 AS BIGINT));
    UPDATE "{{schema}}"."{{lease}}" WITH (ROWLOCK)
       SET "Owner" = @Owner, "Context" = @Context, "Epoch" = "Epoch" + 1, "FencingToken" = "FencingToken" + 1, "AcquiredAt" = @Now, "RenewedAt" = @Now, "ExpiresAt" = @Until
     WHERE "Name" = @Name AND ("Owner" IS NULL OR "ExpiresAt" <= @Now OR (@Reentrant = 1 AND "Owner" = @Owner));
    SET @Given = @@ROWCOUNT;
    IF @Given = 0 AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{lease}}" l WITH (FORCESEEK) WHERE l."Name" = @Name)
    BEGIN
        -- Nobody else can be making it: they would need the lock.
        INSERT INTO "{{schema}}"."{{lease}}" ("Name", "Owner", "Context", "Epoch", "FencingToken", "AcquiredAt", "RenewedAt", "ExpiresAt")
        VALUES (@Name, @Owner, @Context, 1, 1, @Now, @Now, @Until);
        SET @Given = 1;
    END
    RETURN @Given;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_Acquire"
    @Name NVARCHAR(MAX),
    @Owner NVARCHAR(MAX),
    @DurationSeconds FLOAT = 30,
    @Context NVARCHAR(MAX) = NULL,
    @Reentrant BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Name IS NULL OR DATALENGTH(@Name) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Name, 255) = 1 THEN N'name must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Name)
        WHEN @Owner IS NULL OR DATALENGTH(@Owner) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Owner, 255) = 1 THEN N'owner must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Owner)
        WHEN "{{schema}}"."{{outbox}}_exceeds"(@Context, 4096) = 1 THEN N'context must be at most 4096 characters' + "{{schema}}"."{{outbox}}_got"(@Context)
        WHEN @DurationSeconds IS NULL OR NOT (@DurationSeconds > 0 AND @DurationSeconds <= 1000000000) THEN N'duration_seconds must be more than 0 and at most 1000000000'
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'lease_acquire: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Given INT;
    DECLARE @Key NVARCHAR(510) = @Name;
    SET @Context = NULLIF(@Context, N'');
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC @Given = "{{schema}}"."{{lease}}_Take" @Name, @Owner, @DurationSeconds, @Context, @Reentrant, 250;
    IF @Own = 1 COMMIT;
    -- Nothing is known of a row that somebody is just making.
    SELECT @Given AS acquired, l."Owner" AS owner, COALESCE(l."Epoch", 0) AS epoch, COALESCE(l."FencingToken", 0) AS fencing_token,
           COALESCE(l."ExpiresAt", n."Now") AS expires_at, l."Context" AS context, CASE WHEN @Given = 1 THEN l."AcquiredAt" ELSE n."Now" END AS now
      FROM (SELECT SYSUTCDATETIME() AS "Now") n LEFT JOIN "{{schema}}"."{{lease}}" l WITH (FORCESEEK) ON l."Name" = @Key;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_AcquireMany"
    -- A list of texts, with NCHAR(31) between them.
    @Names NVARCHAR(MAX),
    @Owner NVARCHAR(MAX),
    @DurationSeconds FLOAT = 30,
    @Context NVARCHAR(MAX) = NULL,
    @Reentrant BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Complaint NVARCHAR(300) = N'lease_acquire_many: ' + CASE
        WHEN @Names IS NULL THEN N'names must not be null'
        WHEN @Owner IS NULL OR DATALENGTH(@Owner) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Owner, 255) = 1 THEN N'owner must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Owner)
        WHEN "{{schema}}"."{{outbox}}_exceeds"(@Context, 4096) = 1 THEN N'context must be at most 4096 characters' + "{{schema}}"."{{outbox}}_got"(@Context)
        WHEN @Reentrant IS NULL THEN N'reentrant must not be null'
        WHEN @DurationSeconds IS NULL OR NOT (@DurationSeconds > 0 AND @DurationSeconds <= 1000000000) THEN N'duration_seconds must be more than 0 and at most 1000000000'
        WHEN DATALENGTH(@Names) > 0 AND EXISTS (SELECT 1 FROM STRING_SPLIT(@Names COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) n WHERE DATALENGTH(n."value") = 0 OR "{{schema}}"."{{outbox}}_exceeds"(n."value", 255) = 1) THEN N'names must be 1 to 255 characters each'
    END;
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Asked TABLE ("Name" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED, "Given" BIT NOT NULL);
    DECLARE @Name NVARCHAR(510), @Given INT;
    INSERT INTO @Asked ("Name", "Given") SELECT DISTINCT CAST(n."value" AS NVARCHAR(510)) COLLATE Latin1_General_BIN2, 0 FROM STRING_SPLIT(@Names COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) n WHERE DATALENGTH(n."value") > 0;
    SET @Context = NULLIF(@Context, N'');
    IF @Own = 1 BEGIN TRANSACTION;
    SET @Name = (SELECT MIN("Name") FROM @Asked);
    WHILE @Name IS NOT NULL
    BEGIN
        -- Waits for nobody.
        EXEC @Given = "{{schema}}"."{{lease}}_Take" @Name, @Owner, @DurationSeconds, @Context, @Reentrant, 0;
        IF @Given = 1 UPDATE @Asked SET "Given" = 1 WHERE "Name" = @Name;
        SET @Name = (SELECT MIN("Name") FROM @Asked WHERE "Name" > @Name);
    END
    IF @Own = 1 COMMIT;
    SELECT l."Name" AS name, l."Epoch" AS epoch, l."FencingToken" AS fencing_token, l."ExpiresAt" AS expires_at, l."AcquiredAt" AS now
      FROM @Asked a JOIN "{{schema}}"."{{lease}}" l WITH (FORCESEEK) ON l."Name" = a."Name" WHERE a."Given" = 1 AND l."Owner" = @Owner;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_RenewMany"
    -- A list of objects: name, owner, epoch.
    @Claims NVARCHAR(MAX),
    @DurationSeconds FLOAT = 30
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @DurationSeconds IS NULL OR NOT (@DurationSeconds > 0 AND @DurationSeconds <= 1000000000)
        THROW 50001, N'lease_renew_many: duration_seconds must be more than 0 and at most 1000000000', 1;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_after"(@Now, CAST(@DurationSeconds * 1000000 AS BIGINT));
    DECLARE @Asked TABLE ("Name" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Owner" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Epoch" BIGINT NOT NULL);
    DECLARE @Hit TABLE ("Name" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Epoch" BIGINT NOT NULL, "FencingToken" BIGINT NOT NULL);
    INSERT INTO @Asked ("Name", "Owner", "Epoch")
    SELECT DISTINCT "{{schema}}"."{{outbox}}_text"(c.name), "{{schema}}"."{{outbox}}_text"(c.owner), c.epoch FROM OPENJSON(@Claims) WITH (name NVARCHAR(MAX) '$.name', owner NVARCHAR(MAX) '$.owner', epoch BIGINT '$.epoch') c;
    -- Lapsed is lost, even if nobody has taken it yet.
    UPDATE "{{schema}}"."{{lease}}" WITH (ROWLOCK) SET "FencingToken" = "FencingToken" + 1, "RenewedAt" = @Now, "ExpiresAt" = @Until
    OUTPUT inserted."Name", inserted."Epoch", inserted."FencingToken" INTO @Hit
     WHERE "ExpiresAt" > @Now AND "Name" IN (SELECT a."Name" FROM @Asked a)
       AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Name" = "{{schema}}"."{{lease}}"."Name" AND a."Owner" = "{{schema}}"."{{lease}}"."Owner" AND a."Epoch" = "{{schema}}"."{{lease}}"."Epoch") OPTION (LOOP JOIN);
    SELECT h."Name" AS name, h."Epoch" AS epoch, h."FencingToken" AS fencing_token, @Until AS expires_at, @Now AS now FROM @Hit h;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_Renew"
    @Name NVARCHAR(510),
    @Owner NVARCHAR(510),
    @Epoch BIGINT,
    @DurationSeconds FLOAT = 30
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Complaint NVARCHAR(300) = N'lease_renew: ' + CASE
        WHEN @Name IS NULL THEN N'name must not be null'
        WHEN @Owner IS NULL THEN N'owner must not be null'
        WHEN @Epoch IS NULL THEN N'epoch must not be null'
        WHEN @DurationSeconds IS NULL OR NOT (@DurationSeconds > 0 AND @DurationSeconds <= 1000000000) THEN N'duration_seconds must be more than 0 and at most 1000000000'
    END;
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;
    DECLARE @Claims NVARCHAR(MAX) = (SELECT "{{schema}}"."{{outbox}}_listed"(@Name) AS name, "{{schema}}"."{{outbox}}_listed"(@Owner) AS owner, @Epoch AS epoch FOR JSON PATH);
    EXEC "{{schema}}"."{{lease}}_RenewMany" @Claims, @DurationSeconds;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_ReleaseMany"
    -- A list of objects: name, owner, epoch.
    @Claims NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Asked TABLE ("Name" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Owner" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Epoch" BIGINT NOT NULL);
    DECLARE @Hit TABLE ("Name" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Epoch" BIGINT NOT NULL);
    INSERT INTO @Asked ("Name", "Owner", "Epoch")
    SELECT DISTINCT "{{schema}}"."{{outbox}}_text"(c.name), "{{schema}}"."{{outbox}}_text"(c.owner), c.epoch FROM OPENJSON(@Claims) WITH (name NVARCHAR(MAX) '$.name', owner NVARCHAR(MAX) '$.owner', epoch BIGINT '$.epoch') c;
    UPDATE "{{schema}}"."{{lease}}" WITH (ROWLOCK) SET "Owner" = NULL, "Context" = NULL, "ExpiresAt" = @Now
    OUTPUT inserted."Name", inserted."Epoch" INTO @Hit
     WHERE "ExpiresAt" > @Now AND "Name" IN (SELECT a."Name" FROM @Asked a)
       AND EXISTS (SELECT 1 FROM @Asked a WHERE a."Name" = "{{schema}}"."{{lease}}"."Name" AND a."Owner" = "{{schema}}"."{{lease}}"."Owner" AND a."Epoch" = "{{schema}}"."{{lease}}"."Epoch") OPTION (LOOP JOIN);
    SELECT h."Name" AS name, h."Epoch" AS epoch FROM @Hit h;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_Release"
    @Name NVARCHAR(510),
    @Owner NVARCHAR(510),
    @Epoch BIGINT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Complaint NVARCHAR(300) = N'lease_release: ' + CASE
        WHEN @Name IS NULL THEN N'name must not be null'
        WHEN @Owner IS NULL THEN N'owner must not be null'
        WHEN @Epoch IS NULL THEN N'epoch must not be null'
    END;
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;
    DECLARE @Claims NVARCHAR(MAX) = (SELECT "{{schema}}"."{{outbox}}_listed"(@Name) AS name, "{{schema}}"."{{outbox}}_listed"(@Owner) AS owner, @Epoch AS epoch FOR JSON PATH);
    EXEC "{{schema}}"."{{lease}}_ReleaseMany" @Claims;
END
GO
-- Writing only while the lease is held. Raises an error unless it is, and keeps everybody else from getting it until the transaction has ended.
ALTER PROCEDURE "{{schema}}"."{{lease}}_Guard"
    @Name NVARCHAR(510),
    @Owner NVARCHAR(510),
    @Epoch BIGINT,
    -- Where the lease is, as Home says; none does not ask.
    @Home NVARCHAR(400) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = N'lease_guard: ' + CASE
        WHEN @Name IS NULL THEN N'name must not be null'
        WHEN @Owner IS NULL THEN N'owner must not be null'
        WHEN @Epoch IS NULL THEN N'epoch must not be null'
    END;
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;
    IF @@TRANCOUNT = 0
        THROW 50005, N'lease_guard: needs a transaction', 1;
    IF @Home <> DB_NAME()
        THROW 50008, N'lease_guard: the transaction is of another database than the lease', 1;
    DECLARE @Got INT;
    EXEC @Got = "{{schema}}"."{{lease}}_Lock" @Name, N'Shared', 30000;
    DECLARE @Until DATETIME2(6) = (SELECT l."ExpiresAt" FROM "{{schema}}"."{{lease}}" l WITH (FORCESEEK) WHERE l."Name" = @Name AND l."Owner" = @Owner AND l."Epoch" = @Epoch);
    -- An error and not an answer: it ends the transaction, whoever forgets to look.
    IF @Got = 0 OR @Until IS NULL OR @Until <= SYSUTCDATETIME()
        THROW 50003, N'lease_guard: the lease is lost: its epoch no longer holds it', 1;
    SELECT @Until AS expires_at;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_List"
    @Name NVARCHAR(510) = NULL,
    @Prefix NVARCHAR(510) = NULL,
    @HeldOnly BIT = 0,
    @After NVARCHAR(510) = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT TOP (@MaxRows) l."Name" AS name, CASE WHEN l."Owner" IS NOT NULL AND l."ExpiresAt" > @Now THEN 1 ELSE 0 END AS held, l."Owner" AS owner, l."Epoch" AS epoch,
           l."FencingToken" AS fencing_token, l."AcquiredAt" AS acquired_at, l."RenewedAt" AS renewed_at, l."ExpiresAt" AS expires_at, l."Context" AS context
      FROM "{{schema}}"."{{lease}}" l
     WHERE (@Name IS NULL OR l."Name" = @Name) AND (@Prefix IS NULL OR LEFT(l."Name", LEN(@Prefix + N'.') - 1) = @Prefix)
       AND (@HeldOnly = 0 OR (l."Owner" IS NOT NULL AND l."ExpiresAt" > @Now)) AND (@After IS NULL OR l."Name" > @After)
     ORDER BY l."Name";
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_ForceRelease"
    @Name NVARCHAR(510),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = N'lease_force_release: ' + CASE
        WHEN @Name IS NULL THEN N'name must not be null'
    END;
    IF @Complaint IS NOT NULL
        THROW 50001, @Complaint, 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Owner NVARCHAR(510), @Epoch BIGINT, @Until DATETIME2(6);
    IF @Own = 1 BEGIN TRANSACTION;
    SET @Now = SYSUTCDATETIME();
    SELECT @Owner = l."Owner", @Epoch = l."Epoch", @Until = l."ExpiresAt" FROM "{{schema}}"."{{lease}}" l WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE l."Name" = @Name AND l."Owner" IS NOT NULL AND l."ExpiresAt" > @Now;
    UPDATE "{{schema}}"."{{lease}}" WITH (ROWLOCK) SET "Owner" = NULL, "Context" = NULL, "ExpiresAt" = @Now WHERE "Name" = @Name AND "Owner" = @Owner AND "Epoch" = @Epoch AND "ExpiresAt" > @Now;
    IF @@ROWCOUNT = 0 SET @Owner = NULL;
    IF @Owner IS NOT NULL
    BEGIN
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'lease' AS kind, "{{schema}}"."{{outbox}}_listed"(@Name) AS value FOR JSON PATH);
        DECLARE @Data NVARCHAR(MAX) = (SELECT @Owner AS "before.owner", @Epoch AS "before.epoch", NULL AS "after.owner" FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
        EXEC "{{schema}}"."{{audit}}_Note" N'lease.force_release', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Owner AS owner;
END
GO
ALTER PROCEDURE "{{schema}}"."{{lease}}_Active"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT COUNT(*) AS active, DB_NAME() AS home FROM "{{schema}}"."{{lease}}" l WHERE l."Owner" IS NOT NULL AND l."ExpiresAt" > SYSUTCDATETIME();
END
GO
