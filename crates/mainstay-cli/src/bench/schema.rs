//! A schema of SQL Server and all that is in it: nothing there removes both at once.

use mainstay::sqlserver::tiberius::Query;
use mainstay::sqlserver::{Client, SqlServer};

use super::limits::batch;
use super::scratch::{LET_GO, REMOVALS};

/// The statements that remove what is in a schema (the parameter), in an order in which nothing is left that needs what goes.
const CONTENTS: &str = include_str!("schema_contents.sql");

/// The schemas whose names begin so.
pub(super) async fn left(server: &SqlServer, prefix: &str) -> anyhow::Result<Vec<String>> {
    let mut client = server.client().await?;
    let mut list = Query::new(
        "SELECT CAST(s.name AS NVARCHAR(128)) FROM sys.schemas s WHERE LEFT(s.name, LEN(@P1)) = @P1 ORDER BY s.name",
    );
    list.bind(prefix);
    let rows = list.query(&mut client).await?.into_first_result().await?;
    Ok(rows.iter().filter_map(|row| row.get::<&str, _>(0)).map(|name| format!("schema {name}")).collect())
}

/// Removes a schema with all that is in it, if it is there.
pub(super) async fn remove(server: &SqlServer, schema: &str) -> anyhow::Result<()> {
    let mut tries = 0;
    loop {
        // A client of its own each time: one that failed may have a transaction open.
        match remove_by(&mut server.client().await?, schema).await {
            Ok(()) => return Ok(()),
            // A deadlock, for one, with a claim that is still under way.
            Err(_) if tries < REMOVALS => {
                tries += 1;
                tokio::time::sleep(LET_GO).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn remove_by(client: &mut Client, schema: &str) -> anyhow::Result<()> {
    let mut contents = Query::new(CONTENTS);
    contents.bind(schema);
    let rows = contents.query(client).await?.into_first_result().await?;
    for row in &rows {
        if let Some(statement) = row.get::<&str, _>(1) {
            batch(client, statement).await?;
        }
    }
    batch(client, &format!("IF SCHEMA_ID(N'{schema}') IS NOT NULL EXEC(N'DROP SCHEMA \"{schema}\"')")).await
}
