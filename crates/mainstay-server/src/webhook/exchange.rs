//! One request and its answer, over a connection of its own: what is left of an earlier one can't spoil it.
//!
//! Of the answer only the status and `Retry-After` count. Its body is read to its end, or as far as is bearable, and thrown away: an answer
//! that breaks off was not given.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio_util::task::AbortOnDropHandle;

use super::connect::{Allowed, Connection, NoWay, connect, look_up};
use super::retry_after;
use super::target::Target;

/// More of an answer's body is not read.
const BODY_MAX: usize = 64 << 10;

/// The largest head of an answer, and as much of its body at once.
const BUFFER: usize = 64 << 10;

/// What a receiver has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Deliveries may not go there.
    Forbidden(String),
    /// There was no way, or it broke off.
    Unreachable(String),
    /// It took too long.
    Timeout(String),
}

/// How requests of a route get to its receiver.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) target: Target,
    pub(super) allowed: Allowed,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
}

impl Way {
    /// Sends a request and waits for its answer. Dropped, it leaves nothing behind.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, Trouble> {
        let within = self.timeout;
        let late = |_| Trouble::Timeout(format!("gave no complete answer within {within:?}"));
        tokio::time::timeout(within, self.exchange(request)).await.map_err(late)?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Trouble> {
        let within = self.connect_timeout.min(self.timeout);
        let connecting = connect(&self.target, &self.allowed, &self.tls, within, look_up);
        let connection = match tokio::time::timeout(within, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(NoWay::Forbidden(text))) => return Err(Trouble::Forbidden(text)),
            Ok(Err(NoWay::Unreachable(text))) => return Err(Trouble::Unreachable(text)),
            Err(_) => return Err(Trouble::Timeout(format!("could not be connected to within {within:?}"))),
        };
        ask(connection, request).await.map_err(|error| Trouble::Unreachable(format!("broke off: {error}")))
    }
}

async fn ask(connection: Box<dyn Connection>, request: Request<Full<Bytes>>) -> hyper::Result<Answer> {
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(connection)).await?;
    let _driving = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await?;
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| retry_after::parse(value.as_bytes(), SystemTime::now()));
    let answer = Answer { status: response.status(), retry_after };
    drain(response.into_body()).await?;
    Ok(answer)
}

async fn drain(mut body: Incoming) -> hyper::Result<()> {
    let mut left = BODY_MAX;
    while let Some(frame) = body.frame().await {
        let read = frame?.data_ref().map_or(0, Bytes::len);
        left = left.saturating_sub(read);
        if left == 0 {
            break;
        }
    }
    Ok(())
}
