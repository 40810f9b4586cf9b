//! A plot of rows: each has a name, marks on a common scale, and a text at its end.

use super::svg::{Drawing, Measure, Scale, WIDTH, width_of};

/// What is drawn in a row; classes are those of the style sheet.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// From the left edge, or from where another bar ends.
    Bar {
        class: &'static str,
        from: f64,
        to: f64,
    },
    /// A short line across the row.
    Tick(f64),
    Dot {
        class: &'static str,
        at: f64,
    },
    /// A line along the row.
    Span(f64, f64),
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) marks: Vec<Mark>,
    /// At the right edge.
    pub(super) note: String,
    /// Told when the pointer is on the row.
    pub(super) hint: String,
}

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// From zero.
    Linear,
    /// In powers of ten.
    Decades,
}

#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// For those who do not see it.
    pub(super) name: String,
    pub(super) measure: Measure,
    pub(super) axis: Axis,
    /// Marked by a line through all rows.
    pub(super) line: Option<f64>,
    pub(super) rows: Vec<Row>,
}

const ROW: f64 = 24.0;
const BAR: f64 = 12.0;
const TOP: f64 = 4.0;
const AXIS: f64 = 24.0;

impl Rows {
    pub(super) fn draw(&self) -> String {
        let widest = |text: fn(&Row) -> &String| {
            let widths = self.rows.iter().map(|row| width_of(text(row)));
            widths.fold(0.0, f64::max)
        };
        let left = widest(|row| &row.name).min(WIDTH / 2.0) + 10.0;
        let right = WIDTH - widest(|row| &row.note).min(WIDTH / 3.0) - 14.0;
        let scale = self.scale((left, right));
        let bottom = TOP + super::super::float_of(self.rows.len()) * ROW;
        let mut drawing = Drawing::default();
        let mut end = f64::MIN;
        for (x, text) in scale.ticks() {
            drawing.line("grid", (x, TOP), (x, bottom));
            let half = width_of(&text) / 2.0;
            // Texts that would meet are left out; their lines say where they are.
            if x - half > end + 4.0 {
                drawing.text("", (x, bottom + 16.0), "middle", &text);
                end = x + half;
            }
        }
        drawing.line("axis", (left, TOP), (left, bottom));
        if let Some(line) = self.line {
            drawing.line("theory", (scale.at(line), TOP), (scale.at(line), bottom));
        }
        for (number, row) in self.rows.iter().enumerate() {
            let middle = TOP + (super::super::float_of(number) + 0.5) * ROW;
            row.draw(&mut drawing, &scale, middle);
            drawing.text("", (left - 8.0, middle + 4.0), "end", &row.name);
            drawing.text("strong", (right + 12.0, middle + 4.0), "start", &row.note);
            drawing.hint((0.0, middle - ROW / 2.0), (WIDTH, ROW), &row.hint);
        }
        drawing.finish(bottom + AXIS, &self.name)
    }

    fn scale(&self, places: (f64, f64)) -> Scale {
        let mut values: Vec<f64> = self.line.into_iter().collect();
        for mark in self.rows.iter().flat_map(|row| &row.marks) {
            match mark {
                Mark::Bar { to, .. } => values.push(*to),
                Mark::Tick(at) | Mark::Dot { at, .. } => values.push(*at),
                Mark::Span(from, to) => values.extend([*from, *to]),
            }
        }
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(most, f64::min);
        match self.axis {
            Axis::Linear => Scale::linear(self.measure, most, places),
            Axis::Decades => Scale::decades(self.measure, (least, most), places),
        }
    }
}

impl Row {
    fn draw(&self, drawing: &mut Drawing, scale: &Scale, middle: f64) {
        for mark in &self.marks {
            match mark {
                Mark::Bar { class, from, to } => {
                    // Between two bars the surface shows.
                    let gap = if *from > 0.0 { 2.0 } else { 0.0 };
                    let places = (scale.at(*from) + gap, scale.at(*to));
                    drawing.bar(class, places, (middle - BAR / 2.0, BAR));
                }
                Mark::Tick(at) => {
                    let x = scale.at(*at);
                    drawing.line("theory", (x, middle - 9.0), (x, middle + 9.0));
                }
                Mark::Dot { class, at } => {
                    drawing.dot(&format!("{class} ring"), (scale.at(*at), middle), 5.0);
                }
                Mark::Span(from, to) => {
                    drawing.line("span", (scale.at(*from), middle), (scale.at(*to), middle));
                }
            }
        }
    }
}
