-- Fan-outs: how each is planned, and how far each of its shards has come.
--
-- Slices are messages of the outbox; a cursor remembers the id of the last one, and whether that is still under way is looked up there.
-- So fan-outs cost the outbox nothing.

create table "{{schema}}"."{{fanout}}" (
    version          bigint      not null default 1,
    created_at       timestamptz not null default statement_timestamp(),
    updated_at       timestamptz not null default statement_timestamp(),
    since_at         timestamptz not null default statement_timestamp(),
    last_run_at      timestamptz,
    run_requested_at timestamptz,
    every_seconds    integer     not null default 0,
    jitter_seconds   integer     not null default 0,
    enabled          boolean     not null default true,
    topic            text        not null,
    work_key         text        not null,
    cron             text,
    time_zone        text        not null default 'UTC',
    declared         jsonb       not null,

    constraint "{{fanout}}_pkey" primary key (topic, work_key),
    constraint "{{fanout}}_sizes" check (
        length(topic) between 1 and 100 and length(work_key) between 1 and 100 and length(cron) between 1 and 1000 and length(time_zone) between 1 and 255),
    -- Otherwise two of them could have the same topic in the outbox.
    constraint "{{fanout}}_colon" check (strpos(topic, ':') = 0),
    constraint "{{fanout}}_ranges" check (every_seconds between 0 and 31622400 and jitter_seconds between 0 and 86400),
    constraint "{{fanout}}_cadence" check (cron is not null or every_seconds > 0),
    constraint "{{fanout}}_times" check (isfinite(since_at) and isfinite(last_run_at) and isfinite(run_requested_at))
);

comment on table "{{schema}}"."{{fanout}}" is 'How fan-outs are planned. Read it freely, change it through the functions.';
comment on column "{{schema}}"."{{fanout}}".version is 'Grows with every change, and when somebody asks for a run.';
comment on column "{{schema}}"."{{fanout}}".since_at is 'From when on the cron expression''s occurrences count: since it was changed, or enabled.';
comment on column "{{schema}}"."{{fanout}}".last_run_at is 'The nominal time of the last run.';
comment on column "{{schema}}"."{{fanout}}".run_requested_at is 'Somebody wants a run, since then.';
comment on column "{{schema}}"."{{fanout}}".every_seconds is 'How long after its last completion a shard is due; with a cron expression, the least distance between two of its slices.';
comment on column "{{schema}}"."{{fanout}}".declared is 'What the program registered last: registering the same again does not undo what was changed since.';

create table "{{schema}}"."{{fanout}}_cursor" (
    created_at        timestamptz not null default statement_timestamp(),
    updated_at        timestamptz not null default statement_timestamp(),
    last_completed_at timestamptz,
    slice_due_at      timestamptz,
    slice_cursor_at   timestamptz,
    slice_id          uuid,
    topic             text        not null,
    work_key          text        not null,
    shard_key         text        not null,

    constraint "{{fanout}}_cursor_pkey" primary key (topic, work_key, shard_key),
    constraint "{{fanout}}_cursor_sizes" check (
        length(topic) between 1 and 100 and length(work_key) between 1 and 100 and length(shard_key) between 1 and 256),
    constraint "{{fanout}}_cursor_times" check (isfinite(last_completed_at) and isfinite(slice_due_at) and isfinite(slice_cursor_at))
-- Every slice changes its row twice, and no index has to know of it.
) with (fillfactor = 70);

comment on table "{{schema}}"."{{fanout}}_cursor" is 'How far each shard of a fan-out has come. Read it freely, change it through the functions.';
comment on column "{{schema}}"."{{fanout}}_cursor".last_completed_at is 'Up to when the shard''s work is done. Never goes back.';
comment on column "{{schema}}"."{{fanout}}_cursor".slice_id is 'The message of the slice that was planned last. While it is in the outbox, no other is planned.';
comment on column "{{schema}}"."{{fanout}}_cursor".slice_due_at is 'The nominal time of that slice.';
comment on column "{{schema}}"."{{fanout}}_cursor".slice_cursor_at is 'Where the cursor stood when that slice was planned.';
