//! What has to be looked at from time to time: deadlines, devices that came back, devices that have
//! stopped answering; and the reports of the past.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::History;
use crate::role::{self, Role};

use super::{DeviceId, Inner, Late, Managed, Report, Run, Scheduler, Settled, Waiting, locked};

/// How often jobs that wait for a device are looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often, while none does.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Idle devices that are taken for slow get another chance so often.
const RELAX_EVERY: Duration = Duration::from_secs(1);
/// Jobs of the backlog that the monitor computes itself before it looks around again.
const RESCUED_MAX: usize = 64;
/// How often utilisations are computed.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Reports of the past, some ten kilobytes each.
pub(super) type Reports = History<Arc<[Report]>>;

/// Whether nothing was done between two reports.
fn says_the_same(old: &Arc<[Report]>, new: &Arc<[Report]>) -> bool {
    let work = |report: &[Report]| report.iter().map(|device| device.meters.count()).collect::<Vec<_>>();
    work(old) == work(new)
}

/// What each device had been busy, nanoseconds, at one moment.
pub(super) struct Measured {
    at: Instant,
    busy_ns: HashMap<DeviceId, u64>,
}

/// Starts the thread; it ends with the scheduler.
pub(super) fn start(scheduler: &Arc<Scheduler>) {
    let weak = Arc::downgrade(scheduler);
    // Without a thread for it, deadlines are only looked at when a device takes its next job.
    if std::thread::Builder::new().name("devices".to_owned()).spawn(move || run(&weak)).is_ok() {
        scheduler.lock().alive += 1;
    }
}

fn run(scheduler: &Weak<Scheduler>) {
    role::begin(Role::Administration);
    let mut relaxed = Instant::now();
    while let Some(scheduler) = scheduler.upgrade() {
        if !scheduler.look(&mut relaxed) {
            scheduler.thread_ends();
            return;
        }
    }
}

impl Scheduler {
    /// One look, and the wait for the next; false once the program stops.
    fn look(&self, relaxed: &mut Instant) -> bool {
        let now = Instant::now();
        let mut inner = self.lock();
        if inner.stopping {
            return false;
        }
        let mut moved: Vec<_> = inner.devices.iter_mut().flat_map(|device| device.check_for_stall(now)).collect();
        moved.extend(inner.devices.iter_mut().flat_map(|device| device.take_over(now)));
        let Inner { backlog, devices, .. } = &mut *inner;
        let rescued = Cell::new(0);
        moved.extend(backlog.take_if(|waiting| {
            // A device that would have taken it may have gone meanwhile.
            let hopeless = || {
                let others = devices.iter().filter(|device| !waiting.avoid.contains(&device.id));
                !others.clone().any(|device| device.is_usable() && device.takes(&waiting.job))
                    && rescued.replace(rescued.get() + 1) < RESCUED_MAX
            };
            waiting.job.is_over(now).is_some() || hopeless()
        }));
        let mut late = self.move_on(&mut inner, moved);
        if now.saturating_duration_since(*relaxed) >= RELAX_EVERY {
            *relaxed = now;
            let idle = |device: &&mut Managed| device.waiting() == 0 && !device.is_serving();
            inner.devices.iter_mut().filter(idle).for_each(Managed::relax);
        }
        let due = |waiting: &Waiting| waiting.not_before <= now || waiting.job.is_over(now).is_some();
        let (due, early): (Vec<_>, Vec<_>) = std::mem::take(&mut inner.stranded).into_iter().partition(due);
        inner.stranded = early;
        for mut waiting in due {
            let sink = waiting.sink.clone();
            if let Some(error) = waiting.job.is_over(now) {
                // It waited for a device all the time: that one's state says more than the clock.
                let error = match error {
                    crate::DeviceError::Deadline => inner.why_stranded(&waiting.job),
                    error => error,
                };
                self.unload(&mut waiting);
                late.answers.push((sink, waiting.answer(Err(error), Run::CPU)));
                continue;
            }
            match self.settle_in(&mut inner, waiting, now) {
                Settled::Placed => {}
                Settled::Inline(waiting) => late.rescued.push(waiting),
                Settled::Refused(answer) => late.answers.push((sink, answer)),
            }
        }
        if !inner.backlog.is_empty() {
            for device in &inner.devices {
                device.wake_up.notify_one();
            }
        }
        self.measure(&mut inner, now);
        let wall = SystemTime::now();
        if inner.history.is_due(wall) {
            let report = self.reports(&inner);
            inner.history.keep(wall, report.into(), says_the_same);
        }
        let idle = inner.backlog.is_empty()
            && inner.stranded.is_empty()
            && inner.devices.iter().all(|device| device.waiting() == 0 && !device.is_serving());
        let wait = if idle { IDLE_LOOK_EVERY } else { LOOK_EVERY };
        if late.is_empty() {
            inner.next_look = now + wait;
            while !inner.stopping {
                let left = inner.next_look.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                inner = self.monitor.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        } else {
            drop(inner);
            late.carry_out(self);
        }
        true
    }
}

impl Scheduler {
    /// How busy each device was since the last time, a second ago or so.
    fn measure(&self, inner: &mut Inner, now: Instant) {
        let elapsed = inner.measured.as_ref().map(|measured| now.saturating_duration_since(measured.at));
        if elapsed.is_some_and(|elapsed| elapsed < MEASURE_EVERY) {
            return;
        }
        let before = inner.measured.take().map(|measured| measured.busy_ns).unwrap_or_default();
        let share = |id: DeviceId, busy_ns: u64, engines: u64| {
            let busy = busy_ns.saturating_sub(before.get(&id).copied().unwrap_or(0));
            let possible = elapsed.map_or(0.0, |elapsed| elapsed.as_nanos() as f64 * engines as f64);
            if possible > 0.0 { (busy as f64 / possible).min(1.0) } else { 0.0 }
        };
        let cpu_ns = locked(&self.cpu.meters).busy_ns();
        let mut busy_ns = HashMap::from([(DeviceId::CPU, cpu_ns)]);
        inner.cpu_utilisation = share(DeviceId::CPU, cpu_ns, self.cores);
        for device in &mut inner.devices {
            let busy = locked(&device.meters).busy_ns();
            device.utilisation = share(device.id, busy, device.engines() as u64);
            busy_ns.insert(device.id, busy);
        }
        inner.measured = Some(Measured { at: now, busy_ns });
    }
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.rescued.is_empty() && self.answers.is_empty()
    }

    pub(super) fn merge(&mut self, other: Late) {
        self.rescued.extend(other.rescued);
        self.answers.extend(other.answers);
    }
}
