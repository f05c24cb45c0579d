//! CHANNEL: a way to or from another queue manager.

use super::noun::{Running, commands};
use super::queues::no_transmission_queue;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::attributes::{blank, clamped, number_of, number_or, unless_blank};
use crate::parse::{Setting, Statement, Value};
use crate::reply::{Cell, Failure, FailureKind};
use crate::rows::wanted;
use crate::run::{AdminError, Administered, failure, invalid};
use crate::table::channel::{COUNT_MAX, GROUPS_CHARS_MAX, LABEL_CHARS_MAX, PING, RESET, RESOLVE, START, STOP};
use crate::table::{Attribute, Command, DESCR, DEVICE_TEXT_CHARS_MAX, Key, Kind, V1, words};
use bulla_catalog::peer_name::{PatternError, PeerPattern};
use bulla_catalog::tls_group::{self, GroupsError};
use bulla_catalog::{
    CHANNEL_NAME_CHARS_MAX, CHANNELS_MAX, ChannelDefinition, ChannelKind, Definitions, MESSAGE_BYTES_MAX, Protection,
    Sort, cipher_spec, names,
};
use bulla_seal::Dn;
use std::fmt::{self, Display};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WORD: &str = "CHANNEL";

/// Highest BATCHSZ in messages, as MQ has it.
const BATCH_MESSAGES_MAX: u64 = 9_999;
/// Highest BATCHLIM in kilobytes, as MQ has it.
const BATCH_KILOBYTES_MAX: u64 = 999_999;
/// Longest HBINT and DISCINT in seconds, as MQ has it.
const INTERVAL_SECONDS_MAX: u64 = 999_999;
/// Lowest SEQWRAP, as MQ has it.
const SEQUENCE_WRAP_MIN: u64 = 100;
/// Longest CONNAME in characters, as MQ has it.
const CONNECTION_CHARS_MAX: usize = 264;
/// Longest SSLPEER in characters, as MQ has it.
const PEER_CHARS_MAX: usize = 1024;
/// Longest SAMEPEER in characters.
const SAME_PEERS_CHARS_MAX: usize = 4_096;
/// Longest SOURCE of a requester in characters.
const SOURCE_CHARS_MAX: usize = 256;

/// Port of CONNAME where none is given: AMQP's.
const PORT: u16 = 5672;
/// The same where the channel has SSLCIPH.
const PORT_TLS: u16 = 5671;
/// Longest CONNAME in characters, written with its ports.
const CONNECTIONS_CHARS_MAX: usize = 264;

/// CHLTYPE by the word that the table has for it.
const CHLTYPE: Key = Key::Own("CHLTYPE");
/// CONNAME by the word that the table has for it.
const CONNAME: Key = Key::Own("CONNAME");

/// Every type as it is written.
const KINDS: [ChannelKind; 4] =
    [ChannelKind::Sender, ChannelKind::Receiver, ChannelKind::Server, ChannelKind::Requester];

pub(super) static CHANNEL: ObjectNoun<ChannelDefinition> =
    ObjectNoun { word: WORD, short: &["CHL"], many: "channels", place: 11, fields: &[FIELDS], commands: &COMMANDS };

static TARGET: Attribute = Attribute {
    key: Key::Own("TARGET"),
    keyword: "TARGET",
    synonyms: &["TARGQ"],
    kind: Kind::Name { optional: true },
    default: "' '",
    doc: "The queue on which a RQSTR puts messages from a partner that is not Bulla; with SOURCE.",
    since: V1,
};

static FIELDS: &[Field<ChannelDefinition>] = &[
    Field::new(
        "CHLTYPE",
        words(&["SDR", "RCVR", "SVR", "RQSTR"]),
        "",
        "Who begins, and which way messages go. SDR: begins, and sends. RCVR: waits for a sender or a server, and \
         receives. SVR: sends when a requester asks it to, and with CONNAME begins like a sender. RQSTR: receives, \
         and begins by asking a server. Needed unless LIKE gives one; it can't be altered.",
        |of| Cell::word(of.kind.word()),
        |_, _| (), // it is what the channel begins as
    ),
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "CONNAME",
        Kind::Text { chars_max: CONNECTION_CHARS_MAX },
        "' '",
        "Where the partner is: HOST(PORT), several with commas, tried in turn. A port that is not given becomes \
         5672, or 5671 where the channel has SSLCIPH. SDR and RQSTR need it, SVR may have it.",
        |of| Cell::Text(connection_name(of)),
        |_, _| (), // what is not given depends on SSLCIPH: see complete
    ),
    Field::new(
        "XMITQ",
        Kind::Name { optional: true },
        "' '",
        "The transmission queue that SDR and SVR take messages from; needed. One channel at a time can run on it.",
        |of| blank(of.transmission_queue.as_deref()),
        |of, value| of.transmission_queue = unless_blank(&value.text()),
    ),
    Field::new(
        "BATCHSZ",
        Kind::Number { min: 1, max: BATCH_MESSAGES_MAX },
        "50",
        "Most messages between two confirmations. The lower of both ends' holds.",
        |of| Cell::Number(of.batch_size.into()),
        |of, value| of.batch_size = clamped(value.number()),
    ),
    Field::new(
        "BATCHINT",
        Kind::Number { min: 0, max: COUNT_MAX },
        "0",
        "How long SDR and SVR keep a batch open for more messages once the transmission queue is empty, in \
         milliseconds.",
        |of| milliseconds(of.batch_interval),
        |of, value| of.batch_interval = Duration::from_millis(value.number()),
    ),
    Field::new(
        "BATCHLIM",
        Kind::Number { min: 0, max: BATCH_KILOBYTES_MAX },
        "5000",
        "Kilobytes of messages that end a batch of SDR and SVR; 0 for no limit.",
        |of| Cell::Number(of.batch_bytes_max / 1024),
        |of, value| of.batch_bytes_max = value.number().saturating_mul(1024),
    ),
    Field::new(
        "NPMSPEED",
        words(&["FAST", "NORMAL"]),
        "FAST",
        "The sending end's holds. FAST: non-persistent messages do not wait for a batch, and may be lost with the \
         connection. NORMAL: they are confirmed like persistent ones.",
        |of| speed(of.non_persistent_fast),
        |of, value| of.non_persistent_fast = value.word() == "FAST",
    ),
    Field::new(
        "HBINT",
        Kind::Number { min: 0, max: INTERVAL_SECONDS_MAX },
        "300",
        "Seconds between heartbeats on an idle channel; 0 for none. A partner that says nothing for twice as long is \
         given up.",
        |of| seconds(of.heartbeat),
        |of, value| of.heartbeat = Duration::from_secs(value.number()),
    ),
    Field::new(
        "DISCINT",
        Kind::Number { min: 0, max: INTERVAL_SECONDS_MAX },
        "6000",
        "Seconds after which an idle channel of SDR and SVR ends and becomes INACTIVE; 0 for never.",
        |of| seconds(of.disconnect_after),
        |of, value| of.disconnect_after = Duration::from_secs(value.number()),
    ),
    Field::new(
        "SHORTRTY",
        Kind::Number { min: 0, max: COUNT_MAX },
        "10",
        "How often SDR and SVR are first tried again after a failure.",
        |of| Cell::Number(of.short_retries.into()),
        |of, value| of.short_retries = clamped(value.number()),
    ),
    Field::new(
        "SHORTTMR",
        Kind::Number { min: 0, max: COUNT_MAX },
        "60",
        "Seconds between those first attempts.",
        |of| seconds(of.short_retry_interval),
        |of, value| of.short_retry_interval = Duration::from_secs(value.number()),
    ),
    Field::new(
        "LONGRTY",
        Kind::Number { min: 0, max: COUNT_MAX },
        "999999999",
        "How often SDR and SVR are tried again when SHORTRTY is used up. Then they are STOPPED.",
        |of| Cell::Number(of.long_retries.into()),
        |of, value| of.long_retries = clamped(value.number()),
    ),
    Field::new(
        "LONGTMR",
        Kind::Number { min: 0, max: COUNT_MAX },
        "1200",
        "Seconds between those later attempts.",
        |of| seconds(of.long_retry_interval),
        |of, value| of.long_retry_interval = Duration::from_secs(value.number()),
    ),
    Field::new(
        "SEQWRAP",
        Kind::Number { min: SEQUENCE_WRAP_MIN, max: COUNT_MAX },
        "999999999",
        "Highest sequence number that is shown, before 1 follows. Both ends need the same one.",
        |of| Cell::Number(of.sequence_wrap.into()),
        |of, value| of.sequence_wrap = clamped(value.number()),
    ),
    Field::new(
        "MAXMSGL",
        Kind::Number { min: 0, max: MESSAGE_BYTES_MAX },
        "4194304",
        "Longest message in bytes; 0 for the queue manager's. The lower of both ends' holds.",
        |of| Cell::Number(of.max_message_bytes.into()),
        |of, value| of.max_message_bytes = clamped(value.number()),
    ),
    Field::new(
        "MRRTY",
        Kind::Number { min: 0, max: COUNT_MAX },
        "10",
        "How often RCVR and RQSTR try to put a message again that can't be put, before it goes to the dead-letter \
         queue.",
        |of| Cell::Number(of.message_retries.into()),
        |of, value| of.message_retries = clamped(value.number()),
    ),
    Field::new(
        "MRTMR",
        Kind::Number { min: 0, max: COUNT_MAX },
        "1000",
        "Milliseconds between those attempts; the channel is PAUSED meanwhile.",
        |of| milliseconds(of.message_retry_interval),
        |of, value| of.message_retry_interval = Duration::from_millis(value.number()),
    ),
    Field::new(
        "USEDLQ",
        words(&["YES", "NO"]),
        "YES",
        "Whether a message that can't be delivered goes to the dead-letter queue. NO: a non-persistent one under \
         NPMSPEED(FAST) is discarded, any other ends the channel.",
        |of| Cell::word(if of.use_dead_letter_queue { "YES" } else { "NO" }),
        |of, value| of.use_dead_letter_queue = value.word() == "YES",
    ),
    Field::new(
        "MCAUSER",
        Kind::Text { chars_max: LABEL_CHARS_MAX },
        "' '",
        "The user in whose name a receiving channel puts, by whose right a requester has a server channel started, \
         and whose key ring the channel opens and seals with under SPLPROT; blank for the user who is named like the \
         queue manager.",
        |of| blank(of.user.as_deref()),
        |of, value| of.user = unless_blank(&value.text()),
    ),
    Field::new(
        "SPLPROT",
        words(&["PASSTHRU", "REMOVE", "ASPOLICY"]),
        "PASSTHRU",
        "PASSTHRU: messages pass as they are. REMOVE, of SDR and SVR: where the transmission queue has a policy, \
         messages are opened before they are sent. ASPOLICY, of RCVR and RQSTR: where the target queue has a policy, \
         messages are sealed before they are put.",
        |of| Cell::word(of.protection.word()),
        |of, value| of.protection = protection(value.word()),
    ),
    Field::new(
        "SSLCIPH",
        Kind::Name { optional: true },
        "' '",
        "The CipherSpec, by MQ's name or IANA's; blank for no TLS. Both ends need one that the other's allows.",
        |of| blank(of.cipher_spec.as_deref()),
        |of, value| of.cipher_spec = unless_blank(&value.text()),
    ),
    Field::new(
        "SSLGROUPS",
        Kind::Text { chars_max: GROUPS_CHARS_MAX },
        "' '",
        "The groups by which the keys of TLS may be agreed on, with commas, the first one preferred; blank for the \
         queue manager's. One that names only groups with ML-KEM requires them: 'X25519MLKEM768,SecP256r1MLKEM768'.",
        |of| Cell::Text(tls_group::text(&of.key_groups)),
        |of, value| of.key_groups = tls_group::parse(&value.text()).unwrap_or_default(),
    ),
    Field::new(
        "SSLPEER",
        Kind::Text { chars_max: PEER_CHARS_MAX },
        "' '",
        "What the subject of the partner's certificate must be, as in 'CN=QM2,O=Demo*'; blank for any that is \
         trusted.",
        |of| blank(of.peer_pattern.as_deref()),
        |of, value| of.peer_pattern = unless_blank(&value.text()),
    ),
    Field::new(
        "SSLCAUTH",
        words(&["REQUIRED", "OPTIONAL"]),
        "REQUIRED",
        "Whether a partner that begins must show a certificate. For RCVR, SVR and RQSTR.",
        |of| Cell::word(if of.client_certificate_required { "REQUIRED" } else { "OPTIONAL" }),
        |of, value| of.client_certificate_required = value.word() == "REQUIRED",
    ),
    Field::new(
        "CERTLABL",
        Kind::Text { chars_max: LABEL_CHARS_MAX },
        "' '",
        "Label of the certificate that the channel shows; blank for the queue manager's.",
        |of| blank(of.certificate_label.as_deref()),
        |of, value| of.certificate_label = unless_blank(&value.text()),
    ),
    Field::new(
        "SSLRKEYC",
        Kind::NumberOr { min: 0, max: COUNT_MAX, word: "QMGR" },
        "QMGR",
        "Bytes sent and received after which the keys of TLS are renewed, 0 for never; 1 to 32768 act as 32768. \
         QMGR: as ALTER QMGR says. The side that begins decides.",
        |of| number_or(of.key_reset_bytes, "QMGR"),
        |of, value| of.key_reset_bytes = number_of(value),
    ),
    Field::new(
        "USERID",
        Kind::Text { chars_max: LABEL_CHARS_MAX },
        "' '",
        "The user name with which SDR, SVR and RQSTR sign in at a partner that asks for a password.",
        |of| blank(of.sasl_user.as_deref()),
        |of, value| of.sasl_user = unless_blank(&value.text()),
    ),
    Field::new(
        "PASSFILE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "' '",
        "A file whose first line is USERID's password, by its absolute path.",
        |of| Cell::Text(of.password_file.as_ref().map_or(String::new(), |path| path.to_string_lossy().into())),
        |of, value| of.password_file = unless_blank(&value.text()).map(PathBuf::from),
    ),
    Field::new(
        "SOURCE",
        Kind::Text { chars_max: SOURCE_CHARS_MAX },
        "' '",
        "The address that a RQSTR receives from at a partner that is not Bulla; with TARGET.",
        |of| blank(of.source.as_deref()),
        |of, value| of.source = unless_blank(&value.text()),
    ),
    Field::shared(&TARGET, |of| blank(of.target.as_deref()), |of, value| of.target = unless_blank(&value.text())),
    Field::new(
        QSGROUP,
        Kind::Name { optional: true },
        "' '",
        "The group of shared queues that the channel belongs to: it runs at the member that owns the group, under the \
         group's name, and its numbers lie in the group's log. XMITQ is a queue of the group then. Each member has the \
         definition of its own: define it alike. Blank for a channel of this queue manager alone. It can't be altered.",
        |of| blank(of.group.as_deref()),
        |of, value| of.group = unless_blank(&value.text()),
    ),
    Field::new(
        "SAMEPEER",
        Kind::Text { chars_max: SAME_PEERS_CHARS_MAX },
        "' '",
        "Subjects of certificates that are one partner: the members of a group of shared queues, with a ; between \
         them, as in 'CN=QM1,O=Demo; CN=QM2,O=Demo'. Where the partner has proved itself by one of them, another one \
         goes on whose certificate is of the same issuer; any other is refused with 2539. Blank for none.",
        |of| Cell::Text(of.same_peers.join("; ")),
        |of, value| of.same_peers = subjects(&value.text()).unwrap_or_default(),
    ),
];
const QSGROUP: &str = "QSGROUP";

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 9] = {
    let [define, alter, delete, display] = commands(
        Sort::Channel,
        "channel",
        WORD,
        ATTRIBUTES,
        ATTRIBUTES,
        [
            Said {
                summary: "Create a channel. Its name, up to 20 characters, is the same at both ends. It is not \
                 started.",
                examples: &[
                    "DEFINE CHANNEL(QM1.QM2) CHLTYPE(SDR) CONNAME('qm2.example(5672)') XMITQ(QM2)",
                    "DEFINE CHANNEL(QM2.QM1) CHLTYPE(RCVR) MRRTY(3) MRTMR(500) SPLPROT(ASPOLICY) MCAUSER('border')",
                    "DEF CHL(QM1.QM2.TLS) CHLTYPE(SDR) CONNAME('a.example(5671),b.example(5671)') XMITQ(QM2) \
                     SSLCIPH(TLS_AES_256_GCM_SHA384) SSLPEER('CN=QM2,O=Demo*') SSLRKEYC(1048576) SPLPROT(REMOVE)",
                    "DEF CHL(ARTEMIS) CHLTYPE(RQSTR) CONNAME('broker.example') SOURCE('orders') TARGET(ORDERS) \
                     USERID('qm1') PASSFILE('/etc/bulla/broker.password')",
                ],
            },
            Said {
                summary: "Change attributes of a channel; the others stay. A running channel takes them at its next \
                 start.",
                examples: &["ALTER CHANNEL(QM1.QM2) BATCHSZ(100) HBINT(30)"],
            },
            Said {
                summary: "Delete a channel that does not run and has nothing in doubt. Its transmission queue stays.",
                examples: &["DELETE CHANNEL(QM1.QM2)"],
            },
            Said {
                summary: "Show channels as they are defined. A generic name shows names and types only, unless \
                 attributes or ALL are asked for.",
                examples: &["DISPLAY CHANNEL(QM1.QM2)", "DIS CHL(*) CONNAME XMITQ WHERE(CHLTYPE EQ SDR)"],
            },
        ],
    );
    [define, alter, delete, START, STOP, PING, RESET, RESOLVE, display]
};

/// Why a channel cannot be defined so. The turn is with the author of the command.
#[derive(Debug)]
enum Refused {
    /// DEFINE without CHLTYPE.
    NoKind,
    /// A channel of that type has no such attribute.
    DoesNotFit { keyword: &'static str, kind: ChannelKind },
    /// SPLPROT does at the other end what is asked for.
    WrongEnd { protection: &'static str, kind: ChannelKind },
    /// The attribute must be given for a channel of that type.
    Missing { keyword: &'static str, kind: ChannelKind },
    /// ALTER from one type to another.
    OtherKind { from: ChannelKind, to: ChannelKind },
    /// LIKE a channel of another type.
    LikeOtherKind { like: ChannelKind, kind: ChannelKind },
    /// More than [`CHANNEL_NAME_CHARS_MAX`].
    LongName { chars: usize },
    /// CONNAME holds something else than addresses.
    Connection { text: String },
    /// CONNAME with its ports is too long.
    Connections { chars: usize },
    /// No user can have that name.
    User { name: String },
    /// SSLCIPH names nothing in the table.
    CipherSpec { name: String },
    /// SSLGROUPS names no group, or one twice.
    Groups(GroupsError),
    /// SSLPEER is no pattern.
    Pattern(PatternError),
    /// CERTLABL can't be the name of a file.
    Label { label: String },
    /// Not an absolute path.
    NotAbsolute { keyword: &'static str },
    /// One without the other.
    Alone { keyword: &'static str, other: &'static str },
}

impl Refused {
    fn hint(&self) -> Option<String> {
        match self {
            Refused::NoKind => Some("a channel is a SDR, RCVR, SVR or RQSTR".into()),
            Refused::WrongEnd { .. } => Some("SDR and SVR can REMOVE, RCVR and RQSTR can seal ASPOLICY".into()),
            Refused::OtherKind { .. } => Some("DEFINE with REPLACE defines it anew".into()),
            Refused::CipherSpec { .. } => Some("docs/reference/cipherspecs.md lists them, ANY_TLS13 is one".into()),
            Refused::Groups(_) => Some("docs/reference/cipherspecs.md lists them, X25519MLKEM768 is one".into()),
            Refused::Pattern(_) => Some("write SSLPEER('CN=QM2,O=Demo*')".into()),
            Refused::Label { .. } => Some("a label has letters, digits and . _ -".into()),
            Refused::Connection { .. } => Some("write CONNAME('host(5672),other(5672)')".into()),
            _ => None,
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        invalid(&refused, refused.hint().as_deref())
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoKind => f.write_str("DEFINE CHANNEL needs CHLTYPE or LIKE"),
            Refused::DoesNotFit { keyword, kind } => write!(f, "a channel of CHLTYPE({kind}) has no {keyword}"),
            Refused::WrongEnd { protection, kind } => {
                write!(f, "a channel of CHLTYPE({kind}) cannot have SPLPROT({protection})")
            }
            Refused::Missing { keyword, kind } => write!(f, "a channel of CHLTYPE({kind}) needs {keyword}"),
            Refused::OtherKind { from, to } => {
                write!(f, "a channel of CHLTYPE({from}) cannot become one of CHLTYPE({to})")
            }
            Refused::LikeOtherKind { like, kind } => {
                write!(f, "a channel of CHLTYPE({kind}) cannot be LIKE one of CHLTYPE({like})")
            }
            Refused::LongName { chars } => {
                write!(f, "a channel's name has up to {CHANNEL_NAME_CHARS_MAX} characters, not {chars}")
            }
            Refused::Connection { text } => write!(f, "CONNAME: '{text}' is no address"),
            Refused::Connections { chars } => {
                write!(f, "CONNAME takes {CONNECTIONS_CHARS_MAX} characters with its ports, not {chars}")
            }
            Refused::User { name } => write!(f, "MCAUSER: no user can have the name '{name}'"),
            Refused::CipherSpec { name } => write!(f, "there is no CipherSpec {name}"),
            Refused::Groups(error) => write!(f, "SSLGROUPS: {error}"),
            Refused::Pattern(error) => write!(f, "SSLPEER: {error}"),
            Refused::Label { label } => write!(f, "CERTLABL: '{label}' is no label of a certificate"),
            Refused::NotAbsolute { keyword } => write!(f, "{keyword} takes an absolute path"),
            Refused::Alone { keyword, other } => write!(f, "{keyword} goes with {other}"),
        }
    }
}

impl Rules for ChannelDefinition {
    /// MQRCCF_CHANNEL_ALREADY_EXISTS
    const EXISTS: (u32, &str) = (4042, crate::run::EXISTS.1);
    /// MQRCCF_CHANNEL_NOT_FOUND
    const UNKNOWN: u32 = 4032;
    const MAX: usize = CHANNELS_MAX;

    fn begin(statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        let chars = statement.name.stem.chars().count();
        if chars > CHANNEL_NAME_CHARS_MAX {
            return Err(Refused::LongName { chars }.into());
        }
        match (like, given_kind(statement)) {
            (Some(like), None) => Ok(like.clone()),
            (Some(like), Some(kind)) if like.kind == kind => Ok(like.clone()),
            (Some(like), Some(kind)) => Err(Refused::LikeOtherKind { like: like.kind, kind }.into()),
            (None, Some(kind)) => Ok(ChannelDefinition::new(kind)),
            (None, None) => Err(Refused::NoKind.into()),
        }
    }

    fn has(&self, key: Key) -> bool {
        has(self.kind, key)
    }

    fn check_statement(&self, statement: &Statement) -> Result<(), Failure> {
        match given_kind(statement) {
            Some(to) if to != self.kind => Err(Refused::OtherKind { from: self.kind, to }.into()),
            _ => Ok(()),
        }
    }

    fn check_setting(&self, setting: &Setting) -> Result<(), Failure> {
        if setting.attribute.keyword == "SAMEPEER" {
            return subjects(&setting.value.text()).map(drop);
        }
        refuse(self.kind, setting.attribute, &setting.value).map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// What is not given in CONNAME depends on SSLCIPH, wherever that stands.
    fn complete(&mut self, statement: &Statement) -> Result<(), Failure> {
        let Some(Value::Text(text)) = statement.value(CONNAME) else { return Ok(()) };
        self.connections = addresses(text, if self.cipher_spec.is_some() { PORT_TLS } else { PORT })?;
        match connection_name(self).chars().count() {
            chars if chars > CONNECTIONS_CHARS_MAX => Err(Refused::Connections { chars }.into()),
            _ => Ok(()),
        }
    }

    fn check(&self, _name: &str, definitions: &Definitions) -> Result<(), Failure> {
        let kind = self.kind;
        in_its_group(self, definitions)?;
        let refused = match (&self.source, &self.target) {
            _ if kind.sends() && self.transmission_queue.is_none() => Refused::Missing { keyword: "XMITQ", kind },
            _ if matches!(kind, ChannelKind::Sender | ChannelKind::Requester) && self.connections.is_empty() => {
                Refused::Missing { keyword: "CONNAME", kind }
            }
            (Some(_), None) => Refused::Alone { keyword: "SOURCE", other: "TARGET" },
            (None, Some(_)) => Refused::Alone { keyword: "TARGET", other: "SOURCE" },
            _ => return Ok(()),
        };
        Err(refused.into())
    }

    fn forewarnings(&self, name: &str, definitions: &Definitions) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(weak) = self.cipher_spec.as_deref().and_then(cipher_spec::find).filter(|spec| spec.weak) {
            let why = "an attacker who gets the partner's private key later can read what was recorded";
            warnings.push(format!("{} is weak: {why}", weak.ibm));
        }
        warnings.extend(unproved_partner(self));
        let Some(queue) = &self.transmission_queue else { return warnings };
        warnings.extend(no_transmission_queue(queue, definitions));
        let shares = |(other, of): &(&String, &ChannelDefinition)| {
            *other != name && of.transmission_queue.as_ref() == Some(queue)
        };
        if let Some((other, _)) = definitions.channels.iter().find(shares) {
            warnings.push(format!("channel {other} has XMITQ({queue}) too: one of them can run at a time"));
        }
        warnings
    }

    fn running(name: &str, change: Running<'_, Self>, target: &dyn Administered) -> Result<Option<String>, Failure> {
        let Some(before) = target.definitions().channels.get(name) else { return Ok(None) };
        if let Running::Defined(channel) | Running::Altered(channel) = change
            && channel.group != before.group
        {
            let message = format!("{name} keeps its numbers where it was defined: QSGROUP can't be altered");
            let hint = Some(format!("DELETE CHANNEL({name}), then define it"));
            return Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint });
        }
        let statuses = target.channel_status(name);
        let active = statuses.iter().map(|status| status.state).find(|state| state.is_active());
        let refused = match (change, active) {
            (Running::Altered(channel), Some(state)) if channel != before => {
                let warning = format!("channel {name} is {state}: STOP and START it for the change to take effect");
                return Ok(Some(warning));
            }
            (Running::Altered(_), _) => return Ok(None),
            (_, Some(state)) => AdminError::ChannelInUse { name: name.to_owned(), state },
            _ if statuses.iter().any(|status| status.in_doubt) => AdminError::ChannelInDoubt { name: name.to_owned() },
            _ => return Ok(None),
        };
        Err(failure(&refused))
    }

    /// The type says what to expect of the rest.
    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        let mut wanted = wanted(statement, true);
        wanted.retain(|attribute| attribute.key != CHLTYPE);
        wanted.insert(0, FIELDS[0].attribute());
        wanted
    }
}

/// A channel's group is known here, and its transmission queue, where that is, lies in the same store.
fn in_its_group(channel: &ChannelDefinition, definitions: &Definitions) -> Result<(), Failure> {
    let refused = |reason, message, hint| Failure { kind: FailureKind::Refused, reason: Some(reason), message, hint };
    if let Some(group) = &channel.group
        && !definitions.shared_groups.contains_key(group)
    {
        let hint = Some(format!("DEFINE QSGROUP({group}) SERVERS('HOST:PORT')"));
        return Err(refused(2085, format!("shared group {group} does not exist"), hint));
    }
    let queue = channel.transmission_queue.as_ref().and_then(|name| definitions.queues.get_key_value(name));
    let Some((name, queue)) = queue.filter(|(_, queue)| queue.group != channel.group) else { return Ok(()) };
    let (message, hint) = match &queue.group {
        Some(group) => (format!("XMITQ({name}) is a queue of group {group}"), format!("write QSGROUP({group})")),
        None => (format!("XMITQ({name}) is no queue of a group"), "the channel's queue is one of its QSGROUP".into()),
    };
    Err(refused(2355, message, Some(hint)))
}

/// Why a channel of that type can't have that value.
fn refuse(kind: ChannelKind, attribute: &Attribute, value: &Value) -> Option<Refused> {
    let keyword = attribute.keyword;
    if !has(kind, attribute.key) {
        return Some(Refused::DoesNotFit { keyword, kind });
    }
    if let ("SPLPROT", Value::Word(word)) = (keyword, value) {
        let fits = match protection(word) {
            Protection::Remove => kind.sends(),
            Protection::AsPolicy => !kind.sends(),
            Protection::PassThrough => true,
        };
        return (!fits).then_some(Refused::WrongEnd { protection: word, kind });
    }
    let Value::Text(text) = value else { return None };
    match keyword {
        _ if text.is_empty() => None,
        "MCAUSER" if !names::is_user_name(text) => Some(Refused::User { name: text.clone() }),
        "SSLCIPH" if cipher_spec::find(text).is_none() => Some(Refused::CipherSpec { name: text.clone() }),
        "SSLGROUPS" => tls_group::parse(text).err().map(Refused::Groups),
        "SSLPEER" => PeerPattern::parse(text).err().map(Refused::Pattern),
        "CERTLABL" if !names::is_label(text) => Some(Refused::Label { label: text.clone() }),
        "PASSFILE" if !Path::new(text).is_absolute() => Some(Refused::NotAbsolute { keyword }),
        _ => None,
    }
}

/// The subjects of SAMEPEER, each as that of a certificate is written. No name has a `;` that is not escaped (RFC
/// 4514).
fn subjects(text: &str) -> Result<Vec<String>, Failure> {
    let mut names = vec![String::new()];
    let mut is_escaped = false;
    for letter in text.chars() {
        match names.last_mut() {
            Some(name) if is_escaped || letter != ';' => name.push(letter),
            _ => names.push(String::new()),
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    let canonical = |name: &String| {
        let name = name.trim();
        let refused =
            |why: &dyn Display| invalid(format_args!("SAMEPEER: '{name}' is not a distinguished name: {why}"), None);
        let canonical = name.parse::<Dn>().map_err(|error| refused(&error))?.to_string();
        match canonical.chars().any(char::is_control) {
            true => Err(refused(&"it holds control characters")),
            false => Ok(canonical),
        }
    };
    let names: Vec<String> = match text.trim().is_empty() {
        true => Vec::new(),
        false => names.iter().map(canonical).collect::<Result<_, _>>()?,
    };
    // They are kept as they are shown, and must be read back.
    match names.join("; ").chars().count() {
        chars if chars > SAME_PEERS_CHARS_MAX => {
            Err(invalid(format_args!("SAMEPEER: written out it has {chars} characters"), None))
        }
        _ => Ok(names),
    }
}

/// What SPLPROT says.
fn protection(word: &str) -> Protection {
    let known = [Protection::Remove, Protection::AsPolicy].into_iter().find(|known| known.word() == word);
    known.unwrap_or_default()
}

/// Refuses what can't be the label of a certificate; a blank one is none.
pub(crate) fn check_label(text: &str) -> Result<(), Failure> {
    match text.is_empty() || names::is_label(text) {
        true => Ok(()),
        false => Err(Refused::Label { label: text.to_owned() }.into()),
    }
}

/// A channel with SPLPROT uses a key ring, and asks for no proof of who its partner is.
fn unproved_partner(channel: &ChannelDefinition) -> Option<String> {
    let word = match channel.protection {
        Protection::PassThrough => return None,
        protection => protection.word(),
    };
    let (calls, has_cipher) = (!channel.connections.is_empty(), channel.cipher_spec.is_some());
    if calls && !has_cipher {
        return Some(format!(
            "SPLPROT({word}) without SSLCIPH: START CHANNEL fails with 2063, the partner proves nothing"
        ));
    }
    if calls && channel.kind != ChannelKind::Server {
        return None;
    }
    if !has_cipher || !channel.client_certificate_required {
        let what = "a partner without a certificate is refused with 2063, unless it signs in as the channel's user";
        return Some(format!("SPLPROT({word}) without SSLCIPH and SSLCAUTH(REQUIRED): {what}"));
    }
    let what = "a partner with any certificate of an authority in tls/clients.pem may use the channel's key ring";
    channel.peer_pattern.is_none().then(|| format!("SPLPROT({word}) without SSLPEER: {what}"))
}

/// Whether a channel of that type has the attribute, as MQ has it; options of the command go by too.
fn has(kind: ChannelKind, key: Key) -> bool {
    let Key::Own(word) = key else { return true };
    match word {
        "XMITQ" | "BATCHINT" | "BATCHLIM" | "DISCINT" | "SHORTRTY" | "SHORTTMR" | "LONGRTY" | "LONGTMR" => kind.sends(),
        "MRRTY" | "MRTMR" => !kind.sends(),
        "CONNAME" | "USERID" | "PASSFILE" => kind != ChannelKind::Receiver,
        "SSLCAUTH" => kind != ChannelKind::Sender,
        "SOURCE" | "TARGET" => kind == ChannelKind::Requester,
        _ => true,
    }
}

fn given_kind(statement: &Statement) -> Option<ChannelKind> {
    let Some(Value::Word(word)) = statement.value(CHLTYPE) else { return None };
    KINDS.into_iter().find(|kind| kind.word() == *word)
}

fn seconds(duration: Duration) -> Cell {
    Cell::Number(duration.as_secs())
}

fn milliseconds(duration: Duration) -> Cell {
    Cell::Number(duration.as_millis().try_into().unwrap_or(u64::MAX))
}

/// NPMSPEED as it is shown.
pub(crate) fn speed(fast: bool) -> Cell {
    Cell::word(if fast { "FAST" } else { "NORMAL" })
}

/// CONNAME in MQ's spelling: `host(5672),other(5671)`.
pub(crate) fn connection_name(channel: &ChannelDefinition) -> String {
    channel.connections.iter().map(|address| spelled(address)).collect::<Vec<_>>().join(",")
}

/// `host:1414` as `host(1414)`; what is no such address stays.
pub(crate) fn spelled(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}({port})", host.trim_start_matches('[').trim_end_matches(']'))
        }
        _ => address.to_owned(),
    }
}

/// `host(1414),other` to `host:1414` and `other:PORT`; blank gives none.
fn addresses(text: &str, port: u16) -> Result<Vec<String>, Refused> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let address = |text: &str| {
        let text = text.trim();
        let refused = || Refused::Connection { text: text.to_owned() };
        let (host, port) = match text.strip_suffix(')') {
            Some(text) => {
                let (host, digits) = text.split_once('(').ok_or_else(refused)?;
                let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                (host, digits.parse().ok().filter(|port| is_number && *port > 0).ok_or_else(refused)?)
            }
            None => (text, port),
        };
        if host.parse::<Ipv6Addr>().is_ok() {
            return Ok(format!("[{host}]:{port}"));
        }
        let is_host = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if is_host { Ok(format!("{host}:{port}")) } else { Err(refused()) }
    };
    text.split(',').map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_kept_as_certificates_have_them_and_read_back() {
        for (typed, kept) in [
            ("", vec![]),
            ("  ", vec![]),
            ("CN=QM1,O=Demo", vec!["CN=QM1,O=Demo"]),
            ("CN=QM1, O=Demo;CN=QM2,O=Demo", vec!["CN=QM1,O=Demo", "CN=QM2,O=Demo"]),
            (r"CN=a\;b,O=Demo; CN=c\\", vec![r"CN=a\;b,O=Demo", r"CN=c\\"]),
        ] {
            let names = subjects(typed).unwrap_or_else(|failure| panic!("{typed}: {}", failure.message));
            assert_eq!(names, kept, "{typed}");
            assert_eq!(subjects(&names.join("; ")).ok(), Some(names), "{typed}");
        }
        for typed in [";", "CN=QM1;", "QM1", "CN=a;;CN=b"] {
            assert!(subjects(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn an_address_is_written_as_mq_does_and_kept_as_one_connects() {
        for (typed, kept, shown) in [
            ("qm2.example(1414)", "qm2.example:1414", "qm2.example(1414)"),
            ("10.0.0.1", "10.0.0.1:5672", "10.0.0.1(5672)"),
            ("a(1), b", "a:1 b:5672", "a(1),b(5672)"),
            ("fe80::1(5671)", "[fe80::1]:5671", "fe80::1(5671)"),
            ("::1", "[::1]:5672", "::1(5672)"),
            ("", "", ""),
            ("  ", "", ""),
        ] {
            let mut channel = ChannelDefinition::new(ChannelKind::Sender);
            channel.connections = addresses(typed, PORT).unwrap();
            assert_eq!(channel.connections.join(" "), kept, "{typed}");
            assert_eq!(connection_name(&channel), shown, "{typed}");
            assert_eq!(addresses(shown, PORT).unwrap(), channel.connections, "{typed}");
        }
        for typed in [
            "a(", "a)", "a()", "a(0)", "a(65536)", "a(+1)", "a(1)b", "a(1)(2)", "(1)", "a b", "a,", ",a", "a:1",
            "[::1]", "a/b", "a'b", "é",
        ] {
            assert!(matches!(addresses(typed, PORT), Err(Refused::Connection { .. })), "{typed}");
        }
    }
}
