//! Which database: the URL a person gives, and the provider behind it.
//!
//! A mistake in a URL is told by naming the part that is wrong. The URL itself is never quoted, since it may hold a
//! password in a place where none belongs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay::ErrorKind;
use mainstay::postgres::{Postgres, PostgresBuilder};
use mainstay::sqlite::Sqlite;
use mainstay::sqlserver::SqlServer;
use mainstay::store::{Names, Provider};

use crate::failure::Failure;
use crate::redact::redact;

/// The accepted forms, for messages.
pub(crate) const FORMS: &str = "\
accepted are   sqlite:path/to/file.db
               sqlite::memory:
               path/to/file.db (.db, .db3, .sqlite, .sqlite3)
               postgres://user:***@host:5432/database?sslmode=require
               mssql://user:***@host:1433/database
               Server=host,1433;Database=database;User Id=user;Password=***";

/// Connections to a server for commands that do one thing after the other.
const POOL: usize = 2;

/// The same for commands that ask several things at once.
const WIDE_POOL: usize = 8;

const FILE_ENDINGS: [&str; 4] = ["db", "db3", "sqlite", "sqlite3"];

/// A database as a person names it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Database {
    /// A SQLite file.
    SqliteFile(PathBuf),
    /// A SQLite database that lives as long as this process.
    SqliteMemory,
    /// A PostgreSQL server's database, by URL.
    Postgres(String),
    /// A Microsoft SQL Server's database, by URL or in ADO.NET's form.
    SqlServer(String),
}

/// Whether a SQLite file that is not there is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Create,
    Refuse,
}

impl Database {
    /// Takes a URL or a path.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        if SqlServer::is_connection_string(text) {
            return Ok(Self::SqlServer(text.to_owned()));
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            return Self::parse_sqlite(path);
        }
        if text == ":memory:" {
            return Ok(Self::SqliteMemory);
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(mistake(format!("there is no scheme {:?}", shortened(scheme))));
        }
        if text.starts_with("postgres:") || text.starts_with("postgresql:") {
            return Err(mistake("after `postgres:` comes `//`"));
        }
        if redact(text) != text {
            let what = "it has no scheme, and looks like a URL: put postgres:// in front; a file of such a name is written sqlite:PATH";
            return Err(mistake(what));
        }
        let ending = Path::new(text).extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending)) {
            return Ok(Self::SqliteFile(text.into()));
        }
        let what = if text.is_empty() { "it is empty" } else { "it has no scheme, and no file's ending" };
        Err(mistake(what))
    }

    fn parse_sqlite(path: &str) -> Result<Self, Failure> {
        // `sqlite://` as other tools write it is understood too.
        let path = path.strip_prefix("//").unwrap_or(path);
        match path {
            ":memory:" => Ok(Self::SqliteMemory),
            "" => Err(mistake("after `sqlite:` comes the path of a file, or :memory:")),
            _ if path.contains('?') => Err(mistake("a SQLite file takes no parameters after a `?`")),
            _ => Ok(Self::SqliteFile(path.into())),
        }
    }

    /// Refuses a URL that could not be used, without asking anybody: a server is connected to at the first use, and no file is opened.
    pub(crate) async fn check(&self, names: Names) -> anyhow::Result<()> {
        match self {
            // A file that is not there yet may be made; a folder is not.
            Self::SqliteFile(path) => Ok(check_file(path, IfMissing::Create)?),
            Self::SqliteMemory => Ok(()),
            Self::Postgres(url) => connect_postgres(url, names, POOL).await.map(drop),
            Self::SqlServer(url) => connect_sqlserver(url, names, POOL).await.map(drop),
        }
    }

    /// Connects. SQLite opens its file now; a server is connected to at the first use.
    pub(crate) async fn open(&self, names: Names, missing: IfMissing) -> anyhow::Result<Arc<dyn Provider>> {
        self.open_with(names, missing, POOL).await
    }

    /// The same for those who ask several things at once, of which some may wait for long.
    pub(crate) async fn open_wide(
        &self,
        names: Names,
        missing: IfMissing,
    ) -> anyhow::Result<Arc<dyn Provider>> {
        self.open_with(names, missing, WIDE_POOL).await
    }

    /// The same with so many connections to a server.
    pub(crate) async fn open_with(
        &self,
        names: Names,
        missing: IfMissing,
        pool: usize,
    ) -> anyhow::Result<Arc<dyn Provider>> {
        Ok(match self {
            Self::SqliteFile(path) => {
                check_file(path, missing)?;
                let opened = Sqlite::builder(path).names(names).open().await;
                Arc::new(opened.map_err(|error| cannot_open(self, error))?)
            }
            Self::SqliteMemory => Arc::new(Sqlite::memory_builder().names(names).open().await?),
            Self::Postgres(url) => Arc::new(connect_postgres(url, names, pool).await?),
            Self::SqlServer(url) => Arc::new(connect_sqlserver(url, names, pool).await?),
        })
    }
}

/// Sets up a PostgreSQL provider; it connects at the first use. What is wrong with the URL is told now.
pub(crate) async fn connect_postgres(url: &str, names: Names, pool: usize) -> anyhow::Result<Postgres> {
    connect(Postgres::builder(url).names(names).pool_size(pool)).await
}

/// The same with settings of one's own.
pub(crate) async fn connect(settings: PostgresBuilder) -> anyhow::Result<Postgres> {
    let connected = settings.connect().await;
    connected.map_err(|error| match error.kind() {
        ErrorKind::Config => mistake(error.message().trim_start_matches("the database URL: ")).into(),
        _ => error.into(),
    })
}

/// Sets up a SQL Server provider, likewise.
pub(crate) async fn connect_sqlserver(url: &str, names: Names, pool: usize) -> anyhow::Result<SqlServer> {
    let connected = SqlServer::builder(url).names(names).pool_size(pool).connect().await;
    connected.map_err(|error| match error.kind() {
        ErrorKind::Config => mistake(error.message().trim_start_matches("the connection string: ")).into(),
        _ => error.into(),
    })
}

/// A file that can't be opened is a database that can't be reached, whatever the reason.
fn cannot_open(database: &Database, error: mainstay::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Config | ErrorKind::Denied | ErrorKind::ReadOnly => {
            Failure::unreachable(format!("{database} can't be opened")).because(error.message()).into()
        }
        _ => anyhow::Error::new(error).context(format!("{database} can't be opened")),
    }
}

/// A mistyped path must not leave an empty database behind.
fn check_file(path: &Path, missing: IfMissing) -> Result<(), Failure> {
    if missing == IfMissing::Refuse && !path.exists() {
        return Err(Failure::unreachable(format!("there is no SQLite file {}", path.display()))
            .hint("check the path; `mainstay migrate` makes a new database"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Failure::unreachable(format!("there is no folder {} for the SQLite file", folder.display()))
                .hint("check the path, or make the folder"))
        }
        _ => Ok(()),
    }
}

/// Without the password and without parameters.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A path may be a URL whose scheme was forgotten.
            Self::SqliteFile(path) => write!(f, "sqlite:{}", redact(&path.display().to_string())),
            Self::SqliteMemory => f.write_str("sqlite::memory:"),
            // Only what reads both of its forms knows which part is which; and a password may have got into any of them.
            Self::SqlServer(text) => match SqlServer::location(text) {
                Ok(location) => f.write_str(&redact(&location)),
                Err(_) => f.write_str("a SQL Server"),
            },
            Self::Postgres(url) => {
                let rest = url.split_once("://").map_or("", |(_, rest)| rest);
                let (credentials, address) = match rest.rsplit_once('@') {
                    Some((credentials, address)) => (credentials, address),
                    None => ("", rest),
                };
                let user = credentials.split([':', '/', '?']).next().unwrap_or_default();
                let address = address.split('?').next().unwrap_or_default();
                let at = if user.is_empty() { "" } else { "@" };
                write!(f, "postgres://{user}{at}{address}")
            }
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self})")
    }
}

fn mistake(what: impl fmt::Display) -> Failure {
    Failure::usage("the database URL is not valid").because(what).hint(FORMS)
}

/// A scheme is short; anything longer may be something else that was put in its place.
fn shortened(scheme: &str) -> &str {
    if scheme.len() <= 16 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') {
        scheme
    } else {
        "…"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_understood() {
        for (text, database) in [
            ("sqlite:a.db", Database::SqliteFile("a.db".into())),
            ("sqlite:///tmp/a", Database::SqliteFile("/tmp/a".into())),
            ("x/y.sqlite3", Database::SqliteFile("x/y.sqlite3".into())),
            ("sqlite::memory:", Database::SqliteMemory),
            (":memory:", Database::SqliteMemory),
            ("postgres://u@h/d", Database::Postgres("postgres://u@h/d".into())),
            ("mssql://u@h/d", Database::SqlServer("mssql://u@h/d".into())),
            (
                "Database=d; server = tcp:h,1433",
                Database::SqlServer("Database=d; server = tcp:h,1433".into()),
            ),
            ("Data Source=h", Database::SqlServer("Data Source=h".into())),
        ] {
            assert_eq!(Database::parse(text).unwrap(), database, "{text}");
        }
    }

    #[test]
    fn each_mistake_names_its_part() {
        for (text, part) in [
            ("", "empty"),
            ("shop", "no scheme"),
            ("host=h password=s3cret", "no scheme"),
            ("u:s3cret@h/x.db", "no scheme"),
            ("u:s3@cret@h:5432/x.sqlite", "no scheme"),
            ("mysql://u:s3cret@h/d", "mysql"),
            ("s3cret s3cret s3cret://h", "no scheme"),
            ("sqlite:", "path"),
            ("sqlite:a.db?mode=ro", "parameters"),
            ("postgres:h/d", "//"),
        ] {
            let told = Database::parse(text).unwrap_err().to_string();
            assert!(told.contains(part) && told.contains("accepted are"), "{text}: {told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
    }

    #[test]
    fn what_is_shown_has_no_password() {
        for (url, shown) in [
            ("postgres://u:s3cret@h:1/d?sslmode=require", "postgres://u@h:1/d"),
            ("postgres://u:s3@cret@h/d", "postgres://u@h/d"),
            ("postgres://u:s3?cret@h/d", "postgres://u@h/d"),
            ("postgresql://h/d?password=s3cret", "postgres://h/d"),
            ("sqlserver://u:s3cret@h:1/d?encrypt=strict", "mssql://u@h:1/d"),
            ("Server=h,1;Database=d;User Id=u;Password='s3;cret'", "mssql://u@h:1/d"),
            ("Server=h;User Id=u;Password=a://s3cret", "mssql://u@h:1433/master"),
            ("mssql://u:s3://cret@h/d", "mssql://u@h:1433/d"),
            ("Server=u:s3cret@h;User Id=u;Password=p", "mssql://u@u:***@h:1433/master"),
            ("Server=h;Nonsense=s3cret", "a SQL Server"),
            ("Server=h;Nonsense=a://s3cret", "a SQL Server"),
            ("mssql://u:s3@cret@h/d", "a SQL Server"),
            ("mssql://h/d?password=s3cret", "a SQL Server"),
            ("sqlite:u:s3cret@h/x.db", "sqlite:u:***@h/x.db"),
        ] {
            assert_eq!(Database::parse(url).unwrap().to_string(), shown);
        }
    }
}
