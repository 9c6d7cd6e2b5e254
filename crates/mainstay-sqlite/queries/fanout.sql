-- Every statement about fan-outs. `-- name:` starts one; src/statements.rs lists them.
-- They may run in a transaction of any driver: so each answer is one text, in JSON, with times as microseconds. {{now}} is SQLite's clock.

-- name: register
-- 1 topic, 2 work key, 3 cadence, 4 jitter, 5 cron, 6 time zone, 7 enabled.
INSERT INTO "{{schema}}_{{fanout}}" (topic, work_key, every_seconds, jitter_seconds, cron, time_zone, enabled, declared, since_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, json_array(?3, ?4, ?5, ?6, ?7), {{now}}, {{now}}, {{now}})
ON CONFLICT (topic, work_key) DO UPDATE
   SET every_seconds = excluded.every_seconds, jitter_seconds = excluded.jitter_seconds, cron = excluded.cron, time_zone = excluded.time_zone,
       enabled = excluded.enabled, declared = excluded.declared, version = version + 1, updated_at = excluded.updated_at,
       since_at = CASE WHEN enabled AND excluded.enabled AND cron IS excluded.cron AND time_zone = excluded.time_zone THEN since_at ELSE excluded.since_at END,
       last_run_at = CASE WHEN last_run_at <= excluded.updated_at THEN last_run_at END
 WHERE declared <> excluded.declared;

-- name: standing
-- 1 topic, 2 work key.
SELECT json_object('topic', topic, 'work_key', work_key, 'every_seconds', every_seconds, 'jitter_seconds', jitter_seconds, 'cron', cron,
       'time_zone', time_zone, 'enabled', enabled, 'version', version, 'last_run_at', last_run_at, 'run_requested_at', run_requested_at,
       'since_at', since_at, 'created_at', created_at, 'updated_at', updated_at, 'now', {{now}}) AS answer
  FROM "{{schema}}_{{fanout}}" WHERE topic = ?1 AND work_key = ?2;

-- name: version
-- 1 topic, 2 work key.
SELECT version FROM "{{schema}}_{{fanout}}" WHERE topic = ?1 AND work_key = ?2;

-- name: list
-- 1 topic and 2 work key to come after, 3 limit.
SELECT json_object('topic', topic, 'work_key', work_key, 'every_seconds', every_seconds, 'jitter_seconds', jitter_seconds, 'cron', cron,
       'time_zone', time_zone, 'enabled', enabled, 'version', version, 'last_run_at', last_run_at, 'run_requested_at', run_requested_at,
       'since_at', since_at, 'created_at', created_at, 'updated_at', updated_at, 'now', {{now}}) AS answer
  FROM "{{schema}}_{{fanout}}" WHERE (topic, work_key) > (?1, ?2) ORDER BY topic, work_key LIMIT ?3;

-- name: set
-- 1 topic, 2 work key, 3 version, 4 cadence, 5 jitter, 6 cron, 7 time zone, 8 enabled. No answer: it is of another version.
UPDATE "{{schema}}_{{fanout}}"
   SET every_seconds = ?4, jitter_seconds = ?5, cron = ?6, time_zone = ?7, enabled = ?8, version = version + 1, updated_at = {{now}},
       since_at = CASE WHEN enabled AND ?8 AND cron IS ?6 AND time_zone = ?7 THEN since_at ELSE {{now}} END,
       -- One that is still to come is of a clock that was ahead.
       last_run_at = CASE WHEN last_run_at <= {{now}} THEN last_run_at END
 WHERE topic = ?1 AND work_key = ?2 AND version = ?3
RETURNING json_object('topic', topic, 'work_key', work_key, 'every_seconds', every_seconds, 'jitter_seconds', jitter_seconds, 'cron', cron,
       'time_zone', time_zone, 'enabled', enabled, 'version', version, 'last_run_at', last_run_at, 'run_requested_at', run_requested_at,
       'since_at', since_at, 'created_at', created_at, 'updated_at', updated_at, 'now', {{now}}) AS answer;

-- name: request_run
-- 1 topic, 2 work key. No answer: there is no such fan-out.
UPDATE "{{schema}}_{{fanout}}" SET run_requested_at = {{now}}, version = version + 1 WHERE topic = ?1 AND work_key = ?2
RETURNING json_object('topic', topic, 'work_key', work_key, 'every_seconds', every_seconds, 'jitter_seconds', jitter_seconds, 'cron', cron,
       'time_zone', time_zone, 'enabled', enabled, 'version', version, 'last_run_at', last_run_at, 'run_requested_at', run_requested_at,
       'since_at', since_at, 'created_at', created_at, 'updated_at', updated_at, 'now', {{now}}) AS answer;

-- name: add_shard
-- 1 topic, 2 work key, 3 shard. Answers with the shard. No answer: it is there, or there is no such fan-out.
INSERT INTO "{{schema}}_{{fanout}}_cursor" (topic, work_key, shard_key, created_at, updated_at)
SELECT ?1, ?2, ?3, {{now}}, {{now}} WHERE EXISTS (SELECT 1 FROM "{{schema}}_{{fanout}}" p WHERE p.topic = ?1 AND p.work_key = ?2)
ON CONFLICT (topic, work_key, shard_key) DO NOTHING
RETURNING json_array(shard_key) AS answer;

-- name: shards_added
-- 1 topic, 2 work key. They are due at once, and the coordinator may have nothing to do until tomorrow.
UPDATE "{{schema}}_{{fanout}}" SET version = version + 1 WHERE topic = ?1 AND work_key = ?2;

-- name: forget_shard
-- 1 topic, 2 work key, 3 shard. No answer: there is none, or a slice of it is in flight.
DELETE FROM "{{schema}}_{{fanout}}_cursor" WHERE topic = ?1 AND work_key = ?2 AND shard_key = ?3
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = slice_id)
RETURNING json_array(1) AS answer;

-- name: flying
-- 1 topic, 2 work key. One of its slices that is in flight, if there is any.
SELECT json_array(hex(c.slice_id), NULL) AS answer FROM "{{schema}}_{{fanout}}_cursor" c JOIN "{{schema}}_{{outbox}}" o ON o.id = c.slice_id
 WHERE c.topic = ?1 AND c.work_key = ?2 LIMIT 1;

-- name: delete
-- 1 topic, 2 work key. How many shards it has. No answer: there is no such fan-out, or a slice of it is in flight.
DELETE FROM "{{schema}}_{{fanout}}" WHERE topic = ?1 AND work_key = ?2
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{fanout}}_cursor" c JOIN "{{schema}}_{{outbox}}" o ON o.id = c.slice_id WHERE c.topic = ?1 AND c.work_key = ?2)
RETURNING json_array(NULL, (SELECT count(*) FROM "{{schema}}_{{fanout}}_cursor" c WHERE c.topic = ?1 AND c.work_key = ?2)) AS answer;

-- name: delete_cursors
-- 1 topic, 2 work key. Those of a fan-out that was deleted by the statement before this one.
DELETE FROM "{{schema}}_{{fanout}}_cursor" WHERE topic = ?1 AND work_key = ?2 AND changes() > 0;

-- name: look
-- 1 topic, 2 work key, 3 shard.
SELECT json_object('shard_key', c.shard_key, 'last_completed_at', c.last_completed_at, 'slice_id', CASE WHEN c.slice_id IS NOT NULL THEN hex(c.slice_id) END,
       'slice_due_at', c.slice_due_at, 'slice_cursor_at', c.slice_cursor_at,
       'in_flight', EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = c.slice_id), 'created_at', c.created_at, 'updated_at', c.updated_at) AS answer
  FROM "{{schema}}_{{fanout}}_cursor" c WHERE c.topic = ?1 AND c.work_key = ?2 AND c.shard_key = ?3;

-- name: cursors
-- 1 topic, 2 work key, 3 shard to come after, 4 limit.
SELECT json_object('shard_key', c.shard_key, 'last_completed_at', c.last_completed_at, 'slice_id', CASE WHEN c.slice_id IS NOT NULL THEN hex(c.slice_id) END,
       'slice_due_at', c.slice_due_at, 'slice_cursor_at', c.slice_cursor_at,
       'in_flight', EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = c.slice_id), 'created_at', c.created_at, 'updated_at', c.updated_at) AS answer
  FROM "{{schema}}_{{fanout}}_cursor" c WHERE c.topic = ?1 AND c.work_key = ?2 AND c.shard_key > ?3 ORDER BY c.shard_key LIMIT ?4;

-- name: complete
-- 1 topic, 2 work key, 3 shard, 4 up to when. No answer: it has come as far already.
INSERT INTO "{{schema}}_{{fanout}}_cursor" (topic, work_key, shard_key, last_completed_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, {{now}}, {{now}})
ON CONFLICT (topic, work_key, shard_key) DO UPDATE SET last_completed_at = excluded.last_completed_at, updated_at = excluded.updated_at
 WHERE last_completed_at IS NULL OR last_completed_at < excluded.last_completed_at
RETURNING json_array(1) AS answer;

-- name: claim
-- 1 topic, 2 work key, 3 version, 4 shard, 5 cursor, 6 last slice, 7 new slice, 8 its nominal time. The shard has a cursor by now. No answer: it, or
-- the policy, is not what the slice was planned with.
UPDATE "{{schema}}_{{fanout}}_cursor" AS c SET slice_id = ?7, slice_due_at = ?8, slice_cursor_at = c.last_completed_at, updated_at = {{now}}
 WHERE c.topic = ?1 AND c.work_key = ?2 AND c.shard_key = ?4 AND c.last_completed_at IS ?5 AND c.slice_id IS ?6
   AND EXISTS (SELECT 1 FROM "{{schema}}_{{fanout}}" p WHERE p.topic = ?1 AND p.work_key = ?2 AND p.version = ?3)
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = c.slice_id)
RETURNING json_array(shard_key) AS answer;

-- name: claim_shard
-- 1 topic, 2 work key, 3 shard. What is planned for the first time has no cursor yet.
INSERT INTO "{{schema}}_{{fanout}}_cursor" (topic, work_key, shard_key, created_at, updated_at) VALUES (?1, ?2, ?3, {{now}}, {{now}})
ON CONFLICT (topic, work_key, shard_key) DO NOTHING;

-- name: ran
-- 1 topic, 2 work key, 3 version, 4 nominal time, 5 the request that is met. What is still to come was noted by a clock that has been set back since.
UPDATE "{{schema}}_{{fanout}}"
   SET last_run_at = CASE WHEN last_run_at <= {{now}} THEN max(last_run_at, ?4) ELSE ?4 END, since_at = min(since_at, {{now}}), run_requested_at = CASE WHEN run_requested_at IS NOT ?5 THEN run_requested_at END
 WHERE topic = ?1 AND work_key = ?2 AND version = ?3;

-- name: changes
SELECT coalesce(sum(version), 0) FROM "{{schema}}_{{fanout}}";
