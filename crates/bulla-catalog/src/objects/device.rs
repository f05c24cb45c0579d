//! Crypto devices.

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

/// How long a job on a token may take unless TIMEOUT says otherwise.
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
            Setup::Modelled(_) => Kind::Modelled,
        }
    }

    /// ENGINES that work side by side, where the definition says it: for the processor the machine does, and an
    /// accelerator has one.
    pub fn engines(&self) -> Option<u32> {
        match &self.setup {
            Setup::Cpu | Setup::Software | Setup::Accelerator => None,
            Setup::Coprocessor(token) => Some(token.engines),
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
        }
    }

    /// Whether a running device would have to be started anew to become `other`.
    pub fn runs_unlike(&self, other: &DeviceDefinition) -> bool {
        self.setup != other.setup || self.pending() != other.pending()
    }
}
