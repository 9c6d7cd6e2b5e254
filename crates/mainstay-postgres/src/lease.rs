//! The leases: each method is one call of one public SQL function, in one round trip.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseHolder, LeaseRecord, LeaseRequest, LeasesRequest,
};
use mainstay_core::store::{LeaseStore, Names};
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::pool::{Connections, Parameter};
use crate::rows::{self, Reader};
use crate::statements::LeaseStatements;

const GUARD: &str = "lease.guard";

/// Fails outside a transaction, where a guard would end with its statement, and leaves nothing behind within one.
pub(crate) const IN_TRANSACTION: &str = "savepoint mainstay_guard; release savepoint mainstay_guard";

/// The leases in PostgreSQL.
pub struct PostgresLeases {
    identifier: String,
    connections: Connections,
    statements: Arc<LeaseStatements>,
    /// Where the leases are, as the database said with the last lease it gave or renewed. A restarted server says otherwise.
    home: RwLock<Option<String>>,
}

impl PostgresLeases {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        let identifier = format!("{}/{}.{}", connections.store(), names.schema(), names.lease());
        Ok(Self {
            identifier,
            connections,
            statements: LeaseStatements::shared(names)?,
            home: RwLock::default(),
        })
    }

    /// The leases behind a store, or what is wrong with guarding one of them in a transaction of PostgreSQL.
    pub(crate) fn of(store: &dyn LeaseStore) -> Result<&Self> {
        store.as_any().downcast_ref().ok_or_else(|| {
            let message = format!(
                "this is a transaction of PostgreSQL, but the lease is in {}; guard it in a transaction of its own database",
                store.identifier()
            );
            Error::new(ErrorKind::Unsupported, GUARD, message)
        })
    }

    pub(crate) fn statements(&self) -> &LeaseStatements {
        &self.statements
    }

    /// Where the leases are. Known to whoever was given one, so a guard need not wait for a connection of the pool.
    pub(crate) async fn home(&self) -> Result<String> {
        let known = self.home.read().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(home) => Ok(home),
            None => self.ask_home().await,
        }
    }

    /// Fails unless the leases are where a transaction said it is, which was not so when that was last asked: the server may have
    /// been restarted since, or another one may have taken over.
    pub(crate) async fn moved_to(&self, transactions: String) -> Result<String> {
        if self.ask_home().await? == transactions {
            return Ok(transactions);
        }
        let reason = format_args!("must be a transaction of the lease's own database, {}", self.identifier);
        Err(Error::invalid(GUARD, "tx", reason))
    }

    async fn ask_home(&self) -> Result<String> {
        let rows = self.connections.query(GUARD, &self.statements.home, &[]).await?;
        let home: String = rows::value(GUARD, &rows)?;
        self.learn_home(&home);
        Ok(home)
    }

    fn learn_home(&self, home: &str) {
        let is_known = |known: &Option<String>| known.as_deref() == Some(home);
        if !is_known(&self.home.read().unwrap_or_else(PoisonError::into_inner)) {
            *self.home.write().unwrap_or_else(PoisonError::into_inner) = Some(home.to_owned());
        }
    }

    async fn list(
        &self,
        operation: &'static str,
        name: Option<&str>,
        filter: &LeaseFilter,
    ) -> Result<Vec<LeaseRecord>> {
        let limit = i32::try_from(filter.limit).unwrap_or(i32::MAX);
        let (statement, first) = match filter.prefix.as_deref() {
            Some(prefix) => (&self.statements.list_by_prefix, Some(prefix)),
            None => (&self.statements.list, name),
        };
        let parameters: [Parameter<'_>; 4] = [
            (&first, Type::TEXT),
            (&filter.held_only, Type::BOOL),
            (&filter.after, Type::TEXT),
            (&limit, Type::INT4),
        ];
        let rows = self.connections.query(operation, statement, &parameters).await?;
        rows.iter().map(|row| record(operation, row)).collect()
    }
}

fn only<'a>(operation: &'static str, rows: &'a [Row]) -> Result<Reader<'a>> {
    let nothing = || Error::new(ErrorKind::Internal, operation, "the database returned no row");
    Ok(Reader::new(operation, rows.first().ok_or_else(nothing)?))
}

/// Claims as the arrays that functions over many leases take.
struct Claims<'a> {
    names: Vec<&'a str>,
    owners: Vec<&'a str>,
    epochs: Vec<i64>,
}

impl<'a> Claims<'a> {
    fn new(claims: &'a [LeaseClaim]) -> Self {
        Self {
            names: claims.iter().map(|claim| claim.name.as_str()).collect(),
            owners: claims.iter().map(|claim| claim.owner.as_str()).collect(),
            epochs: claims.iter().map(|claim| claim.epoch).collect(),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 3] {
        [(&self.names, Type::TEXT_ARRAY), (&self.owners, Type::TEXT_ARRAY), (&self.epochs, Type::INT8_ARRAY)]
    }
}

/// The leases an answer has, by name. It names only those that were given or renewed.
fn grants(operation: &'static str, rows: &[Row]) -> Result<HashMap<String, LeaseGrant>> {
    let grant = |row| {
        let row = Reader::new(operation, row);
        let (epoch, fencing_token) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, LeaseGrant { epoch, fencing_token, expires_at: row.time(3)?, now: row.time(4)? }))
    };
    rows.iter().map(grant).collect()
}

fn record(operation: &'static str, row: &Row) -> Result<LeaseRecord> {
    let row = Reader::new(operation, row);
    let mut record = LeaseRecord::new(row.get(0)?, row.time(5)?);
    record.held = row.get(1)?;
    record.owner = row.get(2)?;
    record.epoch = row.get(3)?;
    record.fencing_token = row.get(4)?;
    record.renewed_at = row.time(6)?;
    record.expires_at = row.time(7)?;
    record.context = row.get(8)?;
    Ok(record)
}

#[async_trait]
impl LeaseStore for PostgresLeases {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        const ACQUIRE: &str = "lease.acquire";
        let duration = request.duration.as_secs_f64();
        let parameters: [Parameter<'_>; 5] = [
            (&request.name, Type::TEXT),
            (&request.owner, Type::TEXT),
            (&duration, Type::FLOAT8),
            (&request.context, Type::TEXT),
            (&request.reentrant, Type::BOOL),
        ];
        let rows = self.connections.query(ACQUIRE, &self.statements.acquire, &parameters).await?;
        let row = only(ACQUIRE, &rows)?;
        self.learn_home(row.get(7)?);
        let (epoch, expires_at, now) = (row.get(2)?, row.time(4)?, row.time(6)?);
        if row.get(0)? {
            return Ok(LeaseAnswer::Granted(LeaseGrant {
                epoch,
                fencing_token: row.get(3)?,
                expires_at,
                now,
            }));
        }
        Ok(LeaseAnswer::Held(LeaseHolder {
            owner: row.get(1)?,
            epoch,
            until: expires_at,
            context: row.get(5)?,
            now,
        }))
    }

    async fn renew(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        const RENEW: &str = "lease.renew";
        let duration = duration.as_secs_f64();
        let parameters: [Parameter<'_>; 4] = [
            (&claim.name, Type::TEXT),
            (&claim.owner, Type::TEXT),
            (&claim.epoch, Type::INT8),
            (&duration, Type::FLOAT8),
        ];
        let rows = self.connections.query(RENEW, &self.statements.renew, &parameters).await?;
        let row = only(RENEW, &rows)?;
        self.learn_home(row.get(4)?);
        if !row.get::<bool>(0)? {
            return Ok(None);
        }
        let (fencing_token, expires_at, now) = (row.get(1)?, row.time(2)?, row.time(3)?);
        Ok(Some(LeaseGrant { epoch: claim.epoch, fencing_token, expires_at, now }))
    }

    async fn release(&self, claim: &LeaseClaim) -> Result<bool> {
        const RELEASE: &str = "lease.release";
        let parameters: [Parameter<'_>; 3] =
            [(&claim.name, Type::TEXT), (&claim.owner, Type::TEXT), (&claim.epoch, Type::INT8)];
        rows::value(RELEASE, &self.connections.query(RELEASE, &self.statements.release, &parameters).await?)
    }

    async fn acquire_many(&self, request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        const ACQUIRE: &str = "lease.acquire";
        let duration = request.duration.as_secs_f64();
        let parameters: [Parameter<'_>; 5] = [
            (&request.names, Type::TEXT_ARRAY),
            (&request.owner, Type::TEXT),
            (&duration, Type::FLOAT8),
            (&request.context, Type::TEXT),
            (&request.reentrant, Type::BOOL),
        ];
        let rows = self.connections.query(ACQUIRE, &self.statements.acquire_many, &parameters).await?;
        let granted = grants(ACQUIRE, &rows)?;
        Ok(request.names.iter().map(|name| granted.get(name).copied()).collect())
    }

    async fn renew_many(&self, claims: &[LeaseClaim], duration: Duration) -> Result<Vec<Option<LeaseGrant>>> {
        const RENEW: &str = "lease.renew";
        let (claimed, duration) = (Claims::new(claims), duration.as_secs_f64());
        let [names, owners, epochs] = claimed.parameters();
        let parameters = [names, owners, epochs, (&duration, Type::FLOAT8)];
        let rows = self.connections.query(RENEW, &self.statements.renew_many, &parameters).await?;
        let renewed = grants(RENEW, &rows)?;
        let grant =
            |claim: &LeaseClaim| renewed.get(&claim.name).filter(|grant| grant.epoch == claim.epoch).copied();
        Ok(claims.iter().map(grant).collect())
    }

    async fn release_many(&self, claims: &[LeaseClaim]) -> Result<Vec<bool>> {
        const RELEASE: &str = "lease.release";
        let claimed = Claims::new(claims);
        let rows =
            self.connections.query(RELEASE, &self.statements.release_many, &claimed.parameters()).await?;
        let name = |row| {
            let row = Reader::new(RELEASE, row);
            Ok((row.get(0)?, row.get(1)?))
        };
        let released = rows.iter().map(name).collect::<Result<HashSet<(String, i64)>>>()?;
        Ok(claims.iter().map(|claim| released.contains(&(claim.name.clone(), claim.epoch))).collect())
    }

    async fn get(&self, name: &str) -> Result<Option<LeaseRecord>> {
        Ok(self.list("lease.get", Some(name), &LeaseFilter::all()).await?.pop())
    }

    async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        self.list("lease.list", None, filter).await
    }

    async fn force_release(&self, name: &str, by: &Actor) -> Result<Option<String>> {
        const FORCE: &str = "lease.force_release";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 3] = [(&name, Type::TEXT), (&by, Type::TEXT), (&about, Type::TEXT)];
        let rows = self.connections.query(FORCE, &self.statements.force_release, &parameters).await?;
        rows::value(FORCE, &rows)
    }

    async fn active(&self) -> Result<u64> {
        const ACTIVE: &str = "lease.active";
        let rows = self.connections.query(ACTIVE, &self.statements.active, &[]).await?;
        Ok(rows::value::<i64>(ACTIVE, &rows)?.max(0).unsigned_abs())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for PostgresLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLeases").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
