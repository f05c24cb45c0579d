//! The arguments of `bulla cert`.

use super::verify;
use crate::cli::DATA_DEFAULT;
use crate::cli::token::{SignerDeviceArgs, TokenArgs};
use bulla_seal::certificate::authority::CRL_DAYS;
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{KeySpec, KeyUse};
use bulla_seal::dn::Dn;
use bulla_seal::policy::Revocation;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Manage authorities, certificates and key rings
#[derive(Args, Debug)]
pub struct CertArgs {
    /// What to do
    #[command(subcommand)]
    pub command: CertCommand,
    /// Data directory of the queue manager; rings and authorities are below it
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT, global = true)]
    pub data: PathBuf,
}

/// The commands of `bulla cert`.
#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// Make a key with a certificate in a ring, an authority, or a request for another authority's signature
    Create(Box<CreateArgs>),
    /// Sign a certificate request (PKCS#10)
    Sign(SignArgs),
    /// List certificates: label, key, validity, private key or not, status, rings
    List(ListArgs),
    /// Show one certificate, of a ring or in a file
    Show(ShowArgs),
    /// Put a certificate or a revocation list into a ring (PEM, DER or PKCS#12)
    Import(ImportArgs),
    /// Take a certificate out of a ring (PEM, DER or PKCS#12)
    Export(ExportArgs),
    /// Say whether a certificate is believed, over which path, and what it is good for
    Verify(Box<verify::VerifyArgs>),
    /// Show or change a setting of a ring
    Set(SetArgs),
    /// Get a certificate of TLS a new key and certificate now, from where enrolment.toml says
    Renew(RenewArgs),
    /// Take certificates back: write the authority's revocation list, and put it into the rings that trust it
    Revoke(RevokeArgs),
}

/// What a new certificate shall say.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// What the key may do: handshake, docsign, certsign, dataencrypt (RSA, ML-KEM), keyagree (EC); without it, sign
    /// and encrypt
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub(super) usage: Vec<KeyUse>,
    /// Days of validity; without it 365, and 3650 for an authority
    #[arg(long, value_name = "N")]
    pub(super) days: Option<u32>,
    /// An alternative name: dns:HOST, ip:ADDRESS, email:MAILBOX or uri:URI
    #[arg(long, value_name = "NAME")]
    pub(super) san: Vec<AlternativeName>,
}

/// The authority that signs.
#[derive(Args, Debug)]
pub struct SignerArgs {
    /// The authority that signs
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) signer: Option<String>,
    /// The authority's passphrase, first line of a file
    #[arg(long, value_name = "FILE")]
    pub(super) signer_passphrase_file: Option<PathBuf>,
    /// The authority's passphrase, in an environment variable
    #[arg(long, value_name = "VARIABLE", conflicts_with = "signer_passphrase_file")]
    pub(super) signer_passphrase_env: Option<String>,
    #[command(flatten)]
    pub(super) device: SignerDeviceArgs,
}

/// The passphrase of private keys in the ring.
#[derive(Args, Debug)]
pub struct PassphraseArgs {
    /// Passphrase of the private key, first line of a file
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
    /// Passphrase of the private key, in an environment variable
    #[arg(long, value_name = "VARIABLE", conflicts_with = "passphrase_file")]
    pub(super) passphrase_env: Option<String>,
}

/// Arguments of `create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Found an authority of this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ring", "request"])]
    pub(super) ca: Option<String>,
    /// Put key and certificate into the ring of this user, or in this directory
    #[arg(long, value_name = "USER|DIR", conflicts_with = "request")]
    pub(super) ring: Option<String>,
    /// Write a certificate request to this file instead
    #[arg(long, value_name = "FILE", requires = "key_out")]
    pub(super) request: Option<PathBuf>,
    /// Where the key of the request goes, or the URI of one on a token
    #[arg(long, value_name = "FILE", requires = "request")]
    pub(super) key_out: Option<PathBuf>,
    /// The subject, as CN=orders,O=Demo
    #[arg(long)]
    pub(super) dn: Dn,
    /// The key: rsa1024, rsa2048, rsa3072, rsa4096, p192, p224, p256, p384, p521; ml-dsa-44, ml-dsa-65, ml-dsa-87 to
    /// sign, ml-kem-512, ml-kem-768, ml-kem-1024 to encrypt
    #[arg(long, value_name = "KEY", default_value = "rsa2048")]
    pub(super) key: KeySpec,
    /// Name of the file in the ring; without it, made of common name and serial number
    #[arg(long)]
    pub(super) label: Option<String>,
    /// Put the certificate into this ring too, as a person's
    #[arg(long, value_name = "USER|DIR")]
    pub(super) share: Vec<String>,
    #[command(flatten)]
    pub(super) profile: ProfileArgs,
    #[command(flatten)]
    pub(super) token: TokenArgs,
    #[command(flatten)]
    pub(super) signer: SignerArgs,
    #[command(flatten)]
    pub(super) passphrase: PassphraseArgs,
}

/// Arguments of `sign`.
#[derive(Args, Debug)]
pub struct SignArgs {
    /// The request, PEM or DER
    pub(super) request: PathBuf,
    /// Where certificate and chain go, in PEM; without it, standard output
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Leave out the alternative names that the request asks for; --san gives others in their place
    #[arg(long, conflicts_with = "san")]
    pub(super) no_san: bool,
    /// Say what the request asks for, and sign nothing
    #[arg(long, conflicts_with = "out")]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) profile: ProfileArgs,
    #[command(flatten)]
    pub(super) signer: SignerArgs,
}

/// Arguments of `set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// The ring
    #[arg(long, value_name = "USER|DIR")]
    pub(super) ring: String,
    /// What the ring asks of revocation lists: none, ifpresent or required; a policy may ask for more
    #[arg(long, value_name = "DEMAND")]
    pub(super) revocation: Option<Revocation>,
}

/// Arguments of `list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only this ring
    #[arg(long, value_name = "USER|DIR", conflicts_with = "signer")]
    pub(super) ring: Option<String>,
    /// What this authority issued, instead
    #[arg(long, value_name = "NAME")]
    pub(super) signer: Option<String>,
    /// Answer in JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// A label in the ring, or a file
    pub(super) what: String,
    /// The ring; without it, a file is shown
    #[arg(long, value_name = "USER|DIR")]
    pub(super) ring: Option<String>,
    /// All that OpenSSL reads in it
    #[arg(long)]
    pub(super) text: bool,
    #[command(flatten)]
    pub(super) passphrase: PassphraseArgs,
}

/// A place in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// The ring's own key
    Own,
    /// A certificate to encrypt for
    Person,
    /// An authority to believe
    Trust,
    /// A revocation list
    Crl,
}

/// Arguments of `import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// What to import
    pub(super) file: PathBuf,
    /// The ring it goes into
    #[arg(long, value_name = "USER|DIR")]
    pub(super) ring: String,
    /// As what; a certificate goes to person without it. A file with a private key asks for `own`, or for `person`,
    /// which leaves the key out
    #[arg(long = "as", value_enum, value_name = "PLACE")]
    pub(super) place: Option<Place>,
    /// Name of the file in the ring
    #[arg(long)]
    pub(super) label: Option<String>,
    /// The private key, where it is in a file of its own (PEM, or the PKCS#11 URI of a key on a token)
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Passphrase of what is imported, first line of a file
    #[arg(long, value_name = "FILE")]
    pub(super) from_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) passphrase: PassphraseArgs,
}

/// A format of a certificate outside a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Certificate and chain as text
    Pem,
    /// The certificate alone, binary
    Der,
    /// PKCS#12: certificate, chain and, with --private, the key
    P12,
}

/// Arguments of `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// A label in the ring
    pub(super) label: String,
    /// The ring
    #[arg(long, value_name = "USER|DIR")]
    pub(super) ring: String,
    /// The format
    #[arg(long, value_enum, default_value = "pem")]
    pub(super) format: Format,
    /// The private key too
    #[arg(long)]
    pub(super) private: bool,
    /// Where it goes; without it, standard output
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Passphrase of what is exported, first line of a file
    #[arg(long, value_name = "FILE")]
    pub(super) to_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) passphrase: PassphraseArgs,
}

/// Arguments of `renew`.
#[derive(Args, Debug)]
pub struct RenewArgs {
    /// Its label: the name of its files under tls/
    #[arg(default_value = "server")]
    pub(super) label: String,
}

/// Arguments of `revoke`.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// Serial numbers in hexadecimal; without any, only a new list is written
    pub(super) serial: Vec<String>,
    /// Days until the list must have been replaced
    #[arg(long, value_name = "N", default_value_t = CRL_DAYS)]
    pub(super) crl_days: u32,
    #[command(flatten)]
    pub(super) signer: SignerArgs,
}
