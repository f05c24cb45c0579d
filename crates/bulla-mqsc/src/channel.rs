//! Channels as they run: START, STOP, PING, RESET, RESOLVE, DISPLAY CHSTATUS and DISPLAY CHINIT.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, FailureKind, Outcome, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{AdminError, Administered, failure, invalid, unknown};
use super::table::{self, Doing, Key};
use crate::attributes::{Cells, blank};
use crate::nouns::channel::{connection_name, speed, spelled};
use bulla_catalog::calendar::{date, time};
use bulla_catalog::status::{ChannelState, ChannelStatus, InitiatorStatus, StopChannel, TwoAverages};
use bulla_catalog::{ChannelDefinition, Definitions};

fn existing_channel<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a ChannelDefinition, Failure> {
    definitions.channels.get(name).ok_or_else(|| unknown_channel(name))
}

fn unknown_channel(name: &str) -> Failure {
    Failure { reason: Some(4032), ..unknown("channel", name) }
}

/// START, STOP, PING, RESET and RESOLVE.
///
/// # Errors
/// There is no such channel, it is not of a type for that, or the target refuses.
pub(super) fn command(statement: &Statement, doing: Doing, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let name = &statement.name.stem;
    let kind = existing_channel(name, target.definitions())?.kind;
    if matches!(doing, Doing::PingChannel | Doing::ResolveChannel) && !kind.sends() {
        let message = format!("channel {name} is of CHLTYPE({kind}), {} is for SDR and SVR", statement.command.verb);
        return Err(Failure { kind: FailureKind::Refused, reason: Some(4041), message, hint: None });
    }
    let states: Vec<ChannelState> = target.channel_status(name).iter().map(|status| status.state).collect();
    let active = states.iter().copied().find(|state| state.is_active());
    let done = |message: String| Ok(Outcome::Done { message, warnings: Vec::new() });
    let refused = |error: AdminError| failure(&error);
    match (doing, active) {
        (Doing::StartChannel, Some(state)) if !states.contains(&ChannelState::Stopped) => {
            done(format!("channel {name} is {state} already"))
        }
        (Doing::StartChannel, _) => {
            target.start_channel(name).map_err(refused)?;
            let failed = target.channel_status(name).into_iter().find(|status| status.state == ChannelState::Retrying);
            let warnings = failed.map(|status| format!("channel {name} is {}: {}", status.state, status.reason));
            Ok(Outcome::Done {
                message: format!("start of channel {name} accepted"),
                warnings: warnings.into_iter().collect(),
            })
        }
        (Doing::StopChannel, _) => {
            let how = StopChannel {
                force: statement.says(Key::StopMode, "FORCE"),
                inactive: statement.says(Key::StopStatus, "INACTIVE"),
            };
            let is_stopped = !states.is_empty() && states.iter().all(|state| *state == ChannelState::Stopped);
            if is_stopped && !how.inactive {
                return done(format!("channel {name} is STOPPED already"));
            }
            target.stop_channel(name, how).map_err(refused)?;
            done(format!("stop of channel {name} accepted"))
        }
        (_, Some(state)) => Err(failure(&AdminError::ChannelInUse { name: name.clone(), state })),
        (Doing::PingChannel, None) => target.ping_channel(name).map_err(refused).and_then(done),
        (Doing::ResetChannel, None) => {
            let sequence = match statement.value(Key::SequenceNumber) {
                Some(Value::Number(number)) => *number,
                _ => 1,
            };
            target.reset_channel(name, sequence).map_err(refused).and_then(done)
        }
        (_, None) => {
            let commit = match statement.value(Key::Action) {
                Some(Value::Word(word)) => *word == "COMMIT",
                _ => {
                    return Err(invalid(
                        "RESOLVE CHANNEL needs ACTION",
                        Some("write ACTION(COMMIT) or ACTION(BACKOUT)"),
                    ));
                }
            };
            target.resolve_channel(name, commit).map_err(refused)?;
            let how = if commit { "removed: the partner has them" } else { "sent again: the partner has them not" };
            done(format!("channel {name} resolved, what was in doubt is {how}"))
        }
    }
}

/// DISPLAY CHSTATUS.
///
/// # Errors
/// There is no such channel; WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
    let channels = target.definitions().channels.iter().filter(|(name, _)| statement.name.fits(name));
    let mut instances = Vec::new();
    for (name, channel) in channels {
        let mut statuses = target.channel_status(name);
        if statement.name.generic {
            statuses.retain(ChannelStatus::is_worth_showing);
        } else if statuses.is_empty() {
            statuses.push(ChannelStatus::default());
        }
        instances.extend(statuses.into_iter().map(|status| (name, channel, status)));
    }
    if instances.is_empty() && !statement.name.generic {
        return Err(unknown_channel(&statement.name.stem));
    }
    let candidates = instances
        .iter()
        .map(|(name, channel, status)| -> Candidate<'_> {
            (name, None, Box::new(|key| status_cell(status, channel, key)))
        })
        .collect();
    let all = statement.says(Key::All, "ALL");
    if statement.requested.is_empty() && !all {
        let mut brief = table::CHANNEL_STATUS_BRIEF.to_vec();
        let of_filter = statement.filter.iter().map(|filter| filter.attribute);
        brief.extend(of_filter.filter(|of| table::CHANNEL_STATUS_BRIEF.iter().all(|shown| shown.key != of.key)));
        return rows(statement, "CHANNEL", candidates, &brief);
    }
    rows(statement, "CHANNEL", candidates, &wanted(statement, false))
}

/// DISPLAY CHINIT.
pub(super) fn initiator_row(statement: &Statement, status: &InitiatorStatus) -> Row {
    let mut row = Row::default();
    for attribute in wanted(statement, false) {
        if let Some(cell) = status.cell(attribute.key) {
            row.push(attribute.keyword, cell);
        }
    }
    row
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
        Key::KeyGroup => text(&status.key_group),
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
