-- Topics that nobody claims from. A claim leaves out what is in the table when it begins; what was claimed before goes on to its end.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Pause"
    @Topic NVARCHAR(MAX),
    @Reason NVARCHAR(MAX) = NULL,
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @Complaint NVARCHAR(300) = CASE
        WHEN @Topic IS NULL OR DATALENGTH(@Topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Topic, 255) = 1 THEN N'topic must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Topic)
        WHEN DATALENGTH(@Reason) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Reason, 255) = 1 THEN N'reason must be 1 to 255 characters, or null' + "{{schema}}"."{{outbox}}_got"(@Reason)
    END;
    IF @Complaint IS NOT NULL
    BEGIN
        SET @Complaint = N'{{queue:kind}}_pause: ' + @Complaint;
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @Changed INT = 0;
    -- Whoever does not say who acts is the one who has connected.
    DECLARE @By NVARCHAR(510) = COALESCE(@Actor, LEFT(N'sql:' + ORIGINAL_LOGIN(), 255));
    IF @Own = 1 BEGIN TRANSACTION;
    -- Two who pause the same topic come one after the other.
    EXEC "{{schema}}"."{{queue}}_Lock" @Topic, 1;
    IF NOT EXISTS (SELECT 1 FROM "{{schema}}"."{{queue}}_paused" p WHERE p."Topic" = @Topic)
    BEGIN
        INSERT INTO "{{schema}}"."{{queue}}_paused" ("Topic", "PausedAt", "PausedBy", "Reason") VALUES (@Topic, SYSUTCDATETIME(), @By, @Reason);
        SET @Changed = 1;
        DECLARE @Why NVARCHAR(MAX) = (SELECT @Reason AS reason FOR JSON PATH, WITHOUT_ARRAY_WRAPPER);
        DECLARE @Data NVARCHAR(MAX) = N'{"before":{"paused":false},"after":{"paused":true' + CASE WHEN @Reason IS NULL THEN N'}' ELSE N',' + SUBSTRING(@Why, 2, LEN(@Why)) END + N'}';
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'topic' AS kind, "{{schema}}"."{{outbox}}_listed"(@Topic) AS value FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'{{queue:kind}}.pause', @By, @ActorCorrelationId, @Data, @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Changed AS changed;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_Resume"
    @Topic NVARCHAR(MAX),
    @Actor NVARCHAR(510) = NULL,
    @ActorCorrelationId NVARCHAR(510) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    IF @Topic IS NULL OR DATALENGTH(@Topic) = 0 OR "{{schema}}"."{{outbox}}_exceeds"(@Topic, 255) = 1
    BEGIN
        DECLARE @Complaint NVARCHAR(300) = N'{{queue:kind}}_resume: topic must be 1 to 255 characters' + "{{schema}}"."{{outbox}}_got"(@Topic);
        THROW 50001, @Complaint, 1;
    END
    DECLARE @Own BIT = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
    DECLARE @By NVARCHAR(510) = COALESCE(@Actor, LEFT(N'sql:' + ORIGINAL_LOGIN(), 255));
    IF @Own = 1 BEGIN TRANSACTION;
    EXEC "{{schema}}"."{{queue}}_Lock" @Topic, 1;
    DELETE FROM "{{schema}}"."{{queue}}_paused" WHERE "Topic" = @Topic;
    DECLARE @Changed INT = @@ROWCOUNT;
    IF @Changed > 0
    BEGIN
        DECLARE @Anchors NVARCHAR(MAX) = (SELECT N'topic' AS kind, "{{schema}}"."{{outbox}}_listed"(@Topic) AS value FOR JSON PATH);
        EXEC "{{schema}}"."{{audit}}_Note" N'{{queue:kind}}.resume', @By, @ActorCorrelationId, N'{"before":{"paused":true},"after":{"paused":false}}', @Anchors;
    END
    IF @Own = 1 COMMIT;
    SELECT @Changed AS changed;
END
GO
ALTER PROCEDURE "{{schema}}"."{{queue}}_ListPaused"
AS
BEGIN
    SET NOCOUNT ON;
    SELECT p."Topic" AS topic, p."PausedAt" AS paused_at, p."PausedBy" AS paused_by, p."Reason" AS reason
      FROM "{{schema}}"."{{queue}}_paused" p WITH (NOLOCK) ORDER BY p."Topic";
END
GO
