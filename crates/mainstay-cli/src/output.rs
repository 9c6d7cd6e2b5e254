//! What the program says: JSON for programs and tables for people on stdout, notes and errors on stderr. Nothing else writes to either, but
//! for what is drawn in place (`screen.rs`).
//!
//! Whether a stream has styles is decided here alone: `NO_COLOR` takes them away, `CLICOLOR_FORCE` gives them also to a pipe, and without
//! either a terminal has them, unless it is a dumb one or `CLICOLOR=0`.

use std::io::{BufWriter, IsTerminal, Stdout, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, TableComponent};
use serde::Serialize;

use crate::redact::redact_quoting;

/// Where something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// What was asked for.
    Out,
    /// What else there is to tell.
    Err,
}

impl Stream {
    /// Whether a person sees it as it is said.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Out => std::io::stdout().is_terminal(),
            Self::Err => std::io::stderr().is_terminal(),
        }
    }

    /// Whether it is a terminal on which lines can be drawn again in place.
    pub(crate) fn can_draw(self) -> bool {
        self.is_terminal() && !is_dumb()
    }

    /// Whether styles and colours may be used.
    pub(crate) fn is_styled(self) -> bool {
        styled(self.is_terminal(), is_dumb(), |name| std::env::var(name).ok())
    }

    /// Writes a text at once. What nobody reads any more is dropped.
    pub(crate) fn write(self, text: &str) -> std::io::Result<()> {
        match self {
            Self::Out => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                stdout.flush()
            }
            Self::Err => std::io::stderr().lock().write_all(text.as_bytes()),
        }
    }
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

/// See no-color.org and bixense.com/clicolors: a variable counts if it is set to something.
fn styled(terminal: bool, dumb: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    terminal && !dumb && set("CLICOLOR").is_none_or(|value| value != "0")
}

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

/// Prints a text to the byte, without a line end.
pub(crate) fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes)?;
    Ok(stdout.flush()?)
}

/// Values of JSON on stdout, one in a line, however many there are.
pub(crate) struct Lines(BufWriter<Stdout>);

impl Lines {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(std::io::stdout()))
    }

    /// What they are written by.
    pub(crate) fn writer(&mut self) -> &mut impl Write {
        &mut self.0
    }

    /// Brings out what is still gathered.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Tells something beside what was asked for, on a line of stderr.
pub(crate) fn note(text: impl std::fmt::Display) {
    // Nobody reads on: nothing to tell, and nobody to tell it to.
    let _closed = Stream::Err.write(&format!("{text}\n"));
}

/// Tells what is wrong: a block whose first word is `error:`. No password gets out that slipped into it.
pub(crate) fn error(text: &str) {
    let text = without_secrets(text);
    note(match text.strip_prefix("error:") {
        Some(rest) if Stream::Err.is_styled() => format!("\x1b[1;31merror:\x1b[0m{rest}"),
        _ => text,
    });
}

/// Tells that something was not done, on a line of stderr. What was named may be something else that was put in its place.
pub(crate) fn refusal(text: &str) {
    note(without_secrets(text));
}

/// Prints help on stdout, or what is wrong with the arguments on stderr. Not by clap itself, which would quote a misplaced URL in full.
pub(crate) fn usage(error: &clap::Error) {
    let stream = if error.use_stderr() { Stream::Err } else { Stream::Out };
    let text = error.render();
    let text = if stream.is_styled() { text.ansi().to_string() } else { text.to_string() };
    let _closed = stream.write(&without_secrets(&text));
}

/// What is wrong is mostly one of the arguments, quoted.
fn without_secrets(text: &str) -> String {
    redact_quoting(text, std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))
}

/// A table with a header.
pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    for line in [TableComponent::HeaderLines, TableComponent::MiddleHeaderIntersections] {
        table.set_style(line, '─');
    }
    // Whoever reads it line by line wants a row in a line.
    table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    if Stream::Out.is_terminal()
        && let Ok((width, _)) = crossterm::terminal::size()
    {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    match Stream::Out.is_styled() {
        true => {
            table.enforce_styling();
            table.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)))
        }
        false => table.set_header(header),
    };
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

/// How something is, at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Doubtful,
    Bad,
    Plain,
}

/// A cell whose colour says what its words say, where there are colours.
pub(crate) fn toned(text: impl std::fmt::Display, tone: Tone) -> Cell {
    let cell = Cell::new(text);
    match tone {
        Tone::Good => cell.fg(Color::Green),
        Tone::Doubtful => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
        Tone::Plain => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_for_terminals_unless_somebody_wants_it_otherwise() {
        let with = |terminal, dumb, set: &[(&str, &str)]| {
            let find = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            styled(terminal, dumb, find)
        };
        assert!(with(true, false, &[]));
        assert!(!with(false, false, &[]));
        assert!(!with(true, true, &[]), "a dumb terminal");
        assert!(!with(true, false, &[("NO_COLOR", "1")]));
        assert!(with(true, false, &[("NO_COLOR", "")]), "set to nothing is not set");
        assert!(!with(true, false, &[("CLICOLOR", "0")]));
        assert!(with(false, true, &[("CLICOLOR_FORCE", "1")]));
        assert!(!with(false, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!with(true, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), "no is no");
    }
}
