-- The audit trail: writing, keeping and purging it.

create or replace function "{{schema}}"."{{audit}}_write"(
    name text, actor text default null, outcome text default 'succeeded', correlation_id text default null, data json default null,
    anchor_kinds text[] default '{}', anchor_values text[] default '{}', id uuid default null
) returns uuid
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    -- Whoever does not say who acts is the one who has connected.
    who constant text := coalesce($2, left('sql:' || session_user, 255));
    code constant smallint := array_position('{succeeded,failed,refused}'::text[], $3) - 1;
    written constant uuid := coalesce($8, "{{schema}}"."{{outbox}}_uuid7"());
    wrong constant text := case
        when $1 is null or length($1) not between 1 and 255 then 'name must be 1 to 255 characters, got ' || coalesce(length($1)::text, 'null')
        when length(who) not between 1 and 255 then 'actor must be 1 to 255 characters, got ' || length(who)
        when code is null then 'outcome must be succeeded, failed or refused, got ' || coalesce(left($3, 64), 'null')
        when length($4) not between 1 and 255 then 'correlation_id must be 1 to 255 characters, or null, got ' || length($4)
        when octet_length($5::text) > 16384 then 'data must be at most 16384 bytes of JSON, got ' || octet_length($5::text)
        when $6 is null or $7 is null or cardinality($6) <> cardinality($7) then 'anchor_kinds and anchor_values must have as many elements'
    end;
begin
    if wrong is not null then
        raise exception using errcode = '22023', message = '{{audit:literal}}_write: ' || wrong;
    end if;
    insert into "{{schema}}"."{{audit}}" (recorded_at, outcome, id, name, actor, correlation_id, data) values (moment, code, written, $1, who, $4, $5);
    insert into "{{schema}}"."{{audit}}_anchor" (recorded_at, audit_id, kind, value)
    select distinct moment, written, u.kind, u.value from unnest($6, $7) u(kind, value);
    return written;
end
$mainstay$;
comment on function "{{schema}}"."{{audit}}_write"(text, text, text, text, json, text[], text[], uuid) is
    'Writes a record into the audit trail, as part of the caller''s transaction: what was done, by whom, what came of it (succeeded, failed or refused), and what it is about. '
    'Returns its id. Without an actor it is the role that has connected.';

create or replace function "{{schema}}"."{{audit}}_as"(actor text, correlation_id text default null) returns text
language plpgsql volatile
as $mainstay$
begin
    if length(correlation_id) > 255 then
        raise exception using errcode = '22023', message = '{{audit:literal}}_as: correlation_id must be 1 to 255 characters, or null, got ' || length(correlation_id);
    end if;
    -- An actor is an argument, and so ready before what takes it begins.
    perform set_config('mainstay.audit_correlation', coalesce(correlation_id, ''), true);
    return actor;
end
$mainstay$;
comment on function "{{schema}}"."{{audit}}_as"(text, text) is
    'An actor whose doing belongs to something: give it as the actor of an administrative function. What the transaction records from here on has that correlation id, '
    'until it is called again; null takes it away. Returns the actor.';

create or replace function "{{schema}}"."{{audit}}_note"(name text, actor text, data jsonb, anchor_kinds text[] default '{}', anchor_values text[] default '{}')
returns void
language plpgsql volatile
as $mainstay$
declare
    told jsonb := data;
begin
    -- An action must not fail for the length of what is told of it.
    if octet_length(told::text) > 16384 then
        told := (told - 'items') || '{"truncated": true}';
    end if;
    if octet_length(told::text) > 16384 then
        told := '{"truncated": true}';
    end if;
    perform "{{schema}}"."{{audit}}_write"(
        name, actor, correlation_id => nullif(current_setting('mainstay.audit_correlation', true), ''), data => told::json, anchor_kinds => anchor_kinds, anchor_values => anchor_values);
end
$mainstay$;
comment on function "{{schema}}"."{{audit}}_note"(text, text, jsonb, text[], text[]) is 'Internal: records an administrative action that was done.';

create or replace function "{{schema}}"."{{audit}}_keep"() returns trigger
language plpgsql volatile
as $mainstay$
begin
    if tg_op = 'DELETE' and current_setting('mainstay.purges_audit', true) = 'on' then
        return null;
    end if;
    raise exception using errcode = '55000', message = 'the audit trail is append-only: ' || case tg_op
        when 'UPDATE' then 'its records are never changed' else 'its records are deleted by {{audit:literal}}_purge alone' end;
end
$mainstay$;
comment on function "{{schema}}"."{{audit}}_keep"() is 'Internal: keeps the audit trail from being changed.';

create or replace function "{{schema}}"."{{audit}}_purge"(older_than_seconds double precision, max_rows integer default 1000, actor text default null)
returns integer
language plpgsql volatile
-- Ends with the function.
set mainstay.purges_audit = 'on'
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    doomed uuid[];
    purged integer;
begin
    if (older_than_seconds between 0 and 1e10) is not true then
        raise exception using errcode = '22023',
            message = '{{audit:literal}}_purge: older_than_seconds must be 0 to 10000000000, got ' || coalesce(older_than_seconds::text, 'null');
    end if;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023', message = '{{audit:literal}}_purge: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    doomed := array(select a.id from "{{schema}}"."{{audit}}" a where a.recorded_at <= clock_timestamp() - make_interval(secs => older_than_seconds)
                     order by a.recorded_at, a.id limit max_rows);
    delete from "{{schema}}"."{{audit}}_anchor" n where n.audit_id = any (doomed);
    delete from "{{schema}}"."{{audit}}" a where a.id = any (doomed);
    get diagnostics purged = row_count;
    if actor is not null and purged > 0 then
        perform "{{schema}}"."{{audit}}_note"('audit.purge', actor, jsonb_build_object('count', purged, 'older_than_seconds', floor(older_than_seconds)));
    end if;
    return purged;
end
$mainstay$;
comment on function "{{schema}}"."{{audit}}_purge"(double precision, integer, text) is
    'Deletes up to max_rows of the oldest records of the audit trail, older than so many seconds; the only way to delete any. With an actor that is recorded. Call until it returns less than max_rows.';
