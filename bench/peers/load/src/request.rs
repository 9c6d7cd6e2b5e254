//! The command line that all programs speak.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail};

use crate::Result;

const USAGE: &str = "\
--database URL --work enqueue_<callers>|bulk|drain|end_to_end|latency
    [--seconds N] [--messages N] [--payload BYTES] [--workers N]";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// So many callers enqueue one message after the other, each durable before the next.
    Enqueue(u64),
    /// One caller enqueues many messages per call.
    Bulk,
    /// Workers with handlers empty a full queue.
    Drain,
    /// 16 callers enqueue one message after the other while workers handle them.
    EndToEnd,
    /// 50 messages a second to workers with nothing else to do.
    Latency,
}

impl FromStr for Work {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "bulk" => Self::Bulk,
            "drain" => Self::Drain,
            "end_to_end" => Self::EndToEnd,
            "latency" => Self::Latency,
            _ => match text.strip_prefix("enqueue_").and_then(|callers| callers.parse().ok()) {
                Some(callers @ 1..) => Self::Enqueue(callers),
                _ => bail!("there is no work {text:?}"),
            },
        })
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enqueue(callers) => write!(f, "enqueue_{callers}"),
            Self::Bulk => f.write_str("bulk"),
            Self::Drain => f.write_str("drain"),
            Self::EndToEnd => f.write_str("end_to_end"),
            Self::Latency => f.write_str("latency"),
        }
    }
}

/// What a program was asked to do.
#[derive(Clone)]
pub struct Request {
    /// An empty database.
    pub database: String,
    /// What to measure.
    pub work: Work,
    /// How long, where time ends it.
    pub seconds: u64,
    /// How many, where the number ends it.
    pub messages: u64,
    /// The size of a message's payload in bytes.
    pub payload: usize,
    /// Workers in the process, where the program lets one choose.
    pub workers: Option<usize>,
}

impl Request {
    /// The arguments of this process.
    pub fn from_arguments() -> Result<Self> {
        Self::parse(std::env::args().skip(1)).with_context(|| format!("usage: {USAGE}"))
    }

    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let (mut database, mut work) = (None, None);
        let (mut seconds, mut messages, mut payload, mut workers) = (5, 100_000, 200, None);
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} takes a value"))?;
            let wrong = || format!("the value of {name}");
            match name.as_str() {
                "--database" => database = Some(value),
                "--work" => work = Some(value.parse()?),
                "--seconds" => seconds = value.parse().with_context(wrong)?,
                "--messages" => messages = value.parse().with_context(wrong)?,
                "--payload" => payload = value.parse().with_context(wrong)?,
                "--workers" => workers = Some(value.parse().with_context(wrong)?),
                _ => bail!("there is no option {name:?}"),
            }
        }
        Ok(Self {
            database: database.context("--database is missing")?,
            work: work.context("--work is missing")?,
            seconds,
            messages,
            payload,
            workers,
        })
    }

    /// The part of a payload that makes up its size; the rest is the number and the braces.
    pub fn filling(&self) -> String {
        const AROUND: usize = 30;
        "x".repeat(self.payload.saturating_sub(AROUND))
    }
}
