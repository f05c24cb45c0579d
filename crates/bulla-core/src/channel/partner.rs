//! Who is at the other end of a connection, as it says.

use super::protocol;
use crate::front::client::Introduction;

/// What the partner said of itself.
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
    /// What it has said of itself.
    pub fn said(said: &Introduction) -> Self {
        Self {
            container: protocol::printable(&said.container),
            product: said.product.clone(),
            version: said.version.clone(),
            is_bulla: said.has_channels,
            takes_refusals: said.takes_refusals,
        }
    }
}
