-- Every statement of a queue. `-- name:` starts one; src/statements.rs lists them.
-- Parameters are numbered, so that other drivers can bind them too. `now` is always a parameter that the same operation
-- read with `clock`: one operation has one moment, and it is SQLite's.

-- name: clock
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000;

-- name: alive
-- Reads from the file, so it fails when the database does.
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM (SELECT count(*) FROM sqlite_master);

-- name: enqueue_reserve
-- 1 key, 2 id, 3 message id. No change: the key is taken.
INSERT INTO "{{schema}}_{{queue}}_idempotency" (idempotency_key, id, message_id) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING;

-- name: enqueue_known
-- 1 key.
SELECT id, message_id FROM "{{schema}}_{{queue}}_idempotency" WHERE idempotency_key = ?1;

-- name: enqueue_insert
-- 1 id, 2 message id, 3 topic, 4 payload, 5 now, 6 due at, 7 due in microseconds, 8 expires at, 9 expires in microseconds,
-- 10 priority, 11 ordering key, 12 hold on failure, 13 idempotency key, 14 correlation id, 15 headers.
-- A due time in the past means now: it must not jump the queue. An id that is known is refused: by the table if its message is open,
-- by a trigger if it is settled.
INSERT INTO "{{schema}}_{{queue}}" (
    id, message_id, topic, payload, created_at, due_at, requested_due_at, expires_at,
    priority, ordering_key, hold_on_failure, idempotency_key, correlation_id, headers)
VALUES (?1, ?2, ?3, ?4, ?5, max(coalesce(?6, ?5 + ?7, ?5), ?5), coalesce(?6, ?5 + ?7), coalesce(?8, ?5 + ?9), ?10, ?11, ?12, ?13, ?14, ?15);

-- name: enqueue_status
-- 1 id. The status of the message that has it.
SELECT status FROM "{{schema}}_{{queue}}" WHERE id = ?1
UNION ALL
SELECT status FROM "{{schema}}_{{queue}}_history" WHERE id = ?1;

-- name: claim_levels
-- 1 now. The priorities that have due work, highest first: a few index probes for each priority in use.
WITH RECURSIVE
ready(level) AS (
    SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 0 AND parked = 0
    UNION ALL
    SELECT (SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 0 AND parked = 0 AND priority < ready.level)
      FROM ready WHERE ready.level IS NOT NULL),
leased(level) AS (
    SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 1
    UNION ALL
    SELECT (SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 1 AND priority < leased.level)
      FROM leased WHERE leased.level IS NOT NULL)
SELECT level FROM ready
 WHERE EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}" WHERE status = 0 AND parked = 0 AND priority = ready.level AND due_at <= ?1)
UNION
SELECT level FROM leased
 WHERE EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}" WHERE status = 1 AND priority = leased.level AND locked_until <= ?1)
ORDER BY 1 DESC;

-- name: claim_candidates
-- 1 now, 2 priority, 3 only these topics (JSON array or null), 4 not these topics (likewise), 5 delivery limit, 6 rows at most.
-- Verdict 0: claim it, 1: expired, 2: delivered too often, 3: has to wait for its ordering key, so park it.
-- Left out: what is paused, and the first of a key that was overtaken while it was in the history. It waits for the one that is running.
SELECT o.seq, o.due_at,
       CASE WHEN o.ordering_key IS NOT NULL AND (
                     o.seq <> (SELECT min(a.seq) FROM "{{schema}}_{{queue}}" a WHERE a.ordering_key = o.ordering_key)
                     OR EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}_hold" h WHERE h.ordering_key = o.ordering_key)) THEN 3
            WHEN o.expires_at <= ?1 THEN 1
            WHEN o.attempts >= ?5 THEN 2
            ELSE 0 END AS verdict
  FROM "{{schema}}_{{queue}}" o
 WHERE o.status = 0 AND o.parked = 0 AND o.priority = ?2 AND o.due_at <= ?1
   AND (?3 IS NULL OR o.topic IN (SELECT value FROM json_each(?3)))
   AND (?4 IS NULL OR o.topic NOT IN (SELECT value FROM json_each(?4)))
   AND o.topic NOT IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
   AND (o.ordering_key IS NULL OR NOT EXISTS (
        SELECT 1 FROM "{{schema}}_{{queue}}" r
         WHERE r.ordering_key = o.ordering_key AND r.status = 1 AND r.locked_until > ?1 AND r.seq > o.seq))
UNION ALL
SELECT o.seq, o.due_at,
       CASE WHEN o.ordering_key IS NOT NULL AND (
                     o.seq <> (SELECT min(a.seq) FROM "{{schema}}_{{queue}}" a WHERE a.ordering_key = o.ordering_key)
                     OR EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}_hold" h WHERE h.ordering_key = o.ordering_key)) THEN 3
            WHEN o.expires_at <= ?1 THEN 1
            WHEN o.attempts >= ?5 THEN 2
            ELSE 0 END
  FROM "{{schema}}_{{queue}}" o
 WHERE o.status = 1 AND o.priority = ?2 AND o.locked_until <= ?1
   AND (?3 IS NULL OR o.topic IN (SELECT value FROM json_each(?3)))
   AND (?4 IS NULL OR o.topic NOT IN (SELECT value FROM json_each(?4)))
   AND o.topic NOT IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
   AND (o.ordering_key IS NULL OR NOT EXISTS (
        SELECT 1 FROM "{{schema}}_{{queue}}" r
         WHERE r.ordering_key = o.ordering_key AND r.status = 1 AND r.locked_until > ?1 AND r.seq > o.seq))
 ORDER BY 2, 1 LIMIT ?6;

-- name: claim_take
-- 1 seq, 2 owner, 3 locked until.
UPDATE "{{schema}}_{{queue}}"
   SET status = 1, owner = ?2, generation = max(generation, seq << 16) + 1, attempts = attempts + 1, locked_until = ?3
 WHERE seq = ?1
RETURNING id, generation, message_id, topic, payload, attempts, correlation_id, created_at, due_at, expires_at, last_error,
          priority, ordering_key, headers;

-- name: forward_take
-- The same without the payload: what is forwarded goes from table to table, and a batch may hold gigabytes.
UPDATE "{{schema}}_{{queue}}"
   SET status = 1, owner = ?2, generation = max(generation, seq << 16) + 1, attempts = attempts + 1, locked_until = ?3
 WHERE seq = ?1
RETURNING id, generation, message_id, topic, NULL, attempts, correlation_id, created_at, due_at, expires_at, last_error,
          priority, ordering_key, headers;

-- name: claim_fence
-- 1 seq of a message with an ordering key that was just claimed. A later one of the key whose lease has lapsed (it was
-- overtaken by a requeue) must not come back to life by a late renewal, or two of one key would run at once.
UPDATE "{{schema}}_{{queue}}" AS o
   SET status = 0, owner = NULL, locked_until = NULL
 WHERE o.status = 1 AND o.seq <> ?1
   AND o.ordering_key = (SELECT c.ordering_key FROM "{{schema}}_{{queue}}" c WHERE c.seq = ?1);

-- name: claim_park
-- 1 seq. Looks again whether it has to wait: what it waited for may have ended within this same claim.
UPDATE "{{schema}}_{{queue}}" AS o
   SET parked = 1, status = 0, owner = NULL, locked_until = NULL
 WHERE o.seq = ?1
   AND (EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}" a WHERE a.ordering_key = o.ordering_key AND a.seq < o.seq)
        OR EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}_hold" h WHERE h.ordering_key = o.ordering_key));

-- name: claim_rejected
-- 1 seq. What a rejection reports.
SELECT id, topic, expires_at FROM "{{schema}}_{{queue}}" WHERE seq = ?1;

-- name: settle_find
-- 1 id, 2 owner, 3 generation.
SELECT seq, ordering_key IS NOT NULL FROM "{{schema}}_{{queue}}" WHERE id = ?1 AND owner = ?2 AND generation = ?3 AND status = 1;

-- name: settle_retire
-- 1 seq, 2 status, 3 reason, 4 now, 5 error, 6 whether the earlier error is appended, 7 whether the payload is kept,
-- 8 deliveries to give back.
-- An id that its caller has used twice is in the history already: the first ending stands, and the batch goes on.
INSERT INTO "{{schema}}_{{queue}}_history" (
    seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, status, reason, processed_at, processed_by,
    generation, attempts, priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
SELECT seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, ?2, ?3, ?4, owner,
       generation, max(attempts - ?8, 0), priority, hold_on_failure, ordering_key, idempotency_key, correlation_id,
       CASE WHEN ?6 THEN substr(?5 || coalesce('; last error: ' || last_error, ''), 1, 2048) ELSE coalesce(?5, last_error) END,
       headers, CASE WHEN ?7 THEN payload END
  FROM "{{schema}}_{{queue}}" WHERE seq = ?1
ON CONFLICT DO NOTHING;

-- name: settle_hold
-- 1 seq, 2 now.
INSERT INTO "{{schema}}_{{queue}}_hold" (ordering_key, id, held_at)
SELECT ordering_key, id, ?2 FROM "{{schema}}_{{queue}}" WHERE seq = ?1 AND hold_on_failure = 1 AND ordering_key IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: settle_remove
-- 1 seq.
DELETE FROM "{{schema}}_{{queue}}" WHERE seq = ?1;

-- name: settle_abandon
-- 1 id, 2 owner, 3 generation, 4 now, 5 delay in microseconds (null: 1, 2, 4 … 60 seconds), 6 error.
UPDATE "{{schema}}_{{queue}}"
   SET status = 0, owner = NULL, locked_until = NULL, last_error = coalesce(?6, last_error),
       due_at = ?4 + coalesce(?5, CASE WHEN attempts > 6 THEN 60 ELSE 1 << max(attempts - 1, 0) END * 1000000)
 WHERE id = ?1 AND owner = ?2 AND generation = ?3 AND status = 1;

-- name: settle_release
-- 1 id, 2 owner, 3 generation, 4 now, 5 delay in microseconds (null: none), 6 error.
UPDATE "{{schema}}_{{queue}}"
   SET status = 0, owner = NULL, locked_until = NULL, last_error = coalesce(?6, last_error),
       attempts = max(attempts - 1, 0), due_at = ?4 + coalesce(?5, 0)
 WHERE id = ?1 AND owner = ?2 AND generation = ?3 AND status = 1;

-- name: forward
-- 1 id, 2 now, 3 ordering key, 4 headers. Makes a message in the outbox of an item, under the same ids. No change: the id is taken.
INSERT INTO "{{schema}}_{{outbox}}" (
    id, message_id, topic, payload, created_at, due_at, requested_due_at, expires_at, priority, ordering_key, hold_on_failure, correlation_id, headers)
SELECT q.id, q.message_id, q.topic, q.payload, ?2, ?2, q.due_at, q.expires_at, q.priority, ?3, q.hold_on_failure, q.correlation_id, ?4
  FROM "{{schema}}_{{queue}}" q
 WHERE q.id = ?1
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = q.id)
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}_history" h WHERE h.id = q.id);

-- name: forward_known
-- 1 id, 2 message id. Whether what has the id in the outbox is this very message.
SELECT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" WHERE id = ?1 AND message_id = ?2)
    OR EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}_history" WHERE id = ?1 AND message_id = ?2);

-- name: renew
-- 1 id, 2 owner, 3 generation, 4 locked until.
UPDATE "{{schema}}_{{queue}}" SET locked_until = ?4 WHERE id = ?1 AND owner = ?2 AND generation = ?3 AND status = 1;

-- name: reap
-- 1 now.
UPDATE "{{schema}}_{{queue}}" SET status = 0, owner = NULL, locked_until = NULL WHERE status = 1 AND locked_until <= ?1;

-- name: cancel_find
-- 1 id.
SELECT seq, topic FROM "{{schema}}_{{queue}}" WHERE id = ?1 AND status = 0;

-- name: requeue_find
-- 1 id. What is to be told of it once it is open again.
SELECT topic, reason, attempts FROM "{{schema}}_{{queue}}_history" WHERE id = ?1 AND status = 3;

-- name: requeue_insert
-- 1 id, 2 now. Its old place in its ordering key; generations go on counting, so that an old claim can't settle it.
INSERT INTO "{{schema}}_{{queue}}" (
    seq, id, message_id, topic, created_at, due_at, requested_due_at, expires_at, generation, priority, hold_on_failure,
    ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
SELECT seq, id, message_id, topic, created_at, ?2, requested_due_at, CASE WHEN expires_at > ?2 THEN expires_at END, generation,
       priority, hold_on_failure, ordering_key, idempotency_key, correlation_id, last_error, headers, payload
  FROM "{{schema}}_{{queue}}_history" WHERE id = ?1 AND status = 3
ON CONFLICT DO NOTHING;

-- name: requeue_unhold
-- 1 id, of a message that is open again.
DELETE FROM "{{schema}}_{{queue}}_hold"
 WHERE ordering_key = (SELECT ordering_key FROM "{{schema}}_{{queue}}" WHERE id = ?1);

-- name: requeue_remove
-- 1 id.
DELETE FROM "{{schema}}_{{queue}}_history" WHERE id = ?1;

-- name: requeue_select
-- 1 topic, 2 reason, 3 correlation id, 4 settled at or after, 5 settled before, 6 rows at most.
SELECT id FROM "{{schema}}_{{queue}}_history"
 WHERE status = 3 AND processed_at >= ?4 AND processed_at < ?5
   AND (?1 IS NULL OR topic = ?1) AND (?2 IS NULL OR reason = ?2) AND (?3 IS NULL OR correlation_id = ?3)
 ORDER BY processed_at, seq LIMIT ?6;

-- name: release_key
-- 1 ordering key.
DELETE FROM "{{schema}}_{{queue}}_hold" WHERE ordering_key = ?1;

-- name: pause
-- 1 topic, 2 now, 3 by whom, 4 why. No change: it is paused already.
INSERT INTO "{{schema}}_{{queue}}_paused" (topic, paused_at, paused_by, reason) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING;

-- name: resume
-- 1 topic.
DELETE FROM "{{schema}}_{{queue}}_paused" WHERE topic = ?1;

-- name: paused
SELECT topic, paused_at, paused_by, reason FROM "{{schema}}_{{queue}}_paused" ORDER BY topic;

-- name: get
-- 1 id.
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts, created_at, requested_due_at, due_at, expires_at,
       owner, locked_until, generation, processed_at, processed_by, last_error, priority, ordering_key, idempotency_key, headers
  FROM "{{schema}}_{{queue}}_message" WHERE id = ?1 LIMIT 1;

-- name: list
-- 1 before this id, 2 topic, 3 status, 4 reason, 5 correlation id, 6 settled at or after, 7 settled before, 8 rows at most, 9 whether without payloads.
-- Not from the view: only this way SQLite merges the two tables in the order of their indexes and stops at the limit.
SELECT id, message_id, topic, CASE WHEN ?9 THEN NULL ELSE payload END AS payload, correlation_id, status, NULL AS reason, attempts,
       created_at, requested_due_at, due_at, expires_at, owner, locked_until, generation, NULL AS processed_at, NULL AS processed_by,
       last_error, priority, ordering_key, idempotency_key, headers
  FROM "{{schema}}_{{queue}}"
 WHERE id < ?1 AND (?2 IS NULL OR topic = ?2) AND (?3 IS NULL OR status = ?3) AND (?5 IS NULL OR correlation_id = ?5)
   AND ?4 IS NULL AND ?6 IS NULL AND ?7 IS NULL
UNION ALL
SELECT id, message_id, topic, CASE WHEN ?9 THEN NULL ELSE payload END, correlation_id, status, reason, attempts,
       created_at, requested_due_at, due_at, expires_at, NULL, NULL, generation, processed_at, processed_by,
       last_error, priority, ordering_key, idempotency_key, headers
  FROM "{{schema}}_{{queue}}_history"
 WHERE id < ?1 AND (?2 IS NULL OR topic = ?2) AND (?3 IS NULL OR status = ?3) AND (?5 IS NULL OR correlation_id = ?5)
   AND (?4 IS NULL OR reason = ?4) AND (?6 IS NULL OR processed_at >= ?6) AND (?7 IS NULL OR processed_at < ?7)
 ORDER BY 1 DESC LIMIT ?8;

-- name: export
-- 1 after this place, 2 topic, 3 status, 4 reason, 5 correlation id, 6 settled at or after, 7 settled before, 8 rows at most.
-- By place, which a message keeps when it is settled or requeued: so none is left out or comes twice, however long it takes.
SELECT id, message_id, topic, payload, correlation_id, status, NULL AS reason, attempts, created_at, requested_due_at, due_at,
       expires_at, owner, locked_until, generation, NULL AS processed_at, NULL AS processed_by, last_error, priority,
       ordering_key, idempotency_key, headers, hold_on_failure, seq
  FROM "{{schema}}_{{queue}}"
 WHERE seq > ?1 AND (?2 IS NULL OR topic = ?2) AND (?3 IS NULL OR status = ?3) AND (?5 IS NULL OR correlation_id = ?5)
   AND ?4 IS NULL AND ?6 IS NULL AND ?7 IS NULL
UNION ALL
SELECT id, message_id, topic, payload, correlation_id, status, reason, attempts, created_at, requested_due_at, due_at,
       expires_at, NULL, NULL, generation, processed_at, processed_by, last_error, priority,
       ordering_key, idempotency_key, headers, hold_on_failure, seq
  FROM "{{schema}}_{{queue}}_history"
 WHERE seq > ?1 AND (?2 IS NULL OR topic = ?2) AND (?3 IS NULL OR status = ?3) AND (?5 IS NULL OR correlation_id = ?5)
   AND (?4 IS NULL OR reason = ?4) AND (?6 IS NULL OR processed_at >= ?6) AND (?7 IS NULL OR processed_at < ?7)
 ORDER BY seq LIMIT ?8;

-- name: stats_open
-- 1 now. By topic.
SELECT topic, sum(status = 0 AND due_at <= ?1), sum(status = 0 AND due_at > ?1), sum(status = 1),
       sum(status = 1 AND locked_until <= ?1), min(CASE WHEN status = 0 AND due_at <= ?1 THEN due_at END),
       topic IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
  FROM "{{schema}}_{{queue}}" GROUP BY topic;

-- name: stats_failed
SELECT topic, count(*) FROM "{{schema}}_{{queue}}_history" WHERE status = 3 GROUP BY topic;

-- name: stats_done
SELECT count(*) FROM "{{schema}}_{{queue}}_history" WHERE status = 2;

-- name: stats_held
SELECT count(*) FROM "{{schema}}_{{queue}}_hold";

-- name: purge_select
-- 1 status, 2 settled at or before, 3 rows at most.
SELECT seq, id, idempotency_key FROM "{{schema}}_{{queue}}_history"
 WHERE status = ?1 AND processed_at <= ?2 ORDER BY processed_at, seq LIMIT ?3;

-- name: purge_forget
-- 1 key, 2 id.
DELETE FROM "{{schema}}_{{queue}}_idempotency" WHERE idempotency_key = ?1 AND id = ?2;

-- name: purge_remove
-- 1 seq.
DELETE FROM "{{schema}}_{{queue}}_history" WHERE seq = ?1;

-- name: next_due
-- 1 now, 2 only these topics (JSON array or null), 3 not these topics (likewise).
-- When there will be something to claim: the first due time of each priority and the first lapse of a lease.
-- What waits for its ordering key or is paused does not count, or a waiter would be woken for nothing without end.
WITH RECURSIVE
ready(level) AS (
    SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 0 AND parked = 0
    UNION ALL
    SELECT (SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 0 AND parked = 0 AND priority < ready.level)
      FROM ready WHERE ready.level IS NOT NULL),
leased(level) AS (
    SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 1
    UNION ALL
    SELECT (SELECT max(priority) FROM "{{schema}}_{{queue}}" WHERE status = 1 AND priority < leased.level)
      FROM leased WHERE leased.level IS NOT NULL)
SELECT min(due) FROM (
    SELECT (SELECT o.due_at FROM "{{schema}}_{{queue}}" o
             WHERE o.status = 0 AND o.parked = 0 AND o.priority = ready.level
               AND (?2 IS NULL OR o.topic IN (SELECT value FROM json_each(?2)))
               AND (?3 IS NULL OR o.topic NOT IN (SELECT value FROM json_each(?3)))
               AND o.topic NOT IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
               AND (o.ordering_key IS NULL OR (
                    o.seq = (SELECT min(a.seq) FROM "{{schema}}_{{queue}}" a WHERE a.ordering_key = o.ordering_key)
                    AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}_hold" h WHERE h.ordering_key = o.ordering_key)
                    AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}" r
                                     WHERE r.ordering_key = o.ordering_key AND r.status = 1 AND r.locked_until > ?1)))
             ORDER BY o.due_at LIMIT 1) AS due
      FROM ready
    UNION ALL
    SELECT (SELECT o.locked_until FROM "{{schema}}_{{queue}}" o
             WHERE o.status = 1 AND o.priority = leased.level
               AND (?2 IS NULL OR o.topic IN (SELECT value FROM json_each(?2)))
               AND (?3 IS NULL OR o.topic NOT IN (SELECT value FROM json_each(?3)))
               AND o.topic NOT IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
             ORDER BY o.locked_until LIMIT 1)
      FROM leased);

-- name: joins_waiting
-- Whether what ends here may be a step of a join: only messages of the outbox are.
SELECT '{{queue:literal}}' = '{{outbox:literal}}' AND EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" WHERE status = 0);

-- name: joins_lapse
-- 1 now. Ends all joins whose deadline has passed: a step that ends later does not count, whether somebody has looked at the deadline or not.
UPDATE "{{schema}}_{{joins}}"
   SET status = CASE WHEN mode = 3 AND failed = 0 THEN 1 ELSE 2 END,
       reason = CASE WHEN mode <> 3 THEN 'deadline' WHEN failed > 0 THEN 'steps' END, updated_at = ?1, ended_at = ?1
 WHERE status = 0 AND deadline_at <= ?1
RETURNING id;

-- name: joins_count
-- 1 item, 2 state, 3 now. Counts it for all its joins that wait.
UPDATE "{{schema}}_{{joins}}_member" SET state = ?2, updated_at = ?3
 WHERE work_item_id = ?1 AND state = 0 AND EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" j WHERE j.id = join_id AND j.status = 0)
RETURNING join_id;

-- name: joins_standing
-- 1 join.
SELECT status, reason FROM "{{schema}}_{{joins}}" WHERE id = ?1;

-- name: joins_lapse_one
-- 1 join. Ends it if its deadline has passed.
UPDATE "{{schema}}_{{joins}}"
   SET status = CASE WHEN mode = 3 AND failed = 0 THEN 1 ELSE 2 END,
       reason = CASE WHEN mode <> 3 THEN 'deadline' WHEN failed > 0 THEN 'steps' END, updated_at = {{now}}, ended_at = {{now}}
 WHERE id = ?1 AND status = 0 AND deadline_at <= {{now}};

-- name: joins_attach_before
-- 1 join. No row: there is no such join.
SELECT json_array(status, completed, failed) AS answer FROM "{{schema}}_{{joins}}" WHERE id = ?1;

-- name: joins_attach
-- 1 join, 2 items.
WITH RECURSIVE place(at) AS (SELECT 1 WHERE length(?2) > 0 UNION ALL SELECT at + 16 FROM place WHERE at + 16 < length(?2))
INSERT INTO "{{schema}}_{{joins}}_member" (join_id, work_item_id, updated_at)
SELECT ?1, CAST(substr(?2, at, 16) AS BLOB), {{now}} FROM place
 WHERE EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" WHERE id = ?1 AND status = 0)
ON CONFLICT DO NOTHING;

-- name: joins_attach_after
-- 1 join, 2 items. The last number is how many of the items are not members.
WITH RECURSIVE place(at) AS (SELECT 1 WHERE length(?2) > 0 UNION ALL SELECT at + 16 FROM place WHERE at + 16 < length(?2))
SELECT json_array(changes(), j.status, j.reason, j.completed, j.failed,
                  (SELECT count(*) FROM place WHERE NOT EXISTS (
                       SELECT 1 FROM "{{schema}}_{{joins}}_member" m WHERE m.join_id = ?1 AND m.work_item_id = CAST(substr(?2, at, 16) AS BLOB)))) AS answer
  FROM "{{schema}}_{{joins}}" j WHERE j.id = ?1;
