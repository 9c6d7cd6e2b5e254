-- Turning what is due into messages. Claim, enqueue and ack happen in this one procedure, so in one transaction: whoever dies midway has done nothing, and
-- two who call it at once share the work. Locks are those of a claim, then those of an enqueue, then those of a settle.
--
-- The message has the ids of the item it comes from. Should it be there already, under both ids, it is not added again. Should another message have the item's
-- id, this one can't be made: the item fails and says so, for nothing may be lost without a word. An item that says in a header which ordering key its
-- message is to have is taken at its word.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Forward"
    @OwnerToken UNIQUEIDENTIFIER,
    @BatchSize INT = 100,
    @KeepPayload BIT = 1
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @@LOCK_TIMEOUT NOT BETWEEN 0 AND 4000 SET LOCK_TIMEOUT 4000;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    -- What becomes of it: 0 forwarded, 1 expired, 2 another message has its id, 3 its message is there already.
    DECLARE @Pick TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Hit TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "MessageId" UNIQUEIDENTIFIER NOT NULL, "DueAt" DATETIME2(6) NOT NULL, "ExpiresAt" DATETIME2(6) NULL);
    DECLARE @Fate TABLE ("Seq" BIGINT NOT NULL PRIMARY KEY, "Id" UNIQUEIDENTIFIER NOT NULL, "DueAt" DATETIME2(6) NOT NULL, "Fate" TINYINT NOT NULL);
    DECLARE @Endings "{{schema}}"."{{queue}}_ending";
    IF @Own = 1 BEGIN TRANSACTION;
    INSERT INTO @Pick ("Seq")
    -- Each priority has its range in the index: what is due is found, and locked, as far as a batch goes, however much there is.
    SELECT TOP (@BatchSize) x."Seq"
      FROM (SELECT r."Seq", r."DueAt"
              FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0), (-1), (-2), (-3), (-4), (-5), (-6), (-7), (-8), (-9)) v(p)
             CROSS APPLY (
                   SELECT TOP (@BatchSize) o."Seq", o."DueAt" FROM "{{schema}}"."{{queue}}" o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
                    WHERE o."Status" = 0 AND o."Priority" = CAST(v.p AS SMALLINT) AND o."DueAt" <= @Now ORDER BY o."DueAt", o."Seq") r
            UNION ALL
            SELECT r."Seq", r."DueAt"
              FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0), (-1), (-2), (-3), (-4), (-5), (-6), (-7), (-8), (-9)) v(p)
             CROSS APPLY (
                   SELECT TOP (@BatchSize) o."Seq", o."DueAt" FROM "{{schema}}"."{{queue}}" o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
                    WHERE o."Status" = 1 AND o."Priority" = CAST(v.p AS SMALLINT) AND o."LockedUntil" <= @Now ORDER BY o."LockedUntil", o."Seq") r) x
     ORDER BY x."DueAt", x."Seq";
    UPDATE "{{schema}}"."{{queue}}" WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) SET "Status" = 1, "OwnerToken" = @OwnerToken, "Generation" = CASE WHEN "Generation" > "Seq" * 65536 THEN "Generation" ELSE "Seq" * 65536 END + 1, "Attempts" = "Attempts" + 1, "LockedUntil" = @Now
    OUTPUT inserted."Seq", inserted."Id", inserted."MessageId", inserted."DueAt", inserted."ExpiresAt" INTO @Hit
     WHERE "Seq" IN (SELECT p."Seq" FROM @Pick p) AND (("Status" = 0 AND "DueAt" <= @Now) OR ("Status" = 1 AND "LockedUntil" <= @Now)) OPTION (LOOP JOIN);
    IF EXISTS (SELECT 1 FROM @Hit)
    BEGIN
        INSERT INTO @Fate ("Seq", "Id", "DueAt", "Fate")
        SELECT h."Seq", h."Id", h."DueAt",
               CASE WHEN h."ExpiresAt" <= @Now THEN 1
                    WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (FORCESEEK) WHERE o."Id" = h."Id" AND o."MessageId" = h."MessageId")
                      OR EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" o WITH (FORCESEEK) WHERE o."Id" = h."Id" AND o."MessageId" = h."MessageId") THEN 3
                    WHEN EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}" o WITH (FORCESEEK) WHERE o."Id" = h."Id") OR EXISTS (SELECT 1 FROM "{{schema}}"."{{outbox}}_history" o WITH (FORCESEEK) WHERE o."Id" = h."Id") THEN 2
                    ELSE 0 END
          FROM @Hit h;
        INSERT INTO "{{schema}}"."{{outbox}}" (
            "Id", "MessageId", "Topic", "Payload", "CreatedAt", "DueAt", "RequestedDueAt", "ExpiresAt", "Priority", "OrderingKey", "HoldOnFailure", "CorrelationId", "Headers")
        SELECT q."Id", q."MessageId", q."Topic", q."Payload", @Now, @Now, q."DueAt", q."ExpiresAt", q."Priority",
               COALESCE(q."OrderingKey", NULLIF(JSON_VALUE(q."Headers", '$."mainstay-ordering-key"'), N'')), q."HoldOnFailure", q."CorrelationId",
               CASE WHEN JSON_VALUE(q."Headers", '$."mainstay-ordering-key"') IS NULL THEN q."Headers"
                    ELSE NULLIF(JSON_MODIFY(q."Headers", '$."mainstay-ordering-key"', NULL), N'{}') END
          FROM @Fate f JOIN "{{schema}}"."{{queue}}" q WITH (FORCESEEK) ON q."Seq" = f."Seq"
         WHERE f."Fate" = 0
         ORDER BY f."DueAt", f."Seq";
        INSERT INTO @Endings ("Seq", "Status", "Reason", "Error", "Appends", "KeepPayload", "Back")
        SELECT f."Seq", CASE WHEN f."Fate" IN (0, 3) THEN 2 ELSE 3 END, CASE f."Fate" WHEN 1 THEN N'expired' WHEN 2 THEN N'handler' END,
               CASE f."Fate" WHEN 1 THEN N'expired' WHEN 2 THEN N'the outbox already has another message under this id' END, 0,
               CASE WHEN f."Fate" IN (1, 2) OR @KeepPayload = 1 THEN 1 ELSE 0 END, CASE f."Fate" WHEN 1 THEN 1 ELSE 0 END
          FROM @Fate f;
        EXEC "{{schema}}"."{{queue}}_Retire" @Endings, @Now;
    END
    {{forwarded}}
    IF @Own = 1 COMMIT;
    SELECT f."Id" AS id FROM @Fate f WHERE f."Fate" IN (0, 3) ORDER BY f."DueAt", f."Seq";
END
GO
