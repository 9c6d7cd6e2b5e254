-- Joins: several steps, and what is to happen when they have ended.
--
-- A join has credit for so many steps, kept in its own row. Counting takes of it under the row's lock, and credit is the only authority: what finds none is
-- not counted, and whoever takes the last of it ends the join. So steps of one join end one after the other, and steps of several side by side.
--
-- In the modes all and deadline a step of either outcome takes of the expected steps. In any and quorum there is credit for each step that has to
-- complete, and for each failure up to the one that makes that impossible.

CREATE TABLE "{{schema}}"."{{joins}}" (
    "Seq"           BIGINT IDENTITY(1, 1) NOT NULL,
    "Id"            UNIQUEIDENTIFIER NOT NULL,
    "GroupingKey"   NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    -- When it has ended: 0 all, 1 any, 2 quorum, 3 deadline.
    "Mode"          TINYINT NOT NULL,
    "ExpectedSteps" INT NOT NULL,
    -- How many steps have to complete.
    "Needed"        INT NOT NULL,
    "Completed"     INT NOT NULL,
    "Failed"        INT NOT NULL,
    -- 0 pending, 1 completed, 2 failed, 3 cancelled.
    "Status"        TINYINT NOT NULL,
    "Reason"        NVARCHAR(20) COLLATE Latin1_General_BIN2 NULL,
    "DeadlineAt"    DATETIME2(6) NULL,
    "CreatedAt"     DATETIME2(6) NOT NULL,
    "UpdatedAt"     DATETIME2(6) NOT NULL,
    "EndedAt"       DATETIME2(6) NULL,

    CONSTRAINT "PK_{{joins}}" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{joins}}_Join" UNIQUE ("Id"),
    CONSTRAINT "CK_{{joins}}_Ranges" CHECK ("ExpectedSteps" >= 1 AND "ExpectedSteps" <= 1000000000 AND "Needed" >= 1 AND "Needed" <= "ExpectedSteps" AND "Mode" <= 3 AND "Status" <= 3),
    CONSTRAINT "CK_{{joins}}_Counts" CHECK ("Completed" >= 0 AND "Failed" >= 0 AND "Completed" + "Failed" <= "ExpectedSteps"),
    CONSTRAINT "CK_{{joins}}_Times" CHECK ("Mode" <> 3 OR "DeadlineAt" IS NOT NULL),
    CONSTRAINT "CK_{{joins}}_End" CHECK (
        ("Status" = 0 AND "EndedAt" IS NULL AND "Reason" IS NULL)
        OR ("Status" IN (1, 3) AND "EndedAt" IS NOT NULL AND "Reason" IS NULL)
        OR ("Status" = 2 AND "EndedAt" IS NOT NULL AND "Reason" IS NOT NULL AND "Reason" IN (N'steps', N'deadline')))
);
GO
CREATE INDEX "IX_{{joins}}_Grouping" ON "{{schema}}"."{{joins}}" ("GroupingKey", "Id") WHERE "GroupingKey" IS NOT NULL;
GO
-- Whether there is any join to count for, and whose deadline is next.
CREATE INDEX "IX_{{joins}}_Pending" ON "{{schema}}"."{{joins}}" ("DeadlineAt", "Seq") WHERE "Status" = 0;
GO
-- What retention walks.
CREATE INDEX "IX_{{joins}}_Ended" ON "{{schema}}"."{{joins}}" ("EndedAt", "Seq") WHERE "EndedAt" IS NOT NULL;
GO
-- What is a step of which join.
CREATE TABLE "{{schema}}"."{{joins}}_member" (
    "Seq"        BIGINT IDENTITY(1, 1) NOT NULL,
    "JoinId"     UNIQUEIDENTIFIER NOT NULL,
    "WorkItemId" UNIQUEIDENTIFIER NOT NULL,
    -- 0 not counted, 1 counted as completed, 2 counted as failed, 3 cancelled with its join.
    "State"      TINYINT NOT NULL,
    "UpdatedAt"  DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{joins}}_member" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{joins}}_member_Step" UNIQUE ("JoinId", "WorkItemId"),
    CONSTRAINT "CK_{{joins}}_member_State" CHECK ("State" <= 3)
);
GO
CREATE INDEX "IX_{{joins}}_member_Item" ON "{{schema}}"."{{joins}}_member" ("WorkItemId", "JoinId") INCLUDE ("State");
GO
-- The message that a join puts into the outbox when it ends: outcome 1 completed, 2 failed.
CREATE TABLE "{{schema}}"."{{joins}}_continuation" (
    "Seq"           BIGINT IDENTITY(1, 1) NOT NULL,
    "JoinId"        UNIQUEIDENTIFIER NOT NULL,
    "Outcome"       TINYINT NOT NULL,
    "Id"            UNIQUEIDENTIFIER NOT NULL,
    "MessageId"     UNIQUEIDENTIFIER NOT NULL,
    "Topic"         NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Priority"      SMALLINT NOT NULL,
    "HoldOnFailure" BIT NOT NULL,
    "OrderingKey"   NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "CorrelationId" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "Headers"       NVARCHAR(MAX) NULL,
    "Payload"       NVARCHAR(MAX) NOT NULL,
    "CreatedAt"     DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{joins}}_continuation" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{joins}}_continuation_Of" UNIQUE ("JoinId", "Outcome"),
    CONSTRAINT "CK_{{joins}}_continuation_Outcome" CHECK ("Outcome" IN (1, 2))
);
GO
-- As with the queues.
DECLARE @Text NVARCHAR(MAX) = N'ALTER TABLE ' + QUOTENAME(N'{{schema:literal}}') + N'.' + QUOTENAME(N'{{joins:literal}}_member') + N' SET (LOCK_ESCALATION = DISABLE);';
IF SERVERPROPERTY(N'BabelfishVersion') IS NULL EXEC(@Text);
