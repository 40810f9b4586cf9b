//! What the last engine had begun, read by the next one. Nothing in the file is taken on trust: one
//! thing wrong, and none of it is used.

use std::fmt;
use std::io;
use std::ops::Range;

use units::limits::REACTORS_MAX;
use units::{MemberIndex, Role, RoleSet, StripeIndex, Update, bytes_u64, bytes_usize};
use uuid::Uuid;

use super::borrowed::{self, BlockMask};
use super::trust::Told;
use super::{
    BANDS, BORROWED, BegunOf, BegunSpace, COUNTS, Content, ENTRY_WORDS, HEAD_CHECKSUM, HEAD_FIXED,
    HEAD_NOTE, HEAD_NOTES, HEAD_WORDS, MAGIC, PLACES, STATE, STRIPE, UNIT, ZEROES, checksum, fixed,
};
use crate::format::ArrayConfig;
use crate::geometry::Geometry;
use crate::log::Redo;
use crate::planted::{self, Fault};
use crate::shard::cell_lanes;

/// More than any shard has of anything.
const COUNT_MAX: u32 = 1 << 20;

/// Why a file tells nothing about an array as it is now.
#[derive(Debug)]
pub enum Unusable {
    /// It cannot be read.
    Io(io::Error),
    /// It is not one of these, or not of this array, boot or life.
    Other(&'static str),
    /// It contradicts itself.
    Damaged(&'static str),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Io(error) => write!(f, "it cannot be read: {error}"),
            Unusable::Other(text) => f.write_str(text),
            Unusable::Damaged(text) => write!(f, "it is damaged: {text}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable::Io(error)
    }
}

/// What a start does of one ticket's writes.
#[derive(Clone, Debug, Default)]
pub struct ToRedo {
    /// What is written again, to those members that are there.
    pub redo: Vec<Redo>,
    /// Blocks of the array that nobody can tell: part of them may be new, and part of them old.
    pub lost: Vec<Range<u64>>,
}

/// One ticket's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) stripe: StripeIndex,
    first: u32,
    content: Content,
    /// First lane, how many, and the roles written there.
    pub(super) bands: Vec<(u32, u32, RoleSet)>,
    /// Where the buffer of each role is, in bytes from the start of the file.
    places: Vec<(Role, u64)>,
}

/// What a killed engine had begun, all of it good.
#[derive(Debug)]
pub struct BegunWrites {
    geometry: Geometry,
    entries: Vec<Entry>,
    pub(super) told: Told,
}

impl BegunWrites {
    /// Reads a file of `length` bytes. `config` is the record that decides, as it was found; `read`
    /// fills bytes from an offset of the file on.
    ///
    /// # Errors
    /// Why nothing of it may be used.
    pub fn read(
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        length: u64,
        whose: &BegunOf,
        (config, geometry): (&ArrayConfig, &Geometry),
    ) -> Result<BegunWrites, Unusable> {
        let head = words(&read, 0, HEAD_WORDS)?;
        let space = judge_head(&head, length, whose)?;
        judge_update(&head, config)?;
        let mut entries = Vec::new();
        for shard in 0..u64::from(space.shards) {
            let count = bytes_usize(space.tickets.into()) * ENTRY_WORDS;
            let table = words(&read, space.table(shard), count)?;
            for entry in table.chunks_exact(ENTRY_WORDS) {
                if entry[STATE] != 0 {
                    let entry = Entry::decode(entry, geometry);
                    let entry = entry.ok_or(Unusable::Damaged("an entry makes no sense"))?;
                    if !entry.lies_in(&space.buffers(shard), geometry) {
                        return Err(Unusable::Damaged("bytes of an entry are not in buffers"));
                    }
                    entries.push(entry);
                }
            }
        }
        refuse_overlaps(&entries)?;
        Ok(BegunWrites {
            geometry: *geometry,
            entries,
            told: Told::read(&head, geometry.members()),
        })
    }

    /// How many tickets had begun to write.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether one of them was writing from a guest's memory.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn is_borrowed(&self, position: usize) -> bool {
        self.entries[position].content == Content::Borrowed
    }

    /// Whether none had.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What one of them was writing: to be written again, all of it, to those members that are
    /// there. `read` fills bytes from an offset of the file on; `read_member` bytes from an offset
    /// of the data of a member on, and says which blocks it could read: none of one that is not
    /// here, or that holds nothing there that counts.
    ///
    /// # Errors
    /// When either cannot be read.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn redo(
        &self,
        position: usize,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        read_member: impl FnMut(MemberIndex, u64, &mut [u8]) -> io::Result<BlockMask>,
    ) -> io::Result<ToRedo> {
        let (entry, geometry) = (&self.entries[position], &self.geometry);
        if entry.content == Content::Borrowed {
            return borrowed::mend(entry, geometry, read_member);
        }
        let shift = geometry.block_size().shift();
        let mut redo = Vec::new();
        for &(lane, lanes, roles) in &entry.bands {
            for role in roles {
                let mut bytes = vec![0; bytes_usize(u64::from(lanes) << shift)];
                if let Some(place) = entry.place(role) {
                    read(place + (u64::from(lane - entry.first) << shift), &mut bytes)?;
                }
                let block = geometry.member_block(entry.stripe) + u64::from(lane);
                redo.push(Redo {
                    member: geometry.member(entry.stripe, role),
                    offset: block << shift,
                    bytes,
                });
            }
        }
        Ok(ToRedo {
            redo,
            lost: Vec::new(),
        })
    }
}

impl Entry {
    /// `None` when no ticket of such an array is like this.
    fn decode(words: &[u64], geometry: &Geometry) -> Option<Entry> {
        let state = words[STATE];
        let count = usize::try_from(state >> 8 & 0xFF).ok()?;
        let content = match state & 0xFF & !COUNTS {
            0 => Content::Kept,
            ZEROES => Content::Zeroes,
            BORROWED => Content::Borrowed,
            _ => return None,
        };
        if state >> 16 & 0xFFFF != 0 || state & COUNTS == 0 || !(1..=BANDS.len()).contains(&count) {
            return None;
        }
        let mut entry = Entry {
            stripe: StripeIndex(words[STRIPE]),
            first: u32::try_from(state >> 32).ok()?,
            content,
            bands: Vec::new(),
            places: Vec::new(),
        };
        let members = RoleSet::range(0, geometry.group_members());
        let (mut all, mut next) = (RoleSet::EMPTY, entry.first);
        for at in &BANDS[..count] {
            let (lane, lanes) = halves(words[*at]);
            let roles = RoleSet(words[at + 1]);
            let end = lane.checked_add(lanes)?;
            let good = lanes > 0 && lane >= next && end <= geometry.chunk_blocks();
            if !good || !members.covers(roles) {
                return None;
            }
            (all, next) = (all.union(roles), end);
            entry.bands.push((lane, lanes, roles));
        }
        if entry.stripe.0 >= geometry.stripes() || all.is_empty() {
            return None;
        }
        // Such a write covers its rows, or what it does not write would be torn with them.
        let in_a_cell = next - entry.first <= cell_lanes(geometry);
        if content == Content::Borrowed && (count != 1 || all != members || !in_a_cell) {
            return None;
        }
        if content != Content::Zeroes {
            entry.places = all.iter().zip(places(words)).collect();
        }
        Some(entry)
    }

    /// Whether all bytes that it names lie in these.
    fn lies_in(&self, buffers: &std::ops::Range<u64>, geometry: &Geometry) -> bool {
        let end = self.bands.iter().map(|(lane, lanes, _)| lane + lanes).max();
        let lanes = u64::from(end.unwrap_or(0) - self.first);
        let bytes = lanes << geometry.block_size().shift();
        let inside = |(_, place): &(Role, u64)| {
            let end = place.checked_add(bytes);
            *place >= buffers.start && end.is_some_and(|end| end <= buffers.end)
        };
        self.places.iter().all(inside)
    }

    /// Where the bytes of a role are; nowhere when zeroes are written.
    fn place(&self, role: Role) -> Option<u64> {
        let found = self.places.iter().find(|(other, _)| *other == role);
        found.map(|(_, place)| *place)
    }
}

/// Upper and lower half of a word.
fn halves(word: u64) -> (u32, u32) {
    let low = word & u64::from(u32::MAX);
    let half = |word: u64| u32::try_from(word).expect("half of a word");
    (half(word >> 32), half(low))
}

fn places(words: &[u64]) -> impl Iterator<Item = u64> {
    words[PLACES..BANDS[1]].iter().flat_map(|word| {
        let (second, first) = halves(*word);
        [u64::from(first) * UNIT, u64::from(second) * UNIT]
    })
}

fn words(
    read: &impl Fn(u64, &mut [u8]) -> io::Result<()>,
    offset: u64,
    count: usize,
) -> Result<Vec<u64>, Unusable> {
    let mut bytes = vec![0; count * size_of::<u64>()];
    read(offset, &mut bytes)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

fn judge_head(head: &[u64], length: u64, whose: &BegunOf) -> Result<BegunSpace, Unusable> {
    if head[0] != MAGIC {
        return Err(Unusable::Other("it is no such file, or not finished"));
    }
    if head[HEAD_CHECKSUM] != checksum(&head[..HEAD_FIXED]) {
        return Err(Unusable::Damaged("the checksum of its head"));
    }
    let (shards, tickets) = halves(head[6]);
    let (small, large) = halves(head[7]);
    let space = BegunSpace {
        shards,
        tickets,
        small,
        large,
    };
    let most = [tickets, small, large].into_iter().max().unwrap_or(0);
    let few = bytes_usize(shards.into()) <= REACTORS_MAX && most <= COUNT_MAX;
    if !few || space.bytes() > length {
        return Err(Unusable::Damaged("it is too short for what it says"));
    }
    let mut expected = fixed(&space, whose);
    if planted::is(Fault::BegunOfAnotherLife) {
        expected[3..=5].copy_from_slice(&head[3..=5]);
    }
    if head[..HEAD_FIXED] != expected {
        return Err(Unusable::Other("it is of another array, boot or start"));
    }
    Ok(space)
}

/// Whether the record that was found is the last one noted here, or comes from it.
fn judge_update(head: &[u64], config: &ArrayConfig) -> Result<(), Unusable> {
    let noted = match head[HEAD_NOTE] {
        0 => return Err(Unusable::Other("its start was not finished")),
        1 => HEAD_NOTES[0],
        2 => HEAD_NOTES[1],
        _ => return Err(Unusable::Damaged("the last update")),
    };
    let id = Uuid::from_u64_pair(head[noted + 1], head[noted + 2]).as_u128();
    let same = config.id_of(Update(head[noted])) == Some(id);
    if !same && !planted::is(Fault::BegunOfAnotherLife) {
        return Err(Unusable::Other("the array went on without it"));
    }
    Ok(())
}

/// No two tickets write the same lanes of a stripe at a time.
fn refuse_overlaps(entries: &[Entry]) -> Result<(), Unusable> {
    let lanes = |entry: &Entry| {
        let last = entry.bands.last().expect("at least one");
        (entry.stripe, entry.first, last.0 + last.1)
    };
    let mut all: Vec<(StripeIndex, u32, u32)> = entries.iter().map(lanes).collect();
    all.sort_unstable();
    let overlaps = all
        .windows(2)
        .any(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1);
    if overlaps {
        return Err(Unusable::Damaged("two entries of the same lanes"));
    }
    Ok(())
}

/// Bytes that all entries name, for who wants to know beforehand.
impl BegunWrites {
    /// How many bytes are to be written again.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let shift = self.geometry.block_size().shift();
        let of = |(_, lanes, roles): &(u32, u32, RoleSet)| {
            (u64::from(*lanes) << shift) * bytes_u64(roles.len())
        };
        self.entries
            .iter()
            .flat_map(|entry| &entry.bands)
            .map(of)
            .sum()
    }
}
