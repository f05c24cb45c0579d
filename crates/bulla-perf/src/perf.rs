//! `bulla perf`: measure, and show what was measured.

use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::published;
use crate::report::{self, ReportArgs};
use crate::result::Machine;
use crate::workload::{channel, devices, handshake, islands, key_reuse, key_size, request_reply, stream, tasks, trade};
use clap::{Args, Subcommand};
use std::io::Write;

/// Measure what protection costs
#[derive(Args, Debug)]
pub struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

#[derive(Subcommand, Debug)]
enum PerfCommand {
    RequestReply(Box<request_reply::RequestReplyArgs>),
    Stream(Box<stream::StreamArgs>),
    KeySize(Box<key_size::KeySizeArgs>),
    KeyReuse(Box<key_reuse::KeyReuseArgs>),
    Devices(Box<devices::DevicesArgs>),
    Channel(Box<channel::ChannelArgs>),
    Handshake(Box<handshake::HandshakeArgs>),
    Tasks(Box<tasks::TasksArgs>),
    Islands(Box<islands::IslandsArgs>),
    Trade(Box<trade::TradeArgs>),
    Published(published::PublishedArgs),
    /// Describe this machine as results do, in JSON
    Machine,
    Report(ReportArgs),
}

/// Does what the arguments say.
///
/// # Errors
/// [`Error`], each kind.
pub fn run(args: &PerfArgs, host: &dyn Host) -> Result<Verdict> {
    match &args.command {
        PerfCommand::RequestReply(args) => return request_reply::run(args, host),
        PerfCommand::Stream(args) => return stream::run(args, host),
        PerfCommand::KeySize(args) => return key_size::run(args, host),
        PerfCommand::KeyReuse(args) => return key_reuse::run(args, host),
        PerfCommand::Devices(args) => return devices::run(args, host),
        PerfCommand::Channel(args) => return channel::run(args, host),
        PerfCommand::Handshake(args) => return handshake::run(args, host),
        PerfCommand::Tasks(args) => return tasks::run(args, host),
        PerfCommand::Islands(args) => return islands::run(args, host),
        PerfCommand::Trade(args) => return trade::run(args, host),
        PerfCommand::Published(args) => return published::run(args, host),
        PerfCommand::Machine => {
            let text =
                serde_json::to_string_pretty(&Machine::this_one()).map_err(|error| Error::System(error.into()))?;
            // A reader that goes away (`| head`) is no failure.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
        PerfCommand::Report(args) => return report::run(args),
    }
    Ok(Verdict::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use clap::error::ErrorKind;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        perf: PerfArgs,
    }

    #[test]
    fn a_key_of_no_known_kind_is_refused_before_anything_is_measured() {
        let workloads =
            ["request-reply", "stream", "key-size", "key-reuse", "devices", "channel", "handshake", "tasks", "trade"];
        for workload in workloads {
            let parse = |key: &str| Line::try_parse_from(["perf", workload, "--self", "--key", key]);
            assert!(parse("P256").is_ok(), "{workload}");
            let error = parse("rsa999").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{workload}");
            assert!(error.to_string().contains("rsa2048"), "{error}");
        }
    }
}
