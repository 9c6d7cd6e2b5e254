-- Turning what is due into messages. Claim, enqueue and ack happen in this one function, so in one transaction: whoever dies midway
-- has done nothing, and two who call it at once share the work.
--
-- The message has the ids of the item it comes from. Should it be there already, because somebody has put it there by hand, it is
-- not added again. An item that says in a header which ordering key its message is to have (see timers_schedule) is taken at its word.

create or replace function "{{schema}}"."{{queue}}_forward"(owner uuid, batch integer default 100, keep_payload boolean default true) returns setof uuid
language plpgsql volatile
-- Rows by their place, and one index lookup for each id: a plan made while the tables were empty must do when they hold millions.
set jit = off set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off set enable_bitmapscan = on set enable_tidscan = on
set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
declare
    places tid[];
    taken uuid[];
    generations bigint[];
    message_ids uuid[];
    topics text[];
    payloads text[];
    correlations text[];
    all_headers text[];
    due_ats timestamptz[];
    lanes text[];
    holds boolean[];
    priorities smallint[];
    expiries timestamptz[];
    fresh boolean[];
begin
    -- No delivery limit: this is not a delivery.
    select array_agg(t.place) into places from "{{schema}}"."{{queue}}_take"(owner, 60, batch, 2147483647) t where t.verdict = 1;
    if places is null then
        return;
    end if;
    -- In the order in which they fell due, which is then the order of the messages. (Each lookup is a subquery with a limit: "exists"
    -- could become a walk through all there is.)
    select array_agg(i.id), array_agg(i.generation), array_agg(i.message_id), array_agg(i.topic), array_agg(i.payload), array_agg(i.correlation_id),
           array_agg(i.headers), array_agg(i.due_at), array_agg(i.lane), array_agg(i.hold_on_failure), array_agg(i.priority), array_agg(i.expires_at),
           array_agg(i.fresh), array_agg(i.ctid)
      into taken, generations, message_ids, topics, payloads, correlations, all_headers, due_ats, lanes, holds, priorities, expiries, fresh, places
      from (select q.ctid, q.id, q.generation, q.message_id, q.topic::text, q.payload, q.correlation_id::text,
                   nullif(q.headers::jsonb - 'mainstay-ordering-key', '{}')::text as headers, q.due_at::timestamptz,
                   coalesce(q.ordering_key::text, nullif(left(q.headers::jsonb ->> 'mainstay-ordering-key', 255), '')) as lane, q.hold_on_failure,
                   q.priority::smallint, q.expires_at::timestamptz,
                   (select true from "{{schema}}"."{{outbox}}" o where o.id = q.id limit 1) is null
                       and (select true from "{{schema}}"."{{outbox}}_history" h where h.id = q.id limit 1) is null as fresh
              from "{{schema}}"."{{queue}}" q where q.ctid = any (places)
             order by q.due_at, q.seq) i;
    perform "{{schema}}"."{{outbox}}_add"(
        taken, message_ids, topics, payloads, correlations, all_headers, due_ats, null, lanes, holds, priorities, expiries, null, null, fresh);
    perform "{{schema}}"."{{queue}}_end"(
        owner, taken, generations, array_fill(0::smallint, array[cardinality(taken)]), null, null, keep_payload, places);
    return query select unnest(taken);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_forward"(uuid, integer, boolean) is
    'Makes a message in {{outbox:literal}} of each item that is due, under the same ids, and ends the item. Returns the ids. Call it until it returns fewer than the batch.';
