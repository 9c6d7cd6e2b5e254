-- The audit trail: who did what to what, and what came of it. Records are only ever added.

CREATE TABLE "{{schema}}"."{{audit}}" (
    "Seq"           BIGINT IDENTITY(1, 1) NOT NULL,
    "Id"            UNIQUEIDENTIFIER NOT NULL,
    "RecordedAt"    DATETIME2(6) NOT NULL,
    -- What was done: outbox.requeue.
    "Name"          NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    -- Who did it.
    "Actor"         NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    -- 0 succeeded, 1 failed, 2 refused.
    "Outcome"       TINYINT NOT NULL,
    "CorrelationId" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    -- What else there is to tell, as JSON.
    "Data"          NVARCHAR(MAX) NULL,
    CONSTRAINT "PK_{{audit}}" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{audit}}_Id" UNIQUE ("Id"),
    CONSTRAINT "CK_{{audit}}_Name" CHECK (DATALENGTH("Name") > 0),
    CONSTRAINT "CK_{{audit}}_Actor" CHECK (DATALENGTH("Actor") > 0),
    CONSTRAINT "CK_{{audit}}_Outcome" CHECK ("Outcome" >= 0 AND "Outcome" <= 2)
);
GO
CREATE INDEX "IX_{{audit}}_Recent" ON "{{schema}}"."{{audit}}" ("RecordedAt", "Seq");
GO
CREATE INDEX "IX_{{audit}}_Name" ON "{{schema}}"."{{audit}}" ("Name", "RecordedAt", "Seq");
GO
CREATE INDEX "IX_{{audit}}_Actor" ON "{{schema}}"."{{audit}}" ("Actor", "RecordedAt", "Seq");
GO
CREATE INDEX "IX_{{audit}}_Correlation" ON "{{schema}}"."{{audit}}" ("CorrelationId", "RecordedAt", "Seq") WHERE "CorrelationId" IS NOT NULL;
GO
-- What a record is about. The time is the record's, so that the newest about a thing are found at once.
CREATE TABLE "{{schema}}"."{{audit}}_anchor" (
    "Seq"        BIGINT IDENTITY(1, 1) NOT NULL,
    "AuditId"    UNIQUEIDENTIFIER NOT NULL,
    "Kind"       NVARCHAR(128) COLLATE Latin1_General_BIN2 NOT NULL,
    "Value"      NVARCHAR(1024) COLLATE Latin1_General_BIN2 NOT NULL,
    -- A key of an index is narrower than a value may be.
    "Digest"     BINARY(32) NOT NULL,
    "RecordedAt" DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{audit}}_anchor" PRIMARY KEY ("Seq"),
    CONSTRAINT "CK_{{audit}}_anchor_Kind" CHECK (DATALENGTH("Kind") > 0),
    CONSTRAINT "CK_{{audit}}_anchor_Value" CHECK (DATALENGTH("Value") > 0),
    -- Also keeps the records from being truncated. Whoever deletes some gets to read its name.
    CONSTRAINT "FK_{{audit}}_is_append-only" FOREIGN KEY ("AuditId") REFERENCES "{{schema}}"."{{audit}}" ("Id")
);
GO
CREATE INDEX "IX_{{audit}}_anchor_Audit" ON "{{schema}}"."{{audit}}_anchor" ("AuditId");
GO
CREATE INDEX "IX_{{audit}}_anchor_Of" ON "{{schema}}"."{{audit}}_anchor" ("Digest", "RecordedAt", "AuditId");
GO
-- Has a row only within a transaction that deletes records past their age. That others have rows here is passed over: no purge waits for another.
CREATE TABLE "{{schema}}"."{{audit}}_purging" (
    "At"     DATETIME2(6) NOT NULL,
    -- Always null. That there could be one keeps the anchors from being truncated.
    "Anchor" BIGINT NULL,
    CONSTRAINT "FK_{{audit}}_anchor_is_append-only" FOREIGN KEY ("Anchor") REFERENCES "{{schema}}"."{{audit}}_anchor" ("Seq")
);
GO
CREATE TRIGGER "{{schema}}"."{{audit}}_kept" ON "{{schema}}"."{{audit}}" AFTER UPDATE, DELETE AS
BEGIN
    SET NOCOUNT ON;
    IF NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{audit}}_purging" WITH (READCOMMITTEDLOCK, READPAST))
        THROW 50007, N'the audit trail is append-only: its records are never changed, and deleted by its retention alone', 1;
END
GO
CREATE TRIGGER "{{schema}}"."{{audit}}_anchor_kept" ON "{{schema}}"."{{audit}}_anchor" AFTER UPDATE, DELETE AS
BEGIN
    SET NOCOUNT ON;
    IF NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{audit}}_purging" WITH (READCOMMITTEDLOCK, READPAST))
        THROW 50007, N'the audit trail is append-only: its records are never changed, and deleted by its retention alone', 1;
END
