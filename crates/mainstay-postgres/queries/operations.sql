-- Every statement the program sends about operations, by name.
-- They may run in a transaction of any driver: so arguments are texts and the answer is one, in JSON, with times as microseconds.

-- name: start
select json_build_array("{{schema}}"."{{operations}}_start"(
           $2::text, $3::text, $4::text::uuid, $5::text, $6::text::bigint, $7::text, $8::text::text[], $9::text::text[], $1::text::uuid))::text as answer

-- name: progress
select json_build_array("{{schema}}"."{{operations}}_progress"($1::text::uuid, $2::text::bigint, $3::text::bigint, $4::text), null)::text as answer

-- name: note
select json_build_array(n.state, n.seq)::text as answer
  from "{{schema}}"."{{operations}}_note"($1::text::uuid, $2::text, $3::text, $4::text::json) n

-- name: end
select json_build_array("{{schema}}"."{{operations}}_end"($1::text::uuid, $2::text, $3::text), null)::text as answer

-- name: get
select json_build_object(
           'id', o.id, 'name', o.name, 'parent', o.parent_id, 'state', o.state, 'done', o.done, 'total', o.total, 'message', o.message, 'error', o.error,
           'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', (extract(epoch from o.started_at) * 1000000)::bigint, 'updated_at', (extract(epoch from o.updated_at) * 1000000)::bigint,
           'ended_at', (extract(epoch from o.ended_at) * 1000000)::bigint,
           'tags', coalesce((select json_object_agg(t.key, t.value) from "{{schema}}"."{{operations}}_tag" t where t.operation_id = o.id), '{}'))::text as answer
  from "{{schema}}"."{{operations}}" o
 where o.id = $1::text::uuid

-- name: list
select json_build_object(
           'id', o.id, 'name', o.name, 'parent', o.parent_id, 'state', o.state, 'done', o.done, 'total', o.total, 'message', o.message, 'error', o.error,
           'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', (extract(epoch from o.started_at) * 1000000)::bigint, 'updated_at', (extract(epoch from o.updated_at) * 1000000)::bigint,
           'ended_at', (extract(epoch from o.ended_at) * 1000000)::bigint,
           'tags', coalesce((select json_object_agg(t.key, t.value) from "{{schema}}"."{{operations}}_tag" t where t.operation_id = o.id), '{}'))::text as answer
  from "{{schema}}"."{{operations}}" o
 where ($1::text is null or (o.name >= $1::text and o.name < $2::text)) and ($3::text is null or o.state = $3::text::smallint)
   and ($4::text is null or o.parent_id = $4::text::uuid) and ($5::text is null or o.correlation_id = $5::text)
   and ($6::text is null or o.started_at >= $6::text::timestamptz) and ($7::text is null or o.started_at < $7::text::timestamptz)
   and ($8::text is null
        or (o.started_at, o.id) < (select b.started_at, b.id from "{{schema}}"."{{operations}}" b where b.id = $8::text::uuid))
 order by o.started_at desc, o.id desc
 limit $9::text::bigint

-- The same with one tag.
-- name: list_tagged
select json_build_object(
           'id', o.id, 'name', o.name, 'parent', o.parent_id, 'state', o.state, 'done', o.done, 'total', o.total, 'message', o.message, 'error', o.error,
           'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', (extract(epoch from o.started_at) * 1000000)::bigint, 'updated_at', (extract(epoch from o.updated_at) * 1000000)::bigint,
           'ended_at', (extract(epoch from o.ended_at) * 1000000)::bigint,
           'tags', coalesce((select json_object_agg(t.key, t.value) from "{{schema}}"."{{operations}}_tag" t where t.operation_id = o.id), '{}'))::text as answer
  from "{{schema}}"."{{operations}}_tag" n
  join "{{schema}}"."{{operations}}" o on o.id = n.operation_id
 where n.key = $10::text and n.value = $11::text
   and ($1::text is null or (o.name >= $1::text and o.name < $2::text)) and ($3::text is null or o.state = $3::text::smallint)
   and ($4::text is null or o.parent_id = $4::text::uuid) and ($5::text is null or o.correlation_id = $5::text)
   and ($6::text is null or n.started_at >= $6::text::timestamptz) and ($7::text is null or n.started_at < $7::text::timestamptz)
   and ($8::text is null
        or (n.started_at, n.operation_id) < (select b.started_at, b.id from "{{schema}}"."{{operations}}" b where b.id = $8::text::uuid))
 order by n.started_at desc, n.operation_id desc
 limit $9::text::bigint

-- name: events
select json_build_array(e.seq, (extract(epoch from e.recorded_at) * 1000000)::bigint, e.kind, e.message, e.data::text)::text as answer
  from "{{schema}}"."{{operations}}_event" e
 where e.operation_id = $1::text::uuid and e.seq > $2::text::bigint
 order by e.seq
 limit $3::text::bigint

-- name: stalled
select json_build_object(
           'id', o.id, 'name', o.name, 'parent', o.parent_id, 'state', o.state, 'done', o.done, 'total', o.total, 'message', o.message, 'error', o.error,
           'actor', o.actor, 'correlation_id', o.correlation_id, 'events', o.events,
           'started_at', (extract(epoch from o.started_at) * 1000000)::bigint, 'updated_at', (extract(epoch from o.updated_at) * 1000000)::bigint,
           'ended_at', (extract(epoch from o.ended_at) * 1000000)::bigint,
           'tags', coalesce((select json_object_agg(t.key, t.value) from "{{schema}}"."{{operations}}_tag" t where t.operation_id = o.id), '{}'))::text as answer
  from "{{schema}}"."{{operations}}" o
 where o.state = 0 and o.updated_at <= clock_timestamp() - make_interval(secs => $1::text::double precision)
 order by o.updated_at, o.id
 limit $2::text::bigint

-- name: mark_stalled
select json_build_array(m.id)::text as answer
  from "{{schema}}"."{{operations}}_mark_stalled"(
    $1::text::double precision, $2::text::integer, "{{schema}}"."{{audit}}_as"($3::text, $4::text)) m(id)

-- name: purge
select json_build_array("{{schema}}"."{{operations}}_purge"(
    $1::text::double precision, $2::text::integer, "{{schema}}"."{{audit}}_as"($3::text, $4::text)))::text as answer
