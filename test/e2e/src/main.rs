//! `check-parity MEMBER...`: reads the members of a stopped array and checks all parity by the
//! definitions (crate `model`), which share no code with the engine. Only the superblock is
//! decoded by the engine's own code, to learn where the chunks are.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for a test script")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

use array::format::{SUPERBLOCK_BYTES, Superblock};
use model::{Layout, MemberFile};

/// Where the first superblock of a member is.
const FIRST_SUPERBLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match check(&paths) {
        Ok(bad) if bad.is_empty() => ExitCode::SUCCESS,
        Ok(bad) => {
            println!(
                "parity does not agree in {} stripes, the first is {}",
                bad.len(),
                bad[0]
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(paths: &[PathBuf]) -> Result<Vec<usize>, String> {
    let mut members: Vec<Option<MemberFile>> = Vec::new();
    let mut layout = None;
    for path in paths {
        let io = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(io)?;
        let mut bytes = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut bytes, FIRST_SUPERBLOCK)
            .map_err(io)?;
        let superblock =
            Superblock::decode(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let geometry = superblock.geometry;
        members.resize_with(geometry.members(), || None);
        let place = &mut members[superblock.member.at()];
        if place.is_some() {
            return Err(format!(
                "{}: a second {}",
                path.display(),
                superblock.member
            ));
        }
        *place = Some(MemberFile {
            path: path.clone(),
            data_offset_bytes: superblock.layout.data.offset,
        });
        let number = |number: u64| usize::try_from(number).expect("fits memory");
        layout = Some(Layout {
            data: geometry.data(),
            parity: geometry.parity(),
            groups: geometry.groups(),
            chunk_bytes: number(geometry.chunk_bytes()),
            rows: number(geometry.rows()),
        });
    }
    let layout = layout.ok_or("no members are named")?;
    let offset = members
        .iter()
        .flatten()
        .map(|member| member.data_offset_bytes)
        .next();
    println!(
        "data at {} bytes, {} bytes each",
        offset.unwrap_or(0),
        layout.rows * layout.chunk_bytes
    );
    let missing = members.iter().filter(|member| member.is_none()).count();
    let bad = layout
        .check_files(&members)
        .map_err(|error| error.to_string())?;
    println!(
        "{} stripes checked, {missing} members missing",
        layout.rows * layout.groups
    );
    Ok(bad)
}
