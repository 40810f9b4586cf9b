//! Guests that have rings, and outlive an engine with them.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::rings::{Asks, RingCounts};

/// Of a thousand requests that may go through a ring, so many do.
const OFTEN: u64 = 600;
/// Below are the slots of requests without a ring.
const FIRST_KEY: usize = 1000;

impl Client {
    /// Some guests have rings.
    pub(crate) fn give_rings(&mut self, rings: Option<Rings>) {
        self.rings = rings;
    }

    /// Whether some have.
    #[must_use]
    pub fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Requests that may be under way besides those without a ring.
    pub(super) fn ring_room(&self) -> usize {
        if self.rings.is_some() { KEPT } else { 0 }
    }

    /// What rings have counted.
    #[must_use]
    pub fn ring_counts(&self) -> RingCounts {
        self.rings
            .as_ref()
            .map(|rings| rings.counts)
            .unwrap_or_default()
    }

    /// As `submit`, or through a ring.
    pub fn offer(&mut self, asked: Asked, world: &mut World) -> bool {
        let through = self.rings.is_some() && world.random.happens(OFTEN);
        (through && self.put_into_a_ring(&asked, world)) || self.submit(asked, world)
    }

    fn put_into_a_ring(&mut self, asked: &Asked, world: &mut World) -> bool {
        let is_there = self.disks.contains_key(&asked.volume);
        if !is_there || self.hidden == Some(asked.volume) || self.is_kept_off(asked) {
            return false;
        }
        let (first, bytes) = self.bytes_of(asked);
        let asks = Asks {
            volume: asked.volume,
            operation: asked.operation,
            place: (bytes_u64(first), bytes_u64(bytes)),
            bytes: &asked.bytes,
        };
        let key = (FIRST_KEY..).find(|key| !self.pending.contains_key(key));
        let key = key.expect("few are under way");
        let rings = self.rings.as_mut().expect("looked at");
        let Some(memory) = rings.submit(asks, key) else {
            return false;
        };
        if asked.operation == Operation::Read {
            memory.fill(0xEE);
        }
        let asked = asked.clone();
        let token = self.begin(&asked);
        let pieces = self.pieces_of(&asked);
        self.begun += 1;
        let writes = asked.operation == Operation::Write;
        let restless = self.restless && writes && !self.is_stable(asked.volume);
        let changes = if restless && world.random.happens(500) {
            world.random.below(CHANGES)
        } else {
            0
        };
        self.pending.insert(
            key,
            Pending {
                number: self.begun,
                changes,
                may_fail: self.may_meet_lost(asked.operation, &pieces),
                token,
                memory,
                buffer: None,
                reactor: ReactorIndex(0),
                submitted: pieces.len(),
                answered: 0,
                pieces,
                status: Status::Ok,
                asked,
            },
        );
        true
    }

    /// The first byte of a request in its volume, and how many bytes it is about.
    fn bytes_of(&self, asked: &Asked) -> (usize, usize) {
        let first = bytes_usize(asked.start) * self.block + usize::from(asked.part.offset);
        match asked.operation {
            Operation::Flush => (0, 0),
            _ => (first, asked.length),
        }
    }

    /// What may happen to rings between two events of the world.
    pub fn turn_rings(&mut self, world: &mut World) {
        if self.rings.as_mut().is_some_and(Rings::truncates) {
            self.truncate_rings();
        }
        let Client { rings, disks, .. } = self;
        let Some(rings) = rings else {
            return;
        };
        rings.turn(world, |volume| disks.get(&volume).map(|disk| &disk.map));
    }

    /// Judges what guests found in their rings.
    ///
    /// # Panics
    /// When an answer is wrong.
    pub fn judge_rings(&mut self) {
        let Some(rings) = &mut self.rings else {
            return;
        };
        for answer in rings.take_answers() {
            let mut pending = self.pending.remove(&answer.key).expect("it waits");
            pending.status = match answer.status {
                Some(0) => Status::Ok,
                Some(1) => Status::Media,
                // The guest does not wait any more, whatever comes of it.
                None => {
                    self.forsake(pending);
                    continue;
                }
                Some(other) => panic!("status {other} for {:?}", pending.asked),
            };
            self.judge(pending, &answer.found, answer.durable);
        }
    }

    /// A front-end cuts all memory off in which guests have rings, and what they write is zeroes
    /// from now on; unless one of them has promised that it is not.
    fn truncate_rings(&mut self) {
        let mut writes: Vec<&mut Pending> = self
            .pending
            .range_mut(FIRST_KEY..)
            .map(|(_, pending)| pending)
            .filter(|pending| pending.asked.operation == Operation::Write)
            .collect();
        let promised = |pending: &&mut Pending| {
            let disk = self.disks.get(&pending.asked.volume);
            disk.is_some_and(|disk| disk.map.stability() == Stability::Stable)
        };
        if writes.iter().any(promised) {
            return;
        }
        for pending in &mut writes {
            let Pending { asked, token, .. } = &**pending;
            let first = bytes_usize(asked.start) * self.block + usize::from(asked.part.offset);
            let disk = self.disks.get_mut(&asked.volume).expect("in use");
            if let Token::Write(write) = token {
                disk.model
                    .change_write(write, first, &vec![0; asked.length]);
            }
            pending.changes = 0;
        }
        if let Some(rings) = &mut self.rings {
            rings.truncate();
        }
    }

    /// Nobody waits for the answer.
    fn forsake(&mut self, pending: Pending) {
        let disk = self.disks.get_mut(&pending.asked.volume).expect("in use");
        match pending.token {
            Token::Write(write) => disk.model.fail_write(write),
            Token::Read(read) => disk.model.abandon_read(&read),
            Token::Flush(_) => {}
        }
    }

    /// Whether requests are under way in rings.
    #[must_use]
    pub fn has_rings_in_use(&self) -> bool {
        let are_there = self
            .rings
            .as_ref()
            .is_some_and(|rings| !rings.is_truncated());
        are_there && self.pending.range(FIRST_KEY..).next().is_some()
    }

    /// The engine has died, and guests with rings live on. Gives what others had under way.
    pub fn outlive(&mut self) -> Vec<Asked> {
        let kept = self.pending.split_off(&FIRST_KEY);
        for (uuid, disk) in &mut self.disks {
            let mut goes_on = model::Kept::default();
            for pending in kept
                .values()
                .filter(|pending| pending.asked.volume == *uuid)
            {
                match &pending.token {
                    Token::Write(write) => goes_on.writes.push(write),
                    Token::Read(read) => goes_on.reads.push(read),
                    Token::Flush(_) => {}
                }
            }
            disk.model.stop_but(&goes_on);
        }
        for pending in kept.values() {
            self.note_half_written(pending);
        }
        let left = self.leave();
        self.pending = kept;
        self.let_engine_go();
        left
    }

    /// Queues of an engine that is not there any more.
    pub fn let_engine_go(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.outlive();
        }
    }
}
