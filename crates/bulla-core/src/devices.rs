//! The crypto devices of a queue manager: from their definitions to devices that run, and from what these
//! count to what commands show.

use crate::catalog::status::{DeviceState, DeviceStatus, Snapshot};
use crate::catalog::{Definitions, DeviceDefinition, ModelSetup, Setup, TokenSetup, TransitSetup};
use crate::refused_tokens::RefusedTokens;
use bulla_device::coprocessor::{Coprocessor, CoprocessorSettings, HelperCommand};
use bulla_device::scheduler::{Open, Report, SetupError};
use bulla_device::transit::{Notice, Transit};
use bulla_device::{Accelerator, DeviceError, Driver, Modelled, ProfileError, Scheduler, is_below, system_libraries};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The devices of a queue manager.
pub struct Devices {
    scheduler: Arc<Scheduler>,
    /// The shared object with the accelerators' code.
    lanes: PathBuf,
    /// Where PKCS#11 modules may lie: directories, or modules by name.
    modules: Arc<[PathBuf]>,
    /// Tokens that servers refuse.
    refused_tokens: Arc<RefusedTokens>,
}

impl Devices {
    /// `modules` are allowed besides those in the system's library directories.
    pub fn new(scheduler: Arc<Scheduler>, lanes: PathBuf, modules: &[PathBuf]) -> Self {
        let modules = system_libraries().into_iter().chain(modules.iter().cloned()).collect();
        Self { scheduler, lanes, modules, refused_tokens: Arc::default() }
    }

    /// Tokens that servers with keys refuse.
    pub fn refused_tokens(&self) -> &RefusedTokens {
        &self.refused_tokens
    }

    /// What hands jobs to the devices.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// Makes all definitions known, and starts the devices that start by themselves.
    pub fn set_up(&self, definitions: &Definitions) -> Result<(), SetupError> {
        for (name, device) in &definitions.devices {
            self.define(name, device)?;
            if device.autostart { self.scheduler.start(name)? } else { self.scheduler.stop(name)? }
        }
        Ok(())
    }

    /// Makes a definition known. What the device may do holds at once, all else from its next start on.
    pub fn define(&self, name: &str, device: &DeviceDefinition) -> Result<(), SetupError> {
        if let Some(open) = self.opener(name, device) {
            let waiting_max = device.pending().map_or(1, |pending| pending as usize);
            match self.scheduler.redefine(name, device.kind(), waiting_max, open.clone()) {
                Err(SetupError::Unknown(_)) => self.scheduler.define(name, device.kind(), waiting_max, open),
                done => done,
            }?;
        }
        self.scheduler.allow(name, device.operations)
    }

    /// Starts a device as it is defined now; one that runs goes on as it is.
    pub fn start(&self, name: &str, device: &DeviceDefinition) -> Result<(), SetupError> {
        let running = |status: &DeviceStatus| matches!(status.state, DeviceState::Running | DeviceState::Starting);
        if !self.status(name).as_ref().is_some_and(running) {
            self.scheduler.stop(name)?;
            self.define(name, device)?;
        }
        self.scheduler.start(name)
    }

    /// What a device is doing, for DISPLAY DEVICE.
    pub fn status(&self, name: &str) -> Option<DeviceStatus> {
        self.scheduler.report_of(name).as_ref().map(status)
    }

    /// What all devices did, for DISPLAY DEVSTATUS, the activity report and the metrics.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(SystemTime::now(), &self.scheduler.report())
    }

    /// The same, as it was kept last before `at`.
    ///
    /// # Errors
    /// When the oldest that is kept was taken, if any is.
    pub fn snapshot_at(&self, at: SystemTime) -> Result<Snapshot, Option<SystemTime>> {
        match self.scheduler.report_at(at) {
            Some((taken, reports)) => Ok(Snapshot::new(taken, &reports)),
            None => Err(self.scheduler.oldest_report()),
        }
    }

    /// How a device is opened; nothing for the processor, which is there.
    fn opener(&self, name: &str, device: &DeviceDefinition) -> Option<Open> {
        let name = name.to_owned();
        match device.setup.clone() {
            Setup::Cpu | Setup::Software => None,
            Setup::Accelerator => {
                let lanes = self.lanes.clone();
                Some(Arc::new(move || accelerator(&name, &lanes)))
            }
            Setup::Coprocessor(token) => {
                let modules = self.modules.clone();
                Some(Arc::new(move || coprocessor(&name, &token, &modules)))
            }
            Setup::Transit(setup) => {
                let tokens = self.refused_tokens.clone();
                Some(Arc::new(move || transit(&name, &setup, &tokens)))
            }
            Setup::Modelled(model) => Some(Arc::new(move || modelled(&name, &model))),
        }
    }
}

fn accelerator(name: &str, lanes: &Path) -> Result<Arc<dyn Driver>, DeviceError> {
    Ok(Arc::new(Accelerator::open(name, lanes)?))
}

fn coprocessor(name: &str, token: &TokenSetup, modules: &[PathBuf]) -> Result<Arc<dyn Driver>, DeviceError> {
    let offline = |why: String| DeviceError::Offline { device: name.to_owned(), why };
    let shown = token.module.display();
    let module =
        token.module.canonicalize().map_err(|error| offline(format!("module {shown} can't be loaded: {error}")))?;
    if !is_below(&module, modules) {
        return Err(offline(format!(
            "module {shown} is not allowed: it is not in the system's library directories, and no `bulla start --modules` names it"
        )));
    }
    let settings = CoprocessorSettings {
        name: name.to_owned(),
        module,
        token: token.token.parse().map_err(|error| offline(format!("TOKEN: {error}")))?,
        pin_file: token.pin_file.clone(),
        engines: u16::try_from(token.engines).unwrap_or(u16::MAX),
        job_timeout: token.timeout,
    };
    Ok(Arc::new(Coprocessor::new(settings, HelperCommand::this_program())))
}

fn transit(name: &str, setup: &TransitSetup, tokens: &Arc<RefusedTokens>) -> Result<Arc<dyn Driver>, DeviceError> {
    let no_address = || DeviceError::Offline { device: name.to_owned(), why: "it has no ADDRESS".to_owned() };
    let settings = setup.settings(name).ok_or_else(no_address)?;
    tokens.forget(name);
    let (device, tokens) = (name.to_owned(), tokens.clone());
    let notice: Notice = Arc::new(move |news| tokens.hear(&device, news));
    Ok(Arc::new(Transit::new(settings, notice)))
}

fn modelled(name: &str, model: &ModelSetup) -> Result<Arc<dyn Driver>, DeviceError> {
    let offline =
        |error: ProfileError| DeviceError::Offline { device: name.to_owned(), why: format!("SERVICE: {error}") };
    Ok(Arc::new(Modelled::new(name, model.profile().map_err(offline)?, model.engines as usize)))
}

fn status(report: &Report) -> DeviceStatus {
    DeviceStatus {
        state: DeviceState::from(&report.state),
        reason: report.state.why().map(str::to_owned).or_else(|| report.last_error.clone()),
        waiting: report.waiting as u64,
        in_service: report.in_service as u64,
        utilisation_percent: (report.utilisation * 100.0).round().clamp(0.0, 100.0) as u64,
        jobs: report.meters.count(),
        errors: report.meters.errors(),
    }
}
