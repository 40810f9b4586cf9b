//! What shards ask of drives, judged at the drives: no bytes of the array are asked of a drive
//! that is no member by the map of the shard that asks, and none are read where its member lacks
//! them. What comes back is judged elsewhere, and a shard that does not believe it goes on well all
//! the same: so one that asks in vain is seen here only.

use array::{ArrayMap, MapState, MemberRequest};
use block::Operation;
use units::{DriveIndex, MemberIndex, StripeIndex};

/// One request.
#[derive(Clone, Copy, Debug)]
struct Ask {
    drive: DriveIndex,
    operation: Operation,
    offset: u64,
    length: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    asks: Vec<Ask>,
}

impl Watch {
    /// A drive is asked.
    pub(super) fn note(&mut self, request: &MemberRequest) {
        if request.operation != Operation::Flush {
            self.asks.push(Ask {
                drive: request.drive,
                operation: request.operation,
                offset: request.offset,
                length: request.length,
            });
        }
    }

    /// All that a shard has asked in one event. It may have heard of a new map meanwhile.
    pub(super) fn judge(&mut self, before: &ArrayMap, after: &ArrayMap) {
        for ask in self.asks.drain(..) {
            if let Err(why) = may_ask(before, &ask).or_else(|_| may_ask(after, &ask)) {
                panic!("a drive is asked that {why}: {ask:?}");
            }
        }
    }
}

/// Whether a shard that acts by `map` may ask for this.
fn may_ask(map: &ArrayMap, ask: &Ask) -> Result<(), &'static str> {
    let of_drive = |member: &array::MapMember| member.drive == Some(ask.drive);
    let Some(position) = map.members.iter().position(of_drive) else {
        // One that is about to come in gets records, and nothing else.
        let first = map.members.iter().map(|member| member.data_offset).max();
        return match first.is_none_or(|first| ask.offset < first) {
            true => Ok(()),
            false => Err("is no member"),
        };
    };
    let entry = &map.members[position];
    if ask.offset < entry.data_offset {
        return Ok(());
    }
    if entry.state == MapState::Lost {
        return Err("is out");
    }
    if ask.operation == Operation::Read && entry.state != MapState::InSync {
        let (geometry, member) = (&map.geometry, MemberIndex::from_at(position));
        let block = |byte: u64| (byte - entry.data_offset) / geometry.block_size().bytes();
        let stripe = |byte: u64| geometry.stripe_at(member, block(byte)).0;
        for stripe in stripe(ask.offset)..=stripe(ask.offset + ask.length - 1) {
            let stripe = StripeIndex(stripe);
            let role = geometry.role(stripe, member);
            // What the open window has filled, only the owner of the stripe knows.
            if role.is_some_and(|role| map.lost(stripe, true).has(role)) {
                return Err("lacks what is read");
            }
        }
    }
    Ok(())
}
