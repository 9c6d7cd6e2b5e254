-- Operations: work that takes a while, from its start to its end.
--
-- Times are integers as in the outbox: microseconds since 1970-01-01 UTC, by SQLite's clock.

CREATE TABLE "{{schema}}_{{operations}}" (
    seq            INTEGER PRIMARY KEY,
    id             BLOB    NOT NULL UNIQUE,
    name           TEXT    NOT NULL,
    -- What it is a part of. That may have been deleted since.
    parent_id      BLOB,
    -- 0 running, 1 succeeded, 2 failed, 3 cancelled, 4 stalled. What is not 0 is final.
    state          INTEGER NOT NULL DEFAULT 0,
    -- How much is done, and of how much.
    done           INTEGER,
    total          INTEGER,
    message        TEXT,
    error          TEXT,
    -- Who started it.
    actor          TEXT    NOT NULL,
    correlation_id TEXT,
    -- How many events it has.
    events         INTEGER NOT NULL DEFAULT 0,
    started_at     INTEGER NOT NULL,
    -- The last sign of life.
    updated_at     INTEGER NOT NULL,
    ended_at       INTEGER,

    CONSTRAINT ids_are_uuids CHECK (
        typeof(id) = 'blob' AND length(id) = 16 AND (parent_id IS NULL OR (typeof(parent_id) = 'blob' AND length(parent_id) = 16))),
    CONSTRAINT times_are_microseconds CHECK (
        typeof(started_at) = 'integer' AND typeof(updated_at) = 'integer' AND (ended_at IS NULL OR typeof(ended_at) = 'integer')),
    CONSTRAINT name_is_1_to_255_characters CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 255 AND instr(name, char(0)) = 0),
    CONSTRAINT actor_is_1_to_255_characters CHECK (typeof(actor) = 'text' AND length(actor) BETWEEN 1 AND 255 AND instr(actor, char(0)) = 0),
    CONSTRAINT state_is_known CHECK (typeof(state) = 'integer' AND state BETWEEN 0 AND 4),
    CONSTRAINT what_ended_has_a_time CHECK ((state = 0) = (ended_at IS NULL)),
    CONSTRAINT progress_is_counted_from_0 CHECK (
        (done IS NULL OR (typeof(done) = 'integer' AND done >= 0)) AND (total IS NULL OR (typeof(total) = 'integer' AND total >= 0))),
    CONSTRAINT events_are_counted CHECK (typeof(events) = 'integer' AND events >= 0),
    CONSTRAINT texts_are_2048_characters_at_most CHECK (
        (message IS NULL OR (typeof(message) = 'text' AND length(message) <= 2048 AND instr(message, char(0)) = 0))
        AND (error IS NULL OR (typeof(error) = 'text' AND length(error) <= 2048 AND instr(error, char(0)) = 0))),
    CONSTRAINT correlation_id_is_1_to_255_characters CHECK (
        correlation_id IS NULL OR (typeof(correlation_id) = 'text' AND length(correlation_id) BETWEEN 1 AND 255 AND instr(correlation_id, char(0)) = 0))
);

CREATE INDEX "{{schema}}_{{operations}}_recent" ON "{{schema}}_{{operations}}" (started_at, id);
CREATE INDEX "{{schema}}_{{operations}}_name" ON "{{schema}}_{{operations}}" (name, started_at, id);
CREATE INDEX "{{schema}}_{{operations}}_state" ON "{{schema}}_{{operations}}" (state, started_at, id);
CREATE INDEX "{{schema}}_{{operations}}_parent" ON "{{schema}}_{{operations}}" (parent_id, started_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX "{{schema}}_{{operations}}_correlation" ON "{{schema}}_{{operations}}" (correlation_id, started_at, id) WHERE correlation_id IS NOT NULL;
-- The longest silent and the longest ended are found at once.
CREATE INDEX "{{schema}}_{{operations}}_alive" ON "{{schema}}_{{operations}}" (updated_at, id) WHERE state = 0;
CREATE INDEX "{{schema}}_{{operations}}_ended" ON "{{schema}}_{{operations}}" (ended_at, id) WHERE ended_at IS NOT NULL;

-- Terminal is terminal, whoever writes.
CREATE TRIGGER "{{schema}}_{{operations}}_final" BEFORE UPDATE OF state, done, total, message, error, events
ON "{{schema}}_{{operations}}" WHEN OLD.state <> 0
BEGIN
    SELECT RAISE(ABORT, 'the operation has ended, and an end is final');
END;

-- REPLACE fires no other trigger.
CREATE TRIGGER "{{schema}}_{{operations}}_not_replaced" BEFORE INSERT ON "{{schema}}_{{operations}}"
WHEN EXISTS (SELECT 1 FROM "{{schema}}_{{operations}}" o WHERE o.id = NEW.id OR o.seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'the operation is there already');
END;

-- What operations are found by. The time is the operation's, so that the newest with a tag are found at once.
CREATE TABLE "{{schema}}_{{operations}}_tag" (
    operation_id BLOB    NOT NULL,
    key          TEXT    NOT NULL,
    value        TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,

    PRIMARY KEY (operation_id, key),
    CONSTRAINT key_is_1_to_64_characters CHECK (typeof(key) = 'text' AND length(key) BETWEEN 1 AND 64 AND instr(key, char(0)) = 0),
    CONSTRAINT value_is_1_to_255_characters CHECK (typeof(value) = 'text' AND length(value) BETWEEN 1 AND 255 AND instr(value, char(0)) = 0),
    CONSTRAINT times_are_microseconds CHECK (typeof(started_at) = 'integer')
) WITHOUT ROWID;

CREATE INDEX "{{schema}}_{{operations}}_tag_of" ON "{{schema}}_{{operations}}_tag" (key, value, started_at, operation_id);

-- What happened in an operation, numbered from 1.
CREATE TABLE "{{schema}}_{{operations}}_event" (
    operation_id BLOB    NOT NULL,
    seq          INTEGER NOT NULL,
    recorded_at  INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    message      TEXT,
    -- For programs, as JSON.
    data         TEXT,

    PRIMARY KEY (operation_id, seq),
    CONSTRAINT times_are_microseconds CHECK (typeof(recorded_at) = 'integer'),
    CONSTRAINT kind_is_1_to_64_characters CHECK (typeof(kind) = 'text' AND length(kind) BETWEEN 1 AND 64 AND instr(kind, char(0)) = 0),
    CONSTRAINT message_is_2048_characters_at_most CHECK (
        message IS NULL OR (typeof(message) = 'text' AND length(message) <= 2048 AND instr(message, char(0)) = 0)),
    CONSTRAINT data_is_json_of_16_KiB_at_most CHECK (
        data IS NULL OR (typeof(data) = 'text' AND length(CAST(data AS BLOB)) <= 16384 AND json_valid(data)))
) WITHOUT ROWID;
