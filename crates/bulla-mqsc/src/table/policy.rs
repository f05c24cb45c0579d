//! The table's attributes of policies.

use super::{Attribute, KEY_REUSE_MAX, Key, Kind, V1, attribute, shown, words};

const BROKEN_DIGEST: &str = "its collisions are practical: a signature over it proves nothing";
const SHORT_BLOCK: &str = "its 64-bit blocks leak payload after a few gigabytes and its key is too short";

pub(crate) static SIGNALG: Attribute = attribute(
    Key::SignatureDigest,
    "SIGNALG",
    Kind::Word {
        choices: &["NONE", "SHA256", "SHA384", "SHA512"],
        refused: &[("MD5", BROKEN_DIGEST), ("SHA1", BROKEN_DIGEST)],
    },
    "NONE",
    "Digest of the signature; NONE for no signature.",
);
pub(crate) static ENCALG: Attribute = attribute(
    Key::ContentCipher,
    "ENCALG",
    Kind::Word {
        choices: &["NONE", "AES128", "AES256", "AES128CBC", "AES256CBC"],
        refused: &[
            ("RC2", "it is broken by related keys and offered at 40 bits"),
            ("DES", "its 56-bit key is searched in hours"),
            ("3DES", SHORT_BLOCK),
        ],
    },
    "NONE",
    "Cipher of the payload; NONE for none. AES128 and AES256 are GCM. The CBC forms are for partners that know nothing \
     newer, and want a signature with SIGNER too, or WEAK(YES). Signers under CBC have keys of one type and size, and \
     each reader's ring holds their certificates.",
);
pub(crate) static SIGNER: Attribute = Attribute {
    key: Key::Signer,
    keyword: "SIGNER",
    synonyms: &["SIGN"],
    kind: Kind::DistinguishedNames,
    default: "any",
    doc: "Who may sign, compared with the certificate's subject exactly: attribute names in upper case, the \
        certificate's order. Repeatable. Without one, any signer whose chain is valid. Only with SIGNALG.",
    since: V1,
};
pub(crate) static RECIP: Attribute = attribute(
    Key::Recipient,
    "RECIP",
    Kind::DistinguishedNames,
    "none",
    "Who may open, written like SIGNER. Repeatable. ENCALG needs at least one.",
);
pub(crate) static KEYREUSE: Attribute = attribute(
    Key::KeyReuse,
    "KEYREUSE",
    Kind::Reuse { max: KEY_REUSE_MAX },
    "DISABLED",
    "How many more messages of one open handle use the same content key: 0 or DISABLED for none, a number, or * or \
     UNLIMITED until the handle closes. Only with ENCALG and without SIGNALG.",
);
pub(crate) static TOLERATION: Attribute = attribute(
    Key::Toleration,
    "TOLERATION",
    Kind::Switch(&["ENFORCE", "TOLERATE"]),
    "ENFORCE",
    "A clear message on the protected queue goes to the error queue, or, while protection is being rolled out, is \
     delivered and counted. A defective seal is never tolerated. Written as the bare word.",
);
pub(crate) static BINDNAME: Attribute = attribute(
    Key::BindName,
    "BINDNAME",
    Kind::Destinations,
    "none",
    "Further destinations that a message may be bound to, each written QUEUE@QMGR, beside the queue that the opened \
     name resolves to.",
);
pub(crate) static BIND: Attribute = attribute(
    Key::Bind,
    "BIND",
    words(&["REQUIRED", "NONE"]),
    "REQUIRED",
    "Whether a message must be bound to this queue. NONE opens other people's CMS, which can then be moved from queue \
     to queue unseen.",
);
pub(crate) static WEAK: Attribute = attribute(
    Key::Weak,
    "WEAK",
    words(&["YES", "NO"]),
    "NO",
    "YES allows a CBC cipher without a signature: a user who can write to the queue can then change messages. Its \
     recipients are in RECIP of no other policy.",
);
pub(crate) static ONDEFECT: Attribute = attribute(
    Key::OnDefect,
    "ONDEFECT",
    words(&["AUTO", "CONTINUE", "DETACH"]),
    "AUTO",
    "After a defective message was moved away: go on with the next one, or end the getter's link with 2063. AUTO goes \
     on for links with credit above one.",
);
pub(crate) static SEALEDAT: Attribute = attribute(
    Key::SealedAt,
    "SEALEDAT",
    words(&["ANY", "CLIENT"]),
    "ANY",
    "CLIENT: only applications seal and open, the queue manager does so for no user.",
);
pub(crate) static SIGNPAD: Attribute = attribute(
    Key::SignaturePadding,
    "SIGNPAD",
    words(&["PKCS1", "PSS"]),
    "PKCS1",
    "Padding of RSA signatures that are made.",
);
pub(crate) static KEYWRAP: Attribute = attribute(
    Key::KeyWrap,
    "KEYWRAP",
    words(&["AUTO", "OAEP", "PKCS1"]),
    "AUTO",
    "How the content key reaches a recipient. AUTO: by the recipient's key, RSA-OAEP or ECDH. OAEP: only that, so a \
     recipient with an EC key cannot be served. PKCS1 is for partners that know nothing newer.",
);
pub(crate) static REVOCATION: Attribute = attribute(
    Key::Revocation,
    "REVOCATION",
    words(&["NONE", "IFPRESENT", "REQUIRED"]),
    "IFPRESENT",
    "What is asked of revocation lists before a certificate is believed. IFPRESENT: what the lists in the key ring \
     say; an authority without a list is not asked. REQUIRED: a current list about each certificate of the path but \
     the root; without one a put is refused and a message stays, with cause crl-missing. NONE: nothing. A key ring has \
     the same setting (`bulla cert set`), and the stricter one counts.",
);
pub(crate) static QUALITY: Attribute = shown(
    Key::Quality,
    "QUALITY",
    "What it comes to: NONE, INTEGRITY, PRIVACY or CONFIDENTIALITY; UNBOUND is added where a cipher alone proves \
     nothing.",
);

/// What SET POLICY and CHECK POLICY take.
pub(crate) const POLICY: &[&Attribute] = &[
    &SIGNALG,
    &ENCALG,
    &SIGNER,
    &RECIP,
    &KEYREUSE,
    &TOLERATION,
    &BINDNAME,
    &BIND,
    &WEAK,
    &ONDEFECT,
    &SEALEDAT,
    &SIGNPAD,
    &KEYWRAP,
    &REVOCATION,
];
