//! Every bound of the engine, by name, in one place.

use std::time::Duration;

/// Members of one group: k + M. A role set is one 64-bit word.
pub const GROUP_MEMBERS_MAX: usize = 64;
/// Parity chunks of one stripe.
pub const PARITY_MAX: usize = 32;
/// Members of one array over all groups.
pub const ARRAY_MEMBERS_MAX: usize = 256;
/// Arrays that one engine serves.
pub const ARRAYS_MAX: usize = 64;
/// Drives that one engine opens.
pub const DRIVES_MAX: usize = 512;
/// Volumes of one array.
pub const ARRAY_VOLUMES_MAX: usize = 1024;
/// Words of the list of lost blocks of an array, each for 64 consecutive blocks.
pub const ARRAY_LOST_WORDS_MAX: usize = 256;
/// Reactors of one engine.
pub const REACTORS_MAX: usize = 128;
/// Queues of one export: what vhost-user can carry.
pub const EXPORT_QUEUES_MAX: usize = 256;
/// The least descriptors of one queue: a request has a header, data and a status.
pub const QUEUE_SIZE_MIN: u16 = 4;
/// Descriptors of one queue.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Bytes of a name of a drive, array, volume or export.
pub const NAME_BYTES_MAX: usize = 63;
/// Smallest and largest chunk.
pub const CHUNK_BYTES_MIN: u64 = 4 << 10;
/// See [`CHUNK_BYTES_MIN`].
pub const CHUNK_BYTES_MAX: u64 = 1 << 20;
/// Ownership buckets of one array.
pub const BUCKETS: usize = 4096;
/// A bucket's run of stripes covers at least this many bytes of user data.
pub const BUCKET_RUN_BYTES_MIN: u64 = 1 << 20;
/// Bytes of one large transfer buffer: the most of one chunk that one ticket covers.
pub const LARGE_BUFFER_BYTES: usize = 64 << 10;
/// Bytes of one small transfer buffer.
pub const SMALL_BUFFER_BYTES: usize = 4 << 10;
/// Requests of one reactor on one array.
pub const ARRAY_REQUESTS_MAX: usize = 4096;
/// Pieces of requests that one reactor works on as owner, per array.
pub const ARRAY_WORKS_MAX: usize = 4096;
/// Stripe tickets of one reactor, per array.
pub const ARRAY_TICKETS_MAX: usize = 1024;
/// Lines in which pieces of requests wait for tickets, per shard: volumes beyond share them.
pub const SHARD_LINES: usize = 64;
/// Bytes of requests for which a shard makes tickets in one turn, and of one volume before the next
/// comes.
pub const SHARD_TURN_BYTES: u32 = 512 << 10;
/// See [`SHARD_TURN_BYTES`].
pub const SHARD_LINE_BYTES: u32 = 128 << 10;
/// Drive requests of one reactor, per array.
pub const ARRAY_DRIVE_REQUESTS_MAX: usize = 4096;
/// Requests of one reactor to drives, of all its arrays: as many as are kept for each array, should
/// there be as many arrays as there may be.
pub const PORT_REQUESTS: u32 = 16384;
/// Entries of its io_uring: what it hands over in one call, at most. Fewer than requests, because
/// kernels before 6.10 make each ring of one piece of memory, which a host that has run for long
/// may have in small pieces only.
pub const URING_ENTRIES: u32 = 4096;
/// Bytes of requests that the rings of one reactor may have under way in one array, unless a volume
/// has less than its share: twice what 24 fast drives need to be busy all the time.
pub const RINGS_BYTES_MAX: u64 = 32 << 20;
/// Bytes of requests that the rings of one reactor hand over in one turn.
pub const TURN_BYTES: u64 = 1 << 20;
/// The least of them for one volume, however many have more.
pub const TURN_BYTES_MIN: u64 = 64 << 10;
/// Bytes of one operation of a drive in which requests are joined. Four chunks of 64 KiB: three of
/// four operations are saved, and the first of them waits for little more than itself.
pub const JOINED_BYTES_MAX: u64 = 256 << 10;
/// Messages in one inbox from one reactor to another.
pub const INBOX_MESSAGES: usize = 1024;
/// The slowest a volume may be made, in bytes per second: less is surely a slip.
pub const VOLUME_BANDWIDTH_MIN: u64 = 4096;
/// The slowest a scrub may be made, in bytes per second: less is surely a slip.
pub const SCRUB_RATE_MIN: u64 = 4096;
/// Unused limit of a volume is kept for so long when nobody says.
pub const VOLUME_BURST_MS: u64 = 100;
/// And for so long at the most. At the least, one millisecond: reactors wake up late.
pub const VOLUME_BURST_MS_MAX: u64 = 3_600_000;
/// A spare takes no place that is lost for less than this: a drive that is merely gone for a moment
/// (a cable, an enclosure that starts again) comes back with all but what it missed.
pub const SPARE_GRACE: Duration = Duration::from_secs(30);
/// An array that was not stopped cleanly waits so long after a start of the engine for members that
/// were in sync: without them parity that may be torn is all there is of them.
pub const START_GRACE: Duration = Duration::from_secs(30);
/// Between two looks for places that are lost for so long.
pub const SPARE_LOOK: Duration = Duration::from_secs(1);
/// A spare that could not be made a member is tried again after this.
pub const SPARE_RETRY: Duration = Duration::from_secs(600);
/// Between two looks for drives that have gone or are back.
pub const DRIVE_LOOK: Duration = Duration::from_secs(5);
/// Between two looks for drives that arrays wait for.
pub const AWAITED_LOOK: Duration = Duration::from_millis(500);
/// Between two looks at who is in sync: so long a member that was left out is trusted after a kill.
pub const MEMBERSHIP_LOOK: Duration = Duration::from_secs(1);
/// Between two looks for write caches that somebody turns on: so long a drive may hold what was
/// called durable.
pub const CACHE_LOOK: Duration = Duration::from_secs(1);
/// Between two looks at the load of reactors: so long a guest that begins pays for messages.
pub const LOAD_LOOK: Duration = Duration::from_secs(1);
/// A drive that went away and came back so often within [`DRIVE_RETURNS_WITHIN`] is not taken back
/// any more unless somebody says so: each time costs a rebuild of what it has missed.
pub const DRIVE_RETURNS_MAX: usize = 3;
/// For so long a return counts.
pub const DRIVE_RETURNS_WITHIN: Duration = Duration::from_hours(24);
/// So many crashes while one export was served, within [`CRASH_WINDOW`], hold it back.
pub const CRASHES_HELD_BACK: usize = 3;
/// For so long a crash counts. A start may have to open hundreds of drives and wait for guests to
/// come back, so three of them can take longer than a minute.
pub const CRASH_WINDOW: Duration = Duration::from_secs(600);
/// The largest request that is made of an array, in bytes. Guests are told not to ask for more at
/// once.
pub const REQUEST_BYTES_MAX: u64 = 16 << 20;
/// Data of the largest guest request, which is carried out in pieces: not all drivers look at what
/// they are told. EDK2's asks for so much at once.
pub const CHAIN_BYTES_MAX: u64 = 1 << 30;
