-- Fan-outs: how each is planned, and how far each of its shards has come.
--
-- Slices are messages of the outbox; a cursor remembers the id of the last one, and whether that is still under way is looked up there.
-- Times are integers as in the outbox: microseconds since 1970-01-01 UTC, by SQLite's clock.

CREATE TABLE "{{schema}}_{{fanout}}" (
    topic            TEXT    NOT NULL,
    work_key         TEXT    NOT NULL,
    -- How long after its last completion a shard is due; with a cron expression, the least distance between two of its slices.
    every_seconds    INTEGER NOT NULL DEFAULT 0,
    jitter_seconds   INTEGER NOT NULL DEFAULT 0,
    cron             TEXT,
    time_zone        TEXT    NOT NULL DEFAULT 'UTC',
    enabled          INTEGER NOT NULL DEFAULT 1,
    -- What the program registered last, as JSON: registering the same again does not undo what was changed since.
    declared         TEXT    NOT NULL,
    -- Grows with every change, and when somebody asks for a run.
    version          INTEGER NOT NULL DEFAULT 1,
    -- The nominal time of the last run.
    last_run_at      INTEGER,
    -- Somebody wants a run, since then.
    run_requested_at INTEGER,
    -- From when on the cron expression's occurrences count.
    since_at         INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,

    PRIMARY KEY (topic, work_key),
    CONSTRAINT topic_is_1_to_100_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 100 AND instr(topic, char(0)) = 0),
    CONSTRAINT topic_has_no_colon CHECK (instr(topic, ':') = 0),
    CONSTRAINT work_key_is_1_to_100_characters CHECK (typeof(work_key) = 'text' AND length(work_key) BETWEEN 1 AND 100 AND instr(work_key, char(0)) = 0),
    CONSTRAINT every_is_0_to_366_days CHECK (typeof(every_seconds) = 'integer' AND every_seconds BETWEEN 0 AND 31622400),
    CONSTRAINT jitter_is_at_most_a_day CHECK (typeof(jitter_seconds) = 'integer' AND jitter_seconds BETWEEN 0 AND 86400),
    CONSTRAINT cron_is_1_to_1000_characters CHECK (cron IS NULL OR (typeof(cron) = 'text' AND length(cron) BETWEEN 1 AND 1000)),
    CONSTRAINT time_zone_is_1_to_255_characters CHECK (typeof(time_zone) = 'text' AND length(time_zone) BETWEEN 1 AND 255),
    CONSTRAINT a_cadence_or_a_cron_expression CHECK (cron IS NOT NULL OR every_seconds > 0),
    CONSTRAINT enabled_is_0_or_1 CHECK (enabled IN (0, 1)),
    CONSTRAINT times_are_microseconds CHECK (
        typeof(since_at) = 'integer' AND typeof(created_at) = 'integer' AND typeof(updated_at) = 'integer'
        AND typeof(coalesce(last_run_at, 0)) = 'integer' AND typeof(coalesce(run_requested_at, 0)) = 'integer')
) WITHOUT ROWID;

CREATE TABLE "{{schema}}_{{fanout}}_cursor" (
    topic             TEXT    NOT NULL,
    work_key          TEXT    NOT NULL,
    shard_key         TEXT    NOT NULL,
    -- Up to when the shard's work is done. Never goes back.
    last_completed_at INTEGER,
    -- The message of the slice that was planned last, the nominal time of that, and where the cursor stood then.
    slice_id          BLOB,
    slice_due_at      INTEGER,
    slice_cursor_at   INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,

    PRIMARY KEY (topic, work_key, shard_key),
    CONSTRAINT topic_is_1_to_100_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 100 AND instr(topic, char(0)) = 0),
    CONSTRAINT work_key_is_1_to_100_characters CHECK (typeof(work_key) = 'text' AND length(work_key) BETWEEN 1 AND 100 AND instr(work_key, char(0)) = 0),
    CONSTRAINT shard_key_is_1_to_256_characters CHECK (typeof(shard_key) = 'text' AND length(shard_key) BETWEEN 1 AND 256 AND instr(shard_key, char(0)) = 0),
    CONSTRAINT slice_id_is_16_bytes CHECK (slice_id IS NULL OR (typeof(slice_id) = 'blob' AND length(slice_id) = 16)),
    CONSTRAINT times_are_microseconds CHECK (
        typeof(created_at) = 'integer' AND typeof(updated_at) = 'integer' AND typeof(coalesce(last_completed_at, 0)) = 'integer'
        AND typeof(coalesce(slice_due_at, 0)) = 'integer' AND typeof(coalesce(slice_cursor_at, 0)) = 'integer')
) WITHOUT ROWID;
