//! Commands of the admin language that come over HTTP, and what else a dispatcher carries out none of, because it waits
//! for the journal or takes its time: what a request says, how it is answered, and the way to the thread that does it.

use super::answers::Refused;
use super::queue::{Changes, Shown};
use crate::authority::ANONYMOUS;
use crate::front::Answered;
use crate::mailbox::{Mailbox, Notice};
use crate::mqsc::Reply;
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
    /// JSON, as published: `{"type": "runCommand", "parameters": {"command": "…"}}`.
    Json,
    /// The text itself.
    Text,
}

/// The commands of a request.
///
/// # Errors
/// 400: it is not UTF-8, or not what is published.
pub(super) fn text_of(body: &[u8], form: Form) -> Result<String, Refused> {
    let wrong = |why: &str| Refused::new(400, "command", why);
    let text = std::str::from_utf8(body).map_err(|_| wrong("the body is not UTF-8"))?;
    if form == Form::Text {
        return Ok(text.to_owned());
    }
    let said: Json = serde_json::from_str(text).map_err(|error| wrong(&format!("the body is not JSON: {error}")))?;
    if said["type"] != "runCommand" {
        return Err(wrong("the type has to be runCommand"));
    }
    let command = said["parameters"]["command"].as_str();
    command.map(str::to_owned).ok_or_else(|| wrong("parameters have no command"))
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
        Form::Json => (as_json(replies).to_string(), JSON),
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

/// As published: completion and reason codes, and the lines that a command shows.
fn as_json(replies: &[Reply]) -> Json {
    let codes = |reply: &Reply| match &reply.outcome {
        Outcome::Failed(failure) => (FAILED, failure.reason.unwrap_or(COMMAND_FAILED)),
        Outcome::Done { warnings, .. } if !warnings.is_empty() => (WARNED, 0),
        _ => (DONE, 0),
    };
    let (worst, why) = replies.iter().map(codes).fold((DONE, 0), |all, one| if one.0 > all.0 { one } else { all });
    let rows: Vec<Json> = replies
        .iter()
        .map(|reply| {
            let (completion, reason) = codes(reply);
            let shown = reply.text();
            let lines = shown.lines().map(str::to_owned).chain(reply.diagnostics(None));
            json!({ "completionCode": completion, "reasonCode": reason, "text": lines.collect::<Vec<_>>() })
        })
        .collect();
    json!({ "commandResponse": rows, "overallCompletionCode": worst, "overallReasonCode": why })
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
