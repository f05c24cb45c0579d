//! Who is at the other end of a connection, as its `open` says.

use super::protocol;
use bulla_amqp::types::Open;

/// What the partner's `open` said of it.
#[derive(Clone, Debug, Default)]
pub struct Partner {
    /// Its container.
    pub container: String,
    /// Its product; empty where it does not say.
    pub product: String,
    /// Its version; empty where it does not say.
    pub version: String,
    /// It speaks Bulla's channel protocol.
    pub is_bulla: bool,
    /// Its sending end takes back messages that a receiving end refuses.
    pub takes_refusals: bool,
}

impl Partner {
    /// What an `open` says.
    pub fn said(open: &Open) -> Self {
        let told = |name| protocol::text(&open.properties, name).unwrap_or_default();
        let offers = |name| open.offered_capabilities.iter().any(|known| known.as_str() == name);
        Self {
            container: protocol::printable(&open.container_id),
            product: told(protocol::PRODUCT),
            version: told(protocol::VERSION),
            is_bulla: offers(protocol::CAPABILITY),
            takes_refusals: offers(protocol::REFUSALS),
        }
    }
}
