//! The units of work of a dispatcher's connections: what each has put and got, and where its answer goes.

use crate::dispatcher::publishing::Subscriber;
use crate::front::outcome::MessageOutcome;
use crate::front::{DeliveryId, LinkId, SessionId, UnitId};
use crate::key_use::Staged;
use crate::manager::Route;
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::refusals::stores_mixed;
use bulla_queue::{Message, MessageId, QueueId, StoreNumber};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

/// A link on which a client declares and discharges.
pub struct Coordinator {
    pub(crate) session: SessionId,
    /// The client understands *rejected*; for one that does not, a refusal ends the link (part 4, section 4.3).
    pub(super) takes_rejected: bool,
}

/// The units of work of a dispatcher's connections.
#[derive(Default)]
pub struct Units {
    pub(super) open: HashMap<UnitId, Unit>,
    last: u64,
}

/// One unit of work.
pub(super) struct Unit {
    /// The connection, and the link that controls it.
    pub(super) key: usize,
    pub(super) generation: u64,
    pub(super) coordinator: LinkId,
    pub(super) declared_at: Instant,
    /// The store of all that happens in it, once something has.
    pub(super) store: Option<StoreNumber>,
    pub(super) puts: Vec<StagedPut>,
    pub(super) gets: Vec<StagedGet>,
    /// What the staged messages count against the limits.
    pub(super) bytes: usize,
    /// Messages of it that are being sealed, or wait for such.
    pub(super) pending: u32,
    /// It can't be committed any more, and why.
    pub(super) doomed: Option<Refusal>,
    /// Its discharge waits for `pending`.
    pub(super) discharge: Option<Answer>,
}

/// A message that is put at the commit.
pub(super) struct StagedPut {
    pub(super) queue: QueueId,
    pub(super) message: Message,
    /// It came on a link to no queue in particular.
    pub(super) is_single: bool,
    /// Its queue is a transmission queue.
    pub(super) is_remote: bool,
    /// It asks to be told what becomes of it.
    pub(super) asks: bool,
    /// It is counted under the keys that open it, until this goes.
    #[expect(dead_code, reason = "it counts for as long as it is there")]
    pub(super) need: Option<Staged>,
    /// Of the copy of a publication: whose it is.
    pub(super) whose: Option<Subscriber>,
}

/// A locked message, and what becomes of it at the commit.
pub(super) struct StagedGet {
    pub(super) id: MessageId,
    pub(super) link: LinkId,
    pub(super) from: Arc<Route>,
    pub(super) outcome: Option<MessageOutcome>,
    /// How often units that it was in before were backed out, since it was locked.
    pub(super) failures: u32,
    /// The client has forgotten the delivery; otherwise it is told when the unit is over.
    pub(super) settled: bool,
    /// It was delivered in the unit: where that is backed out, it is back on its queue (part 4, section 4.4.3).
    pub(super) is_acquired: bool,
    /// The client has said what is to become of it. Always, but for what was acquired in the unit.
    pub(super) is_said: bool,
}

/// What a unit that is over leaves to be undone.
pub(super) struct Contents {
    pub(super) puts: Vec<StagedPut>,
    pub(super) gets: Vec<StagedGet>,
    pub(super) bytes: usize,
}

/// Where the answer to a discharge goes.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) link: LinkId,
    pub(super) id: DeliveryId,
    pub(super) settled: bool,
}

/// A commit that waits for the journal.
pub struct Discharged {
    pub(crate) key: usize,
    pub(crate) generation: u64,
    pub(super) answer: Answer,
    /// Deliveries to settle, with their outcomes.
    pub(super) deliveries: Vec<(LinkId, u64, MessageOutcome)>,
}

impl Discharged {
    /// The link that the answer is for.
    pub fn link(&self) -> LinkId {
        self.answer.link
    }
}

impl Units {
    /// A name that no unit has had.
    pub(super) fn next_id(&mut self) -> UnitId {
        self.last += 1;
        UnitId(NonZeroU64::new(self.last).expect("it counts from one, and not as far as round"))
    }

    /// The unit that a connection means by that id: one of its own that is not being discharged.
    pub fn of(&self, key: usize, generation: u64, id: UnitId) -> Option<UnitId> {
        let unit = self.open.get(&id)?;
        (unit.key == key && unit.generation == generation && unit.discharge.is_none()).then_some(id)
    }

    /// Whether one more message of that queue may be acquired in the unit. None where the unit is over, or about to be.
    pub fn may_acquire(&self, id: UnitId, queue: QueueId, messages_max: u32) -> Option<Result<(), Refusal>> {
        let unit = self.open.get(&id).filter(|unit| unit.discharge.is_none())?;
        let is_whole = unit.doomed.clone().map_or(Ok(()), Err);
        Some(is_whole.and_then(|()| unit.admits_store(queue.store())).and_then(|()| unit.admits(messages_max)))
    }

    /// A message was sent on a link that acquires in the unit; `settled` says that it was sent settled, and is taken
    /// for accepted. Returns its place among what is got in the unit.
    pub fn acquired(
        &mut self,
        id: UnitId,
        message: MessageId,
        link: LinkId,
        from: &Arc<Route>,
        settled: bool,
    ) -> Option<usize> {
        let unit = self.open.get_mut(&id)?;
        unit.store = Some(message.store());
        unit.gets.push(StagedGet {
            id: message,
            link,
            from: from.clone(),
            outcome: settled.then_some(MessageOutcome::Accepted),
            failures: 0,
            settled,
            is_acquired: true,
            is_said: settled,
        });
        Some(unit.gets.len() - 1)
    }

    /// A message of the unit waits for an adapter.
    pub fn begun(&mut self, id: UnitId) {
        if let Some(unit) = self.open.get_mut(&id) {
            unit.pending += 1;
        }
    }

    /// It waits no more.
    pub fn ended(&mut self, id: UnitId) {
        if let Some(unit) = self.open.get_mut(&id) {
            unit.pending = unit.pending.saturating_sub(1);
        }
    }

    /// The unit can only be backed out: something that its sender will not hear of went wrong.
    pub fn doom(&mut self, id: UnitId, why: &Refusal) {
        if let Some(unit) = self.open.get_mut(&id) {
            unit.doomed.get_or_insert_with(|| backed_out(why));
        }
    }

    /// Units of work in these stores can only be backed out.
    pub fn doom_of(&mut self, stores: &[StoreNumber], why: &Refusal) {
        for unit in self.open.values_mut().filter(|unit| unit.store.is_some_and(|store| stores.contains(&store))) {
            unit.doomed.get_or_insert_with(|| backed_out(why));
        }
    }

    /// Whether a connection has staged messages for that queue.
    pub fn has_staged(&self, units: &[UnitId], queue: QueueId) -> bool {
        let has = |unit: &Unit| unit.puts.iter().any(|put| put.queue == queue);
        units.iter().filter_map(|id| self.open.get(id)).any(has)
    }
}

impl Unit {
    pub(super) fn take_contents(&mut self) -> Contents {
        Contents {
            puts: std::mem::take(&mut self.puts),
            gets: std::mem::take(&mut self.gets),
            bytes: std::mem::take(&mut self.bytes),
        }
    }

    /// Whether something of that store may happen in it, beside what has happened.
    pub(super) fn admits_store(&self, store: StoreNumber) -> Result<(), Refusal> {
        match self.store.filter(|known| *known != store) {
            None => Ok(()),
            Some(_) => Err(stores_mixed("the unit of work has messages of another store".to_owned())),
        }
    }

    /// Whether one more message is within MAXUMSGS.
    pub(super) fn admits(&self, messages_max: u32) -> Result<(), Refusal> {
        self.admits_more(1, messages_max)
    }

    pub(super) fn admits_more(&self, more: usize, messages_max: u32) -> Result<(), Refusal> {
        let messages = self.puts.len() + self.gets.len();
        if messages.saturating_add(more) <= messages_max as usize {
            return Ok(());
        }
        Err(limit("messages", format!("the unit of work has its maximum of {messages_max} messages (MAXUMSGS)")))
    }
}

/// 2024, and which limit it is.
pub(super) fn limit(cause: &'static str, detail: String) -> Refusal {
    Refusal { cause: Some(cause), ..Refusal::new(reason::SYNCPOINT_LIMIT_REACHED, detail) }
}

/// 2003, because of something else.
pub(super) fn backed_out(why: &Refusal) -> Refusal {
    match why.reason {
        reason::BACKED_OUT | reason::UOW_MIX_NOT_SUPPORTED => why.clone(),
        _ => Refusal::new(reason::BACKED_OUT, why.to_string()),
    }
}
