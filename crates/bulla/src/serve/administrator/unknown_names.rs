//! Names in policies for which no key ring has a certificate, and recipients for whom none has a private key.

use crate::catalog::{Change, Object};
use crate::folders::RINGS;
use crate::key_use::{KnownKeys, wanted_here};
use crate::manager::Manager;
use crate::stranded::without_key;
use bulla_seal::Dn;
use std::collections::HashSet;
use std::time::Instant;

/// The names that some user's ring has a certificate of.
fn known_names(manager: &Manager) -> HashSet<Dn> {
    let users = std::fs::read_dir(manager.data.join(RINGS)).into_iter().flatten().flatten();
    let names = users.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|user| manager.ring(&user, Instant::now()).ok())
        .flat_map(|ring| {
            let own = ring.own().iter().map(|own| own.certificate.dn().clone());
            own.chain(ring.people().iter().map(|person| person.certificate.dn().clone())).collect::<Vec<_>>()
        })
        .collect()
}

/// Names in policies for which no ring has a certificate: a put by a user who lacks them will be refused. Reads every
/// ring.
pub(super) fn unknown_names(manager: &Manager, changes: &[Change]) -> Vec<String> {
    let policies: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Define { object: Object::Policy(policy), .. } => Some(policy),
            _ => None,
        })
        .collect();
    if policies.is_empty() {
        return Vec::new();
    }
    // The command before it may have brought a certificate, and the next message needs it.
    manager.sealing.rings.look_again();
    let known = known_names(manager);
    let mut warnings: Vec<String> = (policies.iter())
        .flat_map(|policy| policy.recipients.iter().chain(&policy.signers))
        // A message brings the certificate of a process with it, and the next hour's is another one.
        .filter(|dn| !known.contains(*dn) && !dn.is_spiffe_id())
        .map(|dn| format!("no key ring holds a certificate of {dn}: puts and gets that need it are refused with 2063"))
        .collect();
    let keys = KnownKeys::read(manager, Instant::now());
    let (holders, state) = (keys.holders(), manager.lock());
    for policy in policies {
        let wanted = wanted_here(policy, &state.definitions);
        let without = wanted.filter(|dn| known.contains(*dn) && !holders.contains(dn));
        warnings.extend(without.map(|dn| without_key(&policy.name, &dn.to_string())));
    }
    warnings
}
