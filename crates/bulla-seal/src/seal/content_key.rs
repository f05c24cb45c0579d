//! Content keys: each one while it lives, and the pool of those that one handle may still use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bulla_device::Random;
use bytes::Bytes;
use openssl::cipher_ctx::CipherCtx;
use zeroize::Zeroizing;

use super::Plaintext;
use crate::cms::algorithm::{AES_BLOCK_BYTES, GCM_NONCE_BYTES, GCM_TAG_BYTES};
use crate::cms::attributes::sha256;
use crate::cms::enveloped::{EnvelopeLayout, RecipientKinds};
use crate::cms::writer::{SET, Writer};
use crate::error::SealError;
use crate::message::Sealed;
use crate::policy::{ContentCipher, KeyReuse};
use crate::symmetric;

/// Messages under one content key, whatever KEYREUSE says.
pub const CONTENT_KEY_MESSAGES_MAX: u32 = 1 << 20;
/// Payload bytes under one content key.
pub const CONTENT_KEY_BYTES_MAX: u64 = 64 << 30;
/// Age of a content key.
pub const CONTENT_KEY_AGE_MAX: Duration = Duration::from_secs(3600);
/// Content keys that one handle keeps for its next messages. There is more than one only where several
/// messages found none at the same time; beyond this many the oldest goes.
pub const POOLED_CONTENT_KEYS_MAX: usize = 64;

/// The content keys of one handle that may seal further messages. A key that seals is taken out, so that
/// no two messages ever draw on the same count or the same nonces.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Keys>>);

#[derive(Default)]
struct Keys {
    /// Which finding of recipients the keys belong to; keys of an earlier one do not come back.
    epoch: u64,
    /// The one that was used last stands last.
    live: Vec<ContentKey>,
}

impl Pool {
    /// Forgets every key, those that are out too.
    pub(super) fn renew(&self) {
        let mut keys = self.lock();
        keys.epoch += 1;
        keys.live.clear();
    }

    /// What a new key has to be born into to be taken back.
    pub(super) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Whether there is a key for one more message.
    pub(super) fn has_live(&self, now: SystemTime) -> bool {
        self.lock().live.iter().rev().any(|key| key.is_live(now, 0))
    }

    /// A key for one more message of this many bytes, the one used last if it will do: so a reader that
    /// remembers keys meets few.
    pub(super) fn take(&self, now: SystemTime, bytes: u64) -> Option<ContentKey> {
        let mut keys = self.lock();
        if let Some(at) = keys.live.iter().rposition(|key| key.is_live(now, bytes)) {
            return Some(keys.live.remove(at));
        }
        // A message that was handed in a little earlier than others does not end their keys.
        keys.live.retain(|key| !key.is_over(now));
        None
    }

    /// Keeps a key for the next message, if it has uses left and everything it was made for still holds.
    pub(super) fn give_back(&self, key: ContentKey) {
        let mut keys = self.lock();
        if key.messages_left == 0 || key.epoch != keys.epoch {
            return;
        }
        if keys.live.len() >= POOLED_CONTENT_KEYS_MAX
            && let Some((oldest, _)) = keys.live.iter().enumerate().min_by_key(|(_, key)| key.born)
        {
            keys.live.remove(oldest);
        }
        keys.live.push(key);
    }

    /// A thread that panicked held the lock to move keys only: what it guards is still whole.
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What decides how often a content key may be used.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) cipher: ContentCipher,
    pub(super) reuse: KeyReuse,
    /// What kinds of recipients there are: the version of `EnvelopedData` tells.
    pub(super) kinds: RecipientKinds,
    pub(super) born: SystemTime,
    pub(super) epoch: u64,
}

/// A content key while it lives. The key schedule is in the context, where OpenSSL wipes it at the end,
/// so the key itself is not kept.
pub(super) struct ContentKey {
    cipher: ContentCipher,
    context: CipherCtx,
    recipients: Vec<u8>,
    names: Arc<[Bytes]>,
    recipients_digest: [u8; 32],
    kinds: RecipientKinds,
    born: SystemTime,
    epoch: u64,
    /// Messages that it may still seal.
    messages_left: u32,
    bytes_left: u64,
    /// Given out with each nonce, never twice.
    counter: u32,
}

impl ContentKey {
    /// From a key that was wrapped for everyone in `recipients`. Its first message brings its own
    /// [`Iv::first`].
    pub(super) fn new(
        key: &[u8],
        recipients: Vec<u8>,
        names: Arc<[Bytes]>,
        terms: Terms,
    ) -> Result<ContentKey, SealError> {
        let messages_left = match terms.reuse {
            KeyReuse::Never => 1,
            KeyReuse::Count(count) => count.saturating_add(1).min(CONTENT_KEY_MESSAGES_MAX),
            KeyReuse::Unlimited => CONTENT_KEY_MESSAGES_MAX,
        };
        Ok(ContentKey {
            cipher: terms.cipher,
            context: symmetric::encryptor(terms.cipher, key)?,
            recipients_digest: sha256(&recipients),
            recipients,
            names,
            kinds: terms.kinds,
            born: terms.born,
            epoch: terms.epoch,
            messages_left,
            bytes_left: CONTENT_KEY_BYTES_MAX,
            counter: 1,
        })
    }

    /// SHA-256 of the recipient infos.
    pub(super) fn recipients_digest(&self) -> &[u8; 32] {
        &self.recipients_digest
    }

    /// Whether one more message of this many bytes may use it.
    fn is_live(&self, now: SystemTime, bytes: u64) -> bool {
        let young = now.duration_since(self.born).is_ok_and(|age| age < CONTENT_KEY_AGE_MAX);
        young && self.messages_left > 0 && bytes <= self.bytes_left
    }

    /// Whether no message will use it any more.
    fn is_over(&self, now: SystemTime) -> bool {
        self.messages_left == 0
            || self.bytes_left == 0
            || now.duration_since(self.born).is_ok_and(|age| age >= CONTENT_KEY_AGE_MAX)
    }

    /// Counts a message.
    pub(super) fn count(&mut self, bytes: u64) {
        self.messages_left = self.messages_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    /// For the next message under this key.
    pub(super) fn next_iv(&mut self, rng: &mut dyn Random) -> Result<Iv, SealError> {
        let iv = Iv::new(self.cipher, self.counter, rng)?;
        // At most 2^20 messages use one key: this does not wrap.
        self.counter = self.counter.saturating_add(1);
        Ok(iv)
    }

    /// The sealed message: one buffer, encrypted where it is written.
    pub(super) fn envelope(
        &mut self,
        iv: &Iv,
        attributes: &[u8],
        plaintext: &impl Plaintext,
    ) -> Result<Sealed, SealError> {
        let layout = EnvelopeLayout {
            cipher: self.cipher,
            recipients: &self.recipients,
            kinds: self.kinds,
            attributes_len: attributes.len(),
            plaintext_len: plaintext.len(),
        };
        // CBC's last block is written with a block to spare.
        let mut out = Writer::with_capacity(layout.len() + 2 * AES_BLOCK_BYTES);
        let context = &mut self.context;
        if self.cipher.is_authenticated() {
            let mut header = Writer::with_capacity(8);
            // Absent attributes are no associated data, not even an empty set (RFC 5083, 2.2).
            if !attributes.is_empty() {
                header.header(SET, attributes.len());
            }
            layout.write(&mut out, iv.as_slice(), attributes, |out| {
                let associated = [header.as_slice(), attributes];
                let start = out.len();
                plaintext.write(out);
                symmetric::gcm_encrypt(context, iv.as_slice(), &associated, out.as_mut(), start)
            })?;
            let recipients = Some(self.names.clone());
            Ok(Sealed { der: Bytes::from(out.finish()), smime_type: "authEnveloped-data", recipients })
        } else {
            layout.write(&mut out, iv.as_slice(), attributes, |out| {
                let mut whole = Writer::with_capacity(plaintext.len());
                plaintext.write(&mut whole);
                let whole = Zeroizing::new(whole.finish());
                symmetric::cbc_encrypt(context, iv.as_slice(), &whole, out.as_mut())?;
                Ok::<_, openssl::error::ErrorStack>([0; GCM_TAG_BYTES])
            })?;
            let recipients = Some(self.names.clone());
            Ok(Sealed { der: Bytes::from(out.finish()), smime_type: "enveloped-data", recipients })
        }
    }
}

/// A nonce or initialisation vector.
pub(super) struct Iv {
    bytes: [u8; AES_BLOCK_BYTES],
    len: usize,
}

impl Iv {
    /// For the message that a new key is made for: drawn before the key has been wrapped, and used once.
    pub(super) fn first(cipher: ContentCipher, rng: &mut dyn Random) -> Result<Iv, SealError> {
        Iv::new(cipher, 0, rng)
    }

    /// GCM: 64 random bits and a counter that is never given out twice, so that nonces differ even
    /// after a snapshot of this machine was resumed twice. CBC: a random block.
    fn new(cipher: ContentCipher, counter: u32, rng: &mut dyn Random) -> Result<Iv, SealError> {
        let mut iv = Iv { bytes: [0; AES_BLOCK_BYTES], len: AES_BLOCK_BYTES };
        if !cipher.is_authenticated() {
            rng.fill(&mut iv.bytes)?;
            return Ok(iv);
        }
        let [random @ .., _, _, _, _, _, _, _, _] = &mut iv.bytes;
        rng.fill(random)?;
        let [_, _, _, _, _, _, _, _, place @ .., _, _, _, _] = &mut iv.bytes;
        place.copy_from_slice(&counter.to_be_bytes());
        iv.len = GCM_NONCE_BYTES;
        Ok(iv)
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
