-- Which database this is.

create or replace function "{{schema}}"."{{lease}}_home"() returns text
language sql stable
-- The database's number alone is the same in every copy of a server's files; a server that was started at the same moment is the same.
as $mainstay$
    select d.oid || '@' || pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() at time zone 'UTC', 'YYYYMMDDHH24MISSUS')
      from pg_catalog.pg_database d
     where d.datname = pg_catalog.current_database()
$mainstay$;
comment on function "{{schema}}"."{{lease}}_home"() is
    'Names this database and the running server, so that a transaction can be shown to be of the database in which a lease is held.';
