-- What timers have of their own.

ALTER PROCEDURE "{{schema}}"."{{timers}}_Schedule"
    @Topic NVARCHAR(MAX),
    @Payload NVARCHAR(MAX),
    @DueAt DATETIMEOFFSET(6) = NULL,
    @DueInSeconds FLOAT = NULL,
    @CorrelationId NVARCHAR(MAX) = NULL,
    @IdempotencyKey NVARCHAR(MAX) = NULL,
    @OrderingKey NVARCHAR(MAX) = NULL,
    @Priority INT = 0,
    @ExpiresAt DATETIMEOFFSET(6) = NULL,
    @Headers NVARCHAR(MAX) = NULL,
    @HoldOnFailure BIT = 0,
    @Id UNIQUEIDENTIFIER = NULL,
    @MessageId UNIQUEIDENTIFIER = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF (@DueAt IS NULL AND @DueInSeconds IS NULL) OR (@DueAt IS NOT NULL AND @DueInSeconds IS NOT NULL)
        THROW 50001, N'timers_schedule: either due_at or due_in_seconds must be given, and not both', 1;
    -- In a header and not in the item's own key: that would let a timer wait for an earlier one of the same key that is due later.
    IF @OrderingKey IS NOT NULL
        SET @Headers = JSON_MODIFY(COALESCE(@Headers, N'{}'), '$."mainstay-ordering-key"', @OrderingKey);
    EXEC "{{schema}}"."{{timers}}_Enqueue" @Topic, @Payload, @CorrelationId, @DueAt, @IdempotencyKey, NULL, @Priority, @ExpiresAt, @Headers, @HoldOnFailure, @Id, @MessageId, @DueInSeconds, NULL;
END
GO
ALTER PROCEDURE "{{schema}}"."{{timers}}_Reschedule"
    @Id UNIQUEIDENTIFIER,
    @DueAt DATETIMEOFFSET(6) = NULL,
    @DueInSeconds FLOAT = NULL,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF (@DueAt IS NULL AND @DueInSeconds IS NULL) OR (@DueAt IS NOT NULL AND @DueInSeconds IS NOT NULL)
        THROW 50001, N'timers_reschedule: either due_at or due_in_seconds must be given, and not both', 1;
    IF @DueInSeconds < 0 OR @DueInSeconds > 100000000000
        THROW 50001, N'timers_reschedule: due_in_seconds must be 0 to 100000000000', 1;
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Was DATETIME2(6), @Changed INT;
    IF @Own = 1 BEGIN TRANSACTION;
    DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @Due DATETIME2(6) = COALESCE(CAST(SWITCHOFFSET(CAST(@DueAt AS DATETIMEOFFSET(6)), '+00:00') AS DATETIME2(6)), "{{schema}}"."{{outbox}}_after"(@Now, CAST(@DueInSeconds * 1000000 AS BIGINT)));
    SELECT @Was = t."DueAt" FROM "{{schema}}"."{{timers}}" t WITH (UPDLOCK, ROWLOCK) WHERE t."Id" = @Id AND t."Status" = 0;
    UPDATE "{{schema}}"."{{timers}}" SET "DueAt" = CASE WHEN @Due > @Now THEN @Due ELSE @Now END, "RequestedDueAt" = @Due WHERE "Id" = @Id AND "Status" = 0;
    SET @Changed = @@ROWCOUNT;
    IF @Changed > 0 AND @Actor IS NOT NULL
    BEGIN
        DECLARE @Data NVARCHAR(MAX) = (
            SELECT REPLACE(CONVERT(NVARCHAR(30), @Was, 126), N' ', N'T') + N'Z' AS "before.due_at",
                   REPLACE(CONVERT(NVARCHAR(30), CASE WHEN @Due > @Now THEN @Due ELSE @Now END, 126), N' ', N'T') + N'Z' AS "after.due_at" FOR JSON PATH, WITHOUT_ARRAY_WRAPPER);
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'timers' AS kind, LOWER(CAST(@Id AS NVARCHAR(36))) AS value FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'timers.reschedule', @Actor, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Changed AS changed;
END
GO
-- When the next of all that is scheduled is due.
ALTER PROCEDURE "{{schema}}"."{{timers}}_NextEventTime"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT MIN(x."At") AS at
      FROM (SELECT MIN(t."DueAt") AS "At" FROM "{{schema}}"."{{timers}}" t WITH (NOLOCK) WHERE t."Status" = 0
            UNION ALL
            SELECT MIN(r."DueAt") FROM "{{schema}}"."{{job_runs}}" r WITH (NOLOCK) WHERE r."Status" = 0
            UNION ALL
            SELECT MIN(COALESCE(j."NextNominalAt", SYSUTCDATETIME())) FROM "{{schema}}"."{{jobs}}" j WITH (NOLOCK) WHERE j."Enabled" = 1 AND j."Problem" IS NULL) x;
END
GO
