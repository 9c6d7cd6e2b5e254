-- Getting a lease that nobody holds.

create or replace function "{{schema}}"."{{lease}}_acquire"(
    name text, owner text, duration_seconds double precision default 30, context text default null, reentrant boolean default false,
    out acquired boolean, out held_by text, out epoch bigint, out fencing_token bigint, out expires_at timestamptz, out held_context text,
    out server_time timestamptz)
language plpgsql volatile
-- Another acquisition is over in no time; a transaction in which a former holder guards the lease may not be.
set lock_timeout = '250ms'
as $mainstay$
#variable_conflict use_column
declare
    given constant text := nullif($4, '');
    -- Also more than any caller can mean, so that every moment can be stored.
    span interval;
    l "{{schema}}"."{{lease}}"%rowtype;
    least_number constant bigint := "{{schema}}"."{{lease}}_first_number"() + 1;
begin
    if $1 is null or length($1) not between 1 and 255 or $2 is null or length($2) not between 1 and 255 or length(given) > 4096
        or $3 is null or not ($3 > 0 and $3 <= 1e9) or $5 is null then
        raise exception using errcode = '22023', message = '{{lease:literal}}_acquire: ' || case
            when $1 is null or length($1) not between 1 and 255 then 'name must be 1 to 255 characters, got ' || coalesce(length($1)::text, 'null')
            when $2 is null or length($2) not between 1 and 255 then 'owner must be 1 to 255 characters, got ' || coalesce(length($2)::text, 'null')
            when length(given) > 4096 then 'context must be at most 4096 characters, got ' || length(given)
            when $5 is null then 'reentrant must not be null'
            else 'duration_seconds must be more than 0 and at most 1000000000, got ' || coalesce($3::text, 'null')
        end;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = '25001',
            message = '{{lease:literal}}_acquire: needs READ COMMITTED, the transaction is ' || upper(current_setting('transaction_isolation')),
            hint = 'One old snapshot cannot show that a lease is free. Acquire in a transaction of its own.';
    end if;
    span := make_interval(secs => $3);
    loop
        begin
            -- The whole row, and not only its other columns: this waits for those who guard the lease.
            select * into l from "{{schema}}"."{{lease}}" t where t.name = $1 for update;
            -- Taken after the wait for it. A moment from before would be late: it only ever makes the lease shorter.
            server_time := clock_timestamp();
            if l.name is null then
                insert into "{{schema}}"."{{lease}}" as t (name, owner, context, epoch, fencing_token, acquired_at, renewed_at, expires_at)
                values ($1, $2, given, least_number, least_number, server_time, server_time, server_time + span)
                on conflict do nothing
                returning t.* into l;
                -- Somebody else was first, and has committed by now.
                continue when l.name is null;
                acquired := true;
            elsif l.owner is null or l.expires_at <= server_time or ($5 and l.owner = $2) then
                update "{{schema}}"."{{lease}}" t
                   set owner = $2, context = given, epoch = greatest(t.epoch + 1, least_number),
                       fencing_token = greatest(t.fencing_token + 1, least_number),
                       acquired_at = server_time, renewed_at = server_time, expires_at = server_time + span
                 where t.name = $1
                returning t.* into l;
                acquired := true;
            else
                acquired := false;
            end if;
        exception when lock_not_available then
            -- Whoever it is still had the lease when its transaction began to guard it, and may commit.
            select * into l from "{{schema}}"."{{lease}}" t where t.name = $1;
            server_time := clock_timestamp();
            acquired := false;
        end;
        -- Nothing is known of a row that somebody is just making.
        held_by := l.owner; epoch := coalesce(l.epoch, 0); fencing_token := coalesce(l.fencing_token, 0);
        expires_at := coalesce(l.expires_at, server_time); held_context := l.context;
        return;
    end loop;
end
$mainstay$;
comment on function "{{schema}}"."{{lease}}_acquire"(text, text, double precision, text, boolean) is
    'Gives the lease to owner if nobody holds it, or, with reentrant, if the same owner does. acquired tells; the rest is how it stands then.';
