//! Arbitrary bytes as a sealed message: looked at, checked on arrival, opened. The first byte picks the policy.
#![no_main]

mod setting;

use std::sync::LazyLock;

use bulla_device::Digest;
use bulla_seal::policy::{Bind, ContentCipher};
use bulla_seal::{inspect, looks_sealed};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use setting::{RingFile, Setting, policy};

const RING: &[RingFile] = &[
    ("own/billing.pem", include_bytes!("../../testdata/seal/billing/own/billing.pem")),
    ("trust/ca.pem", include_bytes!("../../testdata/seal/billing/trust/ca.pem")),
];

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let sha256 = Some(Digest::Sha256);
    let gcm = Some(ContentCipher::Aes256Gcm);
    let cbc = Some(ContentCipher::Aes256Cbc);
    let of = |sign: Option<Digest>, encrypt: Option<ContentCipher>, bind| {
        policy(sign, encrypt, |policy| {
            policy.bind = bind;
            policy.sign_batch = if sign.is_some() && encrypt != cbc { 8 } else { 1 };
        })
    };
    // The first four are those of the seeds; the fourth seed is one of a batch.
    let policies = vec![
        of(sha256, None, Bind::Required),
        of(None, gcm, Bind::Required),
        of(sha256, gcm, Bind::Required),
        of(sha256, None, Bind::None),
        of(None, gcm, Bind::None),
        of(sha256, gcm, Bind::None),
        of(None, cbc, Bind::None),
        of(sha256, cbc, Bind::None),
    ];
    Setting::new("cms", RING, policies)
});

fuzz_target!(|data: &[u8]| {
    let Some((which, der)) = data.split_first() else { return };
    let _claims = looks_sealed(der);
    if let Ok(inspection) = inspect(der) {
        assert_eq!(inspection.sizes.total, der.len());
        let _text = inspection.to_string();
        let _json = inspection.to_json();
    }
    SETTING.read(*which, Bytes::copy_from_slice(der));
});
