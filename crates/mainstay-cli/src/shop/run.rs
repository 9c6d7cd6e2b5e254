//! A day at the shop: open, sell, close the door, finish what was ordered, check the books.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mainstay::outbox::{MessageFilter, OutboxStats, Page};
use mainstay::queue::Status;
use mainstay::store::Provider;
use mainstay::{Mainstay, Outbox};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::books::Books;
use super::branches::Branches;
use super::carrier::Reports;
use super::customers::{Orders, shop_until};
use super::inventory::Complete;
use super::order::Order;
use super::report::Summary;
use super::view::{Phase, View};
use super::{Shop, foremen, inventory, stock, workers};
use crate::failure::{self, Failure};
use crate::meter::Meter;
use crate::signals::Signals;

/// How long nothing may come to its end once no more is ordered; and how long a database may be away by then.
const DRAIN: Duration = Duration::from_secs(30);

/// How often the view changes.
const TICK: Duration = Duration::from_millis(250);

/// How a run goes.
pub(crate) struct Plan {
    /// Where the branches have their databases.
    pub(crate) branches: PathBuf,
    /// The database, as it may be shown.
    pub(crate) location: String,
    /// The schema the run keeps to.
    pub(crate) schema: String,
    /// How long orders are placed; none means until a signal.
    pub(crate) open_for: Option<Duration>,
    /// Orders per second.
    pub(crate) rate: f64,
    /// Handlers at once.
    pub(crate) workers: usize,
    /// Orders placed at once.
    pub(crate) queues: u32,
}

/// Runs the shop and checks its books.
pub(crate) async fn run<S: Shop>(
    shop: S,
    provider: Arc<dyn Provider>,
    plan: Plan,
    mut view: View,
    mut signals: Signals,
) -> anyhow::Result<Summary> {
    let meter = Meter::install();
    let shop = Arc::new(shop);
    let run = mainstay::WorkItemId::new().as_uuid();
    // Mainstay itself waits for a database that is down; a person would rather know.
    let deployed = provider.schema().deploy().await;
    deployed.with_context(|| format!("the demo can't use {}", plan.location))?;
    shop.open().await?;
    let reports = Arc::new(Reports::default());
    let (branches, complete) = (Branches::open(&plan.branches).await?, Complete::default());
    let outside = (&branches, &complete);
    let mainstay = workers::employ(&shop, Arc::clone(&provider), plan.workers, run, &reports, outside)?;
    let running = mainstay.start().await?;

    let opened = Instant::now();
    let orders = Arc::new(Orders::default());
    let (close, closing) = watch::channel(false);
    let outbox = mainstay.outbox().clone();
    let foremen = foremen::work_until(Arc::clone(&shop), mainstay.leases().clone(), run, closing.clone());
    let foremen = tokio::spawn(foremen);
    let customers = shop_until(
        Arc::clone(&shop),
        outbox.clone(),
        Arc::clone(&orders),
        run,
        plan.rate,
        plan.queues,
        closing,
    );
    let customers = tokio::spawn(customers);
    let stats = OutboxStats::default();
    let mut watched =
        Watched { outbox: &outbox, meter: &meter, orders: &orders, complete: &complete, opened, stats };

    let closing_time = plan.open_for.map(|duration| opened + duration);
    let asked = tokio::select! {
        () = at(closing_time) => false,
        () = signals.stop() => true,
        () = watched.show(&mut view, Phase::Open { closes: closing_time }) => false,
    };
    close.send_replace(true);
    let open_for = opened.elapsed();
    let finish = async {
        // Orders under way are placed all the same.
        customers.await.context("the customers broke off")?;
        foremen.await.context("the foremen broke off")?;
        patiently(async || {
            mainstay.jobs().disable(&stock::job(run)).await?;
            Ok(inventory::stop(&mainstay, run).await?)
        })
        .await?;
        drain(&*shop, &mainstay, &branches, &meter, run).await
    };
    let books = tokio::select! {
        books = finish => books,
        () = watched.show(&mut view, Phase::Draining) => Ok(Books::default()),
    };
    let stopped = running.stop().await.map_err(anyhow::Error::from);
    let ended = async {
        let books = books?;
        stopped?;
        // Once more after the last worker has gone, unless all had ended before: nothing can change then.
        let books = match books.is_pending() {
            true => Books::read(&*shop, &mainstay, &branches, run).await?,
            false => books,
        };
        mainstay.jobs().delete(&stock::job(run)).await?;
        anyhow::Ok(books)
    };
    let ended = ended.await;
    branches.close().await;
    view.end();
    let books = ended.map_err(|error| without_books(&error, &plan, run))?;
    Ok(Summary::new(&plan, &provider, books, &meter, &orders, &reports, open_for, opened.elapsed(), asked))
}

/// Tries again while the database can't be reached, for a bounded time.
async fn patiently<T>(mut attempt: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + DRAIN;
    loop {
        match attempt().await {
            Err(error) if is_away(&error) && Instant::now() < deadline => tokio::time::sleep(TICK).await,
            ended => return ended,
        }
    }
}

/// Whether the database may be there again later.
fn is_away(error: &anyhow::Error) -> bool {
    let library = error.chain().find_map(|cause| cause.downcast_ref::<mainstay::Error>());
    library.is_some_and(mainstay::Error::is_retryable)
}

/// What is told where the books can't be read, and what is left in the database.
fn without_books(error: &anyhow::Error, plan: &Plan, run: Uuid) -> anyhow::Error {
    let (code, why) = failure::in_a_line(error);
    let schema = &plan.schema;
    let place = format!("--database {} --schema {schema}", plan.location);
    let job = stock::job(run);
    Failure::with_code(code, "the shop is closed, and its books could not be read: nobody knows whether they balance")
        .because(why)
        .hint(format!(
            "when the database is there again, look at what was left with `mainstay {place} outbox stats`, \
             and end the run's job with `mainstay {place} jobs delete {job}`; or drop {schema} and run the demo again"
        ))
        .into()
}

/// Waits until everything of the run is settled, as long as it goes on, and reads the books. What was ordered is finite, so there is an end
/// however slow the database is; and something that hangs is not waited for.
async fn drain<S: Shop>(
    shop: &S,
    mainstay: &Mainstay,
    branches: &Branches,
    meter: &Meter,
    run: Uuid,
) -> anyhow::Result<Books> {
    let count = || {
        let reading = meter.read();
        reading.done + reading.failed
    };
    let (mut ended, mut deadline) = (count(), Instant::now() + DRAIN);
    loop {
        if ended != count() {
            (ended, deadline) = (count(), Instant::now() + DRAIN);
        }
        let late = Instant::now() >= deadline;
        // The quick look may miss what moves between its two halves; the books, read in full, do not.
        let look = async {
            if late || !has_open(mainstay.outbox(), run).await? {
                let books = Books::read(shop, mainstay, branches, run).await?;
                return anyhow::Ok(Some(books).filter(|books| late || !books.is_pending()));
            }
            Ok(None)
        };
        match look.await {
            Ok(Some(books)) => return Ok(books),
            Err(error) if late || !is_away(&error) => return Err(error),
            Ok(None) | Err(_) => tokio::time::sleep(TICK).await,
        }
    }
}

async fn has_open(outbox: &Outbox, run: Uuid) -> mainstay::Result<bool> {
    for status in [Status::Ready, Status::InProgress] {
        let filter = MessageFilter::all().status(status).correlation_id(Order::correlation(run));
        if !outbox.list(&filter, Page { limit: 1, before: None }).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the view shows.
struct Watched<'a> {
    outbox: &'a Outbox,
    meter: &'a Meter,
    orders: &'a Orders,
    complete: &'a Complete,
    opened: Instant,
    /// As they were last counted.
    stats: OutboxStats,
}

impl Watched<'_> {
    /// Keeps the view up to date; never ends.
    async fn show(&mut self, view: &mut View, phase: Phase) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // A database that takes its time must not freeze the view, and is not asked again before it has answered: the last counts stand.
        let mut asked = Box::pin(self.outbox.stats());
        let mut answered = false;
        loop {
            tokio::select! {
                counted = &mut asked, if !answered => {
                    if let Ok(stats) = counted {
                        self.stats = stats;
                    }
                    answered = true;
                    continue;
                }
                _ = ticks.tick() => {}
            }
            if answered {
                asked.set(self.outbox.stats());
                answered = false;
            }
            let counted = (self.orders, self.complete.times());
            view.show(phase, self.opened.elapsed(), counted, self.meter, &self.stats);
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
