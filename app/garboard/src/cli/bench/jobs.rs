//! fio's job files, which are written, and nothing is measured.

use std::path::Path;

use control::view::{ArrayView, ExportView, VolumeView};
use control::{Answer, EngineError, ErrorKind};

use super::Bench;
use crate::bench;
use crate::cli::export;
use crate::session::Session;

impl Bench {
    /// The job files of all points.
    pub(super) fn write_fio_jobs(
        &self,
        session: &mut Session<'_, '_>,
        folder: &Path,
    ) -> Answer<()> {
        let mut wishes = self.wishes(Vec::new());
        let wrong = |error: std::io::Error| {
            let object = format!("folder {}", folder.display());
            EngineError::new(ErrorKind::Invalid, object, error.to_string())
        };
        let mut notes = Vec::new();
        let mut stripe = 0;
        let raw = if self.drives.is_meant() {
            Some(self.drives.open(session, None)?.0)
        } else {
            match self.volume(session)? {
                Volume::Known {
                    stripe_bytes,
                    size_bytes,
                } => {
                    stripe = stripe_bytes;
                    let range = wishes.range.unwrap_or(size_bytes);
                    wishes.range = Some(range.min(size_bytes));
                }
                Volume::Unknown(why) => notes.push(format!(
                    "full stripes are taken for 1 MiB: {why} (`garboard array show` tells what \
                     they are)"
                )),
            }
            None
        };
        let jobs = bench::fio_files(&wishes, raw.as_ref(), stripe)?;
        std::fs::create_dir(folder).map_err(wrong)?;
        for (name, text) in &jobs.files {
            std::fs::write(folder.join(name), text).map_err(wrong)?;
        }
        let count = jobs.files.len();
        session.line(&format!("{count} job files are in {}", folder.display()))?;
        for left_out in jobs.left_out {
            session.line(&format!("left out: {left_out}"))?;
        }
        for note in notes {
            session.line(&format!("note: {note}"))?;
        }
        Ok(())
    }

    /// What the exports that are named have in common.
    fn volume(&self, session: &Session<'_, '_>) -> Answer<Volume> {
        let mut found: Option<(u64, u64)> = None;
        for key in &self.exports {
            let own = match of_export(session, key) {
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    return Ok(Volume::Unknown("no engine answers".to_owned()));
                }
                own => own?,
            };
            let (stripe, size) = found.unwrap_or(own);
            if stripe != own.0 {
                let why = "the exports are of arrays with different stripes";
                return Ok(Volume::Unknown(why.to_owned()));
            }
            found = Some((stripe, size.min(own.1)));
        }
        Ok(match found {
            Some((stripe_bytes, size_bytes)) => Volume::Known {
                stripe_bytes,
                size_bytes,
            },
            None => Volume::Unknown("no export is named".to_owned()),
        })
    }
}

/// A volume that jobs are for.
enum Volume {
    Known {
        stripe_bytes: u64,
        size_bytes: u64,
    },
    /// Why.
    Unknown(String),
}

/// Bytes of a stripe, and of the volume.
fn of_export(session: &Session<'_, '_>, key: &str) -> Answer<(u64, u64)> {
    let export: ExportView = session.get(&export::path(key))?;
    let volume: VolumeView = super::volume_of(session, &export)?;
    let array: ArrayView = session.get(&format!("/v1/arrays/{}", volume.array))?;
    Ok((array.stripe_bytes, volume.size_bytes))
}
