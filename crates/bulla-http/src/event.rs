//! What the machine tells its host.

use crate::head::Head;
use bytes::Bytes;

/// A request of one connection. Never used twice on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What happened. For each request: `Request`, then its `Body` pieces and its `End`, then `Written`. `Aborted` may come
/// in place of what is still missing, and nothing after it. A request that is answered before its end has neither
/// `Body` nor `End` from then on.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The head of a request has come whole and is valid. A body comes after [`Server::go_on`](crate::Server::go_on).
    Request {
        /// The request.
        id: RequestId,
        /// What it asks.
        head: Box<Head>,
    },
    /// A piece of the body, out of its chunks. Never empty.
    Body {
        /// The request.
        id: RequestId,
        /// The piece.
        bytes: Bytes,
    },
    /// The request has come whole.
    End {
        /// The request.
        id: RequestId,
    },
    /// The client broke the framing or took too long, before the end of its request or before its answer went out
    /// whole; or the connection closes before this request can be answered.
    Aborted {
        /// The request, not valid any more.
        id: RequestId,
    },
    /// The whole answer was given to the socket.
    Written {
        /// The request, not valid any more.
        id: RequestId,
    },
    /// The connection is over: the last event.
    Closed,
}
