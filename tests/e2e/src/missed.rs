//! A job that has missed occurrences, registered in plain SQL as another language would.

use anyhow::Result;

use crate::client;

/// Registers a job that has run every hour since `hours` ago, while no scheduler was there: so many of its occurrences are late,
/// and all of them are to run. The next one is half an hour away.
pub async fn miss(url: &str, name: &str, topic: &str, hours: u64) -> Result<()> {
    const COLUMNS: &str = "name, topic, cron, misfire, misfire_cap, misfire_window_seconds, updated_at";
    match url.strip_prefix("sqlite:") {
        Some(path) => {
            let connection = rusqlite::Connection::open(path)?;
            connection.busy_timeout(std::time::Duration::from_secs(30))?;
            let insert = format!(
                "insert into infra_jobs ({COLUMNS})
                 select ?1, ?2, ((strftime('%M', 'now') + 30) % 60) || ' * * * *', 2, 1000, 31622400,
                        cast((julianday('now') - 2440587.5) * 86400000.0 as integer) * 1000 - ?3 * 3600000000"
            );
            connection.execute(&insert, (name, topic, i64::try_from(hours)?))?;
        }
        None => {
            let insert = format!(
                "insert into infra.jobs ({COLUMNS})
                 select '{name}', '{topic}', (extract(minute from now() at time zone 'UTC')::integer + 30) % 60 || ' * * * *', 2, 1000, 31622400,
                        now() - interval '{hours} hours'"
            );
            client(url).await?.batch_execute(&insert).await?;
        }
    }
    Ok(())
}
