//! Whether the queue manager is well: for load balancers and for what starts and ends containers. It takes no sign-in,
//! and the core hears nothing of it.

use super::answers::Refused;
use super::commands::Form;
use super::table::Does;
use crate::manager::Manager;
use crate::readiness::Unready;
use bulla_http::{HeaderValue, Response};
use std::sync::atomic::Ordering;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The answer: 503 where clients should not come, with the first cause, as JSON or as a line of text.
pub(super) fn answer(asked: Does, form: Form, manager: &Manager) -> Response {
    let text = |response: Response, line: String| response.with("content-type", TEXT).body(line);
    let response = match refused(asked, manager) {
        None => text(Response::new(200), "ok\n".to_owned()),
        Some(refused) if form == Form::Text => {
            let line = refused.line();
            refused.with_body(|response| text(response, line))
        }
        Some(refused) => refused.response(),
    };
    response.with("cache-control", NO_STORE)
}

/// Why clients should not come.
fn refused(asked: Does, manager: &Manager) -> Option<Refused> {
    if asked != Does::Ready {
        return None;
    }
    if manager.stopping.load(Ordering::Acquire) {
        return Some(Refused::new(503, "stopping", "the queue manager is stopping"));
    }
    let causes: Vec<Unready> = manager.listening.readiness.causes().collect();
    let told = causes.iter().map(|cause| cause.text()).collect::<Vec<_>>().join("; ");
    causes.first().map(|first| Refused::new(503, first.cause(), told))
}
