//! What goes to stdout: JSON for programs, tables for people.

use std::io::{IsTerminal, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, TableComponent};
use serde::Serialize;

/// Prints one JSON value and a line end.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, value).map_err(std::io::Error::from)?;
    writeln!(stdout)?;
    Ok(stdout.flush()?)
}

/// Prints a line.
pub(crate) fn line(text: impl std::fmt::Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// A table with a header.
pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    for line in [TableComponent::HeaderLines, TableComponent::MiddleHeaderIntersections] {
        table.set_style(line, '─');
    }
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    } else {
        // Whoever reads it line by line wants a row in a line.
        table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        table.set_header(header);
    }
    table
}

/// Prints a table, without blanks at the ends of its lines.
pub(crate) fn print(table: &Table) -> anyhow::Result<()> {
    line(table.trim_fmt())
}

/// A cell with a number, on the right.
pub(crate) fn number(value: impl std::fmt::Display) -> Cell {
    Cell::new(value).set_alignment(CellAlignment::Right)
}
