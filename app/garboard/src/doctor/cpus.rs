//! Cores: how many there are, who else uses them, how fast they go.

use control::view::{ReactorView, StatusView};
use nodes::list;

use super::host::field;
use super::tree::{Tree, as_list};
use super::{Finding, Severity, bad};

const CPUS: &str = "/sys/devices/system/cpu";

/// Time taken by the hypervisor, in parts of a thousand, above which figures are not to be had.
const STEAL_PER_MILLE: u64 = 10;

/// Time in stalls, in parts of 100,000 of a reactor's, from which on they decide about p99.9.
const STALLED_MIN: u64 = 100;

pub(super) fn findings(tree: &Tree, status: Option<&StatusView>) -> Vec<Finding> {
    let online = tree.text(&format!("{CPUS}/online"));
    let online = online.map(|text| list(&text)).unwrap_or_default();
    let mut findings = vec![
        count(tree, &online),
        siblings(tree, &online, status),
        isolation(tree, &online, status),
        governor(tree, &online),
        kernels(tree),
    ];
    findings.extend(quota(tree));
    findings.extend(virtual_machine(tree));
    findings.push(nodes_of_reactors(tree, status));
    findings.extend(status.map(stalls));
    findings
}

fn count(tree: &Tree, online: &[u64]) -> Finding {
    let status = tree.text("/proc/self/status").unwrap_or_default();
    let allowed = field(&status, "Cpus_allowed_list").map(list);
    let usable = allowed.unwrap_or_else(|| online.to_vec());
    let found = if usable.len() < online.len() {
        format!("{} CPUs, {} for this process", online.len(), usable.len())
    } else {
        format!("{} CPUs", online.len())
    };
    match usable.len() {
        0 => bad(Severity::Notice, "cores", "their number is not to be found")
            .costs("whether the engine leaves one for guests is not known")
            .fix("say with --cores of serve which it is to use"),
        1 => bad(Severity::Warning, "cores", found)
            .costs("the engine and the guests take turns on one core: each waits for the other")
            .fix("give the host or the service more CPUs"),
        2 | 3 => bad(Severity::Notice, "cores", found)
            .costs(
                "one core is left for all guests and the host when the engine takes its default \
                 of one less than there are",
            )
            .fix("more CPUs, if guests are to run here as well"),
        _ => Finding::good("host", "cores", found),
    }
}

/// The CPUs that share a core with `cpu`, itself among them.
fn threads_of(tree: &Tree, cpu: u64) -> Vec<u64> {
    let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
    tree.text(&path)
        .map_or_else(|| vec![cpu], |text| list(&text))
}

/// Where the engine's reactors are.
fn reactors(status: Option<&StatusView>) -> Vec<u64> {
    let status = status.into_iter();
    let reactors = status.flat_map(|status| &status.engine.reactors);
    let mut cores: Vec<u64> = reactors.map(|reactor| reactor.core.into()).collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

fn siblings(tree: &Tree, online: &[u64], status: Option<&StatusView>) -> Finding {
    let mut firsts: Vec<u64> = online
        .iter()
        .filter_map(|cpu| threads_of(tree, *cpu).into_iter().min())
        .collect();
    firsts.sort_unstable();
    firsts.dedup();
    if firsts.len() == online.len() {
        return Finding::good("host", "smt", "every CPU is a core of its own");
    }
    let busy = reactors(status);
    let shared = busy.iter().find(|cpu| {
        let threads = threads_of(tree, **cpu);
        threads
            .iter()
            .any(|other| other != *cpu && busy.contains(other))
    });
    if let Some(cpu) = shared {
        let threads = as_list(&threads_of(tree, *cpu));
        return bad(
            Severity::Warning,
            "smt",
            format!("reactors run on CPUs {threads}, which are one core"),
        )
        .costs("polling takes the core's units from the reactor beside it: two do the work of one")
        .fix(format!(
            "one CPU of each core: --cores of {}",
            as_list(&firsts)
        ));
    }
    bad(
        Severity::Notice,
        "smt",
        format!("{} CPUs are {} cores", online.len(), firsts.len()),
    )
    .costs("a reactor shares its core with whatever runs on the CPU beside it")
    .fix(format!(
        "choose reactors' CPUs among {} and keep guests off the others of the same cores, or \
         echo off > {CPUS}/smt/control while measuring",
        as_list(&firsts)
    ))
}

fn isolation(tree: &Tree, online: &[u64], status: Option<&StatusView>) -> Finding {
    let isolated = tree.text(&format!("{CPUS}/isolated"));
    let isolated = isolated.map(|text| list(&text)).unwrap_or_default();
    let busy = reactors(status);
    let exposed: Vec<u64> = busy
        .iter()
        .copied()
        .filter(|cpu| !isolated.contains(cpu))
        .collect();
    if !isolated.is_empty() && exposed.is_empty() {
        let found = format!("CPUs {} are isolated", as_list(&isolated));
        return Finding::good("host", "isolation", found);
    }
    let found = match (isolated.is_empty(), exposed.is_empty()) {
        (true, _) => "no CPU is isolated".to_owned(),
        (false, _) => format!(
            "reactors run on CPUs {}, isolated are {}",
            as_list(&exposed),
            as_list(&isolated)
        ),
    };
    let finding = bad(Severity::Notice, "isolation", found).costs(
        "other tasks and interrupts take turns with reactors: the slowest requests (p99.9) wait \
         for a time slice",
    );
    if online.len() < 4 {
        return finding
            .fix("nothing to do: with fewer than 4 CPUs none can be kept for reactors alone");
    }
    finding.fix(
        "boot with isolcpus=managed_irq,domain,LIST nohz_full=LIST and serve with --cores LIST, \
         or give the engine a cpuset partition of type isolated",
    )
}

fn governor(tree: &Tree, online: &[u64]) -> Finding {
    let governors = online.iter().filter_map(|cpu| {
        let path = format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor");
        tree.text(&path).map(|governor| (*cpu, governor))
    });
    let slow: Vec<(u64, String)> = governors
        .filter(|(_, governor)| governor != "performance")
        .collect();
    let Some((_, first)) = slow.first() else {
        return Finding::good("host", "frequency", "no governor holds the cores back");
    };
    let cpus: Vec<u64> = slow.iter().map(|(cpu, _)| *cpu).collect();
    bad(
        Severity::Notice,
        "frequency",
        format!("CPUs {} have the governor {first}", as_list(&cpus)),
    )
    .costs("a core that was idle begins slowly: the first requests after a pause take longer")
    .fix("cpupower frequency-set -g performance")
}

fn kernels(tree: &Tree) -> Finding {
    let info = tree.text("/proc/cpuinfo").unwrap_or_default();
    let Some(flags) = field(&info, "flags") else {
        return bad(
            Severity::Notice,
            "parity",
            "not x86-64, or its flags are not to be found",
        )
        .costs("parity is computed by the scalar kernels, many times slower than vectors")
        .fix("nothing to do here: the vector kernels are for x86-64 with AVX2 or AVX-512");
    };
    let has = |flag: &str| flags.split(' ').any(|word| word == flag);
    if has("avx512f") && has("gfni") {
        return Finding::good("host", "parity", "AVX-512 and GFNI are there");
    }
    if has("avx2") {
        return Finding::good("host", "parity", "AVX2 is there");
    }
    bad(Severity::Warning, "parity", "neither AVX2 nor AVX-512")
        .costs("parity is computed by the scalar kernels, many times slower than vectors")
        .fix("in a virtual machine: pass the host's processor through (-cpu host)")
}

/// A share of CPU time that the service's group may not exceed.
fn quota(tree: &Tree) -> Option<Finding> {
    let groups = tree.text("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A limit holds for everything below.
    let mut path = own.trim_end_matches('/').to_owned();
    loop {
        let limit = tree.text(&format!("/sys/fs/cgroup{path}/cpu.max"));
        let limit = limit.filter(|limit| !limit.starts_with("max"));
        if let Some(limit) = limit {
            let found = format!("the control group {path} may use {limit} us of CPU time");
            return Some(
                bad(Severity::Warning, "cpu_quota", found)
                    .costs(
                        "polling uses up the quota: the kernel then stops all reactors for the rest \
                         of each period, in the middle of requests",
                    )
                    .fix("CPUQuota= (empty) in the service; give it whole CPUs instead"),
            );
        }
        let (above, _) = path.rsplit_once('/')?;
        path = above.to_owned();
    }
}

fn virtual_machine(tree: &Tree) -> Option<Finding> {
    let info = tree.text("/proc/cpuinfo")?;
    let flags = field(&info, "flags")?;
    if !flags.split(' ').any(|flag| flag == "hypervisor") {
        return None;
    }
    let stolen = tree
        .text("/proc/stat")
        .and_then(|text| steal(&text))
        .unwrap_or(0);
    let found = format!(
        "this host is a virtual machine; {}.{} % of its CPU time was taken by others",
        stolen / 10,
        stolen % 10
    );
    if stolen < STEAL_PER_MILLE {
        return Some(
            bad(Severity::Notice, "virtual_machine", found)
                .costs("figures measured here are not those of bare metal")
                .fix(
                    "nothing to do to serve guests; what is to be compared with other figures is \
                     measured on bare metal",
                ),
        );
    }
    Some(
        bad(Severity::Warning, "virtual_machine", found)
            .costs(
                "reactors stand still while others have their CPUs: rates and tails measured here \
                 say little",
            )
            .fix("dedicated CPUs for this machine"),
    )
}

/// How long reactors stood still since the engine serves.
fn stalls(status: &StatusView) -> Finding {
    // In parts of 100,000.
    let part = |reactor: &&ReactorView| {
        let all = reactor.busy_time_us_total + reactor.idle_time_us_total;
        reactor.stalled_time_us_total.saturating_mul(100_000) / all.max(1)
    };
    let worst = status.engine.reactors.iter().max_by_key(part);
    let Some(worst) = worst.filter(|reactor| reactor.stalls_total > 0) else {
        return Finding::good("host", "stalls", "no reactor stood still for a millisecond");
    };
    let found = format!(
        "the reactor on CPU {} stood still {} times for a millisecond or more, {}.{:03} % of its \
         time",
        worst.core,
        worst.stalls_total,
        part(&worst) / 1000,
        part(&worst) % 1000
    );
    if part(&worst) < STALLED_MIN {
        return Finding::good("host", "stalls", found);
    }
    bad(Severity::Warning, "stalls", found)
        .costs("all requests of the reactor wait meanwhile: the slowest (p99.9) take so long")
        .fix(
            "keep other work off these CPUs (see isolation); in a virtual machine give it CPUs of \
             its own",
        )
}

/// Time stolen in parts of a thousand of all time, from the first line of `/proc/stat`.
fn steal(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let times: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        // Guests' time is in user time already.
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let all: u64 = times.iter().sum();
    Some(times.get(7)? * 1000 / all.max(1))
}

/// Reactors on several NUMA nodes.
fn nodes_of_reactors(tree: &Tree, status: Option<&StatusView>) -> Finding {
    let nodes = tree.nodes().count();
    let used = reactor_nodes(tree, status);
    let found = match (nodes, used.len()) {
        (0 | 1, _) => "one node".to_owned(),
        (_, 0 | 1) => format!("{nodes} nodes"),
        (_, _) => format!(
            "reactors run on nodes {}; an array, its queues and its buffers stay with those of the \
             node of its drives",
            as_list(&used)
        ),
    };
    Finding::good("host", "numa", found)
}

/// The NUMA nodes that reactors run on.
pub(super) fn reactor_nodes(tree: &Tree, status: Option<&StatusView>) -> Vec<u64> {
    let machine = tree.nodes();
    let mut nodes: Vec<u64> = reactors(status)
        .into_iter()
        .filter_map(|cpu| machine.of_cpu(cpu))
        .map(|node| node.0.into())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
