//! The names of schema and tables, and how they get into SQL.
//!
//! Names are the application's choice and may contain anything but what would let them out of their quotes, so they
//! are quoted wherever they stand and never change a statement (MST-022).

use crate::error::{Error, Result};

const NAMES: &str = "schema.names";

/// The longest name: PostgreSQL cuts identifiers at 63 bytes, and our suffixes need room.
const NAME_BYTES: usize = 40;

/// The names of the schema and of the tables; functions and indexes follow them (R28).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    schema: String,
    outbox: String,
}

impl Default for Names {
    fn default() -> Self {
        Self { schema: "infra".to_owned(), outbox: "outbox".to_owned() }
    }
}

impl Names {
    /// Puts everything into this schema; on SQLite it is a prefix. Defaults to `infra`.
    pub fn with_schema(mut self, name: impl Into<String>) -> Result<Self> {
        self.schema = validated("schema", name.into())?;
        Ok(self)
    }

    /// Names the outbox's tables and functions. Defaults to `outbox`.
    pub fn with_outbox(mut self, name: impl Into<String>) -> Result<Self> {
        self.outbox = validated("outbox table", name.into())?;
        Ok(self)
    }

    /// The schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The outbox table.
    pub fn outbox(&self) -> &str {
        &self.outbox
    }
}

fn validated(field: &'static str, name: String) -> Result<String> {
    if name.is_empty() || name.len() > NAME_BYTES {
        let got = name.len();
        return Err(Error::invalid(
            NAMES,
            field,
            format_args!("name must be 1 to {NAME_BYTES} bytes, got {got}"),
        ));
    }
    // `$` could end the dollar quotes around a function's body, braces could pose as a placeholder of a template.
    if name.contains(['$', '\0', '{', '}']) {
        return Err(Error::invalid(
            NAMES,
            field,
            format_args!("name must not contain $, {{, }} or NUL, got {name:?}"),
        ));
    }
    Ok(name)
}

/// Fills a template: `{{schema}}` and `{{outbox}}` for use within double quotes, `{{schema:literal}}` and
/// `{{outbox:literal}}` for use within single quotes.
pub fn render(template: &str, names: &Names) -> String {
    let identifier = |name: &str| name.replace('"', "\"\"");
    let literal = |name: &str| name.replace('\'', "''");
    template
        .replace("{{schema}}", &identifier(&names.schema))
        .replace("{{outbox}}", &identifier(&names.outbox))
        .replace("{{schema:literal}}", &literal(&names.schema))
        .replace("{{outbox:literal}}", &literal(&names.outbox))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_quotes() {
        let names = Names::default().with_schema(r#"a"; drop table b; --"#).unwrap();
        assert_eq!(
            render(r#"select 1 from "{{schema}}"."{{outbox}}_history""#, &names),
            r#"select 1 from "a""; drop table b; --"."outbox_history""#
        );
        let names = Names::default().with_outbox("o'x").unwrap();
        assert_eq!(render("'{{outbox:literal}}'", &names), "'o''x'");
    }

    #[test]
    fn impossible_names_are_refused() {
        for name in ["", "a$b", "a\0b", "{{schema}}", &"x".repeat(41)] {
            assert!(Names::default().with_schema(name).is_err(), "{name:?}");
        }
    }
}
