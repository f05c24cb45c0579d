//! `bulla perf devices`: what crypto devices are worth.

use super::stream::{Streams, settings};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::run::carry_out;
use crate::run::options::{Common, Defaults, Protection, STREAM_WINDOW};
use clap::Args;

/// What crypto devices are worth: the processor with and without its instructions, accelerators, coprocessors, and modelled cards
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
    let configurations =
        configurations.into_iter().map(|one| Configuration { in_flight: STREAM_WINDOW, ..one }).collect();
    carry_out(
        host,
        &args.common,
        configurations,
        &mut Streams::new("devices", host, &args.common, settings(&args.common)),
    )
}
