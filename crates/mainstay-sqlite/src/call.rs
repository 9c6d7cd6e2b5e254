//! Running the statements of a store's call, on any connection: the writer's, a handler's or the application's own.
//!
//! The caller supplies the transaction or savepoint, so that all steps are taken or none.

use mainstay_core::store::{Argument, Step};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};

use crate::error::Fault;
use crate::value::text_at;

struct Bound<'a>(&'a Argument);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Argument::Null => ValueRef::Null,
            Argument::Integer(number) => ValueRef::Integer(*number),
            Argument::Text(text) => ValueRef::Text(text.as_bytes()),
            Argument::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The answers of all steps, in order.
pub(crate) fn run(connection: &Connection, steps: &[Step]) -> Result<Vec<String>, Fault> {
    let mut answers = Vec::new();
    for Step { sql, arguments } in steps {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(arguments.iter().map(Bound)))?;
        while let Some(row) = rows.next()? {
            answers.push(text_at(row, 0)?);
        }
    }
    Ok(answers)
}
