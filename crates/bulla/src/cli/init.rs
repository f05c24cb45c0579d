//! `bulla init`: a queue manager with an authority, certificates, users, queues and policies, from one file.

mod build;
mod clients;
mod file;
mod plan;
mod questions;
mod record;
#[cfg(test)]
mod tests;

use super::{CliError, DATA_DEFAULT};
use clap::Args;
use clients::Client;
use file::{EXAMPLE, SiteFile};
use plan::{Outline, Plan};
use record::{Found, Record};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Set up a queue manager: authority, certificates, users, queues and policies, from a file or by questions
///
/// Writes into the directory alone, and prints how clients connect. One that was interrupted goes on where it is run
/// again.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The data directory to make
    #[arg(value_name = "DIR", default_value = DATA_DEFAULT)]
    dir: PathBuf,
    /// What it is to have (TOML); - for the standard input. Without it, questions are asked on the terminal
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write a file to start from, and stop
    #[arg(long, conflicts_with = "file")]
    example: bool,
    /// Print this client's example alone; may be repeated
    #[arg(long, value_enum, value_name = "CLIENT")]
    client: Vec<Client>,
    /// Print passwords that were made, not the files that they are in
    #[arg(long)]
    show_passwords: bool,
}

/// Does what the arguments say.
///
/// # Errors
/// Nothing is written where the file is wrong, or the directory holds another queue manager. Where a step fails, what
/// was made stays, and the next run goes on from there.
pub fn run(args: &InitArgs) -> Result<(), CliError> {
    // Whatever is made here is its owner's alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let mut out = io::stdout().lock();
    if args.example {
        return say(&mut out, EXAMPLE);
    }
    let found = Found::at(&args.dir)?;
    let file = match (&args.file, found.file()) {
        (Some(file), _) => SiteFile::read(file)?,
        (None, Some(known)) => known.clone(),
        (None, None) if io::stdin().is_terminal() => questions::ask(&mut io::stdin().lock(), &mut io::stderr())?,
        (None, None) => {
            return Err(CliError::usage("--file names no file, and there is no terminal to ask on")
                .hint("`bulla init --example > site.toml` writes a file to start from"));
        }
    };
    perform(args, found, file, SystemTime::now(), &mut out)
}

fn perform(
    args: &InitArgs,
    found: Found,
    file: SiteFile,
    now: SystemTime,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if found.file().is_some_and(|known| *known != file) {
        let dir = args.dir.display();
        return Err(CliError::failed(format!("{dir} was made from a file that said something else"))
            .hint("name another directory; `bulla mqsc`, `bulla user` and `bulla cert` change one that is there"));
    }
    let (record, is_made) = match found {
        Found::Nothing => (Record::new(file), false),
        Found::Begun(record) => (record, false),
        Found::Made(record) => (record, true),
    };
    let mut outline = Outline::of(&record)?;
    if !is_made {
        let plan = Plan::of(outline, &record.file, now)?;
        build::build(&args.dir, &record, &plan, now)?;
        outline = plan.outline;
    }
    // What is pasted elsewhere has to find the files.
    let data = std::fs::canonicalize(&args.dir).map_err(|error| CliError::file(&args.dir, error))?;
    say(out, &welcome(args, &data, &outline)?)
}

/// How it is started, who may use it, and how clients connect, as a page in Markdown.
fn welcome(args: &InitArgs, data: &Path, outline: &Outline) -> Result<String, CliError> {
    let names: Vec<String> = outline.names.iter().map(ToString::to_string).collect();
    let mut text = format!("# {}\n\nStart it:\n\n```sh\n{}\n```\n\n", outline.name, start_command(&args.dir, outline));
    text.push_str("| user | password |\n| --- | --- |\n");
    for (user, given) in &outline.passwords {
        let path = given.clone().unwrap_or_else(|| build::password_file(data, user));
        let shown = match args.show_passwords && given.is_none() {
            true => std::fs::read_to_string(&path).map_err(|error| CliError::file(&path, error))?.trim_end().to_owned(),
            false => path.display().to_string(),
        };
        let role = if outline.administrator.as_ref() == Some(user) { " (administrator)" } else { "" };
        // Into a string: cannot fail.
        let _ = writeln!(text, "| {user}{role} | {shown} |");
    }
    let (ca, store) = (build::authority_file(data), build::trust_store(data));
    let _ = write!(
        text,
        "\nThe listener's certificate is for {}.\nIts authority is in `{}`, for Java in `{}`.\nDefinitions are changed by \
         `bulla mqsc --data {}`.\n",
        names.join(", "),
        ca.display(),
        store.display(),
        clients::shell_word(&args.dir.display().to_string()),
    );
    text.push_str(&clients::examples(data, outline, &args.client));
    Ok(text)
}

/// `bulla start`, with the options that it does not have by itself.
fn start_command(data: &Path, outline: &Outline) -> String {
    let mut command = "bulla start".to_owned();
    if data != Path::new(DATA_DEFAULT) {
        let _ = write!(command, " --data {}", clients::shell_word(&data.display().to_string()));
    }
    let listen = &outline.listen;
    let text = |address: Option<std::net::SocketAddr>| address.map_or("none".to_owned(), |address| address.to_string());
    for (option, address, default) in [
        ("amqp", text(listen.amqp), "127.0.0.1:5672"),
        ("amqps", text(Some(listen.amqps)), "127.0.0.1:5671"),
        ("https", text(listen.https), "none"),
    ] {
        if address != default {
            let _ = write!(command, " --{option} {address}");
        }
    }
    command
}

/// Refuses to start a queue manager in a directory that `bulla init` has not finished.
///
/// # Errors
/// It was interrupted there.
pub(super) fn refuse_unfinished(data: &Path) -> Result<(), CliError> {
    match record::is_unfinished(data) {
        true => {
            Err(CliError::new(super::EXIT_START, format!("{}: `bulla init` was interrupted there", data.display()))
                .hint(format!("`bulla init {}` goes on", clients::shell_word(&data.display().to_string()))))
        }
        false => Ok(()),
    }
}

/// A reader that goes away (`| head`) is no failure.
fn say(out: &mut dyn Write, text: &str) -> Result<(), CliError> {
    match out.write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::failed(error.to_string())),
        _ => Ok(()),
    }
}
