//! An array, its rings and its buffers go to the reactors on the node of its drives.

use control::request::QueueMove;
use units::limits::BUCKETS;
use units::{ArrayIndex, NodeIndex, ReactorIndex};

use super::guests::Guest;
use super::*;

/// Two reactors, each on a node of its own, and drives of memory on these nodes.
fn machine(drives: &[(&str, u16)]) -> Bench {
    let tuning = Tuning {
        nodes: vec![Some(NodeIndex(0)), Some(NodeIndex(1))],
        ..Tuning::default()
    };
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = Bench::tuned(folder, tuning);
    for (drive, node) in drives {
        bench.memory(drive);
        hangs_on(&bench, drive, *node);
    }
    bench
}

fn hangs_on(bench: &Bench, drive: &str, node: u16) {
    let mut state = bench.host.state();
    let entry = state.drives.get_mut(drive).expect("added");
    entry.node = Some(NodeIndex(node));
}

/// Buckets of the array that each reactor owns.
fn shares(bench: &Bench, array: u16) -> [usize; 2] {
    let owners = bench.host.engine.owners(ArrayIndex(array));
    let owners = owners.expect("it runs");
    [0, 1].map(|reactor| owners.share(ReactorIndex(reactor)))
}

/// The reactor of the only ring of an export.
fn reactor(bench: &Bench, export: &str) -> u16 {
    let id = bench.host.state().exports[export].id;
    bench.host.engine.rings(id)[0].0.0
}

fn export(bench: &Bench, name: &str, cores: &[u16]) -> Guest {
    let volume = volume_of(name, "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let create = ExportCreate {
        cores: cores.to_vec(),
        ..export_of(bench, name, name)
    };
    let view = bench.host.export_named(&create).expect("a volume");
    Guest::connect(&view.socket)
}

#[test]
fn stripes_home_and_rings_are_where_two_thirds_of_the_drives_hang() {
    for (nodes, all, node, home) in [
        ([1, 1, 1], [0, BUCKETS], Some(1), 1),
        ([0, 1, 0], [BUCKETS, 0], Some(0), 0),
        // There is no reactor.
        ([7, 7, 7], [BUCKETS / 2; 2], Some(7), 0),
    ] {
        let names = ["one", "two", "three"];
        let drives: Vec<_> = names.into_iter().zip(nodes).collect();
        let bench = machine(&drives);
        let view = bench.create("tank", Level::Raid5, &names);
        assert_eq!((shares(&bench, 0), view.node), (all, node), "{nodes:?}");
        let state = bench.host.engine.array_state(ArrayIndex(0));
        assert_eq!(state.expect("it runs").map.home, ReactorIndex(home));
        let owners: Vec<u16> = (0..2).filter(|at| all[usize::from(*at)] > 0).collect();
        assert_eq!(view.reactors, owners);
        // After a start as well.
        wait_until("the first resync", || bench.host.jobs().is_empty());
        bench.host.stop_array("tank").expect("idle");
        assert_eq!(bench.array("tank").reactors, [0_u16; 0], "it is on none");
        bench.host.start_array("tank", false).expect("all are here");
        assert_eq!(shares(&bench, 0), all);
        let _guests = [export(&bench, "a", &[]), export(&bench, "b", &[])];
        let rings = [reactor(&bench, "a"), reactor(&bench, "b")];
        let expected = if owners.len() == 1 {
            [owners[0]; 2]
        } else {
            [0, 1]
        };
        assert_eq!(rings, expected, "{nodes:?}");
    }
}

#[test]
fn drives_on_both_nodes_leave_an_array_on_both() {
    let bench = machine(&[("one", 0), ("two", 1)]);
    let view = bench.create("tank", Level::Raid1, &["one", "two"]);
    assert_eq!((view.node, shares(&bench, 0)), (None, [BUCKETS / 2; 2]));
    assert_eq!(bench.drive("two").node, Some(1));
}

#[test]
fn rings_go_where_drives_have_gone_unless_somebody_has_placed_them() {
    let names = ["one", "two", "three"];
    let bench = machine(&names.map(|name| (name, 1)));
    bench.create("tank", Level::Raid5, &names);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let mut free = export(&bench, "free", &[]);
    let _named = export(&bench, "named", &[1]);
    let _moved = export(&bench, "moved", &[]);
    let to = QueueMove { queue: 0, core: 1 };
    bench.host.move_queue("moved", to).expect("moved");
    let places = || ["free", "named", "moved"].map(|name| reactor(&bench, name));
    assert_eq!(places(), [1, 1, 1]);
    for name in names {
        hangs_on(&bench, name, 0);
    }
    for byte in 1..100 {
        for sector in (0..8192).step_by(512) {
            free.fill(sector, byte);
        }
        bench.host.do_look_at_load();
        if shares(&bench, 0) == [BUCKETS, 0] {
            break;
        }
    }
    assert_eq!(places(), [0, 1, 1]);
    assert_eq!(shares(&bench, 0), [BUCKETS, 0], "they follow");
}
