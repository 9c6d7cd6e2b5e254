-- Members, and steps that are reported by hand.

-- A settle locks its items as they lie in the table, because that is twice as fast as by their ids, and no other order is known to both
-- sides. So this never waits for an item while it holds another: it tries for all of them, and if it does not get them, it gives back
-- those that it has (the end of a subtransaction), waits for one that it lacks, and tries again.
create or replace function "{{schema}}"."{{joins}}_pin"(items uuid[]) returns void
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    pinned uuid[];
    busy uuid;
begin
    loop
        begin
            pinned := array(select o.id from "{{schema}}"."{{outbox}}" o where o.id = any ($1) for key share skip locked);
            busy := (select o.id from "{{schema}}"."{{outbox}}" o
                      where o.id = any ($1) and (o.id in (select u.id from unnest(pinned) u(id))) is not true limit 1);
            exit when busy is null;
            raise exception using errcode = 'MJ002', message = 'another transaction has locked an item';
        exception when sqlstate 'MJ002' then
            null;
        end;
        begin
            perform 1 from (select o.id from "{{schema}}"."{{outbox}}" o where o.id = busy for key share) l;
            raise exception using errcode = 'MJ002', message = 'the item can be locked now';
        exception when sqlstate 'MJ002' then
            null;
        end;
    end loop;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_pin"(uuid[]) is
    'Internal: keeps those of the items that are open from ending until the transaction ends. Waits for an item only while it holds none.';

create or replace function "{{schema}}"."{{joins}}_attach_pairs"(joins uuid[], items uuid[], fresh boolean) returns setof uuid
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    one record;
    standing smallint;
    deadline timestamptz;
    added uuid[];
    done uuid[];
    failed uuid[];
begin
    perform set_config('mainstay.joins', '', true);
    -- What ends meanwhile waits for this, or this for it: so a member is either there when its item ends, or finds that it has ended.
    -- What the caller has only just added, nobody else can end.
    if not fresh then
        perform "{{schema}}"."{{joins}}_pin"($2);
    end if;
    for one in
        select u.id, array_agg(distinct u.item) filter (where u.item is not null) as items from unnest($1, $2) u(id, item) group by u.id order by u.id
    loop
        select j.status, j.deadline_at into standing, deadline from "{{schema}}"."{{joins}}" j where j.id = one.id;
        if standing is null then
            raise exception using errcode = 'P0002', message = '{{joins:literal}}_attach: there is no join ' || coalesce(one.id::text, 'null');
        end if;
        if standing = 0 and deadline <= moment then
            perform "{{schema}}"."{{joins}}_lapse"(one.id, moment);
            select j.status into standing from "{{schema}}"."{{joins}}" j where j.id = one.id;
        end if;
        if standing <> 0 then
            if exists (select from unnest(one.items) u(item) where not exists (
                           select from "{{schema}}"."{{joins}}_member" m where m.join_id = one.id and m.work_item_id = u.item)) then
                raise exception using errcode = 'MJ001', message = '{{joins:literal}}_attach: the join ' || one.id || ' has ended ('
                    || (array['completed', 'failed', 'cancelled'])[standing] || '), so nothing can be attached to it; start another';
            end if;
            continue;
        end if;
        with members as (
            insert into "{{schema}}"."{{joins}}_member" (join_id, work_item_id, updated_at)
            select one.id, u.item, moment from unnest(one.items) u(item) order by u.item
            on conflict do nothing returning work_item_id)
        select array_agg(m.work_item_id) into added from members m;
        continue when added is null;
        return query select u.item from unnest(added) u(item);
        if not fresh then
            select coalesce(array_agg(h.id) filter (where h.status = 2), '{}'), coalesce(array_agg(h.id) filter (where h.status = 3), '{}')
              into done, failed
              from unnest(added) u(item)
             cross join lateral (select x.id, x.status from "{{schema}}"."{{outbox}}_history" x where x.id = u.item order by x.seq desc limit 1) h
             where not exists (select from "{{schema}}"."{{outbox}}" o where o.id = u.item);
            if done <> '{}' or failed <> '{}' then
                perform "{{schema}}"."{{joins}}_ended"(done, failed, one.id);
            end if;
        end if;
    end loop;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_attach_pairs"(uuid[], uuid[], boolean) is
    'Internal: makes each item a member of the join in the same place. fresh: they were added to the outbox by this transaction.';

create or replace function "{{schema}}"."{{joins}}_attach"(join_id uuid, work_item_ids uuid[], actor text default null) returns setof uuid
language plpgsql volatile
as $mainstay$
declare
    added uuid[];
begin
    if work_item_ids is null or array_position(work_item_ids, null) is not null then
        raise exception using errcode = '22023', message = '{{joins:literal}}_attach: work_item_ids must not be null, nor contain null';
    end if;
    added := array(select a.id from "{{schema}}"."{{joins}}_attach_pairs"(
        case when work_item_ids = '{}' then array[$1] else array_fill($1, array[cardinality(work_item_ids)]) end, work_item_ids, false) a(id));
    if actor is not null and added <> '{}' then
        perform "{{schema}}"."{{audit}}_note"(
            'join.attach', actor, jsonb_build_object('count', cardinality(added), 'items', to_jsonb(added[1:20])),
            array['join'] || array_fill('step'::text, array[cardinality(added)]), array[$1::text] || added::text[]);
    end if;
    return query select u.item from unnest(added) u(item);
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_attach"(uuid, uuid[], text) is
    'Makes items steps of a join, in the caller''s transaction, and returns those that were not. Items are messages of the outbox, or whatever is '
    'then reported by hand. A message that has ended before is counted at once. With an actor those that were not steps before are recorded in the audit trail.';

create or replace function "{{schema}}"."{{joins}}_report"(join_id uuid, work_item_id uuid, outcome text, actor text default null) returns text
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    standing smallint;
    deadline timestamptz;
begin
    if outcome is null or outcome not in ('completed', 'failed') then
        raise exception using errcode = '22023', message = '{{joins:literal}}_report: outcome must be completed or failed';
    end if;
    perform set_config('mainstay.joins', '', true);
    select j.status into standing from "{{schema}}"."{{joins}}" j where j.id = $1;
    if standing is null then
        raise exception using errcode = 'P0002', message = '{{joins:literal}}_report: there is no join ' || coalesce($1::text, 'null');
    end if;
    if not exists (select from "{{schema}}"."{{joins}}_member" m where m.join_id = $1 and m.work_item_id = $2) then
        raise exception using errcode = 'P0002', message = '{{joins:literal}}_report: ' || coalesce($2::text, 'null') || ' is no member of the join '
            || $1 || '; attach it first';
    end if;
    perform "{{schema}}"."{{joins}}_ended"(case when outcome = 'completed' then array[$2] else '{}' end, case when outcome = 'failed' then array[$2] else '{}' end, $1);
    -- Counted by this, by somebody else, or not at all because the join has ended?
    if current_setting('mainstay.joins', true) <> '' and (current_setting('mainstay.joins', true)::jsonb -> -1 ->> 1)::integer
           + (current_setting('mainstay.joins', true)::jsonb -> -1 ->> 2)::integer > 0 then
        -- Applications that go about their business report all the time: that is recorded when somebody is named.
        if actor is not null then
            perform "{{schema}}"."{{audit}}_note"(
                'join.report', actor, jsonb_build_object(
                    'step', $2, 'before', jsonb_build_object('state', 'pending'), 'after', jsonb_build_object('state', outcome)),
                array['join', 'step'], array[$1::text, $2::text]);
        end if;
        return 'counted';
    end if;
    return case when exists (select from "{{schema}}"."{{joins}}_member" m where m.join_id = $1 and m.work_item_id = $2 and m.state <> 0)
                then 'already' else 'ended' end;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_report"(uuid, uuid, text, text) is
    'Counts a step by hand, as completed or failed, in the caller''s transaction. Returns counted; already if it was counted before; ended if the join '
    'has ended without it. With an actor a step that is counted is recorded in the audit trail.';
