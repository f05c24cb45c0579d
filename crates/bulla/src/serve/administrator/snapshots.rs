//! What is counted, copied for the metrics and for the history of traffic, with the queues' lock held briefly.

use super::{Administrator, users_of};
use crate::catalog::status::PolicyStatus;
use crate::channel::registry::InstanceId;
use crate::manager::Manager;
use crate::metrics::{LimitSnapshot, OBJECTS_LABELLED_MAX, TrafficSnapshot, WithoutSeries, labelled};
use crate::mqsc::run::Administered;
use crate::serve::pools::Threads;
use crate::wall_clock::wall_ms;
use std::time::SystemTime;

/// What limits users that are connected, and what is arriving, for the metrics.
pub(in crate::serve) fn limits(manager: &Manager) -> LimitSnapshot {
    let (users, users_without_series) = labelled(users_of(manager, &manager.lock()).into_iter());
    LimitSnapshot { users, users_without_series, arriving: manager.listening.arriving.counts() }
}

/// What queues, policies and channels have counted, for the metrics. The queues' lock is held for [`COPIED_AT_ONCE`] of
/// them at a time, so that a scrape delays no one however many there are; what is defined or deleted meanwhile may be
/// missing.
pub(in crate::serve) fn traffic(threads: &Threads) -> TrafficSnapshot {
    let administrator = Administrator::new(threads);
    let definitions = administrator.definitions();
    let (queues, queues_beyond) = labelled(definitions.queues.keys());
    let queues: Vec<String> = queues.into_iter().cloned().collect();
    let (policies, policies_beyond) = labelled(definitions.policies.keys());
    let policies: Vec<String> = policies.into_iter().cloned().collect();
    let started =
        administrator.state.outbound.channels.all().filter(|(_, instance)| instance.status.started_ms.is_some());
    let mut instances: Vec<&InstanceId> = started.map(|(id, _)| id).collect();
    if instances.len() > OBJECTS_LABELLED_MAX {
        // The first ones to the front; sorting all of them would take longer.
        instances.select_nth_unstable(OBJECTS_LABELLED_MAX);
    }
    let (instances, channels_beyond) = labelled(instances.into_iter());
    let mut instances: Vec<InstanceId> = instances.into_iter().cloned().collect();
    drop(administrator);
    instances.sort_unstable();
    TrafficSnapshot {
        queues: copied(threads, &queues, |administrator, name| Some((name.clone(), administrator.queue_status(name)?))),
        policies: policies.into_iter().map(|name| (name.clone(), threads.manager.counts.accounts.of(&name))).collect(),
        channels: copied(threads, &instances, |administrator, id| {
            let instance = administrator.state.outbound.channels.get(id)?;
            Some(((id.channel.clone(), id.partner.clone()), administrator.shown(instance)))
        }),
        without_series: WithoutSeries {
            queues: queues_beyond,
            policies: policies_beyond,
            channels: channels_beyond,
            ..WithoutSeries::default()
        },
    }
}

/// Keeps how queues and policies stand at this minute, with the queues' lock as [`traffic`] holds it.
pub(in crate::serve) fn keep_traffic(threads: &Threads, now: SystemTime) {
    let administrator = Administrator::new(threads);
    let definitions = administrator.definitions();
    let queues: Vec<String> = definitions.queues.keys().cloned().collect();
    let policies: Vec<String> = definitions.policies.keys().cloned().collect();
    drop(administrator);
    let queues =
        copied(threads, &queues, |administrator, name| Some((name.clone(), administrator.queue_status(name)?)));
    let policy = |name: String| {
        let meters = threads.manager.counts.accounts.of(&name);
        (name, PolicyStatus { since_ms: threads.manager.counts.since_ms, taken_ms: wall_ms(now), meters })
    };
    let policies = policies.into_iter().map(policy).collect();
    let mut history = threads.manager.traffic_history();
    history.queues.keep(now, queues);
    history.policies.keep(now, policies);
}

/// Queues, or instances of channels, whose numbers are copied while the queues' lock is held once: microseconds.
const COPIED_AT_ONCE: usize = 64;

fn copied<N, T>(threads: &Threads, all: &[N], copy: impl Fn(&Administrator<'_>, &N) -> Option<T>) -> Vec<T> {
    let mut copies = Vec::with_capacity(all.len());
    for some in all.chunks(COPIED_AT_ONCE) {
        let administrator = Administrator::new(threads);
        copies.extend(some.iter().filter_map(|one| copy(&administrator, one)));
    }
    copies
}
