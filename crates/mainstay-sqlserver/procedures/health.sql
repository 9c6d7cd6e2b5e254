-- What the health checks look at beside the queues, and what a fleet asks of a database that nobody watches. Reads only, waits for nobody.

-- The jobs, and the deadlines of joins. A job without a next time has waited for a scheduler since it was changed.
ALTER PROCEDURE "{{schema}}"."{{jobs}}_Front"
    @OverdueSeconds FLOAT,
    @MaxRows INT = 1000
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Overdue DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(@Now, @OverdueSeconds);
    SELECT (SELECT COUNT(CASE WHEN f."Since" <= @Overdue THEN 1 END) FROM (
               SELECT TOP (@MaxRows) COALESCE(p."NextNominalAt", p."UpdatedAt") AS "Since" FROM "{{schema}}"."{{jobs}}" p WITH (NOLOCK)
                WHERE p."Enabled" = 1 AND p."Problem" IS NULL AND (p."NextNominalAt" IS NULL OR p."NextNominalAt" <= @Now)) f) AS jobs_overdue,
           (SELECT DATEDIFF_BIG(MICROSECOND, MIN(COALESCE(p."NextNominalAt", p."UpdatedAt")), @Now) FROM "{{schema}}"."{{jobs}}" p WITH (NOLOCK)
             WHERE p."Enabled" = 1 AND p."Problem" IS NULL AND (p."NextNominalAt" IS NULL OR p."NextNominalAt" <= @Now)) AS oldest_job,
           (SELECT COUNT(*) FROM (SELECT TOP (@MaxRows) p."Seq" FROM "{{schema}}"."{{jobs}}" p WITH (NOLOCK) WHERE p."Enabled" = 1 AND p."Problem" IS NOT NULL) t) AS jobs_in_trouble,
           (SELECT MIN(p."Name") FROM "{{schema}}"."{{jobs}}" p WITH (NOLOCK) WHERE p."Enabled" = 1 AND p."Problem" IS NOT NULL) AS job_in_trouble,
           (SELECT COUNT(*) FROM (SELECT TOP (@MaxRows) j."Seq" FROM "{{schema}}"."{{joins}}" j WITH (NOLOCK) WHERE j."Status" = 0 AND j."DeadlineAt" <= @Overdue) k) AS joins_overdue,
           (SELECT DATEDIFF_BIG(MICROSECOND, MIN(j."DeadlineAt"), @Now) FROM "{{schema}}"."{{joins}}" j WITH (NOLOCK) WHERE j."Status" = 0 AND j."DeadlineAt" <= @Now) AS oldest_join;
END
GO
-- The leases: one row for each name, so all are counted.
ALTER PROCEDURE "{{schema}}"."{{lease}}_Front"
    @WithinSeconds FLOAT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Within DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(@Now, @WithinSeconds);
    DECLARE @Name NVARCHAR(510), @At DATETIME2(6);
    SELECT TOP (1) @Name = l."Name", @At = l."ExpiresAt" FROM "{{schema}}"."{{lease}}" l WITH (NOLOCK)
     WHERE l."Owner" IS NOT NULL AND l."ExpiresAt" <= @Now AND l."ExpiresAt" > @Within ORDER BY l."ExpiresAt" DESC, l."Name";
    SELECT COUNT(CASE WHEN l."ExpiresAt" > @Now THEN 1 END) AS held, COUNT(CASE WHEN l."ExpiresAt" <= @Now AND l."ExpiresAt" > @Within THEN 1 END) AS lapsed,
           COUNT(CASE WHEN l."ExpiresAt" <= @Within THEN 1 END) AS lapsed_before, @Name AS last_lapsed, DATEDIFF_BIG(MICROSECOND, @At, @Now) AS lapsed_for
      FROM "{{schema}}"."{{lease}}" l WITH (NOLOCK) WHERE l."Owner" IS NOT NULL;
END
GO
-- What there is to do, and when, in microseconds from now: a row for the outbox, the inbox, the timers, the runs and the jobs each, and one for the deadlines of joins, with
-- the changes of fan-outs.
ALTER PROCEDURE "{{schema}}"."{{outbox}}_Agenda"
AS
BEGIN
    SET NOCOUNT ON;
    EXEC "{{schema}}"."{{outbox}}_NextDue";
    EXEC "{{schema}}"."{{inbox}}_NextDue";
    EXEC "{{schema}}"."{{timers}}_NextDue";
    EXEC "{{schema}}"."{{jobs}}_NextDue";
    SELECT (SELECT DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), MIN(j."DeadlineAt")) FROM "{{schema}}"."{{joins}}" j WITH (NOLOCK) WHERE j."Status" = 0 AND j."DeadlineAt" IS NOT NULL) AS due_in,
           (SELECT COALESCE(SUM(p."Version"), 0) FROM "{{schema}}"."{{fanout}}" p WITH (NOLOCK)) AS fanout_changes;
END
GO
