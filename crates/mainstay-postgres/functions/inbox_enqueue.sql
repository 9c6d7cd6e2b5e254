-- Receiving messages into the queue. The entry is locked first, so that of several who bring the same message one comes after the other.

create or replace function "{{schema}}"."{{inbox}}_enqueue"(
    source text,
    message_id text,
    topic text,
    payload text,
    hash bytea default null,
    correlation_id text default null,
    due_at timestamptz default null,
    ordering_key text default null,
    priority integer default 0,
    expires_at timestamptz default null,
    headers jsonb default null,
    hold_on_failure boolean default false,
    due_in_seconds double precision default null,
    expires_in_seconds double precision default null,
    inout work_item_id uuid default null,
    item_message_id uuid default null,
    out outcome text,
    out hash_mismatch boolean
)
language plpgsql volatile
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    key constant bytea := "{{schema}}"."{{inbox}}_digest"($2);
    content constant bytea := coalesce($5, sha256(convert_to($4, 'UTF8')));
    item constant uuid := coalesce($15, "{{schema}}"."{{inbox}}_uuid7"());
    known constant jsonb := jsonb_build_object('mainstay-source', $1, 'mainstay-message-id', $2);
    moment timestamptz;
    was_state smallint;
    was_hash bytea;
    was_item uuid;
    was_until timestamptz;
    workable boolean;
    left_row record;
begin
    perform "{{schema}}"."{{inbox}}_check"('enqueue', $1, $2, $5);
    -- Null counts as valid where the argument is optional: the whole must not be false, and the required ones must be there.
    if (length($3) between 1 and 255 and $4 is not null and $9 between -9 and 9) is not true
       or (length($6) <= 255 and length($8) between 1 and 255 and isfinite($7) and isfinite($10) and jsonb_typeof($11) = 'object'
           and $13 between 0 and 1e11 and $14 between 0 and 1e11
           -- Reserved names. Two of them are set below, whatever they are here.
           and not $11 @? '$.keyvalue() ? (@.key starts with "mainstay-" && @.key != "mainstay-source" && @.key != "mainstay-message-id")'::jsonpath) is false
       or num_nonnulls($7, $13) = 2 or num_nonnulls($10, $14) = 2 then
        raise exception using errcode = '22023', message = '{{inbox:literal}}_enqueue: ' || case
            when $3 is null or length($3) not between 1 and 255 then 'topic must be 1 to 255 characters, got ' || coalesce(length($3)::text, 'null')
            when $4 is null then 'payload must not be null (an empty text is fine)'
            when $9 is null or $9 not between -9 and 9 then 'priority must be -9 to 9, got ' || coalesce($9::text, 'null')
            when length($6) > 255 then 'correlation_id must be at most 255 characters, got ' || length($6)
            when length($8) not between 1 and 255 then 'ordering_key must be 1 to 255 characters, got ' || length($8)
            when not isfinite($7) then 'due_at must be a finite time'
            when not isfinite($10) then 'expires_at must be a finite time'
            when jsonb_typeof($11) <> 'object' then 'headers must be a JSON object'
            when $11 @? '$.keyvalue() ? (@.key starts with "mainstay-" && @.key != "mainstay-source" && @.key != "mainstay-message-id")'::jsonpath
                then 'headers must not have names that begin with mainstay-, which Mainstay keeps to itself'
            when num_nonnulls($7, $13) = 2 or not $13 between 0 and 1e11 then 'due_in_seconds must be 0 to 100000000000, and not beside due_at'
            else 'expires_in_seconds must be 0 to 100000000000, and not beside expires_at'
        end;
    end if;

    loop
        moment := clock_timestamp();
        insert into "{{schema}}"."{{inbox}}_entry" as e (source, message_id, hash, first_seen_at, last_seen_at, work_item_id)
        values ($1, $2, content, moment, moment, item) on conflict (source, digest) do nothing;
        if found then
            outcome := 'added';
            exit;
        end if;
        -- A worker may still have what was marked as dead: his row first, as everywhere (see follow).
        perform from "{{schema}}"."{{inbox}}" q
         where q.id = (select e.work_item_id from "{{schema}}"."{{inbox}}_entry" e where e.source = $1 and e.digest = key and e.state = 3) for update;
        -- Whoever inserted it may have forgotten it again: hence the loop.
        select e.state, e.hash, e.work_item_id, e.locked_until into was_state, was_hash, was_item, was_until
          from "{{schema}}"."{{inbox}}_entry" e where e.source = $1 and e.digest = key for update;
        exit when found;
    end loop;
    hash_mismatch := outcome is null and coalesce(was_hash <> content, false);

    if outcome is null then
        moment := clock_timestamp();
        work_item_id := was_item;
        if was_state = 2 then
            outcome := 'done';
            update "{{schema}}"."{{inbox}}_entry" e set last_seen_at = moment where e.source = $1 and e.digest = key;
            return;
        end if;
        -- Never waited for: see follow.
        if was_state < 2 then
            workable := "{{schema}}"."{{inbox}}_grasp"(was_item);
        end if;
        if not workable then
            outcome := 'in-progress';
            update "{{schema}}"."{{inbox}}_entry" e set last_seen_at = moment where e.source = $1 and e.digest = key;
            return;
        end if;
        if workable then
            outcome := 'replaced';
            update "{{schema}}"."{{inbox}}_entry" e set last_seen_at = moment, hash = content where e.source = $1 and e.digest = key;
            update "{{schema}}"."{{inbox}}" m
               set topic = $3, payload = $4, correlation_id = nullif($6, ''), headers = coalesce($11, '{}') || known,
                   expires_at = coalesce($10, moment + make_interval(secs => $14)),
                   requested_due_at = coalesce($7, moment + make_interval(secs => $13)),
                   -- Not before a reading of the clock that was taken after the transaction had its xid: see floor. What has been delivered
                   -- before waits for its next attempt all the same, so that duplicates do not wear it out.
                   due_at = greatest(case when pg_current_xact_id() is not null then clock_timestamp() end, $7, moment + make_interval(secs => $13),
                                     was_until, case when m.generation > 0 then m.due_at end)
             where m.id = was_item;
            perform "{{schema}}"."{{inbox}}_wake"();
            return;
        end if;
        outcome := case was_state when 3 then 'revived' else 'added' end;
        if was_state = 3 then
            -- It may have been marked while a worker had it: whoever has it finds that it is gone, at his next renewal at the latest. Until then
            -- he may be at it, so neither it nor what stands behind it in its ordering key is claimed before his claim would have lapsed.
            delete from "{{schema}}"."{{inbox}}" q where q.id = was_item returning q.ordering_key, q.locked_until into left_row;
            was_until := case when left_row.locked_until > moment then left_row.locked_until end;
            if left_row.ordering_key is not null then
                perform "{{schema}}"."{{inbox}}_postpone"(h.id, was_until)
                   from (select q.id from "{{schema}}"."{{inbox}}" q where q.ordering_key = left_row.ordering_key order by q.seq limit 1) h
                  where "{{schema}}"."{{inbox}}_grasp"(h.id);
                perform "{{schema}}"."{{inbox}}_advance"(array[left_row.ordering_key]);
            end if;
            delete from "{{schema}}"."{{inbox}}_history" h where h.id = was_item;
        end if;
        update "{{schema}}"."{{inbox}}_entry" e
           set last_seen_at = moment, hash = content, work_item_id = item, processed_at = null,
               state = case when e.state < 3 then e.state when was_until is null then 0 else 1 end, locked_until = was_until,
               attempts = case e.state when 3 then 0 else e.attempts end
         where e.source = $1 and e.digest = key;
    end if;

    work_item_id := item;
    insert into "{{schema}}"."{{inbox}}" (
        id, message_id, topic, payload, correlation_id, created_at, due_at, requested_due_at, ordering_key, priority, expires_at, headers, hold_on_failure)
    select item, coalesce($16, "{{schema}}"."{{inbox}}_uuid7"()), $3, $4, nullif($6, ''), r.now,
           -- Not before the end of a reservation: should its holder die, workers take over.
           greatest($7, r.now + make_interval(secs => $13), r.now, was_until), coalesce($7, r.now + make_interval(secs => $13)), $8, $9,
           coalesce($10, r.now + make_interval(secs => $14)), coalesce($11, '{}') || known, coalesce($12, false)
      from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r;
    perform "{{schema}}"."{{inbox}}_wake"();
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_enqueue"(
    text, text, text, text, bytea, text, timestamptz, text, integer, timestamptz, jsonb, boolean, double precision, double precision, uuid, uuid) is
    'Puts a received message into the queue, in the caller''s transaction. outcome added: it is there now. replaced: it was waiting there; topic, payload, hash, due time, expiry, '
    'correlation id and headers are the new ones. revived: it was dead, and is there as if new; a worker who still had it finds that it is gone, and until his claim would have lapsed nobody else gets it. in-progress: a worker has it, done: it is done; nothing but the time it was last seen has changed. '
    'The hash is that of the payload unless given; one that differs from the last is reported.';

create or replace function "{{schema}}"."{{inbox}}_enqueue_many"(
    sources text[],
    message_ids text[],
    topics text[],
    payloads text[],
    hashes bytea[] default null,
    correlation_ids text[] default null,
    due_ats timestamptz[] default null,
    ordering_keys text[] default null,
    priorities smallint[] default null,
    expires_ats timestamptz[] default null,
    headers text[] default null,
    holds boolean[] default null,
    due_in_seconds double precision[] default null,
    expires_in_seconds double precision[] default null,
    work_item_ids uuid[] default null,
    item_message_ids uuid[] default null
) returns table (ordinal integer, work_item_id uuid, outcome text, hash_mismatch boolean)
language plpgsql volatile
set jit = off
as $mainstay$
#variable_conflict use_column
declare
    size constant integer := coalesce(cardinality(topics), 0);
    fault record;
    item record;
    result record;
begin
    if topics is null then
        raise exception using errcode = '22023', message = '{{inbox:literal}}_enqueue_many: topics must not be null';
    end if;
    -- Shorter arrays would be padded with nulls by unnest, and data would move to the wrong item without a sound.
    for fault in
        select a.name, a.length from (values
            ('sources', coalesce(cardinality(sources), -1)), ('message_ids', coalesce(cardinality(message_ids), -1)), ('payloads', coalesce(cardinality(payloads), -1)),
            ('hashes', cardinality(hashes)), ('correlation_ids', cardinality(correlation_ids)), ('due_ats', cardinality(due_ats)),
            ('ordering_keys', cardinality(ordering_keys)), ('priorities', cardinality(priorities)), ('expires_ats', cardinality(expires_ats)),
            ('headers', cardinality(headers)), ('holds', cardinality(holds)), ('due_in_seconds', cardinality(due_in_seconds)),
            ('expires_in_seconds', cardinality(expires_in_seconds)), ('work_item_ids', cardinality(work_item_ids)),
            ('item_message_ids', cardinality(item_message_ids))) a(name, length)
         where a.length <> size
    loop
        raise exception using errcode = '22023', message = '{{inbox:literal}}_enqueue_many: ' || fault.name
            || ' must have as many elements as topics (' || size || '), got ' || case fault.length when -1 then 'null' else fault.length::text end;
    end loop;
    -- What a worker still has though it was marked as dead, and then those that are known, in the order of their keys: locks go from the queue to the
    -- ledger, and two callers with the same messages wait for each other in one order.
    perform from "{{schema}}"."{{inbox}}" q
     where q.id = any (array(
           select e.work_item_id from "{{schema}}"."{{inbox}}_entry" e
            where e.state = 3 and (e.source, e.digest) in (select u.source, "{{schema}}"."{{inbox}}_digest"(u.message_id) from unnest(sources, message_ids) u(source, message_id))))
     order by q.id for update;
    perform from "{{schema}}"."{{inbox}}_entry" e
     where (e.source, e.digest) in (select u.source, "{{schema}}"."{{inbox}}_digest"(u.message_id) from unnest(sources, message_ids) u(source, message_id))
     order by e.source, e.digest for update;
    for item in
        select u.* from unnest(sources, message_ids, topics, payloads, hashes, correlation_ids, due_ats, ordering_keys, priorities, expires_ats, headers, holds,
                               due_in_seconds, expires_in_seconds, work_item_ids, item_message_ids) with ordinality
            as u(source, message_id, topic, payload, hash, correlation, due, lane, priority, expiry, header, hold, due_in, expires_in, item, item_message, n)
    loop
        select e.* into result from "{{schema}}"."{{inbox}}_enqueue"(
            item.source, item.message_id, item.topic, item.payload, item.hash, item.correlation, item.due, item.lane, coalesce(item.priority, 0), item.expiry,
            item.header::jsonb, item.hold, item.due_in, item.expires_in, item.item, item.item_message) e;
        ordinal := item.n;
        work_item_id := result.work_item_id;
        outcome := result.outcome;
        hash_mismatch := result.hash_mismatch;
        return next;
    end loop;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_enqueue_many"(
    text[], text[], text[], text[], bytea[], text[], timestamptz[], text[], smallint[], timestamptz[], text[], boolean[], double precision[], double precision[], uuid[], uuid[]) is
    'Puts many received messages into the queue, in the caller''s transaction and in the order of the arrays, and returns one row for each. '
    'A null array means that no message has it; otherwise it has as many elements as topics. Same rules as for one message.';
