//! The channels of a queue manager as they run: one instance for each sending channel, and one for each partner of a
//! receiving one. Under the queues' lock; the dispatcher that owns an instance's connection writes its status.

use super::protocol;
use crate::catalog::status::{ChannelState, ChannelStatus};
use crate::maps::HashMap;
use crate::reason::Refusal;
use std::time::Instant;

/// Partners whose numbers are kept for one channel: each has a note in the journal.
pub const PARTNERS_MAX: usize = 1_000;

/// Which instance: of a channel, and for a receiving one of which partner.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InstanceId {
    /// The channel's name.
    pub channel: String,
    /// The partner's queue manager, or its container where it is not Bulla; empty for a sending channel.
    pub partner: String,
}

/// Where an instance's connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The dispatcher.
    pub dispatcher: usize,
    /// The connection's place there.
    pub peer: usize,
    /// Which connection it is that has that place.
    pub generation: u64,
}

/// What is to be done about a channel that has no connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Wanted {
    /// Nothing: it is inactive, or stopped.
    #[default]
    Nothing,
    /// It is to connect now.
    Now,
    /// It is to connect then, because it failed.
    At(Instant),
}

/// An instance.
#[derive(Debug, Default)]
pub struct Instance {
    /// Its connection, while it has one.
    pub place: Option<Place>,
    /// What is shown.
    pub status: ChannelStatus,
    /// What is to be done while it has none.
    pub wanted: Wanted,
    /// Which of CONNAME's addresses is next.
    pub next_address: usize,
    /// How many of them were tried since it last ran or waited.
    pub addresses_tried: usize,
    /// It has run since it was called: what ends it now is a failure of its own, not an address that is dead.
    pub ran: bool,
    /// The unit of work under way: its number.
    pub current_unit: u64,
    /// The last one confirmed.
    pub last_unit: u64,
    /// STOP STATUS(INACTIVE): where it goes when it has ended.
    pub stops_inactive: bool,
}

/// All instances.
#[derive(Debug, Default)]
pub struct Channels {
    instances: HashMap<InstanceId, Instance>,
    /// Which connection commits with a receiving end's note, by the note's name. A requester that calls and is called
    /// has two instances for one partner, but one line of numbers.
    numbering: HashMap<String, Place>,
}

impl InstanceId {
    /// A sending channel's, or a requester's own.
    pub fn of(channel: &str) -> Self {
        Self::with(channel, "")
    }

    /// A receiving channel's for that partner.
    pub fn with(channel: &str, partner: &str) -> Self {
        Self { channel: channel.to_owned(), partner: partner.to_owned() }
    }
}

impl Channels {
    /// An instance.
    pub fn get(&self, id: &InstanceId) -> Option<&Instance> {
        self.instances.get(id)
    }

    /// An instance to change.
    pub fn get_mut(&mut self, id: &InstanceId) -> Option<&mut Instance> {
        self.instances.get_mut(id)
    }

    /// An instance, made where there is none.
    pub fn entry(&mut self, id: InstanceId) -> &mut Instance {
        self.instances.entry(id).or_default()
    }

    /// Forgets an instance.
    pub fn remove(&mut self, id: &InstanceId) {
        self.instances.remove(id);
    }

    /// From now on this connection alone commits with that note; the one before, where there is another.
    pub fn take_numbers(&mut self, note_name: &str, place: Place) -> Option<Place> {
        let before = self.numbering.insert(note_name.to_owned(), place);
        before.filter(|before| *before != place)
    }

    /// The connection that commits with that note.
    pub fn numbers_holder(&self, note_name: &str) -> Option<Place> {
        self.numbering.get(note_name).copied()
    }

    /// Whether this connection may commit with that note.
    pub fn has_numbers(&self, note_name: &str, place: Place) -> bool {
        self.numbering.get(note_name) == Some(&place)
    }

    /// This connection is done with that note.
    pub fn leave_numbers(&mut self, note_name: &str, place: Place) {
        if self.has_numbers(note_name, place) {
            self.numbering.remove(note_name);
        }
    }

    /// Instances that have a connection.
    pub fn active(&self) -> usize {
        self.instances.values().filter(|instance| instance.is_active()).count()
    }

    /// Every instance of a channel.
    pub fn of<'a>(&'a self, channel: &'a str) -> impl Iterator<Item = (&'a InstanceId, &'a Instance)> {
        self.instances.iter().filter(move |(id, _)| id.channel == channel)
    }

    /// Every instance.
    pub fn all(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.instances.iter()
    }

    /// Every instance, to change.
    pub fn all_mut(&mut self) -> impl Iterator<Item = (&InstanceId, &mut Instance)> {
        self.instances.iter_mut()
    }

    /// Forgets a channel that was deleted.
    pub fn forget(&mut self, channel: &str) {
        self.instances.retain(|id, _| id.channel != channel);
    }
}

impl Instance {
    /// It has a connection: how it stands beside that is the dispatcher's to say.
    pub fn is_active(&self) -> bool {
        self.place.is_some()
    }

    /// The status as it is shown.
    pub fn shown(&self) -> ChannelStatus {
        let unit = |number: u64| if number == 0 { String::new() } else { format!("{number:016X}") };
        let mut status = self.status.clone();
        status.current_unit = unit(self.current_unit);
        status.last_unit = unit(self.last_unit);
        status
    }

    /// Ends it where it is a receiving one: the partner begins anew.
    pub fn ended(&mut self, why: Option<&Refusal>) {
        self.place = None;
        self.status.reason = why.map(ToString::to_string).unwrap_or_default();
        self.status.substate = "";
        let stays = self.status.stop_requested && !self.stops_inactive;
        self.status.state = if stays { ChannelState::Stopped } else { ChannelState::Inactive };
    }

    /// A number as it is shown, for the status.
    pub fn note_sequence(&mut self, current: u64, last: u64, wrap: u32) {
        self.status.current_sequence = protocol::shown(current, wrap);
        self.status.last_sequence = protocol::shown(last, wrap);
    }
}
