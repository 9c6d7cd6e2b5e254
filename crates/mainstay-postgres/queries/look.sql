-- How a look begins, to be ended by commit. The database itself sees to it that nothing is written. What is read is a few rows at one end of
-- an index, whatever the statistics say; those of a queue that has just filled up say that it is empty.
begin isolation level read committed read only;
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off
