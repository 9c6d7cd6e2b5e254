-- What everything else is made with.

-- A time and so many microseconds later, within what a calendar holds. DATEADD takes an INT, which is 35 minutes in microseconds.
CREATE FUNCTION "{{schema}}"."{{outbox}}_after" (@From DATETIME2(6), @Microseconds BIGINT) RETURNS DATETIME2(6) AS
BEGIN
    RETURN CASE
        WHEN @Microseconds IS NULL THEN NULL
        WHEN @Microseconds / 86400000000 >= DATEDIFF(DAY, @From, '9999-12-30') THEN CAST('9999-12-30' AS DATETIME2(6))
        ELSE DATEADD(MICROSECOND, CAST(@Microseconds % 1000000 AS INT),
             DATEADD(SECOND, CAST((@Microseconds / 1000000) % 86400 AS INT),
             DATEADD(DAY, CAST(@Microseconds / 86400000000 AS INT), @From)))
    END
END
GO
-- A time so many seconds earlier, within what a calendar holds. Whole numbers are divided: the remainder of a FLOAT is none that the server takes.
CREATE FUNCTION "{{schema}}"."{{outbox}}_before" (@From DATETIME2(6), @Seconds FLOAT) RETURNS DATETIME2(6) AS
BEGIN
    RETURN CASE
        WHEN @Seconds IS NULL THEN NULL
        WHEN @Seconds >= 60000000000 THEN CAST('0001-01-02' AS DATETIME2(6))
        ELSE DATEADD(MICROSECOND, -CAST(FLOOR((@Seconds - FLOOR(@Seconds)) * 1000000) AS INT),
             DATEADD(SECOND, -CAST(CAST(FLOOR(@Seconds) AS BIGINT) % 86400 AS INT),
             DATEADD(DAY, -CAST(CAST(FLOOR(@Seconds) AS BIGINT) / 86400 AS INT), @From)))
    END
END
GO
-- Whether a text has more characters than that. The database's collation decides whether LEN counts one outside the basic plane once or twice, and it passes
-- over blanks at the end.
CREATE FUNCTION "{{schema}}"."{{outbox}}_exceeds" (@Text NVARCHAR(MAX), @Most INT) RETURNS BIT AS
BEGIN
    DECLARE @Length INT = LEN(@Text + N'.') - 1;
    IF @Length IS NULL OR @Length <= @Most RETURN 0;
    IF @Length > 2 * @Most RETURN 1;
    DECLARE @Place INT = @Length;
    WHILE @Place > 0
    BEGIN
        -- The first half of a pair, where halves are what is counted.
        IF UNICODE(SUBSTRING(@Text, @Place, 1)) BETWEEN 55296 AND 56319 SET @Length = @Length - 1;
        SET @Place = @Place - 1;
    END
    RETURN CASE WHEN @Length > @Most THEN 1 ELSE 0 END;
END
GO
-- The table type for ids. The generation is that of the claim; null compares the owner alone.
CREATE TYPE "{{schema}}"."{{outbox}}_IdList" AS TABLE ("Id" UNIQUEIDENTIFIER NOT NULL, "Generation" BIGINT NULL);
GO
-- A text as it was before it was put into a list: `~1` is a quotation mark, `~2` a backslash, `~A` to `~_` are the control characters from 1 on, and `~0`
-- is `~` itself. JSON has escapes of its own for these, but not every engine undoes them.
CREATE FUNCTION "{{schema}}"."{{outbox}}_text" (@Text NVARCHAR(MAX)) RETURNS NVARCHAR(MAX) AS
BEGIN
    IF @Text IS NULL OR CHARINDEX(N'~', @Text COLLATE Latin1_General_BIN2) = 0 RETURN @Text;
    DECLARE @Plain NVARCHAR(MAX) = REPLACE(REPLACE(REPLACE(@Text COLLATE Latin1_General_BIN2, N'~1', N'"'), N'~2', N'\'), N'~J', NCHAR(10));
    DECLARE @Code INT = 1;
    WHILE @Code < 32
    BEGIN
        IF CHARINDEX(N'~' + NCHAR(64 + @Code), @Plain COLLATE Latin1_General_BIN2) > 0
            SET @Plain = REPLACE(@Plain COLLATE Latin1_General_BIN2, N'~' + NCHAR(64 + @Code), NCHAR(@Code));
        SET @Code = @Code + 1;
    END
    RETURN REPLACE(@Plain COLLATE Latin1_General_BIN2, N'~0', N'~');
END
GO
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
GO
-- How many characters a text has, for a complaint about them. As `{{outbox}}_exceeds` counts: one outside the basic plane once.
CREATE FUNCTION "{{schema}}"."{{outbox}}_got" (@Text NVARCHAR(MAX)) RETURNS NVARCHAR(30) AS
BEGIN
    IF @Text IS NULL RETURN N', got null';
    DECLARE @Place INT = LEN(@Text + N'.') - 1;
    DECLARE @Length INT = @Place;
    -- Of what is that long, nobody wants to know it to the character.
    IF @Length > 10000 RETURN N', got ' + CAST(@Length AS NVARCHAR(20));
    WHILE @Place > 0
    BEGIN
        IF UNICODE(SUBSTRING(@Text, @Place, 1)) BETWEEN 55296 AND 56319 SET @Length = @Length - 1;
        SET @Place = @Place - 1;
    END
    RETURN N', got ' + CAST(@Length AS NVARCHAR(20));
END
GO
-- Whether a text is nothing but white space, as a source or an id of a message must not be.
CREATE FUNCTION "{{schema}}"."{{outbox}}_blank" (@Text NVARCHAR(MAX)) RETURNS BIT AS
BEGIN
    DECLARE @Rest NVARCHAR(MAX) = REPLACE(REPLACE(REPLACE(REPLACE(@Text COLLATE Latin1_General_BIN2, N' ', N''), NCHAR(9), N''), NCHAR(10), N''), NCHAR(13), N'');
    RETURN CASE WHEN @Rest IS NULL OR DATALENGTH(@Rest) = 0 THEN 1 ELSE 0 END;
END
GO
-- Bytes in hexadecimal, in lower case. CONVERT would do it, but not on every engine.
CREATE FUNCTION "{{schema}}"."{{outbox}}_hex" (@Bytes VARBINARY(64)) RETURNS NVARCHAR(128) AS
BEGIN
    DECLARE @Digits NVARCHAR(128) = N'', @Place INT = 1, @Byte INT;
    WHILE @Place <= DATALENGTH(@Bytes)
    BEGIN
        SET @Byte = CAST(SUBSTRING(@Bytes, @Place, 1) AS INT);
        SET @Digits = @Digits + SUBSTRING(N'0123456789abcdef', @Byte / 16 + 1, 1) + SUBSTRING(N'0123456789abcdef', @Byte % 16 + 1, 1);
        SET @Place = @Place + 1;
    END
    RETURN @Digits;
END
