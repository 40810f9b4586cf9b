//! The engine beside the measuring: what it counts, and the states its array is brought into.

use std::time::Duration;

use control::view::{ArrayState, ArrayView, DriveView, MemberState, StatusView};
use control::{Answer, EngineError, ErrorKind};
use models::Model;
use units::{Clock, MonotonicClock};

use crate::bench::{Behind, Counted, Onlooker, Served, State};
use crate::interrupt::Interrupt;
use crate::session::Session;

/// The member that is failed and filled again.
const MEMBER: usize = 0;
/// How long a state may take to be reached.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// Tells the person at the console how far it is, and asks the engine what it spent.
pub(super) struct Watch<'a, 'b, 'c> {
    pub(super) session: &'a mut Session<'b, 'c>,
    /// Names of the arrays that are measured; empty when no engine is known.
    pub(super) arrays: Vec<String>,
    pub(super) exports: Vec<Served>,
    pub(super) model: Option<Model>,
    pub(super) replacement: Option<String>,
    /// The drive that the failed member had.
    pub(super) failed: Option<String>,
    pub(super) interrupt: Interrupt,
}

impl<'a, 'b, 'c> Watch<'a, 'b, 'c> {
    /// Asks no engine.
    pub(super) fn of_nothing(session: &'a mut Session<'b, 'c>) -> Answer<Watch<'a, 'b, 'c>> {
        Ok(Watch {
            session,
            arrays: Vec::new(),
            exports: Vec::new(),
            model: None,
            replacement: None,
            failed: None,
            interrupt: Interrupt::listen()?,
        })
    }
}

impl Onlooker for Watch<'_, '_, '_> {
    fn goes_on(&mut self) -> Answer<()> {
        self.interrupt.check()
    }

    fn say(&mut self, text: &str) {
        self.session.remark(text);
    }

    fn counted(&mut self) -> Option<Counted> {
        if self.arrays.is_empty() {
            return None;
        }
        // A figure less is no reason to stop.
        let status: StatusView = self.session.get("/v1/status").ok()?;
        let mut drives: Vec<DriveView> = self.session.get("/v1/drives").ok()?;
        let metrics = self.session.client.text("/metrics").ok()?;
        drives.retain(|drive| {
            let array = drive.array.as_ref();
            array.is_some_and(|array| self.arrays.contains(array))
        });
        Some(Counted::new(&status, &metrics, &self.arrays, &drives))
    }

    fn bring(&mut self, state: State) -> Answer<Behind> {
        let array = self.array()?;
        match state {
            State::AsFound => {}
            State::Degraded => self.fail(&array)?,
            State::Rebuilding => self.fill(&array)?,
        }
        Ok(Behind {
            arrays: vec![self.array()?],
            exports: self.exports.clone(),
            drives: self.session.get("/v1/drives")?,
            model: self.model.clone(),
        })
    }

    fn is_in(&mut self, state: State) -> bool {
        let wanted = match state {
            State::AsFound => return true,
            State::Degraded => MemberState::Failed,
            State::Rebuilding => MemberState::Rebuilding,
        };
        let Ok(array) = self.array() else {
            return false;
        };
        let member = &array.members[MEMBER].state;
        *member == wanted || state == State::Degraded && *member == MemberState::Missing
    }
}

impl Watch<'_, '_, '_> {
    fn array(&self) -> Answer<ArrayView> {
        match self.arrays.as_slice() {
            [array] => self.session.get(&format!("/v1/arrays/{array}")),
            _ => Err(EngineError::new(
                ErrorKind::Invalid,
                "bench",
                "--states needs exports of one array of the engine",
            )),
        }
    }

    fn fail(&mut self, array: &ArrayView) -> Answer<()> {
        if array.state != ArrayState::Optimal || array.parity == 0 {
            let object = format!("array {}", array.name);
            let message = "only an optimal array with redundancy is made degraded to be measured";
            return Err(EngineError::new(ErrorKind::Unsafe, object, message));
        }
        self.failed.clone_from(&array.members[MEMBER].drive);
        let path = format!("/v1/arrays/{}/members/{MEMBER}/fail", array.name);
        let _: serde_json::Value = self.session.post(&path, &serde_json::json!({}))?;
        self.wait(State::Degraded)
    }

    fn fill(&mut self, array: &ArrayView) -> Answer<()> {
        if array.state == ArrayState::Optimal {
            self.fail(array)?;
        }
        let Some(drive) = self.replacement.clone().or(self.failed.clone()) else {
            return Err(EngineError::new(
                ErrorKind::Invalid,
                format!("array {}", array.name),
                "member 0 has no drive of its own any more",
            )
            .next("say with --replacement which drive is to be filled"));
        };
        let path = format!("/v1/arrays/{}/members/{MEMBER}/replace", array.name);
        let body = serde_json::json!({
            "drive": drive,
            // Its own drive holds what this array wrote.
            "force": self.replacement.is_none(),
        });
        let _: serde_json::Value = self.session.post(&path, &body)?;
        self.wait(State::Rebuilding)
    }

    /// Whether a state was reached and left already: small members are filled in no time.
    fn is_over(&self, state: State) -> bool {
        let array = self.array().ok();
        let online = array.is_some_and(|array| array.members[MEMBER].state == MemberState::Online);
        state == State::Rebuilding && online
    }

    fn wait(&mut self, state: State) -> Answer<()> {
        let begun = MonotonicClock.now();
        while !self.is_in(state) && !self.is_over(state) {
            if MonotonicClock.now().since(begun) > PATIENCE {
                let message = format!("it is not {} after {PATIENCE:?}", state.word());
                let object = format!("array {}", self.arrays.join(", "));
                return Err(EngineError::new(ErrorKind::Internal, object, message));
            }
            self.session.client.pause(LOOK);
        }
        Ok(())
    }
}
