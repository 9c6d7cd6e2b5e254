-- One outcome for all: never again, unless requeued.

create or replace function "{{schema}}"."{{queue}}_fail"(
    owner uuid, ids uuid[], generations bigint[] default null, error text default null
) returns setof uuid
language plpgsql volatile
as $mainstay$
begin
    if $1 is null or $1 = '00000000-0000-0000-0000-000000000000' or ids is null or cardinality(generations) <> cardinality(ids) then
        raise exception using errcode = '22023', message = '{{queue:literal}}_fail: ' || case
            when ids is null then 'ids must not be null'
            when $1 is null or $1 = '00000000-0000-0000-0000-000000000000' then 'owner must not be null or nil'
            else 'generations must have as many elements as ids (' || cardinality(ids) || '), got ' || cardinality(generations)
        end;
    end if;
    return query select "{{schema}}"."{{queue}}_settle"(
        $1, ids, generations, array_fill(2::smallint, array[cardinality(ids)]), null,
        array_fill(error, array[cardinality(ids)]));
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_fail"(uuid, uuid[], bigint[], text) is
    'Marks claimed items as failed for good (reason handler). With hold_on_failure the ordering key stands still. Returns the ids that changed.';
