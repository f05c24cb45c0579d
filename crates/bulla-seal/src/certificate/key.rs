//! Private keys as files: generated, written as PKCS#8 (encrypted where a passphrase is given), read back.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use bulla_device::{KeyUri, MlDsa, MlKem};
use openssl::ec::{Asn1Flag, EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkcs5::pbkdf2_hmac;
use openssl::pkey::{PKey, Private};
use openssl::rand::rand_bytes;
use openssl::rsa::Rsa;
use openssl::symm::{Cipher, encrypt};
use zeroize::Zeroizing;

use super::{Curve, KeyKind, pem, tlv};

/// Rounds of PBKDF2-HMAC-SHA-256 over a passphrase: some 30 ms once for each key that is read.
pub const PBKDF2_ROUNDS: u32 = 100_000;
/// The longest passphrase, in bytes.
pub const PASSPHRASE_BYTES_MAX: usize = 1024;

/// What opens an encrypted private key. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// A passphrase from memory.
    pub fn new(text: String) -> Passphrase {
        Passphrase(Zeroizing::new(text))
    }

    /// The first line of a file, without its line end.
    ///
    /// # Errors
    /// [`KeyError::PassphraseFile`] when it cannot be read, is no UTF-8, is empty or longer than
    /// [`PASSPHRASE_BYTES_MAX`].
    pub fn from_file(path: &Path) -> Result<Passphrase, KeyError> {
        let bad = |why: String| KeyError::PassphraseFile { path: path.display().to_string(), why };
        let mut bytes = Zeroizing::new(Vec::with_capacity(PASSPHRASE_BYTES_MAX + 2));
        let limit = u64::try_from(PASSPHRASE_BYTES_MAX + 2).unwrap_or(u64::MAX);
        File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|error| bad(error.to_string()))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| bad("not UTF-8".to_owned()))?;
        let line = text.split(['\r', '\n']).next().unwrap_or_default();
        if line.is_empty() || line.len() > PASSPHRASE_BYTES_MAX {
            return Err(bad(format!("the first line must have 1 to {PASSPHRASE_BYTES_MAX} bytes")));
        }
        Ok(Passphrase::new(line.to_owned()))
    }

    /// The text itself, for the call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// A kind and size of key to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeySpec {
    /// RSA with 1024, 2048, 3072 or 4096 bits and e = 65537.
    Rsa(u32),
    /// A NIST curve.
    Ec(Curve),
    /// ML-DSA (FIPS 204), which signs.
    MlDsa(MlDsa),
    /// ML-KEM (FIPS 203), which content keys are sent to.
    MlKem(MlKem),
}

impl KeySpec {
    /// Every key that can be made.
    pub const ALL: [KeySpec; 15] = [
        KeySpec::Rsa(1024),
        KeySpec::Rsa(2048),
        KeySpec::Rsa(3072),
        KeySpec::Rsa(4096),
        KeySpec::Ec(Curve::P192),
        KeySpec::Ec(Curve::P224),
        KeySpec::Ec(Curve::P256),
        KeySpec::Ec(Curve::P384),
        KeySpec::Ec(Curve::P521),
        KeySpec::MlDsa(MlDsa::MlDsa44),
        KeySpec::MlDsa(MlDsa::MlDsa65),
        KeySpec::MlDsa(MlDsa::MlDsa87),
        KeySpec::MlKem(MlKem::MlKem512),
        KeySpec::MlKem(MlKem::MlKem768),
        KeySpec::MlKem(MlKem::MlKem1024),
    ];

    /// The keys that a quantum computer would break: RSA and elliptic curves.
    pub fn classical() -> impl Iterator<Item = KeySpec> {
        KeySpec::ALL.into_iter().filter(|spec| !spec.kind().is_post_quantum())
    }

    /// The kind of key that does what this one can't, of like strength: ML-DSA signs and ML-KEM is written to, so a
    /// user needs one of each. None for a kind that does both.
    pub fn counterpart(self) -> Option<KeySpec> {
        match self {
            KeySpec::Rsa(_) | KeySpec::Ec(_) => None,
            KeySpec::MlDsa(MlDsa::MlDsa44) => Some(KeySpec::MlKem(MlKem::MlKem512)),
            KeySpec::MlDsa(MlDsa::MlDsa65) => Some(KeySpec::MlKem(MlKem::MlKem768)),
            KeySpec::MlDsa(MlDsa::MlDsa87) => Some(KeySpec::MlKem(MlKem::MlKem1024)),
            KeySpec::MlKem(MlKem::MlKem512) => Some(KeySpec::MlDsa(MlDsa::MlDsa44)),
            KeySpec::MlKem(MlKem::MlKem768) => Some(KeySpec::MlDsa(MlDsa::MlDsa65)),
            KeySpec::MlKem(MlKem::MlKem1024) => Some(KeySpec::MlDsa(MlDsa::MlDsa87)),
        }
    }

    /// What makes a key like this one; none for a kind or size that is not made here.
    pub fn like(kind: KeyKind, bits: u32) -> Option<KeySpec> {
        let spec = match kind {
            KeyKind::Rsa => KeySpec::Rsa(bits),
            KeyKind::Ec(curve) => KeySpec::Ec(curve),
            KeyKind::MlDsa(set) => KeySpec::MlDsa(set),
            KeyKind::MlKem(set) => KeySpec::MlKem(set),
            KeyKind::Other => return None,
        };
        KeySpec::ALL.contains(&spec).then_some(spec)
    }

    /// Bits of the modulus or of the curve's field; the number in the name of a parameter set.
    pub fn bits(self) -> u32 {
        match self {
            KeySpec::Rsa(bits) => bits,
            KeySpec::Ec(curve) => curve.bits(),
            KeySpec::MlDsa(set) => set.number(),
            KeySpec::MlKem(set) => set.number(),
        }
    }

    /// The kind of the key.
    pub fn kind(self) -> KeyKind {
        match self {
            KeySpec::Rsa(_) => KeyKind::Rsa,
            KeySpec::Ec(curve) => KeyKind::Ec(curve),
            KeySpec::MlDsa(set) => KeyKind::MlDsa(set),
            KeySpec::MlKem(set) => KeyKind::MlKem(set),
        }
    }

    /// Makes a key. RSA 4096 takes a second or so.
    ///
    /// # Errors
    /// [`KeyError::Size`] for an RSA size not in [`KeySpec::ALL`]; [`KeyError::Library`] from OpenSSL.
    pub fn generate(self) -> Result<PKey<Private>, KeyError> {
        match self {
            KeySpec::Rsa(bits @ (1024 | 2048 | 3072 | 4096)) => Ok(PKey::from_rsa(Rsa::generate(bits)?)?),
            KeySpec::Rsa(bits) => Err(KeyError::Size { word: format!("rsa{bits}") }),
            KeySpec::Ec(curve) => {
                let mut group = EcGroup::from_curve_name(curve.nid())?;
                group.set_asn1_flag(Asn1Flag::NAMED_CURVE);
                Ok(PKey::from_ec_key(EcKey::generate(&group)?)?)
            }
            KeySpec::MlDsa(set) => Ok(set.generate()?),
            KeySpec::MlKem(set) => Ok(set.generate()?),
        }
    }
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySpec::Rsa(bits) => write!(f, "rsa{bits}"),
            KeySpec::Ec(curve) => write!(f, "p{}", curve.bits()),
            KeySpec::MlDsa(set) => write!(f, "ml-dsa-{}", set.number()),
            KeySpec::MlKem(set) => write!(f, "ml-kem-{}", set.number()),
        }
    }
}

impl FromStr for KeySpec {
    type Err = KeyError;

    /// `rsa2048`, `p256`, `ml-dsa-65`, `ml-kem-768`, or `nistecc256` as RACDCERT says it.
    fn from_str(text: &str) -> Result<KeySpec, KeyError> {
        let word = text.to_ascii_lowercase().replace(['-', '(', ')', ' '], "");
        let word = word.replace("nistecc", "p").replace("nistp", "p");
        KeySpec::ALL
            .into_iter()
            .find(|spec| spec.to_string().replace('-', "") == word)
            .ok_or_else(|| KeyError::Size { word: text.to_owned() })
    }
}

/// A private key as PKCS#8 in PEM, encrypted or not. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct PrivateKeyPem(Zeroizing<Vec<u8>>);

impl PrivateKeyPem {
    /// Writes a key: as `PRIVATE KEY`, or with a passphrase as `ENCRYPTED PRIVATE KEY` (RFC 8018 PBES2,
    /// PBKDF2-HMAC-SHA-256 with [`PBKDF2_ROUNDS`], AES-256-CBC), which `openssl pkey` reads too.
    ///
    /// # Errors
    /// [`KeyError::Library`] from OpenSSL.
    pub fn write(key: &PKey<Private>, passphrase: Option<&Passphrase>) -> Result<PrivateKeyPem, KeyError> {
        let der = Zeroizing::new(key.private_key_to_pkcs8()?);
        let text = match passphrase {
            None => pem("PRIVATE KEY", &der),
            Some(passphrase) => pem("ENCRYPTED PRIVATE KEY", &encrypted(&der, passphrase)?),
        };
        Ok(PrivateKeyPem(Zeroizing::new(text)))
    }

    /// The PEM text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKeyPem(..)")
    }
}

/// EncryptedPrivateKeyInfo, RFC 5958 section 3. OpenSSL's own writer would use 2048 rounds.
fn encrypted(der: &[u8], passphrase: &Passphrase) -> Result<Vec<u8>, KeyError> {
    const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
    const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
    const HMAC_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x09];
    const AES_256_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x2a];
    let (mut salt, mut iv) = ([0; 16], [0; 16]);
    rand_bytes(&mut salt)?;
    rand_bytes(&mut iv)?;
    let mut key = Zeroizing::new([0; 32]);
    let rounds = usize::try_from(PBKDF2_ROUNDS).unwrap_or(usize::MAX);
    pbkdf2_hmac(passphrase.expose().as_bytes(), &salt, rounds, MessageDigest::sha256(), &mut *key)?;
    let ciphertext = encrypt(Cipher::aes_256_cbc(), &*key, Some(&iv), der)?;

    let sequence = |parts: &[&[u8]]| tlv::element(tlv::SEQUENCE, parts);
    let oid = |value| tlv::element(tlv::OID, &[value]);
    let prf = sequence(&[&oid(HMAC_SHA256), &tlv::element(tlv::NULL, &[])]);
    // A zero in front keeps the INTEGER positive and is dropped when not needed.
    let rounds = PBKDF2_ROUNDS.to_be_bytes();
    let rounds: Vec<u8> = std::iter::once(0).chain(rounds.into_iter().skip_while(|byte| *byte == 0)).collect();
    let rounds = match rounds.as_slice() {
        [0, high, ..] if *high < 0x80 => rounds.get(1..).unwrap_or_default(),
        all => all,
    };
    let kdf = sequence(&[
        &oid(PBKDF2),
        &sequence(&[&tlv::element(tlv::OCTET_STRING, &[&salt]), &tlv::element(tlv::INTEGER, &[rounds]), &prf]),
    ]);
    let cipher = sequence(&[&oid(AES_256_CBC), &tlv::element(tlv::OCTET_STRING, &[&iv])]);
    let algorithm = sequence(&[&oid(PBES2), &sequence(&[&kdf, &cipher])]);
    Ok(sequence(&[&algorithm, &tlv::element(tlv::OCTET_STRING, &[&ciphertext])]))
}

/// The one private key of a PEM text: PKCS#8 (encrypted or not), or the older RSA and EC forms.
///
/// # Errors
/// [`KeyError::Missing`], [`KeyError::Several`], [`KeyError::Locked`] when it is encrypted and there is no passphrase,
/// [`KeyError::WrongPassphrase`], [`KeyError::Malformed`].
pub fn read_private_key(pem: &[u8], passphrase: Option<&Passphrase>) -> Result<PKey<Private>, KeyError> {
    match read_key_source(pem, passphrase)? {
        KeySource::Clear(key) => Ok(key),
        KeySource::Elsewhere(uri) => Err(KeyError::Elsewhere { uri }),
    }
}

fn read_pem(pem: &[u8], passphrase: Option<&Passphrase>) -> Result<PKey<Private>, KeyError> {
    match pem_keys(pem) {
        0 => return Err(KeyError::Missing),
        1 => {}
        _ => return Err(KeyError::Several),
    }
    let asked = Cell::new(false);
    let read = PKey::private_key_from_pem_callback(pem, |buffer| {
        asked.set(true);
        let text = passphrase.map_or("", Passphrase::expose).as_bytes();
        // A passphrase that does not fit counts as none: the answer is an error either way.
        match buffer.get_mut(..text.len()) {
            Some(room) => {
                room.copy_from_slice(text);
                Ok(text.len())
            }
            None => Ok(0),
        }
    });
    match (read, asked.get(), passphrase) {
        (Ok(key), _, _) => Ok(key),
        (Err(_), true, None) => Err(KeyError::Locked),
        (Err(_), true, Some(_)) => Err(KeyError::WrongPassphrase),
        (Err(_), false, _) => Err(KeyError::Malformed),
    }
}

/// Where a file says that its private key is.
pub enum KeySource {
    /// In the file.
    Clear(PKey<Private>),
    /// On a token, or in a transit engine.
    Elsewhere(KeyUri),
}

/// Shows where it is, nothing more.
impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Clear(_) => f.write_str("Clear(..)"),
            KeySource::Elsewhere(uri) => write!(f, "Elsewhere({uri})"),
        }
    }
}

/// The one private key of a file: in PEM as [`read_private_key`] reads it, or in a line of its own the URI of a key on
/// a token or in a transit engine ([`KeyUri`]). Such a line can't be in PEM, which has no colon outside headers.
///
/// # Errors
/// [`KeyError`].
pub fn read_key_source(pem: &[u8], passphrase: Option<&Passphrase>) -> Result<KeySource, KeyError> {
    let mut uris = uri_lines(pem);
    let Some(line) = uris.next() else { return read_pem(pem, passphrase).map(KeySource::Clear) };
    if uris.next().is_some() || pem_keys(pem) > 0 {
        return Err(KeyError::Several);
    }
    line.parse().map(KeySource::Elsewhere).map_err(|why| KeyError::Uri { why })
}

fn uri_lines(pem: &[u8]) -> impl Iterator<Item = &str> {
    let lines = pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter_map(|line| std::str::from_utf8(line).ok()).filter(|line| KeyUri::looks_like_one(line))
}

fn pem_keys(pem: &[u8]) -> usize {
    pem.split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"-----BEGIN ") && line.trim_ascii_end().ends_with(b"PRIVATE KEY-----"))
        .count()
}

/// Why there is no usable private key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The file holds none.
    Missing,
    /// The file holds more than one.
    Several,
    /// It is encrypted and no passphrase was given. The operator's turn.
    Locked,
    /// It is encrypted and the passphrase given does not open it. The operator's turn.
    WrongPassphrase,
    /// It is damaged.
    Malformed,
    /// It is on a token or in a transit engine, and does not leave that.
    Elsewhere {
        /// What names it.
        uri: KeyUri,
    },
    /// A line that begins like the URI of a key is none.
    Uri {
        /// Why.
        why: String,
    },
    /// No key of this kind and size is made here.
    Size {
        /// The word as it was written.
        word: String,
    },
    /// The file with the passphrase cannot be used.
    PassphraseFile {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// OpenSSL refused or failed.
    Library {
        /// Its words.
        why: String,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Missing => f.write_str("no private key"),
            KeyError::Several => f.write_str("more than one private key"),
            KeyError::Locked => f.write_str("private key is encrypted and there is no passphrase for it"),
            KeyError::WrongPassphrase => f.write_str("wrong passphrase for the private key"),
            KeyError::Malformed => f.write_str("private key is damaged"),
            KeyError::Elsewhere { uri: uri @ KeyUri::Token(_) } => {
                write!(f, "the private key is on a token and does not leave it: {uri}")
            }
            KeyError::Elsewhere { uri: uri @ KeyUri::Transit(_) } => {
                write!(f, "the private key is in a transit engine and does not leave it: {uri}")
            }
            KeyError::Uri { why } => f.write_str(why),
            KeyError::Size { word } => write!(
                f,
                "no key of kind {word:?}; there are rsa1024, rsa2048, rsa3072, rsa4096, p192, p224, p256, p384, p521, \
                 ml-dsa-44, ml-dsa-65, ml-dsa-87, ml-kem-512, ml-kem-768 and ml-kem-1024"
            ),
            KeyError::PassphraseFile { path, why } => write!(f, "passphrase file {path}: {why}"),
            KeyError::Library { why } => write!(f, "key operation failed: {why}"),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<ErrorStack> for KeyError {
    fn from(stack: ErrorStack) -> KeyError {
        KeyError::Library { why: stack.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_opens_with_its_passphrase_only() {
        let key = KeySpec::Ec(Curve::P256).generate().unwrap();
        let right = Passphrase::new("right".into());
        let pem = PrivateKeyPem::write(&key, Some(&right)).unwrap();
        assert!(pem.as_bytes().starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----"));
        assert!(read_private_key(pem.as_bytes(), Some(&right)).unwrap().public_eq(&key));
        let wrong = Passphrase::new("wrong".into());
        assert_eq!(read_private_key(pem.as_bytes(), Some(&wrong)).err(), Some(KeyError::WrongPassphrase));
        assert_eq!(read_private_key(pem.as_bytes(), None).err(), Some(KeyError::Locked));
    }

    #[test]
    fn a_file_has_exactly_one_key() {
        let key = KeySpec::Ec(Curve::P192).generate().unwrap();
        let pem = PrivateKeyPem::write(&key, None).unwrap();
        let twice = [pem.as_bytes(), pem.as_bytes()].concat();
        assert_eq!(read_private_key(&twice, None).err(), Some(KeyError::Several));
        assert_eq!(read_private_key(b"nothing", None).err(), Some(KeyError::Missing));
        let damaged: Vec<u8> = pem.as_bytes().iter().map(|b| if *b == b'M' { b'!' } else { *b }).collect();
        assert_eq!(read_private_key(&damaged, None).err(), Some(KeyError::Malformed));
    }

    #[test]
    fn a_key_on_a_token_is_one_line_and_the_only_key_of_its_file() {
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let with = |line: &str| match read_key_source(format!("{certificate}{line}").as_bytes(), None) {
            Ok(source) => format!("{source:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(with("pkcs11:token=hsm;id=%01\r\n"), "Elsewhere(pkcs11:token=hsm;id=%01)");
        assert_eq!(with("PKCS11:object=k?pin-source=file:/pin&module-path=/m.so"), "Elsewhere(pkcs11:object=k)");
        assert_eq!(with("pkcs11:token=hsm\npkcs11:token=hsm"), "more than one private key");
        assert_eq!(with("pkcs11:colour=red"), "PKCS#11 URI with the unknown attribute \"colour\"");
        assert_eq!(with("transit:key=orders;version=2"), "Elsewhere(transit:key=orders;version=2)");
        assert_eq!(with("transit:key=orders"), "transit URI without version");
        assert_eq!(with("transit:key=a;version=1\npkcs11:token=hsm"), "more than one private key");
        assert!(with("pkcs11:token=a?pin-value=1234").ends_with("name a file for it"));
        assert_eq!(with("#pkcs11:token=hsm"), "no private key");
        let key = PrivateKeyPem::write(&KeySpec::Ec(Curve::P192).generate().unwrap(), None).unwrap();
        let both = [key.as_bytes(), b"pkcs11:token=hsm\n"].concat();
        assert_eq!(read_key_source(&both, None).err(), Some(KeyError::Several));
        let error = read_private_key(b"pkcs11:token=hsm", None).err().unwrap().to_string();
        assert_eq!(error, "the private key is on a token and does not leave it: pkcs11:token=hsm");
    }

    #[test]
    fn key_words_are_read_as_administrators_write_them() {
        for (word, spec) in [
            ("rsa2048", KeySpec::Rsa(2048)),
            ("RSA-4096", KeySpec::Rsa(4096)),
            ("P-256", KeySpec::Ec(Curve::P256)),
            ("NISTECC(521)", KeySpec::Ec(Curve::P521)),
        ] {
            assert_eq!(word.parse::<KeySpec>(), Ok(spec));
        }
        for bad in ["rsa512", "rsa", "p255", "ed25519", ""] {
            assert!(bad.parse::<KeySpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let key = KeySpec::Ec(Curve::P192).generate().unwrap();
        let pem = PrivateKeyPem::write(&key, None).unwrap();
        assert_eq!(format!("{:?} {pem:?}", Passphrase::new("secret".into())), "Passphrase(..) PrivateKeyPem(..)");
    }
}
