//! Making certificates and requests. An [`super::authority::Authority`] keeps books on top of this.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bulla_device::{DeviceError, PublicKey, Work, x509};
use openssl::asn1::Asn1Integer;
use openssl::bn::{BigNum, MsbOption};
use openssl::error::ErrorStack;
use openssl::pkey::{HasPublic, PKey, PKeyRef, Private};
use openssl::stack::Stack;
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName, SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Builder, X509Extension, X509KeyUsage, X509Req, X509ReqBuilder};

use super::signing_key::{SigningKey, message_digest, signed_elsewhere};
use super::{Certificate, KeyError, KeyKind, KeyUse, MalformedError, UseError, time, tlv};
use crate::dn::{Dn, DnError};

/// Random bits of a serial number (RFC 5280 allows 159, CAs must use 64 or more).
pub const SERIAL_BITS: i32 = 126;
/// The longest validity that can be asked for, in days.
pub const VALIDITY_DAYS_MAX: u32 = 36_500;
/// The most alternative names on one certificate.
pub const ALTERNATIVE_NAMES_MAX: usize = 64;

/// A name beside the DN that a certificate is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// A host, for TLS.
    Dns(String),
    /// An address, for TLS.
    Ip(IpAddr),
    /// A mailbox.
    Email(String),
    /// A URI.
    Uri(String),
}

impl std::str::FromStr for AlternativeName {
    type Err = CreateError;

    /// `dns:host.example`, `ip:192.0.2.1`, `email:a@b.example`, `uri:urn:x`.
    fn from_str(text: &str) -> Result<AlternativeName, CreateError> {
        let bad = || CreateError::AlternativeName { text: text.to_owned() };
        let (kind, value) = text.split_once(':').ok_or_else(bad)?;
        // A comma or line break would start another entry in OpenSSL's configuration syntax.
        let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && b != b',' && b != b';');
        if !plain {
            return Err(bad());
        }
        match kind.to_ascii_lowercase().as_str() {
            "dns" => Ok(AlternativeName::Dns(value.to_owned())),
            "ip" => value.parse().map(AlternativeName::Ip).map_err(|_| bad()),
            "email" => Ok(AlternativeName::Email(value.to_owned())),
            "uri" => Ok(AlternativeName::Uri(value.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for AlternativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlternativeName::Dns(host) => write!(f, "dns:{host}"),
            AlternativeName::Ip(address) => write!(f, "ip:{address}"),
            AlternativeName::Email(mailbox) => write!(f, "email:{mailbox}"),
            AlternativeName::Uri(uri) => write!(f, "uri:{uri}"),
        }
    }
}

/// What a certificate request asks for. Its signature is good, so it was made with its own private key; nothing else of
/// it is proved.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The subject.
    pub dn: Dn,
    /// The kind of the key.
    pub kind: KeyKind,
    /// Alternative names.
    pub names: Vec<AlternativeName>,
    /// How many alternative names are of kinds that are not made here.
    pub other_names: usize,
    /// Further extensions, by dotted OID. An authority decides on those itself.
    pub extensions: Vec<String>,
}

impl Asked {
    /// Reads a request, PEM or DER.
    ///
    /// # Errors
    /// [`CreateError::Malformed`] for one that is damaged, not signed by its own key, or whose key is of a kind or size
    /// that is not used; [`CreateError::AlternativeName`] for a name that is none.
    pub fn of(pem_or_der: &[u8]) -> Result<Asked, CreateError> {
        let request = parsed_request(pem_or_der)?;
        let key = request.public_key().map_err(|_| CreateError::Malformed(NOT_A_REQUEST))?;
        let mut asked = Asked {
            dn: Dn::from_x509_name(request.subject_name())?,
            kind: kind_of(&key)?,
            names: Vec::new(),
            other_names: 0,
            extensions: Vec::new(),
        };
        let der = request.to_der()?;
        for (oid, value) in requested_extensions(&der).ok_or(CreateError::Malformed(NOT_A_REQUEST))? {
            if oid == SUBJECT_ALTERNATIVE_NAME {
                asked.add_names(value)?;
            } else {
                asked.extensions.push(tlv::oid_text(oid).unwrap_or_else(|| "unreadable".to_owned()));
            }
        }
        Ok(asked)
    }

    fn add_names(&mut self, value: &[u8]) -> Result<(), CreateError> {
        let bad = || CreateError::Malformed(MalformedError("request with unreadable alternative names"));
        let mut names = tlv::only(value, tlv::SEQUENCE).ok_or_else(bad)?.value;
        while !names.is_empty() {
            let name = tlv::next(&mut names).ok_or_else(bad)?;
            let kind = match name.tag {
                0x81 => "email",
                0x82 => "dns",
                0x86 => "uri",
                0x87 => "ip",
                _ => {
                    self.other_names += 1;
                    continue;
                }
            };
            let text = match (kind, name.value.len()) {
                ("ip", 4) => <[u8; 4]>::try_from(name.value).map(|octets| IpAddr::from(octets).to_string()).ok(),
                ("ip", 16) => <[u8; 16]>::try_from(name.value).map(|octets| IpAddr::from(octets).to_string()).ok(),
                ("ip", _) => None,
                _ => Some(String::from_utf8_lossy(name.value).into_owned()),
            };
            if self.names.len() >= ALTERNATIVE_NAMES_MAX {
                return Err(too_many_names());
            }
            self.names.push(format!("{kind}:{}", text.ok_or_else(bad)?).parse()?);
        }
        Ok(())
    }
}

const NOT_A_REQUEST: MalformedError = MalformedError("not a certificate request");
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The extensions that a request asks for (RFC 2985, section 5.4.2), by contents of OID and of value.
fn requested_extensions(der: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
    const ATTRIBUTES: u8 = 0xa0;
    const BOOLEAN: u8 = 0x01;
    let mut info = tlv::expect(&mut tlv::only(der, tlv::SEQUENCE)?.value, tlv::SEQUENCE)?.value;
    tlv::expect(&mut info, tlv::INTEGER)?; // version
    tlv::expect(&mut info, tlv::SEQUENCE)?; // subject
    tlv::expect(&mut info, tlv::SEQUENCE)?; // key
    let mut found = Vec::new();
    let mut attributes = tlv::expect(&mut info, ATTRIBUTES).map_or(&[][..], |attributes| attributes.value);
    while !attributes.is_empty() {
        let mut attribute = tlv::expect(&mut attributes, tlv::SEQUENCE)?.value;
        if tlv::expect(&mut attribute, tlv::OID)?.value != EXTENSION_REQUEST {
            continue;
        }
        let values = tlv::expect(&mut attribute, tlv::SET)?.value;
        let mut extensions = tlv::only(values, tlv::SEQUENCE)?.value;
        while !extensions.is_empty() {
            let mut extension = tlv::expect(&mut extensions, tlv::SEQUENCE)?.value;
            let oid = tlv::expect(&mut extension, tlv::OID)?.value;
            let _critical = tlv::expect(&mut extension, BOOLEAN);
            found.push((oid, tlv::expect(&mut extension, tlv::OCTET_STRING)?.value));
        }
    }
    Some(found)
}

fn too_many_names() -> CreateError {
    CreateError::AlternativeName { text: format!("more than {ALTERNATIVE_NAMES_MAX} names") }
}

/// What a certificate shall say, by any signer.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The subject.
    pub dn: Dn,
    /// What its key may do; at least one. With [`KeyUse::CertSign`] it becomes an authority.
    pub uses: Vec<KeyUse>,
    /// Days from `now` on that it is valid, 1 to [`VALIDITY_DAYS_MAX`].
    pub days: u32,
    /// Alternative names.
    pub alternative_names: Vec<AlternativeName>,
}

/// Who signs.
pub(crate) struct Signer<'a> {
    /// None for a certificate that its own key signs.
    pub(crate) certificate: Option<&'a Certificate>,
    pub(crate) key: &'a SigningKey,
}

/// A certificate over `public_key`.
pub(crate) fn certificate<T: HasPublic>(
    profile: &Profile,
    public_key: &PKeyRef<T>,
    kind: KeyKind,
    signer: &Signer<'_>,
    now: SystemTime,
) -> Result<Certificate, CreateError> {
    let signing_kind = signer.certificate.map_or(kind, Certificate::key_kind);
    let draft = |key: &PKeyRef<Private>| {
        let mut builder = unsigned_certificate(profile, public_key, kind, signer.certificate, now)?;
        x509::sign_certificate(&mut builder, key, message_digest(signing_kind))?;
        Ok(builder.build().to_der()?)
    };
    let certificate = X509::from_der(&signer.key.signed(signing_kind, draft)?)?;
    let by = signer.certificate.map_or_else(|| signer.key.public(), |issuer| Ok(issuer.public_key().to_owned()))?;
    if !certificate.verify(&by).unwrap_or(false) {
        return Err(CreateError::Malformed(MalformedError("certificate with a bad signature")));
    }
    Ok(Certificate::from_x509(&certificate)?)
}

fn unsigned_certificate<T: HasPublic>(
    profile: &Profile,
    public_key: &PKeyRef<T>,
    kind: KeyKind,
    issuer: Option<&Certificate>,
    now: SystemTime,
) -> Result<X509Builder, CreateError> {
    let bits = key_usage(profile, kind)?;
    let (not_before, not_after) = validity(profile.days, now)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    let subject = profile.dn.to_x509_name()?;
    builder.set_subject_name(&subject)?;
    match issuer {
        Some(issuer) => {
            if not_after > issuer.not_after() {
                return Err(CreateError::OutlivesSigner { not_after: issuer.not_after() });
            }
            builder.set_issuer_name(issuer.x509().subject_name())?;
        }
        None => builder.set_issuer_name(&subject)?,
    }
    let serial = serial()?;
    builder.set_serial_number(&serial)?;
    let (from, until) = (time::to_asn1(not_before)?, time::to_asn1(not_after)?);
    builder.set_not_before(&from)?;
    builder.set_not_after(&until)?;
    builder.set_pubkey(public_key)?;

    let issuer = issuer.map(|issuer| issuer.x509().clone());
    if profile.uses.contains(&KeyUse::CertSign) {
        let mut constraints = BasicConstraints::new();
        constraints.critical().ca();
        if issuer.is_some() {
            // An authority below another one issues to people, not to further authorities.
            constraints.pathlen(0);
        }
        builder.append_extension(constraints.build()?)?;
    } else {
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
    }
    builder.append_extension(key_usage_extension(bits)?)?;
    if let Some(extended) = extended_key_usage(&profile.uses)? {
        builder.append_extension(extended)?;
    }
    let extension = {
        let context = builder.x509v3_context(issuer.as_deref(), None);
        SubjectKeyIdentifier::new().build(&context)?
    };
    builder.append_extension(extension)?;
    if issuer.is_some() {
        let extension = {
            let context = builder.x509v3_context(issuer.as_deref(), None);
            AuthorityKeyIdentifier::new().keyid(true).build(&context)?
        };
        builder.append_extension(extension)?;
    }
    if !profile.alternative_names.is_empty() {
        let extension = {
            let context = builder.x509v3_context(issuer.as_deref(), None);
            alternative_names(&profile.alternative_names)?.build(&context)?
        };
        builder.append_extension(extension)?;
    }
    Ok(builder)
}

/// A certificate signing request (PKCS#10, RFC 2986) in PEM, with the key usages it asks for.
///
/// # Errors
/// [`CreateError`] when the profile cannot be had with this key.
pub fn request(profile: &Profile, key: &PKey<Private>, kind: KeyKind) -> Result<Vec<u8>, CreateError> {
    Ok(signed_request(profile, key, kind, key)?.to_pem()?)
}

/// As [`request`], for a key whose private half is elsewhere: `sign` is given what to sign, and returns the signature
/// as X.509 has it (PKCS#1 v1.5, or `ECDSA-Sig-Value`).
///
/// # Errors
/// [`CreateError`] when the profile cannot be had with this key; what `sign` says; [`CreateError::Malformed`] for a
/// signature that does not fit.
pub fn request_signed_elsewhere(
    profile: &Profile,
    public: &PublicKey,
    sign: impl FnOnce(Work) -> Result<Vec<u8>, CreateError>,
) -> Result<Vec<u8>, CreateError> {
    let kind = KeyKind::of_device(public.kind());
    let draft = |key: &PKeyRef<Private>| Ok(signed_request(profile, public.key(), kind, key)?.to_der()?);
    let request = X509Req::from_der(&signed_elsewhere(kind, draft, sign)?)?;
    if !request.verify(public.key()).unwrap_or(false) {
        return Err(CreateError::Malformed(MalformedError("certificate request with a bad signature")));
    }
    Ok(request.to_pem()?)
}

fn signed_request<T: HasPublic>(
    profile: &Profile,
    public: &PKeyRef<T>,
    kind: KeyKind,
    key: &PKeyRef<Private>,
) -> Result<X509Req, CreateError> {
    if matches!(kind, KeyKind::MlKem(_)) {
        return Err(CreateError::CannotAsk { kind });
    }
    let bits = key_usage(profile, kind)?;
    let mut builder = X509ReqBuilder::new()?;
    builder.set_version(0)?;
    let subject = profile.dn.to_x509_name()?;
    builder.set_subject_name(&subject)?;
    builder.set_pubkey(public)?;
    let mut extensions: Stack<X509Extension> = Stack::new()?;
    extensions.push(key_usage_extension(bits)?)?;
    if !profile.alternative_names.is_empty() {
        let extension = {
            let context = builder.x509v3_context(None);
            alternative_names(&profile.alternative_names)?.build(&context)?
        };
        extensions.push(extension)?;
    }
    builder.add_extensions(&extensions)?;
    x509::sign_request(&mut builder, key, message_digest(kind))?;
    Ok(builder.build())
}

/// A request whose own signature is good.
fn parsed_request(pem_or_der: &[u8]) -> Result<X509Req, CreateError> {
    let bad = |_| CreateError::Malformed(NOT_A_REQUEST);
    let request = if pem_or_der.trim_ascii_start().starts_with(b"-----BEGIN") {
        X509Req::from_pem(pem_or_der).map_err(bad)?
    } else {
        X509Req::from_der(pem_or_der).map_err(bad)?
    };
    let key = request.public_key().map_err(bad)?;
    if !request.verify(&key).unwrap_or(false) {
        return Err(CreateError::Malformed(MalformedError("certificate request with a bad signature")));
    }
    Ok(request)
}

/// The name and public key of a request whose own signature is good. What extensions it asks for is not looked at.
pub(crate) fn read_request(pem_or_der: &[u8]) -> Result<(Dn, PKey<openssl::pkey::Public>), CreateError> {
    let request = parsed_request(pem_or_der)?;
    let key = request.public_key().map_err(|_| CreateError::Malformed(NOT_A_REQUEST))?;
    Ok((Dn::from_x509_name(request.subject_name())?, key))
}

/// The kind of key that a request is for, before it is decided what that key may do.
///
/// # Errors
/// [`CreateError::Malformed`].
pub fn request_key_kind(pem_or_der: &[u8]) -> Result<KeyKind, CreateError> {
    let (_, key) = read_request(pem_or_der)?;
    kind_of(&key)
}

fn kind_of(key: &PKey<openssl::pkey::Public>) -> Result<KeyKind, CreateError> {
    match bulla_device::KeyKind::of(key) {
        Ok(kind) => Ok(KeyKind::of_device(kind)),
        Err(_) => Err(MalformedError("request with a key of a kind or size that is not used").into()),
    }
}

fn key_usage(profile: &Profile, kind: KeyKind) -> Result<X509KeyUsage, CreateError> {
    if profile.uses.is_empty() {
        return Err(CreateError::NoUse);
    }
    if profile.dn.as_str().is_empty() {
        return Err(CreateError::Dn(DnError::Empty));
    }
    Ok(KeyUse::bits(&profile.uses, kind)?)
}

/// Whole seconds, as a certificate holds them.
pub(crate) fn validity(days: u32, now: SystemTime) -> Result<(SystemTime, SystemTime), CreateError> {
    if days == 0 || days > VALIDITY_DAYS_MAX {
        return Err(CreateError::Days { days });
    }
    let from = time::from_unix(time::unix(now)).ok_or(time::BadTime)?;
    let until = from.checked_add(Duration::from_secs(u64::from(days).saturating_mul(86_400))).ok_or(time::BadTime)?;
    Ok((from, until))
}

fn serial() -> Result<Asn1Integer, ErrorStack> {
    let mut number = BigNum::new()?;
    number.rand(SERIAL_BITS, MsbOption::ONE, false)?; // the top bit set: never zero, always one length
    Asn1Integer::from_bn(&number)
}

fn key_usage_extension(bits: X509KeyUsage) -> Result<X509Extension, ErrorStack> {
    let mut usage = KeyUsage::new();
    usage.critical();
    if bits.contains(X509KeyUsage::DIGITAL_SIGNATURE) {
        usage.digital_signature();
    }
    if bits.contains(X509KeyUsage::NON_REPUDIATION) {
        usage.non_repudiation();
    }
    if bits.contains(X509KeyUsage::KEY_ENCIPHERMENT) {
        usage.key_encipherment();
    }
    if bits.contains(X509KeyUsage::DATA_ENCIPHERMENT) {
        usage.data_encipherment();
    }
    if bits.contains(X509KeyUsage::KEY_AGREEMENT) {
        usage.key_agreement();
    }
    if bits.contains(X509KeyUsage::KEY_CERT_SIGN) {
        usage.key_cert_sign();
    }
    if bits.contains(X509KeyUsage::CRL_SIGN) {
        usage.crl_sign();
    }
    usage.build()
}

/// None for a pure authority: an extended key usage there would bind everything below it.
fn extended_key_usage(uses: &[KeyUse]) -> Result<Option<X509Extension>, ErrorStack> {
    if uses.contains(&KeyUse::CertSign) {
        return Ok(None);
    }
    let mut extended = ExtendedKeyUsage::new();
    extended.email_protection();
    if uses.contains(&KeyUse::Handshake) {
        extended.server_auth().client_auth();
    }
    extended.build().map(Some)
}

fn alternative_names(names: &[AlternativeName]) -> Result<SubjectAlternativeName, CreateError> {
    if names.len() > ALTERNATIVE_NAMES_MAX {
        return Err(too_many_names());
    }
    let mut extension = SubjectAlternativeName::new();
    for name in names {
        match name {
            AlternativeName::Dns(host) => extension.dns(host),
            AlternativeName::Ip(address) => extension.ip(&address.to_string()),
            AlternativeName::Email(mailbox) => extension.email(mailbox),
            AlternativeName::Uri(uri) => extension.uri(uri),
        };
    }
    Ok(extension)
}

/// Why a certificate, request or CRL was not made. The administrator's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The key's type cannot do what was asked.
    Use(UseError),
    /// No usage was asked for.
    NoUse,
    /// The name cannot be used.
    Dn(DnError),
    /// Not 1 to [`VALIDITY_DAYS_MAX`] days.
    Days {
        /// What was asked for.
        days: u32,
    },
    /// It would be valid longer than its signer.
    OutlivesSigner {
        /// When the signer ends.
        not_after: SystemTime,
    },
    /// Not of the form `dns:`, `ip:`, `email:` or `uri:`.
    AlternativeName {
        /// As it was written.
        text: String,
    },
    /// The input is damaged.
    Malformed(MalformedError),
    /// No key, or none that can be used.
    Key(KeyError),
    /// The device with the private key did not sign.
    Device(DeviceError),
    /// A key of this kind signs nothing, so it can't sign a request for its own certificate.
    CannotAsk {
        /// The kind.
        kind: KeyKind,
    },
    /// The clock shows a date that no certificate can hold.
    Time,
    /// OpenSSL refused or failed.
    Library {
        /// Its words.
        why: String,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Use(error) => error.fmt(f),
            CreateError::NoUse => f.write_str("a certificate needs at least one key usage"),
            CreateError::Dn(error) => error.fmt(f),
            CreateError::Days { days } => {
                write!(f, "validity of {days} days is not within 1 to {VALIDITY_DAYS_MAX}")
            }
            CreateError::OutlivesSigner { not_after } => {
                write!(f, "certificate would outlive its signer, which ends at {}", time::utc(*not_after))
            }
            CreateError::AlternativeName { text } => {
                write!(f, "alternative name {text:?} is not dns:HOST, ip:ADDRESS, email:MAILBOX or uri:URI")
            }
            CreateError::Malformed(error) => error.fmt(f),
            CreateError::Key(error) => error.fmt(f),
            CreateError::Device(error) => error.fmt(f),
            CreateError::CannotAsk { kind } => {
                write!(
                    f,
                    "a key of type {kind} signs nothing, so no request either: the authority must create its \
                     certificate"
                )
            }
            CreateError::Time => f.write_str("the clock shows a date that no certificate can hold"),
            CreateError::Library { why } => write!(f, "certificate could not be made: {why}"),
        }
    }
}

impl std::error::Error for CreateError {}

impl From<ErrorStack> for CreateError {
    fn from(stack: ErrorStack) -> CreateError {
        CreateError::Library { why: stack.to_string() }
    }
}

impl From<UseError> for CreateError {
    fn from(error: UseError) -> CreateError {
        CreateError::Use(error)
    }
}

impl From<DnError> for CreateError {
    fn from(error: DnError) -> CreateError {
        CreateError::Dn(error)
    }
}

impl From<MalformedError> for CreateError {
    fn from(error: MalformedError) -> CreateError {
        CreateError::Malformed(error)
    }
}

impl From<KeyError> for CreateError {
    fn from(error: KeyError) -> CreateError {
        CreateError::Key(error)
    }
}

impl From<DeviceError> for CreateError {
    fn from(error: DeviceError) -> CreateError {
        CreateError::Device(error)
    }
}

impl From<time::BadTime> for CreateError {
    fn from(_: time::BadTime) -> CreateError {
        CreateError::Time
    }
}
