//! Where the workspace is, and how its own cargo is called.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// The checkout that this program was built from.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace of this very program.
    pub fn here() -> Workspace {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = crate_folder.parent().expect("xtask lies in the workspace");
        Workspace {
            root: root.to_owned(),
        }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo puts what it builds.
    pub fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// Builds what is shipped, what tests it and what measures it. All at once, with the features
    /// that they share: one by one each would build much of it anew.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn build_programs(&self) -> Result<(), String> {
        let words = "build --release --package garboard --package e2e --package bench --locked";
        must("build", &mut self.cargo(words))
    }

    /// `cargo WORDS…` in the workspace's folder.
    pub fn cargo(&self, words: &str) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(words.split(' ')).current_dir(&self.root);
        command
    }
}

/// Runs `command` to its end, its output shown as it comes, and says how long that took.
///
/// # Errors
/// `what` and how it ended, when it did not end well.
pub(crate) fn must(what: &str, command: &mut Command) -> Result<(), String> {
    #[allow(clippy::disallowed_methods, reason = "nothing of this is simulated")]
    let began = Instant::now();
    let ended = command.status();
    println!("-- {what}: {} s", began.elapsed().as_secs());
    self::ended(what, ended)
}

/// # Errors
/// `what` and how it ended, when it did not end well.
pub(crate) fn ended(what: &str, status: io::Result<ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: failed ({status})")),
        Err(error) => Err(format!("{what}: cannot start: {error}")),
    }
}
