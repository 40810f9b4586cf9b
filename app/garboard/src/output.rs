//! Results as a table for people or as JSON for programs.

use std::io;

use clap::ValueEnum;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use control::{Answer, EngineError, ErrorKind};
use serde::Serialize;
use units::Size;

use crate::Console;

/// What errors about results are about.
const OUTPUT: &str = "output";
/// Columns up to so wide are not wrapped.
const WHOLE_WIDTH_MAX: u16 = 16;
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
                let rows: Vec<Vec<String>> = objects.iter().map(Row::cells).collect();
                let text = fitted(T::HEADS, &rows, &[], console.width);
                line(console, &text)
            }
        }
    }

    /// Writes one object in full.
    pub(crate) fn show<T: Row>(self, object: &T, console: &mut Console<'_>) -> Answer<()> {
        match self {
            Output::Json => json(object, console),
            Output::Table => {
                let heads = T::HEADS.iter().map(|head| head.to_lowercase());
                let cells = heads.zip(object.cells());
                let details = object.details().into_iter();
                let details = details.map(|(name, text)| (name.to_owned(), text));
                let rows: Vec<Vec<String>> = cells
                    .chain(details)
                    .map(|(name, text)| vec![name, text])
                    .collect();
                line(console, &fitted(&[], &rows, &[], console.width))
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

/// A table that fits into `width` where somebody looks at it; else as wide as it is. Of the columns
/// in `least` those that say nothing are left out, then one after another until the rest fits; what
/// is still too long is wrapped within its column.
pub(crate) fn fitted(
    heads: &[&str],
    rows: &[Vec<String>],
    least: &[usize],
    width: Option<u16>,
) -> String {
    let mut left_out: Vec<usize> = Vec::new();
    let draw = |left_out: &[usize], width: Option<u16>| {
        let kept = |cells: &[String]| -> Vec<String> {
            let cells = cells.iter().enumerate();
            let kept = cells.filter(|(column, _)| !left_out.contains(column));
            kept.map(|(_, cell)| cell.clone()).collect()
        };
        let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
        let mut drawn = table(&kept(&heads));
        for row in rows {
            drawn.add_row(kept(row));
        }
        if let Some(width) = width {
            wrap(&mut drawn, width);
        }
        trimmed(&drawn)
    };
    let Some(width) = width else {
        return draw(&left_out, None);
    };
    let fits = |text: &str| {
        text.lines()
            .all(|line| line.chars().count() <= width.into())
    };
    let whole = draw(&left_out, None);
    if fits(&whole) {
        return whole;
    }
    let says_nothing = |column: &&usize| rows.iter().all(|row| row[**column] == "-");
    left_out.extend(least.iter().filter(says_nothing));
    let silent = left_out.len();
    for column in least {
        if fits(&draw(&left_out, None)) {
            break;
        }
        if !left_out.contains(column) {
            left_out.push(*column);
        }
    }
    let text = draw(&left_out, Some(width));
    if left_out.len() == silent {
        return text;
    }
    let names: Vec<&str> = left_out[silent..].iter().map(|at| heads[*at]).collect();
    let names = names.join(", ");
    format!("{text}\n(no room for {names}: a wider terminal, or --output json, has all)")
}

/// Wraps the long cells of a table, so that it is no wider than this.
fn wrap(table: &mut Table, width: u16) {
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    for (column, content) in table.column_max_content_widths().into_iter().enumerate() {
        if let Some(column) = table
            .column_mut(column)
            .filter(|_| content <= WHOLE_WIDTH_MAX)
        {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// A table without the blanks that end the lines: one long cell would make all lines as long.
fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// An empty table of this program's form.
fn table(heads: &[String]) -> Table {
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

/// A latency for people: three significant digits, as it was counted in steps of 3 %.
pub(crate) fn micros(value: f64) -> String {
    let (value, unit) = match value {
        value if value < 999.5 => (value, "us"),
        value if value < 999_500.0 => (value / 1000.0, "ms"),
        value => (value / 1e6, "s"),
    };
    match value {
        value if value >= 99.95 => format!("{value:.0} {unit}"),
        value if value >= 9.995 => format!("{value:.1} {unit}"),
        value => format!("{value:.2} {unit}"),
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
            width: None,
        };
        let error = line(&mut console, "x").expect_err("nobody reads");
        assert!(is_closed(&error), "{error}");
        assert_eq!(told, b"");
    }

    #[test]
    fn lines_of_a_table_do_not_end_with_blanks() {
        let rows = rows(&[&["one", "a long cell"], &["two", "b"]]);
        let text = fitted(&["A", "B"], &rows, &[], None);
        assert!(text.contains("long"));
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        let row = |cells: &&[&str]| cells.iter().map(ToString::to_string).collect();
        cells.iter().map(row).collect()
    }

    #[test]
    fn a_table_is_no_wider_than_the_terminal() {
        let heads = ["NAME", "RATE", "SILENT", "LESS", "LEAST", "BOUND"];
        let bound = "what binds it, in a sentence that is long";
        let rows = rows(&[
            &["random_read", "64.8 M IOPS", "-", "0.33 x", "0.00", bound],
            &["random_write", "8.40 M IOPS", "-", "1.25 x", "0.10", bound],
        ]);
        let least = [4, 3, 2];
        let at = |width| fitted(&heads, &rows, &least, width);
        let whole = at(None);
        assert!(whole.contains(bound) && whole.contains("SILENT"), "{whole}");
        assert_eq!(at(Some(200)), whole, "there is room");
        let width = |text: &str| text.lines().map(|line| line.chars().count()).max();
        let full = width(&whole).expect("lines");
        let one_less = u16::try_from(full - 1).expect("few");
        let quiet = at(Some(one_less));
        assert!(
            !quiet.contains("SILENT") && quiet.contains("LEAST"),
            "{quiet}"
        );
        assert!(!quiet.contains("no room"), "nothing is lost: {quiet}");
        for columns in [70, 60, 50, 40] {
            let text = at(Some(columns));
            let (table, note) = text.rsplit_once("\n(no room").expect(&text);
            assert!(width(table) <= Some(columns.into()), "{text}");
            assert!(note.contains("LEAST"), "{text}");
            assert!(
                text.contains("64.8 M IOPS") && text.contains("long"),
                "{text}"
            );
        }
    }

    #[test]
    fn latencies_have_three_digits_and_one_unit_for_each_size() {
        for (value, text) in [
            (0.25, "0.25 us"),
            (75.04, "75.0 us"),
            (458.8, "459 us"),
            (999.6, "1.00 ms"),
            (7077.9, "7.08 ms"),
            (12_100.0, "12.1 ms"),
            (388_300.0, "388 ms"),
            (999_600.0, "1.00 s"),
            (1_500_000.0, "1.50 s"),
        ] {
            assert_eq!(micros(value), text);
        }
    }

    #[test]
    fn words_are_those_of_the_json() {
        assert_eq!(word(&WriteHole::Strict), "strict");
        assert_eq!(or_dash(None::<u8>), "-");
        assert_eq!(size(3 << 20), "3MiB");
    }
}
