//! Lines on the terminal that are drawn again in place.
//!
//! Each drawing is one write, over the old lines and not after wiping them, so nothing flickers. The cursor comes back
//! when the screen is dropped, or by [`restore`] where nothing will be dropped.

use std::io::{IsTerminal, Write};

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
/// The terminal shows everything between these at once; one that does not know them ignores them.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// The lines drawn last, at the end of the terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    drawn: usize,
}

impl Screen {
    /// A screen, if stdout is a terminal that can do it.
    pub(crate) fn on_terminal() -> Option<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        (std::io::stdout().is_terminal() && !dumb).then(|| {
            write(HIDE_CURSOR);
            Self { drawn: 0 }
        })
    }

    /// Draws these lines in place of the last ones.
    pub(crate) fn draw(&mut self, lines: &[String]) {
        let (width, height) = crossterm::terminal::size().unwrap_or((80, 24));
        let (width, height) = (usize::from(width).max(1), usize::from(height).max(2));
        let lines = &lines[..lines.len().min(height - 1)];
        let mut text = String::from(BEGIN);
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        text.push('\r');
        for line in lines {
            text.push_str(&cut(line, width));
            text.push_str("\x1b[K\n");
        }
        // What is left of longer drawings, and of a ^C that the terminal echoed.
        text.push_str("\x1b[J");
        text.push_str(END);
        write(&text);
        self.drawn = lines.len();
    }

    /// Removes the lines.
    pub(crate) fn clear(&mut self) {
        self.draw(&[]);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write(SHOW_CURSOR);
    }
}

/// Brings the cursor back, on a line of its own; for a way out on which nothing is dropped.
pub(crate) fn restore() {
    if std::io::stdout().is_terminal() {
        write(SHOW_CURSOR);
        write("\n");
    }
}

fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // A terminal that is gone has nobody to tell.
    let _gone = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The line as far as it fits; escape sequences take no room and are all kept, so that a style that began also ends.
fn cut(line: &str, width: usize) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut room = width;
    let mut in_escape = false;
    for c in line.chars() {
        if in_escape || c == '\x1b' {
            in_escape = in_escape && !c.is_ascii_alphabetic() || c == '\x1b';
            shown.push(c);
        } else if room > 0 {
            room -= 1;
            shown.push(c);
        }
    }
    shown
}

/// Bold text.
pub(crate) fn bold(text: impl std::fmt::Display) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// Text that stands back.
pub(crate) fn dim(text: impl std::fmt::Display) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_without_its_styles() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("ab", 3), "ab");
        assert_eq!(cut(&format!("{}cd", bold("ab")), 3), "\x1b[1mab\x1b[0mc");
        assert_eq!(cut(&format!("{}!", bold("abcd")), 2), "\x1b[1mab\x1b[0m");
    }
}
