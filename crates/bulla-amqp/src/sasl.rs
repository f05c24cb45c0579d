//! SASL on the wire (part 5, section 5.3): mechanisms, and what a client answers.

use crate::scram::{ScramClient, ScramCrypto, unescape};
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
    /// A token that is as good as a password for its bearer (RFC 7628): offer it over TLS only.
    OAuthBearer,
    /// A ticket that this side has given out by another way, good once. No other side knows what it is, so it is taken
    /// where it is among the mechanisms, and not listed to clients.
    Ticket,
}

impl Mechanism {
    /// The registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "ANONYMOUS",
            Self::Plain => "PLAIN",
            Self::External => "EXTERNAL",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::OAuthBearer => "OAUTHBEARER",
            Self::Ticket => "X-BULLA-TICKET",
        }
    }

    /// Whether clients are told of it.
    pub(crate) const fn is_listed(self) -> bool {
        !matches!(self, Self::Ticket)
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
    /// By a bearer token.
    Bearer {
        /// The token.
        token: String,
    },
    /// By a ticket that the server has given out by another way.
    Ticket {
        /// The ticket.
        ticket: Bytes,
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
            Self::Bearer { token } => write!(f, "Bearer({} bytes)", token.len()),
            Self::Ticket { ticket } => write!(f, "Ticket({} bytes)", ticket.len()),
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
            Self::Bearer { .. } => Some(Mechanism::OAuthBearer),
            Self::Ticket { .. } => Some(Mechanism::Ticket),
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
            Self::Bearer { token } => (Bytes::from(format!("n,,\x01auth=Bearer {token}\x01\x01")), None),
            Self::Ticket { ticket } => (ticket.clone(), None),
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

/// What a client answers to the reasons of a server that refuses its token (RFC 7628, section 3.2.3).
pub(crate) const BEARER_REFUSED: &[u8] = b"\x01";

/// An OAUTHBEARER response (RFC 7628, section 3.1).
#[derive(Clone, PartialEq, Eq)]
pub struct BearerResponse<'a> {
    /// Identity to act as; usually empty.
    pub authorization: String,
    /// The token.
    pub token: &'a str,
}

/// Without the token.
impl fmt::Debug for BearerResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerResponse").field("authorization", &self.authorization).finish_non_exhaustive()
    }
}

impl<'a> BearerResponse<'a> {
    /// Takes a response apart; none when it is not of RFC 7628's form, asks for channel binding, or has other than one
    /// token. Keys besides `auth` are passed over, as it has them.
    pub fn parse(response: &'a [u8]) -> Option<Self> {
        let (header, pairs) = std::str::from_utf8(response).ok()?.split_once('\x01')?;
        let (binding, authorization) = header.strip_suffix(',')?.split_once(',')?;
        if binding != "n" && binding != "y" {
            return None;
        }
        let authorization = match authorization {
            "" => String::new(),
            named => unescape(named.strip_prefix("a=")?).filter(|name| !name.is_empty())?,
        };
        let mut token = None;
        for pair in pairs.strip_suffix("\x01\x01")?.split('\x01') {
            let (key, value) = pair.split_once('=')?;
            if key != "auth" {
                continue;
            }
            let (scheme, found) = value.split_once(' ')?;
            let is_token = scheme.eq_ignore_ascii_case("Bearer") && !found.is_empty();
            if !is_token || token.replace(found).is_some() {
                return None;
            }
        }
        Some(Self { authorization, token: token? })
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
            format!("{:?}", BearerResponse::parse(b"n,a=orders,\x01auth=Bearer opensesame\x01\x01").unwrap()),
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
        assert!(texts[..4].iter().all(|text| text.contains("orders")), "{texts:?}");
        let bearer = format!("{:?}", SaslClient::Bearer { token: "opensesame".to_owned() });
        assert_eq!(bearer, "Bearer(10 bytes)");
        assert!(texts[4..].iter().all(|text| text.contains("18 bytes")), "{texts:?}");
    }

    #[test]
    fn a_bearer_response_has_one_token_and_perhaps_somebody_to_act_as() {
        let parse = |text: &str| {
            let response = BearerResponse::parse(text.as_bytes())?;
            Some((response.authorization, response.token.to_owned()))
        };
        let found = |authorization: &str, token: &str| Some((authorization.to_owned(), token.to_owned()));
        assert_eq!(parse("n,,\x01auth=Bearer a.b.c\x01\x01"), found("", "a.b.c"));
        assert_eq!(parse("y,,\x01auth=bearer a\x01\x01"), found("", "a"));
        let all = "n,a=or=2Cders=3D,\x01host=example.com\x01port=5671\x01auth=Bearer a=b=\x01\x01";
        assert_eq!(parse(all), found("or,ders=", "a=b="));
        for bad in [
            "",
            "\x01",
            "n,,",
            "n,,\x01\x01",
            "n,,\x01auth=Bearer a",
            "n,,\x01auth=Bearer a\x01",
            "n,,\x01auth=Bearer a\x01\x01\x01",
            "n,,\x01auth=Bearer \x01\x01",
            "n,,\x01auth=Basic a\x01\x01",
            "n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
            "n,,\x01host=example.com\x01\x01",
            "n,,\x01auth=Bearer a\x01host\x01\x01",
            "p=tls-unique,,\x01auth=Bearer a\x01\x01",
            "n,orders,\x01auth=Bearer a\x01\x01",
            "n,a=,\x01auth=Bearer a\x01\x01",
            "n,a=or=2ders,\x01auth=Bearer a\x01\x01",
            "n,a=orders\x01auth=Bearer a\x01\x01",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(BearerResponse::parse(b"n,,\x01auth=Bearer \xff\x01\x01"), None);
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
