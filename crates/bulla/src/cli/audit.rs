//! `bulla audit`: reads the audit log of a data directory, whether its queue manager runs or not.

use super::{CliError, EXIT_DAMAGED};
use crate::audit::entry::time;
use crate::audit::{EntryHash, Kind, Written};
use crate::audit_log::FOLDER;
use crate::audit_log::chain::{self, BREAKS_MAX, Verdict};
use crate::calendar::moment_ms;
use bulla_perf::spelling::respelled;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Look into the audit log
#[derive(Args, Debug)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand, Debug)]
enum AuditCommand {
    /// Check that the log was not changed, and say where it was
    ///
    /// The owner of the machine can write all of the log anew, and cut its end. Only a hash that was kept elsewhere
    /// (`bulla audit head`) shows that.
    Verify {
        /// The data directory
        #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
        data: PathBuf,
        /// The log has to hold the entry with this hash, which was kept elsewhere, or begin behind it
        #[arg(long, value_name = "HASH", value_parser = hash)]
        from_hash: Option<EntryHash>,
    },
    /// Show entries, oldest first
    Show {
        /// The data directory
        #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
        data: PathBuf,
        /// From this time on, 'YYYY-MM-DD HH:MM:SS', UTC
        #[arg(long, value_name = "TIME", value_parser = moment)]
        from: Option<u64>,
        /// Before this time
        #[arg(long, value_name = "TIME", value_parser = moment)]
        to: Option<u64>,
        /// Only of these kinds: command, policy, result, refusal, key-use, key-rotation, …
        #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
        kind: Vec<Kind>,
        /// As JSON, a line each
        #[arg(long)]
        json: bool,
    },
    /// Print the hash of the newest entry, to be kept elsewhere
    Head {
        /// The data directory
        #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
        data: PathBuf,
    },
}

fn hash(text: &str) -> Result<EntryHash, String> {
    EntryHash::parse(text).ok_or_else(|| "expected 64 hexadecimal digits".to_owned())
}

fn moment(text: &str) -> Result<u64, String> {
    moment_ms(text).ok_or_else(|| "expected 'YYYY-MM-DD HH:MM:SS', UTC".to_owned())
}

fn kind(text: &str) -> Result<Kind, String> {
    let found = Kind::ALL.into_iter().find(|kind| kind.word() == text);
    found.ok_or_else(|| format!("expected one of {}", Kind::ALL.map(Kind::word).join(", ")))
}

/// Checks or shows.
///
/// # Errors
/// The log is broken, can't be read, or is not there.
pub fn run(args: &AuditArgs) -> Result<(), CliError> {
    match &args.command {
        AuditCommand::Verify { data, from_hash } => {
            let folder = folder(data)?;
            let verdict = chain::verify(&folder, from_hash.as_ref()).map_err(unread)?;
            print(&text_of(&verdict, &folder));
            match verdict.breaks.len() {
                0 => Ok(()),
                count if count >= BREAKS_MAX => {
                    Err(CliError::new(EXIT_DAMAGED, format!("the chain breaks in {count} places or more")))
                }
                1 => Err(CliError::new(EXIT_DAMAGED, "the chain breaks in 1 place".to_owned())),
                count => Err(CliError::new(EXIT_DAMAGED, format!("the chain breaks in {count} places"))),
            }
        }
        AuditCommand::Show { data, from, to, kind, json } => {
            let (from, to) = (from.map(time), to.map(time));
            let wanted = |entry: &Written| {
                from.as_ref().is_none_or(|from| entry.time >= *from)
                    && to.as_ref().is_none_or(|to| entry.time < *to)
                    && (kind.is_empty() || kind.iter().any(|kind| kind.word() == entry.kind))
            };
            let mut out = io::stdout().lock();
            let show = |entry: Written| {
                let line = if *json { json_of(&entry).to_string() } else { line_of(&entry) };
                // A reader that goes away (`| head`) is no failure.
                !wanted(&entry) || writeln!(out, "{line}").is_ok()
            };
            chain::read(&folder(data)?, show).map_err(unread)
        }
        AuditCommand::Head { data } => {
            let head = chain::head(&folder(data)?).map_err(unread)?;
            let head = head.ok_or_else(|| CliError::new(EXIT_DAMAGED, "the audit log has no entry".to_owned()))?;
            print(&format!("{}\n", head.hash));
            Ok(())
        }
    }
}

fn folder(data: &Path) -> Result<PathBuf, CliError> {
    let folder = data.join(FOLDER);
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(CliError::failed(format!("{}: there is no audit log", data.display()))),
    }
}

fn unread((path, error): (PathBuf, io::Error)) -> CliError {
    CliError::file(&path, error)
}

fn print(text: &str) {
    // A reader that goes away (`| head`) is no failure.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

fn text_of(verdict: &Verdict, folder: &Path) -> String {
    let mut text = format!("files     {}\nentries   {}\n", verdict.files, verdict.entries);
    if let Some(((first, from), (last, to))) = &verdict.extent {
        text += &format!("extent    {first} to {last}, {from} to {to}\n");
    }
    if let Some(head) = &verdict.head {
        text += &format!("head      {head}\n");
    }
    for found in &verdict.breaks {
        let place = match (found.file.as_str(), found.line) {
            ("", _) => folder.display().to_string(),
            (file, 0) => file.to_owned(),
            (file, line) => format!("{file} line {line}"),
        };
        text += &format!("break     {place}: {}\n", found.what);
    }
    text
}

fn json_of(entry: &Written) -> Json {
    json!({
        "seq": entry.sequence,
        "time": entry.time,
        "kind": entry.kind,
        "who": respelled(entry.who.clone()),
        // Entries of earlier versions joined the words of a name by `-`.
        "what": respelled(entry.what.clone()),
        "hash": entry.hash.to_string(),
    })
}

/// `12 2026-11-22T10:12:01.123Z refusal user=orders address=192.0.2.7:50122 action=put …`
fn line_of(entry: &Written) -> String {
    let mut line = format!("{} {} {}", entry.sequence, entry.time, entry.kind);
    for (name, value) in [&entry.who, &entry.what].into_iter().filter_map(Json::as_object).flatten() {
        match value {
            // Whatever could be taken for something else is shown as JSON has it.
            Json::String(text)
                if text.is_empty() || text.contains([' ', '"', '=']) || text.contains(char::is_control) =>
            {
                line += &format!(" {name}={value}");
            }
            Json::String(text) => line += &format!(" {name}={text}"),
            value => line += &format!(" {name}={value}"),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Entry, Who};

    #[test]
    fn a_line_cannot_pass_for_another_one() {
        let who = Who::Connection { user: Some("a\n2 kind".into()), address: "192.0.2.7:1".into() };
        let entry = Entry::new(Kind::Refusal, who, json!({ "object": "", "reason": 2035, "detail": "no PUT" }));
        let (line, _) = entry.line(1, 0, &EntryHash::none());
        let written = Written::parse(line.trim_end().as_bytes()).unwrap();
        assert_eq!(
            line_of(&written),
            r#"1 1970-01-01T00:00:00.000Z refusal user="a\n2 kind" address=192.0.2.7:1 object="" reason=2035 detail="no PUT""#
        );
    }
}
