//! Those who serve customers, over AMQP: a broker who fills orders and publishes prices, an office that takes profiles
//! and sign-ups, and one who watches the topics.

use super::market::{ALL_TOPICS, PRICES, confirmation, queue};
use crate::error::{Error, Result};
use crate::load::APPLICATION;
use crate::load::client::{Broker, Client, not_taken};
use bulla_amqp::message::{MessageBody, MessageParts, Sections};
use bulla_amqp::{DeliveryState, Event, LinkId, MessageId, Payload, Properties};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Credit of what is got.
const CREDIT: u32 = 64;

/// What the staff has done.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    stop: AtomicBool,
    /// Orders that were filled.
    pub(super) orders: AtomicU64,
    /// Profiles and sign-ups that were taken.
    pub(super) forms: AtomicU64,
    /// Publications that came.
    pub(super) publications: AtomicU64,
}

/// The staff at work.
#[derive(Debug)]
pub(super) struct Staff {
    pub(super) ledger: Arc<Ledger>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Staff {
    /// Signs all of them in, and starts their work.
    ///
    /// # Errors
    /// [`Error::Broker`]: one of them was not let in.
    pub(super) fn start(broker: &Broker) -> Result<Staff> {
        let mut staff = Staff { ledger: Arc::default(), threads: Vec::new() };
        let mut fills = Client::connect(broker, "broker")?;
        let confirmed = fills.sender(queue::CONFIRMED)?.id;
        let prices = fills.sender(PRICES)?.id;
        let orders = fills.receiver(queue::ORDERS, CREDIT)?.id;
        staff.hire("broker", move |ledger| fill(fills, orders, confirmed, prices, ledger))?;
        let mut takes = Client::connect(broker, "office")?;
        let links = vec![takes.receiver(queue::PROFILES, CREDIT)?.id, takes.receiver(queue::CUSTOMERS, CREDIT)?.id];
        staff.hire("office", move |ledger| take(takes, links, ledger, |ledger| &ledger.forms))?;
        let mut watches = Client::connect(broker, "watch")?;
        let links = vec![watches.receiver(ALL_TOPICS, CREDIT)?.id];
        staff.hire("watch", move |ledger| take(watches, links, ledger, |ledger| &ledger.publications))?;
        Ok(staff)
    }

    fn hire(&mut self, name: &str, work: impl FnOnce(&Ledger) -> Result<()> + Send + 'static) -> Result<()> {
        let ledger = Arc::clone(&self.ledger);
        let thread = std::thread::Builder::new().name(format!("{APPLICATION}{name}")).spawn(move || work(&ledger))?;
        self.threads.push(thread);
        Ok(())
    }

    /// All of them are at work.
    pub(super) fn goes_on(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends their work.
    ///
    /// # Errors
    /// What went wrong for one of them.
    pub(super) fn stop(self) -> Result<()> {
        self.ledger.stop.store(true, Ordering::Release);
        let ends: Vec<Result<()>> = self.threads.into_iter().map(crate::load::ended).collect();
        ends.into_iter().collect()
    }
}

/// Fills orders: each is confirmed to who gave it, makes a price, and is done with then.
fn fill(mut client: Client, orders: LinkId, confirmed: LinkId, prices: LinkId, ledger: &Ledger) -> Result<()> {
    let mut number = 0;
    while !ledger.stop.load(Ordering::Acquire) {
        client.read(None)?;
        while let Some(event) = client.event()? {
            match event {
                Event::Delivery(delivery) => {
                    let order = label(&delivery.payload)?;
                    number += 1;
                    client.engine.send(confirmed, number, message(Some(&order), &confirmation(&order)), false);
                    client.engine.send(prices, number, message(None, &format!("{order} 100.00")), false);
                    client.engine.dispose(orders, delivery.id, DeliveryState::Accepted);
                    ledger.orders.fetch_add(1, Ordering::AcqRel);
                }
                Event::Outcome { state: Some(DeliveryState::Accepted) | None, .. } => {}
                Event::Outcome { state, token, .. } => return Err(not_taken(token, &state)),
                _ => {}
            }
        }
        top_up(&mut client, orders);
        client.flush()?;
    }
    client.close()
}

/// Takes what comes.
fn take(
    mut client: Client,
    links: Vec<LinkId>,
    ledger: &Ledger,
    counter: impl Fn(&Ledger) -> &AtomicU64,
) -> Result<()> {
    while !ledger.stop.load(Ordering::Acquire) {
        client.read(None)?;
        while let Some(event) = client.event()? {
            if let Event::Delivery(delivery) = event {
                client.engine.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
                counter(ledger).fetch_add(1, Ordering::AcqRel);
            }
        }
        links.iter().for_each(|link| top_up(&mut client, *link));
        client.flush()?;
    }
    client.close()
}

fn top_up(client: &mut Client, link: LinkId) {
    if client.engine.credit(link) <= CREDIT / 2 {
        client.engine.set_credit(link, CREDIT);
    }
}

/// The correlation id of an order.
fn label(message: &Payload) -> Result<String> {
    let wrong = |why: &dyn std::fmt::Display| Error::Wrong(format!("an order can't be read: {why}"));
    let sections = Sections::scan(message).map_err(|error| wrong(&error))?;
    let properties = sections.decode_properties(message).map_err(|error| wrong(&error))?;
    match properties.correlation_id {
        Some(MessageId::String(id)) => Ok(id.to_string()),
        other => Err(wrong(&format!("its correlation id is {other:?}"))),
    }
}

fn message(correlation_id: Option<&str>, text: &str) -> Payload {
    let id = correlation_id.map(|id| MessageId::String(id.into()));
    let mut properties = Vec::new();
    Properties { correlation_id: id, ..Properties::default() }.encode_section(&mut properties);
    let body = MessageBody::Data(Payload::from(Bytes::from(text.to_owned())));
    MessageParts { properties: properties.into(), body, ..MessageParts::default() }.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_known_by_its_label() {
        assert_eq!(label(&message(Some("o-1-2"), "buy")).unwrap(), "o-1-2");
        let error = label(&message(None, "buy")).unwrap_err().to_string();
        assert!(error.contains("correlation id"), "{error}");
        let error = label(&Payload::from(Bytes::from_static(b"no message"))).unwrap_err().to_string();
        assert!(error.starts_with("an order can't be read"), "{error}");
    }
}
