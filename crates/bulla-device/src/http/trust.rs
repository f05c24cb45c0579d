//! Whose certificates a client of HTTPS believes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslConnectorBuilder, SslMethod, SslSessionCacheMode, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;

/// The longest file with certificates that is read.
pub const CERTIFICATES_BYTES_MAX: u64 = 1 << 20;

/// How a server is connected to whose certificate one of a file's authorities (PEM) has issued; the system's are not
/// asked. The error is one line, without the file's name.
///
/// # Errors
/// The file can't be read or has no certificate.
pub fn believing(authorities: &Path) -> Result<SslConnectorBuilder, String> {
    let mut pem = Vec::new();
    let read = File::open(authorities).and_then(|file| file.take(CERTIFICATES_BYTES_MAX).read_to_end(&mut pem));
    read.map_err(|error: io::Error| error.to_string())?;
    let authorities = X509::stack_from_pem(&pem).unwrap_or_default();
    if authorities.is_empty() {
        return Err("it has no certificate in PEM".to_owned());
    }
    let library = |errors: ErrorStack| format!("no TLS: {errors}");
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(library)?;
    let mut store = X509StoreBuilder::new().map_err(library)?;
    for authority in authorities {
        store.add_cert(authority).map_err(library)?;
    }
    builder.set_cert_store(store.build());
    builder.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(library)?;
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    Ok(builder)
}
