-- Numbers of leases that no earlier history of this database has given.

-- A failover can lose the last transactions of the server before, and with them numbers of leases that holders already have. A promoted
-- server begins a new timeline, and so does a recovery to a point in time. So the number of the timeline is the high part of every
-- number: at most 20 bits, above 32 bits that count. That stays below 2^53, up to which JSON is exact.
create or replace function "{{schema}}"."{{lease}}_first_number"() returns bigint
language plpgsql volatile
as $mainstay$
begin
    return least(('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::bigint - 1, 1048575) << 32;
-- Servers that keep their log otherwise have no timelines, and lose nothing at a failover.
exception when others then
    return 0;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_first_number"() is
    'Where the epochs and fencing tokens of this timeline of the server begin: above all that an earlier timeline has given, also those that a failover lost.';
