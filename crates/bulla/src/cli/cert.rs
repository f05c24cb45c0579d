//! `bulla cert`: authorities, certificates and key rings, without a queue manager.

pub mod args;
mod rows;
mod verify;

use super::CliError;
use crate::enrolment::answer::names;
use crate::enrolment::tls_certificate::present;
use crate::folders::{AUTHORITIES, RINGS, TLS};
pub use args::CertArgs;
use args::{
    CertCommand, CreateArgs, ExportArgs, Format, ImportArgs, ListArgs, PassphraseArgs, Place, ProfileArgs, RenewArgs,
    RevokeArgs, SetArgs, ShowArgs, SignArgs, SignerArgs,
};
use bulla_device::KeyUri;
use bulla_seal::certificate::authority::{Authority, AuthorityError, Founding, FoundingElsewhere, Request};
use bulla_seal::certificate::bundle::{Bundle, to_pkcs12};
use bulla_seal::certificate::create::{self, AlternativeName, Asked, CreateError, Profile};
use bulla_seal::certificate::{
    Certificate, KeyError, KeyKind, KeySource, KeyUse, Passphrase, PrivateKeyPem, Usage, read_key_source,
    read_private_key, utc,
};
use bulla_seal::ring::{self, Ring, RingError};
use bulla_table::{Column, Table};
use openssl::pkey::{PKey, Private};
use rows::{Row, issued_rows, ring_rows, status};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Does what the arguments say.
///
/// # Errors
/// With a hint where there is one. What was written before stays.
pub fn run(args: &CertArgs) -> Result<(), CliError> {
    perform(args, SystemTime::now(), &mut io::stdout().lock())
}

fn perform(args: &CertArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let data = Data(&args.data);
    match &args.command {
        CertCommand::Create(args) => create(&data, args, now, out),
        CertCommand::Sign(args) => sign(&data, args, now, out),
        CertCommand::List(args) => list(&data, args, now, out),
        CertCommand::Show(args) => show(&data, args, now, out),
        CertCommand::Import(args) => import(&data, args, now, out),
        CertCommand::Export(args) => export(&data, args, out),
        CertCommand::Verify(args) => verify::verify(&data, args, now, out),
        CertCommand::Set(args) => set(&data, args, out),
        CertCommand::Renew(args) => renew(&data, args, out),
        CertCommand::Revoke(args) => revoke(&data, args, now, out),
    }
}

fn create(data: &Data<'_>, args: &CreateArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let passphrase = args.passphrase.read()?;
    if args.token.is_given() && passphrase.is_some() {
        return Err(CliError::usage("a key on a token has a PIN, not a passphrase"));
    }
    if let Some(name) = &args.ca {
        return found(data, name, args, passphrase.as_ref(), now, out);
    }
    let uses = args.profile.uses(args.key.kind());
    let days = args.profile.days.unwrap_or(365);
    if let (Some(request), Some(key_out)) = (&args.request, &args.key_out) {
        let profile = Profile { dn: args.dn.clone(), uses, days, alternative_names: args.profile.san.clone() };
        if let kind @ KeyKind::MlKem(_) = args.key.kind() {
            // Before a key is made, on a token perhaps.
            return Err(failed(CreateError::CannotAsk { kind }));
        }
        if let Some(key) = args.token.make(data.0, args.key, &key_label(args), &args.profile.usage)? {
            let profile = Profile { uses: key.uses(&args.profile.usage), ..profile };
            write_new(request, &key.request(&profile)?)?;
            write_new(key_out, format!("{}\n", key.uri).as_bytes())?;
            return say(out, format_args!("request for {} in {}, key {}", args.dn, request.display(), key.uri));
        }
        let key = args.key.generate().map_err(failed)?;
        let csr = create::request(&profile, &key, args.key.kind()).map_err(failed)?;
        let pem = PrivateKeyPem::write(&key, passphrase.as_ref()).map_err(failed)?;
        write_new(key_out, pem.as_bytes())?;
        write_new(request, &csr)?;
        return say(out, format_args!("request for {} in {}", args.dn, request.display()));
    }
    let Some(user) = &args.ring else {
        return Err(CliError::usage("create needs --ring, --ca or --request"));
    };
    let dir = data.ring(user)?;
    check_passphrase(&dir, passphrase.as_ref())?;
    let (name, authority) = args.signer.open(data)?;
    let (label, certificate, path) = match args.token.make(data.0, args.key, &key_label(args), &args.profile.usage)? {
        Some(key) => {
            let alternative_names = args.profile.san.clone();
            let uses = key.uses(&args.profile.usage);
            let profile = Profile { dn: args.dn.clone(), uses, days, alternative_names };
            let certificate = match key.kind() {
                // It signs no request.
                KeyKind::MlKem(_) => {
                    key.prove()?;
                    authority.certify(&profile, key.public.key(), now)
                }
                _ => {
                    let request = key.request(&profile)?;
                    authority.sign_request(&request, &profile.uses, days, &profile.alternative_names, now)
                }
            };
            let certificate = certificate.map_err(authority_failed)?;
            let label = args.label.clone().unwrap_or_else(|| label_of(&certificate));
            let chain = authority.chain();
            let path = ring::install_own_elsewhere(&dir, &label, &certificate, &chain, &key.uri);
            (label, certificate, path.map_err(ring_failed)?)
        }
        None => {
            let request = Request {
                dn: args.dn.clone(),
                key: args.key,
                uses,
                days,
                alternative_names: args.profile.san.clone(),
                passphrase,
            };
            let (certificate, key) = authority.issue(&request, now).map_err(authority_failed)?;
            let label = args.label.clone().unwrap_or_else(|| label_of(&certificate));
            let path = ring::install_own(&dir, &label, &certificate, &authority.chain(), &key);
            (label, certificate, path.map_err(ring_failed)?)
        }
    };
    let crl = authority.crl().map_err(authority_failed)?;
    let mut believers = vec![dir];
    for other in &args.share {
        let dir = data.ring(other)?;
        ring::install_person(&dir, &label, &certificate, &authority.chain()).map_err(ring_failed)?;
        believers.push(dir);
    }
    for dir in &believers {
        ring::install_trust(dir, &name, authority.root()).map_err(ring_failed)?;
        ring::install_crl(dir, &name, &crl).map_err(ring_failed)?;
    }
    say(out, format_args!("created {label}: {certificate}, in {}", path.display(), certificate = Line(&certificate)))
}

fn found(
    data: &Data<'_>,
    name: &str,
    args: &CreateArgs,
    passphrase: Option<&Passphrase>,
    now: SystemTime,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if !args.profile.usage.is_empty() || !args.profile.san.is_empty() || !args.share.is_empty() || args.label.is_some()
    {
        return Err(CliError::usage("an authority has no --usage, --san, --share or --label"));
    }
    let parent = match &args.signer.signer {
        Some(_) => Some(args.signer.open(data)?.1),
        None => None,
    };
    let dir = data.authority(name)?;
    // Before a key is made that could not be used.
    Authority::refuse_a_second(&dir).map_err(authority_failed)?;
    let (dn, days, parent) = (&args.dn, args.profile.days.unwrap_or(3650), parent.as_ref());
    let key = args.token.make(data.0, args.key, &key_label(args), &[KeyUse::CertSign])?;
    let (founded, place) = match key {
        Some(key) => {
            let place = format!(", key {}", key.uri);
            let founding = FoundingElsewhere { dn, kind: key.kind(), key: key.signing(), days, parent };
            (Authority::found_elsewhere(&dir, founding, now), place)
        }
        None => {
            let founding = Founding { dn, key: args.key, days, passphrase, parent };
            (Authority::found(&dir, &founding, now), String::new())
        }
    };
    let authority = founded.map_err(authority_failed)?;
    say(out, format_args!("founded {name}: {}, in {}{place}", Line(authority.certificate()), dir.display()))
}

fn sign(data: &Data<'_>, args: &SignArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let (_, authority) = args.signer.open(data)?;
    let request = read_file(&args.request)?;
    let asked = Asked::of(&request).map_err(request_failed)?;
    let names = match () {
        () if args.no_san => &[],
        () if !args.profile.san.is_empty() => args.profile.san.as_slice(),
        () => asked.names.as_slice(),
    };
    // What is asked for is said before anything is signed; where the certificate goes to standard output, aside.
    let lines = request_lines(&asked, names);
    for line in &lines {
        match (&args.out, args.dry_run) {
            (None, false) => eprintln!("{line}"),
            _ => say(out, format_args!("{line}"))?,
        }
    }
    if args.dry_run {
        return Ok(());
    }
    let days = args.profile.days.unwrap_or(365);
    let uses = args.profile.uses(asked.kind);
    let certificate = authority.sign_request(&request, &uses, days, names, now).map_err(authority_failed)?;
    let mut pem = certificate.to_pem();
    pem.extend(authority.chain().iter().flat_map(Certificate::to_pem));
    match &args.out {
        Some(path) => {
            write_new(path, &pem)?;
            let names = if names.is_empty() { String::new() } else { format!(", for {}", words(names)) };
            say(out, format_args!("signed {}{names}, in {}", Line(&certificate), path.display()))
        }
        None => write_out(out, &pem),
    }
}

/// What a request asks for, and what it gets.
fn request_lines(asked: &Asked, names: &[AlternativeName]) -> Vec<String> {
    // Both are decided by --usage.
    const BY_USAGE: [&str; 2] = ["2.5.29.15", "2.5.29.37"];
    let mut lines = vec![match asked.names.is_empty() {
        true => format!("the request of {} asks for no alternative names", asked.dn),
        false => format!("the request of {} asks for {}", asked.dn, words(&asked.names)),
    }];
    if names != asked.names {
        lines.push(match names.is_empty() {
            true => "the certificate gets no alternative names".to_owned(),
            false => format!("the certificate gets {} instead", words(names)),
        });
    }
    if asked.other_names > 0 {
        lines.push(format!("left out: {} alternative names of other kinds", asked.other_names));
    }
    let extensions: Vec<&str> =
        asked.extensions.iter().map(String::as_str).filter(|oid| !BY_USAGE.contains(oid)).collect();
    if !extensions.is_empty() {
        lines.push(format!("left out: extensions {}", extensions.join(", ")));
    }
    lines
}

fn words(names: &[AlternativeName]) -> String {
    names.iter().map(AlternativeName::to_string).collect::<Vec<_>>().join(", ")
}

fn request_failed(error: CreateError) -> CliError {
    match error {
        CreateError::AlternativeName { .. } => failed(error).hint("--san gives the names to sign, --no-san none"),
        error => failed(error),
    }
}

fn list(data: &Data<'_>, args: &ListArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let rows = match &args.signer {
        Some(name) => issued_rows(data, name, now)?,
        None => ring_rows(data, args.ring.as_deref(), now)?,
    };
    if args.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let text = serde_json::to_string_pretty(&Value::Array(rows)).map_err(failed)?;
        return say(out, format_args!("{text}"));
    }
    const HEAD: [&str; 11] =
        ["LABEL", "KEY", "SIZE", "STRENGTH", "FROM", "UNTIL", "PRIVATE", "STATUS", "GOOD FOR", "RINGS", "DN"];
    let mut table = Table::new(HEAD.map(|_| Column::left()));
    table.row(HEAD);
    rows.iter().for_each(|row| table.row(row.cells()));
    say(out, format_args!("{}", table.text().trim_end()))
}

fn show(data: &Data<'_>, args: &ShowArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let (certificate, status, private) = match &args.ring {
        Some(user) => {
            let survey = ring::survey(&data.ring(user)?).map_err(ring_failed)?;
            let (certificate, chain, private) = find(&survey, &args.what)?;
            let status = status(&survey.ring, &certificate, &chain, now);
            (certificate, Some(status), private)
        }
        None => {
            let passphrase = args.passphrase.read()?;
            let bundle = Bundle::read(&read_file(Path::new(&args.what))?, passphrase.as_ref()).map_err(failed)?;
            let private = bundle.key.is_some();
            let first = bundle.certificates.into_iter().next();
            (first.ok_or_else(|| CliError::failed("no certificate in the file"))?, None, private)
        }
    };
    if args.text {
        return write_out(out, &certificate.x509().to_text().map_err(failed)?);
    }
    let fingerprint = base16ct::lower::encode_string(certificate.fingerprint());
    let usage = certificate.key_usage().map_or_else(
        || "any".to_owned(),
        |bits| bits.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect::<Vec<_>>().join(", "),
    );
    for (name, value) in [
        ("subject", certificate.dn().to_string()),
        ("issuer", certificate.issuer().to_string()),
        ("serial", certificate.serial_hex()),
        ("from", utc(certificate.not_before())),
        ("until", utc(certificate.not_after())),
        ("key", format!("{} {}", certificate.key_kind(), certificate.key_bits())),
        ("key usage", usage),
        ("authority", yes_no(certificate.is_authority()).to_owned()),
        ("private key", yes_no(private).to_owned()),
        ("fingerprint", fingerprint),
    ] {
        say(out, format_args!("{name:<12} {value}"))?;
    }
    status.map_or(Ok(()), |status| say(out, format_args!("{:<12} {status}", "status")))
}

fn import(data: &Data<'_>, args: &ImportArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let dir = data.ring(&args.ring)?;
    let bytes = read_file(&args.file)?;
    let label = |certificate: &Certificate| args.label.clone().unwrap_or_else(|| label_of(certificate));
    if args.place == Some(Place::Crl) {
        let stem = args.file.file_stem().and_then(|stem| stem.to_str()).map(plain);
        let label = args.label.clone().or(stem).unwrap_or_default();
        let path = ring::install_crl(&dir, &label, &bytes).map_err(ring_failed)?;
        return say(out, format_args!("imported {}", path.display()));
    }
    let from = args.from_passphrase_file.as_deref().map(Passphrase::from_file).transpose().map_err(failed)?;
    let bundle = Bundle::read(&bytes, from.as_ref()).map_err(|error| failed(error).hint(FROM_HINT))?;
    let (bundle_key, mut chain) = (bundle.key, bundle.certificates);
    let key = match &args.key_file {
        Some(file) => {
            let bytes = zeroize::Zeroizing::new(read_file(file)?);
            match read_key_source(&bytes, from.as_ref()).map_err(|error| failed(error).hint(FROM_HINT))? {
                KeySource::Clear(key) => Some(key),
                KeySource::Elsewhere(uri) => return import_key_elsewhere(&dir, args, chain, &uri, now, out),
            }
        }
        None => bundle_key,
    };
    let place = match args.place {
        Some(place) => place,
        None if key.is_none() => Place::Person,
        // Who names the key's file has said that it is meant.
        None if args.key_file.is_some() => Place::Own,
        None => {
            let message =
                format!("{} holds a private key, and --as does not say what becomes of it", args.file.display());
            let hint = format!("--as own puts the key into the ring of {}; --as person leaves it out", args.ring);
            return Err(CliError::usage(message).hint(hint));
        }
    };
    let certificate = match (&key, place) {
        (Some(key), Place::Own) => {
            let at = chain.iter().position(|certificate| certificate.public_key().public_eq(key));
            chain.remove(at.ok_or_else(|| CliError::failed("the private key belongs to none of the certificates"))?)
        }
        _ if chain.is_empty() => return Err(CliError::failed("no certificate in the file")),
        _ => chain.remove(0),
    };
    let path = match place {
        Place::Own => {
            let key = key.ok_or_else(|| {
                CliError::failed("no private key in the file").hint("--key-file names the file that holds it")
            })?;
            let passphrase = args.passphrase.read()?;
            check_passphrase(&dir, passphrase.as_ref())?;
            let key = PrivateKeyPem::write(&key, passphrase.as_ref()).map_err(failed)?;
            ring::install_own(&dir, &label(&certificate), &certificate, &chain, &key)
        }
        Place::Person => ring::install_person(&dir, &label(&certificate), &certificate, &chain),
        Place::Trust | Place::Crl if certificate.is_authority() => {
            ring::install_trust(&dir, &label(&certificate), &certificate)
        }
        Place::Trust | Place::Crl => return Err(CliError::failed("the certificate is no authority's")),
    };
    warn_of_dates(&certificate, now);
    say(out, format_args!("imported {}, in {}", Line(&certificate), path.map_err(ring_failed)?.display()))
}

/// A certificate that is not valid now is kept, to open what was sealed before; it is not used for anything new.
fn warn_of_dates(certificate: &Certificate, now: SystemTime) {
    if let Err(error) = certificate.check_dates(now) {
        eprintln!("bulla: warning: {}: {error}", error.cause());
    }
}

/// A certificate by which others may seal what its key can't open is not taken.
fn check_openable(certificate: &Certificate, uri: &KeyUri) -> Result<(), CliError> {
    let agrees = certificate.check_usage(Usage::KeyAgreement).is_ok();
    match uri {
        KeyUri::Transit(_) if agrees => {
            let message =
                "the key of a curve opens nothing in a transit engine, and others may seal for this certificate";
            let hint = "have one issued whose key usage is digitalSignature, or use an RSA key";
            Err(CliError::failed(message).hint(hint))
        }
        _ => Ok(()),
    }
}

/// The first certificate is taken for the key's; token and server are not asked.
fn import_key_elsewhere(
    dir: &Path,
    args: &ImportArgs,
    mut chain: Vec<Certificate>,
    uri: &KeyUri,
    now: SystemTime,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if !matches!(args.place, None | Some(Place::Own)) {
        return Err(CliError::usage("a private key goes into own"));
    }
    if chain.is_empty() {
        return Err(CliError::failed("no certificate in the file"));
    }
    let certificate = chain.remove(0);
    check_openable(&certificate, uri)?;
    let label = args.label.clone().unwrap_or_else(|| label_of(&certificate));
    let path = ring::install_own_elsewhere(dir, &label, &certificate, &chain, uri).map_err(ring_failed)?;
    warn_of_dates(&certificate, now);
    say(out, format_args!("imported {}, key {uri}, in {}", Line(&certificate), path.display()))
}

const FROM_HINT: &str = "--from-passphrase-file names the file with the passphrase of what is imported";

fn export(data: &Data<'_>, args: &ExportArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let dir = data.ring(&args.ring)?;
    let survey = ring::survey(&dir).map_err(ring_failed)?;
    let (certificate, chain, has_key) = find(&survey, &args.label)?;
    let key = match (args.private, has_key) {
        (false, _) => None,
        (true, false) => return Err(CliError::failed(format!("{} has no private key", args.label))),
        (true, true) => Some(own_key(&dir, &args.label, args.passphrase.read()?.as_ref())?),
    };
    let to = args.to_passphrase_file.as_deref().map(Passphrase::from_file).transpose().map_err(failed)?;
    let bytes = match (args.format, key) {
        (Format::P12, key) => {
            let to = to.ok_or_else(|| CliError::usage("PKCS#12 needs --to-passphrase-file"))?;
            to_pkcs12(&args.label, &certificate, &chain, key.as_deref(), &to).map_err(failed)?
        }
        (Format::Der, Some(_)) => return Err(CliError::usage("DER holds no private key; --format p12 does")),
        (Format::Der, None) => certificate.der().to_vec().into(),
        (Format::Pem, key) => {
            let mut pem = zeroize::Zeroizing::new(certificate.to_pem());
            pem.extend(chain.iter().flat_map(Certificate::to_pem));
            if let Some(key) = key {
                pem.extend_from_slice(PrivateKeyPem::write(&key, to.as_ref()).map_err(failed)?.as_bytes());
            }
            pem
        }
    };
    match &args.out {
        Some(path) => {
            write_new(path, &bytes)?;
            say(out, format_args!("exported {}, in {}", Line(&certificate), path.display()))
        }
        None => write_out(out, &bytes),
    }
}

fn renew(data: &Data<'_>, args: &RenewArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let label = &args.label;
    let mut before = None;
    let certificate = super::enrolment::enrolling(data.0, None, |site| {
        let table = site.configuration.certificate(label)?;
        let source = site.configuration.authority(&table.authority)?.source()?;
        before = present(data.0, label)?.map(|(certificate, _)| certificate);
        site.renew_tls(label, source.as_ref())
    })?;
    let path = data.0.join(TLS).join(format!("{label}.pem"));
    let what = if before.as_ref() == Some(&certificate) { "as it was," } else { "renewed" };
    say(out, format_args!("{what} {label}: {}, in {}", Line(&certificate), path.display()))
}

fn revoke(data: &Data<'_>, args: &RevokeArgs, now: SystemTime, out: &mut dyn Write) -> Result<(), CliError> {
    let (name, authority) = args.signer.open(data)?;
    authority.revoke_all(&args.serial, args.crl_days, now).map_err(|error| match error {
        AuthorityError::UnknownSerial { .. } => {
            authority_failed(error).hint(format!("`bulla cert list --signer {name}` shows what it issued"))
        }
        error => authority_failed(error),
    })?;
    for serial in &args.serial {
        say(out, format_args!("revoked {serial}"))?;
    }
    let crl = authority.crl().map_err(authority_failed)?;
    for (user, dir) in data.rings()? {
        // A ring that cannot be read now gets its list when it can be: the others need theirs today.
        match ring::survey(&dir) {
            Ok(survey) if survey.ring.trust().contains(authority.root()) => {
                ring::install_crl(&dir, &name, &crl).map_err(ring_failed)?;
                say(out, format_args!("new revocation list in the ring of {user}"))?;
            }
            Ok(_) => {}
            Err(error) => eprintln!("bulla: warning: ring of {user} has no new revocation list: {error}"),
        }
    }
    Ok(())
}

/// The data directory.
struct Data<'a>(&'a Path);

impl Data<'_> {
    /// The directory of a ring, by its user's name or by its path.
    fn ring(&self, user: &str) -> Result<PathBuf, CliError> {
        if user.contains('/') {
            return Ok(PathBuf::from(user));
        }
        ring::Rings::new(self.0.join(RINGS)).path(user).map_err(ring_failed)
    }

    fn authority(&self, name: &str) -> Result<PathBuf, CliError> {
        if plain(name) != name {
            return Err(CliError::usage(format!("an authority cannot have the name {name:?}")));
        }
        Ok(self.0.join(AUTHORITIES).join(name))
    }

    /// Every ring, by user.
    fn rings(&self) -> Result<BTreeMap<String, PathBuf>, CliError> {
        let root = self.0.join(RINGS);
        let entries = match fs::read_dir(&root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(CliError::file(&root, error)),
        };
        let mut rings = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(|error| CliError::file(&root, error))?.path();
            if let Some(user) = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_dir()) {
                rings.insert(user.to_owned(), path.clone());
            }
        }
        Ok(rings)
    }
}

impl SignerArgs {
    /// The authority's passphrase.
    pub(in crate::cli) fn passphrase(&self) -> Result<Option<Passphrase>, CliError> {
        passphrase(self.signer_passphrase_file.as_deref(), self.signer_passphrase_env.as_deref())
    }

    fn open(&self, data: &Data<'_>) -> Result<(String, Authority), CliError> {
        let Some(name) = &self.signer else {
            return Err(CliError::usage("--signer must name an authority")
                .hint("`bulla cert create --ca demo --dn 'CN=Demo CA'` founds one"));
        };
        Ok((name.clone(), self.unlock(data.0, &data.authority(name)?)?))
    }

    /// Opens the authority in `dir`, of the data directory `data`.
    ///
    /// # Errors
    /// As [`Authority::unlock`]; no device for a key that is elsewhere.
    pub(in crate::cli) fn unlock(&self, data: &Path, dir: &Path) -> Result<Authority, CliError> {
        match Authority::key_elsewhere(dir).map_err(authority_failed)? {
            Some((public, uri)) => Authority::open_elsewhere(dir, self.device.key(data, public, uri)?),
            None => Authority::unlock(dir, self.passphrase()?.as_ref()),
        }
        .map_err(authority_failed)
    }
}

impl PassphraseArgs {
    pub(in crate::cli) fn read(&self) -> Result<Option<Passphrase>, CliError> {
        passphrase(self.passphrase_file.as_deref(), self.passphrase_env.as_deref())
    }
}

fn passphrase(file: Option<&Path>, variable: Option<&str>) -> Result<Option<Passphrase>, CliError> {
    match (file, variable) {
        (Some(file), _) => Passphrase::from_file(file).map(Some).map_err(failed),
        (None, Some(variable)) => match std::env::var(variable) {
            Ok(text) if !text.is_empty() => Ok(Some(Passphrase::new(text))),
            _ => Err(CliError::usage(format!("environment variable {variable} holds no passphrase"))),
        },
        (None, None) => Ok(None),
    }
}

impl ProfileArgs {
    fn uses(&self, kind: KeyKind) -> Vec<KeyUse> {
        if self.usage.is_empty() { KeyUse::usual(kind) } else { self.usage.clone() }
    }
}

/// Shows or changes the settings of a ring.
fn set(data: &Data<'_>, args: &SetArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let dir = data.ring(&args.ring)?;
    let ring = ring::survey(&dir).map_err(ring_failed)?.ring;
    let asked = match args.revocation {
        Some(asked) => ring::set_revocation(&dir, asked).map(|_| asked).map_err(ring_failed)?,
        None => ring.revocation(),
    };
    say(out, format_args!("the ring of {} has REVOCATION({asked})", args.ring))
}

/// The certificate of a label: own, person or trust, whichever has it.
fn find(survey: &ring::Survey, label: &str) -> Result<(Certificate, Vec<Certificate>, bool), CliError> {
    let own = survey.own.iter().find(|own| own.label == label);
    let person = || survey.ring.people().iter().find(|person| person.label == label).map(AsRef::as_ref);
    if let Some(found) = own.or_else(person) {
        return Ok((found.certificate.clone(), found.chain.clone(), own.is_some()));
    }
    let trust = survey.ring.trust().iter().find(|root| label_of(root) == label);
    trust.map(|root| (root.clone(), Vec::new(), false)).ok_or_else(|| {
        CliError::failed(format!("no certificate with label {label} in the ring"))
            .hint("`bulla cert list` shows labels")
    })
}

fn own_key(dir: &Path, label: &str, passphrase: Option<&Passphrase>) -> Result<PKey<Private>, CliError> {
    let pem = zeroize::Zeroizing::new(read_file(&dir.join("own").join(format!("{label}.pem")))?);
    read_private_key(&pem, passphrase).map_err(|error| match error {
        KeyError::Elsewhere { .. } => failed(error).hint("without --private, the certificate alone is exported"),
        error => failed(error).hint(PASSPHRASE_HINT),
    })
}

/// A ring has one passphrase: a key with another one would lock all of it.
fn check_passphrase(dir: &Path, passphrase: Option<&Passphrase>) -> Result<(), CliError> {
    let Some(passphrase) = passphrase else { return Ok(()) };
    match Ring::load(dir, Some(passphrase)) {
        Err(error @ RingError::Key { why: KeyError::WrongPassphrase, .. }) => {
            Err(ring_failed(error).hint("all encrypted keys of a ring have the same passphrase"))
        }
        _ => Ok(()),
    }
}

const PASSPHRASE_HINT: &str = "--passphrase-file names the file with the passphrase";

/// The label of a key on a token, where there is no certificate yet.
fn key_label(args: &CreateArgs) -> String {
    args.label.clone().unwrap_or_else(|| plain(&args.dn.common_name().unwrap_or_else(|| "key".to_owned())))
}

/// A label from common name and serial number: two certificates of one name get two files.
fn label_of(certificate: &Certificate) -> String {
    let name = certificate.dn().common_name().unwrap_or_else(|| "certificate".to_owned());
    let serial: String = certificate.serial_hex().chars().take(8).collect();
    format!("{}-{serial}", plain(&name))
}

/// What of a name can stand in a file's name.
fn plain(name: &str) -> String {
    let kept = name.chars().map(|c| if c.is_ascii_alphanumeric() || "._@-".contains(c) { c } else { '-' });
    kept.take(100).collect::<String>().trim_start_matches(['.', '-']).to_owned()
}

/// A certificate in one line.
struct Line<'a>(&'a Certificate);

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let until: String = utc(self.0.not_after()).chars().take(10).collect();
        // Who certifies names alone leaves the subject empty.
        match self.0.dn().as_str() {
            "" => f.write_str(&names(self.0.x509()).iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))?,
            subject => f.write_str(subject)?,
        }
        write!(f, ", {} {}, ", self.0.key_kind(), self.0.key_bits())?;
        write!(f, "serial {}, until {until}", self.0.serial_hex())
    }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let length = fs::metadata(path).map_err(|error| CliError::file(path, error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(CliError::failed(format!("{} is over {FILE_BYTES_MAX} bytes", path.display())));
    }
    fs::read(path).map_err(|error| CliError::file(path, error))
}

/// Writes a file that does not exist yet, readable by its owner only: it may hold a key.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| CliError::file(path, error))
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<(), CliError> {
    written(writeln!(out, "{line}"))
}

fn write_out(out: &mut dyn Write, bytes: &[u8]) -> Result<(), CliError> {
    written(out.write_all(bytes))
}

/// The reader may stop reading: that is no failure.
fn written(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::failed(error.to_string())
}

fn authority_failed(error: AuthorityError) -> CliError {
    let hint = match &error {
        AuthorityError::Missing { .. } => Some("`bulla cert create --ca NAME --dn DN` founds an authority"),
        AuthorityError::Exposed { .. } => Some("chmod 600 takes the others' access away"),
        error if error.is_locked() => Some("--signer-passphrase-file names the file with its passphrase"),
        _ => None,
    };
    CliError { hint: hint.map(str::to_owned), ..failed(error) }
}

fn ring_failed(error: RingError) -> CliError {
    let hint = match &error {
        RingError::Missing { .. } => Some("`bulla cert create --ring USER …` or `import` makes one"),
        RingError::Exposed { .. } => Some("chmod 700 for directories and 600 for files takes the others' access away"),
        error if error.is_locked() => Some(PASSPHRASE_HINT),
        _ => None,
    };
    CliError { hint: hint.map(str::to_owned), ..failed(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_seal::certificate::Usage;
    use bulla_seal::policy::Revocation;
    use clap::Parser;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, UNIX_EPOCH};

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: CertArgs,
    }

    /// A data directory, and the command spoken to it.
    struct Harness {
        dir: tempfile::TempDir,
        now: SystemTime,
    }

    impl Harness {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), now: UNIX_EPOCH + Duration::from_secs(1_795_219_200) }
        }

        fn path(&self, name: &str) -> String {
            self.dir.path().join(name).to_str().unwrap().to_owned()
        }

        fn later(&mut self, days: u64) {
            self.now += Duration::from_secs(days * 86_400);
        }

        /// Words are split at spaces; `~` in them is a space.
        fn try_say(&self, line: &str) -> Result<String, CliError> {
            let words = line.split(' ').map(|word| word.replace('~', " "));
            let words = ["cert".to_owned()].into_iter().chain(words);
            let words = words.chain(["--data".to_owned(), self.path("data")]);
            let program = Program::try_parse_from(words).map_err(|error| CliError::usage(error.to_string()))?;
            let mut out = Vec::new();
            perform(&program.args, self.now, &mut out)?;
            Ok(String::from_utf8_lossy(&out).into_owned())
        }

        #[track_caller]
        fn say(&self, line: &str) -> String {
            self.try_say(line).unwrap()
        }

        #[track_caller]
        fn refuse(&self, line: &str, says: &str) {
            let error = self.try_say(line).unwrap_err();
            let whole = format!("{} / {}", error.message, error.hint.unwrap_or_default());
            assert!(whole.contains(says), "{line}: {whole}");
        }

        fn row(&self, line: &str, has: &str) -> Vec<String> {
            let table = self.say(line);
            let row = table.lines().find(|row| row.contains(has)).unwrap_or_else(|| panic!("{has} in {table}"));
            row.split_whitespace().map(str::to_owned).collect()
        }
    }

    fn founded() -> Harness {
        let harness = Harness::new();
        harness.say("create --ca demo --dn CN=Demo~CA,O=Demo --key p256");
        harness
    }

    #[test]
    fn a_user_gets_a_ring_that_signs_and_opens() {
        let harness = founded();
        let said =
            harness.say("create --ring orders --dn CN=orders,O=Demo --key rsa2048 --signer demo --share billing");
        assert!(said.starts_with("created orders-"), "{said}");
        let row = harness.row("list", "CN=orders");
        assert_eq!(row[1..8], ["RSA", "2048", "112", "2026-11-21", "2027-11-21", "YES", "valid"]);
        assert_eq!(row[8..10], ["sign,encrypt", "billing(person),orders(own)"]);
        let ring = Ring::load(&harness.dir.path().join("data/rings/orders"), None).unwrap();
        assert_eq!(ring.signing(Revocation::None, harness.now).unwrap().certificate.dn().as_str(), "CN=orders,O=Demo");
        let dn = "CN=orders,O=Demo".parse().unwrap();
        let billing = Ring::load(&harness.dir.path().join("data/rings/billing"), None).unwrap();
        billing.recipient(&dn, Usage::KeyTransport, Revocation::None, harness.now).unwrap();
        assert_eq!(billing.crls().len(), 1);
    }

    #[test]
    fn revoking_reaches_every_ring_that_trusts_the_authority() {
        let mut harness = founded();
        harness.say("create --ring orders --dn CN=orders --key p256 --signer demo --share billing --label first");
        let serial = harness.row("list --signer demo", "CN=orders")[0].clone();
        harness.later(1);
        let said = harness.say(&format!("revoke --signer demo {serial}"));
        assert!(said.contains("ring of billing") && said.contains("ring of orders"), "{said}");
        assert_eq!(harness.row("list", "CN=orders")[7], "revoked");
        assert_eq!(harness.row("list --ring billing", "CN=orders")[7], "revoked");
        assert_eq!(harness.row("list --signer demo", "CN=orders")[7], "revoked");
        harness.refuse("revoke --signer demo 12ab", "no certificate with serial 12ab");
        harness.later(31);
        assert_eq!(harness.row("list", "CN=orders")[7], "crl-stale");
        harness.say("revoke --signer demo --crl-days 90");
        assert_eq!(harness.row("list", "CN=orders")[7], "revoked");
    }

    #[test]
    fn certificates_expire_in_the_list() {
        let mut harness = founded();
        harness.say("create --ring orders --dn CN=orders --key p256 --signer demo --days 10");
        harness.later(10);
        assert_eq!(harness.row("list", "CN=orders")[7], "expired");
        let json: Value = serde_json::from_str(&harness.say("list --ring orders --json")).unwrap();
        let row = json.as_array().unwrap().iter().find(|row| row["dn"] == "CN=orders").unwrap();
        assert_eq!(
            (&row["status"], &row["key_size"], &row["private_key"]),
            (&json!("expired"), &json!(256), &json!(true))
        );
    }

    #[test]
    fn a_request_is_made_signed_and_imported() {
        let harness = founded();
        let (csr, key, cert) = (harness.path("csr.pem"), harness.path("key.pem"), harness.path("cert.pem"));
        harness.say(&format!("create --request {csr} --key-out {key} --dn CN=far --key p384"));
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        harness.say(&format!("sign {csr} --signer demo --out {cert}"));
        harness.refuse(&format!("sign {csr} --signer demo --usage dataencrypt"), "incompatible");
        harness.refuse(&format!("import {cert} --ring far --as own"), "--key-file");
        harness.say(&format!("import {cert} --ring far --key-file {key} --label far"));
        let shown = harness.say("show far --ring far");
        assert!(shown.contains("key          NISTECC 384"), "{shown}");
        assert!(shown.contains("key usage    digital-signature, non-repudiation, key-agreement"), "{shown}");
        assert!(shown.contains("private key  YES\n"), "{shown}");
        assert!(shown.contains("status       untrusted"), "{shown}");
        let ca = harness.path("data/authorities/demo/ca.pem");
        harness.say(&format!("import {ca} --ring far --as trust"));
        assert!(harness.say("show far --ring far").contains("status       valid"));
        harness.say(&format!("import {} --ring far --as crl", harness.path("data/authorities/demo/crl.pem")));
        assert!(harness.say("show far --ring far --text").contains("Signature Algorithm: ecdsa-with-SHA256"));
        assert!(harness.say(&format!("show {cert}")).contains("private key  NO\n"));
    }

    #[test]
    fn a_request_keeps_its_names_and_nothing_else() {
        let harness = founded();
        let [csr, key, cert, config] = ["csr.pem", "key.pem", "cert.pem", "req.cnf"].map(|name| harness.path(name));
        let text = "[req]\nprompt=no\ndistinguished_name=d\nreq_extensions=e\n[d]\nCN=far\n[e]\n\
            subjectAltName=DNS:far.example,IP:192.0.2.1,IP:2001:db8::1,RID:1.2.3\n\
            basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n";
        fs::write(&config, text).unwrap();
        let arguments = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let made = std::process::Command::new("openssl")
            .args(arguments)
            .args(["-config", &config, "-keyout", &key, "-out", &csr])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        const ASKED: &str = "the request of CN=far asks for dns:far.example, ip:192.0.2.1, ip:2001:db8::1\n";
        let shown = harness.say(&format!("sign {csr} --signer demo --dry-run"));
        let left_out = "left out: 1 alternative names of other kinds\nleft out: extensions 2.5.29.19\n";
        assert_eq!(shown, format!("{ASKED}{left_out}"));
        assert!(!harness.say("list --signer demo").contains("CN=far"));
        let said = harness.say(&format!("sign {csr} --signer demo --out {cert}"));
        assert!(said.starts_with(ASKED) && said.contains(", for dns:far.example, ip:192.0.2.1, ip:2001:db8::1, in"));
        let names = || {
            let certificate = Certificate::all_from_pem(&fs::read(&cert).unwrap(), 9).unwrap().remove(0);
            fs::remove_file(&cert).unwrap();
            let names = certificate.x509().subject_alt_names().map_or(0, |names| names.len());
            (names, certificate.is_authority(), certificate.signs_lists())
        };
        assert_eq!(names(), (3, false, false));
        let said = harness.say(&format!("sign {csr} --signer demo --out {cert} --san dns:other.example"));
        assert!(said.contains("the certificate gets dns:other.example instead\n"), "{said}");
        assert_eq!(names().0, 1);
        harness.say(&format!("sign {csr} --signer demo --out {cert} --no-san"));
        assert_eq!(names().0, 0);
    }

    #[test]
    fn a_path_is_shown_or_why_there_is_none() {
        let mut harness = founded();
        harness.say("create --ca issuing --dn CN=Issuing --key p256 --days 1000 --signer demo");
        harness.say("create --ring a --dn CN=a --key p256 --days 10 --signer issuing --label a");
        let [leaf, whole] = ["leaf.pem", "whole.pem"].map(|name| harness.path(name));
        harness.say(&format!("export a --ring a --out {whole}"));
        let certificates = Certificate::all_from_pem(&fs::read(&whole).unwrap(), 9).unwrap();
        fs::write(&leaf, certificates[0].to_pem()).unwrap();
        let [root, issuing] = ["demo", "issuing"].map(|name| harness.path(&format!("data/authorities/{name}/ca.pem")));
        let lists = ["demo", "issuing"].map(|name| harness.path(&format!("data/authorities/{name}/crl.pem")));
        let said = harness.say(&format!("verify {leaf} --trust {root} --untrusted {issuing}"));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], format!("{leaf} is good for sign, encrypt"));
        assert!(
            lines[1].starts_with("  1  CN=a, ") && lines[1].ends_with("; no revocation list is about it"),
            "{said}"
        );
        assert!(lines[2].starts_with("  2  CN=Issuing, ") && lines[3].ends_with("; trusted"), "{said}");
        harness.say(&format!("verify {whole} --trust {root} --use sign"));
        harness.refuse(&format!("verify {leaf} --trust {root}"), "cause=untrusted");
        harness.refuse(&format!("verify {whole} --trust {root} --use tls"), "cause=certificate-usage");
        harness.refuse(&format!("verify {whole} --trust {root} --at 2027-01-01"), "cause=certificate-expired");
        harness.refuse(&format!("verify {whole} --trust {root} --at yesterday"), "is no time");
        let asked = format!("verify {whole} --trust {root} --revocation required");
        let error = harness.try_say(&asked).unwrap_err();
        assert!(error.code == super::super::EXIT_UNREACHABLE && error.message.contains("cause=crl-missing"), "{error}");
        let asked = format!("{asked} --crl {} --crl {}", lists[0], lists[1]);
        assert!(harness.say(&asked).lines().nth(1).unwrap().ends_with("; not revoked"));
        let serial = harness.row("list --signer issuing", "CN=a")[0].clone();
        harness.say(&format!("revoke --signer issuing {serial}"));
        harness.refuse(&asked, "cause=certificate-revoked");
        harness.refuse("verify nothing.pem --ring a", "No such file");
        harness.later(1);
        harness.refuse(&format!("verify {leaf} --ring a"), "cause=certificate-revoked");
    }

    #[test]
    fn a_ring_can_ask_for_revocation_lists() {
        let harness = founded();
        harness.say("create --ring a --dn CN=a --key p256 --signer demo --label a");
        assert_eq!(harness.say("set --ring a"), "the ring of a has REVOCATION(IFPRESENT)\n");
        assert_eq!(harness.row("list --ring a", "a(own)")[7], "valid");
        fs::remove_file(harness.path("data/rings/a/crl/demo.pem")).unwrap();
        assert_eq!(harness.row("list --ring a", "a(own)")[7], "valid");
        assert_eq!(harness.say("set --ring a --revocation required"), "the ring of a has REVOCATION(REQUIRED)\n");
        assert_eq!(harness.row("list --ring a", "a(own)")[7], "crl-missing");
        harness.refuse("set --ring a --revocation always", "REVOCATION has no value always");
        fs::write(harness.path("data/rings/a/revocation"), "perhaps").unwrap();
        harness.refuse("list --ring a", "none of the words NONE, IFPRESENT and REQUIRED");
    }

    #[test]
    fn keys_with_passphrases_travel_as_pkcs12() {
        let harness = founded();
        let (secret, other) = (harness.path("secret"), harness.path("other"));
        fs::write(&secret, "correct horse\nsecond line\n").unwrap();
        fs::write(&other, "battery staple\n").unwrap();
        harness
            .say(&format!("create --ring a --dn CN=a --signer demo --label a --key p256 --passphrase-file {secret}"));
        let p12 = harness.path("a.p12");
        let export = format!("export a --ring a --format p12 --private --to-passphrase-file {other} --out {p12}");
        harness.refuse(&export, "--passphrase-file names");
        harness.refuse(&format!("{export} --passphrase-file {other}"), "wrong passphrase");
        harness.say(&format!("{export} --passphrase-file {secret}"));
        assert_eq!(fs::metadata(&p12).unwrap().permissions().mode() & 0o777, 0o600);
        harness.refuse(&format!("import {p12} --ring b"), "--from-passphrase-file");
        harness.refuse(
            &format!("import {p12} --ring b --from-passphrase-file {other} --label b"),
            "--as own puts the key",
        );
        harness.say(&format!("import {p12} --ring b --as own --from-passphrase-file {other} --label b"));
        Ring::load(&harness.dir.path().join("data/rings/b"), None).unwrap();
        let pem = harness
            .say(&format!("export a --ring a --private --passphrase-file {secret} --to-passphrase-file {other}"));
        assert!(pem.contains("BEGIN ENCRYPTED PRIVATE KEY"), "{pem}");
        let again = format!("create --ring a --dn CN=a --signer demo --key p256 --passphrase-file {other}");
        harness.refuse(&again, "the same passphrase");
        let der = harness.path("a.der");
        harness.say(&format!("export a --ring a --format der --out {der}"));
        harness.say(&format!("import {der} --ring c --label a"));
        assert_eq!(harness.row("list --ring c", "CN=a")[6], "NO");
        harness.refuse("export a --ring c --private", "has no private key");
        harness.refuse(&format!("export a --ring a --format der --out {der}"), "File exists");
    }

    #[test]
    fn authorities_can_stand_below_each_other_and_be_locked() {
        let harness = founded();
        let secret = harness.path("secret");
        fs::write(&secret, "correct horse").unwrap();
        harness.say(&format!(
            "create --ca issuing --dn CN=Issuing --key p256 --days 1000 --signer demo --passphrase-file {secret}"
        ));
        harness.refuse("create --ring a --dn CN=a --signer issuing", "--signer-passphrase-file");
        harness
            .say(&format!("create --ring a --dn CN=a --key p256 --signer issuing --signer-passphrase-file {secret}"));
        assert_eq!(harness.row("list --ring a", "a(own)")[7..], ["valid", "sign,encrypt", "a(own)", "CN=a"]);
        harness.refuse("create --ca issuing --dn CN=Issuing", "there is an authority at");
    }

    #[test]
    fn mistakes_are_answered_with_what_to_do() {
        let harness = founded();
        harness.refuse("create --ring a --dn CN=a", "--signer must name an authority");
        harness.refuse("create --dn CN=a", "create needs --ring, --ca or --request");
        harness.refuse("create --ring a --dn CN=a --signer none", "founds an authority");
        harness.refuse("create --ring a --dn CN=a --signer ../demo", "cannot have the name");
        harness.refuse("create --ring .. --dn CN=a --signer demo", "cannot have a key ring");
        harness.refuse("create --ring a --dn XX=a --signer demo", "unknown attribute type \"XX\"");
        harness.refuse("create --ring a --dn CN=a --signer demo --key rsa512", "no key of kind");
        harness.refuse("create --ring a --dn CN=a --signer demo --key p256 --usage dataencrypt", "KEYAGREE");
        harness.refuse("create --ring a --dn CN=a --signer demo --usage writing", "unknown key usage");
        harness.refuse("create --ring a --dn CN=a --signer demo --days 4000", "outlive");
        harness.refuse("show nothing --ring a", "no key ring at");
        harness.refuse(
            "create --ring a --dn CN=a --signer demo --passphrase-env BULLA_TEST_NOT_SET",
            "holds no passphrase",
        );
    }
}
