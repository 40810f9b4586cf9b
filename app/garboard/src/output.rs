//! Results as a table for people or as JSON for programs.

use std::io;

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use control::{Answer, EngineError, ErrorKind};
use serde::Serialize;
use units::Size;

use crate::Console;

/// What errors about results are about.
const OUTPUT: &str = "output";
/// What such an error says when the reader has gone.
const CLOSED: &str = "nobody reads it any more";

/// The form of results and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// How an object looks in a table.
pub(crate) trait Row: Serialize {
    /// The heads of the columns.
    const HEADS: &'static [&'static str];
    /// The cells of this object's line.
    fn cells(&self) -> Vec<String>;
    /// What `show` adds below the line: name and text.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Output {
    /// Writes an error: the JSON object, or a sentence.
    pub(crate) fn error(self, error: &EngineError, console: &mut Console<'_>) {
        let text = match self {
            Output::Table => format!("error: {error}"),
            Output::Json => serde_json::to_string(error).expect("strings only"),
        };
        // Nobody reads errors any more: nothing to do about that.
        let _ = writeln!(console.error, "{text}");
    }

    /// Writes many objects.
    pub(crate) fn list<T: Row>(self, objects: &[T], console: &mut Console<'_>) -> Answer<()> {
        match self {
            Output::Json => json(objects, console),
            Output::Table => {
                let mut table = table(T::HEADS);
                for object in objects {
                    table.add_row(object.cells());
                }
                line(console, &trimmed(&table))
            }
        }
    }

    /// Writes one object in full.
    pub(crate) fn show<T: Row>(self, object: &T, console: &mut Console<'_>) -> Answer<()> {
        match self {
            Output::Json => json(object, console),
            Output::Table => {
                let mut table = table(&[]);
                for (head, cell) in T::HEADS.iter().zip(object.cells()) {
                    table.add_row([head.to_lowercase(), cell]);
                }
                for (name, text) in object.details() {
                    table.add_row([name.to_owned(), text]);
                }
                line(console, &trimmed(&table))
            }
        }
    }

    /// Writes what was done to an object: a sentence, or the object.
    pub(crate) fn done<T: Row>(
        self,
        object: &T,
        sentence: &str,
        console: &mut Console<'_>,
    ) -> Answer<()> {
        match self {
            Output::Json => json(object, console),
            Output::Table => line(console, sentence),
        }
    }
}

/// Writes a JSON value.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T, console: &mut Console<'_>) -> Answer<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| EngineError::new(ErrorKind::Internal, OUTPUT, error.to_string()))?;
    line(console, &text)
}

/// Writes a line to the results.
pub(crate) fn line(console: &mut Console<'_>, text: &str) -> Answer<()> {
    writeln!(console.out, "{text}")
        .and_then(|()| console.out.flush())
        .map_err(|error| {
            let text = if error.kind() == io::ErrorKind::BrokenPipe {
                CLOSED.to_owned()
            } else {
                format!("it cannot be written: {error}")
            };
            EngineError::new(ErrorKind::Internal, OUTPUT, text)
                .next("make room where the output goes, or send it elsewhere")
        })
}

/// Whether all that is wrong is that nobody reads the results any more, as after `| head`.
pub(crate) fn is_closed(error: &EngineError) -> bool {
    error.object == OUTPUT && error.message == CLOSED
}

/// A table without the blanks that end the lines: one long cell would make all lines as long.
pub(crate) fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// An empty table of this program's form.
pub(crate) fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if !heads.is_empty() {
        table.set_header(heads);
    }
    table
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// Three significant digits with a decimal prefix: `64.8 M IOPS`, `149 GB/s`, never `0.148 TB/s`.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let mut scaled = value;
    let mut prefix = 0;
    while scaled >= 999.5 && prefix + 1 < prefixes.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let digits: i32 = match scaled {
        scaled if scaled >= 99.95 || prefix == 0 && scaled.fract() == 0.0 => 0,
        scaled if scaled >= 9.995 => 1,
        _ => 2,
    };
    // Half rounds up, as people do it; the formatter would round to even.
    let power = 10f64.powi(digits);
    let scaled = (scaled * power).round() / power;
    let digits = usize::try_from(digits).expect("at most two");
    // `MB/s` and `TB` are one word, `M IOPS` is two.
    let gap = if unit.starts_with('B') { "" } else { " " };
    match prefixes[prefix] {
        "" => format!("{scaled:.digits$} {unit}"),
        prefix => format!("{scaled:.digits$} {prefix}{gap}{unit}"),
    }
}

/// A latency for people.
pub(crate) fn micros(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.1} ms", value / 1000.0)
    } else {
        format!("{value:.1} us")
    }
}

/// A text that may be missing.
pub(crate) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// A value as it stands in JSON, without quotes: states and kinds have one spelling.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::request::WriteHole;

    /// A pipe whose reader has gone.
    struct Gone;

    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_told_nothing() {
        let mut told = Vec::new();
        let mut console = Console {
            input: &mut io::empty(),
            out: &mut Gone,
            error: &mut told,
            terminal: false,
        };
        let error = line(&mut console, "x").expect_err("nobody reads");
        assert!(is_closed(&error), "{error}");
        assert_eq!(told, b"");
    }

    #[test]
    fn lines_of_a_table_do_not_end_with_blanks() {
        let mut table = table(&["A", "B"]);
        table.add_row(["one", "a long cell"]).add_row(["two", "b"]);
        let text = trimmed(&table);
        assert!(text.contains("long"));
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    #[test]
    fn words_are_those_of_the_json() {
        assert_eq!(word(&WriteHole::Strict), "strict");
        assert_eq!(or_dash(None::<u8>), "-");
        assert_eq!(size(3 << 20), "3MiB");
    }
}
