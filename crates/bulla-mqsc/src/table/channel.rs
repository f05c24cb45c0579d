//! The table's attributes of channels: as they are defined, as they run, and as they are commanded.

use super::protection;
use super::{Attribute, DEVICE_TEXT_CHARS_MAX, Key, Kind, V1, attribute, shown, words};
use bulla_catalog::MESSAGE_BYTES_MAX;

/// Highest BATCHSZ in messages, as MQ has it.
const BATCH_MESSAGES_MAX: u64 = 9_999;
/// Highest BATCHLIM in kilobytes, as MQ has it.
const BATCH_KILOBYTES_MAX: u64 = 999_999;
/// Longest HBINT and DISCINT in seconds, as MQ has it.
const INTERVAL_SECONDS_MAX: u64 = 999_999;
/// Highest number that MQ takes for counts, intervals and sequence numbers.
const COUNT_MAX: u64 = 999_999_999;
/// Lowest SEQWRAP, as MQ has it.
const SEQUENCE_WRAP_MIN: u64 = 100;
/// Longest CONNAME in characters, as MQ has it.
const CONNECTION_CHARS_MAX: usize = 264;
/// Longest SSLPEER in characters, as MQ has it.
const PEER_CHARS_MAX: usize = 1024;
/// Longest CERTLABL, MCAUSER, USERID in characters.
pub(crate) const LABEL_CHARS_MAX: usize = 64;
/// Longest SOURCE of a requester in characters.
const SOURCE_CHARS_MAX: usize = 256;

const fn number(key: Key, keyword: &'static str, max: u64, default: &'static str, doc: &'static str) -> Attribute {
    attribute(key, keyword, Kind::Number { min: 0, max }, default, doc)
}

const fn text(key: Key, keyword: &'static str, chars_max: usize, doc: &'static str) -> Attribute {
    attribute(key, keyword, Kind::Text { chars_max }, "' '", doc)
}

const fn name(key: Key, keyword: &'static str, doc: &'static str) -> Attribute {
    attribute(key, keyword, Kind::Name { optional: true }, "' '", doc)
}

static CHLTYPE: Attribute = attribute(
    Key::ChannelType,
    "CHLTYPE",
    words(&["SDR", "RCVR", "SVR", "RQSTR"]),
    "",
    "Who begins, and which way messages go. SDR: begins, and sends. RCVR: waits for a sender or a server, and receives. SVR: sends when a requester asks it to, and with CONNAME begins like a sender. RQSTR: receives, and begins by asking a server. Needed unless LIKE gives one; it can't be altered.",
);
static CONNAME: Attribute = text(
    Key::ConnectionName,
    "CONNAME",
    CONNECTION_CHARS_MAX,
    "Where the partner is: HOST(PORT), several with commas, tried in turn. A port that is not given becomes 5672, or 5671 where the channel has SSLCIPH. SDR and RQSTR need it, SVR may have it.",
);
static XMITQ: Attribute = name(
    Key::TransmissionQueue,
    "XMITQ",
    "The transmission queue that SDR and SVR take messages from; needed. One channel at a time can run on it.",
);
static BATCHSZ: Attribute = attribute(
    Key::BatchSize,
    "BATCHSZ",
    Kind::Number { min: 1, max: BATCH_MESSAGES_MAX },
    "50",
    "Most messages between two confirmations. The lower of both ends' holds.",
);
static BATCHINT: Attribute = number(
    Key::BatchInterval,
    "BATCHINT",
    COUNT_MAX,
    "0",
    "How long SDR and SVR keep a batch open for more messages once the transmission queue is empty, in milliseconds.",
);
static BATCHLIM: Attribute = number(
    Key::BatchKilobytes,
    "BATCHLIM",
    BATCH_KILOBYTES_MAX,
    "5000",
    "Kilobytes of messages that end a batch of SDR and SVR; 0 for no limit.",
);
static NPMSPEED: Attribute = attribute(
    Key::NonPersistentSpeed,
    "NPMSPEED",
    words(&["FAST", "NORMAL"]),
    "FAST",
    "The sending end's holds. FAST: non-persistent messages do not wait for a batch, and may be lost with the connection. NORMAL: they are confirmed like persistent ones.",
);
static HBINT: Attribute = number(
    Key::Heartbeat,
    "HBINT",
    INTERVAL_SECONDS_MAX,
    "300",
    "Seconds between heartbeats on an idle channel; 0 for none. A partner that says nothing for twice as long is given up.",
);
static DISCINT: Attribute = number(
    Key::DisconnectInterval,
    "DISCINT",
    INTERVAL_SECONDS_MAX,
    "6000",
    "Seconds after which an idle channel of SDR and SVR ends and becomes INACTIVE; 0 for never.",
);
static SHORTRTY: Attribute = number(
    Key::ShortRetries,
    "SHORTRTY",
    COUNT_MAX,
    "10",
    "How often SDR and SVR are first tried again after a failure.",
);
static SHORTTMR: Attribute =
    number(Key::ShortRetryInterval, "SHORTTMR", COUNT_MAX, "60", "Seconds between those first attempts.");
static LONGRTY: Attribute = number(
    Key::LongRetries,
    "LONGRTY",
    COUNT_MAX,
    "999999999",
    "How often SDR and SVR are tried again when SHORTRTY is used up. Then they are STOPPED.",
);
static LONGTMR: Attribute =
    number(Key::LongRetryInterval, "LONGTMR", COUNT_MAX, "1200", "Seconds between those later attempts.");
static SEQWRAP: Attribute = attribute(
    Key::SequenceWrap,
    "SEQWRAP",
    Kind::Number { min: SEQUENCE_WRAP_MIN, max: COUNT_MAX },
    "999999999",
    "Highest sequence number that is shown, before 1 follows. Both ends need the same one.",
);
static MAXMSGL: Attribute = number(
    Key::MaxMessageBytes,
    "MAXMSGL",
    MESSAGE_BYTES_MAX,
    "4194304",
    "Longest message in bytes; 0 for the queue manager's. The lower of both ends' holds.",
);
static MRRTY: Attribute = number(
    Key::MessageRetries,
    "MRRTY",
    COUNT_MAX,
    "10",
    "How often RCVR and RQSTR try to put a message again that can't be put, before it goes to the dead-letter queue.",
);
static MRTMR: Attribute = number(
    Key::MessageRetryInterval,
    "MRTMR",
    COUNT_MAX,
    "1000",
    "Milliseconds between those attempts; the channel is PAUSED meanwhile.",
);
static USEDLQ: Attribute = attribute(
    Key::UseDeadLetterQueue,
    "USEDLQ",
    words(&["YES", "NO"]),
    "YES",
    "Whether a message that can't be delivered goes to the dead-letter queue. NO: a non-persistent one under NPMSPEED(FAST) is discarded, any other ends the channel.",
);
static MCAUSER: Attribute = text(
    Key::ChannelUser,
    "MCAUSER",
    LABEL_CHARS_MAX,
    "The user in whose name a receiving channel puts, by whose right a requester has a server channel started, and whose key ring the channel opens and seals with under SPLPROT; blank for the user who is named like the queue manager.",
);
static SPLPROT: Attribute = attribute(
    Key::Protection,
    "SPLPROT",
    words(&["PASSTHRU", "REMOVE", "ASPOLICY"]),
    "PASSTHRU",
    "PASSTHRU: messages pass as they are. REMOVE, of SDR and SVR: where the transmission queue has a policy, messages are opened before they are sent. ASPOLICY, of RCVR and RQSTR: where the target queue has a policy, messages are sealed before they are put.",
);
static SSLCIPH: Attribute = name(
    Key::CipherSpec,
    "SSLCIPH",
    "The CipherSpec, by MQ's name or IANA's; blank for no TLS. Both ends need one that the other's allows.",
);
static SSLPEER: Attribute = text(
    Key::PeerPattern,
    "SSLPEER",
    PEER_CHARS_MAX,
    "What the subject of the partner's certificate must be, as in 'CN=QM2,O=Demo*'; blank for any that is trusted.",
);
static SSLCAUTH: Attribute = attribute(
    Key::ClientCertificate,
    "SSLCAUTH",
    words(&["REQUIRED", "OPTIONAL"]),
    "REQUIRED",
    "Whether a partner that begins must show a certificate. For RCVR, SVR and RQSTR.",
);
static CERTLABL: Attribute = text(
    Key::CertificateLabel,
    "CERTLABL",
    LABEL_CHARS_MAX,
    "Label of the certificate that the channel shows; blank for the queue manager's.",
);
static CHANNEL_SSLRKEYC: Attribute = attribute(
    Key::KeyResetBytes,
    "SSLRKEYC",
    Kind::NumberOr { min: 0, max: COUNT_MAX, word: "QMGR" },
    "QMGR",
    "Bytes sent and received after which the keys of TLS are renewed, 0 for never; 1 to 32768 act as 32768. QMGR: as ALTER QMGR says. The side that begins decides.",
);
static USERID: Attribute = text(
    Key::PartnerUser,
    "USERID",
    LABEL_CHARS_MAX,
    "The user name with which SDR, SVR and RQSTR sign in at a partner that asks for a password.",
);
static PASSFILE: Attribute = text(
    Key::PasswordFile,
    "PASSFILE",
    DEVICE_TEXT_CHARS_MAX,
    "A file whose first line is USERID's password, by its absolute path.",
);
static SOURCE: Attribute = text(
    Key::Source,
    "SOURCE",
    SOURCE_CHARS_MAX,
    "The address that a RQSTR receives from at a partner that is not Bulla; with TARGET.",
);
static CHANNEL_TARGET: Attribute = Attribute {
    key: Key::Target,
    keyword: "TARGET",
    synonyms: &["TARGQ"],
    kind: Kind::Name { optional: true },
    default: "' '",
    doc: "The queue on which a RQSTR puts messages from a partner that is not Bulla; with SOURCE.",
    since: V1,
};

/// What a channel is defined by, in the order in which it is shown.
pub(super) const CHANNEL: &[&Attribute] = &[
    &CHLTYPE,
    &super::DESCR,
    &CONNAME,
    &XMITQ,
    &BATCHSZ,
    &BATCHINT,
    &BATCHLIM,
    &NPMSPEED,
    &HBINT,
    &DISCINT,
    &SHORTRTY,
    &SHORTTMR,
    &LONGRTY,
    &LONGTMR,
    &SEQWRAP,
    &MAXMSGL,
    &MRRTY,
    &MRTMR,
    &USEDLQ,
    &MCAUSER,
    &SPLPROT,
    &SSLCIPH,
    &SSLPEER,
    &SSLCAUTH,
    &CERTLABL,
    &CHANNEL_SSLRKEYC,
    &USERID,
    &PASSFILE,
    &SOURCE,
    &CHANNEL_TARGET,
];

pub(super) static MODE: Attribute = attribute(
    Key::StopMode,
    "MODE",
    Kind::Word {
        choices: &["QUIESCE", "FORCE"],
        refused: &[("TERMINATE", "FORCE ends the connection at once, and there is nothing else to end")],
    },
    "QUIESCE",
    "QUIESCE ends the batch first. FORCE cuts the connection: what was sent and not confirmed is in doubt until the channel runs again.",
);
pub(super) static STOP_STATUS: Attribute = attribute(
    Key::StopStatus,
    "STATUS",
    words(&["STOPPED", "INACTIVE"]),
    "STOPPED",
    "STOPPED: it stays away until START CHANNEL. INACTIVE: its transmission queue or its partner can start it again.",
);
pub(super) static SEQNUM: Attribute = attribute(
    Key::SequenceNumber,
    "SEQNUM",
    Kind::Number { min: 1, max: COUNT_MAX },
    "1",
    "The sequence number of the next message.",
);
pub(super) static RESOLVE_ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["COMMIT", "BACKOUT"]),
    "",
    "COMMIT: the partner has the messages that are in doubt, and they are removed here. BACKOUT: it has not, and they are sent again. Needed.",
);

pub(super) static CHLTYPE_SHOWN: Attribute =
    shown(Key::ChannelType, "CHLTYPE", "SDR, RCVR, SVR or RQSTR, as the channel is defined.");
pub(super) static CONNAME_SHOWN: Attribute = shown(Key::ConnectionName, "CONNAME", "The partner's address.");
pub(super) static STATUS: Attribute = shown(
    Key::ChannelState,
    "STATUS",
    "INACTIVE: not started, or ended in order. STARTING: told to. BINDING: it connects. REQUESTING: a requester asks its server. INITIALIZING: both ends agree on where they stand. RUNNING. PAUSED: a receiver waits for MRTMR. STOPPING: it ends after the batch. RETRYING: it failed and is tried again. STOPPED: it stays away until it is started.",
);
pub(super) static SUBSTATE: Attribute =
    shown(Key::Substate, "SUBSTATE", "What a running channel waits for; blank while it does not run.");
pub(super) static XMITQ_SHOWN: Attribute =
    shown(Key::TransmissionQueue, "XMITQ", "The transmission queue of a sending channel.");
pub(super) static RQMNAME_SHOWN: Attribute =
    shown(Key::RemoteManager, "RQMNAME", "The partner's queue manager, once it is known.");
pub(super) static REASON_SHOWN: Attribute =
    shown(Key::Reason, "REASON", "Why the channel failed last; blank where it did not.");

/// What DISPLAY CHSTATUS shows when nothing is asked for.
pub(in super::super) const STATUS_BRIEF: [&Attribute; 7] =
    [&CHLTYPE_SHOWN, &CONNAME_SHOWN, &STATUS, &SUBSTATE, &XMITQ_SHOWN, &RQMNAME_SHOWN, &REASON_SHOWN];

macro_rules! status {
    ($($name:ident $key:ident $keyword:literal $doc:literal;)*) => {
        $(static $name: Attribute = shown(Key::$key, $keyword, $doc);)*
        /// What goes on at an instance of a channel.
        pub(super) const CHANNEL_STATUS: &[&Attribute] = &[
            &CHLTYPE_SHOWN,
            &CONNAME_SHOWN,
            &STATUS,
            &SUBSTATE,
            &XMITQ_SHOWN,
            &RQMNAME_SHOWN,
            &REASON_SHOWN,
            $(&$name),*,
            &protection::SEALED,
            &protection::OPENED,
            &protection::CHECKED,
            &protection::QUARANT,
            &protection::KEYGENS,
            &protection::WRAPS,
            &protection::UNWRAPS,
            &protection::SIGNS,
            &protection::VERIFIES,
            &protection::KEYHITS,
            &protection::CLEARIN,
            &protection::SEALOUT,
            &protection::SEALIN,
            &protection::CLEAROUT,
            &protection::DEVJOBS,
            &protection::DEVWAIT,
            &protection::DEVWMAX,
            &protection::FAILURES,
            &protection::FAILBY,
        ];
    };
}

status! {
    DELIVERY Guarantee "DELIVERY" "EXACTLYONCE where the partner is Bulla, ATLEASTONCE where it is another AMQP 1.0 broker; blank until that is known.";
    INDOUBT InDoubt "INDOUBT" "YES: messages were sent, and the partner has not said what became of them.";
    STOPREQ StopRequested "STOPREQ" "YES: the channel has been told to stop.";
    LOCLADDR LocalAddress "LOCLADDR" "This side's address.";
    RAPPLTAG RemoteApplication "RAPPLTAG" "The partner's container id.";
    RPRODUCT RemoteProduct "RPRODUCT" "The partner's product.";
    RVERSION RemoteVersion "RVERSION" "The partner's version.";
    JOBNAME Job "JOBNAME" "Process and thread that own the connection.";
    MCAUSER_SHOWN ChannelUser "MCAUSER" "The user in force.";
    MSGS Messages "MSGS" "Messages sent or received since the start of the instance.";
    BATCHES Batches "BATCHES" "Batches completed since the start of the instance.";
    CURMSGS CurrentMessages "CURMSGS" "Messages sent or received and not confirmed.";
    CURSEQNO CurrentSequence "CURSEQNO" "Sequence number of the last message sent or received.";
    LSTSEQNO LastSequence "LSTSEQNO" "Sequence number of the last message confirmed.";
    CURLUWID CurrentUnit "CURLUWID" "The unit of work under way.";
    LSTLUWID LastUnit "LSTLUWID" "The last unit of work that was confirmed.";
    LSTMSGDA LastMessageDate "LSTMSGDA" "Date of the last message, UTC.";
    LSTMSGTI LastMessageTime "LSTMSGTI" "Time of the last message, UTC.";
    CHSTADA ChannelStartDate "CHSTADA" "Date of the instance's start, UTC.";
    CHSTATI ChannelStartTime "CHSTATI" "Time of the instance's start, UTC.";
    BUFSSENT BuffersSent "BUFSSENT" "Writes to the connection.";
    BUFSRCVD BuffersReceived "BUFSRCVD" "Reads of the connection.";
    BYTSSENT BytesSent "BYTSSENT" "Bytes sent.";
    BYTSRCVD BytesReceived "BYTSRCVD" "Bytes received.";
    SHORTRTS ShortRetriesLeft "SHORTRTS" "Attempts of SHORTRTY that are left.";
    LONGRTS LongRetriesLeft "LONGRTS" "Attempts of LONGRTY that are left.";
    BATCHSZ_SHOWN BatchSize "BATCHSZ" "BATCHSZ in force.";
    HBINT_SHOWN Heartbeat "HBINT" "HBINT in force, in seconds.";
    MAXMSGL_SHOWN MaxMessageBytes "MAXMSGL" "MAXMSGL in force, in bytes.";
    NPMSPEED_SHOWN NonPersistentSpeed "NPMSPEED" "NPMSPEED in force.";
    SECPROT SecurityProtocol "SECPROT" "NONE, TLSV12 or TLSV13.";
    SSLCIPH_SHOWN CipherSpec "SSLCIPH" "The CipherSpec in force, by MQ's name; blank without TLS.";
    SSLPEER_SHOWN PeerPattern "SSLPEER" "Subject of the partner's certificate.";
    SSLCERTI PeerIssuer "SSLCERTI" "Issuer of the partner's certificate.";
    SSLRKEYS KeyResets "SSLRKEYS" "Times that the keys of TLS were renewed.";
    SSLKEYDA KeyResetDate "SSLKEYDA" "Date of the last renewal, UTC.";
    SSLKEYTI KeyResetTime "SSLKEYTI" "Time of the last renewal, UTC.";
    XQTIME QueueTime "XQTIME" "Microseconds that messages spent on the transmission queue: a short and a long average. WHERE compares the short one.";
    NETTIME NetTime "NETTIME" "Microseconds from sending to confirmation, the partner's own time and its journal's included: a short and a long average. WHERE compares the short one.";
    XBATCHSZ BatchMessages "XBATCHSZ" "Messages in a batch: a short and a long average. WHERE compares the short one.";
    XQMSGSA QueueMessages "XQMSGSA" "Messages that wait on the transmission queue.";
}

macro_rules! initiator {
    ($($name:ident $key:ident $keyword:literal $doc:literal;)*) => {
        $(static $name: Attribute = shown(Key::$key, $keyword, $doc);)*
        /// What goes on at the channels together.
        pub(super) const INITIATOR: &[&Attribute] = &[$(&$name),*];
    };
}

initiator! {
    ADAPS Adapters "ADAPS" "Adapters that run: threads that seal, open and put.";
    ADAPSREQ AdaptersRequested "ADAPSREQ" "Adapters that were asked for; surplus ones end after their turn.";
    DISPS Dispatchers "DISPS" "Dispatchers that run: threads that own the connections.";
    DISPSREQ DispatchersRequested "DISPSREQ" "Dispatchers that were asked for; surplus ones end with their last connection.";
    SSLTASKS TlsTasks "SSLTASKS" "Threads for TLS alone that run; 0 where dispatchers do it.";
    SSLTSREQ TlsTasksRequested "SSLTSREQ" "Threads for TLS alone that were asked for.";
    CURCHL CurrentChannels "CURCHL" "Instances of channels that are not INACTIVE.";
    MAXCHL_SHOWN ChannelsMax "MAXCHL" "Most that may be.";
    ACTIVE ActiveChannels "ACTIVE" "Of them, those that are active.";
    ACTCHL_SHOWN ActiveChannelsMax "ACTCHL" "Most that may be.";
    PAUSED PausedChannels "PAUSED" "Of the active ones, those that are PAUSED.";
    STARTING StartingChannels "STARTING" "Of the active ones, those that are STARTING.";
    RETRYING RetryingChannels "RETRYING" "Instances that are RETRYING.";
    STOPPED StoppedChannels "STOPPED" "Instances that are STOPPED.";
    LISTENER Listeners "LISTENER" "Where partners and applications are listened for, one for each.";
}
