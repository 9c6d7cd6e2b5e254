-- Every statement the program sends about joins, by name. They may run in a transaction of any driver: so arguments are texts and the
-- answer is one, in JSON, with times as microseconds. What was counted on the way is in a setting of the transaction; whoever reads it
-- empties it.

-- name: start
select jsonb_build_array("{{schema}}"."{{joins}}_start"(
           $1::text::integer, $2::text, $3::text, $4::text::integer, $5::text::timestamptz, $6::text::double precision, $7::text::uuid,
           $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::smallint[], $14::text::text[],
           $15::text::boolean[], $16::text::uuid[], $17::text::uuid[], "{{schema}}"."{{audit}}_as"($18::text, $19::text)))::text as answer

-- name: attach
select jsonb_build_array(a.added, nullif(current_setting('mainstay.joins', true), '')::jsonb, nullif(set_config('mainstay.joins', '', true), ''))::text as answer
  from (select count(*) as added from "{{schema}}"."{{joins}}_attach"($1::text::uuid, $2::text::uuid[], "{{schema}}"."{{audit}}_as"($3::text, $4::text)) offset 0) a

-- name: report
select jsonb_build_array(r.outcome, "{{schema}}"."{{joins}}_standing"($1::text::uuid),
           nullif(current_setting('mainstay.joins', true), '')::jsonb, nullif(set_config('mainstay.joins', '', true), ''))::text as answer
  from (select "{{schema}}"."{{joins}}_report"($1::text::uuid, $2::text::uuid, $3::text, "{{schema}}"."{{audit}}_as"($4::text, $5::text)) as outcome offset 0) r

-- name: get
select jsonb_build_object(
           'id', p.id, 'grouping_key', p.grouping_key, 'mode', p.mode, 'needed', p.needed, 'expected', p.expected_steps, 'completed', p.completed,
           'failed', p.failed, 'state', p.status, 'reason', p.reason, 'deadline_at', (extract(epoch from p.deadline_at) * 1000000)::bigint,
           'created_at', (extract(epoch from p.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from p.updated_at) * 1000000)::bigint,
           'ended_at', (extract(epoch from p.ended_at) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{joins}}_progress" p
 where p.id = $1::text::uuid

-- name: list
select jsonb_build_object(
           'id', p.id, 'grouping_key', p.grouping_key, 'mode', p.mode, 'needed', p.needed, 'expected', p.expected_steps, 'completed', p.completed,
           'failed', p.failed, 'state', p.status, 'reason', p.reason, 'deadline_at', (extract(epoch from p.deadline_at) * 1000000)::bigint,
           'created_at', (extract(epoch from p.created_at) * 1000000)::bigint, 'updated_at', (extract(epoch from p.updated_at) * 1000000)::bigint,
           'ended_at', (extract(epoch from p.ended_at) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{joins}}_progress" p
 where ($1::text is null or p.grouping_key = $1::text) and ($2::text is null or p.status = $2::text::smallint)
   and ($3::text is null or p.id < $3::text::uuid)
 order by p.id desc
 limit $4::text::integer

-- name: members
select jsonb_build_array(m.work_item_id, m.state, (extract(epoch from m.updated_at) * 1000000)::bigint)::text as answer
  from "{{schema}}"."{{joins}}_member" m
 where m.join_id = $1::text::uuid and ($2::text is null or m.work_item_id > $2::text::uuid)
 order by m.work_item_id
 limit $3::text::integer

-- name: of_item
select jsonb_build_array(m.join_id)::text as answer
  from "{{schema}}"."{{joins}}_member" m where m.work_item_id = $1::text::uuid order by m.join_id limit 1000

-- name: cancel
select jsonb_build_array(c.ids, nullif(current_setting('mainstay.joins', true), '')::jsonb)::text as answer
  from (select "{{schema}}"."{{joins}}_cancel"($1::text::uuid, "{{schema}}"."{{audit}}_as"($2::text, $3::text)) as ids offset 0) c

-- name: expire
select coalesce(nullif(current_setting('mainstay.joins', true), ''), '[]') as answer
  from (select count(*) as ended from "{{schema}}"."{{joins}}_expire"($1::text::integer) offset 0) e

-- name: next_deadline
select jsonb_build_array((select (extract(epoch from j.deadline_at - clock_timestamp()) * 1000000)::bigint
                            from "{{schema}}"."{{joins}}" j
                           where j.status = 0 and j.deadline_at is not null order by j.deadline_at limit 1))::text as answer

-- name: stats
select jsonb_build_array(count(*), count(*) filter (where j.deadline_at <= clock_timestamp()))::text as answer
  from "{{schema}}"."{{joins}}" j where j.status = 0

-- name: purge
select jsonb_build_array("{{schema}}"."{{joins}}_purge"(
    $1::text::double precision, $2::text::integer, "{{schema}}"."{{audit}}_as"($3::text, $4::text)))::text as answer
