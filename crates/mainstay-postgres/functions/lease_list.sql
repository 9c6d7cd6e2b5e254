-- Looking at leases.

create or replace function "{{schema}}"."{{lease}}_list"(
    name text default null, held_only boolean default false, after_name text default null, max_rows integer default 100
) returns table (
    lease text, held boolean, owner text, epoch bigint, fencing_token bigint, acquired_at timestamptz, renewed_at timestamptz,
    expires_at timestamptz, context text)
language sql volatile
as $mainstay$
    select t.name, t.owner is not null and t.expires_at > statement_timestamp(), t.owner, t.epoch, t.fencing_token, t.acquired_at, t.renewed_at,
           t.expires_at, t.context
      from "{{schema}}"."{{lease}}" t
     where ($1 is null or t.name = $1)
       and (not coalesce($2, false) or (t.owner is not null and t.expires_at > statement_timestamp()))
       and ($3 is null or t.name > $3 collate "C")
     order by t.name
     limit $4;
$mainstay$;
comment on function "{{schema}}"."{{lease}}_list"(text, boolean, text, integer) is
    'Leases by name, held and free: one by its name, or max_rows of them after after_name.';

-- Between two names, so that the index of names leads to them and to nothing else: from the prefix to the same with its last character
-- one further. Where there is no such character that is sure to exist, to the last name there is.
create or replace function "{{schema}}"."{{lease}}_list_by_prefix"(
    prefix text, held_only boolean default false, after_name text default null, max_rows integer default 100
) returns table (
    lease text, held boolean, owner text, epoch bigint, fencing_token bigint, acquired_at timestamptz, renewed_at timestamptz,
    expires_at timestamptz, context text)
language sql volatile
as $mainstay$
    select t.name, t.owner is not null and t.expires_at > statement_timestamp(), t.owner, t.epoch, t.fencing_token, t.acquired_at, t.renewed_at,
           t.expires_at, t.context
      from "{{schema}}"."{{lease}}" t
     where t.name >= $1 collate "C"
       and t.name < coalesce(
               case when ascii(right($1, 1)) between 1 and 125 then left($1, -1) || chr(ascii(right($1, 1)) + 1) end,
               (select max(m.name) || '!' from "{{schema}}"."{{lease}}" m)) collate "C"
       and left(t.name, length($1)) = $1
       and (not coalesce($2, false) or (t.owner is not null and t.expires_at > statement_timestamp()))
       and t.name > coalesce($3, '') collate "C"
     order by t.name
     limit $4;
$mainstay$;
comment on function "{{schema}}"."{{lease}}_list_by_prefix"(text, boolean, text, integer) is
    'Leases whose names begin with prefix, by name, held and free: max_rows of them after after_name.';

create or replace function "{{schema}}"."{{lease}}_active"() returns bigint
language sql stable
as $mainstay$
    select count(*) from "{{schema}}"."{{lease}}" t where t.owner is not null and t.expires_at > statement_timestamp();
$mainstay$;
comment on function "{{schema}}"."{{lease}}_active"() is 'How many leases are held.';
