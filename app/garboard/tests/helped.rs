//! Large writes through the real program: reactors with nothing else to do help with their bytes.

mod common;

use common::Engine;

/// Pieces of writes that reactors have computed for others.
fn helped(engine: &Engine) -> f64 {
    let metrics = engine.metrics();
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("garboard_array_helped_pieces_total{"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.expect("an array").parse().expect("a number")
}

#[test]
fn what_reactors_have_computed_together_is_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start_awake(folder.path(), "0,1");
    engine.fill(&vec!["mem:64MiB".to_owned(); 17]);
    engine.json(&["export", "vhost", "v", "--name", "e", "--queues", "1"]);
    let load = ["--workloads", "stripe_write", "--length", "1MiB"];
    let how = ["--jobs", "1", "--depth", "2", "--seconds", "1", "--verify"];
    // On a busy host the other reactor may come too late each time.
    for _ in 0..10 {
        engine.json(&[&["bench", "e", "--yes"][..], &load, &how].concat());
        if helped(&engine) > 0.0 {
            break;
        }
    }
    assert!(helped(&engine) > 0.0);
    engine.json(&["array", "scrub", "a", "start", "--wait"]);
}
