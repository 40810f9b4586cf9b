//! What on this host costs speed or safety, what it costs, and how to mend it.
//!
//! Everything is read from `/sys` and `/proc` below a root, so that made-up hosts can be examined
//! as well; only the question whether the kernel gives us an `io_uring` is asked of the kernel.
//! What an engine knows of its drives and arrays is added when one answers.

pub(crate) mod arrays;
mod cpus;
mod drives;
mod host;
mod kernel;
mod promises;
pub(crate) mod space;
#[cfg(test)]
mod tests;
mod tree;

use control::view::{ArrayView, DriveView, ExportView, StatusView};
use serde::Serialize;

pub(crate) use tree::Tree;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// The engine cannot run, or data is about to be lost.
    Critical,
    /// Costs speed or safety that one would miss.
    Warning,
    /// May matter, or cannot be helped.
    Notice,
    /// Looked at, and good.
    Good,
}

impl Severity {
    /// All, the worst first.
    pub(crate) const ALL: [Severity; 4] = [
        Severity::Critical,
        Severity::Warning,
        Severity::Notice,
        Severity::Good,
    ];
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// What it is about: `host`, `nvme0n1`, `array a`.
    pub(crate) subject: String,
    /// Which question was asked; stable.
    pub(crate) check: &'static str,
    /// What was found.
    pub(crate) found: String,
    /// What that costs; `null` of what is good, and of what the engine warns of, which says it.
    pub(crate) costs: Option<String>,
    /// What to do about it, or why there is nothing to do; `null` of what is good.
    pub(crate) fix: Option<String>,
}

impl Finding {
    /// Good news.
    fn good(subject: &str, check: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Good,
            subject: subject.to_owned(),
            check,
            found: found.into(),
            costs: None,
            fix: None,
        }
    }

    /// The same with another severity.
    fn at(self, severity: Severity) -> Finding {
        Finding { severity, ..self }
    }

    /// The same with what it costs.
    fn costs(self, costs: impl Into<String>) -> Finding {
        Finding {
            costs: Some(costs.into()),
            ..self
        }
    }

    /// The same with what to do.
    fn fix(self, fix: impl Into<String>) -> Finding {
        Finding {
            fix: Some(fix.into()),
            ..self
        }
    }
}

/// A finding about the host that is not good.
fn bad(severity: Severity, check: &'static str, found: impl Into<String>) -> Finding {
    Finding::good("host", check, found).at(severity)
}

/// What the kernel said when it was asked for an `io_uring`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RingAnswer {
    /// It gave one; how its answers arrive.
    Given(&'static str),
    /// It refused; why, and the fix.
    Refused(String),
    /// It was not asked, because the host is made up.
    NotAsked,
}

impl RingAnswer {
    /// Asks the kernel.
    pub(crate) fn ask() -> RingAnswer {
        match drive::probe_ring() {
            Ok(probe) => RingAnswer::Given(probe.mode),
            Err(error) => RingAnswer::Refused(error.to_string()),
        }
    }
}

/// What an engine that answers knows.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) status: StatusView,
    pub(crate) drives: Vec<DriveView>,
    pub(crate) arrays: Vec<ArrayView>,
    pub(crate) exports: Vec<ExportView>,
}

/// Looks at everything; the worst first.
pub(crate) fn examine(tree: &Tree, ring: &RingAnswer, known: Option<&Known>) -> Vec<Finding> {
    let mut findings = host::findings(tree, ring);
    findings.extend(kernel::findings(tree));
    findings.extend(cpus::findings(tree, known.map(|known| &known.status)));
    let devices = drives::devices(tree, known);
    findings.extend(drives::findings(tree, &devices, known));
    if let Some(known) = known {
        findings.extend(arrays::findings(tree, known));
        findings.extend(promises::findings(known));
        findings.extend(space::findings(tree, &known.drives));
    }
    findings.sort_by_key(|finding| finding.severity);
    findings
}
