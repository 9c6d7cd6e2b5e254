-- Every statement of the joins that may run in a transaction of any driver, and the looks. `-- name:` starts one; src/statements.rs lists
-- them. Answers are JSON; ids in them are hexadecimal digits. Lists of ids are one blob, 16 bytes each.

-- name: start
-- 1 id, 2 expected steps, 3 needed, 4 mode, 5 grouping key, 6 deadline at, 7 deadline in microseconds. No answer: the id is taken.
INSERT INTO "{{schema}}_{{joins}}" (id, created_at, updated_at, deadline_at, expected_steps, needed, mode, grouping_key)
VALUES (?1, {{now}}, {{now}}, coalesce(?6, {{now}} + ?7), ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO NOTHING
RETURNING json_array(1) AS answer;

-- name: start_continuation
-- 1 join, 2 outcome, 3 id, 4 message id, 5 topic, 6 payload, 7 correlation id, 8 headers, 9 priority, 10 ordering key, 11 hold on failure,
-- 12 join as text. Nothing, if the statement before this one, the start or another continuation, added nothing: the join is somebody else's.
INSERT INTO "{{schema}}_{{joins}}_continuation" (
    join_id, outcome, work_item_id, message_id, topic, payload, correlation_id, headers, priority, ordering_key, hold_on_failure)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, json_set(coalesce(?8, '{}'), '$."mainstay-join"', ?12), ?9, ?10, ?11 WHERE changes() > 0;

-- name: start_note
-- Records a join, if the statement before this one, its start or a continuation, added something: 1 record, 2 name, 3 actor, 4 outcome,
-- 5 correlation id, 6 data.
INSERT INTO "{{schema}}_{{audit}}" (id, recorded_at, name, actor, outcome, correlation_id, data)
SELECT ?1, {{now}}, ?2, ?3, ?4, ?5, ?6 WHERE changes() > 0;

-- name: attach_note
-- Records items that are going to be members, if there are any: 1 record, 2 name, 3 actor, 4 outcome, 5 correlation id, 6 what is told
-- besides, 7 join, 8 items.
WITH RECURSIVE place(at) AS (SELECT 1 WHERE length(?8) > 0 UNION ALL SELECT at + 16 FROM place WHERE at + 16 < length(?8)),
     added(item) AS (
         SELECT DISTINCT CAST(substr(?8, at, 16) AS BLOB) AS item FROM place
          WHERE EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" WHERE id = ?7 AND status = 0)
            AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}_member" m WHERE m.join_id = ?7 AND m.work_item_id = CAST(substr(?8, at, 16) AS BLOB))),
     shown(id) AS (SELECT lower(hex(item)) FROM added LIMIT 20)
INSERT INTO "{{schema}}_{{audit}}" (id, recorded_at, name, actor, outcome, correlation_id, data)
SELECT ?1, {{now}}, ?2, ?3, ?4, ?5, json_set(?6, '$.count', (SELECT count(*) FROM added), '$.items', json((
           SELECT json_group_array(substr(id, 1, 8) || '-' || substr(id, 9, 4) || '-' || substr(id, 13, 4) || '-' || substr(id, 17, 4) || '-' || substr(id, 21)) FROM shown)))
 WHERE EXISTS (SELECT 1 FROM added);

-- name: attach_about
-- 1 record, 2 join, 3 items. Each of those that are going to be members finds the record, if there is one.
WITH RECURSIVE place(at) AS (SELECT 1 WHERE length(?3) > 0 UNION ALL SELECT at + 16 FROM place WHERE at + 16 < length(?3)),
     added(item, id) AS (
         SELECT CAST(substr(?3, at, 16) AS BLOB), lower(hex(substr(?3, at, 16))) FROM place)
INSERT OR IGNORE INTO "{{schema}}_{{audit}}_anchor" (kind, value, recorded_at, audit_id)
SELECT 'step', substr(n.id, 1, 8) || '-' || substr(n.id, 9, 4) || '-' || substr(n.id, 13, 4) || '-' || substr(n.id, 17, 4) || '-' || substr(n.id, 21), a.recorded_at, a.id
  FROM "{{schema}}_{{audit}}" a, added n
 WHERE a.id = ?1 AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}_member" m WHERE m.join_id = ?2 AND m.work_item_id = n.item);

-- name: report_before
-- 1 join, 2 item. No row: there is no such join. The last is null where the item is no member.
SELECT json_array(j.status, j.completed, j.failed,
                  (SELECT m.state FROM "{{schema}}_{{joins}}_member" m WHERE m.join_id = ?1 AND m.work_item_id = ?2)) AS answer
  FROM "{{schema}}_{{joins}}" j WHERE j.id = ?1;

-- name: report_note
-- Records a step that is going to be counted: 1 record, 2 name, 3 actor, 4 outcome, 5 correlation id, 6 data, 7 join, 8 item.
INSERT INTO "{{schema}}_{{audit}}" (id, recorded_at, name, actor, outcome, correlation_id, data)
SELECT ?1, {{now}}, ?2, ?3, ?4, ?5, ?6
 WHERE EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" WHERE id = ?7 AND status = 0)
   AND EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}_member" WHERE join_id = ?7 AND work_item_id = ?8 AND state = 0);

-- name: report
-- 1 join, 2 item, 3 state.
UPDATE "{{schema}}_{{joins}}_member" SET state = ?3, updated_at = {{now}}
 WHERE join_id = ?1 AND work_item_id = ?2 AND state = 0 AND EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" WHERE id = ?1 AND status = 0);

-- name: report_after
-- 1 join.
SELECT json_array(j.status, j.reason, j.completed, j.failed) AS answer FROM "{{schema}}_{{joins}}" j WHERE j.id = ?1;

-- name: get
-- 1 join.
SELECT json_object('id', hex(id), 'grouping_key', grouping_key, 'mode', mode, 'needed', needed, 'expected', expected_steps, 'completed', completed,
                   'failed', failed, 'state', status, 'reason', reason, 'deadline_at', deadline_at, 'created_at', created_at, 'updated_at', updated_at,
                   'ended_at', ended_at) AS answer
  FROM "{{schema}}_{{joins}}" WHERE id = ?1;

-- name: list
-- 1 before this join (null: from the newest), 2 state, 3 rows at most.
SELECT json_object('id', hex(id), 'grouping_key', grouping_key, 'mode', mode, 'needed', needed, 'expected', expected_steps, 'completed', completed,
                   'failed', failed, 'state', status, 'reason', reason, 'deadline_at', deadline_at, 'created_at', created_at, 'updated_at', updated_at,
                   'ended_at', ended_at) AS answer
  FROM "{{schema}}_{{joins}}"
 WHERE id < coalesce(?1, x'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF') AND (?2 IS NULL OR status = ?2)
 ORDER BY id DESC LIMIT ?3;

-- name: list_group
-- 1 before this join, 2 state, 3 rows at most, 4 grouping key.
SELECT json_object('id', hex(id), 'grouping_key', grouping_key, 'mode', mode, 'needed', needed, 'expected', expected_steps, 'completed', completed,
                   'failed', failed, 'state', status, 'reason', reason, 'deadline_at', deadline_at, 'created_at', created_at, 'updated_at', updated_at,
                   'ended_at', ended_at) AS answer
  FROM "{{schema}}_{{joins}}"
 WHERE grouping_key = ?4 AND id < coalesce(?1, x'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF') AND (?2 IS NULL OR status = ?2)
 ORDER BY id DESC LIMIT ?3;

-- name: members
-- 1 join, 2 after this item (null: from the first), 3 rows at most.
SELECT json_array(hex(work_item_id), state, updated_at) AS answer FROM "{{schema}}_{{joins}}_member"
 WHERE join_id = ?1 AND work_item_id > coalesce(?2, x'') ORDER BY work_item_id LIMIT ?3;

-- name: of_item
-- 1 item.
SELECT json_array(hex(join_id)) AS answer FROM "{{schema}}_{{joins}}_member" WHERE work_item_id = ?1 ORDER BY join_id LIMIT 1000;

-- name: cancel
-- 1 join. No change: it has ended.
UPDATE "{{schema}}_{{joins}}" SET status = 3, updated_at = {{now}}, ended_at = {{now}} WHERE id = ?1 AND status = 0;

-- name: cancel_waiting
-- 1 join. Its messages that have not started.
SELECT m.work_item_id FROM "{{schema}}_{{joins}}_member" m JOIN "{{schema}}_{{outbox}}" o ON o.id = m.work_item_id
 WHERE m.join_id = ?1 AND m.state = 0 AND o.status = 0;

-- name: cancel_member
-- 1 join, 2 item.
UPDATE "{{schema}}_{{joins}}_member" SET state = 3, updated_at = {{now}} WHERE join_id = ?1 AND work_item_id = ?2 AND state = 0;

-- name: expire
-- 1 joins at most.
UPDATE "{{schema}}_{{joins}}"
   SET status = CASE WHEN mode = 3 AND failed = 0 THEN 1 ELSE 2 END,
       reason = CASE WHEN mode <> 3 THEN 'deadline' WHEN failed > 0 THEN 'steps' END, updated_at = {{now}}, ended_at = {{now}}
 WHERE id IN (SELECT id FROM "{{schema}}_{{joins}}" WHERE status = 0 AND deadline_at <= {{now}} ORDER BY deadline_at LIMIT ?1)
RETURNING json_array(json_array(hex(id), 0, 0, status, reason)) AS answer;

-- name: next_deadline
SELECT json_array((SELECT deadline_at - {{now}} FROM "{{schema}}_{{joins}}"
                    WHERE status = 0 AND deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1)) AS answer;

-- name: first_deadline
SELECT deadline_at FROM "{{schema}}_{{joins}}" WHERE status = 0 AND deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1;

-- name: stats
SELECT json_array(count(*), coalesce(sum(deadline_at <= {{now}}), 0)) AS answer FROM "{{schema}}_{{joins}}" WHERE status = 0;

-- name: purge_select
-- 1 age in microseconds, 2 rows at most.
SELECT id FROM "{{schema}}_{{joins}}" WHERE status <> 0 AND ended_at <= {{now}} - ?1 ORDER BY ended_at LIMIT ?2;

-- name: purge_members
-- 1 join, 2 rows at most.
DELETE FROM "{{schema}}_{{joins}}_member"
 WHERE join_id = ?1 AND work_item_id IN (SELECT work_item_id FROM "{{schema}}_{{joins}}_member" WHERE join_id = ?1 LIMIT ?2);

-- name: purge_continuations
-- 1 join.
DELETE FROM "{{schema}}_{{joins}}_continuation" WHERE join_id = ?1;

-- name: purge
-- 1 join.
DELETE FROM "{{schema}}_{{joins}}" WHERE id = ?1;
