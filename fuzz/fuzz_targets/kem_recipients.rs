//! Arbitrary bytes as a message with an ML-KEM recipient or an ML-DSA signer, and as the recipient info in an envelope
//! that is good otherwise. The first byte picks the policy, and by its lowest bit which of the two.
#![no_main]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bulla_device::{CpuDevice, Digest};
use bulla_seal::policy::{ContentCipher, Pqc};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Expect, Opener, Policy, drive, inspect, recipients};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

struct Setting {
    ring: Arc<Ring>,
    policies: Vec<Arc<Policy>>,
    opener: Opener,
    expect: Expect,
    now: SystemTime,
    envelope: Envelope,
}

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let sha512 = Some(Digest::Sha512);
    let (gcm, cbc) = (Some(ContentCipher::Aes256Gcm), Some(ContentCipher::Aes256Cbc));
    let name = |name: &str| vec![name.parse().expect("a name")];
    let of = |sign: Option<Digest>, encrypt: Option<ContentCipher>, most| {
        let mut policy = Policy::new("ORDERS");
        policy.sign = sign;
        policy.encrypt = encrypt;
        policy.weak = true;
        policy.pqc = Pqc::Required;
        policy.sign_batch = most;
        if sign.is_some() {
            policy.signers = name("CN=orders,O=Example");
        }
        if encrypt.is_some() {
            policy.recipients = name("CN=billing,O=Example");
        }
        Arc::new(policy)
    };
    Setting {
        ring: ring(),
        // In the order of the seeds.
        policies: vec![
            of(sha512, None, 1),
            of(None, gcm, 1),
            of(sha512, gcm, 1),
            of(sha512, cbc, 1),
            of(sha512, gcm, 8),
            of(None, cbc, 1),
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
        envelope: Envelope::of(include_bytes!("../../testdata/seal/modern/confidentiality.der")),
    }
});

/// The ring of the test data, in files that only this user can read.
fn ring() -> Arc<Ring> {
    let dir = std::env::temp_dir().join(format!("bulla-fuzz-kem-{}", std::process::id())).join("billing");
    ring::create(&dir).expect("a directory");
    let put = |place: &str, bytes: &[u8]| {
        let path: &Path = &dir.join(place);
        std::fs::write(path, bytes).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    };
    put("own/billing.pem", include_bytes!("../../testdata/seal/modern/own/billing.pem"));
    put("people/orders.pem", include_bytes!("../../testdata/seal/modern/people/orders.pem"));
    put("trust/ca.pem", include_bytes!("../../testdata/seal/modern/trust/ca.pem"));
    Arc::new(Ring::load(&dir, None).expect("the ring of the test data"))
}

/// What stands around the recipient infos of a good message: content type and version before them, all else behind.
struct Envelope {
    content_type: Vec<u8>,
    version: Vec<u8>,
    behind: Vec<u8>,
}

impl Envelope {
    fn of(der: &[u8]) -> Envelope {
        let info = parts(contents(der));
        let envelope = parts(contents(contents(info[1])));
        Envelope {
            content_type: info[0].to_vec(),
            version: envelope[0].to_vec(),
            behind: envelope[2..].concat(),
        }
    }

    fn around(&self, recipients: &[u8]) -> Vec<u8> {
        let envelope = [&self.version[..], &element(0x31, recipients), &self.behind].concat();
        element(0x30, &[&self.content_type[..], &element(0xa0, &element(0x30, &envelope))].concat())
    }
}

/// Bytes of the header and of the contents of a DER element that is known to be good.
fn lengths(der: &[u8]) -> (usize, usize) {
    match usize::from(der[1]) {
        short @ 0..0x80 => (2, short),
        long => {
            let count = long & 0x7f;
            (2 + count, der[2..2 + count].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
        }
    }
}

fn contents(der: &[u8]) -> &[u8] {
    let (start, len) = lengths(der);
    &der[start..start + len]
}

fn parts(mut contents: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while !contents.is_empty() {
        let (start, len) = lengths(contents);
        let (part, rest) = contents.split_at(start + len);
        parts.push(part);
        contents = rest;
    }
    parts
}

fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    if contents.len() < 0x80 {
        out.push(contents.len() as u8);
    } else {
        let bytes: Vec<u8> = contents.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        out.push(0x80 | bytes.len() as u8);
        out.extend(bytes);
    }
    out.extend_from_slice(contents);
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let setting = &*SETTING;
    let der = if which & 1 == 0 { bytes.to_vec() } else { setting.envelope.around(bytes) };
    if let Ok(inspection) = inspect(&der) {
        assert_eq!(inspection.sizes.total, der.len());
        assert!(recipients(&der).is_ok(), "what can be inspected has recipients that can be listed");
        let _text = inspection.to_string();
    }
    let Some(policy) = setting.policies.get(usize::from(*which / 2) % setting.policies.len()) else { return };
    let der = Bytes::from(der);
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
