//! Models of drives: published or measured figures of one drive, each with its source.
//!
//! The format is in this crate's README. What is made of the figures (what an array of such drives
//! can do, how a pretended drive paces itself) does not live here.
#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// A figure of a drive, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In the unit that the figure's name says.
    pub value: u64,
    /// Who measured or stated it, and how.
    pub source: String,
}

/// What one drive of a kind can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that commands take.
    pub name: String,
    /// The name that people use.
    pub title: String,
    /// Bytes of one drive.
    pub capacity_bytes: Figure,
    /// 4 KiB random reads per second.
    pub read_iops: Figure,
    /// 4 KiB random writes per second, in steady state.
    pub write_iops: Figure,
    /// The most 4 KiB random reads and writes per second together, where that is less than both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_iops: Option<Figure>,
    /// Sequential reads, bytes per second.
    pub read_bytes_per_second: Figure,
    /// Sequential writes, bytes per second.
    pub write_bytes_per_second: Figure,
    /// A 4 KiB read on an idle drive, microseconds.
    pub read_latency_us: Figure,
    /// A 4 KiB write on an idle drive, microseconds.
    pub write_latency_us: Figure,
    /// Whether what was written survives a loss of power only after a flush, which then takes as
    /// long as a write. Drives with power-loss protection have no such cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub volatile_cache: bool,
}

/// Why a text is not a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError(String);

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ModelError {}

/// The models that are built in: name and file.
const SHIPPED: [(&str, &str); 5] = [
    ("kioxia-cm7", include_str!("../data/kioxia-cm7.toml")),
    ("kioxia-cm6", include_str!("../data/kioxia-cm6.toml")),
    ("intel-p5520", include_str!("../data/intel-p5520.toml")),
    (
        "micron-7450-pro",
        include_str!("../data/micron-7450-pro.toml"),
    ),
    ("hdd-7200", include_str!("../data/hdd-7200.toml")),
];

/// No drive has more of anything: bytes, requests or bytes per second. Keeps all arithmetic with
/// figures far from the end of a `u64`, and exact in an `f64`.
const VALUE_MAX: u64 = 1 << 52;

/// A microsecond figure above this (one hour) is a mistake.
const LATENCY_US_MAX: u64 = 3_600_000_000;

impl Model {
    /// The names of the models that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The built-in model of that name.
    ///
    /// # Panics
    /// Never: the tests read every built-in model.
    #[must_use]
    pub fn named(name: &str) -> Option<Model> {
        let (_, text) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
        Some(Model::parse(text).expect("built-in models are read by the tests"))
    }

    /// The built-in model of that name, or the one in the file at that path.
    ///
    /// # Errors
    /// When it is neither; names the built-in ones, or says what is wrong in the file.
    pub fn find(text: &str) -> Result<Model, ModelError> {
        if let Some(model) = Model::named(text) {
            return Ok(model);
        }
        let read = std::fs::read_to_string(text).map_err(|error| {
            let names: Vec<&str> = Model::names().collect();
            ModelError(format!(
                "`{text}` is no built-in drive model (there are {}), and no file that can be \
                 read: {error}",
                names.join(", ")
            ))
        })?;
        Model::parse(&read)
    }

    /// Reads a model's file.
    ///
    /// # Errors
    /// The line and what is wrong in it, or the figure that cannot be.
    pub fn parse(text: &str) -> Result<Model, ModelError> {
        let model: Model = toml::from_str(text)
            .map_err(|error| ModelError(error.to_string().trim().to_owned()))?;
        model.check()?;
        Ok(model)
    }

    /// Every figure with its name.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, &Figure)> {
        let mixed = self.mixed_iops.as_ref();
        [
            ("capacity_bytes", Some(&self.capacity_bytes)),
            ("read_iops", Some(&self.read_iops)),
            ("write_iops", Some(&self.write_iops)),
            ("mixed_iops", mixed),
            ("read_bytes_per_second", Some(&self.read_bytes_per_second)),
            ("write_bytes_per_second", Some(&self.write_bytes_per_second)),
            ("read_latency_us", Some(&self.read_latency_us)),
            ("write_latency_us", Some(&self.write_latency_us)),
        ]
        .into_iter()
        .filter_map(|(name, figure)| figure.map(|figure| (name, figure)))
    }

    fn check(&self) -> Result<(), ModelError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.name.is_empty() || self.name.len() > 63 || !self.name.bytes().all(is_name) {
            return Err(ModelError(format!(
                "`{}` is not a model's name; it has 1 to 63 letters, digits, `.`, `_` and `-`",
                self.name
            )));
        }
        for (name, figure) in self.figures() {
            let most = if name.ends_with("_us") {
                LATENCY_US_MAX
            } else {
                VALUE_MAX
            };
            if figure.value == 0 || figure.value > most {
                return Err(ModelError(format!(
                    "{name} is {}; it must be between 1 and {most}",
                    figure.value
                )));
            }
            if figure.source.trim().is_empty() {
                return Err(ModelError(format!(
                    "{name} has no source; say where the figure is from"
                )));
            }
        }
        let both = self.read_iops.value + self.write_iops.value;
        match &self.mixed_iops {
            Some(mixed) if mixed.value > both => Err(ModelError(format!(
                "mixed_iops is {}, more than read_iops and write_iops together ({both})",
                mixed.value
            ))),
            Some(_) | None => Ok(()),
        }
    }
}
