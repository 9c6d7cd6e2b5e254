-- Every statement about the audit trail. `-- name:` starts one; src/statements.rs lists them.
-- Those that may run in a transaction of any driver answer with one text, in JSON, with times as microseconds.

-- name: insert
-- 1 id, 2 name, 3 actor, 4 outcome, 5 correlation id, 6 data.
INSERT INTO "{{schema}}_{{audit}}" (id, recorded_at, name, actor, outcome, correlation_id, data)
VALUES (?1, {{now}}, ?2, ?3, ?4, ?5, ?6)
RETURNING json_array(lower(hex(id))) AS answer;

-- name: anchor
-- 1 id, 2 kind, 3 value. Under the record's own time.
INSERT OR IGNORE INTO "{{schema}}_{{audit}}_anchor" (kind, value, recorded_at, audit_id)
SELECT ?2, ?3, a.recorded_at, a.id FROM "{{schema}}_{{audit}}" a WHERE a.id = ?1;

-- name: get
-- 1 id.
SELECT json_object(
           'id', lower(hex(a.id)), 'recorded_at', a.recorded_at, 'name', a.name, 'actor', a.actor, 'outcome', a.outcome,
           'correlation_id', a.correlation_id, 'data', a.data,
           'anchors', (SELECT json_group_array(json_array(o.kind, o.value)) FROM (
               SELECT k.kind, k.value FROM "{{schema}}_{{audit}}_anchor" k WHERE k.audit_id = a.id ORDER BY k.kind, k.value LIMIT 100) o)) AS answer
  FROM "{{schema}}_{{audit}}" a
 WHERE a.id = ?1;

-- name: list
-- 1 first name, 2 after the last name, 3 actor, 4 correlation id, 5 outcome, 6 from, 7 to, 8 the last record of the page before, 9 rows at most.
SELECT json_object(
           'id', lower(hex(a.id)), 'recorded_at', a.recorded_at, 'name', a.name, 'actor', a.actor, 'outcome', a.outcome,
           'correlation_id', a.correlation_id, 'data', a.data,
           'anchors', (SELECT json_group_array(json_array(o.kind, o.value)) FROM (
               SELECT k.kind, k.value FROM "{{schema}}_{{audit}}_anchor" k WHERE k.audit_id = a.id ORDER BY k.kind, k.value LIMIT 100) o)) AS answer
  FROM "{{schema}}_{{audit}}" a
 WHERE (?1 IS NULL OR (a.name >= ?1 AND a.name < ?2)) AND (?3 IS NULL OR a.actor = ?3) AND (?4 IS NULL OR a.correlation_id = ?4)
   AND (?5 IS NULL OR a.outcome = ?5) AND a.recorded_at >= ?6 AND a.recorded_at < ?7
   AND (?8 IS NULL OR (a.recorded_at, a.id) < (SELECT b.recorded_at, b.id FROM "{{schema}}_{{audit}}" b WHERE b.id = ?8))
 ORDER BY a.recorded_at DESC, a.id DESC
 LIMIT ?9;

-- name: list_about
-- The same of one anchor: 10 kind, 11 value.
SELECT json_object(
           'id', lower(hex(a.id)), 'recorded_at', a.recorded_at, 'name', a.name, 'actor', a.actor, 'outcome', a.outcome,
           'correlation_id', a.correlation_id, 'data', a.data,
           'anchors', (SELECT json_group_array(json_array(o.kind, o.value)) FROM (
               SELECT k.kind, k.value FROM "{{schema}}_{{audit}}_anchor" k WHERE k.audit_id = a.id ORDER BY k.kind, k.value LIMIT 100) o)) AS answer
  FROM "{{schema}}_{{audit}}_anchor" n CROSS JOIN "{{schema}}_{{audit}}" a
 WHERE n.kind = ?10 AND n.value = ?11 AND a.id = n.audit_id
   AND (?1 IS NULL OR (a.name >= ?1 AND a.name < ?2)) AND (?3 IS NULL OR a.actor = ?3) AND (?4 IS NULL OR a.correlation_id = ?4)
   AND (?5 IS NULL OR a.outcome = ?5) AND n.recorded_at >= ?6 AND n.recorded_at < ?7
   AND (?8 IS NULL OR (n.recorded_at, n.audit_id) < (SELECT b.recorded_at, b.id FROM "{{schema}}_{{audit}}" b WHERE b.id = ?8))
 ORDER BY n.recorded_at DESC, n.audit_id DESC
 LIMIT ?9;

-- name: purge_begin
-- 1 now.
INSERT INTO "{{schema}}_{{audit}}_purging" (now) VALUES (?1);

-- name: purge_select
-- 1 those written before this moment, 2 rows at most.
SELECT a.seq, a.id FROM "{{schema}}_{{audit}}" a WHERE a.recorded_at <= ?1 ORDER BY a.recorded_at, a.id LIMIT ?2;

-- name: purge_anchors
-- 1 id.
DELETE FROM "{{schema}}_{{audit}}_anchor" WHERE audit_id = ?1;

-- name: purge_record
-- 1 seq.
DELETE FROM "{{schema}}_{{audit}}" WHERE seq = ?1;

-- name: purge_end
DELETE FROM "{{schema}}_{{audit}}_purging";
