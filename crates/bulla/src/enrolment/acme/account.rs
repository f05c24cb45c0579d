//! An account with an authority (RFC 8555, section 7.3): a key in a file, and what the authority knows of its holder.
//!
//! Nothing but the key is kept. The authority finds the account by it, and an account that is lost, here or there, is
//! made anew: names are proved anew with each order anyway.

use super::jws::{self, AccountKey};
use super::session::Session;
use crate::enrolment::EnrolError;
use crate::enrolment::safe_file::{secret, secret_line};
use crate::enrolment::web::plain;
use crate::key_rotation::steps::private_folder;
use crate::whole_file;
use base64ct::{Base64UrlUnpadded, Encoding};
use bulla_seal::certificate::{PrivateKeyPem, read_private_key};
use serde_json::{Map, Value};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// The account, as the configuration has it.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its private key, PEM, in a file of its owner's alone. Made where it is missing.
    pub key_file: PathBuf,
    /// Where its holder is reached, as `mailto:mq@example.com`.
    pub contact: Vec<String>,
    /// Its holder agrees to the authority's terms.
    pub terms_agreed: bool,
    /// By which its holder is known to the authority.
    pub binding: Option<Binding>,
}

/// How an authority knows an account before it is made.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The name of the shared key there.
    pub id: String,
    /// A file of its owner's alone whose first line is that key, base64url.
    pub key_file: PathBuf,
}

impl Account {
    /// The key, and whether it was made just now.
    ///
    /// # Errors
    /// The file can't be read or made, or others may read it.
    pub fn key(&self) -> Result<(AccountKey, bool), EnrolError> {
        if self.key_file.symlink_metadata().is_ok() {
            let key = read_private_key(&secret(&self.key_file)?, None)?;
            return Ok((AccountKey::new(key)?, false));
        }
        let key = jws::KEY.generate()?;
        let pem = PrivateKeyPem::write(&key, None)?;
        self.key_file.parent().filter(|folder| !folder.exists()).map_or(Ok(()), private_folder)?;
        // Before the authority hears of it: an account whose key is lost is of no use.
        let written = whole_file::replace(&self.key_file, pem.as_bytes(), 0o600);
        written.map_err(EnrolError::file(&self.key_file))?;
        Ok((AccountKey::new(key)?, true))
    }

    /// Signs in, and makes the account where the authority does not know the key.
    ///
    /// # Errors
    /// The authority refuses, or wants what is not configured.
    pub fn sign_in(&self, session: &mut Session<'_>, is_new: bool) -> Result<(), EnrolError> {
        if !is_new {
            let only_known = Map::from_iter([("onlyReturnExisting".to_owned(), true.into())]);
            match session.sign_in(&Value::Object(only_known)) {
                Err(EnrolError::Refused { how, .. }) if how == "accountDoesNotExist" => {
                    let file = self.key_file.display();
                    crate::note!("the authority does not know the account of {file}: it is made anew");
                }
                done => return done,
            }
        }
        let meta = &session.directory.meta;
        if let Some(terms) = meta.terms_of_service.as_ref().filter(|_| !self.terms_agreed) {
            return Err(EnrolError::TermsNotAgreed { terms: plain(terms) });
        }
        let mut payload = Map::new();
        if self.terms_agreed {
            payload.insert("termsOfServiceAgreed".to_owned(), true.into());
        }
        if !self.contact.is_empty() {
            payload.insert("contact".to_owned(), self.contact.clone().into());
        }
        match &self.binding {
            Some(binding) => {
                let line = secret_line(&binding.key_file)?;
                let unreadable =
                    || EnrolError::Unsafe { path: binding.key_file.clone(), why: "it is not base64url".to_owned() };
                let text = std::str::from_utf8(&line).map_err(|_| unreadable())?.trim_end_matches('=');
                let shared = Zeroizing::new(Base64UrlUnpadded::decode_vec(text).map_err(|_| unreadable())?);
                let url = session.directory.new_account.to_string();
                let bound = session.key().bound(&url, &binding.id, &shared)?;
                payload.insert("externalAccountBinding".to_owned(), bound);
            }
            None if meta.external_account_required => {
                return Err(EnrolError::NotConfigured { what: "binding_id, which the authority wants".to_owned() });
            }
            None => {}
        }
        session.sign_in(&Value::Object(payload))
    }
}
