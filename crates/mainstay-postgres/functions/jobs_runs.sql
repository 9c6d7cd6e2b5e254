-- What becomes of runs: they are dispatched, they start, they end, and one day they are forgotten.

create or replace function "{{schema}}"."{{jobs}}_dispatch"(owner uuid, batch integer default 100, keep_payload boolean default true)
returns table (id uuid, job text, late_seconds double precision)
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    forwarded uuid[] := array(select f.id from "{{schema}}"."{{job_runs}}_forward"(owner, batch, keep_payload) f(id));
begin
    return query
    with dispatched as (
        update "{{schema}}"."{{jobs}}_ledger" l set dispatched_at = statement_timestamp()
         where l.id = any (forwarded) returning l.id, l.job, l.dispatched_at - l.due_at as late)
    -- A run that somebody put into the queue without us is dispatched too.
    select f.id, d.job, extract(epoch from d.late)::double precision from unnest(forwarded) f(id) left join dispatched d on d.id = f.id;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_dispatch"(uuid, integer, boolean) is
    'Makes a message in {{outbox:literal}} of each run that is due, under the same id, and notes when. Call it until it returns fewer than the batch.';

create or replace function "{{schema}}"."{{jobs}}_started"(id uuid) returns boolean
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    update "{{schema}}"."{{jobs}}_ledger" l set started_at = statement_timestamp() where l.id = "{{jobs}}_started".id and l.started_at is null;
    return found;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_started"(uuid) is
    'Notes that a handler has begun with a run; the first time counts. For workers that are not the library''s own.';

create or replace function "{{schema}}"."{{jobs}}_record_output"(id uuid, output text) returns boolean
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
begin
    if octet_length(output) > 65536 then
        raise exception using errcode = '22023', message = '{{jobs:literal}}_record_output: output must be at most 65536 bytes, got ' || octet_length(output);
    end if;
    update "{{schema}}"."{{jobs}}_ledger" l set output = "{{jobs}}_record_output".output where l.id = "{{jobs}}_record_output".id;
    return found;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_record_output"(uuid, text) is
    'Keeps a text with a run, for people to read; the last one counts. False if there is no such run.';

create or replace function "{{schema}}"."{{jobs}}_ended"(after_job text default null, after_id uuid default null, max_rows integer default 500)
returns table (id uuid, job text, over boolean, last boolean)
language plpgsql stable
-- A few index lookups for each run that is looked at: whatever the statistics say, never a walk through the outbox's history.
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $mainstay$
#variable_conflict use_column
begin
    -- The message of a run has its id twice. Another one that has only taken the place says nothing of the run.
    return query
    with looked_at as materialized (
        select l.id, l.job, l.dispatched_at from "{{schema}}"."{{jobs}}_ledger" l
         where l.outcome is null and (l.job, l.id) > (coalesce(after_job, ''), coalesce(after_id, '00000000-0000-0000-0000-000000000000'))
         order by l.job, l.id limit max_rows),
    judged as (
        select k.id, k.job, row_number() over (order by k.job, k.id) = max_rows as last,
               not exists (select from "{{schema}}"."{{outbox}}" o where o.id = k.id and o.message_id = k.id)
               and (k.dispatched_at is not null
                    or exists (select from "{{schema}}"."{{outbox}}_history" h where h.id = k.id and h.message_id = k.id)
                    or exists (select from "{{schema}}"."{{job_runs}}_history" s where s.id = k.id)) as over
          from looked_at k)
    select j.id, j.job, j.over, j.last from judged j where j.over or j.last order by j.job, j.id;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_ended"(text, uuid, integer) is
    'Internal: looks at up to max_rows runs whose end is not noted, after this one, and returns those that are over; also the last it looked at, if there may be more. Reads only.';

create or replace function "{{schema}}"."{{jobs}}_collect"(ids uuid[])
returns table (id uuid, job text, outcome smallint, ran_seconds double precision)
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    locked constant uuid[] := array(
        select l.id from "{{schema}}"."{{jobs}}_ledger" l where l.id = any (ids) and l.outcome is null for no key update skip locked);
begin
    -- A statement of its own, after the locks: what somebody has requeued before them is seen to be open. Whoever requeues it from
    -- now on waits for us, and then sees what we have written.
    return query
    with ended as materialized (
        select l.id,
               case when h.status = 2 then 1
                    when h.reason = 'cancelled' then 4
                    when h.id is not null or l.dispatched_at is not null then 2
                    when s.status = 2 then 1
                    when s.reason = 'cancelled' then 4
                    else 2 end::smallint as outcome,
               coalesce(h.processed_at, case when l.dispatched_at is null then s.processed_at end, statement_timestamp()) as ended_at,
               coalesce(h.attempts, l.attempts) as attempts,
               case when h.id is not null then case h.status when 3 then coalesce(h.last_error, h.reason) end
                    when l.dispatched_at is not null then 'its message is no longer in the outbox'
                    when s.status = 3 then coalesce(s.last_error, s.reason) end as error
          from "{{schema}}"."{{jobs}}_ledger" l
          left join "{{schema}}"."{{outbox}}_history" h on h.id = l.id and h.message_id = l.id
          left join "{{schema}}"."{{job_runs}}_history" s on s.id = l.id
         where l.id = any (locked) and l.outcome is null
           and (h.id is not null or s.id is not null or l.dispatched_at is not null)
           and not exists (select from "{{schema}}"."{{outbox}}" o where o.id = l.id and o.message_id = l.id))
    update "{{schema}}"."{{jobs}}_ledger" l
       set outcome = e.outcome, ended_at = e.ended_at, attempts = e.attempts, error = e.error
      from ended e where e.id = l.id
    returning l.id, l.job, l.outcome, extract(epoch from l.ended_at - l.started_at)::double precision;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_collect"(uuid[]) is
    'Internal: notes the end of those of these runs that are over, and returns them. One that somebody else has locked is left to the next look.';

-- A message, or an item of the queue, has left the history: it was deleted, or is open again.
create or replace function "{{schema}}"."{{jobs}}_follow"() returns trigger
language plpgsql volatile
as $mainstay$
declare
    again constant boolean := case tg_argv[0] when 'message' then exists (select from "{{schema}}"."{{outbox}}" o where o.id = old.id)
                                              else exists (select from "{{schema}}"."{{job_runs}}" q where q.id = old.id) end;
begin
    -- Locked by its id alone, before anything is decided: somebody may be noting its end just now, and an update that asks for one
    -- would not see it and pass it by.
    perform from "{{schema}}"."{{jobs}}_ledger" l where l.id = old.id for no key update;
    if not found then
        return null;
    end if;
    if again then
        update "{{schema}}"."{{jobs}}_ledger" l set outcome = null, ended_at = null, error = null, started_at = null
         where l.id = old.id and (tg_argv[0] = 'message' or l.dispatched_at is null);
    else
        update "{{schema}}"."{{jobs}}_ledger" l
           set outcome = case when old.status = 2 then 1 when old.reason = 'cancelled' then 4 else 2 end,
               ended_at = old.processed_at, attempts = case tg_argv[0] when 'message' then old.attempts else l.attempts end,
               error = case when old.status = 3 then coalesce(old.last_error, old.reason) end
         where l.id = old.id and l.outcome is null and (tg_argv[0] = 'message' or l.dispatched_at is null);
    end if;
    return null;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_follow"() is
    'Internal: keeps the end of a run whose message is deleted by retention, and forgets it when the message is requeued.';

create or replace function "{{schema}}"."{{jobs}}_purge"(
    older_than_seconds double precision, failed_older_than_seconds double precision default null, max_rows integer default 1000,
    actor text default null
) returns integer
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := statement_timestamp();
    limits constant double precision[] := array[older_than_seconds, failed_older_than_seconds];
    names constant text[] := '{older_than_seconds,failed_older_than_seconds}';
    purged integer := 0;
    doomed uuid[];
begin
    for i in 1 .. 2 loop
        if not (limits[i] >= 0 and limits[i] <= 1e10) then
            raise exception using errcode = '22023',
                message = '{{jobs:literal}}_purge: ' || names[i] || ' must be 0 to 10000000000, or null to keep them, got ' || limits[i];
        end if;
    end loop;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023', message = '{{jobs:literal}}_purge: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    for i in 1 .. 2 loop
        continue when limits[i] is null or purged >= max_rows;
        doomed := array(select l.id from "{{schema}}"."{{jobs}}_ledger" l
                         where l.outcome is not null and (l.outcome = 2) = (i = 2) and l.ended_at <= moment - make_interval(secs => limits[i])
                         order by l.ended_at limit max_rows - purged for update skip locked);
        -- What the queue remembers of them goes too, unless somebody is requeueing it just now.
        delete from "{{schema}}"."{{job_runs}}_history" s
         where (s.id, s.seq) in (select t.id, t.seq from "{{schema}}"."{{job_runs}}_history" t where t.id = any (doomed) for update skip locked);
        delete from "{{schema}}"."{{jobs}}_ledger" l where l.id = any (doomed);
        purged := purged + cardinality(doomed);
    end loop;
    if actor is not null and purged > 0 then
        perform "{{schema}}"."{{audit}}_note"('job.purge', actor, jsonb_build_object(
            'count', purged, 'older_than_seconds', floor(limits[1]), 'failed_older_than_seconds', floor(limits[2])));
    end if;
    return purged;
end
$mainstay$;
comment on function "{{schema}}"."{{jobs}}_purge"(double precision, double precision, integer, text) is
    'Forgets up to max_rows of the runs that ended longest ago, older than so many seconds; null keeps that kind. What is not over is never touched. Call until it returns less than max_rows. With an actor that is recorded in the audit trail.';
