//! What keys in a transit engine cost: results a second, and how long each takes, with so many jobs under way.
//!
//! `BULLA_TRANSIT="ADDRESS CAFILE TOKENFILE"` names a server on which `transit` is mounted, and whose token may make
//! keys; without it a stand-in is asked, which says nothing about a real one. `BULLA_SECONDS` is the length of a run.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop at what it did not expect")]

#[path = "../tests/transit_common/mod.rs"]
mod transit_common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bulla_device::scheduler::{Answer, Sink, State};
use bulla_device::transit::{Transit, TransitSettings};
use bulla_device::{
    CpuDevice, Curve, Device, Digest, Driver, Inline, Job, KeyKind, Kind, Output, PrivateKey, RsaPadding, RsaScheme,
    Scheduler, Work,
};
use transit_common::Server;

const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };

#[derive(Default)]
struct Answers {
    done: Mutex<Vec<(u64, Instant)>>,
    come: Condvar,
}

impl Sink for Answers {
    fn finished(&self, answers: Vec<Answer>) {
        let now = Instant::now();
        let all = answers.into_iter().map(|answer| {
            answer.result.unwrap();
            (answer.id, now)
        });
        self.done.lock().unwrap().extend(all);
        self.come.notify_one();
    }
}

fn main() {
    let seconds = std::env::var("BULLA_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let length = Duration::from_secs_f64(seconds);
    let stand_in;
    let settings = match std::env::var("BULLA_TRANSIT") {
        Ok(text) => {
            let parts: Vec<&str> = text.split(' ').collect();
            stand_in = Server::new();
            TransitSettings {
                address: parts[0].parse().unwrap(),
                authorities: parts[1].into(),
                token_file: parts[2].into(),
                ..stand_in.settings()
            }
        }
        Err(_) => {
            println!("no BULLA_TRANSIT: a stand-in is asked");
            stand_in = Server::new();
            stand_in.settings()
        }
    };
    let (transit, _) = Server::transit_of(settings.clone());
    let suffix = std::process::id();
    let rsa = transit.create_key(KeyKind::Rsa, 2048, &format!("rsa-{suffix}")).unwrap();
    let p256 = transit.create_key(KeyKind::Ec(Curve::P256), 256, &format!("p256-{suffix}")).unwrap();
    let [rsa, p256] = [rsa, p256].map(|key| PrivateKey::on_token(key.public, key.uri.to_string()));
    println!(
        "{:<16} {:>11} {:>8} {:>10} {:>9} {:>9}",
        "job", "connections", "waiting", "results/s", "p50 ms", "p99 ms"
    );
    for engines in [1, 4] {
        let transit = Server::transit_of(TransitSettings { engines, ..settings.clone() }).0;
        for (name, key, work) in [
            ("RSA 2048 sign", &rsa, sign as fn(&PrivateKey, u64) -> Work),
            ("RSA 2048 unwrap", &rsa, unwrap),
            ("P-256 sign", &p256, sign),
        ] {
            for waiting in [1, 8, 64] {
                run(&transit, name, engines, waiting, length, |id| Job::new(key.clone(), work(key, id)));
            }
        }
    }
}

fn sign(key: &PrivateKey, id: u64) -> Work {
    let (digest, hash) = (Digest::Sha256, Digest::Sha256.hash(&id.to_be_bytes()));
    match key.kind() {
        KeyKind::Rsa => Work::RsaSign { scheme: RsaScheme::Pkcs1, digest, hash },
        _ => Work::EcdsaSign { hash },
    }
}

/// Each of another content key: one that is shared is asked for once.
fn unwrap(key: &PrivateKey, id: u64) -> Work {
    let content_key = Output::new(Digest::Sha256.hash(&id.to_be_bytes()).to_vec());
    let work = Work::RsaWrap { padding: OAEP, content_key };
    let (mut cpu, mut done) = (CpuDevice::new("bench"), Vec::new());
    cpu.submit(&mut vec![Job::new(key.public_key().clone(), work)]).unwrap();
    cpu.poll(&mut done).unwrap();
    let wrapped = done.remove(0).result.unwrap().to_vec();
    Work::RsaUnwrap { padding: OAEP, wrapped, expected_len: 32 }
}

fn run(transit: &Transit, name: &str, engines: u16, waiting: u64, length: Duration, job: impl Fn(u64) -> Job) {
    let scheduler = Scheduler::new(Kind::Cpu, 1);
    let driver = transit.clone();
    let open = Arc::new(move || Ok(Arc::new(driver.clone()) as Arc<dyn Driver>));
    scheduler.define("VAULT", Kind::Transit, 256, open).unwrap();
    scheduler.start("VAULT").unwrap();
    while scheduler.report_of("VAULT").unwrap().state != State::Running {
        std::thread::sleep(Duration::from_millis(1));
    }
    let answers = Arc::new(Answers::default());
    let sink: Arc<dyn Sink> = answers.clone();
    let (mut begun, mut latencies): (Vec<Instant>, Vec<Duration>) = (Vec::new(), Vec::new());
    let place = |begun: &mut Vec<Instant>| {
        let id = begun.len() as u64;
        let job = Job { id, deadline: Some(Instant::now() + Duration::from_secs(30)), ..job(id) };
        begun.push(Instant::now());
        scheduler.place(&mut vec![job], &sink, &mut Inline::new());
    };
    let began = Instant::now();
    (0..waiting).for_each(|_| place(&mut begun));
    let mut left = waiting;
    while left > 0 {
        let done = answers.done.lock().unwrap();
        let mut done = answers.come.wait_while(done, |done| done.is_empty()).unwrap();
        for (id, at) in std::mem::take(&mut *done) {
            latencies.push(at - begun[usize::try_from(id).unwrap()]);
            left -= 1;
        }
        drop(done);
        while left < waiting && began.elapsed() < length {
            place(&mut begun);
            left += 1;
        }
    }
    let took = began.elapsed().as_secs_f64();
    scheduler.shut_down();
    latencies.sort();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    let rate = latencies.len() as f64 / took;
    println!("{name:<16} {engines:>11} {waiting:>8} {rate:>10.0} {:>9.2} {:>9.2}", at(0.5), at(0.99));
}
