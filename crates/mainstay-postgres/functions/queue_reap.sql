-- Tidying up after crashed workers. Claims take lapsed items by themselves; this makes them visible as ready.
-- They stay where they are in the ready index. Also mends what can only be wrong if somebody changed rows by hand.

create or replace function "{{schema}}"."{{queue}}_reap_expired"(max_rows integer default 1000) returns integer
language plpgsql volatile
set jit = off
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    lapsed tid[];
    reaped integer;
    stuck_keys text[];
begin
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_reap_expired: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    -- In two steps, for the reason given in advance(); the first has locked them, so they cannot change in between.
    lapsed := array(select q.ctid from "{{schema}}"."{{queue}}" q
                     where q.status = 1 and q.locked_until <= moment limit max_rows for update skip locked);
    update "{{schema}}"."{{queue}}" m set status = 0, owner = null, locked_until = null where m.ctid = any (lapsed);
    get diagnostics reaped = row_count;

    -- Lanes in which everything is parked though nothing holds them: someone deleted rows by hand, or settled under an
    -- isolation level that cannot see what was parked meanwhile. One probe for each key that has parked items.
    with recursive parked_key(key) as (
        (select q.ordering_key from "{{schema}}"."{{queue}}" q where q.parked order by q.ordering_key limit 1)
        union all
        select (select q.ordering_key from "{{schema}}"."{{queue}}" q where q.parked and q.ordering_key > k.key order by q.ordering_key limit 1)
          from parked_key k where k.key is not null)
    select array_agg(k.key) into stuck_keys from parked_key k
     where k.key is not null
       and (select true from "{{schema}}"."{{queue}}" q where q.ordering_key = k.key and not q.parked order by q.seq limit 1) is null
       and (select true from "{{schema}}"."{{queue}}_hold" h where h.ordering_key = k.key) is null;
    if stuck_keys is not null then
        perform "{{schema}}"."{{queue}}_advance"(stuck_keys);
    end if;
    perform "{{schema}}"."{{queue}}_sweep"('30 seconds');
    if reaped > 0 then
        perform "{{schema}}"."{{queue}}_wake"();
    end if;
    return reaped;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_reap_expired"(integer) is
    'Makes up to max_rows items with a lapsed lease ready again, at once; the lapsed delivery stays counted. Returns how many.';
