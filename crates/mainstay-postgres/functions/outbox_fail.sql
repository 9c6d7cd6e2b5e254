-- One outcome for all: never again, unless requeued.

create or replace function "{{schema}}"."{{outbox}}_fail"(
    owner uuid, ids uuid[], generations bigint[] default null, error text default null
) returns setof uuid
language plpgsql volatile
as $mainstay$
begin
    return query select "{{schema}}"."{{outbox}}_settle"(
        $1, ids, generations, array_fill(2::smallint, array[coalesce(cardinality(ids), 0)]), null,
        array_fill(error, array[coalesce(cardinality(ids), 0)]));
end
$mainstay$;
comment on function "{{schema}}"."{{outbox}}_fail"(uuid, uuid[], bigint[], text) is
    'Marks claimed items as failed for good (reason handler). With hold_on_failure the ordering key stands still. Returns the ids that changed.';
