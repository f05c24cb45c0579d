//! Sealing and opening on the client's own side: the queue manager never sees the payload.
//!
//! The client trusts its own ring for policy (SEAL.md, who may seal where): `policies/QUEUE.mqsc` in
//! the ring says what a queue asks for. A policy that the queue manager serves is taken only when the
//! user asks for it by name.

use super::CliError;
use crate::envelope::{Arrival, Defaults, Readable, payload_of};
use crate::folders::RINGS;
use crate::mqsc;
use crate::random::Random;
use crate::reason::Refusal;
use crate::wall_clock::wall_ms;
use bulla_amqp::{Payload, Symbol, Value};
use bulla_device::{CpuDevice, SystemRandom};
use bulla_seal::certificate::Passphrase;
use bulla_seal::policy::Pqc;
use bulla_seal::ring::Ring;
use bulla_seal::{Opener, Outcome, Policy, Sealer, drive};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The folder in a ring that says which policies its owner asks for: `QUEUE.mqsc`, one SET POLICY each.
const POLICIES: &str = "policies";

/// Options for sealing on the client's side.
#[derive(Args, Clone, Debug)]
pub struct OwnSealArgs {
    /// Seal and open here, with this user's key ring (a name under DATA/rings, or a folder)
    #[arg(long, value_name = "USER")]
    pub ring: Option<String>,
    /// The data directory that holds the ring
    #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
    pub data: PathBuf,
    /// The passphrase of the ring's private keys, the first line of this file
    #[arg(long, value_name = "FILE", requires = "ring")]
    pub passphrase_file: Option<PathBuf>,
    /// Take the policy that the queue manager serves for this queue, whatever it is
    #[arg(long, value_name = "QUEUE", requires = "ring")]
    pub served_policy: Option<String>,
}

/// A client's own sealer and opener for one queue.
pub struct OwnSeal {
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    destination: String,
    sealer: Option<Sealer>,
    opener: Opener,
    device: CpuDevice,
    random: Random,
}

impl OwnSeal {
    /// Reads the ring and settles the policy; none where the user does not seal here.
    ///
    /// # Errors
    /// The ring or the policy: missing, unreadable, or other than what the queue manager serves.
    pub fn open(args: &OwnSealArgs, queue: &str, properties: &[(Symbol, Value)]) -> Result<Option<Self>, CliError> {
        let property = |name: &str| bulla_client::property(properties, name);
        let Some(user) = &args.ring else { return Ok(None) };
        let folder = if user.contains('/') { PathBuf::from(user) } else { args.data.join(RINGS).join(user) };
        let passphrase = args.passphrase_file.as_deref().map(passphrase).transpose()?;
        let ring = Ring::load(&folder, passphrase.as_ref()).map_err(|error| CliError::failed(error.to_string()))?;
        let served = property("bulla:policy").map(|text| one_policy(text, queue)).transpose()?;
        let own = own_policy(&folder, queue)?;
        let policy = settle(queue, own, served, args.served_policy.as_deref() == Some(queue))?;
        let destination = property("bulla:destination")
            .ok_or_else(|| CliError::failed(format!("{queue}: the other side does not say which queue it is")))?
            .to_owned();
        let trusted = args.served_policy.as_deref() == Some(queue);
        check_destination(queue, &destination, &policy, trusted)?;
        Ok(Some(Self {
            policy: Arc::new(policy),
            ring: Arc::new(ring),
            destination,
            sealer: None,
            opener: Opener::new(),
            device: CpuDevice::new("cpu"),
            random: Random::system(),
        }))
    }

    /// Seals a message.
    ///
    /// # Errors
    /// The policy can't be satisfied with this ring.
    pub fn seal(&mut self, message: &Payload) -> Result<Payload, CliError> {
        let now = SystemTime::now();
        let arrival = Arrival::read(message, wall_ms(now)).map_err(refused)?;
        let (envelope, content, bound) = arrival
            .into_envelope(Defaults::default(), self.destination.clone(), &mut self.random, None)
            .map_err(refused)?;
        let seal_error = |error: bulla_seal::SealError| refused(Refusal::security(error.cause(), error.to_string()));
        if self.sealer.is_none() {
            let sealer = Sealer::new(self.policy.clone(), self.ring.clone(), None, now).map_err(seal_error)?;
            self.sealer = Some(sealer);
        }
        let Some(sealer) = &mut self.sealer else { return Err(CliError::failed("no sealer")) };
        let step = sealer.seal(content, &bound, now, &mut SystemRandom).map_err(seal_error)?;
        let sealed = drive(step, &mut self.device).map_err(seal_error)?;
        Ok(payload_of(&envelope.sealed(sealed).body))
    }

    /// Opens a message as it came from the queue.
    ///
    /// # Errors
    /// It is not sealed, or its seal is not good.
    pub fn open_message(&mut self, message: &Payload) -> Result<Payload, Unopened> {
        let now = SystemTime::now();
        let defective = |refusal: Refusal| Unopened { error: refused(refusal), outcome: Outcome::Defective };
        let arrival = Arrival::read(message, wall_ms(now)).map_err(defective)?;
        if !arrival.claims_seal() {
            return Err(defective(Refusal::security(self.policy.cause_of_clear(), "the message is not sealed")));
        }
        let expect = arrival.expect(self.destinations());
        let der = arrival.sealed_body().map_err(defective)?;
        let unopened = |error: bulla_seal::OpenError| Unopened {
            error: refused(Refusal::security(error.cause(), error.to_string())),
            outcome: error.outcome(),
        };
        let step = self.opener.open(&self.policy, &self.ring, der, expect, now, now).map_err(unopened)?;
        let opened = drive(step, &mut self.device).map_err(unopened)?;
        arrival.opened(opened).map(Readable::into_payload).map_err(defective)
    }

    /// Where a message may say that it belongs: here, or under one of the policy's names.
    fn destinations(&self) -> Vec<String> {
        let manager = self.destination.rsplit_once('@').map_or("", |(_, manager)| manager);
        let names = self.policy.bind_names.iter().map(|name| match name.contains('@') {
            true => name.clone(),
            false => format!("{name}@{manager}"),
        });
        names.chain([self.destination.clone()]).collect()
    }
}

/// A message that did not open, and what is to become of it.
#[derive(Debug)]
pub struct Unopened {
    /// Why, for the user.
    pub error: CliError,
    /// Whether it is defective, another reader's, or to be tried again.
    pub outcome: Outcome,
}

/// Which policy holds: the ring's own; the served one only where the user asked for it.
fn settle(queue: &str, own: Option<Policy>, served: Option<Policy>, asked: bool) -> Result<Policy, CliError> {
    if asked {
        return served.ok_or_else(|| CliError::failed(format!("{queue}: the queue manager serves no policy")));
    }
    let hint = format!("--served-policy {queue} takes the queue manager's word for it");
    let own = own.ok_or_else(|| {
        CliError::failed(format!("{queue}: the key ring has no {POLICIES}/{queue}.mqsc")).hint(hint.clone())
    })?;
    let served = served.ok_or_else(|| {
        CliError::failed(format!(
            "{queue}: the queue manager serves no policy, the key ring asks for {:?}",
            own.quality()
        ))
    })?;
    if served.quality() != own.quality() || served.sign != own.sign || served.encrypt != own.encrypt {
        let detail = format!(
            "{queue}: the served policy differs from the one in the key ring ({:?} against {:?})",
            served.quality(),
            own.quality()
        );
        return Err(CliError::failed(detail).hint(hint));
    }
    // What others put by other keys would go to the error queue, because this ring takes it for weaker.
    if own.pqc == Pqc::Required && served.pqc != Pqc::Required {
        let detail = format!("{queue}: the key ring asks for PQC(REQUIRED), and the served policy does not");
        return Err(CliError::failed(detail).hint(hint));
    }
    if let Some(unknown) = served.recipients.iter().find(|dn| !own.recipients.contains(dn)) {
        let detail = format!("{queue}: the served policy names a recipient that the key ring's does not: {unknown}");
        return Err(CliError::failed(detail).hint(hint));
    }
    Ok(own)
}

/// The queue manager says where the name that was opened leads: where that is another queue, the ring's policy or the
/// user must have said so, too, because messages are bound to it.
fn check_destination(queue: &str, destination: &str, policy: &Policy, trusted: bool) -> Result<(), CliError> {
    let name = destination.rsplit_once('@').map_or(destination, |(name, _)| name);
    let listed = policy.bind_names.iter().any(|bound| bound == name || bound == destination);
    if trusted || listed || name == queue {
        return Ok(());
    }
    Err(CliError::failed(format!(
        "{queue}: the queue manager says that it is {destination}, which the policy does not name"
    ))
    .hint(format!("name it in BINDNAME, or take the queue manager's word with --served-policy {queue}")))
}

fn own_policy(folder: &Path, queue: &str) -> Result<Option<Policy>, CliError> {
    if queue.contains('/') {
        return Ok(None);
    }
    let path = folder.join(POLICIES).join(format!("{queue}.mqsc"));
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let policy = mqsc::policy::from_text(&text);
            let policy = policy.map_err(|error| CliError::failed(format!("{}: {error}", path.display())))?;
            if policy.name != queue {
                return Err(CliError::failed(format!("{}: the policy is for {}", path.display(), policy.name)));
            }
            Ok(Some(policy))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::file(&path, error)),
    }
}

fn one_policy(text: &str, queue: &str) -> Result<Policy, CliError> {
    mqsc::policy::from_text(text).map_err(|error| CliError::failed(format!("{queue}: served policy: {error}")))
}

/// The first line of a file, as a passphrase.
pub(crate) fn passphrase(path: &Path) -> Result<Passphrase, CliError> {
    Passphrase::from_file(path).map_err(|error| CliError::failed(error.to_string()))
}

fn refused(refusal: Refusal) -> CliError {
    CliError::new(super::EXIT_REFUSED, refusal.to_string())
}
