//! The inbox of a database that is none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay::audit::Actor;
use mainstay::inbox::{
    BeginAnswer, ContentHash, InboxEntry, InboxFilter, InboxKey, InboxPage, InboxRetention, LedgerStats,
    Mark, PreparedIncoming, Received, Reservation, ReservationEnd, Seen,
};
use mainstay::store::{InboxStore, StoreCall};
use mainstay::{OwnerToken, Result};

use super::store::unsupported;

/// A ledger of received messages that has none and takes none.
pub(crate) struct NoInbox;

#[async_trait]
impl InboxStore for NoInbox {
    fn identifier(&self) -> &str {
        "nothing"
    }
    async fn seen(&self, _: &InboxKey, _: Option<&ContentHash>) -> Result<Seen> {
        unsupported()
    }
    async fn mark(&self, _: &InboxKey, _: &Mark, _: Option<&Actor>) -> Result<bool> {
        unsupported()
    }
    async fn begin(
        &self,
        _: &InboxKey,
        _: Option<&ContentHash>,
        _: OwnerToken,
        _: Duration,
    ) -> Result<BeginAnswer> {
        unsupported()
    }
    async fn renew(&self, _: &Reservation, _: Duration) -> Result<Option<Timestamp>> {
        unsupported()
    }
    async fn end(&self, _: &Reservation, _: &ReservationEnd) -> Result<bool> {
        unsupported()
    }
    async fn enqueue(&self, _: &[PreparedIncoming]) -> Result<Vec<Received>> {
        unsupported()
    }
    async fn get(&self, _: &InboxKey) -> Result<Option<InboxEntry>> {
        unsupported()
    }
    async fn list(&self, _: &InboxFilter, _: &InboxPage) -> Result<Vec<InboxEntry>> {
        unsupported()
    }
    async fn revive(&self, _: &[InboxKey], _: &Actor) -> Result<Vec<InboxKey>> {
        unsupported()
    }
    async fn stats(&self) -> Result<LedgerStats> {
        unsupported()
    }
    async fn forget(&self, _: &InboxRetention, _: Option<&Actor>) -> Result<u64> {
        unsupported()
    }
    fn completion(&self, _: &Reservation) -> StoreCall {
        nothing()
    }
    fn completed(&self, _: &[String]) -> Result<bool> {
        unsupported()
    }
    fn reception(&self, _: &[PreparedIncoming]) -> StoreCall {
        nothing()
    }
    fn received(&self, _: &[String]) -> Result<Vec<Received>> {
        unsupported()
    }
}

pub(crate) fn nothing() -> StoreCall {
    StoreCall { operation: "nothing", store: String::new(), origin: Arc::new(()), steps: Vec::new() }
}
