//! The SQL from `queries/`, with the application's names filled in.
//!
//! Each block of a file that starts with `-- name:` is a field here. The tests hold the two to each other and prepare
//! every statement on a real database.

use std::sync::Arc;

use mainstay_core::store::{Names, PerNames, render};

const QUEUE: &str = include_str!("../queries/queue.sql");
const AUDIT: &str = include_str!("../queries/audit.sql");
const FANOUT: &str = include_str!("../queries/fanout.sql");
const DIAGNOSIS: &str = include_str!("../queries/diagnosis.sql");
const HEALTH: &str = include_str!("../queries/health.sql");
const INBOX: &str = include_str!("../queries/inbox.sql");
const JOBS: &str = include_str!("../queries/jobs.sql");
const JOINS: &str = include_str!("../queries/joins.sql");
const LEASE: &str = include_str!("../queries/lease.sql");
const OPERATIONS: &str = include_str!("../queries/operations.sql");
const TIMERS: &str = include_str!("../queries/timers.sql");

/// SQLite's clock, in microseconds, for statements that nobody asks it for first.
const NOW: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000";

macro_rules! statements {
    ($(#[$doc:meta])* $type:ident from $file:ident { $($name:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $type {
            $(pub(crate) $name: Arc<str>,)*
        }

        impl $type {
            pub(crate) fn new(names: &Names) -> Self {
                let blocks = blocks($file);
                // A name that is not in the file gives an empty statement, which the tests would find.
                let find = |name: &str| {
                    let block = blocks.iter().find(|(found, _)| *found == name);
                    block.map(|(_, sql)| render(&sql.replace("{{now}}", NOW), names)).unwrap_or_default()
                };
                Self { $($name: find(stringify!($name)).into(),)* }
            }

            /// The same for all databases with these names.
            pub(crate) fn shared(names: &Names) -> Arc<Self> {
                static TEXTS: PerNames<$type> = PerNames::new();
                TEXTS.get(names, || Self::new(names))
            }

            #[cfg(test)]
            fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), &*self.$name),)*]
            }
        }
    };
}

statements! {
    /// The statements of a queue, ready to prepare.
    Statements from QUEUE {
        clock,
        alive,
        enqueue_reserve,
        enqueue_known,
        enqueue_insert,
        enqueue_status,
        claim_levels,
        claim_candidates,
        claim_take,
        forward_take,
        claim_fence,
        claim_park,
        claim_rejected,
        settle_find,
        settle_retire,
        settle_hold,
        settle_remove,
        settle_abandon,
        settle_release,
        forward,
        forward_known,
        renew,
        reap,
        cancel_find,
        requeue_find,
        requeue_insert,
        requeue_unhold,
        requeue_remove,
        requeue_select,
        release_key,
        pause,
        resume,
        paused,
        get,
        list,
        export,
        stats_open,
        stats_failed,
        stats_done,
        stats_held,
        purge_select,
        purge_forget,
        purge_remove,
        next_due,
        joins_waiting,
        joins_lapse,
        joins_count,
        joins_standing,
        joins_lapse_one,
        joins_attach_before,
        joins_attach,
        joins_attach_after,
    }
}

statements! {
    /// What the health checks look at, ready to prepare.
    HealthStatements from HEALTH {
        due,
        lapsed,
        busy,
        settled,
        jobs,
        troubled,
        joins,
        leases,
        lease_lapsed_last,
        lane,
    }
}

statements! {
    /// What a doctor looks at, ready to prepare.
    DiagnosisStatements from DIAGNOSIS {
        runs,
        latest_run,
    }
}

statements! {
    /// The statements of the joins, ready to prepare.
    JoinStatements from JOINS {
        start,
        start_continuation,
        start_note,
        attach_note,
        attach_about,
        report_before,
        report_note,
        report,
        report_after,
        get,
        list,
        list_group,
        members,
        of_item,
        cancel,
        cancel_waiting,
        cancel_member,
        expire,
        next_deadline,
        first_deadline,
        stats,
        purge_select,
        purge_members,
        purge_continuations,
        purge,
    }
}

statements! {
    /// The statements of the ledger of received messages, ready to prepare.
    InboxStatements from INBOX {
        seen,
        touch,
        mark_processing,
        postpone,
        mark_settled,
        mark_done_after_all,
        mark_dead_again,
        begin,
        begun,
        begin_seen,
        renew,
        guard_settle,
        guard_release,
        hasten,
        enqueue_before,
        enqueue,
        enqueue_after,
        get,
        list,
        list_state,
        state,
        revive_find,
        revive,
        stats,
        forget_select,
        forget_entry,
        forget_history,
    }
}

statements! {
    /// The statements of the audit trail, ready to prepare.
    AuditStatements from AUDIT {
        insert,
        anchor,
        get,
        list,
        list_about,
        purge_begin,
        purge_select,
        purge_anchors,
        purge_record,
        purge_end,
    }
}

statements! {
    /// The statements of operations, ready to prepare.
    OperationStatements from OPERATIONS {
        start,
        tag,
        progress,
        count_event,
        event,
        end,
        standing,
        get,
        list,
        list_tagged,
        events,
        stalled,
        stalled_ids,
        mark_stalled,
        purge_select,
        purge_tags,
        purge_events,
        purge,
    }
}

statements! {
    /// The statements of the leases, ready to prepare.
    LeaseStatements from LEASE {
        acquire,
        renew,
        release,
        force_release,
        guard,
        home,
        find,
        list,
        list_prefix,
        active,
    }
}

statements! {
    /// The statements of timers, ready to prepare.
    TimerStatements from TIMERS {
        due,
        reschedule,
        next_event_time,
    }
}

statements! {
    /// The statements of the jobs, ready to prepare.
    JobStatements from JOBS {
        insert,
        update,
        set_enabled,
        delete,
        pending,
        unclaim,
        end_run,
        get,
        list,
        due,
        troubled,
        advance,
        reject,
        under_way,
        add_run,
        taken,
        dispatched,
        started,
        record_output,
        ended_page,
        ended,
        note_end,
        run,
        runs,
        runs_of_job,
        nominal_of,
        purge_select,
        purge_item,
        purge_run,
        next_nominal,
    }
}

statements! {
    /// The statements of fan-outs, ready to prepare.
    FanoutStatements from FANOUT {
        register,
        standing,
        version,
        list,
        set,
        request_run,
        add_shard,
        shards_added,
        forget_shard,
        flying,
        delete,
        delete_cursors,
        look,
        cursors,
        complete,
        claim,
        claim_shard,
        ran,
        changes,
    }
}

impl Statements {
    /// The moment an operation has: SQLite's clock, in microseconds.
    pub(crate) fn now(&self, connection: &rusqlite::Connection) -> rusqlite::Result<i64> {
        connection.prepare_cached(&self.clock)?.query_row([], |row| row.get(0))
    }
}

/// Splits a file at its `-- name:` lines.
fn blocks(file: &str) -> Vec<(&str, &str)> {
    let parts = file.split("\n-- name:").skip(1);
    parts.filter_map(|part| part.split_once('\n')).map(|(name, sql)| (name.trim(), sql.trim())).collect()
}

#[cfg(test)]
mod tests {
    use mainstay_core::store::Queue;

    use super::*;
    use crate::schema::MIGRATIONS;

    fn deployed(names: &Names) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for step in MIGRATIONS {
            connection.execute_batch(&step.render(names)).unwrap();
        }
        connection
    }

    #[test]
    fn file_and_list_name_the_same_statements() {
        let names = Names::default();
        let (queue, lease, timers) =
            (Statements::new(&names), LeaseStatements::new(&names), TimerStatements::new(&names));
        let jobs = JobStatements::new(&names);
        let fanout = FanoutStatements::new(&names);
        let (inbox, audit) = (InboxStatements::new(&names), AuditStatements::new(&names));
        let operations = OperationStatements::new(&names);
        let (health, diagnosis) = (HealthStatements::new(&names), DiagnosisStatements::new(&names));
        let all = [
            (diagnosis.all(), DIAGNOSIS),
            (fanout.all(), FANOUT),
            (operations.all(), OPERATIONS),
            (inbox.all(), INBOX),
            (audit.all(), AUDIT),
            (queue.all(), QUEUE),
            (lease.all(), LEASE),
            (timers.all(), TIMERS),
            (jobs.all(), JOBS),
            (health.all(), HEALTH),
        ];
        for (statements, file) in all {
            let listed: Vec<&str> = statements.into_iter().map(|(name, _)| name).collect();
            let found: Vec<&str> = blocks(file).into_iter().map(|(name, _)| name).collect();
            assert_eq!(listed, found);
        }
    }

    #[test]
    fn every_statement_prepares_under_any_name() {
        let odd = Names::default().with_schema("it's \"mine\"; --").unwrap().with_outbox("box 📦").unwrap();
        for names in [Names::default(), odd] {
            let connection = deployed(&names);
            let prepare = |of: &str, statements: Vec<(&str, &str)>| {
                for (name, sql) in statements {
                    assert!(!sql.is_empty(), "{name} is empty");
                    let prepared = connection.prepare(sql);
                    assert!(prepared.is_ok(), "{of}: {name}: {}", prepared.unwrap_err());
                }
            };
            for queue in Queue::ALL {
                prepare(queue.as_str(), Statements::new(&names.of(queue)).all());
                prepare("health", HealthStatements::new(&names.of(queue)).all());
            }
            prepare("timers' own", TimerStatements::new(&names).all());
            prepare("inbox's own", InboxStatements::new(&names).all());
            prepare("audit trail", AuditStatements::new(&names).all());
            prepare("operations", OperationStatements::new(&names).all());
            prepare("leases", LeaseStatements::new(&names).all());
            prepare("jobs", JobStatements::new(&names).all());
            prepare("joins", JoinStatements::new(&names).all());
            prepare("diagnosis", DiagnosisStatements::new(&names).all());
            prepare("fan-outs", FanoutStatements::new(&names).all());
        }
    }

    fn plan(name: &str) -> String {
        let names = Names::default();
        let connection = deployed(&names);
        let (queue, timers) = (Statements::new(&names), TimerStatements::new(&names));
        let mut all = queue.all().into_iter().chain(timers.all());
        let (_, sql) = all.find(|(found, _)| *found == name).unwrap();
        plan_of(&connection, sql)
    }

    fn plan_of(connection: &rusqlite::Connection, sql: &str) -> String {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        // Parameters that are not bound are null, which does for a plan.
        let rows = explain.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Result<Vec<_>, _>>();
        rows.unwrap().join("\n")
    }

    /// The view's and the recursive tables' own rows. And reaping walks the leases, which are few.
    const ROWS_ALREADY_FOUND: &[&str] = &[
        "SCAN infra_outbox_message",
        "SCAN ready",
        "SCAN leased",
        "SCAN (subquery-5)",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "SCAN infra_outbox USING COVERING INDEX infra_outbox_lease",
        "SCAN infra_outbox USING INDEX infra_outbox_lease",
    ];

    #[test]
    fn claims_waits_and_listings_walk_indexes() {
        let sorts = plan("list").contains("TEMP B-TREE") || plan("purge_select").contains("TEMP B-TREE");
        assert!(!sorts, "{}", plan("list"));
        for name in ["claim_levels", "claim_candidates", "next_due", "list", "get", "purge_select", "reap"] {
            let plan = plan(name);
            let scans =
                plan.lines().filter(|line| line.starts_with("SCAN") && !ROWS_ALREADY_FOUND.contains(line));
            assert_eq!(scans.count(), 0, "{name} scans a table:\n{plan}");
        }
        let candidates = plan("claim_candidates");
        assert!(candidates.contains("infra_outbox_ready (priority=? AND due_at<?)"), "{candidates}");
        assert!(candidates.contains("infra_outbox_lease (priority=? AND locked_until<?)"), "{candidates}");
    }

    /// Ranges of an index that hold what is wanted and nothing else.
    const NOTHING_ELSE: &[&str] = &[
        "SCAN CONSTANT ROW",
        "SCAN l USING INDEX infra_jobs_ledger_open",
        "SCAN infra_jobs USING INDEX infra_jobs_due",
        "SCAN infra_jobs USING INDEX infra_jobs_problem",
        "SCAN infra_jobs USING COVERING INDEX infra_jobs_due",
    ];

    #[test]
    fn jobs_and_runs_are_found_by_indexes() {
        let names = Names::default();
        let connection = deployed(&names);
        let jobs = JobStatements::new(&names);
        for (name, sql) in jobs.all().into_iter().filter(|(name, _)| *name != "insert") {
            let plan = plan_of(&connection, sql);
            let scans = plan.lines().filter(|line| line.starts_with("SCAN ") && !NOTHING_ELSE.contains(line));
            assert_eq!(scans.collect::<Vec<_>>(), Vec::<&str>::new(), "{name} scans a table:\n{plan}");
            // Those in trouble are few, and wanted in no order.
            let sorts = plan.contains("TEMP B-TREE") && name != "troubled";
            assert!(!sorts, "{name} sorts:\n{plan}");
        }
    }

    #[test]
    fn health_walks_indexes() {
        let names = Names::default();
        let connection = deployed(&names);
        // The rows that were found by an index below them, and the leases, of which there is one row for each name.
        let is_fine = |line: &str| {
            ["SCAN f", "SCAN l", "SCAN CONSTANT ROW", "SCAN p USING INDEX infra_jobs_problem"].contains(&line)
        };
        for (name, sql) in HealthStatements::new(&names).all() {
            let plan = plan_of(&connection, sql);
            let scans: Vec<_> =
                plan.lines().filter(|line| line.starts_with("SCAN ") && !is_fine(line)).collect();
            assert_eq!(scans, Vec::<&str>::new(), "{name} scans a table:\n{plan}");
        }
    }

    #[test]
    fn operations_are_found_by_indexes() {
        let names = Names::default();
        let connection = deployed(&names);
        for (name, sql) in OperationStatements::new(&names).all() {
            let plan = plan_of(&connection, sql);
            // The newest of all, and the row that has the time.
            let walks = |line: &&str| {
                !["SCAN o USING INDEX infra_operations_recent", "SCAN CONSTANT ROW"].contains(line)
            };
            let scans: Vec<_> = plan.lines().filter(|line| line.starts_with("SCAN ")).filter(walks).collect();
            assert_eq!(scans, Vec::<&str>::new(), "{name} scans a table:\n{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{name} sorts:\n{plan}");
        }
    }

    #[test]
    fn fan_outs_are_found_by_indexes() {
        let names = Names::default();
        let connection = deployed(&names);
        for (name, sql) in FanoutStatements::new(&names).all() {
            let plan = plan_of(&connection, sql);
            // All policies are asked for, and they are few: one for each kind of work, not for each shard.
            let is_fine = plan == "SCAN CONSTANT ROW" || name == "changes" && plan == "SCAN infra_fanout";
            assert!(!plan.contains("SCAN ") || is_fine, "{name} scans a table:\n{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{name} sorts:\n{plan}");
        }
    }
}
