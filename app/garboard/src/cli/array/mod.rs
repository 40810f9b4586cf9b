//! `garboard array …`.

mod rows;
mod said;
mod scrub;
mod spare;

use control::body::{ArrayCreateBody, FindBody, ForceBody, ImportBody, ReplaceBody};
use control::request::{ArrayModify, ArrayOptions, HedgedReads, WriteHole};
use control::view::{
    ArrayState, ArrayView, DriveView, FoundArray, JobKind, JobState, JobView, MemberState,
    MemberView, NOT_BY_FORCE,
};
use control::{Answer, EngineError, ErrorKind};

use super::{Yes, drive};
use crate::doctor::arrays;
use crate::output::{size, word};
use crate::progress;
use crate::session::{Question, Session};

pub(super) use said::Array;
use said::{
    Action, Background, Create, Destroy, Fail, Import, Modify, Name, Replace, Resync, Spare, Start,
};

impl Array {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Array::Create(create) => create.run(session),
            Array::List => {
                let arrays: Vec<ArrayView> = session.get("/v1/arrays")?;
                session.list(&arrays)
            }
            Array::Show(Name { name }) => {
                let array: ArrayView = session.get(&path(&name))?;
                session.show(&array)
            }
            Array::Start(start) => start.run(session),
            Array::Stop(Name { name }) => {
                let array: ArrayView =
                    session.post(&format!("{}/stop", path(&name)), &NoBody {})?;
                session.done(&array, &format!("array {} stopped", array.name))
            }
            Array::Acknowledge(Name { name }) => {
                let path = format!("{}/acknowledge", path(&name));
                let array: ArrayView = session.post(&path, &NoBody {})?;
                session.warn(&array.start_warnings);
                session.done(&array, &format!("array {}: you know this", array.name))
            }
            Array::Destroy(destroy) => destroy.run(session),
            Array::Import(import) => import.run(session),
            Array::Modify(modify) => modify.run(session),
            Array::Fail(fail) => fail.run(session),
            Array::Replace(replace) => replace.run(session),
            Array::Spare(Spare::Add(add)) => add.run(session),
            Array::Spare(Spare::Remove(remove)) => remove.run(session),
            Array::Rebuild(background) => background.run("rebuild", session),
            Array::Resync(resync) => resync.run(session),
            Array::Scrub(scrub) => scrub.run(session),
        }
    }
}

#[derive(serde::Serialize)]
struct NoBody {}

fn path(key: &str) -> String {
    format!("/v1/arrays/{key}")
}

/// What a command touches: the array and its drives.
fn touched(session: &Session<'_, '_>, array: &ArrayView) -> Answer<Vec<String>> {
    let drives: Vec<DriveView> = session.get("/v1/drives")?;
    let state = word(&array.state);
    let mut lines = vec![format!(
        "array {}: level {}, {state}, {}, {} volumes",
        array.name,
        array.level,
        size(array.size_bytes),
        array.volumes,
    )];
    for place in &array.members {
        let member = place.member;
        let drive = drives
            .iter()
            .find(|drive| Some(&drive.name) == place.drive.as_ref());
        lines.push(match drive {
            Some(found) => format!("member {member}: {}", drive::describe(found)),
            None => format!("member {member}: {}", word(&place.state)),
        });
    }
    Ok(lines)
}

impl Create {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let body = ArrayCreateBody {
            name: self.name,
            uuid: self.uuid,
            level: self.level,
            drives: self.drives,
            options: ArrayOptions {
                chunk_bytes: self.shape.chunk.map(|chunk| chunk.0),
                parity: self.shape.parity,
                group_size: self.shape.group_size,
                block_bytes: self.shape.block_size.map(|block| block.0),
                write_hole: self.shape.write_hole.into(),
                hedged_reads: self.shape.hedged_reads.into(),
                unwritten_regions: self.shape.unwritten_regions,
            },
            spares: self.spares,
            force: self.force,
        };
        if self.force {
            let mut lines = Vec::new();
            for key in body.drives.iter().chain(&body.spares) {
                let found: DriveView = session.get(&format!("/v1/drives/{key}"))?;
                lines.push(drive::describe(&found));
            }
            let question = Question {
                object: format!("array {}", body.name),
                what: "this overwrites what is on the drives".into(),
                touched: lines,
            };
            session.confirm(&question, self.yes.yes)?;
        }
        let array: ArrayView = session.post("/v1/arrays", &body)?;
        session.warn(&array.warnings);
        warn_of_waste(session, &array);
        let jobs = array.jobs.clone();
        finish(session, array, (&jobs, self.wait), |array| {
            format!(
                "array {} created, {} for volumes",
                array.name,
                size(array.size_bytes)
            )
        })
    }
}

/// Says what of the members is not used because others are smaller: now it is easily mended.
fn warn_of_waste(session: &mut Session<'_, '_>, array: &ArrayView) {
    // A remark at most: the array is made.
    let Ok(drives) = session.get::<Vec<DriveView>>("/v1/drives") else {
        return;
    };
    let is_member = |drive: &&DriveView| {
        let mut members = array.members.iter();
        members.any(|member| member.drive.as_ref() == Some(&drive.name))
    };
    let members: Vec<&DriveView> = drives.iter().filter(is_member).collect();
    if let Some(finding) = arrays::sizes(array, &members) {
        let costs = finding.costs.unwrap_or_default();
        session.remark(&format!("warning: {}: {costs}", finding.found));
    }
}

/// Waits for these jobs of the array when asked, and says what came of it.
fn finish(
    session: &mut Session<'_, '_>,
    array: ArrayView,
    (jobs, wait): (&[u64], bool),
    sentence: impl Fn(&ArrayView) -> String,
) -> Answer<()> {
    let array = if wait && !jobs.is_empty() {
        progress::wait(session, jobs)?;
        session.get(&path(&array.name))?
    } else {
        array
    };
    session.done(&array, &sentence(&array))
}

/// Starts an array, by force where that is wanted and needed. Without force first: it is not used
/// up where it is not needed, and the refusal names what would be lost.
fn by_force<'a, 'b>(
    session: &mut Session<'a, 'b>,
    (array, (force, yes)): (&str, (bool, Yes)),
    touched: impl FnOnce(&Session<'a, 'b>) -> Answer<Vec<String>>,
    start: impl Fn(&Session<'a, 'b>, bool) -> Answer<ArrayView>,
) -> Answer<ArrayView> {
    let helps = |refusal: &EngineError| {
        refusal.kind == ErrorKind::Unsafe && !refusal.message.starts_with(NOT_BY_FORCE)
    };
    let refusal = match start(session, false) {
        Err(refusal) if force && helps(&refusal) => refusal,
        answer => return answer,
    };
    let mut touched = touched(session)?;
    touched.insert(0, refusal.message);
    let question = Question {
        object: format!("array {array}"),
        what: "this starts an array without what it lost".into(),
        touched,
    };
    session.confirm(&question, yes.yes)?;
    start(session, true)
}

/// What the start of a found array touches: it and where its members are.
fn touched_of_found(found: &[FoundArray], key: &str) -> Vec<String> {
    let is_it = |array: &&FoundArray| array.name == key || array.uuid.to_string() == key;
    let Some(array) = found.iter().find(is_it) else {
        return Vec::new();
    };
    let mut lines = vec![format!(
        "array {}: level {}, {}, {} of {} members found",
        array.name,
        array.level,
        size(array.size_bytes),
        array.drives.len(),
        array.members,
    )];
    for member in 0..array.members {
        let drive = array.drives.iter().find(|drive| drive.member == member);
        lines.push(match drive {
            Some(drive) => format!("member {member}: {}", drive.spec),
            None => format!("member {member}: missing"),
        });
    }
    lines
}

impl Start {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let array: ArrayView = session.get(&path(&self.name))?;
        let start = format!("{}/start", path(&array.name));
        let started = by_force(
            session,
            (&array.name, (self.force, self.yes)),
            |session| touched(session, &array),
            |session, force| session.post(&start, &ForceBody { force }),
        )?;
        session.warn(&started.warnings);
        let sentence = format!("array {} started, {}", started.name, word(&started.state));
        session.done(&started, &sentence)
    }
}

impl Destroy {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let array: ArrayView = session.get(&path(&self.name))?;
        let question = Question {
            object: format!("array {}", array.name),
            what: "this destroys the array and all it holds".into(),
            touched: touched(session, &array)?,
        };
        session.confirm(&question, self.yes.yes)?;
        let gone: ArrayView =
            session.delete(&format!("{}?force={}", path(&array.name), self.force))?;
        let mut sentence = format!("array {} destroyed", gone.name);
        for warning in &gone.warnings {
            sentence.push_str("; but ");
            sentence.push_str(warning);
        }
        session.done(&gone, &sentence)
    }
}

impl Import {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let Some(array) = self.name else {
            let body = FindBody { specs: self.specs };
            let found: Vec<FoundArray> = session.post("/v1/import/find", &body)?;
            return session.list(&found);
        };
        let (wanted, specs) = (array, self.specs);
        let array = by_force(
            session,
            (&wanted, (self.force, self.yes)),
            |session| {
                let specs = specs.clone();
                let found: Vec<FoundArray> =
                    session.post("/v1/import/find", &FindBody { specs })?;
                Ok(touched_of_found(&found, &wanted))
            },
            |session, force| {
                let (array, specs) = (wanted.clone(), specs.clone());
                let body = ImportBody {
                    array,
                    specs,
                    force,
                };
                session.post("/v1/import", &body)
            },
        )?;
        session.warn(&array.warnings);
        let sentence = format!("array {} imported, {}", array.name, word(&array.state));
        session.done(&array, &sentence)
    }
}

impl Modify {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let body = ArrayModify {
            write_hole: self.write_hole.map(WriteHole::from),
            rebuild_floor_bytes_per_second: self.rebuild_floor.map(|floor| floor.0),
            latency_target_us: self.latency_target,
            hold_timeout_ms: self.hold_timeout,
            scrub_rate_bytes_per_second: self.scrub_rate.map(|rate| rate.0),
            scrub_every_s: self.scrub_every,
            hedged_reads: self.hedged_reads.map(HedgedReads::from),
        };
        let array: ArrayView = session.patch(&path(&self.name), &body)?;
        session.done(&array, &format!("array {} modified", array.name))
    }
}

impl Fail {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let array: ArrayView = session.get(&path(&self.name))?;
        let question = Question {
            object: format!("member {} of array {}", self.member, array.name),
            what: format!("this excludes member {}", self.member),
            touched: touched(session, &array)?,
        };
        // What is not there, or out already, is refused, and nobody is asked about it.
        let is_in = |place: &MemberView| {
            matches!(place.state, MemberState::Online | MemberState::Rebuilding)
        };
        if array
            .members
            .iter()
            .any(|place| place.member == self.member && is_in(place))
        {
            session.confirm(&question, self.yes.yes)?;
        }
        let fail = format!("{}/members/{}/fail", path(&array.name), self.member);
        let array: ArrayView = session.post(&fail, &NoBody {})?;
        let state = word(&array.state);
        let sentence = format!(
            "member {} of array {} failed; {state}",
            self.member, array.name
        );
        session.done(&array, &sentence)
    }
}

/// Jobs of an array, but for a scrub, which may run beside the others and waits, and for what is
/// zeroed, whose volume is waited for by somebody else.
fn without_scrubs(session: &Session<'_, '_>, array: &ArrayView) -> Answer<Vec<u64>> {
    let mut others = Vec::new();
    for &id in &array.jobs {
        let job: JobView = session.get(&format!("/v1/jobs/{id}"))?;
        if !matches!(job.kind, JobKind::Scrub | JobKind::Zero) {
            others.push(id);
        }
    }
    Ok(others)
}

impl Replace {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        if self.force {
            let found: DriveView = session.get(&format!("/v1/drives/{}", self.drive))?;
            let question = Question {
                object: format!("drive {}", found.name),
                what: "this overwrites what is on the drive".into(),
                touched: vec![drive::describe(&found)],
            };
            session.confirm(&question, self.yes.yes)?;
        }
        let member = self.member;
        let replace = format!("{}/members/{member}/replace", path(&self.name));
        let body = ReplaceBody {
            drive: self.drive,
            force: self.force,
        };
        let drive = body.drive.clone();
        let mut array: ArrayView = session.post(&replace, &body)?;
        let is_in = |array: &ArrayView| {
            let place = array.members.iter().find(|place| place.member == member);
            place.is_some_and(|place| place.drive.as_ref() == Some(&drive))
        };
        if self.wait {
            array = filled(session, array, member)?;
        }
        let rebuilds = without_scrubs(session, &array)?;
        let (name, state) = (&array.name, word(&array.state));
        let jobs: Vec<String> = rebuilds.iter().map(ToString::to_string).collect();
        let sentence = match jobs.join(", ") {
            jobs if !is_in(&array) => format!(
                "drive {drive} becomes a copy of member {member} of array {name}, job {jobs}; \
                 then it takes its place"
            ),
            none if none.is_empty() => {
                format!("member {member} of array {name} replaced; {state}")
            }
            jobs => {
                format!("member {member} of array {name} replaced; {state}, job {jobs} rebuilds it")
            }
        };
        session.done(&array, &sentence)
    }
}

/// Waits until a member has all that it should: a copy of it first, or a resync that a rebuild
/// waits for, and what they lack then.
///
/// # Errors
/// As [`progress::wait`], and when nothing fills it.
fn filled(session: &mut Session<'_, '_>, array: ArrayView, member: u16) -> Answer<ArrayView> {
    let path = path(&array.name);
    let object = format!("member {member} of array {}", array.name);
    let mut array = array;
    loop {
        let jobs = without_scrubs(session, &array)?;
        progress::wait(session, &jobs)?;
        array = session.get(&path)?;
        if !without_scrubs(session, &array)?.is_empty() {
            continue;
        }
        let place = array.members.iter().find(|place| place.member == member);
        let passes: Vec<JobView> = session.get("/v1/jobs")?;
        let of_array = |job: &&JobView| job.array == array.name && fills(job.kind);
        let last = passes.iter().rfind(of_array);
        return match (place.map(|place| place.state), last) {
            (Some(MemberState::Online), _) => Ok(array),
            (Some(MemberState::Rebuilding), Some(job)) => match job.state {
                // Its end is about to be recorded.
                JobState::Done => Ok(array),
                JobState::Running => {
                    progress::pause(session);
                    continue;
                }
                JobState::Cancelled | JobState::Failed => {
                    let text = format!(
                        "it has a drive, but its {} is stopped: array {} is {}",
                        word(&job.kind),
                        array.name,
                        word(&array.state)
                    );
                    let refused = EngineError::new(ErrorKind::Degraded, object, text);
                    Err(refused.next(progress::way_on(job)))
                }
            },
            (Some(MemberState::Missing | MemberState::Failed) | None, _) | (_, None) => {
                let text = format!(
                    "its new drive is out: array {} is {}",
                    array.name,
                    word(&array.state)
                );
                let refused = EngineError::new(ErrorKind::Degraded, object, text);
                Err(refused.next(format!("`garboard array show {}` says why", array.name)))
            }
        };
    }
}

/// Whether a job is, or comes before, what fills a member.
fn fills(kind: JobKind) -> bool {
    match kind {
        JobKind::Rebuild | JobKind::Resync | JobKind::Initialize => true,
        JobKind::Scrub | JobKind::Copy | JobKind::Zero => false,
    }
}

impl Resync {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        if matches!(self.background.action, Action::Start) {
            self.confirm(session)?;
        }
        self.background.run("resync", session)
    }

    /// Asks a person where no resync is due: all parity would be called untrusted. What is refused
    /// anyway, nobody is asked about.
    fn confirm(&self, session: &mut Session<'_, '_>) -> Answer<()> {
        let array: ArrayView = session.get(&path(&self.background.name))?;
        let jobs: Vec<JobView> = session.get(&format!("{}/resync", path(&array.name)))?;
        let goes_on = jobs.last().is_some_and(|job| job.state != JobState::Done);
        let is_out = |place: &MemberView| match place.state {
            MemberState::Missing | MemberState::Failed => true,
            MemberState::Online | MemberState::Rebuilding => false,
        };
        let is_stopped = array.state == ArrayState::Stopped;
        let is_refused = is_stopped || array.parity == 0 || array.members.iter().any(is_out);
        if goes_on || is_refused {
            return Ok(());
        }
        let mut touched = touched(session, &array)?;
        touched.push(
            "no resync is due; until this one is done, what a lost member held cannot be told"
                .into(),
        );
        touched.push(format!(
            "what a drive holds wrong becomes part of the parity: `garboard array scrub {} start` \
             compares first, and repairs what is known to be wrong",
            array.name
        ));
        let question = Question {
            object: format!("array {}", array.name),
            what: "this calls all parity untrusted and makes it anew from the data".into(),
            touched,
        };
        // Nothing is destroyed by it, so scripts are told and go on.
        session.confirm(&question, self.yes.yes || !session.asks())
    }
}

impl Background {
    fn run(self, kind: &str, session: &mut Session<'_, '_>) -> Answer<()> {
        let path = format!("{}/{kind}", path(&self.name));
        let job: JobView = match self.action {
            Action::Start => session.post(&path, &NoBody {})?,
            Action::Stop => session.delete(&path)?,
            Action::Show => {
                let jobs: Vec<JobView> = session.get(&path)?;
                return session.list(&jobs);
            }
        };
        let job = match (self.action, self.wait) {
            (Action::Start, true) => progress::wait(session, &[job.id])?.remove(0),
            (Action::Start | Action::Stop | Action::Show, _) => job,
        };
        let sentence = format!(
            "{kind} of array {}: job {} {}",
            job.array,
            job.id,
            word(&job.state)
        );
        session.done(&job, &sentence)
    }
}
