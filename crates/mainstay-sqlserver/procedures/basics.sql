-- Which steps of the schema were taken. Read through a procedure, so that whoever may only execute can still see whether the version is right.

ALTER PROCEDURE "{{schema}}"."{{outbox}}_Migrations"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT m."version" AS version, m."name" AS name, m."checksum" AS checksum
      FROM "{{schema}}"."mainstay_migration" m
     WHERE m."outbox" = N'{{outbox:literal}}'
     ORDER BY m."version";
END
GO
-- The server's clock.
ALTER PROCEDURE "{{schema}}"."{{outbox}}_Now"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT SYSUTCDATETIME() AS now;
END
GO
