//! `garboard doctor`.

use std::path::PathBuf;

use clap::Args;
use control::{Answer, EngineError, ErrorKind};
use serde::Serialize;

use crate::doctor::{self, Finding, Known, RingAnswer, Severity, Tree};
use crate::output::{Output, word};
use crate::session::Session;

/// What on this host costs speed or safety, and the fix.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Examine the copy of `/sys` and `/proc` below this folder instead of the host
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/",
        hide_default_value = true
    )]
    root: PathBuf,
}

/// The answer in JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether an engine told of its drives and arrays; why not, else.
    engine: String,
    critical: usize,
    warning: usize,
    notice: usize,
    good: usize,
    findings: &'a [Finding],
}

impl Doctor {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let tree = Tree::new(self.root);
        if !tree.is_there() {
            let text = "neither sys nor proc is in it, so there is nothing to examine";
            let error = EngineError::new(ErrorKind::NotFound, tree.object(), text);
            return Err(error.next("give --root the folder of a copy of a host's, or leave it out"));
        }
        let ring = if tree.is_host() {
            RingAnswer::ask()
        } else {
            RingAnswer::NotAsked
        };
        let (known, engine) = match ask(session) {
            Ok(known) => (Some(known), "answers".to_owned()),
            Err(error) if error.kind == ErrorKind::Unreachable => (
                None,
                format!("does not answer, so only the host was examined: {error}"),
            ),
            Err(error) => (
                None,
                format!("refused, so only the host was examined: {error}"),
            ),
        };
        let findings = doctor::examine(&tree, &ring, known.as_ref());
        let count = |severity| {
            let found = findings
                .iter()
                .filter(|finding| finding.severity == severity);
            found.count()
        };
        let report = Report {
            engine,
            critical: count(Severity::Critical),
            warning: count(Severity::Warning),
            notice: count(Severity::Notice),
            good: count(Severity::Good),
            findings: &findings,
        };
        match session.output {
            Output::Json => session.json(&report),
            Output::Table => session.line(&text(&report)),
        }
    }
}

/// What an engine knows, if one answers.
fn ask(session: &Session<'_, '_>) -> Answer<Known> {
    Ok(Known {
        status: session.get("/v1/status")?,
        drives: session.get("/v1/drives")?,
        arrays: session.get("/v1/arrays")?,
        exports: session.get("/v1/exports")?,
    })
}

/// The answer for people: a paragraph per finding that is not good, and the good ones in a line
/// each.
fn text(report: &Report<'_>) -> String {
    let mut lines = Vec::new();
    for severity in Severity::ALL {
        let findings = report.findings.iter();
        for finding in findings.filter(|finding| finding.severity == severity) {
            let head = word(&finding.severity);
            lines.push(format!(
                "{head:<8}  {}: {}: {}",
                finding.subject, finding.check, finding.found
            ));
            if let Some(costs) = &finding.costs {
                lines.push(format!("          costs: {costs}"));
            }
            if let Some(fix) = &finding.fix {
                lines.push(format!("          fix: {fix}"));
            }
        }
    }
    lines.push(format!(
        "{} critical, {} warnings, {} notices, {} good; the engine {}",
        report.critical, report.warning, report.notice, report.good, report.engine
    ));
    lines.join("\n")
}
