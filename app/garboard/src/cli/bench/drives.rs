//! The drives that are measured by themselves: found, opened, and never written when somebody
//! needs what is on them.

use std::path::PathBuf;
use std::sync::Arc;

use array::Level;
use clap::Args;
use control::request::DriveSpec;
use control::view::{ArrayView, DriveView};
use control::{Answer, EngineError, ErrorKind};
use drive::Drive;
use models::Model;
use units::Size;

use crate::bench::raw::{Kind, Loader, Raw};
use crate::cli::spec;
use crate::expect::Asked;
use crate::output;
use crate::session::Session;

/// Which drives, and how.
#[derive(Debug, Args)]
pub(super) struct Drives {
    /// A drive to be measured by itself, without the engine: file:PATH, a block device, paced:MODEL
    /// and so on, or the name of a drive of the engine; repeat it, all are loaded at once
    #[arg(long, value_name = "SPEC|NAME")]
    drive: Vec<String>,
    /// All drives of an array of the engine, to be read only
    #[arg(long, value_name = "ARRAY", value_parser = super::super::key)]
    members: Option<String>,
    /// Measure writes, too; only drives that nobody uses and that hold nothing known
    #[arg(long, conflicts_with_all = ["members", "exports", "target"])]
    write: bool,
    /// Measure the array of the drives, too: 0, 1, 10, 5, 6, 7, nm, 50, 60 or 70
    #[arg(long, requires = "write", value_parser = str::parse::<Level>)]
    level: Option<Level>,
    /// Members of a group of that array, for levels 10, 50, 60 and 70
    #[arg(long, value_name = "N", requires = "level")]
    group_size: Option<u16>,
    /// Parity chunks of a stripe of that array, for level nm
    #[arg(long, value_name = "M", requires = "level")]
    parity: Option<u16>,
    /// Bytes of a chunk of that array, 4KiB to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = super::super::size)]
    chunk: Size,
    /// Measure a new volume of that size on that array, too, within the same range: the layer that
    /// exports reach
    #[arg(long, value_name = "SIZE", requires = "level", value_parser = super::super::size)]
    volume: Option<Size>,
    #[command(flatten)]
    pub(super) fio: Fio,
}

/// What fio is to do.
#[derive(Debug, Args)]
pub(super) struct Fio {
    /// Let fio make the load of drives, or of the file in a directory
    #[arg(long, conflicts_with_all = ["exports", "target"])]
    fio: bool,
    /// Write fio's job files into a new folder, and measure nothing; of exports they are for a
    /// guest, with the volume as $DEVICE
    #[arg(long, value_name = "FOLDER")]
    pub(super) fio_jobs: Option<PathBuf>,
}

impl Drives {
    /// Whether drives are meant, not exports.
    pub(super) fn is_meant(&self) -> bool {
        !self.drive.is_empty() || self.members.is_some()
    }

    /// The first of the words about drives that mean nothing without one.
    pub(super) fn in_vain(&self) -> Option<&'static str> {
        // The others require one of these.
        let words = [("--write", self.write), ("--fio", self.fio.fio)];
        words
            .into_iter()
            .find_map(|(word, said)| said.then_some(word))
    }

    pub(super) fn writes(&self) -> bool {
        self.write
    }

    /// What is told of workloads that write, where there are to be none.
    pub(super) fn why_no_writes(&self) -> &'static str {
        match self.members {
            Some(_) => "members of an array are only read; measure one of its exports",
            None => "writing needs --write",
        }
    }

    /// Who makes the load, of drives and of files.
    pub(super) fn loader(&self) -> Loader {
        if self.fio.fio {
            Loader::Fio
        } else {
            Loader::Own
        }
    }

    /// The array that is to be measured, too.
    fn asked(&self, drives: usize) -> Option<Asked> {
        Some(Asked {
            level: self.level?,
            drives,
            spares: 0,
            group_size: self.group_size.map(usize::from),
            parity: self.parity.map(usize::from),
            chunk_bytes: self.chunk.0,
            lost: Some(0),
        })
    }

    /// Opens them. With what would be overwritten, a line each: those that keep what is written.
    pub(super) fn open(
        &self,
        session: &Session<'_, '_>,
        model: Option<Model>,
    ) -> Answer<(Raw, Vec<String>)> {
        let mut found: Vec<(String, DriveSpec)> = Vec::new();
        for text in &self.drive {
            found.push(named(session, text)?);
        }
        if let Some(array) = &self.members {
            let array: ArrayView = session.get(&format!("/v1/arrays/{array}"))?;
            for name in array
                .members
                .iter()
                .filter_map(|member| member.drive.as_ref())
            {
                found.push(named(session, name)?);
            }
        }
        let model = model.map_or_else(|| paced(&found), |model| Some((model, 1)));
        let mut raw = Raw {
            drives: Vec::new(),
            kinds: Vec::new(),
            model,
            by: self.loader(),
            array: self.asked(found.len()),
            volume: self.volume,
            file: None,
        };
        let mut touched = Vec::new();
        for (number, (mut name, spec)) in found.into_iter().enumerate() {
            let there = raw.drives.iter().any(|(other, _)| *other == name);
            match (there, &spec) {
                (false, _) => {}
                (true, DriveSpec::File { .. } | DriveSpec::Block { .. }) => {
                    return Err(invalid(&name, "it is named twice"));
                }
                // Each is another one.
                (true, _) => name = format!("{name} #{}", number + 1),
            }
            raw.kinds.push(Kind::of(&spec));
            let spec = host::drive_spec(&name, &spec)?.reopened();
            let drive = if self.write {
                open_to_write(&name, &spec)?
            } else {
                let opened = Drive::open_to_look(&spec);
                opened.map_err(|error| unopened(ErrorKind::Invalid, &name, &error))?
            };
            match spec {
                drive::DriveSpec::File { .. } | drive::DriveSpec::BlockDevice { .. } => {
                    let size = output::size(drive.info().size_bytes);
                    touched.push(format!("{name}, {size}"));
                }
                drive::DriveSpec::Memory { .. }
                | drive::DriveSpec::Paced { .. }
                | drive::DriveSpec::Null { .. } => {}
            }
            raw.drives.push((name, drive));
        }
        Ok((raw, touched))
    }
}

/// What is wrong with a drive that cannot be opened, whose text begins with its place.
fn unopened(kind: ErrorKind, name: &str, error: &drive::OpenError) -> EngineError {
    let text = error.to_string();
    let text = text.strip_prefix("drive ").unwrap_or(&text);
    let own = format!("{name}: ");
    let text = text.strip_prefix(&own).unwrap_or(text);
    EngineError::new(kind, format!("drive {name}"), text)
        .next("`garboard bench --help` says what --drive takes")
}

fn invalid(name: &str, message: &str) -> EngineError {
    EngineError::new(ErrorKind::Invalid, format!("drive {name}"), message)
}

/// A drive by its spec, or by its name in the engine.
fn named(session: &Session<'_, '_>, text: &str) -> Answer<(String, DriveSpec)> {
    if text.contains([':', '/']) {
        let spec = spec(text).map_err(|wrong| invalid(text, &wrong))?;
        if matches!(spec, DriveSpec::File { create: true, .. }) {
            return Err(invalid(text, "only drives that are there are measured")
                .next("truncate -s SIZE PATH makes a file; leave create away"));
        }
        return Ok((text.to_owned(), spec));
    }
    let drive: DriveView = session.get(&format!("/v1/drives/{text}"))?;
    match drive.spec {
        DriveSpec::File { .. } | DriveSpec::Block { .. } => Ok((drive.name, drive.spec)),
        DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => {
            Err(invalid(
                text,
                "it is memory of the engine, which only the engine reaches",
            )
            .next("measure one of its own kind: --drive paced:MODEL,size=1GiB"))
        }
    }
}

/// Opens a drive to overwrite it: nobody may have it, and nothing known may be on it.
fn open_to_write(name: &str, spec: &drive::DriveSpec) -> Answer<Arc<Drive>> {
    let drive = Drive::open(spec).map_err(|error| {
        unopened(ErrorKind::Busy, name, &error)
            .next("only drives that nobody uses are written; without --write it is read only")
    })?;
    let found = drive.signature();
    let found = found.map_err(|error| invalid(name, &error.to_string()))?;
    match found {
        None => Ok(drive),
        Some(signature) => Err(EngineError::new(
            ErrorKind::Unsafe,
            format!("drive {name}"),
            format!("it is not empty: {signature}"),
        )
        .next("without --write it is read only; `garboard drive wipe` makes a drive empty")),
    }
}

/// The model of drives that are all paced alike.
fn paced(found: &[(String, DriveSpec)]) -> Option<(Model, u32)> {
    let mut common: Option<(&str, u32)> = None;
    for (_, spec) in found {
        let DriveSpec::Paced { model, slower, .. } = spec else {
            return None;
        };
        let own = (model.as_str(), (*slower).max(1));
        if common.is_some_and(|common| common != own) {
            return None;
        }
        common = Some(own);
    }
    let (model, slower) = common?;
    Some((Model::find(model).ok()?, slower))
}
