-- Numbers of leases that no earlier history of this database has given.

-- A failover can lose the last transactions of the server before, and with them numbers of leases that holders already have. A promoted
-- server begins a new timeline, and so does a recovery to a point in time. So each timeline has numbers of its own: at most 20 bits, the
-- floor, above 32 bits that count. That stays below 2^53, up to which JSON is exact.
--
-- The number of a timeline is not enough: a dump that is loaded into another server, or an upgrade by pg_upgrade, begins with timeline 1
-- again. So one row knows the floor that was reached, and on which timeline of which server. On the same server the floor rises with the
-- timeline; another server goes on above it, by its own timeline. The two rules give the same floor whether the row was
-- brought up to date before a failover, or that was lost, or never done: each failover raises it.
create or replace function "{{schema}}"."{{lease}}_first_number"() returns bigint
language plpgsql volatile
as $mainstay$
declare
    f "{{schema}}"."{{lease}}_floor"%rowtype;
    here bigint := 0;
    line integer := 1;
    reached bigint;
begin
    -- Servers that keep their log otherwise have no timelines, and lose nothing at a failover.
    begin
        line := ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::integer;
    exception when others then
        null;
    end;
    begin
        here := (select s.system_identifier from pg_catalog.pg_control_system() s);
    exception when others then
        null;
    end;
    select * into f from "{{schema}}"."{{lease}}_floor";
    if f.server = here and f.timeline = line then
        return f.height << 32;
    end if;
    reached := least(1048575, coalesce(f.height, -1) + case when f.server = here and f.timeline < line then line - f.timeline else line end);
    -- Whoever else is at it notes the same.
    update "{{schema}}"."{{lease}}_floor" w set server = here, timeline = line, height = reached
      from (select k.ctid as place from "{{schema}}"."{{lease}}_floor" k
             where (k.server, k.timeline, k.height) = (f.server, f.timeline, f.height) for update skip locked) l
     where w.ctid = l.place;
    return reached << 32;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_first_number"() is
    'Where the epochs and fencing tokens of this server and timeline begin: above all that earlier ones have given, also those that a failover lost.';
