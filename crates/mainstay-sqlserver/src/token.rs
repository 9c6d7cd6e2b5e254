//! Tokens to log in with, from whoever can get new ones.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use mainstay_core::Result;

/// Where tokens come from.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<dyn Fn() -> BoxFuture<'static, Result<String>> + Send + Sync>);

impl Tokens {
    pub(crate) fn new<F, T>(ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(ask())))
    }

    pub(crate) async fn token(&self) -> Result<String> {
        (self.0)().await
    }
}

/// Those of the same source.
impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tokens {}
