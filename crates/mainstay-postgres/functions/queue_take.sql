-- Claiming. Short transactions only: the rows and keys that a claim looks at are locked until its transaction ends.
--
-- Order of events, each a statement with its own snapshot: lock due rows (skipping what others have locked); for rows with an
-- ordering key, lock the keys and look again; end what is expired or was delivered too often; mark the rest as claimed.
-- The second look is what keeps a key's items apart: a transaction that commits late can bring in an item in front of one that
-- was claimed a moment ago, and a snapshot from before that claim would run both.
--
-- A lapsed lease alone does not free a key: its owner may be renewing it in this very moment. So the claim ends the lapsed claims of
-- later items of the key (the fence), and hands an item out only if no later one is left in progress.

create or replace function "{{schema}}"."{{queue}}_take"(
    owner uuid,
    lease_seconds double precision,
    batch integer,
    delivery_limit integer default 10,
    only_topics text[] default null,
    except_topics text[] default null,
    -- Where this owner's last claim ended, if that is a good place to begin: what lies before was taken a moment ago, and walking
    -- over it costs as much as claiming it. Only a hint. A claim that is not filled from there looks at the rest as well.
    from_due timestamptz default null,
    from_seq bigint default null
) returns table (
    verdict smallint, reason text,
    id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint,
    created_at timestamptz, due_at timestamptz, expires_at timestamptz, ordering_key text, priority smallint, headers jsonb,
    locked_until timestamptz, claimed_at timestamptz, last_error text, requested_due_at timestamptz, place tid, seq bigint
)
language plpgsql volatile
-- The plan must not depend on statistics: a queue is empty when it is analysed and full when it matters. Index ranges in
-- index order are right at any size. JIT alone can cost more than a hundred claims.
set jit = off set enable_indexscan = on set enable_indexonlyscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
-- The worker that called has given up, or will soon.
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    claimant constant uuid := $1;
    -- Not the start of the statement: an item is due from when it was put there, and that can be in this very statement.
    moment constant timestamptz := clock_timestamp();
    lease_end timestamptz;
    seen bigint;                -- the row of floors that this call goes by
    known smallint[];           -- the levels in it, highest first
    floor_due timestamptz[];    -- where each begins
    floor_seq bigint[];
    had_no_xid boolean;
    sound boolean;
    ripe boolean;
    quiet boolean;
    unswept boolean;
    paused text[];
    strange smallint[];
    active boolean;
    levels smallint[];
    level smallint;
    depth integer;
    share integer;
    visits integer[];           -- positions in levels, in the order they are visited
    quotas integer[];           -- how much each visit may take
    after_due timestamptz[];    -- per level: how far this call has looked
    after_seq bigint[];
    emptied boolean[];
    at integer;
    want integer;
    room integer;
    walked bigint;
    rounds integer := 0;
    taken timestamptz;
    got tid[];
    got_count integer;
    got_keyed boolean;
    got_over boolean;
    got_due timestamptz;
    got_seq bigint;
    hinted boolean;
    end_due timestamptz;        -- up to where, this included
    end_seq bigint;
    my_keys text[];
    behind text[];
    held text[];
    waiting tid[];
    go tid[];
    fenced tid[];
    lapsed tid[];
    over tid[];
    picked tid[];
    ended tid[];
    ended_keys text[];
    ended_ids uuid[];
begin
    if claimant is null or claimant = '00000000-0000-0000-0000-000000000000' then
        raise exception using errcode = '22023', message = '{{queue:literal}}_claim: owner must not be null or nil';
    end if;
    if lease_seconds is null or not (lease_seconds > 0 and lease_seconds <= 1e9) then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_claim: lease_seconds must be more than 0 and at most 1000000000, got ' || coalesce(lease_seconds::text, 'null');
    end if;
    if batch is null or batch not between 1 and 100000 then
        raise exception using errcode = '22023', message = '{{queue:literal}}_claim: batch must be 1 to 100000, got ' || coalesce(batch::text, 'null');
    end if;
    if delivery_limit is null or delivery_limit < 1 then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_claim: delivery_limit must be 1 or more, got ' || coalesce(delivery_limit::text, 'null');
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = '25001',
            message = '{{queue:literal}}_claim: needs READ COMMITTED, the transaction is ' || upper(current_setting('transaction_isolation')),
            hint = 'One old snapshot cannot show that an ordering key is free. Claim in a transaction of its own.';
    end if;
    if array_position(only_topics, null) is not null or array_position(except_topics, null) is not null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_claim: '
            || case when array_position(only_topics, null) is not null then 'only_topics' else 'except_topics' end || ' must not contain null';
    end if;

    -- Before anything that gives this transaction an xid: see floor.
    select f.n, f.levels, f.due_ats, f.seqs, pg_current_xact_id_if_assigned() is null,
           f.made_in = f.tableoid and f.noted_at <= clock_timestamp(),
           f.noted_at <= moment - coalesce(nullif(current_setting('mainstay.floor_pace', true), ''), '50 ms')::interval
               and case when f.next_xid is null then pg_current_xact_id_if_assigned() is null
                        else pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= f.next_xid
                             or f.noted_at <= moment - case when f.held_up then interval '250 ms' else interval '1 s' end end,
           f.quiet >= 2, f.swept_at < moment - interval '1 minute', array(select p.topic from "{{schema}}"."{{queue}}_paused" p)
      into seen, known, floor_due, floor_seq, had_no_xid, sound, ripe, quiet, unswept, paused
      from "{{schema}}"."{{queue}}_floor" f order by f.n desc limit 1;
    if seen is null then
        seen := 0;
        known := '{}';
        floor_due := '{}';
        floor_seq := '{}';
        paused := array(select p.topic from "{{schema}}"."{{queue}}_paused" p);
    elsif not sound then
        floor_due := array_fill('-infinity'::timestamptz, array[cardinality(known)]);
    end if;
    if paused <> '{}' then
        except_topics := except_topics || paused;
    end if;
    loop
        room := batch;
        walked := 0;
        picked := '{}';
        ended := '{}';

        -- Levels that are not known yet have no floor: one probe for each gap between those that are. Not max(): planned for an
        -- empty table that reads the whole index.
        loop
            strange := array(select g.priority
                               from unnest(10::smallint || known, known || (-10)::smallint) e(above, below)
                              cross join lateral (select q.priority from "{{schema}}"."{{queue}}" q
                                                   where not q.parked and q.priority < e.above and q.priority > e.below
                                                   order by q.priority desc limit 1) g);
            exit when strange = '{}';
            sound := false;
            select array_agg(k.level order by k.level desc), array_agg(k.due order by k.level desc), array_agg(k.seq order by k.level desc)
              into known, floor_due, floor_seq
              from (select u.level, u.due, u.seq from unnest(known, floor_due, floor_seq) u(level, due, seq)
                    union all
                    select u.level, '-infinity', 0 from unnest(strange) u(level)) k;
        end loop;
        levels := known;
        after_due := floor_due;
        after_seq := floor_seq;
        if cardinality(known) > 1 then
            -- Those in use.
            select coalesce(array_agg(k.level order by k.place), '{}'), array_agg(k.due order by k.place), array_agg(k.seq order by k.place)
              into levels, after_due, after_seq
              from unnest(known, floor_due, floor_seq) with ordinality k(level, due, seq, place)
             where (select true from "{{schema}}"."{{queue}}" q
                     where not q.parked and q.priority = k.level and (q.due_at, q.seq) > (k.due, k.seq) order by q.due_at, q.seq limit 1);
        end if;
        depth := cardinality(levels);
        exit when depth = 0;

        if depth = 1 then
            visits := '{1}';
            quotas := array[batch];
        else
            -- Every lower level has a small share, all of them at most half of the batch; then the highest goes first.
            -- Where the batch is too small to share, one claim in ten starts at a random level instead, so no level waits for ever.
            share := least(greatest(batch / 10, 1), batch / 2 / (depth - 1));
            select array_agg(v.place order by v.turn), array_agg(v.quota order by v.turn) into visits, quotas
              from (select s as place, case s when 1 then batch - share * (depth - 1) else share end as quota, s as turn
                      from generate_series(1, depth) s where share > 0
                    union all
                    select 1 + floor(random() * depth)::integer, batch, 50 where share = 0 and random() < 0.1
                    union all
                    select s, batch, 100 + s from generate_series(1, depth) s) v;
        end if;
        emptied := array_fill(false, array[depth]);

        for visit in 1 .. cardinality(visits) loop
            at := visits[visit];
            want := least(room, quotas[visit]);
            level := levels[at];
            got_due := after_due[at];
            got_seq := after_seq[at];
            end_due := moment;
            end_seq := 9223372036854775807;
            hinted := depth = 1 and rounds = 0 and coalesce((from_due, from_seq) > (got_due, got_seq), false);
            if hinted then
                got_due := from_due;
                got_seq := from_seq;
            end if;
            while want > 0 and not emptied[at] loop
                select array_agg(x.ctid), count(*), bool_or(x.keyed), bool_or(x.over) into got, got_count, got_keyed, got_over
                  from (select q.ctid, q.ordering_key is not null as keyed, q.attempts >= delivery_limit or q.expires_at <= moment as over
                          from "{{schema}}"."{{queue}}" q
                         where not q.parked and q.priority = level and (q.due_at, q.seq) > (got_due, got_seq) and (q.due_at, q.seq) <= (end_due, end_seq)
                           and (q.status = 0 or q.locked_until <= moment)
                           and (only_topics is null or q.topic = any (only_topics))
                           and (except_topics is null or q.topic <> all (except_topics))
                         order by q.due_at, q.seq
                         limit want for update skip locked) x;
                if got_count >= want and depth = 1 and not (got_keyed or got_over is true) then
                    -- Mostly that is all. Where it ended is for those who go on from there.
                    picked := picked || got;
                    room := room - got_count;
                    exit;
                end if;
                if got_count > 0 then
                    select q.due_at, q.seq into got_due, got_seq from "{{schema}}"."{{queue}}" q where q.ctid = got[got_count];
                end if;
                if got_count < want and hinted then
                    hinted := false;
                    got_due := after_due[at];
                    got_seq := after_seq[at];
                    -- Not beyond the present, should the clock have been put back.
                    end_due := least(from_due, moment);
                    end_seq := case when from_due <= moment then from_seq else end_seq end;
                    continue when got_count = 0;
                else
                    emptied[at] := got_count < want;
                    exit when got_count = 0;
                    -- Where the looking from the hint has come to says nothing of what lies before it.
                    if not hinted then
                        after_due[at] := got_due;
                        after_seq[at] := got_seq;
                    end if;
                end if;
                walked := walked + got_count;

                if not (got_keyed or got_over is true) then
                    picked := picked || got;
                    room := room - got_count;
                    want := want - got_count;
                    continue;
                end if;

                my_keys := '{}';
                if got_keyed then
                    -- Tried, never waited for: who holds a key is claiming from it right now. Keys share 1024 locks, so that
                    -- claims of any size, however many at once, cannot fill the server's lock table. The locks of a queue are
                    -- 1024 numbers in a row of the 64-bit space, at a place that a hash of its name gives: an application that
                    -- takes advisory locks of its own does not meet them.
                    select coalesce(array_agg(k.ordering_key), '{}') into my_keys
                      from (select distinct m.ordering_key::text as ordering_key from "{{schema}}"."{{queue}}" m
                             where m.ctid = any (got) and m.ordering_key is not null) k
                     where pg_try_advisory_xact_lock(
                         (hashtextextended('mainstay claims {{schema:literal}}.{{queue:literal}}', 0) & -1024) + (hashtext(k.ordering_key) & 1023));
                end if;

                -- A new snapshot: it shows whatever was committed by those who held the keys before. ("in … is true" is looked up in
                -- a hash table, a plain "in" would become a join. The offset keeps each case from being evaluated once per use.)
                select coalesce(array_agg(c.ctid) filter (where c.place = 'turn' and not c.over), '{}'),
                       coalesce(array_agg(c.ctid) filter (where c.place in ('turn', 'fence') and c.over), '{}'),
                       array_agg(c.ordering_key) filter (where c.place = 'behind'), array_agg(c.ordering_key) filter (where c.place = 'held'),
                       array_agg(c.ctid) filter (where c.place = 'fence' and not c.over)
                  into go, over, behind, held, fenced
                  from (select m.ctid, m.ordering_key, m.attempts >= delivery_limit or coalesce(m.expires_at <= moment, false) as over,
                               case when m.ordering_key is null then 'turn'
                                    when (m.ordering_key in (select u.key from unnest(my_keys) u(key))) is not true then 'busy'
                                    when exists (select from "{{schema}}"."{{queue}}_hold" h where h.ordering_key = m.ordering_key) then 'held'
                                    when exists (select from "{{schema}}"."{{queue}}" a
                                                  where not a.parked and a.ordering_key = m.ordering_key and a.seq < m.seq)
                                      or exists (select from "{{schema}}"."{{queue}}" a
                                                  where a.parked and a.ordering_key = m.ordering_key and a.seq < m.seq) then 'behind'
                                    -- It committed late: a later item of the key was free to go and is running, or was until its lease
                                    -- lapsed. The last test, because it reads all that is not parked of the lane.
                                    else coalesce((select case when bool_or(a.locked_until > moment or a.ctid = any (picked)) then 'overtaken' else 'fence' end
                                                     from "{{schema}}"."{{queue}}" a
                                                    where not a.parked and a.ordering_key = m.ordering_key and a.seq > m.seq
                                                      and (a.status = 1 or a.ctid = any (picked)) having count(*) > 0), 'turn') end as place
                          from "{{schema}}"."{{queue}}" m where m.ctid = any (got) offset 0) c;
                if fenced is not null then
                    -- In two steps, as in reap: the first locks them, so that they cannot change in between. What somebody else has locked,
                    -- or has renewed meanwhile, stays in progress, and what is in front of it waits.
                    lapsed := array(
                        select a.ctid from (select m.ordering_key::text as key, m.seq from "{{schema}}"."{{queue}}" m where m.ctid = any (fenced) offset 0) f
                         cross join lateral (select q.ctid from "{{schema}}"."{{queue}}" q
                                              where not q.parked and q.ordering_key = f.key and q.seq > f.seq and q.status = 1 and q.locked_until <= moment
                                                for update skip locked) a);
                    update "{{schema}}"."{{queue}}" m set status = 0, owner = null, locked_until = null where m.ctid = any (lapsed);
                    go := go || array(
                        select m.ctid from "{{schema}}"."{{queue}}" m
                         where m.ctid = any (fenced)
                           and (select true from "{{schema}}"."{{queue}}" q
                                 where not q.parked and q.ordering_key = m.ordering_key and q.seq > m.seq and q.status = 1 limit 1) is null);
                end if;
                picked := picked || go;
                ended := ended || over;
                room := room - cardinality(go);
                want := want - cardinality(go);

                -- Park what has to wait, and with it what waits behind that: lanes are met one item at a time, and a long one would
                -- take long to put away. Each behind something that cannot go away before this commits. Bounded, for this is a claim.
                waiting := '{}';
                if behind is not null then
                    with lanes as (select distinct u.key from unnest(behind) u(key)),
                    anchored as materialized (
                        select l.key, f.seq from lanes l
                         cross join lateral (select a.seq from "{{schema}}"."{{queue}}" a
                                              where not a.parked and a.ordering_key = l.key
                                              order by a.seq limit 1 for key share skip locked) f)
                    select coalesce(array_agg(w.ctid), '{}') into waiting
                      from anchored a
                     cross join lateral (select q.ctid from "{{schema}}"."{{queue}}" q
                                          where not q.parked and q.ordering_key = a.key and q.seq > a.seq and q.status = 0
                                          order by q.seq limit 20 + 2000 / cardinality(behind) for update skip locked) w;
                end if;
                if held is not null then
                    with lanes as (select distinct u.key from unnest(held) u(key)),
                    anchored as materialized (
                        select f.ordering_key from lanes l
                         cross join lateral (select h.ordering_key from "{{schema}}"."{{queue}}_hold" h
                                              where h.ordering_key = l.key for key share skip locked) f)
                    select waiting || coalesce(array_agg(w.ctid), '{}') into waiting
                      from anchored a
                     cross join lateral (select q.ctid from "{{schema}}"."{{queue}}" q
                                          where not q.parked and q.ordering_key = a.ordering_key and q.status = 0
                                          order by q.seq limit 20 + 2000 / cardinality(held) for update skip locked) w;
                end if;
                if waiting <> '{}' then
                    update "{{schema}}"."{{queue}}" m set parked = true where m.ctid = any (waiting);
                    walked := walked + cardinality(waiting);
                end if;

                -- Go on past items that could not be taken, but with something to show don't keep the caller waiting for more, and
                -- never without end: a claim that runs into a timeout has done nothing, and the next one starts from the same place.
                exit when walked > 2000 + 4 * batch::bigint and (picked <> '{}' or ended <> '{}') or walked > 20000 + 4 * batch::bigint;
            end loop;
            exit when room <= 0 or walked > 2000 + 4 * batch::bigint and (picked <> '{}' or ended <> '{}') or walked > 20000 + 4 * batch::bigint;
        end loop;

        ended_keys := null;
        if ended <> '{}' then
            select array_agg(m.ordering_key) filter (where m.ordering_key is not null), array_agg(m.id) into ended_keys, ended_ids
              from "{{schema}}"."{{queue}}" m where m.ctid = any (ended);
            return query
            with gone as (
                delete from "{{schema}}"."{{queue}}" m where m.ctid = any (ended) returning m.*),
            ruled as (
                select g.*, case when g.expires_at <= moment then 'expired' else 'delivery-limit' end as why,
                       left(case when g.expires_at <= moment then 'expired at ' || to_char(g.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
                                 else 'delivery limit of ' || delivery_limit || ' reached' end
                            || coalesce('; last error: ' || g.last_error, ''), 2048) as complaint
                  from gone g),
            kept as (
                insert into "{{schema}}"."{{queue}}_history" (
                    seq, created_at, due_at, requested_due_at, processed_at, expires_at, generation, attempts, priority, status, id, message_id,
                    processed_by, hold_on_failure, topic, reason, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
                select g.seq, g.created_at, g.due_at, g.requested_due_at, moment, g.expires_at, g.generation, g.attempts, g.priority, 3, g.id, g.message_id,
                       g.owner, g.hold_on_failure, g.topic, g.why, g.ordering_key, g.idempotency_key, g.correlation_id, g.complaint, g.headers, g.payload
                  from ruled g),
            stopped as (
                insert into "{{schema}}"."{{queue}}_hold" (ordering_key, work_item_id, held_at)
                select g.ordering_key, g.id, moment from ruled g where g.hold_on_failure and g.ordering_key is not null
                on conflict do nothing)
            -- Without the payload: it is kept in the history, and there may be thousands of these.
            select 3::smallint, g.why, g.id, g.message_id, g.topic::text, null::text, g.correlation_id::text, g.attempts, g.generation,
                   g.created_at, g.due_at::timestamptz, g.expires_at::timestamptz, g.ordering_key::text, g.priority::smallint, g.headers::jsonb,
                   null::timestamptz, moment, g.complaint, g.requested_due_at::timestamptz, null::tid, g.seq
              from ruled g;
            if ended_keys is not null then
                perform "{{schema}}"."{{queue}}_advance"(ended_keys);
            end if;
            if '{{queue:literal}}' = '{{outbox:literal}}' and "{{schema}}"."{{joins}}_waiting"() then
                perform "{{schema}}"."{{joins}}_ended"('{}', ended_ids);
            end if;
        end if;
        -- With nothing in hand, the items behind those that ended may have their turn now. A few rounds of that at most: each walks
        -- past what the earlier ones have ended.
        rounds := rounds + 1;
        exit when picked <> '{}' or ended_keys is null or rounds >= 20;
    end loop;

    active := picked <> '{}' or ended <> '{}' or rounds > 1;
    if sound is not true and known <> '{}' or ripe and (active or not quiet) then
        perform "{{schema}}"."{{queue}}_raise_floor"(seen, had_no_xid is true, known, active);
    end if;
    if picked = '{}' then
        if unswept then
            perform "{{schema}}"."{{queue}}_sweep"('1 minute');
        end if;
        return;
    end if;
    -- From now, not from the start: the way here may have been long, and the lease is for the work.
    taken := clock_timestamp();
    -- Generations count up from the item's number, which no other item ever gets: should retention delete an item and its id be used
    -- again, no claim of the new one is taken for a claim of the old one.
    lease_end := taken + make_interval(secs => lease_seconds);
    if depth = 1 then
        -- Rows come as they lie in the table, which is near enough to their order; sorting would cost a fifth of the claim.
        return query
        update "{{schema}}"."{{queue}}" m
           set status = 1, owner = claimant, generation = greatest(m.generation, m.seq << 16) + 1, attempts = m.attempts + 1, locked_until = lease_end
         where m.ctid = any (picked)
        returning 1::smallint, null::text, m.id, m.message_id, m.topic::text, m.payload, m.correlation_id::text, m.attempts, m.generation,
                  m.created_at, m.due_at::timestamptz, m.expires_at::timestamptz, m.ordering_key::text, m.priority::smallint, m.headers::jsonb,
                  m.locked_until, taken, m.last_error::text, m.requested_due_at::timestamptz, m.ctid, m.seq;
    else
        return query
        with claimed as (
            update "{{schema}}"."{{queue}}" m
               set status = 1, owner = claimant, generation = greatest(m.generation, m.seq << 16) + 1, attempts = m.attempts + 1, locked_until = lease_end
             where m.ctid = any (picked)
            returning m.*, m.ctid)
        select 1::smallint, null::text, c.id, c.message_id, c.topic::text, c.payload, c.correlation_id::text, c.attempts, c.generation,
               c.created_at, c.due_at::timestamptz, c.expires_at::timestamptz, c.ordering_key::text, c.priority::smallint, c.headers::jsonb,
               c.locked_until, taken, c.last_error::text, c.requested_due_at::timestamptz, c.ctid, c.seq
          from claimed c order by c.priority desc, c.due_at, c.seq;
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_take"(uuid, double precision, integer, integer, text[], text[], timestamptz, bigint) is
    'Internal: what claim does, and also tells what it ended on the way. verdict 1 = claimed, 3 = failed now (reason expired or delivery-limit).';
