-- Topics that nobody claims from. A claim leaves out what is in the table when it begins; what was claimed before goes on to its end.

create or replace function "{{schema}}"."{{queue}}_pause"(topic text, reason text default null, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    if $1 is null or length($1) not between 1 and 255 then
        raise exception using errcode = '22023', message = '{{queue:literal}}_pause: topic must be 1 to 255 characters, got ' || coalesce(length($1)::text, 'null');
    end if;
    if length($2) not between 1 and 255 then
        raise exception using errcode = '22023', message = '{{queue:literal}}_pause: reason must be 1 to 255 characters, or null, got ' || length($2);
    end if;
    insert into "{{schema}}"."{{queue}}_paused" (topic, paused_at, paused_by, reason)
    values ($1, clock_timestamp(), coalesce($3, left('sql:' || session_user, 255)), $2)
    on conflict do nothing;
    if not found then
        return false;
    end if;
    perform "{{schema}}"."{{audit}}_note"(
        '{{queue:kind}}.pause', $3,
        jsonb_build_object('before', jsonb_build_object('paused', false), 'after', jsonb_strip_nulls(jsonb_build_object('paused', true, 'reason', $2))),
        array['topic'], array[$1]);
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_pause"(text, text, text) is
    'Keeps everybody from claiming items of the topic, from the next claim on. What was claimed before goes on, items can still be added, and nothing of what waits is changed. '
    'Returns false if it is paused already. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{queue}}_resume"(topic text, actor text default null) returns boolean
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
begin
    if $1 is null or length($1) not between 1 and 255 then
        raise exception using errcode = '22023', message = '{{queue:literal}}_resume: topic must be 1 to 255 characters, got ' || coalesce(length($1)::text, 'null');
    end if;
    delete from "{{schema}}"."{{queue}}_paused" p where p.topic = $1;
    if not found then
        return false;
    end if;
    perform "{{schema}}"."{{queue}}_wake"();
    perform "{{schema}}"."{{audit}}_note"('{{queue:kind}}.resume', $2, '{"before": {"paused": true}, "after": {"paused": false}}', array['topic'], array[$1]);
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{queue}}_resume"(text, text) is
    'Lets items of a paused topic be claimed again, and wakes who waits for work. Returns whether it was paused. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{queue}}_list_paused"() returns table (topic text, paused_at timestamptz, paused_by text, reason text)
language sql stable
as $mainstay$
    select p.topic, p.paused_at, p.paused_by, p.reason from "{{schema}}"."{{queue}}_paused" p order by p.topic collate "C"
$mainstay$;
comment on function "{{schema}}"."{{queue}}_list_paused"() is 'The topics that are paused: since when, by whom, and why.';
