-- Jobs: what is to be done by the clock, and a ledger of every run.
--
-- A run is first a row in the queue of runs, then a message in the outbox, both under the run's own id; the ledger has it under that
-- id from its making until retention. The ledger is not written when a message is claimed or settled: how a run ended is looked up
-- where its message is. So jobs cost the outbox nothing.

create table "{{schema}}"."{{jobs}}" (
    version                bigint      not null default 1,
    created_at             timestamptz not null default statement_timestamp(),
    updated_at             timestamptz not null default statement_timestamp(),
    next_nominal_at        timestamptz,
    last_nominal_at        timestamptz,
    misfire_window_seconds integer,
    misfire_cap            integer,
    jitter_seconds         integer     not null default 0,
    misfire                smallint    not null default 1,
    overlap                smallint    not null default 0,
    priority               smallint    not null default 0,
    enabled                boolean     not null default true,
    name                   text        not null,
    topic                  text        not null,
    cron                   text        not null,
    time_zone              text        not null default 'UTC',
    problem                text,
    payload                text        not null default '',

    constraint "{{jobs}}_pkey" primary key (name),
    constraint "{{jobs}}_sizes" check (
        length(name) between 1 and 255 and length(topic) between 1 and 255 and length(cron) between 1 and 1000
        and length(time_zone) between 1 and 255 and length(problem) between 1 and 2048),
    constraint "{{jobs}}_ranges" check (priority between -9 and 9 and jitter_seconds between 0 and 86400 and overlap between 0 and 2),
    -- Cap and window belong to the policy "all", and to no other.
    constraint "{{jobs}}_misfire" check (
        (misfire in (0, 1) and misfire_cap is null and misfire_window_seconds is null)
        or (misfire = 2 and misfire_cap between 1 and 1000 and misfire_window_seconds between 1 and 31622400)),
    constraint "{{jobs}}_times" check (isfinite(next_nominal_at) and isfinite(last_nominal_at))
);

-- What a scheduler walks. Those without a next nominal time come first: it is to be calculated.
create index "{{jobs}}_due" on "{{schema}}"."{{jobs}}" (coalesce(next_nominal_at, '-infinity'), name) where enabled and problem is null;
-- Those a scheduler could not read. Another may be able to.
create index "{{jobs}}_problem" on "{{schema}}"."{{jobs}}" (name) where enabled and problem is not null;

comment on table "{{schema}}"."{{jobs}}" is 'Recurring work. Read it freely, change it through the functions.';
comment on column "{{schema}}"."{{jobs}}".version is 'Grows with every change of the definition.';
comment on column "{{schema}}"."{{jobs}}".next_nominal_at is 'The occurrence that is looked at next. Null while the job is disabled, and until a scheduler has calculated it.';
comment on column "{{schema}}"."{{jobs}}".last_nominal_at is 'The last occurrence that was looked at.';
comment on column "{{schema}}"."{{jobs}}".misfire is 'What becomes of late occurrences: 0 skip, 1 once, 2 all (with cap and window).';
comment on column "{{schema}}"."{{jobs}}".overlap is 'What happens while an earlier run is not over: 0 allow, 1 skip, 2 queue.';
comment on column "{{schema}}"."{{jobs}}".problem is 'Why a scheduler can''t work with it: expression or zone can''t be read. A change of the definition clears it, and so does a scheduler that can.';

create table "{{schema}}"."{{jobs}}_ledger" (
    nominal_at    timestamptz not null,
    due_at        timestamptz not null,
    created_at    timestamptz not null,
    dispatched_at timestamptz,
    started_at    timestamptz,
    ended_at      timestamptz,
    attempts      integer     not null default 0,
    outcome       smallint,
    id            uuid        not null,
    job           text        not null,
    trigger       text        not null,
    error         text,
    output        text,

    constraint "{{jobs}}_ledger_pkey" primary key (id),
    -- One run per occurrence, however many schedulers there are.
    constraint "{{jobs}}_ledger_once" unique (job, nominal_at),
    constraint "{{jobs}}_ledger_outcome" check (outcome between 1 and 4 and num_nulls(outcome, ended_at) in (0, 2)),
    constraint "{{jobs}}_ledger_trigger" check (trigger in ('cron', 'manual')),
    constraint "{{jobs}}_ledger_sizes" check (
        length(job) between 1 and 255 and length(error) between 1 and 2048 and octet_length(output) <= 65536)
) with (fillfactor = 70);

-- What is not over: as many as are under way, whatever the history holds.
create index "{{jobs}}_ledger_open" on "{{schema}}"."{{jobs}}_ledger" (job, id) where outcome is null;
-- What retention walks.
create index "{{jobs}}_ledger_ended" on "{{schema}}"."{{jobs}}_ledger" ((outcome = 2), ended_at) where outcome is not null;
-- The newest of all jobs.
create index "{{jobs}}_ledger_recent" on "{{schema}}"."{{jobs}}_ledger" (nominal_at, id);

comment on table "{{schema}}"."{{jobs}}_ledger" is 'Every run of a job, whether the job is still there or not. Read {{jobs:literal}}_run, which also knows of those that are under way.';
comment on column "{{schema}}"."{{jobs}}_ledger".nominal_at is 'The occurrence it is for; of a run that was asked for by hand, when that was.';
comment on column "{{schema}}"."{{jobs}}_ledger".due_at is 'When it may start: the nominal time and the job''s jitter.';
comment on column "{{schema}}"."{{jobs}}_ledger".outcome is 'How it ended, once that was collected: 1 succeeded, 2 failed, 3 skipped, 4 cancelled.';

-- Where a run stands: by the ledger if that knows its end, else by its message, else by its row in the queue.
-- The cases make the joins look for nothing once the end is known.
create view "{{schema}}"."{{jobs}}_run" as
select l.id, l.job, l.trigger, l.nominal_at, l.due_at,
       case when l.outcome is not null then (array['succeeded', 'failed', 'skipped', 'cancelled'])[l.outcome]
            when h.status = 2 then 'succeeded'
            when h.status = 3 then case h.reason when 'cancelled' then 'cancelled' else 'failed' end
            when o.status = 1 then 'running'
            when o.status = 0 then 'dispatched'
            when q.status = 1 then 'claimed'
            when q.status = 0 then 'pending'
            when l.dispatched_at is not null then 'failed'
            when s.status = 2 then 'succeeded'
            when s.reason = 'cancelled' then 'cancelled'
            else 'failed' end as state,
       l.created_at, l.dispatched_at, l.started_at,
       coalesce(l.ended_at, h.processed_at, case when l.dispatched_at is null then s.processed_at end) as ended_at,
       extract(epoch from coalesce(l.ended_at, h.processed_at) - l.started_at)::double precision as duration_seconds,
       coalesce(o.attempts, h.attempts, l.attempts) as attempts,
       coalesce(l.error, h.last_error, o.last_error::text, case when l.dispatched_at is null then s.last_error end) as error,
       l.output
  from "{{schema}}"."{{jobs}}_ledger" l
  left join "{{schema}}"."{{outbox}}" o on o.id = case when l.outcome is null then l.id end
  left join "{{schema}}"."{{outbox}}_history" h on h.id = case when l.outcome is null then l.id end
  left join "{{schema}}"."{{job_runs}}" q on q.id = case when l.outcome is null then l.id end
  left join "{{schema}}"."{{job_runs}}_history" s on s.id = case when l.outcome is null then l.id end;
comment on view "{{schema}}"."{{jobs}}_run" is
    'Every run of a job and where it stands: pending, claimed, dispatched, running, succeeded, failed, skipped or cancelled.';

-- A message leaves the outbox's history when retention deletes it or somebody requeues it; then the ledger has to know. Neither
-- enqueue, claim nor settle ever fires these. The function comes with the others; here is only its name.
create function "{{schema}}"."{{jobs}}_follow"() returns trigger language plpgsql as $mainstay$ begin return null; end $mainstay$;
create trigger "{{jobs}}_follow" after delete on "{{schema}}"."{{outbox}}_history"
    for each row when (old.headers ? 'mainstay-run') execute function "{{schema}}"."{{jobs}}_follow"('message');
create trigger "{{jobs}}_follow" after delete on "{{schema}}"."{{job_runs}}_history"
    for each row execute function "{{schema}}"."{{jobs}}_follow"('item');
