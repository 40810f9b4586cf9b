//! The world as one shard sees it.

use array::{Event, Help, Io, MemberRequest, Message, Times};
use block::{Completion, Full, Operation};
use units::{DriveIndex, Instant, ReactorIndex, bytes_u64};

use super::{CREDITS_KEPT, Ports, mix, trace_after};

impl Io for Ports<'_> {
    fn now(&self) -> Instant {
        self.outside.now
    }
    fn drive_room(&self) -> usize {
        self.room
    }
    fn drive(&mut self, request: MemberRequest) {
        self.room = self.room.checked_sub(1).expect("it looks for room before");
        let now = self.outside.now;
        let drive = bytes_u64(request.drive.at());
        let place = mix(request.offset, request.length);
        let operation = match request.operation {
            Operation::Read => 1,
            Operation::Write => 2,
            Operation::Flush => 3,
            Operation::Discard => 4,
            Operation::WriteZeroes => 5,
        };
        self.outside.note(now.0, operation << 32 | drive);
        self.outside.note(self.me.0.into(), place);
        if request.operation == Operation::Write {
            for segment in request.segments.as_slice() {
                let mut first = [0; 8];
                let bytes = first.len().min(segment.len());
                segment.part(0, bytes).copy_to_slice(&mut first[..bytes]);
                self.outside.note(11, u64::from_le_bytes(first));
            }
        }
        self.outside.watch.note(&request);
        self.outside.drives[request.drive.at()].submit((self.me, now), request);
    }
    /// As ports say it, whatever is wrong with the drive besides.
    fn keeps_all(&self, drive: DriveIndex) -> bool {
        self.outside.drives[drive.at()].keeps_all
    }
    fn times(&self, drive: DriveIndex) -> Option<Times<'_>> {
        self.outside.drives[drive.at()].times(self.me)
    }
    fn ask(&mut self, to: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        assert_ne!(to, self.me, "a shard does not write to itself");
        let credits = &mut self.outside.credits[self.me.at()][to.at()];
        // As in production, work leaves room for what lets work end.
        let is_work = matches!(
            message,
            Message::Work(_) | Message::Dirty { .. } | Message::Lend(_)
        );
        if *credits <= if is_work { CREDITS_KEPT } else { 0 } {
            return Err(Full(message));
        }
        *credits -= 1;
        self.outside.note(6, bytes_u64(to.at()));
        self.outside.mail[self.me.at()][to.at()].push_back((message, true));
        Ok(())
    }
    /// Often somebody, who has begun with some pieces, or comes too late for any.
    fn help(&mut self) -> Help {
        let drawn = mix(self.outside.trace, self.outside.now.0 ^ 12);
        let mut help = Help::NOBODY;
        for reactor in (0..self.outside.mail.len()).map(ReactorIndex::from_at) {
            let idle = drawn >> (8 + reactor.at()) & 1 == 0;
            if reactor != self.me && idle && !help.add(reactor) {
                break;
            }
        }
        help.own = match drawn % 8 {
            few @ 0..6 => u32::try_from(few).expect("small"),
            _ => u32::MAX,
        };
        help
    }
    fn reply(&mut self, to: ReactorIndex, message: Message) {
        self.outside.note(7, bytes_u64(to.at()));
        self.outside.mail[self.me.at()][to.at()].push_back((message, false));
    }
    fn complete(&mut self, completion: Completion) {
        let well = u64::from(completion.status.is_ok());
        self.outside.note(8 + well, completion.cookie.0);
        self.outside.completions.push((self.me, completion));
    }
    fn event(&mut self, event: Event) {
        self.outside.trace = trace_after(self.outside.trace, &event);
        self.outside.events.push(event);
    }
}
