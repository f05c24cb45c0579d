//! Units of work against single puts: persistent messages, one client, one thing in flight, over loopback.
//!
//! A unit step by step waits for the answers to its declare, to its messages and to its discharge, in turn. Sent at
//! once, the messages, their discharge and the next declare go out together. Rounds take turns, so that a busy machine
//! harms all alike. `cargo bench -p bulla --bench units`

use bulla::serve::{Listen, Settings, start};
use bulla_amqp::{Header, LinkId, MessageBody, MessageParts, Payload, SaslClient};
use bulla_client::{Client, Endpoint};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Bytes of a payload.
const BYTES: usize = 2_048;
/// Messages of a unit of work, and of the single puts it is compared with.
const UNIT: u32 = 10;
const ROUNDS: u32 = 2_000;
const WITHIN: Duration = Duration::from_secs(30);
const QUEUE: &str = "SYSTEM.DEAD.LETTER.QUEUE";

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let settings =
        Settings { listen: Listen { amqp: any, ..Listen::default() }, ..Settings::new(dir.path().join("qm")) };
    let running = start(&settings)?;
    running.manager().lock().definitions.authorities = bulla::authority::Authorities::open_to_all();
    let address = running.amqp.ok_or("it does not listen")?.to_string();
    let mut client =
        Client::connect(&Endpoint { address, authorities: None, certificate: None, sasl: SaslClient::None })?;
    let to = client.sender(QUEUE, false)?.link;
    let from = client.receiver(QUEUE, false, false)?.link;
    let (mut single, mut unit, mut at_once) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = None;
    for _ in 0..ROUNDS {
        single.push(timed(|| (0..UNIT).try_for_each(|_| client.put(to, message(), WITHIN)))?);
        take_away(&mut client, from)?;
        unit.push(timed(|| {
            let begun = client.begin()?;
            client.put_all_in(&begun, to, (0..UNIT).map(|_| message()), WITHIN)?;
            client.end(begun, true, WITHIN)
        })?);
        take_away(&mut client, from)?;
        let begun = next.take().map_or_else(|| client.begin(), Ok)?;
        at_once.push(timed(|| {
            next = Some(client.commit_with(begun, to, (0..UNIT).map(|_| message()), WITHIN)?);
            Ok::<(), Failure>(())
        })?);
        take_away(&mut client, from)?;
    }
    let single = report("10 single puts", single);
    for (name, rounds) in [("a unit of 10, step by step", unit), ("a unit of 10, sent at once", at_once)] {
        let times = single.as_secs_f64() / report(name, rounds).as_secs_f64();
        println!("{:<28} {times:>8.1} times as many", "");
    }
    client.close()?;
    running.stop()?;
    Ok(())
}

fn message() -> Payload {
    let parts = MessageParts {
        header: Some(Header { durable: true, ..Header::default() }),
        body: MessageBody::Data(Payload::from(Bytes::from_static(&[7; BYTES]))),
        ..MessageParts::default()
    };
    parts.build()
}

fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

/// Empties the queue, outside of what is timed.
fn take_away(client: &mut Client, from: LinkId) -> Result<(), Failure> {
    let begun = client.begin()?;
    for _ in 0..UNIT {
        let delivery = client.get(from, Some(WITHIN))?.ok_or("a message is missing")?;
        client.settle_in(&begun, &delivery, bulla_amqp::DeliveryState::Accepted)?;
    }
    Ok(client.end(begun, true, WITHIN)?)
}

/// Prints the rounds' median and quartiles as messages a second, and returns the median.
fn report(name: &str, mut rounds: Vec<Duration>) -> Duration {
    rounds.sort_unstable();
    let rate = |part: usize| f64::from(UNIT) / rounds[rounds.len() * part / 4].as_secs_f64();
    println!("{name:<28} {:>8.0} messages/s  quartiles {:>8.0} {:>8.0}", rate(2), rate(3), rate(1));
    rounds[rounds.len() / 2]
}
