//! The shop's tables on PostgreSQL, through the provider's pool. Statements are sent with their types and never
//! prepared, so that it works through a pooler in transaction mode too.

use std::sync::Arc;

use anyhow::Context as _;
use mainstay::lease::Lease;
use mainstay::postgres::{Postgres, PostgresTransaction};
use mainstay::{Context, HandlerResult, Outbox, WorkItemId};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::books::{Ledger, LedgerOrder, LedgerShipment};
use super::{Order, Shop};

/// Keeps two demos that start together from making the same table at the same moment.
const LOCK: i64 = 0x6d61_696e_7374_6179;

/// The shop on PostgreSQL.
pub(crate) struct PostgresShop {
    postgres: Postgres,
    orders: String,
    shipments: String,
    arrivals: String,
    shifts: String,
}

impl PostgresShop {
    /// Uses the provider's connections.
    pub(crate) fn new(postgres: Postgres) -> Self {
        let schema = postgres.names().schema().replace('"', "\"\"");
        let table = |name: &str| format!("\"{schema}\".\"{name}\"");
        Self {
            orders: table("shop_orders"),
            shipments: table("shop_shipments"),
            arrivals: table("shop_arrivals"),
            shifts: table("shop_shifts"),
            postgres,
        }
    }
}

impl Shop for PostgresShop {
    async fn open(&self) -> anyhow::Result<()> {
        let (orders, shipments, arrivals, shifts) =
            (&self.orders, &self.shipments, &self.arrivals, &self.shifts);
        // No unique constraint on shipments: a second one must be found by the books, not prevented.
        let tables = format!(
            "begin;
             select pg_advisory_xact_lock({LOCK});
             create table if not exists {orders} (
                run uuid not null, number bigint not null, customer bigint not null, kind text not null,
                work_item uuid not null, placed_at timestamptz not null default statement_timestamp(),
                primary key (run, number)
             );
             create table if not exists {shipments} (
                id bigint generated always as identity primary key, run uuid not null, number bigint not null,
                notice uuid not null, shipped_at timestamptz not null default statement_timestamp()
             );
             create table if not exists {arrivals} (
                id bigint generated always as identity primary key, run uuid not null, number bigint not null,
                arrived_at timestamptz not null default statement_timestamp()
             );
             create table if not exists {shifts} (
                id bigint generated always as identity primary key, run uuid not null, foreman text not null,
                epoch bigint not null, began_at timestamptz not null default statement_timestamp()
             );
             commit"
        );
        let client = self.postgres.pool().get().await?;
        client.batch_execute(&tables).await.context("the shop's tables can't be made")
    }

    async fn place(&self, outbox: &Outbox, order: &Order) -> anyhow::Result<()> {
        let mut client = self.postgres.pool().get().await?;
        let mut tx = client.transaction().await?;
        let enqueued = outbox.enqueue_in(&mut tx, order.message()?).await?;
        let insert = format!(
            "insert into {} (run, number, customer, kind, work_item) values ($1, $2, $3, $4, $5)",
            self.orders
        );
        let (number, customer) = (order.number as i64, order.customer as i64);
        tx.query_typed(
            &insert,
            &[
                (&order.run, Type::UUID),
                (&number, Type::INT8),
                (&customer, Type::INT8),
                (&order.kind.name(), Type::TEXT),
                (&enqueued.work_item.as_uuid(), Type::UUID),
            ],
        )
        .await?;
        Ok(tx.commit().await?)
    }

    async fn ship(&self, order: &Order, context: &Context) -> HandlerResult {
        let mut tx = context.transaction::<PostgresTransaction>().await?;
        let notice = tx.enqueue(order.notice()?).await?.work_item.as_uuid();
        let insert = format!("insert into {} (run, number, notice) values ($1, $2, $3)", self.shipments);
        let number = order.number as i64;
        tx.driver()
            .client()?
            .query_typed(&insert, &[(&order.run, Type::UUID), (&number, Type::INT8), (&notice, Type::UUID)])
            .await?;
        Ok(tx.complete().await?)
    }

    async fn arrive(&self, order: &Order, context: &Context) -> HandlerResult {
        let mut tx = context.transaction::<PostgresTransaction>().await?;
        let insert = format!("insert into {} (run, number) values ($1, $2)", self.arrivals);
        let number = order.number as i64;
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&order.run, Type::UUID), (&number, Type::INT8)];
        tx.driver().client()?.query_typed(&insert, &parameters).await?;
        Ok(tx.complete().await?)
    }

    async fn write_shift(&self, run: Uuid, foreman: &str, lease: &Arc<Lease>) -> anyhow::Result<()> {
        let mut client = self.postgres.pool().get().await?;
        let mut tx = client.transaction().await?;
        lease.guard(&mut tx).await?;
        let insert = format!("insert into {} (run, foreman, epoch) values ($1, $2, $3)", self.shifts);
        let epoch = lease.epoch();
        tx.query_typed(&insert, &[(&run, Type::UUID), (&foreman, Type::TEXT), (&epoch, Type::INT8)]).await?;
        Ok(tx.commit().await?)
    }

    async fn ledger(&self, run: Uuid) -> anyhow::Result<Ledger> {
        let client = self.postgres.pool().get().await?;
        let orders = format!("select number, customer, kind, work_item from {} where run = $1", self.orders);
        let orders = client.query_typed(&orders, &[(&run, Type::UUID)]).await?;
        let shipments = format!("select number, notice from {} where run = $1 order by id", self.shipments);
        let shipments = client.query_typed(&shipments, &[(&run, Type::UUID)]).await?;
        let arrivals = format!("select number from {} where run = $1", self.arrivals);
        let arrivals = client.query_typed(&arrivals, &[(&run, Type::UUID)]).await?;
        let shifts = format!("select epoch from {} where run = $1 order by id", self.shifts);
        let shifts = client.query_typed(&shifts, &[(&run, Type::UUID)]).await?;
        let id = WorkItemId::from_uuid;
        Ok(Ledger {
            arrivals: arrivals.iter().map(|row| row.get::<_, i64>(0) as u64).collect(),
            shifts: shifts.iter().map(|row| row.get(0)).collect(),
            orders: orders
                .iter()
                .map(|row| LedgerOrder {
                    number: row.get::<_, i64>(0) as u64,
                    customer: row.get::<_, i64>(1) as u64,
                    kind: row.get(2),
                    work_item: id(row.get(3)),
                })
                .collect(),
            shipments: shipments
                .iter()
                .map(|row| LedgerShipment { number: row.get::<_, i64>(0) as u64, notice: id(row.get(1)) })
                .collect(),
        })
    }
}
