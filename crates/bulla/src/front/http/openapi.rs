//! The description of the interface for programs: an OpenAPI 3.1 document, made from the tables in the code.

use super::table::{Answer, Asker, CSRF, Does, Field, Operation, REFUSALS, ROUTES, Route, Version, refused};
use super::{credentials, queue};
use bulla_http::{HeaderValue, Response};
use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use std::sync::LazyLock;

const JSON: HeaderValue = HeaderValue::from_static("application/json;charset=utf-8");

/// The document, which is the same for everyone.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// The answer.
pub(super) fn answer() -> Response {
    Response::new(200).with("content-type", JSON).body(DOCUMENT.clone())
}

fn document() -> Json {
    let mut paths = Map::new();
    for route in ROUTES {
        if route.versions.is_empty() {
            paths.insert(route.path.to_owned(), path(route, None));
        }
        for version in route.versions {
            paths.insert(route.path.replace("{version}", version), path(route, Some(version)));
        }
    }
    let refusals: Map<String, Json> =
        REFUSALS.into_iter().map(|(status, doc)| (format!("Refused{status}"), refusal(status, doc))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Bulla",
            "summary": "Messages, queues and commands of a queue manager over HTTP.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "responses": refusals,
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "bearer": { "type": "http", "scheme": "bearer" },
                "certificate": { "type": "mutualTLS" },
                "session": { "type": "apiKey", "in": "cookie", "name": credentials::COOKIE },
            },
        },
    })
}

fn path(route: &Route, version: Option<&str>) -> Json {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Json> = names
        .filter(|name| *name != "version")
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let operations = route.operations.iter().map(|operation| {
        let method = operation.method.to_ascii_lowercase();
        let literal =
            |part: &&str| !part.is_empty() && !part.starts_with('{') && !["ibmmq", "rest", "qmgr"].contains(part);
        let words: Vec<&str> = route.path.split('/').filter(literal).collect();
        let words = [&method[..]].into_iter().chain(version).chain(words).collect::<Vec<_>>().join("_");
        (method, described(operation, &words, version == Some("v3")))
    });
    let mut all: Map<String, Json> = operations.collect();
    if !parameters.is_empty() {
        all.insert("parameters".to_owned(), parameters.into());
    }
    all.into()
}

fn described(operation: &Operation, id: &str, is_third: bool) -> Json {
    let has = |field: &&&Field| is_third || field.since != Some(Version::Three);
    let parameter = |field: &Field, place: &str, is_required: bool| {
        json!({
            "name": field.name, "in": place, "required": is_required,
            "description": field.doc, "schema": { "type": field.kind },
        })
    };
    let csrf = operation.changes.then(|| parameter(&CSRF, "header", true));
    let query = operation.parameters.iter().filter(has).map(|field| parameter(field, "query", false));
    // Accept is no parameter of a description: the answers say what there is.
    let headers = operation.headers.iter().filter(has).filter(|field| field.name != "Accept");
    let headers = headers.map(|field| parameter(field, "header", false));
    let parameters: Vec<Json> = csrf.into_iter().chain(query).chain(headers).collect();
    let done = operation.answers.iter().map(|one| (one.status.to_string(), answered(operation, one, is_third)));
    let refused = refused(operation)
        .map(|(status, _)| (status.to_string(), json!({ "$ref": format!("#/components/responses/Refused{status}") })));
    let responses: Map<String, Json> = done.chain(refused).collect();
    let signed_in = ["basic", "bearer", "certificate", "session"].map(|scheme| json!({ scheme: [] }));
    let security: Vec<Json> = match operation.asker {
        Asker::Everyone | Asker::Newcomer => Vec::new(),
        // What `*ANONYMOUS` may do takes no credentials.
        Asker::Client => signed_in.into_iter().chain([json!({})]).collect(),
        Asker::User if operation.does == Does::LogOut => vec![json!({ "session": [] })],
        Asker::User | Asker::Administrator => signed_in.into(),
    };
    let mut described = json!({
        "operationId": id,
        "summary": operation.summary,
        "security": security,
        "parameters": parameters,
        "responses": responses,
    });
    if !operation.takes.is_empty() {
        let schema = match operation.does {
            Does::Set => Some("QueueChange"),
            Does::Command => Some("Commands"),
            Does::LogIn => Some("LogIn"),
            _ => None,
        };
        described["requestBody"] = json!({ "required": true, "content": content(operation.takes, schema) });
    }
    described
}

/// What a body may be: JSON by its schema, where it has one, a text, or any bytes.
fn content(media: &[&str], schema: Option<&str>) -> Json {
    let one = |media: &&str| {
        let what = match (*media, schema) {
            ("application/json", Some(schema)) => {
                json!({ "schema": { "$ref": format!("#/components/schemas/{schema}") } })
            }
            ("text/plain", _) => json!({ "schema": { "type": "string" } }),
            _ => json!({}),
        };
        ((*media).to_owned(), what)
    };
    media.iter().map(one).collect::<Map<String, Json>>().into()
}

fn answered(operation: &Operation, answer: &Answer, is_third: bool) -> Json {
    let mut described = json!({ "description": answer.doc });
    if let Some(media) = answer.media {
        let schema = match operation.does {
            Does::List => Some("MessageList"),
            Does::Inquire => Some("Queues"),
            Does::Set => Some("Warnings"),
            Does::Command => Some("CommandAnswers"),
            Does::WhoAmI => Some("Users"),
            _ => None,
        };
        // Commands are answered as text to those who want it so.
        let media: &[&str] = if operation.does == Does::Command { operation.takes } else { &[media] };
        described["content"] = content(media, schema);
    }
    let headers = answer.headers.iter().filter(|field| field.name != "Content-Type");
    let headers = headers.filter(|field| is_third || field.since != Some(Version::Three));
    let headers: Map<String, Json> = headers
        .map(|field| (field.name.to_owned(), json!({ "description": field.doc, "schema": { "type": field.kind } })))
        .collect();
    if !headers.is_empty() {
        described["headers"] = headers.into();
    }
    described
}

fn refusal(status: u16, doc: &str) -> Json {
    let header = match status {
        401 => Some("WWW-Authenticate"),
        405 => Some("Allow"),
        429 | 503 => Some("Retry-After"),
        _ => None,
    };
    let mut described = json!({ "description": doc, "content": content(&["application/json"], Some("Error")) });
    if let Some(header) = header {
        described["headers"] = json!({ header: { "schema": { "type": "string" } } });
    }
    described
}

fn schemas() -> Json {
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer" });
    let mut of_command = json!({ "completionCode": number(), "reasonCode": number() });
    for name in ["text", "message"] {
        of_command[name] = json!({ "type": "array", "items": text() });
    }
    of_command["parameters"] = json!({ "type": "object" });
    json!({
        "Error": object(json!({
            "error": object(json!({
                "message": text(), "reason": number(), "name": text(), "cause": text(),
            }), &["message"]),
        }), &["error"]),
        "MessageList": object(json!({
            "messages": { "type": "array", "items": object(json!({
                "messageId": { "type": ["string", "null"] },
                "correlationId": { "type": ["string", "null"] },
                "format": { "type": ["string", "null"] },
            }), &[]) },
        }), &["messages"]),
        "Queues": object(json!({ "queue": { "type": "array", "items": queue::schema(false) } }), &["queue"]),
        "QueueChange": queue::schema(true),
        "Warnings": object(json!({ "warnings": { "type": "array", "items": text() } }), &["warnings"]),
        "LogIn": object(json!({ "username": text(), "password": text() }), &["username", "password"]),
        "Users": object(json!({
            "user": { "type": "array", "items": object(json!({
                "name": text(), "role": { "type": "array", "items": text() },
            }), &["name", "role"]) },
        }), &["user"]),
        "Commands": { "oneOf": [
            object(json!({
                "type": { "const": "runCommand" },
                "parameters": object(json!({ "command": text() }), &["command"]),
            }), &["type", "parameters"]),
            object(json!({
                "type": { "const": "runCommandJSON" },
                "command": text(),
                "qualifier": text(),
                "name": text(),
                "parameters": object(json!({}), &[]),
                "responseParameters": { "type": "array", "items": text() },
            }), &["type", "command", "qualifier"]),
        ] },
        "CommandAnswers": object(json!({
            "commandResponse": { "type": "array", "items": object(of_command, &["completionCode", "reasonCode"]) },
            "overallCompletionCode": number(),
            "overallReasonCode": number(),
        }), &["commandResponse", "overallCompletionCode", "overallReasonCode"]),
    })
}

fn object(properties: Json, required: &[&str]) -> Json {
    json!({ "type": "object", "properties": properties, "required": required })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_operation_of_the_table_is_described_once() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let mut ids = HashSet::new();
        for route in ROUTES {
            let versions = route.versions.iter().map(|version| route.path.replace("{version}", version));
            let all: Vec<String> =
                if route.versions.is_empty() { vec![route.path.to_owned()] } else { versions.collect() };
            for path in all {
                for operation in route.operations {
                    let described = &paths[&path][operation.method.to_ascii_lowercase()];
                    assert!(ids.insert(described["operationId"].as_str().unwrap().to_owned()), "{path}");
                    for status in operation.answers.iter().map(|answer| answer.status) {
                        assert!(
                            described["responses"][status.to_string()]["description"].is_string(),
                            "{path} {status}"
                        );
                    }
                    for (status, _) in refused(operation) {
                        assert!(described["responses"][status.to_string()]["$ref"].is_string(), "{path} {status}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_version_3_has_what_came_with_it() {
        let document = document();
        let names = |version: &str| {
            let path = format!("/ibmmq/rest/{version}/messaging/qmgr/{{qmgr}}/queue/{{queue}}/message");
            let parameters = document["paths"][path]["post"]["parameters"].as_array().unwrap();
            parameters.iter().map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert!(names("v3").contains(&"ibm-mq-usr".to_owned()) && !names("v2").contains(&"ibm-mq-usr".to_owned()));
    }
}
