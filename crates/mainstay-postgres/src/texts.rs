//! Statements whose arguments and answers are texts, so that the same ones run on the program's own connections and in the
//! transactions of every driver (see `adapter`).

use std::fmt::Display;
use std::sync::Arc;

use mainstay_core::Result;
use mainstay_core::store::{Argument, Names, Step, StoreCall};
use tokio_postgres::types::{ToSql, Type};

use crate::adapter::Origin;
use crate::contention::{Key, Turns, Wait};
use crate::pool::{Connections, Parameter};
use crate::rows;

/// What runs the statements of one store.
pub(crate) struct Texts {
    identifier: String,
    connections: Connections,
    origin: Arc<Origin>,
    turns: Turns,
}

impl Texts {
    /// For the store that is known by this table.
    pub(crate) fn new(connections: Connections, names: &Names, table: impl Display) -> Self {
        let identifier = format!("{}/{}.{table}", connections.store(), names.schema());
        Self { identifier, connections, origin: Arc::default(), turns: Turns::default() }
    }

    /// The store's name.
    pub(crate) fn identifier(&self) -> &str {
        &self.identifier
    }

    /// One statement for a transaction of somebody else.
    pub(crate) fn call(
        &self,
        operation: &'static str,
        sql: &str,
        arguments: impl IntoIterator<Item = Option<String>>,
    ) -> StoreCall {
        let arguments = arguments.into_iter().map(Argument::from).collect();
        let (store, origin) = (self.identifier.clone(), Arc::clone(&self.origin));
        StoreCall { operation, store, origin, steps: vec![Step { sql: sql.into(), arguments }] }
    }

    /// One statement in a transaction of its own; again, where it lost against another.
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        sql: &str,
        arguments: impl AsRef<[Option<String>]> + Send,
    ) -> Result<Vec<String>> {
        let parameters = parameters(arguments.as_ref());
        rows::answers(operation, &self.connections.query(operation, sql, &parameters).await?)
    }

    /// The same for a statement that can wait for a transaction of another client with one of these keys.
    pub(crate) async fn ask_in_turn(
        &self,
        operation: &'static str,
        sql: &str,
        arguments: impl AsRef<[Option<String>]> + Send,
        keys: Vec<Key>,
        wait: Wait,
    ) -> Result<Vec<String>> {
        let parameters = parameters(arguments.as_ref());
        let turn = self.turns.take(keys);
        let rows = self.connections.query_in_turn(operation, sql, &parameters, turn, wait).await?;
        rows::answers(operation, &rows)
    }

    /// A call in transactions of its own, one for each of its statements. It can wait for transactions of applications, which call
    /// the same functions.
    pub(crate) async fn run(&self, call: StoreCall, wait: Wait) -> Result<Vec<String>> {
        let mut answers = Vec::new();
        for Step { sql, arguments } in call.steps {
            let texts: Vec<Option<String>> = arguments
                .into_iter()
                .map(|argument| match argument {
                    Argument::Text(text) => Some(text),
                    // The calls of these stores have texts alone.
                    Argument::Null | Argument::Integer(_) | Argument::Bytes(_) => None,
                })
                .collect();
            answers.extend(self.ask_in_turn(call.operation, &sql, texts, Vec::new(), wait).await?);
        }
        Ok(answers)
    }
}

fn parameters(arguments: &[Option<String>]) -> Vec<Parameter<'_>> {
    arguments.iter().map(|argument| (argument as &(dyn ToSql + Sync), Type::TEXT)).collect()
}
