-- Every statement the program sends about the audit trail, by name.
-- They may run in a transaction of any driver: so arguments are texts and the answer is one, in JSON, with times as microseconds.

-- name: write
select jsonb_build_array("{{schema}}"."{{audit}}_write"(
           $2::text, $3::text, $4::text, $5::text, $6::text::json, $7::text::text[], $8::text::text[], $1::text::uuid))::text as answer

-- name: get
select json_build_object(
           'id', a.id, 'recorded_at', (extract(epoch from a.recorded_at) * 1000000)::bigint, 'name', a.name, 'actor', a.actor, 'outcome', a.outcome,
           'correlation_id', a.correlation_id, 'data', a.data::text,
           'anchors', array(select json_build_array(n.kind, n.value) from "{{schema}}"."{{audit}}_anchor" n
                             where n.audit_id = a.id order by n.kind collate "C", n.value collate "C" limit 100))::text as answer
  from "{{schema}}"."{{audit}}" a
 where a.id = $1::text::uuid

-- name: list
select json_build_object(
           'id', a.id, 'recorded_at', (extract(epoch from a.recorded_at) * 1000000)::bigint, 'name', a.name, 'actor', a.actor, 'outcome', a.outcome,
           'correlation_id', a.correlation_id, 'data', a.data::text,
           'anchors', array(select json_build_array(n.kind, n.value) from "{{schema}}"."{{audit}}_anchor" n
                             where n.audit_id = a.id order by n.kind collate "C", n.value collate "C" limit 100))::text as answer
  from "{{schema}}"."{{audit}}" a
 where ($1::text is null or (a.name >= $1::text and a.name < $2::text)) and ($3::text is null or a.actor = $3::text)
   and ($4::text is null or a.correlation_id = $4::text) and ($5::text is null or a.outcome = $5::text::smallint)
   and ($6::text is null or a.recorded_at >= $6::text::timestamptz) and ($7::text is null or a.recorded_at < $7::text::timestamptz)
   and ($8::text is null
        or (a.recorded_at, a.id) < (select b.recorded_at, b.id from "{{schema}}"."{{audit}}" b where b.id = $8::text::uuid))
 order by a.recorded_at desc, a.id desc
 limit $9::text::bigint

-- The same of one anchor.
-- name: list_about
select json_build_object(
           'id', a.id, 'recorded_at', (extract(epoch from a.recorded_at) * 1000000)::bigint, 'name', a.name, 'actor', a.actor, 'outcome', a.outcome,
           'correlation_id', a.correlation_id, 'data', a.data::text,
           'anchors', array(select json_build_array(n.kind, n.value) from "{{schema}}"."{{audit}}_anchor" n
                             where n.audit_id = a.id order by n.kind collate "C", n.value collate "C" limit 100))::text as answer
  from "{{schema}}"."{{audit}}_anchor" n
  join "{{schema}}"."{{audit}}" a on a.id = n.audit_id
 where n.kind = $10::text and n.value = $11::text
   and ($1::text is null or (a.name >= $1::text and a.name < $2::text)) and ($3::text is null or a.actor = $3::text)
   and ($4::text is null or a.correlation_id = $4::text) and ($5::text is null or a.outcome = $5::text::smallint)
   and ($6::text is null or n.recorded_at >= $6::text::timestamptz) and ($7::text is null or n.recorded_at < $7::text::timestamptz)
   and ($8::text is null
        or (n.recorded_at, n.audit_id) < (select b.recorded_at, b.id from "{{schema}}"."{{audit}}" b where b.id = $8::text::uuid))
 order by n.recorded_at desc, n.audit_id desc
 limit $9::text::bigint

-- name: purge
select jsonb_build_array("{{schema}}"."{{audit}}_purge"($1::text::double precision, $2::text::integer, "{{schema}}"."{{audit}}_as"($3::text, $4::text)))::text as answer

-- A deployment tells of itself.
-- name: note
select "{{schema}}"."{{audit}}_note"($1, "{{schema}}"."{{audit}}_as"($2, $6), $3::text::jsonb, $4, $5)
