-- Which steps of the schema were taken. Read through a procedure, so that whoever may only execute can still see whether the version is right.

ALTER PROCEDURE "{{schema}}"."{{outbox}}_Migrations"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT m."version" AS version, m."name" AS name, m."checksum" AS checksum, m."oldest_program" AS oldest_program
      FROM "{{schema}}"."mainstay_migration" m
     WHERE m."outbox" = N'{{outbox:literal}}'
     ORDER BY m."version";
END
GO
-- Internal: for Babelfish, which keeps what the refusal of an application lock has raised, and goes down with the fifth of them in a session. An error that is caught makes it
-- forget them all. The transaction and its locks stay.
ALTER PROCEDURE "{{schema}}"."{{outbox}}_LetGo"
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT OFF;
    DECLARE @Done BIT = 0;
    BEGIN TRY
        RAISERROR(N'caught below', 16, 1);
    END TRY
    BEGIN CATCH
        SET @Done = 1;
    END CATCH
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
