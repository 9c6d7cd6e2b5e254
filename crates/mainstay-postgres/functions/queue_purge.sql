-- Retention, one batch per call: many short transactions instead of one long one.

create or replace function "{{schema}}"."{{queue}}_purge"(
    done_older_than_seconds double precision, failed_older_than_seconds double precision default null, max_rows integer default 1000,
    actor text default null
) returns integer
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    limits double precision[] := array[done_older_than_seconds, failed_older_than_seconds];
    names constant text[] := '{done_older_than_seconds,failed_older_than_seconds}';
    purged integer := 0;
    removed integer;
    doomed tid[];
    keys text[];
begin
    for i in 1 .. 2 loop
        if not (limits[i] >= 0 and limits[i] <= 1e10) then
            raise exception using errcode = '22023',
                message = '{{queue:literal}}_purge: ' || names[i] || ' must be 0 to 10000000000, or null to keep them, got ' || limits[i];
        end if;
    end loop;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023', message = '{{queue:literal}}_purge: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;

    -- First the done (status 2), then the failed (status 3).
    for i in 1 .. 2 loop
        continue when limits[i] is null or purged >= max_rows;
        doomed := array(select h.ctid from "{{schema}}"."{{queue}}_history" h
                         where h.status = i + 1 and h.processed_at <= moment - make_interval(secs => limits[i])
                         order by h.processed_at limit max_rows - purged for update skip locked);
        with gone as (
            delete from "{{schema}}"."{{queue}}_history" h where h.ctid = any (doomed) returning h.idempotency_key)
        select count(*), array_agg(g.idempotency_key) filter (where g.idempotency_key is not null) into removed, keys from gone g;
        if keys is not null then
            delete from "{{schema}}"."{{queue}}_idempotency" k where k.idempotency_key = any (keys);
        end if;
        purged := purged + removed;
    end loop;
    -- Consumers that died asleep.
    delete from "{{schema}}"."{{queue}}_waiter" w where w.until < moment - interval '1 hour';
    if actor is not null and purged > 0 then
        perform "{{schema}}"."{{audit}}_note"('{{queue:kind}}.purge', actor, jsonb_build_object(
            'count', purged, 'older_than_seconds', floor(limits[1]), 'failed_older_than_seconds', floor(limits[2])));
    end if;
    return purged;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_purge"(double precision, double precision, integer, text) is
    'Deletes up to max_rows of the oldest settled items older than so many seconds, with their idempotency keys; null keeps that kind. Open items are never touched. Call until it returns less than max_rows. With an actor that is recorded in the audit trail.';
