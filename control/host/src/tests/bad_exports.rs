//! Exports: everything a user can get wrong is refused, said, and changes nothing.

use std::fs;
use std::os::unix::net::UnixListener;

use control::request::{ExportCreate, QueueMove};
use control::view::Sharing;
use control::{Engine, ErrorKind};

use super::{Bench, MIB, export_of, volume_of};

fn bench() -> Bench {
    let bench = Bench::tank();
    for name in ["v", "w"] {
        bench
            .host
            .create_volume(&volume_of(name, "tank", MIB))
            .expect("room");
    }
    bench
}

#[test]
fn exports_that_cannot_be_are_refused() {
    let bench = bench();
    fs::write(bench.path("file.sock"), b"mine").expect("a file");
    let served = UnixListener::bind(bench.path("served.sock")).expect("a socket");
    let with = |change: &dyn Fn(&mut ExportCreate)| {
        let mut create = export_of(&bench, "e", "v");
        change(&mut create);
        create
    };
    let (file, busy) = (bench.path("file.sock"), bench.path("served.sock"));
    let long = bench.path(&"x".repeat(120));
    let cases = [
        (
            with(&|e| e.volume = "nine".into()),
            ErrorKind::NotFound,
            "volume nine",
        ),
        (
            with(&|e| e.socket.path = file.clone()),
            ErrorKind::Invalid,
            "socket",
        ),
        (
            with(&|e| e.socket.path = busy.clone()),
            ErrorKind::Busy,
            "socket",
        ),
        (
            with(&|e| e.socket.path = long.clone()),
            ErrorKind::Invalid,
            "path",
        ),
        (
            with(&|e| e.socket.owner = Some("nobody-here".into())),
            ErrorKind::NotFound,
            "user nobody-here",
        ),
        (
            with(&|e| e.socket.group = Some("nobody-here".into())),
            ErrorKind::NotFound,
            "group nobody-here",
        ),
        (with(&|e| e.cores = vec![77]), ErrorKind::NotFound, "CPU 77"),
        (
            with(&|e| e.wishes.block_bytes = Some(1024)),
            ErrorKind::Invalid,
            "block size",
        ),
        (
            with(&|e| e.wishes.queues = Some(0)),
            ErrorKind::Invalid,
            "queues",
        ),
        (
            with(&|e| e.wishes.queues = Some(1025)),
            ErrorKind::Invalid,
            "queues",
        ),
        (
            with(&|e| e.wishes.queue_size = Some(0)),
            ErrorKind::Invalid,
            "queue size",
        ),
        (
            with(&|e| e.wishes.queue_size = Some(100)),
            ErrorKind::Invalid,
            "queue size",
        ),
        (
            with(&|e| e.wishes.queue_size = Some(2048)),
            ErrorKind::Invalid,
            "queue size",
        ),
        (
            with(&|e| e.wishes.serial = "x".repeat(21)),
            ErrorKind::Invalid,
            "serial",
        ),
        (
            with(&|e| e.wishes.serial = "é".into()),
            ErrorKind::Invalid,
            "serial",
        ),
    ];
    for (create, kind, word) in cases {
        bench.refused((kind, word), |host| host.export_named(&create));
    }
    assert_eq!(fs::read(bench.path("file.sock")).expect("there"), b"mine");
    assert!(!bench.path("e.sock").exists());
    drop(served);
}

#[test]
fn a_name_a_socket_and_a_volume_are_exported_once() {
    let bench = bench();
    bench
        .host
        .export_named(&export_of(&bench, "e", "v"))
        .expect("a socket");
    let second = export_of(&bench, "f", "v");
    bench.refused((ErrorKind::Busy, "export e serves volume v"), |host| {
        host.export_named(&second)
    });
    let shared = ExportCreate {
        sharing: Sharing::Shared,
        ..second
    };
    bench.refused((ErrorKind::Busy, "export e serves volume v"), |host| {
        host.export_named(&shared)
    });
    let mut same_socket = export_of(&bench, "f", "w");
    same_socket.socket.path = bench.path("e.sock");
    bench.refused((ErrorKind::Busy, "export e listens on"), |host| {
        host.export_named(&same_socket)
    });
    let mut same_name = export_of(&bench, "e", "w");
    same_name.socket.path = bench.path("other.sock");
    bench.refused((ErrorKind::Exists, "export e"), |host| {
        host.export_named(&same_name)
    });
    assert!(!bench.path("other.sock").exists());
}

#[test]
fn what_is_not_there_is_neither_moved_nor_removed() {
    let bench = bench();
    bench
        .host
        .export_named(&export_of(&bench, "e", "v"))
        .expect("a socket");
    let to = |queue, core| QueueMove { queue, core };
    bench.refused((ErrorKind::NotFound, "export f"), |host| {
        host.remove_export("f")
    });
    bench.refused((ErrorKind::NotFound, "export f"), |host| {
        host.move_queue("f", to(0, 0))
    });
    bench.refused((ErrorKind::NotFound, "CPU 77"), |host| {
        host.move_queue("e", to(0, 77))
    });
    bench.refused((ErrorKind::NotFound, "queue 0"), |host| {
        host.move_queue("e", to(0, 0))
    });
    bench.refused((ErrorKind::NotFound, "queue 9"), |host| {
        host.move_queue("e", to(9, 0))
    });
}
