-- Leases: one row for each name that was ever held.
--
-- What the layout relies on, and what would break it:
--   * A row is never deleted and its numbers never go back: a number given twice would let two holders pass the same fence.
--   * There is no index but that of the name, and room on each page, so a renewal stays on its page.
--   * Whoever guards a lease in a transaction holds FOR KEY SHARE on its row. A renewal or a release is an UPDATE that leaves the
--     key alone, and does not wait for it. An acquisition takes FOR UPDATE first, and does: as long as such a transaction is open,
--     nobody is given the lease.

create table "{{schema}}"."{{lease}}" (
    epoch         bigint      not null,
    fencing_token bigint      not null,
    acquired_at   timestamptz not null,
    renewed_at    timestamptz not null,
    expires_at    timestamptz not null,
    -- Compared and listed byte by byte, whatever the database's language.
    name          text        collate "C" not null,
    owner         text,
    context       text,

    constraint "{{lease}}_pkey" primary key (name),
    constraint "{{lease}}_name" check (length(name) between 1 and 255),
    constraint "{{lease}}_owner" check (length(owner) between 1 and 255),
    constraint "{{lease}}_context" check (length(context) between 1 and 4096),
    constraint "{{lease}}_numbers" check (epoch >= 1 and fencing_token >= epoch),
    constraint "{{lease}}_times" check (isfinite(acquired_at) and isfinite(renewed_at) and isfinite(expires_at))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
comment on table "{{schema}}"."{{lease}}" is 'Leases, held and free. Rows stay for ever, so that their numbers never go back.';
comment on column "{{schema}}"."{{lease}}".epoch is 'How often it was acquired. Fences writes: see {{lease:literal}}_guard.';
comment on column "{{schema}}"."{{lease}}".fencing_token is 'How often it was acquired or renewed.';
comment on column "{{schema}}"."{{lease}}".expires_at is 'Until when it is held, or when it ended.';
comment on column "{{schema}}"."{{lease}}".owner is 'Who holds it, or was the last to if it lapsed. Null once it was released.';
comment on column "{{schema}}"."{{lease}}".context is 'What its holder says about itself.';

-- One row: where the numbers of a timeline begin. See lease_numbers.sql.
create table "{{schema}}"."{{lease}}_floor" (
    server        bigint      not null,
    height        bigint      not null,
    timeline      integer     not null,
    only_row      boolean     not null default true,

    constraint "{{lease}}_floor_pkey" primary key (only_row),
    constraint "{{lease}}_floor_only_row" check (only_row),
    constraint "{{lease}}_floor_height" check (height between -1 and 1048575)
);
insert into "{{schema}}"."{{lease}}_floor" (server, height, timeline) values (0, -1, 0);
comment on table "{{schema}}"."{{lease}}_floor" is 'What epochs and fencing tokens have above 32 bits that count. After a restore, an operator may raise the height.';
comment on column "{{schema}}"."{{lease}}_floor".server is 'The system identifier of the server that gave numbers last.';
comment on column "{{schema}}"."{{lease}}_floor".timeline is 'Its timeline then.';
