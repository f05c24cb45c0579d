//! Messages that no key ring here can open, keys that are gone though messages need them, policies whose recipients
//! have no key here, and what recipients with keys of both kinds amount to. They are looked for at the start, once a
//! minute, and when keys or policies have changed.

use crate::catalog::status::{MissingKey, Stranded};
use crate::events::Event;
use crate::key_use::{Elsewhere, KnownKeys, needs_in_turns, wanted_here};
use crate::manager::{Manager, State};
use crate::missing_keys::OwnKeys;
use crate::stranded_now::StrandedNow;
use crate::wall_clock::wall_ms;
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::Pqc;
use bulla_seal::ring::{KeyFiles, Ring};
use bulla_seal::{Dn, Policy, weakest_recipient};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often messages are looked for. In between, files of keys are compared with what they were.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Messages that have been stranded for so long are an event. Many a key comes within the hour.
pub(crate) const EVENT_AFTER: Duration = Duration::from_secs(3_600);
/// Looks after a change. A ring that others have just asked for is read again only a second later.
const LOOKS_AFTER_CHANGE: u32 = 2;
/// Lines of one look about recipients: a new partner's policies may be many.
const LINES_MAX: usize = 100;
/// Events of one look, of either kind: one user may have many queues.
const EVENTS_MAX: usize = 100;

/// What was found and told already.
#[derive(Default)]
pub(crate) struct Watch {
    key_files: KeyFiles,
    own_keys: OwnKeys,
    defined: Defined,
    looked: Option<Instant>,
    /// Looks that are due because something has changed.
    due: u32,
    /// Queues with messages that have been stranded for long.
    queues: BTreeMap<String, Told>,
    /// Keys that are gone, by a name that messages have for them.
    missing: BTreeMap<Vec<u8>, MissingKey>,
    /// Policies, and recipients without a key here.
    recipients: BTreeSet<(String, String)>,
}

/// An event that was raised.
struct Told {
    at: Instant,
    /// It is so still.
    lasts: bool,
}

/// What definitions say of where keys are.
#[derive(Default)]
struct Defined {
    generation: Option<u64>,
    elsewhere: Elsewhere,
    /// Policies, and recipients whose keys should be here.
    wanted: Vec<(String, Dn)>,
    /// Policies that encrypt for keys of both kinds.
    mixed: Vec<Arc<Policy>>,
}

impl Defined {
    /// Whether they say something else than before. One compare where nothing was defined since.
    fn follow(&mut self, state: &State) -> bool {
        let generation = Some(state.generations.definitions);
        if self.generation == generation {
            return false;
        }
        let definitions = &state.definitions;
        let elsewhere = Elsewhere::of(definitions, None);
        let of = |policy: &Policy| -> Vec<(String, Dn)> {
            wanted_here(policy, definitions).map(|dn| (policy.name.clone(), dn.clone())).collect()
        };
        let wanted: Vec<(String, Dn)> = definitions.policies.values().flat_map(|policy| of(policy)).collect();
        let is_mixed = |policy: &&Arc<Policy>| policy.pqc == Pqc::Allowed && policy.encrypt.is_some();
        let mixed: Vec<Arc<Policy>> = definitions.policies.values().filter(is_mixed).cloned().collect();
        let is_as_before = elsewhere == self.elsewhere && wanted == self.wanted && mixed == self.mixed;
        let differs = self.generation.is_none() || !is_as_before;
        *self = Defined { generation, elsewhere, wanted, mixed };
        differs
    }
}

impl Watch {
    /// For a data directory: what is known of its keys is read.
    pub(crate) fn of(data: &Path) -> Watch {
        Watch { own_keys: OwnKeys::of(data), ..Watch::default() }
    }

    /// Looks where it is time to, or something has changed. Otherwise it costs a `stat` a ring.
    pub(crate) fn watch(&mut self, manager: &Manager, now: Instant, wall: SystemTime) {
        let keys_changed = self.key_files.have_changed(&manager.sealing.rings, wall);
        let defined_anew = self.defined.follow(&manager.lock());
        if keys_changed || defined_anew {
            self.due = LOOKS_AFTER_CHANGE;
        }
        let is_time = self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY);
        if self.due > 0 || is_time {
            self.due = self.due.saturating_sub(1);
            self.looked = Some(now);
            self.look(manager, now, wall);
        }
    }

    /// Counts stranded messages for those who ask, raises an event for each queue where some have lain for
    /// [`EVENT_AFTER`] and for each key that is gone, and says which recipients have no key here. Reads every ring that
    /// has changed.
    fn look(&mut self, manager: &Manager, now: Instant, wall: SystemTime) {
        let needs = needs_in_turns(manager);
        let knows_nothing = self.queues.is_empty() && self.missing.is_empty() && self.recipients.is_empty();
        let asks_nothing = self.defined.wanted.is_empty() && self.defined.mixed.is_empty();
        if needs.is_empty() && asks_nothing && knows_nothing {
            *manager.stranded() = StrandedNow::default();
            return;
        }
        let known = KnownKeys::read(manager, now);
        let elsewhere = &self.defined.elsewhere;
        let found = StrandedNow {
            by_queue: known.stranded(&needs, elsewhere, wall_ms(wall)),
            without_key: known.without_key(&needs, elsewhere),
            missing: self.own_keys.missing(&known, &needs, elsewhere),
            needed: known.needed(&needs),
            weakest: weakest(&self.defined.mixed, manager, now, wall),
        };
        self.own_keys.save();
        self.tell_of_recipients(&known);
        let mut events = self.gone(&found.missing, |name| known.has(name));
        events.append(&mut self.long_ones(&found.by_queue, now));
        *manager.stranded() = found;
        manager.raise(&events, wall_ms(wall));
    }

    /// Events of keys that are gone, one each until the key is back or nothing needs it; `is_back` says which.
    fn gone(&mut self, missing: &[MissingKey], is_back: impl Fn(&[u8]) -> bool) -> Vec<Event> {
        let name = |key: &MissingKey| key.names.first().cloned().unwrap_or_default();
        let now: BTreeMap<Vec<u8>, &MissingKey> = missing.iter().map(|key| (name(key), key)).collect();
        for (name, MissingKey { serial, subject, .. }) in
            self.missing.iter().filter(|(name, _)| !now.contains_key(*name))
        {
            match is_back(name) {
                true => crate::note!("the key {serial} of {subject} is in a key ring again"),
                false => {
                    crate::note!("no message needs the key {serial} of {subject} any more, which is in no key ring")
                }
            }
        }
        self.missing.retain(|name, _| now.contains_key(name));
        let new: Vec<(Vec<u8>, MissingKey)> = (now.into_iter())
            .filter(|(name, _)| !self.missing.contains_key(name))
            .take(EVENTS_MAX)
            .map(|(name, key)| (name, key.clone()))
            .collect();
        let events = new.iter().map(|(_, key)| Event::KeyMissing { key: key.clone() }).collect();
        self.missing.extend(new);
        events
    }

    /// Events of queues that are due. Of one queue there is one until it has no stranded messages, and one within
    /// [`EVENT_AFTER`]: who puts messages and takes them away again makes no more.
    fn long_ones(&mut self, stranded: &BTreeMap<String, Stranded>, now: Instant) -> Vec<Event> {
        let is_recent = |told: &Told| now.saturating_duration_since(told.at) < EVENT_AFTER;
        for (queue, told) in &mut self.queues {
            told.lasts &= stranded.contains_key(queue);
        }
        self.queues.retain(|_, told| told.lasts || is_recent(told));
        let long = stranded.iter().filter(|(_, of)| of.oldest_seconds >= EVENT_AFTER.as_secs());
        let due = long.filter(|(queue, _)| !self.queues.contains_key(*queue)).take(EVENTS_MAX);
        let events: Vec<(String, Event)> = due
            .map(|(queue, of)| (queue.clone(), Event::MessagesStranded { queue: queue.clone(), stranded: *of }))
            .collect();
        let (queues, events): (Vec<String>, Vec<Event>) = events.into_iter().unzip();
        self.queues.extend(queues.into_iter().map(|queue| (queue, Told { at: now, lasts: true })));
        events
    }

    /// A line of the log for each recipient who has no key here and was not told of yet.
    fn tell_of_recipients(&mut self, known: &KnownKeys) {
        let holders = known.holders();
        let without: BTreeSet<(String, String)> = (self.defined.wanted.iter())
            .filter(|(_, dn)| !holders.contains(dn))
            .map(|(policy, dn)| (policy.clone(), dn.to_string()))
            .collect();
        let new: Vec<&(String, String)> = without.difference(&self.recipients).collect();
        for (policy, dn) in new.iter().take(LINES_MAX) {
            crate::warning!(policy, "{}", without_key(policy, dn));
        }
        if new.len() > LINES_MAX {
            crate::warning!("{} more recipients of policies have no private key here", new.len() - LINES_MAX);
        }
        self.recipients = without;
    }
}

/// By policy the key that opens its messages most easily. Rings are not read again within a second.
fn weakest(mixed: &[Arc<Policy>], manager: &Manager, now: Instant, wall: SystemTime) -> HashMap<String, String> {
    if mixed.is_empty() {
        return HashMap::new();
    }
    let users = manager.sealing.rings.users().into_iter();
    let rings: Vec<Arc<Ring>> = users.filter_map(|user| manager.ring(&user, now).ok()).collect();
    let of = |policy: &Arc<Policy>| {
        let certificate = weakest_recipient(policy, rings.iter().map(Arc::as_ref), wall)?;
        let (kind, bits) = (certificate.key_kind(), certificate.key_bits());
        let key = KeySpec::like(kind, bits).map_or_else(|| kind.to_string(), |key| key.to_string());
        Some((policy.name.clone(), format!("{key} of {}", certificate.dn())))
    };
    mixed.iter().filter_map(of).collect()
}

/// What is said of a recipient who has no key here.
pub(crate) fn without_key(policy: &str, dn: &str) -> String {
    format!(
        "policy {policy}: no key ring here has a private key of {dn} that can be used: what is sealed for it alone can't \
         be opened here; KEYAWAY says that its key is elsewhere"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{Listen, Running, Settings, start};
    use bulla_queue::{Keys, Message};
    use bytes::Bytes;

    /// What lies on the queue for events, once something does.
    fn first_event(running: &Running) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut state = running.manager().lock();
            let queue = state.store.queue("SYSTEM.ADMIN.QMGR.EVENT").unwrap();
            if let Some(found) = state.store.lock_next(queue, None, 0) {
                let body = crate::envelope::payload_of(&state.store.body(found.id).unwrap()).to_contiguous();
                return String::from_utf8_lossy(&body).into_owned();
            }
            drop(state);
            assert!(Instant::now() < deadline, "no event came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_queue_manager_raises_the_event_for_what_has_lain_stranded_for_an_hour_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let amqp = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let listen = Listen { amqp, ..Listen::default() };
        let settings = Settings { listen, ..Settings::new(directory.path().to_owned()) };
        let running = start(&settings).unwrap();
        let define = "DEFINE QLOCAL(OLD); DEFINE QLOCAL(YOUNG)";
        crate::admin::request(directory.path(), define).unwrap();
        {
            let state = &mut *running.manager().lock();
            for (name, minutes) in [("OLD", 61), ("YOUNG", 58)] {
                let queue = state.store.queue(name).unwrap();
                let put_at_ms = wall_ms(SystemTime::now()) - 60_000 * minutes;
                let keys = Keys::OneOf([Bytes::from_static(b"a key that is nowhere")].into());
                let message = Message { put_at_ms, keys, ..Message::new(true, Bytes::from_static(b"sealed").into()) };
                state.store.put(queue, message).unwrap();
            }
            state.store.sync(Instant::now()).unwrap();
        }
        running.stop().unwrap();
        // Its own thread looks at the start, and finds in the journal how old they are.
        let running = start(&settings).unwrap();
        let event = first_event(&running);
        assert!(event.contains("MESSAGES.STRANDED") && event.contains("\"queue\":\"OLD\""), "{event}");
        assert!(event.contains("\"nokey\":1"), "{event}");
        let state = running.manager().lock();
        let queue = state.store.queue("SYSTEM.ADMIN.QMGR.EVENT").unwrap();
        assert_eq!(state.store.status(queue).unwrap().depth, 1, "and none of the other one");
        drop(state);
        assert_eq!(running.manager().stranded().by_queue.len(), 2, "which is counted");
        running.stop().unwrap();
    }

    #[test]
    fn a_recipient_is_told_of_once_until_there_is_a_key() {
        let mut watch = Watch::default();
        let known = KnownKeys::default();
        watch.defined.wanted = vec![("ORDERS".to_owned(), "CN=billing".parse::<Dn>().unwrap())];
        watch.tell_of_recipients(&known);
        assert_eq!(watch.recipients.len(), 1);
        watch.defined.wanted.clear();
        watch.tell_of_recipients(&known);
        assert!(watch.recipients.is_empty(), "it would be told of again");
    }

    #[test]
    fn a_queue_is_one_event_until_it_has_no_stranded_messages_and_one_an_hour() {
        let mut watch = Watch::default();
        let begin = Instant::now();
        let mut told = |minutes: u64, oldest_minutes: Option<u64>| -> Vec<(String, u64)> {
            let of = |minutes: u64| Stranded { no_key: 3, locked: 0, oldest_seconds: 60 * minutes };
            let stranded = oldest_minutes.map(|minutes| ("Q".to_owned(), of(minutes))).into_iter().collect();
            let events = watch.long_ones(&stranded, begin + Duration::from_secs(60 * minutes));
            let of = |event| match event {
                Event::MessagesStranded { queue, stranded } => (queue, stranded.oldest_seconds / 60),
                other => panic!("{other:?}"),
            };
            events.into_iter().map(of).collect()
        };
        let once = |age: u64| vec![("Q".to_owned(), age)];
        assert_eq!(told(0, Some(59)), []);
        assert_eq!(told(1, Some(60)), once(60));
        assert_eq!(told(120, Some(179)), [], "they are there still");
        assert_eq!(told(121, None), []);
        assert_eq!(told(122, Some(61)), once(61), "others, more than an hour after the first event");
        assert_eq!(told(123, None), []);
        assert_eq!(told(124, Some(61)), [], "who takes them away and puts them back makes no event a minute");
        assert_eq!(told(181, Some(118)), []);
        assert_eq!(told(182, Some(119)), once(119), "nor hides them for good");
    }

    #[test]
    fn a_key_that_is_gone_is_one_event_until_it_is_back() {
        let mut watch = Watch::default();
        let key = |serial: u8| MissingKey { names: vec![vec![serial]], messages: 1, ..MissingKey::default() };
        let count = |watch: &mut Watch, missing: &[MissingKey]| watch.gone(missing, |_| true).len();
        assert_eq!(count(&mut watch, &[key(1)]), 1);
        assert_eq!(count(&mut watch, &[key(1), key(2)]), 1);
        assert_eq!(count(&mut watch, &[MissingKey { messages: 2, ..key(1) }]), 0, "more messages are no other key");
        assert_eq!(count(&mut watch, &[key(1), key(2)]), 1, "the second one was back");
        let many: Vec<_> = (0..=u8::MAX).map(key).collect();
        assert_eq!([0, 1, 2].map(|_| count(&mut watch, &many)), [EVENTS_MAX, EVENTS_MAX, 256 - 2 * EVENTS_MAX - 2]);
    }

    #[test]
    fn many_queues_are_told_of_in_turns() {
        let mut watch = Watch::default();
        let of = |number: usize| (format!("Q{number}"), Stranded { no_key: 1, locked: 0, oldest_seconds: 9_999 });
        let stranded: BTreeMap<String, Stranded> = (0..EVENTS_MAX + 20).map(of).collect();
        let now = Instant::now();
        let counts = [0, 1, 2].map(|_| watch.long_ones(&stranded, now).len());
        assert_eq!(counts, [EVENTS_MAX, 20, 0]);
    }
}
