//! `garboard demo`: the whole story on file drives, without root: an array, a guest that writes
//! and checks every byte, drives pulled, rebuilt, the engine killed, and every block read at the
//! end.
//!
//! Here is the story. Its parts: the engine's process, the guest's machine, its load, what
//! blocks hold, and the report.

pub(crate) mod content;
mod kills;
mod load;
mod machine;
mod process;
mod report;
mod shape;
mod signals;

use std::time::{Duration, SystemTime};

use control::body::{
    ArrayCreateBody, DriveAddBody, ExportCreateBody, ReplaceBody, VolumeCreateBody,
};
use control::request::DriveSpec;
use control::view::{ArrayState, ArrayView, DriveView, ExportView, JobView, VolumeView};
use control::{Answer, EngineError, ErrorKind};
use indicatif::ProgressBar;
use units::{Clock, Instant, MonotonicClock, Size, bytes_u64};

use self::content::BLOCK_BYTES;
use self::load::{Load, Mode, Tally};
use self::process::{Folder, Process};
use self::report::{Report, Step, mebibytes, milliseconds, seconds};
use self::shape::DRIVE_BYTES;
pub(crate) use self::shape::Shape;
use self::signals::Signals;
use crate::Console;
use crate::client::Client;
use crate::output::{self, Output};
use crate::progress;
use crate::session::Session;

/// How often the story looks at what happens.
const LOOK: Duration = Duration::from_millis(100);
/// How long the reading of the volume, or the last answers, may take.
const WAIT_MAX: Duration = Duration::from_secs(120);
const ARRAY: &str = "/v1/arrays/demo";

/// What the person wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// The array.
    pub(crate) shape: Shape,
    /// Length of a phase of load.
    pub(crate) seconds: u32,
    /// How often the engine is killed besides, at random.
    pub(crate) kills: u32,
    /// Keep the folder.
    pub(crate) keep: bool,
}

/// Tells the story and judges it.
///
/// # Errors
/// What went wrong first.
pub(crate) fn run(wishes: Wishes, output: Output, console: &mut Console<'_>) -> Answer<()> {
    let signals = Signals::listen()?;
    let shape = wishes.shape;
    let folder = Folder::create(Size(bytes_u64(shape.drives()) * DRIVE_BYTES))?;
    let client = Client::new(folder.join("api.sock"))?;
    let session = Session {
        client,
        output,
        console,
    };
    let mut story = Story {
        shape,
        session,
        signals,
        folder,
        process: None,
        load: None,
        begun: (MonotonicClock.now(), Tally::default()),
        chance: seed(),
        report: Report {
            blocks_total: u64::from(shape.blocks()),
            block_bytes: bytes_u64(BLOCK_BYTES),
            ..Report::default()
        },
    };
    let result = story.tell(wishes.seconds, wishes.kills);
    story.finish(result, wishes.keep)
}

struct Story<'a, 'b> {
    shape: Shape,
    session: Session<'a, 'b>,
    signals: Signals,
    folder: Folder,
    process: Option<Process>,
    load: Option<Load>,
    /// When the step began, and the tally then.
    begun: (Instant, Tally),
    /// What happens next in a story of many kills.
    chance: u64,
    report: Report,
}

impl Story<'_, '_> {
    fn tell(&mut self, length: u32, kills: u32) -> Answer<()> {
        let long = Duration::from_secs(length.into());
        let short = long / 2;
        self.build()?;

        self.begin("a guest writes and reads, and checks what it reads");
        self.want(Mode::Run)?;
        self.watch(long)?;
        self.end("load, all members good")?;

        for (before, &member) in self.shape.victims().iter().enumerate() {
            let left = match self.shape.parity - before - 1 {
                0 => "no redundancy is left there",
                1 => "one more may be lost there",
                _ => "more may be lost there",
            };
            self.begin(&format!("drive d{member} is pulled under load: {left}"));
            self.pull(member)?;
            self.watch(short)?;
            self.end(&format!("load, drive d{member} pulled"))?;
        }

        self.begin("drives that waited take their places and are rebuilt under load");
        self.replace()?;
        self.end("load and rebuild")?;

        self.begin("the engine is killed under load, and started again");
        self.kill()?;
        self.watch(short)?;
        self.end("load, engine killed")?;

        if kills > 0 {
            self.begin(&format!(
                "the engine is killed {kills} times, and drives come and go meanwhile"
            ));
            self.torment(kills)?;
            self.end("load, many kills")?;
        }

        self.begin("the guest reads every block of the volume");
        self.arrive(Mode::Pause)?;
        self.jobs()?;
        self.arrive(Mode::Verify)?;
        self.end("every block verified")?;
        self.judge()?;

        self.begin("the guest leaves, the engine is told to stop");
        self.leave()?;
        self.end("engine stopped, array marked clean")
    }

    fn start(&mut self) -> Answer<Process> {
        Process::start(&self.folder, &self.session.client, &mut self.signals)
    }

    /// Engine, drives, array, volume, export, guest.
    fn build(&mut self) -> Answer<()> {
        let path = self.folder.path().display().to_string();
        self.begin(&format!("an engine starts, with its drives in {path}"));
        self.process = Some(self.start()?);
        for number in 0..self.shape.drives() {
            let name = format!("d{number}");
            let spec = DriveSpec::File {
                path: self.folder.join(&name),
                size_bytes: Some(DRIVE_BYTES),
                create: true,
            };
            let (name, uuid) = (Some(name), None);
            let body = DriveAddBody { spec, name, uuid };
            let _: DriveView = self.session.post("/v1/drives", &body)?;
        }
        let Shape { level, members, .. } = self.shape;
        let drives = self.shape.drives();
        self.end(&format!("engine and {drives} drives of 256 MiB"))?;
        self.begin(&format!(
            "RAID {level} on {members} of them, a volume, an export over vhost-user-blk"
        ));
        let array = ArrayCreateBody {
            name: "demo".into(),
            uuid: None,
            level,
            drives: (0..members).map(|number| format!("d{number}")).collect(),
            options: self.shape.options(),
            spares: Vec::new(),
            force: false,
        };
        let _: ArrayView = self.session.post("/v1/arrays", &array)?;
        let volume = VolumeCreateBody {
            name: "demo".into(),
            uuid: None,
            array: "demo".into(),
            size_bytes: u64::from(self.shape.blocks()) * bytes_u64(BLOCK_BYTES),
            stable_buffers: false,
        };
        let _: VolumeView = self.session.post("/v1/volumes", &volume)?;
        let socket = self.folder.join("export.sock");
        let export = serde_json::json!({
            "volume": "demo", "socket": socket, "queues": machine::QUEUES,
        });
        let export: ExportCreateBody = serde_json::from_value(export)
            .map_err(|error| failed("export demo", error.to_string()))?;
        let _: ExportView = self.session.post("/v1/exports", &export)?;
        let load = Load::start(socket, self.shape.blocks(), seed());
        self.load = Some(load.map_err(|error| failed("guest", error.to_string()))?);
        self.end("array, volume, export, guest")
    }

    fn pull(&mut self, member: u16) -> Answer<()> {
        let path = format!("/v1/drives/d{member}?force=true");
        let _: DriveView = self.session.delete(&path)?;
        let array: ArrayView = self.session.get(ARRAY)?;
        if array.state != ArrayState::Degraded {
            let text = format!("it is {:?} after a drive was pulled", array.state);
            return Err(failed("array demo", text));
        }
        Ok(())
    }

    fn replace(&mut self) -> Answer<()> {
        let members = self.shape.members;
        for (waited, member) in self.shape.victims().iter().enumerate() {
            let (drive, force) = (format!("d{}", members + waited), false);
            let body = ReplaceBody { drive, force };
            let path = format!("{ARRAY}/members/{member}/replace");
            let _: ArrayView = self.session.post(&path, &body)?;
        }
        self.jobs()?;
        self.report.rebuild_time_us = micros(self.begun.0);
        self.optimal()
    }

    fn kill(&mut self) -> Answer<()> {
        let process = self.process.take().expect("started in build");
        let gone = process.kill();
        gone.map_err(|error| failed("engine", format!("it cannot be killed: {error}")))?;
        self.process = Some(self.start()?);
        let begun = MonotonicClock.now();
        while self.tally().reconnects == 0 {
            self.look(begun)?;
        }
        Ok(())
    }

    /// Waits for all jobs, with a bar.
    fn jobs(&mut self) -> Answer<()> {
        loop {
            let array: ArrayView = self.session.get(ARRAY)?;
            if array.jobs.is_empty() {
                return Ok(());
            }
            let Story {
                session,
                load,
                signals,
                ..
            } = self;
            let mut good = || check(load.as_mut(), signals);
            let _: Vec<JobView> = progress::wait_while(session, &array.jobs, &mut good)?;
        }
    }

    fn optimal(&self) -> Answer<()> {
        let array: ArrayView = self.session.get(ARRAY)?;
        if array.state == ArrayState::Optimal {
            Ok(())
        } else {
            Err(failed(
                "array demo",
                format!("it is {:?}, not optimal", array.state),
            ))
        }
    }

    fn judge(&mut self) -> Answer<()> {
        self.optimal()?;
        let tally = self.tally();
        if tally.blocks_verified != self.report.blocks_total {
            let text = format!("{} blocks were found right", tally.blocks_verified);
            return Err(failed("volume demo", text));
        }
        self.check()
    }

    /// Ends the guest, then the engine, which must say that all is clean.
    fn leave(&mut self) -> Answer<()> {
        let load = self.load.as_mut().expect("started in build");
        let ended = load.end();
        ended.map_err(|error| failed("guest", error.to_string()))?;
        let process = self.process.take().expect("started in build");
        process.stop(&self.session.client)
    }

    /// Gives the load its order.
    fn want(&mut self, mode: Mode) -> Answer<()> {
        self.load.as_ref().expect("started in build").want(mode);
        self.check()
    }

    /// Gives the load its order, and waits until it is carried out.
    fn arrive(&mut self, mode: Mode) -> Answer<()> {
        self.want(mode)?;
        let begun = MonotonicClock.now();
        while !self.reached(mode)? {
            self.look(begun)?;
        }
        Ok(())
    }

    fn reached(&mut self, mode: Mode) -> Answer<bool> {
        reached(self.load.as_mut(), mode)
    }

    fn look(&mut self, begun: Instant) -> Answer<()> {
        self.session.client.pause(LOOK);
        if MonotonicClock.now().since(begun) > WAIT_MAX {
            return Err(failed("guest", format!("not done after {WAIT_MAX:?}")));
        }
        self.check()
    }

    /// Whether everything is right so far.
    fn check(&mut self) -> Answer<()> {
        check(self.load.as_mut(), &mut self.signals)
    }

    fn tally(&self) -> Tally {
        self.load.as_ref().map(Load::tally).unwrap_or_default()
    }

    /// Lets the load run, with a line for people who watch.
    fn watch(&mut self, length: Duration) -> Answer<()> {
        let begun = MonotonicClock.now();
        let bar = match self.session.output {
            Output::Table => ProgressBar::new_spinner(),
            Output::Json => ProgressBar::hidden(),
        };
        let mut last = (begun, self.tally());
        while MonotonicClock.now().since(begun) < length {
            self.session.client.pause(LOOK);
            self.check()?;
            let (now, tally) = (MonotonicClock.now(), self.tally());
            if now.since(last.0) >= Duration::from_millis(500) {
                let text = rates(&last.1, &tally, micros(last.0));
                bar.set_message(text);
                last = (now, tally);
            }
            bar.tick();
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn begin(&mut self, sentence: &str) {
        if self.session.output == Output::Table {
            let number = self.report.steps.len() + 1;
            // Nobody reads it any more: the exit status still tells.
            let _ = self.session.line(&format!("{number}. {sentence}"));
        }
        if let Some(load) = &self.load {
            load.take_pause();
        }
        self.begun = (MonotonicClock.now(), self.tally());
    }

    fn end(&mut self, name: &str) -> Answer<()> {
        let tally = self.tally();
        let (begun, before) = &self.begun;
        let step = Step {
            name: name.to_owned(),
            time_us: micros(*begun),
            requests: tally.requests - before.requests,
            written_bytes: tally.written_bytes - before.written_bytes,
            verified_bytes: tally.verified_bytes - before.verified_bytes,
            pause_us_max: tally.pause_us_max,
        };
        if name.contains("kill") {
            self.report.kill_pause_us = self.report.kill_pause_us.max(step.pause_us_max);
        }
        if self.session.output == Output::Table {
            let mut text = format!("   done in {}", seconds(step.time_us));
            if step.requests > 0 {
                let rates = rates(before, &tally, step.time_us);
                let pause = milliseconds(step.pause_us_max);
                text = format!("{text}: {rates}, longest pause {pause}");
            }
            self.session.line(&text)?;
        }
        self.report.steps.push(step);
        Ok(())
    }

    /// Ends engine and guest, cleans up, and says the verdict.
    fn finish(mut self, mut result: Answer<()>, keep: bool) -> Answer<()> {
        // Somebody wanted the end: by a signal, or by closing what it is told to.
        let closed = result.as_ref().is_err_and(output::is_closed);
        let tally = self.tally();
        // What a guest found wrong is told and kept, whatever else has come.
        let is_wrong = tally.is_wrong;
        let interrupted = !is_wrong && (closed || self.signals.came().is_some());
        self.load = None;
        let words = self.process.as_ref().map(Process::last_words);
        if let Some(process) = self.process.take() {
            // Something is wrong already; what this says would be told second.
            let _ = process.stop(&self.session.client);
        }
        let path = self.folder.path().display().to_string();
        let full = result.is_err() && !interrupted && !is_wrong && self.folder.is_full();
        if full {
            // What failed says little beside that.
            result = Err(full_now(&path));
        }
        let kept = keep || (result.is_err() && !interrupted && !full);
        if !kept && let Err(error) = self.folder.remove() {
            result = result.and(Err(failed(&format!("folder {path}"), error.to_string())));
        }
        self.report.requests_total = tally.requests;
        self.report.written_bytes_total = tally.written_bytes;
        self.report.verified_bytes_total = tally.verified_bytes;
        self.report.errors_total = tally.errors;
        self.report.blocks_verified = tally.blocks_verified;
        self.report.passed = result.is_ok();
        self.report.cause = result.as_ref().err().map(ToString::to_string);
        self.report.folder = kept.then(|| path.clone());
        let told = match self.session.output {
            Output::Table => {
                let table = self.report.table();
                self.session.line(&format!("\n{table}"))
            }
            Output::Json => self.session.json(&self.report),
        };
        if kept {
            self.session.remark(&format!("kept: {path}"));
        }
        if let (Err(_), Some(words), false) = (&result, words, interrupted || full) {
            self.session
                .remark(&format!("the engine's log ends with:\n{words}"));
        }
        if interrupted || full {
            return result;
        }
        let result = result.map_err(|error| error.next(format!("look at {path}/engine.log")));
        result.and(told)
    }
}

/// Whether everything is right so far, and nobody wants the end.
fn check(load: Option<&mut Load>, signals: &mut Signals) -> Answer<()> {
    signals.check()?;
    let fault = load.as_ref().and_then(|load| load.tally().fault);
    reached(load, Mode::Run)?;
    match fault {
        Some(fault) => Err(failed("guest", fault)),
        None => Ok(()),
    }
}

/// Whether the load has come to `mode`.
fn reached(load: Option<&mut Load>, mode: Mode) -> Answer<bool> {
    let load = load.expect("started in build");
    let reached = load.reached(mode);
    reached.map_err(|error| failed("guest", error.to_string()))
}

/// Somebody else has taken the room that was there at the beginning.
fn full_now(folder: &str) -> EngineError {
    let why = "its file system has become full: the array waits for space as long as it may";
    EngineError::new(ErrorKind::Full, format!("folder {folder}"), why)
        .next("make room there, or set TMPDIR to a folder on another file system")
}

/// Another one each time.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |since| {
        u64::from(since.subsec_nanos()) << 20 | since.as_secs()
    })
}

/// `1234 IOPS, 56MiB/s written, 78MiB/s verified`.
fn rates(before: &Tally, after: &Tally, micros: u64) -> String {
    let rate = |amount: u64| amount.saturating_mul(1_000_000) / micros.max(1);
    format!(
        "{} IOPS, {}/s written, {}/s verified",
        rate(after.requests - before.requests),
        mebibytes(rate(after.written_bytes - before.written_bytes)),
        mebibytes(rate(after.verified_bytes - before.verified_bytes)),
    )
}

fn micros(since: Instant) -> u64 {
    let elapsed = MonotonicClock.now().since(since);
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

fn failed(object: &str, message: impl Into<String>) -> EngineError {
    EngineError::new(ErrorKind::Internal, object, message)
}
