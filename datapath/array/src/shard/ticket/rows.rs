//! Requests of which each row can be read, but not all rows from the same members: bad blocks of
//! different members, in different rows. The ticket goes on with half of its rows, and so on, and
//! then with the others, twice as many each time as went well before. It keeps the lanes of all
//! meanwhile, is answered when the last row is done, and fails with the first row of which too much
//! cannot be read.

use std::ops::Range;

use units::RoleSet;

use super::super::Shard;
use super::{Kind, PlannedBand, Ticket};
use crate::plan::Band;
use crate::planted::{self, Fault};

/// What a ticket was asked for, while its bands say something else.
#[derive(Clone, Debug)]
pub(in crate::shard) struct Asked {
    pub(super) bands: [Band; 3],
    pub(super) count: usize,
}

impl Asked {
    /// In ascending order of lanes.
    pub(in crate::shard) fn bands(&self) -> &[Band] {
        &self.bands[..self.count]
    }
}

impl Ticket {
    /// What its own request asks for, in whatever rows it is now, and whose work it does besides.
    pub(in crate::shard) fn all_own(&self) -> Asked {
        let own = self.apart.as_ref().or(self.asked.as_ref());
        own.cloned().unwrap_or_else(|| self.all_asked())
    }

    /// What its bands say now.
    pub(super) fn all_asked(&self) -> Asked {
        Asked {
            bands: std::array::from_fn(|band| self.bands[band].asked.clone()),
            count: self.band_count,
        }
    }
}

impl Shard {
    /// A ticket of a request cannot be planned: whether it goes on with fewer rows.
    #[cold]
    pub(super) fn takes_fewer_rows(&mut self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let asks = matches!(ticket.order.kind, Kind::Write(_) | Kind::Read { .. });
        // Only what drives that are there cannot read, asked twice.
        let is_sure = !ticket.media.is_empty() && ticket.second_try && ticket.gone.is_empty();
        let lanes = ticket.lanes.clone();
        if !asks || ticket.is_dropped() || !is_sure || lanes.len() < 2 {
            return false;
        }
        let writes = matches!(ticket.order.kind, Kind::Write(_));
        let fault = if writes {
            Fault::RowsOfWritesFailTogether
        } else {
            Fault::RowsFailTogether
        };
        if planted::is(fault) {
            return false;
        }
        let half = (lanes.end - lanes.start) / 2;
        self.take_rows(slot, lanes.start..lanes.start + half);
        true
    }

    /// Whether rows are left for later that the ticket was asked for.
    #[inline]
    pub(super) fn has_rows_left(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        ticket.asked.is_some() && !ticket.is_dropped() && ticket.lanes.end < ticket.claimed
    }

    /// Some rows are done: goes on with the others, if there are any.
    #[inline]
    pub(super) fn goes_on_with_rows(&mut self, slot: u32) -> bool {
        if !self.has_rows_left(slot) {
            return false;
        }
        let Ticket { lanes, claimed, .. } = &self.tickets[slot];
        let (first, rows) = (lanes.end, lanes.end - lanes.start);
        let end = (first + 2 * rows).min(*claimed);
        self.take_rows(slot, first..end);
        true
    }

    #[cold]
    fn take_rows(&mut self, slot: u32, lanes: Range<u32>) {
        let ticket = &mut self.tickets[slot];
        let asked = ticket.asked.take().unwrap_or_else(|| ticket.all_asked());
        let mut count = 0;
        for band in &asked.bands[..asked.count] {
            let part = band.lanes.start.max(lanes.start)..band.lanes.end.min(lanes.end);
            if !part.is_empty() {
                ticket.bands[count] = PlannedBand {
                    asked: Band {
                        lanes: part,
                        written: band.written,
                    },
                    ..PlannedBand::default()
                };
                count += 1;
            }
        }
        ticket.band_count = count;
        ticket.asked = Some(asked);
        self.begin_again(slot, lanes);
    }

    /// Other lanes of what a ticket has claimed, as if it had just begun. What it has logged stays
    /// a debt.
    pub(super) fn begin_again(&mut self, slot: u32, lanes: Range<u32>) {
        let ticket = &mut self.tickets[slot];
        ticket.computed = false;
        ticket.lanes = lanes;
        ticket.media = RoleSet::EMPTY;
        ticket.gone = RoleSet::EMPTY;
        ticket.second_try = false;
        ticket.failures.clear();
        self.replan(slot);
    }
}
