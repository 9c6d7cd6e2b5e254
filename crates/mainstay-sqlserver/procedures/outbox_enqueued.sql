    -- What is a step of joins becomes their member. One that was there before may have ended.
    DECLARE @Pairs NVARCHAR(MAX) = (
        SELECT j."value" AS joined, n."Id" AS item FROM OPENJSON(@Messages) WITH (n INT '$.n', joins NVARCHAR(MAX) '$.joins' AS JSON) m
          JOIN @New n ON n."N" = m.n CROSS APPLY OPENJSON(m.joins) j WHERE m.joins IS NOT NULL FOR JSON PATH);
    IF @Pairs IS NOT NULL
    BEGIN
        DECLARE @Fresh BIT = CASE WHEN EXISTS (SELECT 1 FROM @New WHERE "Added" = 0) THEN 0 ELSE 1 END;
        EXEC "{{schema}}"."{{joins}}_AttachPairs" @Pairs, @Fresh, 1;
    END
