//! How a statement is sent on a connection: anew each time, or prepared once and kept.
//!
//! Prepared statements belong to a session of the server. A pooler that hands out another session per transaction loses them,
//! unless it keeps account of them, so they are used only where the application has said that this is fine.

use deadpool_postgres::{ClientWrapper, Transaction};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use crate::pool::Parameter;

/// A connection, and how statements are sent on it.
#[derive(Clone, Copy)]
pub(crate) enum Session<'a> {
    /// Parsed and planned by each call.
    Unnamed(&'a Client),
    /// Prepared by the first call on the connection.
    Prepared(&'a ClientWrapper),
    /// The same within a transaction.
    PreparedIn(&'a Transaction<'a>),
}

impl<'a> Session<'a> {
    pub(crate) fn of(client: &'a ClientWrapper, prepared: bool) -> Self {
        if prepared { Self::Prepared(client) } else { Self::Unnamed(client) }
    }

    pub(crate) fn within(transaction: &'a Transaction<'a>, prepared: bool) -> Self {
        if prepared { Self::PreparedIn(transaction) } else { Self::Unnamed(transaction.client()) }
    }

    pub(crate) async fn query(self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let types = || parameters.iter().map(|(_, kind)| kind.clone()).collect::<Vec<Type>>();
        let (client, statement) = match self {
            Self::Unnamed(client) => return client.query_typed(sql, parameters).await,
            Self::Prepared(client) => (&**client, client.prepare_typed_cached(sql, &types()).await?),
            Self::PreparedIn(transaction) => {
                (transaction.client(), transaction.prepare_typed_cached(sql, &types()).await?)
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        client.query(&statement, &values).await
    }
}

/// Whether the server no longer knows a statement, or it no longer fits: on a new connection it is prepared anew.
pub(crate) fn is_stale(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) || code == Some(&SqlState::FEATURE_NOT_SUPPORTED)
}
