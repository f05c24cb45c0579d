//! What a data directory needs before a queue manager can start in it.

use super::{StartError, file};
use crate::catalog::names::{NAME_CHARS_MAX, is_name};
use crate::folders::{AUTHORITIES, RINGS, TLS};
use crate::random::Random;
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use bulla_seal::dn::Dn;
use std::ffi::CStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

/// The authority that signs the TLS listener's certificate where the operator brought none.
pub(crate) const LOCAL: &str = "local";
/// Most characters of the host's name in a queue manager's: MQ's limit, less a dot and eight digits.
const HOST_CHARS_MAX: usize = NAME_CHARS_MAX - 9;
/// Days for which that certificate is good.
pub(crate) const SERVER_DAYS: u32 = 825;
/// Days for which that authority is good.
pub(crate) const AUTHORITY_DAYS: u32 = 3650;

/// A name for a queue manager that was given none: this machine's, and eight random digits, because messages are sealed
/// for `QUEUE@NAME` and no two queue managers may open each other's by chance.
pub(crate) fn name_of_its_own(host: &CStr, random: &mut Random) -> String {
    let host = host.to_string_lossy().to_ascii_uppercase();
    let short = host.split('.').next().unwrap_or_default();
    let short: String =
        short.chars().filter(|char| is_name(char.encode_utf8(&mut [0; 4]))).take(HOST_CHARS_MAX).collect();
    let short = if short.is_empty() { "QM" } else { &short };
    format!("{short}.{}", random.name::<4>().to_ascii_uppercase())
}

/// Makes the data directory and its folders, closed to other users.
pub(crate) fn make_directories(data: &Path) -> Result<(), StartError> {
    for folder in [data.to_owned(), data.join(RINGS), data.join(TLS), data.join(AUTHORITIES)] {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| file(&folder, error))?;
        // Clear payloads and keys lie here: a directory that was there already is closed to others, too.
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(|error| file(&folder, error))?;
    }
    Ok(())
}

/// Makes a certificate for the TLS listener, signed by an authority of this data directory, where there is none yet.
pub(super) fn make_server_certificate(data: &Path) -> Result<(), StartError> {
    if data.join(TLS).join("server.pem").exists() {
        return Ok(());
    }
    let now = SystemTime::now();
    let folder = data.join(AUTHORITIES).join(LOCAL);
    let failed = |error: &dyn std::fmt::Display| file(&folder, io::Error::other(error.to_string()));
    let authority = if folder.exists() {
        Authority::open(&folder)
    } else {
        let dn: Dn = "CN=Local authority,O=Bulla".parse().map_err(|error| failed(&error))?;
        Authority::create(&folder, &dn, KeySpec::Ec(Curve::P256), AUTHORITY_DAYS, now)
    };
    install_server_certificate(data, &authority.map_err(|error| failed(&error))?, loopback_names(), SERVER_DAYS, now)
}

/// The names by which a machine reaches itself.
pub(crate) fn loopback_names() -> Vec<AlternativeName> {
    vec![
        AlternativeName::Dns("localhost".into()),
        AlternativeName::Ip([127, 0, 0, 1].into()),
        AlternativeName::Ip(std::net::Ipv6Addr::LOCALHOST.into()),
    ]
}

/// Has `authority` sign a certificate with these names and puts it where the TLS listener looks.
pub(crate) fn install_server_certificate(
    data: &Path,
    authority: &Authority,
    names: Vec<AlternativeName>,
    days: u32,
    now: SystemTime,
) -> Result<(), StartError> {
    let folder = data.join(TLS);
    let failed = |error: &dyn std::fmt::Display| file(&folder, io::Error::other(error.to_string()));
    let request = Request {
        dn: format!("CN={}", common_name(&names)).parse().map_err(|error| failed(&error))?,
        key: KeySpec::Ec(Curve::P256),
        uses: vec![KeyUse::Handshake],
        days,
        alternative_names: names,
        passphrase: None,
    };
    let (certificate, key) = authority.issue(&request, now).map_err(|error| failed(&error))?;
    let mut chain = certificate.to_pem();
    for above in authority.chain() {
        chain.extend_from_slice(&above.to_pem());
    }
    write_private(&folder.join("server.key"), key.as_bytes())?;
    write_private(&folder.join("ca.pem"), &authority.root().to_pem())?;
    // Last, because its presence says that all is there.
    write_private(&folder.join("server.pem"), &chain)
}

/// The first host, as far as a common name holds it (RFC 5280, appendix A.1) and needs no escapes.
fn common_name(names: &[AlternativeName]) -> &str {
    const CHARS_MAX: usize = 64;
    let plain =
        |host: &str| host.len() <= CHARS_MAX && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    let hosts = names.iter().filter_map(|name| match name {
        AlternativeName::Dns(host) => Some(host.as_str()),
        _ => None,
    });
    hosts.into_iter().find(|host| plain(host)).unwrap_or("localhost")
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let write = || -> io::Result<()> {
        let aside = path.with_extension("new");
        let _ = fs::remove_file(&aside);
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&aside, path)
    };
    write().map_err(|error| file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_its_own_is_a_name_whatever_the_host_is_called() {
        let mut random = Random::system();
        for (host, begins) in [
            (c"vm-12.example.org", "VM12."),
            (c"\xe4\xff", "QM."),
            (c"", "QM."),
            (c"a-very-long-name-of-a-host-that-goes-on-and-on-and-on-and-on", "AVERYLONGNAME"),
        ] {
            let name = name_of_its_own(host, &mut random);
            assert!(is_name(&name) && name.starts_with(begins), "{name}");
            assert_ne!(name, name_of_its_own(host, &mut random));
        }
    }
}
