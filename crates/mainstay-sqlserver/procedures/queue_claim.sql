-- Claiming. Short transactions only.
--
-- Locks, in this order: none on the way through the queue; update locks on the rows picked, skipping whatever somebody else has locked (READPAST); the locks of
-- their ordering keys, tried and never waited for; then those rows' exclusive locks. They are found by their numbers, row by row (LOOP JOIN): a scan
-- would stop at the rows of others. It waits for nobody, unless it ends items that have expired or were
-- delivered too often: what hangs on their ends is then locked as a settle does it.
--
-- No double claim: a row is picked under an update lock, which only one transaction can have. The UPDATE says once more what made it a
-- candidate, so that it also holds where an engine knows no update locks and lets the second one wait for the first.
--
-- Lanes are read without locks (NOLOCK), which shows what others have not committed. That decides nothing: the key's lock is held by everybody
-- who changes a line, until it has committed, and the line is read again once it is held. Rows of enqueues that have not committed
-- make an item wait for a moment longer, and never let it go too early.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Claim"
    @OwnerToken UNIQUEIDENTIFIER,
    @LeaseSeconds FLOAT = 30,
    @BatchSize INT = 50,
    @DeliveryLimit INT = 10,
    -- Lists of topics, with NCHAR(31) between them.
    @OnlyTopics NVARCHAR(MAX) = NULL,
    @ExceptTopics NVARCHAR(MAX) = NULL,
    @WithPayload BIT = 1,
    -- Whether results of their own tell what this has counted for joins (one column, counted): for Mainstay itself.
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @OwnerToken IS NULL OR @OwnerToken = '00000000-0000-0000-0000-000000000000' THEN N'owner must not be null or nil'
        WHEN @LeaseSeconds IS NULL OR NOT (@LeaseSeconds > 0 AND @LeaseSeconds <= 1000000000) THEN N'lease_seconds must be more than 0 and at most 1000000000'
        WHEN @BatchSize IS NULL OR @BatchSize NOT BETWEEN 1 AND 100000 THEN N'batch must be 1 to 100000'
        WHEN @DeliveryLimit IS NULL OR @DeliveryLimit < 1 THEN N'delivery_limit must be 1 or more'
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'{{queue:kind}}_claim: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    -- Mostly nothing is paused, and then nothing is looked up for each row. Read without waiting: who pauses or resumes is about to commit.
    DECLARE @Paused BIT = CASE WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" WITH (NOLOCK)) THEN 1 ELSE 0 END;
    DECLARE @Until DATETIME2(6), @Key NVARCHAR(510), @Got INT;
    DECLARE @Turn INT, @Last INT, @Depth INT, @Share INT, @Level SMALLINT, @Quota INT, @Want INT, @Room INT, @Found INT, @Walked INT = 0, @Rounds INT = 0;
    DECLARE @Visit TABLE ("Turn" INT NOT NULL PRIMARY KEY, "Priority" SMALLINT NOT NULL, "Quota" INT NOT NULL);
    DECLARE @Level_ TABLE ("Place" INT NOT NULL PRIMARY KEY, "Priority" SMALLINT NOT NULL);
    -- Over: 0 to be claimed, 1 expired, 2 delivered too often, 9 looked at and left alone.
    DECLARE @Pick TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "OrderingKey" NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL, "Over" TINYINT NOT NULL, "Checked" BIT NOT NULL);
    DECLARE @Locked TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Lapsed TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Ended TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Endings "{{schema}}"."{{queue}}_ending";
    DECLARE @Over TABLE ("Verdict" INT NOT NULL, "Id" UNIQUEIDENTIFIER NOT NULL, "Topic" NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL);
    DECLARE @Taken DATETIME2(6);

    IF @Own = 1 BEGIN TRANSACTION;
    WHILE 1 = 1
    BEGIN
        SET @Rounds = @Rounds + 1;
        DELETE FROM @Visit;
        DELETE FROM @Level_;
        INSERT INTO @Level_ ("Place", "Priority")
        SELECT ROW_NUMBER() OVER (ORDER BY v.p DESC), v.p
          FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0), (-1), (-2), (-3), (-4), (-5), (-6), (-7), (-8), (-9)) v(p)
         WHERE EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK) WHERE o."Status" = 0 AND o."Priority" = v.p AND o."DueAt" <= @Now)
            OR EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" o WITH (NOLOCK) WHERE o."Status" = 1 AND o."Priority" = v.p AND o."LockedUntil" <= @Now);
        SET @Depth = (SELECT COUNT(*) FROM @Level_);
        IF @Depth = 0 BREAK;
        -- Every lower level has a small share, all of them at most half of the batch; then the highest goes first. Where the batch is too
        -- small to share, one claim in ten starts at a random level instead, so no level waits for ever.
        SET @Share = 0;
        IF @Depth > 1
        BEGIN
            SET @Share = CASE WHEN @BatchSize / 10 > 1 THEN @BatchSize / 10 ELSE 1 END;
            IF @Share > @BatchSize / 2 / (@Depth - 1) SET @Share = @BatchSize / 2 / (@Depth - 1);
            IF @Share > 0
                INSERT INTO @Visit ("Turn", "Priority", "Quota") SELECT "Place", "Priority", @Share FROM @Level_ WHERE "Place" > 1;
            ELSE IF RAND() < 0.1
                INSERT INTO @Visit ("Turn", "Priority", "Quota") SELECT 50, "Priority", @BatchSize FROM @Level_ WHERE "Place" = 1 + CAST(FLOOR(RAND() * @Depth) AS INT);
        END
        INSERT INTO @Visit ("Turn", "Priority", "Quota") SELECT 100 + "Place", "Priority", @BatchSize FROM @Level_;

        SET @Room = @BatchSize - (SELECT COUNT(*) FROM @Pick WHERE "Over" = 0);
        SET @Last = 0;
        WHILE @Room > 0
        BEGIN
            SET @Turn = (SELECT MIN("Turn") FROM @Visit WHERE "Turn" > @Last);
            IF @Turn IS NULL BREAK;
            SET @Last = @Turn;
            SELECT @Level = "Priority", @Quota = "Quota" FROM @Visit WHERE "Turn" = @Turn;
            SET @Want = CASE WHEN @Quota < @Room THEN @Quota ELSE @Room END;
            WHILE @Want > 0 AND @Walked <= 20000 + 4 * @BatchSize
            BEGIN
                -- First those whose lease has lapsed: they have waited longest.
                INSERT INTO @Pick ("Seq", "OrderingKey", "Over", "Checked")
                SELECT TOP (@Want) o."Seq", o."OrderingKey", CASE WHEN o."ExpiresAt" <= @Now THEN 1 WHEN o."Attempts" >= @DeliveryLimit THEN 2 ELSE 0 END, 0
                  FROM "{{schema}}"."{{queue}}" o WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK)
                 WHERE o."Status" = 1 AND o."Priority" = @Level AND o."LockedUntil" <= @Now
                   AND (@OnlyTopics IS NULL OR o."Topic" IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@OnlyTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
                   AND (@ExceptTopics IS NULL OR o."Topic" NOT IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@ExceptTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
                   AND (@Paused = 0 OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WITH (NOLOCK) WHERE x."Topic" = o."Topic"))
                   AND NOT EXISTS (SELECT 1 FROM @Pick p WHERE p."Seq" = o."Seq")
                   AND (o."OrderingKey" IS NULL OR (
                        NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" a WITH (NOLOCK) WHERE a."OrderingKey" = o."OrderingKey" AND a."OrderingKey" IS NOT NULL AND a."Seq" < o."Seq")
                        AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_hold" h WITH (NOLOCK) WHERE h."OrderingKey" = o."OrderingKey")
                        AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" r WITH (NOLOCK)
                                         WHERE r."OrderingKey" = o."OrderingKey" AND r."OrderingKey" IS NOT NULL AND r."Seq" > o."Seq" AND r."Status" = 1 AND r."LockedUntil" > @Now)))
                 ORDER BY o."LockedUntil", o."Seq";
                SET @Found = @@ROWCOUNT;
                IF @Found < @Want
                BEGIN
                    SET @Want = @Want - @Found;
                    INSERT INTO @Pick ("Seq", "OrderingKey", "Over", "Checked")
                    SELECT TOP (@Want) o."Seq", o."OrderingKey", CASE WHEN o."ExpiresAt" <= @Now THEN 1 WHEN o."Attempts" >= @DeliveryLimit THEN 2 ELSE 0 END, 0
                      FROM "{{schema}}"."{{queue}}" o WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK)
                     WHERE o."Status" = 0 AND o."Priority" = @Level AND o."DueAt" <= @Now
                       AND (@OnlyTopics IS NULL OR o."Topic" IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@OnlyTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
                       AND (@ExceptTopics IS NULL OR o."Topic" NOT IN (SELECT t."value" COLLATE Latin1_General_BIN2 FROM STRING_SPLIT(@ExceptTopics COLLATE Latin1_General_BIN2, CAST(NCHAR(31) AS NCHAR(1))) t))
                       AND (@Paused = 0 OR NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" x WITH (NOLOCK) WHERE x."Topic" = o."Topic"))
                       AND NOT EXISTS (SELECT 1 FROM @Pick p WHERE p."Seq" = o."Seq")
                       AND (o."OrderingKey" IS NULL OR (
                            NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" a WITH (NOLOCK) WHERE a."OrderingKey" = o."OrderingKey" AND a."OrderingKey" IS NOT NULL AND a."Seq" < o."Seq")
                            AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_hold" h WITH (NOLOCK) WHERE h."OrderingKey" = o."OrderingKey")
                            AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" r WITH (NOLOCK)
                                             WHERE r."OrderingKey" = o."OrderingKey" AND r."OrderingKey" IS NOT NULL AND r."Seq" > o."Seq" AND r."Status" = 1 AND r."LockedUntil" > @Now)))
                     ORDER BY o."DueAt", o."Seq";
                    SET @Found = @Found + @@ROWCOUNT;
                END
                IF @Found = 0 BREAK;
                SET @Walked = @Walked + @Found;

                -- Only now are they locked, each by its number: on the way here others were read, paused ones and those of other topics, whose locks would be
                -- kept to the end. What somebody else has meanwhile is passed over, and what was given back, put off or renewed meanwhile is no longer due.
                DELETE FROM @Locked;
                INSERT INTO @Locked ("Seq")
                SELECT o."Seq" FROM @Pick p JOIN "{{schema}}"."{{queue}}" o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON o."Seq" = p."Seq"
                 WHERE p."Checked" = 0 AND ((o."Status" = 0 AND o."DueAt" <= @Now) OR (o."Status" = 1 AND o."LockedUntil" <= @Now)) OPTION (LOOP JOIN);
                UPDATE @Pick SET "Over" = 9 WHERE "Checked" = 0 AND "Seq" NOT IN (SELECT l."Seq" FROM @Locked l);

                -- The keys, one by one, and then once more whether it is the item's turn.
                IF EXISTS (SELECT 1 FROM @Pick WHERE "Checked" = 0 AND "Over" <> 9 AND "OrderingKey" IS NOT NULL)
                BEGIN
                    SET @Key = (SELECT MIN("OrderingKey") FROM @Pick WHERE "Checked" = 0 AND "Over" <> 9 AND "OrderingKey" IS NOT NULL);
                    WHILE @Key IS NOT NULL
                    BEGIN
                        EXEC @Got = "{{schema}}"."{{queue}}_Lock" @Key, 0;
                        IF @Got = 0
                            UPDATE @Pick SET "Over" = 9 WHERE "Checked" = 0 AND "OrderingKey" = @Key;
                        SET @Key = (SELECT MIN("OrderingKey") FROM @Pick WHERE "Checked" = 0 AND "Over" <> 9 AND "OrderingKey" > @Key);
                    END
                    UPDATE p SET "Over" = 9
                      FROM @Pick p
                     WHERE p."Checked" = 0 AND p."OrderingKey" IS NOT NULL AND p."Over" <> 9
                       AND (EXISTS (SELECT 1 FROM @Pick l WHERE l."OrderingKey" = p."OrderingKey" AND l."Seq" > p."Seq" AND l."Checked" = 1 AND l."Over" = 0)
                            OR EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" a WITH (NOLOCK) WHERE a."OrderingKey" = p."OrderingKey" AND a."OrderingKey" IS NOT NULL AND a."Seq" < p."Seq")
                            OR EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_hold" h WITH (NOLOCK) WHERE h."OrderingKey" = p."OrderingKey")
                            OR EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" r WITH (NOLOCK)
                                        WHERE r."OrderingKey" = p."OrderingKey" AND r."OrderingKey" IS NOT NULL AND r."Seq" > p."Seq" AND r."Status" = 1 AND r."LockedUntil" > @Now));

                    -- A lapsed lease alone does not free a key: its owner may be renewing it in this very moment. So the lapsed claims of later items
                    -- of the key end here, and an item waits while a later one is left in progress: one that another session has locked, or has renewed.
                    DELETE FROM @Lapsed;
                    INSERT INTO @Lapsed ("Seq")
                    SELECT DISTINCT r."Seq" FROM @Pick p
                      JOIN "{{schema}}"."{{queue}}" r WITH (NOLOCK) ON r."OrderingKey" = p."OrderingKey" AND r."OrderingKey" IS NOT NULL AND r."Seq" > p."Seq" AND r."Status" = 1
                     WHERE p."Checked" = 0 AND p."Over" = 0 OPTION (LOOP JOIN);
                    IF @@ROWCOUNT > 0
                    BEGIN
                        UPDATE "{{schema}}"."{{queue}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "Status" = 0, "OwnerToken" = NULL, "LockedUntil" = NULL
                         WHERE "Seq" IN (SELECT l."Seq" FROM @Lapsed l) AND "Status" = 1 AND "LockedUntil" <= @Now OPTION (LOOP JOIN);
                        UPDATE p SET "Over" = 9
                          FROM @Pick p
                         WHERE p."Checked" = 0 AND p."Over" = 0
                           AND EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}" r WITH (NOLOCK)
                                        WHERE r."OrderingKey" = p."OrderingKey" AND r."OrderingKey" IS NOT NULL AND r."Seq" > p."Seq" AND r."Status" = 1);
                    END
                END
                UPDATE @Pick SET "Checked" = 1 WHERE "Checked" = 0;
                SET @Found = @BatchSize - (SELECT COUNT(*) FROM @Pick WHERE "Over" = 0);
                -- Went on past what could not be taken.
                SET @Quota = @Quota - (@Room - @Found);
                SET @Room = @Found;
                SET @Want = CASE WHEN @Quota < @Room THEN @Quota ELSE @Room END;
            END
        END

        IF EXISTS (SELECT 1 FROM @Pick WHERE "Over" IN (1, 2))
        BEGIN
            DELETE FROM @Ended;
            UPDATE "{{schema}}"."{{queue}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "Status" = 1, "OwnerToken" = @OwnerToken, "LockedUntil" = @Now
            OUTPUT inserted."Seq" INTO @Ended
             WHERE "Seq" IN (SELECT p."Seq" FROM @Pick p WHERE p."Over" IN (1, 2)) AND (("Status" = 0 AND "DueAt" <= @Now) OR ("Status" = 1 AND "LockedUntil" <= @Now)) OPTION (LOOP JOIN);
            DELETE FROM @Endings;
            INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
            SELECT p."Seq", 3, CASE p."Over" WHEN 1 THEN N'expired' ELSE N'delivery-limit' END,
                   CASE p."Over" WHEN 1 THEN N'expired at ' + CONVERT(NVARCHAR(19), o."ExpiresAt", 126) + N'Z'
                        ELSE N'delivery limit of ' + CAST(@DeliveryLimit AS NVARCHAR(10)) + N' reached' END, 1, 1, 0
              FROM @Pick p JOIN @Ended e ON e."Seq" = p."Seq" JOIN "{{schema}}"."{{queue}}" o WITH (FORCESEEK) ON o."Seq" = p."Seq";
            INSERT INTO @Over ("Verdict", "Id", "Topic")
            SELECT CASE e."Reason" WHEN N'expired' THEN 2 ELSE 3 END, o."Id", o."Topic"
              FROM @Endings e JOIN "{{schema}}"."{{queue}}" o WITH (FORCESEEK) ON o."Seq" = e."Seq";
            EXEC "{{schema}}"."{{queue}}_Retire" @Endings, @Now, @TellJoins;
            UPDATE @Pick SET "Over" = 9 WHERE "Over" IN (1, 2);
            -- With nothing in hand, the items behind those that ended may have their turn now.
            IF @Rounds < 20 AND NOT EXISTS (SELECT 1 FROM @Pick WHERE "Over" = 0)
            BEGIN
                DELETE FROM @Pick;
                CONTINUE;
            END
        END
        IF NOT EXISTS (SELECT 1 FROM @Pick WHERE "Over" = 0) BREAK;

        -- From now, not from the start: the way here may have been long, and the lease is for the work.
        SET @Taken = SYSUTCDATETIME();
        SET @Until = "{{schema}}"."{{outbox}}_after"(@Taken, CAST(@LeaseSeconds * 1000000 AS BIGINT));
        UPDATE "{{schema}}"."{{queue}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
           SET "Status" = 1, "OwnerToken" = @OwnerToken, "Generation" = CASE WHEN "Generation" > "Seq" * 65536 THEN "Generation" ELSE "Seq" * 65536 END + 1, "Attempts" = "Attempts" + 1, "LockedUntil" = @Until
        OUTPUT inserted."Seq" INTO @Hit
         WHERE "Seq" IN (SELECT p."Seq" FROM @Pick p WHERE p."Over" = 0) AND (("Status" = 0 AND "DueAt" <= @Now) OR ("Status" = 1 AND "LockedUntil" <= @Now)) OPTION (LOOP JOIN);
        SET @Found = @@ROWCOUNT;
        -- Where an engine has let somebody else take all of them meanwhile, there may be others.
        IF @Found > 0 OR @Rounds >= 20 BREAK;
        DELETE FROM @Pick;
        SET @Now = SYSUTCDATETIME();
    END
    -- Two results of one shape, so that INSERT … EXEC takes both: what was claimed, and what was ended instead.
    SELECT 1 AS verdict, o."Id" AS id, o."Topic" AS topic, o."MessageId" AS message_id, o."Generation" AS generation, o."Attempts" AS attempts,
           o."CorrelationId" AS correlation_id, o."CreatedAt" AS created_at, o."DueAt" AS due_at, o."ExpiresAt" AS expires_at, o."LastError" AS last_error,
           o."Priority" AS priority, o."OrderingKey" AS ordering_key, o."Headers" AS headers, o."LockedUntil" AS locked_until,
           CASE WHEN @WithPayload = 1 THEN o."Payload" ELSE N'' END AS payload, @Taken AS claimed_at
      FROM @Hit h JOIN "{{schema}}"."{{queue}}" o WITH (FORCESEEK) ON o."Seq" = h."Seq"
     ORDER BY o."Priority" DESC, o."DueAt", o."Seq";
    IF EXISTS (SELECT 1 FROM @Over)
        SELECT v."Verdict" AS verdict, v."Id" AS id, v."Topic" AS topic, h."MessageId" AS message_id, h."Generation" AS generation, h."Attempts" AS attempts,
               h."CorrelationId" AS correlation_id, h."CreatedAt" AS created_at, h."DueAt" AS due_at, h."ExpiresAt" AS expires_at, h."LastError" AS last_error,
               h."Priority" AS priority, h."OrderingKey" AS ordering_key, h."Headers" AS headers, CAST(NULL AS DATETIME2(6)) AS locked_until,
               N'' AS payload, CAST(NULL AS DATETIME2(6)) AS claimed_at
          FROM @Over v CROSS APPLY (SELECT TOP (1) x.* FROM "{{schema}}"."{{queue}}_history" x WITH (FORCESEEK) WHERE x."Id" = v."Id" ORDER BY x."Seq" DESC) h;
    IF @Own = 1 COMMIT;
END
GO
