//! One delivery: the handler run to its end, whatever that end is.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tracing::{Instrument, Span};

use crate::queue::settle::DELAY_MAX;
use crate::queue::{ClaimHandle, Context, FailureReason, HandlerError, HandlerResult, Outcome, Registered};
use crate::telemetry::{self, Scene};

/// How a delivery ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) claim: ClaimHandle,
    pub(super) end: End,
}

/// What is left to do.
#[derive(Debug)]
pub(super) enum End {
    /// Settle it so.
    Settle(Outcome),
    /// The handler's own transaction has settled it.
    Completed,
    /// The handler's own transaction found the claim gone, and has said so.
    Lost,
    /// The handler was dropped before its end: the claim was lost, or the grace period is over.
    Cancelled,
}

/// Runs a handler. Never panics, and drops the handler at once when the context is cancelled.
pub(super) async fn run(
    context: Context,
    registered: Arc<Registered>,
    (scene, span): (Scene, Span),
    attempts: u32,
) -> Ended {
    let started = Instant::now();
    let delivery = deliver(&context, &registered, (&scene, &span), attempts);
    // A policy's own code may panic too, and so may the drop of a handler.
    let ended = AssertUnwindSafe(delivery).catch_unwind().await;
    ended.unwrap_or_else(|panic| {
        let error = Some(format!("the delivery panicked: {}", panic_text(panic)));
        let outcome = Outcome::Abandon { delay: None, error };
        let message = context.message();
        telemetry::handler_ended(&scene, message.message_id, &outcome, started.elapsed());
        telemetry::handled(&span, &outcome);
        Ended { claim: message.handle, end: End::Settle(outcome) }
    })
}

async fn deliver(
    context: &Context,
    registered: &Registered,
    (scene, span): (&Scene, &Span),
    attempts: u32,
) -> Ended {
    let claim = context.message().handle;
    let started = Instant::now();
    let work = async {
        context.note_start().await;
        call(context, registered).await
    };
    let work = context.trace().scope(work).instrument(span.clone());
    let result = tokio::select! {
        biased;
        () = context.cancelled() => None,
        result = work => Some(result),
    };
    let ended = |outcome: &Outcome| {
        telemetry::handler_ended(scene, context.message_id(), outcome, started.elapsed());
        telemetry::handled(span, outcome);
    };
    let end = match result {
        _ if context.is_completed() => {
            ended(&Outcome::Ack);
            End::Completed
        }
        None => {
            telemetry::broken_off(span);
            End::Cancelled
        }
        Some(result) => {
            let outcome = outcome(result, context, registered, attempts);
            ended(&outcome);
            // Settling it would only be found stale, and counted, once more.
            if context.is_lost() { End::Lost } else { End::Settle(outcome) }
        }
    };
    Ended { claim, end }
}

async fn call(context: &Context, registered: &Registered) -> HandlerResult {
    let handler = registered.handler.clone();
    let context = context.clone();
    // The call itself may panic too, before there is a future.
    let guarded = AssertUnwindSafe(async move { handler.call(context).await }).catch_unwind();
    let limited = async {
        match registered.policy.timeout {
            None => Ok(guarded.await),
            Some(timeout) => tokio::time::timeout(timeout, guarded).await.map_err(|_| timeout),
        }
    };
    match limited.await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(HandlerError::Retry(format!("the handler panicked: {}", panic_text(panic)))),
        Err(timeout) => Err(HandlerError::Retry(format!("the handler did not end within {timeout:?}"))),
    }
}

/// The text of a panic, whose payload ends here.
fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(no text)").to_owned();
    // A payload can be anything, also something that panics when dropped. What that leaves behind is better leaked
    // than dropped in turn, without end.
    if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

/// What becomes of a message whose handler has answered.
fn outcome(result: HandlerResult, context: &Context, registered: &Registered, attempts: u32) -> Outcome {
    let retry = |delay: Duration, error: String| {
        if context.attempt() >= attempts {
            return Outcome::Fail { reason: FailureReason::DeliveryLimit, error: Some(error) };
        }
        // The store refuses a delay of zero, or of centuries; a handler that asks for one means "soon", or "late".
        let delay = delay.clamp(Duration::from_millis(1), DELAY_MAX);
        Outcome::Abandon { delay: Some(delay), error: Some(error) }
    };
    match result {
        Ok(()) => Outcome::Ack,
        Err(HandlerError::Retry(error)) => {
            retry(registered.policy.backoff.delay(context.message().retry_count()), error)
        }
        Err(HandlerError::RetryAfter(delay, error)) => retry(delay, error),
        Err(HandlerError::Snooze(delay, reason)) => Outcome::Release {
            delay: Some(delay.min(DELAY_MAX)).filter(|delay| !delay.is_zero()),
            error: reason,
        },
        Err(HandlerError::Fail(error)) => Outcome::fail(error),
    }
}
