//! Crypto devices.

use bulla_device::transit::{self, Address, TransitSettings};
use bulla_device::{Kind, Operations, Profile, ProfileError};
use std::path::PathBuf;
use std::time::Duration;

/// The device that is always there: this machine's processor.
pub const CPU: &str = "CPU";

/// The accelerator that a new queue manager has.
pub const ACCELERATOR: &str = "ACCEL1";

/// Most devices.
pub const DEVICES_MAX: usize = 32;

/// Jobs that wait for a device, for each of its engines, unless PENDING says otherwise: what one port of a crypto card
/// holds.
pub const PENDING_PER_ENGINE: u32 = 8;

/// Jobs that wait for an accelerator unless PENDING says otherwise: two batches of eight lanes.
pub const ACCELERATOR_PENDING: u32 = 16;

/// Jobs that wait for a transit device, for each of its engines, unless PENDING says otherwise: one full request.
pub const TRANSIT_PENDING_PER_ENGINE: u32 = transit::LANES as u32;

/// Where a transit engine is mounted unless MOUNT says otherwise.
pub const MOUNT_DEFAULT: &str = "transit";

/// How long a job on a token, or a request to a server, may take unless TIMEOUT says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(5000);

/// A device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceDefinition {
    /// DESCR
    pub description: String,
    /// AUTOSTART(YES): it starts with the queue manager.
    pub autostart: bool,
    /// PENDING; none for the default, see [`DeviceDefinition::pending`].
    pub pending: Option<u32>,
    /// OPERATIONS that it may do, of those that it can.
    pub operations: Operations,
    /// TYPE, and what only that type has.
    pub setup: Setup,
}

/// TYPE, and what only that type has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Setup {
    /// This machine's processor with all of its instructions.
    Cpu,
    /// The processor with the instructions for cryptography masked off, from the next start of the queue manager on.
    Software,
    /// Clear keys, eight lanes at once.
    Accelerator,
    /// Keys that never leave a token.
    Coprocessor(TokenSetup),
    /// Keys that never leave a server's transit engine.
    Transit(TransitSetup),
    /// A device that this machine does not have.
    Modelled(ModelSetup),
}

/// What only TYPE(COPROCESSOR) has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TokenSetup {
    /// MODULE: the PKCS#11 library, by its absolute path.
    pub module: PathBuf,
    /// TOKEN: a PKCS#11 URI (RFC 7512) that names the token.
    pub token: String,
    /// PINFILE: its first line is the user's PIN; none for a token that asks by itself.
    pub pin_file: Option<PathBuf>,
    /// ENGINES: sessions that work side by side.
    pub engines: u32,
    /// TIMEOUT: a job that takes longer has failed.
    pub timeout: Duration,
}

/// What only TYPE(TRANSIT) has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TransitSetup {
    /// ADDRESS: where the server is; none for a definition that is being made.
    pub address: Option<Address>,
    /// CAFILE: the authorities of which one must have issued the server's certificate.
    pub authorities: PathBuf,
    /// CERTFILE: a certificate with its key, where the server asks for one.
    pub client_certificate: Option<PathBuf>,
    /// MOUNT: where the engine is.
    pub mount: String,
    /// NAMESPACE
    pub namespace: Option<String>,
    /// TOKENFILE: its first line is the token.
    pub token_file: PathBuf,
    /// ENGINES: connections that work side by side.
    pub engines: u32,
    /// TIMEOUT: a request that takes longer has failed.
    pub timeout: Duration,
}

impl Default for TransitSetup {
    fn default() -> Self {
        Self {
            address: None,
            authorities: PathBuf::new(),
            client_certificate: None,
            mount: MOUNT_DEFAULT.to_owned(),
            namespace: None,
            token_file: PathBuf::new(),
            engines: 1,
            timeout: TIMEOUT_DEFAULT,
        }
    }
}

impl TransitSetup {
    /// What a device of that name needs to know; none without ADDRESS, which a definition has.
    pub fn settings(&self, name: &str) -> Option<TransitSettings> {
        Some(TransitSettings {
            name: name.to_owned(),
            address: self.address.clone()?,
            authorities: self.authorities.clone(),
            client_certificate: self.client_certificate.clone(),
            mount: self.mount.clone(),
            namespace: self.namespace.clone(),
            token_file: self.token_file.clone(),
            engines: u16::try_from(self.engines).unwrap_or(u16::MAX),
            request_timeout: self.timeout,
        })
    }
}

/// What only TYPE(MODELLED) has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelSetup {
    /// PROFILE: what holds for operations that SERVICE does not name.
    pub base: BaseProfile,
    /// SERVICE: service times of this very device, as they were typed.
    pub service: String,
    /// ENGINES that work side by side.
    pub engines: u32,
}

impl ModelSetup {
    /// Every service time, PROFILE and SERVICE together.
    ///
    /// # Errors
    /// None for a device that was defined: SERVICE was read then.
    pub fn profile(&self) -> Result<Profile, ProfileError> {
        let base = match self.base {
            BaseProfile::Coprocessor => Profile::coprocessor(),
            BaseProfile::Accelerator => Profile::accelerator(),
        };
        base.with_times(&self.service)
    }
}

/// PROFILE: the built-in profiles of modelled devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BaseProfile {
    /// [`Profile::coprocessor`].
    Coprocessor,
    /// [`Profile::accelerator`].
    Accelerator,
}

impl BaseProfile {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            BaseProfile::Coprocessor => "COPROCESSOR",
            BaseProfile::Accelerator => "ACCELERATOR",
        }
    }
}

impl DeviceDefinition {
    /// With what holds when it is not given.
    pub fn new(setup: Setup) -> Self {
        Self { description: String::new(), autostart: true, pending: None, operations: Operations::ALL, setup }
    }

    /// The processor as a new queue manager has it.
    pub fn cpu() -> Self {
        Self { description: "This machine's processor".into(), ..Self::new(Setup::Cpu) }
    }

    /// The accelerator as a new queue manager has it.
    pub fn accelerator() -> Self {
        Self { description: "Eight private-key operations at once, clear keys".into(), ..Self::new(Setup::Accelerator) }
    }

    /// The sort of device.
    pub fn kind(&self) -> Kind {
        match self.setup {
            Setup::Cpu => Kind::Cpu,
            Setup::Software => Kind::Software,
            Setup::Accelerator => Kind::Accelerator,
            Setup::Coprocessor(_) => Kind::Coprocessor,
            Setup::Transit(_) => Kind::Transit,
            Setup::Modelled(_) => Kind::Modelled,
        }
    }

    /// ENGINES that work side by side, where the definition says it: for the processor the machine does, and an
    /// accelerator has one.
    pub fn engines(&self) -> Option<u32> {
        match &self.setup {
            Setup::Cpu | Setup::Software | Setup::Accelerator => None,
            Setup::Coprocessor(token) => Some(token.engines),
            Setup::Transit(transit) => Some(transit.engines),
            Setup::Modelled(model) => Some(model.engines),
        }
    }

    /// Jobs that may wait for the device, those in service not counted; none for the processor, which takes what no
    /// other device takes.
    pub fn pending(&self) -> Option<u32> {
        match &self.setup {
            Setup::Cpu | Setup::Software => None,
            Setup::Accelerator => Some(self.pending.unwrap_or(ACCELERATOR_PENDING)),
            Setup::Coprocessor(TokenSetup { engines, .. }) | Setup::Modelled(ModelSetup { engines, .. }) => {
                Some(self.pending.unwrap_or(engines.saturating_mul(PENDING_PER_ENGINE)))
            }
            Setup::Transit(TransitSetup { engines, .. }) => {
                Some(self.pending.unwrap_or(engines.saturating_mul(TRANSIT_PENDING_PER_ENGINE)))
            }
        }
    }

    /// Whether a running device would have to be started anew to become `other`.
    pub fn runs_unlike(&self, other: &DeviceDefinition) -> bool {
        self.setup != other.setup || self.pending() != other.pending()
    }
}
