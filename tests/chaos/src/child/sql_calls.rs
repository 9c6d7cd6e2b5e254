//! The calls of a worker in plain SQL: functions on PostgreSQL, procedures on SQL Server.

use std::time::Duration;

use mainstay::sqlserver::tiberius;
use tiberius::ColumnData;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::history::{Claim, Item, Rejection};

use super::payload::Payload;
use super::session::Session;
use super::trouble::DriverError;

/// A claim's answer.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: Vec<(Item, Payload)>,
    pub(super) rejected: Vec<Rejection>,
}

/// What happens to a claim.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Ack,
    Fail,
    Abandon,
    Release,
    Renew(Duration),
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// The change was made.
    Done,
    /// The claim is held, but another transaction has locked it: it was not renewed.
    Held,
    /// The claim is no longer held.
    Lost,
}

/// Claims up to four messages.
pub(super) async fn claim(
    session: &mut Session,
    owner: Uuid,
    lease: Duration,
    limit: u32,
) -> Result<Batch, DriverError> {
    match session {
        Session::Postgres(client) => {
            let (seconds, limit) = (lease.as_secs() as i32, limit as i32);
            let select = "select id, message_id, generation, attempt, topic, payload, ordering_key,
                    (extract(epoch from claimed_at) * 1000000)::bigint,
                    (extract(epoch from locked_until) * 1000000)::bigint
                from infra.outbox_claim(owner => $1, lease_seconds => $2, batch => 4, delivery_limit => $3)";
            let arguments: [(&(dyn ToSql + Sync), Type); 3] =
                [(&owner, Type::UUID), (&seconds, Type::INT4), (&limit, Type::INT4)];
            postgres_batch(&client.query_typed(select, &arguments).await?)
        }
        Session::SqlServer(client) => {
            let call = format!(
                "EXEC infra.Outbox_Claim @OwnerToken = '{owner}', @LeaseSeconds = {}, @BatchSize = 4, \
                 @DeliveryLimit = {limit}",
                lease.as_secs_f64()
            );
            sql_server_batch(client.simple_query(call).await?.into_results().await?.iter().flatten())
        }
        Session::Sqlite(_) => Err(no_functions()),
    }
}

fn no_functions() -> DriverError {
    DriverError::unreadable("SQLite has no functions to call")
}

fn postgres_batch(rows: &[tokio_postgres::Row]) -> Result<Batch, DriverError> {
    let mut batch = Batch::default();
    for row in rows {
        let payload = Payload::read(row.try_get(5)?);
        let attempt: i32 = row.try_get(3)?;
        let item = Item {
            id: row.try_get(0)?,
            message: row.try_get(1)?,
            generation: row.try_get(2)?,
            attempt: attempt.unsigned_abs(),
            topic: row.try_get(4)?,
            key: row.try_get(6)?,
            marker: payload.marker().to_owned(),
            claimed_at: row.try_get(7)?,
            until: row.try_get(8)?,
        };
        batch.items.push((item, payload));
    }
    Ok(batch)
}

/// Claimed items have the verdict 1, items that expired 2, and items that were delivered too often 3.
fn sql_server_batch<'a>(rows: impl Iterator<Item = &'a tiberius::Row>) -> Result<Batch, DriverError> {
    let mut batch = Batch::default();
    for row in rows {
        let id = needed(row, "id")?;
        let verdict: i32 = needed(row, "verdict")?;
        if verdict != 1 {
            let reason = if verdict == 2 { "Expired" } else { "DeliveryLimit" };
            batch.rejected.push(Rejection { id, reason: reason.to_owned() });
            continue;
        }
        let payload = Payload::read(needed(row, "payload")?);
        let item = Item {
            id,
            message: needed(row, "message_id")?,
            generation: needed(row, "generation")?,
            attempt: needed::<i32>(row, "attempts")?.unsigned_abs(),
            topic: needed::<&str>(row, "topic")?.to_owned(),
            key: row.try_get::<&str, _>("ordering_key")?.map(str::to_owned),
            marker: payload.marker().to_owned(),
            claimed_at: micros(row.get_column_data("claimed_at")?),
            until: micros(row.get_column_data("locked_until")?),
        };
        batch.items.push((item, payload));
    }
    Ok(batch)
}

/// Reads a column that is never null.
fn needed<'a, T: tiberius::FromSql<'a>>(row: &'a tiberius::Row, column: &str) -> Result<T, DriverError> {
    row.try_get(column)?.ok_or_else(|| DriverError::unreadable(&format!("a row without its {column}")))
}

/// Days from the first of the year 1 to that of 1970.
const EPOCH: i64 = 719_162;

/// Reads a `DATETIME2` as microseconds since 1970.
fn micros(data: &ColumnData<'static>) -> Option<i64> {
    let ColumnData::DateTime2(Some(moment)) = data else { return None };
    let scale = 10_i128.pow(u32::from(moment.time().scale()));
    let of_day = i128::from(moment.time().increments()) * 1_000_000 / scale;
    let days = i64::from(moment.date().days()) - EPOCH;
    i64::try_from(i128::from(days) * 86_400_000_000 + of_day).ok()
}

/// Changes a claim.
pub(super) async fn change(
    session: &mut Session,
    change: Change,
    owner: Uuid,
    claim: Claim,
) -> Result<Changed, DriverError> {
    let extended = match session {
        Session::Postgres(client) => {
            let call = match change {
                Change::Ack => "id, true from infra.outbox_ack($1, $2, $3) id".to_owned(),
                Change::Fail => {
                    "id, true from infra.outbox_fail($1, $2, $3, 'as the payload says') id".to_owned()
                }
                Change::Abandon => {
                    "id, true from infra.outbox_abandon($1, $2, $3, 0.2, 'as the payload says') id".to_owned()
                }
                Change::Release => "id, true from infra.outbox_release($1, $2, $3, 0.1) id".to_owned(),
                Change::Renew(lease) => {
                    format!("id, extended from infra.outbox_renew($1, $2, $3, {})", lease.as_secs_f64())
                }
            };
            let (ids, generations) = (vec![claim.id], vec![claim.generation]);
            let arguments: [(&(dyn ToSql + Sync), Type); 3] =
                [(&owner, Type::UUID), (&ids, Type::UUID_ARRAY), (&generations, Type::INT8_ARRAY)];
            let rows = client.query_typed(&format!("select {call}"), &arguments).await?;
            rows.first().map(|row| row.try_get(1)).transpose()?
        }
        Session::SqlServer(client) => {
            let (procedure, arguments) = match change {
                Change::Ack => ("Ack", String::new()),
                Change::Fail => ("Fail", ", @LastError = N'as the payload says'".to_owned()),
                Change::Abandon => {
                    ("Abandon", ", @LastError = N'as the payload says', @DelaySeconds = 0.2".to_owned())
                }
                Change::Release => ("Release", ", @DelaySeconds = 0.1".to_owned()),
                Change::Renew(lease) => ("Renew", format!(", @LeaseSeconds = {}", lease.as_secs_f64())),
            };
            let call = format!(
                "DECLARE @Held infra.Outbox_IdList;
                INSERT INTO @Held (Id, Generation) VALUES ('{}', {});
                EXEC infra.Outbox_{procedure} @OwnerToken = '{owner}', @Ids = @Held{arguments}",
                claim.id, claim.generation
            );
            let results = client.simple_query(call).await?.into_results().await?;
            match (results.iter().flatten().next(), change) {
                (Some(row), Change::Renew(_)) => Some(needed(row, "extended")?),
                (row, _) => row.map(|_| true),
            }
        }
        Session::Sqlite(_) => return Err(no_functions()),
    };
    Ok(match extended {
        Some(true) => Changed::Done,
        Some(false) => Changed::Held,
        None => Changed::Lost,
    })
}

#[cfg(test)]
mod tests {
    use tiberius::time::{Date, DateTime2, Time};

    use super::*;

    #[test]
    fn moments_are_microseconds_at_every_scale() {
        for scale in [0, 6, 7] {
            let time = Time::new(2 * 10_u64.pow(u32::from(scale)), scale);
            let moment = ColumnData::DateTime2(Some(DateTime2::new(Date::new(719_163), time)));
            assert_eq!(micros(&moment), Some(86_402_000_000));
        }
        assert_eq!(micros(&ColumnData::DateTime2(None)), None);
    }
}
