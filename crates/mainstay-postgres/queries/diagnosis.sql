-- What a doctor looks at. Each statement reads only.

-- The user, and what it lacks. Parameters: the tables, the views and the functions of this schema, without its name.
-- What nobody has is not told: a lease is never deleted, the audit trail is only added to.
-- name: rights
select current_user::text,
       array(select l.lack
               from (select 'USAGE on schema ' || n.nspname as lack from pg_namespace n
                      where n.nspname = '{{schema:literal}}' and not has_schema_privilege(n.oid, 'USAGE')
                     union all
                     select p.privilege || ' on ' || c.relname
                       from pg_class c join pg_namespace n on n.oid = c.relnamespace
                      cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(privilege)
                      where n.nspname = '{{schema:literal}}'
                        and (c.relname = any ($1)
                             and (c.relname not in ('{{lease:literal}}', '{{lease:literal}}_floor') or p.privilege <> 'DELETE')
                             and (c.relname not in ('{{audit:literal}}', '{{audit:literal}}_anchor') or p.privilege in ('SELECT', 'INSERT'))
                             or c.relname = any ($2) and p.privilege = 'SELECT')
                        and not has_table_privilege(c.oid, p.privilege)
                     union all
                     select 'EXECUTE on function ' || f.proname
                       from pg_proc f join pg_namespace n on n.oid = f.pronamespace
                      where n.nspname = '{{schema:literal}}' and f.proname = any ($3) and not has_function_privilege(f.oid, 'EXECUTE')) l
              order by l.lack)

-- The transactions of this database that have been open for longest, and whether those of other users can be seen at all. One that
-- was prepared is open until somebody ends it.
-- name: transactions
select extract(epoch from clock_timestamp() - t.since)::double precision, t.holder,
       not (pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'))
  from (select a.xact_start as since,
               format('pid %s, user %s, application %s, from %s, %s', a.pid, a.usename, coalesce(nullif(a.application_name, ''), '?'),
                      coalesce(host(a.client_addr), 'this machine'), a.state) as holder
          from pg_stat_activity a
         where a.xact_start is not null and a.pid <> pg_backend_pid() and a.datname = current_database() and a.backend_type = 'client backend'
        union all
        select p.prepared, format('prepared transaction %s of %s', p.gid, p.owner) from pg_prepared_xacts p where p.database = current_database()) t
 order by t.since limit 10

-- Tables, with their partitions in one. Parameter: their names.
-- name: tables
select c.relname::text, sum(s.n_live_tup)::bigint, sum(s.n_dead_tup)::bigint, sum(pg_table_size(m.relid))::bigint,
       extract(epoch from clock_timestamp() - max(greatest(s.last_vacuum, s.last_autovacuum)))::double precision
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 cross join lateral (select t.relid::oid as relid from pg_partition_tree(c.oid) t union select c.oid) m
  join pg_stat_all_tables s on s.relid = m.relid
 where n.nspname = '{{schema:literal}}' and c.relname = any ($1) and c.relkind in ('r', 'p')
 group by c.relname order by 3 desc, 1

-- Indexes of tables, not those of their partitions. Parameter: the tables' names.
-- name: indexes
select i.relname::text, x.indisvalid and x.indisready, coalesce(s.idx_scan, 0)::bigint, pg_relation_size(i.oid)::bigint, pg_table_size(c.oid)::bigint
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  join pg_index x on x.indrelid = c.oid join pg_class i on i.oid = x.indexrelid
  left join pg_stat_all_indexes s on s.indexrelid = x.indexrelid
 where n.nspname = '{{schema:literal}}' and c.relname = any ($1) and c.relkind = 'r'
 order by i.relname

-- Runs of jobs. Parameters: of the last so many seconds, late by more than so many, rows at most.
-- name: runs
select count(*), count(*) filter (where f.late > $2), count(*) filter (where f.outcome = 3), count(*) filter (where f.outcome = 2),
       max(f.late) filter (where f.late > $2), (array_agg(f.job order by f.late desc nulls last, f.job) filter (where f.late > $2))[1]
  from (select l.job, l.outcome, case when l.trigger = 'cron' then extract(epoch from l.created_at - l.nominal_at)::double precision end as late
          from "{{schema}}"."{{jobs}}_ledger" l
         where l.nominal_at > statement_timestamp() - make_interval(secs => $1)
         order by l.nominal_at desc, l.id desc limit $3) f
