//! The budget for transfer buffers, and arrays that share it.

use std::sync::Arc;

use control::request::Level;
use control::settings::{EngineSettings, Poll};
use control::view::ArrayState;
use control::{Answer, Engine, ErrorKind};

use super::{Bench, MIB, array_of, volume_of};
use crate::{Host, Tuning};

/// What an array takes at least on two reactors.
const LEAST: &str = "17MiB";

fn start(memory_bytes: u64) -> Answer<Bench> {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let settings = EngineSettings {
        cores: vec![0, 1],
        memory_bytes: Some(memory_bytes),
        poll: Poll::Never,
        runtime_dir: folder.path().to_owned(),
        state_dir: folder.path().to_owned(),
    };
    let host = Host::start_tuned(&settings, Tuning::default())?;
    Ok(Bench { folder, host })
}

#[test]
fn arrays_share_what_there_is_and_one_too_many_is_refused() {
    let bench = start(50 * MIB).expect("enough");
    for name in ["a", "b", "c", "d", "e", "f"] {
        bench.memory(name);
    }
    let taken = || bench.host.status().buffer_bytes;
    assert_eq!(taken(), 0);
    bench.create("first", Level::Raid1, &["a", "b"]);
    assert_eq!(taken(), 17 * MIB);
    bench.create("second", Level::Raid1, &["c", "d"]);
    let two = taken();
    assert_eq!(bench.host.status().memory_bytes, 50 * MIB);
    let third = array_of("third", Level::Raid1, &["e", "f"]);
    let refusal = bench.refused((ErrorKind::Full, LEAST), |host| host.create_array(&third));
    assert!(refusal.next.contains("--memory"), "{refusal}");
    assert_eq!(taken(), two);
    // What is there works with the least.
    let volume = volume_of("v", "second", 4 * MIB);
    bench.host.create_volume(&volume).expect("room");
    bench.host.stop_array("first").expect("idle");
    assert!(taken() < two);
    bench.host.create_array(&third).expect("room again");
    let refusal = bench.refused((ErrorKind::Full, LEAST), |host| {
        host.start_array("first", false)
    });
    assert!(refusal.object.contains("first"), "{refusal}");
    bench.host.stop_array("third").expect("idle");
    let first = bench.host.start_array("first", false).expect("room again");
    assert_eq!(first.state, ArrayState::Optimal);
    bench.host.destroy_array("first", false).expect("empty");
    bench.host.destroy_array("third", false).expect("empty");
    assert_eq!(taken(), two / 2);
}

#[test]
fn a_budget_for_no_array_at_all_is_refused_at_once() {
    for memory_bytes in [0, 10, 17 * MIB - 1] {
        let Err(refusal) = start(memory_bytes) else {
            panic!("{memory_bytes} is enough");
        };
        assert_eq!(refusal.kind, ErrorKind::Invalid, "{refusal}");
        assert!(refusal.next.contains("--memory 17MiB"), "{refusal}");
    }
    start(17 * MIB).expect("enough for one");
}
