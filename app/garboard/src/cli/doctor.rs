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

/// The answer for people: a paragraph for what was found and is not good, and a line for what is;
/// what was found alike of several is told once.
fn text(report: &Report<'_>) -> String {
    let mut lines = Vec::new();
    let mut told = Vec::new();
    for severity in Severity::ALL {
        let of_it: Vec<&Finding> = report
            .findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .collect();
        let groups = alike(&of_it);
        told.push(groups.len());
        for group in groups {
            let finding = group[0];
            lines.push(format!(
                "{:<8}  {}: {}: {}",
                word(&severity),
                subjects(&group),
                finding.check,
                finding.found
            ));
            if let Some(costs) = &finding.costs {
                lines.push(format!("          costs: {costs}"));
            }
            if let Some(fix) = &finding.fix {
                lines.push(format!("          fix: {fix}"));
            }
        }
    }
    let counts: Vec<String> = told
        .iter()
        .zip(["critical", "warnings", "notices", "good"])
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    lines.push(format!(
        "{}; the engine {}",
        counts.join(", "),
        report.engine
    ));
    lines.join("\n")
}

/// Findings that differ in what they are about only, each time such a set; in the order of the
/// first of each.
fn alike<'a>(findings: &[&'a Finding]) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            let first = group[0];
            (first.check, &first.found, &first.costs, &first.fix)
                == (finding.check, &finding.found, &finding.costs, &finding.fix)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// `drives d0, d1, d2`: what findings that are alike are about.
fn subjects(group: &[&Finding]) -> String {
    let all: Vec<&str> = group.iter().map(|found| found.subject.as_str()).collect();
    for (one, many) in [("drive ", "drives"), ("array ", "arrays")] {
        let names: Option<Vec<&str>> = all.iter().map(|text| text.strip_prefix(one)).collect();
        if let (Some(names), true) = (names, all.len() > 1) {
            return format!("{many} {}", names.join(", "));
        }
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_alike_of_several_is_told_once() {
        let buffered = |subject: &str, found: &str| Finding {
            severity: Severity::Warning,
            subject: subject.to_owned(),
            check: "access",
            found: found.to_owned(),
            costs: Some("copies".to_owned()),
            fix: None,
        };
        let good = |subject: &str| Finding {
            severity: Severity::Good,
            check: "state",
            costs: None,
            ..buffered(subject, "optimal")
        };
        let findings = [
            buffered("drive d0", "buffered"),
            buffered("drive d1", "by another way"),
            buffered("drive d2", "buffered"),
            good("sda"),
            good("array a"),
        ];
        let told = text(&Report {
            engine: "answers".to_owned(),
            critical: 0,
            warning: 3,
            notice: 0,
            good: 2,
            findings: &findings,
        });
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "warning   drives d0, d2: access: buffered",
                "          costs: copies",
                "warning   drive d1: access: by another way",
                "          costs: copies",
                "good      sda, array a: state: optimal",
                "0 critical, 2 warnings, 0 notices, 1 good; the engine answers",
            ]
        );
    }
}
