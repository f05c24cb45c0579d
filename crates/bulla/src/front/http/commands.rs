//! Commands of the admin language that come over HTTP, and what else a dispatcher carries out none of, because it waits
//! for the journal or takes its time: what a request says, how it is answered, and the way to the thread that does it.

use super::answers::Refused;
use super::queue::{Changes, Shown};
use crate::authority::ANONYMOUS;
use crate::front::Answered;
use crate::mailbox::{Mailbox, Notice};
use crate::mqsc::Reply;
use crate::mqsc::compose::{Given, Pieces};
use crate::mqsc::reply::{FailureKind, Outcome};
use crate::reason;
use bulla_http::{HeaderValue, Response};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest body of a request, in bytes. One thread carries out all commands: this bounds for how long a request of many
/// short ones keeps others waiting.
pub(super) const BODY_BYTES_MAX: u64 = 128 << 10;
/// Requests that wait to be carried out, of all users.
const WAITING_MAX: usize = 64;
/// Those of one user, the one that is being carried out included.
const WAITING_OF_USER_MAX: usize = 2;
/// Bytes that are shown, roughly, before commands that show more are refused.
pub(crate) const SHOWN_BYTES_MAX: usize = 4 << 20;
/// Longest answer, in bytes: more rows are asked for in parts.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// MQ's completion codes.
const DONE: u8 = 0;
const WARNED: u8 = 1;
const FAILED: u8 = 2;
/// MQ's reason code for a command that failed, where it says no other one.
const COMMAND_FAILED: u32 = 3008;

const JSON: HeaderValue = HeaderValue::from_static("application/json;charset=utf-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");

/// How commands are written in a request, and their answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// JSON, as published: `{"type": "runCommand", "parameters": {"command": "…"}}`, and answers as lines.
    Json,
    /// The text itself.
    Text,
    /// Answers alone, to `{"type": "runCommandJSON", …}`: JSON objects with the values of each object.
    Objects,
}

/// The commands of a request, and how they are answered where the client takes what is usual.
///
/// # Errors
/// 400: it is not UTF-8, or not what is published.
pub(super) fn text_of(body: &[u8], form: Form) -> Result<(String, Form), Refused> {
    let text = std::str::from_utf8(body).map_err(|_| wrong("the body is not UTF-8"))?;
    if form == Form::Text {
        return Ok((text.to_owned(), Form::Json));
    }
    let said: Json = serde_json::from_str(text).map_err(|error| wrong(&format!("the body is not JSON: {error}")))?;
    match said["type"].as_str() {
        Some("runCommand") => {
            let command = said["parameters"]["command"].as_str();
            command.map(|text| (text.to_owned(), Form::Json)).ok_or_else(|| wrong("parameters have no command"))
        }
        Some("runCommandJSON") => {
            let text = pieces(&said)?.text().map_err(|error| wrong(&error.to_string()))?;
            Ok((text, Form::Objects))
        }
        _ => Err(wrong("the type has to be runCommand or runCommandJSON")),
    }
}

fn wrong(why: &str) -> Refused {
    Refused::new(400, "command", why)
}

/// The command that comes in pieces: `{"command": "define", "qualifier": "qlocal", "name": "A", "parameters": {…},
/// "responseParameters": […]}`.
fn pieces(said: &Json) -> Result<Pieces, Refused> {
    let mut pieces = Pieces::default();
    let text = |name: &str, value: &Json| {
        value.as_str().map(str::to_owned).ok_or_else(|| wrong(&format!("{name} has to be a text")))
    };
    for (name, value) in said.as_object().into_iter().flatten() {
        match name.as_str() {
            "type" => {}
            "command" => pieces.verb = text(name, value)?,
            "qualifier" => pieces.noun = text(name, value)?,
            "name" => pieces.name = Some(text(name, value)?),
            "parameters" => {
                let members = value.as_object().ok_or_else(|| wrong("parameters have to be an object"))?;
                for (word, value) in members {
                    let unknown = || wrong(&format!("{} has another value", word.escape_debug()));
                    pieces.given.push((word.clone(), given(value).ok_or_else(unknown)?));
                }
            }
            "responseParameters" => {
                let words = value.as_array().ok_or_else(|| wrong("responseParameters have to be a list"))?;
                pieces.shown = words.iter().map(|word| text(name, word)).collect::<Result<_, _>>()?;
            }
            other => return Err(wrong(&format!("there is no {}", other.escape_debug()))),
        }
    }
    Ok(pieces)
}

/// What an attribute is given: a text, a number or a truth, or several of them.
fn given(value: &Json) -> Option<Given> {
    let one = |value: &Json| match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(flag) => Some(String::from(if *flag { "YES" } else { "NO" })),
        _ => None,
    };
    match value {
        Json::Array(values) => values.iter().map(one).collect::<Option<_>>().map(Given::Several),
        value => one(value).map(Given::One),
    }
}

/// The answer to commands.
///
/// # Errors
/// 403 for a single one that the user's role does not cover, and for a user without a role; 500 where it is too long.
pub(crate) fn answer(replies: &[Reply], form: Form) -> Answer {
    let is_refused = |reply: &Reply| matches!(&reply.outcome, Outcome::Failed(failure) if is_authority(failure));
    if let [only] = replies
        && is_refused(only)
        && let Outcome::Failed(failure) = &only.outcome
    {
        return Err(Refused::new(403, "role", failure.message.clone()).with_reason(reason::NOT_AUTHORIZED.code));
    }
    let (body, media) = match form {
        Form::Json | Form::Objects => (as_json(replies, form).to_string(), JSON),
        Form::Text => {
            let lines = replies.iter().flat_map(|reply| [reply.text()].into_iter().chain(lines_of(reply)));
            (lines.collect(), TEXT)
        }
    };
    if body.len() > ANSWER_BYTES_MAX {
        let why = format!("the answer has {} bytes, and {ANSWER_BYTES_MAX} at most are given", body.len());
        return Err(Refused::new(500, "answer-too-long", why));
    }
    Ok(Response::new(200).with("content-type", media).body(body))
}

fn is_authority(failure: &crate::mqsc::reply::Failure) -> bool {
    failure.kind == FailureKind::Refused && failure.reason == Some(reason::NOT_AUTHORIZED.code.into())
}

/// What is wrong with a command, or not quite right, each line with its end.
fn lines_of(reply: &Reply) -> impl Iterator<Item = String> {
    reply.diagnostics(None).into_iter().map(|line| line + "\n")
}

/// As published: completion and reason codes, and what a command shows, as lines or as objects.
fn as_json(replies: &[Reply], form: Form) -> Json {
    let codes = |reply: &Reply| match &reply.outcome {
        Outcome::Failed(failure) => (FAILED, failure.reason.unwrap_or(COMMAND_FAILED)),
        _ if reply.all_warnings().next().is_some() => (WARNED, 0),
        _ => (DONE, 0),
    };
    let (worst, why) = replies.iter().map(codes).fold((DONE, 0), |all, one| if one.0 > all.0 { one } else { all });
    let mut answers: Vec<Json> = Vec::new();
    for reply in replies {
        let (completion, reason) = codes(reply);
        let mut add = |name: &str, what: Json| {
            answers.push(json!({ "completionCode": completion, "reasonCode": reason, name: what }));
        };
        match &reply.outcome {
            Outcome::Rows(rows) if form == Form::Objects => {
                rows.iter().for_each(|row| add("parameters", row.to_json()));
                let warned: Vec<&String> = reply.all_warnings().collect();
                if !warned.is_empty() {
                    add("message", json!(warned));
                }
            }
            _ => {
                let shown = reply.text();
                let lines: Vec<String> = shown.lines().map(str::to_owned).chain(reply.diagnostics(None)).collect();
                add(if form == Form::Objects { "message" } else { "text" }, lines.into());
            }
        }
    }
    json!({ "commandResponse": answers, "overallCompletionCode": worst, "overallReasonCode": why })
}

/// The way of requests to the thread that carries them out. Bounded, and by user.
#[derive(Clone)]
pub(crate) struct CommandLine {
    asked: SyncSender<Asked>,
    waiting: Arc<Waiting>,
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandLine")
    }
}

/// Requests that wait, by user.
#[derive(Default)]
struct Waiting(Mutex<HashMap<String, usize>>);

impl Waiting {
    /// A count holds no invariant that a panic elsewhere could break.
    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of a user's places in the line, until it is dropped.
struct Ticket {
    waiting: Arc<Waiting>,
    user: String,
}

impl Ticket {
    fn take(waiting: &Arc<Waiting>, user: &str) -> Option<Self> {
        let mut counts = waiting.counts();
        let count = counts.entry(user.to_owned()).or_default();
        if *count >= WAITING_OF_USER_MAX {
            return None;
        }
        *count += 1;
        Some(Self { waiting: waiting.clone(), user: user.to_owned() })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.waiting.counts();
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Work {
    /// Commands are carried out for a user with a role.
    Commands {
        /// They.
        text: String,
        /// How they are answered.
        answers: Form,
    },
    /// A queue is shown to a user with INQ.
    Inquire {
        /// Its name.
        queue: String,
        /// What of it.
        shown: Shown,
    },
    /// A queue is changed for a user with SET.
    Set {
        /// Its name.
        queue: String,
        /// How.
        changes: Changes,
    },
    /// What was counted is shown to a user with a role.
    Metrics,
    /// A user is told who it is.
    WhoAmI,
}

/// What a request comes to.
pub(crate) type Answer = Result<Response, Refused>;

/// A request to be carried out.
pub(crate) struct Asked {
    /// As whom the client acts; none for a client that has not signed in.
    pub(crate) user: Option<String>,
    /// Where it comes from.
    pub(crate) address: String,
    /// What it asks for.
    pub(crate) work: Work,
    answer: Arc<Mutex<Option<Answer>>>,
    mailbox: Arc<Mailbox>,
    generation: u64,
    _ticket: Ticket,
}

impl Asked {
    /// Gives the connection its answer. One that is gone does not hear of it.
    pub(crate) fn answer(self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.mailbox.post(Notice::Arrived(Box::new(Answered { generation: self.generation })));
    }
}

/// The answer that a connection waits for.
pub(super) struct Awaited(Arc<Mutex<Option<Answer>>>);

impl Awaited {
    fn lock(&self) -> MutexGuard<'_, Option<Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is there.
    pub(super) fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    /// It, once it is there.
    pub(super) fn take(&self) -> Option<Answer> {
        self.lock().take()
    }
}

impl CommandLine {
    /// A line, and its end.
    pub(crate) fn new() -> (Self, Receiver<Asked>) {
        let (asked, waits) = sync_channel(WAITING_MAX);
        (Self { asked, waiting: Arc::default() }, waits)
    }

    /// Has something done for a connection of that mailbox's dispatcher.
    ///
    /// # Errors
    /// 429 and 503: too many wait, of the user or of all.
    pub(super) fn ask(
        &self,
        (user, address): (Option<&str>, &str),
        work: Work,
        mailbox: &Arc<Mailbox>,
        generation: u64,
    ) -> Result<Awaited, Refused> {
        let name = user.unwrap_or(ANONYMOUS);
        let of_user =
            || Refused::new(429, "commands-waiting", format!("{WAITING_OF_USER_MAX} requests of {name} wait"));
        let ticket = Ticket::take(&self.waiting, name).ok_or_else(of_user)?;
        let answer = Arc::default();
        let asked = Asked {
            user: user.map(str::to_owned),
            address: address.to_owned(),
            work,
            answer: Arc::clone(&answer),
            mailbox: mailbox.clone(),
            generation,
            _ticket: ticket,
        };
        let busy = |_| Refused::new(503, "commands-waiting", "too many commands wait: try again");
        self.asked.try_send(asked).map_err(busy)?;
        Ok(Awaited(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::parse::{Position, statements};
    use crate::mqsc::reply::{Cell, Row};

    fn text(body: &Json) -> Result<String, u16> {
        let found = text_of(body.to_string().as_bytes(), Form::Json);
        found.map(|(text, _)| text).map_err(|refused| refused.status)
    }

    #[test]
    fn a_command_in_pieces_is_one_command_and_never_another() {
        let body = json!({
            "type": "runCommandJSON", "command": "define", "qualifier": "qlocal", "name": "A",
            "parameters": { "maxdepth": 7, "replace": true, "descr": "it's" },
        });
        assert_eq!(text(&body).unwrap(), "DEFINE QLOCAL('A') MAXDEPTH('7') REPLACE DESCR('it''s')");
        for nasty in ["A'); DELETE QLOCAL(B", "A\nDELETE QLOCAL(B)", "A' +\r\n; DELETE QLOCAL(B) *"] {
            for place in ["command", "qualifier", "name", "parameters", "responseParameters"] {
                let mut body =
                    json!({ "type": "runCommandJSON", "command": "define", "qualifier": "qlocal", "name": "A" });
                body[place] = match place {
                    "parameters" => json!({ "descr": nasty }),
                    "responseParameters" => json!([nasty]),
                    _ => nasty.into(),
                };
                let Ok(text) = text(&body) else { continue };
                let found = statements(&text);
                assert_eq!(found.len(), 1, "{text}");
                assert!(found[0].as_ref().is_ok_and(|one| one.command.verb == "DEFINE") || found[0].is_err(), "{text}");
            }
        }
        for odd in [
            json!({ "type": "runCommandJSON" }),
            json!({ "type": "runCommandJSON", "command": 7, "qualifier": "qlocal", "name": "A" }),
            json!({ "type": "runCommandJSON", "command": "define", "qualifier": "qlocal", "name": ["A"] }),
            json!({ "type": "runCommandJSON", "command": "ping", "qualifier": "qmgr", "parameters": [] }),
            json!({ "type": "runCommandJSON", "command": "ping", "qualifier": "qmgr", "more": 1 }),
            json!({ "type": "runCommandJSON", "command": "alter", "qualifier": "ql", "name": "A", "parameters": { "put": null } }),
            json!({ "type": "runCommandJSON", "command": "help", "qualifier": "" }),
        ] {
            assert_eq!(text(&odd), Err(400), "{odd}");
        }
    }

    #[test]
    fn objects_have_their_values_by_keyword() {
        let cells = vec![("QUEUE".into(), Cell::Text("A".into())), ("CURDEPTH".into(), Cell::Number(3))];
        let reply = |outcome| Reply { at: Position::default(), command: String::new(), outcome, warnings: Vec::new() };
        let rows = reply(Outcome::Rows(vec![Row { cells }, Row::default()]));
        let said = as_json(&[rows], Form::Objects);
        assert_eq!(said["commandResponse"][0]["parameters"], json!({ "queue": "A", "curdepth": 3 }));
        assert_eq!(said["commandResponse"].as_array().unwrap().len(), 2);
        let done = reply(Outcome::Done { message: "queue A defined".into(), warnings: Vec::new() });
        assert_eq!(as_json(&[done], Form::Objects)["commandResponse"][0]["message"], json!(["queue A defined"]));
    }
}
