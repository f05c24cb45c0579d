//! Dispatchers and adapters that come and go while messages pass.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use bulla::admin;
use bulla::mqsc::reply::EXIT_DONE;
use bulla::serve::{self, DISPATCHERS_MAX, Running, Settings};
use bulla_amqp::{BodyForm, DeliveryState, Header, MessageBody, MessageParts, Payload, SaslClient, Sections};
use bulla_client::{Client, Endpoint};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// No condition takes longer to come true.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that go over one connection before it is closed and another one is made.
const MESSAGES_PER_CONNECTION: usize = 20;
const PAIRS: usize = 4;

/// A queue manager in a directory of its own, with a queue for each pair.
fn queue_manager() -> (tempfile::TempDir, Running, Endpoint) {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(directory.path().to_owned());
    settings.listen.amqp = Some("127.0.0.1:0".parse().unwrap());
    settings.listen.amqps = None;
    (settings.dispatchers, settings.adapters) = (1, 1);
    let running = serve::start(&settings).unwrap();
    for command in bulla::authority::AS_BEFORE {
        mqsc(&directory, command);
    }
    for pair in 0..PAIRS {
        mqsc(&directory, &format!("DEFINE QLOCAL(Q{pair})"));
    }
    let address = running.amqp.unwrap().to_string();
    let sasl = SaslClient::Anonymous;
    (directory, running, Endpoint { address, authorities: None, certificate: None, sasl })
}

fn mqsc(directory: &tempfile::TempDir, command: &str) -> String {
    let replies = admin::request(directory.path(), command).unwrap();
    assert_eq!(replies[0].exit_code(), EXIT_DONE, "{command}: {:?}", replies[0]);
    replies[0].to_json().to_string()
}

fn message(number: usize) -> Payload {
    let header = Header { durable: number.is_multiple_of(2), ..Header::default() };
    let body = MessageBody::Data(Bytes::from(number.to_string()).into());
    MessageParts { header: Some(header), body, ..MessageParts::default() }.build()
}

fn number_of(message: &Payload) -> usize {
    let BodyForm::Data(range) = Sections::scan(message).unwrap().body else { panic!("one data section was put") };
    std::str::from_utf8(&message.slice(range).to_contiguous()).unwrap().parse().unwrap()
}

/// Puts numbers in turn, over one connection after another, until told to stop; how many there were.
fn put(endpoint: &Endpoint, queue: &str, passed: &AtomicUsize, stop: &AtomicBool) -> usize {
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        let mut client = Client::connect(endpoint).unwrap();
        let link = client.sender(queue, false).unwrap().link;
        for _ in 0..MESSAGES_PER_CONNECTION {
            client.put(link, message(number), PATIENCE).unwrap();
            number += 1;
            passed.fetch_add(1, Ordering::AcqRel);
        }
        client.close().unwrap();
    }
    number
}

/// Gets numbers, over one connection after another, until there are as many as were put; they come in turn.
fn get(endpoint: &Endpoint, queue: &str, put: &dyn Fn() -> Option<usize>) {
    let mut expected = 0;
    let end = Instant::now() + 2 * PATIENCE;
    while put() != Some(expected) {
        let mut client = Client::connect(endpoint).unwrap();
        let link = client.receiver(queue, false, false).unwrap().link;
        for _ in 0..MESSAGES_PER_CONNECTION {
            let Some(delivery) = client.get(link, None).unwrap() else { break };
            assert_eq!(number_of(&delivery.payload), expected, "{queue}");
            client.settle(&delivery, DeliveryState::Accepted).unwrap();
            expected += 1;
        }
        client.close().unwrap();
        assert!(Instant::now() < end, "{queue}: {expected} of {:?} came", put());
    }
}

/// Threads of this process whose names begin so.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(name)))
        .count()
}

#[track_caller]
fn wait_until<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, actual: impl Fn() -> T) {
    let end = Instant::now() + PATIENCE;
    while actual() != expected {
        assert!(Instant::now() < end, "{what}: {:?}, not {expected:?}", actual());
        std::thread::yield_now();
    }
}

/// One test, because it counts the threads of the process.
#[test]
fn dispatchers_come_and_go_under_load_and_no_message_is_lost_or_out_of_turn() {
    let (directory, running, endpoint) = queue_manager();
    let pools = running.threads().clone();
    let (stop, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for pair in 0..PAIRS {
            let queue = format!("Q{pair}");
            let (endpoint, passed, stop) = (&endpoint, &passed, &stop);
            let count = std::sync::Arc::new(std::sync::OnceLock::new());
            let (put_to, counted) = (queue.clone(), count.clone());
            scope.spawn(move || counted.set(put(endpoint, &put_to, passed, stop)));
            scope.spawn(move || get(endpoint, &queue, &|| count.get().copied()));
        }
        // Each change of size sees connections that began before it and some that begin after it.
        for count in [3, 1, 8, 2, 5, 1, DISPATCHERS_MAX, 1, 4] {
            mqsc(&directory, &format!("ALTER QMGR CHIDISPS({count}) CHIADAPS({count})"));
            let begun = passed.load(Ordering::Acquire);
            let enough = begun + 3 * PAIRS * MESSAGES_PER_CONNECTION;
            wait_until("messages pass", true, || passed.load(Ordering::Acquire) >= enough);
            // Every connection here ends soon.
            wait_until("surplus dispatchers end", count, || threads("dispatcher-"));
            wait_until("surplus adapters end", count, || threads("adapter-"));
        }
        stop.store(true, Ordering::Release);
    });
    // As many as at the start, which was one.
    mqsc(&directory, "ALTER QMGR CHIDISPS(AUTO) CHIADAPS(AUTO)");
    wait_until("they end", (1, 1), || (threads("dispatcher-"), threads("adapter-")));
    pools.resize_dispatchers(0).unwrap();
    pools.resize_adapters(0).unwrap();
    assert_eq!((threads("dispatcher-"), threads("adapter-")), (1, 1), "one is the least");

    // One that is surplus goes on while it has a connection.
    pools.resize_dispatchers(2).unwrap();
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(&endpoint).unwrap()).collect();
    pools.resize_dispatchers(1).unwrap();
    for client in &mut clients {
        let link = client.sender("Q0", false).unwrap().link;
        client.put(link, message(0), PATIENCE).unwrap();
        assert_eq!(threads("dispatcher-"), 2, "both connections are used");
    }
    let shown = mqsc(&directory, "DISPLAY CHINIT");
    assert!(shown.contains(r#""disps":2,"dispsreq":1"#) && shown.contains(r#""adaps":1,"adapsreq":1"#), "{shown}");
    assert!(shown.contains(&format!("amqp://{}", endpoint.address)), "{shown}");
    // Every one that comes now is the first one's.
    let more: Vec<Client> = (0..3).map(|_| Client::connect(&endpoint).unwrap()).collect();
    for client in clients {
        client.close().unwrap();
    }
    wait_until("it ends with its last connection", 1, || threads("dispatcher-"));
    more.into_iter().for_each(|client| client.close().unwrap());

    running.stop().unwrap();
    pools.resize_dispatchers(4).unwrap();
    assert_eq!(threads("dispatcher-"), 0, "a queue manager that has ended makes no more");
}
