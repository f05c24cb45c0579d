//! Certificates that prove to an authority that a name is this queue manager's (`tls-alpn-01`, RFC 8737): shown to
//! whoever asks for the protocol `acme-tls/1`, and for nothing else. Such a connection ends with its handshake.

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Folder of these certificates, below that of enrolment.
pub const FOLDER: &str = "proofs";
/// The protocol that an authority asks for.
pub const PROTOCOL: &[u8] = b"acme-tls/1";
/// The same as a list of protocols (RFC 7301, section 3.1).
pub const PROTOCOLS: &[u8] = b"\x0aacme-tls/1";
/// The longest host name (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;
/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The certificate and key that are shown for a name; none where nothing is to be proved of it.
pub(super) fn shown(folder: &Path, server_name: &str) -> Option<(X509, PKey<Private>)> {
    let mut text = Zeroizing::new(Vec::new());
    File::open(file(folder, server_name)?).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some((X509::from_pem(&text).ok()?, PKey::private_key_from_pem_passphrase(&text, b"").ok()?))
}

/// The file of a name. That comes from whoever connects: it must be one that leads nowhere else.
pub fn file(folder: &Path, server_name: &str) -> Option<PathBuf> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_host = server_name.len() <= HOST_BYTES_MAX && server_name.split('.').all(is_part);
    is_host.then(|| folder.join(format!("{}.pem", server_name.to_ascii_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_a_file_of_the_folder_or_to_none() {
        let folder = Path::new("/proofs");
        assert_eq!(file(folder, "MQ.example"), Some("/proofs/mq.example.pem".into()));
        for name in ["", ".", "..", "a..b", "../tls/server", "/etc/passwd", "a/b", "a\0", "a b", &"a".repeat(254)] {
            assert_eq!(file(folder, name), None, "{name:?}");
        }
    }
}
