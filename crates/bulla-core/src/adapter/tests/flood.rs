//! Users who put more messages to sign together than anyone else, and what that does to one that puts one message.

use super::*;

/// The slot of the one message of the other user.
const OTHER: u64 = 1_000;

/// The place of the other user's message among all that were told of. It comes when the first of so many messages is
/// sealed, each by one of these sealers in turn.
fn place_of_other(sealers: &[Arc<Mutex<Sealer>>], now: SystemTime, count: u64) -> usize {
    let other = Signing::with(KeySpec::Ec(Curve::P256), 1);
    let (pool, told) = (Pool::new([]), Arc::new(Mutex::new(Vec::new())));
    let (notes, again, sealer, at) =
        (told.clone(), Arc::downgrade(&pool.adapters), other.sealers[0].clone(), other.now);
    let mailboxes = signing_dry(&pool, move |slots| {
        if slots.contains(&0) {
            seal(&again.upgrade().unwrap(), OTHER, &bulla_device::Asker::new(8), &sealer, at);
        }
        notes.lock().unwrap().extend(slots);
    });
    let floods = bulla_device::Asker::new(7);
    for slot in 0..count {
        pool.seal(slot, &floods, &sealers[slot as usize % sealers.len()], now);
    }
    pool.adapters.run_dry(&mailboxes, &TaskMeter::default());
    let told = told.lock().unwrap();
    assert_eq!(told.len() as u64, count + 1, "all are sealed");
    assert!(pool.adapters.away().tasks.is_empty() && pool.adapters.lock().held.is_empty());
    told.iter().position(|slot| *slot == OTHER).unwrap()
}

/// Each pair of its messages needs a signature, whatever else waits.
#[test]
fn a_turn_makes_no_more_shared_signatures_than_others() {
    let user = Signing::with(KeySpec::Rsa(2048), 2);
    let place = place_of_other(&user.sealers[..1], user.now, 300);
    assert!(place <= 2 * 2 * TASKS_PER_TURN, "behind {place} messages");
}

/// Messages under policies of their own share no signature.
#[test]
fn messages_of_many_policies_are_taken_as_those_that_share_nothing() {
    let user = Signing::new(64);
    let sealer = |_| {
        let policy = Arc::new(Policy::clone(&user.policy));
        Arc::new(Mutex::new(Sealer::new(policy, user.ring.clone(), None, user.now).unwrap()))
    };
    let sealers: Vec<_> = (0..200).map(sealer).collect();
    let place = place_of_other(&sealers, user.now, 200);
    assert!(place <= 2 * TASKS_PER_TURN, "behind {place} messages");
}

/// Each of them has as much under way as the largest batches let it.
#[test]
fn users_with_the_largest_batches_whose_keys_are_away_keep_no_other_waiting() {
    let world = World::new();
    let policy = Arc::new(Policy { sign_batch: SIGN_BATCH_MAX, ..Policy::clone(&world.policy) });
    let most = MaySign::Together(policy).under_way_max();
    let mut inbox = Inbox::default();
    for user in 0..63 {
        inbox.under_way.insert(user, most);
        inbox.under_way_total += most;
    }
    let (number, task) = new_task(&mut || world.messages(1).remove(0), "other");
    inbox.tasks.push(number, task);
    assert!(inbox.next_task(None).is_some());
}
