//! A slice in the hands of its handler.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

use crate::error::Result;
use crate::queue::{Context, Handler, HandlerError, HandlerOutput};
use crate::store::{CallIn, CallInBlocking};
use crate::telemetry;

use super::client::key_of;
use super::{Fanout, FanoutSlice};

/// A slice in the hands of its handler. Cheap to clone.
///
/// A handler that succeeds without having completed the slice has done the work up to the moment it was handed out
/// ([`Slice::began_at`]): the cursor moves there, in the transaction that acks the message. One that has done more or less says so
/// with [`Slice::complete`], or with [`Slice::complete_in`] in its own transaction.
#[derive(Debug, Clone)]
pub struct Slice {
    slice: FanoutSlice,
    fanout: Fanout,
    began_at: Timestamp,
    completed: Arc<AtomicBool>,
}

impl Slice {
    /// When it was handed out, by the database's clock: everything that was there by then can be seen by the handler.
    pub fn began_at(&self) -> Timestamp {
        self.began_at
    }

    /// Says that the work is done up to `at`, at once. Whether that moved the cursor: it never goes back.
    ///
    /// On SQLite, don't call it while holding a transaction, which has the only writer; use [`Slice::complete_in`].
    pub async fn complete(&self, at: Timestamp) -> Result<bool> {
        let moved = self.fanout.complete(&self.slice, at).await?;
        self.completed.store(true, Ordering::Release);
        Ok(moved)
    }

    /// The same within the handler's transaction: what was written there, the ack and the cursor are committed together or not at all.
    /// After a rollback the cursor stands where it stood, and stays there unless the slice is completed again.
    pub async fn complete_in<Tx, Marker>(&self, tx: &mut Tx, at: Timestamp) -> Result<bool>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        let moved = self.fanout.complete_in(tx, &self.slice, at).await?;
        self.completed.store(true, Ordering::Release);
        Ok(moved)
    }

    /// The same in a transaction of a driver that blocks.
    pub fn complete_in_blocking<Tx, Marker>(&self, tx: &mut Tx, at: Timestamp) -> Result<bool>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        let moved = self.fanout.complete_in_blocking(tx, &self.slice, at)?;
        self.completed.store(true, Ordering::Release);
        Ok(moved)
    }

    /// Does what a handler that succeeded has left to be done.
    async fn finish(&self, context: &Context) -> Result<(), HandlerError> {
        if self.completed.load(Ordering::Acquire) {
            return Ok(());
        }
        let key = key_of(&self.slice)?;
        let store = self.fanout.store();
        if context.is_completed() {
            // It has acked by itself, and so nothing can be tried again. By its cadence the shard comes round all the same.
            if let Err(error) = self.fanout.complete(&self.slice, self.began_at).await {
                telemetry::fanout_not_completed(store.identifier(), &key, &self.slice.shard_key, &error);
            }
            return Ok(());
        }
        let answers =
            context.complete_with(&store.completion(&key, &self.slice.shard_key, self.began_at)).await?;
        let moved = store.completed(&answers)?;
        telemetry::fanout_completed(store.identifier(), &key, &self.slice.shard_key, moved);
        Ok(())
    }
}

impl Deref for Slice {
    type Target = FanoutSlice;

    fn deref(&self) -> &FanoutSlice {
        &self.slice
    }
}

/// A handler of slices, as the dispatcher holds it.
pub(crate) fn slice_handler<F, Fut>(fanout: Fanout, handler: F) -> Handler
where
    F: Fn(Slice, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: HandlerOutput> + Send + 'static,
{
    Handler::typed(move |slice: FanoutSlice, context: Context| {
        let began_at = context.message().claimed_at;
        let slice = Slice { slice, fanout: fanout.clone(), began_at, completed: Arc::default() };
        let handled = handler(slice.clone(), context.clone());
        async move {
            handled.await.into_result()?;
            slice.finish(&context).await
        }
    })
}
