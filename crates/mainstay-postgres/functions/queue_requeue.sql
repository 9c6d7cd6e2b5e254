-- Giving failed items another life.

create or replace function "{{schema}}"."{{queue}}_requeue_items"(ids uuid[]) returns table (id uuid, topic text, reason text, attempts integer)
language plpgsql volatile
-- For the settings see settle.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    failed tid[];
    changed uuid[];
    topics text[];
    reasons text[];
    spent integer[];
    freed_keys text[];
begin
    if ids is null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_requeue: ids must not be null';
    end if;
    -- Found one by one and locked, then moved by tuple id: no plan for this can be wrong. In order of id, so that two callers wait
    -- for each other in one order. ("is true" keeps the index on status from offering itself.)
    failed := array(
        select x.ctid
          from (select distinct u.id from unnest(ids) u(id) where u.id is not null order by u.id) a
          cross join lateral (
               select h.ctid from "{{schema}}"."{{queue}}_history" h
                where h.id = a.id and (h.status = 3) is true
                  -- A transaction with an old snapshot can have used an id again: not beside an open item, and only the last of several.
                  and (select true from "{{schema}}"."{{queue}}" o where o.id = a.id) is null
                  and (select max(l.seq) from "{{schema}}"."{{queue}}_history" l where l.id = a.id) = h.seq
                  for update) x);
    with gone as (
        delete from "{{schema}}"."{{queue}}_history" h where h.ctid = any (failed) returning h.*),
    again as (
        -- Same place in its ordering key, and generations go on counting: a worker that still has the old claim cannot settle it.
        insert into "{{schema}}"."{{queue}}" (
            seq, created_at, due_at, requested_due_at, expires_at, generation, priority, id, message_id, hold_on_failure,
            topic, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
        overriding system value
        -- Due now: not before a reading of the clock that was taken after the transaction had its xid, see floor.
        select g.seq, g.created_at, case when pg_current_xact_id() is not null then clock_timestamp() end, g.requested_due_at, case when g.expires_at > moment then g.expires_at end, g.generation, g.priority, g.id,
               g.message_id, g.hold_on_failure, g.topic, g.ordering_key, g.idempotency_key, g.correlation_id, g.last_error, g.headers, g.payload
          from gone g)
    select array_agg(g.id), array_agg(g.topic), array_agg(g.reason), array_agg(g.attempts),
           array_agg(g.ordering_key) filter (where g.ordering_key is not null)
      into changed, topics, reasons, spent, freed_keys from gone g;
    if freed_keys is not null then
        delete from "{{schema}}"."{{queue}}_hold" h where h.ordering_key = any (freed_keys);
        perform "{{schema}}"."{{queue}}_advance"(freed_keys);
    end if;
    if changed is not null then
        perform "{{schema}}"."{{queue}}_wake"();
    end if;
    return query select u.id, u.topic, u.reason, u.attempts from unnest(changed, topics, reasons, spent) u(id, topic, reason, attempts);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_requeue_items"(uuid[]) is 'Internal: the same as requeue, without a record.';

create or replace function "{{schema}}"."{{queue}}_requeue_noted"(ids uuid[], actor text, filter jsonb) returns setof uuid
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    changed uuid[];
    items jsonb;
begin
    select array_agg(r.id order by r.n),
           jsonb_agg(jsonb_build_object(
               'id', r.id, 'topic', r.topic, 'before', jsonb_build_object('status', 'failed', 'reason', r.reason, 'attempts', r.attempts),
               'after', jsonb_build_object('status', 'ready', 'attempts', 0)) order by r.n) filter (where r.n <= 20)
      into changed, items from "{{schema}}"."{{queue}}_requeue_items"(ids) with ordinality r(id, topic, reason, attempts, n);
    if changed is not null then
        perform "{{schema}}"."{{queue}}_note"('requeue', actor, changed, items, filter);
    end if;
    return query select u.id from unnest(changed) u(id);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_requeue_noted"(uuid[], text, jsonb) is 'Internal: requeues items and records it.';

create or replace function "{{schema}}"."{{queue}}_requeue"(ids uuid[], actor text default null) returns setof uuid
language sql volatile
as $mainstay$ select "{{schema}}"."{{queue}}_requeue_noted"($1, $2, null) $mainstay$;
comment on function "{{schema}}"."{{queue}}_requeue"(uuid[], text) is
    'Makes failed items ready again, due now, with no attempts spent and past expiry lifted, at their old place in their ordering key, and releases that key. Returns the ids that changed. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{queue}}_requeue_where"(
    topic text default null, reason text default null, failed_after timestamptz default null, failed_before timestamptz default null,
    max_rows integer default 1000, correlation_id text default null, actor text default null
) returns setof uuid
language plpgsql volatile
set jit = off
as $mainstay$
#variable_conflict use_column
begin
    if $2 not in ('handler', 'delivery-limit', 'expired', 'cancelled') then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_requeue_where: reason must be handler, delivery-limit, expired or cancelled, got ' || left($2, 64);
    end if;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_requeue_where: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    return query select "{{schema}}"."{{queue}}_requeue_noted"(array(
        select h.id from "{{schema}}"."{{queue}}_history" h
         where h.status = 3 and ($1 is null or h.topic = $1) and ($2 is null or h.reason = $2) and ($6 is null or h.correlation_id = $6)
           and h.processed_at >= coalesce(failed_after, '-infinity') and h.processed_at < coalesce(failed_before, 'infinity')
         order by h.processed_at limit max_rows), $7, jsonb_build_object(
        'topic', $1, 'reason', $2, 'correlation_id', $6, 'failed_after', $3, 'failed_before', $4, 'max_rows', $5));
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_requeue_where"(text, text, timestamptz, timestamptz, integer, text, text) is
    'Requeues up to max_rows failed items, oldest first, by topic, reason, correlation id and time of failure (from, inclusive, to, exclusive). Null means any. Returns the ids that changed. Recorded in the audit trail as the actor''s.';
