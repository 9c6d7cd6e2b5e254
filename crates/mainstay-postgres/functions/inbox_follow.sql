-- The ledger follows the queue, whoever settles there: a worker, an operator, a claim that finds an item expired.
--
-- Order of locks everywhere: a row of the queue first, then its entry; of several entries in the order of their keys. Whoever comes
-- from the ledger takes the row of the queue only if nobody has it (skip locked), and so waits for nobody who might wait for him.

create or replace function "{{schema}}"."{{inbox}}_follow_settled"() returns trigger
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_indexscan = on set enable_bitmapscan = on
as $mainstay$
declare
    found_ids uuid[];
begin
    -- Done stays done, and dead stays dead until it is requeued: by then it is neither.
    select array_agg(x.id) into found_ids
      from (select s.id from settled s join "{{schema}}"."{{inbox}}_entry" e on e.work_item_id = s.id
             where e.state < 2 order by e.source, e.digest for update of e) x;
    if found_ids is not null then
        update "{{schema}}"."{{inbox}}_entry" e
           set state = s.status, processed_at = s.processed_at, attempts = s.attempts, owner = null, locked_until = null,
               last_error = coalesce(s.last_error, e.last_error)
          from settled s
         where s.id = any (found_ids) and e.work_item_id = s.id;
    end if;
    return null;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_follow_settled"() is 'Internal: what was settled in the queue is settled in the ledger.';

create or replace function "{{schema}}"."{{inbox}}_follow_added"() returns trigger
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_indexscan = on set enable_bitmapscan = on
as $mainstay$
begin
    -- Only what was requeued is there, and dead.
    update "{{schema}}"."{{inbox}}_entry" e set state = 0, processed_at = null, attempts = 0, owner = null, locked_until = null
      from added a where e.work_item_id = a.id and e.state = 3;
    return null;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_follow_added"() is 'Internal: what was requeued is no longer dead.';

create or replace function "{{schema}}"."{{inbox}}_follow_returned"() returns trigger
language plpgsql volatile
set jit = off
as $mainstay$
declare
    settled record;
begin
    -- It was marked as done or dead while a worker had it, and the worker gives it back.
    select e.state, e.last_error::text into settled from "{{schema}}"."{{inbox}}_entry" e where e.work_item_id = new.id and e.state >= 2;
    if found then
        perform "{{schema}}"."{{inbox}}_withdraw"(new.id, settled.state, settled.last_error);
    end if;
    return null;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_follow_returned"() is 'Internal: what was marked as settled while a worker had it does not come back.';

create or replace function "{{schema}}"."{{inbox}}_grasp"(work_item_id uuid) returns boolean
language plpgsql volatile
set jit = off
as $mainstay$
#variable_conflict use_column
declare
    status smallint;
begin
    -- A claim that only looks at it has it for a moment; whoever has it for longer is at it, though his claim may not be committed yet.
    for tries in 1 .. 10 loop
        perform from "{{schema}}"."{{inbox}}" q where q.id = $1 and q.status = 0 for update skip locked;
        if found then
            return true;
        end if;
        select q.status into status from "{{schema}}"."{{inbox}}" q where q.id = $1;
        if not found then
            return null;
        end if;
        exit when status = 1;
        perform pg_sleep(0.002);
    end loop;
    return false;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_grasp"(uuid) is
    'Internal: keeps workers off an item until the transaction ends. False when a worker has it, or is just taking it; null when the queue does not have it.';

create or replace function "{{schema}}"."{{inbox}}_withdraw"(work_item_id uuid, status smallint, error text) returns boolean
language plpgsql volatile
set jit = off
as $mainstay$
#variable_conflict use_column
declare
    left_key text;
begin
    if "{{schema}}"."{{inbox}}_grasp"($1) then
        with gone as (
            delete from "{{schema}}"."{{inbox}}" m where m.id = $1 returning m.*),
        kept as (
            insert into "{{schema}}"."{{inbox}}_history" (
                seq, created_at, due_at, requested_due_at, processed_at, expires_at, generation, attempts, priority, status, id, message_id,
                hold_on_failure, topic, reason, ordering_key, idempotency_key, correlation_id, last_error, headers, payload)
            select g.seq, g.created_at, g.due_at, g.requested_due_at, statement_timestamp(), g.expires_at, g.generation, g.attempts, g.priority, $2,
                   g.id, g.message_id, g.hold_on_failure, g.topic, case $2 when 3 then 'handler' end, g.ordering_key, g.idempotency_key,
                   g.correlation_id, coalesce($3, g.last_error), g.headers, g.payload
              from gone g)
        select g.ordering_key into left_key from gone g;
        if left_key is not null then
            perform "{{schema}}"."{{inbox}}_advance"(array[left_key]);
        end if;
    end if;
    return not exists (select from "{{schema}}"."{{inbox}}" q where q.id = $1);
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_withdraw"(uuid, smallint, text) is
    'Internal: takes an item that no worker has out of the queue, as done (2) or failed (3). Returns whether nothing of it is left there.';
