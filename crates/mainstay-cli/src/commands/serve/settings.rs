//! How the interface is served: flags, environment, and the section `[serve]` of the configuration file, in this order.
//!
//! No token is ever in the configuration, only its hash.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mainstay::operation::OperationOptions;
use mainstay::runtime::MainstayBuilder;
use mainstay::server::webhook::Webhooks;
use mainstay::server::{
    Access, Interface, Limits, ListenOptions, Listener, Role, Stores, Token, TokenHash, TrustedProxy,
    server_tls,
};
use rustls::ServerConfig;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::retention::{Policy, RetentionFile};
use crate::text::parse_positive_duration;

use super::webhooks::{WebhookFile, webhooks};

const LISTEN: &str = "127.0.0.1:7417";
/// After how long without a sign of life an operation is marked as stalled, unless told otherwise.
const STALLED_AFTER: Duration = Duration::from_secs(3_600);
const TOKENS: &str = "MAINSTAY_TOKENS";

/// Where and how it listens.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ListenArgs {
    /// Where to listen: an address and a port, 0 for any [default: 127.0.0.1:7417; also MAINSTAY_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// TLS with this certificate and those that lead to its root, in PEM [also MAINSTAY_TLS_CERTIFICATE]
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's key, in PEM [also MAINSTAY_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

/// The section `[serve]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServeFile {
    listen: Option<String>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    max_body_bytes: Option<usize>,
    max_connections: Option<usize>,
    max_connections_per_address: Option<usize>,
    max_waiting: Option<usize>,
    max_batch: Option<usize>,
    max_wait_seconds: Option<u64>,
    header_timeout_seconds: Option<u64>,
    body_timeout_seconds: Option<u64>,
    stop_grace_seconds: Option<u64>,
    coordinate_fanouts: Option<bool>,
    operations_stalled_after: Option<String>,
    #[serde(default)]
    pub(crate) retention: RetentionFile,
    #[serde(default, rename = "token")]
    tokens: Vec<TokenFile>,
    proxy: Option<ProxyFile>,
    #[serde(default, rename = "webhook")]
    webhooks: Vec<WebhookFile>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    name: String,
    role: String,
    hash: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyFile {
    addresses: Vec<IpAddr>,
    header: String,
    others: Option<String>,
    #[serde(default)]
    roles: BTreeMap<String, String>,
}

impl ServeFile {
    /// What stands in it, key by key. What is a list or a section is told as that: it may hold a secret.
    pub(crate) fn told(&self) -> Vec<(String, String)> {
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let size = |size: Option<usize>| size.map(|size| size.to_string());
        let plain = [
            ("listen", self.listen.clone()),
            ("tls_certificate", shown(&self.tls_certificate)),
            ("tls_key", shown(&self.tls_key)),
            ("max_body_bytes", size(self.max_body_bytes)),
            ("max_connections", size(self.max_connections)),
            ("max_connections_per_address", size(self.max_connections_per_address)),
            ("max_waiting", size(self.max_waiting)),
            ("max_batch", size(self.max_batch)),
            ("max_wait_seconds", number(self.max_wait_seconds)),
            ("header_timeout_seconds", number(self.header_timeout_seconds)),
            ("body_timeout_seconds", number(self.body_timeout_seconds)),
            ("stop_grace_seconds", number(self.stop_grace_seconds)),
            ("coordinate_fanouts", self.coordinate_fanouts.map(|on| on.to_string())),
            ("operations_stalled_after", self.operations_stalled_after.clone()),
            ("proxy", self.proxy.as_ref().map(|proxy| format!("trusts {}", proxy.header))),
        ];
        let plain = plain.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let tokens = self.tokens.iter().map(|token| (format!("token.{}", token.name), token.role.clone()));
        plain.chain(self.retention.told()).chain(tokens).collect()
    }
}

/// Refuses what `serve` would refuse.
pub(crate) fn check(file: &ServeFile) -> Result<(), Failure> {
    Serving::collect(ListenArgs::default(), file.clone()).map(drop)
}

/// How the interface is served.
pub(super) struct Serving {
    address: SocketAddr,
    access: Access,
    limits: Limits,
    options: ListenOptions,
    coordinate_fanouts: bool,
    retention: Policy,
    operations_stalled_after: Option<Duration>,
    webhooks: Webhooks,
}

impl Serving {
    /// Collects it, and refuses what would let everybody in.
    pub(super) fn collect(flags: ListenArgs, file: ServeFile) -> Result<Self, Failure> {
        let listen =
            first(flags.listen, "MAINSTAY_LISTEN", file.listen)?.unwrap_or_else(|| LISTEN.to_owned());
        let address: SocketAddr = listen.parse().map_err(|_| {
            Failure::usage(format!("the address to listen at is not valid: {listen:?}"))
                .hint("give an address and a port, as in 127.0.0.1:7417 or [::]:7417")
        })?;
        let access = access(file.tokens, file.proxy)?;
        if access.is_open() && !address.ip().to_canonical().is_loopback() {
            return Err(Failure::usage(format!("it would listen at {address} without authentication"))
                .because("everybody who reaches that address could do everything")
                .hint("listen on loopback, or set up a token: `mainstay token new NAME --role operator`"));
        }
        let mut limits = Limits::default();
        limits.body_bytes = file.max_body_bytes.unwrap_or(limits.body_bytes);
        limits.batch = file.max_batch.unwrap_or(limits.batch);
        limits.wait = file.max_wait_seconds.map_or(limits.wait, Duration::from_secs);
        limits.body_timeout = file.body_timeout_seconds.map_or(limits.body_timeout, Duration::from_secs);
        let mut options = ListenOptions::default();
        options.connections = file.max_connections.unwrap_or(options.connections);
        options.per_address = file.max_connections_per_address;
        // Others are to be answered while they wait.
        limits.waiting = file.max_waiting.unwrap_or(limits.waiting.min(options.connections / 2));
        limits.validate().map_err(|error| told("[serve]", &error))?;
        options.header_timeout =
            file.header_timeout_seconds.map_or(options.header_timeout, Duration::from_secs);
        options.grace = file.stop_grace_seconds.map_or(options.grace, Duration::from_secs);
        within_bounds(&options)?;
        let certificate = path(flags.tls_certificate, "MAINSTAY_TLS_CERTIFICATE", file.tls_certificate)?;
        let key = path(flags.tls_key, "MAINSTAY_TLS_KEY", file.tls_key)?;
        options.tls = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Some(server_tls(&certificate, &key).map_err(|error| told("TLS", &error))?)
            }
            (None, None) => None,
            _ => {
                return Err(Failure::usage("TLS needs both a certificate and its key")
                    .hint("give --tls-certificate and --tls-key"));
            }
        };
        let coordinate_fanouts = file.coordinate_fanouts.unwrap_or(false);
        let retention = Policy::collect(&file.retention)?;
        let operations_stalled_after = stalled_after(file.operations_stalled_after.as_deref())?;
        let webhooks = webhooks(file.webhooks)?;
        Ok(Self {
            address,
            access,
            limits,
            options,
            coordinate_fanouts,
            retention,
            operations_stalled_after,
            webhooks,
        })
    }

    /// What runs beside the interface. Messages are handed out over HTTP, but for those that webhooks deliver.
    pub(super) fn background(&self, mainstay: MainstayBuilder) -> MainstayBuilder {
        self.delivering(self.retention.apply(mainstay, self.operations_stalled_after))
    }

    /// Makes the routes of webhooks handlers. What is under way at a stop has as long as answers have.
    fn delivering(&self, mainstay: MainstayBuilder) -> MainstayBuilder {
        self.webhooks.register(mainstay, self.options.grace)
    }

    /// Handlers that the routes of webhooks keep busy at most, in all databases together.
    pub(super) fn handlers_at_once(&self) -> usize {
        self.webhooks.handlers_at_once()
    }

    pub(super) fn coordinates_fanouts(&self) -> bool {
        self.coordinate_fanouts
    }

    /// The TLS, access and webhooks' secrets that a running server can take over.
    pub(super) fn changeable(self) -> (Option<Arc<ServerConfig>>, Access, Webhooks) {
        (self.options.tls, self.access, self.webhooks)
    }

    pub(super) fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    pub(super) fn interface(
        &self,
        stores: impl Into<Stores>,
        metrics: metrics_exporter_prometheus::PrometheusHandle,
        stop: CancellationToken,
    ) -> mainstay::Result<Interface> {
        Interface::builder(stores, self.access.clone())
            .limits(self.limits)
            .metrics(metrics)
            .stop(stop)
            .loopback_only(self.access.is_open())
            .build()
    }

    pub(super) async fn listen(&self) -> Result<Listener, Failure> {
        let listening = Listener::bind(self.address, self.options.clone()).await;
        listening.map_err(|error| match error.field() {
            Some(_) => told("[serve]", &error),
            None => Failure::new(error.message()).hint(
                "see whether another process listens there, and whether the address is one of this machine; --listen gives another",
            ),
        })
    }
}

/// Refuses what could not listen, before anything is opened.
fn within_bounds(options: &ListenOptions) -> Result<(), Failure> {
    options.validate().map_err(|error| {
        let field = error.field().unwrap_or_default();
        let key = match field {
            "connections" => "max_connections",
            "per_address" => "max_connections_per_address",
            "header_timeout" => "header_timeout_seconds",
            "grace" => "stop_grace_seconds",
            other => other,
        };
        let reason = error.message().strip_prefix(field).unwrap_or(error.message());
        Failure::usage("[serve] is not valid").because(format!("{key}{reason}"))
    })
}

/// Whoever works on an operation shows a sign of life more often than that, or has died.
fn stalled_after(given: Option<&str>) -> Result<Option<Duration>, Failure> {
    let wrong = |why: String| {
        Failure::usage("[serve] is not valid").because(format!("operations_stalled_after: {why}"))
    };
    let silence = match given {
        None => Some(STALLED_AFTER),
        Some("never") => None,
        Some(text) => {
            Some(parse_positive_duration(text).map_err(|why| wrong(format!("{why}; or \"never\"")))?)
        }
    };
    let checked = OperationOptions::default().stalled_after(silence).validate();
    checked.map_err(|error| wrong(error.message().to_owned()))?;
    Ok(silence)
}

fn access(tokens: Vec<TokenFile>, proxy: Option<ProxyFile>) -> Result<Access, Failure> {
    let tokens = tokens.into_iter().map(|token| (token.name, token.role, token.hash));
    let tokens: Vec<_> = tokens.chain(from_environment()?).collect();
    if tokens.is_empty() && proxy.is_none() {
        return Ok(Access::anyone());
    }
    let mut access = Access::nobody();
    for (name, role, hash) in tokens {
        let token = role.parse::<Role>().and_then(|role| Token::new(&name, role, TokenHash::parse(&hash)?));
        access = access.token(token.map_err(|error| told(&format!("the token {name:?}"), &error))?);
    }
    if let Some(file) = proxy {
        access = access.proxy(trusted(file).map_err(|error| told("[serve.proxy]", &error))?);
    }
    access.validate().map_err(|error| told("[serve]", &error))?;
    Ok(access)
}

fn trusted(file: ProxyFile) -> mainstay::Result<TrustedProxy> {
    let others = file.others.as_deref().map(str::parse).transpose()?;
    let mut proxy = TrustedProxy::new(file.addresses, &file.header)?.others(others);
    for (user, role) in file.roles {
        proxy = proxy.role(user, role.parse()?);
    }
    Ok(proxy)
}

/// `NAME:ROLE:HASH`, separated by commas or blanks.
fn from_environment() -> Result<Vec<(String, String, String)>, Failure> {
    let Some(text) = first(None, TOKENS, None)? else { return Ok(Vec::new()) };
    let entries = text.split([',', ' ', '\n']).filter(|entry| !entry.is_empty());
    let read = |entry: &str| {
        let mut parts = entry.splitn(3, ':').map(str::to_owned);
        Some((parts.next()?, parts.next()?, parts.next()?))
    };
    // Not quoted: it may be a token in the wrong place.
    let wrong = || Failure::usage(format!("{TOKENS} is not valid")).hint("each entry is NAME:ROLE:sha256:…");
    entries.map(|entry| read(entry).ok_or_else(wrong)).collect()
}

fn told(what: &str, error: &mainstay::Error) -> Failure {
    let field = error.field().unwrap_or_default();
    let text = match error.message().strip_prefix(field) {
        Some(rest) => format!("{}{rest}", key(field)),
        None => error.message().to_owned(),
    };
    Failure::usage(format!("{what} is not valid")).because(text)
}

/// The server's name of a field, as the configuration has it.
fn key(field: &str) -> &str {
    match field {
        "body_bytes" => "max_body_bytes",
        "batch" => "max_batch",
        "wait" => "max_wait_seconds",
        "waiting" => "max_waiting",
        "connections" => "max_connections",
        "per_address" => "max_connections_per_address",
        "header_timeout" => "header_timeout_seconds",
        "body_timeout" => "body_timeout_seconds",
        other => other,
    }
}

fn first(flag: Option<String>, variable: &str, file: Option<String>) -> Result<Option<String>, Failure> {
    crate::settings::first(flag, variable, file)
}

fn path(flag: Option<PathBuf>, variable: &str, file: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    match flag {
        Some(flag) => Ok(Some(flag)),
        None => Ok(first(None, variable, None)?.map(PathBuf::from).or(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(toml: &str) -> Result<Serving, Failure> {
        Serving::collect(ListenArgs::default(), toml::from_str(toml).unwrap())
    }

    fn refused(toml: &str) -> String {
        collect(toml).err().unwrap().to_string()
    }

    #[test]
    fn without_authentication_it_listens_on_loopback_only() {
        assert!(collect("").is_ok() && collect("listen = '[::1]:0'").is_ok());
        for listen in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
            let told = refused(&format!("listen = '{listen}'"));
            assert!(told.contains("without authentication"), "{told}");
        }
        let hash = TokenHash::of("x").to_text();
        let token =
            format!("listen = '0.0.0.0:80'\n[[token]]\nname = 'ci'\nrole = 'viewer'\nhash = '{hash}'");
        assert!(collect(&token).is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_number_is_not_blamed_on_the_address() {
        for (toml, part) in [
            ("max_connections = 0", "max_connections must be"),
            ("max_connections = 9000000000000000000", "max_connections must be 1 to 1,000,000"),
            ("max_connections_per_address = 0", "max_connections_per_address must be"),
            ("header_timeout_seconds = 0", "header_timeout_seconds must be"),
        ] {
            let told = refused(&format!("listen = '127.0.0.1:0'\n{toml}"));
            assert!(told.contains(part) && !told.contains("another process"), "{toml}: {told}");
        }
    }

    #[test]
    fn each_mistake_names_its_part() {
        for (toml, part) in [
            ("listen = 'localhost'", "address"),
            ("tls_key = 'k.pem'", "certificate"),
            ("max_body_bytes = 1", "max_body_bytes must be"),
            ("max_batch = 0", "max_batch must be"),
            ("max_wait_seconds = 601", "max_wait_seconds must be"),
            ("body_timeout_seconds = 0", "body_timeout_seconds must be"),
            ("operations_stalled_after = '1s'", "operations_stalled_after: stalled_after must be at least"),
            ("operations_stalled_after = 's3cret'", "or \"never\""),
            ("[retention]\ninbox_done = '1h'", "[serve.retention]"),
            ("[[token]]\nname = 'ci'\nrole = 'root'\nhash = 'x'", "role"),
            ("[[token]]\nname = 'ci'\nrole = 'admin'\nhash = 'mst_s3cret'", "hash"),
            ("[proxy]\naddresses = []\nheader = 'x-user'", "addresses"),
        ] {
            let told = refused(toml);
            assert!(told.contains(part) && !told.contains("s3cret"), "{toml}: {told}");
        }
    }
}
