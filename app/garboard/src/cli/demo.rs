//! `garboard demo`.

use clap::Args;
use control::Answer;

use crate::Console;
use crate::demo::{self, Shape, Wishes};
use crate::output::Output;

/// The whole story on file drives in a temporary folder.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// How long a phase of load lasts; the whole takes about four times that, and half a minute
    #[arg(long, value_name = "N", default_value = "8",
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Kill the engine so many times more, at random, with drives that come and go meanwhile
    #[arg(long, value_name = "N", default_value = "0",
          value_parser = clap::value_parser!(u32).range(..=100_000))]
    kills: u32,
    /// The level of the array: 1, 5, 6, 7, 10, 50, 60 or 70
    #[arg(long, default_value = "6", value_parser = Shape::named)]
    level: Shape,
    /// Keep the folder; it is kept anyway when something went wrong
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(super) fn run(&self, output: Output, console: &mut Console<'_>) -> Answer<()> {
        let wishes = Wishes {
            shape: self.level,
            seconds: self.seconds,
            kills: self.kills,
            keep: self.keep,
        };
        demo::run(wishes, output, console)
    }
}
