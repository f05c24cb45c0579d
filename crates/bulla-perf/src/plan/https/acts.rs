//! What a customer does, as steps of threads.

use super::costs::{Ends, Https};
use crate::plan::profile::Operation;
use crate::plan::random::Random;
use crate::workload::trade::Act;

/// Bytes of the two messages between which [`Https::get`] and [`Https::get_4k`] lie, and of an account.
const GET_BYTES: [f64; 2] = [256.0, 4096.0];
const ACCOUNT_BYTES: f64 = 1024.0;

/// One of the two keys at work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Key {
    /// The listener's.
    Listener,
    /// The one that orders are sealed with.
    Orders,
}

/// A step. Times are microseconds of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// The customer's client.
    Customer(f64),
    /// A dispatcher, for a handshake.
    Tls(f64),
    /// A dispatcher, for a request or a message.
    Serve(f64),
    /// An adapter.
    Adapt(f64),
    /// The broker.
    Broker(f64),
    /// An operation with a key: asked for by the dispatcher for the listener's, by an adapter for that of orders.
    Operation(Key, Operation),
    /// The broker begins with the order.
    OrderIsThere,
    /// The confirmation is there, or is awaited.
    Confirmation,
}

/// How connections are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connecting {
    /// Requests of a connection.
    pub(super) requests: u32,
    /// A handshake of each kind, the client's check of the signature included.
    pub(super) full: Ends,
    pub(super) resumed: Ends,
    /// Whether sessions are resumed.
    pub(super) resumes: bool,
}

/// What every customer does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) connecting: Connecting,
    pub(super) https: Https,
}

/// A customer's connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    /// Requests that it may still have.
    left: u32,
    /// There is a session to go on with.
    known: bool,
}

impl Work {
    /// The steps of something that a customer does, by chance, and what comes before: its connection.
    pub(super) fn next(&self, connection: &mut Connection, random: &mut Random) -> Vec<Step> {
        self.steps(drawn(random), connection)
    }

    /// The steps of one act.
    pub(super) fn steps(&self, act: Act, connection: &mut Connection) -> Vec<Step> {
        let https = &self.https;
        let mut steps = Vec::with_capacity(16);
        let one = match act {
            Act::Quote => https.get,
            Act::Home => https.get_4k,
            Act::Account => {
                let part = (ACCOUNT_BYTES - GET_BYTES[0]) / (GET_BYTES[1] - GET_BYTES[0]);
                let between = |small: f64, large: f64| small + (large - small) * part;
                Ends {
                    queue_manager_us: between(https.get.queue_manager_us, https.get_4k.queue_manager_us),
                    application_us: between(https.get.application_us, https.get_4k.application_us),
                }
            }
            Act::Portfolio => https.list,
            Act::Update => https.put,
            Act::SignOut => https.publish,
            Act::Register => https.put_persistent,
            Act::Buy | Act::Sell => {
                self.order(&mut steps, connection);
                return steps;
            }
        };
        self.connect(&mut steps, connection);
        steps.extend([
            Step::Customer(one.application_us / 2.0),
            Step::Serve(one.queue_manager_us),
            Step::Customer(one.application_us / 2.0),
        ]);
        steps
    }

    /// Before a request: a handshake where the connection has had its requests.
    fn connect(&self, steps: &mut Vec<Step>, connection: &mut Connection) {
        let Connecting { requests, full, resumed, resumes } = self.connecting;
        if connection.left > 0 {
            connection.left -= 1;
            return;
        }
        connection.left = requests.max(1) - 1;
        let goes_on = resumes && std::mem::replace(&mut connection.known, true);
        let Ends { queue_manager_us: server, application_us: client } = if goes_on { resumed } else { full };
        steps.extend([Step::Customer(client / 2.0), Step::Tls(server / 2.0)]);
        if !goes_on {
            steps.push(Step::Operation(Key::Listener, Operation::Sign));
        }
        steps.extend([Step::Customer(client / 2.0), Step::Tls(server / 2.0)]);
    }

    /// An order is put, and its confirmation is got. How its time is spread over the steps is an assumption: only the
    /// sums are measured.
    fn order(&self, steps: &mut Vec<Step>, connection: &mut Connection) {
        let order = self.https.order;
        let (served, customer, adapted) = (order.queue_manager_us, order.application_us, order.protection_us / 4.0);
        self.connect(steps, connection);
        steps.extend([Step::Customer(0.25 * customer), Step::Serve(0.25 * served)]);
        steps.extend(seal(adapted));
        steps.extend([Step::Serve(0.1 * served), Step::OrderIsThere, Step::Customer(0.1 * customer)]);
        self.connect(steps, connection);
        steps.extend([Step::Customer(0.1 * customer), Step::Serve(0.2 * served), Step::Confirmation]);
        steps.extend(open(adapted));
        steps.extend([Step::Serve(0.15 * served), Step::Customer(0.15 * customer)]);
    }

    /// What the broker does with an order, the last step being that it is confirmed.
    pub(super) fn fills(&self) -> Vec<Step> {
        let order = self.https.order;
        let (served, adapted) = (order.queue_manager_us, order.protection_us / 4.0);
        let mut steps = Vec::from(open(adapted));
        steps.extend([
            Step::Serve(0.15 * served),
            Step::Broker(0.4 * order.application_us),
            Step::Serve(0.15 * served),
        ]);
        steps.extend(seal(adapted));
        steps
    }
}

/// Orders of a transaction of the mix: each has two requests, and with them a connection more where each has its own.
pub(super) fn orders_of_mix() -> f64 {
    let shares = Act::MIX.iter().filter(|(act, _)| matches!(act, Act::Buy | Act::Sell));
    f64::from(shares.map(|(_, share)| share).sum::<u32>()) / 100.0
}

/// What a transaction of the mix takes at the two ends on average, on a connection that is kept.
pub(super) fn mean_of_mix(https: &Https) -> Ends {
    let connecting = Connecting { requests: 1, full: Ends::default(), resumed: Ends::default(), resumes: false };
    let work = Work { connecting, https: *https };
    let mut mean = Ends::default();
    for (act, share) in Act::MIX {
        let mut steps = work.steps(act, &mut Connection::default());
        if matches!(act, Act::Buy | Act::Sell) {
            steps.extend(work.fills());
        }
        for step in steps {
            match step {
                Step::Serve(us) => mean.queue_manager_us += us * f64::from(share) / 100.0,
                Step::Customer(us) | Step::Broker(us) => mean.application_us += us * f64::from(share) / 100.0,
                _ => {}
            }
        }
    }
    mean
}

/// Privacy: signed, then wrapped for its recipient.
fn seal(adapted: f64) -> [Step; 3] {
    let operation = |operation| Step::Operation(Key::Orders, operation);
    [Step::Adapt(adapted), operation(Operation::Sign), operation(Operation::Wrap)]
}

fn open(adapted: f64) -> [Step; 3] {
    let operation = |operation| Step::Operation(Key::Orders, operation);
    [Step::Adapt(adapted), operation(Operation::Unwrap), operation(Operation::Verify)]
}

/// One by chance, each with its share.
fn drawn(random: &mut Random) -> Act {
    let mut left = random.bits() % 100;
    for (act, share) in Act::MIX {
        match left.checked_sub(u64::from(share)) {
            Some(rest) => left = rest,
            None => return act,
        }
    }
    Act::Quote
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::https::costs::{MixTimes, Order};

    fn ends(queue_manager_us: f64, application_us: f64) -> Ends {
        Ends { queue_manager_us, application_us }
    }

    fn work(requests: u32, resumes: bool) -> Work {
        let https = Https {
            get: ends(40.0, 20.0),
            get_4k: ends(80.0, 20.0),
            order: Order { queue_manager_us: 300.0, application_us: 200.0, protection_us: 40.0 },
            ..Https::default()
        };
        let connecting = Connecting { requests, full: ends(100.0, 90.0), resumed: ends(50.0, 40.0), resumes };
        Work { connecting, https }
    }

    /// Of the queue manager, of the application, of adapters, and how many signatures of the listener.
    fn sums(steps: &[Step]) -> (f64, f64, f64, usize) {
        let of = |us: fn(&Step) -> f64| steps.iter().map(us).sum::<f64>();
        (
            of(|step| if let Step::Tls(us) | Step::Serve(us) = step { *us } else { 0.0 }),
            of(|step| if let Step::Customer(us) | Step::Broker(us) = step { *us } else { 0.0 }),
            of(|step| if let Step::Adapt(us) = step { *us } else { 0.0 }),
            steps.iter().filter(|step| matches!(step, Step::Operation(Key::Listener, _))).count(),
        )
    }

    #[test]
    fn a_connection_is_made_once_for_its_requests_and_signed_for_unless_it_is_resumed() {
        let mut connection = Connection::default();
        let mut next = |work: &Work| sums(&work.steps(Act::Quote, &mut connection));
        let kept = work(2, false);
        assert_eq!(next(&kept), (140.0, 110.0, 0.0, 1));
        assert_eq!(next(&kept), (40.0, 20.0, 0.0, 0));
        let resumed = work(1, true);
        assert_eq!(next(&resumed), (140.0, 110.0, 0.0, 1), "the first one has nothing to go on with");
        assert_eq!(next(&resumed), (90.0, 60.0, 0.0, 0));
    }

    #[test]
    fn an_order_and_its_filling_take_together_what_was_measured() {
        let work = work(2, false);
        let mut connection = Connection { left: 2, known: false };
        let steps = [work.steps(Act::Buy, &mut connection), work.fills()].concat();
        let (queue_manager, application, adapters, signatures) = sums(&steps);
        assert!((queue_manager - 300.0).abs() < 1e-9 && (application - 200.0).abs() < 1e-9, "{steps:?}");
        assert!((adapters - 40.0).abs() < 1e-9 && signatures == 0, "{steps:?}");
        for operation in Operation::ALL {
            let count = steps.iter().filter(|step| **step == Step::Operation(Key::Orders, operation)).count();
            assert_eq!(count, 2, "{operation:?}");
        }
    }

    #[test]
    fn the_mix_is_the_mean_of_its_acts_and_takes_as_many_times_as_long_as_was_measured() {
        let work = work(1, false);
        let mean = mean_of_mix(&work.https);
        // Of a hundred: forty quotes, twenty summaries, ten accounts and eight orders.
        let queue_manager_us = 0.4 * 40.0 + 0.2 * 80.0 + 0.1 * 48.0 + 0.08 * 300.0;
        assert!((mean.queue_manager_us - queue_manager_us).abs() < 1e-9, "{mean:?}");
        assert!((mean.application_us - (0.7 * 20.0 + 0.08 * 200.0)).abs() < 1e-9, "{mean:?}");
        let mut https = work.https;
        https.mix.request = MixTimes::of(mean.times(1.5, 2.0), mean);
        let mixed = mean_of_mix(&https.mixed());
        assert!((mixed.queue_manager_us - 1.5 * queue_manager_us).abs() < 1e-9, "{mixed:?}");
        assert!((mixed.application_us - 2.0 * mean.application_us).abs() < 1e-9, "{mixed:?}");
        assert_eq!(MixTimes::of(Ends::default(), mean), MixTimes::default(), "nothing was measured");
    }

    #[test]
    fn an_account_lies_between_the_two_messages_that_were_measured() {
        let mut connection = Connection { left: 1, known: false };
        let (served, ..) = sums(&work(1, false).steps(Act::Account, &mut connection));
        assert!((served - 48.0).abs() < 1e-9, "{served}");
    }
}
