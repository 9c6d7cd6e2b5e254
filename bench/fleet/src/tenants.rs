//! The databases: a thousand copies of one that was deployed, in files and on a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay_tests::{FaultProxy, PostgresUrl};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use crate::plan::{DOWN_POSTGRES, DOWN_SQLITE, Plan};

/// What the names of all databases of PostgreSQL begin with.
pub(crate) const PREFIX: &str = "tenant_";

/// How many databases are made at once.
const MAKERS: usize = 2;

/// A database of the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) id: String,
    pub(crate) place: Place,
}

/// Where it is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    File(PathBuf),
    /// The name of the database, and what stands between it and the fleet, if anything.
    Server(String, Option<Arc<FaultProxy>>),
}

impl Tenant {
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.place, Place::File(_))
    }
}

/// All databases.
pub(crate) struct Tenants {
    /// Those that stay well, of which the busy ones are drawn.
    pub(crate) files: Vec<Tenant>,
    pub(crate) databases: Vec<Tenant>,
    /// For each window, those that go down in it, if it is one in which some do.
    pub(crate) groups: Vec<Vec<Tenant>>,
    /// The list of all, for whoever connects to them.
    pub(crate) list: PathBuf,
}

/// A connection to a database of the server.
pub(crate) async fn connect(url: &PostgresUrl) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(&url.to_string(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Tenants {
    /// Makes them, in this folder and on this server.
    pub(crate) async fn make(plan: &Plan, folder: &Path, server: &PostgresUrl) -> Result<Self> {
        let mut files = copy_files(plan.tenants, folder).await?;
        copy_databases(plan.databases, server).await?;
        let mut entries: Vec<_> = files.iter().map(file_entry).collect::<Result<_>>()?;
        let mut databases = Vec::new();
        for at in 0..plan.databases {
            let name = format!("{PREFIX}{at:04}");
            let url = server.clone().with_database(&name).to_string();
            // Every other pair of those that may go down.
            let is_between = at < plan.pairs * 2 * DOWN_POSTGRES && at % 4 >= 2;
            let proxy = if is_between { Some(Arc::new(FaultProxy::for_url(&url).await)) } else { None };
            let id = format!("p{at:04}");
            entries.push(
                json!({ "id": id, "url": proxy.as_ref().map_or(url.clone(), |proxy| proxy.url(&url)) }),
            );
            databases.push(Tenant { id, place: Place::Server(name, proxy) });
        }
        let list = folder.join("fleet.json");
        std::fs::write(&list, serde_json::to_vec(&json!({ "databases": entries }))?)?;
        let groups = (0..plan.pairs * 2).map(|_| {
            let mut group: Vec<Tenant> = files.drain(..DOWN_SQLITE).collect();
            group.extend(databases.drain(..DOWN_POSTGRES));
            group
        });
        let groups = groups.collect();
        Ok(Self { files, databases, groups, list })
    }
}

fn file_entry(tenant: &Tenant) -> Result<serde_json::Value> {
    let Place::File(path) = &tenant.place else { anyhow::bail!("not a file") };
    Ok(json!({ "id": tenant.id, "url": format!("sqlite:{}", path.display()) }))
}

async fn copy_files(count: usize, folder: &Path) -> Result<Vec<Tenant>> {
    let model = folder.join("model.db");
    let sqlite = Sqlite::open(&model).await?;
    sqlite.schema().deploy().await?;
    // The log goes with the last connection, so the file is all there is.
    sqlite.close().await;
    let copy = |at: usize| {
        let id = format!("s{at:04}");
        let path = folder.join(format!("{id}.db"));
        std::fs::copy(&model, &path).context("a file can't be copied")?;
        Ok(Tenant { id, place: Place::File(path) })
    };
    (0..count).map(copy).collect()
}

async fn copy_databases(count: usize, server: &PostgresUrl) -> Result<()> {
    const MODEL: &str = "model";
    let admin = connect(server).await?;
    admin.batch_execute(&format!("create database {MODEL}")).await?;
    let model = Postgres::connect(&server.clone().with_database(MODEL).to_string()).await?;
    model.schema().deploy().await?;
    model.close().await;
    // A copy is refused while anybody is still leaving.
    let left = "select count(*) from pg_stat_activity where datname = $1";
    while admin.query_one(left, &[&MODEL]).await?.get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let maker = async |first: usize| -> Result<()> {
        let client = connect(server).await?;
        for at in (first..count).step_by(MAKERS) {
            client.batch_execute(&format!("create database {PREFIX}{at:04} template {MODEL}")).await?;
            if at % 50 == 0 && at > 0 {
                eprintln!("         {at} databases");
            }
        }
        Ok(())
    };
    tokio::try_join!(maker(0), maker(1))?;
    // What was copied is written out now, and not while something is measured.
    admin.batch_execute("checkpoint").await?;
    Ok(())
}
