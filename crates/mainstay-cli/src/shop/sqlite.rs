//! The shop's tables on SQLite, through a rusqlite connection of its own, as an application would have one.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use mainstay::lease::Lease;
use mainstay::sqlite::SqliteTransaction;
use mainstay::{Context, HandlerResult, Outbox, WorkItemId};
use rusqlite::{Connection, TransactionBehavior, params};
use uuid::Uuid;

use super::books::{Ledger, LedgerOrder, LedgerShipment};
use super::{Order, Shop};

/// Long, because a handler's transaction may hold the one write lock for a while.
const BUSY: Duration = Duration::from_secs(30);

/// The shop on SQLite.
pub(crate) struct SqliteShop {
    connection: Arc<Mutex<Connection>>,
    orders: String,
    shipments: String,
    arrivals: String,
    shifts: String,
}

impl SqliteShop {
    /// Opens the file that Mainstay has open too.
    pub(crate) fn connect(path: &Path, schema: &str) -> anyhow::Result<Self> {
        let connection = Connection::open(path).context("the shop can't open the database")?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch("pragma journal_mode = wal; pragma synchronous = full")?;
        let table = |name: &str| format!("\"{}_{name}\"", schema.replace('"', "\"\""));
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
            orders: table("shop_orders"),
            shipments: table("shop_shipments"),
            arrivals: table("shop_arrivals"),
            shifts: table("shop_shifts"),
        })
    }

    /// Runs on a thread where blocking harms nobody.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let connection = Arc::clone(&self.connection);
        let task = move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(task).await?
    }
}

impl Shop for SqliteShop {
    async fn open(&self) -> anyhow::Result<()> {
        let (orders, shipments, arrivals, shifts) =
            (&self.orders, &self.shipments, &self.arrivals, &self.shifts);
        // No unique constraint on shipments: a second one must be found by the books, not prevented.
        let tables = format!(
            "create table if not exists {orders} (
                run blob not null, number integer not null, customer integer not null, kind text not null,
                work_item blob not null, placed_at text not null default current_timestamp, primary key (run, number)
             ) strict;
             create table if not exists {shipments} (
                id integer primary key, run blob not null, number integer not null, notice blob not null,
                shipped_at text not null default current_timestamp
             ) strict;
             create table if not exists {arrivals} (
                id integer primary key, run blob not null, number integer not null,
                arrived_at text not null default current_timestamp
             ) strict;
             create table if not exists {shifts} (
                id integer primary key, run blob not null, foreman text not null, epoch integer not null,
                began_at text not null default current_timestamp
             ) strict"
        );
        self.run(move |connection| Ok(connection.execute_batch(&tables)?)).await
    }

    async fn place(&self, outbox: &Outbox, order: &Order) -> anyhow::Result<()> {
        let insert = format!(
            "insert into {} (run, number, customer, kind, work_item) values (?, ?, ?, ?, ?)",
            self.orders
        );
        let (outbox, order) = (outbox.clone(), order.clone());
        self.run(move |connection| {
            let mut tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let enqueued = outbox.enqueue_in_blocking(&mut tx, order.message()?)?;
            tx.prepare_cached(&insert)?.execute(params![
                bytes(order.run),
                order.number as i64,
                order.customer as i64,
                order.kind.name(),
                bytes(enqueued.work_item.as_uuid()),
            ])?;
            Ok(tx.commit()?)
        })
        .await
    }

    async fn ship(&self, order: &Order, context: &Context) -> HandlerResult {
        let mut tx = context.transaction::<SqliteTransaction>().await?;
        let notice = tx.enqueue(order.notice()?).await?;
        let insert = format!("insert into {} (run, number, notice) values (?, ?, ?)", self.shipments);
        let (run, number) = (bytes(order.run), order.number as i64);
        let notice = bytes(notice.work_item.as_uuid());
        tx.driver()
            .run(move |connection| {
                connection.prepare_cached(&insert)?.execute(params![run, number, notice]).map(drop)
            })
            .await?;
        Ok(tx.complete().await?)
    }

    async fn arrive(&self, order: &Order, context: &Context) -> HandlerResult {
        let mut tx = context.transaction::<SqliteTransaction>().await?;
        let insert = format!("insert into {} (run, number) values (?, ?)", self.arrivals);
        let (run, number) = (bytes(order.run), order.number as i64);
        tx.driver()
            .run(move |connection| {
                connection.prepare_cached(&insert)?.execute(params![run, number]).map(drop)
            })
            .await?;
        Ok(tx.complete().await?)
    }

    async fn write_shift(&self, run: Uuid, foreman: &str, lease: &Arc<Lease>) -> anyhow::Result<()> {
        let insert = format!("insert into {} (run, foreman, epoch) values (?, ?, ?)", self.shifts);
        let (lease, foreman) = (Arc::clone(lease), foreman.to_owned());
        self.run(move |connection| {
            let mut tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            lease.guard_blocking(&mut tx)?;
            tx.prepare_cached(&insert)?.execute(params![bytes(run), foreman, lease.epoch()])?;
            Ok(tx.commit()?)
        })
        .await
    }

    async fn ledger(&self, run: Uuid) -> anyhow::Result<Ledger> {
        let orders = format!("select number, customer, kind, work_item from {} where run = ?", self.orders);
        let shipments = format!("select number, notice from {} where run = ? order by id", self.shipments);
        let arrivals = format!("select number from {} where run = ?", self.arrivals);
        let shifts = format!("select epoch from {} where run = ? order by id", self.shifts);
        self.run(move |connection| {
            let run = bytes(run);
            let arrivals = connection
                .prepare(&arrivals)?
                .query_map([run], |row| Ok(row.get::<_, i64>(0)? as u64))?
                .collect::<Result<_, _>>()?;
            let shifts =
                connection.prepare(&shifts)?.query_map([run], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let orders = connection
                .prepare(&orders)?
                .query_map([run], |row| {
                    Ok(LedgerOrder {
                        number: row.get::<_, i64>(0)? as u64,
                        customer: row.get::<_, i64>(1)? as u64,
                        kind: row.get(2)?,
                        work_item: id(row.get(3)?),
                    })
                })?
                .collect::<Result<_, _>>()?;
            let shipments = connection
                .prepare(&shipments)?
                .query_map([run], |row| {
                    Ok(LedgerShipment { number: row.get::<_, i64>(0)? as u64, notice: id(row.get(1)?) })
                })?
                .collect::<Result<_, _>>()?;
            Ok(Ledger { orders, shipments, arrivals, shifts })
        })
        .await
    }
}

fn bytes(id: Uuid) -> [u8; 16] {
    id.into_bytes()
}

fn id(bytes: [u8; 16]) -> WorkItemId {
    WorkItemId::from_uuid(Uuid::from_bytes(bytes))
}
