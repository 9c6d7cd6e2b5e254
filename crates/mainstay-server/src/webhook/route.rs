//! A route: which messages go to which URL, and how.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use mainstay_core::backoff::Backoff;
use mainstay_core::breaker::BreakerOptions;
use mainstay_core::join::JOIN_WAIT;
use mainstay_core::queue::TopicPolicy;
use mainstay_core::text::validate_name;
use mainstay_core::{Error, Result};

use crate::changing::Changing;
use crate::tls::client_tls;

use super::connect::Allowed;
use super::exchange::Way;
use super::gate::Gate;
use super::network::Network;
use super::secret::Secret;
use super::target::Target;

const ROUTE: &str = "webhook.route";

/// Secrets at once: the one in use, those before and after it, and some to spare.
const SECRETS_MAX: usize = 8;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How far a delay is spread, so that messages that failed together don't come back together.
const JITTER: f64 = 0.1;

/// The messages that a route takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topics {
    /// Those of this topic, with case.
    Topic(String),
    /// Those of topics that begin so and have no route of their own; the longest prefix has them, the empty one has the rest.
    Prefix(String),
}

/// The queue that a route takes its messages from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouteQueue {
    /// The outbox.
    #[default]
    Outbox,
    /// The inbox.
    Inbox,
}

/// How a route delivers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RouteOptions {
    /// Where its messages come from. Defaults to the outbox.
    pub queue: RouteQueue,
    /// Networks that deliveries may go to beside the internet, this machine's own included. Defaults to none.
    pub allow_networks: Vec<Network>,
    /// Whether deliveries may leave this machine without TLS. Defaults to false.
    pub allow_http: bool,
    /// A PEM file of certificates to trust beside those of the system. Defaults to none.
    pub ca_file: Option<PathBuf>,
    /// What bodies are said to be. Defaults to what the message's header `content-type` says, or else to JSON if it is, or to plain text.
    pub content_type: Option<String>,
    /// How long it may take to look up the name, connect and agree on TLS: up to an hour. Defaults to 5 s.
    pub connect_timeout: Duration,
    /// How long all of a delivery may take, to the end of the answer: up to an hour. Defaults to 30 s.
    pub timeout: Duration,
    /// Deliveries at once, in this process, 1 to 10,000. Defaults to 8.
    pub concurrency: usize,
    /// Deliveries before a message is given up, 1 to 999,999. Defaults to 16: with the default delays about four hours.
    pub attempts: u32,
    /// The delay after the first failure; it doubles with each: up to 24 h. Defaults to 1 s.
    pub backoff: Duration,
    /// The longest delay, up to 30 days. Defaults to 1 h.
    pub backoff_max: Duration,
    /// How long at most a receiver may ask us to wait, up to 30 days. Defaults to 24 h.
    pub retry_after_max: Duration,
    /// Failures of the receiver in a row after which it is left alone, 1 to 10,000. Defaults to 5.
    pub breaker_failures: u32,
    /// For how long it is left alone first, and at most. Defaults to 1 s and 1 min.
    pub breaker: BreakerOptions,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            queue: RouteQueue::Outbox,
            allow_networks: Vec::new(),
            allow_http: false,
            ca_file: None,
            content_type: None,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            concurrency: 8,
            attempts: 16,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(3_600),
            retry_after_max: DAY,
            breaker_failures: 5,
            breaker: BreakerOptions::default(),
        }
    }
}

impl RouteOptions {
    fn validate(&self) -> Result<()> {
        let hour = Duration::from_secs(3_600);
        for (field, value, most) in [
            ("connect_timeout", self.connect_timeout, hour),
            ("timeout", self.timeout, hour),
            ("backoff", self.backoff, DAY),
            ("backoff_max", self.backoff_max, 30 * DAY),
            ("retry_after_max", self.retry_after_max, 30 * DAY),
            ("breaker_pause", self.breaker.min, DAY),
            ("breaker_pause_max", self.breaker.max, DAY),
        ] {
            if value.is_zero() || value > most {
                let reason =
                    format_args!("must be above zero and at most {} s, got {value:?}", most.as_secs());
                return Err(Error::invalid(ROUTE, field, reason));
            }
        }
        for (field, value, most) in [
            ("concurrency", self.concurrency, 10_000),
            ("attempts", self.attempts as usize, 999_999),
            ("breaker_failures", self.breaker_failures as usize, 10_000),
        ] {
            if !(1..=most).contains(&value) {
                return Err(Error::invalid(ROUTE, field, format_args!("must be 1 to {most}, got {value}")));
            }
        }
        for (field, least, most) in [
            ("backoff_max", self.backoff, self.backoff_max),
            ("breaker_pause_max", self.breaker.min, self.breaker.max),
        ] {
            if most < least {
                let reason = format_args!("must be at least the first one, {least:?}, got {most:?}");
                return Err(Error::invalid(ROUTE, field, reason));
            }
        }
        Ok(())
    }
}

/// Messages of some topics, delivered to a URL.
pub struct Route {
    pub(super) name: Arc<str>,
    pub(super) topics: Topics,
    pub(super) queue: RouteQueue,
    pub(super) way: Way,
    pub(super) secrets: Changing<Vec<Secret>>,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) retry_after_max: Duration,
    pub(super) concurrency: usize,
    pub(super) policy: TopicPolicy,
    pub(super) gate: Gate,
}

impl Route {
    /// A route called `name` in logs and metrics. Every request is signed with each of the secrets, so that one can take another's place:
    /// give both for a while.
    pub fn new(
        name: &str,
        topics: Topics,
        url: &str,
        secrets: Vec<Secret>,
        options: RouteOptions,
    ) -> Result<Self> {
        validate_name(ROUTE, "name", name)?;
        match &topics {
            Topics::Topic(topic) => validate_name(ROUTE, "topic", topic)?,
            Topics::Prefix(prefix) if prefix.is_empty() => {}
            Topics::Prefix(prefix) => validate_name(ROUTE, "prefix", prefix)?,
        }
        if topics == Topics::Topic(JOIN_WAIT.to_owned()) && options.queue == RouteQueue::Outbox {
            return Err(Error::invalid(
                ROUTE,
                "topic",
                format_args!("must not be {JOIN_WAIT}, which Mainstay handles itself"),
            ));
        }
        let target = Target::parse(url)?;
        if !(1..=SECRETS_MAX).contains(&secrets.len()) {
            let got = secrets.len();
            return Err(Error::invalid(
                ROUTE,
                "secrets",
                format_args!(
                    "must be 1 to {SECRETS_MAX}, got {got}; make one with: echo whsec_$(openssl rand -base64 32)"
                ),
            ));
        }
        options.validate()?;
        let content_type =
            options.content_type.as_deref().map(HeaderValue::from_str).transpose().map_err(|_| {
                Error::invalid(
                    ROUTE,
                    "content_type",
                    "must be like application/json, in visible letters of ASCII",
                )
            })?;
        let allowed = Allowed { networks: options.allow_networks, http: options.allow_http };
        check(&target, &allowed)?;
        let backoff = Backoff::exponential(options.backoff, options.backoff_max).jitter(JITTER);
        let name: Arc<str> = name.into();
        Ok(Self {
            gate: Gate::new(
                Arc::clone(&name),
                options.concurrency,
                options.breaker_failures,
                options.timeout,
                options.breaker,
            ),
            name,
            topics,
            queue: options.queue,
            way: Way {
                target,
                allowed,
                tls: client_tls(options.ca_file.as_deref())?,
                connect_timeout: options.connect_timeout,
                timeout: options.timeout,
            },
            secrets: Changing::new(secrets),
            content_type,
            retry_after_max: options.retry_after_max,
            concurrency: options.concurrency,
            policy: TopicPolicy::default()
                .concurrency(options.concurrency)
                .attempts(options.attempts)
                .backoff(backoff),
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Refuses what no delivery could ever reach. Names are looked up, and their addresses checked, with each delivery.
fn check(target: &Target, allowed: &Allowed) -> Result<()> {
    let refused = target.address().and_then(|address| allowed.refuses(address, target.secure));
    if let Some(why) = refused {
        return Err(Error::invalid(ROUTE, "url", format_args!("can't be delivered to: {why}")));
    }
    if !target.secure && !allowed.http && !target.is_local() {
        return Err(Error::invalid(
            ROUTE,
            "url",
            "must begin with https:// unless it is this machine; set allow_http if it is meant to be sent in the clear",
        ));
    }
    Ok(())
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("topics", &self.topics)
            .field("target", &self.way.target)
            .finish_non_exhaustive()
    }
}
