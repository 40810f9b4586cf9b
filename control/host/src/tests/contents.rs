//! What a drive holds that is about to be given another use: it is erased by force only.

use std::sync::Arc;

use array::format::{Layout, Superblock};
use control::body::{ArrayCreateBody, ReplaceBody, SpareBody};
use control::request::{ArrayOptions, DriveSpec, Level};
use control::{Answer, Engine, EngineError, ErrorKind};
use drive::{Drive, Fault};
use units::DriveIndex;

use super::spares::Run;
use super::{Bench, MIB};
use crate::records;

/// So large that nothing erases the copies near the end of what could be a member on it.
const LARGE: u64 = (8 << 30) + 7 * MIB;

/// An array `tank` with a member lost, and the drives `two` and `four`, which are nobody's.
fn run() -> Run {
    let run = Run::new();
    run.memory(&[("a", 64), ("b", 64), ("c", 64), ("two", 64), ("four", 64)]);
    run.create("tank", &["a", "b", "c"], &[]);
    run.control.fail_member("tank", 1).expect("two are left");
    run
}

fn spare(run: &Run, force: bool) -> Answer<()> {
    let drive = "two".to_owned();
    let added = run.control.add_spare("tank", &SpareBody { drive, force });
    added.map(drop)
}

fn wipe(run: &Run, force: bool) -> Answer<()> {
    run.control.wipe_drive("two", force).map(drop)
}

fn create(run: &Run, force: bool) -> Answer<()> {
    let body = ArrayCreateBody {
        name: "new".to_owned(),
        uuid: None,
        level: Level::Raid1,
        drives: ["two", "four"].map(str::to_owned).to_vec(),
        options: ArrayOptions::default(),
        spares: Vec::new(),
        force,
    };
    run.control.create_array(body).map(drop)
}

fn replace(run: &Run, force: bool) -> Answer<()> {
    let drive = "two".to_owned();
    let body = ReplaceBody { drive, force };
    run.control.replace_member("tank", 1, &body).map(drop)
}

type Use = fn(&Run, bool) -> Answer<()>;
const USES: [Use; 4] = [spare, wipe, create, replace];

/// Refused without force, with a cause that has `word` in it, and force is the way out.
fn refused(run: &Run, word: &str) {
    let is_refused = |uses: &Use| {
        let refusal: EngineError = uses(run, false).expect_err(word);
        assert_eq!(refusal.kind, ErrorKind::Unsafe, "{refusal}");
        let text = refusal.to_string();
        assert!(text.contains(word), "no `{word}` in: {text}");
        assert!(refusal.next.contains("--force"), "no way out: {text}");
    };
    USES.iter().for_each(is_refused);
}

fn overwrite(drive: &Drive, places: &[u64]) {
    for &place in places {
        drive.write(place, &[0xa5; 4096]).expect("memory");
    }
}

/// A member of an array of some other host, of which the first superblocks are overwritten. The
/// last ones are not where a look at the end of the drive finds them.
fn half_a_member() -> Arc<Drive> {
    let elsewhere = Bench::new();
    for name in ["one", "two"] {
        let size_bytes = LARGE;
        let large = DriveSpec::Memory { size_bytes };
        elsewhere.add(name, large).expect("memory");
    }
    elsewhere.create("far", Level::Raid1, &["one", "two"]);
    let own = Superblock::offsets(elsewhere.superblock("two").layout.member_bytes);
    let drive = Arc::clone(&elsewhere.host.state().drives["two"].drive);
    overwrite(&drive, &own[..2]);
    drive
}

#[test]
fn a_member_of_an_unknown_array_of_which_only_the_last_superblocks_are_left_is_used_by_force_only()
{
    for uses in USES {
        let run = run();
        run.swap("two", half_a_member());
        refused(&run, "garboard member");
        uses(&run, true).expect("by force");
    }
    let run = run();
    run.swap("two", half_a_member());
    wipe(&run, true).expect("by force");
    assert_eq!(run.bench.host.signature_on("two"), Ok(None));
}

#[test]
fn a_member_on_a_drive_that_is_larger_is_known_by_its_last_superblocks() {
    let run = Run::new();
    run.memory(&[("a", 64), ("c", 64), ("four", 64), ("two", LARGE / MIB)]);
    run.create("tank", &["a", "two", "c"], &[]);
    let own = Superblock::offsets(run.bench.superblock("two").layout.member_bytes);
    let by_size = Superblock::offsets(Layout::member_bytes(LARGE));
    assert!(own[2] > drive::WIPE_BYTES && own[3] < by_size[2]);
    run.control.fail_member("tank", 1).expect("two are left");
    overwrite(&run.backing("two"), &own[..2]);
    run.again("two");
    refused(&run, "garboard member");
    wipe(&run, true).expect("by force");
    let found = run.bench.host.signature_on("two");
    assert_eq!(found, Ok(None));
    spare(&run, false).expect("nothing is on it");
}

#[test]
fn a_drive_whose_end_cannot_be_read_is_used_by_force_and_erased_where_it_can_be_written() {
    let (offset, length) = (64 * MIB - 4096, 4096);
    for uses in USES {
        let run = run();
        run.bench.inject("two", Fault::Media { offset, length });
        refused(&run, "its ends cannot be read");
        uses(&run, true).expect("what is written can be read again");
    }
    for uses in USES {
        let run = run();
        run.bench.inject("two", Fault::Media { offset, length });
        run.bench
            .inject("two", Fault::Unwritable { offset, length });
        let failed = uses(&run, true).expect_err("its end stays what it is");
        assert_eq!(failed.object, "drive two", "{failed}");
        assert!(failed.message.contains("failed"), "{failed}");
        refused(&run, "its ends cannot be read");
    }
}

#[test]
fn a_drive_that_an_array_has_lost_is_given_another_use_by_force_only() {
    let lost = |content: &dyn Fn(&Drive, [u64; 4])| {
        let run = Run::new();
        run.memory(&[("a", 64), ("c", 64), ("four", 64)]);
        run.numbered("two", 64 * MIB);
        run.create("tank", &["a", "two", "c"], &[]);
        let own = Superblock::offsets(run.bench.superblock("two").layout.member_bytes);
        run.control.fail_member("tank", 1).expect("two are left");
        content(&run.backing("two"), own);
        run.again("two");
        run
    };
    // Whatever lies there now.
    let run = lost(&|drive, own| overwrite(drive, &own));
    refused(&run, "array tank");
    create(&run, true).expect("by force");
    // Whatever it is, it has zeroes where superblocks begin.
    let run = lost(&|drive, own| {
        overwrite(drive, &own);
        for place in own {
            let mut block = [0xa5; 4096];
            block[..8].fill(0);
            drive.write(place, &block).expect("memory");
        }
    });
    refused(&run, "array tank");
    // Nothing at all.
    let run = lost(&|drive, _| drive.wipe().expect("memory"));
    create(&run, false).expect("blank");
}

fn torn(superblock: &Superblock) -> [u8; 4096] {
    let mut bytes = superblock.encode();
    bytes[200] ^= 1;
    bytes
}

/// Array `tank` with a member lost, and a drive `two` that is far larger.
fn run_with_a_large_drive() -> Run {
    let run = Run::new();
    let large = LARGE / MIB;
    run.memory(&[
        ("a", 64),
        ("b", 64),
        ("c", 64),
        ("two", large),
        ("four", 64),
    ]);
    run.create("tank", &["a", "b", "c"], &[]);
    run.control.fail_member("tank", 1).expect("two are left");
    run
}

#[test]
fn what_is_known_of_a_drive_is_erased_with_it_wherever_it_lies() {
    type Copies = fn(Superblock) -> Vec<(u64, [u8; 4096])>;
    let last = |member_bytes| Superblock::offsets(member_bytes)[2];
    let by_size = last(Layout::member_bytes(LARGE));
    assert!(by_size + MIB < LARGE - drive::WIPE_BYTES);
    let is_torn: Copies = |own| {
        let [_, _, one, other] = Superblock::offsets(Layout::member_bytes(LARGE));
        vec![(one, torn(&own)), (other, torn(&own))]
    };
    let of_two_sizes: Copies = |own| {
        let [_, _, small, _] = Superblock::offsets(own.layout.member_bytes);
        let [_, _, _, large] = Superblock::offsets(Layout::member_bytes(LARGE));
        vec![(small, own.encode()), (large, torn(&own))]
    };
    for copies in [is_torn, of_two_sizes] {
        for uses in [wipe, spare] {
            let run = run_with_a_large_drive();
            // Held no longer than for one call: a wipe waits for all others.
            let drive = || run.backing("two");
            // Where it is blank nobody looks further.
            overwrite(&drive(), &[4096]);
            let copies = copies(run.bench.superblock("a"));
            for (offset, bytes) in &copies {
                drive().write(*offset, bytes).expect("memory");
            }
            refused(&run, "garboard member");
            uses(&run, true).expect("by force");
            for (offset, _) in copies {
                let mut bytes = [0xa5; 4096];
                drive().read(offset, &mut bytes).expect("memory");
                assert_eq!(bytes, [0; 4096], "at {offset}");
            }
            assert_eq!(run.bench.host.signature_on("two"), Ok(None));
        }
    }
}

#[test]
fn a_spare_that_was_added_by_force_is_taken_at_a_loss_whatever_is_left_near_its_end() {
    let run = run_with_a_large_drive();
    let drive = || run.backing("two");
    let own = run.bench.superblock("a");
    let [_, _, last @ ..] = Superblock::offsets(Layout::member_bytes(LARGE));
    let plant = || {
        for offset in last {
            drive().write(offset, &torn(&own)).expect("memory");
        }
    };
    plant();
    spare(&run, true).expect("by force");
    // As it is with an older engine, which did not erase that.
    plant();
    run.tend();
    run.is_optimal_with("tank", "two");
}

#[test]
fn a_drive_that_cannot_read_its_first_superblocks_is_not_asked_at_many_more_places() {
    let run = run_with_a_large_drive();
    let drive = run.backing("two");
    let own = run.bench.superblock("a");
    let sizes = [own.layout.member_bytes];
    let [first, second, last @ ..] = Superblock::offsets(own.layout.member_bytes);
    for offset in last {
        drive.write(offset, &own.encode()).expect("memory");
    }
    let written = || {
        let found = records::read_head(DriveIndex(0), &drive, &sizes).expect("the end is read");
        assert_eq!(found.superblocks.len(), 4);
        found
            .superblocks
            .iter()
            .filter(|copy| records::was_written(copy))
            .count()
    };
    let media = |offset| {
        drive.inject(Fault::Media {
            offset,
            length: 4096,
        })
    };
    media(first);
    assert_eq!(written(), 2);
    media(second);
    assert_eq!(written(), 0);
}
