-- The floors: where a claim begins to look, one for each priority.
--
-- A position is (due_at, seq) within a priority, in the order of the ready index. Nothing that can be claimed lies at or before
-- the floor, and nothing ever will. A row of the floor table holds, for each priority, the floor F in force and the next one N,
-- which is not in force yet. Each row is made from the newest, under the next number, so there is one chain of them; rows are
-- committed in their order. Three kinds of rows follow each other:
--
--   noted      N is set to the first open item seen beyond F, but not beyond the present time.
--   stamped    next_xid is set to the xid of a transaction that had none when it read the noted row.
--   confirmed  One snapshot S in which everything below next_xid has ended gives R, the first open item beyond F. The new F is
--              the lower of N and R. (The row also notes the next N.)
--
-- The rule for writers. Whoever puts an entry into the ready index (a new item, another due_at, an item no longer parked) puts
-- it, once its transaction has an xid and holds its lock on the table,
--   a) not before a reading of the clock taken after that, or
--   b) beyond N of the newest row, read with a snapshot taken after that.
-- Moving an item down by hand, or a clock that is put back, breaks the rule; see sweep.
--
-- Why F holds. Take an open item at q that S did not show, though it existed or came later: T is the transaction that put it
-- there.
--   1. T had not ended in S, so its xid is not below next_xid, so it got its xid after the noted row had been committed.
--   2. Its reading was later still. The clock has passed N by then (N is never beyond the present), and the newest row is the
--      noted one or one made from it, whose N is not below the new F: N stays until it is confirmed, and then the next N is
--      the lower of R and the present, and F the lower of R and N. So q lies beyond the new F.
-- An item that S did show lies beyond the new F because R does. It may have been in progress, or being deleted by somebody who
-- rolls back: shown is shown. An item at or before the old F does not exist, by the same argument one round earlier, and the
-- first floor is minus infinity. Floors never sink, so one that was true stays true, and it does not matter how old the row is
-- that a claim has read.
--
-- The xid of a stamp must come after the noted row is committed, hence "had none when it read it". The upper end of a snapshot
-- would not do for next_xid: it follows the last transaction that ended, and writers above it may have been running for long.
-- Subtransactions have xids above their parent's, and it is the parent that counts. A prepared transaction has not ended.
--
-- When something with an xid stays open, its end can't be waited for. But what matters is only whether it has put anything into
-- the table, and whoever has, or is about to, holds or waits for a lock on it until its transaction ends. So after a while the
-- locks are asked: if no transaction below next_xid has one, a snapshot taken after that serves as S. One of them that writes
-- later takes its reading later (the rule says: holding its lock), and then 2. goes for it as well.

create or replace function "{{schema}}"."{{queue}}_raise_floor"(seen bigint, had_no_xid boolean, known smallint[], active boolean) returns void
language plpgsql volatile
set jit = off set enable_indexscan = on set enable_indexonlyscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    was "{{schema}}"."{{queue}}_floor"%rowtype;
    put "{{schema}}"."{{queue}}_floor"%rowtype;
    home oid;
    queue oid;
    anew boolean;
    widened boolean;
    waiting boolean := false;
    still boolean;
begin
    select max(c.oid) filter (where c.relname = '{{queue:literal}}_floor'), max(c.oid) filter (where c.relname = '{{queue:literal}}') into home, queue
      from pg_class c join pg_namespace s on s.oid = c.relnamespace
     where s.nspname = '{{schema:literal}}' and c.relname in ('{{queue:literal}}_floor', '{{queue:literal}}');
    -- One at a time, and never waited for. That the rows form one chain does not hang on it: their numbers are unique.
    if not pg_try_advisory_xact_lock(hashtextextended('mainstay floors {{schema:literal}}.{{queue:literal}}', 0)) then
        return;
    end if;
    select f.* into was from "{{schema}}"."{{queue}}_floor" f where f.n = seen;

    -- From the beginning if there is nothing to go on, if the clock was put back, or if the row has come from another server, with a
    -- dump or by replication: its floors would do, but its xid means nothing here and might never be reached.
    anew := was.n is null or was.made_in <> home or was.noted_at > moment
        or coalesce(was.next_xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint, false);
    put := was;
    put.n := seen + 1;
    put.noted_at := moment;
    put.swept_at := coalesce(was.swept_at, moment);
    put.made_in := home;
    put.quiet := case when active or anew then 0 else was.quiet end;
    put.held_up := was.held_up and not anew;
    put.levels := known;
    widened := anew or was.levels <> known;
    if widened then
        select coalesce(array_agg(coalesce(w.due, '-infinity') order by k.place), '{}'), coalesce(array_agg(coalesce(w.seq, 0) order by k.place), '{}'),
               coalesce(array_agg(coalesce(w.next_due, '-infinity') order by k.place), '{}'), coalesce(array_agg(coalesce(w.next_seq, 0) order by k.place), '{}')
          into put.due_ats, put.seqs, put.next_due_ats, put.next_seqs
          from unnest(known) with ordinality k(level, place)
          left join unnest(was.levels, was.due_ats, was.seqs, was.next_due_ats, was.next_seqs) w(level, due, seq, next_due, next_seq)
            on w.level = k.level and not anew;
    end if;

    if anew then
        put.next_xid := null;
        put.held_up := false;
    elsif was.next_xid is null then
        if had_no_xid then
            put.next_xid := pg_current_xact_id()::text::bigint;
        elsif not widened then
            return;
        end if;
    else
        if pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= was.next_xid then
            put.held_up := false;
        elsif was.noted_at > moment - (case when was.held_up then interval '250 ms' else interval '1 s' end) then
            -- They may end yet: asking for locks is dear.
            if not widened then
                return;
            end if;
            put.noted_at := was.noted_at;
            waiting := true;
        else
            -- Granted or not: one that waits for its lock may have read the clock already. Parts of a transaction have xids above
            -- that of the whole, so one of them below next_xid is proof enough. They are 32 bits wide and wrap around.
            with held as materialized (
                select l.virtualtransaction, l.locktype, l.transactionid from pg_locks l
                 where (l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.relation = queue
                        and l.database = (select d.oid from pg_database d where d.datname = current_database()))
                    or (l.locktype = 'transactionid' and l.mode = 'ExclusiveLock'))
            select count(*) > 0 into waiting
              from (select from held h group by h.virtualtransaction
                    having bool_or(h.locktype = 'relation')
                       and bool_or(h.locktype = 'transactionid'
                                   and ((was.next_xid - h.transactionid::text::bigint) & 4294967295) between 1 and 2147483647)) w;
            put.held_up := not waiting;
        end if;
        if not waiting then
            -- With a snapshot of its own, taken after the answer above.
            select bool_and(r.due_at is null or (x.due, x.seq) = (k.due, k.seq)),
                   array_agg(x.due order by k.place), array_agg(x.seq order by k.place),
                   array_agg(case when (r.due_at, r.seq - 1) < (moment, 0) then r.due_at else moment end order by k.place),
                   array_agg(case when (r.due_at, r.seq - 1) < (moment, 0) then r.seq - 1 else 0 end order by k.place)
              into still, put.due_ats, put.seqs, put.next_due_ats, put.next_seqs
              from unnest(put.levels, put.due_ats, put.seqs, put.next_due_ats, put.next_seqs) with ordinality k(level, due, seq, next_due, next_seq, place)
              left join lateral (select q.due_at::timestamptz as due_at, q.seq from "{{schema}}"."{{queue}}" q
                                  where not q.parked and q.priority = k.level and q.due_at <= moment and (q.due_at, q.seq) > (k.due, k.seq)
                                  order by q.due_at, q.seq limit 1) r on true
             cross join lateral (select case when (r.due_at, r.seq - 1) < (k.next_due, k.next_seq) then r.due_at else k.next_due end as due,
                                        case when (r.due_at, r.seq - 1) < (k.next_due, k.next_seq) then r.seq - 1 else k.next_seq end as seq) x;
            put.next_xid := null;
            put.quiet := case when active or not still then 0 else was.quiet + 1 end;
        end if;
    end if;

    insert into "{{schema}}"."{{queue}}_floor" select put.* on conflict do nothing;
    if seen % 256 = 0 then
        delete from "{{schema}}"."{{queue}}_floor" f where f.n < seen - 16;
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_raise_floor"(bigint, boolean, smallint[], boolean) is
    'Internal: makes the next row of floors from the one a claim has seen, if that can be done now. Waits for nobody.';

-- Nothing should ever be found here. It is looked for all the same: a server's clock can be put back, and people change rows by hand.
-- Whatever lies below a floor brings all of them back to the beginning.
create or replace function "{{schema}}"."{{queue}}_sweep"(min_age interval default '0') returns boolean
language plpgsql volatile
set jit = off set enable_indexscan = on set enable_indexonlyscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    was record;
    sunk boolean;
begin
    select f.* into was from "{{schema}}"."{{queue}}_floor" f order by f.n desc limit 1;
    -- (A time in the future is the work of a clock that has been put back since.)
    if was.n is null or was.swept_at between moment - min_age and moment then
        return false;
    end if;
    select coalesce(bool_or((select true from "{{schema}}"."{{queue}}" q
                              where not q.parked and q.priority = k.level and (q.due_at, q.seq) <= (k.due, k.seq)
                              order by q.due_at, q.seq limit 1)), false) into sunk
      from unnest(was.levels, was.due_ats, was.seqs) k(level, due, seq);

    -- Only now, for the way here may have been long. If somebody else is at it: the next time.
    if not pg_try_advisory_xact_lock(hashtextextended('mainstay floors {{schema:literal}}.{{queue:literal}}', 0)) then
        return sunk;
    end if;
    insert into "{{schema}}"."{{queue}}_floor" (
           n, noted_at, swept_at, next_xid, made_in, quiet, held_up, levels, due_ats, seqs, next_due_ats, next_seqs)
    select f.n + 1, f.noted_at, moment, case when not sunk then f.next_xid end, f.made_in, case when sunk then 0 else f.quiet end, f.held_up, f.levels,
           case when sunk then array_fill('-infinity'::timestamptz, array[cardinality(f.levels)]) else f.due_ats end,
           case when sunk then array_fill(0::bigint, array[cardinality(f.levels)]) else f.seqs end,
           case when sunk then array_fill('-infinity'::timestamptz, array[cardinality(f.levels)]) else f.next_due_ats end,
           case when sunk then array_fill(0::bigint, array[cardinality(f.levels)]) else f.next_seqs end
      from "{{schema}}"."{{queue}}_floor" f order by f.n desc limit 1
    on conflict do nothing;
    delete from "{{schema}}"."{{queue}}_floor" f where f.n < was.n - 16;
    return sunk;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_sweep"(interval) is
    'Internal: looks for open items below the floors, unless somebody did less than min_age ago, and puts the floors back if there are any. Returns whether there were.';
