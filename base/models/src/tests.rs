//! Built-in models are whole, and files that are not are refused with the reason.

use super::*;

const GOOD: &str = r#"
name = "mine"
title = "a drive of mine"
capacity_bytes = { value = 9000, source = "label" }
read_iops = { value = 100, source = "measured" }
write_iops = { value = 50, source = "measured" }
read_bytes_per_second = { value = 4096000, source = "measured" }
write_bytes_per_second = { value = 2048000, source = "measured" }
read_latency_us = { value = 70, source = "measured" }
write_latency_us = { value = 10, source = "measured" }
"#;

#[test]
fn every_built_in_model_is_read_under_its_own_name() {
    assert_eq!(Model::names().count(), 5);
    for name in Model::names() {
        let model = Model::named(name).expect("built in");
        assert_eq!(model.name, name);
        assert!(!model.title.is_empty(), "{name}");
        assert!(model.figures().count() >= 7, "{name}");
    }
    assert_eq!(Model::named("kioxia-cm8"), None);
}

#[test]
fn a_figure_says_where_it_is_from() {
    for name in Model::names() {
        let model = Model::named(name).expect("built in");
        for (figure, value) in model.figures() {
            // Whoever reads a result must be able to judge it.
            let known = ["published", "manufacturer", "assumed", "derived"];
            let said = known.iter().any(|word| value.source.starts_with(word));
            assert!(said, "{name}: {figure}: {}", value.source);
        }
    }
}

#[test]
fn a_file_of_ones_own_is_read() {
    let model = Model::parse(GOOD).expect("good");
    assert_eq!(model.read_iops.value, 100);
    assert_eq!(model.mixed_iops, None);
    let with = format!("{GOOD}mixed_iops = {{ value = 120, source = \"measured\" }}\n");
    let model = Model::parse(&with).expect("good");
    assert_eq!(model.mixed_iops.expect("there").value, 120);
}

#[test]
fn wrong_files_are_refused_with_the_reason() {
    for (from, to, says) in [
        (
            "name = \"mine\"",
            "name = \"my drive\"",
            "is not a model's name",
        ),
        ("name = \"mine\"", "name = \"\"", "is not a model's name"),
        ("value = 100", "value = 0", "read_iops is 0"),
        ("value = 100", "value = -1", "line 5"),
        ("value = 100", "value = 1.5", "line 5"),
        (
            "value = 100",
            "value = 9007199254740992",
            "read_iops is 9007199254740992",
        ),
        ("value = 70", "value = 3600000001", "read_latency_us is"),
        (
            "source = \"label\"",
            "source = \" \"",
            "capacity_bytes has no source",
        ),
        ("source = \"label\"", "origin = \"label\"", "origin"),
        (
            "title",
            "mixed_iops = { value = 151, source = \"x\" }\ntitle",
            "more than read_iops",
        ),
        ("title", "colour = \"red\"\ntitle", "colour"),
        ("write_iops", "writes", "writes"),
        ("name = \"mine\"", "", "missing field `name`"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let error = Model::parse(&text).expect_err(to).to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
}
