//! A plot of lines over requests in flight.

use super::svg::{Drawing, Measure, Scale, WIDTH, width_of};

/// A line; all lines share the places of the points.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// By depth.
    pub(super) points: Vec<(usize, f64)>,
}

#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub(super) name: String,
    pub(super) measure: Measure,
    pub(super) lines: Vec<Line>,
    /// Dashed, without points.
    pub(super) theory: Vec<Line>,
}

/// Classes of lines, in order.
pub(super) const CLASSES: [&str; 4] = ["one", "two", "three", "four"];

const TOP: f64 = 10.0;
const BOTTOM: f64 = 210.0;
const HEIGHT: f64 = 250.0;

impl Lines {
    pub(super) fn draw(&self) -> String {
        let all = || self.lines.iter().chain(&self.theory);
        let mut depths: Vec<usize> = all()
            .flat_map(|line| line.points.iter().map(|(depth, _)| *depth))
            .collect();
        depths.sort_unstable();
        depths.dedup();
        let values = all().flat_map(|line| line.points.iter().map(|(_, value)| *value));
        let most = values.fold(0.0, f64::max);
        let y = Scale::linear(self.measure, most, (BOTTOM, TOP));
        let ticks = y.ticks();
        let widths = ticks.iter().map(|(_, text)| width_of(text));
        let left = widths.fold(0.0, f64::max) + 12.0;
        let right = WIDTH - 16.0;
        // Depths double from one to the next: evenly spaced is logarithmic.
        let gaps = super::super::float_of(depths.len().saturating_sub(1).max(1));
        let x = |depth: usize| {
            let place = depths.iter().position(|other| *other == depth).unwrap_or(0);
            let inner = (left + 14.0, right - 14.0);
            inner.0 + super::super::float_of(place) / gaps * (inner.1 - inner.0)
        };
        let mut drawing = Drawing::default();
        for (place, text) in &ticks {
            drawing.line("grid", (left, *place), (right, *place));
            drawing.text("", (left - 6.0, *place + 4.0), "end", text);
        }
        drawing.line("axis", (left, BOTTOM), (right, BOTTOM));
        for depth in &depths {
            drawing.text("", (x(*depth), BOTTOM + 16.0), "middle", &depth.to_string());
        }
        let middle = f64::midpoint(left, right);
        drawing.text(
            "",
            (middle, BOTTOM + 34.0),
            "middle",
            "requests in flight of each job",
        );
        for line in &self.theory {
            drawing.path("theory-line", &line.places(&x, &y));
        }
        for (line, class) in self.lines.iter().zip(CLASSES.into_iter().cycle()) {
            drawing.path(&format!("line {class}"), &line.places(&x, &y));
            for ((depth, value), place) in line.points.iter().zip(line.places(&x, &y)) {
                drawing.dot(&format!("{class} ring"), place, 5.0);
                let text = format!(
                    "{}, depth {depth}: {}",
                    line.name,
                    self.measure.text(*value)
                );
                drawing.hint((place.0 - 9.0, place.1 - 9.0), (18.0, 18.0), &text);
            }
        }
        drawing.finish(HEIGHT, &self.name)
    }
}

impl Line {
    fn places(&self, x: &impl Fn(usize) -> f64, y: &Scale) -> Vec<(f64, f64)> {
        let place = |(depth, value): &(usize, f64)| (x(*depth), y.at(*value));
        self.points.iter().map(place).collect()
    }
}
