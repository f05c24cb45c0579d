//! CPU a message through the engine, without sockets: in as frames, out as frames.
//!
//! Each line is nanoseconds a message of one thread: the median of many batches, so that a busy machine
//! does little harm. `cargo bench -p bulla-amqp --bench relay`

use bulla_amqp::{
    AttachReply, AttachRequest, Config, Connection, DeliveryState, Event, LinkId, Payload, Role, SaslClient, SaslOffer,
    ScramCrypto, Sections,
};
use bytes::{Bytes, BytesMut};
use std::hint::black_box;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// Messages between two visits to the (absent) socket.
const BATCH: u64 = 64;
const BATCHES: u64 = 20_000;
/// Credit that never runs out here.
const CREDIT: u32 = i32::MAX as u32;

fn main() {
    for size in [100, 2_048, 65_536] {
        scan(size);
        for settled in [true, false] {
            receive(size, settled);
            send(size, settled);
        }
    }
}

/// A message as a usual client writes it: header, properties, one data section.
fn message(size: usize) -> Vec<u8> {
    let mut bytes = vec![0, 0x53, 0x70, 0xc0, 2, 1, 0x42];
    bytes.extend_from_slice(&[0, 0x53, 0x73, 0xc0, 10, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend(bulla_amqp::message::data_section_head(size));
    bytes.resize(bytes.len() + size, 7);
    bytes
}

/// Prints the median of batches of [`BATCH`] messages.
fn report(name: &str, size: usize, mut batches: Vec<Duration>) {
    batches.sort_unstable();
    let median = batches.get(batches.len() / 2).copied().unwrap_or_default();
    println!("{name:<16} {size:>6} bytes {:>8.1} ns a message", median.as_nanos() as f64 / BATCH as f64);
}

fn scan(size: usize) {
    let payload = Payload::from(Bytes::from(message(size)));
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            let sections = Sections::scan(black_box(&payload)).expect("a good message");
            black_box(sections.decode_header(&payload).expect("a good header"));
        }
        batches.push(start.elapsed());
    }
    report("scan and header", size, batches);
}

/// Transfers in, deliveries out, each accepted, dispositions written.
fn receive(size: usize, settled: bool) {
    let (mut client, mut server, now) = opened();
    let (client_link, server_link) = attach(&mut client, &mut server, now, Role::Sender);
    let message = Payload::from(Bytes::from(message(size)));
    server.set_credit(server_link, CREDIT);
    exchange(&mut client, &mut server, now);
    let batches = BATCHES.min(40_000_000 / (size as u64 + 1_000));
    let mut spent = Vec::new();
    let mut accepted = 0u64;
    for _ in 0..batches {
        for token in 0..BATCH {
            assert!(client.send(client_link, token, message.clone(), settled));
        }
        let mut input = BytesMut::new();
        take(&mut client, &mut input);
        let start = Instant::now();
        server.receive(now, &mut input);
        while let Some(event) = server.poll_event() {
            if let Event::Delivery(delivery) = event {
                accepted += 1;
                if !delivery.settled {
                    server.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
                }
                black_box(&delivery.payload);
            }
        }
        let answer = write(&mut server);
        spent.push(start.elapsed());
        let mut answer = BytesMut::from(&answer[..]);
        client.receive(now, &mut answer);
        while client.poll_event().is_some() {}
    }
    assert_eq!(accepted, batches * BATCH);
    report(if settled { "in, settled" } else { "in, accepted" }, size, spent);
}

/// Messages out as transfers, outcomes in.
fn send(size: usize, settled: bool) {
    let (mut client, mut server, now) = opened();
    let (client_link, server_link) = attach(&mut client, &mut server, now, Role::Receiver);
    client.set_credit(client_link, CREDIT);
    exchange(&mut client, &mut server, now);
    let message = Payload::from(Bytes::from(message(size)));
    let batches = BATCHES.min(40_000_000 / (size as u64 + 1_000));
    let mut spent = Vec::new();
    let mut outcomes = 0u64;
    for _ in 0..batches {
        let start = Instant::now();
        for token in 0..BATCH {
            if server.can_send(server_link) {
                server.send(server_link, token, message.clone(), settled);
            }
        }
        let count = look(&mut server);
        let mut time = start.elapsed();
        let mut input = BytesMut::new();
        copy(&mut server, &mut input);
        let start = Instant::now();
        server.output_written(count);
        time += start.elapsed();
        take(&mut server, &mut input);
        client.receive(now, &mut input);
        while let Some(event) = client.poll_event() {
            if let Event::Delivery(delivery) = event {
                client.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
            }
        }
        let answer = write(&mut client);
        let mut answer = BytesMut::from(&answer[..]);
        let start = Instant::now();
        server.receive(now, &mut answer);
        while let Some(event) = server.poll_event() {
            if let Event::Outcome { token, .. } = event {
                outcomes += 1;
                black_box(token);
            }
        }
        spent.push(time + start.elapsed());
    }
    assert!(settled || outcomes == batches * BATCH);
    report(if settled { "out, settled" } else { "out, accepted" }, size, spent);
}

/// What a host does before a vectored write: the slices of the output.
fn look(connection: &mut Connection) -> usize {
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(256);
    let count = connection.output_slices(&mut slices);
    black_box(&slices);
    count
}

fn copy(connection: &mut Connection, into: &mut BytesMut) {
    let mut slices = Vec::new();
    connection.output_slices(&mut slices);
    slices.iter().for_each(|slice| into.extend_from_slice(slice));
}

/// All output, copied to the other side's input.
fn take(connection: &mut Connection, into: &mut BytesMut) {
    while connection.output_len() > 0 {
        let mut slices = Vec::new();
        let count = connection.output_slices(&mut slices);
        slices.iter().for_each(|slice| into.extend_from_slice(slice));
        drop(slices);
        connection.output_written(count);
    }
}

fn write(connection: &mut Connection) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    take(connection, &mut bytes);
    bytes.to_vec()
}

fn opened() -> (Connection, Connection, Instant) {
    let now = Instant::now();
    let offer = SaslOffer { mechanisms: Vec::new(), allow_bare_amqp: true };
    let mut config = Config::new("bench");
    config.limits.output_bytes = 64 << 20;
    let mut client = Connection::client(config.clone(), SaslClient::None, Box::new(NoCrypto), now);
    let mut server = Connection::server(config, offer, now);
    exchange(&mut client, &mut server, now);
    (client, server, now)
}

/// Moves bytes until both are still; events are dropped, but for the links to accept.
fn exchange(client: &mut Connection, server: &mut Connection, now: Instant) -> Option<LinkId> {
    let mut link = None;
    loop {
        let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
        take(client, &mut to_server);
        take(server, &mut to_client);
        if to_server.is_empty() && to_client.is_empty() {
            return link;
        }
        server.receive(now, &mut to_server);
        client.receive(now, &mut to_client);
        while client.poll_event().is_some() {}
        while let Some(event) = server.poll_event() {
            if let Event::Attached(asked) = event {
                link = Some(asked.link);
                let reply = AttachReply {
                    source: asked.source.clone(),
                    target: Some(Default::default()),
                    ..AttachReply::default()
                };
                server.accept_link(asked.link, reply);
            }
        }
    }
}

fn attach(client: &mut Connection, server: &mut Connection, now: Instant, role: Role) -> (LinkId, LinkId) {
    let session = client.begin();
    let request = match role {
        Role::Sender => AttachRequest::sender("link", "queue"),
        Role::Receiver => AttachRequest::receiver("link", "queue"),
    };
    let link = client.attach(session, request);
    (link, exchange(client, server, now).expect("the server was asked"))
}

/// No SASL here, so no arithmetic either.
struct NoCrypto;

impl ScramCrypto for NoCrypto {
    fn hmac(&self, _: &[u8], _: &[u8]) -> [u8; 32] {
        [0; 32]
    }

    fn sha256(&self, _: &[u8]) -> [u8; 32] {
        [0; 32]
    }

    fn pbkdf2(&self, _: &[u8], _: &[u8], _: u32) -> [u8; 32] {
        [0; 32]
    }

    fn nonce(&self) -> String {
        String::new()
    }
}
