-- Turning what is due into messages. Claim, enqueue and ack happen in this one function, so in one transaction: whoever dies midway
-- has done nothing, and two who call it at once share the work.
--
-- The message has the ids of the item it comes from. Should it be there already, under both ids, it is not added again. Should
-- another message have the item's id, this one cannot be made: the item fails and says so, for nothing may be lost without a word.
-- An item that says in a header which ordering key its message is to have (see timers_schedule) is taken at its word.
--
-- An open transaction that has inserted an item's id holds up that item alone: it is put off, as it would be by a release.
--
-- Payloads go from table to table and never through a variable: a batch of large ones is more than a value can hold.

create or replace function "{{schema}}"."{{queue}}_forward"(owner uuid, batch integer default 100, keep_payload boolean default true) returns setof uuid
language plpgsql volatile
-- Rows by their place, and one index lookup for each id: a plan made while the tables were empty must do when they hold millions.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_bitmapscan = on set enable_tidscan = on
set plan_cache_mode = force_generic_plan
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    places tid[];
    new_places tid[];
    taken uuid[];
    generations bigint[];
    outcomes smallint[];
    delays double precision[];
    errors text[];
    tried tid[];
    blocked tid[] := '{}';
    step integer;
    waits integer := 0;
    made integer;
begin
    -- No delivery limit: this is not a delivery.
    select array_agg(t.place) into places from "{{schema}}"."{{queue}}_take"(owner, 60, batch, 2147483647) t where t.verdict = 1;
    if places is null then
        return;
    end if;
    -- In the order in which they fell due, which is then the order of the messages. Known: null if nothing has the id, true if it is
    -- this very message, false if it is another. (Each lookup is a subquery with an aggregate: "exists" could become a walk through
    -- all there is.)
    select array_agg(i.id), array_agg(i.generation), array_agg(i.ctid), array_agg(i.ctid) filter (where i.known is null),
           array_agg(case when i.known is false then 2 else 0 end::smallint),
           case when bool_or(i.known is false) then
               array_agg(case when i.known is false then 'the outbox already has another message under this id' end) end
      into taken, generations, places, new_places, outcomes, errors
      from (select q.ctid, q.id, q.generation,
                   greatest((select bool_or(o.message_id = q.message_id) from "{{schema}}"."{{outbox}}" o where o.id = q.id),
                            (select bool_or(h.message_id = q.message_id) from "{{schema}}"."{{outbox}}_history" h where h.id = q.id)) as known
              from "{{schema}}"."{{queue}}" q where q.ctid = any (places)
             order by q.due_at, q.seq) i;
    -- All at once first. Where that has to wait, in halves, down to the one that is blocked; no wait is long, for many can be.
    step := cardinality(new_places);
    made := coalesce(step, 0);
    while new_places <> '{}' loop
        tried := new_places[:step];
        begin
            perform set_config('lock_timeout', case when waits = 0 then '50ms' when waits < 10 then '10ms' else '1ms' end, true);
            -- When it is now is the rule of add: within the insert, and once there is an xid.
            insert into "{{schema}}"."{{outbox}}" (
                id, message_id, topic, payload, correlation_id, headers, created_at, due_at, requested_due_at, ordering_key, hold_on_failure, priority, expires_at)
            select i.id, i.message_id, i.topic, i.payload, i.correlation_id, i.headers, r.now, greatest(r.now, i.due_at), i.due_at,
                   i.lane, i.hold_on_failure, i.priority, i.expires_at
              from (select case when pg_current_xact_id() is not null then clock_timestamp() end as now offset 0) r,
                   (select q.id, q.message_id, q.topic, q.payload, q.correlation_id, nullif(q.headers::jsonb - 'mainstay-ordering-key', '{}') as headers,
                           q.due_at::timestamptz as due_at,
                           coalesce(q.ordering_key::text, nullif(left(q.headers::jsonb ->> 'mainstay-ordering-key', 255), '')) as lane,
                           q.hold_on_failure, q.priority, q.expires_at
                      from "{{schema}}"."{{queue}}" q where q.ctid = any (tried)
                     order by q.due_at, q.seq) i;
            new_places := new_places[step + 1:];
            step := least(step * 2, 100000);
        -- A transaction that has just committed the id: the next call finds the message there.
        exception when lock_not_available or unique_violation then
            waits := waits + 1;
            if waits > 1000 then
                blocked := blocked || new_places;
                new_places := '{}';
            elsif step = 1 then
                blocked := blocked || tried;
                new_places := new_places[2:];
            end if;
            step := greatest(step / 2, 1);
        end;
    end loop;
    if cardinality(blocked) < made then
        perform "{{schema}}"."{{outbox}}_wake"();
    end if;
    if blocked <> '{}' then
        select array_agg(case when u.place = any (blocked) then 3 else u.outcome end::smallint order by u.n),
               array_agg(case when u.place = any (blocked) then 1 end::double precision order by u.n)
          into outcomes, delays from unnest(places, outcomes) with ordinality u(place, outcome, n);
    end if;
    perform set_config('lock_timeout', '4s', true);
    perform "{{schema}}"."{{queue}}_end"(owner, taken, generations, outcomes, delays, errors, keep_payload, places);
    return query select u.id from unnest(taken, outcomes) u(id, outcome) where u.outcome = 0;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_forward"(uuid, integer, boolean) is
    'Makes a message in {{outbox:literal}} of each item that is due, under the same ids, and ends the item. Returns the ids of those whose message is there. '
    'An item whose id another message has fails; one whose id an open transaction has inserted is put off for a second. Call it until it returns fewer than the batch.';
