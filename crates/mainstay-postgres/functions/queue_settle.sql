-- Ending claims, many at once and each in its own way.
-- An item changes only if id, owner and generation are those of the claim that holds it; a worker that lost its claim changes nothing.
--
-- Nearly all claims end well, so the plain ack has a way of its own: rows are fetched by where the claim has put them, and not
-- looked up one by one. A place is only a hint. A renewal or a vacuum moves rows, so whatever is not found there, or is not the
-- claim asked for, is looked up by its id.

create or replace function "{{schema}}"."{{queue}}_end"(
    owner uuid,
    ids uuid[],
    generations bigint[],
    outcomes smallint[],
    delays double precision[],
    errors text[],
    keep_payload boolean,
    places tid[]
) returns uuid[]
language plpgsql volatile
-- One index lookup for each id given, whatever the statistics say. Only bitmap scans are left because they cannot walk a whole index:
-- a plan made while the queue was empty would do that, once for each id, for as long as it is cached.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_bitmapscan = on set enable_tidscan = on set plan_cache_mode = force_generic_plan
-- The worker that called has given up, or will soon.
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    size constant integer := coalesce(cardinality(ids), 0);
    known boolean;
    plain boolean;
    ending boolean;
    returning_some boolean;
    done_ids uuid[] := ids;
    done_generations bigint[] := generations;
    done_spots tid[] := places;
    hinted boolean := true;
    patience text := '50ms';
    began constant timestamptz := clock_timestamp();
    todo_ids uuid[];
    spots tid[];
    tried tid[];
    found_ids uuid[];
    found_count bigint;
    changed uuid[] := '{}';
    returned uuid[];
    holding uuid[];
    failed_ids uuid[];
    left_keys text[];
begin
    if $1 is null or $1 = '00000000-0000-0000-0000-000000000000' then
        raise exception using errcode = '22023', message = '{{queue:literal}}_settle: owner must not be null or nil';
    end if;
    if ids is null then
        raise exception using errcode = '22023', message = '{{queue:literal}}_settle: ids must not be null';
    end if;
    if outcomes is null or cardinality(outcomes) <> size then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_settle: outcomes must have as many elements as ids (' || size || '), got ' || coalesce(cardinality(outcomes)::text, 'null');
    end if;
    if cardinality(generations) <> size then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_settle: generations must have as many elements as ids (' || size || '), got ' || cardinality(generations);
    end if;
    if cardinality(delays) <> size then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_settle: delays must have as many elements as ids (' || size || '), got ' || cardinality(delays);
    end if;
    if cardinality(errors) <> size then
        raise exception using errcode = '22023',
            message = '{{queue:literal}}_settle: errors must have as many elements as ids (' || size || '), got ' || cardinality(errors);
    end if;
    if size = 0 then
        return null;
    end if;
    select bool_and(o.outcome between 0 and 8) and count(o.outcome) = size, bool_and(o.outcome = 0) and errors is null,
           bool_or(o.outcome not in (1, 3)), bool_or(o.outcome in (1, 3))
      into known, plain, ending, returning_some from unnest(outcomes) o(outcome);
    if not known then
        raise exception using errcode = '22023', message = '{{queue:literal}}_settle: outcomes must be 0 (ack), 1 (abandon), 2 (fail), 3 (release), '
            || '4 (fail: delivery limit), 5 (fail: expired), 6 (fail: cancelled), 7 (never handed out: delivery limit) or 8 (never handed out: expired)';
    end if;
    if delays is not null and exists (select from unnest(delays) d(delay) where not (d.delay > 0 and d.delay <= 1e9)) then
        raise exception using errcode = '22023', message = '{{queue:literal}}_settle: delays must be more than 0 and at most 1000000000 seconds';
    end if;

    -- One outcome per claim, the first wins (an id may come twice, with a stale claim and with the one that holds).
    if not plain then
        select array_agg(a.id), array_agg(a.generation), array_agg(a.place) into done_ids, done_generations, done_spots
          from (select distinct on (u.id, u.generation) u.id, u.generation, u.place, u.outcome, u.error
                  from unnest(ids, generations, outcomes, errors, places) with ordinality as u(id, generation, outcome, error, place, n)
                 order by u.id, u.generation, u.n) a
         where a.outcome = 0 and nullif(a.error, '') is null;
    end if;

    -- A transaction that attaches items in two calls takes their locks in an order of its own. So this never waits for long while it has
    -- locks: what does not come off is undone by the end of the subtransaction, and tried again once what was locked is free.
    loop
        begin
            -- An assignment, because that is cheaper than a statement.
            patience := set_config('lock_timeout', patience, true);
            todo_ids := done_ids;
            spots := case when hinted then done_spots end;

            -- Mostly all of them are held and lie where they were put. Then nothing need pass from the delete to the insert: both read the same
            -- snapshot, in which a place has one row, so as many rows gone as were asked for are the very rows kept. Otherwise, or if another
            -- has ended one of them meanwhile, this is undone and the loop below takes what is left, with the next attempt.
            if hinted and cardinality(array_remove(spots, null)) = cardinality(done_ids) then
                with kept as (
                    insert into "{{schema}}"."{{queue}}_history" (
                        seq, created_at, due_at, requested_due_at, processed_at, expires_at, generation, attempts, priority, status, id, message_id,
                        processed_by, hold_on_failure, topic, reason, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
                    select m.seq, m.created_at, m.due_at, m.requested_due_at, moment, m.expires_at, m.generation, m.attempts, m.priority, 2, m.id, m.message_id,
                           m.owner, m.hold_on_failure, m.topic, null, m.ordering_key, m.idempotency_key, m.correlation_id, m.last_error, m.headers,
                           case when keep_payload then m.payload end
                      from "{{schema}}"."{{queue}}" m where m.ctid = any (spots)),
                gone as (
                    delete from "{{schema}}"."{{queue}}" m
                     where m.ctid = any (spots) and m.owner = $1 and m.status = 1
                       and case when generations is null then (m.id in (select u.id from unnest(done_ids) u(id))) is true
                                else ((m.id, m.generation) in (select u.id, u.generation from unnest(done_ids, done_generations) u(id, generation))) is true end
                    returning m.ordering_key)
                select count(*), array_agg(g.ordering_key) filter (where g.ordering_key is not null) into found_count, left_keys from gone g;
                if found_count < cardinality(done_ids) then
                    raise exception using errcode = 'MSNOT', message = 'not all of them';
                end if;
                changed := done_ids;
                todo_ids := null;
            end if;

            while todo_ids is not null loop
                if spots is null or cardinality(array_remove(spots, null)) <> cardinality(todo_ids) then
                    spots := array(select m.ctid from "{{schema}}"."{{queue}}" m
                                    where m.id = any (todo_ids) and m.owner = $1 and m.status = 1
                                      and (generations is null
                                           or ((m.id, m.generation) in (select u.id, u.generation from unnest(todo_ids, done_generations) u(id, generation))) is true));
                    -- The same once more: they are there, but something of the database's own keeps them from going.
                    exit when spots = '{}' or spots = tried and found_ids is null;
                end if;
                tried := spots;
                -- ("in … is true" is looked up in a hash table, a plain "in" would become a join.)
                with gone as (
                    delete from "{{schema}}"."{{queue}}" m
                     where m.ctid = any (spots) and m.owner = $1 and m.status = 1
                       and case when generations is null then (m.id in (select u.id from unnest(todo_ids) u(id))) is true
                                else ((m.id, m.generation) in (select u.id, u.generation from unnest(todo_ids, done_generations) u(id, generation))) is true end
                    returning m.*),
                kept as (
                    insert into "{{schema}}"."{{queue}}_history" (
                        seq, created_at, due_at, requested_due_at, processed_at, expires_at, generation, attempts, priority, status, id, message_id,
                        processed_by, hold_on_failure, topic, reason, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
                    select g.seq, g.created_at, g.due_at, g.requested_due_at, moment, g.expires_at, g.generation, g.attempts, g.priority, 2, g.id, g.message_id,
                           g.owner, g.hold_on_failure, g.topic, null, g.ordering_key, g.idempotency_key, g.correlation_id, g.last_error, g.headers,
                           case when keep_payload then g.payload end
                      from gone g
                    returning id, ordering_key)
                select array_agg(k.id), left_keys || array_agg(k.ordering_key) filter (where k.ordering_key is not null) into found_ids, left_keys from kept k;
                changed := changed || found_ids;
                exit when cardinality(changed) >= cardinality(todo_ids);
                -- Not there, or moved on before this could lock it: where is it now?
                spots := null;
            end loop;

            -- In both statements: in order of id, so that two callers wait for each other's rows in one order.
            if ending and not plain then
                with asked as materialized (
                    select distinct on (u.id, u.generation) u.id, u.generation, u.outcome, nullif(left(u.error, 2048), '') as error
                      from unnest(ids, generations, outcomes, errors) with ordinality as u(id, generation, outcome, error, n)
                     order by u.id, u.generation, u.n),
                gone as (
                    delete from "{{schema}}"."{{queue}}" m using asked a
                     where m.id = a.id and m.owner = $1 and m.status = 1 and (generations is null or m.generation = a.generation)
                       and a.outcome not in (1, 3) and (a.outcome <> 0 or a.error is not null)
                    returning m.*, a.outcome, a.error),
                kept as (
                    insert into "{{schema}}"."{{queue}}_history" (
                        seq, created_at, due_at, requested_due_at, processed_at, expires_at, generation, attempts, priority, status, id, message_id,
                        processed_by, hold_on_failure, topic, reason, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
                    select g.seq, g.created_at, g.due_at, g.requested_due_at, moment, g.expires_at, g.generation,
                           -- What was never handed to a handler was no delivery.
                           g.attempts - case when g.outcome in (7, 8) then 1 else 0 end, g.priority,
                           case g.outcome when 0 then 2 else 3 end, g.id, g.message_id, g.owner, g.hold_on_failure, g.topic,
                           case g.outcome when 2 then 'handler' when 4 then 'delivery-limit' when 5 then 'expired' when 6 then 'cancelled' when 7 then 'delivery-limit' when 8 then 'expired' end, g.ordering_key, g.idempotency_key, g.correlation_id,
                           coalesce(g.error, g.last_error), g.headers, case when keep_payload or g.outcome <> 0 then g.payload end
                      from gone g
                    returning id, ordering_key, status, status = 3 and reason <> 'cancelled' and hold_on_failure and ordering_key is not null as holds)
                select changed || array_agg(k.id), left_keys || array_agg(k.ordering_key) filter (where k.ordering_key is not null), array_agg(k.id) filter (where k.holds),
                       array_agg(k.id) filter (where k.status = 3)
                  into changed, left_keys, holding, failed_ids from kept k;

                if holding is not null then
                    insert into "{{schema}}"."{{queue}}_hold" (ordering_key, work_item_id, held_at)
                    select distinct on (h.ordering_key) h.ordering_key, h.id, moment from "{{schema}}"."{{queue}}_history" h
                     where h.id = any (holding) and h.ordering_key is not null order by h.ordering_key
                    on conflict do nothing;
                end if;
            end if;
            -- A statement of its own: what was parked behind these items while the delete waited is visible only now.
            if left_keys is not null then
                perform "{{schema}}"."{{queue}}_advance"(left_keys);
            end if;
            -- What has ended is counted for its joins. A statement of its own, for the same reason: an attach that the delete has waited for.
            if '{{queue:literal}}' = '{{outbox:literal}}' and changed <> '{}' and "{{schema}}"."{{joins}}_waiting"() then
                perform "{{schema}}"."{{joins}}_ended"(
                    case when failed_ids is null then changed else array(select u.id from unnest(changed) u(id)
                                                                                    where (u.id in (select f.id from unnest(failed_ids) f(id))) is not true) end,
                    coalesce(failed_ids, '{}'));
            end if;

            if returning_some then
                with asked as materialized (
                    select distinct on (u.id, u.generation) u.id, u.generation, u.outcome, u.delay, nullif(left(u.error, 2048), '') as error
                      from unnest(ids, generations, outcomes, delays, errors) with ordinality as u(id, generation, outcome, delay, error, n)
                     order by u.id, u.generation, u.n),
                back as (
                    update "{{schema}}"."{{queue}}" m
                       set status = 0, owner = null, locked_until = null,
                           -- A release was no delivery.
                           attempts = case a.outcome when 3 then greatest(m.attempts - 1, 0) else m.attempts end,
                           -- 1, 2, 4 … 60 seconds by the number of deliveries before this one; the exponent is capped to stay in range.
                           -- Not before a reading of the clock that was taken after the transaction had its xid: see floor.
                           due_at = greatest(case when pg_current_xact_id() is not null then clock_timestamp() end, moment + make_interval(secs => coalesce(
                               a.delay, case a.outcome when 3 then 0 else least(2 ^ least(greatest(m.attempts - 1, 0), 6), 60) end))),
                           last_error = coalesce(a.error, m.last_error)
                      from asked a
                     where m.id = a.id and m.owner = $1 and m.status = 1 and (generations is null or m.generation = a.generation) and a.outcome in (1, 3)
                    returning m.id)
                select array_agg(b.id) into returned from back b;
                if returned is not null then
                    changed := changed || returned;
                    perform "{{schema}}"."{{queue}}_wake"();
                end if;
            end if;
            exit;
        exception
            when unique_violation or sqlstate 'MSNOT' then
                if not hinted then
                    raise;
                end if;
                hinted := false;
            when lock_not_available then
                if clock_timestamp() > began + interval '4 seconds' then
                    raise;
                end if;
                perform "{{schema}}"."{{queue}}_await"(ids);
                patience := case patience when '50ms' then '100ms' when '100ms' then '200ms' else '400ms' end;
        end;
        changed := '{}'; tried := null; found_ids := null; left_keys := null; holding := null; failed_ids := null; returned := null;
    end loop;
    return case when cardinality(changed) < size then changed end;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_end"(uuid, uuid[], bigint[], smallint[], double precision[], text[], boolean, tid[]) is
    'Internal: what settle does, told where the claims have put their rows. Returns the ids that changed, or null if that is all of them.';

-- Each wait is undone, so that this holds no item when it waits for one, nor when it returns.
create or replace function "{{schema}}"."{{queue}}_await"(ids uuid[]) returns void
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_bitmapscan = on set plan_cache_mode = force_generic_plan
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    had uuid[];
    busy uuid;
begin
    begin
        had := array(select m.id from "{{schema}}"."{{queue}}" m where m.id = any ($1) for update skip locked);
        busy := (select m.id from "{{schema}}"."{{queue}}" m
                  where m.id = any ($1) and (m.id in (select u.id from unnest(had) u(id))) is not true limit 1);
        raise exception using errcode = 'MSNOT', message = 'the items are free again';
    exception when sqlstate 'MSNOT' then
        null;
    end;
    if busy is null then
        -- It was something else, such as a place of a join. That takes no longer than a commit.
        perform pg_sleep(random() * 0.02);
        return;
    end if;
    begin
        perform 1 from (select m.id from "{{schema}}"."{{queue}}" m where m.id = busy for update) l;
        raise exception using errcode = 'MSNOT', message = 'the item is free again';
    exception when sqlstate 'MSNOT' then
        null;
    end;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_await"(uuid[]) is
    'Internal: waits for one of the items that another transaction has locked, if there is one, and locks none.';

create or replace function "{{schema}}"."{{queue}}_settle"(
    owner uuid,
    ids uuid[],
    generations bigint[],
    outcomes smallint[],
    delays double precision[] default null,
    errors text[] default null,
    keep_payload boolean default true
) returns setof uuid
language plpgsql volatile
as $mainstay$
begin
    return query select u.id from unnest(coalesce(
        "{{schema}}"."{{queue}}_end"($1, ids, generations, outcomes, delays, errors, keep_payload, null), ids)) u(id);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_settle"(uuid, uuid[], bigint[], smallint[], double precision[], text[], boolean) is
    'Ends claims: outcome 0 ack, 1 abandon (counts as a delivery; delay in seconds, null = backoff), 2 fail, 3 release (does not count; null = at once), '
    '4, 5 and 6 fail with reason delivery-limit, expired or cancelled, 7 and 8 with delivery-limit or expired before a handler had it (does not count). '
    'Returns the ids that changed; the others were not held by this owner and generation. generations as a whole may be null: owner alone is compared. '
    'Error texts are cut to 2048 characters. keep_payload = false drops the payload of acknowledged items.';
