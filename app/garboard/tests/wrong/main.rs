//! Wrong states of drives and arrays, as a user meets them: the real program, files for drives, a
//! guest that knows what it wrote. Nothing is guessed, nothing lost, and what is refused or left
//! out is named with its cause and the way out.

#[path = "../common/mod.rs"]
mod common;

mod bed;
mod copies;
mod damage;
mod guest;
mod halves;
mod image;
mod limits;
mod members;
mod rebuilds;
mod states;
mod waits;
