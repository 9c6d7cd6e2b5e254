SELECT x.turn, CAST(x.statement AS NVARCHAR(1000)) AS statement
  FROM (SELECT CASE o.type WHEN N'P' THEN 1 WHEN N'V' THEN 2 WHEN N'U' THEN 4 ELSE 5 END AS turn,
               CONCAT(N'DROP ', CASE o.type WHEN N'P' THEN N'PROCEDURE' WHEN N'V' THEN N'VIEW' WHEN N'U' THEN N'TABLE' ELSE N'FUNCTION' END, N' "', s.name, N'"."', o.name, N'"') AS statement
          FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
         WHERE LOWER(s.name) = LOWER(@P1) AND o.type IN (N'P', N'V', N'U', N'FN', N'IF', N'TF')
        UNION ALL
        SELECT 3, CONCAT(N'ALTER TABLE "', s.name, N'"."', t.name, N'" DROP CONSTRAINT "', f.name, N'"')
          FROM sys.foreign_keys f JOIN sys.tables t ON t.object_id = f.parent_object_id JOIN sys.schemas s ON s.schema_id = t.schema_id
         WHERE LOWER(s.name) = LOWER(@P1)
        UNION ALL
        SELECT 6, CONCAT(N'DROP TYPE "', s.name, N'"."', y.name, N'"')
          FROM sys.types y JOIN sys.schemas s ON s.schema_id = y.schema_id
         WHERE LOWER(s.name) = LOWER(@P1) AND y.is_user_defined = 1) x
 ORDER BY x.turn
