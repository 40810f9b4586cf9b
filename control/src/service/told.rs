//! What starts have told of arrays: it outlives the engine, until somebody says that he knows.

use super::Control;
use crate::view::ArrayView;
use crate::wanted::{Change, Told};
use crate::{Answer, EngineError, ErrorKind, crashes, name};
use units::dates::date;

/// The most that is kept of an array: the latest.
const TOLD_MAX: usize = 16;

impl Control {
    /// Records what is new of what starts have told.
    pub(super) fn record_told(&self) -> Answer<()> {
        let arrays = self.engine.arrays();
        if arrays.iter().all(|array| array.start_warnings.is_empty()) {
            return Ok(());
        }
        let _recording = self.remember();
        let known = self.wanted.state().told;
        let mut changes = Vec::new();
        for array in arrays {
            let mut told = known.get(&array.uuid).cloned().unwrap_or_default();
            let is_new = |text: &String| told.iter().all(|one| one.text != *text);
            let mut new = array.start_warnings;
            new.retain(is_new);
            if new.is_empty() {
                continue;
            }
            let at_s = crashes::now_s();
            told.extend(new.into_iter().map(|text| Told { at_s, text }));
            let too_many = told.len().saturating_sub(TOLD_MAX);
            told.drain(..too_many);
            changes.push(Change::Told(array.uuid, told));
        }
        self.wanted.apply(&changes)
    }

    /// Shows what was told by this start and by those before.
    pub(super) fn show_told(&self, arrays: &mut [ArrayView]) {
        let known = self.wanted.state().told;
        for array in arrays {
            let Some(told) = known.get(&array.uuid) else {
                continue;
            };
            for one in told {
                array.warnings.retain(|warning| *warning != one.text);
                array.start_warnings.retain(|warning| *warning != one.text);
                let text = format!(
                    "{}: {} (`garboard array acknowledge {}` says that somebody knows)",
                    date(one.at_s),
                    one.text,
                    array.name
                );
                array.warnings.push(text.clone());
                array.start_warnings.push(text);
            }
        }
    }

    /// Forgets what starts of an array have told: somebody knows. Gives it as it was told.
    ///
    /// # Errors
    /// `NotFound` when there is no such array, or it has nothing to tell.
    pub fn acknowledge_array(&self, key: &str) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        if array.start_warnings.is_empty() {
            let object = name::object::<ArrayView>(&array.name);
            let text = "no start of it has told anything that is not acknowledged";
            let next = format!(
                "`garboard array show {}` tells what else there is",
                array.name
            );
            return Err(EngineError::new(ErrorKind::NotFound, object, text).next(next));
        }
        {
            let _recording = self.remember();
            self.wanted.apply(&[Change::NoTold(array.uuid)])?;
            self.engine.forget_start_warnings(array.uuid);
        }
        tracing::info!(event = "array_acknowledged", object = %format_args!("array {}", array.name),
            told = ?array.start_warnings);
        Ok(array)
    }
}
