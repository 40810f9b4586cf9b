//! How long members keep what they were asked.

use std::time::Duration;

use block::Operation;

use super::super::{IoOwner, Shard};
use super::{Answers, KEPT, Late, Patience};
use crate::map::MapState;
use crate::planted::{self, Fault};

/// How long members take over what they were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// By member: the age of its oldest request, at the last look.
    pub oldest: Vec<Duration>,
    /// A member that can be done without and answers nothing at all for so long is excluded,
    pub silent_max: Duration,
    /// and one that keeps a read or a write for so long, whatever else it answers.
    pub kept_max: Duration,
}

impl Waits {
    /// Takes in what another shard has seen of the same array.
    pub fn join(&mut self, other: Waits) {
        let members = self.oldest.len().max(other.oldest.len());
        self.oldest.resize(members, Duration::ZERO);
        for (age, seen) in self.oldest.iter_mut().zip(other.oldest) {
            *age = seen.max(*age);
        }
        self.silent_max = self.silent_max.max(other.silent_max);
        self.kept_max = self.kept_max.max(other.kept_max);
    }
}

impl Shard {
    /// How long members take over what this shard has asked them.
    #[must_use]
    pub fn waits(&self) -> Waits {
        let Patience { look, late, .. } = self.late.patience;
        // What was measured before everything was answered says nothing.
        let is_known = self.ios.in_use() > 0 && self.late.has_looked;
        let answers = self.late.answers.iter();
        let age = |answers: &Answers| look * if is_known { answers.oldest } else { 0 };
        Waits {
            oldest: answers.map(age).collect(),
            silent_max: look * late,
            kept_max: look * late.saturating_mul(KEPT),
        }
    }

    /// How old each member's oldest request is.
    pub(super) fn measure(&mut self) {
        let Late { now, answers, .. } = &mut self.late;
        let (now, members) = (*now, &self.map.members[..]);
        let answers = &mut answers[..];
        for Answers { oldest, kept, .. } in &mut *answers {
            (*oldest, *kept) = (0, 0);
        }
        let (mut longest, mut any_out) = (0, false);
        for under_way in self.ios.busy() {
            let age = now.wrapping_sub(under_way.issued);
            longest = age.max(longest);
            let member = under_way.member.at();
            let (entry, answers) = (&members[member], &mut answers[member]);
            let current = entry.incarnation == under_way.incarnation;
            any_out |= !current || entry.state == MapState::Lost;
            if !current {
                continue;
            }
            // What was given up counts as long as the drive has answered nothing since: it is asked
            // little meanwhile that would show that it still hangs.
            let given_up = if let IoOwner::Abandoned { look, .. } | IoOwner::GivenUp { look, .. } =
                under_way.owner
            {
                Some(look)
            } else {
                None
            };
            let forgotten = given_up.is_some_and(|look| {
                let since = now.wrapping_sub(answers.heard);
                since < now.wrapping_sub(look) || planted::is(Fault::GivenUpNotCounted)
            });
            if forgotten {
                continue;
            }
            answers.oldest = age.max(answers.oldest);
            let moves = match under_way.operation {
                Some(Operation::Read | Operation::Write) => true,
                // Of those of guests thousands may wait in one drive.
                Some(Operation::WriteZeroes) => matches!(under_way.owner, IoOwner::Zeroing),
                Some(Operation::Flush | Operation::Discard) | None => false,
            };
            if moves {
                answers.kept = age.max(answers.kept);
            }
        }
        self.late.longest = longest;
        self.late.any_out = any_out;
    }
}
