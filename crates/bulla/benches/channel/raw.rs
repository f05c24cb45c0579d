//! What the ciphers of TLS alone take for some bytes, through OpenSSL, on one thread.

use crate::common::{Result, median};
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm::{Cipher, Crypter, Mode};
use std::time::{Duration, Instant};

/// Most bytes of plaintext in a record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 1 << 14;
/// Bytes of the tag of AES-GCM.
const TAG_BYTES: usize = 16;
/// How long each is measured.
const MEASURE: Duration = Duration::from_millis(200);

/// Microseconds to encrypt so many bytes, record by record, and to decrypt them again with AES-256-GCM or AES-128-GCM.
pub(crate) fn gcm(bytes: usize, bits: usize) -> Result<f64> {
    let cipher = if bits == 256 { Cipher::aes_256_gcm() } else { Cipher::aes_128_gcm() };
    let key = vec![7; cipher.key_len()];
    let plain = vec![9u8; RECORD_BYTES];
    let (mut sealed, mut opened) = (vec![0; RECORD_BYTES + 64], vec![0; RECORD_BYTES + 64]);
    let mut tag = [0; TAG_BYTES];
    timed(|| {
        for record in plain_records(&plain, bytes) {
            let mut encrypt = Crypter::new(cipher, Mode::Encrypt, &key, Some(&[1; 12]))?;
            let count = encrypt.update(record, &mut sealed)?;
            encrypt.finalize(&mut sealed[count..])?;
            encrypt.get_tag(&mut tag)?;
            let mut decrypt = Crypter::new(cipher, Mode::Decrypt, &key, Some(&[1; 12]))?;
            let count = decrypt.update(&sealed[..count], &mut opened)?;
            decrypt.set_tag(&tag)?;
            decrypt.finalize(&mut opened[count..])?;
        }
        Ok(())
    })
}

/// The same with AES-128-CBC and HMAC-SHA256.
pub(crate) fn cbc(bytes: usize) -> Result<f64> {
    let cipher = Cipher::aes_128_cbc();
    let (key, mac_key) = ([7; 16], PKey::hmac(&[8; 32])?);
    let plain = vec![9u8; RECORD_BYTES];
    let (mut sealed, mut opened) = (vec![0; RECORD_BYTES + 64], vec![0; RECORD_BYTES + 64]);
    let mac = |record: &[u8]| -> Result<Vec<u8>> {
        let mut signer = Signer::new(MessageDigest::sha256(), &mac_key)?;
        signer.update(record)?;
        Ok(signer.sign_to_vec()?)
    };
    timed(|| {
        for record in plain_records(&plain, bytes) {
            let made = mac(record)?;
            let mut encrypt = Crypter::new(cipher, Mode::Encrypt, &key, Some(&[1; 16]))?;
            let mut count = encrypt.update(record, &mut sealed)?;
            count += encrypt.finalize(&mut sealed[count..])?;
            let mut decrypt = Crypter::new(cipher, Mode::Decrypt, &key, Some(&[1; 16]))?;
            let mut length = decrypt.update(&sealed[..count], &mut opened)?;
            length += decrypt.finalize(&mut opened[length..])?;
            if mac(&opened[..length])? != made {
                return Err("the bytes are not the same".into());
            }
        }
        Ok(())
    })
}

fn plain_records(plain: &[u8], bytes: usize) -> impl Iterator<Item = &[u8]> {
    (0..bytes).step_by(RECORD_BYTES).map(move |at| &plain[..RECORD_BYTES.min(bytes - at)])
}

/// The median in microseconds.
fn timed(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < MEASURE {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&mut times))
}
