//! Short runs of the trading application, for the planner: with the mix, or of customers who do one thing alone.

use super::customer::Customer;
use super::floor::Floor;
use super::market::Market;
use super::mix::Act;
use super::pace::Pace;
use super::{TLS13, openssl_name, setup};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::load::https::Site;
use crate::run::measure::Running;
use crate::site::{Devices, Manager, Settings};

/// The key that orders are sealed with.
const ORDER_KEY: &str = "rsa2048";

/// Markets, each opened when it is first asked for.
pub(crate) struct Short<'h> {
    host: &'h dyn Host,
    /// Customers that have accounts.
    customers: u32,
    markets: Vec<(Configuration, Market<'h>)>,
    samples: u64,
}

impl<'h> Short<'h> {
    /// For so many customers at most.
    pub(crate) fn new(host: &'h dyn Host, customers: u32) -> Short<'h> {
        Short { host, customers, markets: Vec::new(), samples: 0 }
    }

    /// Customers begin; with `only`, they do nothing else.
    ///
    /// # Errors
    /// [`Error::Device`]: this machine has no such devices; what a queue manager refuses.
    pub(crate) fn start(&mut self, configuration: &Configuration, only: Option<Act>) -> Result<Running> {
        self.samples += 1;
        let setup = setup(configuration);
        let at = match self.markets.iter().position(|(known, _)| *known == setup) {
            Some(at) => at,
            None => {
                let market = self.open(&setup)?;
                self.markets.push((setup, market));
                self.markets.len() - 1
            }
        };
        let market = &self.markets[at].1;
        let cipher = openssl_name(&configuration.cipher);
        let site = Site::new(&market.visit(configuration.cipher == TLS13, cipher, configuration.resumed))?;
        let customer = |number| {
            let customer = Customer::new(&site, market.paths(), number, configuration.requests, self.samples);
            customer.doing(only)
        };
        let customers = (0..configuration.in_flight.min(self.customers)).map(customer).collect();
        let floor = Floor::open(&market.broker(), customers, Pace::of(configuration))?;
        Ok(Running { load: Box::new(floor), watched: vec![market.watched()] })
    }

    fn open(&self, setup: &Configuration) -> Result<Market<'h>> {
        let devices: Devices = setup.devices.parse().map_err(Error::Usage)?;
        let options = if setup.resumed { vec!["--https-resume".to_owned()] } else { Vec::new() };
        let name = format!("PLAN{}", self.markets.len() + 1);
        let settings = Settings { name, devices, https: true, options, ..Settings::default() };
        Market::open(Manager::start(self.host, &settings)?, &setup.key, ORDER_KEY, self.customers)
    }

    /// Ends all of them in order.
    ///
    /// # Errors
    /// [`Error::Manager`]: one did not end well.
    pub(crate) fn finish(self) -> Result<()> {
        let ends: Vec<Result<()>> = self.markets.into_iter().map(|(_, market)| market.close()).collect();
        ends.into_iter().collect()
    }
}
