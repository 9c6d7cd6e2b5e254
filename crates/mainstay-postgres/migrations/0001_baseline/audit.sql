-- The audit trail: who did what to what, and what came of it. Records are only ever added.

create table "{{schema}}"."{{audit}}" (
    recorded_at    timestamptz not null default clock_timestamp(),
    outcome        smallint    not null default 0,
    id             uuid        not null,
    name           text        not null collate "C",
    actor          text        not null,
    correlation_id text,
    data           json,

    constraint "{{audit}}_pkey" primary key (id),
    constraint "{{audit}}_outcome" check (outcome between 0 and 2),
    constraint "{{audit}}_sizes" check (
        length(name) between 1 and 255 and length(actor) between 1 and 255 and length(correlation_id) between 1 and 255
        and octet_length(data::text) <= 16384)
);

create index "{{audit}}_recent" on "{{schema}}"."{{audit}}" (recorded_at, id);
create index "{{audit}}_name" on "{{schema}}"."{{audit}}" (name, recorded_at, id);
create index "{{audit}}_actor" on "{{schema}}"."{{audit}}" (actor, recorded_at, id);
create index "{{audit}}_correlation" on "{{schema}}"."{{audit}}" (correlation_id, recorded_at, id) where correlation_id is not null;
-- What went wrong is little, and looked for often.
create index "{{audit}}_trouble" on "{{schema}}"."{{audit}}" (recorded_at, id) where outcome <> 0;

comment on table "{{schema}}"."{{audit}}" is 'Who did what to what, and what came of it. Append-only. Read it freely, add to it through the functions.';
comment on column "{{schema}}"."{{audit}}".name is 'What was done: outbox.requeue.';
comment on column "{{schema}}"."{{audit}}".outcome is '0 succeeded, 1 failed, 2 refused.';
comment on column "{{schema}}"."{{audit}}".data is 'What else there is to tell, 16 KiB at most. Of an administrative action: before and after, never a payload.';

create table "{{schema}}"."{{audit}}_anchor" (
    recorded_at timestamptz not null,
    audit_id    uuid        not null,
    kind        text        not null,
    value       text        not null,

    constraint "{{audit}}_anchor_pkey" primary key (audit_id, kind, value),
    constraint "{{audit}}_anchor_sizes" check (length(kind) between 1 and 64 and length(value) between 1 and 512)
);

-- The newest about a thing are found at once.
create index "{{audit}}_anchor_of" on "{{schema}}"."{{audit}}_anchor" (kind, value, recorded_at, audit_id);

comment on table "{{schema}}"."{{audit}}_anchor" is 'What the records of the audit trail are about. The time is the record''s.';

-- The function comes with the others; here is only its name.
create function "{{schema}}"."{{audit}}_keep"() returns trigger language plpgsql as $mainstay$ begin return null; end $mainstay$;
create trigger "{{audit}}_keep" before update or delete or truncate on "{{schema}}"."{{audit}}"
    for each statement execute function "{{schema}}"."{{audit}}_keep"();
create trigger "{{audit}}_keep" before update or delete or truncate on "{{schema}}"."{{audit}}_anchor"
    for each statement execute function "{{schema}}"."{{audit}}_keep"();
