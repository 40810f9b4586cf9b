//! The file of crashes: what is noted is read, whatever stands around it; who is held back.

use super::*;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const NOW: u64 = 1_000_000;

fn suspect(number: u128) -> Suspect {
    Suspect::Export(Uuid::from_u128(number))
}

fn crash(suspect: Suspect, at_s: u64) -> Crash {
    Crash {
        at_s,
        version: VERSION.to_owned(),
        suspect,
        message: format!("at {at_s}"),
    }
}

fn held(crashes: &[Crash]) -> Vec<Suspect> {
    let (held, _) = judge(crashes, NOW, VERSION);
    held.into_iter().map(|held| held.suspect).collect()
}

#[test]
fn what_is_noted_is_read_by_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(read(folder.path()).expect("nothing is there"), []);
    let before = crash(suspect(7), 5);
    let log = CrashLog::begin(folder.path(), std::slice::from_ref(&before)).expect("begun");
    let array = Suspect::Array(Uuid::from_u128(9));
    log.note(array, &"src/a.rs:1:2: it\nbroke").expect("noted");
    let found = read(folder.path()).expect("read");
    assert_eq!(found[0], before);
    assert_eq!(found[1].suspect, array);
    assert_eq!(found[1].message, "src/a.rs:1:2: it broke");
    assert_eq!(found[1].version, VERSION);
    assert!(found[1].at_s.abs_diff(now_s()) < 60);
    assert_eq!(found.len(), 2);
}

#[test]
fn a_long_message_is_cut_and_the_next_line_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = CrashLog::begin(folder.path(), &[]).expect("begun");
    log.note(suspect(1), &"ä".repeat(10_000)).expect("noted");
    log.note(suspect(2), &"short").expect("noted");
    let found = read(folder.path()).expect("read");
    assert_eq!(found.len(), 2);
    assert!(found[0].message.len() > 500 && found[0].message.starts_with('ä'));
    assert_eq!(found[1].message, "short");
}

#[test]
fn a_torn_line_loses_nothing_but_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = CrashLog::begin(folder.path(), &[crash(suspect(1), 5)]).expect("begun");
    (&log.file)
        .write_all(b"\ngarboard-crash 1 17 0.1")
        .expect("written");
    log.note(suspect(2), &"whole").expect("noted");
    let found = read(folder.path()).expect("read");
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1].message, "whole");
}

#[test]
fn garbage_is_passed_over_and_only_the_end_of_a_huge_file_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE_NAME);
    let mut bytes: Vec<u8> = (0..=255).cycle().take(4 << 20).collect();
    for line in [
        "\ngarboard-crash 2 5 0.1 export 00000000-0000-0000-0000-000000000001 newer",
        "\ngarboard-crash 1 x 0.1 export 00000000-0000-0000-0000-000000000001 when",
        "\ngarboard-crash 1 5 0.1 export 00000000 whose",
        "\ngarboard-crash 1 5 0.1 drive 00000000-0000-0000-0000-000000000001 what",
        "\ngarboard-crash 1 5 0.1 export 00000000-0000-0000-0000-000000000001",
        "\ngarboard-crash 1 5 0.1 export 00000000-0000-0000-0000-000000000001 good\n",
    ] {
        bytes.extend(line.bytes());
    }
    std::fs::write(&path, &bytes).expect("written");
    // A hole of many gigabytes in front of it.
    let file = OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(1 << 36).expect("grown");
    assert_eq!(read(folder.path()).expect("read"), []);
    file.set_len(u64::try_from(bytes.len()).expect("small"))
        .expect("cut");
    let found = read(folder.path()).expect("read");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].message, "good");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join(FILE_NAME)).expect("made");
    assert!(read(folder.path()).is_err());
    assert!(CrashLog::begin(folder.path(), &[]).is_err());
}

#[test]
fn the_third_crash_within_the_window_holds_back_and_the_others_live() {
    let window = CRASH_WINDOW.as_secs();
    let [poison, other] = [suspect(1), suspect(2)];
    let mut crashes = vec![
        crash(poison, NOW - window),
        crash(other, NOW - 3),
        crash(poison, NOW - 2),
    ];
    assert_eq!(held(&crashes), []);
    crashes.push(crash(poison, NOW - 1));
    assert_eq!(held(&crashes), [poison]);
    let (verdict, kept) = judge(&crashes, NOW, VERSION);
    assert_eq!(verdict[0].crashes, 3);
    assert_eq!(verdict[0].message, format!("at {}", NOW - 1));
    assert_eq!(kept, [crash(other, NOW - 3)], "the verdict is not repeated");
}

#[test]
fn an_array_and_an_export_of_one_uuid_are_not_one() {
    let uuid = Uuid::from_u128(1);
    let crashes = [
        crash(Suspect::Export(uuid), NOW),
        crash(Suspect::Array(uuid), NOW),
        crash(Suspect::Array(uuid), NOW),
    ];
    assert_eq!(held(&crashes), []);
}

#[test]
fn old_crashes_and_those_of_other_versions_are_forgotten() {
    let window = CRASH_WINDOW.as_secs();
    for at_s in [NOW - window - 1, NOW + window + 1] {
        let crashes = [NOW, NOW, at_s].map(|at_s| crash(suspect(1), at_s));
        assert_eq!(held(&crashes), []);
        assert_eq!(judge(&crashes, NOW, VERSION).1.len(), 2);
    }
    let crashes = [NOW; 3].map(|at_s| crash(suspect(1), at_s));
    assert_eq!(held(&crashes), [suspect(1)]);
    assert_eq!(judge(&crashes, NOW, "0.0.0"), (vec![], vec![]));
}
