-- What a doctor looks at, beyond health. Reads only, waits for nobody. What takes rights over the whole server is asked by statements of its own (`queries/`): whoever may only
-- execute procedures is told that it may not see that, and all the rest.

-- What these tables and their indexes take, in bytes. As the owner, because whoever may only execute procedures sees no table in the catalogue.
ALTER PROCEDURE "{{schema}}"."{{outbox}}_Storage"
    -- Their names, with NCHAR(31) between them.
    @Tables NVARCHAR(MAX)
WITH EXECUTE AS OWNER
AS
BEGIN
    SET NOCOUNT ON;
    -- A table that is kept in no order has a place without a name, numbered 0; one that is kept in the order of an index is that index, numbered 1.
    SELECT i.object_id AS object_id, i.index_id AS index_id, t.name AS table_name, i.name AS index_name, i.is_disabled AS disabled, SUM(a.used_pages) * 8192 AS bytes
      FROM sys.tables t
      JOIN sys.schemas s ON s.schema_id = t.schema_id
      JOIN sys.indexes i ON i.object_id = t.object_id
      JOIN sys.partitions p ON p.object_id = i.object_id AND p.index_id = i.index_id
      JOIN sys.allocation_units a ON (a.type = 2 AND a.container_id = p.partition_id) OR (a.type <> 2 AND a.container_id = p.hobt_id)
     WHERE s.name = N'{{schema:literal}}'
       AND t.name COLLATE Latin1_General_BIN2 IN (SELECT n."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@Tables COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) n)
     GROUP BY i.object_id, i.index_id, t.name, i.name, i.is_disabled
     ORDER BY t.name, i.index_id;
END
GO
-- The runs of jobs within the last so many seconds, and those by the clock that were made later than so many seconds after their time.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Lately"
    @WithinSeconds FLOAT,
    @LateSeconds FLOAT,
    @MaxRows INT = 1000
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Since DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(@Now, @WithinSeconds);
    DECLARE @Late BIGINT = CAST(@LateSeconds * 1000000 AS BIGINT);
    DECLARE @Seen TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Job" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL, "Outcome" TINYINT NULL, "Late" BIGINT NULL);
    INSERT INTO @Seen ("Seq", "Job", "Outcome", "Late")
    SELECT TOP (@MaxRows) l."Seq", l."Job", l."Outcome", CASE WHEN l."Trigger" = N'cron' THEN DATEDIFF_BIG(MICROSECOND, l."NominalAt", l."CreatedAt") END
      FROM "{{schema}}"."{{jobs}}_ledger" l WITH (NOLOCK) WHERE l."NominalAt" > @Since ORDER BY l."NominalAt" DESC, l."Id" DESC;
    DECLARE @Latest BIGINT, @Job NVARCHAR(510);
    SELECT TOP (1) @Latest = s."Late", @Job = s."Job" FROM @Seen s WHERE s."Late" > @Late ORDER BY s."Late" DESC, s."Job";
    SELECT COUNT(*) AS runs, COUNT(CASE WHEN s."Late" > @Late THEN 1 END) AS late, COUNT(CASE WHEN s."Outcome" = 3 THEN 1 END) AS skipped,
           COUNT(CASE WHEN s."Outcome" = 2 THEN 1 END) AS failed, @Latest AS latest, @Job AS latest_job
      FROM @Seen s;
END
GO
