//! A customer: a client over HTTPS that does one thing after another, and looks at what comes back.

use super::market::{self, Paths};
use super::mix::Act;
use crate::error::{Error, Result};
use crate::load::https::{Answer, Client, Done, Request, Site};
use fastrand::Rng;
use std::sync::Arc;

/// How long an order may wait for its confirmation, milliseconds.
const CONFIRMED_WITHIN_MS: u32 = 20_000;
/// What every request that changes something says (the interface wants it of browsers).
const CHANGES: &str = "ibm-mq-rest-csrf-token: x\r\n";
/// Bytes of an order, a profile, a sign-up.
const FORM_BYTES: usize = 512;

/// One customer.
#[derive(Debug)]
pub(super) struct Customer {
    /// From 0.
    number: u32,
    client: Client,
    paths: Arc<Paths>,
    random: Rng,
    /// What the customer does, where that is one thing alone.
    only: Option<Act>,
    orders: u64,
}

impl Customer {
    /// A customer with requests to one site, so many of them on each connection. `run` tells its orders from those of
    /// other samples.
    pub(super) fn new(site: &Arc<Site>, paths: &Arc<Paths>, number: u32, each: u32, run: u64) -> Customer {
        Customer {
            number,
            client: Client::new(site, each),
            paths: Arc::clone(paths),
            random: Rng::with_seed(u64::from(number)),
            only: None,
            orders: run << 32,
        }
    }

    /// A customer who does one thing alone, or the mix.
    pub(super) fn doing(self, only: Option<Act>) -> Customer {
        Customer { only, ..self }
    }

    /// What its client has done.
    pub(super) fn done(&self) -> Done {
        self.client.done()
    }

    /// What the customer does next.
    pub(super) fn next(&mut self) -> Act {
        self.only.unwrap_or_else(|| Act::drawn(&mut self.random))
    }

    /// What it draws from.
    pub(super) fn random(&mut self) -> &mut Rng {
        &mut self.random
    }

    /// Does it.
    ///
    /// # Errors
    /// [`Error::Broker`], and [`Error::Wrong`] where an answer is not the one that it should be.
    pub(super) fn act(&mut self, act: Act) -> Result<()> {
        let (paths, name) = (Arc::clone(&self.paths), market::customer(self.number));
        match act {
            Act::Quote => {
                let symbol = market::symbol(self.random.u32(0..market::SYMBOLS));
                self.read(&format!("{}/message?correlationId={symbol}", paths.quotes), symbol.as_bytes())
            }
            Act::Home => self.read(&format!("{}/message", paths.summary), b"market"),
            Act::Account => self.read(&format!("{}/message?correlationId={name}", paths.accounts), name.as_bytes()),
            Act::Portfolio => self.list(&format!("{}/messagelist?correlationId={name}&limit=100", paths.holdings)),
            Act::Buy | Act::Sell => self.order(act),
            Act::Update => self.put(&paths.profiles, "", &form(&name)),
            Act::SignOut => self.put(&paths.goodbyes, "", name.as_bytes()),
            Act::Register => self.put(&paths.customers, "ibm-mq-md-persistence: persistent\r\n", &form(&name)),
        }
    }

    /// Puts an order on the sealed queue, and gets its confirmation from the other one.
    fn order(&mut self, act: Act) -> Result<()> {
        self.orders += 1;
        let paths = Arc::clone(&self.paths);
        let order = format!("o-{}-{}", self.number, self.orders);
        let labels = format!("ibm-mq-md-correlationId: {order}\r\n");
        self.put(&paths.orders, &labels, &form(&format!("{} {order}", act.word())))?;
        let target = format!("{}/message?correlationId={order}&wait={CONFIRMED_WITHIN_MS}", paths.confirmed);
        let answer = self.client.ask(&Request { method: "DELETE", target: &target, headers: CHANGES, body: b"" })?;
        let expected = market::confirmation(&order);
        if answer.status == 200 && answer.body == expected.as_bytes() {
            return Ok(());
        }
        Err(wrong(&target, &answer))
    }

    fn read(&mut self, target: &str, begins: &[u8]) -> Result<()> {
        let answer = self.client.ask(&Request { method: "GET", target, headers: "", body: b"" })?;
        if answer.status == 200 && answer.body.starts_with(begins) {
            return Ok(());
        }
        Err(wrong(target, &answer))
    }

    fn list(&mut self, target: &str) -> Result<()> {
        let answer = self.client.ask(&Request { method: "GET", target, headers: "", body: b"" })?;
        let list: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
        let held = list.as_ref().and_then(|list| list.get("messages")?.as_array().map(Vec::len));
        if answer.status == 200 && held == Some(market::HOLDINGS as usize) {
            return Ok(());
        }
        Err(wrong(target, &answer))
    }

    fn put(&mut self, path: &str, labels: &str, body: &[u8]) -> Result<()> {
        put(&mut self.client, path, labels, body)
    }

    /// Hangs up.
    pub(super) fn leave(&mut self) {
        self.client.leave();
    }
}

/// Puts a message, or publishes one.
///
/// # Errors
/// [`Error::Broker`]; [`Error::Wrong`]: it was not put.
pub(super) fn put(client: &mut Client, path: &str, labels: &str, body: &[u8]) -> Result<()> {
    let (target, headers) = (format!("{path}/message"), format!("{CHANGES}content-type: text/plain\r\n{labels}"));
    let answer = client.ask(&Request { method: "POST", target: &target, headers: &headers, body })?;
    if answer.status == 201 { Ok(()) } else { Err(wrong(&target, &answer)) }
}

fn wrong(target: &str, answer: &Answer) -> Error {
    let said: String = String::from_utf8_lossy(&answer.body).chars().take(200).collect();
    Error::Wrong(format!("{target} was answered with {}: {said}", answer.status))
}

/// A text, filled up to the length of a form.
fn form(text: &str) -> Vec<u8> {
    let mut form = text.as_bytes().to_vec();
    form.resize(form.len().max(FORM_BYTES), b' ');
    form
}
