//! The commands for channels that run: START, STOP, PING, RESET and RESOLVE, and the attributes of what goes on.

use super::protection;
use super::{Act, Attribute, Command, Doing, Key, Kind, NameUse, V1, attribute, shown, words};

/// Highest number that MQ takes for counts, intervals and sequence numbers.
pub(crate) const COUNT_MAX: u64 = 999_999_999;
/// Longest CERTLABL, MCAUSER, USERID in characters.
pub(crate) const LABEL_CHARS_MAX: usize = 64;
/// Longest SSLGROUPS in characters: all groups.
pub(crate) const GROUPS_CHARS_MAX: usize = 128;

static MODE: Attribute = attribute(
    Key::StopMode,
    "MODE",
    Kind::Word {
        choices: &["QUIESCE", "FORCE"],
        refused: &[("TERMINATE", "FORCE ends the connection at once, and there is nothing else to end")],
    },
    "QUIESCE",
    "QUIESCE ends the batch first. FORCE cuts the connection: what was sent and not confirmed is in doubt until the \
     channel runs again.",
);
static STOP_STATUS: Attribute = attribute(
    Key::StopStatus,
    "STATUS",
    words(&["STOPPED", "INACTIVE"]),
    "STOPPED",
    "STOPPED: it stays away until START CHANNEL. INACTIVE: its transmission queue or its partner can start it again.",
);
static SEQNUM: Attribute = attribute(
    Key::SequenceNumber,
    "SEQNUM",
    Kind::Number { min: 1, max: COUNT_MAX },
    "1",
    "The sequence number of the next message.",
);
static RESOLVE_ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["COMMIT", "BACKOUT"]),
    "",
    "COMMIT: the partner has the messages that are in doubt, and they are removed here. BACKOUT: it has not, and \
     they are sent again. Needed.",
);

/// It runs from then on.
pub(crate) const START: Command = Command {
    act: Act::Does(Doing::StartChannel),
    verb: "START",
    noun: "CHANNEL",
    name: NameUse::One,
    object: "channel",
    summary: "Start a channel. A RCVR, or a SVR without CONNAME, that is STOPPED lets its partner in again.",
    options: &[],
    attributes: &[],
    examples: &["START CHANNEL(QM1.QM2)"],
    since: V1,
};

/// Every instance of it ends.
pub(crate) const STOP: Command = Command {
    act: Act::Does(Doing::StopChannel),
    verb: "STOP",
    noun: "CHANNEL",
    name: NameUse::One,
    object: "channel",
    summary: "Stop a channel, every instance of it.",
    options: &[&MODE, &STOP_STATUS],
    attributes: &[],
    examples: &["STOP CHANNEL(QM1.QM2)", "STOP CHL(QM1.QM2) MODE(FORCE) STATUS(INACTIVE)"],
    since: V1,
};

/// It connects, and sends nothing.
pub(crate) const PING: Command = Command {
    act: Act::Does(Doing::PingChannel),
    verb: "PING",
    noun: "CHANNEL",
    name: NameUse::One,
    object: "channel",
    summary: "Connect to the partner of a SDR or SVR that does not run, as the channel would, TLS included, and \
     say who answers. No message is sent, and no number changes.",
    options: &[],
    attributes: &[],
    examples: &["PING CHANNEL(QM1.QM2)"],
    since: V1,
};

/// Where it goes on.
pub(crate) const RESET: Command = Command {
    act: Act::Does(Doing::ResetChannel),
    verb: "RESET",
    noun: "CHANNEL",
    name: NameUse::One,
    object: "channel",
    summary: "Set the sequence number of a channel that does not run, after both ends have lost count of each \
     other.",
    options: &[&SEQNUM],
    attributes: &[],
    examples: &["RESET CHANNEL(QM1.QM2) SEQNUM(1)"],
    since: V1,
};

/// What becomes of what is in doubt.
pub(crate) const RESOLVE: Command = Command {
    act: Act::Does(Doing::ResolveChannel),
    verb: "RESOLVE",
    noun: "CHANNEL",
    name: NameUse::One,
    object: "channel",
    summary: "Say what became of the messages that a SDR or SVR has in doubt, when its partner can't be asked any \
     more. A channel that starts settles them by itself.",
    options: &[&RESOLVE_ACTION],
    attributes: &[],
    examples: &["RESOLVE CHANNEL(QM1.QM2) ACTION(COMMIT)"],
    since: V1,
};

static CHLTYPE_SHOWN: Attribute =
    shown(Key::ChannelType, "CHLTYPE", "SDR, RCVR, SVR or RQSTR, as the channel is defined.");
pub(super) static CONNAME_SHOWN: Attribute = shown(Key::ConnectionName, "CONNAME", "The partner's address.");
pub(super) static STATUS: Attribute = shown(
    Key::ChannelState,
    "STATUS",
    "INACTIVE: not started, or ended in order. STARTING: told to. BINDING: it connects. REQUESTING: a requester asks \
     its server. INITIALIZING: both ends agree on where they stand. RUNNING. PAUSED: a receiver waits for MRTMR. \
     STOPPING: it ends after the batch. RETRYING: it failed and is tried again. STOPPED: it stays away until it is \
     started.",
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
    DELIVERY Guarantee "DELIVERY" "EXACTLYONCE to Bulla, ATLEASTONCE to another broker; blank until that is known.";
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
    SSLGROUP KeyGroup "SSLGROUP" "The group by which the keys were agreed on; blank without TLS.";
    SSLPEER_SHOWN PeerPattern "SSLPEER" "Subject of the partner's certificate.";
    SSLCERTI PeerIssuer "SSLCERTI" "Issuer of the partner's certificate.";
    SSLRKEYS KeyResets "SSLRKEYS" "Times that the keys of TLS were renewed.";
    SSLKEYDA KeyResetDate "SSLKEYDA" "Date of the last renewal, UTC.";
    SSLKEYTI KeyResetTime "SSLKEYTI" "Time of the last renewal, UTC.";
    XQTIME QueueTime "XQTIME" "Microseconds on the transmission queue: a short average, which WHERE compares, and a long one.";
    NETTIME NetTime "NETTIME" "Microseconds from sending to confirmation, the partner's included: averages as XQTIME.";
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
    DISPSREQ DispatchersRequested "DISPSREQ" "Dispatchers asked for; surplus ones end with their last connection.";
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
