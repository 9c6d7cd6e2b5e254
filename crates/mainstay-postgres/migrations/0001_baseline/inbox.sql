-- The ledger of what was received: one row for each message, known by its source and its id there. What is to be worked lies in the
-- queue beside it; a message that was only asked about has no row there.
--
-- What the layout relies on:
--   * Source and id together can be longer than an index allows (255 + 512 characters of up to four bytes), so the key has the id's
--     SHA-256 in its place.
--   * Asking about a message again changes last_seen_at alone, which is in no index, and the fill factor leaves room for that.
--   * The ledger follows the queue by triggers, whoever settles there. The other way round the functions do it.

create domain "{{schema}}"."{{inbox}}_message_id" as text constraint "{{inbox}}_message_id_size" check (length(value) between 1 and 512);
create domain "{{schema}}"."{{inbox}}_hash" as bytea constraint "{{inbox}}_hash_size" check (octet_length(value) = 32);
comment on domain "{{schema}}"."{{inbox}}_message_id" is 'What a source calls a message: 1 to 512 characters.';
comment on domain "{{schema}}"."{{inbox}}_hash" is 'The SHA-256 of a message''s content.';

create table "{{schema}}"."{{inbox}}_entry" (
    first_seen_at timestamptz not null,
    last_seen_at  timestamptz not null,
    processed_at  timestamptz,
    locked_until  timestamptz,
    generation    bigint      not null default 0,
    attempts      integer     not null default 0,
    state         smallint    not null default 0,
    owner         uuid,
    work_item_id  uuid,
    source        "{{schema}}"."{{inbox}}_label"      not null,
    message_id    "{{schema}}"."{{inbox}}_message_id" not null,
    -- Of the bytes as they are stored: with doubled backslashes, reading a text as bytea changes none of them.
    digest        bytea       not null generated always as (sha256(replace(message_id, chr(92), chr(92) || chr(92))::bytea)) stored,
    hash          "{{schema}}"."{{inbox}}_hash",
    last_error    "{{schema}}"."{{inbox}}_error",

    constraint "{{inbox}}_entry_pkey" primary key (source, digest)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- From a row of the queue to its message.
create unique index "{{inbox}}_entry_work_item" on "{{schema}}"."{{inbox}}_entry" (work_item_id) where work_item_id is not null;
-- Listings and counts.
create index "{{inbox}}_entry_state" on "{{schema}}"."{{inbox}}_entry" (state, first_seen_at);
-- Retention walks each state from its oldest end.
create index "{{inbox}}_entry_settled" on "{{schema}}"."{{inbox}}_entry" (state, processed_at) where processed_at is not null;

comment on table "{{schema}}"."{{inbox}}_entry" is 'Received messages: state 0 Seen, 1 Processing, 2 Done, 3 Dead. Change it through the functions only.';
comment on column "{{schema}}"."{{inbox}}_entry".generation is 'Raised by every reservation; a guard with an older one changes nothing.';
comment on column "{{schema}}"."{{inbox}}_entry".attempts is 'Reservations, or deliveries to workers once it is settled there. Duplicates never count.';
comment on column "{{schema}}"."{{inbox}}_entry".owner is 'Who has reserved it. Null when it was only marked as being processed.';
comment on column "{{schema}}"."{{inbox}}_entry".work_item_id is 'Its row in the queue or in its history. Null if it was never enqueued.';
comment on column "{{schema}}"."{{inbox}}_entry".digest is 'The SHA-256 of the message id, in its place in the key.';

create view "{{schema}}"."{{inbox}}_ledger" as
select e.source::text as source, e.message_id::text as message_id,
       case when e.state < 2 and q.status = 1 then 1::smallint else e.state end as state,
       e.hash::bytea as hash, e.first_seen_at, e.last_seen_at, e.processed_at,
       coalesce(q.attempts, e.attempts) as attempts, e.generation, e.owner,
       coalesce(case when q.status = 1 then q.locked_until end, e.locked_until) as locked_until,
       coalesce(q.last_error::text, e.last_error::text) as last_error, e.work_item_id,
       coalesce(q.topic::text, (select h.topic from "{{schema}}"."{{inbox}}_history" h where h.id = e.work_item_id limit 1)) as topic,
       e.state as entry_state, e.digest
  from "{{schema}}"."{{inbox}}_entry" e
  left join "{{schema}}"."{{inbox}}" q on q.id = e.work_item_id;
comment on view "{{schema}}"."{{inbox}}_ledger" is
    'Received messages with what the queue knows of them: state 0 Seen, 1 Processing (reserved, or held by a worker), 2 Done, 3 Dead.';

-- Their bodies come with the functions.
create function "{{schema}}"."{{inbox}}_follow_settled"() returns trigger language plpgsql as $mainstay$ begin return null; end $mainstay$;
create function "{{schema}}"."{{inbox}}_follow_added"() returns trigger language plpgsql as $mainstay$ begin return null; end $mainstay$;
create function "{{schema}}"."{{inbox}}_follow_returned"() returns trigger language plpgsql as $mainstay$ begin return null; end $mainstay$;

create trigger "{{inbox}}_settled" after insert on "{{schema}}"."{{inbox}}_history" referencing new table as settled
    for each statement execute function "{{schema}}"."{{inbox}}_follow_settled"();
create trigger "{{inbox}}_added" after insert on "{{schema}}"."{{inbox}}" referencing new table as added
    for each statement execute function "{{schema}}"."{{inbox}}_follow_added"();
create trigger "{{inbox}}_returned" after update of status on "{{schema}}"."{{inbox}}" for each row when (old.status = 1 and new.status = 0)
    execute function "{{schema}}"."{{inbox}}_follow_returned"();
