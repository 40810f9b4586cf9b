//! Records on members that are damaged, or of another version.

use crate::bed::{Bed, holds};
use crate::image::{Area, Image};

/// Where things are in the records.
const FORMAT: usize = 8;
const READ_ONLY_COMPAT: usize = 56;
const INCOMPAT: usize = 64;

/// What is said of a drive after this was done to it.
type Case = (&'static str, fn(&Image));

#[test]
fn what_a_newer_version_wrote_is_not_touched() {
    let cases: [Case; 6] = [
        ("format 2", |image| {
            image.forge_superblocks(|record| record[FORMAT] = 2);
        }),
        ("incompat bits 0x4", |image| {
            image.forge_superblocks(|record| record[INCOMPAT] = 4);
        }),
        ("format 2", |image| {
            image.forge_configs(|record| record[FORMAT] = 2);
        }),
        ("incompat bits 0x4", |image| {
            image.forge_configs(|record| record[INCOMPAT] = 4);
        }),
        ("read-only-compat bits 0x4", |image| {
            image.forge_superblocks(|record| record[READ_ONLY_COMPAT] = 4);
        }),
        ("read-only-compat bits 0x4", |image| {
            image.forge_configs(|record| record[READ_ONLY_COMPAT] = 4);
        }),
    ];
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    let good = ["d0", "d1"].map(|name| bed.image(name).records());
    for (words, forge) in cases {
        let image = bed.image("d1");
        forge(&image);
        let forged = image.records();
        bed.start();
        let (state, warnings) = bed.state();
        assert_eq!(state, "stopped", "{words}");
        holds(&warnings, &["drive d1", "from the future", words]);
        let start = ["array", "start", "a", "--force", "--yes"];
        bed.refused(&start, "unsafe", &["drive d1", words, "version that wrote"]);
        let status = bed.engine().json(&["status"]);
        assert_eq!(status["arrays"]["attention"], 1, "{status}");
        bed.stop();
        let same = bed.image("d1").records() == forged;
        assert!(same, "{words}: something was written to d1");
        let same = bed.image("d0").records() == good[0];
        assert!(same, "{words}: something was written to d0");
        image.restore(&good[1]);
    }
    bed.start();
    assert_eq!(bed.state().0, "optimal");
    bed.guest().verify(1);
}

#[test]
fn one_good_copy_of_a_superblock_is_enough_and_the_others_are_mended() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    let image = bed.image("d1");
    let places = image.superblocks();
    let good = image.read(places[0]..places[0] + 4096);
    for left in 0..4 {
        let spoiled: Vec<u64> = (0..4)
            .filter(|copy| *copy != left)
            .map(|copy| places[copy])
            .collect();
        for at in spoiled {
            image.spoil(at..at + 4096);
        }
        bed.start();
        assert_eq!(
            bed.state(),
            ("optimal".to_owned(), String::new()),
            "copy {left} is left"
        );
        bed.guest().verify(1);
        bed.stop();
        for at in places {
            assert_eq!(image.read(at..at + 4096), good, "copy {left} was left");
        }
    }
}

#[test]
fn a_drive_without_a_good_superblock_is_said_to_have_been_a_member() {
    let spoils: [Case; 2] = [
        ("no superblock says so any more", |image| {
            for at in image.superblocks() {
                image.spoil(at..at + 4096);
            }
        }),
        ("format 0", |image| {
            image.forge_superblocks(|record| record[FORMAT] = 0);
        }),
    ];
    for (words, spoil) in spoils {
        let mut bed = Bed::new("5", 3, 0);
        bed.stop();
        spoil(&bed.image("d1"));
        bed.start();
        assert_eq!(bed.state().0, "degraded");
        let (state, cause) = bed.drive("d1");
        assert_eq!(state, "failed", "{cause}");
        holds(&cause, &[words]);
        bed.guest().verify(1);
        // Nothing takes it by mistake.
        let create = ["array", "create", "b", "--level", "0", "--drives", "d1"];
        bed.refused(&create, "unsafe", &["drive d1"]);
        let replace = ["array", "replace", "a", "--member", "1", "--drive", "d1"];
        bed.engine()
            .json(&[&replace[..], &["--force", "--wait", "--yes"]].concat());
        bed.await_optimal();
        bed.is_sound(1);
    }
}

#[test]
fn a_bad_record_falls_back_to_the_one_before_and_two_bad_ones_leave_the_member_out() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    let image = bed.image("d1");
    image.spoil(image.area(image.newest_config()));
    bed.start();
    assert_eq!(bed.state(), ("optimal".to_owned(), String::new()));
    bed.guest().write(2);
    bed.stop();
    for area in [Area::ConfigA, Area::ConfigB] {
        image.spoil(image.area(area));
    }
    bed.start();
    let (state, warnings) = bed.state();
    assert_eq!(state, "degraded");
    holds(
        &warnings,
        &[
            "drive d1 is left out: member 1: no good config record",
            "array replace a",
        ],
    );
    bed.guest().verify(2);
    let replace = [
        "array", "replace", "a", "--member", "1", "--drive", "d1", "--wait",
    ];
    bed.engine().json(&replace);
    bed.await_optimal();
    bed.is_sound(2);
}

#[test]
fn the_region_map_falls_back_to_its_other_copy_and_without_any_everything_is_resynced() {
    // Members 0 and 1 hold the only block of a small array's map.
    let one = (&["d0"][..], false);
    let both = (&["d0", "d1"][..], true);
    let (usual, unwritten) = (&[][..], &["--unwritten-regions"][..]);
    let both_kinds = [
        (one, usual),
        (both, usual),
        (one, unwritten),
        (both, unwritten),
    ];
    for ((spoiled, all), more) in both_kinds {
        let mut bed = Bed::made("5", 3, 0, more);
        bed.await_clean_regions();
        bed.guest().write_some(2, 128 << 10);
        bed.kill();
        for name in spoiled {
            let image = bed.image(name);
            image.spoil(image.area(Area::Regions));
        }
        // A torn stripe where nobody wrote: parity of it is wrong until a resync has been there.
        let image = bed.image("d2");
        let torn = image.data() + (40 << 20);
        image.spoil(torn..torn + 4096);
        bed.start();
        let (dirty, regions) = bed.regions_read();
        assert!(dirty > 0 && regions > dirty || all, "{dirty} of {regions}");
        assert_eq!(
            dirty == regions,
            all,
            "{dirty} of {regions} with {spoiled:?} spoiled"
        );
        bed.guest().verify_some(2, 128 << 10);
        bed.await_optimal();
        let scrub = bed.scrub();
        // What lies in a region that nobody wrote to is nothing.
        assert_eq!(
            scrub == 0,
            all || more == unwritten,
            "{scrub} mismatches with {spoiled:?} spoiled"
        );
    }
}

#[test]
fn a_bad_log_of_one_member_does_no_harm() {
    let mut bed = Bed::new("6", 4, 0);
    bed.engine()
        .json(&["array", "fail", "a", "--member", "0", "--yes"]);
    bed.guest().write(2);
    bed.kill();
    let image = bed.image("d1");
    image.spoil(image.area(Area::Log));
    bed.start();
    bed.guest().verify(2);
    let replace = [
        "array", "replace", "a", "--member", "0", "--drive", "d0", "--wait", "--yes",
    ];
    bed.engine().json(&replace);
    bed.await_optimal();
    bed.is_sound(2);
}
