//! What the targets of sealed messages share: a reader's ring out of the test data, what its messages are bound to, and
//! what is done with one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulla_device::{CpuDevice, Digest};
use bulla_seal::policy::ContentCipher;
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Expect, Opener, Policy, drive};
use bytes::Bytes;

/// A file of a ring: its place there, and what is in it.
pub type RingFile = (&'static str, &'static [u8]);

/// A reader.
pub struct Setting {
    ring: Arc<Ring>,
    policies: Vec<Arc<Policy>>,
    opener: Opener,
    expect: Expect,
    now: SystemTime,
}

impl Setting {
    /// With a ring of these files, which `target` tells apart from those of other targets.
    pub fn new(target: &str, files: &[RingFile], policies: Vec<Arc<Policy>>) -> Setting {
        Setting {
            ring: ring(target, files),
            policies,
            opener: Opener::new(),
            expect: Expect {
                destinations: vec!["ORDERS@QM1".into()],
                message_id: Bytes::from_static(b"\xa1\x04id-1"),
                properties: Bytes::from_static(b"\x00\x53\x73\xc0\x01\x00"),
                application_properties: Bytes::new(),
                annotations: Bytes::new(),
            },
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000),
        }
    }

    /// Checks a message on arrival and opens it, under the policy that `which` picks. Whatever opens was made with the
    /// key of the ring, so the answers need no judging here, only that there is always one.
    pub fn read(&self, which: u8, der: Bytes) {
        let Some(policy) = self.policies.get(usize::from(which) % self.policies.len()) else { return };
        let _arrived = self
            .opener
            .check_arrived(policy, &self.ring, &der, &self.expect, self.now)
            .and_then(|step| drive(step, &mut CpuDevice::new("cpu")));
        let expect = self.expect.clone();
        let opened = self
            .opener
            .open(policy, &self.ring, der, expect, self.now, self.now)
            .and_then(|step| drive(step, &mut CpuDevice::new("cpu")));
        if let Err(error) = opened {
            assert!(!error.cause().is_empty() && !error.to_string().is_empty());
        }
    }
}

/// A policy for the ring's user.
pub fn policy(
    sign: Option<Digest>,
    encrypt: Option<ContentCipher>,
    change: impl FnOnce(&mut Policy),
) -> Arc<Policy> {
    let mut policy = Policy::new("ORDERS");
    policy.sign = sign;
    policy.encrypt = encrypt;
    policy.weak = true;
    if encrypt.is_some() {
        policy.recipients = vec!["CN=billing,O=Example".parse().expect("a name")];
    }
    change(&mut policy);
    Arc::new(policy)
}

/// The ring, in files that only this user can read.
fn ring(target: &str, files: &[RingFile]) -> Arc<Ring> {
    let dir = std::env::temp_dir().join(format!("bulla-fuzz-{target}-{}", std::process::id())).join("billing");
    ring::create(&dir).expect("a directory");
    for (place, bytes) in files {
        let path: &Path = &dir.join(place);
        std::fs::write(path, bytes).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    }
    Arc::new(Ring::load(&dir, None).expect("the ring of the test data"))
}
