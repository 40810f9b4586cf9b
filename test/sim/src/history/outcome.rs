//! What histories count.

use std::fmt;

use crate::rings::RingCounts;

/// What came of a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requests answered.
    pub answered: u64,
    /// What rings have counted.
    pub rings: RingCounts,
    /// Crashes survived.
    pub crashes: u64,
    /// Blocks of torn stripes written before the resync reached them.
    pub probed: u64,
    /// Members that hung while blocks of torn stripes were read from them.
    pub read_torn: u64,
    /// Crashes while members were out and writes under way.
    pub logged: u64,
    /// Kills together with the loss of a member, while writes were under way that were told of.
    pub begun: u64,
    /// Starts after a kill that had nothing to resync, because the killed engine had told so.
    pub trusted: u64,
    /// Of these, so many left a member out whose flush failed.
    pub unflushed: u64,
    /// Members that a start has left out because their drives were away.
    pub set_aside: u64,
    /// Stops with which more than one member was lost.
    pub lost_together: u64,
    /// Starts that somebody had to force.
    pub forced: u64,
    /// Holds in the middle of which an array was stopped.
    pub abandoned: u64,
    /// Blocks that were wrong, and that a scrub found.
    pub rotten: u64,
    /// Of these, so many that a drive had not written, or had written elsewhere.
    pub stale: u64,
    /// Blocks of which a scrub was first shown another block's content.
    pub astray: u64,
    /// Members left out because they did not answer.
    pub late: u64,
    /// Members that lagged behind their peers, and those left out for it.
    pub lagged: u64,
    /// See `lagged`.
    pub left_behind: u64,
    /// Reads of drives that hung among them which were answered without them, and those that were
    /// not because as many had been as may be.
    pub hedged: (u64, u64),
    /// Times that stripes were to go to other reactors, and commands for it that were carried out.
    pub distributed: (u64, u64),
    /// Members that came back, and regions that they had missed of all that there are.
    pub returned: u64,
    /// See `returned`.
    pub missed: (u64, u64),
    /// Members that might not come back as they were.
    pub refused: u64,
    /// Spells, and those beside which another drive fails a flush for good.
    pub spells: (u64, u64),
    /// Holds that were given up.
    pub given_up: u64,
    /// Blocks that drives refused which the array could not do without; of these, zeroes before the
    /// first write of a region, and blocks of the region map.
    pub blocks_refused: (u64, u64),
    /// Records that went to the middle of their area, because their place was refused.
    pub records_moved: u64,
    /// Slots of the log that a needed member refused.
    pub slots_refused: u64,
    /// Copies of members that were told apart.
    pub copies: u64,
    /// Copies of members that took their places.
    pub successors: u64,
    /// Blocks that were lost, and of these those given up and those written again.
    pub lost: (u64, u64, u64),
    /// Times that members were away while the list of lost blocks was written, for longer than
    /// anybody waits.
    pub held_lists: u64,
    /// Blocks that drives took no zeroes for, and starts that left out blocks of the log in such
    /// rows, or were refused because drives took no writes there.
    pub passed_over: u64,
    /// See `passed_over`.
    pub left_out: u64,
    /// See `passed_over`.
    pub refused_starts: u64,
    /// Starts at which parity went to what a drive holds that has refused what was done again.
    pub followed_starts: u64,
    /// Resyncs that gave nothing up because a member might come back, and then it did.
    pub not_given_up: u64,
    /// Data blocks that could not be read where parity was not trusted, and those given up.
    pub doubted: (u64, u64),
    /// Changes of options, and those that ended with a stop right after a stronger mode counted;
    /// and blocks that a stop may have changed because nothing was logged.
    pub modes: u64,
    /// See `modes`.
    pub strengthened: u64,
    /// See `modes`.
    pub left_open: u64,
    /// Windows of rebuilds that failed when cells of theirs were filled and written.
    pub failed_windows: u64,
    /// See `failed_windows`: those that were filled again before the power failed.
    pub refilled: u64,
    /// Passes and scrubs beside which guests asked without a pause, and the most requests that
    /// began after another one, and before that was answered.
    pub loaded: (u64, u64),
    /// Blocks that were given up and written before their members were filled.
    pub healed: u64,
    /// Regions that were zeroed for their first write, and those of them under a pass; pieces of
    /// requests that needed no drive; and first writes while a reactor did not know who was out.
    pub zeroed: u64,
    /// See `zeroed`.
    pub zeroed_in_pass: u64,
    /// See `zeroed`.
    pub unwritten: u64,
    /// See `zeroed`.
    pub first_without: u64,
    /// Members left out because they did not take a copy of the region map.
    pub copies_refused: u64,
    /// A hash of all that happened, in its order.
    pub trace: u64,
    /// Writes that the last engine carried out with others of their stripe.
    pub joined: u64,
    /// Writes that dropped what they had read, and that were put off, in the last life.
    pub promoted: u64,
    /// See `promoted`.
    pub delayed: u64,
    /// Writes of the last engine whose plan outlived its map.
    pub kept_plans: u64,
    /// How often a guest changed what it was writing.
    pub changed: u64,
    /// Kills soon after a drive had lost its cache, and a flush of it had failed or it was gone.
    pub caches_lost: u64,
    /// Losses of power while a record was written that goes over one that may be needed.
    pub torn_records: u64,
    /// Writes whose data went to the drives from guests' memory, and blocks that were lost because
    /// a kill and the loss of a member met one.
    pub borrowed: u64,
    /// Writes that other reactors were asked to help with, and pieces that these did.
    pub lent: u64,
    /// See `lent`.
    pub helped: u64,
    /// See `borrowed`.
    pub half_written: u64,
    /// Starts without a drive that had not let go, which it had at the next.
    pub outwaited: u64,
    /// Starts that called a member out before they did again what the log holds, and were killed.
    pub excluded_early: u64,
    /// Power failures between starts that came to nothing and one that did not.
    pub reset: u64,
    /// Requests of dead engines that landed while the next one was at work.
    pub landed: u64,
    /// Repairs of bad blocks that a drive carried out after it was left out.
    pub rewritten_late: u64,
    /// Members left out that kept some requests and answered others.
    pub kept: u64,
    /// Writes that were logged when all members went away for long.
    pub logged_in_vain: u64,
    /// Reads answered when more had failed than the array survives, and those that failed.
    pub beyond: (u64, u64),
}

impl Outcome {
    /// Counts another history in.
    #[allow(clippy::too_many_lines, reason = "a line for each count")]
    pub fn add(&mut self, outcome: &Outcome) {
        self.answered += outcome.answered;
        self.crashes += outcome.crashes;
        self.probed += outcome.probed;
        self.read_torn += outcome.read_torn;
        self.logged += outcome.logged;
        self.begun += outcome.begun;
        self.trusted += outcome.trusted;
        self.unflushed += outcome.unflushed;
        self.set_aside += outcome.set_aside;
        self.lost_together += outcome.lost_together;
        self.forced += outcome.forced;
        self.abandoned += outcome.abandoned;
        self.rotten += outcome.rotten;
        self.stale += outcome.stale;
        self.astray += outcome.astray;
        self.late += outcome.late;
        self.lagged += outcome.lagged;
        self.left_behind += outcome.left_behind;
        add_both(&mut self.hedged, outcome.hedged);
        self.returned += outcome.returned;
        add_both(&mut self.missed, outcome.missed);
        self.refused += outcome.refused;
        add_both(&mut self.spells, outcome.spells);
        self.given_up += outcome.given_up;
        add_both(&mut self.blocks_refused, outcome.blocks_refused);
        self.records_moved += outcome.records_moved;
        self.slots_refused += outcome.slots_refused;
        self.copies += outcome.copies;
        self.successors += outcome.successors;
        self.lost.0 += outcome.lost.0;
        self.lost.1 += outcome.lost.1;
        self.lost.2 += outcome.lost.2;
        self.held_lists += outcome.held_lists;
        self.passed_over += outcome.passed_over;
        self.left_out += outcome.left_out;
        self.refused_starts += outcome.refused_starts;
        self.followed_starts += outcome.followed_starts;
        self.not_given_up += outcome.not_given_up;
        add_both(&mut self.doubted, outcome.doubted);
        self.modes += outcome.modes;
        self.strengthened += outcome.strengthened;
        self.left_open += outcome.left_open;
        self.failed_windows += outcome.failed_windows;
        self.refilled += outcome.refilled;
        self.loaded.0 += outcome.loaded.0;
        self.loaded.1 = self.loaded.1.max(outcome.loaded.1);
        self.healed += outcome.healed;
        self.zeroed += outcome.zeroed;
        self.zeroed_in_pass += outcome.zeroed_in_pass;
        self.unwritten += outcome.unwritten;
        self.first_without += outcome.first_without;
        self.copies_refused += outcome.copies_refused;
        self.trace = self.trace.rotate_left(1) ^ outcome.trace;
        self.joined += outcome.joined;
        self.promoted += outcome.promoted;
        self.delayed += outcome.delayed;
        self.kept_plans += outcome.kept_plans;
        self.changed += outcome.changed;
        self.caches_lost += outcome.caches_lost;
        self.torn_records += outcome.torn_records;
        self.borrowed += outcome.borrowed;
        self.lent += outcome.lent;
        self.helped += outcome.helped;
        add_both(&mut self.distributed, outcome.distributed);
        self.half_written += outcome.half_written;
        self.outwaited += outcome.outwaited;
        self.excluded_early += outcome.excluded_early;
        self.reset += outcome.reset;
        self.landed += outcome.landed;
        self.rewritten_late += outcome.rewritten_late;
        self.kept += outcome.kept;
        self.logged_in_vain += outcome.logged_in_vain;
        add_both(&mut self.beyond, outcome.beyond);
        self.rings.add(&outcome.rings);
    }
}

fn add_both(sum: &mut (u64, u64), more: (u64, u64)) {
    sum.0 += more.0;
    sum.1 += more.1;
}

impl fmt::Display for Outcome {
    #[allow(clippy::too_many_lines, reason = "one sentence")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome {
            answered,
            crashes,
            probed,
            read_torn,
            logged,
            begun,
            trusted,
            unflushed,
            set_aside,
            lost_together,
            forced,
            abandoned,
            rotten,
            stale,
            astray,
            late,
            lagged,
            left_behind,
            hedged,
            returned,
            missed,
            refused,
            spells: (spells, lossy_spells),
            given_up,
            blocks_refused: (blocks_refused, regions_refused),
            records_moved,
            slots_refused,
            copies,
            successors,
            lost,
            held_lists,
            passed_over,
            left_out,
            refused_starts,
            followed_starts,
            not_given_up,
            doubted,
            modes,
            strengthened,
            left_open,
            failed_windows,
            refilled,
            loaded: (loaded, overtaking),
            healed,
            zeroed,
            zeroed_in_pass,
            unwritten,
            first_without,
            copies_refused,
            trace,
            joined,
            promoted,
            delayed,
            kept_plans,
            changed,
            caches_lost,
            torn_records,
            borrowed,
            lent,
            helped,
            half_written,
            outwaited,
            excluded_early,
            reset,
            landed,
            rewritten_late,
            kept,
            logged_in_vain,
            beyond,
            distributed,
            rings,
        } = self;
        let permille = missed.0 * 1000 / missed.1.max(1);
        write!(
            f,
            "{answered} requests, \
         {crashes} stops ({logged} on the log, {begun} kills with the loss of a member, \
            {lost_together} with that of several, \
         {caches_lost} kills after a drive had lost its cache, {torn_records} in a record), \
         {trusted} starts that trusted parity after a kill \
         ({unflushed} without a member whose flush failed, {set_aside} members left out that \
         may have lost something, {forced} forced), {abandoned} holds abandoned, \
         {probed} torn blocks written ({read_torn} times read from a slow member), \
         {rotten} rotten blocks scrubbed ({stale} of writes that were lost), \
         {astray} read where they are not, \
         {landed} writes of dead engines in the life of the next ({outwaited} starts in vain \
         without such a drive), {excluded_early} starts killed that had left a member out, \
         {reset} power failures after such as came to nothing, \
         {rewritten_late} repairs by drives that were left out, \
         {kept} members left out that kept requests, \
         {logged_in_vain} writes logged in vain, \
         {} reads beyond redundancy ({} failed), \
         {late} members late, {lagged} lagged ({left_behind} left behind), \
         {} reads hedged ({} not for the budget), \
         {returned} members returned that lacked {permille} \
         in 1000 of their regions ({refused} might not), \
         {spells} spells ({given_up} given up, {lossy_spells} beside a flush that fails, \
         {blocks_refused} blocks refused ({regions_refused} that regions need), \
         {records_moved} records moved, {slots_refused} slots of the log refused, \
         {failed_windows} windows of rebuilds failed, \
         {refilled} filled again before a stop), \
         {loaded} passes beside guests without a pause (a request overtaken {overtaking} times), \
         {joined} writes joined, {promoted} promoted, {delayed} delayed, \
         {lent} lent ({helped} pieces done by others), \
         {borrowed} borrowed ({half_written} blocks half written and lost), \
         {} times that stripes went to others (of {}), \
         {kept_plans} plans kept, {changed} times changed under way, \
         {modes} changes of options ({strengthened} times stopped when one counted, {left_open} \
         blocks left open), {copies} copies told apart, {successors} took places, \
         {} blocks lost ({} still on the list before {} were written; \
         {held_lists} lists held, {healed} written before \
         the fill, {not_given_up} members awaited, {} bad where parity was not trusted \
         and {} of these given up, {passed_over} blocks took no \
         zeroes, {left_out} left out of the log, {refused_starts} starts refused, \
         {followed_starts} by what refused blocks hold), \
         {zeroed} regions zeroed ({zeroed_in_pass} under a pass, {first_without} times while a \
         reactor did not know who was out, {copies_refused} times without one that took no copy of \
         the map), {unwritten} pieces of unwritten ones, {rings}, events {trace:016x}",
            beyond.0,
            beyond.1,
            hedged.0,
            hedged.1,
            distributed.1,
            distributed.0,
            lost.0,
            lost.1,
            lost.2,
            doubted.0,
            doubted.1
        )
    }
}
