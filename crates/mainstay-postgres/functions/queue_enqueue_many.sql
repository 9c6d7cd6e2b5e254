-- Adding many items at once. One insert for all of them; items get their place in the order of the arrays.

create or replace function "{{schema}}"."{{queue}}_enqueue_many"(
    work_item_ids uuid[],
    message_ids uuid[],
    topics text[],
    payloads text[],
    correlation_ids text[] default null,
    due_ats timestamptz[] default null,
    idempotency_keys text[] default null,
    ordering_keys text[] default null,
    priorities smallint[] default null,
    expires_ats timestamptz[] default null,
    headers text[] default null,
    holds boolean[] default null,
    due_in_seconds double precision[] default null,
    expires_in_seconds double precision[] default null,
    -- True for ids that were made for these very items. All other ids that are given are looked up.
    new_ids boolean[] default null
) returns table (ordinal integer, work_item_id uuid, message_id uuid, added boolean)
language plpgsql volatile
-- For the settings see settle.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    size constant integer := coalesce(cardinality(topics), 0);
    fault record;
    header_objects jsonb[];
    items uuid[];
    messages uuid[];
    fresh boolean[];
    own_ids uuid[];
    new_keys text[];
    batch_keys text[];
    missing integer;
begin
    if topics is null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue_many: topics must not be null';
    end if;
    if payloads is null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue_many: payloads must not be null';
    end if;
    -- Shorter arrays would be padded with nulls by unnest, and data would move to the wrong item without a sound.
    for fault in
        select a.name, a.length from (values
            ('payloads', cardinality(payloads)), ('work_item_ids', cardinality(work_item_ids)), ('message_ids', cardinality(message_ids)),
            ('correlation_ids', cardinality(correlation_ids)), ('due_ats', cardinality(due_ats)),
            ('idempotency_keys', cardinality(idempotency_keys)), ('ordering_keys', cardinality(ordering_keys)),
            ('priorities', cardinality(priorities)), ('expires_ats', cardinality(expires_ats)), ('headers', cardinality(headers)),
            ('holds', cardinality(holds)), ('due_in_seconds', cardinality(due_in_seconds)),
            ('expires_in_seconds', cardinality(expires_in_seconds)), ('new_ids', cardinality(new_ids))) a(name, length)
         where a.length <> size
    loop
        raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue_many: ' || fault.name
            || ' must have as many elements as topics (' || size || '), got ' || fault.length;
    end loop;
    if size = 0 then
        return;
    end if;

    -- Counted from here, so that the clock of the caller does not matter.
    for fault in
        select x.name, x.n from (
            select 'due_in_seconds' as name, u.n, u.span, u.moment from unnest(due_in_seconds, due_ats) with ordinality as u(span, moment, n)
            union all
            select 'expires_in_seconds', u.n, u.span, u.moment from unnest(expires_in_seconds, expires_ats) with ordinality as u(span, moment, n)) x
         where x.span is not null and (x.moment is not null or not (x.span >= 0 and x.span <= 1e11))
    loop
        raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue_many: ' || fault.name || '[' || fault.n
            || '] must be 0 to 100000000000, and not beside an absolute time';
    end loop;
    if headers is not null then
        begin
            header_objects := headers::jsonb[];
        exception when data_exception then
            raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue_many: headers must be JSON objects: ' || sqlerrm;
        end;
    end if;

    select b.* into fault from (
        select u.n, case
            when u.topic is null or length(u.topic) not between 1 and 255
                then 'topics[' || u.n || '] must be 1 to 255 characters, got ' || coalesce(length(u.topic)::text, 'null')
            when u.payload is null then 'payloads[' || u.n || '] must not be null (an empty text is fine)'
            when length(u.correlation) > 255 then 'correlation_ids[' || u.n || '] must be at most 255 characters, got ' || length(u.correlation)
            when not isfinite(u.due) then 'due_ats[' || u.n || '] must be a finite time'
            when length(u.idem) not between 1 and 255
                then 'idempotency_keys[' || u.n || '] must be 1 to 255 characters, got ' || length(u.idem)
            when length(u.lane) not between 1 and 255
                then 'ordering_keys[' || u.n || '] must be 1 to 255 characters, got ' || length(u.lane)
            when u.priority not between -9 and 9 then 'priorities[' || u.n || '] must be -9 to 9, got ' || u.priority
            when not isfinite(u.expiry) then 'expires_ats[' || u.n || '] must be a finite time'
            when jsonb_typeof(u.header) <> 'object' then 'headers[' || u.n || '] must be a JSON object, got ' || jsonb_typeof(u.header)
            -- A timer's ordering key is kept under one of them (see timers_schedule).
            when u.header @? case '{{queue:literal}}' when '{{timers:literal}}'
                     then '$.keyvalue() ? (@.key starts with "mainstay-" && @.key != "mainstay-ordering-key")'::jsonpath
                     else '$.keyvalue() ? (@.key starts with "mainstay-")'::jsonpath end
                then 'headers[' || u.n || '] must not have names that begin with mainstay-, which Mainstay keeps to itself'
        end as complaint
        from unnest(topics, payloads, correlation_ids, due_ats, idempotency_keys, ordering_keys, priorities, expires_ats, header_objects)
             with ordinality as u(topic, payload, correlation, due, idem, lane, priority, expiry, header, n)) b
     where b.complaint is not null limit 1;
    if found then
        raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue_many: ' || fault.complaint;
    end if;

    select array_agg(coalesce(u.item, "{{schema}}"."{{queue}}_uuid7"()) order by u.n),
           array_agg(coalesce(u.message, "{{schema}}"."{{queue}}_uuid7"()) order by u.n)
      into items, messages
      from unnest(work_item_ids, message_ids, topics) with ordinality as u(item, message, topic, n);

    if array_remove(idempotency_keys, null) <> '{}' then
        -- The first of a repeated key stands for all. Sorted, so that callers with the same keys wait for each other in one order.
        -- The loop is for keys that a purge takes away between the two statements.
        new_keys := '{}';
        loop
            with one_each as (
                select distinct on (u.key) u.key, u.item, u.message
                  from unnest(idempotency_keys, items, messages) with ordinality as u(key, item, message, n)
                 where u.key is not null order by u.key, u.n),
            kept as (
                insert into "{{schema}}"."{{queue}}_idempotency" as i (idempotency_key, work_item_id, message_id, created_at)
                select o.key, o.item, o.message, moment from one_each o order by o.key
                on conflict do nothing returning i.idempotency_key)
            select array_agg(k.idempotency_key) into batch_keys from kept k;
            new_keys := new_keys || batch_keys;

            select array_agg(coalesce(i.work_item_id, u.item) order by u.n), array_agg(coalesce(i.message_id, u.message) order by u.n),
                   array_agg(u.key is null or ((u.key in (select k.key from unnest(new_keys) k(key))) is true and u.n = u.first_n) order by u.n),
                   count(*) filter (where u.key is not null and i.idempotency_key is null)
              into items, messages, fresh, missing
              from (select x.*, min(x.n) over (partition by x.key) as first_n
                      from unnest(idempotency_keys, items, messages) with ordinality as x(key, item, message, n)) u
              left join "{{schema}}"."{{queue}}_idempotency" i on i.idempotency_key = u.key;
            exit when missing = 0;
        end loop;
    end if;

    -- The ids that can have been used before.
    select array_agg(u.item order by u.n) into own_ids
      from unnest(work_item_ids, fresh, new_ids) with ordinality as u(item, fresh, new, n)
     where u.item is not null and u.fresh is not false and u.new is not true;
    if own_ids is null then
        perform "{{schema}}"."{{queue}}_add"(items, messages, topics, payloads, correlation_ids, headers, due_ats, due_in_seconds, ordering_keys, holds,
                                              priorities, expires_ats, expires_in_seconds, idempotency_keys, fresh);
    else
        perform "{{schema}}"."{{queue}}_add_once"(own_ids, items, messages, topics, payloads, correlation_ids, headers, due_ats, due_in_seconds,
                                                   ordering_keys, holds, priorities, expires_ats, expires_in_seconds, idempotency_keys, fresh);
    end if;

    return query
    select u.n::integer, u.item, u.message, u.fresh is not false
      from unnest(items, messages, fresh) with ordinality as u(item, message, fresh, n);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_enqueue_many"(
    uuid[], uuid[], text[], text[], text[], timestamptz[], text[], text[], smallint[], timestamptz[], text[], boolean[], double precision[], double precision[], boolean[]) is
    'Adds many items in the caller''s transaction, in the order of the arrays, and returns one row for each. '
    'A null array means that no item has it; otherwise it has as many elements as topics. Ids that are null are made. '
    'Same rules as for one item, also for keys repeated within the call. new_ids = true spares the lookup of an id that was made for this item.';
