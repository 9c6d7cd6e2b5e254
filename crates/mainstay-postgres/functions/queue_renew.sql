-- Keeping a claim while its handler runs.

create or replace function "{{schema}}"."{{queue}}_renew"(
    owner uuid, ids uuid[], generations bigint[] default null, lease_seconds double precision default 30
) returns table (id uuid, extended boolean)
language plpgsql volatile
-- For the settings see settle.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    spots tid[];
    began timestamptz;
begin
    if $1 is null or $1 = '00000000-0000-0000-0000-000000000000' then
        raise exception using errcode = '22023', message = '{{queue:literal}}_renew: owner must not be null or nil';
    end if;
    if ids is null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_renew: ids must not be null';
    end if;
    if cardinality(generations) <> cardinality(ids) then
        raise exception using errcode = '22023', message = '{{queue:literal}}_renew: generations must have as many elements as ids ('
            || cardinality(ids) || '), got ' || cardinality(generations);
    end if;
    if lease_seconds is null or not (lease_seconds > 0 and lease_seconds <= 1e9) then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_renew: lease_seconds must be more than 0 and at most 1000000000, got ' || coalesce(lease_seconds::text, 'null');
    end if;

    -- What somebody else is changing is not waited for: most likely its handler is ending it, in a transaction that may take a while,
    -- and every other renewal of the call would wait for that. It counts as held, but not as extended, as long as its lease has not
    -- lapsed; once it has, it is being taken over. A claim that only looks at the head of a lane is not in the way: hence no key update.
    spots := array(
        select m.ctid
          from (select distinct u.id, u.generation from unnest(ids, generations) u(id, generation)) a join "{{schema}}"."{{queue}}" m on m.id = a.id
         where m.owner = $1 and m.status = 1 and (generations is null or m.generation = a.generation)
           -- A lapsed claim that nobody took over is still good. Not so with an ordering key: another item of the key may have
           -- been started on the strength of the lapse, and this one would run beside it. (The claim of that other item ends this one,
           -- see take: nothing hangs on how exact the clock is.)
           and (m.ordering_key is null or m.locked_until > clock_timestamp())
           for no key update of m skip locked);
    began := clock_timestamp();
    -- The clock as it is now and not when the statement began: it may have waited for long, for a lock on the table or for the processor.
    update "{{schema}}"."{{queue}}" m set locked_until = clock_timestamp() + make_interval(secs => lease_seconds)
     where m.ctid = any (spots) and (m.ordering_key is null or m.locked_until > clock_timestamp());
    return query
    select m.id, m.locked_until >= began + make_interval(secs => lease_seconds)
      from (select distinct u.id, u.generation from unnest(ids, generations) u(id, generation)) a join "{{schema}}"."{{queue}}" m on m.id = a.id
     where m.owner = $1 and m.status = 1 and (generations is null or m.generation = a.generation) and m.locked_until > clock_timestamp();
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_renew"(uuid, uuid[], bigint[], double precision) is
    'Extends claims to lease_seconds from now. Returns the ids still held, and whether each was extended: one that another transaction has '
    'locked keeps the lease it has. The claim of any other id is lost and its handler must stop.';
