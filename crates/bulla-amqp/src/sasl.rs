//! SASL on the wire (part 5, section 5.3): mechanisms, and what a client answers.

use crate::scram::{ScramClient, ScramCrypto};
use crate::value::Symbol;
use bytes::Bytes;
use std::fmt;

/// A SASL mechanism that this engine speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// No identity (RFC 4505).
    Anonymous,
    /// User and password in clear (RFC 4616): offer it over TLS only.
    Plain,
    /// The identity of the TLS client certificate (RFC 4422, appendix A): offer it only where one was verified.
    External,
    /// Password proved, never sent (RFC 5802, RFC 7677).
    ScramSha256,
}

impl Mechanism {
    /// The registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "ANONYMOUS",
            Self::Plain => "PLAIN",
            Self::External => "EXTERNAL",
            Self::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    pub(crate) const fn symbol(self) -> Symbol {
        Symbol::from_static(self.name())
    }
}

/// What a server offers.
#[derive(Clone, Debug)]
pub struct SaslOffer {
    /// Mechanisms, the preferred one first.
    pub mechanisms: Vec<Mechanism>,
    /// Whether a client may leave SASL out (some do so by default). Such a connection has no
    /// [`Event::SaslInit`](crate::Event::SaslInit): it is anonymous.
    pub allow_bare_amqp: bool,
}

/// How a client proves who it is.
#[derive(Clone)]
pub enum SaslClient {
    /// Not at all: the AMQP header comes first.
    None,
    /// By the mechanism ANONYMOUS.
    Anonymous,
    /// By user and password in clear.
    Plain {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// By the TLS client certificate.
    External,
    /// By SCRAM-SHA-256.
    Scram {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
}

/// Passwords stay out of logs.
impl fmt::Debug for SaslClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |f: &mut fmt::Formatter<'_>, name, user| f.debug_struct(name).field("user", user).finish_non_exhaustive();
        match self {
            Self::None => f.write_str("None"),
            Self::Anonymous => f.write_str("Anonymous"),
            Self::External => f.write_str("External"),
            Self::Plain { user, .. } => of(f, "Plain", user),
            Self::Scram { user, .. } => of(f, "Scram", user),
        }
    }
}

impl SaslClient {
    pub(crate) fn mechanism(&self) -> Option<Mechanism> {
        match self {
            Self::None => None,
            Self::Anonymous => Some(Mechanism::Anonymous),
            Self::Plain { .. } => Some(Mechanism::Plain),
            Self::External => Some(Mechanism::External),
            Self::Scram { .. } => Some(Mechanism::ScramSha256),
        }
    }

    /// The first response, and the exchange that goes on for SCRAM.
    pub(crate) fn start(&self, crypto: &dyn ScramCrypto) -> (Bytes, Option<ScramClient>) {
        match self {
            Self::None | Self::External => (Bytes::new(), None),
            Self::Anonymous => (Bytes::from_static(b"anonymous"), None),
            Self::Plain { user, password } => {
                (Bytes::from([b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat()), None)
            }
            Self::Scram { user, password } => {
                let exchange = ScramClient::new(user, password, &crypto.nonce());
                (exchange.first(), Some(exchange))
            }
        }
    }
}

/// A PLAIN response (RFC 4616).
#[derive(Clone, PartialEq, Eq)]
pub struct PlainResponse<'a> {
    /// Identity to act as; usually empty.
    pub authorization: &'a str,
    /// The user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

/// Without the password.
impl fmt::Debug for PlainResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { authorization, user, .. } = self;
        f.debug_struct("PlainResponse")
            .field("authorization", authorization)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

/// What a client answers a mechanism: with PLAIN the password among it, so that its text shows the length alone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SaslSecret(pub Bytes);

impl fmt::Debug for SaslSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SaslSecret({} bytes)", self.0.len())
    }
}

impl std::ops::Deref for SaslSecret {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for SaslSecret {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl<'a> PlainResponse<'a> {
    /// Takes a response apart; none when it is not three UTF-8 strings with NUL between them, or has no user.
    pub fn parse(response: &'a [u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(response).ok()?.split('\0');
        let (authorization, user, password) = (parts.next()?, parts.next()?, parts.next()?);
        (parts.next().is_none() && !user.is_empty()).then_some(Self { authorization, user, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::types::{SaslInit, SaslResponse};

    #[test]
    fn no_text_of_a_secret_shows_it() {
        let (user, password) = ("orders".to_owned(), "opensesame".to_owned());
        let response = Bytes::from_static(b"\0orders\0opensesame");
        let secret = SaslSecret(response.clone());
        let init = Event::SaslInit { mechanism: Mechanism::Plain, response: secret.clone(), hostname: None };
        let texts = [
            format!("{:?}", SaslClient::Plain { user: user.clone(), password: password.clone() }),
            format!("{:#?}", SaslClient::Scram { user, password }),
            format!("{:?}", PlainResponse::parse(&response).unwrap()),
            format!("{init:?}"),
            format!("{:?}", Event::SaslResponse(secret.clone())),
            format!(
                "{:?}",
                SaslInit {
                    mechanism: Mechanism::Plain.symbol(),
                    initial_response: Some(secret.clone()),
                    hostname: None
                }
            ),
            format!("{:?}", SaslResponse { response: secret }),
        ];
        for text in &texts {
            assert!(!text.contains("opensesame") && !text.contains("111, 112, 101, 110"), "{text}");
        }
        assert!(texts[..3].iter().all(|text| text.contains("orders")), "{texts:?}");
        assert!(texts[3..].iter().all(|text| text.contains("18 bytes")), "{texts:?}");
    }

    #[test]
    fn plain_is_three_strings() {
        let plain = PlainResponse::parse(b"\0orders\0secret").unwrap();
        assert_eq!(plain, PlainResponse { authorization: "", user: "orders", password: "secret" });
        for bad in [&b""[..], b"orders", b"\0orders", b"\0\0secret", b"\0a\0b\0c", b"\0\xff\0b"] {
            assert_eq!(PlainResponse::parse(bad), None);
        }
    }
}
