-- One outcome for all: done.

create or replace function "{{schema}}"."{{outbox}}_ack"(owner uuid, ids uuid[], generations bigint[] default null) returns setof uuid
language plpgsql volatile
as $mainstay$
begin
    return query select "{{schema}}"."{{outbox}}_settle"($1, ids, generations, array_fill(0::smallint, array[coalesce(cardinality(ids), 0)]));
end
$mainstay$;
comment on function "{{schema}}"."{{outbox}}_ack"(uuid, uuid[], bigint[]) is
    'Marks claimed items as done. Returns the ids that changed. Give the generations of the claim; null compares the owner alone.';
