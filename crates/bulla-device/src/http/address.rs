//! Where a server is.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The longest name of a host (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 253;
/// The longest URL that is read, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As a URL begins with it.
    pub fn start(self) -> &'static str {
        match self {
            Scheme::Http => "http://",
            Scheme::Https => "https://",
        }
    }

    /// The port where none is named (RFC 9110, 4.2.1 and 4.2.2).
    pub fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    /// What stands behind the scheme, where a text begins with this one; upper and lower case are the same (RFC 3986,
    /// 3.1).
    pub fn rest(self, text: &str) -> Option<&str> {
        let start = self.start();
        let begins = text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
        text.get(start.len()..).filter(|_| begins)
    }
}

/// A server: how it is spoken to, its host and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// In clear or over TLS.
    pub scheme: Scheme,
    /// A name in lower case, or an IP address without brackets.
    pub host: String,
    /// The port, that of the scheme where none is given.
    pub port: u16,
}

impl Address {
    /// As it stands in a request: an IPv6 address in brackets, the port where it is not that of the scheme.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.scheme.start(), self.authority())
    }
}

/// Reads `HOST` or `HOST:PORT`. The error is one lower-case line, without the text.
///
/// # Errors
/// No name and no address, or no port from 1 to 65535.
pub fn host_and_port(scheme: Scheme, text: &str) -> Result<Address, &'static str> {
    const BAD_HOST: &str = "it has no host that can be read";
    const BAD_PORT: &str = "its port is no number from 1 to 65535";
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(BAD_HOST)?;
            host.parse::<Ipv6Addr>().map_err(|_| BAD_HOST)?;
            (host, port.strip_prefix(':').map(Some).or(port.is_empty().then_some(None)).ok_or(BAD_PORT)?)
        }
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(known) {
                return Err(BAD_HOST);
            }
            (host, port)
        }
    };
    let port = match port {
        None => scheme.port(),
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).ok_or(BAD_PORT)?
        }
        Some(_) => return Err(BAD_PORT),
    };
    Ok(Address { scheme, host: host.to_ascii_lowercase(), port })
}

/// A place at a server, as `https://ca.example:14000/directory`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// The server.
    pub address: Address,
    /// Path and query, from the first `/` on.
    pub path: String,
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.address, self.path)
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Url, BadUrl> {
        let bad = |why| BadUrl { why };
        if text.len() > URL_BYTES_MAX {
            return Err(bad("it is too long"));
        }
        let found = [Scheme::Http, Scheme::Https].into_iter().find_map(|scheme| Some((scheme, scheme.rest(text)?)));
        let (scheme, rest) = found.ok_or(bad("it begins with neither http:// nor https://"))?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err(bad("it has letters that no URL has"));
        }
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.contains('@') {
            return Err(bad("it has a user in it"));
        }
        if path.contains('#') {
            return Err(bad("it names a part of a page"));
        }
        let address = host_and_port(scheme, authority).map_err(bad)?;
        Ok(Url { address, path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") } })
    }
}

/// Why a text is no URL of a server. Never shows the text, which may have a password in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadUrl {
    /// What is wrong.
    pub why: &'static str,
}

impl std::error::Error for BadUrl {}

impl fmt::Display for BadUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no URL as https://ca.example/directory: {}", self.why)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_has_a_server_and_a_path() {
        let shown = |text: &str| text.parse::<Url>().expect(text).to_string();
        assert_eq!(shown("http://ca.example"), "http://ca.example/");
        assert_eq!(shown("HTTP://CA.example:80/pkix/a?b"), "http://ca.example/pkix/a?b");
        assert_eq!(shown("https://ca.example:14000?b"), "https://ca.example:14000/?b");
        assert_eq!(shown("https://[::1]:829/"), "https://[::1]:829/");
        assert_eq!(shown("http://[::1]/x"), "http://[::1]/x");
        for (text, why) in [
            ("ca.example", "neither http:// nor https://"),
            ("ftp://ca.example/", "neither http:// nor https://"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://a:b/", "its port is no number"),
            ("http://a:0/", "its port is no number"),
            ("http://a:/", "its port is no number"),
            ("http://a:99999/", "its port is no number"),
            ("http://[::1]1/", "its port is no number"),
            ("http://a/b c", "letters that no URL has"),
            ("http://a/\r\nX: y", "letters that no URL has"),
            ("https://user:s3cr3t@a/", "a user in it"),
            ("https://a/b#c", "a part of a page"),
        ] {
            let error = text.parse::<Url>().expect_err(text);
            assert!(error.to_string().contains(why) && !error.to_string().contains("s3cr3t"), "{text}: {error}");
        }
        assert!(format!("http://a/{}", "a".repeat(URL_BYTES_MAX)).parse::<Url>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(https?://)?[ -~é]{0,80}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>().expect("what was shown"), url);
            }
        }
    }
}
