//! Users' key rings that messages of a group of shared queues are sealed and opened with.
//!
//! Rings are each member's own. The owner of a group says in notes of the group's log whose rings it uses, with the
//! names of their keys and never the keys. Another member compares that with its own rings before it takes over.

use crate::catalog::names::is_user_name;
use crate::catalog::{Definitions, Destination, Protection, Usage};
use bulla_catalog::authority::{ObjectType, Right};
use bulla_seal::policy::{Quality, SealedAt};
use bulla_seal::ring::Ring;
use bulla_seal::{Dn, Policy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What the names of the notes begin with; the user follows.
pub const PREFIX: &str = "group.ring.";
/// Rings that are told of, and that are looked for, by the names of their users. Those beyond are not.
pub const RINGS_MAX: usize = 1_000;
/// Keys of one ring that are told of: the newest.
const KEYS_MAX: usize = 16;
/// Longest note that is read, in bytes.
const NOTE_BYTES_MAX: usize = 32 << 10;
/// Longest subject that is read, in bytes.
const SUBJECT_BYTES_MAX: usize = 1_024;
/// Longest serial number or digest that is read, in hexadecimal characters.
const HEX_CHARS_MAX: usize = 128;

/// A private key of a ring, as its certificate names it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RingKey {
    /// The name that the certificate goes by.
    pub subject: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Its SHA-256, hexadecimal.
    pub fingerprint: String,
}

/// Rings by user: their keys.
pub type GroupRings = BTreeMap<String, Vec<RingKey>>;

/// What the owner says, by the notes of the group's log. What can't be read of a note counts as no key: the ring itself
/// is looked for all the same.
pub fn read<'a>(notes: impl Iterator<Item = (&'a str, &'a [u8])>) -> GroupRings {
    let users = notes.filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)));
    let rings = users.filter(|(user, _)| is_user_name(user)).take(RINGS_MAX);
    rings.map(|(user, value)| (user.to_owned(), read_keys(value))).collect()
}

fn read_keys(value: &[u8]) -> Vec<RingKey> {
    let value = value.get(..NOTE_BYTES_MAX.min(value.len())).unwrap_or_default();
    let content: Value = serde_json::from_slice(value).unwrap_or_default();
    let keys = content.get("keys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |key: &Value, field: &str, is_right: &dyn Fn(&str) -> bool| {
        key.get(field).and_then(Value::as_str).filter(|text| is_right(text)).map(str::to_owned)
    };
    // Who can write to the log writes what an administrator's terminal shows.
    let is_name = |text: &str| text.len() <= SUBJECT_BYTES_MAX && !text.chars().any(char::is_control);
    let is_hex = |text: &str| text.len() <= HEX_CHARS_MAX && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let read = |key: &Value| {
        let (subject, serial) = (text(key, "subject", &is_name)?, text(key, "serial", &is_hex)?);
        Some(RingKey { subject, serial, fingerprint: text(key, "fingerprint", &is_hex)? })
    };
    keys.iter().take(KEYS_MAX).filter_map(read).collect()
}

/// The name of a user's note.
pub fn note_name(user: &str) -> String {
    format!("{PREFIX}{user}")
}

/// The note that says which keys a ring has.
pub fn note(keys: &[RingKey]) -> Vec<u8> {
    let key = |RingKey { subject, serial, fingerprint }: &RingKey| json!({ "subject": subject, "serial": serial, "fingerprint": fingerprint });
    json!({ "keys": keys.iter().map(key).collect::<Vec<_>>() }).to_string().into_bytes()
}

/// The keys of a ring that are told of, in a fixed order.
pub fn keys_of(ring: &Ring) -> Vec<RingKey> {
    let mut own: Vec<_> = ring.own().iter().map(|own| &own.certificate).collect();
    own.sort_by_key(|certificate| std::cmp::Reverse((certificate.not_before(), *certificate.fingerprint())));
    let mut keys: Vec<RingKey> = own
        .into_iter()
        .take(KEYS_MAX)
        .map(|certificate| RingKey {
            subject: certificate.dn().to_string(),
            serial: certificate.serial_hex(),
            fingerprint: base16ct::lower::encode_string(certificate.fingerprint()),
        })
        .collect();
    keys.sort_unstable();
    keys
}

/// What a ring lacks of these keys, or why it can't be used for new messages; none where it will do. A ring whose
/// certificates have all ended can't seal.
pub fn lacking(ring: &Ring, keys: &[RingKey], now: SystemTime) -> Option<String> {
    let own = || ring.own().iter().map(|own| &own.certificate);
    let has = |key: &RingKey| {
        own().any(|certificate| base16ct::lower::encode_string(certificate.fingerprint()) == key.fingerprint)
    };
    let mut lacks = keys.iter().filter(|key| !has(key));
    if let Some(RingKey { subject, serial, .. }) = lacks.next() {
        return Some(match lacks.count() {
            0 => format!("its ring lacks the key {serial} of {subject}"),
            more => format!("its ring lacks the key {serial} of {subject}, and {more} more"),
        });
    }
    let ended = own().max_by_key(|certificate| certificate.not_after()).filter(|last| last.not_after() < now)?;
    Some(format!("the certificate of {} has expired", ended.dn()))
}

/// Whose ring a way by which messages go is for.
#[derive(Debug)]
enum By {
    /// Users who may put by the name.
    Putters,
    /// Users who may get or browse by it.
    Getters,
    /// The user of a channel.
    Channel(String),
}

/// A way by which messages of the group are sealed or opened.
#[derive(Debug)]
struct Way {
    name: String,
    by: By,
    /// The keys that do it; none where any ring does.
    keys: Option<Vec<Dn>>,
}

/// The ways by which the messages of a group are sealed and opened.
#[derive(Debug, Default)]
pub struct Ways(Vec<Way>);

impl Ways {
    /// As it is defined at the group's owner.
    pub fn of(definitions: &Definitions, group: &str) -> Self {
        let is_its = |of: &Option<String>| of.as_deref() == Some(group);
        let mut ways = Vec::new();
        let here = |policy: &&Policy| policy.quality() != Quality::None && policy.sealed_at != SealedAt::Client;
        for policy in definitions.policies.values().map(|policy| &**policy).filter(here) {
            let put = match definitions.resolve_put(&policy.name) {
                Ok(Destination::Local(found)) => Some(found.local),
                Ok(Destination::Remote(found)) => Some(found.local),
                Err(_) => None,
            };
            let name = || policy.name.clone();
            if put.is_some_and(|local| is_its(&local.group)) {
                let is_limited = policy.sign.is_some() && !policy.signers.is_empty();
                ways.push(Way { name: name(), by: By::Putters, keys: is_limited.then(|| policy.signers.clone()) });
            }
            let get = definitions.resolve(&policy.name).ok().map(|found| found.local);
            let Some(local) = get.filter(|local| is_its(&local.group)) else { continue };
            let keys = policy.encrypt.is_some().then(|| {
                policy
                    .recipients
                    .iter()
                    .filter(|recipient| !policy.away.contains(recipient))
                    .cloned()
                    .collect::<Vec<_>>()
            });
            match local.usage {
                Usage::Transmission => {
                    // Only its channel opens what lies there.
                    let channels = definitions.channels.values().filter(|channel| {
                        channel.protection == Protection::Remove
                            && channel.transmission_queue.as_deref() == Some(&policy.name)
                    });
                    ways.extend(channels.map(|channel| {
                        let user = channel.user.clone().unwrap_or_else(|| group.to_owned());
                        Way { name: name(), by: By::Channel(user), keys: keys.clone() }
                    }));
                }
                Usage::Normal => ways.push(Way { name: name(), by: By::Getters, keys }),
            }
        }
        Self(ways)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether a user's ring, whose keys go by these names, is used for the group. `by_name` says that only what asks
    /// for one of the names counts.
    pub fn need(&self, definitions: &Definitions, user: &str, subjects: &[Dn], by_name: bool) -> bool {
        let fits = |keys: &Option<Vec<Dn>>| match keys {
            None => !by_name,
            Some(keys) => subjects.iter().any(|subject| keys.contains(subject)),
        };
        let rights = |name: &str| definitions.authorities.rights(Some(user), ObjectType::Queue, name);
        self.0.iter().filter(|way| fits(&way.keys)).any(|way| match &way.by {
            By::Channel(of) => of == user,
            By::Putters => rights(&way.name).has(Right::Put),
            By::Getters => {
                let rights = rights(&way.name);
                rights.has(Right::Get) || rights.has(Right::Browse)
            }
        })
    }
}

/// The names of these keys.
pub fn subjects_of(keys: &[RingKey]) -> Vec<Dn> {
    keys.iter().filter_map(|key| key.subject.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{AliasQueue, ChannelDefinition, ChannelKind, LocalQueue};
    use bulla_catalog::authority::{Authorities, Entity, Profile, RecordKey};
    use bulla_seal::certificate::authority::{Authority, Request};
    use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
    use bulla_seal::ring;
    use std::time::Duration;

    const P256: KeySpec = KeySpec::Ec(Curve::P256);

    fn dn(text: &str) -> Dn {
        text.parse().unwrap()
    }

    /// A ring of `billing` with a key that ends in nine days, for each label.
    fn ring_of(labels: &[&str]) -> (tempfile::TempDir, Ring) {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create(&directory.path().join("ca"), &dn("CN=demo"), P256, 10, now).unwrap();
        let folder = directory.path().join("billing");
        for label in labels {
            let uses = vec![KeyUse::KeyAgree];
            let dn = dn(&format!("CN={label}"));
            let request = Request { dn, key: P256, uses, days: 9, alternative_names: Vec::new(), passphrase: None };
            let (certificate, key) = authority.issue(&request, now).unwrap();
            ring::install_own(&folder, label, &certificate, &[], &key).unwrap();
        }
        let ring = Ring::load(&folder, None).unwrap();
        (directory, ring)
    }

    #[test]
    fn what_is_written_of_a_ring_is_read_and_what_is_not_a_key_is_left_out() {
        let (_directory, ring) = ring_of(&["billing", "dunning"]);
        let keys = keys_of(&ring);
        assert_eq!(subjects_of(&keys), [dn("CN=billing"), dn("CN=dunning")]);
        let (name, note) = (note_name("billing"), note(&keys));
        let read_one = |note: &[u8]| read([(name.as_str(), note)].into_iter()).remove("billing").unwrap();
        assert_eq!(read_one(&note), keys);
        let key = r#"{"subject":"CN=a","serial":"0a","fingerprint":"0b","more":1}"#;
        assert_eq!(read_one(format!(r#"{{"keys":[{key}],"more":1}}"#).as_bytes()).len(), 1, "a later program's");
        let long = format!(r#"{{"keys":[{key}],"more":"{}"}}"#, "x".repeat(NOTE_BYTES_MAX));
        for wrong in ["", "[]", "{", r#"{"keys":7}"#, r#"{"keys":[7,{"subject":"CN=a"}]}"#, &long] {
            assert_eq!(read_one(wrong.as_bytes()), [], "{wrong}");
        }
        for (from, to) in [("CN=a", r"CN=\u001b[2J"), ("0a", "zz"), ("0b", ""), ("CN=a", &"x".repeat(2_000))] {
            let wrong = format!(r#"{{"keys":[{}]}}"#, key.replace(from, to));
            assert_eq!(read_one(wrong.as_bytes()).len(), usize::from(to.is_empty()), "{wrong}");
        }
        let many = vec![key; KEYS_MAX + 3].join(",");
        assert_eq!(read_one(format!(r#"{{"keys":[{many}]}}"#).as_bytes()).len(), KEYS_MAX);
        let names = ["group.ring.../x", "group.ring.", "group.left", "group.ring.a\n", "group.ring.b"];
        let users = read(names.into_iter().map(|name| (name, &b""[..])));
        assert_eq!(users.into_keys().collect::<Vec<_>>(), ["b"]);
        let many: Vec<String> = (0..RINGS_MAX + 9).map(|number| note_name(&number.to_string())).collect();
        assert_eq!(read(many.iter().map(|name| (name.as_str(), &b""[..]))).len(), RINGS_MAX);
    }

    #[test]
    fn a_ring_lacks_a_key_of_the_same_name_and_one_that_has_ended() {
        let (_one, ring) = ring_of(&["billing"]);
        let (_other, other) = ring_of(&["billing", "dunning"]);
        let (keys, now) = (keys_of(&ring), SystemTime::now());
        assert_eq!(lacking(&ring, &keys, now), None);
        let serial = &keys[0].serial;
        assert_eq!(lacking(&other, &keys, now).unwrap(), format!("its ring lacks the key {serial} of CN=billing"));
        assert!(lacking(&ring, &keys_of(&other), now).unwrap().ends_with("of CN=billing, and 1 more"));
        let later = now + Duration::from_secs(10 * 86_400);
        assert_eq!(lacking(&ring, &keys, later).unwrap(), "the certificate of CN=billing has expired");
        assert_eq!(lacking(&Ring::trusting(Vec::new()), &[], now), None, "who signs nothing needs no key");
    }

    /// `S` of group `G`, for `orders` to put on and `billing` to get from, and `OWN` of the queue manager's own.
    fn definitions(change: impl Fn(&mut Policy)) -> Definitions {
        let mut definitions = Definitions::initial("QM1");
        let group = Some("G".to_owned());
        definitions.queues.insert("S".into(), LocalQueue { group: group.clone(), ..LocalQueue::default() });
        definitions.queues.insert("OWN".into(), LocalQueue::default());
        for queue in ["S", "OWN"] {
            let mut policy = Policy::new(queue);
            policy.sign = Some(bulla_seal::policy::SignatureDigest::Sha256);
            policy.encrypt = Some(bulla_seal::policy::ContentCipher::Aes256Gcm);
            (policy.signers, policy.recipients) = (vec![dn("CN=orders")], vec![dn("CN=billing")]);
            change(&mut policy);
            definitions.policies.insert(queue.into(), policy.into());
        }
        definitions.authorities = Authorities::default();
        allow(&mut definitions, "S", &[("orders", Right::Put), ("billing", Right::Get), ("audit", Right::Browse)]);
        allow(&mut definitions, "OWN", &[("own", Right::Put), ("own", Right::Get)]);
        definitions
    }

    fn allow(definitions: &mut Definitions, queue: &str, rights: &[(&str, Right)]) {
        for (user, right) in rights {
            let (object, profile) = (ObjectType::Queue, Profile::parse(queue).unwrap());
            let key = RecordKey { object, profile, entity: Entity::principal(user) };
            definitions.authorities.records.set(key, right.alone());
        }
    }

    /// Who of them needs a ring with a key of that name.
    fn who(definitions: &Definitions, users: &[(&'static str, &str)]) -> Vec<&'static str> {
        let ways = Ways::of(definitions, "G");
        let needs = |(user, name): &&(&str, &str)| ways.need(definitions, user, &[dn(&format!("CN={name}"))], false);
        users.iter().filter(needs).map(|(user, _)| *user).collect()
    }

    const USERS: &[(&str, &str)] =
        &[("orders", "orders"), ("billing", "billing"), ("audit", "audit"), ("own", "orders"), ("else", "billing")];

    #[test]
    fn a_ring_is_needed_where_a_user_has_the_right_and_the_key() {
        assert_eq!(who(&definitions(|_| {}), USERS), ["orders", "billing"]);
        // Who signs or reads with a key that the policy does not name needs no ring: that is refused anywhere.
        let swapped = [("orders", "billing"), ("billing", "orders"), ("audit", "billing")];
        assert_eq!(who(&definitions(|_| {}), &swapped), ["audit"]);
        assert_eq!(who(&definitions(|policy| policy.signers.clear()), &swapped), ["orders", "audit"]);
        let unencrypted = definitions(|policy| (policy.encrypt, policy.recipients) = (None, Vec::new()));
        assert_eq!(who(&unencrypted, USERS), ["orders", "billing", "audit"], "who reads has trust in its ring");
        let unsigned = definitions(|policy| (policy.sign, policy.signers) = (None, Vec::new()));
        assert_eq!(who(&unsigned, &swapped), ["orders", "audit"], "who puts has certificates in its ring");
        assert_eq!(who(&definitions(|policy| policy.away = vec![dn("CN=billing")]), USERS), ["orders"]);
        assert!(who(&definitions(|policy| policy.sealed_at = SealedAt::Client), USERS).is_empty());
        assert!(who(&definitions(|policy| *policy = Policy::new(policy.name.clone())), USERS).is_empty());
        assert_eq!(Ways::of(&definitions(|_| {}), "H").count(), 0);
        let by_name = Ways::of(&unencrypted, "G");
        assert!(!by_name.need(&unencrypted, "billing", &[dn("CN=billing")], true), "any ring reads it");
        assert!(by_name.need(&unencrypted, "orders", &[dn("CN=orders")], true));
    }

    #[test]
    fn rings_are_needed_by_an_alias_s_policy_and_by_channels_that_open() {
        let mut definitions = definitions(|_| {});
        let policy = |name: &str, recipient: &str| {
            let mut policy = Policy::new(name);
            policy.encrypt = Some(bulla_seal::policy::ContentCipher::Aes256Gcm);
            policy.recipients = vec![dn(recipient)];
            policy.into()
        };
        definitions.aliases.insert("A".into(), AliasQueue { target: "S".into(), ..AliasQueue::default() });
        definitions.policies.insert("A".into(), policy("A", "CN=alias"));
        allow(&mut definitions, "A", &[("ann", Right::Get)]);
        assert_eq!(who(&definitions, &[("ann", "alias"), ("billing", "alias")]), ["ann"]);
        let queue = LocalQueue { group: Some("G".into()), usage: Usage::Transmission, ..LocalQueue::default() };
        definitions.queues.insert("X".into(), queue);
        definitions.policies.insert("X".into(), policy("X", "CN=border"));
        allow(&mut definitions, "X", &[("reader", Right::Get)]);
        let asked = [("border", "border"), ("G", "border"), ("reader", "border")];
        assert!(who(&definitions, &asked).is_empty());
        let mut channel = ChannelDefinition::new(ChannelKind::Sender);
        (channel.protection, channel.group) = (Protection::Remove, Some("G".into()));
        channel.transmission_queue = Some("X".into());
        definitions.channels.insert("C".into(), channel.clone());
        assert_eq!(who(&definitions, &asked), ["G"], "its user is named like the group");
        channel.user = Some("border".into());
        definitions.channels.insert("C".into(), channel);
        assert_eq!(who(&definitions, &asked), ["border"]);
    }
}
