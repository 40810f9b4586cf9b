//! The engine that `garboard serve` runs: names, drives, arrays, volumes and exports over the data
//! path. Implements what the control path asks of an engine (`control::Engine`).
//!
//! What does not live here: wanted state and the API (crate `control`), and whatever happens per
//! request (the crates below `datapath`).

mod answers;
mod apart;
mod arrays;
mod balance;
mod begun;
mod caches;
mod contents;
mod deleted;
mod drives;
mod error;
mod events;
mod exports;
mod found;
mod jobs;
mod logs;
mod looks;
mod losses;
mod memberships;
mod metrics;
mod opened;
mod pins;
mod records;
mod scrub;
mod session_log;
mod shutdown;
mod state;
#[cfg(test)]
mod tests;
mod undecided;
mod views;
mod volumes;
mod waiting;
mod zeroing;

pub use opened::spec_of as drive_spec;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use array::Room;
use control::engine::Begun;
use control::membership::Membership;
use control::metrics::Metric;
use control::request::{
    ArrayCreate, ArrayImport, ArrayModify, BackgroundKind, DriveAdd, DriveKnown, DriveSpec,
    ExportCreate, Lamp, MemberReplace, QueueMove, VolumeCreate, VolumeLimit,
};
use control::scrub::{ScrubBody, ScrubView};
use control::settings::Poll;
use control::spares::Need;
use control::view::{
    ArrayView, DriveView, EngineStatus, ExportView, FoundArray, JobView, ReactorView, VolumeKey,
    VolumeView,
};
use control::{Answer, ErrorKind};
use engine::{Engine, EngineSettings, StartError};
use nodes::Nodes;
use reactor::Polling;
use units::{Clock, Instant, MonotonicClock, NodeIndex, Size};
use uuid::Uuid;
use vhost_user_blk::SessionEvent;

use crate::begun::Lasting;
use crate::looks::Looks;
use crate::session_log::{SessionLog, Telling};
use crate::state::{Serving, State};

/// The engine of one process.
pub struct Host {
    engine: Arc<Engine>,
    cores: Vec<Option<usize>>,
    poll: Poll,
    memory_bytes: u64,
    /// Where the next engine finds what this one has begun.
    lasting: Option<Lasting>,
    begun: Instant,
    state: Mutex<State>,
    /// Looks at drives that may take for ever.
    looks: Looks<Uuid>,
    asks: answers::Asks,
    /// Held by who looks who is in sync.
    looking: Mutex<()>,
    /// How busy reactors were when somebody looked last.
    balance: Mutex<balance::Balance>,
    buffer_pins: Mutex<pins::BufferPins>,
    session_events: Sender<(u64, SessionEvent)>,
    /// For threads that may outlive a call.
    myself: Weak<Host>,
}

/// What nobody sets but tests.
#[derive(Clone, Debug)]
struct Tuning {
    room: Room,
    /// How long a command waits for drives before it says so.
    patience: Duration,
    /// How long a drive may take to be opened, or to say what it holds.
    answer_wait: Duration,
    lasting: Option<Lasting>,
    /// By reactor: its node; as the machine says when there are none here.
    nodes: Vec<Option<NodeIndex>>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            room: Room::default(),
            patience: Duration::from_secs(30),
            answer_wait: drive::ANSWER_WAIT,
            lasting: None,
            nodes: Vec::new(),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("cores", &self.cores)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Starts the reactors.
    ///
    /// # Errors
    /// When io_uring is refused, or a CPU, thread or memory is; the text says what to do.
    pub fn start(settings: &control::settings::EngineSettings) -> Answer<Arc<Host>> {
        let lasting = Lasting::usual(&settings.state_dir);
        lasting.sweep();
        let tuning = Tuning {
            lasting: Some(lasting),
            ..Tuning::default()
        };
        Host::start_tuned(settings, tuning)
    }

    fn start_tuned(
        settings: &control::settings::EngineSettings,
        tuning: Tuning,
    ) -> Answer<Arc<Host>> {
        let failed = |text: String| error::error(ErrorKind::Internal, "engine", text);
        memory::guest::survive_truncation()
            .map_err(|source| failed(format!("cannot guard against truncated memory: {source}")))?;
        let cores: Vec<usize> = if settings.cores.is_empty() {
            reactor::default_cores()
        } else {
            let cores = settings.cores.iter();
            cores.map(|&core| usize::from(core)).collect()
        };
        let nodes = if tuning.nodes.is_empty() {
            nodes_of(&cores)
        } else {
            tuning.nodes
        };
        let cores: Vec<Option<usize>> = cores.into_iter().map(Some).collect();
        let polling = match settings.poll {
            Poll::Always => Polling::Always,
            Poll::Adaptive => Polling::Adaptive,
            Poll::Never => Polling::Never,
        };
        let engine = Engine::start(&EngineSettings {
            cores: cores.clone(),
            nodes,
            polling,
            room: tuning.room,
            memory_bytes: settings.memory_bytes,
            patience: tuning.patience,
        });
        let engine = engine.map_err(|start| {
            if let StartError::Memory { given, least } = start {
                let next = format!(
                    "`garboard serve --memory {}` is enough for one",
                    Size(least)
                );
                let text = format!(
                    "those of an array take {} at least, and their budget is {}",
                    Size(least),
                    Size(given)
                );
                return error::error(ErrorKind::Invalid, "buffers", text).next(next);
            }
            failed(start.to_string()).next("`garboard serve --cores LIST` names CPUs of this host")
        })?;
        let events = engine.take_events().expect("nobody has taken them");
        let (session_events, told) = channel();
        let host = Arc::new_cyclic(|myself| Host {
            myself: myself.clone(),
            engine,
            cores,
            poll: settings.poll,
            memory_bytes: settings.memory_bytes.unwrap_or(0),
            lasting: tuning.lasting,
            begun: MonotonicClock.now(),
            state: Mutex::default(),
            looks: Looks::default(),
            asks: answers::Asks::new(tuning.answer_wait),
            looking: Mutex::new(()),
            balance: Mutex::default(),
            buffer_pins: Mutex::default(),
            session_events,
        });
        log_in_background("array-log", &host, events, |host, (array, event)| {
            host.log_event(array, &event);
        })?;
        log_sessions(&host, told)?;
        Ok(host)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    fn log_session_event(&self, export: u64, event: &SessionEvent, untold: u64) {
        let name = {
            let state = self.state();
            let found = state.exports.values().find(|entry| entry.id == export);
            found.map_or_else(|| export.to_string(), |entry| entry.create.name.clone())
        };
        if untold > 0 {
            tracing::warn!(
                event = "vhost_events_untold",
                export = name,
                untold,
                "its front-ends came, went and began more often than is told"
            );
        }
        let kind = event.name();
        if event.is_warning() {
            tracing::warn!(event = kind, export = name, "{event}");
        } else {
            tracing::info!(event = kind, export = name, "{event}");
        }
    }
}

/// The nodes of these CPUs. Where there are several, the log has them, and whether memory can be
/// had of one.
fn nodes_of(cores: &[usize]) -> Vec<Option<NodeIndex>> {
    let machine = Nodes::read(Path::new("/"));
    let node = |core: &usize| machine.of_cpu(units::bytes_u64(*core));
    let nodes: Vec<Option<NodeIndex>> = cores.iter().map(node).collect();
    if machine.count() < 2 {
        // Nothing is nearer than anything else, and no memory is asked for by its node.
        return vec![None; cores.len()];
    }
    let numbers: Vec<Option<u16>> = nodes.iter().map(|node| node.map(|node| node.0)).collect();
    tracing::info!(
        event = "nodes",
        reactors = ?numbers,
        "arrays, their rings and their buffers go to the reactors on the node of their drives"
    );
    let first = nodes.iter().flatten().next().copied();
    let tried = first.map(|node| memory::near(first, || memory::prefer(node)).flatten());
    if let Some(Err(error)) = tried {
        tracing::warn!(event = "nodes_refused", %error,
            "memory of reactors lies on whichever node the kernel likes: allow set_mempolicy in the \
             filter of this process's system calls");
    }
    nodes
}

/// Tells the log what happens to sessions.
fn log_sessions(host: &Arc<Host>, told: Receiver<(u64, SessionEvent)>) -> Answer<()> {
    let mut log = SessionLog::default();
    log_in_background(
        "export-log",
        host,
        told,
        move |host, (export, event)| match log
            .count((export, event.is_warning()), MonotonicClock.now())
        {
            Telling::After(untold) => host.log_session_event(export, &event, untold),
            Telling::Untold => {}
        },
    )
}

/// Hands everything that comes to `tell`, on a thread of its own that ends with its senders.
fn log_in_background<T: Send + 'static>(
    name: &str,
    host: &Arc<Host>,
    events: Receiver<T>,
    mut tell: impl FnMut(&Host, T) + Send + 'static,
) -> Answer<()> {
    let host: Weak<Host> = Arc::downgrade(host);
    let run = move || {
        for event in events {
            let Some(host) = host.upgrade() else { return };
            tell(&host, event);
        }
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned
        .map(|_| ())
        .map_err(|source| error::of_io("engine".to_owned(), "starting a thread", &source))
}

impl control::Engine for Host {
    fn add_drive(&self, add: &DriveAdd) -> Answer<DriveView> {
        self.do_add_drive(add)
    }
    fn open_drives(&self, known: &[DriveKnown]) -> Vec<Answer<DriveView>> {
        self.do_open_drives(known)
    }
    fn drives(&self) -> Vec<DriveView> {
        self.do_drives()
    }
    fn identify_drive(&self, spec: &DriveSpec) -> Answer<String> {
        self.do_identify_drive(spec)
    }
    fn look_at_write_caches(&self) {
        self.do_look_at_write_caches();
    }
    fn look_at_load(&self) {
        self.do_look_at_load();
    }

    fn close_gone(&self) -> Vec<(String, String)> {
        self.do_close_gone()
    }
    fn awaited(&self) -> Vec<String> {
        self.do_awaited()
    }
    fn reopen_awaited(&self, known: &DriveKnown) -> Answer<DriveView> {
        self.do_reopen_awaited(known)
    }
    fn is_back(&self, known: &DriveKnown) -> bool {
        self.do_is_back(known)
    }
    fn removed_late(&self) -> Vec<String> {
        self.do_removed_late()
    }
    fn remove_drive(&self, name: &str, force: bool) -> Answer<()> {
        self.do_remove_drive(name, force)
    }
    fn give_up_claims(&self, drive: Uuid) {
        self.give_up_claims(drive);
    }
    fn signature_on(&self, name: &str) -> Answer<Option<String>> {
        self.do_signature_on(name)
    }
    fn check_wipe(&self, name: &str) -> Answer<()> {
        self.look_before_wipe(name, true).map(|_| ())
    }
    fn wipe_drive(&self, name: &str, force: bool) -> Answer<DriveView> {
        self.do_wipe_drive(name, force)
    }
    fn locate_drive(&self, name: &str, lamp: Lamp) -> Answer<()> {
        self.do_locate(name, lamp)
    }
    fn check_array(&self, create: &ArrayCreate) -> Answer<Need> {
        self.do_check_array(create)
    }
    fn create_array(&self, create: &ArrayCreate) -> Answer<ArrayView> {
        self.do_create_array(create)
    }
    fn find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>> {
        self.do_find_arrays(specs)
    }
    fn import_array(&self, import: &ArrayImport) -> Answer<ArrayView> {
        self.do_import_array(import)
    }
    fn assemble(&self) -> Vec<ArrayView> {
        self.do_assemble()
    }
    fn memberships(&self) -> BTreeMap<Uuid, Membership> {
        self.do_memberships()
    }
    fn recall(&self, memberships: BTreeMap<Uuid, Membership>) {
        self.do_recall(memberships);
    }
    fn arrays(&self) -> Vec<ArrayView> {
        self.do_arrays()
    }
    fn start_array(&self, name: &str, force: bool) -> Answer<ArrayView> {
        self.do_start_array(name, force)
    }
    fn forget_start_warnings(&self, array: Uuid) {
        let mut state = self.state();
        let mut arrays = state.arrays.values_mut();
        if let Some(entry) = arrays.find(|entry| entry.uuid == array) {
            entry
                .notices
                .retain(|notice| !matches!(notice, state::Notice::Told(_)));
        }
    }
    fn stop_array(&self, name: &str) -> Answer<ArrayView> {
        self.do_stop_array(name)
    }
    fn destroy_array(&self, name: &str, force: bool) -> Answer<Vec<String>> {
        self.do_destroy_array(name, force)
    }
    fn is_being_destroyed(&self, array: Uuid) -> bool {
        let state = self.state();
        let entry = state.array_by_uuid(array);
        entry.is_some_and(|entry| matches!(entry.serving, Serving::Stopping { destroys: true }))
    }
    fn modify_array(&self, name: &str, modify: &ArrayModify) -> Answer<ArrayView> {
        self.do_modify_array(name, modify)
    }
    fn fail_member(&self, name: &str, member: u16) -> Answer<ArrayView> {
        self.do_fail_member(name, member)
    }
    fn replace_member(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView> {
        self.do_replace_member(name, replace, false)
    }
    fn fill_by_spare(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView> {
        self.do_replace_member(name, replace, true)
    }
    fn tend_copies(&self) -> bool {
        self.do_tend_copies()
    }
    fn start_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView> {
        self.do_start_background(name, kind)
    }
    fn stop_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView> {
        self.do_stop_background(name, kind)
    }
    fn start_scrub(&self, name: &str, scrub: ScrubBody) -> Answer<JobView> {
        self.do_start_scrub(name, scrub)
    }
    fn stop_scrub(&self, name: &str) -> Answer<JobView> {
        self.do_stop_scrub(name)
    }
    fn scrub(&self, name: &str) -> Answer<ScrubView> {
        self.do_scrub(name)
    }
    fn begin_create_volume(&self, create: &VolumeCreate) -> Answer<Begun> {
        self.do_create_volume(create)
    }
    fn volume_under_way(&self, key: &str) -> Option<u64> {
        self.volume_being_made(key)
    }
    fn zero_volume(&self, job: u64) {
        self.do_zero_volume(job);
    }
    fn finish_volume(&self, job: u64) -> Answer<VolumeView> {
        self.do_finish_volume(job)
    }
    fn volumes(&self) -> Vec<VolumeView> {
        self.do_volumes()
    }
    fn begin_resize_volume(&self, volume: &VolumeKey, size_bytes: u64) -> Answer<Begun> {
        self.do_resize_volume(volume, size_bytes)
    }
    fn delete_volume(&self, volume: &VolumeKey) -> Answer<()> {
        self.do_delete_volume(volume)
    }
    fn limit_volume(&self, volume: &VolumeKey, limit: &VolumeLimit) -> Answer<VolumeView> {
        self.do_limit_volume(volume, limit)
    }
    fn create_export(&self, create: &ExportCreate, volume: &VolumeKey) -> Answer<ExportView> {
        self.do_create_export(create, volume)
    }
    fn exports(&self) -> Vec<ExportView> {
        self.do_exports()
    }
    fn move_queue(&self, name: &str, to: QueueMove) -> Answer<ExportView> {
        self.do_move_queue(name, to)
    }
    fn remove_export(&self, name: &str) -> Answer<()> {
        self.do_remove_export(name)
    }
    fn jobs(&self) -> Vec<JobView> {
        self.do_jobs()
    }
    fn cancel_job(&self, id: u64) -> Answer<JobView> {
        self.do_cancel_job(id)
    }

    fn status(&self) -> EngineStatus {
        let reports = self.engine.reports(&[]);
        let reactor = |report: &engine::ReactorReport| ReactorView {
            reactor: report.reactor.0,
            core: report
                .core
                .and_then(|core| u16::try_from(core).ok())
                .unwrap_or(0),
            node: self.engine.nodes()[report.reactor.at()].map(|node| node.0),
            state: if report.times.parked {
                "parked"
            } else {
                "polling"
            }
            .to_owned(),
            busy_time_us_total: views::microseconds(report.times.busy),
            idle_time_us_total: views::microseconds(report.times.idle),
            stalls_total: report.times.stalls,
            stalled_time_us_total: views::microseconds(report.times.stalled),
            requests_total: report.requests,
        };
        EngineStatus {
            reactors: reports.iter().map(reactor).collect(),
            memory_bytes: self.memory_bytes,
            buffer_bytes: self.engine.buffer_bytes(),
            pinned_buffer_bytes: self.engine.pinned_buffer_bytes(),
            poll: match self.poll {
                Poll::Always => "always",
                Poll::Adaptive => "adaptive",
                Poll::Never => "never",
            }
            .to_owned(),
            parity_backend: format!("{:?}", parity::Backend::best()).to_lowercase(),
            warnings: [self.hold_warnings(), self.hanging_warnings()].concat(),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        self.all_metrics()
    }

    fn shutdown(&self) -> Answer<()> {
        self.do_shutdown()
    }
}
