//! A visit to many databases, a few at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mainstay::store::Provider;
use tokio::sync::Semaphore;

use crate::database::IfMissing;
use crate::failure::{self, FAILED, UNREACHABLE};

use super::Store;

/// What is wrong with a database, in a line, with the exit code it asks for.
#[derive(Debug, Clone)]
pub(in crate::commands) struct Trouble {
    pub(in crate::commands) code: u8,
    pub(in crate::commands) text: String,
}

impl Trouble {
    pub(in crate::commands) fn of(error: &anyhow::Error) -> Self {
        let (code, text) = failure::in_a_line(error);
        Self { code, text }
    }
}

/// Opens each database, does something with it, and closes it; the answers come in the order of the databases. One that fails, takes
/// longer than `timeout`, or makes the work panic is told as that.
pub(in crate::commands) async fn each<T, Work, Fut>(
    stores: Vec<Store>,
    (timeout, at_once): (Duration, u32),
    missing: IfMissing,
    work: Work,
) -> Vec<(Arc<Store>, Result<T, Trouble>)>
where
    T: Send + 'static,
    Work: Fn(Arc<dyn Provider>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = anyhow::Result<T>> + Send,
{
    let places = Arc::new(Semaphore::new(at_once as usize));
    let visits = stores.into_iter().map(|store| {
        let store = Arc::new(store);
        let (places, visited, work) = (Arc::clone(&places), Arc::clone(&store), work.clone());
        let visit = tokio::spawn(async move {
            // Nobody closes it, so there is always a place in the end.
            let _place = places.acquire_owned().await;
            match tokio::time::timeout(timeout, visit(&visited, missing, work)).await {
                Ok(result) => result,
                Err(_) => Err(Trouble { code: UNREACHABLE, text: format!("no answer within {timeout:?}") }),
            }
        });
        (store, visit)
    });
    let visits: Vec<_> = visits.collect();
    let mut visited = Vec::with_capacity(visits.len());
    for (store, visit) in visits {
        let broken_off = |_| Err(Trouble { code: FAILED, text: "the visit broke off".to_owned() });
        visited.push((store, visit.await.unwrap_or_else(broken_off)));
    }
    visited
}

async fn visit<T, Work, Fut>(store: &Store, missing: IfMissing, work: Work) -> Result<T, Trouble>
where
    Work: Fn(Arc<dyn Provider>) -> Fut,
    Fut: Future<Output = anyhow::Result<T>>,
{
    let database = store.database.as_ref().map_err(Clone::clone)?;
    let opened = database.open(store.names.clone(), missing).await;
    let provider = opened.map_err(|error| Trouble::of(&error))?;
    let result = work(Arc::clone(&provider)).await;
    provider.close().await;
    result.map_err(|error| Trouble::of(&error))
}
