//! `bulla perf key-reuse`: what it is worth to use a content key again.

use super::stream::{Streams, settings, streamed};
use crate::configuration::{Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::run::carry_out;
use crate::run::options::{Common, Defaults, Protection};
use clap::Args;

/// What it is worth to use a content key again: confidentiality with each reuse, through 1 to 21 queues at once
#[derive(Args, Debug)]
pub struct KeyReuseArgs {
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
}

/// The reuses of the published sweep.
const REUSES: [Reuse; 9] = [
    Reuse::Times(0),
    Reuse::Times(1),
    Reuse::Times(2),
    Reuse::Times(4),
    Reuse::Times(8),
    Reuse::Times(16),
    Reuse::Times(32),
    Reuse::Times(64),
    Reuse::Unlimited,
];

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &KeyReuseArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    let configurations = args.protection.product(&Defaults {
        quality: &[Quality::Confidentiality],
        key: &["rsa2048"],
        reuse: &REUSES,
        size: &[2048],
        pairs: &[1, 5, 21],
        devices: &["cpu"],
    })?;
    let mut streams = Streams::new("key-reuse", host, &args.common, settings(&args.common));
    carry_out(host, &args.common, streamed(&args.common, configurations), &mut streams)
}
