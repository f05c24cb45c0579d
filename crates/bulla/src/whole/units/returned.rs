//! What comes back, is moved, or is left behind, with and without a unit of work.

use super::*;
use crate::dispatcher::passed_over::PASSED_OVER_MAX;
use crate::dispatcher::returns;
use crate::envelope::Label;
use crate::manager::{State, Stays, Stuck};
use crate::maps::HashMap;
use crate::reports;
use bulla_queue::MessageId;

/// Puts messages on a queue and locks them, as if they were with clients.
fn locked(harness: &Harness, queue: &str, count: u64) -> Vec<MessageId> {
    let mut client = harness.client();
    let to = client.sender(queue, false).unwrap().link;
    for number in 0..count {
        client.put(to, message(number, 4, false), PATIENCE).unwrap();
    }
    let state = &mut *harness.running().manager().lock();
    let queue = state.store.queue(queue).unwrap();
    (0..count).map(|_| state.store.lock_next(queue, None, 0).unwrap().id).collect()
}

fn moves(id: MessageId, to: &str) -> Stuck {
    Stuck { id, what: Stays::Move { to: to.into(), label: Label::new(None, "rejected", "", "A", 0) } }
}

fn depth(state: &State, queue: &str) -> u32 {
    state.store.status(state.store.queue(queue).unwrap()).unwrap().depth
}

#[test]
fn stuck_messages_are_tried_again_a_hundred_at_a_tick_and_a_full_queue_holds_up_no_other() {
    let full = LocalQueue { max_depth: 1, ..queue() };
    let harness = Harness::new(&[("A", queue()), ("FULL", full), ("ROOM", queue())]);
    locked(&harness, "FULL", 1);
    let messages = locked(&harness, "A", 270);
    let state = &mut *harness.running().manager().lock();
    let (for_full, for_room) = messages.split_at(120);
    state.unfinished.messages.extend(for_full.iter().map(|id| moves(*id, "FULL")));
    state.unfinished.messages.extend(for_room.iter().map(|id| moves(*id, "ROOM")));
    for (moved, stuck) in [(100, 170), (150, 120), (150, 120)] {
        returns::retry_stuck(state);
        assert_eq!((depth(state, "ROOM"), state.unfinished.messages.len()), (moved, stuck));
    }
}

#[test]
fn a_message_that_is_longer_than_the_rest_of_a_commit_moves_after_it() {
    let harness = Harness::new(&[("A", queue()), ("DEAD", queue())]);
    let messages = locked(&harness, "A", 2);
    let state = &mut *harness.running().manager().lock();
    let from = state.route("A").unwrap();
    let bytes = state.store.find(messages[0]).unwrap().1.body_bytes as usize;
    let to = ("DEAD".to_owned(), Label::new(None, "rejected", "", "A", 0));
    let (mut before, mut left) = (HashMap::default(), bytes);
    assert!(returns::moved_with(&from, state, messages[0], &to, &[], &mut before, &mut left).is_some());
    assert_eq!(left, 0);
    assert!(returns::moved_with(&from, state, messages[1], &to, &[], &mut before, &mut left).is_none());
}

#[test]
fn after_a_restart_only_messages_that_ask_for_a_report_are_kept_for_one() {
    let mut harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let to = client.sender("A", false).unwrap().link;
    client.put(to, message(0, 4, true), PATIENCE).unwrap();
    drop(client);
    harness.start();
    let state = &mut *harness.running().manager().lock();
    let queue = state.store.queue("A").unwrap();
    let found = state.store.browse_next(queue, None, 0).unwrap();
    assert!(state.store.is_marked(found.id), "it is not known whether it asks");
    assert!(reports::about_to_be_got(state, found.id, 0, usize::MAX).is_none());
}

#[test]
fn links_that_outlive_their_queue_leave_nothing_of_it() {
    let mut harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    client.sender("A", false).unwrap();
    client.receiver("A", false, false).unwrap();
    let manager = harness.running().manager().clone();
    let id = {
        let state = &mut *manager.lock();
        let id = state.store.queue("A").unwrap();
        state.end_dynamic(id);
        id
    };
    drop(client);
    harness.stop();
    assert!(!manager.lock().uses.contains_key(&id));
}

#[test]
fn a_link_that_is_turned_to_another_queue_of_the_name_leaves_nothing_of_the_one_that_is_gone() {
    let mut harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let to = client.sender("A", false).unwrap().link;
    let manager = harness.running().manager().clone();
    let (old, attributes) = {
        let state = &mut *manager.lock();
        let old = state.store.queue("A").unwrap();
        let attributes = *state.store.attributes(old).unwrap();
        state.end_dynamic(old);
        (old, attributes)
    };
    assert_eq!(refused(client.put(to, message(0, 4, false), PATIENCE)).1, reason::Q_DELETED.code);
    {
        let state = &mut *manager.lock();
        state.store.define("A", attributes).unwrap();
        state.generations.definitions += 1;
    }
    client.put(to, message(1, 4, false), PATIENCE).unwrap();
    drop(client);
    harness.stop();
    assert!(!manager.lock().uses.contains_key(&old));
}

#[test]
fn a_link_that_passes_over_all_that_it_can_remember_still_gets_what_comes_before_it() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    let not_here =
        DeliveryState::Modified { delivery_failed: false, undeliverable_here: true, message_annotations: Vec::new() };
    for number in 0..PASSED_OVER_MAX as u64 {
        client.put(to, message(number, 4, false), PATIENCE).unwrap();
        let delivery = client.get(from, Some(PATIENCE)).unwrap().unwrap();
        client.settle(&delivery, not_here.clone()).unwrap();
    }
    client.put(to, message(999, 9, false), PATIENCE).unwrap();
    let urgent = client.get(from, None).unwrap().expect("it is there");
    assert_eq!(number(&urgent.payload), 999);
}

#[test]
fn what_can_be_read_again_comes_back() {
    let harness = Harness::new(&[("A", queue())]);
    let messages = locked(&harness, "A", 1);
    let state = &mut *harness.running().manager().lock();
    state.unfinished.messages.push_back(Stuck { id: messages[0], what: Stays::Return });
    returns::retry_stuck(state);
    let queue = state.store.queue("A").unwrap();
    assert_eq!(state.store.browse_next(queue, None, 0).map(|found| found.id), Some(messages[0]));
    assert!(state.unfinished.messages.is_empty());
}

#[test]
fn what_a_client_had_when_the_queue_manager_stops_has_not_failed() {
    let mut harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    client.put(to, message(0, 4, true), PATIENCE).unwrap();
    client.get(from, Some(PATIENCE)).unwrap().expect("it is there");
    harness.start();
    assert_eq!(harness.available("A"), [(0, 0)]);
    drop(client);
}
