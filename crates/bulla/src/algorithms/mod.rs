//! `bulla report algorithms`: which queues, messages, certificates and channels use what, and until when they may.
//!
//! It is made of what the queue manager shows to anyone who may look (DISPLAY), and of the certificates in the data
//! directory. Nothing secret is read, and no private key is used.

pub(crate) mod certificates;
pub(crate) mod dates;
mod shown;

use crate::catalog::cipher_spec::{self, CipherSpec, Protocols};
use crate::catalog::tls_group::{self, TlsGroup};
use bulla_seal::Dn;
use bulla_seal::certificate::{Usage, utc};
use bulla_seal::policy::Pqc;
use certificates::{Certificates, NotRead};
use dates::{Due, Item, Rules, Used, due};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A row of DISPLAY, by keyword.
pub(crate) type Fields = Map<String, Value>;

/// Names of queues without a policy that the page shows.
const UNPROTECTED_SHOWN_MAX: usize = 10;

/// What the running queue manager showed.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// DISPLAY QMGR.
    pub(crate) manager: Fields,
    /// DISPLAY CHINIT.
    pub(crate) initiator: Fields,
    /// DISPLAY POLICY(*).
    pub(crate) policies: Vec<Fields>,
    /// DISPLAY QLOCAL(*).
    pub(crate) queues: Vec<Fields>,
    /// DISPLAY CHANNEL(*).
    pub(crate) channels: Vec<Fields>,
    /// DISPLAY ALGUSE(*).
    pub(crate) messages: Vec<Fields>,
    /// DISPLAY CHSTATUS(*).
    pub(crate) running: Vec<Fields>,
    /// DISPLAY CONN(*).
    pub(crate) connections: Vec<Fields>,
    /// Why that was not answered.
    pub(crate) no_connections: Option<String>,
}

/// The report.
#[derive(Debug)]
pub(crate) struct Report {
    /// None where the queue manager was not asked.
    pub(crate) manager: Option<String>,
    taken: String,
    policies: Vec<PolicyRow>,
    /// Local queues without a policy, but for the queue manager's own.
    unprotected: Vec<String>,
    messages: Vec<MessagesRow>,
    certificates: Vec<CertificateRow>,
    channels: Vec<ChannelRow>,
    /// What running channels and connections have agreed on.
    agreed: Vec<AgreedRow>,
    /// What could not be read or was not looked at.
    not_read: Vec<NotRead>,
}

/// A name of a policy, and what keys it has here.
#[derive(Debug)]
struct Named {
    dn: String,
    keys: Vec<String>,
}

#[derive(Debug)]
struct PolicyRow {
    name: String,
    quality: &'static str,
    digest: String,
    padding: String,
    pqc: String,
    cipher: String,
    signers: Vec<Named>,
    recipients: Vec<Named>,
    remarks: Vec<String>,
    due: Vec<Due>,
}

#[derive(Debug)]
struct MessagesRow {
    queue: String,
    messages: u64,
    protected: String,
    signers: Vec<String>,
    recipients: Vec<String>,
    cipher: String,
    cause: String,
    remarks: Vec<String>,
    due: Vec<Due>,
}

#[derive(Debug)]
struct CertificateRow {
    subject: String,
    serial: String,
    key: String,
    signature: String,
    until: String,
    ended: bool,
    places: Vec<String>,
    due: Vec<Due>,
}

#[derive(Debug)]
struct ChannelRow {
    /// The channel; empty for the listener of clients.
    name: String,
    /// As MQSC has it; `LISTENER`.
    kind: String,
    cipher_spec: String,
    groups: Vec<String>,
    certificate: String,
    remarks: Vec<String>,
    due: Vec<Due>,
}

/// What the two ends of a connection have agreed on.
#[derive(Debug)]
struct AgreedRow {
    /// The channel; none for clients.
    channel: Option<String>,
    /// The partner of a channel, and where it is; the user of clients, empty where they have not signed in.
    partner: String,
    address: String,
    /// Connections of one user that have agreed on the same.
    connections: u64,
    cipher: String,
    group: String,
    remarks: Vec<String>,
    due: Vec<Due>,
}

impl Report {
    /// Without what the queue manager shows, of the certificates alone.
    pub(crate) fn new(shown: Option<&Shown>, certificates: Certificates, now: SystemTime) -> Self {
        let nothing = Shown::default();
        let rows = shown.unwrap_or(&nothing);
        let policies: Vec<PolicyRow> =
            rows.policies.iter().map(|row| PolicyRow::new(row, &certificates, now)).collect();
        let is_protected = |name: &str| policies.iter().any(|policy| policy.name == name);
        let queues = rows.queues.iter().map(|row| text(row, "QUEUE"));
        let unprotected = queues.filter(|name| !name.starts_with("SYSTEM.") && !is_protected(name));
        let unprotected = unprotected.map(str::to_owned).collect();
        let messages: Vec<MessagesRow> = rows.messages.iter().map(MessagesRow::new).collect();
        let mut channels: Vec<ChannelRow> = listener(rows).into_iter().collect();
        channels.extend(rows.channels.iter().map(|row| ChannelRow::new(row, &rows.manager)));
        let mut agreed: Vec<AgreedRow> =
            rows.running.iter().filter(|row| is_connected(row)).map(AgreedRow::of_channel).collect();
        let mut not_read = certificates.not_read;
        agreed.extend(of_clients(&rows.connections));
        let no_connections = rows.no_connections.iter();
        not_read.extend(no_connections.map(|why| NotRead { place: "connections".to_owned(), why: why.clone() }));
        for row in messages.iter().filter(|row| row.is_unknown()) {
            let why = match row.protected.as_str() {
                "NOTLOOKED" => "not looked at: --messages takes more of each queue".to_owned(),
                "DEFECTIVE" => format!("damaged ({}), so that nothing can be said of the seal", row.cause),
                "OTHER" => "sealed in more ways than are told apart".to_owned(),
                _ => "can't be read back from the journal".to_owned(),
            };
            let count = counted(row.messages, "message");
            not_read.push(NotRead { place: format!("queue {}", row.queue), why: format!("{count} {why}") });
        }
        let found = certificates.found.iter().map(|found| CertificateRow::new(found, now)).collect();
        Self {
            manager: shown.map(|shown| text(&shown.manager, "QMNAME").to_owned()),
            taken: utc(now),
            policies,
            unprotected,
            messages,
            certificates: found,
            channels,
            agreed,
            not_read,
        }
    }

    /// How many rows have something that is due in that year or before, by these rules. A certificate that has ended
    /// does not count: nothing is sealed for it, and nothing that it signs is believed.
    pub(crate) fn due_by(&self, year: u16, rules: &[Rules]) -> usize {
        let is_due = |dues: &[Due]| dues.iter().any(|due| rules.contains(&due.milestone.rules) && due.is_by(year));
        let policies = self.policies.iter().filter(|row| is_due(&row.due)).count();
        let messages = self.messages.iter().filter(|row| is_due(&row.due)).count();
        let certificates = self.certificates.iter().filter(|row| !row.ended && is_due(&row.due)).count();
        let channels = self.channels.iter().filter(|row| is_due(&row.due)).count();
        let agreed = self.agreed.iter().filter(|row| is_due(&row.due)).count();
        policies + messages + certificates + channels + agreed
    }

    /// How many things were not read or not looked at.
    pub(crate) fn gaps(&self) -> usize {
        self.not_read.len()
    }
}

impl PolicyRow {
    fn new(row: &Fields, certificates: &Certificates, now: SystemTime) -> Self {
        let word = |key: &str| text(row, key).to_owned();
        let pqc: Pqc = text(row, "PQC").parse().unwrap_or_default();
        let (digest, cipher) = (unless_none(word("SIGNALG")), unless_none(word("ENCALG")));
        let mut items = Vec::new();
        let (mut remarks, mut classical) = (Vec::new(), false);
        let named = |names: Vec<&str>, usage: Usage| -> (Vec<Named>, Vec<Item>) {
            let mut all: Vec<Item> = Vec::new();
            let mut list = Vec::new();
            for name in names {
                let dn = name.parse::<Dn>();
                let keys = dn.map(|dn| certificates.keys_of(&dn, usage, pqc, now)).unwrap_or_default();
                list.push(Named { dn: name.to_owned(), keys: keys.iter().map(|key| key.name.clone()).collect() });
                all.extend(keys);
            }
            all.sort_by_key(|key| key.used.rank());
            all.dedup();
            (list, all)
        };
        let (signers, signing) = named(list(row, "SIGNER"), Usage::Sign);
        let wrapping = if digest.is_empty() { Usage::DataEncipherment } else { Usage::KeyTransport };
        let (recipients, opening) = named(list(row, "RECIP"), wrapping);
        if !digest.is_empty() {
            items.extend(digest_item(&digest));
            if signers.is_empty() {
                remarks.push("each trusted signer may sign".to_owned());
            }
            remarks.extend(weakest("each signer signs alone", &signing));
            if pqc != Pqc::Required && signing.iter().all(|key| !key.used.is_classical()) {
                classical = true;
                remarks.push(match pqc {
                    Pqc::None => "PQC(NONE): RSA or EC keys sign".to_owned(),
                    _ => format!("PQC({pqc}): a signature of an RSA or EC key opens, too"),
                });
            }
            items.extend(signing);
        }
        if !cipher.is_empty() {
            items.extend(cipher_item(&cipher));
            remarks.extend(weakest("each recipient opens alone", &opening));
            items.extend(opening);
        }
        for one in signers.iter().chain(&recipients).filter(|one| one.keys.is_empty()) {
            remarks.push(format!("no certificate here that fits: {}", one.dn));
        }
        if classical {
            items.push(Item::new("RSA or EC signer", Used::Classical));
        }
        let quality = match (digest.is_empty(), cipher.is_empty()) {
            (true, true) => "NONE",
            (false, true) => "INTEGRITY",
            (false, false) => "PRIVACY",
            (true, false) => "CONFIDENTIALITY",
        };
        Self {
            name: word("POLICY"),
            quality,
            digest,
            padding: word("SIGNPAD"),
            pqc: pqc.to_string(),
            cipher,
            signers,
            recipients,
            remarks,
            due: due(&items),
        }
    }
}

impl MessagesRow {
    fn new(row: &Fields) -> Self {
        let words = |key: &str| list(row, key).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let (signers, recipients) = (words("SIGNKEYS"), words("RECIPKEYS"));
        let cipher = text(row, "CIPHER").to_owned();
        let opening: Vec<Item> = recipients.iter().map(|words| key_item(words)).collect();
        let mut items: Vec<Item> = signers.iter().flat_map(|words| signer_items(words)).collect();
        items.extend(opening.iter().cloned());
        items.extend(cipher_item(&cipher));
        let protected = text(row, "PROTECTED").to_owned();
        let mut remarks: Vec<String> = weakest("each recipient opens alone", &opening).into_iter().collect();
        if protected == "ENCRYPTED" {
            remarks.push("a signature inside an envelope does not show: the policy says how it is made".to_owned());
        }
        Self {
            queue: text(row, "ALGUSE").to_owned(),
            messages: row.get("MSGS").and_then(Value::as_u64).unwrap_or_default(),
            protected,
            signers,
            recipients,
            cipher,
            cause: text(row, "CAUSE").to_owned(),
            remarks,
            due: due(&items),
        }
    }

    /// Nothing is known of what they are sealed with.
    fn is_unknown(&self) -> bool {
        ["NOTLOOKED", "DEFECTIVE", "OTHER", "UNREADABLE"].contains(&self.protected.as_str())
    }
}

impl CertificateRow {
    fn new(found: &certificates::Found, now: SystemTime) -> Self {
        let certificate = &found.certificate;
        let key = certificates::key_item(certificate);
        let mut items = vec![key.clone()];
        items.extend(certificates::signature_items(certificate));
        Self {
            subject: certificate.dn().to_string(),
            serial: certificate.serial_hex(),
            key: key.name,
            signature: certificates::signature_name(certificate),
            until: utc(certificate.not_after()),
            ended: certificate.not_after() <= now,
            places: found.places.clone(),
            due: due(&items),
        }
    }
}

impl ChannelRow {
    fn new(row: &Fields, manager: &Fields) -> Self {
        let own = |key: &str| match text(row, key) {
            "" => text(manager, key).to_owned(),
            word => word.to_owned(),
        };
        let cipher_spec = text(row, "SSLCIPH").to_owned();
        let head = |kind: &str| (text(row, "CHANNEL").to_owned(), kind.to_owned());
        let (name, kind) = head(text(row, "CHLTYPE"));
        let bare = Self {
            name,
            kind,
            cipher_spec: cipher_spec.clone(),
            groups: Vec::new(),
            certificate: String::new(),
            remarks: Vec::new(),
            due: Vec::new(),
        };
        if cipher_spec.is_empty() {
            let remark = "no TLS: the seals of its messages alone protect what crosses it".to_owned();
            return Self { remarks: vec![remark], ..bare };
        }
        let Some(spec) = cipher_spec::find(&cipher_spec) else { return bare };
        let suites: Vec<&CipherSpec> =
            cipher_spec::ALL.iter().filter(|suite| suite.iana.is_some_and(|iana| spec.allows(iana))).collect();
        Self { certificate: own("CERTLABL"), ..bare.with(spec.protocols, &suites, &own("SSLGROUPS")) }
    }

    /// What of TLS may be agreed on.
    fn with(mut self, protocols: Protocols, suites: &[&CipherSpec], groups: &str) -> Self {
        let named = tls_group::parse(groups).unwrap_or_default();
        let all: Vec<&TlsGroup> = if named.is_empty() { tls_group::ALL.iter().collect() } else { named };
        // Groups with ML-KEM are for TLS 1.3.
        let takes_group = |group: &&TlsGroup| !group.hybrid || protocols != Protocols::Tls12;
        let is_without_group = suites.iter().all(|suite| suite.weak);
        let groups: Vec<&TlsGroup> =
            if is_without_group { Vec::new() } else { all.into_iter().filter(takes_group).collect() };
        let mut items: Vec<Item> = groups.iter().map(|group| group_item(group)).collect();
        items.extend(suites.iter().flat_map(|suite| suite_items(suite)));
        let curves: Vec<&str> = groups.iter().filter(|group| !group.hybrid).map(|group| group.name).collect();
        self.remarks.extend(match (is_without_group, curves.is_empty()) {
            (true, _) => {
                Some("the keys are sent to the RSA key of the certificate: without forward secrecy".to_owned())
            }
            (false, false) => Some(format!("a classical key agreement can be negotiated: {}", curves.join(", "))),
            (false, true) => None,
        });
        self.groups = groups.iter().map(|group| group.name.to_owned()).collect();
        self.due = due(&items);
        self
    }
}

impl AgreedRow {
    fn of_channel(row: &Fields) -> Self {
        let word = |key: &str| text(row, key).to_owned();
        let of = Some(word("CHANNEL"));
        Self::new(of, (word("RQMNAME"), word("CONNAME")), 1, (text(row, "SSLCIPH"), text(row, "SSLGROUP")))
    }

    fn new(
        channel: Option<String>,
        (partner, address): (String, String),
        connections: u64,
        (cipher, group): (&str, &str),
    ) -> Self {
        let suite = cipher_spec::ALL
            .iter()
            .find(|spec| spec.ibm == cipher || spec.iana == Some(cipher) || spec.openssl == Some(cipher));
        let mut items: Vec<Item> = tls_group::find(group).map(group_item).into_iter().collect();
        items.extend(suite.into_iter().flat_map(suite_items));
        let remark = match (cipher, group) {
            ("", _) => Some("no TLS: the seals of its messages alone protect what crosses it"),
            // An RSA key of the certificate had the keys sent to it.
            (_, "") => suite.filter(|suite| suite.weak).map(|_| "without forward secrecy: no group was agreed on"),
            _ => None,
        };
        Self {
            channel,
            partner,
            address,
            connections,
            cipher: cipher.to_owned(),
            group: group.to_owned(),
            remarks: remark.into_iter().map(str::to_owned).collect(),
            due: due(&items),
        }
    }
}

/// Whether a row of DISPLAY CHSTATUS is of an instance that has agreed with its partner.
fn is_connected(row: &Fields) -> bool {
    ["RUNNING", "PAUSED", "STOPPING"].contains(&text(row, "STATUS"))
}

/// Connections of one user that have agreed on the same are one row: containers give each a name of its own.
fn of_clients(connections: &[Fields]) -> impl Iterator<Item = AgreedRow> {
    let mut counts: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    for row in connections {
        *counts.entry(["USERID", "SSLCIPH", "SSLGROUP"].map(|key| text(row, key))).or_default() += 1;
    }
    counts.into_iter().map(|([user, cipher, group], count)| {
        AgreedRow::new(None, (user.to_owned(), String::new()), count, (cipher, group))
    })
}

/// What clients that come over TLS can agree on; none where nothing is listened for over TLS.
fn listener(rows: &Shown) -> Option<ChannelRow> {
    let listeners = list(&rows.initiator, "LISTENER");
    let over_tls: Vec<&str> =
        listeners.into_iter().filter(|one| one.starts_with("amqps:") || one.starts_with("https:")).collect();
    if over_tls.is_empty() {
        return None;
    }
    // As `cipher_spec::listener_lists` offers them.
    let is_offered = |suite: &&CipherSpec| {
        !suite.weak && suite.iana.is_some_and(|iana| suite.protocols == Protocols::Tls13 || iana.contains("_GCM_"))
    };
    let suites: Vec<&CipherSpec> = cipher_spec::ALL.iter().filter(is_offered).collect();
    let row = ChannelRow {
        name: over_tls.join(" "),
        kind: "LISTENER".to_owned(),
        cipher_spec: "ANY_TLS12_OR_HIGHER".to_owned(),
        groups: Vec::new(),
        certificate: String::new(),
        remarks: Vec::new(),
        due: Vec::new(),
    };
    Some(row.with(Protocols::Both, &suites, text(&rows.manager, "SSLGROUPS")))
}

/// Where there are several kinds of keys and one of them is enough, what that amounts to.
fn weakest(each: &str, keys: &[Item]) -> Option<String> {
    let weakest = keys.iter().min_by_key(|key| key.used.rank())?;
    let is_one_kind = keys.iter().all(|key| key.used == weakest.used);
    (!is_one_kind).then(|| format!("{each}: as strong as the weakest, {}", spoken(weakest)))
}

/// `RSA 2048`, `P-256`, `ML-KEM-768`.
fn spoken(item: &Item) -> String {
    match item.used {
        Used::Rsa(bits) => format!("RSA {bits}"),
        Used::Curve(bits) => format!("P-{bits}"),
        Used::MlDsa(set) => format!("ML-DSA-{set}"),
        Used::MlKem(set) => format!("ML-KEM-{set}"),
        _ => item.name.clone(),
    }
}

/// A key as DISPLAY ALGUSE names it: `rsa2048 OAEP`, `p256`, `ec`.
fn key_item(words: &str) -> Item {
    let name = words.split(' ').next().unwrap_or_default();
    let number = |prefix: &str| name.strip_prefix(prefix).and_then(|digits| digits.parse::<u32>().ok());
    let used = match (number("rsa"), number("p"), number("ml-dsa-"), number("ml-kem-")) {
        (Some(bits), ..) => Used::Rsa(bits),
        (_, Some(bits), ..) => Used::Curve(bits),
        (_, _, Some(set), _) => Used::MlDsa(set),
        (.., Some(set)) => Used::MlKem(set),
        _ => Used::Classical,
    };
    Item::new(name, used)
}

/// A signer as DISPLAY ALGUSE names it: `rsa2048 PSS SHA256`.
fn signer_items(words: &str) -> Vec<Item> {
    let digest = words.rsplit(' ').next().unwrap_or_default();
    std::iter::once(key_item(words)).chain(digest_item(digest)).collect()
}

fn digest_item(word: &str) -> Option<Item> {
    let bits = word.strip_prefix("SHA")?.parse().ok()?;
    Some(Item::new(word, if bits < 224 { Used::OldDigest } else { Used::Sha2(bits) }))
}

/// ENCALG's word.
fn cipher_item(word: &str) -> Option<Item> {
    let bits = word.strip_prefix("AES")?.trim_end_matches("CBC").parse().ok()?;
    Some(Item::new(word, Used::Aes(bits)))
}

fn group_item(group: &TlsGroup) -> Item {
    let name = group.name;
    let lower = name.to_ascii_lowercase();
    let used = match lower.split_once("mlkem") {
        Some((_, set)) => set.parse().map_or(Used::Classical, Used::MlKem),
        // Of the strength of these curves, of 255 and of 448 bits.
        None if lower == "x25519" => Used::Curve(256),
        None if lower == "x448" => Used::Curve(448),
        None => {
            let digits: String = lower.trim_start_matches("secp").chars().take_while(char::is_ascii_digit).collect();
            digits.parse().map_or(Used::Classical, Used::Curve)
        }
    };
    Item::new(name, used)
}

/// Cipher, digest and key transport of a suite.
fn suite_items(suite: &CipherSpec) -> Vec<Item> {
    let name = suite.iana.unwrap_or(suite.ibm);
    let cipher = match name {
        _ if name.contains("AES_256") => Item::new("AES256", Used::Aes(256)),
        _ if name.contains("AES_128") => Item::new("AES128", Used::Aes(128)),
        _ => Item::new("ChaCha20", Used::ChaCha),
    };
    let digest = name.rsplit('_').next().and_then(digest_item);
    let transport = suite.weak.then(|| Item::new("RSA key transport", Used::Classical));
    [Some(cipher), digest, transport].into_iter().flatten().collect()
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn unless_none(word: String) -> String {
    if word == "NONE" { String::new() } else { word }
}

fn text<'a>(row: &'a Fields, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(row: &'a Fields, key: &str) -> Vec<&'a str> {
    match row.get(key) {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) if !one.is_empty() => vec![one],
        _ => Vec::new(),
    }
}
