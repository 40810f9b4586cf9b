//! Drives that pretend to be as slow as a model, through a port and in real time.

use models::Model;

use super::*;
use crate::PaceLaw;

/// Memory as slow as that model, `slower` times.
fn paced(name: &str, slower: u32) -> Arc<Drive> {
    let model = Model::named(name).expect("built in");
    let law = Box::new(PaceLaw::new(&model, slower, 0));
    let size = Size(1 << 20);
    let forgets = false;
    Drive::open(&DriveSpec::Paced { law, size, forgets }).expect("memory")
}

#[test]
fn a_paced_drive_keeps_its_bytes_and_says_what_it_is() {
    let mut bench = Bench::small();
    let drive = paced("kioxia-cm7", 10);
    assert_eq!(drive.pace().expect("paced").name(), "kioxia-cm7");
    assert_eq!(memory_drive(1 << 20).pace(), None);
    bench.port.attach(DRIVE, drive.clone()).unwrap();
    let source = bench.segment(0, 8192);
    source.fill(0x5A);
    assert_eq!(bench.write(4096, &[source]), Status::Ok);
    let target = bench.segment(8192, 8192);
    let request = bench.request(Operation::Read, 4096, &[target]);
    assert_eq!(bench.run(request), Status::Ok);
    let mut bytes = vec![0; 8192];
    target.copy_to_slice(&mut bytes);
    assert_eq!(bytes, vec![0x5A; 8192]);
    // The control path sees the same, at once.
    drive.read(4096, &mut bytes).expect("memory");
    assert_eq!(bytes, vec![0x5A; 8192]);
}

#[test]
fn a_paced_drive_without_content_moves_no_bytes_and_is_as_slow() {
    let mut bench = Bench::small();
    let model = Model::named("kioxia-cm7").expect("built in");
    let law = Box::new(PaceLaw::new(&model, 100, 0));
    let (size, forgets) = (Size(1 << 20), true);
    let drive = Drive::open(&DriveSpec::Paced { law, size, forgets }).expect("nothing to take");
    assert_eq!(drive.pace().expect("paced").name(), "kioxia-cm7");
    bench.port.attach(DRIVE, drive).unwrap();
    let memory = bench.segment(0, 4096);
    memory.fill(0x5A);
    let began = MonotonicClock.now();
    let request = bench.request(Operation::Read, 0, &[memory]);
    assert_eq!(bench.run(request), Status::Ok);
    let took = MonotonicClock.now().since(began);
    assert!(took >= Duration::from_micros(7_500), "{took:?}");
    let mut bytes = vec![0; 4096];
    memory.copy_to_slice(&mut bytes);
    assert_eq!(bytes, vec![0x5A; 4096], "nobody touched it");
}

#[test]
fn answers_come_when_they_are_due_and_the_port_sleeps_until_then() {
    let mut bench = Bench::small();
    // A read takes 7.5 ms, and 37 us of the drive.
    bench.port.attach(DRIVE, paced("kioxia-cm7", 100)).unwrap();
    let memory = bench.segment(0, 4096);
    let began = MonotonicClock.now();
    for number in 0..8 {
        let request = bench.request(Operation::Read, number * 4096, &[memory]);
        bench.port.submit(request).expect("room");
    }
    let mut done = Vec::new();
    assert_eq!(bench.port.poll(&mut done), 0, "nothing is due");
    assert_eq!(bench.port.pending(), 8);
    let mut sleeps = 0;
    while bench.port.pending() > 0 {
        bench.port.wait(None);
        sleeps += 1;
        bench.port.poll(&mut done);
    }
    let took = MonotonicClock.now().since(began);
    assert!(took >= Duration::from_micros(7_500), "{took:?}");
    let order: Vec<u64> = done
        .iter()
        .map(|completion| completion.cookie.0 / 4096)
        .collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(sleeps <= 24, "it spins: {sleeps} sleeps for 8 answers");
    bench.take_back();
}

#[test]
fn a_limit_ends_a_sleep_before_an_answer_is_due() {
    let mut bench = Bench::small();
    // Three minutes.
    bench.port.attach(DRIVE, paced("hdd-7200", 15_000)).unwrap();
    let memory = bench.segment(0, 4096);
    let request = bench.request(Operation::Read, 0, &[memory]);
    bench.port.submit(request).expect("room");
    bench.port.wait(Some(Duration::from_millis(1)));
    let mut done = Vec::new();
    assert_eq!(bench.port.poll(&mut done), 0);
    // Taken away, it answers at once.
    bench.port.detach(DRIVE);
    assert_eq!(
        bench.drain().into_values().collect::<Vec<_>>(),
        [Status::Gone]
    );
}

#[test]
fn a_fast_drive_does_not_wait_for_a_slow_one() {
    let mut bench = Bench::small();
    let fast = DriveIndex(4);
    bench.port.attach(DRIVE, paced("hdd-7200", 15_000)).unwrap();
    bench.port.attach(fast, paced("kioxia-cm7", 1)).unwrap();
    let memory = bench.segment(0, 4096);
    let slow = bench.request(Operation::Read, 0, &[memory]);
    bench.port.submit(slow).expect("room");
    let quick = DriveRequest {
        drive: fast,
        ..bench.request(Operation::Read, 4096, &[memory])
    };
    bench.port.submit(quick).expect("room");
    let mut done = Vec::new();
    while done.is_empty() {
        bench.port.wait(None);
        bench.port.poll(&mut done);
    }
    assert_eq!(done[0].cookie, Cookie(4096));
    assert_eq!(bench.port.pending(), 1);
    bench.port.detach(DRIVE);
    bench.drain();
}

#[test]
fn what_is_refused_is_refused_at_once_and_takes_nobodys_time() {
    let mut bench = Bench::small();
    bench.port.attach(DRIVE, paced("hdd-7200", 15_000)).unwrap();
    let outside = Bench::bare(Operation::Discard, 1 << 20, 4096);
    assert_eq!(bench.run(outside), Status::OutOfRange);
}
