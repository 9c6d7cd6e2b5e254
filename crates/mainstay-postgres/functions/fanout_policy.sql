-- Registering fan-outs and changing how they are planned. Expressions and zones are not read here but by a coordinator.

create or replace function "{{schema}}"."{{fanout}}_channel"() returns text
language sql immutable parallel safe
as $mainstay$
    -- A channel name is at most 63 bytes, two names can be longer.
    select case when octet_length('{{schema:literal}}.{{fanout:literal}}') <= 63 then '{{schema:literal}}.{{fanout:literal}}'
                else 'mainstay.' || md5('{{schema:literal}}.{{fanout:literal}}') end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_channel"() is 'The channel to LISTEN on (quote it as an identifier). Notifications have an empty payload and mean: a policy has changed.';

create or replace function "{{schema}}"."{{fanout}}_told"(policy "{{schema}}"."{{fanout}}") returns jsonb
language sql immutable parallel safe
as $mainstay$
    select jsonb_build_object('every_seconds', policy.every_seconds, 'jitter_seconds', policy.jitter_seconds, 'cron', policy.cron,
                              'time_zone', policy.time_zone, 'enabled', policy.enabled)
     where policy.topic is not null
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_told"("{{schema}}"."{{fanout}}") is 'Internal: what can be set of a policy, for a record. Null where there is none.';

create or replace function "{{schema}}"."{{fanout}}_register"(
    topic text,
    work_key text,
    every_seconds integer default 0,
    jitter_seconds integer default 0,
    cron text default null,
    time_zone text default 'UTC',
    enabled boolean default true,
    actor text default null
) returns setof "{{schema}}"."{{fanout}}"
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    wrong constant text := "{{schema}}"."{{fanout}}_wrong"(topic, work_key, every_seconds, jitter_seconds, cron, time_zone, enabled);
    new_declared constant jsonb := jsonb_build_array(every_seconds, jitter_seconds, cron, time_zone, enabled);
    old "{{schema}}"."{{fanout}}";
begin
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{fanout:literal}}_register: ' || wrong;
    end if;
    insert into "{{schema}}"."{{fanout}}" as p (topic, work_key, every_seconds, jitter_seconds, cron, time_zone, enabled, declared)
    values (topic, work_key, every_seconds, jitter_seconds, cron, time_zone, enabled, new_declared)
    on conflict (topic, work_key) do nothing;
    if not found then
        -- Registered with the same values as the last time, as every start of a program does, it stays untouched.
        select p.* into old from "{{schema}}"."{{fanout}}" p
         where p.topic = $1 and p.work_key = $2 and p.declared <> new_declared for no key update;
        update "{{schema}}"."{{fanout}}" p
           set every_seconds = $3, jitter_seconds = $4, cron = $5, time_zone = $6, enabled = $7, declared = new_declared,
               version = p.version + 1, updated_at = statement_timestamp(),
               since_at = case when p.enabled and $7 and (p.cron, p.time_zone) is not distinct from ($5, $6)
                               then p.since_at else statement_timestamp() end,
               last_run_at = case when p.last_run_at <= statement_timestamp() then p.last_run_at end
         where p.topic = old.topic and p.work_key = old.work_key;
    end if;
    if found then
        perform pg_notify("{{schema}}"."{{fanout}}_channel"(), '');
        perform "{{schema}}"."{{audit}}_note"(
            'fanout.register', $8, jsonb_build_object(
                'before', "{{schema}}"."{{fanout}}_told"(old),
                'after', (select "{{schema}}"."{{fanout}}_told"(p) from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2)),
            array['fanout'], array[$1 || ':' || $2]);
    end if;
    return query select p.* from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_register"(text, text, integer, integer, text, text, boolean, text) is
    'Registers a fan-out and returns its policy. One that is there changes only if other values are registered than the last time. What is new or changed is recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{fanout}}_set"(
    topic text,
    work_key text,
    every_seconds integer default null,
    jitter_seconds integer default null,
    cron text default null,
    time_zone text default null,
    enabled boolean default null,
    expected_version bigint default null,
    actor text default null
) returns setof "{{schema}}"."{{fanout}}"
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    old "{{schema}}"."{{fanout}}";
    new "{{schema}}"."{{fanout}}";
    wrong text;
begin
    select p.* into old from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2 for no key update;
    if not found or old.version <> $8 then
        return;
    end if;
    new := old;
    new.every_seconds := coalesce($3, old.every_seconds);
    new.jitter_seconds := coalesce($4, old.jitter_seconds);
    new.cron := nullif(coalesce($5, old.cron), '');
    new.time_zone := coalesce($6, old.time_zone);
    new.enabled := coalesce($7, old.enabled);
    wrong := "{{schema}}"."{{fanout}}_wrong"($1, $2, new.every_seconds, new.jitter_seconds, new.cron, new.time_zone, new.enabled);
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{fanout:literal}}_set: ' || wrong;
    end if;
    if new is distinct from old then
        update "{{schema}}"."{{fanout}}" p
           set every_seconds = new.every_seconds, jitter_seconds = new.jitter_seconds, cron = new.cron, time_zone = new.time_zone,
               enabled = new.enabled, version = p.version + 1, updated_at = statement_timestamp(),
               since_at = case when old.enabled and new.enabled and (old.cron, old.time_zone) is not distinct from (new.cron, new.time_zone)
                               then p.since_at else statement_timestamp() end,
               -- Of a clock that was ahead.
               last_run_at = case when p.last_run_at <= statement_timestamp() then p.last_run_at end
         where p.topic = $1 and p.work_key = $2;
        perform pg_notify("{{schema}}"."{{fanout}}_channel"(), '');
        perform "{{schema}}"."{{audit}}_note"(
            'fanout.set', $9, jsonb_build_object(
                'before', "{{schema}}"."{{fanout}}_told"(old), 'after', "{{schema}}"."{{fanout}}_told"(new)),
            array['fanout'], array[$1 || ':' || $2]);
    end if;
    return query select p.* from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_set"(text, text, integer, integer, text, text, boolean, bigint, text) is
    'Changes how a fan-out is planned and returns its policy; null leaves things as they are, an empty cron takes the expression away. No row: there is no such fan-out, or it is of another version than expected. A change is recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{fanout}}_run"(topic text, work_key text, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    asked_before timestamptz;
begin
    select p.run_requested_at into asked_before from "{{schema}}"."{{fanout}}" p where p.topic = $1 and p.work_key = $2 for no key update;
    if not found then
        return false;
    end if;
    update "{{schema}}"."{{fanout}}" p set run_requested_at = statement_timestamp(), version = p.version + 1 where p.topic = $1 and p.work_key = $2;
    perform pg_notify("{{schema}}"."{{fanout}}_channel"(), '');
    perform "{{schema}}"."{{audit}}_note"(
        'fanout.run', $3, jsonb_build_object(
            'before', jsonb_build_object('run_requested_at', asked_before), 'after', jsonb_build_object('run_requested_at', statement_timestamp())),
        array['fanout'], array[$1 || ':' || $2]);
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_run"(text, text, text) is
    'Asks for a run now: a slice of every shard that has none in flight. A coordinator makes it. False: there is no such fan-out. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{fanout}}_ran"(topic text, work_key text, version bigint, nominal timestamptz, requested timestamptz) returns void
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    update "{{schema}}"."{{fanout}}" p
       -- What is still to come was noted by a clock that has been set back since.
       set last_run_at = case when p.last_run_at > statement_timestamp() then $4 else greatest(p.last_run_at, $4) end,
           since_at = least(p.since_at, statement_timestamp()), run_requested_at = case when p.run_requested_at is distinct from $5 then p.run_requested_at end
     where p.topic = $1 and p.work_key = $2 and p.version = $3;
end
$mainstay$;
comment on function "{{schema}}"."{{fanout}}_ran"(text, text, bigint, timestamptz, timestamptz) is 'Internal: notes a run as made.';
