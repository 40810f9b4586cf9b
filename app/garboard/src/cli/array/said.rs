//! What can be said of arrays.

use clap::{Args, Subcommand, ValueEnum};
use control::request::{DriveSpec, HedgedReads, Level, WriteHole};
use units::Size;
use uuid::Uuid;

use crate::cli::{self, Yes};

/// Arrays: drives joined, so that losses are survived.
#[derive(Debug, Subcommand)]
pub(crate) enum Array {
    /// Make an array of free drives
    Create(Create),
    /// List all arrays
    List,
    /// Show one array
    Show(Name),
    /// Let an array serve, now and after a restart
    Start(Start),
    /// Stop an array, now and after a restart
    Stop(Name),
    /// Say that you know what its starts have told: lost or doubtful bytes; it is told until then
    Acknowledge(Name),
    /// Forget an array and all it holds
    Destroy(Destroy),
    /// Find arrays on drives that this engine does not know, or take one over
    Import(Import),
    /// Change options while the array runs
    Modify(Modify),
    /// Exclude a member, as if its drive had failed
    Fail(Fail),
    /// Give the place of a lost member a new drive
    Replace(Replace),
    /// Drives that take the places of lost members by themselves
    #[command(subcommand)]
    Spare(Spare),
    /// Fill new or returned members
    Rebuild(Background),
    /// Make parity agree again after an unclean stop; where it does, make all of it anew
    Resync(Resync),
    /// Read everything, compare it, and repair what is known to be wrong
    Scrub(Scrub),
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
}

#[derive(Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Create {
    /// Its name
    #[arg(value_parser = cli::new_name)]
    pub(super) name: String,
    /// 0, 1, 10, 5, 6, 7 (triple parity), nm, 50, 60 or 70
    #[arg(long, value_parser = str::parse::<Level>)]
    pub(super) level: Level,
    /// Free drives by name or uuid, in the members' order
    #[arg(long, value_delimiter = ',', required = true, value_parser = cli::key)]
    pub(super) drives: Vec<String>,
    /// Free drives that take the places of lost members by themselves
    #[arg(long, value_delimiter = ',', value_parser = cli::key)]
    pub(super) spares: Vec<String>,
    #[command(flatten)]
    pub(super) shape: Shape,
    /// Its uuid; the command can then be repeated
    #[arg(long)]
    pub(super) uuid: Option<Uuid>,
    /// Overwrite drives that carry something known
    #[arg(long)]
    pub(super) force: bool,
    /// Wait for the initialization
    #[arg(long)]
    pub(super) wait: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Bytes of a chunk, 4KiB to 1MiB [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = cli::size)]
    pub(super) chunk: Option<Size>,
    /// Parity chunks of a stripe, for level nm
    #[arg(long)]
    pub(super) parity: Option<u16>,
    /// Members of a group, for levels 10, 50, 60 and 70
    #[arg(long, value_name = "N")]
    pub(super) group_size: Option<u16>,
    /// 512 or 4096 [default: the largest of the drives']
    #[arg(long, value_name = "BYTES", value_parser = cli::size)]
    pub(super) block_size: Option<Size>,
    /// What is done against the write hole
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) write_hole: Hole,
    /// Which reads are answered from the other members when their drive hangs, within 50 ms
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) hedged_reads: Hedged,
    /// What was never written reads as zeroes without a drive, and nothing is initialized; older
    /// versions do not start such an array. New, and not the default yet
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) unwritten_regions: Option<bool>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Hedged {
    /// Those of drives that hung within ten minutes. What a drive has when it hangs for the first
    /// time waits for it, or for the host to give it up (30 s)
    Auto,
    /// All. Each is copied once more: about 0.4 us for 4 KiB, and memory bandwidth
    Always,
}

impl From<Hedged> for HedgedReads {
    fn from(hedged: Hedged) -> HedgedReads {
        match hedged {
            Hedged::Auto => HedgedReads::Auto,
            Hedged::Always => HedgedReads::Always,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Hole {
    /// Degraded arrays log writes. Power loss with the loss of another member may lose old data
    Auto,
    /// All writes are logged, and so written twice. Power loss costs nothing that was not written
    Strict,
    /// No log. As auto, and power loss on a degraded array alone may lose old data, too
    Off,
}

impl From<Hole> for WriteHole {
    fn from(hole: Hole) -> WriteHole {
        match hole {
            Hole::Auto => WriteHole::Auto,
            Hole::Strict => WriteHole::Strict,
            Hole::Off => WriteHole::Off,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// Start a minority of the members; what is lost is named
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct Destroy {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// Also when it has volumes
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Name or uuid of the array to take over; without it, list what is found. One whose name
    /// another array has here is taken over by its uuid only, and goes by that instead of its name
    #[arg(value_parser = cli::key)]
    pub(super) name: Option<String>,
    /// Where to look, besides drives already added [default: all block devices]
    #[arg(long = "search", value_name = "SPEC", value_parser = cli::spec)]
    pub(super) specs: Vec<DriveSpec>,
    /// Start a minority of the members; what is lost is named
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct Modify {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// What is done against the write hole
    #[arg(long, value_enum)]
    pub(super) write_hole: Option<Hole>,
    /// A rebuild or a scrub gets at least so many bytes per second of one member
    #[arg(long, value_name = "SIZE", value_parser = cli::rate)]
    pub(super) rebuild_floor: Option<Size>,
    /// Background work makes room when guests see more than this: 800us, 5ms; a number alone is
    /// microseconds; 0: a quarter more than without it
    #[arg(long, value_name = "TIME", value_parser = cli::time::micros)]
    pub(super) latency_target: Option<u64>,
    /// How long requests wait for members that the array cannot do without: 30s, 2m; a number alone
    /// is milliseconds; whole seconds, 0: not at all
    #[arg(long, value_name = "TIME", value_parser = cli::time::millis)]
    pub(super) hold_timeout: Option<u64>,
    /// A scrub takes at most so many user bytes per second; 0: as the background goes
    #[arg(long, value_name = "SIZE", value_parser = cli::rate)]
    pub(super) scrub_rate: Option<Size>,
    /// A scrub begins by itself so long after the last: 14d, 12h, 30m, 90s, or off
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) scrub_every: Option<u64>,
    /// Which reads are answered from the other members when their drive hangs, within 50 ms
    #[arg(long, value_enum)]
    pub(super) hedged_reads: Option<Hedged>,
}

/// Seconds of a time with a unit; `off` is 0.
fn seconds(text: &str) -> Result<u64, String> {
    if text == "off" {
        return Ok(0);
    }
    let wrong = || format!("`{text}` is not a time: write 14d, 12h, 30m, 90s or off");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let each = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    match number.checked_mul(each) {
        Some(seconds) if seconds > 0 => Ok(seconds),
        Some(_) | None => Err(wrong()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Fail {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// The member's number
    #[arg(long, value_name = "I")]
    pub(super) member: u16,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Replace {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// The member's number
    #[arg(long, value_name = "I")]
    pub(super) member: u16,
    /// A free drive, by name or uuid
    #[arg(long, value_parser = cli::key)]
    pub(super) drive: String,
    /// Overwrite a drive that carries something known
    #[arg(long)]
    pub(super) force: bool,
    /// Wait for the rebuild
    #[arg(long)]
    pub(super) wait: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Spare {
    /// Make a free drive a spare of the array
    Add(SpareAdd),
    /// Make a spare a free drive again
    Remove(SpareRemove),
}

#[derive(Debug, Args)]
pub(crate) struct SpareAdd {
    /// The array, by name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// A free drive, by name or uuid
    #[arg(long, value_parser = cli::key)]
    pub(super) drive: String,
    /// Erase a drive that carries something known
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct SpareRemove {
    /// The array, by name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// The spare, by name or uuid
    #[arg(long, value_parser = cli::key)]
    pub(super) drive: String,
}

#[derive(Debug, Args)]
pub(crate) struct Background {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// What to do
    #[arg(value_enum)]
    pub(super) action: Action,
    /// Wait for its end
    #[arg(long)]
    pub(super) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Resync {
    #[command(flatten)]
    pub(super) background: Background,
    #[command(flatten)]
    pub(super) yes: Yes,
}

#[derive(Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Scrub {
    /// Name or uuid
    #[arg(value_parser = cli::key)]
    pub(super) name: String,
    /// What to do; a scrub that was stopped goes on where it was
    #[arg(value_enum)]
    pub(super) action: Action,
    /// Wait for its end; an error when something stays wrong
    #[arg(long)]
    pub(super) wait: bool,
    /// Start anew instead of going on
    #[arg(long)]
    pub(super) from_beginning: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Action {
    Start,
    Stop,
    Show,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_are_not_nothing() {
        for (text, expected) in [
            ("14d", 1_209_600),
            ("12h", 43_200),
            ("30m", 1800),
            ("90s", 90),
            ("off", 0),
        ] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in [
            "",
            "d",
            "14",
            "0d",
            "-1d",
            "1.5d",
            "14w",
            "é",
            "99999999999999999d",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
