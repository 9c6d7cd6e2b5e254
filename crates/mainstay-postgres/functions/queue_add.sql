-- Adding items whose arguments have been checked, under ids that the caller brings. What the program itself calls: it knows the
-- ids, has checked everything before, and would pay for each check and each returned row a second time. Whatever is wrong all the
-- same is refused by the table's own types.
--
-- The rule that every entry in the ready index keeps (see floor): due_at is not before a reading of the clock that was taken when
-- the transaction had its xid and its lock on the table. Hence the case, which fixes what comes first, and hence within the insert.

create or replace function "{{schema}}"."{{queue}}_add_one"(
    work_item_id uuid,
    message_id uuid,
    topic text,
    payload text,
    correlation_id text default null,
    headers text default null,
    due_at timestamptz default null,
    due_in_seconds double precision default null,
    ordering_key text default null,
    hold_on_failure boolean default false,
    priority smallint default 0,
    expires_at timestamptz default null,
    expires_in_seconds double precision default null
) returns void
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    insert into "{{schema}}"."{{queue}}" (
        id, message_id, topic, payload, correlation_id, headers, created_at, due_at, requested_due_at, ordering_key, hold_on_failure, priority, expires_at)
    select work_item_id, message_id, topic, payload, correlation_id, headers::jsonb, r.now,
           greatest(r.now, due_at, r.now + make_interval(secs => due_in_seconds)), coalesce(due_at, r.now + make_interval(secs => due_in_seconds)),
           ordering_key, hold_on_failure, priority, coalesce(expires_at, r.now + make_interval(secs => expires_in_seconds))
      from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r;

    -- What wake() does, and after the insert for the reason given there; written out because the call is as dear as the check.
    if exists (select from "{{schema}}"."{{queue}}_waiter" w where w.until > statement_timestamp())
       or current_setting('transaction_isolation') <> 'read committed' then
        perform pg_notify("{{schema}}"."{{queue}}_channel"(), '');
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_add_one"(
    uuid, uuid, text, text, text, text, timestamptz, double precision, text, boolean, smallint, timestamptz, double precision) is
    'Internal: adds one item whose arguments have been checked.';

create or replace function "{{schema}}"."{{queue}}_add"(
    work_item_ids uuid[],
    message_ids uuid[],
    topics text[],
    payloads text[],
    correlation_ids text[] default null,
    headers text[] default null,
    due_ats timestamptz[] default null,
    due_in_seconds double precision[] default null,
    ordering_keys text[] default null,
    holds boolean[] default null,
    priorities smallint[] default null,
    expires_ats timestamptz[] default null,
    expires_in_seconds double precision[] default null,
    idempotency_keys text[] default null,
    fresh boolean[] default null
) returns void
language plpgsql volatile
set jit = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
begin
    -- Rows come out of unnest, and draw their numbers, in the order of the arrays. One reading for all of them, so that they stand in
    -- the index in that order too.
    if num_nonnulls(correlation_ids, headers, due_ats, due_in_seconds, ordering_keys, holds, priorities, expires_ats, expires_in_seconds,
                    idempotency_keys, fresh) = 0 then
        -- The plain ones, of which there are most: reading eleven empty columns takes a quarter of the time.
        insert into "{{schema}}"."{{queue}}" (id, message_id, topic, payload, created_at, due_at)
        select u.item, u.message, u.topic, u.payload, r.now, r.now
          from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r,
               unnest(work_item_ids, message_ids, topics, payloads) as u(item, message, topic, payload);
    else
        insert into "{{schema}}"."{{queue}}" (
            id, message_id, topic, payload, correlation_id, headers, created_at, due_at, requested_due_at, ordering_key, hold_on_failure, priority,
            expires_at, idempotency_key)
        select u.item, u.message, u.topic, u.payload, nullif(u.correlation, ''), u.header::jsonb, r.now,
               greatest(r.now, u.due, r.now + make_interval(secs => u.due_in)), coalesce(u.due, r.now + make_interval(secs => u.due_in)),
               u.lane, coalesce(u.hold, false), coalesce(u.priority, 0), coalesce(u.expiry, r.now + make_interval(secs => u.expires_in)), u.idem
          from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r,
               unnest(work_item_ids, message_ids, topics, payloads, correlation_ids, headers, due_ats, due_in_seconds, ordering_keys, holds, priorities,
                      expires_ats, expires_in_seconds, idempotency_keys, fresh)
               as u(item, message, topic, payload, correlation, header, due, due_in, lane, hold, priority, expiry, expires_in, idem, fresh)
         where u.fresh is not false;
    end if;
    if found then
        perform "{{schema}}"."{{queue}}_wake"();
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_add"(
    uuid[], uuid[], text[], text[], text[], text[], timestamptz[], double precision[], text[], boolean[], smallint[], timestamptz[], double precision[],
    text[], boolean[]) is
    'Internal: adds many items whose arguments have been checked. A null array means that no item has it.';

-- The same where some ids can have been used before: an id is used once.
create or replace function "{{schema}}"."{{queue}}_add_once"(
    own_ids uuid[],
    work_item_ids uuid[],
    message_ids uuid[],
    topics text[],
    payloads text[],
    correlation_ids text[] default null,
    headers text[] default null,
    due_ats timestamptz[] default null,
    due_in_seconds double precision[] default null,
    ordering_keys text[] default null,
    holds boolean[] default null,
    priorities smallint[] default null,
    expires_ats timestamptz[] default null,
    expires_in_seconds double precision[] default null,
    idempotency_keys text[] default null,
    fresh boolean[] default null
) returns void
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    broken text;
    detail text;
begin
    perform "{{schema}}"."{{queue}}_refuse_known"(own_ids, false);
    begin
        perform "{{schema}}"."{{queue}}_add"(work_item_ids, message_ids, topics, payloads, correlation_ids, headers, due_ats, due_in_seconds,
                                              ordering_keys, holds, priorities, expires_ats, expires_in_seconds, idempotency_keys, fresh);
    exception when unique_violation then
        -- Another transaction has committed the id since.
        get stacked diagnostics broken = constraint_name, detail = pg_exception_detail;
        perform "{{schema}}"."{{queue}}_refuse_known"(own_ids, false);
        -- Not visible: the transaction's snapshot is older than the item.
        if broken = '{{queue:literal}}_pkey' then
            raise exception using errcode = 'MI001',
                message = '{{queue:literal}}_enqueue: work_item_id ' || coalesce(substring(detail from '=\(([0-9a-f-]{36})\)') || ' ', '')
                    || 'belongs to a work item already, whose status this transaction cannot see: it is newer than its snapshot',
                hint = 'Use every id once, or an idempotency key to enqueue only the first time.';
        end if;
        raise;
    end;
    -- The insert waits for another transaction with the id. If that settled its item, the place was free: look again at what is settled.
    perform "{{schema}}"."{{queue}}_refuse_known"(own_ids, true);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_add_once"(
    uuid[], uuid[], uuid[], text[], text[], text[], text[], timestamptz[], double precision[], text[], boolean[], smallint[], timestamptz[],
    double precision[], text[], boolean[]) is
    'Internal: adds many items whose arguments have been checked, and raises MI001 if an item has one of own_ids already.';

create or replace function "{{schema}}"."{{queue}}_refuse_known"(ids uuid[], settled_only boolean) returns void
language plpgsql volatile
-- For the settings see settle.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    known record;
begin
    -- The first in the order of the array. An id that comes twice is met by its second item as the first one will be: ready.
    select a.id, a.status into known
      from (select u.id, u.n, coalesce(
                       case when not settled_only then (select max(o.status) from "{{schema}}"."{{queue}}" o where o.id = u.id) end,
                       (select max(h.status) from "{{schema}}"."{{queue}}_history" h where h.id = u.id),
                       case when row_number() over (partition by u.id order by u.n) > 1 then 0 end) as status
              from unnest(ids) with ordinality u(id, n)) a
     where a.status is not null order by a.n limit 1;
    if found then
        raise exception using errcode = 'MI001',
            message = '{{queue:literal}}_enqueue: work_item_id ' || known.id || ' belongs to a work item that is '
                || case known.status when 0 then 'ready' when 1 then 'in-progress' when 2 then 'done' else 'failed' end,
            hint = 'Use every id once, or an idempotency key to enqueue only the first time.';
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_refuse_known"(uuid[], boolean) is
    'Internal: raises MI001 for the first of these ids that an item has, open or settled.';
