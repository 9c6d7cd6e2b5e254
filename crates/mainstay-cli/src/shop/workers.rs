//! The workers: they ship what is ordered, tell the customers, and do what else there is.

use std::sync::Arc;
use std::time::Duration;

use mainstay::backoff::Backoff;
use mainstay::inbox::Inbox;
use mainstay::store::Provider;
use mainstay::timer::Timers;
use mainstay::{Context, HandlerError, HandlerResult, Mainstay, TopicPolicy};
use uuid::Uuid;

use super::branches::Branches;
use super::carrier::{ARRIVED, Reports};
use super::inventory::{self, COMPLETE, Complete};
use super::order::{PLACED, SHIPPED};
use super::reminders::REMIND;
use super::stock::COUNT;
use super::{Kind, Order, Shop, carrier, reminders, stock};

/// Deliveries before an order is given up.
const ATTEMPTS: u32 = 5;

/// Mainstay with the shop's handlers.
pub(crate) fn employ<S: Shop>(
    shop: &Arc<S>,
    provider: Arc<dyn Provider>,
    workers: usize,
    run: Uuid,
    reports: &Arc<Reports>,
    (branches, complete): (&Branches, &Complete),
) -> mainstay::Result<Mainstay> {
    let (shop, receiving) = (Arc::clone(shop), Arc::clone(shop));
    let (timers, inbox) = (Timers::new(provider.as_ref()), Inbox::new(provider.as_ref()));
    let (reports, complete, fleet) = (Arc::clone(reports), complete.clone(), branches.fleet().clone());
    // Short, so that what is retried comes to its end within a demo.
    let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(1)).jitter(0.2);
    let policy = TopicPolicy::default().attempts(ATTEMPTS).backoff(backoff);
    Mainstay::builder_over(provider)
        .deploy_schema(true)
        .outbox(|outbox| {
            outbox
                .concurrency(workers)
                .options(|options| {
                    options.grace = Duration::from_secs(5);
                    options.poll_max = Duration::from_secs(1);
                    // Slices are for the run that made them; one that another demo on this database has claimed is not to wait long.
                    options.no_handler_delay = Duration::from_millis(100);
                })
                .handler_with(PLACED, policy.clone(), move |order: Order, context| {
                    ship(Arc::clone(&shop), order, context)
                })
                .handler_with(SHIPPED, policy, move |order: Order, context| {
                    let (timers, inbox, reports) = (timers.clone(), inbox.clone(), Arc::clone(&reports));
                    async move {
                        notify(&order, &context)?;
                        reminders::schedule(&timers, &order).await?;
                        carrier::report(&inbox, &reports, &order).await
                    }
                })
                .handler(REMIND, reminders::remind)
                .raw_handler(COUNT, stock::count)
                .raw_handler(COMPLETE, move |_| std::future::ready(complete.note()))
        })
        .inbox(|inbox| {
            inbox.handler(ARRIVED, move |order: Order, context: Context| {
                let shop = Arc::clone(&receiving);
                async move { shop.arrive(&order, &context).await }
            })
        })
        .timers(|timers| timers)
        .fanout(inventory::topic(run), |fanout| inventory::define(fanout, run, fleet))
        .job(stock::job(run), stock::CRON, stock::define)
        .build()
}

async fn ship<S: Shop>(shop: Arc<S>, order: Order, context: Context) -> HandlerResult {
    match order.kind {
        Kind::Flaky if context.attempt() < 3 => {
            return Err(HandlerError::retry("the carrier did not answer"));
        }
        // One that is retried must hold up the later orders of its customer.
        Kind::Regular if order.number % 100 == 41 && context.attempt() < 2 => {
            return Err(HandlerError::retry("the customer's list is being printed"));
        }
        Kind::Poison => return Err(HandlerError::retry("the address can't be read")),
        Kind::Undeliverable => return Err(HandlerError::fail("no carrier goes there")),
        Kind::Slow => tokio::time::sleep(Duration::from_millis(200)).await,
        _ => {}
    }
    shop.ship(&order, &context).await
}

/// Tells the customer; now and then the mail server is away.
fn notify(order: &Order, context: &Context) -> HandlerResult {
    if order.number.is_multiple_of(37) && context.attempt() == 1 {
        return Err(HandlerError::retry("the mail server is away"));
    }
    Ok(())
}
