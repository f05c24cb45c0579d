//! Who is at the other end of a connection: how it proves that, and what it says of itself.

use super::outcome::Failure;
use crate::sign_in::sessions::LoginId;
use bytes::Bytes;
use std::fmt;
use zeroize::Zeroizing;

/// How a client begins to prove who it is.
pub enum Proof {
    /// It proves nothing.
    Nothing,
    /// By a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: Zeroizing<String>,
        /// The user to act as; empty for the same.
        act_as: String,
    },
    /// By the certificate that its TLS connection has shown.
    Certificate {
        /// The user to act as; empty for the same.
        act_as: String,
    },
    /// By a token.
    Token {
        /// The token.
        token: Zeroizing<String>,
        /// The user to act as; empty for the same.
        act_as: String,
    },
    /// By the session of an earlier sign-in.
    Session(LoginId),
    /// By a ticket that this queue manager has given another member of a shared group.
    Ticket(Zeroizing<Vec<u8>>),
    /// By SCRAM-SHA-256 (RFC 7677), which takes further steps: the client's first message.
    Scram(Bytes),
    /// By a password, and what it gives can't be read.
    UnreadablePassword,
    /// By a token, and what it gives can't be read.
    UnreadableToken,
}

/// Without secrets.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Password { .. } => "Password",
            Self::Certificate { .. } => "Certificate",
            Self::Token { .. } => "Token",
            Self::Session(_) => "Session",
            Self::Ticket(_) => "Ticket",
            Self::Scram(_) => "Scram",
            Self::UnreadablePassword => "UnreadablePassword",
            Self::UnreadableToken => "UnreadableToken",
        })
    }
}

/// Why a token is refused; a client is told no more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TokenRefused {
    /// It can't be read.
    Unreadable,
    /// It proves nothing.
    Invalid,
}

/// What the other end of a connection says of itself.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    /// Its container, as it has it.
    pub container: String,
    /// Its product; empty where it does not say.
    pub product: String,
    /// Its version; empty where it does not say.
    pub version: String,
    /// It wishes to be the only connection of its container: which of two is to go, or why that can't be read.
    pub wants_to_be_sole: Option<Result<SolePolicy, Failure>>,
    /// It is a queue manager of ours, and has channels.
    pub has_channels: bool,
    /// Its sending end of a channel takes back messages that a receiving end refuses.
    pub takes_refusals: bool,
    /// The server channel that is to send, where a requester asks for it.
    pub requests: Option<String>,
}

/// Which of two connections of a container is to go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SolePolicy {
    /// The new one.
    RefuseConnection = 0,
    /// The one that there is.
    CloseExisting = 1,
}
