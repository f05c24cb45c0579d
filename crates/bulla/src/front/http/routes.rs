//! What a request asks for, by its method, its path and its query.

use super::answers::Refused;
use super::commands::Form;
use super::ids;
use super::text::decoded;
use bulla_http::{Head, Method};
use std::time::Duration;

/// Longest time that a get waits for a message.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(120);
/// Messages that a list shows where the client does not say.
const LISTED_DEFAULT: u32 = 10;
/// Messages that a list shows at most.
pub(super) const LISTED_MAX: u32 = 1_000;

/// A version of the messaging interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    /// Version 2.
    Two,
    /// Version 3: user properties, priorities, and correlation ids that are texts.
    Three,
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    /// As which version of the interface.
    pub(super) version: Version,
    /// The queue manager that the path names.
    pub(super) manager: String,
    /// What is to be done.
    pub(super) act: Act,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    /// A message is put on a queue.
    Put(String),
    /// A message is published on a topic.
    Publish(String),
    /// A message is got, and leaves its queue.
    Get(Wanted),
    /// A message is shown, and stays.
    Browse(Wanted),
    /// Messages are listed.
    List(Wanted, u32),
    /// Commands are carried out: how they are written, and how they are answered.
    Command(Form, Form),
}

/// Which message is wanted, and for how long.
#[derive(Debug, PartialEq)]
pub(super) struct Wanted {
    /// The queue.
    pub(super) queue: String,
    /// A selector of ids, where the client asks for one.
    pub(super) selector: Option<String>,
    /// How long to wait for it.
    pub(super) wait: Duration,
}

/// What a path names.
enum Place {
    Message(String),
    List(String),
    Topic(String),
    Commands,
}

/// What the head of a request asks for.
///
/// # Errors
/// 404 for a path that is none, 405 for a method that it has not, 400 for a query that can't be read, 403 without the
/// header that a browser's forms can't send.
pub(super) fn asked(head: &Head) -> Result<Asked, Refused> {
    let (version, manager, place) = place(head.target.path())?;
    let query = Query::read(head.target.query().unwrap_or_default())?;
    let (act, changes) = match (place, &head.method) {
        (Place::Message(queue), Method::Post) => (Act::Put(queue), true),
        (Place::Message(queue), Method::Delete) => (Act::Get(query.wanted(queue)), true),
        (Place::Message(queue), Method::Get) => (Act::Browse(query.wanted(queue)), false),
        (Place::List(queue), Method::Get) => {
            let limit = query.limit.unwrap_or(LISTED_DEFAULT);
            (Act::List(query.wanted(queue), limit), false)
        }
        (Place::Topic(topic), Method::Post) => (Act::Publish(topic), true),
        (Place::Commands, Method::Post) => (Act::Command(written(head)?, answered(head)), true),
        (Place::Message(_), _) => return Err(Refused::method("GET, POST, DELETE")),
        (Place::List(_), _) => return Err(Refused::method("GET")),
        (Place::Topic(_) | Place::Commands, _) => return Err(Refused::method("POST")),
    };
    if changes && head.headers.get("ibm-mq-rest-csrf-token").is_none() {
        return Err(Refused::new(
            403,
            "csrf-token",
            "the header ibm-mq-rest-csrf-token is missing; its value may be empty",
        ));
    }
    Ok(Asked { version, manager, act })
}

fn place(path: &str) -> Result<(Version, String, Place), Refused> {
    let unknown = || Refused::new(404, "unknown-path", "there is nothing at this path");
    let parts: Vec<&str> = path.strip_prefix('/').ok_or_else(unknown)?.split('/').collect();
    let name = |text: &str| decoded(text).filter(|name| !name.is_empty()).ok_or_else(unknown);
    let (version, manager, sort, object, what) = match *parts.as_slice() {
        ["ibmmq", "rest", version, "messaging", "qmgr", manager, sort, object, what] => {
            (version, manager, sort, object, what)
        }
        ["ibmmq", "rest", "v1" | "v2" | "v3", "admin", "action", "qmgr", manager, "mqsc"] => {
            return Ok((Version::Two, name(manager)?, Place::Commands));
        }
        _ => return Err(unknown()),
    };
    let version = match version {
        "v2" => Version::Two,
        "v3" => Version::Three,
        _ => return Err(unknown()),
    };
    let place = match (sort, what) {
        ("queue", "message") => Place::Message(name(object)?),
        ("queue", "messagelist") => Place::List(name(object)?),
        ("topic", "message") => Place::Topic(name(object)?),
        _ => return Err(unknown()),
    };
    Ok((version, name(manager)?, place))
}

/// How commands are written.
///
/// # Errors
/// 415.
fn written(head: &Head) -> Result<Form, Refused> {
    let media = head.headers.text("content-type").unwrap_or_default();
    match media.split(';').next().map(str::trim).unwrap_or_default().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Form::Json),
        "text/plain" => Ok(Form::Text),
        _ => Err(Refused::new(415, "media-type", "commands are application/json or text/plain")),
    }
}

/// How commands are answered: as JSON, unless only text is taken.
fn answered(head: &Head) -> Form {
    match head.headers.text("accept") {
        Some(accepted) if accepted.trim_start().to_ascii_lowercase().starts_with("text/plain") => Form::Text,
        _ => Form::Json,
    }
}

/// The parameters behind a path.
#[derive(Default)]
struct Query {
    message_id: Option<String>,
    correlation_id: Option<String>,
    wait: Duration,
    limit: Option<u32>,
}

impl Query {
    fn read(text: &str) -> Result<Self, Refused> {
        let mut query = Self::default();
        let wrong = |name: &str| Refused::new(400, "query", format!("the parameter {name} can't be read"));
        for (name, value) in
            text.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
        {
            let value = decoded(value).ok_or_else(|| wrong(name))?;
            match name {
                "messageId" => query.message_id = Some(value),
                "correlationId" => query.correlation_id = Some(value),
                "wait" => {
                    let ms = value.parse().map_err(|_| wrong(name))?;
                    query.wait = Duration::from_millis(ms).min(WAIT_MAX);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LISTED_MAX).contains(limit));
                    query.limit = Some(limit.ok_or_else(|| wrong(name))?);
                }
                _ => return Err(Refused::new(400, "query", format!("there is no parameter {name}"))),
            }
        }
        Ok(query)
    }

    fn wanted(self, queue: String) -> Wanted {
        let terms = [("JMSMessageID", self.message_id), ("JMSCorrelationID", self.correlation_id)];
        let terms: Vec<String> = terms
            .into_iter()
            .filter_map(|(field, id)| Some(format!("{field} = '{}'", ids::in_selector(&ids::parse(&id?)))))
            .collect();
        let selector = (!terms.is_empty()).then(|| terms.join(" AND "));
        Wanted { queue, selector, wait: self.wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::tests::head;

    const QUEUE: &str = "/ibmmq/rest/v3/messaging/qmgr/QM1/queue/A%2FB/message";

    fn act(method: &str, target: &str) -> Result<Act, (u16, &'static str)> {
        let found = asked(&head(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\nibm-mq-rest-csrf-token:\r\n\r\n")));
        found.map(|asked| asked.act).map_err(|refused| (refused.status, refused.cause))
    }

    #[test]
    fn a_path_and_a_method_say_what_is_to_be_done() {
        assert_eq!(act("POST", QUEUE), Ok(Act::Put("A/B".into())));
        assert_eq!(act("POST", "/ibmmq/rest/v2/messaging/qmgr/Q/topic/a%2fb/message"), Ok(Act::Publish("a/b".into())));
        let wanted = |selector: Option<&str>, wait| Wanted {
            queue: "A/B".into(),
            selector: selector.map(str::to_owned),
            wait: Duration::from_millis(wait),
        };
        assert_eq!(act("GET", QUEUE), Ok(Act::Browse(wanted(None, 0))));
        assert_eq!(act("DELETE", &format!("{QUEUE}?wait=250")), Ok(Act::Get(wanted(None, 250))));
        assert_eq!(act("DELETE", &format!("{QUEUE}?wait=99999999")), Ok(Act::Get(wanted(None, 120_000))));
        let found = act("GET", &format!("{QUEUE}?messageId={}&correlationId=it%27s", "ab".repeat(24)));
        let selector = format!("JMSMessageID = 'ID:AMQP_BINARY:{}' AND JMSCorrelationID = 'it''s'", "AB".repeat(24));
        assert_eq!(found, Ok(Act::Browse(wanted(Some(&selector), 0))));
        assert_eq!(act("GET", &format!("{QUEUE}list?limit=7")), Ok(Act::List(wanted(None, 0), 7)));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (method, target, refused) in [
            ("GET", "/", (404, "unknown-path")),
            ("GET", "/ibmmq/rest/v1/messaging/qmgr/QM1/queue/Q/message", (404, "unknown-path")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue//message", (404, "unknown-path")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/Q/message/", (404, "unknown-path")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/%ff/message", (404, "unknown-path")),
            ("PUT", QUEUE, (405, "method")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/topic/T/message", (405, "method")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/Q/message?wait=soon", (400, "query")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/Q/message?colour=red", (400, "query")),
            ("GET", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/Q/messagelist?limit=0", (400, "query")),
        ] {
            assert_eq!(act(method, target), Err(refused), "{method} {target}");
        }
    }

    #[test]
    fn what_changes_something_needs_a_header_that_forms_can_not_send() {
        let without = |method: &str| asked(&head(&format!("{method} {QUEUE} HTTP/1.1\r\nHost: h\r\n\r\n")));
        assert_eq!(without("POST").unwrap_err().cause, "csrf-token");
        assert_eq!(without("DELETE").unwrap_err().cause, "csrf-token");
        assert!(without("GET").is_ok());
    }
}
