//! Where the database is: a connection string, taken apart.
//!
//! Two forms are read: ADO.NET's (`Server=tcp:db,1433;Database=orders;User Id=app;Password=…`) and URLs
//! (`mssql://app:…@db:1433/orders`). Every mistake names the field it is in; no message quotes a value, because a misplaced
//! character can turn a piece of the password into any part.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_core::{Error, ErrorKind, Result};
use percent_encoding::percent_decode_str;

use crate::token::Tokens;

const DEFAULT_PORT: u16 = 1433;

const DAY: Duration = Duration::from_secs(86_400);

/// How the server is told who connects.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// A login of the server's own.
    Password { user: String, password: String },
    /// A token of Azure Active Directory.
    Token(String),
    /// A new one for every connection.
    Tokens(Tokens),
}

/// Neither the password nor the token.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Token(_) | Self::Tokens(_) => f.write_str("Token"),
        }
    }
}

/// What of a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encryption {
    /// All of it, from the first byte (TDS 8).
    Strict,
    /// All of it after the greeting. The default.
    #[default]
    All,
    /// The login alone, where the server can.
    Login,
    /// Nothing.
    None,
}

/// Whose certificate is good enough.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) enum Trust {
    /// One that an authority of the operating system vouches for. The default.
    #[default]
    System,
    /// One that an authority in this file vouches for, or one of the operating system's.
    File(PathBuf),
    /// The same with the file's text.
    Pem(Vec<u8>),
    /// Any. Whoever is in between can read and change everything.
    Anything,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Pem(_) => f.write_str("Pem"),
            Self::Anything => f.write_str("Anything"),
        }
    }
}

/// What a connection string says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: Option<String>,
    pub(crate) login: Option<Login>,
    pub(crate) encryption: Encryption,
    pub(crate) trust: Trust,
    /// The name in the certificate, where it is not the host's.
    pub(crate) certificate_host: Option<String>,
    pub(crate) application: Option<String>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) pool_size: Option<usize>,
}

fn mistake(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "sqlserver.connect", format!("the connection string: {what}"))
}

impl Target {
    /// Takes a connection string apart, whichever form it has.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let url = ["mssql://", "sqlserver://"].into_iter().find_map(|scheme| {
            let (start, rest) = text.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        });
        match url {
            Some(rest) => from_url(rest),
            None if text.contains("://") && !text.contains('=') => {
                Err(mistake("the scheme must be mssql:// or sqlserver://"))
            }
            None => from_ado(text),
        }
    }

    /// Whether a text is meant to be one of the two: mistakes in it are for [`Self::parse`] to tell.
    pub(crate) fn is_meant(text: &str) -> bool {
        let begins = |scheme: &str| {
            text.split_at_checked(scheme.len()).is_some_and(|(start, _)| start.eq_ignore_ascii_case(scheme))
        };
        let names_server = |part: &str| {
            part.split_once('=').is_some_and(|(key, _)| matches!(field(key), Some(Field::Server)))
        };
        begins("mssql://") || begins("sqlserver://") || text.split(';').any(names_server)
    }

    /// The same place as a URL, without password and parameters.
    pub(crate) fn shown(&self) -> String {
        let user = match &self.login {
            Some(Login::Password { user, .. }) => format!("{user}@"),
            Some(Login::Token(_) | Login::Tokens(_)) | None => String::new(),
        };
        format!("mssql://{user}{}/{}", self.address(), self.database())
    }

    /// `host:port`, for messages.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The database, as logs name it.
    pub(crate) fn database(&self) -> &str {
        self.database.as_deref().unwrap_or("master")
    }
}

#[derive(Default)]
struct Draft {
    host: Option<String>,
    port: Option<u16>,
    database: Option<String>,
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
    encryption: Encryption,
    trust: Trust,
    certificate_host: Option<String>,
    application: Option<String>,
    connect_timeout: Option<Duration>,
    call_timeout: Option<Duration>,
    pool_size: Option<usize>,
}

fn from_url(rest: &str) -> Result<Target> {
    let (credentials, rest) = match rest.split_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    if rest.contains('@') {
        return Err(mistake("there is more than one `@`; write one in a user name or password as %40"));
    }
    let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (server, database) = address.split_once('/').unwrap_or((address, ""));
    let mut draft = Draft::default();
    if let Some(credentials) = credentials {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        if user.is_empty() {
            return Err(mistake("the user name before the `@` is empty"));
        }
        draft.user = Some(decoded("user name", user)?);
        draft.password = Some(decoded("password", password)?);
    }
    draft.server(&decoded("host", server)?, ':')?;
    if database.contains('/') {
        return Err(mistake("the database name contains a `/`; write it as %2F"));
    }
    if !database.is_empty() {
        draft.database = Some(decoded("database name", database)?);
    }
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        draft.set(&decoded("a parameter's name", name)?, decoded("a parameter", value)?)?;
    }
    draft.finish()
}

fn decoded(field: &str, text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Into::into)
        .map_err(|_| mistake(format_args!("{field} is not UTF-8 once its %-escapes are decoded")))
}

fn from_ado(text: &str) -> Result<Target> {
    let mut draft = Draft::default();
    let mut rest = text;
    while !rest.trim_start_matches([';', ' ', '\t', '\r', '\n']).is_empty() {
        rest = rest.trim_start_matches([';', ' ', '\t', '\r', '\n']);
        let Some((name, after)) = rest.split_once('=') else {
            return Err(mistake("every part must be `name=value`, parts separated by `;`"));
        };
        let name = name.trim();
        if name.is_empty() || name.contains(';') {
            return Err(mistake("every part must be `name=value`, parts separated by `;`"));
        }
        let (value, next) = ado_value(name, after)?;
        draft.set(name, value)?;
        rest = next;
    }
    draft.finish()
}

/// A value, which may be in quotes that are doubled within, and what comes after it.
fn ado_value<'a>(name: &str, text: &'a str) -> Result<(String, &'a str)> {
    let trimmed = text.trim_start();
    let Some(quote) = trimmed.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        let end = text.find(';').unwrap_or(text.len());
        return Ok((text[..end].trim().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut rest = &trimmed[1..];
    loop {
        let Some((part, after)) = rest.split_once(quote) else {
            return Err(mistake(format_args!("the quotes of `{}` don't end", known_name(name))));
        };
        value.push_str(part);
        match after.strip_prefix(quote) {
            Some(more) => {
                value.push(quote);
                rest = more;
            }
            None => {
                let after = after.trim_start();
                if !after.is_empty() && !after.starts_with(';') {
                    return Err(mistake(format_args!(
                        "after the quotes of `{}` there must be a `;`",
                        known_name(name)
                    )));
                }
                return Ok((value, after));
            }
        }
    }
}

/// The name of a field only if it is one: otherwise it may be a piece of a password.
fn known_name(name: &str) -> &str {
    if field(name).is_some() { name } else { "a field" }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Server,
    Database,
    User,
    Password,
    Token,
    Encrypt,
    TrustCertificate,
    CertificateFile,
    CertificateHost,
    Application,
    ConnectTimeout,
    CallTimeout,
    PoolSize,
    IntegratedSecurity,
    Authentication,
    Intent,
    /// What other drivers need and this one does anyway, or not at all.
    Ignored,
}

fn field(name: &str) -> Option<Field> {
    let plain: String =
        name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).collect::<String>().to_ascii_lowercase();
    Some(match plain.as_str() {
        "server" | "datasource" | "address" | "addr" | "networkaddress" => Field::Server,
        "database" | "initialcatalog" => Field::Database,
        "userid" | "uid" | "user" | "username" => Field::User,
        "password" | "pwd" => Field::Password,
        "accesstoken" => Field::Token,
        "encrypt" => Field::Encrypt,
        "trustservercertificate" => Field::TrustCertificate,
        "trustservercertificateca" | "servercertificateca" | "cacertificate" => Field::CertificateFile,
        "hostnameincertificate" => Field::CertificateHost,
        "applicationname" | "app" => Field::Application,
        "connecttimeout" | "connectiontimeout" | "timeout" => Field::ConnectTimeout,
        "commandtimeout" => Field::CallTimeout,
        "maxpoolsize" => Field::PoolSize,
        "integratedsecurity" | "trustedconnection" => Field::IntegratedSecurity,
        "authentication" => Field::Authentication,
        "applicationintent" => Field::Intent,
        "multisubnetfailover"
        | "multipleactiveresultsets"
        | "persistsecurityinfo"
        | "pooling"
        | "minpoolsize"
        | "connectretrycount"
        | "connectretryinterval"
        | "packetsize"
        | "workstationid" => Field::Ignored,
        _ => return None,
    })
}

fn flag(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(mistake(format_args!("`{name}` must be true or false"))),
    }
}

impl Draft {
    /// `tcp:host,port` or `host:port`, whichever `separator` says.
    fn server(&mut self, text: &str, separator: char) -> Result<()> {
        let text = text.trim();
        let text = text.strip_prefix("tcp:").unwrap_or(text);
        if text.contains('\\') {
            return Err(mistake(
                "`Server` names an instance; give the port the instance listens on instead, as `host,port`",
            ));
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, after)) => (host, after.strip_prefix(separator)),
            None => match text.rsplit_once(separator) {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.trim().is_empty() {
            return Err(mistake("`Server` is missing a host"));
        }
        let host = host.trim();
        let local = [".", "(local)"].contains(&host);
        self.host = Some(if local { "localhost".to_owned() } else { host.to_owned() });
        self.port = match port {
            None => None,
            Some(port) => match port.trim().parse() {
                Ok(0) | Err(_) => return Err(mistake("the port in `Server` must be 1 to 65535")),
                Ok(port) => Some(port),
            },
        };
        Ok(())
    }

    fn set(&mut self, name: &str, value: String) -> Result<()> {
        let Some(field) = field(name) else {
            // A name that nobody knows may be a piece of a password with a `;` in it.
            let shown = name.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
            let what = if shown {
                format!("`{name}` is not known")
            } else {
                "there is a part whose name is not known".to_owned()
            };
            return Err(mistake(format_args!("{what}; a value with a `;` goes into quotes")));
        };
        match field {
            Field::Server => self.server(&value, ',')?,
            Field::Database => self.database = Some(value).filter(|name| !name.is_empty()),
            Field::User => self.user = Some(value),
            Field::Password => self.password = Some(value),
            Field::Token => self.token = Some(value),
            Field::Encrypt => {
                self.encryption = match value.to_ascii_lowercase().as_str() {
                    "true" | "yes" | "1" | "mandatory" => Encryption::All,
                    "strict" => Encryption::Strict,
                    "false" | "no" | "0" | "optional" => Encryption::Login,
                    "disabled" => Encryption::None,
                    _ => return Err(mistake("`Encrypt` must be strict, true, false or disabled")),
                }
            }
            Field::TrustCertificate => {
                if flag("TrustServerCertificate", &value)? {
                    self.trust = Trust::Anything;
                }
            }
            Field::CertificateFile => self.trust = Trust::File(value.into()),
            Field::CertificateHost => self.certificate_host = Some(value).filter(|host| !host.is_empty()),
            Field::Application => self.application = Some(value),
            Field::ConnectTimeout => match value.parse::<u64>() {
                Ok(seconds @ 1..=86_400) => self.connect_timeout = Some(Duration::from_secs(seconds)),
                _ => return Err(mistake("`Connect Timeout` must be 1 to 86400 seconds")),
            },
            Field::CallTimeout => match value.parse::<u64>() {
                // Elsewhere 0 means that there is no limit.
                Ok(0) => self.call_timeout = Some(DAY),
                Ok(seconds @ 1..=86_400) => self.call_timeout = Some(Duration::from_secs(seconds)),
                _ => return Err(mistake("`Command Timeout` must be 0 to 86400 seconds")),
            },
            Field::PoolSize => match value.parse() {
                Ok(size @ 1..=10_000) => self.pool_size = Some(size),
                _ => return Err(mistake("`Max Pool Size` must be 1 to 10000")),
            },
            Field::IntegratedSecurity => {
                if value.eq_ignore_ascii_case("sspi") || flag("Integrated Security", &value)? {
                    return Err(mistake(
                        "`Integrated Security` is not supported; use a login of the server, or a token of Azure Active Directory",
                    ));
                }
            }
            Field::Authentication => {
                let plain = value.replace(' ', "").to_ascii_lowercase();
                if plain != "sqlpassword" && !plain.is_empty() {
                    return Err(mistake(
                        "`Authentication` must be SqlPassword; for Azure Active Directory give a token (`access_token` of the builder)",
                    ));
                }
            }
            Field::Intent => {
                if value.eq_ignore_ascii_case("readonly") {
                    return Err(mistake("`ApplicationIntent` must not be ReadOnly: a queue is written to"));
                }
            }
            Field::Ignored => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Target> {
        let host = self.host.ok_or_else(|| mistake("`Server` is missing"))?;
        let login = match (self.token, self.user, self.password) {
            (Some(token), None, None) => Some(Login::Token(token)),
            (Some(_), _, _) => {
                return Err(mistake("there must be either `Access Token`, or `User Id` and `Password`"));
            }
            (None, Some(user), Some(password)) => Some(Login::Password { user, password }),
            (None, Some(_), None) => return Err(mistake("`Password` is missing beside `User Id`")),
            (None, None, Some(_)) => return Err(mistake("`User Id` is missing beside `Password`")),
            (None, None, None) => None,
        };
        Ok(Target {
            host,
            port: self.port.unwrap_or(DEFAULT_PORT),
            database: self.database,
            login,
            encryption: self.encryption,
            trust: self.trust,
            certificate_host: self.certificate_host,
            application: self.application,
            connect_timeout: self.connect_timeout,
            call_timeout: self.call_timeout,
            pool_size: self.pool_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(target: &Target) -> (&str, &str) {
        match &target.login {
            Some(Login::Password { user, password }) => (user, password),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_url_is_read() {
        let url = "mssql://app:p%40ss%3Bw@db.example:14330/orders?encrypt=strict&application_name=shop&connect%20timeout=7";
        let target = Target::parse(url).unwrap();
        assert_eq!((target.address().as_str(), target.database()), ("db.example:14330", "orders"));
        assert_eq!(password(&target), ("app", "p@ss;w"));
        assert_eq!(target.encryption, Encryption::Strict);
        assert_eq!(
            (target.application.as_deref(), target.connect_timeout),
            (Some("shop"), Some(Duration::from_secs(7)))
        );
        let target = Target::parse("sqlserver://app:x@[::1]/").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.database()), ("::1", 1433, "master"));
    }

    #[test]
    fn an_ado_net_string_is_read() {
        let text = "Server=tcp:db.example,14330;Initial Catalog=orders;User ID=app;Password=\"a;\"\"b=c\";Encrypt=True;\
                    TrustServerCertificate=False;MultipleActiveResultSets=False;Connection Timeout=30;Command Timeout=40;Max Pool Size=3;";
        let target = Target::parse(text).unwrap();
        assert_eq!((target.address().as_str(), target.database()), ("db.example:14330", "orders"));
        assert_eq!(password(&target), ("app", "a;\"b=c"));
        assert_eq!((target.encryption, &target.trust), (Encryption::All, &Trust::System));
        assert_eq!((target.pool_size, target.call_timeout), (Some(3), Some(Duration::from_secs(40))));
        let endless = Target::parse("Server=db;Command Timeout=0;Access Token=abc").unwrap();
        assert_eq!(endless.call_timeout, Some(DAY));
        assert_eq!(
            Target::parse("Data Source=.;uid=a;pwd='x''y'").map(|t| password(&t).1.to_owned()).unwrap(),
            "x'y"
        );
        let azure = Target::parse("Server=db.example;Access Token=abc").unwrap();
        assert_eq!(azure.login, Some(Login::Token("abc".to_owned())));
    }

    #[test]
    fn encryption_with_a_checked_certificate_is_the_default() {
        let target = Target::parse("mssql://a:b@db/x").unwrap();
        assert_eq!((target.encryption, target.trust), (Encryption::All, Trust::System));
        let target = Target::parse("mssql://a:b@db/x?TrustServerCertificate=true&encrypt=false").unwrap();
        assert_eq!((target.encryption, target.trust), (Encryption::Login, Trust::Anything));
        let target = Target::parse("mssql://a:b@db/x?ca_certificate=/etc/ca.pem").unwrap();
        assert_eq!(target.trust, Trust::File("/etc/ca.pem".into()));
    }

    #[test]
    fn every_mistake_names_its_field_and_quotes_no_value() {
        for (text, told) in [
            ("postgres://a:secret@db/x", "scheme"),
            ("mssql://a:sec@ret@db/x", "%40"),
            ("mssql://:secret@db/x", "user name"),
            ("mssql://a:secret@/x", "Server"),
            ("mssql://a:secret@db:99999/x", "port"),
            ("mssql://a:secret@db/x/y", "database name"),
            ("mssql://a:%ff@db/x", "password"),
            ("mssql://a:secret@db/x?encrypt=secret", "Encrypt"),
            ("mssql://a:secret@db/x?trustServerCertificate=secret", "TrustServerCertificate"),
            ("mssql://a:secret@db/x?colour=secret", "colour"),
            ("Server=db;User Id=a", "Password"),
            ("Server=db;Password=secret", "User Id"),
            ("Database=x;User Id=a;Password=secret", "Server"),
            ("Server=db\\secret;User Id=a;Password=secret", "instance"),
            ("Server=db;User Id=a;Password=\"secret", "quotes"),
            ("Server=db;User Id=a;Password=\"secret\"x", "quotes"),
            ("Server=db;User Id=a;Password=se;cr3t=x", "quotes"),
            ("Server=db;Integrated Security=SSPI", "Integrated Security"),
            ("Server=db;Connect Timeout=secret", "Connect Timeout"),
            ("Server=db;Max Pool Size=0", "Max Pool Size"),
            ("Server=db;Command Timeout=secret", "Command Timeout"),
            ("Server=db;Authentication=Active Directory Interactive", "Authentication"),
            ("Server=db;ApplicationIntent=ReadOnly", "ApplicationIntent"),
            ("Server=db;Access Token=secret;User Id=a;Password=b", "Access Token"),
            ("secret", "name=value"),
        ] {
            let error = Target::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.message().contains(told), "{text}: {error}");
            assert!(!error.to_string().contains("secret") && !error.to_string().contains("cr3t"), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", Target::parse("mssql://a:secret@db/x").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
        assert!(!format!("{:?}", Login::Token("secret".into())).contains("secret"));
    }

    #[test]
    fn a_connection_string_is_known_by_its_scheme_or_its_server() {
        for meant in ["mssql://h/d", "SQLSERVER://h", "Server=h", "database=d;Data Source=h;x=y", "addr = h"]
        {
            assert!(Target::is_meant(meant), "{meant}");
        }
        for other in ["postgres://server=h@x/d", "sqlite:server=x.db", "host=h dbname=d", "", "a.db"] {
            assert!(!Target::is_meant(other), "{other}");
        }
    }

    #[test]
    fn what_is_shown_has_neither_password_nor_token() {
        for (text, shown) in [
            ("Server=h,1;Database=d;User Id=u;Password='s3;cret'", "mssql://u@h:1/d"),
            ("mssql://u:s3cret@h/d?Encrypt=strict", "mssql://u@h:1433/d"),
            ("Server=h;Access Token=s3cret", "mssql://h:1433/master"),
        ] {
            assert_eq!(Target::parse(text).unwrap().shown(), shown);
        }
    }
}
