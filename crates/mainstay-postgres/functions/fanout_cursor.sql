-- How far the shards of fan-outs have come.

create or replace function "{{schema}}"."{{fanout}}_complete"(topic text, work_key text, shard_key text, at timestamptz) returns boolean
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    if (isfinite($4)) is not true then
        raise exception using errcode = '22023', message = '{{fanout:literal}}_complete: at must be a moment, got ' || coalesce($4::text, 'null');
    end if;
    -- Whoever comes second waits for the first and compares with what he wrote: so the order of completions does not matter.
    insert into "{{schema}}"."{{fanout}}_cursor" as c (topic, work_key, shard_key, last_completed_at) values ($1, $2, $3, $4)
    on conflict (topic, work_key, shard_key) do update set last_completed_at = excluded.last_completed_at, updated_at = statement_timestamp()
     where c.last_completed_at is null or c.last_completed_at < excluded.last_completed_at;
    return found;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_complete"(text, text, text, timestamptz) is
    'Says that the work on a shard is done up to a moment. Returns whether that moved its cursor, which never goes back. Call it in the transaction that does the work.';

create or replace function "{{schema}}"."{{fanout}}_add_cursors"(topic text, work_key text, shards text[]) returns text[]
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    added text[];
begin
    with made as (
        -- In the order of the keys, so that two at once don't wait for each other.
        insert into "{{schema}}"."{{fanout}}_cursor" (topic, work_key, shard_key)
        select $1, $2, s.shard from (select distinct u.shard from unnest($3) u(shard)) s order by s.shard
        on conflict (topic, work_key, shard_key) do nothing
        returning shard_key)
    select coalesce(array_agg(m.shard_key order by m.shard_key), '{}') into added from made m;
    return added;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_add_cursors"(text, text, text[]) is 'Internal: the same as add_shards, without a record. Returns those that were not known.';

create or replace function "{{schema}}"."{{fanout}}_add_shards"(topic text, work_key text, shards text[], actor text default null) returns integer
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
declare
    added text[];
begin
    -- Whoever deletes it waits, and takes these along; or has deleted it.
    perform from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2 for no key update;
    if not found then
        return null;
    end if;
    added := "{{schema}}"."{{fanout}}_add_cursors"($1, $2, $3);
    if added <> '{}' then
        -- They are due at once, and the coordinator may have nothing to do until tomorrow.
        update "{{schema}}"."{{fanout}}" p set version = p.version + 1 where p.topic = $1 and p.work_key = $2;
        perform pg_notify("{{schema}}"."{{fanout}}_channel"(), '');
        perform "{{schema}}"."{{audit}}_note"(
            'fanout.add_shards', $4, jsonb_build_object('count', cardinality(added), 'items', to_jsonb(added[:20])),
            array['fanout'] || array_fill('shard'::text, array[cardinality(added)]),
            array[$1 || ':' || $2] || array(select $1 || ':' || $2 || ':' || u.shard from unnest(added) u(shard)));
    end if;
    return cardinality(added);
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_add_shards"(text, text, text[], text) is
    'Makes shards known. Returns how many were not, null: there is no such fan-out; those are recorded in the audit trail as the actor''s doing.';

create or replace function "{{schema}}"."{{fanout}}_forget_shard"(topic text, work_key text, shard_key text, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    was jsonb;
    slice uuid;
begin
    -- Locked first, and then looked at as it stands: a slice may be made of it just now.
    select c.slice_id into slice from "{{schema}}"."{{fanout}}_cursor" c
     where c.topic = $1 and c.work_key = $2 and c.shard_key = $3 for update;
    if exists (select from "{{schema}}"."{{outbox}}" o where o.id = slice) then
        raise exception using errcode = '22023', message = '{{fanout:literal}}_forget_shard: shard_key has a slice in flight, the message '
            || slice || '; cancel that, or wait for its end';
    end if;
    delete from "{{schema}}"."{{fanout}}_cursor" c where c.topic = $1 and c.work_key = $2 and c.shard_key = $3
    returning jsonb_build_object('last_completed_at', c.last_completed_at, 'slice_due_at', c.slice_due_at) into was;
    if was is null then
        return false;
    end if;
    perform "{{schema}}"."{{audit}}_note"(
        'fanout.forget_shard', $4, jsonb_build_object('shard', $3, 'before', was, 'after', null),
        array['fanout', 'shard'], array[$1 || ':' || $2, $1 || ':' || $2 || ':' || $3]);
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_forget_shard"(text, text, text, text) is
    'Forgets a shard with its cursor. False: it was not known. An error while a slice of it is in flight. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{fanout}}_delete"(topic text, work_key text, actor text default null) returns bigint
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    old "{{schema}}"."{{fanout}}";
    slice uuid;
    shards bigint;
begin
    -- Whoever makes slices has this row until they are there.
    select p.* into old from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2 for update;
    if not found then
        return null;
    end if;
    select c.slice_id into slice from "{{schema}}"."{{fanout}}_cursor" c
      join "{{schema}}"."{{outbox}}" o on o.id = c.slice_id where c.topic = $1 and c.work_key = $2 limit 1;
    if found then
        raise exception using errcode = '22023', message = '{{fanout:literal}}_delete: work_key has a slice in flight, the message '
            || slice || '; cancel that, or wait for its end';
    end if;
    delete from "{{schema}}"."{{fanout}}_cursor" c where c.topic = $1 and c.work_key = $2;
    get diagnostics shards = row_count;
    delete from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2;
    perform pg_notify("{{schema}}"."{{fanout}}_channel"(), '');
    perform "{{schema}}"."{{audit}}_note"(
        'fanout.delete', $3, jsonb_build_object('before', "{{schema}}"."{{fanout}}_told"(old), 'after', null, 'shards', shards),
        array['fanout'], array[$1 || ':' || $2]);
    return shards;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_delete"(text, text, text) is
    'Deletes a fan-out, and its shards with their cursors. Returns how many shards; null: there is no such fan-out. An error while a slice of it is in flight. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{fanout}}_claim"(topic text, work_key text, version bigint, plan jsonb) returns setof text
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    -- Nobody changes the policy until the slices are made, or they are not made.
    perform from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2 and p.version = $3 for share;
    if not found then
        return;
    end if;
    perform "{{schema}}"."{{fanout}}_add_cursors"($1, $2, array(select s.slice ->> 0 from jsonb_array_elements($4) s(slice)));
    -- Locked first, in the order of the keys, and then looked at as they stand.
    perform from "{{schema}}"."{{fanout}}_cursor" c
      where c.topic = $1 and c.work_key = $2 and c.shard_key = any (array(select s.slice ->> 0 from jsonb_array_elements($4) s(slice)))
      order by c.shard_key for no key update;
    return query
    update "{{schema}}"."{{fanout}}_cursor" c
       set slice_id = s.id, slice_due_at = s.nominal, slice_cursor_at = c.last_completed_at, updated_at = statement_timestamp()
      from (select e.slice ->> 0, 'epoch'::timestamptz + (e.slice ->> 1)::bigint * interval '1 microsecond', (e.slice ->> 2)::uuid, (e.slice ->> 3)::uuid,
                   'epoch'::timestamptz + (e.slice ->> 4)::bigint * interval '1 microsecond'
              from jsonb_array_elements($4) e(slice)) s(shard, completed, last, id, nominal)
     where c.topic = $1 and c.work_key = $2 and c.shard_key = s.shard
       and c.last_completed_at is not distinct from s.completed and c.slice_id is not distinct from s.last
       and not exists (select from "{{schema}}"."{{outbox}}" o where o.id = c.slice_id)
    returning c.shard_key;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_claim"(text, text, bigint, jsonb) is
    'Internal: notes planned slices where cursor and policy are what they were planned with. Returns their shards; the caller adds their messages in the same transaction.';
