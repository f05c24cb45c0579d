//! What is asked of the engine: the requests of JetStream's API, each with its limit in time.
//!
//! The API is JSON over subjects (`$JS.API.…`); docs.nats.io has it under "JetStream wire API reference".

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, HeaderMap, Message, ReconnectToServer, Request, ServerAddr, Subscriber};
use base64ct::{Base64, Encoding};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::options::{
    ANSWER_WITHIN, CONNECT_WITHIN, DUPLICATE_WINDOW, LOOK_WITHIN, MESSAGE_HEADERS_BYTES_MAX, Options, PAUSE_FIRST,
    PAUSE_MAX, PING_EVERY, REPLAY_BYTES_MAX, REPLAY_MESSAGES_MAX, UNHEARD_MAX, WHOLE_BYTES_MAX,
};
use crate::shared::hold;

const MESSAGE_ID: &str = "Nats-Msg-Id";
const EXPECTED_LAST_OF_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence";
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
const SUBJECT: &str = "Nats-Subject";
const SEQUENCE: &str = "Nats-Sequence";
/// In an answer with several messages: the sequence of the one sent before, so that a hole is seen.
const SENT_BEFORE: &str = "Nats-Last-Sequence";
const PENDING: &str = "Nats-Num-Pending";

/// `wrong last sequence`, with and without the number.
const WRONG_LAST_SEQUENCE: [u64; 2] = [10_071, 10_164];
/// The message could not be kept; the text says whether the stream has as many bytes as it may.
const STORE_FAILED: u64 = 10_077;
const STREAM_NOT_FOUND: u64 = 10_059;
const NO_MESSAGE_FOUND: u64 = 10_037;
/// A message is larger than the stream takes; the account has no streams.
const NEVER: [u64; 2] = [10_054, 10_039];

/// Why a request was not carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// The sequence that was expected is not the last one.
    WrongLast,
    /// The stream is full.
    Full,
    /// There is no such message or stream.
    Missing,
    /// It will never be carried out.
    Impossible(String),
    /// There was no answer, or one that says nothing of what was asked: try again.
    Unanswered(String),
}

impl Refusal {
    pub(crate) fn text(&self) -> String {
        match self {
            Refusal::WrongLast => "the stream has another last message".to_owned(),
            Refusal::Full => "the stream is full".to_owned(),
            Refusal::Missing => "the stream or the message is not there".to_owned(),
            Refusal::Impossible(text) | Refusal::Unanswered(text) => text.clone(),
        }
    }

    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self.text())
    }
}

/// What must hold for a message to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    Nothing,
    /// The sequence of the last epoch record, 0 where there is none.
    Epoch(u64),
}

/// What the stream is like.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct StreamInfo {
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    pub(crate) first_sequence: u64,
    pub(crate) last_sequence: u64,
    pub(crate) replicas: usize,
    /// The servers that have a copy.
    pub(crate) peers: Vec<String>,
    /// What speaks against it as a log, if something does.
    pub(crate) fault: Option<String>,
}

/// A message of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) sequence: u64,
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
}

/// A pause that grows with each use.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Pause {
    pub(crate) fn new() -> Self {
        Pause(PAUSE_FIRST)
    }

    pub(crate) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

/// When the stream's leader answered last, or another server was turned to. A server that is cut off from the others
/// keeps its clients, and goes on handing out the messages that it has.
#[derive(Debug)]
struct Heard(Mutex<Instant>);

impl Heard {
    fn now(&self) {
        *hold(&self.0) = Instant::now();
    }

    /// Whether another server is to be asked. Then none further is for as long again.
    fn is_long_ago(&self) -> bool {
        let mut heard = hold(&self.0);
        let is_long_ago = heard.elapsed() >= UNHEARD_MAX;
        if is_long_ago {
            *heard = Instant::now();
        }
        is_long_ago
    }
}

/// The connection, and the names of one group.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) client: Client,
    pub(crate) group: String,
    heard: Arc<Heard>,
}

impl Engine {
    pub(crate) async fn connect(options: &Options) -> io::Result<Self> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let mut connecting = ConnectOptions::new()
            .name(format!("bulla {} {}", options.group, options.owner))
            .ping_interval(PING_EVERY)
            .connection_timeout(ANSWER_WITHIN)
            .request_timeout(Some(ANSWER_WITHIN))
            .reconnect_delay_callback(|tries| {
                PAUSE_MAX.min(PAUSE_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(6)))
            });
        let turns = AtomicUsize::new(0);
        connecting = connecting.reconnect_to_server_callback(move |servers, info| {
            // The first connection tries them all. The client's own choice goes back to the server that never failed.
            let is_first = info.server_id.is_empty();
            let turn = turns.fetch_add(usize::from(!is_first), Ordering::Relaxed) % servers.len().max(1);
            let next = servers.into_iter().nth(turn).filter(|_| !is_first);
            std::future::ready(next.map(|server| ReconnectToServer { addr: server.addr, delay: None }))
        });
        if let Some(tls) = &options.tls {
            connecting = connecting
                .require_tls(true)
                .add_root_certificates(tls.authorities.clone())
                .add_client_certificate(tls.certificate.clone(), tls.key.clone());
        }
        if let Some(file) = &options.credentials {
            let described = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
            connecting = connecting.credentials_file(file).await.map_err(described)?;
        }
        let servers: Result<Vec<ServerAddr>, _> = options.servers.iter().map(|server| server.parse()).collect();
        let servers = servers.map_err(|error: io::Error| invalid(format!("servers: {error}")))?;
        let connected = timeout(CONNECT_WITHIN, connecting.connect(servers)).await;
        let connected = connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no server answered"))?;
        let client = connected.map_err(|error| io::Error::other(with_causes(&error)))?;
        let payload_max = client.server_info().max_payload;
        if payload_max < WHOLE_BYTES_MAX + MESSAGE_HEADERS_BYTES_MAX {
            return Err(invalid(format!("the server takes {payload_max} bytes a message: max_payload is too small")));
        }
        let heard = Arc::new(Heard(Mutex::new(Instant::now())));
        Ok(Engine { client, group: options.group.clone(), heard })
    }

    // ---- subjects

    pub(crate) fn log(&self) -> String {
        format!("{}.log", self.group)
    }

    pub(crate) fn epoch(&self) -> String {
        format!("{}.epoch", self.group)
    }

    /// Where an owner says that it is there. The stream does not keep it.
    pub(crate) fn ask(&self) -> String {
        format!("{}.ask", self.group)
    }

    /// Log and epoch records, and no parts: those have more words.
    fn frames(&self) -> String {
        format!("{}.*", self.group)
    }

    pub(crate) fn all_parts(&self) -> String {
        format!("{}.part.>", self.group)
    }

    /// Those of former owners, too.
    pub(crate) fn all_beats(&self) -> String {
        format!("{}.part.*.beat", self.group)
    }

    pub(crate) fn part(&self, epoch: u64, at: u64, number: usize) -> String {
        format!("{}.part.{epoch}.{at}.{number}", self.group)
    }

    // ---- requests

    /// What is sent without a connection is kept, and goes wherever the next one leads: to servers with another log, it
    /// may be. So it is not sent. Waits for the next one, as long as for an answer.
    async fn is_connected(&self) -> Result<(), Refusal> {
        let is_so = || self.client.connection_state() == State::Connected;
        if is_so() {
            return Ok(());
        }
        let deadline = Instant::now() + ANSWER_WITHIN;
        while !is_so() && Instant::now() < deadline {
            sleep(PAUSE_FIRST).await;
        }
        Err(Refusal::Unanswered("the connection to the engine was lost".to_owned()))
    }

    /// Asks any server of the stream.
    async fn ask_any(&self, subject: String, request: Request) -> Result<Message, Refusal> {
        let request = request.timeout(Some(ANSWER_WITHIN));
        self.client.send_request(subject, request).await.map_err(|error| Refusal::Unanswered(with_causes(&error)))
    }

    /// Asks the stream's leader. Where there is none for long, the next request goes by another server.
    async fn ask_for(&self, subject: String, request: Request) -> Result<Value, Refusal> {
        let answered = self.ask_any(subject, request).await.and_then(|message| answer(&message));
        match &answered {
            // A server that does not reach the leader may say so.
            Err(Refusal::Unanswered(_)) => self.is_unheard().await,
            _ => self.heard.now(),
        }
        answered
    }

    /// The leader has not answered.
    async fn is_unheard(&self) {
        if self.heard.is_long_ago() {
            // An error says that the client is closed: then nothing more is asked.
            let _ = self.client.force_reconnect().await;
        }
    }

    async fn api(&self, what: &str, body: Value) -> Result<Value, Refusal> {
        let request = Request::new().payload(body.to_string().into());
        self.ask_for(format!("$JS.API.{what}.{}", self.group), request).await
    }

    /// Sends a message into the stream, once. Returns its sequence: that of the first copy, if it is in already.
    pub(crate) async fn publish(
        &self,
        subject: String,
        id: &str,
        expect: Expect,
        payload: Bytes,
    ) -> Result<u64, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, id);
        match expect {
            Expect::Nothing => {}
            Expect::Epoch(sequence) => {
                self.is_connected().await?;
                headers.insert(EXPECTED_LAST_OF_SUBJECT, sequence.to_string());
                headers.insert(EXPECTED_SUBJECT, self.epoch());
            }
        }
        let request = Request::new().headers(headers).payload(payload);
        let answered = self.ask_for(subject, request).await?;
        let sequence = answered["seq"].as_u64().filter(|sequence| *sequence > 0);
        sequence.ok_or_else(|| Refusal::Unanswered(format!("the engine answered {answered}")))
    }

    /// Writes a message of which nothing is read, as an owner. Its sequence says that there is no other owner: a leader
    /// that is cut off goes on answering who reads, and writes nothing.
    pub(crate) async fn beat(&self, epoch: u64, fence: u64, number: u128) -> Result<u64, Refusal> {
        let subject = format!("{}.part.{epoch}.beat", self.group);
        let id = format!("{epoch}.beat.{number}");
        match timeout(LOOK_WITHIN, self.publish(subject, &id, Expect::Epoch(fence), Bytes::new())).await {
            Ok(answered) => answered,
            Err(_) => {
                self.is_unheard().await;
                Err(Refusal::Unanswered("no answer in time".to_owned()))
            }
        }
    }

    /// Makes the stream if it is not there.
    pub(crate) async fn make_stream(&self, options: &Options) -> Result<(), Refusal> {
        let config = json!({
            "name": self.group,
            "subjects": [self.epoch(), self.log(), self.all_parts()],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_bytes": options.stream_bytes,
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "max_age": 0,
            "max_consumers": -1,
            "num_replicas": options.replicas,
            "duplicate_window": DUPLICATE_WINDOW.as_nanos() as u64,
            "allow_direct": true,
        });
        self.api("STREAM.CREATE", config).await.map(|_| ())
    }

    /// What the stream is like, as its leader says.
    pub(crate) async fn info(&self) -> Result<StreamInfo, Refusal> {
        let request = Request::new().payload(json!({}).to_string().into());
        // A server that is cut off from the others goes on telling this.
        let value = answer(&self.ask_any(format!("$JS.API.STREAM.INFO.{}", self.group), request).await?)?;
        let (config, state, cluster) = (&value["config"], &value["state"], &value["cluster"]);
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let names = cluster["replicas"].as_array().into_iter().flatten().map(|peer| &peer["name"]);
        let peers = names.chain([&cluster["leader"]]).filter_map(Value::as_str).map(str::to_owned);
        Ok(StreamInfo {
            bytes: number(&state["bytes"]),
            bytes_max: number(&config["max_bytes"]),
            first_sequence: number(&state["first_seq"]),
            last_sequence: number(&state["last_seq"]),
            replicas: config["num_replicas"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
            peers: peers.collect(),
            fault: self.fault(config),
        })
    }

    /// What speaks against a stream as a log.
    fn fault(&self, config: &Value) -> Option<String> {
        let subjects: Vec<_> = config["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let window = config["duplicate_window"].as_u64().unwrap_or(0);
        let has_all = [self.epoch(), self.log(), self.all_parts()].iter().all(|one| subjects.contains(&one.as_str()));
        let unlimited = |name: &str| config[name].as_i64().is_none_or(|limit| limit <= 0);
        let faults = [
            (!has_all || subjects.len() != 3, "subjects"),
            (config["retention"] != "limits", "retention"),
            (config["storage"] != "file", "storage"),
            (config["discard"] != "new", "discard"),
            (unlimited("max_bytes"), "max_bytes"),
            (!unlimited("max_msgs"), "max_msgs"),
            (!unlimited("max_msgs_per_subject"), "max_msgs_per_subject"),
            (!unlimited("max_age"), "max_age"),
            (window < DUPLICATE_WINDOW.as_nanos() as u64, "duplicate_window"),
            (config["allow_direct"] != true, "allow_direct"),
            (config["sealed"] == true, "sealed"),
            (!config["mirror"].is_null() || config["sources"].is_array(), "mirror or sources"),
        ];
        let found = faults.into_iter().find(|(is_wrong, _)| *is_wrong);
        found.map(|(_, name)| format!("stream {} has another {name} than a shared log needs", self.group))
    }

    /// Removes messages of a subject below a sequence.
    pub(crate) async fn purge(&self, subject: String, below: u64) -> Result<(), Refusal> {
        self.api("STREAM.PURGE", json!({ "filter": subject, "seq": below })).await.map(|_| ())
    }

    /// The last message of a subject, as the leader has it.
    pub(crate) async fn last_of(&self, subject: String) -> Result<Option<Stored>, Refusal> {
        self.ask_leader(json!({ "last_by_subj": subject })).await
    }

    /// The first message of a subject, as the leader has it.
    pub(crate) async fn first_of(&self, subject: String) -> Result<Option<Stored>, Refusal> {
        self.ask_leader(json!({ "seq": 1, "next_by_subj": subject })).await
    }

    /// A message by its sequence: from any server that has it, else from the leader.
    pub(crate) async fn message(&self, sequence: u64) -> Result<Option<Stored>, Refusal> {
        let request = Request::new().payload(json!({ "seq": sequence }).to_string().into());
        match self.ask_any(format!("$JS.API.DIRECT.GET.{}", self.group), request).await.map(stored) {
            Ok(Some(found)) => Ok(Some(found)),
            _ => self.ask_leader(json!({ "seq": sequence })).await,
        }
    }

    async fn ask_leader(&self, which: Value) -> Result<Option<Stored>, Refusal> {
        let value = match self.api("STREAM.MSG.GET", which).await {
            Ok(value) => value,
            Err(Refusal::Missing) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        let message = &value["message"];
        let payload = Base64::decode_vec(message["data"].as_str().unwrap_or_default());
        let payload = payload.map_err(|_| Refusal::Unanswered("the engine answered no base64".to_owned()))?;
        let (Some(sequence), Some(subject)) = (message["seq"].as_u64(), message["subject"].as_str()) else {
            return Err(Refusal::Unanswered("the engine answered without a message".to_owned()));
        };
        Ok(Some(Stored { sequence, subject: subject.to_owned(), payload: payload.into() }))
    }

    /// Begins to fetch log and epoch records from a sequence on.
    pub(crate) async fn fetch(&self, from: u64) -> Result<Fetch, Refusal> {
        let unanswered = |error: &dyn std::error::Error| Refusal::Unanswered(with_causes(error));
        let inbox = self.client.new_inbox();
        let subscriber = self.client.subscribe(inbox.clone()).await.map_err(|error| unanswered(&error))?;
        let body = json!({
            "seq": from.max(1),
            "next_by_subj": self.frames(),
            "batch": REPLAY_MESSAGES_MAX,
            "max_bytes": REPLAY_BYTES_MAX,
        });
        let subject = format!("$JS.API.DIRECT.GET.{}", self.group);
        let sent = self.client.publish_with_reply(subject, inbox, body.to_string().into()).await;
        sent.map_err(|error| unanswered(&error))?;
        Ok(Fetch { subscriber, before: 0 })
    }
}

/// Messages on their way.
pub(crate) struct Fetch {
    subscriber: Subscriber,
    before: u64,
}

/// What comes next of a [`Fetch`].
pub(crate) enum Fetched {
    Message(Stored),
    /// That was all that was asked for; so many more are there.
    End {
        pending: u64,
    },
}

impl Fetch {
    pub(crate) async fn next(&mut self) -> Result<Fetched, Refusal> {
        let unanswered = |text: &str| Refusal::Unanswered(text.to_owned());
        let next = timeout(ANSWER_WITHIN, self.subscriber.next()).await;
        let message = next.map_err(|_| unanswered("messages did not come"))?;
        let message = message.ok_or_else(|| unanswered("the connection ended"))?;
        let number = |name: &str| header(&message, name).and_then(|text| text.parse::<u64>().ok());
        match message.status.map(|status| status.as_u16()) {
            Some(404) => return Ok(Fetched::End { pending: 0 }),
            Some(204) => return Ok(Fetched::End { pending: number(PENDING).unwrap_or(0) }),
            Some(status) if status != 200 => return Err(Refusal::Unanswered(format!("the engine answered {status}"))),
            _ => {}
        }
        if number(SENT_BEFORE).is_some_and(|before| before != self.before) {
            return Err(unanswered("a message was lost on the way"));
        }
        let found = stored(message).ok_or_else(|| unanswered("the engine answered without a sequence"))?;
        self.before = found.sequence;
        Ok(Fetched::Message(found))
    }
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.headers.as_ref()?.get(name).map(|value| value.as_str())
}

/// The message of the stream that a direct answer has.
fn stored(message: Message) -> Option<Stored> {
    if message.status.is_some_and(|status| status.as_u16() != 200) {
        return None;
    }
    let sequence = header(&message, SEQUENCE)?.parse().ok()?;
    let subject = header(&message, SUBJECT)?.to_owned();
    Some(Stored { sequence, subject, payload: message.payload })
}

/// The JSON of an answer, or why it is none.
fn answer(message: &Message) -> Result<Value, Refusal> {
    let parsed = serde_json::from_slice::<Value>(&message.payload);
    let value = parsed.map_err(|error| Refusal::Unanswered(format!("the engine answered no JSON: {error}")))?;
    let error = &value["error"];
    if error.is_null() {
        return Ok(value);
    }
    let text = error["description"].as_str().unwrap_or("an error").to_owned();
    Err(match error["err_code"].as_u64().unwrap_or(0) {
        code if WRONG_LAST_SEQUENCE.contains(&code) => Refusal::WrongLast,
        STORE_FAILED if text.contains("maximum bytes") => Refusal::Full,
        STREAM_NOT_FOUND | NO_MESSAGE_FOUND => Refusal::Missing,
        code if NEVER.contains(&code) => Refusal::Impossible(text),
        _ => Refusal::Unanswered(text),
    })
}

/// An error and what it came of, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        let more = one.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = one.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(payload: &str) -> Result<Value, Refusal> {
        answer(&Message {
            subject: "_INBOX.1".into(),
            reply: None,
            payload: payload.to_owned().into(),
            headers: None,
            status: None,
            description: None,
            length: payload.len(),
        })
    }

    #[test]
    fn what_the_engine_refuses_is_told_apart() {
        let said =
            |code: u64, text: &str| answered(&format!(r#"{{"error":{{"err_code":{code},"description":"{text}"}}}}"#));
        let error = |code: u64| said(code, "no");
        assert_eq!(error(10_071), Err(Refusal::WrongLast));
        assert_eq!(error(10_164), Err(Refusal::WrongLast));
        assert_eq!(said(10_077, "maximum bytes exceeded"), Err(Refusal::Full));
        assert_eq!(error(10_077), Err(Refusal::Unanswered("no".to_owned())), "a disk that fails");
        assert_eq!(error(10_037), Err(Refusal::Missing));
        assert_eq!(error(10_039), Err(Refusal::Impossible("no".to_owned())));
        assert_eq!(error(10_008), Err(Refusal::Unanswered("no".to_owned())));
        assert!(matches!(answered("{"), Err(Refusal::Unanswered(_))));
        assert_eq!(answered(r#"{"seq":3}"#).map(|value| value["seq"].as_u64()), Ok(Some(3)));
    }
}
