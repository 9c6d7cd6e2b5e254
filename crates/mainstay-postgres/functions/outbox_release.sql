-- One outcome for all: it was not even tried.

create or replace function "{{schema}}"."{{outbox}}_release"(
    owner uuid, ids uuid[], generations bigint[] default null, delay_seconds double precision default null
) returns setof uuid
language plpgsql volatile
as $mainstay$
begin
    if not (delay_seconds > 0 and delay_seconds <= 1e9) then
        raise exception using errcode = '22023',
            message = '{{outbox:literal}}_release: delay_seconds must be more than 0 and at most 1000000000, got ' || delay_seconds;
    end if;
    return query select "{{schema}}"."{{outbox}}_settle"(
        $1, ids, generations, array_fill(3::smallint, array[coalesce(cardinality(ids), 0)]),
        array_fill(delay_seconds, array[coalesce(cardinality(ids), 0)]));
end
$mainstay$;
comment on function "{{schema}}"."{{outbox}}_release"(uuid, uuid[], bigint[], double precision) is
    'Gives claimed items back without counting the delivery, at once or after delay_seconds: shutdown, snooze, no handler. Returns the ids that changed.';
