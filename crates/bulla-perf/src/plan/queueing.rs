//! Queueing formulas for open systems: Poisson arrivals, one station.
//!
//! Rates are a second, times in seconds; any other unit will do where both share it. Sources: Kleinrock, *Queueing
//! Systems*, volume 1 (1975), chapters 3 and 5; Jackson, *Networks of waiting lines*, Operations Research 5 (1957).

/// A station whose customers come from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Open {
    /// Part of the time that a server is busy, 0 to 1.
    pub utilisation: f64,
    /// Mean time before service; infinite where more comes than can be served.
    pub wait: f64,
    /// Mean time until served.
    pub response: f64,
}

impl Open {
    fn new(utilisation: f64, wait: f64, service: f64) -> Self {
        let wait = if utilisation < 1.0 { wait } else { f64::INFINITY };
        Self { utilisation, wait, response: wait + service }
    }
}

/// The probability that a customer has to wait in M/M/c, with a load of so many erlangs (rate × service time): Erlang's
/// C formula, by the recursion of his B formula.
#[must_use]
pub fn erlang_c(servers: u32, erlangs: f64) -> f64 {
    let c = f64::from(servers);
    if erlangs >= c {
        return 1.0;
    }
    let mut blocked = 1.0;
    for n in 1..=servers {
        blocked = erlangs * blocked / (f64::from(n) + erlangs * blocked);
    }
    c * blocked / (c - erlangs * (1.0 - blocked))
}

/// M/M/c: exponential service at `servers` servers with one line.
#[must_use]
pub fn m_m_c(rate: f64, service: f64, servers: u32) -> Open {
    let erlangs = rate * service;
    let wait = erlang_c(servers, erlangs) * service / (f64::from(servers) - erlangs);
    Open::new(erlangs / f64::from(servers), wait, service)
}

/// M/G/1 by Pollaczek and Khinchine: service times with that mean and that mean square.
#[must_use]
pub fn m_g_1(rate: f64, mean: f64, mean_square: f64) -> Open {
    let utilisation = rate * mean;
    Open::new(utilisation, rate * mean_square / (2.0 * (1.0 - utilisation)), mean)
}

/// M/D/1: every service takes the same time.
#[must_use]
pub fn m_d_1(rate: f64, service: f64) -> Open {
    m_g_1(rate, service, service * service)
}

/// M/G/c, approximately: M/M/c's wait times (1 + the service time's squared coefficient of variation) / 2 (Lee and
/// Longton 1959). Exact with one server.
#[must_use]
pub fn m_g_c(rate: f64, mean: f64, mean_square: f64, servers: u32) -> Open {
    let like_exponential = m_m_c(rate, mean, servers);
    let variation = if mean > 0.0 { mean_square / (mean * mean) - 1.0 } else { 0.0 };
    Open::new(like_exponential.utilisation, like_exponential.wait * f64::midpoint(1.0, variation), mean)
}

/// Below which response a part of the customers stays, if responses were exponential about that mean: an approximation
/// for where nothing but the mean is known; exact for M/M/1.
#[must_use]
pub fn exponential_percentile(mean: f64, part: f64) -> f64 {
    -mean * (1.0 - part).ln()
}

/// One station of an open network.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Mean service time of a visit.
    pub service: f64,
    /// Servers.
    pub servers: u32,
    /// Arrivals from outside, a second.
    pub arrivals: f64,
    /// The part of those served here that go on to each station; what is missing to 1 leaves.
    pub goes_on: Vec<f64>,
}

/// An open network with exponential service and Poisson arrivals: each station is an M/M/c of its own (Jackson). None
/// where the flows have no solution: nothing ever leaves.
#[must_use]
pub fn jackson(nodes: &[Node]) -> Option<Vec<(f64, Open)>> {
    let rates = traffic(nodes)?;
    let station = |(node, rate): (&Node, f64)| (rate, m_m_c(rate, node.service, node.servers));
    Some(nodes.iter().zip(rates).map(station).collect())
}

/// What passes each station: arrivals from outside and from the others, by Gauss's elimination.
fn traffic(nodes: &[Node]) -> Option<Vec<f64>> {
    let n = nodes.len();
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|to| {
            let coming = |from: usize| nodes[from].goes_on.get(to).copied().unwrap_or(0.0);
            let mut row: Vec<f64> = (0..n).map(|from| f64::from(u8::from(from == to)) - coming(from)).collect();
            row.push(nodes[to].arrivals);
            row
        })
        .collect();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        if rows[pivot][column].abs() < 1e-12 {
            return None;
        }
        rows.swap(column, pivot);
        let lead = rows[column].clone();
        for (at, row) in rows.iter_mut().enumerate().filter(|(at, _)| *at != column) {
            let factor = row[column] / lead[column];
            debug_assert!(at < n);
            for (value, from) in row.iter_mut().zip(&lead) {
                *value -= factor * from;
            }
        }
    }
    Some((0..n).map(|at| rows[at][n] / rows[at][at]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, part: f64) {
        assert!((found - wanted).abs() <= part * wanted.abs(), "{found} instead of {wanted}");
    }

    #[test]
    fn erlang_c_is_as_in_the_tables() {
        for (servers, erlangs, wanted) in [
            (1, 0.5, 0.5),
            (2, 1.0, 1.0 / 3.0),
            (3, 2.0, 4.0 / 9.0),
            (5, 4.0, 0.5541),
            (10, 8.0, 0.4092),
            (2, 3.0, 1.0),
        ] {
            near(erlang_c(servers, erlangs), wanted, 2e-4);
        }
    }

    #[test]
    fn one_server_is_the_simplest_of_many() {
        let one = m_m_c(8.0, 0.1, 1);
        near(one.response, 0.1 / (1.0 - 0.8), 1e-12);
        near(m_g_1(8.0, 0.1, 2.0 * 0.01).response, one.response, 1e-12);
        near(m_d_1(8.0, 0.1).wait, one.wait / 2.0, 1e-12);
        near(m_g_c(8.0, 0.1, 0.01, 1).wait, m_d_1(8.0, 0.1).wait, 1e-12);
        assert_eq!(m_d_1(11.0, 0.1).wait, f64::INFINITY);
        near(exponential_percentile(one.response, 0.5), one.response * std::f64::consts::LN_2, 1e-12);
    }

    #[test]
    fn a_network_that_feeds_back_has_the_flows_of_its_equations() {
        // A processor whose work goes to a disk with one half, and comes back: visits are 2 and 1.
        let processor = Node { service: 0.02, servers: 1, arrivals: 10.0, goes_on: vec![0.0, 0.5] };
        let disk = Node { service: 0.03, servers: 2, arrivals: 0.0, goes_on: vec![1.0, 0.0] };
        let solved = jackson(&[processor.clone(), disk]).unwrap();
        near(solved[0].0, 20.0, 1e-12);
        near(solved[1].0, 10.0, 1e-12);
        near(solved[0].1.response, 0.02 / (1.0 - 0.4), 1e-12);
        let forever = Node { goes_on: vec![1.0], ..processor };
        assert!(jackson(&[forever]).is_none(), "what never leaves has no steady state");
    }
}
