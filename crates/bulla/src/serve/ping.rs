//! PING CHANNEL: whether a sending channel's partner answers, without touching a message or a number.
//!
//! It waits for the network, so it runs on the thread that answers administrators, and without the queues' lock.

use crate::catalog::ChannelDefinition;
use crate::channel::partner::Partner;
use crate::channel::supervisor;
use crate::channel_ends::sender;
use crate::front::amqp::{clients, outcomes};
use crate::front::call::{self, Target};
use crate::manager::Manager;
use crate::reason::{self, Refusal};
use crate::tls::{self, Tls};
use bulla_amqp::{Connection, Event};
use bytes::BytesMut;
use openssl::ssl::SslStream;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// What all of it may take.
const PING_WITHIN: Duration = Duration::from_secs(10);
/// Room for one read, in bytes.
const READ_BYTES: usize = 16 << 10;

/// A connection in clear or under TLS.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A socket whose reads and writes together end at the deadline, however slowly the partner feeds it.
struct Hasty {
    stream: TcpStream,
    deadline: Instant,
}

impl Hasty {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Hasty {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Hasty {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Calls the first of CONNAME's addresses that answers, as the channel would, and says what was seen, in one line.
///
/// # Errors
/// Why the channel could not start: no connection, TLS, or a partner that is closed to it.
pub(crate) fn ping(
    manager: &Manager,
    tls: &Tls,
    channel: &str,
    definition: &ChannelDefinition,
) -> Result<String, Refusal> {
    let mut last = Refusal::new(reason::CHANNEL_CONFIG_ERROR, format!("{channel} has no CONNAME"));
    for name in &definition.connections {
        supervisor::may_call(channel, definition)?;
        match ping_one(manager, tls, channel, definition, name) {
            Ok(seen) => return Ok(seen),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

fn ping_one(
    manager: &Manager,
    tls: &Tls,
    channel: &str,
    definition: &ChannelDefinition,
    name: &str,
) -> Result<String, Refusal> {
    let began = Instant::now();
    let failed = |error: io::Error| Refusal::new(reason::HOST_NOT_AVAILABLE, format!("{name}: {error}"));
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    let address = name.to_socket_addrs().map_err(failed)?.next().ok_or_else(unknown).map_err(failed)?;
    let stream = TcpStream::connect_timeout(&address, PING_WITHIN).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let stream = Hasty { stream, deadline: began + PING_WITHIN };
    let target = Target { name: name.to_owned(), address };
    let mut engine = call::pinging_engine(&manager.name, definition, &target, began)?;
    let (partner, security) = match &definition.cipher_spec {
        None => (meet(&mut engine, &mut { stream }, began).map_err(failed)?, String::new()),
        Some(_) => {
            let ssl = tls::channel_client(tls, definition, channel, target.host());
            let ssl = ssl.map_err(|refusal| refusal.refusal())?;
            let mut stream = SslStream::new(ssl, stream).map_err(|error| failed(io::Error::other(error)))?;
            if let Err(error) = stream.do_handshake() {
                return Err(tls::of_failure(stream.ssl(), &error).refusal());
            }
            tls::check_channel(Some(stream.ssl()), definition).map_err(|refusal| refusal.refusal())?;
            let (protocol, cipher) = tls::agreed(Some(stream.ssl()));
            (meet(&mut engine, &mut stream, began).map_err(failed)?, format!(", {protocol} {cipher}"))
        }
    };
    let kind = if partner.is_bulla { "exactly once" } else { "at least once" };
    let product = if partner.product.is_empty() { "an unnamed product" } else { &partner.product };
    let took = began.elapsed().as_secs_f64() * 1e3;
    Ok(format!(
        "{name} answers: {} ({product} {}), {kind}{security}, in {took:.1} ms",
        partner.container, partner.version
    ))
}

/// Exchanges `open` and `close`.
fn meet(engine: &mut Connection, stream: &mut dyn Stream, began: Instant) -> io::Result<Partner> {
    let mut input = BytesMut::new();
    let mut partner = None;
    loop {
        while let Some(event) = engine.poll_event() {
            match event {
                Event::Opened(open) => {
                    partner = Some(Partner::said(&clients::introduction(&open)));
                    engine.close(None);
                }
                Event::Closed(None) => {}
                Event::Closed(Some(error)) => return Err(io::Error::other(sender::said(&outcomes::said(error)))),
                _ => {}
            }
        }
        while engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            engine.output_slices(&mut slices);
            let written = stream.write_vectored(&slices)?;
            drop(slices);
            engine.output_written(written);
        }
        stream.flush()?;
        if let (Some(partner), true) = (&partner, engine.is_closed()) {
            return Ok(partner.clone());
        }
        if began.elapsed() >= PING_WITHIN {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let old = input.len();
        input.resize(old + READ_BYTES, 0);
        let read = stream.read(&mut input[old..])?;
        input.truncate(old + read);
        if read == 0 {
            // A partner that has heard the close may end the connection without an answer.
            return partner.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        engine.receive(Instant::now(), &mut input);
    }
}
