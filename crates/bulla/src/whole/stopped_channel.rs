//! A channel that is stopped stays so when it can't be started.

use crate::catalog::status::ChannelState;
use crate::catalog::{ChannelDefinition, ChannelKind};
use crate::channel::note;
use crate::channel::registry::{InstanceId, Place};
use crate::channel::supervisor::{start, stop};
use crate::manager::State;
use crate::reason;
use crate::serve::{Listen, Settings, start as serve};

const CHANNEL: &str = "TO.QM2";

#[test]
fn a_start_that_is_refused_leaves_the_channel_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { name: Some("QM1".into()), listen: Listen::default(), ..Settings::new(dir.path().into()) };
    let running = serve(&settings).unwrap();
    let manager = running.manager().clone();
    let mut locked = manager.lock();
    let state = &mut *locked;
    let mut definition = ChannelDefinition::new(ChannelKind::Sender);
    definition.connections = vec!["127.0.0.1:1".into()];
    state.definitions.channels.insert(CHANNEL.into(), definition);
    let id = InstanceId::of(CHANNEL);
    let is_kept_stopped = |state: &State| {
        let requested = state.outbound.channels.get(&id).is_some_and(|instance| instance.status.stop_requested);
        (state.store.note(&note::stopped_name(CHANNEL)).is_some(), requested)
    };
    // It has a connection still.
    state.outbound.channels.entry(id.clone()).place = Some(Place { dispatcher: 0, peer: usize::MAX, generation: 0 });
    stop(&manager, state, CHANNEL, false, false).unwrap();
    assert_eq!(is_kept_stopped(state), (true, true));
    assert_eq!(start(&manager, state, CHANNEL).unwrap_err().reason, reason::OBJECT_IN_USE);
    assert_eq!(is_kept_stopped(state), (true, true));
    // And when it has none, no other channel may run.
    state.outbound.channels.entry(id.clone()).place = None;
    stop(&manager, state, CHANNEL, false, false).unwrap();
    state.definitions.queue_manager.active_channels_max = 0;
    assert_eq!(start(&manager, state, CHANNEL).unwrap_err().reason, reason::MAX_CONNS_LIMIT_REACHED);
    assert_eq!(is_kept_stopped(state), (true, true));
    assert_eq!(state.outbound.channels.get(&id).unwrap().status.state, ChannelState::Stopped);
    // It takes no place beside itself.
    let manager_defined = &mut state.definitions.queue_manager;
    (manager_defined.active_channels_max, manager_defined.channels_max) = (1, 1);
    start(&manager, state, CHANNEL).unwrap();
    assert_eq!(is_kept_stopped(state), (false, false));
    drop(locked);
    running.stop().unwrap();
}
