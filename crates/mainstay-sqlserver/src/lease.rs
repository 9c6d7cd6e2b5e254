//! The leases: each method is one call of one procedure, in one round trip.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseHolder, LeaseRecord, LeaseRequest, LeasesRequest,
};
use mainstay_core::store::{LeaseStore, Names, Step};
use mainstay_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::parameters::{Call, SEPARATOR, listed, named};
use crate::pool::Connections;
use crate::rows::{self, Reader, Row};

const GUARD: &str = "lease.guard";

/// The leases in SQL Server.
pub struct SqlServerLeases {
    identifier: String,
    connections: Connections,
    names: Names,
    /// The database they are in, as the connection string says; none for the login's own.
    home: Option<String>,
}

impl SqlServerLeases {
    pub(crate) fn new(connections: Connections, names: &Names, home: Option<String>) -> Self {
        let identifier = format!("{}/{}.{}", connections.store(), names.schema(), names.lease());
        Self { identifier, connections, names: names.clone(), home }
    }

    /// The leases behind a store, or what is wrong with guarding one of them in a transaction of SQL Server.
    pub(crate) fn of(store: &dyn LeaseStore) -> Result<&Self> {
        store.as_any().downcast_ref().ok_or_else(|| {
            let message = format!(
                "this is a transaction of SQL Server, but the lease is in {}; guard it in a transaction of its own database",
                store.identifier()
            );
            Error::new(ErrorKind::Unsupported, GUARD, message)
        })
    }

    /// What guards a lease, for a transaction.
    pub(crate) async fn guarding(&self, claim: &LeaseClaim) -> Result<Step> {
        let call = self
            .call("Guard")
            .text("Name", &claim.name)
            .text("Owner", &claim.owner)
            .integer("Epoch", claim.epoch);
        Ok(call.maybe_text("Home", self.home.as_deref()).step())
    }

    fn call(&self, verb: &str) -> Call {
        Call::new(&named(&self.names, &self.names.lease(), verb))
    }

    async fn run(&self, operation: &'static str, call: Call) -> Result<Vec<Row>> {
        self.connections.run(operation, &call.step()).await
    }

    async fn records(&self, operation: &'static str, call: Call) -> Result<Vec<LeaseRecord>> {
        let rows = self.run(operation, call).await?;
        rows.iter().map(|row| record(Reader::new(operation, row))).collect()
    }
}

fn claims(claims: &[LeaseClaim]) -> String {
    let object = |claim: &LeaseClaim| json!({ "name": listed(&claim.name), "owner": listed(&claim.owner), "epoch": claim.epoch });
    Value::Array(claims.iter().map(object).collect()).to_string()
}

fn grant(row: Reader<'_>) -> Result<LeaseGrant> {
    Ok(LeaseGrant {
        epoch: row.integer("epoch")?,
        fencing_token: row.integer("fencing_token")?,
        expires_at: row.moment("expires_at")?,
        now: row.moment("now")?,
    })
}

fn grants(operation: &'static str, rows: &[Row]) -> Result<HashMap<String, LeaseGrant>> {
    let named = |row| {
        let row = Reader::new(operation, row);
        Ok((row.text("name")?, grant(row)?))
    };
    rows.iter().map(named).collect()
}

fn record(row: Reader<'_>) -> Result<LeaseRecord> {
    let mut record = LeaseRecord::new(row.text("name")?, row.moment("acquired_at")?);
    record.held = row.flag("held")?;
    record.owner = row.maybe_text("owner")?;
    record.epoch = row.integer("epoch")?;
    record.fencing_token = row.integer("fencing_token")?;
    record.renewed_at = row.moment("renewed_at")?;
    record.expires_at = row.moment("expires_at")?;
    record.context = row.maybe_text("context")?;
    Ok(record)
}

#[async_trait]
impl LeaseStore for SqlServerLeases {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        const ACQUIRE: &str = "lease.acquire";
        let call = self.call("Acquire").text("Name", &request.name).text("Owner", &request.owner);
        let call = call
            .seconds("DurationSeconds", request.duration)
            .maybe_text("Context", request.context.as_deref());
        let rows = self.run(ACQUIRE, call.flag("Reentrant", request.reentrant)).await?;
        let row = rows::only(ACQUIRE, &rows)?;
        if row.flag("acquired")? {
            return grant(row).map(LeaseAnswer::Granted);
        }
        Ok(LeaseAnswer::Held(LeaseHolder {
            owner: row.maybe_text("owner")?,
            epoch: row.integer("epoch")?,
            until: row.moment("expires_at")?,
            context: row.maybe_text("context")?,
            now: row.moment("now")?,
        }))
    }

    async fn renew(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        Ok(self.renew_many(std::slice::from_ref(claim), duration).await?.pop().flatten())
    }

    async fn release(&self, claim: &LeaseClaim) -> Result<bool> {
        Ok(self.release_many(std::slice::from_ref(claim)).await?.pop().unwrap_or(false))
    }

    async fn acquire_many(&self, request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        const ACQUIRE: &str = "lease.acquire";
        let call = self
            .call("AcquireMany")
            .text("Names", request.names.join(SEPARATOR))
            .text("Owner", &request.owner);
        let call = call
            .seconds("DurationSeconds", request.duration)
            .maybe_text("Context", request.context.as_deref());
        let granted = grants(ACQUIRE, &self.run(ACQUIRE, call.flag("Reentrant", request.reentrant)).await?)?;
        Ok(request.names.iter().map(|name| granted.get(name).copied()).collect())
    }

    async fn renew_many(&self, all: &[LeaseClaim], duration: Duration) -> Result<Vec<Option<LeaseGrant>>> {
        const RENEW: &str = "lease.renew";
        let call = self.call("RenewMany").text("Claims", claims(all)).seconds("DurationSeconds", duration);
        let renewed = grants(RENEW, &self.run(RENEW, call).await?)?;
        let grant =
            |claim: &LeaseClaim| renewed.get(&claim.name).filter(|grant| grant.epoch == claim.epoch).copied();
        Ok(all.iter().map(grant).collect())
    }

    async fn release_many(&self, all: &[LeaseClaim]) -> Result<Vec<bool>> {
        const RELEASE: &str = "lease.release";
        let rows = self.run(RELEASE, self.call("ReleaseMany").text("Claims", claims(all))).await?;
        let name = |row| {
            let row = Reader::new(RELEASE, row);
            Ok((row.text("name")?, row.integer("epoch")?))
        };
        let released = rows.iter().map(name).collect::<Result<HashSet<(String, i64)>>>()?;
        Ok(all.iter().map(|claim| released.contains(&(claim.name.clone(), claim.epoch))).collect())
    }

    async fn get(&self, name: &str) -> Result<Option<LeaseRecord>> {
        Ok(self.records("lease.get", self.call("List").text("Name", name)).await?.pop())
    }

    async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        let call = self
            .call("List")
            .maybe_text("Prefix", filter.prefix.as_deref())
            .flag("HeldOnly", filter.held_only);
        let call = call.maybe_text("After", filter.after.as_deref()).integer("MaxRows", filter.limit);
        self.records("lease.list", call).await
    }

    async fn force_release(&self, name: &str, by: &Actor) -> Result<Option<String>> {
        const FORCE: &str = "lease.force_release";
        let rows = self.run(FORCE, self.call("ForceRelease").text("Name", name).actor(Some(by))).await?;
        rows::only(FORCE, &rows)?.maybe_text("owner")
    }

    async fn active(&self) -> Result<u64> {
        const ACTIVE: &str = "lease.active";
        rows::only(ACTIVE, &self.run(ACTIVE, self.call("Active")).await?)?.count("active")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for SqlServerLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerLeases").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
