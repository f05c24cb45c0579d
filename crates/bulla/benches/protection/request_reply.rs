//! One outstanding request and its reply: the time of a transaction, protected and not, in turns.
//!
//! A transaction is two messages, so two signatures are made and two verified, one after the other. The bound is the
//! unprotected time and these four as a device does them when they are alone.

use crate::cases::{Case, Quality};
use crate::client::{Client, Messages};
use crate::components::{engines, lonely};
use crate::manager::{Manager, load_ring};
use crate::table::Report;
use crate::{Options, Result};
use bulla_amqp::{DeliveryState, Event, LinkId};
use bulla_device::{Digest, Job, KeyKind, PublicKey, RsaScheme, Work};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Rounds of each kind, in turns.
const ROUNDS: usize = 15;
/// Credit of the receiving ends.
const CREDIT: u32 = 64;

/// A requester and its server at work under one policy.
struct Pair {
    requester: Client,
    requests: LinkId,
    replies: LinkId,
    messages: Messages,
    count: u64,
    stop: Arc<AtomicBool>,
    server: JoinHandle<Result<()>>,
}

impl Pair {
    fn start(manager: &Manager, case: &Case) -> Result<Pair> {
        let (putter, getter) = case.users();
        let (asked, answered) = (format!("{}.ASK", case.queue()), format!("{}.ANSWER", case.queue()));
        manager.define_queue(case, &asked, &putter, &getter)?;
        manager.define_queue(case, &answered, &getter, &putter)?;
        let mut server = Client::connect(&manager.address, &getter)?;
        let from = server.receiver(&asked, CREDIT)?;
        let to = server.sender(&answered)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let server =
            std::thread::Builder::new().name("server".into()).spawn(move || serve(server, from, to, &stopping))?;
        let mut requester = Client::connect(&manager.address, &putter)?;
        let replies = requester.receiver(&answered, CREDIT)?;
        let requests = requester.sender(&asked)?;
        Ok(Pair { requester, requests, replies, messages: Messages::new(), count: 0, stop, server })
    }

    /// Asks, and waits for the answer.
    fn transaction(&mut self) -> Result<()> {
        let client = &mut self.requester;
        client.nothing_owed();
        client.engine.send(self.requests, self.count, self.messages.put(self.count), false);
        client.flush()?;
        loop {
            client.read(None)?;
            client.check_alive()?;
            let mut answered = false;
            while let Some(event) = client.event()? {
                match event {
                    Event::Delivery(delivery) => {
                        if !self.messages.is(self.count, &delivery.payload) {
                            return Err(format!("reply {} is not its request", self.count).into());
                        }
                        client.engine.dispose(self.replies, delivery.id, DeliveryState::Accepted);
                        answered = true;
                    }
                    Event::Outcome { state: Some(DeliveryState::Accepted), .. } => {}
                    Event::Outcome { state, .. } => return Err(format!("a request came to {state:?}").into()),
                    _ => {}
                }
            }
            if answered {
                top_up(client, self.replies);
                self.count += 1;
                return Ok(());
            }
        }
    }

    /// Microseconds of a transaction in one round.
    fn round(&mut self, time: Duration) -> Result<f64> {
        let begun = Instant::now();
        let mut count = 0u32;
        while begun.elapsed() < time {
            self.transaction()?;
            count += 1;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.requester.close()?;
        self.server.join().unwrap_or_else(|_| Err("the server panicked".into()))
    }
}

fn top_up(client: &mut Client, link: LinkId) {
    if client.engine.credit(link) <= CREDIT / 2 {
        client.engine.set_credit(link, CREDIT);
    }
}

/// The thread that answers each request with its own bytes as they came.
fn serve(mut client: Client, from: LinkId, to: LinkId, stop: &AtomicBool) -> Result<()> {
    let messages = Messages::new();
    let mut count = 0u64;
    while !stop.load(Ordering::Acquire) {
        client.read(None)?;
        while let Some(event) = client.event()? {
            match event {
                Event::Delivery(delivery) => {
                    client.engine.send(to, count, messages.put(count), false);
                    client.engine.dispose(from, delivery.id, DeliveryState::Accepted);
                    count += 1;
                }
                Event::Outcome { state: Some(DeliveryState::Accepted), .. } => {}
                Event::Outcome { state, .. } => return Err(format!("a reply came to {state:?}").into()),
                _ => {}
            }
        }
        top_up(&mut client, from);
        client.flush()?;
    }
    client.close()
}

/// Every protected case beside the unprotected one.
pub(crate) fn all(options: &Options, manager: &Manager, cases: &[Case], mut report: Report) -> Result<()> {
    let protected: Vec<&Case> = cases.iter().filter(|case| case.quality == Quality::Integrity).collect();
    if protected.is_empty() {
        return Err("rr compares integrity with no protection: --quality integrity".into());
    }
    println!(
        "\n| case | unprotected µs | protected µs | sign µs | verify µs | bound µs | ratio |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for case in protected {
        one(options, manager, case, &mut report)?;
    }
    Ok(())
}

fn one(options: &Options, manager: &Manager, case: &Case, report: &mut Report) -> Result<()> {
    let mut bare = Pair::start(manager, &Case::unprotected())?;
    let mut sealed = Pair::start(manager, case)?;
    bare.round(options.warm_up())?;
    sealed.round(options.warm_up())?;
    let round = options.round() / u32::try_from(ROUNDS)?;
    let (mut bare_us, mut sealed_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare_us.push(bare.round(round)?);
        sealed_us.push(sealed.round(round)?);
    }
    bare.stop()?;
    sealed.stop()?;
    let (unprotected, protected) = (median(&mut bare_us), median(&mut sealed_us));
    let (sign, verify) = primitives(manager, case)?;
    let bound = unprotected + 2.0 * (sign.0 + verify.0);
    println!(
        "| {case} | {unprotected:.1} | {protected:.1} | {:.1} ({}) | {:.1} ({}) | {bound:.1} | {:.3} |",
        sign.0,
        sign.1,
        verify.0,
        verify.1,
        protected / bound
    );
    report.json(&json!({
        "mode": "rr", "case": case.to_string(), "devices": manager.devices.to_string(), "unprotected_us": unprotected,
        "protected_us": protected, "sign_us": sign.0, "sign_device": sign.1, "verify_us": verify.0, "verify_device": verify.1,
        "bound_us": bound, "ratio": protected / bound, "unprotected_rounds_us": bare_us, "protected_rounds_us": sealed_us,
    }))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A signature and its check with the putter's key, each alone on the device that is quickest: microseconds and device.
fn primitives(manager: &Manager, case: &Case) -> Result<((f64, String), (f64, String))> {
    let ring = load_ring(&manager.ring(&case.users().0))?;
    let own = ring.signing(SystemTime::now())?;
    let mut engines = engines(manager)?;
    let (hash, digest, scheme) = (Digest::Sha256.hash(b"attributes"), Digest::Sha256, RsaScheme::Pkcs1);
    let rsa = own.key.kind() == KeyKind::Rsa;
    let sign = if rsa { Work::RsaSign { scheme, digest, hash } } else { Work::EcdsaSign { hash } };
    let (sign_us, signer, output) = lonely(&mut engines, &Job::new(own.key.clone(), sign))?;
    let signature = output.to_vec();
    let verify =
        if rsa { Work::RsaVerify { scheme, digest, hash, signature } } else { Work::EcdsaVerify { hash, signature } };
    let public = PublicKey::new(own.key.public())?;
    let (verify_us, verifier, _) = lonely(&mut engines, &Job::new(public, verify))?;
    Ok(((sign_us, signer), (verify_us, verifier)))
}
