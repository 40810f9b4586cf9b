//! The bytes of a config record.

use units::limits::{ARRAY_LOST_WORDS_MAX, ARRAY_MEMBERS_MAX, ARRAY_VOLUMES_MAX};
use units::{MemberIndex, StripeIndex, Update, bytes_u64, bytes_usize};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::config::{
    ANCESTORS_MAX, ArrayConfig, ArrayOptions, ConfigTooLarge, ExclusionCause, HedgedReads,
    MemberRecord, MemberState, VolumeRecord, VolumeState, WriteHole,
};
use super::extent::{decode_runs, encode_runs, runs_bytes};
use super::head::{
    COMPAT_DATED, COMPAT_HEDGED, COMPAT_MAPPED, COMPAT_MISSED, COMPAT_UNFINISHED, Features,
    FormatError, HEAD_BYTES, Head, RawFeatures, check_features, open, seal,
};
use super::lost::{LOST_RECORD_BYTES, decode_lost, encode_lost};
use super::missed::Missed;
use super::scrub::{COMPAT_SCRUB, RawScrub};
use super::text::{DriveIdentity, IDENTITY_BYTES_MAX, decode_name, encode_name};

/// Bytes of a config record before its tables.
pub const CONFIG_FIXED_BYTES: usize = 1024;
/// Bytes of a member in the table.
pub const MEMBER_RECORD_BYTES: usize = 192;
/// Bytes of a volume in the table.
pub const VOLUME_RECORD_BYTES: usize = 128;
/// Bytes of a run of extents.
pub const RUN_RECORD_BYTES: usize = 16;

const KIND: [u8; 8] = *b"GBCONFIG";
/// Of a record that was just made.
const UNREADABLE: &str = "made a record that nobody can read";
const FLAG_CLEAN: u32 = 1;
/// By config area: the record of this member is in the middle of it.
const FLAGS_MOVED: [u32; 2] = [2, 4];
const FLAG_STABLE_BUFFERS: u8 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawAncestor {
    update: U64,
    id: U128,
}

/// Everything between the head and the tables.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawConfig {
    features: RawFeatures,
    update_id: U128,
    forced_at: U64,
    resynced_until: U64,
    flags: U32,
    write_hole: u8,
    hedged_reads: u8,
    reserved_after_reads: [u8; 2],
    hold_timeout_seconds: U32,
    latency_target_us: U32,
    rebuild_floor: U64,
    name: [u8; 64],
    members: U32,
    volumes: U32,
    runs: U32,
    unzeroed: U32,
    ancestor_count: U32,
    lost: U32,
    ancestors: [RawAncestor; ANCESTORS_MAX],
    log_from: U64,
    unfinished_since: U64,
    written_seconds: U64,
    reserved: [u8; 16],
    scrub: RawScrub,
}

const _: () = assert!(
    HEAD_BYTES + size_of::<RawConfig>() == 704,
    "part of the on-disk format"
);
const _: () = assert!(HEAD_BYTES + std::mem::offset_of!(RawConfig, scrub) == 640);
const _: () = assert!(HEAD_BYTES + std::mem::offset_of!(RawConfig, name) == 128);
const _: () = assert!(HEAD_BYTES + std::mem::offset_of!(RawConfig, ancestors) == 216);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawMember {
    uuid: [u8; 16],
    state: u8,
    cause: u8,
    detail: u8,
    reserved: [u8; 5],
    position: U64,
    drive_bytes: U64,
    identity_length: U16,
    reserved_too: [u8; 6],
    identity: [u8; IDENTITY_BYTES_MAX],
    missed_base: U64,
    held_update: U64,
    held_id: U64,
}

const _: () = assert!(
    size_of::<RawMember>() == MEMBER_RECORD_BYTES,
    "part of the on-disk format"
);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawVolume {
    uuid: [u8; 16],
    size_blocks: U64,
    runs: U32,
    state: u8,
    flags: u8,
    reserved: [u8; 2],
    name: [u8; 64],
    reserved_too: [u8; 32],
}

const _: () = assert!(
    size_of::<RawVolume>() == VOLUME_RECORD_BYTES,
    "part of the on-disk format"
);

impl ArrayConfig {
    /// Bytes of the record, without padding.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        let runs: usize = self.volumes.iter().map(|volume| volume.extents.len()).sum();
        bytes_u64(
            CONFIG_FIXED_BYTES
                + MEMBER_RECORD_BYTES * self.members.len()
                + VOLUME_RECORD_BYTES * self.volumes.len(),
        ) + runs_bytes(runs)
            + runs_bytes(self.unzeroed.len())
            + bytes_u64(LOST_RECORD_BYTES * self.lost.words().len())
    }

    /// Writes the copy of `member` to the start of `area` and zeroes up to the next 4 KiB. Gives
    /// how many bytes of `area` are to be written to the drive: a multiple of 4 KiB.
    ///
    /// # Errors
    /// When the record does not fit; `area` is then unchanged.
    ///
    /// # Panics
    /// When the record contradicts itself, so that nobody could read it again.
    pub fn encode_into(
        &self,
        member: MemberIndex,
        area: &mut [u8],
    ) -> Result<usize, ConfigTooLarge> {
        self.encode_copy((member, [false; 2]), area)
    }

    /// As [`ArrayConfig::encode_into`], with what the copy says of this member's config areas
    /// ([`RecordCopy::moved`]).
    ///
    /// # Errors
    /// See there.
    ///
    /// # Panics
    /// See there.
    pub fn encode_copy(
        &self,
        (member, moved): (MemberIndex, [bool; 2]),
        area: &mut [u8],
    ) -> Result<usize, ConfigTooLarge> {
        let needed_bytes = self.record_bytes().next_multiple_of(4096);
        if needed_bytes > bytes_u64(area.len()) {
            return Err(ConfigTooLarge {
                needed_bytes,
                room_bytes: bytes_u64(area.len()),
            });
        }
        let mut record = Vec::with_capacity(bytes_usize(needed_bytes));
        record.resize(HEAD_BYTES, 0);
        let mut raw = RawConfig::from(self);
        for (flag, _) in FLAGS_MOVED.iter().zip(moved).filter(|(_, moved)| *moved) {
            raw.flags |= U32::new(*flag);
        }
        record.extend_from_slice(raw.as_bytes());
        record.resize(CONFIG_FIXED_BYTES, 0);
        for member in &self.members {
            record.extend_from_slice(RawMember::from(member).as_bytes());
        }
        for volume in &self.volumes {
            record.extend_from_slice(RawVolume::from(volume).as_bytes());
        }
        for volume in &self.volumes {
            encode_runs(&volume.extents, &mut record);
        }
        encode_runs(&self.unzeroed, &mut record);
        encode_lost(&self.lost, &mut record);
        assert_eq!(bytes_u64(record.len()), self.record_bytes());
        let head = Head {
            kind: KIND,
            array: self.array,
            member,
            update: self.update,
        };
        seal(&mut record, head);
        let (whose, mut read) = ArrayConfig::decode(&record).expect(UNREADABLE);
        // Compat bits that we do not know are cleared, as the content they stand for is gone.
        let kept = self.features.compat & COMPAT_MAPPED;
        assert_eq!(read.features.compat, kept, "{UNREADABLE}");
        read.features.compat = self.features.compat;
        assert_eq!((whose, &read), (member, self), "{UNREADABLE}");
        let written = bytes_usize(needed_bytes);
        area[..record.len()].copy_from_slice(&record);
        area[record.len()..written].fill(0);
        Ok(written)
    }

    /// Reads a record from the start of a config area: whose copy it is, and what it says.
    ///
    /// # Errors
    /// When it is not a config record, is damaged, contradicts itself or is from the future.
    pub fn decode(area: &[u8]) -> Result<(MemberIndex, ArrayConfig), FormatError> {
        let copy = RecordCopy::decode(area)?;
        Ok((copy.member, copy.config))
    }
}

/// A record as it is on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordCopy {
    /// Whose copy it is.
    pub member: MemberIndex,
    /// What all copies say.
    pub config: ArrayConfig,
    /// By config area: when it was written, this member's record there was in the middle
    /// ([`super::Area::record_places`]).
    pub moved: [bool; 2],
}

impl RecordCopy {
    /// Reads a record from its place.
    ///
    /// # Errors
    /// When it is not a config record, is damaged, contradicts itself or is from the future.
    pub fn decode(area: &[u8]) -> Result<RecordCopy, FormatError> {
        let (head, record) = open(area, KIND)?;
        let invalid = FormatError::Invalid;
        let (raw, _) = RawConfig::read_from_prefix(&record[HEAD_BYTES..])
            .map_err(|_| invalid("too short for a config record"))?;
        let mut features = Features::from(raw.features);
        let has_lost = features.take_lost();
        check_features(features, head.array)?;
        let scrub = raw.scrub.known(features);
        features.compat &= !COMPAT_SCRUB;
        let has_missed = features.take_missed();
        let hedged = features.take_hedged();
        let unfinished = features.take_unfinished();
        let dated = features.take_dated();
        let tables = Tables::cut(&raw, record, has_lost)?;
        let ancestors = raw
            .ancestors
            .get(..bytes_usize(raw.ancestor_count.get().into()))
            .ok_or(invalid("number of ancestors"))?;
        let told = |counts: bool, word: U64| if counts { word.get() } else { 0 };
        let config = ArrayConfig {
            array: head.array,
            name: decode_name(&raw.name).ok_or(invalid("name of the array"))?,
            update: head.update,
            update_id: raw.update_id.get(),
            written_seconds: told(dated, raw.written_seconds),
            ancestors: ancestors
                .iter()
                .map(|ancestor| (Update(ancestor.update.get()), ancestor.id.get()))
                .collect(),
            forced_at: Update(raw.forced_at.get()),
            unfinished_since: Update(told(unfinished, raw.unfinished_since)),
            features,
            clean: raw.flags.get() & FLAG_CLEAN != 0,
            resynced_until: StripeIndex(raw.resynced_until.get()),
            log_from: raw.log_from.get(),
            members: tables.members(has_missed)?,
            volumes: tables.volumes()?,
            unzeroed: decode_runs(tables.unzeroed),
            lost: decode_lost(tables.lost)?,
            options: raw.options(&scrub, hedged)?,
            scrub: scrub.record()?,
        };
        if head.member.at() >= config.members.len() {
            return Err(invalid("member index"));
        }
        config.check()?;
        Ok(RecordCopy {
            member: head.member,
            config,
            moved: FLAGS_MOVED.map(|flag| raw.flags.get() & flag != 0),
        })
    }
}

/// The tables of a record, still as bytes.
struct Tables<'r> {
    members: &'r [u8],
    volumes: &'r [u8],
    runs: &'r [u8],
    unzeroed: &'r [u8],
    lost: &'r [u8],
}

impl<'r> Tables<'r> {
    /// Cuts the record into its tables; they add up to its length exactly.
    fn cut(raw: &RawConfig, record: &'r [u8], has_lost: bool) -> Result<Tables<'r>, FormatError> {
        let invalid = FormatError::Invalid;
        let members = bytes_usize(raw.members.get().into());
        let volumes = bytes_usize(raw.volumes.get().into());
        if members == 0 || members > ARRAY_MEMBERS_MAX {
            return Err(invalid("number of members"));
        }
        if volumes > ARRAY_VOLUMES_MAX {
            return Err(invalid("number of volumes"));
        }
        // Counts are below 2^32, so no product overflows.
        let (runs, unzeroed) = (
            bytes_usize(raw.runs.get().into()),
            bytes_usize(raw.unzeroed.get().into()),
        );
        let lost = match (has_lost, bytes_usize(raw.lost.get().into())) {
            (false, _) => 0,
            (true, 1..=ARRAY_LOST_WORDS_MAX) => bytes_usize(raw.lost.get().into()),
            (true, _) => return Err(invalid("number of lost blocks")),
        };
        let mut rest = record;
        let mut take = |bytes: usize| {
            let (table, after) = rest.split_at_checked(bytes)?;
            rest = after;
            Some(table)
        };
        let cut = take(CONFIG_FIXED_BYTES).and_then(|_| {
            Some(Tables {
                members: take(members * MEMBER_RECORD_BYTES)?,
                volumes: take(volumes * VOLUME_RECORD_BYTES)?,
                runs: take(runs * RUN_RECORD_BYTES)?,
                unzeroed: take(unzeroed * RUN_RECORD_BYTES)?,
                lost: take(lost * LOST_RECORD_BYTES)?,
            })
        });
        cut.filter(|_| rest.is_empty())
            .ok_or(invalid("tables do not add up"))
    }

    fn members(&self, has_missed: bool) -> Result<Vec<MemberRecord>, FormatError> {
        self.members
            .chunks_exact(MEMBER_RECORD_BYTES)
            .map(|bytes| {
                let raw = RawMember::read_from_bytes(bytes).expect("chunks of the right size");
                raw.member(has_missed)
                    .ok_or(FormatError::Invalid("a member"))
            })
            .collect()
    }

    fn volumes(&self) -> Result<Vec<VolumeRecord>, FormatError> {
        let mut runs = self.runs;
        let mut volumes = Vec::new();
        for bytes in self.volumes.chunks_exact(VOLUME_RECORD_BYTES) {
            let raw = RawVolume::read_from_bytes(bytes).expect("chunks of the right size");
            let length = bytes_usize(raw.runs.get().into()) * RUN_RECORD_BYTES;
            let (own, after) = runs
                .split_at_checked(length)
                .ok_or(FormatError::Invalid("runs of a volume"))?;
            runs = after;
            volumes.push(raw.volume(own).ok_or(FormatError::Invalid("a volume"))?);
        }
        if runs.is_empty() {
            Ok(volumes)
        } else {
            Err(FormatError::Invalid("runs of no volume"))
        }
    }
}

impl From<&ArrayConfig> for RawConfig {
    fn from(config: &ArrayConfig) -> RawConfig {
        let bounded = "checked against the area";
        let count = |length: usize| U32::new(u32::try_from(length).expect(bounded));
        let mut ancestors = [RawAncestor {
            update: 0.into(),
            id: 0.into(),
        }; ANCESTORS_MAX];
        for (raw, (update, id)) in ancestors.iter_mut().zip(&config.ancestors) {
            raw.update = update.0.into();
            raw.id = (*id).into();
        }
        let options = &config.options;
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let hedged = bit(options.hedged_reads == HedgedReads::Always, COMPAT_HEDGED);
        let unfinished = bit(config.unfinished_since > Update(0), COMPAT_UNFINISHED);
        let dated = bit(config.written_seconds != 0, COMPAT_DATED);
        let mapped = config.features.compat & COMPAT_MAPPED;
        let features = Features {
            compat: COMPAT_SCRUB | COMPAT_MISSED | hedged | unfinished | mapped | dated,
            ..config.features.with_lost(&config.lost)
        };
        RawConfig {
            features: features.into(),
            update_id: config.update_id.into(),
            forced_at: config.forced_at.0.into(),
            resynced_until: config.resynced_until.0.into(),
            flags: if config.clean { FLAG_CLEAN } else { 0 }.into(),
            write_hole: match options.write_hole {
                WriteHole::Auto => 0,
                WriteHole::Strict => 1,
                WriteHole::Off => 2,
            },
            hedged_reads: match options.hedged_reads {
                HedgedReads::Auto => 0,
                HedgedReads::Always => 1,
            },
            reserved_after_reads: [0; 2],
            hold_timeout_seconds: options.hold_timeout_seconds.into(),
            latency_target_us: options.latency_target_us.into(),
            rebuild_floor: options.rebuild_floor_bytes_per_second.into(),
            name: encode_name(&config.name),
            members: count(config.members.len()),
            volumes: count(config.volumes.len()),
            runs: count(config.volumes.iter().map(|v| v.extents.len()).sum()),
            unzeroed: count(config.unzeroed.len()),
            ancestor_count: count(config.ancestors.len()),
            lost: count(config.lost.words().len()),
            ancestors,
            log_from: config.log_from.into(),
            unfinished_since: config.unfinished_since.0.into(),
            written_seconds: config.written_seconds.into(),
            reserved: [0; 16],
            scrub: RawScrub::new(config),
        }
    }
}

impl RawConfig {
    fn options(&self, scrub: &RawScrub, hedged: bool) -> Result<ArrayOptions, FormatError> {
        Ok(ArrayOptions {
            write_hole: match self.write_hole {
                0 => WriteHole::Auto,
                1 => WriteHole::Strict,
                2 => WriteHole::Off,
                _ => return Err(FormatError::Invalid("write hole")),
            },
            hold_timeout_seconds: self.hold_timeout_seconds.get(),
            rebuild_floor_bytes_per_second: self.rebuild_floor.get(),
            latency_target_us: self.latency_target_us.get(),
            scrub_rate_bytes_per_second: scrub.rate.get(),
            scrub_every_seconds: scrub.every_seconds.get(),
            hedged_reads: match self.hedged_reads {
                _ if !hedged => HedgedReads::Auto,
                0 => HedgedReads::Auto,
                1 => HedgedReads::Always,
                _ => return Err(FormatError::Invalid("hedged reads")),
            },
        })
    }
}

impl From<&MemberRecord> for RawMember {
    fn from(member: &MemberRecord) -> RawMember {
        let (state, (cause, detail), position, missed) = match member.state {
            MemberState::Missing => (0, (0, 0), 0, Missed::ALL),
            MemberState::InSync => (1, (0, 0), 0, Missed::ALL),
            MemberState::Rebuilding { until, missed } => (2, (0, 0), until.0, missed),
            MemberState::Excluded {
                since,
                cause,
                missed,
            } => (3, cause_code(cause), since.0, missed),
        };
        let text = member.identity.as_str().as_bytes();
        let mut identity = [0; IDENTITY_BYTES_MAX];
        identity[..text.len()].copy_from_slice(text);
        let identity_length = u16::try_from(text.len()).expect("bounded by its type");
        RawMember {
            uuid: member.uuid.into_bytes(),
            state,
            cause,
            detail,
            reserved: [0; 5],
            position: position.into(),
            drive_bytes: member.drive_bytes.into(),
            identity_length: identity_length.into(),
            reserved_too: [0; 6],
            identity,
            missed_base: missed.base.0.into(),
            held_update: missed.held.0.0.into(),
            held_id: missed.held.1.into(),
        }
    }
}

impl RawMember {
    /// `has_missed`: the record says what members missed. In one that does not the identity is
    /// longer, and who was out has missed everything.
    fn member(&self, has_missed: bool) -> Option<MemberRecord> {
        let position = self.position.get();
        let missed = if has_missed {
            Missed {
                base: Update(self.missed_base.get()),
                held: (Update(self.held_update.get()), self.held_id.get()),
            }
        } else {
            Missed::ALL
        };
        let state = match self.state {
            0 => MemberState::Missing,
            1 => MemberState::InSync,
            2 => MemberState::Rebuilding {
                until: StripeIndex(position),
                missed,
            },
            3 => MemberState::Excluded {
                since: Update(position),
                cause: cause_of(self.cause, self.detail)?,
                missed,
            },
            _ => return None,
        };
        let length = usize::from(self.identity_length.get());
        let most = std::mem::offset_of!(RawMember, identity)..MEMBER_RECORD_BYTES;
        let text = &self.as_bytes()[most];
        let text = if has_missed { &self.identity } else { text };
        let identity = std::str::from_utf8(text.get(..length)?).ok()?;
        Some(MemberRecord {
            uuid: Uuid::from_bytes(self.uuid),
            state,
            drive_bytes: self.drive_bytes.get(),
            identity: DriveIdentity::new(identity),
        })
    }
}

impl From<&VolumeRecord> for RawVolume {
    fn from(volume: &VolumeRecord) -> RawVolume {
        let runs = u32::try_from(volume.extents.len()).expect("checked against the area");
        RawVolume {
            uuid: volume.uuid.into_bytes(),
            size_blocks: volume.size_blocks.into(),
            runs: runs.into(),
            state: match volume.state {
                VolumeState::Creating => 1,
                VolumeState::Ready => 2,
                VolumeState::Deleting => 3,
            },
            flags: if volume.stable_buffers {
                FLAG_STABLE_BUFFERS
            } else {
                0
            },
            reserved: [0; 2],
            name: encode_name(&volume.name),
            reserved_too: [0; 32],
        }
    }
}

impl RawVolume {
    fn volume(&self, runs: &[u8]) -> Option<VolumeRecord> {
        Some(VolumeRecord {
            uuid: Uuid::from_bytes(self.uuid),
            name: decode_name(&self.name)?,
            size_blocks: self.size_blocks.get(),
            extents: decode_runs(runs),
            state: match self.state {
                1 => VolumeState::Creating,
                2 => VolumeState::Ready,
                3 => VolumeState::Deleting,
                _ => return None,
            },
            stable_buffers: self.flags & FLAG_STABLE_BUFFERS != 0,
        })
    }
}

/// The cause and its detail. An engine that does not know a detail takes the cause without it.
fn cause_code(cause: ExclusionCause) -> (u8, u8) {
    let code = match cause {
        ExclusionCause::Gone => 1,
        ExclusionCause::ReadErrors => 2,
        ExclusionCause::WriteError => 3,
        ExclusionCause::NoSpace => return (3, 1),
        ExclusionCause::FlushFailed => 4,
        ExclusionCause::TooSlow => 5,
        ExclusionCause::Command => 6,
        ExclusionCause::Absent => 7,
        ExclusionCause::Stale => 8,
        ExclusionCause::Replaced => 9,
    };
    (code, 0)
}

fn cause_of(code: u8, detail: u8) -> Option<ExclusionCause> {
    let known = |told| {
        let mut all = ExclusionCause::ALL.into_iter();
        all.find(|cause| cause_code(*cause) == told)
    };
    known((code, detail)).or_else(|| known((code, 0)))
}
