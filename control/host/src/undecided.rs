//! Changes of arrays that ended late: whoever asked was told so, and only the array knows whether
//! they will be made. Until it has said so, nobody builds on what they are about; then what
//! depends on them is done here.

use array::{Command, Refusal};
use control::{Answer, ErrorKind};
use engine::Decided;
use units::ArrayIndex;
use uuid::Uuid;

use crate::Host;
use crate::error::{WAY_OUT_OF_HANGS, error};
use crate::state::State;
use crate::waiting::way_back;

/// What of an array's record a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// Who is a member, and on which drive.
    Members,
    /// The table of volumes.
    Volumes,
    /// The options.
    Options,
    /// Nothing that another change is made from: what is asked later is carried out later.
    Nothing,
}

impl About {
    fn of(command: &Command) -> About {
        match command {
            Command::Fail { .. }
            | Command::Leave { .. }
            | Command::Remove { .. }
            | Command::Replace { .. }
            | Command::Return { .. } => About::Members,
            Command::Volumes { .. } => About::Volumes,
            Command::Options(_) => About::Options,
            Command::Start
            | Command::Stop
            | Command::Copying { .. }
            | Command::Dirty { .. }
            | Command::Settle
            | Command::Passes { .. }
            | Command::Distribute(_)
            | Command::Resync
            | Command::Scrub(_) => About::Nothing,
        }
    }
}

impl Host {
    /// A running array of which it is known what became of all earlier changes of this kind.
    pub(crate) fn decided(&self, name: &str, about: About) -> Answer<(ArrayIndex, Uuid)> {
        self.catch_up();
        let (index, uuid) = self.running(name)?;
        let object = format!("array {name}");
        self.refuse_undecided(&self.state(), &object, (name, index), about)?;
        Ok((index, uuid))
    }

    /// Refuses to build on what may be changed at any moment.
    pub(crate) fn refuse_undecided(
        &self,
        state: &State,
        object: &str,
        (name, index): (&str, ArrayIndex),
        about: About,
    ) -> Answer<()> {
        if !self.is_undecided(index, about) {
            return Ok(());
        }
        let what = match about {
            About::Members => "its members",
            About::Volumes => "its volumes",
            About::Options => "its options",
            About::Nothing => "it",
        };
        if let Some(waits) = self.waits(state, (name, index)) {
            let text = format!(
                "array {name} has not answered an earlier change of {what}, and may still make it: \
                 {waits}"
            );
            return Err(error(ErrorKind::Busy, object, text)
                .next(format!("try again when they work; {}", way_back(name))));
        }
        let text = format!(
            "array {name} has not answered an earlier change of {what}, because drives hang, and \
             may still make it"
        );
        Err(error(ErrorKind::Busy, object, text)
            .next(format!("try again when they answer; {WAY_OUT_OF_HANGS}")))
    }

    /// Whether a change of this kind was late, and [`Host::catch_up`] does not know its outcome.
    pub(crate) fn is_undecided(&self, index: ArrayIndex, about: About) -> bool {
        let undecided = self.engine.undecided(index);
        undecided.iter().any(|command| About::of(command) == about)
    }

    /// Does what the call would have done that was late with a start, or with taking a drive out
    /// or in.
    fn settle(
        &self,
        (name, index): (&str, ArrayIndex),
        command: &Command,
        refusal: Option<Refusal>,
    ) {
        if let Command::Remove { member } = command
            && refusal.is_some()
        {
            let mut state = self.state();
            let array = state.arrays.get(name).map(|entry| entry.uuid);
            array.inspect(|array| state.put_back(*array, Some(*member)));
        }
        if matches!(command, Command::Replace { .. } | Command::Return { .. }) && refusal.is_none()
        {
            let array = self.state().arrays.get(name).map(|entry| entry.uuid);
            array.inspect(|array| self.fill(index, *array));
        }
        if matches!(command, Command::Start) {
            match refusal {
                None => self.finish_start(name),
                Some(refusal) => self.give_up_start(name, index, refusal),
            }
        }
    }

    /// Does what depends on changes that were late, once they are decided. Only for who may change
    /// arrays, and before they begin to.
    pub(crate) fn catch_up(&self) {
        for decided in self.engine.take_decided() {
            let Decided {
                array: index,
                command,
                result,
            } = decided;
            let name = {
                let state = self.state();
                let entry = state.arrays.values().find(|entry| entry.index == index);
                entry.map(|entry| entry.name.clone())
            };
            let Some(name) = name else {
                continue;
            };
            let refusal = result.as_ref().err().cloned();
            match result {
                Ok(()) => {
                    tracing::info!(event = "late_change_made", array = name, about = ?About::of(&command), "made");
                }
                Err(refusal) => {
                    tracing::warn!(event = "late_change_refused", array = name, about = ?About::of(&command),
                        %refusal, "not made");
                }
            }
            match About::of(&command) {
                // A drive that was to be a member is one, or is left out.
                About::Members => self.release_excluded(&name),
                About::Volumes => self.settle_volumes(&name),
                About::Options | About::Nothing => {}
            }
            self.settle((&name, index), &command, refusal);
        }
        self.settle_zeroed_late();
    }
}
