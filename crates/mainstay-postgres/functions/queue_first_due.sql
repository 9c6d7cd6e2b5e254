-- When the first of what waits in a queue is due. Reads only.

create or replace function "{{schema}}"."{{queue}}_first_due"() returns timestamptz
language plpgsql volatile
-- One probe of the ready index for each priority, whatever the statistics say.
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $mainstay$
#variable_conflict use_column
begin
    return (select min(f.due_at)
              from generate_series(-9, 9) level
             cross join lateral (select q.due_at::timestamptz as due_at from "{{schema}}"."{{queue}}" q
                                  where not q.parked and q.priority = level::smallint and q.status = 0
                                  order by q.due_at, q.seq limit 1) f);
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_first_due"() is
    'When the first item that is ready is due: in the past if it is overdue, null if there is none. Reads only.';
