-- Adding one item, for any language. See queue_add for the locks.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Enqueue"
    @Topic NVARCHAR(MAX),
    @Payload NVARCHAR(MAX),
    @CorrelationId NVARCHAR(MAX) = NULL,
    @DueAt DATETIMEOFFSET(6) = NULL,
    @IdempotencyKey NVARCHAR(MAX) = NULL,
    @OrderingKey NVARCHAR(MAX) = NULL,
    @Priority INT = 0,
    @ExpiresAt DATETIMEOFFSET(6) = NULL,
    -- A JSON object of texts.
    @Headers NVARCHAR(MAX) = NULL,
    @HoldOnFailure BIT = 0,
    @Id UNIQUEIDENTIFIER = NULL,
    @MessageId UNIQUEIDENTIFIER = NULL,
    @DueInSeconds FLOAT = NULL,
    @ExpiresInSeconds FLOAT = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Topic IS NULL OR DATALENGTH(@Topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Topic, 255) = 1 THEN N'topic must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Topic)
        WHEN @Payload IS NULL THEN N'payload must not be null (an empty text is fine)'
        WHEN "{{schema}}"."{{outbox}}_exceeds"(@CorrelationId, 255) = 1 THEN N'correlation_id must be at most 255 characters' + "{{schema}}"."{{outbox}}_got"(@CorrelationId)
        WHEN DATALENGTH(@IdempotencyKey) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@IdempotencyKey, 255) = 1 THEN N'idempotency_key must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@IdempotencyKey)
        WHEN DATALENGTH(@OrderingKey) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@OrderingKey, 255) = 1 THEN N'ordering_key must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@OrderingKey)
        WHEN @Priority IS NULL OR @Priority NOT BETWEEN -9 AND 9 THEN N'priority must be -9 to 9'
        WHEN @Headers IS NOT NULL AND ISJSON(@Headers) = 0 THEN N'headers must be a JSON object'
        WHEN @DueInSeconds IS NOT NULL AND (@DueAt IS NOT NULL OR @DueInSeconds < 0 OR @DueInSeconds > 100000000000) THEN N'due_in_seconds must be 0 to 100000000000, and not beside due_at'
        WHEN @ExpiresInSeconds IS NOT NULL AND (@ExpiresAt IS NOT NULL OR @ExpiresInSeconds < 0 OR @ExpiresInSeconds > 100000000000) THEN N'expires_in_seconds must be 0 to 100000000000, and not beside expires_at'
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'{{queue:kind}}_enqueue: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    -- Times with an offset are good as well as those in UTC.
    DECLARE @Due DATETIME2(6) = CAST(SWITCHOFFSET(CAST(@DueAt AS DATETIMEOFFSET(6)), '+00:00') AS DATETIME2(6)), @Expires DATETIME2(6) = CAST(SWITCHOFFSET(CAST(@ExpiresAt AS DATETIMEOFFSET(6)), '+00:00') AS DATETIME2(6));
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    -- An id of the caller's own is looked up: an id is used once.
    DECLARE @Ids NVARCHAR(MAX) = N'[{"id":"' + CAST(@Id AS NVARCHAR(36)) + N'"}]';
    SET @Id = COALESCE(@Id, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()));
    SET @MessageId = COALESCE(@MessageId, "{{schema}}"."{{outbox}}_uuid7"(SYSUTCDATETIME(), NEWID()));
    IF @Own = 1 BEGIN TRANSACTION;
    -- Of the column's own length, so that it is looked up as what it is.
    DECLARE @Known UNIQUEIDENTIFIER, @KnownMessage UNIQUEIDENTIFIER, @Once NVARCHAR(510) = @IdempotencyKey;
    IF @IdempotencyKey IS NOT NULL
    BEGIN
        EXEC "{{schema}}"."{{queue}}_OnceLock" @IdempotencyKey;
        SELECT @Known = i."Id", @KnownMessage = i."MessageId" FROM "{{schema}}"."{{queue}}_idempotency" i WITH (UPDLOCK, ROWLOCK, FORCESEEK)
         WHERE i."IdempotencyKey" = @Once;
    END
    IF @Known IS NOT NULL
    BEGIN
        SET @Id = @Known;
        SET @MessageId = @KnownMessage;
    END
    ELSE
    BEGIN
        DECLARE @Now DATETIME2(6) = SYSUTCDATETIME();
        IF @IdempotencyKey IS NOT NULL
            INSERT INTO "{{schema}}"."{{queue}}_idempotency" ("IdempotencyKey", "Id", "MessageId", "CreatedAt") VALUES (@IdempotencyKey, @Id, @MessageId, @Now);
        IF @Ids IS NOT NULL EXEC "{{schema}}"."{{queue}}_RefuseKnown" @Ids, 0;
        BEGIN TRY
            -- See EnqueueMany.
            IF @Ids IS NOT NULL SET XACT_ABORT OFF;
            INSERT INTO "{{schema}}"."{{queue}}" (
                "Id", "MessageId", "Topic", "Payload", "CreatedAt", "DueAt", "RequestedDueAt", "ExpiresAt", "Priority", "OrderingKey",
                "HoldOnFailure", "IdempotencyKey", "CorrelationId", "Headers")
            SELECT @Id, @MessageId, @Topic, @Payload, @Now,
                   CASE WHEN @Due > @Now THEN @Due
                        WHEN @DueInSeconds IS NOT NULL THEN "{{schema}}"."{{outbox}}_after"(@Now, CAST(@DueInSeconds * 1000000 AS BIGINT)) ELSE @Now END,
                   COALESCE(@Due, "{{schema}}"."{{outbox}}_after"(@Now, CAST(@DueInSeconds * 1000000 AS BIGINT))),
                   COALESCE(@Expires, "{{schema}}"."{{outbox}}_after"(@Now, CAST(@ExpiresInSeconds * 1000000 AS BIGINT))),
                   @Priority, @OrderingKey, COALESCE(@HoldOnFailure, 0), @IdempotencyKey, NULLIF(@CorrelationId, N''), @Headers;
            SET XACT_ABORT ON;
        END TRY
        BEGIN CATCH
            SET XACT_ABORT ON;
            IF @Ids IS NOT NULL AND ERROR_NUMBER() IN (2601, 2627) AND XACT_STATE() = 1
                EXEC "{{schema}}"."{{queue}}_RefuseKnown" @Ids, 0;
            THROW;
        END CATCH
        IF @Ids IS NOT NULL EXEC "{{schema}}"."{{queue}}_RefuseKnown" @Ids, 1;
    END
    IF @Own = 1 COMMIT;
    SELECT @Id AS id, @MessageId AS message_id;
END
GO
