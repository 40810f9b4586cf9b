//! `garboard demo --kills N`: the engine is killed again and again, at random, under load. Around
//! the kills drives are pulled, vanish while no engine runs, and come back, at most as many at a
//! time as the array survives; engines are killed while they start, and while they rebuild.

use std::time::Duration;

use control::body::{DriveAddBody, ReplaceBody};
use control::request::DriveSpec;
use control::view::{ArrayView, DriveState, DriveView, MemberState, MemberView};
use control::{Answer, EngineError};
use units::{Clock, MonotonicClock, bytes_u64};

use super::process::Process;
use super::{ARRAY, Story, failed};

/// Answers that show that the guest goes on.
const ANSWERS: u64 = 32;

/// A drive that is out of the engine's hands.
#[derive(Debug)]
pub(super) struct Away {
    name: String,
    member: u16,
    /// Its file is in another folder meanwhile, where no engine looks for it.
    hidden: bool,
}

impl Story<'_, '_> {
    /// Kills the engine so many times.
    pub(super) fn torment(&mut self, kills: u32) -> Answer<()> {
        let mut away = Vec::new();
        let made = std::fs::create_dir(self.folder.join("away"));
        made.map_err(|error| failed("folder away", error.to_string()))?;
        for _ in 0..kills {
            let random = self.random(800);
            self.watch(Duration::from_millis(50 + random))?;
            match self.random(4) {
                0 => self.pull_one(&mut away)?,
                1 | 2 => self.give_back(&mut away)?,
                _ => {}
            }
            self.kill_once(&mut away)?;
        }
        while !away.is_empty() {
            self.give_back(&mut away)?;
        }
        self.jobs()?;
        self.optimal()
    }

    /// Pulls a drive if the array can do without one more.
    fn pull_one(&mut self, away: &mut Vec<Away>) -> Answer<()> {
        let Some((name, member)) = self.spare_member()? else {
            return Ok(());
        };
        let _: DriveView = self
            .session
            .delete(&format!("/v1/drives/{name}?force=true"))?;
        let hidden = false;
        away.push(Away {
            name,
            member,
            hidden,
        });
        Ok(())
    }

    /// A member, and its drive, that the array can do without now.
    fn spare_member(&mut self) -> Answer<Option<(String, u16)>> {
        let array: ArrayView = self.session.get(ARRAY)?;
        let good = |place: &&MemberView| place.state == MemberState::Online;
        let members = bytes_u64(self.shape.members);
        let choice = usize::try_from(self.random(members)).expect("few members");
        let group = array.members.get(self.shape.group_of(choice));
        let group = group.ok_or_else(|| failed("array demo", "it has lost members' places"))?;
        if group.iter().filter(good).count() + self.shape.parity <= self.shape.group {
            return Ok(None);
        }
        let place = array.members.get(choice).filter(good);
        Ok(place.and_then(|place| Some((place.drive.clone()?, place.member))))
    }

    /// A member, and its drive, without which the array starts by itself although no record says
    /// that it is out: it takes more than half of those that have everything, or just half with
    /// the lowest.
    fn unneeded(&mut self) -> Answer<Option<(String, u16)>> {
        let Some((name, member)) = self.spare_member()? else {
            return Ok(None);
        };
        let array: ArrayView = self.session.get(ARRAY)?;
        let online = array.members.iter();
        let online = online.filter(|place| place.state == MemberState::Online);
        let is_lowest = online.clone().next().is_some_and(|it| it.member == member);
        let starts = online.count() > 2 || !is_lowest;
        Ok(starts.then_some((name, member)))
    }

    /// The drive that is away longest comes back, and its member is filled.
    fn give_back(&mut self, away: &mut Vec<Away>) -> Answer<()> {
        if away.is_empty() {
            return Ok(());
        }
        let back = away.remove(0);
        let path = self.folder.join(&back.name);
        if back.hidden {
            let moved = std::fs::rename(self.hidden(&back.name), &path);
            moved.map_err(|error| lost(&back.name, &error))?;
        }
        let drives: Vec<DriveView> = self.session.get("/v1/drives")?;
        let is_open =
            |drive: &DriveView| drive.name == back.name && drive.state != DriveState::Missing;
        if !drives.iter().any(is_open) {
            let spec = DriveSpec::File {
                path,
                size_bytes: None,
                create: false,
            };
            let name = Some(back.name.clone());
            let body = DriveAddBody {
                spec,
                name,
                uuid: None,
            };
            let _: DriveView = self.session.post("/v1/drives", &body)?;
        }
        let array: ArrayView = self.session.get(ARRAY)?;
        let member = usize::from(back.member);
        if array.members[member].drive.is_some() {
            return Ok(());
        }
        let body = ReplaceBody {
            drive: back.name,
            force: true,
        };
        let path = format!("{ARRAY}/members/{member}/replace");
        let _: ArrayView = self.session.post(&path, &body)?;
        Ok(())
    }

    /// Kills the engine, sometimes the next one at its start as well, and waits until the guest
    /// goes on. Sometimes a drive vanishes meanwhile, and sometimes one that had is back, as old as
    /// it is.
    fn kill_once(&mut self, away: &mut Vec<Away>) -> Answer<()> {
        let vanishes = self.random(4) == 0;
        let vanishes = if vanishes { self.unneeded()? } else { None };
        let before = self.tally();
        let process = self.process.take().expect("started in build");
        self.end_it(process)?;
        if self.random(2) == 0
            && let Some(back) = away.iter_mut().find(|drive| drive.hidden)
        {
            let moved = std::fs::rename(self.hidden(&back.name), self.folder.join(&back.name));
            moved.map_err(|error| lost(&back.name, &error))?;
            back.hidden = false;
        }
        if let Some((name, member)) = vanishes {
            let moved = std::fs::rename(self.folder.join(&name), self.hidden(&name));
            moved.map_err(|error| lost(&name, &error))?;
            let hidden = true;
            away.push(Away {
                name,
                member,
                hidden,
            });
        }
        if self.random(3) == 0 {
            let process = Process::launch(&self.folder)?;
            let random = self.random(300);
            self.session.client.pause(Duration::from_millis(random));
            self.end_it(process)?;
        }
        self.process = Some(self.start()?);
        let begun = MonotonicClock.now();
        loop {
            let tally = self.tally();
            let goes_on = tally.requests >= before.requests + ANSWERS;
            if tally.reconnects > before.reconnects && goes_on {
                return Ok(());
            }
            self.look(begun)?;
        }
    }

    fn hidden(&self, drive: &str) -> std::path::PathBuf {
        self.folder.join("away").join(drive)
    }

    fn end_it(&mut self, process: Process) -> Answer<()> {
        let gone = process.kill();
        gone.map_err(|error| failed("engine", format!("it cannot be killed: {error}")))
    }

    /// A random number below `end`: Marsaglia's xorshift.
    fn random(&mut self, end: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) % end
    }
}

fn lost(drive: &str, error: &std::io::Error) -> EngineError {
    failed(
        &format!("drive {drive}"),
        format!("its file cannot be moved: {error}"),
    )
}
