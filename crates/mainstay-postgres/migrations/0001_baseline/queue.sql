-- A work queue: one hot table of open items, an append-only history of settled ones. Rendered for the outbox, the inbox, the timers and
-- the job runs.
--
-- What the layout relies on, and what would break it:
--   * A claim is an UPDATE of status, owner, generation, attempts and locked_until. No index and no index predicate may
--     mention one of these: the first that does makes every claim write to every index, and drains at a fraction of the rate.
--   * The fill factor leaves each page room for a second copy of all its rows, because one batch claims whole pages at once.
--     At 70 fewer than half of the claims stay on their page; at 48 about 99 in 100 do.
--   * Items leave the table when they are settled, so its size follows the backlog and not the traffic.
--
-- The functions are the public interface. The tables may change behind them.

-- The limits of the contract as domains and not as table constraints: those of a table are parsed and planned again by every
-- single statement, which more than doubled the cost of one insert, and evaluated again by every claim. A domain is checked when
-- a value is stored, and its check is compiled once per connection.
create domain "{{schema}}"."{{queue}}_label" as text constraint "{{queue}}_label_size" check (length(value) between 1 and 255);
create domain "{{schema}}"."{{queue}}_error" as text constraint "{{queue}}_error_size" check (length(value) between 1 and 2048);
create domain "{{schema}}"."{{queue}}_priority" as smallint constraint "{{queue}}_priority_range" check (value between -9 and 9);
create domain "{{schema}}"."{{queue}}_headers" as jsonb constraint "{{queue}}_headers_object" check (jsonb_typeof(value) = 'object');
-- Infinite times would make every age and delay computed from them fail.
create domain "{{schema}}"."{{queue}}_time" as timestamptz constraint "{{queue}}_time_finite" check (isfinite(value));
comment on domain "{{schema}}"."{{queue}}_label" is 'Topic, key or correlation id: 1 to 255 characters.';
comment on domain "{{schema}}"."{{queue}}_error" is 'An error text: 1 to 2048 characters.';
comment on domain "{{schema}}"."{{queue}}_priority" is 'Priority: -9 to 9, higher first.';
comment on domain "{{schema}}"."{{queue}}_headers" is 'Headers: a JSON object.';
comment on domain "{{schema}}"."{{queue}}_time" is 'A finite time.';

create table "{{schema}}"."{{queue}}" (
    -- Eight-byte columns first: no padding between them.
    seq              bigint      generated always as identity,
    created_at       timestamptz not null,
    due_at           "{{schema}}"."{{queue}}_time" not null,
    requested_due_at "{{schema}}"."{{queue}}_time",
    locked_until     timestamptz,
    expires_at       "{{schema}}"."{{queue}}_time",
    generation       bigint      not null default 0,
    attempts         integer     not null default 0,
    priority         "{{schema}}"."{{queue}}_priority"    not null default 0,
    status           smallint    not null default 0,
    id               uuid        not null,
    message_id       uuid        not null,
    owner            uuid,
    hold_on_failure  boolean     not null default false,
    parked           boolean     not null default false,
    topic            "{{schema}}"."{{queue}}_label"        not null,
    ordering_key     "{{schema}}"."{{queue}}_label",
    idempotency_key  "{{schema}}"."{{queue}}_label",
    correlation_id   "{{schema}}"."{{queue}}_label",
    last_error       "{{schema}}"."{{queue}}_error",
    headers          "{{schema}}"."{{queue}}_headers",
    payload          text        not null,

    -- No check that a lease goes with its status: every statement that writes to the table would parse and plan it again, a tenth of
    -- what an enqueue costs, and only the functions could get it wrong.
    constraint "{{queue}}_pkey" primary key (id)
) with (
    fillfactor = 48,
    -- A queue turns over many times its size: a share of the table is the wrong measure for when to clean it.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000,
    -- The next burst would only grow the file again, and truncating takes an exclusive lock.
    vacuum_truncate = false, toast.vacuum_truncate = false,
    toast.autovacuum_vacuum_scale_factor = 0.01, toast.autovacuum_vacuum_threshold = 2000
);

-- What a claim walks: one precise range per priority.
create index "{{queue}}_ready" on "{{schema}}"."{{queue}}" (priority, due_at, seq) where not parked;
-- Who is ahead of me, within one ordering key. Two indexes, so that the few that can run are found without walking the many that wait.
create index "{{queue}}_lane" on "{{schema}}"."{{queue}}" (ordering_key, seq) where ordering_key is not null and not parked;
create index "{{queue}}_parked" on "{{schema}}"."{{queue}}" (ordering_key, seq) where parked;

comment on table "{{schema}}"."{{queue}}" is 'Open outbox items: status 0 Ready or 1 InProgress. Change it through the functions only.';
comment on column "{{schema}}"."{{queue}}".seq is 'Order of enqueueing; the order within an ordering key.';
comment on column "{{schema}}"."{{queue}}".due_at is
    'When it may be claimed next: the requested due time, the end of a delay, or a little after the time when its turn in its ordering key came.';
comment on column "{{schema}}"."{{queue}}".requested_due_at is 'The due time asked for at enqueue, if any.';
comment on column "{{schema}}"."{{queue}}".generation is 'Raised by every claim, the first time to seq * 65536 + 1, so that it never repeats for an id; a settle with an older one changes nothing. 0: never claimed.';
comment on column "{{schema}}"."{{queue}}".attempts is 'Deliveries, counted when claimed. Given back by a release.';
comment on column "{{schema}}"."{{queue}}".parked is 'Waits behind another item of its ordering key (or a held key), out of sight of claims. A hint: order is checked again at each claim.';

create table "{{schema}}"."{{queue}}_history" (
    seq              bigint      not null,
    created_at       timestamptz not null,
    due_at           timestamptz not null,
    requested_due_at timestamptz,
    processed_at     timestamptz not null,
    expires_at       timestamptz,
    generation       bigint      not null,
    attempts         integer     not null,
    priority         smallint    not null,
    status           smallint    not null,
    id               uuid        not null,
    message_id       uuid        not null,
    processed_by     uuid,
    hold_on_failure  boolean     not null,
    topic            text        not null,
    reason           text,
    ordering_key     text,
    idempotency_key  text,
    correlation_id   text,
    last_error       text,
    headers          jsonb,
    payload          text,

    -- Not id alone. An id is used once, but a transaction with an old snapshot does not see all that was settled since: should it use
    -- an id again, a whole batch of settles would fail for it.
    constraint "{{queue}}_history_pkey" primary key (id, seq)
);

-- Retention walks each status from its oldest end; failed items that are kept for years are never walked to find done ones.
create index "{{queue}}_history_settled" on "{{schema}}"."{{queue}}_history" (status, processed_at);

comment on table "{{schema}}"."{{queue}}_history" is 'Settled outbox items: status 2 Done or 3 Failed.';
comment on column "{{schema}}"."{{queue}}_history".reason is 'Why it failed: handler, delivery-limit, expired or cancelled. Null when done.';
comment on column "{{schema}}"."{{queue}}_history".payload is 'Null when the worker chose not to keep the payloads of done items.';
comment on column "{{schema}}"."{{queue}}_history".generation is 'Carried on by a requeue, so that a claim from before it can never settle the item.';

-- A table of its own: the key must outlive the open item, and uniqueness must hold over open and settled items together.
create table "{{schema}}"."{{queue}}_idempotency" (
    idempotency_key text        not null,
    work_item_id    uuid        not null,
    message_id      uuid        not null,
    created_at      timestamptz not null,

    constraint "{{queue}}_idempotency_pkey" primary key (idempotency_key),
    constraint "{{queue}}_idempotency_size" check (length(idempotency_key) between 1 and 255)
);
comment on table "{{schema}}"."{{queue}}_idempotency" is 'Idempotency keys and the item each one made. Purged with the item.';

create table "{{schema}}"."{{queue}}_hold" (
    ordering_key text        not null,
    work_item_id uuid        not null,
    held_at      timestamptz not null,

    constraint "{{queue}}_hold_pkey" primary key (ordering_key),
    constraint "{{queue}}_hold_size" check (length(ordering_key) between 1 and 255)
);
comment on table "{{schema}}"."{{queue}}_hold" is 'Ordering keys that stand still because an item of theirs failed, until released or the item is requeued.';

create table "{{schema}}"."{{queue}}_waiter" (
    consumer uuid        not null,
    until    timestamptz not null,

    constraint "{{queue}}_waiter_pkey" primary key (consumer)
) with (
    -- Rewritten all day and read by every enqueue: it must stay one page.
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100
);
comment on table "{{schema}}"."{{queue}}_waiter" is 'Consumers that sleep until notified. Enqueue reads it and never locks it.';

create view "{{schema}}"."{{queue}}_message" as
select o.id, o.message_id, o.topic::text as topic, o.payload, o.correlation_id::text as correlation_id, o.status, o.status = 2 as is_processed, null::text as reason,
       o.attempts, case o.status when 0 then o.attempts else o.attempts - 1 end as retry_count,
       o.created_at, o.due_at::timestamptz as due_at, o.requested_due_at::timestamptz as requested_due_at,
       o.expires_at::timestamptz as expires_at, o.priority::smallint as priority, o.ordering_key::text as ordering_key, o.hold_on_failure,
       o.idempotency_key::text as idempotency_key, o.headers::jsonb as headers, o.last_error::text as last_error, o.owner, o.generation, o.locked_until, null::timestamptz as processed_at, null::uuid as processed_by, o.seq
  from "{{schema}}"."{{queue}}" o
union all
select h.id, h.message_id, h.topic, h.payload, h.correlation_id, h.status, h.status = 2, h.reason,
       h.attempts,
       -- Only a delivery that ended the item is not a retry; expiry, the limit and an operator end it between deliveries.
       case when h.status = 2 or h.reason = 'handler' then greatest(h.attempts - 1, 0) else h.attempts end,
       h.created_at, h.due_at, h.requested_due_at, h.expires_at, h.priority, h.ordering_key, h.hold_on_failure, h.idempotency_key,
       h.headers, h.last_error, null::uuid, h.generation, null::timestamptz, h.processed_at, h.processed_by, h.seq
  from "{{schema}}"."{{queue}}_history" h;
comment on view "{{schema}}"."{{queue}}_message" is 'Open and settled outbox items together: status 0 Ready, 1 InProgress, 2 Done, 3 Failed.';

-- Where claims may begin to look, so that they need not walk over what has been settled.
--
-- A settled item leaves entries behind in the ready index until vacuum removes them, and vacuum removes nothing that an open
-- transaction might still see. With one transaction open for minutes, each claim would walk over all that was settled since.
-- How a floor is found and why nothing claimable is ever below it: functions/queue_floor.sql.

create table "{{schema}}"."{{queue}}_floor" (
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

    constraint "{{queue}}_floor_pkey" primary key (n),
    constraint "{{queue}}_floor_size" check (
        cardinality(levels) = all (array[cardinality(due_ats), cardinality(seqs), cardinality(next_due_ats), cardinality(next_seqs)]))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table "{{schema}}"."{{queue}}_floor" is 'Per priority: nothing that can be claimed lies at or before (due_at, seq). Kept by claims; not to be changed by hand.';
comment on column "{{schema}}"."{{queue}}_floor".n is 'Each row is made from the one before it. The newest counts.';
comment on column "{{schema}}"."{{queue}}_floor".swept_at is 'When somebody last looked whether there is anything below the floors after all.';
comment on column "{{schema}}"."{{queue}}_floor".next_xid is 'The next floors hold once all transactions below this one have ended. Null: not known yet.';
comment on column "{{schema}}"."{{queue}}_floor".made_in is 'The oid of this table: in a restored copy, transactions are counted differently.';
comment on column "{{schema}}"."{{queue}}_floor".quiet is 'How many times in a row there was nothing to do. Claims that find nothing then leave the floors alone.';
comment on column "{{schema}}"."{{queue}}_floor".held_up is 'A transaction has been open for long, and the last floors were found by looking at locks.';
comment on column "{{schema}}"."{{queue}}_floor".levels is 'Priorities, highest first. The other arrays go by it.';

-- Topics that nobody claims from until somebody resumes them.

create table "{{schema}}"."{{queue}}_paused" (
    topic     text        not null,
    paused_at timestamptz not null,
    paused_by text        not null,
    reason    text,

    constraint "{{queue}}_paused_pkey" primary key (topic),
    constraint "{{queue}}_paused_size" check (length(topic) between 1 and 255 and length(paused_by) between 1 and 255 and length(reason) between 1 and 255)
);
comment on table "{{schema}}"."{{queue}}_paused" is 'Topics that nobody claims from until they are resumed. Change it through the functions only: they record who did it, and wake who waits.';
comment on column "{{schema}}"."{{queue}}_paused".paused_by is 'Who paused it.';
comment on column "{{schema}}"."{{queue}}_paused".reason is 'Why, in their words.';
