//! Made-up hosts: a laptop's virtual machine, a server with two sockets, hosts that lack something.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use control::request::{DriveSpec, HedgedReads, Level, WriteHole};
use control::view::{
    ArrayState, ArrayView, Count, DriveState, DriveView, EngineStatus, HoldView, IoCounters,
    LEFT_WRONG, LostView, MemberState, MemberView, PaceView, ReactorView, StatusView,
};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

/// A made-up host.
struct Host {
    folder: TempDir,
}

impl Host {
    /// A sound server with one socket and eight isolated cores, without drives.
    fn sound() -> Host {
        let host = Host {
            folder: tempfile::tempdir().expect("a folder"),
        };
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.12.3-amd64\n"),
            ("proc/sys/kernel/io_uring_disabled", "0\n"),
            (
                "proc/self/status",
                "Name:\tx\nCpus_allowed_list:\t0-7\nSeccomp:\t0\n",
            ),
            (
                "proc/self/limits",
                "Limit   Soft Limit  Hard Limit  Units\n\
                 Max open files            1024    65536   files\n\
                 Max locked memory         unlimited unlimited bytes\n",
            ),
            (
                "proc/cpuinfo",
                "processor : 0\nflags\t\t: fpu avx2 avx512f gfni\n",
            ),
            ("proc/stat", "cpu  90 0 10 900 0 0 0 0 0 0\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n"),
            ("proc/self/cgroup", "0::/system.slice/garboard.service\n"),
            ("dev/kvm", "x"),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/cpu/isolated", "2-7\n"),
            ("sys/devices/system/cpu/nohz_full", "2-7\n"),
            ("proc/sys/kernel/numa_balancing", "0\n"),
            ("sys/kernel/mm/ksm/run", "0\n"),
            ("sys/devices/system/node/online", "0\n"),
            ("sys/devices/system/node/node0/cpulist", "0-7\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "512\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "500\n",
            ),
        ] {
            host.write(path, text);
        }
        host
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn link(&self, from: &str, to: &str) {
        let from = self.path().join(from);
        fs::create_dir_all(from.parent().expect("in a folder")).expect("made");
        symlink(self.path().join(to), from).expect("linked");
    }

    /// A sound NVMe drive `nvme{number}n1` on a NUMA node, with a controller of its own.
    fn nvme(&self, number: u32, node: &str) {
        let function = format!("sys/devices/pci0000:00/0000:{:02x}:00.0", 0x40 + number);
        let drive = format!("{function}/nvme/nvme{number}/nvme{number}n1");
        for (name, text) in [
            ("queue/scheduler", "[none] mq-deadline\n"),
            ("queue/rotational", "0\n"),
            ("queue/write_cache", "write through\n"),
            ("queue/logical_block_size", "4096\n"),
            ("queue/physical_block_size", "4096\n"),
            ("queue/max_sectors_kb", "1024\n"),
            ("queue/max_hw_sectors_kb", "2048\n"),
            ("queue/io_timeout", "10000\n"),
        ] {
            self.write(&format!("{drive}/{name}"), text);
        }
        for queue in 0..8 {
            self.write(&format!("{drive}/mq/{queue}/cpu_list"), "0\n");
        }
        for (name, text) in [
            ("current_link_width", "4\n"),
            ("max_link_width", "4\n"),
            ("current_link_speed", "32.0 GT/s PCIe\n"),
            ("max_link_speed", "32.0 GT/s PCIe\n"),
            ("numa_node", node),
        ] {
            self.write(&format!("{function}/{name}"), text);
        }
        self.link(&format!("sys/block/nvme{number}n1"), &drive);
        self.link(&format!("sys/class/block/nvme{number}n1"), &drive);
        self.write(&format!("dev/nvme{number}n1"), "");
    }

    /// Changes one file of drive `nvme{number}n1`, or of its controller (`../../../name`).
    fn nvme_has(&self, number: u32, name: &str, text: &str) {
        self.write(&format!("sys/block/nvme{number}n1/{name}"), text);
    }

    fn examine(&self, known: Option<&Known>) -> Vec<Finding> {
        let tree = Tree::new(self.path().to_owned());
        let findings = examine(&tree, &RingAnswer::NotAsked, known);
        are_complete(&findings);
        findings
    }

    /// The only finding of that check that is not good.
    fn finds(&self, check: &str, known: Option<&Known>) -> Finding {
        let mut found = self.examine(known);
        found.retain(|finding| finding.check == check && finding.severity != Severity::Good);
        assert_eq!(found.len(), 1, "{check}: {found:#?}");
        found.remove(0)
    }

    /// Everything that is not good.
    fn complaints(&self, known: Option<&Known>) -> Vec<&'static str> {
        let findings = self.examine(known).into_iter();
        let bad = findings.filter(|finding| finding.severity != Severity::Good);
        bad.map(|finding| finding.check).collect()
    }
}

/// Whatever is not good says what it costs and what to do, or that there is nothing to do.
fn are_complete(findings: &[Finding]) {
    for finding in findings {
        let good = finding.severity == Severity::Good;
        assert_eq!(finding.fix.is_none(), good, "{finding:?}");
        // The engine's own warnings say it themselves.
        let says = good || finding.check == "engine";
        assert_eq!(finding.costs.is_none(), says, "{finding:?}");
        for text in [&Some(finding.found.clone()), &finding.costs, &finding.fix] {
            let text = text.as_deref().unwrap_or_default();
            assert!(!text.contains("  ") && text == text.trim(), "{text:?}");
        }
    }
}

fn reactor(core: u16) -> ReactorView {
    ReactorView {
        reactor: core,
        core,
        node: None,
        state: "parked".into(),
        busy_time_us_total: 0,
        idle_time_us_total: 0,
        stalls_total: 0,
        stalled_time_us_total: 0,
        requests_total: 0,
    }
}

fn drive(number: u32, spec: DriveSpec) -> DriveView {
    DriveView {
        name: format!("d{number}"),
        uuid: Uuid::from_u128(number.into()),
        spec,
        identity: String::new(),
        state: DriveState::Member,
        array: Some("a".into()),
        member: u16::try_from(number).ok(),
        pool: None,
        model: None,
        serial: None,
        size_bytes: 1 << 30,
        block_bytes: 4096,
        physical_block_bytes: 4096,
        atomic_bytes: 4096,
        access: "io_uring, direct".into(),
        write_cache: "none".into(),
        signature: None,
        cause: None,
        node: None,
        counters: IoCounters::default(),
    }
}

/// An engine on CPUs `cores` with a RAID 6 `a` of those drives.
fn engine(cores: &[u16], drives: Vec<DriveView>) -> Known {
    let members = drives.iter().enumerate().map(|(number, drive)| MemberView {
        member: u16::try_from(number).expect("few"),
        group: 0,
        state: MemberState::Online,
        drive: Some(drive.name.clone()),
        cause: None,
        pace: None,
    });
    let array = ArrayView {
        start_warnings: Vec::new(),
        stopped_pass: None,
        name: "a".into(),
        uuid: Uuid::from_u128(99),
        level: Level::Raid6,
        state: ArrayState::Optimal,
        torn_without: Vec::new(),
        members: members.collect(),
        group_size: u16::try_from(drives.len()).expect("few"),
        parity: 2,
        chunk_bytes: 65536,
        stripe_bytes: 131_072,
        block_bytes: 4096,
        member_bytes: 1 << 30,
        spares: Vec::new(),
        pool: None,
        size_bytes: 1 << 31,
        free_bytes: 1 << 31,
        extent_bytes: 1 << 24,
        write_hole: WriteHole::Auto,
        rebuild_floor_bytes_per_second: 0,
        latency_target_us: None,
        hold_timeout_ms: None,
        hold: None,
        lost: None,
        unrepaired_blocks: 0,
        node: None,
        reactors: Vec::new(),
        scrub_every_s: None,
        hedged_reads: HedgedReads::Auto,
        unwritten_regions: false,
        scrub_rate_bytes_per_second: None,
        update: 1,
        volumes: 0,
        jobs: Vec::new(),
        cause: None,
        warnings: Vec::new(),
    };
    Known {
        status: StatusView {
            attention: Vec::new(),
            version: "0".into(),
            process: 1,
            uptime_s: 1,
            drives: Count::default(),
            arrays: Count::default(),
            volumes: Count::default(),
            exports: Count::default(),
            jobs_running: 0,
            engine: EngineStatus {
                reactors: cores.iter().map(|core| reactor(*core)).collect(),
                ..EngineStatus::default()
            },
        },
        drives,
        arrays: vec![array],
        exports: Vec::new(),
    }
}

fn block(number: u32) -> DriveView {
    let path = format!("/dev/nvme{number}n1").into();
    drive(number, DriveSpec::Block { path })
}

#[test]
fn a_sound_server_has_nothing_to_complain_of() {
    let host = Host::sound();
    for number in 0..4 {
        host.nvme(number, "0\n");
    }
    assert_eq!(host.complaints(None), [""; 0]);
    let engine = engine(&[2, 3], (0..4).map(block).collect());
    assert_eq!(host.complaints(Some(&engine)), [""; 0]);
    // And it was looked at: each drive's link and cache among others.
    let links = host.examine(Some(&engine)).into_iter();
    let links = links.filter(|finding| finding.check == "link");
    assert_eq!(links.count(), 4);
}

#[test]
fn reactors_that_stand_still_are_told_with_their_cpu() {
    let host = Host::sound();
    let stands_still = |us| {
        let mut known = engine(&[2, 3], Vec::new());
        let worst = &mut known.status.engine.reactors[1];
        (worst.busy_time_us_total, worst.idle_time_us_total) = (4_000_000, 6_000_000);
        (worst.stalls_total, worst.stalled_time_us_total) = (5, us);
        known
    };
    let found = host.finds("stalls", Some(&stands_still(12_340)));
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        found.found,
        "the reactor on CPU 3 stood still 5 times for a millisecond or more, 0.123 % of its time"
    );
    // One request of a thousand does not meet these.
    let known = stands_still(9_900);
    assert!(!host.complaints(Some(&known)).contains(&"stalls"));
    let told = host.examine(Some(&known)).into_iter();
    let told =
        told.filter(|finding| finding.check == "stalls" && finding.found.contains("0.099 %"));
    assert_eq!(told.count(), 1);
}

/// A virtual machine on a laptop: two CPUs, one drive, nothing made ready.
fn laptop() -> Host {
    let host = Host::sound();
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "5.15.0-91-generic\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-1\nSeccomp:\t0\n"),
        (
            "proc/self/limits",
            "Max open files            1024   2048   files\n\
             Max locked memory         8388608  8388608 bytes\n",
        ),
        ("proc/cpuinfo", "flags : fpu sse2 avx2 hypervisor\n"),
        ("proc/stat", "cpu  100 0 0 800 0 0 0 100 50 0\n"),
        (
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/vda2 partition 1 0 -2\n",
        ),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/devices/system/cpu/isolated", "\n"),
        (
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            "0\n",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always advise [never]\n",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
        ),
        ("sys/block/vda/queue/scheduler", "none [mq-deadline]\n"),
        ("sys/block/vda/queue/rotational", "0\n"),
        ("sys/block/vda/queue/write_cache", "write back\n"),
        ("sys/block/vda/queue/logical_block_size", "512\n"),
        ("sys/block/vda/queue/physical_block_size", "4096\n"),
        ("sys/block/vda/queue/max_sectors_kb", "128\n"),
        ("sys/block/vda/queue/max_hw_sectors_kb", "4096\n"),
        ("sys/block/vda/mq/0/cpu_list", "0, 1\n"),
        ("sys/block/loop0/queue/scheduler", "none [mq-deadline]\n"),
    ] {
        host.write(path, text);
    }
    fs::remove_file(host.path().join("dev/kvm")).expect("there");
    host
}

#[test]
fn a_laptops_virtual_machine_is_told_what_it_lacks_and_nothing_is_critical() {
    let host = laptop();
    let mut complaints = host.complaints(None);
    complaints.sort_unstable();
    assert_eq!(
        complaints,
        [
            "block_size",
            "clock",
            "cores",
            "huge_pages",
            "isolation",
            "kernel",
            "kvm",
            "memlock",
            "open_files",
            "queues",
            "request_size",
            "scheduler",
            "swap",
            "virtual_machine",
            "write_cache",
        ]
    );
    for finding in host.examine(None) {
        assert_ne!(finding.severity, Severity::Critical, "{finding:?}");
        let good = finding.severity == Severity::Good;
        assert_eq!(finding.costs.is_none(), good, "{finding:?}");
        assert!(!finding.subject.starts_with("loop"), "{finding:?}");
    }
    let locked = host.finds("memlock", None);
    assert_eq!(locked.severity, Severity::Notice);
    assert!(locked.found.contains("8MiB"), "{}", locked.found);
    // Who may lock any amount is not held to the limit.
    host.write("proc/self/status", "CapEff:\t000001ffffffffff\n");
    assert!(!host.complaints(None).contains(&"memlock"));
    host.write("proc/self/status", "CapEff:\t000001ffffffbfff\n");
    assert!(host.complaints(None).contains(&"memlock"));
    let stolen = host.finds("virtual_machine", None);
    assert_eq!(stolen.severity, Severity::Warning);
    assert!(stolen.found.contains("10.0 %"), "{}", stolen.found);
    let fix = host.finds("scheduler", None).fix.expect("a fix");
    assert_eq!(fix, "echo none > /sys/block/vda/queue/scheduler");
}

#[test]
fn findings_are_in_order_of_their_weight() {
    let host = Host::sound();
    host.write("proc/sys/kernel/io_uring_disabled", "2\n");
    host.write("sys/devices/system/cpu/isolated", "\n");
    host.write("proc/cpuinfo", "flags : fpu sse2\n");
    let order: Vec<Severity> = host.examine(None).iter().map(|f| f.severity).collect();
    assert!(order.is_sorted());
    assert_eq!(
        order[..3],
        [Severity::Critical, Severity::Warning, Severity::Notice]
    );
}

#[test]
fn two_sockets_with_drives_on_the_wrong_one() {
    let host = Host::sound();
    host.write("sys/devices/system/node/online", "0-1\n");
    host.write("sys/devices/system/node/node0/cpulist", "0-3\n");
    host.write("sys/devices/system/node/node1/cpulist", "4-7\n");
    for number in 0..4 {
        host.nvme(number, "1\n");
    }
    let wrong = engine(&[2, 3], (0..4).map(block).collect());
    assert_eq!(host.complaints(Some(&wrong)), ["numa"; 4]);
    let finding = host.examine(Some(&wrong)).remove(0);
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.subject, "nvme0n1 (drive d0)");
    assert!(finding.fix.expect("a fix").contains("--cores of node 1"));
    // On their own node nobody complains.
    let right = engine(&[4, 5], (0..4).map(block).collect());
    assert_eq!(host.complaints(Some(&right)), [""; 0]);
    // Reactors on both nodes, and an array over both.
    host.nvme_has(0, "../../../numa_node", "0\n");
    let both = engine(&[2, 4], (0..4).map(block).collect());
    assert_eq!(host.complaints(Some(&both)), ["numa"]);
    let array = host.examine(Some(&both)).remove(0);
    assert_eq!(array.subject, "array a");
    assert!(array.found.contains("on none of them two thirds"));
    let mut placed = both.clone();
    placed.arrays[0].node = Some(1);
    let array = host.examine(Some(&placed)).remove(0);
    assert!(
        array
            .found
            .contains("most on node 1: reactors there serve it")
    );
    let mut good = host.examine(Some(&placed)).into_iter();
    let reactors = good.find(|finding| (&*finding.subject, finding.check) == ("host", "numa"));
    assert!(
        reactors
            .expect("said")
            .found
            .contains("on nodes 0-1; an array")
    );
    // Without an engine the drives' nodes are named.
    let nodes = host.finds("drive_nodes", None);
    assert_eq!(
        nodes.found,
        "node 0: nvme0n1; node 1: nvme1n1, nvme2n1, nvme3n1"
    );
}

#[test]
fn io_uring_that_is_refused_is_critical_and_says_why() {
    let host = Host::sound();
    host.write("proc/sys/kernel/io_uring_disabled", "2\n");
    let finding = host.finds("io_uring", None);
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.fix.expect("a fix").contains("io_uring_disabled=0"));
    host.write("proc/sys/kernel/io_uring_disabled", "1\n");
    assert_eq!(host.finds("io_uring", None).severity, Severity::Notice);

    let tree = Tree::new(host.path().to_owned());
    host.write("proc/sys/kernel/io_uring_disabled", "0\n");
    let refused = RingAnswer::Refused("Operation not permitted".into());
    let ask = |ring: &RingAnswer| {
        let findings = examine(&tree, ring, None).into_iter();
        let mut found = findings.filter(|finding| finding.check == "io_uring");
        found.next().expect("looked at")
    };
    assert_eq!(ask(&refused).severity, Severity::Critical);
    assert!(!ask(&refused).found.contains("seccomp"));
    host.write("proc/self/status", "Cpus_allowed_list:\t0-7\nSeccomp:\t2\n");
    assert!(ask(&refused).found.contains("seccomp"));
    assert_eq!(ask(&RingAnswer::Given("deferred")).severity, Severity::Good);
    assert_eq!(ask(&RingAnswer::Given("plain")).severity, Severity::Notice);
}

#[test]
fn old_kernels_are_told_apart() {
    let host = Host::sound();
    for (release, severity) in [
        ("5.14.0-362.el9", Severity::Critical),
        ("5.15.0", Severity::Notice),
        ("6.0.19", Severity::Notice),
    ] {
        host.write("proc/sys/kernel/osrelease", release);
        assert_eq!(host.finds("kernel", None).severity, severity, "{release}");
    }
    host.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64");
    assert_eq!(host.complaints(None), [""; 0]);
    host.write("proc/sys/kernel/osrelease", "10.2");
    assert_eq!(host.complaints(None), [""; 0]);
}

#[test]
fn threads_of_one_core_are_seen() {
    let host = Host::sound();
    for cpu in 0..8 {
        let pair = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
        host.write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            &pair,
        );
    }
    let alone = host.finds("smt", None);
    assert_eq!(alone.severity, Severity::Notice);
    assert_eq!(alone.found, "8 CPUs are 4 cores");
    assert!(alone.fix.expect("a fix").contains("among 0-3"));
    let both = engine(&[2, 6], Vec::new());
    let shared = host.finds("smt", Some(&both));
    assert_eq!(shared.severity, Severity::Warning);
    assert!(shared.found.contains("CPUs 2,6"), "{}", shared.found);
    let apart = engine(&[2, 3], Vec::new());
    assert_eq!(host.finds("smt", Some(&apart)).severity, Severity::Notice);
}

#[test]
fn what_holds_cores_back_is_seen() {
    let host = Host::sound();
    host.write(
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "powersave\n",
    );
    host.write(
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor",
        "performance\n",
    );
    assert_eq!(
        host.finds("frequency", None).found,
        "CPUs 1 have the governor powersave"
    );
    host.write("sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n");
    host.write(
        "sys/fs/cgroup/system.slice/garboard.service/cpu.max",
        "max 100000\n",
    );
    let quota = host.finds("cpu_quota", None);
    assert!(
        quota.found.contains("/system.slice may use 200000 100000"),
        "{}",
        quota.found
    );
    let outside = engine(&[1, 2], Vec::new());
    let finding = host.finds("isolation", Some(&outside));
    assert_eq!(finding.found, "reactors run on CPUs 1, isolated are 2-7");
}

#[test]
fn strict_iommu_is_seen() {
    let host = Host::sound();
    for (group, kind) in [(0, "DMA-FQ\n"), (1, "identity\n")] {
        host.write(&format!("sys/kernel/iommu_groups/{group}/type"), kind);
    }
    assert_eq!(host.complaints(None), [""; 0]);
    host.write("sys/kernel/iommu_groups/1/type", "DMA\n");
    let finding = host.finds("iommu", None);
    assert_eq!(finding.found, "1 of 2 groups translate DMA strictly");
}

#[test]
fn a_slow_link_says_what_it_loses() {
    let host = Host::sound();
    host.nvme(0, "0\n");
    host.nvme_has(0, "../../../current_link_width", "2\n");
    let finding = host.finds("link", None);
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(
        finding.found,
        "linked by 2 lanes of 32.0 GT/s PCIe: 7.8 GB/s; it could have 4 of 32.0 GT/s PCIe"
    );
    assert!(finding.costs.expect("said").contains("7.8 of 15.7 GB/s"));
    host.nvme_has(0, "../../../current_link_width", "4\n");
    host.nvme_has(0, "../../../current_link_speed", "16.0 GT/s PCIe\n");
    assert!(
        host.finds("link", None)
            .costs
            .expect("said")
            .contains("7.8 of 15.7")
    );
}

#[test]
fn members_that_share_hardware_are_named() {
    let host = Host::sound();
    for number in 0..4 {
        host.nvme(number, "0\n");
    }
    // A second namespace of the controller of the first drive, and a partition of the second.
    let function = "sys/devices/pci0000:00/0000:40:00.0/nvme/nvme0";
    host.write(&format!("{function}/nvme0n2/queue/rotational"), "0\n");
    host.link("sys/class/block/nvme0n2", &format!("{function}/nvme0n2"));
    host.write("dev/nvme0n2", "");
    let second = "sys/devices/pci0000:00/0000:41:00.0/nvme/nvme1/nvme1n1";
    host.write(&format!("{second}/nvme1n1p1/partition"), "1\n");
    host.link("sys/class/block/nvme1n1p1", &format!("{second}/nvme1n1p1"));
    host.write("dev/nvme1n1p1", "");
    host.write("dev/ng1n1", "");
    let named = |number, path: &str| drive(number, DriveSpec::Block { path: path.into() });
    let drives = vec![
        block(0),
        named(1, "/dev/nvme0n2"),
        block(2),
        named(3, "/dev/ng1n1"),
        named(4, "/dev/nvme1n1p1"),
    ];
    let mut known = engine(&[2], drives);
    let controller = host.finds("shared_controller", Some(&known));
    assert_eq!(
        controller.found,
        "drives d0, d1 hang on one controller, 0000:40:00.0"
    );
    assert_eq!(
        controller.severity,
        Severity::Notice,
        "two of two that may fail"
    );
    let device = host.finds("shared_device", Some(&known));
    assert_eq!(device.found, "drives d3, d4 lie on one device, nvme1n1");
    known.arrays[0].parity = 1;
    for check in ["shared_controller", "shared_device"] {
        assert_eq!(host.finds(check, Some(&known)).severity, Severity::Warning);
    }
}

#[test]
fn a_namespace_with_several_paths_has_a_link_and_a_node() {
    let host = Host::sound();
    host.nvme(0, "0\n");
    fs::remove_file(host.path().join("sys/block/nvme0n1")).expect("there");
    let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    host.write(&format!("{subsystem}/nvme0n1/queue/rotational"), "0\n");
    let function = "sys/devices/pci0000:00/0000:40:00.0";
    host.link(
        &format!("{subsystem}/nvme0"),
        &format!("{function}/nvme/nvme0"),
    );
    host.link("sys/block/nvme0n1", &format!("{subsystem}/nvme0n1"));
    host.write(&format!("{function}/current_link_width"), "1\n");
    assert_eq!(host.finds("link", None).subject, "nvme0n1");
}

#[test]
fn files_of_one_file_system_are_one_device() {
    let host = Host::sound();
    host.nvme(0, "0\n");
    host.write("srv/0.img", "");
    host.write("srv/1.img", "");
    let tree = Tree::new(host.path().to_owned());
    let (major, minor) = tree.device_of(Path::new("/srv/0.img")).expect("there");
    host.link(
        &format!("sys/dev/block/{major}:{minor}"),
        "sys/devices/pci0000:00/0000:40:00.0/nvme/nvme0/nvme0n1",
    );
    let file = |number| {
        let path = format!("/srv/{number}.img").into();
        drive(
            number,
            DriveSpec::File {
                path,
                size_bytes: None,
                create: false,
            },
        )
    };
    let known = engine(&[2], vec![file(0), file(1), file(9)]);
    let finding = host.finds("shared_device", Some(&known));
    assert_eq!(finding.found, "drives d0, d1 lie on one device, nvme0n1");
}

#[test]
fn files_that_promise_more_than_their_file_system_has_are_told_together() {
    let host = Host::sound();
    for number in 0..2 {
        host.write(&format!("srv/{number}.img"), "");
    }
    let file = |number| {
        let path = format!("/srv/{number}.img").into();
        let spec = DriveSpec::File {
            path,
            size_bytes: None,
            create: false,
        };
        DriveView {
            size_bytes: 1 << 40,
            ..drive(number, spec)
        }
    };
    // The last is not there, and takes nothing.
    let known = engine(&[2], vec![file(0), file(1), file(9)]);
    let finding = host.finds("space", Some(&known));
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.subject, "drives d0, d1");
    let text = "d0, d1 may still take 2TiB of the file system of /srv, which has ";
    assert!(finding.found.starts_with(text), "{}", finding.found);
    let mut small = known;
    for drive in &mut small.drives {
        drive.size_bytes = 4096;
    }
    assert!(!host.complaints(Some(&small)).contains(&"space"));
}

#[test]
fn an_array_that_waited_in_vain_says_what_for() {
    let host = Host::sound();
    let mut known = engine(&[2], (0..4).map(block).collect());
    known.arrays[0].state = ArrayState::Failed;
    let lost = host.finds("state", Some(&known));
    assert_eq!(lost.found, "too many members are lost");
    known.arrays[0].hold = Some(HoldView {
        waited_s: 6,
        left_s: None,
        requests: 1,
        members: Vec::new(),
    });
    let in_vain = host.finds("state", Some(&known));
    assert_eq!(in_vain.severity, Severity::Critical);
    assert_eq!(in_vain.found, "it waited in vain for members");
    assert!(in_vain.fix.expect("told").contains("make space"));
}

#[test]
fn spares_that_forget_and_blocks_that_are_wrong_are_told() {
    let host = Host::sound();
    for number in 0..4 {
        host.nvme(number, "0\n");
    }
    let after = |change: &dyn Fn(&mut Known), check: &str| {
        let mut known = engine(&[2], (0..4).map(block).collect());
        change(&mut known);
        host.finds(check, Some(&known))
    };
    let spare = |known: &mut Known| {
        let mut spare = known.drives[1].clone();
        spare.name = "spare".to_owned();
        spare.state = DriveState::Spare;
        spare.spec = DriveSpec::Memory { size_bytes: 1 };
        known.drives.push(spare);
    };
    let forgets = after(&spare, "pretended");
    assert_eq!(forgets.severity, Severity::Warning);
    assert_eq!(forgets.subject, "drive spare");
    let rotten = |known: &mut Known| {
        known.arrays[0].unrepaired_blocks = 3;
        let said = format!("{LEFT_WRONG}3 blocks; look");
        known.arrays[0].warnings.push(said);
    };
    assert_eq!(after(&rotten, "scrub").severity, Severity::Warning);
    // And not once more in the engine's words.
    let mut known = engine(&[2], (0..4).map(block).collect());
    rotten(&mut known);
    let mut told = host.examine(Some(&known));
    told.retain(|finding| finding.found.starts_with(LEFT_WRONG));
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn arrays_say_what_they_would_lose() {
    let host = Host::sound();
    for number in 0..4 {
        host.nvme(number, "0\n");
    }
    let sound = || engine(&[2], (0..4).map(block).collect());
    let after = |change: &dyn Fn(&mut Known), check: &str| {
        let mut known = sound();
        change(&mut known);
        host.finds(check, Some(&known))
    };
    let memory = |known: &mut Known| known.drives[1].spec = DriveSpec::Memory { size_bytes: 1 };
    assert_eq!(after(&memory, "pretended").severity, Severity::Critical);
    let larger = |known: &mut Known| known.drives[1].size_bytes = 3 << 30;
    let sizes = after(&larger, "sizes");
    assert_eq!(
        sizes.costs.as_deref(),
        Some("2GiB of other members is not used")
    );
    let degraded = |known: &mut Known| known.arrays[0].state = ArrayState::Degraded;
    assert_eq!(after(&degraded, "state").severity, Severity::Warning);
    let unable = |known: &mut Known| {
        known.arrays[0].state = ArrayState::Stopped;
        known.arrays[0].cause = Some("failed: has 1; bring more".into());
        known.arrays[0].warnings.push("failed: has 1".into());
    };
    let unable = after(&unable, "state");
    assert_eq!(unable.severity, Severity::Critical);
    assert_eq!(unable.found, "it cannot start: failed: has 1; bring more");
    let mut stopped = sound();
    stopped.arrays[0].state = ArrayState::Stopped;
    assert!(!host.complaints(Some(&stopped)).contains(&"state"));
    let failed = |known: &mut Known| known.arrays[0].state = ArrayState::Failed;
    assert_eq!(after(&failed, "state").severity, Severity::Critical);
    let bare = |known: &mut Known| known.arrays[0].parity = 0;
    assert_eq!(after(&bare, "redundancy").severity, Severity::Warning);
    let wide = |known: &mut Known| {
        known.arrays[0].parity = 1;
        known.arrays[0].group_size = 24;
    };
    assert_eq!(after(&wide, "redundancy").severity, Severity::Notice);
    let worn = |known: &mut Known| {
        let pace = |read_errors| PaceView {
            read_errors,
            ..PaceView::default()
        };
        known.arrays[0].members[0].pace = Some(pace(arrays::READ_ERRORS_A_DAY - 1));
        known.arrays[0].members[1].pace = Some(pace(arrays::READ_ERRORS_A_DAY));
    };
    let worn = after(&worn, "read_errors");
    assert_eq!(worn.severity, Severity::Warning);
    assert!(worn.found.starts_with("drive d1 could not read 16 times"));
    let off = |known: &mut Known| known.arrays[0].write_hole = WriteHole::Off;
    assert!(
        after(&off, "write_hole")
            .fix
            .expect("a fix")
            .contains("modify a")
    );
    let missing = |known: &mut Known| {
        known.drives[2].state = DriveState::Missing;
        known.drives[2].cause = Some("no such file".into());
    };
    assert_eq!(
        after(&missing, "drive").found,
        "it is missing: no such file"
    );
    let buffered = |known: &mut Known| known.drives[0].access = "io_uring, buffered (x)".into();
    assert_eq!(after(&buffered, "access").subject, "drive d0");
    let warned = |known: &mut Known| known.arrays[0].warnings.push("look".into());
    assert_eq!(after(&warned, "engine").found, "look");
}

#[test]
fn blocks_that_are_lost_are_critical() {
    let host = Host::sound();
    for number in 0..4 {
        host.nvme(number, "0\n");
    }
    let mut known = engine(&[2], (0..4).map(block).collect());
    known.arrays[0].lost = Some(LostView {
        blocks: 2,
        bytes: 8192,
        runs: Vec::new(),
    });
    let lost = host.finds("lost_blocks", Some(&known));
    assert_eq!(lost.severity, Severity::Critical);
    assert!(lost.fix.expect("a fix").contains("array show a"));
}

#[test]
fn what_is_lost_is_filled_again_by_the_command_that_is_told() {
    let host = Host::sound();
    for number in 0..5 {
        host.nvme(number, "0\n");
    }
    let after = |change: &dyn Fn(&mut Known), check: &str| {
        let mut known = engine(&[2], (0..4).map(block).collect());
        known.arrays[0].state = ArrayState::Degraded;
        known.arrays[0].members[1].state = MemberState::Failed;
        known.arrays[0].members[1].drive = None;
        known.drives[1].state = DriveState::Failed;
        known.drives[1].array = Some("a".into());
        known.drives[1].member = Some(1);
        change(&mut known);
        host.finds(check, Some(&known))
    };
    let state = after(&|_| (), "state");
    assert_eq!(
        state.fix.as_deref(),
        Some("garboard array replace a --member 1 --drive D, a free one")
    );
    let costs = state.costs.expect("said");
    assert!(costs.starts_with("it survives one more loss,"), "{costs}");
    let spare = |known: &mut Known| {
        known.drives.push(block(4));
        known.drives[4].state = DriveState::Free;
    };
    // Nobody is told to put what is to be kept onto a drive that keeps nothing.
    let memory = |known: &mut Known| {
        spare(known);
        known.drives[4].spec = DriveSpec::Memory {
            size_bytes: 1 << 30,
        };
    };
    let fix = after(&memory, "state").fix.expect("one");
    assert!(fix.ends_with("--drive D, a free one"), "{fix}");
    let fills = "garboard array replace a --member 1 --drive d4";
    assert_eq!(after(&spare, "state").fix.as_deref(), Some(fills));
    let fix = after(&spare, "drive").fix.expect("one");
    assert!(fix.ends_with(fills), "{fix}");
    let missing = |known: &mut Known| {
        known.drives[1].state = DriveState::Missing;
    };
    let fix = after(&missing, "drive").fix.expect("one");
    assert!(fix.contains("garboard drive add PLACE --name d1"), "{fix}");
    assert!(fix.contains("array replace a --member 1"), "{fix}");
    let rebuilds = |known: &mut Known| {
        spare(known);
        known.drives[4].state = DriveState::Member;
        known.arrays[0].members[1].state = MemberState::Rebuilding;
        known.arrays[0].members[1].drive = Some("d4".into());
        known.arrays[0].jobs = vec![7];
    };
    assert_eq!(
        after(&rebuilds, "state").fix.as_deref(),
        Some("job 7 rebuilds it: garboard job wait 7")
    );
    // Its place is filled: it is nobody's loss any more.
    let left = after(&rebuilds, "drive");
    let costs = Some("nothing: its place is filled".to_owned());
    assert_eq!((left.severity, left.costs), (Severity::Notice, costs));
    assert_eq!(
        left.fix.as_deref(),
        Some("garboard drive wipe d1 --force makes it free")
    );
}

#[test]
fn a_long_timeout_says_who_waits_for_it() {
    let host = Host::sound();
    host.nvme(0, "0\n");
    assert_eq!(host.complaints(None), [""; 0]);
    host.nvme_has(0, "queue/io_timeout", "30000\n");
    let found = host.finds("timeout", None);
    assert_eq!(found.found, "the kernel gives a request up after 30 s");
    let fix = found.fix.expect("one");
    assert!(fix.contains("/sys/block/nvme0n1/queue/io_timeout"), "{fix}");
    assert!(fix.contains("nvme_core.io_timeout"), "{fix}");
    // A disk may well take so long.
    host.nvme_has(0, "queue/rotational", "1\n");
    assert!(!host.complaints(None).contains(&"timeout"));
}

#[test]
fn what_the_kernel_does_with_pages_and_ticks_is_seen() {
    let host = Host::sound();
    host.write("proc/sys/kernel/numa_balancing", "1\n");
    assert!(
        !host.complaints(None).contains(&"numa_balancing"),
        "one node"
    );
    host.write("sys/devices/system/node/online", "0-1\n");
    assert_eq!(
        host.finds("numa_balancing", None).severity,
        Severity::Notice
    );
    host.write("sys/kernel/mm/ksm/run", "1\n");
    assert!(host.finds("ksm", None).found.contains("KSM"));
    host.write("sys/devices/system/cpu/nohz_full", "4-7\n");
    let ticks = host.finds("ticks", None);
    assert!(ticks.found.starts_with("CPUs 2-3 "), "{}", ticks.found);
    host.write("sys/devices/system/cpu/nohz_full", "(null)\n");
    let fix = host.finds("ticks", None).fix.expect("one");
    assert!(fix.contains("nohz_full=2-7"), "{fix}");
}

#[test]
fn an_empty_tree_is_no_reason_to_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = Tree::new(folder.path().to_owned());
    let findings = examine(&tree, &RingAnswer::NotAsked, None);
    assert!(findings.len() > 8, "{findings:?}");
    are_complete(&findings);
}

#[test]
fn lists_of_cpus_are_read_and_written() {
    assert_eq!(nodes::list("0-3,8, 10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(nodes::list(""), [0; 0]);
    assert_eq!(nodes::list("x,5-2,7"), [7]);
    assert_eq!(tree::as_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    assert_eq!(tree::as_list(&[]), "");
    assert!(nodes::list("0-18446744073709551615").len() <= 1 << 16);
}
