//! HTTP/1.1 of a server (RFC 9110, RFC 9112), as a machine without sockets and without a clock: bytes and time in,
//! events out; answers in, bytes out.
//!
//! - [`Server`] is the machine: the host feeds [`Server::receive`], takes [`Server::poll_event`], lets bodies come with
//!   [`Server::go_on`], answers with [`Server::respond`], and writes [`Server::output_slices`].
//! - [`Limits`] bounds what a client can make this side hold and wait for; [`refusal`] is the table of what it is
//!   refused for.
//!
//! Requests that two servers in a row could read in two ways are refused with 400, and the connection closes.
//!
//! ```
//! use bulla_http::{Event, HeaderValue, Limits, Response, Server};
//! use std::time::Instant;
//!
//! let mut server = Server::new(Limits::default(), Instant::now());
//! server.receive(Instant::now(), b"GET /orders?limit=1 HTTP/1.1\r\nHost: bulla.example\r\n\r\n");
//! let Some(Event::Request { id, head }) = server.poll_event() else { panic!("a request was sent") };
//! assert_eq!((head.target.path(), head.target.query()), ("/orders", Some("limit=1")));
//! assert_eq!(server.poll_event(), Some(Event::End { id }));
//!
//! let text = HeaderValue::from_static("text/plain");
//! server.respond(id, Response::new(200).with("content-type", text).body("an order"), false);
//! let mut slices = Vec::new();
//! server.output_slices(&mut slices);
//! let written = slices.iter().map(|slice| slice.len()).sum();
//! assert!(slices[0].starts_with(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\r\n"));
//! drop(slices);
//! server.output_written(written);
//! assert_eq!(server.poll_event(), Some(Event::Written { id }));
//! ```

mod chunks;
mod event;
mod framing;
mod head;
pub mod limits;
mod lines;
mod output;
mod reading;
pub mod refusal;
mod response;
mod server;
#[cfg(test)]
mod tests;
mod timer;

pub use event::{Event, RequestId};
pub use head::{BodyLen, Head, Headers, Method, Target, Version};
pub use limits::Limits;
pub use refusal::Refusal;
pub use response::{Body, HeaderLines, HeaderValue, NotAHeaderValue, Response, reason_phrase};
pub use server::Server;
