//! What key resets and records of TLS cost, beside the library's own numbers in the same run.
//!
//! `cargo bench -p bulla --bench tls`. Both ends are in this process, on one thread, over loopback: times and CPU are
//! those of the two together, with no queue manager around them. Whole channels and TLS starts are measured by
//! `bulla perf channel` and `bulla perf handshake`.

use bulla::catalog::{ChannelDefinition, ChannelKind, Definitions};
use bulla::tls::{Tls, channel_client};
use bulla::turn::Moved;
use bulla::turn::tls_socket::TlsSocket;
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use mio::net::TcpStream;
use openssl::symm::{Cipher, Crypter, Mode};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::IoSlice;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};
use tempfile::TempDir;

/// Measurements of each kind; the middle one is shown, and the smallest and largest.
const ROUNDS: usize = 5;
/// Resets in one measurement.
const RESETS: usize = 200;
/// Bytes moved in one measurement of records.
const RECORD_BYTES_TOTAL: usize = 256 << 20;
const CHANNEL: &str = "QM1.TO.QM2";

fn main() {
    let site = Site::new();
    println!("== the library's own, this run");
    let gcm = own_cipher("AES-256-GCM", Cipher::aes_256_gcm());
    own_cipher("AES-256-CBC (without its MAC)", Cipher::aes_256_cbc());

    println!("\n== key resets, RSA 2048, both ends on one core");
    for (spec, mutual) in [(GCM12, false), (GCM12, true), ("TLS_AES_256_GCM_SHA384", true)] {
        resets(&site, spec, mutual);
    }

    println!("\n== records, both ends on one core");
    for spec in ["TLS_AES_256_GCM_SHA384", GCM12, "TLS_AES_128_GCM_SHA256", "ECDHE_RSA_AES_256_CBC_SHA384"] {
        records(&site, spec, gcm);
    }
}

const GCM12: &str = "ECDHE_RSA_AES_256_GCM_SHA384";

/// Two queue managers' certificates under one authority.
struct Site {
    folder: TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let now = SystemTime::now();
        let name = "CN=Root".parse().expect("a name");
        let authority = Authority::create(&folder.path().join("authority"), &name, KeySpec::Ec(Curve::P256), 30, now);
        let authority = authority.expect("an authority");
        for end in ["caller", "called"] {
            let dir = folder.path().join(end);
            fs::create_dir_all(&dir).expect("a folder");
            let request = Request {
                dn: format!("CN={end}").parse().expect("a name"),
                key: KeySpec::Rsa(2048),
                uses: vec![KeyUse::Handshake],
                days: 10,
                alternative_names: vec![AlternativeName::Dns("localhost".into())],
                passphrase: None,
            };
            let (certificate, key) = authority.issue(&request, now).expect("a certificate");
            fs::write(dir.join("server.pem"), certificate.to_pem()).expect("a file");
            fs::write(dir.join("server.key"), key.as_bytes()).expect("a file");
            fs::write(dir.join("clients.pem"), authority.root().to_pem()).expect("a file");
        }
        // A caller that has no certificate to show.
        fs::create_dir_all(folder.path().join("bare")).expect("a folder");
        fs::write(folder.path().join("bare/clients.pem"), authority.root().to_pem()).expect("a file");
        Self { folder }
    }

    fn dir(&self, end: &str) -> PathBuf {
        self.folder.path().join(end)
    }

    /// Both ends of a channel.
    fn ends(&self, spec: &str, mutual: bool) -> Ends {
        let channel = |kind| ChannelDefinition {
            cipher_spec: Some(spec.to_owned()),
            client_certificate_required: mutual,
            ..ChannelDefinition::new(kind)
        };
        let caller = Tls::new(self.dir(if mutual { "caller" } else { "bare" }));
        let called = Tls::new(self.dir("called"));
        let mut definitions = Definitions::initial("QM2");
        definitions.channels.insert(CHANNEL.into(), channel(ChannelKind::Receiver));
        called.follow(&definitions);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Ends { caller, called, definition: channel(ChannelKind::Sender), listener }
    }
}

struct Ends {
    caller: Tls,
    called: Tls,
    definition: ChannelDefinition,
    listener: TcpListener,
}

impl Ends {
    /// Two sockets whose handshake is yet to come.
    fn connect(&self) -> [TlsSocket; 2] {
        let near = std::net::TcpStream::connect(self.listener.local_addr().expect("an address")).expect("a connection");
        let (far, _) = self.listener.accept().expect("a connection");
        let client = channel_client(&self.caller, &self.definition, CHANNEL, "localhost").expect("a session");
        let server = self.called.session().expect("a session");
        [(near, client), (far, server)].map(|(stream, ssl)| {
            stream.set_nonblocking(true).expect("a socket");
            stream.set_nodelay(true).expect("a socket");
            TlsSocket::new(TcpStream::from_std(stream), ssl).expect("a socket")
        })
    }

    fn connected(&self) -> [TlsSocket; 2] {
        let mut ends = self.connect();
        while ends.iter().any(|end| end.established().is_none()) {
            for end in &mut ends {
                end.handshake().expect("a handshake");
            }
        }
        ends
    }
}

fn resets(site: &Site, spec: &str, mutual: bool) {
    let ends = site.ends(spec, mutual);
    let [mut near, mut far] = ends.connected();
    near.set_key_reset(u64::MAX);
    far.allow_renegotiation(true);
    let mut exchange = |reset: bool| {
        for _ in 0..RESETS {
            if reset {
                near.reset_before_data_after_heartbeat();
            }
            let mut sent = false;
            // A message that pays for its reset under the limit of what a partner may begin.
            let message = [7; 33 << 10];
            let (mut at, mut heard) = (0, 0);
            while heard < message.len() {
                if at < message.len()
                    && let Moved::Bytes(n) = near.write(&[IoSlice::new(&message[at..])]).expect("a write")
                {
                    at += n;
                    sent |= at == message.len();
                }
                if !sent {
                    assert!(matches!(near.read(&mut [0; 64]).expect("a read"), Moved::Blocked));
                }
                if let Moved::Bytes(n) = far.read(&mut [0; 64 << 10]).expect("a read") {
                    heard += n;
                }
            }
            // The partner's own key update.
            assert!(matches!(near.read(&mut [0; 64]).expect("a read"), Moved::Blocked));
        }
        RESETS
    };
    let with = rounds(|| exchange(true));
    let without = rounds(|| exchange(false));
    let done = near.key_resets();
    assert_eq!(done, (ROUNDS * RESETS) as u64, "each message had its reset");
    let what = if spec.starts_with("TLS_") { "KeyUpdate both ways" } else { "renegotiation" };
    let who = match (spec == GCM12, mutual) {
        (true, true) => ", both show certificates",
        (true, false) => ", server certificate alone",
        _ => "",
    };
    println!(
        "{spec}: {what}{who}: {:.1} µs a reset, {:.1} µs of CPU (a message of 33 KiB with {:.1} [{:.1} to {:.1}], without {:.1} [{:.1} to {:.1}])",
        with.elapsed - without.elapsed,
        with.cpu - without.cpu,
        with.elapsed,
        with.min,
        with.max,
        without.elapsed,
        without.min,
        without.max,
    );
}

fn records(site: &Site, spec: &str, own_us: f64) {
    let ends = site.ends(spec, false);
    let [mut near, mut far] = ends.connected();
    let chunk = vec![7; 256 << 10];
    let mut room = vec![0; 256 << 10];
    let measured = rounds(|| {
        let (mut sent, mut heard) = (0, 0);
        while heard < RECORD_BYTES_TOTAL {
            let len = chunk.len().min(RECORD_BYTES_TOTAL - sent);
            if len > 0
                && let Moved::Bytes(n) = near.write(&[IoSlice::new(&chunk[..len])]).expect("a write")
            {
                sent += n;
            }
            near.send().expect("a write");
            if let Moved::Bytes(n) = far.read(&mut room).expect("a read") {
                heard += n;
            }
        }
        RECORD_BYTES_TOTAL >> 14
    });
    println!(
        "{spec}: {:.0} MB/s, {:.2} µs for 16 KiB sealed, moved and opened [{:.2} to {:.2}]; AES-256-GCM alone, sealed and opened, is {own_us:.2} µs",
        16_384.0 / measured.elapsed,
        measured.elapsed,
        measured.min,
        measured.max,
    );
}

/// Microseconds in which 16 KiB are sealed and opened, as `openssl speed -evp` counts one of the two.
fn own_cipher(name: &str, cipher: Cipher) -> f64 {
    const RECORDS: usize = 4096;
    let (key, iv) = (vec![1; cipher.key_len()], vec![2; cipher.iv_len().unwrap_or_default()]);
    let input = vec![7; 16 << 10];
    let mut output = vec![0; input.len() + cipher.block_size()];
    let mut one_way = |mode| {
        rounds(|| {
            let mut crypter = Crypter::new(cipher, mode, &key, Some(&iv)).expect("a cipher");
            crypter.pad(false);
            for _ in 0..RECORDS {
                crypter.update(&input, &mut output).expect("a record");
            }
            RECORDS
        })
    };
    let (seal, open) = (one_way(Mode::Encrypt), one_way(Mode::Decrypt));
    println!("{name}, 16 KiB: sealed in {:.2} µs, opened in {:.2} µs", seal.elapsed, open.elapsed);
    seal.elapsed + open.elapsed
}

/// Microseconds of one operation: the middle of the rounds elapsed and CPU, and the extremes.
struct Measured {
    elapsed: f64,
    cpu: f64,
    min: f64,
    max: f64,
}

fn rounds(mut round: impl FnMut() -> usize) -> Measured {
    let mut elapsed = Vec::new();
    let mut cpu = Vec::new();
    for _ in 0..ROUNDS {
        let (begun, cpu_begun) = (Instant::now(), cpu_us());
        let count = round() as f64;
        elapsed.push(begun.elapsed().as_secs_f64() * 1e6 / count);
        cpu.push((cpu_us() - cpu_begun) / count);
    }
    elapsed.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    Measured { elapsed: elapsed[ROUNDS / 2], cpu: cpu[ROUNDS / 2], min: elapsed[0], max: elapsed[ROUNDS - 1] }
}

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
