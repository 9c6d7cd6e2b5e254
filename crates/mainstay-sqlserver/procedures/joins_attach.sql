-- Members, and steps that are reported by hand.

-- Internal: the lock of those who attach by hand to a join, until their transactions end: the same item must not become a member twice. What is attached when it is
-- enqueued needs none, since nobody else has its id.
ALTER PROCEDURE "{{schema}}"."{{joins}}_AttachLock"
    @Id UNIQUEIDENTIFIER
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Resource NVARCHAR(255) = N'mainstay ' + CAST(DB_ID() AS NVARCHAR(10)) + N' {{schema:literal}}.{{joins:literal}} ' + LOWER(CAST(@Id AS NVARCHAR(36)));
    DECLARE @Got INT;
    EXEC @Got = sp_getapplock @Resource = @Resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 30000;
    IF @Got < 0
        THROW 50004, N'joins: a join stayed locked by another transaction that attaches to it', 1;
END
GO
-- Internal: makes each item a member of its join. Returns how many were not.
ALTER PROCEDURE "{{schema}}"."{{joins}}_AttachPairs"
    -- A list of objects: joined, item.
    @Pairs NVARCHAR(MAX),
    -- They were added to the outbox by this transaction.
    @Fresh BIT,
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Key CHAR(36), @Id UNIQUEIDENTIFIER, @Status TINYINT, @Deadline DATETIME2(6), @Complaint NVARCHAR(300), @Steps NVARCHAR(MAX), @Added INT = 0;
    -- By this the items are found, one by one: a scan would wait for everybody who has one in hand.
    DECLARE @Items TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    -- What ends meanwhile waits for this, or this for it: so a member is either there when its item ends, or finds that it has ended. What the caller has only
    -- just added, nobody else can end.
    IF @Fresh = 0
    BEGIN
        SET @Key = (SELECT MIN(CAST(p.joined AS CHAR(36))) FROM OPENJSON(@Pairs) WITH (joined UNIQUEIDENTIFIER '$.joined') p);
        WHILE @Key IS NOT NULL
        BEGIN
            SET @Id = @Key;
            EXEC "{{schema}}"."{{joins}}_AttachLock" @Id;
            SET @Key = (SELECT MIN(CAST(p.joined AS CHAR(36))) FROM OPENJSON(@Pairs) WITH (joined UNIQUEIDENTIFIER '$.joined') p WHERE CAST(p.joined AS CHAR(36)) > @Key);
        END
        INSERT INTO @Items ("Id") SELECT DISTINCT p.item FROM OPENJSON(@Pairs) WITH (item UNIQUEIDENTIFIER '$.item') p WHERE p.item IS NOT NULL;
        UPDATE "{{schema}}"."{{outbox}}" WITH (ROWLOCK) SET "Status" = "Status" WHERE "Id" IN (SELECT i."Id" FROM @Items i) OPTION (LOOP JOIN);
    END
    WHILE 1 = 1
    BEGIN
        SET @Key = (SELECT MIN(CAST(p.joined AS CHAR(36))) FROM OPENJSON(@Pairs) WITH (joined UNIQUEIDENTIFIER '$.joined') p WHERE @Key IS NULL OR CAST(p.joined AS CHAR(36)) > @Key);
        IF @Key IS NULL BREAK;
        SET @Id = @Key;
        SET @Status = NULL;
        SELECT @Status = j."Status", @Deadline = j."DeadlineAt" FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @Id;
        IF @Status IS NULL
        BEGIN
            SET @Complaint = N'joins_attach: there is no join ' + LOWER(CAST(@Id AS NVARCHAR(36)));
            THROW 50002, @Complaint, 1;
        END
        IF @Status = 0 AND @Deadline <= @Now
        BEGIN
            EXEC "{{schema}}"."{{joins}}_Lapse" @Id, @Now, @TellJoins;
            SELECT @Status = j."Status" FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @Id;
        END
        IF @Status <> 0
        BEGIN
            IF EXISTS (SELECT 1 FROM OPENJSON(@Pairs) WITH (joined UNIQUEIDENTIFIER '$.joined', item UNIQUEIDENTIFIER '$.item') p
                        WHERE p.joined = @Id AND p.item IS NOT NULL
                          AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{joins}}_member" m WHERE m."JoinId" = @Id AND m."WorkItemId" = p.item))
            BEGIN
                SET @Complaint = N'joins_attach: the join ' + LOWER(CAST(@Id AS NVARCHAR(36))) + N' has ended (' + CASE @Status WHEN 1 THEN N'completed' WHEN 2 THEN N'failed' ELSE N'cancelled' END
                    + N'), so nothing can be attached to it; start another';
                THROW 50006, @Complaint, 1;
            END
            CONTINUE;
        END
        INSERT INTO "{{schema}}"."{{joins}}_member" ("JoinId", "WorkItemId", "State", "UpdatedAt")
        SELECT DISTINCT @Id, p.item, 0, @Now FROM OPENJSON(@Pairs) WITH (joined UNIQUEIDENTIFIER '$.joined', item UNIQUEIDENTIFIER '$.item') p
         WHERE p.joined = @Id AND p.item IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{joins}}_member" m WITH (UPDLOCK, ROWLOCK) WHERE m."JoinId" = @Id AND m."WorkItemId" = p.item);
        SET @Added = @Added + @@ROWCOUNT;
        IF @Fresh = 0
        BEGIN
            SET @Steps = (
                SELECT h."Id" AS id, h."Status" AS outcome FROM @Items i JOIN "{{schema}}"."{{outbox}}_history" h WITH (FORCESEEK) ON h."Id" = i."Id"
                 WHERE EXISTS (SELECT 1 FROM OPENJSON(@Pairs) WITH (joined UNIQUEIDENTIFIER '$.joined', item UNIQUEIDENTIFIER '$.item') p WHERE p.joined = @Id AND p.item = i."Id")
                   AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (FORCESEEK) WHERE o."Id" = h."Id")
                   AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" l WITH (FORCESEEK) WHERE l."Id" = h."Id" AND l."Seq" > h."Seq") FOR JSON PATH);
            IF @Steps IS NOT NULL
                EXEC "{{schema}}"."{{joins}}_Ended" @Steps, @Id, @TellJoins;
        END
    END
    RETURN @Added;
END
GO
-- Makes items steps of a join. Items are messages of the outbox, or whatever is then reported by hand. A message that has ended before is counted at once.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Attach"
    @JoinId UNIQUEIDENTIFIER,
    -- A list of objects with an id.
    @Ids NVARCHAR(MAX),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    -- Whether results of their own tell what this has counted for joins (one column, counted): for Mainstay itself.
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Pairs NVARCHAR(MAX), @Count INT;
    DECLARE @Known TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Asked TABLE ("Id" UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    INSERT INTO @Asked ("Id") SELECT DISTINCT i.id FROM OPENJSON(@Ids) WITH (id UNIQUEIDENTIFIER '$.id') i;
    SET @Pairs = COALESCE((SELECT @JoinId AS joined, a."Id" AS item FROM @Asked a FOR JSON PATH), (SELECT @JoinId AS joined FOR JSON PATH));
    IF @Own = 1 BEGIN TRANSACTION;
    -- Whoever is named is told of with what was added by this alone, so nobody else adds anything meanwhile. Items come before joins, as everywhere.
    IF @Actor IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{joins}}_AttachLock" @JoinId;
        UPDATE "{{schema}}"."{{outbox}}" WITH (ROWLOCK) SET "Status" = "Status" WHERE "Id" IN (SELECT a."Id" FROM @Asked a) OPTION (LOOP JOIN);
        UPDATE "{{schema}}"."{{joins}}" SET "UpdatedAt" = "UpdatedAt" WHERE "Id" = @JoinId;
    END
    INSERT INTO @Known ("Id") SELECT m."WorkItemId" FROM @Asked a JOIN "{{schema}}"."{{joins}}_member" m WITH (FORCESEEK) ON m."WorkItemId" = a."Id" AND m."JoinId" = @JoinId;
    EXEC @Count = "{{schema}}"."{{joins}}_AttachPairs" @Pairs, 0, @TellJoins;
    DELETE FROM @Asked WHERE "Id" IN (SELECT k."Id" FROM @Known k);
    IF @Actor IS NOT NULL AND @Count > 0
    BEGIN
        DECLARE @Items NVARCHAR(MAX) = (SELECT N'["' + STRING_AGG(LOWER(CAST(x."Id" AS NVARCHAR(36))), N'","') + N'"]' FROM (SELECT TOP (20) a."Id" FROM @Asked a) x);
        DECLARE @Data NVARCHAR(MAX) = N'{"count":' + CAST(@Count AS NVARCHAR(20)) + N',"items":' + @Items + N'}';
        DECLARE @Anchors NVARCHAR(MAX) = (
            SELECT x.kind AS kind, x.value AS value
              FROM (SELECT N'join' AS kind, LOWER(CAST(@JoinId AS NVARCHAR(36))) AS value UNION ALL SELECT N'step', LOWER(CAST(a."Id" AS NVARCHAR(36))) FROM @Asked a) x FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'join.attach', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Count AS attached;
END
GO
-- Counts a step by hand, as completed or failed. Tells counted; already if it was counted before; ended if the join has ended without it; and how the join stands.
ALTER PROCEDURE "{{schema}}"."{{joins}}_Report"
    @JoinId UNIQUEIDENTIFIER,
    @WorkItemId UNIQUEIDENTIFIER,
    @Outcome NVARCHAR(20),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL,
    -- Whether results of their own tell what this has counted for joins (one column, counted): for Mainstay itself.
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @Outcome IS NULL OR @Outcome NOT IN (N'completed', N'failed')
        THROW 50001, N'joins_report: outcome must be completed or failed', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Was TINYINT, @Became TINYINT, @Told NVARCHAR(20), @Complaint NVARCHAR(300);
    IF @Own = 1 BEGIN TRANSACTION;
    UPDATE "{{schema}}"."{{joins}}" SET "UpdatedAt" = "UpdatedAt" WHERE "Id" = @JoinId;
    IF @@ROWCOUNT = 0
    BEGIN
        SET @Complaint = N'joins_report: there is no join ' + COALESCE(LOWER(CAST(@JoinId AS NVARCHAR(36))), N'null');
        THROW 50002, @Complaint, 1;
    END
    SELECT @Was = m."State" FROM "{{schema}}"."{{joins}}_member" m WHERE m."JoinId" = @JoinId AND m."WorkItemId" = @WorkItemId;
    IF @Was IS NULL
    BEGIN
        SET @Complaint = N'joins_report: ' + COALESCE(LOWER(CAST(@WorkItemId AS NVARCHAR(36))), N'null') + N' is no member of the join ' + LOWER(CAST(@JoinId AS NVARCHAR(36))) + N'; attach it first';
        THROW 50002, @Complaint, 1;
    END
    DECLARE @Steps NVARCHAR(MAX) = N'[{"id":"' + CAST(@WorkItemId AS NVARCHAR(36)) + N'","outcome":' + CASE @Outcome WHEN N'completed' THEN N'2' ELSE N'3' END + N'}]';
    EXEC "{{schema}}"."{{joins}}_Ended" @Steps, @JoinId, @TellJoins;
    SELECT @Became = m."State" FROM "{{schema}}"."{{joins}}_member" m WHERE m."JoinId" = @JoinId AND m."WorkItemId" = @WorkItemId;
    SET @Told = CASE WHEN @Was = 0 AND @Became <> 0 THEN N'counted' WHEN @Became <> 0 THEN N'already' ELSE N'ended' END;
    -- Applications that go about their business report all the time: that is recorded when somebody is named.
    IF @Actor IS NOT NULL AND @Told = N'counted'
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = N'{"step":"' + LOWER(CAST(@WorkItemId AS NVARCHAR(36))) + N'","before":{"state":"pending"},"after":{"state":"' + @Outcome + N'"}}';
        DECLARE @Anchors NVARCHAR(MAX) = N'[{"kind":"join","value":"' + LOWER(CAST(@JoinId AS NVARCHAR(36))) + N'"},{"kind":"step","value":"' + LOWER(CAST(@WorkItemId AS NVARCHAR(36))) + N'"}]';
        EXEC "{{schema}}"."{{audit}}_Note" N'join.report', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Told AS reported, j."Status" AS state FROM "{{schema}}"."{{joins}}" j WHERE j."Id" = @JoinId;
END
GO
