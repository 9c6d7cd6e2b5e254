-- The schema as lines of text. Only what reads the same on every version of PostgreSQL from 14 on: bodies of functions and of the
-- view are in their own files and left out.
with objects as (
    select c.oid, c.relname, c.relkind, c.reloptions from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'infra' and c.relkind in ('r', 'v')),
lines (kind, name, place, line) as (
    select 0, t.typname::text, 0, format('create domain infra.%s as %s%s;', t.typname, format_type(t.typbasetype, t.typtypmod),
           (select string_agg(format(' constraint %s %s', k.conname, pg_get_constraintdef(k.oid)), '' order by k.conname)
              from pg_constraint k where k.contypid = t.oid))
      from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname = 'infra' and t.typtype = 'd'
    union all
    select 1, o.relname::text, 0, format(E'\ncreate %s infra.%s (', case o.relkind when 'r' then 'table' else 'view' end, o.relname) from objects o
    union all
    select 1, o.relname::text, a.attnum::integer, format('    %s %s%s%s%s,', a.attname, format_type(a.atttypid, a.atttypmod),
           case when a.attnotnull then ' not null' else '' end,
           case when a.attidentity <> '' then ' generated always as identity' else '' end,
           coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
      from objects o join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
      left join pg_attrdef d on d.adrelid = o.oid and d.adnum = a.attnum
    union all
    select 1, o.relname::text, 1000 + row_number() over (partition by o.oid order by k.conname)::integer,
           format('    constraint %s %s,', k.conname, pg_get_constraintdef(k.oid))
      from objects o join pg_constraint k on k.conrelid = o.oid and k.contype <> 'n'
    union all
    select 1, o.relname::text, 2000, ')' || coalesce(' with (' || array_to_string(o.reloptions, ', ') || ')', '') || ';' from objects o
    union all
    select 1, o.relname::text, 3000 + row_number() over (partition by o.oid order by i.indexrelid::regclass::text)::integer,
           pg_get_indexdef(i.indexrelid) || ';'
      from objects o join pg_index i on i.indrelid = o.oid where not exists (select from pg_constraint k where k.conindid = i.indexrelid)
    union all
    select 2, p.proname::text, 0, format(E'\ncreate function infra.%s(%s)\n    returns %s language %s%s%s;', p.proname,
           replace(pg_get_function_arguments(p.oid), ', ', E',\n        '), pg_get_function_result(p.oid), l.lanname,
           case p.provolatile when 'i' then ' immutable' when 's' then ' stable' else ' volatile' end,
           coalesce(E'\n    set ' || array_to_string(p.proconfig, ' set '), ''))
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang where n.nspname = 'infra')
select line from lines order by kind, name collate "C", place
