//! Exact mean-value analysis of closed networks with one class of customers.
//!
//! Reiser and Lavenberg, *Mean-Value Analysis of Closed Multichain Queuing Networks*, Journal of the ACM 27 (1980);
//! stations with several servers by the marginal probabilities of their queue lengths, as in Lazowska, Zahorjan, Graham
//! and Sevcik, *Quantitative System Performance* (1984), chapters 6 and 8. It is exact where service is exponential or
//! the processor is shared, and a good approximation elsewhere.

/// Largest number of customers that is solved for.
pub const CUSTOMERS_MAX: u32 = 1 << 16;

/// How a station serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// So many servers with one line.
    Queue(u32),
    /// All at once: no wait for another customer.
    Delay,
}

/// A station.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// What it is called.
    pub name: String,
    /// How it serves.
    pub service: Service,
    /// What a transaction needs of it, visits times service time, in any unit of time.
    pub demand: f64,
}

impl Station {
    /// Servers with one line.
    #[must_use]
    pub fn queue(name: &str, servers: u32, demand: f64) -> Self {
        Self { name: name.to_owned(), service: Service::Queue(servers.max(1)), demand }
    }

    /// No wait for another customer.
    #[must_use]
    pub fn delay(name: &str, demand: f64) -> Self {
        Self { name: name.to_owned(), service: Service::Delay, demand }
    }
}

/// A network with so many customers.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Customers.
    pub customers: u32,
    /// Transactions in a unit of time.
    pub rate: f64,
    /// Time of a transaction.
    pub response: f64,
    /// Time that a transaction spends at each station.
    pub residence: Vec<f64>,
    /// Customers at each station on average.
    pub queue: Vec<f64>,
    /// Part of the time that each server of a station is busy; of a delay, the customers in it.
    pub utilisation: Vec<f64>,
}

/// Solves for 1 to `customers` customers; element 0 has one.
#[must_use]
pub fn solve(stations: &[Station], customers: u32) -> Vec<Solution> {
    let mut queue = vec![0.0; stations.len()];
    // Of each station with several servers: the probability of j customers there, for each j below the servers.
    let mut marginal: Vec<Vec<f64>> = stations
        .iter()
        .map(|station| match station.service {
            Service::Queue(servers) => std::iter::once(1.0).chain((1..servers).map(|_| 0.0)).collect(),
            Service::Delay => Vec::new(),
        })
        .collect();
    let mut solutions = Vec::new();
    for n in 1..=customers.min(CUSTOMERS_MAX) {
        let residence: Vec<f64> = stations
            .iter()
            .zip(&queue)
            .zip(&marginal)
            .map(|((station, queue), marginal)| match station.service {
                Service::Delay => station.demand,
                Service::Queue(servers) => {
                    let idle: f64 = marginal.iter().zip(1..servers).map(|(p, j)| f64::from(servers - j) * p).sum();
                    station.demand / f64::from(servers) * (1.0 + queue + idle)
                }
            })
            .collect();
        let response: f64 = residence.iter().sum();
        let rate = if response > 0.0 { f64::from(n) / response } else { f64::INFINITY };
        for ((station, queue), (residence, marginal)) in
            stations.iter().zip(&mut queue).zip(residence.iter().zip(&mut marginal))
        {
            *queue = rate * residence;
            if let Service::Queue(servers) = station.service {
                advance(marginal, servers, rate * station.demand);
            }
        }
        let utilisation = stations
            .iter()
            .map(|station| match station.service {
                Service::Queue(servers) => rate * station.demand / f64::from(servers),
                Service::Delay => rate * station.demand,
            })
            .collect();
        solutions.push(Solution { customers: n, rate, response, residence, queue: queue.clone(), utilisation });
    }
    solutions
}

/// The marginal probabilities with one customer more, at a load of so many busy servers.
fn advance(marginal: &mut [f64], servers: u32, load: f64) {
    for j in (1..marginal.len()).rev() {
        marginal[j] = load / j as f64 * marginal[j - 1];
    }
    let others: f64 = marginal.iter().zip(0..servers).skip(1).map(|(p, j)| f64::from(servers - j) * p).sum();
    if let Some(none) = marginal.first_mut() {
        // Near saturation a difference of nearly equal numbers: rounding must not make it negative.
        *none = (1.0 - (load + others) / f64::from(servers)).max(0.0);
    }
}

/// What no number of customers can exceed, and what so many can't: the asymptotic bounds (Lazowska, chapter 5).
#[must_use]
pub fn bound(stations: &[Station], customers: u32) -> f64 {
    let narrowest = stations.iter().fold(0.0_f64, |most, station| match station.service {
        Service::Queue(servers) => most.max(station.demand / f64::from(servers)),
        Service::Delay => most,
    });
    let total: f64 = stations.iter().map(|station| station.demand).sum();
    (1.0 / narrowest).min(f64::from(customers) / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, part: f64) {
        assert!((found - wanted).abs() <= part * wanted.abs(), "{found} instead of {wanted}");
    }

    /// Buzen's convolution algorithm (Communications of the ACM 16, 1973) with stations that serve faster the more
    /// wait: another way to the same rate, in which nothing is subtracted.
    fn convolution(stations: &[Station], customers: usize) -> f64 {
        // Demands are scaled so that the constants neither vanish nor overflow.
        let scale: f64 = stations.iter().map(|station| station.demand).sum();
        let mut constants = vec![0.0; customers + 1];
        constants[0] = 1.0;
        for station in stations {
            let mut factor = vec![1.0; customers + 1];
            for n in 1..=customers {
                let speed = match station.service {
                    Service::Queue(servers) => (n as f64).min(f64::from(servers)),
                    Service::Delay => n as f64,
                };
                factor[n] = factor[n - 1] * (station.demand / scale) / speed;
            }
            constants = (0..=customers).map(|n| (0..=n).map(|k| factor[k] * constants[n - k]).sum()).collect();
        }
        constants[customers - 1] / constants[customers] / scale
    }

    #[test]
    fn three_devices_and_a_think_time_are_as_in_the_book() {
        // Lazowska et al., chapter 6: a processor of 0.605 s and disks of 2.1 and 1.35 s a transaction, 15 s of
        // thought.
        let stations = [
            Station::queue("processor", 1, 0.605),
            Station::queue("disk 1", 1, 2.1),
            Station::queue("disk 2", 1, 1.35),
            Station::delay("thought", 15.0),
        ];
        let solved = solve(&stations, 3);
        for (solution, rate, response) in
            [(&solved[0], 0.0525, 4.055), (&solved[1], 0.1031, 4.40), (&solved[2], 0.1515, 4.80)]
        {
            near(solution.rate, rate, 1e-3);
            near(solution.response - 15.0, response, 1e-3);
        }
        near(solved[2].queue[1], 0.1515 * 2.605, 2e-3);
    }

    #[test]
    fn one_queue_and_a_delay_are_the_machine_repairman() {
        // M/M/1//N (Kleinrock, section 3.8): five customers, a service of 1, a thought of 4.
        let stations = [Station::queue("repair", 1, 1.0), Station::delay("run", 4.0)];
        let weights: Vec<f64> = (0..=5_u32).map(|k| (0..k).map(|i| f64::from(5 - i) / 4.0).product()).collect();
        let busy = 1.0 - weights[0] / weights.iter().sum::<f64>();
        near(solve(&stations, 5)[4].utilisation[0], busy, 1e-12);
    }

    #[test]
    fn several_servers_agree_with_convolution() {
        for (servers, card, delay) in [(2, 0.7, 0.0), (2, 3.0, 5.0), (4, 1.3, 2.0), (8, 0.2, 30.0)] {
            let stations = [
                Station::queue("cores", servers, 1.0),
                Station::queue("card", 2, card),
                Station::queue("line", 1, 0.3),
                Station::delay("network", delay),
            ];
            for customers in [1, 2, 5, 20, 60] {
                let solved = solve(&stations, customers);
                near(solved[customers as usize - 1].rate, convolution(&stations, customers as usize), 1e-6);
                assert!(solved[customers as usize - 1].rate <= bound(&stations, customers) * (1.0 + 1e-9));
            }
        }
    }

    #[test]
    fn many_customers_fill_the_narrowest_station() {
        let stations = [Station::queue("cores", 2, 3.0), Station::queue("dispatcher", 1, 2.0)];
        let solved = solve(&stations, 500);
        near(solved[499].rate, 0.5, 1e-6);
        near(solved[499].utilisation[1], 1.0, 1e-6);
        near(solved[499].utilisation[0], 0.75, 1e-6);
    }
}
