//! What a simulated drive holds, block by block: what a read finds, and what a loss of power may
//! bring back. A flush costs as much as was written since the last one, whatever the drive holds.

mod content;

use std::cell::OnceCell;
use std::ops::Range;

use units::{bytes_u64, bytes_usize};

use self::content::Content;
use crate::random::Random;

/// Blocks of a page: the bits of its mask.
const PAGE_BLOCKS: u64 = 8;

/// Bytes that are drawn at a time.
const WORD: u64 = 8;

/// What blocks that were never written read as.
const ZEROES: [u8; 4096] = [0; 4096];

#[derive(Debug)]
struct Page {
    /// What a read finds.
    now: Content,
    /// What is durable, of blocks in `cached`; nothing yet of a page that never had one.
    durable: Content,
    /// Blocks whose content is only in the cache, one bit each.
    cached: u8,
    /// The next flush makes it durable.
    is_dirty: bool,
    /// How many writes the drive had carried out after the last one here.
    written: u64,
}

impl Page {
    /// One that is durable.
    fn of(now: Content) -> Box<Page> {
        Box::new(Page {
            now,
            durable: Content::default(),
            cached: 0,
            is_dirty: false,
            written: 0,
        })
    }
}

/// Pages full of chance, of which the later ones are drawn behind the earlier ones.
#[derive(Clone, Debug)]
struct Soil {
    pages: Range<usize>,
    random: Random,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Bytes of a block.
    block: usize,
    pages: Vec<OnceCell<Box<Page>>>,
    /// What was there before in pages that nobody has read or written.
    soil: Vec<Soil>,
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

    /// A page that was written, or holds something although it was not.
    fn known(&self, page: usize) -> Option<&Page> {
        let cell = self.pages.get(page)?;
        if cell.get().is_none()
            && let Some(soiled) = self.soiled(page)
        {
            cell.set(soiled).expect("nothing is there");
        }
        cell.get().map(|page| &**page)
    }

    /// What is in a page that nobody has read or written, if not zeroes.
    fn soiled(&self, page: usize) -> Option<Box<Page>> {
        let mut latest = self.soil.iter().rev();
        let soil = latest.find(|soil| soil.pages.contains(&page))?;
        let mut bytes = Content::any(self.page_bytes());
        let mut random = soil.random.clone();
        let before = bytes_u64((page - soil.pages.start) * bytes.len());
        random.skip(before / WORD);
        random.fill(&mut bytes);
        Some(Page::of(bytes))
    }

    /// What a read finds.
    pub(crate) fn read(&self, block: u64) -> &[u8] {
        let (page, bytes, _) = self.place(block);
        match self.known(page) {
            Some(page) => &page.now[bytes],
            None => &ZEROES[..self.block],
        }
    }

    /// What a read finds from this byte on, as far as it lies together.
    pub(crate) fn read_from(&self, byte: u64) -> &[u8] {
        let bytes = self.page_bytes();
        let (page, start) = (bytes_usize(byte) / bytes, bytes_usize(byte) % bytes);
        match self.known(page) {
            Some(page) => &page.now[start..],
            None => &ZEROES[..ZEROES.len().min(bytes - start)],
        }
    }

    /// What a read finds, on another drive, where it is durable.
    pub(crate) fn copy(&self) -> Store {
        let page = |page: &OnceCell<Box<Page>>| {
            let copied = page.get().map(|page| Page::of(page.now.clone()));
            copied.map_or_else(OnceCell::new, OnceCell::from)
        };
        Store {
            block: self.block,
            pages: self.pages.iter().map(page).collect(),
            soil: self.soil.clone(),
            ..Store::default()
        }
    }

    fn page_bytes(&self) -> usize {
        self.block * bytes_usize(PAGE_BLOCKS)
    }

    fn page(&mut self, page: usize) -> &mut Page {
        self.reach(page + 1);
        if self.known(page).is_none() {
            let zeroes = Page::of(Content::zeroes(self.page_bytes()));
            self.pages[page].set(zeroes).expect("nothing is there");
        }
        self.pages[page].get_mut().expect("it is there")
    }

    /// Makes room for the pages before `end`.
    fn reach(&mut self, end: usize) {
        if self.pages.len() < end {
            self.pages.resize_with(end, OnceCell::new);
        }
    }

    /// Writes whole blocks into the cache, from this one on.
    pub(crate) fn write(&mut self, mut block: u64, mut contents: &[u8]) {
        while !contents.is_empty() {
            let blocks = PAGE_BLOCKS - block % PAGE_BLOCKS;
            let bytes = contents.len().min(bytes_usize(blocks) * self.block);
            let (content, rest) = contents.split_at(bytes);
            self.write_in_page(block, content);
            (block, contents) = (block + blocks, rest);
        }
    }

    /// Writes blocks that are in one page.
    fn write_in_page(&mut self, block: u64, content: &[u8]) {
        let (position, first, _) = self.place(block);
        let size = self.block;
        let bytes = first.start..first.start + content.len();
        self.writes += bytes_u64(content.len() / size);
        let (writes, flush_began) = (self.writes, self.flush_began);
        let page = self.page(position);
        if page.is_dirty && page.written <= flush_began {
            // What the flush under way makes durable, as it may at any time.
            page.cached = 0;
        }
        page.written = writes;
        let was_dirty = std::mem::replace(&mut page.is_dirty, true);
        if page.durable.is_empty() {
            page.durable = Content::any(page.now.len());
        }
        for at in bytes.clone().step_by(size) {
            let bit = 1 << (at / size);
            if page.cached & bit == 0 {
                page.durable[at..at + size].copy_from_slice(&page.now[at..at + size]);
                page.cached |= bit;
            }
        }
        page.now[bytes].copy_from_slice(content);
        if !was_dirty {
            self.dirty.push(position);
        }
    }

    /// Writes one block past the cache: durable at once.
    pub(crate) fn write_through(&mut self, block: u64, content: &[u8]) {
        let (position, bytes, bit) = self.place(block);
        let page = self.page(position);
        page.now[bytes].copy_from_slice(content);
        page.cached &= !bit;
    }

    /// Writes past the cache what `random` draws, from one byte to another. In pages where nobody
    /// looks it is not drawn at all.
    pub(crate) fn soil(&mut self, bytes: Range<u64>, random: &mut Random) {
        let page = bytes_u64(self.page_bytes());
        let pages = bytes.start.div_ceil(page)..bytes.end / page;
        assert!(pages.start < pages.end, "more than a page");
        self.draw(bytes.start..pages.start * page, random);
        let soil = Soil {
            pages: bytes_usize(pages.start)..bytes_usize(pages.end),
            random: random.clone(),
        };
        self.reach(soil.pages.end);
        self.soil.push(soil.clone());
        for page in soil.pages {
            if self.pages[page].get().is_some() {
                let soiled = self.soiled(page).expect("just now");
                let page = self.page(page);
                page.now = soiled.now;
                page.cached = 0;
            }
        }
        random.skip((pages.end - pages.start) * page / WORD);
        self.draw(pages.end * page..bytes.end, random);
    }

    fn draw(&mut self, bytes: Range<u64>, random: &mut Random) {
        let mut content = vec![0; bytes_usize(bytes.end - bytes.start)];
        random.fill(&mut content);
        let first = bytes.start / bytes_u64(self.block);
        for (block, content) in (first..).zip(content.chunks_exact(self.block)) {
            self.write_through(block, content);
        }
    }

    /// A flush begins: it covers what is written now. Its number goes to `flush`.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        self.flush_began = self.writes;
        self.writes
    }

    /// Of the flushes that are still under way, the last to begin has this number, or there is
    /// none: what has begun and was not carried out keeps nothing.
    pub(crate) fn flush_ends(&mut self, under_way: Option<u64>) {
        self.flush_began = under_way.unwrap_or(0);
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
            let cached = self.pages[*position].get().map_or(0, |page| page.cached);
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
    fn soil_is_what_is_drawn_whenever_somebody_looks() {
        let (start, length) = (3 * BLOCK, 90 * BLOCK);
        let (mut drawn, mut random) = (vec![0; length], Random::new(7));
        random.clone().fill(&mut drawn);
        let mut store = Store::new(BLOCK);
        store.write(9, &[1; BLOCK]);
        store.soil(bytes_u64(start)..bytes_u64(start + length), &mut random);
        store.power_fails(|| panic!("nothing is cached"));
        let mut after = Random::new(7);
        after.skip(bytes_u64(length) / WORD);
        assert_eq!(random.next(), after.next(), "as much is drawn");
        store.write(50, &[2; BLOCK]);
        drawn[47 * BLOCK..48 * BLOCK].fill(2);
        let copy = store.copy();
        for store in [&store, &copy] {
            for (block, expected) in (3..).zip(drawn.chunks(BLOCK)) {
                assert_eq!(store.read(block), expected, "block {block}");
            }
            assert_eq!([2, 93].map(|block| store.read(block)[0]), [0, 0]);
        }
        store.soil(0..100 * 512, &mut random);
        assert_ne!(store.read(3), &drawn[..BLOCK], "and again");
    }

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
    fn blocks_that_are_written_together_are_lost_each_by_itself() {
        let mut store = Store::new(BLOCK);
        store.write(6, &[1; BLOCK]);
        let began = store.begin_flush();
        let contents: Vec<u8> = (2..6).flat_map(|content| [content; BLOCK]).collect();
        store.write(6, &contents);
        let read = |store: &Store| [5, 6, 7, 8, 9, 10].map(|block| store.read(block)[0]);
        assert_eq!(read(&store), [0, 2, 3, 4, 5, 0]);
        store.flush(began);
        let mut kept = [false, true, true, false].into_iter();
        store.power_fails(|| kept.next().expect("four blocks are cached"));
        assert!(kept.next().is_none(), "each of them is asked for");
        // The flush under way may have kept what was there when it began.
        assert_eq!(read(&store), [0, 1, 3, 4, 0, 0]);
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
    fn a_flush_that_began_and_was_not_carried_out_keeps_nothing() {
        for is_under_way in [true, false] {
            let mut store = Store::new(BLOCK);
            store.write(0, &[1; BLOCK]);
            let began = store.begin_flush();
            store.flush_ends(Some(began).filter(|_| is_under_way));
            store.write(0, &[2; BLOCK]);
            store.power_fails(|| false);
            assert_eq!(store.read(0)[0], u8::from(is_under_way));
        }
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
