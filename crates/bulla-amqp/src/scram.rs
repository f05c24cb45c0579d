//! SCRAM-SHA-256 (RFC 5802, RFC 7677), both sides, without channel binding. The arithmetic comes from
//! the host, so that one crypto library serves all.

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use std::fmt;

/// Fewest iterations that a client lets a server ask for (RFC 7677, section 4).
pub const ITERATIONS_MIN: u32 = 4_096;
/// Most iterations that a client lets a server ask for: a hostile one must not keep it busy.
pub const ITERATIONS_MAX: u32 = 10_000_000;
/// Longest SCRAM message taken, in bytes.
const MESSAGE_BYTES_MAX: usize = 4_096;

/// The primitives that SCRAM stands on.
pub trait ScramCrypto: Send {
    /// HMAC-SHA-256 (RFC 2104).
    fn hmac(&self, key: &[u8], data: &[u8]) -> [u8; 32];
    /// SHA-256.
    fn sha256(&self, data: &[u8]) -> [u8; 32];
    /// PBKDF2 with HMAC-SHA-256 (RFC 8018), 32 bytes.
    fn pbkdf2(&self, password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32];
    /// A fresh random string of printable ASCII without commas; at least 18 random bytes.
    fn nonce(&self) -> String;
}

/// What a server keeps of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// Random bytes of this user.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// SHA-256 of the client key.
    pub stored_key: [u8; 32],
    /// Key by which the server proves itself.
    pub server_key: [u8; 32],
}

impl ScramVerifier {
    /// Derives the verifier of a password. Costs `iterations` rounds of PBKDF2.
    pub fn derive(password: &str, salt: Vec<u8>, iterations: u32, crypto: &dyn ScramCrypto) -> Self {
        let salted = crypto.pbkdf2(password.as_bytes(), &salt, iterations);
        let stored_key = crypto.sha256(&crypto.hmac(&salted, b"Client Key"));
        let server_key = crypto.hmac(&salted, b"Server Key");
        Self { salt, iterations, stored_key, server_key }
    }

    /// Whether `password` is the one: for PLAIN. Costs `iterations` rounds of PBKDF2.
    pub fn verify_password(&self, password: &str, crypto: &dyn ScramCrypto) -> bool {
        let other = Self::derive(password, self.salt.clone(), self.iterations, crypto);
        same(&other.stored_key, &self.stored_key)
    }
}

/// Keys stay out of logs.
impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScramError {
    /// The peer's turn: the message is not of RFC 5802's form, or asks for what is not supported.
    Malformed,
    /// The user's turn: unknown user or wrong password, which look the same.
    NotAuthentic,
}

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed SCRAM message",
            Self::NotAuthentic => "user or password is wrong",
        })
    }
}

impl std::error::Error for ScramError {}

/// The server's side of one exchange.
///
/// [`ScramServer::start`] names the user; the caller looks up the verifier, or makes up one with a salt that
/// is always the same for that name (and random keys) when there is no such user, so that both look alike.
pub struct ScramServer {
    user: String,
    /// The client's choice about channel binding, as it must come again.
    gs2_header: String,
    client_first_bare: String,
    challenge: Option<Challenge>,
}

struct Challenge {
    verifier: ScramVerifier,
    nonce: String,
    server_first: String,
}

impl ScramServer {
    /// Reads the client's first message.
    pub fn start(client_first: &[u8]) -> Result<Self, ScramError> {
        let message = text(client_first)?;
        let (binding, rest) = message.split_once(',').ok_or(ScramError::Malformed)?;
        let (authorization, bare) = rest.split_once(',').ok_or(ScramError::Malformed)?;
        // `p=` asks for channel binding, which is offered by -PLUS mechanisms only.
        if binding != "n" && binding != "y" || !(authorization.is_empty() || authorization.starts_with("a=")) {
            return Err(ScramError::Malformed);
        }
        let mut attributes = bare.split(',');
        let user = attribute(attributes.next(), "n=").and_then(unescape).ok_or(ScramError::Malformed)?;
        let nonce = attribute(attributes.next(), "r=").ok_or(ScramError::Malformed)?;
        if user.is_empty() || nonce.is_empty() {
            return Err(ScramError::Malformed);
        }
        let gs2_header = format!("{binding},{authorization},");
        Ok(Self { user, gs2_header, client_first_bare: bare.to_owned(), challenge: None })
    }

    /// The user that the client says it is.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The server's first message, to be sent as a challenge.
    pub fn challenge(&mut self, verifier: ScramVerifier, crypto: &dyn ScramCrypto) -> Bytes {
        let client_nonce =
            self.client_first_bare.split(',').find_map(|part| part.strip_prefix("r=")).unwrap_or_default();
        let nonce = format!("{client_nonce}{}", crypto.nonce());
        let salt = Base64::encode_string(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let message = Bytes::from(server_first.clone().into_bytes());
        self.challenge = Some(Challenge { verifier, nonce, server_first });
        message
    }

    /// Checks the client's final message. Returns the server's final message, which proves the server;
    /// send it as a challenge, and the outcome after the client's empty response.
    pub fn finish(&self, client_final: &[u8], crypto: &dyn ScramCrypto) -> Result<Bytes, ScramError> {
        let Challenge { verifier, nonce, server_first } = self.challenge.as_ref().ok_or(ScramError::Malformed)?;
        let message = text(client_final)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut attributes = without_proof.split(',');
        let binding = attribute(attributes.next(), "c=").and_then(base64).ok_or(ScramError::Malformed)?;
        let echoed = attribute(attributes.next(), "r=").ok_or(ScramError::Malformed)?;
        let proof = base64(proof).ok_or(ScramError::Malformed)?;
        let proof: [u8; 32] = proof.try_into().map_err(|_| ScramError::Malformed)?;
        if binding != self.gs2_header.as_bytes() || echoed != nonce {
            return Err(ScramError::Malformed);
        }
        let auth = format!("{},{server_first},{without_proof}", self.client_first_bare);
        let signature = crypto.hmac(&verifier.stored_key, auth.as_bytes());
        let client_key = xor(proof, signature);
        if !same(&crypto.sha256(&client_key), &verifier.stored_key) {
            return Err(ScramError::NotAuthentic);
        }
        let server_signature = crypto.hmac(&verifier.server_key, auth.as_bytes());
        Ok(Bytes::from(format!("v={}", Base64::encode_string(&server_signature))))
    }
}

/// The client's side of one exchange.
pub struct ScramClient {
    password: String,
    nonce: String,
    first_bare: String,
    /// Once the proof is sent: what the server must answer.
    server_signature: Option<[u8; 32]>,
    verified: bool,
}

impl ScramClient {
    /// Begins an exchange with a fresh nonce.
    pub fn new(user: &str, password: &str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            first_bare: format!("n={user},r={nonce}"),
            server_signature: None,
            verified: false,
        }
    }

    /// The client's first message.
    pub fn first(&self) -> Bytes {
        Bytes::from(format!("n,,{}", self.first_bare))
    }

    /// The answer to a challenge: first the proof, then, once the server has proved itself, nothing.
    pub fn respond(&mut self, challenge: &[u8], crypto: &dyn ScramCrypto) -> Result<Bytes, ScramError> {
        if self.server_signature.is_some() {
            self.verify(challenge)?;
            return Ok(Bytes::new());
        }
        let server_first = text(challenge)?;
        let mut attributes = server_first.split(',');
        let nonce = attribute(attributes.next(), "r=").ok_or(ScramError::Malformed)?;
        let salt = attribute(attributes.next(), "s=").and_then(base64).ok_or(ScramError::Malformed)?;
        let iterations =
            attribute(attributes.next(), "i=").and_then(|n| n.parse().ok()).ok_or(ScramError::Malformed)?;
        let fresh = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !fresh || !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(ScramError::Malformed);
        }
        let salted = crypto.pbkdf2(self.password.as_bytes(), &salt, iterations);
        let client_key = crypto.hmac(&salted, b"Client Key");
        let without_proof = format!("c={},r={nonce}", Base64::encode_string(b"n,,"));
        let auth = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = crypto.hmac(&crypto.sha256(&client_key), auth.as_bytes());
        let proof = Base64::encode_string(&xor(client_key, signature));
        let server_key = crypto.hmac(&salted, b"Server Key");
        self.server_signature = Some(crypto.hmac(&server_key, auth.as_bytes()));
        Ok(Bytes::from(format!("{without_proof},p={proof}")))
    }

    /// Checks the server's final message.
    pub fn verify(&mut self, server_final: &[u8]) -> Result<(), ScramError> {
        let message = text(server_final)?;
        let verifier = attribute(message.split(',').next(), "v=").and_then(base64).ok_or(ScramError::NotAuthentic)?;
        let expected = self.server_signature.ok_or(ScramError::Malformed)?;
        let verifier: [u8; 32] = verifier.try_into().map_err(|_| ScramError::Malformed)?;
        self.verified = same(&verifier, &expected);
        if self.verified { Ok(()) } else { Err(ScramError::NotAuthentic) }
    }

    /// Whether the server has proved that it knows the password's verifier.
    pub fn is_verified(&self) -> bool {
        self.verified
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Malformed);
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed)
}

fn attribute<'a>(part: Option<&'a str>, name: &str) -> Option<&'a str> {
    part?.strip_prefix(name)
}

/// `=2C` is a comma, `=3D` an equals sign; nothing else may follow one.
pub(crate) fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return None,
        };
        plain.push(sign);
        plain.push_str(rest);
    }
    Some(plain)
}

fn xor(a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
    std::array::from_fn(|index| a[index] ^ b[index])
}

/// Compares in the same time wherever the difference is.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

fn base64(text: &str) -> Option<Vec<u8>> {
    Base64::decode_vec(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::{hash::MessageDigest, pkcs5::pbkdf2_hmac, pkey::PKey, sha::sha256, sign::Signer};

    struct OpenSsl(&'static str);

    impl ScramCrypto for OpenSsl {
        fn hmac(&self, key: &[u8], data: &[u8]) -> [u8; 32] {
            let key = PKey::hmac(key).unwrap();
            let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
            signer.sign_oneshot_to_vec(data).unwrap().try_into().unwrap()
        }

        fn sha256(&self, data: &[u8]) -> [u8; 32] {
            sha256(data)
        }

        fn pbkdf2(&self, password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
            let mut key = [0; 32];
            pbkdf2_hmac(password, salt, iterations as usize, MessageDigest::sha256(), &mut key).unwrap();
            key
        }

        fn nonce(&self) -> String {
            self.0.into()
        }
    }

    // The example of RFC 7677, section 3.
    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: OpenSsl = OpenSsl("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn verifier() -> ScramVerifier {
        let salt = base64("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        ScramVerifier::derive("pencil", salt, 4096, &SERVER_NONCE)
    }

    fn challenged() -> ScramServer {
        let mut server = ScramServer::start(CLIENT_FIRST.as_bytes()).unwrap();
        assert_eq!(server.user(), "user");
        assert_eq!(server.challenge(verifier(), &SERVER_NONCE), SERVER_FIRST);
        server
    }

    #[test]
    fn the_example_of_the_standard_comes_out() {
        let server = challenged();
        let mut client = ScramClient::new("user", "pencil", CLIENT_NONCE);
        assert_eq!(client.first(), CLIENT_FIRST);
        assert_eq!(client.respond(SERVER_FIRST.as_bytes(), &SERVER_NONCE).unwrap(), CLIENT_FINAL);
        assert_eq!(server.finish(CLIENT_FINAL.as_bytes(), &SERVER_NONCE).unwrap(), SERVER_FINAL);
        assert!(!client.is_verified());
        assert_eq!(client.respond(SERVER_FINAL.as_bytes(), &SERVER_NONCE).unwrap(), "");
        assert!(client.is_verified());
    }

    #[test]
    fn a_wrong_password_is_not_authentic() {
        let mut client = ScramClient::new("user", "pencils", CLIENT_NONCE);
        let response = client.respond(SERVER_FIRST.as_bytes(), &SERVER_NONCE).unwrap();
        assert_eq!(challenged().finish(&response, &SERVER_NONCE), Err(ScramError::NotAuthentic));
        assert!(verifier().verify_password("pencil", &SERVER_NONCE));
        assert!(!verifier().verify_password("pencils", &SERVER_NONCE));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_authentic() {
        let mut client = ScramClient::new("user", "pencil", CLIENT_NONCE);
        client.respond(SERVER_FIRST.as_bytes(), &SERVER_NONCE).unwrap();
        let forged = format!("v={}", Base64::encode_string(&[7; 32]));
        assert_eq!(client.respond(forged.as_bytes(), &SERVER_NONCE), Err(ScramError::NotAuthentic));
        assert_eq!(client.verify(b"e=other-error"), Err(ScramError::NotAuthentic));
        assert!(!client.is_verified());
    }

    #[test]
    fn malformed_messages_are_refused() {
        for bad in [
            "",
            "n",
            "n,,",
            "n,,n=user",
            "n,,n=,r=x",
            "n,,n=user,r=",
            "p=tls-unique,,n=user,r=x",
            "n,b=,n=user,r=x",
            "n,,m=ext,n=user,r=x",
            "n,,n=us=er,r=x",
            "n,,n=us=2er,r=x",
        ] {
            assert_eq!(ScramServer::start(bad.as_bytes()).err(), Some(ScramError::Malformed), "{bad}");
        }
        let server = challenged();
        let other_nonce = CLIENT_FINAL.replace("hNlF", "hNlG");
        let other_binding = CLIENT_FINAL.replace("biws", "eSws");
        let short_proof = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA";
        for bad in ["", "c=biws", &other_nonce, &other_binding, short_proof] {
            assert_eq!(server.finish(bad.as_bytes(), &SERVER_NONCE), Err(ScramError::Malformed), "{bad}");
        }
        let unasked = ScramServer::start(CLIENT_FIRST.as_bytes()).unwrap();
        assert_eq!(unasked.finish(CLIENT_FINAL.as_bytes(), &SERVER_NONCE), Err(ScramError::Malformed));
        let other = SERVER_FIRST.replace("rOpr", "xOpr");
        let weak = SERVER_FIRST.replace("4096", "4095");
        let endless = SERVER_FIRST.replace("4096", "4000000000");
        for bad in ["", "r=x", &other, &weak, &endless, "r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096"] {
            let mut client = ScramClient::new("user", "pencil", CLIENT_NONCE);
            assert_eq!(client.respond(bad.as_bytes(), &SERVER_NONCE), Err(ScramError::Malformed), "{bad}");
        }
    }

    #[test]
    fn names_with_commas_and_equals_signs_survive() {
        let client = ScramClient::new("a=b,c", "x", "nonce");
        assert_eq!(client.first(), "n,,n=a=3Db=2Cc,r=nonce");
        assert_eq!(ScramServer::start(&client.first()).unwrap().user(), "a=b,c");
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(Base64::encode_string(plain.as_bytes()), coded);
            assert_eq!(base64(coded).as_deref(), Some(plain.as_bytes()));
        }
        for bad in ["Z", "Zg", "Zg=", "Z===", "Zm9*", "Zm9vY===", "===="] {
            assert_eq!(base64(bad), None, "{bad}");
        }
    }
}
