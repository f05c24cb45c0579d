//! A small certification authority in a directory.
//!
//! | file | holds |
//! | --- | --- |
//! | `ca.pem` | its certificate, and those of the authorities above it |
//! | `key.pem` | its private key, PKCS#8, encrypted where a passphrase was given; or the URI of a key that stays elsewhere |
//! | `ledger.txt` | what it did, one line each, only ever appended to |
//! | `crl.pem` | its newest revocation list |
//!
//! Lines of the ledger, times in seconds since 1970:
//!
//! ```text
//! issued 2c41…9f not-after 1826832885 dn CN=orders,O=Demo
//! revoked 2c41…9f at 1795296885
//! crl 2 next-update 1797888885
//! ```
//!
//! A line without its end is the trace of a crash before anything was handed out, and is cut off.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bulla_device::{KeyUri, PublicKey};
use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString};
use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::pkey::{HasPublic, PKeyRef, Private};
use openssl::x509::{X509Crl, X509CrlBuilder, X509Extension, X509RevokedBuilder};
use zeroize::Zeroizing;

use super::create::{self, AlternativeName, CreateError, Profile, Signer};
use super::signing_key::{SigningKey, message_digest};
use super::{
    Certificate, KeyError, KeyKind, KeySource, KeySpec, KeyUse, MalformedError, Passphrase, PrivateKeyPem,
    read_key_source, read_private_key, time, tlv,
};
use crate::dn::Dn;
use crate::ring::write_private;

/// Days after which a revocation list must have been replaced.
pub const CRL_DAYS: u32 = 30;
/// The largest ledger, in bytes: some half a million certificates.
pub const LEDGER_BYTES_MAX: usize = 64 << 20;

/// Most certificates from an authority up to its root, both included.
const PATH_CERTIFICATES_MAX: usize = 8;

const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "key.pem";
const LEDGER_FILE: &str = "ledger.txt";
const CRL_FILE: &str = "crl.pem";

/// An authority that is open: its private key is in memory, or can be reached.
pub struct Authority {
    dir: PathBuf,
    certificate: Certificate,
    above: Vec<Certificate>,
    key: SigningKey,
}

/// How to found an authority.
pub struct Founding<'a> {
    /// Its name.
    pub dn: &'a Dn,
    /// Its key.
    pub key: KeySpec,
    /// Its validity.
    pub days: u32,
    /// What encrypts its key on disk.
    pub passphrase: Option<&'a Passphrase>,
    /// Who signs its certificate; itself without one.
    pub parent: Option<&'a Authority>,
}

/// How to found an authority whose key was made elsewhere.
pub struct FoundingElsewhere<'a> {
    /// Its name.
    pub dn: &'a Dn,
    /// Its key.
    pub key: SigningKey,
    /// The kind of its key.
    pub kind: KeyKind,
    /// Its validity.
    pub days: u32,
    /// Who signs its certificate; itself without one.
    pub parent: Option<&'a Authority>,
}

/// What is wanted of an authority: a key and a certificate.
#[derive(Clone, Debug)]
pub struct Request {
    /// The subject.
    pub dn: Dn,
    /// The key to make.
    pub key: KeySpec,
    /// What it may do.
    pub uses: Vec<KeyUse>,
    /// Its validity.
    pub days: u32,
    /// Names beside the DN.
    pub alternative_names: Vec<AlternativeName>,
    /// What encrypts the key that is handed out.
    pub passphrase: Option<Passphrase>,
}

/// A certificate in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Serial number in lower-case hexadecimal.
    pub serial: String,
    /// The subject, as its text.
    pub dn: String,
    /// End of validity, seconds since 1970.
    pub not_after_unix: i64,
    /// When it was revoked, seconds since 1970.
    pub revoked_at_unix: Option<i64>,
}

impl Record {
    /// End of validity, if the clock can show it.
    pub fn not_after(&self) -> Option<SystemTime> {
        time::from_unix(self.not_after_unix)
    }

    /// When it was revoked.
    pub fn revoked_at(&self) -> Option<SystemTime> {
        self.revoked_at_unix.and_then(time::from_unix)
    }
}

impl Authority {
    /// Founds a self-signed authority in `dir`, which must not exist or be empty, with an empty revocation list.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn create(dir: &Path, dn: &Dn, key: KeySpec, days: u32, now: SystemTime) -> Result<Authority, AuthorityError> {
        Authority::found(dir, &Founding { dn, key, days, passphrase: None, parent: None }, now)
    }

    /// As [`Authority::create`], with a passphrase or below another authority.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn found(dir: &Path, founding: &Founding<'_>, now: SystemTime) -> Result<Authority, AuthorityError> {
        Authority::refuse_a_second(dir)?;
        let key = founding.key.generate().map_err(CreateError::from)?;
        let passphrase = founding.passphrase;
        let founding = FoundingElsewhere {
            dn: founding.dn,
            key: SigningKey::clear(key),
            kind: founding.key.kind(),
            days: founding.days,
            parent: founding.parent,
        };
        Authority::founded(dir, founding, passphrase, now)
    }

    /// As [`Authority::found`], with a key that stays on its token or in its transit engine: the directory holds its
    /// URI, and only who reaches the key can sign.
    ///
    /// # Errors
    /// [`AuthorityError`]; [`CreateError::Device`] in it when the key does not sign.
    pub fn found_elsewhere(
        dir: &Path,
        founding: FoundingElsewhere<'_>,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        Authority::refuse_a_second(dir)?;
        Authority::founded(dir, founding, None, now)
    }

    fn founded(
        dir: &Path,
        founding: FoundingElsewhere<'_>,
        passphrase: Option<&Passphrase>,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        let profile = Profile {
            dn: founding.dn.clone(),
            uses: vec![KeyUse::CertSign],
            days: founding.days,
            alternative_names: Vec::new(),
        };
        let own = Signer { certificate: None, key: &founding.key };
        let signer = founding.parent.map_or(own, Authority::signer);
        let public = founding.key.public()?;
        let certificate = create::certificate(&profile, &public, founding.kind, &signer, now)?;
        let above = match founding.parent {
            Some(parent) => {
                parent.enter(&issued_line(&certificate))?;
                parent.path()
            }
            None => Vec::new(),
        };
        Authority { dir: dir.to_owned(), certificate, above, key: founding.key }.written(passphrase, now)
    }

    /// Whether another can be founded in `dir`.
    ///
    /// # Errors
    /// [`AuthorityError::Exists`].
    pub fn refuse_a_second(dir: &Path) -> Result<(), AuthorityError> {
        match dir.join(CERTIFICATE_FILE).exists() {
            true => Err(AuthorityError::Exists { dir: dir.to_owned() }),
            false => Ok(()),
        }
    }

    /// Takes over an authority that was founded elsewhere: its certificate, those above it in any order, and its key,
    /// which is encrypted with `passphrase` where there is one. `dir` must not exist or hold no authority. Its
    /// revocation lists begin anew: an authority that goes on signing elsewhere should sign one of its own for here.
    ///
    /// # Errors
    /// [`AuthorityError::NotAnAuthority`], [`AuthorityError::IssuerMissing`], [`AuthorityError::NotValid`] for a
    /// certificate that can't sign here, and as [`Authority::found`].
    pub fn adopt(
        dir: &Path,
        certificates: &[Certificate],
        key: SigningKey,
        passphrase: Option<&Passphrase>,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        Authority::refuse_a_second(dir)?;
        let mut path = path_to_root(certificates, &key, now)?;
        let certificate = path.remove(0); // the key's own, which was looked for
        Authority { dir: dir.to_owned(), certificate, above: path, key }.written(passphrase, now)
    }

    /// Writes its directory.
    fn written(self, passphrase: Option<&Passphrase>, now: SystemTime) -> Result<Authority, AuthorityError> {
        let failed = |error: io::Error| AuthorityError::io(&self.dir, &error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed)?;
        write_private(&self.dir.join(KEY_FILE), &self.key.file(passphrase)?).map_err(failed)?;
        self.write_crl(CRL_DAYS, now)?;
        let certificates: Vec<u8> = self.path().iter().flat_map(Certificate::to_pem).collect();
        // The certificate comes last: an authority exists once it has one.
        write_private(&self.dir.join(CERTIFICATE_FILE), &certificates).map_err(failed)?;
        Ok(self)
    }

    /// Whether [`Authority::adopt`] would take it, without writing anything. A key that is elsewhere signs once.
    ///
    /// # Errors
    /// As [`Authority::adopt`].
    pub fn check(certificates: &[Certificate], key: &SigningKey, now: SystemTime) -> Result<(), AuthorityError> {
        let path = path_to_root(certificates, key, now)?;
        path.first().map_or(Ok(()), |own| Ok(key.prove(own)?))
    }

    /// Days that it can still sign for: nothing that it signs outlives it.
    pub fn days_left(&self, now: SystemTime) -> u32 {
        const DAY_SECONDS: u64 = 86_400;
        let left = self.certificate.not_after().duration_since(now).unwrap_or_default();
        u32::try_from(left.as_secs() / DAY_SECONDS).unwrap_or(u32::MAX)
    }

    /// Opens an authority whose key is not encrypted.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn open(dir: &Path) -> Result<Authority, AuthorityError> {
        Authority::unlock(dir, None)
    }

    /// Opens an authority whose key is in its directory.
    ///
    /// # Errors
    /// [`AuthorityError::Exposed`] when others can read its key, [`AuthorityError::Missing`],
    /// [`AuthorityError::Create`] for a damaged certificate, a damaged key, a wrong passphrase, or a key that is
    /// elsewhere ([`KeyError::Elsewhere`]).
    pub fn unlock(dir: &Path, passphrase: Option<&Passphrase>) -> Result<Authority, AuthorityError> {
        let certificates = read_certificates(dir)?;
        let key = read_private_key(&read_key_file(dir)?, passphrase).map_err(CreateError::from)?;
        Authority::opened(dir, certificates, SigningKey::clear(key))
    }

    /// Its key, where that is on a token or in a transit engine: public half and what names it. None where the key is
    /// in its directory.
    ///
    /// # Errors
    /// [`AuthorityError`], as [`Authority::unlock`]; none for a key that is encrypted.
    pub fn key_elsewhere(dir: &Path) -> Result<Option<(PublicKey, KeyUri)>, AuthorityError> {
        let uri = match read_key_source(&read_key_file(dir)?, None) {
            Ok(KeySource::Elsewhere(uri)) => uri,
            Err(error @ (KeyError::Uri { .. } | KeyError::Several)) => return Err(CreateError::from(error).into()),
            _ => return Ok(None),
        };
        let unused = |_| CreateError::from(MalformedError("ca.pem has a key of a kind or size that is not used"));
        match read_certificates(dir)?.first() {
            Some(certificate) => Ok(Some((PublicKey::new(certificate.public_key()).map_err(unused)?, uri))),
            None => Err(AuthorityError::Missing { path: dir.join(CERTIFICATE_FILE) }),
        }
    }

    /// Opens an authority whose key is elsewhere ([`Authority::key_elsewhere`]).
    ///
    /// # Errors
    /// As [`Authority::unlock`]. That what signs has another key shows when it signs.
    pub fn open_elsewhere(dir: &Path, key: SigningKey) -> Result<Authority, AuthorityError> {
        Authority::opened(dir, read_certificates(dir)?, key)
    }

    fn opened(dir: &Path, mut above: Vec<Certificate>, key: SigningKey) -> Result<Authority, AuthorityError> {
        if above.is_empty() {
            return Err(AuthorityError::Missing { path: dir.join(CERTIFICATE_FILE) });
        }
        let certificate = above.remove(0);
        if !key.is_of(&certificate) {
            return Err(CreateError::from(MalformedError("key.pem is not the key of ca.pem")).into());
        }
        Ok(Authority { dir: dir.to_owned(), certificate, above, key })
    }

    /// The certificate it signs with.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its certificate and those above it, its root last.
    pub fn path(&self) -> Vec<Certificate> {
        std::iter::once(&self.certificate).chain(&self.above).cloned().collect()
    }

    /// The certificate at the top: what others must trust.
    pub fn root(&self) -> &Certificate {
        self.above.last().unwrap_or(&self.certificate)
    }

    /// What goes beside a certificate it issued, into the same file: the path without the root.
    pub fn chain(&self) -> Vec<Certificate> {
        let mut path = self.path();
        path.pop();
        path
    }

    /// Makes a key and a certificate for it.
    ///
    /// # Errors
    /// [`AuthorityError`]; when it is returned, no certificate was handed out, though the ledger may know of one.
    pub fn issue(&self, request: &Request, now: SystemTime) -> Result<(Certificate, PrivateKeyPem), AuthorityError> {
        let key = request.key.generate().map_err(CreateError::from)?;
        let pem = PrivateKeyPem::write(&key, request.passphrase.as_ref()).map_err(CreateError::from)?;
        let profile = Profile {
            dn: request.dn.clone(),
            uses: request.uses.clone(),
            days: request.days,
            alternative_names: request.alternative_names.clone(),
        };
        let kind = request.key.kind();
        let certificate = create::certificate(&profile, &key, kind, &self.signer(), now)?;
        self.enter(&issued_line(&certificate))?;
        Ok((certificate, pem))
    }

    /// A certificate for a key that is here, or was seen to be where it is. No request is needed, which a key that
    /// signs nothing could not make.
    ///
    /// # Errors
    /// [`AuthorityError::Create`] for a key of a kind or size that is not used, or that can't do what the profile says.
    pub fn certify<T: HasPublic>(
        &self,
        profile: &Profile,
        key: &PKeyRef<T>,
        now: SystemTime,
    ) -> Result<Certificate, AuthorityError> {
        let kind = bulla_device::KeyKind::of(key).map_err(CreateError::from)?;
        let certificate = create::certificate(profile, key, KeyKind::of_device(kind), &self.signer(), now)?;
        self.enter(&issued_line(&certificate))?;
        Ok(certificate)
    }

    /// Signs a user's request (PKCS#10, PEM or DER). Name and key are the request's, all else is said here.
    ///
    /// # Errors
    /// [`AuthorityError::Create`] for a request that is damaged, not signed by its own key, or whose key is of a kind
    /// or size that is not used.
    pub fn sign_request(
        &self,
        request: &[u8],
        uses: &[KeyUse],
        days: u32,
        alternative_names: &[AlternativeName],
        now: SystemTime,
    ) -> Result<Certificate, AuthorityError> {
        let (dn, key) = create::read_request(request)?;
        let kind = create::request_key_kind(request)?;
        let profile = Profile { dn, uses: uses.to_vec(), days, alternative_names: alternative_names.to_vec() };
        let certificate = create::certificate(&profile, &key, kind, &self.signer(), now)?;
        self.enter(&issued_line(&certificate))?;
        Ok(certificate)
    }

    /// Takes a certificate back: enters it in the ledger and writes the next revocation list. Taking it back twice
    /// changes nothing but the list's dates.
    ///
    /// # Errors
    /// [`AuthorityError::UnknownSerial`] for a certificate that is not in the ledger.
    pub fn revoke(&self, serial: &str, now: SystemTime) -> Result<(), AuthorityError> {
        self.revoke_all(&[serial.to_owned()], CRL_DAYS, now)
    }

    /// Takes certificates back, all or none, and writes one revocation list good for `crl_days`.
    ///
    /// # Errors
    /// As [`Authority::revoke`].
    pub fn revoke_all(&self, serials: &[String], crl_days: u32, now: SystemTime) -> Result<(), AuthorityError> {
        let records = self.records()?;
        let found = serials.iter().map(|serial| {
            let wanted = serial.to_ascii_lowercase().replace(':', "");
            let wanted = wanted.trim_start_matches('0');
            let mut records = records.iter();
            let record = records.find(|record| record.serial.trim_start_matches('0') == wanted);
            record.ok_or_else(|| AuthorityError::UnknownSerial { serial: serial.clone() })
        });
        let found = found.collect::<Result<Vec<_>, _>>()?;
        for record in found.into_iter().filter(|record| record.revoked_at_unix.is_none()) {
            self.enter(&format!("revoked {} at {}", record.serial, time::unix(now)))?;
        }
        self.write_crl(crl_days, now)
    }

    /// Writes the next revocation list, good for `days`.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn write_crl(&self, days: u32, now: SystemTime) -> Result<(), AuthorityError> {
        let (this_update, next_update) = create::validity(days, now)?;
        // Entered before it is made, so that no number is used twice; written before the ledger is let go,
        // so that of two lists made at once the one with less in it is not the last.
        self.with_ledger(
            |ledger| {
                let number = ledger.crl_number.checked_add(1).ok_or(CreateError::Time)?;
                Ok((number, format!("crl {number} next-update {}", time::unix(next_update))))
            },
            |number, ledger| {
                let crl = self.crl_text(&ledger.records, number, this_update, next_update)?;
                let path = self.dir.join(CRL_FILE);
                write_private(&path, &crl).map_err(|error| AuthorityError::io(&path, &error))
            },
        )
    }

    /// The newest revocation list, in PEM.
    ///
    /// # Errors
    /// [`AuthorityError::Io`].
    pub fn crl(&self) -> Result<Vec<u8>, AuthorityError> {
        let path = self.dir.join(CRL_FILE);
        fs::read(&path).map_err(|error| AuthorityError::io(&path, &error))
    }

    /// Everything it issued, in order of issue.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn records(&self) -> Result<Vec<Record>, AuthorityError> {
        Authority::ledger(&self.dir)
    }

    /// Everything the authority in `dir` issued, without opening it.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn ledger(dir: &Path) -> Result<Vec<Record>, AuthorityError> {
        let path = dir.join(LEDGER_FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(AuthorityError::Missing { path }),
            Err(error) => return Err(AuthorityError::io(&path, &error)),
        };
        Ok(Ledger::read(&bytes).map_err(|line| AuthorityError::Ledger { path, line })?.records)
    }

    fn signer(&self) -> Signer<'_> {
        Signer { certificate: Some(&self.certificate), key: &self.key }
    }

    fn enter(&self, line: &str) -> Result<(), AuthorityError> {
        self.with_ledger(|_| Ok(((), line.to_owned())), |(), _| Ok(()))
    }

    /// Reads the ledger under a lock, appends the line that `decide` makes of it, syncs, and does `then` with what
    /// the ledger held before.
    fn with_ledger<T>(
        &self,
        decide: impl FnOnce(&Ledger) -> Result<(T, String), CreateError>,
        then: impl FnOnce(T, &Ledger) -> Result<(), AuthorityError>,
    ) -> Result<(), AuthorityError> {
        let path = self.dir.join(LEDGER_FILE);
        let failed = |error: io::Error| AuthorityError::io(&path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        file.lock().map_err(failed)?; // let go when the file is closed
        let mut bytes = Vec::new();
        let limit = u64::try_from(LEDGER_BYTES_MAX).unwrap_or(u64::MAX);
        Read::by_ref(&mut file).take(limit).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() >= LEDGER_BYTES_MAX {
            return Err(AuthorityError::LedgerFull { path });
        }
        let ledger = Ledger::read(&bytes).map_err(|line| AuthorityError::Ledger { path: path.clone(), line })?;
        let (result, line) = decide(&ledger)?;
        append(&mut file, ledger.whole_bytes, &line).map_err(failed)?;
        then(result, &ledger)
    }

    fn crl_text(
        &self,
        records: &[Record],
        number: u64,
        this_update: SystemTime,
        next_update: SystemTime,
    ) -> Result<Vec<u8>, AuthorityError> {
        let kind = self.certificate.key_kind();
        let draft = |key: &PKeyRef<Private>| -> Result<Vec<u8>, CreateError> {
            let mut builder = X509CrlBuilder::new()?;
            builder.set_issuer_name(self.certificate.x509().subject_name())?;
            let (this_update, next_update) = (time::to_asn1(this_update)?, time::to_asn1(next_update)?);
            builder.set_last_update(&this_update)?;
            builder.set_next_update(&next_update)?;
            for record in records {
                let Some(at) = record.revoked_at() else {
                    continue;
                };
                let mut revoked = X509RevokedBuilder::new()?;
                let serial = Asn1Integer::from_bn(&*BigNum::from_hex_str(&record.serial)?)?;
                revoked.set_serial_number(&serial)?;
                let at = time::to_asn1(at)?;
                revoked.set_revocation_date(&at)?;
                builder.add_revoked(revoked.build())?;
            }
            builder.append_extension(authority_key_id(&self.certificate)?)?;
            builder.append_extension(crl_number(number)?)?;
            builder.sort()?;
            bulla_device::x509::sign_list(&mut builder, key, message_digest(kind))?;
            Ok(builder.build()?.to_der()?)
        };
        let list = X509Crl::from_der(&self.key.signed(kind, draft)?).map_err(CreateError::from)?;
        if !list.verify(self.certificate.public_key()).unwrap_or(false) {
            return Err(CreateError::from(MalformedError("revocation list with a bad signature")).into());
        }
        Ok(list.to_pem().map_err(CreateError::from)?)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({}, {})", self.certificate.dn(), self.dir.display())
    }
}

fn read(path: PathBuf) -> Result<Vec<u8>, AuthorityError> {
    fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => AuthorityError::Missing { path },
        _ => AuthorityError::io(&path, &error),
    })
}

fn read_certificates(dir: &Path) -> Result<Vec<Certificate>, AuthorityError> {
    let pem = read(dir.join(CERTIFICATE_FILE))?;
    Ok(Certificate::all_from_pem(&pem, PATH_CERTIFICATES_MAX).map_err(CreateError::from)?)
}

/// A URI is no secret, but whoever writes it chooses the key: its file is as closed as a key's.
fn read_key_file(dir: &Path) -> Result<Zeroizing<Vec<u8>>, AuthorityError> {
    const OTHERS: u32 = 0o077;
    let path = dir.join(KEY_FILE);
    let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => AuthorityError::Missing { path: path.clone() },
        _ => AuthorityError::io(&path, &error),
    })?;
    let mode = metadata.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(AuthorityError::Exposed { path, mode: mode & 0o7777 });
    }
    read(path).map(Zeroizing::new)
}

/// The certificate of `key` and those above it up to a self-signed one, each signed by the next, valid and an
/// authority's.
fn path_to_root(
    certificates: &[Certificate],
    key: &SigningKey,
    now: SystemTime,
) -> Result<Vec<Certificate>, AuthorityError> {
    let own = certificates.iter().find(|certificate| key.is_of(certificate));
    let malformed = MalformedError("private key belongs to none of the certificates");
    let mut path = vec![own.ok_or(CreateError::Malformed(malformed))?.clone()];
    while let Some(last) = path.last() {
        let dn = || last.dn().to_string();
        if !last.is_authority() {
            return Err(AuthorityError::NotAnAuthority { dn: dn() });
        }
        if let Err(error) = last.check_dates(now) {
            return Err(AuthorityError::NotValid { dn: dn(), why: error.to_string() });
        }
        let signed_by = |issuer: &Certificate| last.x509().verify(issuer.public_key()).unwrap_or(false);
        if last.issuer() == last.dn() && signed_by(last) {
            break;
        }
        let above = certificates.iter().find(|issuer| issuer.dn() == last.issuer() && signed_by(issuer));
        match above.filter(|_| path.len() < PATH_CERTIFICATES_MAX) {
            Some(above) => path.push(above.clone()),
            None => return Err(AuthorityError::IssuerMissing { dn: dn(), issuer: last.issuer().to_string() }),
        }
    }
    Ok(path)
}

fn issued_line(certificate: &Certificate) -> String {
    let not_after = time::unix(certificate.not_after());
    // A name's text has its control characters escaped, so the line stays one line.
    format!("issued {} not-after {not_after} dn {}", certificate.serial_hex(), certificate.dn())
}

fn append(file: &mut File, whole_bytes: usize, line: &str) -> io::Result<()> {
    let end = u64::try_from(whole_bytes).map_err(io::Error::other)?;
    file.set_len(end)?; // cuts a torn line
    file.seek(SeekFrom::Start(end))?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_all()
}

/// RFC 5280 section 5.2.1: the key identifier, as the certificate has it.
fn authority_key_id(certificate: &Certificate) -> Result<X509Extension, ErrorStack> {
    const KEY_IDENTIFIER: u8 = 0x80;
    let id = certificate.subject_key_id().unwrap_or_default();
    extension("2.5.29.35", &tlv::element(tlv::SEQUENCE, &[&tlv::element(KEY_IDENTIFIER, &[id])]))
}

/// RFC 5280 section 5.2.3.
fn crl_number(number: u64) -> Result<X509Extension, ErrorStack> {
    let bytes = number.to_be_bytes();
    let zeros = number.leading_zeros() as usize / 8;
    let digits = bytes.get(zeros.min(7)..).unwrap_or_default();
    let sign: &[u8] = if digits.first().is_some_and(|high| *high >= 0x80) { &[0] } else { &[] };
    extension("2.5.29.20", &tlv::element(tlv::INTEGER, &[sign, digits]))
}

fn extension(oid: &str, der: &[u8]) -> Result<X509Extension, ErrorStack> {
    let oid = Asn1Object::from_str(oid)?;
    X509Extension::new_from_der(&oid, false, &*Asn1OctetString::new_from_bytes(der)?)
}

/// The ledger's lines, added up.
#[derive(Debug, Default)]
struct Ledger {
    records: Vec<Record>,
    crl_number: u64,
    /// Where the last whole line ends.
    whole_bytes: usize,
}

impl Ledger {
    /// The number of the first line that is none.
    fn read(bytes: &[u8]) -> Result<Ledger, usize> {
        let whole_bytes = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut ledger = Ledger { whole_bytes, ..Ledger::default() };
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let whole = bytes.get(..whole_bytes).unwrap_or_default();
        for (at, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
            std::str::from_utf8(line)
                .ok()
                .and_then(|line| ledger.add(line.trim_end_matches('\n'), &mut places))
                .ok_or(at + 1)?;
        }
        Ok(ledger)
    }

    fn add(&mut self, line: &str, places: &mut BTreeMap<String, usize>) -> Option<()> {
        let (verb, rest) = line.split_once(' ')?;
        match verb {
            "issued" => {
                let (serial, rest) = rest.split_once(" not-after ")?;
                let (not_after, dn) = rest.split_once(" dn ")?;
                serial.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
                places.insert(serial.to_owned(), self.records.len());
                self.records.push(Record {
                    serial: serial.to_owned(),
                    dn: dn.to_owned(),
                    not_after_unix: not_after.parse().ok()?,
                    revoked_at_unix: None,
                });
            }
            "revoked" => {
                let (serial, at) = rest.split_once(" at ")?;
                let record = self.records.get_mut(*places.get(serial)?)?;
                record.revoked_at_unix = Some(at.parse().ok()?);
            }
            "crl" => {
                let (number, next_update) = rest.split_once(" next-update ")?;
                next_update.parse::<i64>().ok()?;
                self.crl_number = self.crl_number.max(number.parse().ok()?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// Why an authority did not do what was asked. The administrator's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthorityError {
    /// There is one already.
    Exists {
        /// Its directory.
        dir: PathBuf,
    },
    /// There is none, or not all of it.
    Missing {
        /// The file that is not there.
        path: PathBuf,
    },
    /// Others can read its key.
    Exposed {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A line of the ledger is damaged.
    Ledger {
        /// The ledger.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The ledger has reached [`LEDGER_BYTES_MAX`].
    LedgerFull {
        /// The ledger.
        path: PathBuf,
    },
    /// No certificate of this number was issued here.
    UnknownSerial {
        /// As it was written.
        serial: String,
    },
    /// The system refused.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// An imported certificate is no authority's.
    NotAnAuthority {
        /// Its subject.
        dn: String,
    },
    /// The certificate above an imported one is not there.
    IssuerMissing {
        /// Its subject.
        dn: String,
        /// Its issuer.
        issuer: String,
    },
    /// An imported certificate is not valid now.
    NotValid {
        /// Its subject.
        dn: String,
        /// Why.
        why: String,
    },
    /// What was asked for cannot be made, or the key cannot be opened.
    Create(CreateError),
}

impl AuthorityError {
    fn io(path: &Path, error: &io::Error) -> AuthorityError {
        AuthorityError::Io { path: path.to_owned(), why: error.to_string() }
    }

    /// Whether a passphrase is missing or wrong.
    pub fn is_locked(&self) -> bool {
        matches!(self, AuthorityError::Create(CreateError::Key(KeyError::Locked | KeyError::WrongPassphrase)))
    }
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::Exists { dir } => {
                write!(f, "there is an authority at {}", dir.display())
            }
            AuthorityError::Missing { path } => {
                write!(f, "no authority: {} is missing", path.display())
            }
            AuthorityError::Exposed { path, mode } => {
                write!(f, "{} has mode {mode:04o}: others must not have access to it", path.display())
            }
            AuthorityError::Ledger { path, line } => {
                write!(f, "{} is damaged at line {line}", path.display())
            }
            AuthorityError::LedgerFull { path } => {
                write!(f, "{} is over {LEDGER_BYTES_MAX} bytes", path.display())
            }
            AuthorityError::UnknownSerial { serial } => {
                write!(f, "no certificate with serial {serial} was issued here")
            }
            AuthorityError::Io { path, why } => write!(f, "{}: {why}", path.display()),
            AuthorityError::NotAnAuthority { dn } => write!(f, "the certificate of {dn} is no authority's"),
            AuthorityError::IssuerMissing { dn, issuer } => {
                write!(f, "the certificate of {issuer}, which signed that of {dn}, is not in the file")
            }
            AuthorityError::NotValid { dn, why } => write!(f, "the certificate of {dn}: {why}"),
            AuthorityError::Create(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AuthorityError {}

impl From<CreateError> for AuthorityError {
    fn from(error: CreateError) -> AuthorityError {
        AuthorityError::Create(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_forgets_a_torn_line_and_names_a_damaged_one() {
        let text = b"issued 0a not-after 5 dn CN=a b\nrevoked 0a at 3\ncrl 7 next-update 9\nissued 0b not";
        let ledger = Ledger::read(text).unwrap();
        assert_eq!(ledger.crl_number, 7);
        assert_eq!(ledger.whole_bytes, text.len() - "issued 0b not".len());
        let record = Record { serial: "0a".into(), dn: "CN=a b".into(), not_after_unix: 5, revoked_at_unix: Some(3) };
        assert_eq!(ledger.records, [record]);
        for (bad, line) in [
            (&b"issued 0a not-after 5 dn CN=a\nrevoked 0b at 3\n"[..], 2),
            (b"crl x next-update 1\n", 1),
            (b"burnt 1\n", 1),
            (b"\n", 1),
            (b"issued zz not-after 5 dn CN=a\n", 1),
        ] {
            assert_eq!(Ledger::read(bad).err(), Some(line));
        }
    }

    #[test]
    fn the_ledger_in_the_documentation_is_one() {
        let page = include_str!("../../../../docs/formats/key-ring.md");
        let example = page.split("```ledger\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let ledger = Ledger::read(example.as_bytes()).unwrap();
        assert_eq!((ledger.crl_number, ledger.whole_bytes), (2, example.len()));
        let records: Vec<_> = ledger.records.iter().map(|r| (r.dn.as_str(), r.revoked_at_unix)).collect();
        assert_eq!(records, [("CN=orders,O=Demo", Some(1_795_299_894)), ("CN=billing,O=Demo", None)]);
    }
}
