//! Clients that others wrote: `virtio-driver` and `blkio` (libblkio) read, write and verify.
#![allow(
    clippy::unwrap_used,
    unsafe_code,
    reason = "a test program; the clients take raw memory"
)]

mod common;

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use blkio::{Blkio, Blkioq, ReqFlags};
use common::machine::pattern;
use common::{Engine, SECTORS, Volume, place, profile, settings};
use guest::Memory;
use virtio_driver::{VhostUser, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags};
use vmm_sys_util::poll::PollContext;

const BLOCK: usize = 4096;

/// Waits until every request of a queue of `virtio-driver` is done, by its completion event.
fn finish(
    transport: &VirtioBlkTransport,
    queue: &mut VirtioBlkQueue<'_, u64>,
    (index, mut left): (usize, usize),
) {
    if queue.avail_notif_needed() {
        transport.get_submission_notifier(index).notify().unwrap();
    }
    let event = transport.get_completion_fd(index);
    let context: PollContext<u32> = PollContext::new().unwrap();
    context.add(&event.as_raw_fd(), 0).unwrap();
    queue.set_used_notif_enabled(true);
    while left > 0 {
        let done: Vec<i32> = queue
            .completions()
            .map(|completion| completion.ret)
            .collect();
        assert!(done.iter().all(|result| *result == 0), "{done:?}");
        left -= done.len();
        if left > 0 && done.is_empty() {
            let _ = context.wait().unwrap();
            let _ = event.read();
        }
    }
}

#[test]
fn virtio_driver_reads_what_it_wrote() {
    let plain = VirtioFeatureFlags::VERSION_1;
    let features = [
        plain,
        plain | VirtioFeatureFlags::RING_EVENT_IDX,
        plain | VirtioFeatureFlags::RING_PACKED,
        plain | VirtioFeatureFlags::RING_PACKED | VirtioFeatureFlags::RING_EVENT_IDX,
    ];
    for features in features {
        // FLUSH, MQ, BLK_SIZE, DISCARD, WRITE_ZEROES and CONFIG_WCE of the block device.
        let wanted = features.bits() | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14;
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(2)), &volume);
        let mut transport: Box<VirtioBlkTransport> =
            Box::new(VhostUser::new(engine.path.to_str().unwrap(), wanted).unwrap());
        assert_eq!(transport.get_features() & features.bits(), features.bits());
        let capacity = transport.get_config().unwrap().capacity;
        assert_eq!(capacity.to_native(), SECTORS);
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, 2, 64).unwrap();
        let memory = Memory::new(32 * BLOCK).unwrap();
        let bytes = memory.segment().address();
        transport
            .map_mem_region(bytes.addr(), 32 * BLOCK, memory.file().as_raw_fd(), 0)
            .unwrap();
        for round in 0..20u64 {
            let index = usize::from(round % 2 == 1);
            let queue = &mut queues[index];
            for block in 0..8u64 {
                let at = usize::try_from(block).unwrap() * BLOCK;
                let content = pattern(round * 8 + block, BLOCK);
                memory.write(Memory::START + u64::try_from(at).unwrap(), &content);
                let offset = (round * 8 + block) * 4096;
                let place = bytes.wrapping_add(at);
                // SAFETY: inside the memory that was mapped, which outlives the request.
                unsafe { queue.write_raw(offset, place, BLOCK, block) }.unwrap();
            }
            finish(&*transport, queue, (index, 8));
            queue.flush(0).unwrap();
            finish(&*transport, queue, (index, 1));
            for block in 0..8u64 {
                let at = (16 + usize::try_from(block).unwrap()) * BLOCK;
                let offset = (round * 8 + block) * 4096;
                let place = bytes.wrapping_add(at);
                // SAFETY: inside the memory that was mapped, which outlives the request.
                unsafe { queue.read_raw(offset, place, BLOCK, block) }.unwrap();
            }
            finish(&*transport, queue, (index, 8));
            for block in 0..8u64 {
                let at = Memory::START + (16 + block) * 4096;
                assert_eq!(memory.read(at, BLOCK), pattern(round * 8 + block, BLOCK));
            }
        }
        queues[0].write_zeroes(0, 4096, false, 0).unwrap();
        queues[0].discard(4096, 4096, 0).unwrap();
        finish(&*transport, &mut queues[0], (0, 2));
        assert_eq!(volume.lock().unwrap().bytes[..8192], [0; 8192]);
        let content = pattern(2, BLOCK);
        assert_eq!(volume.lock().unwrap().bytes[8192..8192 + BLOCK], content);
        assert_eq!(volume.lock().unwrap().durable[8192..8192 + BLOCK], content);
        transport
            .unmap_mem_region(bytes.addr(), 32 * BLOCK)
            .unwrap();
    }
}

fn finish_blkio(queue: &mut Blkioq, count: usize) {
    let mut done: Vec<MaybeUninit<blkio::Completion>> = Vec::new();
    done.resize_with(count, MaybeUninit::uninit);
    let finished = queue.do_io(&mut done, count, None, None).unwrap();
    assert_eq!(finished, count);
    for completion in done {
        // SAFETY: `do_io` filled as many as it says.
        let completion = unsafe { completion.assume_init() };
        assert_eq!(completion.ret, 0);
    }
}

#[test]
fn blkio_reads_what_it_wrote() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(4)), &volume);
    let mut client = Blkio::new("virtio-blk-vhost-user").unwrap();
    client
        .set_str("path", engine.path.to_str().unwrap())
        .unwrap();
    client.connect().unwrap();
    assert_eq!(client.get_u64("capacity").unwrap(), SECTORS * 512);
    assert_eq!(client.get_i32("max-queues").unwrap(), 4);
    assert_eq!(client.get_i32("request-alignment").unwrap(), 512);
    assert_eq!(client.get_i32("optimal-io-size").unwrap(), 512 * 512);
    client.set_i32("num-queues", 2).unwrap();
    client.set_i32("num-poll-queues", 1).unwrap();
    let mut started = client.start().unwrap();
    let region = client.alloc_mem_region(64 * BLOCK).unwrap();
    client.map_mem_region(&region).unwrap();
    // SAFETY: libblkio mapped that memory, of that length, until `client` is dropped.
    let memory = unsafe { memory::Segment::new(region.addr as *mut u8, region.len) };
    let mut queues: Vec<Blkioq> = started.queues.drain(..).collect();
    queues.append(&mut started.poll_queues);
    let none = ReqFlags::empty();
    for (number, queue) in (0u64..).zip(&mut queues) {
        for round in 0..10u64 {
            for block in 0..16u64 {
                let part = memory.part(usize::try_from(block).unwrap() * BLOCK, BLOCK);
                let place = (number * 160 + round * 16 + block) * 4096;
                part.copy_from_slice(&pattern(place, BLOCK));
                queue.write(place, part.address(), BLOCK, 0, none);
            }
            finish_blkio(queue, 16);
            for block in 0..16u64 {
                let part = memory.part(usize::try_from(32 + block).unwrap() * BLOCK, BLOCK);
                let place = (number * 160 + round * 16 + block) * 4096;
                queue.read(place, part.address(), BLOCK, 0, none);
            }
            finish_blkio(queue, 16);
            for block in 0..16u64 {
                let part = memory.part(usize::try_from(32 + block).unwrap() * BLOCK, BLOCK);
                let place = (number * 160 + round * 16 + block) * 4096;
                let mut got = vec![0; BLOCK];
                part.copy_to_slice(&mut got);
                assert_eq!(got, pattern(place, BLOCK), "queue {number} round {round}");
            }
        }
        queue.write_zeroes(number * 4096, 4096, 0, none);
        queue.discard(number * 4096, 4096, 0, none);
        queue.flush(0, none);
        finish_blkio(queue, 3);
    }
    drop(queues);
    client.unmap_mem_region(&region);
}
