//! The shop's tables on SQL Server. The customers' transactions are on connections of the shop's own, the handlers' on the provider's.

use std::sync::Arc;

use anyhow::Context as _;
use mainstay::lease::Lease;
use mainstay::sqlserver::tiberius::{Query, Row};
use mainstay::sqlserver::{Client, SqlServer, SqlServerTransaction};
use mainstay::{Context, HandlerResult, Outbox, WorkItemId};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::books::{Ledger, LedgerOrder, LedgerShipment};
use super::{Order, Shop};

/// The shop on SQL Server.
pub(crate) struct SqlServerShop {
    server: SqlServer,
    /// Connections that nobody uses just now, and on which no transaction is open.
    idle: Mutex<Vec<Client>>,
    schema: String,
}

impl SqlServerShop {
    /// Connects when first needed.
    pub(crate) fn new(server: SqlServer) -> Self {
        let schema = server.names().schema().replace('"', "\"\"");
        Self { server, idle: Mutex::default(), schema }
    }

    fn table(&self, name: &str) -> String {
        format!("\"{}\".\"shop_{name}\"", self.schema)
    }

    async fn client(&self) -> anyhow::Result<Client> {
        let idle = self.idle.lock().await.pop();
        match idle {
            Some(client) => Ok(client),
            None => Ok(self.server.client().await?),
        }
    }

    /// Back, after its last answer was read whole. One that failed is dropped instead.
    async fn give_back(&self, client: Client) {
        self.idle.lock().await.push(client);
    }

    async fn rows(
        &self,
        client: &mut Client,
        columns: &str,
        table: &str,
        run: Uuid,
    ) -> anyhow::Result<Vec<Row>> {
        let mut query =
            Query::new(format!("SELECT {columns} FROM {} WHERE run = @P1 ORDER BY id", self.table(table)));
        query.bind(run);
        Ok(query.query(client).await?.into_first_result().await?)
    }
}

async fn batch(client: &mut Client, sql: &str) -> anyhow::Result<()> {
    client.simple_query(sql).await?.into_results().await?;
    Ok(())
}

fn number(row: &Row, column: usize) -> u64 {
    row.get::<i64, _>(column).unwrap_or_default().unsigned_abs()
}

fn id(row: &Row, column: usize) -> WorkItemId {
    WorkItemId::from_uuid(row.get(column).unwrap_or_default())
}

impl Shop for SqlServerShop {
    async fn open(&self) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        // Two demos that start together don't make the same table at the same moment.
        let lock = "SET XACT_ABORT ON; BEGIN TRANSACTION; EXEC sp_getapplock @Resource = N'mainstay shop', @LockMode = N'Exclusive', @LockOwner = N'Transaction';";
        let key = "id BIGINT IDENTITY(1, 1) PRIMARY KEY, run UNIQUEIDENTIFIER NOT NULL";
        // No unique constraint on shipments: a second one must be found by the books, not prevented.
        let tables = [
            (
                "orders",
                "number BIGINT NOT NULL, customer BIGINT NOT NULL, kind NVARCHAR(100) NOT NULL, work_item UNIQUEIDENTIFIER NOT NULL",
            ),
            ("shipments", "number BIGINT NOT NULL, notice UNIQUEIDENTIFIER NOT NULL"),
            ("arrivals", "number BIGINT NOT NULL"),
            ("shifts", "foreman NVARCHAR(400) NOT NULL, epoch BIGINT NOT NULL"),
        ];
        let tables = tables.map(|(name, columns)| {
            let table = self.table(name);
            let literal = table.replace('\'', "''");
            format!("IF OBJECT_ID(N'{literal}', N'U') IS NULL CREATE TABLE {table} ({key}, {columns}, at DATETIME2(6) NOT NULL DEFAULT SYSUTCDATETIME());")
        });
        batch(&mut client, &format!("{lock} {} COMMIT TRANSACTION;", tables.concat()))
            .await
            .context("the shop's tables can't be made")?;
        self.give_back(client).await;
        Ok(())
    }

    async fn place(&self, outbox: &Outbox, order: &Order) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        batch(&mut client, "SET XACT_ABORT ON; BEGIN TRANSACTION").await?;
        let enqueued = outbox.enqueue_in(&mut client, order.message()?).await?;
        let columns = "(run, number, customer, kind, work_item) VALUES (@P1, @P2, @P3, @P4, @P5)";
        let mut insert = Query::new(format!("INSERT INTO {} {columns}", self.table("orders")));
        insert.bind(order.run);
        insert.bind(order.number as i64);
        insert.bind(order.customer as i64);
        insert.bind(order.kind.name());
        insert.bind(enqueued.work_item.as_uuid());
        insert.execute(&mut client).await?;
        batch(&mut client, "COMMIT TRANSACTION").await?;
        self.give_back(client).await;
        Ok(())
    }

    async fn ship(&self, order: &Order, context: &Context) -> HandlerResult {
        let mut tx = context.transaction::<SqlServerTransaction>().await?;
        let notice = tx.enqueue(order.notice()?).await?.work_item.as_uuid();
        let table = self.table("shipments");
        let mut insert =
            Query::new(format!("INSERT INTO {table} (run, number, notice) VALUES (@P1, @P2, @P3)"));
        insert.bind(order.run);
        insert.bind(order.number as i64);
        insert.bind(notice);
        tx.driver().query(insert).await?;
        Ok(tx.complete().await?)
    }

    async fn arrive(&self, order: &Order, context: &Context) -> HandlerResult {
        let mut tx = context.transaction::<SqlServerTransaction>().await?;
        let table = self.table("arrivals");
        let mut insert = Query::new(format!("INSERT INTO {table} (run, number) VALUES (@P1, @P2)"));
        insert.bind(order.run);
        insert.bind(order.number as i64);
        tx.driver().query(insert).await?;
        Ok(tx.complete().await?)
    }

    async fn write_shift(&self, run: Uuid, foreman: &str, lease: &Arc<Lease>) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        batch(&mut client, "SET XACT_ABORT ON; BEGIN TRANSACTION").await?;
        lease.guard(&mut client).await?;
        let table = self.table("shifts");
        let mut insert =
            Query::new(format!("INSERT INTO {table} (run, foreman, epoch) VALUES (@P1, @P2, @P3)"));
        insert.bind(run);
        insert.bind(foreman);
        insert.bind(lease.epoch());
        insert.execute(&mut client).await?;
        batch(&mut client, "COMMIT TRANSACTION").await?;
        self.give_back(client).await;
        Ok(())
    }

    async fn ledger(&self, run: Uuid) -> anyhow::Result<Ledger> {
        let mut client = self.client().await?;
        let orders = self.rows(&mut client, "number, customer, kind, work_item", "orders", run).await?;
        let shipments = self.rows(&mut client, "number, notice", "shipments", run).await?;
        let arrivals = self.rows(&mut client, "number", "arrivals", run).await?;
        let shifts = self.rows(&mut client, "epoch", "shifts", run).await?;
        self.give_back(client).await;
        Ok(Ledger {
            arrivals: arrivals.iter().map(|row| number(row, 0)).collect(),
            shifts: shifts.iter().map(|row| row.get(0).unwrap_or_default()).collect(),
            orders: orders
                .iter()
                .map(|row| LedgerOrder {
                    number: number(row, 0),
                    customer: number(row, 1),
                    kind: row.get::<&str, _>(2).unwrap_or_default().to_owned(),
                    work_item: id(row, 3),
                })
                .collect(),
            shipments: shipments
                .iter()
                .map(|row| LedgerShipment { number: number(row, 0), notice: id(row, 1) })
                .collect(),
        })
    }
}
