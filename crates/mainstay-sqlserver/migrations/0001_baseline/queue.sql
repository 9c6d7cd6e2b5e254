-- A queue: one table of open items, one of settled ones.
--
-- What the layout relies on, and what would break it:
--   * Clustered on a number that only grows. A UUID, whatever its version, is in random order for a uniqueidentifier.
--   * Times are DATETIME2(6) in UTC, by the server's clock. Microseconds, so that nothing is lost between the server and its callers.
--   * Items leave the open table when they are settled, so its indexes follow the backlog and not the traffic.
--   * Texts that are compared have a binary collation: topics and keys are case-sensitive whatever the database's collation. Widths
--     are in UTF-16 units, two for each of the characters that the contract allows.
--   * No item is ever looked for by "greater than the last number I saw": transactions commit out of order.
--   * Nothing here is inline in CREATE TABLE that has its own statement, and no object is looked up by the name of an index: engines
--     that speak this protocol name indexes in their own way.

CREATE TABLE "{{schema}}"."{{queue}}" (
    "Seq"            BIGINT IDENTITY(1, 1) NOT NULL,
    "Id"             UNIQUEIDENTIFIER NOT NULL CONSTRAINT "DF_{{queue}}_Id" DEFAULT NEWID(),
    "MessageId"      UNIQUEIDENTIFIER NOT NULL CONSTRAINT "DF_{{queue}}_MessageId" DEFAULT NEWID(),
    "Topic"          NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "CreatedAt"      DATETIME2(6) NOT NULL CONSTRAINT "DF_{{queue}}_CreatedAt" DEFAULT SYSUTCDATETIME(),
    -- When it may be claimed next: the due time, or the end of a delay.
    "DueAt"          DATETIME2(6) NOT NULL CONSTRAINT "DF_{{queue}}_DueAt" DEFAULT SYSUTCDATETIME(),
    -- The due time asked for at enqueue, if any.
    "RequestedDueAt" DATETIME2(6) NULL,
    "ExpiresAt"      DATETIME2(6) NULL,
    -- 0 Ready, 1 InProgress.
    "Status"         TINYINT NOT NULL CONSTRAINT "DF_{{queue}}_Status" DEFAULT 0,
    "OwnerToken"     UNIQUEIDENTIFIER NULL,
    "LockedUntil"    DATETIME2(6) NULL,
    -- Raised by every claim, the first time to Seq * 65536 + 1, so that it never repeats for an id; a settle with an older one changes
    -- nothing. 0: never claimed.
    "Generation"     BIGINT NOT NULL CONSTRAINT "DF_{{queue}}_Generation" DEFAULT 0,
    -- Deliveries, counted when claimed. Given back by a release.
    "Attempts"       INT NOT NULL CONSTRAINT "DF_{{queue}}_Attempts" DEFAULT 0,
    "Priority"       SMALLINT NOT NULL CONSTRAINT "DF_{{queue}}_Priority" DEFAULT 0,
    "HoldOnFailure"  BIT NOT NULL CONSTRAINT "DF_{{queue}}_HoldOnFailure" DEFAULT 0,
    "OrderingKey"    NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "IdempotencyKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "CorrelationId"  NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "LastError"      NVARCHAR(MAX) NULL,
    -- A JSON object of texts.
    "Headers"        NVARCHAR(MAX) NULL,
    "Payload"        NVARCHAR(MAX) NOT NULL,

    CONSTRAINT "PK_{{queue}}" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{queue}}_Id" UNIQUE ("Id"),
    CONSTRAINT "CK_{{queue}}_Topic" CHECK (DATALENGTH("Topic") > 0),
    CONSTRAINT "CK_{{queue}}_Priority" CHECK ("Priority" >= -9 AND "Priority" <= 9),
    CONSTRAINT "CK_{{queue}}_Counts" CHECK ("Attempts" >= 0 AND "Generation" >= 0),
    -- Only open states live here, and a lease is there exactly when the item is in progress.
    CONSTRAINT "CK_{{queue}}_Lease" CHECK (
        ("Status" = 0 AND "OwnerToken" IS NULL AND "LockedUntil" IS NULL)
        OR ("Status" = 1 AND "OwnerToken" IS NOT NULL AND "LockedUntil" IS NOT NULL))
);
GO
-- What a claim walks: one range per priority, in the order in which items are taken.
CREATE INDEX "IX_{{queue}}_Ready" ON "{{schema}}"."{{queue}}" ("Priority", "DueAt", "Seq") INCLUDE ("Topic", "OrderingKey") WHERE "Status" = 0;
GO
-- Which leases have lapsed.
CREATE INDEX "IX_{{queue}}_Leased" ON "{{schema}}"."{{queue}}" ("Priority", "LockedUntil", "Seq") INCLUDE ("Topic", "OrderingKey") WHERE "Status" = 1;
GO
-- Who is first in an ordering key, and who of it is running.
CREATE INDEX "IX_{{queue}}_Lane" ON "{{schema}}"."{{queue}}" ("OrderingKey", "Seq") INCLUDE ("Status", "LockedUntil") WHERE "OrderingKey" IS NOT NULL;
GO
CREATE TABLE "{{schema}}"."{{queue}}_history" (
    "Seq"            BIGINT NOT NULL,
    "Id"             UNIQUEIDENTIFIER NOT NULL,
    "MessageId"      UNIQUEIDENTIFIER NOT NULL,
    "Topic"          NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "CreatedAt"      DATETIME2(6) NOT NULL,
    "DueAt"          DATETIME2(6) NOT NULL,
    "RequestedDueAt" DATETIME2(6) NULL,
    "ExpiresAt"      DATETIME2(6) NULL,
    -- 2 Done, 3 Failed.
    "Status"         TINYINT NOT NULL,
    -- Why it failed.
    "Reason"         NVARCHAR(20) COLLATE Latin1_General_BIN2 NULL,
    "ProcessedAt"    DATETIME2(6) NOT NULL,
    "ProcessedBy"    UNIQUEIDENTIFIER NULL,
    -- Carried on by a requeue, so that a claim from before it can never settle the item.
    "Generation"     BIGINT NOT NULL,
    "Attempts"       INT NOT NULL,
    "Priority"       SMALLINT NOT NULL,
    "HoldOnFailure"  BIT NOT NULL,
    "OrderingKey"    NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "IdempotencyKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "CorrelationId"  NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "LastError"      NVARCHAR(MAX) NULL,
    "Headers"        NVARCHAR(MAX) NULL,
    -- Null when the payloads of done items are not kept.
    "Payload"        NVARCHAR(MAX) NULL,

    CONSTRAINT "PK_{{queue}}_history" PRIMARY KEY ("Seq"),
    CONSTRAINT "CK_{{queue}}_history_Reason" CHECK (
        ("Status" = 2 AND "Reason" IS NULL)
        OR ("Status" = 3 AND "Reason" IS NOT NULL AND "Reason" IN (N'handler', N'delivery-limit', N'expired', N'cancelled'))),
    -- A failed item can be requeued, so its payload must still be there.
    CONSTRAINT "CK_{{queue}}_history_Payload" CHECK ("Status" = 2 OR "Payload" IS NOT NULL)
);
GO
-- What tells that an id is used. Not unique: should one be used again all the same, a whole batch of settles would fail for it.
CREATE INDEX "IX_{{queue}}_history_Id" ON "{{schema}}"."{{queue}}_history" ("Id");
GO
-- Retention walks each status from its oldest end.
CREATE INDEX "IX_{{queue}}_history_Settled" ON "{{schema}}"."{{queue}}_history" ("Status", "ProcessedAt", "Seq");
GO
-- A table of its own: a key must outlive the open item, and hold over open and settled items together.
CREATE TABLE "{{schema}}"."{{queue}}_idempotency" (
    "IdempotencyKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Id"             UNIQUEIDENTIFIER NOT NULL,
    "MessageId"      UNIQUEIDENTIFIER NOT NULL,
    "CreatedAt"      DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{queue}}_idempotency" PRIMARY KEY NONCLUSTERED ("IdempotencyKey")
);
GO
-- Ordering keys that stand still because an item of theirs failed, until released or that item is requeued.
CREATE TABLE "{{schema}}"."{{queue}}_hold" (
    "OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Id"          UNIQUEIDENTIFIER NOT NULL,
    "HeldAt"      DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{queue}}_hold" PRIMARY KEY NONCLUSTERED ("OrderingKey")
);
GO
-- Many rows are claimed or settled at once, and their locks must stay locks of rows: where they became one of the table, whoever passes over locked rows would wait
-- for it. Babelfish has neither such locks nor the option.
DECLARE @Text NVARCHAR(MAX) = N'ALTER TABLE ' + QUOTENAME(N'{{schema:literal}}') + N'.' + QUOTENAME(N'{{queue:literal}}') + N' SET (LOCK_ESCALATION = DISABLE);'
    + N' ALTER TABLE ' + QUOTENAME(N'{{schema:literal}}') + N'.' + QUOTENAME(N'{{queue:literal}}_history') + N' SET (LOCK_ESCALATION = DISABLE);'
    + N' ALTER TABLE ' + QUOTENAME(N'{{schema:literal}}') + N'.' + QUOTENAME(N'{{queue:literal}}_idempotency') + N' SET (LOCK_ESCALATION = DISABLE);';
IF SERVERPROPERTY(N'BabelfishVersion') IS NULL EXEC(@Text);
GO
-- What is to become of items that are claimed, as the procedures hand it to each other.
CREATE TYPE "{{schema}}"."{{queue}}_ending" AS TABLE (
    "Seq"         BIGINT NOT NULL PRIMARY KEY,
    "Status"      TINYINT NOT NULL,
    "Reason"      NVARCHAR(20) NULL,
    "Error"       NVARCHAR(MAX) NULL,
    -- Whether the error of an earlier delivery is put behind this one.
    "Appends"     BIT NOT NULL,
    "KeepPayload" BIT NOT NULL,
    -- Deliveries to give back.
    "Back"        INT NOT NULL
);
GO
-- Open and settled items together, for people and reports.
CREATE VIEW "{{schema}}"."{{queue}}_message" AS
SELECT "Id", "MessageId", "Topic", "Payload", "CorrelationId", "Status", CAST(NULL AS NVARCHAR(20)) COLLATE Latin1_General_BIN2 AS "Reason", "Attempts",
       "CreatedAt", "RequestedDueAt", "DueAt", "ExpiresAt", "OwnerToken", "LockedUntil", "Generation",
       CAST(NULL AS DATETIME2(6)) AS "ProcessedAt", CAST(NULL AS UNIQUEIDENTIFIER) AS "ProcessedBy", "LastError", "Priority",
       "OrderingKey", "IdempotencyKey", "Headers", "Seq"
  FROM "{{schema}}"."{{queue}}"
UNION ALL
SELECT "Id", "MessageId", "Topic", "Payload", "CorrelationId", "Status", "Reason", "Attempts",
       "CreatedAt", "RequestedDueAt", "DueAt", "ExpiresAt", CAST(NULL AS UNIQUEIDENTIFIER), CAST(NULL AS DATETIME2(6)), "Generation",
       "ProcessedAt", "ProcessedBy", "LastError", "Priority", "OrderingKey", "IdempotencyKey", "Headers", "Seq"
  FROM "{{schema}}"."{{queue}}_history";
GO
-- Topics that nobody claims from until somebody resumes them.
CREATE TABLE "{{schema}}"."{{queue}}_paused" (
    "Topic"    NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "PausedAt" DATETIME2(6) NOT NULL,
    -- Who did it.
    "PausedBy" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    -- Why, in their words.
    "Reason"   NVARCHAR(510) NULL,
    CONSTRAINT "PK_{{queue}}_paused" PRIMARY KEY NONCLUSTERED ("Topic")
);
