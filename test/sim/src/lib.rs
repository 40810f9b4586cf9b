//! The simulator: all shards of an array on one thread, false time, false drives, one seed.
//!
//! A history makes an array, creates, grows and deletes volumes on it, and lets guests read, write,
//! zero, discard and flush, while drives hang, return errors, lose blocks and vanish, mail is slow,
//! the process is killed or the power fails, between any two events. What guests may read says
//! `model::Volume`; that parity agrees at the end says `model::Layout`.
//!
//! Promise of the faults. At most as many members of a group are out, or damaged, at a time as it
//! has parity. A stop (death or power loss) while no member is out or about to be may tear
//! stripes; then no member is lost until the resync has ended, but for one at the very moment of a
//! kill, when the engine had memory that outlives it (`history/begun.rs`), or in `strict` mode;
//! and those without which a start did again what the log holds (`history/attempts.rs`).
//! Blocks of members that stay may be bad then, where parity is not trusted: exactly these may fail
//! until they are written, and nothing may be made of them (`history/doubted.rs`). A stop while
//! a member is out finds everything logged, or no write under way and, when the power fails,
//! everything flushed; or nothing was logged because the mode says so, and then blocks of
//! members that are out may be lost, as `history/modes.rs` says. Modes change at any moment. In a
//! spell more members fail than the array survives, or have no space left, and work again later as
//! they were: nothing may come of it but a pause, and errors only when it lasts longer than the
//! array waits. What a killed engine has asked of a drive may be carried out while the next one is
//! at work, if that one does without the drive (`history/busy.rs`). What a flush failed to make
//! durable is not lost for the next engine, which cannot know of the failure when the last one was
//! killed before it had recorded it. Some guests change the memory that they write from while the
//! write is under way. At the end of some seeds bits flip or writes are lost, in blocks that nobody
//! reads or writes before a scrub has been there (`history/scrub.rs`, `history/stale.rs`), and
//! drives show a scrub another block's content once, which it must not believe. Guests of some
//! seeds have rings in memory of their own (`rings.rs`), which the export's real queue serves: both
//! layouts, every cache mode, chains cut anywhere, some that make no sense or break their ring.
//! Rings move, are stopped, go on and are reset. Memory is taken away while requests lie there, or
//! cut off. When the process is killed these guests live on, and the next engine finds their rings
//! and in-flight regions: each request is answered once, as if nothing had been. At the end of
//! others more fails than the array survives (`history/doomed.rs`): then everything is answered,
//! anything may fail, and what is read is judged as ever.
#![forbid(unsafe_code)]
#![allow(
    clippy::struct_excessive_bools,
    clippy::should_implement_trait,
    clippy::wildcard_enum_match_arm,
    reason = "faults are independent switches, `next` draws from a seed, and events that a test does \
              not wait for are all alike"
)]

pub mod client;
pub mod disks;
pub mod drive;
pub mod exhaustive;
pub mod history;
pub mod jobs;
pub mod random;
pub mod rings;
mod store;
pub mod world;

/// Memory that a life gives back is kept for the next: the kernel would fill it with zeroes anew,
/// page by page. The allocator of glibc learns from the first large block that is given back (see
/// `M_MMAP_THRESHOLD` in mallopt(3)); another one does as it likes. What lives map of the files in
/// which engines tell what they had begun is kept as well.
pub fn keep_freed_memory() {
    const LARGE: usize = 31 << 20;
    drop(std::hint::black_box(vec![0_u8; LARGE]));
    memory::keep_mappings();
}
