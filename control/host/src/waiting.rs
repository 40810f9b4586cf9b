//! Commands to arrays that wait for members: what could only be recorded when these work again is
//! refused, with their names, and does not wait to be done by surprise.

use std::time::Duration;

use array::{HoldStatus, MapState, Waits};
use block::Status;
use control::view::{ArrayView, HeldMember};
use control::{Answer, EngineError, ErrorKind};
use engine::ChangeError;
use rustix::process::{Resource, getrlimit};
use units::{ArrayIndex, Clock, MemberIndex, MonotonicClock, StripeIndex};

use crate::Host;
use crate::drives::survives_without;
use crate::error::{error, of_change};
use crate::state::{ArrayEntry, State};
use crate::views::held_because;

/// What takes members away for a moment only, commands do not notice.
const BLINK: Duration = Duration::from_secs(2);
/// Between two looks whether they are back.
const PAUSE: Duration = Duration::from_millis(20);
/// People are told of a member that keeps a request for so long. Less a flush may take at times.
const HANGS_AFTER: Duration = Duration::from_secs(3);

impl Host {
    /// Refuses a change of an array's record while a member is waited for that the record cannot be
    /// written to, unless that is the one that the change takes `out`.
    pub(crate) fn refuse_waiting(
        &self,
        object: &str,
        (name, index): (&str, ArrayIndex),
        out: Option<MemberIndex>,
    ) -> Answer<()> {
        let blocks =
            |held: &(MemberIndex, Status)| Some(held.0) != out && self.takes_no_record(name, held);
        let why = "cannot record a change without them";
        self.refuse_while(object, (name, index), blocks, why)
    }

    /// Refuses to take a drive away while its array waits for others, whatever these lack.
    pub(crate) fn refuse_removal(
        &self,
        object: &str,
        array: (&str, ArrayIndex),
        out: MemberIndex,
    ) -> Answer<()> {
        let blocks = |held: &(MemberIndex, Status)| held.0 != out;
        let why = "does not let another member go before they are back";
        self.refuse_while(object, array, blocks, why)
    }

    fn refuse_while(
        &self,
        object: &str,
        (name, index): (&str, ArrayIndex),
        blocks: impl Fn(&(MemberIndex, Status)) -> bool,
        why: &str,
    ) -> Answer<()> {
        while let Some(hold) = self.engine.hold(index) {
            if !hold.members.iter().any(&blocks) {
                return Ok(());
            }
            let waited = MonotonicClock.now().since(hold.since);
            if hold.given_up || waited >= BLINK {
                let text = format!("{}, and {why}", waits_for(&self.state(), name, &hold));
                let refused = error(ErrorKind::Degraded, object, text);
                return Err(refused.next(self.way_out((name, index), &hold)));
            }
            std::thread::park_timeout(PAUSE);
        }
        Ok(())
    }

    /// Whether no record can be written to a member that is waited for. One that only lacks room,
    /// or a block, may take it.
    fn takes_no_record(&self, name: &str, &(member, status): &(MemberIndex, Status)) -> bool {
        let state = self.state();
        let Some(entry) = state.arrays.get(name) else {
            return false;
        };
        let drive = state.drive_of(entry.uuid, member);
        let is_limited = drive.is_some_and(|drive| drive.drive.is_file_limited());
        match status {
            Status::Gone => true,
            Status::NoSpace if is_limited => {
                let records = entry.superblock.layout.config.iter();
                let end = records.map(|area| area.offset + area.length).max();
                let limit = getrlimit(Resource::Fsize).current;
                limit.is_some_and(|limit| end.is_some_and(|end| limit < end))
            }
            Status::NoSpace
            | Status::Media
            | Status::ReadOnly
            | Status::Unsupported
            | Status::Ok
            | Status::OutOfRange
            | Status::Invalid => false,
        }
    }

    /// Why a change was not made: what is late in an array that waits for members, waits for them.
    pub(crate) fn of_change(
        &self,
        object: String,
        (name, index): (&str, ArrayIndex),
        change: &ChangeError,
    ) -> EngineError {
        match (change, self.engine.hold(index)) {
            (ChangeError::Late, Some(hold)) => {
                let text = format!(
                    "{}; it is done when they work again",
                    waits_for(&self.state(), name, &hold)
                );
                error(ErrorKind::Busy, object, text).next(self.way_out((name, index), &hold))
            }
            (ChangeError::Late, None) | (ChangeError::Refused(_), _) => of_change(object, change),
        }
    }

    /// Whom an array waits for, if it does.
    pub(crate) fn waits(&self, state: &State, (name, index): (&str, ArrayIndex)) -> Option<String> {
        let hold = self.engine.hold(index)?;
        Some(waits_for(state, name, &hold))
    }

    /// Which members of arrays have not answered for long, in sentences.
    pub(crate) fn hanging_warnings(&self) -> Vec<String> {
        let state = self.state();
        let of_array = |entry: &ArrayEntry| {
            let running = self.state_of(entry);
            let said = running.map_or_else(Vec::new, |running| hanging(&state, entry, &running));
            let name = entry.name.clone();
            said.into_iter()
                .map(move |text| format!("array {name}: {text}"))
        };
        state.arrays.values().flat_map(of_array).collect()
    }

    /// What arrays wait for, in sentences.
    pub(crate) fn hold_warnings(&self) -> Vec<String> {
        let arrays = self.do_arrays().into_iter();
        let sentence = |array: ArrayView| {
            let hold = array.hold?;
            let member = |held: &HeldMember| {
                let drive = held.drive.as_deref().unwrap_or("none");
                format!("member {} (drive {drive}): {}", held.member, held.cause)
            };
            let members: Vec<String> = hold.members.iter().map(member).collect();
            let what = match hold.left_s {
                Some(left) => format!("holds requests, for {left} s more"),
                None => "fails requests".to_owned(),
            };
            Some(format!(
                "array {} {what}, and waits for {}",
                array.name,
                members.join(", ")
            ))
        };
        arrays.filter_map(sentence).collect()
    }

    fn way_out(&self, (name, index): (&str, ArrayIndex), hold: &HoldStatus) -> String {
        let back = way_back(name);
        let state = self.engine.array_state(index);
        match (hold.members.as_slice(), state) {
            ([(member, _)], Some(state)) if survives_without(&state, *member) => {
                let member = member.0;
                format!("{back}; or go on without: `garboard array fail {name} --member {member}`")
            }
            _ => back,
        }
    }
}

/// Members that have kept a request for long and count all the same, and what becomes of that.
pub(crate) fn hanging(
    state: &State,
    entry: &ArrayEntry,
    running: &engine::ArrayState,
) -> Vec<String> {
    let Waits {
        oldest,
        silent_max,
        kept_max,
    } = &running.waits;
    // As members that are late are judged: mirrors as well.
    let is_torn = running.map.trusted_until < StripeIndex(running.map.geometry.stripes());
    let sentence = |(position, age): (usize, &Duration)| {
        let member = MemberIndex::from_at(position);
        let is_out = running.map.members[position].state == MapState::Lost;
        let is_held = running.map.held[position];
        if *age < HANGS_AFTER || is_out || is_held {
            return None;
        }
        let drive = state.drive_of(entry.uuid, member);
        let drive = drive.map_or("none", |drive| drive.name.as_str());
        let outlook = if !survives_without(running, member) {
            "the array cannot do without it, and waits until it answers or the host gives the \
             requests up"
                .to_owned()
        } else if is_torn {
            "as long as a resync is due it is not left out, and what only it holds waits".to_owned()
        } else {
            format!(
                "reads go around it, writes wait; if the others answer, it is left out when it \
                 answers nothing at all for {} s, or keeps a read or a write for {} s",
                silent_max.as_secs(),
                kept_max.as_secs()
            )
        };
        Some(format!(
            "{member}, drive {drive}, has not answered a request for {} s: {outlook}",
            age.as_secs()
        ))
    };
    oldest.iter().enumerate().filter_map(sentence).collect()
}

/// Whom an array waits for, and what is the matter with the first of them.
fn waits_for(state: &State, name: &str, hold: &HoldStatus) -> String {
    let array = state.arrays.get(name).map(|entry| entry.uuid);
    let drive = |member| array.and_then(|array| state.drive_of(array, member));
    let member = |(number, &(member, status)): (usize, &(MemberIndex, _))| {
        let drive = drive(member);
        let name = drive.map_or("none", |drive| &drive.name);
        let cause = (number == 0).then(|| held_because(drive, status));
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        format!("{member} (drive {name}{cause})")
    };
    let members: Vec<String> = hold.members.iter().enumerate().map(member).collect();
    let how = if hold.given_up {
        "has given up waiting for"
    } else {
        "waits for"
    };
    format!("array {name} {how} {}", members.join(", "))
}

/// What ends every wait.
pub(crate) fn way_back(name: &str) -> String {
    format!("bring them back: `garboard array show {name}` says what is the matter with each")
}
