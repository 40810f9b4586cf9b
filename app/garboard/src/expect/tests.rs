//! Formulas against published tables of others, against the engine's own planner, and by sense.

use array::{StripeState, plan_read, plan_write};
use units::{Role, RoleSet};

use super::*;

/// 24 drives, in two groups where the level has groups, unless a test changes that.
fn asked(level: Level) -> Asked {
    let groups = level.has_groups() && level != Level::L10;
    Asked {
        level,
        drives: 24,
        spares: 0,
        group_size: groups.then_some(12),
        parity: (level == Level::Nm).then_some(4),
        chunk_bytes: 64 << 10,
        lost: None,
    }
}

fn model(name: &str) -> Model {
    Model::named(name).expect("built in")
}

fn answer(asked: &Asked, model: &Model) -> Expectation {
    expect(asked, model, &Limits::default()).expect("possible")
}

fn workload<'a>(expected: &'a Expectation, name: &str) -> &'a Workload {
    let found = expected.workloads.iter().find(|work| work.name == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

/// The value of a workload in millions.
fn millions(expected: &Expectation, name: &str) -> f64 {
    workload(expected, name).value() / 1e6
}

fn assert_near(value: f64, expected: f64, what: &str) {
    let error = (value - expected).abs();
    assert!(
        error <= expected.abs() * 1e-9,
        "{what}: {value}, not {expected}"
    );
}

#[test]
fn two_groups_of_11_and_1_of_24_drives_give_the_published_theory() {
    let expected = answer(&asked(Level::L50), &model("kioxia-cm7"));

    // Printed there, rounded: 65, 8, 336, 149; measured: 65, 8, 310, 144.
    for (name, formula, value, printed, measured, efficiency) in [
        ("random_read", "N·R", 64.8, 65.0, 65.0, 100.3),
        ("random_write", "N·W/(1+M)", 8.4, 8.0, 8.0, 95.2),
        (
            "sequential_read",
            "N·SR",
            336_000.0,
            336_000.0,
            310_000.0,
            92.3,
        ),
        (
            "sequential_read_data",
            "N·SR·k/(k+M)",
            308_000.0,
            308_000.0,
            310_000.0,
            100.6,
        ),
        (
            "sequential_write",
            "N·SW·k/(k+M)",
            148_500.0,
            149_000.0,
            144_000.0,
            97.0,
        ),
    ] {
        assert_near(millions(&expected, name), value, name);
        assert_eq!(workload(&expected, name).binding().formula, formula);
        assert!((value - printed).abs() / value < 0.05, "{name}");
        let percent = 100.0 * measured / value;
        assert!((percent - efficiency).abs() < 0.05, "{name}: {percent}");
    }
}

#[test]
fn the_same_24_drives_in_other_levels() {
    let cm7 = model("kioxia-cm7");
    for (level, drives, read, write, sequential_write) in [
        (Level::L0, 24, 64.8, 16.8, 162_000.0),
        (Level::L10, 24, 64.8, 8.4, 81_000.0),
        (Level::L5, 24, 64.8, 8.4, 155_250.0),
        (Level::L6, 24, 64.8, 5.6, 148_500.0),
        (Level::L60, 24, 64.8, 5.6, 135_000.0),
        (Level::L70, 24, 64.8, 4.2, 121_500.0),
        (Level::Nm, 24, 64.8, 3.36, 135_000.0),
        (Level::L1, 2, 5.4, 0.7, 6_750.0),
        (Level::L1, 3, 8.1, 0.7, 6_750.0),
    ] {
        let asked = Asked {
            drives,
            ..asked(level)
        };
        let expected = answer(&asked, &cm7);
        assert_near(millions(&expected, "random_read"), read, level.name());
        assert_near(millions(&expected, "random_write"), write, level.name());
        assert_near(
            millions(&expected, "sequential_write"),
            sequential_write,
            level.name(),
        );
        let all =
            cm7.read_bytes_per_second.value as f64 * f64::from(u32::try_from(drives).unwrap());
        assert_near(
            workload(&expected, "sequential_read").value(),
            all,
            level.name(),
        );
    }
}

#[test]
fn published_estimates_of_hard_disks_and_of_clusters() {
    // 42 disks as 4 groups of 8 + 2 and 2 spares, 260 MB/s each: 32 data disks, 8320 MB/s.
    let groups = Asked {
        drives: 42,
        spares: 2,
        group_size: Some(10),
        ..asked(Level::L60)
    };
    let disks = answer(&groups, &model("hdd-7200"));
    assert_near(millions(&disks, "sequential_write"), 8_320.0, "42 disks");
    assert_eq!(disks.shape.data * disks.shape.groups, 32);

    // 504 disks measured at 250 MB/s: 126 GB/s raw, 96 GB/s for 384 data disks; 80 were reached.
    let mut measured = model("hdd-7200");
    measured.read_bytes_per_second.value = 250_000_000;
    measured.write_bytes_per_second.value = 250_000_000;
    let twelfth = answer(&groups, &measured);
    assert_near(504.0 * 250.0, 126_000.0, "raw");
    assert_near(
        12.0 * millions(&twelfth, "sequential_write"),
        96_000.0,
        "12 arrays of 42",
    );
    assert_near((80.0_f64 / 96.0 * 1000.0).round(), 833.0, "efficiency");

    // Two arrays of 8 + 2 at 4200 MB/s: 67.2 GB/s; 59.5 were reached.
    let ten = Asked {
        drives: 10,
        ..asked(Level::L6)
    };
    let pair = answer(&ten, &model("kioxia-cm6"));
    assert_near(2.0 * millions(&pair, "sequential_write"), 67_200.0, "8 + 2");

    // 14 arrays of 8 + 2 at 6700 and 3850 MB/s: 938 GB/s to read (printed 916, which is 938 with
    // 1 GB = 1024 MB) and 431.2 to write (printed 431, with 1 GB = 1000 MB).
    let mut stated = model("micron-7450-pro");
    stated.read_bytes_per_second.value = 6_700_000_000;
    stated.write_bytes_per_second.value = 3_850_000_000;
    let cluster = answer(&ten, &stated);
    let read = 14.0 * millions(&cluster, "sequential_read");
    assert_near(read, 938_000.0, "14 servers, reads");
    assert_near((read / 1024.0).round(), 916.0, "in units of 1024");
    let write = 14.0 * millions(&cluster, "sequential_write");
    assert_near(write, 431_200.0, "14 servers, writes");
    // Measured: 812,748 and 348,414 MiB/s. 82.6 % was printed for the writes.
    let mib = 1.048_576;
    assert_near((812_748.0 * mib / read * 1000.0).round(), 909.0, "reads");
    assert_near((348_414.0 * mib / write * 1000.0).round(), 847.0, "writes");
}

#[test]
fn usable_capacity_is_that_of_the_data_drives_but_for_the_records() {
    // Two arrays of 8 + 2 of 7.68 TB on each of 7 servers: 860 TB, which is 782 TiB.
    let ten = Asked {
        drives: 10,
        ..asked(Level::L6)
    };
    let p5520 = model("intel-p5520");
    let shape = answer(&ten, &p5520).shape;
    let data = 8 * p5520.capacity_bytes.value;
    assert!(shape.usable_bytes < data);
    assert!(
        shape.usable_bytes > data / 1000 * 998,
        "{}",
        shape.usable_bytes
    );
    assert_eq!(shape.raw_bytes, 10 * p5520.capacity_bytes.value);
    assert_eq!(shape.stripe_bytes, 512 << 10);
}

#[test]
fn a_group_that_lost_one_of_twelve_reads_half_as_much() {
    for (level, drives, group_size, percent) in [
        (Level::L5, 12, None, 50.0),
        (Level::L6, 10, None, 52.9),
        (Level::L10, 2 * 4, None, 50.0),
        (Level::L60, 40, Some(10), 52.9),
        (Level::L1, 3, None, 66.7),
    ] {
        let asked = Asked {
            drives,
            group_size,
            ..asked(level)
        };
        let expected = answer(&asked, &model("kioxia-cm7"));
        let part = millions(&expected, "degraded_random_read") / millions(&expected, "random_read");
        assert!((100.0 * part - percent).abs() < 0.05, "{level}: {part}");
    }
}

#[test]
fn rebuild_takes_the_time_to_write_the_drive() {
    let mut disk = model("hdd-7200");
    disk.write_bytes_per_second.value = 250_000_000;
    let ten = Asked {
        drives: 10,
        ..asked(Level::L6)
    };
    let hours = workload(&answer(&ten, &disk), "rebuild_time").value() / 3600.0;
    assert!((hours - 22.2).abs() < 0.05, "{hours}");
    let mut fast = model("kioxia-cm7");
    fast.capacity_bytes.value = 7_680_000_000_000;
    let minutes = workload(&answer(&ten, &fast), "rebuild_time").value() / 60.0;
    assert!((minutes - 19.0).abs() < 0.05, "{minutes}");

    // Wide groups of drives that write as fast as they read are bound by reading k of n - f.
    let mut even = model("kioxia-cm7");
    even.read_bytes_per_second.value = even.write_bytes_per_second.value;
    let both = Asked {
        lost: Some(2),
        ..ten
    };
    let binding = answer(&both, &even);
    let binding = workload(&binding, "rebuild").binding().clone();
    assert_eq!(
        binding.formula, "SW",
        "eight of eight read as fast as one writes"
    );
    even.read_bytes_per_second.value -= 1_000_000;
    let slower = answer(&both, &even);
    assert_eq!(workload(&slower, "rebuild").binding().formula, "(n-f)·SR/k");

    let limits = Limits {
        rebuild_bytes_per_second: Some(100_000_000),
        ..Limits::default()
    };
    let held = expect(&ten, &disk, &limits).expect("possible");
    assert_near(workload(&held, "rebuild").value(), 1e8, "held back");
    assert_near(
        workload(&held, "rebuild_time").value(),
        200_000.0,
        "held back",
    );
}

#[test]
fn a_rebuild_takes_as_long_as_its_rate_says_whatever_binds_it() {
    let cm7 = model("kioxia-cm7");
    let capacity = cm7.capacity_bytes.value as f64;
    let slow = Limits {
        host_bytes_per_second: Some(10_000_000_000),
        // No byte of a rebuild goes to a client.
        network_bytes_per_second: Some(1_000_000),
        ..Limits::default()
    };
    for (level, lost, moved) in [
        (Level::L5, 1, 23.0 + 1.0),
        // Both new drives are filled from one reading.
        (Level::L6, 2, 22.0 + 2.0),
        (Level::L10, 1, 1.0 + 1.0),
    ] {
        let asked = Asked {
            lost: Some(lost),
            ..asked(level)
        };
        let expected = expect(&asked, &cm7, &slow).expect("possible");
        let rate = workload(&expected, "rebuild");
        let time = workload(&expected, "rebuild_time");
        assert_near(rate.value(), (10e9_f64 / moved).min(6.75e9), level.name());
        assert_near(time.value(), capacity / rate.value(), level.name());
        assert_eq!(time.binding().bound, rate.binding().bound);
        assert_eq!(time.bounds.len(), 1, "no rate among the times");
        let network = |bound: &Bound| bound.bound.contains("network");
        assert!(!rate.bounds.iter().any(network), "{level}");
    }
    let expected = expect(&asked(Level::L5), &cm7, &slow).expect("possible");
    assert_eq!(
        workload(&expected, "rebuild_time").binding().formula,
        "C/(host bandwidth/(drive bytes of a request or byte))"
    );
}

/// Every set of `count` of `members`.
fn losses(members: usize, count: usize) -> Vec<RoleSet> {
    (0..1u64 << members)
        .map(|bits| {
            let roles = (0..members).filter(|role| bits >> role & 1 == 1);
            roles.fold(RoleSet::EMPTY, |set, role| {
                set.with(Role(u8::try_from(role).unwrap()))
            })
        })
        .filter(|set| set.len() == count)
        .collect()
}

#[test]
fn small_requests_cost_what_the_engines_planner_plans() {
    for (k, m) in [
        (1, 1),
        (1, 2),
        (2, 1),
        (3, 1),
        (4, 1),
        (11, 1),
        (2, 2),
        (4, 2),
        (8, 2),
        (5, 3),
    ] {
        for lost in 0..=m {
            let numbers = Numbers {
                data: count(k),
                parity: count(m),
                group: count(k + m),
                lost: count(lost),
                ..Numbers::of(
                    &answer(&asked(Level::L5), &model("kioxia-cm7")).shape,
                    &model("kioxia-cm7"),
                )
            };
            let (mut reads, mut writes, mut logged, mut cases) = (0, 0, 0, 0);
            let mut direct_reads = 0;
            for set in losses(k + m, lost) {
                let state = StripeState::new(set, RoleSet::EMPTY, true);
                for own in 0..k {
                    let own = RoleSet::one(Role(u8::try_from(own).unwrap()));
                    let plan = plan_write(k, m, own, &state).expect("survived");
                    reads += plan.read.len();
                    writes += plan.write.len();
                    if k > 1 && set.meets(RoleSet::range(0, k)) {
                        logged += plan.write.len();
                    }
                    cases += 1;
                    // Mirrors read a copy that is there.
                    let plan = plan_read(k, m, own, &state).expect("survived");
                    direct_reads += plan.read.len();
                }
            }
            let what = format!("{k}+{m} without {lost}");
            let mean = |sum: usize| count(sum) / count(cases);
            if lost == 0 {
                assert_near(numbers.write_reads(), mean(reads), &what);
                assert_near(1.0 + numbers.parity, mean(writes), &what);
            } else {
                let cost = degraded::write_cost(&numbers);
                assert_near(cost.reads, mean(reads), &what);
                assert_near(cost.writes, mean(writes), &what);
                assert_near(cost.logged, mean(logged), &what);
                assert_near(degraded::load(&numbers), mean(direct_reads), &what);
            }
        }
    }
}

#[test]
fn the_least_bound_counts_and_is_named() {
    let (asked, cm6) = (asked(Level::L5), model("kioxia-cm6"));
    let node = Limits {
        host_bytes_per_second: Some(70_000_000_000),
        host_iops: Some(9_000_000),
        ..Limits::default()
    };
    let expected = expect(&asked, &cm6, &node).expect("possible");
    assert_near(millions(&expected, "random_read"), 9.0, "a measured host");
    let write = workload(&expected, "sequential_write");
    // 70 GB/s to the drives is 23/24 of that for the guest.
    assert_near(
        write.value() / 1e9,
        70.0 * 23.0 / 24.0,
        "the host's bandwidth",
    );
    assert_eq!(write.binding().bound, "the host's bandwidth to its drives");
    assert_near(
        workload(&expected, "sequential_read").value() / 1e9,
        70.0,
        "the host's bandwidth",
    );
    // Two reads and two writes of drives for each small write.
    let write = workload(&expected, "random_write");
    assert_eq!(write.binding().formula, "N·W/(1+M)");
    let host = write
        .bounds
        .iter()
        .find(|bound| bound.bound.contains("requests to"));
    assert_near(
        host.expect("looked at").value,
        9e6 / 4.0,
        "the host's requests",
    );

    let far = Limits {
        network_bytes_per_second: Some(25_000_000_000),
        core_read_iops: Some(2_000_000),
        core_write_iops: Some(1_000_000),
        ..Limits::default()
    };
    let expected = expect(&asked, &cm6, &far).expect("possible");
    let read = workload(&expected, "random_read");
    assert_eq!(read.binding().bound, "the engine's cores");
    assert_near(read.value(), 2e6, "cores");
    assert_near(workload(&expected, "random_write").value(), 1e6, "cores");
    assert_near(
        workload(&expected, "sequential_read").value(),
        25e9,
        "network",
    );
}

#[test]
fn cores_bind_a_mix_by_the_time_of_both_kinds() {
    let (reads, writes) = (Some(2_000_000), Some(1_000_000));
    for (core_read_iops, core_write_iops, value) in [
        // 70 reads take 35 us, and 30 writes 30.
        (reads, writes, 100e6 / 65.0),
        (reads, None, 2e6 / 0.7),
        (None, writes, 1e6 / 0.3),
    ] {
        let limits = Limits {
            core_read_iops,
            core_write_iops,
            ..Limits::default()
        };
        let cm6 = model("kioxia-cm6");
        let expected = expect(&asked(Level::L50), &cm6, &limits).expect("possible");
        let mixed = workload(&expected, "random_mixed_70_30");
        assert_eq!(mixed.binding().bound, "the engine's cores");
        assert_near(mixed.value(), value, "the mix");
        let said = |note: &&str| note.contains("random requests only");
        assert!(expected.notes.iter().any(said));
    }
}

#[test]
fn mirrors_log_nothing_and_are_not_told_so() {
    for (level, logs) in [(Level::L1, false), (Level::L10, false), (Level::L5, true)] {
        let expected = answer(&asked(level), &model("kioxia-cm7"));
        for name in ["degraded_random_write", "degraded_sequential_write"] {
            let work = workload(&expected, name);
            let told = work.bounds.iter().map(|bound| bound.bound);
            let told: Vec<&str> = told.chain(work.note).collect();
            let told = told.join("; ");
            assert_eq!(told.contains("log appends"), logs, "{level}: {told}");
            assert_eq!(
                told.contains("(--write-hole auto)"),
                logs,
                "{level}: {told}"
            );
        }
    }
}

#[test]
fn one_arm_is_shared_by_reads_and_writes() {
    let disks = Asked {
        drives: 12,
        ..asked(Level::L5)
    };
    let expected = answer(&disks, &model("hdd-7200"));
    // Two reads and two writes, one arm: 12 · 170 / 4.
    assert_near(
        workload(&expected, "random_write").value(),
        510.0,
        "one arm",
    );
    let strict = workload(&expected, "random_write_strict");
    assert!(strict.value() <= 510.0, "logging does not make it faster");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let cm7 = model("kioxia-cm7");
    let refuse = |change: &dyn Fn(&mut Asked), says: &str| {
        let mut asked = asked(Level::L50);
        change(&mut asked);
        let error = expect(&asked, &cm7, &Limits::default()).expect_err(says);
        assert!(error.contains(says), "{error}");
    };
    refuse(&|asked| asked.group_size = None, "group");
    refuse(&|asked| asked.group_size = Some(5), "24");
    refuse(&|asked| asked.drives = 0, "none to serve");
    refuse(&|asked| asked.spares = 24, "none to serve");
    refuse(&|asked| asked.spares = 25, "none to serve");
    refuse(&|asked| asked.lost = Some(2), "survives the loss of 1");
    refuse(&|asked| asked.parity = Some(2), "parity");
    refuse(&|asked| asked.chunk_bytes = 1000, "chunk");
    refuse(&|asked| asked.chunk_bytes = 2 << 20, "chunk");
    let one_group = |asked: &mut Asked, drives, level| {
        *asked = Asked {
            drives,
            level,
            group_size: None,
            ..*asked
        };
    };
    refuse(&|asked| one_group(asked, 65, Level::L5), "64");
    refuse(&|asked| one_group(asked, 2, Level::L5), "3");
    refuse(&|asked| one_group(asked, 24, Level::Nm), "parity");
    let mut small = cm7.clone();
    small.capacity_bytes.value = 1 << 20;
    let error = expect(&asked(Level::L50), &small, &Limits::default()).expect_err("small");
    assert!(error.contains("16MiB is the least"), "{error}");
}

#[test]
fn levels_without_redundancy_have_no_figures_for_losses() {
    let expected = answer(&asked(Level::L0), &model("kioxia-cm7"));
    let names: Vec<&str> = expected.workloads.iter().map(|work| work.name).collect();
    assert_eq!(
        names,
        [
            "random_read",
            "random_write",
            "random_mixed_70_30",
            "sequential_read",
            "sequential_write"
        ]
    );
    let none = Asked {
        lost: Some(0),
        ..asked(Level::L6)
    };
    let expected = answer(&none, &model("kioxia-cm7"));
    assert!(
        expected
            .workloads
            .iter()
            .all(|work| !work.name.starts_with("degraded"))
    );
}
