-- A text as it goes into a list, from which `{{outbox}}_text` brings it back. By code points: with the database's collation other characters may be taken for
-- those that are replaced here, a wide `~` for one.
CREATE FUNCTION "{{schema}}"."{{outbox}}_listed" (@Text NVARCHAR(MAX)) RETURNS NVARCHAR(MAX) AS
BEGIN
    DECLARE @Listed NVARCHAR(MAX) = REPLACE(REPLACE(REPLACE(@Text COLLATE Latin1_General_BIN2, N'~', N'~0'), N'"', N'~1'), N'\', N'~2');
    DECLARE @Code INT = 1;
    WHILE @Code < 32
    BEGIN
        IF CHARINDEX(NCHAR(@Code), @Listed COLLATE Latin1_General_BIN2) > 0
            SET @Listed = REPLACE(@Listed COLLATE Latin1_General_BIN2, NCHAR(@Code), N'~' + NCHAR(64 + @Code));
        SET @Code = @Code + 1;
    END
    RETURN @Listed;
END
GO
-- An id of version 7: the milliseconds since 1970, then chance. Functions may neither look at the clock nor toss coins, so both are handed in.
CREATE FUNCTION "{{schema}}"."{{outbox}}_uuid7" (@Now DATETIME2(6), @Chance UNIQUEIDENTIFIER) RETURNS UNIQUEIDENTIFIER AS
BEGIN
    DECLARE @Rest BIGINT = DATEDIFF_BIG(MILLISECOND, '1970-01-01', @Now), @Digits VARCHAR(12) = '';
    WHILE LEN(@Digits) < 12
    BEGIN
        SET @Digits = SUBSTRING('0123456789abcdef', CAST(@Rest % 16 AS INT) + 1, 1) + @Digits;
        SET @Rest = @Rest / 16;
    END
    RETURN CAST(STUFF(STUFF(CAST(@Chance AS CHAR(36)), 1, 13, LEFT(@Digits, 8) + '-' + RIGHT(@Digits, 4)), 15, 1, '7') AS UNIQUEIDENTIFIER);
END
