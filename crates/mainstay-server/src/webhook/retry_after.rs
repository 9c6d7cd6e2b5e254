//! `Retry-After`: a number of seconds, or a date of HTTP in any of its three forms.

use std::time::{Duration, SystemTime};

/// How long from `now` on; none where it can't be read. A date that has passed is no time at all.
pub(super) fn parse(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than fits is as good as for ever.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |text: &str| parse(text.as_bytes(), now).map(|delay| delay.as_secs());
        assert_eq!(read("120"), Some(120));
        assert_eq!(read(" 0 "), Some(0));
        assert_eq!(read("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(read("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(read("Sun Nov  6 08:50:37 1994"), Some(60));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:36 GMT"), Some(0), "it has passed");
        for text in ["", "soon", "-1", "1.5", "+3", "Sun, 06 Nov 1994", "1e9"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(parse(&[0xff, 0xfe], now), None);
    }
}
