//! More fails than the array survives, in the middle of a write: a read that goes well then brings
//! what was there.

use array::format::Layout;
use array::{Command, Geometry, GeometryParameters, Level};
use block::{Cookie, Operation, Part, Request, Stability, Status};
use memory::{Backing, Buffer, Pages, Pool, SegmentSlots};
use sim::drive::{Failing, Failure, SimDrive};
use sim::world::{World, new_config, take_completion};
use units::{BlockSize, ReactorIndex, Role, StripeIndex, bytes_u64};

const MEMBERS: usize = 4;
const ROWS: u64 = 48;
const STRIPE: StripeIndex = StripeIndex(9);

/// Level 6 without the member that has the first chunk of the stripe. Everything is zeroes.
fn degraded() -> (World, Geometry) {
    let layout = Layout::for_member(64 << 20, BlockSize::B512, MEMBERS).expect("large enough");
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L6,
        members: MEMBERS,
        parity: None,
        group_size: None,
        chunk_bytes: 4096,
        block: BlockSize::B512,
        member_data_blocks: ROWS * 8,
    })
    .expect("a good shape");
    let new = |_| SimDrive::new(BlockSize::B512);
    let drives = (0..MEMBERS).map(new).collect();
    let config = new_config(&geometry, true);
    let mut world = World::start(geometry, config, &layout, (drives, 1), 7);
    let member = geometry.member(STRIPE, Role::from_at(0));
    let failed = world.command(5000, Command::Fail { member });
    failed.expect("two may be lost");
    (world, geometry)
}

/// A guest with a block of memory for each of two requests.
struct Guest {
    pool: Pool,
    lists: SegmentSlots,
    buffers: Vec<Buffer>,
}

impl Guest {
    fn new() -> Guest {
        let backing = Backing::Anonymous(Pages::Plain);
        Guest {
            pool: Pool::new(2, 4096, backing).expect("memory"),
            lists: SegmentSlots::new(2, 4),
            buffers: Vec::new(),
        }
    }

    /// The answer to a request for one block, and what is in its memory then.
    fn ask(
        &mut self,
        world: &mut World,
        (operation, start): (Operation, u64),
        fill: u8,
    ) -> (Status, Vec<u8>) {
        let slot = self.buffers.len();
        let buffer = self.pool.acquire().expect("one for each");
        let segment = self.pool.segment(&buffer).part(0, 512);
        self.buffers.push(buffer);
        segment.fill(fill);
        let cookie = 100 + bytes_u64(slot);
        let request = Request {
            operation,
            start,
            blocks: 1,
            part: Part::WHOLE,
            segments: self.lists.lend(slot, |list| list.push(segment)),
            stability: Stability::MayChange,
            cookie: Cookie(cookie),
        };
        assert!(world.submit(ReactorIndex(0), request), "there is room");
        world.run_until(|world| !world.outside.completions.is_empty());
        let status = take_completion(world, cookie).expect("there is no other");
        let mut found = vec![0; 512];
        segment.copy_to_slice(&mut found);
        (status, found)
    }

    fn leave(mut self) {
        for (slot, buffer) in self.buffers.drain(..).enumerate() {
            self.lists.take_back(slot);
            self.pool.release(buffer);
        }
    }
}

/// One drive takes no flush any more and two take no writes, each after so many; all can be read.
/// One of them has the written block by then, and parity has not: the array cannot write its record
/// and takes no more writes, but its stripe is torn.
#[test]
fn nothing_is_made_of_parity_that_a_failed_write_has_torn() {
    let (mut world, geometry) = degraded();
    let faults = [
        (Failure::Writes, 0),
        (Failure::Flushes, 2),
        (Failure::Writes, 2),
        (Failure::Writes, 2),
    ];
    for (drive, (what, after)) in world.outside.drives.iter_mut().zip(faults) {
        drive.failing = Some(Failing {
            what,
            after,
            count: u64::MAX,
            status: Status::Media,
        });
    }
    let first = STRIPE.0 * u64::from(geometry.stripe_blocks());
    let second = first + u64::from(geometry.chunk_blocks());
    let mut guest = Guest::new();
    let (written, _) = guest.ask(&mut world, (Operation::Write, second), 0x5A);
    assert!(!written.is_ok(), "too many have failed");
    // Nobody has ever written this one.
    let (status, found) = guest.ask(&mut world, (Operation::Read, first), 0xDD);
    drop(world.die());
    guest.leave();
    assert!(!status.is_ok() || found == [0; 512], "{:x?}", &found[..8]);
}
