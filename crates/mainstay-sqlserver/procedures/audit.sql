-- The audit trail: writing, reading and purging it.

-- Internal: writes a record.
ALTER PROCEDURE "{{schema}}"."{{audit}}_Add"
    @Id UNIQUEIDENTIFIER,
    @Name NVARCHAR(MAX),
    @Actor NVARCHAR(MAX),
    @Outcome TINYINT,
    @CorrelationId NVARCHAR(MAX),
    @Data NVARCHAR(MAX),
    -- A list of objects: kind and value. In texts `~` is written `~0`.
    @Anchors NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Name IS NULL OR DATALENGTH(@Name) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Name, 255) = 1 THEN N'name must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Name)
        WHEN @Actor IS NULL OR DATALENGTH(@Actor) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Actor, 255) = 1 THEN N'actor must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Actor)
        WHEN @Outcome IS NULL OR @Outcome > 2 THEN N'outcome must be succeeded, failed or refused'
        WHEN DATALENGTH(@CorrelationId) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@CorrelationId, 255) = 1 THEN N'correlation_id must be 1 to 255 characters, or null' + "{{schema}}"."{{outbox}}_got"(@CorrelationId)
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'audit_write: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @About TABLE ("Kind" NVARCHAR(MAX) NOT NULL, "Value" NVARCHAR(MAX) NOT NULL);
    INSERT INTO @About ("Kind", "Value")
    SELECT "{{schema}}"."{{outbox}}_text"(x.kind), "{{schema}}"."{{outbox}}_text"(x.value) FROM OPENJSON(COALESCE(@Anchors, N'[]')) WITH (kind NVARCHAR(MAX) '$.kind', value NVARCHAR(MAX) '$.value') x;
    INSERT INTO "{{schema}}"."{{audit}}" ("Id", "RecordedAt", "Name", "Actor", "Outcome", "CorrelationId", "Data")
    VALUES (@Id, @Now, @Name, @Actor, @Outcome, @CorrelationId, @Data);
    INSERT INTO "{{schema}}"."{{audit}}_anchor" ("AuditId", "Kind", "Value", "Digest", "RecordedAt")
    SELECT @Id, a.kind, a.value, HASHBYTES('SHA2_256', a.kind + NCHAR(1) + a.value), @Now
      FROM (SELECT DISTINCT x."Kind" COLLATE Latin1_General_BIN2 AS kind, x."Value" COLLATE Latin1_General_BIN2 AS value FROM @About x) a;
END
GO
ALTER PROCEDURE "{{schema}}"."{{audit}}_Write"
    @Name NVARCHAR(MAX),
    -- Whoever does not say who acts is the one who has connected.
    @Actor NVARCHAR(MAX) = NULL,
    @Outcome NVARCHAR(20) = N'succeeded',
    @CorrelationId NVARCHAR(MAX) = NULL,
    @Data NVARCHAR(MAX) = NULL,
    @Anchors NVARCHAR(MAX) = NULL,
    @Id UNIQUEIDENTIFIER = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Code TINYINT = CASE @Outcome WHEN N'succeeded' THEN 0 WHEN N'failed' THEN 1 WHEN N'refused' THEN 2 END;
    IF LEN(@Data) > 0 AND DATALENGTH(CAST(@Data AS VARCHAR(MAX))) > 16384 OR @Data IS NOT NULL AND ISJSON(N'[' + @Data + N']') = 0
        THROW 50001, N'audit_write: data must be at most 16384 bytes of JSON', 1;
    SET @Actor = COALESCE(@Actor, LEFT(N'sql:' + ORIGINAL_LOGIN(), 255));
    SET @Id = COALESCE(@Id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()));
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{audit}}_Add" @Id, @Name, @Actor, @Code, @CorrelationId, @Data, @Anchors;
    IF @Own = 1 COMMIT;
    SELECT @Id AS audit_id;
END
GO
-- Internal: records an administrative action that was done.
ALTER PROCEDURE "{{schema}}"."{{audit}}_Note"
    @Name NVARCHAR(510),
    @Actor NVARCHAR(510),
    @CorrelationId NVARCHAR(510),
    @Data NVARCHAR(MAX),
    @Anchors NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    -- Whoever does not say who acts is the one who has connected.
    SET @Actor = COALESCE(@Actor, LEFT(N'sql:' + ORIGINAL_LOGIN(), 255));
    -- An action must not fail for the length of what is told of it.
    IF LEN(@Data) > 16384
        SET @Data = COALESCE(N'{"count":' + JSON_VALUE(@Data, '$.count') + N',"truncated":true}', N'{"truncated":true}');
    DECLARE @Id UNIQUEIDENTIFIER = "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID());
    EXEC "{{schema}}"."{{audit}}_Add" @Id, @Name, @Actor, 0, @CorrelationId, @Data, @Anchors;
END
GO
ALTER PROCEDURE "{{schema}}"."{{audit}}_List"
    @Id UNIQUEIDENTIFIER = NULL,
    -- What names begin with.
    @Name NVARCHAR(510) = NULL,
    @Actor NVARCHAR(510) = NULL,
    @CorrelationId NVARCHAR(510) = NULL,
    @Outcome TINYINT = NULL,
    @After DATETIME2(6) = NULL,
    @BeforeTime DATETIME2(6) = NULL,
    -- The last record of the page before.
    @Before UNIQUEIDENTIFIER = NULL,
    @AnchorKind NVARCHAR(128) = NULL,
    @AnchorValue NVARCHAR(1024) = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @LastAt DATETIME2(6), @LastSeq BIGINT;
    IF @Before IS NOT NULL
        SELECT @LastAt = b."RecordedAt", @LastSeq = b."Seq" FROM "{{schema}}"."{{audit}}" b WHERE b."Id" = @Before;
    DECLARE @Digest BINARY(32) = HASHBYTES('SHA2_256', @AnchorKind + NCHAR(1) + @AnchorValue);
    SELECT TOP (@MaxRows) a."Id" AS id, a."RecordedAt" AS recorded_at, a."Name" AS name, a."Actor" AS actor, a."Outcome" AS outcome, a."CorrelationId" AS correlation_id, a."Data" AS data,
           COALESCE((SELECT TOP (100) n."Kind" AS kind, n."Value" AS value FROM "{{schema}}"."{{audit}}_anchor" n WHERE n."AuditId" = a."Id" ORDER BY n."Kind", n."Value" FOR JSON PATH), N'[]') AS anchors_pairs
      FROM "{{schema}}"."{{audit}}" a
     WHERE (@Id IS NULL OR a."Id" = @Id)
       AND (@Name IS NULL OR LEFT(a."Name", LEN(@Name + N'.') - 1) = @Name)
       AND (@Actor IS NULL OR a."Actor" = @Actor) AND (@CorrelationId IS NULL OR a."CorrelationId" = @CorrelationId)
       AND (@Outcome IS NULL OR a."Outcome" = @Outcome)
       AND (@After IS NULL OR a."RecordedAt" >= @After) AND (@BeforeTime IS NULL OR a."RecordedAt" < @BeforeTime)
       AND (@Before IS NULL OR a."RecordedAt" < @LastAt OR (a."RecordedAt" = @LastAt AND a."Seq" < @LastSeq))
       AND (@AnchorKind IS NULL OR EXISTS (SELECT 1 FROM "{{schema}}"."{{audit}}_anchor" n WHERE n."Digest" = @Digest AND n."AuditId" = a."Id"))
     ORDER BY a."RecordedAt" DESC, a."Seq" DESC;
END
GO
ALTER PROCEDURE "{{schema}}"."{{audit}}_Purge"
    @OlderThanSeconds FLOAT,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @OlderThanSeconds IS NULL OR @OlderThanSeconds < 0 OR @OlderThanSeconds > 10000000000
        THROW 50001, N'audit_purge: older_than_seconds must be 0 to 10000000000', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(SYSUTCDATETIME(), @OlderThanSeconds);
    DECLARE @Gone TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    IF @Own = 1 BEGIN TRANSACTION;
    -- One at a time: the reference that keeps the anchors from being truncated is looked up by every deletion of one, and would wait for another purge's row. Who comes
    -- second deletes nothing, and is called again.
    DECLARE @Resource NVARCHAR(255) = N'mainstay ' + CAST(DB_ID() AS NVARCHAR(10)) + N' {{schema:literal}}.{{audit:literal}} purge';
    DECLARE @Got INT;
    EXEC @Got = sp_getapplock @Resource = @Resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
    IF @Got < 0 AND SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL EXEC "{{schema}}"."{{outbox}}_LetGo";
    IF @Got < 0 SET @MaxRows = 0;
    INSERT INTO @Gone ("Id")
    SELECT TOP (@MaxRows) a."Id" FROM "{{schema}}"."{{audit}}" a WITH (UPDLOCK, READPAST, ROWLOCK) WHERE a."RecordedAt" <= @Until ORDER BY a."RecordedAt", a."Seq";
    DECLARE @Purged INT = @@ROWCOUNT;
    IF @Purged > 0
    BEGIN
        INSERT INTO "{{schema}}"."{{audit}}_purging" ("At") VALUES (SYSUTCDATETIME());
        DELETE FROM "{{schema}}"."{{audit}}_anchor" WHERE "AuditId" IN (SELECT g."Id" FROM @Gone g);
        DELETE FROM "{{schema}}"."{{audit}}" WHERE "Id" IN (SELECT g."Id" FROM @Gone g);
        DELETE FROM "{{schema}}"."{{audit}}_purging" WITH (READCOMMITTEDLOCK, READPAST);
        IF @Actor IS NOT NULL
        BEGIN
            DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Purged AS NVARCHAR(20)) + N',"older_than_seconds":' + CAST(CAST(FLOOR(@OlderThanSeconds) AS BIGINT) AS NVARCHAR(20)) + N'}';
            EXEC "{{schema}}"."{{audit}}_Note" N'audit.purge', @Actor, @ActorCorrelationId, @Data, NULL;
        END
    END
    IF @Own = 1 COMMIT;
    SELECT @Purged AS purged;
END
GO
