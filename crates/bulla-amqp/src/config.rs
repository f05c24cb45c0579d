//! What a host sets, and the limits that keep a peer from costing more than it should.

use crate::value::{Symbol, Value};
use std::time::Duration;

/// Smallest frame that every peer must take, in bytes (part 2, section 2.4.1).
pub const FRAME_BYTES_MIN: u32 = 512;
/// Largest frame taken by default, in bytes.
pub const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Largest SASL frame, in bytes. The standard says 512, but mechanisms with tokens need more.
pub const SASL_FRAME_BYTES_MAX: u32 = 8_192;
/// Highest channel number by default.
pub const CHANNEL_MAX: u16 = 255;
/// Sessions of a connection by default.
pub const SESSIONS_MAX: u32 = 256;
/// Links of a session by default.
pub const SESSION_LINKS_MAX: u32 = 1_024;
/// Links of a connection by default.
pub const CONNECTION_LINKS_MAX: u32 = 4_096;
/// Transfer frames that a peer may send before the window is renewed, by default; half of them are
/// taken in before it is.
pub const INCOMING_WINDOW_FRAMES: u32 = 16_384;
/// Bytes of messages that are still arriving, all links of a connection together, by default.
pub const IN_PROGRESS_BYTES_MAX: u64 = 128 << 20;
/// Deliveries of a link that are not settled, by default.
pub const LINK_UNSETTLED_MAX: u32 = 131_072;
/// Bytes of output waiting for the socket beyond which nothing more is sent, and beyond twice of which
/// [`Connection::wants_input`](crate::Connection::wants_input) is false, by default.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Time for a peer to get from its first byte to `open`, by default.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a peer to answer `close`.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest idle-timeout of a peer that is honoured: heartbeats cost.
pub const PEER_IDLE_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// What the host sets for one connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of this container.
    pub container_id: String,
    /// Client: the host to reach, in SASL and open.
    pub hostname: Option<String>,
    /// Largest frame taken, in bytes; at least [`FRAME_BYTES_MIN`].
    pub max_frame_size: u32,
    /// Highest channel number taken.
    pub channel_max: u16,
    /// Silence after which the peer is given up. The peer is told half of it.
    pub idle_timeout: Option<Duration>,
    /// Extensions offered in open.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions desired in open.
    pub desired_capabilities: Vec<Symbol>,
    /// Properties told in open.
    pub properties: Vec<(Symbol, Value)>,
    /// Server: whether the host answers the peer's open, by [`Connection::accept_open`](crate::Connection::accept_open)
    /// or [`Connection::refuse_open`](crate::Connection::refuse_open). Nothing that the peer sent behind its open is
    /// looked at before.
    pub host_opens: bool,
    /// Bounds on what the peer can make this side hold.
    pub limits: Limits,
}

impl Config {
    /// The defaults, for a container of that name.
    pub fn new(container_id: impl Into<String>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            max_frame_size: FRAME_BYTES_MAX,
            channel_max: CHANNEL_MAX,
            idle_timeout: None,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Vec::new(),
            host_opens: false,
            limits: Limits::default(),
        }
    }
}

/// Bounds on what a peer can make this side hold. Each default is a named constant of this crate.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions.
    pub sessions: u32,
    /// Links of one session, counted by handle.
    pub session_links: u32,
    /// Links of all sessions.
    pub connection_links: u32,
    /// Transfer frames of a session between two renewals of the window.
    pub incoming_window: u32,
    /// Bytes of messages still arriving, all links together.
    pub in_progress_bytes: u64,
    /// Unsettled deliveries of one link: beyond it an incoming link is detached, an outgoing one waits.
    pub link_unsettled: u32,
    /// Bytes of output waiting for the socket beyond which no message is added.
    pub output_bytes: usize,
    /// Time from the start to the peer's open.
    pub handshake_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: SESSIONS_MAX,
            session_links: SESSION_LINKS_MAX,
            connection_links: CONNECTION_LINKS_MAX,
            incoming_window: INCOMING_WINDOW_FRAMES,
            in_progress_bytes: IN_PROGRESS_BYTES_MAX,
            link_unsettled: LINK_UNSETTLED_MAX,
            output_bytes: OUTPUT_BYTES_MAX,
            handshake_timeout: HANDSHAKE_TIMEOUT,
        }
    }
}
