//! Text that becomes SVG or HTML, and the scales of plots.

use std::fmt::Write as _;

use crate::output::amount;

/// The width of every plot, in its own units; a browser fits it to the page.
pub(super) const WIDTH: f64 = 520.0;

/// Makes a text harmless between tags and in quotes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// About how wide a text is at the plots' size of letters.
pub(super) fn width_of(text: &str) -> f64 {
    super::super::float_of(text.chars().count()) * 6.6
}

/// In what a plot counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Iops,
    BytesPerSecond,
    Micros,
    Percent,
    Times,
}

impl Measure {
    /// A value with its unit.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Measure::Iops => amount(value, "IOPS"),
            Measure::BytesPerSecond => amount(value, "B/s"),
            Measure::Micros => time(value),
            Measure::Percent => format!("{value:.1} %"),
            Measure::Times => format!("{value:.2} ×"),
        }
    }

    /// The same on an axis: short, because ticks are round.
    fn tick(self, value: f64) -> String {
        match self {
            Measure::Iops => short(&amount(value, "")).replace(' ', ""),
            Measure::BytesPerSecond => short(&amount(value, "B/s")),
            Measure::Micros => time(value),
            Measure::Percent => format!("{value:.0} %"),
            Measure::Times => format!("{value} ×"),
        }
    }
}

/// Without zeroes that say nothing: ticks are round.
fn short(text: &str) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// A time that is given in microseconds.
fn time(micros: f64) -> String {
    let (value, unit) = match micros {
        micros if micros >= 1e6 => (micros / 1e6, "s"),
        micros if micros >= 1e3 => (micros / 1e3, "ms"),
        micros => (micros, "µs"),
    };
    let digits = if value >= 9.95 || (value - value.round()).abs() < 1e-9 {
        0
    } else {
        1
    };
    format!("{value:.digits$} {unit}")
}

/// From values to places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    measure: Measure,
    /// The least and the greatest value that it shows.
    pub(super) least: f64,
    pub(super) most: f64,
    logarithmic: bool,
    /// Where those two are.
    from: f64,
    to: f64,
}

impl Scale {
    /// Begins at zero; shows `most` at least.
    pub(super) fn linear(measure: Measure, most: f64, (from, to): (f64, f64)) -> Scale {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Scale {
            measure,
            least: 0.0,
            most: (most / step - 1e-9).ceil() * step,
            logarithmic: false,
            from,
            to,
        }
    }

    /// From one power of ten to another; shows `least` and `most` at least.
    pub(super) fn decades(
        measure: Measure,
        (least, most): (f64, f64),
        (from, to): (f64, f64),
    ) -> Scale {
        // Less than a hundred nanoseconds, or than a hundredth, is as good as nothing.
        let floor = if measure == Measure::Times { 0.01 } else { 0.1 };
        let low = 10f64.powf(least.max(floor).log10().floor());
        let high = 10f64.powf(most.max(floor).log10().ceil());
        Scale {
            measure,
            least: low,
            most: if high > low { high } else { low * 10.0 },
            logarithmic: true,
            from,
            to,
        }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            let value = value.clamp(self.least, self.most);
            (value / self.least).log10() / (self.most / self.least).log10()
        } else {
            (value.min(self.most) - self.least) / (self.most - self.least)
        };
        self.from + part * (self.to - self.from)
    }

    /// Places and texts of a few round values.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let mut values = Vec::new();
        if self.logarithmic {
            let mut value = self.least;
            while value <= self.most * 1.001 {
                values.push(value);
                value *= 10.0;
            }
            // More than six would meet.
            let every = values.len().div_ceil(6);
            values = values.into_iter().step_by(every).collect();
        } else {
            let step = step(self.most);
            let mut value = self.least;
            while value <= self.most * 1.001 {
                values.push(value);
                value += step;
            }
        }
        let tick = |value: f64| (self.at(value), self.measure.tick(round(value)));
        values.into_iter().map(tick).collect()
    }
}

/// A round step of which at most five reach `most`.
fn step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = steps.into_iter().find(|step| step * power >= rough * 0.999);
    fits.unwrap_or(10.0) * power
}

/// Without the dust of sums.
fn round(value: f64) -> f64 {
    let text = format!("{value:.9e}");
    text.parse().unwrap_or(value)
}

/// A drawing that grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Drawing(String);

impl Drawing {
    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A bar that ends round, on the right.
    pub(super) fn bar(&mut self, class: &str, (x1, x2): (f64, f64), (y, height): (f64, f64)) {
        let width = (x2 - x1).max(0.5);
        let round = (width / 2.0).min(3.0);
        let straight = width - round;
        let side = height - 2.0 * round;
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x1:.1} {y:.1}h{straight:.1}q{round:.1} 0 {round:.1} \
             {round:.1}v{side:.1}q0 {round:.1} -{round:.1} {round:.1}h-{straight:.1}z\"/>"
        ));
    }

    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"/>"#
        ));
    }

    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (number, (x, y)) in points.iter().enumerate() {
            let letter = if number == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{letter}{x:.1} {y:.1}");
        }
        self.push(format_args!(r#"<path class="{class}" d="{d}"/>"#));
    }

    /// `anchor`: `start`, `middle` or `end`.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// An invisible field that tells something when the pointer is on it.
    pub(super) fn hint(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), text: &str) {
        let text = escape(text);
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"transparent\"><title>{text}</title></rect>"
        ));
    }

    /// The whole, with a name for those who do not see it.
    pub(super) fn finish(self, height: f64, name: &str) -> String {
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{}">{}</svg>"#,
            escape(name),
            self.0
        )
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes everything");
        self.0.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round_and_reach_over_everything() {
        let words = |scale: Scale| -> Vec<String> {
            scale.ticks().into_iter().map(|(_, text)| text).collect()
        };
        let linear = |measure, most| words(Scale::linear(measure, most, (0.0, 100.0)));
        assert_eq!(
            linear(Measure::Iops, 31_900.0),
            ["0", "10k", "20k", "30k", "40k"]
        );
        assert_eq!(linear(Measure::Iops, 900.0)[1..3], ["200", "400"]);
        assert_eq!(
            linear(Measure::BytesPerSecond, 4.1e9)[1..3],
            ["1 GB/s", "2 GB/s"]
        );
        assert_eq!(
            linear(Measure::Percent, 104.0),
            ["0 %", "25 %", "50 %", "75 %", "100 %", "125 %"]
        );
        assert_eq!(linear(Measure::Times, 0.9).last().expect("some"), "1 ×");
        let decades = Scale::decades(Measure::Micros, (7.0, 34_000.0), (0.0, 100.0));
        assert_eq!(
            words(decades),
            ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]
        );
        assert!(decades.at(7.0) > 0.0 && decades.at(34_000.0) < 100.0);
        // A ratio may be far below a tenth.
        let ratios = Scale::decades(Measure::Times, (0.04, 8.0), (0.0, 90.0));
        assert_eq!(words(ratios), ["0.01 ×", "0.1 ×", "1 ×", "10 ×"]);
        assert!(ratios.at(0.04) > 15.0 && ratios.at(0.04) < 20.0);
        for most in [0.0, 1e-3, 1.0, 7.3, 99.0, 1e12] {
            let scale = Scale::linear(Measure::Iops, most, (0.0, 100.0));
            assert!(scale.most >= most && scale.ticks().len() <= 7, "{most}");
        }
    }

    #[test]
    fn nothing_that_is_named_becomes_markup() {
        let mut drawing = Drawing::default();
        drawing.text("", (0.0, 0.0), "start", "<script>&\"'");
        let svg = drawing.finish(10.0, "\"><script>");
        assert!(!svg.contains("<script"), "{svg}");
        assert!(svg.contains("&lt;script&gt;&amp;&quot;&#39;"), "{svg}");
    }
}
