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
