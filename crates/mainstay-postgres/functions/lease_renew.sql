-- Keeping a lease.

create or replace function "{{schema}}"."{{lease}}_renew"(
    name text, owner text, epoch bigint, duration_seconds double precision default 30,
    out renewed boolean, out fencing_token bigint, out expires_at timestamptz, out server_time timestamptz)
language plpgsql volatile
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    least_number constant bigint := "{{schema}}"."{{lease}}_first_number"() + 1;
begin
    if $1 is null or $2 is null or $3 is null or $4 is null or not ($4 > 0 and $4 <= 1e9) then
        raise exception using errcode = '22023', message = '{{lease:literal}}_renew: ' || case
            when $1 is null then 'name must not be null'
            when $2 is null then 'owner must not be null'
            when $3 is null then 'epoch must not be null'
            else 'duration_seconds must be more than 0 and at most 1000000000, got ' || coalesce($4::text, 'null')
        end;
    end if;
    -- Not in the way of those who guard it, and they not of this.
    select t.fencing_token, t.expires_at into fencing_token, expires_at
      from "{{schema}}"."{{lease}}" t where t.name = $1 and t.owner = $2 and t.epoch = $3
       for no key update;
    renewed := found;
    server_time := clock_timestamp();
    -- Lapsed is lost, even if nobody has taken it yet: its holder may have been told so, and must not find it alive again.
    renewed := renewed and expires_at > server_time;
    if renewed then
        update "{{schema}}"."{{lease}}" t
           set fencing_token = greatest(t.fencing_token + 1, least_number), renewed_at = server_time, expires_at = server_time + make_interval(secs => $4)
         where t.name = $1
        returning t.fencing_token, t.expires_at into fencing_token, expires_at;
    else
        fencing_token := null;
        expires_at := null;
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_renew"(text, text, bigint, double precision) is
    'Extends the lease to duration_seconds from now, under the next fencing token. renewed is false when it is no longer held; stop then.';
