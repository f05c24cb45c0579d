//! Where an authority takes which question (RFC 8555, section 7.1.1).

use crate::enrolment::EnrolError;
use crate::enrolment::web::plain;
use bulla_device::http::Url;
use serde::Deserialize;

/// As it comes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    new_nonce: String,
    new_account: String,
    new_order: String,
    #[serde(default)]
    meta: Meta,
}

/// What an authority says of itself.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// Where its terms are, to which who has an account agrees.
    pub terms_of_service: Option<String>,
    /// It takes accounts only of those whom it knows already.
    pub external_account_required: bool,
}

/// A directory all of whose places are at its own server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Directory {
    /// Where there are nonces.
    pub new_nonce: Url,
    /// Where accounts are made and found.
    pub new_account: Url,
    /// Where orders are taken.
    pub new_order: Url,
    /// What the authority says of itself.
    pub meta: Meta,
}

impl Directory {
    /// Reads what came from `at`.
    ///
    /// # Errors
    /// [`EnrolError::Protocol`]: it is none, or leads elsewhere.
    pub fn read(body: &[u8], at: &Url) -> Result<Directory, EnrolError> {
        let text: Text = super::read(body, "directory")?;
        Ok(Directory {
            new_nonce: same_server(&text.new_nonce, at, "newNonce")?,
            new_account: same_server(&text.new_account, at, "newAccount")?,
            new_order: same_server(&text.new_order, at, "newOrder")?,
            meta: text.meta,
        })
    }
}

/// A place that an authority names. It must be at the server of the directory: an authority leads this program to no
/// other server, and to none in clear.
///
/// # Errors
/// [`EnrolError::Protocol`].
pub fn same_server(text: &str, directory: &Url, what: &str) -> Result<Url, EnrolError> {
    let bad = |why: &str| EnrolError::Protocol { why: format!("{what} is {:?}: {why}", plain(text)) };
    let url: Url = text.parse().map_err(|error: bulla_device::http::BadUrl| bad(error.why))?;
    if url.address != directory.address {
        return Err(bad("another server than the directory's"));
    }
    Ok(url)
}
