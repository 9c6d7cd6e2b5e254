//! Orders, and what is in store for each.

use std::time::Duration;

use mainstay::Message;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The topic of orders to be shipped.
pub(crate) const PLACED: &str = "order.placed";
/// The topic of notices to customers.
pub(crate) const SHIPPED: &str = "parcel.shipped";

/// What is in store for an order. The number of an order decides it, so every run has its share of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// It goes before others.
    Express,
    /// It is due a little later.
    Later,
    /// Its customer wants all orders in order.
    Regular,
    /// Shipping takes a while.
    Slow,
    /// The carrier does not answer at first.
    Flaky,
    /// The handler fails every time, until the delivery limit.
    Poison,
    /// The handler gives it up at once.
    Undeliverable,
    /// It expires before it is due.
    Stale,
}

impl Kind {
    /// What is in store for the order with this number.
    pub(crate) fn of(number: u64) -> Self {
        match (number % 100, number % 10) {
            (13 | 63, _) => Self::Poison,
            (29, _) => Self::Undeliverable,
            (71, _) => Self::Stale,
            (_, 3) => Self::Flaky,
            (_, 6) => Self::Slow,
            (_, 5) => Self::Express,
            (_, 8) => Self::Later,
            (_, 1 | 2) => Self::Regular,
            _ => Self::Plain,
        }
    }

    /// As it is stored.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Express => "express",
            Self::Later => "later",
            Self::Regular => "regular",
            Self::Slow => "slow",
            Self::Flaky => "flaky",
            Self::Poison => "poison",
            Self::Undeliverable => "undeliverable",
            Self::Stale => "stale",
        }
    }
}

/// An order, which is also the payload of its message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) run: Uuid,
    pub(crate) number: u64,
    pub(crate) customer: u64,
    pub(crate) kind: Kind,
}

impl Order {
    /// Links all messages of a run.
    pub(crate) fn correlation(run: Uuid) -> String {
        format!("demo-{}", run.simple())
    }

    /// The message that asks for the shipment.
    pub(crate) fn message(&self) -> mainstay::Result<Message> {
        let message = Message::json(PLACED, self)?.correlation(Self::correlation(self.run));
        Ok(match self.kind {
            Kind::Express => message.priority(5),
            Kind::Later => message.due_in(Duration::from_millis(500 + self.number % 7 * 100)),
            Kind::Regular => message.ordering_key(self.ordering_key()),
            Kind::Stale => message.due_in(Duration::from_millis(200)).expires_in(Duration::from_millis(100)),
            _ => message,
        })
    }

    /// Runs must not wait for each other, so the key holds the run's id.
    fn ordering_key(&self) -> String {
        format!("{}-customer-{}", self.run.simple(), self.customer)
    }

    /// The message that tells the customer.
    pub(crate) fn notice(&self) -> mainstay::Result<Message> {
        Ok(Message::json(SHIPPED, self)?.correlation(Self::correlation(self.run)))
    }
}
