//! The way of a message: application, dispatchers, adapters, journal.

use super::devices::Job;
use super::{
    ADAPTER_TASKS_MAX, AHEAD_WINDOWS, Bill, Emission, Event, Item, KeyState, Kind, Message, NAP_US, OPENING_MAX,
    POOLED_KEYS_MAX, Pace, REFILL_PART, Role, SHARED_MIN_US, SHARING_OF_ASKER_MAX, SHARING_PER_TURN, SLICE_US, Shape,
    Side, Simulation, Stage, State, TASKS_OF_ASKER_MAX, TURN_ITEMS_MAX, Task,
};
use crate::plan::operations::{Class, Step};
use crate::plan::profile::Operation;
use std::collections::{BTreeMap, VecDeque};

/// Of opening, beside the operation, what a dispatcher has done when it finds that it does not know the content key:
/// about half.
const LOOK_PART: f64 = 0.5;

impl Simulation<'_> {
    /// What an application's or a dispatcher's thread does with what is in its line; false where nothing is.
    pub(super) fn flow_turn(&mut self, thread: usize, bill: &mut Bill) -> bool {
        let most = if self.settings.turns { TURN_ITEMS_MAX } else { 1 };
        let (mut any, mut puts, mut gets) = (false, false, false);
        self.turn += 1;
        for _ in 0..most {
            let Some(item) = self.threads[thread].items.pop_front() else { break };
            any = true;
            match self.threads[thread].kind {
                Kind::First(pair) => self.first(thread, pair, item, bill, &mut puts, &mut gets),
                Kind::Second(pair) => self.second(thread, pair, item, bill, &mut puts, &mut gets),
                _ => self.dispatch(thread, item, bill),
            }
        }
        let class = &self.system.class;
        if puts {
            bill.add(Role::Application, class.app_put.turn);
        }
        if gets {
            bill.add(Role::Application, class.app_get.turn);
        }
        any
    }

    fn emit(&mut self, thread: usize, emission: Emission) {
        self.threads[thread].emissions.push(emission);
    }

    /// What a message takes in a step, with what waits as far from the caches as it is now.
    fn touches(&self, step: &Step) -> f64 {
        let cache = self.system.cores.cache_bytes;
        if cache <= 0.0 || step.far <= 0.0 {
            return step.message;
        }
        let waiting = (self.messages.len() - self.free_messages.len()) as f64 * self.system.class.bytes;
        step.message + step.far * waiting / (waiting + cache)
    }

    fn new_message(&mut self, link: usize, began: f64) -> usize {
        let message = Message { link, began, ..Message::default() };
        match self.free_messages.pop() {
            Some(place) => {
                self.messages[place] = message;
                place
            }
            None => {
                self.messages.push(message);
                self.messages.len() - 1
            }
        }
    }

    /// Puts a message; one that belongs to no transaction yet begins one when it leaves.
    fn put(&mut self, thread: usize, link: usize, began: Option<f64>, bill: &mut Bill) {
        let class = &self.system.class;
        bill.add(Role::Application, self.touches(&class.app_put) + class.tls_client);
        let message = self.new_message(link, began.unwrap_or(self.now));
        let to = self.links[link].arrives;
        self.emit(
            thread,
            if began.is_some() { Emission::Over(to, Item::Arrive(message)) } else { Emission::Begin(to, message) },
        );
    }

    /// The end that puts, or asks.
    fn first(&mut self, thread: usize, pair: usize, item: Item, bill: &mut Bill, puts: &mut bool, gets: &mut bool) {
        let link = self.link_of(pair);
        let asks = self.system.shape == Shape::RequestReply;
        match item {
            Item::Confirmed => self.sources[pair].confirmed += 1,
            Item::Go if !asks => self.sources[pair].naps = false,
            Item::Due(count) => self.sources[pair].due += count,
            Item::Get(reply) => {
                let class = &self.system.class;
                bill.add(Role::Application, self.touches(&class.app_get) + class.tls_client);
                *gets = true;
                let done = self.messages[reply];
                self.free_messages.push(reply);
                self.sources[pair].got += 1;
                self.emit(thread, Emission::Done(done.began));
                self.emit(thread, Emission::Got(done.link));
                if self.system.pace == Pace::Closed {
                    *puts = true;
                    self.put(thread, link, None, bill);
                }
            }
            Item::Go if asks => {
                *puts = true;
                self.put(thread, link, None, bill);
            }
            _ => {}
        }
        if asks && self.system.pace == Pace::Closed {
            return;
        }
        // Once a turn would do; to look costs nothing.
        let window = u64::from(self.system.window.max(1));
        let source = &mut self.sources[pair];
        let answered = if asks { source.got } else { source.confirmed };
        let free = window - (source.sent - answered).min(window);
        let count = match self.system.pace {
            Pace::Closed => {
                let room = (AHEAD_WINDOWS * window).saturating_sub(source.sent - source.got);
                let refill = !self.settings.turns || free >= window.div_ceil(REFILL_PART);
                if refill { free.min(room) } else { 0 }
            }
            _ => free.min(source.due),
        };
        source.sent += count;
        source.due -= count.min(source.due);
        for _ in 0..count {
            *puts = true;
            self.put(thread, link, None, bill);
        }
    }

    /// The end that gets, or answers.
    fn second(&mut self, thread: usize, pair: usize, item: Item, bill: &mut Bill, puts: &mut bool, gets: &mut bool) {
        let Item::Get(message) = item else { return };
        let class = &self.system.class;
        bill.add(Role::Application, self.touches(&class.app_get) + class.tls_client);
        *gets = true;
        let got = self.messages[message];
        self.free_messages.push(message);
        self.emit(thread, Emission::Got(got.link));
        match self.system.shape {
            Shape::Stream => {
                self.sources[pair].got += 1;
                self.emit(thread, Emission::Done(got.began));
            }
            Shape::RequestReply => {
                *puts = true;
                self.put(thread, got.link + 1, Some(got.began), bill);
            }
        }
    }

    /// A message was got: there is credit, and maybe the putter may go on.
    pub(super) fn got(&mut self, link: usize) {
        self.links[link].credit += 1;
        if !self.links[link].waiting.is_empty() {
            let to = self.links[link].delivers;
            self.give(to, Item::Serve(link));
        }
        if self.system.shape != Shape::Stream {
            return;
        }
        let pair = self.links[link].pair;
        let window = u64::from(self.system.window.max(1));
        let first = self.first_of(pair);
        let source = &mut self.sources[pair];
        let held_back = source.sent - source.got + window >= AHEAD_WINDOWS * window;
        if held_back && !source.naps {
            source.naps = true;
            self.at(self.now + NAP_US, Event::Deliver(first, Item::Go));
        }
    }

    fn dispatch(&mut self, thread: usize, item: Item, bill: &mut Bill) {
        match item {
            Item::Arrive(message) => {
                self.read_from(self.messages[message].link, bill);
                let class = &self.system.class;
                bill.add(Role::QueueManager, self.touches(&class.qm_put));
                bill.add(Role::Tls, class.tls_client);
                if self.system.channel {
                    bill.add(Role::ChannelInitiator, class.send.message + class.send.turn);
                    bill.add(Role::Tls, class.tls_channel);
                    self.confirm(thread, message);
                    let to = self.links[self.messages[message].link].seals;
                    self.emit(thread, Emission::Over(to, Item::Forward(message)));
                } else {
                    self.seal(thread, message, bill);
                }
            }
            Item::Forward(message) => {
                let class = &self.system.class;
                bill.add(Role::ChannelInitiator, class.receive.message + class.receive.turn);
                bill.add(Role::Tls, class.tls_channel);
                self.seal(thread, message, bill);
            }
            Item::Sealed(message) => self.sealed(thread, message, bill),
            Item::Synced(message) => self.stored(thread, message, bill),
            Item::Deliver(message) => self.deliver(thread, message, bill),
            Item::Opened(message) => {
                let at = self.messages[message].link;
                self.opened(thread, message, bill);
                self.serve(thread, at, bill);
            }
            Item::Serve(link) => self.serve(thread, link, bill),
            _ => {}
        }
        // What needs no adapter goes on at once.
        while let Some(message) = self.sealed_here.pop_front() {
            self.sealed(thread, message, bill);
        }
    }

    /// A dispatcher reads from each putter's connection once a turn, and answers it.
    fn read_from(&mut self, at: usize, bill: &mut Bill) {
        let (turn, link) = (self.turn, &mut self.links[at]);
        if std::mem::replace(&mut link.read_in, turn) != turn {
            bill.add(Role::QueueManager, self.system.class.qm_put.turn);
        }
    }

    /// It writes to each getter's connection once a turn, and reads what comes back.
    fn write_to(&mut self, at: usize, bill: &mut Bill) {
        let (turn, link) = (self.turn, &mut self.links[at]);
        if std::mem::replace(&mut link.written_in, turn) != turn {
            bill.add(Role::QueueManager, self.system.class.qm_get.turn);
        }
    }

    fn confirm(&mut self, thread: usize, message: usize) {
        if self.system.shape == Shape::Stream {
            let pair = self.links[self.messages[message].link].pair;
            let first = self.first_of(pair);
            self.emit(thread, Emission::Over(first, Item::Confirmed));
        }
    }

    fn seal(&mut self, thread: usize, message: usize, bill: &mut Bill) {
        let class = &self.system.class;
        let link = &mut self.links[self.messages[message].link];
        self.messages[message].turn = link.seal_next;
        link.seal_next += 1;
        if !class.is_protected() {
            self.sealed_here.push_back(message);
        } else if class.live_on_dispatcher && !link.live.is_empty() {
            self.messages[message].key = use_live_key(&mut link.live);
            bill.add(Role::QueueManager, class.live);
            bill.add(Role::Protection, class.seal_live);
            self.sealed_here.push_back(message);
        } else {
            bill.add(Role::QueueManager, class.hand_over);
            let task = Task { message, side: Side::Seal, step: 0, shared_key: false, looked: false };
            self.emit(thread, Emission::Task(task));
        }
    }

    /// In the order in which they arrived.
    fn sealed(&mut self, thread: usize, message: usize, bill: &mut Bill) {
        let at = self.messages[message].link;
        let turn = self.messages[message].turn;
        self.links[at].seal_ready.insert(turn, message);
        loop {
            let link = &mut self.links[at];
            let Some(message) = link.seal_ready.remove(&link.seal_turn) else { break };
            link.seal_turn += 1;
            if !self.system.class.persistent {
                self.stored(thread, message, bill);
            } else {
                self.write(thread, message, bill);
            }
        }
    }

    /// A persistent message goes to the journal's thread, unless it is alone: then the dispatcher writes it.
    fn write(&mut self, thread: usize, message: usize, bill: &mut Bill) {
        let Some(journal) = self.journal else { return };
        bill.add(Role::QueueManager, self.system.class.persist);
        let quiet = self.threads[journal].state == State::Idle && self.threads[journal].items.is_empty();
        let alone = self.threads[thread].items.is_empty() && self.threads[thread].sync.is_none();
        if quiet && alone && self.settings.turns && self.system.class.bytes <= 65536.0 {
            let journal = self.system.class.journal;
            bill.add(Role::Journal, journal.turn + journal.message);
            self.threads[thread].sync = Some(message);
        } else {
            self.emit(thread, Emission::To(journal, Item::Write(message)));
        }
    }

    fn stored(&mut self, thread: usize, message: usize, bill: &mut Bill) {
        if !self.system.channel {
            self.confirm(thread, message);
        }
        let delivers = self.links[self.messages[message].link].delivers;
        if delivers == thread {
            self.deliver(thread, message, bill);
        } else {
            self.emit(thread, Emission::To(delivers, Item::Deliver(message)));
        }
    }

    fn deliver(&mut self, thread: usize, message: usize, bill: &mut Bill) {
        let at = self.messages[message].link;
        self.links[at].waiting.push_back(message);
        self.serve(thread, at, bill);
    }

    fn serve(&mut self, thread: usize, at: usize, bill: &mut Bill) {
        loop {
            let link = &self.links[at];
            // Messages that were taken out to be opened, and those that wait for their turn behind them.
            if link.credit == 0 || link.open_next - link.open_turn >= OPENING_MAX {
                break;
            }
            let Some(message) = self.links[at].waiting.pop_front() else { break };
            let class = &self.system.class;
            let link = &mut self.links[at];
            link.credit -= 1;
            self.messages[message].turn = link.open_next;
            link.open_next += 1;
            let key = self.messages[message].key;
            let known = class.key_uses > 1 && link.keys.get(key).is_some_and(|key| key.known);
            if !class.is_protected() {
                self.opened(thread, message, bill);
            } else if known && class.live_on_dispatcher {
                bill.add(Role::QueueManager, class.live);
                bill.add(Role::Protection, class.open_live);
                self.opened(thread, message, bill);
            } else {
                bill.add(Role::QueueManager, class.hand_over);
                let looked = class.looks_first();
                if looked {
                    bill.add(Role::Protection, class.open * LOOK_PART);
                }
                let task = Task { message, side: Side::Open, step: 0, shared_key: false, looked };
                self.emit(thread, Emission::Task(task));
            }
        }
    }

    fn opened(&mut self, thread: usize, message: usize, bill: &mut Bill) {
        let at = self.messages[message].link;
        let turn = self.messages[message].turn;
        self.links[at].open_ready.insert(turn, message);
        loop {
            let link = &mut self.links[at];
            let Some(message) = link.open_ready.remove(&link.open_turn) else { break };
            link.open_turn += 1;
            self.write_to(at, bill);
            let class = &self.system.class;
            bill.add(Role::QueueManager, self.touches(&class.qm_get));
            bill.add(Role::Tls, class.tls_client);
            let getter = self.links[at].getter;
            self.emit(thread, Emission::Over(getter, Item::Get(message)));
        }
    }

    /// The journal's thread takes what waits.
    pub(super) fn journal_turn(&mut self, thread: usize, bill: &mut Bill) -> bool {
        let most = if self.system.journal.group_commit { usize::MAX } else { 1 };
        let count = self.threads[thread].items.len().min(most);
        if count == 0 {
            return false;
        }
        let class = &self.system.class;
        bill.add(Role::Journal, class.journal.turn + count as f64 * class.journal.message);
        let written: Vec<Item> = self.threads[thread].items.drain(..count).collect();
        for item in written {
            let Item::Write(message) = item else { continue };
            let link = &self.links[self.messages[message].link];
            let to = link.seals;
            self.emit(thread, Emission::To(to, Item::Synced(message)));
        }
        true
    }

    /// The journal's thread has copied a batch: it writes and syncs.
    pub(super) fn writes(&mut self, thread: usize) -> bool {
        let count = self.threads[thread].emissions.len();
        if count == 0 {
            return false;
        }
        let time = self.sync_us(count);
        self.disk_busy += time;
        self.threads[thread].state = State::Blocked;
        self.at(self.now + time, Event::Synced(thread));
        true
    }

    pub(super) fn sync_us(&self, messages: usize) -> f64 {
        let journal = &self.system.journal;
        let bytes = messages as f64 * self.system.class.bytes;
        journal.sync_us + if journal.bytes_per_second > 0.0 { bytes / journal.bytes_per_second * 1e6 } else { 0.0 }
    }

    /// A disk has answered.
    pub(super) fn synced(&mut self, thread: usize) {
        self.waker = Some(thread);
        self.say(thread);
        self.threads[thread].state = State::Waking;
        self.cores.ready(self.now, thread);
        self.waker = None;
    }

    /// A task for the adapters.
    pub(super) fn submit(&mut self, task: Task) {
        let asker = asker(self.messages[task.message].link, task.side);
        self.pool.tasks[asker].push_back(task);
        self.wake_adapter();
    }

    /// Wakes an adapter that sleeps.
    pub(super) fn wake_adapter(&mut self) {
        let sleeping = self.adapters.iter().find(|adapter| self.threads[**adapter].state == State::Idle);
        if let Some(adapter) = sleeping.copied() {
            self.wake(adapter);
        }
    }

    /// The next task whose asker has not too many under way; askers have their turns.
    fn next_task(&mut self) -> Option<Task> {
        let sign_batch = self.system.class.sign_batch;
        let sharing_max = SHARING_OF_ASKER_MAX.max(2 * sign_batch);
        let askers = self.pool.tasks.len();
        for step in 0..askers {
            let asker = (self.pool.next_asker + step) % askers;
            let most = if sign_batch > 1 && !opens(asker) { sharing_max } else { TASKS_OF_ASKER_MAX };
            if self.pool.under_way[asker] >= most {
                continue;
            }
            if let Some(task) = self.pool.tasks[asker].pop_front() {
                self.pool.next_asker = asker + 1;
                self.pool.under_way[asker] += 1;
                return Some(task);
            }
        }
        None
    }

    /// What an adapter takes up in a turn. Messages that wait for nothing but a signature that they share are taken
    /// beside the others; the first one of each signature counts.
    fn next_tasks(&mut self) -> Vec<Task> {
        let class = &self.system.class;
        let most = if self.settings.turns { ADAPTER_TASKS_MAX } else { 1 };
        let shares = self.settings.turns && class.sign_batch > 1 && class.seal_steps.first() == Some(&Operation::Sign);
        let sign_batch = class.sign_batch;
        let (mut tasks, mut beside, mut counts) = (Vec::new(), 0, BTreeMap::<usize, u32>::new());
        while tasks.len() - beside < most {
            let Some(task) = self.next_task() else { break };
            if shares && task.side == Side::Seal && beside < SHARING_PER_TURN {
                let count = counts.entry(self.messages[task.message].link).or_default();
                beside += usize::from(!count.is_multiple_of(sign_batch));
                *count += 1;
            }
            tasks.push(task);
        }
        tasks
    }

    /// An adapter takes answers and tasks; false where there are none.
    pub(super) fn adapter_turn(&mut self, thread: usize, bill: &mut Bill) -> bool {
        let answers: Vec<Job> = self.pool.answers.drain(..).collect();
        let shared = std::mem::take(&mut self.pool.shared);
        let tasks = if shared.is_empty() { self.next_tasks() } else { Vec::new() };
        let is_idle = answers.is_empty() && shared.is_empty() && tasks.is_empty();
        let is_late = self.pool.held.front().is_some_and(|(_, until)| *until <= self.now);
        if is_idle && !is_late && !self.pool.held.is_empty() && self.yields(thread) {
            return false;
        }
        self.threads[thread].yields_since = None;
        let due = if is_idle || is_late { self.pool.held.pop_front() } else { None };
        if is_idle && due.is_none() {
            return false;
        }
        if !self.pool.held.is_empty() || self.pool.tasks.iter().any(|tasks| !tasks.is_empty()) {
            self.wake_adapter();
        }
        let mut stage = Stage { inline: shared, ..Stage::default() };
        stage.due.extend(due.map(|(link, _)| link));
        bill.add(Role::Protection, self.system.class.adapter_turn);
        for job in answers {
            bill.add(Role::Protection, self.system.class.job);
            self.answered(job.task, 0.0, &mut stage);
        }
        for task in tasks {
            bill.add(Role::Protection, self.system.class.task);
            self.start(task, &mut stage, bill);
        }
        self.threads[thread].stage = stage;
        true
    }

    /// Whether an adapter that has nothing to do but to sign what is held lets others have its core first. One that
    /// yields comes behind all who wait, and those whom they wake, until they have had a slice.
    fn yields(&mut self, thread: usize) -> bool {
        let (now, slice_us) = (self.now, self.system.cores.slice_us);
        let yields = match self.threads[thread].yields_since {
            None => true,
            Some(since) if now - since < slice_us => {
                // Two that yield to each other would both do nothing.
                self.cores.waiting().any(|other| self.threads[other].yields_since.is_none())
            }
            Some(_) => false,
        };
        let adapter = &mut self.threads[thread];
        // What it owes for waking others comes first.
        if yields && adapter.debt == 0.0 {
            adapter.yields_since.get_or_insert(now);
        }
        yields
    }

    /// An adapter starts a task.
    fn start(&mut self, mut task: Task, stage: &mut Stage, bill: &mut Bill) {
        let class = &self.system.class;
        let message = &mut self.messages[task.message];
        let link = &mut self.links[message.link];
        let reused = class.key_uses > 1;
        match task.side {
            Side::Seal if reused && !link.live.is_empty() => {
                message.key = use_live_key(&mut link.live);
                bill.add(Role::Protection, class.seal_live);
                stage.done.push(task);
                return;
            }
            Side::Seal => {
                bill.add(Role::Protection, class.seal);
                if reused {
                    message.key = link.keys.len();
                    link.keys.push(KeyState::default());
                    task.shared_key = true;
                }
            }
            Side::Open => {
                self.signatures.opened += 1;
                if message.batch > 0 {
                    bill.add(Role::Protection, class.branch);
                }
                let adapters_part = if task.looked { 1.0 - LOOK_PART } else { 1.0 };
                if reused {
                    let (key, state) = (message.key, &mut link.keys[message.key]);
                    // Where a dispatcher has looked in vain the adapter looks again: what it did was for nothing.
                    if state.known {
                        bill.add(Role::Protection, class.open_live);
                        stage.done.push(task);
                        return;
                    }
                    bill.add(Role::Protection, class.open * adapters_part);
                    if state.asked {
                        link.waiting_for_key.entry(key).or_default().push(task);
                        return;
                    }
                    state.asked = true;
                    task.shared_key = true;
                } else {
                    bill.add(Role::Protection, class.open * adapters_part);
                }
            }
        }
        self.ask(task, stage);
    }

    /// The next operation of a task, or its end.
    fn ask(&mut self, task: Task, stage: &mut Stage) {
        let class = &self.system.class;
        match steps(class, task.side).get(task.step) {
            Some(Operation::Sign) if class.sign_batch > 1 => self.wait_for_signature(task, stage),
            Some(Operation::Verify) if self.others_verify(task) => {}
            Some(Operation::Verify) if self.knows_root(task) => self.advance(task, stage),
            Some(operation) => stage.jobs.push(Job { task, operation: *operation, load: 0.0, submitted: self.now }),
            None => {
                stage.done.push(task);
                if task.shared_key {
                    self.key_is_there(task, stage);
                }
            }
        }
    }

    /// An operation of a task is done, or is not needed.
    pub(super) fn advance(&mut self, mut task: Task, stage: &mut Stage) {
        task.step += 1;
        self.ask(task, stage);
    }

    /// A device, or an adapter, has done an operation of a task; `took_us` is the processor's time, 0 for a device.
    fn answered(&mut self, task: Task, took_us: f64, stage: &mut Stage) {
        match steps(&self.system.class, task.side).get(task.step) {
            Some(Operation::Sign) => return self.signed(task, took_us, stage),
            Some(Operation::Verify) => self.verified(task, stage),
            _ => {}
        }
        self.advance(task, stage);
    }

    /// A content key was made, or found: others use it.
    fn key_is_there(&mut self, task: Task, stage: &mut Stage) {
        let Message { link, key, .. } = self.messages[task.message];
        let link = &mut self.links[link];
        match task.side {
            Side::Seal if link.live.len() < POOLED_KEYS_MAX => {
                link.live.push_back((key, self.system.class.key_uses - 1));
            }
            Side::Seal => {}
            Side::Open => {
                link.keys[key] = KeyState { known: true, asked: false };
                stage.done.extend(link.waiting_for_key.remove(&key).unwrap_or_default());
            }
        }
    }

    /// A stage of an adapter's turn is over; false where the turn is.
    pub(super) fn stage_ends(&mut self, thread: usize) -> bool {
        let mut stage = std::mem::take(&mut self.threads[thread].stage);
        let computed = !stage.slice.is_empty();
        for job in std::mem::take(&mut stage.slice) {
            self.load -= job.load;
            self.inline_jobs += 1;
            let took_us = self.system.class.cpu_us(job.operation).unwrap_or(0.0);
            self.answered(job.task, took_us, &mut stage);
        }
        if computed && !stage.inline.is_empty() {
            // What is done does not wait for the rest.
            self.emit_done(thread, &mut stage);
            self.say(thread);
        }
        self.sign_what_is_due(&mut stage);
        for job in std::mem::take(&mut stage.jobs) {
            self.place(job, &mut stage.inline);
        }
        let trees = std::mem::take(&mut stage.trees);
        if stage.inline.is_empty() {
            self.threads[thread].debt += trees;
            self.emit_done(thread, &mut stage);
            return false;
        }
        self.share(&mut stage.inline);
        let mut bill = Bill::default();
        bill.add(Role::Protection, trees);
        let class = &self.system.class;
        let mut us = 0.0;
        while us < SLICE_US
            && let Some(job) = stage.inline.pop_front()
        {
            let computes = class.cpu_us(job.operation).unwrap_or(0.0);
            us += computes;
            bill.add(Role::Devices, computes);
            bill.add(Role::Protection, class.inline);
            stage.slice.push(job);
        }
        self.threads[thread].stage = stage;
        self.work(thread, bill);
        true
    }

    /// Half of what an adapter is to compute itself goes to one that has nothing to do.
    fn share(&mut self, inline: &mut VecDeque<Job>) {
        let all: f64 = inline.iter().map(|job| job.load).sum();
        let one_sleeps = self.adapters.iter().any(|adapter| self.threads[*adapter].state == State::Idle);
        if all <= SHARED_MIN_US || !one_sleeps || !self.pool.shared.is_empty() {
            return;
        }
        let (mut kept, mut given) = (inline.len(), 0.0);
        for job in inline.iter().skip(1).rev() {
            given += job.load;
            if given > all / 2.0 {
                break;
            }
            kept -= 1;
        }
        self.pool.shared = inline.split_off(kept);
        if !self.pool.shared.is_empty() {
            self.wake_adapter();
        }
    }

    /// An adapter tells what is done.
    fn emit_done(&mut self, thread: usize, stage: &mut Stage) {
        for task in stage.done.drain(..) {
            let at = self.messages[task.message].link;
            self.pool.under_way[asker(at, task.side)] -= 1;
            let emission = match task.side {
                Side::Seal => Emission::To(self.links[at].seals, Item::Sealed(task.message)),
                Side::Open => Emission::To(self.links[at].delivers, Item::Opened(task.message)),
            };
            self.emit(thread, emission);
        }
    }
}

/// The operations of sealing, or of opening.
fn steps(class: &Class, side: Side) -> &[Operation] {
    if side == Side::Seal { &class.seal_steps } else { &class.open_steps }
}

/// Who asks: a link's two ends are two connections.
fn asker(link: usize, side: Side) -> usize {
    2 * link + usize::from(side == Side::Open)
}

/// Whether that one's messages are to be opened.
fn opens(asker: usize) -> bool {
    asker % 2 == 1
}

fn use_live_key(live: &mut std::collections::VecDeque<(usize, u64)>) -> usize {
    // The one used last, as in the program.
    let Some((key, uses)) = live.back_mut() else { return 0 };
    let key = *key;
    *uses -= 1;
    if *uses == 0 {
        live.pop_back();
    }
    key
}
