//! What a store does in a transaction that is not its own.
//!
//! A store words it as statements of its own with their arguments; an adapter runs those on the caller's connection, one after
//! the other, and neither commits nor rolls back. So a driver has to be taught to run a call once, and not once for every
//! thing that a store can do.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::lease::InHandler;
use crate::queue::HandlerTransaction;

use super::StoreTransaction;

/// Statements of a store, for a transaction that may be the caller's.
pub struct StoreCall {
    /// What it is, as `primitive.verb`.
    pub operation: &'static str,
    /// Which store it is of, as in logs.
    pub store: String,
    /// What the provider knows its own calls by.
    pub origin: Arc<dyn Any + Send + Sync>,
    /// The statements, in order: all of them or none.
    pub steps: Vec<Step>,
}

/// One statement. Its rows, if it has any, have one column `answer`: a JSON text.
#[derive(Clone)]
pub struct Step {
    /// The statement.
    pub sql: Arc<str>,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
}

/// An argument of a statement.
#[derive(Clone, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Argument {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl<T: Into<Self>> From<Option<T>> for Argument {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// No arguments: payloads are among them.
impl fmt::Debug for StoreCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCall")
            .field("operation", &self.operation)
            .field("store", &self.store)
            .field("steps", &self.steps.len())
            .finish_non_exhaustive()
    }
}

/// A transaction of a driver in which a store can do something.
///
/// `Marker` is a type of the provider's crate; it is inferred and only lets providers implement this for drivers' own types.
/// The implementation neither commits nor rolls back.
pub trait CallIn<Marker> {
    /// Runs the statements within the caller's transaction. The answers of all of them, in order.
    fn call_in(&mut self, call: &StoreCall) -> impl Future<Output = Result<Vec<String>>>;
}

/// The same for drivers that block.
pub trait CallInBlocking<Marker> {
    /// Runs the statements within the caller's transaction. The answers of all of them, in order.
    fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>>;
}

impl CallIn<InHandler> for Box<dyn StoreTransaction + '_> {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        self.call(call).await
    }
}

impl<T: StoreTransaction> CallIn<InHandler> for HandlerTransaction<T> {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        self.driver().call(call).await
    }
}
