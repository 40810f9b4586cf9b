//! How rings reach the shards of a world.

use array::{Io, Shard};
use block::Completion;
use units::ReactorIndex;

use std::sync::Arc;

use super::{Ports, World};

impl World {
    /// The shard of a reactor, and what it meets. Whoever is done says so (`shut`).
    pub fn door(&mut self, reactor: ReactorIndex) -> (&mut Shard, impl Io) {
        self.asleep[reactor.at()] = None;
        let shard = &mut self.shards[reactor.at()];
        (shard, Ports::of(&mut self.outside, reactor))
    }

    /// What was asked through the door is looked at, by the map of that shard.
    pub fn shut(&mut self, reactor: ReactorIndex) {
        let map = Arc::clone(self.shards[reactor.at()].map());
        self.outside.watch.judge(&map, &map);
    }

    /// Takes the answers on a reactor that are for whoever asked with such a cookie.
    pub fn take_answers(
        &mut self,
        reactor: ReactorIndex,
        mine: impl Fn(&Completion) -> bool,
    ) -> Vec<Completion> {
        let taken =
            |(at, completion): &mut (ReactorIndex, Completion)| *at == reactor && mine(completion);
        let completions = &mut self.outside.completions;
        let taken = completions.extract_if(.., taken);
        taken.map(|(_, completion)| completion).collect()
    }
}
