//! Plans of reads and of repairs: which roles to read, and which to decode from them.

use units::RoleSet;

use super::{Beyond, StripeState};

/// How to come by the content of some roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// The roles to read. When something is decoded, any k of them are enough for it.
    pub read: RoleSet,
    /// The roles to compute from those read.
    pub decode: RoleSet,
    /// Whether the decoded bytes depend on parity that is not trusted: the best there is, and
    /// wrong where an unclean stop tore the stripe. Never believed of what is
    /// [untold](StripeState::untold).
    pub doubtful: bool,
}

/// Plans reading `wanted` roles of a stripe of `k` + `m`, with as few reads as possible.
///
/// For mirrors (k = 1) ask for the role of the copy that should be read.
///
/// # Errors
/// [`Beyond`] when fewer than k roles are readable and a wanted one is not among them.
///
/// # Panics
/// When a role is not in the stripe, or the state contradicts itself.
pub fn plan_read(
    k: usize,
    m: usize,
    wanted: RoleSet,
    state: &StripeState,
) -> Result<ReadPlan, Beyond> {
    let all = RoleSet::range(0, k + m);
    let readable = state.readable(all);
    assert!(all.covers(wanted), "{wanted:?}");
    let direct = wanted.both(readable);
    let decode = wanted.without(readable);
    if decode.is_empty() {
        return Ok(ReadPlan {
            read: direct,
            decode,
            doubtful: false,
        });
    }
    let sources = sources(k, direct, readable).ok_or(Beyond)?;
    Ok(ReadPlan {
        read: direct.union(sources),
        decode,
        doubtful: doubtful(k, sources, state),
    })
}

/// Plans computing `targets` anew, to be written: a rebuilt member's chunk, a media error's, or
/// all parity for a resync. What is to be written is the plan's `decode`.
///
/// Targets are not read, with one exception: parity in `targets` that is readable serves as a
/// source when too little else is left (a resync of a degraded stripe keeps what the lowest
/// parities say and makes the others agree); it is then not in `decode`. So a target whose old
/// content is rubbish (a rebuild) must be in `state.unreadable`; it may be in `state.lost`, as
/// foreground writes see it, and every target must be writable.
///
/// # Errors
/// [`Beyond`] when fewer than k roles can serve as sources.
///
/// # Panics
/// When a role is not in the stripe, a data target counts as readable, or the state contradicts
/// itself.
pub fn plan_repair(
    k: usize,
    m: usize,
    targets: RoleSet,
    state: &StripeState,
) -> Result<ReadPlan, Beyond> {
    let all = RoleSet::range(0, k + m);
    let readable = state.readable(all);
    assert!(all.covers(targets), "{targets:?}");
    assert!(
        !RoleSet::range(0, k).both(readable).meets(targets),
        "data targets {targets:?} of {state:?} are good"
    );
    let good = readable.without(targets);
    let sources = sources(k, good, readable).ok_or(Beyond)?;
    Ok(ReadPlan {
        read: sources,
        decode: targets.without(sources),
        doubtful: doubtful(k, sources, state),
    })
}

/// k roles to decode from: those of `preferred` first, then other `readable` ones; data before
/// parity, low parity before high.
pub(super) fn sources(k: usize, preferred: RoleSet, readable: RoleSet) -> Option<RoleSet> {
    let first = preferred.lowest(k);
    let rest = readable.without(preferred).lowest(k - first.len());
    let sources = first.union(rest);
    (sources.len() == k).then_some(sources)
}

/// Whether bytes decoded from these sources may be wrong. Copies of mirrors never are: whichever
/// is read holds an old or a new version of every block.
pub(super) fn doubtful(k: usize, sources: RoleSet, state: &StripeState) -> bool {
    let data = RoleSet::range(0, k);
    !state.parity_trusted && k > 1 && !data.covers(sources)
}
