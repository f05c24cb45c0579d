//! The messages of one link that are with the adapters, or wait behind such a message. Adapters answer in any order;
//! messages leave in the order in which they joined. No sockets, no queues, no clock: puts, publications, gets and both
//! ends of a channel keep their messages in such a line.

use std::collections::VecDeque;
use std::fmt;

/// The number of a message in its line, by which an adapter's answer finds it. A line never uses a number again.
pub type Slot = u64;

/// How far a message has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage<A, R> {
    /// With an adapter: what is needed to go on once it has answered.
    Away(A),
    /// Answered, or never asked: the message waits for those before it.
    Ready(R),
}

/// A line of messages: `T` is what is known of each, `A` what it keeps while it is with an adapter, `R` what came of
/// that.
///
/// The line bounds itself. A message joins with a [`Room`], which the line gives out only within its bounds; otherwise
/// it answers [`LineFull`], and its owner refuses the message, gives it back, or stops taking messages. An empty line
/// always has room: for a message of any length, and for all copies of one publication.
///
/// A message leaves exactly once: by [`take_front`](Self::take_front), [`take_through`](Self::take_through),
/// [`cancel_where`](Self::cancel_where) or [`cancel_all`](Self::cancel_all). What it held is given back then. An answer
/// for a message that has left is ignored. Nothing is allocated for a message beyond its place in a `VecDeque`.
#[derive(Debug)]
pub struct OrderedLine<T, A, R> {
    /// In ascending order of their slots.
    places: VecDeque<Place<T, A, R>>,
    /// The slot that is given out next.
    next: Slot,
    bytes: usize,
    messages_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Place<T, A, R> {
    slot: Slot,
    item: T,
    bytes: usize,
    /// None only while an answer is being written down.
    stage: Option<Stage<A, R>>,
}

/// The right of one message to join a line. An adapter may be asked under its slot before the message joins. Where the
/// message does not join, the slot stays unused.
#[derive(Debug)]
#[must_use = "a message joins with it"]
pub struct Room(Slot);

/// A line has no room: the message does not join.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LineFull {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl fmt::Display for LineFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, bytes } = self;
        write!(f, "{messages} messages of this link, {bytes} bytes together, are being sealed or opened")
    }
}

impl Room {
    pub(crate) fn slot(&self) -> Slot {
        self.0
    }
}

impl<T, A, R> OrderedLine<T, A, R> {
    /// A line that takes no more once it has so many messages, or so many bytes. The last message may go beyond the
    /// bytes: how long one may be is bounded elsewhere.
    pub fn bounded(messages_max: usize, bytes_max: usize) -> Self {
        Self { places: VecDeque::new(), next: 0, bytes: 0, messages_max, bytes_max }
    }

    /// Messages in the line.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the messages in the line.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is no room for one more message.
    pub fn is_full(&self) -> bool {
        !self.has_room(1)
    }

    fn has_room(&self, messages: usize) -> bool {
        let is_within = self.len().saturating_add(messages) <= self.messages_max && self.bytes < self.bytes_max;
        self.is_empty() || is_within
    }

    /// Room for one message.
    ///
    /// # Errors
    /// The line is full.
    pub fn room(&mut self) -> Result<Room, LineFull> {
        if self.is_full() {
            return Err(self.full());
        }
        self.next += 1;
        Ok(Room(self.next - 1))
    }

    /// Room for so many messages that join together or not at all, in this order.
    ///
    /// # Errors
    /// The line has no room for all of them.
    pub fn rooms(&mut self, messages: usize) -> Result<impl Iterator<Item = Room> + use<T, A, R>, LineFull> {
        if !self.has_room(messages) {
            return Err(self.full());
        }
        let first = self.next;
        self.next += messages as u64;
        Ok((first..self.next).map(Room))
    }

    fn full(&self) -> LineFull {
        LineFull { messages: self.len(), bytes: self.bytes }
    }

    /// The slot of a place, counted from the front.
    pub fn slot_at(&self, place: usize) -> Option<Slot> {
        self.places.get(place).map(|place| place.slot)
    }

    /// A message takes the place at the end. Its room was given out behind those of all that have joined.
    pub fn join(&mut self, room: Room, item: T, bytes: usize, stage: Stage<A, R>) {
        let Room(slot) = room;
        debug_assert!(self.places.back().is_none_or(|last| last.slot < slot), "rooms are used in their order");
        self.bytes += bytes;
        self.places.push_back(Place { slot, item, bytes, stage: Some(stage) });
    }

    /// Writes down what an adapter answered. False where the message has left the line, or was not with an adapter:
    /// the answer is ignored.
    pub fn fill(&mut self, slot: Slot, answer: impl FnOnce(&mut T, A) -> R) -> bool {
        let Ok(place) = self.places.binary_search_by_key(&slot, |place| place.slot) else { return false };
        let Some(Place { item, stage, .. }) = self.places.get_mut(place) else { return false };
        match stage.take() {
            Some(Stage::Away(away)) => {
                *stage = Some(Stage::Ready(answer(item, away)));
                true
            }
            other => {
                *stage = other;
                false
            }
        }
    }

    /// Begins once more with a message that is ready: its new stage replaces what came of it before. A message that is
    /// with an adapter is left alone, because the old answer would be taken for the new one.
    pub fn begin_again(&mut self, place: usize, begin: impl FnOnce(&mut T, R) -> Stage<A, R>) {
        let Some(Place { item, stage, .. }) = self.places.get_mut(place) else { return };
        *stage = match stage.take() {
            Some(Stage::Ready(was)) => Some(begin(item, was)),
            other => other,
        };
    }

    /// What is known of each message in the line, in order.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.places.iter().map(|place| &place.item)
    }

    /// The messages at the front that are ready, up to the first that is not.
    pub fn ready(&self) -> impl Iterator<Item = (&T, &R)> {
        self.places.iter().map_while(|place| match &place.stage {
            Some(Stage::Ready(ready)) => Some((&place.item, ready)),
            _ => None,
        })
    }

    /// The first message, if it is ready.
    pub fn front(&self) -> Option<(&T, &R)> {
        self.ready().next()
    }

    /// The message at a place, counted from the front, and how far it has come.
    pub fn at(&self, place: usize) -> Option<(&T, &Stage<A, R>)> {
        let Place { item, stage, .. } = self.places.get(place)?;
        Some((item, stage.as_ref()?))
    }

    /// The first message leaves, if it is ready.
    pub fn take_front(&mut self) -> Option<(T, R)> {
        if !matches!(self.places.front(), Some(Place { stage: Some(Stage::Ready(_)), .. })) {
            return None;
        }
        let Place { item, bytes, stage: Some(Stage::Ready(ready)), .. } = self.places.pop_front()? else { return None };
        self.bytes -= bytes;
        Some((item, ready))
    }

    /// The first messages leave together, up to the first that is the last of its group, if all of them are ready.
    pub fn take_through(&mut self, is_last: impl Fn(&T) -> bool) -> Option<Vec<(T, R)>> {
        let last = self.ready().position(|(item, _)| is_last(item))?;
        let mut group = Vec::with_capacity(last + 1);
        group.extend((0..=last).filter_map(|_| self.take_front()));
        Some(group)
    }

    /// Messages that are not wanted any more leave, ready or not; the others keep their order.
    pub fn cancel_where(&mut self, mut is_cancelled: impl FnMut(&T) -> bool) -> Vec<T> {
        let (gone, left) = std::mem::take(&mut self.places).into_iter().partition(|place| is_cancelled(&place.item));
        let gone: VecDeque<Place<T, A, R>> = gone;
        self.places = left;
        self.bytes -= gone.iter().map(|place| place.bytes).sum::<usize>();
        gone.into_iter().map(|place| place.item).collect()
    }

    /// All messages leave, ready or not.
    pub fn cancel_all(&mut self) -> impl Iterator<Item = T> {
        self.bytes = 0;
        std::mem::take(&mut self.places).into_iter().map(|place| place.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::rc::Rc;

    type Line = OrderedLine<&'static str, u8, u32>;

    fn line(messages: impl IntoIterator<Item = (&'static str, Stage<u8, u32>)>) -> Line {
        let mut line = Line::bounded(3, 100);
        messages.into_iter().for_each(|(name, stage)| join(&mut line, name, 10, stage));
        line
    }

    #[track_caller]
    fn join(line: &mut Line, name: &'static str, bytes: usize, stage: Stage<u8, u32>) {
        let room = line.room().unwrap();
        line.join(room, name, bytes, stage);
    }

    #[test]
    fn answers_come_in_any_order_and_messages_leave_in_theirs() {
        let mut line = line([("a", Stage::Away(1)), ("b", Stage::Ready(20)), ("c", Stage::Away(3))]);
        assert_eq!(line.take_front(), None, "the first is away");
        assert!(line.fill(2, |name, away| {
            assert_eq!((*name, away), ("c", 3));
            30
        }));
        assert_eq!((line.take_front(), line.ready().count()), (None, 0));
        assert!(line.fill(0, |_, _| 10));
        assert_eq!(line.ready().collect::<Vec<_>>(), [(&"a", &10), (&"b", &20), (&"c", &30)]);
        assert_eq!(std::iter::from_fn(|| line.take_front()).collect::<Vec<_>>(), [("a", 10), ("b", 20), ("c", 30)]);
        assert_eq!((line.len(), line.bytes(), line.room().unwrap().slot()), (0, 0, 3));
    }

    #[test]
    fn an_answer_that_is_not_waited_for_is_ignored() {
        let mut line = line([("a", Stage::Away(1)), ("b", Stage::Ready(20))]);
        assert!(line.fill(0, |_, _| 10));
        assert!(!line.fill(0, |_, _| panic!("answered twice")));
        assert!(!line.fill(1, |_, _| panic!("never asked")));
        assert!(!line.fill(2, |_, _| panic!("has not joined")));
        line.take_front().unwrap();
        assert!(!line.fill(0, |_, _| panic!("has left")));
        assert_eq!(line.take_front(), Some(("b", 20)));
    }

    #[test]
    fn what_is_cancelled_gives_back_its_bytes_and_its_answer_fits_no_later_message() {
        let mut line = line([("a", Stage::Away(1)), ("b", Stage::Ready(20))]);
        assert_eq!(line.cancel_all().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((line.len(), line.bytes()), (0, 0));
        join(&mut line, "c", 10, Stage::Away(3));
        assert!(!line.fill(0, |_, _| panic!("an answer for a cancelled message")));
        assert!(line.fill(2, |_, _| 30));
        assert_eq!(line.take_front(), Some(("c", 30)));
    }

    #[test]
    fn it_is_full_by_messages_and_by_bytes() {
        let mut line = line([]);
        for name in ["a", "b", "c"] {
            assert!(!line.is_full());
            join(&mut line, name, 10, Stage::Ready(0));
        }
        assert_eq!(line.room().unwrap_err(), LineFull { messages: 3, bytes: 30 });
        line.take_front().unwrap();
        assert!(!line.is_full());
        line.cancel_all().for_each(drop);
        join(&mut line, "long", 100, Stage::Ready(0));
        assert_eq!(line.room().unwrap_err(), LineFull { messages: 1, bytes: 100 });
        assert_eq!(line.len(), 1, "what has no room has not joined");
    }

    #[test]
    fn a_group_joins_whole_or_not_and_one_of_any_size_joins_an_empty_line() {
        let mut line = line([]);
        assert_eq!(line.rooms(4).unwrap().map(|room| room.slot()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        join(&mut line, "a", 10, Stage::Away(1));
        assert!(line.rooms(3).is_err() && line.rooms(2).is_ok());
        assert_eq!(line.slot_at(0), Some(4), "slots that were given out are not given out again");
    }

    #[test]
    fn a_slot_of_a_message_that_did_not_join_is_not_used_again() {
        let mut line = line([]);
        let asked = line.room().unwrap().slot();
        join(&mut line, "a", 10, Stage::Away(1));
        assert!(!line.fill(asked, |_, _| panic!("an answer for a message that did not join")));
        assert!(line.fill(asked + 1, |_, _| 10));
    }

    #[test]
    fn what_is_cancelled_in_the_middle_holds_up_no_other() {
        let mut line = line([("a", Stage::Away(1)), ("b", Stage::Away(2)), ("c", Stage::Away(3))]);
        assert_eq!(line.cancel_where(|name| *name == "b"), ["b"]);
        assert_eq!((line.len(), line.bytes()), (2, 20));
        assert!(!line.fill(1, |_, _| panic!("an answer for a cancelled message")));
        assert!(line.fill(2, |_, _| 30) && line.fill(0, |_, _| 10));
        assert_eq!(std::iter::from_fn(|| line.take_front()).collect::<Vec<_>>(), [("a", 10), ("c", 30)]);
    }

    #[test]
    fn a_group_leaves_whole_or_stays() {
        let is_last = |name: &&str| name.ends_with('.');
        let mut line = line([("a", Stage::Ready(1)), ("b.", Stage::Away(2)), ("c.", Stage::Ready(3))]);
        assert_eq!(line.take_through(is_last), None, "its second message is away");
        assert!(line.fill(1, |_, _| 20));
        assert_eq!(line.take_through(is_last), Some(vec![("a", 1), ("b.", 20)]));
        assert_eq!(line.take_through(is_last), Some(vec![("c.", 3)]));
        join(&mut line, "d", 10, Stage::Ready(4));
        assert_eq!(line.take_through(is_last), None, "its last message has not joined");
    }

    #[test]
    fn only_what_is_ready_begins_again() {
        let mut line = line([("a", Stage::Ready(1)), ("b", Stage::Away(2))]);
        line.begin_again(0, |name, was| {
            assert_eq!((*name, was), ("a", 1));
            *name = "again";
            Stage::Away(9)
        });
        line.begin_again(1, |_, _| panic!("its answer is still to come"));
        assert_eq!((line.at(0), line.slot_at(0)), (Some((&"again", &Stage::Away(9))), Some(0)));
        assert!(line.fill(0, |_, away| away.into()));
        assert_eq!(line.at(0), Some((&"again", &Stage::Ready(9))));
        assert_eq!((line.front(), line.at(2)), (Some((&"again", &9)), None));
    }

    /// What is done to a line and to its model. Numbers choose among what there is.
    #[derive(Clone, Debug)]
    enum Act {
        /// Messages ask for room, and join if there is any: how many, the bytes of each, whether an adapter is asked.
        Join(usize, usize, bool),
        /// Room that is given out and not used.
        Abandon,
        Fill(usize),
        Take,
        TakeThrough,
        BeginAgain(usize),
        /// All whose number leaves this remainder when divided by four.
        CancelWhere(u64),
        CancelAll,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let join = (0usize..40, any::<bool>());
        let act = prop_oneof![
            6 => join.prop_map(|(bytes, asks)| Act::Join(1, bytes, asks)),
            2 => (2usize..9, 0usize..40, any::<bool>()).prop_map(|(count, bytes, asks)| Act::Join(count, bytes, asks)),
            1 => Just(Act::Abandon),
            6 => (0usize..24).prop_map(Act::Fill),
            4 => Just(Act::Take),
            1 => Just(Act::TakeThrough),
            1 => (0usize..8).prop_map(Act::BeginAgain),
            1 => (0u64..4).prop_map(Act::CancelWhere),
            1 => Just(Act::CancelAll),
        ];
        prop::collection::vec(act, 0..200)
    }

    /// A message of the model: its number, its bytes, what came of it.
    type Known = (u64, usize, Option<u64>);

    /// A message of the line: its number, and what it holds until it leaves.
    type Item = (u64, Rc<()>);

    /// Every third message is the last of its group.
    fn ends_group(number: u64) -> bool {
        number % 3 == 2
    }

    proptest! {
        /// The model is a plain list in order of joining, searched from the front; a message's slot is its number.
        #[test]
        fn it_does_what_a_plain_list_does(acts in acts()) {
            const MESSAGES_MAX: usize = 6;
            const BYTES_MAX: usize = 100;
            let mut line: OrderedLine<Item, u64, u64> = OrderedLine::bounded(MESSAGES_MAX, BYTES_MAX);
            let mut model: Vec<Known> = Vec::new();
            let memory = Rc::new(());
            // The number that is given out next; how many joined and left.
            let (mut next, mut joined, mut left, mut answers) = (0u64, 0, 0, 0u64);
            for act in acts {
                let bytes: usize = model.iter().map(|known| known.1).sum();
                match act {
                    Act::Join(count, length, asks) => {
                        let fits = model.is_empty() || (model.len() + count <= MESSAGES_MAX && bytes < BYTES_MAX);
                        let rooms = match count {
                            1 => line.room().map(|room| vec![room]),
                            _ => line.rooms(count).map(Iterator::collect),
                        };
                        prop_assert_eq!(rooms.is_ok(), fits);
                        if let Err(full) = &rooms {
                            prop_assert_eq!((full.messages, full.bytes), (model.len(), bytes));
                        }
                        for room in rooms.into_iter().flatten() {
                            prop_assert_eq!(room.slot(), next);
                            let stage = if asks { Stage::Away(next) } else { Stage::Ready(next) };
                            line.join(room, (next, memory.clone()), length, stage);
                            model.push((next, length, (!asks).then_some(next)));
                            (next, joined) = (next + 1, joined + 1);
                        }
                    }
                    Act::Abandon => {
                        if let Ok(room) = line.room() {
                            prop_assert_eq!(room.slot(), next);
                            next += 1;
                        }
                    }
                    Act::Fill(back) => {
                        // Also slots of messages that have left, and slots that are not in use yet.
                        let Some(slot) = (next + 4).checked_sub(back as u64) else { continue };
                        answers += 1;
                        let waits = model.iter_mut().find(|known| known.0 == slot && known.2.is_none());
                        let is_waited_for = waits.is_some();
                        waits.into_iter().for_each(|known| known.2 = Some(1000 + answers));
                        let filled = line.fill(slot, |item, away| {
                            assert_eq!((item.0, away), (slot, slot));
                            1000 + answers
                        });
                        prop_assert_eq!(filled, is_waited_for);
                    }
                    Act::Take => {
                        let expected = model.first().and_then(|known| Some((known.0, known.2?)));
                        if expected.is_some() {
                            model.remove(0);
                            left += 1;
                        }
                        prop_assert_eq!(line.take_front().map(|(item, ready)| (item.0, ready)), expected);
                    }
                    Act::TakeThrough => {
                        let end = model.iter().position(|known| ends_group(known.0)).map_or(0, |last| last + 1);
                        let is_ready = end > 0 && model[..end].iter().all(|known| known.2.is_some());
                        let group: Vec<_> = model.drain(..if is_ready { end } else { 0 }).collect();
                        left += group.len();
                        let group: Vec<_> = group.into_iter().filter_map(|known| Some((known.0, known.2?))).collect();
                        let expected = is_ready.then_some(group);
                        let taken = line.take_through(|item| ends_group(item.0));
                        let number = |(item, ready): (Item, u64)| (item.0, ready);
                        prop_assert_eq!(taken.map(|group| group.into_iter().map(number).collect()), expected);
                    }
                    Act::BeginAgain(place) => {
                        let known = model.get_mut(place).filter(|known| known.2.is_some());
                        let was = known.and_then(|known| Some((known.0, known.2.take()?)));
                        let (slot, mut begun) = (line.slot_at(place), None);
                        line.begin_again(place, |item, was| {
                            begun = Some((item.0, was));
                            Stage::Away(item.0)
                        });
                        prop_assert_eq!(begun, was);
                        prop_assert!(was.is_none_or(|(number, _)| Some(number) == slot));
                    }
                    Act::CancelWhere(remainder) => {
                        let is_cancelled = |number: u64| number % 4 == remainder;
                        let expected: Vec<Known> = model.extract_if(.., |known| is_cancelled(known.0)).collect();
                        left += expected.len();
                        let cancelled = line.cancel_where(|item| is_cancelled(item.0));
                        prop_assert!(cancelled.iter().map(|item| item.0).eq(expected.iter().map(|known| known.0)));
                    }
                    Act::CancelAll => {
                        let cancelled: Vec<u64> = line.cancel_all().map(|item| item.0).collect();
                        left += cancelled.len();
                        prop_assert_eq!(cancelled, model.drain(..).map(|known| known.0).collect::<Vec<_>>());
                    }
                }
                let bytes: usize = model.iter().map(|known| known.1).sum();
                prop_assert_eq!((line.len(), line.bytes(), line.is_empty()), (model.len(), bytes, model.is_empty()));
                prop_assert_eq!(line.is_full(), model.len() >= MESSAGES_MAX || bytes >= BYTES_MAX);
                // Beyond the bounds are the last message, and a group that joined an empty line.
                prop_assert!(line.len() <= MESSAGES_MAX.max(8) && bytes < BYTES_MAX.max(8 * 40) + 40);
                prop_assert_eq!(joined - left, model.len(), "each leaves exactly once");
                prop_assert_eq!(Rc::strong_count(&memory) - 1, model.len(), "what left holds nothing");
                prop_assert!(line.items().map(|item| item.0).eq(model.iter().map(|known| known.0)));
                let ready = model.iter().map_while(|known| Some((known.0, known.2?)));
                prop_assert!(line.ready().map(|(item, ready)| (item.0, *ready)).eq(ready));
                prop_assert_eq!(line.at(0).map(|(item, _)| item.0), model.first().map(|known| known.0));
            }
        }
    }
}
