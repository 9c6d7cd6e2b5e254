//! Handling a message once, whoever else is at it.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

use super::client::Attempt;
use super::{GuardOptions, Inbox, InboxKey};

/// The pause between looks at a message that somebody else has, first and longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How [`Inbox::process_once`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "whether the message was handled, and by whom"]
pub enum Once<T, E> {
    /// This caller handled it, and it is done.
    Ran(T),
    /// This caller's attempt failed. The message is free for the next one.
    Failed(E),
    /// Somebody else has handled it.
    Done,
    /// It was given up.
    Dead,
}

impl Inbox {
    /// Handles a message once: of any number of callers one runs `work`, and the others wait and learn that it is done, or take
    /// over if that one fails or dies.
    ///
    /// Waits for as long as somebody else is at it; bound it with a timeout of your own. Dropping this future gives the message
    /// back. When the reservation is lost midway, because it could not be renewed, `work` is dropped and the error is `ClaimLost`.
    pub async fn process_once<T, E, F, Fut>(
        &self,
        source: &str,
        message_id: &str,
        work: F,
    ) -> Result<Once<T, E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: fmt::Display,
    {
        self.process_once_with(source, message_id, &GuardOptions::default(), work).await
    }

    /// The same with other options of the reservation.
    pub async fn process_once_with<T, E, F, Fut>(
        &self,
        source: &str,
        message_id: &str,
        options: &GuardOptions,
        work: F,
    ) -> Result<Once<T, E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: fmt::Display,
    {
        let key = InboxKey::new(source, message_id)?;
        let mut pause = PAUSE.0;
        let guard = loop {
            match self.attempt(&key, options).await? {
                Attempt::New(guard) => break guard,
                Attempt::Done => return Ok(Once::Done),
                Attempt::Dead => return Ok(Once::Dead),
                Attempt::Busy { wait, .. } => {
                    // Not longer than the reservation: if its holder is dead, that is when the next one gets it.
                    tokio::time::sleep(pause.min(wait.max(PAUSE.0))).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        };
        let lost = guard.cancelled().clone();
        match lost.run_until_cancelled(work()).await {
            Some(Ok(output)) => guard.complete().await.map(|()| Once::Ran(output)),
            Some(Err(error)) => {
                guard.release(Some(error.to_string())).await?;
                Ok(Once::Failed(error))
            }
            None => {
                let text = format!("the reservation of {key} was lost while it was handled");
                Err(Error::new(ErrorKind::ClaimLost, "inbox.process_once", text))
            }
        }
    }
}
