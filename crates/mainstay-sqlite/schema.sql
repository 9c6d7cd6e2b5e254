-- The migrated schema under the default names, for reading. Made by the tests with UPDATE_SCHEMA=1.

CREATE TABLE "infra_audit" (
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

CREATE INDEX "infra_audit_actor" ON "infra_audit" (actor, recorded_at, id);

CREATE TABLE "infra_audit_anchor" (
    audit_id    BLOB    NOT NULL,
    kind        TEXT    NOT NULL,
    value       TEXT    NOT NULL,
    recorded_at INTEGER NOT NULL,

    PRIMARY KEY (audit_id, kind, value),
    CONSTRAINT kind_is_1_to_64_characters CHECK (typeof(kind) = 'text' AND length(kind) BETWEEN 1 AND 64 AND instr(kind, char(0)) = 0),
    CONSTRAINT value_is_1_to_512_characters CHECK (typeof(value) = 'text' AND length(value) BETWEEN 1 AND 512 AND instr(value, char(0)) = 0),
    CONSTRAINT times_are_microseconds CHECK (typeof(recorded_at) = 'integer')
) WITHOUT ROWID;

CREATE TRIGGER "infra_audit_anchor_kept" BEFORE DELETE ON "infra_audit_anchor"
WHEN NOT EXISTS (SELECT 1 FROM "infra_audit_purging")
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are deleted by its retention alone');
END;

CREATE TRIGGER "infra_audit_anchor_not_replaced" BEFORE INSERT ON "infra_audit_anchor"
WHEN EXISTS (SELECT 1 FROM "infra_audit_anchor" a WHERE a.audit_id = NEW.audit_id AND a.kind = NEW.kind AND a.value = NEW.value AND a.recorded_at <> NEW.recorded_at)
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;

CREATE INDEX "infra_audit_anchor_of" ON "infra_audit_anchor" (kind, value, recorded_at, audit_id);

CREATE TRIGGER "infra_audit_anchor_unchanged" BEFORE UPDATE ON "infra_audit_anchor"
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;

CREATE INDEX "infra_audit_correlation" ON "infra_audit" (correlation_id, recorded_at, id) WHERE correlation_id IS NOT NULL;

CREATE TRIGGER "infra_audit_kept" BEFORE DELETE ON "infra_audit"
WHEN NOT EXISTS (SELECT 1 FROM "infra_audit_purging")
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are deleted by its retention alone');
END;

CREATE INDEX "infra_audit_name" ON "infra_audit" (name, recorded_at, id);

CREATE TRIGGER "infra_audit_not_replaced" BEFORE INSERT ON "infra_audit"
WHEN EXISTS (SELECT 1 FROM "infra_audit" a WHERE a.id = NEW.id OR a.seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;

CREATE TABLE "infra_audit_purging" (
    now INTEGER NOT NULL
);

CREATE INDEX "infra_audit_recent" ON "infra_audit" (recorded_at, id);

CREATE INDEX "infra_audit_trouble" ON "infra_audit" (recorded_at, id) WHERE outcome <> 0;

CREATE TRIGGER "infra_audit_unchanged" BEFORE UPDATE ON "infra_audit"
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only: its records are never changed');
END;

CREATE TABLE "infra_fanout" (
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

CREATE TABLE "infra_fanout_cursor" (
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

CREATE TABLE "infra_inbox" (
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

CREATE TRIGGER "infra_inbox_added" AFTER INSERT ON "infra_inbox"
BEGIN
    UPDATE "infra_inbox_entry" SET state = 0, processed_at = NULL, attempts = 0 WHERE work_item_id = NEW.id AND state = 3;
END;

CREATE TABLE "infra_inbox_entry" (
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

CREATE INDEX "infra_inbox_entry_seen" ON "infra_inbox_entry" (first_seen_at);

CREATE INDEX "infra_inbox_entry_settled" ON "infra_inbox_entry" (state, processed_at) WHERE processed_at IS NOT NULL;

CREATE INDEX "infra_inbox_entry_state" ON "infra_inbox_entry" (state, first_seen_at);

CREATE UNIQUE INDEX "infra_inbox_entry_work_item" ON "infra_inbox_entry" (work_item_id) WHERE work_item_id IS NOT NULL;

CREATE TABLE "infra_inbox_history" (
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

CREATE INDEX "infra_inbox_history_settled" ON "infra_inbox_history" (status, processed_at);

CREATE TABLE "infra_inbox_hold" (
    ordering_key TEXT    NOT NULL PRIMARY KEY,
    id           BLOB    NOT NULL,
    held_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE "infra_inbox_idempotency" (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    id              BLOB NOT NULL,
    message_id      BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX "infra_inbox_lane" ON "infra_inbox" (ordering_key) WHERE ordering_key IS NOT NULL;

CREATE INDEX "infra_inbox_lease" ON "infra_inbox" (priority, locked_until) WHERE status = 1;

CREATE VIEW "infra_inbox_ledger" AS
SELECT e.source, e.message_id, CASE WHEN e.state < 2 AND q.status = 1 THEN 1 ELSE e.state END AS state, e.hash, e.first_seen_at, e.last_seen_at,
       e.processed_at, coalesce(q.attempts, e.attempts) AS attempts, e.generation, e.owner,
       coalesce(CASE WHEN q.status = 1 THEN q.locked_until END, e.locked_until) AS locked_until, coalesce(q.last_error, e.last_error) AS last_error,
       e.work_item_id, coalesce(q.topic, (SELECT h.topic FROM "infra_inbox_history" h WHERE h.id = e.work_item_id)) AS topic, e.state AS entry_state
  FROM "infra_inbox_entry" e
  LEFT JOIN "infra_inbox" q ON q.id = e.work_item_id;

CREATE TRIGGER "infra_inbox_left" AFTER DELETE ON "infra_inbox" WHEN OLD.ordering_key IS NOT NULL
BEGIN
    UPDATE "infra_inbox" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_inbox" WHERE ordering_key = OLD.ordering_key);
END;

CREATE VIEW "infra_inbox_message" AS
SELECT id, message_id, topic, payload, correlation_id, status, NULL AS reason, attempts,
       CASE status WHEN 0 THEN attempts ELSE max(attempts - 1, 0) END AS retry_count,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, owner, generation, locked_until, NULL AS processed_at, NULL AS processed_by, seq
  FROM "infra_inbox"
UNION ALL
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts,
       CASE WHEN status = 2 OR reason = 'handler' THEN max(attempts - 1, 0) ELSE attempts END,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, NULL, generation, NULL, processed_at, processed_by, seq
  FROM "infra_inbox_history";

CREATE TRIGGER "infra_inbox_once" AFTER INSERT ON "infra_inbox"
WHEN EXISTS (SELECT 1 FROM "infra_inbox_history" WHERE id = NEW.id AND seq <> NEW.seq)
BEGIN
    SELECT CASE (SELECT status FROM "infra_inbox_history" WHERE id = NEW.id)
               WHEN 2 THEN RAISE(ABORT, 'the id belongs to a work item that is done: use every id once')
               ELSE RAISE(ABORT, 'the id belongs to a work item that is failed: use every id once') END;
END;

CREATE TABLE "infra_inbox_paused" (
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

CREATE INDEX "infra_inbox_ready" ON "infra_inbox" (priority, due_at) WHERE status = 0 AND parked = 0;

CREATE TRIGGER "infra_inbox_receive" INSTEAD OF INSERT ON "infra_inbox_received"
BEGIN
    INSERT INTO "infra_inbox_entry" (source, message_id)
    SELECT NEW.source, NEW.message_id WHERE NOT EXISTS (SELECT 1 FROM "infra_inbox_entry" WHERE source = NEW.source AND message_id = NEW.message_id);
    UPDATE "infra_inbox_entry" SET last_seen_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE source = NEW.source AND message_id = NEW.message_id;

    -- Waiting: the new content, in the old place. What has been delivered before waits for its next attempt all the same, so that
    -- duplicates do not wear it out. What somebody has reserved waits for the end of that.
    UPDATE "infra_inbox_entry" SET hash = NEW.hash
     WHERE source = NEW.source AND message_id = NEW.message_id AND state < 2 AND EXISTS (SELECT 1 FROM "infra_inbox" q WHERE q.id = work_item_id AND q.status = 0);
    UPDATE "infra_inbox"
       SET topic = NEW.topic, payload = NEW.payload, correlation_id = NEW.correlation_id,
           headers = json_set(coalesce(NEW.headers, '{}'), '$."mainstay-source"', NEW.source, '$."mainstay-message-id"', NEW.message_id),
           expires_at = coalesce(NEW.expires_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.expires_in),
           requested_due_at = coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in),
           due_at = max(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in, 0), CASE WHEN generation > 0 THEN due_at ELSE 0 END,
                        coalesce((SELECT e.locked_until FROM "infra_inbox_entry" e WHERE e.source = NEW.source AND e.message_id = NEW.message_id), 0))
     WHERE status = 0 AND id = (SELECT e.work_item_id FROM "infra_inbox_entry" e WHERE e.source = NEW.source AND e.message_id = NEW.message_id AND e.state < 2);

    -- Dead: as if it were new. Whoever still has the old row may be at it until his claim would have lapsed, so that counts as a reservation.
    DELETE FROM "infra_inbox_history" WHERE id = (SELECT e.work_item_id FROM "infra_inbox_entry" e WHERE e.source = NEW.source AND e.message_id = NEW.message_id AND e.state = 3);
    UPDATE "infra_inbox_entry"
       SET state = (SELECT q.locked_until FROM "infra_inbox" q WHERE q.id = work_item_id AND q.status = 1 AND q.locked_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) IS NOT NULL,
           locked_until = (SELECT q.locked_until FROM "infra_inbox" q WHERE q.id = work_item_id AND q.status = 1 AND q.locked_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
           attempts = 0, processed_at = NULL, work_item_id = NULL
     WHERE source = NEW.source AND message_id = NEW.message_id AND state = 3;

    -- Not in the queue: there it goes. Not before the end of a reservation: should its holder die, workers take over.
    UPDATE "infra_inbox_entry" SET hash = NEW.hash, work_item_id = coalesce(NEW.work_item_id, CAST(randomblob(6) || substr(x'404142434445464748494A4B4C4D4E4F', 1 + (random() & 15), 1) || randomblob(1)
            || substr(x'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF', 1 + (random() & 63), 1) || randomblob(7) AS BLOB))
     WHERE source = NEW.source AND message_id = NEW.message_id AND state < 2 AND (work_item_id IS NULL OR NOT EXISTS (SELECT 1 FROM "infra_inbox" q WHERE q.id = work_item_id));
    INSERT INTO "infra_inbox" (
        id, message_id, topic, payload, correlation_id, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, headers)
    SELECT e.work_item_id, coalesce(NEW.item_message_id, CAST(randomblob(6) || substr(x'404142434445464748494A4B4C4D4E4F', 1 + (random() & 15), 1) || randomblob(1)
            || substr(x'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF', 1 + (random() & 63), 1) || randomblob(7) AS BLOB)), NEW.topic, NEW.payload, NEW.correlation_id,
           max(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in, 0), coalesce(e.locked_until, 0)),
           coalesce(NEW.due_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.due_in), coalesce(NEW.expires_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + NEW.expires_in), coalesce(NEW.priority, 0),
           NEW.ordering_key, coalesce(NEW.hold_on_failure, 0),
           json_set(coalesce(NEW.headers, '{}'), '$."mainstay-source"', NEW.source, '$."mainstay-message-id"', NEW.message_id)
      FROM "infra_inbox_entry" e
     WHERE e.source = NEW.source AND e.message_id = NEW.message_id AND e.state < 2
       AND NOT EXISTS (SELECT 1 FROM "infra_inbox" q WHERE q.id = e.work_item_id);
END;

CREATE VIEW "infra_inbox_received" AS
SELECT source, message_id, NULL AS topic, NULL AS payload, hash, NULL AS correlation_id, NULL AS due_at, NULL AS due_in, NULL AS expires_at,
       NULL AS expires_in, NULL AS priority, NULL AS ordering_key, NULL AS hold_on_failure, NULL AS headers, work_item_id, NULL AS item_message_id
  FROM "infra_inbox_entry";

CREATE TRIGGER "infra_inbox_released" AFTER DELETE ON "infra_inbox_hold"
BEGIN
    UPDATE "infra_inbox" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_inbox" WHERE ordering_key = OLD.ordering_key);
END;

CREATE TRIGGER "infra_inbox_returned" AFTER UPDATE OF status ON "infra_inbox"
WHEN OLD.status = 1 AND NEW.status = 0 AND EXISTS (SELECT 1 FROM "infra_inbox_entry" WHERE work_item_id = NEW.id AND state >= 2)
BEGIN
    INSERT INTO "infra_inbox_history" (
        seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, status, reason, processed_at, processed_by,
        generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
    SELECT seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, (SELECT state FROM "infra_inbox_entry" WHERE work_item_id = NEW.id),
           CASE (SELECT state FROM "infra_inbox_entry" WHERE work_item_id = NEW.id) WHEN 3 THEN 'handler' END, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, NULL,
           generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, coalesce((SELECT last_error FROM "infra_inbox_entry" WHERE work_item_id = NEW.id), last_error), headers, payload
      FROM "infra_inbox" WHERE seq = NEW.seq;
    DELETE FROM "infra_inbox" WHERE seq = NEW.seq;
END;

CREATE TRIGGER "infra_inbox_revived" AFTER UPDATE OF work_item_id ON "infra_inbox_entry"
WHEN OLD.state = 3 AND OLD.work_item_id IS NOT NULL AND NEW.work_item_id IS NOT OLD.work_item_id
BEGIN
    UPDATE "infra_inbox" SET due_at = max(due_at, coalesce((SELECT q.locked_until FROM "infra_inbox" q WHERE q.id = OLD.work_item_id), 0))
     WHERE status = 0 AND seq = (
           SELECT min(a.seq) FROM "infra_inbox" a
            WHERE a.id <> OLD.work_item_id AND a.ordering_key = (SELECT q.ordering_key FROM "infra_inbox" q WHERE q.id = OLD.work_item_id));
    DELETE FROM "infra_inbox" WHERE id = OLD.work_item_id;
END;

CREATE INDEX "infra_inbox_running" ON "infra_inbox" (ordering_key, locked_until) WHERE ordering_key IS NOT NULL AND status = 1;

CREATE TRIGGER "infra_inbox_settled" AFTER INSERT ON "infra_inbox_history"
BEGIN
    UPDATE "infra_inbox_entry"
       SET state = NEW.status, processed_at = NEW.processed_at, attempts = NEW.attempts, owner = NULL, locked_until = NULL,
           last_error = coalesce(NEW.last_error, last_error)
     WHERE work_item_id = NEW.id AND state < 2;
END;

CREATE TRIGGER "infra_inbox_withdrawn" AFTER UPDATE OF state ON "infra_inbox_entry"
WHEN NEW.state >= 2 AND OLD.state < 2 AND NEW.work_item_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "infra_inbox_history" WHERE id = NEW.work_item_id)
BEGIN
    INSERT INTO "infra_inbox_history" (
        seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, status, reason, processed_at, processed_by,
        generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
    SELECT seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, NEW.state,
           CASE NEW.state WHEN 3 THEN 'handler' END, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, NULL,
           generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, coalesce(NEW.last_error, last_error), headers, payload
      FROM "infra_inbox" WHERE id = NEW.work_item_id AND status = 0;
    DELETE FROM "infra_inbox" WHERE id = NEW.work_item_id AND status = 0;
END;

CREATE TABLE "infra_job_runs" (
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

CREATE TABLE "infra_job_runs_history" (
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

CREATE INDEX "infra_job_runs_history_settled" ON "infra_job_runs_history" (status, processed_at);

CREATE TABLE "infra_job_runs_hold" (
    ordering_key TEXT    NOT NULL PRIMARY KEY,
    id           BLOB    NOT NULL,
    held_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE "infra_job_runs_idempotency" (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    id              BLOB NOT NULL,
    message_id      BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX "infra_job_runs_lane" ON "infra_job_runs" (ordering_key) WHERE ordering_key IS NOT NULL;

CREATE INDEX "infra_job_runs_lease" ON "infra_job_runs" (priority, locked_until) WHERE status = 1;

CREATE TRIGGER "infra_job_runs_left" AFTER DELETE ON "infra_job_runs" WHEN OLD.ordering_key IS NOT NULL
BEGIN
    UPDATE "infra_job_runs" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_job_runs" WHERE ordering_key = OLD.ordering_key);
END;

CREATE VIEW "infra_job_runs_message" AS
SELECT id, message_id, topic, payload, correlation_id, status, NULL AS reason, attempts,
       CASE status WHEN 0 THEN attempts ELSE max(attempts - 1, 0) END AS retry_count,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, owner, generation, locked_until, NULL AS processed_at, NULL AS processed_by, seq
  FROM "infra_job_runs"
UNION ALL
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts,
       CASE WHEN status = 2 OR reason = 'handler' THEN max(attempts - 1, 0) ELSE attempts END,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, NULL, generation, NULL, processed_at, processed_by, seq
  FROM "infra_job_runs_history";

CREATE TRIGGER "infra_job_runs_once" AFTER INSERT ON "infra_job_runs"
WHEN EXISTS (SELECT 1 FROM "infra_job_runs_history" WHERE id = NEW.id AND seq <> NEW.seq)
BEGIN
    SELECT CASE (SELECT status FROM "infra_job_runs_history" WHERE id = NEW.id)
               WHEN 2 THEN RAISE(ABORT, 'the id belongs to a work item that is done: use every id once')
               ELSE RAISE(ABORT, 'the id belongs to a work item that is failed: use every id once') END;
END;

CREATE TABLE "infra_job_runs_paused" (
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

CREATE INDEX "infra_job_runs_ready" ON "infra_job_runs" (priority, due_at) WHERE status = 0 AND parked = 0;

CREATE TRIGGER "infra_job_runs_released" AFTER DELETE ON "infra_job_runs_hold"
BEGIN
    UPDATE "infra_job_runs" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_job_runs" WHERE ordering_key = OLD.ordering_key);
END;

CREATE INDEX "infra_job_runs_running" ON "infra_job_runs" (ordering_key, locked_until) WHERE ordering_key IS NOT NULL AND status = 1;

CREATE TABLE "infra_jobs" (
    name                   TEXT    NOT NULL PRIMARY KEY,
    topic                  TEXT    NOT NULL,
    cron                   TEXT    NOT NULL,
    time_zone              TEXT    NOT NULL DEFAULT 'UTC',
    enabled                INTEGER NOT NULL DEFAULT 1,
    -- What becomes of late occurrences: 0 skip, 1 once, 2 all (with cap and window).
    misfire                INTEGER NOT NULL DEFAULT 1,
    misfire_cap            INTEGER,
    misfire_window_seconds INTEGER,
    -- What happens while an earlier run is not over: 0 allow, 1 skip, 2 queue.
    overlap                INTEGER NOT NULL DEFAULT 0,
    jitter_seconds         INTEGER NOT NULL DEFAULT 0,
    priority               INTEGER NOT NULL DEFAULT 0,
    -- Grows with every change of the definition.
    version                INTEGER NOT NULL DEFAULT 1,
    created_at             INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    updated_at             INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    -- The occurrence that is looked at next. Null while the job is disabled, and until a scheduler has calculated it.
    next_nominal_at        INTEGER,
    -- The last occurrence that was looked at.
    last_nominal_at        INTEGER,
    -- Why a scheduler can't work with it: expression or zone can't be read. One that can takes it back.
    problem                TEXT,
    payload                TEXT    NOT NULL DEFAULT '',

    CONSTRAINT name_is_1_to_255_characters CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 255 AND instr(name, char(0)) = 0),
    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255 AND instr(topic, char(0)) = 0),
    CONSTRAINT cron_and_time_zone_are_text CHECK (typeof(cron) = 'text' AND length(cron) BETWEEN 1 AND 1000 AND typeof(time_zone) = 'text' AND length(time_zone) BETWEEN 1 AND 255),
    CONSTRAINT payload_is_text CHECK (typeof(payload) = 'text'),
    CONSTRAINT enabled_is_0_or_1 CHECK (enabled IN (0, 1)),
    -- Cap and window belong to the policy "all", and to no other.
    CONSTRAINT misfire_is_skip_once_or_all CHECK (
        (misfire IN (0, 1) AND misfire_cap IS NULL AND misfire_window_seconds IS NULL)
        OR (misfire = 2 AND typeof(misfire_cap) = 'integer' AND misfire_cap BETWEEN 1 AND 1000
            AND typeof(misfire_window_seconds) = 'integer' AND misfire_window_seconds BETWEEN 1 AND 31622400)),
    CONSTRAINT overlap_is_allow_skip_or_queue CHECK (overlap IN (0, 1, 2)),
    CONSTRAINT jitter_is_at_most_a_day CHECK (typeof(jitter_seconds) = 'integer' AND jitter_seconds BETWEEN 0 AND 86400),
    CONSTRAINT priority_is_minus_9_to_9 CHECK (typeof(priority) = 'integer' AND priority BETWEEN -9 AND 9),
    CONSTRAINT times_are_microseconds CHECK (
        typeof(created_at) = 'integer' AND typeof(updated_at) = 'integer'
        AND (next_nominal_at IS NULL OR (typeof(next_nominal_at) = 'integer' AND next_nominal_at BETWEEN -377705023201000000 AND 253402207200000000))
        AND (last_nominal_at IS NULL OR typeof(last_nominal_at) = 'integer'))
);

CREATE INDEX "infra_jobs_due" ON "infra_jobs" (coalesce(next_nominal_at, -400000000000000000), name) WHERE enabled = 1 AND problem IS NULL;

CREATE TRIGGER "infra_jobs_item_gone" AFTER DELETE ON "infra_job_runs_history"
BEGIN
    UPDATE "infra_jobs_ledger"
       SET outcome = CASE WHEN OLD.status = 2 THEN 1 WHEN OLD.reason = 'cancelled' THEN 4 ELSE 2 END, ended_at = OLD.processed_at,
           error = CASE OLD.status WHEN 3 THEN coalesce(OLD.last_error, OLD.reason) END
     WHERE id = OLD.id AND outcome IS NULL AND dispatched_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM "infra_job_runs" WHERE id = OLD.id);
    UPDATE "infra_jobs_ledger" SET outcome = NULL, ended_at = NULL, error = NULL, started_at = NULL
     WHERE id = OLD.id AND dispatched_at IS NULL
       AND EXISTS (SELECT 1 FROM "infra_job_runs" WHERE id = OLD.id);
END;

CREATE TABLE "infra_jobs_ledger" (
    id            BLOB    NOT NULL PRIMARY KEY,
    job           TEXT    NOT NULL,
    "trigger"     TEXT    NOT NULL,
    -- The occurrence it is for; of a run that was asked for by hand, when that was.
    nominal_at    INTEGER NOT NULL,
    -- When it may start: the nominal time and the job's jitter.
    due_at        INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    dispatched_at INTEGER,
    started_at    INTEGER,
    ended_at      INTEGER,
    -- How it ended, once that was collected: 1 succeeded, 2 failed, 3 skipped, 4 cancelled.
    outcome       INTEGER,
    attempts      INTEGER NOT NULL DEFAULT 0,
    error         TEXT,
    output        TEXT,

    -- One run per occurrence, however many schedulers there are.
    CONSTRAINT one_run_per_occurrence UNIQUE (job, nominal_at),
    CONSTRAINT id_is_uuid CHECK (typeof(id) = 'blob' AND length(id) = 16),
    CONSTRAINT trigger_is_cron_or_manual CHECK ("trigger" IN ('cron', 'manual')),
    CONSTRAINT an_end_has_a_time CHECK ((outcome IS NULL AND ended_at IS NULL) OR (outcome IN (1, 2, 3, 4) AND ended_at IS NOT NULL))
) WITHOUT ROWID;

CREATE INDEX "infra_jobs_ledger_ended" ON "infra_jobs_ledger" (outcome = 2, ended_at) WHERE outcome IS NOT NULL;

CREATE INDEX "infra_jobs_ledger_open" ON "infra_jobs_ledger" (job, id) WHERE outcome IS NULL;

CREATE INDEX "infra_jobs_ledger_recent" ON "infra_jobs_ledger" (nominal_at, id);

CREATE TRIGGER "infra_jobs_message_gone" AFTER DELETE ON "infra_outbox_history" WHEN instr(OLD.headers, '"mainstay-run"') > 0
BEGIN
    UPDATE "infra_jobs_ledger"
       SET outcome = CASE WHEN OLD.status = 2 THEN 1 WHEN OLD.reason = 'cancelled' THEN 4 ELSE 2 END, ended_at = OLD.processed_at, attempts = OLD.attempts,
           error = CASE OLD.status WHEN 3 THEN coalesce(OLD.last_error, OLD.reason) END
     WHERE id = OLD.id AND outcome IS NULL AND NOT EXISTS (SELECT 1 FROM "infra_outbox" WHERE id = OLD.id);
    UPDATE "infra_jobs_ledger" SET outcome = NULL, ended_at = NULL, error = NULL, started_at = NULL
     WHERE id = OLD.id AND EXISTS (SELECT 1 FROM "infra_outbox" WHERE id = OLD.id);
END;

CREATE INDEX "infra_jobs_problem" ON "infra_jobs" (name) WHERE enabled = 1 AND problem IS NOT NULL;

CREATE VIEW "infra_jobs_run" AS
SELECT l.id, l.job, l."trigger", l.nominal_at, l.due_at,
       CASE WHEN l.outcome = 1 THEN 'succeeded' WHEN l.outcome = 2 THEN 'failed' WHEN l.outcome = 3 THEN 'skipped' WHEN l.outcome = 4 THEN 'cancelled'
            WHEN h.status = 2 THEN 'succeeded'
            WHEN h.status = 3 THEN CASE h.reason WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END
            WHEN o.status = 1 THEN 'running'
            WHEN o.status = 0 THEN 'dispatched'
            WHEN q.status = 1 THEN 'claimed'
            WHEN q.status = 0 THEN 'pending'
            WHEN l.dispatched_at IS NOT NULL THEN 'failed'
            WHEN s.status = 2 THEN 'succeeded'
            WHEN s.reason = 'cancelled' THEN 'cancelled'
            ELSE 'failed' END AS state,
       l.created_at, l.dispatched_at, l.started_at,
       coalesce(l.ended_at, h.processed_at, CASE WHEN l.dispatched_at IS NULL THEN s.processed_at END) AS ended_at,
       coalesce(o.attempts, h.attempts, l.attempts) AS attempts,
       coalesce(l.error, h.last_error, o.last_error, CASE WHEN l.dispatched_at IS NULL THEN s.last_error END) AS error,
       l.output
  FROM "infra_jobs_ledger" l
  LEFT JOIN "infra_outbox" o ON o.id = CASE WHEN l.outcome IS NULL THEN l.id END
  LEFT JOIN "infra_outbox_history" h ON h.id = CASE WHEN l.outcome IS NULL THEN l.id END
  LEFT JOIN "infra_job_runs" q ON q.id = CASE WHEN l.outcome IS NULL THEN l.id END
  LEFT JOIN "infra_job_runs_history" s ON s.id = CASE WHEN l.outcome IS NULL THEN l.id END;

CREATE TABLE "infra_joins" (
    id             BLOB    NOT NULL PRIMARY KEY,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    deadline_at    INTEGER,
    ended_at       INTEGER,
    expected_steps INTEGER NOT NULL,
    -- How many steps have to complete.
    needed         INTEGER NOT NULL,
    completed      INTEGER NOT NULL DEFAULT 0,
    failed         INTEGER NOT NULL DEFAULT 0,
    -- 0 all, 1 any, 2 quorum, 3 deadline.
    mode           INTEGER NOT NULL DEFAULT 0,
    -- 0 pending, 1 completed, 2 failed, 3 cancelled.
    status         INTEGER NOT NULL DEFAULT 0,
    reason         TEXT,
    grouping_key   TEXT,

    CONSTRAINT id_is_uuid CHECK (typeof(id) = 'blob' AND length(id) = 16),
    CONSTRAINT expected_steps_are_at_least_1 CHECK (typeof(expected_steps) = 'integer' AND expected_steps BETWEEN 1 AND 1000000000),
    CONSTRAINT needed_is_1_to_the_expected_steps CHECK (typeof(needed) = 'integer' AND needed BETWEEN 1 AND expected_steps),
    CONSTRAINT counters_never_exceed_the_expected_steps CHECK (completed >= 0 AND failed >= 0 AND completed + failed <= expected_steps),
    CONSTRAINT grouping_key_is_1_to_255_characters CHECK (grouping_key IS NULL OR (typeof(grouping_key) = 'text' AND length(grouping_key) BETWEEN 1 AND 255 AND instr(grouping_key, char(0)) = 0)),
    CONSTRAINT mode_is_known CHECK (mode IN (0, 1, 2, 3) AND (mode <> 3 OR deadline_at IS NOT NULL)),
    CONSTRAINT end_goes_with_status CHECK (
        status IN (0, 1, 2, 3) AND (status = 0) = (ended_at IS NULL) AND (status = 2) = (reason IS NOT NULL)
        AND (reason IS NULL OR reason IN ('steps', 'deadline')))
) WITHOUT ROWID;

CREATE TRIGGER "infra_joins_attached" AFTER INSERT ON "infra_joins_member"
WHEN NEW.state = 0 AND EXISTS (SELECT 1 FROM "infra_outbox_history" WHERE id = NEW.work_item_id)
BEGIN
    UPDATE "infra_joins_member"
       SET state = (SELECT h.status - 1 FROM "infra_outbox_history" h WHERE h.id = NEW.work_item_id)
     WHERE join_id = NEW.join_id AND work_item_id = NEW.work_item_id
       AND NOT EXISTS (SELECT 1 FROM "infra_outbox" WHERE id = NEW.work_item_id)
       AND EXISTS (SELECT 1 FROM "infra_joins" WHERE id = NEW.join_id AND status = 0);
END;

CREATE TABLE "infra_joins_continuation" (
    join_id         BLOB    NOT NULL,
    outcome         INTEGER NOT NULL,
    work_item_id    BLOB    NOT NULL,
    message_id      BLOB    NOT NULL,
    topic           TEXT    NOT NULL,
    priority        INTEGER NOT NULL DEFAULT 0,
    hold_on_failure INTEGER NOT NULL DEFAULT 0,
    ordering_key    TEXT,
    correlation_id  TEXT,
    headers         TEXT,
    payload         TEXT    NOT NULL,

    PRIMARY KEY (join_id, outcome),
    CONSTRAINT outcome_is_known CHECK (outcome IN (1, 2)),
    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255)
);

CREATE TRIGGER "infra_joins_continued" AFTER UPDATE OF status ON "infra_joins" WHEN OLD.status = 0 AND NEW.status IN (1, 2)
BEGIN
    INSERT INTO "infra_outbox" (topic, payload, created_at, due_at, priority, ordering_key, hold_on_failure, correlation_id, headers)
    SELECT c.topic, c.payload, NEW.ended_at, NEW.ended_at, c.priority, c.ordering_key, c.hold_on_failure, c.correlation_id, c.headers
      FROM "infra_joins_continuation" c WHERE c.join_id = NEW.id AND c.outcome = NEW.status
       AND (EXISTS (SELECT 1 FROM "infra_outbox" o WHERE o.id = c.work_item_id)
            OR EXISTS (SELECT 1 FROM "infra_outbox_history" h WHERE h.id = c.work_item_id));
    INSERT INTO "infra_outbox" (
        id, message_id, topic, payload, created_at, due_at, priority, ordering_key, hold_on_failure, correlation_id, headers)
    SELECT c.work_item_id, c.message_id, c.topic, c.payload, NEW.ended_at, NEW.ended_at, c.priority, c.ordering_key, c.hold_on_failure, c.correlation_id, c.headers
      FROM "infra_joins_continuation" c WHERE c.join_id = NEW.id AND c.outcome = NEW.status
       AND NOT EXISTS (SELECT 1 FROM "infra_outbox" o WHERE o.id = c.work_item_id)
       AND NOT EXISTS (SELECT 1 FROM "infra_outbox_history" h WHERE h.id = c.work_item_id);
END;

CREATE TRIGGER "infra_joins_counted" AFTER UPDATE OF state ON "infra_joins_member" WHEN OLD.state = 0 AND NEW.state IN (1, 2)
BEGIN
    UPDATE "infra_joins"
       SET completed = completed + (NEW.state = 1), failed = failed + (NEW.state = 2), updated_at = NEW.updated_at
     WHERE id = NEW.join_id AND status = 0;
    UPDATE "infra_joins"
       SET status = CASE WHEN mode IN (0, 3) AND failed > 0 OR mode IN (1, 2) AND completed < needed THEN 2 ELSE 1 END,
           reason = CASE WHEN mode IN (0, 3) AND failed > 0 OR mode IN (1, 2) AND completed < needed THEN 'steps' END,
           ended_at = NEW.updated_at
     WHERE id = NEW.join_id AND status = 0
       AND CASE WHEN mode IN (0, 3) THEN completed + failed = expected_steps ELSE completed >= needed OR failed > expected_steps - needed END;
END;

CREATE INDEX "infra_joins_ended" ON "infra_joins" (ended_at) WHERE status <> 0;

CREATE INDEX "infra_joins_grouping" ON "infra_joins" (grouping_key, id) WHERE grouping_key IS NOT NULL;

CREATE TABLE "infra_joins_member" (
    join_id      BLOB    NOT NULL,
    work_item_id BLOB    NOT NULL,
    -- 0 not counted, 1 counted as completed, 2 counted as failed, 3 cancelled with its join.
    state        INTEGER NOT NULL DEFAULT 0,
    updated_at   INTEGER NOT NULL,

    PRIMARY KEY (join_id, work_item_id),
    CONSTRAINT state_is_known CHECK (state IN (0, 1, 2, 3)),
    CONSTRAINT ids_are_uuids CHECK (typeof(join_id) = 'blob' AND length(join_id) = 16 AND typeof(work_item_id) = 'blob' AND length(work_item_id) = 16)
) WITHOUT ROWID;

CREATE INDEX "infra_joins_member_item" ON "infra_joins_member" (work_item_id);

CREATE INDEX "infra_joins_pending" ON "infra_joins" (deadline_at) WHERE status = 0;

CREATE TABLE "infra_lease" (
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

CREATE TRIGGER "infra_lease_forward" BEFORE UPDATE ON "infra_lease"
WHEN NEW.epoch < OLD.epoch OR NEW.fencing_token < OLD.fencing_token OR NEW.name <> OLD.name
BEGIN
    SELECT RAISE(ABORT, 'the numbers of a lease never go back');
END;

CREATE TRIGGER "infra_lease_kept" BEFORE DELETE ON "infra_lease"
BEGIN
    SELECT RAISE(ABORT, 'a lease is never deleted: its numbers would begin again');
END;

CREATE TABLE "infra_mainstay_migration" (
    outbox         TEXT    NOT NULL COLLATE NOCASE,
    version        INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    checksum       TEXT    NOT NULL,
    oldest_program INTEGER NOT NULL,
    applied_at     INTEGER NOT NULL,
    PRIMARY KEY (outbox, version)
);

CREATE TABLE "infra_operations" (
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

CREATE INDEX "infra_operations_alive" ON "infra_operations" (updated_at, id) WHERE state = 0;

CREATE INDEX "infra_operations_correlation" ON "infra_operations" (correlation_id, started_at, id) WHERE correlation_id IS NOT NULL;

CREATE INDEX "infra_operations_ended" ON "infra_operations" (ended_at, id) WHERE ended_at IS NOT NULL;

CREATE TABLE "infra_operations_event" (
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

CREATE TRIGGER "infra_operations_final" BEFORE UPDATE OF state, done, total, message, error, events
ON "infra_operations" WHEN OLD.state <> 0
BEGIN
    SELECT RAISE(ABORT, 'the operation has ended, and an end is final');
END;

CREATE INDEX "infra_operations_name" ON "infra_operations" (name, started_at, id);

CREATE TRIGGER "infra_operations_not_replaced" BEFORE INSERT ON "infra_operations"
WHEN EXISTS (SELECT 1 FROM "infra_operations" o WHERE o.id = NEW.id OR o.seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'the operation is there already');
END;

CREATE INDEX "infra_operations_parent" ON "infra_operations" (parent_id, started_at, id) WHERE parent_id IS NOT NULL;

CREATE INDEX "infra_operations_recent" ON "infra_operations" (started_at, id);

CREATE INDEX "infra_operations_state" ON "infra_operations" (state, started_at, id);

CREATE TABLE "infra_operations_tag" (
    operation_id BLOB    NOT NULL,
    key          TEXT    NOT NULL,
    value        TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,

    PRIMARY KEY (operation_id, key),
    CONSTRAINT key_is_1_to_64_characters CHECK (typeof(key) = 'text' AND length(key) BETWEEN 1 AND 64 AND instr(key, char(0)) = 0),
    CONSTRAINT value_is_1_to_255_characters CHECK (typeof(value) = 'text' AND length(value) BETWEEN 1 AND 255 AND instr(value, char(0)) = 0),
    CONSTRAINT times_are_microseconds CHECK (typeof(started_at) = 'integer')
) WITHOUT ROWID;

CREATE INDEX "infra_operations_tag_of" ON "infra_operations_tag" (key, value, started_at, operation_id);

CREATE TABLE "infra_outbox" (
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

CREATE TABLE "infra_outbox_history" (
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

CREATE INDEX "infra_outbox_history_settled" ON "infra_outbox_history" (status, processed_at);

CREATE TABLE "infra_outbox_hold" (
    ordering_key TEXT    NOT NULL PRIMARY KEY,
    id           BLOB    NOT NULL,
    held_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE "infra_outbox_idempotency" (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    id              BLOB NOT NULL,
    message_id      BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX "infra_outbox_lane" ON "infra_outbox" (ordering_key) WHERE ordering_key IS NOT NULL;

CREATE INDEX "infra_outbox_lease" ON "infra_outbox" (priority, locked_until) WHERE status = 1;

CREATE TRIGGER "infra_outbox_left" AFTER DELETE ON "infra_outbox" WHEN OLD.ordering_key IS NOT NULL
BEGIN
    UPDATE "infra_outbox" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_outbox" WHERE ordering_key = OLD.ordering_key);
END;

CREATE VIEW "infra_outbox_message" AS
SELECT id, message_id, topic, payload, correlation_id, status, NULL AS reason, attempts,
       CASE status WHEN 0 THEN attempts ELSE max(attempts - 1, 0) END AS retry_count,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, owner, generation, locked_until, NULL AS processed_at, NULL AS processed_by, seq
  FROM "infra_outbox"
UNION ALL
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts,
       CASE WHEN status = 2 OR reason = 'handler' THEN max(attempts - 1, 0) ELSE attempts END,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, NULL, generation, NULL, processed_at, processed_by, seq
  FROM "infra_outbox_history";

CREATE TRIGGER "infra_outbox_once" AFTER INSERT ON "infra_outbox"
WHEN EXISTS (SELECT 1 FROM "infra_outbox_history" WHERE id = NEW.id AND seq <> NEW.seq)
BEGIN
    SELECT CASE (SELECT status FROM "infra_outbox_history" WHERE id = NEW.id)
               WHEN 2 THEN RAISE(ABORT, 'the id belongs to a work item that is done: use every id once')
               ELSE RAISE(ABORT, 'the id belongs to a work item that is failed: use every id once') END;
END;

CREATE TABLE "infra_outbox_paused" (
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

CREATE INDEX "infra_outbox_ready" ON "infra_outbox" (priority, due_at) WHERE status = 0 AND parked = 0;

CREATE TRIGGER "infra_outbox_released" AFTER DELETE ON "infra_outbox_hold"
BEGIN
    UPDATE "infra_outbox" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_outbox" WHERE ordering_key = OLD.ordering_key);
END;

CREATE INDEX "infra_outbox_running" ON "infra_outbox" (ordering_key, locked_until) WHERE ordering_key IS NOT NULL AND status = 1;

CREATE VIEW "infra_outbox_schema" AS
SELECT max(m.version)        AS version,
       max(m.oldest_program) AS oldest_program,
       max(m.applied_at)     AS applied_at
  FROM "infra_mainstay_migration" m
 WHERE m.outbox = 'outbox';

CREATE TABLE "infra_timers" (
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

CREATE TABLE "infra_timers_history" (
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

CREATE INDEX "infra_timers_history_settled" ON "infra_timers_history" (status, processed_at);

CREATE TABLE "infra_timers_hold" (
    ordering_key TEXT    NOT NULL PRIMARY KEY,
    id           BLOB    NOT NULL,
    held_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE "infra_timers_idempotency" (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    id              BLOB NOT NULL,
    message_id      BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX "infra_timers_lane" ON "infra_timers" (ordering_key) WHERE ordering_key IS NOT NULL;

CREATE INDEX "infra_timers_lease" ON "infra_timers" (priority, locked_until) WHERE status = 1;

CREATE TRIGGER "infra_timers_left" AFTER DELETE ON "infra_timers" WHEN OLD.ordering_key IS NOT NULL
BEGIN
    UPDATE "infra_timers" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_timers" WHERE ordering_key = OLD.ordering_key);
END;

CREATE VIEW "infra_timers_message" AS
SELECT id, message_id, topic, payload, correlation_id, status, NULL AS reason, attempts,
       CASE status WHEN 0 THEN attempts ELSE max(attempts - 1, 0) END AS retry_count,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, owner, generation, locked_until, NULL AS processed_at, NULL AS processed_by, seq
  FROM "infra_timers"
UNION ALL
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts,
       CASE WHEN status = 2 OR reason = 'handler' THEN max(attempts - 1, 0) ELSE attempts END,
       created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, idempotency_key, headers,
       last_error, NULL, generation, NULL, processed_at, processed_by, seq
  FROM "infra_timers_history";

CREATE TRIGGER "infra_timers_once" AFTER INSERT ON "infra_timers"
WHEN EXISTS (SELECT 1 FROM "infra_timers_history" WHERE id = NEW.id AND seq <> NEW.seq)
BEGIN
    SELECT CASE (SELECT status FROM "infra_timers_history" WHERE id = NEW.id)
               WHEN 2 THEN RAISE(ABORT, 'the id belongs to a work item that is done: use every id once')
               ELSE RAISE(ABORT, 'the id belongs to a work item that is failed: use every id once') END;
END;

CREATE TABLE "infra_timers_paused" (
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

CREATE INDEX "infra_timers_ready" ON "infra_timers" (priority, due_at) WHERE status = 0 AND parked = 0;

CREATE TRIGGER "infra_timers_released" AFTER DELETE ON "infra_timers_hold"
BEGIN
    UPDATE "infra_timers" SET parked = 0
     WHERE parked = 1 AND seq = (SELECT min(seq) FROM "infra_timers" WHERE ordering_key = OLD.ordering_key);
END;

CREATE INDEX "infra_timers_running" ON "infra_timers" (ordering_key, locked_until) WHERE ordering_key IS NOT NULL AND status = 1;
