//! A front end of function calls: no socket, no protocol. For tests, and to show how little a front end needs.
//!
//! [`Direct`] is the client's end: it opens links, puts and gets from any thread. [`DirectEnd`] is the core's end of
//! the same connection. Between them stands what the other end has not taken yet.

mod pieces;

use super::client::{Introduction, Proof, SolePolicy, TokenRefused};
use super::link::{Attach, Get, Granted, Place, Put, Wants};
use super::outcome::{Failure, MessageOutcome};
use super::{Delivery, DeliveryId, Event, FrontEnd, KeptOutcome, LinkId, SessionId, UnitAsked, UnitId, UnitStep};
use super::{WayOut, Wire};
use crate::outgoing::{OpensItself, Outgoing};
use crate::reason::{self, Refusal};
use bulla_amqp::Payload;
use bytes::Bytes;
use hashbrown::HashMap;
use pieces::Coming;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The session of all links.
const SESSION: SessionId = SessionId(0);

/// A message that was got, until it is settled.
#[derive(Debug)]
pub(crate) struct Got {
    link: LinkId,
    token: u64,
    pub(crate) message: Payload,
    /// What is left of it, where it is read in pieces.
    rest: VecDeque<Bytes>,
}

/// The client's end of a connection.
pub(crate) struct Direct {
    shared: Arc<Shared>,
    /// Wakes the core.
    wake: Box<dyn Fn() + Send + Sync>,
    /// No answer takes longer.
    patience: Duration,
}

/// The core's end of it.
pub(crate) struct DirectEnd(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    /// Rung when the core has said something.
    said: Condvar,
}

#[derive(Default)]
struct Inside {
    /// What the core has not heard yet.
    events: VecDeque<Event>,
    links: HashMap<LinkId, LinkState>,
    answers: HashMap<DeliveryId, Answer>,
    /// Message-ids of messages that were put before, under the same idempotency keys.
    put_before: HashMap<DeliveryId, String>,
    last_handle: u64,
    open: Opening,
    closed: Option<Option<Failure>>,
    /// Messages that are coming in pieces, in their order.
    coming: BTreeMap<DeliveryId, Coming>,
    /// One of them was given up.
    is_given_up: bool,
    /// Messages that have come whole.
    arrived: u64,
    /// Deadlines of gets that wait.
    deadlines: Vec<(Instant, LinkId)>,
}

/// Whether the core takes the connection.
#[derive(Default)]
enum Opening {
    #[default]
    Asked,
    Accepted,
    Refused(Option<Failure>),
}

/// What a link can be.
enum LinkState {
    Attaching,
    Open { credit: u32, got: VecDeque<(u64, Payload)>, drained: bool, len_max: u64 },
    Ended(Failure),
}

impl Inside {
    fn handle(&mut self) -> u64 {
        self.last_handle += 1;
        self.last_handle
    }
}

/// A connection: the client's end and the core's. `wake` has the core look at it.
pub(crate) fn connect(patience: Duration, wake: impl Fn() + Send + Sync + 'static) -> (Direct, Box<DirectEnd>) {
    let shared = Arc::<Shared>::default();
    let said = Introduction { container: "direct".into(), ..Introduction::default() };
    lock(&shared).events.extend([Event::SignIn(Proof::Nothing), Event::Opened(Box::new(said))]);
    (Direct { shared: shared.clone(), wake: Box::new(wake), patience }, Box::new(DirectEnd(shared)))
}

/// A message that has come whole.
fn delivery(link: LinkId, id: DeliveryId, payload: Payload, unit: Option<UnitId>) -> Delivery {
    Delivery { link, id, tag: None, settled: false, beyond_credit: false, unit, payload }
}

/// What the core answers.
enum Answer {
    Outcome(MessageOutcome),
    Declared(UnitId),
}

/// Whether an answer refuses.
fn refused(answer: Answer) -> Result<Option<UnitId>, Option<Failure>> {
    match answer {
        Answer::Outcome(MessageOutcome::Accepted) => Ok(None),
        Answer::Declared(unit) => Ok(Some(unit)),
        Answer::Outcome(MessageOutcome::Rejected(why)) => Err(why.map(|why| *why)),
        Answer::Outcome(other) => panic!("it is answered with {other:?}"),
    }
}

/// A queue or topic of that name.
fn named(name: &str) -> Place {
    Place::Named { name: name.to_owned(), is_topic: false }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Inside> {
    shared.inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Direct {
    /// Opens a queue to put on.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn open_to_put(&self, queue: &str) -> Result<LinkId, Failure> {
        self.attach(Wants::Put(Put { place: named(queue), ..Put::default() }))
    }

    /// Opens a queue to get from.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn open_to_get(&self, queue: &str) -> Result<LinkId, Failure> {
        self.attach_to_get(Get { place: named(queue), ..Get::default() })
    }

    /// Opens a queue to look at its messages.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn open_to_browse(&self, queue: &str) -> Result<LinkId, Failure> {
        self.attach_to_get(Get { place: named(queue), browses: true, ..Get::default() })
    }

    /// Opens a queue to get sealed messages from, which the client opens itself.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn open_to_get_sealed(&self, queue: &str) -> Result<LinkId, Failure> {
        self.attach_to_get(Get { place: named(queue), opens_itself: OpensItself::asked(true), ..Get::default() })
    }

    /// Opens the coordinator of units of work. They end with this link.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn open_for_units(&self) -> Result<LinkId, Failure> {
        self.attach(Wants::Units)
    }

    /// Begins a unit of work.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn declare(&self, coordinator: LinkId) -> Result<UnitId, Option<Failure>> {
        refused(self.ask(coordinator, UnitStep::Declare)).map(|unit| unit.expect("it is declared"))
    }

    /// Ends a unit of work: all of it is done, and durable where it has to be.
    ///
    /// # Errors
    /// The core's refusal: it is backed out.
    pub(crate) fn commit(&self, coordinator: LinkId, unit: UnitId) -> Result<(), Option<Failure>> {
        refused(self.ask(coordinator, UnitStep::Commit(unit))).map(drop)
    }

    /// Ends a unit of work: nothing of it is done.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn back_out(&self, coordinator: LinkId, unit: UnitId) -> Result<(), Option<Failure>> {
        refused(self.ask(coordinator, UnitStep::BackOut(unit))).map(drop)
    }

    fn ask(&self, link: LinkId, step: UnitStep) -> Answer {
        let id = {
            let mut inside = lock(&self.shared);
            let id = DeliveryId(inside.handle());
            let asked = UnitAsked { link, id, settled: false, beyond_credit: false, step: Ok(step) };
            inside.events.push_back(Event::Unit(Box::new(asked)));
            id
        };
        (self.wake)();
        self.wait("an answer", |inside| inside.answers.remove(&id))
    }

    /// Puts a message, and says when it is on its queue and in the journal as it asks.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn put(&self, link: LinkId, payload: Payload) -> Result<(), Option<Failure>> {
        self.put_once(link, payload).map(drop)
    }

    /// Puts a message under the idempotency key in its annotations. Where that was done before, says which message-id
    /// it had then.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn put_once(&self, link: LinkId, payload: Payload) -> Result<Option<String>, Option<Failure>> {
        self.put_under(link, payload, None)
    }

    /// Puts a message in a unit of work.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn put_in(&self, unit: UnitId, link: LinkId, payload: Payload) -> Result<(), Option<Failure>> {
        self.put_under(link, payload, Some(unit)).map(drop)
    }

    fn put_under(
        &self,
        link: LinkId,
        payload: Payload,
        unit: Option<UnitId>,
    ) -> Result<Option<String>, Option<Failure>> {
        self.take_credit(link)?;
        let id = {
            let mut inside = lock(&self.shared);
            let id = DeliveryId(inside.handle());
            inside.events.push_back(Event::Delivery(delivery(link, id, payload, unit)));
            id
        };
        (self.wake)();
        refused(self.wait("an answer", |inside| inside.answers.remove(&id)))?;
        Ok(lock(&self.shared).put_before.remove(&id))
    }

    fn take_credit(&self, link: LinkId) -> Result<(), Option<Failure>> {
        self.wait("credit", |inside| match inside.links.get_mut(&link)? {
            LinkState::Open { credit: 0, .. } | LinkState::Attaching => None,
            LinkState::Open { credit, .. } => {
                *credit -= 1;
                Some(Ok(()))
            }
            LinkState::Ended(error) => Some(Err(Some(error.clone()))),
        })
    }

    /// The next message of a link, for which it waits until `deadline`. None where there is none by then.
    ///
    /// # Errors
    /// Why the link ended.
    pub(crate) fn get(&self, link: LinkId, deadline: Instant) -> Result<Option<Got>, Failure> {
        {
            let mut inside = lock(&self.shared);
            if let Some(LinkState::Open { credit, got, drained, .. }) = inside.links.get_mut(&link) {
                *drained = false;
                if got.is_empty() {
                    *credit = 1;
                }
            }
            inside.deadlines.push((deadline, link));
            inside.events.push_back(Event::Credit { link, drain: false });
        }
        (self.wake)();
        let found = self.wait("a message, or that there is none", |inside| match inside.links.get_mut(&link)? {
            LinkState::Open { got, drained, .. } => match got.pop_front() {
                Some((token, message)) => Some(Ok(Some(Got { link, token, message, rest: VecDeque::new() }))),
                None => drained.then_some(Ok(None)),
            },
            LinkState::Attaching => None,
            LinkState::Ended(error) => Some(Err(error.clone())),
        });
        lock(&self.shared).deadlines.retain(|(_, other)| *other != link);
        found
    }

    /// Gives up a get that waits: it answers as if its time were over.
    pub(crate) fn cancel(&self, link: LinkId) {
        let mut inside = lock(&self.shared);
        inside.deadlines.retain(|(_, other)| *other != link);
        inside.events.push_back(Event::Credit { link, drain: true });
        drop(inside);
        (self.wake)();
    }

    /// Says what became of a message.
    pub(crate) fn settle(&self, got: &Got, outcome: MessageOutcome) {
        self.settle_under(got, outcome, None);
    }

    /// Says what becomes of a message when a unit of work is committed.
    pub(crate) fn settle_in(&self, unit: UnitId, got: &Got, outcome: MessageOutcome) {
        self.settle_under(got, outcome, Some(unit));
    }

    fn settle_under(&self, got: &Got, outcome: MessageOutcome, unit: Option<UnitId>) {
        let Got { link, token, .. } = *got;
        let outcome = Event::Outcome { link, token, outcome: Some(outcome), unit, settled: true };
        lock(&self.shared).events.push_back(outcome);
        (self.wake)();
    }

    /// Ends a link.
    pub(crate) fn close(&self, link: LinkId) {
        let mut inside = lock(&self.shared);
        inside.links.remove(&link);
        inside.events.push_back(Event::Detached { link, closed: true, why: None });
        drop(inside);
        (self.wake)();
    }

    fn attach_to_get(&self, get: Get) -> Result<LinkId, Failure> {
        self.attach(Wants::Get(Box::new(get)))
    }

    fn attach(&self, wants: Wants) -> Result<LinkId, Failure> {
        self.wait("the connection", |inside| match &inside.open {
            Opening::Asked => None,
            Opening::Accepted => Some(Ok(())),
            Opening::Refused(why) => {
                let refused = || Refusal::new(reason::NOT_AUTHORIZED, "refused").into();
                Some(Err(why.clone().unwrap_or_else(refused)))
            }
        })?;
        let link = {
            let mut inside = lock(&self.shared);
            let link = LinkId(inside.handle());
            inside.links.insert(link, LinkState::Attaching);
            inside.events.push_back(Event::Attached(Box::new(Attach {
                link,
                session: SESSION,
                name: format!("link-{}", link.0),
                wants,
                unreadable: None,
                takes_rejected: true,
                keep: None,
                unsettled: None,
                incomplete_unsettled: false,
            })));
            link
        };
        (self.wake)();
        self.wait("a link", |inside| match inside.links.get(&link)? {
            LinkState::Attaching => None,
            LinkState::Open { .. } => Some(Ok(link)),
            LinkState::Ended(error) => Some(Err(error.clone())),
        })
    }

    /// Waits until the core has said what is asked for.
    #[track_caller]
    fn wait<T>(&self, what: &str, mut asks: impl FnMut(&mut Inside) -> Option<T>) -> T {
        let mut inside = lock(&self.shared);
        loop {
            if let Some(found) = asks(&mut inside) {
                return found;
            }
            let (again, waited) =
                self.shared.said.wait_timeout(inside, self.patience).unwrap_or_else(PoisonError::into_inner);
            inside = again;
            assert!(!waited.timed_out(), "the core does not answer: {what}; closed: {:?}", inside.closed);
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        lock(&self.shared).events.push_back(Event::Closed(None));
        (self.wake)();
    }
}

impl DirectEnd {
    fn say(&self, what: impl FnOnce(&mut Inside)) {
        what(&mut lock(&self.0));
        self.0.said.notify_all();
    }
}

impl FrontEnd for DirectEnd {
    fn poll_event(&mut self) -> Option<Event> {
        let event = lock(&self.0).events.pop_front()?;
        if let Event::Closed(_) = &event {
            self.say(|inside| inside.closed = Some(None));
        }
        Some(event)
    }

    fn challenge(&mut self, _: Bytes) {}

    fn signed_in(&mut self, ok: bool) {
        self.say(|inside| {
            if !ok {
                inside.open = Opening::Refused(None);
            }
        });
    }

    fn token_refused(&mut self, _: TokenRefused) {
        self.signed_in(false);
    }

    fn sign_in_busy(&mut self) {
        self.signed_in(false);
    }

    fn accept_open(&mut self, _: Option<SolePolicy>) {
        self.say(|inside| inside.open = Opening::Accepted);
    }

    fn refuse_open(&mut self, why: Failure) {
        self.say(|inside| inside.open = Opening::Refused(Some(why)));
    }

    fn close(&mut self, why: Option<Failure>) {
        self.say(|inside| {
            inside.open = Opening::Refused(why.clone());
            inside.closed = Some(why);
        });
    }

    fn is_closed(&self) -> bool {
        lock(&self.0).closed.is_some()
    }

    fn is_ending(&self) -> bool {
        self.is_closed()
    }

    fn accept_link(&mut self, link: LinkId, granted: Granted) {
        let len_max = granted.message_bytes_max.unwrap_or(0);
        let len_max = granted.queue_message_bytes_max.map_or(len_max, |of_queue| of_queue.min(len_max));
        self.say(|inside| {
            let open = LinkState::Open { credit: 0, got: VecDeque::new(), drained: false, len_max };
            inside.links.insert(link, open);
        });
    }

    fn refuse_link(&mut self, link: LinkId, why: Failure) {
        self.detach(link, why);
    }

    fn detach(&mut self, link: LinkId, why: Failure) {
        self.say(|inside| {
            inside.coming.retain(|_, coming| coming.link != link);
            inside.links.insert(link, LinkState::Ended(why));
        });
    }

    fn resumes_only(&self, _: LinkId) -> bool {
        false
    }

    fn take_outcomes(&mut self, _: LinkId) -> Vec<KeptOutcome> {
        Vec::new()
    }

    fn credit(&self, link: LinkId) -> u32 {
        match lock(&self.0).links.get(&link) {
            Some(LinkState::Open { credit, .. }) => *credit,
            _ => 0,
        }
    }

    fn set_credit(&mut self, link: LinkId, new: u32) {
        self.say(|inside| {
            if let Some(LinkState::Open { credit, .. }) = inside.links.get_mut(&link) {
                *credit = new;
            }
        });
    }

    fn put_before(&mut self, _: LinkId, id: DeliveryId, message_id: Option<&str>) {
        self.say(|inside| {
            inside.put_before.extend(message_id.map(|message_id| (id, message_id.to_owned())));
        });
    }

    fn answer(&mut self, _: LinkId, id: DeliveryId, outcome: MessageOutcome, _: Option<UnitId>) {
        self.say(|inside| drop(inside.answers.insert(id, Answer::Outcome(outcome))));
    }

    fn declared(&mut self, _: LinkId, id: DeliveryId, unit: UnitId) {
        self.say(|inside| drop(inside.answers.insert(id, Answer::Declared(unit))));
    }

    fn can_send(&self, link: LinkId) -> bool {
        self.credit(link) > 0
    }

    fn is_sending(&self, _: LinkId) -> bool {
        false
    }

    fn send(&mut self, link: LinkId, token: u64, message: Outgoing, _: bool, _: Option<UnitId>) -> bool {
        let mut is_sent = false;
        self.say(|inside| {
            if let Some(LinkState::Open { credit: credit @ 1.., got, .. }) = inside.links.get_mut(&link) {
                *credit -= 1;
                got.push_back((token, message.into_payload()));
                is_sent = true;
            }
        });
        is_sent
    }

    fn settle(&mut self, _: LinkId, _: u64, _: MessageOutcome) {}

    fn drained(&mut self, link: LinkId) {
        self.say(|inside| {
            if let Some(LinkState::Open { credit, drained, .. }) = inside.links.get_mut(&link) {
                (*credit, *drained) = (0, true);
            }
        });
    }

    fn way_out(&mut self) -> Option<&mut dyn WayOut> {
        None
    }
}

impl Wire for DirectEnd {
    fn receive(&mut self, _: Instant, _: &[u8]) {}

    fn take_offered(&mut self, bytes_max: usize) -> usize {
        let mut taken = 0;
        self.say(|inside| taken = inside.take_offered(bytes_max));
        taken
    }

    fn wants_input(&self) -> bool {
        let inside = lock(&self.0);
        inside.is_given_up || inside.coming.values().any(|coming| coming.is_whole || !coming.offered.is_empty())
    }

    fn in_progress(&self) -> u64 {
        lock(&self.0).coming.values().map(|coming| coming.taken.len() as u64).sum()
    }

    fn arrived(&self) -> u64 {
        lock(&self.0).arrived
    }

    fn not_read(&mut self, _: Instant) {}

    fn output_len(&self) -> usize {
        0
    }

    fn output_slices<'a>(&'a mut self, _: &mut Vec<IoSlice<'a>>) {}

    fn output_written(&mut self, _: usize) {}

    fn poll_timeout(&self) -> Option<Instant> {
        lock(&self.0).deadlines.iter().map(|(at, _)| *at).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let inside = &mut *lock(&self.0);
        for (_, link) in inside.deadlines.extract_if(.., |(at, _)| *at <= now) {
            inside.events.push_back(Event::Credit { link, drain: true });
        }
    }
}
