//! `bulla key`: another key for a user, and the end of an old one, whether the queue manager runs or not.

use super::cert::args::{PassphraseArgs, SignerArgs};
use super::cert::{read_file, write_new};
use super::enrolment::enrolling;
use super::{CliError, DATA_DEFAULT, EXIT_REFUSED, EXIT_UNREACHABLE};
use crate::admin::{self, RequestError};
use crate::enrolment::ring_certificate::{Enrolled, Site};
use crate::folders::AUTHORITIES;
use crate::key_rotation::keeper::SETTLED_AFTER;
use crate::key_rotation::steps::{DAYS, Keys, Signed, Wish};
use crate::key_rotation::{KeyFacts, Needed, Rotation, RotationError, Step, span};
use crate::mqsc::reply::{Outcome, Row};
use bulla_seal::certificate::authority::Authority;
use bulla_seal::certificate::{KeySpec, utc};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long another process may have its turn.
const TURN_WITHIN: Duration = Duration::from_secs(15);
/// How long the queue manager may take to read a new key.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Rings that can't be used of which it is said why.
const RINGS_TOLD_MAX: usize = 10;

/// Change the keys of users
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// What to do
    #[command(subcommand)]
    command: KeyCommand,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT, global = true)]
    data: PathBuf,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Give a user another key: it seals from now on, and the old one opens until no message needs it
    Rotate(Box<RotateArgs>),
    /// Take an old key out of use before its time
    Retire(RetireArgs),
    /// Get a user's next key a certificate now from where enrolment.toml says, or the first key and certificate
    Enrol(EnrolArgs),
}

#[derive(Args, Debug)]
struct EnrolArgs {
    /// The user
    user: String,
    /// Serial number of the key to renew; without it the one whose renewal was begun, or that is due first
    #[arg(long, value_name = "SERIAL")]
    serial: Option<String>,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

#[derive(Args, Debug)]
struct RotateArgs {
    /// The user
    user: String,
    /// The new key: rsa2048, rsa3072, rsa4096, p256, p384, p521, ml-dsa-65, ml-kem-768 and others; without it, of the
    /// old one's kind
    #[arg(long, value_name = "KEY")]
    key: Option<KeySpec>,
    /// Keep the old key for so long in any case, as 7d, 12h, 30m or 10s; without it 7d
    #[arg(long, value_name = "TIME", value_parser = span)]
    overlap: Option<Duration>,
    /// Serial number of the key to replace, where the user signs with one and opens with another
    #[arg(long, value_name = "SERIAL")]
    serial: Option<String>,
    /// Days of validity of the new certificate
    #[arg(long, value_name = "N", default_value_t = DAYS)]
    days: u32,
    /// Write a request to this file, to be signed elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["certificate", "signer"])]
    request: Option<PathBuf>,
    /// Go on with what was signed elsewhere: the certificate, and the authorities above it
    #[arg(long, value_name = "FILE", conflicts_with = "signer")]
    certificate: Option<PathBuf>,
    /// Call the change off, as long as the new key is not in use
    #[arg(long, conflicts_with_all = ["key", "overlap", "request", "certificate", "signer"])]
    cancel: bool,
    #[command(flatten)]
    signer: SignerArgs,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

#[derive(Args, Debug)]
struct RetireArgs {
    /// The user
    user: String,
    /// Serial number of the old key
    #[arg(required_unless_present = "old")]
    serial: Option<String>,
    /// All old keys: each but the one that seals
    #[arg(long, conflicts_with = "serial")]
    old: bool,
    /// Also where messages need it: they can't be opened any more
    #[arg(long)]
    strand: bool,
}

/// Does what the arguments say.
///
/// # Errors
/// With a hint where there is one. What was done stays, and the same command goes on from there.
pub fn run(args: &KeyArgs) -> Result<(), CliError> {
    match &args.command {
        KeyCommand::Rotate(rotate) if rotate.cancel => cancel(&args.data, rotate),
        KeyCommand::Rotate(rotate) => self::rotate(&args.data, rotate),
        KeyCommand::Retire(retire) => self::retire(&args.data, retire),
        KeyCommand::Enrol(enrol) => self::enrol(&args.data, enrol),
    }
}

fn rotate(data: &Path, args: &RotateArgs) -> Result<(), CliError> {
    let passphrase = args.passphrase.read()?;
    // Read before anything is begun: a file that is not there stops it here.
    let certificate = args.certificate.as_deref().map(read_file).transpose()?;
    let keys = Keys::new(data, passphrase.as_ref(), SystemTime::now());
    let _turn = keys.rotations.turn(TURN_WITHIN).map_err(failed)?;
    let user = &args.user;
    let serial = args.serial.as_deref();
    if certificate.is_some() && keys.under_way(user, serial).map_err(failed)?.is_none() {
        return Err(failed(RotationError::NotBegun { user: user.clone() }));
    }
    let wish = Wish { serial: args.serial.clone(), kind: args.key, overlap: args.overlap };
    tell_of_unusable_rings(&keys, user);
    let mut rotation = keys.begin(user, &wish).map_err(failed)?;
    let pace = &mut || Ok(());
    if rotation.step() < Step::Installed {
        let key = keys.make_key(&mut rotation, pace).map_err(failed)?;
        if let Some(path) = &args.request {
            write_new(path, &keys.request(&rotation, &key).map_err(failed)?)?;
            println!("request for {} in {}", rotation.old.subject, path.display());
            eprintln!("bulla: hint: `bulla key rotate {user} --certificate FILE` goes on with what was signed");
            return Ok(());
        }
        let signed = match &certificate {
            Some(bytes) => Signed::Elsewhere(bytes),
            None => Signed::Here(Box::new(authority(data, args, &keys, &rotation)?), args.days),
        };
        keys.install(&mut rotation, signed, pace).map_err(failed)?;
    }
    wait_until_read(data, &rotation)?;
    keys.share(&mut rotation, pace).map_err(failed)?;
    say_new_key(&rotation);
    Ok(())
}

fn enrol(data: &Path, args: &EnrolArgs) -> Result<(), CliError> {
    let passphrase = args.passphrase.read()?;
    let is_signer = |site: &Site<'_>| site.configuration.signers.contains_key(&args.user);
    let signer = enrolling(data, passphrase.as_ref(), |site| {
        let source = |authority: &str| site.configuration.authority(authority)?.source();
        let take = || site.take_signer(&args.user, source(&site.configuration.signer(&args.user)?.authority)?.as_ref());
        let also = site.configuration.rings.contains_key(&args.user);
        Ok((is_signer(site).then(take).transpose()?, also))
    })?;
    if let (Some(certificate), also) = signer {
        let until = utc(certificate.not_after());
        println!("{} signs as {} until {until}", args.user, certificate.dn());
        if !also {
            return Ok(());
        }
    }
    let enrolled = enrolling(data, passphrase.as_ref(), |site| {
        let table = site.configuration.ring(&args.user)?;
        let source = site.configuration.authority(&table.authority)?.source()?;
        site.enrol(&args.user, args.serial.as_deref(), source.as_ref())
    })?;
    let mut rotation = match enrolled {
        Enrolled::First(certificate) => {
            println!("{} has its first key, {}, for {}", args.user, certificate.serial_hex(), certificate.dn());
            return Ok(());
        }
        Enrolled::Installed(rotation) => rotation,
    };
    wait_until_read(data, &rotation)?;
    match enrolling(data, None, |site| site.share(&mut rotation)) {
        // The queue manager shared it meanwhile.
        Err(_) if is_shared(data, &rotation) => {}
        shared => shared?,
    }
    say_new_key(&rotation);
    Ok(())
}

/// Whether a change is not under way any more.
fn is_shared(data: &Path, rotation: &Rotation) -> bool {
    let all = Keys::new(data, None, SystemTime::now()).all_under_way(&rotation.user);
    all.is_ok_and(|all| all.iter().all(|one| one.label != rotation.label))
}

fn say_new_key(rotation: &Rotation) {
    let new = rotation.new.as_ref().map_or("", |new| new.serial.as_str());
    println!(
        "{} has the key {new}, which seals from now on; {} opens for {} at least, and until no message needs it",
        rotation.user,
        rotation.old.serial,
        in_words(rotation.overlap_seconds)
    );
}

/// A ring that can't be used stops its own user's change alone.
fn tell_of_unusable_rings(keys: &Keys<'_>, user: &str) {
    for (other, error) in keys.unusable_rings().into_iter().filter(|(other, _)| other != user).take(RINGS_TOLD_MAX) {
        eprintln!("bulla: warning: the key ring of {other} can't be used: {error}");
    }
}

/// The authority that signs: the one that is named, or that issued the old certificate.
fn authority(data: &Path, args: &RotateArgs, keys: &Keys<'_>, rotation: &Rotation) -> Result<Authority, CliError> {
    let folder = match &args.signer.signer {
        Some(name) if name.contains('/') || name.starts_with('.') => {
            return Err(CliError::usage(format!("an authority cannot have the name {name:?}")));
        }
        Some(name) => data.join(AUTHORITIES).join(name),
        None => keys.issuer(rotation).map_err(failed)?,
    };
    args.signer.unlock(data, &folder)
}

/// Until a queue manager that runs opens with the new key: only then may anything be sealed for it.
fn wait_until_read(data: &Path, rotation: &Rotation) -> Result<(), CliError> {
    let until = Instant::now() + READ_WITHIN;
    loop {
        let Some(row) = shown(data, rotation)? else { return Ok(()) };
        if row.get("NEWREAD").and_then(Value::as_str) == Some("YES") {
            return Ok(());
        }
        if Instant::now() >= until {
            let why = format!("it did not within {} s", READ_WITHIN.as_secs());
            return Err(failed(RotationError::NotConfirmed { why }));
        }
        thread::sleep(ASK_EVERY);
    }
}

/// What DISPLAY KEYROTATE shows of a change; none where no queue manager runs.
fn shown(data: &Path, rotation: &Rotation) -> Result<Option<serde_json::Map<String, Value>>, CliError> {
    let user = rotation.user.replace('\'', "''");
    let replies = match admin::request(data, &format!("DISPLAY KEYROTATE('{user}')")) {
        Err(RequestError::NotRunning { .. }) => return Ok(None),
        replies => replies
            .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?,
    };
    let unclear = || failed(RotationError::NotConfirmed { why: "its answer is of another version".to_owned() });
    let [reply] = replies.as_slice() else { return Err(unclear()) };
    match &reply.outcome {
        Outcome::Rows(rows) => {
            let mut rows = rows.iter().map(Row::to_map);
            let is_it = |row: &serde_json::Map<String, Value>| {
                let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                text("OLDSERIAL") == rotation.old.serial && text("OLDISSUER") == rotation.old.issuer
            };
            rows.find(is_it).map(Some).ok_or_else(unclear)
        }
        Outcome::Failed(failure) => {
            Err(CliError { code: reply.exit_code(), message: failure.to_string(), hint: failure.hint.clone() })
        }
        _ => Err(unclear()),
    }
}

fn cancel(data: &Path, args: &RotateArgs) -> Result<(), CliError> {
    let keys = Keys::new(data, None, SystemTime::now());
    let _turn = keys.rotations.turn(TURN_WITHIN).map_err(failed)?;
    let rotation = keys.cancel(&args.user, args.serial.as_deref()).map_err(failed)?;
    println!("the change is called off; {} keeps the key {}", args.user, rotation.old.serial);
    Ok(())
}

fn retire(data: &Path, args: &RetireArgs) -> Result<(), CliError> {
    let keys = Keys::new(data, None, SystemTime::now());
    let _turn = keys.rotations.turn(TURN_WITHIN).map_err(failed)?;
    let found = keys.old_keys(&args.user, args.serial.as_deref()).map_err(failed)?;
    if found.is_empty() {
        println!("{} has no old key", args.user);
    }
    for rotation in found {
        retire_one(data, &keys, rotation, args.strand)?;
    }
    Ok(())
}

fn retire_one(data: &Path, keys: &Keys<'_>, mut rotation: Rotation, may_strand: bool) -> Result<(), CliError> {
    let serial = rotation.old.serial.clone();
    if rotation.step().is_end() {
        keys.take_out(&rotation).map_err(failed)?;
        println!("the key {serial} of {} is out of use", rotation.user);
        return Ok(());
    }
    let is_new = rotation.steps.is_empty();
    if is_new {
        // So that the queue manager counts what needs it, and goes on if this process ends.
        keys.did(&mut rotation, Step::Shared).map_err(failed)?;
    }
    let refused = |error: RotationError| {
        if is_new && matches!(error, RotationError::Needed { .. }) {
            // It was no change of a key before, and is none now.
            let _ = keys.rotations.remove(&rotation);
        }
        failed(error)
    };
    let first = needed(data, &rotation)?;
    if let Some(why) = still_needed(data, &rotation.old, first.as_ref(), may_strand) {
        return Err(refused(why));
    }
    rotation.began = rotation.began.or(first.as_ref().map(Needed::counted));
    let was_withdrawn = rotation.step() == Step::Withdrawn;
    if !was_withdrawn {
        keys.withdraw(&mut rotation, &mut || Ok(())).map_err(failed)?;
    }
    let mut last = needed(data, &rotation)?;
    if last.is_some() && !was_withdrawn {
        // What was being sealed for it meanwhile is on its queue by then.
        thread::sleep(SETTLED_AFTER);
        last = needed(data, &rotation)?;
    }
    if let Some(why) = still_needed(data, &rotation.old, last.as_ref(), may_strand) {
        return Err(failed(why));
    }
    keys.end(&mut rotation, last.as_ref(), &mut || Ok(())).map_err(failed)?;
    match &last {
        Some(needed) if needed.total() == 0 => {
            println!("the key {serial} of {} is out of use; no message needed it", rotation.user);
        }
        Some(needed) => println!("the key {serial} of {} is out of use; it was needed: {needed}", rotation.user),
        None => println!("the key {serial} of {} is out of use; whether messages need it is not known", rotation.user),
    }
    Ok(())
}

/// Why a key may not go; none where it may.
fn still_needed(data: &Path, key: &KeyFacts, needed: Option<&Needed>, may_strand: bool) -> Option<RotationError> {
    let what = match needed {
        _ if may_strand => return None,
        Some(needed) if needed.total() == 0 => return None,
        Some(needed) => needed.to_string(),
        None => format!("no queue manager is running on {}, and only one that runs knows", data.display()),
    };
    Some(RotationError::Needed { serial: key.serial.clone(), what })
}

/// What needs the old key, as the queue manager knows it; none where none runs.
fn needed(data: &Path, rotation: &Rotation) -> Result<Option<Needed>, CliError> {
    let Some(row) = shown(data, rotation)? else { return Ok(None) };
    let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or_default();
    let queues = row.get("QUEUES").and_then(Value::as_array).into_iter().flatten();
    Ok(Some(Needed {
        messages: number("MSGS"),
        bytes: number("BYTES"),
        staged: number("INUOW"),
        unknown: number("UNKNOWN"),
        queues: queues.filter_map(Value::as_str).map(str::to_owned).collect(),
    }))
}

fn failed(error: RotationError) -> CliError {
    let code = match &error {
        RotationError::Needed { .. }
        | RotationError::InUse { .. }
        | RotationError::Begun { .. }
        | RotationError::SeveralChanges { .. }
        | RotationError::NotBegun { .. }
        | RotationError::TooFar { .. }
        | RotationError::TooMany { .. }
        | RotationError::Replaced { .. }
        | RotationError::OnToken { .. }
        | RotationError::SharedKey { .. }
        | RotationError::NotShared { .. }
        | RotationError::NoKey { .. }
        | RotationError::UnknownKey { .. }
        | RotationError::SeveralKeys { .. }
        | RotationError::NotBelieved { .. }
        | RotationError::Unfit { .. } => EXIT_REFUSED,
        _ => super::EXIT_FAILED,
    };
    CliError { hint: error.hint(), ..CliError::new(code, error.to_string()) }
}

fn in_words(seconds: u64) -> String {
    match seconds {
        0 => "0 s".to_owned(),
        seconds if seconds.is_multiple_of(86_400) => format!("{} d", seconds / 86_400),
        seconds if seconds.is_multiple_of(3_600) => format!("{} h", seconds / 3_600),
        seconds if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_its_largest_whole_unit() {
        assert_eq!([7 * 86_400, 5_400, 61].map(in_words), ["7 d", "90 min", "61 s"]);
    }
}
