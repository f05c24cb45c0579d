//! One engine of a coprocessor: a socket to a thread of the helper process, which has a session with the token.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::rsa::Padding;
use zeroize::Zeroizing;

use super::protocol::{Cause, KeyId, Request, Response, SIGNED_BYTES_MAX, read_frame, write_frame};
use super::{Inner, ecdsa_der, process::Helper};
use crate::agreement;
use crate::cpu;
use crate::device::{Device, DeviceError, Kind};
use crate::key::{Curve, KeyKind, PrivateKey};
use crate::ml_kem::ML_KEM_SECRET_BYTES;
use crate::padding;
use crate::random::random_bytes;
use crate::stop::Stop;
use crate::work::{Finished, Job, Output, RsaPadding, RsaScheme, Work};

/// Bytes that PSS takes beside the hash and the salt of its length (RFC 8017, 9.1.1).
const PSS_BYTES: usize = 2;

/// A socket to the helper. Anything unexpected on it is the end of the helper: what it was asked for may still come
/// and would be taken for the answer to something else.
pub(super) struct Link {
    device: String,
    helper: Arc<Helper>,
    socket: UnixStream,
    broken: bool,
}

impl Link {
    pub(super) fn new(device: &str, helper: Arc<Helper>) -> io::Result<Link> {
        let socket = helper.connect()?;
        Ok(Link { device: device.to_owned(), helper, socket, broken: false })
    }

    /// One request and its answer, within `limit` for both. The words of a failure are made fit to be shown.
    pub(super) fn exchange(&mut self, request: &Request, limit: Duration) -> Result<Response, DeviceError> {
        let answer = (|| {
            let mut socket = Timed { socket: &self.socket, end: Instant::now() + limit };
            write_frame(&mut socket, &request.encode())?;
            Response::decode(&read_frame(&mut socket)?)
        })();
        match answer {
            Ok(Response::Failed { cause, why }) => Ok(Response::failed(cause, why)),
            Ok(response) => Ok(response),
            Err(_) => Err(self.end()),
        }
    }

    /// Ends the helper process, and with it what its other engines are doing.
    pub(super) fn end(&mut self) -> DeviceError {
        self.broken = true;
        self.helper.end();
        DeviceError::Away { device: self.device.clone() }
    }
}

/// A socket that gives up at a certain time, however many reads and writes it takes until then. One call of
/// the system more for each.
struct Timed<'a> {
    socket: &'a UnixStream,
    end: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// An engine. Takes one job at a time.
pub(super) struct Engine {
    device: Arc<Inner>,
    link: Link,
    job: Option<Job>,
    loaded: HashSet<KeyId>,
}

impl Engine {
    pub(super) fn new(device: Arc<Inner>, link: Link) -> Engine {
        Engine { device, link, job: None, loaded: HashSet::new() }
    }

    fn run(&mut self, job: &Job) -> Result<Output, Stop> {
        job.check_key()?;
        let key = job.key.private().ok_or(DeviceError::WrongKey { why: "a token does no public operations" })?;
        let key = &key.clone();
        match &*job.work {
            Work::RsaSign { scheme, digest, hash } => {
                if hash.len() != digest.hash_len() {
                    let text = "the hash is not the digest's".to_owned();
                    return Err(DeviceError::Library { text }.into());
                }
                if *scheme == RsaScheme::Pss && key.public().size() < 2 * digest.hash_len() + PSS_BYTES {
                    let text = "the modulus is too short for this digest with PSS".to_owned();
                    return Err(DeviceError::Library { text }.into());
                }
                let request = Request::RsaSign { key: key.id(), scheme: *scheme, digest: *digest, hash: hash.to_vec() };
                let signature = self.bytes(key, &request)?;
                self.checked(cpu::rsa_verify(key.public_key(), *scheme, *digest, hash, &signature))?;
                Ok(output(signature))
            }
            Work::EcdsaSign { hash } => {
                let request = Request::EcdsaSign { key: key.id(), hash: hash.to_vec() };
                let raw = self.bytes(key, &request)?;
                let Ok(signature) = ecdsa_der(&raw) else { return Err(self.fault()) };
                self.checked(cpu::ecdsa_verify(key.public_key(), hash, &signature))?;
                Ok(Output::new(signature))
            }
            Work::RsaUnwrap { padding, wrapped, expected_len } => self.unwrap(key, *padding, wrapped, *expected_len),
            Work::EcdhDerive { peer } => self.derive(key, peer),
            Work::RsaPrivate { .. } => Err(DeviceError::WrongKey { why: "a token pads by itself" }.into()),
            Work::MlDsaSign { message } => {
                if message.len() > SIGNED_BYTES_MAX {
                    let len = message.len();
                    let why = format!("with ML-DSA a token signs {SIGNED_BYTES_MAX} bytes at most, and not {len}");
                    return Err(self.refused(why).into());
                }
                let request = Request::MlDsaSign { key: key.id(), message: message.clone() };
                let signature = self.bytes(key, &request)?;
                self.checked(cpu::ml_dsa_verify(key.public_key(), message, &signature))?;
                Ok(output(signature))
            }
            Work::MlKemDecapsulate { ciphertext } => self.decapsulate(key, ciphertext, job.is_in_doubt),
            _ => Err(DeviceError::WrongKey { why: "a token does no public operations" }.into()),
        }
    }

    /// As the processor does it: the raw result is checked, then the padding comes off without a branch on what it
    /// was. Where the token takes it off by itself there is nothing to check the result with but the padding.
    fn unwrap(
        &mut self,
        key: &PrivateKey,
        padding: RsaPadding,
        wrapped: &[u8],
        expected_len: usize,
    ) -> Result<Output, Stop> {
        let rejected = key.rejected(padding, wrapped, expected_len)?;
        let rsa = key.public().rsa()?;
        // Public facts about the wrapped key; anyone can see them, so leaving early tells nothing.
        if wrapped.len() != rsa.size() as usize || openssl::bn::BigNum::from_slice(wrapped)?.as_ref() >= rsa.n() {
            return Ok(output(rejected));
        }
        let request = Request::RsaUnwrap { key: key.id(), padding, wrapped: wrapped.to_vec() };
        match self.ask(key, &request)? {
            Response::Raw(raw) if raw.len() == wrapped.len() => {
                let mut again = vec![0; wrapped.len()];
                if rsa.public_encrypt(&raw, &mut again, Padding::NONE).is_err() || again != wrapped {
                    drop(ErrorStack::get());
                    return Err(self.fault());
                }
                Ok(padding::content_key(&raw, padding, rejected))
            }
            // Of PKCS#1 v1.5 only raw results are taken: what a token makes of a wrong padding would tell.
            Response::Bytes(content) if matches!(padding, RsaPadding::Oaep { .. }) => {
                Ok(padding::pick(&content, i32::try_from(content.len()).unwrap_or(i32::MAX), rejected))
            }
            Response::NotDecrypted => Ok(output(rejected)),
            response => Err(self.unexpected(response)),
        }
    }

    /// The peer's point is attacker's text: one that is not on the curve gives random bytes. The token is asked twice,
    /// and both answers must fit each other and the public key.
    fn derive(&mut self, key: &PrivateKey, peer: &[u8]) -> Result<Output, Stop> {
        let (KeyKind::Ec(curve), Some(public)) = (key.kind(), key.public_key().ec()) else {
            return Err(DeviceError::WrongKey { why: "a key agreement needs an EC key" }.into());
        };
        let Ok(point) = curve.read_point(public.group(), peer) else {
            drop(ErrorStack::get());
            return Ok(output(random_bytes(curve.coordinate_len()).map_err(DeviceError::from)?));
        };
        let secret = self.agreed(key, curve, peer.to_vec())?;
        let second = match agreement::second_point(public.group(), &point)? {
            Some(sum) => Some(self.agreed(key, curve, sum)?),
            None => None,
        };
        let second = second.as_ref().map(|second| second.as_slice());
        match agreement::fits(curve, &Curve::point_of(public)?, &secret, second)? {
            true => Ok(output(secret)),
            false => Err(self.fault()),
        }
    }

    /// Nothing but the private key tells a right secret from a wrong one: what a token makes of a ciphertext that was
    /// changed is a secret as well (implicit rejection, FIPS 203, algorithm 18). So a wrong one is noticed when the
    /// message does not open, as with a ciphertext that was changed, and at the same time. Before that is held against
    /// the message the token is asked again, and first for a secret that is known here: a token that has gone wrong is
    /// at fault, and the message waits. A module that lies, and knows which answer matters, is not found out.
    fn decapsulate(&mut self, key: &PrivateKey, ciphertext: &[u8], is_in_doubt: bool) -> Result<Output, Stop> {
        let KeyKind::MlKem(set) = key.kind() else {
            return Err(DeviceError::WrongKey { why: "an encapsulated secret needs an ML-KEM key" }.into());
        };
        let rejected = random_bytes(ML_KEM_SECRET_BYTES).map_err(DeviceError::from)?;
        // A public fact about the ciphertext.
        if ciphertext.len() != set.ciphertext_len() {
            return Ok(output(rejected));
        }
        if is_in_doubt {
            let made = cpu::ml_kem_encapsulate(key.public_key())?;
            let (probe, secret) = made.split_at_checked(set.ciphertext_len()).unwrap_or_default();
            if self.encapsulated(key, probe)?.is_none_or(|found| *found != *secret) {
                return Err(self.fault());
            }
        }
        Ok(output(self.encapsulated(key, ciphertext)?.unwrap_or(rejected)))
    }

    /// What the token says is in a ciphertext; nothing where it refuses this one, and no other.
    fn encapsulated(&mut self, key: &PrivateKey, ciphertext: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Stop> {
        let request = Request::MlKemDecapsulate { key: key.id(), ciphertext: ciphertext.to_vec() };
        match self.ask(key, &request)? {
            Response::Bytes(secret) if secret.len() == ML_KEM_SECRET_BYTES => Ok(Some(secret)),
            Response::Bytes(_) => Err(self.fault()),
            Response::NotDecrypted => Ok(None),
            response => Err(self.unexpected(response)),
        }
    }

    /// What the token says of k·P.
    fn agreed(&mut self, key: &PrivateKey, curve: Curve, peer: Vec<u8>) -> Result<Zeroizing<Vec<u8>>, Stop> {
        let secret = self.bytes(key, &Request::EcdhDerive { key: key.id(), peer })?;
        if secret.len() == curve.coordinate_len() { Ok(secret) } else { Err(self.fault()) }
    }

    fn bytes(&mut self, key: &PrivateKey, request: &Request) -> Result<Zeroizing<Vec<u8>>, Stop> {
        match self.ask(key, request)? {
            Response::Bytes(bytes) => Ok(bytes),
            response => Err(self.unexpected(response)),
        }
    }

    /// Has the key loaded first if need be, and once more when the helper has forgotten it.
    fn ask(&mut self, key: &PrivateKey, request: &Request) -> Result<Response, Stop> {
        for _ in 0..2 {
            if !self.loaded.contains(&key.id()) {
                self.load(key)?;
            }
            match self.exchange(request)? {
                Response::UnknownKey => {
                    self.loaded.clear();
                }
                response => return Ok(response),
            }
        }
        Err(self.refused("the token loses its sessions").into())
    }

    fn load(&mut self, key: &PrivateKey) -> Result<(), Stop> {
        let uri = key.token_uri().ok_or(DeviceError::WrongKey { why: "the key is not on a token" })?;
        let public = key.public().public_key_to_der()?;
        let request = Request::Load { key: key.id(), uri: uri.to_owned(), public };
        for _ in 0..2 {
            match self.exchange(&request)? {
                Response::Done => {
                    self.loaded.insert(key.id());
                    return Ok(());
                }
                // There is a new session; in it the key is looked for once more.
                Response::UnknownKey => self.loaded.clear(),
                response => return Err(self.unexpected(response)),
            }
        }
        Err(self.refused("the token loses its sessions").into())
    }

    fn exchange(&mut self, request: &Request) -> Result<Response, Stop> {
        let limit = self.device.settings.job_timeout;
        let response = self.link.exchange(request, limit).map_err(Stop::Engine)?;
        match response {
            Response::Failed { cause: Cause::Refused, why } => Err(self.refused(why).into()),
            Response::Failed { cause, why } => {
                if cause == Cause::Pin {
                    self.device.pin_was_refused();
                }
                // Modules find a token that comes back only when they start anew.
                self.link.end();
                Err(Stop::Engine(DeviceError::Offline { device: self.device.settings.name.clone(), why }))
            }
            response => Ok(response),
        }
    }

    fn unexpected(&mut self, _: Response) -> Stop {
        Stop::Engine(self.link.end())
    }

    fn refused(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::Refused { device: self.device.settings.name.clone(), why: why.into() }
    }

    fn fault(&self) -> Stop {
        Stop::Job(DeviceError::Fault { device: self.device.settings.name.clone() })
    }

    fn checked(&self, verdict: Result<Output, DeviceError>) -> Result<(), Stop> {
        match verdict {
            Ok(_) => Ok(()),
            Err(DeviceError::BadSignature) => Err(self.fault()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Device for Engine {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        if self.link.broken {
            return Err(DeviceError::Away { device: self.device.settings.name.clone() });
        }
        if self.job.is_some() || jobs.is_empty() {
            return Ok(0);
        }
        self.job = Some(jobs.remove(0));
        Ok(1)
    }

    /// Waits for the token, no longer than the device's timeout for each of the at most eight requests that a
    /// job can take: a key agreement asks twice. After an error the job that was taken has no other answer.
    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        let Some(job) = self.job.take() else { return Ok(()) };
        let result = match job.is_over(Instant::now()) {
            Some(error) => Err(Stop::Job(error)),
            None => self.run(&job),
        };
        let result = match result {
            Ok(output) => Ok(output),
            Err(Stop::Job(error)) => Err(error),
            Err(Stop::Engine(error)) => return Err(error),
        };
        done.push(Finished::new(job.id, result));
        Ok(())
    }

    fn name(&self) -> &str {
        &self.device.settings.name
    }

    fn kind(&self) -> Kind {
        Kind::Coprocessor
    }
}

fn output(mut bytes: Zeroizing<Vec<u8>>) -> Output {
    Output::new(std::mem::take(&mut *bytes))
}

#[cfg(test)]
mod tests {
    use openssl::rsa::Rsa;

    use super::super::protocol::FRAME_BYTES_MAX;
    use super::super::{Coprocessor, CoprocessorSettings, HelperCommand};
    use super::*;
    use crate::digest::Digest;

    /// An engine whose helper is a thread of the test, at the other end of the socket.
    fn engine(job_timeout: Duration) -> (Engine, UnixStream) {
        let settings = CoprocessorSettings {
            name: "HSM".to_owned(),
            module: "module.so".into(),
            token: "pkcs11:token=tests".parse().expect("a URI"),
            pin_file: None,
            engines: 1,
            job_timeout,
        };
        let command = HelperCommand { program: "true".into(), arguments: Vec::new(), variables: Vec::new() };
        let helper = Arc::new(Helper::start(&command).expect("a process"));
        let device = Coprocessor::new(settings, command).0;
        let (socket, theirs) = UnixStream::pair().expect("sockets");
        let link = Link { device: "HSM".to_owned(), helper, socket, broken: false };
        (Engine::new(device, link), theirs)
    }

    #[test]
    fn a_helper_that_answers_a_byte_at_a_time_is_ended_when_the_time_for_the_request_is_over() {
        const PAUSE: Duration = Duration::from_millis(20);
        let (mut engine, mut theirs) = engine(10 * PAUSE);
        let dribbler = std::thread::spawn(move || {
            read_frame(&mut theirs).expect("a request");
            theirs.set_read_timeout(Some(PAUSE)).expect("a timeout");
            let len = u32::try_from(FRAME_BYTES_MAX).expect("a small number").to_le_bytes();
            let frame = len.into_iter().chain(std::iter::repeat_n(0, FRAME_BYTES_MAX));
            // Until the other end is closed.
            frame.take_while(|byte| theirs.write_all(&[*byte]).is_ok() && theirs.read(&mut [0]).is_err()).count()
        });
        let request = Request::EcdsaSign { key: [7; 32], hash: vec![1; 32] };
        let away = Err(DeviceError::Away { device: "HSM".to_owned() });
        assert_eq!(engine.link.exchange(&request, 10 * PAUSE).map(drop), away);
        drop(engine);
        assert!(dribbler.join().expect("a thread") < FRAME_BYTES_MAX);
    }

    #[test]
    fn a_content_key_without_its_padding_is_taken_for_oaep_alone() {
        let clear = openssl::pkey::PKey::from_rsa(Rsa::generate(1024).expect("a key")).expect("a key");
        let public = crate::key::PublicKey::new(&clear).expect("a key");
        let key = PrivateKey::on_token(public, "pkcs11:token=tests");
        for (padding, taken) in [(RsaPadding::Oaep { digest: Digest::Sha256 }, true), (RsaPadding::Pkcs1, false)] {
            let (mut engine, mut theirs) = engine(Duration::from_secs(60));
            let helper = std::thread::spawn(move || {
                while let Ok(body) = read_frame(&mut theirs) {
                    let response = match Request::decode(&body).expect("a request") {
                        Request::Load { .. } => Response::Done,
                        _ => Response::Bytes(Zeroizing::new(vec![7; 32])),
                    };
                    write_frame(&mut theirs, &response.encode()).expect("the parent reads");
                }
            });
            let work = Work::RsaUnwrap { padding, wrapped: vec![1; 128], expected_len: 32 };
            let mut done = Vec::new();
            engine.submit(&mut vec![Job::new(key.clone(), work)]).expect("room");
            let polled = engine.poll(&mut done);
            if taken {
                assert_eq!((polled, &**done[0].result.as_ref().expect("a key")), (Ok(()), &[7; 32][..]));
            } else {
                assert_eq!(polled, Err(DeviceError::Away { device: "HSM".to_owned() }));
                assert!(done.is_empty());
            }
            drop(engine);
            helper.join().expect("a thread");
        }
    }
}
