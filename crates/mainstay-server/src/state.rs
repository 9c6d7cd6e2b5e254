//! What all handlers share.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::api::Counts;
use crate::changing::Changing;
use crate::etag::Tag;
use crate::health::Reports;
use crate::limits::Limits;
use crate::stores::Stores;
use crate::throttle::Throttle;

/// What all handlers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) stores: Stores,
    pub(crate) access: Changing<Access>,
    pub(crate) limits: Limits,
    pub(crate) throttle: Throttle,
    pub(crate) reports: Reports,
    pub(crate) counts: Counts,
    pub(crate) metrics: Option<PrometheusHandle>,
    /// Places for requests that wait.
    pub(crate) waiting: Semaphore,
    /// Ends what waits.
    pub(crate) stop: CancellationToken,
    /// Whether only requests to a loopback host are answered.
    pub(crate) loopback_only: bool,
    /// The OpenAPI document, and its ETag.
    pub(crate) document: (Bytes, Tag),
}

impl Shared {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}
