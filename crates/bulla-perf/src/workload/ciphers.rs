//! What the ciphers of TLS alone take for some bytes, through OpenSSL, on the calling thread.

use crate::error::{Error, Result};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use openssl::symm::{Cipher, Crypter, Mode};
use std::time::{Duration, Instant};

/// Most bytes of plaintext in a record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 1 << 14;
/// What a record may grow by: a block of padding.
const GROWTH_BYTES: usize = 64;
/// Bytes of the tag of an AEAD cipher.
const TAG_BYTES: usize = 16;
/// Most times that one work is done in a measurement; their median counts.
const TIMES_MAX: usize = 100_000;

/// How a CipherSpec protects records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Records {
    /// One pass: AES-GCM, ChaCha20-Poly1305.
    Aead(&'static str),
    /// A MAC, then AES-CBC (RFC 5246, section 6.2.3.2).
    Cbc {
        /// Bits of the AES key.
        key_bits: u32,
        /// Bits of the MAC's digest.
        digest_bits: u32,
    },
}

impl Records {
    /// Those of a CipherSpec, by MQ's or IANA's name of it; none for a name that does not say.
    pub(crate) fn of(cipher_spec: &str) -> Option<Self> {
        let name = cipher_spec.to_ascii_uppercase();
        let key_bits = if name.contains("AES_256") { 256 } else { 128 };
        if name.contains("CHACHA20") {
            Some(Self::Aead("ChaCha20-Poly1305"))
        } else if name.contains("AES_256_GCM") {
            Some(Self::Aead("AES-256-GCM"))
        } else if name.contains("AES_128_GCM") {
            Some(Self::Aead("AES-128-GCM"))
        } else if name.contains("_CBC_") {
            let digest_bits = if name.ends_with("SHA384") { 384 } else { 256 };
            Some(Self::Cbc { key_bits, digest_bits })
        } else {
            None
        }
    }

    /// Microseconds to encrypt so many bytes, record by record, and to decrypt them again: the median over `time`.
    ///
    /// # Errors
    /// [`Error::Device`]: OpenSSL refuses, or what was decrypted is not what was encrypted.
    pub(crate) fn microseconds(self, bytes: usize, time: Duration) -> Result<f64> {
        match self {
            Self::Aead(name) => aead(name, bytes, time),
            Self::Cbc { key_bits, digest_bits } => cbc(key_bits, digest_bits, bytes, time),
        }
    }
}

fn aead(name: &str, bytes: usize, time: Duration) -> Result<f64> {
    let cipher = match name {
        "ChaCha20-Poly1305" => Cipher::chacha20_poly1305(),
        "AES-128-GCM" => Cipher::aes_128_gcm(),
        _ => Cipher::aes_256_gcm(),
    };
    let key = vec![7; cipher.key_len()];
    let plain = vec![9u8; RECORD_BYTES];
    let (mut sealed, mut opened) = (vec![0; RECORD_BYTES + GROWTH_BYTES], vec![0; RECORD_BYTES + GROWTH_BYTES]);
    let mut tag = [0; TAG_BYTES];
    timed(time, || {
        for record in records(&plain, bytes) {
            let mut encrypt = Crypter::new(cipher, Mode::Encrypt, &key, Some(&[1; 12]))?;
            let count = encrypt.update(record, &mut sealed)?;
            encrypt.finalize(&mut sealed[count..])?;
            encrypt.get_tag(&mut tag)?;
            let mut decrypt = Crypter::new(cipher, Mode::Decrypt, &key, Some(&[1; 12]))?;
            let count = decrypt.update(&sealed[..count], &mut opened)?;
            decrypt.set_tag(&tag)?;
            decrypt.finalize(&mut opened[count..])?;
        }
        Ok(true)
    })
}

fn cbc(key_bits: u32, digest_bits: u32, bytes: usize, time: Duration) -> Result<f64> {
    let cipher = if key_bits == 256 { Cipher::aes_256_cbc() } else { Cipher::aes_128_cbc() };
    let digest = if digest_bits == 384 { MessageDigest::sha384() } else { MessageDigest::sha256() };
    let key = vec![7; cipher.key_len()];
    let mac_key = PKey::hmac(&[8; 32]).map_err(|error| refused(&error))?;
    let plain = vec![9u8; RECORD_BYTES];
    let (mut sealed, mut opened) = (vec![0; RECORD_BYTES + GROWTH_BYTES], vec![0; RECORD_BYTES + GROWTH_BYTES]);
    timed(time, || {
        let mut same = true;
        for record in records(&plain, bytes) {
            let made = mac(digest, &mac_key, record)?;
            let mut encrypt = Crypter::new(cipher, Mode::Encrypt, &key, Some(&[1; 16]))?;
            let mut count = encrypt.update(record, &mut sealed)?;
            count += encrypt.finalize(&mut sealed[count..])?;
            let mut decrypt = Crypter::new(cipher, Mode::Decrypt, &key, Some(&[1; 16]))?;
            let mut length = decrypt.update(&sealed[..count], &mut opened)?;
            length += decrypt.finalize(&mut opened[length..])?;
            same &= mac(digest, &mac_key, &opened[..length])? == made;
        }
        Ok(same)
    })
}

fn mac(digest: MessageDigest, key: &PKey<Private>, record: &[u8]) -> std::result::Result<Vec<u8>, ErrorStack> {
    let mut signer = Signer::new(digest, key)?;
    signer.update(record)?;
    signer.sign_to_vec()
}

fn records(plain: &[u8], bytes: usize) -> impl Iterator<Item = &[u8]> {
    (0..bytes).step_by(RECORD_BYTES).map(move |at| &plain[..RECORD_BYTES.min(bytes - at)])
}

/// The median in microseconds. The work says whether it came to what it should.
fn timed(time: Duration, mut work: impl FnMut() -> std::result::Result<bool, ErrorStack>) -> Result<f64> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.is_empty() || (begun.elapsed() < time && times.len() < TIMES_MAX) {
        let start = Instant::now();
        if !work().map_err(|error| refused(&error))? {
            return Err(Error::Device("what OpenSSL decrypted is not what it had encrypted".to_owned()));
        }
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn refused(error: &ErrorStack) -> Error {
    Error::Device(format!("OpenSSL: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cipher_spec_says_how_its_records_are_protected() {
        for (name, records) in [
            ("TLS_AES_256_GCM_SHA384", Records::Aead("AES-256-GCM")),
            ("ECDHE_RSA_AES_128_GCM_SHA256", Records::Aead("AES-128-GCM")),
            ("TLS_CHACHA20_POLY1305_SHA256", Records::Aead("ChaCha20-Poly1305")),
            ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", Records::Cbc { key_bits: 128, digest_bits: 256 }),
            ("ECDHE_RSA_AES_256_CBC_SHA384", Records::Cbc { key_bits: 256, digest_bits: 384 }),
        ] {
            assert_eq!(Records::of(name), Some(records), "{name}");
        }
        assert_eq!(Records::of("ANY_TLS12"), None);
    }

    #[test]
    fn every_kind_of_record_is_encrypted_and_decrypted_again() {
        for name in ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "ECDHE_RSA_AES_256_CBC_SHA384"] {
            let microseconds = Records::of(name).unwrap().microseconds(20_000, Duration::ZERO).unwrap();
            assert!(microseconds > 0.0, "{name}: {microseconds}");
        }
    }

    #[test]
    fn bytes_are_cut_into_records_of_at_most_16_kib() {
        let plain = [0; RECORD_BYTES];
        let lengths = |bytes| records(&plain, bytes).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(RECORD_BYTES), [RECORD_BYTES]);
        assert_eq!(lengths(2 * RECORD_BYTES + 5), [RECORD_BYTES, RECORD_BYTES, 5]);
    }
}
