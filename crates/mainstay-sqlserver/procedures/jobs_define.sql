-- Registering jobs and changing them. Expressions and zones are not read here but by a scheduler, which also calculates the next nominal time: one that is
-- null is calculated as from the last change of the definition, so a job may be registered from any language, also while no scheduler is running.
--
-- Locks: the job's row, and where there is none the place it would have, so that of two who register it the second waits and then changes the first one's.

ALTER PROCEDURE "{{schema}}"."{{jobs}}_CreateOrUpdate"
    @Name NVARCHAR(MAX),
    @Topic NVARCHAR(MAX),
    @Cron NVARCHAR(MAX),
    @Payload NVARCHAR(MAX) = N'',
    @TimeZone NVARCHAR(MAX) = N'UTC',
    -- Null leaves it as it is; a new job is enabled.
    @Enabled BIT = NULL,
    @Misfire NVARCHAR(10) = N'once',
    @MisfireCap INT = NULL,
    @MisfireWindowSeconds INT = NULL,
    @Overlap NVARCHAR(10) = N'allow',
    @JitterSeconds INT = 0,
    @Priority INT = 0,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    -- The version the job must have, 0 if it must not exist, null whatever is there. Anything else is an error (50009), and nothing is written.
    @ExpectedVersion BIGINT = NULL,
    -- And when that one was registered: versions begin anew with a new job.
    @ExpectedCreatedAt DATETIME2(6) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Name IS NULL OR DATALENGTH(@Name) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Name, 255) = 1 THEN N'name must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Name)
        WHEN @Topic IS NULL OR DATALENGTH(@Topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Topic, 255) = 1 THEN N'topic must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Topic)
        WHEN @Cron IS NULL OR DATALENGTH(@Cron) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Cron, 1000) = 1 THEN N'cron must be 1 to 1000 characters' + "{{schema}}"."{{outbox}}_got"(@Cron)
        WHEN @Payload IS NULL THEN N'payload must not be null (an empty text is fine)'
        WHEN @TimeZone IS NULL OR DATALENGTH(@TimeZone) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@TimeZone, 255) = 1 THEN N'time_zone must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@TimeZone)
        WHEN @Misfire IS NULL OR @Misfire NOT IN (N'skip', N'once', N'all') THEN N'misfire must be skip, once or all'
        WHEN @Misfire <> N'all' AND (@MisfireCap IS NOT NULL OR @MisfireWindowSeconds IS NOT NULL) THEN N'misfire_cap and misfire_window_seconds belong to the misfire policy all'
        WHEN @Misfire = N'all' AND (@MisfireCap IS NULL OR @MisfireCap NOT BETWEEN 1 AND 1000) THEN N'misfire_cap must be 1 to 1000'
        WHEN @Misfire = N'all' AND (@MisfireWindowSeconds IS NULL OR @MisfireWindowSeconds NOT BETWEEN 1 AND 31622400) THEN N'misfire_window_seconds must be 1 to 31622400'
        WHEN @Overlap IS NULL OR @Overlap NOT IN (N'allow', N'skip', N'queue') THEN N'overlap must be allow, skip or queue'
        WHEN @JitterSeconds IS NULL OR @JitterSeconds NOT BETWEEN 0 AND 86400 THEN N'jitter_seconds must be 0 to 86400'
        WHEN @Priority IS NULL OR @Priority NOT BETWEEN -9 AND 9 THEN N'priority must be -9 to 9'
        WHEN @ExpectedVersion < 0 THEN N'expected_version must not be negative'
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'jobs_create_or_update: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @NewMisfire TINYINT = CASE @Misfire WHEN N'skip' THEN 0 WHEN N'once' THEN 1 ELSE 2 END;
    DECLARE @NewOverlap TINYINT = CASE @Overlap WHEN N'allow' THEN 0 WHEN N'skip' THEN 1 ELSE 2 END;
    DECLARE @Found BIT, @Changed BIT = 0, @Now DATETIME2(6), @Was NVARCHAR(MAX), @Became NVARCHAR(MAX), @PayloadWas NVARCHAR(MAX);
    IF @Own = 1 BEGIN TRANSACTION;
    UPDATE "{{schema}}"."{{jobs}}" WITH (UPDLOCK, HOLDLOCK) SET "Version" = "Version" WHERE "Name" = @Name;
    SET @Found = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    SET @Now = SYSUTCDATETIME();
    -- The row, or the place it would have, is locked: what is compared here is what is written over.
    IF @ExpectedVersion IS NOT NULL AND @ExpectedVersion <> COALESCE((
        SELECT j."Version" FROM "{{schema}}"."{{jobs}}" j WHERE j."Name" = @Name AND (@ExpectedCreatedAt IS NULL OR j."CreatedAt" = @ExpectedCreatedAt)), CASE WHEN @Found = 1 THEN -1 ELSE 0 END)
    BEGIN
        SET @Complaint = N'jobs_create_or_update: the job "' + REPLACE(LEFT(@Name, 100), N'%', N'%%') + N'" is not as it was expected: '
            + CASE WHEN @ExpectedVersion = 0 THEN N'no such job' ELSE N'version ' + CAST(@ExpectedVersion AS NVARCHAR(20)) END + N' was expected, and '
            + COALESCE((SELECT N'it is of version ' + CAST(j."Version" AS NVARCHAR(20)) FROM "{{schema}}"."{{jobs}}" j WHERE j."Name" = @Name), N'there is no such job')
            + N'; read it again and decide anew';
        IF @Own = 1 ROLLBACK;
        THROW 50009, @Complaint, 1;
    END
    IF @Found = 1
    BEGIN
        SELECT @PayloadWas = j."Payload" FROM "{{schema}}"."{{jobs}}" j WHERE j."Name" = @Name;
        SET @Was = "{{schema}}"."{{jobs}}_told"(@Name);
        -- Registered as it is already, as every start of a program does, it stays untouched. Texts are compared with something behind each: a comparison
        -- passes over blanks at the end.
        UPDATE "{{schema}}"."{{jobs}}"
           SET "Topic" = @Topic, "Cron" = @Cron, "Payload" = @Payload, "TimeZone" = @TimeZone, "Enabled" = COALESCE(@Enabled, "Enabled"),
               "Misfire" = @NewMisfire, "MisfireCap" = @MisfireCap, "MisfireWindowSeconds" = @MisfireWindowSeconds, "Overlap" = @NewOverlap,
               "JitterSeconds" = @JitterSeconds, "Priority" = @Priority, "Version" = "Version" + 1, "UpdatedAt" = @Now, "Problem" = NULL,
               -- What was promised stays promised, unless it is another schedule now, or was none.
               "NextNominalAt" = CASE WHEN "Enabled" = 1 AND COALESCE(@Enabled, 1) = 1
                                       AND ("Cron" + NCHAR(31) + "TimeZone" + N'.') COLLATE Latin1_General_BIN2 = (@Cron + NCHAR(31) + @TimeZone + N'.') COLLATE Latin1_General_BIN2
                                      THEN "NextNominalAt" END
         WHERE "Name" = @Name
           AND ("Problem" IS NOT NULL OR "Enabled" <> COALESCE(@Enabled, "Enabled") OR "Misfire" <> @NewMisfire OR COALESCE("MisfireCap", 0) <> COALESCE(@MisfireCap, 0)
                OR COALESCE("MisfireWindowSeconds", 0) <> COALESCE(@MisfireWindowSeconds, 0) OR "Overlap" <> @NewOverlap OR "JitterSeconds" <> @JitterSeconds OR "Priority" <> @Priority
                OR ("Topic" + NCHAR(31) + "Cron" COLLATE Latin1_General_BIN2 + NCHAR(31) + "TimeZone" COLLATE Latin1_General_BIN2 + NCHAR(31) + "Payload" COLLATE Latin1_General_BIN2 + N'.')
                   <> (@Topic + NCHAR(31) + @Cron + NCHAR(31) + @TimeZone + NCHAR(31) + @Payload + N'.') COLLATE Latin1_General_BIN2);
        SET @Changed = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    END
    ELSE
    BEGIN
        INSERT INTO "{{schema}}"."{{jobs}}" (
            "Name", "Topic", "Cron", "Payload", "TimeZone", "Enabled", "Misfire", "MisfireCap", "MisfireWindowSeconds", "Overlap", "JitterSeconds", "Priority", "Version", "CreatedAt", "UpdatedAt")
        VALUES (@Name, @Topic, @Cron, @Payload, @TimeZone, COALESCE(@Enabled, 1), @NewMisfire, @MisfireCap, @MisfireWindowSeconds, @NewOverlap, @JitterSeconds, @Priority, 1, @Now, @Now);
        SET @Changed = 1;
    END
    IF @Changed = 1
    BEGIN
        SET @Became = "{{schema}}"."{{jobs}}_told"(@Name);
        DECLARE @Data NVARCHAR(MAX) = N'{"before":' + COALESCE(@Was, N'null') + N',"after":' + @Became + N',"payload_changed":'
            + CASE WHEN @PayloadWas IS NOT NULL AND (@PayloadWas + N'.') COLLATE Latin1_General_BIN2 = (@Payload + N'.') COLLATE Latin1_General_BIN2 THEN N'false' ELSE N'true' END + N'}';
        EXEC "{{schema}}"."{{jobs}}_Note" N'job.create_or_update', @Actor, @ActorCorrelationId, @Data, @Name;
    END
    DECLARE @Change NVARCHAR(10) = CASE WHEN @Changed = 0 THEN N'unchanged' WHEN @Found = 1 THEN N'updated' ELSE N'created' END;
    EXEC "{{schema}}"."{{jobs}}_List" @Name, NULL, 1, @Change;
    IF @Own = 1 COMMIT;
END
GO
-- Internal: records what was done to a job, and to a run of it.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Note"
    @What NVARCHAR(510),
    @Actor NVARCHAR(510),
    @ActorCorrelationId NVARCHAR(510),
    @Data NVARCHAR(MAX),
    @Name NVARCHAR(510),
    @Run UNIQUEIDENTIFIER = NULL
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Anchors NVARCHAR(MAX) = (
        SELECT x.kind AS kind, x.value AS value
          FROM (SELECT N'job' AS kind, "{{schema}}"."{{outbox}}_listed"(@Name) AS value
                UNION ALL SELECT N'run', LOWER(CAST(@Run AS NVARCHAR(36))) WHERE @Run IS NOT NULL) x FOR JSON PATH);
    EXEC "{{schema}}"."{{audit}}_Note" @What, @Actor, @ActorCorrelationId, @Data, @Anchors;
END
GO
ALTER PROCEDURE "{{schema}}"."{{jobs}}_SetEnabled"
    @Name NVARCHAR(510),
    @Enabled BIT,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @Enabled IS NULL
        THROW 50001, N'jobs_set_enabled: enabled must not be null', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Changed BIT;
    IF @Own = 1 BEGIN TRANSACTION;
    -- An enabled one goes on from now: what it missed while it was disabled does not run.
    UPDATE "{{schema}}"."{{jobs}}" SET "Enabled" = @Enabled, "Version" = "Version" + 1, "UpdatedAt" = SYSUTCDATETIME(), "NextNominalAt" = NULL, "Problem" = NULL
     WHERE "Name" = @Name AND "Enabled" <> @Enabled;
    SET @Changed = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    IF @Changed = 0 AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{jobs}}" j WHERE j."Name" = @Name)
        EXEC "{{schema}}"."{{jobs}}_Unknown" N'set_enabled', @Name;
    IF @Changed = 1
    BEGIN
        DECLARE @What NVARCHAR(20) = CASE @Enabled WHEN 1 THEN N'job.enable' ELSE N'job.disable' END;
        DECLARE @Data NVARCHAR(MAX) = CASE @Enabled WHEN 1 THEN N'{"before":{"enabled":false},"after":{"enabled":true}}' ELSE N'{"before":{"enabled":true},"after":{"enabled":false}}' END;
        EXEC "{{schema}}"."{{jobs}}_Note" @What, @Actor, @ActorCorrelationId, @Data, @Name;
    END
    IF @Own = 1 COMMIT;
    SELECT @Changed AS changed;
END
GO
-- Deletes a job and cancels its runs that are not dispatched, claimed or not. Those that are go on, and its history stays. Null if there is no such job.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Delete"
    @Name NVARCHAR(510),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Was NVARCHAR(MAX), @Cancelled INT, @Key NVARCHAR(510), @Now DATETIME2(6);
    DECLARE @Pending TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Endings "{{schema}}"."{{job_runs}}_ending";
    IF @Own = 1 BEGIN TRANSACTION;
    -- Whoever is making runs of it has the row locked; afterwards they are all there to be seen.
    UPDATE "{{schema}}"."{{jobs}}" SET "Version" = "Version" WHERE "Name" = @Name;
    IF @@ROWCOUNT > 0
    BEGIN
        SET @Was = "{{schema}}"."{{jobs}}_told"(@Name);
        DELETE FROM "{{schema}}"."{{jobs}}" WHERE "Name" = @Name;
        INSERT INTO @Pending ("Id")
        SELECT l."Id" FROM "{{schema}}"."{{jobs}}_ledger" l WITH (NOLOCK) WHERE l."Job" = @Name AND l."Outcome" IS NULL AND l."DispatchedAt" IS NULL;
        -- They have one ordering key at the most.
        SET @Key = (SELECT MAX(q."OrderingKey") FROM "{{schema}}"."{{job_runs}}" q WITH (NOLOCK) WHERE q."Id" IN (SELECT p."Id" FROM @Pending p));
        IF @Key IS NOT NULL
            EXEC "{{schema}}"."{{job_runs}}_Lock" @Key, 1;
        -- Also those that somebody has claimed: whoever has one finds that it is gone.
        UPDATE "{{schema}}"."{{job_runs}}" WITH (ROWLOCK) SET "Status" = 0, "OwnerToken" = NULL, "LockedUntil" = NULL, "Generation" = "Generation" + "Status"
         WHERE "Id" IN (SELECT p."Id" FROM @Pending p) OPTION (LOOP JOIN);
        INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
        SELECT q."Seq", 3, N'cancelled', N'cancelled', 0, 1, 0 FROM @Pending p JOIN "{{schema}}"."{{job_runs}}" q WITH (FORCESEEK) ON q."Id" = p."Id";
        SET @Now = SYSUTCDATETIME();
        EXEC "{{schema}}"."{{job_runs}}_Retire" @Endings, @Now;
        UPDATE "{{schema}}"."{{jobs}}_ledger" WITH (ROWLOCK) SET "Outcome" = 4, "EndedAt" = @Now, "Error" = N'the job was deleted'
         WHERE "Outcome" IS NULL AND "DispatchedAt" IS NULL AND "Id" IN (SELECT p."Id" FROM @Pending p) OPTION (LOOP JOIN);
        SET @Cancelled = @@ROWCOUNT;
        DECLARE @Data NVARCHAR(MAX) = N'{"before":' + @Was + N',"after":null,"cancelled_runs":' + CAST(@Cancelled AS NVARCHAR(20)) + N'}';
        EXEC "{{schema}}"."{{jobs}}_Note" N'job.delete', @Actor, @ActorCorrelationId, @Data, @Name;
    END
    IF @Own = 1 COMMIT;
    SELECT @Cancelled AS cancelled;
END
GO
-- Internal: says that there is no such job.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Unknown"
    @Caller NVARCHAR(100),
    @Name NVARCHAR(510)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Complaint NVARCHAR(1000) = N'jobs_' + @Caller + N': there is no job ' + COALESCE(N'"' + REPLACE(@Name, N'%', N'%%') + N'"', N'null');
    THROW 50002, @Complaint, 1;
END
GO
ALTER PROCEDURE "{{schema}}"."{{jobs}}_List"
    @Name NVARCHAR(510) = NULL,
    @After NVARCHAR(510) = NULL,
    @MaxRows INT = 100,
    -- What was just done to it, to be told with it.
    @Change NVARCHAR(10) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SELECT TOP (@MaxRows) @Change AS change, j."Name" AS name, j."Topic" AS topic, j."Payload" AS payload, j."Cron" AS cron, j."TimeZone" AS time_zone, j."Enabled" AS enabled, j."Misfire" AS misfire,
           j."MisfireCap" AS misfire_cap, j."MisfireWindowSeconds" AS misfire_window_seconds, j."Overlap" AS overlap, j."JitterSeconds" AS jitter_seconds, j."Priority" AS priority,
           j."Version" AS version, j."CreatedAt" AS created_at, j."UpdatedAt" AS updated_at, j."NextNominalAt" AS next_nominal_at, j."LastNominalAt" AS last_nominal_at, j."Problem" AS problem
      FROM "{{schema}}"."{{jobs}}" j
     WHERE (@Name IS NULL OR j."Name" = @Name) AND (@After IS NULL OR j."Name" > @After)
     ORDER BY j."Name";
END
GO
