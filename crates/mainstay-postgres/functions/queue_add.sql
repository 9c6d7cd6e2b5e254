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
