//! What the kernel does beside its work: moving and merging pages, ticking.

use nodes::list;

use super::tree::{Tree, as_list};
use super::{Finding, Severity, bad};

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    [numa_balancing(tree), merging(tree), ticks(tree)]
        .into_iter()
        .flatten()
        .collect()
}

fn numa_balancing(tree: &Tree) -> Option<Finding> {
    let mode = tree.number("/proc/sys/kernel/numa_balancing")?;
    if tree.nodes().count() < 2 {
        return None;
    }
    if mode == 0 {
        return Some(Finding::good("host", "numa_balancing", "off"));
    }
    Some(
        bad(
            Severity::Notice,
            "numa_balancing",
            "the kernel moves pages between NUMA nodes by itself",
        )
        .costs(
            "it takes pages away to see who wants them: a reactor that touches such a page of a \
             guest stands still until it is there again",
        )
        .fix("sysctl kernel.numa_balancing=0, with guests and reactors bound to nodes"),
    )
}

fn merging(tree: &Tree) -> Option<Finding> {
    let run = tree.number("/sys/kernel/mm/ksm/run")?;
    if run != 1 {
        return Some(Finding::good("host", "ksm", "equal pages are not merged"));
    }
    Some(
        bad(
            Severity::Notice,
            "ksm",
            "the kernel merges equal pages of guests (KSM)",
        )
        .costs(
            "a read into a merged page copies the page first, in the middle of the request; \
             scanning takes a share of a core and of memory bandwidth",
        )
        .fix("echo 2 > /sys/kernel/mm/ksm/run, or -machine mem-merge=off for guests that matter"),
    )
}

/// Isolated CPUs that the timer still interrupts.
fn ticks(tree: &Tree) -> Option<Finding> {
    let cpus = |name: &str| {
        let text = tree.text(&format!("/sys/devices/system/cpu/{name}"));
        text.map(|text| list(&text)).unwrap_or_default()
    };
    let isolated = cpus("isolated");
    if isolated.is_empty() {
        // Told by the finding on isolation.
        return None;
    }
    let without = cpus("nohz_full");
    let ticking: Vec<u64> = isolated
        .into_iter()
        .filter(|cpu| !without.contains(cpu))
        .collect();
    if ticking.is_empty() {
        let found = format!("none on CPUs {} while one task runs", as_list(&without));
        return Some(Finding::good("host", "ticks", found));
    }
    let cpus = as_list(&ticking);
    Some(
        bad(
            Severity::Notice,
            "ticks",
            format!("CPUs {cpus} are isolated, and the timer still interrupts them"),
        )
        .costs("100 to 1000 interruptions a second of a few microseconds each: the tail's p99.9")
        .fix(format!("boot with nohz_full={cpus} rcu_nocbs={cpus}, too")),
    )
}
