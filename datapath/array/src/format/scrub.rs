//! The bytes of a config record that tell of the scrub.

use units::StripeIndex;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::config::ArrayConfig;
use super::head::{Features, FormatError};
use crate::scrub::{ScrubRecord, ScrubState, ScrubTally};

/// The compat feature that these bytes mean something.
pub(super) const COMPAT_SCRUB: u64 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawScrub {
    pub(super) rate: U64,
    pub(super) every_seconds: U32,
    state: u8,
    reserved: [u8; 3],
    next: U64,
    finished_at: U64,
    mismatches: U64,
    unreadable: U64,
    repaired: U64,
    unrepaired: U64,
}

const _: () = assert!(size_of::<RawScrub>() == 64, "part of the on-disk format");

impl RawScrub {
    pub(super) fn new(config: &ArrayConfig) -> RawScrub {
        let ScrubRecord {
            state,
            next,
            finished_at,
            tally,
        } = config.scrub;
        RawScrub {
            rate: config.options.scrub_rate_bytes_per_second.into(),
            every_seconds: config.options.scrub_every_seconds.into(),
            state: match state {
                ScrubState::Idle => 0,
                ScrubState::Running => 1,
                ScrubState::Scheduled => 2,
                ScrubState::Paused => 3,
            },
            reserved: [0; 3],
            next: next.0.into(),
            finished_at: finished_at.into(),
            mismatches: tally.mismatches.into(),
            unreadable: tally.unreadable.into(),
            repaired: tally.repaired.into(),
            unrepaired: tally.unrepaired.into(),
        }
    }

    /// These bytes when the record says that they mean something, else those of an array that was
    /// never scrubbed and never will be by itself.
    pub(super) fn known(self, features: Features) -> RawScrub {
        if features.compat & COMPAT_SCRUB != 0 {
            self
        } else {
            RawScrub::new_zeroed()
        }
    }

    pub(super) fn record(&self) -> Result<ScrubRecord, FormatError> {
        Ok(ScrubRecord {
            state: match self.state {
                0 => ScrubState::Idle,
                1 => ScrubState::Running,
                2 => ScrubState::Scheduled,
                3 => ScrubState::Paused,
                _ => return Err(FormatError::Invalid("state of the scrub")),
            },
            next: StripeIndex(self.next.get()),
            finished_at: self.finished_at.get(),
            tally: ScrubTally {
                mismatches: self.mismatches.get(),
                unreadable: self.unreadable.get(),
                repaired: self.repaired.get(),
                unrepaired: self.unrepaired.get(),
            },
        })
    }
}
