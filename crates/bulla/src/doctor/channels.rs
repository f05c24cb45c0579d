//! Channels: the one that carries a queue's messages away, those that bring messages for it, and all together.

use super::{Doctor, TOLD_MAX, mend, messages};
use crate::authority::{ObjectType, Right};
use crate::catalog::diagnosis::{CHANNEL, CHANNELS, Check, Condition, SIZE};
use crate::catalog::status::{ChannelState, ChannelStatus};
use crate::catalog::{ChannelDefinition, Protection};
use crate::manager::{Route, State};
use bulla_seal::policy::Quality;

/// The channel that takes messages from the transmission queue of a route.
pub(super) fn outbound(doctor: &mut Doctor<'_>, state: &State, route: &Route) {
    let queue = route.queue_name.as_str();
    let definitions = &state.definitions;
    let takes = |definition: &ChannelDefinition| {
        definition.kind.sends() && definition.transmission_queue.as_deref() == Some(queue)
    };
    let channels: Vec<(&String, &ChannelDefinition)> =
        definitions.channels.iter().filter(|(_, definition)| takes(definition)).collect();
    let partner = route.transmission.as_ref().map(|header| header.destination.manager.as_str()).unwrap_or_default();
    if channels.is_empty() {
        let define = format!(
            "DEFINE CHANNEL({}) CHLTYPE(SDR) XMITQ({}) CONNAME('<host(port)>')",
            mend::quoted("<name>"),
            mend::quoted(queue)
        );
        let details = format!("no channel takes messages from {queue}: they never leave for {partner}");
        doctor.ill(&CHANNEL, Condition::Broken, format!("queue {queue}"), ("", details), vec![mend::mqsc(define)]);
    }
    if definitions.queues.get(queue).is_some_and(|local| !local.get_enabled) {
        let mend = vec![mend::mqsc(format!("ALTER QLOCAL({}) GET(ENABLED)", mend::quoted(queue)))];
        let details = "gets are disabled: no channel takes messages from it";
        doctor.ill(&CHANNEL, Condition::Broken, format!("queue {queue}"), ("2016", details), mend);
    }
    for (name, definition) in channels {
        state_of(doctor, state, &CHANNEL, name, definition);
        protection(doctor, state, route, name, definition);
        let max = u64::from(definition.max_message_bytes);
        if max > 0 && max < route.message_bytes_max as u64 {
            let details = format!("MAXMSGL({max}): longer messages of {queue} go to the dead-letter queue");
            let mend = format!("ALTER CHANNEL({}) CHLTYPE({}) MAXMSGL(0)", mend::quoted(name), definition.kind);
            doctor.ill(&SIZE, Condition::Warning, format!("channel {name}"), ("2218", details), vec![mend::mqsc(mend)]);
        }
    }
    if let Some(header) = &route.transmission {
        let (there, at) = (&header.destination.queue, &header.destination.manager);
        let details = format!(
            "what {at} does with messages for {there}, its policy included, can't be seen from here: ask there with `bulla doctor {there}`"
        );
        doctor.found.say(&CHANNEL, Condition::Unknown, format!("queue {there} at {at}"), details);
    }
}

/// What the channel does about seals.
fn protection(doctor: &mut Doctor<'_>, state: &State, route: &Route, name: &str, definition: &ChannelDefinition) {
    let about = format!("channel {name}");
    let of_queue = state.definitions.policies.get(&route.queue_name);
    let opens = of_queue.is_some_and(|policy| policy.quality() != Quality::None);
    match (definition.protection, opens) {
        (Protection::Remove, true) => {
            let user = definition.user.as_deref().unwrap_or(&doctor.manager.name).to_owned();
            let details = format!("opens messages with the ring of {user} (SPLPROT(REMOVE)): they leave in clear");
            doctor.found.well(&CHANNEL, about.clone(), details);
            if definition.cipher_spec.is_none() {
                let details = format!("SPLPROT(REMOVE) opens the ring of {user} only for a partner with a certificate");
                let mend = format!(
                    "ALTER CHANNEL({}) CHLTYPE({}) SSLCIPH(ANY_TLS12_OR_HIGHER)",
                    mend::quoted(name),
                    definition.kind
                );
                doctor.ill(&CHANNEL, Condition::Broken, about, ("partner-unproved", details), vec![mend::mqsc(mend)]);
            }
        }
        (Protection::Remove, false) => {
            let queue = &route.queue_name;
            let details =
                format!("SPLPROT(REMOVE) opens nothing: {queue} has no policy, so messages leave as they lie");
            doctor.found.say(&CHANNEL, Condition::Warning, about, details);
        }
        _ => doctor.found.well(&CHANNEL, about, "messages leave as they lie: sealed ones stay sealed"),
    }
}

/// Channels that bring messages and put them, sealed or not, where the policy of the queue wants them sealed.
pub(super) fn inbound(doctor: &mut Doctor<'_>, state: &State, name: &str) {
    let definitions = &state.definitions;
    let receives = definitions.channels.iter().filter(|(_, definition)| !definition.kind.sends());
    let may_put = |definition: &ChannelDefinition| {
        let user = definition.user.as_deref().unwrap_or(&definitions.queue_manager.name);
        definitions.authorities.rights(Some(user), ObjectType::Queue, name).has(Right::Put)
    };
    for (channel, definition) in receives.filter(|(_, definition)| may_put(definition)).take(TOLD_MAX) {
        let about = format!("channel {channel}");
        let user = definition.user.as_deref().unwrap_or(&definitions.queue_manager.name);
        if definition.protection == Protection::AsPolicy {
            let details = format!("seals what it brings with the ring of {user} (SPLPROT(ASPOLICY))");
            doctor.found.well(&CHANNEL, about, details);
        } else {
            let details = "puts what it brings as it is: whether its partner seals can't be seen from here";
            doctor.found.say(&CHANNEL, Condition::Unknown, about, details.to_owned());
        }
    }
}

/// Every channel that is not well.
pub(super) fn all(doctor: &mut Doctor<'_>, state: &State) {
    let mut count = 0_usize;
    for (name, definition) in &state.definitions.channels {
        let ill = state.outbound.channels.of(name).any(|(_, instance)| is_ill(&instance.status));
        if ill && count < TOLD_MAX {
            count += 1;
            state_of(doctor, state, &CHANNELS, name, definition);
        }
    }
    if !doctor.found.has(&CHANNELS) {
        let details = match state.definitions.channels.len() {
            0 => "there are none".to_owned(),
            count => format!("{count} defined, none failed, stopped or in doubt"),
        };
        doctor.found.well(&CHANNELS, "", details);
    }
}

fn is_ill(status: &ChannelStatus) -> bool {
    matches!(status.state, ChannelState::Stopped | ChannelState::Retrying | ChannelState::Paused)
        || status.in_doubt && !status.state.is_active()
        || !status.reason.is_empty() && !status.state.is_active()
}

fn state_of(doctor: &mut Doctor<'_>, state: &State, check: &'static Check, name: &str, definition: &ChannelDefinition) {
    let about = format!("channel {name}");
    let start = || vec![mend::mqsc(format!("START CHANNEL({})", mend::quoted(name)))];
    let ping = || vec![mend::mqsc(format!("PING CHANNEL({})", mend::quoted(name)))];
    let mut instances = state.outbound.channels.of(name).map(|(_, instance)| &instance.status).peekable();
    let is_new = instances.peek().is_none();
    for status in instances {
        let why = if status.reason.is_empty() { String::new() } else { format!(": {}", status.reason) };
        let said = format!("is {}{why}", status.state);
        match status.state {
            ChannelState::Stopped => doctor.ill(check, Condition::Broken, about.clone(), ("", said), start()),
            ChannelState::Retrying => doctor.ill(check, Condition::Broken, about.clone(), ("", said), ping()),
            ChannelState::Paused => doctor.found.say(check, Condition::Warning, about.clone(), said),
            ChannelState::Inactive if !status.reason.is_empty() => {
                doctor.ill(check, Condition::Warning, about.clone(), ("", said), start());
            }
            ChannelState::Inactive if definition.kind.sends() => idle(doctor, state, check, name, definition),
            _ => doctor.found.well(check, about.clone(), said),
        }
        if status.in_doubt && !status.state.is_active() {
            let details = format!("{} in doubt until its partner is asked", messages(status.current_messages.max(1)));
            doctor.ill(check, Condition::Warning, about.clone(), ("in-doubt", details), start());
        }
    }
    if is_new && definition.kind.sends() {
        idle(doctor, state, check, name, definition);
    }
}

/// A sending channel that does not run.
fn idle(doctor: &mut Doctor<'_>, state: &State, check: &'static Check, name: &str, definition: &ChannelDefinition) {
    let queue = definition.transmission_queue.as_deref().unwrap_or_default();
    let starts = state
        .definitions
        .queues
        .get(queue)
        .is_some_and(|local| local.trigger && local.trigger_data.as_deref().is_none_or(|channel| channel == name));
    let about = format!("channel {name}");
    match starts || definition.connections.is_empty() {
        true => doctor.found.well(check, about, "is INACTIVE, and starts when a message or its partner comes"),
        false => {
            let details = format!("is INACTIVE, and nothing starts it: {queue} has NOTRIGGER");
            let mend = vec![mend::mqsc(format!("START CHANNEL({})", mend::quoted(name)))];
            doctor.ill(check, Condition::Broken, about, ("", details), mend);
        }
    }
}
