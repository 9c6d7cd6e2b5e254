-- The ledger of what was received: one row for each message, known by its source and its id there. What is to be worked lies in the
-- queue beside it; a message that was only asked about has no row there. Queue and ledger follow each other by triggers, whoever
-- writes to them.
--
-- Any language receives a message into the queue by
--     INSERT INTO infra_inbox_received (source, message_id, topic, payload) VALUES (?, ?, ?, ?)
-- and asks whether one is done by its row here. A message that is known is not added a second time.

CREATE TABLE "{{schema}}_{{inbox}}_entry" (
    source        TEXT    NOT NULL,
    message_id    TEXT    NOT NULL,
    -- 0 Seen, 1 Processing, 2 Done, 3 Dead.
    state         INTEGER NOT NULL DEFAULT 0,
    -- The SHA-256 of the content.
    hash          BLOB,
    first_seen_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    last_seen_at  INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    processed_at  INTEGER,
    -- Reservations, or deliveries to workers once it is settled there. Duplicates never count.
    attempts      INTEGER NOT NULL DEFAULT 0,
    -- Raised by every reservation; a guard with an older one changes nothing.
    generation    INTEGER NOT NULL DEFAULT 0,
    -- Who has reserved it. Null when it was only marked as being processed.
    owner         BLOB,
    locked_until  INTEGER,
    last_error    TEXT,
    -- Its row in the queue or in its history. Null if it was never enqueued.
    work_item_id  BLOB,

    PRIMARY KEY (source, message_id),
    CONSTRAINT source_is_1_to_255_characters CHECK (typeof(source) = 'text' AND length(source) BETWEEN 1 AND 255 AND instr(source, char(0)) = 0),
    CONSTRAINT message_id_is_1_to_512_characters CHECK (typeof(message_id) = 'text' AND length(message_id) BETWEEN 1 AND 512 AND instr(message_id, char(0)) = 0),
    CONSTRAINT state_is_0_to_3 CHECK (state IN (0, 1, 2, 3)),
    CONSTRAINT hash_is_32_bytes CHECK (hash IS NULL OR (typeof(hash) = 'blob' AND length(hash) = 32)),
    CONSTRAINT reservation_goes_with_state CHECK (
        (state = 1 AND typeof(locked_until) = 'integer') OR (state <> 1 AND owner IS NULL AND locked_until IS NULL)),
    CONSTRAINT settled_has_a_time CHECK ((state >= 2) = (processed_at IS NOT NULL)),
    CONSTRAINT last_error_is_1_to_2048_characters CHECK (last_error IS NULL OR (typeof(last_error) = 'text' AND length(last_error) BETWEEN 1 AND 2048)),
    CONSTRAINT work_item_id_is_uuid CHECK (work_item_id IS NULL OR (typeof(work_item_id) = 'blob' AND length(work_item_id) = 16))
);

-- From a row of the queue to its message.
CREATE UNIQUE INDEX "{{schema}}_{{inbox}}_entry_work_item" ON "{{schema}}_{{inbox}}_entry" (work_item_id) WHERE work_item_id IS NOT NULL;
-- Listings and counts.
CREATE INDEX "{{schema}}_{{inbox}}_entry_seen" ON "{{schema}}_{{inbox}}_entry" (first_seen_at);
CREATE INDEX "{{schema}}_{{inbox}}_entry_state" ON "{{schema}}_{{inbox}}_entry" (state, first_seen_at);
-- Retention walks each state from its oldest end.
CREATE INDEX "{{schema}}_{{inbox}}_entry_settled" ON "{{schema}}_{{inbox}}_entry" (state, processed_at) WHERE processed_at IS NOT NULL;

-- What was settled in the queue is settled in the ledger. Done stays done, and dead stays dead until it is requeued.
CREATE TRIGGER "{{schema}}_{{inbox}}_settled" AFTER INSERT ON "{{schema}}_{{inbox}}_history"
BEGIN
    UPDATE "{{schema}}_{{inbox}}_entry"
       SET state = NEW.status, processed_at = NEW.processed_at, attempts = NEW.attempts, owner = NULL, locked_until = NULL,
           last_error = coalesce(NEW.last_error, last_error)
     WHERE work_item_id = NEW.id AND state < 2;
END;

-- What was requeued is no longer dead.
CREATE TRIGGER "{{schema}}_{{inbox}}_added" AFTER INSERT ON "{{schema}}_{{inbox}}"
BEGIN
    UPDATE "{{schema}}_{{inbox}}_entry" SET state = 0, processed_at = NULL, attempts = 0 WHERE work_item_id = NEW.id AND state = 3;
END;

-- What was marked as settled while a worker had it does not come back.
CREATE TRIGGER "{{schema}}_{{inbox}}_returned" AFTER UPDATE OF status ON "{{schema}}_{{inbox}}"
WHEN OLD.status = 1 AND NEW.status = 0 AND EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}_entry" WHERE work_item_id = NEW.id AND state >= 2)
BEGIN
    INSERT INTO "{{schema}}_{{inbox}}_history" (
        seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, status, reason, processed_at, processed_by,
        generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
    SELECT seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, (SELECT state FROM "{{schema}}_{{inbox}}_entry" WHERE work_item_id = NEW.id),
           CASE (SELECT state FROM "{{schema}}_{{inbox}}_entry" WHERE work_item_id = NEW.id) WHEN 3 THEN 'handler' END, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, NULL,
           generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, coalesce((SELECT last_error FROM "{{schema}}_{{inbox}}_entry" WHERE work_item_id = NEW.id), last_error), headers, payload
      FROM "{{schema}}_{{inbox}}" WHERE seq = NEW.seq;
    DELETE FROM "{{schema}}_{{inbox}}" WHERE seq = NEW.seq;
END;

-- What is settled in the ledger leaves the queue, unless a worker has it. (Not when it comes from there: then it is in the history.)
CREATE TRIGGER "{{schema}}_{{inbox}}_withdrawn" AFTER UPDATE OF state ON "{{schema}}_{{inbox}}_entry"
WHEN NEW.state >= 2 AND OLD.state < 2 AND NEW.work_item_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}_history" WHERE id = NEW.work_item_id)
BEGIN
    INSERT INTO "{{schema}}_{{inbox}}_history" (
        seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, status, reason, processed_at, processed_by,
        generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
    SELECT seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, NEW.state,
           CASE NEW.state WHEN 3 THEN 'handler' END, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, NULL,
           generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, coalesce(NEW.last_error, last_error), headers, payload
      FROM "{{schema}}_{{inbox}}" WHERE id = NEW.work_item_id AND status = 0;
    DELETE FROM "{{schema}}_{{inbox}}" WHERE id = NEW.work_item_id AND status = 0;
END;

-- A message that was marked as dead while a worker had it, and comes again, waits until that worker's claim would have lapsed, and so does what stands behind
-- the old row in its ordering key: at his next renewal at the latest the worker finds that the row is gone, but until then he may be at it.
CREATE TRIGGER "{{schema}}_{{inbox}}_revived" AFTER UPDATE OF work_item_id ON "{{schema}}_{{inbox}}_entry"
WHEN OLD.state = 3 AND OLD.work_item_id IS NOT NULL AND NEW.work_item_id IS NOT OLD.work_item_id
BEGIN
    UPDATE "{{schema}}_{{inbox}}" SET due_at = max(due_at, coalesce((SELECT q.locked_until FROM "{{schema}}_{{inbox}}" q WHERE q.id = OLD.work_item_id), 0))
     WHERE status = 0 AND seq = (
           SELECT min(a.seq) FROM "{{schema}}_{{inbox}}" a
            WHERE a.id <> OLD.work_item_id AND a.ordering_key = (SELECT q.ordering_key FROM "{{schema}}_{{inbox}}" q WHERE q.id = OLD.work_item_id));
    DELETE FROM "{{schema}}_{{inbox}}" WHERE id = OLD.work_item_id;
END;

-- Receiving into the queue: an INSERT here. due_at and expires_at are moments in microseconds, due_in and expires_in count from now.
CREATE VIEW "{{schema}}_{{inbox}}_received" AS
SELECT source, message_id, NULL AS topic, NULL AS payload, hash, NULL AS correlation_id, NULL AS due_at, NULL AS due_in, NULL AS expires_at,
       NULL AS expires_in, NULL AS priority, NULL AS ordering_key, NULL AS hold_on_failure, NULL AS headers, work_item_id, NULL AS item_message_id
  FROM "{{schema}}_{{inbox}}_entry";

CREATE TRIGGER "{{schema}}_{{inbox}}_receive" INSTEAD OF INSERT ON "{{schema}}_{{inbox}}_received"
BEGIN
    INSERT INTO "{{schema}}_{{inbox}}_entry" (source, message_id)
    SELECT NEW.source, NEW.message_id WHERE NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}_entry" WHERE source = NEW.source AND message_id = NEW.message_id);
    UPDATE "{{schema}}_{{inbox}}_entry" SET last_seen_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE source = NEW.source AND message_id = NEW.message_id;

    -- Waiting: the new content, in the old place. What has been delivered before waits for its next attempt all the same, so that
    -- duplicates do not wear it out. What somebody has reserved waits for the end of that.
    UPDATE "{{schema}}_{{inbox}}_entry" SET hash = NEW.hash
     WHERE source = NEW.source AND message_id = NEW.message_id AND state < 2 AND EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = work_item_id AND q.status = 0);
    UPDATE "{{schema}}_{{inbox}}"
       SET topic = NEW.topic, payload = NEW.payload, correlation_id = NEW.correlation_id,
           headers = json_set(coalesce(NEW.headers, '{}'), '$."mainstay-source"', NEW.source, '$."mainstay-message-id"', NEW.message_id),
           expires_at = coalesce(NEW.expires_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.expires_in),
           requested_due_at = coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in),
           due_at = max(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in, 0), CASE WHEN generation > 0 THEN due_at ELSE 0 END,
                        coalesce((SELECT e.locked_until FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = NEW.source AND e.message_id = NEW.message_id), 0))
     WHERE status = 0 AND id = (SELECT e.work_item_id FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = NEW.source AND e.message_id = NEW.message_id AND e.state < 2);

    -- Dead: as if it were new. Whoever still has the old row may be at it until his claim would have lapsed, so that counts as a reservation.
    DELETE FROM "{{schema}}_{{inbox}}_history" WHERE id = (SELECT e.work_item_id FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = NEW.source AND e.message_id = NEW.message_id AND e.state = 3);
    UPDATE "{{schema}}_{{inbox}}_entry"
       SET state = (SELECT q.locked_until FROM "{{schema}}_{{inbox}}" q WHERE q.id = work_item_id AND q.status = 1 AND q.locked_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) IS NOT NULL,
           locked_until = (SELECT q.locked_until FROM "{{schema}}_{{inbox}}" q WHERE q.id = work_item_id AND q.status = 1 AND q.locked_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
           attempts = 0, processed_at = NULL, work_item_id = NULL
     WHERE source = NEW.source AND message_id = NEW.message_id AND state = 3;

    -- Not in the queue: there it goes. Not before the end of a reservation: should its holder die, workers take over.
    UPDATE "{{schema}}_{{inbox}}_entry" SET hash = NEW.hash, work_item_id = coalesce(NEW.work_item_id, CAST(randomblob(6) || substr(x'404142434445464748494A4B4C4D4E4F', 1 + (random() & 15), 1) || randomblob(1)
            || substr(x'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF', 1 + (random() & 63), 1) || randomblob(7) AS BLOB))
     WHERE source = NEW.source AND message_id = NEW.message_id AND state < 2 AND (work_item_id IS NULL OR NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = work_item_id));
    INSERT INTO "{{schema}}_{{inbox}}" (
        id, message_id, topic, payload, correlation_id, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, headers)
    SELECT e.work_item_id, coalesce(NEW.item_message_id, CAST(randomblob(6) || substr(x'404142434445464748494A4B4C4D4E4F', 1 + (random() & 15), 1) || randomblob(1)
            || substr(x'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF', 1 + (random() & 63), 1) || randomblob(7) AS BLOB)), NEW.topic, NEW.payload, NEW.correlation_id,
           max(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in, 0), coalesce(e.locked_until, 0)),
           coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in), coalesce(NEW.expires_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.expires_in), coalesce(NEW.priority, 0),
           NEW.ordering_key, coalesce(NEW.hold_on_failure, 0),
           json_set(coalesce(NEW.headers, '{}'), '$."mainstay-source"', NEW.source, '$."mainstay-message-id"', NEW.message_id)
      FROM "{{schema}}_{{inbox}}_entry" e
     WHERE e.source = NEW.source AND e.message_id = NEW.message_id AND e.state < 2
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = e.work_item_id);
END;

-- Received messages with what the queue knows of them, for people and reports.
CREATE VIEW "{{schema}}_{{inbox}}_ledger" AS
SELECT e.source, e.message_id, CASE WHEN e.state < 2 AND q.status = 1 THEN 1 ELSE e.state END AS state, e.hash, e.first_seen_at, e.last_seen_at,
       e.processed_at, coalesce(q.attempts, e.attempts) AS attempts, e.generation, e.owner,
       coalesce(CASE WHEN q.status = 1 THEN q.locked_until END, e.locked_until) AS locked_until, coalesce(q.last_error, e.last_error) AS last_error,
       e.work_item_id, coalesce(q.topic, (SELECT h.topic FROM "{{schema}}_{{inbox}}_history" h WHERE h.id = e.work_item_id)) AS topic, e.state AS entry_state
  FROM "{{schema}}_{{inbox}}_entry" e
  LEFT JOIN "{{schema}}_{{inbox}}" q ON q.id = e.work_item_id;
