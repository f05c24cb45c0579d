//! A small server with the transit engine's published HTTP API, for tests: keys in memory, TLS with an authority of its
//! own, and whatever else a test tells it to answer. It is not the real one.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of this")]

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bulla_device::transit::{TokenNews, Transit, TransitSettings};
use bulla_device::{PrivateKey, PublicKey};
use openssl::asn1::Asn1Time;
use openssl::base64::{decode_block, encode_block};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::encrypt::Decrypter;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};
use openssl::sign::RsaPssSaltlen;
use openssl::ssl::{SslAcceptor, SslMethod, SslStream, SslVerifyMode};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

pub const TOKEN: &str = "hvs.s3cr3t-token";
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// What the server does with a request instead of the truth.
#[derive(Clone)]
pub enum Deed {
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
    /// A status with a body.
    Answer(u16, String),
    /// Nothing, until the client has gone.
    Silence,
    /// The connection ends.
    Close,
    /// The right answer, with one bit of the first result changed.
    WrongBit,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub token: Option<String>,
    pub namespace: Option<String>,
    pub body: Value,
}

#[derive(Default)]
pub struct State {
    /// By name, each version of a key.
    pub keys: HashMap<String, Vec<PKey<Private>>>,
    pub tokens: Vec<String>,
    /// Names of keys that no token may use.
    pub forbidden: Vec<String>,
    /// What is done with the next requests to the engine.
    pub deeds: VecDeque<Deed>,
    /// The server says of all requests that it is sealed.
    pub sealed: bool,
    /// Every request.
    pub asked: Vec<Asked>,
    pub connections: usize,
    /// Connections end behind each answer, without a word in the head.
    pub closes_after_each: bool,
    pub salt_is_long: bool,
}

impl State {
    /// Requests to the engine, without those about health and token.
    pub fn jobs(&self) -> Vec<Asked> {
        self.asked.iter().filter(|asked| asked.path.starts_with("/v1/transit/")).cloned().collect()
    }
}

pub struct Server {
    pub dir: TempDir,
    pub port: u16,
    pub state: Arc<Mutex<State>>,
}

fn certificate(name: &str, key: &PKey<Private>, issuer: Option<(&X509, &PKey<Private>)>) -> X509 {
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    let subject = subject.build();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    let mut serial = BigNum::new().unwrap();
    serial.rand(100, MsbOption::MAYBE_ZERO, false).unwrap();
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    match issuer {
        Some((authority, by)) => {
            builder.set_issuer_name(authority.subject_name()).unwrap();
            let context = builder.x509v3_context(Some(authority), None);
            let names = SubjectAlternativeName::new().dns("localhost").build(&context).unwrap();
            builder.append_extension(names).unwrap();
            builder.sign(by, MessageDigest::sha256()).unwrap();
        }
        None => {
            builder.set_issuer_name(&subject).unwrap();
            builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
            builder.sign(key, MessageDigest::sha256()).unwrap();
        }
    }
    builder.build()
}

pub fn ec_key(nid: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(nid).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

pub fn rsa_key(bits: u32) -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()
}

impl Server {
    pub fn new() -> Server {
        Server::with(false)
    }

    /// One that has its clients show a certificate.
    pub fn that_asks_for_certificates() -> Server {
        Server::with(true)
    }

    fn with(asks: bool) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let authority_key = ec_key(Nid::X9_62_PRIME256V1);
        let authority = certificate("authority", &authority_key, None);
        let key = ec_key(Nid::X9_62_PRIME256V1);
        let own = certificate("server", &key, Some((&authority, &authority_key)));
        fs::write(dir.path().join("ca.pem"), authority.to_pem().unwrap()).unwrap();
        let client = [own.to_pem().unwrap(), key.private_key_to_pem_pkcs8().unwrap()].concat();
        write_private(dir.path().join("client.pem"), &client);
        write_private(dir.path().join("token"), format!("{TOKEN}\n").as_bytes());
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        builder.set_private_key(&key).unwrap();
        builder.set_certificate(&own).unwrap();
        if asks {
            builder.cert_store_mut().add_cert(authority).unwrap();
            builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        }
        let acceptor = Arc::new(builder.build());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { tokens: vec![TOKEN.to_owned()], ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (Ok(socket), acceptor, state) = (socket, acceptor.clone(), shared.clone()) else { continue };
                std::thread::spawn(move || {
                    if let Ok(stream) = acceptor.accept(socket) {
                        state.lock().unwrap().connections += 1;
                        serve(stream, &state);
                    }
                });
            }
        });
        Server { dir, port, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn does(&self, deeds: impl IntoIterator<Item = Deed>) {
        self.state().deeds.extend(deeds);
    }

    pub fn write_token(&self, token: &str) {
        write_private(self.dir.path().join("token"), token.as_bytes());
    }

    pub fn settings(&self) -> TransitSettings {
        TransitSettings {
            name: "VAULT".to_owned(),
            address: format!("https://localhost:{}", self.port).parse().unwrap(),
            authorities: self.dir.path().join("ca.pem"),
            client_certificate: None,
            mount: "transit".to_owned(),
            namespace: None,
            token_file: self.dir.path().join("token"),
            engines: 1,
            request_timeout: TIMEOUT,
        }
    }

    /// A device whose lines for the operator are kept.
    pub fn transit(&self) -> (Transit, Arc<Mutex<Vec<TokenNews>>>) {
        Server::transit_of(self.settings())
    }

    pub fn transit_of(settings: TransitSettings) -> (Transit, Arc<Mutex<Vec<TokenNews>>>) {
        let said: Arc<Mutex<Vec<TokenNews>>> = Arc::default();
        let says = said.clone();
        let transit = Transit::new(settings, Arc::new(move |news| says.lock().unwrap().push(news.clone())));
        (transit, said)
    }

    /// Has the server have another version of a key, and returns it as a ring names it.
    pub fn add(&self, name: &str, key: PKey<Private>) -> PrivateKey {
        let public = PublicKey::new(&key).unwrap();
        let mut state = self.state();
        let versions = state.keys.entry(name.to_owned()).or_default();
        versions.push(key);
        PrivateKey::on_token(public, format!("transit:key={name};version={}", versions.len()))
    }
}

pub fn write_private(path: PathBuf, bytes: &[u8]) {
    let aside = path.with_extension("aside");
    fs::write(&aside, bytes).unwrap();
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(aside, path).unwrap();
}

/// The requests of one connection.
fn serve(mut stream: SslStream<TcpStream>, state: &Mutex<State>) {
    let mut come = Vec::new();
    while let Some(asked) = request(&mut stream, &mut come) {
        let deed = {
            let mut state = state.lock().unwrap();
            state.asked.push(asked.clone());
            if asked.path.starts_with("/v1/transit/") { state.deeds.pop_front() } else { None }
        };
        let answered = |status: u16, body: &str| {
            let head = format!("HTTP/1.1 {status} So\r\nContent-Type: application/json\r\n");
            // As the real one does: with a length where it is short, else in chunks.
            if status == 204 {
                format!("{head}\r\n").into_bytes()
            } else if body.len() < 2048 {
                format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
            } else {
                format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()
            }
        };
        let bytes = match deed {
            Some(Deed::Raw(bytes)) => bytes,
            Some(Deed::Answer(status, body)) => answered(status, &body),
            Some(Deed::Silence) => {
                let _ = stream.read(&mut [0]);
                return;
            }
            Some(Deed::Close) => return,
            Some(Deed::WrongBit) => {
                let (status, mut body) = truth(&mut state.lock().unwrap(), &asked);
                let result = &mut body["data"]["batch_results"][0]["signature"];
                let text = result.as_str().unwrap().to_owned();
                let (front, base64) = text.rsplit_once(':').unwrap();
                let mut bytes = decode_block(base64).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                *result = Value::String(format!("{front}:{}", encode_block(&bytes)));
                answered(status, &body.to_string())
            }
            None => {
                let (status, body) = truth(&mut state.lock().unwrap(), &asked);
                answered(status, &body.to_string())
            }
        };
        if stream.write_all(&bytes).is_err() {
            return;
        }
        if state.lock().unwrap().closes_after_each {
            return;
        }
    }
}

fn request(stream: &mut SslStream<TcpStream>, come: &mut Vec<u8>) -> Option<Asked> {
    let mut room = [0; 4096];
    loop {
        if let Some(end) = come.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(come[..end].to_vec()).unwrap();
            let value = |name: &str| {
                let line = head.lines().find_map(|line| line.split_once(": ").filter(|(known, _)| *known == name));
                line.map(|(_, value)| value.to_owned())
            };
            let len: usize = value("content-length").map_or(0, |value| value.parse().unwrap());
            if come.len() >= end + 4 + len {
                let body = &come[end + 4..end + 4 + len];
                let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(body).unwrap() };
                let mut line = head.lines().next().unwrap().split(' ');
                let (method, path) = (line.next().unwrap().to_owned(), line.next().unwrap().to_owned());
                let (token, namespace) = (value("x-vault-token"), value("x-vault-namespace"));
                come.drain(..end + 4 + len);
                return Some(Asked { method, path, token, namespace, body });
            }
        }
        match stream.read(&mut room) {
            Ok(0) | Err(_) => return None,
            Ok(len) => come.extend_from_slice(&room[..len]),
        }
    }
}

fn errors(status: u16, why: &str) -> (u16, Value) {
    (status, json!({ "errors": [why] }))
}

/// What the published API says to a request.
fn truth(state: &mut State, asked: &Asked) -> (u16, Value) {
    if state.sealed {
        return errors(503, "Vault is sealed");
    }
    if asked.path.starts_with("/v1/sys/health") {
        return (200, json!({ "initialized": true, "sealed": false }));
    }
    let token = asked.token.clone().unwrap_or_default();
    if !state.tokens.contains(&token) {
        return errors(403, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n");
    }
    if asked.path == "/v1/auth/token/lookup-self" {
        return (200, json!({ "data": { "ttl": 3600 } }));
    }
    let mut parts = asked.path.trim_start_matches("/v1/transit/").split('/');
    let (verb, name) = (parts.next().unwrap(), parts.next().unwrap_or_default());
    if state.forbidden.iter().any(|forbidden| forbidden == name) {
        return errors(403, "1 error occurred:\n\t* permission denied\n\n");
    }
    match (asked.method.as_str(), verb) {
        ("POST", "keys") => {
            let key = match asked.body["type"].as_str().unwrap() {
                "rsa-2048" => rsa_key(2048),
                "ecdsa-p256" => ec_key(Nid::X9_62_PRIME256V1),
                _ => return errors(400, "unknown key type"),
            };
            state.keys.insert(name.to_owned(), vec![key]);
            (204, Value::Null)
        }
        ("GET", "keys") => match state.keys.get(name) {
            None => (404, json!({ "errors": [] })),
            Some(versions) => {
                let public = |key: &PKey<Private>| String::from_utf8(key.public_key_to_pem().unwrap()).unwrap();
                let keys: serde_json::Map<String, Value> = (1..)
                    .zip(versions)
                    .map(|(number, key): (u32, _)| (number.to_string(), json!({ "public_key": public(key) })))
                    .collect();
                let kind = if versions[0].id() == Id::RSA { "rsa-2048" } else { "ecdsa-p256" };
                (200, json!({ "data": { "type": kind, "latest_version": versions.len(), "keys": keys } }))
            }
        },
        ("POST", "sign") => match state.keys.get(name) {
            None => errors(400, "signing key not found"),
            Some(versions) => sign(versions, parts.next().unwrap(), &asked.body, state.salt_is_long),
        },
        ("POST", "decrypt") => match state.keys.get(name) {
            None => errors(400, "encryption key not found"),
            Some(versions) => decrypt(versions, &asked.body),
        },
        _ => errors(404, "no handler for route"),
    }
}

fn sign(versions: &[PKey<Private>], digest: &str, body: &Value, salt_is_long: bool) -> (u16, Value) {
    let md = match digest {
        "sha2-256" => openssl::md::Md::sha256(),
        "sha2-384" => openssl::md::Md::sha384(),
        "sha2-512" => openssl::md::Md::sha512(),
        _ => return errors(400, "invalid hash algorithm"),
    };
    assert_eq!(body["prehashed"], true);
    let version = usize::try_from(body["key_version"].as_u64().unwrap()).unwrap();
    let Some(key) = versions.get(version - 1) else { return errors(400, "no such version") };
    let one = |item: &Value| {
        let hash = decode_block(item["input"].as_str().unwrap()).unwrap();
        let mut context = PkeyCtx::new(key).unwrap();
        context.sign_init().unwrap();
        if key.id() == Id::RSA {
            let is_pss = body["signature_algorithm"] == "pss";
            context.set_rsa_padding(if is_pss { Padding::PKCS1_PSS } else { Padding::PKCS1 }).unwrap();
            context.set_signature_md(md).unwrap();
            if is_pss {
                assert_eq!(body["salt_length"], "hash");
                let len = if salt_is_long { RsaPssSaltlen::MAXIMUM_LENGTH } else { RsaPssSaltlen::DIGEST_LENGTH };
                context.set_rsa_pss_saltlen(len).unwrap();
            }
        } else {
            assert_eq!(body["marshaling_algorithm"], "asn1");
        }
        let mut signature = Vec::new();
        context.sign_to_vec(&hash, &mut signature).unwrap();
        json!({ "signature": format!("vault:v{version}:{}", encode_block(&signature)), "key_version": version })
    };
    let results: Vec<Value> = body["batch_input"].as_array().unwrap().iter().map(one).collect();
    (200, json!({ "data": { "batch_results": results } }))
}

fn decrypt(versions: &[PKey<Private>], body: &Value) -> (u16, Value) {
    let one = |item: &Value| {
        let text = item["ciphertext"].as_str().unwrap().strip_prefix("vault:v").unwrap();
        let (version, base64) = text.split_once(':').unwrap();
        let Some(key) = versions.get(version.parse::<usize>().unwrap() - 1) else {
            return json!({ "plaintext": "", "error": "ciphertext version is disallowed by policy" });
        };
        let wrapped = decode_block(base64).unwrap();
        let mut decrypter = Decrypter::new(key).unwrap();
        decrypter.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
        decrypter.set_rsa_oaep_md(MessageDigest::sha256()).unwrap();
        decrypter.set_rsa_mgf1_md(MessageDigest::sha256()).unwrap();
        let mut opened = vec![0; key.size()];
        match decrypter.decrypt(&wrapped, &mut opened) {
            Ok(len) => json!({ "plaintext": encode_block(&opened[..len]) }),
            Err(_) => json!({ "plaintext": "", "error": "failed to RSA decrypt the ciphertext" }),
        }
    };
    let results: Vec<Value> = body["batch_input"].as_array().unwrap().iter().map(one).collect();
    let status = if results.iter().any(|result| result.get("error").is_some()) { 500 } else { 200 };
    (status, json!({ "data": { "batch_results": results } }))
}
