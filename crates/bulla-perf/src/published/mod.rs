//! `bulla perf published`: the tables of published studies of protected messaging, measured again by one command each.
//!
//! A file a study: its figures as data, each with its [`figure::Mark`]; the run that measures the same here; and the
//! page on which both stand beside each other. [`beside`] and [`page`] are what studies share.

pub mod beside;
mod buffer;
pub mod figure;
mod https;
mod interception;
mod key_size;
pub mod ours;
pub mod page;
mod tls;

use crate::error::{Result, Verdict};
use crate::host::Host;
use clap::{Args, Subcommand};

/// Measure what a published study has measured, and show its figures beside ours
#[derive(Args, Debug)]
pub struct PublishedArgs {
    #[command(subcommand)]
    study: Study,
}

#[derive(Subcommand, Debug)]
enum Study {
    KeySize(Box<key_size::KeySizeArgs>),
    Https(Box<https::HttpsArgs>),
    Interception(Box<interception::InterceptionArgs>),
    Tls(Box<tls::TlsArgs>),
    Buffer(Box<buffer::BufferArgs>),
}

/// Does what the arguments say.
///
/// # Errors
/// What ended the run early; [`Error::File`](crate::error::Error::File) where a page can't be written.
pub fn run(args: &PublishedArgs, host: &dyn Host) -> Result<Verdict> {
    match &args.study {
        Study::KeySize(args) => key_size::run(args, host),
        Study::Https(args) => https::run(args, host),
        Study::Interception(args) => interception::run(args, host),
        Study::Tls(args) => tls::run(args, host),
        Study::Buffer(args) => buffer::run(args, host),
    }
}
