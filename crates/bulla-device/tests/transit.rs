//! The device `TRANSIT` against a server of the published API ([`transit_common`]), which is not the real one.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod transit_common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bulla_device::scheduler::{Answer, Sink, State};
use bulla_device::transit::{ANSWER_BYTES_MAX, LANES, TokenNews, TransitSettings};
use bulla_device::{
    CpuDevice, Curve, Device, DeviceError, Digest, Driver, Finished, Inline, Job, KeyKind, Kind, Output, PrivateKey,
    RsaPadding, RsaScheme, Scheduler, Work,
};
use openssl::nid::Nid;
use transit_common::{Deed, Server, TOKEN, ec_key, rsa_key};

const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };
const CONTENT: [u8; 32] = [7; 32];

fn sign(scheme: RsaScheme, digest: Digest, content: &[u8]) -> Work {
    Work::RsaSign { scheme, digest, hash: digest.hash(content) }
}

fn usual() -> Work {
    sign(RsaScheme::Pkcs1, Digest::Sha256, b"content")
}

fn compute(job: Job) -> Result<Output, DeviceError> {
    run(&mut CpuDevice::new("tests"), vec![job]).remove(0)
}

/// The results of jobs in one call, in their order.
fn run(engine: &mut dyn Device, jobs: Vec<Job>) -> Vec<Result<Output, DeviceError>> {
    try_run(engine, jobs).unwrap()
}

fn try_run(engine: &mut dyn Device, jobs: Vec<Job>) -> Result<Vec<Result<Output, DeviceError>>, DeviceError> {
    let count = jobs.len();
    let mut jobs: Vec<Job> = (0..).zip(jobs).map(|(id, job)| Job { id, ..job }).collect();
    let mut done: Vec<Finished> = Vec::new();
    while done.len() < count {
        engine.submit(&mut jobs)?;
        engine.poll(&mut done)?;
    }
    done.sort_by_key(|finished| finished.id);
    Ok(done.into_iter().map(|finished| finished.result).collect())
}

fn one(engine: &mut dyn Device, key: &PrivateKey, work: Work) -> Result<Output, DeviceError> {
    try_run(engine, vec![Job::new(key.clone(), work)])?.remove(0)
}

fn is_good(key: &PrivateKey, work: &Work, signature: &Output) -> bool {
    let signature = signature.to_vec();
    let verify = match work {
        Work::RsaSign { scheme, digest, hash } => {
            Work::RsaVerify { scheme: *scheme, digest: *digest, hash: *hash, signature }
        }
        Work::EcdsaSign { hash } => Work::EcdsaVerify { hash: *hash, signature },
        _ => return false,
    };
    compute(Job::new(key.public_key().clone(), verify)).is_ok()
}

fn wrapped(key: &PrivateKey) -> Vec<u8> {
    let work = Work::RsaWrap { padding: OAEP, content_key: Output::new(CONTENT.to_vec()) };
    compute(Job::new(key.public_key().clone(), work)).unwrap().to_vec()
}

fn unwrap(wrapped: Vec<u8>) -> Work {
    Work::RsaUnwrap { padding: OAEP, wrapped, expected_len: CONTENT.len() }
}

fn why(error: &DeviceError) -> &str {
    match error {
        DeviceError::Refused { why, .. } | DeviceError::Offline { why, .. } => why,
        DeviceError::WrongKey { why } => why,
        error => panic!("{error:?}"),
    }
}

fn refused(result: Result<Output, DeviceError>) -> String {
    match result {
        Err(DeviceError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn offline<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> String {
    match result {
        Err(DeviceError::Offline { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn signatures_of_every_kind_fit_the_public_key() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let rsa = server.add("rsa", rsa_key(2048));
    for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
        for digest in Digest::ALL {
            let work = sign(scheme, *digest, b"content");
            let signature = one(&mut *engine, &rsa, work.clone()).unwrap();
            assert!(is_good(&rsa, &work, &signature), "{work:?}");
        }
    }
    for nid in [Nid::X9_62_PRIME256V1, Nid::SECP384R1, Nid::SECP521R1] {
        let key = server.add(nid.long_name().unwrap(), ec_key(nid));
        for digest in Digest::ALL {
            let work = Work::EcdsaSign { hash: digest.hash(b"content") };
            let signature = one(&mut *engine, &key, work.clone()).unwrap();
            assert!(is_good(&key, &work, &signature), "{nid:?} {work:?}");
        }
    }
    assert_eq!(server.state().connections, 1);
}

#[test]
fn many_jobs_of_one_key_are_one_request() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let (one, other) = (server.add("one", rsa_key(2048)), server.add("other", rsa_key(2048)));
    let works: Vec<Work> = (0..LANES).map(|n| sign(RsaScheme::Pkcs1, Digest::Sha256, &n.to_be_bytes())).collect();
    let results = run(&mut *engine, works.iter().map(|work| Job::new(one.clone(), work.clone())).collect());
    assert!(works.iter().zip(&results).all(|(work, result)| is_good(&one, work, result.as_ref().unwrap())));
    assert_eq!(server.state().jobs().len(), 1);

    // Jobs of one shape: two keys, two ways to sign, and to open.
    let works = [
        (&one, usual()),
        (&other, usual()),
        (&one, unwrap(wrapped(&one))),
        (&one, usual()),
        (&one, sign(RsaScheme::Pss, Digest::Sha256, b"content")),
        (&one, unwrap(wrapped(&one))),
    ];
    let jobs = works.iter().map(|(key, work)| Job::new((*key).clone(), work.clone())).collect();
    let results = run(&mut *engine, jobs);
    for ((key, work), result) in works.iter().zip(&results) {
        let result = result.as_ref().unwrap();
        assert!(is_good(key, work, result) || **result == CONTENT, "{work:?}");
    }
    let asked: Vec<usize> =
        server.state().jobs().iter().map(|asked| asked.body["batch_input"].as_array().unwrap().len()).collect();
    assert_eq!(asked, [LANES, 2, 1, 2, 1]);
}

#[test]
fn what_does_not_open_gives_another_key_and_the_others_open() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let key = server.add("k", rsa_key(2048));
    let mut damaged = wrapped(&key);
    damaged[100] ^= 1;
    let too_large = vec![0xff; 256];
    let short = vec![1; 100];
    let all = [wrapped(&key), damaged.clone(), too_large, wrapped(&key), short];
    let jobs = all.iter().map(|wrapped| Job::new(key.clone(), unwrap(wrapped.clone()))).collect();
    let results = run(&mut *engine, jobs);
    let opened: Vec<bool> = results.iter().map(|result| **result.as_ref().unwrap() == CONTENT).collect();
    assert_eq!(opened, [true, false, false, true, false]);
    assert!(results.iter().all(|result| result.as_ref().unwrap().len() == CONTENT.len()));
    // Two requests: the second has an envelope made for the key beside them. What can't be a ciphertext is not sent.
    let asked: Vec<usize> =
        server.state().jobs().iter().map(|asked| asked.body["batch_input"].as_array().unwrap().len()).collect();
    assert_eq!(asked, [3, 4]);
    let twice = [(); 2].map(|()| one(&mut *engine, &key, unwrap(damaged.clone())).unwrap());
    assert_ne!(twice[0], twice[1], "with OAEP it is random");
}

#[test]
fn a_content_key_that_several_messages_share_is_asked_for_once() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let key = server.add("k", rsa_key(2048));
    let mut damaged = wrapped(&key);
    damaged[9] ^= 1;
    let (first, second) = (wrapped(&key), wrapped(&key));
    let all = [&first, &second, &first, &damaged, &first, &damaged];
    let jobs = all.iter().map(|wrapped| Job::new(key.clone(), unwrap(wrapped.to_vec()))).collect();
    let results: Vec<Output> = run(&mut *engine, jobs).into_iter().map(Result::unwrap).collect();
    assert!([0, 1, 2, 4].into_iter().all(|at| *results[at] == CONTENT));
    assert!(*results[3] != CONTENT && results[3] != results[5], "each gets another key of its own");
    let asked: Vec<usize> =
        server.state().jobs().iter().map(|asked| asked.body["batch_input"].as_array().unwrap().len()).collect();
    assert_eq!(asked, [3, 4]);
}

#[test]
fn what_a_transit_engine_can_not_do_is_said_without_asking_it() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let (rsa, ec) = (server.add("rsa", rsa_key(2048)), server.add("ec", ec_key(Nid::X9_62_PRIME256V1)));
    let point = Curve::point(ec.public()).unwrap();
    for (key, work, said) in [
        (
            &rsa,
            Work::RsaUnwrap { padding: RsaPadding::Pkcs1, wrapped: vec![1; 256], expected_len: 32 },
            "RSA-OAEP with SHA-256",
        ),
        (&ec, Work::EcdhDerive { peer: point }, "agrees on no secrets"),
        (&rsa, Work::RsaPrivate { block: vec![1; 256] }, "pads by itself"),
    ] {
        let job = Job::new(key.clone(), work.clone());
        assert!(transit.takes(&job), "it says why not");
        let error = one(&mut *engine, key, work).unwrap_err();
        assert!(why(&error).contains(said) && !error.is_the_devices(), "{error}");
    }
    assert!(server.state().jobs().is_empty());
    let clear = PrivateKey::clear(rsa_key(1024)).unwrap();
    let on_token = PrivateKey::on_token(clear.public_key().clone(), "pkcs11:token=a");
    let elsewhere = PrivateKey::on_token(clear.public_key().clone(), "transit:key=a;version=1;device=OTHER");
    for key in [clear, on_token, elsewhere] {
        assert!(!transit.takes(&Job::new(key, usual())));
    }
}

#[test]
fn a_signature_that_does_not_fit_is_destroyed_and_another_key_is_told_from_a_fault() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let key = server.add("k", rsa_key(2048));
    server.does([Deed::WrongBit]);
    assert_eq!(one(&mut *engine, &key, usual()), Err(DeviceError::Fault { device: "VAULT".to_owned() }));
    assert!(one(&mut *engine, &key, usual()).is_ok());

    // Someone made the key anew, under its name.
    server.state().keys.insert("k".to_owned(), vec![rsa_key(2048)]);
    let said = refused(one(&mut *engine, &key, usual()));
    assert_eq!(said, "version 1 of key k is not the one of the certificate");
    let said = refused(one(&mut *engine, &key, unwrap(wrapped(&key))));
    assert!(said.starts_with("version 1 of key k does not open what is made for the certificate"), "{said}");

    let ec = server.add("ec", ec_key(Nid::X9_62_PRIME256V1));
    server.does([Deed::WrongBit]);
    let work = Work::EcdsaSign { hash: Digest::Sha256.hash(b"content") };
    assert_eq!(one(&mut *engine, &ec, work), Err(DeviceError::Fault { device: "VAULT".to_owned() }));

    let old = server.add("old", rsa_key(2048));
    server.state().salt_is_long = true;
    let said = refused(one(&mut *engine, &old, sign(RsaScheme::Pss, Digest::Sha256, b"content")));
    assert!(said.ends_with("or the server does not make PSS salts as long as the digest"), "{said}");
}

#[test]
fn each_version_of_a_key_is_asked_for_by_number() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let versions = [rsa_key(2048), rsa_key(2048)].map(|key| server.add("k", key));
    for key in &versions {
        assert!(is_good(key, &usual(), &one(&mut *engine, key, usual()).unwrap()));
        assert_eq!(*one(&mut *engine, key, unwrap(wrapped(key))).unwrap(), CONTENT);
    }
    let body = r#"{"data":{"batch_results":[{"signature":"vault:v2:YWJj"}]}}"#;
    server.does([Deed::Answer(200, body.to_owned())]);
    let said = offline(one(&mut *engine, &versions[0], usual()));
    assert!(said.contains("it signs with another version of the key than was asked for"), "{said}");
}

#[test]
fn a_refused_token_is_read_again_and_used_once_it_is_another() {
    let server = Server::new();
    let (transit, said) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let key = server.add("k", rsa_key(2048));
    server.state().tokens = vec!["hvs.another".to_owned()];
    server.write_token("hvs.another\n");
    assert!(one(&mut *engine, &key, usual()).is_ok(), "the job does not notice");
    let line = |at: usize| said.lock().unwrap()[at].line().unwrap_or_default().to_owned();
    assert!(line(0).contains("has another one, which is used from now on"), "{said:?}");

    server.state().tokens.clear();
    let why = offline(one(&mut *engine, &key, usual()));
    assert_eq!(why, "the server refused the token (403): 2 errors occurred: * permission denied * invalid token");
    assert!(line(1).contains("write a good one into"), "{said:?}");
    assert!(matches!(said.lock().unwrap()[1], TokenNews::Refused(_)));
    // Jobs that wait for it are refused, too, and say nothing more.
    offline(one(&mut *engine, &key, usual()));
    assert_eq!(said.lock().unwrap().len(), 2, "once, and not for each message");
    // The same one is not shown to the server again for a while.
    let asked = server.state().asked.iter().filter(|asked| asked.token.is_some()).count();
    let why = offline(transit.start_engine().map(drop));
    assert!(why.contains("has no other, and it is tried again in"), "{why}");
    assert_eq!(server.state().asked.iter().filter(|asked| asked.token.is_some()).count(), asked);

    server.state().tokens = vec![TOKEN.to_owned()];
    server.write_token(TOKEN);
    let mut engine = transit.start_engine().unwrap();
    assert!(one(&mut *engine, &key, usual()).is_ok());
    assert_eq!(said.lock().unwrap()[2..], [TokenNews::Taken], "it is over, which is no line");
    assert!(!format!("{said:?}{transit:?}").contains("hvs."), "no token is ever shown");
}

#[test]
fn a_key_that_the_token_may_not_use_is_that_keys_matter() {
    let server = Server::new();
    let (transit, said) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let (mine, other) = (server.add("mine", rsa_key(2048)), server.add("other", rsa_key(2048)));
    server.state().forbidden.push("other".to_owned());
    let jobs = vec![Job::new(other.clone(), usual()), Job::new(mine.clone(), usual())];
    let mut results = run(&mut *engine, jobs);
    assert!(results.pop().unwrap().is_ok());
    let why = refused(results.pop().unwrap());
    assert_eq!(
        why,
        "the server does not let the token use transit/sign/other/sha2-256 (403): 1 error occurred: * permission denied"
    );
    assert!(said.lock().unwrap().is_empty());
}

#[test]
fn bad_answers_are_the_servers_and_bounded() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let key = server.add("k", rsa_key(2048));
    let answer = |status, body: &str| Deed::Answer(status, body.to_owned());
    let huge = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", ANSWER_BYTES_MAX + 1);
    let elsewhere = "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://other.example/\r\ncontent-length: 0\r\n\r\n";
    for (deed, said) in [
        (answer(200, "<html>"), "can't be read: it is not the JSON of a transit engine"),
        (answer(200, "{}"), "can't be read: it has no results"),
        (answer(200, r#"{"data":{"batch_results":[]}}"#), "another number of results"),
        (Deed::Raw(huge.into_bytes()), "can't be read: it has more than 1048576 bytes"),
        (Deed::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()), "can't be read: it is no answer of HTTP/1.1"),
        (Deed::Raw(elsewhere.as_bytes().to_vec()), "a redirect (307), which is not followed"),
        (
            answer(429, r#"{"errors":["request path rate limit quota exceeded"]}"#),
            "too many requests (429): request path",
        ),
        (answer(503, r#"{"errors":["Vault is sealed"]}"#), "does not answer now (503): Vault is sealed"),
        (answer(502, "<html>bad gateway</html>"), "the server answered 502"),
    ] {
        let mut engine = transit.start_engine().unwrap();
        server.does([deed]);
        let why = offline(one(&mut *engine, &key, usual()));
        assert!(why.contains(said), "{why}");
    }
    // These are about the key.
    let mut engine = transit.start_engine().unwrap();
    for (deed, said) in [
        (answer(400, r#"{"errors":["signing key not found"]}"#), "the server answered 400: signing key not found"),
        (
            answer(404, r#"{"errors":["no handler for route \"transit/sign/k\""]}"#),
            "the server answered 404: no handler",
        ),
        (answer(500, r#"{"errors":["1 error occurred:\n\t* internal\n\n"]}"#), "the server answered 500: 1 error"),
    ] {
        server.does([deed]);
        let why = refused(one(&mut *engine, &key, usual()));
        assert!(why.starts_with(said), "{why}");
        assert!(one(&mut *engine, &key, usual()).is_ok(), "the engine goes on");
    }
    let gone = PrivateKey::on_token(key.public_key().clone(), "transit:key=gone;version=1");
    assert_eq!(refused(one(&mut *engine, &gone, usual())), "the server answered 400: signing key not found");
    assert_eq!(
        refused(one(&mut *engine, &gone, unwrap(wrapped(&gone)))),
        "the server answered 400: encryption key not found"
    );
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let server = Server::new();
    let settings = TransitSettings { request_timeout: Duration::from_millis(500), ..server.settings() };
    let (transit, _) = Server::transit_of(settings);
    let key = server.add("k", rsa_key(2048));
    let mut engine = transit.start_engine().unwrap();
    server.does([Deed::Silence]);
    assert_eq!(offline(one(&mut *engine, &key, usual())), "no answer in time");
}

#[test]
fn a_connection_that_the_server_closed_meanwhile_is_made_anew() {
    let server = Server::new();
    server.state().closes_after_each = true;
    let (transit, _) = server.transit();
    let mut engine = transit.start_engine().unwrap();
    let key = server.add("k", rsa_key(2048));
    for _ in 0..3 {
        assert!(one(&mut *engine, &key, usual()).is_ok());
    }
    server.state().closes_after_each = false;
    assert!(one(&mut *engine, &key, usual()).is_ok());
    // One that closes without an answer on a connection of its own is asked no second time.
    server.does([Deed::Close, Deed::Close]);
    let why = offline(one(&mut *engine, &key, usual()));
    assert!(why.starts_with("the server ended the connection") || why.starts_with("the connection broke"), "{why}");
}

#[test]
fn the_server_proves_its_name_by_the_authorities_of_the_definition() {
    let (server, other) = (Server::new(), Server::new());
    let refused = |settings: TransitSettings| offline(Server::transit_of(settings).0.start_engine().map(drop));
    let why = refused(TransitSettings { authorities: other.dir.path().join("ca.pem"), ..server.settings() });
    assert!(why.contains("its certificate is not believed"), "{why}");
    let address = format!("https://127.0.0.1:{}", server.port).parse().unwrap();
    let why = refused(TransitSettings { address, ..server.settings() });
    assert!(why.contains("its certificate is not believed") && why.contains("mismatch"), "{why}");
    let why = refused(TransitSettings { authorities: server.dir.path().join("token"), ..server.settings() });
    assert!(why.ends_with("it has no certificate in PEM"), "{why}");
    let why = refused(TransitSettings { token_file: server.dir.path().join("ca.pem"), ..server.settings() });
    assert!(why.contains("can be read by others"), "{why}");
    assert!(server.state().asked.iter().all(|asked| asked.token.is_none()), "no token for who has not proved it");
    assert!(other.state().asked.is_empty());

    let strict = Server::that_asks_for_certificates();
    offline(Server::transit_of(strict.settings()).0.start_engine().map(drop));
    let client_certificate = Some(strict.dir.path().join("client.pem"));
    let settings = TransitSettings { client_certificate, namespace: Some("team/a".to_owned()), ..strict.settings() };
    let key = strict.add("k", rsa_key(2048));
    let mut engine = Server::transit_of(settings).0.start_engine().unwrap();
    assert!(one(&mut *engine, &key, usual()).is_ok());
    assert_eq!(strict.state().jobs()[0].namespace.as_deref(), Some("team/a"));
}

#[test]
fn keys_are_made_and_found_by_name() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let made = transit.create_key(KeyKind::Ec(Curve::P256), 256, "orders").unwrap();
    assert_eq!(made.uri.to_string(), "transit:key=orders;version=1");
    let key = PrivateKey::on_token(made.public, made.uri.to_string());
    let mut engine = transit.start_engine().unwrap();
    assert!(one(&mut *engine, &key, Work::EcdsaSign { hash: Digest::Sha256.hash(b"content") }).is_ok());
    let why = |result: Result<_, DeviceError>| result.map(drop).unwrap_err().to_string();
    assert!(why(transit.create_key(KeyKind::Rsa, 2048, "orders")).contains("there is a key orders already"));
    assert!(why(transit.create_key(KeyKind::Rsa, 1024, "small")).contains("a transit engine has RSA of 2048"));
    assert!(why(transit.create_key(KeyKind::Rsa, 2048, "a/../b")).contains("a key's name"));
    server.add("orders", ec_key(Nid::X9_62_PRIME256V1));
    assert_eq!(transit.key("orders", None).unwrap().uri.version, 2);
    assert_eq!(transit.key("orders", Some(1)).unwrap().public.id(), key.id());
    assert!(why(transit.key("orders", Some(3))).contains("key orders has no version 3: it has 1, 2"));
    assert!(why(transit.key("none", None)).contains("there is no key none in transit"));
}

// ---- under the scheduler -----------------------------------------------------------------------

#[derive(Default)]
struct Answers {
    all: Mutex<Vec<Answer>>,
    come: Condvar,
}

impl Sink for Answers {
    fn finished(&self, answers: Vec<Answer>) {
        self.all.lock().unwrap().extend(answers);
        self.come.notify_all();
    }
}

impl Answers {
    fn of(&self, id: u64) -> Result<Output, DeviceError> {
        let all = self.all.lock().unwrap();
        let mut all = self.come.wait_while(all, |all| !all.iter().any(|answer| answer.id == id)).unwrap();
        let at = all.iter().position(|answer| answer.id == id).unwrap();
        all.remove(at).result
    }
}

fn scheduler(transit: &bulla_device::transit::Transit) -> Arc<Scheduler> {
    let scheduler = Scheduler::new(Kind::Cpu, 1);
    let driver = transit.clone();
    let open = Arc::new(move || Ok(Arc::new(driver.clone()) as Arc<dyn Driver>));
    scheduler.define("VAULT", Kind::Transit, 256, open).unwrap();
    scheduler.start("VAULT").unwrap();
    scheduler
}

fn until(scheduler: &Scheduler, is: impl Fn(&State) -> bool) -> State {
    loop {
        let state = scheduler.report_of("VAULT").unwrap().state;
        if is(&state) {
            return state;
        }
        std::thread::yield_now();
    }
}

fn place(scheduler: &Scheduler, sink: &Arc<Answers>, id: u64, key: &PrivateKey, deadline: Duration) {
    let job = Job { id, deadline: Some(Instant::now() + deadline), ..Job::new(key.clone(), usual()) };
    let (sink, mut inline): (Arc<dyn Sink>, _) = (sink.clone(), Inline::new());
    scheduler.place(&mut vec![job], &sink, &mut inline);
    sink.finished(inline.run(scheduler));
}

#[test]
fn while_the_server_is_away_jobs_keep_their_deadline_and_others_are_not_delayed() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let key = server.add("k", rsa_key(2048));
    let scheduler = scheduler(&transit);
    let answers = Arc::new(Answers::default());
    until(&scheduler, |state| *state == State::Running);
    place(&scheduler, &answers, 1, &key, Duration::from_secs(60));
    assert!(answers.of(1).is_ok());

    server.state().sealed = true;
    place(&scheduler, &answers, 2, &key, Duration::from_millis(300));
    assert_eq!(offline(answers.of(2)), "the server is sealed", "its deadline has passed");
    let state = until(&scheduler, |state| matches!(state, State::Offline { .. }));
    assert!(state.why().unwrap().contains("sealed"), "{state:?}");
    // Offline, the device is asked for nothing: what waits stays in front, and clear keys go their way.
    place(&scheduler, &answers, 3, &key, Duration::from_secs(60));
    let clear = PrivateKey::clear(rsa_key(1024)).unwrap();
    place(&scheduler, &answers, 4, &clear, Duration::from_secs(60));
    assert!(answers.of(4).is_ok());
    let report = scheduler.report_of("VAULT").unwrap();
    assert_eq!((report.waiting, report.in_service, scheduler.backlog()), (0, 0, 1));

    server.state().sealed = false;
    assert!(answers.of(3).is_ok(), "it is tried again by itself");
    scheduler.shut_down();
}

#[test]
fn one_keys_refusals_do_not_take_the_device_from_the_others() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let (mine, other) = (server.add("mine", rsa_key(2048)), server.add("other", rsa_key(2048)));
    server.state().forbidden.push("other".to_owned());
    let scheduler = scheduler(&transit);
    let answers = Arc::new(Answers::default());
    for id in 0..20 {
        place(&scheduler, &answers, 2 * id, &other, Duration::from_secs(60));
        place(&scheduler, &answers, 2 * id + 1, &mine, Duration::from_secs(60));
    }
    for id in 0..20 {
        assert!(matches!(answers.of(2 * id), Err(DeviceError::Refused { .. })));
        assert!(answers.of(2 * id + 1).is_ok());
    }
    assert_eq!(scheduler.report_of("VAULT").unwrap().state, State::Running);
    scheduler.shut_down();
}

#[test]
fn jobs_that_wait_for_a_request_go_together_in_the_next() {
    let server = Server::new();
    let (transit, _) = server.transit();
    let key = server.add("k", rsa_key(2048));
    let scheduler = scheduler(&transit);
    let answers = Arc::new(Answers::default());
    until(&scheduler, |state| *state == State::Running);
    {
        // The server has its hands full with the first one.
        let _state = server.state();
        for id in 0..64 {
            place(&scheduler, &answers, id, &key, Duration::from_secs(60));
        }
    }
    assert!((0..64).all(|id| answers.of(id).is_ok()));
    let asked = server.state().jobs().len();
    assert!(asked <= 3, "{asked} requests");
    scheduler.shut_down();
}
