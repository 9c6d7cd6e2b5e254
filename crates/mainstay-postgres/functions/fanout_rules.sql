-- The rules of a policy, as every way to change one has them.

create or replace function "{{schema}}"."{{fanout}}_wrong"(
    topic text, work_key text, every_seconds integer, jitter_seconds integer, cron text, time_zone text, enabled boolean) returns text
language sql immutable parallel safe
as $mainstay$
    select case
        when topic is null or length(topic) not between 1 and 100 then 'topic must be 1 to 100 characters, got ' || coalesce(length(topic)::text, 'null')
        when strpos(topic, ':') > 0 then 'topic must not contain a colon'
        when work_key is null or length(work_key) not between 1 and 100 then 'work_key must be 1 to 100 characters, got ' || coalesce(length(work_key)::text, 'null')
        when (every_seconds between 0 and 31622400) is not true then 'every_seconds must be 0 to 31622400, got ' || coalesce(every_seconds::text, 'null')
        when (jitter_seconds between 0 and 86400) is not true then 'jitter_seconds must be 0 to 86400, got ' || coalesce(jitter_seconds::text, 'null')
        when length(cron) not between 1 and 1000 then 'cron must be 1 to 1000 characters, got ' || length(cron)
        when cron is null and every_seconds = 0 then 'every_seconds must be above 0 where there is no cron'
        when time_zone is null or length(time_zone) not between 1 and 255 then 'time_zone must be 1 to 255 characters, got ' || coalesce(length(time_zone)::text, 'null')
        when enabled is null then 'enabled must not be null'
    end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_wrong"(text, text, integer, integer, text, text, boolean) is 'Internal: what is wrong with a policy, if anything.';
