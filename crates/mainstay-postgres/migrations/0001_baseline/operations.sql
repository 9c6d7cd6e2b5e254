-- Operations: work that takes a while, from its start to its end.

create table "{{schema}}"."{{operations}}" (
    started_at     timestamptz not null default clock_timestamp(),
    updated_at     timestamptz not null default clock_timestamp(),
    ended_at       timestamptz,
    done           bigint,
    total          bigint,
    events         bigint      not null default 0,
    id             uuid        not null,
    parent_id      uuid,
    state          smallint    not null default 0,
    name           text        not null collate "C",
    actor          text        not null,
    correlation_id text,
    message        text,
    error          text,

    constraint "{{operations}}_pkey" primary key (id),
    constraint "{{operations}}_state" check (state between 0 and 4),
    constraint "{{operations}}_end" check ((state = 0) = (ended_at is null)),
    constraint "{{operations}}_counts" check (done >= 0 and total >= 0 and events >= 0),
    constraint "{{operations}}_sizes" check (
        length(name) between 1 and 255 and length(actor) between 1 and 255 and length(correlation_id) between 1 and 255
        and length(message) <= 2048 and length(error) <= 2048)
) with (fillfactor = 80);

create index "{{operations}}_recent" on "{{schema}}"."{{operations}}" (started_at, id);
create index "{{operations}}_name" on "{{schema}}"."{{operations}}" (name, started_at, id);
create index "{{operations}}_by_state" on "{{schema}}"."{{operations}}" (state, started_at, id);
create index "{{operations}}_parent" on "{{schema}}"."{{operations}}" (parent_id, started_at, id) where parent_id is not null;
create index "{{operations}}_correlation" on "{{schema}}"."{{operations}}" (correlation_id, started_at, id) where correlation_id is not null;
-- The longest silent and the longest ended are found at once.
create index "{{operations}}_alive" on "{{schema}}"."{{operations}}" (updated_at, id) where state = 0;
create index "{{operations}}_ended" on "{{schema}}"."{{operations}}" (ended_at, id) where ended_at is not null;

comment on table "{{schema}}"."{{operations}}" is 'Work that takes a while, from its start to its end. Read it freely, change it through the functions.';
comment on column "{{schema}}"."{{operations}}".state is '0 running, 1 succeeded, 2 failed, 3 cancelled, 4 stalled. What is not 0 is final.';
comment on column "{{schema}}"."{{operations}}".updated_at is 'The last sign of life.';
comment on column "{{schema}}"."{{operations}}".parent_id is 'What it is a part of. That may have been deleted since.';
comment on column "{{schema}}"."{{operations}}".events is 'How many events it has.';

create table "{{schema}}"."{{operations}}_tag" (
    started_at   timestamptz not null,
    operation_id uuid        not null,
    key          text        not null,
    value        text        not null,

    constraint "{{operations}}_tag_pkey" primary key (operation_id, key),
    constraint "{{operations}}_tag_sizes" check (length(key) between 1 and 64 and length(value) between 1 and 255)
);

-- The newest with a tag are found at once.
create index "{{operations}}_tag_of" on "{{schema}}"."{{operations}}_tag" (key, value, started_at, operation_id);

comment on table "{{schema}}"."{{operations}}_tag" is 'What operations are found by. The time is the operation''s.';

create table "{{schema}}"."{{operations}}_event" (
    recorded_at  timestamptz not null default clock_timestamp(),
    seq          bigint      not null,
    operation_id uuid        not null,
    kind         text        not null,
    message      text,
    data         json,

    constraint "{{operations}}_event_pkey" primary key (operation_id, seq),
    constraint "{{operations}}_event_sizes" check (
        length(kind) between 1 and 64 and length(message) <= 2048 and octet_length(data::text) <= 16384)
);

comment on table "{{schema}}"."{{operations}}_event" is 'What happened in operations, numbered from 1 in each.';

-- The function comes with the others; here is only its name.
create function "{{schema}}"."{{operations}}_final"() returns trigger language plpgsql as $mainstay$ begin return new; end $mainstay$;
create trigger "{{operations}}_final" before update of state, done, total, message, error, events on "{{schema}}"."{{operations}}"
    for each row when (old.state <> 0) execute function "{{schema}}"."{{operations}}_final"();
