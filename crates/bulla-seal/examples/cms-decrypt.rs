//! `openssl cms -decrypt` of the OpenSSL that is linked here, for tests on machines whose `openssl` program is older
//! than 3.0.22 and reads authenticated attributes under a wrong tag. It has nothing of what this crate does.
//!
//! `cms-decrypt CERTIFICATE KEY` reads a DER message from standard input and writes its content to standard output.

use openssl::cms::CmsContentInfo;
use openssl::pkey::PKey;
use openssl::x509::X509;
use std::error::Error;
use std::io::{Read, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut file =
        || std::fs::read(arguments.next().ok_or("usage: cms-decrypt CERTIFICATE KEY")?).map_err(Box::<dyn Error>::from);
    let (certificate, key) = (X509::from_pem(&file()?)?, PKey::private_key_from_pem(&file()?)?);
    let mut der = Vec::new();
    std::io::stdin().read_to_end(&mut der)?;
    let content = CmsContentInfo::from_der(&der)?.decrypt(&key, &certificate)?;
    Ok(std::io::stdout().write_all(&content)?)
}
