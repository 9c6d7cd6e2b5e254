//! The runtime: services with one start, started, stop contract, and the builder that puts them together.

mod builder;
mod fanout;
mod jobs;
mod joins;
mod lifecycle;
mod mainstay;
mod maintenance;
pub(crate) mod pause;
mod purge;
mod queue;
mod sweep_clock;
mod timers;
mod watch;

#[cfg(feature = "testing")]
pub(crate) use builder::INBOX_DISPATCHER;
pub use builder::MainstayBuilder;
pub use fanout::{FanoutBuilder, FanoutWorkBuilder};
pub use jobs::JobsBuilder;
pub use joins::JoinsBuilder;
pub use lifecycle::{Lifecycle, Running, Service, start};
pub use mainstay::{Mainstay, RunningMainstay};
pub use maintenance::{
    AuditSweep, Gauges, InboxSweep, OperationSweep, Reaper, RetentionSweep, RunRetention, StalledOperations,
};
pub(crate) use maintenance::{LastDone, every, to_the_end};
pub use pause::Pause;
pub(crate) use pause::TROUBLE;
pub(crate) use purge::purge_pages;
pub use queue::{InboxBuilder, OutboxBuilder, QueueBuilder};
pub use sweep_clock::SweepClock;
pub use timers::TimersBuilder;
pub(crate) use watch::{Turn, Waited, Watch};
