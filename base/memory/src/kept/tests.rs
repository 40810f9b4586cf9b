//! Mappings that are kept.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::*;
use crate::map::{memory_file, page_bytes};
use crate::pool::Pool;

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn the_same_part_is_not_mapped_anew_and_holds_what_the_file_does() {
    keep_mappings();
    let page = page_bytes();
    let files = [(); 2].map(|()| memory_file(2 * page, 0).expect("memory"));
    let map = |file: usize, offset: usize| {
        Map::of_file(files[file].as_fd(), units::bytes_u64(offset), page).expect("mapped")
    };
    let first = map(0, 0);
    let base = first.base();
    let beside = map(0, 0);
    assert_ne!(beside.base(), base, "that one is in use");
    first.whole().fill(7);
    drop(first);
    files[0].write_all_at(&[9], 1).expect("written");
    for (file, offset) in [(1, 0), (0, page)] {
        assert_ne!(map(file, offset).base(), base, "another part");
    }
    let again = map(0, 0);
    assert_eq!(again.base(), base);
    let mut found = [0; 3];
    again.whole().part(0, 3).copy_to_slice(&mut found);
    assert_eq!(found, [7, 9, 7]);
    drop(again);
    assert_eq!(map(0, 0).base(), base, "and once more");
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn few_are_kept() {
    keep_mappings();
    let bytes = page_bytes().max(4096);
    let file = memory_file(bytes, 0).expect("memory");
    let all: Vec<Pool> = (0..KEPT + 3)
        .map(|_| Pool::in_file(1, bytes, file.as_fd(), 0).expect("mapped"))
        .collect();
    drop(all);
    assert_eq!(DROPPED.with_borrow(VecDeque::len), KEPT);
}
