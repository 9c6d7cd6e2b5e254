//! The books: what the shop wrote, held against what the outbox says of it.
//!
//! Everything here comes out of the database. An order names its message and a shipment names its notice, written in
//! the same transactions as those messages; so a message that vanished, came from nowhere, or took effect twice shows.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context;
use mainstay::outbox::{MessageFilter, OutboxMessage, Page};
use mainstay::queue::Status;
use mainstay::{Mainstay, Outbox, WorkItemId};
use uuid::Uuid;

use super::beside::Beside;
use super::branches::Branches;
use super::inventory::Inventory;
use super::order::Order;
use super::{Kind, Shop};

/// An order as it was written.
pub(crate) struct LedgerOrder {
    pub(crate) number: u64,
    pub(crate) customer: u64,
    pub(crate) kind: String,
    pub(crate) work_item: WorkItemId,
}

/// A shipment as it was written.
pub(crate) struct LedgerShipment {
    pub(crate) number: u64,
    pub(crate) notice: WorkItemId,
}

/// What a run wrote into the shop's tables; shipments and shifts in the order they were made.
pub(crate) struct Ledger {
    pub(crate) orders: Vec<LedgerOrder>,
    pub(crate) shipments: Vec<LedgerShipment>,
    /// The numbers of the orders whose parcels have arrived.
    pub(crate) arrivals: Vec<u64>,
    /// The lease's epoch in each shift.
    pub(crate) shifts: Vec<i64>,
}

/// The books of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) orders: u64,
    pub(crate) shipments: u64,
    /// Messages that were enqueued, by the shop's own tables.
    pub(crate) enqueued: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// The failed ones by reason.
    pub(crate) failed_by: BTreeMap<String, u64>,
    /// Neither done nor failed.
    pub(crate) pending: u64,
    /// Of the pending ones, those a worker holds.
    pub(crate) in_progress: u64,
    /// Enqueued, but not in the outbox any more.
    pub(crate) lost: u64,
    /// In the outbox, although nothing in the shop's tables caused it.
    pub(crate) unexplained: u64,
    /// Orders with more than one shipment.
    pub(crate) shipped_twice: u64,
    /// Orders whose message is done, but without a shipment.
    pub(crate) done_unshipped: u64,
    /// Orders with a shipment, although their message is not done.
    pub(crate) shipped_undone: u64,
    /// Shipments that overtook an earlier order of a customer who wanted them in order.
    pub(crate) out_of_order: u64,
    /// Deliveries that failed.
    pub(crate) retries: u64,
    /// What went on beside the orders.
    pub(crate) beside: Beside,
    /// What went on in the branches.
    pub(crate) inventory: Inventory,
}

impl Books {
    /// Reads the books of a run.
    pub(crate) async fn read<S: Shop>(
        shop: &S,
        mainstay: &Mainstay,
        branches: &Branches,
        run: Uuid,
    ) -> anyhow::Result<Self> {
        let ledger = shop.ledger(run).await.context("the shop's tables can't be read")?;
        let messages = read_messages(mainstay.outbox(), run).await.context("the outbox can't be read")?;
        let beside = Beside::read(mainstay, &ledger, run).await.context("Mainstay's tables can't be read")?;
        let inventory = Inventory::read(mainstay, branches.fleet(), run).await;
        let inventory = inventory.context("the branches' databases can't be read")?;
        Ok(Self { beside, inventory, ..Self::balance(&ledger, &messages) })
    }

    /// Whether something is still to come to its end.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0 || self.beside.is_pending() || self.inventory.is_pending()
    }

    fn balance(ledger: &Ledger, messages: &HashMap<WorkItemId, Entry>) -> Self {
        let mut books = Self {
            orders: ledger.orders.len() as u64,
            shipments: ledger.shipments.len() as u64,
            ..Self::default()
        };
        let caused = ledger.orders.iter().map(|order| order.work_item);
        let caused = caused.chain(ledger.shipments.iter().map(|shipment| shipment.notice));
        let mut explained = 0;
        for id in caused {
            books.enqueued += 1;
            match messages.get(&id) {
                None => books.lost += 1,
                Some(entry) => {
                    explained += 1;
                    books.count(entry);
                }
            }
        }
        books.unexplained = (messages.len() as u64).saturating_sub(explained);
        books.check_shipments(ledger, messages);
        books.check_order(ledger);
        books
    }

    fn count(&mut self, entry: &Entry) {
        self.retries += u64::from(entry.retries);
        match entry.status {
            Status::Done => self.done += 1,
            Status::Failed => {
                self.failed += 1;
                *self.failed_by.entry(entry.reason.clone()).or_default() += 1;
            }
            Status::Ready => self.pending += 1,
            Status::InProgress => {
                self.pending += 1;
                self.in_progress += 1;
            }
        }
    }

    fn check_shipments(&mut self, ledger: &Ledger, messages: &HashMap<WorkItemId, Entry>) {
        let mut shipments: HashMap<u64, u64> = HashMap::new();
        for shipment in &ledger.shipments {
            *shipments.entry(shipment.number).or_default() += 1;
        }
        for order in &ledger.orders {
            let shipped = shipments.get(&order.number).copied().unwrap_or_default();
            let done = messages.get(&order.work_item).is_some_and(|entry| entry.status == Status::Done);
            self.shipped_twice += u64::from(shipped > 1);
            self.done_unshipped += u64::from(done && shipped == 0);
            self.shipped_undone += u64::from(!done && shipped > 0);
        }
    }

    fn check_order(&mut self, ledger: &Ledger) {
        let regular = ledger.orders.iter().filter(|order| order.kind == Kind::Regular.name());
        let customers: HashMap<u64, u64> = regular.map(|order| (order.number, order.customer)).collect();
        let mut latest: HashMap<u64, u64> = HashMap::new();
        for shipment in &ledger.shipments {
            let Some(customer) = customers.get(&shipment.number) else { continue };
            let before = latest.entry(*customer).or_default();
            self.out_of_order += u64::from(shipment.number < *before);
            *before = shipment.number.max(*before);
        }
    }

    /// What must be zero, with what it would mean.
    pub(crate) fn checks(&self) -> Vec<(&'static str, u64)> {
        let orders = [
            ("neither done nor failed", self.pending),
            ("lost: enqueued, but gone from the outbox", self.lost),
            ("from nowhere: in the outbox without an order or shipment", self.unexplained),
            ("orders shipped more than once", self.shipped_twice),
            ("orders done, but never shipped", self.done_unshipped),
            ("orders shipped, but not done", self.shipped_undone),
            ("shipments out of order for customers who wanted order", self.out_of_order),
        ];
        orders.into_iter().chain(self.beside.checks()).chain(self.inventory.checks()).collect()
    }

    /// Whether everything is accounted for.
    pub(crate) fn balanced(&self) -> bool {
        self.checks().iter().all(|(_, count)| *count == 0)
    }
}

/// What the books need of a message.
struct Entry {
    status: Status,
    reason: String,
    retries: u32,
}

async fn read_messages(outbox: &Outbox, run: Uuid) -> mainstay::Result<HashMap<WorkItemId, Entry>> {
    let filter = MessageFilter::all().correlation_id(Order::correlation(run));
    let mut messages = HashMap::new();
    let mut page = Page { limit: 1_000, before: None };
    loop {
        let rows = outbox.list(&filter, page).await?;
        page.before = rows.last().map(|message| message.id);
        let more = rows.len() == page.limit as usize;
        messages.extend(rows.into_iter().map(|message| (message.id, entry(&message))));
        if !more {
            return Ok(messages);
        }
    }
}

fn entry(message: &OutboxMessage) -> Entry {
    let reason = message.reason.map(|reason| reason.to_string()).unwrap_or_default();
    Entry { status: message.status, reason, retries: message.retry_count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u64, kind: Kind) -> LedgerOrder {
        LedgerOrder { number, customer: 0, kind: kind.name().to_owned(), work_item: WorkItemId::new() }
    }

    fn done() -> Entry {
        Entry { status: Status::Done, reason: String::new(), retries: 0 }
    }

    /// Three orders of a regular customer, all shipped and done.
    fn sound() -> (Ledger, HashMap<WorkItemId, Entry>) {
        let orders: Vec<_> = (1..=3).map(|number| order(number, Kind::Regular)).collect();
        let shipments: Vec<_> =
            (1..=3).map(|number| LedgerShipment { number, notice: WorkItemId::new() }).collect();
        let ids = orders.iter().map(|o| o.work_item).chain(shipments.iter().map(|s| s.notice));
        let messages = ids.map(|id| (id, done())).collect();
        (Ledger { orders, shipments, arrivals: Vec::new(), shifts: Vec::new() }, messages)
    }

    #[test]
    fn sound_books_balance() {
        let (ledger, messages) = sound();
        let books = Books::balance(&ledger, &messages);
        assert!(books.balanced(), "{books:?}");
        assert_eq!((books.enqueued, books.done), (6, 6));
    }

    #[test]
    fn each_fault_is_found() {
        type Fault = fn(&mut Ledger, &mut HashMap<WorkItemId, Entry>);
        type Finding = fn(&Books) -> u64;
        let faults: [(&str, Fault, Finding); 7] = [
            ("lost", |l, m| drop(m.remove(&l.orders[0].work_item)), |b| b.lost),
            (
                "pending",
                |l, m| m.get_mut(&l.orders[0].work_item).unwrap().status = Status::InProgress,
                |b| b.pending,
            ),
            ("unexplained", |_, m| drop(m.insert(WorkItemId::new(), done())), |b| b.unexplained),
            (
                "shipped twice",
                |l, m| {
                    let notice = WorkItemId::new();
                    m.insert(notice, done());
                    l.shipments.push(LedgerShipment { number: 3, notice });
                },
                |b| b.shipped_twice,
            ),
            (
                "done, unshipped",
                |l, m| {
                    let gone = l.shipments.remove(0);
                    m.remove(&gone.notice);
                },
                |b| b.done_unshipped,
            ),
            (
                "shipped, undone",
                |l, m| m.get_mut(&l.orders[0].work_item).unwrap().status = Status::Failed,
                |b| b.shipped_undone,
            ),
            ("out of order", |l, _| l.shipments.swap(0, 1), |b| b.out_of_order),
        ];
        for (name, fault, count) in faults {
            let (mut ledger, mut messages) = sound();
            fault(&mut ledger, &mut messages);
            let books = Books::balance(&ledger, &messages);
            assert_eq!(count(&books), 1, "{name}: {books:?}");
            assert!(!books.balanced(), "{name}");
        }
    }
}
