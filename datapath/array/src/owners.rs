//! Which reactor owns which stripes: a table of buckets, and how it is changed a few at a time.
//!
//! What does not live here: how a bucket goes from one reactor to another while requests go on
//! (`shard/coordinate/handover.rs`), and who should own what (the control path).

use std::fmt;
use std::sync::Arc;

use units::ReactorIndex;
use units::limits::BUCKETS;

/// The owner of each bucket of stripes ([`crate::Geometry::bucket`]).
#[derive(Clone, PartialEq, Eq)]
pub struct Owners {
    /// Some bucket has none.
    moving: bool,
    of: [Option<ReactorIndex>; BUCKETS],
}

/// Buckets that go from one reactor to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handover {
    /// Who has them.
    pub(crate) from: ReactorIndex,
    /// Nobody, for as long as it takes.
    pub(crate) between: Arc<Owners>,
    /// Who is to have them.
    pub(crate) after: Arc<Owners>,
}

impl Owners {
    /// Buckets with the owners that `owner` tells.
    #[must_use]
    pub fn new(mut owner: impl FnMut(usize) -> ReactorIndex) -> Arc<Owners> {
        Arc::new(Owners {
            moving: false,
            of: std::array::from_fn(|bucket| Some(owner(bucket))),
        })
    }

    /// Who owns a bucket; nobody while it goes from one to another.
    #[inline]
    #[must_use]
    pub fn of(&self, bucket: usize) -> Option<ReactorIndex> {
        self.of[bucket]
    }

    /// Whether some bucket goes from one to another.
    #[inline]
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moving
    }

    /// How many buckets a reactor owns.
    #[must_use]
    pub fn share(&self, reactor: ReactorIndex) -> usize {
        let owns = |owner: &&Option<ReactorIndex>| **owner == Some(reactor);
        self.of.iter().filter(owns).count()
    }

    /// The first step from here to `target`: up to `most` buckets that one reactor has and others
    /// are to have. `None` when this is it.
    pub(crate) fn toward(&self, target: &Owners, most: usize) -> Option<Handover> {
        let differs = |bucket: &usize| self.of[*bucket] != target.of[*bucket];
        let first = (0..BUCKETS).find(differs)?;
        let from = self.of[first].expect("one handover after the other");
        let (mut between, mut after) = (self.clone(), self.clone());
        let moves = |bucket: &usize| differs(bucket) && self.of[*bucket] == Some(from);
        for bucket in (first..BUCKETS).filter(moves).take(most) {
            between.of[bucket] = None;
            after.of[bucket] = target.of[bucket];
        }
        between.moving = true;
        Some(Handover {
            from,
            between: Arc::new(between),
            after: Arc::new(after),
        })
    }

    /// Everybody who owns something, in order.
    #[must_use]
    pub fn reactors(&self) -> Vec<ReactorIndex> {
        let mut all: Vec<ReactorIndex> = self.of.iter().copied().flatten().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = self.reactors().into_iter();
        f.debug_map()
            .entries(shares.map(|reactor| (reactor, self.share(reactor))))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(reactors: usize) -> Arc<Owners> {
        Owners::new(|bucket| ReactorIndex::from_at(bucket % reactors))
    }

    #[test]
    fn a_table_becomes_another_in_steps_that_each_take_from_one() {
        let (mut now, target) = (owners(4), owners(3));
        let mut steps = 0;
        while let Some(step) = now.toward(&target, 100) {
            assert!(step.between.is_moving() && !step.after.is_moving());
            let mut moved = 0;
            for bucket in 0..BUCKETS {
                if step.between.of(bucket).is_some() {
                    assert_eq!(step.between.of(bucket), now.of(bucket));
                    assert_eq!(step.after.of(bucket), now.of(bucket));
                    continue;
                }
                assert_eq!(now.of(bucket), Some(step.from));
                assert_eq!(step.after.of(bucket), target.of(bucket));
                moved += 1;
            }
            assert!((1..=100).contains(&moved));
            now = step.after;
            steps += 1;
        }
        assert_eq!(now, target);
        // Three of four buckets change, a hundred at most in each step.
        assert!((31..=36).contains(&steps), "{steps}");
        assert_eq!(now.toward(&target, 1), None);
        assert_eq!(now.share(ReactorIndex(3)), 0);
        assert_eq!(now.share(ReactorIndex(0)), 1366);
    }
}
