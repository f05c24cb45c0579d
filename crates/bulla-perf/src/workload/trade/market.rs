//! The market: a queue manager with the queues, people and keys of the trading application, and what lies on them.

use super::customer::put;
use crate::configuration::{Configuration, Quality};
use crate::error::Result;
use crate::load::client::Broker;
use crate::load::https::{Client, Site, Visit};
use crate::run::meters::Watched;
use crate::site::{Manager, PASSWORD};
use std::sync::Arc;

/// Shares that are traded.
pub(super) const SYMBOLS: u32 = 32;
/// What each customer holds.
pub(super) const HOLDINGS: u32 = 5;
/// Bytes of a quote, of the market's summary, of an account, of a holding.
const QUOTE_BYTES: usize = 256;
const SUMMARY_BYTES: usize = 4096;
const ACCOUNT_BYTES: usize = 1024;
const HOLDING_BYTES: usize = 256;
/// The topics: prices that orders make, and customers who leave.
pub(super) const PRICES: &str = "topic://trade/prices";
pub(super) const ALL_TOPICS: &str = "topic://trade/#";
const GOODBYES: &str = "trade%2Fsign-outs";
/// Rights that customers and the broker need beside those on queues.
const TOPIC_RIGHTS: &str = "SET AUTHREC PROFILE(SYSTEM.BASE.TOPIC) OBJTYPE(TOPIC) PRINCIPAL('*') AUTHADD(PUB, SUB)\n";

/// The name of a share.
pub(super) fn symbol(number: u32) -> String {
    format!("s{number}")
}

/// The name of a customer.
pub(super) fn customer(number: u32) -> String {
    format!("c{number}")
}

/// What the broker answers to an order.
pub(super) fn confirmation(order: &str) -> String {
    format!("filled {order}")
}

/// Queues, as AMQP names them.
pub(super) mod queue {
    pub(crate) const QUOTES: &str = "TRADE.QUOTES";
    pub(crate) const SUMMARY: &str = "TRADE.SUMMARY";
    pub(crate) const ACCOUNTS: &str = "TRADE.ACCOUNTS";
    pub(crate) const HOLDINGS: &str = "TRADE.HOLDINGS";
    pub(crate) const PROFILES: &str = "TRADE.PROFILES";
    pub(crate) const CUSTOMERS: &str = "TRADE.CUSTOMERS";
    pub(crate) const ORDERS: &str = "TRADE.ORDERS";
    pub(crate) const CONFIRMED: &str = "TRADE.CONFIRMED";
}

/// The same as paths of the messaging interface.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) quotes: String,
    pub(super) summary: String,
    pub(super) accounts: String,
    pub(super) holdings: String,
    pub(super) profiles: String,
    pub(super) customers: String,
    pub(super) orders: String,
    pub(super) confirmed: String,
    pub(super) goodbyes: String,
}

impl Paths {
    fn of(manager: &str) -> Paths {
        let root = format!("/ibmmq/rest/v3/messaging/qmgr/{manager}");
        let path = |queue: &str| format!("{root}/queue/{queue}");
        Paths {
            quotes: path(queue::QUOTES),
            summary: path(queue::SUMMARY),
            accounts: path(queue::ACCOUNTS),
            holdings: path(queue::HOLDINGS),
            profiles: path(queue::PROFILES),
            customers: path(queue::CUSTOMERS),
            orders: path(queue::ORDERS),
            confirmed: path(queue::CONFIRMED),
            goodbyes: format!("{root}/topic/{GOODBYES}"),
        }
    }
}

/// A queue manager that is a market.
#[derive(Debug)]
pub(super) struct Market<'h> {
    manager: Manager<'h>,
    paths: Arc<Paths>,
    /// As whom customers sign in.
    customers: String,
    /// As whom the broker does.
    broker: String,
    /// The authorities to believe.
    authorities: Vec<u8>,
}

impl<'h> Market<'h> {
    /// Opens a market on a queue manager that was just started, with a listener's key, and the key that orders and
    /// confirmations are sealed with.
    ///
    /// # Errors
    /// What the queue manager refuses.
    pub(super) fn open(mut manager: Manager<'h>, key: &str, order_key: &str, customers: u32) -> Result<Market<'h>> {
        let authorities = manager.show(key)?;
        manager.mqsc(TOPIC_RIGHTS)?;
        let (buyer, recipients) = manager.people(order_key, 1)?;
        let broker = recipients.first().cloned().unwrap_or_default();
        let (open, sealed) = (
            Configuration::default(),
            Configuration { quality: Quality::Privacy, key: order_key.to_owned(), ..Configuration::default() },
        );
        for name in [queue::QUOTES, queue::SUMMARY, queue::ACCOUNTS, queue::HOLDINGS, queue::PROFILES, queue::CUSTOMERS]
        {
            manager.define_queue(&open, name, "", &[])?;
        }
        manager.define_queue(&sealed, queue::ORDERS, &buyer, std::slice::from_ref(&broker))?;
        manager.define_queue(&sealed, queue::CONFIRMED, &broker, std::slice::from_ref(&buyer))?;
        let paths = Arc::new(Paths::of(manager.name()));
        let market = Market { manager, paths, customers: buyer, broker, authorities };
        market.fill(customers)?;
        Ok(market)
    }

    /// Puts what customers look at: quotes, the summary, accounts and holdings.
    fn fill(&self, customers: u32) -> Result<()> {
        let mut client = Client::new(&Site::new(&self.visit(true, String::new(), false))?, u32::MAX);
        let mut fill = |path: &str, label: &str, begins: &str, bytes: usize| {
            let labels = if label.is_empty() { String::new() } else { format!("ibm-mq-md-correlationId: {label}\r\n") };
            put(&mut client, path, &labels, format!("{begins:bytes$}").as_bytes())
        };
        for number in 0..SYMBOLS {
            fill(&self.paths.quotes, &symbol(number), &symbol(number), QUOTE_BYTES)?;
        }
        fill(&self.paths.summary, "", "market", SUMMARY_BYTES)?;
        for name in (0..customers).map(customer) {
            fill(&self.paths.accounts, &name, &name, ACCOUNT_BYTES)?;
            for held in 0..HOLDINGS {
                fill(&self.paths.holdings, &name, &format!("{name} {}", symbol(held)), HOLDING_BYTES)?;
            }
        }
        client.leave();
        Ok(())
    }

    /// How customers come.
    pub(super) fn visit(&self, tls13: bool, ciphers: String, resumes: bool) -> Visit {
        let port = self.manager.https_address.rsplit_once(':').map_or("", |(_, port)| port);
        Visit {
            address: format!("localhost:{port}"),
            authorities: self.authorities.clone(),
            credentials: (self.customers.clone(), PASSWORD.to_owned()),
            tls13,
            ciphers,
            resumes,
        }
    }

    /// Where requests go.
    pub(super) fn paths(&self) -> &Arc<Paths> {
        &self.paths
    }

    /// How the broker connects.
    pub(super) fn broker(&self) -> Broker {
        self.manager.broker(&self.broker)
    }

    /// What a sample looks at.
    pub(super) fn watched(&self) -> Watched {
        self.manager.watched()
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.manager.pid()
    }

    /// Closes it in order.
    pub(super) fn close(self) -> Result<()> {
        self.manager.stop()
    }
}
