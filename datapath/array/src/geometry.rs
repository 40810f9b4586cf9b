//! Where every block of an array lives: the fixed numbers of an array and the arithmetic on them.
//!
//! A geometry is k data and M parity chunks per stripe, times a number of groups. The rotation is
//! that of Linux md (raid0, raid1, raid10 near=2, raid5 and raid6 left-symmetric), generalised to
//! M parities, so that md reads our data area. What does not live here: what is lost, what is
//! read or written (`plan`), and how a geometry is stored (`format`).

mod error;
mod level;
#[cfg(test)]
mod tests;

pub use error::GeometryError;
pub use level::{Level, ParseLevelError};

use std::num::{NonZeroU32, NonZeroU64};

use units::limits::{BUCKET_RUN_BYTES_MIN, BUCKETS, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use units::{BlockSize, GroupIndex, MemberIndex, Role, RoleSet, StripeIndex, bytes_u64};

use crate::planted::{self, Fault};

const _: () = assert!(
    CHUNK_BYTES_MIN >= 4096 && CHUNK_BYTES_MIN.is_power_of_two(),
    "a chunk that is a power of two is a multiple of every block size"
);

/// What a geometry is made from, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometryParameters {
    /// The RAID level.
    pub level: Level,
    /// How many members the array has over all groups.
    pub members: usize,
    /// Parity chunks per stripe. Needed for level nm; elsewhere the level says it, and a value
    /// given must agree.
    pub parity: Option<usize>,
    /// Members per group. Needed for levels 50, 60 and 70; elsewhere the level says it, and a
    /// value given must agree.
    pub group_size: Option<usize>,
    /// Bytes of one chunk: a power of two, 4 KiB to 1 MiB.
    pub chunk_bytes: u64,
    /// The block size of the array.
    pub block: BlockSize,
    /// Blocks of the data area of every member; a rest smaller than a chunk stays unused.
    pub member_data_blocks: u64,
}

/// Where one block of the array lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its stripe.
    pub stripe: StripeIndex,
    /// The data chunk of the stripe.
    pub role: Role,
    /// The block in the chunk: its lane.
    pub block_in_chunk: u32,
}

/// The fixed numbers of an array. Checked when made, so the arithmetic cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    level: Level,
    block: BlockSize,
    data: u8,
    parity: u8,
    groups: u16,
    chunk_blocks: u32,
    run_stripes: u64,
    rows: u64,
    /// What every request asks for, computed once: user blocks of a stripe and of the array, and
    /// the roles.
    stripe_blocks: NonZeroU32,
    blocks: u64,
    data_roles: RoleSet,
    parity_roles: RoleSet,
}

impl Geometry {
    /// Checks `parameters` and makes a geometry of them.
    ///
    /// # Errors
    /// What is wrong and the way out, as a sentence.
    pub fn new(parameters: GeometryParameters) -> Result<Geometry, GeometryError> {
        let group_members = level::group_members(&parameters)?;
        let parity = level::parity(&parameters, group_members)?;
        let data = group_members - parity;
        let groups = parameters.members / group_members;
        let chunk_blocks = chunk_blocks(parameters.chunk_bytes, parameters.block)?;
        let rows = parameters.member_data_blocks / u64::from(chunk_blocks);
        if rows == 0 {
            return Err(GeometryError::MemberTooSmall {
                blocks: parameters.member_data_blocks,
                chunk_blocks,
            });
        }
        // Everything computed later is at most the raw bytes of the array.
        rows.checked_mul(parameters.chunk_bytes)
            .and_then(|bytes| bytes.checked_mul(bytes_u64(parameters.members)))
            .ok_or(GeometryError::TooLarge)?;

        let stripe_bytes = bytes_u64(data) * parameters.chunk_bytes;
        let small = "checked against the limits above";
        let stripe_blocks = u32::try_from(data).expect(small) * chunk_blocks;
        let stripe_blocks = NonZeroU32::new(stripe_blocks).expect(small);
        let stripes = rows * bytes_u64(groups);
        Ok(Geometry {
            level: parameters.level,
            block: parameters.block,
            data: u8::try_from(data).expect(small),
            parity: u8::try_from(parity).expect(small),
            groups: u16::try_from(groups).expect(small),
            chunk_blocks,
            run_stripes: BUCKET_RUN_BYTES_MIN.div_ceil(stripe_bytes),
            rows,
            stripe_blocks,
            blocks: stripes * u64::from(stripe_blocks.get()),
            data_roles: RoleSet::range(0, data),
            parity_roles: RoleSet::range(data, group_members),
        })
    }

    /// The RAID level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The block size.
    #[inline]
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block
    }

    /// k: data chunks per stripe.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        usize::from(self.data)
    }

    /// M: parity chunks per stripe; for mirrors the copies beyond the first.
    #[inline]
    #[must_use]
    pub fn parity(&self) -> usize {
        usize::from(self.parity)
    }

    /// Whether a write that was cut short can make other blocks than its own wrong: those that are
    /// computed by parity. Copies are whole by themselves.
    #[inline]
    #[must_use]
    pub fn has_write_hole(&self) -> bool {
        self.parity > 0 && self.data > 1
    }

    /// How many groups the stripes are dealt over.
    #[inline]
    #[must_use]
    pub fn groups(&self) -> usize {
        usize::from(self.groups)
    }

    /// k + M: members of one group.
    #[inline]
    #[must_use]
    pub fn group_members(&self) -> usize {
        self.data() + self.parity()
    }

    /// Members of the array.
    #[must_use]
    pub fn members(&self) -> usize {
        self.group_members() * self.groups()
    }

    /// Roles `0..k`.
    #[inline]
    #[must_use]
    pub fn data_roles(&self) -> RoleSet {
        self.data_roles
    }

    /// Roles `k..k + M`.
    #[inline]
    #[must_use]
    pub fn parity_roles(&self) -> RoleSet {
        self.parity_roles
    }

    /// Blocks of one chunk.
    #[inline]
    #[must_use]
    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_blocks
    }

    /// Bytes of one chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_blocks) << self.block.shift()
    }

    /// User blocks of one stripe.
    #[inline]
    #[must_use]
    pub fn stripe_blocks(&self) -> u32 {
        self.stripe_blocks.get()
    }

    /// User bytes of one stripe.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.stripe_blocks()) << self.block.shift()
    }

    /// Stripes of one group: chunks of one member.
    #[inline]
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Stripes of the array.
    #[inline]
    #[must_use]
    pub fn stripes(&self) -> u64 {
        self.rows * u64::from(self.groups)
    }

    /// User blocks of the array.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The blocks of a member's data area that are in use.
    #[must_use]
    pub fn member_blocks(&self) -> u64 {
        self.rows * u64::from(self.chunk_blocks)
    }

    /// The group a stripe lies in.
    #[inline]
    #[must_use]
    pub fn group(&self, stripe: StripeIndex) -> GroupIndex {
        let group = stripe.0 % u64::from(self.groups);
        GroupIndex(u16::try_from(group).expect("below a u16"))
    }

    /// The stripe's number in its group.
    #[inline]
    #[must_use]
    pub fn row(&self, stripe: StripeIndex) -> u64 {
        stripe.0 / u64::from(self.groups)
    }

    /// The stripe at a row of a group.
    ///
    /// # Panics
    /// When the group or the row is not in the array.
    #[must_use]
    pub fn stripe(&self, group: GroupIndex, row: u64) -> StripeIndex {
        assert!(group.0 < self.groups, "{group} of {}", self.groups);
        assert!(row < self.rows, "row {row} of {}", self.rows);
        StripeIndex(row * u64::from(self.groups) + u64::from(group.0))
    }

    /// The member that holds a role of a stripe.
    ///
    /// # Panics
    /// When the role is not below k + M.
    #[inline]
    #[must_use]
    pub fn member(&self, stripe: StripeIndex, role: Role) -> MemberIndex {
        self.places(stripe).member(role)
    }

    /// Where the chunks of a stripe are.
    #[inline]
    #[must_use]
    pub fn places(&self, stripe: StripeIndex) -> StripePlaces {
        let (group, row) = self.group_and_row(stripe);
        let members = self.group_members();
        StripePlaces {
            before: group * members,
            members,
            turn: self.first_data_place(group, row),
            block: row * u64::from(self.chunk_blocks),
        }
    }

    /// As `group` and `row`; most arrays have one group, and divisions are slow.
    #[inline]
    fn group_and_row(&self, stripe: StripeIndex) -> (usize, u64) {
        if self.groups == 1 {
            return (0, stripe.0);
        }
        (self.group(stripe).at(), self.row(stripe))
    }

    /// What a member holds of a stripe; `None` when it belongs to another group.
    #[must_use]
    pub fn role(&self, stripe: StripeIndex, member: MemberIndex) -> Option<Role> {
        let n = self.group_members();
        if member.at() / n != self.group(stripe).at() {
            return None;
        }
        let place = member.at() % n;
        Some(Role::from_at((place + n - self.places(stripe).turn) % n))
    }

    /// The place in the group of data chunk 0; the other roles follow it, P after the last data.
    ///
    /// md's left-symmetric: P of row r is at n-1 - r % n, the other parities right of it, then the
    /// data, everything wrapping round. Mirrors and level 0 do not rotate.
    #[inline]
    fn first_data_place(&self, group: usize, row: u64) -> usize {
        if self.data == 1 || self.parity == 0 {
            return 0;
        }
        let n = self.group_members();
        let turn = usize::try_from(row % bytes_u64(n)).expect("below 64");
        let turned = group == 1 && planted::is(Fault::WrongRotationInOneGroup);
        // Neither P's place nor what is added to it is more than n.
        let place = n - 1 - turn + self.parity() + usize::from(turned);
        if place < n { place } else { place - n }
    }

    /// The first block of the stripe's chunks in the data area of each of its members.
    #[inline]
    #[must_use]
    pub fn member_block(&self, stripe: StripeIndex) -> u64 {
        self.row(stripe) * u64::from(self.chunk_blocks)
    }

    /// The stripe whose chunk covers a block of a member's data area.
    ///
    /// # Panics
    /// When the member or the block is not in the array.
    #[must_use]
    pub fn stripe_at(&self, member: MemberIndex, member_block: u64) -> StripeIndex {
        let group = GroupIndex::from_at(member.at() / self.group_members());
        self.stripe(group, member_block / u64::from(self.chunk_blocks))
    }

    /// The stripe of a user block, and the block's number in the stripe.
    ///
    /// # Panics
    /// When the block is not in the array.
    #[must_use]
    #[inline]
    pub fn locate(&self, block: u64) -> (StripeIndex, u32) {
        assert!(block < self.blocks(), "a block is in the array");
        let stripe_blocks = NonZeroU64::from(self.stripe_blocks);
        let in_stripe = u32::try_from(block % stripe_blocks).expect("below a u32");
        (StripeIndex(block / stripe_blocks), in_stripe)
    }

    /// Where a user block lives.
    ///
    /// # Panics
    /// When the block is not in the array.
    #[must_use]
    #[inline]
    pub fn place(&self, block: u64) -> Place {
        let (stripe, in_stripe) = self.locate(block);
        // A chunk is a power of two of blocks, so no division is needed.
        let role = u8::try_from(in_stripe >> self.chunk_blocks.trailing_zeros());
        Place {
            stripe,
            role: Role(role.expect("below k")),
            block_in_chunk: in_stripe & (self.chunk_blocks - 1),
        }
    }

    /// The user block that lives at a place.
    ///
    /// # Panics
    /// When there is none: a stripe beyond the end, a parity role, a block beyond the chunk.
    #[must_use]
    pub fn block_of(&self, place: Place) -> u64 {
        assert!(place.stripe.0 < self.stripes(), "{place:?} of {self:?}");
        assert!(place.role.at() < self.data(), "{place:?} of {self:?}");
        assert!(
            place.block_in_chunk < self.chunk_blocks,
            "{place:?} of {self:?}"
        );
        let in_stripe = u32::from(place.role.0) * self.chunk_blocks + place.block_in_chunk;
        place.stripe.0 * u64::from(self.stripe_blocks()) + u64::from(in_stripe)
    }

    /// How many neighbouring stripes share a bucket: so many that they hold
    /// `BUCKET_RUN_BYTES_MIN` bytes of user data.
    #[inline]
    #[must_use]
    pub fn run_stripes(&self) -> u64 {
        self.run_stripes
    }

    /// The ownership bucket of a stripe, below `BUCKETS`.
    #[inline]
    #[must_use]
    pub fn bucket(&self, stripe: StripeIndex) -> usize {
        let run = stripe.0 / self.run_stripes;
        usize::try_from(run % bytes_u64(BUCKETS)).expect("below BUCKETS")
    }
}

/// Where the chunks of one stripe are: looked up once for all its roles.
#[derive(Clone, Copy, Debug)]
pub struct StripePlaces {
    /// Members before those of the stripe's group.
    before: usize,
    /// Members of the group.
    members: usize,
    /// The place in the group of data chunk 0; the other roles follow it.
    turn: usize,
    /// The first block of the chunks in the data area of each member.
    pub block: u64,
}

impl StripePlaces {
    /// The member that holds a role.
    ///
    /// # Panics
    /// When the role is not below k + M.
    #[inline]
    #[must_use]
    pub fn member(&self, role: Role) -> MemberIndex {
        assert!(role.at() < self.members, "a role is below k + M");
        let place = self.turn + role.at();
        let place = if place < self.members {
            place
        } else {
            place - self.members
        };
        MemberIndex::from_at(self.before + place)
    }
}

/// Blocks of a chunk of so many bytes.
fn chunk_blocks(bytes: u64, block: BlockSize) -> Result<u32, GeometryError> {
    let known = CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX;
    if !bytes.is_power_of_two() || !known.contains(&bytes) {
        return Err(GeometryError::Chunk { bytes });
    }
    Ok(u32::try_from(bytes >> block.shift()).expect("a chunk is at most 1 MiB"))
}
