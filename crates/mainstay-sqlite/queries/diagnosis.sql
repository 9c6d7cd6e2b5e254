-- What a doctor looks at.

-- name: runs
-- 1 the runs since then, 2 late by more than so long, 3 rows at most. How many there are, are late, were left out, have failed.
SELECT count(*), count(CASE WHEN f.late > ?2 THEN 1 END), count(CASE WHEN f.outcome = 3 THEN 1 END), count(CASE WHEN f.outcome = 2 THEN 1 END)
  FROM (SELECT l.outcome, CASE WHEN l.trigger = 'cron' THEN l.created_at - l.nominal_at END AS late
          FROM "{{schema}}_{{jobs}}_ledger" l WHERE l.nominal_at > ?1 ORDER BY l.nominal_at DESC, l.id DESC LIMIT ?3) f;

-- name: latest_run
-- 1 the runs since then, 2 late by more than so long, 3 rows at most. The latest of them: by how much, and of which job.
SELECT f.late, f.job
  FROM (SELECT l.job, l.created_at - l.nominal_at AS late, l.trigger
          FROM "{{schema}}_{{jobs}}_ledger" l WHERE l.nominal_at > ?1 ORDER BY l.nominal_at DESC, l.id DESC LIMIT ?3) f
 WHERE f.trigger = 'cron' AND f.late > ?2 ORDER BY f.late DESC, f.job LIMIT 1;
