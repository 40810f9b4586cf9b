//! One error of a drive, at one of the requests that drives carry out: which of them, and what
//! comes of it, is a choice like any other.

use std::collections::BTreeSet;

use block::{Operation, Status};
use units::{MemberIndex, StripeIndex, bytes_u64};

use super::super::disk::Refuses;
use super::{Machine, Pending, Taken, Token};

/// How a drive errs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exhaustive) enum Error {
    /// The first block of what is read cannot be, until it is written.
    Unreadable,
    /// A write fails, and nothing of it is there.
    Unwritten,
    /// A write fails, and all of it is there.
    Written,
    /// A flush fails; what it was to make durable may be lost, whatever is flushed later.
    Unflushed,
    /// The drive is gone before it carries the request out.
    Gone,
}

impl Error {
    /// What may come of a request.
    pub(in crate::exhaustive) fn of(operation: Operation) -> &'static [Error] {
        match operation {
            Operation::Read => &[Error::Unreadable, Error::Gone],
            Operation::Write | Operation::WriteZeroes | Operation::Discard => {
                &[Error::Unwritten, Error::Written, Error::Gone]
            }
            Operation::Flush => &[Error::Unflushed, Error::Gone],
        }
    }
}

/// Which request errs, of those that are counted, and how.
#[derive(Clone, Copy, Debug)]
pub(in crate::exhaustive) struct Choice {
    pub(in crate::exhaustive) request: usize,
    pub(in crate::exhaustive) error: Error,
}

/// What is known of errors.
#[derive(Debug, Default)]
pub(super) struct Errors {
    is_counting: bool,
    /// What drives were asked since they are counted, in the order of the answers.
    asked: Vec<Operation>,
    choice: Option<Choice>,
    /// The next request of this drive that may err so does.
    aimed: Option<(usize, Error)>,
    /// The error has come.
    has_come: bool,
    /// The drive that is gone by that.
    gone: Option<usize>,
    /// User blocks that nobody may be able to tell.
    doubtful: BTreeSet<u64>,
    /// A drive has refused a write: it fails.
    refused: bool,
}

impl Machine {
    /// From now on requests are counted, and one of them errs.
    pub(in crate::exhaustive) fn choose(&mut self, choice: Option<Choice>) {
        self.errors.is_counting = true;
        self.errors.choice = choice;
    }

    /// The next request of a drive errs that may do so in this way.
    pub(in crate::exhaustive) fn aim(&mut self, drive: usize, error: Error) {
        self.errors.aimed = Some((drive, error));
    }

    /// What drives have been asked since then.
    pub(in crate::exhaustive) fn asked(&self) -> &[Operation] {
        &self.errors.asked
    }

    /// Whether an error is still to come.
    pub(in crate::exhaustive) fn awaits_error(&self) -> bool {
        self.errors.choice.is_some() && !self.errors.has_come
    }

    /// Whether the error has come.
    pub(in crate::exhaustive) fn has_erred(&self) -> bool {
        self.errors.has_come
    }

    /// The drive that is gone because of the error.
    pub(in crate::exhaustive) fn gone_by_error(&self) -> Option<usize> {
        self.errors.gone
    }

    /// User blocks that nobody may be able to tell: of these, reads may fail.
    pub(in crate::exhaustive) fn doubtful(&self) -> &BTreeSet<u64> {
        &self.errors.doubtful
    }

    /// The same from a life before, and what comes of blocks that this one finds unreadable.
    pub(in crate::exhaustive) fn inherit(&mut self, doubtful: &BTreeSet<u64>) {
        self.errors.doubtful.extend(doubtful);
        for drive in 0..self.outside.disks.len() {
            for block in self.outside.disks[drive].bad() {
                self.doubt(drive, block);
            }
        }
    }

    /// The array waits for a drive that is gone, and it is there again.
    pub(super) fn end_error(&mut self) {
        if let Some(drive) = self.errors.gone.take() {
            self.outside.disks[drive].gone = false;
        }
    }

    /// How a request errs, if it does.
    fn error_of(&mut self, taken: &Taken) -> Option<Error> {
        let (drive, operation) = (taken.request.drive.at(), taken.request.operation);
        let meets = |aimed: &mut (usize, Error)| {
            aimed.0 == drive && Error::of(operation).contains(&aimed.1)
        };
        if let Some((_, error)) = self.errors.aimed.take_if(meets) {
            return Some(error);
        }
        if !self.errors.is_counting {
            return None;
        }
        let number = self.errors.asked.len();
        self.errors.asked.push(operation);
        let choice = self.errors.choice;
        let choice = choice.filter(|choice| choice.request == number)?;
        Some(choice.error)
    }

    /// What the error makes of a request, if it is the one; some answers follow from it.
    pub(super) fn err(&mut self, taken: &mut Taken) -> Option<Status> {
        let error = self.error_of(taken)?;
        self.errors.has_come = true;
        let drive = taken.request.drive.at();
        match error {
            Error::Unreadable => {
                let block = taken.request.offset / 512;
                self.spoil(drive, block);
                return None;
            }
            Error::Gone => {
                self.outside.disks[drive].gone = true;
                self.errors.gone = Some(drive);
                return None;
            }
            Error::Unwritten => {}
            Error::Written => {
                let write = taken.write.take().expect("it writes");
                self.outside.disks[drive].write(write);
            }
            Error::Unflushed => self.outside.disks[drive].flush_fails(taken.began),
        }
        Some(Status::Media)
    }

    /// A block of a drive cannot be read until it is written.
    pub(in crate::exhaustive) fn spoil(&mut self, drive: usize, block: u64) {
        self.outside.disks[drive].spoil(block);
        self.doubt(drive, block);
    }

    /// A drive does not take a write of one of its blocks.
    pub(super) fn refuse(&mut self, drive: usize, (block, how): (u64, Refuses)) -> Status {
        self.errors.refused = true;
        match how {
            Refuses::AsItWas => Status::Media,
            Refuses::Unreadable => {
                self.spoil(drive, block);
                Status::Media
            }
        }
    }

    /// Whether it reads what nobody may be able to tell, or writes what a drive refuses.
    pub(super) fn may_fail(&self, pending: &Pending) -> bool {
        let end = pending.start + bytes_u64(pending.bytes / 512);
        let mut doubtful = self.errors.doubtful.range(pending.start..end);
        match pending.token {
            Token::Read(_) => doubtful.next().is_some(),
            Token::Write(_) => self.errors.refused,
            Token::Flush(_) => false,
        }
    }

    /// A block of a drive cannot be read. Nobody may be able to tell what it held, or what those
    /// held that are out, where parity is not trusted or more is missing than there is parity.
    fn doubt(&mut self, drive: usize, block: u64) {
        let Some(position) = self.place_of(drive) else {
            return;
        };
        let map = self.shard.map();
        let geometry = &map.geometry;
        let area = self.area.offset / 512;
        let end = area + self.area.length / 512;
        if !(area..end).contains(&block) {
            return;
        }
        let block = block - area;
        let stripe = geometry.stripe_at(MemberIndex::from_at(position), block);
        let lane = block % u64::from(geometry.chunk_blocks());
        let first = geometry.group(stripe).at() * geometry.group_members();
        let lost = map.lost(stripe, false);
        let is_out = |at: &usize| {
            let role = geometry.role(stripe, MemberIndex::from_at(*at));
            lost.has(role.expect("of its group"))
        };
        let mut missing: BTreeSet<usize> = (first..first + geometry.group_members())
            .filter(is_out)
            .collect();
        missing.insert(position);
        if map.parity_trusted(stripe, false) && missing.len() <= geometry.parity() {
            return;
        }
        for member in missing {
            let doubtful = user_block(geometry, stripe, (member, lane));
            self.errors.doubtful.extend(doubtful);
        }
    }
}

/// The user block that a member holds in a lane of a stripe, if it is one.
fn user_block(
    geometry: &array::Geometry,
    stripe: StripeIndex,
    (member, lane): (usize, u64),
) -> Option<u64> {
    let base = stripe.0 * u64::from(geometry.stripe_blocks());
    if geometry.data() == 1 {
        return Some(base + lane);
    }
    let role = geometry.role(stripe, MemberIndex::from_at(member));
    let role = role.expect("of its group").at();
    let chunk = u64::from(geometry.chunk_blocks());
    (role < geometry.data()).then_some(base + bytes_u64(role) * chunk + lane)
}
