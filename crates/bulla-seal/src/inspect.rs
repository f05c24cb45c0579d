//! What an envelope says without being opened. Nothing here is verified: it is what anyone who holds
//! the message can read.

use std::fmt;

use bulla_device::MlDsa;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::certificate::{Certificate, tlv, utc};
use crate::cms::algorithm::SignatureKind;
use crate::cms::attributes::{Binding, Ours, read_content};
use crate::cms::batch::BatchSigned;
use crate::cms::enveloped::{Enveloped, Recipient, Transport};
use crate::cms::reader::Reader;
use crate::cms::signed::{SignedData, SignerInfo};
use crate::cms::writer::{SEQUENCE, element};
use crate::cms::{self, Container, Name};
use crate::dn::Dn;
use crate::error::OpenError;
use crate::hash_tree::Ascent;
use crate::on_behalf::OnBehalfOf;

/// What a sealed message says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The container: `signed-data`, `authEnveloped-data` or `enveloped-data` of CMS, or Bulla's `batch-signed`.
    pub container: &'static str,
    /// The quality of protection: what the message claims, or what the container shows.
    pub quality: &'static str,
    /// The content cipher, as ENCALG has it.
    pub cipher: Option<&'static str>,
    /// The batch, where many messages share the signature.
    pub batch: Option<InspectedBatch>,
    /// The visible signers; those inside an envelope are not.
    pub signers: Vec<InspectedSigner>,
    /// The recipients.
    pub recipients: Vec<InspectedRecipient>,
    /// The subjects of the certificates inside.
    pub certificates: Vec<String>,
    /// The binding, where it is visible.
    pub binding: Option<InspectedBinding>,
    /// On whose behalf it was sealed anew, where that is visible.
    pub on_behalf_of: Option<OnBehalfOf>,
    /// How the body was packed.
    pub packing: Option<String>,
    /// The original content-type.
    pub content_type: Option<String>,
    /// Where the bytes go.
    pub sizes: Sizes,
}

/// One signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedSigner {
    /// The subject, where the certificate is in the message.
    pub dn: Option<String>,
    /// Issuer and serial number, or key identifier.
    pub name: String,
    /// Digest and signature algorithm.
    pub algorithm: String,
    /// When it says it signed, in UTC.
    pub signing_time: Option<String>,
    /// SHA-256 of the public key, hexadecimal, where the certificate is in the message.
    pub key_id: Option<String>,
}

/// A message's place in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedBatch {
    /// The batch's number, hexadecimal.
    pub tree: String,
    /// The message's place, from 0.
    pub index: u32,
    /// How many messages share the signature.
    pub size: u32,
    /// The top of the tree, hexadecimal.
    pub hash: String,
    /// Whether the message's path leads there: then a good signature of the root is one of this message.
    pub fits: bool,
}

/// One recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedRecipient {
    /// Issuer and serial number, or key identifier.
    pub name: String,
    /// How the content key travels.
    pub algorithm: String,
}

/// The binding attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedBinding {
    /// `QUEUE@QMGR`.
    pub destination: String,
    /// The encoded message id, hexadecimal.
    pub message_id: String,
    /// SHA-256 of the properties section, hexadecimal.
    pub properties: String,
    /// SHA-256 of the application-properties section, hexadecimal.
    pub application_properties: String,
    /// SHA-256 of the message annotations that are bound, hexadecimal; the first version of the binding has none.
    pub annotations: Option<String>,
    /// The queue manager that sealed for the application.
    pub sealed_by: Option<String>,
}

/// Bytes by use. Their sum is the message; `structure` is what is left: tags, lengths, algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The whole message.
    pub total: usize,
    /// Payload or ciphertext.
    pub content: usize,
    /// Certificates.
    pub certificates: usize,
    /// Recipient infos.
    pub recipients: usize,
    /// Signed or authenticated attributes.
    pub attributes: usize,
    /// Signatures, or the tag.
    pub proof: usize,
    /// Everything else.
    pub structure: usize,
}

/// Reads a sealed message without opening it.
///
/// # Errors
/// [`OpenError::NotSealed`], or what is wrong with it.
pub fn inspect(der: &[u8]) -> Result<Inspection, OpenError> {
    match cms::read(der)? {
        Container::Signed(signed) => of_signed(der, &signed),
        Container::Batch(batch) => of_batch(der, &batch),
        Container::Enveloped(envelope) => of_envelope(der, &envelope),
    }
}

fn of_signed(der: &[u8], signed: &SignedData<'_>) -> Result<Inspection, OpenError> {
    let certificates: Vec<Certificate> =
        signed.certificates.iter().filter_map(|der| Certificate::from_der(der).ok()).collect();
    let mut signers = Vec::with_capacity(signed.signers.len());
    let mut ours = Ours::default();
    for signer in &signed.signers {
        ours = signer.attributes.ours;
        signers.push(of_signer(signer, &certificates)?);
    }
    let sizes = Sizes::new(
        der.len(),
        signed.payload.len(),
        signed.certificates.iter().map(|der| der.len()).sum(),
        0,
        signed.signers.iter().map(|signer| signer.attributes_whole.len()).sum(),
        signed.signers.iter().map(|signer| signer.signature.len()).sum(),
    );
    with_ours(
        ours,
        Inspection {
            container: "signed-data",
            quality: "integrity",
            cipher: None,
            batch: None,
            signers,
            recipients: Vec::new(),
            certificates: certificates.iter().map(|certificate| certificate.dn().to_string()).collect(),
            binding: None,
            on_behalf_of: None,
            packing: None,
            content_type: None,
            sizes,
        },
    )
}

fn of_batch(der: &[u8], batch: &BatchSigned<'_>) -> Result<Inspection, OpenError> {
    let root = of_signed(batch.root_whole, &batch.signed)?;
    let hash_len = batch.root.digest.hash_len();
    let proof = root.sizes.proof + batch.salt.len() + batch.path.len() * hash_len;
    let attributes = root.sizes.attributes + batch.attributes_whole.len();
    let sizes = Sizes::new(der.len(), batch.payload.len(), root.sizes.certificates, 0, attributes, proof);
    let fits = batch.is_in_tree(&mut Ascent::default())
        && batch.attributes.digest().is_ok_and(|digest| *digest == *batch.root.digest.hash(batch.payload));
    let inspected = InspectedBatch {
        tree: base16ct::lower::encode_string(batch.root.tree),
        index: batch.index,
        size: batch.root.size,
        hash: base16ct::lower::encode_string(batch.root.hash),
        fits,
    };
    let inspection = Inspection { container: "batch-signed", batch: Some(inspected), sizes, ..root };
    with_ours(batch.attributes.ours, inspection)
}

fn of_envelope(der: &[u8], envelope: &Enveloped<'_>) -> Result<Inspection, OpenError> {
    let authenticated = envelope.cipher.is_authenticated();
    let ours = envelope.attributes.ours;
    let claimed = match ours.binding {
        Some(value) => Some(Binding::read(value)?.quality),
        None => None,
    };
    let sizes = Sizes::new(
        der.len(),
        envelope.ciphertext.len(),
        0,
        envelope.recipients_whole.len(),
        envelope.attributes_whole.map_or(0, <[u8]>::len),
        envelope.tag.map_or(0, <[u8]>::len),
    );
    with_ours(
        ours,
        Inspection {
            container: if authenticated { "authEnveloped-data" } else { "enveloped-data" },
            quality: match claimed {
                Some(crate::policy::Quality::Privacy) => "privacy",
                Some(_) => "confidentiality",
                None => "privacy or confidentiality",
            },
            cipher: Some(envelope.cipher.as_str()),
            batch: None,
            signers: Vec::new(),
            recipients: envelope.recipients.iter().map(of_recipient).collect(),
            certificates: Vec::new(),
            binding: None,
            on_behalf_of: None,
            packing: None,
            content_type: None,
            sizes,
        },
    )
}

fn with_ours(ours: Ours<'_>, mut inspection: Inspection) -> Result<Inspection, OpenError> {
    if let Some(value) = ours.binding {
        let binding = Binding::read(value)?;
        inspection.binding = Some(InspectedBinding {
            destination: binding.destination.to_owned(),
            message_id: base16ct::lower::encode_string(binding.message_id),
            properties: base16ct::lower::encode_string(binding.properties),
            application_properties: base16ct::lower::encode_string(binding.application_properties),
            annotations: binding.annotations.map(|digest| base16ct::lower::encode_string(digest)),
            sealed_by: binding.sealed_by.map(str::to_owned),
        });
    }
    inspection.on_behalf_of = ours.on_behalf_of.map(OnBehalfOf::read).transpose()?;
    if let Some(value) = ours.content {
        let (packing, content_type) = read_content(value)?;
        inspection.packing = Some(packing.to_string());
        inspection.content_type = content_type.map(str::to_owned);
    }
    Ok(inspection)
}

fn of_signer(signer: &SignerInfo<'_>, certificates: &[Certificate]) -> Result<InspectedSigner, OpenError> {
    let certificate = certificates.iter().find(|certificate| match signer.name {
        Name::IssuerAndSerial(name) => certificate.issuer_and_serial() == name,
        Name::Key(id) => certificate.subject_key_id() == Some(id),
    });
    let kind = match signer.kind {
        SignatureKind::RsaPkcs1 => "RSA PKCS#1 v1.5",
        SignatureKind::RsaPss { .. } => "RSA-PSS",
        SignatureKind::Ecdsa => "ECDSA",
        SignatureKind::MlDsa(MlDsa::MlDsa44) => "ML-DSA-44",
        SignatureKind::MlDsa(MlDsa::MlDsa65) => "ML-DSA-65",
        SignatureKind::MlDsa(MlDsa::MlDsa87) => "ML-DSA-87",
    };
    Ok(InspectedSigner {
        dn: certificate.map(|certificate| certificate.dn().to_string()),
        name: name_text(&signer.name),
        algorithm: format!("{kind} with {}", signer.digest),
        signing_time: signer.attributes.time()?.map(utc),
        key_id: certificate.map(|certificate| base16ct::lower::encode_string(certificate.spki_sha256())),
    })
}

fn of_recipient(recipient: &Recipient<'_>) -> InspectedRecipient {
    let algorithm = match recipient.transport {
        Transport::Rsa(bulla_device::RsaPadding::Pkcs1) => {
            format!("RSA PKCS#1 v1.5, {} bits", recipient.encrypted_key.len().saturating_mul(8))
        }
        Transport::Rsa(bulla_device::RsaPadding::Oaep { digest }) => {
            format!("RSA-OAEP with {digest}, {} bits", recipient.encrypted_key.len().saturating_mul(8))
        }
        Transport::Ecdh { kdf, wrap_len, .. } => {
            format!("ephemeral ECDH with {kdf}, AES-{} key wrap", wrap_len.saturating_mul(8))
        }
        Transport::Kem { set, .. } => format!("{set} with HKDF and SHA256, AES-256 key wrap"),
    };
    InspectedRecipient { name: name_text(&recipient.name), algorithm }
}

/// The signed root of a message that shares its signature with others, as it is in each of them: DER of a
/// `ContentInfo`. None for any other message. Nothing is verified.
pub fn batch_root(der: &[u8]) -> Option<&[u8]> {
    match cms::read(der) {
        Ok(Container::Batch(batch)) => Some(batch.root_whole),
        _ => None,
    }
}

/// Who can open a sealed message, sorted and each once: DER of the `IssuerAndSerialNumber` of each, and of a recipient
/// that is named by its key alone (foreign CMS) the key identifier under the tag `[0]`. None for a message that is
/// signed and no more. Nothing is verified.
///
/// # Errors
/// [`OpenError::NotSealed`], or what is wrong with it.
pub fn recipients(der: &[u8]) -> Result<Vec<Bytes>, OpenError> {
    let mut names = match cms::read(der)? {
        Container::Signed(_) | Container::Batch(_) => Vec::new(),
        Container::Enveloped(envelope) => envelope.recipients.iter().map(|one| name_bytes(&one.name)).collect(),
    };
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn name_bytes(name: &Name<'_>) -> Bytes {
    match name {
        Name::IssuerAndSerial(whole) => Bytes::copy_from_slice(whole),
        Name::Key(id) => element(cms::writer::context_primitive(0), &[id]).into(),
    }
}

/// A recipient as [`recipients`] names it, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyName {
    /// By its certificate: the issuer, and the serial number in hexadecimal.
    Certificate {
        /// Who issued the certificate.
        issuer: Dn,
        /// Its serial number, hexadecimal.
        serial: String,
    },
    /// By its key: the key identifier, hexadecimal.
    Key(String),
}

impl KeyName {
    /// Reads a name; none where it is none.
    pub fn read(name: &[u8]) -> Option<KeyName> {
        if let Some(id) = Reader::new(name).optional(cms::writer::context_primitive(0)) {
            return Some(KeyName::Key(base16ct::lower::encode_string(id)));
        }
        let mut fields = Reader::only(name, SEQUENCE, "").ok()?;
        let issuer = Dn::from_der(fields.whole(SEQUENCE, "").ok()?).ok()?;
        let serial = base16ct::lower::encode_string(fields.value(tlv::INTEGER, "").ok()?);
        Some(KeyName::Certificate { issuer, serial })
    }
}

/// `issuer="CN=…" serial=0a1b`, or `key-id=…`.
fn name_text(name: &Name<'_>) -> String {
    let whole = match name {
        Name::Key(id) => return format!("key-id={}", base16ct::lower::encode_string(id)),
        Name::IssuerAndSerial(whole) => whole,
    };
    let parts = || {
        let mut fields = Reader::only(whole, SEQUENCE, "").ok()?;
        let issuer = Dn::from_der(fields.whole(SEQUENCE, "").ok()?).ok()?;
        let serial = fields.value(tlv::INTEGER, "").ok()?;
        Some(format!("issuer=\"{issuer}\" serial={}", base16ct::lower::encode_string(serial)))
    };
    parts().unwrap_or_else(|| format!("issuer-and-serial={}", base16ct::lower::encode_string(whole)))
}

impl Sizes {
    fn new(
        total: usize,
        content: usize,
        certificates: usize,
        recipients: usize,
        attributes: usize,
        proof: usize,
    ) -> Sizes {
        let used = content + certificates + recipients + attributes + proof;
        Sizes { total, content, certificates, recipients, attributes, proof, structure: total.saturating_sub(used) }
    }
}

impl Inspection {
    /// The same as JSON, for scripts. Names are those of the fields.
    pub fn to_json(&self) -> Value {
        json!({
            "container": self.container,
            "quality": self.quality,
            "cipher": self.cipher,
            "batch": self.batch.as_ref().map(|batch| json!({
                "tree": batch.tree,
                "index": batch.index,
                "size": batch.size,
                "hash": batch.hash,
                "fits": batch.fits,
            })),
            "signers": self.signers.iter().map(|signer| json!({
                "dn": signer.dn,
                "name": signer.name,
                "algorithm": signer.algorithm,
                "signing_time": signer.signing_time,
                "key_id": signer.key_id,
            })).collect::<Vec<_>>(),
            "recipients": self.recipients.iter().map(|recipient| json!({
                "name": recipient.name,
                "algorithm": recipient.algorithm,
            })).collect::<Vec<_>>(),
            "certificates": self.certificates,
            "binding": self.binding.as_ref().map(|binding| json!({
                "destination": binding.destination,
                "message_id": binding.message_id,
                "properties": binding.properties,
                "application_properties": binding.application_properties,
                "annotations": binding.annotations,
                "sealed_by": binding.sealed_by,
            })),
            "on_behalf_of": self.on_behalf_of.as_ref().map(|said| json!({
                "resealed": utc(said.resealed_at),
                "verdict": said.verdict(),
                "signers": said.signers.iter().map(|signer| json!({
                    "dn": signer.dn.to_string(),
                    "certificate": base16ct::lower::encode_string(&signer.certificate),
                    "signing_time": signer.signing_time.map(utc),
                })).collect::<Vec<_>>(),
            })),
            "packing": self.packing,
            "content_type": self.content_type,
            "sizes": {
                "total": self.sizes.total,
                "content": self.sizes.content,
                "certificates": self.sizes.certificates,
                "recipients": self.sizes.recipients,
                "attributes": self.sizes.attributes,
                "proof": self.sizes.proof,
                "structure": self.sizes.structure,
            },
        })
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "container     {}", self.container)?;
        writeln!(out, "quality       {}", self.quality)?;
        if let Some(cipher) = self.cipher {
            writeln!(out, "cipher        {cipher}")?;
        }
        if let Some(batch) = &self.batch {
            writeln!(out, "batch         {} of {} messages under one signature", batch.index + 1, batch.size)?;
            writeln!(out, "  number      {}", batch.tree)?;
            writeln!(out, "  hash        {}", batch.hash)?;
            let word = if batch.fits { "leads there" } else { "does not lead there" };
            writeln!(out, "  path        {word}")?;
        }
        for signer in &self.signers {
            writeln!(out, "signer        {}", signer.dn.as_deref().unwrap_or("certificate not included"))?;
            writeln!(out, "  named       {}", signer.name)?;
            writeln!(out, "  algorithm   {}", signer.algorithm)?;
            if let Some(time) = &signer.signing_time {
                writeln!(out, "  signed      {time}")?;
            }
            if let Some(id) = &signer.key_id {
                writeln!(out, "  key         {id}")?;
            }
        }
        for recipient in &self.recipients {
            writeln!(out, "recipient     {}", recipient.name)?;
            writeln!(out, "  algorithm   {}", recipient.algorithm)?;
        }
        for certificate in &self.certificates {
            writeln!(out, "certificate   {certificate}")?;
        }
        match &self.binding {
            Some(binding) => {
                writeln!(out, "bound to      {}", binding.destination)?;
                writeln!(out, "  message id  {}", binding.message_id)?;
                writeln!(out, "  properties  {}", binding.properties)?;
                writeln!(out, "  application {}", binding.application_properties)?;
                if let Some(annotations) = &binding.annotations {
                    writeln!(out, "  annotations {annotations}")?;
                }
                if let Some(manager) = &binding.sealed_by {
                    writeln!(out, "  sealed by   {manager}")?;
                }
            }
            None if self.cipher.is_some() => writeln!(out, "bound to      what is said inside, if anything")?,
            None => writeln!(out, "bound to      nothing")?,
        }
        if let Some(said) = &self.on_behalf_of {
            writeln!(out, "sealed anew   {}, the seal before: {}", utc(said.resealed_at), said.verdict())?;
            for signer in &said.signers {
                writeln!(out, "on behalf of  {}", signer.dn)?;
                writeln!(out, "  certificate {}", base16ct::lower::encode_string(&signer.certificate))?;
                if let Some(time) = signer.signing_time {
                    writeln!(out, "  signed      {}", utc(time))?;
                }
            }
        }
        if let Some(packing) = &self.packing {
            writeln!(out, "packing       {packing}")?;
        }
        if let Some(content_type) = &self.content_type {
            writeln!(out, "content-type  {content_type}")?;
        }
        let sizes = &self.sizes;
        write!(
            out,
            "bytes         {} = content {} + certificates {} + recipients {} + attributes {} + proof {} + structure {}",
            sizes.total,
            sizes.content,
            sizes.certificates,
            sizes.recipients,
            sizes.attributes,
            sizes.proof,
            sizes.structure
        )
    }
}
