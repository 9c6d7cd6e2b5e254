-- Operations: what takes long, and how far it is.

CREATE TABLE "{{schema}}"."{{operations}}" (
    "Seq"           BIGINT IDENTITY(1, 1) NOT NULL,
    "Id"            UNIQUEIDENTIFIER NOT NULL,
    "Name"          NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "ParentId"      UNIQUEIDENTIFIER NULL,
    -- 0 running, 1 succeeded, 2 failed, 3 cancelled, 4 stalled.
    "State"         TINYINT NOT NULL,
    "Done"          BIGINT NULL,
    "Total"         BIGINT NULL,
    "Message"       NVARCHAR(MAX) NULL,
    "Error"         NVARCHAR(MAX) NULL,
    "Actor"         NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "CorrelationId" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "Events"        BIGINT NOT NULL,
    "StartedAt"     DATETIME2(6) NOT NULL,
    -- The last sign of life.
    "UpdatedAt"     DATETIME2(6) NOT NULL,
    "EndedAt"       DATETIME2(6) NULL,
    CONSTRAINT "PK_{{operations}}" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{operations}}_Id" UNIQUE ("Id"),
    CONSTRAINT "CK_{{operations}}_Name" CHECK (DATALENGTH("Name") > 0),
    CONSTRAINT "CK_{{operations}}_State" CHECK (("State" = 0 AND "EndedAt" IS NULL) OR ("State" >= 1 AND "State" <= 4 AND "EndedAt" IS NOT NULL))
);
GO
CREATE INDEX "IX_{{operations}}_Recent" ON "{{schema}}"."{{operations}}" ("StartedAt", "Seq");
GO
CREATE INDEX "IX_{{operations}}_Name" ON "{{schema}}"."{{operations}}" ("Name", "StartedAt", "Seq");
GO
CREATE INDEX "IX_{{operations}}_Parent" ON "{{schema}}"."{{operations}}" ("ParentId", "StartedAt", "Seq") WHERE "ParentId" IS NOT NULL;
GO
CREATE INDEX "IX_{{operations}}_Alive" ON "{{schema}}"."{{operations}}" ("UpdatedAt", "Seq") WHERE "State" = 0;
GO
CREATE INDEX "IX_{{operations}}_Ended" ON "{{schema}}"."{{operations}}" ("EndedAt", "Seq") WHERE "EndedAt" IS NOT NULL;
GO
CREATE TABLE "{{schema}}"."{{operations}}_tag" (
    "OperationId" UNIQUEIDENTIFIER NOT NULL,
    "Key"         NVARCHAR(128) COLLATE Latin1_General_BIN2 NOT NULL,
    "Value"       NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "StartedAt"   DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{operations}}_tag" PRIMARY KEY ("OperationId", "Key")
);
GO
CREATE INDEX "IX_{{operations}}_tag_Of" ON "{{schema}}"."{{operations}}_tag" ("Key", "Value", "StartedAt");
GO
CREATE TABLE "{{schema}}"."{{operations}}_event" (
    "OperationId" UNIQUEIDENTIFIER NOT NULL,
    "Number"      BIGINT NOT NULL,
    "RecordedAt"  DATETIME2(6) NOT NULL,
    "Kind"        NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Message"     NVARCHAR(MAX) NULL,
    "Data"        NVARCHAR(MAX) NULL,
    CONSTRAINT "PK_{{operations}}_event" PRIMARY KEY ("OperationId", "Number")
);
