-- Joins: several steps, and what is to happen when they have ended.
--
-- A hundred thousand members of one join must not wait for one row. So a join gives out credit: one for each step that may still be
-- counted, spread over up to 16 slots. Counting takes credit from a slot that nobody has locked just now, and writes no other row of
-- the join. Credit is the only authority: what finds none is not counted, and whoever takes the last of it ends the join, under a lock
-- on all slots that still have some. What the counters are is the sum over the slots.
--
-- Pool 0 is for either outcome (modes all and deadline). Modes any and quorum have pool 1, one credit for each step that has to
-- complete, and pool 2, one for each failure up to the one that makes that impossible.

create table "{{schema}}"."{{joins}}" (
    created_at     timestamptz not null default statement_timestamp(),
    updated_at     timestamptz not null default statement_timestamp(),
    deadline_at    timestamptz,
    ended_at       timestamptz,
    id             uuid        not null,
    expected_steps integer     not null,
    needed         integer     not null,
    mode           smallint    not null default 0,
    status         smallint    not null default 0,
    reason         text,
    grouping_key   text,

    constraint "{{joins}}_pkey" primary key (id),
    constraint "{{joins}}_ranges" check (
        expected_steps between 1 and 1000000000 and needed between 1 and expected_steps and mode between 0 and 3 and status between 0 and 3),
    constraint "{{joins}}_sizes" check (length(grouping_key) between 1 and 255),
    constraint "{{joins}}_times" check (isfinite(deadline_at) and (mode <> 3 or deadline_at is not null)),
    constraint "{{joins}}_end" check ((status = 0) = (ended_at is null) and (status = 2) = (reason is not null) and reason in ('steps', 'deadline'))
) with (fillfactor = 80);

create index "{{joins}}_grouping" on "{{schema}}"."{{joins}}" (grouping_key, id) where grouping_key is not null;
-- Whether there is any join to count for, and whose deadline is next.
create index "{{joins}}_pending" on "{{schema}}"."{{joins}}" (deadline_at) where status = 0;
-- What retention walks.
create index "{{joins}}_ended" on "{{schema}}"."{{joins}}" (ended_at) where status <> 0;

comment on table "{{schema}}"."{{joins}}" is 'Joins. Read them freely through the view, change them through the functions.';
comment on column "{{schema}}"."{{joins}}".mode is 'When it has ended: 0 all, 1 any, 2 quorum, 3 deadline.';
comment on column "{{schema}}"."{{joins}}".needed is 'How many steps have to complete.';
comment on column "{{schema}}"."{{joins}}".status is '0 pending, 1 completed, 2 failed, 3 cancelled.';

create table "{{schema}}"."{{joins}}_slot" (
    updated_at timestamptz,
    join_id    uuid     not null,
    left_over  integer  not null,
    completed  integer  not null default 0,
    failed     integer  not null default 0,
    pool       smallint not null,
    slot       smallint not null,

    constraint "{{joins}}_slot_pkey" primary key (join_id, pool, slot),
    constraint "{{joins}}_slot_ranges" check (left_over >= 0 and completed >= 0 and failed >= 0)
-- Updated over and over: with room beside them, rows need no new entries in the index.
) with (fillfactor = 30);
comment on table "{{schema}}"."{{joins}}_slot" is 'Internal: how many steps may still be counted, and how many were, in parts that can be locked apart.';

create table "{{schema}}"."{{joins}}_member" (
    updated_at   timestamptz not null default statement_timestamp(),
    join_id      uuid        not null,
    work_item_id uuid        not null,
    state        smallint    not null default 0,

    constraint "{{joins}}_member_pkey" primary key (join_id, work_item_id),
    constraint "{{joins}}_member_ranges" check (state between 0 and 3)
-- Each is updated once. No index has the state, so that this needs no new entries in them.
) with (fillfactor = 70);
create index "{{joins}}_member_item" on "{{schema}}"."{{joins}}_member" (work_item_id);
comment on table "{{schema}}"."{{joins}}_member" is 'What is a step of which join.';
comment on column "{{schema}}"."{{joins}}_member".state is '0 not counted, 1 counted as completed, 2 counted as failed, 3 cancelled with its join.';

create table "{{schema}}"."{{joins}}_continuation" (
    join_id         uuid     not null,
    work_item_id    uuid     not null,
    message_id      uuid     not null,
    outcome         smallint not null,
    priority        smallint not null default 0,
    hold_on_failure boolean  not null default false,
    topic           text     not null,
    ordering_key    text,
    correlation_id  text,
    headers         jsonb,
    payload         text     not null,

    constraint "{{joins}}_continuation_pkey" primary key (join_id, outcome),
    constraint "{{joins}}_continuation_ranges" check (outcome in (1, 2) and priority between -9 and 9),
    constraint "{{joins}}_continuation_sizes" check (
        length(topic) between 1 and 255 and length(ordering_key) between 1 and 255 and length(correlation_id) between 1 and 255),
    constraint "{{joins}}_continuation_headers" check (jsonb_typeof(headers) = 'object')
);
comment on table "{{schema}}"."{{joins}}_continuation" is 'The message that a join puts into the outbox when it ends: outcome 1 completed, 2 failed.';

create view "{{schema}}"."{{joins}}_progress" as
select j.id, j.grouping_key, j.mode, j.expected_steps, j.needed, coalesce(s.completed, 0) as completed, coalesce(s.failed, 0) as failed, j.status, j.reason,
       j.deadline_at, j.created_at, greatest(j.updated_at, s.updated_at) as updated_at, j.ended_at
  from "{{schema}}"."{{joins}}" j
 cross join lateral (select sum(s.completed)::integer as completed, sum(s.failed)::integer as failed, max(s.updated_at) as updated_at
                       from "{{schema}}"."{{joins}}_slot" s where s.join_id = j.id) s;
comment on view "{{schema}}"."{{joins}}_progress" is 'Joins with their counters, for people and reports.';
