-- Internal: the lock of an ordering key. Whoever takes an item of a key out of the line, or starts one, holds it until its transaction ends.
-- So whoever gets it sees the line as it is, even where it reads without waiting.
--
-- An application lock and not a row's: a claim tries it and goes on without waiting, a settle waits for it before it locks any row,
-- and in the order of the keys. Nobody waits for a row lock while others wait for its key, so no circle can close.

ALTER PROCEDURE "{{schema}}"."{{queue}}_Lock"
    @OrderingKey NVARCHAR(510),
    @Wait BIT
AS
BEGIN
    SET NOCOUNT ON;
    -- Names of application locks are compared without regard to case on some servers, and are short: hence a digest. They belong to a database, but on Babelfish to
    -- all of a server: hence its number.
    DECLARE @Digest BIGINT = CAST(SUBSTRING(HASHBYTES('SHA2_256', @OrderingKey), 1, 8) AS BIGINT);
    DECLARE @Resource NVARCHAR(255) = N'mainstay ' + CAST(DB_ID() AS NVARCHAR(10)) + N' {{schema:literal}}.{{queue:literal}} ' + CAST(@Digest AS NVARCHAR(20));
    -- As long as for a row, and for 30 s at most.
    DECLARE @Timeout INT = CASE WHEN @Wait = 0 THEN 0 WHEN @@LOCK_TIMEOUT BETWEEN 0 AND 30000 THEN @@LOCK_TIMEOUT ELSE 30000 END;
    DECLARE @Got INT;
    EXEC @Got = sp_getapplock @Resource = @Resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @Timeout;
    IF @Got < 0 AND SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL EXEC "{{schema}}"."{{outbox}}_LetGo";
    IF @Got < 0 AND @Wait = 1
        THROW 50004, N'{{queue:kind}}: an ordering key stayed locked by another transaction', 1;
    RETURN CASE WHEN @Got < 0 THEN 0 ELSE 1 END;
END
GO
-- Internal: the lock of an idempotency key. Whoever enqueues with it has it until the transaction ends, so that the next one with the same key waits and finds the first
-- one's ids. Not a lock of the place where the key would stand: that keeps neighbours from theirs, and of keys that ascend everybody is the last one's neighbour.
ALTER PROCEDURE "{{schema}}"."{{queue}}_OnceLock"
    @IdempotencyKey NVARCHAR(510)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Digest BIGINT = CAST(SUBSTRING(HASHBYTES('SHA2_256', @IdempotencyKey), 1, 8) AS BIGINT);
    DECLARE @Resource NVARCHAR(255) = N'mainstay ' + CAST(DB_ID() AS NVARCHAR(10)) + N' {{schema:literal}}.{{queue:literal}} once ' + CAST(@Digest AS NVARCHAR(20));
    DECLARE @Got INT;
    EXEC @Got = sp_getapplock @Resource = @Resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 30000;
    IF @Got < 0
        THROW 50004, N'{{queue:kind}}: an idempotency key stayed locked by another transaction', 1;
END
GO
