//! `bulla perf key-size`: what longer keys cost.

use super::stream::{Streams, settings, streamed};
use crate::configuration::{Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::run::carry_out;
use crate::run::options::{Common, Defaults, Protection};
use clap::Args;

/// What longer keys cost: RSA and NIST curves by quality of protection, key reuse and size, as fast as it goes
#[derive(Args, Debug)]
pub struct KeySizeArgs {
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &KeySizeArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    let configurations = args.protection.product(&Defaults {
        quality: &Quality::ALL,
        key: &["rsa1024", "rsa2048", "rsa4096", "p192", "p224", "p256", "p521"],
        reuse: &[Reuse::Times(0), Reuse::Times(32)],
        size: &[2048],
        pairs: &[1],
        devices: &["cpu"],
    })?;
    let mut streams = Streams::new("key-size", host, &args.common, settings(&args.common));
    carry_out(host, &args.common, streamed(&args.common, configurations), &mut streams)
}
