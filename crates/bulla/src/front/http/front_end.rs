//! What the core asks of a connection over HTTP.

use super::answers::Refused;
use super::exchange::{Getting, Kept, Listing, Sent, Stage};
use super::kept_answers::Found;
use super::{Acts, Http, KEPT_MAX, Session, message};
use crate::front::client::{Introduction, SolePolicy, TokenRefused};
use crate::front::forwards::Forwards;
use crate::front::link::Granted;
use crate::front::outcome::{Failure, MessageOutcome};
use crate::front::{DeliveryId, Event, FrontEnd, KeptOutcome, LinkId, UnitId, WayOut};
use crate::outgoing::Outgoing;
use crate::sign_in::sessions::LoginId;
use bulla_amqp::{DecodeError, Payload};
use bulla_http::Response;
use bytes::Bytes;
use std::net::SocketAddr;

impl FrontEnd for Http {
    fn poll_event(&mut self) -> Option<Event> {
        self.answer_from_elsewhere();
        loop {
            let event = self.events.pop_front()?;
            if self.forwarding.is_none() {
                return Some(event);
            }
            let event = self.for_core(event);
            if event.is_some() {
                return event;
            }
        }
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty() || self.exchange.as_ref().is_some_and(|exchange| exchange.stage.is_answered_elsewhere())
    }

    /// No credentials take a second step.
    fn challenge(&mut self, _: Bytes) {
        self.signed_in(false);
    }

    fn signed_in(&mut self, ok: bool) {
        if ok {
            let said = Introduction { container: "http".into(), ..Introduction::default() };
            self.events.push_back(Event::Opened(Box::new(said)));
        } else {
            match self.login() {
                Some(_) => self.refuse_session(),
                None => self.refuse_all(Refused::new(401, "credentials", "these credentials are not taken")),
            }
        }
    }

    fn token_refused(&mut self, _: TokenRefused) {
        self.signed_in(false);
    }

    fn sign_in_busy(&mut self) {
        self.refuse_all(Refused::new(503, "sign-in-busy", "too many sign-ins are being checked: try again"));
    }

    fn let_in(&mut self, user: Option<&str>, from: Option<SocketAddr>, generation: u64) {
        let address = from.map_or_else(|| "unknown".to_owned(), |from| from.to_string());
        self.commands.acts =
            Acts { user: user.map(str::to_owned), address, ip: from.map(|from| from.ip()), generation };
    }

    fn accept_open(&mut self, _: Option<SolePolicy>) {
        let Session::Asked(print) = std::mem::replace(&mut self.session, Session::Over) else { return };
        self.session = Session::Open(print);
        let stage =
            self.exchange.as_mut().map(|exchange| std::mem::replace(&mut exchange.stage, Stage::Answered(None)));
        match stage {
            Some(Stage::SigningIn(head)) => {
                self.carry_out(&head);
                // What has come of its body.
                self.pump();
            }
            Some(Stage::LoggingIn(login)) => self.begin_session(*login),
            _ => {}
        }
    }

    fn refuse_open(&mut self, why: Failure) {
        self.close(Some(why));
    }

    fn session(&self) -> Option<LoginId> {
        self.login().filter(|_| matches!(self.session, Session::Open(_)))
    }

    fn close(&mut self, why: Option<Failure>) {
        if self.ends_session(why.as_ref()) {
            self.refuse_session();
            return self.pump();
        }
        let is_unknown = self.is_unknown();
        let refused = why.as_ref().map(|why| Refused::of(why).seen_by(is_unknown));
        let closing = || Refused::new(503, "closing", "the connection closes");
        self.refuse_all(refused.unwrap_or_else(closing));
        self.pump();
    }

    fn is_closed(&self) -> bool {
        self.server.is_closed()
    }

    fn is_ending(&self) -> bool {
        matches!(self.session, Session::Over) || self.server.is_ending()
    }

    fn accept_link(&mut self, link: LinkId, granted: Granted) {
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.stage.link() == Some(link)) else {
            return self.end_link(link);
        };
        match &mut exchange.stage {
            Stage::Putting(putting) => {
                let kept = Kept::new(link, putting.object.clone(), &granted);
                let taken = kept.takes(&putting.length, 0);
                self.kept.push(kept);
                if self.kept.len() > KEPT_MAX {
                    let oldest = self.kept.remove(0).link;
                    self.end_link(oldest);
                }
                match taken {
                    Ok(()) => self.go_on(),
                    Err(refused) => self.refuse(refused),
                }
            }
            Stage::Getting(Getting { under: Some(Found::Message(message)), version, .. }) => {
                let response = message::response(&Payload::from(message.clone()), *version);
                self.respond(response.unwrap_or_else(unreadable), None, false);
            }
            Stage::Getting(Getting { under: Some(Found::Gone), .. }) => self.refuse(Refused::not_kept()),
            Stage::Getting(getting) => {
                getting.credit = 1;
                let (until, drain) = (getting.until, getting.until <= self.now);
                self.events.push_back(Event::Credit { link, drain });
                if !drain {
                    self.events.push_back(Event::DueAt(until));
                }
            }
            Stage::Listing(listing) => {
                listing.credit = listing.limit;
                self.events.push_back(Event::Credit { link, drain: true });
            }
            Stage::SigningIn(_) | Stage::LoggingIn(_) | Stage::Reading(_) | Stage::Waiting(_) | Stage::Answered(_) => {}
        }
        self.pump();
    }

    fn refuse_link(&mut self, link: LinkId, why: Failure) {
        self.refuse_for(link, &why);
    }

    fn detach(&mut self, link: LinkId, why: Failure) {
        self.refuse_for(link, &why);
    }

    fn resumes_only(&self, _: LinkId) -> bool {
        false
    }

    fn take_outcomes(&mut self, _: LinkId) -> Vec<KeptOutcome> {
        Vec::new()
    }

    fn credit(&self, link: LinkId) -> u32 {
        if let Some(kept) = self.kept.iter().find(|kept| kept.link == link) {
            return kept.credit;
        }
        match self.exchange.as_ref().map(|exchange| &exchange.stage) {
            Some(Stage::Getting(getting)) if getting.link == link => getting.credit,
            Some(Stage::Listing(listing)) if listing.link == link => listing.credit,
            _ => 0,
        }
    }

    fn set_credit(&mut self, link: LinkId, credit: u32) {
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.link == link) {
            kept.credit = credit;
        }
        self.deliver();
    }

    fn put_before(&mut self, _: LinkId, id: DeliveryId, message_id: Option<&str>) {
        if let Some(Stage::Putting(putting)) = self.exchange.as_mut().map(|exchange| &mut exchange.stage)
            && putting.delivery == Some(id)
        {
            putting.put_before = message_id.map(str::to_owned);
        }
    }

    fn answer(&mut self, _: LinkId, id: DeliveryId, outcome: MessageOutcome, _: Option<UnitId>) {
        let Some(Stage::Putting(putting)) = self.exchange.as_ref().map(|exchange| &exchange.stage) else { return };
        if putting.delivery != Some(id) {
            return;
        }
        match outcome {
            MessageOutcome::Accepted => {
                let created = Response::new(201).with("ibm-mq-md-messageId", putting.message_id());
                self.respond(created, None, false);
            }
            MessageOutcome::Rejected(Some(why)) => self.refuse(Refused::of(&why)),
            MessageOutcome::Rejected(None) | MessageOutcome::Released | MessageOutcome::Modified { .. } => {
                self.refuse(Refused::new(503, "not-taken", "the message is not taken now"));
            }
        }
    }

    /// No request begins a unit of work.
    fn declared(&mut self, _: LinkId, _: DeliveryId, _: UnitId) {}

    fn can_send(&self, link: LinkId) -> bool {
        self.credit(link) > 0
    }

    fn is_sending(&self, _: LinkId) -> bool {
        self.server.output_len() > 0
    }

    fn send(&mut self, link: LinkId, token: u64, message: Outgoing, settled: bool, _: Option<UnitId>) -> bool {
        self.give(link, token, message.into_payload(), settled)
    }

    fn settle(&mut self, _: LinkId, _: u64, _: MessageOutcome) {}

    fn drained(&mut self, link: LinkId) {
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.stage.link() == Some(link)) else {
            return;
        };
        match &mut exchange.stage {
            Stage::Getting(_) => self.respond(Response::new(204), None, false),
            Stage::Listing(listing) => {
                let rows = std::mem::take(&mut listing.rows);
                self.respond(message::list(rows), None, false);
            }
            _ => {}
        }
    }

    fn forwards(&mut self) -> Option<&mut dyn Forwards> {
        Some(self)
    }

    fn way_out(&mut self) -> Option<&mut dyn WayOut> {
        None
    }
}

impl Http {
    /// Answers a get, or a list, with a message that the client may see. False where no request wants it.
    pub(super) fn give(&mut self, link: LinkId, token: u64, message: Payload, settled: bool) -> bool {
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.stage.link() == Some(link)) else {
            return false;
        };
        match &mut exchange.stage {
            Stage::Getting(Getting { credit: credit @ 1.., version, takes, under, .. }) => {
                *credit -= 1;
                let version = *version;
                let keeps = match under.take() {
                    Some(Found::Nothing(claim)) => Some((claim, message.clone())),
                    _ => None,
                };
                let sent = (*takes && !settled).then_some(Sent { link, token, keeps });
                if sent.is_none() && !settled {
                    let outcome = Some(MessageOutcome::Released);
                    self.events.push_back(Event::Outcome { link, token, outcome, unit: None, settled: true });
                }
                match message::response(&message, version) {
                    Ok(response) => self.respond(response, sent, false),
                    Err(error) => self.respond(unreadable(error), None, false),
                }
            }
            Stage::Listing(Listing { credit: credit @ 1.., rows, .. }) => {
                *credit -= 1;
                let is_full = *credit == 0;
                rows.extend(message::row(&message).ok());
                if !settled {
                    let outcome = Some(MessageOutcome::Released);
                    self.events.push_back(Event::Outcome { link, token, outcome, unit: None, settled: true });
                }
                if is_full {
                    self.drained(link);
                }
            }
            _ => return false,
        }
        true
    }
}

/// The answer in place of a message that no one can read.
fn unreadable(_: DecodeError) -> Response {
    Refused::new(500, "malformed-message", "the message can't be read").response()
}
