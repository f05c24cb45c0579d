//! The messages of one link that are with the adapters, or wait behind such a message. Adapters answer in any order;
//! messages leave in the order in which they joined. No sockets, no queues, no clock: puts, publications, gets and both
//! ends of a channel keep their messages in such a line.

use std::collections::VecDeque;

/// The number of a message in its line, by which an adapter's answer finds it. A line never uses a number again.
pub(crate) type Slot = u64;

/// How far a message has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage<A, R> {
    /// With an adapter: what is needed to go on once it has answered.
    Away(A),
    /// Answered, or never asked: the message waits for those before it.
    Ready(R),
}

/// A line of messages: `T` is what is known of each, `A` what it keeps while it is with an adapter, `R` what came of
/// that.
///
/// A line refuses nothing. Its owner asks [`is_full`](Self::is_full) before it takes a message from a queue or gives a
/// partner more credit; a message for which credit was given joins in any case. What bounds the lines:
///
/// - a client's link that puts: its credit, 1,024 messages of its user in all such lines, and the memory of the
///   adapters; a publication joins with one copy for each subscription;
/// - a client's link that gets, and the sending end of a channel: 64 messages, and the memory of the adapters;
/// - the receiving end of a channel: its credit, which is not renewed while 64 MiB are in the line.
///
/// A message leaves exactly once: by [`take_front`](Self::take_front), [`take_through`](Self::take_through) or
/// [`cancel_all`](Self::cancel_all). An answer for a message that has left is ignored. Nothing is allocated for a
/// message beyond its place in a `VecDeque`.
#[derive(Debug)]
pub(crate) struct OrderedLine<T, A, R> {
    places: VecDeque<Place<T, A, R>>,
    /// The slot of the first place.
    first: Slot,
    bytes: usize,
    messages_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Place<T, A, R> {
    item: T,
    bytes: usize,
    /// None only while an answer is being written down.
    stage: Option<Stage<A, R>>,
}

impl<T, A, R> OrderedLine<T, A, R> {
    /// A line that is full with so many messages, or so many bytes.
    pub(crate) fn bounded(messages_max: usize, bytes_max: usize) -> Self {
        Self { places: VecDeque::new(), first: 0, bytes: 0, messages_max, bytes_max }
    }

    /// A line that only its link's credit bounds.
    pub(crate) fn by_credit() -> Self {
        Self::bounded(usize::MAX, usize::MAX)
    }

    /// Messages in the line.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the messages in the line.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a bound is reached. The last message that joined may go beyond the bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.places.len() >= self.messages_max || self.bytes >= self.bytes_max
    }

    /// The slot of a place, counted from the front.
    pub(crate) fn slot_at(&self, place: usize) -> Slot {
        self.first + place as u64
    }

    /// The slot that the next message will have. An adapter may be asked under it before the message joins.
    pub(crate) fn next_slot(&self) -> Slot {
        self.slot_at(self.places.len())
    }

    /// A message takes the place at the end.
    pub(crate) fn join(&mut self, item: T, bytes: usize, stage: Stage<A, R>) {
        self.bytes += bytes;
        self.places.push_back(Place { item, bytes, stage: Some(stage) });
    }

    /// Writes down what an adapter answered. False where the message has left the line, or was not with an adapter:
    /// the answer is ignored.
    pub(crate) fn fill(&mut self, slot: Slot, answer: impl FnOnce(&mut T, A) -> R) -> bool {
        let place = usize::try_from(slot.wrapping_sub(self.first)).unwrap_or(usize::MAX);
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
    pub(crate) fn begin_again(&mut self, place: usize, begin: impl FnOnce(&mut T, R) -> Stage<A, R>) {
        let Some(Place { item, stage, .. }) = self.places.get_mut(place) else { return };
        *stage = match stage.take() {
            Some(Stage::Ready(was)) => Some(begin(item, was)),
            other => other,
        };
    }

    /// What is known of each message in the line, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.places.iter().map(|place| &place.item)
    }

    /// The messages at the front that are ready, up to the first that is not.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (&T, &R)> {
        self.places.iter().map_while(|place| match &place.stage {
            Some(Stage::Ready(ready)) => Some((&place.item, ready)),
            _ => None,
        })
    }

    /// The first message, if it is ready.
    pub(crate) fn front(&self) -> Option<(&T, &R)> {
        self.ready().next()
    }

    /// The message at a place, counted from the front, and how far it has come.
    pub(crate) fn at(&self, place: usize) -> Option<(&T, &Stage<A, R>)> {
        let Place { item, stage, .. } = self.places.get(place)?;
        Some((item, stage.as_ref()?))
    }

    /// The first message leaves, if it is ready.
    pub(crate) fn take_front(&mut self) -> Option<(T, R)> {
        if !matches!(self.places.front(), Some(Place { stage: Some(Stage::Ready(_)), .. })) {
            return None;
        }
        let Place { item, bytes, stage: Some(Stage::Ready(ready)) } = self.places.pop_front()? else { return None };
        self.first += 1;
        self.bytes -= bytes;
        Some((item, ready))
    }

    /// The first messages leave together, up to the first that is the last of its group, if all of them are ready.
    pub(crate) fn take_through(&mut self, is_last: impl Fn(&T) -> bool) -> Option<Vec<(T, R)>> {
        let last = self.ready().position(|(item, _)| is_last(item))?;
        let mut group = Vec::with_capacity(last + 1);
        group.extend((0..=last).filter_map(|_| self.take_front()));
        Some(group)
    }

    /// All messages leave, ready or not. Their bytes are given back, and what adapters still answer is ignored.
    pub(crate) fn cancel_all(&mut self) -> impl Iterator<Item = T> {
        self.first = self.next_slot();
        self.bytes = 0;
        std::mem::take(&mut self.places).into_iter().map(|place| place.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Line = OrderedLine<&'static str, u8, u32>;

    fn line(messages: impl IntoIterator<Item = (&'static str, Stage<u8, u32>)>) -> Line {
        let mut line = Line::bounded(3, 100);
        messages.into_iter().for_each(|(name, stage)| line.join(name, 10, stage));
        line
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
        assert_eq!((line.len(), line.bytes(), line.next_slot()), (0, 0, 3));
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
        assert_eq!(line.next_slot(), 2);
        line.join("c", 10, Stage::Away(3));
        assert!(!line.fill(0, |_, _| panic!("an answer for a cancelled message")));
        assert!(line.fill(2, |_, _| 30));
        assert_eq!(line.take_front(), Some(("c", 30)));
    }

    #[test]
    fn it_is_full_by_messages_and_by_bytes() {
        let mut line = line([]);
        for name in ["a", "b", "c"] {
            assert!(!line.is_full());
            line.join(name, 10, Stage::Ready(0));
        }
        assert!(line.is_full(), "three messages");
        line.take_front().unwrap();
        assert!(!line.is_full());
        line.cancel_all().for_each(drop);
        line.join("long", 100, Stage::Ready(0));
        assert!(line.is_full(), "a hundred bytes");
    }

    #[test]
    fn a_group_leaves_whole_or_stays() {
        let is_last = |name: &&str| name.ends_with('.');
        let mut line = line([("a", Stage::Ready(1)), ("b.", Stage::Away(2)), ("c.", Stage::Ready(3))]);
        assert_eq!(line.take_through(is_last), None, "its second message is away");
        assert!(line.fill(1, |_, _| 20));
        assert_eq!(line.take_through(is_last), Some(vec![("a", 1), ("b.", 20)]));
        assert_eq!(line.take_through(is_last), Some(vec![("c.", 3)]));
        line.join("d", 10, Stage::Ready(4));
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
        assert_eq!((line.at(0), line.slot_at(0)), (Some((&"again", &Stage::Away(9))), 0));
        assert!(line.fill(0, |_, away| away.into()));
        assert_eq!(line.at(0), Some((&"again", &Stage::Ready(9))));
        assert_eq!((line.front(), line.at(2)), (Some((&"again", &9)), None));
    }

    /// What is done to a line and to its model. Numbers choose among what there is.
    #[derive(Clone, Debug)]
    enum Act {
        /// A message joins, if there is room: its bytes, whether an adapter is asked.
        Join(usize, bool),
        Fill(usize),
        Take,
        TakeThrough,
        BeginAgain(usize),
        CancelAll,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            6 => (0usize..40, any::<bool>()).prop_map(|(bytes, asks)| Act::Join(bytes, asks)),
            6 => (0usize..24).prop_map(Act::Fill),
            4 => Just(Act::Take),
            1 => Just(Act::TakeThrough),
            1 => (0usize..8).prop_map(Act::BeginAgain),
            1 => Just(Act::CancelAll),
        ];
        prop::collection::vec(act, 0..200)
    }

    /// A message of the model: its number, its bytes, what came of it.
    type Known = (u64, usize, Option<u64>);

    /// Every third message is the last of its group.
    fn ends_group(number: u64) -> bool {
        number % 3 == 2
    }

    proptest! {
        /// The model is a plain list in order of joining, searched from the front; a message's number stands for it.
        #[test]
        fn it_does_what_a_plain_list_does(acts in acts()) {
            const MESSAGES_MAX: usize = 6;
            const BYTES_MAX: usize = 100;
            let mut line: OrderedLine<u64, u64, u64> = OrderedLine::bounded(MESSAGES_MAX, BYTES_MAX);
            let mut model: Vec<Known> = Vec::new();
            let (mut joined, mut left, mut answers) = (0, 0, 0u64);
            for act in acts {
                match act {
                    Act::Join(bytes, asks) if !line.is_full() => {
                        prop_assert_eq!(line.next_slot(), joined);
                        line.join(joined, bytes, if asks { Stage::Away(joined) } else { Stage::Ready(joined) });
                        model.push((joined, bytes, (!asks).then_some(joined)));
                        joined += 1;
                    }
                    Act::Join(..) => {}
                    Act::Fill(back) => {
                        // Also slots of messages that have left, and slots that are not in use yet.
                        let Some(slot) = (joined + 4).checked_sub(back as u64) else { continue };
                        answers += 1;
                        let waits = model.iter_mut().find(|known| known.0 == slot && known.2.is_none());
                        let is_waited_for = waits.is_some();
                        waits.into_iter().for_each(|known| known.2 = Some(1000 + answers));
                        let filled = line.fill(slot, |item, away| {
                            assert_eq!((*item, away), (slot, slot));
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
                        prop_assert_eq!(line.take_front(), expected);
                    }
                    Act::TakeThrough => {
                        let end = model.iter().position(|known| ends_group(known.0)).map_or(0, |last| last + 1);
                        let is_ready = end > 0 && model[..end].iter().all(|known| known.2.is_some());
                        let group: Vec<_> = model.drain(..if is_ready { end } else { 0 }).collect();
                        left += group.len() as u64;
                        let group: Vec<_> = group.into_iter().filter_map(|known| Some((known.0, known.2?))).collect();
                        let expected = is_ready.then_some(group);
                        prop_assert_eq!(line.take_through(|number| ends_group(*number)), expected);
                    }
                    Act::BeginAgain(place) => {
                        let known = model.get_mut(place).filter(|known| known.2.is_some());
                        let was = known.and_then(|known| Some((known.0, known.2.take()?)));
                        let (slot, mut begun) = (line.slot_at(place), None);
                        line.begin_again(place, |item, was| {
                            begun = Some((*item, was));
                            Stage::Away(*item)
                        });
                        prop_assert_eq!(begun, was);
                        prop_assert!(was.is_none_or(|(number, _)| number == slot));
                    }
                    Act::CancelAll => {
                        let cancelled: Vec<u64> = line.cancel_all().collect();
                        left += cancelled.len() as u64;
                        prop_assert_eq!(cancelled, model.drain(..).map(|known| known.0).collect::<Vec<_>>());
                    }
                }
                let bytes: usize = model.iter().map(|known| known.1).sum();
                prop_assert_eq!((line.len(), line.bytes(), line.is_empty()), (model.len(), bytes, model.is_empty()));
                prop_assert_eq!(line.is_full(), model.len() >= MESSAGES_MAX || bytes >= BYTES_MAX);
                prop_assert!(line.len() <= MESSAGES_MAX && bytes < BYTES_MAX + 40);
                prop_assert_eq!(joined - left, model.len() as u64, "each leaves exactly once");
                prop_assert!(line.items().eq(model.iter().map(|known| &known.0)));
                let ready = model.iter().map_while(|known| Some((&known.0, known.2.as_ref()?)));
                prop_assert!(line.ready().eq(ready));
                prop_assert_eq!(line.at(0).map(|(item, _)| *item), model.first().map(|known| known.0));
            }
        }
    }
}
