-- Scheduling, in the caller's transaction. A timer is an item with a due time; it becomes a message when it is due (see forward).
--
-- The ordering key is kept in a header and not in the item's own key: that would let a timer wait for an earlier one of the same key
-- that is due later. The message gets it back when the timer fires.

create or replace function "{{schema}}"."{{timers}}_schedule"(
    topic text,
    payload text,
    due_at timestamptz default null,
    due_in_seconds double precision default null,
    correlation_id text default null,
    idempotency_key text default null,
    ordering_key text default null,
    priority integer default 0,
    expires_at timestamptz default null,
    headers jsonb default null,
    hold_on_failure boolean default false,
    inout work_item_id uuid default null,
    inout message_id uuid default null
)
language plpgsql volatile
as $mainstay$
begin
    if num_nonnulls(due_at, due_in_seconds) <> 1 then
        raise exception using errcode = '22023', message = '{{timers:literal}}_schedule: either due_at or due_in_seconds must be given, and not both';
    end if;
    if length(ordering_key) not between 1 and 255 then
        raise exception using errcode = '22023',
            message = '{{timers:literal}}_schedule: ordering_key must be 1 to 255 characters, got ' || length(ordering_key);
    end if;
    if headers @? '$.keyvalue() ? (@.key starts with "mainstay-")'::jsonpath then
        raise exception using errcode = '22023',
            message = '{{timers:literal}}_schedule: headers must not have names that begin with mainstay-, which Mainstay keeps to itself';
    end if;
    -- What is not an object is refused by enqueue.
    if ordering_key is not null and coalesce(jsonb_typeof(headers) = 'object', true) then
        headers := coalesce(headers, '{}') || jsonb_build_object('mainstay-ordering-key', ordering_key);
    end if;
    select e.work_item_id, e.message_id into work_item_id, message_id
      from "{{schema}}"."{{timers}}_enqueue"(
           topic, payload, correlation_id, due_at, idempotency_key, null, priority, expires_at, headers, hold_on_failure,
           work_item_id, message_id, due_in_seconds) e;
end
$mainstay$;
comment on function "{{schema}}"."{{timers}}_schedule"(
    text, text, timestamptz, double precision, text, text, text, integer, timestamptz, jsonb, boolean, uuid, uuid) is
    'Schedules a timer in the caller''s transaction and returns its ids, which are also those of the message it becomes. With an idempotency key that was '
    'used before: the existing ids, and nothing is added. Timers fire when they are due, whatever their ordering keys; the messages of one key are then handled in order.';
