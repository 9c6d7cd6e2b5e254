-- Every statement the program sends about the schema itself, by name.

-- name: create_schema
create schema if not exists "{{schema}}"

-- Kept per outbox, because a schema can hold several. Version 0 stands for the functions, which are replaced as a whole whenever
-- they change. A program for an older version works on the schema if no step has an `oldest_program` above its version.
-- name: create_ledger
create table if not exists "{{schema}}"."mainstay_migration" (
    outbox         text        not null,
    version        integer     not null,
    name           text        not null,
    checksum       text        not null,
    oldest_program integer     not null,
    applied_at     timestamptz not null,
    primary key (outbox, version)
)

-- name: ledger_exists
select to_regclass($1) is not null

-- name: ledger
select m.version, m.name, m.checksum, m.oldest_program from "{{schema}}"."mainstay_migration" m where m.outbox = '{{outbox:literal}}' order by m.version

-- name: record
insert into "{{schema}}"."mainstay_migration" (outbox, version, name, checksum, oldest_program, applied_at)
values ('{{outbox:literal}}', $1, $2, $3, $4, statement_timestamp())
on conflict (outbox, version) do update set name = excluded.name, checksum = excluded.checksum, oldest_program = excluded.oldest_program, applied_at = excluded.applied_at

-- For the length of the transaction: whoever deploys at the same time waits, and then finds nothing to do.
-- name: lock
select pg_advisory_xact_lock(hashtextextended('mainstay deploys {{schema:literal}}', 0))

-- What is there of the relations ($2) and domains ($4), and whether some of the relations or functions ($3) are not: somebody may have
-- dropped any of it, and the ledger too.
-- name: inventory
select array(select n.name from unnest($2::text[] || $4::text[]) n(name) where to_regclass(n.name) is not null or to_regtype(n.name) is not null),
       (select count(*) from unnest($2::text[]) r(name) where to_regclass(r.name) is null) > 0,
       (select count(*) from unnest($3::text[]) f(name)
         where not exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1 and p.proname = f.name)) > 0

-- name: schema_exists
select to_regnamespace($1) is not null

-- Functions of ours that this transaction has not made: left over from a version in which they took other arguments. Beside the new
-- ones they would make calls ambiguous.
-- name: stale_functions
select format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid))
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
 where n.nspname = $1 and p.proname = any ($2) and p.xmin <> pg_current_xact_id()::xid

-- Who holds a table of ours, the one that has done so for longest first. Of other roles' transactions only that they are there is told.
-- name: holders
select format('the table %I (process %s of the server%s)', c.relname, l.pid,
              case when a.xact_start is null then ''
                   else format(', %s, in a transaction since %s', coalesce(nullif(a.application_name, ''), a.usename), date_trunc('second', a.xact_start)) end)
  from pg_locks l
  join pg_class c on c.oid = l.relation
  join pg_namespace n on n.oid = c.relnamespace
  left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.granted and l.mode <> 'AccessShareLock' and l.pid <> pg_backend_pid()
   and n.nspname = $1 and c.relkind in ('r', 'p')
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
 order by a.xact_start nulls last, l.pid
 limit 1
