//! What goes into a sealed message and what comes out of one.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::dn::Dn;
use crate::on_behalf::OnBehalfOf;
use crate::policy::Quality;

/// Bytes of a destination `QUEUE@QMGR` that is bound to a message.
pub const DESTINATION_BYTES_MAX: usize = 97;
/// Bytes of an encoded message id that is bound to a message.
pub const MESSAGE_ID_BYTES_MAX: usize = 1 << 10;
/// Bytes of the original content-type.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// Bytes of the name of a queue manager that sealed for an application.
pub const SEALED_BY_BYTES_MAX: usize = 48;

/// How the body of the original message became the payload of the seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packing {
    /// The raw bytes of the one data section.
    Data,
    /// The body sections as they were encoded.
    Sections,
}

impl fmt::Display for Packing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Packing::Data => "data",
            Packing::Sections => "sections",
        })
    }
}

/// The payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// How the body was packed.
    pub packing: Packing,
    /// The content-type that the message had before it was sealed.
    pub content_type: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// What a message is bound to when it is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Where it goes, after aliases and remote queues were resolved: `QUEUE@QMGR`.
    pub destination: String,
    /// The message id, as the encoded AMQP value.
    pub message_id: Bytes,
    /// The properties section as it arrived; empty where there is none.
    pub properties: Bytes,
    /// The application-properties section as it arrived; empty where there is none.
    pub application_properties: Bytes,
    /// The message annotations that say how a body is read, encoded one after the other; empty where there are none.
    pub annotations: Bytes,
}

/// What a message should be bound to when it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expect {
    /// Destinations that are right here: the local queue's own name first. The policy's BINDNAME
    /// list is accepted besides and need not be repeated.
    pub destinations: Vec<String>,
    /// The message id, as the encoded AMQP value.
    pub message_id: Bytes,
    /// The properties section as it arrived; empty where there is none.
    pub properties: Bytes,
    /// The application-properties section as it arrived; empty where there is none.
    pub application_properties: Bytes,
    /// The message annotations that say how a body is read, encoded one after the other; empty where there are none.
    pub annotations: Bytes,
}

/// A sealed message: the one data section of the new body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// DER of a CMS `ContentInfo`.
    pub der: Bytes,
    /// The `smime-type` parameter of its content-type: `signed-data`, `authEnveloped-data` or `enveloped-data` (RFC
    /// 8551, 3.2.2), or `x-bulla-batch-signed`, where it shares its signature with others.
    pub smime_type: &'static str,
    /// Who can open it, as [`recipients`](crate::recipients) names them, sorted; `None` where it is signed and no more.
    /// Messages under one content key share them.
    pub recipients: Option<Arc<[Bytes]>>,
}

impl Sealed {
    /// The content-type of the sealed message on the wire.
    pub fn content_type(&self) -> String {
        format!("application/pkcs7-mime; smime-type={}", self.smime_type)
    }
}

/// An opened message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The original payload.
    pub content: Content,
    /// What the seal said.
    pub seal: SealInfo,
}

/// What an opened seal said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealInfo {
    /// How the message was protected; [`Quality::None`] for a clear message that was tolerated.
    pub quality: Quality,
    /// Who signed it.
    pub signer: Option<Dn>,
    /// SHA-256 of the signer's certificate.
    pub signer_certificate: Option<[u8; 32]>,
    /// When the signer says that it signed. The signer's clock is not verified.
    pub signing_time: Option<SystemTime>,
    /// The recipients: DER of each `IssuerAndSerialNumber`, in the message's order. A recipient that
    /// is named by its key only (foreign CMS) is left out.
    pub recipients: Vec<Bytes>,
    /// The queue manager that sealed for the application, if one did.
    pub sealed_by: Option<String>,
    /// On whose behalf it was sealed anew, by the word of its signer; without one it is nobody's word.
    pub on_behalf_of: Option<Box<OnBehalfOf>>,
    /// Whether it carried our binding attributes, which then fit.
    pub bound: bool,
    /// Whether a signature or a tag shows that this is what was sealed. Under WEAK(YES) there is neither, and a wrong
    /// content key opens one message of 256.
    pub proved: bool,
    /// What it is bound to by its own word; only [`Opener::open_anywhere`](crate::Opener::open_anywhere) tells.
    pub binding: Option<Box<SealedBinding>>,
}

/// What a seal is bound to, by its own word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBinding {
    /// `QUEUE@QMGR`.
    pub destination: String,
    /// The message id, as the encoded AMQP value.
    pub message_id: Bytes,
    /// SHA-256 of what is digested of the properties section.
    pub properties: [u8; 32],
    /// SHA-256 of the application-properties section.
    pub application_properties: [u8; 32],
    /// SHA-256 of the message annotations that are bound; the first version of the binding has none.
    pub annotations: Option<[u8; 32]>,
}

/// Something that was opened and found good. Only the opener makes one, so that code that asks for a
/// `Verified` message cannot be handed any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    pub(crate) fn new(value: T) -> Verified<T> {
        Verified(value)
    }

    /// A look at it.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// Takes it out, to hand it to its reader.
    pub fn into_inner(self) -> T {
        self.0
    }
}
