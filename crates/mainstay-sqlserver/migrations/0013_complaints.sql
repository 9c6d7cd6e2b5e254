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
