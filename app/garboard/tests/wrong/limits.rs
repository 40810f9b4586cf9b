//! Files that may not be as large as they must: the process is under a limit.

use std::thread;

use crate::bed::{Bed, holds};

#[test]
fn a_limit_of_file_sizes_ends_no_engine_and_is_told_from_a_full_file_system() {
    let bed = Bed::new("5", 3, 2);
    let mut guest = bed.guest();
    // All but the first superblock lies behind that.
    bed.limit_files(Some(1 << 20));
    thread::scope(|scope| {
        scope.spawn(|| guest.write(2));
        bed.await_state("holding");
        let hold = bed.array()["hold"].to_string();
        let words = [
            "img may not be as large as it must",
            "may not write beyond byte 1048576 of a file (RLIMIT_FSIZE)",
            "prlimit --pid",
            "LimitFSIZE",
        ];
        holds(&hold, &words);
        assert!(!hold.contains("is full"), "{hold}");
        // What writes a drive by itself says so, too.
        let create = ["array", "create", "b", "--level", "1", "--drives", "d3,d4"];
        let refusal = bed.engine().refused(&create);
        assert_eq!(refusal["code"], "full", "{refusal}");
        holds(
            &refusal.to_string(),
            &["drive d3", "RLIMIT_FSIZE", "prlimit"],
        );
        bed.limit_files(None);
    });
    bed.await_optimal();
    drop(guest);
    bed.is_sound(2);
    let log = bed.log();
    holds(&log, &["array_holds", "array_resumes"]);
    assert!(!log.contains("is full"), "{log}");
}
