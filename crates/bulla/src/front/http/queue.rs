//! A queue's attributes as JSON: the names that the interface gives them, from one table, and back.

use super::answers::Refused;
use crate::mqsc::compose::Given;
use crate::mqsc::reply::{Cell, Row};
use bulla_http::{HeaderValue, Response};
use serde_json::{Map, Value as Json, json};

/// Longest body of a request that changes attributes, in bytes.
pub(super) const BODY_BYTES_MAX: u64 = 16 << 10;

const JSON: HeaderValue = HeaderValue::from_static("application/json;charset=utf-8");

/// An attribute.
struct Attribute {
    /// The objects in which it stands, with full stops between them.
    within: &'static str,
    /// Its name there.
    name: &'static str,
    /// Its keyword in MQSC.
    keyword: &'static str,
    form: Form,
    /// A user with SET may change it: what MQSET sets.
    is_set: bool,
}

/// How a value is written in JSON.
enum Form {
    /// As MQSC has it: a name or a text.
    Text,
    /// A number.
    Number,
    /// True where MQSC has the first word, false where it has the second.
    Flag(&'static str, &'static str),
    /// Words, each with MQSC's.
    Words(&'static [(&'static str, &'static str)]),
}

const fn shown(within: &'static str, name: &'static str, keyword: &'static str, form: Form) -> Attribute {
    Attribute { within, name, keyword, form, is_set: false }
}

const fn set(within: &'static str, name: &'static str, keyword: &'static str, form: Form) -> Attribute {
    Attribute { within, name, keyword, form, is_set: true }
}

const INHIBITED: Form = Form::Flag("DISABLED", "ENABLED");
const ENABLED: Form = Form::Flag("ENABLED", "DISABLED");
const TRIGGER_TYPES: Form =
    Form::Words(&[("first", "FIRST"), ("every", "EVERY"), ("depth", "DEPTH"), ("none", "NONE")]);

/// What is defined of a queue.
const DEFINED: &[Attribute] = &[
    shown("general", "description", "DESCR", Form::Text),
    set("general", "inhibitGet", "GET", INHIBITED),
    set("general", "inhibitPut", "PUT", INHIBITED),
    shown("general", "isTransmissionQueue", "USAGE", Form::Flag("XMITQ", "NORMAL")),
    shown("storage", "maximumDepth", "MAXDEPTH", Form::Number),
    shown("storage", "maximumMessageLength", "MAXMSGL", Form::Number),
    shown("storage", "messageDeliverySequence", "MSGDLVSQ", Form::Words(&[("priority", "PRIORITY"), ("fifo", "FIFO")])),
    set("trigger", "enabled", "TRIGGER", Form::Flag("TRIGGER", "NOTRIGGER")),
    set("trigger", "type", "TRIGTYPE", TRIGGER_TYPES),
    set("trigger", "depth", "TRIGDPTH", Form::Number),
    set("trigger", "messagePriority", "TRIGMPRI", Form::Number),
    set("trigger", "data", "TRIGDATA", Form::Text),
    shown("trigger", "initiationQueueName", "INITQ", Form::Text),
    shown("trigger", "processName", "PROCESS", Form::Text),
    shown(
        "applicationDefaults",
        "messagePersistence",
        "DEFPSIST",
        Form::Words(&[("persistent", "YES"), ("nonPersistent", "NO")]),
    ),
    shown("applicationDefaults", "messagePriority", "DEFPRTY", Form::Number),
    shown("applicationDefaults", "sharedInput", "DEFSOPT", Form::Flag("SHARED", "EXCL")),
    shown("extended", "allowSharedInput", "SHARE", Form::Flag("SHARE", "NOSHARE")),
    shown("extended", "backoutRequeueQueueName", "BOQNAME", Form::Text),
    shown("extended", "backoutThreshold", "BOTHRESH", Form::Number),
    shown("extended", "hardenGetBackout", "HARDENBO", Form::Flag("HARDENBO", "NOHARDENBO")),
    shown("events.depth", "fullEnabled", "QDPMAXEV", ENABLED),
    shown("events.depth", "highEnabled", "QDPHIEV", ENABLED),
    shown("events.depth", "highPercentage", "QDEPTHHI", Form::Number),
    shown("events.depth", "lowEnabled", "QDPLOEV", ENABLED),
    shown("events.depth", "lowPercentage", "QDEPTHLO", Form::Number),
    shown("alias", "targetName", "TARGET", Form::Text),
    shown("remote", "queueName", "RNAME", Form::Text),
    shown("remote", "qmgrName", "RQMNAME", Form::Text),
    shown("remote", "transmissionQueueName", "XMITQ", Form::Text),
];

/// What goes on at a local queue.
const STATUS: &[Attribute] = &[
    shown("status", "currentDepth", "CURDEPTH", Form::Number),
    shown("status", "oldestMessageAge", "MSGAGE", Form::Number),
    shown("status", "openInputCount", "IPPROCS", Form::Number),
    shown("status", "openOutputCount", "OPPROCS", Form::Number),
];

/// The keywords of [`STATUS`].
pub(crate) const STATUS_KEYWORDS: &[&str] = &["CURDEPTH", "MSGAGE", "IPPROCS", "OPPROCS"];

/// Types of queues, each with MQSC's.
const TYPES: [(&str, &str); 4] = [("local", "QLOCAL"), ("alias", "QALIAS"), ("remote", "QREMOTE"), ("model", "QMODEL")];

/// Which attributes a request asks for; none for all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Shown {
    pub(super) attributes: Option<String>,
    pub(super) status: Option<String>,
}

impl Shown {
    /// Whether an attribute is among those.
    fn takes(wanted: Option<&str>, attribute: &Attribute) -> bool {
        let Some(wanted) = wanted else { return true };
        wanted.split(',').map(str::trim).any(|word| {
            word == "*"
                || attribute.within == word
                || attribute.within.strip_prefix(word).is_some_and(|rest| rest.starts_with('.'))
                || word.strip_prefix(attribute.within).and_then(|rest| rest.strip_prefix('.')) == Some(attribute.name)
        })
    }
}

/// The answer that shows a queue: what is defined of it, and, of a local queue, what goes on there.
pub(crate) fn response(defined: &Row, status: Option<&Row>, wanted: &Shown) -> Response {
    let word = |keyword| match cell(defined, keyword) {
        Some(Cell::Text(text)) => text.as_str(),
        _ => "",
    };
    let kind = TYPES.iter().find(|(_, known)| *known == word("TYPE")).map_or("", |(name, _)| name);
    let mut queue = json!({ "name": word("QUEUE"), "type": kind });
    let of_definition = DEFINED.iter().map(|attribute| (attribute, Some(defined), wanted.attributes.as_deref()));
    let of_status = STATUS.iter().map(|attribute| (attribute, status, wanted.status.as_deref()));
    for (attribute, row, wanted) in of_definition.chain(of_status) {
        let value = row.filter(|_| Shown::takes(wanted, attribute)).and_then(|row| attribute.value(row));
        if let Some(value) = value {
            let within = attribute.within.split('.').fold(&mut queue, |object, name| {
                if object[name].is_null() {
                    object[name] = Map::new().into();
                }
                &mut object[name]
            });
            within[attribute.name] = value;
        }
    }
    Response::new(200).with("content-type", JSON).body(json!({ "queue": [queue] }).to_string())
}

fn cell<'a>(row: &'a Row, keyword: &str) -> Option<&'a Cell> {
    row.cells.iter().find(|(known, _)| known == keyword).map(|(_, cell)| cell)
}

impl Attribute {
    /// Its value in a row of MQSC; none where the row has it not, or blank in place of a number.
    fn value(&self, row: &Row) -> Option<Json> {
        match (&self.form, cell(row, self.keyword)?) {
            (Form::Text, Cell::Text(text)) => Some(text.clone().into()),
            (Form::Number, Cell::Number(number)) => Some((*number).into()),
            (Form::Flag(yes, no), Cell::Text(word)) => (word == yes || word == no).then(|| (word == yes).into()),
            (Form::Words(words), Cell::Text(word)) => {
                words.iter().find(|(_, known)| known == word).map(|(name, _)| (*name).into())
            }
            _ => None,
        }
    }

    /// What MQSC is given for that value.
    fn given(&self, value: &Json) -> Option<Given> {
        Some(Given::One(match (&self.form, value) {
            (Form::Text, Json::String(text)) => text.clone(),
            (Form::Number, Json::Number(number)) => number.as_u64()?.to_string(),
            (Form::Flag(yes, no), Json::Bool(flag)) => String::from(if *flag { *yes } else { *no }),
            (Form::Words(words), Json::String(word)) => {
                words.iter().find(|(name, _)| name == word).map(|(_, known)| String::from(*known))?
            }
            _ => return None,
        }))
    }
}

/// The JSON schema of a queue; of `is_set`, of what a request may change.
pub(super) fn schema(is_set: bool) -> Json {
    let types: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
    let mut properties = json!({ "type": { "enum": types } });
    if !is_set {
        properties["name"] = json!({ "type": "string" });
    }
    let status = if is_set { &[] } else { STATUS };
    for attribute in DEFINED.iter().filter(|attribute| attribute.is_set || !is_set).chain(status) {
        let within = attribute.within.split('.').fold(&mut properties, |properties, name| {
            if properties[name].is_null() {
                properties[name] = json!({ "type": "object", "properties": {} });
            }
            &mut properties[name]["properties"]
        });
        within[attribute.name] = match &attribute.form {
            Form::Text => json!({ "type": "string" }),
            Form::Number => json!({ "type": "integer" }),
            Form::Flag(..) => json!({ "type": "boolean" }),
            Form::Words(words) => json!({ "enum": words.iter().map(|(name, _)| *name).collect::<Vec<_>>() }),
        };
    }
    json!({ "type": "object", "properties": properties })
}

/// What a request changes.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Changes {
    /// The type of queue that it means, as MQSC calls it, where it says so.
    pub(crate) of_type: Option<&'static str>,
    /// Attributes in MQSC, each with its value; at least one.
    pub(crate) given: Vec<(String, Given)>,
}

impl Changes {
    /// What the body of a request says.
    ///
    /// # Errors
    /// 400: it is not JSON, says nothing, or something that can't be set.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refused> {
        let wrong = |why: String| Refused::new(400, "attribute", why);
        let said: Json =
            serde_json::from_slice(body).map_err(|error| wrong(format!("the body is not JSON: {error}")))?;
        let objects = said.as_object().ok_or_else(|| wrong("the body is not a JSON object".to_owned()))?;
        let mut changes = Self::default();
        for (within, object) in objects {
            if within == "type" {
                let kind = TYPES.iter().find(|(name, _)| object == name).map(|(_, known)| *known);
                changes.of_type = Some(kind.ok_or_else(|| wrong("type is local, alias or remote".to_owned()))?);
                continue;
            }
            let members = object.as_object().ok_or_else(|| wrong(format!("{} is no object", within.escape_debug())))?;
            for (name, value) in members {
                let full = || format!("{}.{}", within.escape_debug(), name.escape_debug());
                let found = DEFINED.iter().find(|known| known.within == within && known.name == name && known.is_set);
                let found = found.ok_or_else(|| wrong(format!("{} can't be set here", full())))?;
                let given = found.given(value).ok_or_else(|| wrong(format!("{} has another value", full())))?;
                changes.given.push((found.keyword.to_owned(), given));
            }
        }
        if changes.given.is_empty() {
            return Err(wrong("the body changes nothing".to_owned()));
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_of_the_status_is_what_is_shown() {
        assert!(STATUS.iter().map(|attribute| attribute.keyword).eq(STATUS_KEYWORDS.iter().copied()));
    }

    fn row(cells: &[(&str, Cell)]) -> Row {
        Row { cells: cells.iter().map(|(keyword, cell)| ((*keyword).to_owned(), cell.clone())).collect() }
    }

    fn shown(wanted: &Shown) -> Json {
        let text = |text: &str| Cell::Text(text.into());
        let defined = row(&[
            ("QUEUE", text("A")),
            ("TYPE", text("QLOCAL")),
            ("GET", text("DISABLED")),
            ("PUT", text("ENABLED")),
            ("MAXDEPTH", Cell::Number(7)),
            ("TRIGTYPE", text("EVERY")),
            ("QDEPTHHI", Cell::Number(80)),
        ]);
        let status = row(&[("CURDEPTH", Cell::Number(3)), ("MSGAGE", text(""))]);
        let bulla_http::Body::One(body) = response(&defined, Some(&status), wanted).body else { panic!("a body") };
        serde_json::from_slice::<Json>(&body).unwrap()["queue"][0].clone()
    }

    #[test]
    fn a_queue_has_the_published_names() {
        let all = json!({
            "name": "A",
            "type": "local",
            "general": { "inhibitGet": true, "inhibitPut": false },
            "storage": { "maximumDepth": 7 },
            "trigger": { "type": "every" },
            "events": { "depth": { "highPercentage": 80 } },
            "status": { "currentDepth": 3 },
        });
        assert_eq!(shown(&Shown::default()), all);
        let only = |attributes: &str, status: &str| {
            shown(&Shown { attributes: Some(attributes.into()), status: Some(status.into()) })
        };
        assert_eq!(only("*", "*"), all);
        assert_eq!(
            only("trigger,general.inhibitPut", ""),
            json!({
                "name": "A", "type": "local", "general": { "inhibitPut": false }, "trigger": { "type": "every" }
            })
        );
        assert_eq!(only("events", "status.currentDepth")["events"]["depth"]["highPercentage"], 80);
    }

    #[test]
    fn what_mqset_sets_can_be_changed_and_nothing_else() {
        let read = |body: Json| Changes::read(body.to_string().as_bytes()).map_err(|refused| refused.status);
        let one = |keyword: &str, value: &str| (keyword.to_owned(), Given::One(value.to_owned()));
        let both = read(json!({ "general": { "inhibitPut": true, "inhibitGet": false }, "type": "local" })).unwrap();
        assert_eq!(both.given, [one("PUT", "DISABLED"), one("GET", "ENABLED")]);
        assert_eq!(both.of_type, Some("QLOCAL"));
        let trigger =
            read(json!({ "trigger": { "enabled": false, "type": "depth", "depth": 4, "data": "it's" } })).unwrap();
        assert_eq!(
            trigger.given,
            [one("TRIGGER", "NOTRIGGER"), one("TRIGTYPE", "DEPTH"), one("TRIGDPTH", "4"), one("TRIGDATA", "it's")]
        );
        for body in [
            json!({}),
            json!([]),
            json!({ "general": {} }),
            json!({ "general": { "description": "mine" } }),
            json!({ "storage": { "maximumDepth": 1 } }),
            json!({ "trigger": { "processName": "EVIL" } }),
            json!({ "trigger": { "initiationQueueName": "MINE" } }),
            json!({ "general": { "inhibitPut": "yes" } }),
            json!({ "trigger": { "depth": -1 } }),
            json!({ "type": "cluster", "general": { "inhibitPut": true } }),
            json!({ "general": true }),
        ] {
            assert_eq!(read(body.clone()), Err(400), "{body}");
        }
        let deep = "[".repeat(10_000);
        assert_eq!(Changes::read(deep.as_bytes()).unwrap_err().status, 400);
    }
}
