//! Channels as they are defined, and what goes on at one.

use super::parse::{Statement, Value};
use super::reply::Cell;
use super::table::Key;
use crate::attributes::{Cells, blank, clamped, number_of, number_or, unless_blank};
use bulla_catalog::calendar::{date, time};
use bulla_catalog::peer_name::{PatternError, PeerPattern};
use bulla_catalog::status::{ChannelStatus, InitiatorStatus, TwoAverages};
use bulla_catalog::{CHANNEL_NAME_CHARS_MAX, ChannelDefinition, ChannelKind, Protection, cipher_spec, names};
use std::fmt::{self, Display};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Port of CONNAME where none is given: AMQP's.
const PORT: u16 = 5672;
/// The same where the channel has SSLCIPH.
const PORT_TLS: u16 = 5671;
/// Longest CONNAME in characters, written with its ports.
const CONNECTIONS_CHARS_MAX: usize = 264;

/// Every type as it is written.
const KINDS: [ChannelKind; 4] =
    [ChannelKind::Sender, ChannelKind::Receiver, ChannelKind::Server, ChannelKind::Requester];

/// Why a channel cannot be defined so. The turn is with the author of the command.
#[derive(Debug)]
pub(super) enum Refused {
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
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Refused::NoKind => Some("a channel is a SDR, RCVR, SVR or RQSTR".into()),
            Refused::WrongEnd { .. } => Some("SDR and SVR can REMOVE, RCVR and RQSTR can seal ASPOLICY".into()),
            Refused::OtherKind { .. } => Some("DEFINE with REPLACE defines it anew".into()),
            Refused::CipherSpec { .. } => Some("docs/reference/cipherspecs.md lists them, ANY_TLS13 is one".into()),
            Refused::Pattern(_) => Some("write SSLPEER('CN=QM2,O=Demo*')".into()),
            Refused::Label { .. } => Some("a label has letters, digits and . _ -".into()),
            Refused::Connection { .. } => Some("write CONNAME('host(5672),other(5672)')".into()),
            _ => None,
        }
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
            Refused::Pattern(error) => write!(f, "SSLPEER: {error}"),
            Refused::Label { label } => write!(f, "CERTLABL: '{label}' is no label of a certificate"),
            Refused::NotAbsolute { keyword } => write!(f, "{keyword} takes an absolute path"),
            Refused::Alone { keyword, other } => write!(f, "{keyword} goes with {other}"),
        }
    }
}

impl Cells for ChannelDefinition {
    fn cell(&self, key: Key) -> Option<Cell> {
        let seconds = |duration: Duration| Cell::Number(duration.as_secs());
        let milliseconds = |duration: Duration| Cell::Number(duration.as_millis().try_into().unwrap_or(u64::MAX));
        let yes_or_no = |yes| Cell::word(if yes { "YES" } else { "NO" });
        if !has(self.kind, key) {
            return None;
        }
        Some(match key {
            Key::ChannelType => Cell::word(self.kind.word()),
            Key::Description => Cell::Text(self.description.clone()),
            Key::ConnectionName => Cell::Text(connection_name(self)),
            Key::TransmissionQueue => blank(self.transmission_queue.as_deref()),
            Key::BatchSize => Cell::Number(self.batch_size.into()),
            Key::BatchInterval => milliseconds(self.batch_interval),
            Key::BatchKilobytes => Cell::Number(self.batch_bytes_max / 1024),
            Key::NonPersistentSpeed => speed(self.non_persistent_fast),
            Key::Heartbeat => seconds(self.heartbeat),
            Key::DisconnectInterval => seconds(self.disconnect_after),
            Key::ShortRetries => Cell::Number(self.short_retries.into()),
            Key::ShortRetryInterval => seconds(self.short_retry_interval),
            Key::LongRetries => Cell::Number(self.long_retries.into()),
            Key::LongRetryInterval => seconds(self.long_retry_interval),
            Key::SequenceWrap => Cell::Number(self.sequence_wrap.into()),
            Key::MaxMessageBytes => Cell::Number(self.max_message_bytes.into()),
            Key::MessageRetries => Cell::Number(self.message_retries.into()),
            Key::MessageRetryInterval => milliseconds(self.message_retry_interval),
            Key::UseDeadLetterQueue => yes_or_no(self.use_dead_letter_queue),
            Key::ChannelUser => blank(self.user.as_deref()),
            Key::Protection => Cell::word(self.protection.word()),
            Key::CipherSpec => blank(self.cipher_spec.as_deref()),
            Key::PeerPattern => blank(self.peer_pattern.as_deref()),
            Key::ClientCertificate => {
                Cell::word(if self.client_certificate_required { "REQUIRED" } else { "OPTIONAL" })
            }
            Key::CertificateLabel => blank(self.certificate_label.as_deref()),
            Key::KeyResetBytes => number_or(self.key_reset_bytes, "QMGR"),
            Key::PartnerUser => blank(self.sasl_user.as_deref()),
            Key::PasswordFile => {
                Cell::Text(self.password_file.as_ref().map_or(String::new(), |path| path.to_string_lossy().into()))
            }
            Key::Source => blank(self.source.as_deref()),
            Key::Target => blank(self.target.as_deref()),
            _ => return None,
        })
    }
}

/// What DEFINE comes to: `model` is LIKE's channel.
pub(super) fn defined(statement: &Statement, model: Option<&ChannelDefinition>) -> Result<ChannelDefinition, Refused> {
    let chars = statement.name.stem.chars().count();
    if chars > CHANNEL_NAME_CHARS_MAX {
        return Err(Refused::LongName { chars });
    }
    let mut channel = match (model, given_kind(statement)) {
        (Some(model), None) => model.clone(),
        (Some(model), Some(kind)) if model.kind == kind => model.clone(),
        (Some(model), Some(kind)) => return Err(Refused::LikeOtherKind { like: model.kind, kind }),
        (None, Some(kind)) => ChannelDefinition::new(kind),
        (None, None) => return Err(Refused::NoKind),
    };
    set(&mut channel, statement)?;
    Ok(channel)
}

/// What ALTER comes to.
pub(super) fn altered(mut channel: ChannelDefinition, statement: &Statement) -> Result<ChannelDefinition, Refused> {
    match given_kind(statement) {
        Some(to) if to != channel.kind => return Err(Refused::OtherKind { from: channel.kind, to }),
        _ => set(&mut channel, statement)?,
    }
    Ok(channel)
}

/// Everything but CHLTYPE.
fn set(channel: &mut ChannelDefinition, statement: &Statement) -> Result<(), Refused> {
    let kind = channel.kind;
    for setting in &statement.settings {
        let keyword = setting.attribute.keyword;
        let key = setting.attribute.key;
        if !has(kind, key) {
            return Err(Refused::DoesNotFit { keyword, kind });
        }
        match &setting.value {
            Value::Number(number) => set_number(channel, key, *number),
            Value::Word(word) => set_word(channel, key, word)?,
            Value::Text(text) => set_text(channel, key, keyword, text)?,
            Value::List(_) => {}
        }
    }
    // What is not given in CONNAME depends on SSLCIPH, wherever that stands.
    if let Some(Value::Text(text)) = statement.value(Key::ConnectionName) {
        channel.connections = addresses(text, if channel.cipher_spec.is_some() { PORT_TLS } else { PORT })?;
        let chars = connection_name(channel).chars().count();
        if chars > CONNECTIONS_CHARS_MAX {
            return Err(Refused::Connections { chars });
        }
    }
    if kind.sends() && channel.transmission_queue.is_none() {
        return Err(Refused::Missing { keyword: "XMITQ", kind });
    }
    if matches!(kind, ChannelKind::Sender | ChannelKind::Requester) && channel.connections.is_empty() {
        return Err(Refused::Missing { keyword: "CONNAME", kind });
    }
    match (&channel.source, &channel.target) {
        (Some(_), None) => Err(Refused::Alone { keyword: "SOURCE", other: "TARGET" }),
        (None, Some(_)) => Err(Refused::Alone { keyword: "TARGET", other: "SOURCE" }),
        _ => Ok(()),
    }
}

fn set_number(channel: &mut ChannelDefinition, key: Key, number: u64) {
    match key {
        Key::BatchSize => channel.batch_size = clamped(number),
        Key::BatchInterval => channel.batch_interval = Duration::from_millis(number),
        Key::BatchKilobytes => channel.batch_bytes_max = number.saturating_mul(1024),
        Key::Heartbeat => channel.heartbeat = Duration::from_secs(number),
        Key::DisconnectInterval => channel.disconnect_after = Duration::from_secs(number),
        Key::ShortRetries => channel.short_retries = clamped(number),
        Key::ShortRetryInterval => channel.short_retry_interval = Duration::from_secs(number),
        Key::LongRetries => channel.long_retries = clamped(number),
        Key::LongRetryInterval => channel.long_retry_interval = Duration::from_secs(number),
        Key::SequenceWrap => channel.sequence_wrap = clamped(number),
        Key::MaxMessageBytes => channel.max_message_bytes = clamped(number),
        Key::MessageRetries => channel.message_retries = clamped(number),
        Key::MessageRetryInterval => channel.message_retry_interval = Duration::from_millis(number),
        Key::KeyResetBytes => channel.key_reset_bytes = number_of(&Value::Number(number)),
        _ => {}
    }
}

fn set_word(channel: &mut ChannelDefinition, key: Key, word: &'static str) -> Result<(), Refused> {
    match key {
        Key::NonPersistentSpeed => channel.non_persistent_fast = word == "FAST",
        Key::UseDeadLetterQueue => channel.use_dead_letter_queue = word == "YES",
        Key::ClientCertificate => channel.client_certificate_required = word == "REQUIRED",
        Key::KeyResetBytes => channel.key_reset_bytes = None,
        Key::Protection => {
            channel.protection = match word {
                "REMOVE" if channel.kind.sends() => Protection::Remove,
                "ASPOLICY" if !channel.kind.sends() => Protection::AsPolicy,
                "PASSTHRU" => Protection::PassThrough,
                _ => return Err(Refused::WrongEnd { protection: word, kind: channel.kind }),
            };
        }
        _ => {}
    }
    Ok(())
}

fn set_text(channel: &mut ChannelDefinition, key: Key, keyword: &'static str, text: &str) -> Result<(), Refused> {
    match key {
        Key::Description => text.clone_into(&mut channel.description),
        Key::TransmissionQueue => channel.transmission_queue = unless_blank(text),
        Key::ChannelUser if text.is_empty() || names::is_user_name(text) => channel.user = unless_blank(text),
        Key::ChannelUser => return Err(Refused::User { name: text.to_owned() }),
        Key::CipherSpec if text.is_empty() || cipher_spec::find(text).is_some() => {
            channel.cipher_spec = unless_blank(text)
        }
        Key::CipherSpec => return Err(Refused::CipherSpec { name: text.to_owned() }),
        Key::PeerPattern => {
            channel.peer_pattern = unless_blank(text);
            let pattern = channel.peer_pattern.as_deref().map(PeerPattern::parse).transpose();
            pattern.map_err(Refused::Pattern)?;
        }
        Key::CertificateLabel => channel.certificate_label = label(text)?,
        Key::PartnerUser => channel.sasl_user = unless_blank(text),
        Key::PasswordFile if text.is_empty() || Path::new(text).is_absolute() => {
            channel.password_file = unless_blank(text).map(PathBuf::from);
        }
        Key::PasswordFile => return Err(Refused::NotAbsolute { keyword }),
        Key::Source => channel.source = unless_blank(text),
        Key::Target => channel.target = unless_blank(text),
        _ => {}
    }
    Ok(())
}

/// CONNAME in MQ's spelling: `host(5672),other(5671)`.
pub(super) fn connection_name(channel: &ChannelDefinition) -> String {
    channel.connections.iter().map(|address| spelled(address)).collect::<Vec<_>>().join(",")
}

/// Whether a channel of that type has the attribute, as MQ has it; options of the command go by too.
fn has(kind: ChannelKind, key: Key) -> bool {
    match key {
        Key::TransmissionQueue
        | Key::BatchInterval
        | Key::BatchKilobytes
        | Key::DisconnectInterval
        | Key::ShortRetries
        | Key::ShortRetryInterval
        | Key::LongRetries
        | Key::LongRetryInterval => kind.sends(),
        Key::MessageRetries | Key::MessageRetryInterval => !kind.sends(),
        Key::ConnectionName | Key::PartnerUser | Key::PasswordFile => kind != ChannelKind::Receiver,
        Key::ClientCertificate => kind != ChannelKind::Sender,
        Key::Source | Key::Target => kind == ChannelKind::Requester,
        _ => true,
    }
}

fn given_kind(statement: &Statement) -> Option<ChannelKind> {
    let Some(Value::Word(word)) = statement.value(Key::ChannelType) else { return None };
    KINDS.into_iter().find(|kind| kind.word() == *word)
}

/// `host:1414` as `host(1414)`; what is no such address stays.
fn spelled(address: &str) -> String {
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

/// The label of a certificate, none where it is blank.
pub(super) fn label(text: &str) -> Result<Option<String>, Refused> {
    if text.is_empty() || names::is_label(text) {
        return Ok(unless_blank(text));
    }
    Err(Refused::Label { label: text.to_owned() })
}

fn speed(fast: bool) -> Cell {
    Cell::word(if fast { "FAST" } else { "NORMAL" })
}

/// What DISPLAY CHSTATUS shows of an instance of `channel`.
pub(super) fn status_cell(status: &ChannelStatus, channel: &ChannelDefinition, key: Key) -> Option<Cell> {
    let text = |text: &String| Cell::Text(text.clone());
    let yes_or_no = |yes| Cell::word(if yes { "YES" } else { "NO" });
    let pair = |pair: TwoAverages| Cell::Pair(pair.short, pair.long);
    let date_of = |ms: Option<u64>| Cell::Text(ms.map(date).unwrap_or_default());
    let time_of = |ms: Option<u64>| Cell::Text(ms.map(time).unwrap_or_default());
    // What is agreed on with the partner is not known before there was one.
    let known = status.started_ms.is_some();
    Some(match key {
        Key::ChannelType => Cell::word(channel.kind.word()),
        // Where it would connect, while it does not.
        Key::ConnectionName if status.connection.is_empty() => Cell::Text(connection_name(channel)),
        Key::ConnectionName => Cell::Text(spelled(&status.connection)),
        Key::ChannelState => Cell::word(status.state.word()),
        Key::Substate => Cell::word(status.substate),
        Key::TransmissionQueue if channel.kind.sends() && status.transmission_queue.is_empty() => {
            blank(channel.transmission_queue.as_deref())
        }
        Key::TransmissionQueue if channel.kind.sends() => text(&status.transmission_queue),
        Key::RemoteManager => text(&status.remote_manager),
        Key::Reason => text(&status.reason),
        Key::Guarantee if status.remote_application.is_empty() => Cell::word(""),
        Key::Guarantee => Cell::word(if status.exactly_once { "EXACTLYONCE" } else { "ATLEASTONCE" }),
        Key::InDoubt if channel.kind.sends() => yes_or_no(status.in_doubt),
        Key::StopRequested => yes_or_no(status.stop_requested),
        Key::LocalAddress => Cell::Text(spelled(&status.local_address)),
        Key::RemoteApplication => text(&status.remote_application),
        Key::RemoteProduct => text(&status.remote_product),
        Key::RemoteVersion => text(&status.remote_version),
        Key::Job => text(&status.job),
        Key::ChannelUser => text(&status.user),
        Key::Messages => Cell::Number(status.messages),
        Key::Batches => Cell::Number(status.batches),
        Key::CurrentMessages => Cell::Number(status.current_messages),
        Key::CurrentSequence => Cell::Number(status.current_sequence),
        Key::LastSequence => Cell::Number(status.last_sequence),
        Key::CurrentUnit => text(&status.current_unit),
        Key::LastUnit => text(&status.last_unit),
        Key::LastMessageDate => date_of(status.last_message_ms),
        Key::LastMessageTime => time_of(status.last_message_ms),
        Key::ChannelStartDate => date_of(status.started_ms),
        Key::ChannelStartTime => time_of(status.started_ms),
        Key::BuffersSent => Cell::Number(status.buffers_sent),
        Key::BuffersReceived => Cell::Number(status.buffers_received),
        Key::BytesSent => Cell::Number(status.bytes_sent),
        Key::BytesReceived => Cell::Number(status.bytes_received),
        Key::ShortRetriesLeft if channel.kind.sends() => Cell::Number(status.short_retries_left.into()),
        Key::LongRetriesLeft if channel.kind.sends() => Cell::Number(status.long_retries_left.into()),
        Key::BatchSize if known => Cell::Number(status.batch_size.into()),
        Key::Heartbeat if known => Cell::Number(status.heartbeat_seconds.into()),
        Key::MaxMessageBytes if known => Cell::Number(status.max_message_bytes),
        Key::NonPersistentSpeed if known => speed(status.non_persistent_fast),
        Key::SecurityProtocol => Cell::word(status.security_protocol),
        Key::CipherSpec => text(&status.cipher_spec),
        Key::PeerPattern => text(&status.peer_name),
        Key::PeerIssuer => text(&status.peer_issuer),
        Key::KeyResets => Cell::Number(status.key_resets),
        Key::KeyResetDate => date_of(status.last_key_reset_ms),
        Key::KeyResetTime => time_of(status.last_key_reset_ms),
        Key::QueueTime if channel.kind.sends() => pair(status.queue_time_us),
        Key::NetTime if channel.kind.sends() => pair(status.net_time_us),
        Key::BatchMessages => pair(status.batch_messages),
        Key::QueueMessages if channel.kind.sends() => Cell::Number(status.queue_messages),
        key => return status.protection.cell(key),
    })
}

impl Cells for InitiatorStatus {
    fn cell(&self, key: Key) -> Option<Cell> {
        let number = |number: u32| Cell::Number(number.into());
        Some(match key {
            Key::Adapters => number(self.adapters.started),
            Key::AdaptersRequested => number(self.adapters.requested),
            Key::Dispatchers => number(self.dispatchers.started),
            Key::DispatchersRequested => number(self.dispatchers.requested),
            Key::TlsTasks => number(self.tls_tasks.started),
            Key::TlsTasksRequested => number(self.tls_tasks.requested),
            Key::CurrentChannels => number(self.current),
            Key::ChannelsMax => number(self.channels_max),
            Key::ActiveChannels => number(self.active),
            Key::ActiveChannelsMax => number(self.active_channels_max),
            Key::PausedChannels => number(self.paused),
            Key::StartingChannels => number(self.starting),
            Key::RetryingChannels => number(self.retrying),
            Key::StoppedChannels => number(self.stopped),
            Key::Listeners => Cell::List(self.listeners.clone()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
