//! A link on which a client gets or browses: what it has of its own.

use super::local::Local;
use super::passed_over::{PassedOver, Why};
use super::returns::give_back;
use super::sealing::OpeningKeys;
use super::selection::Selection;
use super::subscription::Subscription;

use crate::adapter::Held;
use crate::dynamic::Deletes;
use crate::envelope::{self, Arrival, Readable};
use crate::front::link::{Attach, Get};
use crate::front::{SessionId, UnitId};
use crate::limits::UserId;
use crate::manager::{Route, State};
use crate::maps::{HashMap, HashSet};
use crate::ordered_line::{self, OrderedLine};
use crate::outgoing::{self, OpensItself};
use crate::reason::{self, Refusal};
use crate::resumable::Resumable;
use bulla_queue::{Found, MessageId, Place, QueueId, ReadError};
use bulla_seal::Policy;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages of one link that may be with the adapters at once.
const OPENING_MAX: usize = 64;
/// Bytes of them with which it takes no more from its queue.
const OPENING_BYTES_MAX: usize = 64 << 20;
/// How often a reader that passes messages over looks at all of them again.
pub const RESCAN_EVERY: Duration = Duration::from_millis(200);
/// Unsettled deliveries of a link from which on each settlement may be what lets the next one go.
pub const OUTSTANDING_MANY: usize = 100_000;
/// The same where there are more of them than it remembers: it opens some of them anew each time.
pub const RESCAN_MANY_EVERY: Duration = Duration::from_secs(10);

/// A link on which a client gets or browses.
pub struct Consumer {
    pub(crate) session: SessionId,
    /// The name the client opened.
    pub opened: String,
    /// Where its name leads, as looked up last.
    pub route: Arc<Route>,
    pub(crate) mode: Mode,
    /// Deliveries are settled as they are sent (at most once).
    pub presettled: bool,
    /// The client opens for itself.
    pub opens_itself: Option<OpensItself>,
    pub(crate) size: Size,
    /// Which messages it wants, where it does not take all.
    pub selection: Option<Box<Selection>>,
    pub(crate) search: Search,
    pub(crate) deliveries: Deliveries,
    pub(crate) opener: LinkOpener,
    /// The client asked for what is there, up to its credit (AMQP part 2, section 2.6.7, drain).
    pub draining: bool,
    pub(crate) terminus: Terminus,
    /// The unit of work in which messages are acquired, until it is over.
    pub acquires: Option<UnitId>,
    pub(crate) resumes: Resumes,
}

/// What a link does with the messages of its queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// It copies them.
    Browses,
    /// It takes them, as others may.
    Takes,
    /// It takes them, and no other link may meanwhile.
    TakesAlone,
}

/// What a link gets from.
pub enum Terminus {
    /// A queue.
    Queue {
        /// It is dynamic and ends with this link.
        dynamic: Option<QueueId>,
        /// What closing the link does to it, where it is a permanent dynamic one.
        deletes: Option<Deletes>,
    },
    /// The queue of a subscription.
    Subscription(Box<Subscription>),
}

/// How far a link has looked at its queue, where it does not take whatever comes next.
pub struct Search {
    /// How far a browser has come; for others, how far the messages reach that are not theirs.
    pub cursor: Option<Place>,
    /// Messages that are addressed to others, or that it will not have.
    pub passed_over: PassedOver,
    /// The count of the queue's arrivals up to which everything was looked at.
    pub arrivals: u64,
    /// The count of those that were sealed anew, likewise.
    pub resealed: u64,
    /// When everything may be looked at again.
    pub rescan_at: Instant,
}

/// The messages that a client has, and has not settled.
#[derive(Default)]
pub struct Deliveries {
    /// Messages that are locked under a delivery of the link.
    pub outstanding: HashSet<MessageId>,
    /// Their bytes, where an UNACKED limits them.
    unsettled: HashMap<MessageId, Unsettled>,
    /// Of these, the ones whose units of work were backed out, and how often: given back, they have failed so often.
    pub backed_out: HashMap<MessageId, u32>,
}

/// How long a link's messages may be.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Bytes of the longest one that the client takes.
    bytes_max: u64,
    /// Bytes of the next one, where it is longer. The link ends with that when the client has settled what it has.
    too_long: Option<usize>,
}

/// What opens a link's messages before they are sent.
pub struct LinkOpener {
    /// Messages on their way through it, in delivery order.
    pub line: OpeningLine,
    /// As whom it asks for devices.
    pub who: bulla_device::Asker,
    /// What it does with the keys of the reader's ring.
    pub keys: OpeningKeys,
}

/// How a link goes on from an earlier attachment, and the next one from this.
#[derive(Default)]
pub struct Resumes {
    /// Its place among the links that may be resumed.
    pub place: Option<Box<Resumable>>,
    /// Messages that were delivered on an earlier attachment, and are delivered again before all others.
    pub first: VecDeque<MessageId>,
    /// The one of them that was taken last.
    pub taken: Option<MessageId>,
    /// Nothing but those may be delivered on this attachment.
    pub only: bool,
}

impl Deliveries {
    /// A delivery is settled: how often units of work that it was in were backed out. None for one that is not
    /// outstanding.
    #[inline]
    pub fn take(&mut self, id: MessageId) -> Option<u32> {
        if !self.outstanding.remove(&id) {
            return None;
        }
        Some(if self.backed_out.is_empty() { 0 } else { self.backed_out.remove(&id).unwrap_or(0) })
    }
}

/// A delivery whose bytes are counted until it is settled.
pub struct Unsettled {
    bytes: u64,
    /// With its user, with its queue: each where it had a limit when this was delivered.
    of_user: bool,
    of_queue: bool,
}

/// A locked message on its way through the opener.
pub struct Opening {
    pub(crate) locked: Found,
    /// Its memory, given back when it is sent.
    pub _held: Held,
}

/// What is with an adapter: the message as it lay on its queue, and the policy that it is opened under.
pub struct Away(pub Box<Arrival>, pub Arc<Policy>);

/// What a message of [`OpeningLine`] is at.
pub type Stage = ordered_line::Stage<Away, Result<Readable, Fault>>;

/// The messages of a link that are being opened.
pub type OpeningLine = OrderedLine<Opening, Away, Result<Readable, Fault>>;

/// The line of a link that takes no more messages while so many, or so many bytes of them, are being opened.
pub fn opening_line() -> OpeningLine {
    OrderedLine::bounded(OPENING_MAX, OPENING_BYTES_MAX)
}

/// Why a message does not go to this reader.
pub enum Fault {
    /// It is addressed to others.
    NotMine,
    /// Its seal is defective: it goes to the error queue.
    Defective {
        /// The sub-reason.
        cause: &'static str,
        /// Why, as the operator reads it.
        detail: String,
    },
    /// It can't be opened now; it stays.
    Later {
        /// The sub-reason.
        cause: &'static str,
        /// Why, as the operator reads it.
        detail: String,
    },
}

impl Fault {
    pub(crate) fn defective(cause: &'static str, detail: impl Into<String>) -> Self {
        Self::Defective { cause, detail: detail.into() }
    }
}

impl Consumer {
    /// A link that gets whatever comes next from that queue, which it opened by `opened`.
    pub fn new(
        attach: &Attach,
        get: &Get,
        opened: String,
        route: Route,
        who: bulla_device::Asker,
        now: Instant,
    ) -> Self {
        Self {
            session: attach.session,
            opened,
            route: Arc::new(route),
            mode: Mode::Takes,
            presettled: get.presettled,
            opens_itself: get.opens_itself,
            size: Size { bytes_max: get.message_bytes_max.map_or(u64::MAX, NonZeroU64::get), too_long: None },
            selection: None,
            search: Search {
                cursor: None,
                passed_over: PassedOver::default(),
                arrivals: 0,
                resealed: 0,
                rescan_at: now,
            },
            deliveries: Deliveries::default(),
            opener: LinkOpener { line: opening_line(), who, keys: OpeningKeys::default() },
            draining: false,
            terminus: Terminus::Queue { dynamic: None, deletes: None },
            acquires: None,
            resumes: Resumes::default(),
        }
    }

    /// Whether it copies messages instead of taking them.
    #[inline]
    pub fn browses(&self) -> bool {
        self.mode == Mode::Browses
    }

    /// Whether no other link may take messages meanwhile.
    pub fn is_alone(&self) -> bool {
        self.mode == Mode::TakesAlone
    }

    /// The subscription whose queue it gets from.
    pub fn subscription(&self) -> Option<&Subscription> {
        match &self.terminus {
            Terminus::Queue { .. } => None,
            Terminus::Subscription(subscription) => Some(subscription),
        }
    }

    /// What closing it does to its permanent dynamic queue.
    pub fn deletes(&self) -> Option<Deletes> {
        match &self.terminus {
            Terminus::Queue { deletes, .. } => *deletes,
            Terminus::Subscription(_) => None,
        }
    }

    /// Looks the name that was opened up again, where definitions have changed.
    #[inline]
    pub fn look_up_again(&mut self, state: &State) -> Result<(), Refusal> {
        if self.route.generation == state.generations.definitions {
            return Ok(());
        }
        let route = state.route(&self.opened)?;
        if !route.get_enabled {
            return Err(Refusal::new(reason::GET_INHIBITED, format!("{} has GET(DISABLED)", self.opened)));
        }
        if route.queue != self.route.queue {
            return Err(Refusal::new(reason::OBJECT_CHANGED, format!("{} leads elsewhere now", self.opened)));
        }
        self.route = Arc::new(route);
        Ok(())
    }

    /// Whether one more message may be acquired in the unit of work in which the link acquires, where it does.
    #[inline]
    pub fn may_acquire(&mut self, local: &Local, state: &State) -> Result<(), Refusal> {
        let Some(unit) = self.acquires else { return Ok(()) };
        match local.units.may_acquire(unit, self.route.queue, state.definitions.queue_manager.max_uncommitted) {
            None => {
                self.acquires = None;
                Ok(())
            }
            Some(result) => result,
        }
    }

    /// Whether the client takes a message of so many bytes, as it is sent to it (AMQP part 2, section 2.7.3). One that
    /// was sealed counts as it was opened. MQ's counterpart is the buffer of an MQGET. Behind one that is too long it
    /// takes none.
    ///
    /// # Errors
    /// The link ends with that: now, or where [`Consumer::has_to_settle`] says so, later.
    #[inline]
    pub fn takes(&mut self, bytes: usize) -> Result<(), Refusal> {
        let Size { bytes_max, too_long } = self.size;
        if bytes as u64 <= bytes_max && too_long.is_none() {
            return Ok(());
        }
        let bytes = *self.size.too_long.get_or_insert(bytes);
        let detail = format!("{}: the next message has {bytes} bytes, and the link takes {bytes_max}", self.opened);
        Err(Refusal::new(reason::TRUNCATED_MSG_FAILED, detail))
    }

    /// Whether the client has messages to settle before its link ends, so that none of them comes twice. One that
    /// drains waits for an answer first.
    pub fn has_to_settle(&self) -> bool {
        !self.deliveries.outstanding.is_empty() && !self.draining
    }

    /// Whether the link gets no more because the next message is too long. When the client has settled what it has, and
    /// what was being opened is given back, that message is looked for anew: others may have got it.
    #[inline]
    pub fn waits_to_end(&mut self) -> bool {
        if self.size.too_long.is_some() && !self.has_to_settle() && self.opener.line.is_empty() {
            self.size.too_long = None;
        }
        self.size.too_long.is_some()
    }

    /// Whether its user, or its queue, has as much unsettled as it may. A settlement on another connection wakes no
    /// link here: the next tick looks again.
    #[inline]
    pub fn has_enough(&self, user: Option<UserId>, local: &mut Local, state: &mut State) -> bool {
        let (limit, queue) = (self.route.limit, self.route.queue);
        let has_enough = user.is_some_and(|user| state.clients.users.is_full(user))
            || limit.unacknowledged_bytes > 0 && !self.browses() && state.use_of(queue).limited.is_full(limit);
        if has_enough {
            local.serving.rescan.insert(queue);
        }
        has_enough
    }

    /// A message that was given back is not to come to this link again.
    pub fn will_not_have(&mut self, id: MessageId, local: &mut Local, state: &mut State) {
        self.search.passed_over.remember(id, Why::NotHere);
        if let Some(selection) = &mut self.selection
            && selection.give_up_group(state, id)
        {
            local.serve_everywhere(self.route.queue, state);
        }
    }

    /// Messages were settled: groups that are the others' now are told of.
    pub fn give_up_groups(&mut self, local: &mut Local, state: &mut State) {
        if self.selection.as_mut().is_some_and(|selection| selection.give_up_owed(state)) {
            local.serve_everywhere(self.route.queue, state);
        }
    }

    /// Whether what is delivered is counted: with that user, with the queue.
    fn counted(&self, user: Option<UserId>, state: &State) -> (bool, bool) {
        let of_user = user.is_some_and(|user| state.clients.users.counts_unacknowledged(user));
        (of_user, self.route.limit.unacknowledged_bytes > 0)
    }

    /// Counts a delivery with what its user and its queue have unsettled. Two compares where nothing limits that.
    #[inline]
    pub fn note_delivered(&mut self, user: Option<UserId>, state: &mut State, id: MessageId, bytes: usize) {
        let (of_user, of_queue) = self.counted(user, state);
        if !of_user && !of_queue {
            return;
        }
        let bytes = bytes as u64;
        self.deliveries.unsettled.insert(id, Unsettled { bytes, of_user, of_queue });
        if let Some(user) = user.filter(|_| of_user) {
            state.clients.users.delivered(user, bytes);
        }
        if of_queue {
            state.use_of(self.route.queue).limited.delivered(bytes);
        }
    }

    /// A message is not there yet: it is the next one that is looked at when its queue is ready.
    pub fn wait_for(&mut self, state: &mut State, locked: &Found) {
        let browses = self.browses();
        match &mut self.selection {
            _ if self.resumes.taken == Some(locked.id) => self.resumes.first.push_front(locked.id),
            Some(selection) if browses => selection.look_again(locked),
            None if browses => self.search.cursor = Some(locked.place.before()),
            _ => state.store.set_aside(locked.id),
        }
    }

    /// Counts a delivery again whose outcome was not applied: the client has it still.
    pub fn note_returned(&mut self, user: Option<UserId>, state: &mut State, id: MessageId) {
        if self.counted(user, state) != (false, false) {
            // What can't be read is left alone, and reported when it is got.
            let stored = |state: &State| state.store.find(id).map_or(0, |(_, found)| found.body_bytes as usize);
            let body = state.store.body(id);
            let bytes = match body {
                Ok(body) => envelope::payload_of(&body).len(),
                Err(ReadError::Away { .. }) => stored(state),
                Err(_) => 0,
            };
            self.note_delivered(user, state, id, bytes);
        }
    }

    /// Takes a delivery off what its user and its queue have unsettled; true where the user may be sent more again. A
    /// compare where nothing was counted.
    #[inline]
    pub fn note_settled(&mut self, user: Option<UserId>, local: &mut Local, state: &mut State, id: MessageId) -> bool {
        if self.deliveries.unsettled.is_empty() {
            return false;
        }
        let Some(was) = self.deliveries.unsettled.remove(&id) else { return false };
        let (user_has_room, queue_has_room) = self.take_off(user, state, &was);
        if queue_has_room {
            local.serve_everywhere(self.route.queue, state);
        }
        user_has_room
    }

    /// Whether the user, and whether the queue, has room again.
    fn take_off(&self, user: Option<UserId>, state: &mut State, was: &Unsettled) -> (bool, bool) {
        let user_has_room = user.is_some_and(|user| was.of_user && state.clients.users.settled(user, was.bytes));
        let (limit, queue) = (self.route.limit, self.route.queue);
        (user_has_room, was.of_queue && state.use_of(queue).limited.settled(limit, was.bytes))
    }

    /// Whether it takes whatever comes next on its queue: it neither looks nor chooses, and passes nothing over.
    #[inline]
    pub fn takes_next(&self) -> bool {
        !self.browses()
            && self.selection.is_none()
            && self.search.passed_over.is_empty()
            && self.search.cursor.is_none()
            && self.resumes.first.is_empty()
            && !self.resumes.only
    }

    /// Whether messages pass the opener on their way to this link.
    #[inline]
    pub fn opens(&self) -> bool {
        self.opens_itself.is_none() && outgoing::is_protected(&self.route)
    }

    /// The messages that the client has, and those that it is to get first: each with how often it has failed.
    pub fn take_locked(&mut self) -> Vec<(MessageId, u32)> {
        let Deliveries { outstanding, backed_out, .. } = &mut self.deliveries;
        let ids = outstanding.drain().chain(self.resumes.first.drain(..));
        ids.map(|id| (id, backed_out.remove(&id).unwrap_or(0))).collect()
    }

    /// Gives back what the link held, when it ends. What was under way when a client's connection ended counts as
    /// `failed`; a client that ends a link says itself what failed, and need not have looked at what it had prefetched.
    pub fn leave(&mut self, user: Option<UserId>, wall_ms: u64, state: &mut State, failed: bool) {
        self.opener.who.leave();
        for (_, was) in std::mem::take(&mut self.deliveries.unsettled) {
            self.take_off(user, state, &was);
        }
        if let Some(selection) = self.selection.take() {
            selection.end(state);
        }
        let queue = self.route.queue;
        if !self.browses() {
            for (id, backed_out) in self.take_locked() {
                give_back(&self.route, wall_ms, state, id, backed_out.max(u32::from(failed)));
            }
        }
        let browses = self.browses();
        for opening in self.opener.line.cancel_all() {
            if !browses {
                state.store.release(opening.locked.id, false);
            }
        }
        if let Some(usage) = state.uses.get_mut(&queue) {
            usage.getters = usage.getters.saturating_sub(1);
            if !self.browses() {
                usage.takers = usage.takers.saturating_sub(1);
                usage.exclusive &= !self.is_alone();
                if usage.takers == 0 {
                    state.triggering.abandoned(queue);
                }
            }
        }
    }
}
