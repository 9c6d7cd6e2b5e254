-- Waking sleeping consumers. A notification is only ever a hint; consumers poll as well.

create or replace function "{{schema}}"."{{queue}}_channel"() returns text
language sql immutable parallel safe
as $mainstay$
    -- A channel name is at most 63 bytes, two names can be longer.
    select case when octet_length('{{schema:literal}}.{{queue:literal}}') <= 63 then '{{schema:literal}}.{{queue:literal}}'
                else 'mainstay.' || md5('{{schema:literal}}.{{queue:literal}}') end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_channel"() is 'The channel to LISTEN on (quote it as an identifier). Notifications have an empty payload and mean: look again.';

create or replace function "{{schema}}"."{{queue}}_wake"() returns void
language plpgsql volatile
as $mainstay$
begin
    -- Call it after the rows are written, never before: the transaction must own an xid when it reads the waiters, otherwise
    -- the horizon that lets a consumer sleep could pass while this transaction, having seen nobody, is still to commit.
    -- With an older snapshot than this statement's own the read proves nothing, so such a transaction always notifies.
    if exists (select from "{{schema}}"."{{queue}}_waiter" w where w.until > statement_timestamp())
       or current_setting('transaction_isolation') <> 'read committed' then
        perform pg_notify("{{schema}}"."{{queue}}_channel"(), '');
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_wake"() is 'Internal: notifies if a consumer has declared itself idle. Neither writes nor locks.';
