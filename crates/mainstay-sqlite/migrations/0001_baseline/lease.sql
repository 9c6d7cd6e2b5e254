-- Leases: one row for each name that was ever held.
--
-- A row is never deleted and its numbers never go back: a number given twice would let two holders pass the same fence. Times
-- are integers as in the outbox: microseconds since 1970-01-01 UTC, by SQLite's clock.

CREATE TABLE "{{schema}}_{{lease}}" (
    name          TEXT    NOT NULL PRIMARY KEY,
    -- Who holds it, or was the last to if it lapsed. Null once it was released.
    owner         TEXT,
    -- What its holder says about itself.
    context       TEXT,
    -- How often it was acquired. Fences writes.
    epoch         INTEGER NOT NULL,
    -- How often it was acquired or renewed.
    fencing_token INTEGER NOT NULL,
    acquired_at   INTEGER NOT NULL,
    renewed_at    INTEGER NOT NULL,
    -- Until when it is held, or when it ended.
    expires_at    INTEGER NOT NULL,

    CONSTRAINT name_is_1_to_255_characters CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 255 AND instr(name, char(0)) = 0),
    CONSTRAINT owner_is_1_to_255_characters CHECK (owner IS NULL OR (typeof(owner) = 'text' AND length(owner) BETWEEN 1 AND 255 AND instr(owner, char(0)) = 0)),
    CONSTRAINT context_is_1_to_4096_characters CHECK (context IS NULL OR (typeof(context) = 'text' AND length(context) BETWEEN 1 AND 4096 AND instr(context, char(0)) = 0)),
    CONSTRAINT numbers_grow_from_1 CHECK (typeof(epoch) = 'integer' AND typeof(fencing_token) = 'integer' AND epoch >= 1 AND fencing_token >= epoch),
    CONSTRAINT times_are_microseconds CHECK (typeof(acquired_at) = 'integer' AND typeof(renewed_at) = 'integer' AND typeof(expires_at) = 'integer')
) WITHOUT ROWID;

-- Only forward, whoever writes to the table.
CREATE TRIGGER "{{schema}}_{{lease}}_forward" BEFORE UPDATE ON "{{schema}}_{{lease}}"
WHEN NEW.epoch < OLD.epoch OR NEW.fencing_token < OLD.fencing_token OR NEW.name <> OLD.name
BEGIN
    SELECT RAISE(ABORT, 'the numbers of a lease never go back');
END;
CREATE TRIGGER "{{schema}}_{{lease}}_kept" BEFORE DELETE ON "{{schema}}_{{lease}}"
BEGIN
    SELECT RAISE(ABORT, 'a lease is never deleted: its numbers would begin again');
END;
