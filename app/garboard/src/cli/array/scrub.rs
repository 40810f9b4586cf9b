//! `garboard array scrub …`.

use control::scrub::{ScrubBody, ScrubFindingView, ScrubView};
use control::view::JobView;
use control::{Answer, EngineError, ErrorKind};

use super::path;
use super::said::{Action, Scrub};
use crate::output::{Row, or_dash, size, word};
use crate::progress;
use crate::session::Session;
use units::dates::date;

impl Scrub {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let path = format!("{}/scrub", path(&self.name));
        let job: JobView = match self.action {
            Action::Show => {
                let scrub: ScrubView = session.get(&path)?;
                return session.show(&scrub);
            }
            Action::Stop => session.delete(&path)?,
            Action::Start => {
                let body = ScrubBody {
                    from_beginning: self.from_beginning,
                };
                session.post(&path, &body)?
            }
        };
        let waits = self.wait && matches!(self.action, Action::Start);
        let job = if waits {
            progress::wait(session, &[job.id])?.remove(0)
        } else {
            job
        };
        let found = job
            .cause
            .as_ref()
            .map(|cause| format!(": {cause}"))
            .unwrap_or_default();
        let sentence = format!(
            "scrub of array {}: job {} {}{found}",
            job.array,
            job.id,
            word(&job.state)
        );
        if waits {
            let scrub: ScrubView = session.get(&path)?;
            refuse_unrepaired(&scrub)?;
        }
        session.done(&job, &sentence)
    }
}

/// What a scrub could not put right is an error of whoever waited for it.
fn refuse_unrepaired(scrub: &ScrubView) -> Answer<()> {
    if scrub.unrepaired_blocks == 0 {
        return Ok(());
    }
    let object = format!("array {}", scrub.array);
    let text = format!("left wrong: {}", blocks(scrub.unrepaired_blocks));
    let next = format!(
        "`garboard array scrub {} show` lists the last; write those blocks anew from a backup",
        scrub.array
    );
    Err(EngineError::new(ErrorKind::Degraded, object, text).next(next))
}

impl Row for ScrubView {
    const HEADS: &'static [&'static str] = &[
        "ARRAY",
        "STATE",
        "CHECKED",
        "MISMATCHES",
        "UNREADABLE",
        "REPAIRED",
        "UNREPAIRED",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.array.clone(),
            word(&self.state),
            format!("{} of {} stripes", self.stripes_checked, self.stripes),
            blocks(self.mismatched_blocks),
            blocks(self.unreadable_blocks),
            blocks(self.repaired_blocks),
            blocks(self.unrepaired_blocks),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("job", or_dash(self.job)),
            ("finished at", or_dash(self.finished_at_s.map(date))),
            ("every", or_dash(self.every_s.map(progress::duration))),
            (
                "rate",
                or_dash(
                    self.rate_bytes_per_second
                        .map(|rate| format!("{}/s", size(rate))),
                ),
            ),
        ];
        details.extend(self.members.iter().map(|member| {
            let drive = or_dash(member.drive.as_ref());
            let wrong = blocks(member.wrong_blocks_total);
            (
                "member",
                format!("{} {drive}: {wrong} wrong", member.member),
            )
        }));
        details.extend(self.findings.iter().map(|found| ("found", finding(found))));
        details
    }
}

fn blocks(count: u64) -> String {
    match count {
        1 => "1 block".to_owned(),
        count => format!("{count} blocks"),
    }
}

/// `2026-11-29 02:57 UTC: mismatch, repaired: stripe 7, block 3+1, member 1, volume v at 4096+512`.
fn finding(found: &ScrubFindingView) -> String {
    let members: Vec<String> = found.members.iter().map(ToString::to_string).collect();
    let members = match members.join(" ") {
        none if none.is_empty() => "member unknown".to_owned(),
        members => format!("member {members}"),
    };
    let volume = match (&found.volume, found.offset_bytes, found.length_bytes) {
        (None, _, _) => "no volume".to_owned(),
        (Some(volume), Some(offset), Some(length)) => {
            format!("volume {volume} at {offset}+{length}")
        }
        // All of the stripe is meant where nobody knows which member was wrong.
        (Some(volume), _, _) if found.members.is_empty() => {
            format!("behind the end of volume {volume}")
        }
        (Some(volume), _, _) => format!("volume {volume}, parity or behind its end"),
    };
    format!(
        "{}: {}, {}: stripe {}, block {}+{}, {members}, {volume}",
        date(found.time_s),
        word(&found.cause),
        word(&found.outcome).replace('_', " "),
        found.stripe,
        found.block,
        found.blocks,
    )
}

#[cfg(test)]
mod tests {
    use control::scrub::{ScrubCause, ScrubOutcome};

    use super::*;

    #[test]
    fn a_finding_says_when_it_was_made_and_where_it_is_in_the_volume() {
        let found = |members: &[u16], at: Option<(u64, u64)>| {
            finding(&ScrubFindingView {
                time_s: 1_764_384_000,
                stripe: 7,
                block: 3,
                blocks: 1,
                cause: ScrubCause::Mismatch,
                outcome: ScrubOutcome::NotLocated,
                members: members.to_vec(),
                volume: Some("v".to_owned()),
                offset_bytes: at.map(|(offset, _)| offset),
                length_bytes: at.map(|(_, length)| length),
            })
        };
        let exact = found(&[1], Some((4096, 512)));
        assert_eq!(
            exact,
            "2025-11-29 02:40 UTC: mismatch, not located: stripe 7, block 3+1, member 1, volume v at \
             4096+512"
        );
        for (members, place) in [
            (&[1][..], "member 1, volume v, parity or behind its end"),
            (&[], "member unknown, behind the end of volume v"),
        ] {
            let text = found(members, None);
            assert!(text.ends_with(place), "{text}");
        }
    }
}
