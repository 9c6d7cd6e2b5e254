-- Every statement the program sends about leases, by name. All call the public functions.

-- name: acquire
select a.acquired, a.held_by, a.epoch, a.fencing_token, a.expires_at, a.held_context, a.server_time
  from "{{schema}}"."{{lease}}_acquire"($1, $2, $3, $4, $5) a

-- name: renew
select r.renewed, r.fencing_token, r.expires_at, r.server_time from "{{schema}}"."{{lease}}_renew"($1, $2, $3, $4) r

-- name: release
select "{{schema}}"."{{lease}}_release"($1, $2, $3)

-- name: force_release
select "{{schema}}"."{{lease}}_force_release"($1)

-- name: guard
select "{{schema}}"."{{lease}}_guard"($1, $2, $3)

-- The same for drivers that can't say the types of their parameters.
-- name: guard_as_text
select "{{schema}}"."{{lease}}_guard"($1::text, $2::text, ($3::text)::bigint)::text

-- name: list
select l.lease, l.held, l.owner, l.epoch, l.fencing_token, l.acquired_at, l.renewed_at, l.expires_at, l.context
  from "{{schema}}"."{{lease}}_list"($1, $2, $3, $4) l

-- name: active
select "{{schema}}"."{{lease}}_active"()
