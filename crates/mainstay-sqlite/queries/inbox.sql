-- Every statement about the ledger of received messages. `-- name:` starts one; src/statements.rs lists them.
-- They may run in a transaction of any driver: so each answer is one text, in JSON, with times as microseconds. {{now}} is SQLite's clock.

-- name: seen
-- 1 source, 2 message id, 3 hash.
INSERT INTO "{{schema}}_{{inbox}}_entry" (source, message_id, hash, first_seen_at, last_seen_at) VALUES (?1, ?2, ?3, {{now}}, {{now}})
ON CONFLICT (source, message_id) DO UPDATE SET last_seen_at = max(last_seen_at, excluded.last_seen_at), hash = coalesce(hash, excluded.hash)
RETURNING json_array(state = 2, ?3 IS NOT NULL AND hash <> ?3) AS answer;

-- name: touch
-- 1 source, 2 message id.
UPDATE "{{schema}}_{{inbox}}_entry" SET last_seen_at = max(last_seen_at, {{now}}) WHERE source = ?1 AND message_id = ?2;

-- name: mark_processing
-- 1 source, 2 message id, 3 lease in microseconds. No answer: it is settled, or a guard has it.
INSERT INTO "{{schema}}_{{inbox}}_entry" (source, message_id, first_seen_at, last_seen_at, state, locked_until, generation, attempts)
VALUES (?1, ?2, {{now}}, {{now}}, 1, {{now}} + ?3, 1, 1)
ON CONFLICT (source, message_id) DO UPDATE
   SET state = 1, owner = NULL, locked_until = excluded.locked_until, generation = generation + 1, attempts = attempts + 1,
       last_seen_at = excluded.last_seen_at
 WHERE state < 2 AND NOT (state = 1 AND owner IS NOT NULL AND locked_until > {{now}})
RETURNING json_array(1) AS answer;

-- name: postpone
-- 1 source, 2 message id. Keeps workers off a message that somebody has reserved.
UPDATE "{{schema}}_{{inbox}}"
   SET due_at = max(due_at, (SELECT e.locked_until FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = ?1 AND e.message_id = ?2))
 WHERE status = 0 AND id = (SELECT e.work_item_id FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = ?1 AND e.message_id = ?2 AND e.state = 1);

-- name: mark_settled
-- 1 source, 2 message id, 3 state: 2 done or 3 dead, 4 error. No answer: it was so already, or is done.
INSERT INTO "{{schema}}_{{inbox}}_entry" (source, message_id, first_seen_at, last_seen_at, state, processed_at, last_error)
VALUES (?1, ?2, {{now}}, {{now}}, ?3, {{now}}, ?4)
ON CONFLICT (source, message_id) DO UPDATE
   SET state = excluded.state, processed_at = excluded.processed_at, owner = NULL, locked_until = NULL,
       last_error = coalesce(excluded.last_error, last_error), last_seen_at = excluded.last_seen_at
 WHERE state <> 2 AND state <> excluded.state
RETURNING json_array(1) AS answer;

-- name: mark_done_after_all
-- 1 source, 2 message id. One that was dead must not be requeued any more.
UPDATE "{{schema}}_{{inbox}}_history" SET status = 2, reason = NULL
 WHERE status = 3 AND id = (SELECT e.work_item_id FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = ?1 AND e.message_id = ?2 AND e.state = 2);

-- name: mark_dead_again
-- 1 source, 2 message id, 3 error.
UPDATE "{{schema}}_{{inbox}}_entry" SET last_seen_at = {{now}}, last_error = coalesce(?3, last_error)
 WHERE source = ?1 AND message_id = ?2 AND state = 3;

-- name: begin
-- 1 source, 2 message id, 3 hash, 4 owner, 5 lease in microseconds. Takes it if nobody has it, the queue neither.
INSERT INTO "{{schema}}_{{inbox}}_entry" AS e (source, message_id, hash, first_seen_at, last_seen_at, state, owner, locked_until, generation, attempts)
VALUES (?1, ?2, ?3, {{now}}, {{now}}, 1, ?4, {{now}} + ?5, 1, 1)
ON CONFLICT (source, message_id) DO UPDATE
   SET state = 1, owner = excluded.owner, locked_until = excluded.locked_until, generation = e.generation + 1, attempts = e.attempts + 1
 WHERE (e.state = 0 OR (e.state = 1 AND e.locked_until <= {{now}}))
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = e.work_item_id);

-- name: begun
-- 1 source, 2 message id, 3 hash, 4 owner.
SELECT json_array(
           CASE WHEN e.state = 1 AND e.owner = ?4 THEN 'new' WHEN e.state = 2 THEN 'done' WHEN e.state = 3 THEN 'dead' ELSE 'busy' END,
           e.generation, e.attempts, CASE WHEN e.state < 2 AND q.status = 1 THEN q.locked_until WHEN e.state < 2 AND q.status = 0 THEN max(q.due_at, coalesce(e.locked_until, 0), {{now}}) ELSE e.locked_until END, CASE WHEN e.state < 2 AND q.status = 1 THEN q.locked_until WHEN e.state < 2 AND q.status = 0 THEN max(q.due_at, coalesce(e.locked_until, 0), {{now}}) ELSE e.locked_until END - {{now}}, ?3 IS NOT NULL AND e.hash <> ?3) AS answer
  FROM "{{schema}}_{{inbox}}_entry" e LEFT JOIN "{{schema}}_{{inbox}}" q ON q.id = e.work_item_id
 WHERE e.source = ?1 AND e.message_id = ?2;

-- name: begin_seen
-- 1 source, 2 message id, 3 hash.
UPDATE "{{schema}}_{{inbox}}_entry" SET last_seen_at = max(last_seen_at, {{now}}), hash = coalesce(hash, ?3) WHERE source = ?1 AND message_id = ?2;

-- name: renew
-- 1 source, 2 message id, 3 owner, 4 generation, 5 lease in microseconds. No answer: it no longer holds.
UPDATE "{{schema}}_{{inbox}}_entry" AS e SET locked_until = {{now}} + ?5
 WHERE e.source = ?1 AND e.message_id = ?2 AND e.state = 1 AND e.owner = ?3 AND e.generation = ?4
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = e.work_item_id AND q.status = 1)
RETURNING json_array(locked_until) AS answer;

-- name: guard_settle
-- 1 source, 2 message id, 3 owner, 4 generation, 5 state: 2 done or 3 dead, 6 error. No answer: it no longer held.
UPDATE "{{schema}}_{{inbox}}_entry" AS e
   SET state = ?5, processed_at = {{now}}, owner = NULL, locked_until = NULL, last_error = coalesce(?6, e.last_error)
 WHERE e.source = ?1 AND e.message_id = ?2 AND e.state = 1 AND e.owner = ?3 AND e.generation = ?4
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = e.work_item_id AND q.status = 1)
RETURNING json_array(1) AS answer;

-- name: guard_release
-- 1 source, 2 message id, 3 owner, 4 generation, 5 error. What is given back without an error was no attempt.
UPDATE "{{schema}}_{{inbox}}_entry" AS e
   SET state = 0, owner = NULL, locked_until = NULL, attempts = max(e.attempts - (?5 IS NULL), 0), last_error = coalesce(?5, e.last_error)
 WHERE e.source = ?1 AND e.message_id = ?2 AND e.state = 1 AND e.owner = ?3 AND e.generation = ?4
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = e.work_item_id AND q.status = 1)
RETURNING json_array(1) AS answer;

-- name: hasten
-- 1 source, 2 message id. It was kept from the workers until the end of a reservation.
UPDATE "{{schema}}_{{inbox}}" SET due_at = max({{now}}, coalesce(requested_due_at, 0))
 WHERE status = 0 AND generation = 0
   AND id = (SELECT e.work_item_id FROM "{{schema}}_{{inbox}}_entry" e WHERE e.source = ?1 AND e.message_id = ?2 AND e.state = 0);

-- name: enqueue_before
-- 1 source, 2 message id, 3 hash. Writes first, so that nobody else can between the steps.
INSERT INTO "{{schema}}_{{inbox}}_entry" AS e (source, message_id, first_seen_at, last_seen_at) VALUES (?1, ?2, {{now}}, {{now}})
ON CONFLICT (source, message_id) DO UPDATE SET last_seen_at = max(last_seen_at, excluded.last_seen_at)
RETURNING json_array(state, hash IS NOT NULL AND hash <> ?3, EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = work_item_id)) AS answer;

-- name: enqueue
-- 1 source, 2 message id, 3 hash, 4 topic, 5 payload, 6 correlation id, 7 due at, 8 due in microseconds, 9 expires at,
-- 10 expires in microseconds, 11 priority, 12 ordering key, 13 hold on failure, 14 headers, 15 work item id, 16 its message id in the queue.
INSERT INTO "{{schema}}_{{inbox}}_received" (
    source, message_id, hash, topic, payload, correlation_id, due_at, due_in, expires_at, expires_in, priority, ordering_key, hold_on_failure,
    headers, work_item_id, item_message_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16);

-- name: enqueue_after
-- 1 source, 2 message id.
SELECT json_array(CASE WHEN e.work_item_id IS NOT NULL THEN lower(hex(e.work_item_id)) END, q.status) AS answer
  FROM "{{schema}}_{{inbox}}_entry" e LEFT JOIN "{{schema}}_{{inbox}}" q ON q.id = e.work_item_id
 WHERE e.source = ?1 AND e.message_id = ?2;

-- name: get
-- 1 source, 2 message id.
SELECT json_object(
           'source', l.source, 'message_id', l.message_id, 'state', l.state, 'hash', lower(hex(l.hash)), 'first_seen_at', l.first_seen_at,
           'last_seen_at', l.last_seen_at, 'processed_at', l.processed_at, 'attempts', l.attempts, 'generation', l.generation,
           'owner', CASE WHEN l.owner IS NOT NULL THEN lower(hex(l.owner)) END, 'locked_until', l.locked_until, 'last_error', l.last_error,
           'work_item', CASE WHEN l.work_item_id IS NOT NULL THEN lower(hex(l.work_item_id)) END, 'topic', l.topic) AS answer
  FROM "{{schema}}_{{inbox}}_ledger" l
 WHERE l.source = ?1 AND l.message_id = ?2;

-- name: list
-- 1 source, 2 topic, 3 and 4 the message that the page before ended with, 5 rows at most.
SELECT json_object(
           'source', l.source, 'message_id', l.message_id, 'state', l.state, 'hash', lower(hex(l.hash)), 'first_seen_at', l.first_seen_at,
           'last_seen_at', l.last_seen_at, 'processed_at', l.processed_at, 'attempts', l.attempts, 'generation', l.generation,
           'owner', CASE WHEN l.owner IS NOT NULL THEN lower(hex(l.owner)) END, 'locked_until', l.locked_until, 'last_error', l.last_error,
           'work_item', CASE WHEN l.work_item_id IS NOT NULL THEN lower(hex(l.work_item_id)) END, 'topic', l.topic) AS answer
  FROM "{{schema}}_{{inbox}}_ledger" l
 WHERE (?1 IS NULL OR l.source = ?1) AND (?2 IS NULL OR l.topic = ?2)
   AND (?3 IS NULL OR (l.first_seen_at, l.source, l.message_id)
        < (SELECT a.first_seen_at, a.source, a.message_id FROM "{{schema}}_{{inbox}}_entry" a WHERE a.source = ?3 AND a.message_id = ?4))
 ORDER BY l.first_seen_at DESC, l.source DESC, l.message_id DESC LIMIT ?5;

-- name: list_state
-- The same of one state, 6. One that a worker has counts as processing, whatever the entry itself says.
SELECT json_object(
           'source', l.source, 'message_id', l.message_id, 'state', l.state, 'hash', lower(hex(l.hash)), 'first_seen_at', l.first_seen_at,
           'last_seen_at', l.last_seen_at, 'processed_at', l.processed_at, 'attempts', l.attempts, 'generation', l.generation,
           'owner', CASE WHEN l.owner IS NOT NULL THEN lower(hex(l.owner)) END, 'locked_until', l.locked_until, 'last_error', l.last_error,
           'work_item', CASE WHEN l.work_item_id IS NOT NULL THEN lower(hex(l.work_item_id)) END, 'topic', l.topic) AS answer
  FROM "{{schema}}_{{inbox}}_ledger" l
 WHERE l.entry_state IN (?6, CASE ?6 WHEN 1 THEN 0 ELSE ?6 END) AND l.state = ?6
   AND (?1 IS NULL OR l.source = ?1) AND (?2 IS NULL OR l.topic = ?2)
   AND (?3 IS NULL OR (l.first_seen_at, l.source, l.message_id)
        < (SELECT a.first_seen_at, a.source, a.message_id FROM "{{schema}}_{{inbox}}_entry" a WHERE a.source = ?3 AND a.message_id = ?4))
 ORDER BY l.first_seen_at DESC, l.source DESC, l.message_id DESC LIMIT ?5;

-- name: state
-- 1 source, 2 message id.
SELECT state FROM "{{schema}}_{{inbox}}_entry" WHERE source = ?1 AND message_id = ?2;

-- name: revive_find
-- 1 source, 2 message id.
SELECT work_item_id FROM "{{schema}}_{{inbox}}_entry" WHERE source = ?1 AND message_id = ?2 AND state = 3;

-- name: revive
-- 1 source, 2 message id. Of one that the queue does not have.
UPDATE "{{schema}}_{{inbox}}_entry" SET state = 0, processed_at = NULL, attempts = 0 WHERE source = ?1 AND message_id = ?2 AND state = 3;

-- name: stats
SELECT json_array(count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
                  (SELECT count(*) FROM "{{schema}}_{{inbox}}_entry" WHERE state = 1 AND locked_until <= {{now}}),
                  count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3)) AS answer
  FROM "{{schema}}_{{inbox}}_entry";

-- name: forget_select
-- 1 state, 2 settled at or before, 3 rows at most. Not what a worker still has, though it was marked.
SELECT rowid, work_item_id FROM "{{schema}}_{{inbox}}_entry" e
 WHERE state = ?1 AND processed_at <= ?2 AND processed_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{inbox}}" q WHERE q.id = e.work_item_id)
 ORDER BY processed_at LIMIT ?3;

-- name: forget_entry
-- 1 rowid.
DELETE FROM "{{schema}}_{{inbox}}_entry" WHERE rowid = ?1;

-- name: forget_history
-- 1 work item id.
DELETE FROM "{{schema}}_{{inbox}}_history" WHERE id = ?1;
