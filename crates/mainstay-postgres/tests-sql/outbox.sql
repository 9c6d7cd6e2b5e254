-- The outbox through its SQL functions alone: any language that can call a function can take part.
-- Run with psql against a deployed schema with the default names (schema infra, outbox), nothing else using it:
--     psql -v ON_ERROR_STOP=1 -f outbox.sql
-- It empties the tables. Each block raises when something is wrong; the last line printed is "outbox.sql: all passed".
--
-- Time is moved by changing rows and not by sleeping. Within one DO block most times stand still, since the functions go by the
-- start of the caller's statement; only what is due, and what a claim finds, goes by the clock.

\set ON_ERROR_STOP 1
\set QUIET 1
set client_min_messages = warning;

create or replace function pg_temp.expect(condition boolean, what text) returns void language plpgsql as $$
begin
    if condition is not true then
        raise exception 'FAILED: %', what;
    end if;
end $$;

create or replace function pg_temp.refuses(statement text, code text, mention text) returns void language plpgsql as $$
begin
    begin
        execute statement;
    exception when others then
        if sqlstate = code and sqlerrm like '%' || mention || '%' then
            return;
        end if;
        raise exception 'FAILED: % gave % "%", not % naming "%"', statement, sqlstate, sqlerrm, code, mention;
    end;
    raise exception 'FAILED: % was accepted', statement;
end $$;

create or replace function pg_temp.reset() returns void language plpgsql as $$
begin
    delete from infra.outbox;
    delete from infra.outbox_history;
    delete from infra.outbox_idempotency;
    delete from infra.outbox_hold;
    delete from infra.outbox_waiter;
    delete from infra.outbox_floor;
end $$;

-- Two workers.
\set a '''aaaaaaaa-0000-4000-8000-000000000001'''
\set b '''bbbbbbbb-0000-4000-8000-000000000002'''

\echo enqueue rides on the transaction of its caller
select pg_temp.reset() \g /dev/null
begin;
select count(*) from infra.outbox_enqueue('order.paid', 'rolled back') \g /dev/null
rollback;
select pg_temp.expect(count(*) = 0, 'a rollback takes the item along') from infra.outbox \g /dev/null
begin;
select count(*) from infra.outbox_enqueue('order.paid', 'kept') \g /dev/null
commit;
select pg_temp.expect(count(*) = 1, 'a commit keeps the item') from infra.outbox \g /dev/null
begin;
savepoint s;
select count(*) from infra.outbox_enqueue('order.paid', 'savepoint') \g /dev/null
rollback to s;
commit;
select pg_temp.expect(count(*) = 1, 'so does a savepoint') from infra.outbox \g /dev/null

\echo a new item
do $$
declare e record; m record;
begin
    perform pg_temp.reset();
    select * into e from infra.outbox_enqueue('Topic', '', '');
    perform pg_temp.expect(substr(e.work_item_id::text, 15, 1) = '7' and substr(e.work_item_id::text, 20, 1) in ('8', '9', 'a', 'b'), 'UUID version 7');
    select * into m from infra.outbox_message where id = e.work_item_id;
    perform pg_temp.expect(m.message_id = e.message_id and m.payload = '' and m.correlation_id is null, 'empty payload, empty correlation id is null');
    perform pg_temp.expect(m.status = 0 and m.attempts = 0 and m.retry_count = 0 and not m.is_processed, 'ready, no retries');
    perform pg_temp.expect(m.created_at between statement_timestamp() and clock_timestamp() and m.due_at = m.created_at and m.requested_due_at is null, 'stamped by the database, due now');
    select * into e from infra.outbox_enqueue('Topic', 'x', due_at => now() - interval '1 day', priority => -9, headers => '{"a":"b"}',
        work_item_id => '11111111-1111-7111-8111-111111111111', message_id => '22222222-2222-7222-8222-222222222222');
    perform pg_temp.expect(e.work_item_id = '11111111-1111-7111-8111-111111111111' and e.message_id = '22222222-2222-7222-8222-222222222222', 'given ids');
    perform pg_temp.expect((select due_at between created_at and clock_timestamp() and requested_due_at < created_at from infra.outbox where id = e.work_item_id), 'a past due time means now');
    select * into e from infra.outbox_enqueue('Topic', 'x', due_in_seconds => 60, expires_in_seconds => 120);
    perform pg_temp.expect((select due_at = created_at + interval '60 s' and requested_due_at = due_at and expires_at = created_at + interval '120 s'
        from infra.outbox where id = e.work_item_id), 'relative times count from the clock of the database');
end $$;

\echo wrong arguments are 22023 and name the argument
do $$
declare
    owner constant text := quote_literal('aaaaaaaa-0000-4000-8000-000000000001');
    nil constant text := quote_literal('00000000-0000-0000-0000-000000000000');
    verb text;
    function text;
    complaint text;
begin
    perform pg_temp.refuses($q$select infra.outbox_enqueue('', 'p')$q$, '22023', 'topic must be 1 to 255');
    perform pg_temp.refuses($q$select infra.outbox_enqueue(null, 'p')$q$, '22023', 'topic');
    perform pg_temp.refuses($q$select infra.outbox_enqueue(repeat('x', 256), 'p')$q$, '22023', 'topic must be 1 to 255 characters, got 256');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', null)$q$, '22023', 'payload');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', repeat('x', 256))$q$, '22023', 'correlation_id');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', idempotency_key => '')$q$, '22023', 'idempotency_key');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', idempotency_key => repeat('x', 256))$q$, '22023', 'idempotency_key');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', ordering_key => '')$q$, '22023', 'ordering_key');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', priority => 10)$q$, '22023', 'priority');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', priority => null)$q$, '22023', 'priority');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', due_at => 'infinity')$q$, '22023', 'due_at');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', expires_at => '-infinity')$q$, '22023', 'expires_at');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', headers => '[1]')$q$, '22023', 'headers');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', due_in_seconds => -1)$q$, '22023', 'due_in_seconds');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', due_at => now(), due_in_seconds => 1)$q$, '22023', 'due_in_seconds');
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', expires_in_seconds => 'NaN')$q$, '22023', 'expires_in_seconds');
    -- One wrong argument is not hidden by another that is fine or absent.
    perform pg_temp.refuses($q$select infra.outbox_enqueue('t', 'p', 'c', now(), 'i', 'o', 0, now(), '"x"')$q$, '22023', 'headers');
    perform infra.outbox_enqueue(repeat('é', 255), 'p', repeat('é', 255), ordering_key => repeat('é', 255), idempotency_key => repeat('é', 255));

    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, null, '{p}')$q$, '22023', 'topics');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t,t}', '{p}')$q$, '22023', 'payloads must have as many');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t,""}', '{p,p}')$q$, '22023', 'topics[2]');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t}', '{null}')$q$, '22023', 'payloads[1]');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t}', '{p}', priorities => '{10}')$q$, '22023', 'priorities[1]');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t}', '{p}', headers => '{nonsense}')$q$, '22023', 'headers');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t}', '{p}', headers => '{1}')$q$, '22023', 'headers[1]');
    perform pg_temp.refuses($q$select infra.outbox_enqueue_many(null, null, '{t}', '{p}', due_in_seconds => '{-1}')$q$, '22023', 'due_in_seconds[1]');

    perform pg_temp.refuses('select infra.outbox_claim(null, 30, 10)', '22023', 'owner');
    perform pg_temp.refuses('select infra.outbox_claim(' || nil || ', 30, 10)', '22023', 'owner');
    perform pg_temp.refuses('select infra.outbox_claim(' || owner || ', 0, 10)', '22023', 'lease_seconds');
    perform pg_temp.refuses('select infra.outbox_claim(' || owner || ', 30, 0)', '22023', 'batch');
    perform pg_temp.refuses('select infra.outbox_claim(' || owner || ', 30, 10, 0)', '22023', 'delivery_limit');
    perform pg_temp.refuses('select infra.outbox_claim(' || owner || ', 30, 10, only_topics => ''{t,null}'')', '22023', 'only_topics must not contain null');
    perform pg_temp.refuses('select infra.outbox_claim(' || owner || ', 30, 10, except_topics => ''{null}'')', '22023', 'except_topics must not contain null');
    perform pg_temp.refuses('select infra.outbox_next_due(''{null}'')', '22023', 'only_topics must not contain null');
    perform pg_temp.refuses('select infra.outbox_next_due(null, ''{null}'')', '22023', 'except_topics must not contain null');
    -- Each speaks for itself, and names the argument.
    foreach verb in array array['ack', 'abandon', 'fail', 'release'] loop
        function := 'infra.outbox_' || verb;
        complaint := 'outbox_' || verb || ': ';
        perform pg_temp.refuses('select ' || function || '(null, ''{}'')', '22023', complaint || 'owner');
        perform pg_temp.refuses('select ' || function || '(' || nil || ', ''{}'')', '22023', complaint || 'owner');
        perform pg_temp.refuses('select ' || function || '(' || owner || ', null)', '22023', complaint || 'ids');
        perform pg_temp.refuses('select ' || function || '(null, null)', '22023', complaint || 'ids');
        perform pg_temp.refuses('select ' || function || '(' || owner || ', array[gen_random_uuid()], ''{1,2}'')', '22023', complaint || 'generations');
    end loop;
    perform pg_temp.refuses('select infra.outbox_abandon(' || owner || ', ''{}'', null, 0)', '22023', 'outbox_abandon: delay_seconds');
    perform pg_temp.refuses('select infra.outbox_release(' || owner || ', ''{}'', null, -1)', '22023', 'outbox_release: delay_seconds');
    perform pg_temp.refuses('select infra.outbox_settle(null, ''{}'', null, ''{}'')', '22023', 'outbox_settle: owner');
    perform pg_temp.refuses('select infra.outbox_settle(' || owner || ', array[gen_random_uuid()], null, ''{9}'')', '22023', 'outcomes');
    perform pg_temp.refuses('select infra.outbox_settle(' || owner || ', array[gen_random_uuid()], null, ''{1}'', ''{0}'')', '22023', 'delays');
    perform pg_temp.refuses('select infra.outbox_renew(' || owner || ', ''{}'', null, 0)', '22023', 'lease_seconds');
    perform pg_temp.refuses('select infra.outbox_reap_expired(0)', '22023', 'max_rows');
    perform pg_temp.refuses('select infra.outbox_purge(-1)', '22023', 'done_older_than_seconds');
    perform pg_temp.refuses('select infra.outbox_purge(null, -1)', '22023', 'failed_older_than_seconds');
    perform pg_temp.refuses('select infra.outbox_cancel(null)', '22023', 'ids');
    perform pg_temp.refuses('select infra.outbox_requeue(null)', '22023', 'ids');
    perform pg_temp.refuses('select infra.outbox_requeue_where(reason => ''x'')', '22023', 'reason');
    perform pg_temp.refuses('select infra.outbox_release_key('''')', '22023', 'ordering_key');
    perform pg_temp.refuses('select infra.outbox_idle(' || nil || ', 10)', '22023', 'consumer');
    perform pg_temp.refuses('select infra.outbox_idle(' || owner || ', 0)', '22023', 'seconds');
    -- The table holds the line for those who write to it directly.
    perform pg_temp.refuses($q$insert into infra.outbox (id, message_id, topic, payload, created_at, due_at)
        values (gen_random_uuid(), gen_random_uuid(), '', 'p', now(), now())$q$, '23514', 'outbox_label_size');
end $$;

\echo a claim needs READ COMMITTED
begin isolation level repeatable read;
select pg_temp.refuses('select infra.outbox_claim(''aaaaaaaa-0000-4000-8000-000000000001'', 30, 1)', '25001', 'READ COMMITTED') \g /dev/null
rollback;

\echo claim, ack
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    b constant uuid := 'bbbbbbbb-0000-4000-8000-000000000002';
    one uuid; two uuid; c record; ids uuid[];
begin
    perform pg_temp.reset();
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 10)), 'nothing ready, nothing claimed');
    one := work_item_id from infra.outbox_enqueue('t', 'first', 'corr', headers => '{"traceparent":"00"}');
    two := work_item_id from infra.outbox_enqueue('t', 'later', due_at => now() + interval '1 hour');
    select * into c from infra.outbox_claim(a, 30, 10);
    perform pg_temp.expect(c.id = one and c.payload = 'first' and c.correlation_id = 'corr' and c.attempt = 1 and c.generation & 65535 = 1, 'claimed, only what is due');
    perform pg_temp.expect((select c.generation / 65536 = seq from infra.outbox where id = one), 'generations count from the number of the row');
    perform pg_temp.expect(c.locked_until = c.claimed_at + interval '30 s' and c.headers = '{"traceparent":"00"}', 'leased from the database clock');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(b, 30, 10)), 'a leased item is not claimed again');
    perform pg_temp.expect((select status = 1 and owner = a and retry_count = 0 from infra.outbox_message where id = one), 'in progress');

    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(a, '{}')), 'no ids, nothing done');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(b, array[one])), 'not by another owner');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(a, array[one], array[0::bigint])), 'not with another generation');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(a, array[two, gen_random_uuid()])), 'not what is not claimed, or unknown');
    ids := array(select infra.outbox_ack(a, array[one, one, null, one], array_fill(c.generation, array[4])));
    perform pg_temp.expect(ids = array[one], 'acked once though named thrice');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(a, array[one])), 'terminal stays terminal');
    perform pg_temp.expect((select status = 2 and is_processed and processed_by = a and processed_at = statement_timestamp() and payload = 'first' and reason is null
        from infra.outbox_message where id = one), 'done');

    perform infra.outbox_enqueue('t', 'p' || i) from generate_series(1, 20) i;
    perform pg_temp.expect((select array_agg(payload order by payload) = array['p1', 'p2', 'p3', 'p4', 'p5'] from infra.outbox_claim(a, 30, 5)), 'oldest first, up to the batch');
    perform pg_temp.expect((select count(*) = 15 from infra.outbox_claim(b, 30, 100)), 'the rest to the next');

    perform pg_temp.reset();
    perform infra.outbox_enqueue(t, t) from unnest(array['x', 'y', 'z']) t;
    perform pg_temp.expect((select array_agg(topic) = '{y}' from infra.outbox_claim(a, 30, 9, only_topics => '{y}')), 'only these topics');
    perform pg_temp.expect((select array_agg(topic) = '{z}' from infra.outbox_claim(a, 30, 9, except_topics => '{x}')), 'all but these topics');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 9, only_topics => '{X}')), 'topics are case-sensitive');

    perform infra.outbox_enqueue('t', 'secret');
    select * into c from infra.outbox_claim(a, 30, 9, only_topics => '{t}');
    perform infra.outbox_settle(a, array[c.id], array[c.generation], '{0}', keep_payload => false);
    perform pg_temp.expect((select status = 2 and payload is null from infra.outbox_message where id = c.id), 'payload dropped when asked');
end $$;

\echo an id is used once
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    ids constant uuid[] := array(select gen_random_uuid() from generate_series(1, 4));
    statuses constant text[] := array['done', 'failed', 'in-progress', 'ready'];
    first bigint; c record;
begin
    perform pg_temp.reset();
    for i in 1 .. 4 loop
        perform infra.outbox_enqueue('t', 'p', work_item_id => ids[i]);
        continue when i = 4;
        select * into c from infra.outbox_claim(a, 30, 1);
        first := coalesce(first, c.generation);
        perform infra.outbox_ack(a, array[c.id]) where i = 1;
        perform infra.outbox_fail(a, array[c.id]) where i = 2;
    end loop;
    for i in 1 .. 4 loop
        perform pg_temp.refuses(format(s, ids[i]), 'MI001', 'outbox_enqueue: work_item_id ' || ids[i] || ' belongs to a work item that is ' || statuses[i])
           from unnest(array[
                'select infra.outbox_enqueue(''t'', ''p'', work_item_id => %L)',
                'select infra.outbox_enqueue(''t'', ''p'', work_item_id => %L, idempotency_key => ''new'')',
                'select infra.outbox_enqueue_many(array[null, %L]::uuid[], null, ''{t,t}'', ''{p,p}'')',
                'select infra.outbox_enqueue_many(array[null, %L]::uuid[], null, ''{t,t}'', ''{p,p}'', new_ids => ''{true,false}'')',
                'select infra.outbox_enqueue_many(array[null, %L]::uuid[], null, ''{t,t}'', ''{p,p}'', idempotency_keys => ''{k,l}'')']) s;
    end loop;
    perform pg_temp.refuses('select infra.outbox_enqueue_many(array_fill(gen_random_uuid(), array[2]), null, ''{t,t}'', ''{p,p}'')', 'MI001', 'is ready');
    perform pg_temp.refuses('select infra.outbox_enqueue_many(null, null, ''{t,t}'', ''{p,p}'', new_ids => ''{true}'')', '22023', 'new_ids must have');
    perform pg_temp.expect((select count(*) = 2 from infra.outbox) and not exists (select from infra.outbox_idempotency), 'nothing was added');

    delete from infra.outbox_history;
    perform infra.outbox_enqueue('t', 'p', work_item_id => ids[1]);
    select * into c from infra.outbox_claim(a, 30, 10) x where x.id = ids[1];
    perform pg_temp.expect(c.generation > first, 'what retention deleted is not known, and its generations do not repeat');
end $$;

\echo abandon: 1, 2, 4 … 60 seconds
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    item uuid; c record; waits integer[] := '{}'; m record;
begin
    perform pg_temp.reset();
    item := work_item_id from infra.outbox_enqueue('t', 'p');
    for i in 1 .. 9 loop
        select * into c from infra.outbox_claim(a, 30, 1, 100);
        perform pg_temp.expect(c.id = item and c.attempt = i and c.generation & 65535 = i, 'delivery ' || i);
        perform pg_temp.expect((select count(*) = 1 from infra.outbox_abandon(a, array[item], array[c.generation], error => case when i = 2 then 'boom' end)), 'abandoned');
        select * into m from infra.outbox_message where id = item;
        perform pg_temp.expect(m.status = 0 and m.owner is null and m.locked_until is null and m.retry_count = i, 'ready, lease gone, retry counted');
        waits := waits || extract(epoch from m.due_at - statement_timestamp())::integer;
        perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 1)), 'not before the delay is over');
        update infra.outbox set due_at = clock_timestamp();
    end loop;
    perform pg_temp.expect(waits = '{1,2,4,8,16,32,60,60,60}', 'backoff was ' || waits::text);
    perform pg_temp.expect(m.last_error = 'boom', 'the last real error is kept');

    select * into c from infra.outbox_claim(a, 30, 1, 100);
    perform infra.outbox_abandon(a, array[item], array[c.generation], 0.25, repeat('é', 3000));
    select * into m from infra.outbox_message where id = item;
    perform pg_temp.expect(m.due_at = statement_timestamp() + interval '0.25 s', 'a given delay wins');
    perform pg_temp.expect(length(m.last_error) = 2048, 'error text is cut');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_abandon(a, array[item])), 'only what is claimed');
end $$;

\echo release does not count
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    item uuid; c record;
begin
    perform pg_temp.reset();
    item := work_item_id from infra.outbox_enqueue('t', 'p');
    for i in 1 .. 20 loop
        select * into c from infra.outbox_claim(a, 30, 1);
        perform pg_temp.expect(c.attempt = 1 and c.generation & 65535 = i, 'released, attempt given back');
        perform infra.outbox_release(a, array[item], array[c.generation]);
    end loop;
    select * into c from infra.outbox_claim(a, 30, 1);
    perform infra.outbox_release(a, array[item], array[c.generation], 60);
    perform pg_temp.expect((select due_at = statement_timestamp() + interval '60 s' and attempts = 0 from infra.outbox where id = item), 'snoozed');
end $$;

\echo mixed outcomes in one call, the first of a repeated id wins
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    i uuid[]; g bigint[]; r uuid[];
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue_many(null, null, '{t,t,t,t}', '{0,1,2,3}');
    select array_agg(id order by payload), array_agg(generation order by payload) into i, g from infra.outbox_claim(a, 30, 4);
    r := array(select infra.outbox_settle(a, i || i, g || g, '{0,1,2,3,1,0,0,0}', '{null,5,null,9,1,null,null,null}', '{null,e1,e2,null,x,x,x,x}'));
    perform pg_temp.expect(cardinality(r) = 4 and r @> i, 'all four, once each');
    perform pg_temp.expect((select array_agg(status || ':' || attempts || ':' || coalesce(last_error, '-') order by payload) = '{2:1:-,0:1:e1,3:1:e2,0:0:-}'
        from infra.outbox_message), 'each in its own way');
end $$;

\echo a worker can fail for a reason other than its handler
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    i uuid[]; g bigint[];
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue_many(null, null, '{t,t,t,t}', '{0,1,2,3}');
    select array_agg(id order by payload), array_agg(generation order by payload) into i, g from infra.outbox_claim(a, 30, 4);
    perform pg_temp.expect((select count(*) = 4 from infra.outbox_settle(a, i, g, '{2,4,5,6}')), 'all four failed');
    perform pg_temp.expect((select array_agg(reason order by payload) = '{handler,delivery-limit,expired,cancelled}' and bool_and(status = 3 and payload is not null)
        from infra.outbox_message), 'each for its reason');
end $$;

\echo fail, and the claim of a worker that lost it
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    b constant uuid := 'bbbbbbbb-0000-4000-8000-000000000002';
    item uuid; c record; d record;
begin
    perform pg_temp.reset();
    item := work_item_id from infra.outbox_enqueue('t', 'p');
    select * into c from infra.outbox_claim(a, 30, 1);
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_fail(b, array[item])), 'not by another owner');
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_fail(a, array[item], array[c.generation], 'no such account')), 'failed');
    perform pg_temp.expect((select status = 3 and reason = 'handler' and last_error = 'no such account' and retry_count = 0 from infra.outbox_message where id = item), 'with its error');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 1)), 'never claimed again');

    -- Lapsed and taken over: the first claim changes nothing any more, not even with the same owner.
    item := work_item_id from infra.outbox_enqueue('t', 'p');
    select * into c from infra.outbox_claim(a, 30, 1);
    update infra.outbox set locked_until = statement_timestamp() where id = item;
    select * into d from infra.outbox_claim(a, 30, 1);
    perform pg_temp.expect(d.id = item and d.attempt = 2 and d.generation = c.generation + 1, 'a lapsed item is claimed without anybody reaping');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(a, array[item], array[c.generation])), 'stale ack');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_abandon(a, array[item], array[c.generation])), 'stale abandon');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_fail(a, array[item], array[c.generation])), 'stale fail');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_renew(a, array[item], array[c.generation])), 'stale renew');
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_ack(a, array[item], array[d.generation])), 'the claim that holds it');
end $$;

\echo renew
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    item uuid; c record;
begin
    perform pg_temp.reset();
    item := work_item_id from infra.outbox_enqueue('t', 'p');
    select * into c from infra.outbox_claim(a, 1, 1);
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_renew(a, array[item, item], array[c.generation, c.generation], 300)), 'renewed');
    perform pg_temp.expect((select locked_until between statement_timestamp() + interval '300 s' and clock_timestamp() + interval '300 s' and generation = c.generation from infra.outbox), 'from now, same claim');
    update infra.outbox set locked_until = statement_timestamp() - interval '1 s';
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_renew(a, array[item], array[c.generation])), 'lapsed, but nobody took it');
    perform infra.outbox_ack(a, array[item]);
    item := work_item_id from infra.outbox_enqueue('t', 'p', ordering_key => 'k');
    select * into c from infra.outbox_claim(a, 1, 1);
    update infra.outbox set locked_until = statement_timestamp() - interval '1 s';
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_renew(a, array[item], array[c.generation])), 'with an ordering key a lapsed claim is lost');
end $$;

\echo reap
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    finished uuid;
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', i::text) from generate_series(1, 5) i;
    finished := (select id from infra.outbox_claim(a, 30, 1));
    perform infra.outbox_ack(a, array[finished]);
    perform infra.outbox_claim(a, 30, 3);
    perform pg_temp.expect(infra.outbox_reap_expired() = 0, 'live leases are left alone');
    update infra.outbox set locked_until = statement_timestamp() - interval '1 s' where status = 1;
    perform pg_temp.expect((select ready = 1 and in_progress = 3 and lapsed = 3 and done = 1 from infra.outbox_stats()), 'lapsed in the stats');
    perform pg_temp.expect(infra.outbox_reap_expired(2) = 2 and infra.outbox_reap_expired(2) = 1, 'in batches');
    perform pg_temp.expect((select count(*) = 4 and bool_and(owner is null and locked_until is null and due_at <= clock_timestamp()) from infra.outbox where status = 0), 'ready at once');
    perform pg_temp.expect((select sum(attempts) = 3 from infra.outbox), 'the lapsed delivery stays counted');
    perform pg_temp.expect((select status = 2 from infra.outbox_message where id = finished), 'done stays done');
end $$;

\echo idempotency
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    one record; two record; r record; given constant uuid := '33333333-3333-7333-8333-333333333333';
begin
    perform pg_temp.reset();
    select * into one from infra.outbox_enqueue('t', 'p', idempotency_key => 'K');
    select * into two from infra.outbox_enqueue('other', 'q', idempotency_key => 'K');
    perform pg_temp.expect((one.work_item_id, one.message_id) = (two.work_item_id, two.message_id), 'same key, same ids');
    perform pg_temp.expect((select count(*) = 1 from infra.outbox), 'nothing added');
    perform pg_temp.expect((select work_item_id <> one.work_item_id from infra.outbox_enqueue('t', 'p', idempotency_key => 'k')), 'keys are case-sensitive');
    perform infra.outbox_claim(a, 30, 10);
    perform infra.outbox_ack(a, array[one.work_item_id]);
    select * into two from infra.outbox_enqueue('t', 'p', idempotency_key => 'K');
    perform pg_temp.expect(two.work_item_id = one.work_item_id, 'also when it is done');
    perform infra.outbox_enqueue('t', 'p', idempotency_key => 'G', work_item_id => given);
    perform pg_temp.expect((select work_item_id = given from infra.outbox_enqueue('t', 'p', idempotency_key => 'G', work_item_id => given))
        and (select count(*) = 1 from infra.outbox where id = given), 'a retry with its own id');

    select array_agg(work_item_id order by ordinal) as ids, array_agg(added order by ordinal) as added into r
      from infra.outbox_enqueue_many(null, null, '{t,t,t,t,t}', '{1,2,3,4,5}', idempotency_keys => '{N,K,N,null,N}');
    perform pg_temp.expect(r.added = '{t,f,f,t,f}', 'keys repeated within a call, known before, and none');
    perform pg_temp.expect(r.ids[1] = r.ids[3] and r.ids[3] = r.ids[5] and r.ids[2] = one.work_item_id, 'and their ids');
    perform pg_temp.expect((select array_agg(payload order by seq) = '{1,4}' from infra.outbox where payload in ('1', '2', '3', '4', '5')), 'the first of a repeated key is added');
    perform pg_temp.expect((select not bool_or(added) from infra.outbox_enqueue_many(array[given], null, '{t}', '{p}', idempotency_keys => '{G}')), 'a retry of many with its own ids');
end $$;

\echo ordering keys
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    b constant uuid := 'bbbbbbbb-0000-4000-8000-000000000002';
    c record; ids uuid[];
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue_many(null, null, '{t,t,t,t,t,t}', '{k1,k2,l1,k3,l2,free}', ordering_keys => '{k,k,l,k,l,null}');
    perform pg_temp.expect((select array_agg(payload order by payload) = '{free,k1,l1}' from infra.outbox_claim(a, 30, 10)), 'one of each key, and what has none');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(b, 30, 10)), 'the rest waits');
    perform pg_temp.expect((select count(*) = 3 from infra.outbox where parked), 'out of the way of claims');
    select * into c from infra.outbox_message where payload = 'k1';
    perform infra.outbox_ack(a, array[c.id], array[c.generation]);
    perform pg_temp.expect((select array_agg(payload) = '{k2}' from infra.outbox_claim(b, 30, 10)), 'the next after an ack');
    -- A retry keeps its place: nothing of the key overtakes it while it waits for its delay.
    select * into c from infra.outbox_message where payload = 'k2';
    perform infra.outbox_abandon(b, array[c.id], array[c.generation]);
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(b, 30, 10)), 'an abandoned one holds its place');
    update infra.outbox set due_at = clock_timestamp() where payload = 'k2';
    perform pg_temp.expect((select array_agg(payload) = '{k2}' from infra.outbox_claim(b, 30, 10)), 'and comes again');
    perform infra.outbox_fail(b, array[c.id], error => 'bad');
    perform pg_temp.expect((select array_agg(payload) = '{k3}' from infra.outbox_claim(b, 30, 10)), 'a failed one is passed over');
    -- Cancelling the first of those that wait lets nothing overtake, and leaves nobody behind.
    perform infra.outbox_enqueue('t', 'l3', ordering_key => 'l');
    perform infra.outbox_claim(b, 30, 10);
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_cancel(array(select id from infra.outbox where payload = 'l2'))), 'cancelled');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(b, 30, 10)), 'l1 is still running');
    perform infra.outbox_ack(a, array(select id from infra.outbox where payload = 'l1'));
    perform pg_temp.expect((select array_agg(payload) = '{l3}' from infra.outbox_claim(b, 30, 10)), 'l3 follows');
    -- A lane in which everything is parked, by someone's hand, is repaired.
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', i::text, ordering_key => 'k') from generate_series(1, 3) i;
    perform infra.outbox_claim(a, 30, 10);
    delete from infra.outbox where status = 1;
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 10)), 'stranded');
    perform infra.outbox_reap_expired();
    perform pg_temp.expect((select array_agg(payload) = '{2}' from infra.outbox_claim(a, 30, 10)), 'reap brings it back');
end $$;

\echo holds
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    broken uuid; c record;
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', 'k' || i, ordering_key => 'k', hold_on_failure => true) from generate_series(1, 3) i;
    broken := (select id from infra.outbox_claim(a, 30, 10));
    perform infra.outbox_fail(a, array[broken], error => 'bad');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 10)), 'a failed one holds the rest');
    perform pg_temp.expect((select held_keys = 1 and ready = 2 and failed = 1 from infra.outbox_stats()), 'and shows');
    perform infra.outbox_reap_expired();
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 10)), 'reap does not release it');
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_requeue(array[broken])), 'requeued');
    perform pg_temp.expect((select held_keys = 0 from infra.outbox_stats()), 'that releases the key');
    select * into c from infra.outbox_claim(a, 30, 10);
    perform pg_temp.expect(c.id = broken and c.attempt = 1 and c.generation & 65535 = 2, 'and it goes first, at its old place, with a new generation');
    perform infra.outbox_fail(a, array[broken]);
    perform pg_temp.expect(infra.outbox_release_key('k') and not infra.outbox_release_key('k'), 'released by hand, once');
    perform pg_temp.expect((select array_agg(payload) = '{k2}' from infra.outbox_claim(a, 30, 10)), 'the rest goes on without it');
    -- Not an operator's decision.
    perform infra.outbox_ack(a, array(select id from infra.outbox where payload = 'k2'));
    perform infra.outbox_cancel(array(select id from infra.outbox where payload = 'k3'));
    perform pg_temp.expect((select held_keys = 0 from infra.outbox_stats()), 'a cancelled one holds nothing');
end $$;

\echo priorities
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    got integer[]; low integer := 0;
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', 'p', priority => p) from generate_series(1, 100) i, unnest(array[-9, 0, 9]) p;
    got := array(select priority from infra.outbox_claim(a, 30, 50));
    perform pg_temp.expect((select count(*) filter (where p = 9) = 40 and count(*) filter (where p = 0) = 5 and count(*) filter (where p = -9) = 5
        from unnest(got) p), 'the highest first, a share for each lower one');
    perform pg_temp.expect(got = array(select p from unnest(got) p order by p desc), 'returned highest first');
    perform infra.outbox_claim(a, 30, 90);
    perform pg_temp.expect((select count(*) = 160 from infra.outbox_claim(a, 30, 1000)), 'what one level leaves goes to the others');

    -- A batch too small to share: the lowest still gets its turn, and the highest most of them.
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', 'p', priority => p) from generate_series(1, 500) i, unnest(array[-1, 0, 1]) p;
    perform setseed(0.5);
    for i in 1 .. 400 loop
        low := low + (select (priority < 1)::integer from infra.outbox_claim(a, 30, 1));
    end loop;
    perform pg_temp.expect(low between 8 and 80, 'one in ten starts at a random level, was ' || low);
end $$;

\echo expiry and delivery limit
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    c record; item uuid;
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', 'stale' || i, expires_at => now() - interval '1 s') from generate_series(1, 30) i;
    perform infra.outbox_enqueue('t', 'good', expires_at => now() + interval '1 hour');
    perform pg_temp.expect((select array_agg(payload) = '{good}' from infra.outbox_claim(a, 30, 10)), 'thirty expired ones do not hide the one that is not');
    perform pg_temp.expect((select count(*) = 30 and bool_and(reason = 'expired' and attempts = 0 and last_error like 'expired at %') from infra.outbox_message where status = 3), 'failed as expired');

    perform pg_temp.reset();
    item := work_item_id from infra.outbox_enqueue('t', 'poison', expires_at => now() + interval '1 hour');
    for i in 1 .. 3 loop
        perform pg_temp.expect((select count(*) = 1 from infra.outbox_claim(a, 30, 1, 3)), 'delivery ' || i);
        -- The process dies: nobody settles.
        update infra.outbox set locked_until = statement_timestamp() - interval '1 s', last_error = case when i = 2 then 'real error' else last_error end;
    end loop;
    select * into c from infra.outbox_take(a, 30, 1, 3);
    perform pg_temp.expect(c.verdict = 3 and c.reason = 'delivery-limit' and c.id = item and c.attempt = 3, 'take tells what it ended');
    perform pg_temp.expect((select status = 3 and reason = 'delivery-limit' and last_error = 'delivery limit of 3 reached; last error: real error' and retry_count = 3
        from infra.outbox_message where id = item), 'failed with a clear reason, the real error kept');

    -- In a lane: what follows gets its turn in the same call, unless the item holds its key.
    perform infra.outbox_enqueue('t', 'k1', ordering_key => 'k', expires_at => now());
    perform infra.outbox_enqueue('t', 'k2', ordering_key => 'k');
    perform pg_temp.expect((select array_agg(payload) = '{k2}' from infra.outbox_claim(a, 30, 10)), 'an expired one is passed over');
    perform infra.outbox_enqueue('t', 'h1', ordering_key => 'h', expires_at => now(), hold_on_failure => true);
    perform infra.outbox_enqueue('t', 'h2', ordering_key => 'h');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 10)), 'or holds its key');
    perform pg_temp.expect(infra.outbox_release_key('h'), 'held');
end $$;

\echo cancel, requeue
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    one uuid; two uuid; c record;
begin
    perform pg_temp.reset();
    one := work_item_id from infra.outbox_enqueue('x', 'one', 'corr');
    perform infra.outbox_claim(a, 30, 1);
    two := work_item_id from infra.outbox_enqueue('y', 'two', expires_at => now() + interval '1 hour');
    perform pg_temp.expect((select array_agg(i) = array[two] from infra.outbox_cancel(array[one, two, two]) i), 'only what is ready');
    perform pg_temp.expect((select status = 3 and reason = 'cancelled' and last_error = 'cancelled' and processed_by is null from infra.outbox_message where id = two), 'failed as cancelled');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_claim(a, 30, 10)), 'never claimed');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_requeue(array[one])), 'only what has failed is requeued');
    perform infra.outbox_fail(a, array[one], error => 'bad');
    update infra.outbox_history set expires_at = statement_timestamp() - interval '1 s' where id = two;
    perform pg_temp.expect((select count(*) = 2 from infra.outbox_requeue(array[one, two, one])), 'both, once');
    perform pg_temp.expect((select bool_and(status = 0 and attempts = 0 and due_at between statement_timestamp() and clock_timestamp() and expires_at is null) from infra.outbox), 'ready, attempts forgotten, past expiry lifted');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_history), 'and not in two places');
    -- The claim from before the requeue has no power over the next.
    perform infra.outbox_claim(a, 30, 10);
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_ack(a, array[one], array[1::bigint])), 'a claim from before the requeue changes nothing');

    perform infra.outbox_fail(a, array[one, two]);
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_requeue_where(topic => 'z')), 'by topic: none');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_requeue_where(reason => 'expired')), 'by reason: none');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_requeue_where(failed_after => now() + interval '1 h')), 'by time: none');
    perform pg_temp.expect((select array_agg(i) = array[one] from infra.outbox_requeue_where(correlation_id => 'corr') i), 'by correlation id');
    perform pg_temp.expect((select array_agg(i) = array[two] from infra.outbox_requeue_where('y', 'handler', now() - interval '1 h', now() + interval '1 h', 10) i), 'by all of them');
end $$;

\echo purge
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', i::text, idempotency_key => 'i' || i) from generate_series(1, 30) i;
    perform infra.outbox_claim(a, 30, 20);
    perform infra.outbox_ack(a, array(select id from infra.outbox where status = 1 order by seq limit 12));
    perform infra.outbox_fail(a, array(select id from infra.outbox where status = 1 order by seq limit 5));
    perform pg_temp.expect(infra.outbox_purge(3600, 3600) = 0, 'nothing is old enough');
    update infra.outbox_history set processed_at = processed_at - interval '2 h';
    perform pg_temp.expect(infra.outbox_purge(3600, null, 10) = 10 and infra.outbox_purge(3600, null, 10) = 2 and infra.outbox_purge(3600) = 0, 'done ones, in batches');
    perform pg_temp.expect((select failed = 5 and done = 0 and in_progress = 3 and ready = 10 from infra.outbox_stats()), 'failed ones are kept, open ones not touched');
    perform pg_temp.expect((select count(*) = 18 from infra.outbox_idempotency), 'their keys are gone, others are not');
    perform infra.outbox_enqueue('t', 'again', idempotency_key => 'i1');
    perform pg_temp.expect((select count(*) = 1 from infra.outbox where payload = 'again'), 'a purged key is new');
    perform pg_temp.expect(infra.outbox_purge(null, 3600) = 5, 'failed ones when told so');
end $$;

\echo stats
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    s record;
begin
    perform pg_temp.reset();
    select * into s from infra.outbox_stats();
    perform pg_temp.expect(s.ready = 0 and s.oldest_ready_age_seconds is null, 'empty');
    perform infra.outbox_enqueue(t, 'p') from unnest(array['x', 'x', 'y']) t;
    perform infra.outbox_enqueue('x', 'p', due_at => now() + interval '1 h');
    perform infra.outbox_claim(a, 30, 1);
    perform infra.outbox_fail(a, array(select id from infra.outbox where status = 1));
    update infra.outbox set due_at = due_at - interval '100 s' where topic = 'y';
    select * into s from infra.outbox_stats();
    perform pg_temp.expect((s.ready, s.scheduled, s.in_progress, s.lapsed, s.done, s.failed) = (2, 1, 0, 0, 0, 1), 'counts');
    perform pg_temp.expect(s.oldest_ready_age_seconds between 99.9 and 101, 'age of the oldest');
    perform pg_temp.expect((select done is null and failed = 1 from infra.outbox_stats(false)), 'without counting the done');
    perform pg_temp.expect((select array_agg(topic || ready || scheduled || failed order by topic) = '{x111,y100}' from infra.outbox_stats_by_topic()), 'by topic');
end $$;

\echo idle
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
begin
    perform pg_temp.reset();
    perform pg_temp.expect(infra.outbox_idle(a, 30) is null, 'nothing in sight');
    perform infra.outbox_enqueue('t', 'p', due_at => now() + interval '40 s');
    perform pg_temp.expect(infra.outbox_idle(a, 30) between 39 and 41, 'a due time');
    perform infra.outbox_enqueue('t', 'p', priority => 5);
    perform pg_temp.expect(infra.outbox_idle(a, 30) = 0, 'now');
    perform infra.outbox_claim(a, 20, 1);
    perform pg_temp.expect(infra.outbox_idle(a, 30) between 19 and 21, 'a lease that may lapse');
    perform pg_temp.expect(infra.outbox_next_due(only_topics => '{u}') is null, 'of its topics');
    perform infra.outbox_busy(a);
    perform pg_temp.expect((select count(*) = 0 from infra.outbox_waiter), 'busy again');
    perform pg_temp.expect(infra.outbox_channel() = 'infra.outbox', 'the channel');
end $$;
select infra.outbox_horizon() as horizon \gset
select pg_temp.expect(infra.outbox_horizon_passed(:horizon), 'alone, the horizon has passed in the next transaction') \g /dev/null
begin;
select infra.outbox_horizon() as horizon \gset
select pg_temp.expect(not infra.outbox_horizon_passed(:horizon + 1), 'a transaction that is open is not passed') \g /dev/null
commit;

\echo ten thousand in one call keep their order
do $$
declare
    n constant integer := 10000;
    r record;
begin
    perform pg_temp.reset();
    select array_agg(e.ordinal) as ordinals, array_agg(e.work_item_id) as ids, bool_and(e.added) as added into r
      from infra.outbox_enqueue_many(null, null, array_fill('t'::text, array[n]), array(select i::text from generate_series(1, n) i)) e;
    perform pg_temp.expect(r.added and r.ordinals = array(select generate_series(1, n)), 'returned in order');
    perform pg_temp.expect((select array_agg(payload::integer order by seq) = array(select generate_series(1, n)) from infra.outbox), 'placed in order');
    perform pg_temp.expect((select array_agg(id order by seq) = r.ids from infra.outbox), 'with the ids returned');
end $$;

\echo a hundred thousand ids in one settle
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    n constant integer := 100000;
    r record;
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue_many(null, null, array_fill('t'::text, array[n]), array_fill(''::text, array[n]));
    select array_agg(id) as ids, array_agg(generation) as generations into r from infra.outbox_claim(a, 300, n);
    perform pg_temp.expect(cardinality(r.ids) = n, 'claimed');
    perform pg_temp.expect((select count(*) = n from infra.outbox_renew(a, r.ids, r.generations, 300)), 'renewed');
    perform pg_temp.expect((select count(*) = n / 2 from infra.outbox_ack(a, r.ids[1:n / 2], r.generations[1:n / 2])), 'half of it acked');
    perform pg_temp.expect((select count(*) = n / 2 from infra.outbox_ack(a, r.ids, r.generations)), 'all named, the other half changed');
    perform pg_temp.expect((select count(*) = 0 from infra.outbox), 'nothing left');
    -- Keyed ones take the longer way.
    perform infra.outbox_enqueue_many(null, null, array_fill('t'::text, array[n / 10]), array_fill(''::text, array[n / 10]),
        ordering_keys => array(select 'k' || i from generate_series(1, n / 10) i));
    select array_agg(id) as ids, array_agg(generation) as generations into r from infra.outbox_claim(a, 300, n);
    perform pg_temp.expect(cardinality(r.ids) = n / 10, 'ten thousand keys at once');
    perform pg_temp.expect((select count(*) = n / 10 from infra.outbox_abandon(a, r.ids, r.generations)), 'abandoned');
end $$;

\echo floors follow what was settled, and new levels are found
select pg_temp.reset() \g /dev/null
set mainstay.floor_pace = '0';
do $$
declare
    a constant uuid := 'aaaaaaaa-0000-4000-8000-000000000001';
    c record;
begin
    for round in 1 .. 20 loop
        perform infra.outbox_enqueue('t', round::text, priority => case when round > 10 then round % 3 else 0 end);
        commit;
        for c in select * from infra.outbox_claim(a, 30, 5) loop
            perform infra.outbox_ack(a, array[c.id]);
        end loop;
        commit;
    end loop;
    perform pg_temp.expect((select count(*) = 0 from infra.outbox), 'all levels are drained');
    perform pg_temp.expect((select f.levels = '{2,1,0}' from infra.outbox_floor f order by f.n desc limit 1), 'all levels are known');
    perform pg_temp.expect(not infra.outbox_sweep(), 'nothing lies below a floor');
end $$;
reset mainstay.floor_pace;

\echo a claim that begins at a hint looks at the rest as well
do $$
declare a uuid := gen_random_uuid(); hint record;
begin
    perform pg_temp.reset();
    perform infra.outbox_enqueue('t', 'head', ordering_key => 'k');
    perform pg_temp.expect((select count(*) = 1 from infra.outbox_claim(gen_random_uuid(), 30, 1)), 'the head of the key is in progress');
    for n in 1 .. 5 loop
        perform infra.outbox_enqueue('t', 'before');
    end loop;
    select o.due_at::timestamptz as due_at, o.seq into hint from infra.outbox o order by o.seq desc limit 1;
    for n in 1 .. 12 loop
        perform infra.outbox_enqueue('t', 'blocked', ordering_key => 'k');
    end loop;
    perform pg_temp.expect((select count(*) = 5 and bool_and(t.payload = 'before')
                              from infra.outbox_take(a, 30, 10, from_due => hint.due_at, from_seq => hint.seq) t), 'what lies before the hint');
    perform pg_temp.reset();
end $$;

select pg_temp.reset() \g /dev/null
\echo outbox.sql: all passed
