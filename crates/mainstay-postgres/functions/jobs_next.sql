-- When something happens next. Schedulers sleep until then.

create or replace function "{{schema}}"."{{jobs}}_next_nominal"() returns timestamptz
language sql stable
as $mainstay$
    select coalesce(j.next_nominal_at, statement_timestamp()) from "{{schema}}"."{{jobs}}" j
     where j.enabled and j.problem is null order by coalesce(j.next_nominal_at, '-infinity') limit 1
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_next_nominal"() is
    'The nearest nominal time of all enabled jobs; now, if one is still to be calculated. Null without enabled jobs.';

create or replace function "{{schema}}"."{{jobs}}_next_due"() returns double precision
language sql volatile
as $mainstay$
    select greatest(extract(epoch from n.at - clock_timestamp()), 0)::double precision
      from (select "{{schema}}"."{{jobs}}_next_nominal"() as at) n where n.at is not null
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_next_due"() is
    'The seconds until a scheduler has something to do for a job (0 = now), null if there is nothing. Reads only.';
