//! How much of everything there is, and for how long.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// What was asked for.
pub(crate) struct Request {
    /// A database of a PostgreSQL that this program may do anything with.
    pub(crate) url: String,
    pub(crate) plan: Plan,
}

/// How much of everything there is, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Databases of SQLite.
    pub(crate) tenants: usize,
    /// Databases of PostgreSQL.
    pub(crate) databases: usize,
    /// From the first time all are seen to until the pauses between looks have grown to their longest.
    pub(crate) settle: Duration,
    pub(crate) idle: Duration,
    /// Pairs of windows, one with all well and one with some down.
    pub(crate) pairs: usize,
    /// How often in a window other databases become the busy ones.
    pub(crate) draws: usize,
    pub(crate) draw: Duration,
    /// Messages a second to each busy one.
    pub(crate) per_second: u32,
}

/// Of the ten that go down together, so many are of SQLite.
pub(crate) const DOWN_SQLITE: usize = 6;

/// And so many of PostgreSQL.
pub(crate) const DOWN_POSTGRES: usize = 4;

impl Plan {
    fn full() -> Self {
        Self {
            tenants: 1_000,
            databases: 200,
            settle: Duration::from_secs(60),
            idle: Duration::from_secs(45),
            pairs: 4,
            draws: 2,
            draw: Duration::from_secs(12),
            per_second: 10,
        }
    }

    fn quick() -> Self {
        Self {
            tenants: 100,
            databases: 20,
            settle: Duration::from_secs(8),
            idle: Duration::from_secs(8),
            pairs: 1,
            draw: Duration::from_secs(6),
            ..Self::full()
        }
    }

    /// One in a hundred, and at least one for each who sends.
    pub(crate) fn busy(count: usize) -> usize {
        (count / 100).max(2)
    }

    fn validate(&self) -> Result<()> {
        let windows = self.pairs * 2;
        let (sqlite, postgres) = (windows * DOWN_SQLITE, windows * DOWN_POSTGRES);
        for (name, count, kept) in
            [("tenants", self.tenants, sqlite), ("databases", self.databases, postgres)]
        {
            let least = kept + Self::busy(count) * 2;
            if count < least {
                bail!("--{name} must be at least {least}, got {count}");
            }
        }
        Ok(())
    }
}

impl Request {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let (mut url, mut quick, mut tenants, mut databases) = (None, false, None, None);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} takes a value"));
            match argument.as_str() {
                "--database" => url = Some(value()?),
                "--quick" => quick = true,
                "--tenants" => tenants = Some(value()?.parse().context("--tenants")?),
                "--databases" => databases = Some(value()?.parse().context("--databases")?),
                _ => bail!("there is no option {argument:?}"),
            }
        }
        let mut plan = if quick { Plan::quick() } else { Plan::full() };
        plan.tenants = tenants.unwrap_or(plan.tenants);
        plan.databases = databases.unwrap_or(plan.databases);
        plan.validate()?;
        Ok(Self { url: url.context("--database is missing")?, plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Request> {
        Request::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn both_plans_are_possible() {
        assert_eq!(parse("--database x").unwrap().plan.tenants, 1_000);
        assert_eq!(parse("--database x --quick --tenants 50").unwrap().plan.tenants, 50);
    }

    #[test]
    fn too_few_are_refused() {
        assert!(parse("--database x --databases 3").is_err());
        assert!(parse("--quick").is_err());
    }
}
