//! Content encryption and key wrap, by OpenSSL. A context keeps its key schedule, so that a reused key
//! costs one initialisation vector and no set-up.

use std::sync::LazyLock;

use openssl::cipher::{Cipher, CipherRef};
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use openssl::md::Md;
use openssl::pkey::Id;
use openssl::pkey_ctx::{HkdfMode, PkeyCtx};
use zeroize::{Zeroize, Zeroizing};

use crate::cms::algorithm::{AES_BLOCK_BYTES, GCM_TAG_BYTES};
use crate::policy::ContentCipher;

/// The longest content sealed or opened, in bytes; OpenSSL counts in `int`.
pub const CONTENT_BYTES_MAX: usize = 1 << 30;
/// Bytes that a wrapped key is longer than the key (RFC 3394).
pub(crate) const WRAP_OVERHEAD_BYTES: usize = 8;

/// A context that encrypts with this key.
pub(crate) fn encryptor(cipher: ContentCipher, key: &[u8]) -> Result<CipherCtx, ErrorStack> {
    let mut context = CipherCtx::new()?;
    context.encrypt_init(Some(algorithm(cipher)), Some(key), None)?;
    Ok(context)
}

/// A context that decrypts with this key.
pub(crate) fn decryptor(cipher: ContentCipher, key: &[u8]) -> Result<CipherCtx, ErrorStack> {
    let mut context = CipherCtx::new()?;
    context.decrypt_init(Some(algorithm(cipher)), Some(key), None)?;
    Ok(context)
}

/// A context that decrypts one message: both at once cost less than one after the other.
pub(crate) fn decryptor_of_one(cipher: ContentCipher, key: &[u8], iv: &[u8]) -> Result<CipherCtx, ErrorStack> {
    let mut context = CipherCtx::new()?;
    context.decrypt_init(Some(algorithm(cipher)), Some(key), Some(iv))?;
    Ok(context)
}

/// Sets what is the message's own on a context that has its key.
pub(crate) fn begin_decrypting(context: &mut CipherCtx, iv: &[u8]) -> Result<(), ErrorStack> {
    context.decrypt_init(None, None, Some(iv))
}

/// The ciphers of the profile, fetched once: OpenSSL otherwise looks each one up by name for each new key.
struct Fetched {
    gcm: [Option<Cipher>; 2],
    cbc: [Option<Cipher>; 2],
    block: [Option<Cipher>; 2],
}

static FETCHED: LazyLock<Fetched> = LazyLock::new(|| {
    let fetch = |name| Cipher::fetch(None, name, None).ok();
    Fetched {
        gcm: [fetch("AES-128-GCM"), fetch("AES-256-GCM")],
        cbc: [fetch("AES-128-CBC"), fetch("AES-256-CBC")],
        block: [fetch("AES-128-ECB"), fetch("AES-256-ECB")],
    }
});

/// The fetched cipher; where fetching failed, the one that is fetched at each use, which says why.
fn algorithm(cipher: ContentCipher) -> &'static CipherRef {
    let (fetched, fallback) = match cipher {
        ContentCipher::Aes128Gcm => (&FETCHED.gcm[0], Cipher::aes_128_gcm()),
        ContentCipher::Aes256Gcm => (&FETCHED.gcm[1], Cipher::aes_256_gcm()),
        ContentCipher::Aes128Cbc => (&FETCHED.cbc[0], Cipher::aes_128_cbc()),
        ContentCipher::Aes256Cbc => (&FETCHED.cbc[1], Cipher::aes_256_cbc()),
    };
    fetched.as_deref().unwrap_or(fallback)
}

/// Encrypts everything from `start` on where it stands, and returns the tag. The parts of `associated`
/// count as one. After an error nothing of the plaintext is left.
pub(crate) fn gcm_encrypt(
    context: &mut CipherCtx,
    nonce: &[u8],
    associated: &[&[u8]],
    out: &mut Vec<u8>,
    start: usize,
) -> Result<[u8; GCM_TAG_BYTES], ErrorStack> {
    let data = out.get_mut(start..).unwrap_or_default();
    let len = data.len();
    let mut encrypt = || {
        context.encrypt_init(None, None, Some(nonce))?;
        authenticate(context, associated)?;
        if len > 0 {
            context.cipher_update_inplace(data, len)?;
        }
        context.cipher_final(&mut [])?;
        let mut tag = [0; GCM_TAG_BYTES];
        context.tag(&mut tag)?;
        Ok(tag)
    };
    let result = encrypt();
    if result.is_err() {
        out.zeroize();
    }
    result
}

/// Bytes of associated data that are joined before the library sees them: a call costs more than a copy.
const JOINED_BYTES_MAX: usize = 512;

/// Takes in the parts of the associated data, which count as one.
fn authenticate(context: &mut CipherCtx, parts: &[&[u8]]) -> Result<(), ErrorStack> {
    let mut room = [0; JOINED_BYTES_MAX];
    let mut end = 0;
    for part in parts {
        match room.get_mut(end..end + part.len()) {
            Some(joined) => joined.copy_from_slice(part),
            None => return parts.iter().try_for_each(|part| context.cipher_update(part, None).map(drop)),
        }
        end += part.len();
    }
    match room.get(..end) {
        Some(joined) if end > 0 => context.cipher_update(joined, None).map(drop),
        _ => Ok(()),
    }
}

/// The plaintext, or `None` when the tag does not fit; nothing of it is left then. The context has its key and nonce.
pub(crate) fn gcm_decrypt(
    context: &mut CipherCtx,
    associated: &[&[u8]],
    ciphertext: &[u8],
    tag: &[u8],
) -> Result<Option<Vec<u8>>, ErrorStack> {
    context.set_tag(tag)?;
    authenticate(context, associated)?;
    let mut plaintext = Vec::new();
    if !ciphertext.is_empty() {
        context.cipher_update_vec(ciphertext, &mut plaintext)?;
    }
    if context.cipher_final(&mut []).is_err() {
        plaintext.zeroize();
        return Ok(None);
    }
    Ok(Some(plaintext))
}

/// Appends the ciphertext, PKCS#7 padding included.
pub(crate) fn cbc_encrypt(
    context: &mut CipherCtx,
    iv: &[u8],
    plaintext: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ErrorStack> {
    context.encrypt_init(None, None, Some(iv))?;
    if !plaintext.is_empty() {
        context.cipher_update_vec(plaintext, out)?;
    }
    context.cipher_final_vec(out)?;
    Ok(())
}

/// The plaintext, or `None` when the padding is wrong. The context has its key and initialisation vector.
pub(crate) fn cbc_decrypt(context: &mut CipherCtx, ciphertext: &[u8]) -> Result<Option<Vec<u8>>, ErrorStack> {
    if ciphertext.is_empty() || !ciphertext.len().is_multiple_of(AES_BLOCK_BYTES) {
        return Ok(None);
    }
    // The padding is looked at here: the library answers a bad one with an error, which takes longer than a good one.
    context.set_padding(false);
    let mut plaintext = Vec::with_capacity(ciphertext.len() + 2 * AES_BLOCK_BYTES);
    context.cipher_update_vec(ciphertext, &mut plaintext)?;
    context.cipher_final_vec(&mut plaintext)?;
    match padding_len(&plaintext) {
        Some(padding) => {
            plaintext.truncate(plaintext.len().saturating_sub(padding));
            Ok(Some(plaintext))
        }
        None => Ok(None),
    }
}

/// The length of a PKCS#7 padding, if it is one. The same work for every last block.
fn padding_len(plaintext: &[u8]) -> Option<usize> {
    let last: &[u8; AES_BLOCK_BYTES] = plaintext.last_chunk()?;
    let padding = last[AES_BLOCK_BYTES - 1];
    let mut wrong = u8::from(padding == 0) | u8::from(usize::from(padding) > AES_BLOCK_BYTES);
    for (from_end, byte) in last.iter().rev().enumerate() {
        let inside = u8::from(from_end < usize::from(padding));
        wrong |= inside.wrapping_neg() & (byte ^ padding);
    }
    (wrong == 0).then_some(usize::from(padding))
}

/// Half a block of AES: keys are wrapped in pieces of this length.
const PIECE_BYTES: usize = 8;
/// What stands in front of a key while it is wrapped (RFC 3394, 2.2.3.1).
const WRAP_CHECK: [u8; PIECE_BYTES] = [0xa6; PIECE_BYTES];
/// How many times each piece is encrypted.
const WRAP_ROUNDS: u64 = 6;

/// AES one block at a time, for key wrap. OpenSSL's own cipher for key wrap does not use the processor's AES
/// instructions: it takes several times as long, and looks things up in tables by bytes that depend on the key.
struct BlockCipher {
    context: CipherCtx,
    /// The block in front; the library asks for room for one more.
    block: Zeroizing<[u8; 2 * AES_BLOCK_BYTES]>,
}

impl BlockCipher {
    fn encryptor(key: &[u8]) -> Result<BlockCipher, ErrorStack> {
        let mut context = CipherCtx::new()?;
        context.encrypt_init(Some(block_algorithm(key)), Some(key), None)?;
        Ok(BlockCipher { context, block: Zeroizing::default() })
    }

    fn decryptor(key: &[u8]) -> Result<BlockCipher, ErrorStack> {
        let mut context = CipherCtx::new()?;
        context.decrypt_init(Some(block_algorithm(key)), Some(key), None)?;
        // Otherwise it keeps each block back until it has seen the next one.
        context.set_padding(false);
        Ok(BlockCipher { context, block: Zeroizing::default() })
    }

    /// Encrypts or decrypts the block that `front` and `piece` make.
    fn turn(&mut self, front: &mut u64, piece: &mut [u8; PIECE_BYTES]) -> Result<(), ErrorStack> {
        self.block[..PIECE_BYTES].copy_from_slice(&front.to_be_bytes());
        self.block[PIECE_BYTES..AES_BLOCK_BYTES].copy_from_slice(piece);
        self.context.cipher_update_inplace(&mut *self.block, AES_BLOCK_BYTES)?;
        *front = u64::from_be_bytes(self.block.first_chunk().copied().unwrap_or_default());
        piece.copy_from_slice(&self.block[PIECE_BYTES..AES_BLOCK_BYTES]);
        Ok(())
    }
}

/// AES key wrap (RFC 3394) of a key of whole pieces, as all content keys are.
pub(crate) fn wrap_key(wrapping: &[u8], key: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let mut cipher = BlockCipher::encryptor(wrapping)?;
    let mut wrapped = Zeroizing::new([&WRAP_CHECK, key].concat());
    let (check, pieces) = wrapped.split_at_mut(PIECE_BYTES);
    let (pieces, []) = pieces.as_chunks_mut::<PIECE_BYTES>() else { return Err(ErrorStack::get()) };
    let (mut front, mut step) = (u64::from_be_bytes(WRAP_CHECK), 0_u64);
    for _ in 0..WRAP_ROUNDS {
        for piece in pieces.iter_mut() {
            cipher.turn(&mut front, piece)?;
            step += 1;
            front ^= step;
        }
    }
    check.copy_from_slice(&front.to_be_bytes());
    Ok(std::mem::take(&mut *wrapped))
}

/// The key, or `None` when it was not wrapped with `wrapping`.
pub(crate) fn unwrap_key(wrapping: &[u8], wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (front, pieces) = wrapped.split_first_chunk::<PIECE_BYTES>()?;
    let mut key = Zeroizing::new(pieces.to_vec());
    let (pieces, []) = key.as_chunks_mut::<PIECE_BYTES>() else { return None };
    // One piece alone is not wrapped by this way (RFC 3394, 2).
    let mut step = WRAP_ROUNDS * u64::try_from(pieces.len()).ok().filter(|count| *count > 1)?;
    let mut cipher = BlockCipher::decryptor(wrapping).ok()?;
    let mut front = u64::from_be_bytes(*front);
    for _ in 0..WRAP_ROUNDS {
        for piece in pieces.iter_mut().rev() {
            front ^= step;
            step -= 1;
            cipher.turn(&mut front, piece).ok()?;
        }
    }
    (front == u64::from_be_bytes(WRAP_CHECK)).then_some(key)
}

/// HKDF with SHA-256 and no salt (RFC 5869).
pub(crate) fn hkdf_sha256(secret: &[u8], info: &[u8], len: usize) -> Result<Zeroizing<Vec<u8>>, ErrorStack> {
    let mut context = PkeyCtx::new_id(Id::HKDF)?;
    context.derive_init()?;
    context.set_hkdf_mode(HkdfMode::EXTRACT_THEN_EXPAND)?;
    context.set_hkdf_md(Md::sha256())?;
    context.set_hkdf_key(secret)?;
    context.add_hkdf_info(info)?;
    let mut key = Zeroizing::new(vec![0; len]);
    context.derive(Some(&mut key))?;
    Ok(key)
}

fn block_algorithm(key: &[u8]) -> &'static CipherRef {
    let (fetched, fallback) = match key.len() {
        16 => (&FETCHED.block[0], Cipher::aes_128_ecb()),
        _ => (&FETCHED.block[1], Cipher::aes_256_ecb()),
    };
    fetched.as_deref().unwrap_or(fallback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_gives_back_what_it_took() {
        for cipher in ContentCipher::ALL.iter().copied() {
            let key = vec![7; cipher.key_len()];
            for len in [0, 1, 15, 16, 17, 4096] {
                let plaintext = vec![3; len];
                let (mut seal, mut open) = (encryptor(cipher, &key).unwrap(), decryptor(cipher, &key).unwrap());
                let mut out = b"before".to_vec();
                // Twice, because a context is used again.
                for round in 0..2 {
                    out.truncate(6);
                    let back = if cipher.is_authenticated() {
                        let nonce = [round; 12];
                        out.extend_from_slice(&plaintext);
                        let tag = gcm_encrypt(&mut seal, &nonce, &[b"a", b"b"], &mut out, 6).unwrap();
                        assert_eq!(out[..6], *b"before");
                        begin_decrypting(&mut open, &nonce).unwrap();
                        let mut once = decryptor_of_one(cipher, &key, &nonce).unwrap();
                        let opened = gcm_decrypt(&mut once, &[b"ab"], &out[6..], &tag).unwrap();
                        assert_eq!(opened.as_deref(), Some(&*plaintext), "{cipher} {len}");
                        gcm_decrypt(&mut open, &[b"ab"], &out[6..], &tag).unwrap()
                    } else {
                        cbc_encrypt(&mut seal, &[round; 16], &plaintext, &mut out).unwrap();
                        begin_decrypting(&mut open, &[round; 16]).unwrap();
                        let mut once = decryptor_of_one(cipher, &key, &[round; 16]).unwrap();
                        let opened = cbc_decrypt(&mut once, &out[6..]).unwrap();
                        assert_eq!(opened.as_deref(), Some(&*plaintext), "{cipher} {len}");
                        cbc_decrypt(&mut open, &out[6..]).unwrap()
                    };
                    assert_eq!(back.as_deref(), Some(&*plaintext), "{cipher} {len}");
                }
            }
        }
    }

    #[test]
    fn a_padding_is_one_to_sixteen_bytes_of_its_length() {
        for len in 1..=16_u8 {
            let mut block = [0xa5; AES_BLOCK_BYTES];
            block[AES_BLOCK_BYTES - usize::from(len)..].fill(len);
            assert_eq!(padding_len(&block), Some(usize::from(len)));
            for at in AES_BLOCK_BYTES - usize::from(len)..AES_BLOCK_BYTES - 1 {
                let mut bent = block;
                bent[at] ^= 1;
                assert_eq!(padding_len(&bent), None, "{len} {at}");
            }
        }
        for bad in [0, 17, 32, 255] {
            assert_eq!(padding_len(&[bad; AES_BLOCK_BYTES]), None);
        }
        assert_eq!(padding_len(&[1; 15]), None);
    }

    #[test]
    fn a_wrong_tag_gives_nothing() {
        let key = [7; 32];
        let mut seal = encryptor(ContentCipher::Aes256Gcm, &key).unwrap();
        let mut open = decryptor(ContentCipher::Aes256Gcm, &key).unwrap();
        let mut out = b"content".to_vec();
        let mut tag = gcm_encrypt(&mut seal, &[0; 12], &[], &mut out, 0).unwrap();
        assert_ne!(out, b"content");
        tag[0] ^= 1;
        begin_decrypting(&mut open, &[0; 12]).unwrap();
        assert_eq!(gcm_decrypt(&mut open, &[], &out, &tag).unwrap(), None);
    }

    #[test]
    fn the_parts_of_associated_data_count_as_one_whatever_their_lengths() {
        let (cipher, key, nonce) = (ContentCipher::Aes256Gcm, [7; 32], [1; 12]);
        let whole: Vec<u8> = (0..2 * JOINED_BYTES_MAX).map(|byte| byte as u8).collect();
        for len in [0, 1, 16, JOINED_BYTES_MAX - 1, JOINED_BYTES_MAX, JOINED_BYTES_MAX + 1, whole.len()] {
            let tag = |parts: &[&[u8]]| {
                let mut out = b"content".to_vec();
                gcm_encrypt(&mut encryptor(cipher, &key).unwrap(), &nonce, parts, &mut out, 0).unwrap()
            };
            let whole = &whole[..len];
            let mut expected = encryptor(cipher, &key).unwrap();
            expected.encrypt_init(None, None, Some(&nonce)).unwrap();
            expected.cipher_update(whole, None).unwrap();
            expected.cipher_update_vec(b"content", &mut Vec::new()).unwrap();
            expected.cipher_final(&mut []).unwrap();
            let mut expected_tag = [0; GCM_TAG_BYTES];
            expected.tag(&mut expected_tag).unwrap();
            for at in [0, 1, len / 2, len] {
                let (first, second) = whole.split_at(at.min(len));
                assert_eq!(tag(&[first, second]), expected_tag, "{len} {at}");
            }
        }
    }

    #[test]
    fn a_wrapped_key_opens_with_its_wrapping_key_only() {
        for len in [16, 32] {
            let wrapped = wrap_key(&vec![1; len], &vec![9; len]).unwrap();
            assert_eq!(wrapped.len(), len + WRAP_OVERHEAD_BYTES);
            assert_eq!(unwrap_key(&vec![1; len], &wrapped).unwrap().as_slice(), &vec![9; len]);
            assert!(unwrap_key(&vec![2; len], &wrapped).is_none());
            assert!(unwrap_key(&vec![2; len], &[0; 7]).is_none());
        }
    }

    #[test]
    fn keys_are_wrapped_as_rfc_3394_has_it() {
        let wrapping: Vec<u8> = (0..32).collect();
        let key = [
            0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00, 0x01,
            0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
        ];
        // Sections 4.1, 4.3 and 4.6.
        for (wrapping_len, key_len, expected) in [
            (16, 16, "1fa68b0a8112b447aef34bd8fb5a7b829d3e862371d2cfe5"),
            (32, 16, "64e8c3f9ce0f5ba263e9777905818a2a93c8191e7d6e8ae7"),
            (32, 32, "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21"),
        ] {
            let wrapped = wrap_key(&wrapping[..wrapping_len], &key[..key_len]).unwrap();
            let text: String = wrapped.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(text, expected);
            assert_eq!(unwrap_key(&wrapping[..wrapping_len], &wrapped).unwrap().as_slice(), &key[..key_len]);
        }
    }

    /// RFC 5869, appendix A.3: without salt and info.
    #[test]
    fn hkdf_is_as_rfc_5869_has_it() {
        let key = hkdf_sha256(&[0x0b; 22], &[], 42).unwrap();
        let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
    }

    #[test]
    fn openssl_unwraps_what_is_wrapped_here_and_the_reverse() {
        let mut seed = 1_u8;
        let mut next = || {
            seed = seed.wrapping_mul(5).wrapping_add(3);
            seed
        };
        for len in [16, 32] {
            let algorithm = if len == 16 { Cipher::aes_128_wrap() } else { Cipher::aes_256_wrap() };
            for _ in 0..20 {
                let wrapping: Vec<u8> = (0..len).map(|_| next()).collect();
                let key: Vec<u8> = (0..len).map(|_| next()).collect();
                let library = |decrypt: bool, input: &[u8]| {
                    let mut context = CipherCtx::new().unwrap();
                    context.set_flags(openssl::cipher_ctx::CipherCtxFlags::FLAG_WRAP_ALLOW);
                    if decrypt {
                        context.decrypt_init(Some(algorithm), Some(&wrapping), None).unwrap();
                    } else {
                        context.encrypt_init(Some(algorithm), Some(&wrapping), None).unwrap();
                    }
                    let mut out = Vec::new();
                    context.cipher_update_vec(input, &mut out).unwrap();
                    out
                };
                let wrapped = wrap_key(&wrapping, &key).unwrap();
                assert_eq!(wrapped, library(false, &key));
                assert_eq!(library(true, &wrapped), key);
                assert_eq!(unwrap_key(&wrapping, &wrapped).unwrap().as_slice(), key);
            }
        }
    }

    #[test]
    fn a_wrapped_key_that_was_changed_anywhere_or_has_another_length_is_none() {
        let wrapped = wrap_key(&[1; 32], &[9; 32]).unwrap();
        for at in 0..wrapped.len() {
            let mut bent = wrapped.clone();
            bent[at] ^= 0x10;
            assert!(unwrap_key(&[1; 32], &bent).is_none(), "{at}");
        }
        for len in 0..wrapped.len() {
            assert!(unwrap_key(&[1; 32], &wrapped[..len]).is_none(), "{len}");
        }
        assert!(wrap_key(&[1; 32], &[9; 31]).is_err());
    }
}
