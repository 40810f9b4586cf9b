//! Spares of arrays, and pools of spares that several arrays share.

use uuid::Uuid;

use super::{Control, invalid};
use crate::body::{PoolArrayBody, PoolCreateBody, SpareBody};
use crate::name::{self, Create};
use crate::spares::{Freed, Need, SpareOf};
use crate::view::{ArrayView, DriveState, DriveView, PoolView};
use crate::wanted::{Change, WantedPool, WantedState};
use crate::{Answer, EngineError, ErrorKind};

/// Drives that are ready to be spares.
#[derive(Debug, Default)]
pub(super) struct NewSpares {
    /// What makes them spares.
    pub(super) changes: Vec<Change>,
    /// On which of them something was erased for that.
    pub(super) erased: Vec<String>,
}

impl Control {
    /// Makes a free drive a spare of one array.
    ///
    /// # Errors
    /// `Busy` when somebody uses the drive, `Unsafe` when it carries a signature and not `force`,
    /// `Full` and `Invalid` when it cannot be a member of the array.
    pub fn add_spare(&self, key: &str, body: &SpareBody) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        let drive = self.drive(&body.drive)?;
        self.give_spares(&array, std::slice::from_ref(&drive), body.force)?;
        self.array(&array.name)
    }

    /// Makes free drives spares of an array.
    pub(super) fn give_spares(
        &self,
        array: &ArrayView,
        drives: &[DriveView],
        force: bool,
    ) -> Answer<()> {
        refuse_pointless(&array.name, array.parity == 0)?;
        for drive in drives {
            refuse_unfit(&array.name, &need_of(array, None), drive)?;
        }
        let ready = self.make_spares(drives, &SpareOf::Array(array.uuid), force)?;
        self.wanted.apply(&ready.changes)?;
        for drive in drives {
            tracing::info!(event = "spare_added", object = %format_args!("drive {}", drive.name), array = array.name);
        }
        Ok(())
    }

    /// Makes a spare of an array a free drive again. An array that is not here is named by its
    /// uuid.
    ///
    /// # Errors
    /// `NotFound` when it is no spare of the array.
    pub fn remove_spare(&self, key: &str, drive: &str) -> Answer<Freed> {
        let _changing = self.change()?;
        let array = match self.array(key) {
            Err(unknown) if unknown.kind == ErrorKind::NotFound => {
                return self.free_of_absent(unknown, key, drive);
            }
            array => array?,
        };
        let drive = self.drive(drive)?;
        self.free_spare(&drive, &SpareOf::Array(array.uuid), || {
            format!("array {}", array.name)
        })?;
        Ok(Freed::By(Box::new(self.array(&array.name)?)))
    }

    /// As [`Control::remove_spare`], where no array is known by the key.
    fn free_of_absent(&self, unknown: EngineError, key: &str, drive: &str) -> Answer<Freed> {
        let Ok(drive) = self.drive(drive) else {
            return Err(unknown);
        };
        let Some(of) = self.spare_of_absent(&drive) else {
            return Err(unknown);
        };
        let name = &drive.name;
        if Uuid::try_parse(key).ok() != Some(of) {
            let message = format!(
                "{}, and drive {name} is a spare of array {of}, which is not here",
                unknown.message
            );
            let next = format!("`garboard array spare remove {of} --drive {name}` makes it free");
            return Err(EngineError::new(unknown.kind, unknown.object, message).next(next));
        }
        self.free_spare(&drive, &SpareOf::Array(of), || format!("array {of}"))?;
        Ok(Freed::Alone(Box::new(self.drive(name)?)))
    }

    /// The array that the drive is a spare of, if it is none of those that are here.
    fn spare_of_absent(&self, drive: &DriveView) -> Option<Uuid> {
        let of = self.wanted.state().spares.remove(&drive.uuid)?;
        let SpareOf::Array(of) = of else {
            return None;
        };
        let arrays = self.engine.arrays();
        arrays.iter().all(|array| array.uuid != of).then_some(of)
    }

    /// All pools, by name.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        let state = self.wanted.state();
        let arrays = self.engine.arrays();
        let view = |(name, pool): (&String, &WantedPool)| {
            let drives = state.drives.values().filter(|drive| {
                let of = state.spares.get(&drive.uuid);
                matches!(of, Some(SpareOf::Pool(of)) if of == name)
            });
            PoolView {
                name: name.clone(),
                uuid: pool.uuid,
                drives: drives.map(|drive| drive.name.clone()).collect(),
                arrays: pool
                    .arrays
                    .iter()
                    .map(|uuid| array_name(&arrays, *uuid))
                    .collect(),
            }
        };
        state.pools.iter().map(view).collect()
    }

    /// One pool, by name or uuid.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn pool(&self, key: &str) -> Answer<PoolView> {
        name::find(self.pools(), key)
    }

    /// Makes a pool of free drives for these arrays.
    ///
    /// # Errors
    /// As [`Control::add_pool_drive`] and [`Control::attach_pool`]; `Exists` for a name or uuid
    /// that is taken.
    pub fn create_pool(&self, body: &PoolCreateBody) -> Answer<PoolView> {
        let _changing = self.change()?;
        // Drives and arrays come to a pool and leave it by commands of their own.
        let differs = |_: &PoolView| Vec::new();
        let uuid = match name::create(self.pools(), &body.name, body.uuid, differs)? {
            Create::There(pool) => return Ok(pool),
            Create::New(uuid) => uuid,
        };
        let mut pool = WantedPool {
            uuid,
            ..WantedPool::default()
        };
        let mut arrays = Vec::new();
        for key in &body.arrays {
            let array = self.array(key)?;
            Control::refuse_attached(&array, &body.name)?;
            pool.arrays.insert(array.uuid);
            arrays.push(array);
        }
        let mut drives: Vec<DriveView> = Vec::new();
        for key in &body.drives {
            let drive = self.drive(key)?;
            if drives.iter().any(|other| other.name == drive.name) {
                let text = format!("drive {} is named twice", drive.name);
                return Err(invalid(name::object::<PoolView>(&body.name), text)
                    .next("name each drive once"));
            }
            refuse_unfit_of_all(&arrays, &drive)?;
            drives.push(drive);
        }
        let mut changes = vec![Change::Pool(body.name.clone(), pool)];
        let of = SpareOf::Pool(body.name.clone());
        let ready = self.make_spares(&drives, &of, body.force)?;
        changes.extend(ready.changes);
        let applied = self.wanted.apply(&changes);
        applied.map_err(|failed| failed.after_erasing(&ready.erased))?;
        tracing::info!(event = "pool_created", object = %format_args!("pool {}", body.name));
        self.pool(&body.name)
    }

    /// Forgets a pool; its drives are free.
    ///
    /// # Errors
    /// `Busy` while an array takes spares from it.
    pub fn delete_pool(&self, key: &str) -> Answer<PoolView> {
        let _changing = self.change()?;
        let pool = self.pool(key)?;
        if let Some(array) = pool.arrays.first() {
            let text = format!("array {array} takes spares from it");
            let next = format!("`garboard pool detach {} --array {array}` first", pool.name);
            return Err(busy(name::object::<PoolView>(&pool.name), text).next(next));
        }
        let mut changes = vec![Change::NoPool(pool.name.clone())];
        for drive in &pool.drives {
            changes.push(Change::NoSpare(self.drive(drive)?.uuid));
        }
        self.wanted.apply(&changes)?;
        tracing::info!(event = "pool_deleted", object = %format_args!("pool {}", pool.name));
        Ok(pool)
    }

    /// Adds a free drive to a pool.
    ///
    /// # Errors
    /// `Busy` when somebody uses the drive, `Unsafe` when it carries a signature and not `force`,
    /// `Full` or `Invalid` when it fits none of the pool's arrays.
    pub fn add_pool_drive(&self, key: &str, body: &SpareBody) -> Answer<PoolView> {
        let _changing = self.change()?;
        let pool = self.pool(key)?;
        let drive = self.drive(&body.drive)?;
        // Those that are not here may take what these cannot.
        let arrays: Vec<ArrayView> = (pool.arrays.iter())
            .filter_map(|array| self.array(array).ok())
            .collect();
        if arrays.len() == pool.arrays.len() {
            refuse_unfit_of_all(&arrays, &drive)?;
        }
        let of = SpareOf::Pool(pool.name.clone());
        let ready = self.make_spares(std::slice::from_ref(&drive), &of, body.force)?;
        self.wanted.apply(&ready.changes)?;
        tracing::info!(event = "spare_added", object = %format_args!("drive {}", drive.name), pool = pool.name);
        self.pool(&pool.name)
    }

    /// Takes a drive out of a pool; it is free.
    ///
    /// # Errors
    /// `NotFound` when it is not in the pool.
    pub fn remove_pool_drive(&self, key: &str, drive: &str) -> Answer<PoolView> {
        let _changing = self.change()?;
        let pool = self.pool(key)?;
        let drive = self.drive(drive)?;
        self.free_spare(&drive, &SpareOf::Pool(pool.name.clone()), || {
            format!("pool {}", pool.name)
        })?;
        self.pool(&pool.name)
    }

    /// Lets an array take spares from a pool.
    ///
    /// # Errors
    /// `Busy` when it takes them from another one.
    pub fn attach_pool(&self, key: &str, body: &PoolArrayBody) -> Answer<PoolView> {
        let _changing = self.change()?;
        let pool = self.pool(key)?;
        let array = self.array(&body.array)?;
        Control::refuse_attached(&array, &pool.name)?;
        self.change_pool(&pool.name, |wanted| {
            wanted.arrays.insert(array.uuid);
        })?;
        tracing::info!(event = "pool_attached", object = %format_args!("pool {}", pool.name), array = array.name);
        self.pool(&pool.name)
    }

    /// Lets an array take no more spares from a pool. One that is not here is named by its uuid.
    ///
    /// # Errors
    /// `NotFound` when it takes none.
    pub fn detach_pool(&self, key: &str, array: &str) -> Answer<PoolView> {
        let _changing = self.change()?;
        let pool = self.pool(key)?;
        let (array, uuid) = match self.array(array) {
            Ok(array) => (array.name, array.uuid),
            Err(unknown) => {
                let uuid = Uuid::try_parse(array).unwrap_or_default();
                let array = uuid.to_string();
                if !pool.arrays.contains(&array) {
                    return Err(unknown);
                }
                (array, uuid)
            }
        };
        if !pool.arrays.contains(&array) {
            let text = format!("array {array} takes no spares from it");
            let object = name::object::<PoolView>(&pool.name);
            return Err(
                EngineError::new(ErrorKind::NotFound, object, text).next(format!(
                    "`garboard pool show {}` lists its arrays",
                    pool.name
                )),
            );
        }
        self.change_pool(&pool.name, |wanted| {
            wanted.arrays.remove(&uuid);
        })?;
        tracing::info!(event = "pool_detached", object = %format_args!("pool {}", pool.name), array);
        self.pool(&pool.name)
    }

    fn change_pool(&self, name: &str, change: impl FnOnce(&mut WantedPool)) -> Answer<()> {
        let mut pools = self.wanted.state().pools;
        let mut pool = pools.remove(name).expect("found under the same lock");
        change(&mut pool);
        self.wanted.apply(&[Change::Pool(name.to_owned(), pool)])
    }

    /// Refuses an array that gets nothing from spares, or takes them from another pool.
    fn refuse_attached(array: &ArrayView, pool: &str) -> Answer<()> {
        refuse_pointless(&array.name, array.parity == 0)?;
        let Some(other) = array.pool.as_ref().filter(|other| *other != pool) else {
            return Ok(());
        };
        let object = name::object::<ArrayView>(&array.name);
        let next = format!(
            "`garboard pool detach {other} --array {}` first",
            array.name
        );
        Err(busy(object, format!("it takes spares from pool {other}")).next(next))
    }

    /// Makes drives ready to be spares of `of`, if they may be: all are looked at before anything
    /// is erased. Those that are spares of it are left as they are.
    pub(super) fn make_spares(
        &self,
        drives: &[DriveView],
        of: &SpareOf,
        force: bool,
    ) -> Answer<NewSpares> {
        let known = self.wanted.state().spares;
        let (mut ready, mut unclean) = (NewSpares::default(), Vec::new());
        for drive in drives {
            if drive.state == DriveState::Spare && known.get(&drive.uuid) == Some(of) {
                continue;
            }
            let carries = self.refuse_unfree(drive, force)?;
            if carries || drive.state == DriveState::Failed {
                self.engine.check_wipe(&drive.name)?;
                unclean.push(drive);
            }
            let change = Change::Spare(drive.uuid, of.clone());
            ready.changes.push(change);
        }
        for drive in unclean {
            let wiped = self.engine.wipe_drive(&drive.name, true);
            self.record_drives_or_say();
            let wiped = wiped.and_then(|_| self.refuse_unerased(drive));
            wiped.map_err(|failed| failed.after_erasing(&ready.erased))?;
            ready.erased.push(drive.name.clone());
        }
        let mut tending = self.tending();
        for drive in drives {
            tending.unusable.remove(&drive.uuid);
        }
        Ok(ready)
    }

    /// Refuses a drive that was erased and that something is found on all the same: it would be
    /// refused only when a member is lost.
    fn refuse_unerased(&self, drive: &DriveView) -> Answer<()> {
        let text = match self.engine.signature_on(&drive.name) {
            Ok(None) => return Ok(()),
            Ok(Some(signature)) => format!("it was erased, and carries {signature} all the same"),
            Err(unread) => format!("it was erased, and {}", unread.message),
        };
        let object = name::object::<DriveView>(&drive.name);
        Err(EngineError::new(ErrorKind::Internal, object, text)
            .next("use another drive; the kernel's log may say more"))
    }

    /// Refuses a drive that somebody uses, or that carries something now: what is known of it is as
    /// old as its opening. Whether it carries anything.
    pub(super) fn refuse_unfree(&self, drive: &DriveView, force: bool) -> Answer<bool> {
        refuse_spare(drive)?;
        self.open_drive_name(&drive.name)?;
        let object = name::object::<DriveView>(&drive.name);
        if drive.state == DriveState::Member {
            let array = drive.array.as_deref().unwrap_or("an array");
            return Err(busy(object, format!("it is a member of array {array}"))
                .next("choose a free drive"));
        }
        let found = self.engine.signature_on(&drive.name);
        if force && found.is_err() {
            // What it holds cannot be told, and is to be erased all the same.
            return Ok(true);
        }
        let carries = match (found?, &drive.cause) {
            (Some(signature), _) => format!("it carries {signature}"),
            (None, Some(cause)) => format!("it was left out of its array: {cause}"),
            (None, None) => return Ok(false),
        };
        if force {
            return Ok(true);
        }
        Err(EngineError::new(ErrorKind::Unsafe, object, carries)
            .next("--force erases it; `garboard drive wipe` does so beforehand"))
    }

    fn free_spare(
        &self,
        drive: &DriveView,
        of: &SpareOf,
        owner: impl Fn() -> String,
    ) -> Answer<()> {
        let is = self.wanted.state().spares.remove(&drive.uuid);
        if is.as_ref() != Some(of) {
            let object = name::object::<DriveView>(&drive.name);
            let text = format!("it is no spare of {}", owner());
            return Err(EngineError::new(ErrorKind::NotFound, object, text)
                .next("`garboard drive list` shows the spares"));
        }
        self.wanted.apply(&[Change::NoSpare(drive.uuid)])?;
        tracing::info!(event = "spare_removed", object = %format_args!("drive {}", drive.name), of = owner());
        Ok(())
    }

    /// What is forgotten with an array: its limits, its own spares, its place in a pool.
    pub(super) fn forgotten_with(&self, array: &ArrayView) -> Answer<Vec<Change>> {
        let state = self.wanted.state();
        let mut changes = vec![
            Change::NotStopped(array.uuid),
            Change::NoMembership(array.uuid),
            Change::NoCopy(array.uuid),
            Change::NoTold(array.uuid),
            Change::Release(array.uuid),
        ];
        let own = |of: &&SpareOf| **of == SpareOf::Array(array.uuid);
        let spares = state.spares.iter().filter(|(_, of)| own(of));
        changes.extend(spares.map(|(drive, _)| Change::NoSpare(*drive)));
        for (name, mut pool) in state.pools {
            if pool.arrays.remove(&array.uuid) {
                changes.push(Change::Pool(name, pool));
            }
        }
        Ok(changes)
    }

    /// Adds to arrays what only the wanted state knows.
    pub(super) fn show_spares(&self, arrays: &mut [ArrayView]) {
        let state = self.wanted.state();
        let tending = self.tending();
        for array in arrays {
            let own = |uuid: &Uuid| state.spares.get(uuid) == Some(&SpareOf::Array(array.uuid));
            let drives = state.drives.values().filter(|drive| own(&drive.uuid));
            array.spares = drives.map(|drive| drive.name.clone()).collect();
            array.pool = pool_of(&state, array.uuid);
            array
                .warnings
                .extend(tending.warnings.get(&array.uuid).cloned());
        }
    }

    /// Shows which of the drives are spares, and whose.
    pub(super) fn show_spare_drives(&self, state: &WantedState, drives: &mut [DriveView]) {
        if state.spares.is_empty() {
            return;
        }
        let arrays = self.engine.arrays();
        for drive in drives {
            let Some(of) = state.spares.get(&drive.uuid) else {
                continue;
            };
            match drive.state {
                DriveState::Free => drive.state = DriveState::Spare,
                DriveState::Missing => {}
                // It is in use since, and the record is forgotten at the next look.
                DriveState::Member | DriveState::Failed | DriveState::Spare => continue,
            }
            match of {
                SpareOf::Array(uuid) => drive.array = Some(array_name(&arrays, *uuid)),
                SpareOf::Pool(pool) => drive.pool = Some(pool.clone()),
            }
        }
    }
}

/// The pool that an array takes spares from.
pub(super) fn pool_of(state: &WantedState, array: Uuid) -> Option<String> {
    let mut pools = state.pools.iter();
    let (name, _) = pools.find(|(_, pool)| pool.arrays.contains(&array))?;
    Some(name.clone())
}

/// What a place of the array asks of a drive.
pub(super) fn need_of(array: &ArrayView, pool: Option<String>) -> Need {
    Need {
        array: array.uuid,
        member_bytes: array.member_bytes,
        block_bytes: array.block_bytes,
        pool,
    }
}

/// Refuses to use a spare for something else, or to lose it.
pub(super) fn refuse_spare(drive: &DriveView) -> Answer<()> {
    let spare = match drive.state {
        DriveState::Spare => true,
        DriveState::Missing => {
            drive.pool.is_some() || (drive.array.is_some() && drive.member.is_none())
        }
        DriveState::Free | DriveState::Member | DriveState::Failed => false,
    };
    let name = &drive.name;
    let (text, next) = match (&drive.pool, &drive.array) {
        (Some(pool), _) if spare => (
            format!("it is in pool {pool}"),
            format!("`garboard pool remove {pool} --drive {name}` first"),
        ),
        (None, Some(array)) if spare => (
            format!("it is a spare of array {array}"),
            format!("`garboard array spare remove {array} --drive {name}` first"),
        ),
        _ => return Ok(()),
    };
    Err(busy(name::object::<DriveView>(name), text).next(next))
}

/// Refuses an array that gets nothing from spares.
pub(super) fn refuse_pointless(array: &str, is_without_redundancy: bool) -> Answer<()> {
    if !is_without_redundancy {
        return Ok(());
    }
    let object = name::object::<ArrayView>(array);
    Err(invalid(object, "it has no redundancy to fill a spare from")
        .next("give spares to arrays of other levels"))
}

/// Refuses a drive that cannot be a member of the array, which asks for this.
pub(super) fn refuse_unfit(array: &str, need: &Need, drive: &DriveView) -> Answer<()> {
    let Some(unfit) = need.unfit(drive.size_bytes, drive.block_bytes) else {
        return Ok(());
    };
    let object = name::object::<DriveView>(&drive.name);
    let kind = if drive.size_bytes < need.member_bytes {
        ErrorKind::Full
    } else {
        ErrorKind::Invalid
    };
    let text = format!("it cannot be a spare of array {array}: {unfit}");
    Err(EngineError::new(kind, object, text).next("choose another drive"))
}

/// Refuses a drive that can be a member of none of these arrays, if there are some.
pub(super) fn refuse_unfit_of_all(arrays: &[ArrayView], drive: &DriveView) -> Answer<()> {
    let fit = |array: &ArrayView| refuse_unfit(&array.name, &need_of(array, None), drive);
    let mut first = Ok(());
    for array in arrays {
        match fit(array) {
            Ok(()) => return Ok(()),
            unfit => first = first.and(unfit),
        }
    }
    first
}

/// How an array is called; one that is not here by its uuid.
fn array_name(arrays: &[ArrayView], uuid: Uuid) -> String {
    let found = arrays.iter().find(|array| array.uuid == uuid);
    found.map_or_else(|| uuid.to_string(), |array| array.name.clone())
}

fn busy(object: String, message: String) -> EngineError {
    EngineError::new(ErrorKind::Busy, object, message)
}
