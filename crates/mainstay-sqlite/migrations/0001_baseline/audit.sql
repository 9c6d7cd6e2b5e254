-- The audit trail: who did what to what, and what came of it.
--
-- Records are only ever added. Times are integers as in the outbox: microseconds since 1970-01-01 UTC, by SQLite's clock.

CREATE TABLE "{{schema}}_{{audit}}" (
    seq            INTEGER PRIMARY KEY,
    id             BLOB    NOT NULL UNIQUE,
    recorded_at    INTEGER NOT NULL,
    -- What was done: outbox.requeue.
    name           TEXT    NOT NULL,
    -- Who did it.
    actor          TEXT    NOT NULL,
    -- 0 succeeded, 1 failed, 2 refused.
    outcome        INTEGER NOT NULL,
    correlation_id TEXT,
    -- What else there is to tell, as JSON.
    data           TEXT,

    CONSTRAINT id_is_a_uuid CHECK (typeof(id) = 'blob' AND length(id) = 16),
    CONSTRAINT times_are_microseconds CHECK (typeof(recorded_at) = 'integer'),
    CONSTRAINT name_is_1_to_255_characters CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 255 AND instr(name, char(0)) = 0),
    CONSTRAINT actor_is_1_to_255_characters CHECK (typeof(actor) = 'text' AND length(actor) BETWEEN 1 AND 255 AND instr(actor, char(0)) = 0),
    CONSTRAINT outcome_is_known CHECK (typeof(outcome) = 'integer' AND outcome BETWEEN 0 AND 2),
    CONSTRAINT correlation_id_is_1_to_255_characters CHECK (
        correlation_id IS NULL OR (typeof(correlation_id) = 'text' AND length(correlation_id) BETWEEN 1 AND 255 AND instr(correlation_id, char(0)) = 0)),
    CONSTRAINT data_is_json_of_16_KiB_at_most CHECK (
        data IS NULL OR (typeof(data) = 'text' AND length(CAST(data AS BLOB)) <= 16384 AND json_valid(data)))
);

CREATE INDEX "{{schema}}_{{audit}}_recent" ON "{{schema}}_{{audit}}" (recorded_at, id);
CREATE INDEX "{{schema}}_{{audit}}_name" ON "{{schema}}_{{audit}}" (name, recorded_at, id);
CREATE INDEX "{{schema}}_{{audit}}_actor" ON "{{schema}}_{{audit}}" (actor, recorded_at, id);
CREATE INDEX "{{schema}}_{{audit}}_correlation" ON "{{schema}}_{{audit}}" (correlation_id, recorded_at, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX "{{schema}}_{{audit}}_trouble" ON "{{schema}}_{{audit}}" (recorded_at, id) WHERE outcome <> 0;

-- What a record is about. The time is the record's, so that the newest about a thing are found at once.
CREATE TABLE "{{schema}}_{{audit}}_anchor" (
    audit_id    BLOB    NOT NULL,
    kind        TEXT    NOT NULL,
    value       TEXT    NOT NULL,
    recorded_at INTEGER NOT NULL,

    PRIMARY KEY (audit_id, kind, value),
    CONSTRAINT kind_is_1_to_64_characters CHECK (typeof(kind) = 'text' AND length(kind) BETWEEN 1 AND 64 AND instr(kind, char(0)) = 0),
    CONSTRAINT value_is_1_to_512_characters CHECK (typeof(value) = 'text' AND length(value) BETWEEN 1 AND 512 AND instr(value, char(0)) = 0),
    CONSTRAINT times_are_microseconds CHECK (typeof(recorded_at) = 'integer')
) WITHOUT ROWID;

CREATE INDEX "{{schema}}_{{audit}}_anchor_of" ON "{{schema}}_{{audit}}_anchor" (kind, value, recorded_at, audit_id);

-- Has a row only within a transaction that deletes records past their age.
CREATE TABLE "{{schema}}_{{audit}}_purging" (
    now INTEGER NOT NULL
);

CREATE TRIGGER "{{schema}}_{{audit}}_unchanged" BEFORE UPDATE ON "{{schema}}_{{audit}}"
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;
CREATE TRIGGER "{{schema}}_{{audit}}_kept" BEFORE DELETE ON "{{schema}}_{{audit}}"
WHEN NOT EXISTS (SELECT 1 FROM "{{schema}}_{{audit}}_purging")
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are deleted by its retention alone');
END;
-- REPLACE fires no other trigger.
CREATE TRIGGER "{{schema}}_{{audit}}_not_replaced" BEFORE INSERT ON "{{schema}}_{{audit}}"
WHEN EXISTS (SELECT 1 FROM "{{schema}}_{{audit}}" a WHERE a.id = NEW.id OR a.seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;
CREATE TRIGGER "{{schema}}_{{audit}}_anchor_not_replaced" BEFORE INSERT ON "{{schema}}_{{audit}}_anchor"
WHEN EXISTS (SELECT 1 FROM "{{schema}}_{{audit}}_anchor" a WHERE a.audit_id = NEW.audit_id AND a.kind = NEW.kind AND a.value = NEW.value AND a.recorded_at <> NEW.recorded_at)
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;
CREATE TRIGGER "{{schema}}_{{audit}}_anchor_unchanged" BEFORE UPDATE ON "{{schema}}_{{audit}}_anchor"
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;
CREATE TRIGGER "{{schema}}_{{audit}}_anchor_kept" BEFORE DELETE ON "{{schema}}_{{audit}}_anchor"
WHEN NOT EXISTS (SELECT 1 FROM "{{schema}}_{{audit}}_purging")
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are deleted by its retention alone');
END;
