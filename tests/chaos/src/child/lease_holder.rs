//! A process that acquires leases, and writes under their guard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use mainstay::lease::{Acquired, Lease, LeaseOptions, Leases};
use mainstay::store::Provider;
use uuid::Uuid;

use crate::history::{Answer, Call, now};

use super::Child;
use super::application::execute;
use super::recorded::Recorded;
use super::session::Engine;
use super::trouble::{record, trouble};

/// Names that are used all the time.
const NAMES: u64 = 3;

/// How long a name is used that is used for a few calls only.
const BRIEFLY_NS: u64 = 2_000_000_000;

/// How many leases a long hold lasts, so that the lease is renewed several times.
const LONG_HOLD: u32 = 3;

/// Runs until the process is to stop.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let leases = Leases::new(provider.leases());
    loop {
        let ms = child.random.between(20, 400);
        if !child.pause(ms).await {
            return Ok(());
        }
        let name = match child.random.percent(70) {
            true => format!("lease-{}", child.random.between(1, NAMES)),
            false => format!("brief-{}", now() / BRIEFLY_NS),
        };
        let options = LeaseOptions::default().duration(child.lease).owner(child.process.clone());
        // What failed is in the history, and is tried again at another name.
        let Ok(Acquired::Lease(lease)) = leases.acquire_with(&name, options).await else { continue };
        // The histories of names that are used briefly stay short, so that an order of their calls can be searched.
        let is_long = name.starts_with("lease-") && child.random.percent(33);
        let until = Instant::now() + if is_long { child.lease * LONG_HOLD } else { Duration::ZERO };
        let mut writes = child.random.between(1, 5);
        while writes > 0 || Instant::now() < until {
            writes = writes.saturating_sub(1);
            write(&mut child, &provider, &lease).await;
            let ms = child.random.between(0, 300);
            if !child.pause(ms).await || lease.is_lost() {
                break;
            }
        }
        drop(lease.close().await);
    }
}

/// Returns how long a transaction waits before its commit: mostly not at all, at times beyond the lease.
fn hesitation(child: &mut Child) -> u64 {
    if !child.random.percent(33) {
        return 0;
    }
    // A transaction on SQLite keeps all other writers waiting.
    let most = if child.database.engine() == Engine::Sqlite {
        child.lease_ms() / 20
    } else {
        child.lease_ms() * 3 / 2
    };
    child.random.between(0, most)
}

/// Writes a row under the lease's guard. The row counts those of lower epochs: none of these may be committed later.
async fn write(child: &mut Child, provider: &Arc<Recorded>, lease: &Lease) {
    let value = Uuid::new_v4();
    let (name, epoch) = (lease.name().to_owned(), lease.epoch());
    let ms = hesitation(child);
    let invoked = child.recorder.invoke(Call::GuardedWrite { name: name.clone(), epoch, value });
    let guarded = async {
        let mut tx = provider.outbox().begin().await?;
        lease.guard(&mut tx).await?;
        let insert = format!(
            "insert into chaos_guarded (name, epoch, value, seen) select '{name}', {epoch}, '{value}', count(*)
            from chaos_guarded where name = '{name}' and epoch < {epoch}"
        );
        execute(tx.as_mut(), insert).await?;
        child.pause(ms).await;
        Ok::<_, mainstay::Error>(tx)
    };
    match guarded.await {
        Ok(tx) => record(invoked, &tx.commit().await, |()| Answer::Done),
        // The commit was not sent, so nothing of it stays.
        Err(error) => invoked.fail(trouble(&error)),
    }
}
