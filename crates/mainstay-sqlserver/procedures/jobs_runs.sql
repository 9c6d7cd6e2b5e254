-- What becomes of runs: they are dispatched, they start, they end, and one day they are forgotten.
--
-- Locks: a dispatch has those of a forward, then the runs' rows in the ledger. Whoever collects takes rows of the ledger that nobody has, and then waits for
-- nobody. Whoever requeues or deletes a message that was a run's changes the ledger's row before the message leaves the history. So nobody has a row
-- of the ledger and waits for one of a queue that is waited for with the ledger's in hand.

-- Makes a message in the outbox of each run that is due, under the same id, and notes when. Call it until it returns fewer than the batch.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Dispatch"
    @OwnerToken UNIQUEIDENTIFIER,
    @BatchSize INT = 100,
    @KeepPayload BIT = 1
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    EXEC "{{schema}}"."{{job_runs}}_Forward" @OwnerToken, @BatchSize, @KeepPayload;
END
GO
-- Notes that a handler has begun with a run; the first time counts. For workers that are not the library's own too.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Started"
    @Id UNIQUEIDENTIFIER
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    UPDATE "{{schema}}"."{{jobs}}_ledger" SET "StartedAt" = SYSUTCDATETIME() WHERE "Id" = @Id AND "StartedAt" IS NULL;
    SELECT @@ROWCOUNT AS started;
END
GO
-- Keeps a text with a run, for people to read; the last one counts.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_RecordOutput"
    @Id UNIQUEIDENTIFIER,
    @Output NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF LEN(@Output + N'.') - 1 > 65536
        THROW 50001, N'jobs_record_output: output must be at most 65536 bytes', 1;
    UPDATE "{{schema}}"."{{jobs}}_ledger" SET "Output" = @Output WHERE "Id" = @Id;
    SELECT @@ROWCOUNT AS recorded;
END
GO
-- For Mainstay itself: looks at up to so many runs whose end is not noted, after this one, and returns those that are over; also the last it looked at, if there may be
-- more. Reads only, and waits for nobody: what it misses is there at the next look.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Ended"
    @AfterJob NVARCHAR(510) = NULL,
    @AfterId UNIQUEIDENTIFIER = NULL,
    @MaxRows INT = 500
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Seen TABLE ("N" INT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "Job" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "DispatchedAt" DATETIME2(6) NULL);
    INSERT INTO @Seen ("N", "Id", "Job", "DispatchedAt")
    SELECT ROW_NUMBER() OVER (ORDER BY x."Job", x."Id"), x."Id", x."Job", x."DispatchedAt"
      FROM (SELECT TOP (@MaxRows) l."Id", l."Job", l."DispatchedAt" FROM "{{schema}}"."{{jobs}}_ledger" l WITH (READCOMMITTEDLOCK, READPAST)
             WHERE l."Outcome" IS NULL AND (@AfterJob IS NULL OR l."Job" > @AfterJob OR (l."Job" = @AfterJob AND l."Id" > @AfterId))
             ORDER BY l."Job", l."Id") x;
    -- The message of a run has its id twice. Another one that has only taken the place says nothing of the run.
    SELECT y."Id" AS id, y."Job" AS job, y."Over" AS is_over, y."Last" AS is_last
      FROM (SELECT k."N", k."Id", k."Job", CASE WHEN k."N" = @MaxRows THEN 1 ELSE 0 END AS "Last",
                   CASE WHEN NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) WHERE o."Id" = k."Id" AND o."MessageId" = k."Id")
                         AND (k."DispatchedAt" IS NOT NULL
                              OR EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" h WITH (READCOMMITTEDLOCK, READPAST) WHERE h."Id" = k."Id" AND h."MessageId" = k."Id")
                              OR EXISTS (SELECT 1 FROM "{{schema}}"."{{job_runs}}_history" s WITH (READCOMMITTEDLOCK, READPAST) WHERE s."Id" = k."Id"))
                        THEN 1 ELSE 0 END AS "Over"
              FROM @Seen k) y
     WHERE y."Over" = 1 OR y."Last" = 1
     ORDER BY y."N";
END
GO
-- For Mainstay itself: notes the end of those of these runs that are over, and returns them. One that somebody else has locked, or whose message somebody is busy with,
-- is left to the next look.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Collect"
    -- A list of objects with an id.
    @Ids NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Mine TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, "DispatchedAt" DATETIME2(6) NULL);
    DECLARE @End TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, "Outcome" TINYINT NOT NULL, "EndedAt" DATETIME2(6) NOT NULL, "Attempts" INT NULL, "Error" NVARCHAR(MAX) NULL);
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Mine ("Id", "DispatchedAt")
    SELECT l."Id", l."DispatchedAt" FROM "{{schema}}"."{{jobs}}_ledger" l WITH (UPDLOCK, READPAST, ROWLOCK)
     WHERE l."Outcome" IS NULL AND l."Id" IN (SELECT i.id FROM OPENJSON(@Ids) WITH (id UNIQUEIDENTIFIER '$.id') i);
    -- A statement of its own, after the locks: what somebody has requeued before them is seen to be open. Whoever requeues it from now on waits for us, and
    -- then changes what we have written. What one sees who passes over no lock, and one who does so doesn't, somebody is busy with.
    INSERT INTO @End ("Id", "Outcome", "EndedAt", "Attempts", "Error")
    SELECT m."Id",
           CASE WHEN h."Status" = 2 THEN 1 WHEN h."Reason" = N'cancelled' THEN 4 WHEN h."Id" IS NOT NULL OR m."DispatchedAt" IS NOT NULL THEN 2
                WHEN s."Status" = 2 THEN 1 WHEN s."Reason" = N'cancelled' THEN 4 ELSE 2 END,
           COALESCE(h."ProcessedAt", CASE WHEN m."DispatchedAt" IS NULL THEN s."ProcessedAt" END, @Now), h."Attempts",
           CASE WHEN h."Id" IS NOT NULL THEN CASE h."Status" WHEN 3 THEN COALESCE(h."LastError" COLLATE Latin1_General_BIN2, h."Reason") END
                WHEN m."DispatchedAt" IS NOT NULL THEN N'its message is no longer in the outbox'
                WHEN s."Status" = 3 THEN COALESCE(s."LastError" COLLATE Latin1_General_BIN2, s."Reason") END
      FROM @Mine m
      LEFT JOIN "{{schema}}"."{{outbox}}_history" h WITH (READCOMMITTEDLOCK, READPAST) ON h."Id" = m."Id" AND h."MessageId" = m."Id"
      LEFT JOIN "{{schema}}"."{{job_runs}}_history" s WITH (READCOMMITTEDLOCK, READPAST) ON s."Id" = m."Id"
     WHERE (m."DispatchedAt" IS NOT NULL OR h."Id" IS NOT NULL OR s."Id" IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (NOLOCK) WHERE o."Id" = m."Id" AND o."MessageId" = m."Id")
       AND (h."Id" IS NOT NULL OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" b WITH (NOLOCK) WHERE b."Id" = m."Id" AND b."MessageId" = m."Id"));
    UPDATE l SET "Outcome" = e."Outcome", "EndedAt" = e."EndedAt", "Attempts" = COALESCE(e."Attempts", l."Attempts"), "Error" = e."Error"
      FROM "{{schema}}"."{{jobs}}_ledger" l WITH (ROWLOCK) JOIN @End e ON e."Id" = l."Id"
     WHERE l."Outcome" IS NULL OPTION (LOOP JOIN);
    IF @Own = 1 COMMIT;
    SELECT l."Id" AS id, l."Job" AS job, l."Outcome" AS outcome, DATEDIFF_BIG(MICROSECOND, l."StartedAt", l."EndedAt") AS ran
      FROM "{{schema}}"."{{jobs}}_ledger" l JOIN @End e ON e."Id" = l."Id" AND e."EndedAt" = l."EndedAt";
END
GO
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Runs"
    @Id UNIQUEIDENTIFIER = NULL,
    @Job NVARCHAR(510) = NULL,
    @State NVARCHAR(20) = NULL,
    @Trigger NVARCHAR(10) = NULL,
    -- The last run of the page before.
    @Before UNIQUEIDENTIFIER = NULL,
    @MaxRows INT = 100
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @LastAt DATETIME2(6) = (SELECT b."NominalAt" FROM "{{schema}}"."{{jobs}}_ledger" b WHERE b."Id" = @Before);
    SELECT TOP (@MaxRows) r."Id" AS id, r."Job" AS job, r."Trigger" AS triggered, r."NominalAt" AS nominal_at, r."DueAt" AS due_at, r."State" AS state, r."CreatedAt" AS created_at,
           r."DispatchedAt" AS dispatched_at, r."StartedAt" AS started_at, r."EndedAt" AS ended_at, r."Attempts" AS attempts, r."Error" AS error, r."Output" AS output
      FROM "{{schema}}"."{{jobs}}_run" r
     WHERE (@Id IS NULL OR r."Id" = @Id) AND (@Job IS NULL OR r."Job" = @Job) AND (@State IS NULL OR r."State" = @State) AND (@Trigger IS NULL OR r."Trigger" = @Trigger)
       AND (@Before IS NULL OR r."NominalAt" < @LastAt OR (r."NominalAt" = @LastAt AND r."Id" < @Before))
     ORDER BY r."NominalAt" DESC, r."Id" DESC;
END
GO
-- Forgets up to so many of the runs that ended longest ago, older than so many seconds; null keeps that kind. What is not over is never touched.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Purge"
    @DoneOlderThanSeconds FLOAT = NULL,
    @FailedOlderThanSeconds FLOAT = NULL,
    @MaxRows INT = 1000,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    IF @DoneOlderThanSeconds < 0 OR @DoneOlderThanSeconds > 10000000000 OR @FailedOlderThanSeconds < 0 OR @FailedOlderThanSeconds > 10000000000
        THROW 50001, N'jobs_purge: older_than_seconds must be 0 to 10000000000, or null to keep them', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Failed BIT = 0, @Turn INT = 1, @Age FLOAT, @Until DATETIME2(6), @Room INT = @MaxRows;
    DECLARE @Gone TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    IF @Own = 1 BEGIN TRANSACTION;
    WHILE @Turn <= 2
    BEGIN
        SET @Failed = @Turn - 1;
        SET @Age = CASE @Turn WHEN 1 THEN @DoneOlderThanSeconds ELSE @FailedOlderThanSeconds END;
        IF @Age IS NOT NULL AND @Room > 0
        BEGIN
            SET @Until = "{{schema}}"."{{outbox}}_before"(@Now, @Age);
            DELETE FROM "{{schema}}"."{{jobs}}_ledger"
            OUTPUT deleted."Id" INTO @Gone
             WHERE "Outcome" IS NOT NULL AND "EndedAt" <= @Until
               AND "Seq" IN (SELECT TOP (@Room) l."Seq" FROM "{{schema}}"."{{jobs}}_ledger" l WITH (UPDLOCK, READPAST, ROWLOCK)
                              WHERE l."Outcome" IS NOT NULL AND CASE WHEN l."Outcome" = 2 THEN 1 ELSE 0 END = @Failed AND l."EndedAt" <= @Until ORDER BY l."EndedAt", l."Seq");
            SET @Room = @Room - @@ROWCOUNT;
        END
        SET @Turn = @Turn + 1;
    END
    -- What the queue remembers of them goes too, unless somebody is requeueing it just now.
    DELETE FROM "{{schema}}"."{{job_runs}}_history" WHERE "Seq" IN (
        SELECT s."Seq" FROM "{{schema}}"."{{job_runs}}_history" s WITH (UPDLOCK, READPAST, ROWLOCK) WHERE s."Id" IN (SELECT g."Id" FROM @Gone g));
    DECLARE @Purged INT = @MaxRows - @Room;
    IF @Actor IS NOT NULL AND @Purged > 0
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = (
            SELECT @Purged AS "count", CAST(FLOOR(@DoneOlderThanSeconds) AS BIGINT) AS older_than_seconds, CAST(FLOOR(@FailedOlderThanSeconds) AS BIGINT) AS failed_older_than_seconds
               FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
        EXEC "{{schema}}"."{{audit}}_Note" N'job.purge', @Actor, @ActorCorrelationId, @Data, NULL;
    END
    IF @Own = 1 COMMIT;
    SELECT @Purged AS purged;
END
GO
