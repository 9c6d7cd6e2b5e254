//! Who gets the next batch: all at once, or one after the other as a strategy says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::runtime::Pause;
use crate::store::Queue;

use super::SelectionStrategy;
use super::control::Inner;
use super::store::{BatchRequest, Store};

/// Who gets the next batch.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Selection {
    /// All databases with work run at once, within the budget of connections and handlers, each for its fair share of time.
    #[default]
    Concurrent,
    /// One after the other gets a batch, as a strategy says: one each for the outboxes and for the inboxes, made by this function.
    Strategy(Arc<dyn Fn() -> Box<dyn SelectionStrategy> + Send + Sync>),
}

impl Selection {
    /// One after the other, as strategies made by `make` say.
    pub fn by<S: SelectionStrategy>(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self::Strategy(Arc::new(move || Box::new(make())))
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Concurrent => "Concurrent",
            Self::Strategy(_) => "Strategy",
        })
    }
}

/// Hands out batches until stopped.
pub(super) async fn run(
    fleet: Arc<Inner>,
    queue: Queue,
    mut strategy: Box<dyn SelectionStrategy>,
    stop: CancellationToken,
) {
    let options = &fleet.node.options;
    let mut pause = Pause::new((options.poll_min, options.poll_max));
    let mut rung = fleet.rung.subscribe();
    let (mut last, mut last_count, mut empty) = (None::<Arc<Store>>, 0, 0);
    while !stop.is_cancelled() {
        let stores: Vec<_> = fleet.working_stores(queue);
        let ids: Vec<&str> = stores.iter().map(|store| store.id()).collect();
        let before = last.as_ref().map(|store| store.id());
        let next = strategy.select_next(&ids, before, last_count).and_then(|at| stores.get(at));
        let Some(store) = next.cloned() else {
            idle(&mut rung, &stop, pause.step()).await;
            continue;
        };
        let Some(count) = stop.run_until_cancelled(batch(&store, queue)).await else { return };
        (last, last_count) = (Some(store), count);
        if count > 0 {
            empty = 0;
            pause.reset();
            continue;
        }
        empty += 1;
        if empty >= stores.len() {
            empty = 0;
            if idle(&mut rung, &stop, pause.step()).await {
                pause.reset();
            }
        }
    }
}

/// One batch of a database: how many messages it had. What is wrong with it is its keeper's affair.
async fn batch(store: &Store, queue: Queue) -> usize {
    let (answer, answered) = oneshot::channel();
    if store.batches.send(BatchRequest { queue, answer }).is_err() {
        return 0;
    }
    // No answer: the database has left the fleet.
    answered.await.map_or(0, |count| count.unwrap_or(0))
}

/// Waits until somebody in this process adds work, or for so long. Whether somebody did.
async fn idle(rung: &mut watch::Receiver<u64>, stop: &CancellationToken, pause: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        // The sender lives as long as the fleet.
        _ = rung.changed() => true,
        () = tokio::time::sleep(pause) => false,
    }
}
