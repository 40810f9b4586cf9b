//! The processes behind the sockets, as `/proc` shows them: what time of processors they spend,
//! and which CPUs they keep to. From that follows where the client runs.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use control::settings::CoreList;
use control::{Answer, EngineError, ErrorKind};
use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::invalid;

/// Where the client's thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientCore {
    /// On a CPU that no thread of the servers is pinned to, if there is one.
    #[default]
    Free,
    /// On this one.
    Chosen(usize),
    /// Wherever the kernel puts it.
    Anywhere,
}

impl std::str::FromStr for ClientCore {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientCore, String> {
        match text {
            "free" => Ok(ClientCore::Free),
            "any" => Ok(ClientCore::Anywhere),
            number => number
                .parse()
                .map(ClientCore::Chosen)
                .map_err(|_| format!("`{number}` is not the number of a CPU, nor free or any")),
        }
    }
}

/// The time of processors that processes have spent until now; none when one cannot be seen.
pub(super) fn processor_time(processes: &[u32]) -> Option<Duration> {
    let of = |process: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        ticks(&text)
    };
    let ticks: Option<u64> = processes.iter().map(of).sum();
    let ticks = ticks.filter(|_| !processes.is_empty())?;
    Some(Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second()).ok()?)
}

/// User and system time of a line of `/proc/PID/stat`, in ticks. The second field is a name that
/// may hold anything, in parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// The CPUs that threads of the processes are pinned to: of each thread that may not run
/// everywhere we may.
pub(super) fn pinned(processes: &[u32], allowed: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for process in processes {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            // A thread that has ended meanwhile keeps to nothing.
            let text = std::fs::read_to_string(thread.path().join("status"));
            let own = text.ok().and_then(|text| allowed_list(&text));
            all.extend(
                own.filter(|own| !own.is_superset(allowed))
                    .unwrap_or_default(),
            );
        }
    }
    all
}

/// The CPUs of the line of `/proc/PID/status` that tells them.
fn allowed_list(status: &str) -> Option<BTreeSet<usize>> {
    let line = status.lines();
    let list = line
        .filter_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .next()?;
    let CoreList(cores) = list.trim().parse().ok()?;
    Some(cores.into_iter().map(usize::from).collect())
}

/// Puts this thread where it is wanted; says where that is.
///
/// # Errors
/// When the CPU that was chosen is not there, or not allowed.
pub(super) fn place(wanted: ClientCore, processes: &[u32]) -> Answer<(Option<usize>, String)> {
    let allowed = sched_getaffinity(None).map_err(|errno| invalid(&errno.to_string()))?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let cpus: BTreeSet<usize> = cpus.collect();
    let pinned = pinned(processes, &cpus);
    let (cpu, text) = choose(wanted, &cpus, &pinned);
    if let Some(cpu) = cpu {
        pin(cpu, &cpus)?;
    }
    Ok((cpu, text))
}

fn pin(cpu: usize, allowed: &BTreeSet<usize>) -> Answer<()> {
    if !allowed.contains(&cpu) {
        let message = format!("CPU {cpu} is not there, or not allowed to this process");
        return Err(EngineError::new(ErrorKind::Invalid, "bench", message)
            .next("give --client-core another one, or free"));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    let pinned = sched_setaffinity(None, &set).map_err(io::Error::from);
    pinned.map_err(|error| {
        invalid(&format!(
            "the client cannot be pinned to CPU {cpu}: {error}"
        ))
    })
}

/// The CPU to pin the client to, if any, and what to say of it.
fn choose(
    wanted: ClientCore,
    allowed: &BTreeSet<usize>,
    pinned: &BTreeSet<usize>,
) -> (Option<usize>, String) {
    let list = |cpus: &BTreeSet<usize>| {
        let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        cpus.join(",")
    };
    let servers = if pinned.is_empty() {
        "no thread of the servers is pinned, so they may run there, too".to_owned()
    } else {
        format!("the servers' pinned threads are on {}", list(pinned))
    };
    // The lowest take interrupts.
    let free = allowed.difference(pinned).last().copied();
    match wanted {
        ClientCore::Anywhere => (None, format!("the client is not pinned; {servers}")),
        ClientCore::Chosen(cpu) if pinned.contains(&cpu) => (
            Some(cpu),
            format!("the client is pinned to CPU {cpu}, which it shares with a server"),
        ),
        ClientCore::Chosen(cpu) => {
            let text = format!("the client is pinned to CPU {cpu}; {servers}");
            (Some(cpu), text)
        }
        ClientCore::Free => match free {
            Some(cpu) if allowed.len() > 1 || !pinned.is_empty() => {
                let text = format!("the client is pinned to CPU {cpu}; {servers}");
                (Some(cpu), text)
            }
            Some(_) => (None, "the client has one CPU, which it shares".to_owned()),
            None => (
                None,
                format!("the client is not pinned: no CPU is free ({servers})"),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wanted, what is allowed, what servers keep to; the CPU, and what is said.
    type Case = (
        ClientCore,
        &'static [usize],
        &'static [usize],
        Option<usize>,
        &'static str,
    );

    #[test]
    fn the_client_gets_a_cpu_that_no_server_keeps_to() {
        let set = |cpus: &[usize]| cpus.iter().copied().collect::<BTreeSet<usize>>();
        let cases: [Case; 9] = [
            (ClientCore::Free, &[0, 1], &[1], Some(0), "threads are on 1"),
            (ClientCore::Free, &[0, 1], &[0], Some(1), "threads are on 0"),
            (ClientCore::Free, &[0, 1, 2, 3], &[2, 3], Some(1), "on 2,3"),
            (ClientCore::Free, &[0, 1], &[0, 1], None, "no CPU is free"),
            (ClientCore::Free, &[0, 1], &[], Some(1), "no thread of"),
            (ClientCore::Free, &[5], &[], None, "one CPU"),
            (ClientCore::Free, &[5], &[6], Some(5), "threads are on 6"),
            (ClientCore::Chosen(1), &[0, 1], &[1], Some(1), "shares"),
            (ClientCore::Anywhere, &[0, 1], &[1], None, "not pinned"),
        ];
        for (wanted, allowed, pinned, cpu, said) in cases {
            let (found, text) = choose(wanted, &set(allowed), &set(pinned));
            assert_eq!(found, cpu, "{wanted:?} of {allowed:?} beside {pinned:?}");
            assert!(text.contains(said), "{text}");
        }
        assert!(pin(7, &set(&[0, 1])).is_err());
    }

    #[test]
    fn the_time_of_a_process_is_read_whatever_its_name_is() {
        let stat = "77 (a) b (c)) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 3 0";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("77 (cut) S 1 77"), None);
        let own = std::process::id();
        let before = processor_time(&[own]).expect("we are there");
        assert!(processor_time(&[own]).expect("still") >= before);
        assert_eq!(processor_time(&[own, u32::MAX]), None, "nobody is that");
        assert_eq!(processor_time(&[]), None);
    }

    #[test]
    fn threads_that_may_run_everywhere_are_not_pinned() {
        let status = "Name:\tx\nCpus_allowed:\t5\nCpus_allowed_list:\t0,2-3\nSeccomp:\t0\n";
        let found = allowed_list(status).expect("a list");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [0, 2, 3]);
        // This process may not run on a CPU that nobody has, and is pinned as seen from there.
        let own = std::process::id();
        let mine = pinned(&[own], &BTreeSet::from([100_000]));
        assert!(!mine.is_empty());
        let everywhere = pinned(&[own], &BTreeSet::new());
        assert!(everywhere.is_empty(), "{everywhere:?}");
    }

    #[test]
    fn where_the_client_runs_is_free_any_or_a_number() {
        assert_eq!("free".parse(), Ok(ClientCore::Free));
        assert_eq!("any".parse(), Ok(ClientCore::Anywhere));
        assert_eq!("3".parse(), Ok(ClientCore::Chosen(3)));
        assert!("-1".parse::<ClientCore>().is_err());
        assert!("".parse::<ClientCore>().is_err());
    }
}
