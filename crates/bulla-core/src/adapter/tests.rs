//! Adapters over a device that gives wrong answers and late ones, and messages that share an answer.

mod flood;

use super::*;
use crate::catalog::status::{self, ProtectionMeters};
use crate::mailbox::{Mailbox, Notice};
use bulla_device::scheduler::{CPU_NAME, State};
use bulla_device::{CpuDevice, Device, DeviceError, Driver, Finished as Ended, Kind, Output, Shape, SystemRandom};
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use bulla_seal::policy::{ContentCipher, KeyReuse};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Bound, Content, Dn, Expect, Moments, Opener, Packing, Policy, Sealer, drive};
use bytes::Bytes;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

/// No condition takes longer to come true.
const PATIENCE: Duration = Duration::from_secs(60);
const DEVICE: &str = "CARD";

/// What the device gives for an unwrap.
enum Deed {
    Truth,
    /// As many bytes as the content key has.
    WrongKey,
    /// None, and it is the key that is to blame.
    Fails,
    /// The truth, once the test has heard of the job and lets it go on.
    Held,
}

/// A device for unwraps alone, or for RSA signatures alone; the rest is the processor's.
struct Card {
    signs: bool,
    /// What it does with the next jobs; afterwards it tells the truth.
    deeds: Mutex<Vec<Deed>>,
    /// The askers of the jobs that it was given, in their order.
    seen: Mutex<Vec<u64>>,
    held: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

/// The card as the scheduler sees it, and its engine.
struct Handle {
    card: Arc<Card>,
    cpu: CpuDevice,
}

impl Handle {
    fn of(card: &Arc<Card>) -> Handle {
        Handle { card: card.clone(), cpu: CpuDevice::new(DEVICE) }
    }
}

struct CardDriver(Arc<Card>);

impl Driver for CardDriver {
    fn kind(&self) -> Kind {
        Kind::Accelerator
    }

    fn engines(&self) -> usize {
        1
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, job: &Job) -> bool {
        match &*job.work {
            bulla_device::Work::RsaUnwrap { .. } => !self.0.signs,
            bulla_device::Work::RsaSign { .. } => self.0.signs,
            _ => false,
        }
    }

    fn expected(&self, _: Shape) -> Duration {
        Duration::from_micros(1)
    }

    /// Then it is never taken for stalled while a test holds it.
    fn is_on_the_cores(&self) -> bool {
        true
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(Handle::of(&self.0)))
    }
}

impl Device for Handle {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        self.card.seen.lock().unwrap().extend(jobs.iter().map(|job| job.asker.number()));
        self.cpu.submit(jobs)
    }

    fn poll(&mut self, done: &mut Vec<Ended>) -> Result<(), DeviceError> {
        let before = done.len();
        self.cpu.poll(done)?;
        for ended in &mut done[before..] {
            let deed = self.card.deeds.lock().unwrap().pop().unwrap_or(Deed::Truth);
            match deed {
                Deed::Truth => {}
                Deed::Fails => ended.result = Err(DeviceError::WrongKey { why: "it is of brass" }),
                Deed::WrongKey => ended.result = ended.result.clone().map(|key| Output::new(vec![0x5a; key.len()])),
                Deed::Held => {
                    let held = self.card.held.lock().unwrap().take();
                    let (heard_of, go_on) = held.expect("a test that holds one job");
                    heard_of.send(()).unwrap();
                    go_on.recv_timeout(PATIENCE).unwrap();
                }
            }
        }
        Ok(())
    }

    fn name(&self) -> &str {
        DEVICE
    }

    fn kind(&self) -> Kind {
        Kind::Accelerator
    }
}

/// A link of some connection.
fn link() -> LinkId {
    LinkId(1)
}

/// One adapter with one dispatcher's mailbox, and the card: private operations are its alone, but for
/// those that the processor checks.
struct Pool {
    adapters: Arc<Adapters>,
    card: Arc<Card>,
    mailbox: Arc<Mailbox>,
    woken: Receiver<()>,
    link: LinkId,
    mailboxes: Arc<Mailboxes>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// What all outcomes took.
    meters: ProtectionMeters,
}

impl Pool {
    /// `deeds` are the card's first ones.
    fn new(deeds: impl IntoIterator<Item = Deed>) -> Pool {
        Pool::with(false, deeds)
    }

    /// A card that signs, and its first deeds.
    fn signing(deeds: impl IntoIterator<Item = Deed>) -> Pool {
        Pool::with(true, deeds)
    }

    fn with(signs: bool, deeds: impl IntoIterator<Item = Deed>) -> Pool {
        let mut deeds: Vec<Deed> = deeds.into_iter().collect();
        deeds.reverse();
        let card = Arc::new(Card { signs, deeds: Mutex::new(deeds), seen: Mutex::default(), held: Mutex::default() });
        let scheduler = Scheduler::new(Kind::Cpu, 2);
        let opened = card.clone();
        let open = move || Ok(Arc::new(CardDriver(opened.clone())) as Arc<dyn Driver>);
        scheduler.define(DEVICE, Kind::Accelerator, 16, Arc::new(open)).unwrap();
        scheduler.stop(CPU_NAME).unwrap();
        scheduler.start(DEVICE).unwrap();
        let (wake, woken) = channel();
        let mailbox = Arc::new(Mailbox::new(move || wake.send(()).unwrap_or_default()));
        let mailboxes = Arc::new(Mailboxes::default());
        assert!(mailboxes.add(mailbox.clone()));
        let adapters = Arc::new(Adapters::new(scheduler));
        Pool {
            adapters,
            card,
            mailbox,
            woken,
            link: link(),
            mailboxes,
            threads: Vec::new(),
            meters: ProtectionMeters::default(),
        }
    }

    /// From now on tasks are carried out.
    fn run(&mut self) {
        self.resize(1);
    }

    /// Has so many adapters from now on.
    fn resize(&mut self, count: usize) {
        for index in self.adapters.want(count) {
            let (adapters, mailboxes) = (self.adapters.clone(), self.mailboxes.clone());
            self.threads.push(std::thread::spawn(move || adapters.run(index, &mailboxes, &TaskMeter::default())));
        }
    }

    fn open(&self, slot: u64, who: &bulla_device::Asker, message: &Message) {
        let asker = Asker { dispatcher: 0, peer: 0, generation: 0, link: self.link, slot };
        let tally = Tally::new();
        self.adapters.submit(asker, who, Work::Open(message.opening(&tally)), tally, None);
    }

    /// As a dispatcher does: it has looked at the message itself, and found that it needs a device.
    fn go_on_opening(&self, slot: u64, who: &bulla_device::Asker, message: &Message) -> Begun {
        let tally = Tally::new();
        let opening = message.opening(&tally);
        let step = opening().unwrap();
        assert!(matches!(step, Step::Device(..)), "the content key is not known yet");
        let asker = Asker { dispatcher: 0, peer: 0, generation: 0, link: self.link, slot };
        Begun { asker, who: who.clone(), work: Work::GoOnOpening(step, opening), tally }
    }

    fn seal(&self, slot: u64, who: &bulla_device::Asker, sealer: &Arc<Mutex<Sealer>>, at: SystemTime) {
        seal(&self.adapters, slot, who, sealer, at);
    }

    /// What came of so many messages that were to be sealed, in the order of their slots.
    fn sealed(&mut self, count: usize) -> Vec<Result<Sealed, SealError>> {
        self.finished(count, status::Deed::Sealed, |outcome| match outcome {
            Outcome::Sealed(result) => result,
            _ => panic!("another outcome"),
        })
    }

    /// What came of so many messages, in the order of their slots.
    fn outcomes(&mut self, count: usize) -> Vec<Result<Opened, OpenError>> {
        self.finished(count, status::Deed::Opened, |outcome| match outcome {
            Outcome::Opened(result) => result.map(Verified::into_inner),
            _ => panic!("another outcome"),
        })
    }

    fn finished<T>(&mut self, count: usize, deed: status::Deed, of: impl Fn(Outcome) -> T) -> Vec<T> {
        let end = Instant::now() + PATIENCE;
        let (mut all, mut notices) = (Vec::new(), Vec::new());
        loop {
            self.mailbox.take(&mut notices);
            for notice in notices.drain(..) {
                let Notice::Finished(finished) = notice else { panic!("another notice") };
                self.meters.note(deed, &finished.cost.effort, &finished.cost.wait);
                all.push((finished.asker.slot, of(finished.outcome)));
            }
            if all.len() >= count {
                all.sort_by_key(|(slot, _)| *slot);
                return all.into_iter().map(|(_, result)| result).collect();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} outcomes came", all.len());
            let _ = self.woken.recv_timeout(left);
        }
    }

    /// Waits until the adapter has dealt with everything that was submitted before.
    fn all_begun(&self) {
        // An adapter takes TASKS_PER_TURN of them at a time, and what it does aside is not behind them.
        wait_until("all are taken", || self.adapters.lock().tasks.is_empty());
        let (tell, told) = channel();
        assert!(self.adapters.submit_aside(Box::new(move || tell.send(()).unwrap())));
        told.recv_timeout(PATIENCE).unwrap();
    }

    fn state(&self) -> State {
        let report = self.adapters.scheduler.report();
        report.into_iter().find(|device| device.name == DEVICE).unwrap().state
    }

    fn seen(&self) -> Vec<u64> {
        self.card.seen.lock().unwrap().clone()
    }
}

fn seal(adapters: &Adapters, slot: u64, who: &bulla_device::Asker, sealer: &Arc<Mutex<Sealer>>, at: SystemTime) {
    seal_holding(adapters, slot, who, (sealer, at), None);
}

fn seal_holding(
    adapters: &Adapters,
    slot: u64,
    who: &bulla_device::Asker,
    (sealer, at): (&Arc<Mutex<Sealer>>, SystemTime),
    held: Option<Held>,
) {
    let asker = Asker { dispatcher: 0, peer: 0, generation: 0, link: link(), slot };
    let tally = Tally::new();
    let (sealer, counted) = (sealer.clone(), tally.clone());
    let may_sign = MaySign::Together(sealer.lock().unwrap().policy().clone());
    let content = Content { packing: Packing::Data, content_type: None, bytes: payload(slot as usize) };
    let start = move || sealer.lock().unwrap().seal_counting(content, &bound(), at, &mut SystemRandom, &counted);
    adapters.submit(asker, who, Work::Seal(Box::new(start), may_sign), tally, held);
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.adapters.stop();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the adapter panicked");
        }
        self.adapters.scheduler.shut_down();
    }
}

/// An opening that was begun, and was not handed over yet.
struct Begun {
    asker: Asker,
    who: bulla_device::Asker,
    work: Work,
    tally: Tally,
}

impl Begun {
    fn submit(self, pool: &Pool) {
        pool.adapters.submit(self.asker, &self.who, self.work, self.tally, None);
    }
}

/// A user who seals, a user who opens, and a policy between them.
struct World {
    opener: Opener,
    policy: Arc<Policy>,
    sealing: Arc<Ring>,
    opening: Arc<Ring>,
    now: SystemTime,
    _directory: tempfile::TempDir,
}

/// A sealed message with all that opening it takes.
struct Message {
    opener: Opener,
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    now: SystemTime,
    der: Bytes,
}

fn bound() -> Bound {
    Bound {
        destination: "ORDERS@QM1".into(),
        message_id: Bytes::from_static(b"\xa1\x04id-1"),
        properties: Bytes::new(),
        application_properties: Bytes::new(),
        annotations: Bytes::new(),
    }
}

fn payload(number: usize) -> Bytes {
    format!("jar {number} of oil").into_bytes().into()
}

impl World {
    fn new() -> World {
        World::with(ContentCipher::Aes256Gcm)
    }

    /// One whose policy encrypts by that cipher, and has no signers.
    fn with(cipher: ContentCipher) -> World {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        let dn = |name: &str| -> Dn { format!("CN={name},O=Bulla").parse().unwrap() };
        let p256 = KeySpec::Ec(Curve::P256);
        let authority = Authority::create(&directory.path().join("ca"), &dn("CA"), p256, 3650, now).unwrap();
        let issue = |name: &str, key, uses| {
            let request =
                Request { dn: dn(name), key, uses, days: 365, alternative_names: Vec::new(), passphrase: None };
            authority.issue(&request, now).unwrap()
        };
        let orders = issue("orders", p256, vec![KeyUse::DocSign]);
        let billing = issue("billing", KeySpec::Rsa(1024), vec![KeyUse::DataEncrypt]);
        let [sealing, opening] =
            [("orders", &orders, &billing), ("billing", &billing, &orders)].map(|(user, own, other)| {
                let folder = directory.path().join(user);
                ring::create(&folder).unwrap();
                ring::install_own(&folder, "own", &own.0, &authority.chain(), &own.1).unwrap();
                ring::install_person(&folder, "other", &other.0, &authority.chain()).unwrap();
                ring::install_trust(&folder, "ca", authority.root()).unwrap();
                Arc::new(Ring::load(&folder, None).unwrap())
            });
        let mut policy = Policy::new("ORDERS");
        policy.encrypt = Some(cipher);
        policy.weak = !cipher.is_authenticated();
        policy.recipients = vec![dn("billing")];
        policy.key_reuse = KeyReuse::Unlimited;
        policy.check().unwrap();
        World { opener: Opener::new(), policy: Arc::new(policy), sealing, opening, now, _directory: directory }
    }

    /// So many messages under one content key.
    fn messages(&self, count: usize) -> Vec<Message> {
        let mut sealer = Sealer::new(self.policy.clone(), self.sealing.clone(), None, self.now).unwrap();
        let mut cpu = CpuDevice::new("tests");
        let bound = bound();
        let mut seal = |number: usize| {
            let content = Content { packing: Packing::Data, content_type: None, bytes: payload(number) };
            let step = sealer.seal(content, &bound, self.now, &mut SystemRandom).unwrap();
            let der = drive(step, &mut cpu).unwrap().der;
            let (opener, policy) = (self.opener.clone(), self.policy.clone());
            Message { opener, policy, ring: self.opening.clone(), now: self.now, der }
        };
        (0..count).map(&mut seal).collect()
    }
}

impl Message {
    fn opening(&self, tally: &Tally) -> Again<Verified<Opened>, OpenError> {
        let tally = tally.clone();
        let (opener, policy, ring) = (self.opener.clone(), self.policy.clone(), self.ring.clone());
        let (der, now) = (self.der.clone(), self.now);
        Arc::new(move || {
            let expect = Expect {
                destinations: vec!["ORDERS@QM1".into()],
                message_id: Bytes::from_static(b"\xa1\x04id-1"),
                properties: Bytes::new(),
                application_properties: Bytes::new(),
                annotations: Bytes::new(),
            };
            opener.open_counting(&policy, &ring, der.clone(), expect, Moments { put_at: now, now }, tally.clone())
        })
    }

    /// The end of its wrapped key, of 1024 bits, is another one: what is unwrapped is rejected.
    fn with_damaged_key(mut self) -> Message {
        const HEADER: [u8; 3] = [0x04, 0x81, 128];
        let mut der = self.der.to_vec();
        let at = der.windows(HEADER.len()).position(|bytes| bytes == HEADER).unwrap() + HEADER.len();
        der[at + 127] ^= 1;
        self.der = der.into();
        self
    }

    /// The last byte is the end of the envelope's tag.
    fn damaged(mut self) -> Message {
        let mut der = self.der.to_vec();
        *der.last_mut().unwrap() ^= 1;
        self.der = der.into();
        self
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn is_open(outcome: &Result<Opened, OpenError>, number: usize) -> bool {
    outcome.as_ref().is_ok_and(|opened| opened.content.bytes == payload(number))
}

#[test]
fn a_device_that_gives_a_wrong_content_key_condemns_no_message_and_is_not_used_again() {
    let world = World::new();
    let mut pool = Pool::new([Deed::WrongKey]);
    pool.run();
    let who = bulla_device::Asker::new(1);
    pool.open(0, &who, &world.messages(1)[0]);
    let outcomes = pool.outcomes(1);
    assert!(is_open(&outcomes[0], 0), "{outcomes:?}");
    assert!(matches!(pool.state(), State::Failed { .. }), "{:?}", pool.state());
    assert_eq!(pool.seen(), [1], "what it said is checked by another");
    assert_eq!((pool.meters.opening.unwraps, pool.meters.wait.jobs), (2, 2), "it was done twice");
}

/// The wrong keys come before the start, and are found out after it.
#[test]
fn a_wrong_content_key_of_before_a_start_puts_the_device_out_of_use_no_more() {
    let world = World::new();
    let mut pool = Pool::new([Deed::WrongKey, Deed::WrongKey]);
    // The adapter hears of no answer while it does something else.
    let (let_go, may_go) = channel();
    assert!(pool.adapters.submit_aside(Box::new(move || may_go.recv_timeout(PATIENCE).unwrap())));
    let who = bulla_device::Asker::new(1);
    let messages = [world.messages(1), world.messages(1), world.messages(1)].map(|mut one| one.remove(0));
    (0..2).for_each(|slot| pool.open(slot as u64, &who, &messages[slot]));
    pool.run();
    let answers = pool.adapters.clone();
    wait_until("both have a wrong key", || answers.lock().answers.len() == 2);
    pool.adapters.scheduler.stop(DEVICE).unwrap();
    pool.adapters.scheduler.start(DEVICE).unwrap();
    wait_until("it runs", || pool.state() == State::Running);
    let_go.send(()).unwrap();
    let outcomes = pool.outcomes(2);
    assert!(outcomes.iter().all(|outcome| is_open(outcome, 0)), "{outcomes:?}");
    assert_eq!(pool.state(), State::Running);
    // What it gets wrong from then on does.
    pool.card.deeds.lock().unwrap().push(Deed::WrongKey);
    pool.open(2, &who, &messages[2]);
    let outcomes = pool.outcomes(1);
    assert!(is_open(&outcomes[0], 0), "{outcomes:?}");
    assert!(matches!(pool.state(), State::Failed { .. }), "{:?}", pool.state());
}

#[test]
fn a_damaged_message_stays_condemned_and_the_device_goes_on() {
    let world = World::new();
    let mut pool = Pool::new([]);
    pool.run();
    let who = bulla_device::Asker::new(1);
    let damaged = world.messages(1).remove(0).damaged();
    pool.open(0, &who, &damaged);
    let outcomes = pool.outcomes(1);
    assert_eq!(outcomes[0].as_ref().err(), Some(&OpenError::CannotDecrypt), "{outcomes:?}");
    assert_eq!(pool.state(), State::Running);
    pool.open(1, &who, &world.messages(1)[0]);
    let outcomes = pool.outcomes(1);
    assert!(is_open(&outcomes[0], 0), "{outcomes:?}");
    assert_eq!(pool.seen(), [1, 1], "the good message is the device's again");
}

/// Any key opens one message of 256 under AES-CBC without a signature, so a user could put a device out of use by
/// messages with damaged keys.
#[test]
fn a_message_that_opens_by_chance_at_the_second_try_says_nothing_about_the_device() {
    /// One opens at the second try with a probability of 1 - 10^-13.
    const MESSAGES: u64 = 8_192;
    let world = World::with(ContentCipher::Aes256Cbc);
    let mut pool = Pool::new([]);
    pool.run();
    let (who, damaged) = (bulla_device::Asker::new(1), world.messages(1).remove(0).with_damaged_key());
    let opened_at_second_try = (0..MESSAGES).any(|slot| {
        let before = pool.meters.opening.unwraps;
        pool.open(slot, &who, &damaged);
        let outcomes = pool.outcomes(1);
        // A key that opened it is remembered.
        world.opener.flush();
        outcomes[0].is_ok() && pool.meters.opening.unwraps - before == 2
    });
    assert!(opened_at_second_try);
    assert_eq!(pool.state(), State::Running);
}

#[test]
fn one_unwrap_serves_all_messages_that_come_together_under_one_content_key() {
    let world = World::new();
    let mut pool = Pool::new([]);
    let askers = [bulla_device::Asker::new(1), bulla_device::Asker::new(2)];
    let messages = world.messages(12);
    for ((slot, message), who) in (0..).zip(&messages).zip(askers.iter().cycle()) {
        pool.open(slot, who, message);
    }
    pool.run();
    let outcomes = pool.outcomes(messages.len());
    assert!(outcomes.iter().enumerate().all(|(number, outcome)| is_open(outcome, number)), "{outcomes:?}");
    assert_eq!(pool.seen().len(), 1, "unwraps");
    assert_eq!(pool.state(), State::Running);
    let (effort, wait) = (pool.meters.opening, pool.meters.wait);
    assert_eq!((effort.unwraps, effort.cache_hits), (1, 11), "one did it, the others had it done");
    assert_eq!(wait.jobs, 12, "all of them waited");
    assert!(wait.longest_ns > 0 && wait.ns >= wait.longest_ns && wait.ns <= 12 * wait.longest_ns);
}

#[test]
fn messages_whose_key_was_unwrapped_since_somebody_looked_for_it_are_not_unwrapped_again() {
    let world = World::new();
    let mut pool = Pool::new([]);
    pool.run();
    let who = bulla_device::Asker::new(1);
    let messages = world.messages(40);
    // A dispatcher has looked at all of them before the first one's key is unwrapped.
    let mut begun: Vec<Begun> =
        (0..).zip(&messages).map(|(slot, message)| pool.go_on_opening(slot, &who, message)).collect();
    let others = begun.split_off(1);
    begun.remove(0).submit(&pool);
    let first = pool.outcomes(1);
    assert!(is_open(&first[0], 0), "{first:?}");
    for begun in others {
        begun.submit(&pool);
    }
    let outcomes = pool.outcomes(messages.len() - 1);
    assert!(outcomes.iter().enumerate().all(|(number, outcome)| is_open(outcome, 1 + number)), "{outcomes:?}");
    assert_eq!(pool.seen().len(), 1, "unwraps");
    let effort = pool.meters.opening;
    assert_eq!((effort.unwraps, effort.cache_hits), (1, 39), "one did it, the others found it");
    let sealed: usize = messages.iter().map(|message| message.der.len()).sum();
    assert_eq!(effort.bytes_in, sealed as u64, "each message counts once, however often it was begun");
}

#[test]
fn a_key_that_was_unwrapped_and_forgotten_since_somebody_looked_for_it_is_unwrapped_once_more() {
    let world = World::new();
    let mut pool = Pool::new([]);
    pool.run();
    let who = bulla_device::Asker::new(1);
    let messages = world.messages(2);
    let [first, second] = [0, 1].map(|slot| pool.go_on_opening(slot as u64, &who, &messages[slot]));
    first.submit(&pool);
    assert!(is_open(&pool.outcomes(1)[0], 0));
    world.opener.flush();
    second.submit(&pool);
    let outcomes = pool.outcomes(1);
    assert!(is_open(&outcomes[0], 1), "{outcomes:?}");
    assert_eq!((pool.seen().len(), pool.meters.opening.unwraps, pool.meters.opening.cache_hits), (2, 2, 0));
}

#[test]
fn what_was_answered_is_forgotten_in_the_end() {
    let mut answered = Answered::default();
    let question = |number: usize| -> Question { openssl::sha::sha256(&number.to_be_bytes()) };
    for number in 0..3 * ANSWERED_MAX {
        answered.note(question(number));
        assert!(answered.recent.len() + answered.older.len() <= ANSWERED_MAX);
        assert!(answered.has(&question(number.saturating_sub(ANSWERED_MAX / 2 - 1))), "the last half is always there");
    }
    assert!(!answered.has(&question(0)));
}

#[test]
fn a_wrong_content_key_that_many_messages_share_condemns_none_of_them() {
    let world = World::new();
    let mut pool = Pool::new([Deed::WrongKey]);
    let who = bulla_device::Asker::new(1);
    let messages = world.messages(12);
    for (slot, message) in (0..).zip(&messages) {
        pool.open(slot, &who, message);
    }
    pool.run();
    let outcomes = pool.outcomes(messages.len());
    assert!(outcomes.iter().enumerate().all(|(number, outcome)| is_open(outcome, number)), "{outcomes:?}");
    assert!(matches!(pool.state(), State::Failed { .. }), "{:?}", pool.state());
}

#[test]
fn when_the_one_who_asked_first_leaves_the_others_still_get_their_messages() {
    let world = World::new();
    let mut pool = Pool::new([Deed::Held]);
    let ((heard_of, hears), (lets_go, go_on)) = (channel(), channel());
    *pool.card.held.lock().unwrap() = Some((heard_of, go_on));
    pool.run();
    let [blocker, first, other] = [1, 2, 3].map(bulla_device::Asker::new);
    // The device is busy with another key's unwrap, so that the first one's waits.
    let blocking = world.messages(1);
    pool.open(0, &blocker, &blocking[0]);
    hears.recv_timeout(PATIENCE).unwrap();
    let messages = world.messages(4);
    for (slot, message) in (0..).zip(&messages) {
        pool.open(1 + slot, if slot == 0 { &first } else { &other }, message);
    }
    pool.all_begun();
    first.leave();
    lets_go.send(()).unwrap();
    let outcomes = pool.outcomes(5);
    assert!(is_open(&outcomes[0], 0), "{outcomes:?}");
    let cancelled = OpenError::Key(DeviceError::Cancelled);
    assert_eq!(outcomes[1].as_ref().err(), Some(&cancelled), "it has left");
    assert!((1..4).all(|number| is_open(&outcomes[1 + number], number)), "{outcomes:?}");
    let seen = pool.seen();
    assert!(!seen.contains(&2) && seen.contains(&3), "nothing was computed for the one who left: {seen:?}");
    assert_eq!(pool.state(), State::Running);
}

fn new_task(world: &mut impl FnMut() -> Message, user: &str) -> (u64, New) {
    let number = asker_of(user);
    let asker = Asker { dispatcher: 0, peer: 0, generation: 0, link: link(), slot: 0 };
    let tally = Tally::new();
    let work = Work::Open(world().opening(&tally));
    (number, New { asker, who: bulla_device::Asker::new(number), work, tally, keys: KeyWork::default(), held: None })
}

#[test]
fn who_has_used_up_its_share_of_private_key_time_waits_and_others_do_not() {
    let (world, now) = (World::new(), Instant::now());
    let mut one = || world.messages(1).remove(0);
    let mut inbox = Inbox::default();
    inbox.shares.insert(asker_of("app"), Share { user: "app".into(), time: KeyTime::new(1, now) });
    for user in ["app", "app", "app", "other", "other"] {
        let (number, task) = new_task(&mut one, user);
        inbox.tasks.push(number, task);
    }
    assert!(inbox.looks_at_shares());
    let order: Vec<u64> = std::iter::from_fn(|| inbox.next_task(Some(now))).map(|task| task.who.number()).collect();
    assert_eq!(order, [asker_of("app"), asker_of("other"), asker_of("other")]);
    let wait = inbox.share_in(now).expect("the share fills again");
    assert!(inbox.next_task(Some(now + wait)).is_some() && inbox.next_task(Some(now + wait)).is_none());
    inbox.stopping = true;
    assert!(!inbox.looks_at_shares(), "what waits when the pool stops is done");
    assert!(inbox.next_task(None).is_some() && inbox.tasks.is_empty());
}

#[test]
fn private_key_time_is_counted_with_the_user_and_a_small_share_only_takes_longer() {
    const COUNT: usize = 8;
    let world = World::new();
    let mut pool = Pool::new([]);
    let who = bulla_device::Asker::new(asker_of("app"));
    pool.adapters.share_keys("app", 2, Instant::now());
    let messages: Vec<Message> = (0..COUNT).map(|_| world.messages(1).remove(0)).collect();
    for (slot, message) in messages.iter().enumerate() {
        pool.open(slot as u64, &who, message);
    }
    pool.run();
    let outcomes = pool.outcomes(COUNT);
    assert!(outcomes.iter().all(|outcome| is_open(outcome, 0)));
    pool.all_begun();
    let (taken_ns, used_up) = pool.adapters.key_time_of("app").unwrap();
    assert!(taken_ns > 0 && used_up > 0, "{taken_ns} {used_up}");
    pool.adapters.follow_limits(&UserLimits::default(), Instant::now());
    assert_eq!(pool.adapters.key_time_of("app"), None, "the limit is gone");
}

#[test]
fn an_adapter_shares_what_it_computes_with_one_that_has_nothing_to_do() {
    let world = World::new();
    let pool = Pool::new([]);
    pool.adapters.scheduler.stop(DEVICE).unwrap();
    pool.adapters.scheduler.start(CPU_NAME).unwrap();
    let sink: Arc<dyn Sink> = pool.adapters.clone();
    let mut inline = Inline::new();
    // Sixteen content keys, and a message under each.
    let mut jobs = Vec::new();
    for _ in 0..16 {
        let Ok(Step::Device(job, _)) = world.messages(1)[0].opening(&Tally::new())() else {
            panic!("its key is not known")
        };
        jobs.push(job);
    }
    pool.adapters.scheduler.place(&mut jobs, &sink, &mut inline);
    pool.adapters.share(&mut inline);
    assert!(pool.adapters.lock().shared.is_empty(), "all are busy");
    pool.adapters.lock().idle = 1;
    pool.adapters.share(&mut inline);
    pool.adapters.lock().idle = 0;
    pool.adapters.want(1);
    pool.open(0, &bulla_device::Asker::new(1), &world.messages(1)[0]);
    let taken = pool.adapters.take(0).unwrap();
    assert!(!taken.shared.is_empty() && taken.tasks.is_empty(), "who helps has enough to do");
    let mut helper = Inline::new();
    helper.take_over(taken.shared);
    let [kept, given] = [&mut inline, &mut helper].map(|inline| inline.run(&pool.adapters.scheduler));
    assert_eq!((kept.len(), given.len()), (8, 8));
    assert!(kept.iter().chain(&given).all(|answer| answer.result.is_ok()));
    assert_eq!(pool.adapters.take(0).unwrap().tasks.len(), 1);
    // The task was taken for an adapter that is none: no thread waits for it.
    pool.adapters.done(&mut vec![(1, KeyWork::default())]);
}

#[test]
fn adapters_come_and_go_and_every_message_is_opened_once() {
    let world = World::new();
    let mut pool = Pool::new([]);
    let who = [1, 2, 3].map(bulla_device::Asker::new);
    let mut slot = 0;
    let mut expected = Vec::new();
    for count in [1, 4, 2, 6, 1, 3] {
        // What was submitted before is under way while the pool changes, and messages wait when it does.
        for (number, message) in world.messages(24).iter().enumerate() {
            pool.open(slot, &who[number % who.len()], message);
            expected.push(number);
            slot += 1;
            if number == 12 {
                pool.resize(count);
            }
        }
    }
    let outcomes = pool.outcomes(expected.len());
    assert_eq!(outcomes.len(), expected.len());
    for (outcome, number) in outcomes.iter().zip(expected) {
        assert!(is_open(outcome, number), "{outcome:?}");
    }
    wait_until("there are three, and no surplus one", || pool.adapters.counts() == (3, 3));
}

/// A user whose messages share signatures, and what two links of it seal with.
struct Signing {
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    sealers: [Arc<Mutex<Sealer>>; 2],
    now: SystemTime,
    _directory: tempfile::TempDir,
}

impl Signing {
    fn new(most: u32) -> Signing {
        Signing::with(KeySpec::Rsa(1024), most)
    }

    fn with(key: KeySpec, most: u32) -> Signing {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        let p256 = KeySpec::Ec(Curve::P256);
        let ca = "CN=CA,O=Bulla".parse().unwrap();
        let authority = Authority::create(&directory.path().join("ca"), &ca, p256, 3650, now).unwrap();
        let request = Request {
            dn: "CN=orders,O=Bulla".parse().unwrap(),
            key,
            uses: vec![KeyUse::DocSign],
            days: 365,
            alternative_names: Vec::new(),
            passphrase: None,
        };
        let (certificate, key) = authority.issue(&request, now).unwrap();
        let folder = directory.path().join("orders");
        ring::create(&folder).unwrap();
        ring::install_own(&folder, "own", &certificate, &authority.chain(), &key).unwrap();
        ring::install_trust(&folder, "ca", authority.root()).unwrap();
        let ring = Arc::new(Ring::load(&folder, None).unwrap());
        let mut policy = Policy::new("ORDERS");
        policy.sign = Some(bulla_device::Digest::Sha256);
        policy.sign_batch = most;
        policy.check().unwrap();
        let policy = Arc::new(policy);
        let sealer = || Sealer::new(policy.clone(), ring.clone(), None, now).unwrap();
        let sealers = [sealer(), sealer()].map(|sealer| Arc::new(Mutex::new(sealer)));
        Signing { policy, ring, sealers, now, _directory: directory }
    }

    /// Which message of how many it is under its signature; none with one of its own. It opens, whatever it is.
    fn place(&self, number: usize, sealed: &Sealed) -> Option<(u32, u32)> {
        let bound = bound();
        let expect = Expect {
            destinations: vec![bound.destination],
            message_id: bound.message_id,
            properties: bound.properties,
            application_properties: bound.application_properties,
            annotations: bound.annotations,
        };
        let der = sealed.der.clone();
        let step = Opener::new().open(&self.policy, &self.ring, der, expect, self.now, self.now).unwrap();
        let opened = drive(step, &mut CpuDevice::new("tests")).unwrap();
        assert_eq!(opened.get().content.bytes, payload(number));
        bulla_seal::inspect(&sealed.der).unwrap().batch.map(|batch| (batch.index, batch.size))
    }
}

/// A pool whose card holds its first signature, of message 0; what says that it does; and what lets it go on.
fn held(deeds: impl IntoIterator<Item = Deed>) -> (Pool, Receiver<()>, Sender<()>) {
    let mut pool = Pool::signing([Deed::Held].into_iter().chain(deeds));
    let ((tell, told), (let_go, may_go)) = (channel(), channel());
    *pool.card.held.lock().unwrap() = Some((tell, may_go));
    pool.run();
    (pool, told, let_go)
}

#[test]
fn messages_that_wait_while_one_is_signed_share_the_next_signature() {
    let user = Signing::new(8);
    let (mut pool, told, let_go) = held([]);
    let who = bulla_device::Asker::new(7);
    pool.seal(0, &who, &user.sealers[0], user.now);
    told.recv_timeout(PATIENCE).unwrap();
    (1..=9).for_each(|slot| pool.seal(slot, &who, &user.sealers[slot as usize % 2], user.now));
    pool.all_begun();
    let_go.send(()).unwrap();
    let sealed = pool.sealed(10);
    let places: Vec<_> =
        sealed.iter().enumerate().map(|(at, sealed)| user.place(at, sealed.as_ref().unwrap())).collect();
    assert_eq!(places[0], None, "it found the device free");
    let eight: Vec<_> = (0..8).map(|index| Some((index, 8))).collect();
    assert_eq!(places[1..=8], eight[..], "no more than SIGNBATCH says");
    assert_eq!(places[9], None, "one is left");
    assert_eq!(pool.seen().len(), 3);
    assert_eq!(pool.meters.sealing.signs, 3, "counted as often as it was done");
}

/// More of a user's messages than tasks of other kinds may be under way, or no batch would be of 256, or of 1,024.
#[test]
fn a_batch_is_as_full_as_the_policy_lets_it_be() {
    for most in [256, 1024] {
        let user = Signing::new(most);
        let (mut pool, told, let_go) = held([]);
        let who = bulla_device::Asker::new(7);
        pool.seal(0, &who, &user.sealers[0], user.now);
        told.recv_timeout(PATIENCE).unwrap();
        (1..=u64::from(most)).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
        pool.all_begun();
        let_go.send(()).unwrap();
        let sealed = pool.sealed(most as usize + 1);
        let places = [1, most as usize].map(|at| user.place(at, sealed[at].as_ref().unwrap()));
        assert_eq!(places, [Some((0, most)), Some((most - 1, most))]);
    }
}

/// Where several signatures can be made at once, or messages come faster than one is made.
#[test]
fn a_full_batch_does_not_wait_for_the_one_before() {
    let user = Signing::new(8);
    let (mut pool, told, let_go) = held([]);
    let who = bulla_device::Asker::new(7);
    pool.seal(0, &who, &user.sealers[0], user.now);
    told.recv_timeout(PATIENCE).unwrap();
    (1..=20).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
    pool.all_begun();
    assert_eq!(pool.adapters.away().tasks.len(), 3, "the one that is held, and two full ones");
    let_go.send(()).unwrap();
    let sealed = pool.sealed(21);
    let places = [8, 16, 20].map(|at| user.place(at, sealed[at].as_ref().unwrap()));
    assert_eq!(places, [Some((7, 8)), Some((7, 8)), Some((3, 4))], "what is left waits for the signatures before");
    pool.all_begun();
    assert!(pool.adapters.away().tasks.is_empty() && pool.adapters.lock().under_way.is_empty());
}

/// A message of the first batch does not wait for the signatures of those behind it.
#[test]
fn a_batch_is_told_of_before_the_next_one_is_signed() {
    let user = Signing::with(KeySpec::Rsa(4096), 4);
    let (pool, told) = (Pool::new([]), Arc::new(Mutex::new(Vec::new())));
    let notes = told.clone();
    let mailboxes = signing_dry(&pool, move |slots| notes.lock().unwrap().push(slots.len()));
    let who = bulla_device::Asker::new(7);
    (0..9).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
    pool.adapters.run_dry(&mailboxes, &TaskMeter::default());
    assert_eq!(*told.lock().unwrap(), [4, 4, 1]);
}

/// A pool whose processor signs, one turn after the other, and what is done with each list of slots that are finished.
fn signing_dry(pool: &Pool, finished: impl Fn(Vec<u64>) + Send + Sync + 'static) -> Mailboxes {
    pool.adapters.scheduler.start(CPU_NAME).unwrap();
    pool.adapters.scheduler.stop(DEVICE).unwrap();
    let mailbox = Arc::new(std::sync::OnceLock::<Arc<Mailbox>>::new());
    let own = mailbox.clone();
    let taken = move || {
        let mut notices = Vec::new();
        own.get().unwrap().take(&mut notices);
        let slot = |notice| match notice {
            Notice::Finished(finished) => finished.asker.slot,
            _ => panic!("another notice"),
        };
        finished(notices.into_iter().map(slot).collect());
    };
    let mailboxes = Mailboxes::default();
    assert!(mailboxes.add(mailbox.get_or_init(|| Arc::new(Mailbox::new(taken))).clone()));
    mailboxes
}

/// What is left over by one batch waits for those that come while the processor has other work.
#[test]
fn a_part_of_a_batch_is_signed_when_the_processor_has_nothing_else_to_do() {
    let user = Signing::with(KeySpec::Rsa(2048), 8);
    let (pool, told) = (Pool::new([]), Arc::new(Mutex::new(Vec::new())));
    let (notes, again, sealer, now) = (told.clone(), Arc::downgrade(&pool.adapters), user.sealers[0].clone(), user.now);
    let who = bulla_device::Asker::new(7);
    let asker = who.clone();
    let mailboxes = signing_dry(&pool, move |slots| {
        if slots.contains(&0) {
            (9..11).for_each(|slot| seal(&again.upgrade().unwrap(), slot, &asker, &sealer, now));
        }
        notes.lock().unwrap().push(slots);
    });
    (0..9).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
    pool.adapters.run_dry(&mailboxes, &TaskMeter::default());
    assert_eq!(*told.lock().unwrap(), [(0..8).collect(), vec![8, 9, 10]], "the ninth was signed with two others");
}

/// However much others have to do.
#[test]
fn a_part_of_a_batch_waits_no_longer_than_some_signatures_take() {
    const OTHERS: u64 = 50;
    let [user, other] = [Signing::with(KeySpec::Rsa(2048), 8), Signing::with(KeySpec::Rsa(4096), 8)];
    let (pool, told) = (Pool::new([]), Arc::new(Mutex::new(Vec::new())));
    let (notes, again, sealer, now) =
        (told.clone(), Arc::downgrade(&pool.adapters), other.sealers[0].clone(), other.now);
    let mailboxes = signing_dry(&pool, move |slots| {
        let mut all = notes.lock().unwrap();
        all.extend(slots);
        let next = 100 + all.len() as u64;
        if next < 100 + OTHERS {
            seal(&again.upgrade().unwrap(), next, &bulla_device::Asker::new(next), &sealer, now);
        }
    });
    let who = bulla_device::Asker::new(7);
    (0..9).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
    pool.adapters.run_dry(&mailboxes, &TaskMeter::default());
    let told = told.lock().unwrap();
    let place = told.iter().position(|slot| *slot == 8).unwrap();
    assert!(place < 20 && told.len() as u64 >= OTHERS, "{told:?}");
}

#[test]
fn who_leaves_takes_no_other_with_it_out_of_a_batch() {
    let user = Signing::new(8);
    let (mut pool, told, let_go) = held([]);
    let [stays, leaves] = [bulla_device::Asker::new(7), bulla_device::Asker::new(7)];
    pool.seal(0, &leaves, &user.sealers[0], user.now);
    told.recv_timeout(PATIENCE).unwrap();
    pool.seal(1, &leaves, &user.sealers[0], user.now);
    (2..=4).for_each(|slot| pool.seal(slot, &stays, &user.sealers[1], user.now));
    pool.all_begun();
    leaves.leave();
    let_go.send(()).unwrap();
    let sealed = pool.sealed(4);
    let places: Vec<_> = sealed[1..].iter().zip(2..).map(|(one, at)| user.place(at, one.as_ref().unwrap())).collect();
    assert_eq!(places, [Some((0, 3)), Some((1, 3)), Some((2, 3))]);
    // Nothing of it is left behind.
    pool.all_begun();
    assert!(pool.adapters.away().tasks.is_empty() && pool.adapters.lock().under_way.is_empty());
}

/// Else a user whose key is away holds any amount of it, by links that end as soon as their messages have come.
#[test]
fn the_memory_of_a_message_whose_link_has_ended_is_held_until_its_signature_is_made() {
    let user = Signing::new(2);
    let (mut pool, told, let_go) = held([]);
    let (leaves, all) = (bulla_device::Asker::new(7), 2 * SEALING_BYTES_MAX);
    for slot in 0..3 {
        let held = pool.adapters.hold(7, 1_000).unwrap();
        seal_holding(&pool.adapters, slot, &leaves, (&user.sealers[0], user.now), Some(held));
        if slot == 0 {
            told.recv_timeout(PATIENCE).unwrap();
        }
    }
    pool.all_begun();
    leaves.leave();
    assert!(pool.adapters.hold(8, all).is_err(), "three messages are there");
    let_go.send(()).unwrap();
    pool.sealed(3);
    pool.all_begun();
    assert!(pool.adapters.hold(8, all).is_ok());
}

#[test]
fn messages_of_two_policies_or_users_are_never_in_one_batch() {
    let [one, other] = [Signing::new(8), Signing::new(8)];
    let (mut pool, told, let_go) = held([]);
    let who = bulla_device::Asker::new(7);
    pool.seal(0, &who, &one.sealers[0], one.now);
    told.recv_timeout(PATIENCE).unwrap();
    for slot in 1..=6 {
        let user = if slot % 2 == 1 { &one } else { &other };
        pool.seal(slot, &who, &user.sealers[0], user.now);
    }
    pool.all_begun();
    let_go.send(()).unwrap();
    let sealed = pool.sealed(7);
    for (slot, sealed) in sealed.iter().enumerate().skip(1) {
        // It opens with that user's ring.
        let user = if slot % 2 == 1 { &one } else { &other };
        let place = user.place(slot, sealed.as_ref().unwrap());
        if slot % 2 == 1 {
            assert_eq!(place, Some((slot as u32 / 2, 3)), "{slot}");
        }
    }
}

#[test]
fn a_signature_that_fails_fails_for_its_batch_and_the_next_one_is_made() {
    let user = Signing::new(8);
    let (mut pool, told, let_go) = held([Deed::Fails]);
    let who = bulla_device::Asker::new(7);
    pool.seal(0, &who, &user.sealers[0], user.now);
    told.recv_timeout(PATIENCE).unwrap();
    (1..=10).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
    pool.all_begun();
    let_go.send(()).unwrap();
    let sealed = pool.sealed(11);
    let wrong = SealError::Key(DeviceError::WrongKey { why: "it is of brass" });
    assert!(sealed[1..=8].iter().all(|one| one.as_ref().err() == Some(&wrong)), "{sealed:?}");
    for (at, index) in [(9, 0), (10, 1)] {
        assert_eq!(user.place(at, sealed[at].as_ref().unwrap()), Some((index, 2)));
    }
    pool.all_begun();
    assert!(pool.adapters.away().tasks.is_empty() && pool.adapters.lock().under_way.is_empty());
}

#[test]
fn messages_of_one_batch_that_are_opened_together_take_one_verification() {
    let user = Signing::new(8);
    let (mut pool, told, let_go) = held([]);
    let who = bulla_device::Asker::new(7);
    pool.seal(0, &who, &user.sealers[0], user.now);
    told.recv_timeout(PATIENCE).unwrap();
    (1..=8).for_each(|slot| pool.seal(slot, &who, &user.sealers[0], user.now));
    pool.all_begun();
    let_go.send(()).unwrap();
    let sealed: Vec<Bytes> = pool.sealed(9).into_iter().map(|sealed| sealed.unwrap().der).collect();
    drop(pool);

    let mut pool = Pool::new([]);
    pool.adapters.scheduler.start(CPU_NAME).unwrap();
    let opener = Opener::new();
    for (slot, der) in sealed.iter().enumerate().skip(1) {
        let message = Message {
            opener: opener.clone(),
            policy: user.policy.clone(),
            ring: user.ring.clone(),
            now: user.now,
            der: der.clone(),
        };
        pool.open(slot as u64, &who, &message);
    }
    // All of them are begun in one turn.
    pool.run();
    for (number, opened) in pool.outcomes(8).into_iter().enumerate() {
        assert_eq!(opened.unwrap().content.bytes, payload(number + 1));
    }
    assert_eq!(pool.meters.opening.verifies, 1);
}
