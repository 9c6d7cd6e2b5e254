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
