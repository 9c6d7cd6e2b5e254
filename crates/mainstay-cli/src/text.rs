//! How durations and numbers are read and written.

use std::time::Duration;

use jiff::fmt::temporal::Pieces;
use jiff::{SignedDuration, Timestamp};

/// Reads a duration like `10s`, `5m`, `1h30m` or `250ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is a number with a unit, like 250ms, 10s, 5m, 1h30m or 2d".to_owned();
    // The library knows no days in an exact duration; here a day is 24 hours.
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days.trim().parse::<u32>().map_err(|_| wrong())?, rest.trim()),
        None => (0, text),
    };
    let rest = if rest.is_empty() && text.contains('d') {
        SignedDuration::ZERO
    } else {
        rest.parse::<SignedDuration>().map_err(|_| wrong())?
    };
    let rest = Duration::try_from(rest).map_err(|_| "a duration can't be negative".to_owned())?;
    Ok(rest + Duration::from_secs(24 * 3_600) * days)
}

/// The same, but not zero.
pub(crate) fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be above zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Reads a moment like `2027-01-31T09:00:00Z`.
pub(crate) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|error: jiff::Error| {
        if !error.is_range() {
            return "a moment is written as 2027-01-31T09:00:00Z (RFC 3339)".to_owned();
        }
        match Pieces::parse(text) {
            Ok(_) => format!("a moment must be from {:.0} to {:.0}", Timestamp::MIN, Timestamp::MAX),
            Err(_) => "there is no such day or hour in the calendar".to_owned(),
        }
    })
}

/// A whole number with thousands separated.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A number with its noun, in the plural unless it is one.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// Milliseconds, with as many digits as matter.
pub(crate) fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    match ms {
        _ if ms < 10.0 => format!("{ms:.2} ms"),
        _ if ms < 100.0 => format!("{ms:.1} ms"),
        _ if ms < 10_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

/// Milliseconds as a number, to a thousandth.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// An age or a wait, in the largest unit that fits.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A moment to the second, in UTC.
pub(crate) fn moment(timestamp: Timestamp) -> String {
    timestamp.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A stored text as a terminal may show it: what would steer the terminal, or turn the direction of the line, is written out.
pub(crate) fn harmless(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Cuts a text to this many characters, showing that it was cut.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let one_line = harmless(text);
    if one_line.chars().count() <= most {
        return one_line;
    }
    one_line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_is_wrong_says_how() {
        assert!(parse_timestamp("2027-01-31T09:00:00Z").is_ok());
        for (text, says) in [
            ("tomorrow", "RFC 3339"),
            ("2027-01-31", "RFC 3339"),
            ("9999-12-31T23:59:59Z", "to 9999-12-30T22:00:00Z"),
            ("-009999-01-01T00:00:00Z", "from -009999-01-02T01:59:59Z"),
            ("2027-02-29T00:00:00Z", "no such day"),
            ("2027-01-31T25:00:00Z", "no such day or hour"),
        ] {
            let told = parse_timestamp(text).unwrap_err();
            assert!(told.contains(says), "{text}: {told}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, seconds) in [
            ("10s", 10.0),
            ("5m", 300.0),
            ("1h30m", 5_400.0),
            ("250ms", 0.25),
            ("2d", 172_800.0),
            ("1d 1h", 90_000.0),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_secs_f64()), Ok(seconds), "{text}");
        }
        for text in ["", "10", "ten", "-5s", "d", "5 parsecs"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_positive_duration("0s").is_err());
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(0, "message"), "0 messages");
        assert_eq!(milliseconds(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(shorten("abcdef", 5), "abcd…");
    }

    #[test]
    fn stored_texts_do_not_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31m\nb\u{202e}"), "a\\u{1b}[31m\\nb\\u{202e}");
        assert_eq!(harmless("größer 📦"), "größer 📦");
    }
}
