//! Routes of webhooks as the configuration has them: `[[serve.webhook]]`.
//!
//! Secrets are read once, here, and shown nowhere: no mistake quotes one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay::server::webhook::{Route, RouteOptions, RouteQueue, Secret, Topics, Webhooks};
use mainstay::{Error, Result};
use serde::Deserialize;

use crate::failure::Failure;

/// One route.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookFile {
    name: Option<String>,
    topic: Option<String>,
    prefix: Option<String>,
    queue: Option<String>,
    url: Option<String>,
    secrets: Option<Secrets>,
    secrets_env: Option<String>,
    secrets_file: Option<PathBuf>,
    content_type: Option<String>,
    #[serde(default)]
    allow_networks: Vec<String>,
    #[serde(default)]
    allow_http: bool,
    ca_file: Option<PathBuf>,
    connect_timeout_seconds: Option<f64>,
    timeout_seconds: Option<f64>,
    concurrency: Option<usize>,
    attempts: Option<u32>,
    backoff_seconds: Option<f64>,
    backoff_max_seconds: Option<f64>,
    retry_after_max_seconds: Option<f64>,
    breaker_failures: Option<u32>,
    breaker_pause_seconds: Option<f64>,
    breaker_pause_max_seconds: Option<f64>,
}

/// One secret, or several. Both, because an error of serde quotes a text where it expects a list; of these it says only that neither fits.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Secrets {
    One(String),
    Several(Vec<String>),
}

/// The routes of the file, checked. A mistake names the route, the field and what to do.
pub(super) fn webhooks(files: Vec<WebhookFile>) -> std::result::Result<Webhooks, Failure> {
    let routes = files.into_iter().enumerate().map(|(at, file)| {
        let called = match &file.name {
            Some(name) => format!("the webhook {name:?}"),
            None => format!("webhook number {}", at + 1),
        };
        file.route().map_err(|error| {
            Failure::usage(format!("{called} is not valid"))
                .because(error.message())
                .hint("see [[serve.webhook]] in docs/reference/configuration.md")
        })
    });
    let routes = routes.collect::<std::result::Result<Vec<_>, _>>()?;
    Webhooks::new(routes)
        .map_err(|error| Failure::usage("[[serve.webhook]] is not valid").because(error.message()))
}

impl WebhookFile {
    fn route(self) -> Result<Route> {
        let missing = |field| move || invalid(field, "must be given");
        let secrets = self.secrets()?;
        let options = self.options()?;
        let name = self.name.ok_or_else(missing("name"))?;
        let topics = match (self.topic, self.prefix) {
            (Some(topic), None) => Topics::Topic(topic),
            (None, Some(prefix)) => Topics::Prefix(prefix),
            (None, None) => {
                return Err(invalid("topic", "or prefix must be given: which messages it is for"));
            }
            (Some(_), Some(_)) => {
                return Err(invalid("topic", "and prefix can't both be given; make two routes"));
            }
        };
        Route::new(&name, topics, &self.url.ok_or_else(missing("url"))?, secrets, options)
    }

    /// Those of the file itself, of the environment and of a file of their own.
    fn secrets(&self) -> Result<Vec<Secret>> {
        let mut texts = match &self.secrets {
            None => Vec::new(),
            Some(Secrets::One(text)) => several(text).collect(),
            Some(Secrets::Several(texts)) => texts.clone(),
        };
        let misplaced = |text: &str| text.contains("whsec_");
        if self.secrets_env.as_deref().is_some_and(misplaced) {
            return Err(invalid(
                "secrets_env",
                "must name an environment variable, and not be the secret itself",
            ));
        }
        if self.secrets_file.as_deref().and_then(Path::to_str).is_some_and(misplaced) {
            return Err(invalid("secrets_file", "must name a file, and not be the secret itself"));
        }
        if let Some(variable) = &self.secrets_env {
            let value = std::env::var(variable).unwrap_or_default();
            if value.trim().is_empty() {
                let reason =
                    format_args!("names {variable}, and there is nothing in that environment variable");
                return Err(invalid("secrets_env", reason));
            }
            texts.extend(several(&value));
        }
        if let Some(path) = &self.secrets_file {
            let value = std::fs::read_to_string(path).map_err(|error| {
                invalid("secrets_file", format_args!("{} can't be read: {error}", path.display()))
            })?;
            texts.extend(several(&value));
        }
        texts.iter().map(|text| text.parse()).collect()
    }

    fn options(&self) -> Result<RouteOptions> {
        let mut options = RouteOptions::default();
        options.queue = match self.queue.as_deref() {
            None | Some("outbox") => RouteQueue::Outbox,
            Some("inbox") => RouteQueue::Inbox,
            Some(other) => {
                return Err(invalid("queue", format_args!("must be \"outbox\" or \"inbox\", got {other:?}")));
            }
        };
        options.allow_networks =
            self.allow_networks.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        options.allow_http = self.allow_http;
        options.ca_file = self.ca_file.clone();
        options.content_type = self.content_type.clone();
        options.concurrency = self.concurrency.unwrap_or(options.concurrency);
        options.attempts = self.attempts.unwrap_or(options.attempts);
        options.breaker_failures = self.breaker_failures.unwrap_or(options.breaker_failures);
        for (field, seconds, place) in [
            ("connect_timeout_seconds", self.connect_timeout_seconds, &mut options.connect_timeout),
            ("timeout_seconds", self.timeout_seconds, &mut options.timeout),
            ("backoff_seconds", self.backoff_seconds, &mut options.backoff),
            ("backoff_max_seconds", self.backoff_max_seconds, &mut options.backoff_max),
            ("retry_after_max_seconds", self.retry_after_max_seconds, &mut options.retry_after_max),
            ("breaker_pause_seconds", self.breaker_pause_seconds, &mut options.breaker.min),
            ("breaker_pause_max_seconds", self.breaker_pause_max_seconds, &mut options.breaker.max),
        ] {
            if let Some(seconds) = seconds {
                *place = Duration::try_from_secs_f64(seconds).map_err(|_| {
                    invalid(field, format_args!("must be a number of seconds above zero, got {seconds}"))
                })?;
            }
        }
        Ok(options)
    }
}

/// Secrets with blanks, commas or lines between them.
fn several(text: &str) -> impl Iterator<Item = String> {
    text.split([',', ' ', '\t', '\r', '\n']).filter(|part| !part.is_empty()).map(str::to_owned)
}

fn invalid(field: &'static str, reason: impl std::fmt::Display) -> Error {
    Error::invalid("webhook.route", field, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[derive(Deserialize)]
    struct File {
        webhook: Vec<WebhookFile>,
    }

    fn read(toml: &str) -> std::result::Result<Webhooks, Failure> {
        webhooks(toml::from_str::<File>(toml).unwrap().webhook)
    }

    fn route(more: &str) -> String {
        format!("[[webhook]]\nname = 'billing'\nsecrets = ['{SECRET}']\n{more}\n")
    }

    #[test]
    fn a_route_needs_little() {
        read(&route("topic = 'order.paid'\nurl = 'https://shop.example/hooks'")).unwrap();
        read(&route(
            "prefix = ''\nqueue = 'inbox'\nurl = 'http://127.0.0.1:1'\nallow_networks = ['127.0.0.1']",
        ))
        .unwrap();
    }

    #[test]
    fn each_mistake_names_the_route_and_the_field() {
        let good = "topic = 't'\nurl = 'https://shop.example/s3cret'\n";
        let with = |more: &str| format!("{good}{more}");
        for (more, field) in [
            ("topic = 't'".to_owned(), "url"),
            ("url = 'https://shop.example'".to_owned(), "topic"),
            (with("prefix = 'x'"), "prefix"),
            (with("queue = 'timers'"), "queue"),
            (with("timeout_seconds = 0"), "timeout"),
            (with("timeout_seconds = -1"), "timeout_seconds"),
            (with("timeout_seconds = 1e99"), "timeout_seconds"),
            (with("connect_timeout_seconds = nan"), "connect_timeout_seconds"),
            (with("concurrency = 0"), "concurrency"),
            (with("attempts = 0"), "attempts"),
            (with("breaker_failures = 0"), "breaker_failures"),
            (with("breaker_pause_seconds = 90"), "breaker_pause_max"),
            (with("backoff_seconds = 7200"), "backoff_max"),
            (with("secrets_env = 'MAINSTAY_TEST_UNSET_S3'"), "secrets_env"),
            (with("secrets_file = '/nowhere/at/all'"), "secrets_file"),
            (with("allow_networks = ['10.0.0.0/99']"), "allow_networks"),
            (with("ca_file = '/nowhere/at/all.pem'"), "ca_file"),
            (with("content_type = \"a\\nb\""), "content_type"),
            ("topic = 'join.wait'\nurl = 'https://shop.example'".to_owned(), "topic"),
            ("topic = 't'\nurl = 'http://shop.example'".to_owned(), "allow_http"),
            ("topic = 't'\nurl = 'http://127.0.0.1'".to_owned(), "allow_networks"),
            ("topic = 't'\nurl = 'https://169.254.169.254'".to_owned(), "allow_networks"),
            ("topic = 't'\nurl = 'https://[::1]'".to_owned(), "allow_networks"),
            ("topic = 't'\nurl = 'https://a:s3cret@shop.example'".to_owned(), "url"),
        ] {
            let told = read(&route(&more)).err().unwrap_or_else(|| panic!("{more}")).to_string();
            assert!(told.contains("\"billing\"") && told.contains(field), "{more}: {told}");
            assert!(!told.contains("s3cret") && !told.contains("MfKQ"), "{told}");
        }
    }

    #[test]
    fn secrets_are_never_told() {
        for secret in ["s3cret", "whsec_s3cret", "whsec_czNjcmV0"] {
            let toml = format!(
                "[[webhook]]\nname = 'b'\ntopic = 't'\nurl = 'https://x.example'\nsecrets = ['{secret}']"
            );
            let told = read(&toml).err().unwrap().to_string();
            assert!(told.contains("whsec_") && !told.contains("s3cret") && !told.contains("czNj"), "{told}");
        }
        let one = route("topic = 't'\nurl = 'https://x.example'")
            .replace(&format!("['{SECRET}']"), &format!("'{SECRET}'"));
        assert!(read(&one).is_ok(), "one needs no list");
        for wrong in ["{ a = 's3cret' }", "['s3cret', 7]", "[['s3cret']]"] {
            let toml = one.replace(&format!("'{SECRET}'"), wrong);
            let error = toml::from_str::<File>(&toml).err().unwrap();
            assert!(!error.message().contains("s3cret"), "{}", error.message());
        }
        for field in ["secrets_env", "secrets_file"] {
            let told =
                read(&route(&format!("topic = 't'\nurl = 'https://x.example'\n{field} = 'whsec_s3cret'")));
            let told = told.err().unwrap().to_string();
            assert!(told.contains(field) && !told.contains("s3cret"), "{told}");
        }
        let none = "[[webhook]]\nname = 'b'\ntopic = 't'\nurl = 'https://x.example'";
        assert!(read(none).err().unwrap().to_string().contains("openssl rand"));
        let webhooks = read(&route("topic = 't'\nurl = 'https://shop.example/s3cret'")).unwrap();
        let told = format!("{webhooks:?}");
        assert!(!told.contains("s3cret") && !told.contains("MfKQ"), "{told}");
    }

    #[test]
    fn a_message_goes_to_one_route() {
        let url = "url = 'https://shop.example'";
        let twice =
            format!("{}{}", route(&format!("topic = 't'\n{url}")), route(&format!("topic = 'u'\n{url}")));
        assert!(read(&twice).err().unwrap().to_string().contains("name"));
        let other = route(&format!("topic = 't'\n{url}")).replace("billing", "other");
        let same = format!("{}{other}", route(&format!("topic = 't'\n{url}")));
        let told = read(&same).err().unwrap().to_string();
        assert!(told.contains("topic") && told.contains("billing") && told.contains("other"), "{told}");
    }
}
