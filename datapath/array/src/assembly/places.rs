//! Where the records of a member are: each of its two config areas has two places
//! ([`crate::format::Area::record_places`]), the start, and the middle for a drive that refuses to
//! write there (docs/design/017-refused-blocks.md).

use units::MemberIndex;

use crate::format::{ArrayConfig, FormatError, RecordCopy};

/// What a place of a record decodes to.
pub type PlaceRead = Result<RecordCopy, FormatError>;

/// What the places of a member's records say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// What counts of it.
    pub found: Vec<Result<(MemberIndex, ArrayConfig), FormatError>>,
    /// By config area: its record goes to the middle.
    pub moved: [bool; 2],
}

impl Records {
    /// By config area, what is at its start and in its middle.
    ///
    /// What cannot be read at a start may be newer than all that can be. Not where a good record is
    /// in the middle, and nothing was written to the start since: when it is the newest of the
    /// member, since the one after it goes to the other area first; and when the record in the
    /// other area says that it was there. A middle that cannot be read hides something when that
    /// record says so. (It could hide the very first that went there, and is taken for one that was
    /// never used: a drive would have to lose both places within a moment.)
    #[must_use]
    pub fn of(areas: [[PlaceRead; 2]; 2]) -> Records {
        let newest = areas.each_ref().map(|places| {
            let good = places.iter().flatten();
            good.max_by_key(|copy| copy.config.update)
                .map(|copy| (copy.config.update, copy.moved))
        });
        let mut records = Records {
            found: Vec::with_capacity(4),
            moved: [false; 2],
        };
        for (at, [start, middle]) in areas.into_iter().enumerate() {
            let other = newest[1 - at];
            let told = other.is_some_and(|(_, moved)| moved[at]);
            let (hidden, moved) = match (&start, &middle) {
                (Ok(start), Ok(middle)) => (false, middle.config.update >= start.config.update),
                (Err(FormatError::Unreadable), Ok(middle)) => {
                    let is_newest = other.is_none_or(|(update, _)| middle.config.update > update);
                    (told || is_newest, true)
                }
                (Err(_), Ok(_)) => (false, true),
                (_, Err(FormatError::Unreadable)) => (false, told),
                (_, Err(_)) => (false, false),
            };
            if !hidden {
                records.take(start);
            }
            match &middle {
                Ok(_)
                | Err(FormatError::NewerFormat { .. } | FormatError::NewerFeatures { .. }) => {
                    records.take(middle);
                }
                Err(FormatError::Unreadable) if told => records.take(middle),
                Err(
                    FormatError::Unreadable
                    | FormatError::Length { .. }
                    | FormatError::Checksum { .. }
                    | FormatError::Invalid(_)
                    | FormatError::Truncated { .. }
                    | FormatError::Blank
                    | FormatError::Foreign,
                ) => {}
            }
            records.moved[at] = moved;
        }
        records
    }

    fn take(&mut self, read: PlaceRead) {
        let record = read.map(|copy| (copy.member, copy.config));
        self.found.push(record);
    }
}

#[cfg(test)]
mod tests {
    use units::Update;

    use super::*;
    use crate::format::tests::config;

    const NOT: [bool; 2] = [false; 2];

    fn good(update: u64, moved: [bool; 2]) -> PlaceRead {
        let config = ArrayConfig {
            update: Update(update),
            ..config(3)
        };
        let member = MemberIndex(0);
        Ok(RecordCopy {
            member,
            config,
            moved,
        })
    }

    fn torn() -> PlaceRead {
        Err(FormatError::Checksum {
            stored: 1,
            computed: 2,
        })
    }

    /// The updates that count, whether something hidden may be newer, and where records go.
    fn told(areas: [[PlaceRead; 2]; 2]) -> (Vec<u64>, bool, [bool; 2]) {
        let records = Records::of(areas);
        let good = records.found.iter().flatten();
        let updates = good.map(|(_, config)| config.update.0).collect();
        let doubtful = records.found.contains(&Err(FormatError::Unreadable));
        (updates, doubtful, records.moved)
    }

    #[test]
    fn a_record_in_the_middle_tells_what_cannot_be_at_a_start_that_nobody_can_read() {
        let blank = || Err(FormatError::Blank);
        let unread = || Err(FormatError::Unreadable);
        let (a, both) = ([true, false], [true; 2]);
        // As ever.
        let usual = [[good(4, NOT), blank()], [good(5, NOT), torn()]];
        assert_eq!(told(usual), (vec![4, 5], false, NOT));
        let hidden = [[unread(), blank()], [good(5, NOT), blank()]];
        assert_eq!(told(hidden), (vec![5], true, NOT));
        // It moved, just now or before the record that says so.
        let newest = [[unread(), good(4, NOT)], [good(3, NOT), blank()]];
        assert_eq!(told(newest), (vec![4, 3], false, a));
        let said = [[unread(), good(4, NOT)], [good(5, a), blank()]];
        assert_eq!(told(said), (vec![4, 5], false, a));
        let said = [[unread(), good(4, both)], [unread(), good(5, both)]];
        assert_eq!(told(said), (vec![4, 5], false, both));
        // It was tried there, and then went to the start after all.
        let tried = [[unread(), good(4, NOT)], [good(5, NOT), blank()]];
        assert_eq!(told(tried), (vec![4, 5], true, a));
        let tried = [[good(6, NOT), good(4, NOT)], [good(5, NOT), blank()]];
        assert_eq!(told(tried), (vec![6, 4, 5], false, NOT));
        // Both can be read.
        let readable = [[good(2, NOT), good(4, NOT)], [good(5, a), blank()]];
        assert_eq!(told(readable), (vec![2, 4, 5], false, a));
        let torn_start = [[torn(), good(4, NOT)], [good(5, a), blank()]];
        assert_eq!(told(torn_start), (vec![4, 5], false, a));
    }

    #[test]
    fn a_middle_that_nobody_can_read_hides_something_where_that_is_told() {
        let unread = || Err(FormatError::Unreadable);
        let blank = || Err(FormatError::Blank);
        let unused = [[good(4, NOT), unread()], [good(5, NOT), unread()]];
        assert_eq!(told(unused), (vec![4, 5], false, NOT));
        let used = [[good(2, NOT), unread()], [good(5, [true, false]), blank()]];
        assert_eq!(told(used), (vec![2, 5], true, [true, false]));
        let array = uuid::Uuid::nil();
        let future = || Err(FormatError::NewerFormat { array, format: 9 });
        let newer = Records::of([[good(4, NOT), future()], [good(5, NOT), blank()]]);
        let error = FormatError::NewerFormat { array, format: 9 };
        assert!(newer.found.contains(&Err(error)));
    }
}
