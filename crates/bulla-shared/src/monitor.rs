//! Whether servers sync each write: only their monitoring address tells.

use std::io;

use bulla_queue::log::Survives;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::engine::StreamInfo;
use crate::options::MONITOR_WITHIN;

/// Bytes of an answer. `/varz` has some 10 KiB.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Copies from which on a minority of them may go.
const REPLICAS_OF_QUORUM: usize = 3;

/// A server, and whether it syncs each write.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Server {
    name: String,
    syncs: bool,
}

/// What a confirmed batch survives, by what the servers of the stream say at their monitoring addresses.
pub(crate) async fn survives(monitors: &[String], info: &StreamInfo) -> Survives {
    let mut servers = Vec::new();
    for monitor in monitors {
        // One that does not answer leaves its server unknown.
        if let Ok(Ok(server)) = timeout(MONITOR_WITHIN, ask(monitor)).await {
            servers.push(server);
        }
    }
    judge(&servers, info)
}

fn judge(servers: &[Server], info: &StreamInfo) -> Survives {
    let of = |peer: &String| servers.iter().find(|server| server.name == *peer);
    let peers: Vec<_> = info.peers.iter().map(of).collect();
    if peers.iter().flatten().any(|server| !server.syncs) {
        return Survives::Process;
    }
    if peers.is_empty() || peers.len() < info.replicas || peers.iter().any(Option::is_none) {
        return Survives::Unknown;
    }
    if info.replicas >= REPLICAS_OF_QUORUM { Survives::MinorityPower } else { Survives::Power }
}

async fn ask(address: &str) -> io::Result<Server> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answered = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answered).await?;
    read(&answered).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no answer of a server's monitor"))
}

fn read(answer: &[u8]) -> Option<Server> {
    let body_at = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    if !answer.starts_with(b"HTTP/1.") || answer.get(8..13)? != b" 200 " {
        return None;
    }
    let value: Value = serde_json::from_slice(answer.get(body_at..)?).ok()?;
    let config = value["jetstream"]["config"].as_object()?;
    let syncs = config.get("sync_always").and_then(Value::as_bool).unwrap_or(false);
    Some(Server { name: value["server_name"].as_str()?.to_owned(), syncs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(replicas: usize, peers: &[&str]) -> StreamInfo {
        let peers = peers.iter().map(|&peer| peer.to_owned()).collect();
        StreamInfo { replicas, peers, ..StreamInfo::default() }
    }

    fn server(name: &str, syncs: bool) -> Server {
        Server { name: name.to_owned(), syncs }
    }

    #[test]
    fn every_server_of_the_stream_must_be_known_to_sync() {
        let three = info(3, &["a", "b", "c"]);
        let all = [server("a", true), server("b", true), server("c", true)];
        assert_eq!(judge(&all, &three), Survives::MinorityPower);
        assert_eq!(judge(&all[..2], &three), Survives::Unknown);
        assert_eq!(judge(&[server("a", true), server("b", false)], &three), Survives::Process);
        assert_eq!(judge(&all, &info(3, &["a", "b"])), Survives::Unknown, "a copy is missing");
        assert_eq!(judge(&all, &info(1, &["a"])), Survives::Power);
        assert_eq!(judge(&[], &three), Survives::Unknown);
    }

    #[test]
    fn an_answer_is_read_or_refused() {
        let body = r#"{"server_name":"a","jetstream":{"config":{"sync_interval":120000000000,"sync_always":true}}}"#;
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}");
        assert_eq!(read(answer.as_bytes()), Some(server("a", true)));
        let by_default = answer.replace(",\"sync_always\":true", "");
        assert_eq!(read(by_default.as_bytes()), Some(server("a", false)));
        assert_eq!(read(answer.replace(" 200 ", " 404 ").as_bytes()), None);
        assert_eq!(read(b"HTTP/1.0 200 OK\r\n\r\n{"), None);
        assert_eq!(read(b""), None);
    }
}
