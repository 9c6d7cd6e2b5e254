//! The leases on SQLite: each method is one operation of the writer, or one job of a reader.
//!
//! Whoever writes has the database to itself, so an acquisition needs no lock of its own, and a guard only has to make its
//! transaction a writing one.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseHolder, LeaseRecord, LeaseRequest, LeasesRequest,
};
use mainstay_core::store::LeaseStore;
use mainstay_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use crate::audit::note;
use crate::database::{Database, lease_identifier};
use crate::error::Fault;
use crate::statements::{LeaseStatements, Statements};
use crate::value::{lease_end, maybe_text_at, moment, moment_at, text_at};

pub(crate) const GUARD: &str = "lease.guard";

/// The leases in one SQLite database.
pub struct SqliteLeases {
    identifier: String,
    database: Arc<Database>,
    sql: Arc<LeaseStatements>,
}

impl SqliteLeases {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        let identifier = lease_identifier(&database.location, &database.names);
        let sql = LeaseStatements::shared(&database.names);
        Self { identifier, database, sql }
    }

    /// The leases behind a store, or what is wrong with guarding one of them in a transaction of SQLite.
    pub(crate) fn of(store: &dyn LeaseStore) -> Result<&Self> {
        store.as_any().downcast_ref().ok_or_else(|| {
            let reason = format_args!(
                "must be of SQLite to guard in a transaction of SQLite, got {}",
                store.identifier()
            );
            Error::invalid(GUARD, "store", reason)
        })
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub(crate) fn statements(&self) -> &Arc<LeaseStatements> {
        &self.sql
    }

    async fn write<T, F>(&self, operation: &'static str, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &LeaseStatements, i64) -> Result<T, Fault> + Send + 'static,
    {
        let sql = Arc::clone(&self.sql);
        let work =
            move |connection: &Connection, all: &Statements| work(connection, &sql, all.now(connection)?);
        self.database.write(operation, work).await
    }

    async fn read<T, F>(&self, operation: &'static str, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &LeaseStatements, i64) -> Result<T, Fault> + Send + 'static,
    {
        let sql = Arc::clone(&self.sql);
        let work =
            move |connection: &Connection, all: &Statements| work(connection, &sql, all.now(connection)?);
        self.database.read(operation, work).await
    }
}

#[async_trait]
impl LeaseStore for SqliteLeases {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        let request = request.clone();
        self.write("lease.acquire", move |connection, sql, now| acquire(connection, sql, now, &request)).await
    }

    async fn renew(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        let claim = claim.clone();
        let renew = move |connection: &Connection, sql: &LeaseStatements, now| {
            renew(connection, sql, now, &claim, duration)
        };
        self.write("lease.renew", renew).await
    }

    async fn release(&self, claim: &LeaseClaim) -> Result<bool> {
        let claim = claim.clone();
        self.write("lease.release", move |connection, sql, now| release(connection, sql, now, &claim)).await
    }

    async fn acquire_many(&self, request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        let LeasesRequest { names, owner, duration, context, reentrant } = request.clone();
        let each = move |name| LeaseRequest {
            name,
            owner: owner.clone(),
            duration,
            context: context.clone(),
            reentrant,
        };
        let requests: Vec<LeaseRequest> = names.into_iter().map(each).collect();
        let acquire = move |connection: &Connection, sql: &LeaseStatements, now| {
            requests.iter().map(|request| Ok(try_acquire(connection, sql, now, request)?)).collect()
        };
        self.write("lease.acquire", acquire).await
    }

    async fn renew_many(&self, claims: &[LeaseClaim], duration: Duration) -> Result<Vec<Option<LeaseGrant>>> {
        let claims = claims.to_vec();
        let renew = move |connection: &Connection, sql: &LeaseStatements, now| {
            claims.iter().map(|claim| renew(connection, sql, now, claim, duration)).collect()
        };
        self.write("lease.renew", renew).await
    }

    async fn release_many(&self, claims: &[LeaseClaim]) -> Result<Vec<bool>> {
        let claims = claims.to_vec();
        let release = move |connection: &Connection, sql: &LeaseStatements, now| {
            claims.iter().map(|claim| release(connection, sql, now, claim)).collect()
        };
        self.write("lease.release", release).await
    }

    async fn get(&self, name: &str) -> Result<Option<LeaseRecord>> {
        let name = name.to_owned();
        self.read("lease.get", move |connection, sql, now| Ok(find(connection, sql, now, &name)?)).await
    }

    async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        let filter = filter.clone();
        let list = move |connection: &Connection, sql: &LeaseStatements, now| {
            let LeaseFilter { held_only, after, limit, prefix, .. } = &filter;
            let Some(prefix) = prefix else {
                let mut statement = connection.prepare_cached(&sql.list)?;
                let rows = statement.query_map(params![now, held_only, after, limit], record)?;
                return Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?);
            };
            let mut statement = connection.prepare_cached(&sql.list_prefix)?;
            let beyond = beyond(prefix);
            let rows = statement.query_map(params![now, held_only, after, limit, prefix, beyond], record)?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        };
        self.read("lease.list", list).await
    }

    async fn force_release(&self, name: &str, by: &Actor) -> Result<Option<String>> {
        let (name, by, audit) = (name.to_owned(), by.clone(), Arc::clone(&self.database.audit));
        let release = move |connection: &Connection, sql: &LeaseStatements, now| {
            let held = find(connection, sql, now, &name)?.filter(|lease| lease.held);
            connection.prepare_cached(&sql.force_release)?.execute(params![name, now])?;
            if let Some(lease) = &held {
                let LeaseRecord { owner, epoch, fencing_token, expires_at, .. } = lease;
                let before = json!({ "owner": owner, "epoch": epoch, "fencing_token": fencing_token, "expires_at": expires_at });
                let data = json!({ "before": before, "after": { "owner": null } });
                let record = PreparedAudit::administrative("lease.force_release", &by, data);
                note(connection, &audit, &record.about("lease", [&name]))?;
            }
            Ok(held.and_then(|lease| lease.owner))
        };
        self.write("lease.force_release", release).await
    }

    async fn active(&self) -> Result<u64> {
        let active = |connection: &Connection, sql: &LeaseStatements, now| {
            let count: i64 = connection.prepare_cached(&sql.active)?.query_row([now], |row| row.get(0))?;
            Ok(count.max(0).unsigned_abs())
        };
        self.read("lease.active", active).await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn acquire(
    connection: &Connection,
    sql: &LeaseStatements,
    now: i64,
    request: &LeaseRequest,
) -> Result<LeaseAnswer, Fault> {
    if let Some(grant) = try_acquire(connection, sql, now, request)? {
        return Ok(LeaseAnswer::Granted(grant));
    }
    let gone = || Error::new(ErrorKind::Internal, "lease.acquire", "a lease was neither given nor found");
    let found = find(connection, sql, now, &request.name)?.ok_or_else(gone)?;
    Ok(LeaseAnswer::Held(LeaseHolder {
        owner: found.owner,
        epoch: found.epoch,
        until: found.expires_at,
        context: found.context,
        now: moment(now),
    }))
}

fn try_acquire(
    connection: &Connection,
    sql: &LeaseStatements,
    now: i64,
    request: &LeaseRequest,
) -> rusqlite::Result<Option<LeaseGrant>> {
    let LeaseRequest { name, owner, context, reentrant, duration } = request;
    let granted = |row: &Row<'_>| grant(row.get(0)?, row.get(1)?, row.get(2)?, now);
    connection
        .prepare_cached(&sql.acquire)?
        .query_row(params![name, owner, context, now, lease_end(now, *duration), reentrant], granted)
        .optional()
}

fn renew(
    connection: &Connection,
    sql: &LeaseStatements,
    now: i64,
    claim: &LeaseClaim,
    duration: Duration,
) -> Result<Option<LeaseGrant>, Fault> {
    let LeaseClaim { name, owner, epoch } = claim;
    let granted = |row: &Row<'_>| grant(*epoch, row.get(0)?, row.get(1)?, now);
    let mut statement = connection.prepare_cached(&sql.renew)?;
    Ok(statement.query_row(params![name, owner, epoch, now, lease_end(now, duration)], granted).optional()?)
}

fn release(
    connection: &Connection,
    sql: &LeaseStatements,
    now: i64,
    claim: &LeaseClaim,
) -> Result<bool, Fault> {
    let LeaseClaim { name, owner, epoch } = claim;
    Ok(connection.prepare_cached(&sql.release)?.execute(params![name, owner, epoch, now])? > 0)
}

/// The first text after all that begin with `prefix`, in the order of their bytes, which is that of their characters.
fn beyond(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The numbers between the two are no characters.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            text.push(next);
            return text;
        }
    }
    // No name is longer.
    "\u{10ffff}".repeat(256)
}

fn grant(epoch: i64, fencing_token: i64, expires_at: i64, now: i64) -> rusqlite::Result<LeaseGrant> {
    Ok(LeaseGrant { epoch, fencing_token, expires_at: moment(expires_at), now: moment(now) })
}

fn find(
    connection: &Connection,
    sql: &LeaseStatements,
    now: i64,
    name: &str,
) -> rusqlite::Result<Option<LeaseRecord>> {
    connection.prepare_cached(&sql.find)?.query_row(params![name, now], record).optional()
}

fn record(row: &Row<'_>) -> rusqlite::Result<LeaseRecord> {
    let mut record = LeaseRecord::new(text_at(row, 0)?, moment_at(row, 5)?);
    record.held = row.get(1)?;
    record.owner = maybe_text_at(row, 2)?;
    record.epoch = row.get(3)?;
    record.fencing_token = row.get(4)?;
    record.renewed_at = moment_at(row, 6)?;
    record.expires_at = moment_at(row, 7)?;
    record.context = maybe_text_at(row, 8)?;
    Ok(record)
}

/// Guards a lease within the transaction that is open on the connection.
pub(crate) fn guard(
    connection: &Connection,
    all: &Statements,
    sql: &LeaseStatements,
    claim: &LeaseClaim,
) -> Result<(), Fault> {
    let LeaseClaim { name, owner, epoch } = claim;
    let now = all.now(connection)?;
    match connection.prepare_cached(&sql.guard)?.execute(params![name, owner, epoch, now])? {
        0 => Err(lost(claim).into()),
        _ => Ok(()),
    }
}

impl SqliteLeases {
    /// Fails unless a connection's guard has looked at this database, by the file it says that was: what another one answers,
    /// with the same tables perhaps, is nothing to the lease. To be asked after the guard, which must be the first to read.
    pub(crate) fn check_home(&self, file: &str) -> Result<()> {
        let location = &self.database.location;
        let same = || {
            let (own, other) = (location.place().path().canonicalize(), Path::new(file).canonicalize());
            own.is_ok_and(|own| other.is_ok_and(|other| own == other))
        };
        if location.is_memory() || !same() {
            let reason =
                format_args!("must be a transaction of the lease's own database, {}", self.identifier);
            return Err(Error::invalid(GUARD, "tx", reason));
        }
        Ok(())
    }
}

/// The error for a claim that no longer holds.
pub(crate) fn lost(claim: &LeaseClaim) -> Error {
    let LeaseClaim { name, epoch, .. } = claim;
    let text = format!(
        "the lease {name:?} is lost: epoch {epoch} no longer holds it; roll the transaction back and stop"
    );
    Error::new(ErrorKind::LeaseLost, GUARD, text)
}

/// The error for a connection without a transaction, on which a guard would end before it is of any use.
pub(crate) fn no_transaction() -> Error {
    Error::invalid(GUARD, "tx", "must be a transaction; begin one first, best with BEGIN IMMEDIATE")
}

impl fmt::Debug for SqliteLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLeases").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
