//! The ids of a slice's message: the same whoever plans it.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::id::{MessageId, WorkItemId};

use super::FanoutKey;

/// The ids of the slice of a shard that begins at `cursor`, comes after `last` and is for the time `nominal`.
///
/// The same for everybody who sees the same cursor. And no two slices of a shard have the same, whatever their times: each comes after
/// another one.
pub(super) fn slice_ids(
    key: &FanoutKey,
    shard_key: &str,
    cursor: Option<Timestamp>,
    last: Option<WorkItemId>,
    nominal: Timestamp,
) -> (WorkItemId, MessageId) {
    let mut hash = Sha256::new_with_prefix("mainstay.fanout.slice\0");
    // None of them has a NUL, so nothing else gives the same bytes.
    for text in [key.topic(), key.work_key(), shard_key] {
        hash.update(text);
        hash.update([0]);
    }
    match cursor {
        Some(cursor) => {
            hash.update([1]);
            hash.update(cursor.as_microsecond().to_be_bytes());
        }
        None => hash.update([0]),
    }
    match last {
        Some(last) => {
            hash.update([1]);
            hash.update(last.as_uuid().as_bytes());
        }
        None => hash.update([0]),
    }
    hash.update(nominal.as_microsecond().to_be_bytes());
    let digest = hash.finalize();
    let (item, message) = digest.split_at(16);
    (WorkItemId::from_uuid(id(nominal, item)), MessageId::from_uuid(id(nominal, message)))
}

/// A UUIDv7 of the nominal time, so that messages are listed in the order of their times like all others.
fn id(nominal: Timestamp, hash: &[u8]) -> Uuid {
    let millis = u64::try_from(nominal.as_millisecond()).unwrap_or(0);
    let mut rest = [0; 10];
    rest.copy_from_slice(&hash[..10]);
    Builder::from_unix_timestamp_millis(millis, &rest).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_everywhere_and_depend_on_everything() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let key = FanoutKey::new("etl", "payments").unwrap();
        let one = slice_ids(&key, "7", None, None, at(1_800_000_000));
        assert_eq!(one, slice_ids(&key.clone(), "7", None, None, at(1_800_000_000)));
        // Written down once: two programs of different versions must not make two messages of one slice.
        assert_eq!(one.0.to_string(), "01a3185c-5000-7c01-b52d-7660b8dfb7b5");
        let others = [
            slice_ids(&key, "8", None, None, at(1_800_000_000)),
            slice_ids(&key, "7", Some(at(0)), None, at(1_800_000_000)),
            slice_ids(&key, "7", None, Some(one.0), at(1_800_000_000)),
            slice_ids(&key, "7", None, None, at(1_800_000_001)),
            slice_ids(&FanoutKey::new("etl", "payment").unwrap(), "s7", None, None, at(1_800_000_000)),
        ];
        assert!(others.iter().all(|(item, message)| *item != one.0 && *message != one.1));
        assert_ne!(one.0.as_uuid(), one.1.as_uuid());
        assert_eq!(one.0.as_uuid().get_version_num(), 7);
    }
}
