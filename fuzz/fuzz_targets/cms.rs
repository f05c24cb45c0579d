//! Arbitrary bytes as a sealed message: looked at, checked on arrival, opened. The first byte picks the
//! policy; whatever opens was made with the key of the ring, so the answers need no judging here, only
//! that there is always one.
#![no_main]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bulla_device::{CpuDevice, Digest};
use bulla_seal::policy::{Bind, ContentCipher};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Expect, Opener, Policy, drive, inspect, looks_sealed};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

struct Setting {
    ring: Arc<Ring>,
    policies: Vec<Arc<Policy>>,
    opener: Opener,
    expect: Expect,
    now: SystemTime,
}

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let sha256 = Some(Digest::Sha256);
    let gcm = Some(ContentCipher::Aes256Gcm);
    let cbc = Some(ContentCipher::Aes256Cbc);
    let of = |sign, encrypt: Option<ContentCipher>, bind| {
        let mut policy = Policy::new("ORDERS");
        policy.sign = sign;
        policy.encrypt = encrypt;
        policy.bind = bind;
        policy.weak = true;
        policy.sign_batch = if sign.is_some() && encrypt != cbc { 8 } else { 1 };
        if encrypt.is_some() {
            policy.recipients = vec!["CN=billing,O=Example".parse().expect("a name")];
        }
        Arc::new(policy)
    };
    Setting {
        ring: ring(),
        // The first four are those of the seeds; the fourth seed is one of a batch.
        policies: vec![
            of(sha256, None, Bind::Required),
            of(None, gcm, Bind::Required),
            of(sha256, gcm, Bind::Required),
            of(sha256, None, Bind::None),
            of(None, gcm, Bind::None),
            of(sha256, gcm, Bind::None),
            of(None, cbc, Bind::None),
            of(sha256, cbc, Bind::None),
        ],
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
});

/// The ring of the test data, in files that only this user can read.
fn ring() -> Arc<Ring> {
    let dir = std::env::temp_dir().join(format!("bulla-fuzz-cms-{}", std::process::id())).join("billing");
    ring::create(&dir).expect("a directory");
    let put = |place: &str, bytes: &[u8]| {
        let path: &Path = &dir.join(place);
        std::fs::write(path, bytes).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    };
    put("own/billing.pem", include_bytes!("../../testdata/seal/billing/own/billing.pem"));
    put("trust/ca.pem", include_bytes!("../../testdata/seal/billing/trust/ca.pem"));
    Arc::new(Ring::load(&dir, None).expect("the ring of the test data"))
}

fuzz_target!(|data: &[u8]| {
    let Some((which, der)) = data.split_first() else { return };
    let setting = &*SETTING;
    let _claims = looks_sealed(der);
    if let Ok(inspection) = inspect(der) {
        assert_eq!(inspection.sizes.total, der.len());
        let _text = inspection.to_string();
        let _json = inspection.to_json();
    }
    let Some(policy) = setting.policies.get(usize::from(*which) % setting.policies.len()) else { return };
    let der = Bytes::copy_from_slice(der);
    let _arrived = setting
        .opener
        .check_arrived(policy, &setting.ring, &der, &setting.expect, setting.now)
        .and_then(|step| drive(step, &mut CpuDevice::new("cpu")));
    let expect = setting.expect.clone();
    let opened = setting
        .opener
        .open(policy, &setting.ring, der, expect, setting.now, setting.now)
        .and_then(|step| drive(step, &mut CpuDevice::new("cpu")));
    if let Err(error) = opened {
        assert!(!error.cause().is_empty() && !error.to_string().is_empty());
    }
});
