-- Giving dead messages another life, counting them, and forgetting what is settled.

create or replace function "{{schema}}"."{{inbox}}_revive"(sources text[], message_ids text[], actor text default null)
returns table (source text, message_id text)
language plpgsql volatile
set jit = off set enable_seqscan = off
as $mainstay$
#variable_conflict use_column
declare
    asked record;
    dead record;
    revived_sources text[];
    revived_ids text[];
    items jsonb := '[]';
begin
    if sources is null or message_ids is null or cardinality(sources) <> cardinality(message_ids) then
        raise exception using errcode = '22023', message = '{{inbox:literal}}_revive: sources and message_ids must have as many elements';
    end if;
    for asked in
        select distinct u.source, u.id, "{{schema}}"."{{inbox}}_digest"(u.id) as digest from unnest(sources, message_ids) u(source, id)
         where u.source is not null and u.id is not null order by 1, 3
    loop
        select e.work_item_id into dead from "{{schema}}"."{{inbox}}_entry" e where e.source = asked.source and e.digest = asked.digest and e.state = 3;
        continue when not found;
        -- From the queue's history, if it is there: the ledger follows.
        perform "{{schema}}"."{{inbox}}_requeue_items"(array_remove(array[dead.work_item_id], null));
        if not found or dead.work_item_id is null or not exists (select from "{{schema}}"."{{inbox}}" q where q.id = dead.work_item_id) then
            update "{{schema}}"."{{inbox}}_entry" e
               set state = 0, processed_at = null, attempts = 0, owner = null, locked_until = null
             where e.source = asked.source and e.digest = asked.digest and e.state = 3;
            continue when not found;
        end if;
        source := asked.source;
        message_id := asked.id;
        return next;
        revived_sources := revived_sources || asked.source;
        revived_ids := revived_ids || asked.id;
        if cardinality(revived_ids) <= 20 then
            items := items || jsonb_build_object(
                'source', asked.source, 'message_id', asked.id, 'before', jsonb_build_object('state', 'dead'),
                'after', jsonb_build_object('state', 'seen'));
        end if;
    end loop;
    if revived_ids is not null then
        perform "{{schema}}"."{{audit}}_note"(
            'inbox.requeue', actor, jsonb_build_object('count', cardinality(revived_ids), 'items', items),
            array_fill('inbox'::text, array[cardinality(revived_ids)]) || array_fill('source'::text, array[cardinality(revived_ids)]),
            revived_ids || revived_sources);
    end if;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_revive"(text[], text[], text) is
    'Makes dead messages live again with no attempts spent: ready in the queue if they were there, otherwise free for the next caller. Returns those that changed. Recorded in the audit trail as the actor''s.';

create or replace function "{{schema}}"."{{inbox}}_ledger_stats"(
    out seen bigint, out processing bigint, out lapsed bigint, out done bigint, out dead bigint
)
language sql volatile
set jit = off
as $mainstay$
    select count(*) filter (where e.state = 0), count(*) filter (where e.state = 1),
           (select count(*) from "{{schema}}"."{{inbox}}_entry" l where l.state = 1 and l.locked_until <= clock_timestamp()),
           count(*) filter (where e.state = 2), count(*) filter (where e.state = 3)
      from "{{schema}}"."{{inbox}}_entry" e
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_ledger_stats"() is
    'How many messages of the ledger stand where, whether they were enqueued or not. processing counts reservations, and includes those that have lapsed.';

create or replace function "{{schema}}"."{{inbox}}_forget"(
    done_older_than_seconds double precision, dead_older_than_seconds double precision default null, max_rows integer default 1000,
    actor text default null
) returns integer
language plpgsql volatile
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set lock_timeout = '4s'
as $mainstay$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    limits constant double precision[] := array[done_older_than_seconds, dead_older_than_seconds];
    names constant text[] := '{done_older_than_seconds,dead_older_than_seconds}';
    forgotten integer := 0;
    removed integer;
    doomed tid[];
    items uuid[];
begin
    for i in 1 .. 2 loop
        if not (limits[i] >= 0 and limits[i] <= 1e10) then
            raise exception using errcode = '22023',
                message = '{{inbox:literal}}_forget: ' || names[i] || ' must be 0 to 10000000000, or null to remember them, got ' || limits[i];
        end if;
    end loop;
    if max_rows is null or max_rows < 1 then
        raise exception using errcode = '22023', message = '{{inbox:literal}}_forget: max_rows must be 1 or more, got ' || coalesce(max_rows::text, 'null');
    end if;
    -- First the done (state 2), then the dead (state 3). Not what a worker still has, though it was marked.
    for i in 1 .. 2 loop
        continue when limits[i] is null or forgotten >= max_rows;
        doomed := array(select e.ctid from "{{schema}}"."{{inbox}}_entry" e
                         where e.state = i + 1 and e.processed_at <= moment - make_interval(secs => limits[i])
                           and not exists (select from "{{schema}}"."{{inbox}}" q where q.id = e.work_item_id)
                         order by e.processed_at limit max_rows - forgotten for update of e skip locked);
        with gone as (
            delete from "{{schema}}"."{{inbox}}_entry" e where e.ctid = any (doomed) returning e.work_item_id)
        select count(*), array_agg(g.work_item_id) filter (where g.work_item_id is not null) into removed, items from gone g;
        if items is not null then
            delete from "{{schema}}"."{{inbox}}_history" h where h.id = any (items);
        end if;
        forgotten := forgotten + removed;
    end loop;
    if actor is not null and forgotten > 0 then
        perform "{{schema}}"."{{audit}}_note"('inbox.forget', actor, jsonb_build_object(
            'count', forgotten, 'older_than_seconds', floor(limits[1]), 'failed_older_than_seconds', floor(limits[2])));
    end if;
    return forgotten;
end
$mainstay$;
comment on function "{{schema}}"."{{inbox}}_forget"(double precision, double precision, integer, text) is
    'Forgets up to max_rows of the longest settled messages, older than so many seconds, with what the queue has kept of them; null remembers that kind. '
    'A forgotten message that comes again is new. What is not settled is never touched. Call until it returns less than max_rows. With an actor that is recorded in the audit trail.';
