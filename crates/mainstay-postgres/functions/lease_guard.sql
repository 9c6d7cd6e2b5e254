-- Writing only while the lease is held.

create or replace function "{{schema}}"."{{lease}}_guard"(name text, owner text, epoch bigint) returns timestamptz
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    until timestamptz;
begin
    if $1 is null or $2 is null or $3 is null then
        raise exception using errcode = '22023', message = '{{lease:literal}}_guard: '
            || case when $1 is null then 'name' when $2 is null then 'owner' else 'epoch' end || ' must not be null';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = '25001',
            message = '{{lease:literal}}_guard: needs READ COMMITTED, the transaction is ' || upper(current_setting('transaction_isolation')),
            hint = 'One old snapshot cannot show who holds a lease now. Nothing is said about the lease.';
    end if;
    select t.expires_at into until from "{{schema}}"."{{lease}}" t where t.name = $1 and t.owner = $2 and t.epoch = $3 for key share;
    -- An exception and not an answer: a transaction in which this was raised can't be committed, whoever forgets to look.
    if until is null or until <= clock_timestamp() then
        raise exception using errcode = 'ML001', message = '{{lease:literal}}_guard: the lease is lost: epoch ' || $3 || ' no longer holds it';
    end if;
    return until;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_guard"(text, text, bigint) is
    'Raises ML001 unless the lease is held, and keeps everybody else from getting it until the transaction has ended. Returns until when it is held.';
