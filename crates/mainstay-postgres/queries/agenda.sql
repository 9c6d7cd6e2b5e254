-- What there is to do, and when: the seconds until the next of each, by name.

-- name: agenda
select "{{schema}}"."{{outbox}}_next_due"(),
       "{{schema}}"."{{inbox}}_next_due"(),
       least("{{schema}}"."{{timers}}_next_due"(),
             "{{schema}}"."{{job_runs}}_next_due"(),
             "{{schema}}"."{{jobs}}_next_due"()),
       (select extract(epoch from j.deadline_at - clock_timestamp())::double precision
          from "{{schema}}"."{{joins}}" j
         where j.status = 0 and j.deadline_at is not null order by j.deadline_at limit 1),
       (select coalesce(sum(p.version), 0)::bigint from "{{schema}}"."{{fanout}}" p)
