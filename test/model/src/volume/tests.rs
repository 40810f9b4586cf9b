//! What the oracle allows and what it refuses, history by history, on atoms of one byte.

use super::*;

/// A volume of four one-byte atoms.
fn volume() -> Volume {
    Volume::new(4, 1)
}

fn write(volume: &mut Volume, offset: usize, bytes: &[u8]) {
    let write = volume.begin_write(offset, bytes);
    volume.finish_write(write);
}

fn flush(volume: &mut Volume) {
    let flush = volume.begin_flush();
    volume.finish_flush(flush);
}

/// The bytes that a read of the first atom, now, may return.
fn allowed(volume: &Volume) -> Vec<u8> {
    (0..=255)
        .filter(|byte| {
            let mut volume = volume.clone();
            let read = volume.begin_read(0);
            volume.finish_read(read, &[*byte]).is_ok()
        })
        .collect()
}

#[test]
fn an_acknowledged_write_is_read_and_nothing_else() {
    let mut volume = volume();
    assert_eq!(allowed(&volume), [0]);
    write(&mut volume, 0, &[7, 8]);
    assert_eq!(allowed(&volume), [7]);
    let read = volume.begin_read(0);
    let wrong = volume.finish_read(read, &[7, 9, 0, 0]).unwrap_err();
    assert_eq!(
        (wrong.offset, wrong.allowed, wrong.found),
        (1, vec![vec![8]], vec![9])
    );
}

#[test]
fn a_write_in_flight_is_old_or_new_and_so_is_one_that_failed() {
    let mut volume = volume();
    let pending = volume.begin_write(0, &[7]);
    assert_eq!(allowed(&volume), [0, 7]);
    volume.abandon_write(pending);
    assert_eq!(allowed(&volume), [0, 7]);
    write(&mut volume, 0, &[9]);
    assert_eq!(allowed(&volume), [9]);
}

#[test]
fn what_a_failed_write_has_shown_stays_and_until_then_it_may_come_at_any_time() {
    let mut volume = volume();
    write(&mut volume, 0, &[5]);
    let pending = volume.begin_write(0, &[7]);
    volume.fail_write(pending);
    for content in [5, 5, 7, 7] {
        let read = volume.begin_read(0);
        volume.finish_read(read, &[content]).expect("either");
        let expected = if content == 5 { vec![5, 7] } else { vec![7] };
        assert_eq!(allowed(&volume), expected);
    }
    // A write that is under way may bring anything that it meets.
    let other = volume.begin_write(0, &[8]);
    volume.fail_write(other);
    assert_eq!(allowed(&volume), [7, 8]);
    write(&mut volume, 0, &[9]);
    assert_eq!(allowed(&volume), [9]);
}

#[test]
fn a_write_that_its_guest_changes_is_read_as_it_was_or_as_it_is_until_a_read_settles_it() {
    let mut volume = volume();
    let pending = volume.begin_write(0, &[7, 8]);
    volume.change_write(&pending, 0, &[9]);
    assert_eq!(allowed(&volume), [0, 7, 9]);
    volume.finish_write(pending);
    assert_eq!(allowed(&volume), [7, 9]);
    let read = volume.begin_read(0);
    volume.finish_read(read, &[9, 8]).expect("either");
    assert_eq!(allowed(&volume), [9]);
    write(&mut volume, 0, &[4]);
    assert_eq!(allowed(&volume), [4]);
}

#[test]
fn of_two_writes_at_once_either_may_win_and_a_read_settles_it() {
    let mut volume = volume();
    let (first, second) = (volume.begin_write(0, &[1]), volume.begin_write(0, &[2]));
    volume.finish_write(first);
    assert_eq!(allowed(&volume), [1, 2]);
    volume.finish_write(second);
    assert_eq!(allowed(&volume), [1, 2]);
    let read = volume.begin_read(0);
    volume.finish_read(read, &[1]).unwrap();
    assert_eq!(allowed(&volume), [1]);
}

#[test]
fn a_read_that_began_before_an_acknowledgement_may_return_what_was() {
    let mut volume = volume();
    let early = volume.begin_read(0);
    write(&mut volume, 0, &[7]);
    flush(&mut volume);
    let late = volume.begin_read(0);
    assert!(volume.clone().finish_read(early, &[0]).is_ok());
    assert!(volume.finish_read(late, &[0]).is_err());
}

#[test]
fn a_read_during_a_write_settles_nothing() {
    let mut volume = volume();
    let pending = volume.begin_write(0, &[7]);
    let read = volume.begin_read(0);
    volume.finish_read(read, &[7]).unwrap();
    assert_eq!(allowed(&volume), [0, 7]);
    volume.finish_write(pending);
    assert_eq!(allowed(&volume), [7]);
}

#[test]
fn a_stop_keeps_what_was_acknowledged_and_a_power_loss_what_was_flushed() {
    let mut stopped = volume();
    write(&mut stopped, 0, &[1]);
    flush(&mut stopped);
    write(&mut stopped, 0, &[2]);
    let pending = stopped.begin_write(0, &[3]);
    drop(pending);
    let mut lost = stopped.clone();
    stopped.stop();
    assert_eq!(allowed(&stopped), [2, 3]);
    lost.power_loss();
    assert_eq!(allowed(&lost), [1, 2, 3]);
    let read = lost.begin_read(0);
    lost.finish_read(read, &[2]).unwrap();
    assert_eq!(allowed(&lost), [2], "what was seen after the loss stays");
}

#[test]
fn a_flush_covers_only_writes_acknowledged_before_it_began() {
    let mut volume = volume();
    write(&mut volume, 0, &[1]);
    let early = volume.begin_flush();
    write(&mut volume, 0, &[2]);
    volume.finish_flush(early);
    let mut lost = volume.clone();
    lost.power_loss();
    assert_eq!(allowed(&lost), [1, 2]);
    flush(&mut volume);
    volume.power_loss();
    assert_eq!(allowed(&volume), [2]);
}

#[test]
fn a_write_that_goes_on_over_a_stop_is_undecided_until_it_is_answered() {
    let mut volume = volume();
    write(&mut volume, 0, &[1]);
    let kept = volume.begin_write(0, &[2]);
    let read = volume.begin_read(0);
    volume.stop_but(&Kept {
        writes: vec![&kept],
        reads: vec![&read],
    });
    // Acknowledged, but the one that goes on may land after it.
    write(&mut volume, 0, &[3]);
    assert_eq!(allowed(&volume), [2, 3]);
    volume.finish_read(read, &[1]).unwrap();
    volume.finish_write(kept);
    assert_eq!(allowed(&volume), [2, 3]);
    write(&mut volume, 0, &[4]);
    assert_eq!(allowed(&volume), [4]);
}

#[test]
fn a_durable_write_outlives_a_power_loss_without_a_flush() {
    let mut volume = volume();
    write(&mut volume, 0, &[1]);
    write(&mut volume, 1, &[1]);
    let durable = volume.begin_write(0, &[2]);
    volume.finish_durable_write(durable);
    let later = volume.begin_write(0, &[3]);
    drop(later);
    volume.power_loss();
    assert_eq!(allowed(&volume), [2, 3]);
    let read = volume.begin_read(1);
    assert!(volume.finish_read(read, &[0]).is_ok(), "others are not");
}
