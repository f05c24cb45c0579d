//! The paths of the interface, and what can be done at each: parameters, headers and answers.
//!
//! What a request asks for ([`routes`](super::routes)) and the description for programs ([`openapi`](super::openapi))
//! read this table and nothing else.

/// A version of the messaging interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    /// Version 2.
    Two,
    /// Version 3: user properties, priorities, and correlation ids that are texts.
    Three,
}

/// What there is at a path.
#[derive(Debug)]
pub(super) struct Route {
    /// Names stand in braces. `{version}` is one of the versions, and `{qmgr}` the queue manager.
    pub(super) path: &'static str,
    /// The versions of the interface that have it; none for a path without one.
    pub(super) versions: &'static [&'static str],
    /// What can be done there.
    pub(super) operations: &'static [Operation],
}

/// What a method does at a path.
#[derive(Debug)]
pub(super) struct Operation {
    /// The method.
    pub(super) method: &'static str,
    /// The same, for the code that carries it out.
    pub(super) does: Does,
    /// One sentence.
    pub(super) summary: &'static str,
    /// Who may ask.
    pub(super) asker: Asker,
    /// It changes something, and needs the header that browsers don't let another site's page send.
    pub(super) changes: bool,
    /// What may stand behind the path.
    pub(super) parameters: &'static [&'static Field],
    /// Headers of the request, `Authorization` and that of [`changes`](Self::changes) apart.
    pub(super) headers: &'static [&'static Field],
    /// Media types of the body; none where it takes no body.
    pub(super) takes: &'static [&'static str],
    /// The answer where it is done.
    pub(super) answers: &'static [Answer],
    /// Statuses of [`REFUSALS`] that it has beside [`of_all`].
    pub(super) refused: &'static [u16],
}

/// Who may ask for something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asker {
    /// Everyone: there is no sign-in.
    Everyone,
    /// Everyone who signs in by what it asks.
    Newcomer,
    /// Every user who has signed in.
    User,
    /// Every user who may use the queue manager and has the right that it takes.
    Client,
    /// A user with a role.
    Administrator,
}

/// What is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Does {
    /// A message is put.
    Put,
    /// A message is published.
    Publish,
    /// A message is got.
    Get,
    /// A message is shown.
    Browse,
    /// Messages are listed.
    List,
    /// Commands are carried out.
    Command,
    /// A queue's attributes are shown.
    Inquire,
    /// Some of them are changed.
    Set,
    /// What was counted is shown.
    Meter,
    /// It is said whether the thread goes on.
    Live,
    /// It is said whether clients may come.
    Ready,
    /// The interface is described.
    Describe,
    /// A user logs in.
    LogIn,
    /// A user is told who it is.
    WhoAmI,
    /// A user logs out.
    LogOut,
}

/// A parameter or a header.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name.
    pub(super) name: &'static str,
    /// What its value is, as JSON Schema calls it.
    pub(super) kind: &'static str,
    /// The oldest version that has it, where it is not the oldest of all.
    pub(super) since: Option<Version>,
    /// One sentence.
    pub(super) doc: &'static str,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// Its status.
    pub(super) status: u16,
    /// When it comes.
    pub(super) doc: &'static str,
    /// The media type of its body, `*/*` for a message's own; none where it has no body.
    pub(super) media: Option<&'static str>,
    /// Headers that it may have.
    pub(super) headers: &'static [&'static Field],
}

/// A status that refuses, and when it comes.
pub(super) const REFUSALS: [(u16, &str); 11] = [
    (400, "A parameter, a header or the body can't be read, or the message is refused for what it is."),
    (401, "Credentials are missing or wrong."),
    (403, "There is no right to it, it is inhibited, or the csrf header is missing."),
    (404, "There is no such path, queue or queue manager."),
    (405, "The path has no such method."),
    (409, "The queue is in use, or has changed, or the first request under that idempotency key has no answer yet."),
    (410, "A message was got under that idempotency key, and is not kept: it was too long, or had to go for others."),
    (413, "The body is longer than what is taken."),
    (415, "The media type is missing, or another one than what is taken."),
    (429, "The user has as many connections, links or requests as it may."),
    (503, "It is not possible now: try again after the time in Retry-After."),
];

/// Statuses that refuse, of an operation.
pub(super) fn refused(operation: &Operation) -> impl Iterator<Item = (u16, &'static str)> {
    let of_all: &[u16] = match operation.asker {
        Asker::Everyone => &[405],
        Asker::Newcomer | Asker::User | Asker::Client | Asker::Administrator => &[400, 401, 403, 404, 405, 429, 503],
    };
    REFUSALS.into_iter().filter(move |(status, _)| of_all.contains(status) || operation.refused.contains(status))
}

const fn field(name: &'static str, kind: &'static str, doc: &'static str) -> Field {
    Field { name, kind, since: None, doc }
}

const fn newer(name: &'static str, kind: &'static str, doc: &'static str) -> Field {
    Field { name, kind, since: Some(Version::Three), doc }
}

/// The header that a page of another site can't make a browser send.
pub(super) static CSRF: Field = field("ibm-mq-rest-csrf-token", "string", "Any value, also an empty one.");

static WAIT: Field = field("wait", "integer", "Milliseconds to wait for a message, at most 120,000.");
static MESSAGE_ID_WANTED: Field = field("messageId", "string", "Only messages with that id.");
static CORRELATION_ID_WANTED: Field = field("correlationId", "string", "Only messages with that correlation id.");
static LIMIT: Field = field("limit", "integer", "How many to list, 10 unless given, at most 1,000.");
static ATTRIBUTES: Field = field("attributes", "string", "Which attributes to show, as general,trigger.enabled or *.");
static STATUS: Field = field("status", "string", "Which of the status to show, as status.currentDepth or *.");

static CONTENT_TYPE: Field = field("Content-Type", "string", "The media type of the body; texts are in UTF-8.");
static PERSISTENCE: Field = field("ibm-mq-md-persistence", "string", "persistent, or nonPersistent unless given.");
static EXPIRY: Field = field("ibm-mq-md-expiry", "string", "Milliseconds, or unlimited unless given.");
static REPLY_TO: Field = field("ibm-mq-md-replyTo", "string", "The queue for answers.");
static CORRELATION_ID: Field = field("ibm-mq-md-correlationId", "string", "48 hexadecimal digits, or a text.");
static MESSAGE_ID: Field = field("ibm-mq-md-messageId", "string", "The id of the message.");
static PRIORITY: Field = newer("ibm-mq-md-priority", "string", "0 to 9.");
static USER: Field = newer("ibm-mq-usr", "string", "User properties, each as name;value;type.");
static KEY: Field = field("Idempotency-Key", "string", "1 to 128 bytes: under the same key it is done once.");
static KEY_OF_GET: Field = field(
    "Idempotency-Key",
    "string",
    "1 to 128 bytes: under the same key the same message comes again for 60 seconds, or until the queue manager ends.",
);
static ACCEPT: Field = field("Accept", "string", "text/plain for an answer as text.");

static SET_COOKIE: Field = field("Set-Cookie", "string", "The cookie of the log-in, or an end to it.");

static OF_MESSAGES: [&Field; 8] =
    [&CONTENT_TYPE, &MESSAGE_ID, &CORRELATION_ID, &PERSISTENCE, &EXPIRY, &REPLY_TO, &PRIORITY, &USER];

/// The media type of JSON.
const JSON: &str = "application/json";
/// That of texts.
const TEXT: &str = "text/plain";
/// Any.
const ANY: &str = "*/*";

const fn answer(status: u16, doc: &'static str, media: Option<&'static str>) -> Answer {
    Answer { status, doc, media, headers: &[] }
}

const A_MESSAGE: Answer = Answer { status: 200, doc: "The message.", media: Some(ANY), headers: &OF_MESSAGES };
const NO_MESSAGE: Answer = answer(204, "There is no such message.", None);
const CHANGED: &[Answer] = &[
    answer(200, "It is changed, and a user who may be shown the queue is warned of something.", Some(JSON)),
    answer(204, "It is changed.", None),
];
const DESCRIPTION: &[Answer] = &[answer(200, "The document.", Some(JSON))];
const WELL: Answer = answer(200, "It is well.", Some(TEXT));

/// What is what for most operations.
const OPERATION: Operation = Operation {
    method: "GET",
    does: Does::Browse,
    summary: "",
    asker: Asker::Client,
    changes: false,
    parameters: &[],
    headers: &[],
    takes: &[],
    answers: &[],
    refused: &[],
};

/// What everyone may ask.
const fn health(method: &'static str, does: Does, summary: &'static str) -> Operation {
    let refused: &[u16] = match does {
        Does::Ready => &[503],
        _ => &[],
    };
    Operation { method, does, summary, asker: Asker::Everyone, answers: &[WELL], refused, ..OPERATION }
}

static LIVE: [Operation; 2] = {
    let summary = "Say whether the thread that has the connection goes on.";
    [health("GET", Does::Live, summary), health("HEAD", Does::Live, summary)]
};
static READY: [Operation; 2] = {
    let summary = "Say whether clients may come.";
    [health("GET", Does::Ready, summary), health("HEAD", Does::Ready, summary)]
};

static DESCRIBED: [Operation; 2] = {
    const fn describe(method: &'static str) -> Operation {
        let summary = "Describe this interface, as an OpenAPI 3.1 document.";
        Operation { answers: DESCRIPTION, ..health(method, Does::Describe, summary) }
    }
    [describe("GET"), describe("HEAD")]
};

const fn set(method: &'static str) -> Operation {
    Operation {
        method,
        does: Does::Set,
        summary: "Change whether a queue takes and gives messages, and its trigger; what is not named stays.",
        changes: true,
        takes: &[JSON],
        answers: CHANGED,
        refused: &[409, 413, 415],
        ..OPERATION
    }
}

/// Every path.
pub(super) static ROUTES: &[Route] = &[
    Route {
        path: "/ibmmq/rest/{version}/messaging/qmgr/{qmgr}/queue/{queue}/message",
        versions: &["v2", "v3"],
        operations: &[
            Operation {
                does: Does::Browse,
                summary: "Show a message, which stays on its queue.",
                parameters: &[&WAIT, &MESSAGE_ID_WANTED, &CORRELATION_ID_WANTED],
                answers: &[A_MESSAGE, NO_MESSAGE],
                ..OPERATION
            },
            Operation {
                method: "POST",
                does: Does::Put,
                summary: "Put the body as a message.",
                changes: true,
                headers: &[&PERSISTENCE, &EXPIRY, &REPLY_TO, &CORRELATION_ID, &PRIORITY, &USER, &KEY],
                takes: &[ANY],
                answers: &[Answer { headers: &[&MESSAGE_ID], ..answer(201, "It is put.", None) }],
                refused: &[409, 413, 415],
                ..OPERATION
            },
            Operation {
                method: "DELETE",
                does: Does::Get,
                summary: "Get a message, which leaves its queue.",
                changes: true,
                parameters: &[&WAIT, &MESSAGE_ID_WANTED, &CORRELATION_ID_WANTED],
                headers: &[&KEY_OF_GET],
                answers: &[A_MESSAGE, NO_MESSAGE],
                refused: &[409, 410],
                ..OPERATION
            },
        ],
    },
    Route {
        path: "/ibmmq/rest/{version}/messaging/qmgr/{qmgr}/queue/{queue}/messagelist",
        versions: &["v2", "v3"],
        operations: &[Operation {
            does: Does::List,
            summary: "List the ids and media types of messages, which stay on their queue.",
            parameters: &[&LIMIT, &MESSAGE_ID_WANTED, &CORRELATION_ID_WANTED],
            answers: &[answer(200, "The list.", Some(JSON))],
            ..OPERATION
        }],
    },
    Route {
        path: "/ibmmq/rest/{version}/messaging/qmgr/{qmgr}/topic/{topic}/message",
        versions: &["v2", "v3"],
        operations: &[Operation {
            method: "POST",
            does: Does::Publish,
            summary: "Publish the body on a topic string.",
            changes: true,
            headers: &[&PERSISTENCE, &EXPIRY, &REPLY_TO, &CORRELATION_ID, &PRIORITY, &USER, &KEY],
            takes: &[ANY],
            answers: &[Answer { headers: &[&MESSAGE_ID], ..answer(201, "It is published.", None) }],
            refused: &[409, 413, 415],
            ..OPERATION
        }],
    },
    Route {
        path: "/ibmmq/rest/{version}/admin/qmgr/{qmgr}/queue/{queue}",
        versions: &["v1", "v2", "v3"],
        operations: &[
            Operation {
                does: Does::Inquire,
                summary: "Show a queue's attributes.",
                parameters: &[&ATTRIBUTES, &STATUS],
                answers: &[answer(200, "The queue, as the only entry of a list.", Some(JSON))],
                ..OPERATION
            },
            set("PATCH"),
            set("PUT"),
        ],
    },
    Route {
        path: "/ibmmq/rest/{version}/admin/action/qmgr/{qmgr}/mqsc",
        versions: &["v1", "v2", "v3"],
        operations: &[Operation {
            method: "POST",
            does: Does::Command,
            summary: "Have commands of the admin language carried out.",
            asker: Asker::Administrator,
            changes: true,
            headers: &[&ACCEPT],
            takes: &[JSON, TEXT],
            answers: &[answer(200, "What came of them, also where a command failed.", Some(JSON))],
            refused: &[413, 415],
            ..OPERATION
        }],
    },
    Route {
        path: "/ibmmq/rest/{version}/login",
        versions: &["v1", "v2", "v3"],
        operations: &[
            Operation {
                does: Does::WhoAmI,
                summary: "Say who is signed in.",
                asker: Asker::User,
                answers: &[answer(200, "The user, as the only entry of a list, and its roles.", Some(JSON))],
                ..OPERATION
            },
            Operation {
                method: "POST",
                does: Does::LogIn,
                summary: "Log in by a password, for a cookie.",
                asker: Asker::Newcomer,
                takes: &[JSON],
                answers: &[Answer { headers: &[&SET_COOKIE], ..answer(204, "The user is logged in.", None) }],
                refused: &[413, 415],
                ..OPERATION
            },
            Operation {
                method: "DELETE",
                does: Does::LogOut,
                summary: "Log out: the cookie is worth nothing any more.",
                asker: Asker::User,
                changes: true,
                answers: &[Answer { headers: &[&SET_COOKIE], ..answer(204, "The user is logged out.", None) }],
                ..OPERATION
            },
        ],
    },
    Route {
        path: "/metrics",
        versions: &[],
        operations: &[Operation {
            does: Does::Meter,
            summary: "Show what was counted, in the text format of Prometheus.",
            asker: Asker::Administrator,
            answers: &[answer(200, "The series.", Some(TEXT))],
            ..OPERATION
        }],
    },
    Route { path: "/livez", versions: &[], operations: &LIVE },
    Route { path: "/readyz", versions: &[], operations: &READY },
    Route { path: "/openapi.json", versions: &[], operations: &DESCRIBED },
    Route { path: "/healthz", versions: &[], operations: &READY },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_stands_twice_and_each_entry_explains_itself() {
        let mut seen = HashSet::new();
        for route in ROUTES {
            for operation in route.operations {
                let what = format!("{} {}", operation.method, route.path);
                assert!(operation.summary.ends_with('.') && !operation.answers.is_empty(), "{what}");
                let statuses: Vec<u16> = operation.answers.iter().map(|answer| answer.status).collect();
                let refused: Vec<u16> = refused(operation).map(|(status, _)| status).collect();
                assert!(statuses.iter().all(|status| *status < 300 && !refused.contains(status)), "{what}");
                assert!(operation.refused.iter().all(|status| refused.contains(status)), "{what}");
                assert_eq!(route.path.contains("{version}"), !route.versions.is_empty(), "{what}");
                assert!(seen.insert(what));
            }
        }
    }
}
