-- Deadlines, cancelling and retention.

create or replace function "{{schema}}"."{{joins}}_expire"(max_joins integer default 100) returns setof uuid
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    one record;
    ended_as smallint;
    report jsonb := '[]';
begin
    if max_joins is null or max_joins < 1 then
        raise exception using errcode = '22023', message = '{{joins:literal}}_expire: max_joins must be 1 or more, got ' || coalesce(max_joins::text, 'null');
    end if;
    -- Ended in the order of their ids, as everything that locks several of them does.
    for one in
        select d.id, d.mode from (select j.id, j.mode from "{{schema}}"."{{joins}}" j
                                   where j.status = 0 and j.deadline_at <= moment order by j.deadline_at limit max_joins) d
         order by d.id
    loop
        ended_as := "{{schema}}"."{{joins}}_lapse"(one.id, moment);
        if ended_as is not null then
            report := report || jsonb_build_array(jsonb_build_array(one.id, 0, 0, ended_as,
                case when ended_as = 2 then case when one.mode = 3 then 'steps' else 'deadline' end end));
            return next one.id;
        end if;
    end loop;
    perform set_config('mainstay.joins', case when report = '[]' then '' else report::text end, true);
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_expire"(integer) is
    'Ends up to max_joins joins whose deadline has passed, and returns them. Mode deadline: by the steps that have ended; other modes: failed.';

create or replace function "{{schema}}"."{{joins}}_cancel"(join_id uuid, actor text default null) returns uuid[]
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    waiting uuid[];
    cancelled uuid[];
    items jsonb;
    was jsonb;
begin
    perform set_config('mainstay.joins', '', true);
    if not exists (select from "{{schema}}"."{{joins}}" j where j.id = $1) then
        raise exception using errcode = 'P0002', message = '{{joins:literal}}_cancel: there is no join ' || coalesce($1::text, 'null');
    end if;
    -- The items first, as everybody does. What somebody has in hand is left alone.
    waiting := array(
        select o.id from "{{schema}}"."{{joins}}_member" m
         cross join lateral (select q.id from "{{schema}}"."{{outbox}}" q
                              where q.id = m.work_item_id and q.status = 0 for update skip locked) o
         where m.join_id = $1 and m.state = 0);
    if not "{{schema}}"."{{joins}}_seize"($1) then
        return null;
    end if;
    select jsonb_build_object('state', 'pending', 'completed', coalesce(sum(s.completed), 0), 'failed', coalesce(sum(s.failed), 0)) into was
      from "{{schema}}"."{{joins}}_slot" s where s.join_id = $1;
    update "{{schema}}"."{{joins}}_slot" s set left_over = 0 where s.join_id = $1 and s.left_over > 0;
    update "{{schema}}"."{{joins}}" j set status = 3, updated_at = moment, ended_at = moment where j.id = $1;
    -- Other joins count them as failed by this; the cancelled one counts nothing any more.
    select coalesce(array_agg(c.id order by c.n), '{}'),
           coalesce(jsonb_agg(jsonb_build_object(
               'id', c.id, 'topic', c.topic, 'before', jsonb_build_object('status', 'ready'),
               'after', jsonb_build_object('status', 'failed', 'reason', 'cancelled')) order by c.n) filter (where c.n <= 20), '[]')
      into cancelled, items from "{{schema}}"."{{outbox}}_cancel_items"(waiting) with ordinality c(id, topic, n);
    update "{{schema}}"."{{joins}}_member" m set state = 3, updated_at = moment where m.join_id = $1 and m.work_item_id = any (cancelled) and m.state = 0;
    perform "{{schema}}"."{{audit}}_note"(
        'join.cancel', actor, jsonb_build_object(
            'before', was, 'after', jsonb_build_object('state', 'cancelled'), 'count', cardinality(cancelled), 'items', items),
        array['join'] || array_fill('outbox'::text, array[cardinality(cancelled)]), array[$1::text] || cancelled::text[]);
    return cancelled;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_cancel"(uuid, text) is
    'Ends a join without a continuation and cancels those of its messages that wait. Returns their ids; null if the join had ended. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{joins}}_purge"(older_than_seconds double precision, max_rows integer default 1000, actor text default null)
returns integer
language plpgsql volatile
set jit = off set enable_seqscan = off
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    one uuid;
    gone integer;
    total integer := 0;
begin
    if older_than_seconds is null or not (older_than_seconds >= 0 and older_than_seconds <= 1e11) then
        raise exception using errcode = '22023', message = '{{joins:literal}}_purge: older_than_seconds must be 0 to 100000000000';
    end if;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023', message = '{{joins:literal}}_purge: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    for one in
        select j.id from "{{schema}}"."{{joins}}" j
         where j.status <> 0 and j.ended_at <= moment - make_interval(secs => older_than_seconds)
         order by j.ended_at limit max_rows for update skip locked
    loop
        delete from "{{schema}}"."{{joins}}_member" m where m.ctid = any (array(
            select x.ctid from "{{schema}}"."{{joins}}_member" x where x.join_id = one limit max_rows - total));
        get diagnostics gone = row_count;
        total := total + gone;
        -- The join goes last: one with many members takes several calls.
        exit when total >= max_rows;
        delete from "{{schema}}"."{{joins}}_slot" s where s.join_id = one;
        delete from "{{schema}}"."{{joins}}_continuation" c where c.join_id = one;
        delete from "{{schema}}"."{{joins}}" j where j.id = one;
        total := total + 1;
        exit when total >= max_rows;
    end loop;
    if actor is not null and total > 0 then
        perform "{{schema}}"."{{audit}}_note"('join.purge', actor, jsonb_build_object('count', total, 'older_than_seconds', floor(older_than_seconds)));
    end if;
    return total;
end
$mainstay$;
comment on function "{{schema}}"."{{joins}}_purge"(double precision, integer, text) is
    'Deletes joins that ended longer ago than that, with their members, up to max_rows members and joins. With an actor that is recorded. Returns how many; call it until that is 0.';
