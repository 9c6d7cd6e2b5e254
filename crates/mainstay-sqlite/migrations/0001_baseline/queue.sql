-- A work queue: one table of open messages, one of settled ones. Rendered for the outbox, the inbox, the timers and the job runs.
--
-- What the layout relies on, and what would break it:
--   * Ids are 16-byte blobs. Times are integers: microseconds since 1970-01-01 UTC, by SQLite's clock (which counts
--     milliseconds). julianday() and not unixepoch('subsec'), which older SQLites in other languages don't have.
--   * Any language may INSERT topic and payload alone: everything else has a default. No default and no constraint
--     uses a function younger than SQLite 3.9.
--   * Messages leave the open table when they are settled, so its indexes follow the backlog and not the traffic.
--   * seq never goes back (AUTOINCREMENT): a requeued message returns to its old place, which nobody else may have.
--   * The payload is the last column, so reading the others of a large row does not walk its overflow pages.

CREATE TABLE "{{schema}}_{{queue}}" (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    -- A random UUID (version 4) unless given. The version and the variant are picked from a list of the bytes allowed.
    id               BLOB    NOT NULL UNIQUE DEFAULT (
        CAST(randomblob(6) || substr(x'404142434445464748494A4B4C4D4E4F', 1 + (random() & 15), 1) || randomblob(1)
            || substr(x'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF', 1 + (random() & 63), 1) || randomblob(7) AS BLOB)),
    message_id       BLOB    NOT NULL DEFAULT (
        CAST(randomblob(6) || substr(x'404142434445464748494A4B4C4D4E4F', 1 + (random() & 15), 1) || randomblob(1)
            || substr(x'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF', 1 + (random() & 63), 1) || randomblob(7) AS BLOB)),
    topic            TEXT    NOT NULL,
    created_at       INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    -- When it may be claimed next: the due time, or the end of a delay.
    due_at           INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    -- The due time asked for at enqueue, if any.
    requested_due_at INTEGER,
    expires_at       INTEGER,
    -- 0 Ready, 1 InProgress.
    status           INTEGER NOT NULL DEFAULT 0,
    -- Waits behind another message of its ordering key, or for a held key, out of sight of claims. Only a hint: the
    -- order is checked again at each claim, and the triggers below bring the next one forward.
    parked           INTEGER NOT NULL DEFAULT 0,
    owner            BLOB,
    locked_until     INTEGER,
    -- Raised by every claim, the first time to seq * 65536 + 1, so that it never repeats for an id; a settle with an older one changes
    -- nothing. 0: never claimed.
    generation       INTEGER NOT NULL DEFAULT 0,
    -- Deliveries, counted when claimed. Given back by a release.
    attempts         INTEGER NOT NULL DEFAULT 0,
    priority         INTEGER NOT NULL DEFAULT 0,
    hold_on_failure  INTEGER NOT NULL DEFAULT 0,
    ordering_key     TEXT,
    idempotency_key  TEXT,
    correlation_id   TEXT,
    last_error       TEXT,
    -- A JSON object of texts.
    headers          TEXT,
    payload          TEXT    NOT NULL,

    CONSTRAINT id_is_uuid CHECK (typeof(id) = 'blob' AND length(id) = 16),
    CONSTRAINT message_id_is_uuid CHECK (typeof(message_id) = 'blob' AND length(message_id) = 16),
    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255 AND instr(topic, char(0)) = 0),
    CONSTRAINT payload_is_text CHECK (typeof(payload) = 'text'),
    CONSTRAINT ordering_key_is_1_to_255_characters CHECK (ordering_key IS NULL OR (typeof(ordering_key) = 'text' AND length(ordering_key) BETWEEN 1 AND 255 AND instr(ordering_key, char(0)) = 0)),
    CONSTRAINT idempotency_key_is_1_to_255_characters CHECK (idempotency_key IS NULL OR (typeof(idempotency_key) = 'text' AND length(idempotency_key) BETWEEN 1 AND 255 AND instr(idempotency_key, char(0)) = 0)),
    CONSTRAINT correlation_id_is_1_to_255_characters CHECK (correlation_id IS NULL OR (typeof(correlation_id) = 'text' AND length(correlation_id) BETWEEN 1 AND 255 AND instr(correlation_id, char(0)) = 0)),
    CONSTRAINT last_error_is_1_to_2048_characters CHECK (last_error IS NULL OR (typeof(last_error) = 'text' AND length(last_error) BETWEEN 1 AND 2048)),
    CONSTRAINT headers_are_text CHECK (headers IS NULL OR typeof(headers) = 'text'),
    CONSTRAINT priority_is_minus_9_to_9 CHECK (typeof(priority) = 'integer' AND priority BETWEEN -9 AND 9),
    CONSTRAINT flags_are_0_or_1 CHECK (parked IN (0, 1) AND hold_on_failure IN (0, 1)),
    CONSTRAINT counts_are_not_negative CHECK (typeof(attempts) = 'integer' AND attempts >= 0 AND typeof(generation) = 'integer' AND generation >= 0),
    -- The years -9999 to 9999, as far as calendars go.
    CONSTRAINT times_are_microseconds CHECK (
        typeof(created_at) = 'integer' AND created_at BETWEEN -377705023201000000 AND 253402207200000000
        AND typeof(due_at) = 'integer' AND due_at BETWEEN -377705023201000000 AND 253402207200000000
        AND (requested_due_at IS NULL OR (typeof(requested_due_at) = 'integer' AND requested_due_at BETWEEN -377705023201000000 AND 253402207200000000))
        AND (expires_at IS NULL OR (typeof(expires_at) = 'integer' AND expires_at BETWEEN -377705023201000000 AND 253402207200000000))),
    -- Only open states live here, and a lease is there exactly when the message is in progress.
    CONSTRAINT lease_goes_with_status CHECK (
        (status = 0 AND owner IS NULL AND locked_until IS NULL)
        OR (status = 1 AND parked = 0 AND typeof(owner) = 'blob' AND length(owner) = 16 AND typeof(locked_until) = 'integer'
            AND locked_until BETWEEN -377705023201000000 AND 253402207200000000)),
    -- Without a key nothing would ever bring it back.
    CONSTRAINT parked_needs_a_key CHECK (parked = 0 OR ordering_key IS NOT NULL)
);

-- What a claim walks: one precise range per priority, in the order of due_at and seq (the rowid ends every index).
CREATE INDEX "{{schema}}_{{queue}}_ready" ON "{{schema}}_{{queue}}" (priority, due_at) WHERE status = 0 AND parked = 0;
-- Which leases have lapsed.
CREATE INDEX "{{schema}}_{{queue}}_lease" ON "{{schema}}_{{queue}}" (priority, locked_until) WHERE status = 1;
-- Who is first in an ordering key, and who of it is running.
CREATE INDEX "{{schema}}_{{queue}}_lane" ON "{{schema}}_{{queue}}" (ordering_key) WHERE ordering_key IS NOT NULL;
CREATE INDEX "{{schema}}_{{queue}}_running" ON "{{schema}}_{{queue}}" (ordering_key, locked_until) WHERE ordering_key IS NOT NULL AND status = 1;

CREATE TABLE "{{schema}}_{{queue}}_history" (
    seq              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL UNIQUE,
    message_id       BLOB    NOT NULL,
    topic            TEXT    NOT NULL,
    created_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    requested_due_at INTEGER,
    expires_at       INTEGER,
    -- 2 Done, 3 Failed.
    status           INTEGER NOT NULL,
    -- Why it failed.
    reason           TEXT,
    processed_at     INTEGER NOT NULL,
    processed_by     BLOB,
    -- Carried on by a requeue, so that a claim from before it can never settle the message.
    generation       INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    hold_on_failure  INTEGER NOT NULL,
    ordering_key     TEXT,
    idempotency_key  TEXT,
    correlation_id   TEXT,
    last_error       TEXT,
    headers          TEXT,
    -- Null when the payloads of done messages are not kept.
    payload          TEXT,

    CONSTRAINT reason_goes_with_status CHECK (
        (status = 2 AND reason IS NULL)
        OR (status = 3 AND reason IS NOT NULL AND reason IN ('handler', 'delivery-limit', 'expired', 'cancelled'))),
    -- A failed message can be requeued, so its payload must still be there.
    CONSTRAINT failed_keeps_payload CHECK (status = 2 OR payload IS NOT NULL)
);

-- Retention walks each status from its oldest end.
CREATE INDEX "{{schema}}_{{queue}}_history_settled" ON "{{schema}}_{{queue}}_history" (status, processed_at);

-- A table of its own: a key must outlive the open message, and hold over open and settled messages together.
CREATE TABLE "{{schema}}_{{queue}}_idempotency" (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    id              BLOB NOT NULL,
    message_id      BLOB NOT NULL
) WITHOUT ROWID;

-- Ordering keys that stand still because a message of theirs failed, until released or that message is requeued.
CREATE TABLE "{{schema}}_{{queue}}_hold" (
    ordering_key TEXT    NOT NULL PRIMARY KEY,
    id           BLOB    NOT NULL,
    held_at      INTEGER NOT NULL
) WITHOUT ROWID;

-- An id is used once: here the table's own constraint sees to that, beyond it this. (A requeue brings a message back under its own seq.)
-- The texts are literals because older SQLites take no others.
CREATE TRIGGER "{{schema}}_{{queue}}_once" AFTER INSERT ON "{{schema}}_{{queue}}"
WHEN EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}_history" WHERE id = NEW.id AND seq <> NEW.seq)
BEGIN
    SELECT CASE (SELECT status FROM "{{schema}}_{{queue}}_history" WHERE id = NEW.id)
               WHEN 2 THEN RAISE(ABORT, 'the id belongs to a work item that is done: use every id once')
               ELSE RAISE(ABORT, 'the id belongs to a work item that is failed: use every id once') END;
END;

-- Nothing may stay parked for ever: whenever a message leaves its ordering key, or the key is released, the next comes forward.
CREATE TRIGGER "{{schema}}_{{queue}}_left" AFTER DELETE ON "{{schema}}_{{queue}}" WHEN OLD.ordering_key IS NOT NULL
BEGIN
    UPDATE "{{schema}}_{{queue}}" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "{{schema}}_{{queue}}" WHERE ordering_key = OLD.ordering_key);
END;

CREATE TRIGGER "{{schema}}_{{queue}}_released" AFTER DELETE ON "{{schema}}_{{queue}}_hold"
BEGIN
    UPDATE "{{schema}}_{{queue}}" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "{{schema}}_{{queue}}" WHERE ordering_key = OLD.ordering_key);
END;

-- Open and settled messages together, for people and reports.
CREATE VIEW "{{schema}}_{{queue}}_message" AS
SELECT id, message_id, topic, payload, correlation_id, status, NULL AS reason, attempts,
       CASE status WHEN 0 THEN attempts ELSE max(attempts - 1, 0) END AS retry_count,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, owner, generation, locked_until, NULL AS processed_at, NULL AS processed_by, seq
  FROM "{{schema}}_{{queue}}"
UNION ALL
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts,
       CASE WHEN status = 2 OR reason = 'handler' THEN max(attempts - 1, 0) ELSE attempts END,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, NULL, generation, NULL, processed_at, processed_by, seq
  FROM "{{schema}}_{{queue}}_history";

-- Topics that nobody claims from until somebody resumes them.

CREATE TABLE "{{schema}}_{{queue}}_paused" (
    topic     TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    -- Who did it.
    paused_by TEXT    NOT NULL,
    -- Why, in their words.
    reason    TEXT,

    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255 AND instr(topic, char(0)) = 0),
    CONSTRAINT times_are_microseconds CHECK (typeof(paused_at) = 'integer'),
    CONSTRAINT actor_is_1_to_255_characters CHECK (typeof(paused_by) = 'text' AND length(paused_by) BETWEEN 1 AND 255 AND instr(paused_by, char(0)) = 0),
    CONSTRAINT reason_is_1_to_255_characters CHECK (
        reason IS NULL OR (typeof(reason) = 'text' AND length(reason) BETWEEN 1 AND 255 AND instr(reason, char(0)) = 0))
) WITHOUT ROWID;
