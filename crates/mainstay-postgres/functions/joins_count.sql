-- Counting steps, and the end of a join.
--
-- Locks are taken in one order: items of the outbox, members, then for each join in the order of their ids its slots in the order of
-- pool and slot, then its own row. Whoever waits for a slot holds no other slot of the same join, unless it takes all in that order.

create or replace function "{{schema}}"."{{joins}}_waiting"() returns boolean
language plpgsql stable
-- One entry of an index, however many joins there are. Those who ask have set their planner otherwise.
set enable_seqscan = off set enable_bitmapscan = off set enable_indexscan = on set enable_indexonlyscan = on
as $mainstay$
begin
    return exists (select from "{{schema}}"."{{joins}}" j where j.status = 0);
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_waiting"() is 'Internal: whether there is a join that waits for something.';

create or replace function "{{schema}}"."{{joins}}_standing"(join_id uuid) returns smallint
language plpgsql volatile
as $mainstay$
begin
    return (select j.status from "{{schema}}"."{{joins}}" j where j.id = $1);
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_standing"(uuid) is
    'Internal: how a join stands now, for a statement that has begun before something changed that. Null if there is no such join.';

create or replace function "{{schema}}"."{{joins}}_finish"(join_id uuid, new_status smallint, why text, moment timestamptz) returns void
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    c record;
    patience constant text := current_setting('lock_timeout');
    own boolean := false;
begin
    update "{{schema}}"."{{joins}}_slot" s set left_over = 0 where s.join_id = $1 and s.left_over > 0;
    update "{{schema}}"."{{joins}}" j set status = $2, reason = $3, updated_at = $4, ended_at = $4 where j.id = $1;
    select x.* into c from "{{schema}}"."{{joins}}_continuation" x where x.join_id = $1 and x.outcome = $2;
    if not found then
        return;
    end if;
    -- A continuation whose id another message has (it was a copy of that) gets ids of its own: the end of a join must not fail. Nor
    -- must it wait for a transaction that has inserted the id and stays open.
    if exists (select from "{{schema}}"."{{outbox}}" o where o.id = c.work_item_id)
       or exists (select from "{{schema}}"."{{outbox}}_history" h where h.id = c.work_item_id) then
        c.work_item_id := gen_random_uuid();
        c.message_id := gen_random_uuid();
    end if;
    -- Twice at most: another transaction may have put its copy there just now.
    loop
        begin
            if not own then
                perform set_config('lock_timeout', '50ms', true);
            end if;
            perform "{{schema}}"."{{outbox}}_add_one"(c.work_item_id, c.message_id, c.topic, c.payload, c.correlation_id, c.headers::text,
                ordering_key => c.ordering_key, hold_on_failure => c.hold_on_failure, priority => c.priority);
            perform set_config('lock_timeout', patience, true);
            return;
        -- Nobody else can have its own ids, so waiting for something else then is an error.
        exception when unique_violation or lock_not_available then
            if own and sqlstate = '55P03' then
                raise;
            end if;
            own := true;
            c.work_item_id := gen_random_uuid();
            c.message_id := gen_random_uuid();
        end;
    end loop;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_finish"(uuid, smallint, text, timestamptz) is
    'Internal: ends a join whose slots the caller has locked: no credit is left, and its continuation is in the outbox.';

-- Locks what is left of a join, in order, and then its row. Whether it is still pending.
create or replace function "{{schema}}"."{{joins}}_seize"(join_id uuid) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    perform 1 from (select s.slot from "{{schema}}"."{{joins}}_slot" s
                     where s.join_id = $1 and s.left_over > 0 order by s.pool, s.slot for update) l;
    return coalesce((select x.status = 0 from (select j.status from "{{schema}}"."{{joins}}" j where j.id = $1 for update) x), false);
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_seize"(uuid) is 'Internal: locks a join as a whole. False if it has ended.';

create or replace function "{{schema}}"."{{joins}}_lapse"(join_id uuid, moment timestamptz) returns smallint
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    new_status smallint;
    by_steps boolean;
begin
    if not "{{schema}}"."{{joins}}_seize"($1) then
        return null;
    end if;
    select j.mode = 3, case when j.mode = 3 and not exists (
               select from "{{schema}}"."{{joins}}_slot" s where s.join_id = $1 and s.failed > 0) then 1 else 2 end
      into by_steps, new_status from "{{schema}}"."{{joins}}" j where j.id = $1;
    perform "{{schema}}"."{{joins}}_finish"($1, new_status, case when new_status = 1 then null when by_steps then 'steps' else 'deadline' end, $2);
    return new_status;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_lapse"(uuid, timestamptz) is
    'Internal: ends a join whose deadline has passed. Returns how it ended; null if it had ended before.';

create or replace function "{{schema}}"."{{joins}}_count"(
    join_id uuid, completions integer, failures integer, moment timestamptz,
    out completed integer, out failed integer, out new_status smallint, out why text
)
language plpgsql volatile
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    steps constant integer := $2 + $3;
    modus smallint;
    from_pool smallint;
    spot smallint;
    place record;
    taken integer;
    rest_completed integer := $2;
    rest_failed integer := $3;
begin
    completed := 0;
    failed := 0;
    select j.mode, j.status, j.reason into modus, new_status, why from "{{schema}}"."{{joins}}" j where j.id = $1;
    if new_status is distinct from 0 then
        return;
    end if;
    from_pool := case when modus in (0, 3) then 0 when $3 = 0 then 1 when $2 = 0 then 2 end;

    if from_pool is not null then
        -- One that has more than enough, so that nothing ends by this, and that nobody has. Each connection has its favourite.
        select s.slot into spot from "{{schema}}"."{{joins}}_slot" s
         where s.join_id = $1 and s.pool = from_pool and s.left_over > steps
         order by (s.slot + pg_backend_pid()) % 16 limit 1 for update skip locked;
        if spot is null and exists (select from "{{schema}}"."{{joins}}_slot" s where s.join_id = $1 and s.pool = from_pool and s.slot > 0) then
            -- Others have all of those. Wait for one; should it have too little then, don't keep it.
            begin
                select s.slot into spot from "{{schema}}"."{{joins}}_slot" s
                 where s.join_id = $1 and s.pool = from_pool and s.left_over > steps order by random() limit 1;
                if spot is not null then
                    select s.slot into spot from "{{schema}}"."{{joins}}_slot" s
                     where s.join_id = $1 and s.pool = from_pool and s.slot = spot and s.left_over > steps for update;
                    if spot is null then
                        raise exception using errcode = 'MJ000', message = 'too little is left';
                    end if;
                end if;
            exception when sqlstate 'MJ000' then
                spot := null;
            end;
        end if;
        if spot is not null then
            update "{{schema}}"."{{joins}}_slot" s
               set left_over = s.left_over - steps, completed = s.completed + $2, failed = s.failed + $3, updated_at = $4
             where s.join_id = $1 and s.pool = from_pool and s.slot = spot;
            completed := $2;
            failed := $3;
            return;
        end if;
    end if;

    -- All that is left, in order. What is not locked by this has nothing left, and never will have.
    for place in
        select s.pool, s.slot, s.left_over from "{{schema}}"."{{joins}}_slot" s
         where s.join_id = $1 and s.left_over > 0 order by s.pool, s.slot for update
    loop
        if place.pool in (0, 1) and rest_completed > 0 then
            taken := least(rest_completed, place.left_over);
            update "{{schema}}"."{{joins}}_slot" s set left_over = s.left_over - taken, completed = s.completed + taken, updated_at = $4
             where s.join_id = $1 and s.pool = place.pool and s.slot = place.slot;
            rest_completed := rest_completed - taken;
            place.left_over := place.left_over - taken;
        end if;
        -- Where completed steps have ended it, failed ones have come too late.
        if place.pool = 0 or place.pool = 2 and new_status = 0 then
            taken := least(rest_failed, place.left_over);
            if taken > 0 then
                update "{{schema}}"."{{joins}}_slot" s set left_over = s.left_over - taken, failed = s.failed + taken, updated_at = $4
                 where s.join_id = $1 and s.pool = place.pool and s.slot = place.slot;
                rest_failed := rest_failed - taken;
            end if;
        end if;
        if place.pool = 1 and new_status = 0
           and not exists (select from "{{schema}}"."{{joins}}_slot" s where s.join_id = $1 and s.pool = 1 and s.left_over > 0) then
            new_status := 1;
        end if;
    end loop;
    completed := $2 - rest_completed;
    failed := $3 - rest_failed;
    if completed + failed = 0 then
        -- It ended while this waited.
        select j.status, j.reason into new_status, why from "{{schema}}"."{{joins}}" j where j.id = $1;
        return;
    end if;
    if new_status = 0 and modus in (0, 3) then
        select case when sum(s.left_over) > 0 then 0 when sum(s.failed) > 0 then 2 else 1 end into new_status
          from "{{schema}}"."{{joins}}_slot" s where s.join_id = $1;
    elsif new_status = 0 and not exists (select from "{{schema}}"."{{joins}}_slot" s where s.join_id = $1 and s.pool = 2 and s.left_over > 0) then
        new_status := 2;
    end if;
    if new_status <> 0 then
        why := case when new_status = 2 then 'steps' end;
        perform "{{schema}}"."{{joins}}_finish"($1, new_status, why, $4);
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_count"(uuid, integer, integer, timestamptz) is
    'Internal: counts steps for a join, as far as it has credit for them, and ends it with the last. Tells how many were counted, and how the join stands.';

create or replace function "{{schema}}"."{{joins}}_vouch"(items uuid[]) returns void
language plpgsql stable
set enable_seqscan = off
as $mainstay$
begin
    if exists (select from "{{schema}}"."{{joins}}_member" m join "{{schema}}"."{{joins}}" j on j.id = m.join_id
                where m.work_item_id = any ($1) and m.state = 0 and j.status = 0) then
        raise exception using errcode = '25001',
            message = '{{outbox:literal}}: a step of a join needs READ COMMITTED to end, the transaction is '
                || upper(current_setting('transaction_isolation')),
            hint = 'One old snapshot cannot show how many steps of the join have ended since, and it might wait for them in vain. Nothing has ended.';
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_vouch"(uuid[]) is
    'Internal: refuses the end of steps in a transaction whose snapshot may be older than the ends of others.';

-- What every end of an item in the outbox calls, while there is a join that waits for something.
create or replace function "{{schema}}"."{{joins}}_ended"(done uuid[], failed uuid[], only_join uuid default null) returns void
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_indexscan = on set enable_bitmapscan = on
set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    one record;
    counted record;
    done_joins uuid[];
    done_items uuid[];
    failed_joins uuid[];
    failed_items uuid[];
    ended_as smallint;
    report jsonb := '[]';
begin
    if $3 is null and current_setting('transaction_isolation') <> 'read committed' then
        perform "{{schema}}"."{{joins}}_vouch"($1 || $2);
    end if;
    -- A step that ends after the deadline does not count, whether somebody has looked at the deadline or not.
    if exists (select from "{{schema}}"."{{joins}}" j where j.status = 0 and j.deadline_at <= moment) then
        for one in
            select distinct m.join_id, j.mode from "{{schema}}"."{{joins}}_member" m
              join "{{schema}}"."{{joins}}" j on j.id = m.join_id
             where m.work_item_id = any ($1 || $2) and m.state = 0 and j.status = 0 and j.deadline_at <= moment and (m.join_id = $3 or $3 is null)
             order by m.join_id
        loop
            ended_as := "{{schema}}"."{{joins}}_lapse"(one.join_id, moment);
            if ended_as is not null then
                report := report || jsonb_build_array(jsonb_build_array(one.join_id, 0, 0, ended_as,
                    case when ended_as = 2 then case when one.mode = 3 then 'steps' else 'deadline' end end));
            end if;
        end loop;
    end if;
    if $1 <> '{}' then
        with marked as (
            update "{{schema}}"."{{joins}}_member" m set state = 1, updated_at = moment
             where m.work_item_id = any ($1) and m.state = 0 and (m.join_id = $3 or $3 is null)
               and (select j.status from "{{schema}}"."{{joins}}" j where j.id = m.join_id) = 0
            returning m.join_id, m.work_item_id)
        select array_agg(k.join_id), array_agg(k.work_item_id) into done_joins, done_items from marked k;
    end if;
    if $2 <> '{}' then
        with marked as (
            update "{{schema}}"."{{joins}}_member" m set state = 2, updated_at = moment
             where m.work_item_id = any ($2) and m.state = 0 and (m.join_id = $3 or $3 is null)
               and (select j.status from "{{schema}}"."{{joins}}" j where j.id = m.join_id) = 0
            returning m.join_id, m.work_item_id)
        select array_agg(k.join_id), array_agg(k.work_item_id) into failed_joins, failed_items from marked k;
    end if;
    if done_joins is not null or failed_joins is not null then
        for one in
            select u.id, sum(u.done)::integer as done, sum(u.failed)::integer as failed
              from (select d.id, 1 as done, 0 as failed from unnest(done_joins) d(id) union all select f.id, 0, 1 from unnest(failed_joins) f(id)) u
             group by u.id order by u.id
        loop
            select * into counted from "{{schema}}"."{{joins}}_count"(one.id, one.done, one.failed, moment);
            -- More than were expected: those without credit are not counted.
            if counted.completed < one.done then
                update "{{schema}}"."{{joins}}_member" m set state = 0 where m.join_id = one.id and m.work_item_id in (
                    select u.item from unnest(done_joins, done_items) u(id, item) where u.id = one.id offset counted.completed);
            end if;
            if counted.failed < one.failed then
                update "{{schema}}"."{{joins}}_member" m set state = 0 where m.join_id = one.id and m.work_item_id in (
                    select u.item from unnest(failed_joins, failed_items) u(id, item) where u.id = one.id offset counted.failed);
            end if;
            if counted.completed + counted.failed > 0 then
                report := report || jsonb_build_array(jsonb_build_array(one.id, counted.completed, counted.failed, counted.new_status, counted.why));
            end if;
        end loop;
    end if;
    -- For the program to tell of: within the transaction, and read by the statement that has called this.
    perform set_config('mainstay.joins', case when report = '[]' then '' else report::text end, true);
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_ended"(uuid[], uuid[], uuid) is
    'Internal: counts the end of items for their joins, or for one of them.';
