//! Where the database is: the URL, taken apart.
//!
//! The syntax is libpq's, several hosts included. Every mistake names the part it is in; no message quotes a
//! value, because a misplaced character can turn a piece of the password into any part.

use std::str::FromStr;
use std::time::Duration;

use mainstay_core::{Error, ErrorKind, Result};
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use crate::tls::{Roots, TlsMode};

/// One server of the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// What a URL says.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Everything but the servers and TLS.
    pub(crate) config: Config,
    /// Tried in this order, unless `shuffled`.
    pub(crate) servers: Vec<Server>,
    pub(crate) shuffled: bool,
    pub(crate) tls_mode: Option<TlsMode>,
    pub(crate) roots: Option<Roots>,
    pub(crate) call_timeout: Option<Duration>,
}

pub(crate) fn mistake(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "postgres.connect", format!("the database URL: {what}"))
}

impl Target {
    /// Takes a URL apart.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let rest = ["postgres://", "postgresql://"]
            .into_iter()
            .find_map(|scheme| url.strip_prefix(scheme))
            .ok_or_else(|| mistake("the scheme must be postgres:// or postgresql://"))?;
        let (credentials, rest) = match rest.split_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        if rest.contains('@') {
            return Err(mistake("there is more than one `@`; write one in a user name or password as %40"));
        }
        let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, database) = address.split_once('/').unwrap_or((address, ""));

        let mut draft = Draft::default();
        if let Some(credentials) = credentials {
            draft.credentials(credentials)?;
        }
        draft.servers(servers)?;
        if database.contains('/') {
            return Err(mistake("the database name contains a `/`; write it as %2F"));
        }
        if !database.is_empty() {
            draft.config.dbname(decode("database name", database)?);
        }
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            draft.parameter(parameter)?;
        }
        draft.finish()
    }

    /// `host:port` of every server, for messages.
    pub(crate) fn address(&self) -> String {
        let each: Vec<_> =
            self.servers.iter().map(|server| format!("{}:{}", server.host, server.port)).collect();
        each.join(",")
    }

    /// The name of the database; libpq's default is the user's name.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().or_else(|| self.config.get_user()).unwrap_or_default()
    }
}

#[derive(Default)]
struct Draft {
    config: Config,
    hosts: Vec<String>,
    ports: Vec<u16>,
    shuffled: bool,
    tls_mode: Option<TlsMode>,
    roots: Option<Roots>,
    call_timeout: Option<Duration>,
    session: Option<TargetSessionAttrs>,
}

impl Draft {
    fn credentials(&mut self, credentials: &str) -> Result<()> {
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        if user.is_empty() {
            return Err(mistake("the user name before the `@` is empty"));
        }
        self.config.user(decode("user name", user)?);
        if let Some(password) = password {
            self.config.password(decode("password", password)?);
        }
        Ok(())
    }

    fn servers(&mut self, servers: &str) -> Result<()> {
        if servers.is_empty() {
            return Ok(());
        }
        for server in servers.split(',') {
            let (host, port) = split_port(server)?;
            if host.is_empty() {
                return Err(mistake("the host is missing"));
            }
            self.hosts.push(decode("host", host)?);
            self.ports.push(match port {
                None => 5432,
                Some(port) => parse_port(port)?,
            });
        }
        Ok(())
    }

    fn parameter(&mut self, parameter: &str) -> Result<()> {
        let (name, value) = parameter.split_once('=').ok_or_else(|| {
            mistake("a parameter after the `?` has no `=`; write name=value, parted by `&`")
        })?;
        let value = decode("value of a parameter", value)?;
        let config = &mut self.config;
        match name {
            "user" => {
                config.user(value);
            }
            "password" => {
                config.password(value);
            }
            "dbname" => {
                config.dbname(value);
            }
            "application_name" => {
                config.application_name(value);
            }
            "options" => {
                config.options(value);
            }
            "host" => self.hosts = value.split(',').map(str::to_owned).collect(),
            "port" => self.ports = value.split(',').map(parse_port).collect::<Result<_>>()?,
            "connect_timeout" => {
                config.connect_timeout(seconds(name, &value)?);
            }
            // Ours alone: libpq has none.
            "call_timeout" => self.call_timeout = Some(seconds(name, &value)?),
            "tcp_user_timeout" => {
                config.tcp_user_timeout(Duration::from_millis(number(name, &value)?));
            }
            "keepalives" => {
                config.keepalives(number::<u32>(name, &value)? != 0);
            }
            "keepalives_idle" => {
                config.keepalives_idle(seconds(name, &value)?);
            }
            "keepalives_interval" => {
                config.keepalives_interval(seconds(name, &value)?);
            }
            "keepalives_count" => {
                config.keepalives_retries(number(name, &value)?);
            }
            "sslmode" => self.tls_mode = Some(TlsMode::from_str(&value)?),
            "sslrootcert" => {
                self.roots = Some(match value.as_str() {
                    "system" => Roots::System,
                    _ => Roots::File(value.into()),
                });
            }
            "channel_binding" => {
                config.channel_binding(match value.as_str() {
                    "disable" => ChannelBinding::Disable,
                    "prefer" => ChannelBinding::Prefer,
                    "require" => ChannelBinding::Require,
                    _ => return Err(choice(name, "disable, prefer or require")),
                });
            }
            "target_session_attrs" => {
                self.session = Some(match value.as_str() {
                    "any" => TargetSessionAttrs::Any,
                    "read-write" | "primary" => TargetSessionAttrs::ReadWrite,
                    _ => return Err(choice(name, "any, read-write or primary")),
                });
            }
            "load_balance_hosts" => {
                self.shuffled = match value.as_str() {
                    "disable" => false,
                    "random" => true,
                    _ => return Err(choice(name, "disable or random")),
                };
            }
            _ => {
                return Err(mistake(format_args!(
                    "there is no parameter {name:?}; known are user, password, dbname, host, port, \
                     application_name, options, connect_timeout, call_timeout, tcp_user_timeout, keepalives, keepalives_idle, \
                     keepalives_interval, keepalives_count, sslmode, sslrootcert, channel_binding, \
                     target_session_attrs and load_balance_hosts"
                )));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Target> {
        if self.hosts.is_empty() || self.hosts.iter().any(String::is_empty) {
            return Err(mistake("the host is missing"));
        }
        let count = self.hosts.len();
        if self.ports.len() <= 1 {
            self.ports.resize(count, self.ports.first().copied().unwrap_or(5432));
        }
        if self.ports.len() != count {
            let ports = self.ports.len();
            return Err(mistake(format_args!("there are {ports} ports for {count} hosts")));
        }
        // Of several servers only the one that takes writes is any use to a queue.
        let otherwise = if count > 1 { TargetSessionAttrs::ReadWrite } else { TargetSessionAttrs::Any };
        self.config.target_session_attrs(self.session.unwrap_or(otherwise));
        let servers = self.hosts.into_iter().zip(self.ports).map(|(host, port)| Server { host, port });
        Ok(Target {
            servers: servers.collect(),
            config: self.config,
            shuffled: self.shuffled,
            tls_mode: self.tls_mode,
            roots: self.roots,
            call_timeout: self.call_timeout,
        })
    }
}

fn split_port(server: &str) -> Result<(&str, Option<&str>)> {
    let Some(bracketed) = server.strip_prefix('[') else {
        return Ok(match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        });
    };
    match bracketed.split_once(']') {
        Some((host, "")) => Ok((host, None)),
        Some((host, rest)) if rest.starts_with(':') => Ok((host, Some(&rest[1..]))),
        _ => Err(mistake("the host begins with `[` but is not [address] or [address]:port")),
    }
}

fn parse_port(port: &str) -> Result<u16> {
    port.parse().ok().filter(|port| *port != 0).ok_or_else(|| mistake("the port must be 1 to 65535"))
}

fn decode(part: &str, text: &str) -> Result<String> {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_escape = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_hexdigit());
        if byte == b'%' && !(is_escape(bytes.next()) && is_escape(bytes.next())) {
            return Err(mistake(format_args!(
                "the {part} has a `%` without two hexadecimal digits after it; write the character itself as %25"
            )));
        }
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| mistake(format_args!("the {part} is not UTF-8 once unescaped")))?;
    if decoded.contains('\0') {
        return Err(mistake(format_args!("the {part} contains a NUL character")));
    }
    Ok(decoded.into_owned())
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| mistake(format_args!("the parameter {name} must be a whole number")))
}

fn seconds(name: &str, value: &str) -> Result<Duration> {
    match number(name, value)? {
        0 => Err(mistake(format_args!("the parameter {name} must be at least 1 second"))),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

fn choice(name: &str, choices: &str) -> Error {
    mistake(format_args!("the parameter {name} must be {choices}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = Target::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("s3cret"), "the password is in {text}");
        error.message().to_owned()
    }

    #[test]
    fn a_full_url_is_taken_apart() {
        let target = Target::parse(
            "postgresql://u%40x:p%2Fw@a:1,[::1]:2,c/d%20b?connect_timeout=3&call_timeout=7&sslmode=verify-full&sslrootcert=/ca.pem",
        )
        .unwrap();
        let servers: Vec<_> = target.servers.iter().map(|s| (s.host.as_str(), s.port)).collect();
        assert_eq!(servers, [("a", 1), ("::1", 2), ("c", 5432)]);
        assert_eq!(target.config.get_user(), Some("u@x"));
        assert_eq!(target.config.get_password(), Some("p/w".as_bytes()));
        assert_eq!(target.config.get_dbname(), Some("d b"));
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(target.call_timeout, Some(Duration::from_secs(7)));
        assert_eq!(target.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(target.tls_mode, Some(TlsMode::VerifyFull));
        assert_eq!(target.roots, Some(Roots::File("/ca.pem".into())));
        assert_eq!(target.address(), "a:1,::1:2,c:5432");
    }

    #[test]
    fn one_host_takes_what_it_gets() {
        let target = Target::parse("postgres://u@h").unwrap();
        assert_eq!(target.config.get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(target.database(), "u");
        let socket = Target::parse("postgres:///d?host=/run/postgresql&user=u").unwrap();
        assert_eq!(socket.servers, [Server { host: "/run/postgresql".to_owned(), port: 5432 }]);
    }

    #[test]
    fn every_mistake_names_its_part() {
        for (url, part) in [
            ("mysql://u:s3cret@h/d", "scheme"),
            ("host=h password=s3cret", "scheme"),
            ("postgres://u:s3cret@/d", "host"),
            ("postgres://u:s3cret@h1,,h2/d", "host"),
            ("postgres://u:s3cret@[::1/d", "host"),
            ("postgres://u:s3cret@h:0/d", "port"),
            ("postgres://u:s3cret@h:65536/d", "port"),
            ("postgres://u:s3cret", "port"),
            ("postgres://h/d?port=1,2", "2 ports for 1 hosts"),
            ("postgres://:s3cret@h/d", "user name"),
            ("postgres://u:s3cret%@h/d", "password"),
            ("postgres://u:s3cret%ff@h/d", "password"),
            ("postgres://u:a@s3cret@h/d", "%40"),
            ("postgres://u:a@b?s3cret@h/d", "%40"),
            ("postgres://u:s3cret@h/d/e", "database name"),
            ("postgres://u:s3cret@h/d?sslmod=require", "\"sslmod\""),
            ("postgres://u:s3cret@h/d?sslmode=maybe", "sslmode"),
            ("postgres://u:s3cret@h/d?sslmode", "has no `=`"),
            ("postgres://u:s3cret@h/d?connect_timeout=soon", "connect_timeout"),
            ("postgres://u:s3cret@h/d?connect_timeout=0", "connect_timeout"),
            ("postgres://u:s3cret@h/d?call_timeout=0", "call_timeout"),
            ("postgres://u:s3cret@h/d?target_session_attrs=standby", "target_session_attrs"),
            ("postgres://u:s3cret@h/d?load_balance_hosts=yes", "load_balance_hosts"),
            ("postgres://u:s3cret@h/d?channel_binding=yes", "channel_binding"),
        ] {
            let message = refused(url);
            assert!(message.contains(part), "{url}: {message}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let target = Target::parse("postgres://u:s3cret@h/d").unwrap();
        assert!(!format!("{target:?}").contains("s3cret"));
    }
}
