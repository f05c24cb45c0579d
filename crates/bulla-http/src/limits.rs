//! The limits that keep a client from costing more than it should.

use std::time::Duration;

/// Largest head of a request, in bytes: its line, its headers and the empty line. Trailers of a body have the same
/// bound.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Largest target of a request, in bytes: path and query.
pub const TARGET_BYTES_MAX: usize = 8 << 10;
/// Headers of a request that can be taken at all; [`Limits::headers_max`] may say fewer.
pub const HEADERS_MAX: usize = 100;
/// Largest body by default, in bytes.
pub const BODY_BYTES_MAX: u64 = 4 << 20;
/// Requests that are handed out and not answered, by default.
pub const PIPELINED_MAX: usize = 8;
/// Requests of one connection, by default: the answer to the last one says that the connection closes.
pub const REQUESTS_MAX: u64 = 1_000_000;
/// Bytes of output that wait for the socket beyond which nothing more is read, by default.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Time for a whole head after its first byte, by default; on a new connection, after its beginning.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Time that a connection may be kept without a request, by default.
pub const IDLE_WITHIN: Duration = Duration::from_secs(75);
/// Time within which a body must bring [`BODY_PROGRESS_BYTES`], by default.
pub const BODY_STALLS_WITHIN: Duration = Duration::from_secs(20);
/// Bytes that a body must bring within [`BODY_STALLS_WITHIN`], or its end, by default: a client with a slow line sends
/// as much in a second.
pub const BODY_PROGRESS_BYTES: u64 = 4 << 10;
/// Time within which a client must take [`OUTPUT_PROGRESS_BYTES`], by default.
pub const OUTPUT_STALLS_WITHIN: Duration = Duration::from_secs(20);
/// Bytes of output that the client must take within [`OUTPUT_STALLS_WITHIN`], or all that is there.
pub const OUTPUT_PROGRESS_BYTES: u64 = 4 << 10;
/// Time for a client to read its last answer and to hang up, where it still sends, by default. Closing at once would
/// reset the connection, and the answer could be lost.
pub const LINGER_WITHIN: Duration = Duration::from_secs(2);
/// Bytes that are thrown away meanwhile, at most.
pub const LINGER_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a body, answered before its end, that are thrown away to keep the connection. With more to come the
/// connection closes.
pub const DROPPED_BYTES_MAX: u64 = 256 << 10;
/// Longest line of a chunk, in bytes: its size and its extensions, without the end of the line.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes of chunk extensions of one body, at most.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 16 << 10;

/// Bounds on what a client can make this side hold and wait for. Each default is a named constant of this crate.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest head, in bytes. Refused with 431 beyond it.
    pub head_bytes_max: usize,
    /// Largest target, in bytes. Refused with 414 beyond it.
    pub target_bytes_max: usize,
    /// Headers of a request, [`HEADERS_MAX`] at most. Refused with 431 beyond it.
    pub headers_max: usize,
    /// Largest body, in bytes. Refused with 413 beyond it.
    pub body_bytes_max: u64,
    /// Requests handed out and not answered. Beyond it no further request is read.
    pub pipelined_max: usize,
    /// Requests of the connection.
    pub requests_max: u64,
    /// Bytes of output waiting for the socket beyond which nothing more is read.
    pub output_bytes_max: usize,
    /// Time for a whole head. Answered with 408.
    pub head_within: Duration,
    /// Time without a request. The connection closes without a word.
    pub idle_within: Duration,
    /// Time within which a body must bring `body_progress_bytes`. Answered with 408.
    pub body_stalls_within: Duration,
    /// Bytes that a body must bring within that time.
    pub body_progress_bytes: u64,
    /// Time within which the client must take [`OUTPUT_PROGRESS_BYTES`]. The connection closes without a word.
    pub output_stalls_within: Duration,
    /// Time for the client to hang up after the last answer, where it still sends.
    pub linger_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: HEAD_BYTES_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            headers_max: HEADERS_MAX,
            body_bytes_max: BODY_BYTES_MAX,
            pipelined_max: PIPELINED_MAX,
            requests_max: REQUESTS_MAX,
            output_bytes_max: OUTPUT_BYTES_MAX,
            head_within: HEAD_WITHIN,
            idle_within: IDLE_WITHIN,
            body_stalls_within: BODY_STALLS_WITHIN,
            body_progress_bytes: BODY_PROGRESS_BYTES,
            output_stalls_within: OUTPUT_STALLS_WITHIN,
            linger_within: LINGER_WITHIN,
        }
    }
}
