-- How the outbox stands. Exact counts; reads only.

create or replace function "{{schema}}"."{{queue}}_stats"(count_done boolean default true) returns table (
    ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, done bigint, failed bigint,
    oldest_ready_age_seconds double precision, held_keys bigint
)
language plpgsql volatile
set jit = off
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    -- What somebody has paused is not late.
    paused constant text[] := array(select p.topic from "{{schema}}"."{{queue}}_paused" p);
begin
    return query
    select o.ready, o.scheduled, o.in_progress, o.lapsed,
           -- The one count that grows with the retention and not with the backlog.
           case when count_done then (select count(*) from "{{schema}}"."{{queue}}_history" h where h.status = 2) end,
           (select count(*) from "{{schema}}"."{{queue}}_history" h where h.status = 3),
           extract(epoch from moment - o.oldest)::double precision,
           (select count(*) from "{{schema}}"."{{queue}}_hold")
      from (select count(*) filter (where q.status = 0 and q.due_at <= moment) as ready,
                   count(*) filter (where q.status = 0 and q.due_at > moment) as scheduled,
                   count(*) filter (where q.status = 1) as in_progress,
                   count(*) filter (where q.status = 1 and q.locked_until <= moment) as lapsed,
                   min(q.due_at) filter (where q.status = 0 and q.due_at <= moment and q.topic <> all (paused)) as oldest
              from "{{schema}}"."{{queue}}" q) o;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_stats"(boolean) is
    'One row of counts. in_progress includes lapsed. Ready includes items that wait for their ordering key and those of paused topics; the oldest is of none that are paused. With count_done = false, done is null and the cost does not grow with the history.';

create or replace function "{{schema}}"."{{queue}}_stats_by_topic"() returns table (
    topic text, ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, failed bigint, oldest_ready_age_seconds double precision
)
language plpgsql volatile
set jit = off
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
begin
    return query
    select coalesce(o.topic::text, f.topic), coalesce(o.ready, 0), coalesce(o.scheduled, 0), coalesce(o.in_progress, 0), coalesce(o.lapsed, 0),
           coalesce(f.failed, 0), extract(epoch from moment - o.oldest)::double precision
      from (select q.topic, count(*) filter (where q.status = 0 and q.due_at <= moment) as ready,
                   count(*) filter (where q.status = 0 and q.due_at > moment) as scheduled,
                   count(*) filter (where q.status = 1) as in_progress,
                   count(*) filter (where q.status = 1 and q.locked_until <= moment) as lapsed,
                   min(q.due_at) filter (where q.status = 0 and q.due_at <= moment) as oldest
              from "{{schema}}"."{{queue}}" q group by q.topic) o
      full join (select h.topic, count(*) as failed from "{{schema}}"."{{queue}}_history" h where h.status = 3 group by h.topic) f on f.topic = o.topic
     order by 1;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_stats_by_topic"() is 'The same by topic, for open and failed items.';
