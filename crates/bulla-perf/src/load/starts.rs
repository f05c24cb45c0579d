//! TLS starts of clients: connect, shake hands, hear the broker's first word, hang up; again and again.

use crate::error::{Error, Result};
use crate::load::{APPLICATION, Counts, Load};
use bulla_device::Histogram;
use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslSessionCacheMode, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How an AMQP client begins that signs in by SASL, and how the broker answers (part 5, section 5.3.2).
const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
/// How long one step of a start may take: a broker that answers later is given up.
const WITHIN: Duration = Duration::from_secs(15);

/// Whom to call, and what to agree on.
#[derive(Clone, Debug)]
pub struct Call {
    /// `HOST:PORT`.
    pub address: String,
    /// The authorities to believe (PEM).
    pub authorities: PathBuf,
    /// The certificate to show, with its key (PEM); none for a client without.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// TLS 1.3; else TLS 1.2 with ephemeral keys.
    pub tls13: bool,
}

/// Clients at work.
#[derive(Debug)]
pub struct Starts {
    gauge: Arc<Gauge>,
    threads: Vec<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Gauge {
    done: AtomicU64,
    stop: AtomicBool,
    latencies: Mutex<Histogram>,
}

impl Starts {
    /// Starts so many threads, each with one connection at a time. The first start of all is made here: where that one
    /// is refused, nothing begins.
    ///
    /// # Errors
    /// [`Error::Broker`]: not reached, or refused; [`Error::File`]: certificates that can't be read.
    pub fn start(call: &Call, threads: u32) -> Result<Starts> {
        let caller = Arc::new(Caller::new(call)?);
        caller.start()?;
        let gauge = Arc::new(Gauge::default());
        let mut starts = Starts { gauge: Arc::clone(&gauge), threads: Vec::new() };
        for number in 0..threads.max(1) {
            let (caller, gauge) = (Arc::clone(&caller), Arc::clone(&gauge));
            let work = move || {
                while !gauge.stop.load(Ordering::Acquire) {
                    let begun = Instant::now();
                    caller.start()?;
                    let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).record(took);
                    gauge.done.fetch_add(1, Ordering::AcqRel);
                }
                Ok(())
            };
            starts.threads.push(std::thread::Builder::new().name(format!("{APPLICATION}start-{number}")).spawn(work)?);
        }
        Ok(starts)
    }

    /// A single start, on the calling thread.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn try_once(call: &Call) -> Result<()> {
        Caller::new(call)?.start()
    }
}

impl Load for Starts {
    fn counts(&self) -> Counts {
        Counts { transactions: self.gauge.done.load(Ordering::Acquire), ..Counts::default() }
    }

    fn latencies(&self) -> Histogram {
        self.gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn goes_on(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.gauge.stop.store(true, Ordering::Release);
        let ends: Vec<Result<()>> = self.threads.into_iter().map(super::ended).collect();
        ends.into_iter().collect()
    }
}

/// One call after another to the same place.
struct Caller {
    connector: SslConnector,
    host: String,
    address: SocketAddr,
}

impl Caller {
    fn new(call: &Call) -> Result<Caller> {
        let failed = |why: &dyn fmt::Display| Error::Broker(format!("{}: {why}", call.address));
        let addresses: Vec<SocketAddr> = call.address.to_socket_addrs().map_err(|error| failed(&error))?.collect();
        // A name may stand for several, at one of which nothing listens, such as localhost for that of IPv6.
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, WITHIN).is_ok();
        let address = match &addresses[..] {
            [only] => Some(only),
            several => several.iter().find(answers).or(several.first()),
        };
        let address = *address.ok_or_else(|| failed(&"no such address"))?;
        let host = call.address.rsplit_once(':').map_or(call.address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let pem = std::fs::read(&call.authorities).map_err(|error| Error::file(&call.authorities, error))?;
        let connector = connector(call, &pem).map_err(|error| failed(&error))?;
        Ok(Caller { connector, host, address })
    }

    /// One start: it counts when the broker has spoken, so that its own part of the handshake is done, too.
    fn start(&self) -> Result<()> {
        let failed = |why: &dyn fmt::Display| Error::Broker(format!("{}: {why}", self.address));
        let stream = TcpStream::connect_timeout(&self.address, WITHIN).map_err(|error| failed(&error))?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(WITHIN)));
        set.and_then(|()| stream.set_write_timeout(Some(WITHIN))).map_err(|error| failed(&error))?;
        let mut stream = self.connector.connect(&self.host, stream).map_err(|error| failed(&error))?;
        let mut answer = [0; SASL_HEADER.len()];
        stream.write_all(&SASL_HEADER).and_then(|()| stream.read_exact(&mut answer)).map_err(|error| failed(&error))?;
        if answer != SASL_HEADER {
            return Err(failed(&"what answers does not speak AMQP 1.0 with SASL"));
        }
        Ok(())
    }
}

fn connector(call: &Call, authorities: &[u8]) -> std::result::Result<SslConnector, ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // These authorities and no others: the system's are not asked.
    let mut store = X509StoreBuilder::new()?;
    for authority in X509::stack_from_pem(authorities)? {
        store.add_cert(authority)?;
    }
    builder.set_cert_store(store.build());
    let version = if call.tls13 { SslVersion::TLS1_3 } else { SslVersion::TLS1_2 };
    builder.set_min_proto_version(Some(version))?;
    builder.set_max_proto_version(Some(version))?;
    // Each start is a whole one.
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    if let Some((certificate, key)) = &call.certificate {
        builder.set_certificate_chain_file(certificate)?;
        builder.set_private_key_file(key, SslFiletype::PEM)?;
    }
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::asn1::Asn1Time;
    use openssl::bn::{BigNum, MsbOption};
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::PKey;
    use openssl::ssl::{SslAcceptor, SslVerifyMode};
    use openssl::x509::extension::SubjectAlternativeName;
    use openssl::x509::{X509Builder, X509NameBuilder};
    use std::net::TcpListener;
    use std::path::Path;

    /// A self-signed certificate for 127.0.0.1, with its key, in files.
    fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", "broker").unwrap();
        let name = name.build();
        let mut builder = X509Builder::new().unwrap();
        let mut serial = BigNum::new().unwrap();
        serial.rand(64, MsbOption::ONE, true).unwrap();
        builder.set_version(2).unwrap();
        builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        builder.set_pubkey(&key).unwrap();
        let names = SubjectAlternativeName::new().ip("127.0.0.1").build(&builder.x509v3_context(None, None)).unwrap();
        builder.append_extension(names).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        let paths = (folder.join("broker.pem"), folder.join("broker.key"));
        std::fs::write(&paths.0, builder.build().to_pem().unwrap()).unwrap();
        std::fs::write(&paths.1, key.private_key_to_pem_pkcs8().unwrap()).unwrap();
        paths
    }

    /// A broker that shakes hands so often, answers with `answer`, and goes. What it saw: version, and a certificate or
    /// not.
    fn broker(
        files: &(PathBuf, PathBuf),
        times: usize,
        answer: [u8; 8],
    ) -> (String, JoinHandle<Vec<(&'static str, bool)>>) {
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        acceptor.set_certificate_chain_file(&files.0).unwrap();
        acceptor.set_private_key_file(&files.1, SslFiletype::PEM).unwrap();
        acceptor.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        let (acceptor, listener) = (acceptor.build(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for _ in 0..times {
                let mut stream = acceptor.accept(listener.accept().unwrap().0).unwrap();
                let mut header = [0; 8];
                stream.read_exact(&mut header).unwrap();
                assert_eq!(header, SASL_HEADER);
                stream.write_all(&answer).unwrap();
                seen.push((stream.ssl().version_str(), stream.ssl().peer_certificate().is_some()));
            }
            seen
        });
        (address, thread)
    }

    #[test]
    fn a_start_agrees_on_the_version_and_shows_its_certificate_where_it_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let files = certificate(folder.path());
        for (tls13, version, shows) in [(true, "TLSv1.3", false), (false, "TLSv1.2", true)] {
            let (address, thread) = broker(&files, 2, SASL_HEADER);
            let call = Call { address, authorities: files.0.clone(), certificate: shows.then(|| files.clone()), tls13 };
            let caller = Caller::new(&call).unwrap();
            caller.start().unwrap();
            caller.start().unwrap();
            assert_eq!(thread.join().unwrap(), [(version, shows); 2]);
        }
    }

    #[test]
    fn what_does_not_speak_amqp_or_is_not_trusted_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let files = certificate(folder.path());
        let (address, thread) = broker(&files, 1, *b"HTTP/1.1");
        let call = Call { address, authorities: files.0.clone(), certificate: None, tls13: true };
        let error = Caller::new(&call).unwrap().start().unwrap_err().to_string();
        assert!(error.ends_with("does not speak AMQP 1.0 with SASL"), "{error}");
        thread.join().unwrap();
        let missing = Call { authorities: folder.path().join("none.pem"), ..call };
        assert!(matches!(Caller::new(&missing), Err(Error::File(..))));
    }

    #[test]
    fn threads_start_until_they_are_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let files = certificate(folder.path());
        // The first start of all, and two of the thread's; what comes after them is refused, which ends the thread.
        let (address, thread) = broker(&files, 3, SASL_HEADER);
        let call = Call { address, authorities: files.0.clone(), certificate: None, tls13: true };
        let starts = Starts::start(&call, 1).unwrap();
        assert_eq!(thread.join().unwrap().len(), 3);
        let deadline = Instant::now() + WITHIN;
        while starts.goes_on() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(starts.counts(), Counts { transactions: 2, ..Counts::default() });
        assert!(Box::new(starts).stop().is_err());
    }
}
