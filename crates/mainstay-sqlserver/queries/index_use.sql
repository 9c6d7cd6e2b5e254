-- How often indexes of this database were used since the server was started.
SELECT u.object_id AS object_id, u.index_id AS index_id, u.user_seeks + u.user_scans + u.user_lookups AS scans
  FROM sys.dm_db_index_usage_stats u WHERE u.database_id = DB_ID()
