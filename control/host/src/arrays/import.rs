//! Arrays that this engine does not know: looked for on drives, and taken over.

use std::collections::BTreeSet;

use array::assembly::{Assembly, Found, Verdict, assemble_named};
use control::request::{ArrayImport, DriveSpec};
use control::view::{ArrayView, FoundArray, FoundDrive, GOES_BY_ITS_UUID};
use control::{Answer, ErrorKind};
use units::limits::NAME_BYTES_MAX;
use units::{Clock, DriveIndex, MemberIndex, MonotonicClock};
use uuid::Uuid;

use super::assemble::{forget, of_verdict};
use crate::apart::apart;
use crate::error::{error, not_found, of_io};
use crate::opened::{open_spec, path_of};
use crate::state::DriveRole;
use crate::{Host, records, views};

impl Host {
    pub(crate) fn do_find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>> {
        let found = self.find_arrays(specs)?;
        Ok(found.into_iter().map(|(array, _)| array).collect())
    }

    /// What lies there that this engine does not know, and whether it can be started.
    fn find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<(FoundArray, Verdict)>> {
        let known: Vec<Uuid> = self
            .state()
            .arrays
            .values()
            .map(|array| array.uuid)
            .collect();
        let mut found = self.read_drives(DriveRole::is_unused);
        let mut names: Vec<(DriveIndex, DriveSpec, Option<String>)> = {
            let state = self.state();
            state
                .drives
                .values()
                .map(|e| (e.index, e.spec.clone(), Some(e.name.clone())))
                .collect()
        };
        // Drives that are only looked at get numbers that no open drive has.
        let mut next = u16::MAX;
        let everywhere = specs.is_empty();
        let specs = if everywhere {
            block_devices()
        } else {
            specs.to_vec()
        };
        let mut asked: Vec<(DriveIndex, DriveSpec)> = Vec::new();
        for spec in specs {
            // What is open here is looked at already, or belongs to an array that runs.
            let is_open = path_of(&spec).is_some_and(|path| self.is_open(path));
            if is_open || asked.iter().any(|(_, other)| *other == spec) {
                continue;
            }
            asked.push((DriveIndex(next), spec));
            next -= 1;
        }
        for ((index, spec), read) in asked.iter().zip(self.read_all_at(&asked)) {
            let (index, spec) = (*index, spec.clone());
            let label = spec.to_string();
            match read.unwrap_or_else(|| Err(self.silent(&label))) {
                Ok(one) => found.push(one),
                // A device that is mounted or cannot be read holds no array that is free.
                Err(_) if everywhere => continue,
                Err(refused) => return Err(refused),
            }
            names.push((index, spec, None));
        }
        let name = |drive| {
            let known = names.iter().find(|(index, _, _)| *index == drive);
            known.map_or_else(
                || drive.to_string(),
                |(_, spec, name)| match name {
                    Some(name) => format!("drive {name}"),
                    None => spec.to_string(),
                },
            )
        };
        let mut arrays = assemble_named(&found, &name).arrays;
        arrays
            .iter_mut()
            .for_each(|assembly| self.state().recall(assembly));
        let arrays = arrays
            .iter()
            .filter(|assembly| !known.contains(&assembly.array()));
        Ok(arrays
            .map(|assembly| (found_array(assembly, &names), assembly.verdict.clone()))
            .collect())
    }

    /// What lies behind specs, as far as they answer.
    fn read_all_at(&self, specs: &[(DriveIndex, DriveSpec)]) -> Vec<Option<Answer<Found>>> {
        let end = MonotonicClock.now() + self.asks.wait;
        let read = |(index, spec): &(DriveIndex, DriveSpec)| {
            let look = self.enter(spec, end)?;
            let (index, spec) = (*index, spec.clone());
            Some(move || {
                let read = read_at(index, &spec);
                drop(look);
                read
            })
        };
        let reads: Vec<_> = specs.iter().map(read).collect();
        let asked: Vec<bool> = reads.iter().map(Option::is_some).collect();
        let reads = reads.into_iter().flatten().collect();
        let mut answers = apart(self.asks.wait, reads).into_iter();
        let answer = |asked| {
            if asked {
                answers.next().flatten()
            } else {
                None
            }
        };
        asked.into_iter().map(answer).collect()
    }

    pub(crate) fn do_import_array(&self, import: &ArrayImport) -> Answer<ArrayView> {
        let object = format!("array {}", import.array);
        let found = self.find_arrays(&import.specs)?;
        let wanted = |(array, _): &&(FoundArray, Verdict)| {
            array.name == import.array || array.uuid.to_string() == import.array
        };
        let matching: Vec<&(FoundArray, Verdict)> = found.iter().filter(wanted).collect();
        let (array, verdict) = match matching.as_slice() {
            [] => {
                let text = "no array of this name or uuid lies where it was looked for";
                return Err(error(ErrorKind::NotFound, object, text).next(
                    "`garboard array import` lists what does; `--search SPEC` looks elsewhere",
                ));
            }
            [(array, verdict)] => (array, verdict),
            several => {
                let text = format!("{} arrays have this name", several.len());
                return Err(error(ErrorKind::Invalid, object, text).next("name it by its uuid"));
            }
        };
        if import.array == array.name && self.state().arrays.contains_key(&array.name) {
            let text = "an array of this name is known already";
            return Err(error(ErrorKind::Exists, object, text).next("name it by its uuid"));
        }
        // Of what speaks against it only the drives of one side would be opened.
        if matches!(verdict, Verdict::Refused { .. }) {
            let next = "`--search SPEC`, once for each, names only the drives of the side to keep";
            return Err(of_verdict(&object, verdict).next(next));
        }
        let mut opened = Vec::new();
        let taken = self.take_over(array, import, &mut opened);
        let runs = {
            let state = self.state();
            let entry = state.array_by_uuid(array.uuid);
            entry.is_some_and(|entry| entry.serving.has_shards())
        };
        // One that is only late runs all the same.
        if taken.is_err() && !runs {
            // Refused means that nothing has changed.
            if let Ok(name) = self.name_of(array) {
                forget(&mut self.state(), &name, array.uuid);
            }
            for name in opened {
                self.close(&name);
            }
        }
        taken.map(|view| said_of_its_name(view, &array.name))
    }

    /// Opens the drives of a found array, and starts it.
    fn take_over(
        &self,
        array: &FoundArray,
        import: &ArrayImport,
        opened: &mut Vec<String>,
    ) -> Answer<ArrayView> {
        for drive in array.drives.iter().filter(|drive| drive.name.is_none()) {
            let name = self.free_name(array, drive.member, &import.taken);
            self.open(&name, Uuid::new_v4(), &drive.spec)?;
            opened.push(name);
        }
        self.do_assemble();
        self.do_start_array(&self.name_of(array)?, import.force)
    }

    /// A name for the drive of this place: the array's with its number, and another number where a
    /// drive has that, open or only wanted.
    fn free_name(&self, array: &FoundArray, member: u16, taken: &BTreeSet<String>) -> String {
        let state = self.state();
        let named = |more: String| {
            let room = NAME_BYTES_MAX - more.len();
            let array: String = array.name.chars().take(room).collect();
            array + &more
        };
        let numbered = (2..).map(|number: u32| named(format!("-{member}-{number}")));
        let mut names = std::iter::once(named(format!("-{member}"))).chain(numbered);
        let is_free = |name: &String| !taken.contains(name) && !state.drives.contains_key(name);
        names.find(is_free).expect("drives are bounded")
    }

    fn name_of(&self, array: &FoundArray) -> Answer<String> {
        let state = self.state();
        let entry = state.array_by_uuid(array.uuid);
        entry
            .map(|entry| entry.name.clone())
            .ok_or_else(|| not_found("array", &array.name))
    }
}

/// Says of an array that goes by another name than the one on its drives why it does.
fn said_of_its_name(mut view: ArrayView, on_drives: &str) -> ArrayView {
    if view.name != on_drives {
        view.warnings.push(format!(
            "{GOES_BY_ITS_UUID}{}, as long as an array is known here that is called {on_drives}, \
             as its drives call it, too",
            view.name
        ));
    }
    view
}

/// What lies behind a spec, which is closed afterwards.
fn read_at(index: DriveIndex, spec: &DriveSpec) -> Answer<Found> {
    let label = spec.to_string();
    let opened = open_spec(&label, spec)?;
    let io = |source| of_io(format!("drive {label}"), "reading it", &source);
    records::read(index, &opened).map_err(io)
}

fn found_array(
    assembly: &Assembly,
    names: &[(DriveIndex, DriveSpec, Option<String>)],
) -> FoundArray {
    let geometry = assembly.superblock.geometry;
    let space = assembly.superblock.extents();
    let drives = assembly
        .members
        .iter()
        .enumerate()
        .filter_map(|(position, drive)| {
            let (_, spec, name) = names.iter().find(|(index, _, _)| Some(*index) == *drive)?;
            let member = MemberIndex::from_at(position).0;
            Some(FoundDrive {
                spec: spec.clone(),
                name: name.clone(),
                member,
            })
        });
    FoundArray {
        name: assembly.config.name.clone(),
        uuid: assembly.array(),
        level: views::level(geometry.level()),
        members: u16::try_from(geometry.members()).expect("limits.rs"),
        drives: drives.collect(),
        // What `array show` will call its size: whole extents, for volumes.
        size_bytes: space.bytes(space.count()),
        update: assembly.config.update.0,
        cause: match assembly.verdict {
            Verdict::Startable { .. } => None,
            Verdict::NeedsForce { .. } | Verdict::Failed { .. } | Verdict::Refused { .. } => {
                Some(assembly.verdict.to_string())
            }
        },
    }
}

/// All block devices of this host that are not made of memory or files.
fn block_devices() -> Vec<DriveSpec> {
    let Ok(entries) = std::fs::read_dir("/sys/class/block") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let pretended = |name: &String| {
        ["loop", "ram", "zram", "fd", "sr"]
            .iter()
            .any(|p| name.starts_with(p))
    };
    let mut names: Vec<String> = names.filter(|name| !pretended(name)).collect();
    names.sort_unstable();
    let spec = |name: String| DriveSpec::Block {
        path: std::path::Path::new("/dev").join(name),
    };
    names.into_iter().map(spec).collect()
}
