-- The version of the schema, the oldest program that works on it, and since when.
create view "{{schema}}"."{{outbox}}_schema" as
select max(m.version)        as version,
       max(m.oldest_program) as oldest_program,
       max(m.applied_at)     as applied_at
  from "{{schema}}"."mainstay_migration" m
 where m.outbox = '{{outbox:literal}}' and m.version > 0;
