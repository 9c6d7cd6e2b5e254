-- Registering fan-outs and changing how they are planned. Expressions and zones are not read here but by a coordinator.
--
-- Locks: the policy's row, and where there is none the place it would have.

-- Internal: records what was done to a fan-out, and to shards of it.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Note"
    @What NVARCHAR(510),
    @Actor NVARCHAR(510),
    @ActorCorrelationId NVARCHAR(510),
    @Data NVARCHAR(MAX),
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    -- A list of texts, with NCHAR(31) between them.
    @Shards NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Anchors NVARCHAR(MAX) = (
        SELECT x.kind AS kind, "{{schema}}"."{{outbox}}_listed"(x.value) AS value
          FROM (SELECT N'fanout' AS kind, CAST(@Topic + N':' + @WorkKey AS NVARCHAR(MAX)) AS value
                UNION ALL SELECT N'shard', CAST(@Topic + N':' + @WorkKey + N':' + s."value" AS NVARCHAR(MAX)) FROM STRING_SPLIT(@Shards COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) s WHERE @Shards IS NOT NULL) x FOR JSON PATH);
    EXEC "{{schema}}"."{{audit}}_Note" @What, @Actor, @ActorCorrelationId, @Data, @Anchors;
END
GO
ALTER PROCEDURE "{{schema}}"."{{fanout}}_List"
    @Topic NVARCHAR(200) = NULL,
    @WorkKey NVARCHAR(200) = NULL,
    @AfterTopic NVARCHAR(200) = NULL,
    @AfterWorkKey NVARCHAR(200) = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    SELECT TOP (@MaxRows) p."Topic" AS topic, p."WorkKey" AS work_key, p."EverySeconds" AS every_seconds, p."JitterSeconds" AS jitter_seconds, p."Cron" AS cron, p."TimeZone" AS time_zone,
           p."Enabled" AS enabled, p."Version" AS version, p."LastRunAt" AS last_run_at, p."RunRequestedAt" AS run_requested_at, p."SinceAt" AS since_at, p."CreatedAt" AS created_at,
           p."UpdatedAt" AS updated_at, SYSUTCDATETIME() AS now
      FROM "{{schema}}"."{{fanout}}" p
     WHERE (@Topic IS NULL OR (p."Topic" = @Topic AND p."WorkKey" = @WorkKey))
       AND (@AfterTopic IS NULL OR p."Topic" > @AfterTopic OR (p."Topic" = @AfterTopic AND p."WorkKey" > @AfterWorkKey))
     ORDER BY p."Topic", p."WorkKey";
END
GO
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Version"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200)
AS
BEGIN
    SET NOCOUNT ON;
    SELECT p."Version" AS version FROM "{{schema}}"."{{fanout}}" p WHERE p."Topic" = @Topic AND p."WorkKey" = @WorkKey;
END
GO
-- Registers a fan-out. One that is there changes only if other values are registered than the last time.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Register"
    @Topic NVARCHAR(MAX),
    @WorkKey NVARCHAR(MAX),
    @EverySeconds INT = 0,
    @JitterSeconds INT = 0,
    @Cron NVARCHAR(MAX) = NULL,
    @TimeZone NVARCHAR(MAX) = N'UTC',
    @Enabled BIT = 1,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = "{{schema}}"."{{fanout}}_wrong"(@Topic, @WorkKey, @EverySeconds, @JitterSeconds, @Cron, @TimeZone, @Enabled);
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'fanout_register: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Declared NVARCHAR(MAX) = CAST(@EverySeconds AS NVARCHAR(20)) + NCHAR(31) + CAST(@JitterSeconds AS NVARCHAR(20)) + NCHAR(31) + COALESCE(N'=' + @Cron, N'') + NCHAR(31) + @TimeZone + NCHAR(31)
        + CAST(@Enabled AS NVARCHAR(5));
    DECLARE @Now DATETIME2(6), @Found BIT, @Changed BIT, @Was NVARCHAR(MAX);
    IF @Own = 1 BEGIN TRANSACTION;
    UPDATE "{{schema}}"."{{fanout}}" WITH (UPDLOCK, HOLDLOCK) SET "Version" = "Version" WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
    SET @Found = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    SET @Now = SYSUTCDATETIME();
    IF @Found = 1
    BEGIN
        SET @Was = "{{schema}}"."{{fanout}}_told"(@Topic, @WorkKey);
        -- Registered with the same values as the last time, as every start of a program does, it stays untouched.
        UPDATE "{{schema}}"."{{fanout}}"
           SET "EverySeconds" = @EverySeconds, "JitterSeconds" = @JitterSeconds, "Cron" = @Cron, "TimeZone" = @TimeZone, "Enabled" = @Enabled, "Declared" = @Declared, "Version" = "Version" + 1,
               "UpdatedAt" = @Now,
               "SinceAt" = CASE WHEN "Enabled" = 1 AND @Enabled = 1 AND (COALESCE("Cron", N'') + NCHAR(31) + "TimeZone" + N'.') COLLATE Latin1_General_BIN2
                                     = (COALESCE(@Cron, N'') + NCHAR(31) + @TimeZone + N'.') COLLATE Latin1_General_BIN2 THEN "SinceAt" ELSE @Now END,
               -- Of a clock that was ahead.
               "LastRunAt" = CASE WHEN "LastRunAt" <= @Now THEN "LastRunAt" END
         WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey AND "Declared" COLLATE Latin1_General_BIN2 <> @Declared COLLATE Latin1_General_BIN2;
        SET @Changed = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    END
    ELSE
    BEGIN
        INSERT INTO "{{schema}}"."{{fanout}}" ("Topic", "WorkKey", "EverySeconds", "JitterSeconds", "Cron", "TimeZone", "Enabled", "Version", "CreatedAt", "UpdatedAt", "SinceAt", "Declared")
        VALUES (@Topic, @WorkKey, @EverySeconds, @JitterSeconds, @Cron, @TimeZone, @Enabled, 1, @Now, @Now, @Now, @Declared);
        SET @Changed = 1;
    END
    IF @Changed = 1
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = N'{"before":' + COALESCE(@Was, N'null') + N',"after":' + "{{schema}}"."{{fanout}}_told"(@Topic, @WorkKey) + N'}';
        EXEC "{{schema}}"."{{fanout}}_Note" N'fanout.register', @Actor, @ActorCorrelationId, @Data, @Topic, @WorkKey;
    END
    IF @Own = 1 COMMIT;
    EXEC "{{schema}}"."{{fanout}}_List" @Topic, @WorkKey;
END
GO
-- Changes how a fan-out is planned; null leaves things as they are, an empty cron takes the expression away. No row: there is no such fan-out, or it is of another
-- version than expected.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Set"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @EverySeconds INT = NULL,
    @JitterSeconds INT = NULL,
    @Cron NVARCHAR(MAX) = NULL,
    @TimeZone NVARCHAR(MAX) = NULL,
    @Enabled BIT = NULL,
    @ExpectedVersion BIGINT = NULL,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Was NVARCHAR(MAX), @Complaint NVARCHAR(300), @Found INT;
    IF @Own = 1 BEGIN TRANSACTION;
    UPDATE "{{schema}}"."{{fanout}}" SET "Version" = "Version" WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey AND (@ExpectedVersion IS NULL OR "Version" = @ExpectedVersion);
    SET @Found = @@ROWCOUNT;
    IF @Found > 0
    BEGIN
        SET @Now = SYSUTCDATETIME();
        SET @Was = "{{schema}}"."{{fanout}}_told"(@Topic, @WorkKey);
        SELECT @EverySeconds = COALESCE(@EverySeconds, p."EverySeconds"), @JitterSeconds = COALESCE(@JitterSeconds, p."JitterSeconds"), @Cron = NULLIF(COALESCE(@Cron, p."Cron"), N''),
               @TimeZone = COALESCE(@TimeZone, p."TimeZone"), @Enabled = COALESCE(@Enabled, p."Enabled")
          FROM "{{schema}}"."{{fanout}}" p WHERE p."Topic" = @Topic AND p."WorkKey" = @WorkKey;
        SET @Complaint = N'fanout_set: ' + "{{schema}}"."{{fanout}}_wrong"(@Topic, @WorkKey, @EverySeconds, @JitterSeconds, @Cron, @TimeZone, @Enabled);
        IF @Complaint IS NOT NULL
            THROW 50001, @Complaint, 1;
        UPDATE "{{schema}}"."{{fanout}}"
           SET "EverySeconds" = @EverySeconds, "JitterSeconds" = @JitterSeconds, "Cron" = @Cron, "TimeZone" = @TimeZone, "Enabled" = @Enabled, "Version" = "Version" + 1, "UpdatedAt" = @Now,
               "SinceAt" = CASE WHEN "Enabled" = 1 AND @Enabled = 1 AND (COALESCE("Cron", N'') + NCHAR(31) + "TimeZone" + N'.') COLLATE Latin1_General_BIN2
                                     = (COALESCE(@Cron, N'') + NCHAR(31) + @TimeZone + N'.') COLLATE Latin1_General_BIN2 THEN "SinceAt" ELSE @Now END,
               -- Of a clock that was ahead.
               "LastRunAt" = CASE WHEN "LastRunAt" <= @Now THEN "LastRunAt" END
         WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey
           AND ("EverySeconds" <> @EverySeconds OR "JitterSeconds" <> @JitterSeconds OR "Enabled" <> @Enabled
                OR (COALESCE("Cron", N'') + NCHAR(31) + "TimeZone" + N'.') COLLATE Latin1_General_BIN2 <> (COALESCE(@Cron, N'') + NCHAR(31) + @TimeZone + N'.') COLLATE Latin1_General_BIN2);
        IF @@ROWCOUNT > 0
        BEGIN
            DECLARE @Data NVARCHAR(MAX) = N'{"before":' + @Was + N',"after":' + "{{schema}}"."{{fanout}}_told"(@Topic, @WorkKey) + N'}';
            EXEC "{{schema}}"."{{fanout}}_Note" N'fanout.set', @Actor, @ActorCorrelationId, @Data, @Topic, @WorkKey;
        END
    END
    IF @Own = 1 COMMIT;
    IF @Found > 0
        EXEC "{{schema}}"."{{fanout}}_List" @Topic, @WorkKey;
END
GO
-- Asks for a run now: a slice of every shard that has none in flight. A coordinator makes it.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Run"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Was DATETIME2(6), @Found INT;
    IF @Own = 1 BEGIN TRANSACTION;
    UPDATE "{{schema}}"."{{fanout}}" SET "Version" = "Version" + 1 WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
    SET @Found = @@ROWCOUNT;
    IF @Found > 0
    BEGIN
        SET @Now = SYSUTCDATETIME();
        SET @Was = (SELECT p."RunRequestedAt" FROM "{{schema}}"."{{fanout}}" p WHERE p."Topic" = @Topic AND p."WorkKey" = @WorkKey);
        UPDATE "{{schema}}"."{{fanout}}" SET "RunRequestedAt" = @Now WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey;
        DECLARE @Data NVARCHAR(MAX) = N'{"before":{"run_requested_at":' + COALESCE(N'"' + REPLACE(CONVERT(NVARCHAR(30), @Was, 126), N' ', N'T') + N'Z"', N'null')
            + N'},"after":{"run_requested_at":"' + REPLACE(CONVERT(NVARCHAR(30), @Now, 126), N' ', N'T') + N'Z"}}';
        EXEC "{{schema}}"."{{fanout}}_Note" N'fanout.run', @Actor, @ActorCorrelationId, @Data, @Topic, @WorkKey;
    END
    IF @Own = 1 COMMIT;
    SELECT CASE WHEN @Found > 0 THEN 1 ELSE 0 END AS requested;
END
GO
-- For Mainstay itself: notes a run as made.
ALTER PROCEDURE "{{schema}}"."{{fanout}}_Ran"
    @Topic NVARCHAR(200),
    @WorkKey NVARCHAR(200),
    @Version BIGINT,
    @Nominal DATETIME2(6),
    @Requested DATETIME2(6) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    UPDATE "{{schema}}"."{{fanout}}"
       -- What is still to come was noted by a clock that has been set back since.
       SET "LastRunAt" = CASE WHEN "LastRunAt" IS NULL OR "LastRunAt" > @Now OR "LastRunAt" < @Nominal THEN @Nominal ELSE "LastRunAt" END,
           "SinceAt" = CASE WHEN "SinceAt" > @Now THEN @Now ELSE "SinceAt" END,
           "RunRequestedAt" = CASE WHEN "RunRequestedAt" = @Requested THEN NULL ELSE "RunRequestedAt" END
     WHERE "Topic" = @Topic AND "WorkKey" = @WorkKey AND "Version" = @Version;
END
GO
