-- The user, and which of these procedures it may not execute. Parameter: their names with quotes, with NCHAR(31) between them.
SELECT USER_NAME() AS user_name;
SELECT n."value" AS missing FROM STRING_SPLIT(@P1, CAST(NCHAR(31) AS NCHAR(1))) n
 WHERE COALESCE(HAS_PERMS_BY_NAME(n."value", N'OBJECT', N'EXECUTE'), 0) = 0 ORDER BY n."value";
