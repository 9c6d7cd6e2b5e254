-- How a consumer goes to sleep without missing anything, each step in a transaction of its own:
--   1. LISTEN on the channel          2. idle(), commit          3. horizon := horizon()
--   4. poll at the short interval until horizon_passed(horizon)
--   5. claim once more; if that is empty too, sleep until notified, until next_due_in_seconds, or until the declaration runs out.
-- Why: a producer reads the waiters inside its transaction. One that read "nobody" before step 2 committed had its xid by then,
-- and so lies below a horizon that is taken after step 2. Once everything below it has ended, whatever comes notifies.
-- A horizon taken in the same transaction as idle() would be too early: a producer can start between the two. So would the
-- upper end of a snapshot be: it follows the last transaction that ended, and producers above it may be running already.

create or replace function "{{schema}}"."{{queue}}_next_due"(only_topics text[] default null, except_topics text[] default null)
returns double precision
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    probe constant integer := 1000;
    known smallint[] := '{}';
    floor_due timestamptz[] := '{}';
    floor_seq bigint[] := '{}';
    strange smallint[];
    level smallint;
    seen bigint;
    earliest timestamptz;
    nearest timestamptz;
    cut boolean := false;
    paused constant text[] := array(select p.topic from "{{schema}}"."{{queue}}_paused" p);
begin
    if array_position(only_topics, null) is not null or array_position(except_topics, null) is not null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_next_due: '
            || case when array_position(only_topics, null) is not null then 'only_topics' else 'except_topics' end || ' must not contain null';
    end if;
    if paused <> '{}' then
        except_topics := except_topics || paused;
    end if;
    -- As a claim does it.
    select f.levels, f.seqs,
           case when f.made_in = f.tableoid and f.noted_at <= clock_timestamp() then f.due_ats
                else array_fill('-infinity'::timestamptz, array[cardinality(f.levels)]) end
      into known, floor_seq, floor_due
      from "{{schema}}"."{{queue}}_floor" f order by f.n desc limit 1;
    loop
        strange := array(select g.priority
                           from unnest(10::smallint || known, known || (-10)::smallint) e(above, below)
                          cross join lateral (select q.priority from "{{schema}}"."{{queue}}" q
                                               where not q.parked and q.priority < e.above and q.priority > e.below
                                               order by q.priority desc limit 1) g);
        exit when strange = '{}';
        select array_agg(k.level order by k.level desc), array_agg(k.due order by k.level desc), array_agg(k.seq order by k.level desc)
          into known, floor_due, floor_seq
          from (select u.level, u.due, u.seq from unnest(known, floor_due, floor_seq) u(level, due, seq)
                union all
                select u.level, '-infinity', 0 from unnest(strange) u(level)) k;
    end loop;
    for at in 1 .. coalesce(cardinality(known), 0) loop
        level := known[at];
        -- Everything in progress is past its due time, so the front of the range holds the leases; more than the probe reads is
        -- possible and answered below by "look again soon".
        select count(*), min(case when x.status = 0 then x.due_at else greatest(x.due_at, x.locked_until) end) into seen, nearest
          from (select q.status, q.due_at, q.locked_until from "{{schema}}"."{{queue}}" q
                 where not q.parked and q.priority = level and q.due_at <= moment and (q.due_at, q.seq) > (floor_due[at], floor_seq[at])
                   and (only_topics is null or q.topic = any (only_topics))
                   and (except_topics is null or q.topic <> all (except_topics))
                 order by q.due_at, q.seq limit probe) x;
        cut := cut or seen >= probe;
        earliest := least(earliest, nearest);
        select q.due_at into nearest from "{{schema}}"."{{queue}}" q
         where not q.parked and q.priority = level and q.due_at > moment
           and (only_topics is null or q.topic = any (only_topics))
           and (except_topics is null or q.topic <> all (except_topics))
         order by q.due_at, q.seq limit 1;
        earliest := least(earliest, nearest);
    end loop;

    if cut then
        earliest := least(earliest, moment + interval '1 second');
    end if;
    -- Not greatest(…, 0) alone: that is 0 for null, and a consumer with nothing in sight would never sleep.
    return case when earliest is not null then greatest(extract(epoch from earliest - moment), 0) end;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_next_due"(text[], text[]) is
    'The seconds until the next item becomes claimable (0 = now), null if there is none. Reads only.';

create or replace function "{{schema}}"."{{queue}}_idle"(
    consumer uuid, seconds double precision, only_topics text[] default null, except_topics text[] default null
) returns double precision
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    if $1 is null or $1 = '00000000-0000-0000-0000-000000000000' then
        raise exception using errcode = '22023', message = '{{queue:literal}}_idle: consumer must not be null or nil';
    end if;
    if seconds is null or not (seconds > 0 and seconds <= 1e9) then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_idle: seconds must be more than 0 and at most 1000000000, got ' || coalesce(seconds::text, 'null');
    end if;

    -- Consumers that ended without a word. Skipping locked rows: another consumer may be doing the same.
    delete from "{{schema}}"."{{queue}}_waiter" w
     where w.consumer in (select l.consumer from "{{schema}}"."{{queue}}_waiter" l
                           where l.until < statement_timestamp() - interval '1 minute' for update skip locked);
    insert into "{{schema}}"."{{queue}}_waiter" as w (consumer, until)
    values ($1, statement_timestamp() + make_interval(secs => seconds))
    on conflict (consumer) do update set until = excluded.until;
    return "{{schema}}"."{{queue}}_next_due"(only_topics, except_topics);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_idle"(uuid, double precision, text[], text[]) is
    'Declares the consumer idle for so many seconds: enqueues notify it. Returns what next_due() does.';

create or replace function "{{schema}}"."{{queue}}_busy"(consumer uuid) returns void
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    delete from "{{schema}}"."{{queue}}_waiter" w where w.consumer = $1;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_busy"(uuid) is 'Ends the declaration of idle().';

create or replace function "{{schema}}"."{{queue}}_horizon"() returns bigint
language sql volatile
as $mainstay$
    -- A new xid: above every transaction that has one by now.
    select pg_current_xact_id()::text::bigint
$mainstay$;
comment on function "{{schema}}"."{{queue}}_horizon"() is
    'The transaction horizon to wait for. Take it in a transaction that begins after the one with idle() has committed.';

create or replace function "{{schema}}"."{{queue}}_horizon_passed"(horizon bigint) returns boolean
language sql volatile
as $mainstay$
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1
$mainstay$;
comment on function "{{schema}}"."{{queue}}_horizon_passed"(bigint) is
    'Whether every transaction below the horizon has ended. Then claim once more, and sleep only if that is empty.';
