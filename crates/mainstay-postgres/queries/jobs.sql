-- Every statement the program sends about jobs, by name. All but the readings call the functions.

-- name: register
select (r.job).name, (r.job).topic, (r.job).payload, (r.job).cron, (r.job).time_zone, (r.job).enabled, (r.job).misfire, (r.job).misfire_cap,
       (r.job).misfire_window_seconds, (r.job).overlap, (r.job).jitter_seconds, (r.job).priority, (r.job).version, (r.job).created_at,
       (r.job).updated_at, (r.job).next_nominal_at, (r.job).last_nominal_at, (r.job).problem, r.change
  from "{{schema}}"."{{jobs}}_register"($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, "{{schema}}"."{{audit}}_as"($13, $14), $15, $16) r

-- name: set_enabled
select "{{schema}}"."{{jobs}}_set_enabled"($1, $2, "{{schema}}"."{{audit}}_as"($3, $4))

-- name: delete
select "{{schema}}"."{{jobs}}_delete"($1, "{{schema}}"."{{audit}}_as"($2, $3))

-- name: get
select j.name, j.topic, j.payload, j.cron, j.time_zone, j.enabled, j.misfire, j.misfire_cap, j.misfire_window_seconds, j.overlap, j.jitter_seconds,
       j.priority, j.version, j.created_at, j.updated_at, j.next_nominal_at, j.last_nominal_at, j.problem
  from "{{schema}}"."{{jobs}}" j where j.name = $1

-- name: list
select j.name, j.topic, j.payload, j.cron, j.time_zone, j.enabled, j.misfire, j.misfire_cap, j.misfire_window_seconds, j.overlap, j.jitter_seconds,
       j.priority, j.version, j.created_at, j.updated_at, j.next_nominal_at, j.last_nominal_at, j.problem
  from "{{schema}}"."{{jobs}}" j where ($1::text is null or j.name > $1) order by j.name limit $2

-- name: due
select j.name, j.topic, '', j.cron, j.time_zone, j.enabled, j.misfire, j.misfire_cap, j.misfire_window_seconds, j.overlap, j.jitter_seconds,
       j.priority, j.version, j.created_at, j.updated_at, j.next_nominal_at, j.last_nominal_at, j.problem, statement_timestamp()
  from "{{schema}}"."{{jobs}}_due_jobs"($1, $2, $3) j

-- name: advance
select a.made, a.skipped from "{{schema}}"."{{jobs}}_advance"($1, $2, $3, $4, $5, $6, $7) a

-- name: reject
select "{{schema}}"."{{jobs}}_reject"($1, $2, $3)

-- name: trigger
select r.id, r.job, r.trigger, r.nominal_at, r.due_at, r.state, r.created_at, r.dispatched_at, r.started_at, r.ended_at, r.attempts, r.error, r.output
  from "{{schema}}"."{{jobs}}_trigger_run"($1, "{{schema}}"."{{audit}}_as"($2, $3)) r

-- name: dispatch
select d.id, d.job, d.late_seconds from "{{schema}}"."{{jobs}}_dispatch"($1, $2, $3) d

-- name: collect
select c.id, c.job, c.outcome, c.ran_seconds from "{{schema}}"."{{jobs}}_collect"($1) c

-- name: ended
select e.id, e.job, e.over, e.last from "{{schema}}"."{{jobs}}_ended"($1, $2, $3) e

-- name: started
select "{{schema}}"."{{jobs}}_started"($1)

-- name: record_output
select "{{schema}}"."{{jobs}}_record_output"($1, $2)

-- name: run
select r.id, r.job, r.trigger, r.nominal_at, r.due_at, r.state, r.created_at, r.dispatched_at, r.started_at, r.ended_at, r.attempts, r.error, r.output
  from "{{schema}}"."{{jobs}}_run" r where r.id = $1

-- name: runs
select r.id, r.job, r.trigger, r.nominal_at, r.due_at, r.state, r.created_at, r.dispatched_at, r.started_at, r.ended_at, r.attempts, r.error, r.output
  from "{{schema}}"."{{jobs}}_run" r
 where ($1::text is null or r.job = $1) and ($2::text is null or r.state = $2) and ($3::text is null or r.trigger = $3)
   and ($4::uuid is null or (r.nominal_at, r.id) < (select b.nominal_at, b.id from "{{schema}}"."{{jobs}}_ledger" b where b.id = $4))
 order by r.nominal_at desc, r.id desc limit $5

-- name: purge
select "{{schema}}"."{{jobs}}_purge"($1, $2, $3, "{{schema}}"."{{audit}}_as"($4, $5))

-- name: next_nominal
select "{{schema}}"."{{jobs}}_next_nominal"()

-- What a scheduler waits for: a run that is due, or a job whose time has come. For the rest of each see queue.sql.
-- name: next_due
select least("{{schema}}"."{{job_runs}}_next_due"($1, $2), "{{schema}}"."{{jobs}}_next_due"())

-- name: idle
select least("{{schema}}"."{{job_runs}}_idle"($1, $2, $3, $4), "{{schema}}"."{{jobs}}_next_due"()) from set_config('synchronous_commit', 'off', true)

-- name: horizon_passed
select "{{schema}}"."{{job_runs}}_horizon_passed"($1), least("{{schema}}"."{{job_runs}}_next_due"($2, $3), "{{schema}}"."{{jobs}}_next_due"())
