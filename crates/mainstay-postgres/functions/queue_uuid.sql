-- Time-ordered ids for callers that bring none. PostgreSQL has uuidv7() only from 18 on.

create or replace function "{{schema}}"."{{queue}}_uuid7"() returns uuid
language sql volatile parallel safe
as $mainstay$
    -- Random bits first, then 48 bits of milliseconds over the front, then version 7 (bits 52 and 53 are set on top of version 4).
    -- One plain expression, so that the planner inlines it: as a call it would double the cost of an id.
    select encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                    from 1 for 6),
            52, 1), 53, 1), 'hex')::uuid
$mainstay$;
comment on function "{{schema}}"."{{queue}}_uuid7"() is 'A new UUID of version 7 by the database clock.';
