-- Reserving a message while it is handled. Of any number of callers at once exactly one gets it; if that one dies, his reservation lapses
-- and the next caller gets it. What he does at the end compares owner and generation, so it changes nothing once somebody else has it.

create or replace function "{{schema}}"."{{inbox}}_begin"(
    source text, message_id text, owner uuid, lease_seconds double precision default 30, hash bytea default null,
    out outcome text, out generation bigint, out attempt integer, out until timestamptz, out hash_mismatch boolean, out asked_at timestamptz
)
language plpgsql volatile
set lock_timeout = '4s'
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    key constant bytea := "{{schema}}"."{{inbox}}_digest"($2);
    was record;
    work record;
begin
    perform "{{schema}}"."{{inbox}}_check"('begin', $1, $2, $5, $4);
    if $3 is null or $3 = '00000000-0000-0000-0000-000000000000' then
        raise exception using errcode = '22023', message = '{{inbox:literal}}_begin: owner must not be null or nil';
    end if;
    hash_mismatch := false;
    loop
        asked_at := clock_timestamp();
        insert into "{{schema}}"."{{inbox}}_entry" as e (
               source, message_id, hash, first_seen_at, last_seen_at, state, owner, locked_until, generation, attempts)
        values ($1, $2, $5, asked_at, asked_at, 1, $3, asked_at + make_interval(secs => $4), 1, 1) on conflict (source, digest) do nothing
        returning 'new', e.generation, e.attempts, e.locked_until into outcome, generation, attempt, until;
        if found then
            return;
        end if;
        -- Whoever inserted it may have forgotten it again: hence the loop.
        select e.state, e.locked_until, e.hash, e.work_item_id into was
          from "{{schema}}"."{{inbox}}_entry" e where e.source = $1 and e.digest = key for update;
        exit when found;
    end loop;
    asked_at := clock_timestamp();
    hash_mismatch := coalesce(was.hash <> $5, false);
    select q.status, q.due_at, q.locked_until into work from "{{schema}}"."{{inbox}}" q where q.id = was.work_item_id;
    if was.state >= 2 then
        outcome := case was.state when 2 then 'done' else 'dead' end;
    elsif work.status is not null then
        -- The queue has it: workers do.
        outcome := 'busy';
        until := greatest(asked_at, case work.status when 1 then work.locked_until else work.due_at end, was.locked_until);
    elsif was.state = 1 and was.locked_until > asked_at then
        outcome := 'busy';
        until := was.locked_until;
    else
        update "{{schema}}"."{{inbox}}_entry" e
           set state = 1, owner = $3, locked_until = asked_at + make_interval(secs => $4), generation = e.generation + 1, attempts = e.attempts + 1,
               last_seen_at = asked_at, hash = coalesce(e.hash, $5)
         where e.source = $1 and e.digest = key
        returning 'new', e.generation, e.attempts, e.locked_until into outcome, generation, attempt, until;
        return;
    end if;
    update "{{schema}}"."{{inbox}}_entry" e set last_seen_at = asked_at, hash = coalesce(e.hash, $5) where e.source = $1 and e.digest = key;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_begin"(text, text, uuid, double precision, bytea) is
    'Reserves a message for an owner. outcome new: it is the caller''s until then, unless renewed; give owner and generation to the guard functions. '
    'busy: somebody else has it, or the queue, until then at least. done, dead: there is nothing to do. Use another owner for every call.';

create or replace function "{{schema}}"."{{inbox}}_guard_end"(
    source text, message_id text, owner uuid, generation bigint, ending smallint, error text
) returns boolean
language plpgsql volatile
set lock_timeout = '4s'
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    key constant bytea := "{{schema}}"."{{inbox}}_digest"($2);
    reason constant text := nullif(left($6, 2048), '');
    moment constant timestamptz := clock_timestamp();
    item uuid;
begin
    select e.work_item_id into item from "{{schema}}"."{{inbox}}_entry" e
     where e.source = $1 and e.digest = key and e.state = 1 and e.owner = $3 and e.generation = $4 for update;
    -- Also once it has lapsed, if nobody has taken it: but a worker may have, or be about to.
    if not found or not coalesce("{{schema}}"."{{inbox}}_grasp"(item), true) then
        return false;
    end if;
    update "{{schema}}"."{{inbox}}_entry" e
       set state = $5, processed_at = case when $5 > 0 then moment end, owner = null, locked_until = null,
           -- What was given back without an error was no attempt.
           attempts = e.attempts - case when $5 = 0 and reason is null then 1 else 0 end, last_error = coalesce(reason, e.last_error)
     where e.source = $1 and e.digest = key;
    if item is not null and $5 > 0 then
        perform "{{schema}}"."{{inbox}}_withdraw"(item, $5, reason);
    elsif item is not null then
        -- It was kept from the workers until the reservation's end.
        update "{{schema}}"."{{inbox}}" q
           set due_at = greatest(case when pg_current_xact_id() is not null then clock_timestamp() end, q.requested_due_at)
         where q.ctid = any (array(select m.ctid from "{{schema}}"."{{inbox}}" m
                                    where m.id = item and m.status = 0 and m.generation = 0 for update skip locked));
        perform "{{schema}}"."{{inbox}}_wake"();
    end if;
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_guard_end"(text, text, uuid, bigint, smallint, text) is
    'Internal: ends a reservation as given back (0), done (2) or dead (3). Returns whether it held.';

create or replace function "{{schema}}"."{{inbox}}_guard_complete"(source text, message_id text, owner uuid, generation bigint) returns boolean
language sql volatile
as $mainstay$
    select "{{schema}}"."{{inbox}}_guard_end"($1, $2, $3, $4, 2::smallint, null)
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_guard_complete"(text, text, uuid, bigint) is
    'A reserved message is done. In the transaction that has its effects, both are committed together. False when the reservation no longer holds: then roll back.';

create or replace function "{{schema}}"."{{inbox}}_guard_fail"(source text, message_id text, owner uuid, generation bigint, error text default null) returns boolean
language sql volatile
as $mainstay$
    select "{{schema}}"."{{inbox}}_guard_end"($1, $2, $3, $4, 3::smallint, $5)
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_guard_fail"(text, text, uuid, bigint, text) is
    'A reserved message is given up: it is dead. False when the reservation no longer holds.';

create or replace function "{{schema}}"."{{inbox}}_guard_release"(source text, message_id text, owner uuid, generation bigint, error text default null) returns boolean
language sql volatile
as $mainstay$
    select "{{schema}}"."{{inbox}}_guard_end"($1, $2, $3, $4, 0::smallint, $5)
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_guard_release"(text, text, uuid, bigint, text) is
    'A reserved message is given back, so that the next caller gets it at once. With an error the attempt counts, without one it does not. False when the reservation no longer holds.';

create or replace function "{{schema}}"."{{inbox}}_guard_renew"(
    source text, message_id text, owner uuid, generation bigint, lease_seconds double precision default 30
) returns timestamptz
language plpgsql volatile
set lock_timeout = '4s'
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    key constant bytea := "{{schema}}"."{{inbox}}_digest"($2);
    until timestamptz;
    item uuid;
begin
    if lease_seconds is null or not (lease_seconds > 0 and lease_seconds <= 1e9) then
        raise exception using errcode = '22023',
            message = '{{inbox:literal}}_guard_renew: lease_seconds must be more than 0 and at most 1000000000, got ' || coalesce(lease_seconds::text, 'null');
    end if;
    select e.work_item_id into item from "{{schema}}"."{{inbox}}_entry" e
     where e.source = $1 and e.digest = key and e.state = 1 and e.owner = $3 and e.generation = $4 for update;
    -- As in guard_end.
    if not found or not coalesce("{{schema}}"."{{inbox}}_grasp"(item), true) then
        return null;
    end if;
    update "{{schema}}"."{{inbox}}_entry" e set locked_until = clock_timestamp() + make_interval(secs => lease_seconds)
     where e.source = $1 and e.digest = key
    returning e.locked_until into until;
    perform "{{schema}}"."{{inbox}}_postpone"(item, until);
    return until;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_guard_renew"(text, text, uuid, bigint, double precision) is
    'Extends a reservation to lease_seconds from now, and returns until when that is. Null when it no longer holds: then stop.';
