//! `bulla mqsc`: the admin language from the command line.

use super::{DATA_DEFAULT, EXIT_DAMAGED, EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE};
use crate::admin;
use crate::catalog::Definitions;
use crate::mqsc::difference::{self, Step, StepKind};
use crate::mqsc::import;
use crate::mqsc::objects::AsText;
use crate::mqsc::parse::TEXT_BYTES_MAX;
use crate::mqsc::{reference, reply};
use crate::objects_file::DefinitionsFile;
use clap::Args;
use serde_json::json;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Give commands to the queue manager
///
/// Exit code: 0 when every command was carried out, 2 when one was not understood, 4 when one was understood
/// and refused, 6 when the queue manager was not reached; of --diff 1 when something would change.
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
    /// Write everything that is defined, policies and authority included, as commands; the queue manager need not run
    #[arg(long, conflicts_with_all = ["command", "file", "diff", "apply"])]
    export: bool,
    /// Say which commands would make the definitions those in FILE, and change nothing; the queue manager need not run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "file"])]
    diff: Option<PathBuf>,
    /// Make the definitions those in FILE, all of it or nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "file", "diff"])]
    apply: Option<PathBuf>,
    /// With --diff or --apply: remove what FILE does not have; a queue with messages on it is never removed
    #[arg(long)]
    prune: bool,
    /// Read what `dmpmqcfg` of IBM MQ wrote and write the commands that it becomes, with what is left out and why in
    /// comments; changes nothing, and the queue manager need not run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "file", "export", "diff", "apply", "json"])]
    import_mq: Option<PathBuf>,
    /// With --import-mq: MD5, SHA1, RC2, DES and 3DES of a policy become SHA256 and AES256
    #[arg(long, requires = "import_mq")]
    raise: bool,
    /// Write the reference page and stop; with --json that of the names in JSON
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
        let page = if args.json { crate::json_names::page() } else { reference::page() };
        return print(&page, reply::EXIT_DONE);
    }
    if let Some(file) = &args.import_mq {
        return match text_of(file) {
            Ok(text) => print(&import::definitions(&text, args.raise).to_string(), reply::EXIT_DONE),
            Err(error) => {
                eprintln!("bulla: error: {}: {error}", file.display());
                EXIT_USAGE
            }
        };
    }
    if args.export || args.diff.is_some() || args.apply.is_some() {
        return as_code(args).unwrap_or_else(|(code, message)| {
            eprintln!("bulla: error: {message}");
            code
        });
    }
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let text = match &args.command {
        Some(command) => Ok(command.clone()),
        None => text_of(file),
    };
    match text {
        Ok(text) => ask(args, &text, args.command.is_none().then_some(file)),
        Err(error) => {
            eprintln!("bulla: error: {}: {error}", file.display());
            EXIT_USAGE
        }
    }
}

/// Has the queue manager carry commands out, and shows its answers; `file` is for messages.
fn ask(args: &MqscArgs, text: &str, file: Option<&Path>) -> u8 {
    match admin::request(&args.data, text) {
        Ok(replies) => {
            let name = file.map(Path::to_string_lossy);
            let shown = reply::show(&replies, args.json, name.as_deref());
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

/// Configuration as code: writes it, compares it with a file, or makes it that.
///
/// # Errors
/// An exit code, and what is wrong in one line.
fn as_code(args: &MqscArgs) -> Result<u8, (u8, String)> {
    // A queue manager that runs writes its definitions to the file first; of one that does not run the file is read.
    let _ = admin::request(&args.data, "PING QMGR");
    let now = Definitions::load(&args.data).map_err(|error| (EXIT_DAMAGED, error.to_string()))?;
    let now = now.ok_or_else(|| {
        (
            EXIT_UNREACHABLE,
            format!("{} is no data directory of a queue manager: nothing is defined there", args.data.display()),
        )
    })?;
    let Some(file) = args.diff.as_deref().or(args.apply.as_deref()) else {
        return Ok(print(&now.text(), reply::EXIT_DONE));
    };
    let usage = |error: &dyn Display| (EXIT_USAGE, format!("{}: {error}", file.display()));
    let text = text_of(file).map_err(|error| usage(&error))?;
    let wanted = Definitions::from_commands(&text, file, Definitions::bare(&now))
        .map_err(|error| (EXIT_USAGE, error.to_string()))?;
    let mut steps = difference::steps(&now, &wanted);
    let left = if args.prune { 0 } else { steps.iter().filter(|step| step.kind == StepKind::Remove).count() };
    if !args.prune {
        steps.retain(|step| step.kind != StepKind::Remove);
    }
    if args.diff.is_some() {
        let shown = if args.json { json_of(&steps) } else { text_of_steps(&steps, left) };
        return Ok(print(&shown, if steps.is_empty() { reply::EXIT_DONE } else { EXIT_FAILED }));
    }
    if steps.is_empty() {
        return Ok(print("nothing to change\n", reply::EXIT_DONE));
    }
    let commands: String = steps.iter().map(|step| format!("\n{}", step.command)).collect();
    Ok(ask(args, &format!("BEGIN UNIT{commands}\n"), None))
}

/// Commands that can be given as they stand; what they change is a comment before them.
fn text_of_steps(steps: &[Step], left: usize) -> String {
    let mut text = String::new();
    for Step { kind, command, was } in steps {
        let note = match kind {
            StepKind::Add => "new".to_owned(),
            StepKind::Change if was.is_empty() => "changes".to_owned(),
            StepKind::Change => format!("was {was}"),
            StepKind::Replace => "in the way of another type of queue".to_owned(),
            StepKind::Remove => "not wanted any more".to_owned(),
        };
        // Into a string: cannot fail.
        let _ = writeln!(text, "* {note}\n{command}");
    }
    if left > 0 {
        let objects = if left == 1 { "1 object".to_owned() } else { format!("{left} objects") };
        let _ = writeln!(text, "* {objects} that the file does not have would stay; --prune removes them");
    }
    text
}

fn json_of(steps: &[Step]) -> String {
    let kind = |kind| match kind {
        StepKind::Add => "add",
        StepKind::Change => "change",
        StepKind::Replace => "replace",
        StepKind::Remove => "remove",
    };
    let steps: Vec<_> =
        steps.iter().map(|step| json!({"kind": kind(step.kind), "command": step.command, "was": step.was})).collect();
    format!("{}\n", serde_json::Value::from(steps))
}

pub(super) fn text_of(file: &Path) -> io::Result<String> {
    if file == Path::new("-") { whole(io::stdin().lock()) } else { File::open(file).and_then(whole) }
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
        let echo = |_: admin::Peer, text: &str| {
            assert!(text.starts_with("DISPLAY QMGR"));
            let outcome = Outcome::Done { message: "queue manager seen".into(), warnings: Vec::new() };
            vec![Reply { at: Position::default(), command: text.into(), outcome, warnings: Vec::new() }]
        };
        let server = admin::serve(directory.path(), admin::listen(directory.path()).unwrap(), echo).unwrap();
        assert_eq!(bulla(&["--data", data, "-c", "DISPLAY QMGR"]), 0);
        assert_eq!(bulla(&["--data", data, "--json", script.to_str().unwrap()]), 0);
        server.stop();
        assert_eq!(bulla(&["--data", data, "-c", "DISPLAY QMGR"]), EXIT_UNREACHABLE);
        assert_eq!(bulla(&["--data", data, "/nowhere/setup.mqsc"]), EXIT_USAGE);
    }

    #[test]
    fn definitions_are_written_compared_and_made_those_of_a_file_all_or_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_str().unwrap();
        assert_eq!(bulla(&["--data", data, "--export"]), EXIT_UNREACHABLE);
        Definitions::initial("QM1").save(directory.path()).unwrap();
        assert_eq!(bulla(&["--data", data, "--export"]), 0);
        let wanted = directory.path().join("wanted.mqsc");
        let wanted = wanted.to_str().unwrap();
        std::fs::write(wanted, "").unwrap();
        assert_eq!(bulla(&["--data", data, "--diff", wanted, "--prune"]), 0);
        std::fs::write(wanted, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B) MAXDEPTH(3)\n").unwrap();
        assert_eq!(bulla(&["--data", data, "--diff", wanted]), EXIT_FAILED);
        assert_eq!(bulla(&["--data", data, "--apply", wanted]), EXIT_UNREACHABLE);
        let asked = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let heard = asked.clone();
        let echo = move |_: admin::Peer, text: &str| {
            text.clone_into(&mut heard.lock().unwrap());
            let outcome = Outcome::Done { message: "made".into(), warnings: Vec::new() };
            vec![Reply { at: Position::default(), command: "BEGIN UNIT".into(), outcome, warnings: Vec::new() }]
        };
        let server = admin::serve(directory.path(), admin::listen(directory.path()).unwrap(), echo).unwrap();
        assert_eq!(bulla(&["--data", data, "--apply", wanted]), 0);
        server.stop();
        let asked = asked.lock().unwrap();
        assert!(asked.starts_with("BEGIN UNIT\nDEFINE QLOCAL('A') "), "{asked}");
        std::fs::write(wanted, "DEFINE QLOCAL(A) OOPS\n").unwrap();
        assert_eq!(bulla(&["--data", data, "--diff", wanted]), EXIT_USAGE);
        std::fs::write(wanted, "CLEAR QLOCAL(A)\n").unwrap();
        assert_eq!(bulla(&["--data", data, "--diff", wanted]), EXIT_USAGE);
    }

    #[test]
    fn a_file_and_a_command_together_are_too_much() {
        assert!(Line::try_parse_from(["mqsc", "-c", "HELP", "file"]).is_err());
    }
}
