//! Whether the queue manager is well: for load balancers and for what starts and ends containers. It takes no sign-in,
//! and the core hears nothing of it.

use super::answers::Refused;
use super::table::Does;
use crate::manager::Manager;
use bulla_http::{HeaderValue, Response};
use std::sync::atomic::Ordering;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The answer.
///
/// # Errors
/// 503: clients should not come.
pub(super) fn answer(asked: Does, manager: &Manager) -> Result<Response, Refused> {
    if asked == Does::Ready && manager.stopping.load(Ordering::Acquire) {
        return Err(Refused::new(503, "stopping", "the queue manager is stopping"));
    }
    Ok(Response::new(200).with("content-type", TEXT).with("cache-control", NO_STORE).body("ok\n"))
}
