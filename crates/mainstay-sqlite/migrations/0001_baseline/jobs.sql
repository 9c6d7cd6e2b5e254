-- Jobs: what is to be done by the clock, and a ledger of every run.
--
-- A run is first a row in the queue of job runs, then a message in the outbox, both under the run's own id; the ledger has it under
-- that id from its making until retention. The ledger is not written when a message is claimed or settled: how a run ended is
-- looked up where its message is. So jobs cost the outbox nothing.
--
-- Any language may INSERT name, topic and cron alone: everything else has a default, and a scheduler calculates the next time.

CREATE TABLE "{{schema}}_{{jobs}}" (
    name                   TEXT    NOT NULL PRIMARY KEY,
    topic                  TEXT    NOT NULL,
    cron                   TEXT    NOT NULL,
    time_zone              TEXT    NOT NULL DEFAULT 'UTC',
    enabled                INTEGER NOT NULL DEFAULT 1,
    -- What becomes of late occurrences: 0 skip, 1 once, 2 all (with cap and window).
    misfire                INTEGER NOT NULL DEFAULT 1,
    misfire_cap            INTEGER,
    misfire_window_seconds INTEGER,
    -- What happens while an earlier run is not over: 0 allow, 1 skip, 2 queue.
    overlap                INTEGER NOT NULL DEFAULT 0,
    jitter_seconds         INTEGER NOT NULL DEFAULT 0,
    priority               INTEGER NOT NULL DEFAULT 0,
    -- Grows with every change of the definition.
    version                INTEGER NOT NULL DEFAULT 1,
    created_at             INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    updated_at             INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    -- The occurrence that is looked at next. Null while the job is disabled, and until a scheduler has calculated it.
    next_nominal_at        INTEGER,
    -- The last occurrence that was looked at.
    last_nominal_at        INTEGER,
    -- Why a scheduler can't work with it: expression or zone can't be read. One that can takes it back.
    problem                TEXT,
    payload                TEXT    NOT NULL DEFAULT '',

    CONSTRAINT name_is_1_to_255_characters CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 255 AND instr(name, char(0)) = 0),
    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255 AND instr(topic, char(0)) = 0),
    CONSTRAINT cron_and_time_zone_are_text CHECK (typeof(cron) = 'text' AND length(cron) BETWEEN 1 AND 1000 AND typeof(time_zone) = 'text' AND length(time_zone) BETWEEN 1 AND 255),
    CONSTRAINT payload_is_text CHECK (typeof(payload) = 'text'),
    CONSTRAINT enabled_is_0_or_1 CHECK (enabled IN (0, 1)),
    -- Cap and window belong to the policy "all", and to no other.
    CONSTRAINT misfire_is_skip_once_or_all CHECK (
        (misfire IN (0, 1) AND misfire_cap IS NULL AND misfire_window_seconds IS NULL)
        OR (misfire = 2 AND typeof(misfire_cap) = 'integer' AND misfire_cap BETWEEN 1 AND 1000
            AND typeof(misfire_window_seconds) = 'integer' AND misfire_window_seconds BETWEEN 1 AND 31622400)),
    CONSTRAINT overlap_is_allow_skip_or_queue CHECK (overlap IN (0, 1, 2)),
    CONSTRAINT jitter_is_at_most_a_day CHECK (typeof(jitter_seconds) = 'integer' AND jitter_seconds BETWEEN 0 AND 86400),
    CONSTRAINT priority_is_minus_9_to_9 CHECK (typeof(priority) = 'integer' AND priority BETWEEN -9 AND 9),
    CONSTRAINT times_are_microseconds CHECK (
        typeof(created_at) = 'integer' AND typeof(updated_at) = 'integer'
        AND (next_nominal_at IS NULL OR (typeof(next_nominal_at) = 'integer' AND next_nominal_at BETWEEN -377705023201000000 AND 253402207200000000))
        AND (last_nominal_at IS NULL OR typeof(last_nominal_at) = 'integer'))
);

-- What a scheduler walks. Those without a next nominal time come first: it is to be calculated.
CREATE INDEX "{{schema}}_{{jobs}}_due" ON "{{schema}}_{{jobs}}" (coalesce(next_nominal_at, -400000000000000000), name) WHERE enabled = 1 AND problem IS NULL;
-- Those a scheduler could not read. Another may be able to.
CREATE INDEX "{{schema}}_{{jobs}}_problem" ON "{{schema}}_{{jobs}}" (name) WHERE enabled = 1 AND problem IS NOT NULL;

CREATE TABLE "{{schema}}_{{jobs}}_ledger" (
    id            BLOB    NOT NULL PRIMARY KEY,
    job           TEXT    NOT NULL,
    "trigger"     TEXT    NOT NULL,
    -- The occurrence it is for; of a run that was asked for by hand, when that was.
    nominal_at    INTEGER NOT NULL,
    -- When it may start: the nominal time and the job's jitter.
    due_at        INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    dispatched_at INTEGER,
    started_at    INTEGER,
    ended_at      INTEGER,
    -- How it ended, once that was collected: 1 succeeded, 2 failed, 3 skipped, 4 cancelled.
    outcome       INTEGER,
    attempts      INTEGER NOT NULL DEFAULT 0,
    error         TEXT,
    output        TEXT,

    -- One run per occurrence, however many schedulers there are.
    CONSTRAINT one_run_per_occurrence UNIQUE (job, nominal_at),
    CONSTRAINT id_is_uuid CHECK (typeof(id) = 'blob' AND length(id) = 16),
    CONSTRAINT trigger_is_cron_or_manual CHECK ("trigger" IN ('cron', 'manual')),
    CONSTRAINT an_end_has_a_time CHECK ((outcome IS NULL AND ended_at IS NULL) OR (outcome IN (1, 2, 3, 4) AND ended_at IS NOT NULL))
) WITHOUT ROWID;

-- What is not over: as many as are under way, whatever the history holds.
CREATE INDEX "{{schema}}_{{jobs}}_ledger_open" ON "{{schema}}_{{jobs}}_ledger" (job, id) WHERE outcome IS NULL;
-- What retention walks.
CREATE INDEX "{{schema}}_{{jobs}}_ledger_ended" ON "{{schema}}_{{jobs}}_ledger" (outcome = 2, ended_at) WHERE outcome IS NOT NULL;
-- The newest of all jobs.
CREATE INDEX "{{schema}}_{{jobs}}_ledger_recent" ON "{{schema}}_{{jobs}}_ledger" (nominal_at, id);

-- Where a run stands: by the ledger if that knows its end, else by its message, else by its row in the queue.
CREATE VIEW "{{schema}}_{{jobs}}_run" AS
SELECT l.id, l.job, l."trigger", l.nominal_at, l.due_at,
       CASE WHEN l.outcome = 1 THEN 'succeeded' WHEN l.outcome = 2 THEN 'failed' WHEN l.outcome = 3 THEN 'skipped' WHEN l.outcome = 4 THEN 'cancelled'
            WHEN h.status = 2 THEN 'succeeded'
            WHEN h.status = 3 THEN CASE h.reason WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END
            WHEN o.status = 1 THEN 'running'
            WHEN o.status = 0 THEN 'dispatched'
            WHEN q.status = 1 THEN 'claimed'
            WHEN q.status = 0 THEN 'pending'
            WHEN l.dispatched_at IS NOT NULL THEN 'failed'
            WHEN s.status = 2 THEN 'succeeded'
            WHEN s.reason = 'cancelled' THEN 'cancelled'
            ELSE 'failed' END AS state,
       l.created_at, l.dispatched_at, l.started_at,
       coalesce(l.ended_at, h.processed_at, CASE WHEN l.dispatched_at IS NULL THEN s.processed_at END) AS ended_at,
       coalesce(o.attempts, h.attempts, l.attempts) AS attempts,
       coalesce(l.error, h.last_error, o.last_error, CASE WHEN l.dispatched_at IS NULL THEN s.last_error END) AS error,
       l.output
  FROM "{{schema}}_{{jobs}}_ledger" l
  LEFT JOIN "{{schema}}_{{outbox}}" o ON o.id = CASE WHEN l.outcome IS NULL THEN l.id END
  LEFT JOIN "{{schema}}_{{outbox}}_history" h ON h.id = CASE WHEN l.outcome IS NULL THEN l.id END
  LEFT JOIN "{{schema}}_{{job_runs}}" q ON q.id = CASE WHEN l.outcome IS NULL THEN l.id END
  LEFT JOIN "{{schema}}_{{job_runs}}_history" s ON s.id = CASE WHEN l.outcome IS NULL THEN l.id END;

-- A message leaves the outbox's history when retention deletes it or somebody requeues it (then it is open already); so the ledger has
-- to know. Neither enqueue, claim nor settle ever fires these. instr() and not JSON: headers may be anything.
CREATE TRIGGER "{{schema}}_{{jobs}}_message_gone" AFTER DELETE ON "{{schema}}_{{outbox}}_history" WHEN instr(OLD.headers, '"mainstay-run"') > 0
BEGIN
    UPDATE "{{schema}}_{{jobs}}_ledger"
       SET outcome = CASE WHEN OLD.status = 2 THEN 1 WHEN OLD.reason = 'cancelled' THEN 4 ELSE 2 END, ended_at = OLD.processed_at, attempts = OLD.attempts,
           error = CASE OLD.status WHEN 3 THEN coalesce(OLD.last_error, OLD.reason) END
     WHERE id = OLD.id AND outcome IS NULL AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" WHERE id = OLD.id);
    UPDATE "{{schema}}_{{jobs}}_ledger" SET outcome = NULL, ended_at = NULL, error = NULL, started_at = NULL
     WHERE id = OLD.id AND EXISTS (SELECT 1 FROM "{{schema}}_{{outbox}}" WHERE id = OLD.id);
END;

CREATE TRIGGER "{{schema}}_{{jobs}}_item_gone" AFTER DELETE ON "{{schema}}_{{job_runs}}_history"
BEGIN
    UPDATE "{{schema}}_{{jobs}}_ledger"
       SET outcome = CASE WHEN OLD.status = 2 THEN 1 WHEN OLD.reason = 'cancelled' THEN 4 ELSE 2 END, ended_at = OLD.processed_at,
           error = CASE OLD.status WHEN 3 THEN coalesce(OLD.last_error, OLD.reason) END
     WHERE id = OLD.id AND outcome IS NULL AND dispatched_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM "{{schema}}_{{job_runs}}" WHERE id = OLD.id);
    UPDATE "{{schema}}_{{jobs}}_ledger" SET outcome = NULL, ended_at = NULL, error = NULL, started_at = NULL
     WHERE id = OLD.id AND dispatched_at IS NULL
       AND EXISTS (SELECT 1 FROM "{{schema}}_{{job_runs}}" WHERE id = OLD.id);
END;
