-- Internal: items leave the open table for the history. What that counts for joins is a result of its own, with one column `counted`, if that is asked for. The caller's transaction holds a lock on each of these rows, and the locks of their
-- ordering keys.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Retire"
    @Endings "{{schema}}"."{{queue}}_ending" READONLY,
    @Now DATETIME2(6),
    @TellJoins BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    INSERT INTO "{{schema}}"."{{queue}}_history" (
        "Seq", "Id", "MessageId", "Topic", "CreatedAt", "DueAt", "RequestedDueAt", "ExpiresAt", "Status", "Reason", "ProcessedAt", "ProcessedBy",
        "Generation", "Attempts", "Priority", "HoldOnFailure", "OrderingKey", "IdempotencyKey", "CorrelationId", "LastError", "Headers", "Payload")
    SELECT o."Seq", o."Id", o."MessageId", o."Topic", o."CreatedAt", o."DueAt", o."RequestedDueAt", o."ExpiresAt", e."Status", e."Reason", @Now, o."OwnerToken",
           o."Generation", CASE WHEN o."Attempts" > e."Back" THEN o."Attempts" - e."Back" ELSE 0 END, o."Priority", o."HoldOnFailure", o."OrderingKey",
           o."IdempotencyKey", o."CorrelationId",
           CASE WHEN e."Appends" = 1 THEN LEFT(e."Error" + COALESCE(N'; last error: ' + o."LastError", N''), 2048) ELSE COALESCE(e."Error", o."LastError") END,
           o."Headers", CASE WHEN e."KeepPayload" = 1 THEN o."Payload" END
      FROM @Endings e
      JOIN "{{schema}}"."{{queue}}" o WITH (FORCESEEK) ON o."Seq" = e."Seq";
    -- A cancelled one holds nothing: whoever cancels it wants the rest to go on.
    INSERT INTO "{{schema}}"."{{queue}}_hold" ("OrderingKey", "Id", "HeldAt")
    SELECT o."OrderingKey", o."Id", @Now
      FROM @Endings e
      JOIN "{{schema}}"."{{queue}}" o WITH (FORCESEEK) ON o."Seq" = e."Seq"
     WHERE e."Status" = 3 AND e."Reason" <> N'cancelled' AND o."HoldOnFailure" = 1 AND o."OrderingKey" IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_hold" h WITH (FORCESEEK) WHERE h."OrderingKey" = o."OrderingKey");
    {{retired}}
    DELETE FROM "{{schema}}"."{{queue}}" WITH (ROWLOCK) WHERE "Seq" IN (SELECT e."Seq" FROM @Endings e) OPTION (LOOP JOIN);
END
GO
