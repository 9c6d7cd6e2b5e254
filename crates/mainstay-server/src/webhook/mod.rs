//! Delivery to HTTP handlers: messages of some topics, each sent as a signed request to a URL.
//!
//! A [`Route`] is a handler like any other: the dispatcher claims, renews and settles, so a delivery that dies with its process is made again,
//! under the same `webhook-id`. A 2xx acks, 410 fails for good, everything else is tried again. Topics without a route are left to others.
//!
//! ```
//! # use std::time::Duration;
//! # use mainstay_core::Result;
//! # use mainstay_core::runtime::MainstayBuilder;
//! use mainstay_server::webhook::{Route, RouteOptions, Topics, Webhooks};
//!
//! # fn routes(mainstay: MainstayBuilder) -> Result<MainstayBuilder> {
//! let mut options = RouteOptions::default();
//! options.concurrency = 2;
//! let secrets = vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?];
//! let topics = Topics::Prefix("order.".to_owned());
//! let route = Route::new("billing", topics, "https://billing.example/hooks", secrets, options)?;
//! let mainstay = Webhooks::new(vec![route])?.register(mainstay, Duration::from_secs(10));
//! # Ok(mainstay)
//! # }
//! ```

mod connect;
mod deliver;
mod exchange;
mod gate;
mod network;
mod request;
mod retry_after;
mod route;
mod secret;
mod target;

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::queue::{Context, DispatcherOptions};
use mainstay_core::runtime::{MainstayBuilder, QueueBuilder};
use mainstay_core::{Error, Result};

pub use network::Network;
pub use route::{Route, RouteOptions, RouteQueue, Topics};
pub use secret::Secret;

/// Handlers at once beside those of routes: of Mainstay's own topics.
const OTHERS: usize = 4;

/// The routes of a process.
#[derive(Debug, Clone, Default)]
pub struct Webhooks {
    routes: Vec<Arc<Route>>,
}

impl Webhooks {
    /// These routes. A topic, a prefix and a name have one each.
    pub fn new(routes: Vec<Route>) -> Result<Self> {
        for (at, route) in routes.iter().enumerate() {
            for other in &routes[..at] {
                if route.name == other.name {
                    let reason =
                        format_args!("must be another for each route, {:?} is there twice", route.name);
                    return Err(Error::invalid("webhook.routes", "name", reason));
                }
                if route.queue == other.queue && route.topics == other.topics {
                    let (field, what) = match &route.topics {
                        Topics::Topic(topic) => ("topic", topic),
                        Topics::Prefix(prefix) => ("prefix", prefix),
                    };
                    let (one, two) = (&other.name, &route.name);
                    let reason = format_args!(
                        "{what:?} is that of {one:?} and of {two:?}; a message goes to one route"
                    );
                    return Err(Error::invalid("webhook.routes", field, reason));
                }
            }
        }
        Ok(Self { routes: routes.into_iter().map(Arc::new).collect() })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Deliveries that begin from now on are signed with the secrets that routes of the same names have there. Nothing else of a route changes.
    pub fn change_secrets(&self, from: &Self) {
        for route in &self.routes {
            if let Some(same) = from.routes.iter().find(|other| other.name == route.name) {
                route.secrets.replace(same.secrets.get());
            }
        }
    }

    /// Handlers that all routes together can keep busy, with some to spare for Mainstay's own topics. A fleet should have as many at least: the handlers of
    /// its databases are counted together, and routes whose receivers are slow would leave none for the others.
    pub fn handlers_at_once(&self) -> usize {
        let most: usize = self.routes.iter().map(|route| route.concurrency).sum();
        (most + OTHERS).min(100_000)
    }

    /// Makes the routes handlers of a Mainstay. Topics without a handler there are left to others. At a stop, deliveries may go on for
    /// `grace`.
    pub fn register(&self, mainstay: MainstayBuilder, grace: Duration) -> MainstayBuilder {
        self.routes.iter().for_each(|route| route.gate.publish());
        mainstay
            .outbox(|outbox| self.handlers(RouteQueue::Outbox, outbox, grace))
            .inbox(|inbox| self.handlers(RouteQueue::Inbox, inbox, grace))
    }

    fn handlers<R>(
        &self,
        queue: RouteQueue,
        mut builder: QueueBuilder<R>,
        grace: Duration,
    ) -> QueueBuilder<R> {
        let routes: Vec<_> = self.routes.iter().filter(|route| route.queue == queue).collect();
        if routes.is_empty() {
            return builder;
        }
        let most = routes.iter().map(|route| route.concurrency).sum();
        builder = builder.options(|options| bounds(options, most, grace));
        for route in routes {
            let (policy, topics) = (route.policy.clone(), route.topics.clone());
            let route = Arc::clone(route);
            let handler = move |context: Context| {
                let route = Arc::clone(&route);
                async move { deliver::deliver(&route, context).await }
            };
            builder = match topics {
                Topics::Topic(topic) => builder.raw_handler_with(topic, policy, handler),
                Topics::Prefix(prefix) => builder.raw_prefix_handler_with(prefix, policy, handler),
            };
        }
        builder
    }
}

/// Room for every route, so that none has to wait until another's receiver answers.
fn bounds(options: &mut DispatcherOptions, most: usize, grace: Duration) {
    options.own_topics_only = true;
    options.concurrency = (most + OTHERS).min(100_000);
    options.prefetch = options.concurrency;
    options.grace = grace;
}
