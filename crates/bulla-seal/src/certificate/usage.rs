//! What a key may be used for: the rules per key type, and the words in which administrators ask for them.

use std::fmt;
use std::str::FromStr;

use openssl::x509::{X509ExtendedKeyUsage, X509KeyUsage};

use super::{Certificate, CertificateError, KeyKind};

/// What the seal wants to do with a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// Verify or make a signature: digitalSignature or nonRepudiation; RSA, EC or ML-DSA.
    Sign,
    /// Wrap a content key that is used once, as Privacy does: keyEncipherment; RSA, and ML-KEM for every quality
    /// (RFC 9935, section 5).
    KeyTransport,
    /// Agree on a key-wrapping key: keyAgreement; EC.
    KeyAgreement,
    /// Wrap a content key for Confidentiality: dataEncipherment, or keyEncipherment, which is all that ordinary S/MIME
    /// certificates have; RSA.
    DataEncipherment,
    /// Prove who one end of a TLS connection is: digitalSignature; RSA, EC or ML-DSA.
    Handshake,
}

impl Usage {
    /// The usage a recipient's key must allow: an EC key always agrees, and to an ML-KEM key a content key is always
    /// sent, whatever an RSA key would have done.
    pub fn for_recipient(self, kind: KeyKind) -> Usage {
        match (self, kind) {
            (Usage::KeyTransport | Usage::DataEncipherment, KeyKind::Ec(_)) => Usage::KeyAgreement,
            (Usage::DataEncipherment, KeyKind::MlKem(_)) => Usage::KeyTransport,
            (usage, _) => usage,
        }
    }

    fn accepted(self) -> X509KeyUsage {
        match self {
            Usage::Sign => X509KeyUsage::DIGITAL_SIGNATURE | X509KeyUsage::NON_REPUDIATION,
            Usage::KeyTransport => X509KeyUsage::KEY_ENCIPHERMENT,
            Usage::KeyAgreement => X509KeyUsage::KEY_AGREEMENT,
            Usage::DataEncipherment => X509KeyUsage::DATA_ENCIPHERMENT | X509KeyUsage::KEY_ENCIPHERMENT,
            Usage::Handshake => X509KeyUsage::DIGITAL_SIGNATURE,
        }
    }

    /// The extended key usages of which one must be named, where there are any.
    fn purposes(self) -> X509ExtendedKeyUsage {
        let special = match self {
            Usage::Handshake => X509ExtendedKeyUsage::SSL_SERVER | X509ExtendedKeyUsage::SSL_CLIENT,
            _ => X509ExtendedKeyUsage::SMIME,
        };
        special | X509ExtendedKeyUsage::ANYEKU
    }

    /// Their names, for a message.
    pub(crate) fn purpose_names(self) -> &'static str {
        match self {
            Usage::Handshake => "serverAuth and clientAuth",
            _ => "emailProtection",
        }
    }

    fn fits(self, kind: KeyKind) -> bool {
        match self {
            Usage::Sign | Usage::Handshake => matches!(kind, KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::MlDsa(_)),
            Usage::KeyTransport => matches!(kind, KeyKind::Rsa | KeyKind::MlKem(_)),
            Usage::DataEncipherment => kind == KeyKind::Rsa,
            Usage::KeyAgreement => matches!(kind, KeyKind::Ec(_)),
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Usage::Sign => "digitalSignature or nonRepudiation",
            Usage::KeyTransport => "keyEncipherment",
            Usage::KeyAgreement => "keyAgreement",
            Usage::DataEncipherment => "dataEncipherment or keyEncipherment",
            Usage::Handshake => "digitalSignature",
        })
    }
}

impl Certificate {
    /// PKCS#1 v1.5 is a decryption oracle in waiting, so a key used so is used for nothing else: its certificate must
    /// say so.
    pub(crate) fn is_for_encryption_only(&self) -> bool {
        let encryption = X509KeyUsage::KEY_ENCIPHERMENT | X509KeyUsage::DATA_ENCIPHERMENT;
        self.key_usage().is_some_and(|bits| !bits.is_empty() && encryption.contains(bits))
    }

    /// Whether key type, keyUsage (absent allows all, RFC 5280 section 4.2.1.3) and extended key usage allow `usage`.
    /// An extended key usage must name emailProtection, under which S/MIME and thus CMS goes, for TLS serverAuth or
    /// clientAuth, or anyExtendedKeyUsage. An X.509-SVID signs with the purposes of TLS too, which are all that SVIDs
    /// have, and is good for no recipient.
    ///
    /// # Errors
    /// [`CertificateError::Usage`], or what [`Certificate::check_key`] says.
    pub fn check_usage(&self, usage: Usage) -> Result<(), CertificateError> {
        self.check_key()?;
        let is_svid = self.dn().is_of_svid();
        if is_svid && matches!(usage, Usage::KeyTransport | Usage::KeyAgreement | Usage::DataEncipherment) {
            return Err(CertificateError::ShortLived { dn: self.dn().clone() });
        }
        let (accepted, purposes) = match (is_svid, usage) {
            // X509-SVID, section 4.3: digitalSignature, and keyUsage is always there. Its purposes are those of TLS.
            (true, Usage::Sign) => (X509KeyUsage::DIGITAL_SIGNATURE, usage.purposes() | Usage::Handshake.purposes()),
            _ => (usage.accepted(), usage.purposes()),
        };
        let wants_bits = is_svid && usage == Usage::Sign;
        let allowed = self.key_usage().map_or(!wants_bits, |bits| bits.intersects(accepted));
        let purpose = self.x509().extended_key_usage().is_none_or(|bits| bits.intersects(purposes));
        if allowed && purpose && usage.fits(self.key_kind()) {
            return Ok(());
        }
        Err(CertificateError::Usage { dn: self.dn().clone(), wanted: usage, kind: self.key_kind(), purpose })
    }
}

/// What a certificate can be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sign messages.
    Sign,
    /// Be a recipient of messages.
    Encrypt,
    /// Prove who one end of a TLS connection is.
    Tls,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Sign, Role::Encrypt, Role::Tls];

    /// The usage that a key of this kind must allow.
    pub fn usage(self, kind: KeyKind) -> Usage {
        match self {
            Role::Sign => Usage::Sign,
            Role::Encrypt => Usage::DataEncipherment.for_recipient(kind),
            Role::Tls => Usage::Handshake,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Role::Sign => "sign",
            Role::Encrypt => "encrypt",
            Role::Tls => "tls",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = UseError;

    fn from_str(text: &str) -> Result<Role, UseError> {
        let found = Role::ALL.into_iter().find(|role| role.word().eq_ignore_ascii_case(text));
        found.ok_or_else(|| UseError::UnknownRole { word: text.to_owned() })
    }
}

impl Certificate {
    /// What key and extensions allow. Whether the certificate is believed is another question.
    pub fn roles(&self) -> Vec<Role> {
        let allows = |role: &Role| self.check_usage(role.usage(self.key_kind())).is_ok();
        Role::ALL.into_iter().filter(allows).collect()
    }
}

/// A word of KEYUSAGE, as RACDCERT has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyUse {
    /// TLS: digitalSignature, and with RSA keyEncipherment; serverAuth and clientAuth beside emailProtection.
    Handshake,
    /// Signatures on documents: digitalSignature and nonRepudiation.
    DocSign,
    /// Signatures on certificates and CRLs: keyCertSign and cRLSign, and basicConstraints says CA.
    CertSign,
    /// Encryption with RSA: dataEncipherment and keyEncipherment. With ML-KEM: keyEncipherment.
    DataEncrypt,
    /// Encryption with EC: keyAgreement.
    KeyAgree,
}

impl KeyUse {
    /// Every word.
    pub const ALL: [KeyUse; 5] =
        [KeyUse::Handshake, KeyUse::DocSign, KeyUse::CertSign, KeyUse::DataEncrypt, KeyUse::KeyAgree];

    fn word(self) -> &'static str {
        match self {
            KeyUse::Handshake => "HANDSHAKE",
            KeyUse::DocSign => "DOCSIGN",
            KeyUse::CertSign => "CERTSIGN",
            KeyUse::DataEncrypt => "DATAENCRYPT",
            KeyUse::KeyAgree => "KEYAGREE",
        }
    }

    /// What encrypts with a key of this kind.
    pub fn to_encrypt(kind: KeyKind) -> KeyUse {
        if matches!(kind, KeyKind::Ec(_)) { KeyUse::KeyAgree } else { KeyUse::DataEncrypt }
    }

    /// To sign and to encrypt, as a key of this kind can.
    pub fn usual(kind: KeyKind) -> Vec<KeyUse> {
        match kind {
            KeyKind::MlDsa(_) => vec![KeyUse::DocSign],
            KeyKind::MlKem(_) => vec![KeyUse::DataEncrypt],
            KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::Other => vec![KeyUse::DocSign, KeyUse::to_encrypt(kind)],
        }
    }

    /// The bits of keyUsage that a list of words asks of a key of this kind.
    ///
    /// # Errors
    /// [`UseError::Incompatible`] for DATAENCRYPT with EC, KEYAGREE with RSA, anything but DATAENCRYPT with ML-KEM, any
    /// encryption with ML-DSA, and anything with another kind.
    pub fn bits(uses: &[KeyUse], kind: KeyKind) -> Result<X509KeyUsage, UseError> {
        let mut bits = X509KeyUsage::empty();
        for usage in uses {
            bits |= match (usage, kind) {
                (KeyUse::Handshake, KeyKind::Rsa) => X509KeyUsage::DIGITAL_SIGNATURE | X509KeyUsage::KEY_ENCIPHERMENT,
                (KeyUse::Handshake, KeyKind::Ec(_) | KeyKind::MlDsa(_)) => X509KeyUsage::DIGITAL_SIGNATURE,
                (KeyUse::DocSign, KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::MlDsa(_)) => {
                    X509KeyUsage::DIGITAL_SIGNATURE | X509KeyUsage::NON_REPUDIATION
                }
                (KeyUse::CertSign, KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::MlDsa(_)) => {
                    X509KeyUsage::KEY_CERT_SIGN | X509KeyUsage::CRL_SIGN
                }
                (KeyUse::DataEncrypt, KeyKind::Rsa) => X509KeyUsage::DATA_ENCIPHERMENT | X509KeyUsage::KEY_ENCIPHERMENT,
                (KeyUse::DataEncrypt, KeyKind::MlKem(_)) => X509KeyUsage::KEY_ENCIPHERMENT,
                (KeyUse::KeyAgree, KeyKind::Ec(_)) => X509KeyUsage::KEY_AGREEMENT,
                (usage, kind) => {
                    return Err(UseError::Incompatible { usage: *usage, kind });
                }
            };
        }
        Ok(bits)
    }
}

impl fmt::Display for KeyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for KeyUse {
    type Err = UseError;

    fn from_str(text: &str) -> Result<KeyUse, UseError> {
        KeyUse::ALL
            .into_iter()
            .find(|usage| usage.word().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| UseError::Unknown { word: text.to_owned() })
    }
}

/// Why a KEYUSAGE cannot be had. The administrator's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UseError {
    /// The key's type cannot do this.
    Incompatible {
        /// What was asked for.
        usage: KeyUse,
        /// The kind of the key.
        kind: KeyKind,
    },
    /// No such word.
    Unknown {
        /// The word as it was written.
        word: String,
    },
    /// No such role.
    UnknownRole {
        /// The word as it was written.
        word: String,
    },
}

impl fmt::Display for UseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UseError::Incompatible { usage, kind } => {
                let hint = match (usage, kind) {
                    (KeyUse::DataEncrypt, KeyKind::Ec(_)) => "; an EC key encrypts with KEYAGREE",
                    (KeyUse::KeyAgree, KeyKind::Rsa) => "; an RSA key encrypts with DATAENCRYPT",
                    (KeyUse::KeyAgree, KeyKind::MlKem(_)) => "; an ML-KEM key encrypts with DATAENCRYPT",
                    (_, KeyKind::MlKem(_)) => "; an ML-KEM key encrypts and nothing else: an ML-DSA key signs",
                    (KeyUse::DataEncrypt | KeyUse::KeyAgree, KeyKind::MlDsa(_)) => {
                        "; an ML-DSA key signs and nothing else: an ML-KEM key encrypts"
                    }
                    _ => "",
                };
                write!(f, "key usage {usage} is incompatible with a key of type {kind}{hint}")
            }
            UseError::Unknown { word } => write!(
                f,
                "unknown key usage {word:?}; there are HANDSHAKE, DOCSIGN, CERTSIGN, DATAENCRYPT and KEYAGREE"
            ),
            UseError::UnknownRole { word } => write!(f, "unknown use {word:?}; there are sign, encrypt and tls"),
        }
    }
}

impl std::error::Error for UseError {}
