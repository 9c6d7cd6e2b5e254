-- What there is to do, and when: the seconds until the next of each, by name.

-- name: agenda
select "{{schema}}"."{{outbox}}_next_due"(),
       "{{schema}}"."{{inbox}}_next_due"(),
       least("{{schema}}"."{{timers}}_next_due"(),
             "{{schema}}"."{{job_runs}}_next_due"(),
             "{{schema}}"."{{jobs}}_next_due"())
