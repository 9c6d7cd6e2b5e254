-- Asking about messages and marking them by hand. None of it keeps two callers from handling a message at the same time: begin does.

create or replace function "{{schema}}"."{{inbox}}_digest"(message_id text) returns bytea
language sql immutable parallel safe
as $mainstay$
    select sha256(replace($1, chr(92), chr(92) || chr(92))::bytea)
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_digest"(text) is 'Internal: what stands for a message id in the key.';

create or replace function "{{schema}}"."{{inbox}}_check"(caller text, source text, message_id text, hash bytea default null, lease_seconds double precision default 30)
returns void
language plpgsql immutable
as $mainstay$
begin
    if (length(source) between 1 and 255 and length(message_id) between 1 and 512 and btrim(source, E' \t\r\n') <> '' and btrim(message_id, E' \t\r\n') <> ''
        and lease_seconds > 0 and lease_seconds <= 1e9) is not true or octet_length(hash) <> 32 then
        raise exception using errcode = '22023', message = '{{inbox:literal}}_' || caller || ': ' || case
            when source is null or length(source) not between 1 and 255 then 'source must be 1 to 255 characters, got ' || coalesce(length(source)::text, 'null')
            when btrim(source, E' \t\r\n') = '' then 'source must not be blank'
            when message_id is null or length(message_id) not between 1 and 512
                then 'message_id must be 1 to 512 characters, got ' || coalesce(length(message_id)::text, 'null')
            when btrim(message_id, E' \t\r\n') = '' then 'message_id must not be blank'
            when octet_length(hash) <> 32 then 'hash must be 32 bytes, the SHA-256 of the content, got ' || octet_length(hash)
            else 'lease_seconds must be more than 0 and at most 1000000000, got ' || coalesce(lease_seconds::text, 'null')
        end;
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_check"(text, text, text, bytea, double precision) is 'Internal: refuses a key, a hash or a lease out of bounds.';

create or replace function "{{schema}}"."{{inbox}}_already_processed"(
    source text, message_id text, hash bytea default null, out processed boolean, out hash_mismatch boolean
)
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    perform "{{schema}}"."{{inbox}}_check"('already_processed', $1, $2, $3);
    insert into "{{schema}}"."{{inbox}}_entry" as e (source, message_id, hash, first_seen_at, last_seen_at)
    -- One reading for both.
    select $1, $2, $3, r.now, r.now from (select clock_timestamp() as now offset 0) r
    on conflict (source, digest) do update set last_seen_at = greatest(e.last_seen_at, excluded.last_seen_at), hash = coalesce(e.hash, excluded.hash)
    returning e.state = 2, coalesce(e.hash <> $3, false) into processed, hash_mismatch;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_already_processed"(text, text, bytea) is
    'Whether a message is done. Notes it as seen if it is not known, and when it was last seen in any case; that is no attempt. '
    'A hash other than the first one is reported and not stored.';

create or replace function "{{schema}}"."{{inbox}}_mark_processing_item"(source text, message_id text, lease_seconds double precision) returns boolean
language plpgsql volatile
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    key constant bytea := "{{schema}}"."{{inbox}}_digest"($2);
    moment timestamptz;
    was record;
begin
    perform "{{schema}}"."{{inbox}}_check"('mark_processing', $1, $2, lease_seconds => $3);
    loop
        moment := clock_timestamp();
        insert into "{{schema}}"."{{inbox}}_entry" as e (source, message_id, first_seen_at, last_seen_at, state, locked_until, generation, attempts)
        values ($1, $2, moment, moment, 1, moment + make_interval(secs => lease_seconds), 1, 1) on conflict (source, digest) do nothing;
        if found then
            return true;
        end if;
        -- Whoever inserted it may have forgotten it again: hence the loop.
        select e.state, e.owner, e.locked_until, e.work_item_id into was
          from "{{schema}}"."{{inbox}}_entry" e where e.source = $1 and e.digest = key for update;
        exit when found;
    end loop;
    moment := clock_timestamp();
    if was.state >= 2 or was.state = 1 and was.owner is not null and was.locked_until > moment then
        update "{{schema}}"."{{inbox}}_entry" e set last_seen_at = moment where e.source = $1 and e.digest = key;
        return false;
    end if;
    update "{{schema}}"."{{inbox}}_entry" e
       set state = 1, owner = null, locked_until = moment + make_interval(secs => lease_seconds), generation = e.generation + 1,
           attempts = e.attempts + 1, last_seen_at = moment
     where e.source = $1 and e.digest = key;
    perform "{{schema}}"."{{inbox}}_postpone"(was.work_item_id, moment + make_interval(secs => lease_seconds));
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_mark_processing_item"(text, text, double precision) is 'Internal: the same as mark_processing, without a record.';

create or replace function "{{schema}}"."{{inbox}}_mark_processing"(
    source text, message_id text, lease_seconds double precision default 30, actor text default null
) returns boolean
language plpgsql volatile
as $mainstay$
declare
    was constant text := "{{schema}}"."{{inbox}}_state"($1, $2, $4);
    changed constant boolean := "{{schema}}"."{{inbox}}_mark_processing_item"($1, $2, $3);
begin
    perform "{{schema}}"."{{inbox}}_note_mark"('mark_processing', $4, $1, $2, was, changed);
    return changed;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_mark_processing"(text, text, double precision, text) is
    'Says that somebody is at a message, for lease_seconds; counts an attempt. False when it is done, dead, or reserved by a guard. With an actor that is recorded in the audit trail.';

create or replace function "{{schema}}"."{{inbox}}_state"(source text, message_id text, actor text) returns text
language sql volatile
as $mainstay$
    select case when $3 is not null then
        (select ('{seen,processing,done,dead}'::text[])[e.state + 1] from "{{schema}}"."{{inbox}}_entry" e
          where e.source = $1 and e.digest = "{{schema}}"."{{inbox}}_digest"($2) for update) end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_state"(text, text, text) is 'Internal: where a message stands in the ledger, for a record; locks it. Null without an actor.';

create or replace function "{{schema}}"."{{inbox}}_note_mark"(verb text, actor text, source text, message_id text, was text, changed boolean) returns void
language plpgsql volatile
as $mainstay$
begin
    if actor is not null and changed then
        perform "{{schema}}"."{{audit}}_note"(
            'inbox.' || verb, actor, jsonb_build_object(
                'before', jsonb_build_object('state', was), 'after', jsonb_build_object('state', "{{schema}}"."{{inbox}}_state"(source, message_id, actor))),
            array['inbox', 'source'], array[message_id, source]);
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_note_mark"(text, text, text, text, text, boolean) is 'Internal: records that a message was marked, if it was and there is an actor.';

create or replace function "{{schema}}"."{{inbox}}_postpone"(work_item_id uuid, until timestamptz) returns void
language plpgsql volatile
as $mainstay$
begin
    -- Later than it was, and not before a reading of the clock that was taken after the transaction had its xid: see floor.
    if work_item_id is not null then
        update "{{schema}}"."{{inbox}}" q
           set due_at = greatest(q.due_at, until, case when pg_current_xact_id() is not null then clock_timestamp() end)
         where q.ctid = any (array(select m.ctid from "{{schema}}"."{{inbox}}" m where m.id = work_item_id and m.status = 0 and m.due_at < until
                                      for update skip locked));
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_postpone"(uuid, timestamptz) is 'Internal: keeps workers off an item that somebody has reserved.';

create or replace function "{{schema}}"."{{inbox}}_mark_settled"(source text, message_id text, state smallint, error text) returns boolean
language plpgsql volatile
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    key constant bytea := "{{schema}}"."{{inbox}}_digest"($2);
    reason constant text := nullif(left($4, 2048), '');
    moment timestamptz;
    was record;
begin
    loop
        moment := clock_timestamp();
        insert into "{{schema}}"."{{inbox}}_entry" as e (source, message_id, first_seen_at, last_seen_at, state, processed_at, last_error)
        values ($1, $2, moment, moment, $3, moment, reason) on conflict (source, digest) do nothing;
        if found then
            return true;
        end if;
        select e.state, e.work_item_id into was from "{{schema}}"."{{inbox}}_entry" e where e.source = $1 and e.digest = key for update;
        exit when found;
    end loop;
    moment := clock_timestamp();
    if was.state = 2 or was.state = $3 then
        update "{{schema}}"."{{inbox}}_entry" e
           set last_seen_at = moment, last_error = case when e.state = 3 then coalesce(reason, e.last_error) else e.last_error end
         where e.source = $1 and e.digest = key;
        return false;
    end if;
    update "{{schema}}"."{{inbox}}_entry" e
       set state = $3, processed_at = moment, last_seen_at = moment, owner = null, locked_until = null, last_error = coalesce(reason, e.last_error)
     where e.source = $1 and e.digest = key;
    if was.work_item_id is not null then
        perform "{{schema}}"."{{inbox}}_withdraw"(was.work_item_id, $3, reason);
        if was.state = 3 then
            -- Done after all: it must not be requeued.
            update "{{schema}}"."{{inbox}}_history" h set status = 2, reason = null where h.id = was.work_item_id and h.status = 3;
        end if;
    end if;
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_mark_settled"(text, text, smallint, text) is 'Internal: marks a message as done (2) or dead (3).';

create or replace function "{{schema}}"."{{inbox}}_mark_processed"(source text, message_id text, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
declare
    was text;
    changed boolean;
begin
    perform "{{schema}}"."{{inbox}}_check"('mark_processed', $1, $2);
    was := "{{schema}}"."{{inbox}}_state"($1, $2, $3);
    changed := "{{schema}}"."{{inbox}}_mark_settled"($1, $2, 2::smallint, null);
    perform "{{schema}}"."{{inbox}}_note_mark"('mark_processed', $3, $1, $2, was, changed);
    return changed;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_mark_processed"(text, text, text) is
    'Says that a message is done, whoever is at it, and takes it out of the queue unless a worker has it. False when it was done already. With an actor that is recorded in the audit trail.';

create or replace function "{{schema}}"."{{inbox}}_mark_dead"(source text, message_id text, error text default null, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
declare
    was text;
    changed boolean;
begin
    perform "{{schema}}"."{{inbox}}_check"('mark_dead', $1, $2);
    was := "{{schema}}"."{{inbox}}_state"($1, $2, $4);
    changed := "{{schema}}"."{{inbox}}_mark_settled"($1, $2, 3::smallint, $3);
    perform "{{schema}}"."{{inbox}}_note_mark"('mark_dead', $4, $1, $2, was, changed);
    return changed;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_mark_dead"(text, text, text, text) is
    'Gives a message up, whoever is at it, and takes it out of the queue unless a worker has it. False when it was dead already, or is done. Error texts are cut to 2048 characters. With an actor that is recorded in the audit trail.';
