//! What to read, decode and write for one range of one stripe: pure decisions, no bytes.
//!
//! A request's range in a stripe is cut into [`bands`]; each band is planned by itself, knowing the
//! [`StripeState`]. A plan names roles; `geometry` says which member holds a role, `shard` carries
//! the plan out. For mirrors (k = 1) every role holds the same bytes, so "parity" is a copy and
//! decoding is reading another copy.

mod bands;
mod read;
mod union;
mod write;

pub use bands::{Band, Bands, bands};
pub use read::{ReadPlan, plan_read, plan_repair};
pub(crate) use union::Union;
pub use write::{Method, WritePlan, plan_write};

use units::RoleSet;

use crate::planted::{self, Fault};

/// What is known about a stripe when it is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeState {
    /// Neither read nor written: the member is not there, or not rebuilt up to here.
    pub lost: RoleSet,
    /// Not read; covers `lost`. The rest are media errors, and are cured by writing.
    pub unreadable: RoleSet,
    /// Whether the parity is known to agree with the data. When not (never initialized, or an
    /// unclean stop), no plan computes new parity from old parity unless nothing else is left, and
    /// what it says of a chunk is believed only where the chunk's member is lost.
    pub parity_trusted: bool,
}

impl StripeState {
    /// Everything readable and consistent.
    pub const OPTIMAL: StripeState = StripeState {
        lost: RoleSet::EMPTY,
        unreadable: RoleSet::EMPTY,
        parity_trusted: true,
    };

    /// A stripe with lost members and media errors.
    #[inline]
    #[must_use]
    pub fn new(lost: RoleSet, media_errors: RoleSet, parity_trusted: bool) -> StripeState {
        StripeState {
            lost,
            unreadable: lost.union(media_errors),
            parity_trusted,
        }
    }

    /// The data roles that nobody can tell although enough can be read: their members are there and
    /// cannot read them, and the parity is not trusted. What a stop tore is a write to some other
    /// chunk; these may have been durable for years, and must not become what the parity happens to
    /// say.
    #[inline]
    #[must_use]
    pub fn untold(&self, k: usize) -> RoleSet {
        if self.parity_trusted || k == 1 || planted::is(Fault::DoubtfulDecodeBelieved) {
            return RoleSet::EMPTY;
        }
        RoleSet::range(0, k).both(self.unreadable.without(self.lost))
    }

    /// Those of all roles of a stripe that can be read.
    #[inline]
    fn readable(&self, all: RoleSet) -> RoleSet {
        let sound = self.unreadable.covers(self.lost) && all.covers(self.unreadable);
        assert!(sound, "what is lost is unreadable, and of the stripe");
        all.without(self.unreadable)
    }
}

/// More is lost than the redundancy can give back; nothing may be read or written for this plan.
///
/// Members that return may make it possible again, so a request may be held and planned anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond;
