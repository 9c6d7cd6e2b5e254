-- Where claims may begin to look, so that they need not walk over what has been settled.
--
-- A settled item leaves entries behind in the ready index until vacuum removes them, and vacuum removes nothing that an open
-- transaction might still see. With one transaction open for minutes, each claim would walk over all that was settled since.
-- How a floor is found and why nothing claimable is ever below it: functions/outbox_floor.sql.

create table "{{schema}}"."{{outbox}}_floor" (
    -- The newest row counts. Appended and never updated: the versions of one row would be as many to walk.
    n            bigint      not null,
    noted_at     timestamptz not null,
    swept_at     timestamptz not null,
    next_xid     bigint,
    made_in      oid         not null,
    quiet        smallint    not null,
    held_up      boolean     not null,
    levels       smallint[]    not null,
    due_ats      timestamptz[] not null,
    seqs         bigint[]      not null,
    next_due_ats timestamptz[] not null,
    next_seqs    bigint[]      not null,

    constraint "{{outbox}}_floor_pkey" primary key (n),
    constraint "{{outbox}}_floor_size" check (
        cardinality(levels) = all (array[cardinality(due_ats), cardinality(seqs), cardinality(next_due_ats), cardinality(next_seqs)]))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table "{{schema}}"."{{outbox}}_floor" is 'Per priority: nothing that can be claimed lies at or before (due_at, seq). Kept by claims; not to be changed by hand.';
comment on column "{{schema}}"."{{outbox}}_floor".n is 'Each row is made from the one before it. The newest counts.';
comment on column "{{schema}}"."{{outbox}}_floor".swept_at is 'When somebody last looked whether there is anything below the floors after all.';
comment on column "{{schema}}"."{{outbox}}_floor".next_xid is 'The next floors hold once all transactions below this one have ended. Null: not known yet.';
comment on column "{{schema}}"."{{outbox}}_floor".made_in is 'The oid of this table: in a restored copy, transactions are counted differently.';
comment on column "{{schema}}"."{{outbox}}_floor".quiet is 'How many times in a row there was nothing to do. Claims that find nothing then leave the floors alone.';
comment on column "{{schema}}"."{{outbox}}_floor".held_up is 'A transaction has been open for long, and the last floors were found by looking at locks.';
comment on column "{{schema}}"."{{outbox}}_floor".levels is 'Priorities, highest first. The other arrays go by it.';

comment on column "{{schema}}"."{{outbox}}".due_at is
    'When it may be claimed next: the requested due time, the end of a delay, or a little after the time when its turn in its ordering key came.';

-- It returns one column more.
drop function if exists "{{schema}}"."{{outbox}}_take"(uuid, double precision, integer, integer, text[], text[]);

-- Read and prepared anew by every statement that writes to the table, for something that only the functions can get wrong: it took
-- a tenth of what an enqueue costs.
alter table "{{schema}}"."{{outbox}}" drop constraint if exists "{{outbox}}_lease";
alter table "{{schema}}"."{{outbox}}_history"
    drop constraint if exists "{{outbox}}_history_status", drop constraint if exists "{{outbox}}_history_payload", drop constraint if exists "{{outbox}}_history_error";
