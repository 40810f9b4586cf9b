//! A log that cannot be written to: a full file system under it, a reader that is gone. The engine
//! goes on; the gap is told where it was as soon as lines are taken again.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Makes writers of `inner`, and remembers how many lines they have lost since one was kept.
#[derive(Debug)]
pub(super) struct Gaps<M> {
    inner: M,
    gap: Gap,
}

/// What is missing now.
#[derive(Debug)]
struct Gap {
    journal: bool,
    lines: AtomicU64,
}

impl<M> Gaps<M> {
    pub(super) fn new(inner: M, journal: bool) -> Gaps<M> {
        let lines = AtomicU64::new(0);
        let gap = Gap { journal, lines };
        Gaps { inner, gap }
    }
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Gaps<M> {
    type Writer = Lines<'a, M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Lines {
            gap: &self.gap,
            inner: self.inner.make_writer(),
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        Lines {
            gap: &self.gap,
            inner: self.inner.make_writer_for(about),
        }
    }
}

/// Takes one line with each write.
#[derive(Debug)]
pub(super) struct Lines<'a, W> {
    gap: &'a Gap,
    inner: W,
}

impl<W: Write> Write for Lines<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.gap.write(&mut self.inner, line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Gap {
    fn write(&self, inner: &mut impl Write, line: &[u8]) -> io::Result<()> {
        let result = self.tell(inner).and_then(|()| inner.write_all(line));
        if result.is_err() {
            self.lines.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn tell(&self, inner: &mut impl Write) -> io::Result<()> {
        let lines = self.lines.load(Ordering::Relaxed);
        if lines == 0 {
            return Ok(());
        }
        let level = if self.journal { "<4>" } else { "WARN  " };
        // What was kept of the first that was lost may be half a line.
        let text = format!(
            "\n{level}the log could not be written to, as when its file system is full \
             event=\"log_lines_lost\" lines={lines}\n"
        );
        inner.write_all(text.as_bytes())?;
        // More may be lost meanwhile, or another thread tells the same, which does no harm.
        let left = |now: u64| Some(now.saturating_sub(lines));
        let _ = self
            .lines
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A file system with so much room.
    #[derive(Debug, Default)]
    struct Small {
        room: AtomicUsize,
        bytes: Mutex<Vec<u8>>,
    }

    impl Write for &Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room.load(Ordering::Relaxed);
            let taken = room.min(bytes.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room.store(room - taken, Ordering::Relaxed);
            let mut all = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_were_lost_are_counted_where_they_are_missing() {
        let small: &Small = Box::leak(Box::default());
        let gaps = Gaps::new(move || small, false);
        let say = |line: &str| gaps.make_writer().write_all(line.as_bytes()).is_ok();
        small.room.store(8, Ordering::Relaxed);
        assert!(say("first\n"));
        assert!(!say("second\n"), "two bytes of it");
        assert!(!say("third\n"));
        small.room.store(1000, Ordering::Relaxed);
        assert!(say("fourth\n"));
        assert!(say("fifth\n"));
        let bytes = small.bytes.lock().expect("nobody panicked").clone();
        let text = String::from_utf8(bytes).expect("UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["first", "se"]);
        assert!(
            lines[2].ends_with("event=\"log_lines_lost\" lines=2"),
            "{text}"
        );
        assert_eq!(lines[3..], ["fourth", "fifth"]);
    }
}
