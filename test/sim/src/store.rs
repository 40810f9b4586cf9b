//! What a simulated drive holds, block by block: what a read finds, and what a loss of power may
//! bring back. A flush costs as much as was written since the last one, whatever the drive holds.

use units::{bytes_u64, bytes_usize};

/// Blocks of a page: the bits of its mask.
const PAGE_BLOCKS: u64 = 8;

/// What blocks that were never written read as.
const ZEROES: [u8; 4096] = [0; 4096];

#[derive(Debug)]
struct Page {
    /// What a read finds.
    now: Box<[u8]>,
    /// What is durable, of blocks in `cached`; nothing yet of a page that never had one.
    durable: Box<[u8]>,
    /// Blocks whose content is only in the cache, one bit each.
    cached: u8,
    /// The next flush makes it durable.
    is_dirty: bool,
    /// How many writes the drive had carried out after the last one here.
    written: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Bytes of a block.
    block: usize,
    pages: Vec<Option<Box<Page>>>,
    /// Pages that the next flush makes durable, each once, in any order.
    dirty: Vec<usize>,
    /// Pages that a flush has failed to make durable.
    forsaken: Vec<usize>,
    /// Writes so far, and when the last flush began.
    writes: u64,
    flush_began: u64,
}

impl Store {
    /// Nothing, in blocks of so many bytes.
    pub(crate) fn new(block: usize) -> Store {
        Store {
            block,
            ..Store::default()
        }
    }

    /// The page of a block, its bytes there, and its bit.
    fn place(&self, block: u64) -> (usize, std::ops::Range<usize>, u8) {
        let position = block % PAGE_BLOCKS;
        let start = bytes_usize(position) * self.block;
        let page = bytes_usize(block / PAGE_BLOCKS);
        (page, start..start + self.block, 1 << position)
    }

    /// What a read finds.
    pub(crate) fn read(&self, block: u64) -> &[u8] {
        let (page, bytes, _) = self.place(block);
        match self.pages.get(page) {
            Some(Some(page)) => &page.now[bytes],
            Some(None) | None => &ZEROES[..self.block],
        }
    }

    /// What a read finds from this byte on, as far as it lies together.
    pub(crate) fn read_from(&self, byte: u64) -> &[u8] {
        let bytes = self.block * bytes_usize(PAGE_BLOCKS);
        let (page, start) = (bytes_usize(byte) / bytes, bytes_usize(byte) % bytes);
        match self.pages.get(page) {
            Some(Some(page)) => &page.now[start..],
            Some(None) | None => &ZEROES[..ZEROES.len().min(bytes - start)],
        }
    }

    /// What a read finds, on another drive, where it is durable.
    pub(crate) fn copy(&self) -> Store {
        let page = |page: &Option<Box<Page>>| {
            page.as_ref().map(|page| {
                Box::new(Page {
                    now: page.now.clone(),
                    durable: Box::default(),
                    cached: 0,
                    is_dirty: false,
                    written: 0,
                })
            })
        };
        Store {
            block: self.block,
            pages: self.pages.iter().map(page).collect(),
            ..Store::default()
        }
    }

    fn page(&mut self, page: usize) -> &mut Page {
        let bytes = self.block * bytes_usize(PAGE_BLOCKS);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages[page].get_or_insert_with(|| {
            Box::new(Page {
                now: vec![0; bytes].into(),
                durable: Box::default(),
                cached: 0,
                is_dirty: false,
                written: 0,
            })
        })
    }

    /// Writes into the cache.
    pub(crate) fn write(&mut self, block: u64, content: &[u8]) {
        let (position, bytes, bit) = self.place(block);
        self.writes += 1;
        let (writes, flush_began) = (self.writes, self.flush_began);
        let page = self.page(position);
        if page.is_dirty && page.written <= flush_began {
            // What the flush under way makes durable, as it may at any time.
            page.cached = 0;
        }
        page.written = writes;
        let was_dirty = std::mem::replace(&mut page.is_dirty, true);
        if page.cached & bit == 0 {
            if page.durable.is_empty() {
                page.durable = page.now.clone();
            }
            page.durable[bytes.clone()].copy_from_slice(&page.now[bytes.clone()]);
            page.cached |= bit;
        }
        page.now[bytes].copy_from_slice(content);
        if !was_dirty {
            self.dirty.push(position);
        }
    }

    /// Writes past the cache: durable at once.
    pub(crate) fn write_through(&mut self, block: u64, content: &[u8]) {
        let (position, bytes, bit) = self.place(block);
        let page = self.page(position);
        page.now[bytes].copy_from_slice(content);
        page.cached &= !bit;
    }

    /// A flush begins: it covers what is written now. Its number goes to `flush`.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        self.flush_began = self.writes;
        self.writes
    }

    /// What was written before the flush `began` is durable, and no more than that.
    pub(crate) fn flush(&mut self, began: u64) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|position| {
            let page = self.page(*position);
            let is_later = page.written > began;
            if !is_later {
                page.cached = 0;
                page.is_dirty = false;
            }
            is_later
        });
        self.dirty = dirty;
    }

    /// A flush fails: what it should have made durable is read until the power fails, but no later
    /// flush makes it durable, unless its page is written again (as Linux does with files).
    pub(crate) fn flush_fails(&mut self) {
        for position in std::mem::take(&mut self.dirty) {
            self.page(position).is_dirty = false;
            self.forsaken.push(position);
        }
    }

    /// The engine dies: for the next one, what a flush failed to keep is as if never flushed.
    pub(crate) fn process_dies(&mut self) {
        for position in std::mem::take(&mut self.forsaken) {
            let page = self.page(position);
            if page.cached != 0 && !std::mem::replace(&mut page.is_dirty, true) {
                self.dirty.push(position);
            }
        }
    }

    /// Whether blocks below `end` would be lost with the power.
    pub(crate) fn has_cached_below(&self, end: u64) -> bool {
        let end = self.place(end).0;
        self.dirty.iter().any(|position| *position < end)
    }

    /// Blocks that would be lost with the power.
    pub(crate) fn cached(&self) -> impl Iterator<Item = u64> {
        let pages = self.dirty.iter().chain(&self.forsaken);
        pages.flat_map(|position| {
            let cached = self.pages[*position].as_ref().map_or(0, |page| page.cached);
            let first = bytes_u64(*position) * PAGE_BLOCKS;
            let is_cached = move |block: &u64| cached & 1 << (block - first) != 0;
            (first..first + PAGE_BLOCKS).filter(is_cached)
        })
    }

    /// The cache is lost, but for the blocks that `is_kept` says, asked in ascending order.
    pub(crate) fn power_fails(&mut self, mut is_kept: impl FnMut() -> bool) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.append(&mut self.forsaken);
        dirty.sort_unstable();
        dirty.dedup();
        for position in dirty {
            let places = [0, 1, 2, 3, 4, 5, 6, 7].map(|block| self.place(block));
            let page = self.page(position);
            for (_, bytes, bit) in places {
                if page.cached & bit != 0 && !is_kept() {
                    page.now[bytes.clone()].copy_from_slice(&page.durable[bytes]);
                }
            }
            page.cached = 0;
            page.is_dirty = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 512;

    #[test]
    fn a_loss_of_power_brings_back_what_was_flushed_last() {
        let mut store = Store::new(BLOCK);
        store.write(9, &[1; BLOCK]);
        let began = store.begin_flush();
        store.flush(began);
        for (block, content) in [(9, 2), (9, 3), (10, 4), (8, 5)] {
            store.write(block, &[content; BLOCK]);
        }
        assert_eq!(store.read(9), [3; BLOCK]);
        let mut kept = [true, false, false].into_iter();
        store.power_fails(|| kept.next().expect("three blocks are cached"));
        assert!(kept.next().is_none(), "each cached block is asked for once");
        let found = [8, 9, 10, 11].map(|block| store.read(block)[0]);
        assert_eq!(found, [5, 1, 0, 0]);
        store.power_fails(|| panic!("nothing is cached"));
    }

    #[test]
    fn what_a_flush_failed_to_keep_is_lost_unless_it_is_written_again() {
        let mut store = Store::new(BLOCK);
        for block in [0, 8] {
            store.write(block, &[1; BLOCK]);
        }
        assert!(store.has_cached_below(8) && !store.has_cached_below(0));
        store.flush_fails();
        store.write(8, &[2; BLOCK]);
        let began = store.begin_flush();
        store.flush(began);
        assert_eq!([0, 8].map(|block| store.read(block)[0]), [1, 2]);
        store.power_fails(|| false);
        assert_eq!([0, 8].map(|block| store.read(block)[0]), [0, 2]);
    }

    #[test]
    fn another_engine_flushes_what_the_last_one_could_not() {
        let mut store = Store::new(BLOCK);
        store.write(0, &[1; BLOCK]);
        store.flush_fails();
        store.process_dies();
        let began = store.begin_flush();
        store.flush(began);
        store.power_fails(|| panic!("nothing is cached"));
        assert_eq!(store.read(0)[0], 1);
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let mut store = Store::new(BLOCK);
        store.write(0, &[1; BLOCK]);
        store.write(1, &[1; BLOCK]);
        let began = store.begin_flush();
        store.write(1, &[2; BLOCK]);
        store.write(8, &[2; BLOCK]);
        store.flush(began);
        store.power_fails(|| false);
        assert_eq!([0, 1, 8].map(|block| store.read(block)[0]), [1, 1, 0]);
    }

    #[test]
    fn what_goes_past_the_cache_stays() {
        let mut store = Store::new(BLOCK);
        store.write(3, &[1; BLOCK]);
        store.write(4, &[1; BLOCK]);
        store.write_through(3, &[2; BLOCK]);
        store.power_fails(|| false);
        assert_eq!((store.read(3)[0], store.read(4)[0]), (2, 0));
    }
}
