-- What the health checks look at. Each statement reads only, and walks no more of a queue than its front, and what is paused in it.

-- The front of a queue: what is due, what is claimed, who was seen. Parameters: overdue and stuck after so many seconds, rows of one
-- priority at most.
-- Claims begin to look above the floors, and so does this: below them there is only what vacuum has not removed yet. What waits for its
-- ordering key nobody could claim.
-- name: work
with moment as materialized (select clock_timestamp() as at),
floors as materialized (
    select u.level, u.due_at, u.seq
      from (select f.levels, f.due_ats, f.seqs, f.made_in = f.tableoid and f.noted_at <= clock_timestamp() as holds
              from "{{schema}}"."{{queue}}_floor" f order by f.n desc limit 1) f
     cross join lateral unnest(f.levels, f.due_ats, f.seqs) u(level, due_at, seq)
     where f.holds),
front as materialized (
    select o.status, o.due_at, o.locked_until, o.owner, o.ordering_key, o.seq
      from moment
     cross join generate_series(-9, 9) p(level)
      left join floors on floors.level = p.level
     cross join lateral (
        select q.status, q.due_at::timestamptz as due_at, q.locked_until, q.owner, q.ordering_key, q.seq
          from "{{schema}}"."{{queue}}" q
         where not q.parked and q.priority = p.level::smallint and q.due_at <= moment.at
           and (q.due_at, q.seq) > (coalesce(floors.due_at, '-infinity'), coalesce(floors.seq, 0))
           and (q.status = 1 and q.locked_until > moment.at or q.topic <> all (array(select p.topic from "{{schema}}"."{{queue}}_paused" p)))
         order by q.due_at, q.seq limit $3) o),
judged as (
    select f.due_at, f.locked_until, f.owner, f.status = 1 as claimed,
           f.status = 0 and (f.ordering_key is null or not (
               exists (select from "{{schema}}"."{{queue}}_hold" h where h.ordering_key = f.ordering_key)
               or exists (select from "{{schema}}"."{{queue}}" a
                           where a.ordering_key = f.ordering_key and not a.parked and a.seq < f.seq))) as claimable
      from front f)
select count(*) filter (where j.claimable and j.due_at <= m.at - make_interval(secs => $1)),
       extract(epoch from m.at - min(j.due_at) filter (where j.claimable))::double precision,
       count(*) filter (where j.claimed and j.locked_until <= m.at - make_interval(secs => $2)),
       extract(epoch from m.at - min(j.locked_until) filter (where j.claimed and j.locked_until <= m.at))::double precision,
       (select count(*) from "{{schema}}"."{{queue}}_waiter" w where w.until > m.at),
       count(distinct j.owner) filter (where j.claimed and j.locked_until > m.at),
       extract(epoch from m.at - greatest(
           (select h.processed_at from "{{schema}}"."{{queue}}_history" h where h.status = 2 order by h.processed_at desc limit 1),
           (select case when l.processed_by is not null then l.processed_at end
              from (select h.processed_at, h.processed_by from "{{schema}}"."{{queue}}_history" h
                     where h.status = 3 order by h.processed_at desc limit 1) l)))::double precision
  from moment m left join judged j on true
 group by m.at

-- The jobs, and the deadlines of joins. Parameters: overdue after so many seconds, rows at most. A job without a next time has waited for a
-- scheduler since it was changed.
-- name: schedule
select j.overdue, j.oldest,
       (select count(*) from (select from "{{schema}}"."{{jobs}}" p where p.enabled and p.problem is not null limit $2) p),
       (select p.name from "{{schema}}"."{{jobs}}" p where p.enabled and p.problem is not null order by p.name limit 1),
       k.overdue, k.oldest
  from (select statement_timestamp() as at) m
 cross join lateral (
    select count(*) filter (where f.since <= m.at - make_interval(secs => $1)) as overdue,
           extract(epoch from m.at - min(f.since) filter (where f.since <= m.at))::double precision as oldest
      from (select coalesce(p.next_nominal_at, p.updated_at) as since from "{{schema}}"."{{jobs}}" p
             where p.enabled and p.problem is null and coalesce(p.next_nominal_at, '-infinity') <= m.at
             order by coalesce(p.next_nominal_at, '-infinity'), p.name limit $2) f) j
 cross join lateral (
    select count(*) filter (where f.deadline_at <= m.at - make_interval(secs => $1)) as overdue,
           extract(epoch from m.at - min(f.deadline_at))::double precision as oldest
      from (select p.deadline_at from "{{schema}}"."{{joins}}" p
             where p.status = 0 and p.deadline_at <= m.at order by p.deadline_at limit $2) f) k

-- The leases: one row for each name, so all are counted. Parameter: lapsed within so many seconds.
-- name: leases
select count(*) filter (where l.owner is not null and l.expires_at > m.at),
       count(*) filter (where l.owner is not null and l.expires_at <= m.at and l.expires_at > m.at - make_interval(secs => $1)),
       count(*) filter (where l.owner is not null and l.expires_at <= m.at - make_interval(secs => $1)),
       (array_agg(l.name order by l.expires_at desc, l.name)
           filter (where l.owner is not null and l.expires_at <= m.at and l.expires_at > m.at - make_interval(secs => $1)))[1],
       extract(epoch from m.at - max(l.expires_at) filter (where l.owner is not null and l.expires_at <= m.at))::double precision
  from (select statement_timestamp() as at) m
  left join "{{schema}}"."{{lease}}" l on true
 group by m.at

-- What comes before an open item in its ordering key: who holds the key, the first ahead of it, how many. Parameters: id, rows at most.
-- name: lane
select (select h.work_item_id from "{{schema}}"."{{queue}}_hold" h where h.ordering_key = i.ordering_key),
       (select a.id
          from ((select l.id, l.seq from "{{schema}}"."{{queue}}" l
                  where l.ordering_key = i.ordering_key and not l.parked and l.seq < i.seq order by l.seq limit 1)
                union all
                (select l.id, l.seq from "{{schema}}"."{{queue}}" l
                  where l.ordering_key = i.ordering_key and l.parked and l.seq < i.seq order by l.seq limit 1)) a
         order by a.seq limit 1),
       (select count(*) from (select from "{{schema}}"."{{queue}}" l
                               where l.ordering_key = i.ordering_key and not l.parked and l.seq < i.seq limit $2) a)
       + (select count(*) from (select from "{{schema}}"."{{queue}}" l
                                 where l.ordering_key = i.ordering_key and l.parked and l.seq < i.seq limit $2) a)
  from (select q.ordering_key::text as ordering_key, q.seq from "{{schema}}"."{{queue}}" q where q.id = $1) i
