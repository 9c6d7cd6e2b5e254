-- Every statement the program sends about timers alone, by name; all others are those of a queue.

-- name: reschedule
select "{{schema}}"."{{timers}}_reschedule"($1, $2, $3, "{{schema}}"."{{audit}}_as"($4, $5))

-- name: next_event_time
select "{{schema}}"."{{timers}}_next_event_time"()
