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
