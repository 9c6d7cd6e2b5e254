-- Starting a join, with what is to follow.

create or replace function "{{schema}}"."{{joins}}_start"(
    expected_steps integer,
    grouping_key text default null,
    mode text default 'all',
    quorum integer default null,
    deadline_at timestamptz default null,
    deadline_in_seconds double precision default null,
    join_id uuid default null,
    -- The continuations, at most one for completed and one for failed. A null array means that none has it.
    outcomes text[] default null,
    topics text[] default null,
    payloads text[] default null,
    correlation_ids text[] default null,
    headers text[] default null,
    priorities smallint[] default null,
    ordering_keys text[] default null,
    holds boolean[] default null,
    work_item_ids uuid[] default null,
    message_ids uuid[] default null,
    actor text default null
) returns uuid
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    new_id constant uuid := coalesce($7, "{{schema}}"."{{outbox}}_uuid7"());
    key constant text := nullif($2, '');
    code constant smallint := array_position('{all,any,quorum,deadline}'::text[], $3) - 1;
    needs constant integer := case code when 1 then 1 when 2 then quorum else expected_steps end;
    deadline constant timestamptz := coalesce($5, moment + make_interval(secs => $6));
    size constant integer := coalesce(cardinality(outcomes), 0);
    fault record;
    wrong text;
begin
    wrong := case
        when expected_steps is null or expected_steps not between 1 and 1000000000
            then 'expected_steps must be 1 to 1000000000, got ' || coalesce(expected_steps::text, 'null')
        when length(key) > 255 then 'grouping_key must be at most 255 characters, got ' || length(key)
        when code is null then 'mode must be all, any, quorum or deadline, got ' || coalesce($3, 'null')
        when needs is null or needs not between 1 and expected_steps then 'quorum must be 1 to the expected steps, got ' || coalesce(quorum::text, 'null')
        when $5 is not null and $6 is not null then 'deadline_in_seconds must not stand beside deadline_at'
        when not ($6 >= 0 and $6 <= 1e11) then 'deadline_in_seconds must be 0 to 100000000000'
        when not isfinite(deadline) then 'deadline_at must be a finite time'
        when code = 3 and deadline is null then 'deadline_at must be given where the mode is deadline'
    end;
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{joins:literal}}_start: ' || wrong;
    end if;
    for fault in
        select a.name, a.length from (values
            ('topics', coalesce(cardinality(topics), 0)), ('payloads', coalesce(cardinality(payloads), 0)), ('correlation_ids', cardinality(correlation_ids)),
            ('headers', cardinality(headers)), ('priorities', cardinality(priorities)), ('ordering_keys', cardinality(ordering_keys)),
            ('holds', cardinality(holds)), ('work_item_ids', cardinality(work_item_ids)), ('message_ids', cardinality(message_ids))) a(name, length)
         where a.length <> size
    loop
        raise exception using errcode = '22023', message = '{{joins:literal}}_start: ' || fault.name
            || ' must have as many elements as outcomes (' || size || '), got ' || fault.length;
    end loop;

    if exists (select from "{{schema}}"."{{joins}}" j where j.id = new_id) then
        raise exception using errcode = '22023', message = '{{joins:literal}}_start: id must be new, but there is a join ' || new_id || ' already';
    end if;
    insert into "{{schema}}"."{{joins}}" (id, created_at, updated_at, deadline_at, expected_steps, needed, mode, grouping_key)
    values (new_id, moment, moment, deadline, $1, needs, code, key);

    -- A slot is of use while it has more than what is counted at once, so small joins have one.
    insert into "{{schema}}"."{{joins}}_slot" (join_id, pool, slot, left_over)
    select new_id, p.pool, s.slot, p.credit / p.slots + case when s.slot < p.credit % p.slots then 1 else 0 end
      from (select c.pool, c.credit, least(16, greatest(1, c.credit / 200)) as slots
              from (values (0, $1, code in (0, 3)), (1, needs, code in (1, 2)), (2, $1 - needs + 1, code in (1, 2))) c(pool, credit, given)
             where c.given) p
     cross join lateral generate_series(0, p.slots - 1) s(slot);

    if size > 0 then
        select b.complaint into fault from (select case
            when array_position('{completed,failed}'::text[], u.outcome) is null then 'outcomes[' || u.n || '] must be completed or failed'
            when u.topic is null or length(u.topic) not between 1 and 255 then 'topics[' || u.n || '] must be 1 to 255 characters'
            when u.payload is null then 'payloads[' || u.n || '] must not be null (an empty text is fine)'
            when length(u.correlation) > 255 then 'correlation_ids[' || u.n || '] must be at most 255 characters, got ' || length(u.correlation)
            when length(u.lane) not between 1 and 255 then 'ordering_keys[' || u.n || '] must be 1 to 255 characters'
            when u.priority not between -9 and 9 then 'priorities[' || u.n || '] must be -9 to 9, got ' || u.priority
            when jsonb_typeof(u.header::jsonb) <> 'object' then 'headers[' || u.n || '] must be a JSON object'
            when u.header::jsonb @? '$.keyvalue() ? (@.key starts with "mainstay-")'
                then 'headers[' || u.n || '] must not have names that begin with mainstay-, which Mainstay keeps to itself'
            end as complaint
          from unnest(outcomes, topics, payloads, correlation_ids, headers, priorities, ordering_keys)
               with ordinality as u(outcome, topic, payload, correlation, header, priority, lane, n)) b
         where b.complaint is not null limit 1;
        if found then
            raise exception using errcode = '22023', message = '{{joins:literal}}_start: ' || fault.complaint;
        end if;
        insert into "{{schema}}"."{{joins}}_continuation" (
            join_id, outcome, work_item_id, message_id, topic, payload, correlation_id, headers, priority, ordering_key, hold_on_failure)
        select new_id, array_position('{completed,failed}'::text[], u.outcome), coalesce(u.item, "{{schema}}"."{{outbox}}_uuid7"()),
               coalesce(u.message, "{{schema}}"."{{outbox}}_uuid7"()), u.topic, u.payload, nullif(u.correlation, ''),
               coalesce(u.header::jsonb, '{}') || jsonb_build_object('mainstay-join', new_id), coalesce(u.priority, 0), u.lane, coalesce(u.hold, false)
          from unnest(outcomes, topics, payloads, correlation_ids, headers, priorities, ordering_keys, holds, work_item_ids, message_ids)
               as u(outcome, topic, payload, correlation, header, priority, lane, hold, item, message);
    end if;
    -- Applications that go about their business start joins all the time: that is recorded when somebody is named.
    if actor is not null then
        perform "{{schema}}"."{{audit}}_note"(
            'join.start', actor, jsonb_build_object('before', null, 'after', jsonb_build_object(
                'expected', $1, 'needed', needs, 'mode', $3, 'grouping_key', key, 'deadline_at', $5, 'deadline_in_seconds', $6,
                'on_completed', topics[array_position(outcomes, 'completed')], 'on_failed', topics[array_position(outcomes, 'failed')])),
            array['join'], array[new_id::text]);
    end if;
    return new_id;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_start"(
    integer, text, text, integer, timestamptz, double precision, uuid, text[], text[], text[], text[], text[], smallint[], text[], boolean[], uuid[], uuid[], text) is
    'Starts a join of so many steps in the caller''s transaction and returns its id. mode: all, any, quorum (with the number) or deadline. '
    'When it ends, the message of its outcome is put into the outbox; it has a header mainstay-join with the join''s id. With an actor it is recorded in the audit trail.';
