//! `garboard array spare …`.

use control::Answer;
use control::body::SpareBody;
use control::spares::Freed;
use control::view::ArrayView;

use super::path;
use super::said::{SpareAdd, SpareRemove};
use crate::cli::pool::confirm_erasing;
use crate::session::Session;

impl SpareAdd {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        if self.force {
            confirm_erasing(session, std::slice::from_ref(&self.drive), self.yes)?;
        }
        let body = SpareBody {
            drive: self.drive,
            force: self.force,
        };
        let array: ArrayView = session.post(&format!("{}/spares", path(&self.name)), &body)?;
        let sentence = format!("drive {} is a spare of array {}", body.drive, array.name);
        session.done(&array, &sentence)
    }
}

impl SpareRemove {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let spare = format!("{}/spares/{}", path(&self.name), self.drive);
        let freed: Freed = session.delete(&spare)?;
        let sentence = format!("drive {} is free", self.drive);
        match freed {
            Freed::By(array) => session.done(&*array, &sentence),
            Freed::Alone(drive) => session.done(&*drive, &sentence),
        }
    }
}
