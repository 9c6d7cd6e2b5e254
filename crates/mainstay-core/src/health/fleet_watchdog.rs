//! The watchdog over many databases, those that rest included: work that nobody does is late there, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;

use crate::error::Result;
use crate::fleet::Fleet;

use super::watchdog::Watchdog;
use super::{Health, WatchdogOptions};

/// Databases that are looked at at once.
const AT_ONCE: usize = 4;

impl Fleet {
    /// Looks at all databases every `interval`, through the fleet's budget, and says of each what is bad, as
    /// [`MainstayBuilder::watchdog`](crate::runtime::MainstayBuilder::watchdog) does of one. Until it is dropped. A database that rests
    /// is connected to for each look, so many databases want a longer interval than one. Refuses options that are out of bounds.
    pub async fn watchdog(&self, options: WatchdogOptions) -> Result<()> {
        options.validate()?;
        let mut dogs: BTreeMap<String, Arc<Watchdog>> = BTreeMap::new();
        loop {
            let mut kept = BTreeMap::new();
            for id in self.ids() {
                // One that is gone since is of the fleet no more.
                let Ok(mainstay) = self.mainstay(id.as_str()) else { continue };
                let dog = match dogs.remove(&id) {
                    Some(dog) if dog.watches(mainstay.provider()) => dog,
                    _ => {
                        let health =
                            Health::new(Arc::clone(mainstay.provider())).keeping(mainstay.failed_kept());
                        Arc::new(Watchdog::new(health.with_options(options.health)?, options))
                    }
                };
                kept.insert(id, dog);
            }
            dogs = kept;
            let looks: Vec<_> = dogs.values().cloned().map(|dog| async move { dog.look().await }).collect();
            stream::iter(looks).buffer_unordered(AT_ONCE).collect::<()>().await;
            tokio::time::sleep(options.interval).await;
        }
    }
}
