-- Adding one item, in the caller's transaction. Called once per business event: every statement here is felt.

create or replace function "{{schema}}"."{{outbox}}_enqueue"(
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
    expires_in_seconds double precision default null,
    out added boolean
)
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    earlier record;
begin
    if topic is null or length(topic) not between 1 and 255 then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: topic must be 1 to 255 characters, got ' || coalesce(length(topic)::text, 'null');
    end if;
    if payload is null then
        raise exception using errcode = '22023', message = '{{outbox:literal}}_enqueue: payload must not be null (an empty text is fine)';
    end if;
    if length(correlation_id) > 255 then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: correlation_id must be at most 255 characters, got ' || length(correlation_id);
    end if;
    if length(idempotency_key) not between 1 and 255 then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: idempotency_key must be 1 to 255 characters, got ' || length(idempotency_key);
    end if;
    if length(ordering_key) not between 1 and 255 then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: ordering_key must be 1 to 255 characters, got ' || length(ordering_key);
    end if;
    if priority is null or priority not between -9 and 9 then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: priority must be -9 to 9, got ' || coalesce(priority::text, 'null');
    end if;
    if not isfinite(due_at) then
        raise exception using errcode = '22023', message = '{{outbox:literal}}_enqueue: due_at must be a finite time';
    end if;
    if not isfinite(expires_at) then
        raise exception using errcode = '22023', message = '{{outbox:literal}}_enqueue: expires_at must be a finite time';
    end if;
    if due_in_seconds is not null and (due_at is not null or not (due_in_seconds >= 0 and due_in_seconds <= 1e11)) then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: due_in_seconds must be 0 to 100000000000, and not beside due_at, got ' || due_in_seconds;
    end if;
    if expires_in_seconds is not null and (expires_at is not null or not (expires_in_seconds >= 0 and expires_in_seconds <= 1e11)) then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_enqueue: expires_in_seconds must be 0 to 100000000000, and not beside expires_at, got ' || expires_in_seconds;
    end if;
    if jsonb_typeof(headers) <> 'object' then
        raise exception using errcode = '22023', message = '{{outbox:literal}}_enqueue: headers must be a JSON object, got ' || jsonb_typeof(headers);
    end if;

    -- Counted from here, so that the clock of the caller does not matter.
    due_at := coalesce(due_at, moment + make_interval(secs => due_in_seconds));
    expires_at := coalesce(expires_at, moment + make_interval(secs => expires_in_seconds));
    work_item_id := coalesce(work_item_id, "{{schema}}"."{{outbox}}_uuid7"());
    message_id := coalesce(message_id, "{{schema}}"."{{outbox}}_uuid7"());
    added := true;

    -- The insert waits for a concurrent caller with the same key, and then does nothing. The key it met can be gone again
    -- when it is read, through a purge: hence the loop.
    while idempotency_key is not null loop
        insert into "{{schema}}"."{{outbox}}_idempotency" (idempotency_key, work_item_id, message_id, created_at)
        values (idempotency_key, work_item_id, message_id, moment) on conflict do nothing;
        exit when found;
        select i.work_item_id, i.message_id into earlier
          from "{{schema}}"."{{outbox}}_idempotency" i where i.idempotency_key = "{{outbox}}_enqueue".idempotency_key;
        if found then
            work_item_id := earlier.work_item_id;
            message_id := earlier.message_id;
            added := false;
            return;
        end if;
    end loop;

    insert into "{{schema}}"."{{outbox}}" (
        id, message_id, topic, payload, correlation_id, created_at, due_at, requested_due_at, idempotency_key, ordering_key,
        priority, expires_at, headers, hold_on_failure)
    values (
        work_item_id, message_id, topic, payload, nullif(correlation_id, ''), moment,
        -- A due time in the past means now: it must not jump the queue, nor look like a message that waits since then.
        greatest(due_at, moment), due_at, idempotency_key, ordering_key,
        priority, expires_at, headers, coalesce(hold_on_failure, false));

    perform "{{schema}}"."{{outbox}}_wake"();
end
$mainstay$;
comment on function "{{schema}}"."{{outbox}}_enqueue"(
    text, text, text, timestamptz, text, text, integer, timestamptz, jsonb, boolean, uuid, uuid, double precision, double precision) is
    'Adds one item in the caller''s transaction and returns its ids. With an idempotency key that was used before: the existing ids, added = false. '
    'Items with the same ordering key are handled one at a time, in the order of enqueueing; with hold_on_failure a failed one holds the rest.';
