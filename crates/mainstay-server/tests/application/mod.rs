//! An application with the router in its own, asked without a network.

// Each test file uses its own part of this.
#![allow(dead_code, clippy::unwrap_used)]

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, header};
use mainstay_core::runtime::Mainstay;
use mainstay_server::{Access, Interface, Limits};
use mainstay_sqlite::Sqlite;
use serde_json::Value;
use tower::ServiceExt;

/// Nothing takes that long; it only keeps a test from waiting for ever.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// The interface of a database in memory.
pub(crate) struct Application {
    pub(crate) mainstay: Mainstay,
    pub(crate) router: Router,
}

impl Application {
    pub(crate) async fn new(access: Access) -> Self {
        Self::with(access, Limits::default()).await
    }

    pub(crate) async fn with(access: Access, limits: Limits) -> Self {
        let mainstay =
            Mainstay::builder(Sqlite::memory().await.unwrap()).deploy_schema(true).build().unwrap();
        mainstay.provider().schema().deploy().await.unwrap();
        let interface = Interface::builder(mainstay.clone(), access).limits(limits).build().unwrap();
        Self { mainstay, router: interface.router() }
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> (Response<()>, String) {
        ask(&self.router, request).await
    }

    /// The status and the JSON of the answer.
    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (answer, body) = self.ask(post(path, &body)).await;
        (answer.status().as_u16(), serde_json::from_str(&body).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let (answer, body) = self.ask(Request::get(path).body(Body::empty()).unwrap()).await;
        (answer.status().as_u16(), serde_json::from_str(&body).unwrap_or_default())
    }
}

pub(crate) async fn ask(router: &Router, request: Request<Body>) -> (Response<()>, String) {
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (Response::from_parts(parts, ()), String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    request.body(body.to_string().into()).unwrap()
}
