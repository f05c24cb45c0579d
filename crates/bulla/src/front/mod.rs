//! Front ends: AMQP, HTTP, and one of function calls for tests. What the core asks of them is `bulla_core::front`.

pub(crate) mod amqp;
pub(crate) mod call;
#[cfg(test)]
pub(crate) mod direct;
pub(crate) mod http;
pub(crate) mod offered;

pub(crate) use bulla_core::front::*;

use crate::dispatcher::local::Local;
use crate::tls::{Tls, TlsRefusal};
use openssl::ssl::Ssl;

/// What is spoken at a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    /// AMQP 1.0.
    Amqp,
    /// HTTP/1.1.
    Http,
}

impl Protocol {
    /// A session of TLS of its listener.
    ///
    /// # Errors
    /// The listener's certificate, key or authorities do not load.
    pub(crate) fn session(self, tls: &Tls) -> Result<Ssl, TlsRefusal> {
        match self {
            Self::Amqp => tls.session(),
            Self::Http => tls.web_session(),
        }
    }

    /// The front end of a new connection. `certificate` says that the client has shown a verified one, `tls` that TLS
    /// protects the connection, and `here` that the client is on this machine.
    pub(crate) fn front(self, local: &Local, certificate: bool, tls: bool, here: bool) -> Box<Front> {
        match self {
            Self::Amqp => offered::front(local, certificate, tls || here),
            Self::Http => http::front(local, certificate, tls),
        }
    }
}
