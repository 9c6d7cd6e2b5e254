-- Every statement of the jobs. `-- name:` starts one; src/statements.rs lists them. Parameters are numbered, `now` is always one.

-- name: insert
-- 1 name, 2 topic, 3 cron, 4 payload, 5 time zone, 6 enabled or null, 7 misfire, 8 cap, 9 window, 10 overlap, 11 jitter, 12 priority, 13 now.
-- No change: there is a job of that name.
INSERT INTO "{{schema}}_{{jobs}}" (
    name, topic, cron, payload, time_zone, enabled, misfire, misfire_cap, misfire_window_seconds, overlap, jitter_seconds, priority, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, coalesce(?6, 1), ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)
ON CONFLICT (name) DO NOTHING;

-- name: update
-- As above. Registered as it is already, as every start of a program does, it stays untouched. What was promised stays promised,
-- unless it is another schedule now, or was none.
UPDATE "{{schema}}_{{jobs}}"
   SET topic = ?2, cron = ?3, payload = ?4, time_zone = ?5, enabled = coalesce(?6, enabled), misfire = ?7, misfire_cap = ?8,
       misfire_window_seconds = ?9, overlap = ?10, jitter_seconds = ?11, priority = ?12, version = version + 1, updated_at = ?13, problem = NULL,
       next_nominal_at = CASE WHEN enabled = 1 AND coalesce(?6, 1) = 1 AND cron = ?3 AND time_zone = ?5 THEN next_nominal_at END
 WHERE name = ?1
   AND (problem IS NOT NULL OR topic <> ?2 OR cron <> ?3 OR payload <> ?4 OR time_zone <> ?5 OR enabled <> coalesce(?6, enabled) OR misfire <> ?7
        OR misfire_cap IS NOT ?8 OR misfire_window_seconds IS NOT ?9 OR overlap <> ?10 OR jitter_seconds <> ?11 OR priority <> ?12);

-- name: set_enabled
-- 1 name, 2 enabled, 3 now.
UPDATE "{{schema}}_{{jobs}}" SET enabled = ?2, version = version + 1, updated_at = ?3, next_nominal_at = NULL, problem = NULL
 WHERE name = ?1 AND enabled <> ?2;

-- name: delete
-- 1 name.
DELETE FROM "{{schema}}_{{jobs}}" WHERE name = ?1;

-- name: pending
-- 1 job. Its runs that are not dispatched.
SELECT id FROM "{{schema}}_{{jobs}}_ledger" WHERE job = ?1 AND outcome IS NULL AND dispatched_at IS NULL;

-- name: unclaim
-- 1 id. Takes a run that is not dispatched from whoever has claimed it.
UPDATE "{{schema}}_{{job_runs}}" SET status = 0, owner = NULL, locked_until = NULL, generation = generation + 1 WHERE id = ?1 AND status = 1;

-- name: end_run
-- 1 id, 2 outcome, 3 now, 4 error.
UPDATE "{{schema}}_{{jobs}}_ledger" SET outcome = ?2, ended_at = ?3, error = ?4 WHERE id = ?1;

-- name: get
-- 1 name.
SELECT name, topic, payload, cron, time_zone, enabled, misfire, misfire_cap, misfire_window_seconds, overlap, jitter_seconds, priority,
       version, created_at, updated_at, next_nominal_at, last_nominal_at, problem
  FROM "{{schema}}_{{jobs}}" WHERE name = ?1;

-- name: list
-- 1 after this name, 2 rows at most.
SELECT name, topic, payload, cron, time_zone, enabled, misfire, misfire_cap, misfire_window_seconds, overlap, jitter_seconds, priority,
       version, created_at, updated_at, next_nominal_at, last_nominal_at, problem
  FROM "{{schema}}_{{jobs}}" WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: due
-- 1 now, 2 after this time or null, 3 and this name, 4 rows at most.
SELECT name, topic, '', cron, time_zone, enabled, misfire, misfire_cap, misfire_window_seconds, overlap, jitter_seconds, priority,
       version, created_at, updated_at, next_nominal_at, last_nominal_at, problem
  FROM "{{schema}}_{{jobs}}"
 WHERE enabled = 1 AND problem IS NULL AND coalesce(next_nominal_at, -400000000000000000) <= ?1
   AND (coalesce(next_nominal_at, -400000000000000000), name) > (coalesce(?2, -400000000000000000), ?3)
 ORDER BY coalesce(next_nominal_at, -400000000000000000), name LIMIT ?4;

-- name: troubled
-- 1 rows at most. In no order: should there be more than one look takes, each has its turn.
SELECT name, topic, '', cron, time_zone, enabled, misfire, misfire_cap, misfire_window_seconds, overlap, jitter_seconds, priority,
       version, created_at, updated_at, next_nominal_at, last_nominal_at, problem
  FROM "{{schema}}_{{jobs}}"
 WHERE enabled = 1 AND problem IS NOT NULL ORDER BY random() LIMIT ?1;

-- name: advance
-- 1 name, 2 version, 3 expected, 4 next, 5 last. No change: whoever planned it did so with what is no longer so.
UPDATE "{{schema}}_{{jobs}}" SET next_nominal_at = ?4, last_nominal_at = coalesce(?5, last_nominal_at), problem = NULL
 WHERE name = ?1 AND version = ?2 AND enabled = 1 AND next_nominal_at IS ?3;

-- name: reject
-- 1 name, 2 version, 3 problem. Advice only: a scheduler that can read the job takes it back.
UPDATE "{{schema}}_{{jobs}}" SET problem = substr(?3, 1, 2048) WHERE name = ?1 AND version = ?2 AND problem IS NULL;

-- name: under_way
-- 1 job. Not by the ledger alone: what has ended without having been collected is not in the way.
SELECT EXISTS (
    SELECT 1 FROM "{{schema}}_{{jobs}}_ledger" l
     WHERE l.job = ?1 AND l.outcome IS NULL
       AND (EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = l.id)
            OR EXISTS (SELECT 1 FROM "{{schema}}_{{job_runs}}" q WHERE q.id = l.id)));

-- name: add_run
-- 1 id, 2 job, 3 trigger, 4 nominal, 5 due, 6 now, 7 outcome or null, 8 error. No change: the occurrence has its run.
INSERT INTO "{{schema}}_{{jobs}}_ledger" (id, job, "trigger", nominal_at, due_at, created_at, outcome, ended_at, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, CASE WHEN ?7 IS NOT NULL THEN ?6 END, ?8)
ON CONFLICT (job, nominal_at) DO NOTHING;

-- name: taken
-- 1 job, 2 nominal.
SELECT EXISTS (SELECT 1 FROM "{{schema}}_{{jobs}}_ledger" WHERE job = ?1 AND nominal_at = ?2);

-- name: dispatched
-- 1 id, 2 now.
UPDATE "{{schema}}_{{jobs}}_ledger" SET dispatched_at = ?2 WHERE id = ?1 RETURNING job, due_at;

-- name: started
-- 1 id, 2 now.
UPDATE "{{schema}}_{{jobs}}_ledger" SET started_at = ?2 WHERE id = ?1 AND started_at IS NULL;

-- name: record_output
-- 1 id, 2 output.
UPDATE "{{schema}}_{{jobs}}_ledger" SET output = ?2 WHERE id = ?1;

-- name: ended_page
-- 1 after this job, 2 and this run, 3 rows at most. Runs whose end is not noted, and whether they are over.
-- The message of a run has its id twice. Another one that has only taken the place says nothing of the run.
SELECT l.id, l.job,
       NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = l.id AND o.message_id = l.id)
       AND (l.dispatched_at IS NOT NULL
            OR EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}_history" h WHERE h.id = l.id AND h.message_id = l.id)
            OR EXISTS (SELECT 1 FROM "{{schema}}_{{job_runs}}_history" s WHERE s.id = l.id))
  FROM "{{schema}}_{{jobs}}_ledger" l
 WHERE l.outcome IS NULL AND (l.job, l.id) > (?1, ?2) ORDER BY l.job, l.id LIMIT ?3;

-- name: ended
-- 1 now, 2 id. How a run that is over has ended, if that is not noted: job, outcome, when, attempts, error, start.
SELECT l.job,
       CASE WHEN h.status = 2 THEN 1
            WHEN h.reason = 'cancelled' THEN 4
            WHEN h.id IS NOT NULL OR l.dispatched_at IS NOT NULL THEN 2
            WHEN s.status = 2 THEN 1
            WHEN s.reason = 'cancelled' THEN 4
            ELSE 2 END,
       coalesce(h.processed_at, CASE WHEN l.dispatched_at IS NULL THEN s.processed_at END, ?1),
       coalesce(h.attempts, l.attempts),
       CASE WHEN h.id IS NOT NULL THEN CASE h.status WHEN 3 THEN coalesce(h.last_error, h.reason) END
            WHEN l.dispatched_at IS NOT NULL THEN 'its message is no longer in the outbox'
            WHEN s.status = 3 THEN coalesce(s.last_error, s.reason) END,
       l.started_at
  FROM "{{schema}}_{{jobs}}_ledger" l
  LEFT JOIN "{{schema}}_{{outbox}}_history" h ON h.id = l.id AND h.message_id = l.id
  LEFT JOIN "{{schema}}_{{job_runs}}_history" s ON s.id = l.id
 WHERE l.id = ?2 AND l.outcome IS NULL
   AND (h.id IS NOT NULL OR s.id IS NOT NULL OR l.dispatched_at IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = l.id AND o.message_id = l.id);

-- name: note_end
-- 1 id, 2 outcome, 3 when, 4 attempts, 5 error.
UPDATE "{{schema}}_{{jobs}}_ledger" SET outcome = ?2, ended_at = ?3, attempts = ?4, error = ?5 WHERE id = ?1;

-- name: run
-- 1 id.
SELECT id, job, "trigger", nominal_at, due_at, state, created_at, dispatched_at, started_at, ended_at, attempts, error, output
  FROM "{{schema}}_{{jobs}}_run" WHERE id = ?1;

-- name: runs
-- 1 before this nominal time, 2 and this id, 3 state, 4 trigger, 5 rows at most.
SELECT id, job, "trigger", nominal_at, due_at, state, created_at, dispatched_at, started_at, ended_at, attempts, error, output
  FROM "{{schema}}_{{jobs}}_run"
 WHERE (nominal_at, id) < (?1, ?2) AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR "trigger" = ?4)
 ORDER BY nominal_at DESC, id DESC LIMIT ?5;

-- name: runs_of_job
-- The same, and 6 job.
SELECT id, job, "trigger", nominal_at, due_at, state, created_at, dispatched_at, started_at, ended_at, attempts, error, output
  FROM "{{schema}}_{{jobs}}_run"
 WHERE job = ?6 AND (nominal_at, id) < (?1, ?2) AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR "trigger" = ?4)
 ORDER BY nominal_at DESC, id DESC LIMIT ?5;

-- name: nominal_of
-- 1 id.
SELECT nominal_at FROM "{{schema}}_{{jobs}}_ledger" WHERE id = ?1;

-- name: purge_select
-- 1 whether failed ones, 2 ended at or before, 3 rows at most.
SELECT id FROM "{{schema}}_{{jobs}}_ledger" WHERE outcome IS NOT NULL AND (outcome = 2) = ?1 AND ended_at <= ?2 ORDER BY ended_at LIMIT ?3;

-- name: purge_item
-- 1 id.
DELETE FROM "{{schema}}_{{job_runs}}_history" WHERE id = ?1;

-- name: purge_run
-- 1 id.
DELETE FROM "{{schema}}_{{jobs}}_ledger" WHERE id = ?1;

-- name: next_nominal
-- 1 now. Now, if one is still to be calculated.
SELECT coalesce(next_nominal_at, ?1) FROM "{{schema}}_{{jobs}}" WHERE enabled = 1 AND problem IS NULL ORDER BY coalesce(next_nominal_at, -400000000000000000) LIMIT 1;
