//! What TLS costs: starts, key resets and records, beside the library's own numbers in the same run.
//!
//! `cargo bench -p bulla --bench tls`. Both ends are in this process, on one thread, over loopback: rates and CPU are
//! those of the two together, except where a line says whose they are. Where the accelerator's library lies beside the
//! program (`make lanes`), starts are also measured with the signatures of 64 handshakes at a time on its lanes.

use bulla::dispatcher::Moved;
use bulla::dispatcher::tls_socket::TlsSocket;
use bulla::mqsc::channel::{ChannelDefinition, ChannelKind};
use bulla::mqsc::objects::Definitions;
use bulla::tls::{Tls, channel_client};
use bulla_device::scheduler::{Answer, Sink, State};
use bulla_device::{Accelerator, Driver, Inline, Job, Kind, LIBRARY_FILE, Scheduler};
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use mio::net::TcpStream;
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::symm::{Cipher, Crypter, Mode};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::IoSlice;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// Measurements of each kind; the middle one is shown, and the smallest and largest.
const ROUNDS: usize = 5;
/// Starts and resets in one measurement.
const STARTS: usize = 128;
const RESETS: usize = 200;
/// Bytes moved in one measurement of records.
const RECORD_BYTES_TOTAL: usize = 256 << 20;
/// Handshakes under way at once where an accelerator signs.
const SIDE_BY_SIDE: usize = 64;
const CHANNEL: &str = "QM1.TO.QM2";

fn main() {
    let site = Site::new();
    println!("== the library's own, this run");
    let sign = own_signature(&site);
    let gcm = own_cipher("AES-256-GCM", Cipher::aes_256_gcm());
    own_cipher("AES-256-CBC (without its MAC)", Cipher::aes_256_cbc());

    println!("\n== channel starts, RSA 2048, both ends on one core");
    for (spec, mutual) in
        [("TLS_AES_256_GCM_SHA384", false), ("TLS_AES_256_GCM_SHA384", true), (GCM12, false), (GCM12, true)]
    {
        starts(&site, spec, mutual, None, sign);
    }
    match lanes() {
        Some(devices) => {
            for mutual in [false, true] {
                starts(&site, "TLS_AES_256_GCM_SHA384", mutual, Some(&devices), sign);
            }
            devices.shut_down();
        }
        None => println!("no accelerator: its library is not beside the program, or the processor lacks AVX-512 IFMA"),
    }

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

fn starts(site: &Site, spec: &str, mutual: bool, devices: Option<&Devices>, sign_us: f64) {
    let ends = site.ends(spec, mutual);
    drop(ends.connected());
    let measured = rounds(|| match devices {
        None => {
            for _ in 0..STARTS {
                drop(ends.connected());
            }
            STARTS
        }
        Some(devices) => devices.starts(&ends),
    });
    let signatures = 1 + usize::from(mutual);
    let per_second = 1e6 / measured.elapsed;
    let who = if mutual { "both show certificates" } else { "server certificate alone" };
    let how = if devices.is_some() { "64 at a time on the lanes" } else { "one at a time in place" };
    println!(
        "{spec} ({who}; {how}): {per_second:.0} starts a second, {} µs of CPU of this thread a start [{:.0} to {:.0} µs elapsed]; {signatures} signatures alone are {:.0} µs",
        measured.cpu.round(),
        measured.min,
        measured.max,
        sign_us * signatures as f64,
    );
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

/// An accelerator, and the answers that its thread gives.
struct Devices {
    scheduler: Arc<Scheduler>,
    answers: Arc<Answers>,
    sink: Arc<dyn Sink>,
}

#[derive(Default)]
struct Answers(Mutex<Vec<Answer>>);

impl Sink for Answers {
    fn finished(&self, mut answers: Vec<Answer>) {
        self.0.lock().expect("a lock").append(&mut answers);
    }
}

fn lanes() -> Option<Devices> {
    let program = std::env::current_exe().ok()?;
    let library =
        program.ancestors().skip(1).take(3).map(|folder| folder.join(LIBRARY_FILE)).find(|path| path.exists())?;
    let scheduler = Scheduler::new(Kind::Cpu, 1);
    let open = move || Accelerator::open("ACCEL1", &library).map(|device| Arc::new(device) as Arc<dyn Driver>);
    scheduler.define("ACCEL1", Kind::Accelerator, 64, Arc::new(open)).ok()?;
    scheduler.start("ACCEL1").ok()?;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let report = scheduler.report().into_iter().find(|report| report.name == "ACCEL1")?;
        match report.state {
            State::Running => break,
            State::Starting if Instant::now() < deadline => std::thread::yield_now(),
            _ => return None,
        }
    }
    let answers = Arc::<Answers>::default();
    Some(Devices { scheduler, sink: answers.clone(), answers })
}

impl Devices {
    fn shut_down(&self) {
        self.scheduler.shut_down();
    }

    /// Handshakes side by side, their signatures placed together as a dispatcher places them.
    fn starts(&self, ends: &Ends) -> usize {
        let mut inline = Inline::new();
        for _ in 0..STARTS / SIDE_BY_SIDE {
            let mut pairs: Vec<[TlsSocket; 2]> = (0..SIDE_BY_SIDE).map(|_| ends.connect()).collect();
            pairs.iter_mut().flatten().for_each(TlsSocket::use_devices);
            while pairs.iter().flatten().any(|end| end.established().is_none()) {
                let mut jobs = Vec::new();
                for (place, end) in pairs.iter_mut().flatten().enumerate() {
                    end.handshake().expect("a handshake");
                    jobs.extend(end.question().map(|job| Job { id: place as u64, ..job }));
                }
                self.scheduler.place(&mut jobs, &self.sink, &mut inline);
                let mut answers = inline.run(&self.scheduler);
                answers.append(&mut self.answers.0.lock().expect("a lock"));
                for answer in answers {
                    let place = answer.id as usize;
                    pairs[place / 2][place % 2].answer(answer.result);
                }
            }
        }
        STARTS / SIDE_BY_SIDE * SIDE_BY_SIDE
    }
}

/// Microseconds of one RSA 2048 signature as OpenSSL makes it.
fn own_signature(site: &Site) -> f64 {
    let pem = fs::read(site.dir("called").join("server.key")).expect("a key");
    let key: PKey<Private> = PKey::private_key_from_pem(&pem).expect("a key");
    let measured = rounds(|| {
        let mut signer = PkeyCtx::new(&key).expect("a context");
        signer.sign_init().expect("a context");
        signer.set_rsa_padding(Padding::PKCS1).expect("a padding");
        let mut signature = vec![0; key.size()];
        for _ in 0..STARTS {
            signer.sign(&[7; 32], Some(&mut signature)).expect("a signature");
        }
        STARTS
    });
    println!("RSA 2048 signature: {:.0} µs [{:.0} to {:.0}]", measured.elapsed, measured.min, measured.max);
    measured.elapsed
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
