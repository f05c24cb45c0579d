//! The machine: what the process that asks is made of, and the devices of a queue manager.

use super::{Doctor, TOLD_MAX, mend, user as about};
use crate::catalog::diagnosis::{
    Condition, DEVICES, DUMPS, Diagnoses, INSTRUCTIONS, LANES, MEMORY, OPEN_FILES, OPENSSL,
};
use crate::catalog::status::DeviceState;
use crate::catalog::{Setup, TokenSetup};
use crate::manager::State;
use bulla_device::Accelerator;
use bulla_device::coprocessor::Uri;
use bulla_device::key_memory::{self, KeyMemory};
use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// Fewest files that a queue manager with many clients should be able to open.
const OPEN_FILES_MIN: u64 = 4_096;
/// OpenSSL's variable for the processor's features.
const OPENSSL_FEATURES: &str = "OPENSSL_ia32cap";

/// What this process is made of.
pub(crate) fn process(found: &mut Diagnoses) {
    found.well(&OPENSSL, "", format!("{}, built into the program", openssl::version::version()));
    instructions(found);
    memory(found);
    dumps(found);
    let limit = getrlimit(Resource::Nofile).current;
    match limit {
        Some(limit) if limit < OPEN_FILES_MIN => {
            let details = format!("{limit} open files: so many connections at most, and fewer");
            ill(found, &OPEN_FILES, details, "ulimit -n 65536");
        }
        Some(limit) => found.well(&OPEN_FILES, "", format!("{limit} open files")),
        None => found.well(&OPEN_FILES, "", "any number of open files"),
    }
}

fn ill(found: &mut Diagnoses, check: &'static crate::catalog::diagnosis::Check, details: String, mend: &str) {
    found.push(crate::catalog::diagnosis::Diagnosis {
        check,
        condition: Condition::Warning,
        about: String::new(),
        cause: String::new(),
        details,
        mend: vec![mend.to_owned()],
    });
}

fn instructions(found: &mut Diagnoses) {
    #[cfg(target_arch = "x86_64")]
    let known = [
        ("AES-NI", std::is_x86_feature_detected!("aes")),
        ("PCLMULQDQ", std::is_x86_feature_detected!("pclmulqdq")),
        ("SHA", std::is_x86_feature_detected!("sha")),
        ("VAES", std::is_x86_feature_detected!("vaes")),
        ("AVX-512 IFMA", std::is_x86_feature_detected!("avx512ifma")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let known: [(&str, bool); 0] = [];
    let has: Vec<&str> = known.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let lacks: Vec<&str> = known.iter().filter(|(_, has)| !*has).map(|(name, _)| *name).collect();
    let details = match (has.is_empty(), lacks.is_empty()) {
        (true, _) => "no instructions for cryptography are known".to_owned(),
        (false, true) => format!("has {}", has.join(", ")),
        (false, false) => format!("has {}; has not {}", has.join(", "), lacks.join(", ")),
    };
    if std::env::var_os(OPENSSL_FEATURES).is_some() {
        ill(
            found,
            &INSTRUCTIONS,
            format!("{OPENSSL_FEATURES} is set: OpenSSL is told what to use; {details}"),
            "unset OPENSSL_ia32cap",
        );
    } else {
        found.well(&INSTRUCTIONS, "", details);
    }
}

fn memory(found: &mut Diagnoses) {
    let reserved = key_memory::reserve();
    match reserved {
        KeyMemory::Locked { .. } => found.well(&MEMORY, "", reserved.to_string()),
        _ => ill(found, &MEMORY, reserved.to_string(), "ulimit -l 65536"),
    }
}

fn dumps(found: &mut Diagnoses) {
    let dumpable = !matches!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    let core = getrlimit(Resource::Core).current;
    match (dumpable, core) {
        (true, _) => {
            let details = "other processes of this user may read and dump its memory, with clear keys in it";
            ill(found, &DUMPS, details.to_owned(), "bulla start");
        }
        (false, Some(0)) => {
            found.well(&DUMPS, "", "no core file is written, and no process of its user reads its memory")
        }
        (false, _) => {
            let details = "no core file of this process; programs that it starts may write one";
            found.well(&DUMPS, "", details);
        }
    }
}

/// The library of accelerators, where no queue manager runs that has opened it.
pub(crate) fn lanes(library: &Path, found: &mut Diagnoses) {
    match Accelerator::open("LANES", library) {
        Ok(_) => found.well(&LANES, "", "loads, and passes its self-test"),
        Err(error) => found.well(&LANES, "", format!("is not used: {error}")),
    }
}

/// Every device that is defined, as it runs.
pub(super) fn devices(doctor: &mut Doctor<'_>, state: &State) {
    for (name, definition) in &state.definitions.devices {
        let Some(status) = doctor.manager.workers.devices.status(name) else { continue };
        let why = status.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let details = format!("{} is {}{why}", definition.kind(), status.state);
        let device = format!("device {name}");
        let start = || vec![mend::mqsc(format!("START DEVICE({})", mend::quoted(name)))];
        let check = if definition.setup == Setup::Accelerator { &LANES } else { &DEVICES };
        match (status.state, &definition.setup) {
            (DeviceState::Running | DeviceState::Starting, _) => doctor.found.well(check, device, details),
            (DeviceState::Stopped, _) if !definition.autostart => doctor.found.well(check, device, details),
            // The processor does its work.
            (DeviceState::Offline, Setup::Accelerator) => {
                doctor.found.well(check, device, format!("{details}; the processor does its work"));
            }
            (DeviceState::Failed, _) => {
                doctor.ill(check, Condition::Broken, device, ("key-unavailable", details), start())
            }
            (_, Setup::Coprocessor(_)) => {
                doctor.ill(check, Condition::Broken, device, ("key-unavailable", details), start());
            }
            _ => doctor.ill(check, Condition::Warning, device, ("", details), start()),
        }
    }
    if !doctor.found.has(&LANES) {
        doctor.found.well(&LANES, "", "no accelerator is defined");
    }
}

/// For each key on a token in the rings of these users, the device that has it.
pub(super) fn tokens(doctor: &mut Doctor<'_>, users: &[String]) {
    let manager = doctor.manager;
    let defined: Vec<(String, TokenSetup)> = {
        let state = manager.lock();
        let devices = state.definitions.devices.iter();
        devices
            .filter_map(|(name, device)| match &device.setup {
                Setup::Coprocessor(token) => Some((name.clone(), token.clone())),
                _ => None,
            })
            .collect()
    };
    let mut keys = BTreeSet::new();
    for user in users {
        let Ok(ring) = manager.ring(user, Instant::now()) else { continue };
        let uris = ring.own().iter().filter_map(|own| own.key.token_uri().map(str::to_owned));
        keys.extend(uris.map(|uri| (user.clone(), uri)));
    }
    for (user, uri) in keys.into_iter().take(TOLD_MAX) {
        let fits = |token: &TokenSetup| {
            let (wanted, has) = (uri.parse::<Uri>(), token.token.parse::<Uri>());
            wanted.ok().zip(has.ok()).is_some_and(|(wanted, has)| has.can_be_the_token_of(&wanted))
        };
        let fitting: Vec<&str> =
            defined.iter().filter(|(_, token)| fits(token)).map(|(name, _)| name.as_str()).collect();
        let status = |name: &&str| manager.workers.devices.status(name);
        let runs = fitting.iter().find(|name| status(name).is_some_and(|it| it.state == DeviceState::Running));
        match (runs, fitting.first()) {
            (Some(device), _) => {
                doctor.found.well(&DEVICES, about(&user), format!("its key is on the token of {device}, which runs"))
            }
            (None, Some(device)) => {
                let status = status(device);
                let state = status.as_ref().map_or("away", |status| status.state.as_str());
                let why = status.and_then(|status| status.reason).map_or_else(String::new, |why| format!(": {why}"));
                let details = format!("its key is on the token of {device}, which is {state}{why}");
                let mend = vec![mend::mqsc(format!("START DEVICE({})", mend::quoted(device)))];
                doctor.ill(&DEVICES, Condition::Broken, about(&user), ("key-unavailable", details), mend);
            }
            (None, None) => {
                let mend = vec![mend::mqsc(
                    "DEFINE DEVICE('<name>') TYPE(COPROCESSOR) MODULE('<library>') TOKEN('<pkcs11:token=…>') PINFILE('<file>')",
                )];
                let details = "its key is on a token, and no device is defined that could be that";
                doctor.ill(&DEVICES, Condition::Broken, about(&user), ("key-unavailable", details), mend);
            }
        }
    }
    if !doctor.found.has(&DEVICES) {
        doctor.found.well(&DEVICES, "", "no key of these users is on a token");
    }
}
