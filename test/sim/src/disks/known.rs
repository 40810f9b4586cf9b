//! What records on drives decode to. A start reads those of all drives, dozens of times in a
//! history, and mostly finds the bytes that it found there before: then they are not decoded anew.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::thread::LocalKey;

use array::assembly::PlaceRead;
use array::format::{FormatError, RecordCopy, Superblock};
use array::planted::{self, Fault};

/// The number of a drive, and where on it.
type Place = (usize, u64);

/// By place: the bytes that were found there last, and what they are.
type Known<T> = RefCell<BTreeMap<Place, (Vec<u8>, Result<T, FormatError>)>>;

thread_local! {
    static SUPERBLOCKS: Known<Superblock> = const { RefCell::new(BTreeMap::new()) };
    static RECORDS: Known<RecordCopy> = const { RefCell::new(BTreeMap::new()) };
}

/// What `bytes` decode to, which were found at `place`.
pub(super) fn superblock(place: Place, bytes: &[u8]) -> Result<Superblock, FormatError> {
    find(&SUPERBLOCKS, place, bytes, Superblock::decode)
}

/// As `superblock`, a record.
pub(super) fn record(place: Place, bytes: &[u8]) -> PlaceRead {
    find(&RECORDS, place, bytes, RecordCopy::decode)
}

fn find<T: Clone>(
    known: &'static LocalKey<Known<T>>,
    place: Place,
    bytes: &[u8],
    decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
) -> Result<T, FormatError> {
    if planted::is(Fault::TornRecordTaken) {
        // The same bytes are something else then.
        return decode(bytes);
    }
    known.with_borrow_mut(|known| {
        let (before, decoded) = known
            .entry(place)
            .or_insert_with(|| (Vec::new(), Err(FormatError::Truncated { bytes: 0 })));
        if before != bytes {
            *decoded = decode(bytes);
            before.clear();
            before.extend_from_slice(bytes);
        }
        decoded.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static SUMS: Known<u32> = const { RefCell::new(BTreeMap::new()) };
    }

    #[test]
    fn bytes_are_decoded_once_as_long_as_they_are_the_same_at_their_place() {
        let decoded = RefCell::new(0);
        let ask = |place, bytes: &[u8]| {
            let before = *decoded.borrow();
            let sum = find(&SUMS, place, bytes, |bytes| {
                *decoded.borrow_mut() += 1;
                if bytes.is_empty() {
                    return Err(FormatError::Truncated { bytes: 7 });
                }
                Ok(bytes.iter().map(|byte| u32::from(*byte)).sum())
            });
            (sum, *decoded.borrow() - before)
        };
        let here = (3, 4096);
        assert_eq!(ask(here, &[1, 2]), (Ok(3), 1));
        assert_eq!(ask(here, &[1, 2]), (Ok(3), 0));
        // The same sum, as many bytes, and some of them.
        for bytes in [&[2, 1][..], &[1, 2], &[1, 2, 0], &[1]] {
            let sum = bytes.iter().map(|byte| u32::from(*byte)).sum();
            assert_eq!(ask(here, bytes), (Ok(sum), 1), "{bytes:?}");
        }
        for there in [(3, 8192), (4, 4096)] {
            assert_eq!(ask(there, &[5]), (Ok(5), 1), "{there:?}");
        }
        assert_eq!(ask(here, &[1]), (Ok(1), 0), "others do not matter");
        let refused = Err(FormatError::Truncated { bytes: 7 });
        assert_eq!(ask(here, &[]), (refused.clone(), 1));
        assert_eq!(ask(here, &[]), (refused, 0));
    }
}
