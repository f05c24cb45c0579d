//! A client that speaks HTTP, over a connection that takes no time.

use super::node::{Node, open_to_all};
use crate::catalog::{Change, LocalQueue};
use crate::clock::Clock;
use crate::front::http::Common;
use crate::front::http::commands::CommandLine;
use crate::front::http::kept_answers::KeptAnswers;
use crate::turn::pipe::{Pipe, PipeEnd};
use crate::turn::socket::Moved;
use std::io::IoSlice;
use std::time::Duration;

/// Where messages of the queue [`started`] has are put and got.
pub(super) const ORDERS: &str = "/ibmmq/rest/v2/messaging/qmgr/QM1/queue/ORDERS/message";
/// Nothing that needs no time takes more turns.
const TURNS_MAX: usize = 100;
/// No answer takes more moments at which something is due.
const MOMENTS_MAX: usize = 1_000;

/// The client.
pub(super) struct Web {
    pipe: Pipe,
    end: PipeEnd,
}

impl Web {
    pub(super) fn connect(node: &mut Node, port: u16) -> Self {
        let (pipe, end, accepts) = Pipe::connect(port);
        let common = Common { commands: CommandLine::new().0, kept_answers: KeptAnswers::default() };
        node.running().unwrap().dispatcher.accept_http(accepts, common);
        Self { pipe, end }
    }

    /// Sends a request; `headers` are whole lines.
    pub(super) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token: x\r\nContent-Type: text/plain\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert!(matches!(self.end.write(&[IoSlice::new(text.as_bytes())]), Ok(Moved::Bytes(n)) if n == text.len()));
    }

    /// What has come since this was asked last.
    pub(super) fn answer(&mut self) -> String {
        let mut room = [0; 16 << 10];
        let mut answer = String::new();
        while let Ok(Moved::Bytes(n)) = self.end.read(&mut room) {
            answer.push_str(std::str::from_utf8(&room[..n]).unwrap());
        }
        answer
    }

    /// The answer, however much time goes by until it comes.
    pub(super) fn answer_of(&mut self, node: &mut Node, clock: &Clock) -> String {
        for _ in 0..MOMENTS_MAX {
            settle(node, &[self], clock);
            let answer = self.answer();
            if !answer.is_empty() {
                return answer;
            }
            advance(node, clock);
        }
        panic!("there is no answer")
    }
}

/// A queue manager with an empty queue.
pub(super) fn started(clock: &Clock) -> Node {
    let mut node = Node::new("QM1", clock);
    let mut changes = open_to_all();
    changes.push(Change::define("ORDERS".to_owned(), LocalQueue::default()));
    node.start(1, &changes).unwrap();
    node
}

/// Turns until nothing more happens at this moment.
pub(super) fn settle(node: &mut Node, clients: &[&Web], clock: &Clock) {
    let carry = || {
        let moved: usize = clients.iter().map(|client| client.pipe.waiting().iter().sum::<usize>()).sum();
        clients.iter().for_each(|client| (0..2).for_each(|way| client.pipe.carry(way, client.pipe.waiting()[way])));
        moved
    };
    for _ in 0..TURNS_MAX {
        let moved = carry();
        node.turn().unwrap();
        if moved + carry() == 0 && node.running().unwrap().due > clock.now() {
            return;
        }
    }
    panic!("it does not come to rest");
}

/// Goes on to the moment at which something is due.
pub(super) fn advance(node: &mut Node, clock: &Clock) -> Duration {
    let by = node.running().unwrap().due.saturating_duration_since(clock.now());
    clock.advance(by);
    by
}
