-- Joins: several steps, and what is to happen when they have ended.
--
-- SQLite has one writer, so the counters are on the join's own row. Triggers keep them: whatever marks a member counts it, what is
-- counted last ends the join, and the end of a join puts its continuation into the outbox. So all of it is in one transaction, whoever
-- begins it.

CREATE TABLE "{{schema}}_{{joins}}" (
    id             BLOB    NOT NULL PRIMARY KEY,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    deadline_at    INTEGER,
    ended_at       INTEGER,
    expected_steps INTEGER NOT NULL,
    -- How many steps have to complete.
    needed         INTEGER NOT NULL,
    completed      INTEGER NOT NULL DEFAULT 0,
    failed         INTEGER NOT NULL DEFAULT 0,
    -- 0 all, 1 any, 2 quorum, 3 deadline.
    mode           INTEGER NOT NULL DEFAULT 0,
    -- 0 pending, 1 completed, 2 failed, 3 cancelled.
    status         INTEGER NOT NULL DEFAULT 0,
    reason         TEXT,
    grouping_key   TEXT,

    CONSTRAINT id_is_uuid CHECK (typeof(id) = 'blob' AND length(id) = 16),
    CONSTRAINT expected_steps_are_at_least_1 CHECK (typeof(expected_steps) = 'integer' AND expected_steps BETWEEN 1 AND 1000000000),
    CONSTRAINT needed_is_1_to_the_expected_steps CHECK (typeof(needed) = 'integer' AND needed BETWEEN 1 AND expected_steps),
    CONSTRAINT counters_never_exceed_the_expected_steps CHECK (completed >= 0 AND failed >= 0 AND completed + failed <= expected_steps),
    CONSTRAINT grouping_key_is_1_to_255_characters CHECK (grouping_key IS NULL OR (typeof(grouping_key) = 'text' AND length(grouping_key) BETWEEN 1 AND 255 AND instr(grouping_key, char(0)) = 0)),
    CONSTRAINT mode_is_known CHECK (mode IN (0, 1, 2, 3) AND (mode <> 3 OR deadline_at IS NOT NULL)),
    CONSTRAINT end_goes_with_status CHECK (
        status IN (0, 1, 2, 3) AND (status = 0) = (ended_at IS NULL) AND (status = 2) = (reason IS NOT NULL)
        AND (reason IS NULL OR reason IN ('steps', 'deadline')))
) WITHOUT ROWID;

CREATE INDEX "{{schema}}_{{joins}}_grouping" ON "{{schema}}_{{joins}}" (grouping_key, id) WHERE grouping_key IS NOT NULL;
-- Whether there is any join to count for, and whose deadline is next.
CREATE INDEX "{{schema}}_{{joins}}_pending" ON "{{schema}}_{{joins}}" (deadline_at) WHERE status = 0;
-- What retention walks.
CREATE INDEX "{{schema}}_{{joins}}_ended" ON "{{schema}}_{{joins}}" (ended_at) WHERE status <> 0;

CREATE TABLE "{{schema}}_{{joins}}_member" (
    join_id      BLOB    NOT NULL,
    work_item_id BLOB    NOT NULL,
    -- 0 not counted, 1 counted as completed, 2 counted as failed, 3 cancelled with its join.
    state        INTEGER NOT NULL DEFAULT 0,
    updated_at   INTEGER NOT NULL,

    PRIMARY KEY (join_id, work_item_id),
    CONSTRAINT state_is_known CHECK (state IN (0, 1, 2, 3)),
    CONSTRAINT ids_are_uuids CHECK (typeof(join_id) = 'blob' AND length(join_id) = 16 AND typeof(work_item_id) = 'blob' AND length(work_item_id) = 16)
) WITHOUT ROWID;
CREATE INDEX "{{schema}}_{{joins}}_member_item" ON "{{schema}}_{{joins}}_member" (work_item_id);

-- The message that a join puts into the outbox when it ends: outcome 1 completed, 2 failed.
CREATE TABLE "{{schema}}_{{joins}}_continuation" (
    join_id         BLOB    NOT NULL,
    outcome         INTEGER NOT NULL,
    work_item_id    BLOB    NOT NULL,
    message_id      BLOB    NOT NULL,
    topic           TEXT    NOT NULL,
    priority        INTEGER NOT NULL DEFAULT 0,
    hold_on_failure INTEGER NOT NULL DEFAULT 0,
    ordering_key    TEXT,
    correlation_id  TEXT,
    headers         TEXT,
    payload         TEXT    NOT NULL,

    PRIMARY KEY (join_id, outcome),
    CONSTRAINT outcome_is_known CHECK (outcome IN (1, 2)),
    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255)
);

CREATE TRIGGER "{{schema}}_{{joins}}_counted" AFTER UPDATE OF state ON "{{schema}}_{{joins}}_member" WHEN OLD.state = 0 AND NEW.state IN (1, 2)
BEGIN
    UPDATE "{{schema}}_{{joins}}"
       SET completed = completed + (NEW.state = 1), failed = failed + (NEW.state = 2), updated_at = NEW.updated_at
     WHERE id = NEW.join_id AND status = 0;
    UPDATE "{{schema}}_{{joins}}"
       SET status = CASE WHEN mode IN (0, 3) AND failed > 0 OR mode IN (1, 2) AND completed < needed THEN 2 ELSE 1 END,
           reason = CASE WHEN mode IN (0, 3) AND failed > 0 OR mode IN (1, 2) AND completed < needed THEN 'steps' END,
           ended_at = NEW.updated_at
     WHERE id = NEW.join_id AND status = 0
       AND CASE WHEN mode IN (0, 3) THEN completed + failed = expected_steps ELSE completed >= needed OR failed > expected_steps - needed END;
END;

-- What has ended before it became a member is counted at once.
CREATE TRIGGER "{{schema}}_{{joins}}_attached" AFTER INSERT ON "{{schema}}_{{joins}}_member"
WHEN NEW.state = 0 AND EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}_history" WHERE id = NEW.work_item_id)
BEGIN
    UPDATE "{{schema}}_{{joins}}_member"
       SET state = (SELECT h.status - 1 FROM "{{schema}}_{{outbox}}_history" h WHERE h.id = NEW.work_item_id)
     WHERE join_id = NEW.join_id AND work_item_id = NEW.work_item_id
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" WHERE id = NEW.work_item_id)
       AND EXISTS (SELECT 1 FROM "{{schema}}_{{joins}}" WHERE id = NEW.join_id AND status = 0);
END;

-- A continuation whose id another message has (it was a copy of that) gets ids of its own: the end of a join must not fail.
CREATE TRIGGER "{{schema}}_{{joins}}_continued" AFTER UPDATE OF status ON "{{schema}}_{{joins}}" WHEN OLD.status = 0 AND NEW.status IN (1, 2)
BEGIN
    INSERT INTO "{{schema}}_{{outbox}}" (topic, payload, created_at, due_at, priority, ordering_key, hold_on_failure, correlation_id, headers)
    SELECT c.topic, c.payload, NEW.ended_at, NEW.ended_at, c.priority, c.ordering_key, c.hold_on_failure, c.correlation_id, c.headers
      FROM "{{schema}}_{{joins}}_continuation" c WHERE c.join_id = NEW.id AND c.outcome = NEW.status
       AND (EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = c.work_item_id)
            OR EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}_history" h WHERE h.id = c.work_item_id));
    INSERT INTO "{{schema}}_{{outbox}}" (
        id, message_id, topic, payload, created_at, due_at, priority, ordering_key, hold_on_failure, correlation_id, headers)
    SELECT c.work_item_id, c.message_id, c.topic, c.payload, NEW.ended_at, NEW.ended_at, c.priority, c.ordering_key, c.hold_on_failure, c.correlation_id, c.headers
      FROM "{{schema}}_{{joins}}_continuation" c WHERE c.join_id = NEW.id AND c.outcome = NEW.status
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" o WHERE o.id = c.work_item_id)
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}_history" h WHERE h.id = c.work_item_id);
END;
