-- Ordering keys. A claim that meets an item which has to wait for its turn parks it, so that the next claims do not walk it
-- again; without that, one key with a long backlog would make every claim as slow as that backlog is long.
--
-- Nothing may stay parked for ever. The rule: whoever takes an item out of a lane, or releases a held key, unparks the first
-- parked item of that lane in a later statement of the same transaction. And whoever parks holds a lock on the item (or the
-- hold) that it parks behind, so that the one who removes it comes after, and sees what was parked. Unparking too much is
-- harmless, order is checked again at each claim. Reap repairs lanes that were changed by hand.

create or replace function "{{schema}}"."{{queue}}_advance"(ordering_keys text[]) returns void
language plpgsql volatile
-- All of them, because the settings of a caller hold in here as well.
set jit = off set enable_indexscan = on set enable_indexonlyscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    first_parked tid[];
    waiting boolean;
begin
    -- By key, so that two callers that touch the same lanes wait for each other in the same order. In two steps and by tuple id:
    -- joined in one, a plan made for an empty table walks everything that is parked once for each key.
    first_parked := array(
        select p.ctid
          from (select distinct u.key from unnest(ordering_keys) u(key) where u.key is not null order by u.key) k
          cross join lateral (select q.ctid from "{{schema}}"."{{queue}}" q
                               where q.parked and q.ordering_key = k.key order by q.seq limit 1) p);
    if first_parked <> '{}' then
        -- It comes back where it was before, unless the next floor lies there already: then just beyond that (see floor, rule b). The
        -- newest row of floors tells, read with this statement's snapshot; with an older one only the clock is sure.
        perform pg_current_xact_id();
        with next as materialized (
            select u.level, u.due, u.seq
              from (select f.* from "{{schema}}"."{{queue}}_floor" f order by f.n desc limit 1) f
             cross join unnest(f.levels, f.next_due_ats, f.next_seqs) u(level, due, seq)
             where current_setting('transaction_isolation') = 'read committed')
        update "{{schema}}"."{{queue}}" m
           set parked = false,
               due_at = case when current_setting('transaction_isolation') <> 'read committed' then greatest(m.due_at, clock_timestamp())
                             else coalesce((select n.due + interval '1 microsecond' from next n
                                             where n.level = m.priority and (m.due_at, m.seq) <= (n.due, n.seq)), m.due_at) end
         -- Spelt so that the index of parked items does not offer itself.
         where m.ctid = any (first_parked) and coalesce(m.parked, false);
    end if;

    -- A lookup for each key; "exists" would become a join, with the same danger.
    select bool_or((select true from "{{schema}}"."{{queue}}" q where q.ordering_key = u.key and not q.parked order by q.seq limit 1))
      into waiting from unnest(ordering_keys) u(key);
    if waiting then
        perform "{{schema}}"."{{queue}}_wake"();
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_advance"(text[]) is 'Internal: lets the next item of each ordering key come forward.';

create or replace function "{{schema}}"."{{queue}}_release_key"(ordering_key text, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    if $1 is null or length($1) not between 1 and 255 then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_release_key: ordering_key must be 1 to 255 characters, got ' || coalesce(length($1)::text, 'null');
    end if;
    delete from "{{schema}}"."{{queue}}_hold" h where h.ordering_key = $1;
    if not found then
        return false;
    end if;
    perform "{{schema}}"."{{queue}}_advance"(array[$1]);
    perform "{{schema}}"."{{audit}}_note"('{{queue:kind}}.release_key', $2, '{"before": {"held": true}, "after": {"held": false}}', array['ordering_key'], array[$1]);
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_release_key"(text, text) is
    'Releases a held ordering key: the items behind the failed one go on, the failed one stays failed. Returns whether it was held. Recorded in the audit trail as the actor''s.';
