-- The columns of the key first, in two tables without rowids that have them in another order: `PRAGMA integrity_check` of SQLite 3.40 and its neighbours
-- takes every row of such a table for damaged. No name is changed on the way, which would have SQLite look at every view and trigger there is.

-- What a record of the audit trail is about.
CREATE TABLE IF NOT EXISTS "{{schema}}_{{audit}}_anchor_before" AS
SELECT audit_id, kind, value, recorded_at FROM "{{schema}}_{{audit}}_anchor";

DROP TABLE "{{schema}}_{{audit}}_anchor";

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

INSERT INTO "{{schema}}_{{audit}}_anchor" (audit_id, kind, value, recorded_at)
SELECT audit_id, kind, value, recorded_at FROM "{{schema}}_{{audit}}_anchor_before" ORDER BY audit_id, kind, value;

DROP TABLE "{{schema}}_{{audit}}_anchor_before";

CREATE INDEX "{{schema}}_{{audit}}_anchor_of" ON "{{schema}}_{{audit}}_anchor" (kind, value, recorded_at, audit_id);

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

-- What operations are found by.
CREATE TABLE IF NOT EXISTS "{{schema}}_{{operations}}_tag_before" AS
SELECT operation_id, key, value, started_at FROM "{{schema}}_{{operations}}_tag";

DROP TABLE "{{schema}}_{{operations}}_tag";

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

INSERT INTO "{{schema}}_{{operations}}_tag" (operation_id, key, value, started_at)
SELECT operation_id, key, value, started_at FROM "{{schema}}_{{operations}}_tag_before" ORDER BY operation_id, key;

DROP TABLE "{{schema}}_{{operations}}_tag_before";

CREATE INDEX "{{schema}}_{{operations}}_tag_of" ON "{{schema}}_{{operations}}_tag" (key, value, started_at, operation_id);
