-- Every statement the program sends about fan-outs, by name. All but the readings call the functions.
-- They may run in a transaction of any driver: so arguments are texts and the answer is one, in JSON, with times as microseconds.

-- name: register
select jsonb_build_object('topic', p.topic, 'work_key', p.work_key, 'every_seconds', p.every_seconds, 'jitter_seconds', p.jitter_seconds, 'cron', p.cron,
           'time_zone', p.time_zone, 'enabled', p.enabled, 'version', p.version, 'last_run_at', (extract(epoch from p.last_run_at) * 1000000)::bigint,
           'run_requested_at', (extract(epoch from p.run_requested_at) * 1000000)::bigint, 'since_at', (extract(epoch from p.since_at) * 1000000)::bigint,
           'created_at', (extract(epoch from p.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from p.updated_at) * 1000000)::bigint, 'now', (extract(epoch from statement_timestamp()) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{fanout}}_register"($1::text, $2::text, $3::text::integer, $4::text::integer, $5::text, $6::text, $7::text::boolean, "{{schema}}"."{{audit}}_as"($8::text, $9::text)) p

-- name: standing
select jsonb_build_object('topic', p.topic, 'work_key', p.work_key, 'every_seconds', p.every_seconds, 'jitter_seconds', p.jitter_seconds, 'cron', p.cron,
           'time_zone', p.time_zone, 'enabled', p.enabled, 'version', p.version, 'last_run_at', (extract(epoch from p.last_run_at) * 1000000)::bigint,
           'run_requested_at', (extract(epoch from p.run_requested_at) * 1000000)::bigint, 'since_at', (extract(epoch from p.since_at) * 1000000)::bigint,
           'created_at', (extract(epoch from p.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from p.updated_at) * 1000000)::bigint, 'now', (extract(epoch from statement_timestamp()) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{fanout}}" p where p.topic = $1::text and p.work_key = $2::text

-- name: version
select jsonb_build_array(p.version)::text as answer from "{{schema}}"."{{fanout}}" p where p.topic = $1::text and p.work_key = $2::text

-- name: list
select jsonb_build_object('topic', p.topic, 'work_key', p.work_key, 'every_seconds', p.every_seconds, 'jitter_seconds', p.jitter_seconds, 'cron', p.cron,
           'time_zone', p.time_zone, 'enabled', p.enabled, 'version', p.version, 'last_run_at', (extract(epoch from p.last_run_at) * 1000000)::bigint,
           'run_requested_at', (extract(epoch from p.run_requested_at) * 1000000)::bigint, 'since_at', (extract(epoch from p.since_at) * 1000000)::bigint,
           'created_at', (extract(epoch from p.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from p.updated_at) * 1000000)::bigint, 'now', (extract(epoch from statement_timestamp()) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{fanout}}" p where $1::text is null or (p.topic, p.work_key) > ($1::text, $2::text) order by p.topic, p.work_key limit $3::text::bigint

-- name: set
select jsonb_build_object('topic', p.topic, 'work_key', p.work_key, 'every_seconds', p.every_seconds, 'jitter_seconds', p.jitter_seconds, 'cron', p.cron,
           'time_zone', p.time_zone, 'enabled', p.enabled, 'version', p.version, 'last_run_at', (extract(epoch from p.last_run_at) * 1000000)::bigint,
           'run_requested_at', (extract(epoch from p.run_requested_at) * 1000000)::bigint, 'since_at', (extract(epoch from p.since_at) * 1000000)::bigint,
           'created_at', (extract(epoch from p.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from p.updated_at) * 1000000)::bigint, 'now', (extract(epoch from statement_timestamp()) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{fanout}}_set"($1::text, $2::text, $4::text::integer, $5::text::integer, coalesce($6::text, ''), $7::text, $8::text::boolean, $3::text::bigint, "{{schema}}"."{{audit}}_as"($9::text, $10::text)) p

-- name: request_run
select jsonb_build_array("{{schema}}"."{{fanout}}_run"($1::text, $2::text, "{{schema}}"."{{audit}}_as"($3::text, $4::text)))::text as answer

-- name: add_shards
select jsonb_build_array("{{schema}}"."{{fanout}}_add_shards"($1::text, $2::text, array(select jsonb_array_elements_text($3::text::jsonb)), "{{schema}}"."{{audit}}_as"($4::text, $5::text)))::text as answer

-- name: forget_shard
select jsonb_build_array("{{schema}}"."{{fanout}}_forget_shard"($1::text, $2::text, $3::text, "{{schema}}"."{{audit}}_as"($4::text, $5::text)))::text as answer

-- name: delete
select jsonb_build_array(null, d.shards)::text as answer
  from "{{schema}}"."{{fanout}}_delete"($1::text, $2::text, "{{schema}}"."{{audit}}_as"($3::text, $4::text)) d(shards)

-- name: look
select jsonb_build_object('shard_key', c.shard_key, 'last_completed_at', (extract(epoch from c.last_completed_at) * 1000000)::bigint, 'slice_id', c.slice_id,
           'slice_due_at', (extract(epoch from c.slice_due_at) * 1000000)::bigint, 'slice_cursor_at', (extract(epoch from c.slice_cursor_at) * 1000000)::bigint,
           'in_flight', exists (select from "{{schema}}"."{{outbox}}" o where o.id = c.slice_id),
           'created_at', (extract(epoch from c.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from c.updated_at) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{fanout}}_cursor" c
 where c.topic = $1::text and c.work_key = $2::text and c.shard_key = any (array(select jsonb_array_elements_text($3::text::jsonb)))

-- name: cursors
select jsonb_build_object('shard_key', c.shard_key, 'last_completed_at', (extract(epoch from c.last_completed_at) * 1000000)::bigint, 'slice_id', c.slice_id,
           'slice_due_at', (extract(epoch from c.slice_due_at) * 1000000)::bigint, 'slice_cursor_at', (extract(epoch from c.slice_cursor_at) * 1000000)::bigint,
           'in_flight', exists (select from "{{schema}}"."{{outbox}}" o where o.id = c.slice_id),
           'created_at', (extract(epoch from c.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from c.updated_at) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{fanout}}_cursor" c
 where c.topic = $1::text and c.work_key = $2::text and ($3::text is null or c.shard_key > $3::text) order by c.shard_key limit $4::text::bigint

-- name: complete
select jsonb_build_array("{{schema}}"."{{fanout}}_complete"($1::text, $2::text, $3::text, 'epoch'::timestamptz + $4::text::bigint * interval '1 microsecond'))::text as answer

-- name: claim
select jsonb_build_array(s.shard)::text as answer from "{{schema}}"."{{fanout}}_claim"($1::text, $2::text, $3::text::bigint, $4::text::jsonb) s(shard)

-- name: ran
select '[]' as answer from "{{schema}}"."{{fanout}}_ran"($1::text, $2::text, $3::text::bigint, 'epoch'::timestamptz + $4::text::bigint * interval '1 microsecond', 'epoch'::timestamptz + $5::text::bigint * interval '1 microsecond')
