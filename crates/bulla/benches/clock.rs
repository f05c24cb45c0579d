//! Whether a client can tell by the clock what was wrong inside a sealed message, through the socket.
//!
//! `cargo bench -p bulla --bench clock` starts a queue manager, puts signed and encrypted messages that fail in
//! different ways, in random order, and takes the time from each put until the message is seen on the error queue: it
//! is opened for a reader who waits for it, does not open, and is moved. Each message is put once. The times of each
//! way are compared with those of the first (`leak/mod.rs` says how), with AES-GCM and AES-CBC, signers with RSA and EC
//! keys (the reader has the other kind), whose messages were read before or not. The first way is there twice and must
//! not be told from itself. A control, a payload 64 times as long, must be told apart. At the end of each run a good
//! message is put, and must be read: what fails does so for its damage alone. Arguments: samples of each way (10,000 by
//! default), and a word that the name of a row must contain. The exit code is 1 if a verdict is not the expected one.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../bulla-seal/tests/common/mod.rs"]
mod common;
#[path = "../../bulla-device/benches/leak/mod.rs"]
mod leak;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulla::admin;
use bulla::mqsc::reply::EXIT_DONE;
use bulla::serve::{self, Listen, Running, Settings};
use bulla_amqp::types::{MessageId, Properties};
use bulla_amqp::{DeliveryState, LinkId, MessageBody, MessageParts, Payload, SaslClient, Symbol};
use bulla_client::{Client, Endpoint};
use bulla_device::Digest;
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::ContentCipher;
use bulla_seal::{Bound, Policy};
use bytes::Bytes;
use common::damaged::{Maker, Way, ways};
use common::*;

const NAME: &str = "QM1";
const QUEUE: &str = "TIMED";
const ERROR_QUEUE: &str = "SYSTEM.PROTECTION.ERROR.QUEUE";
const PASSWORD: &str = "not a secret";
/// Longer than anything takes unless it is broken.
const WITHIN: Duration = Duration::from_secs(60);
/// How long the reader waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_secs(1);
/// The first messages, which warm the caches and are not counted.
const WARM_UP: usize = 128;
/// Messages made at a time, before they are put one after the other.
const BLOCK: usize = 256;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let samples: usize = arguments.next().map_or(10_000, |word| word.parse().unwrap());
    let wanted = arguments.next().unwrap_or_default();
    println!("{samples} messages of each way in random order, from the put until each is seen on the error queue;");
    println!("the greatest |t| of {:?} against the first way", leak::PERCENTILES);
    println!("{:<14} {:<8} {:<18} {:>10} {:>8}  verdict", "cipher", "signer", "", "median, µs", "|t|");
    let mut as_expected = true;
    for cipher in [ContentCipher::Aes256Gcm, ContentCipher::Aes256Cbc] {
        for (spec, other) in [(RSA, P256), (P256, RSA)] {
            for known in [true, false] {
                let (kind, seen) = (if spec == RSA { "RSA" } else { "EC" }, if known { "seen" } else { "new" });
                let signer = format!("{kind} {seen}");
                if format!("{cipher} {signer}").contains(&wanted) {
                    as_expected &= row(cipher, spec, other, known, samples, &signer);
                }
            }
        }
    }
    if !as_expected {
        std::process::exit(1);
    }
}

/// One queue manager, one kind of signer.
fn row(cipher: ContentCipher, spec: KeySpec, other: KeySpec, known: bool, samples: usize, signer: &str) -> bool {
    let world = World::new();
    let (alice, bob) = (world.person("alice", spec), world.person("bob", other));
    let sender = world.ring("alice", &[&alice], &[&bob]);
    world.ring("bob", &[&bob], &[&alice]);
    let policy = policy_of(Some(Digest::Sha256), Some(cipher), &[&bob]);
    let policy = Arc::new(Policy { signers: vec![alice.dn.clone()], ..policy });
    let site = Site::start(world.dir.path(), cipher);
    let id = MessageId::String("id-1".to_owned());
    let encoded = Bytes::from_static(b"\xa1\x04id-1");
    let bound = Bound {
        destination: format!("{QUEUE}@{NAME}"),
        message_id: encoded.clone(),
        properties: encoded,
        application_properties: Bytes::new(),
        annotations: Bytes::new(),
    };
    let mut maker = Maker::new(&policy, &sender, bound);
    let mut put = site.client(scram("alice"));
    let to = put.sender(QUEUE, true).unwrap().link;
    let mut watch = site.client(SaslClient::Anonymous);
    let from = watch.receiver(ERROR_QUEUE, false, true).unwrap().link;
    let (reader, stop) = (site.reader(), Arc::new(AtomicBool::new(false)));
    let reading = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || read(reader, &stop)
    });
    if known {
        put.put(to, message(maker.good(), &id), WITHIN).unwrap();
    }
    let ways = ways(cipher);
    let counts: Vec<usize> = ways.iter().map(|way| if way.alike { samples } else { samples / 10 }).collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    let turns = leak::shuffled(&counts);
    for (number, block) in turns.chunks(BLOCK).enumerate() {
        let made: Vec<(usize, Payload)> =
            block.iter().map(|(way, _)| (*way, message(maker.damaged(&ways[*way]), &id))).collect();
        for (turn, (way, message)) in made.into_iter().enumerate() {
            let time = until_seen((&mut put, to), (&mut watch, from), message);
            if number * BLOCK + turn >= WARM_UP {
                times[way].push(time.as_nanos() as f64 / 1000.0);
            }
        }
    }
    put.put(to, message(maker.good(), &id), WITHIN).unwrap();
    stop.store(true, Ordering::Release);
    assert_eq!(reading.join().unwrap(), 1 + usize::from(known), "good messages are read");
    let as_expected = show(cipher, signer, &ways, &times);
    site.running.stop().unwrap();
    as_expected
}

fn show(cipher: ContentCipher, signer: &str, ways: &[Way], times: &[Vec<f64>]) -> bool {
    let mut as_expected = true;
    for (way, measured) in ways.iter().zip(times) {
        let t = leak::greatest_t(&times[0], measured);
        let (expected, said) = leak::verdict(t, way.alike);
        as_expected &= expected;
        println!("{cipher:<14} {signer:<8} {:<18} {:>10.2} {t:>8.2}  {said}", way.name, leak::median(measured));
    }
    as_expected
}

/// Puts one message; how long it takes until it is on the error queue. The credit for it is given before.
fn until_seen(put: (&mut Client, LinkId), watch: (&mut Client, LinkId), message: Payload) -> Duration {
    assert!(watch.0.get(watch.1, Some(Duration::ZERO)).unwrap().is_none(), "nothing else is on the error queue");
    let start = Instant::now();
    put.0.put(put.1, message, WITHIN).unwrap();
    let moved = watch.0.get(watch.1, Some(WITHIN)).unwrap().expect("a message that was moved");
    let time = start.elapsed();
    let label = moved.payload.to_contiguous();
    const CAUSE: &[u8] = b"cannot-decrypt";
    assert!(label.windows(CAUSE.len()).any(|window| window == CAUSE), "it was moved for another cause");
    watch.0.settle(&moved, DeliveryState::Accepted).unwrap();
    time
}

/// Reads what opens until it is told to stop and nothing comes any more; how many there were.
fn read((mut client, link): (Client, LinkId), stop: &AtomicBool) -> usize {
    let mut count = 0;
    loop {
        let last = stop.load(Ordering::Acquire);
        match client.get(link, Some(LOOK)).unwrap() {
            Some(delivery) => {
                client.settle(&delivery, DeliveryState::Accepted).unwrap();
                count += 1;
            }
            None if last => return count,
            None => {}
        }
    }
}

fn message(der: Bytes, id: &MessageId) -> Payload {
    let properties = Properties {
        message_id: Some(id.clone()),
        content_type: Some(Symbol::from_static("application/pkcs7-mime")),
        ..Properties::default()
    };
    let mut section = Vec::new();
    properties.encode_section(&mut section);
    let body = MessageBody::Data(der.into());
    MessageParts { properties: section.into(), body, ..MessageParts::default() }.build()
}

fn scram(user: &str) -> SaslClient {
    SaslClient::Scram { user: user.to_owned(), password: PASSWORD.to_owned() }
}

/// A queue manager with the rings of a world.
struct Site {
    running: Running,
}

impl Site {
    fn start(directory: &Path, cipher: ContentCipher) -> Site {
        let any = Some("127.0.0.1:0".parse().unwrap());
        let settings = Settings {
            listen: Listen { amqp: any, ..Listen::default() },
            name: Some(NAME.to_owned()),
            ..Settings::new(directory.to_owned())
        };
        let running = serve::start(&settings).unwrap();
        let mqsc = |command: &str| {
            let replies = admin::request(directory, command).unwrap();
            assert_eq!(replies[0].exit_code(), EXIT_DONE, "{command}: {:?}", replies[0]);
        };
        bulla::authority::AS_BEFORE.into_iter().for_each(mqsc);
        mqsc(&format!("DEFINE QLOCAL({QUEUE}) DEFPSIST(NO)"));
        mqsc(&format!(
            "SET POLICY({QUEUE}) SIGNALG(SHA256) ENCALG({cipher}) RECIP('CN=bob,O=Bulla') SIGNER('CN=alice,O=Bulla') \
             ONDEFECT(CONTINUE)"
        ));
        for user in ["alice", "bob"] {
            running.manager().sign_ins.users.add(user, PASSWORD, 4096).unwrap();
        }
        Site { running }
    }

    fn client(&self, sasl: SaslClient) -> Client {
        let address = self.running.amqp.unwrap().to_string();
        Client::connect(&Endpoint { address, authorities: None, certificate: None, sasl }).unwrap()
    }

    /// A reader for whom messages are opened.
    fn reader(&self) -> (Client, LinkId) {
        let mut client = self.client(scram("bob"));
        let link = client.receiver(QUEUE, false, false).unwrap().link;
        (client, link)
    }
}
