//! Front ends: AMQP, and one of function calls for tests. What the core asks of them is `bulla_core::front`.

pub(crate) mod amqp;
pub(crate) mod call;
#[cfg(test)]
pub(crate) mod direct;
pub(crate) mod offered;

pub(crate) use bulla_core::front::*;
