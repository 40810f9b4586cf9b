//! A table of wrong calls: each is refused with the right code and words, and changes nothing.

use super::*;

type Call = Box<dyn Fn(&Control) -> Answer<()>>;

/// One wrong call.
struct Wrong {
    what: &'static str,
    call: Call,
    kind: ErrorKind,
    says: &'static str,
}

fn wrong<T: 'static>(
    what: &'static str,
    kind: ErrorKind,
    says: &'static str,
    call: impl Fn(&Control) -> Answer<T> + 'static,
) -> Wrong {
    Wrong {
        what,
        call: Box::new(move |control| call(control).map(drop)),
        kind,
        says,
    }
}

pub(super) fn change_export(change: impl Fn(&mut ExportCreateBody)) -> ExportCreateBody {
    let mut body = export("v");
    change(&mut body);
    body
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn wrong_drives_and_arrays() -> Vec<Wrong> {
    use ErrorKind::{Busy, Exists, Invalid, NotFound};
    let options = |options: ArrayOptions| {
        let mut body = array("b", &["d4"]);
        body.options = options;
        body
    };
    let none = ArrayOptions::default;
    vec![
        wrong("drive twice", Exists, "open already", |c| {
            c.add_drive(drive("file:/0"))
        }),
        wrong("drive not there", NotFound, "nothing is there", |c| {
            c.add_drive(drive("file:/9"))
        }),
        wrong("drive name", Invalid, "is not a name", |c| {
            c.add_drive(DriveAddBody {
                name: Some("a b".into()),
                ..drive("file:/5")
            })
        }),
        wrong("drive name taken", Exists, "of this name", |c| {
            c.add_drive(DriveAddBody {
                name: Some("d0".into()),
                ..drive("file:/5")
            })
        }),
        wrong("create over a file", Exists, "the file exists", |c| {
            c.add_drive(drive("file:/5,size=1MiB,create"))
        }),
        wrong("remove a member", Busy, "is a member", |c| {
            c.remove_drive("d0", false)
        }),
        wrong("remove nothing", NotFound, "no such drive", |c| {
            c.remove_drive("x", true)
        }),
        wrong("wipe a member", Busy, "member already", |c| {
            c.wipe_drive("d0", true)
        }),
        wrong("array of nothing", Invalid, "0 drives", |c| {
            c.create_array(array("b", &[]))
        }),
        wrong("unknown drive", NotFound, "no such drive", |c| {
            c.create_array(array("b", &["d9"]))
        }),
        wrong(
            "drive named twice",
            Invalid,
            "drive d4 is named twice",
            |c| c.create_array(array("b", &["d4", "d4"])),
        ),
        wrong("drive in use", Busy, "member already", |c| {
            c.create_array(array("b", &["d4", "d0", "d1"]))
        }),
        wrong("too few drives", Invalid, "too few", |c| {
            c.create_array(array("b", &["d4"]))
        }),
        wrong("array name", Exists, "of this name", |c| {
            c.create_array(array("a", &["d4"]))
        }),
        wrong("array name", Invalid, "is not a name", |c| {
            c.create_array(array("", &["d4"]))
        }),
        wrong("small chunk", Invalid, "a chunk of 2048", move |c| {
            c.create_array(options(ArrayOptions {
                chunk_bytes: Some(2048),
                ..none()
            }))
        }),
        wrong("odd chunk", Invalid, "power of two", move |c| {
            c.create_array(options(ArrayOptions {
                chunk_bytes: Some(65537),
                ..none()
            }))
        }),
        wrong("block", Invalid, "512 or 4096", move |c| {
            c.create_array(options(ArrayOptions {
                block_bytes: Some(1024),
                ..none()
            }))
        }),
        wrong("parity", Invalid, "parity of 0", move |c| {
            c.create_array(options(ArrayOptions {
                parity: Some(0),
                ..none()
            }))
        }),
        wrong("group", Invalid, "group of no members", move |c| {
            c.create_array(options(ArrayOptions {
                group_size: Some(0),
                ..none()
            }))
        }),
        wrong("no member", NotFound, "members 0 to 3", |c| {
            c.fail_member("a", 4)
        }),
        wrong("replace a good member", Busy, "a good drive", |c| {
            c.replace_member(
                "a",
                0,
                &ReplaceBody {
                    drive: "d4".into(),
                    force: false,
                },
            )
        }),
        wrong("modify nothing", Invalid, "nothing", |c| {
            c.modify_array("a", &ArrayModify::default())
        }),
        wrong("slow scrub", Invalid, "100 bytes per second", |c| {
            c.modify_array(
                "a",
                &ArrayModify {
                    scrub_rate_bytes_per_second: Some(100),
                    ..ArrayModify::default()
                },
            )
        }),
        wrong("import known", Exists, "knows it already", |c| {
            c.import_array(ImportBody {
                array: "a".into(),
                specs: Vec::new(),
                force: false,
            })
        }),
        wrong("import nothing", NotFound, "none of the drives", |c| {
            c.import_array(ImportBody {
                array: "z".into(),
                specs: Vec::new(),
                force: false,
            })
        }),
        wrong("stop no rebuild", NotFound, "none runs", |c| {
            c.stop_background("a", BackgroundKind::Rebuild)
        }),
        wrong("no array", NotFound, "no such array", |c| {
            c.start_array("b", false)
        }),
    ]
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn wrong_volumes_and_exports() -> Vec<Wrong> {
    use ErrorKind::{Busy, Exists, Full, Invalid, NotFound};
    vec![
        wrong("no array", NotFound, "no such array", |c| {
            c.create_volume(VolumeCreateBody {
                array: "b".into(),
                ..volume("w")
            })
        }),
        wrong("no size", Invalid, "a size of 0", |c| {
            c.create_volume(VolumeCreateBody {
                size_bytes: 0,
                ..volume("w")
            })
        }),
        wrong("odd size", Invalid, "a size of 1000", |c| {
            c.create_volume(VolumeCreateBody {
                size_bytes: 1000,
                ..volume("w")
            })
        }),
        wrong("full", Full, "too little room", |c| {
            c.create_volume(VolumeCreateBody {
                size_bytes: 1 << 40,
                ..volume("w")
            })
        }),
        wrong("largest size", Invalid, "multiple of 512", |c| {
            c.resize_volume("v", u64::MAX)
        }),
        wrong("volume name", Exists, "of this name", |c| {
            c.create_volume(volume("v"))
        }),
        wrong("shrink", Invalid, "smaller", |c| c.resize_volume("v", 512)),
        wrong("limit 0", Invalid, "a limit of 0", |c| {
            c.limit_volume("v", &limit(0))
        }),
        wrong("burst alone", Invalid, "without a limit", |c| {
            c.limit_volume(
                "v",
                &VolumeLimit {
                    burst_ms: Some(1),
                    ..VolumeLimit::default()
                },
            )
        }),
        wrong("no burst", Invalid, "cannot be kept for 0 ms", |c| {
            c.limit_volume("v", &burst(0))
        }),
        wrong("long burst", Invalid, "kept for 3600001 ms", |c| {
            c.limit_volume("v", &burst(3_600_001))
        }),
        wrong("bandwidth", Invalid, "less than one block", |c| {
            c.limit_volume(
                "v",
                &VolumeLimit {
                    bytes_per_second: Some(4095),
                    ..VolumeLimit::default()
                },
            )
        }),
        wrong("delete exported", Busy, "exported as e", |c| {
            c.delete_volume("v")
        }),
        wrong("destroy exported", Busy, "exported as e", |c| {
            c.destroy_array("a", true)
        }),
        wrong("no volume", NotFound, "no such volume", |c| {
            c.create_export(export("w"))
        }),
        wrong("export name", Exists, "of this name", |c| {
            c.create_export(change_export(|body| body.name = Some("e".into())))
        }),
        wrong("export again", Busy, "exported already", |c| {
            c.create_export(export("v"))
        }),
        wrong("relative socket", Invalid, "absolute path", |c| {
            c.create_export(change_export(|body| body.socket = Some("s".into())))
        }),
        wrong("long socket", Invalid, "107 fit", |c| {
            let path = format!("/{}", "s".repeat(107));
            c.create_export(change_export(|body| {
                body.socket = Some(path.clone().into());
            }))
        }),
        wrong("mode", Invalid, "octal", |c| {
            c.create_export(change_export(|body| body.mode = Some("0888".into())))
        }),
        wrong("wide mode", Invalid, "at most 0777", |c| {
            c.create_export(change_export(|body| body.mode = Some("4777".into())))
        }),
        wrong("wider mode", Invalid, "at most 0777", |c| {
            c.create_export(change_export(|body| body.mode = Some("7".repeat(99))))
        }),
        wrong("queues", Invalid, "0 queues", |c| {
            c.create_export(change_export(|body| body.queues = Some(0)))
        }),
        wrong(
            "many queues",
            Invalid,
            "257 queues: there are 1 to 256",
            |c| c.create_export(change_export(|body| body.queues = Some(257))),
        ),
        wrong("small queue", Invalid, "from 4 to 1024", |c| {
            c.create_export(change_export(|body| body.queue_size = Some(2)))
        }),
        wrong("queue size", Invalid, "power of two", |c| {
            c.create_export(change_export(|body| body.queue_size = Some(100)))
        }),
        wrong("block", Invalid, "512 or 4096", |c| {
            c.create_export(change_export(|body| body.block_bytes = Some(8192)))
        }),
        wrong("long serial", Invalid, "printable", |c| {
            c.create_export(change_export(|body| body.serial = Some("s".repeat(21))))
        }),
        wrong("odd serial", Invalid, "printable", |c| {
            c.create_export(change_export(|body| body.serial = Some("ü".into())))
        }),
        wrong("no queue", NotFound, "no such queue", |c| {
            c.move_queue("e", QueueMove { queue: 4, core: 0 })
        }),
        wrong("no export", NotFound, "no such export", |c| {
            c.remove_export("f")
        }),
        wrong("no job", NotFound, "no such job", |c| c.cancel_job(99)),
        wrong("job for life", Busy, "cannot be cancelled", |c| {
            c.cancel_job(1)
        }),
    ]
}

fn without_jobs(text: &str) -> String {
    let rest = |part: &str| {
        part.split_once(']')
            .map_or(String::new(), |(_, rest)| rest.to_owned())
    };
    let mut parts = text.split("jobs: [");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + &rest(part))
}

#[test]
fn wrong_calls_are_refused_with_the_right_code_and_change_nothing() {
    let bed = Bed::full();
    bed.control()
        .create_export(change_export(|body| body.name = Some("e".into())))
        .expect("made");
    let mut before = bed.everything();
    for case in wrong_drives_and_arrays()
        .into_iter()
        .chain(wrong_volumes_and_exports())
    {
        let error = (case.call)(bed.control()).expect_err(case.what);
        assert_eq!(error.kind, case.kind, "{}: {error}", case.what);
        assert!(error.message.contains(case.says), "{}: {error}", case.what);
        assert!(!error.object.is_empty(), "{}: {error}", case.what);
        let after = bed.everything();
        // The pretended jobs move on with every look; nothing else may.
        assert_eq!(
            without_jobs(&after),
            without_jobs(&before),
            "{} changed something",
            case.what
        );
        before = after;
    }
}
