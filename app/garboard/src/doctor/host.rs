//! The host without its CPUs and drives: kernel, `io_uring`, memory, limits, IOMMU.

use super::tree::Tree;
use super::{Finding, RingAnswer, Severity, bad};

/// The oldest kernel that the engine runs on.
const KERNEL_OLDEST: (u64, u64) = (5, 15);
/// The first kernel whose rings answer only when they are asked.
const KERNEL_DEFERRED: (u64, u64) = (6, 1);
/// What one array has pinned of its buffers for one core: less is no help.
const PINNED: u64 = 17 << 20;
/// Its bit in the sets of `/proc/self/status` (capabilities(7)).
const CAP_IPC_LOCK: u64 = 1 << 14;
/// Open files that a host with some hundred drives and queues needs.
const FILES: u64 = 4096;

pub(super) fn findings(tree: &Tree, ring: &RingAnswer) -> Vec<Finding> {
    let mut findings = vec![kernel(tree), io_uring(tree, ring)];
    findings.extend(huge_pages(tree));
    findings.extend(limits(tree));
    findings.extend([iommu(tree), clock(tree), kvm(tree)]);
    findings.extend(swap(tree));
    findings
}

/// `6.1` of `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u64, u64)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(tree: &Tree) -> Finding {
    let release = tree.text("/proc/sys/kernel/osrelease");
    let Some((release, version)) =
        release.and_then(|release| version(&release).map(|version| (release, version)))
    else {
        return bad(Severity::Notice, "kernel", "its version is not to be found")
            .costs("whether it is one that the engine is made for is not known")
            .fix("see that uname -r says 6.1 or later");
    };
    let found = format!("Linux {release}");
    if version < KERNEL_OLDEST {
        return bad(Severity::Critical, "kernel", found)
            .costs("older than 5.15, the oldest that the engine is made for")
            .fix("install a newer kernel, best 6.1 or later");
    }
    if version < KERNEL_DEFERRED {
        return bad(Severity::Notice, "kernel", found)
            .costs(
                "its io_uring interrupts the reactor for answers (DEFER_TASKRUN came with 6.1): \
                 more time per request, and longer tails",
            )
            .fix("install Linux 6.1 or later");
    }
    Finding::good("host", "kernel", found)
}

fn io_uring(tree: &Tree, ring: &RingAnswer) -> Finding {
    let switch = tree.number("/proc/sys/kernel/io_uring_disabled");
    let filtered = tree
        .text("/proc/self/status")
        .is_some_and(|text| field(&text, "Seccomp") == Some("2"));
    let refused = |found: String, fix: &str| {
        bad(Severity::Critical, "io_uring", found)
            .costs("the engine cannot start: every reactor needs a ring for its drives")
            .fix(fix)
    };
    match (ring, switch) {
        (RingAnswer::Refused(why), _) if filtered => refused(
            format!("refused to this process, which has a seccomp filter: {why}"),
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's \
             seccomp profile; and look at sysctl kernel.io_uring_disabled",
        ),
        (RingAnswer::Refused(why), _) => refused(
            format!("refused: {why}"),
            "sysctl kernel.io_uring_disabled=0, or allow it in SELinux or AppArmor",
        ),
        (RingAnswer::NotAsked, Some(2)) => refused(
            "switched off for everybody: kernel.io_uring_disabled is 2".to_owned(),
            "sysctl kernel.io_uring_disabled=0",
        ),
        (_, Some(1)) => bad(
            Severity::Notice,
            "io_uring",
            "only for privileged processes and one group: kernel.io_uring_disabled is 1",
        )
        .costs("an engine that runs as another user is refused")
        .fix("put the engine's user into the group of sysctl kernel.io_uring_group"),
        (RingAnswer::Given("plain"), _) => {
            bad(Severity::Notice, "io_uring", "given, in its plain form")
                .costs("the kernel interrupts the reactor for each answer")
                .fix("install Linux 6.1 or later")
        }
        (RingAnswer::Given(mode), _) => Finding::good("host", "io_uring", format!("given, {mode}")),
        (RingAnswer::NotAsked, _) => Finding::good(
            "host",
            "io_uring",
            "not switched off; the kernel was not asked",
        ),
    }
}

/// The value of `Name:\tvalue` in files like `/proc/self/status`.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn huge_pages(tree: &Tree) -> Vec<Finding> {
    let folder = "/sys/kernel/mm/hugepages";
    let mut pages = Vec::new();
    for name in tree.names(folder) {
        let all = tree
            .number(&format!("{folder}/{name}/nr_hugepages"))
            .unwrap_or(0);
        let free = tree
            .number(&format!("{folder}/{name}/free_hugepages"))
            .unwrap_or(0);
        if all > 0 {
            let size = name.trim_start_matches("hugepages-");
            pages.push(format!("{all} of {size}, {free} free"));
        }
    }
    if pages.is_empty() {
        let thp = tree.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let advised = thp.is_some_and(|text| !text.contains("[never]"));
        let found = if advised {
            "none reserved; shared memory may get transparent ones"
        } else {
            "none, and no transparent ones for shared memory"
        };
        return vec![
            bad(Severity::Notice, "huge_pages", found)
                .costs(
                    "guest memory is in pages of 4 KiB: the copies of writes and reads of rings miss \
                     the TLB more often. The engine itself needs none",
                )
                .fix(
                    "reserve some for guests (sysctl vm.nr_hugepages) and give the guest \
                     hugetlb=on, or echo advise > \
                     /sys/kernel/mm/transparent_hugepage/shmem_enabled",
                ),
        ];
    }
    vec![Finding::good("host", "huge_pages", pages.join("; "))]
}

/// The two limits of a line of `/proc/self/limits`, soft and hard; `None` when there is no limit.
fn limits_of(text: &str, name: &str) -> [Option<u64>; 2] {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let mut words = line.unwrap_or_default().split_whitespace();
    [0; 2].map(|_| words.next().and_then(|word| word.parse().ok()))
}

fn limits(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text("/proc/self/limits") else {
        return Vec::new();
    };
    let locked = memlock(tree, limits_of(&text, "Max locked memory")[0]);
    // The engine takes all that it may have.
    let files = match limits_of(&text, "Max open files")[1] {
        Some(files) if files < FILES => bad(
            Severity::Warning,
            "open_files",
            format!("this user may have {files} files open"),
        )
        .costs("each drive takes one and each queue of a guest two: drives or guests are refused")
        .fix("LimitNOFILE=65536 in the service, or ulimit -Hn 65536 as root"),
        _ => Finding::good("host", "open_files", "enough files may be open"),
    };
    vec![locked, files]
}

/// Whether what the engine asks the kernel to pin is within what may be locked
/// (docs/design/016-pinned-memory.md).
fn memlock(tree: &Tree, limit: Option<u64>) -> Finding {
    let status = tree.text("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    let may_lock_any = capabilities.is_some_and(|set| set & CAP_IPC_LOCK != 0);
    match limit {
        Some(limit) if !may_lock_any && limit < PINNED => bad(
            Severity::Notice,
            "memlock",
            format!("this user may lock {} of memory", units::Size(limit)),
        )
        .costs(
            "busy arrays would have 17 MiB of transfer buffers pinned for each core, and guests \
             with --pin-guest-memory all of theirs: without, the kernel looks the pages up for \
             each transfer",
        )
        .fix("LimitMEMLOCK=infinity in the service, or ulimit -l unlimited as root"),
        Some(limit) if !may_lock_any => {
            let found = format!("this user may lock {} of memory", units::Size(limit));
            Finding::good("host", "memlock", found)
        }
        _ => Finding::good("host", "memlock", "this user may lock any amount of memory"),
    }
}

fn iommu(tree: &Tree) -> Finding {
    let folder = "/sys/kernel/iommu_groups";
    let groups = tree.names(folder);
    if groups.is_empty() {
        return Finding::good(
            "host",
            "iommu",
            "not in use: DMA of drives is not translated",
        );
    }
    let kind = |group: &String| tree.text(&format!("{folder}/{group}/type"));
    let strict = groups
        .iter()
        .filter(|group| kind(group).as_deref() == Some("DMA"));
    let strict = strict.count();
    if strict == 0 {
        let found = format!("{} groups, none translated strictly", groups.len());
        return Finding::good("host", "iommu", found);
    }
    bad(
        Severity::Warning,
        "iommu",
        format!("{strict} of {} groups translate DMA strictly", groups.len()),
    )
    .costs(
        "every drive request maps and unmaps its memory and waits until the IOMMU has forgotten it: \
         the most of what a small request costs the kernel",
    )
    .fix("boot with iommu=pt, or iommu.strict=0, if the drives' firmware is trusted with memory")
}

fn clock(tree: &Tree) -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match tree.text(path).as_deref() {
        Some(slow @ ("hpet" | "acpi_pm" | "jiffies" | "pit")) => bad(
            Severity::Warning,
            "clock",
            format!("the clock source is {slow}"),
        )
        .costs("each look at the clock is a system call and a slow device register")
        .fix("boot with tsc=reliable if the processor's TSC is invariant"),
        Some(fast) => Finding::good("host", "clock", format!("the clock source is {fast}")),
        None => Finding::good("host", "clock", "its source is not to be found"),
    }
}

fn kvm(tree: &Tree) -> Finding {
    if tree.exists("/dev/kvm") {
        return Finding::good("host", "kvm", "/dev/kvm is there");
    }
    bad(Severity::Notice, "kvm", "/dev/kvm is not there")
        .costs("guests on this host are emulated, and slow; the engine does not need it")
        .fix("switch virtualization on in the firmware, load kvm_intel or kvm_amd")
}

fn swap(tree: &Tree) -> Vec<Finding> {
    let swaps = tree.text("/proc/swaps").unwrap_or_default();
    let used = swaps.lines().skip(1).count();
    if used == 0 {
        return vec![Finding::good("host", "swap", "none")];
    }
    vec![
        bad(
            Severity::Notice,
            "swap",
            format!("{used} swap areas are in use"),
        )
        .costs("a reactor that touches a page swapped out stands still, and all its queues do")
        .fix("MemorySwapMax=0 in the engine's service, or swapoff"),
    ]
}
