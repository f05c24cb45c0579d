//! Whether the queue manager is well: for load balancers and for what starts and ends containers. It takes no sign-in,
//! and the core hears nothing of it.

use super::answers::Refused;
use crate::manager::Manager;
use bulla_http::{Head, HeaderValue, Method, Response};
use std::sync::atomic::Ordering;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    /// Whether the thread that has this connection goes on: else the process is to be started anew.
    Live,
    /// Whether clients may come: it does not stop.
    Ready,
}

/// What a request asks, where it is one of these.
pub(super) fn asked(head: &Head) -> Option<Result<Asked, Refused>> {
    let asked = match head.target.path() {
        "/livez" => Asked::Live,
        "/readyz" | "/healthz" => Asked::Ready,
        _ => return None,
    };
    Some(match head.method {
        Method::Get | Method::Head => Ok(asked),
        _ => Err(Refused::method("GET, HEAD")),
    })
}

/// The answer.
///
/// # Errors
/// 503: clients should not come.
pub(super) fn answer(asked: Asked, manager: &Manager) -> Result<Response, Refused> {
    if asked == Asked::Ready && manager.stopping.load(Ordering::Acquire) {
        return Err(Refused::new(503, "stopping", "the queue manager is stopping"));
    }
    Ok(Response::new(200).with("content-type", TEXT).with("cache-control", NO_STORE).body("ok\n"))
}
