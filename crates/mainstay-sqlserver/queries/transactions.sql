-- The transactions that have been open for longest, of whoever works in this database or has changed something in it. No statement's text. The server notes their begin by its own
-- local time.
SELECT TOP (10) DATEDIFF_BIG(MILLISECOND, a.transaction_begin_time, GETDATE()) AS age,
       CONCAT(N'session ', s.session_id, N', login ', s.login_name, N', application ', COALESCE(NULLIF(s.program_name, N''), N'?'), N', from ', COALESCE(s.host_name, N'?'), N', ', s.status) AS holder
  FROM sys.dm_tran_session_transactions x
  JOIN sys.dm_tran_active_transactions a ON a.transaction_id = x.transaction_id
  JOIN sys.dm_exec_sessions s ON s.session_id = x.session_id
 WHERE x.is_user_transaction = 1 AND s.session_id <> @@SPID
   AND (s.database_id = DB_ID() OR EXISTS (SELECT 1 FROM sys.dm_tran_database_transactions d WHERE d.transaction_id = x.transaction_id AND d.database_id = DB_ID()))
 ORDER BY a.transaction_begin_time
