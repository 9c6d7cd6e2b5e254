-- Every statement the program sends about leases, by name. All call the public functions.

-- name: acquire
select a.acquired, a.held_by, a.epoch, a.fencing_token, a.expires_at, a.held_context, a.server_time,
       "{{schema}}"."{{lease}}_home"()
  from "{{schema}}"."{{lease}}_acquire"($1, $2, $3, $4, $5) a

-- name: renew
select r.renewed, r.fencing_token, r.expires_at, r.server_time, "{{schema}}"."{{lease}}_home"()
  from "{{schema}}"."{{lease}}_renew"($1, $2, $3, $4) r

-- name: release
select "{{schema}}"."{{lease}}_release"($1, $2, $3)

-- name: acquire_many
select a.name, a.epoch, a.fencing_token, a.expires_at, a.server_time
  from "{{schema}}"."{{lease}}_acquire_many"($1, $2, $3, $4, $5) a

-- name: renew_many
select r.name, r.epoch, r.fencing_token, r.expires_at, r.server_time
  from "{{schema}}"."{{lease}}_renew_many"($1, $2, $3, $4) r

-- name: release_many
select r.name, r.epoch from "{{schema}}"."{{lease}}_release_many"($1, $2, $3) r

-- name: force_release
select "{{schema}}"."{{lease}}_force_release"($1, "{{schema}}"."{{audit}}_as"($2, $3))

-- name: home
select "{{schema}}"."{{lease}}_home"()

-- Where this is another database than the lease's, nothing is asked of its leases.
-- name: guard
select h.home, case when h.home = $4 then "{{schema}}"."{{lease}}_guard"($1, $2, $3) end as until
  from (select "{{schema}}"."{{lease}}_home"() as home) h

-- The same for drivers that can't say the types of their parameters.
-- name: guard_as_text
select h.home, (case when h.home = $4::text then "{{schema}}"."{{lease}}_guard"($1::text, $2::text, ($3::text)::bigint) end)::text as until
  from (select "{{schema}}"."{{lease}}_home"() as home) h

-- name: list
select l.lease, l.held, l.owner, l.epoch, l.fencing_token, l.acquired_at, l.renewed_at, l.expires_at, l.context
  from "{{schema}}"."{{lease}}_list"($1, $2, $3, $4) l

-- name: list_by_prefix
select l.lease, l.held, l.owner, l.epoch, l.fencing_token, l.acquired_at, l.renewed_at, l.expires_at, l.context
  from "{{schema}}"."{{lease}}_list_by_prefix"($1, $2, $3, $4) l

-- name: active
select "{{schema}}"."{{lease}}_active"()
