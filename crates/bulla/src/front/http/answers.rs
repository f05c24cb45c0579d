//! Answers to requests: statuses, and bodies that say what was wrong.

use crate::front::outcome::{Failure, Said};
use crate::mqsc::reply::{Failure as CommandFailure, FailureKind};
use crate::reason::{self, Refusal};
use bulla_http::{HeaderValue, Response};
use serde_json::json;

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(super) status: u16,
    /// The MQ reason code, where there is one.
    reason: Option<u16>,
    /// The sub-reason, kebab-case.
    pub(super) cause: &'static str,
    /// The same in the words of another queue manager.
    cause_there: Option<String>,
    /// One line for people.
    message: String,
    /// A header that belongs to the status.
    header: Option<(&'static str, HeaderValue)>,
}

const JSON: HeaderValue = HeaderValue::from_static("application/json;charset=utf-8");
/// What a client may sign in by (RFC 7617, RFC 6750).
const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"bulla\", charset=\"UTF-8\", Bearer realm=\"bulla\"");
/// Seconds after which a client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl Refused {
    /// A refusal that has no MQ reason.
    pub(crate) fn new(status: u16, cause: &'static str, message: impl Into<String>) -> Self {
        let header = match status {
            401 => Some(("www-authenticate", CHALLENGE)),
            429 | 503 => Some(("retry-after", RETRY_AFTER)),
            _ => None,
        };
        Self { status, reason: None, cause, cause_there: None, message: message.into(), header }
    }

    /// A path has no such method.
    pub(super) fn method(allowed: &str) -> Self {
        let allow = HeaderValue::new(allowed.to_owned()).ok().map(|allowed| ("allow", allowed));
        Self { header: allow, ..Self::new(405, "method", format!("this path has the methods {allowed}")) }
    }

    /// A get under an idempotency key was done, and its message is not kept.
    pub(super) fn not_kept() -> Self {
        let why = "a message was got under that idempotency key before, and was too long to be kept, or had to go for \
            others of the same user";
        Self::new(410, "answer-not-kept", why).with_reason(reason::STORAGE_NOT_AVAILABLE.code)
    }

    /// The same with an MQ reason.
    pub(crate) fn with_reason(self, reason: u16) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// The same to a client that may be unknown: that it has not said who it is may be all that is missing.
    pub(super) fn seen_by(self, is_unknown: bool) -> Self {
        if self.status == 403 && is_unknown { self.with_status(401) } else { self }
    }

    /// The same with another status.
    fn with_status(self, status: u16) -> Self {
        Self { status, header: Self::new(status, "", "").header, ..self }
    }

    /// What the core refuses.
    pub(super) fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Refused(refusal)
            | Failure::OfMessage(refusal, _)
            | Failure::UnitTooOld(refusal)
            | Failure::ContainerInUse(refusal)
            | Failure::ContainerTaken(refusal) => Self::of_refusal(refusal),
            Failure::NotAllowed(_) | Failure::NotOffered(_) => Self::new(400, "not-offered", failure.to_string()),
            Failure::Said(Said { reason: Some(code), cause, text, .. }) => {
                Self::of_owner(*code, cause.as_deref().unwrap_or_default(), text.as_deref().unwrap_or_default())
            }
            Failure::BeyondCredit(_) | Failure::UnitUnknown | Failure::UnitBackedOut(_) | Failure::Said(_) => {
                Self::new(500, "unexpected", failure.to_string())
            }
        }
    }

    /// What another queue manager refuses, for that MQ reason. Its text begins with both, which stand apart here.
    fn of_owner(code: u16, cause: &str, text: &str) -> Self {
        let reason = reason::of(code);
        let said = text.strip_prefix(&Refusal::new(reason, "").to_string()).unwrap_or(text).trim_start();
        let said = said.strip_prefix(&format!("cause={cause}")).unwrap_or(said).trim_start();
        let of = Self::new(status(&Refusal::new(reason, "")), "", said);
        Self { reason: Some(code), cause_there: Some(cause.to_owned()), ..of }
    }

    /// What the core refuses, for an MQ reason.
    pub(crate) fn of_refusal(refusal: &Refusal) -> Self {
        let of = Self::new(status(refusal), refusal.cause.unwrap_or_default(), refusal.detail.clone());
        Self { reason: Some(refusal.reason.code), ..of }
    }

    /// What the admin language refuses.
    pub(crate) fn of_command(failure: &CommandFailure) -> Self {
        if failure.kind == FailureKind::Invalid {
            return Self::new(400, "attribute", failure.message.clone());
        }
        let code = failure.reason.and_then(|reason| u16::try_from(reason).ok()).unwrap_or_default();
        Self::of_refusal(&Refusal::new(reason::of(code), failure.message.clone()))
    }

    /// The answer.
    pub(super) fn response(self) -> Response {
        let mut error = json!({ "message": self.message });
        if let Some(code) = self.reason {
            error["reason"] = code.into();
            error["name"] = reason::of(code).name.into();
        }
        let cause = self.cause_there.as_deref().unwrap_or(self.cause);
        if !cause.is_empty() {
            error["cause"] = cause.into();
        }
        let body = json!({ "error": error }).to_string();
        self.with_body(|response| response.with("content-type", JSON).body(body))
    }

    /// Cause and message as a line of text.
    pub(super) fn line(&self) -> String {
        format!("{}: {}\n", self.cause, self.message)
    }

    /// The answer with a body of another form.
    pub(super) fn with_body(self, body: impl FnOnce(Response) -> Response) -> Response {
        let response = body(Response::new(self.status));
        match self.header {
            Some((name, value)) => response.with(name, value),
            None => response,
        }
    }
}

/// The status of an MQ reason. Those that are not named are the server's own trouble.
fn status(refusal: &Refusal) -> u16 {
    match refusal.reason {
        reason::NOT_AUTHORIZED => 403,
        reason::UNKNOWN_OBJECT_NAME
        | reason::UNKNOWN_ALIAS_BASE_Q
        | reason::UNKNOWN_REMOTE_Q_MGR
        | reason::REMOTE_Q_NAME_ERROR
        | reason::UNKNOWN_XMIT_Q
        | reason::UNKNOWN_DEF_XMIT_Q => 404,
        reason::OBJECT_IN_USE | reason::OBJECT_CHANGED | reason::Q_DELETED => 409,
        reason::MSG_TOO_BIG_FOR_Q | reason::MSG_TOO_BIG_FOR_CHANNEL => 413,
        reason::HANDLE_NOT_AVAILABLE | reason::MAX_CONNS_LIMIT_REACHED => 429,
        reason::SECURITY_ERROR
        | reason::GET_INHIBITED
        | reason::PUT_INHIBITED
        | reason::Q_TYPE_ERROR
        | reason::OPTION_NOT_VALID_FOR_TYPE => 403,
        reason::MD_ERROR
        | reason::OPTIONS_ERROR
        | reason::SELECTOR_ERROR
        | reason::TOPIC_STRING_ERROR
        | reason::MISSING_REPLY_TO_Q => 400,
        reason::Q_FULL
        | reason::Q_SPACE_NOT_AVAILABLE
        | reason::STORAGE_NOT_AVAILABLE
        | reason::Q_MGR_STOPPING
        | reason::RESOURCE_PROBLEM
        | reason::PUBLICATION_FAILURE
        // A shared group changes hands.
        | reason::CF_NOT_AVAILABLE
        | reason::CONNECTION_BROKEN => 503,
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::amqp::outcomes;

    #[test]
    fn an_answer_says_reason_cause_and_what_is_wrong() {
        let refusal = Refusal::security("not-a-recipient", "A: what is there is addressed to others");
        let response = Refused::of(&Failure::Refused(refusal)).response();
        assert_eq!(response.status, 403);
        let bulla_http::Body::One(body) = response.body else { panic!("a body") };
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let error = &body["error"];
        assert_eq!((&error["reason"], &error["cause"]), (&json!(2063), &json!("not-a-recipient")));
        assert_eq!(
            (&error["name"], &error["message"]),
            (&json!("SECURITY_ERROR"), &json!("A: what is there is addressed to others"))
        );
    }

    #[test]
    fn what_the_owner_of_a_queue_refuses_is_answered_as_if_it_were_refused_here() {
        let here = |refusal: &Refusal| {
            let bulla_http::Body::One(body) = Refused::of_refusal(refusal).response().body else { panic!("a body") };
            body
        };
        for refusal in [
            Refusal::new(reason::Q_FULL, "the queue F is full"),
            Refusal::security("not-a-recipient", "A: what is there is addressed to others"),
            Refusal::new(reason::NOT_AUTHORIZED, ""),
        ] {
            let said = outcomes::said(refusal.to_amqp());
            let refused = Refused::of(&Failure::Said(said));
            assert_eq!(refused.status, status(&refusal));
            let bulla_http::Body::One(body) = refused.response().body else { panic!("a body") };
            assert_eq!(body, here(&refusal));
        }
    }

    #[test]
    fn statuses_have_their_headers() {
        let header = |refused: Refused| refused.response().headers.into_iter().map(|(name, _)| name).next_back();
        assert_eq!(header(Refused::new(401, "", "who?")), Some("www-authenticate"));
        assert_eq!(header(Refused::of_refusal(&Refusal::new(reason::Q_FULL, "full"))), Some("retry-after"));
        let full = Refusal::new(reason::RESOURCE_PROBLEM, "no space left for the journal");
        assert_eq!(header(Refused::of_refusal(&full)), Some("retry-after"), "it is for a time");
        assert_eq!(header(Refused::method("GET")), Some("allow"));
        assert_eq!(header(Refused::new(404, "", "no")), Some("content-type"));
    }
}
