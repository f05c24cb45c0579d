//! Arbitrary bytes as a message with an ML-KEM recipient or an ML-DSA signer, and as the recipient info in an envelope
//! that is good otherwise. The first byte picks the policy, and by its lowest bit which of the two.
#![no_main]

mod setting;

use std::sync::LazyLock;

use bulla_device::Digest;
use bulla_seal::policy::{ContentCipher, Pqc};
use bulla_seal::{inspect, recipients};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use setting::{RingFile, Setting, policy};

const RING: &[RingFile] = &[
    ("own/billing.pem", include_bytes!("../../testdata/seal/modern/own/billing.pem")),
    ("people/orders.pem", include_bytes!("../../testdata/seal/modern/people/orders.pem")),
    ("trust/ca.pem", include_bytes!("../../testdata/seal/modern/trust/ca.pem")),
];

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let sha512 = Some(Digest::Sha512);
    let (gcm, cbc) = (Some(ContentCipher::Aes256Gcm), Some(ContentCipher::Aes256Cbc));
    let of = |sign: Option<Digest>, encrypt, most| {
        policy(sign, encrypt, |policy| {
            policy.pqc = Pqc::Required;
            policy.sign_batch = most;
            if sign.is_some() {
                policy.signers = vec!["CN=orders,O=Example".parse().expect("a name")];
            }
        })
    };
    // In the order of the seeds.
    let policies = vec![
        of(sha512, None, 1),
        of(None, gcm, 1),
        of(sha512, gcm, 1),
        of(sha512, cbc, 1),
        of(sha512, gcm, 8),
        of(None, cbc, 1),
    ];
    Setting::new("kem", RING, policies)
});

static ENVELOPE: LazyLock<Envelope> =
    LazyLock::new(|| Envelope::of(include_bytes!("../../testdata/seal/modern/confidentiality.der")));

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
    let der = if which & 1 == 0 { bytes.to_vec() } else { ENVELOPE.around(bytes) };
    if let Ok(inspection) = inspect(&der) {
        assert_eq!(inspection.sizes.total, der.len());
        assert!(recipients(&der).is_ok(), "what can be inspected has recipients that can be listed");
        let _text = inspection.to_string();
    }
    SETTING.read(which / 2, Bytes::from(der));
});
