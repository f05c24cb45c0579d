//! Front ends: AMQP, HTTP, and one of function calls for tests. What the core asks of them is `bulla_core::front`.

pub(crate) mod amqp;
pub(crate) mod call;
#[cfg(test)]
pub(crate) mod direct;
pub(crate) mod http;
pub(crate) mod offered;
mod owner;

pub(crate) use bulla_core::front::*;

use crate::dispatcher::local::Local;
use crate::tls::{Tls, TlsRefusal};
use http::Common;
use openssl::ssl::Ssl;

/// A connection's front end, which was answered by another thread, is to be looked at.
pub(crate) struct Answered {
    /// Which connection of the dispatcher it is.
    pub(crate) generation: u64,
}

/// What is spoken at a listener.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// AMQP 1.0.
    Amqp,
    /// HTTP/1.1, and what its connections have in common.
    Http(Common),
}

impl Protocol {
    /// A session of TLS of its listener.
    ///
    /// # Errors
    /// The listener's certificate, key or authorities do not load.
    pub(crate) fn session(&self, tls: &Tls) -> Result<Ssl, TlsRefusal> {
        match self {
            Self::Amqp => tls.session(),
            Self::Http(_) => tls.web_session(),
        }
    }

    /// The front end of a new connection. `certificate` says that the client has shown a verified one, `tls` that TLS
    /// protects the connection, and `here` that the client is on this machine.
    pub(crate) fn front(&self, local: &Local, certificate: bool, tls: bool, here: bool) -> Box<Front> {
        match self {
            Self::Amqp => offered::front(local, certificate, tls || here),
            Self::Http(common) => http::front(local, common.clone(), certificate, tls),
        }
    }
}
