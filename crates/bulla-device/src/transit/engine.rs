//! One engine of a transit device: a connection to the server, and the jobs of one call.

use std::sync::Arc;
use std::time::Instant;

use openssl::bn::BigNum;
use openssl::pkey::PKey;
use zeroize::Zeroizing;

use super::protocol::{self, KeyFacts, Outcome, Signing};
use super::{ANSWER_BYTES_MAX, Inner, LANES, Token, TransitKey, TransitUri};
use crate::cpu;
use crate::device::{Device, DeviceError, Kind};
use crate::digest::{Digest, Hash};
use crate::http::{self, Answer, BadAnswer, Client, NoAnswer, Takes};
use crate::key::{PrivateKey, PublicKey};
use crate::padding;
use crate::random::random_bytes;
use crate::stop::Stop;
use crate::work::{Finished, Job, Output, RsaPadding, RsaScheme, Work};

/// Bytes that PSS takes beside the hash and the salt of its length (RFC 8017, 9.1.1).
const PSS_BYTES: usize = 2;
/// The one padding that a transit engine takes off in a way that tells nothing about it.
const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };
/// The content key of an envelope that is made to see whether a key opens.
const PROBE_BYTES: usize = 32;
/// What a token asks about itself.
const LOOKUP_SELF: &str = "/v1/auth/token/lookup-self";
/// Whether the server works; standby servers that pass requests on do.
const HEALTH: &str = "/v1/sys/health?standbyok=true&perfstandbyok=true";

/// An engine. Takes up to [`LANES`] jobs at a time.
pub(super) struct Engine {
    device: Arc<Inner>,
    client: Client,
    jobs: Vec<Job>,
}

/// What jobs have in common that go into one request.
struct Common {
    key: PrivateKey,
    uri: Arc<TransitUri>,
    /// None: to decrypt.
    signing: Option<Signing>,
}

impl Common {
    fn is(&self, other: &Common) -> bool {
        self.signing == other.signing && self.uri == other.uri && self.key.id() == other.key.id()
    }
}

/// A job of a request.
struct Task {
    id: u64,
    input: Input,
}

enum Input {
    Hash(Hash),
    Wrapped {
        wrapped: Vec<u8>,
        /// What takes the place of a key that does not come out.
        rejected: Zeroizing<Vec<u8>>,
    },
}

impl Input {
    fn bytes(&self) -> &[u8] {
        match self {
            Input::Hash(hash) => hash,
            Input::Wrapped { wrapped, .. } => wrapped,
        }
    }
}

/// What becomes of a job before anything is asked.
enum Prepared {
    Ask(Common, Input),
    /// Its result is known.
    Known(Output),
}

impl Engine {
    /// Connects, and sees whether the server works and takes the token.
    pub(super) fn start(device: Arc<Inner>) -> Result<Engine, DeviceError> {
        let takes = Takes { body_bytes_max: ANSWER_BYTES_MAX, to_the_end: false };
        let client = Client::new(device.settings.address.clone(), Some(device.connector()?), takes);
        let mut engine = Engine { device, client, jobs: Vec::new() };
        engine.check_health()?;
        let (token, was_refused) = engine.device.first_token()?;
        let answer = engine.exchange("GET", LOOKUP_SELF, Some(&token), None)?;
        match answer.status {
            200 => engine.device.token_is_good(),
            // A token need not have the right to look itself up: jobs show what it may.
            403 => {
                let words = protocol::refusal(&answer.body);
                if was_refused || says_invalid(&words) {
                    let why = engine.device.token_was_refused(&token, &words);
                    return Err(engine.device.offline(why));
                }
            }
            _ => {
                if let Stop::Engine(error) = engine.refusal(&answer) {
                    return Err(error);
                }
            }
        }
        Ok(engine)
    }

    /// A server that keeps its health to itself is asked no more.
    fn check_health(&mut self) -> Result<(), DeviceError> {
        let answer = self.exchange("GET", HEALTH, None, None)?;
        let why = match answer.status {
            300..=399 => return Err(self.refusal(&answer).into()),
            501 => "the server is not initialised",
            503 => "the server is sealed",
            472 => "the server is a standby for disasters, which answers nothing",
            _ => return Ok(()),
        };
        Err(self.device.offline(why))
    }

    /// One request and its answer, within the device's time.
    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        token: Option<&Token>,
        body: Option<&[u8]>,
    ) -> Result<Answer, DeviceError> {
        let request = self.request(method, path, token, body);
        let end = Instant::now() + self.device.settings.request_timeout;
        self.client.ask(&request, end, &|| false).map_err(|why| self.device.offline(why.to_string()))
    }

    /// The text of a request; wiped, because the token is in it.
    fn request(&self, method: &str, path: &str, token: Option<&Token>, body: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
        let settings = &self.device.settings;
        let mut fields: Vec<(&str, &[u8])> = vec![("accept", b"application/json"), ("x-vault-request", b"true")];
        if let Some(token) = token {
            fields.extend(settings.namespace.as_ref().map(|name| ("x-vault-namespace", name.as_bytes())));
            fields.push(("x-vault-token", &token.0));
        }
        fields.extend(body.map(|_| ("content-type", &b"application/json"[..])));
        http::request(method, &settings.address, path, &fields, body)
    }

    /// A request to the engine, with the token. Where the server refuses it and the file has another one by now, once
    /// more with that.
    fn ask(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> Result<Answer, Stop> {
        let mut token = self.device.current_token().map_err(Stop::Engine)?;
        for _ in 0..2 {
            let answer = self.exchange(method, path, Some(&token), body).map_err(Stop::Engine)?;
            if answer.status != 403 {
                return Ok(answer);
            }
            let words = protocol::refusal(&answer.body);
            match self.device.newer_token(&token) {
                Some(newer) => token = newer,
                None => return Err(self.forbidden(path, &token, &words)),
            }
        }
        Err(self.forbidden(path, &token, "permission denied"))
    }

    /// The server answered 403: it takes the token no more, or does not let it do this. The token is asked about
    /// itself.
    fn forbidden(&mut self, path: &str, token: &Token, words: &str) -> Stop {
        let is_invalid = says_invalid(words)
            || match self.exchange("GET", LOOKUP_SELF, Some(token), None) {
                Ok(answer) => answer.status == 403,
                Err(error) => return Stop::Engine(error),
            };
        if is_invalid {
            let why = self.device.token_was_refused(token, words);
            return Stop::Engine(self.device.offline(why));
        }
        let path = path.trim_start_matches("/v1/");
        Stop::Job(self.device.refused(format!("the server does not let the token use {path} (403): {words}")))
    }

    /// What is done about an answer that has no result. What the server says is about one key is no reason to leave the
    /// others alone.
    fn refusal(&self, answer: &Answer) -> Stop {
        let (status, words) = (answer.status, protocol::refusal(&answer.body));
        let said = if words.is_empty() { String::new() } else { format!(": {words}") };
        let why = match status {
            200..=299 => NoAnswer::Unreadable(BadAnswer::Malformed { why: "it has no results" }).to_string(),
            300..=399 => {
                format!("the server answered with a redirect ({status}), which is not followed: name the active server")
            }
            400..=499 if status != 429 => {
                return Stop::Job(self.device.refused(format!("the server answered {status}{said}")));
            }
            500 => return Stop::Job(self.device.refused(format!("the server answered 500{said}"))),
            429 => format!("the server has too many requests (429){said}"),
            503 => format!("the server is sealed or does not answer now (503){said}"),
            _ => format!("the server answered {status}{said}"),
        };
        Stop::Engine(self.device.offline(why))
    }

    fn unreadable(&self, why: BadAnswer) -> Stop {
        Stop::Engine(self.device.offline(NoAnswer::Unreadable(why).to_string()))
    }

    /// What is asked about one key; `rest` comes behind its name.
    fn path(&self, verb: &str, key: &str, rest: &str) -> String {
        format!("/v1/{}/{verb}/{key}{rest}", self.device.settings.mount)
    }

    /// What the server says of a key; none where it has none of that name.
    pub(super) fn key_facts(&mut self, name: &str) -> Result<Option<KeyFacts>, DeviceError> {
        let path = self.path("keys", name, "");
        let answer = self.ask("GET", &path, None)?;
        match answer.status {
            200 => protocol::key_facts(&answer.body).map(Some).map_err(|why| self.unreadable(why).into()),
            404 => Ok(None),
            _ => Err(self.refusal(&answer).into()),
        }
    }

    pub(super) fn create_key(&mut self, name: &str, key_type: &str) -> Result<(), DeviceError> {
        let path = self.path("keys", name, "");
        let answer = self.ask("POST", &path, Some(&protocol::create(key_type)))?;
        if matches!(answer.status, 200 | 204) { Ok(()) } else { Err(self.refusal(&answer).into()) }
    }

    /// One version of a key, the newest where none is named.
    pub(super) fn key(&mut self, name: &str, version: Option<u32>) -> Result<TransitKey, DeviceError> {
        let mount = &self.device.settings.mount;
        let none = self.device.refused(format!("there is no key {name} in {mount}"));
        let facts = self.key_facts(name)?.ok_or(none)?;
        let version = version.unwrap_or(facts.latest);
        let Some(pem) = facts.public.get(&version) else {
            let has = facts.public.keys().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let why = if has.is_empty() {
                format!("key {name} is of type {}, which has no public half", facts.kind)
            } else {
                format!("key {name} has no version {version}: it has {has}")
            };
            return Err(self.device.refused(why));
        };
        let public = PKey::public_key_from_pem(pem.as_bytes());
        let public = public.map_err(|_| DeviceError::UnsupportedKey { what: format!("type {}", facts.kind) })?;
        let public = PublicKey::new(&public)?;
        Ok(TransitKey { public, uri: TransitUri { key: name.to_owned(), version, device: None } })
    }

    fn prepare(&self, job: &Job) -> Result<Prepared, DeviceError> {
        let wrong = |why| Err(DeviceError::WrongKey { why });
        job.check_key()?;
        let Some(key) = job.key.private() else { return wrong("a transit engine does no public operations") };
        let uri = key.token_uri().and_then(|uri| self.device.key_of(uri));
        let Some(uri) = uri else { return wrong("the key is not in this transit engine") };
        let common = |signing| Common { key: key.clone(), uri, signing };
        match &*job.work {
            Work::RsaSign { scheme, digest, hash } => {
                if hash.len() != digest.hash_len() {
                    return Err(DeviceError::Library { text: "the hash is not the digest's".to_owned() });
                }
                if *scheme == RsaScheme::Pss && key.public().size() < 2 * digest.hash_len() + PSS_BYTES {
                    let text = "the modulus is too short for this digest with PSS".to_owned();
                    return Err(DeviceError::Library { text });
                }
                Ok(Prepared::Ask(common(Some(Signing::Rsa(*scheme, *digest))), Input::Hash(*hash)))
            }
            Work::EcdsaSign { hash } => {
                let digest = Digest::ALL.iter().find(|digest| digest.hash_len() == hash.len());
                let Some(digest) = digest else { return wrong("the hash is of no digest that is known") };
                Ok(Prepared::Ask(common(Some(Signing::Ecdsa(*digest))), Input::Hash(*hash)))
            }
            Work::RsaUnwrap { padding: OAEP, wrapped, expected_len } => {
                let rejected = key.rejected(OAEP, wrapped, *expected_len)?;
                let rsa = key.public().rsa()?;
                // Public facts about the wrapped key; anyone can see them, so leaving early tells nothing.
                if wrapped.len() != rsa.size() as usize || BigNum::from_slice(wrapped)?.as_ref() >= rsa.n() {
                    return Ok(Prepared::Known(output(rejected)));
                }
                Ok(Prepared::Ask(common(None), Input::Wrapped { wrapped: wrapped.clone(), rejected }))
            }
            Work::RsaUnwrap { .. } => wrong("in a transit engine a key opens RSA-OAEP with SHA-256, and nothing else"),
            Work::EcdhDerive { .. } => {
                wrong("in a transit engine a key agrees on no secrets: one of a curve only signs")
            }
            Work::RsaPrivate { .. } => wrong("a transit engine pads by itself"),
            Work::MlDsaSign { .. } | Work::MlKemDecapsulate { .. } => {
                wrong("a transit engine has no ML-DSA and ML-KEM keys")
            }
            _ => wrong("a transit engine does no public operations"),
        }
    }

    /// Puts the jobs into as few requests as can be.
    fn run(&mut self, jobs: Vec<Job>, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        let mut groups: Vec<(Common, Vec<Task>)> = Vec::new();
        let now = Instant::now();
        for job in jobs {
            let prepared = job.is_over(now).map_or_else(|| self.prepare(&job), Err);
            match prepared {
                Ok(Prepared::Ask(common, input)) => {
                    let task = Task { id: job.id, input };
                    match groups.iter_mut().find(|(known, _)| known.is(&common)) {
                        Some((_, tasks)) => tasks.push(task),
                        None => groups.push((common, vec![task])),
                    }
                }
                Ok(Prepared::Known(output)) => done.push(Finished::new(job.id, Ok(output))),
                Err(error) => done.push(Finished::new(job.id, Err(error))),
            }
        }
        for (common, tasks) in groups {
            let ids: Vec<u64> = tasks.iter().map(|task| task.id).collect();
            let results = match common.signing {
                Some(signing) => self.sign(&common, signing, &tasks),
                None => self.decrypt(&common, tasks),
            };
            match results {
                Ok(results) => done.extend(ids.into_iter().zip(results).map(|(id, it)| Finished::new(id, it))),
                Err(Stop::Job(error)) => done.extend(ids.into_iter().map(|id| Finished::new(id, Err(error.clone())))),
                Err(Stop::Engine(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// The results of one request, whatever its status is: where single jobs failed, it is none of the good ones.
    fn results(
        &mut self,
        path: &str,
        body: &[u8],
        count: usize,
        of_version: Option<u32>,
    ) -> Result<Vec<Outcome>, Stop> {
        let answer = self.ask("POST", path, Some(body))?;
        let results = match answer.status {
            200 => protocol::results(&answer.body, count, of_version).map_err(|why| self.unreadable(why))?,
            // What is no JSON is as good as no results: a proxy says so of a server that is away.
            400..=599 => protocol::results(&answer.body, count, of_version).unwrap_or_default(),
            _ => None,
        };
        results.ok_or_else(|| self.refusal(&answer))
    }

    fn signatures(&mut self, common: &Common, signing: Signing, hashes: &[&[u8]]) -> Result<Vec<Outcome>, Stop> {
        let (Signing::Rsa(_, digest) | Signing::Ecdsa(digest)) = signing;
        let path = self.path("sign", &common.uri.key, &format!("/{}", protocol::digest_word(digest)));
        let body = protocol::sign(signing, common.uri.version, hashes);
        self.results(&path, &body, hashes.len(), Some(common.uri.version))
    }

    /// Each signature is checked with the public key. Where one does not fit, the key may be another one than the
    /// certificate's: the server signs once more to see.
    fn sign(
        &mut self,
        common: &Common,
        signing: Signing,
        tasks: &[Task],
    ) -> Result<Vec<Result<Output, DeviceError>>, Stop> {
        let hashes: Vec<&[u8]> = tasks.iter().map(|task| task.input.bytes()).collect();
        let outcomes = self.signatures(common, signing, &hashes)?;
        let (mut results, mut why_not_good) = (Vec::with_capacity(tasks.len()), None);
        for (hash, outcome) in hashes.iter().zip(outcomes) {
            results.push(match outcome {
                Outcome::Bytes(signature) => match verify(common, signing, hash, &signature) {
                    Ok(_) => Ok(output(signature)),
                    Err(DeviceError::BadSignature) => {
                        let error = match why_not_good.take() {
                            Some(error) => error,
                            None => self.why_not_good(common, signing)?,
                        };
                        why_not_good = Some(error.clone());
                        Err(error)
                    }
                    Err(error) => Err(error),
                },
                Outcome::Failed(why) => Err(self.device.refused(why)),
            });
        }
        Ok(results)
    }

    /// Why a signature does not fit: a fault, if another one by the same key does.
    fn why_not_good(&mut self, common: &Common, signing: Signing) -> Result<DeviceError, Stop> {
        let (Signing::Rsa(_, digest) | Signing::Ecdsa(digest)) = signing;
        let hash = digest.hash(&random_bytes(PROBE_BYTES).map_err(DeviceError::from)?);
        let signed = self.signatures(common, signing, &[&hash])?.pop();
        let fits =
            matches!(&signed, Some(Outcome::Bytes(signature)) if verify(common, signing, &hash, signature).is_ok());
        if fits {
            return Ok(DeviceError::Fault { device: self.device.settings.name.clone() });
        }
        let TransitUri { key, version, .. } = &*common.uri;
        let salt = match signing {
            Signing::Rsa(RsaScheme::Pss, _) => ", or the server does not make PSS salts as long as the digest",
            _ => "",
        };
        Ok(self.device.refused(format!("version {version} of key {key} is not the one of the certificate{salt}")))
    }

    /// What does not open may be the sender's doing or the server's. An envelope that is made for the key is sent along
    /// once more: where that opens, what does not is the sender's, and another key takes the content key's place.
    fn decrypt(&mut self, common: &Common, tasks: Vec<Task>) -> Result<Vec<Result<Output, DeviceError>>, Stop> {
        let path = self.path("decrypt", &common.uri.key, "");
        let version = common.uri.version;
        // Messages that share a content key may come at once: it is asked for once.
        let mut wrapped: Vec<&[u8]> = Vec::new();
        let mut places = Vec::with_capacity(tasks.len());
        for task in &tasks {
            let bytes = task.input.bytes();
            let known = wrapped.iter().position(|known| *known == bytes);
            places.push(known.unwrap_or(wrapped.len()));
            if known.is_none() {
                wrapped.push(bytes);
            }
        }
        let body = protocol::decrypt(version, &wrapped);
        let mut outcomes = self.results(&path, &body, wrapped.len(), None)?;
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))) {
            let content = random_bytes(PROBE_BYTES).map_err(DeviceError::from)?;
            let probe = cpu::rsa_wrap(common.key.public_key(), OAEP, &content)?;
            wrapped.push(&probe);
            let body = protocol::decrypt(version, &wrapped);
            outcomes = self.results(&path, &body, wrapped.len(), None)?;
            match outcomes.pop() {
                Some(Outcome::Bytes(opened)) if *opened == *content => {}
                Some(Outcome::Failed(why)) => return Err(self.does_not_open(common, &why)),
                _ => return Err(self.does_not_open(common, "it is another key")),
            }
        }
        let opened = |(task, place): (Task, usize)| match (task.input, outcomes.get(place)) {
            (Input::Wrapped { rejected, .. }, Some(Outcome::Bytes(content))) => {
                Ok(padding::pick(content, i32::try_from(content.len()).unwrap_or(i32::MAX), rejected))
            }
            (Input::Wrapped { rejected, .. }, _) => Ok(output(rejected)),
            (Input::Hash(_), _) => Err(DeviceError::WrongKey { why: "a hash is not decrypted" }),
        };
        Ok(tasks.into_iter().zip(places).map(opened).collect())
    }

    fn does_not_open(&self, common: &Common, why: &str) -> Stop {
        let TransitUri { key, version, .. } = &*common.uri;
        let what = format!("version {version} of key {key} does not open what is made for the certificate: {why}");
        Stop::Job(self.device.refused(what))
    }
}

/// Newer servers say of a token that it is none, older ones that it has no permission.
fn says_invalid(words: &str) -> bool {
    words.contains("invalid token") || words.contains("bad token")
}

fn verify(common: &Common, signing: Signing, hash: &[u8], signature: &[u8]) -> Result<Output, DeviceError> {
    let key = common.key.public_key();
    match signing {
        Signing::Rsa(scheme, digest) => cpu::rsa_verify(key, scheme, digest, hash, signature),
        Signing::Ecdsa(_) => cpu::ecdsa_verify(key, hash, signature),
    }
}

impl Device for Engine {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let taken = jobs.len().min(LANES.saturating_sub(self.jobs.len()));
        self.jobs.extend(jobs.drain(..taken));
        Ok(taken)
    }

    /// Waits for the server, no longer than the device's timeout for each request. There is one for each key and way of
    /// signing among the jobs, and one or two more where a result does not fit.
    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        let jobs = std::mem::take(&mut self.jobs);
        self.run(jobs, done)
    }

    fn name(&self) -> &str {
        &self.device.settings.name
    }

    fn kind(&self) -> Kind {
        Kind::Transit
    }
}

fn output(mut bytes: Zeroizing<Vec<u8>>) -> Output {
    Output::new(std::mem::take(&mut *bytes))
}
