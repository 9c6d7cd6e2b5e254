//! What a message says, on the command line: the same for one that is sent now and one that is sent later.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use mainstay::Message;
use mainstay::outbox::{Limits, OnFailure};

use crate::failure::Failure;

/// What a message says.
#[derive(Debug, Args)]
pub(crate) struct ContentArgs {
    /// The topic, 1 to 255 characters
    topic: String,
    /// The payload; `-` reads it from stdin
    #[arg(conflicts_with = "payload_file")]
    payload: Option<String>,
    /// Read the payload from a file
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Link the message to the request it came from
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// An idempotency key: the same key a second time adds nothing and gives the first message's ids
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Messages with the same ordering key are handled one at a time, in order
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Should it fail for good, hold the later messages of its ordering key back
    #[arg(long, requires = "ordering_key")]
    hold_on_failure: bool,
    /// -9 to 9, higher first [default: 0]
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// A text that travels with the message; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
}

impl ContentArgs {
    /// The message. Nothing is checked yet.
    pub(crate) fn message(&self) -> anyhow::Result<Message> {
        let payload = read_payload(self.payload.as_deref(), self.payload_file.as_deref())?;
        let mut message = Message::new(&self.topic, payload.unwrap_or_default());
        if let Some(id) = &self.correlation_id {
            message = message.correlation(id);
        }
        if let Some(key) = &self.key {
            message = message.idempotency_key(key);
        }
        if let Some(key) = &self.ordering_key {
            message = message.ordering_key(key);
        }
        if self.hold_on_failure {
            message = message.on_failure(OnFailure::Hold);
        }
        if let Some(level) = self.priority {
            message = message.priority(level);
        }
        for (number, (name, value)) in self.headers.iter().enumerate() {
            if self.headers[..number].iter().any(|(earlier, _)| earlier == name) {
                let failure = Failure::usage(format!("the header {name:?} is given twice"));
                return Err(failure
                    .hint("give each --header once: a message has one value of a name")
                    .into());
            }
            message = message.header(name, value);
        }
        Ok(message)
    }
}

/// A payload as it was given: as an argument, `-` for stdin, or in a file. None if it was not.
pub(crate) fn read_payload(given: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let bytes = match (file, given) {
        (Some(path), _) => std::fs::read(path).map_err(|error| {
            Failure::usage(format!("the payload file {} can't be read", path.display())).because(error)
        })?,
        (None, Some("-")) => {
            let mut bytes = Vec::new();
            // One byte past the limit is enough to see that it is too long.
            let most = Limits::default().payload_bytes as u64 + 1;
            let read = std::io::stdin().lock().take(most).read_to_end(&mut bytes);
            read.context("the payload can't be read from stdin")?;
            bytes
        }
        (None, given) => return Ok(given.map(str::to_owned)),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage("the payload is not a text")
            .because(format!("it is not valid UTF-8 from byte {at} on"))
            .hint("payloads are texts; encode binary data, as base64 for example")
    })?;
    Ok(Some(text))
}

/// What no database takes is refused before one is opened. Whether it takes a NUL is for it to say.
pub(crate) fn lenient() -> Limits {
    let mut limits = Limits::default();
    limits.nul_in_payload = true;
    limits
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a header is written NAME=VALUE".to_owned()),
    }
}
