//! `bulla cert verify`: whether a certificate is believed, over which path, and what for. The ring is made of the files
//! named, and asked as it is when a message is opened.

use super::{Bundle, Data, Line, failed, read_file, ring_failed, say};
use crate::cli::{CliError, EXIT_REFUSED, EXIT_UNREACHABLE};
use bulla_seal::certificate::{CertificateError, Role, utc_time};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::{PathQuestion, Ring, SingleFiles};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

/// Arguments of `verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes: 0 believed; 1 a file can't be read; 2 the command line; 4 not believed (certificate-expired, \
certificate-not-yet-valid, certificate-revoked, certificate-usage, untrusted, weak-key, unsupported-key); \
6 it can't be said now (crl-stale, crl-missing).")]
pub struct VerifyArgs {
    /// The certificate, PEM, DER or PKCS#12; further certificates in the file may stand in its path
    file: PathBuf,
    /// Authorities to believe, PEM or DER; may be given again
    #[arg(long, value_name = "FILE", required_unless_present = "ring")]
    trust: Vec<PathBuf>,
    /// Certificates that may stand in the path or sign revocation lists, PEM or DER; may be given again
    #[arg(long, value_name = "FILE", conflicts_with = "ring")]
    untrusted: Vec<PathBuf>,
    /// Revocation lists, PEM or DER; may be given again
    #[arg(long, value_name = "FILE", conflicts_with = "ring")]
    crl: Vec<PathBuf>,
    /// Ask this key ring instead of single files
    #[arg(long, value_name = "USER|DIR", conflicts_with = "trust")]
    ring: Option<String>,
    /// As if it were this time: 2026-11-21, 2026-11-21T21:34:45Z, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// What it shall be good for: sign, encrypt or tls; without it only the path is looked at
    #[arg(long = "use", value_name = "ROLE")]
    role: Option<Role>,
    /// What is asked of revocation lists: none, ifpresent or required; a ring's own demand counts where it is stricter
    #[arg(long, value_name = "DEMAND", default_value = "ifpresent")]
    revocation: Revocation,
}

/// Verifies.
pub(super) fn verify(data: &Data<'_>, args: &VerifyArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let at = match &args.at {
        None => now,
        Some(text) => utc_time(text).ok_or_else(|| {
            CliError::usage(format!("{text:?} is no time"))
                .hint("write 2026-11-21, 2026-11-21T21:34:45Z, or seconds since 1970")
        })?,
    };
    let bundle = Bundle::read(&read_file(&args.file)?, None).map_err(failed)?;
    let (leaf, offered) = bundle
        .certificates
        .split_first()
        .ok_or_else(|| CliError::failed(format!("{}: no certificate in the file", args.file.display())))?;
    let ring = match &args.ring {
        Some(user) => Ring::load_without_keys(&data.ring(user)?),
        None => Ring::from_files(
            &SingleFiles { own: None, trust: &args.trust, untrusted: &args.untrusted, crls: &args.crl },
            None,
        ),
    };
    let ring = ring.map_err(ring_failed)?;
    let usage = args.role.map(|role| role.usage(leaf.key_kind()));
    let question = PathQuestion { usage, revocation: args.revocation, at, now: at };
    let proof = ring.prove(leaf, offered, &question).map_err(|error| refused(args, &error))?;

    let roles = leaf.roles();
    let what_for = match (args.role, roles.is_empty()) {
        (Some(role), _) => format!("is good for {role}"),
        (None, false) => format!("is good for {}", words(&roles)),
        (None, true) => "has a good path; its key is for none of sign, encrypt and tls".to_owned(),
    };
    say(out, format_args!("{} {what_for}", args.file.display()))?;
    let root = proof.path.len().saturating_sub(1);
    for (place, certificate) in proof.path.iter().enumerate() {
        let revocation = match place {
            _ if place == root => "trusted",
            _ if proof.verdict.revocation == Revocation::None => "no revocation list asked",
            _ if proof.unknown.contains(&place) => "no revocation list is about it",
            _ => "not revoked",
        };
        say(out, format_args!("{:>3}  {}; {revocation}", place.saturating_add(1), Line(certificate)))?;
    }
    Ok(())
}

/// Roles as a list in a sentence.
fn words(roles: &[Role]) -> String {
    roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", ")
}

fn refused(args: &VerifyArgs, error: &CertificateError) -> CliError {
    let code = if error.is_passing() { EXIT_UNREACHABLE } else { EXIT_REFUSED };
    let message = format!("{}: cause={}: {error}", args.file.display(), error.cause());
    let hint = match error {
        CertificateError::Untrusted { .. } if args.ring.is_none() => {
            Some("--trust names the file of the root, --untrusted that of each authority between")
        }
        CertificateError::CrlMissing { .. } if args.ring.is_none() => Some("--crl names the file of a revocation list"),
        CertificateError::CrlMissing { .. } => {
            Some("`bulla cert import FILE --ring USER --as crl` puts a revocation list into the ring")
        }
        _ => None,
    };
    CliError { hint: hint.map(str::to_owned), ..CliError::new(code, message) }
}
