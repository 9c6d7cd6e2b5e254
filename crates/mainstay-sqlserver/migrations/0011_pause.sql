-- Topics that nobody claims from until somebody resumes them.
CREATE TABLE "{{schema}}"."{{outbox}}_paused" (
    "Topic"    NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "PausedAt" DATETIME2(6) NOT NULL,
    -- Who did it.
    "PausedBy" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    -- Why, in their words.
    "Reason"   NVARCHAR(510) NULL,
    CONSTRAINT "PK_{{outbox}}_paused" PRIMARY KEY NONCLUSTERED ("Topic")
);
