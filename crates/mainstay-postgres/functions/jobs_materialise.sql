-- Making runs: of the occurrences that have come, and on demand. A run is a row in the ledger and one in the queue, made in the
-- transaction that moves the job on, so whoever dies midway has made none, and of several schedulers one makes it.

create or replace function "{{schema}}"."{{jobs}}_due_jobs"(
    after_at timestamptz default null, after_name text default null, max_rows integer default 100
) returns setof "{{schema}}"."{{jobs}}"
language sql stable
as $mainstay$
    (select j.* from "{{schema}}"."{{jobs}}" j
      where j.enabled and j.problem is null and coalesce(j.next_nominal_at, '-infinity') <= statement_timestamp()
        and (coalesce(j.next_nominal_at, '-infinity'), j.name) > (coalesce($1, '-infinity'), coalesce($2, ''))
      order by coalesce(j.next_nominal_at, '-infinity'), j.name limit $3)
    union all
    -- In no order: should there be more than one look takes, each has its turn.
    (select j.* from "{{schema}}"."{{jobs}}" j where $2 is null and j.enabled and j.problem is not null order by random() limit $3)
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_due_jobs"(timestamptz, text, integer) is
    'Internal: enabled jobs whose next nominal time has come or is to be calculated, after this one in order of time and name. From the start also those that a scheduler had a problem with: another may have none.';

create or replace function "{{schema}}"."{{jobs}}_make_runs"(
    definition "{{schema}}"."{{jobs}}", kind text, nominals timestamptz[], dues timestamptz[], out made uuid[], out skipped timestamptz[]
)
language plpgsql volatile
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    -- One at a time, in order. An ordering key has 255 characters, and some names leave it no room.
    lane constant text := case when (definition).overlap = 2 then
        'job:' || case when length((definition).name) <= 251 then (definition).name else encode(sha256(convert_to((definition).name, 'UTF8')), 'hex') end end;
    under_way boolean := false;
    fresh uuid;
begin
    made := '{}';
    skipped := '{}';
    if (definition).overlap = 1 then
        -- Not by the ledger alone: what has ended without having been collected is not in the way, and what is open is, whatever
        -- the ledger says of the newest runs.
        under_way := exists (
            select from (select l.id from "{{schema}}"."{{jobs}}_ledger" l where l.job = (definition).name and l.outcome is null
                         union all
                         (select l.id from "{{schema}}"."{{jobs}}_ledger" l where l.job = (definition).name order by l.nominal_at desc limit 100)) r
             where exists (select from "{{schema}}"."{{outbox}}" o where o.id = r.id)
                or exists (select from "{{schema}}"."{{job_runs}}" q where q.id = r.id));
    end if;
    for at in 1 .. coalesce(cardinality(nominals), 0) loop
        fresh := "{{schema}}"."{{job_runs}}_uuid7"();
        insert into "{{schema}}"."{{jobs}}_ledger" (id, job, trigger, nominal_at, due_at, created_at, outcome, ended_at, error)
        values (fresh, (definition).name, kind, nominals[at], dues[at], moment, case when under_way then 3 end, case when under_way then moment end,
                case when under_way then 'an earlier run was not over' end)
        on conflict (job, nominal_at) do nothing;
        continue when not found;
        if under_way then
            skipped := skipped || nominals[at];
            continue;
        end if;
        made := made || fresh;
        under_way := (definition).overlap = 1;
        perform "{{schema}}"."{{job_runs}}_add_one"(
            fresh, fresh, (definition).topic, (definition).payload, 'job-run-' || fresh,
            json_build_object('mainstay-job', (definition).name, 'mainstay-run', fresh, 'mainstay-trigger', kind, 'mainstay-nominal',
                              to_char(nominals[at] at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text,
            dues[at], null, lane, false, (definition).priority);
    end loop;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_make_runs"("{{schema}}"."{{jobs}}", text, timestamptz[], timestamptz[]) is
    'Internal: makes runs of a job for these nominal times, unless they are there, or notes that they were skipped.';

create or replace function "{{schema}}"."{{jobs}}_advance"(
    name text, version bigint, expected_at timestamptz, next_at timestamptz, last_at timestamptz default null,
    nominals timestamptz[] default null, dues timestamptz[] default null
) returns table (made uuid[], skipped timestamptz[])
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    advanced "{{schema}}"."{{jobs}}";
begin
    -- Nobody waits here for whoever has the job locked: there are other jobs. And whoever planned with what is no longer so has
    -- planned for nothing.
    perform from "{{schema}}"."{{jobs}}" j where j.name = "{{jobs}}_advance".name for no key update skip locked;
    if not found then
        return;
    end if;
    update "{{schema}}"."{{jobs}}" j set next_nominal_at = next_at, last_nominal_at = coalesce(last_at, j.last_nominal_at), problem = null
     where j.name = "{{jobs}}_advance".name and j.version = "{{jobs}}_advance".version and j.enabled
       and j.next_nominal_at is not distinct from expected_at
    returning j.* into advanced;
    if not found then
        return;
    end if;
    return query select m.made, m.skipped from "{{schema}}"."{{jobs}}_make_runs"(advanced, 'cron', nominals, dues) m;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_advance"(text, bigint, timestamptz, timestamptz, timestamptz, timestamptz[], timestamptz[]) is
    'Internal: makes the runs of a job''s due occurrences and moves it on to its next one, unless it has changed meanwhile or somebody has it locked. No row then.';

create or replace function "{{schema}}"."{{jobs}}_reject"(name text, version bigint, problem text) returns boolean
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    -- Advice to people, and to schedulers not to wait for it. One that can read the job takes it back.
    update "{{schema}}"."{{jobs}}" j set problem = left("{{jobs}}_reject".problem, 2048)
     where (j.name, j.version) in (
        select k.name, k.version from "{{schema}}"."{{jobs}}" k
         where k.name = "{{jobs}}_reject".name and k.version = "{{jobs}}_reject".version and k.problem is null for no key update skip locked);
    return found;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_reject"(text, bigint, text) is
    'Internal: notes why a scheduler can''t work with a job. A change of its definition clears it, and so does a scheduler that can.';

create or replace function "{{schema}}"."{{jobs}}_trigger_run"(name text, actor text default null) returns setof "{{schema}}"."{{jobs}}_run"
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    asked "{{schema}}"."{{jobs}}";
    moment timestamptz;
    nominal timestamptz;
    run "{{schema}}"."{{jobs}}_run";
begin
    -- Locked as a scheduler does it, so that two who come together see each other's runs.
    select j.* into asked from "{{schema}}"."{{jobs}}" j where j.name = "{{jobs}}_trigger_run".name for no key update;
    if not found then
        perform "{{schema}}"."{{jobs}}_unknown"('trigger', name);
    end if;
    moment := clock_timestamp();
    nominal := moment;
    -- Never on a whole second: occurrences are, and must not find their place taken. It is due all the same.
    while nominal = date_trunc('second', nominal)
          or exists (select from "{{schema}}"."{{jobs}}_ledger" l where l.job = "{{jobs}}_trigger_run".name and l.nominal_at = nominal) loop
        nominal := nominal + interval '1 microsecond';
    end loop;
    perform "{{schema}}"."{{jobs}}_make_runs"(asked, 'manual', array[nominal], array[moment]);
    select r.* into run from "{{schema}}"."{{jobs}}_run" r where r.job = "{{jobs}}_trigger_run".name and r.nominal_at = nominal;
    perform "{{schema}}"."{{audit}}_note"(
        'job.trigger', $2, jsonb_build_object(
            'before', null, 'after', jsonb_build_object('run', run.id, 'nominal_at', run.nominal_at, 'state', run.state)),
        array['job', 'run'], array[$1, run.id::text]);
    return next run;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_trigger_run"(text, text) is 'The same as trigger, but returns the run.';

create or replace function "{{schema}}"."{{jobs}}_trigger"(name text, actor text default null) returns uuid
language sql volatile
as $mainstay$ select r.id from "{{schema}}"."{{jobs}}_trigger_run"($1, $2) r $mainstay$;
comment on function "{{schema}}"."{{jobs}}_trigger"(text, text) is
    'Makes a run of a job now, whether the job is enabled or not, and returns its id. With overlap skip it is recorded as skipped while an earlier one is not over. An unknown name is an error (P0002). Recorded in the audit trail as the actor''s.';
