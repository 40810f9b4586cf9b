//! What arrays and their shards count.

use array::ShardCounters;
use array::format::ExclusionCause;
use control::metrics::{Labels, Metric, Samples};
use control::view::{ArrayState, ArrayView, HoldView};
use units::ReactorIndex;
use units::limits::BUCKETS;

use super::metric;
use crate::Host;

const CAUSES: usize = ExclusionCause::ALL.len();

/// Counters of an array, in the order in which they are gathered.
const ARRAY_COUNTERS: [(&str, &str); 38] = [
    ("array_direct_reads", "Reads that went straight to a drive"),
    (
        "array_reconstructed_reads",
        "Reads answered by reconstruction",
    ),
    ("array_full_stripe_writes", "Writes of whole stripes"),
    ("array_read_modify_writes", "Writes by read-modify-write"),
    ("array_reconstruct_writes", "Writes by reconstruct-write"),
    (
        "array_joined_writes",
        "Writes carried out together with others of their stripe",
    ),
    (
        "array_promoted_writes",
        "Writes that dropped what they had read, because others made their stripe whole",
    ),
    (
        "array_wasted_reads",
        "Requests to members whose bytes these dropped",
    ),
    (
        "array_delayed_writes",
        "Writes put off until the writes before them had brought more of their stripe",
    ),
    (
        "array_delayed_microseconds",
        "How long these were put off, all together",
    ),
    (
        "array_whole_requests",
        "Write requests of nothing but whole stripes of several chunks",
    ),
    (
        "array_split_requests",
        "Write requests of several stripes, of which the first or the last is not whole",
    ),
    (
        "array_borrowed_writes",
        "Writes whose data went to the drives straight from guests' memory",
    ),
    ("array_lent_writes", "Writes that others helped with"),
    ("array_helped_pieces", "Pieces of them done by others"),
    (
        "array_copied_bytes",
        "Bytes copied so that parity agrees with what drives get",
    ),
    ("array_messages", "Messages from one reactor to another"),
    (
        "array_drive_requests",
        "Requests to members, with those for the array's own records",
    ),
    (
        "array_scrubbed_cells",
        "Cells (at most 64 KiB of each chunk of a stripe) that scrubs looked at",
    ),
    (
        "array_scrub_wrong_blocks",
        "Blocks that scrubs found wrong or unreadable",
    ),
    (
        "array_scrub_repaired_blocks",
        "Of these, those that scrubs have put right",
    ),
    (
        "array_slow_spells",
        "Times that a member did not answer for 30 ms and four times as long as its peers",
    ),
    (
        "array_detours",
        "Tickets that were planned around members that did not answer",
    ),
    (
        "array_laggard_detours",
        "Tickets that were planned around members that lag behind their peers, where all answered",
    ),
    (
        "array_abandoned_requests",
        "Requests to excluded members that were given up because they did not answer",
    ),
    (
        "array_held_requests",
        "Requests to drives that waited to be tried again because the array could not do without",
    ),
    (
        "array_bounced_reads",
        "Reads through buffers, so that they can be given up: of members that did not answer lately, \
         or of all with hedged reads always",
    ),
    (
        "array_unbuffered_reads",
        "Reads that were to go through a buffer and went straight, because half of the buffers \
         were lent: they cannot be given up",
    ),
    (
        "array_given_up_reads",
        "Reads that were given up because their member did not answer for 30 ms, and reconstructed",
    ),
    (
        "array_wasted_hedges",
        "Reads that were given up and that their member answered within 10 ms more",
    ),
    (
        "array_hedges_over_budget",
        "Reads that were not given up because as many had been as may be",
    ),
    (
        "array_laggard_trials",
        "Reads of members that lag behind their peers, to see whether they still do",
    ),
    (
        "array_left_behind",
        "Members left out because they were slower than their peers for long, or could often not read",
    ),
    (
        "array_media_errors",
        "Reads of members that failed, and were answered from the others",
    ),
    (
        "array_rewrites",
        "Times that what a member could not read was written to it again",
    ),
    (
        "array_failed_rewrites",
        "Times that a member could not read it even then",
    ),
    (
        "array_unwritten_pieces",
        "Pieces of requests that were answered without drives, because nothing was ever written there",
    ),
    (
        "array_regions_zeroed",
        "Regions that were zeroed on all members because something was first written to them",
    ),
];

impl Host {
    pub(super) fn array_metrics(&self) -> Vec<Metric> {
        let arrays = self.do_arrays();
        let state = arrays.iter().map(|array| {
            let value = match array.state {
                ArrayState::Optimal => 0.0,
                ArrayState::Degraded => 1.0,
                ArrayState::Failed => 2.0,
                ArrayState::Stopped => 3.0,
                ArrayState::Holding => 4.0,
            };
            (vec![("array", array.name.clone())], value)
        });
        let help = "0 optimal, 1 degraded, 2 failed, 3 stopped, 4 holding";
        let mut metrics = vec![metric(
            "array_state",
            help,
            Samples::Gauges(state.collect()),
        )];
        metrics.push(lost_metric(&arrays));
        metrics.extend(hold_metrics(&arrays));
        let indices: Vec<(String, units::ArrayIndex)> = {
            let state = self.state();
            state
                .arrays
                .values()
                .map(|entry| (entry.name.clone(), entry.index))
                .collect()
        };
        let mut by_name = [const { Vec::<(Labels, u64)>::new() }; ARRAY_COUNTERS.len()];
        let (mut exclusions, mut owned) = (Vec::new(), Vec::new());
        for (name, index) in indices {
            let Some(array) = self.engine.array_state(index) else {
                continue;
            };
            exclusions.extend(exclusions_of(&name, &array.counters));
            for (reactor, counters) in array.counters.iter().enumerate() {
                let labels: Labels =
                    vec![("array", name.clone()), ("reactor", reactor.to_string())];
                let share = array.map.owners.share(ReactorIndex::from_at(reactor));
                owned.push((labels.clone(), share as f64 / BUCKETS as f64));
                for (samples, value) in by_name.iter_mut().zip(counts_of(counters)) {
                    samples.push((labels.clone(), value));
                }
            }
        }
        for ((name, help), samples) in ARRAY_COUNTERS.into_iter().zip(by_name) {
            metrics.push(metric(name, help, Samples::Counters(samples)));
        }
        metrics.push(metric(
            "array_owned_stripes",
            "The part of the stripes that the reactor owns",
            Samples::Gauges(owned),
        ));
        metrics.push(metric(
            "array_excluded_members",
            "Members left out while the array ran, by cause",
            Samples::Counters(exclusions),
        ));
        metrics
    }
}

/// The values of [`ARRAY_COUNTERS`].
fn counts_of(counters: &ShardCounters) -> [u64; ARRAY_COUNTERS.len()] {
    [
        counters.direct_reads,
        counters.reconstructed_reads,
        counters.full_writes,
        counters.read_modify_writes,
        counters.reconstruct_writes,
        counters.joined_writes,
        counters.promoted_writes,
        counters.wasted_reads,
        counters.delayed_writes,
        counters.delayed_nanoseconds / 1000,
        counters.whole_requests,
        counters.split_requests,
        counters.borrowed_writes,
        counters.lent_writes,
        counters.helped_pieces,
        counters.bytes_copied,
        counters.messages,
        counters.drive_requests,
        counters.scrubbed_cells,
        counters.scrub_found,
        counters.scrub_repaired,
        counters.slow_spells,
        counters.detours,
        counters.laggard_detours,
        counters.abandoned,
        counters.held,
        counters.bounced_reads,
        counters.unbuffered_reads,
        counters.given_up_reads,
        counters.wasted_hedges,
        counters.hedges_over_budget,
        counters.trials,
        counters.left_behind,
        counters.media_errors,
        counters.rewrites,
        counters.failed_rewrites,
        counters.unwritten_pieces,
        counters.regions_zeroed,
    ]
}

/// How many members were left out, by cause.
fn exclusions_of(array: &str, shards: &[ShardCounters]) -> [(Labels, u64); CAUSES] {
    ExclusionCause::ALL.map(|cause| {
        let count = shards.iter().map(|shard| shard.excluded[cause.at()]).sum();
        let labels = vec![
            ("array", array.to_owned()),
            ("cause", label_of(cause).to_owned()),
        ];
        (labels, count)
    })
}

fn label_of(cause: ExclusionCause) -> &'static str {
    match cause {
        ExclusionCause::Gone => "gone",
        ExclusionCause::ReadErrors => "read_errors",
        ExclusionCause::WriteError => "write_error",
        ExclusionCause::FlushFailed => "flush_failed",
        ExclusionCause::TooSlow => "too_slow",
        ExclusionCause::Command => "command",
        ExclusionCause::Absent => "absent",
        ExclusionCause::Stale => "stale",
        ExclusionCause::Replaced => "replaced",
        ExclusionCause::NoSpace => "no_space",
    }
}

/// What nobody can tell any more.
fn lost_metric(arrays: &[ArrayView]) -> Metric {
    let lost = arrays.iter().map(|array| {
        let blocks = array.lost.as_ref().map_or(0, |lost| lost.blocks);
        let value = f64::from(u32::try_from(blocks).unwrap_or(u32::MAX));
        (vec![("array", array.name.clone())], value)
    });
    metric(
        "array_lost_blocks",
        "Blocks that nobody can tell any more: reads of them fail until they are written",
        Samples::Gauges(lost.collect()),
    )
}

/// How long arrays have waited for members that they cannot do without, and for how much.
fn hold_metrics(arrays: &[ArrayView]) -> Vec<Metric> {
    let by = |select: fn(&HoldView) -> u64| {
        let sample = |array: &ArrayView| {
            let seconds = array.hold.as_ref().map_or(0, select);
            let value = f64::from(u32::try_from(seconds).unwrap_or(u32::MAX));
            (vec![("array", array.name.clone())], value)
        };
        Samples::Gauges(arrays.iter().map(sample).collect())
    };
    vec![
        metric(
            "array_hold_seconds",
            "How long the array has waited for members that it cannot do without",
            by(|hold| hold.waited_s),
        ),
        metric(
            "array_hold_requests",
            "Requests to drives that failed and wait to be tried again",
            by(|hold| hold.requests),
        ),
    ]
}
