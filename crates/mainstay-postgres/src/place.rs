//! Where a row lies: its tuple id, as the hint of a claim.

use std::error::Error;
use std::num::NonZeroU64;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A tuple id: 32 bits of block, 16 bits of offset. Offsets count from 1, so none is zero as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) NonZeroU64);

type Fault = Box<dyn Error + Sync + Send>;

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        let raw: [u8; 6] = raw.try_into()?;
        let number = raw.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self(NonZeroU64::new(number).ok_or("a tuple id of zero")?))
    }

    accepts!(TID);
}

impl ToSql for Place {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        out.extend_from_slice(&self.0.get().to_be_bytes()[2..]);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        let raw = [0x00, 0x01, 0x02, 0x03, 0xff, 0x04];
        let place = Place::from_sql(&Type::TID, &raw).unwrap();
        let mut out = BytesMut::new();
        place.to_sql(&Type::TID, &mut out).unwrap();
        assert_eq!(&out[..], raw);
        assert!(Place::from_sql(&Type::TID, &[0; 6]).is_err());
        assert!(Place::from_sql(&Type::TID, &[1; 5]).is_err());
    }
}
