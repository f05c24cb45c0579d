//! Error conditions of the standard (part 2, sections 2.8.15 to 2.8.18; part 4, section 4.5.9).

use crate::value::Symbol;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal;)*) => {
        $( $(#[$doc])* pub const $name: Symbol = Symbol::from_static($symbol); )*
    };
}

conditions! {
    /// The peer's fault is on this side.
    INTERNAL_ERROR = "amqp:internal-error";
    /// There is no such node.
    NOT_FOUND = "amqp:not-found";
    /// The user may not do this.
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access";
    /// Bytes could not be decoded.
    DECODE_ERROR = "amqp:decode-error";
    /// A limit of this side is reached.
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded";
    /// The peer may not do this now.
    NOT_ALLOWED = "amqp:not-allowed";
    /// A field has a value that it must not have.
    INVALID_FIELD = "amqp:invalid-field";
    /// This side cannot do what is asked.
    NOT_IMPLEMENTED = "amqp:not-implemented";
    /// Another container has it.
    RESOURCE_LOCKED = "amqp:resource-locked";
    /// Something the request needs is not so.
    PRECONDITION_FAILED = "amqp:precondition-failed";
    /// The node went away.
    RESOURCE_DELETED = "amqp:resource-deleted";
    /// A performative that does not belong here.
    ILLEGAL_STATE = "amqp:illegal-state";
    /// An operator closed the connection.
    CONNECTION_FORCED = "amqp:connection:forced";
    /// A frame could not be read.
    FRAMING_ERROR = "amqp:connection:framing-error";
    /// More transfer frames than the session's window.
    WINDOW_VIOLATION = "amqp:session:window-violation";
    /// A link of the session went wrong beyond repair.
    ERRANT_LINK = "amqp:session:errant-link";
    /// The handle is in use.
    HANDLE_IN_USE = "amqp:session:handle-in-use";
    /// No link has this handle.
    UNATTACHED_HANDLE = "amqp:session:unattached-handle";
    /// An operator detached the link.
    DETACH_FORCED = "amqp:link:detach-forced";
    /// More deliveries than the link may have.
    TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded";
    /// A message larger than the link takes.
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded";
    /// Another link took this one's name.
    STOLEN = "amqp:link:stolen";
    /// There is no such transaction.
    TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id";
    /// The transaction was backed out.
    TRANSACTION_ROLLBACK = "amqp:transaction:rollback";
    /// The transaction took too long and was backed out.
    TRANSACTION_TIMEOUT = "amqp:transaction:timeout";
}
