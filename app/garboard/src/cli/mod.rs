//! The command line: what can be said, and which part of the API it becomes.
//!
//! One file per kind of object; each holds its commands, what they send, and how their objects
//! look in a table.

mod array;
mod bench;
mod demo;
mod doctor;
mod drive;
mod expect;
mod export;
mod job;
mod pool;
mod serve;
mod status;
mod time;
mod vm;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::request::DriveSpec;
use control::settings::Places;
use control::{Answer, name};
use units::Size;

use crate::Console;
use crate::client::Client;
use crate::output::Output;
use crate::session::Session;

/// garboard: protected block volumes for virtual machines, from user space.
#[derive(Debug, Parser)]
#[command(
    name = "garboard",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// The engine's socket [default: $GARBOARD_SOCKET, else /run/garboard/api.sock as root, else
    /// $XDG_RUNTIME_DIR/garboard/api.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The form of results and errors
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "table",
        value_name = "FORM"
    )]
    pub(crate) output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the engine in the foreground
    Serve(serve::Serve),
    /// Show everything at work on file drives in a temporary folder; needs no root
    Demo(demo::Demo),
    /// Show what an array of given drives can do at most; asks no engine
    Expect(Box<expect::Expect>),
    #[command(flatten)]
    Ask(Asking),
}

/// What is asked of a running engine.
#[derive(Debug, Subcommand)]
enum Asking {
    /// Drives: what arrays are made of
    #[command(subcommand)]
    Drive(drive::Drive),
    /// Arrays: drives joined, so that losses are survived
    #[command(subcommand)]
    Array(array::Array),
    /// Pools: spares that several arrays share
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Volumes: named, sized parts of an array
    #[command(subcommand)]
    Volume(volume::Volume),
    /// Exports: volumes made reachable
    #[command(subcommand)]
    Export(export::Export),
    /// Print what attaches an export to a virtual machine
    #[command(subcommand)]
    Vm(vm::Vm),
    /// Jobs: long work
    #[command(subcommand)]
    Job(job::Job),
    /// Show what on this host costs speed or safety, and the fix; works without an engine, too
    Doctor(doctor::Doctor),
    /// Measure drives, an array and a volume on them, exports and file systems, beside theory
    Bench(Box<bench::Bench>),
    /// Show everything at a glance
    Status,
    /// Show rates, again and again
    Top(status::Top),
}

impl Cli {
    /// Whether what is `Invalid` was found on the command line itself: wrong usage, not a refusal.
    pub(crate) fn is_its_own_judge(&self) -> bool {
        match self.command {
            Command::Expect(_) => true,
            Command::Serve(_) | Command::Demo(_) | Command::Ask(_) => false,
        }
    }

    /// Does what was said.
    pub(crate) fn run(self, console: &mut Console<'_>) -> Answer<()> {
        let asking = match self.command {
            Command::Serve(serve) => return serve.run(self.socket),
            Command::Demo(demo) => return demo.run(self.output, console),
            Command::Expect(expect) => return expect.run(self.output, console),
            Command::Ask(asking) => asking,
        };
        let socket = Places::here().socket(self.socket)?;
        let client = Client::new(socket)?;
        let session = &mut Session {
            client,
            output: self.output,
            console,
        };
        match asking {
            Asking::Drive(drive) => drive.run(session),
            Asking::Array(array) => array.run(session),
            Asking::Pool(pool) => pool.run(session),
            Asking::Volume(volume) => volume.run(session),
            Asking::Export(export) => export.run(session),
            Asking::Vm(vm) => vm.run(session),
            Asking::Job(job) => job.run(session),
            Asking::Doctor(doctor) => doctor.run(session),
            Asking::Bench(bench) => bench.run(session),
            Asking::Status => status::status(session),
            Asking::Top(top) => top.run(session),
        }
    }
}

/// The answer to the question of a destructive command.
#[derive(Clone, Copy, Debug, Args)]
struct Yes {
    /// Answer the question of this command with yes
    #[arg(long)]
    yes: bool,
}

/// A new name.
fn new_name(text: &str) -> Result<String, String> {
    name::check_name(text).map(|()| text.to_owned())
}

/// A name or uuid of something that is there.
fn key(text: &str) -> Result<String, String> {
    name::check_key(text).map(|()| text.to_owned())
}

fn size(text: &str) -> Result<Size, String> {
    text.parse::<Size>().map_err(|error| error.to_string())
}

/// Bytes per second, as they are shown: with or without `/s`.
fn rate(text: &str) -> Result<Size, String> {
    size(text.strip_suffix("/s").unwrap_or(text))
}

/// A drive spec; relative paths are of the caller's folder, the engine runs elsewhere.
fn spec(text: &str) -> Result<DriveSpec, String> {
    let absolute = |path: &str| {
        let path = std::path::absolute(path).map_err(|error| format!("`{path}`: {error}"))?;
        path.to_str()
            .map(ToOwned::to_owned)
            .ok_or_else(|| "the path is not UTF-8".to_owned())
    };
    let text = if let Some(rest) = text.strip_prefix("file:") {
        let (path, options) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
        format!("file:{}{options}", absolute(path)?)
    } else if let Some(rest) = text.strip_prefix("paced:")
        && rest.starts_with("./")
    {
        let (path, options) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
        format!("paced:{}{options}", absolute(path)?)
    } else if text.starts_with("./") || text.starts_with("../") {
        absolute(text)?
    } else {
        text.to_owned()
    };
    text.parse::<DriveSpec>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_rate_is_taken_as_it_is_shown() {
        assert_eq!(rate("10MiB/s"), Ok(Size(10 << 20)));
        assert_eq!(rate("10MiB"), Ok(Size(10 << 20)));
        assert!(rate("/s").is_err() && rate("10MiB/s/s").is_err());
    }

    #[test]
    fn specs_become_absolute_and_nonsense_is_refused() {
        let here = std::env::current_dir().expect("a folder");
        let here = here.to_str().expect("UTF-8");
        for (text, expected) in [
            ("file:/a/b", "file:/a/b".to_owned()),
            (
                "file:b,size=1MiB,create",
                format!("file:{here}/b,size=1048576,create"),
            ),
            ("./b", format!("{here}/b")),
            ("/dev/sda", "/dev/sda".to_owned()),
            ("mem:1GiB", "mem:1073741824".to_owned()),
            ("null:512", "null:512".to_owned()),
        ] {
            assert_eq!(spec(text).expect(text).to_string(), expected);
        }
        for text in [
            "",
            "file:",
            "mem:",
            "mem:0",
            "null:-1",
            "sda",
            "file:a,size",
            "file:a,size=0",
            "file:a,create",
            "file:a,size=1,size=2",
            "file:a,x=1",
            "tape:1",
        ] {
            assert!(spec(text).is_err(), "{text}");
        }
    }
}
