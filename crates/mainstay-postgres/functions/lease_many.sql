-- Many leases in one call, for whoever holds many: a round trip for each of them would cost more than the leases are worth.
--
-- Every function locks its rows in the order of their names, so two calls never wait for each other crosswise.

create or replace function "{{schema}}"."{{lease}}_acquire_many"(
    names text[], owner text, duration_seconds double precision default 30, context text default null, reentrant boolean default false
) returns table (name text, epoch bigint, fencing_token bigint, expires_at timestamptz, server_time timestamptz)
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    given constant text := nullif($4, '');
    moment timestamptz;
    span interval;
    made text[];
    free text[];
    least_number constant bigint := "{{schema}}"."{{lease}}_first_number"() + 1;
begin
    if $1 is null or $2 is null or length($2) not between 1 and 255 or length(given) > 4096
        or $3 is null or not ($3 > 0 and $3 <= 1e9) or $5 is null
        or exists (select from unnest($1) n(name) where n.name is null or length(n.name) not between 1 and 255) then
        raise exception using errcode = '22023', message = '{{lease:literal}}_acquire_many: ' || case
            when $1 is null then 'names must not be null'
            when $2 is null or length($2) not between 1 and 255 then 'owner must be 1 to 255 characters, got ' || coalesce(length($2)::text, 'null')
            when length(given) > 4096 then 'context must be at most 4096 characters, got ' || length(given)
            when $5 is null then 'reentrant must not be null'
            when $3 is null or not ($3 > 0 and $3 <= 1e9) then
                'duration_seconds must be more than 0 and at most 1000000000, got ' || coalesce($3::text, 'null')
            else 'names must be 1 to 255 characters each'
        end;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = '25001',
            message = '{{lease:literal}}_acquire_many: needs READ COMMITTED, the transaction is ' || upper(current_setting('transaction_isolation')),
            hint = 'One old snapshot cannot show that a lease is free. Acquire in a transaction of its own.';
    end if;
    span := make_interval(secs => $3);
    -- From before any wait: it only makes the leases shorter, and what has lapsed by then has lapsed.
    moment := clock_timestamp();
    with fresh as (
        insert into "{{schema}}"."{{lease}}" as t (name, owner, context, epoch, fencing_token, acquired_at, renewed_at, expires_at)
        select n.name, $2, given, least_number, least_number, moment, moment, moment + span
          from (select distinct u.name collate "C" as name from unnest($1) u(name)) n
         where not exists (select from "{{schema}}"."{{lease}}" k where k.name = n.name)
         order by n.name
        on conflict do nothing
        returning t.name)
    select coalesce(array_agg(f.name), '{}') into made from fresh f;
    -- The whole row, as one lease is acquired: those that somebody guards are locked against it, and left out.
    select coalesce(array_agg(l.name), '{}') into free
      from (select t.name from "{{schema}}"."{{lease}}" t
             where t.name = any ($1) and t.name <> all (made)
               and (t.owner is null or t.expires_at <= moment or ($5 and t.owner = $2))
             order by t.name
               for update skip locked) l;
    update "{{schema}}"."{{lease}}" t
       set owner = $2, context = given, epoch = greatest(t.epoch + 1, least_number),
           fencing_token = greatest(t.fencing_token + 1, least_number),
           acquired_at = moment, renewed_at = moment, expires_at = moment + span
     where t.name = any (free);
    return query
        select t.name, t.epoch, t.fencing_token, t.expires_at, moment
          from "{{schema}}"."{{lease}}" t where t.name = any (made || free);
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_acquire_many"(text[], text, double precision, text, boolean) is
    'Gives each of the leases to owner that nobody holds, and returns those. Waits for nobody: what somebody is just changing counts as held.';

create or replace function "{{schema}}"."{{lease}}_renew_many"(
    names text[], owners text[], epochs bigint[], duration_seconds double precision default 30
) returns table (name text, epoch bigint, fencing_token bigint, expires_at timestamptz, server_time timestamptz)
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment timestamptz;
    held text[];
    least_number constant bigint := "{{schema}}"."{{lease}}_first_number"() + 1;
begin
    if $1 is null or $2 is null or $3 is null or $4 is null or not ($4 > 0 and $4 <= 1e9)
        or cardinality($1) <> cardinality($2) or cardinality($1) <> cardinality($3) then
        raise exception using errcode = '22023', message = '{{lease:literal}}_renew_many: ' || case
            when $1 is null then 'names must not be null'
            when $2 is null then 'owners must not be null'
            when $3 is null then 'epochs must not be null'
            when cardinality($1) <> cardinality($2) or cardinality($1) <> cardinality($3) then 'names, owners and epochs must be equally many'
            else 'duration_seconds must be more than 0 and at most 1000000000, got ' || coalesce($4::text, 'null')
        end;
    end if;
    select array_agg(l.name) into held
      from (select t.name from "{{schema}}"."{{lease}}" t
              join unnest($1, $2, $3) c(name, owner, epoch) on t.name = c.name and t.owner = c.owner and t.epoch = c.epoch
             order by t.name
               for no key update of t) l;
    moment := clock_timestamp();
    -- Lapsed is lost, even if nobody has taken it yet.
    return query
        update "{{schema}}"."{{lease}}" t
           set fencing_token = greatest(t.fencing_token + 1, least_number), renewed_at = moment, expires_at = moment + make_interval(secs => $4)
         where t.name = any (held) and t.expires_at > moment
        returning t.name, t.epoch, t.fencing_token, t.expires_at, moment;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_renew_many"(text[], text[], bigint[], double precision) is
    'Extends each of the leases to duration_seconds from now, and returns those. What is not among them is no longer held; stop then.';

create or replace function "{{schema}}"."{{lease}}_release_many"(names text[], owners text[], epochs bigint[])
returns table (name text, epoch bigint)
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    held text[];
begin
    if $1 is null or $2 is null or $3 is null or cardinality($1) <> cardinality($2) or cardinality($1) <> cardinality($3) then
        raise exception using errcode = '22023', message = '{{lease:literal}}_release_many: ' || case
            when $1 is null then 'names must not be null'
            when $2 is null then 'owners must not be null'
            when $3 is null then 'epochs must not be null'
            else 'names, owners and epochs must be equally many'
        end;
    end if;
    select array_agg(l.name) into held
      from (select t.name from "{{schema}}"."{{lease}}" t
              join unnest($1, $2, $3) c(name, owner, epoch) on t.name = c.name and t.owner = c.owner and t.epoch = c.epoch
             order by t.name
               for no key update of t) l;
    return query
        update "{{schema}}"."{{lease}}" t set owner = null, context = null, expires_at = clock_timestamp()
         where t.name = any (held) and t.expires_at > clock_timestamp()
        returning t.name, t.epoch;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_release_many"(text[], text[], bigint[]) is
    'Gives each of the leases up, and returns those that were still held.';
