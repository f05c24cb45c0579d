//! What came of an attempt to sign in, and which user is in force then.

use super::token::TokenError;

/// What came of an attempt to sign in.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is this one.
    Right(Identity),
    /// The password is not that user's, or there is no such user.
    Wrong {
        /// Who it said it is.
        user: String,
    },
    /// The token is refused.
    Token(TokenError),
    /// There was no time to look at it.
    Busy,
    /// Too much was wrong before: the proof was not checked. The client is told what it is told of a wrong password.
    LockedOut {
        /// Who it said it is.
        user: String,
    },
}

/// Who is at the other end, and how that was proved.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The user's name; none for ANONYMOUS.
    pub user: Option<String>,
    /// Whether the proof is strong enough for the queue manager to use that user's ring:
    /// a verified client certificate, SCRAM, or PLAIN over TLS (SEAL.md, who may seal where).
    pub ring: bool,
    /// Another user, as whom it asks to act (ALTUSR).
    pub act_as: Option<String>,
    /// The shared group of which another member has let it in and vouches for it: it is not asked again who it is, and
    /// may reach the queues of that group alone.
    pub vouched_in: Option<String>,
    /// Until when the proof holds, seconds since 1970: a token's end. None for ever.
    pub until: Option<u64>,
}
