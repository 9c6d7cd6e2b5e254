-- The version of the schema, the oldest program that works on it, and since when.
CREATE VIEW "{{schema}}"."{{outbox}}_Schema" AS
SELECT MAX(m."version")        AS "version",
       MAX(m."oldest_program") AS "oldest_program",
       MAX(m."applied_at")     AS "applied_at"
  FROM "{{schema}}"."mainstay_migration" m
 WHERE m."outbox" = N'{{outbox:literal}}' AND m."version" > 0;
