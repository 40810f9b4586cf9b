//! Runs on the host: power fails at many moments of a recording; each time the real program starts
//! on what is left, and what it serves is judged.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use array::RegionMap;
use array::format::{REGION_BLOCK_BYTES, SUPERBLOCK_BYTES, Superblock};
use model::{Layout, MemberFile, Volume};
use serde_json::json;
use units::StripeIndex;

use crate::device::Device;
use crate::diary::{self, Entry, Oracle};
use crate::engine::Engine;
use crate::image::{Loss, Machine};
use crate::random::Random;
use crate::record::MARKER_SECTORS;
use crate::trace::{Event, Recording, SECTOR};

/// Where the first superblock of a member is.
const FIRST_SUPERBLOCK: u64 = 1 << 20;
/// A degraded array is rebuilt at every so many cuts, and then scrubbed.
const REBUILD_EVERY: usize = 8;
/// At every so many cuts all parity is checked by the definitions, which share no code with the
/// scrub that looks at every cut.
const PARITY_EVERY: usize = 12;

/// What was recorded, and where.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// `trace`, `log.img` and `diary`, and place for everything that is made.
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) members: usize,
    pub(crate) member_bytes: u64,
    /// The byte that members were full of before the recording began.
    pub(crate) filler: u8,
    pub(crate) missing: Missing,
    pub(crate) cuts: usize,
    pub(crate) seed: u64,
}

/// Members that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    None,
    /// This one was failed before the recording began.
    Failed(usize),
    /// So many, at each cut others, are lost with the power.
    Lost(usize),
}

impl Missing {
    /// As the command line says it.
    pub(crate) fn parse(word: &str) -> Option<Missing> {
        if word == "-" {
            return Some(Missing::None);
        }
        match word.strip_prefix("lost=") {
            Some(count) => count.parse().ok().map(Missing::Lost),
            None => word.parse().ok().map(Missing::Failed),
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    cuts: usize,
    unclean: usize,
    with_losses: usize,
    lost_writes: usize,
    resyncs: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} cut points, {} of them with writes at risk ({} in all), {} resyncs: every byte \
             right, every scrub finds nothing",
            self.cuts, self.with_losses, self.lost_writes, self.resyncs
        )?;
        match self.unclean {
            0 => Ok(()),
            unclean => write!(f, "; {unclean} rebuilt afterwards"),
        }
    }
}

/// A moment of the recording.
#[derive(Clone, Copy, Debug)]
struct Cut {
    events: usize,
    marker: u64,
    loss: Loss,
    number: usize,
}

struct Bench<'w> {
    wanted: &'w Wanted,
    paths: Vec<PathBuf>,
    socket: PathBuf,
    tally: Tally,
}

/// Fails the power `cuts` times.
///
/// # Errors
/// The first wrong thing that is found, with the cut that shows it.
pub(crate) fn replay(wanted: &Wanted) -> Result<Tally, String> {
    let text = |name: &str| {
        let path = wanted.folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let sectors = wanted.member_bytes / units::bytes_u64(SECTOR);
    let log = wanted.folder.join("log.img");
    let recording = Recording::read(&text("trace")?, &log, sectors)?;
    let diary = diary::read(&text("diary")?)?;
    let cuts = cuts(&recording, wanted, last_marker(&diary))?;
    let path = |member| wanted.folder.join(format!("d{member}.img"));
    let mut bench = Bench {
        wanted,
        paths: (0..wanted.members).map(path).collect(),
        socket: wanted.folder.join("vhost.sock"),
        tally: Tally::default(),
    };
    let mut machine = Machine::new(&recording, wanted.members + 1, wanted.filler);
    machine.advance(recording.events.len());
    let mut random = Random::new(wanted.seed);
    bench.lose(&machine, (Loss::Unanswered, &mut random))?;
    let bytes = bench.prepare()?;
    let mut machine = Machine::new(&recording, wanted.members + 1, wanted.filler);
    let mut oracle = Oracle::new(&diary, bytes);
    for cut in cuts {
        machine.advance(cut.events);
        oracle.advance(cut.marker);
        let risk = machine.cached();
        bench.tally.with_losses += usize::from(risk > 0);
        bench.tally.lost_writes += risk;
        let mut random = Random::new(wanted.seed ^ units::bytes_u64(cut.number) << 20);
        let judged = bench.lose(&machine, (cut.loss, &mut random));
        let out = bench.draw_missing(&mut random);
        let judged = judged.and_then(|()| bench.judge(oracle.after_power_loss(), cut.number, &out));
        judged.map_err(|error| format!("{cut:?}, seed {}: {error}", wanted.seed))?;
        bench.tally.cuts += 1;
    }
    Ok(bench.tally)
}

fn last_marker(diary: &[Entry]) -> u64 {
    let marker = |entry: &Entry| match entry {
        Entry::Marker(number) => Some(*number),
        Entry::Write { .. } | Entry::Flush(_) | Entry::Done(_) => None,
    };
    diary.iter().rev().find_map(marker).unwrap_or(0)
}

/// Moments from the first marker to the last, evenly spread, each with the marker before it.
fn cuts(recording: &Recording, wanted: &Wanted, last: u64) -> Result<Vec<Cut>, String> {
    let mut markers: BTreeMap<usize, u64> = BTreeMap::new();
    for (position, event) in recording.events.iter().enumerate() {
        if let Event::WriteDone { device, write } = *event
            && device == wanted.members
        {
            markers.insert(
                position + 1,
                recording.writes[write].sector / MARKER_SECTORS,
            );
        }
    }
    let (Some((&first, 0)), Some((&end, &found))) =
        (markers.first_key_value(), markers.last_key_value())
    else {
        return Err("the trace has no markers".to_owned());
    };
    if found != last {
        return Err(format!(
            "the trace ends at marker {found}, the diary at {last}"
        ));
    }
    let cut = |number: usize| {
        let events = first + (end - first) * number / wanted.cuts.max(1);
        let before = markers.range(..=events).next_back();
        let loss = [Loss::Chance, Loss::Unanswered, Loss::Chance, Loss::Cached][number % 4];
        Cut {
            events,
            marker: *before.expect("from the first on").1,
            loss,
            number,
        }
    };
    Ok((0..wanted.cuts).map(cut).collect())
}

impl Bench<'_> {
    fn lose(&self, machine: &Machine<'_>, how: (Loss, &mut Random)) -> Result<(), String> {
        let lost = machine.lose_power(&self.paths, self.wanted.member_bytes, how);
        lost.map_err(|error| error.to_string())
    }

    /// Members that are out at a cut. The files of those that are lost go.
    fn draw_missing(&self, random: &mut Random) -> Vec<usize> {
        let mut out = Vec::new();
        match self.wanted.missing {
            Missing::None => {}
            Missing::Failed(member) => out.push(member),
            Missing::Lost(count) => {
                while out.len() < count {
                    let member = random.below(self.paths.len());
                    if !out.contains(&member) {
                        let _ = std::fs::remove_file(&self.paths[member]);
                        out.push(member);
                    }
                }
            }
        }
        out
    }

    fn state(&self) -> PathBuf {
        self.wanted.folder.join("state")
    }

    /// Starts an engine that imports the array and exports its volume. It has a state directory of
    /// its own: one that has seen the array later would refuse what is put back.
    fn import(&self) -> Result<Engine, String> {
        let _ = std::fs::remove_dir_all(self.state());
        let engine = Engine::start(&self.wanted.program, &self.wanted.folder)?;
        let spec = |path: &PathBuf| format!("file:{}", path.display());
        let here = self.paths.iter().filter(|path| path.exists());
        let specs: Vec<String> = here.map(spec).collect();
        engine.post("/v1/import", &json!({ "array": "a", "specs": specs }))?;
        engine.post(
            "/v1/exports",
            &json!({ "volume": "v", "socket": self.socket }),
        )?;
        Ok(engine)
    }

    /// The volume's size.
    fn prepare(&self) -> Result<usize, String> {
        let engine = self.import()?;
        let volume = engine.get("/v1/volumes/v")?;
        engine.stop()?;
        let bytes = volume["size_bytes"].as_u64().ok_or("a volume has a size")?;
        Ok(units::bytes_usize(bytes))
    }

    /// Starts the engine on what is left, and looks at everything.
    fn judge(&mut self, mut oracle: Volume, number: usize, out: &[usize]) -> Result<(), String> {
        let engine = self.import()?;
        let array = engine.get("/v1/arrays/a")?;
        let wanted = if out.is_empty() {
            "optimal"
        } else {
            "degraded"
        };
        if array["state"] != wanted {
            return Err(format!("the array is not {wanted}: {array}"));
        }
        let io = |error: std::io::Error| error.to_string();
        let read = |oracle: &mut Volume| -> Result<Vec<u8>, String> {
            let token = oracle.begin_read(0);
            let found = Device::connect(&self.socket).map_err(io)?;
            let found = { found }.read_all().map_err(io)?;
            let judged = oracle.finish_read(token, &found);
            judged.map(|()| found).map_err(|wrong| wrong.to_string())
        };
        // At once, while the resync is under way; and after it.
        read(&mut oracle)?;
        engine.wait("/v1/status", |status| status["jobs_running"] == 0)?;
        let jobs = engine.get("/v1/jobs")?;
        let jobs = jobs.as_array().map_or(&[][..], Vec::as_slice);
        self.tally.resyncs += jobs.iter().filter(|job| job["kind"] == "resync").count();
        let rebuilds = !out.is_empty() && number.is_multiple_of(REBUILD_EVERY);
        if rebuilds {
            // Every member's redundancy comes back from what the others and the log hold.
            out.iter()
                .try_for_each(|&member| self.rebuild(&engine, member))?;
            engine.wait("/v1/arrays/a", |array| array["state"] == "optimal")?;
            self.tally.unclean += 1;
        }
        if rebuilds || out.is_empty() {
            scrub(&engine)?;
        }
        // What was read once stays.
        read(&mut oracle)?;
        engine.stop()?;
        if number.is_multiple_of(PARITY_EVERY) {
            self.check_parity(out, rebuilds)?;
        }
        Ok(())
    }

    fn spare(&self, member: usize) -> PathBuf {
        self.wanted.folder.join(format!("spare{member}.img"))
    }

    fn rebuild(&self, engine: &Engine, member: usize) -> Result<(), String> {
        let path = self.spare(member);
        let _ = std::fs::remove_file(&path);
        let bytes = self.wanted.member_bytes;
        let spec = format!("file:{},size={bytes},create", path.display());
        let name = format!("spare{member}");
        engine.post("/v1/drives", &json!({ "spec": spec, "name": name }))?;
        let call = format!("/v1/arrays/a/members/{member}/replace");
        engine.post(&call, &json!({ "drive": name }))?;
        engine.wait("/v1/status", |status| status["jobs_running"] == 0)?;
        Ok(())
    }

    /// Checks all parity by the definitions; members that are out, and not rebuilt, are left out.
    fn check_parity(&self, out: &[usize], rebuilt: bool) -> Result<(), String> {
        let mut members: Vec<Option<MemberFile>> = Vec::new();
        let (mut layout, mut regions) = (None, None);
        let mut paths = self.paths.clone();
        for &member in out.iter().filter(|_| rebuilt) {
            paths[member] = self.spare(member);
        }
        let is_out = |member: usize| !rebuilt && out.contains(&member);
        let paths = paths.into_iter().enumerate();
        for (_, path) in paths.filter(|(member, _)| !is_out(*member)) {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            let file = File::open(&path).map_err(|error| error.to_string())?;
            file.read_exact_at(&mut bytes, FIRST_SUPERBLOCK)
                .map_err(|error| error.to_string())?;
            let superblock = Superblock::decode(&bytes).map_err(|error| error.to_string())?;
            let empty = || RegionMap::new(superblock.regions(), superblock.array);
            let regions = regions.get_or_insert_with(empty);
            take_regions(regions, &file, &superblock).map_err(|error| error.to_string())?;
            let geometry = superblock.geometry;
            members.resize_with(geometry.members(), || None);
            members[superblock.member.at()] = Some(MemberFile {
                path,
                data_offset_bytes: superblock.layout.data.offset,
            });
            layout = Some(Layout {
                data: geometry.data(),
                parity: geometry.parity(),
                groups: geometry.groups(),
                chunk_bytes: units::bytes_usize(geometry.chunk_bytes()),
                rows: units::bytes_usize(geometry.rows()),
            });
        }
        let bad = layout.ok_or("no members")?.check_files(&members);
        let mut regions = regions.ok_or("no members")?;
        regions.complete();
        // What lies where nothing was ever written means nothing.
        let written = regions.written_regions();
        let bad = bad.map_err(|error| error.to_string())?;
        let mut bad = bad.iter().map(|stripe| units::bytes_u64(*stripe));
        bad.find(|stripe| written.has(StripeIndex(*stripe)))
            .map_or(Ok(()), |first| {
                Err(format!("parity does not agree, first in stripe {first}"))
            })
    }
}

/// Takes a member's copies of the region map.
fn take_regions(map: &mut RegionMap, file: &File, superblock: &Superblock) -> std::io::Result<()> {
    let space = *map.space();
    for block in 0..u32::try_from(space.blocks()).expect("few") {
        for place in 0..2 {
            let mut bytes = [0; REGION_BLOCK_BYTES];
            file.read_exact_at(&mut bytes, space.offset(block, place))?;
            map.take(superblock.member, block, &bytes);
        }
    }
    Ok(())
}

/// Scrubs everything, which must find nothing.
fn scrub(engine: &Engine) -> Result<(), String> {
    engine.post("/v1/arrays/a/scrub", &json!({ "from_beginning": true }))?;
    engine.wait("/v1/status", |status| status["jobs_running"] == 0)?;
    let found = engine.get("/v1/arrays/a/scrub")?;
    let none = |name: &str| found[name] == 0;
    if none("mismatched_blocks") && none("unreadable_blocks") && !found["finished_at_s"].is_null() {
        Ok(())
    } else {
        Err(format!("the scrub has found something: {found}"))
    }
}
