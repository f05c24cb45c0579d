//! HTTP as a front end: a request puts, gets, shows or lists messages, shows or changes a queue, has commands carried
//! out, or asks whether the queue manager is well.
//!
//! A connection has one user, by the credentials of its first request, and one request at a time: [`Exchange`]. Each
//! request opens what it needs as links of the core; those that put are kept for the next request. The interface is
//! that of the messaging REST API that programs for IBM MQ call; `docs/operating/http.md` says where it differs.

pub(crate) mod answers;
pub(crate) mod commands;
mod credentials;
mod exchange;
mod forwarding;
mod front_end;
mod health;
mod ids;
pub(crate) mod kept_answers;
mod login;
mod message;
mod openapi;
pub(crate) mod queue;
mod routes;
mod table;
mod text;
mod user_properties;
mod wire;

use super::link::{Attach, Get, Place, Put, Wants};
use super::outcome::{Failure, MessageOutcome};
use super::{Delivery, DeliveryId, Event, Front, LinkId, SessionId};
use crate::dispatcher::local::Local;
use crate::mailbox::Mailbox;
use crate::manager::Manager;
use crate::random::Random;
use crate::sign_in::sessions::LoginId;
use answers::Refused;
use bulla_http::{BodyLen, Event as ServerEvent, Head, HeaderLines, HeaderValue, Limits, RequestId, Response, Server};
use bytes::Bytes;
use commands::{CommandLine, Work};
use credentials::Fingerprint;
use exchange::{BodyOf, Exchange, Getting, Kept, Listing, Object, Putting, Reading, Sent, Stage};
use forwarding::{Forwarding, Wish};
use kept_answers::{KeptAnswers, Keyed};
use routes::{Act, Asked, Wanted};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::{Does, Version};

/// The session of all links.
const SESSION: SessionId = SessionId(0);
/// Links that put which a connection keeps: programs put on few queues.
const KEPT_MAX: usize = 4;
/// How long a put waits for room on its queue.
const PUT_WITHIN: Duration = Duration::from_secs(10);
/// Browsers that have been here by TLS come by TLS from now on, for a year (RFC 6797).
const STRICT_TRANSPORT_SECURITY: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// What all connections have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Where commands go.
    pub(crate) commands: CommandLine,
    /// Answers to gets under idempotency keys.
    pub(crate) kept_answers: KeptAnswers,
}

/// One connection.
pub(crate) struct Http {
    server: Server,
    manager: Arc<Manager>,
    /// Where commands go, and whose they are.
    commands: Commands,
    kept_answers: KeptAnswers,
    /// The client has shown a verified certificate.
    certificate: bool,
    /// It is protected by TLS.
    tls: bool,
    random: Random,
    /// What credentials are digested under.
    key: [u8; 32],
    session: Session,
    /// The request that is being carried out.
    exchange: Option<Exchange>,
    /// The session of the cookie that came with a log-in whose body is being read.
    replaced: Option<LoginId>,
    /// The request behind it, which came before its answer was written.
    next: Option<(RequestId, Box<Head>)>,
    /// Open links that put, the one used last at the end.
    kept: Vec<Kept>,
    /// What the link is for that was asked for last.
    wish: Option<(LinkId, Wish)>,
    /// Links to queues of shared groups that other queue managers own. None for most connections.
    forwarding: Option<Box<Forwarding>>,
    /// What the core has not heard yet.
    events: VecDeque<Event>,
    last_handle: u64,
    /// Messages that have come whole.
    arrived: u64,
    /// The time, as it was last told.
    now: Instant,
}

/// What a connection has for commands.
struct Commands {
    /// Where they go.
    line: CommandLine,
    /// Where their answers are posted: to the dispatcher that has the connection.
    mailbox: Arc<Mailbox>,
    /// As whom the connection acts, once it was let in.
    acts: Acts,
}

/// As whom a connection acts.
#[derive(Default)]
struct Acts {
    user: Option<String>,
    address: String,
    /// The same without its port; none for a client that is gone.
    ip: Option<IpAddr>,
    /// Which of its dispatcher's connections it is.
    generation: u64,
}

/// How far a connection has come.
enum Session {
    /// No request has come.
    New,
    /// The core looks at the credentials of the first one.
    Asked(Fingerprint),
    /// Requests with those credentials are carried out.
    Open(Fingerprint),
    /// No further request is carried out.
    Over,
}

impl Session {
    /// Whether no credentials came with the first request.
    fn is_anonymous(&self) -> bool {
        matches!(self, Self::Asked(print) | Self::Open(print) if *print == Fingerprint::default())
    }
}

/// The front end of a new connection. `certificate` says that the client has shown a verified one, and `tls` that the
/// connection is protected by TLS; one that is not comes from this machine.
pub(crate) fn front(local: &Local, common: Common, certificate: bool, tls: bool) -> Box<Front> {
    let (manager, mailbox) = (local.manager.clone(), local.mailbox.clone());
    Box::new(Http::new((manager, common, mailbox), Random::system(), certificate, tls, local.now))
}

impl Http {
    fn new(
        (manager, common, mailbox): (Arc<Manager>, Common, Arc<Mailbox>),
        mut random: Random,
        certificate: bool,
        tls: bool,
        now: Instant,
    ) -> Self {
        // How long a body may be is the queue's to say, and it comes only after its link was opened.
        let limits = Limits { pipelined_max: 1, body_bytes_max: u64::MAX, ..Limits::default() };
        let mut server = Server::new(limits, now);
        if tls {
            server.set_always(HeaderLines::new(&[("strict-transport-security", STRICT_TRANSPORT_SECURITY)]));
        }
        Self {
            server,
            manager,
            commands: Commands { line: common.commands, mailbox, acts: Acts::default() },
            kept_answers: common.kept_answers,
            certificate,
            tls,
            key: random.bytes(),
            random,
            session: Session::New,
            exchange: None,
            replaced: None,
            next: None,
            kept: Vec::new(),
            wish: None,
            forwarding: None,
            events: VecDeque::new(),
            last_handle: 0,
            arrived: 0,
            now,
        }
    }

    fn handle(&mut self) -> u64 {
        self.last_handle += 1;
        self.last_handle
    }

    /// Takes what the client did.
    fn pump(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                // The answer before it is not written yet.
                ServerEvent::Request { id, head } if self.exchange.is_some() => self.next = Some((id, head)),
                ServerEvent::Request { id, head } => self.begin(id, head),
                ServerEvent::Body { bytes, id } if self.is_current(id) => self.body(bytes),
                ServerEvent::End { id } if self.is_current(id) => self.whole(),
                ServerEvent::Aborted { id } if self.is_current(id) => self.end_exchange(false),
                ServerEvent::Aborted { .. } => self.next = None,
                ServerEvent::Written { id } if self.is_current(id) => self.end_exchange(true),
                // The next one says by its length that nothing comes behind its head.
                ServerEvent::Body { .. } | ServerEvent::End { .. } | ServerEvent::Written { .. } => {}
                ServerEvent::Closed => self.events.push_back(Event::Closed(None)),
            }
        }
    }

    fn is_current(&self, request: RequestId) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.request == request)
    }

    /// A request has come. The first one signs in, and so does a log-in. Browsers keep their connections over log-in
    /// and log-out: one of theirs signs in anew where its cookie is another one, or is gone.
    fn begin(&mut self, request: RequestId, head: Box<Head>) {
        self.exchange = Some(Exchange { request, stage: Stage::Answered(None) });
        if let Some(asked) = routes::asked_by_everyone(&head) {
            let response = asked.map(|asked| match asked {
                Does::Describe => openapi::answer(),
                asked => health::answer(asked, routes::answered(&head), &self.manager),
            });
            return self.respond(response.unwrap_or_else(Refused::response), None, false);
        }
        match routes::asked_to_log_in(&head) {
            Some(Ok(())) => return self.read_log_in(&head),
            Some(Err(refused)) => return self.refuse_all(refused),
            None => {}
        }
        let print = match credentials::fingerprint(&head, &self.key) {
            Ok(print) => print,
            Err(refused) => return self.refuse_all(refused),
        };
        match &self.session {
            Session::Open(known) if *known == print => match print {
                Fingerprint::Session(login) if !self.uses(login) => self.refuse_session(),
                _ => self.carry_out(&head),
            },
            Session::Open(known) if !(known.is_of_browser() && print.is_of_browser()) => {
                let why = "this connection has signed in with other credentials: use a connection for each user";
                self.refuse_all(Refused::new(403, "other-credentials", why));
            }
            Session::New | Session::Open(_) => match credentials::proof(&head, &print, self.certificate) {
                Ok(proof) => {
                    self.set_stage(Stage::SigningIn(head));
                    self.sign_in(print, proof);
                }
                Err(refused) => self.refuse_all(refused),
            },
            Session::Asked(_) | Session::Over => self.refuse_all(Refused::new(503, "closing", "the connection closes")),
        }
    }

    /// Does what a request asks for, as far as that is possible before the core answers.
    fn carry_out(&mut self, head: &Head) {
        let begun = routes::asked(head).and_then(|Asked { version, manager, act }| {
            if !manager.is_empty() && manager != self.manager.name {
                let why = format!("this is the queue manager {}", self.manager.name);
                return Err(Refused::new(404, "queue-manager", why));
            }
            match act {
                Act::LogOut => return Ok(None),
                Act::Put(queue) => self.put(head, version, Object::Queue(queue)),
                Act::Publish(topic) => self.put(head, version, Object::Topic(topic)),
                Act::Get(wanted) => self.get(wanted, version, Some(head)),
                Act::Browse(wanted) => self.get(wanted, version, None),
                Act::List(wanted, limit) => self.list(wanted, limit),
                Act::Command(form, answers) => self.command(head, form, answers),
                Act::Inquire(queue, shown) => self.elsewhere(Work::Inquire { queue, shown }),
                Act::Meter => self.of_a_user().and_then(|()| self.elsewhere(Work::Metrics)),
                Act::Set(queue) => self.read(head, BodyOf::Attributes(queue)),
                Act::WhoAmI => self.of_a_user().and_then(|()| self.elsewhere(Work::WhoAmI)),
            }
            .map(Some)
        });
        match begun {
            Ok(Some(stage)) => self.set_stage(stage),
            Ok(None) => self.log_out(),
            Err(refused) => self.refuse(refused),
        }
        self.deliver();
    }

    fn put(&mut self, head: &Head, version: Version, object: Object) -> Result<Stage, Refused> {
        let labels = message::Labels::read(head, version, ids::of_bytes(self.random.bytes()))?;
        let link = match self.kept.iter().position(|kept| kept.object == object) {
            Some(place) => {
                let kept = self.kept.remove(place);
                kept.takes(&head.body, 0)?;
                let link = kept.link;
                self.kept.push(kept);
                self.go_on();
                link
            }
            None => {
                let place = match &object {
                    Object::Queue(name) => Place::Named { name: name.clone(), is_topic: false },
                    Object::Topic(name) => Place::Named { name: name.clone(), is_topic: true },
                };
                self.attach(Wants::Put(Put { place, ..Put::default() }))
            }
        };
        let give_up_at = self.now + PUT_WITHIN;
        Ok(Stage::Putting(Box::new(Putting::new(link, object, labels, head.body, give_up_at))))
    }

    /// A message is to be got, or shown. One that is got, by a request with that head, leaves its queue.
    fn get(&mut self, wanted: Wanted, version: Version, head: Option<&Head>) -> Result<Stage, Refused> {
        let key = head.map(message::idempotency_key).transpose()?.flatten();
        let under = match &key {
            None => None,
            Some(key) => {
                self.of_a_user()?;
                let user = self.commands.acts.user.as_deref().unwrap_or_default();
                let keyed = Keyed { user, queue: &wanted.queue, key, selector: wanted.selector.as_deref() };
                let found = self.kept_answers.ask(&keyed, self.now);
                Some(found.map_err(|refusal| Refused::of_refusal(&refusal))?)
            }
        };
        // Also where the message was got before: whether the user may get it is asked each time.
        let (wait, takes) = (wanted.wait, head.is_some());
        let link = self.attach_to_get(wanted, !takes);
        Ok(Stage::Getting(Getting { link, version, takes, under, until: self.now + wait, is_late: false, credit: 0 }))
    }

    fn list(&mut self, wanted: Wanted, limit: u32) -> Result<Stage, Refused> {
        let link = self.attach_to_get(wanted, true);
        Ok(Stage::Listing(Listing { link, credit: 0, limit, rows: Vec::new() }))
    }

    fn attach_to_get(&mut self, wanted: Wanted, browses: bool) -> LinkId {
        let place = Place::Named { name: wanted.queue, is_topic: false };
        self.attach(Wants::Get(Box::new(Get { place, browses, selector: wanted.selector, ..Get::default() })))
    }

    fn attach(&mut self, wants: Wants) -> LinkId {
        let link = LinkId(self.handle());
        self.wish = Wish::of(&wants).map(|wish| (link, wish));
        self.events.push_back(Event::Attached(Box::new(Attach {
            link,
            session: SESSION,
            name: format!("http-{}", link.0),
            wants,
            unreadable: None,
            takes_rejected: true,
            keep: None,
            unsettled: None,
            incomplete_unsettled: false,
        })));
        link
    }

    /// Commands come. They are carried out for users that have a role: the thread that carries them out asks.
    fn command(&mut self, head: &Head, form: commands::Form, answers: commands::Form) -> Result<Stage, Refused> {
        self.of_a_user()?;
        self.read(head, BodyOf::Commands(form, answers))
    }

    /// Whether the client is a user who has signed in.
    ///
    /// # Errors
    /// 401.
    fn of_a_user(&self) -> Result<(), Refused> {
        if self.is_unknown() || self.commands.acts.user.is_none() {
            return Err(Refused::new(401, "credentials", "this is for users who have signed in"));
        }
        Ok(())
    }

    /// Lets a body come that another thread gets.
    fn read(&mut self, head: &Head, body_of: BodyOf) -> Result<Stage, Refused> {
        let reading = Reading::new(body_of);
        reading.takes(match head.body {
            BodyLen::None | BodyLen::Counted(0) => return Err(Refused::new(400, "body", "there is no body")),
            BodyLen::Counted(bytes) => bytes,
            BodyLen::Chunked => 0,
        })?;
        self.go_on();
        Ok(Stage::Reading(Box::new(reading)))
    }

    /// Has another thread do something.
    fn elsewhere(&self, work: Work) -> Result<Stage, Refused> {
        let Commands { line, mailbox, acts } = &self.commands;
        let who = (acts.user.as_deref(), acts.address.as_str());
        line.ask(who, work, mailbox, acts.generation).map(Stage::Waiting)
    }

    /// A body that was to be read is whole.
    fn ask(&mut self) {
        let Some(Stage::Reading(reading)) = self.exchange.as_mut().map(|exchange| &mut exchange.stage) else { return };
        if matches!(reading.body_of, BodyOf::LogIn) {
            let body = std::mem::take(&mut reading.body);
            return self.log_in(&body);
        }
        match reading.work().and_then(|work| self.elsewhere(work)) {
            Ok(stage) => self.set_stage(stage),
            Err(refused) => self.refuse(refused),
        }
    }

    /// The answer of another thread, where it has come.
    fn answer_from_elsewhere(&mut self) {
        let Some(Stage::Waiting(awaited)) = self.exchange.as_ref().map(|exchange| &exchange.stage) else { return };
        match awaited.take() {
            Some(Ok(response)) => self.respond(response, None, false),
            Some(Err(refused)) => self.refuse(refused.seen_by(self.is_unknown())),
            None => {}
        }
    }

    /// Whether the client has not said who it is. A rule for connections may have given it a user all the same.
    fn is_unknown(&self) -> bool {
        !self.certificate && self.session.is_anonymous()
    }

    /// A piece of a body has come.
    fn body(&mut self, bytes: Bytes) {
        if let Some(Stage::Reading(reading)) = self.exchange.as_mut().map(|exchange| &mut exchange.stage) {
            let come = reading.body.len() as u64 + bytes.len() as u64;
            return match reading.takes(come) {
                Ok(()) => reading.body.extend_from_slice(&bytes),
                Err(refused) => self.refuse(refused),
            };
        }
        let Some(Stage::Putting(putting)) = self.exchange.as_mut().map(|exchange| &mut exchange.stage) else { return };
        putting.body.push(bytes);
        let link = putting.link;
        let checked = match self.kept.iter().find(|kept| kept.link == link) {
            Some(kept) => kept.takes(&bulla_http::BodyLen::Chunked, putting.body.len() as u64),
            None => Ok(()),
        };
        if let Err(refused) = checked {
            self.refuse(refused);
        }
    }

    /// A request has come whole.
    fn whole(&mut self) {
        if let Some(Stage::Putting(putting)) = self.exchange.as_mut().map(|exchange| &mut exchange.stage) {
            putting.is_whole = true;
        }
        self.ask();
        self.deliver();
    }

    /// Hands the core a message that is whole, where its link has credit.
    fn deliver(&mut self) {
        let handle = self.last_handle + 1;
        let Some(Stage::Putting(putting)) = self.exchange.as_mut().map(|exchange| &mut exchange.stage) else { return };
        let link = putting.link;
        let Some(kept) = self.kept.iter_mut().find(|kept| kept.link == link && kept.credit > 0) else { return };
        if !putting.is_whole || putting.delivery.is_some() {
            return;
        }
        kept.credit -= 1;
        self.last_handle = handle;
        self.arrived += 1;
        let id = DeliveryId(handle);
        putting.delivery = Some(id);
        let payload = putting.labels.message(std::mem::take(&mut putting.body));
        self.events.push_back(Event::Delivery(Delivery {
            link,
            id,
            tag: None,
            settled: false,
            beyond_credit: false,
            unit: None,
            payload,
        }));
    }

    /// Lets the body of the request come.
    fn go_on(&mut self) {
        if let Some(exchange) = &self.exchange {
            self.server.go_on(exchange.request);
        }
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Some(exchange) = &mut self.exchange {
            exchange.stage = stage;
        }
    }

    /// Answers the request.
    fn respond(&mut self, response: Response, sent: Option<Sent>, closes: bool) {
        let Some(exchange) = &mut self.exchange else { return };
        let settles = sent.is_some();
        let before = std::mem::replace(&mut exchange.stage, Stage::Answered(sent));
        self.server.respond(exchange.request, response, closes);
        if !settles && let Some(link) = before.link_that_gets() {
            self.end_link(link);
        }
    }

    fn refuse(&mut self, refused: Refused) {
        self.respond(refused.response(), None, false);
    }

    /// Refuses the request, and all that may come behind it.
    fn refuse_all(&mut self, refused: Refused) {
        self.session = Session::Over;
        if self.exchange.as_ref().is_some_and(|exchange| !matches!(exchange.stage, Stage::Answered(Some(_)))) {
            self.respond(refused.response(), None, true);
        }
        self.server.close();
    }

    /// A link was refused, or ended: so is the request that needs it.
    fn refuse_for(&mut self, link: LinkId, why: &Failure) {
        self.kept.retain(|kept| kept.link != link);
        let Some(exchange) = &mut self.exchange else { return };
        match &mut exchange.stage {
            Stage::Answered(sent) if sent.as_ref().is_some_and(|sent| sent.link == link) => *sent = None,
            stage if stage.link() == Some(link) => {
                let refused = Refused::of(why).seen_by(!self.certificate && self.session.is_anonymous());
                // The core has ended the link.
                *stage = Stage::Answered(None);
                self.refuse(refused);
            }
            _ => {}
        }
    }

    fn end_link(&mut self, link: LinkId) {
        self.events.push_back(Event::Detached { link, closed: true, why: None });
    }

    /// The request is over: its answer was given to the socket, or never will be.
    fn end_exchange(&mut self, is_written: bool) {
        let Some(Exchange { stage, .. }) = self.exchange.take() else { return };
        if let Stage::Answered(Some(Sent { link, token, keeps })) = stage {
            if is_written && let Some((claim, message)) = keeps {
                claim.keep(&message, self.manager.clock.now());
            }
            let outcome = if is_written { MessageOutcome::Accepted } else { MessageOutcome::Released };
            self.events.push_back(Event::Outcome { link, token, outcome: Some(outcome), unit: None, settled: true });
            self.end_link(link);
        } else if let Some(link) = stage.link_that_gets() {
            self.end_link(link);
        }
        if let Some((request, head)) = self.next.take() {
            self.begin(request, head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a request.
    pub(super) fn head(text: &str) -> Box<Head> {
        let mut server = Server::new(Limits::default(), Instant::now());
        server.receive(Instant::now(), text.as_bytes());
        match server.poll_event() {
            Some(ServerEvent::Request { head, .. }) => head,
            other => panic!("{other:?}: {text}"),
        }
    }
}
