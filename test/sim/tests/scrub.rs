//! What a scrub makes of single blocks, one case at a time.

use array::format::Layout;
use array::{
    Command, Event, Geometry, GeometryParameters, Level, ScrubCause, ScrubFinding, ScrubOrder,
    ScrubOutcome, ScrubState,
};
use sim::drive::SimDrive;
use sim::world::{World, new_config};
use units::{BlockSize, MemberIndex, Role, RoleSet, StripeIndex};

const ROWS: u64 = 48;
const STRIPE: StripeIndex = StripeIndex(9);

/// An array whose blocks all read as zero, and where they are.
struct Bench {
    world: World,
    geometry: Geometry,
    layout: Layout,
    commands: u64,
}

impl Bench {
    fn new(level: Level, members: usize) -> Bench {
        let layout = Layout::for_member(64 << 20, BlockSize::B512, members).expect("large enough");
        let geometry = Geometry::new(GeometryParameters {
            level,
            members,
            parity: None,
            group_size: None,
            chunk_bytes: 4096,
            block: BlockSize::B512,
            member_data_blocks: ROWS * 8,
        })
        .expect("a good shape");
        let drives = (0..members)
            .map(|_| SimDrive::new(BlockSize::B512))
            .collect();
        let config = new_config(&geometry, true);
        let world = World::start(geometry, config, &layout, (drives, 2), 7);
        Bench {
            world,
            geometry,
            layout,
            commands: 5000,
        }
    }

    /// The drive and its block of a lane of a role's chunk.
    fn place(&self, role: usize, lane: u64) -> (usize, u64) {
        let (member, _) = self.world.shards[0]
            .map()
            .member(STRIPE, Role::from_at(role));
        let block = self.layout.data.offset / 512 + self.geometry.member_block(STRIPE) + lane;
        (member.at(), block)
    }

    fn rot(&mut self, role: usize, lane: u64) {
        let (drive, block) = self.place(role, lane);
        let mut content = self.world.outside.drives[drive].block(block);
        content[17 + role] ^= 0x20;
        self.world.outside.drives[drive].put(block * 512, &content);
    }

    fn is_zero(&self, role: usize, lane: u64) -> bool {
        let (drive, block) = self.place(role, lane);
        self.world.outside.drives[drive].block(block) == [0; 512]
    }

    fn command(&mut self, command: Command) {
        self.commands += 1;
        self.world.command(self.commands, command).expect("it may");
    }

    /// Scrubs everything, and gives what was found, by block.
    fn scrub(&mut self) -> Vec<ScrubFinding> {
        self.command(Command::Scrub(ScrubOrder::StartOver));
        self.world.run_until(|world| {
            let scrub = world.shards[0].scrub_status().expect("home");
            scrub.record.state == ScrubState::Idle
        });
        let events = std::mem::take(&mut self.world.outside.events);
        let mut found: Vec<ScrubFinding> = events
            .into_iter()
            .filter_map(|event| {
                if let Event::Scrubbed(finding) = event {
                    Some(finding)
                } else {
                    None
                }
            })
            .collect();
        found.sort_by_key(|finding| finding.block);
        found
    }
}

fn finding(block: u32, wrong: &[usize], cause: ScrubCause, outcome: ScrubOutcome) -> ScrubFinding {
    let wrong: RoleSet = wrong.iter().map(|&role| Role::from_at(role)).collect();
    ScrubFinding {
        stripe: STRIPE,
        block,
        wrong,
        cause,
        outcome,
    }
}

#[test]
fn each_block_of_a_chunk_is_judged_by_itself() {
    use ScrubCause::Mismatch;
    use ScrubOutcome::{NotLocated, Repaired};
    let mut bench = Bench::new(Level::L6, 5);
    bench.rot(0, 2);
    bench.rot(4, 3);
    // Two at one block, and there alone.
    bench.rot(1, 5);
    bench.rot(2, 5);
    let found = bench.scrub();
    assert_eq!(
        found,
        [
            finding(2, &[0], Mismatch, Repaired),
            finding(3, &[4], Mismatch, Repaired),
            finding(5, &[], Mismatch, NotLocated),
        ]
    );
    assert!(bench.is_zero(0, 2) && bench.is_zero(4, 3));
    assert!(!bench.is_zero(1, 5) && !bench.is_zero(2, 5));
    assert_eq!(
        bench.world.shards[0]
            .scrub_status()
            .expect("home")
            .record
            .tally
            .unrepaired,
        1
    );
}

#[test]
fn what_cannot_be_read_brings_nothing_wrong_into_the_rest_of_its_chunk() {
    use ScrubCause::{Mismatch, Unreadable};
    use ScrubOutcome::{NotLocated, Repaired};
    let mut bench = Bench::new(Level::L5, 3);
    let (drive, block) = bench.place(0, 3);
    bench.world.outside.drives[drive].bad.insert(block);
    bench.rot(1, 6);
    let found = bench.scrub();
    assert_eq!(
        found,
        [
            finding(3, &[0], Unreadable, Repaired),
            finding(6, &[], Mismatch, NotLocated),
        ]
    );
    assert!(bench.world.outside.drives[drive].bad.is_empty());
    assert!(bench.is_zero(0, 3) && bench.is_zero(0, 6) && !bench.is_zero(1, 6));
}

#[test]
fn a_block_that_cannot_be_read_takes_a_check_from_those_that_can() {
    let mut six = Bench::new(Level::L6, 5);
    let mut seven = Bench::new(Level::L7, 6);
    for bench in [&mut six, &mut seven] {
        let (drive, block) = bench.place(0, 3);
        bench.world.outside.drives[drive].bad.insert(block);
        bench.rot(1, 3);
    }
    let (cause, repaired) = (ScrubCause::Mismatch, ScrubOutcome::Repaired);
    assert_eq!(
        six.scrub(),
        [finding(3, &[], cause, ScrubOutcome::NotLocated)]
    );
    assert!(!six.is_zero(1, 3), "nothing was changed");
    assert_eq!(seven.scrub(), [finding(3, &[0, 1], cause, repaired)]);
    assert!(seven.is_zero(0, 3) && seven.is_zero(1, 3));
}

#[test]
fn a_member_that_is_out_takes_a_check_too() {
    let mut six = Bench::new(Level::L6, 5);
    let mut seven = Bench::new(Level::L7, 6);
    for bench in [&mut six, &mut seven] {
        let (out, _) = bench.place(2, 0);
        let member = MemberIndex::from_at(out);
        bench.command(Command::Fail { member });
        bench.rot(1, 3);
    }
    let (cause, repaired) = (ScrubCause::Mismatch, ScrubOutcome::Repaired);
    assert_eq!(
        six.scrub(),
        [finding(3, &[], cause, ScrubOutcome::NotLocated)]
    );
    assert!(!six.is_zero(1, 3), "nothing was changed");
    assert_eq!(seven.scrub(), [finding(3, &[1], cause, repaired)]);
    assert!(seven.is_zero(1, 3));
}

#[test]
fn a_drive_that_does_not_keep_what_it_is_given_is_told_of() {
    let mut bench = Bench::new(Level::L6, 5);
    bench.rot(1, 3);
    let (drive, block) = bench.place(1, 3);
    bench.world.outside.drives[drive].forgets.insert(block);
    let expected = finding(3, &[1], ScrubCause::Mismatch, ScrubOutcome::NotKept);
    assert_eq!(bench.scrub(), [expected]);
    assert_eq!(bench.world.shards[0].scrub_guilt().len(), 5);
    bench.world.outside.drives[drive].forgets.clear();
    assert_eq!(bench.scrub()[0].outcome, ScrubOutcome::Repaired);
    assert_eq!(bench.scrub(), []);
}

#[test]
fn what_too_few_chunks_can_tell_is_lost_and_the_scrub_goes_on() {
    let mut bench = Bench::new(Level::L5, 3);
    for role in [0, 1] {
        let (drive, block) = bench.place(role, 3);
        bench.world.outside.drives[drive].bad.insert(block);
    }
    let expected = finding(3, &[0, 1], ScrubCause::Unreadable, ScrubOutcome::Lost);
    assert_eq!(bench.scrub(), [expected]);
    let status = bench.world.shards[0].scrub_status().expect("home");
    assert_eq!(status.record.tally.unrepaired, 1);
}
