//! Which drive is which: by the maker's number or by what is on it, wherever it is now.
//!
//! The path of a drive is a hint. When it leads nowhere or to another drive, the one that is wanted
//! is looked for among its neighbours: files of the same folder, block devices of this host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::request::{DriveKnown, DriveSpec};
use control::{Answer, EngineError, ErrorKind};
use drive::Drive;
use units::limits::DRIVE_LOOK;
use units::{Clock, DriveIndex, Instant, MemberIndex, MonotonicClock};
use uuid::Uuid;

use array::format::{MEMBER_BYTES_MIN, Superblock};

use crate::apart::apart;
use crate::drives::{LOCK_PAUSE, LOCK_WAIT};
use crate::error::{error, not_found};
use crate::opened::{Opened, look_at, path_of, same_file};
use crate::state::DriveRole;
use crate::{Host, records};

/// How long a drive that we closed a moment ago may stay locked.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The most files of a folder that are looked into.
const NEIGHBOURS_MAX: usize = 1024;
/// Where the kernel's device manager keeps a link to each drive that has a number of its own.
const BY_ID: &str = "/dev/disk/by-id";

/// What a member's superblock names it by.
pub(crate) fn mark(superblock: &Superblock) -> String {
    let Superblock {
        array,
        member,
        member_uuid,
        ..
    } = superblock;
    format!("member:{array}:{}:{member_uuid}", member.0)
}

/// The mark on a drive; empty when there is none, or it cannot be read.
pub(crate) fn mark_on(drive: &Drive) -> String {
    let found = records::read(DriveIndex(0), drive);
    let found = found.ok();
    let superblock = found.as_ref().and_then(|found| found.superblock());
    superblock.map(mark).unwrap_or_default()
}

/// What a drive is told by: the maker's number, else what is on it.
pub(crate) fn identity(drive: &Drive, mark: &str) -> String {
    let info = drive.info();
    if info.wwid.is_some() || info.serial.is_some() {
        return info.identity().unwrap_or_default();
    }
    mark.to_owned()
}

/// A drive at some place.
pub(crate) struct Place {
    pub(crate) spec: DriveSpec,
    pub(crate) opened: Opened,
}

impl Host {
    /// Opens the drive that is wanted: what was found at its path if that is it, else wherever it
    /// is found.
    pub(crate) fn open_known(&self, known: &DriveKnown, hint: Answer<Opened>) -> Answer<()> {
        let (hint, refusal) = match hint {
            Ok(opened) => {
                let seen = opened.identity();
                if known.identity.is_empty() || seen == known.identity {
                    return self.adopt(&known.name, known.uuid, &known.spec, opened);
                }
                let refusal = is_another(known, &seen);
                let may_be = seen.is_empty() || is_of_same_array(known, &seen);
                (may_be.then_some(opened), refusal)
            }
            Err(refusal) if refusal.kind == ErrorKind::Busy && !self.holds(known) => {
                return Err(refusal);
            }
            // Who looks whether it is back finds it elsewhere as well, and nobody waits for that.
            Err(refusal) if refusal.kind == ErrorKind::Unreachable => return Err(refusal),
            Err(refusal) => (None, refusal),
        };
        if let Some(place) = self.look_for(known)? {
            tracing::warn!(event = "drive_moved", drive = known.name, from = %known.spec,
                to = %place.spec, "found by what it is");
            return self.adopt(&known.name, known.uuid, &place.spec, place.opened);
        }
        match hint {
            // The array it belongs to knows what to make of it: it may have changed its place
            // there just before the engine was killed.
            Some(opened) => {
                self.adopt(&known.name, known.uuid, &known.spec, opened)?;
                self.note_erased(known);
                Ok(())
            }
            None => Err(refusal),
        }
    }

    /// Whether a drive that is wanted and not open is there again. Its neighbours are looked into
    /// when they are others than last time.
    pub(crate) fn do_is_back(&self, known: &DriveKnown) -> bool {
        if known.identity.is_empty() {
            return false;
        }
        if self.awaits(&known.name) {
            return self.is_back_again(known);
        }
        let is_it = |spec: &DriveSpec| {
            let seen = self.do_identify_drive(spec);
            seen.is_ok_and(|seen| seen == known.identity)
        };
        if is_it(&known.spec) {
            return true;
        }
        let around = neighbours(&known.spec);
        let before = self.state().around.insert(known.uuid, around.clone());
        before.is_none_or(|before| before != around) && around.iter().any(is_it)
    }

    /// Says of a drive that was a member, and on which nothing says so any more, that it was one.
    fn note_erased(&self, known: &DriveKnown) {
        let Some((array, member)) = member_of(&known.identity) else {
            return;
        };
        let mut state = self.state();
        let name = state.array_by_uuid(array).map(|array| array.name.clone());
        let Some(entry) = state.drives.get_mut(&known.name) else {
            return;
        };
        if !entry.mark.is_empty() {
            return;
        }
        let of = name.map_or_else(|| format!("array {array}"), |name| format!("array {name}"));
        let cause = format!(
            "it was {member} of {of}, and no superblock says so any more: blank, or overwritten; \
             `garboard array replace` fills it anew, with --force unless it is blank"
        );
        tracing::warn!(
            event = "drive_left_out",
            drive = known.name,
            reason = cause,
            "left out"
        );
        entry.role = DriveRole::LeftOut {
            array,
            member: Some(member),
            cause,
        };
    }

    /// Opens what is at their paths, side by side, and closes at once what is not to be kept:
    /// others may want it. Of two that want the same path the second one waits for nobody.
    pub(crate) fn at_hints(
        &self,
        known: &[DriveKnown],
        keep: fn(&DriveKnown, &Opened) -> bool,
    ) -> Vec<Answer<Option<Opened>>> {
        let is_first = |position: usize| {
            let path = path_of(&known[position].spec);
            let mut before = known[..position].iter().map(|other| path_of(&other.spec));
            path.is_none() || before.all(|other| other != path)
        };
        let end = MonotonicClock.now() + self.asks.wait;
        let open = |(position, known): (usize, &DriveKnown)| {
            let first = is_first(position);
            let entered = if first {
                self.enter(&known.spec, end)
            } else {
                Some(None)
            };
            let waits = first && !self.holds(known);
            let (known, begun) = (known.clone(), self.begun);
            entered.map(|look| {
                move || {
                    let opened = at_hint(&known, begun, waits);
                    let opened = opened.map(|opened| keep(&known, &opened).then_some(opened));
                    drop(look);
                    opened
                }
            })
        };
        let opens: Vec<_> = known.iter().enumerate().map(open).collect();
        let asked: Vec<bool> = opens.iter().map(Option::is_some).collect();
        let opens = opens.into_iter().flatten().collect();
        let mut opened = apart(self.asks.wait, opens).into_iter();
        let answer = |(known, asked): (&DriveKnown, bool)| {
            let opened = if asked { opened.next().flatten() } else { None };
            opened.unwrap_or_else(|| Err(self.silent(&known.name)))
        };
        known.iter().zip(asked).map(answer).collect()
    }

    /// Opens what is at the path of one.
    pub(crate) fn at_hint(&self, known: &DriveKnown) -> Answer<Opened> {
        let mut opened = self.at_hints(std::slice::from_ref(known), |_, _| true);
        let opened = opened.pop().expect("there is an answer for each");
        opened.map(|opened| opened.expect("it is kept"))
    }

    /// Whether the path leads to a drive that is open here under another name.
    fn holds(&self, known: &DriveKnown) -> bool {
        path_of(&known.spec).is_some_and(|path| self.is_open(path))
    }

    pub(crate) fn is_open(&self, path: &Path) -> bool {
        // Before they are asked: a file system may take its time to answer.
        let open: Vec<(PathBuf, Arc<Drive>)> = {
            let state = self.state();
            let entries = state.drives.values();
            let open = entries.filter_map(|entry| Some((path_of(&entry.spec)?, &entry.drive)));
            open.map(|(path, drive)| (path.to_owned(), Arc::clone(drive)))
                .collect()
        };
        let paths: Vec<PathBuf> = open.iter().map(|(open, _)| open.clone()).collect();
        let new = path.to_owned();
        let find = move || paths.iter().map(|path| same_file(path, &new)).collect();
        // A file's server that is away lets nobody wait for ever. Who opens it finds it locked.
        let same: Option<Vec<bool>> = apart(self.asks.wait, vec![find]).pop().flatten();
        let mut open = open.iter().zip(same.unwrap_or_default());
        // What was taken away is not what is there now.
        open.any(|((_, drive), same)| same && !drive.is_taken_away())
    }

    /// Where a drive is whose device the host has taken away, as `do_is_back` has found it: a drive
    /// that is told by what is on it may have a copy, and then neither counts.
    pub(crate) fn find_again(&self, known: &DriveKnown) -> Answer<Place> {
        let there = self.state().again.remove(&known.uuid);
        let [spec] = there.as_deref().unwrap_or_default() else {
            let specs = there.unwrap_or_default();
            let specs: Vec<String> = specs.iter().map(ToString::to_string).collect();
            if specs.is_empty() {
                return Err(not_found("drive", &known.name));
            }
            return Err(several(known, &specs));
        };
        let opened = self.look(&known.name, spec)?;
        if opened.identity() != known.identity {
            return Err(not_found("drive", &known.name));
        }
        let spec = spec.clone();
        Ok(Place { spec, opened })
    }

    /// Looks for a drive that its array waits for. One with a number of its maker's is at its
    /// place, or else somewhere; of one without there may be several, which all claim to be it.
    fn is_back_again(&self, known: &DriveKnown) -> bool {
        let is_it = |spec: &&DriveSpec| {
            let seen = self.do_identify_drive(spec);
            seen.is_ok_and(|seen| seen == known.identity)
        };
        let is_hard = member_of(&known.identity).is_none();
        let at_hint = is_it(&&known.spec);
        let mut there = Vec::new();
        if at_hint {
            there.push(known.spec.clone());
        }
        if !(at_hint && is_hard) {
            let around = neighbours(&known.spec);
            let now = MonotonicClock.now();
            let is_due = {
                let mut state = self.state();
                let before = state.around.insert(known.uuid, around.clone());
                let last = state.looked.get(&known.uuid).copied();
                let due = last.is_none_or(|last| now.since(last) >= DRIVE_LOOK);
                let is_due = at_hint || due || before.is_none_or(|before| before != around);
                if is_due {
                    state.looked.insert(known.uuid, now);
                }
                is_due
            };
            let hint = path_of(&known.spec);
            let is_hint = |spec: &&DriveSpec| {
                hint.zip(path_of(spec))
                    .is_some_and(|(hint, path)| same_file(hint, path))
            };
            if is_due {
                let others = around.iter().filter(|spec| !is_hint(spec));
                there.extend(others.filter(is_it).cloned());
            }
        }
        let is_back = !there.is_empty();
        self.state().again.insert(known.uuid, there);
        is_back
    }

    /// The drive of this identity among its neighbours.
    fn look_for(&self, known: &DriveKnown) -> Answer<Option<Place>> {
        if known.identity.is_empty() {
            return Ok(None);
        }
        let mut places: Vec<Place> = Vec::new();
        let wanted = known.spec.clone();
        let around = apart(self.asks.wait, vec![move || neighbours(&wanted)]);
        let around = around.into_iter().flatten().flatten();
        // One that owes somebody an answer is not asked again.
        let now = MonotonicClock.now();
        let free = around.filter_map(|spec| Some((self.enter(&spec, now)?, spec)));
        let (mut looks, mut specs) = (Vec::new(), Vec::new());
        for (look, spec) in free {
            specs.push(spec.clone());
            let (name, identity) = (known.name.clone(), known.identity.clone());
            looks.push(move || {
                let opened = look_at(&name, &spec);
                drop(look);
                // What is another drive is closed at once, for who is beside it.
                opened.map(|opened| (opened.identity() == identity).then_some(opened))
            });
        }
        for (spec, opened) in specs.into_iter().zip(apart(self.asks.wait, looks)) {
            // What is mounted, locked (by ourselves, too), unreadable or silent is not to be had.
            let found = match opened {
                Some(Ok(found)) => found,
                // A disk and a partition of it let nobody open both.
                Some(Err(refused)) if refused.kind == ErrorKind::Busy => {
                    let opened = self.look(&known.name, &spec).ok();
                    opened.filter(|opened| opened.identity() == known.identity)
                }
                Some(Err(_)) | None => None,
            };
            places.extend(found.map(|opened| Place { spec, opened }));
        }
        if places.len() < 2 {
            return Ok(places.pop());
        }
        let specs: Vec<String> = places.iter().map(|place| place.spec.to_string()).collect();
        Err(several(known, &specs))
    }
}

/// Opens what is at the path, which may still be locked by the engine before us: after a kill, the
/// kernel holds its locks until what it had submitted has landed, and a write that lands later than
/// our first read would undo what we acknowledged (architecture rule 4). `begun`: since when this
/// engine runs.
fn at_hint(known: &DriveKnown, begun: Instant, waits: bool) -> Answer<Opened> {
    let asked = MonotonicClock.now();
    loop {
        let opened = look_at(&known.name, &known.spec);
        let busy = matches!(&opened, Err(refused) if refused.kind == ErrorKind::Busy);
        let now = MonotonicClock.now();
        let waited = now.since(begun) > LOCK_WAIT && now.since(asked) > CLOSE_WAIT;
        if !busy || !waits || waited {
            return opened;
        }
        std::thread::park_timeout(LOCK_PAUSE);
    }
}

fn several(known: &DriveKnown, specs: &[String]) -> EngineError {
    let text = format!("{} all say that they are it", specs.join(", "));
    error(ErrorKind::Invalid, format!("drive {}", known.name), text)
        .next("take the copies away, or give the right one with `garboard drive add`")
}

fn is_another(known: &DriveKnown, seen: &str) -> EngineError {
    let text = format!(
        "{} is another drive ({seen}), not {}",
        known.spec, known.identity
    );
    error(ErrorKind::NotFound, format!("drive {}", known.name), text)
        .next("give the place of the right one with `garboard drive add`")
}

/// The array and the place that a mark names.
pub(crate) fn member_of(mark: &str) -> Option<(Uuid, MemberIndex)> {
    let mut parts = mark.strip_prefix("member:")?.split(':');
    let array = parts.next()?.parse().ok()?;
    Some((array, MemberIndex(parts.next()?.parse().ok()?)))
}

fn is_of_same_array(known: &DriveKnown, seen: &str) -> bool {
    let array = |identity: &str| {
        let rest = identity.strip_prefix("member:")?;
        rest.split(':').next().map(str::to_owned)
    };
    array(seen).is_some() && array(seen) == array(&known.identity)
}

/// Where a drive may be instead.
fn neighbours(spec: &DriveSpec) -> Vec<DriveSpec> {
    match spec {
        DriveSpec::File {
            path, size_bytes, ..
        } => {
            let is_large = |path: &PathBuf| {
                std::fs::metadata(path)
                    .is_ok_and(|facts| facts.is_file() && facts.len() >= MEMBER_BYTES_MIN)
            };
            let paths = path.parent().map(entries).unwrap_or_default();
            let file = |path| DriveSpec::File {
                path,
                size_bytes: *size_bytes,
                create: false,
            };
            paths.into_iter().filter(is_large).map(file).collect()
        }
        DriveSpec::Block { path } => {
            let mut devices: Vec<PathBuf> = entries(Path::new(BY_ID))
                .into_iter()
                .filter_map(|link| std::fs::canonicalize(link).ok())
                .collect();
            if is_generic(path) {
                // One that was reached by commands is reached so again, or not at all: there are
                // links to block devices only.
                let beside = devices.iter();
                devices = beside
                    .filter_map(|device| drive::generic_device_of(device))
                    .collect();
            }
            devices.sort_unstable();
            devices.dedup();
            let block = |path| DriveSpec::Block { path };
            devices.into_iter().map(block).collect()
        }
        DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => Vec::new(),
    }
}

/// Whether a path is that of the generic device of an NVMe drive, which need not be there.
fn is_generic(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let rest = name.and_then(|name| name.strip_prefix("ng"));
    rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.take(NEIGHBOURS_MAX).collect();
    paths.sort_unstable();
    paths
}
