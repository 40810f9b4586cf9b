//! Arrays that this engine does not know: looked for, and taken over.

use std::collections::BTreeSet;

use super::restore::Start;
use super::{Control, invalid};
use crate::body::ImportBody;
use crate::name;
use crate::request::{ArrayImport, DriveSpec};
use crate::view::{ArrayState, ArrayView, FoundArray, GOES_BY_ITS_UUID};
use crate::wanted::Change;
use crate::{Answer, EngineError, ErrorKind};

impl Control {
    /// Looks for arrays on drives that serve none.
    ///
    /// # Errors
    /// As [`crate::Engine::find_arrays`].
    pub fn find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>> {
        let _changing = self.change()?;
        self.engine.find_arrays(specs)
    }

    /// Takes over a found array.
    ///
    /// # Errors
    /// As [`crate::Engine::import_array`].
    pub fn import_array(&self, body: ImportBody) -> Answer<ArrayView> {
        let _changing = self.change()?;
        name::check_key(&body.array).map_err(|message| invalid("array", message))?;
        if let Ok(known) = name::find(self.arrays(), &body.array) {
            return Err(self.known_already(&known, &body));
        }
        let import = ArrayImport {
            array: body.array,
            specs: body.specs,
            force: body.force,
            taken: self.wanted.state().drives.into_keys().collect(),
        };
        let before = self.engine.arrays();
        let imported = self.engine.import_array(&import);
        // One that is only late has its drives all the same.
        if let Err(error) = self.record_drives() {
            if let Ok(array) = &imported {
                self.take_back_import(array, &import.taken);
            }
            return Err(error);
        }
        let is_new = |array: &ArrayView| {
            let known = before.iter().any(|known| known.uuid == array.uuid);
            !known && array.state != ArrayState::Stopped
        };
        let late = || self.engine.arrays().into_iter().find(is_new);
        if imported.is_err()
            && let Some(array) = late()
        {
            self.wanted.apply(&[Change::NotStopped(array.uuid)])?;
            self.bring_back(Start::Nothing);
        }
        let array = imported?;
        // It was stopped here, perhaps, before this engine forgot it.
        self.wanted.apply(&[Change::NotStopped(array.uuid)])?;
        tracing::info!(event = "array_imported", object = %format_args!("array {}", array.name));
        self.bring_back(Start::Nothing);
        let mut now = self.array(&array.name)?;
        // The others are told as they are now.
        let of_its_name = |said: &String| said.starts_with(GOES_BY_ITS_UUID);
        let told = array.warnings.into_iter().filter(of_its_name);
        now.warnings.extend(told);
        Ok(now)
    }

    /// Why an array is not imported whose name or uuid one has that is here: it is that one, or
    /// another of the same name.
    fn known_already(&self, known: &ArrayView, body: &ImportBody) -> EngineError {
        let object = name::object::<ArrayView>(&body.array);
        // A uuid is that of one array only: nothing is looked at for it.
        let others = if known.name == body.array {
            self.engine.find_arrays(&body.specs).unwrap_or_default()
        } else {
            Vec::new()
        };
        let mut others = others.iter().filter(|found| found.name == body.array);
        if let Some(other) = others.next() {
            let text = format!(
                "this engine has another array of this name, with the uuid {}; what was found has \
                 the uuid {}",
                known.uuid, other.uuid
            );
            return EngineError::new(ErrorKind::Exists, object, text).next(format!(
                "`garboard array import {}` takes it over, and it goes by its uuid here",
                other.uuid
            ));
        }
        let next = match known.state {
            ArrayState::Stopped => format!("`garboard array start {}` starts it", known.name),
            ArrayState::Optimal
            | ArrayState::Degraded
            | ArrayState::Holding
            | ArrayState::Failed => format!(
                "it runs: `garboard array show {}` tells its state",
                known.name
            ),
        };
        let text = format!("this engine knows it already, with the uuid {}", known.uuid);
        EngineError::new(ErrorKind::Exists, object, text).next(next)
    }

    /// An imported array that could not be recorded is let go again, with the drives that are not
    /// among those of before.
    fn take_back_import(&self, array: &ArrayView, before: &BTreeSet<String>) {
        let stopped = self.engine.stop_array(&array.name);
        self.undo("stop_array", stopped.map(|_| ()));
        let drives = array
            .members
            .iter()
            .filter_map(|place| place.drive.as_ref());
        for drive in drives.filter(|drive| !before.contains(*drive)) {
            self.undo("remove_drive", self.engine.remove_drive(drive, true));
        }
    }
}
