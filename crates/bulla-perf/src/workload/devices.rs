//! `bulla perf devices`: what crypto devices are worth.

use super::stream::{Streams, settings, streamed};
use crate::configuration::{Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::run::carry_out;
use crate::run::options::{Common, Defaults, Protection};
use clap::Args;

/// What crypto devices are worth: the processor with and without its instructions, accelerators, coprocessors, and
/// modelled cards
#[derive(Args, Debug)]
pub struct DevicesArgs {
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &DevicesArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    let configurations = args.protection.product(&Defaults {
        quality: &[Quality::Integrity, Quality::Privacy, Quality::Confidentiality],
        key: &["rsa2048"],
        reuse: &[Reuse::Times(32)],
        size: &[2048],
        pairs: &[1],
        devices: &["software", "cpu", "1a", "2a", "1c", "modelled:1a", "modelled:1c", "modelled:2a", "modelled:2c"],
    })?;
    let mut streams = Streams::new("devices", host, &args.common, settings(&args.common));
    carry_out(host, &args.common, streamed(&args.common, configurations), &mut streams)
}
