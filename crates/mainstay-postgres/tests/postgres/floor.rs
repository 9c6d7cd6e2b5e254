//! The floors of the ready index: they never hide anything that can be claimed, and with them a claim stays as cheap as it was
//! however much was settled while some transaction was open.

use std::collections::HashMap;

use mainstay_tests::{TestDatabase, eventually};
use tokio_postgres::{Client, Row, SimpleQueryMessage};
use uuid::Uuid;

use crate::support::{DEADLINE, database, somebody_waits};

/// Open items that a claim would not look at. There must never be one.
const BELOW: &str = "select count(*) from (select * from infra.outbox_floor order by n desc limit 1) f
     cross join unnest(f.levels, f.due_ats, f.seqs) k(level, due, seq)
     join infra.outbox q on not q.parked and q.priority = k.level and (q.due_at, q.seq) <= (k.due, k.seq)";

/// Numbers that look random and come again with the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// One connection, what it has claimed, and whether it is in a transaction.
struct Session {
    client: Client,
    owner: Uuid,
    held: Vec<Uuid>,
    within: bool,
    savepoints: usize,
}

impl Session {
    async fn open(database: &TestDatabase) -> Self {
        let client = database.client().await;
        // At every opportunity. Nothing here should wait; if it does, the test must not.
        client.batch_execute("set mainstay.floor_pace = '0'; set lock_timeout = '30 s'").await.unwrap();
        Self { client, owner: Uuid::new_v4(), held: Vec::new(), within: false, savepoints: 0 }
    }

    async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    async fn enqueue(&self, dice: &mut Dice) {
        let key = ["null", "null", "'a'", "'b'", "'c'"][dice.below(5)];
        let priority = [0, 0, 0, 5][dice.below(4)];
        self.run(&format!(
            "select infra.outbox_enqueue('t', '', ordering_key => {key}, priority => {priority})"
        ))
        .await;
    }

    async fn claim(&self, lease: &str, batch: usize) -> Vec<Uuid> {
        let sql =
            format!("select id from infra.outbox_take($1, {lease}, {batch}, 1000000) where verdict = 1");
        let rows = self.client.query(&sql, &[&self.owner]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn settle(&self, verb: &str, ids: &[Uuid]) {
        let delay = if verb == "abandon" { ", delay_seconds => 0.000001" } else { "" };
        let sql = format!("select infra.outbox_{verb}($1, $2{delay})");
        self.client.query(&sql, &[&self.owner, &ids]).await.unwrap();
    }

    async fn step(&mut self, dice: &mut Dice) {
        if !self.within {
            match dice.below(8) {
                0 => self.enqueue(dice).await,
                1 => drop(self.claim("0.000001", 2).await), // and dies
                2 => {
                    let ids = self.claim("1000", 2).await;
                    self.settle("abandon", &ids).await;
                }
                3 => {
                    let ids = self.claim("1000", 1).await;
                    self.held.extend(ids);
                }
                4 | 5 => {
                    let ids = self.claim("1000", 4).await;
                    self.settle("ack", &ids).await;
                }
                choice => {
                    self.run("begin").await;
                    if choice == 6 {
                        self.run("select pg_current_xact_id()").await;
                    }
                    (self.within, self.savepoints) = (true, 0);
                }
            }
            return;
        }
        match dice.below(8) {
            0..=2 => self.enqueue(dice).await,
            3 => {
                self.savepoints += 1;
                self.run(&format!("savepoint s{}", self.savepoints)).await;
            }
            4 if self.savepoints > 0 => {
                let end = ["rollback to", "release"][dice.below(2)];
                self.run(&format!("{end} s{}", self.savepoints)).await;
                self.savepoints -= usize::from(end == "release");
            }
            // Kept in the list: it may be rolled back.
            4 | 5 => self.settle("ack", &self.held).await,
            6 => self.end("commit").await,
            _ => self.end("rollback").await,
        }
    }

    async fn end(&mut self, how: &str) {
        if self.within {
            self.run(how).await;
        }
        self.within = false;
    }
}

/// Three sessions that take turns at random, and a look at the floors after each step. The number of steps after which
/// something lay below one, if that happened.
async fn interleave(database: &TestDatabase, seed: u64, steps: usize) -> Option<usize> {
    let mut dice = Dice(seed);
    let watcher = database.client().await;
    watcher.batch_execute("truncate infra.outbox, infra.outbox_history, infra.outbox_floor").await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(Session::open(database).await);
    }
    for step in 0..steps {
        let turn = dice.below(3);
        sessions[turn].step(&mut dice).await;
        if watcher.query_one(BELOW, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            return Some(step);
        }
    }
    for session in &mut sessions {
        session.end("commit").await;
    }
    if watcher.query_one(BELOW, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        return Some(steps);
    }
    // All that is left comes out by claiming, whoever holds it now.
    watcher
        .batch_execute("update infra.outbox set locked_until = '-infinity' where status = 1")
        .await
        .unwrap();
    let count = "select count(*) from infra.outbox";
    while watcher.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        let ids = sessions[0].claim("1000", 100).await;
        assert!(!ids.is_empty(), "seed {seed}: something can't be claimed any more");
        sessions[0].settle("ack", &ids).await;
    }
    None
}

/// Replaces parts of the text of functions.
async fn mutate(database: &TestDatabase, changes: &[(&str, &str)]) {
    let client = database.client().await;
    let rows = client
        .query("select pg_get_functiondef(oid) from pg_proc where proname in ('outbox_take', 'outbox_raise_floor')", &[])
        .await
        .unwrap();
    let mut changed = 0;
    for row in rows {
        let text: String = row.get(0);
        let mut new = text.clone();
        for (from, to) in changes {
            changed += new.matches(from).count();
            new = new.replace(from, to);
        }
        client.batch_execute(&new).await.unwrap();
    }
    assert!(changed >= changes.len(), "the functions read differently now: {changes:?}");
}

/// Asks for locks at once instead of after a while.
const IMPATIENT: [(&str, &str); 2] =
    [("else interval '1 s' end", "else interval '0' end"), ("then interval '250 ms'", "then interval '0'")];

#[tokio::test]
async fn no_floor_ever_hides_an_item() {
    let database = database().await;
    for seed in 0..12 {
        assert_eq!(interleave(&database, seed, 250).await, None, "seed {seed}");
    }
}

#[tokio::test]
async fn no_floor_found_by_asking_for_locks_hides_an_item() {
    let database = database().await;
    mutate(&database, &IMPATIENT).await;
    for seed in 100..112 {
        assert_eq!(interleave(&database, seed, 250).await, None, "seed {seed}");
    }
}

/// The test above would notice: without its rules, the floor hides items.
#[tokio::test]
async fn floors_without_their_rules_are_caught() {
    let mutants: [&[(&str, &str)]; 3] = [
        // Does not wait for those that are open.
        &[(">= was.next_xid then", ">= 0 then"), (">= f.next_xid", ">= 0")],
        // Takes anybody's word about locks.
        &[IMPATIENT[0], IMPATIENT[1], ("between 1 and 2147483647", "between 1 and 0")],
        // Passes items in progress.
        &[(
            "and (q.due_at, q.seq) > (k.due, k.seq)\n",
            "and (q.due_at, q.seq) > (k.due, k.seq) and q.status = 0\n",
        )],
    ];
    for mutant in mutants {
        let database = database().await;
        mutate(&database, mutant).await;
        let mut caught = false;
        for seed in 0..40 {
            caught = caught || interleave(&database, seed, 250).await.is_some();
        }
        assert!(caught, "survives: {mutant:?}");
    }
}

/// The blocks that a query reads.
async fn blocks(session: &Session, query: &str) -> i64 {
    let explain = format!("explain (analyze, buffers, costs off, timing off, format json) {query}");
    // As text: the driver has no type for JSON.
    let answer = session.client.simple_query(&explain).await.unwrap();
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(row.unwrap()).unwrap();
    let blocks = |kind: &str| plan[0]["Plan"][kind].as_i64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

/// Lets messages flow while `open` is open, and waits until a claim reads few blocks.
async fn flow(open: &str) {
    let database = database().await;
    let holder = database.client().await;
    holder.batch_execute("create table business (n integer)").await.unwrap();
    holder.batch_execute(open).await.unwrap();
    let session = Session::open(&database).await;
    for _ in 0..100 {
        session
            .run("select infra.outbox_enqueue_many(null, null, array_fill('t'::text, array[200]), array_fill(''::text, array[200]))")
            .await;
        let ids = session.claim("1000", 200).await;
        assert_eq!(ids.len(), 200);
        session.settle("ack", &ids).await;
    }
    let claim = format!("select * from infra.outbox_take('{}', 30, 10)", session.owner);
    // Without floors each claim would read all blocks that the 20,000 have lain in, some 2,000.
    eventually(DEADLINE, "a claim reads few blocks", async || {
        session.claim("1000", 1).await;
        blocks(&session, &claim).await < 400
    })
    .await;
    // Not the first time: that reads the catalogues as well.
    eventually(DEADLINE, "a look reads few blocks", async || {
        blocks(&session, "select infra.outbox_next_due()").await < 400
    })
    .await;
    holder.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn a_claim_stays_cheap_while_a_snapshot_is_held() {
    flow("begin isolation level repeatable read; select count(*) from infra.outbox").await;
}

#[tokio::test]
async fn a_claim_stays_cheap_while_a_transaction_that_wrote_is_open() {
    flow("begin isolation level repeatable read; insert into business values (1); select count(*) from infra.outbox").await;
}

#[tokio::test]
async fn what_was_moved_below_by_hand_is_found_by_the_sweep() {
    let database = database().await;
    let session = Session::open(&database).await;
    // Transactions of other tests on the same server hold it up now and then.
    eventually(DEADLINE, "there is a floor", async || {
        session.run("select infra.outbox_enqueue('t', '')").await;
        let ids = session.claim("1000", 10).await;
        session.settle("ack", &ids).await;
        let floor = "select due_ats[1] > '-infinity' from infra.outbox_floor order by n desc limit 1";
        session.client.query_one(floor, &[]).await.unwrap().get(0)
    })
    .await;
    session.run("select infra.outbox_enqueue('t', 'hidden', due_in_seconds => 1000)").await;
    session.run("update infra.outbox set due_at = '2001-01-01'").await;
    assert!(session.claim("1000", 1).await.is_empty(), "nobody told the floors");
    session
        .run("update infra.outbox_floor set swept_at = '-infinity'; select infra.outbox_reap_expired()")
        .await;
    assert_eq!(session.claim("1000", 1).await.len(), 1);
}

#[tokio::test]
async fn floors_from_elsewhere_or_from_the_future_do_not_count() {
    let strange = [
        "made_in = 1",
        "noted_at = now() + interval '1 hour'",
        "next_xid = 4611686018427387904, noted_at = '2001-01-01'",
    ];
    for change in strange {
        let database = database().await;
        let session = Session::open(&database).await;
        session.run("select infra.outbox_enqueue('t', '')").await;
        let ids = session.claim("1000", 1).await;
        session.settle("ack", &ids).await;
        session.run(&format!("update infra.outbox_floor set {change}")).await;
        session.run("select infra.outbox_enqueue('t', '')").await;
        let ids = session.claim("1000", 1).await;
        assert_eq!(ids.len(), 1, "{change}");
        session.settle("ack", &ids).await;
        // A new beginning, from where the floors go on.
        let newest = "select made_in = tableoid and noted_at <= clock_timestamp() and next_xid is null from infra.outbox_floor order by n desc limit 1";
        assert!(session.client.query_one(newest, &[]).await.unwrap().get::<_, bool>(0), "{change}");
    }
}

#[tokio::test]
async fn a_renewal_waits_for_nobody() {
    let database = database().await;
    let (session, other) = (Session::open(&database).await, database.client().await);
    session.run("select infra.outbox_enqueue('t', ''), infra.outbox_enqueue('t', '')").await;
    let ids = session.claim("1000", 2).await;
    let acks = format!("begin; select infra.outbox_ack('{}', array['{}'::uuid])", session.owner, ids[0]);
    other.batch_execute(&acks).await.unwrap();
    session.run("set lock_timeout = '1 ms'").await;
    let renew = "select * from infra.outbox_renew($1, $2, null, 5000)";
    let rows = session.client.query(renew, &[&session.owner, &ids]).await.unwrap();
    let renewed =
        |rows: &[Row]| rows.iter().map(|row| (row.get(0), row.get(1))).collect::<HashMap<Uuid, bool>>();
    let held = HashMap::from([(ids[0], false), (ids[1], true)]);
    assert_eq!(renewed(&rows), held, "the one being acknowledged is held, for as long as it was");
    other.batch_execute("commit").await.unwrap();
    let rows = session.client.query(renew, &[&session.owner, &ids]).await.unwrap();
    assert_eq!(renewed(&rows), HashMap::from([(ids[1], true)]));
}

/// A renewal that its caller gave up can go on in the server, and execute after the next one.
#[tokio::test]
async fn a_renewal_that_is_held_up_never_shortens_a_lease() {
    let database = database().await;
    let (session, held_up) = (Session::open(&database).await, database.client().await);
    session.run("select infra.outbox_enqueue('t', '')").await;
    let ids = session.claim("1000", 1).await;
    let owner = session.owner;
    session.run("select pg_advisory_lock(1)").await;
    // Begins now, and renews once the lock is free.
    let late = format!(
        "with lock as materialized (select pg_advisory_lock(1)::text as free)
         select infra.outbox_renew('{owner}', array['{}'::uuid], null, 1000 + length(lock.free)) from lock",
        ids[0]
    );
    let late = tokio::spawn(async move { held_up.query(&late, &[]).await.unwrap().len() });
    eventually(DEADLINE, "the first renewal waits", async || somebody_waits(&session.client).await).await;
    let renew = "select infra.outbox_renew($1, $2, null, 1000)";
    assert_eq!(session.client.query(renew, &[&owner, &ids]).await.unwrap().len(), 1);
    let remember = "create temporary table promised as select locked_until from infra.outbox";
    session.run(remember).await;
    session.run("select pg_advisory_unlock(1)").await;
    assert_eq!(late.await.unwrap(), 1);
    let shortened = "select o.locked_until < p.locked_until from infra.outbox o, promised p";
    assert!(!session.client.query_one(shortened, &[]).await.unwrap().get::<_, bool>(0));
}

/// A claim that parks what waits behind a running item looks at that item, and no more.
#[tokio::test]
async fn a_claim_in_the_same_lane_does_not_hinder_a_renewal() {
    let database = database().await;
    let (session, other) = (Session::open(&database).await, database.client().await);
    session.run("select infra.outbox_enqueue('t', '', ordering_key => 'k')").await;
    let ids = session.claim("1000", 1).await;
    session.run("select infra.outbox_enqueue('t', '', ordering_key => 'k')").await;
    let claim = format!("begin; select infra.outbox_claim('{}', 30, 10)", Uuid::new_v4());
    other.batch_execute(&claim).await.unwrap();
    let renew = "select * from infra.outbox_renew($1, $2, null, 5000)";
    let rows = session.client.query(renew, &[&session.owner, &ids]).await.unwrap();
    assert_eq!(rows.len(), 1);
    let extended = "select locked_until > now() + interval '4000 seconds' from infra.outbox where id = $1";
    let row = session.client.query_one(extended, &[&ids[0]]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    other.batch_execute("rollback").await.unwrap();
}
