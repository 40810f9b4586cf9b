//! Free extents, and choosing among them: few runs, and such as are zeroed already.

use array::format::{ArrayConfig, ExtentRun, extents_of, join_runs};

/// A volume on zeroed extents may have so many runs before zeroing a longer run is preferred.
const ZEROED_RUNS_WANTED: usize = 16;

/// The runs of `within` that are not in `taken`. Both are sorted and joined.
pub(crate) fn without(within: &[ExtentRun], taken: &[ExtentRun]) -> Vec<ExtentRun> {
    let mut left = Vec::new();
    let mut taken = taken.iter().peekable();
    for run in within {
        let (mut first, end) = (run.first, run.first + run.count);
        while let Some(hole) = taken.peek() {
            let hole_end = hole.first + hole.count;
            if hole.first >= end {
                break;
            }
            if hole.first > first {
                left.push(ExtentRun {
                    first,
                    count: hole.first - first,
                });
            }
            first = first.max(hole_end);
            if hole_end > end {
                break;
            }
            taken.next();
        }
        if first < end {
            left.push(ExtentRun {
                first,
                count: end - first,
            });
        }
    }
    left
}

/// The runs that are in both. Both are sorted and joined.
pub(crate) fn both(one: &[ExtentRun], other: &[ExtentRun]) -> Vec<ExtentRun> {
    without(one, &without(one, other))
}

/// Sorts and joins runs that are known not to share an extent.
///
/// # Panics
/// When they do: the table was checked when it was read.
pub(crate) fn joined(runs: Vec<ExtentRun>) -> Vec<ExtentRun> {
    join_runs(runs).expect("a checked table uses no extent twice")
}

/// The extents of an array of `count` that belong to no volume.
pub(crate) fn free(config: &ArrayConfig, count: u64) -> Vec<ExtentRun> {
    let used = config.volumes.iter().flat_map(|volume| &volume.extents);
    let all = match count {
        0 => Vec::new(),
        count => vec![ExtentRun { first: 0, count }],
    };
    without(&all, &joined(used.copied().collect()))
}

/// Chooses `count` of the `free` extents, in ascending order; `None` when there are fewer.
///
/// Those right after extent `after` are best for a volume that grows, if they need no zeroing;
/// then zeroed ones, unless that would scatter the volume; then any.
pub(crate) fn choose(
    free: &[ExtentRun],
    unzeroed: &[ExtentRun],
    count: u64,
    after: Option<u64>,
) -> Option<Vec<ExtentRun>> {
    let zeroed = without(free, unzeroed);
    let next = zeroed
        .iter()
        .find(|run| Some(run.first) == after && run.count >= count);
    if let Some(run) = next {
        return Some(vec![ExtentRun {
            first: run.first,
            count,
        }]);
    }
    let any = pick(free, count)?;
    match pick(&zeroed, count) {
        Some(clean) if clean.len() <= any.len().max(ZEROED_RUNS_WANTED) => Some(clean),
        Some(_) | None => Some(any),
    }
}

/// The first run that holds `count`, else the largest runs.
fn pick(runs: &[ExtentRun], count: u64) -> Option<Vec<ExtentRun>> {
    if extents_of(runs) < count {
        return None;
    }
    if let Some(fits) = runs.iter().find(|run| run.count >= count) {
        return Some(vec![ExtentRun {
            first: fits.first,
            count,
        }]);
    }
    let mut largest = runs.to_vec();
    largest.sort_by_key(|run| (std::cmp::Reverse(run.count), run.first));
    let mut left = count;
    let mut picked = Vec::new();
    for run in largest {
        let take = run.count.min(left);
        if take == 0 {
            break;
        }
        picked.push(ExtentRun {
            first: run.first,
            count: take,
        });
        left -= take;
    }
    assert_eq!(left, 0, "there were enough");
    Some(joined(picked))
}
