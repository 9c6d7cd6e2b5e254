-- Fan-outs: how each is planned, and how far each of its shards has come.
--
-- Slices are messages of the outbox; a cursor remembers the id of the last one, and whether that is still under way is looked up there. So fan-outs cost the
-- outbox nothing.

CREATE TABLE "{{schema}}"."{{fanout}}" (
    "Seq"            BIGINT IDENTITY(1, 1) NOT NULL,
    "Topic"          NVARCHAR(200) COLLATE Latin1_General_BIN2 NOT NULL,
    "WorkKey"        NVARCHAR(200) COLLATE Latin1_General_BIN2 NOT NULL,
    "EverySeconds"   INT NOT NULL,
    "JitterSeconds"  INT NOT NULL,
    "Cron"           NVARCHAR(2000) NULL,
    "TimeZone"       NVARCHAR(510) NOT NULL,
    "Enabled"        BIT NOT NULL,
    -- Grows with every change, and with every request for a run.
    "Version"        BIGINT NOT NULL,
    "CreatedAt"      DATETIME2(6) NOT NULL,
    "UpdatedAt"      DATETIME2(6) NOT NULL,
    -- From when on it is planned.
    "SinceAt"        DATETIME2(6) NOT NULL,
    "LastRunAt"      DATETIME2(6) NULL,
    "RunRequestedAt" DATETIME2(6) NULL,
    -- The values it was registered with the last time.
    "Declared"       NVARCHAR(MAX) NOT NULL,
    CONSTRAINT "PK_{{fanout}}" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{fanout}}_Key" UNIQUE ("Topic", "WorkKey"),
    -- Otherwise two of them could have the same topic in the outbox.
    CONSTRAINT "CK_{{fanout}}_Colon" CHECK (CHARINDEX(N':', "Topic") = 0),
    CONSTRAINT "CK_{{fanout}}_Ranges" CHECK ("EverySeconds" >= 0 AND "EverySeconds" <= 31622400 AND "JitterSeconds" >= 0 AND "JitterSeconds" <= 86400),
    CONSTRAINT "CK_{{fanout}}_Cadence" CHECK ("Cron" IS NOT NULL OR "EverySeconds" > 0)
);
GO
CREATE TABLE "{{schema}}"."{{fanout}}_cursor" (
    "Seq"             BIGINT IDENTITY(1, 1) NOT NULL,
    -- Of topic and work key: an index's key is narrower than all three may be.
    "Digest"          BINARY(32) NOT NULL,
    "Topic"           NVARCHAR(200) COLLATE Latin1_General_BIN2 NOT NULL,
    "WorkKey"         NVARCHAR(200) COLLATE Latin1_General_BIN2 NOT NULL,
    "ShardKey"        NVARCHAR(512) COLLATE Latin1_General_BIN2 NOT NULL,
    "LastCompletedAt" DATETIME2(6) NULL,
    "SliceId"         UNIQUEIDENTIFIER NULL,
    "SliceDueAt"      DATETIME2(6) NULL,
    "SliceCursorAt"   DATETIME2(6) NULL,
    "CreatedAt"       DATETIME2(6) NOT NULL,
    "UpdatedAt"       DATETIME2(6) NOT NULL,
    CONSTRAINT "PK_{{fanout}}_cursor" PRIMARY KEY ("Seq"),
    CONSTRAINT "UQ_{{fanout}}_cursor_Shard" UNIQUE ("Digest", "ShardKey"),
    CONSTRAINT "CK_{{fanout}}_cursor_Shard" CHECK (DATALENGTH("ShardKey") > 0)
);
GO
-- A policy as records tell it.
CREATE FUNCTION "{{schema}}"."{{fanout}}_told" (@Topic NVARCHAR(200), @WorkKey NVARCHAR(200)) RETURNS NVARCHAR(MAX) AS
BEGIN
    RETURN (
        SELECT p."EverySeconds" AS every_seconds, p."JitterSeconds" AS jitter_seconds, p."Cron" AS cron, p."TimeZone" AS time_zone, p."Enabled" AS enabled
          FROM "{{schema}}"."{{fanout}}" p WHERE p."Topic" = @Topic AND p."WorkKey" = @WorkKey
           FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER);
END
GO
-- The rules of a policy, as every way to change one has them: what is wrong with it, or null.
CREATE FUNCTION "{{schema}}"."{{fanout}}_wrong" (
    @Topic NVARCHAR(MAX), @WorkKey NVARCHAR(MAX), @EverySeconds INT, @JitterSeconds INT, @Cron NVARCHAR(MAX), @TimeZone NVARCHAR(MAX), @Enabled BIT) RETURNS NVARCHAR(200) AS
BEGIN
    RETURN CASE
        WHEN @Topic IS NULL OR DATALENGTH(@Topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Topic, 100) = 1 THEN N'topic must be 1 to 100 characters'
        WHEN CHARINDEX(N':', @Topic) > 0 THEN N'topic must not contain a colon'
        WHEN @WorkKey IS NULL OR DATALENGTH(@WorkKey) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@WorkKey, 100) = 1 THEN N'work_key must be 1 to 100 characters'
        WHEN @EverySeconds IS NULL OR @EverySeconds NOT BETWEEN 0 AND 31622400 THEN N'every_seconds must be 0 to 31622400'
        WHEN @JitterSeconds IS NULL OR @JitterSeconds NOT BETWEEN 0 AND 86400 THEN N'jitter_seconds must be 0 to 86400'
        WHEN DATALENGTH(@Cron) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Cron, 1000) = 1 THEN N'cron must be 1 to 1000 characters'
        WHEN @Cron IS NULL AND @EverySeconds = 0 THEN N'every_seconds must be above 0 where there is no cron'
        WHEN @TimeZone IS NULL OR DATALENGTH(@TimeZone) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@TimeZone, 255) = 1 THEN N'time_zone must be 1 to 255 characters'
        WHEN @Enabled IS NULL THEN N'enabled must not be null'
    END
END
