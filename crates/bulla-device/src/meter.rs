//! What a device did: how often, how long, how full its lanes were, and how long jobs waited for it.

use crate::histogram::Histogram;
use crate::peaks::Peaks;
use crate::work::{Operation, Shape};

/// The longest waiting line that [`Meters::waiting`] tells from longer ones.
pub const WAITING_SAMPLES_MAX: usize = 1024;

/// The counters of one operation with keys of one size.
#[derive(Debug, Clone)]
pub struct OperationMeter {
    /// The operation.
    pub operation: Operation,
    /// The arithmetic and the size.
    pub shape: Shape,
    /// Jobs that were carried out, failures included.
    pub count: u64,
    /// Jobs that failed by the device's fault.
    pub errors: u64,
    /// Execution time, nanoseconds, of all jobs: a call's time ÷ the lanes that it filled, for each.
    pub busy_ns: u64,
    /// Execution times, nanoseconds.
    pub execution: Histogram,
    /// From the submission to the result, nanoseconds.
    pub latency: Histogram,
}

/// The calls of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeMeter {
    /// The arithmetic and the size.
    pub shape: Shape,
    /// Calls.
    pub calls: u64,
    /// Lanes that were filled in these calls, added up.
    pub lanes_filled: u64,
}

/// The meters of a device, from its definition on.
#[derive(Debug, Clone, Default)]
pub struct Meters {
    /// An entry for each operation and key size, in the order in which they were first seen.
    pub operations: Vec<OperationMeter>,
    /// An entry for each shape.
    pub shapes: Vec<ShapeMeter>,
    /// How many jobs waited when another one came, the last place meaning that many or more: counts.
    pub waiting: Vec<u64>,
    /// The longest execution times, nanoseconds, and when they ended.
    pub longest: Peaks,
    /// Processor time of the device's threads, nanoseconds.
    pub cpu_ns: u64,
    /// Of it, what the real results of a modelled device cost, nanoseconds.
    pub modelled_cpu_ns: u64,
}

impl Meters {
    /// Counts one call and its jobs: each an operation, how long from its submission to its result, and
    /// whether it failed by the device's fault. `busy_ns` is the whole call's.
    pub fn call(&mut self, shape: Shape, busy_ns: u64, jobs: impl ExactSizeIterator<Item = (Operation, u64, bool)>) {
        let lanes = jobs.len() as u64;
        let share = share(busy_ns, jobs.len());
        for (operation, latency_ns, failed) in jobs {
            self.job(operation, shape, share, latency_ns, failed);
        }
        let at = self.shapes.iter().position(|meter| meter.shape == shape).unwrap_or_else(|| {
            self.shapes.push(ShapeMeter { shape, calls: 0, lanes_filled: 0 });
            self.shapes.len() - 1
        });
        if let Some(meter) = self.shapes.get_mut(at) {
            meter.calls += 1;
            meter.lanes_filled += lanes;
        }
    }

    /// Notes that a call of so many jobs ended at that time, milliseconds since 1970, UTC.
    pub fn ended(&mut self, at_ms: u64, busy_ns: u64, jobs: usize) {
        self.longest.note(at_ms, share(busy_ns, jobs));
    }

    /// A handful of entries at most: a search from the front is quickest.
    fn job(&mut self, operation: Operation, shape: Shape, busy_ns: u64, latency_ns: u64, failed: bool) {
        let known = |meter: &OperationMeter| meter.operation == operation && meter.shape == shape;
        let at = self.operations.iter().position(known).unwrap_or_else(|| {
            self.operations.push(OperationMeter {
                operation,
                shape,
                count: 0,
                errors: 0,
                busy_ns: 0,
                execution: Histogram::default(),
                latency: Histogram::default(),
            });
            self.operations.len() - 1
        });
        if let Some(meter) = self.operations.get_mut(at) {
            meter.count += 1;
            meter.errors += u64::from(failed);
            meter.busy_ns = meter.busy_ns.saturating_add(busy_ns);
            meter.execution.record(busy_ns);
            meter.latency.record(latency_ns);
        }
    }

    /// Notes how many jobs waited when another one came.
    pub fn waited(&mut self, waiting: usize) {
        let place = waiting.min(WAITING_SAMPLES_MAX);
        if self.waiting.len() <= place {
            self.waiting.resize(place + 1, 0);
        }
        if let Some(count) = self.waiting.get_mut(place) {
            *count += 1;
        }
    }

    /// Execution time of all operations, nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.operations.iter().map(|meter| meter.busy_ns).sum()
    }

    /// Jobs of all operations.
    pub fn count(&self) -> u64 {
        self.operations.iter().map(|meter| meter.count).sum()
    }

    /// Jobs that failed by the device's fault.
    pub fn errors(&self) -> u64 {
        self.operations.iter().map(|meter| meter.errors).sum()
    }
}

/// A job's share of its call's time.
fn share(busy_ns: u64, jobs: usize) -> u64 {
    busy_ns / (jobs as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Form;

    #[test]
    fn a_call_is_shared_by_the_lanes_that_it_filled() {
        let mut meters = Meters::default();
        let shape = Shape { form: Form::RsaCrt, bits: 2048 };
        let jobs =
            [(Operation::RsaSign, 900, false), (Operation::RsaUnwrap, 950, false), (Operation::RsaSign, 990, true)];
        meters.call(shape, 600, jobs.into_iter());
        meters.call(shape, 300, [(Operation::RsaSign, 400, false)].into_iter());
        let row = |operation| meters.operations.iter().find(|meter| meter.operation == operation).unwrap();
        assert_eq!((row(Operation::RsaSign).count, row(Operation::RsaSign).errors), (3, 1));
        assert_eq!((row(Operation::RsaSign).busy_ns, row(Operation::RsaUnwrap).busy_ns), (700, 200));
        assert_eq!(meters.shapes, [ShapeMeter { shape, calls: 2, lanes_filled: 4 }]);
        assert_eq!((meters.busy_ns(), meters.count(), meters.errors()), (900, 4, 1));
    }

    #[test]
    fn waiting_lines_are_told_apart_up_to_a_length() {
        let mut meters = Meters::default();
        [0, 2, 2, 5000].into_iter().for_each(|waiting| meters.waited(waiting));
        assert_eq!((meters.waiting[0], meters.waiting[1], meters.waiting[2]), (1, 0, 2));
        assert_eq!(meters.waiting.get(WAITING_SAMPLES_MAX), Some(&1));
    }
}
