-- Making runs: of the occurrences that have come, and on demand. A run is a row in the ledger and one in the queue, made in the transaction that moves the job
-- on, so whoever dies midway has made none, and of several schedulers one makes it.
--
-- Locks: the job's row; then the new rows' own. A scheduler passes a job that somebody has locked, whoever asks for a run waits for it.

-- For Mainstay itself: enabled jobs whose next nominal time has come or is to be calculated, after this one in order of time and name. From the start also those
-- that a scheduler had a problem with: another may have none.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_DueJobs"
    @AfterAt DATETIME2(6) = NULL,
    @AfterName NVARCHAR(510) = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT TOP (@MaxRows) j."Name" AS name, j."Topic" AS topic, N'' AS payload, j."Cron" AS cron, j."TimeZone" AS time_zone, j."Enabled" AS enabled, j."Misfire" AS misfire,
           j."MisfireCap" AS misfire_cap, j."MisfireWindowSeconds" AS misfire_window_seconds, j."Overlap" AS overlap, j."JitterSeconds" AS jitter_seconds, j."Priority" AS priority,
           j."Version" AS version, j."CreatedAt" AS created_at, j."UpdatedAt" AS updated_at, j."NextNominalAt" AS next_nominal_at, j."LastNominalAt" AS last_nominal_at, j."Problem" AS problem,
           @Now AS now
      FROM "{{schema}}"."{{jobs}}" j
     WHERE j."Enabled" = 1 AND j."Problem" IS NULL AND (j."NextNominalAt" IS NULL OR j."NextNominalAt" <= @Now)
       AND (@AfterName IS NULL
            OR (@AfterAt IS NULL AND (j."NextNominalAt" IS NOT NULL OR j."Name" > @AfterName))
            OR j."NextNominalAt" > @AfterAt OR (j."NextNominalAt" = @AfterAt AND j."Name" > @AfterName))
     ORDER BY CASE WHEN j."NextNominalAt" IS NULL THEN 0 ELSE 1 END, j."NextNominalAt", j."Name";
    -- In no order: should there be more than one look takes, each has its turn.
    IF @AfterName IS NULL
        SELECT TOP (@MaxRows) j."Name" AS name, j."Topic" AS topic, N'' AS payload, j."Cron" AS cron, j."TimeZone" AS time_zone, j."Enabled" AS enabled, j."Misfire" AS misfire,
               j."MisfireCap" AS misfire_cap, j."MisfireWindowSeconds" AS misfire_window_seconds, j."Overlap" AS overlap, j."JitterSeconds" AS jitter_seconds, j."Priority" AS priority,
               j."Version" AS version, j."CreatedAt" AS created_at, j."UpdatedAt" AS updated_at, j."NextNominalAt" AS next_nominal_at, j."LastNominalAt" AS last_nominal_at, j."Problem" AS problem,
               @Now AS now
          FROM "{{schema}}"."{{jobs}}" j
         WHERE j."Enabled" = 1 AND j."Problem" IS NOT NULL
         ORDER BY NEWID();
END
GO
-- Internal: makes runs of a job for these occurrences, unless they are there, or notes that they were skipped. The caller has the job's row locked.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_MakeRuns"
    @Name NVARCHAR(510),
    @Trigger NVARCHAR(10),
    -- A list of objects: id, nominal, due. The ids are new.
    @Occurrences NVARCHAR(MAX),
    -- Answers nothing, for those who have an answer of their own.
    @Silent BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Topic NVARCHAR(510), @Payload NVARCHAR(MAX), @Overlap TINYINT, @Priority SMALLINT, @Lane NVARCHAR(510), @UnderWay BIT = 0;
    SELECT @Topic = j."Topic", @Payload = j."Payload", @Overlap = j."Overlap", @Priority = j."Priority" FROM "{{schema}}"."{{jobs}}" j WHERE j."Name" = @Name;
    -- One at a time, in order. An ordering key has 255 characters, and some names leave it no room.
    IF @Overlap = 2
        SET @Lane = N'job:' + CASE WHEN "{{schema}}"."{{outbox}}_exceeds"(@Name, 251) = 0 THEN @Name
            ELSE CAST(CAST(SUBSTRING(HASHBYTES('SHA2_256', @Name), 1, 8) AS BIGINT) AS NVARCHAR(20)) + N':' + CAST(CAST(SUBSTRING(HASHBYTES('SHA2_256', @Name), 9, 8) AS BIGINT) AS NVARCHAR(20)) END;
    -- Not by the ledger alone: what has ended without having been collected is not in the way, and what is open is, whatever the ledger says of the newest
    -- runs. Nobody is waited for: a message that is being settled by somebody who has not committed yet is open still.
    IF @Overlap = 1 AND EXISTS (
        SELECT 1
          FROM (SELECT l."Id" FROM "{{schema}}"."{{jobs}}_ledger" l WITH (NOLOCK) WHERE l."Job" = @Name AND l."Outcome" IS NULL
                UNION
                SELECT n."Id" FROM (SELECT TOP (100) l."Id" FROM "{{schema}}"."{{jobs}}_ledger" l WITH (NOLOCK) WHERE l."Job" = @Name ORDER BY l."NominalAt" DESC) n) r
         WHERE EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) WHERE o."Id" = r."Id")
            OR EXISTS (SELECT 1 FROM "{{schema}}"."{{job_runs}}" q WITH (NOLOCK) WHERE q."Id" = r."Id")
            OR (EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" h WITH (NOLOCK) WHERE h."Id" = r."Id")
                AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" h WITH (READCOMMITTEDLOCK, READPAST) WHERE h."Id" = r."Id")))
        SET @UnderWay = 1;
    INSERT INTO "{{schema}}"."{{jobs}}_ledger" ("Id", "Job", "Trigger", "NominalAt", "DueAt", "CreatedAt", "Attempts", "Outcome", "EndedAt", "Error")
    SELECT x.id, @Name, @Trigger, x.nominal, x.due, @Now, 0, CASE x."Skipped" WHEN 1 THEN 3 END, CASE x."Skipped" WHEN 1 THEN @Now END, CASE x."Skipped" WHEN 1 THEN N'an earlier run was not over' END
      FROM (SELECT o.id, o.nominal, o.due, CASE WHEN @UnderWay = 1 OR (@Overlap = 1 AND ROW_NUMBER() OVER (ORDER BY o.nominal) > 1) THEN 1 ELSE 0 END AS "Skipped"
              FROM OPENJSON(@Occurrences) WITH (id UNIQUEIDENTIFIER '$.id', nominal DATETIME2(6) '$.nominal', due DATETIME2(6) '$.due') o
             WHERE NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{jobs}}_ledger" l WHERE l."Job" = @Name AND l."NominalAt" = o.nominal)) x
     ORDER BY x.nominal;
    INSERT INTO "{{schema}}"."{{job_runs}}" ("Id", "MessageId", "Topic", "Payload", "CreatedAt", "DueAt", "RequestedDueAt", "Priority", "OrderingKey", "CorrelationId", "Headers")
    SELECT l."Id", l."Id", @Topic, @Payload, @Now, CASE WHEN l."DueAt" > @Now THEN l."DueAt" ELSE @Now END, l."DueAt", @Priority, @Lane, N'job-run-' + LOWER(CAST(l."Id" AS NVARCHAR(36))),
           (SELECT @Name AS "mainstay-job", LOWER(CAST(l."Id" AS NVARCHAR(36))) AS "mainstay-run", @Trigger AS "mainstay-trigger",
                   REPLACE(CONVERT(NVARCHAR(30), l."NominalAt", 126), N' ', N'T') + N'Z' AS "mainstay-nominal" FOR JSON PATH, WITHOUT_ARRAY_WRAPPER)
      FROM "{{schema}}"."{{jobs}}_ledger" l
     WHERE l."Outcome" IS NULL AND l."Id" IN (SELECT o.id FROM OPENJSON(@Occurrences) WITH (id UNIQUEIDENTIFIER '$.id') o)
     ORDER BY l."NominalAt";
    IF @Silent = 0
        SELECT l."Id" AS id, l."NominalAt" AS nominal_at, CASE l."Outcome" WHEN 3 THEN 1 ELSE 0 END AS skipped
          FROM "{{schema}}"."{{jobs}}_ledger" l
         WHERE l."Id" IN (SELECT o.id FROM OPENJSON(@Occurrences) WITH (id UNIQUEIDENTIFIER '$.id') o)
         ORDER BY l."NominalAt";
END
GO
-- For Mainstay itself: makes the runs of a job's due occurrences and moves it on to its next one, unless it has changed meanwhile or somebody has it locked.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Advance"
    @Name NVARCHAR(510),
    @Version BIGINT,
    @NextAt DATETIME2(6),
    @ExpectedAt DATETIME2(6) = NULL,
    @LastAt DATETIME2(6) = NULL,
    -- A list of objects: id, nominal, due.
    @Occurrences NVARCHAR(MAX) = N'[]'
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Advanced INT;
    IF @Own = 1 BEGIN TRANSACTION;
    -- Nobody waits here for whoever has the job locked: there are other jobs. And whoever planned with what is no longer so has planned for nothing.
    UPDATE "{{schema}}"."{{jobs}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "NextNominalAt" = @NextAt, "LastNominalAt" = COALESCE(@LastAt, "LastNominalAt"), "Problem" = NULL
     WHERE "Name" = @Name AND "Version" = @Version AND "Enabled" = 1
       AND ("NextNominalAt" = @ExpectedAt OR ("NextNominalAt" IS NULL AND @ExpectedAt IS NULL));
    SET @Advanced = @@ROWCOUNT;
    IF @Advanced > 0
        EXEC "{{schema}}"."{{jobs}}_MakeRuns" @Name, N'cron', @Occurrences;
    IF @Own = 1 COMMIT;
    SELECT @Advanced AS advanced;
END
GO
-- For Mainstay itself: notes why a scheduler can't work with a job. Advice to people, and to schedulers not to wait for it; one that can read the job takes it back.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Reject"
    @Name NVARCHAR(510),
    @Version BIGINT,
    @Problem NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    UPDATE "{{schema}}"."{{jobs}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "Problem" = LEFT(@Problem, 2048) WHERE "Name" = @Name AND "Version" = @Version AND "Problem" IS NULL;
    SELECT @@ROWCOUNT AS rejected;
END
GO
-- Makes a run of a job now, whether the job is enabled or not. With overlap skip it is recorded as skipped while an earlier one is not over.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Trigger"
    @Name NVARCHAR(510),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    @Id UNIQUEIDENTIFIER = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6), @Nominal DATETIME2(6), @State NVARCHAR(20);
    SET @Id = COALESCE(@Id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()));
    IF @Own = 1 BEGIN TRANSACTION;
    -- Locked as a scheduler does it, so that two who come together see each other's runs.
    UPDATE "{{schema}}"."{{jobs}}" SET "Version" = "Version" WHERE "Name" = @Name;
    IF @@ROWCOUNT = 0
        EXEC "{{schema}}"."{{jobs}}_Unknown" N'trigger', @Name;
    SET @Now = SYSUTCDATETIME();
    SET @Nominal = @Now;
    -- Never on a whole second: occurrences are, and must not find their place taken. It is due all the same.
    WHILE DATEPART(MICROSECOND, @Nominal) = 0 OR EXISTS (SELECT 1 FROM "{{schema}}"."{{jobs}}_ledger" l WHERE l."Job" = @Name AND l."NominalAt" = @Nominal)
        SET @Nominal = DATEADD(MICROSECOND, 1, @Nominal);
    DECLARE @Occurrences NVARCHAR(MAX) = N'[{"id":"' + CAST(@Id AS NVARCHAR(36)) + N'","nominal":"' + REPLACE(CONVERT(NVARCHAR(30), @Nominal, 126), N' ', N'T')
        + N'","due":"' + REPLACE(CONVERT(NVARCHAR(30), @Now, 126), N' ', N'T') + N'"}]';
    EXEC "{{schema}}"."{{jobs}}_MakeRuns" @Name, N'manual', @Occurrences, 1;
    SET @State = (SELECT r."State" FROM "{{schema}}"."{{jobs}}_run" r WHERE r."Id" = @Id);
    DECLARE @Data NVARCHAR(MAX) = N'{"before":null,"after":{"run":"' + LOWER(CAST(@Id AS NVARCHAR(36))) + N'","nominal_at":"' + REPLACE(CONVERT(NVARCHAR(30), @Nominal, 126), N' ', N'T')
        + N'Z","state":"' + @State + N'"}}';
    EXEC "{{schema}}"."{{jobs}}_Note" N'job.trigger', @Actor, @ActorCorrelationId, @Data, @Name, @Id;
    EXEC "{{schema}}"."{{jobs}}_Runs" @Id;
    IF @Own = 1 COMMIT;
END
GO
