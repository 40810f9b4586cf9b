//! The calls of the pretended engine.

use super::arrays::new_volume;
use super::{FakeEngine, export_view, identity, place, profile, refuse};
use crate::engine::Begun;
use crate::membership::Membership;
use crate::metrics::{Histogram, Metric, Samples};
use crate::request::{
    ArrayCreate, ArrayImport, ArrayModify, BackgroundKind, DriveAdd, DriveKnown, DriveSpec,
    ExportCreate, Lamp, MemberReplace, QueueMove, VolumeCreate, VolumeLimit,
};
use crate::scrub::{ScrubBody, ScrubView};
use crate::spares::Need;
use crate::view::{
    ArrayView, DriveView, EngineStatus, ExportView, FoundArray, JobKind, JobState, JobView,
    MemberState, ReactorView, VolumeKey, VolumeView,
};
use crate::{Answer, Engine, ErrorKind};
use std::collections::BTreeMap;
use uuid::Uuid;

impl FakeEngine {
    pub(super) fn view_of(&self, name: &str) -> ArrayView {
        let uuid = self.array_uuid(name);
        let serving = self.run().arrays[&uuid];
        self.array_view(uuid, serving)
    }

    fn volume_name(&self, uuid: Uuid) -> String {
        let named = self.volumes().into_iter().find(|of| of.uuid == uuid);
        named.expect("the control path resolved the name").name
    }

    fn exported(&self, volume: Uuid) -> bool {
        self.run().exports.values().any(|(of, ..)| *of == volume)
    }
}

impl Engine for FakeEngine {
    fn add_drive(&self, add: &DriveAdd) -> Answer<DriveView> {
        self.begin("add_drive", &add.name)?;
        let at = place(&add.spec);
        let created = match &add.spec {
            DriveSpec::File {
                size_bytes,
                create: true,
                ..
            } => *size_bytes,
            DriveSpec::Memory { size_bytes }
            | DriveSpec::Paced { size_bytes, .. }
            | DriveSpec::Null { size_bytes } => Some(*size_bytes),
            DriveSpec::File { .. } | DriveSpec::Block { .. } => None,
        };
        if let Some(bytes) = created {
            if self.host.lock().drives.contains_key(&at) {
                let object = format!("drive {}", add.name);
                return Err(refuse(ErrorKind::Exists, object, "the file exists"));
            }
            self.host.plug(&at, bytes);
        }
        self.open(DriveKnown::new(&add.name, add.uuid, &add.spec))
    }

    fn open_drives(&self, known: &[DriveKnown]) -> Vec<Answer<DriveView>> {
        let open = |known: &DriveKnown| {
            self.begin("open_drive", &known.name)?;
            self.open(known.clone())
        };
        known.iter().map(open).collect()
    }

    fn memberships(&self) -> BTreeMap<Uuid, Membership> {
        self.memberships_()
    }

    fn forget_start_warnings(&self, array: Uuid) {
        self.host.tell_of_start(array, &[]);
    }

    fn recall(&self, memberships: BTreeMap<Uuid, Membership>) {
        self.host.lock().recalled = memberships;
    }

    fn identify_drive(&self, spec: &DriveSpec) -> Answer<String> {
        let host = self.host.lock();
        let content = host.drives.get(&place(spec));
        Ok(content.map(identity).unwrap_or_default())
    }

    fn look_at_write_caches(&self) {}
    fn look_at_load(&self) {}
    fn give_up_claims(&self, drive: Uuid) {
        self.note(format!("give_up_claims {drive}"));
    }

    fn close_gone(&self) -> Vec<(String, String)> {
        self.close_gone_()
    }

    fn awaited(&self) -> Vec<String> {
        Vec::new()
    }

    fn reopen_awaited(&self, known: &DriveKnown) -> Answer<DriveView> {
        let why = "nobody waits for it";
        Err(refuse(ErrorKind::NotFound, &known.name, why))
    }

    fn is_back(&self, known: &DriveKnown) -> bool {
        self.is_back_(known)
    }

    fn drives(&self) -> Vec<DriveView> {
        let open: Vec<DriveKnown> = self.run().drives.values().cloned().collect();
        let content =
            |known: &DriveKnown| self.host.lock().drives.get(&place(&known.spec)).cloned();
        open.iter()
            .map(|known| self.drive_view(known, content(known).as_ref()))
            .collect()
    }

    fn removed_late(&self) -> Vec<String> {
        self.run().removed_late.iter().cloned().collect()
    }

    fn remove_drive(&self, name: &str, force: bool) -> Answer<()> {
        self.begin("remove_drive", name)?;
        if self.host.lock().late_next.remove("remove_drive") {
            self.run().removed_late.insert(name.to_owned());
            return Err(refuse(ErrorKind::Busy, name, "it is done later"));
        }
        let is_out = self.run().removed_late.remove(name);
        let is_member = |d: &DriveView| d.name == name && d.array.is_some() && !is_out;
        if self.drives().iter().any(is_member) && !force {
            let object = format!("drive {name}");
            return Err(refuse(ErrorKind::Busy, object, "it is a member"));
        }
        self.run().drives.remove(name);
        self.forget_empty();
        Ok(())
    }

    fn signature_on(&self, name: &str) -> Answer<Option<String>> {
        let drive = self.drives().into_iter().find(|drive| drive.name == name);
        Ok(drive.and_then(|drive| drive.signature))
    }

    fn check_wipe(&self, name: &str) -> Answer<()> {
        self.fail_if_asked("check_wipe", name)
    }

    fn wipe_drive(&self, name: &str, force: bool) -> Answer<DriveView> {
        self.begin("wipe_drive", name)?;
        let known = self.free_drive(name, force)?;
        let mut host = self.host.lock();
        let erases = !host.fail_next.remove("erase");
        let content = host
            .drives
            .get_mut(&place(&known.spec))
            .expect("open drives are there");
        if erases {
            (content.signature, content.member) = (None, None);
        }
        let content = content.clone();
        drop(host);
        Ok(self.drive_view(&known, Some(&content)))
    }

    fn locate_drive(&self, name: &str, lamp: Lamp) -> Answer<()> {
        self.begin("locate_drive", &format!("{name} {lamp:?}"))
    }

    fn check_array(&self, create: &ArrayCreate) -> Answer<Need> {
        self.check_array_(create)
    }

    fn create_array(&self, create: &ArrayCreate) -> Answer<ArrayView> {
        self.end("create_array", self.create_array_(create))
    }

    fn find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>> {
        self.find_arrays_(specs)
    }

    fn import_array(&self, import: &ArrayImport) -> Answer<ArrayView> {
        self.end("import_array", self.import_array_(import))
    }

    fn assemble(&self) -> Vec<ArrayView> {
        self.assemble_()
    }

    fn arrays(&self) -> Vec<ArrayView> {
        let known: Vec<_> = self
            .run()
            .arrays
            .iter()
            .map(|(uuid, on)| (*uuid, *on))
            .collect();
        let mut arrays: Vec<ArrayView> = known
            .into_iter()
            .map(|(uuid, on)| self.array_view(uuid, on))
            .collect();
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        arrays
    }

    fn start_array(&self, name: &str, force: bool) -> Answer<ArrayView> {
        self.begin("start_array", name)?;
        self.host.answers()?;
        let view = self.view_of(name);
        let lost = view
            .members
            .iter()
            .filter(|place| place.drive.is_none())
            .count();
        if lost > usize::from(view.parity) && !force {
            let message = format!("{lost} of {} members are missing", view.members.len());
            return Err(refuse(ErrorKind::Unsafe, format!("array {name}"), &message));
        }
        self.run().arrays.insert(view.uuid, true);
        self.end("start_array", Ok(self.array_view(view.uuid, true)))
    }

    fn stop_array(&self, name: &str) -> Answer<ArrayView> {
        self.begin("stop_array", name)?;
        let view = self.view_of(name);
        let volumes = self
            .volumes()
            .into_iter()
            .filter(|volume| volume.array == name);
        if let Some(volume) = volumes
            .into_iter()
            .find(|volume| self.exported(volume.uuid))
        {
            let message = format!("volume {} is exported", volume.name);
            return Err(refuse(ErrorKind::Busy, format!("array {name}"), &message));
        }
        self.run().arrays.insert(view.uuid, false);
        Ok(self.array_view(view.uuid, false))
    }

    fn destroy_array(&self, name: &str, force: bool) -> Answer<Vec<String>> {
        self.begin("destroy_array", name)?;
        let view = self.view_of(name);
        if view.volumes > 0 && !force {
            return Err(refuse(
                ErrorKind::Unsafe,
                format!("array {name}"),
                "it has volumes",
            ));
        }
        if self.host.lock().late_next.remove("destroy_array") {
            self.run().destroyed_late.insert(view.uuid);
            return Err(refuse(ErrorKind::Busy, name, "it is not done in time"));
        }
        self.run().destroyed_late.remove(&view.uuid);
        self.run().arrays.remove(&view.uuid);
        let mut host = self.host.lock();
        host.arrays.remove(&view.uuid);
        let left = host.fail_next.remove("erase_members");
        for content in host.drives.values_mut() {
            content.member = content
                .member
                .filter(|(array, _)| left || *array != view.uuid);
        }
        let members = view.members.into_iter().filter(|_| left);
        Ok(members.filter_map(|place| place.drive).collect())
    }

    fn is_being_destroyed(&self, array: Uuid) -> bool {
        self.run().destroyed_late.contains(&array)
    }

    fn modify_array(&self, name: &str, modify: &ArrayModify) -> Answer<ArrayView> {
        self.begin("modify_array", name)?;
        let uuid = self.array_uuid(name);
        let mut host = self.host.lock();
        let view = &mut host.arrays.get_mut(&uuid).expect("resolved").view;
        view.write_hole = modify.write_hole.unwrap_or(view.write_hole);
        view.hedged_reads = modify.hedged_reads.unwrap_or(view.hedged_reads);
        view.hold_timeout_ms = modify.hold_timeout_ms.or(view.hold_timeout_ms);
        view.latency_target_us = modify.latency_target_us.or(view.latency_target_us);
        drop(host);
        Ok(self.view_of(name))
    }

    fn fail_member(&self, name: &str, member: u16) -> Answer<ArrayView> {
        self.begin("fail_member", &format!("{name} {member}"))?;
        let view = self.view_of(name);
        let lost = view
            .members
            .iter()
            .filter(|place| place.state != MemberState::Online)
            .count();
        if lost >= usize::from(view.parity) {
            return Err(refuse(
                ErrorKind::Unsafe,
                format!("array {name}"),
                "no redundancy is left",
            ));
        }
        let mut host = self.host.lock();
        let kept = &mut host.arrays.get_mut(&view.uuid).expect("resolved").view;
        kept.members[usize::from(member)].state = MemberState::Failed;
        drop(host);
        Ok(self.view_of(name))
    }

    fn replace_member(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView> {
        self.end("replace_member", self.replace_member_(name, replace))
    }

    fn fill_by_spare(&self, name: &str, replace: &MemberReplace) -> Answer<ArrayView> {
        self.replace_member(name, replace)
    }

    fn tend_copies(&self) -> bool {
        false
    }

    fn start_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView> {
        self.begin("start_background", name)?;
        Ok(self.begin_job(
            match kind {
                BackgroundKind::Rebuild => JobKind::Rebuild,
                BackgroundKind::Resync => JobKind::Resync,
            },
            name,
        ))
    }

    fn stop_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView> {
        self.begin("stop_background", name)?;
        let wanted = match kind {
            BackgroundKind::Rebuild => JobKind::Rebuild,
            BackgroundKind::Resync => JobKind::Resync,
        };
        let mut run = self.run();
        let running = |job: &&mut JobView| job.kind == wanted && job.state == JobState::Running;
        let Some(job) = run.jobs.iter_mut().find(running) else {
            return Err(refuse(
                ErrorKind::NotFound,
                format!("array {name}"),
                "none runs",
            ));
        };
        job.state = JobState::Cancelled;
        Ok(job.clone())
    }

    fn start_scrub(&self, name: &str, scrub: ScrubBody) -> Answer<JobView> {
        self.begin("start_scrub", &format!("{name} {}", scrub.from_beginning))?;
        Ok(self.begin_job(JobKind::Scrub, name))
    }

    fn stop_scrub(&self, name: &str) -> Answer<JobView> {
        self.begin("stop_scrub", name)?;
        let mut run = self.run();
        let running =
            |job: &&mut JobView| job.kind == JobKind::Scrub && job.state == JobState::Running;
        let Some(job) = run.jobs.iter_mut().find(running) else {
            let object = format!("array {name}");
            return Err(refuse(ErrorKind::NotFound, object, "none runs"));
        };
        job.state = JobState::Cancelled;
        Ok(job.clone())
    }

    fn scrub(&self, name: &str) -> Answer<ScrubView> {
        Ok(super::scrub::view(name, &self.run().jobs))
    }

    fn begin_create_volume(&self, create: &VolumeCreate) -> Answer<Begun> {
        self.begin("create_volume", &create.name)?;
        let array = self.view_of(&create.array);
        if create.size_bytes > array.free_bytes {
            let object = format!("volume {}", create.name);
            return Err(refuse(
                ErrorKind::Full,
                object,
                "the array has too little room",
            ));
        }
        let volume = new_volume(create);
        let mut host = self.host.lock();
        let kept = host.arrays.get_mut(&array.uuid).expect("resolved");
        kept.volumes.insert(create.name.clone(), volume.clone());
        Ok(Begun::Done(Box::new(volume)))
    }

    fn volumes(&self) -> Vec<VolumeView> {
        let known: Vec<_> = self.run().arrays.keys().copied().collect();
        let host = self.host.lock();
        let run = self.run();
        let mut volumes: Vec<VolumeView> = known
            .iter()
            .flat_map(|uuid| host.arrays[uuid].volumes.values().cloned())
            .collect();
        for volume in &mut volumes {
            let key = (volume.array.clone(), volume.uuid);
            volume.limit = run.limits.get(&key).cloned().unwrap_or_default();
            let of_volume = run.exports.values().filter(|(of, ..)| *of == volume.uuid);
            volume.exports = of_volume
                .map(|(_, create, _)| create.name.clone())
                .collect();
        }
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes
    }

    fn begin_resize_volume(&self, key: &VolumeKey, size_bytes: u64) -> Answer<Begun> {
        let volume = key.uuid;
        self.begin("resize_volume", &self.volume_name(volume))?;
        let mut host = self.host.lock();
        let mut volumes = host
            .arrays
            .values_mut()
            .flat_map(|kept| kept.volumes.values_mut());
        let volume = volumes.find(|of| of.uuid == volume).expect("resolved");
        if size_bytes < volume.size_bytes {
            let object = format!("volume {}", volume.name);
            return Err(refuse(
                ErrorKind::Invalid,
                object,
                "a volume cannot become smaller",
            ));
        }
        volume.size_bytes = size_bytes;
        Ok(Begun::Done(Box::new(volume.clone())))
    }

    fn volume_under_way(&self, _: &str) -> Option<u64> {
        None
    }
    fn zero_volume(&self, _: u64) {}
    fn finish_volume(&self, _: u64) -> Answer<VolumeView> {
        unreachable!("nothing here is to be zeroed")
    }
    fn delete_volume(&self, key: &VolumeKey) -> Answer<()> {
        let volume = key.uuid;
        let name = self.volume_name(volume);
        self.begin("delete_volume", &name)?;
        if self.exported(volume) {
            let object = format!("volume {name}");
            return Err(refuse(ErrorKind::Busy, object, "it is exported"));
        }
        for kept in self.host.lock().arrays.values_mut() {
            kept.volumes.retain(|_, of| of.key() != *key);
        }
        self.end("delete_volume", Ok(()))
    }

    fn limit_volume(&self, key: &VolumeKey, limit: &VolumeLimit) -> Answer<VolumeView> {
        self.begin("limit_volume", &self.volume_name(key.uuid))?;
        let mut volumes = self.volumes().into_iter();
        let volume = volumes.find(|of| of.key() == *key);
        let mut volume = volume.expect("the control path resolved the name");
        let key = (key.array.clone(), key.uuid);
        self.run().limits.insert(key, limit.clone());
        volume.limit = limit.clone();
        Ok(volume)
    }

    fn create_export(&self, create: &ExportCreate, key: &VolumeKey) -> Answer<ExportView> {
        let volume = key.uuid;
        self.begin("create_export", &create.name)?;
        if self.exported(volume) {
            let object = format!("volume {}", create.volume);
            return Err(refuse(ErrorKind::Busy, object, "it is exported already"));
        }
        let profile = create.profile.clone().unwrap_or_else(|| profile(create));
        let view = export_view(create, &profile);
        self.run()
            .exports
            .insert(create.name.clone(), (volume, create.clone(), profile));
        Ok(view)
    }

    fn exports(&self) -> Vec<ExportView> {
        self.run()
            .exports
            .values()
            .map(|(_, create, profile)| export_view(create, profile))
            .collect()
    }

    fn move_queue(&self, name: &str, to: QueueMove) -> Answer<ExportView> {
        self.begin("move_queue", &format!("{name} {} {}", to.queue, to.core))?;
        let exports = self.exports();
        let mut export = exports
            .into_iter()
            .find(|e| e.name == name)
            .expect("resolved");
        let Some(queue) = export.queues.get_mut(usize::from(to.queue)) else {
            let object = format!("queue {} of export {name}", to.queue);
            return Err(refuse(
                ErrorKind::NotFound,
                object,
                "there is no such queue",
            ));
        };
        queue.core = Some(to.core);
        Ok(export)
    }

    fn remove_export(&self, name: &str) -> Answer<()> {
        self.begin("remove_export", name)?;
        self.run().exports.remove(name);
        self.end("remove_export", Ok(()))
    }

    /// Every look moves the running jobs on by a quarter.
    fn jobs(&self) -> Vec<JobView> {
        let mut run = self.run();
        let before = run.jobs.clone();
        for job in run
            .jobs
            .iter_mut()
            .filter(|job| job.state == JobState::Running)
        {
            job.done_bytes += 1 << 20;
            if job.done_bytes >= job.total_bytes {
                job.state = JobState::Done;
            }
        }
        before
    }

    fn cancel_job(&self, id: u64) -> Answer<JobView> {
        self.begin("cancel_job", &id.to_string())?;
        let mut run = self.run();
        let job = run
            .jobs
            .iter_mut()
            .find(|job| job.id == id)
            .expect("resolved");
        if job.state != JobState::Running || job.kind == JobKind::Initialize {
            return Err(refuse(
                ErrorKind::Busy,
                format!("job {id}"),
                "it cannot be cancelled",
            ));
        }
        job.state = JobState::Cancelled;
        Ok(job.clone())
    }

    fn status(&self) -> EngineStatus {
        EngineStatus {
            reactors: vec![ReactorView {
                reactor: 0,
                core: 1,
                state: "parked".into(),
                busy_time_us_total: 10,
                idle_time_us_total: 90,
                requests_total: 5,
                ..ReactorView::default()
            }],
            memory_bytes: 64 << 20,
            poll: "adaptive".into(),
            parity_backend: "scalar".into(),
            warnings: vec!["this is a pretended engine".into()],
            ..EngineStatus::default()
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let labels = vec![("volume", "quo\"ted\\name".to_owned())];
        let histogram = Histogram {
            sum: 0.5,
            buckets: vec![(0.001, 2), (0.01, 1), (f64::INFINITY, 1)],
        };
        vec![
            Metric {
                name: "volume_read_bytes",
                help: "Bytes that guests read",
                samples: Samples::Counters(vec![(labels.clone(), u64::MAX)]),
            },
            Metric {
                name: "drives_open",
                help: "Drives that are open",
                samples: Samples::Gauges(vec![(Vec::new(), 2.0)]),
            },
            Metric {
                name: "volume_read_seconds",
                help: "How long reads took",
                samples: Samples::Histograms(vec![(labels, histogram)]),
            },
        ]
    }

    fn shutdown(&self) -> Answer<()> {
        self.begin("shutdown", "")
    }
}
