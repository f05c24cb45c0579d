//! `bulla mqsc`: the admin language from the command line.

use super::{DATA_DEFAULT, EXIT_UNREACHABLE, EXIT_USAGE};
use crate::mqsc::admin;
use crate::mqsc::parse::TEXT_BYTES_MAX;
use crate::mqsc::{reference, reply};
use clap::Args;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Give commands to the queue manager
///
/// Exit code: 0 when every command was carried out, 2 when one was not understood, 4 when one was understood
/// and refused, 6 when the queue manager was not reached.
#[derive(Args, Debug)]
pub struct MqscArgs {
    /// One command, or several separated by semicolons
    #[arg(short = 'c', long = "command", value_name = "COMMAND", conflicts_with = "file")]
    command: Option<String>,
    /// A file of commands; - for the standard input, which is also what is read without arguments
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// Write the reference page and stop
    #[arg(long, hide = true)]
    reference: bool,
}

/// Does what the arguments say.
pub fn run(args: &MqscArgs) -> ExitCode {
    perform(args).into()
}

/// Returns the exit code.
fn perform(args: &MqscArgs) -> u8 {
    if args.reference {
        return print(&reference::page(), reply::EXIT_DONE);
    }
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let text = match &args.command {
        Some(command) => Ok(command.clone()),
        None if file == Path::new("-") => whole(io::stdin().lock()),
        None => File::open(file).and_then(whole),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            eprintln!("bulla: error: {}: {error}", file.display());
            return EXIT_USAGE;
        }
    };
    match admin::request(&args.data, &text) {
        Ok(replies) => {
            let name = file.to_string_lossy();
            let shown = reply::show(&replies, args.json, args.command.is_none().then_some(&*name));
            let exit_code = print(&shown.stdout, shown.exit_code);
            eprint!("{}", shown.stderr);
            exit_code
        }
        Err(error) => {
            eprintln!("bulla: error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("bulla: hint: {hint}");
            }
            EXIT_UNREACHABLE
        }
    }
}

/// A reader that goes away (`| head`) is no failure.
fn print(text: &str, exit_code: u8) -> u8 {
    let _ = io::stdout().lock().write_all(text.as_bytes());
    exit_code
}

fn whole(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    // One byte beyond the limit is enough for the parser to refuse it.
    from.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::parse::Position;
    use crate::mqsc::reply::{Outcome, Reply};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        mqsc: MqscArgs,
    }

    fn bulla(arguments: &[&str]) -> u8 {
        perform(&Line::try_parse_from(["mqsc"].iter().chain(arguments)).unwrap().mqsc)
    }

    #[test]
    fn a_file_and_a_command_reach_the_queue_manager() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_str().unwrap();
        let script = directory.path().join("setup.mqsc");
        std::fs::write(&script, "DISPLAY QMGR\n").unwrap();
        let echo = |text: &str| {
            assert!(text.starts_with("DISPLAY QMGR"));
            let outcome = Outcome::Done { message: "queue manager seen".into(), warnings: Vec::new() };
            vec![Reply { at: Position::default(), command: text.into(), outcome }]
        };
        let server = admin::serve(directory.path(), admin::listen(directory.path()).unwrap(), echo).unwrap();
        assert_eq!(bulla(&["--data", data, "-c", "DISPLAY QMGR"]), 0);
        assert_eq!(bulla(&["--data", data, "--json", script.to_str().unwrap()]), 0);
        server.stop();
        assert_eq!(bulla(&["--data", data, "-c", "DISPLAY QMGR"]), EXIT_UNREACHABLE);
        assert_eq!(bulla(&["--data", data, "/nowhere/setup.mqsc"]), EXIT_USAGE);
    }

    #[test]
    fn a_file_and_a_command_together_are_too_much() {
        assert!(Line::try_parse_from(["mqsc", "-c", "HELP", "file"]).is_err());
    }
}
