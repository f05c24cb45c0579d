//! MQ reason codes as they go on the wire, in the log and on the screen: one table.
//!
//! A refusal is an AMQP error whose description starts with the number and the MQRC name, followed
//! by `cause=…` where one is known; the same facts stand as fields in the error's info map.

use bulla_amqp::{Error, Symbol, Value};
use std::fmt;

/// An MQ reason code: number, name and the AMQP condition it travels under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The MQRC number, as administrators know it.
    pub code: u16,
    /// The MQRC name without its prefix.
    pub name: &'static str,
    /// The AMQP 1.0 error condition (part 2, section 2.8.14 and following) nearest in meaning.
    pub condition: &'static str,
}

macro_rules! reasons {
    ($($name:ident = $code:literal, $condition:literal;)*) => {
        $(
            #[doc = concat!("MQRC_", stringify!($name), " (", stringify!($code), ").")]
            pub const $name: Reason = Reason { code: $code, name: stringify!($name), condition: $condition };
        )*
        /// Every reason this program can give, in numeric order.
        pub const ALL: &[Reason] = &[$($name),*];
    };
}

reasons! {
    ALIAS_BASE_Q_TYPE_ERROR = 2001, "amqp:not-found";
    BACKED_OUT = 2003, "amqp:transaction:rollback";
    CONNECTION_BROKEN = 2009, "amqp:connection:forced";
    DYNAMIC_Q_NAME_ERROR = 2011, "amqp:invalid-field";
    GET_INHIBITED = 2016, "amqp:not-allowed";
    HANDLE_NOT_AVAILABLE = 2017, "amqp:resource-limit-exceeded";
    SYNCPOINT_LIMIT_REACHED = 2024, "amqp:resource-limit-exceeded";
    MAX_CONNS_LIMIT_REACHED = 2025, "amqp:resource-limit-exceeded";
    MD_ERROR = 2026, "amqp:decode-error";
    MISSING_REPLY_TO_Q = 2027, "amqp:invalid-field";
    MSG_TOO_BIG_FOR_Q = 2030, "amqp:link:message-size-exceeded";
    NOT_AUTHORIZED = 2035, "amqp:unauthorized-access";
    OBJECT_CHANGED = 2041, "amqp:resource-deleted";
    OBJECT_IN_USE = 2042, "amqp:resource-locked";
    OPTION_NOT_VALID_FOR_TYPE = 2045, "amqp:not-allowed";
    OPTIONS_ERROR = 2046, "amqp:not-implemented";
    PUT_INHIBITED = 2051, "amqp:not-allowed";
    Q_DELETED = 2052, "amqp:resource-deleted";
    Q_FULL = 2053, "amqp:resource-limit-exceeded";
    Q_NOT_EMPTY = 2055, "amqp:not-allowed";
    Q_SPACE_NOT_AVAILABLE = 2056, "amqp:resource-limit-exceeded";
    Q_TYPE_ERROR = 2057, "amqp:not-allowed";
    SECURITY_ERROR = 2063, "amqp:unauthorized-access";
    SELECTOR_ERROR = 2067, "amqp:invalid-field";
    STORAGE_NOT_AVAILABLE = 2071, "amqp:resource-limit-exceeded";
    TRUNCATED_MSG_FAILED = 2080, "amqp:link:message-size-exceeded";
    UNKNOWN_ALIAS_BASE_Q = 2082, "amqp:not-found";
    UNKNOWN_OBJECT_NAME = 2085, "amqp:not-found";
    UNKNOWN_REMOTE_Q_MGR = 2087, "amqp:not-found";
    XMIT_Q_TYPE_ERROR = 2091, "amqp:not-found";
    XMIT_Q_USAGE_ERROR = 2092, "amqp:not-found";
    OBJECT_ALREADY_EXISTS = 2100, "amqp:not-allowed";
    RESOURCE_PROBLEM = 2102, "amqp:internal-error";
    Q_MGR_STOPPING = 2162, "amqp:connection:forced";
    REMOTE_Q_NAME_ERROR = 2184, "amqp:not-found";
    UNEXPECTED_ERROR = 2195, "amqp:internal-error";
    UNKNOWN_XMIT_Q = 2196, "amqp:not-found";
    UNKNOWN_DEF_XMIT_Q = 2197, "amqp:not-found";
    DEF_XMIT_Q_TYPE_ERROR = 2198, "amqp:not-found";
    DEF_XMIT_Q_USAGE_ERROR = 2199, "amqp:not-found";
    MSG_TOO_BIG_FOR_CHANNEL = 2218, "amqp:link:message-size-exceeded";
    XQH_ERROR = 2260, "amqp:decode-error";
    CF_NOT_AVAILABLE = 2345, "amqp:not-found";
    UOW_MIX_NOT_SUPPORTED = 2355, "amqp:not-implemented";
    BACKOUT_THRESHOLD_REACHED = 2362, "amqp:not-allowed";
    SSL_INITIALIZATION_ERROR = 2393, "amqp:unauthorized-access";
    SSL_PEER_NAME_MISMATCH = 2398, "amqp:unauthorized-access";
    SSL_PEER_NAME_ERROR = 2399, "amqp:invalid-field";
    UNSUPPORTED_CIPHER_SUITE = 2400, "amqp:not-allowed";
    SSL_CERTIFICATE_REVOKED = 2401, "amqp:unauthorized-access";
    SSL_CERT_STORE_ERROR = 2402, "amqp:internal-error";
    TOPIC_STRING_ERROR = 2425, "amqp:invalid-field";
    NO_SUBSCRIPTION = 2428, "amqp:not-found";
    SUBSCRIPTION_IN_USE = 2429, "amqp:resource-locked";
    DURABILITY_NOT_ALLOWED = 2436, "amqp:not-allowed";
    SUB_NAME_ERROR = 2440, "amqp:invalid-field";
    PUBLICATION_FAILURE = 2502, "amqp:not-allowed";
    SUB_INHIBITED = 2503, "amqp:not-allowed";
    CHANNEL_NOT_AVAILABLE = 2537, "amqp:resource-locked";
    HOST_NOT_AVAILABLE = 2538, "amqp:connection:forced";
    CHANNEL_CONFIG_ERROR = 2539, "amqp:not-allowed";
    UNKNOWN_CHANNEL_NAME = 2540, "amqp:not-found";
}

/// The reason of that number; one that is not in the table is a resource problem.
#[must_use]
pub fn of(code: u16) -> Reason {
    ALL.iter().copied().find(|reason| reason.code == code).unwrap_or(RESOURCE_PROBLEM)
}

/// The sub-reason of a channel whose ends do not agree on the next number.
const SEQUENCE: &str = "sequence";

/// One refusal: a reason, the sub-reason where there is one, and a line of detail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The MQ reason.
    pub reason: Reason,
    /// The sub-reason, kebab-case (`signer-not-authorised`), where the reason alone says too little.
    pub cause: Option<&'static str>,
    /// One lower-case line; never a secret, never payload.
    pub detail: String,
    /// Where the client finds what is not here.
    pub elsewhere: Option<Box<Elsewhere>>,
}

/// Where a client finds a queue that another queue manager has now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// That one's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The queue.
    pub queue: String,
    /// How the client gets there.
    pub way: Way,
}

/// How a client gets to a queue that another queue manager has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// It goes there with that link.
    Link,
    /// It goes there with its whole connection.
    Connection,
    /// This queue manager forwards its link, where the client's protocol lets it.
    Forwarded(Forwarded),
}

/// What it takes to forward a link to another member of a shared group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarded {
    /// The group.
    pub group: String,
    /// The user in whose name that is done; none for a client that has not signed in.
    pub user: Option<String>,
    /// Whether that user's proof is good enough for its ring.
    pub ring: bool,
    /// SSLCIPH of the group; none for a connection in clear.
    pub cipher_spec: Option<String>,
}

impl Refusal {
    /// A refusal without a sub-reason.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, cause: None, detail: detail.into(), elsewhere: None }
    }

    /// A refusal by the seal: 2063 with its cause.
    pub fn security(cause: &'static str, detail: impl Into<String>) -> Self {
        Self { cause: Some(cause), ..Self::new(SECURITY_ERROR, detail) }
    }

    /// The two ends of a channel do not agree on the next number: 2539 with its cause.
    pub fn sequence(detail: impl Into<String>) -> Self {
        Self { cause: Some(SEQUENCE), ..Self::new(CHANNEL_CONFIG_ERROR, detail) }
    }

    /// Messages of a channel are in doubt: 2539 with its cause.
    pub fn in_doubt(detail: impl Into<String>) -> Self {
        Self { cause: Some("in-doubt"), ..Self::new(CHANNEL_CONFIG_ERROR, detail) }
    }

    /// Whether the two ends of a channel do not agree on the next number.
    pub fn is_sequence(&self) -> bool {
        self.cause == Some(SEQUENCE)
    }

    /// The refusal as an AMQP error; where the client finds the queue elsewhere, as a redirect (AMQP 1.0, 2.8.16 and
    /// 2.8.17).
    pub fn to_amqp(&self) -> Error {
        let mut condition = self.reason.condition;
        let mut info = vec![(Symbol::from_static("reason"), Value::Uint(u32::from(self.reason.code)))];
        if let Some(cause) = self.cause {
            info.push((Symbol::from_static("cause"), Value::from(cause)));
        }
        if let Some(elsewhere) = &self.elsewhere {
            let Elsewhere { host, port, queue, way } = &**elsewhere;
            let redirect = match way {
                Way::Link => Some("amqp:link:redirect"),
                Way::Connection => Some("amqp:connection:redirect"),
                Way::Forwarded(_) => None,
            };
            if let Some(redirect) = redirect {
                info.push((Symbol::from_static("hostname"), Value::from(host.as_str())));
                info.push((Symbol::from_static("network-host"), Value::from(host.as_str())));
                info.push((Symbol::from_static("port"), Value::Uint(u32::from(*port))));
                condition = redirect;
            }
            if *way == Way::Link {
                info.push((Symbol::from_static("address"), Value::from(queue.as_str())));
            }
        }
        Error { condition: Symbol::from_static(condition), description: Some(self.to_string()), info }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MQRC_{}", self.reason.code, self.reason.name)?;
        if let Some(cause) = self.cause {
            write!(f, " cause={cause}")?;
        }
        if !self.detail.is_empty() {
            write!(f, " {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_once_and_in_order() {
        assert!(ALL.windows(2).all(|pair| pair[0].code < pair[1].code));
    }

    #[test]
    fn a_refusal_says_number_name_cause_and_detail() {
        let refusal = Refusal::security("signer-not-authorised", "dn=\"CN=mallory\"");
        assert_eq!(refusal.to_string(), "2063 MQRC_SECURITY_ERROR cause=signer-not-authorised dn=\"CN=mallory\"");
        let error = refusal.to_amqp();
        assert_eq!(error.condition, Symbol::from_static("amqp:unauthorized-access"));
        assert_eq!(error.info[0].1, Value::Uint(2063));
    }
}
