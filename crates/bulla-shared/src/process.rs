//! Whether the process at an address answers: not by way of the engine, and whatever it thinks of the group.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::options::PROCESS_ANSWERS_WITHIN;

/// What a process is asked, each over a connection of its own. The kernel accepts connections for a process that is
/// stopped, and what stands before a process does for one that is gone: only bytes of an answer count.
const QUESTIONS: [&[u8]; 2] = [
    // AMQP with SASL: the answer begins with the same.
    b"AMQP\x03\x01\x00\x00",
    // TLS: a record that may not come first. The answer is an alert.
    b"\x17\x03\x03\x00\x01\x00",
];

/// Whether what listens at an address answers. A refused connection, one that ends and silence are no answers.
pub(crate) async fn process_answers(address: String) -> bool {
    let asked = async {
        for question in QUESTIONS {
            if ask(&address, question).await.is_ok_and(|bytes| bytes > 0) {
                return true;
            }
        }
        false
    };
    timeout(PROCESS_ANSWERS_WITHIN, asked).await.unwrap_or(false)
}

async fn ask(address: &str, question: &[u8]) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(question).await?;
    stream.read(&mut [0; 8]).await
}
