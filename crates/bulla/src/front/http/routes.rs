//! What a request asks for, by its method, its path and its query.

use super::answers::Refused;
use super::commands::Form;
use super::ids;
use super::queue::Shown;
use super::table::{Asker, CSRF, Does, Field, Operation, ROUTES, Route, Version};
use super::text::decoded;
use bulla_http::{Head, Method};
use std::time::Duration;

/// Longest time that a get waits for a message.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(120);
/// Messages that a list shows where the client does not say.
const LISTED_DEFAULT: u32 = 10;
/// Messages that a list shows at most.
pub(super) const LISTED_MAX: u32 = 1_000;

/// What a request asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    /// As which version of the interface.
    pub(super) version: Version,
    /// The queue manager that the path names; empty for a path without one.
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
    /// A queue's attributes are shown.
    Inquire(String, Shown),
    /// Some of a queue's attributes are changed.
    Set(String),
    /// What was counted is shown.
    Meter,
    /// The user is told who it is.
    WhoAmI,
    /// The user's session ends.
    LogOut,
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

/// What the head of a request asks for.
///
/// # Errors
/// 404 for a path that is none, 405 for a method that it has not, 400 for a query that can't be read, 403 without the
/// header that a browser's forms can't send.
pub(super) fn asked(head: &Head) -> Result<Asked, Refused> {
    let found = Found::at(head.target.path()).ok_or_else(unknown)?;
    let operation = found.operation(&head.method)?;
    let query = Query::read(head.target.query().unwrap_or_default(), operation.parameters)?;
    if operation.changes && head.headers.get(CSRF.name).is_none() {
        let why = format!("the header {} is missing; its value may be empty", CSRF.name);
        return Err(Refused::new(403, "csrf-token", why));
    }
    let Found { version, manager, object, .. } = found;
    let act = match operation.does {
        Does::Put => Act::Put(object),
        Does::Publish => Act::Publish(object),
        Does::Get => Act::Get(query.wanted(object)),
        Does::Browse => Act::Browse(query.wanted(object)),
        Does::List => {
            let limit = query.limit.unwrap_or(LISTED_DEFAULT);
            Act::List(query.wanted(object), limit)
        }
        Does::Command => Act::Command(written(head)?, answered(head)),
        Does::Meter => Act::Meter,
        Does::WhoAmI => Act::WhoAmI,
        Does::LogOut => Act::LogOut,
        Does::Inquire => Act::Inquire(object, query.shown),
        Does::Set if media(head) == "application/json" => Act::Set(object),
        Does::Set => return Err(Refused::new(415, "media-type", "attributes are application/json")),
        // They are answered before a client signs in.
        Does::Live | Does::Ready | Does::Describe | Does::LogIn => return Err(unknown()),
    };
    Ok(Asked { version, manager, act })
}

/// What a request asks for that takes no sign-in, where it is one of these.
///
/// # Errors
/// 405.
pub(super) fn asked_by_everyone(head: &Head) -> Option<Result<Does, Refused>> {
    let found = Found::at(head.target.path())?;
    let is_open = found.route.operations.iter().any(|operation| operation.asker == Asker::Everyone);
    is_open.then(|| found.operation(&head.method).map(|operation| operation.does))
}

/// Whether a request is a log-in: it has its credentials in its body.
///
/// # Errors
/// 400 for a parameter; 415 for a body that is no JSON, as a page of another site can have a browser send it.
pub(super) fn asked_to_log_in(head: &Head) -> Option<Result<(), Refused>> {
    let operation = Found::at(head.target.path())?.operation(&head.method).ok()?;
    (operation.does == Does::LogIn).then(|| {
        Query::read(head.target.query().unwrap_or_default(), operation.parameters)?;
        if media(head) == "application/json" {
            return Ok(());
        }
        Err(Refused::new(415, "media-type", "a log-in is application/json"))
    })
}

fn unknown() -> Refused {
    Refused::new(404, "unknown-path", "there is nothing at this path")
}

/// A path of the table, with the names that stand in it.
struct Found {
    route: &'static Route,
    version: Version,
    /// The queue manager; empty where the path has none.
    manager: String,
    /// The queue or topic; empty where the path has none.
    object: String,
}

impl Found {
    fn at(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        ROUTES.iter().find_map(|route| Self::by(route, &parts))
    }

    fn by(route: &'static Route, parts: &[&str]) -> Option<Self> {
        let mut found = Self { route, version: Version::Two, manager: String::new(), object: String::new() };
        let mut template = route.path.split('/');
        for part in parts {
            let name = || decoded(part).filter(|name| !name.is_empty());
            match template.next()? {
                "{version}" if !route.versions.contains(part) => return None,
                "{version}" => found.version = if *part == "v3" { Version::Three } else { Version::Two },
                "{qmgr}" => found.manager = name()?,
                "{queue}" | "{topic}" => found.object = name()?,
                word if word == *part => {}
                _ => return None,
            }
        }
        template.next().is_none().then_some(found)
    }

    fn operation(&self, method: &Method) -> Result<&'static Operation, Refused> {
        let operations = self.route.operations;
        operations.iter().find(|operation| operation.method == method.as_str()).ok_or_else(|| {
            let methods: Vec<&str> = operations.iter().map(|operation| operation.method).collect();
            Refused::method(&methods.join(", "))
        })
    }
}

/// The media type of a request's body, without its parameters.
fn media(head: &Head) -> String {
    let media = head.headers.text("content-type").unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// How commands are written.
///
/// # Errors
/// 415.
fn written(head: &Head) -> Result<Form, Refused> {
    match media(head).as_str() {
        "application/json" => Ok(Form::Json),
        "text/plain" => Ok(Form::Text),
        _ => Err(Refused::new(415, "media-type", "commands are application/json or text/plain")),
    }
}

/// How commands and questions after health are answered: as JSON, unless only text is taken.
pub(super) fn answered(head: &Head) -> Form {
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
    shown: Shown,
}

impl Query {
    fn read(text: &str, taken: &[&Field]) -> Result<Self, Refused> {
        let mut query = Self::default();
        let wrong = |name: &str| Refused::new(400, "query", format!("the parameter {name} can't be read"));
        for (name, value) in
            text.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
        {
            let value = decoded(value).ok_or_else(|| wrong(name))?;
            if !taken.iter().any(|field| field.name == name) {
                return Err(Refused::new(400, "query", format!("there is no parameter {name} here")));
            }
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
                "attributes" => query.shown.attributes = Some(value),
                "status" => query.shown.status = Some(value),
                _ => return Err(wrong(name)),
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
        let shown = Shown { attributes: Some("*".into()), status: None };
        let queue = "/ibmmq/rest/v1/admin/qmgr/QM1/queue/A%2FB?attributes=*";
        assert_eq!(act("GET", queue), Ok(Act::Inquire("A/B".into(), shown)));
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
            ("POST", "/livez", (405, "method")),
            ("PUT", "/ibmmq/rest/v2/login", (405, "method")),
            ("DELETE", "/ibmmq/rest/v2/login?all=yes", (400, "query")),
            ("GET", "/livez/", (404, "unknown-path")),
            ("GET", "/ibmmq/rest/v4/admin/qmgr/QM1/queue/Q", (404, "unknown-path")),
            ("DELETE", "/ibmmq/rest/v1/admin/qmgr/QM1/queue/Q", (405, "method")),
            ("PATCH", "/ibmmq/rest/v1/admin/qmgr/QM1/queue/Q", (415, "media-type")),
            ("POST", "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/Q/message?wait=7", (400, "query")),
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
