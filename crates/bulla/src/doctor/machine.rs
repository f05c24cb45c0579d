//! The machine: what the process that asks is made of, and the devices of a queue manager.

use super::{Doctor, TOLD_MAX, mend, user as about};
use crate::catalog::Setup;
use crate::catalog::diagnosis::{
    Condition, DEVICES, DUMPS, Diagnoses, INSTRUCTIONS, LANES, MEMORY, OPEN_FILES, OPENSSL,
};
use crate::catalog::status::DeviceState;
use crate::manager::State;
use bulla_device::coprocessor::Uri;
use bulla_device::key_memory::{self, KeyMemory};
use bulla_device::{Accelerator, KeyUri};
use bulla_seal::Policy;
use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};
use std::collections::BTreeMap;
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
            (_, Setup::Coprocessor(_) | Setup::Transit(_)) => {
                doctor.ill(check, Condition::Broken, device, ("key-unavailable", details), start());
            }
            _ => doctor.ill(check, Condition::Warning, device, ("", details), start()),
        }
    }
    if !doctor.found.has(&LANES) {
        doctor.found.well(&LANES, "", "no accelerator is defined");
    }
}

/// For each key of these users that is on a token or in a transit engine, the device that has it, and what that can't
/// do although it may be asked for.
pub(super) fn keys_elsewhere(doctor: &mut Doctor<'_>, users: &[String], policy: Option<&Policy>) {
    let manager = doctor.manager;
    let defined: Vec<(String, Setup)> = {
        let state = manager.lock();
        state.definitions.devices.iter().map(|(name, device)| (name.clone(), device.setup.clone())).collect()
    };
    let mut keys = BTreeMap::new();
    for user in users {
        let Ok(ring) = manager.ring(user, Instant::now()) else { continue };
        for own in ring.own() {
            let Some(uri) = own.key.token_uri().and_then(|uri| uri.parse::<KeyUri>().ok()) else { continue };
            let lacks = crate::policy_check::lacks(own, policy);
            keys.insert((user.clone(), uri.to_string()), (uri, lacks));
        }
    }
    for ((user, _), (uri, lacks)) in keys.into_iter().take(TOLD_MAX) {
        place(doctor, &defined, &user, &uri);
        if let Some(lacks) = lacks {
            doctor.ill(&DEVICES, Condition::Broken, about(&user), ("key-unavailable", lacks.to_owned()), Vec::new());
        }
    }
    if !doctor.found.has(&DEVICES) {
        doctor.found.well(&DEVICES, "", "no key of these users is on a token or in a transit engine");
    }
}

/// Whether a device runs that has the key.
fn place(doctor: &mut Doctor<'_>, defined: &[(String, Setup)], user: &str, uri: &KeyUri) {
    let fits = |name: &str, setup: &Setup| match (uri, setup) {
        (KeyUri::Token(uri), Setup::Coprocessor(token)) => {
            token.token.parse::<Uri>().is_ok_and(|token| token.can_be_the_token_of(uri))
        }
        (KeyUri::Transit(uri), Setup::Transit(_)) => uri.can_be_at(name),
        _ => false,
    };
    let (place, command) = match uri {
        KeyUri::Token(_) => (
            "on the token of",
            "DEFINE DEVICE('<name>') TYPE(COPROCESSOR) MODULE('<library>') TOKEN('<pkcs11:token=…>') PINFILE('<file>')",
        ),
        KeyUri::Transit(_) => (
            "in the transit engine of",
            "DEFINE DEVICE('<name>') TYPE(TRANSIT) ADDRESS('<https://…>') CAFILE('<file>') TOKENFILE('<file>')",
        ),
    };
    let fitting: Vec<&str> =
        defined.iter().filter(|(name, setup)| fits(name, setup)).map(|(name, _)| name.as_str()).collect();
    let devices = &doctor.manager.workers.devices;
    let runs = |name: &&&str| devices.status(name).is_some_and(|it| it.state == DeviceState::Running);
    match (fitting.iter().find(runs), fitting.first()) {
        (Some(device), _) => {
            doctor.found.well(&DEVICES, about(user), format!("its key is {place} {device}, which runs"));
        }
        (None, Some(device)) => {
            let status = devices.status(device);
            let state = status.as_ref().map_or("away", |status| status.state.as_str());
            let why = status.and_then(|status| status.reason).map_or_else(String::new, |why| format!(": {why}"));
            let details = format!("its key is {place} {device}, which is {state}{why}");
            let mend = vec![mend::mqsc(format!("START DEVICE({})", mend::quoted(device)))];
            doctor.ill(&DEVICES, Condition::Broken, about(user), ("key-unavailable", details), mend);
        }
        (None, None) => {
            let place = place.trim_end_matches(" of").replace(" the ", " a ");
            let details = format!("its key is {place}, and no device is defined that could be that");
            doctor.ill(
                &DEVICES,
                Condition::Broken,
                about(user),
                ("key-unavailable", details),
                vec![mend::mqsc(command)],
            );
        }
    }
}
