//! A write cache that somebody turns on while the engine has the drive (a loop device, which only
//! root may make).

mod common;

use std::fs::{self, File};

use common::{Engine, Loop};

#[test]
fn a_write_cache_that_is_turned_on_is_noticed() {
    if !Loop::can_be_made() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let made = File::create(&image).and_then(|file| file.set_len(64 << 20));
    made.expect("a file");
    let device = Loop::over(&image);
    let name = device.0.trim_start_matches("/dev/");
    let mode = format!("/sys/block/{name}/queue/write_cache");
    fs::write(&mode, "write through").expect("ours");
    let engine = Engine::start(folder.path());
    engine.json(&["drive", "add", &device.0, "--name", "d"]);
    let cache = || engine.json(&["drive", "show", "d"])["write_cache"].clone();
    assert_eq!(cache(), "none");
    fs::write(&mode, "write back").expect("ours");
    for _ in 0..1000 {
        if cache() == "volatile" {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    panic!("the engine calls it {}", cache());
}
