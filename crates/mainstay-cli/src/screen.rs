//! Lines on the terminal that are drawn again in place.
//!
//! Each drawing is one write, over the old lines and not after wiping them, so nothing flickers. The cursor comes back
//! when the screen is dropped, or by [`restore`] where nothing will be dropped.

use crate::output::Stream;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
/// The terminal shows everything between these at once; one that does not know them ignores them.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// The lines drawn last, at the end of the terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    stream: Stream,
    drawn: usize,
}

impl Screen {
    /// A screen, if that is a terminal that can do it.
    pub(crate) fn on(stream: Stream) -> Option<Self> {
        stream.can_draw().then(|| {
            // Only where somebody sees to an interruption: a cursor that stays hidden is a nuisance.
            if stream == Stream::Out {
                write(stream, HIDE_CURSOR);
            }
            Self { stream, drawn: 0 }
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
        write(self.stream, &text);
        self.drawn = lines.len();
    }

    /// Removes the lines.
    pub(crate) fn clear(&mut self) {
        self.draw(&[]);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.stream == Stream::Out {
            write(self.stream, SHOW_CURSOR);
        }
    }
}

/// Brings the cursor back, on a line of its own; for a way out on which nothing is dropped.
pub(crate) fn restore() {
    if Stream::Out.is_terminal() {
        write(Stream::Out, SHOW_CURSOR);
        write(Stream::Out, "\n");
    }
}

fn write(stream: Stream, text: &str) {
    // A terminal that is gone has nobody to tell.
    let _gone = stream.write(text);
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
    styled(1, text)
}

/// Text that stands back.
pub(crate) fn dim(text: impl std::fmt::Display) -> String {
    styled(2, text)
}

/// Drawing is for terminals, and still no style is used where none is wanted.
fn styled(code: u8, text: impl std::fmt::Display) -> String {
    match Stream::Out.is_styled() {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_without_its_styles() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("ab", 3), "ab");
        assert_eq!(cut("\x1b[1mab\x1b[0mcd", 3), "\x1b[1mab\x1b[0mc");
        assert_eq!(cut("\x1b[1mabcd\x1b[0m!", 2), "\x1b[1mab\x1b[0m");
    }
}
