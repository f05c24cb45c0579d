//! What `/readyz` says of the disk and the key rings, which no dispatcher looks at.

use crate::folders::RINGS;
use crate::manager::Manager;
use crate::readiness::Unready;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the disk is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often key rings are looked at.
const RINGS_EVERY: Duration = Duration::from_secs(10);
/// Free space of the data directory's disk below which clients should not come, in bytes. The journal keeps segments
/// ready and says itself when it has none; the audit log, definitions and scratch files have nothing kept for them.
const FREE_BYTES_MIN: u64 = 16 << 20;
/// Key rings that are tried until one can be used: where the passphrase is wrong, it is wrong for all.
const RINGS_TRIED_MAX: usize = 8;

/// Looks again and again.
#[derive(Debug, Default)]
pub(super) struct ReadinessWatch {
    rings_at: Option<Instant>,
}

impl ReadinessWatch {
    /// Looks at what is due.
    pub(super) fn look(&mut self, manager: &Manager, now: Instant) {
        let readiness = &manager.listening.readiness;
        readiness.set(Unready::Disk, is_low(&manager.data));
        if self.rings_at.is_none_or(|at| now.saturating_duration_since(at) >= RINGS_EVERY) {
            self.rings_at = Some(now);
            readiness.set(Unready::KeyRings, no_ring_is_usable(manager, now));
        }
    }
}

/// Whether a disk is all but full. What can't be known counts as room.
fn is_low(data: &Path) -> bool {
    rustix::fs::statvfs(data).is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) < FREE_BYTES_MIN)
}

/// Whether there are policies and rings, and no ring can be used. Rings that did not change are not read again.
fn no_ring_is_usable(manager: &Manager, now: Instant) -> bool {
    if manager.lock().definitions.policies.is_empty() {
        return false;
    }
    let folders = std::fs::read_dir(manager.data.join(RINGS)).into_iter().flatten().flatten();
    let mut users: Vec<String> = folders.filter_map(|folder| folder.file_name().into_string().ok()).collect();
    users.sort_unstable();
    users.truncate(RINGS_TRIED_MAX);
    !users.is_empty() && !users.iter().any(|user| manager.ring(user, now).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin;
    use crate::serve::{Listen, Settings, start};
    use bulla_seal::certificate::authority::{Authority, Request};
    use bulla_seal::certificate::{KeySpec, KeyUse, Passphrase};
    use bulla_seal::ring;
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    const KEY: KeySpec = KeySpec::Rsa(2048);

    /// A ring whose key is encrypted.
    fn add_ring(data: &Path, user: &str, passphrase: &str) {
        let now = SystemTime::now();
        let ca = Authority::create(&data.join("authorities/a"), &"CN=ca".parse().unwrap(), KEY, 10, now).unwrap();
        let request = Request {
            dn: format!("CN={user}").parse().unwrap(),
            key: KEY,
            uses: vec![KeyUse::DocSign, KeyUse::DataEncrypt],
            days: 10,
            alternative_names: Vec::new(),
            passphrase: Some(Passphrase::new(passphrase.to_owned())),
        };
        let own = ca.issue(&request, now).unwrap();
        let folder = data.join(RINGS).join(user);
        ring::create(&folder).unwrap();
        ring::install_own(&folder, "own", &own.0, &ca.chain(), &own.1).unwrap();
        ring::install_trust(&folder, "ca", ca.root()).unwrap();
    }

    #[test]
    fn where_no_key_ring_opens_a_queue_manager_with_policies_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        crate::serve::make_directories(data).unwrap();
        add_ring(data, "orders", "the right one");
        let causes = |passphrase: Option<&str>, command: Option<&str>| {
            let file = passphrase.map(|text| {
                let path = data.join("passphrase");
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
                path
            });
            let amqp = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
            let listen = Listen { amqp, ..Listen::default() };
            let settings = Settings { passphrase: file, listen, ..Settings::new(data.to_owned()) };
            let running = start(&settings).unwrap();
            for reply in command.into_iter().flat_map(|text| admin::request(data, text).unwrap()) {
                assert!(!matches!(reply.outcome, crate::mqsc::reply::Outcome::Failed(_)), "{reply:?}");
            }
            let manager = running.manager();
            ReadinessWatch::default().look(manager, Instant::now());
            let causes: Vec<Unready> = manager.listening.readiness.causes().collect();
            running.stop().unwrap();
            causes
        };
        assert_eq!(causes(None, None), [], "nothing is protected");
        let protects = "DEFINE QLOCAL(ORDERS); SET POLICY(ORDERS) SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders') +\n \
            RECIP('CN=orders')";
        assert_eq!(causes(None, Some(protects)), [Unready::KeyRings], "there is no passphrase");
        assert_eq!(causes(Some("the wrong one"), None), [Unready::KeyRings]);
        assert_eq!(causes(Some("the right one"), None), []);
    }
}
