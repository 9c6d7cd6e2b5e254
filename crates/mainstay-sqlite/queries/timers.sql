-- Every statement about timers alone; all others are those of a queue. `-- name:` starts one; src/statements.rs lists them.

-- name: due
-- 1 id.
SELECT due_at FROM "{{schema}}_{{timers}}" WHERE id = ?1 AND status = 0;

-- name: reschedule
-- 1 id, 2 now, 3 due at, 4 due in microseconds. A due time in the past means now. No change: it no longer waits.
UPDATE "{{schema}}_{{timers}}"
   SET due_at = max(coalesce(?3, ?2 + ?4), ?2), requested_due_at = coalesce(?3, ?2 + ?4)
 WHERE id = ?1 AND status = 0;

-- name: next_event_time
-- 1 now. When the nearest of timers, job runs and jobs is due: one probe of an index for each priority.
WITH RECURSIVE level(n) AS (VALUES (-9) UNION ALL SELECT n + 1 FROM level WHERE n < 9)
SELECT min(due) FROM (
    SELECT (SELECT min(t.due_at) FROM "{{schema}}_{{timers}}" t WHERE t.status = 0 AND t.parked = 0 AND t.priority = level.n) AS due FROM level
    UNION ALL
    SELECT (SELECT min(r.due_at) FROM "{{schema}}_{{job_runs}}" r WHERE r.status = 0 AND r.parked = 0 AND r.priority = level.n) FROM level
    UNION ALL
    SELECT (SELECT coalesce(j.next_nominal_at, ?1) FROM "{{schema}}_{{jobs}}" j WHERE j.enabled = 1 AND j.problem IS NULL ORDER BY j.next_nominal_at LIMIT 1));
