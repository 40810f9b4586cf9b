//! The longer calls of the pretended engine: arrays made, found, imported, assembled, mended; and
//! what a new volume is like.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Content, FakeEngine, KeptArray, identity, members, parity_of, place, refuse};
use crate::membership::Membership;
use crate::request::{
    ArrayCreate, ArrayImport, DriveKnown, DriveSpec, MemberReplace, VolumeCreate, VolumeLimit,
};
use crate::spares::Need;
use crate::view::{
    ArrayState, ArrayView, DriveState, DriveView, FoundArray, FoundDrive, IoCounters, JobKind,
    MemberState, VolumeView,
};
use crate::{Answer, Engine, ErrorKind};

/// What every member takes of its drive.
const MEMBER_BYTES: u64 = 64 << 20;

impl FakeEngine {
    pub(super) fn give(&self, drive: &DriveKnown, array: Uuid, member: u16) {
        let mut host = self.host.lock();
        let content = host
            .drives
            .get_mut(&place(&drive.spec))
            .expect("open drives are there");
        *content = Content {
            size_bytes: content.size_bytes,
            signature: None,
            member: Some((array, member)),
        };
    }

    pub(super) fn memberships_(&self) -> BTreeMap<Uuid, Membership> {
        let arrays = self.arrays().into_iter();
        let running = arrays.filter(|array| array.state != ArrayState::Stopped);
        let membership = |array: ArrayView| {
            let online = array
                .members
                .iter()
                .filter(|m| m.state == MemberState::Online);
            let membership = Membership {
                update: array.update,
                update_id: Uuid::from_u128(array.update.into()),
                in_sync: online.map(|m| Uuid::from_u128(m.member.into())).collect(),
            };
            (array.uuid, membership)
        };
        running.map(membership).collect()
    }

    /// A free, unsigned drive (or signed, with force), as an array may take it.
    pub(super) fn free_drive(&self, name: &str, force: bool) -> Answer<DriveKnown> {
        let object = format!("drive {name}");
        let drive = self.drives().into_iter().find(|drive| drive.name == name);
        let drive = drive.expect("the control path resolved the name");
        if drive.state != DriveState::Free {
            return Err(refuse(ErrorKind::Busy, object, "it is a member already"));
        }
        if let Some(signature) = drive.signature.filter(|_| !force) {
            let message = format!("it carries {signature}");
            return Err(refuse(ErrorKind::Unsafe, object, &message));
        }
        Ok(self.run().drives[name].clone())
    }

    pub(super) fn open(&self, known: DriveKnown) -> Answer<DriveView> {
        let at = place(&known.spec);
        let object = format!("drive {}", known.name);
        let content = self.host.lock().drives.get(&at).cloned();
        let Some(content) = content else {
            return Err(refuse(ErrorKind::NotFound, object, "nothing is there"));
        };
        if self
            .run()
            .drives
            .values()
            .any(|open| place(&open.spec) == at)
        {
            return Err(refuse(
                ErrorKind::Exists,
                object,
                "the drive is open already",
            ));
        }
        let found = identity(&content);
        if !known.identity.is_empty() && !found.is_empty() && found != known.identity {
            return Err(refuse(
                ErrorKind::NotFound,
                object,
                "another drive is there",
            ));
        }
        let view = self.drive_view(&known, Some(&content));
        self.run().drives.insert(known.name.clone(), known);
        Ok(view)
    }

    /// Whether what is behind the place of a drive says that it is that drive.
    pub(super) fn is_back_(&self, known: &DriveKnown) -> bool {
        let seen = self.identify_drive(&known.spec);
        seen.is_ok_and(|seen| seen == known.identity)
    }

    /// Closes drives that nothing is behind any more and no array uses.
    /// A stopped array is known as long as one of its drives is open.
    pub(super) fn forget_empty(&self) {
        let open: Vec<Uuid> = {
            let places: Vec<String> = self.run().drives.values().map(|d| place(&d.spec)).collect();
            let host = self.host.lock();
            let contents = places.iter().filter_map(|place| host.drives.get(place));
            contents
                .filter_map(|content| Some(content.member?.0))
                .collect()
        };
        let mut run = self.run();
        run.arrays
            .retain(|uuid, serving| *serving || open.contains(uuid));
    }

    pub(super) fn close_gone_(&self) -> Vec<(String, String)> {
        let is_there =
            |known: &DriveKnown| self.host.lock().drives.contains_key(&place(&known.spec));
        let used = |name: &String| {
            let arrays = self.arrays();
            let mut members = arrays.iter().flat_map(|array| &array.members);
            members.any(|member| {
                let serves = member.state == MemberState::Online;
                serves && member.drive.as_ref() == Some(name)
            })
        };
        let open: Vec<DriveKnown> = self.run().drives.values().cloned().collect();
        let gone = open.into_iter().filter(|known| !is_there(known));
        let gone = gone.map(|known| known.name).filter(|name| !used(name));
        let gone: Vec<String> = gone.collect();
        self.run().drives.retain(|name, _| !gone.contains(name));
        let cause = || "the host has taken it away".to_owned();
        gone.into_iter().map(|name| (name, cause())).collect()
    }

    /// How many members it may lose, and its drives, if it may have them.
    fn shape(&self, create: &ArrayCreate) -> Answer<(u16, Vec<DriveKnown>)> {
        let object = format!("array {}", create.name);
        let parity = create
            .options
            .parity
            .unwrap_or_else(|| parity_of(create.level));
        if create.drives.len() <= usize::from(parity) {
            return Err(refuse(
                ErrorKind::Invalid,
                object,
                "too few drives for the level",
            ));
        }
        let drives = create
            .drives
            .iter()
            .map(|name| self.free_drive(name, create.force));
        Ok((parity, drives.collect::<Answer<Vec<_>>>()?))
    }

    pub(super) fn check_array_(&self, create: &ArrayCreate) -> Answer<Need> {
        self.shape(create)?;
        Ok(Need {
            array: create.uuid,
            member_bytes: MEMBER_BYTES,
            block_bytes: create.options.block_bytes.unwrap_or(512),
            pool: None,
        })
    }

    pub(super) fn create_array_(&self, create: &ArrayCreate) -> Answer<ArrayView> {
        self.begin("create_array", &create.name)?;
        let (parity, drives) = self.shape(create)?;
        for (member, drive) in drives.iter().enumerate() {
            self.give(drive, create.uuid, u16::try_from(member).expect("few"));
        }
        let chunk_bytes = create.options.chunk_bytes.unwrap_or(65536);
        let view = ArrayView {
            name: create.name.clone(),
            uuid: create.uuid,
            level: create.level,
            state: crate::view::ArrayState::Optimal,
            torn_without: Vec::new(),
            members: members(&create.drives),
            group_size: u16::try_from(drives.len()).expect("few"),
            parity,
            chunk_bytes,
            stripe_bytes: chunk_bytes * (drives.len() as u64 - u64::from(parity)),
            block_bytes: create.options.block_bytes.unwrap_or(512),
            member_bytes: MEMBER_BYTES,
            spares: Vec::new(),
            pool: None,
            size_bytes: 1 << 30,
            free_bytes: 1 << 30,
            extent_bytes: 16 << 20,
            write_hole: create.options.write_hole,
            rebuild_floor_bytes_per_second: 10 << 20,
            latency_target_us: None,
            hold_timeout_ms: Some(60_000),
            hold: None,
            lost: None,
            unrepaired_blocks: 0,
            node: Some(0),
            reactors: vec![0],
            scrub_rate_bytes_per_second: None,
            scrub_every_s: None,
            hedged_reads: create.options.hedged_reads,
            unwritten_regions: create.options.unwritten_regions.unwrap_or(false),
            update: 1,
            volumes: 0,
            jobs: Vec::new(),
            cause: None,
            warnings: Vec::new(),
            start_warnings: Vec::new(),
            stopped_pass: None,
        };
        let kept = KeptArray {
            view,
            volumes: std::collections::BTreeMap::new(),
        };
        self.host.lock().arrays.insert(create.uuid, kept);
        self.run().arrays.insert(create.uuid, true);
        self.begin_job(JobKind::Initialize, &create.name);
        Ok(self.array_view(create.uuid, true))
    }

    pub(super) fn find_arrays_(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>> {
        let host = self.host.lock();
        let known = self.run().arrays.keys().copied().collect::<Vec<_>>();
        let mut found = Vec::new();
        for kept in host
            .arrays
            .values()
            .filter(|kept| !known.contains(&kept.view.uuid))
        {
            let on = |(at, content): (&String, &Content)| {
                let (array, member) = content.member?;
                let spec: DriveSpec = at.parse().expect("places are specs");
                let asked = specs.is_empty() || specs.iter().any(|spec| place(spec) == *at);
                (array == kept.view.uuid && asked).then_some(FoundDrive {
                    spec,
                    name: None,
                    member,
                })
            };
            let drives: Vec<FoundDrive> = host.drives.iter().filter_map(on).collect();
            if !drives.is_empty() {
                found.push(FoundArray {
                    name: kept.view.name.clone(),
                    uuid: kept.view.uuid,
                    level: kept.view.level,
                    members: kept.view.group_size,
                    drives,
                    size_bytes: kept.view.size_bytes,
                    update: kept.view.update,
                    cause: None,
                });
            }
        }
        Ok(found)
    }

    pub(super) fn import_array_(&self, import: &ArrayImport) -> Answer<ArrayView> {
        self.begin("import_array", &import.array)?;
        let found = self.find_arrays(&import.specs)?;
        let named = |array: &FoundArray| {
            array.name == import.array || array.uuid.to_string() == import.array
        };
        let Some(array) = found.into_iter().find(named) else {
            let object = format!("array {}", import.array);
            return Err(refuse(
                ErrorKind::NotFound,
                object,
                "it is on none of the drives",
            ));
        };
        for drive in &array.drives {
            let name = format!("{}-{}", array.name, drive.member);
            self.open(DriveKnown::new(&name, Uuid::new_v4(), &drive.spec))?;
        }
        self.assemble();
        self.start_array(&array.name, import.force)
    }

    pub(super) fn assemble_(&self) -> Vec<ArrayView> {
        let on_drives: Vec<_> = {
            let host = self.host.lock();
            let run = self.run();
            let open = run.drives.values();
            open.filter_map(|known| {
                Some((
                    host.drives.get(&place(&known.spec))?.member?,
                    known.name.clone(),
                ))
            })
            .collect()
        };
        let mut host = self.host.lock();
        for ((uuid, _), _) in &on_drives {
            self.run().arrays.entry(*uuid).or_insert(false);
        }
        for kept in host.arrays.values_mut() {
            let uuid = kept.view.uuid;
            for member in &mut kept.view.members {
                let drive = on_drives
                    .iter()
                    .find(|(at, _)| *at == (uuid, member.member));
                member.drive = drive.map(|(_, name)| name.clone());
                member.state = match (&member.drive, member.state) {
                    (Some(_), MemberState::Missing) => MemberState::Online,
                    (Some(_), state) => state,
                    (None, _) => MemberState::Missing,
                };
            }
        }
        drop(host);
        self.arrays()
    }

    pub(super) fn replace_member_(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView> {
        self.begin(
            "replace_member",
            &format!("{name} {} {}", replace.member, replace.drive),
        )?;
        let view = self.view_of(name);
        let old = &view.members[usize::from(replace.member)];
        if old.state == MemberState::Online {
            let object = format!("member {} of array {name}", replace.member);
            return Err(refuse(
                ErrorKind::Busy,
                object,
                "a good drive fills the place",
            ));
        }
        let drive = self.free_drive(&replace.drive, replace.force)?;
        let mut host = self.host.lock();
        for content in host.drives.values_mut() {
            content.member = content
                .member
                .filter(|at| *at != (view.uuid, replace.member));
        }
        let kept = &mut host.arrays.get_mut(&view.uuid).expect("resolved").view;
        let place = &mut kept.members[usize::from(replace.member)];
        (place.state, place.drive) = (MemberState::Rebuilding, Some(replace.drive.clone()));
        drop(host);
        self.give(&drive, view.uuid, replace.member);
        self.begin_job(JobKind::Rebuild, name);
        Ok(self.view_of(name))
    }
}

/// A volume that was made just now.
pub(super) fn new_volume(create: &VolumeCreate) -> VolumeView {
    VolumeView {
        name: create.name.clone(),
        uuid: create.uuid,
        array: create.array.clone(),
        size_bytes: create.size_bytes,
        allocated_bytes: create.size_bytes.next_multiple_of(16 << 20),
        stable_buffers: create.stable_buffers,
        limit: VolumeLimit::default(),
        exports: Vec::new(),
        copied_bytes_total: 0,
        throttled_requests_total: 0,
        throttled_time_us_total: 0,
        counters: IoCounters {
            writes_total: 3,
            ..IoCounters::default()
        },
    }
}
