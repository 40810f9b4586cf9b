//! What a person is asked before something is destroyed, and what the answers do.

use std::ffi::OsString;
use std::sync::Arc;

use control::Control;
use control::claim::ApiSocket;
use control::fake::FakeHost;
use control::wanted::Wanted;
use garboard::Console;
use tempfile::TempDir;
use tokio::runtime::Runtime;

struct Bed {
    host: FakeHost,
    folder: TempDir,
    _runtime: Runtime,
}

fn bed() -> Bed {
    let host = FakeHost::new();
    for number in 0..3 {
        host.plug(&format!("file:/{number}"), 1 << 30);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(folder.path()).expect("begun");
    let control = Control::new(Arc::new(host.engine()), wanted, folder.path().into());
    let socket = ApiSocket::claim(&folder.path().join("api.sock")).expect("bound");
    let runtime = Runtime::new().expect("a runtime");
    let serve = control::serve::serve(Arc::new(control), socket, None, std::future::pending());
    runtime.spawn(serve);
    let bed = Bed {
        host,
        folder,
        _runtime: runtime,
    };
    for number in 0..3 {
        assert_eq!(
            say(&bed, &["drive", "add", &format!("file:/{number}")], None).0,
            0
        );
    }
    bed
}

/// Runs a command with a person who answers, or without one; gives back the status and what was
/// written to stderr.
fn say(bed: &Bed, arguments: &[&str], answer: Option<&str>) -> (u8, String) {
    let socket = bed.folder.path().join("api.sock").into_os_string();
    let mut all: Vec<OsString> = vec!["garboard".into(), "--socket".into(), socket];
    all.extend(arguments.iter().map(OsString::from));
    let (mut out, mut error) = (Vec::new(), Vec::new());
    let mut input = answer.unwrap_or_default().as_bytes();
    let mut console = Console {
        out: &mut out,
        error: &mut error,
        input: &mut input,
        terminal: answer.is_some(),
        width: None,
    };
    let status = garboard::run(all, &mut console);
    (status, String::from_utf8(error).expect("UTF-8"))
}

#[test]
fn a_person_is_shown_what_is_touched_and_only_yes_does_it() {
    let bed = bed();
    bed.host.sign("file:/1", "an ext4 file system");
    let create = [
        "array", "create", "a", "--level", "5", "--drives", "d0,d1,d2",
    ];
    let (status, error) = say(&bed, &create, Some("y\n"));
    assert_eq!(status, 1, "--force is another thing than yes: {error}");
    assert!(error.contains("ext4"), "{error}");

    let force = [&create[..], &["--force"]].concat();
    for answer in ["n\n", "\n", "", "yess\n"] {
        let (status, error) = say(&bed, &force, Some(answer));
        assert_eq!(status, 1, "{answer:?}");
        for part in [
            "overwrites",
            "drive d1",
            "Pretended",
            "S-d1",
            "1GiB",
            "ext4",
            "[y/N]",
            "nothing was done",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
    let (status, error) = say(&bed, &force, None);
    assert_eq!(status, 1);
    assert!(
        error.contains("nobody is here to be asked") && error.contains("--yes"),
        "{error}"
    );
    let yes = [&create[..], &["--yes"]].concat();
    assert_eq!(say(&bed, &yes, None).0, 1, "--yes is never --force");
    let calls = bed.host.calls();
    let reached = calls
        .iter()
        .filter(|call| call.starts_with("create_array"))
        .count();
    assert_eq!(
        reached, 2,
        "only the two without --force came through: {calls:?}"
    );

    let (status, error) = say(&bed, &force, Some("y\n"));
    assert_eq!(status, 0, "{error}");
}

#[test]
fn yes_beforehand_still_shows_what_is_touched() {
    let bed = bed();
    let create = [
        "array", "create", "a", "--level", "5", "--drives", "d0,d1,d2",
    ];
    assert_eq!(say(&bed, &create, None).0, 0);
    let (status, error) = say(&bed, &["array", "destroy", "a", "--yes"], None);
    assert_eq!(status, 0, "{error}");
    for part in [
        "destroys",
        "array a: level 5, optimal",
        "member 2: drive d2",
        "S-d2",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn an_export_asks_only_when_a_guest_is_attached() {
    let bed = bed();
    let commands: [&[&str]; 4] = [
        &[
            "array", "create", "a", "--level", "5", "--drives", "d0,d1,d2",
        ],
        &["volume", "create", "v", "--array", "a", "--size", "1MiB"],
        &["export", "vhost", "v"],
        &["export", "remove", "v"],
    ];
    for command in commands {
        let (status, error) = say(&bed, command, None);
        assert_eq!(status, 0, "{command:?}: {error}");
    }
    // The pretended engine has a guest on every read-only export.
    assert_eq!(
        say(&bed, &["export", "vhost", "v", "--read-only"], None).0,
        0
    );
    let (status, error) = say(&bed, &["export", "remove", "v"], None);
    assert_eq!(status, 1);
    assert!(
        error.contains("running guest") && error.contains("1 front-ends"),
        "{error}"
    );
    assert_eq!(say(&bed, &["export", "remove", "v"], Some("yes\n")).0, 0);
}

#[test]
fn a_forced_start_is_asked_about_only_where_force_is_needed() {
    let bed = bed();
    let create = [
        "array", "create", "a", "--level", "5", "--drives", "d0,d1,d2",
    ];
    assert_eq!(say(&bed, &create, None).0, 0);
    assert_eq!(say(&bed, &["array", "stop", "a"], None).0, 0);
    let (status, error) = say(&bed, &["array", "start", "a", "--force"], None);
    assert_eq!(status, 0, "nothing is lost, so nothing is asked: {error}");
}

#[test]
fn nobody_is_asked_about_what_is_refused() {
    let bed = bed();
    let create = ["array", "create", "a", "--level", "5", "--drives", "d0,d1"];
    assert_eq!(say(&bed, &create, None).0, 0);
    bed.host.sign("file:/2", "an ext4 file system");
    for refused in [
        &["drive", "wipe", "d0", "--force"][..],
        &["drive", "wipe", "d2"],
        &["array", "fail", "a", "--member", "9"],
    ] {
        let (status, error) = say(&bed, refused, Some("y\n"));
        assert_eq!(status, 1, "{refused:?}: {error}");
        assert!(!error.contains("Go on?"), "{refused:?}: {error}");
    }
    let (status, error) = say(&bed, &["drive", "wipe", "d2", "--force"], Some("y\n"));
    assert_eq!(status, 0, "{error}");
    assert!(error.contains("Go on?"), "{error}");
    let fail = ["array", "fail", "a", "--member", "1"];
    let (status, error) = say(&bed, &fail, Some("y\n"));
    assert_eq!(status, 0, "{error}");
    let (_, error) = say(&bed, &fail, Some("y\n"));
    assert!(!error.contains("Go on?"), "it is out already: {error}");
}

#[test]
fn a_resync_that_is_not_due_is_asked_about_at_a_terminal_and_explained_elsewhere() {
    let bed = bed();
    let create = [
        "array", "create", "a", "--level", "5", "--drives", "d0,d1,d2", "--wait",
    ];
    assert_eq!(say(&bed, &create, None).0, 0);
    let start = ["array", "resync", "a", "start"];
    let words = [
        "calls all parity untrusted",
        "what a lost member held cannot be told",
        "`garboard array scrub a start`",
    ];
    let (status, said) = say(&bed, &start, Some("n\n"));
    assert_ne!(status, 0);
    for word in words.iter().chain(&["nothing was done"]) {
        assert!(said.contains(word), "{said}");
    }
    let (status, said) = say(&bed, &start, None);
    assert_eq!(status, 0, "{said}");
    for word in words {
        assert!(said.contains(word), "{said}");
    }
}
