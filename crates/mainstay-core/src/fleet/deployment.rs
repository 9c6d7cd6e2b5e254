//! The schema of all databases.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use crate::error::{Error, ErrorKind, Result};
use crate::store::SchemaStatus;

use super::Fleet;

/// How long one database may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What came of the deployment to one database.
#[derive(Debug)]
pub struct Deployed {
    /// The database.
    pub id: String,
    /// Its schema, or why it could not be deployed.
    pub result: Result<SchemaStatus>,
}

impl Fleet {
    /// Brings the schema of every database up to date, up to `at_once` (at least one) at a time, by id. One that fails stops no other.
    pub async fn deploy(&self, at_once: usize) -> Vec<Deployed> {
        let deployments = self.0.stores().into_iter().map(|store| async move {
            let result = match tokio::time::timeout(PATIENCE, store.provider.schema().deploy()).await {
                Ok(result) => result,
                Err(_) => {
                    let text = format!("the deployment did not end within {PATIENCE:?}");
                    Err(Error::new(ErrorKind::Unavailable, "fleet.deploy", text))
                }
            };
            if result.is_ok() {
                store.mainstay.register_anew();
                store.signals.recheck();
            }
            Deployed { id: store.id().to_owned(), result }
        });
        stream::iter(deployments).buffered(at_once.max(1)).collect().await
    }
}
