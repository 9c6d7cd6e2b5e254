-- What the migrations and functions make of an empty database, for reading and for comparing versions. Written by a test.
create domain infra.inbox_error as text constraint inbox_error_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 2048)));
create domain infra.inbox_hash as bytea constraint inbox_hash_size CHECK ((octet_length(VALUE) = 32));
create domain infra.inbox_headers as jsonb constraint inbox_headers_object CHECK ((jsonb_typeof(VALUE) = 'object'::text));
create domain infra.inbox_label as text constraint inbox_label_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 255)));
create domain infra.inbox_message_id as text constraint inbox_message_id_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 512)));
create domain infra.inbox_priority as smallint constraint inbox_priority_range CHECK (((VALUE >= '-9'::integer) AND (VALUE <= 9)));
create domain infra.inbox_time as timestamp with time zone constraint inbox_time_finite CHECK (isfinite(VALUE));
create domain infra.job_runs_error as text constraint job_runs_error_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 2048)));
create domain infra.job_runs_headers as jsonb constraint job_runs_headers_object CHECK ((jsonb_typeof(VALUE) = 'object'::text));
create domain infra.job_runs_label as text constraint job_runs_label_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 255)));
create domain infra.job_runs_priority as smallint constraint job_runs_priority_range CHECK (((VALUE >= '-9'::integer) AND (VALUE <= 9)));
create domain infra.job_runs_time as timestamp with time zone constraint job_runs_time_finite CHECK (isfinite(VALUE));
create domain infra.outbox_error as text constraint outbox_error_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 2048)));
create domain infra.outbox_headers as jsonb constraint outbox_headers_object CHECK ((jsonb_typeof(VALUE) = 'object'::text));
create domain infra.outbox_label as text constraint outbox_label_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 255)));
create domain infra.outbox_priority as smallint constraint outbox_priority_range CHECK (((VALUE >= '-9'::integer) AND (VALUE <= 9)));
create domain infra.outbox_time as timestamp with time zone constraint outbox_time_finite CHECK (isfinite(VALUE));
create domain infra.timers_error as text constraint timers_error_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 2048)));
create domain infra.timers_headers as jsonb constraint timers_headers_object CHECK ((jsonb_typeof(VALUE) = 'object'::text));
create domain infra.timers_label as text constraint timers_label_size CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 255)));
create domain infra.timers_priority as smallint constraint timers_priority_range CHECK (((VALUE >= '-9'::integer) AND (VALUE <= 9)));
create domain infra.timers_time as timestamp with time zone constraint timers_time_finite CHECK (isfinite(VALUE));

create table infra.audit (
    recorded_at timestamp with time zone not null default clock_timestamp(),
    outcome smallint not null default 0,
    id uuid not null,
    name text not null,
    actor text not null,
    correlation_id text,
    data json,
    constraint audit_outcome CHECK (((outcome >= 0) AND (outcome <= 2))),
    constraint audit_pkey PRIMARY KEY (id),
    constraint audit_sizes CHECK ((((length(name) >= 1) AND (length(name) <= 255)) AND ((length(actor) >= 1) AND (length(actor) <= 255)) AND ((length(correlation_id) >= 1) AND (length(correlation_id) <= 255)) AND (octet_length((data)::text) <= 16384))),
);
CREATE INDEX audit_actor ON infra.audit USING btree (actor, recorded_at, id);
CREATE INDEX audit_correlation ON infra.audit USING btree (correlation_id, recorded_at, id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX audit_name ON infra.audit USING btree (name, recorded_at, id);
CREATE INDEX audit_recent ON infra.audit USING btree (recorded_at, id);
CREATE INDEX audit_trouble ON infra.audit USING btree (recorded_at, id) WHERE (outcome <> 0);

create table infra.audit_anchor (
    recorded_at timestamp with time zone not null,
    audit_id uuid not null,
    kind text not null,
    value text not null,
    constraint audit_anchor_pkey PRIMARY KEY (audit_id, kind, value),
    constraint audit_anchor_sizes CHECK ((((length(kind) >= 1) AND (length(kind) <= 64)) AND ((length(value) >= 1) AND (length(value) <= 512)))),
);
CREATE INDEX audit_anchor_of ON infra.audit_anchor USING btree (kind, value, recorded_at, audit_id);

create table infra.fanout (
    version bigint not null default 1,
    created_at timestamp with time zone not null default statement_timestamp(),
    updated_at timestamp with time zone not null default statement_timestamp(),
    since_at timestamp with time zone not null default statement_timestamp(),
    last_run_at timestamp with time zone,
    run_requested_at timestamp with time zone,
    every_seconds integer not null default 0,
    jitter_seconds integer not null default 0,
    enabled boolean not null default true,
    topic text not null,
    work_key text not null,
    cron text,
    time_zone text not null default 'UTC'::text,
    declared jsonb not null,
    constraint fanout_cadence CHECK (((cron IS NOT NULL) OR (every_seconds > 0))),
    constraint fanout_colon CHECK ((strpos(topic, ':'::text) = 0)),
    constraint fanout_pkey PRIMARY KEY (topic, work_key),
    constraint fanout_ranges CHECK ((((every_seconds >= 0) AND (every_seconds <= 31622400)) AND ((jitter_seconds >= 0) AND (jitter_seconds <= 86400)))),
    constraint fanout_sizes CHECK ((((length(topic) >= 1) AND (length(topic) <= 100)) AND ((length(work_key) >= 1) AND (length(work_key) <= 100)) AND ((length(cron) >= 1) AND (length(cron) <= 1000)) AND ((length(time_zone) >= 1) AND (length(time_zone) <= 255)))),
    constraint fanout_times CHECK ((isfinite(since_at) AND isfinite(last_run_at) AND isfinite(run_requested_at))),
);

create table infra.fanout_cursor (
    created_at timestamp with time zone not null default statement_timestamp(),
    updated_at timestamp with time zone not null default statement_timestamp(),
    last_completed_at timestamp with time zone,
    slice_due_at timestamp with time zone,
    slice_cursor_at timestamp with time zone,
    slice_id uuid,
    topic text not null,
    work_key text not null,
    shard_key text not null,
    constraint fanout_cursor_pkey PRIMARY KEY (topic, work_key, shard_key),
    constraint fanout_cursor_sizes CHECK ((((length(topic) >= 1) AND (length(topic) <= 100)) AND ((length(work_key) >= 1) AND (length(work_key) <= 100)) AND ((length(shard_key) >= 1) AND (length(shard_key) <= 256)))),
    constraint fanout_cursor_times CHECK ((isfinite(last_completed_at) AND isfinite(slice_due_at) AND isfinite(slice_cursor_at))),
) with (fillfactor=70);

create table infra.inbox (
    seq bigint not null generated always as identity,
    created_at timestamp with time zone not null,
    due_at infra.inbox_time not null,
    requested_due_at infra.inbox_time,
    locked_until timestamp with time zone,
    expires_at infra.inbox_time,
    generation bigint not null default 0,
    attempts integer not null default 0,
    priority infra.inbox_priority not null default 0,
    status smallint not null default 0,
    id uuid not null,
    message_id uuid not null,
    owner uuid,
    hold_on_failure boolean not null default false,
    parked boolean not null default false,
    topic infra.inbox_label not null,
    ordering_key infra.inbox_label,
    idempotency_key infra.inbox_label,
    correlation_id infra.inbox_label,
    last_error infra.inbox_error,
    headers infra.inbox_headers,
    payload text not null,
    constraint inbox_pkey PRIMARY KEY (id),
) with (fillfactor=48, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.05, autovacuum_analyze_threshold=5000, vacuum_truncate=false);
CREATE INDEX inbox_lane ON infra.inbox USING btree (ordering_key, seq) WHERE ((ordering_key IS NOT NULL) AND (NOT parked));
CREATE INDEX inbox_parked ON infra.inbox USING btree (ordering_key, seq) WHERE parked;
CREATE INDEX inbox_ready ON infra.inbox USING btree (priority, due_at, seq) WHERE (NOT parked);

create table infra.inbox_entry (
    first_seen_at timestamp with time zone not null,
    last_seen_at timestamp with time zone not null,
    processed_at timestamp with time zone,
    locked_until timestamp with time zone,
    generation bigint not null default 0,
    attempts integer not null default 0,
    state smallint not null default 0,
    owner uuid,
    work_item_id uuid,
    source infra.inbox_label not null,
    message_id infra.inbox_message_id not null,
    digest bytea not null default sha256((replace((message_id)::text, chr(92), (chr(92) || chr(92))))::bytea),
    hash infra.inbox_hash,
    last_error infra.inbox_error,
    constraint inbox_entry_pkey PRIMARY KEY (source, digest),
) with (fillfactor=80, autovacuum_vacuum_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05);
CREATE INDEX inbox_entry_settled ON infra.inbox_entry USING btree (state, processed_at) WHERE (processed_at IS NOT NULL);
CREATE INDEX inbox_entry_state ON infra.inbox_entry USING btree (state, first_seen_at);
CREATE UNIQUE INDEX inbox_entry_work_item ON infra.inbox_entry USING btree (work_item_id) WHERE (work_item_id IS NOT NULL);

create table infra.inbox_floor (
    n bigint not null,
    noted_at timestamp with time zone not null,
    swept_at timestamp with time zone not null,
    next_xid bigint,
    made_in oid not null,
    quiet smallint not null,
    held_up boolean not null,
    levels smallint[] not null,
    due_ats timestamp with time zone[] not null,
    seqs bigint[] not null,
    next_due_ats timestamp with time zone[] not null,
    next_seqs bigint[] not null,
    constraint inbox_floor_pkey PRIMARY KEY (n),
    constraint inbox_floor_size CHECK ((cardinality(levels) = ALL (ARRAY[cardinality(due_ats), cardinality(seqs), cardinality(next_due_ats), cardinality(next_seqs)]))),
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table infra.inbox_history (
    seq bigint not null,
    created_at timestamp with time zone not null,
    due_at timestamp with time zone not null,
    requested_due_at timestamp with time zone,
    processed_at timestamp with time zone not null,
    expires_at timestamp with time zone,
    generation bigint not null,
    attempts integer not null,
    priority smallint not null,
    status smallint not null,
    id uuid not null,
    message_id uuid not null,
    processed_by uuid,
    hold_on_failure boolean not null,
    topic text not null,
    reason text,
    ordering_key text,
    idempotency_key text,
    correlation_id text,
    last_error text,
    headers jsonb,
    payload text,
    constraint inbox_history_pkey PRIMARY KEY (id, seq),
);
CREATE INDEX inbox_history_settled ON infra.inbox_history USING btree (status, processed_at);

create table infra.inbox_hold (
    ordering_key text not null,
    work_item_id uuid not null,
    held_at timestamp with time zone not null,
    constraint inbox_hold_pkey PRIMARY KEY (ordering_key),
    constraint inbox_hold_size CHECK (((length(ordering_key) >= 1) AND (length(ordering_key) <= 255))),
);

create table infra.inbox_idempotency (
    idempotency_key text not null,
    work_item_id uuid not null,
    message_id uuid not null,
    created_at timestamp with time zone not null,
    constraint inbox_idempotency_pkey PRIMARY KEY (idempotency_key),
    constraint inbox_idempotency_size CHECK (((length(idempotency_key) >= 1) AND (length(idempotency_key) <= 255))),
);

create view infra.inbox_ledger (
    source text,
    message_id text,
    state smallint,
    hash bytea,
    first_seen_at timestamp with time zone,
    last_seen_at timestamp with time zone,
    processed_at timestamp with time zone,
    attempts integer,
    generation bigint,
    owner uuid,
    locked_until timestamp with time zone,
    last_error text,
    work_item_id uuid,
    topic text,
    entry_state smallint,
    digest bytea,
);

create view infra.inbox_message (
    id uuid,
    message_id uuid,
    topic text,
    payload text,
    correlation_id text,
    status smallint,
    is_processed boolean,
    reason text,
    attempts integer,
    retry_count integer,
    created_at timestamp with time zone,
    due_at timestamp with time zone,
    requested_due_at timestamp with time zone,
    expires_at timestamp with time zone,
    priority smallint,
    ordering_key text,
    hold_on_failure boolean,
    idempotency_key text,
    headers jsonb,
    last_error text,
    owner uuid,
    generation bigint,
    locked_until timestamp with time zone,
    processed_at timestamp with time zone,
    processed_by uuid,
    seq bigint,
);

create table infra.inbox_paused (
    topic text not null,
    paused_at timestamp with time zone not null,
    paused_by text not null,
    reason text,
    constraint inbox_paused_pkey PRIMARY KEY (topic),
    constraint inbox_paused_size CHECK ((((length(topic) >= 1) AND (length(topic) <= 255)) AND ((length(paused_by) >= 1) AND (length(paused_by) <= 255)) AND ((length(reason) >= 1) AND (length(reason) <= 255)))),
);

create table infra.inbox_waiter (
    consumer uuid not null,
    until timestamp with time zone not null,
    constraint inbox_waiter_pkey PRIMARY KEY (consumer),
) with (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=100);

create table infra.job_runs (
    seq bigint not null generated always as identity,
    created_at timestamp with time zone not null,
    due_at infra.job_runs_time not null,
    requested_due_at infra.job_runs_time,
    locked_until timestamp with time zone,
    expires_at infra.job_runs_time,
    generation bigint not null default 0,
    attempts integer not null default 0,
    priority infra.job_runs_priority not null default 0,
    status smallint not null default 0,
    id uuid not null,
    message_id uuid not null,
    owner uuid,
    hold_on_failure boolean not null default false,
    parked boolean not null default false,
    topic infra.job_runs_label not null,
    ordering_key infra.job_runs_label,
    idempotency_key infra.job_runs_label,
    correlation_id infra.job_runs_label,
    last_error infra.job_runs_error,
    headers infra.job_runs_headers,
    payload text not null,
    constraint job_runs_pkey PRIMARY KEY (id),
) with (fillfactor=48, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.05, autovacuum_analyze_threshold=5000, vacuum_truncate=false);
CREATE INDEX job_runs_lane ON infra.job_runs USING btree (ordering_key, seq) WHERE ((ordering_key IS NOT NULL) AND (NOT parked));
CREATE INDEX job_runs_parked ON infra.job_runs USING btree (ordering_key, seq) WHERE parked;
CREATE INDEX job_runs_ready ON infra.job_runs USING btree (priority, due_at, seq) WHERE (NOT parked);

create table infra.job_runs_floor (
    n bigint not null,
    noted_at timestamp with time zone not null,
    swept_at timestamp with time zone not null,
    next_xid bigint,
    made_in oid not null,
    quiet smallint not null,
    held_up boolean not null,
    levels smallint[] not null,
    due_ats timestamp with time zone[] not null,
    seqs bigint[] not null,
    next_due_ats timestamp with time zone[] not null,
    next_seqs bigint[] not null,
    constraint job_runs_floor_pkey PRIMARY KEY (n),
    constraint job_runs_floor_size CHECK ((cardinality(levels) = ALL (ARRAY[cardinality(due_ats), cardinality(seqs), cardinality(next_due_ats), cardinality(next_seqs)]))),
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table infra.job_runs_history (
    seq bigint not null,
    created_at timestamp with time zone not null,
    due_at timestamp with time zone not null,
    requested_due_at timestamp with time zone,
    processed_at timestamp with time zone not null,
    expires_at timestamp with time zone,
    generation bigint not null,
    attempts integer not null,
    priority smallint not null,
    status smallint not null,
    id uuid not null,
    message_id uuid not null,
    processed_by uuid,
    hold_on_failure boolean not null,
    topic text not null,
    reason text,
    ordering_key text,
    idempotency_key text,
    correlation_id text,
    last_error text,
    headers jsonb,
    payload text,
    constraint job_runs_history_pkey PRIMARY KEY (id, seq),
);
CREATE INDEX job_runs_history_settled ON infra.job_runs_history USING btree (status, processed_at);

create table infra.job_runs_hold (
    ordering_key text not null,
    work_item_id uuid not null,
    held_at timestamp with time zone not null,
    constraint job_runs_hold_pkey PRIMARY KEY (ordering_key),
    constraint job_runs_hold_size CHECK (((length(ordering_key) >= 1) AND (length(ordering_key) <= 255))),
);

create table infra.job_runs_idempotency (
    idempotency_key text not null,
    work_item_id uuid not null,
    message_id uuid not null,
    created_at timestamp with time zone not null,
    constraint job_runs_idempotency_pkey PRIMARY KEY (idempotency_key),
    constraint job_runs_idempotency_size CHECK (((length(idempotency_key) >= 1) AND (length(idempotency_key) <= 255))),
);

create view infra.job_runs_message (
    id uuid,
    message_id uuid,
    topic text,
    payload text,
    correlation_id text,
    status smallint,
    is_processed boolean,
    reason text,
    attempts integer,
    retry_count integer,
    created_at timestamp with time zone,
    due_at timestamp with time zone,
    requested_due_at timestamp with time zone,
    expires_at timestamp with time zone,
    priority smallint,
    ordering_key text,
    hold_on_failure boolean,
    idempotency_key text,
    headers jsonb,
    last_error text,
    owner uuid,
    generation bigint,
    locked_until timestamp with time zone,
    processed_at timestamp with time zone,
    processed_by uuid,
    seq bigint,
);

create table infra.job_runs_paused (
    topic text not null,
    paused_at timestamp with time zone not null,
    paused_by text not null,
    reason text,
    constraint job_runs_paused_pkey PRIMARY KEY (topic),
    constraint job_runs_paused_size CHECK ((((length(topic) >= 1) AND (length(topic) <= 255)) AND ((length(paused_by) >= 1) AND (length(paused_by) <= 255)) AND ((length(reason) >= 1) AND (length(reason) <= 255)))),
);

create table infra.job_runs_waiter (
    consumer uuid not null,
    until timestamp with time zone not null,
    constraint job_runs_waiter_pkey PRIMARY KEY (consumer),
) with (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=100);

create table infra.jobs (
    version bigint not null default 1,
    created_at timestamp with time zone not null default statement_timestamp(),
    updated_at timestamp with time zone not null default statement_timestamp(),
    next_nominal_at timestamp with time zone,
    last_nominal_at timestamp with time zone,
    misfire_window_seconds integer,
    misfire_cap integer,
    jitter_seconds integer not null default 0,
    misfire smallint not null default 1,
    overlap smallint not null default 0,
    priority smallint not null default 0,
    enabled boolean not null default true,
    name text not null,
    topic text not null,
    cron text not null,
    time_zone text not null default 'UTC'::text,
    problem text,
    payload text not null default ''::text,
    constraint jobs_misfire CHECK ((((misfire = ANY (ARRAY[0, 1])) AND (misfire_cap IS NULL) AND (misfire_window_seconds IS NULL)) OR ((misfire = 2) AND ((misfire_cap >= 1) AND (misfire_cap <= 1000)) AND ((misfire_window_seconds >= 1) AND (misfire_window_seconds <= 31622400))))),
    constraint jobs_pkey PRIMARY KEY (name),
    constraint jobs_ranges CHECK ((((priority >= '-9'::integer) AND (priority <= 9)) AND ((jitter_seconds >= 0) AND (jitter_seconds <= 86400)) AND ((overlap >= 0) AND (overlap <= 2)))),
    constraint jobs_sizes CHECK ((((length(name) >= 1) AND (length(name) <= 255)) AND ((length(topic) >= 1) AND (length(topic) <= 255)) AND ((length(cron) >= 1) AND (length(cron) <= 1000)) AND ((length(time_zone) >= 1) AND (length(time_zone) <= 255)) AND ((length(problem) >= 1) AND (length(problem) <= 2048)))),
    constraint jobs_times CHECK ((isfinite(next_nominal_at) AND isfinite(last_nominal_at))),
);
CREATE INDEX jobs_due ON infra.jobs USING btree (COALESCE(next_nominal_at, '-infinity'::timestamp with time zone), name) WHERE (enabled AND (problem IS NULL));
CREATE INDEX jobs_problem ON infra.jobs USING btree (name) WHERE (enabled AND (problem IS NOT NULL));

create table infra.jobs_ledger (
    nominal_at timestamp with time zone not null,
    due_at timestamp with time zone not null,
    created_at timestamp with time zone not null,
    dispatched_at timestamp with time zone,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    attempts integer not null default 0,
    outcome smallint,
    id uuid not null,
    job text not null,
    trigger text not null,
    error text,
    output text,
    constraint jobs_ledger_once UNIQUE (job, nominal_at),
    constraint jobs_ledger_outcome CHECK ((((outcome >= 1) AND (outcome <= 4)) AND (num_nulls(outcome, ended_at) = ANY (ARRAY[0, 2])))),
    constraint jobs_ledger_pkey PRIMARY KEY (id),
    constraint jobs_ledger_sizes CHECK ((((length(job) >= 1) AND (length(job) <= 255)) AND ((length(error) >= 1) AND (length(error) <= 2048)) AND (octet_length(output) <= 65536))),
    constraint jobs_ledger_trigger CHECK ((trigger = ANY (ARRAY['cron'::text, 'manual'::text]))),
) with (fillfactor=70);
CREATE INDEX jobs_ledger_ended ON infra.jobs_ledger USING btree (((outcome = 2)), ended_at) WHERE (outcome IS NOT NULL);
CREATE INDEX jobs_ledger_open ON infra.jobs_ledger USING btree (job, id) WHERE (outcome IS NULL);
CREATE INDEX jobs_ledger_recent ON infra.jobs_ledger USING btree (nominal_at, id);

create view infra.jobs_run (
    id uuid,
    job text,
    trigger text,
    nominal_at timestamp with time zone,
    due_at timestamp with time zone,
    state text,
    created_at timestamp with time zone,
    dispatched_at timestamp with time zone,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    duration_seconds double precision,
    attempts integer,
    error text,
    output text,
);

create table infra.joins (
    created_at timestamp with time zone not null default statement_timestamp(),
    updated_at timestamp with time zone not null default statement_timestamp(),
    deadline_at timestamp with time zone,
    ended_at timestamp with time zone,
    id uuid not null,
    expected_steps integer not null,
    needed integer not null,
    mode smallint not null default 0,
    status smallint not null default 0,
    reason text,
    grouping_key text,
    constraint joins_end CHECK ((((status = 0) = (ended_at IS NULL)) AND ((status = 2) = (reason IS NOT NULL)) AND (reason = ANY (ARRAY['steps'::text, 'deadline'::text])))),
    constraint joins_pkey PRIMARY KEY (id),
    constraint joins_ranges CHECK ((((expected_steps >= 1) AND (expected_steps <= 1000000000)) AND ((needed >= 1) AND (needed <= expected_steps)) AND ((mode >= 0) AND (mode <= 3)) AND ((status >= 0) AND (status <= 3)))),
    constraint joins_sizes CHECK (((length(grouping_key) >= 1) AND (length(grouping_key) <= 255))),
    constraint joins_times CHECK ((isfinite(deadline_at) AND ((mode <> 3) OR (deadline_at IS NOT NULL)))),
) with (fillfactor=80);
CREATE INDEX joins_ended ON infra.joins USING btree (ended_at) WHERE (status <> 0);
CREATE INDEX joins_grouping ON infra.joins USING btree (grouping_key, id) WHERE (grouping_key IS NOT NULL);
CREATE INDEX joins_pending ON infra.joins USING btree (deadline_at) WHERE (status = 0);

create table infra.joins_continuation (
    join_id uuid not null,
    work_item_id uuid not null,
    message_id uuid not null,
    outcome smallint not null,
    priority smallint not null default 0,
    hold_on_failure boolean not null default false,
    topic text not null,
    ordering_key text,
    correlation_id text,
    headers jsonb,
    payload text not null,
    constraint joins_continuation_headers CHECK ((jsonb_typeof(headers) = 'object'::text)),
    constraint joins_continuation_pkey PRIMARY KEY (join_id, outcome),
    constraint joins_continuation_ranges CHECK (((outcome = ANY (ARRAY[1, 2])) AND ((priority >= '-9'::integer) AND (priority <= 9)))),
    constraint joins_continuation_sizes CHECK ((((length(topic) >= 1) AND (length(topic) <= 255)) AND ((length(ordering_key) >= 1) AND (length(ordering_key) <= 255)) AND ((length(correlation_id) >= 1) AND (length(correlation_id) <= 255)))),
);

create table infra.joins_member (
    updated_at timestamp with time zone not null default statement_timestamp(),
    join_id uuid not null,
    work_item_id uuid not null,
    state smallint not null default 0,
    constraint joins_member_pkey PRIMARY KEY (join_id, work_item_id),
    constraint joins_member_ranges CHECK (((state >= 0) AND (state <= 3))),
) with (fillfactor=70);
CREATE INDEX joins_member_item ON infra.joins_member USING btree (work_item_id);

create view infra.joins_progress (
    id uuid,
    grouping_key text,
    mode smallint,
    expected_steps integer,
    needed integer,
    completed integer,
    failed integer,
    status smallint,
    reason text,
    deadline_at timestamp with time zone,
    created_at timestamp with time zone,
    updated_at timestamp with time zone,
    ended_at timestamp with time zone,
);

create table infra.joins_slot (
    updated_at timestamp with time zone,
    join_id uuid not null,
    left_over integer not null,
    completed integer not null default 0,
    failed integer not null default 0,
    pool smallint not null,
    slot smallint not null,
    constraint joins_slot_pkey PRIMARY KEY (join_id, pool, slot),
    constraint joins_slot_ranges CHECK (((left_over >= 0) AND (completed >= 0) AND (failed >= 0))),
) with (fillfactor=30);

create table infra.lease (
    epoch bigint not null,
    fencing_token bigint not null,
    acquired_at timestamp with time zone not null,
    renewed_at timestamp with time zone not null,
    expires_at timestamp with time zone not null,
    name text not null,
    owner text,
    context text,
    constraint lease_context CHECK (((length(context) >= 1) AND (length(context) <= 4096))),
    constraint lease_name CHECK (((length(name) >= 1) AND (length(name) <= 255))),
    constraint lease_numbers CHECK (((epoch >= 1) AND (fencing_token >= epoch))),
    constraint lease_owner CHECK (((length(owner) >= 1) AND (length(owner) <= 255))),
    constraint lease_pkey PRIMARY KEY (name),
    constraint lease_times CHECK ((isfinite(acquired_at) AND isfinite(renewed_at) AND isfinite(expires_at))),
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=1000);

create table infra.lease_floor (
    server bigint not null,
    height bigint not null,
    timeline integer not null,
    only_row boolean not null default true,
    constraint lease_floor_height CHECK (((height >= '-1'::integer) AND (height <= 1048575))),
    constraint lease_floor_only_row CHECK (only_row),
    constraint lease_floor_pkey PRIMARY KEY (only_row),
);

create table infra.mainstay_migration (
    outbox text not null,
    version integer not null,
    name text not null,
    checksum text not null,
    oldest_program integer not null,
    applied_at timestamp with time zone not null,
    constraint mainstay_migration_pkey PRIMARY KEY (outbox, version),
);

create table infra.operations (
    started_at timestamp with time zone not null default clock_timestamp(),
    updated_at timestamp with time zone not null default clock_timestamp(),
    ended_at timestamp with time zone,
    done bigint,
    total bigint,
    events bigint not null default 0,
    id uuid not null,
    parent_id uuid,
    state smallint not null default 0,
    name text not null,
    actor text not null,
    correlation_id text,
    message text,
    error text,
    constraint operations_counts CHECK (((done >= 0) AND (total >= 0) AND (events >= 0))),
    constraint operations_end CHECK (((state = 0) = (ended_at IS NULL))),
    constraint operations_pkey PRIMARY KEY (id),
    constraint operations_sizes CHECK ((((length(name) >= 1) AND (length(name) <= 255)) AND ((length(actor) >= 1) AND (length(actor) <= 255)) AND ((length(correlation_id) >= 1) AND (length(correlation_id) <= 255)) AND (length(message) <= 2048) AND (length(error) <= 2048))),
    constraint operations_state CHECK (((state >= 0) AND (state <= 4))),
) with (fillfactor=80);
CREATE INDEX operations_alive ON infra.operations USING btree (updated_at, id) WHERE (state = 0);
CREATE INDEX operations_by_state ON infra.operations USING btree (state, started_at, id);
CREATE INDEX operations_correlation ON infra.operations USING btree (correlation_id, started_at, id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX operations_ended ON infra.operations USING btree (ended_at, id) WHERE (ended_at IS NOT NULL);
CREATE INDEX operations_name ON infra.operations USING btree (name, started_at, id);
CREATE INDEX operations_parent ON infra.operations USING btree (parent_id, started_at, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX operations_recent ON infra.operations USING btree (started_at, id);

create table infra.operations_event (
    recorded_at timestamp with time zone not null default clock_timestamp(),
    seq bigint not null,
    operation_id uuid not null,
    kind text not null,
    message text,
    data json,
    constraint operations_event_pkey PRIMARY KEY (operation_id, seq),
    constraint operations_event_sizes CHECK ((((length(kind) >= 1) AND (length(kind) <= 64)) AND (length(message) <= 2048) AND (octet_length((data)::text) <= 16384))),
);

create table infra.operations_tag (
    started_at timestamp with time zone not null,
    operation_id uuid not null,
    key text not null,
    value text not null,
    constraint operations_tag_pkey PRIMARY KEY (operation_id, key),
    constraint operations_tag_sizes CHECK ((((length(key) >= 1) AND (length(key) <= 64)) AND ((length(value) >= 1) AND (length(value) <= 255)))),
);
CREATE INDEX operations_tag_of ON infra.operations_tag USING btree (key, value, started_at, operation_id);

create table infra.outbox (
    seq bigint not null generated always as identity,
    created_at timestamp with time zone not null,
    due_at infra.outbox_time not null,
    requested_due_at infra.outbox_time,
    locked_until timestamp with time zone,
    expires_at infra.outbox_time,
    generation bigint not null default 0,
    attempts integer not null default 0,
    priority infra.outbox_priority not null default 0,
    status smallint not null default 0,
    id uuid not null,
    message_id uuid not null,
    owner uuid,
    hold_on_failure boolean not null default false,
    parked boolean not null default false,
    topic infra.outbox_label not null,
    ordering_key infra.outbox_label,
    idempotency_key infra.outbox_label,
    correlation_id infra.outbox_label,
    last_error infra.outbox_error,
    headers infra.outbox_headers,
    payload text not null,
    constraint outbox_pkey PRIMARY KEY (id),
) with (fillfactor=48, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.05, autovacuum_analyze_threshold=5000, vacuum_truncate=false);
CREATE INDEX outbox_lane ON infra.outbox USING btree (ordering_key, seq) WHERE ((ordering_key IS NOT NULL) AND (NOT parked));
CREATE INDEX outbox_parked ON infra.outbox USING btree (ordering_key, seq) WHERE parked;
CREATE INDEX outbox_ready ON infra.outbox USING btree (priority, due_at, seq) WHERE (NOT parked);

create table infra.outbox_floor (
    n bigint not null,
    noted_at timestamp with time zone not null,
    swept_at timestamp with time zone not null,
    next_xid bigint,
    made_in oid not null,
    quiet smallint not null,
    held_up boolean not null,
    levels smallint[] not null,
    due_ats timestamp with time zone[] not null,
    seqs bigint[] not null,
    next_due_ats timestamp with time zone[] not null,
    next_seqs bigint[] not null,
    constraint outbox_floor_pkey PRIMARY KEY (n),
    constraint outbox_floor_size CHECK ((cardinality(levels) = ALL (ARRAY[cardinality(due_ats), cardinality(seqs), cardinality(next_due_ats), cardinality(next_seqs)]))),
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table infra.outbox_history (
    seq bigint not null,
    created_at timestamp with time zone not null,
    due_at timestamp with time zone not null,
    requested_due_at timestamp with time zone,
    processed_at timestamp with time zone not null,
    expires_at timestamp with time zone,
    generation bigint not null,
    attempts integer not null,
    priority smallint not null,
    status smallint not null,
    id uuid not null,
    message_id uuid not null,
    processed_by uuid,
    hold_on_failure boolean not null,
    topic text not null,
    reason text,
    ordering_key text,
    idempotency_key text,
    correlation_id text,
    last_error text,
    headers jsonb,
    payload text,
    constraint outbox_history_pkey PRIMARY KEY (id, seq),
);
CREATE INDEX outbox_history_settled ON infra.outbox_history USING btree (status, processed_at);

create table infra.outbox_hold (
    ordering_key text not null,
    work_item_id uuid not null,
    held_at timestamp with time zone not null,
    constraint outbox_hold_pkey PRIMARY KEY (ordering_key),
    constraint outbox_hold_size CHECK (((length(ordering_key) >= 1) AND (length(ordering_key) <= 255))),
);

create table infra.outbox_idempotency (
    idempotency_key text not null,
    work_item_id uuid not null,
    message_id uuid not null,
    created_at timestamp with time zone not null,
    constraint outbox_idempotency_pkey PRIMARY KEY (idempotency_key),
    constraint outbox_idempotency_size CHECK (((length(idempotency_key) >= 1) AND (length(idempotency_key) <= 255))),
);

create view infra.outbox_message (
    id uuid,
    message_id uuid,
    topic text,
    payload text,
    correlation_id text,
    status smallint,
    is_processed boolean,
    reason text,
    attempts integer,
    retry_count integer,
    created_at timestamp with time zone,
    due_at timestamp with time zone,
    requested_due_at timestamp with time zone,
    expires_at timestamp with time zone,
    priority smallint,
    ordering_key text,
    hold_on_failure boolean,
    idempotency_key text,
    headers jsonb,
    last_error text,
    owner uuid,
    generation bigint,
    locked_until timestamp with time zone,
    processed_at timestamp with time zone,
    processed_by uuid,
    seq bigint,
);

create table infra.outbox_paused (
    topic text not null,
    paused_at timestamp with time zone not null,
    paused_by text not null,
    reason text,
    constraint outbox_paused_pkey PRIMARY KEY (topic),
    constraint outbox_paused_size CHECK ((((length(topic) >= 1) AND (length(topic) <= 255)) AND ((length(paused_by) >= 1) AND (length(paused_by) <= 255)) AND ((length(reason) >= 1) AND (length(reason) <= 255)))),
);

create view infra.outbox_schema (
    version integer,
    oldest_program integer,
    applied_at timestamp with time zone,
);

create table infra.outbox_waiter (
    consumer uuid not null,
    until timestamp with time zone not null,
    constraint outbox_waiter_pkey PRIMARY KEY (consumer),
) with (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=100);

create table infra.timers (
    seq bigint not null generated always as identity,
    created_at timestamp with time zone not null,
    due_at infra.timers_time not null,
    requested_due_at infra.timers_time,
    locked_until timestamp with time zone,
    expires_at infra.timers_time,
    generation bigint not null default 0,
    attempts integer not null default 0,
    priority infra.timers_priority not null default 0,
    status smallint not null default 0,
    id uuid not null,
    message_id uuid not null,
    owner uuid,
    hold_on_failure boolean not null default false,
    parked boolean not null default false,
    topic infra.timers_label not null,
    ordering_key infra.timers_label,
    idempotency_key infra.timers_label,
    correlation_id infra.timers_label,
    last_error infra.timers_error,
    headers infra.timers_headers,
    payload text not null,
    constraint timers_pkey PRIMARY KEY (id),
) with (fillfactor=48, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.05, autovacuum_analyze_threshold=5000, vacuum_truncate=false);
CREATE INDEX timers_lane ON infra.timers USING btree (ordering_key, seq) WHERE ((ordering_key IS NOT NULL) AND (NOT parked));
CREATE INDEX timers_parked ON infra.timers USING btree (ordering_key, seq) WHERE parked;
CREATE INDEX timers_ready ON infra.timers USING btree (priority, due_at, seq) WHERE (NOT parked);

create table infra.timers_floor (
    n bigint not null,
    noted_at timestamp with time zone not null,
    swept_at timestamp with time zone not null,
    next_xid bigint,
    made_in oid not null,
    quiet smallint not null,
    held_up boolean not null,
    levels smallint[] not null,
    due_ats timestamp with time zone[] not null,
    seqs bigint[] not null,
    next_due_ats timestamp with time zone[] not null,
    next_seqs bigint[] not null,
    constraint timers_floor_pkey PRIMARY KEY (n),
    constraint timers_floor_size CHECK ((cardinality(levels) = ALL (ARRAY[cardinality(due_ats), cardinality(seqs), cardinality(next_due_ats), cardinality(next_seqs)]))),
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table infra.timers_history (
    seq bigint not null,
    created_at timestamp with time zone not null,
    due_at timestamp with time zone not null,
    requested_due_at timestamp with time zone,
    processed_at timestamp with time zone not null,
    expires_at timestamp with time zone,
    generation bigint not null,
    attempts integer not null,
    priority smallint not null,
    status smallint not null,
    id uuid not null,
    message_id uuid not null,
    processed_by uuid,
    hold_on_failure boolean not null,
    topic text not null,
    reason text,
    ordering_key text,
    idempotency_key text,
    correlation_id text,
    last_error text,
    headers jsonb,
    payload text,
    constraint timers_history_pkey PRIMARY KEY (id, seq),
);
CREATE INDEX timers_history_settled ON infra.timers_history USING btree (status, processed_at);

create table infra.timers_hold (
    ordering_key text not null,
    work_item_id uuid not null,
    held_at timestamp with time zone not null,
    constraint timers_hold_pkey PRIMARY KEY (ordering_key),
    constraint timers_hold_size CHECK (((length(ordering_key) >= 1) AND (length(ordering_key) <= 255))),
);

create table infra.timers_idempotency (
    idempotency_key text not null,
    work_item_id uuid not null,
    message_id uuid not null,
    created_at timestamp with time zone not null,
    constraint timers_idempotency_pkey PRIMARY KEY (idempotency_key),
    constraint timers_idempotency_size CHECK (((length(idempotency_key) >= 1) AND (length(idempotency_key) <= 255))),
);

create view infra.timers_message (
    id uuid,
    message_id uuid,
    topic text,
    payload text,
    correlation_id text,
    status smallint,
    is_processed boolean,
    reason text,
    attempts integer,
    retry_count integer,
    created_at timestamp with time zone,
    due_at timestamp with time zone,
    requested_due_at timestamp with time zone,
    expires_at timestamp with time zone,
    priority smallint,
    ordering_key text,
    hold_on_failure boolean,
    idempotency_key text,
    headers jsonb,
    last_error text,
    owner uuid,
    generation bigint,
    locked_until timestamp with time zone,
    processed_at timestamp with time zone,
    processed_by uuid,
    seq bigint,
);

create table infra.timers_paused (
    topic text not null,
    paused_at timestamp with time zone not null,
    paused_by text not null,
    reason text,
    constraint timers_paused_pkey PRIMARY KEY (topic),
    constraint timers_paused_size CHECK ((((length(topic) >= 1) AND (length(topic) <= 255)) AND ((length(paused_by) >= 1) AND (length(paused_by) <= 255)) AND ((length(reason) >= 1) AND (length(reason) <= 255)))),
);

create table infra.timers_waiter (
    consumer uuid not null,
    until timestamp with time zone not null,
    constraint timers_waiter_pkey PRIMARY KEY (consumer),
) with (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=100);

create function infra.audit_as(actor text,
        correlation_id text DEFAULT NULL::text)
    returns text language plpgsql volatile;

create function infra.audit_keep()
    returns trigger language plpgsql volatile;

create function infra.audit_note(name text,
        actor text,
        data jsonb,
        anchor_kinds text[] DEFAULT '{}'::text[],
        anchor_values text[] DEFAULT '{}'::text[])
    returns void language plpgsql volatile;

create function infra.audit_purge(older_than_seconds double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set mainstay.purges_audit=on set lock_timeout=4s;

create function infra.audit_write(name text,
        actor text DEFAULT NULL::text,
        outcome text DEFAULT 'succeeded'::text,
        correlation_id text DEFAULT NULL::text,
        data json DEFAULT NULL::json,
        anchor_kinds text[] DEFAULT '{}'::text[],
        anchor_values text[] DEFAULT '{}'::text[],
        id uuid DEFAULT NULL::uuid)
    returns uuid language plpgsql volatile;

create function infra.fanout_add_cursors(topic text,
        work_key text,
        shards text[])
    returns text[] language plpgsql volatile;

create function infra.fanout_add_shards(topic text,
        work_key text,
        shards text[],
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set lock_timeout=4s;

create function infra.fanout_channel()
    returns text language sql immutable;

create function infra.fanout_claim(topic text,
        work_key text,
        version bigint,
        plan jsonb)
    returns SETOF text language plpgsql volatile
    set lock_timeout=4s;

create function infra.fanout_complete(topic text,
        work_key text,
        shard_key text,
        at timestamp with time zone)
    returns boolean language plpgsql volatile
    set lock_timeout=4s;

create function infra.fanout_delete(topic text,
        work_key text,
        actor text DEFAULT NULL::text)
    returns bigint language plpgsql volatile;

create function infra.fanout_forget_shard(topic text,
        work_key text,
        shard_key text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.fanout_ran(topic text,
        work_key text,
        version bigint,
        nominal timestamp with time zone,
        requested timestamp with time zone)
    returns void language plpgsql volatile
    set lock_timeout=4s;

create function infra.fanout_register(topic text,
        work_key text,
        every_seconds integer DEFAULT 0,
        jitter_seconds integer DEFAULT 0,
        cron text DEFAULT NULL::text,
        time_zone text DEFAULT 'UTC'::text,
        enabled boolean DEFAULT true,
        actor text DEFAULT NULL::text)
    returns SETOF infra.fanout language plpgsql volatile;

create function infra.fanout_run(topic text,
        work_key text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.fanout_set(topic text,
        work_key text,
        every_seconds integer DEFAULT NULL::integer,
        jitter_seconds integer DEFAULT NULL::integer,
        cron text DEFAULT NULL::text,
        time_zone text DEFAULT NULL::text,
        enabled boolean DEFAULT NULL::boolean,
        expected_version bigint DEFAULT NULL::bigint,
        actor text DEFAULT NULL::text)
    returns SETOF infra.fanout language plpgsql volatile;

create function infra.fanout_told(policy infra.fanout)
    returns jsonb language sql immutable;

create function infra.fanout_wrong(topic text,
        work_key text,
        every_seconds integer,
        jitter_seconds integer,
        cron text,
        time_zone text,
        enabled boolean)
    returns text language sql immutable;

create function infra.inbox_abandon(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision,
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_ack(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[])
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_add(work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile
    set jit=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_add_once(own_ids uuid[],
        work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile;

create function infra.inbox_add_one(work_item_id uuid,
        message_id uuid,
        topic text,
        payload text,
        correlation_id text DEFAULT NULL::text,
        headers text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        due_in_seconds double precision DEFAULT NULL::double precision,
        ordering_key text DEFAULT NULL::text,
        hold_on_failure boolean DEFAULT false,
        priority smallint DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        expires_in_seconds double precision DEFAULT NULL::double precision)
    returns void language plpgsql volatile;

create function infra.inbox_advance(ordering_keys text[])
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_already_processed(source text,
        message_id text,
        hash bytea DEFAULT NULL::bytea,
        OUT processed boolean,
        OUT hash_mismatch boolean)
    returns record language plpgsql volatile;

create function infra.inbox_await(ids uuid[])
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.inbox_begin(source text,
        message_id text,
        owner uuid,
        lease_seconds double precision DEFAULT 30,
        hash bytea DEFAULT NULL::bytea,
        OUT outcome text,
        OUT generation bigint,
        OUT attempt integer,
        OUT until timestamp with time zone,
        OUT hash_mismatch boolean,
        OUT asked_at timestamp with time zone)
    returns record language plpgsql volatile
    set lock_timeout=4s set jit=off set enable_seqscan=off;

create function infra.inbox_busy(consumer uuid)
    returns void language plpgsql volatile
    set lock_timeout=4s;

create function infra.inbox_cancel(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_cancel_items(ids uuid[])
    returns TABLE(id uuid, topic text) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_channel()
    returns text language sql immutable;

create function infra.inbox_check(caller text,
        source text,
        message_id text,
        hash bytea DEFAULT NULL::bytea,
        lease_seconds double precision DEFAULT 30)
    returns void language plpgsql immutable;

create function infra.inbox_claim(owner uuid,
        lease_seconds integer,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns TABLE(id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone) language plpgsql volatile;

create function infra.inbox_digest(message_id text)
    returns bytea language sql immutable;

create function infra.inbox_end(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[],
        errors text[],
        keep_payload boolean,
        places tid[])
    returns uuid[] language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set enable_tidscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.inbox_enqueue(source text,
        message_id text,
        topic text,
        payload text,
        hash bytea DEFAULT NULL::bytea,
        correlation_id text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        ordering_key text DEFAULT NULL::text,
        priority integer DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        headers jsonb DEFAULT NULL::jsonb,
        hold_on_failure boolean DEFAULT false,
        due_in_seconds double precision DEFAULT NULL::double precision,
        expires_in_seconds double precision DEFAULT NULL::double precision,
        INOUT work_item_id uuid DEFAULT NULL::uuid,
        item_message_id uuid DEFAULT NULL::uuid,
        OUT outcome text,
        OUT hash_mismatch boolean)
    returns record language plpgsql volatile
    set jit=off set enable_seqscan=off;

create function infra.inbox_enqueue_many(sources text[],
        message_ids text[],
        topics text[],
        payloads text[],
        hashes bytea[] DEFAULT NULL::bytea[],
        correlation_ids text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        ordering_keys text[] DEFAULT NULL::text[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        headers text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        work_item_ids uuid[] DEFAULT NULL::uuid[],
        item_message_ids uuid[] DEFAULT NULL::uuid[])
    returns TABLE(ordinal integer, work_item_id uuid, outcome text, hash_mismatch boolean) language plpgsql volatile
    set jit=off;

create function infra.inbox_fail(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_follow_added()
    returns trigger language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_indexscan=on set enable_bitmapscan=on;

create function infra.inbox_follow_returned()
    returns trigger language plpgsql volatile
    set jit=off;

create function infra.inbox_follow_settled()
    returns trigger language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_indexscan=on set enable_bitmapscan=on;

create function infra.inbox_forget(done_older_than_seconds double precision,
        dead_older_than_seconds double precision DEFAULT NULL::double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set lock_timeout=4s;

create function infra.inbox_grasp(work_item_id uuid)
    returns boolean language plpgsql volatile
    set jit=off;

create function infra.inbox_guard_complete(source text,
        message_id text,
        owner uuid,
        generation bigint)
    returns boolean language sql volatile;

create function infra.inbox_guard_end(source text,
        message_id text,
        owner uuid,
        generation bigint,
        ending smallint,
        error text)
    returns boolean language plpgsql volatile
    set lock_timeout=4s set jit=off set enable_seqscan=off;

create function infra.inbox_guard_fail(source text,
        message_id text,
        owner uuid,
        generation bigint,
        error text DEFAULT NULL::text)
    returns boolean language sql volatile;

create function infra.inbox_guard_release(source text,
        message_id text,
        owner uuid,
        generation bigint,
        error text DEFAULT NULL::text)
    returns boolean language sql volatile;

create function infra.inbox_guard_renew(source text,
        message_id text,
        owner uuid,
        generation bigint,
        lease_seconds double precision DEFAULT 30)
    returns timestamp with time zone language plpgsql volatile
    set lock_timeout=4s set jit=off set enable_seqscan=off;

create function infra.inbox_horizon()
    returns bigint language sql volatile;

create function infra.inbox_horizon_passed(horizon bigint)
    returns boolean language sql volatile;

create function infra.inbox_idle(consumer uuid,
        seconds double precision,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set lock_timeout=4s;

create function infra.inbox_ledger_stats(OUT seen bigint,
        OUT processing bigint,
        OUT lapsed bigint,
        OUT done bigint,
        OUT dead bigint)
    returns record language sql volatile
    set jit=off;

create function infra.inbox_list_paused()
    returns TABLE(topic text, paused_at timestamp with time zone, paused_by text, reason text) language sql stable;

create function infra.inbox_mark_dead(source text,
        message_id text,
        error text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.inbox_mark_processed(source text,
        message_id text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.inbox_mark_processing(source text,
        message_id text,
        lease_seconds double precision DEFAULT 30,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.inbox_mark_processing_item(source text,
        message_id text,
        lease_seconds double precision)
    returns boolean language plpgsql volatile
    set jit=off set enable_seqscan=off;

create function infra.inbox_mark_settled(source text,
        message_id text,
        state smallint,
        error text)
    returns boolean language plpgsql volatile
    set jit=off set enable_seqscan=off;

create function infra.inbox_next_due(only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_note(verb text,
        actor text,
        ids uuid[],
        items jsonb,
        filter jsonb DEFAULT NULL::jsonb)
    returns void language plpgsql volatile;

create function infra.inbox_note_mark(verb text,
        actor text,
        source text,
        message_id text,
        was text,
        changed boolean)
    returns void language plpgsql volatile;

create function infra.inbox_pause(topic text,
        reason text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.inbox_postpone(work_item_id uuid,
        until timestamp with time zone)
    returns void language plpgsql volatile;

create function infra.inbox_purge(done_older_than_seconds double precision,
        failed_older_than_seconds double precision DEFAULT NULL::double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.inbox_raise_floor(seen bigint,
        had_no_xid boolean,
        known smallint[],
        active boolean)
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_reap_expired(max_rows integer DEFAULT 1000)
    returns integer language plpgsql volatile
    set jit=off set lock_timeout=4s;

create function infra.inbox_refuse_known(ids uuid[],
        settled_only boolean)
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_release(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision)
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_release_key(ordering_key text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.inbox_renew(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        lease_seconds double precision DEFAULT 30)
    returns TABLE(id uuid, extended boolean) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.inbox_requeue(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language sql volatile;

create function infra.inbox_requeue_items(ids uuid[])
    returns TABLE(id uuid, topic text, reason text, attempts integer) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_requeue_noted(ids uuid[],
        actor text,
        filter jsonb)
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_requeue_where(topic text DEFAULT NULL::text,
        reason text DEFAULT NULL::text,
        failed_after timestamp with time zone DEFAULT NULL::timestamp with time zone,
        failed_before timestamp with time zone DEFAULT NULL::timestamp with time zone,
        max_rows integer DEFAULT 1000,
        correlation_id text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile
    set jit=off;

create function infra.inbox_resume(topic text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.inbox_revive(sources text[],
        message_ids text[],
        actor text DEFAULT NULL::text)
    returns TABLE(source text, message_id text) language plpgsql volatile
    set jit=off set enable_seqscan=off;

create function infra.inbox_settle(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[] DEFAULT NULL::double precision[],
        errors text[] DEFAULT NULL::text[],
        keep_payload boolean DEFAULT true)
    returns SETOF uuid language plpgsql volatile;

create function infra.inbox_state(source text,
        message_id text,
        actor text)
    returns text language sql volatile;

create function infra.inbox_stats(count_done boolean DEFAULT true)
    returns TABLE(ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, done bigint, failed bigint, oldest_ready_age_seconds double precision, held_keys bigint) language plpgsql volatile
    set jit=off;

create function infra.inbox_stats_by_topic()
    returns TABLE(topic text, ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, failed bigint, oldest_ready_age_seconds double precision) language plpgsql volatile
    set jit=off;

create function infra.inbox_sweep(min_age interval DEFAULT '00:00:00'::interval)
    returns boolean language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.inbox_take(owner uuid,
        lease_seconds double precision,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[],
        from_due timestamp with time zone DEFAULT NULL::timestamp with time zone,
        from_seq bigint DEFAULT NULL::bigint)
    returns TABLE(verdict smallint, reason text, id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone, place tid, seq bigint) language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.inbox_uuid7()
    returns uuid language sql volatile;

create function infra.inbox_wake()
    returns void language plpgsql volatile;

create function infra.inbox_withdraw(work_item_id uuid,
        status smallint,
        error text)
    returns boolean language plpgsql volatile
    set jit=off;

create function infra.job_runs_abandon(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision,
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_ack(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[])
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_add(work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile
    set jit=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_add_once(own_ids uuid[],
        work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile;

create function infra.job_runs_add_one(work_item_id uuid,
        message_id uuid,
        topic text,
        payload text,
        correlation_id text DEFAULT NULL::text,
        headers text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        due_in_seconds double precision DEFAULT NULL::double precision,
        ordering_key text DEFAULT NULL::text,
        hold_on_failure boolean DEFAULT false,
        priority smallint DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        expires_in_seconds double precision DEFAULT NULL::double precision)
    returns void language plpgsql volatile;

create function infra.job_runs_advance(ordering_keys text[])
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_await(ids uuid[])
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.job_runs_busy(consumer uuid)
    returns void language plpgsql volatile
    set lock_timeout=4s;

create function infra.job_runs_cancel(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_cancel_items(ids uuid[])
    returns TABLE(id uuid, topic text) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_channel()
    returns text language sql immutable;

create function infra.job_runs_claim(owner uuid,
        lease_seconds integer,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns TABLE(id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone) language plpgsql volatile;

create function infra.job_runs_end(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[],
        errors text[],
        keep_payload boolean,
        places tid[])
    returns uuid[] language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set enable_tidscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.job_runs_fail(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_first_due()
    returns timestamp with time zone language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_forward(owner uuid,
        batch integer DEFAULT 100,
        keep_payload boolean DEFAULT true)
    returns SETOF uuid language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_bitmapscan=on set enable_tidscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.job_runs_horizon()
    returns bigint language sql volatile;

create function infra.job_runs_horizon_passed(horizon bigint)
    returns boolean language sql volatile;

create function infra.job_runs_idle(consumer uuid,
        seconds double precision,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set lock_timeout=4s;

create function infra.job_runs_list_paused()
    returns TABLE(topic text, paused_at timestamp with time zone, paused_by text, reason text) language sql stable;

create function infra.job_runs_next_due(only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_note(verb text,
        actor text,
        ids uuid[],
        items jsonb,
        filter jsonb DEFAULT NULL::jsonb)
    returns void language plpgsql volatile;

create function infra.job_runs_pause(topic text,
        reason text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.job_runs_purge(done_older_than_seconds double precision,
        failed_older_than_seconds double precision DEFAULT NULL::double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.job_runs_raise_floor(seen bigint,
        had_no_xid boolean,
        known smallint[],
        active boolean)
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_reap_expired(max_rows integer DEFAULT 1000)
    returns integer language plpgsql volatile
    set jit=off set lock_timeout=4s;

create function infra.job_runs_refuse_known(ids uuid[],
        settled_only boolean)
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_release(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision)
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_release_key(ordering_key text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.job_runs_renew(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        lease_seconds double precision DEFAULT 30)
    returns TABLE(id uuid, extended boolean) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.job_runs_requeue(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language sql volatile;

create function infra.job_runs_requeue_items(ids uuid[])
    returns TABLE(id uuid, topic text, reason text, attempts integer) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_requeue_noted(ids uuid[],
        actor text,
        filter jsonb)
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_requeue_where(topic text DEFAULT NULL::text,
        reason text DEFAULT NULL::text,
        failed_after timestamp with time zone DEFAULT NULL::timestamp with time zone,
        failed_before timestamp with time zone DEFAULT NULL::timestamp with time zone,
        max_rows integer DEFAULT 1000,
        correlation_id text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile
    set jit=off;

create function infra.job_runs_resume(topic text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.job_runs_settle(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[] DEFAULT NULL::double precision[],
        errors text[] DEFAULT NULL::text[],
        keep_payload boolean DEFAULT true)
    returns SETOF uuid language plpgsql volatile;

create function infra.job_runs_stats(count_done boolean DEFAULT true)
    returns TABLE(ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, done bigint, failed bigint, oldest_ready_age_seconds double precision, held_keys bigint) language plpgsql volatile
    set jit=off;

create function infra.job_runs_stats_by_topic()
    returns TABLE(topic text, ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, failed bigint, oldest_ready_age_seconds double precision) language plpgsql volatile
    set jit=off;

create function infra.job_runs_sweep(min_age interval DEFAULT '00:00:00'::interval)
    returns boolean language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.job_runs_take(owner uuid,
        lease_seconds double precision,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[],
        from_due timestamp with time zone DEFAULT NULL::timestamp with time zone,
        from_seq bigint DEFAULT NULL::bigint)
    returns TABLE(verdict smallint, reason text, id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone, place tid, seq bigint) language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.job_runs_uuid7()
    returns uuid language sql volatile;

create function infra.job_runs_wake()
    returns void language plpgsql volatile;

create function infra.jobs_advance(name text,
        version bigint,
        expected_at timestamp with time zone,
        next_at timestamp with time zone,
        last_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        nominals timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        dues timestamp with time zone[] DEFAULT NULL::timestamp with time zone[])
    returns TABLE(made uuid[], skipped timestamp with time zone[]) language plpgsql volatile
    set lock_timeout=4s;

create function infra.jobs_collect(ids uuid[])
    returns TABLE(id uuid, job text, outcome smallint, ran_seconds double precision) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set lock_timeout=4s;

create function infra.jobs_create_or_update(name text,
        topic text,
        cron text,
        payload text DEFAULT ''::text,
        time_zone text DEFAULT 'UTC'::text,
        enabled boolean DEFAULT NULL::boolean,
        misfire text DEFAULT 'once'::text,
        misfire_cap integer DEFAULT NULL::integer,
        misfire_window_seconds integer DEFAULT NULL::integer,
        overlap text DEFAULT 'allow'::text,
        jitter_seconds integer DEFAULT 0,
        priority integer DEFAULT 0,
        actor text DEFAULT NULL::text,
        expected_version bigint DEFAULT NULL::bigint)
    returns SETOF infra.jobs language plpgsql volatile;

create function infra.jobs_delete(name text,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile;

create function infra.jobs_disable(name text,
        actor text DEFAULT NULL::text)
    returns boolean language sql volatile;

create function infra.jobs_dispatch(owner uuid,
        batch integer DEFAULT 100,
        keep_payload boolean DEFAULT true)
    returns TABLE(id uuid, job text, late_seconds double precision) language plpgsql volatile
    set lock_timeout=4s;

create function infra.jobs_due_jobs(after_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        after_name text DEFAULT NULL::text,
        max_rows integer DEFAULT 100)
    returns SETOF infra.jobs language sql stable;

create function infra.jobs_enable(name text,
        actor text DEFAULT NULL::text)
    returns boolean language sql volatile;

create function infra.jobs_ended(after_job text DEFAULT NULL::text,
        after_id uuid DEFAULT NULL::uuid,
        max_rows integer DEFAULT 500)
    returns TABLE(id uuid, job text, over boolean, last boolean) language plpgsql stable
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off;

create function infra.jobs_follow()
    returns trigger language plpgsql volatile;

create function infra.jobs_make_runs(definition infra.jobs,
        kind text,
        nominals timestamp with time zone[],
        dues timestamp with time zone[],
        OUT made uuid[],
        OUT skipped timestamp with time zone[])
    returns record language plpgsql volatile
    set jit=off set enable_seqscan=off;

create function infra.jobs_next_due()
    returns double precision language sql volatile;

create function infra.jobs_next_nominal()
    returns timestamp with time zone language sql stable;

create function infra.jobs_purge(older_than_seconds double precision,
        failed_older_than_seconds double precision DEFAULT NULL::double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set lock_timeout=4s;

create function infra.jobs_record_output(id uuid,
        output text)
    returns boolean language plpgsql volatile
    set lock_timeout=4s;

create function infra.jobs_register(name text,
        topic text,
        cron text,
        payload text,
        time_zone text,
        enabled boolean,
        misfire text,
        misfire_cap integer,
        misfire_window_seconds integer,
        overlap text,
        jitter_seconds integer,
        priority integer,
        actor text,
        expected_version bigint,
        expected_created_at timestamp with time zone,
        OUT change text,
        OUT job infra.jobs)
    returns record language plpgsql volatile;

create function infra.jobs_reject(name text,
        version bigint,
        problem text)
    returns boolean language plpgsql volatile
    set lock_timeout=4s;

create function infra.jobs_set_enabled(name text,
        enabled boolean,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.jobs_started(id uuid)
    returns boolean language plpgsql volatile
    set lock_timeout=4s;

create function infra.jobs_told(job infra.jobs)
    returns jsonb language sql immutable;

create function infra.jobs_trigger(name text,
        actor text DEFAULT NULL::text)
    returns uuid language sql volatile;

create function infra.jobs_trigger_run(name text,
        actor text DEFAULT NULL::text)
    returns SETOF infra.jobs_run language plpgsql volatile;

create function infra.jobs_unknown(caller text,
        name text)
    returns void language plpgsql volatile;

create function infra.joins_attach(join_id uuid,
        work_item_ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.joins_attach_pairs(joins uuid[],
        items uuid[],
        fresh boolean)
    returns SETOF uuid language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.joins_cancel(join_id uuid,
        actor text DEFAULT NULL::text)
    returns uuid[] language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.joins_count(join_id uuid,
        completions integer,
        failures integer,
        moment timestamp with time zone,
        OUT completed integer,
        OUT failed integer,
        OUT new_status smallint,
        OUT why text)
    returns record language plpgsql volatile
    set jit=off set enable_seqscan=off;

create function infra.joins_ended(done uuid[],
        failed uuid[],
        only_join uuid DEFAULT NULL::uuid)
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_indexscan=on set enable_bitmapscan=on set plan_cache_mode=force_generic_plan;

create function infra.joins_expire(max_joins integer DEFAULT 100)
    returns SETOF uuid language plpgsql volatile
    set lock_timeout=4s;

create function infra.joins_finish(join_id uuid,
        new_status smallint,
        why text,
        moment timestamp with time zone)
    returns void language plpgsql volatile;

create function infra.joins_lapse(join_id uuid,
        moment timestamp with time zone)
    returns smallint language plpgsql volatile;

create function infra.joins_pin(items uuid[])
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.joins_purge(older_than_seconds double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set jit=off set enable_seqscan=off set lock_timeout=4s;

create function infra.joins_report(join_id uuid,
        work_item_id uuid,
        outcome text,
        actor text DEFAULT NULL::text)
    returns text language plpgsql volatile;

create function infra.joins_seize(join_id uuid)
    returns boolean language plpgsql volatile;

create function infra.joins_standing(join_id uuid)
    returns smallint language plpgsql volatile;

create function infra.joins_start(expected_steps integer,
        grouping_key text DEFAULT NULL::text,
        mode text DEFAULT 'all'::text,
        quorum integer DEFAULT NULL::integer,
        deadline_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        deadline_in_seconds double precision DEFAULT NULL::double precision,
        join_id uuid DEFAULT NULL::uuid,
        outcomes text[] DEFAULT NULL::text[],
        topics text[] DEFAULT NULL::text[],
        payloads text[] DEFAULT NULL::text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        priorities smallint[] DEFAULT NULL::smallint[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        work_item_ids uuid[] DEFAULT NULL::uuid[],
        message_ids uuid[] DEFAULT NULL::uuid[],
        actor text DEFAULT NULL::text)
    returns uuid language plpgsql volatile;

create function infra.joins_vouch(items uuid[])
    returns void language plpgsql stable
    set enable_seqscan=off;

create function infra.joins_waiting()
    returns boolean language plpgsql stable
    set enable_seqscan=off set enable_bitmapscan=off set enable_indexscan=on set enable_indexonlyscan=on;

create function infra.lease_acquire(name text,
        owner text,
        duration_seconds double precision DEFAULT 30,
        context text DEFAULT NULL::text,
        reentrant boolean DEFAULT false,
        OUT acquired boolean,
        OUT held_by text,
        OUT epoch bigint,
        OUT fencing_token bigint,
        OUT expires_at timestamp with time zone,
        OUT held_context text,
        OUT server_time timestamp with time zone)
    returns record language plpgsql volatile
    set lock_timeout=250ms;

create function infra.lease_acquire_many(names text[],
        owner text,
        duration_seconds double precision DEFAULT 30,
        context text DEFAULT NULL::text,
        reentrant boolean DEFAULT false)
    returns TABLE(name text, epoch bigint, fencing_token bigint, expires_at timestamp with time zone, server_time timestamp with time zone) language plpgsql volatile
    set lock_timeout=4s;

create function infra.lease_active()
    returns bigint language sql stable;

create function infra.lease_first_number()
    returns bigint language plpgsql volatile;

create function infra.lease_force_release(name text,
        actor text DEFAULT NULL::text)
    returns text language plpgsql volatile;

create function infra.lease_guard(name text,
        owner text,
        epoch bigint)
    returns timestamp with time zone language plpgsql volatile;

create function infra.lease_home()
    returns text language sql stable;

create function infra.lease_list(name text DEFAULT NULL::text,
        held_only boolean DEFAULT false,
        after_name text DEFAULT NULL::text,
        max_rows integer DEFAULT 100)
    returns TABLE(lease text, held boolean, owner text, epoch bigint, fencing_token bigint, acquired_at timestamp with time zone, renewed_at timestamp with time zone, expires_at timestamp with time zone, context text) language sql volatile;

create function infra.lease_list_by_prefix(prefix text,
        held_only boolean DEFAULT false,
        after_name text DEFAULT NULL::text,
        max_rows integer DEFAULT 100)
    returns TABLE(lease text, held boolean, owner text, epoch bigint, fencing_token bigint, acquired_at timestamp with time zone, renewed_at timestamp with time zone, expires_at timestamp with time zone, context text) language sql volatile;

create function infra.lease_release(name text,
        owner text,
        epoch bigint)
    returns boolean language plpgsql volatile
    set lock_timeout=4s;

create function infra.lease_release_many(names text[],
        owners text[],
        epochs bigint[])
    returns TABLE(name text, epoch bigint) language plpgsql volatile
    set lock_timeout=4s;

create function infra.lease_renew(name text,
        owner text,
        epoch bigint,
        duration_seconds double precision DEFAULT 30,
        OUT renewed boolean,
        OUT fencing_token bigint,
        OUT expires_at timestamp with time zone,
        OUT server_time timestamp with time zone)
    returns record language plpgsql volatile
    set lock_timeout=4s;

create function infra.lease_renew_many(names text[],
        owners text[],
        epochs bigint[],
        duration_seconds double precision DEFAULT 30)
    returns TABLE(name text, epoch bigint, fencing_token bigint, expires_at timestamp with time zone, server_time timestamp with time zone) language plpgsql volatile
    set lock_timeout=4s;

create function infra.operations_end(id uuid,
        outcome text DEFAULT 'succeeded'::text,
        error text DEFAULT NULL::text)
    returns smallint language plpgsql volatile
    set lock_timeout=4s;

create function infra.operations_final()
    returns trigger language plpgsql volatile;

create function infra.operations_mark_stalled(silent_for_seconds double precision,
        max_rows integer DEFAULT 100,
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile
    set lock_timeout=4s;

create function infra.operations_note(id uuid,
        kind text,
        message text DEFAULT NULL::text,
        data json DEFAULT NULL::json,
        OUT state smallint,
        OUT seq bigint)
    returns record language plpgsql volatile
    set lock_timeout=4s;

create function infra.operations_progress(id uuid,
        done bigint DEFAULT NULL::bigint,
        total bigint DEFAULT NULL::bigint,
        message text DEFAULT NULL::text)
    returns smallint language plpgsql volatile
    set lock_timeout=4s;

create function infra.operations_purge(older_than_seconds double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set lock_timeout=4s;

create function infra.operations_start(name text,
        actor text DEFAULT NULL::text,
        parent_id uuid DEFAULT NULL::uuid,
        correlation_id text DEFAULT NULL::text,
        total bigint DEFAULT NULL::bigint,
        message text DEFAULT NULL::text,
        tag_keys text[] DEFAULT '{}'::text[],
        tag_values text[] DEFAULT '{}'::text[],
        id uuid DEFAULT NULL::uuid)
    returns uuid language plpgsql volatile
    set lock_timeout=4s;

create function infra.outbox_abandon(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision,
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_ack(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[])
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_add(work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile
    set jit=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_add_once(own_ids uuid[],
        work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile;

create function infra.outbox_add_one(work_item_id uuid,
        message_id uuid,
        topic text,
        payload text,
        correlation_id text DEFAULT NULL::text,
        headers text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        due_in_seconds double precision DEFAULT NULL::double precision,
        ordering_key text DEFAULT NULL::text,
        hold_on_failure boolean DEFAULT false,
        priority smallint DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        expires_in_seconds double precision DEFAULT NULL::double precision)
    returns void language plpgsql volatile;

create function infra.outbox_advance(ordering_keys text[])
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_await(ids uuid[])
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.outbox_busy(consumer uuid)
    returns void language plpgsql volatile
    set lock_timeout=4s;

create function infra.outbox_cancel(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_cancel_items(ids uuid[])
    returns TABLE(id uuid, topic text) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_channel()
    returns text language sql immutable;

create function infra.outbox_claim(owner uuid,
        lease_seconds integer,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns TABLE(id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone) language plpgsql volatile;

create function infra.outbox_end(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[],
        errors text[],
        keep_payload boolean,
        places tid[])
    returns uuid[] language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set enable_tidscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.outbox_enqueue(topic text,
        payload text,
        correlation_id text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        idempotency_key text DEFAULT NULL::text,
        ordering_key text DEFAULT NULL::text,
        priority integer DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        headers jsonb DEFAULT NULL::jsonb,
        hold_on_failure boolean DEFAULT false,
        INOUT work_item_id uuid DEFAULT NULL::uuid,
        INOUT message_id uuid DEFAULT NULL::uuid,
        due_in_seconds double precision DEFAULT NULL::double precision,
        expires_in_seconds double precision DEFAULT NULL::double precision)
    returns record language plpgsql volatile;

create function infra.outbox_enqueue_many(work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        idempotency_keys text[] DEFAULT NULL::text[],
        ordering_keys text[] DEFAULT NULL::text[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        headers text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        new_ids boolean[] DEFAULT NULL::boolean[])
    returns TABLE(ordinal integer, work_item_id uuid, message_id uuid, added boolean) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_fail(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_horizon()
    returns bigint language sql volatile;

create function infra.outbox_horizon_passed(horizon bigint)
    returns boolean language sql volatile;

create function infra.outbox_idle(consumer uuid,
        seconds double precision,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set lock_timeout=4s;

create function infra.outbox_list_paused()
    returns TABLE(topic text, paused_at timestamp with time zone, paused_by text, reason text) language sql stable;

create function infra.outbox_next_due(only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_note(verb text,
        actor text,
        ids uuid[],
        items jsonb,
        filter jsonb DEFAULT NULL::jsonb)
    returns void language plpgsql volatile;

create function infra.outbox_pause(topic text,
        reason text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.outbox_purge(done_older_than_seconds double precision,
        failed_older_than_seconds double precision DEFAULT NULL::double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.outbox_raise_floor(seen bigint,
        had_no_xid boolean,
        known smallint[],
        active boolean)
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_reap_expired(max_rows integer DEFAULT 1000)
    returns integer language plpgsql volatile
    set jit=off set lock_timeout=4s;

create function infra.outbox_refuse(topic text,
        payload text,
        correlation_id text,
        due_at timestamp with time zone,
        idempotency_key text,
        ordering_key text,
        priority integer,
        expires_at timestamp with time zone,
        headers jsonb,
        due_in_seconds double precision,
        expires_in_seconds double precision)
    returns void language plpgsql volatile;

create function infra.outbox_refuse_known(ids uuid[],
        settled_only boolean)
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_release(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision)
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_release_key(ordering_key text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.outbox_renew(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        lease_seconds double precision DEFAULT 30)
    returns TABLE(id uuid, extended boolean) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.outbox_requeue(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language sql volatile;

create function infra.outbox_requeue_items(ids uuid[])
    returns TABLE(id uuid, topic text, reason text, attempts integer) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_requeue_noted(ids uuid[],
        actor text,
        filter jsonb)
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_requeue_where(topic text DEFAULT NULL::text,
        reason text DEFAULT NULL::text,
        failed_after timestamp with time zone DEFAULT NULL::timestamp with time zone,
        failed_before timestamp with time zone DEFAULT NULL::timestamp with time zone,
        max_rows integer DEFAULT 1000,
        correlation_id text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile
    set jit=off;

create function infra.outbox_resume(topic text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.outbox_settle(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[] DEFAULT NULL::double precision[],
        errors text[] DEFAULT NULL::text[],
        keep_payload boolean DEFAULT true)
    returns SETOF uuid language plpgsql volatile;

create function infra.outbox_stats(count_done boolean DEFAULT true)
    returns TABLE(ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, done bigint, failed bigint, oldest_ready_age_seconds double precision, held_keys bigint) language plpgsql volatile
    set jit=off;

create function infra.outbox_stats_by_topic()
    returns TABLE(topic text, ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, failed bigint, oldest_ready_age_seconds double precision) language plpgsql volatile
    set jit=off;

create function infra.outbox_sweep(min_age interval DEFAULT '00:00:00'::interval)
    returns boolean language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.outbox_take(owner uuid,
        lease_seconds double precision,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[],
        from_due timestamp with time zone DEFAULT NULL::timestamp with time zone,
        from_seq bigint DEFAULT NULL::bigint)
    returns TABLE(verdict smallint, reason text, id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone, place tid, seq bigint) language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.outbox_uuid7()
    returns uuid language sql volatile;

create function infra.outbox_wake()
    returns void language plpgsql volatile;

create function infra.timers_abandon(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision,
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_ack(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[])
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_add(work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile
    set jit=off set plan_cache_mode=force_generic_plan;

create function infra.timers_add_once(own_ids uuid[],
        work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        headers text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        ordering_keys text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        idempotency_keys text[] DEFAULT NULL::text[],
        fresh boolean[] DEFAULT NULL::boolean[])
    returns void language plpgsql volatile;

create function infra.timers_add_one(work_item_id uuid,
        message_id uuid,
        topic text,
        payload text,
        correlation_id text DEFAULT NULL::text,
        headers text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        due_in_seconds double precision DEFAULT NULL::double precision,
        ordering_key text DEFAULT NULL::text,
        hold_on_failure boolean DEFAULT false,
        priority smallint DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        expires_in_seconds double precision DEFAULT NULL::double precision)
    returns void language plpgsql volatile;

create function infra.timers_advance(ordering_keys text[])
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.timers_await(ids uuid[])
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.timers_busy(consumer uuid)
    returns void language plpgsql volatile
    set lock_timeout=4s;

create function infra.timers_cancel(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_cancel_items(ids uuid[])
    returns TABLE(id uuid, topic text) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.timers_channel()
    returns text language sql immutable;

create function infra.timers_claim(owner uuid,
        lease_seconds integer,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns TABLE(id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone) language plpgsql volatile;

create function infra.timers_end(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[],
        errors text[],
        keep_payload boolean,
        places tid[])
    returns uuid[] language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set enable_bitmapscan=on set enable_tidscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.timers_enqueue(topic text,
        payload text,
        correlation_id text DEFAULT NULL::text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        idempotency_key text DEFAULT NULL::text,
        ordering_key text DEFAULT NULL::text,
        priority integer DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        headers jsonb DEFAULT NULL::jsonb,
        hold_on_failure boolean DEFAULT false,
        INOUT work_item_id uuid DEFAULT NULL::uuid,
        INOUT message_id uuid DEFAULT NULL::uuid,
        due_in_seconds double precision DEFAULT NULL::double precision,
        expires_in_seconds double precision DEFAULT NULL::double precision)
    returns record language plpgsql volatile;

create function infra.timers_enqueue_many(work_item_ids uuid[],
        message_ids uuid[],
        topics text[],
        payloads text[],
        correlation_ids text[] DEFAULT NULL::text[],
        due_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        idempotency_keys text[] DEFAULT NULL::text[],
        ordering_keys text[] DEFAULT NULL::text[],
        priorities smallint[] DEFAULT NULL::smallint[],
        expires_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[],
        headers text[] DEFAULT NULL::text[],
        holds boolean[] DEFAULT NULL::boolean[],
        due_in_seconds double precision[] DEFAULT NULL::double precision[],
        expires_in_seconds double precision[] DEFAULT NULL::double precision[],
        new_ids boolean[] DEFAULT NULL::boolean[])
    returns TABLE(ordinal integer, work_item_id uuid, message_id uuid, added boolean) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.timers_fail(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        error text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_first_due()
    returns timestamp with time zone language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.timers_forward(owner uuid,
        batch integer DEFAULT 100,
        keep_payload boolean DEFAULT true)
    returns SETOF uuid language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_bitmapscan=on set enable_tidscan=on set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.timers_horizon()
    returns bigint language sql volatile;

create function infra.timers_horizon_passed(horizon bigint)
    returns boolean language sql volatile;

create function infra.timers_idle(consumer uuid,
        seconds double precision,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set lock_timeout=4s;

create function infra.timers_list_paused()
    returns TABLE(topic text, paused_at timestamp with time zone, paused_by text, reason text) language sql stable;

create function infra.timers_next_due(only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[])
    returns double precision language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.timers_next_event_time()
    returns timestamp with time zone language sql volatile;

create function infra.timers_note(verb text,
        actor text,
        ids uuid[],
        items jsonb,
        filter jsonb DEFAULT NULL::jsonb)
    returns void language plpgsql volatile;

create function infra.timers_pause(topic text,
        reason text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.timers_purge(done_older_than_seconds double precision,
        failed_older_than_seconds double precision DEFAULT NULL::double precision,
        max_rows integer DEFAULT 1000,
        actor text DEFAULT NULL::text)
    returns integer language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.timers_raise_floor(seen bigint,
        had_no_xid boolean,
        known smallint[],
        active boolean)
    returns void language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.timers_reap_expired(max_rows integer DEFAULT 1000)
    returns integer language plpgsql volatile
    set jit=off set lock_timeout=4s;

create function infra.timers_refuse(topic text,
        payload text,
        correlation_id text,
        due_at timestamp with time zone,
        idempotency_key text,
        ordering_key text,
        priority integer,
        expires_at timestamp with time zone,
        headers jsonb,
        due_in_seconds double precision,
        expires_in_seconds double precision)
    returns void language plpgsql volatile;

create function infra.timers_refuse_known(ids uuid[],
        settled_only boolean)
    returns void language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.timers_release(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        delay_seconds double precision DEFAULT NULL::double precision)
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_release_key(ordering_key text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.timers_renew(owner uuid,
        ids uuid[],
        generations bigint[] DEFAULT NULL::bigint[],
        lease_seconds double precision DEFAULT 30)
    returns TABLE(id uuid, extended boolean) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.timers_requeue(ids uuid[],
        actor text DEFAULT NULL::text)
    returns SETOF uuid language sql volatile;

create function infra.timers_requeue_items(ids uuid[])
    returns TABLE(id uuid, topic text, reason text, attempts integer) language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan;

create function infra.timers_requeue_noted(ids uuid[],
        actor text,
        filter jsonb)
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_requeue_where(topic text DEFAULT NULL::text,
        reason text DEFAULT NULL::text,
        failed_after timestamp with time zone DEFAULT NULL::timestamp with time zone,
        failed_before timestamp with time zone DEFAULT NULL::timestamp with time zone,
        max_rows integer DEFAULT 1000,
        correlation_id text DEFAULT NULL::text,
        actor text DEFAULT NULL::text)
    returns SETOF uuid language plpgsql volatile
    set jit=off;

create function infra.timers_reschedule(id uuid,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        due_in_seconds double precision DEFAULT NULL::double precision,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile
    set jit=off set enable_seqscan=off set enable_indexscan=off set enable_indexonlyscan=off set plan_cache_mode=force_generic_plan;

create function infra.timers_resume(topic text,
        actor text DEFAULT NULL::text)
    returns boolean language plpgsql volatile;

create function infra.timers_schedule(topic text,
        payload text,
        due_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        due_in_seconds double precision DEFAULT NULL::double precision,
        correlation_id text DEFAULT NULL::text,
        idempotency_key text DEFAULT NULL::text,
        ordering_key text DEFAULT NULL::text,
        priority integer DEFAULT 0,
        expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone,
        headers jsonb DEFAULT NULL::jsonb,
        hold_on_failure boolean DEFAULT false,
        INOUT work_item_id uuid DEFAULT NULL::uuid,
        INOUT message_id uuid DEFAULT NULL::uuid)
    returns record language plpgsql volatile;

create function infra.timers_settle(owner uuid,
        ids uuid[],
        generations bigint[],
        outcomes smallint[],
        delays double precision[] DEFAULT NULL::double precision[],
        errors text[] DEFAULT NULL::text[],
        keep_payload boolean DEFAULT true)
    returns SETOF uuid language plpgsql volatile;

create function infra.timers_stats(count_done boolean DEFAULT true)
    returns TABLE(ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, done bigint, failed bigint, oldest_ready_age_seconds double precision, held_keys bigint) language plpgsql volatile
    set jit=off;

create function infra.timers_stats_by_topic()
    returns TABLE(topic text, ready bigint, scheduled bigint, in_progress bigint, lapsed bigint, failed bigint, oldest_ready_age_seconds double precision) language plpgsql volatile
    set jit=off;

create function infra.timers_sweep(min_age interval DEFAULT '00:00:00'::interval)
    returns boolean language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan;

create function infra.timers_take(owner uuid,
        lease_seconds double precision,
        batch integer,
        delivery_limit integer DEFAULT 10,
        only_topics text[] DEFAULT NULL::text[],
        except_topics text[] DEFAULT NULL::text[],
        from_due timestamp with time zone DEFAULT NULL::timestamp with time zone,
        from_seq bigint DEFAULT NULL::bigint)
    returns TABLE(verdict smallint, reason text, id uuid, message_id uuid, topic text, payload text, correlation_id text, attempt integer, generation bigint, created_at timestamp with time zone, due_at timestamp with time zone, expires_at timestamp with time zone, ordering_key text, priority smallint, headers jsonb, locked_until timestamp with time zone, claimed_at timestamp with time zone, last_error text, requested_due_at timestamp with time zone, place tid, seq bigint) language plpgsql volatile
    set jit=off set enable_indexscan=on set enable_indexonlyscan=on set enable_seqscan=off set enable_bitmapscan=off set enable_sort=off set plan_cache_mode=force_generic_plan set lock_timeout=4s;

create function infra.timers_uuid7()
    returns uuid language sql volatile;

create function infra.timers_wake()
    returns void language plpgsql volatile;
