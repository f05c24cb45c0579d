//! What goes between this process and the helper that has loaded a PKCS#11 module.
//!
//! Each engine has a stream socket of its own; a request is answered before the next one is sent. A frame
//! is a length (4 bytes, little-endian, of what follows), a tag and the fields of that tag in order: a number
//! is one byte, or 4 little-endian ones; a key's id 32 bytes; text and bytes stand behind their length, 2 bytes
//! little-endian, and a message that is signed whole behind 4. Bytes behind the last field, and a length beyond
//! [`FRAME_BYTES_MAX`], are an error. Both sides are one build of one program, so there is no version; neither trusts
//! the other's bytes.

use std::fmt;
use std::io::{self, Read, Write};

use zeroize::Zeroizing;

use super::uri::TokenIdentity;
use crate::digest::Digest;
use crate::key::Curve;
use crate::ml_dsa::MlDsa;
use crate::ml_kem::MlKem;
use crate::work::{RsaPadding, RsaScheme};

/// The longest message that is signed whole, in bytes: a revocation list of ten thousand entries has half of it.
pub const SIGNED_BYTES_MAX: usize = 1 << 20;
/// The longest frame, its length field not counted, in bytes.
pub const FRAME_BYTES_MAX: usize = SIGNED_BYTES_MAX + FIELDS_BYTES_MAX;
/// What all fields of a frame have together, a message that is signed whole not counted.
const FIELDS_BYTES_MAX: usize = 16 << 10;
/// The longest text of an error that is passed on, in bytes; the rest is cut off.
pub const WHY_BYTES_MAX: usize = 512;

/// SHA-256 of a key's `SubjectPublicKeyInfo`.
pub type KeyId = [u8; 32];

/// What the helper is asked to do.
#[derive(Clone, PartialEq, Eq)]
pub enum Request {
    /// Load the module, find the token, open a session and log in. Answer: [`Response::Opened`].
    Open {
        /// Path of the module.
        module: Vec<u8>,
        /// Which token, as a PKCS#11 URI.
        token: String,
        /// Without it there is no login.
        pin: Option<Zeroizing<Vec<u8>>>,
    },
    /// Find a private key. Answer: [`Response::Done`].
    Load {
        /// Its number from now on.
        key: KeyId,
        /// Which it is, as a PKCS#11 URI.
        uri: String,
        /// `SubjectPublicKeyInfo` of its public half.
        public: Vec<u8>,
    },
    /// An RSA signature over a hash. Answer: [`Response::Bytes`].
    RsaSign {
        /// The key.
        key: KeyId,
        /// The padding.
        scheme: RsaScheme,
        /// The digest that made the hash.
        digest: Digest,
        /// The hash.
        hash: Vec<u8>,
    },
    /// An ECDSA signature over a hash. Answer: [`Response::Bytes`], *r* and *s* of one length.
    EcdsaSign {
        /// The key.
        key: KeyId,
        /// The hash.
        hash: Vec<u8>,
    },
    /// An RSA decryption. Answer: [`Response::Raw`], [`Response::Bytes`] or [`Response::NotDecrypted`].
    RsaUnwrap {
        /// The key.
        key: KeyId,
        /// The padding.
        padding: RsaPadding,
        /// As long as the modulus, and smaller.
        wrapped: Vec<u8>,
    },
    /// The X coordinate of the product with a point. Answer: [`Response::Bytes`].
    EcdhDerive {
        /// The key.
        key: KeyId,
        /// A point of the key's curve, uncompressed.
        peer: Vec<u8>,
    },
    /// An ML-DSA signature over a whole message, with an empty context. Answer: [`Response::Bytes`].
    MlDsaSign {
        /// The key.
        key: KeyId,
        /// What is signed, [`SIGNED_BYTES_MAX`] at most.
        message: Vec<u8>,
    },
    /// The secret in an ML-KEM ciphertext. Answer: [`Response::Bytes`] or [`Response::NotDecrypted`].
    MlKemDecapsulate {
        /// The key.
        key: KeyId,
        /// As long as the parameter set's ciphertexts are.
        ciphertext: Vec<u8>,
    },
    /// Make a key pair that stays. Answer: [`Response::Bytes`], its `SubjectPublicKeyInfo`.
    Generate {
        /// What to make.
        kind: NewKey,
        /// `CKA_LABEL`.
        label: String,
        /// `CKA_ID`.
        id: Vec<u8>,
    },
}

/// A kind and size of key that a token can be asked to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NewKey {
    /// RSA with so many bits and e = 65537.
    Rsa(u32),
    /// A NIST curve.
    Ec(Curve),
    /// ML-DSA, which signs.
    MlDsa(MlDsa),
    /// ML-KEM, which gives secrets to its owner.
    MlKem(MlKem),
}

/// What the helper answers.
#[derive(Clone, PartialEq, Eq)]
pub enum Response {
    /// The session stands.
    Opened(TokenIdentity),
    /// Done, and nothing to give.
    Done,
    /// A signature, a secret or a public key.
    Bytes(Zeroizing<Vec<u8>>),
    /// The raw result of RSA, as long as the modulus: its padding is still on.
    Raw(Zeroizing<Vec<u8>>),
    /// The token, which is well, can't take the padding off this one, or refuses this ciphertext.
    NotDecrypted,
    /// [`Request::Load`] comes first.
    UnknownKey,
    /// It failed.
    Failed {
        /// What sort of failure.
        cause: Cause,
        /// One lower-case line.
        why: String,
    },
}

/// The sorts of failures that call for different conduct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The token or the module is not usable: the whole helper starts anew later.
    Gone,
    /// The PIN was refused: it is not tried again as it is.
    Pin,
    /// This one request failed.
    Refused,
    /// A request that can't be: the other side's mistake.
    Protocol,
}

/// A frame that can't be read, or a stream that ended.
#[derive(Debug)]
pub enum FrameError {
    /// The other side has gone, or did not answer in time.
    Io(io::Error),
    /// The bytes are no frame.
    Malformed,
}

impl std::error::Error for FrameError {}

impl fmt::Display for FrameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Io(error) => write!(out, "the helper process: {error}"),
            FrameError::Malformed => out.write_str("the helper process sent something unreadable"),
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        FrameError::Io(error)
    }
}

/// Writes a whole frame in one call.
///
/// # Errors
/// As the stream; [`FrameError::Malformed`] for one that is too long.
pub fn write_frame(to: &mut impl Write, body: &[u8]) -> Result<(), FrameError> {
    if body.len() > FRAME_BYTES_MAX {
        return Err(FrameError::Malformed);
    }
    let len = u32::try_from(body.len()).map_err(|_| FrameError::Malformed)?;
    let mut frame = Zeroizing::new(Vec::with_capacity(body.len() + 4));
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(body);
    to.write_all(&frame)?;
    Ok(())
}

/// Reads a whole frame.
///
/// # Errors
/// As the stream, its end included; [`FrameError::Malformed`] for a length that can't be.
pub fn read_frame(from: &mut impl Read) -> Result<Zeroizing<Vec<u8>>, FrameError> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = usize::try_from(u32::from_le_bytes(len)).map_err(|_| FrameError::Malformed)?;
    if len > FRAME_BYTES_MAX {
        return Err(FrameError::Malformed);
    }
    let mut body = Zeroizing::new(vec![0; len]);
    from.read_exact(&mut body)?;
    Ok(body)
}

impl Request {
    /// The frame's body. Zeroized, because a PIN may be in it.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = match self {
            Request::MlDsaSign { message, .. } => Fields::new(FIELDS_BYTES_MAX + message.len()),
            _ => Fields::new(FIELDS_BYTES_MAX),
        };
        match self {
            Request::Open { module, token, pin } => {
                out.byte(1).bytes(module).bytes(token.as_bytes()).byte(u8::from(pin.is_some()));
                if let Some(pin) = pin {
                    out.bytes(pin);
                }
            }
            Request::Load { key, uri, public } => {
                out.byte(2).id(key).bytes(uri.as_bytes()).bytes(public);
            }
            Request::RsaSign { key, scheme, digest, hash } => {
                out.byte(3).id(key).byte(scheme_byte(*scheme)).byte(digest_byte(*digest)).bytes(hash);
            }
            Request::EcdsaSign { key, hash } => {
                out.byte(4).id(key).bytes(hash);
            }
            Request::RsaUnwrap { key, padding, wrapped } => {
                out.byte(5).id(key).byte(padding_byte(*padding)).bytes(wrapped);
            }
            Request::EcdhDerive { key, peer } => {
                out.byte(6).id(key).bytes(peer);
            }
            Request::Generate { kind, label, id } => {
                let (family, size) = match kind {
                    NewKey::Rsa(bits) => (1, *bits),
                    NewKey::Ec(curve) => (2, curve.bits()),
                    NewKey::MlDsa(set) => (3, set.number()),
                    NewKey::MlKem(set) => (4, set.number()),
                };
                out.byte(7).byte(family).number(size).bytes(label.as_bytes()).bytes(id);
            }
            Request::MlDsaSign { key, message } => {
                out.byte(8).id(key).long(message);
            }
            Request::MlKemDecapsulate { key, ciphertext } => {
                out.byte(9).id(key).bytes(ciphertext);
            }
        }
        out.0
    }

    /// Reads a frame's body.
    ///
    /// # Errors
    /// [`FrameError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Request, FrameError> {
        let mut from = Reader(body);
        let request = match from.byte()? {
            1 => {
                let (module, token) = (from.bytes()?.to_vec(), from.text()?);
                let pin = match from.byte()? {
                    0 => None,
                    1 => Some(Zeroizing::new(from.bytes()?.to_vec())),
                    _ => return Err(FrameError::Malformed),
                };
                Request::Open { module, token, pin }
            }
            2 => Request::Load { key: from.id()?, uri: from.text()?, public: from.bytes()?.to_vec() },
            3 => Request::RsaSign {
                key: from.id()?,
                scheme: match from.byte()? {
                    1 => RsaScheme::Pkcs1,
                    2 => RsaScheme::Pss,
                    _ => return Err(FrameError::Malformed),
                },
                digest: from.digest()?,
                hash: from.bytes()?.to_vec(),
            },
            4 => Request::EcdsaSign { key: from.id()?, hash: from.bytes()?.to_vec() },
            5 => Request::RsaUnwrap {
                key: from.id()?,
                padding: match from.byte()? {
                    0 => RsaPadding::Pkcs1,
                    byte => RsaPadding::Oaep { digest: digest(byte)? },
                },
                wrapped: from.bytes()?.to_vec(),
            },
            6 => Request::EcdhDerive { key: from.id()?, peer: from.bytes()?.to_vec() },
            7 => {
                let (family, size) = (from.byte()?, from.number()?);
                let kind = match family {
                    1 => NewKey::Rsa(size),
                    2 => {
                        let curve = Curve::ALL.iter().find(|curve| curve.bits() == size);
                        NewKey::Ec(*curve.ok_or(FrameError::Malformed)?)
                    }
                    3 => {
                        let set = MlDsa::ALL.iter().find(|set| set.number() == size);
                        NewKey::MlDsa(*set.ok_or(FrameError::Malformed)?)
                    }
                    4 => {
                        let set = MlKem::ALL.iter().find(|set| set.number() == size);
                        NewKey::MlKem(*set.ok_or(FrameError::Malformed)?)
                    }
                    _ => return Err(FrameError::Malformed),
                };
                Request::Generate { kind, label: from.text()?, id: from.bytes()?.to_vec() }
            }
            8 => Request::MlDsaSign { key: from.id()?, message: from.long()?.to_vec() },
            9 => Request::MlKemDecapsulate { key: from.id()?, ciphertext: from.bytes()?.to_vec() },
            _ => return Err(FrameError::Malformed),
        };
        from.end()?;
        Ok(request)
    }
}

impl Response {
    /// The frame's body. Zeroized, because a secret may be in it.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Fields::new(FIELDS_BYTES_MAX);
        match self {
            Response::Opened(identity) => {
                out.byte(1).bytes(identity.token.as_bytes()).bytes(identity.manufacturer.as_bytes());
                out.bytes(identity.serial.as_bytes()).bytes(identity.model.as_bytes());
            }
            Response::Done => {
                out.byte(2);
            }
            Response::Bytes(bytes) => {
                out.byte(3).bytes(bytes);
            }
            Response::Raw(bytes) => {
                out.byte(4).bytes(bytes);
            }
            Response::NotDecrypted => {
                out.byte(5);
            }
            Response::UnknownKey => {
                out.byte(6);
            }
            Response::Failed { cause, why } => {
                let cause = match cause {
                    Cause::Gone => 1,
                    Cause::Pin => 2,
                    Cause::Refused => 3,
                    Cause::Protocol => 4,
                };
                out.byte(7).byte(cause).bytes(why.as_bytes());
            }
        }
        out.0
    }

    /// Reads a frame's body.
    ///
    /// # Errors
    /// [`FrameError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Response, FrameError> {
        let mut from = Reader(body);
        let response = match from.byte()? {
            1 => Response::Opened(TokenIdentity {
                token: from.text()?,
                manufacturer: from.text()?,
                serial: from.text()?,
                model: from.text()?,
            }),
            2 => Response::Done,
            3 => Response::Bytes(Zeroizing::new(from.bytes()?.to_vec())),
            4 => Response::Raw(Zeroizing::new(from.bytes()?.to_vec())),
            5 => Response::NotDecrypted,
            6 => Response::UnknownKey,
            7 => {
                let cause = match from.byte()? {
                    1 => Cause::Gone,
                    2 => Cause::Pin,
                    3 => Cause::Refused,
                    4 => Cause::Protocol,
                    _ => return Err(FrameError::Malformed),
                };
                Response::Failed { cause, why: from.text()? }
            }
            _ => return Err(FrameError::Malformed),
        };
        from.end()?;
        Ok(response)
    }

    /// A failure, its text one line without control characters (they are written `\n` or `\u{1b}`), and cut to
    /// [`WHY_BYTES_MAX`]: it comes from a module, and goes into logs and to terminals.
    pub fn failed(cause: Cause, why: impl Into<String>) -> Response {
        let mut why = why.into();
        if why.contains(char::is_control) {
            let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            why = why.chars().map(shown).collect();
        }
        let end = (0..=WHY_BYTES_MAX).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        why.truncate(end);
        Response::Failed { cause, why }
    }
}

/// Shows neither PIN nor what is signed.
impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Request::Open { .. } => "Open(..)",
            Request::Load { .. } => "Load(..)",
            Request::RsaSign { .. } => "RsaSign(..)",
            Request::EcdsaSign { .. } => "EcdsaSign(..)",
            Request::RsaUnwrap { .. } => "RsaUnwrap(..)",
            Request::EcdhDerive { .. } => "EcdhDerive(..)",
            Request::Generate { .. } => "Generate(..)",
            Request::MlDsaSign { .. } => "MlDsaSign(..)",
            Request::MlKemDecapsulate { .. } => "MlKemDecapsulate(..)",
        })
    }
}

/// Shows no bytes: they may be a secret.
impl fmt::Debug for Response {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Response::Opened(identity) => write!(out, "Opened({identity:?})"),
            Response::Done => out.write_str("Done"),
            Response::Bytes(bytes) => write!(out, "Bytes({} bytes)", bytes.len()),
            Response::Raw(bytes) => write!(out, "Raw({} bytes)", bytes.len()),
            Response::NotDecrypted => out.write_str("NotDecrypted"),
            Response::UnknownKey => out.write_str("UnknownKey"),
            Response::Failed { cause, why } => write!(out, "Failed({cause:?}, {why:?})"),
        }
    }
}

/// Fields as they are written. Room for a frame is taken at once, so that no copy of a secret stays behind.
struct Fields(Zeroizing<Vec<u8>>);

impl Fields {
    fn new(room: usize) -> Fields {
        Fields(Zeroizing::new(Vec::with_capacity(room.min(FRAME_BYTES_MAX))))
    }

    fn byte(&mut self, byte: u8) -> &mut Fields {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u32) -> &mut Fields {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn id(&mut self, id: &KeyId) -> &mut Fields {
        self.0.extend_from_slice(id);
        self
    }

    /// What does not fit a frame is cut; the reader then finds less than it was told, and refuses.
    fn bytes(&mut self, bytes: &[u8]) -> &mut Fields {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&len.to_le_bytes());
        self.cut(bytes)
    }

    /// As [`bytes`](Self::bytes), for a message that is signed whole.
    fn long(&mut self, bytes: &[u8]) -> &mut Fields {
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).cut(bytes)
    }

    fn cut(&mut self, bytes: &[u8]) -> &mut Fields {
        let room = self.0.capacity().saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or_default());
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(FrameError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.take(N)?.try_into().map_err(|_| FrameError::Malformed)
    }

    fn byte(&mut self) -> Result<u8, FrameError> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }

    fn number(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    fn id(&mut self) -> Result<KeyId, FrameError> {
        self.array()
    }

    fn bytes(&mut self) -> Result<&'a [u8], FrameError> {
        let len = u16::from_le_bytes(self.array()?);
        self.take(usize::from(len))
    }

    fn long(&mut self) -> Result<&'a [u8], FrameError> {
        let len = usize::try_from(self.number()?).map_err(|_| FrameError::Malformed)?;
        self.take(len)
    }

    fn text(&mut self) -> Result<String, FrameError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| FrameError::Malformed)
    }

    fn digest(&mut self) -> Result<Digest, FrameError> {
        digest(self.byte()?)
    }

    fn end(self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Malformed) }
    }
}

fn scheme_byte(scheme: RsaScheme) -> u8 {
    match scheme {
        RsaScheme::Pkcs1 => 1,
        RsaScheme::Pss => 2,
    }
}

fn digest_byte(digest: Digest) -> u8 {
    match digest {
        Digest::Sha256 => 1,
        Digest::Sha384 => 2,
        Digest::Sha512 => 3,
    }
}

fn digest(byte: u8) -> Result<Digest, FrameError> {
    Digest::ALL.iter().copied().find(|digest| digest_byte(*digest) == byte).ok_or(FrameError::Malformed)
}

fn padding_byte(padding: RsaPadding) -> u8 {
    match padding {
        RsaPadding::Pkcs1 => 0,
        RsaPadding::Oaep { digest } => digest_byte(digest),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests() -> Vec<Request> {
        let key = [7; 32];
        vec![
            Request::Open {
                module: b"/lib/m.so".to_vec(),
                token: "pkcs11:".to_owned(),
                pin: Some(Zeroizing::new(b"s3cr3t".to_vec())),
            },
            Request::Open { module: Vec::new(), token: String::new(), pin: None },
            Request::Load { key, uri: "pkcs11:id=%01".to_owned(), public: vec![0x30; 550] },
            Request::RsaSign { key, scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash: vec![1; 32] },
            Request::RsaSign { key, scheme: RsaScheme::Pss, digest: Digest::Sha512, hash: vec![1; 64] },
            Request::EcdsaSign { key, hash: vec![1; 48] },
            Request::RsaUnwrap { key, padding: RsaPadding::Pkcs1, wrapped: vec![1; 512] },
            Request::RsaUnwrap { key, padding: RsaPadding::Oaep { digest: Digest::Sha384 }, wrapped: Vec::new() },
            Request::EcdhDerive { key, peer: vec![4; 133] },
            Request::Generate { kind: NewKey::Rsa(2048), label: "signing".to_owned(), id: vec![1, 2] },
            Request::Generate { kind: NewKey::Ec(Curve::P521), label: String::new(), id: Vec::new() },
            Request::Generate { kind: NewKey::MlDsa(MlDsa::MlDsa65), label: String::new(), id: Vec::new() },
            Request::Generate { kind: NewKey::MlKem(MlKem::MlKem1024), label: String::new(), id: Vec::new() },
            Request::MlDsaSign { key, message: b"s3cr3t".repeat(50) },
            Request::MlKemDecapsulate { key, ciphertext: vec![1; 1568] },
        ]
    }

    fn responses() -> Vec<Response> {
        vec![
            Response::Opened(TokenIdentity { token: "hsm".to_owned(), ..TokenIdentity::default() }),
            Response::Done,
            Response::Bytes(Zeroizing::new(b"s3cr3t".to_vec())),
            Response::Raw(Zeroizing::new(b"s3cr3t".to_vec())),
            Response::NotDecrypted,
            Response::UnknownKey,
            Response::failed(Cause::Pin, "the token refused the PIN"),
        ]
    }

    #[test]
    fn every_frame_is_read_back_and_none_shows_a_secret() {
        for request in requests() {
            let body = request.encode();
            assert!(Request::decode(&body).expect("what was written") == request);
            assert!(!format!("{request:?}").contains("s3cr3t"));
            for short in 0..body.len() {
                assert!(Request::decode(&body[..short]).is_err(), "{request:?} cut at {short}");
            }
            assert!(Request::decode(&[&body[..], &[0]].concat()).is_err());
        }
        for response in responses() {
            let body = response.encode();
            assert!(Response::decode(&body).expect("what was written") == response);
            assert!(!format!("{response:?}").contains("s3cr3t"));
            for short in 0..body.len() {
                assert!(Response::decode(&body[..short]).is_err(), "{response:?} cut at {short}");
            }
            assert!(Response::decode(&[&body[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_before_memory_is_taken() {
        let long = u32::try_from(FRAME_BYTES_MAX + 1).expect("a small number").to_le_bytes();
        assert!(matches!(read_frame(&mut &long[..]), Err(FrameError::Malformed)));
        assert!(matches!(write_frame(&mut Vec::new(), &vec![0; FRAME_BYTES_MAX + 1]), Err(FrameError::Malformed)));
        let huge = Request::EcdsaSign { key: [0; 32], hash: vec![1; 1 << 17] };
        assert!(Request::decode(&huge.encode()).is_err());
        for (len, fits) in [(SIGNED_BYTES_MAX, true), (FRAME_BYTES_MAX, false)] {
            let whole = Request::MlDsaSign { key: [0; 32], message: vec![1; len] };
            assert_eq!(Request::decode(&whole.encode()).is_ok_and(|read| read == whole), fits, "{len} bytes");
        }
    }

    #[test]
    fn a_long_text_of_an_error_is_cut_between_characters() {
        let Response::Failed { why, .. } = Response::failed(Cause::Gone, "é".repeat(WHY_BYTES_MAX)) else {
            panic!("a failure");
        };
        assert_eq!(why.len(), WHY_BYTES_MAX);
    }

    #[test]
    fn the_text_of_an_error_brings_no_control_characters() {
        let failed = Response::failed(Cause::Refused, "C_Sign:\r\nfaked \u{1b}[31mline\0 of größe");
        let Response::Failed { why, .. } = failed else { panic!("a failure") };
        assert_eq!(why, r"C_Sign:\r\nfaked \u{1b}[31mline\u{0} of größe");
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert_eq!(&*request.encode(), &bytes[..]);
            }
            if let Ok(response) = Response::decode(&bytes) {
                prop_assert_eq!(&*response.encode(), &bytes[..]);
            }
            let _ = read_frame(&mut &bytes[..]);
        }
    }
}
