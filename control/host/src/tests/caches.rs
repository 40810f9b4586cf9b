//! Write caches that are turned on: each drive is looked at, whatever the others do.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use control::Engine;
use uuid::Uuid;

use super::Bench;

type Look = Box<dyn FnOnce() + Send>;

/// Longer than a look takes.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_drive_that_does_not_answer_hides_no_write_cache_of_others() {
    let bench = Bench::tank();
    bench.memory("free");
    let (tell, told) = channel();
    let (release, hung) = channel::<()>();
    // Ends when it is told to, or at once.
    let watch = |name: &'static str, until: Option<Receiver<()>>| {
        let tell = tell.clone();
        let look = move || {
            tell.send(name).expect("the test waits");
            let until = until.iter();
            until.for_each(|until| until.recv().expect("it is told to"));
        };
        let drive = bench.host.state().drives[name].uuid;
        (drive, name.to_owned(), Box::new(look) as Look)
    };
    let look_at = |watches: Vec<(Uuid, String, Look)>| {
        bench.host.look_apart(watches, |look: Look| {
            look();
            None
        });
    };
    look_at(vec![watch("free", Some(hung)), watch("two", None)]);
    let mut seen: Vec<&str> = (0..2)
        .map(|_| told.recv_timeout(LONG).expect("both begin"))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ["free", "two"]);
    // However often: it has one thread, and the others go on.
    for _ in 0..3 {
        look_at(vec![watch("free", None), watch("three", None)]);
        assert_eq!(told.recv_timeout(LONG), Ok("three"));
        super::wait_until("the look has ended", || bench.host.looks.under_way() == 1);
    }
    // Nor does it hide another one that has its name now.
    bench.host.remove_drive("free", false).expect("nobody's");
    bench.memory("free");
    look_at(vec![watch("free", None)]);
    assert_eq!(told.recv_timeout(LONG), Ok("free"));
    super::wait_until("that look has ended", || bench.host.looks.under_way() == 1);
    release.send(()).expect("it waits for that");
    super::wait_until("it has answered", || bench.host.looks.under_way() == 0);
    look_at(vec![watch("free", None)]);
    assert_eq!(told.recv_timeout(LONG), Ok("free"));
}
