//! Procedures whose rows are answers in JSON, so that the same calls run on the program's own connections and in the transactions of others
//! (see `adapter`).

use std::fmt::Display;
use std::sync::Arc;

use mainstay_core::Result;
use mainstay_core::store::{Names, StoreCall};

use crate::adapter::Origin;
use crate::parameters::{Call, named};
use crate::pool::Connections;
use crate::rows::Row;

/// What runs the procedures of one store.
pub(crate) struct Texts {
    identifier: String,
    connections: Connections,
    names: Names,
    table: String,
    origin: Arc<Origin>,
}

impl Texts {
    /// For the store that is known by this table.
    pub(crate) fn new(connections: Connections, names: &Names, table: impl Display) -> Self {
        let identifier = format!("{}/{}.{table}", connections.store(), names.schema());
        Self {
            identifier,
            connections,
            names: names.clone(),
            table: table.to_string(),
            origin: Arc::default(),
        }
    }

    /// The store's name.
    pub(crate) fn identifier(&self) -> &str {
        &self.identifier
    }

    /// A call of one of the store's procedures.
    pub(crate) fn procedure(&self, verb: &str) -> Call {
        Call::new(&named(&self.names, &self.table, verb))
    }

    /// One call, for a transaction of somebody else.
    pub(crate) fn call(&self, operation: &'static str, call: Call) -> StoreCall {
        let (store, origin) = (self.identifier.clone(), Arc::clone(&self.origin));
        StoreCall { operation, store, origin, steps: vec![call.step()] }
    }

    /// One call in a transaction of its own; again, where it lost against another.
    pub(crate) async fn rows(&self, operation: &'static str, call: Call) -> Result<Vec<Row>> {
        self.connections.run(operation, &call.step()).await
    }

    /// The same with answers.
    pub(crate) async fn ask(&self, operation: &'static str, call: Call) -> Result<Vec<String>> {
        Ok(self.rows(operation, call).await?.iter().map(Row::answer).collect())
    }

    /// A call in transactions of its own, one for each of its steps.
    pub(crate) async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        let mut answers = Vec::new();
        for step in &call.steps {
            answers.extend(self.connections.run(call.operation, step).await?.iter().map(Row::answer));
        }
        Ok(answers)
    }
}
