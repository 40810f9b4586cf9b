//! Which spare takes which place: pure decisions over what is there.
//!
//! What does not live here: when a place is due, and the replacement itself (`service`).

use serde::{Deserialize, Serialize};
use units::Size;
use uuid::Uuid;

use crate::view::{ArrayView, DriveView};

/// Whose a spare is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpareOf {
    /// It waits for the members of one array, by uuid.
    Array(Uuid),
    /// It waits for those of all arrays of a pool, by name.
    Pool(String),
}

/// What is shown of a spare of an array that is free again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Freed {
    /// Its array.
    By(Box<ArrayView>),
    /// The drive, where nobody knows its array.
    Alone(Box<DriveView>),
}

/// A drive that waits to become a member, and could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Its name.
    pub drive: String,
    /// Its uuid in this engine.
    pub uuid: Uuid,
    /// All of it.
    pub size_bytes: u64,
    /// Its logical block.
    pub block_bytes: u64,
    /// Whom it waits for.
    pub of: SpareOf,
}

/// What a lost place asks of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The array.
    pub array: Uuid,
    /// The least size.
    pub member_bytes: u64,
    /// The largest logical block.
    pub block_bytes: u64,
    /// The pool that the array takes drives from, if any.
    pub pool: Option<String>,
}

impl Need {
    /// Whether a spare of these may be taken for the array.
    #[must_use]
    pub fn may_take(&self, of: &SpareOf) -> bool {
        match of {
            SpareOf::Array(array) => *array == self.array,
            SpareOf::Pool(pool) => Some(pool) == self.pool.as_ref(),
        }
    }

    /// Why a drive cannot fill the place; `None` when it can.
    #[must_use]
    pub fn unfit(&self, size_bytes: u64, block_bytes: u64) -> Option<String> {
        if size_bytes < self.member_bytes {
            let least = self.member_bytes;
            return Some(format!(
                "it has {size_bytes} bytes ({}) and a member needs {least} ({})",
                Size(size_bytes),
                Size(least)
            ));
        }
        if block_bytes > self.block_bytes {
            return Some(format!(
                "it has blocks of {block_bytes} bytes and the array has smaller ones"
            ));
        }
        None
    }
}

/// The best spare for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<'s> {
    /// This one.
    Take(&'s Spare),
    /// There are some, and none fits: names, and why not.
    NoneFits(String),
    /// There is none.
    None,
}

/// Chooses a spare: the array's own before those of its pool, then the smallest that is large
/// enough, so that larger places find one, too; among equals the first by name.
#[must_use]
pub fn choose<'s>(need: &Need, spares: &'s [Spare]) -> Choice<'s> {
    let mine = || spares.iter().filter(|spare| need.may_take(&spare.of));
    let fits = |spare: &&Spare| need.unfit(spare.size_bytes, spare.block_bytes).is_none();
    let rank = |spare: &&Spare| {
        let shared = matches!(spare.of, SpareOf::Pool(_));
        (shared, spare.size_bytes, spare.drive.clone())
    };
    if let Some(best) = mine().filter(fits).min_by_key(rank) {
        return Choice::Take(best);
    }
    let why = |spare: &Spare| {
        let unfit = need.unfit(spare.size_bytes, spare.block_bytes)?;
        Some(format!("spare {} does not fit: {unfit}", spare.drive))
    };
    let why: Vec<String> = mine().filter_map(why).collect();
    if why.is_empty() {
        Choice::None
    } else {
        Choice::NoneFits(why.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: Uuid = Uuid::from_u128(1);

    fn spare(drive: &str, size_bytes: u64, of: SpareOf) -> Spare {
        Spare {
            drive: drive.into(),
            uuid: Uuid::nil(),
            size_bytes,
            block_bytes: 512,
            of,
        }
    }

    fn need() -> Need {
        Need {
            array: ARRAY,
            member_bytes: 100,
            block_bytes: 512,
            pool: Some("p".into()),
        }
    }

    fn pool(drive: &str, size_bytes: u64) -> Spare {
        spare(drive, size_bytes, SpareOf::Pool("p".into()))
    }

    fn own(drive: &str, size_bytes: u64) -> Spare {
        spare(drive, size_bytes, SpareOf::Array(ARRAY))
    }

    fn taken(spares: &[Spare]) -> &str {
        match choose(&need(), spares) {
            Choice::Take(spare) => &spare.drive,
            other @ (Choice::NoneFits(_) | Choice::None) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_ones_own_first() {
        assert_eq!(taken(&[pool("a", 300), pool("b", 100), pool("c", 99)]), "b");
        assert_eq!(taken(&[pool("a", 100), own("b", 300), own("c", 200)]), "c");
        assert_eq!(taken(&[pool("a", 100), own("b", 99)]), "a");
        assert_eq!(taken(&[own("b", 100), own("a", 100)]), "a");
    }

    #[test]
    fn what_waits_for_others_is_not_taken() {
        let others = [
            spare("a", 100, SpareOf::Array(Uuid::from_u128(2))),
            spare("b", 100, SpareOf::Pool("q".into())),
        ];
        assert_eq!(choose(&need(), &others), Choice::None);
        let alone = Need {
            pool: None,
            ..need()
        };
        assert_eq!(choose(&alone, &[pool("a", 100)]), Choice::None);
        assert_eq!(choose(&need(), &[]), Choice::None);
    }

    #[test]
    fn it_is_said_why_none_fits() {
        let coarse = Spare {
            block_bytes: 4096,
            ..pool("b", 100)
        };
        let Choice::NoneFits(why) = choose(&need(), &[own("a", 99), coarse]) else {
            panic!("none fits");
        };
        assert!(
            why.contains("spare a does not fit: it has 99 bytes"),
            "{why}"
        );
        assert!(why.contains("spare b does not fit: it has blocks"), "{why}");
    }
}
