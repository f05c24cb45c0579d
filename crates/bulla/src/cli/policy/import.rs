//! `bulla policy import`: policies of IBM MQ Advanced Message Security.

use super::super::mqsc::text_of;
use super::super::{CliError, DATA_DEFAULT, EXIT_DAMAGED, EXIT_FAILED, EXIT_UNREACHABLE};
use crate::admin;
use crate::catalog::Definitions;
use crate::folders::RINGS;
use crate::mqsc::import::{Certificate, Fate, Imported, PolicyOptions, policies};
use crate::mqsc::reply;
use crate::objects_file::DefinitionsFile;
use bulla_seal::ring;
use clap::Args;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is taken over, and how.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// What the tool wrote; - for the standard input
    file: PathBuf,
    /// Set the policies, all of them or none; nothing is set where one of them can't be taken over
    #[arg(long)]
    apply: bool,
    /// MD5 and SHA1 become SHA256; RC2, DES and 3DES become AES256. Without it such a policy is left out
    #[arg(long)]
    raise: bool,
    /// Data directory of the queue manager: names are compared with the certificates of its key rings
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

/// Writes the commands, or has them carried out.
///
/// # Errors
/// The file can't be read; [`EXIT_FAILED`] where a policy can't be taken over; the queue manager is not there or
/// refuses.
pub(super) fn run(args: &ImportArgs) -> Result<(), CliError> {
    let text = text_of(&args.file).map_err(|error| CliError::usage(format!("{}: {error}", args.file.display())))?;
    // A queue manager that runs writes its definitions to the file first.
    let _ = admin::request(&args.data, "PING QMGR");
    let definitions = Definitions::load(&args.data).map_err(|error| CliError::new(EXIT_DAMAGED, error.to_string()))?;
    let certificates = certificates(&args.data.join(RINGS));
    let options = PolicyOptions {
        raise: args.raise,
        certificates: certificates.as_deref(),
        definitions: definitions.unwrap_or_else(|| Definitions::initial("IMPORT")),
    };
    let imported = policies(&text, options);
    // A reader that goes away (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(imported.to_string().as_bytes());
    let left_out = imported.count(Fate::LeftOut);
    if left_out > 0 {
        let what = if args.apply { ", so nothing is set" } else { "" };
        let of = imported.entries.len();
        return Err(CliError::new(EXIT_FAILED, format!("{left_out} of {of} can't be taken over{what}"))
            .hint("the comments say why; --raise is for broken algorithms, other lines can be taken out of the file"));
    }
    if args.apply { apply(args, &imported) } else { Ok(()) }
}

/// Has the commands carried out, as one unit.
fn apply(args: &ImportArgs, imported: &Imported) -> Result<(), CliError> {
    let commands: Vec<&str> = imported.commands().collect();
    if commands.is_empty() {
        return Ok(());
    }
    let replies = admin::request(&args.data, &format!("BEGIN UNIT\n{}\n", commands.join("\n")))
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    let shown = reply::show(&replies, false, None);
    eprint!("{}{}", shown.stdout, shown.stderr);
    match shown.exit_code {
        reply::EXIT_DONE => Ok(()),
        code => Err(CliError::new(code, "nothing is set".into())),
    }
}

/// The certificates of users in the key rings; none where there are no rings. A ring that does not load is named.
fn certificates(rings: &Path) -> Option<Vec<Certificate>> {
    let mut folders: Vec<_> = std::fs::read_dir(rings).ok()?.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let mut found = Vec::new();
    for folder in folders {
        let user = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match ring::survey(&folder) {
            Ok(survey) => {
                let own = survey.own.iter().map(|person| (&person.certificate, "own"));
                let people = survey.ring.people().iter().map(|person| (&person.certificate, "people"));
                found.extend(own.chain(people).map(|(certificate, place)| Certificate {
                    dn: certificate.dn().clone(),
                    place: format!("{user}/{place}"),
                }));
            }
            Err(error) => eprintln!("bulla: warning: {error}"),
        }
    }
    Some(found)
}
