//! The little of HTTP that a question to an authority takes: one request on a connection of its own, and its answer.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most bytes of an answer's body.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Most header lines.
const HEADERS_MAX: usize = 64;
/// Longest wait between two looks at a reason to give up.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PORT: u16 = 80;

/// An address, as `http://ca.example:8080/pkix/`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Url {
    host: String,
    port: u16,
    path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let bad = || format!("{text:?} is no address as http://ca.example:8080/pkix/");
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        let is_plain = rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"@#\\".contains(&byte));
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        // An address of IPv6 stands in brackets, and has colons of its own.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (authority, PORT),
        };
        if !is_plain || host.is_empty() || port == 0 {
            return Err(bad());
        }
        Ok(Url { host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

/// A request with a body.
pub struct Post<'a> {
    /// Where it goes.
    pub url: &'a Url,
    /// What the body is, and what the answer's must be.
    pub media_type: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// When the answer must be there.
    pub ends: Instant,
}

impl Post<'_> {
    /// Sends it, and returns the body of the answer. HTTP/1.0, as OpenSSL's client: no answer comes in chunks.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub fn send(&self, is_stopping: &dyn Fn() -> bool) -> Result<Vec<u8>, String> {
        let mut stream = self.connect().map_err(|error| error.to_string())?;
        let Url { host, port, path } = self.url;
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: {host}:{port}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
            self.media_type,
            self.body.len()
        );
        let message = [head.as_bytes(), self.body].concat();
        self.write(&mut stream, &message, is_stopping).map_err(|error| error.to_string())?;
        self.answer(&mut stream, is_stopping)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let host = self.url.host.trim_start_matches('[').trim_end_matches(']');
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (host, self.url.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.left()?) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(LOOK_EVERY))?;
                    stream.set_write_timeout(Some(LOOK_EVERY))?;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn write(&self, stream: &mut TcpStream, mut bytes: &[u8], is_stopping: &dyn Fn() -> bool) -> io::Result<()> {
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) => self.go_on(error, is_stopping)?,
            }
        }
        Ok(())
    }

    fn answer(&self, stream: &mut TcpStream, is_stopping: &dyn Fn() -> bool) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut piece = [0; 8192];
        loop {
            if let Some(answer) = whole(&bytes, self.media_type, false)? {
                return Ok(answer);
            }
            match stream.read(&mut piece) {
                Ok(0) => {
                    let answer = whole(&bytes, self.media_type, true)?;
                    return answer.ok_or_else(|| "the connection ended within the answer".to_owned());
                }
                Ok(length) => bytes.extend_from_slice(&piece[..length]),
                Err(error) => self.go_on(error, is_stopping).map_err(|error| error.to_string())?,
            }
        }
    }

    /// After an error that only ends a wait.
    fn go_on(&self, error: io::Error, is_stopping: &dyn Fn() -> bool) -> io::Result<()> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted if !is_stopping() => {
                self.left().map(drop)
            }
            _ => Err(error),
        }
    }
}

/// The body of an answer that is all there; none while more has to come. Anything may stand in it.
///
/// # Errors
/// It is no good answer, whatever more came.
pub fn whole(bytes: &[u8], media_type: &str, has_ended: bool) -> Result<Option<Vec<u8>>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(format!("the answer's head has more than {HEAD_BYTES_MAX} bytes")),
        Err(error) => return Err(format!("no answer of HTTP: {error}")),
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| String::from_utf8_lossy(header.value).trim().to_owned())
    };
    let code = response.code.unwrap_or_default();
    if code != 200 {
        return Err(format!("HTTP status {code}"));
    }
    let is = header("content-type").unwrap_or_default();
    if !is.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(media_type) {
        let is: String = is.chars().filter(|char| !char.is_control()).take(80).collect();
        return Err(format!("the answer is {is:?}, and not {media_type}"));
    }
    if header("transfer-encoding").is_some() {
        return Err("the answer comes in chunks, which HTTP/1.0 has not".to_owned());
    }
    let body = bytes.get(head..).unwrap_or_default();
    let length = match header("content-length") {
        Some(text) => Some(text.parse::<usize>().map_err(|_| "the answer has no good length".to_owned())?),
        None => None,
    };
    if body.len() > BODY_BYTES_MAX || length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(format!("the answer has more than {BODY_BYTES_MAX} bytes"));
    }
    match length {
        Some(length) => Ok(body.get(..length).map(<[u8]>::to_vec)),
        None if has_ended => Ok(Some(body.to_vec())),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_http_or_none() {
        let url = |text: &str| text.parse::<Url>().map(|url| url.to_string());
        assert_eq!(url("http://ca.example").unwrap(), "http://ca.example:80/");
        assert_eq!(url("http://ca.example:8080/pkix/a?b").unwrap(), "http://ca.example:8080/pkix/a?b");
        assert_eq!(url("http://[::1]:829/").unwrap(), "http://[::1]:829/");
        assert_eq!(url("http://[::1]/x").unwrap(), "http://[::1]:80/x");
        for bad in ["https://ca.example", "ca.example", "http://", "http://:80/", "http://a:b/", "http://a:0/"] {
            assert!(url(bad).is_err(), "{bad}");
        }
        for bad in ["http://a/b c", "http://a/\r\nX: y", "http://u@a/", "http://a:99999/"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_is_taken_whole_or_refused() {
        let of = |text: &str, has_ended| whole(text.as_bytes(), "a/b", has_ended);
        let head = "HTTP/1.0 200 OK\r\nContent-Type: A/B; x=y\r\n";
        assert_eq!(of(&format!("{head}Content-Length: 2\r\n\r\nabc"), false), Ok(Some(b"ab".to_vec())));
        assert_eq!(of(&format!("{head}Content-Length: 4\r\n\r\nabc"), true), Ok(None), "the end came too early");
        assert_eq!(of(&format!("{head}\r\nabc"), false), Ok(None));
        assert_eq!(of(&format!("{head}\r\nabc"), true), Ok(Some(b"abc".to_vec())));
        assert_eq!(of("HTTP/1.0 200 O", false), Ok(None));
        let refused = |text: String, says: &str| {
            let why = of(&text, true).unwrap_err();
            assert!(why.contains(says), "{why}");
        };
        refused("HTTP/1.1 404 Not Found\r\n\r\n".into(), "HTTP status 404");
        refused("<html>".into(), "no answer of HTTP");
        refused(format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "in chunks");
        refused(format!("{head}Content-Length: -1\r\n\r\n"), "no good length");
        refused(format!("{head}Content-Length: 999999999\r\n\r\n"), "more than");
        refused("HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n".into(), "and not a/b");
        refused(format!("HTTP/1.0 200 OK\r\nX: {}", "y".repeat(HEAD_BYTES_MAX)), "head has more than");
    }
}
