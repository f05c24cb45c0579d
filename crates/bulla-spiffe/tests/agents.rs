//! Agents that answer as they should not: each is refused in time, and by name.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use bulla_spiffe::{ANSWER_BYTES_MAX, FetchError, SVIDS_MAX, Svid, fetch};
use bytes::Bytes;
use http::{HeaderMap, Response};
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

type Answering = h2::server::SendResponse<Bytes>;

/// Long enough for what comes, and a test that waits for it fails.
const WITHIN: Duration = Duration::from_secs(20);

/// What a message of protobuf has as field `number`: bytes of that length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut all = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        all.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    all.push(u8::try_from(length).unwrap());
    all.extend_from_slice(content);
    all
}

fn framed(flag: u8, message: &[u8]) -> Bytes {
    let mut all = vec![flag];
    all.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    all.extend_from_slice(message);
    all.into()
}

fn svid(id: &str) -> Vec<u8> {
    let all = [field(1, id.as_bytes()), field(2, b"certificate"), field(3, b"key"), field(4, b"bundle")];
    field(1, &all.concat())
}

/// What is fetched of an agent that answers the one request in that way.
fn fetched<F: Future<Output = ()>>(
    answers: impl FnOnce(http::Request<h2::RecvStream>, Answering) -> F + Send + 'static,
    within: Duration,
) -> Result<Vec<Svid>, FetchError> {
    let folder = Folder::new();
    let path = folder.0.join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let agent = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            let socket = tokio::net::UnixStream::from_std(socket).unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let (request, answering) = connection.accept().await.unwrap().unwrap();
            let mut answers = std::pin::pin!(answers(request, answering));
            let mut is_answered = false;
            std::future::poll_fn(|context| {
                if !is_answered {
                    is_answered = answers.as_mut().poll(context).is_ready();
                }
                // It ends when the other end does.
                connection.poll_closed(context).map(drop)
            })
            .await;
        });
    });
    let fetched = fetch(&path, within, &|| false);
    agent.join().unwrap();
    fetched
}

/// An agent that sends these bytes, and then its status.
fn sending(bytes: Bytes, status: &'static str) -> Result<Vec<Svid>, FetchError> {
    let answers = move |_, mut answering: Answering| async move {
        let mut body = answering.send_response(Response::new(()), false).unwrap();
        // Who asked may have hung up already.
        let _ = body.send_data(bytes, false);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        trailers.insert("grpc-message", "not%20here".parse().unwrap());
        let _ = body.send_trailers(trailers);
    };
    fetched(answers, WITHIN)
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bulla-spiffe-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_a_good_agent_has_comes_whole_and_in_its_order() {
    let answers = |request: http::Request<h2::RecvStream>, mut answering: Answering| async move {
        assert_eq!(request.uri().path(), "/SpiffeWorkloadAPI/FetchX509SVID");
        assert_eq!(request.headers()["workload.spiffe.io"], "true");
        assert_eq!(request.headers()["content-type"], "application/grpc");
        let mut body = answering.send_response(Response::new(()), false).unwrap();
        // In two pieces, and the stream stays open, as that of an agent does.
        let mut whole = framed(0, &[svid("spiffe://a.example/one"), svid("spiffe://a.example/two")].concat());
        body.send_data(whole.split_to(7), false).unwrap();
        body.send_data(whole, false).unwrap();
        std::future::pending().await
    };
    let all = fetched(answers, WITHIN).unwrap();
    let ids: Vec<_> = all.iter().map(|svid| svid.id.as_str()).collect();
    assert_eq!(ids, ["spiffe://a.example/one", "spiffe://a.example/two"]);
    assert_eq!((all[0].certificates.as_slice(), all[0].key.as_slice()), (&b"certificate"[..], &b"key"[..]));
    assert_eq!(format!("{:?}", all[0]), "Svid { id: \"spiffe://a.example/one\", .. }");
}

#[test]
fn a_refusal_is_told_with_its_number_and_words() {
    let error = sending(Bytes::new(), "7").unwrap_err();
    assert!(matches!(&error, FetchError::Status { code: 7, said } if said == "not here"), "{error}");
    let error = sending(Bytes::new(), "seven").unwrap_err();
    assert_eq!(error.to_string(), "a status that is no number");
    let answers = |_, mut answering: Answering| async move {
        let refusal = Response::builder().header("grpc-status", "14").body(()).unwrap();
        answering.send_response(refusal, true).unwrap();
    };
    let error = fetched(answers, WITHIN).unwrap_err();
    assert!(matches!(&error, FetchError::Status { code: 14, .. }), "{error}");
    let answers = |_, mut answering: Answering| async move {
        answering.send_response(Response::builder().status(404).body(()).unwrap(), true).unwrap();
    };
    assert_eq!(fetched(answers, WITHIN).unwrap_err().to_string(), "HTTP status 404");
}

#[test]
fn an_answer_that_is_none_is_refused() {
    let ended = "the answer ends before its message does";
    assert_eq!(sending(Bytes::new(), "0").unwrap_err().to_string(), ended);
    assert_eq!(sending(framed(0, b"12345").slice(..8), "0").unwrap_err().to_string(), ended);
    assert!(sending(framed(1, b"12345"), "0").unwrap_err().to_string().contains("compressed"));
    assert!(matches!(sending(framed(0, &[0xff; 40]), "0"), Err(FetchError::Protocol(_))));
    // A length that leads out of the message.
    assert!(matches!(sending(framed(0, &[0x0a, 0xff, 0xff, 0x03, 1]), "0"), Err(FetchError::Protocol(_))));
    let many = svid("spiffe://a.example/one").repeat(SVIDS_MAX + 1);
    assert!(sending(framed(0, &many), "0").unwrap_err().to_string().contains("more than 64 SVIDs"));
    let mut long = vec![0];
    long.extend_from_slice(&u32::try_from(ANSWER_BYTES_MAX + 1).unwrap().to_be_bytes());
    assert!(matches!(sending(long.into(), "0"), Err(FetchError::TooLong)));
    assert!(sending(framed(0, &[]), "0").unwrap().is_empty(), "an agent may have none");
}

#[test]
fn an_agent_that_says_nothing_is_left_in_time() {
    let started = Instant::now();
    let answers = |_, answering: Answering| async move {
        std::future::pending::<()>().await;
        drop(answering);
    };
    let error = fetched(answers, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, FetchError::Late), "{error}");
    assert!(started.elapsed() < WITHIN);
}

#[test]
fn what_speaks_another_protocol_is_refused_and_what_is_not_there_is_told() {
    let folder = Folder::new();
    let path = folder.0.join("s");
    let error = fetch(&path, WITHIN, &|| false).unwrap_err();
    assert!(matches!(error, FetchError::Io(_)), "{error}");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let agent = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let error = fetch(&path, WITHIN, &|| false).unwrap_err();
    assert!(matches!(error, FetchError::Io(_) | FetchError::Protocol(_)), "{error}");
    agent.join().unwrap();
    // A queue manager that stops does not wait for the agent.
    let _listener = std::os::unix::net::UnixListener::bind(folder.0.join("t")).unwrap();
    let error = fetch(&folder.0.join("t"), WITHIN, &|| true).unwrap_err();
    assert!(matches!(error, FetchError::GivenUp), "{error}");
}
