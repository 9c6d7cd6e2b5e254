-- The public face of take: only what was claimed.

create or replace function "{{schema}}"."{{queue}}_claim"(
    owner uuid,
    lease_seconds integer,
    batch integer,
    delivery_limit integer default 10,
    only_topics text[] default null,
    except_topics text[] default null
) returns table (
    id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint,
    created_at timestamptz, due_at timestamptz, expires_at timestamptz, ordering_key text, priority smallint, headers jsonb,
    locked_until timestamptz, claimed_at timestamptz, last_error text, requested_due_at timestamptz
)
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    return query
    select t.id, t.message_id, t.topic, t.payload, t.correlation_id, t.attempt, t.generation, t.created_at, t.due_at, t.expires_at,
           t.ordering_key, t.priority, t.headers, t.locked_until, t.claimed_at, t.last_error, t.requested_due_at
      from "{{schema}}"."{{queue}}_take"($1, lease_seconds, batch, delivery_limit, only_topics, except_topics) t
     where t.verdict = 1;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_claim"(uuid, integer, integer, integer, text[], text[]) is
    'Claims up to batch items that are due and free, or whose lease has lapsed, for lease_seconds. Highest priority first, with a share for the lower ones. '
    'Keep id and generation of each: together with the owner they are the claim. Expired items and those delivered delivery_limit times are failed instead. '
    'Needs READ COMMITTED and a short transaction.';
