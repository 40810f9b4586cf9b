//! Scrubs over files in which bits have flipped.

use std::os::unix::fs::FileExt;

use control::request::{ArrayModify, Level};
use control::scrub::{ScrubBody, ScrubCause, ScrubOutcome, ScrubState, ScrubView};
use control::view::{JobKind, JobState, JobView};
use control::{Engine, ErrorKind};
use units::{MemberIndex, StripeIndex};

use super::guests::Guest;
use super::*;

const GO_ON: ScrubBody = ScrubBody {
    from_beginning: false,
};

impl Bench {
    /// An array of files of 64 MiB.
    fn files(level: Level, count: usize) -> Bench {
        let bench = Bench::new();
        let names: Vec<String> = (0..count).map(|number| format!("d{number}")).collect();
        for name in &names {
            bench.file(name);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        bench.create("tank", level, &names);
        bench
    }

    /// A volume `v` at the start of the array, with a block written in each MiB: what was never
    /// written is not looked at.
    fn write_some(&self) {
        let volume = self.host.create_volume(&volume_of("v", "tank", 32 * MIB));
        volume.expect("room");
        let export = export_of(self, "e", "v");
        self.host.export_named(&export).expect("a socket");
        let mut guest = Guest::connect(&self.path("e.sock"));
        for mib in 0..32 {
            guest.fill(mib * MIB / 512, 0x5A);
        }
    }

    /// Flips bits in blocks of one member's chunk of a stripe, past the engine.
    fn flip(&self, member: u16, stripe: u64, first: u64, blocks: u64) {
        let (geometry, offset) = {
            let state = self.host.state();
            let superblock = &state.arrays["tank"].superblock;
            (superblock.geometry, superblock.layout.data.offset)
        };
        let block_bytes = geometry.block_size().bytes();
        let block = geometry.member_block(StripeIndex(stripe)) + first;
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(self.path(&format!("d{member}")))
            .expect("a member");
        for block in block..block + blocks {
            let at = offset + block * block_bytes + 100;
            let mut bytes = [0; 3];
            file.read_exact_at(&mut bytes, at).expect("inside");
            let flipped = bytes.map(|byte| byte ^ 0x41);
            file.write_all_at(&flipped, at).expect("inside");
        }
        file.sync_all().expect("written");
    }

    /// All of a member's data.
    fn content(&self, member: u16) -> Vec<u8> {
        let layout = self.host.state().arrays["tank"].superblock.layout;
        let bytes = std::fs::read(self.path(&format!("d{member}"))).expect("a member");
        let start = units::bytes_usize(layout.data.offset);
        bytes[start..start + units::bytes_usize(layout.data.length)].to_vec()
    }

    fn contents(&self, members: u16) -> Vec<Vec<u8>> {
        (0..members).map(|member| self.content(member)).collect()
    }

    fn job_of(&self, id: u64) -> JobView {
        let mut jobs = self.host.jobs().into_iter();
        jobs.find(|job| job.id == id).expect("a job")
    }

    /// Scrubs and waits for the end.
    pub(super) fn scrubbed(&self, scrub: ScrubBody) -> (JobView, ScrubView) {
        let job = self.host.start_scrub("tank", scrub).expect("it begins");
        assert_eq!(job.kind, JobKind::Scrub);
        wait_until("the end of the scrub", || {
            self.job_of(job.id).state != JobState::Running
        });
        let view = self.host.scrub("tank").expect("an array");
        (self.job_of(job.id), view)
    }
}

#[test]
fn what_rots_on_a_member_of_level_6_is_found_and_repaired_be_it_data_or_parity() {
    super::on_both_kinds(|| {
        let bench = Bench::files(Level::Raid6, 4);
        bench.write_some();
        let right = bench.contents(4);
        for (stripe, member) in [(0, 0), (5, 1), (9, 2), (17, 3)] {
            bench.flip(member, stripe, 2, 3);
        }
        let (job, view) = bench.scrubbed(GO_ON);
        assert_eq!(job.state, JobState::Done);
        assert_eq!(
            job.cause.as_deref(),
            Some("12 blocks were wrong: 12 repaired, 0 not")
        );
        assert!(
            bench.contents(4) == right,
            "everything is as it was written"
        );
        assert_eq!(view.state, ScrubState::Idle);
        assert_eq!((view.mismatched_blocks, view.repaired_blocks), (12, 12));
        assert_eq!((view.unreadable_blocks, view.unrepaired_blocks), (0, 0));
        assert_eq!(view.stripes_checked, view.stripes);
        assert!(view.finished_at_s.is_some());
        let guilty: Vec<_> = view.members.iter().map(|m| m.wrong_blocks_total).collect();
        assert_eq!(guilty, [3, 3, 3, 3]);
        let mut found: Vec<_> = view
            .findings
            .iter()
            .map(|f| {
                (
                    f.stripe,
                    f.block,
                    f.blocks,
                    f.members.clone(),
                    f.volume.as_deref(),
                )
            })
            .collect();
        found.sort();
        let expected = |stripe, member| (stripe, 2, 3, vec![member], Some("v"));
        assert_eq!(
            found,
            [
                expected(0, 0),
                expected(5, 1),
                expected(9, 2),
                expected(17, 3)
            ]
        );
        for finding in &view.findings {
            assert_eq!(finding.cause, ScrubCause::Mismatch);
            assert_eq!(finding.outcome, ScrubOutcome::Repaired);
        }
        // The volume begins with the array; parity lies at no place of it.
        let geometry = bench.host.state().arrays["tank"].superblock.geometry;
        for finding in &view.findings {
            let stripe = StripeIndex(finding.stripe);
            let role = geometry.role(stripe, MemberIndex(finding.members[0]));
            let role = role.expect("one group");
            let chunk = finding.stripe * 2 + u64::from(role.0);
            let offset = chunk * geometry.chunk_bytes() + 2 * geometry.block_size().bytes();
            let is_data = role.at() < geometry.data();
            assert_eq!(finding.offset_bytes, is_data.then_some(offset));
        }
        let (_, again) = bench.scrubbed(GO_ON);
        assert_eq!(again.mismatched_blocks, 0, "of this pass");
    });
}

#[test]
fn level_5_reports_what_it_cannot_locate_and_changes_nothing() {
    super::on_both_kinds(|| {
        let bench = Bench::files(Level::Raid5, 3);
        bench.write_some();
        bench.flip(1, 3, 0, 1);
        let rotten = bench.contents(3);
        let (job, view) = bench.scrubbed(GO_ON);
        assert_eq!(job.state, JobState::Done);
        assert_eq!(
            job.cause.as_deref(),
            Some("1 block was wrong: 0 repaired, 1 not")
        );
        assert!(bench.contents(3) == rotten, "nothing was changed");
        let warnings = bench.array("tank").warnings.join("; ");
        assert!(warnings.contains("left wrong: 1 block"), "{warnings}");
        assert_eq!(bench.array("tank").unrepaired_blocks, 1);
        assert_eq!((view.mismatched_blocks, view.unrepaired_blocks), (1, 1));
        assert_eq!(view.repaired_blocks, 0);
        let finding = &view.findings[0];
        assert_eq!(finding.outcome, ScrubOutcome::NotLocated);
        assert_eq!((finding.stripe, finding.block), (3, 0));
        assert!(finding.members.is_empty());
        let stripe_bytes = bench.array("tank").stripe_bytes;
        assert_eq!(finding.volume.as_deref(), Some("v"));
        assert_eq!(finding.offset_bytes, Some(3 * stripe_bytes));
        assert_eq!(finding.length_bytes, Some(stripe_bytes));
    });
}

#[test]
fn of_three_copies_two_are_right_and_of_two_nobody_knows() {
    super::on_both_kinds(|| {
        let three = Bench::files(Level::Raid1, 3);
        three.write_some();
        let right = three.contents(3);
        three.flip(0, 1, 4, 1);
        three.flip(2, 2, 0, 2);
        let (_, view) = three.scrubbed(GO_ON);
        assert_eq!((view.repaired_blocks, view.unrepaired_blocks), (3, 0));
        assert!(three.contents(3) == right);

        let two = Bench::files(Level::Raid1, 2);
        two.write_some();
        two.flip(0, 1, 4, 1);
        let rotten = two.contents(2);
        let (_, view) = two.scrubbed(GO_ON);
        assert_eq!((view.repaired_blocks, view.unrepaired_blocks), (0, 1));
        assert!(two.contents(2) == rotten);
    });
}

#[test]
fn what_a_drive_cannot_read_is_written_anew() {
    super::on_both_kinds(|| {
        let bench = Bench::files(Level::Raid5, 3);
        bench.write_some();
        let superblock = bench.host.state().arrays["tank"].superblock;
        let (geometry, offset) = (superblock.geometry, superblock.layout.data.offset);
        let block_bytes = geometry.block_size().bytes();
        let start = offset + (geometry.member_block(StripeIndex(2)) + 1) * block_bytes;
        bench.inject(
            "d1",
            drive::Fault::Media {
                offset: start,
                length: block_bytes,
            },
        );
        let (job, view) = bench.scrubbed(GO_ON);
        assert_eq!(job.state, JobState::Done);
        assert_eq!((view.unreadable_blocks, view.mismatched_blocks), (1, 0));
        assert_eq!((view.repaired_blocks, view.unrepaired_blocks), (1, 0));
        assert_eq!(view.findings[0].cause, ScrubCause::Unreadable);
        assert_eq!(view.findings[0].members, [1]);
    });
}

#[test]
fn a_scrub_is_paused_survives_the_engine_and_goes_on() {
    let bench = Bench::files(Level::Raid6, 4);
    bench.flip(2, 0, 0, 1);
    let slow = ArrayModify {
        scrub_rate_bytes_per_second: Some(4 * MIB),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &slow).expect("it runs");
    let job = bench.host.start_scrub("tank", GO_ON).expect("it begins");
    let checked = || bench.host.scrub("tank").expect("an array").stripes_checked;
    wait_until("progress", || checked() > 0);
    let paused = bench.host.stop_scrub("tank").expect("it runs");
    assert_eq!((paused.id, paused.state), (job.id, JobState::Cancelled));
    let before = bench.host.scrub("tank").expect("an array");
    assert_eq!(before.state, ScrubState::Paused);
    assert!(before.stripes_checked < before.stripes, "{before:?}");
    assert_eq!(before.rate_bytes_per_second, Some(4 * MIB));
    bench.refused((ErrorKind::NotFound, "no scrub"), |host| {
        host.stop_scrub("tank")
    });

    let bench = bench.next();
    for number in 0..4 {
        bench.open_file(&format!("d{number}")).expect("there");
    }
    bench.host.assemble();
    bench.host.start_array("tank", false).expect("clean");
    let after = bench.host.scrub("tank").expect("an array");
    assert_eq!(after.state, ScrubState::Paused);
    assert_eq!(after.stripes_checked, before.stripes_checked);
    assert_eq!(after.repaired_blocks, 1, "counts go on");
    // What was looked at is not looked at again.
    bench.flip(1, 0, 0, 1);
    let fast = ArrayModify {
        scrub_rate_bytes_per_second: Some(0),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &fast).expect("it runs");
    let (_, end) = bench.scrubbed(GO_ON);
    assert_eq!((end.stripes_checked, end.repaired_blocks), (end.stripes, 1));
    let (_, anew) = bench.scrubbed(ScrubBody {
        from_beginning: true,
    });
    assert_eq!(anew.repaired_blocks, 1, "this pass has found the other one");
}

#[test]
fn what_was_scrubbed_before_a_pause_or_a_restart_does_not_count_as_done_since() {
    let limit = |bench: &Bench, rate| {
        let modify = ArrayModify {
            scrub_rate_bytes_per_second: Some(rate),
            ..ArrayModify::default()
        };
        bench.host.modify_array("tank", &modify).expect("it runs");
    };
    let bench = Bench::files(Level::Raid6, 4);
    limit(&bench, 32 * MIB);
    bench.host.start_scrub("tank", GO_ON).expect("it begins");
    wait_until("a quarter", || {
        let scrub = bench.host.scrub("tank").expect("an array");
        scrub.stripes_checked > scrub.stripes / 4
    });
    bench.host.stop_scrub("tank").expect("it runs");
    let bench = bench.next();
    for number in 0..4 {
        bench.open_file(&format!("d{number}")).expect("there");
    }
    bench.host.assemble();
    bench.host.start_array("tank", false).expect("clean");
    limit(&bench, MIB);
    let begun = bench.host.start_scrub("tank", GO_ON).expect("it goes on");
    assert!(begun.done_bytes > begun.total_bytes / 4, "{begun:?}");
    assert_eq!(begun.rate_bytes_per_second, None, "nobody has measured it");
    let rate = || bench.host.jobs()[0].rate_bytes_per_second;
    wait_until("a measurement", || rate().is_some());
    assert!(rate().is_some_and(|rate| rate < 16 * MIB), "{:?}", rate());
}

#[test]
fn a_scrub_begins_by_itself_when_its_time_has_come() {
    super::on_both_kinds(|| {
        let bench = Bench::files(Level::Raid5, 3);
        assert_eq!(bench.array("tank").scrub_every_s, Some(30 * 86_400));
        let often = ArrayModify {
            scrub_every_s: Some(1),
            ..ArrayModify::default()
        };
        bench.host.modify_array("tank", &often).expect("it runs");
        wait_until("a scrub", || {
            bench
                .host
                .scrub("tank")
                .expect("an array")
                .finished_at_s
                .is_some()
        });
        let off = ArrayModify {
            scrub_every_s: Some(0),
            ..ArrayModify::default()
        };
        bench.host.modify_array("tank", &off).expect("it runs");
        assert_eq!(bench.array("tank").scrub_every_s, None);
        assert_eq!(Bench::tank().array("tank").scrub_every_s, None, "of memory");
    });
}

#[test]
fn a_scrub_that_makes_no_sense_is_refused() {
    super::on_both_kinds(|| {
        let bench = Bench::new();
        for name in ["one", "two"] {
            bench.memory(name);
        }
        bench.create("plain", Level::Raid0, &["one", "two"]);
        bench.refused((ErrorKind::Invalid, "no redundancy"), |host| {
            host.start_scrub("plain", GO_ON)
        });
        bench.refused((ErrorKind::NotFound, "no scrub"), |host| {
            host.stop_scrub("plain")
        });
        bench.refused((ErrorKind::NotFound, "array gone"), |host| {
            host.scrub("gone")
        });
        bench.refused((ErrorKind::NotFound, "array gone"), |host| {
            host.start_scrub("gone", GO_ON)
        });
    });
}
