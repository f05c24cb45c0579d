//! One engine of a coprocessor: a socket to a thread of the helper process, which has a session with the token.

use std::collections::HashSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::rsa::Padding;
use zeroize::Zeroizing;

use super::protocol::{Cause, FrameError, KeyId, Request, Response, read_frame, write_frame};
use super::{Inner, ecdsa_der, process::Helper};
use crate::cpu;
use crate::device::{Device, DeviceError, Kind};
use crate::key::{KeyKind, PrivateKey};
use crate::padding;
use crate::random::random_bytes;
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

    /// One request and its answer, within `limit`.
    pub(super) fn exchange(&mut self, request: &Request, limit: Duration) -> Result<Response, DeviceError> {
        let answer = (|| {
            self.socket.set_read_timeout(Some(limit)).map_err(FrameError::Io)?;
            self.socket.set_write_timeout(Some(limit)).map_err(FrameError::Io)?;
            write_frame(&mut self.socket, &request.encode())?;
            Response::decode(&read_frame(&mut self.socket)?)
        })();
        answer.map_err(|_| self.end())
    }

    /// Ends the helper process, and with it what its other engines are doing.
    pub(super) fn end(&mut self) -> DeviceError {
        self.broken = true;
        self.helper.end();
        DeviceError::Away { device: self.device.clone() }
    }
}

/// An engine. Takes one job at a time.
pub(super) struct Engine {
    device: Arc<Inner>,
    link: Link,
    job: Option<Job>,
    loaded: HashSet<KeyId>,
}

/// Why a job has no result.
enum Stop {
    /// The engine goes on.
    Job(DeviceError),
    /// The engine can't go on.
    Engine(DeviceError),
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Stop {
        Stop::Job(error)
    }
}

impl From<ErrorStack> for Stop {
    fn from(errors: ErrorStack) -> Stop {
        Stop::Job(errors.into())
    }
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
        let random = random_bytes(expected_len).map_err(DeviceError::from)?;
        let rsa = key.public().rsa()?;
        // Public facts about the wrapped key; anyone can see them, so leaving early tells nothing.
        if wrapped.len() != rsa.size() as usize || openssl::bn::BigNum::from_slice(wrapped)?.as_ref() >= rsa.n() {
            return Ok(output(random));
        }
        let request = Request::RsaUnwrap { key: key.id(), padding, wrapped: wrapped.to_vec() };
        match self.ask(key, &request)? {
            Response::Raw(raw) if raw.len() == wrapped.len() => {
                let mut again = vec![0; wrapped.len()];
                if rsa.public_encrypt(&raw, &mut again, Padding::NONE).is_err() || again != wrapped {
                    drop(ErrorStack::get());
                    return Err(self.fault());
                }
                Ok(padding::content_key(&raw, padding, random))
            }
            Response::Bytes(content) => {
                Ok(padding::pick(&content, i32::try_from(content.len()).unwrap_or(i32::MAX), random))
            }
            Response::NotDecrypted => Ok(output(random)),
            response => Err(self.unexpected(response)),
        }
    }

    /// The peer's point is attacker's text: one that is not on the curve gives random bytes.
    fn derive(&mut self, key: &PrivateKey, peer: &[u8]) -> Result<Output, Stop> {
        let (KeyKind::Ec(curve), Some(public)) = (key.kind(), key.public_key().ec()) else {
            return Err(DeviceError::WrongKey { why: "a key agreement needs an EC key" }.into());
        };
        if curve.read_point(public.group(), peer).is_err() {
            drop(ErrorStack::get());
            return Ok(output(random_bytes(curve.coordinate_len()).map_err(DeviceError::from)?));
        }
        let request = Request::EcdhDerive { key: key.id(), peer: peer.to_vec() };
        let secret = self.bytes(key, &request)?;
        if secret.len() != curve.coordinate_len() {
            return Err(self.fault());
        }
        Ok(output(secret))
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

    /// Waits for the token, no longer than the device's timeout for each of the at most four requests that a
    /// job can take. After an error the job that was taken has no other answer.
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
