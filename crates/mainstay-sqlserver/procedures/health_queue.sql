-- What the health checks look at. Each reads only, waits for nobody, and walks no more of a queue than its front, and what is paused in it.

-- The front of a queue: what is due, what is claimed, who was seen. What waits for its ordering key nobody could claim.
ALTER PROCEDURE "{{schema}}"."{{queue}}_Front"
    @OverdueSeconds FLOAT,
    @StuckSeconds FLOAT,
    -- Rows of one priority at most.
    @MaxRows INT = 1000
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Paused BIT = CASE WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" WITH (NOLOCK)) THEN 1 ELSE 0 END;
    DECLARE @Overdue DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(@Now, @OverdueSeconds);
    DECLARE @Stuck DATETIME2(6) = "{{schema}}"."{{outbox}}_before"(@Now, @StuckSeconds);
    DECLARE @Ready TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "DueAt" DATETIME2(6) NOT NULL);
    DECLARE @Claimed TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "LockedUntil" DATETIME2(6) NOT NULL, "OwnerToken" UNIQUEIDENTIFIER NOT NULL);
    INSERT INTO @Ready ("Seq", "DueAt")
    SELECT x."Seq", x."DueAt"
      FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0), (-1), (-2), (-3), (-4), (-5), (-6), (-7), (-8), (-9)) v(p)
     CROSS APPLY (SELECT TOP (@MaxRows) o."Seq", o."DueAt", o."OrderingKey" FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK)
                   WHERE o."Status" = 0 AND o."Priority" = v.p AND o."DueAt" <= @Now
                     AND (@Paused = 0 OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WITH (NOLOCK) WHERE x."Topic" = o."Topic"))
                   ORDER BY o."DueAt", o."Seq") x
     WHERE x."OrderingKey" IS NULL
        OR (NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_hold" h WITH (NOLOCK) WHERE h."OrderingKey" = x."OrderingKey")
            AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" a WITH (NOLOCK) WHERE a."OrderingKey" = x."OrderingKey" AND a."Seq" < x."Seq"));
    INSERT INTO @Claimed ("Seq", "LockedUntil", "OwnerToken")
    SELECT x."Seq", x."LockedUntil", x."OwnerToken"
      FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0), (-1), (-2), (-3), (-4), (-5), (-6), (-7), (-8), (-9)) v(p)
     CROSS APPLY (SELECT TOP (@MaxRows) o."Seq", o."LockedUntil", o."OwnerToken" FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK)
                   WHERE o."Status" = 1 AND o."Priority" = v.p
                     AND (o."LockedUntil" > @Now OR @Paused = 0 OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WITH (NOLOCK) WHERE x."Topic" = o."Topic"))
                   ORDER BY o."LockedUntil", o."Seq") x;
    DECLARE @Done DATETIME2(6) = (SELECT MAX(h."ProcessedAt") FROM "{{schema}}"."{{queue}}_history" h WITH (NOLOCK) WHERE h."Status" = 2);
    DECLARE @Failed DATETIME2(6) = (
        SELECT CASE WHEN l."ProcessedBy" IS NOT NULL THEN l."ProcessedAt" END
          FROM (SELECT TOP (1) h."ProcessedAt", h."ProcessedBy" FROM "{{schema}}"."{{queue}}_history" h WITH (NOLOCK) WHERE h."Status" = 3 ORDER BY h."ProcessedAt" DESC, h."Seq" DESC) l);
    DECLARE @Last DATETIME2(6) = CASE WHEN @Failed IS NULL OR @Done > @Failed THEN @Done ELSE @Failed END;
    SELECT (SELECT COUNT(*) FROM @Ready r WHERE r."DueAt" <= @Overdue) AS overdue,
           (SELECT DATEDIFF_BIG(MICROSECOND, MIN(r."DueAt"), @Now) FROM @Ready r) AS oldest_due,
           (SELECT COUNT(*) FROM @Claimed c WHERE c."LockedUntil" <= @Stuck) AS stuck,
           (SELECT DATEDIFF_BIG(MICROSECOND, MIN(c."LockedUntil"), @Now) FROM @Claimed c WHERE c."LockedUntil" <= @Now) AS longest_lapsed,
           (SELECT COUNT(DISTINCT c."OwnerToken") FROM @Claimed c WHERE c."LockedUntil" > @Now) AS busy,
           DATEDIFF_BIG(MICROSECOND, @Last, @Now) AS last_settled;
END
GO
-- What comes before an open item in its ordering key: who holds the key, the first ahead of it, how many.
ALTER PROCEDURE "{{schema}}"."{{queue}}_Ahead"
    @Id UNIQUEIDENTIFIER,
    @MaxRows INT = 1000
AS
BEGIN
    SET NOCOUNT ON;
    SELECT (SELECT h."Id" FROM "{{schema}}"."{{queue}}_hold" h WITH (NOLOCK) WHERE h."OrderingKey" = i."OrderingKey") AS held_by,
           (SELECT TOP (1) l."Id" FROM "{{schema}}"."{{queue}}" l WITH (NOLOCK) WHERE l."OrderingKey" = i."OrderingKey" AND l."Seq" < i."Seq" ORDER BY l."Seq") AS first_item,
           (SELECT COUNT(*) FROM (SELECT TOP (@MaxRows) l."Seq" FROM "{{schema}}"."{{queue}}" l WITH (NOLOCK) WHERE l."OrderingKey" = i."OrderingKey" AND l."Seq" < i."Seq" ORDER BY l."Seq") a) AS ahead
      FROM "{{schema}}"."{{queue}}" i WITH (NOLOCK) WHERE i."Id" = @Id;
END
GO
