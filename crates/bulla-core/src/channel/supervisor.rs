//! What becomes of a channel that has no connection: started, triggered, tried again, stopped.

use super::ChannelNotice;
use super::home;
use super::note::{self, ReceiverNote, SenderNote};
use super::registry::{Instance, InstanceId, Place, Wanted};
use crate::catalog::status::ChannelState;
use crate::catalog::{ChannelDefinition, ChannelKind, Protection};
use crate::events::Event;
use crate::mailbox::Notice;
use crate::manager::{Manager, State};
use crate::reason::{self, Refusal};
use crate::reports::Moment;
use bulla_queue::{MessageId, QueueId, StoreNumber};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Sub-reason of a refusal to open a key ring for a partner that has not proved who it is.
pub const UNPROVED: &str = "partner-unproved";

/// After a restart: what was in doubt is locked again, so that only its channel takes it. Groups are not there yet.
pub fn recover(state: &mut State) {
    recover_in(state, StoreNumber::LOCAL);
}

/// A group is owned here from now on: its channels go on as they stood at the owner before.
pub fn joined(state: &mut State, home: StoreNumber) {
    recover_in(state, home);
    let started = names_in(state, home, &note::started_name(""));
    let now = state.clock.now();
    for channel in started {
        let Some(definition) = of_store(state, home, &channel) else { continue };
        let instance = state.outbound.channels.entry(InstanceId::of(&channel));
        if instance.status.state == ChannelState::Stopped {
            continue;
        }
        refill_retries(instance, &definition);
        instance.ran = false;
        (instance.status.state, instance.wanted) = (ChannelState::Starting, Wanted::At(now));
    }
}

/// A group is not owned here any more. Channels that have a connection end with it.
pub fn left(state: &mut State, group: &str) {
    let State { outbound, definitions, .. } = state;
    for (id, instance) in outbound.channels.all_mut() {
        let definition = definitions.channels.get(&id.channel);
        if !instance.is_active() && definition.is_some_and(|definition| definition.group.as_deref() == Some(group)) {
            instance.wanted = Wanted::Nothing;
            (instance.status.state, instance.status.stop_requested) = (ChannelState::Inactive, false);
        }
    }
}

/// The definition of a channel, where it belongs to that store.
fn of_store(state: &State, home: StoreNumber, channel: &str) -> Option<ChannelDefinition> {
    let definition = state.definitions.channels.get(channel)?;
    (home::of(state, channel, definition).ok() == Some(home)).then(|| definition.clone())
}

/// The channels that have a note in a store, by the beginning of its name.
fn names_in(state: &State, home: StoreNumber, prefix: &str) -> Vec<String> {
    state.store.notes_in(home, prefix).map(|(name, _)| name[prefix.len()..].to_owned()).collect()
}

/// What was in doubt in a store is locked again, and what was stopped stays so.
fn recover_in(state: &mut State, home: StoreNumber) {
    let defined = state.definitions.channels.iter().filter(|(_, definition)| definition.kind.sends());
    let mut senders: BTreeSet<String> = defined.map(|(name, _)| name.clone()).collect();
    if home != StoreNumber::LOCAL {
        // A group's channel may not be defined here, and its messages are in doubt all the same.
        senders.extend(names_in(state, home, &note::sender_prefix()));
    }
    for channel in senders {
        let definition = of_store(state, home, &channel);
        if definition.is_none() && state.store.note_in(home, &note::sender_name(&channel)).is_none() {
            continue;
        }
        match note_in(state, home, &channel) {
            Ok(note) => {
                let locked = note.in_doubt.iter().filter(|id| state.store.lock(**id).is_some()).count();
                let in_doubt = !note.in_doubt.is_empty();
                if in_doubt {
                    crate::note!(
                        channel,
                        "channel {channel}: {locked} messages are in doubt until its partner is asked"
                    );
                }
                let Some(definition) = definition else { continue };
                let instance = state.outbound.channels.entry(InstanceId::of(&channel));
                instance.status.in_doubt = in_doubt;
                instance.note_sequence(note.base + note.in_doubt.len() as u64, note.base, definition.sequence_wrap);
            }
            Err(refusal) => crate::alarm!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}"),
        }
    }
    for channel in names_in(state, home, &note::stopped_name("")) {
        if of_store(state, home, &channel).is_some() {
            let status = &mut state.outbound.channels.entry(InstanceId::of(&channel)).status;
            (status.state, status.stop_requested) = (ChannelState::Stopped, true);
        }
    }
}

/// Keeps in its store that a channel was stopped or started: a restart starts nothing that was stopped, and the next
/// owner of a group starts what was started.
fn keep(state: &mut State, home: StoreNumber, channel: &str, stopped: bool, started: bool) {
    let names =
        [(note::stopped_name(channel), stopped), (note::started_name(channel), started && home != StoreNumber::LOCAL)];
    let is_other = |(name, is_there): &&(String, bool)| state.store.note_in(home, name).is_some() != *is_there;
    let changed: Vec<(&str, Option<&[u8]>)> =
        names.iter().filter(is_other).map(|(name, is_there)| (name.as_str(), is_there.then_some(&[][..]))).collect();
    if changed.is_empty() {
        return;
    }
    if let Err(error) = state.store.commit_notes(home, &changed) {
        crate::alarm!(channel, "channel {channel}: after a restart it is not known whether it was stopped: {error}");
    }
}

/// START CHANNEL, a trigger, or a retry that is due: the channel calls, or a receiving one may be called again.
pub fn start(manager: &Manager, state: &mut State, channel: &str) -> Result<(), Refusal> {
    let unknown = || Refusal::new(reason::UNKNOWN_CHANNEL_NAME, format!("there is no channel {channel}"));
    let definition = state.definitions.channels.get(channel).cloned().ok_or_else(unknown)?;
    if !definition.connections.is_empty() {
        may_call(channel, &definition)?;
    }
    let home = home::of(state, channel, &definition)?;
    let calls = match definition.kind {
        ChannelKind::Sender => true,
        ChannelKind::Server | ChannelKind::Requester => !definition.connections.is_empty(),
        ChannelKind::Receiver => false,
    };
    let id = InstanceId::of(channel);
    if calls {
        if state
            .outbound
            .channels
            .get(&id)
            .is_some_and(|instance| instance.is_active() || instance.wanted == Wanted::Now)
            || state.outbound.channels.of(channel).any(|(_, instance)| instance.is_active())
        {
            return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{channel} is active already")));
        }
        room(state, Some(channel))?;
    }
    // Nothing refuses any more: whether it was stopped is forgotten.
    keep(state, home, channel, false, calls);
    for (_, instance) in state.outbound.channels.all_mut().filter(|(id, _)| id.channel == channel) {
        if !instance.is_active() {
            instance.status.stop_requested = false;
            instance.stops_inactive = false;
            if instance.status.state == ChannelState::Stopped {
                instance.status.state = ChannelState::Inactive;
            }
        }
    }
    if !calls {
        // It waits for its partner.
        let instance = state.outbound.channels.entry(id);
        instance.status.stop_requested = false;
        return Ok(());
    }
    let instance = state.outbound.channels.entry(id.clone());
    refill_retries(instance, &definition);
    instance.ran = false;
    call(manager, instance, id);
    Ok(())
}

/// ACTCHL and MAXCHL: whether one more channel may run. One that is `starting`, and stopped, takes no place beside
/// itself.
pub fn room(state: &State, starting: Option<&str>) -> Result<(), Refusal> {
    let manager = &state.definitions.queue_manager;
    let active = state.outbound.channels.all().filter(|(_, instance)| instance.is_active()).count();
    let is_own = |id: &InstanceId, found: &Instance| {
        Some(id.channel.as_str()) == starting && !found.is_active() && found.status.state == ChannelState::Stopped
    };
    let is_current =
        |id: &InstanceId, found: &Instance| found.status.state != ChannelState::Inactive && !is_own(id, found);
    let current = state.outbound.channels.all().filter(|(id, found)| is_current(id, found)).count();
    let full =
        |what: &str, count| Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, format!("{count} channels are {what}"));
    if active >= manager.active_channels_max as usize {
        return Err(full("active", active));
    }
    if current >= manager.channels_max as usize {
        return Err(full("not inactive", current));
    }
    Ok(())
}

/// Has a dispatcher call the partner.
fn call(manager: &Manager, instance: &mut Instance, id: InstanceId) {
    instance.wanted = Wanted::Now;
    instance.status.state = ChannelState::Starting;
    // The same dispatcher each time: a channel's queues are served there.
    let hash = id.channel.bytes().fold(0usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte)));
    bring(manager, hash % manager.workers.mailboxes.wanted(), Notice::Channel(ChannelNotice::Call(id)));
}

/// Gives a notice about a call to a dispatcher, or to the first one where that has ended.
pub fn bring(manager: &Manager, index: usize, notice: Notice) {
    let notice = match manager.workers.mailboxes.get(index) {
        Some(mailbox) => mailbox.bring(notice),
        None => Err(notice),
    };
    if let (Err(notice), Some(first)) = (notice, manager.workers.mailboxes.get(0)) {
        first.post(notice);
    }
}

/// STOP CHANNEL, for every instance.
///
/// # Errors
/// It is of a group that this queue manager does not own.
pub fn stop(manager: &Manager, state: &mut State, channel: &str, force: bool, inactive: bool) -> Result<(), Refusal> {
    let end = if inactive { ChannelState::Inactive } else { ChannelState::Stopped };
    let home = state.definitions.channels.get(channel).map(|definition| home::of(state, channel, definition));
    keep(state, home.transpose()?.unwrap_or(StoreNumber::LOCAL), channel, !inactive, false);
    state.outbound.channels.entry(InstanceId::of(channel));
    for (_, instance) in state.outbound.channels.all_mut().filter(|(id, _)| id.channel == channel) {
        instance.status.stop_requested = true;
        instance.stops_inactive = inactive;
        match instance.place {
            Some(place) => {
                instance.status.state = ChannelState::Stopping;
                if let Some(mailbox) = manager.workers.mailboxes.get(place.dispatcher) {
                    let (peer, generation) = (place.peer, place.generation);
                    mailbox.post(Notice::Channel(ChannelNotice::Stop { peer, generation, force }));
                }
            }
            None => {
                instance.wanted = Wanted::Nothing;
                instance.status.state = end;
            }
        }
    }
    Ok(())
}

/// RESET CHANNEL: the next message has that number. The sending end tells the other at its next start, which does the
/// same only after a RESET CHANNEL of its own. A receiving end with several partners keeps their numbers, and lets each
/// reset its own once. Says what was done.
pub fn reset(state: &mut State, channel: &str, next: u64) -> Result<String, Refusal> {
    let (definition, home) = inactive(state, channel)?;
    let base = next.saturating_sub(1);
    let names_and_notes: Vec<(String, Vec<u8>)> = if definition.kind.sends() {
        let note = read_note(state, channel).unwrap_or_default();
        if !note.in_doubt.is_empty() {
            let detail = format!("{channel}: {} messages are in doubt", note.in_doubt.len());
            return Err(Refusal::in_doubt(detail));
        }
        // The former partner is forgotten: the next one that connects is kept.
        let note = SenderNote { base, unit: note.unit, reset: true, ..SenderNote::default() };
        vec![(note::sender_name(channel), note.encode())]
    } else {
        let prefix = note::receiver_prefix(channel);
        let names: Vec<String> = state.store.notes_in(home, &prefix).map(|(name, _)| name.to_owned()).collect();
        if names.len() > 1 {
            let count = names.len();
            let agreed = names.into_iter().filter_map(|name| {
                let note = ReceiverNote::decode(state.store.note_in(home, &name)?)?;
                Some((name, ReceiverNote { reset_allowed: true, ..note }.encode()))
            });
            let agreed: Vec<(String, Vec<u8>)> = agreed.collect();
            write(state, home, &agreed)?;
            return Ok(format!("channel {channel}: each of its {count} partners may reset its numbers once"));
        }
        let note = ReceiverNote { store: [0; 16], sequence: base, ..ReceiverNote::default() };
        names.into_iter().map(|name| (name, note.encode())).collect()
    };
    write(state, home, &names_and_notes)?;
    let wrap = definition.sequence_wrap;
    for (_, instance) in state.outbound.channels.all_mut().filter(|(id, _)| id.channel == channel) {
        instance.note_sequence(base, base, wrap);
    }
    Ok(format!("channel {channel} reset, the next message has number {next}"))
}

/// RESOLVE CHANNEL: what is in doubt counts as arrived (COMMIT), or as never sent (BACKOUT).
pub fn resolve(state: &mut State, channel: &str, commit: bool) -> Result<usize, Refusal> {
    let (definition, home) = inactive(state, channel)?;
    let note = note_in(state, home, channel)?;
    let count = note.in_doubt.len();
    if !definition.kind.sends() || count == 0 {
        return Err(Refusal::new(reason::CHANNEL_NOT_AVAILABLE, format!("{channel} is not in doubt")));
    }
    let there: Vec<_> = note.in_doubt.iter().copied().filter(|id| state.store.find(*id).is_some()).collect();
    let settled =
        SenderNote { base: if commit { note.base + count as u64 } else { note.base }, in_doubt: Vec::new(), ..note };
    let removals = if commit { there.as_slice() } else { &[] };
    let notes = [(&*note::sender_name(channel), Some(&*settled.encode()))];
    state
        .store
        .commit_from(home, Vec::new(), removals, &notes)
        .map_err(|error| crate::refusals::store_refusal(&error))?;
    if !commit {
        there.iter().for_each(|id| state.store.release(*id, false));
    }
    if let Some(instance) = state.outbound.channels.get_mut(&InstanceId::of(channel)) {
        instance.status.in_doubt = false;
        instance.status.current_messages = 0;
        instance.note_sequence(settled.base, settled.base, definition.sequence_wrap);
    }
    Ok(count)
}

/// The notes that go with a channel at DELETE CHANNEL. Refused while it is active or in doubt. Those of a group's
/// channel stay in its log, for the other members.
pub fn notes_of(state: &State, channel: &str) -> Result<Vec<String>, Refusal> {
    let (definition, home) = match inactive(state, channel) {
        Err(refusal) if refusal.reason == reason::CF_NOT_AVAILABLE => return Ok(Vec::new()),
        found => found?,
    };
    if definition.kind.sends() && note_in(state, home, channel).is_ok_and(|note| !note.in_doubt.is_empty()) {
        return Err(Refusal::in_doubt(format!("{channel}: messages are in doubt")));
    }
    if home != StoreNumber::LOCAL {
        return Ok(Vec::new());
    }
    let prefix = note::receiver_prefix(channel);
    let mut names: Vec<String> = state.store.notes(&prefix).map(|(name, _)| name.to_owned()).collect();
    let others = [note::sender_name(channel), note::stopped_name(channel)];
    names.extend(others.into_iter().filter(|name| state.store.note(name).is_some()));
    Ok(names)
}

/// The definition of a channel that has no connection, and the store that it belongs to.
fn inactive(state: &State, channel: &str) -> Result<(ChannelDefinition, StoreNumber), Refusal> {
    let unknown = || Refusal::new(reason::UNKNOWN_CHANNEL_NAME, format!("there is no channel {channel}"));
    let definition = state.definitions.channels.get(channel).cloned().ok_or_else(unknown)?;
    if state.outbound.channels.of(channel).any(|(_, instance)| instance.is_active()) {
        return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{channel} is active: STOP CHANNEL first")));
    }
    let home = home::of(state, channel, &definition)?;
    Ok((definition, home))
}

fn write(state: &mut State, home: StoreNumber, notes: &[(String, Vec<u8>)]) -> Result<(), Refusal> {
    let notes: Vec<(&str, Option<&[u8]>)> =
        notes.iter().map(|(name, bytes)| (name.as_str(), Some(bytes.as_slice()))).collect();
    if notes.is_empty() {
        return Ok(());
    }
    let commit = state.store.commit_notes(home, &notes);
    commit.map(drop).map_err(|error| crate::refusals::store_refusal(&error))
}

/// A channel runs: the retries begin anew the next time it fails.
pub fn refill_retries(instance: &mut Instance, definition: &ChannelDefinition) {
    instance.status.short_retries_left = definition.short_retries;
    instance.status.long_retries_left = definition.long_retries;
    instance.addresses_tried = 0;
    instance.ran = true;
}

/// A calling channel has lost its connection, the one at `place`, or never got one.
pub fn ended(moment: &Moment<'_>, state: &mut State, id: &InstanceId, place: Option<Place>, why: Option<Refusal>) {
    let definition = state.definitions.channels.get(&id.channel).cloned();
    let is_elsewhere = definition.as_ref().is_some_and(|definition| home::of(state, &id.channel, definition).is_err());
    let instance = state.outbound.channels.entry(id.clone());
    if place.is_some() && instance.place.is_some() && instance.place != place {
        // The channel has another connection by now.
        return;
    }
    let ran = std::mem::take(&mut instance.ran);
    instance.place = None;
    instance.wanted = Wanted::Nothing;
    instance.status.substate = "";
    let partner = instance.status.remote_manager.clone();
    let stopping = moment.manager.stopping.load(Ordering::Acquire);
    let why = why.filter(|_| !stopping);
    let event = Event::channel_ended(&id.channel, &partner, why.as_ref());
    // A requester's start and end are those of the link on which it receives.
    let requests = definition.as_ref().is_some_and(|definition| definition.kind == ChannelKind::Requester);
    if ran && !requests || matches!(event, Event::TlsRefused { .. }) {
        state.raise(&event, moment.wall_ms);
    }
    let instance = state.outbound.channels.entry(id.clone());
    if let Some(why) = &why {
        if moment.manager.told.peer_lines.may_write(moment.now) {
            crate::warning!(channel = id.channel, "channel {}: {why}", id.channel);
        }
        instance.status.reason = why.to_string();
    }
    let (Some(why), Some(definition)) = (why, definition) else {
        return instance.ended(None);
    };
    if is_elsewhere {
        // It goes on at the owner.
        instance.status.stop_requested = false;
        return instance.ended(Some(&why));
    }
    if instance.status.stop_requested {
        return instance.ended(Some(&why));
    }
    if why.is_sequence() || definition.connections.is_empty() {
        // No retry can help, or the partner begins.
        let stopped = why.is_sequence();
        instance.status.state = if stopped { ChannelState::Stopped } else { ChannelState::Inactive };
        return;
    }
    again(moment, instance, id, &definition, ran);
}

/// Calls the next address of CONNAME at once, or all of them again after a pause, while retries are left.
fn again(moment: &Moment<'_>, instance: &mut Instance, id: &InstanceId, definition: &ChannelDefinition, ran: bool) {
    instance.addresses_tried += 1;
    instance.next_address = instance.next_address.wrapping_add(1);
    if !ran && instance.addresses_tried < definition.connections.len() {
        // The next address of CONNAME, at once.
        return call(moment.manager, instance, id.clone());
    }
    instance.addresses_tried = 0;
    let status = &mut instance.status;
    let (left, interval) = if status.short_retries_left > 0 {
        (&mut status.short_retries_left, definition.short_retry_interval)
    } else {
        (&mut status.long_retries_left, definition.long_retry_interval)
    };
    if *left == 0 {
        status.state = ChannelState::Stopped;
        crate::alarm!(channel = id.channel, "channel {}: no retries are left; it is stopped", id.channel);
        return;
    }
    *left -= 1;
    status.state = ChannelState::Retrying;
    instance.wanted = Wanted::At(moment.now + interval);
}

/// On the first dispatcher, at each tick: retries that are due, and transmission queues that start their channel.
pub fn tick(moment: &Moment<'_>, state: &mut State) {
    let due: Vec<InstanceId> = state
        .outbound
        .channels
        .all()
        .filter(|(_, instance)| !instance.is_active() && matches!(instance.wanted, Wanted::At(at) if at <= moment.now))
        .filter(|(id, _)| is_surely_here(state, &id.channel))
        .map(|(id, _)| id.clone())
        .collect();
    for id in due {
        if state.definitions.channels.contains_key(&id.channel) {
            let instance = state.outbound.channels.entry(id.clone());
            call(moment.manager, instance, id);
        }
    }
    state.outbound.triggers.look_up(state.generations.definitions, &state.definitions, &state.store);
    let waiting: Vec<QueueId> = state.outbound.triggers.by_queue.keys().copied().collect();
    for queue in waiting {
        if state.store.status(queue).is_some_and(|status| status.available > 0) {
            trigger(moment.manager, state, queue);
        }
    }
}

/// Whether no other member runs a channel by now: an owner that has slept would take its partner from the next one.
fn is_surely_here(state: &State, channel: &str) -> bool {
    let definition = state.definitions.channels.get(channel);
    match definition.map(|definition| home::of(state, channel, definition)) {
        None | Some(Ok(StoreNumber::LOCAL)) => true,
        Some(Ok(group)) => state.store.log_status(group).is_some_and(|log| log.is_surely_owned),
        Some(Err(_)) => false,
    }
}

/// Something is on a transmission queue that no channel sends from: its channel starts, unless it was stopped or
/// retries.
pub fn trigger(manager: &Manager, state: &mut State, queue: QueueId) {
    let found = state.outbound.triggers.of(queue, state.generations.definitions, &state.definitions, &state.store);
    let Some(channel) = found else { return };
    let idle = state.outbound.channels.get(&InstanceId::of(&channel)).is_none_or(|instance| {
        instance.status.state == ChannelState::Inactive && !instance.is_active() && instance.wanted == Wanted::Nothing
    });
    if !idle {
        return;
    }
    if let Err(refusal) = start(manager, state, &channel) {
        crate::warning!(
            channel,
            reason = refusal.reason.code,
            cause = refusal.cause,
            "channel {channel} is triggered, but does not start: {refusal}"
        );
        state.outbound.channels.entry(InstanceId::of(&channel)).wanted =
            Wanted::At(manager.clock.now() + TRIGGER_AGAIN_AFTER);
    }
}

/// The note of a sending channel; one that can't be read is the operator's to reset.
pub fn read_note(state: &State, channel: &str) -> Result<SenderNote, Refusal> {
    let definition = state.definitions.channels.get(channel);
    let home = definition.map_or(Ok(StoreNumber::LOCAL), |definition| home::of(state, channel, definition))?;
    note_in(state, home, channel)
}

/// The note of a sending channel in a store: the messages are that store's, which has another number at each member.
fn note_in(state: &State, home: StoreNumber, channel: &str) -> Result<SenderNote, Refusal> {
    match state.store.note_in(home, &note::sender_name(channel)) {
        None => Ok(SenderNote::default()),
        Some(bytes) => {
            let mut note = SenderNote::decode(bytes).ok_or_else(|| {
                let detail = format!("{channel}: its note in the journal is of another version");
                Refusal::new(reason::RESOURCE_PROBLEM, detail)
            })?;
            note.in_doubt.iter_mut().for_each(|id| *id = MessageId::new(home, id.number()));
            Ok(note)
        }
    }
}

/// Whether a channel that calls asks its partner for a certificate, where it needs one: known before it calls.
///
/// # Errors
/// 2063 `cause=partner-unproved`.
pub fn may_call(channel: &str, definition: &ChannelDefinition) -> Result<(), Refusal> {
    if definition.protection == Protection::PassThrough || definition.cipher_spec.is_some() {
        return Ok(());
    }
    let word = definition.protection.word();
    let detail = format!("{channel}: SPLPROT({word}) needs SSLCIPH: without it the partner proves nothing");
    Err(Refusal::security(UNPROVED, detail))
}

/// How long after a start that failed for a reason of this queue manager's own a trigger tries again.
const TRIGGER_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_secs(10);
