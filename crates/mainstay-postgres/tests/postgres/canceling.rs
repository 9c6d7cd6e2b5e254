//! Calls that are given up end on the server, too: they hold no backend there, and nothing of them is committed later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::Context;
use mainstay_core::runtime::Mainstay;
use mainstay_core::store::Provider;
use mainstay_postgres::{Postgres, PostgresTransaction};
use mainstay_tests::{FaultProxy, PostgresUrl, eventually};
use tokio_postgres::Client;

use crate::support::{DEADLINE, Fixture, somebody_waits};

const POOL: usize = 4;

/// So many calls of producers fail while the table is locked: each backend of the pool several times over.
const FAILED: usize = 40;

const LOCK: &str = "begin; lock table infra.outbox in access exclusive mode";

/// The backends of this program; with `busy` only those that are not idle.
async fn backends(client: &Client, program: &str, busy: bool) -> BTreeSet<i32> {
    let seen = "select pid from pg_stat_activity where application_name = $1 and (state <> 'idle' or not $2)";
    client.query(seen, &[&program, &busy]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Calls fail while a table is locked, and never hold more backends than the pool's, one that listens, and one more.
async fn a_lock_uses_up_no_backends(through_bouncer: bool) {
    let fixture = Fixture::new().await;
    let program = format!("producers_{through_bouncer}_{}", fixture.database.name());
    let program = program.chars().take(63).collect::<String>();
    let url = if through_bouncer { fixture.database.bouncer_url() } else { fixture.database.url() };
    let url = PostgresUrl::parse(&url).with_parameter("application_name", &program).to_string();
    let postgres = Postgres::builder(&url).pool_size(POOL).call_timeout(Duration::from_millis(300));
    let postgres = postgres.connect().await.unwrap();
    let outbox = Outbox::new(postgres.outbox());
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handled);
    let worker = Mainstay::builder_over(Arc::new(postgres.clone()))
        .outbox(|outbox| {
            outbox.raw_handler("t", move |_: Context| {
                counted.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            })
        })
        .build()
        .unwrap();
    let worker = worker.start().await.unwrap();
    let (failed, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let producers: Vec<_> = (0..POOL)
        .map(|_| {
            let (outbox, failed, stop) = (outbox.clone(), Arc::clone(&failed), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    if let Err(error) = outbox.enqueue(Message::new("t", "").idempotency_key(uuid())).await {
                        assert!(error.is_retryable(), "{error}");
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    eventually(DEADLINE, "messages are handled", async || handled.load(Ordering::SeqCst) > 0).await;

    let (admin, locker) = (fixture.database.client().await, fixture.database.client().await);
    locker.batch_execute(LOCK).await.unwrap();
    let before = failed.load(Ordering::SeqCst);
    eventually(DEADLINE, "calls have failed", async || {
        // One that is just ending is not held any more: it is not there a moment later. The idle ones behind a pooler are the pooler's.
        let first = backends(&admin, &program, through_bouncer).await;
        let second = backends(&admin, &program, through_bouncer).await;
        let held = first.intersection(&second).count();
        assert!(held <= POOL + 2, "{held} backends are held");
        failed.load(Ordering::SeqCst) >= before + FAILED
    })
    .await;
    locker.batch_execute("commit").await.unwrap();

    let before = handled.load(Ordering::SeqCst);
    eventually(DEADLINE, "messages are handled again", async || handled.load(Ordering::SeqCst) > before)
        .await;
    stop.store(true, Ordering::SeqCst);
    for producer in producers {
        producer.await.unwrap();
    }
    worker.stop().await.unwrap();
    postgres.close().await;
    fixture.end().await;
}

fn uuid() -> String {
    mainstay_core::WorkItemId::new().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_table_uses_up_no_backends() {
    a_lock_uses_up_no_backends(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_table_uses_up_no_backends_behind_pgbouncer() {
    a_lock_uses_up_no_backends(true).await;
}

/// What was given up while it waited is not there when it can wait no more.
async fn ends_on_the_server(fixture: &Fixture, postgres: &Postgres) {
    let outbox = Outbox::new(postgres.outbox());
    outbox.stats().await.unwrap();
    let (admin, locker) = (fixture.database.client().await, fixture.database.client().await);
    // Dropped by the caller, and given up by the pool.
    for patience in [Duration::from_millis(50), DEADLINE] {
        locker.batch_execute(LOCK).await.unwrap();
        let mut enqueue = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.enqueue(Message::new("t", "").idempotency_key("key")).await }
        });
        eventually(DEADLINE, "it waits", async || somebody_waits(&admin).await).await;
        match tokio::time::timeout(patience, &mut enqueue).await {
            Ok(answer) => {
                let error = answer.unwrap().unwrap_err();
                assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true), "{error}");
                assert!(error.message().contains("call_timeout"), "{error}");
            }
            Err(_) => enqueue.abort(),
        }
        eventually(DEADLINE, "it has ended on the server", async || !somebody_waits(&admin).await).await;
        locker.batch_execute("commit").await.unwrap();
        assert_eq!(fixture.open().await, 0);
    }
    // The pool is as good as new.
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(fixture.open().await, 1);
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_on_the_server() {
    let fixture = Fixture::new().await;
    // Enough for a call on a slow machine, and less than the test waits.
    let limit = Duration::from_secs(3);
    for url in [fixture.database.url(), fixture.database.bouncer_url()] {
        let postgres = Postgres::builder(&url).pool_size(1).listen(false).call_timeout(limit);
        let postgres = postgres.connect().await.unwrap();
        ends_on_the_server(&fixture, &postgres).await;
        postgres.close().await;
        let owner = mainstay_core::OwnerToken::new();
        let batch = fixture.outbox.claim(&mainstay_core::queue::ClaimRequest::new(owner)).await.unwrap();
        fixture.outbox.ack(owner, &batch.handles()).await.unwrap();
    }
    fixture.end().await;
}

#[tokio::test]
async fn a_transaction_whose_call_is_given_up_can_only_be_rolled_back() {
    let fixture = Fixture::new().await;
    let proxy = FaultProxy::for_url(&fixture.database.url()).await;
    let url = PostgresUrl::parse(&proxy.url(&fixture.database.url())).with_parameter("sslmode", "disable");
    let limit = Duration::from_secs(2);
    let postgres = Postgres::builder(&url.to_string()).pool_size(1).listen(false).call_timeout(limit);
    let postgres = postgres.connect().await.unwrap();
    let outbox = Outbox::new(postgres.outbox());
    let mut tx = postgres.outbox().begin().await.unwrap();
    let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
    proxy.silence("outbox_add");
    let error = outbox.enqueue_in(own, Message::new("t", "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(proxy.silenced(), 1);
    assert!(own.client().is_err());
    tx.rollback().await.unwrap();
    // On another connection: the silent one is closed.
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(fixture.open().await, 1);
}

/// The watch of a lent connection leaves it alone when it is idle.
#[tokio::test]
async fn a_handler_that_hangs_in_a_transaction_is_ended_by_the_server() {
    let fixture = Fixture::new().await;
    let admin = fixture.database.client().await;
    let url = PostgresUrl::parse(&fixture.database.url())
        .with_parameter("application_name", "hangs")
        .with_parameter("options", "-c%20idle_in_transaction_session_timeout%3D1s");
    // An empty statement every 100 ms, if there were no end to them.
    let limit = Duration::from_millis(400);
    let postgres = Postgres::builder(&url.to_string()).pool_size(1).listen(false).call_timeout(limit);
    let postgres = postgres.connect().await.unwrap();
    let mut tx = postgres.outbox().begin().await.unwrap();
    let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
    own.client().unwrap().batch_execute("select 1").await.unwrap();
    let open =
        "select from pg_stat_activity where application_name = 'hangs' and state = 'idle in transaction'";
    eventually(DEADLINE, "the server has ended it", async || {
        admin.query(open, &[]).await.unwrap().is_empty()
    })
    .await;
    assert!(own.client().unwrap().batch_execute("select 1").await.is_err());
    drop(tx);
    postgres.close().await;
    fixture.end().await;
}

/// What a worker calls by itself waits for a lock for less long than the worker waits for it, also when that is gone.
#[tokio::test]
async fn functions_of_workers_do_not_wait_for_locks_without_end() {
    let fixture = Fixture::new().await;
    let (admin, locker) = (fixture.database.client().await, fixture.database.client().await);
    locker.batch_execute(LOCK).await.unwrap();
    let claim = "select from infra.outbox_take(gen_random_uuid(), 30, 1)";
    let error = admin.execute(claim, &[]).await.unwrap_err();
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE), "{error:?}");
    locker.batch_execute("commit").await.unwrap();
    // Within an application's transaction its own choice holds, and nothing of a worker's is left behind.
    let own = "begin; set local lock_timeout = '7s'; select infra.operations_start('k');
        do $$ begin assert current_setting('lock_timeout') = '7s'; end $$; rollback";
    admin.batch_execute(own).await.unwrap();
    fixture.end().await;
}

/// Functions without a `lock_timeout`, and why they need none. All others have one.
const PATIENT: [(&str, &str); 4] = [
    (
        "^((outbox|timers|job_runs|inbox)_(add|add_one|add_once|enqueue|enqueue_many)|timers_schedule|\
          joins_(start|attach|attach_pairs|report)|lease_guard|audit_(write|note)|inbox_already_processed)$",
        "applications call them in transactions of their own, whose lock_timeout is their choice",
    ),
    (
        "^((outbox|timers|job_runs|inbox)_(claim|ack|abandon|fail|release|settle)|inbox_guard_(complete|fail|release))$",
        "they only call a function that has one",
    ),
    (
        "^((outbox|timers|job_runs|inbox)_(cancel|requeue|requeue_where|pause|resume|release_key)|timers_reschedule|inbox_(revive|mark_.*)|\
          jobs_(create_or_update|register|delete|set_enabled|enable|disable|trigger|trigger_run)|joins_cancel|lease_force_release|\
          fanout_(register|set|run|delete|forget_shard))$",
        "an operator's action may take as long as its caller waits",
    ),
    (
        "^((outbox|timers|job_runs|inbox)_(horizon|horizon_passed|next_due|first_due|stats|stats_by_topic|uuid7)|timers_next_event_time|inbox_ledger_stats|\
          jobs_next_due|lease_(list|list_by_prefix|first_number)|joins_standing|audit_as)$",
        "they only read",
    ),
];

#[tokio::test]
async fn functions_of_workers_have_a_lock_timeout() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let functions = "select distinct proname::text, provolatile <> 'v', coalesce(obj_description(p.oid), '') like 'Internal:%',
               array_to_string(coalesce(proconfig, '{}'), ' ') ~ 'lock_timeout', prorettype = 'trigger'::regtype
          from pg_proc p join pg_namespace n on n.oid = p.pronamespace where nspname = 'infra' order by 1";
    let queries = [
        include_str!("../../queries/queue.sql"),
        include_str!("../../queries/inbox.sql"),
        include_str!("../../queries/jobs.sql"),
        include_str!("../../queries/joins.sql"),
        include_str!("../../queries/timers.sql"),
        include_str!("../../queries/lease.sql"),
        include_str!("../../queries/fanout.sql"),
        include_str!("../../queries/operations.sql"),
        include_str!("../../queries/audit.sql"),
    ]
    .concat();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for row in client.query(functions, &[]).await.unwrap() {
        let (name, reads, internal, has): (String, bool, bool, bool) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let is_called = || {
            let queues = ["outbox", "timers", "job_runs", "inbox"];
            let tables =
                ["jobs", "joins", "lease", "fanout", "operations", "audit"].into_iter().chain(queues);
            let (table, part) =
                tables.filter_map(|table| Some((table, name.strip_prefix(table)?))).next().unwrap();
            queries.contains(&format!("{{{{{table}}}}}{part}\"("))
                || queues.contains(&table) && queries.contains(&format!("{{{{queue}}}}{part}\"("))
        };
        let mut reason = None;
        for (pattern, why) in PATIENT {
            let pattern = pattern.replace(char::is_whitespace, "");
            if client.query_one("select $1::text ~ $2", &[&name, &pattern]).await.unwrap().get(0) {
                used.insert(why);
                reason = Some(why);
            }
        }
        // Those that only read by their own account, and parts of other functions, which the program does not call.
        let by_itself = reads || row.get::<_, bool>(4) || (internal && !is_called());
        match (has, reason) {
            (true, Some(why)) => wrong.push(format!("{name} has one, although {why}")),
            (false, None) if !by_itself => wrong.push(format!("{name} has none")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(used.len(), PATIENT.len());
    fixture.end().await;
}
