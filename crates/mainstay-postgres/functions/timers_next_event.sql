-- When the next of all that is scheduled is due, whatever it is.

create or replace function "{{schema}}"."{{timers}}_next_event_time"() returns timestamptz
language sql volatile
as $mainstay$
    select least("{{schema}}"."{{timers}}_first_due"(), "{{schema}}"."{{job_runs}}_first_due"(), "{{schema}}"."{{jobs}}_next_nominal"())
$mainstay$;
comment on function "{{schema}}"."{{timers}}_next_event_time"() is
    'When the nearest of timers, job runs and jobs is due: in the past if it is overdue, null if nothing is scheduled. Reads only.';
