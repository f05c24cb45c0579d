//! Keys that are made on a token and stay there: what `bulla cert create` needs of a device.

use super::CliError;
use crate::admin;
use crate::catalog::{Definitions, Setup, TokenSetup};
use crate::objects_file::DefinitionsFile;
use bulla_device::coprocessor::{
    Coprocessor, CoprocessorSettings, HelperCommand, JOB_TIMEOUT_DEFAULT, NewKey, Uri, UriError,
};
use bulla_device::{Device, DeviceError, Driver, Job, PrivateKey, PublicKey, Work};
use bulla_seal::certificate::KeySpec;
use bulla_seal::certificate::create::{self, Profile};
use clap::Args;
use std::path::{Path, PathBuf};

/// The name of the device that `--module` and `--token` describe, in messages.
const UNNAMED: &str = "--token";

/// The token on which a key is made.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// Make the key on the token of this device, as objects.mqsc in the data directory defines it; it stays there
    #[arg(long, value_name = "NAME", conflicts_with_all = ["module", "token", "pin_file"])]
    device: Option<String>,
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

/// A key on a token.
pub struct TokenKey {
    /// Its public half.
    pub public: PublicKey,
    /// What finds it again.
    pub uri: Uri,
    device: Coprocessor,
}

impl TokenArgs {
    /// Whether there is to be a token at all.
    pub fn is_given(&self) -> bool {
        self.device.is_some() || self.module.is_some()
    }

    /// Makes a key on the token, if one is named.
    ///
    /// # Errors
    /// No such device, no such token, or it refuses.
    pub fn make(&self, data: &Path, key: KeySpec, label: &str) -> Result<Option<TokenKey>, CliError> {
        let settings = match (&self.device, &self.module, &self.token) {
            (Some(name), ..) => defined(data, name)?,
            (None, Some(module), Some(token)) => CoprocessorSettings {
                name: UNNAMED.to_owned(),
                module: module.clone(),
                // Not by the parser of the command line: its message repeats what was typed, a PIN perhaps.
                token: token.parse().map_err(|error: UriError| CliError::usage(format!("--token: {error}")))?,
                pin_file: self.pin_file.clone(),
                engines: 1,
                job_timeout: JOB_TIMEOUT_DEFAULT,
            },
            _ => return Ok(None),
        };
        let device = Coprocessor::new(settings, HelperCommand::this_program());
        let kind = match key {
            KeySpec::Rsa(bits) => NewKey::Rsa(bits),
            KeySpec::Ec(curve) => NewKey::Ec(curve),
        };
        let (public, uri) = device.generate(kind, label).map_err(device_failed)?;
        Ok(Some(TokenKey { public, uri, device }))
    }
}

impl TokenKey {
    /// A certificate request in PEM, signed on the token.
    ///
    /// # Errors
    /// The profile cannot be had with this key, or the token does not sign.
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

fn defined(data: &Path, name: &str) -> Result<CoprocessorSettings, CliError> {
    // A queue manager that runs writes its definitions to the file first.
    let _ = admin::request(data, "PING QMGR");
    let definitions = Definitions::load(data).map_err(|error| CliError::failed(error.to_string()))?;
    let name = name.to_uppercase();
    let device = definitions.as_ref().and_then(|definitions| definitions.devices.get(&name));
    let device = device.ok_or_else(|| {
        CliError::failed(format!("no device {name} is defined in {}", data.display()))
            .hint("DEFINE DEVICE defines one; --module and --token name a token without it")
    })?;
    let Setup::Coprocessor(TokenSetup { module, token, pin_file, timeout, .. }) = &device.setup else {
        return Err(CliError::usage(format!("device {name} is a {}, and keeps no keys", device.kind())));
    };
    let token = token.parse().map_err(|error| CliError::failed(format!("device {name}: {error}")))?;
    let (module, pin_file, job_timeout) = (module.clone(), pin_file.clone(), *timeout);
    Ok(CoprocessorSettings { name, module, token, pin_file, engines: 1, job_timeout })
}

fn device_failed(error: DeviceError) -> CliError {
    CliError::failed(error.to_string())
}
