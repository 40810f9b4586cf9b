//! The layer of file systems, and reports that were made elsewhere: mostly in a guest.

use std::path::{Path, PathBuf};

use clap::Args;
use control::{Answer, EngineError, ErrorKind};
use serde_json::Value;

use crate::bench::Report;

/// What is not measured here and now through the engine.
#[derive(Debug, Args)]
pub(super) struct Files {
    /// Measure the file system that this directory lies on, mostly in a guest, where no engine is
    /// needed: in a file of our own without a name, of 1GiB or --range, but never more than is
    /// free; no other file is touched
    #[arg(long, value_name = "DIRECTORY",
          conflicts_with_all = ["exports", "target", "drive", "members", "against", "verify",
                                "states", "rate", "client_core", "drive_model", "replacement",
                                "write", "level", "group_size", "parity", "chunk", "volume",
                                "fio_jobs"])]
    pub(super) directory: Option<PathBuf>,
    /// Add the layers of a report that `garboard --output json bench` made earlier, or elsewhere
    /// (in a guest): one table, JSON and page, each layer beside the one below it; repeat it.
    /// With nothing else, nothing is measured
    #[arg(long, value_name = "FILE", conflicts_with = "fio_jobs")]
    pub(super) with: Vec<PathBuf>,
}

impl Files {
    /// The reports that are to be added, in the order in which they were named.
    pub(super) fn earlier(&self) -> Answer<Vec<Report>> {
        let mut reports = Vec::new();
        for path in &self.with {
            reports.extend(read(path)?);
        }
        Ok(reports)
    }
}

/// The layers of a report.
fn read(path: &Path) -> Answer<Vec<Report>> {
    let wrong = |message: String| {
        let object = format!("file {}", path.display());
        EngineError::new(ErrorKind::Invalid, object, message)
            .next("`garboard --output json bench ... > FILE` makes one")
    };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let no_report = |error: serde_json::Error| {
        wrong(format!("it is no report of this version's bench: {error}"))
    };
    let mut value: Value = serde_json::from_slice(&text).map_err(no_report)?;
    let layers = match value.get_mut("layers") {
        Some(layers) => layers.take(),
        None => Value::Array(vec![value]),
    };
    let reports: Vec<Report> = serde_json::from_value(layers).map_err(no_report)?;
    if reports.is_empty() {
        return Err(wrong("it is a report of no layer".to_owned()));
    }
    Ok(reports)
}
