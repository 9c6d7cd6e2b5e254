-- Every statement the program sends about a queue, by name. All but the listing call the public functions.

-- One message with nothing special about it.
-- name: add_plain
select "{{schema}}"."{{queue}}_add_one"($1, $2, $3, $4, $5, $6)

-- name: add_one
select "{{schema}}"."{{queue}}_add_one"($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: add
select "{{schema}}"."{{queue}}_add"($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- $14: the ids that are looked up.
-- name: add_once
select "{{schema}}"."{{queue}}_add_once"($14, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- Messages with idempotency keys: it tells which of them were added.
-- name: enqueue_many
select e.work_item_id, e.message_id, e.added
  from "{{schema}}"."{{queue}}_enqueue_many"(
       $1, $2, $3, $4, $5, headers => $6, due_ats => $7, due_in_seconds => $8, ordering_keys => $9, holds => $10, priorities => $11,
       expires_ats => $12, expires_in_seconds => $13, idempotency_keys => $14, new_ids => $15) e
 order by e.ordinal

-- Everything as text, for drivers with types of their own.
-- name: enqueue_many_as_text
select e.work_item_id::text as work_item_id, e.message_id::text as message_id, e.added
  from "{{schema}}"."{{queue}}_enqueue_many"(
       $1::text[]::uuid[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]::timestamptz[], $7::text[], $8::text[],
       $9::text[]::smallint[], $10::text[]::timestamptz[], $11::text[], $12::text[]::boolean[],
       due_in_seconds => $13::text[]::double precision[], expires_in_seconds => $14::text[]::double precision[],
       new_ids => $15::text[]::boolean[]) e
 order by e.ordinal

-- Messages that are steps of joins: $16 and $17 are pairs of a join and the place of a message.
-- name: enqueue_joined
with added as materialized (
    select e.ordinal, e.work_item_id, e.message_id, e.added
      from "{{schema}}"."{{queue}}_enqueue_many"(
           $1, $2, $3, $4, $5, headers => $6, due_ats => $7, due_in_seconds => $8, ordering_keys => $9, holds => $10, priorities => $11,
           expires_ats => $12, expires_in_seconds => $13, idempotency_keys => $14, new_ids => $15) e),
attached as materialized (
    select count(*) as members
      from (select array_agg(p.join_id order by p.n) as joins, array_agg(a.work_item_id order by p.n) as items, bool_and(a.added) as fresh
              from unnest($16::uuid[], $17::integer[]) with ordinality p(join_id, place, n) join added a on a.ordinal = p.place) x
     cross join lateral "{{schema}}"."{{joins}}_attach_pairs"(x.joins, x.items, x.fresh) m)
select a.work_item_id, a.message_id, a.added, case when a.ordinal = 1 then nullif(current_setting('mainstay.joins', true), '') end
  from added a cross join attached
 order by a.ordinal

-- The same with everything as text.
-- name: enqueue_joined_as_text
with added as materialized (
    select e.ordinal, e.work_item_id, e.message_id, e.added
      from "{{schema}}"."{{queue}}_enqueue_many"(
           $1::text[]::uuid[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]::timestamptz[], $7::text[], $8::text[],
           $9::text[]::smallint[], $10::text[]::timestamptz[], $11::text[], $12::text[]::boolean[],
           due_in_seconds => $13::text[]::double precision[], expires_in_seconds => $14::text[]::double precision[],
           new_ids => $15::text[]::boolean[]) e),
attached as materialized (
    select count(*) as members
      from (select array_agg(p.join_id order by p.n) as joins, array_agg(a.work_item_id order by p.n) as items, bool_and(a.added) as fresh
              from unnest($16::text[]::uuid[], $17::text[]::integer[]) with ordinality p(join_id, place, n) join added a on a.ordinal = p.place) x
     cross join lateral "{{schema}}"."{{joins}}_attach_pairs"(x.joins, x.items, x.fresh) m)
select a.work_item_id::text as work_item_id, a.message_id::text as message_id, a.added
  from added a cross join attached
 order by a.ordinal

-- name: take
select t.verdict, t.reason, t.id, t.message_id, t.topic, t.payload, t.correlation_id, t.attempt, t.generation, t.created_at, t.due_at,
       t.expires_at, t.ordering_key, t.priority, t.headers::text, t.locked_until, t.claimed_at, t.last_error, t.place, t.seq,
       case when t.verdict = 3 then nullif(current_setting('mainstay.joins', true), '') end
  from "{{schema}}"."{{queue}}_take"($1, $2, $3, $4, $5, $6, $7, $8) t

-- The ids that changed; null for all of them. And what was counted for joins, which is in a setting of the transaction: whoever reads
-- it empties it.
-- name: settle
select "{{schema}}"."{{queue}}_end"($1, $2, $3, $4, $5, $6, $7, $8), nullif(current_setting('mainstay.joins', true), ''),
       case when current_setting('mainstay.joins', true) <> '' then set_config('mainstay.joins', '', true) end

-- Of the queues that have it.
-- name: forward
select f.id from "{{schema}}"."{{queue}}_forward"($1, $2, $3) f(id)

-- name: renew
select r.id, r.extended from "{{schema}}"."{{queue}}_renew"($1, $2, $3, $4) r

-- name: reap
select "{{schema}}"."{{queue}}_reap_expired"($1)

-- An id that its caller has used again stands for its last message.
-- name: get
select m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.status, m.reason, m.attempts, m.created_at, m.requested_due_at,
       m.due_at, m.expires_at, m.owner, m.locked_until, m.generation, m.processed_at, m.processed_by, m.last_error, m.priority,
       m.ordering_key, m.idempotency_key, m.headers::text
  from "{{schema}}"."{{queue}}_message" m
 where m.id = $1
 order by m.seq desc
 limit 1

-- name: list
select m.id, m.message_id, m.topic, case when $9::boolean then null else m.payload end, m.correlation_id, m.status, m.reason, m.attempts, m.created_at, m.requested_due_at,
       m.due_at, m.expires_at, m.owner, m.locked_until, m.generation, m.processed_at, m.processed_by, m.last_error, m.priority,
       m.ordering_key, m.idempotency_key, m.headers::text
  from "{{schema}}"."{{queue}}_message" m
 where ($1::text is null or m.topic = $1) and ($2::smallint is null or m.status = $2) and ($3::text is null or m.reason = $3)
   and ($4::text is null or m.correlation_id = $4)
   and ($5::timestamptz is null or m.processed_at >= $5) and ($6::timestamptz is null or m.processed_at < $6)
   and ($7::uuid is null or m.id < $7)
 order by m.id desc
 limit $8

-- Sorted by the server once, and sent as it is read.
-- name: export
select m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.status, m.reason, m.attempts, m.created_at, m.requested_due_at,
       m.due_at, m.expires_at, m.owner, m.locked_until, m.generation, m.processed_at, m.processed_by, m.last_error, m.priority,
       m.ordering_key, m.idempotency_key, m.headers::text, m.hold_on_failure, m.seq
  from "{{schema}}"."{{queue}}_message" m
 where ($1::text is null or m.topic = $1) and ($2::smallint is null or m.status = $2) and ($3::text is null or m.reason = $3)
   and ($4::text is null or m.correlation_id = $4)
   and ($5::timestamptz is null or m.processed_at >= $5) and ($6::timestamptz is null or m.processed_at < $6)
 order by m.seq

-- name: cancel
select c.id, nullif(current_setting('mainstay.joins', true), '') from "{{schema}}"."{{queue}}_cancel"($1, "{{schema}}"."{{audit}}_as"($2, $3)) c(id)

-- name: requeue
select r.id from "{{schema}}"."{{queue}}_requeue"($1, "{{schema}}"."{{audit}}_as"($2, $3)) r(id)

-- name: requeue_where
select r.id from "{{schema}}"."{{queue}}_requeue_where"($1, $2, $3, $4, $5, correlation_id => $6, actor => "{{schema}}"."{{audit}}_as"($7, $8)) r(id)

-- name: release_key
select "{{schema}}"."{{queue}}_release_key"($1, "{{schema}}"."{{audit}}_as"($2, $3))

-- name: pause
select "{{schema}}"."{{queue}}_pause"($1, $2, "{{schema}}"."{{audit}}_as"($3, $4))

-- name: resume
select "{{schema}}"."{{queue}}_resume"($1, "{{schema}}"."{{audit}}_as"($2, $3))

-- name: paused
select p.topic, p.paused_at, p.paused_by, p.reason from "{{schema}}"."{{queue}}_list_paused"() p

-- name: stats
select s.ready, s.scheduled, s.in_progress, s.lapsed, s.done, s.failed, s.held_keys, s.oldest_ready_age_seconds
  from "{{schema}}"."{{queue}}_stats"() s

-- Without what would need a walk through the history.
-- name: backlog
select s.ready, s.scheduled, s.in_progress, s.lapsed, 0::bigint, s.failed, s.held_keys, s.oldest_ready_age_seconds
  from "{{schema}}"."{{queue}}_stats"(count_done => false) s

-- name: stats_by_topic
select t.topic, t.ready, t.scheduled, t.in_progress, t.failed, t.oldest_ready_age_seconds
  from "{{schema}}"."{{queue}}_stats_by_topic"() t order by t.topic

-- name: purge
select "{{schema}}"."{{queue}}_purge"($1, $2, $3, "{{schema}}"."{{audit}}_as"($4, $5))

-- name: next_due
select "{{schema}}"."{{queue}}_next_due"($1, $2)

-- Declarations must be seen and need not survive: nobody waits for the disk.
-- name: idle
select "{{schema}}"."{{queue}}_idle"($1, $2, $3, $4) from set_config('synchronous_commit', 'off', true)

-- name: busy
select "{{schema}}"."{{queue}}_busy"($1) from set_config('synchronous_commit', 'off', true)

-- name: horizon
select "{{schema}}"."{{queue}}_horizon"() from set_config('synchronous_commit', 'off', true)

-- The second function reads with a snapshot taken after the first has answered, so it sees all that had ended by then.
-- name: horizon_passed
select "{{schema}}"."{{queue}}_horizon_passed"($1), "{{schema}}"."{{queue}}_next_due"($2, $3)

-- name: probe
select "{{schema}}"."{{outbox}}_channel"(), "{{schema}}"."{{inbox}}_channel"(), "{{schema}}"."{{timers}}_channel"(), "{{schema}}"."{{job_runs}}_channel"(),
       "{{schema}}"."{{fanout}}_channel"()
  from pg_notify($1, '')
