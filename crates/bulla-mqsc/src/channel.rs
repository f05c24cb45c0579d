//! What goes on at channels: DISPLAY CHSTATUS and DISPLAY CHINIT.

use super::reply::Cell;
use super::table::Key;
use crate::attributes::{Cells, blank};
use crate::nouns::channel::{connection_name, speed, spelled};
use bulla_catalog::ChannelDefinition;
use bulla_catalog::calendar::{date, time};
use bulla_catalog::status::{ChannelStatus, InitiatorStatus, TwoAverages};

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
