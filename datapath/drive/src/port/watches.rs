//! File descriptors that wake a sleeping reactor.
//!
//! A watch is armed when the reactor goes to sleep and disarmed by firing, and the kernel looks at
//! the descriptor's state when it is armed: so a busy reactor pays nothing, and no kick is lost.

use std::os::fd::RawFd;

use super::keys::{self, Key};
use crate::uring::Ring;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not known to the kernel.
    Disarmed,
    /// The kernel will answer.
    Armed,
    /// Not wanted any more; the kernel will still answer.
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watch {
    fd: RawFd,
    token: u64,
    state: State,
}

/// All watches of a port.
#[derive(Debug, Default)]
pub(super) struct Watches {
    places: Vec<Option<Watch>>,
    disarmed: Vec<u32>,
    fired: Vec<u64>,
    /// Those that the kernel cannot watch: told in `fired` as well, and gone.
    lost: Vec<u64>,
}

impl Watches {
    pub(super) fn add(&mut self, fd: RawFd, token: u64) {
        let watch = Watch {
            fd,
            token,
            state: State::Disarmed,
        };
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(watch);
        self.disarmed.push(keys::place(place));
        // Each watch fires at most once before it is armed again, so this is all the room needed.
        self.fired.reserve(self.places.len());
        self.lost.reserve(self.places.len());
    }

    /// Ends all watches of `token`.
    pub(super) fn remove(&mut self, token: u64, ring: &mut Ring) {
        self.fired.retain(|fired| *fired != token);
        self.lost.retain(|lost| *lost != token);
        for place in 0..self.places.len() {
            let Some(watch) = &mut self.places[place] else {
                continue;
            };
            if watch.token != token {
                continue;
            }
            match watch.state {
                State::Disarmed => {
                    self.places[place] = None;
                    self.disarmed.retain(|at| keys::at(*at) != place);
                }
                State::Armed => {
                    watch.state = State::Leaving;
                    let watch_key = Key::Watch(keys::place(place)).encode();
                    while !ring.stop_watch(watch_key, Key::Ignored.encode()) {
                        ring.turn();
                    }
                }
                State::Leaving => {}
            }
        }
    }

    /// Arms every watch that is not. What finds no room in the ring is armed the next time; false
    /// says that there is such a one.
    pub(super) fn arm(&mut self, ring: &mut Ring) -> bool {
        while let Some(place) = self.disarmed.last().copied() {
            let watch = self.places[keys::at(place)]
                .as_mut()
                .expect("disarmed watches are there");
            if !ring.start_watch(watch.fd, Key::Watch(place).encode()) {
                return false;
            }
            watch.state = State::Armed;
            self.disarmed.pop();
        }
        true
    }

    /// The kernel answered for the watch at `place`.
    pub(super) fn answered(&mut self, place: u32, result: i32) {
        let entry = &mut self.places[keys::at(place)];
        let watch = entry.as_mut().expect("a watch stays until it is answered");
        match watch.state {
            State::Leaving => *entry = None,
            State::Armed if result >= 0 => {
                watch.state = State::Disarmed;
                self.fired.push(watch.token);
                self.disarmed.push(place);
            }
            State::Armed => {
                // The descriptor cannot be watched (closed, or of a wrong kind). Its owner is told
                // once; arming it again would keep the reactor awake for ever.
                self.fired.push(watch.token);
                self.lost.push(watch.token);
                *entry = None;
            }
            State::Disarmed => unreachable!("the kernel answers once per arming"),
        }
    }

    pub(super) fn any_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    pub(super) fn take_fired(&mut self, tokens: &mut Vec<u64>) {
        tokens.append(&mut self.fired);
    }

    pub(super) fn take_lost(&mut self) -> Option<u64> {
        self.lost.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    /// Sleeps until the kernel answered for so many watches or removals.
    fn answers(ring: &mut Ring, watches: &mut Watches, wanted: usize) {
        let mut seen = 0;
        while seen < wanted {
            ring.sleep(None);
            let mut answers = Vec::new();
            ring.reap(&mut answers);
            seen += answers.len();
            for answer in answers {
                if let Key::Watch(place) = Key::decode(answer.key) {
                    watches.answered(place, answer.result);
                }
            }
        }
    }

    #[test]
    fn a_watch_that_was_ended_leaves_nothing_behind() {
        let mut ring = Ring::new(64, 1).unwrap();
        let mut watches = Watches::default();
        let (reader, mut writer) = std::io::pipe().unwrap();
        for _ in 0..3 {
            watches.add(reader.as_raw_fd(), 7);
            assert!(watches.arm(&mut ring));
            watches.remove(7, &mut ring);
            answers(&mut ring, &mut watches, 2);
            assert_eq!(watches.places, [None]);
        }
        writer.write_all(b"kick").unwrap();
        watches.add(reader.as_raw_fd(), 7);
        assert!(watches.arm(&mut ring));
        answers(&mut ring, &mut watches, 1);
        assert!(watches.any_fired());
        watches.remove(7, &mut ring);
        assert!(
            !watches.any_fired(),
            "its owner does not know the token any more"
        );
        assert_eq!(watches.places, [None]);
        assert!(watches.disarmed.is_empty());
    }

    #[test]
    fn a_watch_of_a_closed_file_is_told_once_and_ends() {
        let mut ring = Ring::new(64, 1).unwrap();
        let mut watches = Watches::default();
        watches.add(-1, 9);
        assert!(watches.arm(&mut ring));
        answers(&mut ring, &mut watches, 1);
        let mut tokens = Vec::new();
        watches.take_fired(&mut tokens);
        assert_eq!(tokens, [9]);
        assert_eq!((watches.take_lost(), watches.take_lost()), (Some(9), None));
        assert_eq!(watches.places, [None]);
        assert!(watches.disarmed.is_empty());
    }
}
