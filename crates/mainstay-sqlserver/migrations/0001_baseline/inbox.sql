-- The inbox: the ledger of what was received. The queue its messages are worked from is one like the others.
--
-- A key is a source and a message id, together too long for an index: so it is known by a digest. Whoever changes an entry holds the application lock of
-- its key until its transaction ends, so what it has read of it stays true.

CREATE TABLE "{{schema}}"."{{inbox}}_entry" (
    "Seq"         BIGINT IDENTITY(1, 1) NOT NULL,
    "Source"      NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "MessageId"   NVARCHAR(1024) COLLATE Latin1_General_BIN2 NOT NULL,
    "Digest"      BINARY(32) NOT NULL,
    -- 0 Seen, 1 Processing, 2 Done, 3 Dead.
    "State"       TINYINT NOT NULL,
    -- The SHA-256 of the content, in hexadecimal digits.
    "Hash"        NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL,
    "FirstSeenAt" DATETIME2(6) NOT NULL,
    "LastSeenAt"  DATETIME2(6) NOT NULL,
    "ProcessedAt" DATETIME2(6) NULL,
    -- Reservations, or deliveries to workers once it is settled there. Duplicates never count.
    "Attempts"    INT NOT NULL,
    -- Raised by every reservation; a guard with an older one changes nothing.
    "Generation"  BIGINT NOT NULL,
    -- Who has reserved it. Null when it was only marked as being processed.
    "OwnerToken"  UNIQUEIDENTIFIER NULL,
    "LockedUntil" DATETIME2(6) NULL,
    "LastError"   NVARCHAR(MAX) NULL,
    -- Its row in the queue or in its history. Null if it was never enqueued.
    "WorkItemId"  UNIQUEIDENTIFIER NULL,
    CONSTRAINT "PK_{{inbox}}_entry" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{inbox}}_entry_Key" UNIQUE ("Digest"),
    CONSTRAINT "CK_{{inbox}}_entry_Source" CHECK (DATALENGTH("Source") > 0),
    CONSTRAINT "CK_{{inbox}}_entry_MessageId" CHECK (DATALENGTH("MessageId") > 0),
    CONSTRAINT "CK_{{inbox}}_entry_State" CHECK ("State" >= 0 AND "State" <= 3),
    CONSTRAINT "CK_{{inbox}}_entry_Reserved" CHECK (("State" = 1 AND "LockedUntil" IS NOT NULL) OR ("State" <> 1 AND "OwnerToken" IS NULL AND "LockedUntil" IS NULL)),
    CONSTRAINT "CK_{{inbox}}_entry_Settled" CHECK (("State" >= 2 AND "ProcessedAt" IS NOT NULL) OR ("State" < 2 AND "ProcessedAt" IS NULL))
);
GO
CREATE INDEX "IX_{{inbox}}_entry_Item" ON "{{schema}}"."{{inbox}}_entry" ("WorkItemId") WHERE "WorkItemId" IS NOT NULL;
GO
CREATE INDEX "IX_{{inbox}}_entry_Seen" ON "{{schema}}"."{{inbox}}_entry" ("FirstSeenAt", "Seq");
GO
CREATE INDEX "IX_{{inbox}}_entry_State" ON "{{schema}}"."{{inbox}}_entry" ("State", "FirstSeenAt", "Seq");
GO
CREATE INDEX "IX_{{inbox}}_entry_Settled" ON "{{schema}}"."{{inbox}}_entry" ("State", "ProcessedAt") WHERE "ProcessedAt" IS NOT NULL;
GO
-- As with the queues.
DECLARE @Text NVARCHAR(MAX) = N'ALTER TABLE ' + QUOTENAME(N'{{schema:literal}}') + N'.' + QUOTENAME(N'{{inbox:literal}}_entry') + N' SET (LOCK_ESCALATION = DISABLE);';
IF SERVERPROPERTY(N'BabelfishVersion') IS NULL EXEC(@Text);
GO
-- Received messages with what the queue knows of them, for people and reports: state 0 Seen, 1 Processing (reserved, or held by a worker), 2 Done, 3 Dead.
CREATE VIEW "{{schema}}"."{{inbox}}_ledger" AS
SELECT e."Seq", e."Source", e."MessageId", CASE WHEN e."State" < 2 AND q."Status" = 1 THEN 1 ELSE e."State" END AS "State", e."Hash", e."FirstSeenAt", e."LastSeenAt", e."ProcessedAt",
       COALESCE(q."Attempts", e."Attempts") AS "Attempts", e."Generation", e."OwnerToken", COALESCE(CASE WHEN q."Status" = 1 THEN q."LockedUntil" END, e."LockedUntil") AS "LockedUntil",
       COALESCE(q."LastError", e."LastError") AS "LastError", e."WorkItemId", COALESCE(q."Topic", h."Topic") AS "Topic"
  FROM "{{schema}}"."{{inbox}}_entry" e
  LEFT JOIN "{{schema}}"."{{inbox}}" q ON q."Id" = e."WorkItemId"
  LEFT JOIN "{{schema}}"."{{inbox}}_history" h ON h."Id" = e."WorkItemId";
