-- The version of the schema, the oldest program that works on it, and since when.
CREATE VIEW "{{schema}}_{{outbox}}_schema" AS
SELECT max(m.version)        AS version,
       max(m.oldest_program) AS oldest_program,
       max(m.applied_at)     AS applied_at
  FROM "{{schema}}_mainstay_migration" m
 WHERE m.outbox = '{{outbox:literal}}';
