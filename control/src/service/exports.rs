//! Exports: create, list, move a queue, remove.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use units::BlockSize;
use units::limits::{EXPORT_QUEUES_MAX, QUEUE_SIZE_MAX, QUEUE_SIZE_MIN};

use super::held::way_out;
use super::{Control, invalid};
use crate::body::ExportCreateBody;
use crate::claim::SOCKET_PATH_BYTES_MAX;
use crate::name::{self, Create};
use crate::request::{ExportCreate, ExportSocket, ExportWishes, QueueMove};
use crate::view::{ExportState, ExportView, VolumeView};
use crate::wanted::{Change, WantedExport};
use crate::{Answer, EngineError, ErrorKind};

/// What GET_ID holds (virtio 1.2, 5.2.6).
const SERIAL_BYTES_MAX: usize = 20;
const MODE_DEFAULT: u32 = 0o660;
const MODE_MAX: u32 = 0o777;

impl Control {
    /// All exports, made or only wanted, by name.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportView> {
        let mut exports = self.engine.exports();
        let causes = self.causes();
        let state = self.wanted.state();
        for (name, wanted) in state.exports {
            if exports.iter().any(|export| export.name == name) {
                continue;
            }
            let view = match state.held.get(&wanted.create.uuid) {
                Some(held) => not_made(wanted.create, ExportState::Held, held.to_string()),
                None => {
                    let cause = causes.exports.get(&name).cloned();
                    let cause = cause.unwrap_or_else(|| "it is not made".into());
                    not_made(wanted.create, ExportState::Missing, cause)
                }
            };
            exports.push(view);
        }
        exports.sort_by(|a, b| a.name.cmp(&b.name));
        exports
    }

    /// One export, by name or uuid.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn export(&self, key: &str) -> Answer<ExportView> {
        name::find(self.exports(), key)
    }

    /// Exports a volume over vhost-user-blk.
    ///
    /// # Errors
    /// As [`crate::Engine::create_export`].
    pub fn create_export(&self, body: ExportCreateBody) -> Answer<ExportView> {
        let _changing = self.change()?;
        let volume = self.volume(&body.volume)?;
        let name = body.name.clone().unwrap_or_else(|| volume.name.clone());
        let socket = self.socket(&name, &body)?;
        let wishes = wishes(&name, &volume, &body)?;
        let wanted = self.wanted.state().exports;
        let noted = self.noted(&volume);
        let differs = |export: &ExportView| {
            let Some(wanted) = wanted.get(&export.name) else {
                return Vec::new();
            };
            let was = &wanted.create;
            let own =
                |socket: &ExportSocket| (socket.owner.clone(), socket.group.clone(), socket.mode);
            let path = body.socket.is_none() || was.socket.path == socket.path;
            name::differing([
                ("volume", wanted.serves(noted)),
                ("socket", path && own(&was.socket) == own(&socket)),
                ("number of queues", was.wishes.queues == wishes.queues),
                ("queue size", was.wishes.queue_size == wishes.queue_size),
                ("block size", was.wishes.block_bytes == wishes.block_bytes),
                ("serial", was.wishes.serial == wishes.serial),
                ("list of cores", was.cores == body.cores),
                ("access", was.access == body.access),
                ("sharing", was.sharing == body.sharing),
                (
                    "way with guest memory",
                    was.guest_memory == body.guest_memory,
                ),
            ])
        };
        let uuid = match name::create(self.exports(), &name, body.uuid, differs)? {
            Create::There(export) => return Ok(export),
            Create::New(uuid) => uuid,
        };
        self.refuse_beside_held(&name::object::<ExportView>(&name), noted)?;
        let mut create = ExportCreate {
            name,
            uuid,
            volume: volume.name.clone(),
            socket,
            wishes,
            profile: None,
            cores: body.cores,
            access: body.access,
            sharing: body.sharing,
            guest_memory: body.guest_memory,
        };
        let export = self.engine.create_export(&create, &volume.key())?;
        create.profile.clone_from(&export.profile);
        let record = WantedExport {
            create,
            volume_uuid: volume.uuid,
            array_uuid: noted.array,
        };
        if let Err(error) = self.wanted.apply(&[Change::Export(Box::new(record))]) {
            self.undo("remove_export", self.engine.remove_export(&export.name));
            return Err(error);
        }
        tracing::info!(event = "export_created", object = %format_args!("export {}", export.name), socket = %export.socket.display());
        Ok(export)
    }

    fn socket(&self, name: &str, body: &ExportCreateBody) -> Answer<ExportSocket> {
        let object = name::object::<ExportView>(name);
        let path = match &body.socket {
            Some(path) => path.clone(),
            None => self
                .runtime_dir
                .join("exports")
                .join(name)
                .join("vhost.sock"),
        };
        check_socket(&object, &path)?;
        let mode = match &body.mode {
            None => MODE_DEFAULT,
            Some(text) => mode_of(text).map_err(|cause| invalid(&object, cause))?,
        };
        Ok(ExportSocket {
            path,
            owner: body.owner.clone(),
            group: body.group.clone(),
            mode,
        })
    }

    /// Moves a queue to another core.
    ///
    /// # Errors
    /// As [`crate::Engine::move_queue`].
    pub fn move_queue(&self, key: &str, to: QueueMove) -> Answer<ExportView> {
        let _changing = self.change()?;
        let export = self.made_export(key)?;
        self.engine.move_queue(&export.name, to)
    }

    /// An export that is there for the engine, too.
    pub(super) fn made_export(&self, key: &str) -> Answer<ExportView> {
        let export = self.export(key)?;
        let next = match export.state {
            ExportState::Waiting | ExportState::Connected => return Ok(export),
            ExportState::Missing => "start its array, or remove the export".to_owned(),
            ExportState::Held => way_out(&export.name),
        };
        let cause = export.cause.unwrap_or_default();
        Err(EngineError::new(
            ErrorKind::Busy,
            name::object::<ExportView>(&export.name),
            cause,
        )
        .next(next))
    }

    /// Ends an export.
    ///
    /// # Errors
    /// As [`crate::Engine::remove_export`].
    pub fn remove_export(&self, key: &str) -> Answer<ExportView> {
        let _changing = self.change()?;
        let export = self.export(key)?;
        let is_made = || {
            let exports = self.engine.exports();
            exports.iter().any(|made| made.name == export.name)
        };
        let removed = if is_made() {
            self.engine.remove_export(&export.name)
        } else {
            Ok(())
        };
        if removed.is_err() && is_made() {
            return removed.map(|()| export);
        }
        // Also one that ends when its drives answer: it would be made again.
        self.wanted.apply(&[
            Change::NoExport(export.name.clone()),
            Change::Release(export.uuid),
        ])?;
        self.causes().exports.remove(&export.name);
        removed?;
        tracing::info!(event = "export_removed", object = %format_args!("export {}", export.name));
        Ok(export)
    }
}

fn mode_of(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    if !is_octal {
        return Err(format!("mode `{text}`: it is octal, for example 0660"));
    }
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= MODE_MAX)
        .ok_or_else(|| format!("mode `{text}`: it is at most 0{MODE_MAX:o}"))
}

fn check_socket(object: &str, path: &Path) -> Answer<()> {
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() || bytes.contains(&0) || path.file_name().is_none() {
        let message = format!("socket `{}`: it is an absolute path", path.display());
        return Err(invalid(object, message));
    }
    if bytes.len() > SOCKET_PATH_BYTES_MAX {
        let message = format!(
            "the path of the socket has {} bytes, and {SOCKET_PATH_BYTES_MAX} fit",
            bytes.len()
        );
        return Err(invalid(object, message).next("give a shorter one with --socket"));
    }
    Ok(())
}

fn wishes(name: &str, volume: &VolumeView, body: &ExportCreateBody) -> Answer<ExportWishes> {
    let object = name::object::<ExportView>(name);
    if let Some(queues) = body.queues
        && !(1..=EXPORT_QUEUES_MAX).contains(&usize::from(queues))
    {
        let message = format!("{queues} queues: there are 1 to {EXPORT_QUEUES_MAX}");
        return Err(invalid(object, message));
    }
    if let Some(size) = body.queue_size
        && !(size.is_power_of_two() && (QUEUE_SIZE_MIN..=QUEUE_SIZE_MAX).contains(&size))
    {
        let range = format!("{QUEUE_SIZE_MIN} to {QUEUE_SIZE_MAX}");
        let message = format!("a queue of {size}: it is a power of two from {range}");
        return Err(invalid(object, message));
    }
    if let Some(bytes) = body.block_bytes
        && BlockSize::from_bytes(bytes).is_none()
    {
        return Err(invalid(
            object,
            format!("a block of {bytes} bytes: it is 512 or 4096"),
        ));
    }
    let serial = match &body.serial {
        Some(serial) => serial.clone(),
        None => volume.uuid.simple().to_string()[..SERIAL_BYTES_MAX].to_owned(),
    };
    let printable = serial
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if serial.is_empty() || serial.len() > SERIAL_BYTES_MAX || !printable {
        let serial = serial.escape_debug();
        let message = format!("serial `{serial}`: it is 1 to {SERIAL_BYTES_MAX} printable ASCII");
        return Err(invalid(object, message));
    }
    Ok(ExportWishes {
        queues: body.queues,
        queue_size: body.queue_size,
        block_bytes: body.block_bytes,
        serial,
    })
}

/// What is shown of an export that is wanted and not made.
fn not_made(create: ExportCreate, state: ExportState, cause: String) -> ExportView {
    let socket: PathBuf = create.socket.path;
    ExportView {
        name: create.name,
        uuid: create.uuid,
        protocol: "vhost-user-blk".into(),
        volume: create.volume,
        state,
        socket,
        connections: 0,
        profile: create.profile,
        cores: create.cores,
        access: create.access,
        sharing: create.sharing,
        guest_memory: create.guest_memory,
        pinned_bytes: 0,
        queues: Vec::new(),
        cause: Some(cause),
    }
}
