//! Whether a hold is the last one over again.

use std::time::Duration;

use units::{Instant, MemberSet};

use super::Holding;
use crate::coordinator::Coordinator;
use crate::format::{MemberRecord, MemberState};
use crate::io::MemberFailure;

/// It begins so soon after that.
const RELAPSE: Duration = Duration::from_secs(10);

/// A hold that was given up, or left somebody out of whom no record says so yet: nothing has come
/// of that. Then the next one may be the same, and its time goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastHold {
    pub(super) since: Instant,
    ended: Instant,
    pub(super) given_up: bool,
    /// Who was waited for.
    pub(super) members: MemberSet,
}

impl LastHold {
    /// What is left of one that ends.
    pub(super) fn of(holding: &Holding, decider: &Coordinator, now: Instant) -> Option<LastHold> {
        let mut members = decider.config.members.iter().zip(&decider.hold.tired);
        let leaves =
            |(record, tired): (&MemberRecord, &bool)| *tired && record.state == MemberState::InSync;
        let is_open = holding.given_up || members.any(leaves);
        is_open.then_some(LastHold {
            since: holding.since,
            ended: now,
            given_up: holding.given_up,
            members: holding.met,
        })
    }

    /// Whether one of these that begins now is the same. Others are waited for as long as any.
    pub(super) fn goes_on(&self, held: &[MemberFailure], now: Instant) -> bool {
        let was_held = |failure: &MemberFailure| self.members.has(failure.member);
        let is_same = self.given_up || held.iter().all(was_held);
        is_same && now.since(self.ended) < RELAPSE
    }
}
