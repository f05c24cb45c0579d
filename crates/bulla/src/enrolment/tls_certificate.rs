//! A certificate of TLS, under `tls/`: another one with a new key, or the first of its label.
//!
//! Key and certificate are two files, and a queue manager that finds only one of them new does not start. So both are
//! written to one file in `enrolment/` first, and whoever comes next finishes what was interrupted ([`finish`]).

use super::answer::{Good, Trust, Wanted, judge, names};
use super::configuration::{AuthorityTable, CertificateTable};
use super::ring_certificate::{Site, read_key};
use super::source::{Former, Given, Source};
use super::{EnrolError, due};
use crate::calendar;
use crate::catalog::names::is_label;
use crate::folders::{ENROLMENT, TLS};
use crate::key_rotation::steps::{DAYS, private_folder, synced};
use crate::wall_clock::wall_ms;
use crate::whole_file;
use bulla_seal::certificate::bundle::Bundle;
use bulla_seal::certificate::create::{self, AlternativeName, Profile};
use bulla_seal::certificate::{Certificate, Curve, KeySpec, KeyUse, PrivateKeyPem};
use bulla_seal::ring::PEM_CERTIFICATES_MAX;
use openssl::pkey::{PKey, Private};
use std::fs;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The kind of a new key, unless it is said.
const KEY: KeySpec = KeySpec::Ec(Curve::P256);
/// Ending of a private key that waits for its certificate.
const PENDING: &str = "pending";
/// Ending of key and certificate that are to be put into `tls/`.
const READY: &str = "ready";

/// The certificate of a label as it is now, and those above it; none where there is none.
///
/// # Errors
/// It can't be read.
pub fn present(data: &Path, label: &str) -> Result<Option<(Certificate, Vec<Certificate>)>, EnrolError> {
    let path = data.join(TLS).join(format!("{label}.pem"));
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EnrolError::file(&path)(error)),
    };
    let unreadable = |error| EnrolError::File { path: path.clone(), error: io::Error::other(error) };
    let mut all = Certificate::all_from_pem(&bytes, PEM_CERTIFICATES_MAX).map_err(unreadable)?;
    if all.is_empty() {
        return Ok(None);
    }
    let first = all.remove(0);
    Ok(Some((first, all)))
}

/// Puts what came, and was interrupted on its way into `tls/`, there.
///
/// # Errors
/// A file can't be read or written.
pub fn finish(data: &Path) -> Result<(), EnrolError> {
    let folder = data.join(ENROLMENT);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(EnrolError::file(&folder)(error)),
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let label = path.file_stem().and_then(|stem| stem.to_str()).filter(|label| is_label(label));
        if let (Some(READY), Some(label)) = (path.extension().and_then(|ending| ending.to_str()), label) {
            put_in_place(data, label, &path)?;
        }
    }
    Ok(())
}

fn put_in_place(data: &Path, label: &str, ready: &Path) -> Result<(), EnrolError> {
    let text = Zeroizing::new(fs::read(ready).map_err(EnrolError::file(ready))?);
    let Bundle { certificates, key } = Bundle::read(&text, None)?;
    let key = key.ok_or_else(|| EnrolError::File {
        path: ready.to_owned(),
        error: io::Error::new(io::ErrorKind::InvalidData, "it holds no key"),
    })?;
    let write = |ending: &str, bytes: &[u8]| {
        let path = data.join(TLS).join(format!("{label}.{ending}"));
        whole_file::replace(&path, bytes, 0o600).map_err(EnrolError::file(&path))
    };
    write("key", PrivateKeyPem::write(&key, None)?.as_bytes())?;
    // Last, as for every certificate there: a handshake between the two goes on with what was read before.
    write("pem", &certificates.iter().flat_map(Certificate::to_pem).collect::<Vec<_>>())?;
    // The key that has its certificate is not asked for again.
    for path in [&ready.with_extension(PENDING), ready] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(EnrolError::file(path)(error)),
            _ => {}
        }
    }
    Ok(ready.parent().map_or(Ok(()), synced)?)
}

impl Site<'_> {
    /// Gets a new key and its certificate for a label, and puts both into `tls/`, where the next handshake finds them.
    ///
    /// # Errors
    /// None came, or it is not what was asked for. The next attempt asks for the same key.
    pub fn renew_tls(&self, label: &str, source: &dyn Source) -> Result<Certificate, EnrolError> {
        let table = self.configuration.certificate(label)?;
        let authority = self.configuration.authority(&table.authority)?;
        if let Some(given) = source.given(table.spiffe_id.as_deref(), self.is_stopping) {
            return self.take(label, table, authority, &given?);
        }
        let turn = self.turn()?;
        finish(self.data)?;
        let before = present(self.data, label)?;
        let any_subject = source.chooses_subject();
        let profile = profile(label, table, before.as_ref().map(|(certificate, _)| certificate), any_subject)?;
        let kind = table.key.unwrap_or(KEY);
        let path = self.data.join(ENROLMENT).join(format!("{label}.{PENDING}"));
        let key = pending_key(&path, kind)?;
        let request = create::request(&profile, &key, kind.kind())?;
        let former_key = read_key(&self.data.join(TLS).join(format!("{label}.key")), None)?;
        drop(turn);
        let former = before.as_ref().zip(former_key.as_ref());
        let former = former.filter(|((certificate, _), key)| certificate.public_key().public_eq(key));
        let former = former.map(|((certificate, chain), key)| Former { certificate, chain, key });
        let wanted = || Wanted {
            key: &key,
            profile: &profile,
            any_subject,
            trust: Trust::File(&authority.trust),
            now: (self.clock)(),
        };
        let came = self.asked(source, &request, &key, former, &|came| judge(came, &wanted()).map(drop))?;
        let _turn = self.turn()?;
        let is_there = read_key(&path, None)?.is_some_and(|now| now.public_eq(&key));
        let now = present(self.data, label)?.map(|(certificate, _)| certificate);
        if !is_there || now != before.map(|(certificate, _)| certificate) {
            return Err(EnrolError::Overtaken);
        }
        let good = judge(came, &wanted())?;
        self.put(label, &good, &key)?;
        Ok(good.certificate)
    }

    /// Puts a certificate that came with its key into `tls/`, where it is not there already, and its authorities where
    /// the operator wants them believed.
    fn take(
        &self,
        label: &str,
        table: &CertificateTable,
        authority: &AuthorityTable,
        given: &Given,
    ) -> Result<Certificate, EnrolError> {
        let bad = |why: String| EnrolError::Answer { why };
        let id = AlternativeName::Uri(given.id.clone());
        let dn = format!("CN={label}").parse().map_err(|_| bad("no subject".to_owned()))?;
        let profile = Profile { dn, uses: vec![KeyUse::Handshake], days: DAYS, alternative_names: table.names.clone() };
        let trust = match authority.trust.as_os_str().is_empty() {
            true => Trust::These(&given.trust),
            false => Trust::File(&authority.trust),
        };
        let wanted = Wanted { key: &given.key, profile: &profile, any_subject: true, trust, now: (self.clock)() };
        let good = judge(given.certificates.clone(), &wanted)?;
        let new = &good.certificate;
        new.check_key().map_err(|error| bad(error.to_string()))?;
        // One that also had another name would be believed to be that, too (X509-SVID, section 2).
        if names(new.x509()).iter().filter(|name| matches!(name, AlternativeName::Uri(_))).ne([&id]) {
            return Err(bad(format!("it is not for {} alone", given.id)));
        }
        let _turn = self.turn()?;
        finish(self.data)?;
        // First: partners whose certificates are of a new authority are believed when ours is.
        for who in &authority.believe {
            believe(&self.data.join(TLS).join(who.file()), &given.trust)?;
        }
        let present = present(self.data, label)?;
        let key = read_key(&self.data.join(TLS).join(format!("{label}.key")), None)?;
        let is_there = present.is_some_and(|(present, _)| present == *new);
        if !is_there || !key.is_some_and(|key| key.public_eq(&given.key)) {
            self.put(label, &good, &given.key)?;
        } else if due::is_nearly_over(new, (self.clock)()) {
            let until = calendar::rfc3339(wall_ms(new.not_after()) / 1000);
            return Err(EnrolError::NotYet { said: format!("the agent has none but that which ends {until}") });
        }
        Ok(good.certificate)
    }

    fn put(&self, label: &str, good: &Good, key: &PKey<Private>) -> Result<(), EnrolError> {
        let folder = self.data.join(ENROLMENT);
        private_folder(&folder)?;
        let ready = folder.join(format!("{label}.{READY}"));
        let mut text = Zeroizing::new(good.to_pem());
        text.extend_from_slice(PrivateKeyPem::write(key, None)?.as_bytes());
        whole_file::replace(&ready, &text, 0o600).map_err(EnrolError::file(&ready))?;
        put_in_place(self.data, label, &ready)
    }
}

/// Has a file of authorities hold these, and no others.
fn believe(path: &Path, authorities: &[Certificate]) -> Result<(), EnrolError> {
    let pem = authorities.iter().flat_map(Certificate::to_pem).collect::<Vec<_>>();
    match fs::read(path) {
        Ok(before) if before == pem => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(EnrolError::file(path)(error)),
        _ => {}
    }
    whole_file::replace(path, &pem, 0o600).map_err(EnrolError::file(path))?;
    crate::note!("{}: {} authorities are believed, as the agent has them", path.display(), authorities.len());
    Ok(())
}

/// What a new certificate shall say: as it is configured, else as the one before.
fn profile(
    label: &str,
    table: &CertificateTable,
    before: Option<&Certificate>,
    any_subject: bool,
) -> Result<Profile, EnrolError> {
    let missing = |key: &str| EnrolError::NotConfigured {
        what: format!("certificates.{label}.{key}, and there is no certificate before"),
    };
    let dn = match table.dn.as_ref().or(before.map(Certificate::dn)) {
        // None is asked for, and that of the certificate before may be empty: this one is for the request's form.
        _ if any_subject => format!("CN={label}").parse().map_err(|_| missing("dn"))?,
        dn => dn.ok_or_else(|| missing("dn"))?.clone(),
    };
    let alternative_names = match before {
        _ if !table.names.is_empty() => table.names.clone(),
        Some(before) => names(before.x509()),
        None => return Err(missing("names")),
    };
    Ok(Profile { dn, uses: vec![KeyUse::Handshake], days: DAYS, alternative_names })
}

fn pending_key(path: &Path, kind: KeySpec) -> Result<PKey<Private>, EnrolError> {
    if let Some(key) = read_key(path, None)?.filter(|key| super::ring_certificate::is_of_kind(key, kind)) {
        return Ok(key);
    }
    path.parent().map_or(Ok(()), private_folder)?;
    let key = kind.generate()?;
    whole_file::replace(path, PrivateKeyPem::write(&key, None)?.as_bytes(), 0o600).map_err(EnrolError::file(path))?;
    Ok(key)
}
