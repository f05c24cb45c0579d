//! Credit while too much waits for the disk, or to be sealed.

use crate::catalog::limits::UserLimits;
use crate::catalog::{Full, LocalQueue};
use crate::limits::BEING_SEALED_MAX;
use crate::manager::{Route, State};
use crate::whole::harness::Harness;
use bulla_queue::{Backlog, Message};
use bulla_seal::Policy;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;

const MESSAGE_BYTES: usize = 1 << 20;

#[test]
fn who_has_much_to_be_sealed_gets_no_credit_for_more_of_that_however_often_it_connects() {
    let harness = Harness::new(&[("CLEAR", LocalQueue::default()), ("SEALED", LocalQueue::default())]);
    let state = &mut *harness.running().manager().lock();
    let now = Instant::now();
    let connect =
        |state: &mut State, user| state.clients.users.connect(Some(user), &UserLimits::default(), now).unwrap();
    let (bob, ann) = (connect(state, "bob"), connect(state, "ann"));
    let clear = state.route("CLEAR").unwrap();
    let policy = Some(Arc::new(Policy::new("SEALED")));
    let sealed = Route { policy, ..state.route("SEALED").unwrap() };
    let queues = [Some(&clear), Some(&sealed), None];
    let mut waiting: Vec<_> = (0..BEING_SEALED_MAX).map(|_| state.clients.users.begins_to_seal(bob).unwrap()).collect();
    let promised = |state: &mut State, user| queues.map(|queue| state.promise(queue, Some(user), 100));
    assert_eq!(promised(state, bob), [100, 0, 0]);
    assert_eq!(promised(state, ann), [100; 3]);
    state.clients.users.disconnect(bob, now);
    let bob = connect(state, "bob");
    assert_eq!(promised(state, bob), [100, 0, 0], "what it had begun before counts");
    waiting.pop();
    assert_eq!(promised(state, bob), [100; 3]);
}

#[test]
fn who_has_brought_about_that_too_much_waits_for_the_disk_gets_no_credit_and_others_do() {
    let rejects = LocalQueue { full: Full::Reject, ..LocalQueue::default() };
    let harness = Harness::new(&[("WAITS", LocalQueue::default()), ("REJECTS", rejects)]);
    // While it is held nothing is handed to the journal.
    let state = &mut *harness.running().manager().lock();
    let now = Instant::now();
    let bob = Some(state.clients.users.connect(Some("bob"), &UserLimits::default(), now).unwrap());
    let ann = Some(state.clients.users.connect(Some("ann"), &UserLimits::default(), now).unwrap());
    let waits = state.route("WAITS").unwrap();
    let rejects = state.route("REJECTS").unwrap();
    let queues = [Some(&waits), Some(&rejects), None];
    assert_eq!(queues.map(|queue| state.promise(queue, bob, 100)), [100; 3]);
    let body = Bytes::from(vec![0; MESSAGE_BYTES]);
    let mut put_until = |backlog: Backlog| {
        while state.store.backlog(Some(rejects.queue)) != backlog {
            let message = Message::new(true, body.clone().into());
            let ticket = state.store.put(rejects.queue, message).unwrap();
            state.wrote(bob, MESSAGE_BYTES, ticket);
        }
        let promised = |user| queues.map(|queue| state.promise(queue, user, 100));
        // A queue that is not free is one whose waiting producers are not asked whether they get credit.
        ([bob, ann].map(promised), state.free(waits.queue) > 0)
    };
    assert_eq!(put_until(Backlog::Much), ([[0; 3], [100; 3]], true));
    assert_eq!(put_until(Backlog::TooMuch), ([[0; 3], [0; 3]], true));
}
