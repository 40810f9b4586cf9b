//! Where the records of a member are: each of its two config areas has two places
//! ([`crate::format::Area::record_places`]), the start, and the middle for a drive that refuses to
//! write there (docs/design/017-refused-blocks.md).

use units::{MemberIndex, Update};

use crate::format::{ArrayConfig, FormatError, RecordCopy};

/// What a place of a record decodes to.
pub type PlaceRead = Result<RecordCopy, FormatError>;

/// What the places of a member's records say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// What counts of it.
    pub found: Vec<Result<(MemberIndex, ArrayConfig), FormatError>>,
    /// By config area, where the member's next record goes.
    pub next: [RecordPlace; 2],
}

/// Where in a config area a member's record goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordPlace {
    /// The start, or the middle if that is refused.
    #[default]
    Start,
    /// The middle, or the start if that is refused: nobody can tell whether it has moved.
    Perhaps,
    /// The middle: it has moved.
    Middle,
}

impl Records {
    /// By config area, what is at its start and in its middle.
    ///
    /// What cannot be read at a start may be newer than all that can be. Not where a good record is
    /// in the middle, and nothing was written to the start since: when it says itself that the one
    /// before it was there, too; when the newest record of the other area says that of it; or when
    /// it is newer than that, since the next one goes there first. A middle that cannot be read
    /// hides something when the other area says so. (It could hide the very first that went there,
    /// before the next record told of that: a drive would have to lose both places within a
    /// moment.) Where the newest record of the other area may be damaged, it says nothing.
    #[must_use]
    pub fn of(areas: [[PlaceRead; 2]; 2]) -> Records {
        let others = [1, 0].map(|at: usize| Other::of(at, &areas[at]));
        let mut records = Records {
            found: Vec::with_capacity(4),
            next: [RecordPlace::Start; 2],
        };
        for (at, [start, middle]) in areas.into_iter().enumerate() {
            let other = &others[at];
            let told = other.told[at];
            let is_older = match &middle {
                Ok(middle) => {
                    let says_so = middle.moved[at] && told != Told::No;
                    says_so || told == Told::Yes || other.is_before(middle)
                }
                // It was torn on its way there.
                Err(FormatError::Checksum { .. }) => told == Told::Yes,
                Err(_) => false,
            };
            records.next[at] = match (&start, &middle) {
                (Ok(start), Ok(middle)) if middle.config.update < start.config.update => {
                    RecordPlace::Start
                }
                (Err(FormatError::Unreadable), Ok(_)) if !is_older => RecordPlace::Perhaps,
                (_, Ok(_)) => RecordPlace::Middle,
                (_, Err(FormatError::Unreadable | FormatError::Checksum { .. }))
                    if told == Told::Yes =>
                {
                    RecordPlace::Middle
                }
                (_, Err(FormatError::Unreadable)) if told == Told::Unknown => RecordPlace::Perhaps,
                (_, Err(_)) => RecordPlace::Start,
            };
            if !(is_older && start == Err(FormatError::Unreadable)) {
                records.take(start);
            }
            match &middle {
                Ok(_)
                | Err(FormatError::NewerFormat { .. } | FormatError::NewerFeatures { .. }) => {
                    records.take(middle);
                }
                Err(FormatError::Unreadable) if told != Told::No => records.take(middle),
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
        }
        records
    }

    fn take(&mut self, read: PlaceRead) {
        let record = read.map(|copy| (copy.member, copy.config));
        self.found.push(record);
    }
}

/// What one config area tells of the other.
struct Other {
    /// The update of its newest record, if that can be known.
    newest: Option<Update>,
    /// By config area: whether that says that the record there is in the middle.
    told: [Told; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Yes,
    No,
    Unknown,
}

impl Other {
    fn of(at: usize, [start, middle]: &[PlaceRead; 2]) -> Other {
        let newest = match (start, middle) {
            (Ok(start), Ok(middle)) if start.config.update > middle.config.update => Some(start),
            (Ok(_), Ok(middle)) => Some(middle),
            (Err(_), Ok(middle)) if middle.moved[at] => Some(middle),
            // A long record leaves its rest in the middle.
            (Ok(start), Err(FormatError::Blank | FormatError::Foreign)) => Some(start),
            (_, _) => None,
        };
        let told = |moved: bool| if moved { Told::Yes } else { Told::No };
        Other {
            newest: newest.map(|copy| copy.config.update),
            told: newest.map_or([Told::Unknown; 2], |copy| copy.moved.map(told)),
        }
    }

    /// Whether all that was ever there is older.
    fn is_before(&self, copy: &RecordCopy) -> bool {
        self.newest
            .is_some_and(|newest| newest < copy.config.update)
    }
}

#[cfg(test)]
mod tests {
    use super::RecordPlace::{Middle, Perhaps, Start};
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
    fn told(areas: [[PlaceRead; 2]; 2]) -> (Vec<u64>, bool, [RecordPlace; 2]) {
        let records = Records::of(areas);
        let good = records.found.iter().flatten();
        let updates = good.map(|(_, config)| config.update.0).collect();
        let doubtful = records.found.contains(&Err(FormatError::Unreadable));
        (updates, doubtful, records.next)
    }

    fn blank() -> PlaceRead {
        Err(FormatError::Blank)
    }

    fn unread() -> PlaceRead {
        Err(FormatError::Unreadable)
    }

    const A: [bool; 2] = [true, false];
    const BOTH: [bool; 2] = [true; 2];

    #[test]
    fn a_record_in_the_middle_tells_what_cannot_be_at_a_start_that_nobody_can_read() {
        // As ever.
        let usual = [[good(4, NOT), blank()], [good(5, NOT), blank()]];
        assert_eq!(told(usual), (vec![4, 5], false, [Start, Start]));
        let hidden = [[unread(), blank()], [good(5, NOT), blank()]];
        assert_eq!(told(hidden), (vec![5], true, [Start, Start]));
        // It moved, just now or before the record that says so.
        let newest = [[unread(), good(4, NOT)], [good(3, NOT), blank()]];
        assert_eq!(told(newest), (vec![4, 3], false, [Middle, Start]));
        let said = [[unread(), good(4, NOT)], [good(5, A), blank()]];
        assert_eq!(told(said), (vec![4, 5], false, [Middle, Start]));
        let said = [[unread(), good(4, BOTH)], [unread(), good(5, BOTH)]];
        assert_eq!(told(said), (vec![4, 5], false, [Middle, Middle]));
        let torn_there = [[unread(), torn()], [good(5, A), blank()]];
        assert_eq!(told(torn_there), (vec![5], false, [Middle, Start]));
        let says_so_itself = [[unread(), good(6, A)], [torn(), blank()]];
        assert_eq!(told(says_so_itself), (vec![6], false, [Middle, Start]));
        // Both can be read.
        let readable = [[good(2, NOT), good(4, NOT)], [good(5, A), blank()]];
        assert_eq!(told(readable), (vec![2, 4, 5], false, [Middle, Start]));
        let torn_start = [[torn(), good(4, NOT)], [good(5, A), blank()]];
        assert_eq!(told(torn_start), (vec![4, 5], false, [Middle, Start]));
    }

    #[test]
    fn a_record_that_was_only_tried_in_the_middle_tells_nothing() {
        let tried = [[unread(), good(4, NOT)], [good(5, NOT), blank()]];
        assert_eq!(told(tried), (vec![4, 5], true, [Perhaps, Start]));
        let tried = [[good(6, NOT), good(4, NOT)], [good(5, NOT), blank()]];
        assert_eq!(told(tried), (vec![6, 4, 5], false, [Start, Start]));
        // What came after it is torn, or cannot be read.
        let since = [[unread(), good(6, A)], [good(7, NOT), blank()]];
        assert_eq!(told(since), (vec![6, 7], true, [Perhaps, Start]));
        let torn_since = [[unread(), good(4, NOT)], [torn(), blank()]];
        assert_eq!(told(torn_since), (vec![4], true, [Perhaps, Start]));
        let old = [[unread(), good(4, NOT)], [good(3, NOT), unread()]];
        assert_eq!(told(old), (vec![4, 3], true, [Perhaps, Perhaps]));
    }

    #[test]
    fn a_middle_that_nobody_can_read_hides_something_unless_the_other_area_knows_better() {
        let unused = [[good(4, NOT), unread()], [good(5, NOT), blank()]];
        assert_eq!(told(unused), (vec![4, 5], false, [Start, Start]));
        let used = [[good(2, NOT), unread()], [good(5, A), blank()]];
        assert_eq!(told(used), (vec![2, 5], true, [Middle, Start]));
        let nobody_knows = [[good(2, NOT), unread()], [good(3, NOT), unread()]];
        assert_eq!(told(nobody_knows), (vec![2, 3], true, [Perhaps, Perhaps]));
        let torn_since = [[torn(), blank()], [good(3, NOT), unread()]];
        assert_eq!(told(torn_since), (vec![3], true, [Start, Perhaps]));
        let array = uuid::Uuid::nil();
        let future = || Err(FormatError::NewerFormat { array, format: 9 });
        let newer = Records::of([[good(4, NOT), future()], [good(5, NOT), blank()]]);
        let error = FormatError::NewerFormat { array, format: 9 };
        assert!(newer.found.contains(&Err(error)));
    }

    #[test]
    fn a_long_record_is_at_the_start_whatever_is_left_of_one_in_the_middle() {
        let rest = || Err(FormatError::Foreign);
        let long = [[good(6, NOT), rest()], [good(5, A), blank()]];
        assert_eq!(told(long), (vec![6, 5], false, [Start, Start]));
        let since = [[good(6, NOT), rest()], [good(7, NOT), unread()]];
        assert_eq!(told(since), (vec![6, 7], false, [Start, Start]));
    }
}
