-- Every statement about operations. `-- name:` starts one; src/statements.rs lists them.
-- Those that may run in a transaction of any driver answer with one text, in JSON, with times as microseconds. What changes an
-- operation answers first with the state it had before: 0, if it changed.

-- name: start
-- 1 id, 2 name, 3 parent, 4 total, 5 message, 6 actor, 7 correlation id. Nothing where the parent is not there.
INSERT INTO "{{schema}}_{{operations}}" (id, name, parent_id, total, message, actor, correlation_id, started_at, updated_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, {{now}}, {{now}}
 WHERE ?3 IS NULL OR EXISTS (SELECT 1 FROM "{{schema}}_{{operations}}" p WHERE p.id = ?3)
RETURNING json_array(lower(hex(id))) AS answer;

-- name: tag
-- 1 id, 2 key, 3 value. Under the operation's own time.
INSERT INTO "{{schema}}_{{operations}}_tag" (key, value, started_at, operation_id)
SELECT ?2, ?3, o.started_at, o.id FROM "{{schema}}_{{operations}}" o WHERE o.id = ?1;

-- name: progress
-- 1 id, 2 done, 3 total, 4 message.
UPDATE "{{schema}}_{{operations}}"
   SET done = coalesce(?2, done), total = coalesce(?3, total), message = coalesce(?4, message), updated_at = max(updated_at, {{now}})
 WHERE id = ?1 AND state = 0
RETURNING json_array(0, NULL) AS answer;

-- name: count_event
-- 1 id.
UPDATE "{{schema}}_{{operations}}" SET events = events + 1, updated_at = max(updated_at, {{now}})
 WHERE id = ?1 AND state = 0
RETURNING json_array(0, events) AS answer;

-- name: event
-- 1 id, 2 kind, 3 message, 4 data. Under the number that was counted.
INSERT INTO "{{schema}}_{{operations}}_event" (operation_id, seq, recorded_at, kind, message, data)
SELECT o.id, o.events, {{now}}, ?2, ?3, ?4 FROM "{{schema}}_{{operations}}" o WHERE o.id = ?1 AND o.state = 0;

-- name: end
-- 1 id, 2 state, 3 error.
UPDATE "{{schema}}_{{operations}}" SET state = ?2, error = ?3, updated_at = max(updated_at, {{now}}), ended_at = {{now}}
 WHERE id = ?1 AND state = 0
RETURNING json_array(0, NULL) AS answer;

-- name: standing
-- 1 id. Says nothing of one that is running.
SELECT json_array(o.state, NULL) AS answer FROM "{{schema}}_{{operations}}" o WHERE o.id = ?1 AND o.state <> 0;

-- name: get
-- 1 id.
SELECT json_object(
           'id', lower(hex(o.id)), 'name', o.name, 'parent', CASE WHEN o.parent_id IS NOT NULL THEN lower(hex(o.parent_id)) END, 'state', o.state, 'done', o.done, 'total', o.total,
           'message', o.message, 'error', o.error, 'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', o.started_at, 'updated_at', o.updated_at, 'ended_at', o.ended_at,
           'tags', (SELECT json_group_object(t.key, t.value) FROM "{{schema}}_{{operations}}_tag" t WHERE t.operation_id = o.id)) AS answer
  FROM "{{schema}}_{{operations}}" o
 WHERE o.id = ?1;

-- name: list
-- 1 first name, 2 after the last name, 3 state, 4 parent, 5 correlation id, 6 from, 7 to, 8 the last operation of the page before, 9 rows at most.
SELECT json_object(
           'id', lower(hex(o.id)), 'name', o.name, 'parent', CASE WHEN o.parent_id IS NOT NULL THEN lower(hex(o.parent_id)) END, 'state', o.state, 'done', o.done, 'total', o.total,
           'message', o.message, 'error', o.error, 'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', o.started_at, 'updated_at', o.updated_at, 'ended_at', o.ended_at,
           'tags', (SELECT json_group_object(t.key, t.value) FROM "{{schema}}_{{operations}}_tag" t WHERE t.operation_id = o.id)) AS answer
  FROM "{{schema}}_{{operations}}" o
 WHERE (?1 IS NULL OR (o.name >= ?1 AND o.name < ?2)) AND (?3 IS NULL OR o.state = ?3) AND (?4 IS NULL OR o.parent_id = ?4)
   AND (?5 IS NULL OR o.correlation_id = ?5) AND o.started_at >= ?6 AND o.started_at < ?7
   AND (?8 IS NULL OR (o.started_at, o.id) < (SELECT b.started_at, b.id FROM "{{schema}}_{{operations}}" b WHERE b.id = ?8))
 ORDER BY o.started_at DESC, o.id DESC
 LIMIT ?9;

-- name: list_tagged
-- The same with one tag: 10 key, 11 value.
SELECT json_object(
           'id', lower(hex(o.id)), 'name', o.name, 'parent', CASE WHEN o.parent_id IS NOT NULL THEN lower(hex(o.parent_id)) END, 'state', o.state, 'done', o.done, 'total', o.total,
           'message', o.message, 'error', o.error, 'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', o.started_at, 'updated_at', o.updated_at, 'ended_at', o.ended_at,
           'tags', (SELECT json_group_object(t.key, t.value) FROM "{{schema}}_{{operations}}_tag" t WHERE t.operation_id = o.id)) AS answer
  FROM "{{schema}}_{{operations}}_tag" n CROSS JOIN "{{schema}}_{{operations}}" o
 WHERE n.key = ?10 AND n.value = ?11 AND o.id = n.operation_id
   AND (?1 IS NULL OR (o.name >= ?1 AND o.name < ?2)) AND (?3 IS NULL OR o.state = ?3) AND (?4 IS NULL OR o.parent_id = ?4)
   AND (?5 IS NULL OR o.correlation_id = ?5) AND n.started_at >= ?6 AND n.started_at < ?7
   AND (?8 IS NULL OR (n.started_at, n.operation_id) < (SELECT b.started_at, b.id FROM "{{schema}}_{{operations}}" b WHERE b.id = ?8))
 ORDER BY n.started_at DESC, n.operation_id DESC
 LIMIT ?9;

-- name: events
-- 1 id, 2 after this number, 3 rows at most.
SELECT json_array(e.seq, e.recorded_at, e.kind, e.message, e.data) AS answer
  FROM "{{schema}}_{{operations}}_event" e
 WHERE e.operation_id = ?1 AND e.seq > ?2
 ORDER BY e.seq
 LIMIT ?3;

-- name: stalled
-- 1 microseconds of silence, 2 rows at most. Without being told, the planner goes by the state and sorts.
SELECT json_object(
           'id', lower(hex(o.id)), 'name', o.name, 'parent', CASE WHEN o.parent_id IS NOT NULL THEN lower(hex(o.parent_id)) END, 'state', o.state, 'done', o.done, 'total', o.total,
           'message', o.message, 'error', o.error, 'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', o.started_at, 'updated_at', o.updated_at, 'ended_at', o.ended_at,
           'tags', (SELECT json_group_object(t.key, t.value) FROM "{{schema}}_{{operations}}_tag" t WHERE t.operation_id = o.id)) AS answer
  FROM "{{schema}}_{{operations}}" o INDEXED BY "{{schema}}_{{operations}}_alive"
 WHERE o.state = 0 AND o.updated_at <= {{now}} - ?1
 ORDER BY o.updated_at, o.id
 LIMIT ?2;

-- name: stalled_ids
-- 1 silent since, 2 rows at most.
SELECT o.id, o.name FROM "{{schema}}_{{operations}}" o INDEXED BY "{{schema}}_{{operations}}_alive"
 WHERE o.state = 0 AND o.updated_at <= ?1 ORDER BY o.updated_at, o.id LIMIT ?2;

-- name: mark_stalled
-- 1 id, 2 now. The last sign of life stays.
UPDATE "{{schema}}_{{operations}}" SET state = 4, ended_at = max(started_at, ?2) WHERE id = ?1 AND state = 0;

-- name: purge_select
-- 1 those that ended before this moment, 2 rows at most.
SELECT o.id FROM "{{schema}}_{{operations}}" o WHERE o.ended_at IS NOT NULL AND o.ended_at <= ?1 ORDER BY o.ended_at, o.id LIMIT ?2;

-- name: purge_tags
-- 1 id.
DELETE FROM "{{schema}}_{{operations}}_tag" WHERE operation_id = ?1;

-- name: purge_events
-- 1 id.
DELETE FROM "{{schema}}_{{operations}}_event" WHERE operation_id = ?1;

-- name: purge
-- 1 id.
DELETE FROM "{{schema}}_{{operations}}" WHERE id = ?1;
