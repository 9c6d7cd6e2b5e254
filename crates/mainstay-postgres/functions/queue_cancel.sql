-- Taking back what has not been started.

create or replace function "{{schema}}"."{{queue}}_cancel_items"(ids uuid[]) returns table (id uuid, topic text)
language plpgsql volatile
-- For the settings see settle.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    changed uuid[];
    topics text[];
    left_keys text[];
begin
    if ids is null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_cancel: ids must not be null';
    end if;
    with asked as materialized (select distinct u.id from unnest(ids) u(id) order by u.id),
    gone as (
        delete from "{{schema}}"."{{queue}}" m using asked a where m.id = a.id and m.status = 0 returning m.*),
    kept as (
        insert into "{{schema}}"."{{queue}}_history" (
            seq, created_at, due_at, requested_due_at, processed_at, expires_at, generation, attempts, priority, status, id, message_id,
            hold_on_failure, topic, reason, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
        select g.seq, g.created_at, g.due_at, g.requested_due_at, moment, g.expires_at, g.generation, g.attempts, g.priority, 3, g.id, g.message_id,
               g.hold_on_failure, g.topic, 'cancelled', g.ordering_key, g.idempotency_key, g.correlation_id, 'cancelled', g.headers, g.payload
          from gone g)
    select array_agg(g.id), array_agg(g.topic), array_agg(g.ordering_key) filter (where g.ordering_key is not null) into changed, topics, left_keys from gone g;
    -- No hold, whatever the item asked for: whoever cancels it wants the rest to go on.
    if left_keys is not null then
        perform "{{schema}}"."{{queue}}_advance"(left_keys);
    end if;
    if '{{queue:literal}}' = '{{outbox:literal}}' and changed is not null and "{{schema}}"."{{joins}}_waiting"() then
        perform "{{schema}}"."{{joins}}_ended"('{}', changed);
    end if;
    return query select u.id, u.topic from unnest(changed, topics) u(id, topic);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_cancel_items"(uuid[]) is 'Internal: the same as cancel, without a record.';

create or replace function "{{schema}}"."{{queue}}_cancel"(ids uuid[], actor text default null) returns setof uuid
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    changed uuid[];
    items jsonb;
begin
    select array_agg(c.id order by c.n),
           jsonb_agg(jsonb_build_object(
               'id', c.id, 'topic', c.topic, 'before', jsonb_build_object('status', 'ready'),
               'after', jsonb_build_object('status', 'failed', 'reason', 'cancelled')) order by c.n) filter (where c.n <= 20)
      into changed, items from "{{schema}}"."{{queue}}_cancel_items"(ids) with ordinality c(id, topic, n);
    -- Timers are cancelled by applications that go about their business: that is recorded when somebody is named.
    if changed is not null and (actor is not null or '{{queue:kind}}' <> 'timers') then
        perform "{{schema}}"."{{queue}}_note"('cancel', actor, changed, items);
    end if;
    return query select u.id from unnest(changed) u(id);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_cancel"(uuid[], text) is
    'Fails items that are ready and not in progress, with reason cancelled. Returns the ids that changed. Recorded in the audit trail as the actor''s; of timers only if there is one.';

create or replace function "{{schema}}"."{{queue}}_note"(verb text, actor text, ids uuid[], items jsonb, filter jsonb default null) returns void
language plpgsql volatile
as $mainstay$
begin
    perform "{{schema}}"."{{audit}}_note"(
        '{{queue:kind}}.' || verb, actor,
        jsonb_build_object('count', cardinality(ids), 'items', items)
            || case when filter is null then '{}' else jsonb_build_object('filter', filter) end,
        array_fill('{{queue:kind}}'::text, array[cardinality(ids)]), ids::text[]);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_note"(text, text, uuid[], jsonb, jsonb) is 'Internal: records what was done to items by hand.';
