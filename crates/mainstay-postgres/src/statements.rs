//! The statements the program sends, read from `queries/` and with the names filled in.
//!
//! They are sent unnamed and in one round trip each, with nothing prepared, so a pooler that gives every
//! transaction another session does no harm.

use std::sync::Arc;

use mainstay_core::store::{Names, PerNames, render};
use mainstay_core::{Error, ErrorKind, Result};

macro_rules! statements {
    ($(#[$doc:meta])* $type:ident from $file:literal { $($name:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[allow(dead_code, reason = "some are for drivers that are features")]
        pub(crate) struct $type { $(pub(crate) $name: String,)* }

        impl $type {
            pub(crate) fn new(names: &Names) -> Result<Self> {
                const TEXT: &str = include_str!($file);
                Ok(Self { $($name: render(find(TEXT, stringify!($name))?, names),)* })
            }

            /// The same for all databases with these names.
            #[allow(dead_code, reason = "some are only part of others")]
            pub(crate) fn shared(names: &Names) -> Result<Arc<Self>> {
                static TEXTS: PerNames<$type> = PerNames::new();
                TEXTS.try_get(names, || Self::new(names))
            }

            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str()),)*]
            }
        }
    };
}

statements! {
    /// The statements of a queue.
    QueueStatements from "../queries/queue.sql" {
        add_plain, add_one, add, add_once, enqueue_many, enqueue_many_as_text, enqueue_joined, enqueue_joined_as_text, take, settle, forward, renew, reap, get, list, export, cancel, requeue, requeue_where,
        release_key, pause, resume, paused, stats, backlog, stats_by_topic, purge, next_due, idle, busy, horizon, horizon_passed, probe,
    }
}

statements! {
    /// The statements of the ledger of received messages.
    InboxStatements from "../queries/inbox.sql" {
        seen, mark_processing, mark_processed, mark_dead, begin, renew, complete, fail, release, enqueue, get, list, revive, stats, forget,
    }
}

statements! {
    /// The statements of the audit trail.
    AuditStatements from "../queries/audit.sql" {
        write, get, list, list_about, purge, note,
    }
}

statements! {
    /// The statements of operations.
    OperationStatements from "../queries/operations.sql" {
        start, progress, note, end, get, list, list_tagged, events, stalled, mark_stalled, purge,
    }
}

statements! {
    /// The statements of the leases.
    LeaseStatements from "../queries/lease.sql" {
        acquire, renew, release, acquire_many, renew_many, release_many, force_release, home, guard, guard_as_text, list, list_by_prefix, active,
    }
}

statements! {
    /// The look at what there is to do.
    AgendaStatements from "../queries/agenda.sql" {
        agenda,
    }
}

statements! {
    /// What the health checks look at.
    HealthStatements from "../queries/health.sql" {
        work, schedule, leases, lane,
    }
}

statements! {
    /// What a doctor looks at.
    DiagnosisStatements from "../queries/diagnosis.sql" {
        rights, transactions, tables, indexes, runs,
    }
}

statements! {
    /// The statements of timers.
    TimerStatements from "../queries/timers.sql" {
        reschedule, next_event_time,
    }
}

statements! {
    /// The statements of the jobs.
    JobStatements from "../queries/jobs.sql" {
        register, set_enabled, delete, get, list, due, advance, reject, trigger, dispatch, collect, ended, started, record_output, run,
        runs, purge, next_nominal, next_due, idle, horizon_passed,
    }
}

statements! {
    /// The statements of the joins.
    JoinStatements from "../queries/joins.sql" {
        start, attach, report, get, list, members, of_item, cancel, expire, next_deadline, stats, purge,
    }
}

impl JobStatements {
    /// The queue's statements for a scheduler, who waits for jobs too.
    pub(crate) fn waiting(&self, names: &Names) -> Result<Arc<QueueStatements>> {
        static TEXTS: PerNames<QueueStatements> = PerNames::new();
        TEXTS.try_get(names, || {
            let mut queue = QueueStatements::new(names)?;
            queue.next_due.clone_from(&self.next_due);
            queue.idle.clone_from(&self.idle);
            queue.horizon_passed.clone_from(&self.horizon_passed);
            Ok(queue)
        })
    }
}

statements! {
    /// The statements of fan-outs.
    FanoutStatements from "../queries/fanout.sql" {
        register, standing, version, list, set, request_run, add_shards, forget_shard, delete, look, cursors, complete, claim, ran,
    }
}

statements! {
    /// The statements of the schema.
    SchemaStatements from "../queries/schema.sql" {
        create_schema, create_ledger, ledger_exists, ledger, record, lock, inventory, schema_exists, stale_functions, holders,
    }
}

/// The statement between its `-- name:` line and the next comment or the end.
fn find<'a>(text: &'a str, name: &str) -> Result<&'a str> {
    let marker = format!("-- name: {name}\n");
    let missing =
        || Error::new(ErrorKind::Internal, "postgres.statements", format!("there is no statement {name}"));
    let (_, rest) = text.split_once(marker.as_str()).ok_or_else(missing)?;
    let end = rest.find("\n--").unwrap_or(rest.len());
    Ok(rest[..end].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_found_and_filled_in() {
        let names = Names::default();
        let outbox = QueueStatements::new(&names).unwrap();
        let schema = SchemaStatements::new(&names).unwrap();
        let (lease, jobs) = (LeaseStatements::new(&names).unwrap(), JobStatements::new(&names).unwrap());
        let timers = TimerStatements::new(&names).unwrap();
        let inbox = InboxStatements::new(&names).unwrap();
        let joins = JoinStatements::new(&names).unwrap();
        let primitives = timers.all().into_iter().chain(lease.all()).chain(jobs.all()).chain(inbox.all());
        let primitives = primitives.chain(joins.all());
        let fanout = FanoutStatements::new(&names).unwrap();
        let primitives = primitives.chain(fanout.all());
        let health = HealthStatements::new(&names).unwrap();
        let primitives = primitives.chain(health.all());
        let diagnosis = DiagnosisStatements::new(&names).unwrap();
        let primitives = primitives.chain(diagnosis.all());
        let agenda = AgendaStatements::new(&names).unwrap();
        let primitives = primitives.chain(agenda.all());
        let audit = AuditStatements::new(&names).unwrap();
        let primitives = primitives.chain(audit.all());
        let operations = OperationStatements::new(&names).unwrap();
        let primitives = primitives.chain(operations.all());
        for (name, sql) in outbox.all().into_iter().chain(primitives).chain(schema.all()) {
            assert!(
                ["select", "insert", "create", "with"].iter().any(|verb| sql.starts_with(verb)),
                "{name}: {sql}"
            );
            assert!(!sql.contains("{{") && !sql.contains("-- "), "{name}: {sql}");
        }
    }

    #[test]
    fn every_statement_in_the_files_is_used() {
        let names = Names::default();
        let known = QueueStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/queue.sql").matches("-- name: ").count(), known);
        let known = InboxStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/inbox.sql").matches("-- name: ").count(), known);
        let known = AuditStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/audit.sql").matches("-- name: ").count(), known);
        let known = OperationStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/operations.sql").matches("-- name: ").count(), known);
        let known = LeaseStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/lease.sql").matches("-- name: ").count(), known);
        let known = TimerStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/timers.sql").matches("-- name: ").count(), known);
        let known = JobStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/jobs.sql").matches("-- name: ").count(), known);
        let known = JoinStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/joins.sql").matches("-- name: ").count(), known);
        let known = FanoutStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/fanout.sql").matches("-- name: ").count(), known);
        let known = HealthStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/health.sql").matches("-- name: ").count(), known);
        let known = DiagnosisStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/diagnosis.sql").matches("-- name: ").count(), known);
        let known = SchemaStatements::new(&names).unwrap().all().len();
        assert_eq!(include_str!("../queries/schema.sql").matches("-- name: ").count(), known);
    }
}
