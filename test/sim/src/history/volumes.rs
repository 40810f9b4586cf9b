//! The volume table of a history: volumes are created, grown and deleted.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::rings::is_of_a_ring;

impl History {
    pub(super) fn change_volumes(&mut self, world: &mut World) {
        if self.given.is_some() || self.change.is_some() || !self.rot.is_empty() {
            return;
        }
        let coordinator = world.shards[world.home].coordinator().expect("home");
        let mut config = coordinator.config().clone();
        let superblock = self.superblock(MemberIndex(0), Uuid::nil());
        let space = superblock.extents();
        let mut table = VolumeTable::new(&mut config, &superblock);
        let extent = space.extent_blocks();
        let volumes: Vec<Uuid> = self.client.disks.keys().copied().collect();
        let chosen = volumes
            .get(self.random.position(volumes.len().max(1)))
            .copied();
        let mut change = None;
        match (self.random.below(4), chosen) {
            (0 | 1, _) | (_, None) if volumes.len() < 3 => {
                let blocks = 1 + self
                    .random
                    .below((3 * extent).min(VOLUME_BYTES_MAX / self.block_bytes()));
                let uuid = Uuid::from_u128(u128::from(self.random.next()));
                let new = NewVolume {
                    uuid,
                    name: format!("v{}", self.command),
                    size: Size(blocks * self.block_bytes()),
                    stable_buffers: uuid.as_u128().is_multiple_of(2),
                };
                if let Ok(zeroing) = table.create(new) {
                    change = Some((uuid, None, zeroing));
                }
            }
            (0..=2, Some(uuid)) => {
                let blocks = self.client.blocks(uuid) + self.random.below(2 * extent);
                let size = Size((blocks * self.block_bytes()).min(VOLUME_BYTES_MAX));
                if let Ok(zeroing) = table.grow(uuid, size) {
                    change = Some((uuid, Some(size), zeroing));
                }
            }
            (_, Some(uuid)) if !self.client.uses(uuid) && self.random.happens(300) => {
                table.delete(uuid).expect("it is ready");
                self.client.hidden = Some(uuid);
                change = Some((uuid, None, Zeroing::default()));
            }
            _ => {}
        }
        let Some((uuid, grows_to, zeroing)) = change else {
            return;
        };
        self.change = Some(Change {
            uuid,
            grows_to,
            zeroing: zeroing.blocks(&space).collect(),
            queue: Vec::new(),
            parts: Vec::new(),
            again: false,
            missing: 0,
            finishing: false,
        });
        self.give_volumes(world, config);
    }

    pub(super) fn give_volumes(&mut self, world: &mut World, config: ArrayConfig) {
        let (volumes, unzeroed) = (config.volumes, config.unzeroed);
        self.give(
            world,
            Given::Volumes,
            Command::Volumes { volumes, unzeroed },
        );
    }

    pub(super) fn advance_change(&mut self, world: &mut World) {
        let Some(change) = &mut self.change else {
            return;
        };
        while let Some((start, blocks)) = change.queue.pop() {
            let reactor = ReactorIndex::from_at(world.random.position(world.shards.len()));
            let request = Request {
                operation: Operation::WriteZeroes,
                start,
                blocks,
                part: Part::WHOLE,
                segments: SegmentList::EMPTY,
                stability: Stability::MayChange,
                cookie: Cookie(1 << 32),
            };
            if !world.submit(reactor, request) {
                change.queue.push((start, blocks));
                return;
            }
            change.missing += 1;
        }
        if change.again && change.missing == 0 {
            change.again = false;
            change.queue.clone_from(&change.parts);
            return;
        }
        let zeroed = !change.zeroing.is_empty() && change.missing == 0 && !change.finishing;
        // The first record is not through while its command is under way.
        if !zeroed || self.given.is_some() {
            return;
        }
        change.finishing = true;
        let (uuid, grows_to) = (change.uuid, change.grows_to);
        let coordinator = world.shards[world.home].coordinator().expect("home");
        let mut config = coordinator.config().clone();
        let superblock = self.superblock(MemberIndex(0), Uuid::nil());
        let mut table = VolumeTable::new(&mut config, &superblock);
        match grows_to {
            None => table.finish_create(uuid).expect("it is being created"),
            Some(size) => table.finish_grow(uuid, size).expect("it grows"),
        }
        self.give_volumes(world, config);
    }

    pub(super) fn collect_zeroing(&mut self, world: &mut World) {
        let may_fail = self.client.doomed || self.holds.gave_up || self.client.is_refused;
        let Some(change) = &mut self.change else {
            return;
        };
        world.outside.completions.retain(|(_, completion)| {
            if completion.cookie.0 < bytes_u64(IN_FLIGHT) || is_of_a_ring(completion) {
                return true;
            }
            let well = completion.status.is_ok();
            assert!(may_fail || well, "zeroing: {completion:?}");
            change.again |= !well;
            change.missing -= 1;
            false
        });
    }
    /// A volume table is durable: what is to be zeroed is, and guests follow.
    pub(super) fn volumes_done(&mut self, world: &World) {
        let config = world.shards[world.home]
            .coordinator()
            .expect("home")
            .config();
        self.forget_deleted(&config.clone());
        let finished = match &mut self.change {
            Some(change) if !change.finishing && !change.zeroing.is_empty() => {
                let extent = disks::superblock(
                    self.geometry,
                    &self.layout,
                    MemberIndex(0),
                    Uuid::nil(),
                    self.extent_stripes,
                )
                .extents()
                .extent_blocks();
                for &(mut start, mut left) in &change.zeroing {
                    while left > 0 {
                        let most = 1 + self.random.below(2 * extent);
                        let blocks = left.min(most);
                        change
                            .queue
                            .push((start, u32::try_from(blocks).expect("few")));
                        start += blocks;
                        left -= blocks;
                    }
                }
                change.parts.clone_from(&change.queue);
                false
            }
            _ => true,
        };
        if finished {
            self.change = None;
            let space = self.superblock(MemberIndex(0), Uuid::nil()).extents();
            self.client.follow(config, &space);
        }
    }
}
