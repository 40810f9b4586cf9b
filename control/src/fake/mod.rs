//! A pretended engine: the control path's promises are tested against it, with nothing below.
//!
//! [`FakeHost`] is what survives a restart (drives and what is on them); [`FakeEngine`] is one
//! run of an engine on it. Dropping the engine without `shutdown` is a kill.

mod arrays;
mod engine;
mod scrub;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::membership::Membership;
use crate::request::{DriveKnown, ExportCreate, Level, VolumeLimit};
use crate::view::{
    Access, ArrayState, ArrayView, DriveState, DriveView, ExportProfile, ExportState, ExportView,
    IoCounters, JobKind, JobState, JobView, MemberState, MemberView, QueueView, VolumeView,
};
use crate::{EngineError, ErrorKind};

/// What is on one pretended drive.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Its size.
    pub size_bytes: u64,
    /// A foreign signature.
    pub signature: Option<String>,
    /// The array and place it belongs to.
    pub member: Option<(Uuid, u16)>,
}

/// An array as its members remember it.
#[derive(Clone, Debug)]
pub struct KeptArray {
    /// The view without what runs.
    pub view: ArrayView,
    /// Its volumes.
    pub volumes: BTreeMap<String, VolumeView>,
}

#[derive(Debug, Default)]
struct Host {
    drives: BTreeMap<String, Content>,
    arrays: BTreeMap<Uuid, KeptArray>,
    fail_next: BTreeSet<&'static str>,
    held: Option<&'static str>,
    late_next: BTreeSet<&'static str>,
    /// A drive that goes when an array is started.
    silent: Option<String>,
    /// What the last engine was told of arrays.
    recalled: BTreeMap<Uuid, Membership>,
    calls: Vec<String>,
    /// No array was stopped cleanly; these places were in sync, and may be missed.
    crashed: Vec<u16>,
}

/// A host with pretended drives; clones are the same host.
#[derive(Clone, Debug, Default)]
pub struct FakeHost(Arc<Mutex<Host>>, Arc<Condvar>);

impl FakeHost {
    /// What the last engine was told of arrays before it looked for any.
    #[must_use]
    pub fn recalled(&self) -> BTreeMap<Uuid, Membership> {
        self.lock().recalled.clone()
    }

    /// What the start of an array tells, until it is started again.
    ///
    /// # Panics
    /// When there is no such array.
    pub fn tell_of_start(&self, array: Uuid, told: &[&str]) {
        let mut host = self.lock();
        let kept = host.arrays.get_mut(&array).expect("there is one");
        kept.view.start_warnings = told.iter().map(|&text| text.to_owned()).collect();
        kept.view.warnings.clone_from(&kept.view.start_warnings);
    }

    /// A host without drives.
    #[must_use]
    pub fn new() -> FakeHost {
        FakeHost::default()
    }

    fn lock(&self) -> MutexGuard<'_, Host> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a blank drive behind `spec` (its text without options).
    pub fn plug(&self, spec: &str, size_bytes: u64) {
        let content = Content {
            size_bytes,
            ..Content::default()
        };
        self.lock().drives.insert(spec.to_owned(), content);
    }

    /// Takes the drive away.
    ///
    /// # Panics
    /// When it is not there.
    #[must_use]
    pub fn unplug(&self, spec: &str) -> Content {
        self.lock()
            .drives
            .remove(spec)
            .expect("the test plugged it")
    }

    /// Takes a drive away when its array is started next, which it does not answer.
    pub fn fall_silent(&self, spec: &str) {
        self.lock().silent = Some(spec.to_owned());
    }

    fn answers(&self) -> Result<(), EngineError> {
        let Some(spec) = self.lock().silent.take() else {
            return Ok(());
        };
        let _ = self.unplug(&spec);
        Err(refuse(ErrorKind::Unreachable, spec, "it does not answer"))
    }

    /// Puts a drive back, perhaps elsewhere.
    pub fn replug(&self, spec: &str, content: Content) {
        self.lock().drives.insert(spec.to_owned(), content);
    }

    /// Puts a foreign signature on a drive.
    ///
    /// # Panics
    /// When it is not there.
    pub fn sign(&self, spec: &str, signature: &str) {
        let mut host = self.lock();
        let content = host.drives.get_mut(spec).expect("the test plugged it");
        content.signature = Some(signature.to_owned());
    }

    /// Lets the next call of this name fail with `Internal`; of this name and object, if both are
    /// given. `erase` lets the next wipe go well and leave everything where it is, `erase_members`
    /// the next end of an array.
    pub fn fail_next(&self, call: &'static str) {
        self.lock().fail_next.insert(call);
    }

    /// Lets the next call of this name be carried out, and answered as if it was not done in time.
    /// Heeded by those that make, import or start an array, replace a member, or delete a volume;
    /// one that destroys an array, or removes a drive, is not carried out until it is asked again.
    pub fn late_next(&self, call: &'static str) {
        self.lock().late_next.insert(call);
    }

    /// Lets calls of this name wait until [`FakeHost::let_go`].
    pub fn hold(&self, call: &'static str) {
        self.lock().held = Some(call);
    }

    /// Those calls go on.
    pub fn let_go(&self) {
        self.lock().held = None;
        self.1.notify_all();
    }

    /// As if the power had failed: arrays that lack one of these places may be torn.
    pub fn crash(&self, places: &[u16]) {
        self.lock().crashed = places.to_vec();
    }

    /// The changing calls so far, and forgets them.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().calls)
    }

    /// Starts an engine on this host.
    #[must_use]
    pub fn engine(&self) -> FakeEngine {
        FakeEngine {
            host: self.clone(),
            run: Mutex::new(Run::default()),
        }
    }
}

/// One run of the pretended engine.
#[derive(Debug)]
pub struct FakeEngine {
    host: FakeHost,
    run: Mutex<Run>,
}

#[derive(Debug, Default)]
struct Run {
    drives: BTreeMap<String, DriveKnown>,
    /// Assembled arrays, and whether they serve.
    arrays: BTreeMap<Uuid, bool>,
    /// Those that were told to be destroyed, and have not ended.
    destroyed_late: BTreeSet<Uuid>,
    /// Drives that were told to be removed, and have only been left out.
    removed_late: BTreeSet<String>,
    /// By the names of their arrays, and by uuid.
    limits: BTreeMap<(String, Uuid), VolumeLimit>,
    /// With the volumes that they serve.
    exports: BTreeMap<String, (Uuid, ExportCreate, ExportProfile)>,
    jobs: Vec<JobView>,
}

fn refuse(kind: ErrorKind, object: impl Into<String>, message: &str) -> EngineError {
    EngineError::new(kind, object, message).next("look at it")
}

/// The text that tells a drive on the pretended host: the spec without its options.
fn place(spec: &crate::request::DriveSpec) -> String {
    let text = spec.to_string();
    text.split(',').next().unwrap_or_default().to_owned()
}

fn identity(content: &Content) -> String {
    content
        .member
        .map(|(array, member)| format!("member {array} {member}"))
        .unwrap_or_default()
}

impl FakeEngine {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a changing call; fails when the test asked for it.
    fn begin(&self, call: &'static str, object: &str) -> Result<(), EngineError> {
        let mut host = self.host.lock();
        host.calls
            .push(format!("{call} {object}").trim_end().to_owned());
        while host.held == Some(call) {
            let woken = self.host.1.wait(host);
            host = woken.unwrap_or_else(PoisonError::into_inner);
        }
        drop(host);
        self.fail_if_asked(call, object)
    }

    /// The assembled array of this name; others of the name may lie on drives unplugged.
    fn array_uuid(&self, name: &str) -> Uuid {
        let assembled: Vec<Uuid> = self.run().arrays.keys().copied().collect();
        let host = self.host.lock();
        let found = assembled
            .into_iter()
            .find(|uuid| host.arrays[uuid].view.name == name);
        found.expect("the control path resolved the name")
    }

    fn note(&self, call: String) {
        self.host.lock().calls.push(call);
    }

    fn fail_if_asked(&self, call: &'static str, object: &str) -> Result<(), EngineError> {
        let fails = &mut self.host.lock().fail_next;
        if fails.remove(call) || fails.remove(format!("{call} {object}").as_str()) {
            return Err(refuse(ErrorKind::Internal, object, "the test asked for it"));
        }
        Ok(())
    }

    fn end<T>(&self, call: &'static str, answer: Result<T, EngineError>) -> Result<T, EngineError> {
        let done = answer?;
        if self.host.lock().late_next.remove(call) {
            return Err(refuse(ErrorKind::Busy, call, "it is done later"));
        }
        Ok(done)
    }

    fn drive_view(&self, known: &DriveKnown, content: Option<&Content>) -> DriveView {
        let blank = Content::default();
        let content = content.unwrap_or(&blank);
        let host_array = content.member.and_then(|(array, member)| {
            let assembled = self.run().arrays.contains_key(&array);
            assembled.then_some((array, member))
        });
        let name_of = |array: Uuid| {
            self.host
                .lock()
                .arrays
                .get(&array)
                .map(|a| a.view.name.clone())
        };
        let foreign = content.member.filter(|_| host_array.is_none());
        let of_array =
            foreign.map(|(array, member)| format!("garboard array {array}, member {member}"));
        DriveView {
            name: known.name.clone(),
            uuid: known.uuid,
            spec: known.spec.clone(),
            identity: identity(content),
            state: if host_array.is_some() {
                DriveState::Member
            } else {
                DriveState::Free
            },
            array: host_array.and_then(|(array, _)| name_of(array)),
            pool: None,
            member: host_array.map(|(_, member)| member),
            model: Some("Pretended".into()),
            serial: Some(format!("S-{}", known.name)),
            size_bytes: content.size_bytes,
            block_bytes: 512,
            physical_block_bytes: 4096,
            atomic_bytes: 512,
            access: "memory".into(),
            write_cache: "none".into(),
            signature: content.signature.clone().or(of_array),
            cause: None,
            node: Some(0),
            counters: IoCounters {
                reads_total: 7,
                read_bytes_total: 7 * 4096,
                ..IoCounters::default()
            },
        }
    }

    fn array_view(&self, uuid: Uuid, serving: bool) -> ArrayView {
        let kept = self.host.lock().arrays[&uuid].clone();
        let mut view = kept.view;
        view.volumes = u32::try_from(kept.volumes.len()).expect("few");
        let used: u64 = kept.volumes.values().map(|volume| volume.size_bytes).sum();
        // Volumes of any size are taken.
        view.free_bytes = view.size_bytes.saturating_sub(used);
        let lost = view
            .members
            .iter()
            .filter(|place| place.state != MemberState::Online)
            .count();
        if !serving {
            let crashed = self.host.lock().crashed.clone();
            let away = view.members.iter().filter(|place| {
                place.state == MemberState::Missing && crashed.contains(&place.member)
            });
            view.torn_without = away.map(|place| place.member).collect();
        }
        view.state = match (serving, lost) {
            (false, _) => ArrayState::Stopped,
            (true, 0) => ArrayState::Optimal,
            (true, lost) if lost <= usize::from(view.parity) => ArrayState::Degraded,
            (true, _) => ArrayState::Failed,
        };
        let jobs = &self.run().jobs;
        let running = jobs
            .iter()
            .filter(|job| job.array == view.name && job.state == JobState::Running);
        view.jobs = running.map(|job| job.id).collect();
        view
    }

    fn begin_job(&self, kind: JobKind, array: &str) -> JobView {
        let mut run = self.run();
        let job = JobView {
            id: u64::try_from(run.jobs.len()).expect("few") + 1,
            kind,
            array: array.to_owned(),
            state: JobState::Running,
            done_bytes: 0,
            total_bytes: 4 << 20,
            rate_bytes_per_second: Some(1 << 20),
            time_left_s: Some(4),
            cause: None,
        };
        run.jobs.push(job.clone());
        job
    }
}

fn parity_of(level: Level) -> u16 {
    match level {
        Level::Raid0 => 0,
        Level::Raid1 | Level::Raid10 | Level::Raid5 | Level::Raid50 => 1,
        Level::Raid6 | Level::Raid60 | Level::Nm => 2,
        Level::Raid7 | Level::Raid70 => 3,
    }
}

fn members(drives: &[String]) -> Vec<MemberView> {
    let place = |(member, drive): (usize, &String)| MemberView {
        member: u16::try_from(member).expect("few"),
        group: 0,
        state: MemberState::Online,
        drive: Some(drive.clone()),
        cause: None,
        pace: None,
    };
    drives.iter().enumerate().map(place).collect()
}

fn profile(create: &ExportCreate) -> ExportProfile {
    ExportProfile {
        virtio_features: 0x1_4000_3e46,
        protocol_features: 0x9_1209,
        queues: create.wishes.queues.unwrap_or(4),
        queue_size: create.wishes.queue_size.unwrap_or(256),
        block_bytes: create.wishes.block_bytes.unwrap_or(512),
        physical_block_bytes: 4096,
        minimum_io_bytes: 65536,
        optimal_io_bytes: 4 * 65536,
        segments_max: 254,
        segment_bytes_max: 1 << 20,
        serial: create.wishes.serial.clone(),
    }
}

fn export_view(create: &ExportCreate, profile: &ExportProfile) -> ExportView {
    let queue = |queue| QueueView {
        queue,
        core: Some(0),
        requests_total: 0,
        cause: None,
    };
    ExportView {
        name: create.name.clone(),
        uuid: create.uuid,
        protocol: "vhost-user-blk".into(),
        volume: create.volume.clone(),
        // A read-only export of the pretended engine has a guest, so that both can be tested.
        state: match create.access {
            Access::ReadWrite => ExportState::Waiting,
            Access::ReadOnly => ExportState::Connected,
        },
        socket: create.socket.path.clone(),
        connections: u32::from(create.access == Access::ReadOnly),
        profile: Some(profile.clone()),
        cores: create.cores.clone(),
        access: create.access,
        sharing: create.sharing,
        guest_memory: create.guest_memory,
        pinned_bytes: 0,
        queues: (0..profile.queues).map(queue).collect(),
        cause: None,
    }
}
