//! What closes the write hole is changed while guests write: from then on their writes are logged,
//! or not, and the next engine knows it.

use std::time::Duration;

use control::Engine;
use control::request::{ArrayModify, Level, WriteHole};
use units::ReactorIndex;

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::Tuning;

const ALL: [&str; 3] = ["one", "two", "three"];

fn modify(bench: &Bench, mode: WriteHole) {
    let modify = ArrayModify {
        write_hole: Some(mode),
        ..ArrayModify::default()
    };
    let view = bench.host.modify_array("tank", &modify).expect("it runs");
    assert_eq!(view.write_hole, mode);
}

fn connect(bench: &Bench) -> Guest {
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    Guest::connect(&bench.path("e.sock"))
}

/// Of a 4 KiB write of these bytes, how many members hold the piece of it in their log.
fn logged(bench: &Bench, content: u8) -> usize {
    let log = bench.superblock("one").layout.log;
    let holds = |name: &&str| {
        let file = std::fs::read(bench.path(name)).expect("a file");
        let begin = usize::try_from(log.offset).expect("small");
        let length = usize::try_from(log.length).expect("small");
        let blocks = file[begin..begin + length].chunks_exact(4096);
        let is_it = |block: &[u8]| block.iter().all(|byte| *byte == content);
        let headers = blocks
            .clone()
            .filter(|block| block.starts_with(b"GBLOGENT"));
        headers.count() > 0 && blocks.filter(|block| is_it(block)).count() > 0
    };
    ALL.iter().filter(|name| holds(name)).count()
}

#[test]
fn a_mode_counts_from_its_change_on_and_is_there_after_a_kill_and_after_a_stop() {
    let bench = Bench::file_tank();
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut guest = connect(&bench);
    guest.fill(0, 0x11);
    assert_eq!(logged(&bench, 0x11), 0, "a complete array, and `auto`");
    modify(&bench, WriteHole::Strict);
    guest.fill(0, 0x22);
    assert_eq!(logged(&bench, 0x22), 2, "data, and parity beside zeroes");
    modify(&bench, WriteHole::Off);
    guest.fill(512, 0x33);
    assert_eq!(logged(&bench, 0x33), 0, "`off`");
    bench.host.fail_member("tank", 2).expect("one may fail");
    guest.fill(512, 0x44);
    guest.fill(640, 0x44);
    assert_eq!(logged(&bench, 0x44), 0, "`off`, also without a member");
    modify(&bench, WriteHole::Auto);
    for sector in (1024..2048).step_by(128) {
        guest.fill(sector, 0x55);
    }
    assert!(logged(&bench, 0x55) > 0, "`auto`, without a member");
    modify(&bench, WriteHole::Strict);
    let folder = std::sync::Arc::clone(&bench.folder);
    drop((guest, bench));
    let next = Bench::on(folder);
    for name in ALL {
        next.open_file(name).expect("it is there");
    }
    next.host.assemble();
    next.host.start_array("tank", false).expect("two of three");
    assert_eq!(next.array("tank").write_hole, WriteHole::Strict);
    let mut guest = connect(&next);
    for (sector, content) in [(0, 0x22), (512, 0x44), (640, 0x44), (1024, 0x55)] {
        assert_eq!(guest.read(sector)[0], content);
    }
    modify(&next, WriteHole::Off);
    drop(guest);
    next.host.remove_export("e").expect("no guest");
    next.host.stop_array("tank").expect("nobody uses it");
    next.host
        .start_array("tank", false)
        .expect("it was stopped");
    assert_eq!(next.array("tank").write_hole, WriteHole::Off);
}

/// A log of 15 slots cannot be cut for nine reactors: who has no part of it would log nothing, and
/// a start believes that all was.
#[test]
fn of_an_array_with_few_slots_all_is_logged_whatever_reactor_asks() {
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let cores = [0, 1].into_iter().cycle().take(9);
    let bench = Bench::with_cores(folder, Tuning::default(), cores.collect());
    ALL.iter().for_each(|name| bench.file(name));
    bench.create("tank", Level::Raid5, &ALL);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    modify(&bench, WriteHole::Strict);
    let volume = volume_of("v", "tank", 16 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut guest = connect(&bench);
    let (host, id) = {
        let state = bench.host.state();
        let entry = &state.exports["e"];
        (std::sync::Arc::clone(&entry.host), entry.id)
    };
    let ring = bench.host.engine.rings(id)[0].1;
    let moved = host.move_ring(ring, ReactorIndex(8), Duration::from_secs(5));
    assert_eq!(moved, Ok(()));
    for content in 1..=60 {
        guest.fill(u64::from(content) * 256, content);
        assert!(logged(&bench, content) > 0, "write {content}");
    }
}

#[test]
fn two_changes_at_once_are_both_made() {
    let bench = Bench::file_tank();
    for round in 1..=20 {
        let timeout = ArrayModify {
            hold_timeout_ms: Some(round * 1000),
            ..ArrayModify::default()
        };
        let floor = ArrayModify {
            rebuild_floor_bytes_per_second: Some(round),
            ..ArrayModify::default()
        };
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for change in [&timeout, &floor] {
                let (bench, both) = (&bench, &both);
                scope.spawn(move || {
                    both.wait();
                    bench.host.modify_array("tank", change).expect("it runs");
                });
            }
        });
        let view = bench.array("tank");
        assert_eq!(view.hold_timeout_ms, Some(round * 1000));
        assert_eq!(view.rebuild_floor_bytes_per_second, round);
    }
}
