//! One drive as opened by this process: what it is, and requests of the control path, which wait.
//!
//! What does not live here: the data path. That is [`crate::Port`].

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use block::{Operation, Status};
use rustix::fs::{AtFlags, StatxFlags, statx};
use units::{Clock, Instant, MonotonicClock, Size};

use crate::blocking::Blocking;
use crate::errno::{Verdict, verdict};
use crate::error::{OpenError, OpenErrorKind};
use crate::fault::{Access, Fault, FaultBook, as_error};
use crate::info::{DriveInfo, DriveKind};
use crate::ioctl;
use crate::mapping::Mapping;
use crate::nvme::{Generic, Namespace};
use crate::open;
use crate::pace::{PaceLaw, Pacer};
use crate::signature::{self, Signature, WIPE_BYTES};
use crate::spec::DriveSpec;
use crate::sysfs;

/// One drive as opened by this process; shared by all reactors.
///
/// It is locked against every other opening, also of this process, until the last `Arc` is gone and
/// the kernel has let go of every request: files by `flock`, block devices by `O_EXCL`, generic
/// devices of NVMe by both (`nvme::open_generic`). The kernel
/// may do that a moment after the last answer (its own workers hold the file, too), and for a port
/// that lives on only while that port is polled.
#[derive(Debug)]
pub struct Drive {
    info: DriveInfo,
    backing: Backing,
    /// Whether it is flushed. Once it is, it stays so.
    volatile_cache: AtomicBool,
    /// The last change that found no room would have made its file too large.
    file_limited: AtomicBool,
    /// Of a drive that pretends to be as slow as a model.
    pacer: Option<Pacer>,
    faults: FaultBook,
    /// What the control path asks.
    blocking: Blocking,
    /// Itself, for who is left behind with a request.
    this: Weak<Drive>,
}

/// Where the bytes are.
#[derive(Debug)]
pub(crate) enum Backing {
    Kernel(File),
    Generic(Generic),
    Memory(Mapping),
    Null,
}

/// Tells when somebody turns a drive's write cache on. Does not keep the drive open.
#[derive(Debug)]
pub struct CacheWatch {
    folder: PathBuf,
    drive: Weak<Drive>,
}

impl CacheWatch {
    /// The drive, if its cache has been turned on: ports flush it from now on. What it was given
    /// before is durable only once the caller has flushed it, too: those who thought that it was
    /// need not ask again. Waits while the kernel has the device to itself.
    #[must_use]
    pub fn turned_on(&self) -> Option<Arc<Drive>> {
        if sysfs::writes_through(&self.folder) != Some(false) {
            return None;
        }
        let drive = self.drive.upgrade()?;
        let was_on = drive.volatile_cache.swap(true, Ordering::Relaxed);
        (!was_on).then_some(drive)
    }
}

impl Drive {
    /// Opens and locks a drive. Does not wait: whoever follows a killed engine, or opens a drive
    /// again that was just closed, asks again while the answer is [`OpenErrorKind::InUse`].
    ///
    /// # Errors
    /// When the drive is not there, in use, not ours to open, or of a kind that is not served.
    pub fn open(spec: &DriveSpec) -> Result<Arc<Drive>, OpenError> {
        let (mut info, backing) = match spec {
            DriveSpec::File { path, size, create } => {
                let (file, info) = open::open_file(path, *size, *create)?;
                (info, Backing::Kernel(file))
            }
            DriveSpec::BlockDevice { path } => open::open_device(path)?,
            DriveSpec::Memory { size } => open_memory(spec, *size)?,
            DriveSpec::Paced { size, law, forgets } => {
                let (mut info, backing) = if *forgets {
                    open_null(spec, *size)?
                } else {
                    open_memory(spec, *size)?
                };
                info.volatile_cache = law.volatile_cache();
                (info, backing)
            }
            DriveSpec::Null { size } => open_null(spec, *size)?,
        };
        info.locked = sysfs::since_boot();
        let pacer = match spec {
            DriveSpec::Paced { law, .. } => {
                Some(Pacer::new(PaceLaw::clone(law), MonotonicClock.now()))
            }
            DriveSpec::File { .. }
            | DriveSpec::BlockDevice { .. }
            | DriveSpec::Memory { .. }
            | DriveSpec::Null { .. } => None,
        };
        Ok(Drive::of((info, backing), pacer))
    }

    fn of((info, backing): (DriveInfo, Backing), pacer: Option<Pacer>) -> Arc<Drive> {
        Arc::new_cyclic(|this| Drive {
            volatile_cache: AtomicBool::new(info.volatile_cache),
            file_limited: AtomicBool::new(false),
            info,
            backing,
            pacer,
            faults: FaultBook::default(),
            blocking: Blocking::default(),
            this: Weak::clone(this),
        })
    }

    /// Opens a drive to read it only, without the lock: also one that somebody else uses, who may
    /// change what is read at any time. The kernel refuses writes to it. A drive without a path
    /// cannot be in use, and is opened as [`Drive::open`] does.
    ///
    /// # Errors
    /// When the drive is not there, not ours to read, or of a kind that is not served.
    pub fn open_to_look(spec: &DriveSpec) -> Result<Arc<Drive>, OpenError> {
        let (path, size) = match spec {
            DriveSpec::File { path, size, .. } => (path, *size),
            DriveSpec::BlockDevice { path } => (path, None),
            DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => {
                return Drive::open(spec);
            }
        };
        let (file, info) = open::open_to_look(path, size)?;
        Ok(Drive::of((info, Backing::Kernel(file)), None))
    }

    /// What is the same as when it was opened if it was not away ([`DriveInfo::appearance`]), as
    /// the kernel says now.
    #[must_use]
    pub fn appearance(&self) -> u64 {
        self.file().map_or(0, open::appearance)
    }

    /// A drive that sends its commands wherever a test likes.
    #[cfg(test)]
    pub(crate) fn of_commands(info: DriveInfo, generic: Generic) -> Arc<Drive> {
        Drive::of((info, Backing::Generic(generic)), None)
    }

    /// What is known of the drive.
    #[must_use]
    pub fn info(&self) -> &DriveInfo {
        &self.info
    }

    /// Whether a completed write is durable only after a flush: what was so when the drive was
    /// opened, or has been since. Ports answer a flush of any other drive by themselves.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.volatile_cache.load(Ordering::Relaxed)
    }

    /// What tells when somebody turns the drive's write cache on; none where that cannot be, or
    /// is so.
    #[must_use]
    pub fn cache_watch(self: &Arc<Drive>) -> Option<CacheWatch> {
        let file = self.file()?;
        if !self.is_device() || self.has_volatile_cache() {
            return None;
        }
        Some(CacheWatch {
            folder: open::sysfs_folder(file)?,
            drive: Arc::downgrade(self),
        })
    }

    /// What the drive paces itself by, if it pretends to be as slow as a model. Only requests of
    /// ports are paced; what the control path reads and writes is not.
    #[must_use]
    pub fn pace(&self) -> Option<&PaceLaw> {
        self.pacer.as_ref().map(Pacer::law)
    }

    /// How long after `now` the answer to a request comes that begins now and will end with
    /// `status`; asked once for each request.
    pub(crate) fn pause(&self, now: Instant, access: &Access, status: Status) -> Duration {
        match &self.pacer {
            Some(pacer) if status.is_ok() => pacer.pause(now, access.operation, access.length),
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Reads, and waits for it; for the control path. A null drive reads as zeroes here.
    ///
    /// # Errors
    /// `InvalidInput` when offset or length are not multiples of the block size or not inside;
    /// [`crate::Unanswered`] when the drive has not answered in time ([`Drive::wait_at_most`]), or
    /// still owes an answer from before; else what it said.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        let access = self.access(Operation::Read, offset, target.len())?;
        if target.is_empty() {
            return Ok(());
        }
        if self.answers_at_once() {
            return self.read_now(&access, target);
        }
        let length = target.len();
        let bytes = self.ask(move |drive| {
            let mut bytes = vec![0; length];
            drive.read_now(&access, &mut bytes)?;
            Ok(bytes)
        })?;
        target.copy_from_slice(&bytes);
        Ok(())
    }

    fn read_now(&self, access: &Access, target: &mut [u8]) -> io::Result<()> {
        self.with_faults(access, || match &self.backing {
            Backing::Kernel(file) | Backing::Generic(Generic { block: file, .. }) => {
                open::read_all(file, access.offset, target)
            }
            Backing::Memory(mapping) => {
                let at = units::bytes_usize(access.offset);
                mapping.segment(at, target.len()).copy_to_slice(target);
                Ok(())
            }
            Backing::Null => {
                target.fill(0);
                Ok(())
            }
        })
    }

    /// Writes, and waits for it; for the control path. Durable only after [`Drive::flush`].
    ///
    /// # Errors
    /// As [`Drive::read`]. What has timed out may be written all the same, and any time later, as
    /// long as the drive [owes an answer](Drive::owes_an_answer).
    pub fn write(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        let access = self.access(Operation::Write, offset, source.len())?;
        if source.is_empty() {
            return Ok(());
        }
        match &self.backing {
            Backing::Kernel(_) | Backing::Generic(_) => {
                let room = Mapping::new(source.len())?;
                room.segment(0, source.len()).copy_from_slice(source);
                self.ask(move |drive| {
                    let write = |file: &File| open::write_all(file, access.offset, &room);
                    drive.with_faults(&access, || drive.file().map_or(Ok(()), write))
                })
            }
            Backing::Memory(_) | Backing::Null if self.answers_at_once() => {
                self.write_now(&access, source)
            }
            Backing::Memory(_) | Backing::Null => {
                let source = source.to_vec();
                self.ask(move |drive| drive.write_now(&access, &source))
            }
        }
    }

    /// Writes to a drive that is memory, or nothing.
    fn write_now(&self, access: &Access, source: &[u8]) -> io::Result<()> {
        self.with_faults(access, || {
            if let Backing::Memory(mapping) = &self.backing {
                let at = units::bytes_usize(access.offset);
                mapping.segment(at, source.len()).copy_from_slice(source);
            }
            Ok(())
        })
    }

    /// Makes every completed write durable, and waits for that.
    ///
    /// # Errors
    /// As [`Drive::read`].
    pub fn flush(&self) -> io::Result<()> {
        let access = self.access(Operation::Flush, 0, 0)?;
        if self.answers_at_once() {
            return self.with_faults(&access, || Ok(()));
        }
        self.ask(move |drive| {
            drive.with_faults(&access, || drive.file().map_or(Ok(()), File::sync_data))
        })
    }

    /// How long the control path waits for an answer from now on; [`crate::ANSWER_WAIT`] when
    /// nobody says.
    pub fn wait_at_most(&self, wait: Duration) {
        self.blocking.wait_at_most(wait);
    }

    /// Whether the control path has given up waiting for an answer that has not come yet. All else
    /// that it asks is refused until then. What it wrote may still land.
    #[must_use]
    pub fn owes_an_answer(&self) -> bool {
        self.blocking.owes()
    }

    /// How many requests of the control path were given up so far: whoever asks a drive several
    /// things, and takes errors for what they are, looks whether this has changed meanwhile.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.blocking.given_up()
    }

    /// Whether nobody can have to wait for it.
    fn answers_at_once(&self) -> bool {
        match self.backing {
            Backing::Memory(_) | Backing::Null => !self.faults.armed(),
            Backing::Kernel(_) | Backing::Generic(_) => false,
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Drive) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let this = self.this.upgrade();
        let this = this.expect("whoever asks it has it");
        // It is let go of before the answer is given: whoever has that may close the drive.
        self.blocking.ask(move || request(&this))
    }

    /// Memory that has a maker's number: for tests.
    ///
    /// # Errors
    /// As [`Drive::open`].
    pub fn numbered(size: Size, serial: &str) -> Result<Arc<Drive>, OpenError> {
        let (mut info, backing) = open_memory(&DriveSpec::Memory { size }, size)?;
        info.serial = Some(serial.to_owned());
        Ok(Drive::of((info, backing), None))
    }

    /// What somebody else (or we) left on the drive, if anything that is known.
    ///
    /// # Errors
    /// What the drive said.
    pub fn signature(&self) -> io::Result<Option<Signature>> {
        self.signature_of(signature::Of::Anybody)
    }

    /// As [`Drive::signature`], of others than members of our arrays: a former member may have been
    /// given another use, with one of its superblocks left.
    ///
    /// # Errors
    /// As [`Drive::signature`].
    pub fn foreign_signature(&self) -> io::Result<Option<Signature>> {
        self.signature_of(signature::Of::Others)
    }

    fn signature_of(&self, of: signature::Of) -> io::Result<Option<Signature>> {
        if self.info.kind == DriveKind::Null {
            return Ok(None);
        }
        signature::find(of, self.info.size_bytes, |offset, target| {
            self.read(offset, target)
        })
    }

    /// Overwrites the first and last [`WIPE_BYTES`] of the drive with zeroes, durably: every
    /// signature that [`Drive::signature`] knows, and our own metadata. The rest stays as it is.
    ///
    /// # Errors
    /// What the drive said; then a part may be wiped.
    pub fn wipe(&self) -> io::Result<()> {
        let size = self.info.size_bytes;
        let block = self.info.block_bytes;
        let head = size.min(WIPE_BYTES);
        let tail = size.saturating_sub(WIPE_BYTES).next_multiple_of(block);
        let zeroes = vec![0; units::bytes_usize(head)];
        // The end first: should this stop half way, what is at the start still names the drive.
        self.write(tail, &zeroes[..units::bytes_usize(size - tail)])?;
        self.flush()?;
        self.write(0, &zeroes)?;
        self.flush()
    }

    /// Whether the host has taken away what is open here: the kernel knows no such device any more,
    /// or the file's path leads nowhere or to another file. What comes back then is another device,
    /// of whatever name, and has to be opened anew.
    ///
    /// A file's server is waited for as for an answer: one that gives none has not said so.
    #[must_use]
    pub fn is_taken_away(&self) -> bool {
        if self.is_device() || self.file().is_none() {
            return self.has_left();
        }
        let asked = self.ask(|drive| Ok(drive.has_left()));
        asked.unwrap_or(false)
    }

    fn has_left(&self) -> bool {
        let (Some(file), Some(path)) = (self.file(), &self.info.path) else {
            return false;
        };
        let Ok(ours) = file.metadata() else {
            return false;
        };
        match self.info.kind {
            DriveKind::BlockDevice | DriveKind::NvmeGeneric => sysfs::is_gone(ours.rdev()),
            DriveKind::File | DriveKind::Memory | DriveKind::Null => match fs::metadata(path) {
                Ok(there) => (there.dev(), there.ino()) != (ours.dev(), ours.ino()),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            },
        }
    }

    /// Whether it is a file that was deleted: what is open here has no name any more, and is gone
    /// when it is closed. By what the kernel has at hand: no server that hangs is asked.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let is_file = self.info.kind == DriveKind::File;
        let file = self.file().filter(|_| is_file);
        let found = file.and_then(|file| statx(file, "", flags, StatxFlags::NLINK).ok());
        found.is_some_and(|found| found.stx_nlink == 0)
    }

    /// Whether it is a device that the kernel is taking away, or has: one without any block left.
    #[cold]
    pub(crate) fn is_being_taken_away(&self) -> bool {
        self.is_device() && (self.is_taken_away() || self.ends_before(1))
    }

    /// Whether it is a device that has fewer bytes than these by now.
    #[cold]
    pub(crate) fn ends_before(&self, bytes: u64) -> bool {
        let ends = |file| ioctl::block_sizes(file).is_ok_and(|sizes| sizes.size < bytes);
        self.is_device() && self.file().is_some_and(ends)
    }

    /// Whether the last change that was answered [`Status::NoSpace`] would have gone beyond what
    /// its file may have: the largest file of its file system, or of this process (`RLIMIT_FSIZE`).
    /// Else there was no room for it.
    #[must_use]
    pub fn is_file_limited(&self) -> bool {
        self.file_limited.load(Ordering::Relaxed)
    }

    /// Remembers which kind of no space this is, if it is one.
    #[cold]
    pub(crate) fn note_no_space(&self, errno: i32) {
        if verdict(errno) == Verdict::Final(Status::NoSpace) {
            let limited = errno == libc::EFBIG;
            self.file_limited.store(limited, Ordering::Relaxed);
        }
    }

    /// Orders a fault, for tests and demonstrations. It holds until [`Drive::clear_faults`].
    pub fn inject(&self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Ends all ordered faults.
    pub fn clear_faults(&self) {
        self.faults.clear();
    }

    pub(crate) fn faults(&self) -> &FaultBook {
        &self.faults
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// The kernel's number of the open file that takes requests, of those drives that have one.
    #[must_use]
    pub fn fd(&self) -> Option<RawFd> {
        match &self.backing {
            Backing::Kernel(file) => Some(file.as_raw_fd()),
            Backing::Generic(generic) => Some(generic.commands.as_raw_fd()),
            Backing::Memory(_) | Backing::Null => None,
        }
    }

    /// Whether its transfers make use of pinned memory ([`crate::Pins`]).
    #[must_use]
    pub fn uses_pins(&self) -> bool {
        match &self.backing {
            Backing::Kernel(_) => true,
            Backing::Generic(_) | Backing::Memory(_) | Backing::Null => false,
        }
    }

    /// What commands to the drive need to know, of those drives that take them.
    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        match &self.backing {
            Backing::Generic(generic) => Some(&generic.namespace),
            Backing::Kernel(_) | Backing::Memory(_) | Backing::Null => None,
        }
    }

    /// The file or block device that has the bytes.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.backing {
            Backing::Kernel(file) | Backing::Generic(Generic { block: file, .. }) => Some(file),
            Backing::Memory(_) | Backing::Null => None,
        }
    }

    fn is_device(&self) -> bool {
        match self.info.kind {
            DriveKind::BlockDevice | DriveKind::NvmeGeneric => true,
            DriveKind::File | DriveKind::Memory | DriveKind::Null => false,
        }
    }

    /// The verdict on a range: `Invalid` when not in whole blocks, `OutOfRange` when not inside.
    pub(crate) fn check_range(&self, offset: u64, length: u64) -> Status {
        let mask = self.info.block_bytes - 1;
        let end = offset.checked_add(length);
        match end {
            Some(end) if end <= self.info.size_bytes => {
                if (offset | length) & mask == 0 {
                    Status::Ok
                } else {
                    Status::Invalid
                }
            }
            Some(_) | None => Status::OutOfRange,
        }
    }

    fn access(&self, operation: Operation, offset: u64, length: usize) -> io::Result<Access> {
        let length = units::bytes_u64(length);
        if !self.check_range(offset, length).is_ok() {
            let cause = format!(
                "{operation:?} of {length} bytes at {offset} does not fit a drive of {} bytes in \
                 blocks of {}",
                self.info.size_bytes, self.info.block_bytes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
        }
        Ok(Access {
            operation,
            offset,
            length,
        })
    }

    /// Runs blocking I/O under the ordered faults. A delay is for the data path only.
    fn with_faults(&self, access: &Access, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.faults.wait_for_answer();
        as_error(self.faults.before(access))?;
        run()?;
        let (status, _) = self.faults.after(access, Status::Ok);
        as_error(status)
    }
}

fn open_null(spec: &DriveSpec, size: Size) -> Result<(DriveInfo, Backing), OpenError> {
    let bytes = open::plain_size(spec, size)?;
    Ok((open::plain_info(DriveKind::Null, bytes), Backing::Null))
}

/// Memory for a drive that keeps its bytes there; pages take memory when first written.
fn open_memory(spec: &DriveSpec, size: Size) -> Result<(DriveInfo, Backing), OpenError> {
    let bytes = open::plain_size(spec, size)?;
    let mapping = Mapping::of_drive(units::bytes_usize(bytes)).map_err(|error| {
        let cause = format!("no address space for it: {error}");
        OpenError::unnamed(OpenErrorKind::Size, spec.to_string(), cause)
    })?;
    let info = open::plain_info(DriveKind::Memory, bytes);
    Ok((info, Backing::Memory(mapping)))
}
