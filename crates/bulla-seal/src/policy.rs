//! What one queue asks of its messages: which quality of protection, whose signatures, which
//! recipients, and what happens to a message that does not open.
//!
//! A policy is data. [`Policy::check`] refuses every combination that could never be satisfied, so
//! that the administrator hears of it when the policy is set and not when the first message fails.

use std::fmt;
use std::str::FromStr;

use crate::certificate::KeyKind;
use crate::dn::Dn;

/// The signature digest of a policy; the same type that the devices use.
pub use bulla_device::Digest as SignatureDigest;

/// Recipients a policy may name, and a sealed message may carry.
pub const RECIPIENTS_MAX: usize = 256;
/// Authorised signers a policy may name.
pub const SIGNERS_MAX: usize = 256;
/// Names that a policy may accept as the bound destination, beside the queue's own.
pub const BIND_NAMES_MAX: usize = 64;
/// Bytes of one BINDNAME: `QUEUE@QMGR`, 48 characters each.
pub const BIND_NAME_BYTES_MAX: usize = 97;
/// Bytes of a policy's name, which is the name of a queue.
pub const POLICY_NAME_BYTES_MAX: usize = 48;
/// The largest number of *re*-uses of one content key that a policy may ask for.
pub const KEY_REUSE_COUNT_MAX: u32 = 9_999_999;

/// Messages that one signature may prove, at most.
pub const SIGN_BATCH_MAX: u32 = 1024;

/// The protection policy of the queue of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The name that an application opens.
    pub name: String,
    /// SIGNALG: the digest of the signature, or none.
    pub sign: Option<SignatureDigest>,
    /// ENCALG: the content cipher, or none.
    pub encrypt: Option<ContentCipher>,
    /// SIGNER: who may sign. Empty: anyone whose certificate the opener's ring trusts.
    pub signers: Vec<Dn>,
    /// RECIP: who can open.
    pub recipients: Vec<Dn>,
    /// KEYAWAY: which of them keep their private key elsewhere than at this queue manager. It decides nothing but what
    /// is said of messages that no key opens here.
    pub away: Vec<Dn>,
    /// SIGNBATCH: how many messages one signature may prove; 1 for a signature each. Where it is 1, a message that
    /// shares its signature does not open either.
    pub sign_batch: u32,
    /// KEYREUSE: how often a content key is used again; confidentiality only.
    pub key_reuse: KeyReuse,
    /// ENFORCE or TOLERATE: what becomes of a clear message on this queue.
    pub toleration: Toleration,
    /// BIND: whether a message without our binding attributes opens.
    pub bind: Bind,
    /// BINDNAME: destinations (`QUEUE@QMGR`) accepted beside the local queue's own.
    pub bind_names: Vec<String>,
    /// WEAK(YES): AES-CBC without a signature is allowed, and then nothing is bound.
    pub weak: bool,
    /// ONDEFECT: what a link does after a defective message was moved away.
    pub on_defect: OnDefect,
    /// SEALEDAT: whether the queue manager may seal for an application.
    pub sealed_at: SealedAt,
    /// SIGNPAD: the padding of RSA signatures made here. Both kinds are accepted.
    pub signature_scheme: SignatureScheme,
    /// KEYWRAP: how the content key travels to a recipient with an RSA key.
    pub key_transport: KeyTransport,
    /// REVOCATION: what is asked of revocation lists. A ring may ask for more.
    pub revocation: Revocation,
    /// PQC: whether keys that withstand a quantum computer may, or must, sign and be recipients.
    pub pqc: Pqc,
}

impl Policy {
    /// A policy that protects nothing yet, with every default: what `SET POLICY(name)` starts from.
    pub fn new(name: impl Into<String>) -> Policy {
        Policy {
            name: name.into(),
            sign: None,
            encrypt: None,
            signers: Vec::new(),
            recipients: Vec::new(),
            away: Vec::new(),
            sign_batch: 1,
            key_reuse: KeyReuse::default(),
            toleration: Toleration::default(),
            bind: Bind::default(),
            bind_names: Vec::new(),
            weak: false,
            on_defect: OnDefect::default(),
            sealed_at: SealedAt::default(),
            signature_scheme: SignatureScheme::default(),
            key_transport: KeyTransport::default(),
            revocation: Revocation::default(),
            pqc: Pqc::default(),
        }
    }

    /// The cause of a clear message where a seal is asked for: `unsigned` where that includes a signature, else
    /// `not-sealed`.
    pub fn cause_of_clear(&self) -> &'static str {
        if self.sign.is_some() { "unsigned" } else { "not-sealed" }
    }

    /// Which of the qualities of protection this policy asks for.
    pub fn quality(&self) -> Quality {
        match (self.sign.is_some(), self.encrypt.is_some()) {
            (false, false) => Quality::None,
            (true, false) => Quality::Integrity,
            (true, true) => Quality::Privacy,
            (false, true) => Quality::Confidentiality,
        }
    }

    /// Whether a message must carry the binding attributes and they must fit. AES-CBC without a
    /// signature has no place for them, which is why it needs WEAK(YES).
    pub fn requires_binding(&self) -> bool {
        self.bind == Bind::Required && self.can_bind()
    }

    /// Whether the container of this policy has attributes that an outsider cannot change.
    pub fn can_bind(&self) -> bool {
        self.sign.is_some() || self.encrypt.is_some_and(ContentCipher::is_authenticated)
    }

    /// Whether its messages are signed inside an envelope that notices no change by itself.
    pub fn is_signed_cbc(&self) -> bool {
        self.sign.is_some() && self.encrypt.is_some_and(|cipher| !cipher.is_authenticated())
    }

    /// Whether its messages are encrypted with AES-CBC and not signed, which WEAK(YES) allows. Whether such a message
    /// opens reveals something about any ciphertext put in its place (RFC 9709), so its recipients' keys open nothing
    /// else.
    pub fn is_weak(&self) -> bool {
        self.sign.is_none() && self.encrypt.is_some_and(|cipher| !cipher.is_authenticated())
    }

    /// Refuses a policy that shares a recipient with another one, where exactly one of them is weak
    /// ([`Policy::is_weak`]). This is not part of [`Policy::check`], because definitions of older versions must still
    /// load.
    ///
    /// # Errors
    /// [`PolicyError::WeakRecipient`].
    pub fn check_beside(&self, other: &Policy) -> Result<(), PolicyError> {
        if self.name == other.name || self.is_weak() == other.is_weak() {
            return Ok(());
        }
        match self.recipients.iter().find(|dn| other.recipients.contains(dn)) {
            Some(dn) => Err(PolicyError::WeakRecipient { dn: dn.to_string(), other: other.name.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses a signed AES-CBC policy that names no signers: every failed message is to spend a verification with a
    /// key like theirs, or the time it takes tells what was wrong inside. Stands apart from [`Policy::check`], which
    /// definitions made by older versions must pass to be loaded; nothing is sealed or opened by a policy that fails
    /// here.
    ///
    /// # Errors
    /// [`PolicyError::UnnamedSigners`].
    pub fn check_signers(&self) -> Result<(), PolicyError> {
        if self.is_signed_cbc() && self.signers.is_empty() { Err(PolicyError::UnnamedSigners) } else { Ok(()) }
    }

    /// Refuses what can never work.
    ///
    /// # Errors
    /// The first impossible combination or exceeded limit; its text is the whole explanation.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.name.is_empty() || self.name.len() > POLICY_NAME_BYTES_MAX {
            return Err(PolicyError::Name { len: self.name.len() });
        }
        within("RECIP", self.recipients.len(), RECIPIENTS_MAX)?;
        within("SIGNER", self.signers.len(), SIGNERS_MAX)?;
        within("BINDNAME", self.bind_names.len(), BIND_NAMES_MAX)?;
        unique("RECIP", &self.recipients)?;
        unique("SIGNER", &self.signers)?;
        within("KEYAWAY", self.away.len(), RECIPIENTS_MAX)?;
        unique("KEYAWAY", &self.away)?;
        if let Some(dn) = self.away.iter().find(|dn| !self.recipients.contains(dn)) {
            return Err(PolicyError::AwayWithoutRecipient { dn: dn.to_string() });
        }
        if let Some(dn) = self.recipients.iter().find(|dn| dn.is_spiffe_id()) {
            return Err(PolicyError::ShortLivedRecipient { dn: dn.to_string() });
        }
        for name in &self.bind_names {
            check_bind_name(name)?;
        }
        match self.encrypt {
            Some(_) if self.recipients.is_empty() => return Err(PolicyError::NoRecipient),
            None if !self.recipients.is_empty() => return Err(PolicyError::RecipientWithoutEncryption),
            Some(cipher) if self.sign.is_none() && !cipher.is_authenticated() && !self.weak => {
                return Err(PolicyError::WeakCipher { cipher });
            }
            _ => {}
        }
        if self.sign.is_none() && !self.signers.is_empty() {
            return Err(PolicyError::SignerWithoutSignature);
        }
        self.check_sign_batch()?;
        self.check_pqc()?;
        if self.key_reuse != KeyReuse::Never && self.quality() != Quality::Confidentiality {
            return Err(PolicyError::KeyReuse { quality: self.quality() });
        }
        if let KeyReuse::Count(count) = self.key_reuse
            && (count == 0 || count > KEY_REUSE_COUNT_MAX)
        {
            return Err(PolicyError::KeyReuseCount { count });
        }
        Ok(())
    }
}

impl Policy {
    /// Beside ML-KEM, AES-128 would be what is broken first (RFC 9936, section 2.2.2 and CNSA 2.0 ask for AES-256).
    fn check_pqc(&self) -> Result<(), PolicyError> {
        match self.encrypt {
            None if self.pqc == Pqc::Required && self.sign.is_none() => Err(PolicyError::PqcWithoutProtection),
            Some(cipher) if self.pqc == Pqc::Required && cipher.key_len() < 32 => {
                Err(PolicyError::PqcCipher { cipher })
            }
            Some(_) if self.pqc == Pqc::Required && self.key_transport == KeyTransport::Oaep => {
                Err(PolicyError::PqcKeyWrap)
            }
            _ => Ok(()),
        }
    }

    fn check_sign_batch(&self) -> Result<(), PolicyError> {
        match self.sign_batch {
            1 => Ok(()),
            count if count == 0 || count > SIGN_BATCH_MAX => Err(PolicyError::SignBatchCount { count }),
            _ if self.sign.is_none() => Err(PolicyError::SignBatchWithoutSignature),
            // Who has seen one good root of a batch skips its verification, which bad padding must cost, too.
            _ if self.is_signed_cbc() => Err(PolicyError::SignBatchWithCbc),
            _ => Ok(()),
        }
    }
}

fn within(keyword: &'static str, count: usize, max: usize) -> Result<(), PolicyError> {
    if count > max { Err(PolicyError::TooMany { keyword, count, max }) } else { Ok(()) }
}

fn unique(keyword: &'static str, names: &[Dn]) -> Result<(), PolicyError> {
    // At most 256 names, and only when a policy is set: comparing pairs is cheap enough.
    for (at, name) in names.iter().enumerate() {
        if names.iter().take(at).any(|earlier| earlier == name) {
            return Err(PolicyError::Twice { keyword, dn: name.to_string() });
        }
    }
    Ok(())
}

fn check_bind_name(name: &str) -> Result<(), PolicyError> {
    let fits = name.len() <= BIND_NAME_BYTES_MAX
        && name
            .split_once('@')
            .is_some_and(|(queue, manager)| !queue.is_empty() && !manager.is_empty() && !manager.contains('@'));
    if fits { Ok(()) } else { Err(PolicyError::BindName { name: name.to_owned() }) }
}

/// The qualities of protection, by what a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quality {
    /// Neither signed nor encrypted: the policy only refuses sealed messages.
    None,
    /// Signed; readable by anyone.
    Integrity,
    /// Signed, then encrypted.
    Privacy,
    /// Encrypted only; proves no origin.
    Confidentiality,
}

/// A keyword type: each variant has one MQSC word, the same for parsing and display.
macro_rules! keywords {
    ($(#[$doc:meta])* $name:ident($keyword:literal) { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every value, in the order of the reference page.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The MQSC word of this value.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = PolicyError;

            fn from_str(text: &str) -> Result<$name, PolicyError> {
                $name::ALL
                    .iter()
                    .copied()
                    .find(|value| value.as_str().eq_ignore_ascii_case(text))
                    .ok_or_else(|| PolicyError::Keyword { keyword: $keyword, value: text.to_owned() })
            }
        }
    };
}

keywords! {
    /// ENCALG: the content cipher. GCM is authenticated by itself; CBC leans on the signature inside.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    ContentCipher("ENCALG") {
        /// AES-128-GCM, 16-byte tag.
        Aes128Gcm = "AES128",
        /// AES-256-GCM, 16-byte tag.
        Aes256Gcm = "AES256",
        /// AES-128-CBC with PKCS#7 padding.
        Aes128Cbc = "AES128CBC",
        /// AES-256-CBC with PKCS#7 padding.
        Aes256Cbc = "AES256CBC",
    }
}

impl ContentCipher {
    /// Bytes of the content key.
    pub const fn key_len(self) -> usize {
        match self {
            ContentCipher::Aes128Gcm | ContentCipher::Aes128Cbc => 16,
            ContentCipher::Aes256Gcm | ContentCipher::Aes256Cbc => 32,
        }
    }

    /// Whether the cipher itself notices a changed byte.
    pub const fn is_authenticated(self) -> bool {
        matches!(self, ContentCipher::Aes128Gcm | ContentCipher::Aes256Gcm)
    }
}

keywords! {
    /// What becomes of a clear message that is got from a protected queue.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    Toleration("TOLERATE") {
        /// It is treated as tampered.
        #[default]
        Enforce = "ENFORCE",
        /// It is delivered and counted. A defective seal is never tolerated.
        Tolerate = "TOLERATE",
    }
}

keywords! {
    /// Whether a message must be bound to its place.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    Bind("BIND") {
        /// Our attributes must be there and fit.
        #[default]
        Required = "REQUIRED",
        /// CMS without our attributes opens too; where they are, they must still fit.
        None = "NONE",
    }
}

keywords! {
    /// What a link does after a defective message was moved to the error queue.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    OnDefect("ONDEFECT") {
        /// By the link's credit: continue above one, detach otherwise.
        #[default]
        Auto = "AUTO",
        /// Goes on with the next message.
        Continue = "CONTINUE",
        /// Ends the link with reason 2063.
        Detach = "DETACH",
    }
}

keywords! {
    /// Who may seal messages of this queue.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    SealedAt("SEALEDAT") {
        /// The application, or the queue manager for it.
        #[default]
        Any = "ANY",
        /// The application only: a clear put is refused.
        Client = "CLIENT",
    }
}

keywords! {
    /// The padding of RSA signatures made under a policy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    SignatureScheme("SIGNPAD") {
        /// RSASSA-PKCS1-v1_5.
        #[default]
        Pkcs1 = "PKCS1",
        /// RSASSA-PSS, MGF1 and salt length of the signature digest.
        Pss = "PSS",
    }
}

keywords! {
    /// How the content key reaches a recipient.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    KeyTransport("KEYWRAP") {
        /// By the recipient's key: RSA-OAEP with SHA-256, or ephemeral-static ECDH.
        #[default]
        Auto = "AUTO",
        /// RSA-OAEP with SHA-256 only; a recipient with an EC key cannot be satisfied.
        Oaep = "OAEP",
        /// RSAES-PKCS1-v1_5, and only with a certificate that is good for nothing else.
        Pkcs1 = "PKCS1",
    }
}

keywords! {
    /// What is asked of revocation lists before a certificate is believed. The larger one is the stricter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
    Revocation("REVOCATION") {
        /// Nothing: lists are not looked at.
        None = "NONE",
        /// What the lists say that are there. An authority without a list is not asked.
        #[default]
        IfPresent = "IFPRESENT",
        /// A current list about each certificate of the path but the root.
        Required = "REQUIRED",
    }
}

keywords! {
    /// PQC: whether ML-DSA signs and ML-KEM keys are recipients.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    Pqc("PQC") {
        /// Neither: RSA and elliptic curves alone.
        #[default]
        None = "NONE",
        /// Where a signer or recipient has such a key it is taken; the others' keys are RSA or EC. Each recipient opens
        /// the message on its own, so it is as strong as the weakest of them.
        Allowed = "ALLOWED",
        /// Nothing else: no message with an RSA or EC signer or recipient is sealed or opened.
        Required = "REQUIRED",
    }
}

impl Pqc {
    /// Whether a key of this kind may sign, or be a recipient.
    pub fn allows(self, kind: KeyKind) -> bool {
        match self {
            Pqc::None => !kind.is_post_quantum(),
            Pqc::Allowed => true,
            Pqc::Required => kind.is_post_quantum(),
        }
    }
}

/// KEYREUSE: how many more messages use a content key after its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyReuse {
    /// A fresh key for each message.
    #[default]
    Never,
    /// So many *re*-uses, at most [`KEY_REUSE_COUNT_MAX`]: `n` means `n + 1` messages a key.
    Count(u32),
    /// Until the handle closes, or the key's own limits end it.
    Unlimited,
}

impl fmt::Display for KeyReuse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyReuse::Never => out.write_str("0"),
            KeyReuse::Count(count) => write!(out, "{count}"),
            KeyReuse::Unlimited => out.write_str("*"),
        }
    }
}

impl FromStr for KeyReuse {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<KeyReuse, PolicyError> {
        match text {
            "0" => return Ok(KeyReuse::Never),
            "*" => return Ok(KeyReuse::Unlimited),
            word if word.eq_ignore_ascii_case("DISABLED") => return Ok(KeyReuse::Never),
            word if word.eq_ignore_ascii_case("UNLIMITED") => return Ok(KeyReuse::Unlimited),
            _ => {}
        }
        let refused = || PolicyError::Keyword { keyword: "KEYREUSE", value: text.to_owned() };
        let count = text.parse::<u32>().map_err(|_| refused())?;
        match count {
            0 => Ok(KeyReuse::Never),
            1..=KEY_REUSE_COUNT_MAX => Ok(KeyReuse::Count(count)),
            _ => Err(PolicyError::KeyReuseCount { count }),
        }
    }
}

/// Why a policy was refused. Always the administrator's turn, who finds the remedy in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is empty or longer than a queue's.
    Name {
        /// Bytes of the name.
        len: usize,
    },
    /// A list is longer than its limit.
    TooMany {
        /// The attribute.
        keyword: &'static str,
        /// How many were given.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// A name stands twice in one list.
    Twice {
        /// The attribute.
        keyword: &'static str,
        /// The doubled name.
        dn: String,
    },
    /// ENCALG without RECIP: such a message could not be opened by any reader.
    NoRecipient,
    /// RECIP without ENCALG.
    RecipientWithoutEncryption,
    /// RECIP names an X.509-SVID by its SPIFFE ID: it has ended before what is sealed for it is read.
    ShortLivedRecipient {
        /// The SPIFFE ID.
        dn: String,
    },
    /// KEYAWAY names who is not in RECIP.
    AwayWithoutRecipient {
        /// That name.
        dn: String,
    },
    /// SIGNER without SIGNALG.
    SignerWithoutSignature,
    /// AES-CBC without a signature and without WEAK(YES).
    WeakCipher {
        /// The cipher asked for.
        cipher: ContentCipher,
    },
    /// A recipient of an AES-CBC policy without a signature and of another policy.
    WeakRecipient {
        /// The recipient.
        dn: String,
        /// The other policy.
        other: String,
    },
    /// AES-CBC with a signature and without SIGNER.
    UnnamedSigners,
    /// A signer of such a policy has no certificate in the reader's ring.
    SignerNotInRing {
        /// The signer.
        dn: String,
        /// The ring's user.
        user: String,
    },
    /// The signers of such a policy have keys of different types or sizes, or of one that no device takes.
    SignersDiffer {
        /// One signer and its key.
        first: String,
        /// Another one.
        other: String,
    },
    /// A SIGNBATCH count out of range.
    SignBatchCount {
        /// The count asked for.
        count: u32,
    },
    /// SIGNBATCH above 1 without SIGNALG.
    SignBatchWithoutSignature,
    /// SIGNBATCH above 1 with a CBC cipher.
    SignBatchWithCbc,
    /// PQC(REQUIRED) without SIGNALG and ENCALG: messages would pass in clear.
    PqcWithoutProtection,
    /// PQC(REQUIRED) with KEYWRAP(OAEP), which is RSA's.
    PqcKeyWrap,
    /// PQC(REQUIRED) with AES-128.
    PqcCipher {
        /// The cipher asked for.
        cipher: ContentCipher,
    },
    /// KEYREUSE where each message needs a private-key operation anyway, or has no key at all.
    KeyReuse {
        /// The quality that the policy asks for.
        quality: Quality,
    },
    /// A KEYREUSE count out of range.
    KeyReuseCount {
        /// The count asked for.
        count: u32,
    },
    /// A BINDNAME that is not `QUEUE@QMGR`.
    BindName {
        /// The name given.
        name: String,
    },
    /// A word that the attribute does not know.
    Keyword {
        /// The attribute.
        keyword: &'static str,
        /// The word given.
        value: String,
    },
}

impl std::error::Error for PolicyError {}

impl fmt::Display for PolicyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Name { len } => {
                write!(out, "a policy's name has 1 to {POLICY_NAME_BYTES_MAX} characters, not {len}")
            }
            PolicyError::TooMany { keyword, count, max } => {
                write!(out, "{keyword} has {count} entries, more than the {max} allowed")
            }
            PolicyError::Twice { keyword, dn } => write!(out, "{keyword} names {dn} twice"),
            PolicyError::NoRecipient => {
                out.write_str("ENCALG needs at least one RECIP, or no reader can open the message")
            }
            PolicyError::RecipientWithoutEncryption => {
                out.write_str("RECIP needs ENCALG: a message that is not encrypted has no recipients")
            }
            PolicyError::ShortLivedRecipient { dn } => write!(
                out,
                "RECIP names {dn}: a certificate of an hour can't be a recipient of stored messages, a SPIFFE ID signs alone"
            ),
            PolicyError::AwayWithoutRecipient { dn } => write!(out, "KEYAWAY names {dn}, which is not in RECIP"),
            PolicyError::SignerWithoutSignature => {
                out.write_str("SIGNER needs SIGNALG: an unsigned message has no signer")
            }
            PolicyError::WeakCipher { cipher } => write!(
                out,
                "ENCALG({cipher}) without SIGNALG notices no change and binds nothing: add SIGNALG, use AES128 or AES256, or say WEAK(YES)"
            ),
            PolicyError::WeakRecipient { dn, other } => write!(
                out,
                "RECIP names {dn}, and so does policy {other}: a private key that opens AES-CBC without a signature \
                 opens nothing else"
            ),
            PolicyError::UnnamedSigners => out.write_str(
                "SIGNALG with a CBC cipher needs SIGNER: the signers, with keys of one type and size; or use AES128 or AES256",
            ),
            PolicyError::SignerNotInRing { dn, user } => write!(
                out,
                "SIGNALG with a CBC cipher needs the certificate of each SIGNER in the ring of {user}: {dn} has none there"
            ),
            PolicyError::SignersDiffer { first, other } => write!(
                out,
                "SIGNALG with a CBC cipher needs signers with keys of one type and size: {first}, {other}; or use \
                 AES128 or AES256"
            ),
            PolicyError::SignBatchCount { count } => {
                write!(out, "SIGNBATCH({count}) is not in 1 to {SIGN_BATCH_MAX}")
            }
            PolicyError::SignBatchWithoutSignature => {
                out.write_str("SIGNBATCH needs SIGNALG: there is no signature to share")
            }
            PolicyError::SignBatchWithCbc => out.write_str(
                "SIGNBATCH above 1 is for AES128 and AES256: with a CBC cipher each message needs a signature of its \
                 own",
            ),
            PolicyError::PqcWithoutProtection => {
                out.write_str("PQC(REQUIRED) needs SIGNALG or ENCALG: without them messages pass in clear")
            }
            PolicyError::PqcKeyWrap => {
                out.write_str("PQC(REQUIRED) has no RSA recipients, which is all that KEYWRAP(OAEP) takes")
            }
            PolicyError::PqcCipher { cipher } => {
                write!(out, "PQC(REQUIRED) needs ENCALG(AES256) or ENCALG(AES256CBC), not {cipher}")
            }
            PolicyError::KeyReuse { quality: Quality::Privacy | Quality::Integrity } => {
                out.write_str("KEYREUSE is for confidentiality only: drop SIGNALG or KEYREUSE")
            }
            PolicyError::KeyReuse { .. } => {
                out.write_str("KEYREUSE needs ENCALG: there is no content key to use again")
            }
            PolicyError::KeyReuseCount { count } => {
                write!(out, "KEYREUSE({count}) is not in 1 to {KEY_REUSE_COUNT_MAX}; use * for unlimited")
            }
            PolicyError::BindName { name } => {
                write!(out, "BINDNAME({name}) is not a destination: write QUEUE@QMGR")
            }
            PolicyError::Keyword { keyword, value } => {
                write!(out, "{keyword} has no value {value}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dn(text: &str) -> Dn {
        text.parse().unwrap()
    }

    fn refused(change: impl FnOnce(&mut Policy), text: &str) {
        let mut policy = Policy::new("ORDERS");
        change(&mut policy);
        assert_eq!(policy.check().unwrap_err().to_string(), text);
    }

    #[test]
    fn every_impossible_combination_is_refused_with_its_reason() {
        use ContentCipher::*;
        refused(|p| p.name.clear(), "a policy's name has 1 to 48 characters, not 0");
        refused(|p| p.encrypt = Some(Aes256Gcm), "ENCALG needs at least one RECIP, or no reader can open the message");
        refused(
            |p| p.recipients = vec![dn("CN=a")],
            "RECIP needs ENCALG: a message that is not encrypted has no recipients",
        );
        refused(|p| p.signers = vec![dn("CN=a")], "SIGNER needs SIGNALG: an unsigned message has no signer");
        refused(
            |p| {
                p.encrypt = Some(Aes128Cbc);
                p.recipients = vec![dn("CN=a")];
            },
            "ENCALG(AES128CBC) without SIGNALG notices no change and binds nothing: add SIGNALG, use AES128 or AES256, or say WEAK(YES)",
        );
        refused(
            |p| {
                p.sign = Some(SignatureDigest::Sha256);
                p.key_reuse = KeyReuse::Count(3);
            },
            "KEYREUSE is for confidentiality only: drop SIGNALG or KEYREUSE",
        );
        refused(|p| p.key_reuse = KeyReuse::Unlimited, "KEYREUSE needs ENCALG: there is no content key to use again");
        refused(
            |p| {
                p.encrypt = Some(Aes256Gcm);
                p.recipients = vec![dn("CN=a")];
                p.key_reuse = KeyReuse::Count(10_000_000);
            },
            "KEYREUSE(10000000) is not in 1 to 9999999; use * for unlimited",
        );
        refused(
            |p| {
                p.encrypt = Some(Aes256Gcm);
                p.recipients = vec![dn("CN=a"), dn("CN=b"), dn("CN=a")];
            },
            "RECIP names CN=a twice",
        );
        refused(|p| p.sign_batch = 64, "SIGNBATCH needs SIGNALG: there is no signature to share");
        for count in [0, 1025] {
            let text = format!("SIGNBATCH({count}) is not in 1 to 1024");
            refused(|p| (p.sign, p.sign_batch) = (Some(SignatureDigest::Sha256), count), &text);
        }
        refused(
            |p| {
                p.sign = Some(SignatureDigest::Sha256);
                p.encrypt = Some(Aes256Cbc);
                p.recipients = vec![dn("CN=a")];
                p.sign_batch = 2;
            },
            "SIGNBATCH above 1 is for AES128 and AES256: with a CBC cipher each message needs a signature of its own",
        );
        refused(|p| p.bind_names = vec!["ORDERS".into()], "BINDNAME(ORDERS) is not a destination: write QUEUE@QMGR");
    }

    #[test]
    fn ten_thousand_recipients_or_signers_are_refused() {
        let many: Vec<Dn> = (0..10_000).map(|n| dn(&format!("CN=user{n}"))).collect();
        refused(
            |p| {
                p.encrypt = Some(ContentCipher::Aes256Gcm);
                p.recipients = many.clone();
            },
            "RECIP has 10000 entries, more than the 256 allowed",
        );
        refused(
            |p| {
                p.sign = Some(SignatureDigest::Sha256);
                p.signers = many.clone();
            },
            "SIGNER has 10000 entries, more than the 256 allowed",
        );
    }

    #[test]
    fn cbc_without_a_signature_is_accepted_when_called_weak_and_then_binds_nothing() {
        let mut policy = Policy::new("ORDERS");
        policy.encrypt = Some(ContentCipher::Aes256Cbc);
        policy.recipients = vec![dn("CN=a")];
        policy.weak = true;
        policy.check().unwrap();
        assert!(!policy.requires_binding());
    }

    #[test]
    fn a_recipient_of_a_weak_policy_is_none_of_another() {
        let policy = |name: &str, cipher, recipient: &str| Policy {
            encrypt: Some(cipher),
            recipients: vec![dn(recipient)],
            ..Policy::new(name)
        };
        let weak = policy("WEAK", ContentCipher::Aes256Cbc, "CN=a");
        let strong = policy("STRONG", ContentCipher::Aes256Gcm, "CN=a");
        let signed =
            Policy { sign: Some(SignatureDigest::Sha256), ..policy("SIGNED", ContentCipher::Aes256Cbc, "CN=a") };
        for other in [&strong, &signed] {
            let text = format!(
                "RECIP names CN=a, and so does policy {}: a private key that opens AES-CBC without a signature \
                 opens nothing else",
                other.name
            );
            assert_eq!(weak.check_beside(other).unwrap_err().to_string(), text);
            other.check_beside(&weak).unwrap_err();
        }
        strong.check_beside(&signed).unwrap();
        weak.check_beside(&policy("OLD", ContentCipher::Aes128Cbc, "CN=a")).unwrap();
        weak.check_beside(&policy("OTHER", ContentCipher::Aes256Gcm, "CN=b")).unwrap();
        // It takes the place of the one of its name.
        weak.check_beside(&policy("WEAK", ContentCipher::Aes256Gcm, "CN=a")).unwrap();
    }

    #[test]
    fn each_keyword_reads_back_as_itself() {
        fn all<T: FromStr<Err = PolicyError> + Copy + PartialEq + fmt::Debug + fmt::Display>(values: &[T]) {
            for value in values {
                assert_eq!(value.to_string().parse::<T>().unwrap(), *value);
                assert_eq!(value.to_string().to_lowercase().parse::<T>().unwrap(), *value);
            }
        }
        all(ContentCipher::ALL);
        all(Toleration::ALL);
        all(Bind::ALL);
        all(OnDefect::ALL);
        all(SealedAt::ALL);
        all(SignatureScheme::ALL);
        all(KeyTransport::ALL);
        all(Revocation::ALL);
        all(Pqc::ALL);
        all(&[KeyReuse::Never, KeyReuse::Count(7), KeyReuse::Unlimited]);
        assert_eq!("ROT13".parse::<ContentCipher>().unwrap_err().to_string(), "ENCALG has no value ROT13");
    }

    #[test]
    fn the_quality_follows_from_what_is_asked() {
        let mut policy = Policy::new("Q");
        assert_eq!(policy.quality(), Quality::None);
        policy.sign = Some(SignatureDigest::Sha384);
        assert_eq!(policy.quality(), Quality::Integrity);
        policy.encrypt = Some(ContentCipher::Aes128Gcm);
        assert_eq!(policy.quality(), Quality::Privacy);
        policy.sign = None;
        assert_eq!(policy.quality(), Quality::Confidentiality);
    }
}
