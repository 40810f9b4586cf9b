//! How long members keep what they were asked.

use block::Operation;

use super::super::{IoOwner, Shard};
use super::{Answers, Late};
use crate::map::MapState;
use crate::planted::{self, Fault};

impl Shard {
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
