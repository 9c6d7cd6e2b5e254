//! Times on the wire: what PostgreSQL can hold and [`Timestamp`] can't, and the other way round.
//!
//! PostgreSQL's range reaches from 4713 BC to 294276 AD and has infinities; a row with such a time must not make a
//! whole claim unreadable. So both directions stop at the nearest time there is.

use std::error::Error;

use jiff::Timestamp;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// Microseconds from 1970 to 2000, where PostgreSQL begins to count.
const EPOCH: i64 = 946_684_800_000_000;

/// 4700 BC, in microseconds from 1970: the earliest full century PostgreSQL knows.
const EARLIEST: i64 = -210_480_000_000_000_000;

/// A time as it stands in a `timestamptz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH);
        let (min, max) = (Timestamp::MIN, Timestamp::MAX);
        Ok(Self(match Timestamp::from_microsecond(micros) {
            Ok(time) => time,
            Err(_) if micros < 0 => min,
            Err(_) => max,
        }))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for Moment {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = self.0.as_microsecond().max(EARLIEST) - EPOCH;
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl Moment {
    /// The same in words PostgreSQL reads, for what is sent as text.
    pub(crate) fn to_text(self) -> String {
        let clamped = Timestamp::from_microsecond(self.0.as_microsecond().max(EARLIEST));
        let time = clamped.unwrap_or(self.0);
        let year = time.to_zoned(jiff::tz::TimeZone::UTC).year();
        // PostgreSQL has no year 0: it writes 1 BC where others write 0.
        if year > 0 { time.to_string() } else { bc(time, year) }
    }
}

fn bc(time: Timestamp, year: i16) -> String {
    let full = time.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let (month, day) = (full.month(), full.day());
    let (hour, minute, second, micro) =
        (full.hour(), full.minute(), full.second(), full.subsec_nanosecond() / 1_000);
    let year = 1 - i32::from(year);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z BC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(micros: i64) -> Timestamp {
        Moment::from_sql(&Type::TIMESTAMPTZ, &micros.to_be_bytes()).unwrap().0
    }

    #[test]
    fn infinities_become_the_ends_of_time() {
        assert_eq!(read(i64::MAX), Timestamp::MAX);
        assert_eq!(read(i64::MIN), Timestamp::MIN);
        assert_eq!(read(0).to_string(), "2000-01-01T00:00:00Z");
    }

    #[test]
    fn a_time_survives_the_wire() {
        for text in ["1969-12-31T23:59:59.999999Z", "2024-02-29T12:00:00.000001Z", "9999-12-30T00:00:00Z"] {
            let time: Timestamp = text.parse().unwrap();
            let mut wire = BytesMut::new();
            Moment(time).to_sql(&Type::TIMESTAMPTZ, &mut wire).unwrap();
            assert_eq!(Moment::from_sql(&Type::TIMESTAMPTZ, &wire).unwrap(), Moment(time));
        }
    }

    #[test]
    fn years_before_the_first_are_written_as_bc() {
        let first = Moment("-000001-03-04T05:06:07Z".parse().unwrap());
        assert_eq!(first.to_text(), "0002-03-04T05:06:07.000000Z BC");
        assert!(Moment(Timestamp::MIN).to_text().ends_with(" BC"));
    }
}
