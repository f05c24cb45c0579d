//! From nothing to accepting connections: an empty store, and two with a million messages of 2 KB each, which need no
//! key, and one of a hundred keys.
//!
//! `cargo bench -p bulla --bench start`; a large store takes some 4 GB of disk in the temporary folder.

use bulla::serve::{self, JOURNAL, Settings};
use bulla_queue::{
    Chunks, DirStorage, Driver, FileLog, FileLogOptions, FileSpill, KeyNames, Keys, Limits, Message, QueueAttributes,
    Store,
};
use bytes::Bytes;
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

/// Messages in the large store.
const MESSAGES: u64 = 1_000_000;
/// Bytes of each.
const MESSAGE_BYTES: usize = 2048;
/// Keys that the sealed messages need, one after the other.
const KEYS: usize = 100;
/// Starts of each kind.
const ROUNDS: usize = 9;

fn main() {
    report(&[("empty store", &|_: &Path| {})]);
    report(&[
        ("1,000,000 persistent messages of 2 KB, which need no key", &|data| fill(data, &[])),
        ("the same, each of which needs one of 100 keys", &|data| fill(data, &key_names())),
    ]);
}

/// Names as certificates have them: so long, and different at their end.
fn key_names() -> Vec<KeyNames> {
    let name = |number: usize| Bytes::from([vec![7; 48], number.to_be_bytes().to_vec()].concat());
    (0..KEYS).map(|number| [name(number)].into()).collect()
}

/// What is prepared to start from, and how.
type Prepared<'a> = (&'a str, &'a dyn Fn(&Path));

/// Starts each in turn: what the machine does meanwhile is the same for all.
fn report(kinds: &[Prepared<'_>]) {
    let mut all: Vec<_> = kinds
        .iter()
        .map(|(what, prepare)| {
            let data = tempfile::tempdir().expect("a temporary folder");
            prepare(data.path());
            // The first start makes what later ones find: directories, definitions.
            start(data.path());
            (what, data, Vec::new())
        })
        .collect();
    for _ in 0..ROUNDS {
        all.iter_mut().for_each(|(_, data, times)| times.push(start(data.path())));
    }
    for (what, _, times) in &mut all {
        times.sort_by(f64::total_cmp);
        println!(
            "{what}: median {:.1} ms of {ROUNDS} starts [{:.1} to {:.1}]",
            times[ROUNDS / 2],
            times[0],
            times[ROUNDS - 1]
        );
    }
}

/// Milliseconds from the call to an accepted connection.
fn start(data: &Path) -> f64 {
    let mut settings = Settings::new(data.to_owned());
    settings.listen.amqp = Some(([127, 0, 0, 1], 0).into());
    settings.listen.amqps = None;
    let begun = Instant::now();
    let running = serve::start(&settings).expect("a start");
    let connection = TcpStream::connect(running.amqp.expect("an address")).expect("a connection");
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    drop(connection);
    running.stop().expect("a stop");
    ms
}

/// Messages that need one of these keys, one after the other; none where there are no keys.
fn fill(data: &Path, keys: &[KeyNames]) {
    let folder = |name: &str| {
        let path = data.join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        DirStorage::new(path)
    };
    let options = FileLogOptions { driver: Driver::Thread, ..FileLogOptions::default() };
    let log = FileLog::open(folder(JOURNAL), options).expect("a log");
    let spill = FileSpill::open(folder("spill"), 1 << 30).expect("scratch space");
    let now = Instant::now();
    let mut store = Store::open(Box::new(log), Box::new(spill), Limits::default(), now).expect("a store");
    let attributes = QueueAttributes { max_depth: u32::MAX, ..QueueAttributes::default() };
    let queue = store.define("SYSTEM.DEAD.LETTER.QUEUE", attributes).expect("a queue");
    let body = Chunks::from(vec![7; MESSAGE_BYTES]);
    for number in 0..MESSAGES {
        let message = Message {
            priority: 4,
            persistent: true,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: number,
            user: None,
            keys: keys.get(number as usize % keys.len().max(1)).cloned().map_or(Keys::None, Keys::OneOf),
            body: body.clone(),
        };
        store.put(queue, message).expect("a put");
        if number % 500 == 0 {
            store.sync(now).expect("a sync");
        }
    }
    store.close(now).expect("a close");
}
