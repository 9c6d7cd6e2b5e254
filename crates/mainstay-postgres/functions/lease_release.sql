-- Giving a lease up, and taking it away. Neither waits for a transaction that guards the lease: whoever acquires it next does.

create or replace function "{{schema}}"."{{lease}}_release"(name text, owner text, epoch bigint) returns boolean
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    l "{{schema}}"."{{lease}}"%rowtype;
begin
    if $1 is null or $2 is null or $3 is null then
        raise exception using errcode = '22023', message = '{{lease:literal}}_release: '
            || case when $1 is null then 'name' when $2 is null then 'owner' else 'epoch' end || ' must not be null';
    end if;
    select * into l from "{{schema}}"."{{lease}}" t where t.name = $1 and t.owner = $2 and t.epoch = $3 for no key update;
    if l.name is null or l.expires_at <= clock_timestamp() then
        return false;
    end if;
    update "{{schema}}"."{{lease}}" t set owner = null, context = null, expires_at = clock_timestamp() where t.name = $1;
    return true;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_release"(text, text, bigint) is
    'Gives the lease up, so that others can have it at once. False when it was no longer held.';

create or replace function "{{schema}}"."{{lease}}_force_release"(name text, actor text default null) returns text
language plpgsql volatile
as $mainstay$
#variable_conflict use_column
declare
    l "{{schema}}"."{{lease}}"%rowtype;
begin
    if $1 is null then
        raise exception using errcode = '22023', message = '{{lease:literal}}_force_release: name must not be null';
    end if;
    select * into l from "{{schema}}"."{{lease}}" t where t.name = $1 for no key update;
    if l.owner is null or l.expires_at <= clock_timestamp() then
        return null;
    end if;
    update "{{schema}}"."{{lease}}" t set owner = null, context = null, expires_at = clock_timestamp() where t.name = $1;
    perform "{{schema}}"."{{audit}}_note"(
        'lease.force_release', $2, jsonb_build_object(
            'before', jsonb_build_object('owner', l.owner, 'epoch', l.epoch, 'fencing_token', l.fencing_token, 'expires_at', l.expires_at),
            'after', jsonb_build_object('owner', null)),
        array['lease'], array[$1]);
    return l.owner;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_force_release"(text, text) is
    'Takes the lease away from whoever holds it, and returns who that was; null when nobody did. For operators. Recorded in the audit trail as the actor''s.';
