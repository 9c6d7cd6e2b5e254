-- Another due time for a timer that still waits.
--
-- The new place in the ready index keeps the rule of all that is put there (see floor): not before a reading of the clock that was
-- taken when the transaction had its xid and its lock on the table. Hence a time in the past means now.

create or replace function "{{schema}}"."{{timers}}_reschedule"(
    id uuid, due_at timestamptz default null, due_in_seconds double precision default null, actor text default null
) returns boolean
language plpgsql volatile
-- One lookup by id, whatever the statistics say: see settle.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    was timestamptz;
    became timestamptz;
begin
    if num_nonnulls($2, $3) <> 1 then
        raise exception using errcode = '22023', message = '{{timers:literal}}_reschedule: either due_at or due_in_seconds must be given, and not both';
    end if;
    if not isfinite($2) then
        raise exception using errcode = '22023', message = '{{timers:literal}}_reschedule: due_at must be a finite time';
    end if;
    if $3 not between 0 and 1e11 then
        raise exception using errcode = '22023',
            message = '{{timers:literal}}_reschedule: due_in_seconds must be 0 to 100000000000, got ' || $3;
    end if;
    if $4 is not null then
        select m.due_at into was from "{{schema}}"."{{timers}}" m where m.id = $1 and m.status = 0 for update;
    end if;
    update "{{schema}}"."{{timers}}" m
       set due_at = greatest(r.now, $2, r.now + make_interval(secs => $3)), requested_due_at = coalesce($2, r.now + make_interval(secs => $3))
      from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r
     where m.id = $1 and m.status = 0
    returning m.due_at into became;
    if not found then
        return false;
    end if;
    perform "{{schema}}"."{{timers}}_wake"();
    if $4 is not null then
        perform "{{schema}}"."{{audit}}_note"(
            'timers.reschedule', $4, jsonb_build_object('before', jsonb_build_object('due_at', was), 'after', jsonb_build_object('due_at', became)),
            array['timers'], array[$1::text]);
    end if;
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{timers}}_reschedule"(uuid, timestamptz, double precision, text) is
    'Gives a timer another due time, sooner or later. Returns false if it no longer waits: it has fired, is cancelled, is claimed, or never was. With an actor that is recorded in the audit trail.';
