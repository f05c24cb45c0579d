//! A user's key and certificate for signatures alone, an X.509-SVID, as the agent of a SPIFFE trust domain has it: it
//! takes the place of the one before, and no message needs that. Who is to believe it gets the trust domain's
//! authorities.

use super::answer::{Trust, Wanted, judge, trusted};
use super::ring_certificate::{Site, read_key};
use super::source::Source;
use super::{EnrolError, due};
use crate::calendar;
use crate::folders::RINGS;
use crate::key_rotation::steps::DAYS;
use crate::wall_clock::wall_ms;
use bulla_seal::certificate::create::Profile;
use bulla_seal::certificate::{Certificate, KeyUse, PrivateKeyPem};
use bulla_seal::ring::{self, PEM_CERTIFICATES_MAX};
use bulla_seal::spiffe_id::is_of_process;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Its name in `own` of the ring.
pub const LABEL: &str = "svid";

/// Its file.
pub fn path(data: &Path, user: &str) -> PathBuf {
    data.join(RINGS).join(user).join("own").join(format!("{LABEL}.pem"))
}

/// The certificate that a user signs with; none where none came yet.
///
/// # Errors
/// It can't be read.
pub fn present(data: &Path, user: &str) -> Result<Option<Certificate>, EnrolError> {
    let path = path(data, user);
    let bytes = match fs::read(&path) {
        Ok(bytes) => zeroize::Zeroizing::new(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EnrolError::file(&path)(error)),
    };
    let unreadable = |error| EnrolError::File { path: path.clone(), error: io::Error::other(error) };
    Ok(Certificate::all_from_pem(&bytes, PEM_CERTIFICATES_MAX).map_err(unreadable)?.into_iter().next())
}

impl Site<'_> {
    /// Puts what the agent has into a user's ring, where it is not there already, and the authorities of the trust
    /// domain there and into the rings that are to believe it.
    ///
    /// # Errors
    /// It has none, or one that is no good for signatures.
    pub fn take_signer(&self, user: &str, source: &dyn Source) -> Result<Certificate, EnrolError> {
        let bad = |why: String| EnrolError::Answer { why };
        let table = self.configuration.signer(user)?;
        let authority = self.configuration.authority(&table.authority)?;
        let given = source.given(table.spiffe_id.as_deref(), self.is_stopping);
        let given = given.ok_or_else(|| EnrolError::NotConfigured { what: "spiffe".to_owned() })??;
        if !is_of_process(&given.id) {
            return Err(bad(format!("{:?} is not the SPIFFE ID of a process", given.id)));
        }
        let dn = format!("CN={LABEL}").parse().map_err(|_| bad("no subject".to_owned()))?;
        let profile = Profile { dn, uses: vec![KeyUse::DocSign], days: DAYS, alternative_names: Vec::new() };
        let (trust, authorities) = match authority.trust.as_os_str().is_empty() {
            true => (Trust::These(&given.trust), given.trust.clone()),
            false => (Trust::File(&authority.trust), trusted(&authority.trust)?),
        };
        let now = (self.clock)();
        let wanted = Wanted { key: &given.key, profile: &profile, any_subject: true, trust, now };
        let good = judge(given.certificates.clone(), &wanted)?;
        let new = &good.certificate;
        if new.dn().as_str() != given.id {
            return Err(bad(format!("it is not for {} alone", given.id)));
        }
        let domain = new.dn().trust_domain().unwrap_or_default();
        let _turn = self.turn()?;
        let keys = self.keys(None);
        // First: whoever is to believe the certificate has its authority when a message comes.
        for other in table.share.iter().map(String::as_str).chain([user]) {
            ring::install_domain(&keys.ring_dir(other)?, domain, &authorities, now)?;
        }
        let is_there = present(self.data, user)?.is_some_and(|present| present == *new);
        let key = if is_there { read_key(&path(self.data, user), self.passphrase)? } else { None };
        if !key.is_some_and(|key| key.public_eq(&given.key)) {
            let pem = PrivateKeyPem::write(&given.key, self.passphrase)?;
            ring::install_own(&keys.ring_dir(user)?, LABEL, new, &good.chain, &pem)?;
        } else if due::is_nearly_over(new, now) {
            let until = calendar::rfc3339(wall_ms(new.not_after()) / 1000);
            return Err(EnrolError::NotYet { said: format!("the agent has none but that which ends {until}") });
        }
        Ok(good.certificate)
    }
}
