//! POLICY: how messages put by a name are sealed, and what is taken for sealed when they are got.

use super::noun::verb;
use super::queues::type_of;
use super::{Field, ObjectNoun, Rules, Said, attributes, joined};
use crate::attributes::clamped;
use crate::parse::{Setting, Statement, Value};
use crate::reply::{Cell, Failure, FailureKind};
use crate::rows::wanted;
use crate::run::{Administered, invalid, unknown};
use crate::table::{
    Act, Attribute, Command, DISPLAY_OPTIONS, DN_CHARS_MAX, Defining, Doing, KEY_REUSE_MAX, Key, Kind, NameUse, V1,
    attribute, shown, words,
};
use bulla_catalog::system_queues::SYSTEM_PREFIX;
use bulla_catalog::{DEPTH_MAX, Definitions, Sort};
use bulla_seal::policy::{KeyReuse, Pqc, Quality, RECIPIENTS_MAX, SIGN_BATCH_MAX, SIGNERS_MAX, SignatureDigest};
use bulla_seal::{Dn, Policy};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

const WORD: &str = "POLICY";
const OBJECT: &str = "policy";
/// Of SIGNALG and ENCALG.
const NONE: &str = "NONE";

const BROKEN_DIGEST: &str = "its collisions are practical: a signature over it proves nothing";
const SHORT_BLOCK: &str = "its 64-bit blocks leak payload after a few gigabytes and its key is too short";

pub(super) static POLICY: ObjectNoun<Arc<Policy>> =
    ObjectNoun { word: WORD, short: &[], many: "policies", place: 9, fields: &[SHOWN, FIELDS], commands: &COMMANDS };

/// What only DISPLAY has.
static SHOWN: &[Field<Arc<Policy>>] = &[Field::shown(
    "QUALITY",
    "What it comes to: NONE, INTEGRITY, PRIVACY or CONFIDENTIALITY. UNBOUND is added where a cipher alone proves \
     nothing, POST-QUANTUM under PQC(REQUIRED), and AS WEAKEST RECIPIENT under PQC(ALLOWED) with ENCALG: each \
     recipient opens alone, so one RSA or EC key is enough. WEAKEST names it.",
    |of| Cell::Text(quality(of)),
)];

/// What only DISPLAY has, and depends on the key rings.
static WEAKEST: Attribute = shown(
    Key::Own("WEAKEST"),
    "WEAKEST",
    "Under PQC(ALLOWED) with ENCALG: the recipient's key that opens its messages most easily, as rsa2048 of \
     CN=billing. It is taken from the certificates in the key rings here by name, use and dates, as sealing would take \
     them, RSA and EC before ML-KEM; whether one is believed or revoked, CHECK POLICY asks. Found within two seconds \
     of a change. Empty where no ring that can be read has a recipient's certificate.",
);

static SIGNER: Attribute = Attribute {
    key: Key::Own("SIGNER"),
    keyword: "SIGNER",
    synonyms: &["SIGN"],
    kind: Kind::DistinguishedNames,
    default: "any",
    doc: "Who may sign, compared with the certificate's subject exactly: attribute names in upper case, the \
        certificate's order. Or the SPIFFE ID of an X.509-SVID, as spiffe://example.org/orders, whose authority the \
        reader's ring has for that trust domain; an SVID has no subject here. Repeatable. Without one, any signer \
        whose chain is valid. Only with SIGNALG.",
    since: V1,
};

static FIELDS: &[Field<Arc<Policy>>] = &[
    Field::new(
        "SIGNALG",
        Kind::Word {
            choices: &["NONE", "SHA256", "SHA384", "SHA512"],
            refused: &[("MD5", BROKEN_DIGEST), ("SHA1", BROKEN_DIGEST)],
        },
        "NONE",
        "Digest of the signature; NONE for no signature.",
        |of| Cell::word(of.sign.map_or(NONE, digest_word)),
        |of, value| Arc::make_mut(of).sign = digest(value.word()),
    ),
    Field::new(
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
        "Cipher of the payload; NONE for none. AES128 and AES256 are GCM. The CBC forms are for partners that know \
         nothing newer, and want a signature with SIGNER too, or WEAK(YES). Signers under CBC have keys of one type \
         and size, and each reader's ring holds their certificates.",
        |of| Cell::word(of.encrypt.map_or(NONE, |cipher| cipher.as_str())),
        |of, value| Arc::make_mut(of).encrypt = value.word().parse().ok(),
    ),
    Field::shared(&SIGNER, |of| names(&of.signers), |of, value| Arc::make_mut(of).signers = known(value)),
    Field::new(
        "RECIP",
        Kind::DistinguishedNames,
        "none",
        "Who may open, a subject written as in SIGNER. Repeatable. ENCALG needs at least one.",
        |of| names(&of.recipients),
        |of, value| Arc::make_mut(of).recipients = known(value),
    ),
    Field::new(
        "KEYAWAY",
        Kind::DistinguishedNames,
        "none",
        "Recipients of RECIP whose private key is not in a key ring here, and is not to be: they open for themselves, \
         or elsewhere. Nothing warns of messages that no key here opens but theirs.",
        |of| names(&of.away),
        |of, value| Arc::make_mut(of).away = known(value),
    ),
    Field::new(
        "KEYREUSE",
        Kind::Reuse { max: KEY_REUSE_MAX },
        "DISABLED",
        "How many more messages of one open handle use the same content key: 0 or DISABLED for none, a number, or * or \
         UNLIMITED until the handle closes. Only with ENCALG and without SIGNALG.",
        |of| key_reuse(of),
        |of, value| {
            Arc::make_mut(of).key_reuse = match value {
                Value::Number(0) => KeyReuse::Never,
                Value::Number(count) => KeyReuse::Count(clamped(*count)),
                _ => KeyReuse::Unlimited,
            }
        },
    ),
    Field::new(
        "SIGNBATCH",
        Kind::Number { min: 1, max: SIGN_BATCH_MAX as u64 },
        "1",
        "How many messages one signature may prove, 1 to 1024: those that wait to be signed when the device is free. A \
         message that waits alone has a signature of its own. Where it is 1 every message has, and a reader refuses \
         those that share one. Only with SIGNALG, and not with a CBC cipher.",
        |of| Cell::Number(of.sign_batch.into()),
        |of, value| Arc::make_mut(of).sign_batch = clamped(value.number()).max(1),
    ),
    Field::new(
        "TOLERATION",
        Kind::Switch(&["ENFORCE", "TOLERATE"]),
        "ENFORCE",
        "A clear message on the protected queue goes to the error queue, or, while protection is being rolled out, is \
         delivered and counted. A defective seal is never tolerated. Written as the bare word.",
        |of| Cell::word(of.toleration.as_str()),
        |of, value| take(&mut Arc::make_mut(of).toleration, value),
    ),
    Field::new(
        "BINDNAME",
        Kind::Destinations,
        "none",
        "Further destinations that a message may be bound to, each written QUEUE@QMGR, beside the queue that the \
         opened name resolves to.",
        |of| Cell::List(of.bind_names.clone()),
        |of, value| Arc::make_mut(of).bind_names = value.list().to_vec(),
    ),
    Field::new(
        "BIND",
        words(&["REQUIRED", "NONE"]),
        "REQUIRED",
        "Whether a message must be bound to this queue. NONE opens other people's CMS, which can then be moved from \
         queue to queue unseen.",
        |of| Cell::word(of.bind.as_str()),
        |of, value| take(&mut Arc::make_mut(of).bind, value),
    ),
    Field::new(
        "WEAK",
        words(&["YES", "NO"]),
        "NO",
        "YES allows a CBC cipher without a signature: a user who can write to the queue can then change messages. Its \
         recipients are in RECIP of no other policy.",
        |of| Cell::word(if of.weak { "YES" } else { "NO" }),
        |of, value| Arc::make_mut(of).weak = value.word() == "YES",
    ),
    Field::new(
        "ONDEFECT",
        words(&["AUTO", "CONTINUE", "DETACH"]),
        "AUTO",
        "After a defective message was moved away: go on with the next one, or end the getter's link with 2063. AUTO \
         goes on for links with credit above one.",
        |of| Cell::word(of.on_defect.as_str()),
        |of, value| take(&mut Arc::make_mut(of).on_defect, value),
    ),
    Field::new(
        "SEALEDAT",
        words(&["ANY", "CLIENT"]),
        "ANY",
        "CLIENT: only applications seal and open, the queue manager does so for no user.",
        |of| Cell::word(of.sealed_at.as_str()),
        |of, value| take(&mut Arc::make_mut(of).sealed_at, value),
    ),
    Field::new(
        "SIGNPAD",
        words(&["PKCS1", "PSS"]),
        "PKCS1",
        "Padding of RSA signatures that are made.",
        |of| Cell::word(of.signature_scheme.as_str()),
        |of, value| take(&mut Arc::make_mut(of).signature_scheme, value),
    ),
    Field::new(
        "KEYWRAP",
        words(&["AUTO", "OAEP", "PKCS1"]),
        "AUTO",
        "How the content key reaches a recipient. AUTO: by the recipient's key, RSA-OAEP or ECDH. OAEP: only that, so \
         a recipient with an EC key cannot be served. PKCS1 is for partners that know nothing newer.",
        |of| Cell::word(of.key_transport.as_str()),
        |of, value| take(&mut Arc::make_mut(of).key_transport, value),
    ),
    Field::new(
        "REVOCATION",
        words(&["NONE", "IFPRESENT", "REQUIRED"]),
        "IFPRESENT",
        "What is asked of revocation lists before a certificate is believed. IFPRESENT: what the lists in the key ring \
         say; an authority without a list is not asked. REQUIRED: a current list about each certificate of the path \
         but the root; without one a put is refused and a message stays, with cause crl-missing. NONE: nothing. A key \
         ring has the same setting (`bulla cert set`), and the stricter one counts.",
        |of| Cell::word(of.revocation.as_str()),
        |of, value| take(&mut Arc::make_mut(of).revocation, value),
    ),
    Field::new(
        "PQC",
        words(&["NONE", "ALLOWED", "REQUIRED"]),
        "NONE",
        "Whether keys that withstand a quantum computer sign (ML-DSA) and are recipients (ML-KEM). NONE: RSA and \
         elliptic curves alone. ALLOWED: such a key where a signer or recipient has one, else RSA or EC; as each \
         recipient opens the message alone, it is as strong as the weakest, and with a CBC cipher RSA and EC keys sign \
         before others. REQUIRED: nothing else is sealed or \
         opened. ML-KEM needs ENCALG(AES256) or AES256CBC, ML-DSA-65 a SIGNALG of SHA384 or SHA512, ML-DSA-87 SHA512.",
        |of| Cell::word(of.pqc.as_str()),
        |of, value| take(&mut Arc::make_mut(of).pqc, value),
    ),
];

static OF_QUALITY: &[&Attribute] = attributes!(SHOWN);
static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);
static DISPLAYED: &[&Attribute] = joined![OF_QUALITY, &[&WEAKEST], ATTRIBUTES];

static ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["REPLACE", "ADD", "REMOVE"]),
    "REPLACE",
    "REPLACE writes the policy anew. ADD and REMOVE change the lists of signers and recipients of an existing one, and \
     nothing else.",
);

static LOOKED: Attribute = attribute(
    Key::Looked,
    "MESSAGES",
    Kind::Number { min: 0, max: DEPTH_MAX },
    "1000",
    "Look at so many messages of the queue, which takes a private-key operation for each encrypted one and reader.",
);

static COMMANDS: [Command; 4] = [
    verb(
        ("SET", WORD, OBJECT),
        Act::Defines(Defining::Set(Sort::Policy)),
        NameUse::One,
        &[&ACTION],
        ATTRIBUTES,
        Said {
            summary: "Set the policy of the queue or alias of that name: how messages put by that name are sealed, and \
             what is taken for sealed when they are got.",
            examples: &[
                "SET POLICY(ORDERS) SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Demo') \
                 RECIP('CN=billing,O=Demo')",
                "SET POLICY(FAST) ENCALG(AES256) KEYREUSE(64) RECIP('CN=billing,O=Demo', 'CN=audit,O=Demo') TOLERATE",
                "SET POLICY(ORDERS) ACTION(ADD) RECIP('CN=archive,O=Demo')",
            ],
        },
    ),
    verb(
        ("CHECK", WORD, OBJECT),
        Act::Does(Doing::CheckPolicy),
        NameUse::One,
        &[&LOOKED],
        ATTRIBUTES,
        Said {
            summary: "Try a policy and change nothing: whose keys and certificates fit, lengths of sealed messages, \
             and what becomes of the messages now on the queue. Without attributes the policy that is set, with them \
             such a one, which takes the role ALL. `bulla policy check` prints it for people, with its cost.",
            examples: &[
                "CHECK POLICY(ORDERS)",
                "CHECK POLICY(ORDERS) MESSAGES(0) SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=billing,O=Demo')",
            ],
        },
    ),
    verb(
        ("DELETE", WORD, OBJECT),
        Act::Defines(Defining::Delete(Sort::Policy)),
        NameUse::One,
        &[],
        &[],
        Said {
            summary: "Delete a policy. Messages sealed under it stay sealed.",
            examples: &["DELETE POLICY(ORDERS)"],
        },
    ),
    verb(
        ("DISPLAY", WORD, OBJECT),
        Act::Does(Doing::Display(Sort::Policy)),
        NameUse::Generic,
        DISPLAY_OPTIONS,
        DISPLAYED,
        Said {
            summary: "Show policies.",
            examples: &["DISPLAY POLICY(ORDERS)", "DIS POLICY(*) WHERE(RECIP CT 'CN=billing,O=Demo')"],
        },
    ),
];

impl Rules for Arc<Policy> {
    const DONE: [&str; 3] = ["set", "replaced", "deleted"];

    fn begin(statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        let name = &statement.name.stem;
        if name.starts_with(SYSTEM_PREFIX) {
            let hint = "an alias of another name can have one";
            return Err(invalid("the queue manager's own queues carry no policy", Some(hint)));
        }
        match adds_or_removes(statement) {
            Some(_) => like.cloned().ok_or_else(|| unknown(OBJECT, name)),
            None => Ok(Arc::new(Policy::new(name.clone()))),
        }
    }

    /// ACTION(ADD) and ACTION(REMOVE): more or fewer signers and recipients. Who is no recipient any more is none with
    /// a key elsewhere either.
    fn take_over(&mut self, statement: &Statement) -> Result<bool, Failure> {
        let Some(add) = adds_or_removes(statement) else { return Ok(false) };
        let policy = Arc::make_mut(self);
        for setting in statement.settings.iter().filter(|setting| setting.attribute.key != Key::Action) {
            let keyword = setting.attribute.keyword;
            let list = match keyword {
                "SIGNER" => &mut policy.signers,
                "RECIP" => &mut policy.recipients,
                "KEYAWAY" => &mut policy.away,
                _ => {
                    let lists = "SIGNER, RECIP and KEYAWAY only";
                    let message = format!("ACTION(ADD) and ACTION(REMOVE) change {lists}, not {keyword}");
                    return Err(invalid(message, None));
                }
            };
            for dn in distinguished_names(setting)? {
                // Beyond its limit the list is refused anyway; comparing with each entry would go on for long.
                if list.len() > RECIPIENTS_MAX.max(SIGNERS_MAX) {
                    break;
                }
                match (list.iter().position(|listed| *listed == dn), add) {
                    (None, true) => list.push(dn),
                    (Some(index), false) => drop(list.remove(index)),
                    (Some(_), true) => {} // as often as one likes: the outcome is what was asked for
                    (None, false) => return Err(not_listed(keyword, &dn)),
                }
            }
        }
        if !add {
            let Policy { recipients, away, .. } = policy;
            away.retain(|dn| recipients.contains(dn));
        }
        Ok(true)
    }

    fn check_setting(&self, setting: &Setting) -> Result<(), Failure> {
        match setting.attribute.kind {
            Kind::DistinguishedNames => distinguished_names(setting).map(drop),
            _ => Ok(()),
        }
    }

    fn check(&self, _name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        Policy::check(self).map_err(|error| invalid(error, None))
    }

    fn check_command(&self, definitions: &Definitions) -> Result<(), Failure> {
        self.check_signers().map_err(|error| invalid(error, None))?;
        for other in definitions.policies.values() {
            self.check_beside(other).map_err(|error| {
                let hint = "give one of the two policies a recipient of its own, with a key of its own";
                invalid(error, Some(hint))
            })?;
        }
        Ok(())
    }

    fn forewarnings(&self, name: &str, definitions: &Definitions) -> Vec<String> {
        let is_missing = type_of(name, definitions).is_none();
        is_missing.then(|| format!("there is no queue {name} yet")).into_iter().collect()
    }

    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        wanted(statement, false)
    }

    fn status<'a>(name: &'a str, target: &'a dyn Administered) -> Box<dyn Fn(Key) -> Option<Cell> + 'a> {
        Box::new(move |key| (key == WEAKEST.key).then(|| Cell::Text(target.weakest_recipient(name))))
    }
}

/// The policy that the command describes, whatever is set.
///
/// # Errors
/// It makes no sense.
pub(crate) fn proposed(statement: &Statement) -> Result<Arc<Policy>, Failure> {
    let mut policy = Arc::new(Policy::new(statement.name.stem.clone()));
    POLICY.take_over(&mut policy, statement)?;
    Policy::check(&policy).map_err(|error| invalid(error, None))?;
    Ok(policy)
}

/// The policy as one command on one line, every attribute written out.
pub(crate) fn text(policy: &Arc<Policy>) -> String {
    POLICY.line(&policy.name, policy)
}

/// What it comes to, in a word or two.
pub(crate) fn quality(policy: &Policy) -> String {
    let quality = match policy.quality() {
        Quality::None => "NONE",
        Quality::Integrity => "INTEGRITY",
        Quality::Privacy => "PRIVACY",
        Quality::Confidentiality => "CONFIDENTIALITY",
    };
    let is_unbound = policy.encrypt.is_some() && !policy.can_bind();
    let against_quantum_computers = match policy.pqc {
        Pqc::Required if policy.quality() != Quality::None => " POST-QUANTUM",
        Pqc::Allowed if policy.encrypt.is_some() => " AS WEAKEST RECIPIENT",
        _ => "",
    };
    format!("{quality}{}{against_quantum_computers}", if is_unbound { " UNBOUND" } else { "" })
}

/// KEYREUSE as it is shown.
pub(crate) fn key_reuse(policy: &Policy) -> Cell {
    match policy.key_reuse {
        KeyReuse::Never => Cell::word("DISABLED"),
        KeyReuse::Count(count) => Cell::Number(count.into()),
        KeyReuse::Unlimited => Cell::word("UNLIMITED"),
    }
}

/// True for ACTION(ADD), false for ACTION(REMOVE), none for a policy that is written anew.
fn adds_or_removes(statement: &Statement) -> Option<bool> {
    let add = statement.says(Key::Action, "ADD");
    (add || statement.says(Key::Action, "REMOVE")).then_some(add)
}

fn not_listed(keyword: &str, dn: &Dn) -> Failure {
    let message = format!("the policy has no {keyword}('{dn}')");
    Failure { kind: FailureKind::Refused, reason: None, message, hint: None }
}

/// One of the table's words, each of which stands for a value.
fn take<T: FromStr>(field: &mut T, value: &Value) {
    if let Ok(known) = value.word().parse() {
        *field = known;
    }
}

const DIGESTS: [(&str, SignatureDigest); 3] =
    [("SHA256", SignatureDigest::Sha256), ("SHA384", SignatureDigest::Sha384), ("SHA512", SignatureDigest::Sha512)];

/// None for NONE.
fn digest(word: &str) -> Option<SignatureDigest> {
    DIGESTS.iter().find(|(known, _)| *known == word).map(|(_, digest)| *digest)
}

fn digest_word(digest: SignatureDigest) -> &'static str {
    DIGESTS.iter().find(|(_, known)| *known == digest).map_or(NONE, |(word, _)| word)
}

fn names(list: &[Dn]) -> Cell {
    Cell::List(list.iter().map(ToString::to_string).collect())
}

/// Names that have been checked.
fn known(value: &Value) -> Vec<Dn> {
    value.list().iter().filter_map(|text| Dn::of_signer(text).ok()).collect()
}

fn distinguished_names(setting: &Setting) -> Result<Vec<Dn>, Failure> {
    let keyword = setting.attribute.keyword;
    let parse = |text: &String| {
        let refused =
            |why: &dyn Display| invalid(format_args!("{keyword}('{text}') is not a distinguished name: {why}"), None);
        let dn = Dn::of_signer(text).map_err(|error| refused(&error))?;
        // It is kept in its canonical form, which may be longer than what was typed and must be read back.
        let canonical = dn.to_string();
        if canonical.chars().count() > DN_CHARS_MAX {
            return Err(refused(&format_args!("written out it has more than {DN_CHARS_MAX} characters")));
        }
        if canonical.chars().any(char::is_control) {
            return Err(refused(&"it holds control characters"));
        }
        Ok(dn)
    };
    setting.value.list().iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_that_an_attribute_takes_is_shown_as_it_was_set() {
        for field in FIELDS {
            let (Kind::Word { choices, .. } | Kind::Switch(choices)) = &field.attribute().kind else { continue };
            for word in *choices {
                let mut policy = Arc::new(Policy::new("P"));
                (field.set)(&mut policy, &Value::Word(word));
                assert_eq!((field.get)(&policy), Cell::word(word), "{}", field.attribute().keyword);
            }
        }
    }
}
