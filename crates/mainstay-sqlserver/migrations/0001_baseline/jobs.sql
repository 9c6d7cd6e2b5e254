-- Jobs: what is to be done by the clock, and a ledger of every run.
--
-- A run is first a row in the queue of runs, then a message in the outbox, both under the run's own id; the ledger has it under that id from its making
-- until retention. The ledger is not written when a message is claimed or settled: how a run ended is looked up where its message is. So jobs cost the
-- outbox nothing.

CREATE TABLE "{{schema}}"."{{jobs}}" (
    "Seq"                  BIGINT IDENTITY(1, 1) NOT NULL,
    "Name"                 NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Topic"                NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Cron"                 NVARCHAR(2000) NOT NULL,
    "TimeZone"             NVARCHAR(510) NOT NULL,
    "Enabled"              BIT NOT NULL,
    -- What becomes of late occurrences: 0 skip, 1 once, 2 all (with cap and window).
    "Misfire"              TINYINT NOT NULL,
    "MisfireCap"           INT NULL,
    "MisfireWindowSeconds" INT NULL,
    -- What happens while an earlier run is not over: 0 allow, 1 skip, 2 queue.
    "Overlap"              TINYINT NOT NULL,
    "JitterSeconds"        INT NOT NULL,
    "Priority"             SMALLINT NOT NULL,
    -- Grows with every change of the definition.
    "Version"              BIGINT NOT NULL,
    "CreatedAt"            DATETIME2(6) NOT NULL,
    "UpdatedAt"            DATETIME2(6) NOT NULL,
    -- The occurrence that is looked at next. Null while the job is disabled, and until a scheduler has calculated it.
    "NextNominalAt"        DATETIME2(6) NULL,
    -- The last occurrence that was looked at.
    "LastNominalAt"        DATETIME2(6) NULL,
    -- Why a scheduler can't work with it: expression or zone can't be read. A change of the definition clears it, and so does a scheduler that can.
    "Problem"              NVARCHAR(2048) NULL,
    "Payload"              NVARCHAR(MAX) NOT NULL,

    CONSTRAINT "PK_{{jobs}}" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{jobs}}_Name" UNIQUE ("Name"),
    CONSTRAINT "CK_{{jobs}}_Sizes" CHECK (DATALENGTH("Name") > 0 AND DATALENGTH("Topic") > 0 AND DATALENGTH("Cron") > 0 AND DATALENGTH("TimeZone") > 0),
    CONSTRAINT "CK_{{jobs}}_Ranges" CHECK ("Priority" >= -9 AND "Priority" <= 9 AND "JitterSeconds" >= 0 AND "JitterSeconds" <= 86400 AND "Overlap" <= 2),
    -- Cap and window belong to the policy "all", and to no other.
    CONSTRAINT "CK_{{jobs}}_Misfire" CHECK (
        ("Misfire" IN (0, 1) AND "MisfireCap" IS NULL AND "MisfireWindowSeconds" IS NULL)
        OR ("Misfire" = 2 AND "MisfireCap" IS NOT NULL AND "MisfireWindowSeconds" IS NOT NULL
            AND "MisfireCap" >= 1 AND "MisfireCap" <= 1000 AND "MisfireWindowSeconds" >= 1 AND "MisfireWindowSeconds" <= 31622400))
);
GO
-- What a scheduler walks. Those without a next nominal time come first: it is to be calculated.
CREATE INDEX "IX_{{jobs}}_Due" ON "{{schema}}"."{{jobs}}" ("NextNominalAt", "Name") WHERE "Enabled" = 1 AND "Problem" IS NULL;
GO
-- Every run of a job, whether the job is still there or not. The view below also knows of those that are under way.
CREATE TABLE "{{schema}}"."{{jobs}}_ledger" (
    "Seq"          BIGINT IDENTITY(1, 1) NOT NULL,
    "Id"           UNIQUEIDENTIFIER NOT NULL,
    "Job"          NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Trigger"      NVARCHAR(10) COLLATE Latin1_General_BIN2 NOT NULL,
    -- The occurrence it is for; of a run that was asked for by hand, when that was.
    "NominalAt"    DATETIME2(6) NOT NULL,
    -- When it may start: the nominal time and the job's jitter.
    "DueAt"        DATETIME2(6) NOT NULL,
    "CreatedAt"    DATETIME2(6) NOT NULL,
    "DispatchedAt" DATETIME2(6) NULL,
    "StartedAt"    DATETIME2(6) NULL,
    "EndedAt"      DATETIME2(6) NULL,
    "Attempts"     INT NOT NULL,
    -- How it ended, once that was collected: 1 succeeded, 2 failed, 3 skipped, 4 cancelled.
    "Outcome"      TINYINT NULL,
    "Error"        NVARCHAR(MAX) NULL,
    "Output"       NVARCHAR(MAX) NULL,

    CONSTRAINT "PK_{{jobs}}_ledger" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{jobs}}_ledger_Id" UNIQUE ("Id"),
    -- One run per occurrence, however many schedulers there are.
    CONSTRAINT "UQ_{{jobs}}_ledger_Once" UNIQUE ("Job", "NominalAt"),
    CONSTRAINT "CK_{{jobs}}_ledger_Outcome" CHECK (
        ("Outcome" IS NULL AND "EndedAt" IS NULL) OR ("Outcome" IS NOT NULL AND "EndedAt" IS NOT NULL AND "Outcome" >= 1 AND "Outcome" <= 4)),
    CONSTRAINT "CK_{{jobs}}_ledger_Trigger" CHECK ("Trigger" IN (N'cron', N'manual'))
);
GO
-- What is not over: as many as are under way, whatever the history holds.
CREATE INDEX "IX_{{jobs}}_ledger_Open" ON "{{schema}}"."{{jobs}}_ledger" ("Job", "Id") INCLUDE ("DispatchedAt") WHERE "Outcome" IS NULL;
GO
-- What retention walks.
CREATE INDEX "IX_{{jobs}}_ledger_Ended" ON "{{schema}}"."{{jobs}}_ledger" ("EndedAt", "Seq") INCLUDE ("Outcome") WHERE "Outcome" IS NOT NULL;
GO
-- The newest of all jobs.
CREATE INDEX "IX_{{jobs}}_ledger_Recent" ON "{{schema}}"."{{jobs}}_ledger" ("NominalAt", "Id");
GO
-- Where a run stands: by the ledger if that knows its end, else by its message, else by its row in the queue. The cases make the joins look for nothing
-- once the end is known.
CREATE VIEW "{{schema}}"."{{jobs}}_run" AS
SELECT l."Id", l."Job", l."Trigger", l."NominalAt", l."DueAt",
       CASE WHEN l."Outcome" = 1 THEN N'succeeded' WHEN l."Outcome" = 2 THEN N'failed' WHEN l."Outcome" = 3 THEN N'skipped' WHEN l."Outcome" = 4 THEN N'cancelled'
            WHEN h."Status" = 2 THEN N'succeeded'
            WHEN h."Status" = 3 AND h."Reason" = N'cancelled' THEN N'cancelled'
            WHEN h."Status" = 3 THEN N'failed'
            WHEN o."Status" = 1 THEN N'running'
            WHEN o."Status" = 0 THEN N'dispatched'
            WHEN q."Status" = 1 THEN N'claimed'
            WHEN q."Status" = 0 THEN N'pending'
            WHEN l."DispatchedAt" IS NOT NULL THEN N'failed'
            WHEN s."Status" = 2 THEN N'succeeded'
            WHEN s."Reason" = N'cancelled' THEN N'cancelled'
            ELSE N'failed' END AS "State",
       l."CreatedAt", l."DispatchedAt", l."StartedAt",
       COALESCE(l."EndedAt", h."ProcessedAt", CASE WHEN l."DispatchedAt" IS NULL THEN s."ProcessedAt" END) AS "EndedAt",
       COALESCE(o."Attempts", h."Attempts", l."Attempts") AS "Attempts",
       COALESCE(l."Error", h."LastError", o."LastError", CASE WHEN l."DispatchedAt" IS NULL THEN s."LastError" END) AS "Error",
       l."Output"
  FROM "{{schema}}"."{{jobs}}_ledger" l
  LEFT JOIN "{{schema}}"."{{outbox}}" o ON o."Id" = CASE WHEN l."Outcome" IS NULL THEN l."Id" END
  LEFT JOIN "{{schema}}"."{{outbox}}_history" h ON h."Id" = CASE WHEN l."Outcome" IS NULL THEN l."Id" END
  LEFT JOIN "{{schema}}"."{{job_runs}}" q ON q."Id" = CASE WHEN l."Outcome" IS NULL THEN l."Id" END
  LEFT JOIN "{{schema}}"."{{job_runs}}_history" s ON s."Id" = CASE WHEN l."Outcome" IS NULL THEN l."Id" END;
GO
-- A job as records tell it: all but its payload.
CREATE FUNCTION "{{schema}}"."{{jobs}}_told" (@Name NVARCHAR(510)) RETURNS NVARCHAR(MAX) AS
BEGIN
    RETURN (
        SELECT j."Topic" AS topic, j."Cron" AS cron, j."TimeZone" AS time_zone, j."Enabled" AS enabled,
               CASE j."Misfire" WHEN 0 THEN N'skip' WHEN 1 THEN N'once' ELSE N'all' END AS misfire, j."MisfireCap" AS misfire_cap, j."MisfireWindowSeconds" AS misfire_window_seconds,
               CASE j."Overlap" WHEN 0 THEN N'allow' WHEN 1 THEN N'skip' ELSE N'queue' END AS overlap, j."JitterSeconds" AS jitter_seconds, j."Priority" AS priority, j."Version" AS version
          FROM "{{schema}}"."{{jobs}}" j WHERE j."Name" = @Name
           FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
END
