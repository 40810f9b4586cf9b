//! The JSON bodies of the API's changing calls, shared by the server and its clients.
//!
//! Unknown fields are refused: a misspelt option must not be taken for its default.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::request::{ArrayOptions, DriveSpec, Lamp, Level};
use crate::view::{Access, GuestMemory, Sharing};

/// `POST /v1/drives`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveAddBody {
    /// Where the drive is.
    pub spec: DriveSpec,
    /// Its name; default the first free of `d0`, `d1`, ….
    pub name: Option<String>,
    /// Its uuid; makes the call idempotent.
    pub uuid: Option<Uuid>,
}

/// `POST /v1/drives/NAME/locate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocateBody {
    /// What the lamp is to do.
    pub lamp: Lamp,
}

/// `POST /v1/drives/NAME/wipe`, `POST /v1/arrays/NAME/start`; the query of `DELETE`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForceBody {
    /// Do it although data could be lost.
    pub force: bool,
}

/// `POST /v1/arrays`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayCreateBody {
    /// Its name.
    pub name: String,
    /// Its uuid; makes the call idempotent.
    pub uuid: Option<Uuid>,
    /// The level.
    pub level: Level,
    /// Names or uuids of free drives, in the members' order.
    pub drives: Vec<String>,
    /// Everything that has a default.
    #[serde(default)]
    pub options: ArrayOptions,
    /// Names or uuids of free drives that wait for members to fail.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Overwrite drives that carry a signature.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/import/find`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FindBody {
    /// Where to look besides known drives; empty: all block devices of the host.
    pub specs: Vec<DriveSpec>,
}

/// `POST /v1/import`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    /// Name or uuid as found.
    pub array: String,
    /// Where to look besides known drives; empty: all block devices of the host.
    #[serde(default)]
    pub specs: Vec<DriveSpec>,
    /// Start even when only force would.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/arrays/NAME/members/INDEX/replace`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceBody {
    /// Name or uuid of a free drive.
    pub drive: String,
    /// Overwrite a signature on it.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/arrays/NAME/spares`, `POST /v1/pools/NAME/drives`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareBody {
    /// Name or uuid of a free drive.
    pub drive: String,
    /// Erase what it carries.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/pools`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolCreateBody {
    /// Its name.
    pub name: String,
    /// Its uuid; makes the call idempotent.
    #[serde(default)]
    pub uuid: Option<Uuid>,
    /// Names or uuids of free drives.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Names or uuids of arrays that take spares from it.
    #[serde(default)]
    pub arrays: Vec<String>,
    /// Erase what the drives carry.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/pools/NAME/arrays`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolArrayBody {
    /// Name or uuid of an array.
    pub array: String,
}

/// `POST /v1/volumes`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreateBody {
    /// Its name.
    pub name: String,
    /// Its uuid; makes the call idempotent.
    pub uuid: Option<Uuid>,
    /// Name or uuid of the array.
    pub array: String,
    /// What the guest sees, exactly.
    pub size_bytes: u64,
    /// The guests promise not to change a page that is being written.
    #[serde(default)]
    pub stable_buffers: bool,
}

/// `PATCH /v1/volumes/NAME`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeBody {
    /// The new size.
    pub size_bytes: u64,
}

/// `POST /v1/exports`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportCreateBody {
    /// Name or uuid of the volume.
    pub volume: String,
    /// Its name; default the volume's.
    #[serde(default)]
    pub name: Option<String>,
    /// Its uuid; makes the call idempotent.
    #[serde(default)]
    pub uuid: Option<Uuid>,
    /// The socket; default `exports/NAME/vhost.sock` in the runtime directory.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// Who may connect: user name or number.
    #[serde(default)]
    pub owner: Option<String>,
    /// Who may connect: group name or number.
    #[serde(default)]
    pub group: Option<String>,
    /// Permission bits in octal; default `0660`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Queues; default one per reactor.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Descriptors of a queue.
    #[serde(default)]
    pub queue_size: Option<u16>,
    /// The logical block.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// What GET_ID says; default the first 20 hex digits of the volume's uuid.
    #[serde(default)]
    pub serial: Option<String>,
    /// CPUs whose reactors serve it; empty: all.
    #[serde(default)]
    pub cores: Vec<u16>,
    /// Whether guests may write.
    #[serde(default)]
    pub access: Access,
    /// Whether there may be several front-ends.
    #[serde(default)]
    pub sharing: Sharing,
    /// What may be done with guest memory.
    #[serde(default)]
    pub guest_memory: GuestMemory,
}

/// `PUT /v1/exports/NAME/queues/QUEUE`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueMoveBody {
    /// The CPU whose reactor is to serve the queue.
    pub core: u16,
}
