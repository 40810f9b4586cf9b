//! What the control path asks of an engine: one trait of blocking calls over plain data.
//!
//! The control path calls it from threads that may block, never from a reactor. Names that reach
//! the engine are checked and resolved (a uuid given instead of a name is already the name), and
//! calls that change something come one at a time; calls that look may come at any time. Volumes
//! go by their uuids: an array that comes from elsewhere may have one of a name that is taken.
//! Inputs live in `request.rs`, answers in `view.rs`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::membership::Membership;
use crate::metrics::Metric;
use crate::request::{
    ArrayCreate, ArrayImport, ArrayModify, BackgroundKind, DriveAdd, DriveKnown, DriveSpec,
    ExportCreate, Lamp, MemberReplace, QueueMove, VolumeCreate, VolumeLimit,
};
use crate::scrub::{ScrubBody, ScrubView};
use crate::spares::Need;
use crate::view::{
    ArrayView, DriveView, EngineStatus, ExportView, FoundArray, JobView, VolumeKey, VolumeView,
};

/// What every call of the engine gives back.
pub type Answer<T> = Result<T, EngineError>;

/// A change of a volume that was begun.
#[must_use = "zeroes are to be written, and it is to be finished"]
#[derive(Debug)]
pub enum Begun {
    /// It is through already: nobody has left anything in what the volume gets.
    Done(Box<VolumeView>),
    /// To be gone on with by [`Engine::zero_volume`] and [`Engine::finish_volume`].
    Zeroing {
        /// The job that shows it.
        job: u64,
    },
}

/// The engine below the control path.
pub trait Engine: Send + Sync + 'static {
    /// Opens a drive that this engine does not know yet, and locks it for life. `create` in the
    /// spec makes the file first (refused when it exists). An added drive is free.
    ///
    /// # Errors
    /// `Exists` when the drive behind the spec is open already, `Busy` when somebody else holds
    /// it, `NotFound` when nothing is there, `Invalid` when it cannot be a drive, `Unreachable`
    /// when it does not answer.
    fn add_drive(&self, add: &DriveAdd) -> Answer<DriveView>;

    /// Opens drives that were added before, at a start, side by side: one that does not answer lets
    /// no other wait. The identity decides, the spec is a hint: what is found there and says that
    /// it is another is not opened. What carries no identity (a blank file; an array destroyed just
    /// before a crash) is taken by its spec, and so is everything when `known.identity` is empty.
    ///
    /// # Errors
    /// Of each, as [`Engine::add_drive`]; `NotFound` also when the identity is somebody else's,
    /// `Unreachable` when it does not answer.
    fn open_drives(&self, known: &[DriveKnown]) -> Vec<Answer<DriveView>>;

    /// [`Engine::open_drives`] for one.
    ///
    /// # Errors
    /// As there.
    fn open_drive(&self, known: &DriveKnown) -> Answer<DriveView> {
        let opened = self.open_drives(std::slice::from_ref(known)).pop();
        opened.expect("there is an answer for each")
    }

    /// Who is in sync in the arrays that run, and was in those that have stopped since this was
    /// asked last.
    fn memberships(&self) -> BTreeMap<Uuid, Membership>;

    /// Tells who was in sync in arrays that have not run since this engine began. Members that know
    /// of no such update do not start by themselves, and are not imported, without `force`.
    fn recall(&self, memberships: BTreeMap<Uuid, Membership>);

    /// What the drive behind a spec says it is, as [`DriveView::identity`] does; empty when it says
    /// nothing, is open here already, or is yet to be made. Opens nothing for good.
    ///
    /// # Errors
    /// As [`Engine::add_drive`].
    fn identify_drive(&self, spec: &DriveSpec) -> Answer<String>;

    /// Closes drives that no array uses and that the host has taken away, or that have not said
    /// what they hold: their names, and why.
    fn close_gone(&self) -> Vec<(String, String)>;

    /// Looks for drives of which somebody has turned the write cache on since they were opened, and
    /// has them flushed. Waits for none of them.
    fn look_at_write_caches(&self);

    /// Looks at the load of all reactors, and moves work from those that have too much of it, and
    /// to those whose guests ask for it. Waits for what it moves.
    fn look_at_load(&self);

    /// Names of drives that arrays wait for and that the host has taken away for good: what comes
    /// back is another device.
    fn awaited(&self) -> Vec<String>;

    /// Opens such a drive where it is now, and the array goes on with it.
    ///
    /// # Errors
    /// `NotFound` while it is not there, or nobody waits for it any more; `Unsafe` when it may have
    /// lost something, or somebody else has used it; `Busy` while requests to the old device are
    /// under way.
    fn reopen_awaited(&self, known: &DriveKnown) -> Answer<DriveView>;

    /// Whether a drive that is wanted and not open is there again, at its place or another one.
    /// Opens nothing for good. May take as long as a drive takes to answer.
    fn is_back(&self, known: &DriveKnown) -> bool;

    /// All open drives, by name.
    fn drives(&self) -> Vec<DriveView>;

    /// Closes and forgets a drive; what is on it stays.
    ///
    /// # Errors
    /// `Busy` when it is a member, unless `force` and the array survives without it; `Unsafe`
    /// when the array would not.
    fn remove_drive(&self, name: &str, force: bool) -> Answer<()>;

    /// Somebody has removed the drive, also if it was away: it claims no place in an array any
    /// more, and who is left alone with such a claim may return.
    fn give_up_claims(&self, drive: Uuid);

    /// Drives that were to be removed, late, and that their arrays have left out by now: to remove
    /// them again lets them go.
    fn removed_late(&self) -> Vec<String>;

    /// What a drive carries, read from it now: the name of a file system, of a partition table and
    /// so on.
    ///
    /// # Errors
    /// `NotFound` when it is not open, and what reading it says.
    fn signature_on(&self, name: &str) -> Answer<Option<String>>;

    /// Looks whether [`Engine::wipe_drive`] by force would be refused, and writes nothing.
    ///
    /// # Errors
    /// `Busy` when it is a member; what reading it says.
    fn check_wipe(&self, name: &str) -> Answer<()>;

    /// Erases whatever names a content on a free drive: superblocks, partition tables, file
    /// systems' magic.
    ///
    /// # Errors
    /// `Busy` when it is a member; `Unsafe` when a signature is found and not `force`.
    fn wipe_drive(&self, name: &str, force: bool) -> Answer<DriveView>;

    /// Switches the locate lamp of the drive's bay.
    ///
    /// # Errors
    /// `Invalid` when the drive has no bay with a lamp.
    fn locate_drive(&self, name: &str, lamp: Lamp) -> Answer<()>;

    /// What a place of such an array asks of a drive. Refuses what [`Engine::create_array`] would,
    /// and writes nothing.
    ///
    /// # Errors
    /// As [`Engine::create_array`].
    fn check_array(&self, create: &ArrayCreate) -> Answer<Need>;

    /// Makes an array of free drives and starts it.
    ///
    /// # Errors
    /// `Unsafe` when a drive carries a known signature and not `force` (the message names all
    /// that was found), `Busy` when a drive is not free, `Invalid` for a wrong shape, `Full` when
    /// there is no room for another array.
    fn create_array(&self, create: &ArrayCreate) -> Answer<ArrayView>;

    /// Looks for arrays on free drives, and on drives this engine does not know: those that
    /// `specs` name, or all block devices of this host when it is empty. Opens nothing for good.
    ///
    /// # Errors
    /// `NotFound` when a named spec is not there.
    fn find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>>;

    /// Adds the drives of a found array, under names derived from the array's, and assembles and
    /// starts it.
    ///
    /// # Errors
    /// `NotFound`, `Exists` when an array of this name or uuid is known, else as
    /// [`Engine::start_array`].
    fn import_array(&self, import: &ArrayImport) -> Answer<ArrayView>;

    /// Puts together, without starting, every array whose members are among the open free
    /// drives. Comes once at a start, after the drives were opened, and again when drives come
    /// back. What cannot be put together is left out, and said in a log line.
    fn assemble(&self) -> Vec<ArrayView>;

    /// All assembled arrays, by name.
    fn arrays(&self) -> Vec<ArrayView>;

    /// Lets an assembled array serve. Dirty and degraded start without `force`.
    ///
    /// # Errors
    /// `Unsafe` when only `force` would start it (a minority of members); the message names what
    /// is lost; also where not even force helps although nothing is broken (a split brain, a drive
    /// from the future), which the message begins with ([`crate::view::NOT_BY_FORCE`]). `Degraded`
    /// when too much is missing. `Busy` when it runs already.
    fn start_array(&self, name: &str, force: bool) -> Answer<ArrayView>;

    /// Shows [`ArrayView::start_warnings`] of the last start of an array no more.
    fn forget_start_warnings(&self, array: Uuid);

    /// Finishes what is pending, marks the array clean and stops it; it stays assembled. Volumes
    /// that are being made or grow are taken back.
    ///
    /// # Errors
    /// `Busy` while one of its volumes is exported.
    fn stop_array(&self, name: &str) -> Answer<ArrayView>;

    /// Forgets the array and all its volumes, on the drives too. The drives become free. Gives the
    /// names of those that could not be erased, and may still name the array.
    ///
    /// # Errors
    /// `Busy` while one of its volumes is exported, or its drives do not answer; `Unsafe` while it
    /// has volumes and not `force`.
    fn destroy_array(&self, name: &str, force: bool) -> Answer<Vec<String>>;

    /// Whether somebody has told this array to be destroyed, and its drives have not answered yet.
    fn is_being_destroyed(&self, array: Uuid) -> bool;

    /// Changes options of an array while it runs; `None` leaves one as it is.
    ///
    /// # Errors
    /// `Invalid` names the option that does not fit.
    fn modify_array(&self, name: &str, modify: &ArrayModify) -> Answer<ArrayView>;

    /// Excludes a member, as if its drive had failed.
    ///
    /// # Errors
    /// `Unsafe` when the array would not survive; `NotFound` when there is no such member.
    fn fail_member(&self, name: &str, member: u16) -> Answer<ArrayView>;

    /// Gives a place that is missing or failed a free drive and begins the rebuild. A place that
    /// a drive fills keeps it while the other drive becomes a copy of it, see
    /// [`Engine::tend_copies`].
    ///
    /// # Errors
    /// `Busy` when the drive is not free or another member is being copied, `Unsafe` when the
    /// drive carries a signature and not `force`, `Full` when it is too small.
    fn replace_member(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView>;

    /// As [`Engine::replace_member`], by a spare: what it held was asked for when it became one.
    ///
    /// # Errors
    /// As [`Engine::replace_member`], unless nobody could tell what the drive holds.
    fn fill_by_spare(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView>;

    /// Puts copies of members that are made in their places. Whether there was one. Called once a
    /// second.
    fn tend_copies(&self) -> bool;

    /// Begins background work on a started array.
    ///
    /// # Errors
    /// `Busy` when it runs already; `Invalid` when there is nothing of the kind to do.
    fn start_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView>;

    /// Stops background work; what is done stays done.
    ///
    /// # Errors
    /// `NotFound` when none runs.
    fn stop_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView>;

    /// Begins or goes on with the scrub of a started array.
    ///
    /// # Errors
    /// `Invalid` when the array has nothing to compare.
    fn start_scrub(&self, name: &str, scrub: ScrubBody) -> Answer<JobView>;

    /// Pauses the scrub; it goes on from there when it is started again.
    ///
    /// # Errors
    /// `NotFound` when none runs.
    fn stop_scrub(&self, name: &str) -> Answer<JobView>;

    /// How the scrub of an array stands, and what it found.
    ///
    /// # Errors
    /// `NotFound` when there is no such array.
    fn scrub(&self, name: &str) -> Answer<ScrubView>;

    /// Begins to make a volume that reads as zeroes.
    ///
    /// # Errors
    /// `Full` when the array has too little room, `Busy` when it is not started or one of this name
    /// is being made.
    fn begin_create_volume(&self, create: &VolumeCreate) -> Answer<Begun>;

    /// Begins to give a volume another size, exactly.
    ///
    /// # Errors
    /// `Full` when the array has too little room, `Invalid` when it cannot become smaller, `Busy`
    /// while it grows already.
    fn begin_resize_volume(&self, volume: &VolumeKey, size_bytes: u64) -> Answer<Begun>;

    /// The job that makes a volume of this name or uuid, which is not there yet.
    fn volume_under_way(&self, key: &str) -> Option<u64>;

    /// Zeroes what a volume gets and others have left; may take hours. Other calls come meanwhile,
    /// and some of them end it early. [`Engine::finish_volume`] tells how it went.
    fn zero_volume(&self, job: u64);

    /// Ends what was begun when its zeroes are written: it is durable when this returns, and guests
    /// that are attached are told. Or takes it back, when they could not be.
    ///
    /// # Errors
    /// Why it was taken back.
    fn finish_volume(&self, job: u64) -> Answer<VolumeView>;

    /// [`Engine::begin_create_volume`] to its end, for who has the engine to himself.
    ///
    /// # Errors
    /// As these.
    fn create_volume(&self, create: &VolumeCreate) -> Answer<VolumeView> {
        let begun = self.begin_create_volume(create)?;
        self.end_volume(begun)
    }

    /// [`Engine::begin_resize_volume`] to its end, for who has the engine to himself.
    ///
    /// # Errors
    /// As these.
    fn resize_volume(&self, volume: &VolumeKey, size_bytes: u64) -> Answer<VolumeView> {
        let begun = self.begin_resize_volume(volume, size_bytes)?;
        self.end_volume(begun)
    }

    /// What both end with.
    ///
    /// # Errors
    /// As [`Engine::finish_volume`].
    fn end_volume(&self, begun: Begun) -> Answer<VolumeView> {
        match begun {
            Begun::Done(volume) => Ok(*volume),
            Begun::Zeroing { job } => {
                self.zero_volume(job);
                self.finish_volume(job)
            }
        }
    }

    /// All volumes of all assembled arrays, by name.
    fn volumes(&self) -> Vec<VolumeView>;

    /// Deletes a volume and what it holds.
    ///
    /// # Errors
    /// `Busy` while it is exported or grows.
    fn delete_volume(&self, volume: &VolumeKey) -> Answer<()>;

    /// Sets all limits of a volume; `None` is without limit.
    ///
    /// # Errors
    /// `Invalid` names the limit that does not fit.
    fn limit_volume(&self, volume: &VolumeKey, limit: &VolumeLimit) -> Answer<VolumeView>;

    /// Exports a volume over vhost-user-blk: binds the socket and serves whoever connects. With a
    /// `profile` the guest is offered exactly that, else the engine chooses and says so in the
    /// view. The name in `create` is how the view calls the volume.
    ///
    /// # Errors
    /// `Busy` when the volume is exported already and one of the two is not shared, or somebody
    /// answers on the socket; `NotFound` when the volume, owner or group is not there.
    fn create_export(&self, create: &ExportCreate, volume: &VolumeKey) -> Answer<ExportView>;

    /// All exports, by name.
    fn exports(&self) -> Vec<ExportView>;

    /// Moves one queue of an export to another core while the guest runs.
    ///
    /// # Errors
    /// `NotFound` when there is no such queue or no reactor on that core.
    fn move_queue(&self, name: &str, to: QueueMove) -> Answer<ExportView>;

    /// Ends an export: answers what is pending, closes the connection, removes the socket.
    ///
    /// # Errors
    /// `Internal` only.
    fn remove_export(&self, name: &str) -> Answer<()>;

    /// Running jobs and the last finished ones, by id. A finished job stays for as long as
    /// somebody may be waiting for it (at least the last 100).
    fn jobs(&self) -> Vec<JobView>;

    /// Asks a job to end early. Not every job can (an initialization cannot).
    ///
    /// # Errors
    /// `NotFound`; `Busy` when it cannot be cancelled.
    fn cancel_job(&self, id: u64) -> Answer<JobView>;

    /// How the engine itself is: reactors, memory, what was found on this host.
    fn status(&self) -> EngineStatus;

    /// All counters, gauges and histograms at this moment.
    fn metrics(&self) -> Vec<Metric>;

    /// Finishes what is pending, marks the arrays clean, lets go of the drives. Nothing else is
    /// called afterwards.
    ///
    /// # Errors
    /// What could not be marked clean; it comes up dirty, and nothing is lost.
    fn shutdown(&self) -> Answer<()>;
}

/// What kind of refusal or failure; the `code` of the JSON error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The object is not there.
    NotFound,
    /// The name, uuid or drive is taken.
    Exists,
    /// Somebody uses it.
    Busy,
    /// Data could be lost; `--force` might still do it.
    Unsafe,
    /// The command contradicts itself or the object.
    Invalid,
    /// No room, or too many.
    Full,
    /// The array has lost too much for this.
    Degraded,
    /// Our own failure, or the host's.
    Internal,
    /// Nobody answers.
    Unreachable,
}

impl ErrorKind {
    /// The code as it stands in JSON.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not_found",
            ErrorKind::Exists => "exists",
            ErrorKind::Busy => "busy",
            ErrorKind::Unsafe => "unsafe",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Full => "full",
            ErrorKind::Degraded => "degraded",
            ErrorKind::Internal => "internal",
            ErrorKind::Unreachable => "unreachable",
        }
    }
}

/// Why something was refused or failed: which object, why, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineError {
    /// The kind.
    #[serde(rename = "code")]
    pub kind: ErrorKind,
    /// What it is about: `drive d3`, `array a7`, `member 3 of array a7`.
    pub object: String,
    /// The cause: lower case, no full stop, with numbers.
    pub message: String,
    /// What to do now; empty when there is nothing.
    pub next: String,
}

impl EngineError {
    /// An error about `object`.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        object: impl Into<String>,
        message: impl Into<String>,
    ) -> EngineError {
        EngineError {
            kind,
            object: object.into(),
            message: message.into(),
            next: String::new(),
        }
    }

    /// The same error, with the names of drives on which everything has been erased already.
    #[must_use]
    pub fn after_erasing(mut self, drives: &[String]) -> EngineError {
        match drives {
            [] => {}
            [drive] => self.message.push_str(&format!("; drive {drive} is erased")),
            drives => {
                let drives = drives.join(", ");
                self.message
                    .push_str(&format!("; drives {drives} are erased"));
            }
        }
        self
    }

    /// The same error, with what to do next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> EngineError {
        self.next = next.into();
        self
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)?;
        if !self.next.is_empty() {
            write!(f, "; {}", self.next)?;
        }
        Ok(())
    }
}

impl std::error::Error for EngineError {}
