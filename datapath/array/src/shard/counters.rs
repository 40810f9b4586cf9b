//! What a shard counts.

use crate::format::ExclusionCause;

impl ShardCounters {
    /// Tickets of requests that were carried out.
    #[must_use]
    pub fn tickets(&self) -> u64 {
        let writes = self.full_writes + self.read_modify_writes + self.reconstruct_writes;
        writes + self.reconstructed_reads
    }

    /// Member requests, but for reads that went straight to a drive: most of these are of transfer
    /// buffers.
    #[must_use]
    pub fn buffered_transfers(&self) -> u64 {
        let straight = self.direct_reads.saturating_sub(self.bounced_reads);
        self.drive_requests.saturating_sub(straight)
    }
}

/// Counts of one shard since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Pieces of reads that went straight to a drive.
    pub direct_reads: u64,
    /// Tickets that reconstructed what was asked.
    pub reconstructed_reads: u64,
    /// Tickets by write method.
    pub full_writes: u64,
    /// See `full_writes`.
    pub read_modify_writes: u64,
    /// See `full_writes`.
    pub reconstruct_writes: u64,
    /// Tickets whose write was carried out together with that of another of the same stripe.
    pub joined_writes: u64,
    /// Tickets that dropped what they had read, because others came that made the stripe whole.
    pub promoted_writes: u64,
    /// Member requests whose bytes these dropped.
    pub wasted_reads: u64,
    /// Tickets that let writes before them bring more of their stripe, before they read.
    pub delayed_writes: u64,
    /// How long these were put off, all together.
    pub delayed_nanoseconds: u64,
    /// Write requests of nothing but whole stripes, and those of several stripes of which the first
    /// or the last is not whole. All others lie within one. Counted of stripes of several data
    /// chunks.
    pub whole_requests: u64,
    /// See `whole_requests`.
    pub split_requests: u64,
    /// Writes whose plan outlived the map that it was made by.
    pub kept_plans: u64,
    /// Tickets whose data went to the drives from guests' memory.
    pub borrowed_writes: u64,
    /// Tickets that other shards were asked to help with, and pieces of others' that this one did.
    pub lent_writes: u64,
    /// See `lent_writes`.
    pub helped_pieces: u64,
    /// Member requests submitted.
    pub drive_requests: u64,
    /// Messages sent to other reactors.
    pub messages: u64,
    /// User bytes copied.
    pub bytes_copied: u64,
    /// Reads of members that failed and were answered from the others.
    pub media_errors: u64,
    /// Tickets that wrote again what a member could not read.
    pub rewrites: u64,
    /// Of these, those after which it could not be read either.
    pub failed_rewrites: u64,
    /// Cells that a scrub has looked at.
    pub scrubbed_cells: u64,
    /// Blocks at which a scrub found something.
    pub scrub_found: u64,
    /// Of these, those that it has repaired.
    pub scrub_repaired: u64,
    /// Times that a member became slow, as seen from this shard.
    pub slow_spells: u64,
    /// Tickets that were planned around members that did not answer.
    pub detours: u64,
    /// Tickets that were planned around members that lag, where all answered.
    pub laggard_detours: u64,
    /// Member requests that were given up because their drive did not answer.
    pub abandoned: u64,
    /// Member requests that failed and waited to be made again.
    pub held: u64,
    /// Reads through buffers, so that they can be given up.
    pub bounced_reads: u64,
    /// Reads that were to go through a buffer and went straight, because none was to be lent.
    pub unbuffered_reads: u64,
    /// Reads that were given up because a slow member kept them.
    pub given_up_reads: u64,
    /// Of these, those that their drive answered before the next look.
    pub wasted_hedges: u64,
    /// Reads that were not given up when they could be, because of the budget.
    pub hedges_over_budget: u64,
    /// Reads of members that lag, to see whether they still do.
    pub trials: u64,
    /// Pieces of requests that were answered without drives: nothing was ever written there.
    pub unwritten_pieces: u64,
    /// Regions that were zeroed for their first write.
    pub regions_zeroed: u64,
    /// Of these, so many while a pass was under way.
    pub regions_zeroed_in_pass: u64,
    /// Members left out because they were slower than their peers for long, or could not read.
    pub left_behind: u64,
    /// Members left out since the array runs, by [`ExclusionCause::at`].
    pub excluded: [u64; ExclusionCause::ALL.len()],
}
