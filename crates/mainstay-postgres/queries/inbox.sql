-- Every statement the program sends about the ledger of received messages, by name. All but the looking call the public functions.
-- They may run in a transaction of any driver: so arguments are texts and the answer is one, in JSON, with times as microseconds.

-- name: seen
select jsonb_build_array(s.processed, s.hash_mismatch)::text as answer
  from "{{schema}}"."{{inbox}}_already_processed"($1::text, $2::text, decode($3::text, 'hex')) s

-- name: mark_processing
select jsonb_build_array("{{schema}}"."{{inbox}}_mark_processing"($1::text, $2::text, $3::text::double precision, "{{schema}}"."{{audit}}_as"($4::text, $5::text)))::text as answer

-- name: mark_processed
select jsonb_build_array("{{schema}}"."{{inbox}}_mark_processed"($1::text, $2::text, "{{schema}}"."{{audit}}_as"($3::text, $4::text)))::text as answer

-- name: mark_dead
select jsonb_build_array("{{schema}}"."{{inbox}}_mark_dead"($1::text, $2::text, $3::text, "{{schema}}"."{{audit}}_as"($4::text, $5::text)))::text as answer

-- name: begin
select jsonb_build_array(
           b.outcome, b.generation, b.attempt, (extract(epoch from b.until) * 1000000)::bigint,
           (extract(epoch from b.until - b.asked_at) * 1000000)::bigint, b.hash_mismatch)::text as answer
  from "{{schema}}"."{{inbox}}_begin"($1::text, $2::text, $3::text::uuid, $4::text::double precision, decode($5::text, 'hex')) b

-- name: renew
select jsonb_build_array((extract(epoch from r.until) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{inbox}}_guard_renew"($1::text, $2::text, $3::text::uuid, $4::text::bigint, $5::text::double precision) r(until)

-- name: complete
select jsonb_build_array("{{schema}}"."{{inbox}}_guard_complete"($1::text, $2::text, $3::text::uuid, $4::text::bigint))::text as answer

-- name: fail
select jsonb_build_array("{{schema}}"."{{inbox}}_guard_fail"($1::text, $2::text, $3::text::uuid, $4::text::bigint, $5::text))::text as answer

-- name: release
select jsonb_build_array("{{schema}}"."{{inbox}}_guard_release"($1::text, $2::text, $3::text::uuid, $4::text::bigint, $5::text))::text as answer

-- name: enqueue
select jsonb_build_array(e.work_item_id, e.outcome, e.hash_mismatch)::text as answer
  from "{{schema}}"."{{inbox}}_enqueue_many"(
       $1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[],
       array(select decode(u.hash, 'hex') from unnest($5::text::text[]) with ordinality u(hash, n) order by u.n),
       $6::text::text[], $7::text::timestamptz[], $8::text::text[], $9::text::smallint[], $10::text::timestamptz[], $11::text::text[], $12::text::boolean[],
       $13::text::double precision[], $14::text::double precision[], $15::text::uuid[], $16::text::uuid[]) e
 order by e.ordinal

-- name: get
select jsonb_build_object(
           'source', l.source, 'message_id', l.message_id, 'state', l.state, 'hash', encode(l.hash, 'hex'),
           'first_seen_at', (extract(epoch from l.first_seen_at) * 1000000)::bigint, 'last_seen_at', (extract(epoch from l.last_seen_at) * 1000000)::bigint,
           'processed_at', (extract(epoch from l.processed_at) * 1000000)::bigint, 'attempts', l.attempts, 'generation', l.generation, 'owner', l.owner,
           'locked_until', (extract(epoch from l.locked_until) * 1000000)::bigint, 'last_error', l.last_error, 'work_item', l.work_item_id,
           'topic', l.topic)::text as answer
  from "{{schema}}"."{{inbox}}_ledger" l
 where l.source = $1::text and l.digest = "{{schema}}"."{{inbox}}_digest"($2::text)

-- Each state from its newest end: all of them together have no index to go by.
-- name: list
select jsonb_build_object(
           'source', l.source, 'message_id', l.message_id, 'state', l.state, 'hash', encode(l.hash, 'hex'),
           'first_seen_at', (extract(epoch from l.first_seen_at) * 1000000)::bigint, 'last_seen_at', (extract(epoch from l.last_seen_at) * 1000000)::bigint,
           'processed_at', (extract(epoch from l.processed_at) * 1000000)::bigint, 'attempts', l.attempts, 'generation', l.generation, 'owner', l.owner,
           'locked_until', (extract(epoch from l.locked_until) * 1000000)::bigint, 'last_error', l.last_error, 'work_item', l.work_item_id,
           'topic', l.topic)::text as answer
  from unnest('{0,1,2,3}'::smallint[]) s(state)
 cross join lateral (
       select m.* from "{{schema}}"."{{inbox}}_ledger" m
        where m.entry_state = s.state and ($1::text is null or m.source = $1::text) and ($2::text is null or m.state = $2::text::smallint)
          and ($3::text is null or m.topic = $3::text)
          and ($4::text is null
               or (m.first_seen_at, m.source, m.digest) < (
                   select a.first_seen_at, a.source::text, a.digest from "{{schema}}"."{{inbox}}_entry" a
                    where a.source = $4::text and a.digest = "{{schema}}"."{{inbox}}_digest"($5::text)))
        order by m.first_seen_at desc, m.source desc, m.digest desc limit $6::text::bigint) l
 where $2::text is null or s.state = $2::text::smallint or (s.state = 0 and $2::text::smallint = 1)
 order by l.first_seen_at desc, l.source desc, l.digest desc
 limit $6::text::bigint

-- name: revive
select jsonb_build_array(r.source, r.message_id)::text as answer
  from "{{schema}}"."{{inbox}}_revive"($1::text::text[], $2::text::text[], "{{schema}}"."{{audit}}_as"($3::text, $4::text)) r

-- name: stats
select jsonb_build_array(s.seen, s.processing, s.lapsed, s.done, s.dead)::text as answer from "{{schema}}"."{{inbox}}_ledger_stats"() s

-- name: forget
select jsonb_build_array("{{schema}}"."{{inbox}}_forget"($1::text::double precision, $2::text::double precision, $3::text::integer, "{{schema}}"."{{audit}}_as"($4::text, $5::text)))::text as answer
