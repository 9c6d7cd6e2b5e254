-- One outcome for all: it was not even tried.

create or replace function "{{schema}}"."{{queue}}_release"(
    owner uuid, ids uuid[], generations bigint[] default null, delay_seconds double precision default null
) returns setof uuid
language plpgsql volatile
as $mainstay$
begin
    if $1 is null or $1 = '00000000-0000-0000-0000-000000000000' or ids is null or cardinality(generations) <> cardinality(ids)
        or not (delay_seconds > 0 and delay_seconds <= 1e9) then
        raise exception using errcode = '22023', message = '{{queue:literal}}_release: ' || case
            when ids is null then 'ids must not be null'
            when $1 is null or $1 = '00000000-0000-0000-0000-000000000000' then 'owner must not be null or nil'
            when cardinality(generations) <> cardinality(ids) then
                'generations must have as many elements as ids (' || cardinality(ids) || '), got ' || cardinality(generations)
            else 'delay_seconds must be more than 0 and at most 1000000000, got ' || delay_seconds
        end;
    end if;
    return query select "{{schema}}"."{{queue}}_settle"(
        $1, ids, generations, array_fill(3::smallint, array[cardinality(ids)]),
        array_fill(delay_seconds, array[cardinality(ids)]));
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_release"(uuid, uuid[], bigint[], double precision) is
    'Gives claimed items back without counting the delivery, at once or after delay_seconds: shutdown, snooze, no handler. Returns the ids that changed.';
