//! Keys that stay where they are, on a token or in a transit engine: what `bulla cert` needs of a device, to make one
//! and to sign with an authority's.

use super::CliError;
use crate::admin;
use crate::catalog::{Definitions, DeviceDefinition, Setup, TokenSetup, TransitSetup};
use crate::objects_file::DefinitionsFile;
use bulla_device::coprocessor::{
    Coprocessor, CoprocessorSettings, HelperCommand, JOB_TIMEOUT_DEFAULT, NewKey, Uri, UriError,
};
use bulla_device::transit::{Transit, TransitSettings};
use bulla_device::{CpuDevice, Device, DeviceError, Driver, Job, Key, KeyUri, Output, PrivateKey, PublicKey, Work};
use bulla_seal::certificate::create::{self, Profile};
use bulla_seal::certificate::signing_key::SigningKey;
use bulla_seal::certificate::{KeyKind, KeySpec, KeyUse};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the device that `--module` and `--token` describe, in messages.
const UNNAMED: &str = "--token";

/// The device with which a key is made, or is already.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// Make the key with this device, as objects.mqsc in the data directory defines it: on its token, or in its transit
    /// engine. It stays there
    #[arg(long, value_name = "NAME", conflicts_with_all = ["module", "token", "pin_file"])]
    device: Option<String>,
    /// Make none: take the key of this name that is in the device's transit engine, its newest version, or the one
    /// behind a colon, as orders:2
    #[arg(long, value_name = "NAME", requires = "device", conflicts_with = "key")]
    existing: Option<String>,
    /// Make the key on a token, where it stays: the token's PKCS#11 module
    #[arg(long, value_name = "PATH", requires = "token")]
    module: Option<PathBuf>,
    /// Which token of the module, as pkcs11:token=LABEL
    #[arg(long, value_name = "URI", requires = "module")]
    token: Option<String>,
    /// The token's PIN, first line of a file that only its owner can read
    #[arg(long, value_name = "FILE", requires = "module")]
    pin_file: Option<PathBuf>,
}

/// How the key of an authority is reached that is not in its directory.
#[derive(Args, Debug, Default)]
pub struct SignerDeviceArgs {
    /// The device that keeps the authority's key, where several could
    #[arg(long, value_name = "NAME", conflicts_with_all = ["signer_module", "signer_pin_file"])]
    pub(in crate::cli) signer_device: Option<String>,
    /// The PKCS#11 module of the token that keeps the authority's key, where no device is defined for it
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) signer_module: Option<PathBuf>,
    /// The PIN of that token, first line of a file that only its owner can read
    #[arg(long, value_name = "FILE", requires = "signer_module")]
    pub(in crate::cli) signer_pin_file: Option<PathBuf>,
}

/// A key on a token, or in a transit engine.
pub struct TokenKey {
    /// Its public half.
    pub public: PublicKey,
    /// What finds it again.
    pub uri: KeyUri,
    device: Box<dyn Driver>,
}

/// What a device is made of.
pub enum Settings {
    /// A token behind its module.
    Token(CoprocessorSettings),
    /// A transit engine.
    Transit(TransitSettings),
}

impl TokenArgs {
    /// Whether there is to be a device at all.
    pub fn is_given(&self) -> bool {
        self.device.is_some() || self.module.is_some()
    }

    /// Makes a key, or finds it, if a device is named. `asked` is what the key is to be used for.
    ///
    /// # Errors
    /// No such device, no such token, key or server, or it refuses; a use that such a key does not have.
    pub fn make(&self, data: &Path, key: KeySpec, label: &str, asked: &[KeyUse]) -> Result<Option<TokenKey>, CliError> {
        let settings = match (&self.device, &self.module, &self.token) {
            (Some(name), ..) => defined(data, name)?,
            (None, Some(module), Some(token)) => Settings::Token(CoprocessorSettings {
                name: UNNAMED.to_owned(),
                module: module.clone(),
                // Not by the parser of the command line: its message repeats what was typed, a PIN perhaps.
                token: token.parse().map_err(|error: UriError| CliError::usage(format!("--token: {error}")))?,
                pin_file: self.pin_file.clone(),
                engines: 1,
                job_timeout: JOB_TIMEOUT_DEFAULT,
            }),
            _ => return Ok(None),
        };
        match settings {
            Settings::Token(settings) => self.on_token(settings, key, label, asked),
            Settings::Transit(settings) => self.in_transit(settings, key, label, asked),
        }
        .map(Some)
    }

    fn on_token(
        &self,
        settings: CoprocessorSettings,
        key: KeySpec,
        label: &str,
        asked: &[KeyUse],
    ) -> Result<TokenKey, CliError> {
        if self.existing.is_some() {
            let hint = "write its URI into a file; `bulla cert import --key-file` puts it beside its certificate";
            return Err(CliError::usage("--existing names a key in a transit engine, and not on a token").hint(hint));
        }
        // Before a key is made that could not be used.
        KeyUse::bits(asked, key.kind()).map_err(|error| CliError::failed(error.to_string()))?;
        let device = Coprocessor::new(settings, HelperCommand::this_program());
        let kind = match key {
            KeySpec::Rsa(bits) => NewKey::Rsa(bits),
            KeySpec::Ec(curve) => NewKey::Ec(curve),
            KeySpec::MlDsa(set) => NewKey::MlDsa(set),
            KeySpec::MlKem(set) => NewKey::MlKem(set),
        };
        let (public, uri) = device.generate(kind, label).map_err(device_failed)?;
        Ok(TokenKey { public, uri: uri.into(), device: Box::new(device) })
    }

    fn in_transit(
        &self,
        settings: TransitSettings,
        key: KeySpec,
        label: &str,
        asked: &[KeyUse],
    ) -> Result<TokenKey, CliError> {
        if asked.contains(&KeyUse::KeyAgree) {
            let message = "a key in a transit engine agrees on no secrets, so --usage can't have keyagree";
            return Err(CliError::usage(message).hint("one of a curve only signs: --usage docsign"));
        }
        let device = transit(settings);
        let found = match &self.existing {
            Some(existing) => {
                let (name, version) = match existing.split_once(':') {
                    Some((name, version)) => {
                        let bad = |_| CliError::usage("--existing takes NAME, or NAME:VERSION with a number");
                        (name, Some(version.parse().map_err(bad)?))
                    }
                    None => (existing.as_str(), None),
                };
                device.key(name, version)
            }
            None => {
                let (kind, bits) = match key {
                    KeySpec::Rsa(bits) => (bulla_device::KeyKind::Rsa, bits),
                    KeySpec::Ec(curve) => (bulla_device::KeyKind::Ec(curve), curve.bits()),
                    KeySpec::MlDsa(_) | KeySpec::MlKem(_) => return Err(not_in_transit(key)),
                };
                device.create_key(kind, bits, label)
            }
        };
        let found = found.map_err(device_failed)?;
        Ok(TokenKey { public: found.public, uri: found.uri.into(), device: Box::new(device) })
    }
}

impl SignerDeviceArgs {
    /// The key that `uri` names, to sign with. Nothing is asked of its device before the first signature.
    ///
    /// # Errors
    /// No device is defined that could have it, or several are; no such token.
    pub fn key(&self, data: &Path, public: PublicKey, uri: KeyUri) -> Result<SigningKey, CliError> {
        let settings = match (&self.signer_module, &uri) {
            (Some(module), _) => on_module(module, self.signer_pin_file.as_deref(), &uri)?,
            (None, _) => self.among_the_defined(data, &uri)?,
        };
        Ok(TokenKey { public, uri, device: settings.device() }.signing())
    }

    fn among_the_defined(&self, data: &Path, uri: &KeyUri) -> Result<Settings, CliError> {
        let devices = devices(data)?;
        if let Some(name) = &self.signer_device {
            return named(data, &devices, name);
        }
        let could: Vec<&str> = devices
            .iter()
            .filter(|(name, device)| can_keep(name, &device.setup, uri))
            .map(|(name, _)| name.as_str())
            .collect();
        match could.as_slice() {
            [only] => named(data, &devices, only),
            [] => Err(CliError::failed(format!("no device defined in {} can keep {uri}", data.display()))
                .hint("--signer-module and --signer-pin-file name the token's module and PIN without one")),
            several => Err(CliError::failed(format!("{} could keep {uri}", several.join(" and ")))
                .hint("--signer-device names the one that does")),
        }
    }
}

/// The token that a key's URI names, behind this module.
///
/// # Errors
/// The URI is that of a transit engine, which is reached through a device alone.
pub fn on_module(module: &Path, pin_file: Option<&Path>, uri: &KeyUri) -> Result<Settings, CliError> {
    let KeyUri::Token(key) = uri else {
        return Err(CliError::usage(format!("{uri} is on no token, and has no module"))
            .hint("DEFINE DEVICE with TYPE(TRANSIT) says where the engine is"));
    };
    // What is left names the token.
    let token = Uri { object: None, id: None, class: None, ..key.without_query() };
    Ok(Settings::Token(CoprocessorSettings {
        name: UNNAMED.to_owned(),
        module: module.to_owned(),
        token,
        pin_file: pin_file.map(Path::to_owned),
        engines: 1,
        job_timeout: JOB_TIMEOUT_DEFAULT,
    }))
}

fn can_keep(name: &str, setup: &Setup, uri: &KeyUri) -> bool {
    match (setup, uri) {
        (Setup::Coprocessor(token), KeyUri::Token(key)) => {
            token.token.parse::<Uri>().is_ok_and(|token| token.can_be_the_token_of(key))
        }
        (Setup::Transit(_), KeyUri::Transit(key)) => key.can_be_at(name),
        _ => false,
    }
}

impl Settings {
    fn device(self) -> Box<dyn Driver> {
        match self {
            Settings::Token(settings) => Box::new(Coprocessor::new(settings, HelperCommand::this_program())),
            Settings::Transit(settings) => Box::new(transit(settings)),
        }
    }

    /// The key of this name on it, to sign with.
    pub fn key(self, public: PublicKey, uri: KeyUri) -> SigningKey {
        TokenKey { public, uri, device: self.device() }.signing()
    }
}

fn transit(settings: TransitSettings) -> Transit {
    Transit::new(
        settings,
        Arc::new(|news| {
            if let Some(line) = news.line() {
                eprintln!("bulla: warning: {line}");
            }
        }),
    )
}

impl TokenKey {
    /// The same key, to sign certificates and revocation lists with. Its session begins at the first signature and is
    /// kept: a token asks for its PIN once.
    pub fn signing(self) -> SigningKey {
        let key = PrivateKey::on_token(self.public.clone(), self.uri.to_string());
        let (device, engine) = (self.device, Mutex::new(None::<Box<dyn Device>>));
        let signed = move |work| {
            let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
            let engine = match &mut *engine {
                Some(engine) => engine,
                none => none.insert(device.start_engine()?),
            };
            sign(&mut **engine, key.clone(), work)
        };
        SigningKey::elsewhere(self.public, self.uri, Arc::new(signed))
    }

    /// Its kind, as a certificate says it.
    pub fn kind(&self) -> KeyKind {
        KeyKind::of_device(self.public.kind())
    }

    /// What its certificate is for, where `asked` does not say it: to sign and to encrypt, as the key can.
    pub fn uses(&self, asked: &[KeyUse]) -> Vec<KeyUse> {
        match (&self.uri, self.public.kind()) {
            _ if !asked.is_empty() => asked.to_vec(),
            (KeyUri::Transit(_), bulla_device::KeyKind::Ec(_)) => vec![KeyUse::DocSign],
            (_, kind) => KeyUse::usual(KeyKind::of_device(kind)),
        }
    }

    /// Shows that the key is where it is said to be, for one that signs no request: the device has to find the secret
    /// in a ciphertext that is made for it.
    ///
    /// # Errors
    /// The device does not, or can't.
    pub fn prove(&self) -> Result<(), CliError> {
        let bulla_device::KeyKind::MlKem(set) = self.public.kind() else { return Ok(()) };
        let made = ask(&mut CpuDevice::new("CPU"), self.public.clone(), Work::MlKemEncapsulate);
        let made = made.map_err(device_failed)?;
        let (ciphertext, secret) = made.split_at_checked(set.ciphertext_len()).unwrap_or_default();
        let mut engine = self.device.start_engine().map_err(device_failed)?;
        let key = PrivateKey::on_token(self.public.clone(), self.uri.to_string());
        let found = ask(&mut *engine, key, Work::MlKemDecapsulate { ciphertext: ciphertext.to_vec() });
        match *found.map_err(device_failed)? == *secret {
            true => Ok(()),
            false => Err(CliError::failed(format!("{} is not the key that the device says it made", self.uri))),
        }
    }

    /// A certificate request in PEM, signed where the key is.
    ///
    /// # Errors
    /// The profile cannot be had with this key, or the device does not sign.
    pub fn request(&self, profile: &Profile) -> Result<Vec<u8>, CliError> {
        let mut engine = self.device.start_engine().map_err(device_failed)?;
        let key = PrivateKey::on_token(self.public.clone(), self.uri.to_string());
        let sign = |work| sign(&mut *engine, key, work).map_err(create::CreateError::from);
        create::request_signed_elsewhere(profile, &self.public, sign)
            .map_err(|error| CliError::failed(error.to_string()))
    }
}

/// No transit engine of today has these in its open edition.
fn not_in_transit(key: KeySpec) -> CliError {
    CliError::usage(format!("a key of kind {key} is made in a file or on a token: no transit engine has it"))
        .hint("leave out --device, or name one of type COPROCESSOR")
}

fn sign(engine: &mut dyn Device, key: PrivateKey, work: Work) -> Result<Vec<u8>, DeviceError> {
    ask(engine, key, work).map(|signature| signature.to_vec())
}

fn ask(engine: &mut dyn Device, key: impl Into<Key>, work: Work) -> Result<Output, DeviceError> {
    let mut jobs = vec![Job::new(key, work)];
    engine.submit(&mut jobs)?;
    let mut done = Vec::new();
    engine.poll(&mut done)?;
    let away = || DeviceError::Away { device: engine.name().to_owned() };
    done.pop().ok_or_else(away)?.result
}

type Devices = BTreeMap<String, DeviceDefinition>;

fn devices(data: &Path) -> Result<Devices, CliError> {
    // A queue manager that runs writes its definitions to the file first.
    let _ = admin::request(data, "PING QMGR");
    let definitions = Definitions::load(data).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(definitions.map(|definitions| definitions.devices).unwrap_or_default())
}

fn defined(data: &Path, name: &str) -> Result<Settings, CliError> {
    named(data, &devices(data)?, name)
}

fn named(data: &Path, devices: &Devices, name: &str) -> Result<Settings, CliError> {
    let name = name.to_uppercase();
    let device = devices.get(&name).ok_or_else(|| {
        CliError::failed(format!("no device {name} is defined in {}", data.display()))
            .hint("DEFINE DEVICE defines one; --module and --token name a token without it")
    })?;
    match &device.setup {
        Setup::Coprocessor(TokenSetup { module, token, pin_file, timeout, .. }) => {
            let token = token.parse().map_err(|error| CliError::failed(format!("device {name}: {error}")))?;
            let (module, pin_file, job_timeout) = (module.clone(), pin_file.clone(), *timeout);
            Ok(Settings::Token(CoprocessorSettings { name, module, token, pin_file, engines: 1, job_timeout }))
        }
        Setup::Transit(transit) => {
            let one = TransitSetup { engines: 1, ..transit.clone() };
            let no_address = || CliError::failed(format!("device {name} has no ADDRESS"));
            one.settings(&name).map(Settings::Transit).ok_or_else(no_address)
        }
        _ => Err(CliError::usage(format!("device {name} is a {}, and keeps no keys", device.kind()))),
    }
}

fn device_failed(error: DeviceError) -> CliError {
    CliError::failed(error.to_string())
}
