//! Members that are lost together with a stop.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// In so many of a thousand such stops more than one member is lost, where that may be.
const SEVERAL: u64 = 300;

impl History {
    /// The drives of members that the array may lose at the same moment: a strict array together
    /// with the power, and any array when the process is killed, if the next one can know what it
    /// had begun. Of each group so many are left as can tell the others.
    pub(super) fn victims(&mut self, world: &World, power: bool) -> Vec<DriveIndex> {
        let map = world.shards[world.home].map();
        let resynced = map.trusted_until.0 >= self.geometry.stripes();
        let logged = self.modes.is_strict() && self.geometry.data() > 1;
        let told = !power && self.is_told && self.started && self.random.happens(800);
        let may = (logged || told) && resynced && self.geometry.parity() > 0;
        let sound = self.is_sound(world) || self.may_lose_more(world);
        if !self.rot.is_empty() || !may || !sound {
            return Vec::new();
        }
        let members = self.geometry.members();
        let first = self.random.position(members);
        let writes = |member: &usize| {
            let drive = map.members[*member].drive;
            let from = self.layout.data.offset;
            let writes = |drive: DriveIndex| world.outside.drives[drive.at()].is_writing_from(from);
            drive.is_some_and(writes)
        };
        let writing = (first..members).chain(0..first).find(writes);
        let first = writing
            .filter(|_| self.random.happens(500))
            .unwrap_or(first);
        let most = if self.random.happens(SEVERAL) {
            members
        } else {
            1
        };
        let in_sync = map
            .members
            .iter()
            .filter(|member| member.state == MapState::InSync);
        let in_sync = in_sync.count();
        let group = self.geometry.group_members();
        let mut lost = vec![0; self.geometry.groups()];
        let mut victims = Vec::new();
        for member in (first..members).chain(0..first) {
            let out = self.out(world, member) + lost[member / group];
            let counts = map.members[member].state == MapState::InSync;
            // Those that are left start by themselves.
            let is_majority = 2 * (victims.len() + 1) < in_sync || victims.is_empty();
            let may = counts && is_majority && victims.len() < most;
            if may && out < self.geometry.parity() {
                victims.push(map.members[member].drive.expect("in sync"));
                lost[member / group] += 1;
            }
        }
        victims
    }

    /// Whether the array lacks members, and what is under way was all begun without them.
    fn may_lose_more(&self, world: &World) -> bool {
        let is_plain = !self.forced && !self.doubts && self.client.lost.is_empty();
        let present = world.shards.iter().all(Shard::is_by_present_members);
        is_plain && present && self.is_soundly_degraded(world)
    }

    /// They are not there any more.
    pub(super) fn lose_victims(
        &mut self,
        drives: &mut [SimDrive],
        (victims, power): (&[DriveIndex], bool),
    ) {
        for victim in victims {
            let drive = &mut drives[victim.at()];
            (drive.gone, drive.hurt) = (true, true);
        }
        let stops = u64::from(!victims.is_empty());
        self.outcome.logged += stops * u64::from(power);
        self.outcome.begun += stops * u64::from(!power);
        self.outcome.lost_together += u64::from(victims.len() > 1);
    }
}
