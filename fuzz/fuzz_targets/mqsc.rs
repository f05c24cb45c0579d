//! Any text: understood, carried out, shown, written down and read back, without a panic and without a loss.

#![no_main]

use bulla::catalog::{Change, Definitions};
use bulla::mqsc::reply::{Reply, show};
use bulla::mqsc::objects::AsText;
use bulla::mqsc::run::{AdminError, Administered, Applied, Replay, Replayed, execute};
use bulla::catalog::status::QueueStatus;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

/// A queue manager without queues behind its definitions.
struct Paper(Definitions);

impl Administered for Paper {
    fn definitions(&self) -> &Definitions {
        &self.0
    }

    fn apply(&mut self, change: Change) -> Result<Applied, AdminError> {
        self.0.apply(&change);
        Ok(Applied::default())
    }

    fn replay(&mut self, replay: &Replay) -> Result<Replayed, AdminError> {
        Ok(Replayed { moved: replay.count.unwrap_or(0), ..Replayed::default() })
    }

    fn queue_status(&self, name: &str) -> Option<QueueStatus> {
        let depth = name.len() as u64;
        let last_put_ms = Some(u64::MAX >> depth);
        self.0.queues.get(name).map(|_| QueueStatus { depth, last_put_ms, ..QueueStatus::default() })
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let file = Path::new("objects.mqsc");
    let mut paper = Paper(Definitions::initial("FUZZ"));
    let replies = execute(&text, &mut paper);
    for reply in &replies {
        let read = Reply::from_json(&reply.to_json());
        assert_eq!(read.as_ref(), Some(reply), "the socket carries every answer");
    }
    let shown = show(&replies, false, Some("text"));
    assert_eq!(shown.exit_code == 0, replies.iter().all(|reply| reply.exit_code() == 0));

    let written = paper.0.text();
    let read = Definitions::from_text(&written, file).expect("what was written is read");
    assert_eq!(read, paper.0, "nothing is lost on the way to the file and back");
    let _ = Definitions::from_text(&text, file);
});
