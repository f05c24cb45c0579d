//! `bulla seal`: sealed messages in files, without a queue manager. `inspect` says what a message says of itself,
//! `open` opens it with every check of a policy.

use super::{CliError, EXIT_DAMAGED, EXIT_EMPTY, EXIT_REFUSED, EXIT_UNREACHABLE};
use crate::mqsc;
use bulla_device::CpuDevice;
use bulla_seal::certificate::{Passphrase, utc};
use bulla_seal::ring::{Ring, SingleFiles};
use bulla_seal::{OpenError, Opener, Outcome, Packing, Policy, SealInfo, SealedBinding, Verified, drive};
use clap::{Args, Subcommand};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Look at sealed messages
#[derive(Args, Debug)]
pub struct SealArgs {
    #[command(subcommand)]
    command: SealCommand,
}

#[derive(Subcommand, Debug)]
enum SealCommand {
    /// Say what an envelope says of itself: quality, algorithms, signer, recipients, binding, sizes
    Inspect {
        /// The sealed message, DER; `-` is standard input
        file: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Write the signed root of a message that shares its signature to this file, for `openssl cms -verify`
        #[arg(long, value_name = "FILE")]
        root: Option<PathBuf>,
    },
    /// Open a sealed message without a queue manager, with every check of a policy
    ///
    /// The payload goes to standard output, what the seal says to standard error.
    Open(Box<OpenArgs>),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes: 0 opened; 1 a file can't be read or written; 2 the command line; 3 not addressed to this key \
(cause=not-a-recipient); 4 not what the policy asks for (not-sealed, weaker-than-policy, unsigned, \
signer-not-authorised, moved, unbound, or the signer's certificate); 6 it can't be said now (crl-stale, \
key-unavailable); 7 damaged (malformed, cannot-decrypt, tampered).")]
struct OpenArgs {
    /// The sealed message, DER; `-` is standard input
    file: PathBuf,
    /// What the message must be, in the words of SET POLICY: "SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=billing')"
    #[arg(long, value_name = "ATTRIBUTES")]
    policy: String,
    /// Open with this key ring: a folder with own, people, trust and crl
    #[arg(long, value_name = "DIR", required_unless_present = "trust")]
    ring: Option<PathBuf>,
    /// Open with this private key, PEM
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "ring")]
    key: Option<PathBuf>,
    /// The certificate of the private key, PEM
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "ring")]
    cert: Option<PathBuf>,
    /// An authority to believe, PEM; may be given again
    #[arg(long, value_name = "FILE", conflicts_with = "ring")]
    trust: Vec<PathBuf>,
    /// A revocation list; may be given again
    #[arg(long, value_name = "FILE", conflicts_with = "ring")]
    crl: Vec<PathBuf>,
    /// The passphrase of the private key, the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    binding: BindingArgs,
    /// When the message was put, in seconds since 1970; certificates are judged by it. Without it: now
    #[arg(long, value_name = "SECONDS")]
    put_at: Option<u64>,
    /// Write the payload to this file, readable by its owner alone
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What the message is bound to.
#[derive(Args, Debug)]
struct BindingArgs {
    /// Where the message belongs; the policy's BINDNAME counts too
    #[arg(long, value_name = "QUEUE@QMGR", required_unless_present = "no_binding")]
    destination: Option<String>,
    /// The message's id: a text, or 0x and the encoded AMQP value in hexadecimal
    #[arg(long, value_name = "ID", requires = "destination")]
    message_id: Option<String>,
    /// SHA-256 of the message's properties, as the page on the format digests them
    #[arg(long, value_name = "HEX", requires = "destination")]
    properties: Option<String>,
    /// SHA-256 of the message's application properties
    #[arg(long, value_name = "HEX", requires = "destination")]
    application_properties: Option<String>,
    /// SHA-256 of the message annotations that are bound
    #[arg(long, value_name = "HEX", requires = "destination")]
    annotations: Option<String>,
    /// Open it wherever it belongs: the binding is shown and compared with nothing
    #[arg(long, conflicts_with = "destination")]
    no_binding: bool,
}

/// Inspects or opens.
///
/// # Errors
/// The file can't be read, holds no sealed message, or does not open.
pub fn run(args: &SealArgs) -> Result<(), CliError> {
    match &args.command {
        SealCommand::Inspect { file, json, root } => inspect(file, *json, root.as_deref()),
        SealCommand::Open(args) => open(args),
    }
}

fn inspect(file: &Path, json: bool, root: Option<&Path>) -> Result<(), CliError> {
    let bytes = read(file).map_err(|error| CliError::file(file, error))?;
    let inspection = bulla_seal::inspect(&bytes)
        .map_err(|error| CliError::failed(format!("{}: {}: {error}", file.display(), error.cause())))?;
    if let Some(path) = root {
        let why = if inspection.recipients.is_empty() {
            "the message has a signature of its own, or none"
        } else {
            "what is signed is inside the envelope: open that first, with `openssl cms -decrypt`"
        };
        let none = || CliError::failed(format!("{}: {why}", file.display()));
        let signed = bulla_seal::batch_root(&bytes).ok_or_else(none)?;
        std::fs::write(path, signed).map_err(|error| CliError::file(path, error))?;
    }
    if json {
        println!("{}", inspection.to_json());
    } else {
        println!("{inspection}");
    }
    Ok(())
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file)
}

fn open(args: &OpenArgs) -> Result<(), CliError> {
    let policy = policy(args)?;
    let claimed = Claimed::of(args)?;
    let ring = Arc::new(ring(args)?);
    let der = read(&args.file).map_err(|error| CliError::file(&args.file, error))?;
    let now = SystemTime::now();
    let put_at = args.put_at.map_or(Some(now), |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let put_at = put_at.ok_or_else(|| CliError::usage("--put-at is past the end of time"))?;
    let unopened = |error: OpenError| {
        let message = format!("{}: cause={}: {error}", args.file.display(), error.cause());
        CliError::new(exit_code(&error), message)
    };
    let opened = Opener::new()
        .open_anywhere(&policy, &ring, der.into(), put_at, now)
        .and_then(|step| drive(step, &mut CpuDevice::new("cpu")))
        .map(Verified::into_inner)
        .map_err(unopened)?;
    if let Some(binding) = &opened.seal.binding {
        claimed.compare(binding, &policy).map_err(unopened)?;
    }
    for line in said(&opened.seal, &claimed) {
        eprintln!("{line}");
    }
    if opened.content.packing == Packing::Sections {
        eprintln!("the payload is encoded AMQP sections, not one data section's bytes");
    }
    match &args.out {
        Some(path) => write(path, &opened.content.bytes).map_err(|error| CliError::file(path, error)),
        None => {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(&opened.content.bytes).and_then(|()| out.flush());
            written.map_err(|error| CliError::failed(format!("standard output: {error}")))
        }
    }
}

/// Clear text: for its owner alone.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    const OWNER_ALONE: u32 = 0o600;
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ALONE).open(path)?;
    file.write_all(bytes)
}

fn policy(args: &OpenArgs) -> Result<Arc<Policy>, CliError> {
    let queue = args.binding.destination.as_deref().and_then(|place| place.split('@').next()).unwrap_or("MESSAGE");
    let command = format!("SET POLICY('{}') {}", queue.replace('\'', "''"), args.policy);
    let policy = mqsc::policy::from_text(&command).map_err(|error| CliError::usage(format!("--policy: {error}")))?;
    Ok(Arc::new(policy))
}

fn ring(args: &OpenArgs) -> Result<Ring, CliError> {
    let passphrase = args.passphrase_file.as_deref().map(Passphrase::from_file).transpose();
    let passphrase = passphrase.map_err(|error| CliError::failed(error.to_string()))?;
    let ring = match &args.ring {
        Some(dir) => Ring::load(dir, passphrase.as_ref()),
        None => {
            let own = args.key.as_deref().zip(args.cert.as_deref());
            let files = SingleFiles { own, trust: &args.trust, untrusted: &[], crls: &args.crl };
            Ring::from_files(&files, passphrase.as_ref())
        }
    };
    ring.map_err(|error| CliError::failed(error.to_string()))
}

/// Which kind of failure it is.
fn exit_code(error: &OpenError) -> u8 {
    match error.outcome() {
        Outcome::NotMine => EXIT_EMPTY,
        Outcome::Retry => EXIT_UNREACHABLE,
        Outcome::Defective => match error {
            OpenError::Malformed { .. } | OpenError::CannotDecrypt | OpenError::Tampered { .. } => EXIT_DAMAGED,
            _ => EXIT_REFUSED,
        },
    }
}

/// What the command line says of the place of a message.
struct Claimed {
    destination: Option<String>,
    message_id: Option<Vec<u8>>,
    properties: Option<Vec<u8>>,
    application_properties: Option<Vec<u8>>,
    annotations: Option<Vec<u8>>,
}

impl Claimed {
    fn of(args: &OpenArgs) -> Result<Self, CliError> {
        let digest = |option: &str, text: &Option<String>| {
            const DIGEST_BYTES: usize = 32;
            let bytes = text
                .as_deref()
                .map(|text| base16ct::mixed::decode_vec(text).ok().filter(|bytes| bytes.len() == DIGEST_BYTES));
            match bytes {
                Some(None) => Err(CliError::usage(format!("{option} takes 64 hexadecimal digits"))),
                Some(found) => Ok(found),
                None => Ok(None),
            }
        };
        Ok(Self {
            destination: args.binding.destination.clone(),
            message_id: args.binding.message_id.as_deref().map(message_id).transpose()?,
            properties: digest("--properties", &args.binding.properties)?,
            application_properties: digest("--application-properties", &args.binding.application_properties)?,
            annotations: digest("--annotations", &args.binding.annotations)?,
        })
    }

    fn compare(&self, binding: &SealedBinding, policy: &Policy) -> Result<(), OpenError> {
        let Some(destination) = &self.destination else { return Ok(()) };
        let manager = destination.rsplit_once('@').map_or("", |(_, manager)| manager);
        let is_it = |name: &String| match name.contains('@') {
            true => *name == binding.destination,
            false => format!("{name}@{manager}") == binding.destination,
        };
        if *destination != binding.destination && !policy.bind_names.iter().any(is_it) {
            return Err(OpenError::Moved { destination: binding.destination.clone() });
        }
        let annotations = binding.annotations.as_ref().map_or(&[][..], |digest| &digest[..]);
        for (said, found, what) in [
            (&self.message_id, &binding.message_id[..], "the message id"),
            (&self.properties, &binding.properties[..], "the properties section"),
            (&self.application_properties, &binding.application_properties[..], "the application-properties section"),
            (&self.annotations, annotations, "a message annotation that says how the body is read"),
        ] {
            if said.as_ref().is_some_and(|said| said != found) {
                return Err(OpenError::Tampered { what });
            }
        }
        Ok(())
    }

    /// What was left uncompared.
    fn left_out(&self) -> Vec<&'static str> {
        let fields = [
            (self.message_id.is_none(), "message id"),
            (self.properties.is_none(), "properties"),
            (self.application_properties.is_none(), "application properties"),
            (self.annotations.is_none(), "annotations"),
        ];
        fields.into_iter().filter(|(absent, _)| *absent).map(|(_, name)| name).collect()
    }
}

/// A text becomes an AMQP string; after 0x stands the encoded value.
fn message_id(text: &str) -> Result<Vec<u8>, CliError> {
    if let Some(digits) = text.strip_prefix("0x") {
        return base16ct::mixed::decode_vec(digits)
            .map_err(|_| CliError::usage("--message-id 0x… takes pairs of hexadecimal digits"));
    }
    let mut encoded = Vec::with_capacity(text.len() + 2);
    bulla_amqp::Value::from(text).encode_to(&mut encoded);
    Ok(encoded)
}

/// What there is to be said of an opened message, a line each.
fn said(seal: &SealInfo, claimed: &Claimed) -> Vec<String> {
    let quality = match seal.quality {
        bulla_seal::policy::Quality::None => "clear",
        bulla_seal::policy::Quality::Integrity => "integrity",
        bulla_seal::policy::Quality::Privacy => "privacy",
        bulla_seal::policy::Quality::Confidentiality => "confidentiality",
    };
    let mut lines = vec![match (&seal.signer, seal.signing_time) {
        (Some(dn), Some(time)) => format!("{quality}, signed by \"{dn}\", by its own clock at {}", utc(time)),
        (Some(dn), None) => format!("{quality}, signed by \"{dn}\""),
        (None, _) => format!("{quality}; it is not signed, anyone with the recipient's certificate can have made it"),
    }];
    if let Some(manager) = &seal.sealed_by {
        lines.push(format!("sealed by queue manager {manager} for the application"));
    }
    if let Some(said) = &seal.on_behalf_of {
        let by_whom = if seal.signer.is_some() { "" } else { ", by no one's word: it is not signed" };
        lines.push(format!("sealed anew at {}; the seal before: {}{by_whom}", utc(said.resealed_at), said.verdict()));
        for former in &said.signers {
            let time =
                former.signing_time.map(|time| format!(", by its own clock at {}", utc(time))).unwrap_or_default();
            let certificate = base16ct::lower::encode_string(&former.certificate);
            lines.push(format!("  on behalf of \"{}\"{time}, certificate {certificate}", former.dn));
        }
    }
    let Some(binding) = &seal.binding else {
        lines.push("BOUND TO NOTHING: it may have been sealed for another queue".to_owned());
        return lines;
    };
    lines.push(format!(
        "bound to {}, message id {}",
        binding.destination,
        base16ct::lower::encode_string(&binding.message_id)
    ));
    lines.push(format!("  properties             {}", base16ct::lower::encode_string(&binding.properties)));
    lines.push(format!("  application properties {}", base16ct::lower::encode_string(&binding.application_properties)));
    if let Some(annotations) = &binding.annotations {
        lines.push(format!("  annotations            {}", base16ct::lower::encode_string(annotations)));
    }
    let left_out = claimed.left_out();
    match &claimed.destination {
        None => lines.push("THE BINDING WAS NOT COMPARED: --no-binding".to_owned()),
        Some(_) if left_out.is_empty() => {}
        Some(_) => lines.push(format!("not compared: {}", left_out.join(", "))),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_a_text_or_an_encoded_value() {
        assert_eq!(message_id("id-1").unwrap(), b"\xa1\x04id-1");
        assert_eq!(message_id("0xa10469642d31").unwrap(), b"\xa1\x04id-1");
        assert!(message_id("0xa1f").is_err() && message_id("0xzz").is_err());
    }
}
