-- Registering jobs and changing them. Expressions and zones are not read here but by a scheduler, which also calculates the next
-- nominal time: one that is null is calculated as from the last change of the definition, so a job may be registered from any
-- language, also while no scheduler is running.

create or replace function "{{schema}}"."{{jobs}}_create_or_update"(
    name text,
    topic text,
    cron text,
    payload text default '',
    time_zone text default 'UTC',
    enabled boolean default null,
    misfire text default 'once',
    misfire_cap integer default null,
    misfire_window_seconds integer default null,
    overlap text default 'allow',
    jitter_seconds integer default 0,
    priority integer default 0,
    actor text default null,
    expected_version bigint default null
) returns setof "{{schema}}"."{{jobs}}"
language plpgsql volatile
as $mainstay$
declare
    registered record;
begin
    select * into strict registered
      from "{{schema}}"."{{jobs}}_register"($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, null);
    if registered.change = 'refused' then
        raise exception using errcode = 'MV001', message = format(
            '{{jobs:literal}}_create_or_update: nothing was written of the job "%s": %s was expected, and %s; read it again and decide anew',
            $1, case $14 when 0 then 'no such job' else 'version ' || $14 end,
            coalesce('it is of version ' || (registered.job).version, 'there is no such job'));
    end if;
    return next registered.job;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_create_or_update"(
    text, text, text, text, text, boolean, text, integer, integer, text, integer, integer, text, bigint) is
    'Registers a job, or changes the one of that name; its next runs follow the new definition. A null for enabled leaves it as it is (a new job is enabled). With an expected version nothing is written unless the job is of that version, 0 for no such job (MV001). Returns its row. A change is recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{jobs}}_register"(
    name text,
    topic text,
    cron text,
    payload text,
    time_zone text,
    enabled boolean,
    misfire text,
    misfire_cap integer,
    misfire_window_seconds integer,
    overlap text,
    jitter_seconds integer,
    priority integer,
    actor text,
    expected_version bigint,
    expected_created_at timestamptz,
    out change text,
    out job "{{schema}}"."{{jobs}}"
)
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    wrong constant text := case
        when name is null or length(name) not between 1 and 255 then 'name must be 1 to 255 characters, got ' || coalesce(length(name)::text, 'null')
        when topic is null or length(topic) not between 1 and 255 then 'topic must be 1 to 255 characters, got ' || coalesce(length(topic)::text, 'null')
        when cron is null or length(cron) not between 1 and 1000 then 'cron must be 1 to 1000 characters, got ' || coalesce(length(cron)::text, 'null')
        when payload is null then 'payload must not be null (an empty text is fine)'
        when time_zone is null or length(time_zone) not between 1 and 255 then 'time_zone must be 1 to 255 characters, got ' || coalesce(length(time_zone)::text, 'null')
        when misfire is null or misfire not in ('skip', 'once', 'all') then 'misfire must be skip, once or all, got ' || coalesce(misfire, 'null')
        when misfire <> 'all' and num_nonnulls(misfire_cap, misfire_window_seconds) > 0 then 'misfire_cap and misfire_window_seconds belong to the misfire policy all'
        when misfire = 'all' and (misfire_cap between 1 and 1000) is not true then 'misfire_cap must be 1 to 1000, got ' || coalesce(misfire_cap::text, 'null')
        when misfire = 'all' and (misfire_window_seconds between 1 and 31622400) is not true
            then 'misfire_window_seconds must be 1 to 31622400, got ' || coalesce(misfire_window_seconds::text, 'null')
        when overlap is null or overlap not in ('allow', 'skip', 'queue') then 'overlap must be allow, skip or queue, got ' || coalesce(overlap, 'null')
        when (jitter_seconds between 0 and 86400) is not true then 'jitter_seconds must be 0 to 86400, got ' || coalesce(jitter_seconds::text, 'null')
        when (priority between -9 and 9) is not true then 'priority must be -9 to 9, got ' || coalesce(priority::text, 'null')
    end;
    new_misfire constant smallint := array_position('{skip,once,all}'::text[], misfire) - 1;
    new_overlap constant smallint := array_position('{allow,skip,queue}'::text[], overlap) - 1;
    was "{{schema}}"."{{jobs}}";
begin
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{jobs:literal}}_create_or_update: ' || wrong;
    end if;
    loop
        -- Whoever is refused holds nobody up: a job that is held is not given its next time.
        if expected_version is not null then
            select j.* into was from "{{schema}}"."{{jobs}}" j where j.name = $1;
            if (was.name is null and expected_version <> 0) or was.version <> expected_version or was.created_at <> expected_created_at then
                change := 'refused';
                job := was;
                return;
            end if;
        end if;
        -- Held from here on: what is compared is what is written over. One that must not be there is not held, should it be there by now.
        if expected_version is distinct from 0 then
            select j.* into was from "{{schema}}"."{{jobs}}" j where j.name = $1 for no key update;
        end if;
        if was.name is not null then
            if was.version <> expected_version or was.created_at <> expected_created_at then
                change := 'refused';
                job := was;
                return;
            end if;
            -- Registered as it is already, as every start of a program does, it stays untouched.
            update "{{schema}}"."{{jobs}}" j
               set topic = $2, cron = $3, payload = $4, time_zone = $5, enabled = coalesce($6, j.enabled), misfire = new_misfire, misfire_cap = $8,
                   misfire_window_seconds = $9, overlap = new_overlap, jitter_seconds = $11, priority = $12, version = j.version + 1,
                   updated_at = statement_timestamp(), problem = null,
                   -- What was promised stays promised, unless it is another schedule now, or was none.
                   next_nominal_at = case when j.enabled and coalesce($6, true) and (j.cron, j.time_zone) = ($3, $5) then j.next_nominal_at end
             where j.name = $1
               and (j.problem is not null
                    or (j.topic, j.cron, j.payload, j.time_zone, j.enabled, j.misfire, j.misfire_cap, j.misfire_window_seconds, j.overlap,
                        j.jitter_seconds, j.priority)
                       is distinct from ($2, $3, $4, $5, coalesce($6, j.enabled), new_misfire, $8, $9, new_overlap, $11, $12::smallint))
            returning j.* into job;
            change := case when found then 'updated' else 'unchanged' end;
            exit;
        end if;
        if expected_version <> 0 then
            change := 'refused';
            return;
        end if;
        insert into "{{schema}}"."{{jobs}}" as j (
            name, topic, cron, payload, time_zone, enabled, misfire, misfire_cap, misfire_window_seconds, overlap, jitter_seconds, priority)
        values ($1, $2, $3, $4, $5, coalesce($6, true), new_misfire, $8, $9, new_overlap, $11, $12)
        on conflict on constraint "{{jobs}}_pkey" do nothing
        returning j.* into job;
        if found then
            change := 'created';
            exit;
        end if;
        -- Somebody has registered it at the same moment.
    end loop;
    if change = 'unchanged' then
        job := was;
        return;
    end if;
    perform "{{schema}}"."{{job_runs}}_wake"();
    perform "{{schema}}"."{{audit}}_note"(
        'job.create_or_update', $13, jsonb_build_object(
            'before', "{{schema}}"."{{jobs}}_told"(was), 'after', "{{schema}}"."{{jobs}}_told"(job),
            'payload_changed', was.payload is distinct from job.payload),
        array['job'], array[$1]);
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_register"(
    text, text, text, text, text, boolean, text, integer, integer, text, integer, integer, text, bigint, timestamptz) is
    'Internal: create_or_update, which may also say when the job it expects was registered. Tells what it has done: created, updated, unchanged, or refused, with the job that is there, if there is one.';

create or replace function "{{schema}}"."{{jobs}}_told"(job "{{schema}}"."{{jobs}}") returns jsonb
language sql immutable
as $mainstay$
    select case when ($1).name is not null then jsonb_build_object(
        'topic', ($1).topic, 'cron', ($1).cron, 'time_zone', ($1).time_zone, 'enabled', ($1).enabled,
        'misfire', ('{skip,once,all}'::text[])[($1).misfire + 1], 'misfire_cap', ($1).misfire_cap, 'misfire_window_seconds', ($1).misfire_window_seconds,
        'overlap', ('{allow,skip,queue}'::text[])[($1).overlap + 1], 'jitter_seconds', ($1).jitter_seconds, 'priority', ($1).priority,
        'version', ($1).version) end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_told"("{{schema}}"."{{jobs}}") is 'Internal: a job as records tell it: all but its payload.';

create or replace function "{{schema}}"."{{jobs}}_set_enabled"(name text, enabled boolean, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    if enabled is null then
        raise exception using errcode = '22023', message = '{{jobs:literal}}_set_enabled: enabled must not be null';
    end if;
    update "{{schema}}"."{{jobs}}" j
       set enabled = "{{jobs}}_set_enabled".enabled, version = j.version + 1, updated_at = statement_timestamp(), next_nominal_at = null, problem = null
     where j.name = "{{jobs}}_set_enabled".name and j.enabled <> "{{jobs}}_set_enabled".enabled;
    if found then
        perform "{{schema}}"."{{job_runs}}_wake"();
        perform "{{schema}}"."{{audit}}_note"(
            'job.' || case when $2 then 'enable' else 'disable' end, $3,
            jsonb_build_object('before', jsonb_build_object('enabled', not $2), 'after', jsonb_build_object('enabled', $2)), array['job'], array[$1]);
        return true;
    end if;
    if not exists (select from "{{schema}}"."{{jobs}}" j where j.name = "{{jobs}}_set_enabled".name) then
        perform "{{schema}}"."{{jobs}}_unknown"('set_enabled', name);
    end if;
    return false;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_set_enabled"(text, boolean, text) is
    'Enables or disables a job. An enabled one goes on from now: what it missed while it was disabled does not run. Returns whether that changed anything; an unknown name is an error (P0002). A change is recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{jobs}}_enable"(name text, actor text default null) returns boolean
language sql volatile
as $mainstay$ select "{{schema}}"."{{jobs}}_set_enabled"($1, true, $2) $mainstay$;
comment on function "{{schema}}"."{{jobs}}_enable"(text, text) is 'The same as set_enabled(name, true, actor).';

create or replace function "{{schema}}"."{{jobs}}_disable"(name text, actor text default null) returns boolean
language sql volatile
as $mainstay$ select "{{schema}}"."{{jobs}}_set_enabled"($1, false, $2) $mainstay$;
comment on function "{{schema}}"."{{jobs}}_disable"(text, text) is 'The same as set_enabled(name, false, actor).';

create or replace function "{{schema}}"."{{jobs}}_delete"(name text, actor text default null) returns integer
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    pending uuid[];
    cancelled uuid[];
    was "{{schema}}"."{{jobs}}";
begin
    -- Whoever is materialising runs of it has the row locked; afterwards they are all there to be seen.
    delete from "{{schema}}"."{{jobs}}" j where j.name = "{{jobs}}_delete".name returning j.* into was;
    if not found then
        return null;
    end if;
    select array_agg(l.id) into pending from "{{schema}}"."{{jobs}}_ledger" l
     where l.job = "{{jobs}}_delete".name and l.outcome is null and l.dispatched_at is null;
    -- Also those that somebody has claimed: whoever has one finds that it is gone.
    perform from "{{schema}}"."{{job_runs}}" q where q.id = any (pending) order by q.id for update;
    update "{{schema}}"."{{job_runs}}" q set status = 0, owner = null, locked_until = null, generation = q.generation + 1
     where q.id = any (pending) and q.status = 1;
    cancelled := array(select c.id from "{{schema}}"."{{job_runs}}_cancel_items"(coalesce(pending, '{}')) c(id));
    update "{{schema}}"."{{jobs}}_ledger" l set outcome = 4, ended_at = statement_timestamp(), error = 'the job was deleted' where l.id = any (cancelled);
    perform "{{schema}}"."{{audit}}_note"(
        'job.delete', $2, jsonb_build_object('before', "{{schema}}"."{{jobs}}_told"(was), 'after', null, 'cancelled_runs', cardinality(cancelled)),
        array['job'], array[$1]);
    return cardinality(cancelled);
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_delete"(text, text) is
    'Deletes a job and cancels its runs that are not dispatched, claimed or not. Those that are go on, and its history stays. Returns how many were cancelled, null if there is no such job. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{jobs}}_unknown"(caller text, name text) returns void
language plpgsql volatile
as $mainstay$
begin
    raise exception using errcode = 'P0002', message = '{{jobs:literal}}_' || caller || ': there is no job ' || coalesce('"' || name || '"', 'null');
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_unknown"(text, text) is 'Internal: says that there is no such job.';
