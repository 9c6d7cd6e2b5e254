-- A message that was marked as dead while a worker had it, and comes again, waits until that worker's claim would have lapsed, and so does what stands behind
-- the old row in its ordering key: at his next renewal at the latest the worker finds that the row is gone, but until then he may be at it.

DROP TRIGGER "{{schema}}_{{inbox}}_revived";
CREATE TRIGGER "{{schema}}_{{inbox}}_revived" AFTER UPDATE OF work_item_id ON "{{schema}}_{{inbox}}_entry"
WHEN OLD.state = 3 AND OLD.work_item_id IS NOT NULL AND NEW.work_item_id IS NOT OLD.work_item_id
BEGIN
    UPDATE "{{schema}}_{{inbox}}" SET due_at = max(due_at, coalesce((SELECT q.locked_until FROM "{{schema}}_{{inbox}}" q WHERE q.id = OLD.work_item_id), 0))
     WHERE status = 0 AND seq = (
           SELECT min(a.seq) FROM "{{schema}}_{{inbox}}" a
            WHERE a.id <> OLD.work_item_id AND a.ordering_key = (SELECT q.ordering_key FROM "{{schema}}_{{inbox}}" q WHERE q.id = OLD.work_item_id));
    DELETE FROM "{{schema}}_{{inbox}}" WHERE id = OLD.work_item_id;
END;

-- As it was, but for the dead.
DROP TRIGGER "{{schema}}_{{inbox}}_receive";
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
