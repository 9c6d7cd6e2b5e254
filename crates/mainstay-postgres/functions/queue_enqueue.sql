-- Adding one item, in the caller's transaction. Called once per business event, mostly once per transaction, and there every
-- expression of a function is prepared anew: so one test for all arguments, and the complaint is worded elsewhere.

create or replace function "{{schema}}"."{{queue}}_enqueue"(
    topic text,
    payload text,
    correlation_id text default null,
    due_at timestamptz default null,
    idempotency_key text default null,
    ordering_key text default null,
    priority integer default 0,
    expires_at timestamptz default null,
    headers jsonb default null,
    hold_on_failure boolean default false,
    inout work_item_id uuid default null,
    inout message_id uuid default null,
    due_in_seconds double precision default null,
    expires_in_seconds double precision default null
)
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    earlier record;
begin
    -- Null counts as valid where the argument is optional: the whole must not be false, and the required ones must be there.
    if (length(topic) between 1 and 255 and payload is not null and priority between -9 and 9) is not true
       or (length(correlation_id) <= 255 and length(idempotency_key) between 1 and 255 and length(ordering_key) between 1 and 255
           and isfinite(due_at) and isfinite(expires_at) and jsonb_typeof(headers) = 'object'
           and due_in_seconds between 0 and 1e11 and expires_in_seconds between 0 and 1e11
           -- Reserved names. A timer's ordering key is kept under one of them (see timers_schedule).
           and not headers @? case '{{queue:literal}}' when '{{timers:literal}}'
               then '$.keyvalue() ? (@.key starts with "mainstay-" && @.key != "mainstay-ordering-key")'::jsonpath
               else '$.keyvalue() ? (@.key starts with "mainstay-")'::jsonpath end) is false
       or num_nonnulls(due_at, due_in_seconds) = 2 or num_nonnulls(expires_at, expires_in_seconds) = 2 then
        perform "{{schema}}"."{{queue}}_refuse"(topic, payload, correlation_id, due_at, idempotency_key, ordering_key, priority, expires_at, headers,
                                                 due_in_seconds, expires_in_seconds);
    end if;

    -- An id of the caller's own is looked up, which is enqueue_many's part.
    if work_item_id is not null then
        select e.work_item_id, e.message_id into work_item_id, message_id
          from "{{schema}}"."{{queue}}_enqueue_many"(
               array[work_item_id], array[message_id], array[topic], array[payload], array[correlation_id], array[due_at], array[idempotency_key],
               array[ordering_key], array[priority::smallint], array[expires_at], array[headers::text], array[hold_on_failure],
               array[due_in_seconds], array[expires_in_seconds]) e;
        return;
    end if;
    if idempotency_key is not null then
        work_item_id := "{{schema}}"."{{queue}}_uuid7"();
        message_id := coalesce(message_id, "{{schema}}"."{{queue}}_uuid7"());
        -- The insert waits for a concurrent caller with the same key, and then does nothing. The key it met can be gone again
        -- when it is read, through a purge: hence the loop.
        loop
            insert into "{{schema}}"."{{queue}}_idempotency" (idempotency_key, work_item_id, message_id, created_at)
            values (idempotency_key, work_item_id, message_id, statement_timestamp()) on conflict do nothing;
            exit when found;
            select i.work_item_id, i.message_id into earlier
              from "{{schema}}"."{{queue}}_idempotency" i where i.idempotency_key = "{{queue}}_enqueue".idempotency_key;
            if found then
                work_item_id := earlier.work_item_id;
                message_id := earlier.message_id;
                return;
            end if;
        end loop;
    end if;

    insert into "{{schema}}"."{{queue}}" as o (
        id, message_id, topic, payload, correlation_id, created_at, due_at, requested_due_at, idempotency_key, ordering_key,
        priority, expires_at, headers, hold_on_failure)
    select coalesce(work_item_id, "{{schema}}"."{{queue}}_uuid7"()), coalesce(message_id, "{{schema}}"."{{queue}}_uuid7"()),
           topic, payload, nullif(correlation_id, ''), r.now,
           -- A due time in the past means now: it must not jump the queue, nor look like a message that waits since then.
           -- The relative times are counted from here, so that the clock of the caller does not matter.
           greatest(due_at, r.now + make_interval(secs => due_in_seconds), r.now),
           coalesce(due_at, r.now + make_interval(secs => due_in_seconds)), idempotency_key, ordering_key,
           priority, coalesce(expires_at, r.now + make_interval(secs => expires_in_seconds)), headers, coalesce(hold_on_failure, false)
      -- When it is now is the rule of add: within the insert, and once there is an xid.
      from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r
    returning o.id, o.message_id into work_item_id, message_id;

    -- What wake() does, and after the insert for the reason given there; written out because the call is as dear as the check.
    if exists (select from "{{schema}}"."{{queue}}_waiter" w where w.until > statement_timestamp())
       or current_setting('transaction_isolation') <> 'read committed' then
        perform pg_notify("{{schema}}"."{{queue}}_channel"(), '');
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_enqueue"(
    text, text, text, timestamptz, text, text, integer, timestamptz, jsonb, boolean, uuid, uuid, double precision, double precision) is
    'Adds one item in the caller''s transaction and returns its ids. With an idempotency key that was used before: the existing ids, and nothing is added. '
    'An id is used once: with a work_item_id that an item has, open or settled, it raises MI001, which names the id and the item''s status. '
    'Items with the same ordering key are handled one at a time, in the order of enqueueing; with hold_on_failure a failed one holds the rest.';

create or replace function "{{schema}}"."{{queue}}_refuse"(
    topic text, payload text, correlation_id text, due_at timestamptz, idempotency_key text, ordering_key text, priority integer,
    expires_at timestamptz, headers jsonb, due_in_seconds double precision, expires_in_seconds double precision
) returns void
language plpgsql volatile
as $mainstay$
begin
    raise exception using errcode = '22023', message = '{{queue:literal}}_enqueue: ' || case
        when topic is null or length(topic) not between 1 and 255 then 'topic must be 1 to 255 characters, got ' || coalesce(length(topic)::text, 'null')
        when payload is null then 'payload must not be null (an empty text is fine)'
        when length(correlation_id) > 255 then 'correlation_id must be at most 255 characters, got ' || length(correlation_id)
        when length(idempotency_key) not between 1 and 255 then 'idempotency_key must be 1 to 255 characters, got ' || length(idempotency_key)
        when length(ordering_key) not between 1 and 255 then 'ordering_key must be 1 to 255 characters, got ' || length(ordering_key)
        when priority is null or priority not between -9 and 9 then 'priority must be -9 to 9, got ' || coalesce(priority::text, 'null')
        when not isfinite(due_at) then 'due_at must be a finite time'
        when not isfinite(expires_at) then 'expires_at must be a finite time'
        when jsonb_typeof(headers) <> 'object' then 'headers must be a JSON object, got ' || jsonb_typeof(headers)
        when due_in_seconds is not null and (due_at is not null or due_in_seconds not between 0 and 1e11)
            then 'due_in_seconds must be 0 to 100000000000, and not beside due_at, got ' || due_in_seconds
        when expires_in_seconds is not null and (expires_at is not null or expires_in_seconds not between 0 and 1e11)
            then 'expires_in_seconds must be 0 to 100000000000, and not beside expires_at, got ' || expires_in_seconds
        when headers @? '$.keyvalue() ? (@.key starts with "mainstay-")'::jsonpath
            then 'headers must not have names that begin with mainstay-, which Mainstay keeps to itself'
        else 'an argument is out of range'
    end;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_refuse"(
    text, text, text, timestamptz, text, text, integer, timestamptz, jsonb, double precision, double precision) is
    'Internal: says which argument of enqueue is out of range.';
