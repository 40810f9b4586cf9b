//! Guest memory as the messages of vhost-user bring and take it.
//!
//! What does not live here: what a table of regions is (crate `memory`).

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use memory::guest::{self, Held, Mapping, Region, RegionTable, TooMuch};
use virtqueue::{RingBytes, RingMemory};

use crate::connection::{Refused, RingAddresses};

pub(crate) use memory::guest::REGIONS_MAX;

/// Names a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionPlace {
    /// First address for the guest.
    pub(crate) guest: u64,
    /// First address for the front-end.
    pub(crate) user: u64,
    pub(crate) bytes: u64,
}

/// A region that a front-end hands over.
#[derive(Debug)]
pub(crate) struct NewRegion {
    pub(crate) place: RegionPlace,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) file: File,
}

/// The memory of a front-end at one time.
#[derive(Clone, Debug)]
pub(crate) struct Regions {
    table: Arc<RegionTable>,
    /// What goes when these are in place.
    gives_back: Held,
}

impl Default for Regions {
    fn default() -> Regions {
        let table = RegionTable::new(Vec::new()).expect("no regions do not overlap");
        Regions {
            table,
            gives_back: Held::default(),
        }
    }
}

impl Regions {
    /// None, which take the place of these when all of them are there.
    pub(crate) fn anew(&self) -> Regions {
        Regions {
            gives_back: self.table.held(),
            ..Regions::default()
        }
    }

    /// These, in the place of those that were there before.
    pub(crate) fn in_place(mut self) -> Regions {
        self.gives_back = Held::default();
        self
    }

    pub(crate) fn table(&self) -> Arc<RegionTable> {
        Arc::clone(&self.table)
    }

    /// These regions and one more.
    pub(crate) fn with(&self, region: NewRegion) -> Result<Regions, Refused> {
        // Before mapping, so that no front-end can have us map without bound.
        if self.table.regions().len() >= REGIONS_MAX {
            return Err(Refused("there are too many memory regions"));
        }
        let place = region.place;
        let held = self.table.held();
        let admitted = guest::admit(held, self.gives_back, place.bytes).map_err(refuse)?;
        let file = region.file.as_fd();
        let mapping = Mapping::admitted(file, region.offset, place.bytes, admitted)
            .map_err(|_| Refused("a memory region cannot be mapped"))?;
        let mut regions = self.table.regions().to_vec();
        regions.push(Region {
            guest_base: place.guest,
            front_end_base: place.user,
            length: place.bytes,
            mapping,
            offset: 0,
        });
        let table = RegionTable::new(regions)
            .map_err(|_| Refused("a memory region overlaps another, or ends nowhere"))?;
        let gives_back = self.gives_back;
        Ok(Regions { table, gives_back })
    }

    /// These regions without one.
    pub(crate) fn without(&self, place: RegionPlace) -> Result<Regions, Refused> {
        let is_it = |region: &Region| {
            let found = (region.guest_base, region.front_end_base, region.length);
            found == (place.guest, place.user, place.bytes)
        };
        let mut regions = self.table.regions().to_vec();
        let at = regions
            .iter()
            .position(is_it)
            .ok_or(Refused("a memory region is removed that is not there"))?;
        regions.remove(at);
        let table = RegionTable::new(regions).expect("fewer regions do not overlap either");
        let gives_back = self.gives_back;
        Ok(Regions { table, gives_back })
    }
}

fn refuse(why: TooMuch) -> Refused {
    Refused(match why {
        TooMuch::OfFrontEnd => "there is more guest memory than a front-end may have, 16 TiB",
        TooMuch::OfAll => "there is too much guest memory of all front-ends for more",
    })
}

const _: () = assert!(guest::FRONT_END_BYTES_MAX == 16 << 40);

/// Where a ring is, and what keeps it there.
#[derive(Debug)]
pub(crate) struct RingPlace {
    pub(crate) memory: RingMemory,
    pub(crate) kept: Vec<Arc<Mapping>>,
}

/// Finds the three parts of a ring; `None` when not all are in memory.
pub(crate) fn ring_place(
    table: &RegionTable,
    addresses: RingAddresses,
    bytes: RingBytes,
) -> Option<RingPlace> {
    let mut kept = Vec::with_capacity(3);
    let mut find = |address: u64, bytes: usize| {
        let bytes = units::bytes_u64(bytes);
        let found = table.front_end(address, bytes).ok()?;
        let has = |region: &&Region| {
            address
                .checked_sub(region.front_end_base)
                .is_some_and(|inside| inside < region.length && bytes <= region.length - inside)
        };
        kept.push(Arc::clone(&table.regions().iter().find(has)?.mapping));
        Some(found)
    };
    let memory = RingMemory {
        descriptors: find(addresses.descriptors, bytes.descriptors)?,
        driver: find(addresses.driver, bytes.driver)?,
        device: find(addresses.device, bytes.device)?,
    };
    Some(RingPlace { memory, kept })
}
