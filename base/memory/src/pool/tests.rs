//! What a pool promises.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use super::*;

const PLAIN: Backing = Backing::Anonymous(Pages::Plain);

/// Backings that work everywhere; Miri knows no memory files.
fn backings() -> Vec<Backing> {
    if cfg!(miri) {
        return vec![PLAIN];
    }
    vec![
        PLAIN,
        Backing::Anonymous(Pages::Huge),
        Backing::Shared(Pages::Plain),
        Backing::Shared(Pages::Huge),
    ]
}

#[test]
fn buffers_are_aligned_apart_and_keep_their_bytes() {
    for backing in backings() {
        for bytes in [4096, 12288, 65536] {
            let mut pool = Pool::new(5, bytes, backing).unwrap();
            let buffers: Vec<Buffer> = std::iter::from_fn(|| pool.acquire()).collect();
            assert_eq!((buffers.len(), pool.len(), pool.free()), (5, 5, 0));
            for (fill, buffer) in (1u8..).zip(&buffers) {
                let segment = pool.segment(buffer);
                assert_eq!(segment.len(), bytes);
                assert!(segment.address().addr().is_multiple_of(BUFFER_ALIGNMENT));
                segment.fill(fill);
            }
            for (fill, buffer) in (1u8..).zip(&buffers) {
                let mut got = vec![0; bytes];
                pool.segment(buffer).copy_to_slice(&mut got);
                assert!(got == vec![fill; bytes], "buffer {fill}");
            }
            for buffer in buffers {
                pool.release(buffer);
            }
            assert_eq!(pool.free(), 5);
        }
    }
}

#[test]
fn the_buffer_released_last_is_acquiredfirst() {
    let mut pool = Pool::new(3, 4096, PLAIN).unwrap();
    let (first, second) = (pool.acquire().unwrap(), pool.acquire().unwrap());
    let offset = pool.offset(&first);
    pool.release(second);
    pool.release(first);
    let again = pool.acquire().unwrap();
    assert_eq!(pool.offset(&again), offset);
    pool.release(again);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn the_file_of_a_shared_pool_holds_each_buffer_at_its_offset() {
    let mut pool = Pool::new(3, 8192, Backing::Shared(Pages::Plain)).unwrap();
    let file = File::from(pool.file().expect("shared").try_clone_to_owned().unwrap());
    let buffers: Vec<Buffer> = std::iter::from_fn(|| pool.acquire()).collect();
    let offsets: BTreeSet<u64> = buffers.iter().map(|buffer| pool.offset(buffer)).collect();
    assert_eq!(offsets, BTreeSet::from([0, 8192, 16384]));
    for (fill, buffer) in (1u8..).zip(&buffers) {
        pool.segment(buffer).fill(fill);
        let mut got = [0; 8192];
        file.read_exact_at(&mut got, pool.offset(buffer)).unwrap();
        assert_eq!(got, [fill; 8192]);
    }
    for buffer in buffers {
        pool.release(buffer);
    }
}

#[test]
fn an_anonymous_pool_has_no_file() {
    assert!(Pool::new(1, 4096, PLAIN).unwrap().file().is_none());
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no huge pages")]
fn too_few_huge_pages_are_made_up_for_by_plain_ones() {
    let count = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<usize>().unwrap_or(0)
    };
    let enough = count("free_hugepages") + count("nr_overcommit_hugepages") + 1;
    for backing in [
        Backing::Anonymous(Pages::Huge),
        Backing::Shared(Pages::Huge),
    ] {
        let pool = Pool::new(enough, HUGE_PAGE_BYTES, backing).unwrap();
        assert_eq!(pool.pages(), Pages::Plain);
    }
}

#[test]
fn a_pool_may_be_empty() {
    let mut pool = Pool::new(0, 4096, PLAIN).unwrap();
    assert!(pool.is_empty() && pool.acquire().is_none());
}

#[test]
#[cfg_attr(miri, ignore = "Miri ends when there is not that much memory")]
fn an_impossible_pool_is_an_error() {
    for (buffers, bytes) in [(usize::MAX, 4096), (1 << 31, 1 << 40), (1 << 31, 1 << 32)] {
        let pool = Pool::new(buffers, bytes, PLAIN);
        assert!(pool.is_err(), "{buffers} × {bytes}");
    }
}

#[test]
#[should_panic(expected = "dropped without being released")]
fn a_buffer_that_is_forgotten_is_a_mistake() {
    let mut pool = Pool::new(1, 4096, PLAIN).unwrap();
    drop(pool.acquire().unwrap());
}

#[test]
#[should_panic(expected = "another pool")]
fn a_buffer_of_another_pool_is_refused() {
    let mut ours = Pool::new(1, 4096, PLAIN).unwrap();
    let mut other = Pool::new(1, 4096, PLAIN).unwrap();
    let buffer = other.acquire().unwrap();
    ours.release(buffer);
}

#[test]
#[should_panic(expected = "1 of its buffers are in use")]
fn a_pool_outlives_its_buffers() {
    let mut pool = Pool::new(2, 4096, PLAIN).unwrap();
    let buffer = pool.acquire().unwrap();
    std::mem::forget(buffer);
    drop(pool);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn what_a_buffer_in_a_file_holds_outlives_the_pool() {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    let at = 64 << 10;
    let file = crate::words::unnamed_file(at + 8 * 4096).expect("memory");
    let mut pool = Pool::in_file(8, 4096, file.as_fd(), bytes_u64(at)).expect("mapped");
    assert_eq!((pool.len(), pool.free(), pool.bytes_each()), (8, 8, 4096));
    let (first, second) = (pool.acquire().expect("free"), pool.acquire().expect("free"));
    pool.segment(&second).fill(7);
    let offset = bytes_u64(at) + pool.offset(&second);
    pool.release(second);
    pool.release(first);
    drop(pool);
    let mut found = [0; 4096];
    file.read_exact_at(&mut found, offset).expect("read");
    assert_eq!(found, [7; 4096]);
}

#[test]
fn the_first_buffers_are_taken_before_the_others_and_outlive_the_pool() {
    let mut pool = Pool::new(6, 4096, PLAIN).unwrap().first(2);
    let memory = pool.first_memory();
    assert_eq!((memory.segment().len(), pool.free()), (8192, 6));
    let all: Vec<Buffer> = std::iter::from_fn(|| pool.acquire()).collect();
    let offsets: Vec<u64> = all
        .iter()
        .map(|buffer| pool.offset(buffer) / 4096)
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5]);
    for (fill, buffer) in (1u8..).zip(&all) {
        pool.segment(buffer).fill(fill);
    }
    let mut kept: Vec<Option<Buffer>> = all.into_iter().map(Some).collect();
    // Whatever comes back last, a first one goes first.
    for at in [1, 4, 0, 5, 2] {
        pool.release(kept[at].take().unwrap());
    }
    for wanted in [0, 1, 2, 5, 4] {
        let buffer = pool.acquire().unwrap();
        assert_eq!(pool.offset(&buffer) / 4096, wanted);
        kept.push(Some(buffer));
    }
    assert_eq!(pool.free(), 0);
    kept.into_iter()
        .flatten()
        .for_each(|buffer| pool.release(buffer));
    assert_eq!(pool.free(), 6);
    drop(pool);
    let mut found = [0; 8192];
    memory.segment().copy_to_slice(&mut found);
    assert!(found[..4096] == [1; 4096] && found[4096..] == [2; 4096]);
    let none = Pool::new(3, 4096, PLAIN).unwrap();
    assert_eq!(none.first_memory().segment().len(), 0);
}
