use std::fmt;

/// The parts of a PostgreSQL URL with one host.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    /// `user:password`, as written.
    credentials: Option<String>,
    host: String,
    port: u16,
    database: String,
    /// What follows the `?`, as written.
    parameters: Option<String>,
}

impl PostgresUrl {
    /// Takes a URL apart.
    ///
    /// # Panics
    ///
    /// If it is not `postgres://[user[:password]@]host[:port]/database[?parameters]`.
    pub fn parse(url: &str) -> Self {
        Self::try_parse(url).expect("a URL like postgres://user:password@host:port/database is needed")
    }

    fn try_parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if scheme != "postgres" && scheme != "postgresql" {
            return None;
        }
        let (rest, parameters) = match rest.split_once('?') {
            Some((rest, parameters)) => (rest, Some(parameters.to_owned())),
            None => (rest, None),
        };
        let (authority, database) = rest.split_once('/')?;
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials.to_owned()), address),
            None => (None, authority),
        };
        // An IPv6 address is full of colons and ends with a bracket.
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (address, 5432),
        };
        (!host.is_empty()).then(|| Self {
            credentials,
            host: host.to_owned(),
            port,
            database: database.to_owned(),
            parameters,
        })
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// For another database of the same server.
    #[must_use]
    pub fn with_database(mut self, database: &str) -> Self {
        database.clone_into(&mut self.database);
        self
    }

    /// By another name of the same host.
    #[must_use]
    pub fn with_host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// On another port of the same host.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// As another role.
    #[must_use]
    pub fn with_credentials(mut self, user: &str, password: &str) -> Self {
        self.credentials = Some(format!("{user}:{password}"));
        self
    }

    /// With one more parameter.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: &str) -> Self {
        let parameter = format!("{name}={value}");
        self.parameters = Some(match self.parameters {
            Some(parameters) => format!("{parameters}&{parameter}"),
            None => parameter,
        });
        self
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(credentials) = &self.credentials {
            write!(f, "{credentials}@")?;
        }
        write!(f, "{}:{}/{}", self.host, self.port, self.database)?;
        if let Some(parameters) = &self.parameters {
            write!(f, "?{parameters}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresUrl {
    /// Without the password, which would end up in the output of a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({}/{})", self.address(), self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::PostgresUrl;

    #[test]
    fn a_url_survives_being_taken_apart() {
        for url in [
            "postgres://postgres:secret@127.0.0.1:5433/postgres",
            "postgres://[::1]:5433/a?sslmode=require&connect_timeout=3",
        ] {
            assert_eq!(PostgresUrl::parse(url).to_string(), url);
        }
        assert_eq!(
            PostgresUrl::parse("postgresql://u@localhost/a").to_string(),
            "postgres://u@localhost:5432/a"
        );
    }

    #[test]
    fn parts_can_be_replaced() {
        let url = PostgresUrl::parse("postgres://u:p@localhost:1/a?x=y")
            .with_host("127.0.0.1")
            .with_port(2)
            .with_database("b")
            .with_credentials("v", "q")
            .with_parameter("sslmode", "require");
        assert_eq!(url.to_string(), "postgres://v:q@127.0.0.1:2/b?x=y&sslmode=require");
    }
}
