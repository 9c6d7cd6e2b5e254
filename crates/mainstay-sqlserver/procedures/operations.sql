-- Operations. What has ended never changes again, whoever comes first: each change compares the state, on a row found by its id, and says which it was.

ALTER PROCEDURE "{{schema}}"."{{operations}}_Start"
    @Id UNIQUEIDENTIFIER,
    @Name NVARCHAR(510),
    @Actor NVARCHAR(510),
    @ParentId UNIQUEIDENTIFIER = NULL,
    @CorrelationId NVARCHAR(510) = NULL,
    @Total BIGINT = NULL,
    @Message NVARCHAR(MAX) = NULL,
    -- A list of objects: key and value. In texts `~` is written `~0`.
    @Tags NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO "{{schema}}"."{{operations}}" ("Id", "Name", "ParentId", "State", "Total", "Message", "Actor", "CorrelationId", "Events", "StartedAt", "UpdatedAt")
    SELECT @Id, @Name, @ParentId, 0, @Total, @Message, @Actor, @CorrelationId, 0, @Now, @Now
     WHERE @ParentId IS NULL OR EXISTS (SELECT 1 FROM "{{schema}}"."{{operations}}" p WHERE p."Id" = @ParentId);
    IF @@ROWCOUNT = 0
        SET @Id = NULL;
    ELSE IF @Tags IS NOT NULL
        INSERT INTO "{{schema}}"."{{operations}}_tag" ("OperationId", "Key", "Value", "StartedAt")
        SELECT @Id, "{{schema}}"."{{outbox}}_text"(t."key"), "{{schema}}"."{{outbox}}_text"(t.value), @Now
          FROM OPENJSON(@Tags) WITH ("key" NVARCHAR(MAX) '$.key', value NVARCHAR(MAX) '$.value') t;
    IF @Own = 1 COMMIT;
    SELECT @Id AS operation_id;
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_Progress"
    @Id UNIQUEIDENTIFIER,
    @Done BIGINT = NULL,
    @Total BIGINT = NULL,
    @Message NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    UPDATE "{{schema}}"."{{operations}}" SET "Done" = COALESCE(@Done, "Done"), "Total" = COALESCE(@Total, "Total"), "Message" = COALESCE(@Message, "Message"), "UpdatedAt" = SYSUTCDATETIME()
     WHERE "Id" = @Id AND "State" = 0;
    IF @@ROWCOUNT > 0
        SELECT 0 AS state, CAST(NULL AS BIGINT) AS number;
    ELSE
        SELECT o."State" AS state, CAST(NULL AS BIGINT) AS number FROM "{{schema}}"."{{operations}}" o WHERE o."Id" = @Id AND o."State" <> 0;
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_Note"
    @Id UNIQUEIDENTIFIER,
    @Kind NVARCHAR(510),
    @Message NVARCHAR(MAX) = NULL,
    @Data NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME(), @Number BIGINT;
    IF @Own = 1 BEGIN TRANSACTION;
    UPDATE "{{schema}}"."{{operations}}" SET "Events" = "Events" + 1, "UpdatedAt" = @Now WHERE "Id" = @Id AND "State" = 0;
    IF @@ROWCOUNT > 0
    BEGIN
        SELECT @Number = o."Events" FROM "{{schema}}"."{{operations}}" o WHERE o."Id" = @Id;
        INSERT INTO "{{schema}}"."{{operations}}_event" ("OperationId", "Number", "RecordedAt", "Kind", "Message", "Data") VALUES (@Id, @Number, @Now, @Kind, @Message, @Data);
    END
    IF @Own = 1 COMMIT;
    SELECT CASE WHEN @Number IS NOT NULL THEN 0 ELSE o."State" END AS state, @Number AS number FROM "{{schema}}"."{{operations}}" o WHERE o."Id" = @Id AND (@Number IS NOT NULL OR o."State" <> 0);
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_End"
    @Id UNIQUEIDENTIFIER,
    @State TINYINT,
    @Error NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    UPDATE "{{schema}}"."{{operations}}" SET "State" = @State, "Error" = @Error, "UpdatedAt" = @Now, "EndedAt" = @Now WHERE "Id" = @Id AND "State" = 0;
    IF @@ROWCOUNT > 0
        SELECT 0 AS state, CAST(NULL AS BIGINT) AS number;
    ELSE
        SELECT o."State" AS state, CAST(NULL AS BIGINT) AS number FROM "{{schema}}"."{{operations}}" o WHERE o."Id" = @Id AND o."State" <> 0;
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_List"
    @Id UNIQUEIDENTIFIER = NULL,
    @Name NVARCHAR(510) = NULL,
    @State INT = NULL,
    @ParentId UNIQUEIDENTIFIER = NULL,
    @CorrelationId NVARCHAR(510) = NULL,
    @After DATETIME2(6) = NULL,
    @BeforeTime DATETIME2(6) = NULL,
    @Before UNIQUEIDENTIFIER = NULL,
    @TagKey NVARCHAR(128) = NULL,
    @TagValue NVARCHAR(510) = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @At DATETIME2(6), @Seq BIGINT;
    IF @Before IS NOT NULL
        SELECT @At = b."StartedAt", @Seq = b."Seq" FROM "{{schema}}"."{{operations}}" b WHERE b."Id" = @Before;
    SELECT TOP (@MaxRows) o."Id" AS id, o."Name" AS name, o."ParentId" AS parent, o."State" AS state, o."Done" AS done, o."Total" AS total, o."Message" AS message, o."Error" AS error, o."Actor" AS actor,
           o."CorrelationId" AS correlation_id, o."Events" AS events, o."StartedAt" AS started_at, o."UpdatedAt" AS updated_at, o."EndedAt" AS ended_at,
           COALESCE((SELECT t."Key" AS "key", t."Value" AS value FROM "{{schema}}"."{{operations}}_tag" t WHERE t."OperationId" = o."Id" FOR JSON PATH), N'[]') AS tags_map
      FROM "{{schema}}"."{{operations}}" o
     WHERE (@Id IS NULL OR o."Id" = @Id) AND (@Name IS NULL OR LEFT(o."Name", LEN(@Name + N'.') - 1) = @Name) AND (@State IS NULL OR o."State" = @State)
       AND (@ParentId IS NULL OR o."ParentId" = @ParentId) AND (@CorrelationId IS NULL OR o."CorrelationId" = @CorrelationId)
       AND (@After IS NULL OR o."StartedAt" >= @After) AND (@BeforeTime IS NULL OR o."StartedAt" < @BeforeTime)
       AND (@Before IS NULL OR o."StartedAt" < @At OR (o."StartedAt" = @At AND o."Seq" < @Seq))
       AND (@TagKey IS NULL OR EXISTS (SELECT 1 FROM "{{schema}}"."{{operations}}_tag" t WHERE t."OperationId" = o."Id" AND t."Key" = @TagKey AND t."Value" = @TagValue))
     ORDER BY o."StartedAt" DESC, o."Seq" DESC;
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_Events"
    @Id UNIQUEIDENTIFIER,
    @After BIGINT = 0,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    SELECT TOP (@MaxRows) e."Number" AS number, e."RecordedAt" AS recorded_at, e."Kind" AS kind, e."Message" AS message, e."Data" AS data
      FROM "{{schema}}"."{{operations}}_event" e WHERE e."OperationId" = @Id AND e."Number" > @After ORDER BY e."Number";
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_Stalled"
    @SilenceSeconds FLOAT,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(SYSUTCDATETIME(), @SilenceSeconds);
    SELECT TOP (@MaxRows) o."Id" AS id, o."Name" AS name, o."ParentId" AS parent, o."State" AS state, o."Done" AS done, o."Total" AS total, o."Message" AS message, o."Error" AS error, o."Actor" AS actor,
           o."CorrelationId" AS correlation_id, o."Events" AS events, o."StartedAt" AS started_at, o."UpdatedAt" AS updated_at, o."EndedAt" AS ended_at,
           COALESCE((SELECT t."Key" AS "key", t."Value" AS value FROM "{{schema}}"."{{operations}}_tag" t WHERE t."OperationId" = o."Id" FOR JSON PATH), N'[]') AS tags_map
      FROM "{{schema}}"."{{operations}}" o WHERE o."State" = 0 AND o."UpdatedAt" <= @Until ORDER BY o."UpdatedAt", o."Seq";
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_MarkStalled"
    @SilenceSeconds FLOAT,
    @MaxRows INT = 100,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(@Now, @SilenceSeconds);
    DECLARE @Hit TABLE ("Id" UNIQUEIDENTIFIER NOT NULL, "Name" NVARCHAR(510) NOT NULL);
    IF @Own = 1 BEGIN TRANSACTION;
    -- The last sign of life stays.
    UPDATE "{{schema}}"."{{operations}}" SET "State" = 4, "EndedAt" = @Now
    OUTPUT inserted."Id", inserted."Name" INTO @Hit
     WHERE "State" = 0 AND "UpdatedAt" <= @Until
       AND "Seq" IN (SELECT TOP (@MaxRows) o."Seq" FROM "{{schema}}"."{{operations}}" o WITH (UPDLOCK, READPAST, ROWLOCK) WHERE o."State" = 0 AND o."UpdatedAt" <= @Until ORDER BY o."UpdatedAt", o."Seq");
    IF @Actor IS NOT NULL AND EXISTS (SELECT 1 FROM @Hit)
    BEGIN
        DECLARE @Count INT = (SELECT COUNT(*) FROM @Hit);
        DECLARE @Items NVARCHAR(MAX) = (SELECT TOP (20) LOWER(CAST(h."Id" AS NVARCHAR(36))) AS "id", h."Name" AS "name", N'running' AS "before.state", N'stalled' AS "after.state" FROM @Hit h FOR JSON PATH);
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'operation' AS kind, LOWER(CAST(h."Id" AS NVARCHAR(36))) AS value FROM @Hit h FOR JSON PATH);
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + @Items + N'}';
        EXEC "{{schema}}"."{{audit}}_Note" N'operation.mark_stalled', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT h."Id" AS operation_id FROM @Hit h;
END
GO
ALTER PROCEDURE "{{schema}}"."{{operations}}_Purge"
    @OlderThanSeconds FLOAT,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Until DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(SYSUTCDATETIME(), @OlderThanSeconds);
    DECLARE @Gone TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    IF @Own = 1 BEGIN TRANSACTION;
    DELETE FROM "{{schema}}"."{{operations}}"
    OUTPUT deleted."Id" INTO @Gone
     WHERE "EndedAt" IS NOT NULL AND "EndedAt" <= @Until
       AND "Seq" IN (SELECT TOP (@MaxRows) o."Seq" FROM "{{schema}}"."{{operations}}" o WITH (UPDLOCK, READPAST, ROWLOCK) WHERE o."EndedAt" IS NOT NULL AND o."EndedAt" <= @Until ORDER BY o."EndedAt", o."Seq");
    DECLARE @Purged INT = (SELECT COUNT(*) FROM @Gone);
    DELETE FROM "{{schema}}"."{{operations}}_tag" WHERE "OperationId" IN (SELECT g."Id" FROM @Gone g);
    DELETE FROM "{{schema}}"."{{operations}}_event" WHERE "OperationId" IN (SELECT g."Id" FROM @Gone g);
    IF @Actor IS NOT NULL AND @Purged > 0
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Purged AS NVARCHAR(20)) + N',"older_than_seconds":' + CAST(CAST(FLOOR(@OlderThanSeconds) AS BIGINT) AS NVARCHAR(20)) + N'}';
        EXEC "{{schema}}"."{{audit}}_Note" N'operation.purge', @Actor, @ActorCorrelationId, @Data, NULL;
    END
    IF @Own = 1 COMMIT;
    SELECT @Purged AS purged;
END
GO
