-- Operations: starting, following and ending them.

create or replace function "{{schema}}"."{{operations}}_final"() returns trigger
language plpgsql volatile
as $mainstay$
begin
    raise exception using errcode = '55000', message = 'the operation has ended, and an end is final';
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_final"() is 'Internal: keeps operations that have ended from being changed.';

create or replace function "{{schema}}"."{{operations}}_start"(
    name text, actor text default null, parent_id uuid default null, correlation_id text default null, total bigint default null,
    message text default null, tag_keys text[] default '{}', tag_values text[] default '{}', id uuid default null
) returns uuid
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    -- Whoever does not say who acts is the one who has connected.
    who constant text := coalesce($2, left('sql:' || session_user, 255));
    started constant uuid := coalesce($9, "{{schema}}"."{{outbox}}_uuid7"());
    wrong constant text := case
        when $1 is null or length($1) not between 1 and 255 then 'name must be 1 to 255 characters, got ' || coalesce(length($1)::text, 'null')
        when length(who) not between 1 and 255 then 'actor must be 1 to 255 characters, got ' || length(who)
        when length($4) not between 1 and 255 then 'correlation_id must be 1 to 255 characters, or null, got ' || length($4)
        when $5 < 0 then 'total must be 0 or more, or null, got ' || $5
        when $7 is null or $8 is null or cardinality($7) <> cardinality($8) then 'tag_keys and tag_values must have as many elements'
        when cardinality($7) > 32 then 'tag_keys must be at most 32, got ' || cardinality($7)
    end;
begin
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{operations:literal}}_start: ' || wrong;
    end if;
    if $3 is not null and not exists (select 1 from "{{schema}}"."{{operations}}" p where p.id = $3) then
        return null;
    end if;
    insert into "{{schema}}"."{{operations}}" (started_at, updated_at, total, id, parent_id, name, actor, correlation_id, message)
    values (moment, moment, $5, started, $3, $1, who, $4, left($6, 2048));
    insert into "{{schema}}"."{{operations}}_tag" (started_at, operation_id, key, value)
    select moment, started, u.key, u.value from unnest($7, $8) u(key, value);
    return started;
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_start"(text, text, uuid, text, bigint, text, text[], text[], uuid) is
    'Starts an operation, as part of the caller''s transaction. Returns its id, or null where there is no operation parent_id. Without an actor it is the role that has connected. '
    'Whoever starts one shows signs of life with the function that records progress, and ends it.';

create or replace function "{{schema}}"."{{operations}}_progress"(id uuid, done bigint default null, total bigint default null, message text default null)
returns smallint
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    if $2 < 0 or $3 < 0 then
        raise exception using errcode = '22023', message = '{{operations:literal}}_progress: done and total must be 0 or more, or null';
    end if;
    update "{{schema}}"."{{operations}}" o
       set done = coalesce($2, o.done), total = coalesce($3, o.total), message = coalesce(left($4, 2048), o.message),
           updated_at = greatest(o.updated_at, clock_timestamp())
     where o.id = $1 and o.state = 0;
    if found then
        return 0;
    end if;
    return (select o.state from "{{schema}}"."{{operations}}" o where o.id = $1);
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_progress"(uuid, bigint, bigint, text) is
    'Records how far an operation has come, which is a sign of life; what is null stays as it was, so without anything it is a mere sign of life. '
    'Returns 0 if it was recorded, the state of an operation that has ended, which is not changed, and null if there is none.';

create or replace function "{{schema}}"."{{operations}}_note"(id uuid, kind text, message text default null, data json default null, out state smallint, out seq bigint)
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    wrong constant text := case
        when $2 is null or length($2) not between 1 and 64 then 'kind must be 1 to 64 characters, got ' || coalesce(length($2)::text, 'null')
        when octet_length($4::text) > 16384 then 'data must be at most 16384 bytes of JSON, got ' || octet_length($4::text)
    end;
begin
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{operations:literal}}_note: ' || wrong;
    end if;
    update "{{schema}}"."{{operations}}" o set events = o.events + 1, updated_at = greatest(o.updated_at, clock_timestamp())
     where o.id = $1 and o.state = 0
    returning 0, o.events into state, seq;
    if found then
        insert into "{{schema}}"."{{operations}}_event" (seq, operation_id, kind, message, data) values (seq, $1, $2, left($3, 2048), $4);
        return;
    end if;
    select o.state into state from "{{schema}}"."{{operations}}" o where o.id = $1;
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_note"(uuid, text, text, json) is
    'Records something that happened in an operation, which is a sign of life. Returns its number, and state 0 if it was recorded, the state of an operation that has ended, which is not changed, '
    'and null if there is none.';

create or replace function "{{schema}}"."{{operations}}_end"(id uuid, outcome text default 'succeeded', error text default null)
returns smallint
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    code constant smallint := array_position('{succeeded,failed,cancelled}'::text[], $2);
begin
    if code is null then
        raise exception using errcode = '22023',
            message = '{{operations:literal}}_end: outcome must be succeeded, failed or cancelled, got ' || coalesce(left($2, 64), 'null');
    end if;
    update "{{schema}}"."{{operations}}" o
       set state = code, error = left($3, 2048), updated_at = greatest(o.updated_at, clock_timestamp()), ended_at = clock_timestamp()
     where o.id = $1 and o.state = 0;
    if found then
        return 0;
    end if;
    return (select o.state from "{{schema}}"."{{operations}}" o where o.id = $1);
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_end"(uuid, text, text) is
    'Ends an operation: succeeded, failed or cancelled. Returns 0 if it ended by this, the state of an operation that had ended before, which is not changed, and null if there is none.';

create or replace function "{{schema}}"."{{operations}}_mark_stalled"(silent_for_seconds double precision, max_rows integer default 100, actor text default null)
returns setof uuid
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    marked uuid[];
    items jsonb;
begin
    if (silent_for_seconds > 0 and silent_for_seconds <= 1e10) is not true then
        raise exception using errcode = '22023',
            message = '{{operations:literal}}_mark_stalled: silent_for_seconds must be above 0 and at most 10000000000, got ' || coalesce(silent_for_seconds::text, 'null');
    end if;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023',
            message = '{{operations:literal}}_mark_stalled: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    -- Whoever shows a sign of life just now has its row locked, and is not silent.
    marked := array(select o.id from "{{schema}}"."{{operations}}" o
                     where o.state = 0 and o.updated_at <= clock_timestamp() - make_interval(secs => silent_for_seconds)
                     order by o.updated_at, o.id limit max_rows for update skip locked);
    -- The last sign of life stays.
    update "{{schema}}"."{{operations}}" o set state = 4, ended_at = clock_timestamp() where o.id = any (marked);
    if actor is not null and cardinality(marked) > 0 then
        items := (select jsonb_agg(jsonb_build_object('id', o.id, 'name', o.name, 'before', jsonb_build_object('state', 'running'),
                                                      'after', jsonb_build_object('state', 'stalled')) order by u.place)
                    from unnest(marked[1:20]) with ordinality u(id, place) join "{{schema}}"."{{operations}}" o on o.id = u.id);
        perform "{{schema}}"."{{audit}}_note"(
            'operation.mark_stalled', actor,
            jsonb_build_object('count', cardinality(marked), 'silent_for_seconds', silent_for_seconds, 'items', items),
            array_fill('operation'::text, array[cardinality(marked)]), marked::text[]);
    end if;
    return query select unnest(marked);
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_mark_stalled"(double precision, integer, text) is
    'Ends up to max_rows running operations without a sign of life for so many seconds, as stalled, the longest silent first. Returns which. With an actor that is recorded. '
    'Call until it returns less than max_rows.';

create or replace function "{{schema}}"."{{operations}}_purge"(older_than_seconds double precision, max_rows integer default 1000, actor text default null)
returns integer
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    doomed uuid[];
    purged integer;
begin
    if (older_than_seconds between 0 and 1e10) is not true then
        raise exception using errcode = '22023',
            message = '{{operations:literal}}_purge: older_than_seconds must be 0 to 10000000000, got ' || coalesce(older_than_seconds::text, 'null');
    end if;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023', message = '{{operations:literal}}_purge: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    doomed := array(select o.id from "{{schema}}"."{{operations}}" o
                     where o.ended_at is not null and o.ended_at <= clock_timestamp() - make_interval(secs => older_than_seconds)
                     order by o.ended_at, o.id limit max_rows for update skip locked);
    delete from "{{schema}}"."{{operations}}_tag" t where t.operation_id = any (doomed);
    delete from "{{schema}}"."{{operations}}_event" e where e.operation_id = any (doomed);
    delete from "{{schema}}"."{{operations}}" o where o.id = any (doomed);
    get diagnostics purged = row_count;
    if actor is not null and purged > 0 then
        perform "{{schema}}"."{{audit}}_note"('operation.purge', actor, jsonb_build_object('count', purged, 'older_than_seconds', floor(older_than_seconds)));
    end if;
    return purged;
end
$mainstay$;
comment on function "{{schema}}"."{{operations}}_purge"(double precision, integer, text) is
    'Deletes up to max_rows operations that ended longer ago than so many seconds, with their tags and events. With an actor that is recorded. Call until it returns less than max_rows.';
