-- When something happens next. Schedulers sleep until then.

-- The nearest nominal time of all enabled jobs; now, if one is still to be calculated. Null without enabled jobs.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_NextNominal"
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    SELECT MIN(COALESCE(j."NextNominalAt", @Now)) AS at FROM "{{schema}}"."{{jobs}}" j WITH (NOLOCK) WHERE j."Enabled" = 1 AND j."Problem" IS NULL;
END
GO
-- What a scheduler waits for: a run that is due, or a job whose time has come. A row for each, in microseconds from now: 0 if it is due, null if nothing is.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_NextDue"
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @At DATETIME2(6) = (SELECT MIN(COALESCE(j."NextNominalAt", @Now)) FROM "{{schema}}"."{{jobs}}" j WITH (NOLOCK) WHERE j."Enabled" = 1 AND j."Problem" IS NULL);
    EXEC "{{schema}}"."{{job_runs}}_NextDue";
    SELECT CASE WHEN @At <= @Now THEN 0 ELSE DATEDIFF_BIG(MICROSECOND, @Now, @At) END AS due_in;
END
GO
