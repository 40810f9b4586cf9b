//! `garboard pool …`.

use clap::{Args, Subcommand};
use control::Answer;
use control::body::{PoolArrayBody, PoolCreateBody, SpareBody};
use control::view::{DriveView, PoolView};
use uuid::Uuid;

use super::{Yes, drive};
use crate::output::{Row, or_dash};
use crate::session::{Question, Session};

/// Pools: spares that several arrays share.
#[derive(Debug, Subcommand)]
pub(super) enum Pool {
    /// Make a pool
    Create(Create),
    /// Put a free drive into a pool
    Add(Add),
    /// Take a drive out of a pool; it is free then
    Remove(Drive),
    /// Let an array take spares from a pool, after its own
    Attach(Array),
    /// Let an array take no more spares from a pool
    Detach(Array),
    /// List all pools
    List,
    /// Show one pool
    Show(Name),
    /// Forget a pool; its drives are free then
    Delete(Name),
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// Its name
    #[arg(value_parser = super::new_name)]
    name: String,
    /// Free drives by name or uuid
    #[arg(long, value_delimiter = ',', value_parser = super::key)]
    drives: Vec<String>,
    /// Arrays that take spares from it, by name or uuid
    #[arg(long, value_delimiter = ',', value_parser = super::key)]
    arrays: Vec<String>,
    /// Its uuid; the command can then be repeated
    #[arg(long)]
    uuid: Option<Uuid>,
    /// Erase drives that carry something known
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    yes: Yes,
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// The pool, by name or uuid
    #[arg(value_parser = super::key)]
    name: String,
    /// A free drive, by name or uuid
    #[arg(long, value_parser = super::key)]
    drive: String,
    /// Erase a drive that carries something known
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    yes: Yes,
}

#[derive(Debug, Args)]
pub(super) struct Drive {
    /// The pool, by name or uuid
    #[arg(value_parser = super::key)]
    name: String,
    /// The drive, by name or uuid
    #[arg(long, value_parser = super::key)]
    drive: String,
}

#[derive(Debug, Args)]
pub(super) struct Array {
    /// The pool, by name or uuid
    #[arg(value_parser = super::key)]
    name: String,
    /// The array, by name or uuid
    #[arg(long, value_parser = super::key)]
    array: String,
}

#[derive(Debug, Args)]
pub(super) struct Name {
    /// Name or uuid
    #[arg(value_parser = super::key)]
    name: String,
}

impl Pool {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Pool::Create(create) => create.run(session),
            Pool::Add(add) => add.run(session),
            Pool::Remove(Drive { name, drive }) => {
                let pool: PoolView = session.delete(&format!("{}/drives/{drive}", path(&name)))?;
                session.done(&pool, &format!("drive {drive} is free"))
            }
            Pool::Attach(Array { name, array }) => {
                let body = PoolArrayBody { array };
                let pool: PoolView = session.post(&format!("{}/arrays", path(&name)), &body)?;
                let (pool_name, array) = (&pool.name, &body.array);
                let sentence = format!("array {array} takes spares from pool {pool_name}");
                session.done(&pool, &sentence)
            }
            Pool::Detach(Array { name, array }) => {
                let pool: PoolView = session.delete(&format!("{}/arrays/{array}", path(&name)))?;
                let sentence =
                    format!("array {array} takes no more spares from pool {}", pool.name);
                session.done(&pool, &sentence)
            }
            Pool::List => {
                let pools: Vec<PoolView> = session.get("/v1/pools")?;
                session.list(&pools)
            }
            Pool::Show(Name { name }) => {
                let pool: PoolView = session.get(&path(&name))?;
                session.show(&pool)
            }
            Pool::Delete(Name { name }) => {
                let gone: PoolView = session.delete(&path(&name))?;
                session.done(&gone, &format!("pool {} deleted", gone.name))
            }
        }
    }
}

impl Create {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        if self.force {
            confirm_erasing(session, &self.drives, self.yes)?;
        }
        let body = PoolCreateBody {
            name: self.name,
            uuid: self.uuid,
            drives: self.drives,
            arrays: self.arrays,
            force: self.force,
        };
        let pool: PoolView = session.post("/v1/pools", &body)?;
        let drives = match pool.drives.len() {
            1 => "1 drive".to_owned(),
            drives => format!("{drives} drives"),
        };
        let sentence = format!("pool {} created, {drives}", pool.name);
        session.done(&pool, &sentence)
    }
}

impl Add {
    fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        if self.force {
            confirm_erasing(session, std::slice::from_ref(&self.drive), self.yes)?;
        }
        let body = SpareBody {
            drive: self.drive,
            force: self.force,
        };
        let pool: PoolView = session.post(&format!("{}/drives", path(&self.name)), &body)?;
        let sentence = format!("drive {} is in pool {}", body.drive, pool.name);
        session.done(&pool, &sentence)
    }
}

/// Asks before drives are erased that carry something.
pub(super) fn confirm_erasing(
    session: &mut Session<'_, '_>,
    drives: &[String],
    yes: Yes,
) -> Answer<()> {
    let mut touched = Vec::new();
    for key in drives {
        let found: DriveView = session.get(&format!("/v1/drives/{key}"))?;
        touched.push(drive::describe(&found));
    }
    let question = Question {
        object: format!("drive {}", drives.join(", ")),
        what: "this erases what is on the drives".into(),
        touched,
    };
    session.confirm(&question, yes.yes)
}

fn path(key: &str) -> String {
    format!("/v1/pools/{key}")
}

impl Row for PoolView {
    const HEADS: &'static [&'static str] = &["NAME", "DRIVES", "ARRAYS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            or_dash((!self.drives.is_empty()).then(|| self.drives.join(","))),
            or_dash((!self.arrays.is_empty()).then(|| self.arrays.join(","))),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![("uuid", self.uuid.to_string())]
    }
}
