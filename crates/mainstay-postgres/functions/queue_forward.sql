-- Turning what is due into messages. Claim, enqueue and ack happen in this one function, so in one transaction: whoever dies midway
-- has done nothing, and two who call it at once share the work.
--
-- The message has the ids of the item it comes from. Should it be there already, because somebody has put it there by hand, it is
-- not added again.

create or replace function "{{schema}}"."{{queue}}_forward"(owner uuid, batch integer default 100) returns setof uuid
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
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
    fresh boolean[];
begin
    -- No delivery limit: this is not a delivery.
    select array_agg(t.id) into taken from "{{schema}}"."{{queue}}_take"(owner, 60, batch, 2147483647) t where t.verdict = 1;
    if taken is null then
        return;
    end if;
    select array_agg(q.id order by q.due_at, q.seq), array_agg(q.generation order by q.due_at, q.seq), array_agg(q.message_id order by q.due_at, q.seq),
           array_agg(q.topic::text order by q.due_at, q.seq), array_agg(q.payload order by q.due_at, q.seq),
           array_agg(q.correlation_id::text order by q.due_at, q.seq), array_agg(q.headers::text order by q.due_at, q.seq),
           array_agg(q.due_at::timestamptz order by q.due_at, q.seq), array_agg(q.ordering_key::text order by q.due_at, q.seq),
           array_agg(q.hold_on_failure order by q.due_at, q.seq), array_agg(q.priority::smallint order by q.due_at, q.seq),
           array_agg(not exists (select from "{{schema}}"."{{outbox}}" o where o.id = q.id)
                     and not exists (select from "{{schema}}"."{{outbox}}_history" h where h.id = q.id) order by q.due_at, q.seq)
      into taken, generations, message_ids, topics, payloads, correlations, all_headers, due_ats, lanes, holds, priorities, fresh
      from "{{schema}}"."{{queue}}" q where q.id = any (taken);
    perform "{{schema}}"."{{outbox}}_add"(
        taken, message_ids, topics, payloads, correlations, all_headers, due_ats, null, lanes, holds, priorities, null, null, null, fresh);
    perform "{{schema}}"."{{queue}}_ack"(owner, taken, generations);
    return query select unnest(taken);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_forward"(uuid, integer) is
    'Makes a message in {{outbox:literal}} of each item that is due, under the same ids, and ends the item. Returns the ids. Call it until it returns fewer than the batch.';
