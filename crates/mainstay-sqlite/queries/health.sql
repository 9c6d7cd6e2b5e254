-- What the health checks look at. Each statement reads only, and walks no more of a queue than its front, and what is paused in it.

-- name: due
-- 1 now, 2 priority, 3 overdue if due by then, 4 rows at most. How many are overdue, and when the first that anybody could claim was due.
-- What waits for its ordering key nobody could claim.
SELECT count(CASE WHEN f.due_at <= ?3 THEN 1 END), min(f.due_at)
  FROM (SELECT o.seq, o.due_at, o.ordering_key FROM "{{schema}}_{{queue}}" o
         WHERE o.status = 0 AND o.parked = 0 AND o.priority = ?2 AND o.due_at <= ?1
           AND o.topic NOT IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
         ORDER BY o.due_at LIMIT ?4) f
 WHERE f.ordering_key IS NULL OR (
       f.seq = (SELECT min(a.seq) FROM "{{schema}}_{{queue}}" a WHERE a.ordering_key = f.ordering_key)
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{queue}}_hold" h WHERE h.ordering_key = f.ordering_key));

-- name: lapsed
-- 1 now, 2 priority, 3 stuck if lapsed by then, 4 rows at most. How many are stuck, and when the first lease lapsed.
SELECT count(CASE WHEN f.locked_until <= ?3 THEN 1 END), min(f.locked_until)
  FROM (SELECT o.locked_until FROM "{{schema}}_{{queue}}" o
         WHERE o.status = 1 AND o.priority = ?2 AND o.locked_until <= ?1
           AND o.topic NOT IN (SELECT p.topic FROM "{{schema}}_{{queue}}_paused" p)
         ORDER BY o.locked_until LIMIT ?4) f;

-- name: busy
-- 1 now, 2 priority, 3 rows at most. Who holds claims.
SELECT DISTINCT f.owner
  FROM (SELECT o.owner FROM "{{schema}}_{{queue}}" o
         WHERE o.status = 1 AND o.priority = ?2 AND o.locked_until > ?1
         ORDER BY o.locked_until LIMIT ?3) f;

-- name: settled
-- When a consumer last ended something.
SELECT max(f.at) FROM (
    SELECT (SELECT h.processed_at FROM "{{schema}}_{{queue}}_history" h WHERE h.status = 2 ORDER BY h.processed_at DESC LIMIT 1) AS at
    UNION ALL
    SELECT (SELECT CASE WHEN l.processed_by IS NOT NULL THEN l.processed_at END
              FROM (SELECT h.processed_at, h.processed_by FROM "{{schema}}_{{queue}}_history" h
                     WHERE h.status = 3 ORDER BY h.processed_at DESC LIMIT 1) l)) f;

-- name: jobs
-- 1 now, 2 overdue if due by then, 3 rows at most. A job without a next time has waited for a scheduler since it was changed.
SELECT count(CASE WHEN f.since <= ?2 THEN 1 END), min(CASE WHEN f.since <= ?1 THEN f.since END)
  FROM (SELECT coalesce(p.next_nominal_at, p.updated_at) AS since FROM "{{schema}}_{{jobs}}" p
         WHERE p.enabled = 1 AND p.problem IS NULL AND coalesce(p.next_nominal_at, -400000000000000000) <= ?1
         ORDER BY coalesce(p.next_nominal_at, -400000000000000000), p.name LIMIT ?3) f;

-- name: troubled
-- 1 rows at most. Those that no scheduler can read, and one of them.
SELECT count(*), min(f.name)
  FROM (SELECT p.name FROM "{{schema}}_{{jobs}}" p WHERE p.enabled = 1 AND p.problem IS NOT NULL ORDER BY p.name LIMIT ?1) f;

-- name: joins
-- 1 now, 2 overdue if the deadline was by then, 3 rows at most.
SELECT count(CASE WHEN f.deadline_at <= ?2 THEN 1 END), min(f.deadline_at)
  FROM (SELECT p.deadline_at FROM "{{schema}}_{{joins}}" p
         WHERE p.status = 0 AND p.deadline_at <= ?1 ORDER BY p.deadline_at LIMIT ?3) f;

-- name: leases
-- 1 now, 2 lapsed lately if after then. One row for each name, so all are counted.
SELECT count(CASE WHEN l.expires_at > ?1 THEN 1 END),
       count(CASE WHEN l.expires_at <= ?1 AND l.expires_at > ?2 THEN 1 END),
       count(CASE WHEN l.expires_at <= ?2 THEN 1 END)
  FROM "{{schema}}_{{lease}}" l WHERE l.owner IS NOT NULL;

-- name: lease_lapsed_last
-- 1 now, 2 lapsed lately if after then.
SELECT l.name, l.expires_at FROM "{{schema}}_{{lease}}" l
 WHERE l.owner IS NOT NULL AND l.expires_at <= ?1 AND l.expires_at > ?2 ORDER BY l.expires_at DESC, l.name LIMIT 1;

-- name: lane
-- 1 id, 2 rows at most. Who holds the item's ordering key, the first ahead of it, and how many there are.
SELECT (SELECT h.id FROM "{{schema}}_{{queue}}_hold" h WHERE h.ordering_key = i.ordering_key),
       (SELECT a.id FROM "{{schema}}_{{queue}}" a WHERE a.ordering_key = i.ordering_key AND a.seq < i.seq ORDER BY a.seq LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "{{schema}}_{{queue}}" a
                               WHERE a.ordering_key = i.ordering_key AND a.seq < i.seq LIMIT ?2) f)
  FROM "{{schema}}_{{queue}}" i WHERE i.id = ?1;
