//! Keys that stay where they are, on a token or in a transit engine: what `bulla cert create` needs of a device.

use super::CliError;
use super::cert::default_uses;
use crate::admin;
use crate::catalog::{Definitions, Setup, TokenSetup, TransitSetup};
use crate::objects_file::DefinitionsFile;
use bulla_device::coprocessor::{
    Coprocessor, CoprocessorSettings, HelperCommand, JOB_TIMEOUT_DEFAULT, NewKey, UriError,
};
use bulla_device::transit::{Transit, TransitSettings};
use bulla_device::{Device, DeviceError, Driver, Job, KeyUri, PrivateKey, PublicKey, Work};
use bulla_seal::certificate::create::{self, Profile};
use bulla_seal::certificate::{KeyKind, KeySpec, KeyUse};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A key on a token, or in a transit engine.
pub struct TokenKey {
    /// Its public half.
    pub public: PublicKey,
    /// What finds it again.
    pub uri: KeyUri,
    device: Box<dyn Driver>,
}

/// What a device is made of.
enum Settings {
    Token(CoprocessorSettings),
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
            Settings::Token(settings) => self.on_token(settings, key, label),
            Settings::Transit(settings) => self.in_transit(settings, key, label, asked),
        }
        .map(Some)
    }

    fn on_token(&self, settings: CoprocessorSettings, key: KeySpec, label: &str) -> Result<TokenKey, CliError> {
        if self.existing.is_some() {
            let hint = "write its URI into a file; `bulla cert import --key-file` puts it beside its certificate";
            return Err(CliError::usage("--existing names a key in a transit engine, and not on a token").hint(hint));
        }
        let device = Coprocessor::new(settings, HelperCommand::this_program());
        let kind = match key {
            KeySpec::Rsa(bits) => NewKey::Rsa(bits),
            KeySpec::Ec(curve) => NewKey::Ec(curve),
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
        let device = Transit::new(settings, Arc::new(|what| eprintln!("bulla: warning: {what}")));
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
                };
                device.create_key(kind, bits, label)
            }
        };
        let found = found.map_err(device_failed)?;
        Ok(TokenKey { public: found.public, uri: found.uri.into(), device: Box::new(device) })
    }
}

impl TokenKey {
    /// What its certificate is for, where `asked` does not say it: to sign and to encrypt, as the key can.
    pub fn uses(&self, asked: &[KeyUse]) -> Vec<KeyUse> {
        match (&self.uri, self.public.kind()) {
            _ if !asked.is_empty() => asked.to_vec(),
            (KeyUri::Transit(_), bulla_device::KeyKind::Ec(_)) => vec![KeyUse::DocSign],
            (_, bulla_device::KeyKind::Ec(curve)) => default_uses(KeyKind::Ec(curve)),
            (_, bulla_device::KeyKind::Rsa) => default_uses(KeyKind::Rsa),
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

fn sign(engine: &mut dyn Device, key: PrivateKey, work: Work) -> Result<Vec<u8>, DeviceError> {
    let mut jobs = vec![Job::new(key, work)];
    engine.submit(&mut jobs)?;
    let mut done = Vec::new();
    engine.poll(&mut done)?;
    let away = || DeviceError::Away { device: engine.name().to_owned() };
    done.pop().ok_or_else(away)?.result.map(|signature| signature.to_vec())
}

fn defined(data: &Path, name: &str) -> Result<Settings, CliError> {
    // A queue manager that runs writes its definitions to the file first.
    let _ = admin::request(data, "PING QMGR");
    let definitions = Definitions::load(data).map_err(|error| CliError::failed(error.to_string()))?;
    let name = name.to_uppercase();
    let device = definitions.as_ref().and_then(|definitions| definitions.devices.get(&name));
    let device = device.ok_or_else(|| {
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
