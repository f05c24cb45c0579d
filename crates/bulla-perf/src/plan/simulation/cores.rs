//! Cores, and the threads that wait for one.
//!
//! A thread that has got a core keeps it until it sleeps, or until it has run for a slice and others wait: then it
//! waits behind them. One that is woken while all cores run waits too, and finds more in its line when its turn comes.

use super::Time;
use std::collections::VecDeque;

/// Work that is as good as done, microseconds.
const NOTHING_US: f64 = 1e-9;

/// What becomes of a core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::plan) enum Turn {
    /// That thread has got a core, and is to say what it has to do.
    Begins(usize),
    /// That thread has done its work: it goes on at once, or leaves its core.
    Ends(usize),
}

/// A thread on a core.
#[derive(Clone, Copy, Debug)]
struct Running {
    thread: usize,
    /// Work that is left, and what is left of its slice, microseconds.
    left: f64,
    slice: f64,
}

/// A thread that waits for a core: with work that it has begun, or with nothing that it knows of yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    thread: usize,
    left: Option<f64>,
}

/// All cores of a machine.
#[derive(Debug)]
pub(in crate::plan) struct Cores {
    count: usize,
    capacity: f64,
    crowding: f64,
    slice: f64,
    running: Vec<Running>,
    waiting: VecDeque<Waiting>,
    /// The thread that has a core and no work on it: it has just got it, or has just done its work; and its slice.
    holder: Option<(usize, f64)>,
    /// Cores that wake up for a thread.
    promised: usize,
    /// Now, microseconds.
    at: f64,
    /// Cores × microseconds that were busy.
    pub(in crate::plan) busy: f64,
}

impl Cores {
    /// So many, of which others may use a part; a slice of 0 is as long as the work.
    pub(in crate::plan) fn new(capacity: f64, crowding: f64, slice_us: f64) -> Self {
        Self {
            count: (capacity.ceil() as usize).max(1),
            capacity,
            crowding,
            slice: if slice_us > 0.0 { slice_us } else { f64::INFINITY },
            running: Vec::new(),
            waiting: VecDeque::new(),
            holder: None,
            promised: 0,
            at: 0.0,
            busy: 0.0,
        }
    }

    /// Whether a thread that is woken finds a core that sleeps.
    pub(in crate::plan) fn has_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.len() + usize::from(self.holder.is_some()) + self.promised < self.count
    }

    /// The threads that wait for a core.
    pub(in crate::plan) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().map(|waiting| waiting.thread)
    }

    /// A core begins to wake up for a thread, which will be [`ready`](Self::ready) then.
    pub(in crate::plan) fn promise(&mut self) {
        self.promised += 1;
    }

    /// It has woken up.
    pub(in crate::plan) fn keep_promise(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Work that each running thread does in a microsecond.
    fn pace(&self) -> f64 {
        let running = self.running.len() as f64;
        let busy = running.min(self.capacity);
        let crowded = if self.capacity > 1.0 { ((busy - 1.0) / (self.capacity - 1.0)).max(0.0) } else { 0.0 };
        busy / running / (1.0 + self.crowding * crowded)
    }

    pub(in crate::plan) fn advance(&mut self, now: f64) {
        let passed = now - self.at;
        if passed > 0.0 && !self.running.is_empty() {
            let pace = self.pace();
            for running in &mut self.running {
                running.left -= passed * pace;
                running.slice -= passed;
            }
            self.busy += passed * (self.running.len() as f64).min(self.capacity);
        }
        self.at = now;
    }

    /// A thread has so many microseconds of work. Who has a core goes on; who has none waits for one.
    pub(in crate::plan) fn start(&mut self, now: f64, thread: usize, work: f64) {
        self.advance(now);
        match self.holder.take_if(|(holder, _)| *holder == thread) {
            Some((_, slice)) => self.running.push(Running { thread, left: work, slice }),
            None => self.waiting.push_back(Waiting { thread, left: Some(work) }),
        }
    }

    /// A thread waits for a core, and will say what it has to do once it has got one.
    pub(in crate::plan) fn ready(&mut self, now: f64, thread: usize) {
        self.advance(now);
        self.waiting.push_back(Waiting { thread, left: None });
    }

    /// Whether the thread that has done its work has run long enough, and others wait: it is to be
    /// [`ready`](Self::ready), and not to go on.
    pub(in crate::plan) fn is_over_its_slice(&self, thread: usize) -> bool {
        self.holder.is_some_and(|(holder, slice)| holder == thread && slice <= 0.0) && !self.waiting.is_empty()
    }

    /// A thread that waits gets a core that is free. One that has a core and did not go on has left it.
    fn fill(&mut self) -> bool {
        self.holder = None;
        while self.running.len() < self.count
            && let Some(Waiting { thread, left }) = self.waiting.front().copied()
        {
            let Some(left) = left else { return true };
            self.waiting.pop_front();
            self.running.push(Running { thread, left, slice: self.slice });
        }
        false
    }

    /// When the next thread is done or gets a core, if nothing changes until then.
    pub(in crate::plan) fn next(&mut self) -> Option<f64> {
        if self.fill() {
            return Some(self.at);
        }
        let pace = self.pace();
        let ends = self.running.iter().map(|running| Time(running.left.max(0.0) / pace));
        let slices = self.running.iter().map(|running| Time(running.slice.max(0.0)));
        let slices = slices.filter(|_| !self.waiting.is_empty());
        ends.chain(slices).min().map(|Time(us)| self.at + us)
    }

    /// What happens now, at the time that [`next`](Self::next) gave; none where a slice was over.
    pub(in crate::plan) fn happens(&mut self, now: f64) -> Option<Turn> {
        self.advance(now);
        if self.fill() {
            let begins = self.waiting.pop_front()?.thread;
            self.holder = Some((begins, self.slice));
            return Some(Turn::Begins(begins));
        }
        let first = (0..self.running.len()).min_by_key(|at| Time(self.running[*at].left))?;
        if self.running[first].left <= NOTHING_US.max(now * f64::EPSILON) {
            let Running { thread, slice, .. } = self.running.remove(first);
            self.holder = Some((thread, slice));
            return Some(Turn::Ends(thread));
        }
        let over = (0..self.running.len()).min_by_key(|at| Time(self.running[*at].slice))?;
        let Running { thread, left, .. } = self.running.remove(over);
        self.waiting.push_back(Waiting { thread, left: Some(left) });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens in the end, and when: who began and who was done.
    fn course(cores: &mut Cores) -> Vec<(f64, Turn)> {
        let mut course = Vec::new();
        while let Some(time) = cores.next() {
            course.extend(cores.happens(time).map(|turn| (time, turn)));
        }
        course
    }

    #[test]
    fn who_has_no_core_waits_until_one_is_free() {
        let mut cores = Cores::new(2.0, 0.0, 0.0);
        cores.start(0.0, 0, 20.0);
        cores.start(0.0, 1, 15.0);
        cores.start(0.0, 2, 10.0);
        assert!(!cores.has_idle());
        assert_eq!(course(&mut cores), [(15.0, Turn::Ends(1)), (20.0, Turn::Ends(0)), (25.0, Turn::Ends(2))]);
        assert_eq!(cores.busy, 45.0);
        assert!(cores.has_idle());
    }

    #[test]
    fn who_has_run_for_a_slice_waits_behind_those_who_wait() {
        let mut cores = Cores::new(1.0, 0.0, 4.0);
        cores.start(0.0, 0, 10.0);
        cores.start(0.0, 1, 6.0);
        // 4 of the first, 4 of the second, 4 of the first, 2 of the second, 2 of the first.
        assert_eq!(course(&mut cores), [(14.0, Turn::Ends(1)), (16.0, Turn::Ends(0))]);
        let mut alone = Cores::new(1.0, 0.0, 4.0);
        alone.start(0.0, 0, 10.0);
        assert_eq!(course(&mut alone), [(10.0, Turn::Ends(0))], "nobody waits");
    }

    #[test]
    fn who_is_ready_says_what_it_has_to_do_when_it_has_a_core() {
        let mut cores = Cores::new(1.0, 0.0, 8.0);
        cores.start(0.0, 0, 10.0);
        cores.ready(0.0, 1);
        assert_eq!(cores.next(), Some(8.0));
        assert_eq!(cores.happens(8.0), None, "the slice of the first is over");
        assert_eq!(cores.next(), Some(8.0));
        assert_eq!(cores.happens(8.0), Some(Turn::Begins(1)));
        cores.start(8.0, 1, 3.0);
        assert_eq!(cores.next(), Some(11.0));
        assert_eq!(cores.happens(11.0), Some(Turn::Ends(1)));
        assert!(!cores.is_over_its_slice(1) && !cores.has_idle(), "it has its core until it is known to leave it");
        assert_eq!(course(&mut cores), [(13.0, Turn::Ends(0))]);
    }

    #[test]
    fn a_crowd_slows_everybody_down_and_others_take_their_part() {
        let mut cores = Cores::new(2.0, 0.5, 0.0);
        cores.start(0.0, 0, 10.0);
        assert_eq!(cores.next(), Some(10.0));
        cores.start(0.0, 1, 10.0);
        assert!((cores.next().unwrap() - 15.0).abs() < 1e-9);
        let mut shared = Cores::new(1.5, 0.0, 0.0);
        shared.start(0.0, 0, 6.0);
        shared.start(0.0, 1, 6.0);
        assert!((shared.next().unwrap() - 8.0).abs() < 1e-9, "two cores of which others use a half");
    }
}
