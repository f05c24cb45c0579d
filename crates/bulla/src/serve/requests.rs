//! What comes over HTTP and no dispatcher does: commands, and what is asked of single objects.

use super::overseer::Overseer;
use super::pools::Threads;
use super::{counts, overseen};
use crate::asker::Who;
use crate::authority::{Right, Role, role_of_user};
use crate::catalog::Sort;
use crate::denials;
use crate::front::http::answers::Refused;
use crate::front::http::commands::{self, Answer, Asked, SHOWN_BYTES_MAX, Work};
use crate::front::http::queue::{self, Changes, Shown};
use crate::metrics;
use crate::mqsc::compose::Pieces;
use crate::mqsc::parse::{Statement, statements};
use crate::mqsc::reply::{Outcome, Row};
use crate::mqsc::run::Oversight;
use crate::reason::{self, Refusal};
use bulla_http::{HeaderValue, Response};
use serde_json::json;
use std::time::Instant;

/// The command that shows what metrics show: they take its role.
const SHOWS_COUNTS: &str = "DISPLAY QSTATUS(*)";
const METRICS: HeaderValue = HeaderValue::from_static(metrics::CONTENT_TYPE);
const JSON: HeaderValue = HeaderValue::from_static("application/json;charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Does what a request asks for.
pub(super) fn carry_out(threads: &Threads, asked: &mut Asked) -> Answer {
    let client = Client { threads, user: asked.user.as_deref(), address: &asked.address };
    match &mut asked.work {
        Work::Commands { text, answers } => {
            // The front end asks for none for a client without a user.
            let user = client.user.unwrap_or_default().to_owned();
            let overseer = Overseer::for_user(&threads.manager, user, client.address.to_owned());
            let replies = overseen(threads, overseer, SHOWN_BYTES_MAX, text);
            commands::answer(&replies, *answers)
        }
        Work::Inquire { queue, shown } => client.inquire(queue, shown),
        Work::Set { queue, changes } => client.set(queue, std::mem::take(changes)),
        Work::Metrics => client.metrics(),
        Work::WhoAmI => Ok(client.who()),
    }
}

/// Who asks.
struct Client<'a> {
    threads: &'a Threads,
    user: Option<&'a str>,
    address: &'a str,
}

impl Client<'_> {
    /// A queue's attributes, and what goes on there (MQINQ).
    fn inquire(&self, queue: &str, shown: &Shown) -> Answer {
        self.check(Right::Inquire, queue)?;
        let sort = self.sort(queue)?;
        let defined = self.row(pieces("DISPLAY", word(sort), queue, &["ALL"]))?;
        let status = match sort {
            Sort::Local => Some(self.row(pieces("DISPLAY", "QSTATUS", queue, queue::STATUS_KEYWORDS))?),
            _ => None,
        };
        Ok(queue::response(&defined, status.as_ref(), shown))
    }

    /// Changes whether a queue takes and gives messages, and its trigger (MQSET). Warnings name what else the queue is
    /// defined with, so they are for a client that may be shown that.
    fn set(&self, queue: &str, changes: Changes) -> Answer {
        self.check(Right::Set, queue)?;
        let sort = self.sort(queue)?;
        if sort == Sort::Model {
            let detail = format!("{queue} is a model queue: there are no messages on it");
            return Err(Refused::of_refusal(&Refusal::new(reason::OPTION_NOT_VALID_FOR_TYPE, detail)));
        }
        let word = word(sort);
        if let Some(other) = changes.of_type.filter(|other| *other != word) {
            return Err(Refused::new(400, "attribute", format!("{queue} is of type {word}, not {other}")));
        }
        let alter = Pieces { given: changes.given, ..pieces("ALTER", word, queue, &[]) };
        match self.carry_out(&alter)? {
            Outcome::Done { warnings, .. } if !warnings.is_empty() && self.may(Right::Inquire, queue) => {
                let body = json!({ "warnings": warnings }).to_string();
                Ok(Response::new(200).with("content-type", JSON).body(body))
            }
            _ => Ok(Response::new(204)),
        }
    }

    /// What was counted, to a user who may have it shown by a command.
    fn metrics(&self) -> Answer {
        // The front end asks for none for a client without a user.
        let user = self.user.unwrap_or_default().to_owned();
        let mut overseer = Overseer::for_user(&self.threads.manager, user, self.address.to_owned());
        let commands: Vec<Statement> = statements(SHOWS_COUNTS).into_iter().flatten().collect();
        let checked = overseer.before(&commands.iter().collect::<Vec<_>>());
        checked
            .map_err(|error| Refused::new(403, "role", error.to_string()).with_reason(reason::NOT_AUTHORIZED.code))?;
        let text = counts(self.threads).text();
        Ok(Response::new(200).with("content-type", METRICS).with("cache-control", NO_STORE).body(text))
    }

    /// Who the client is, in the published form and by the published words for roles.
    fn who(&self) -> Response {
        // The front end asks for none for a client without a user.
        let user = self.user.unwrap_or_default();
        let role = role_of_user(user, &self.threads.manager.lock().definitions.authorities.administrators);
        let of_commands = role.map(|role| if role == Role::Look { "MQWebAdminRO" } else { "MQWebAdmin" });
        let roles: Vec<&str> = of_commands.into_iter().chain(["MQWebUser"]).collect();
        let body = json!({ "user": [{ "name": user, "role": roles }] }).to_string();
        Response::new(200).with("content-type", JSON).with("cache-control", NO_STORE).body(body)
    }

    /// Whether the client has a right on a name as it is opened. It is asked before the name is looked up, and a
    /// refusal says nothing of whether there is such a queue.
    fn check(&self, right: Right, name: &str) -> Result<(), Refused> {
        let manager = &self.threads.manager;
        let checked = manager.lock().check(Who::of_message(self.user, None), right, name);
        checked.map(drop).map_err(|refusal| {
            denials::tell(manager, Instant::now(), self.address, self.user, &refusal);
            manager.ring_all();
            Refused::of_refusal(&refusal)
        })
    }

    /// Whether the client has a right, where it is not refused anything for want of it.
    fn may(&self, right: Right, name: &str) -> bool {
        self.threads.manager.lock().check(Who::of_message(self.user, None), right, name).is_ok()
    }

    /// What sort of queue has that name. A command would take it for many names where it ends in `*`: no queue's does.
    fn sort(&self, name: &str) -> Result<Sort, Refused> {
        let state = self.threads.manager.lock();
        let sorts = [Sort::Local, Sort::Alias, Sort::Remote, Sort::Model];
        let found = sorts.into_iter().find(|sort| state.definitions.has(*sort, name));
        found.ok_or_else(|| Refused::of_refusal(&Refusal::new(reason::UNKNOWN_OBJECT_NAME, name)))
    }

    /// The only row that a command shows.
    fn row(&self, pieces: Pieces) -> Result<Row, Refused> {
        let unexpected = || Refused::new(500, "unexpected", "the queue can't be shown");
        match self.carry_out(&pieces)? {
            Outcome::Rows(rows) => rows.into_iter().next().ok_or_else(unexpected),
            _ => Err(unexpected()),
        }
    }

    /// Has a command carried out, whose right was asked for.
    fn carry_out(&self, pieces: &Pieces) -> Result<Outcome, Refused> {
        let text = pieces.text().map_err(|error| Refused::new(400, "attribute", error.to_string()))?;
        let manager = &self.threads.manager;
        let overseer = Overseer::for_holder(manager, self.user.map(str::to_owned), self.address.to_owned());
        let mut replies = overseen(self.threads, overseer, SHOWN_BYTES_MAX, &text);
        match replies.pop().map(|reply| reply.outcome) {
            Some(Outcome::Failed(failure)) => Err(Refused::of_command(&failure)),
            Some(outcome) => Ok(outcome),
            None => Err(Refused::new(500, "unexpected", "the queue manager did not take the command")),
        }
    }
}

fn pieces(verb: &str, noun: &str, name: &str, shown: &[&str]) -> Pieces {
    Pieces {
        verb: verb.to_owned(),
        noun: noun.to_owned(),
        name: Some(name.to_owned()),
        shown: shown.iter().map(|word| (*word).to_owned()).collect(),
        ..Pieces::default()
    }
}

/// What MQSC calls a sort of queue.
fn word(sort: Sort) -> &'static str {
    match sort {
        Sort::Alias => "QALIAS",
        Sort::Remote => "QREMOTE",
        Sort::Model => "QMODEL",
        _ => "QLOCAL",
    }
}
