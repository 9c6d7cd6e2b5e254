//! Puts the interface together: operations, and what happens around each of them.

use std::fmt;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use mainstay_core::{Error, ErrorKind, Result};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Access};
use crate::changing::Changing;
use crate::chores;
use crate::endpoint::{Endpoint, Endpoints};
use crate::etag::Tag;
use crate::health::Reports;
use crate::limits::Limits;
use crate::problem::{Kind, Problem};
use crate::state::{Inner, Shared};
use crate::stores::Stores;
use crate::throttle::Throttle;
use crate::{api, health, metrics, openapi, request_id, trace};

/// Sets up the interface.
#[must_use = "nothing is there until it is built"]
pub struct InterfaceBuilder {
    stores: Stores,
    access: Access,
    limits: Limits,
    metrics: Option<PrometheusHandle>,
    stop: CancellationToken,
    loopback_only: bool,
}

impl InterfaceBuilder {
    /// How much a request may ask for. Defaults to those of [`Limits`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What `/metrics` shows; see [`metrics::install`]. Defaults to none: the application publishes its own.
    pub fn metrics(mut self, handle: PrometheusHandle) -> Self {
        self.metrics = Some(handle);
        self
    }

    /// Ends requests that wait, with what they have, once it is cancelled. Defaults to one that never is.
    pub fn stop(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// Answers only requests to a loopback host, so that no page in a browser reaches it under a name of its own. Defaults to false.
    pub fn loopback_only(mut self, only: bool) -> Self {
        self.loopback_only = only;
        self
    }

    /// Checks everything and puts it together.
    pub fn build(self) -> Result<Interface> {
        self.access.validate()?;
        self.limits.validate()?;
        if self.access.is_open() {
            tracing::warn!(
                "nobody has to prove who they are: whoever reaches this interface may do everything, also through a proxy; set up tokens unless that is meant"
            );
        }
        let (router, document) = assemble();
        let shared = Shared::new(Inner {
            stores: self.stores,
            access: Changing::new(self.access),
            limits: self.limits,
            throttle: Throttle::default(),
            reports: Reports::default(),
            counts: api::Counts::default(),
            metrics: self.metrics,
            waiting: Semaphore::new(self.limits.waiting),
            stop: self.stop,
            loopback_only: self.loopback_only,
            document: {
                let tag = Tag::of(document.as_bytes());
                (document.into(), tag)
            },
        });
        let router = router
            .fallback(|| async {
                Problem::new(Kind::NotFound, "there is no such path; GET /openapi.json lists them")
            })
            .method_not_allowed_fallback(|| async {
                Problem::new(
                    Kind::MethodNotAllowed,
                    "the path has no such method; the header Allow lists them",
                )
            })
            // The last one comes first.
            .layer(from_fn_with_state(shared.clone(), access::authenticate))
            .layer(from_fn(chores::same_site))
            .layer(from_fn_with_state(shared.clone(), chores::only_loopback))
            .layer(from_fn_with_state(shared.clone(), chores::bound))
            .layer(from_fn(metrics::count))
            .layer(from_fn(trace::carry))
            .layer(from_fn(chores::secure))
            .layer(from_fn(request_id::carry))
            .with_state(shared.clone());
        Ok(Interface { router, shared })
    }
}

fn assemble() -> (Router<Shared>, String) {
    let (router, paths, schemas) = endpoints().into_parts();
    (router, openapi::document(paths, schemas))
}

fn endpoints() -> Endpoints {
    let mut all = Endpoints::new();
    health::endpoints(&mut all);
    metrics::endpoints(&mut all);
    api::endpoints(&mut all);
    let endpoint = Endpoint::get("/openapi.json", "openapi", "This document").public().etag();
    all.add(endpoint.text(200, "application/json", "The document."), document);
    all
}

async fn document(State(shared): State<Shared>) -> Response {
    let (document, tag) = shared.document.clone();
    let mut response = document.into_response();
    response.extensions_mut().insert(tag);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The HTTP interface of a database, or of a fleet of them.
#[derive(Clone)]
pub struct Interface {
    router: Router,
    shared: Shared,
}

impl Interface {
    /// Begins to put one together over these databases, for those who have access.
    pub fn builder(stores: impl Into<Stores>, access: Access) -> InterfaceBuilder {
        InterfaceBuilder {
            stores: stores.into(),
            access,
            limits: Limits::default(),
            metrics: None,
            stop: CancellationToken::new(),
            loopback_only: false,
        }
    }

    /// The router, to be mounted or served.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// From now on these have access, and nobody else: tokens can be exchanged while it runs. Requests under way go on. Whether anybody has to prove
    /// anything at all stays as it was: much else depends on it.
    pub fn change_access(&self, access: Access) -> Result<()> {
        access.validate()?;
        if access.is_open() != self.shared.access.get().is_open() {
            let text = "authentication can't be switched on or off while it runs: restart it";
            return Err(Error::new(ErrorKind::Config, "server.access", text));
        }
        self.shared.access.replace(access);
        Ok(())
    }

    /// The OpenAPI document that it serves.
    pub fn document() -> String {
        assemble().1
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interface").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// All that is said to be elsewhere.
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_hangs_together() {
        assert_eq!(endpoints().collisions, [""; 0], "each schema has a name of its own");
        let document: Value = serde_json::from_str(&Interface::document()).unwrap();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let operations = document["paths"].as_object().unwrap().values();
        let ids: Vec<_> = operations
            .flat_map(|path| path.as_object().unwrap().values())
            .map(|one| &one["operationId"])
            .collect();
        let distinct: BTreeSet<_> = ids.iter().map(|id| id.as_str().unwrap()).collect();
        assert_eq!(distinct.len(), ids.len(), "each operation has an id of its own");
    }

    /// The committed document is the served one. `UPDATE_OPENAPI=1` writes it anew.
    #[test]
    fn the_committed_document_is_the_served_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, Interface::document()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == Interface::document(),
            "run UPDATE_OPENAPI=1 cargo test -p mainstay-server document"
        );
    }

    /// The page for people names every noun that there is, and no path that there is not.
    #[test]
    fn the_page_names_what_the_document_has() {
        let page = include_str!("../../../docs/reference/http.md");
        let document: Value = serde_json::from_str(&Interface::document()).unwrap();
        let paths: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        for path in &paths {
            let noun = path.split('/').take(3).collect::<Vec<_>>().join("/");
            assert!(page.contains(&format!("`{noun}")), "{noun} is not on the page");
        }
        for name in page.split('`').filter(|text| text.starts_with("/v1/") || text.starts_with("/health")) {
            let begin = name.trim_end_matches('…');
            assert!(paths.iter().any(|path| path.starts_with(begin)), "{name} is not in the document");
        }
    }
}
