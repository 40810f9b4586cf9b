//! `garboard serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use control::Answer;
use control::settings::{CoreList, Given, Poll};
use units::Size;

use crate::serve;

/// Run the engine in the foreground.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// A TOML file with socket, http, state_dir, cores, memory, poll; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The API's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve /metrics, and nothing else, over TCP
    #[arg(long, value_name = "ADDR:PORT")]
    http: Option<SocketAddr>,
    /// Where the wanted state is kept; made when missing
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// CPUs to poll on, for example 2-5,8
    #[arg(long, value_name = "LIST", value_parser = str::parse::<CoreList>)]
    cores: Option<CoreList>,
    /// The budget for the transfer buffers of all arrays, for example 1GiB. Each takes an
    /// eighth, up to 48 MiB for each core and 8.5 MiB at least. Without, each takes the most
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    memory: Option<Size>,
    /// How to wait for work: always, adaptive or never
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Poll>)]
    poll: Option<Poll>,
    /// The process that started it, and with which it ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

impl Serve {
    /// Runs until a signal ends it. `socket` is what was said before the sub-command.
    pub(super) fn run(self, socket: Option<PathBuf>) -> Answer<()> {
        let flags = Given {
            socket: self.socket.or(socket),
            http: self.http,
            state_dir: self.state_dir,
            cores: self.cores,
            memory: self.memory,
            poll: self.poll,
        };
        let file = match &self.config {
            Some(path) => Given::read(path)?,
            None => Given::default(),
        };
        if let Some(parent) = self.parent {
            serve::end_with(parent)?;
        }
        serve::until_a_signal(flags.or(file))
    }
}
