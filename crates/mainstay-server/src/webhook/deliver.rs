//! One delivery of a route: what is sent, what comes of it, and what that says of the receiver.

use std::time::Instant;

use axum::http::StatusCode;
use mainstay_core::queue::{Context, HandlerError, HandlerResult};
use mainstay_core::telemetry::{self, Delivered};

use super::exchange::{Answer, Trouble};
use super::gate::PutOff;
use super::request::request;
use super::route::Route;

/// Delivers a message. The handler of a route.
pub(super) async fn deliver(route: &Route, context: Context) -> HandlerResult {
    let store = context.queue().store().identifier();
    let pass = match route.gate.pass() {
        Ok(pass) => pass,
        Err(PutOff { pause, why }) => {
            telemetry::webhook_put_off(store, &route.name);
            // What a delivery of its own has come to says more, and stays.
            return Err(match context.message().retry_count() {
                0 => HandlerError::snooze_because(pause, why),
                _ => HandlerError::snooze(pause),
            });
        }
    };
    let began = Instant::now();
    let request = request(&context, &route.way.target, &route.secrets.get(), route.content_type.as_ref());
    let answered = route.way.send(request).await;
    let Verdict { outcome, result, receiver } = judge(route, answered);
    telemetry::webhook_delivered(store, &route.name, outcome, began.elapsed());
    match receiver {
        Ok(()) => pass.succeeded(),
        Err(why) => pass.failed(&why),
    }
    result
}

struct Verdict {
    outcome: Delivered,
    result: HandlerResult,
    /// Whether the receiver works, whatever it thinks of this message.
    receiver: Result<(), String>,
}

fn judge(route: &Route, answered: Result<Answer, Trouble>) -> Verdict {
    let told = |text: &str| format!("{} {text}", route.way.target);
    let Answer { status, retry_after } = match answered {
        Ok(answer) => answer,
        Err(trouble) => {
            let (outcome, text) = match trouble {
                Trouble::Forbidden(text) => {
                    (Delivered::Forbidden, told(&format!("is not delivered to: {text}")))
                }
                Trouble::Unreachable(text) => (Delivered::Unreachable, told(&text)),
                Trouble::Timeout(text) => (Delivered::Timeout, told(&text)),
            };
            return Verdict { outcome, result: Err(HandlerError::retry(&text)), receiver: Err(text) };
        }
    };
    if status.is_success() {
        return Verdict { outcome: Delivered::Delivered, result: Ok(()), receiver: Ok(()) };
    }
    let mut text = told(&format!("answered {}", status.as_u16()));
    if status == StatusCode::GONE {
        let result = Err(HandlerError::fail(format_args!("{text}: it does not want this any more")));
        return Verdict { outcome: Delivered::Gone, result, receiver: Ok(()) };
    }
    if status.is_redirection() {
        text.push_str(", and redirects are not followed; give the route the new URL");
    }
    let overloaded = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    let receiver = if status.is_server_error() || overloaded { Err(text.clone()) } else { Ok(()) };
    let result = Err(match retry_after.filter(|delay| !delay.is_zero()) {
        Some(delay) => HandlerError::retry_after(delay.min(route.retry_after_max), text),
        None => HandlerError::retry(text),
    });
    Verdict { outcome: Delivered::Rejected, result, receiver }
}
