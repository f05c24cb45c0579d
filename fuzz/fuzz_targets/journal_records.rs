//! Arbitrary bytes as record headers, and as the contents of a segment that a store opens.
//!
//! The second half is what a torn or hostile disk shows: the segment's header is right, the rest is as it comes, with
//! checksums mended in batches that carry the magic, so that the mutations reach what is behind them.

#![no_main]

use std::time::Instant;

use bulla_queue::record::{BATCH_HEADER_BYTES, BATCH_MAGIC, BatchHeader, Records};
use bulla_queue::sim::SimDisk;
use bulla_queue::{
    Chunks, Driver, FORMAT_VERSION, FileLog, FileLogOptions, FileSpill, Limits, SEGMENT_HEADER_BYTES, SegmentHeader, Store, check_storage,
};
use libfuzzer_sys::fuzz_target;

const SALT: u64 = 0x5eed;
const SEGMENT_BYTES: usize = 8 << 10;

fuzz_target!(|bytes: &[u8]| {
    encode_what_decodes(bytes);
    open_and_use(bytes);
});

/// What reads as records is written as the same records.
fn encode_what_decodes(bytes: &[u8]) {
    for record in Records::new(bytes).map_while(Result::ok) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert_eq!(Records::new(&again).next(), Some(Ok(record)));
    }
}

fn open_and_use(bytes: &[u8]) {
    let disk = SimDisk::default();
    let header = SegmentHeader { version: FORMAT_VERSION, epoch: 1, base: 0, capacity: SEGMENT_BYTES as u64, salt: SALT };
    let mut segment = header.encode();
    segment.extend_from_slice(&bytes[..bytes.len().min(SEGMENT_BYTES)]);
    segment.resize(SEGMENT_HEADER_BYTES as usize + SEGMENT_BYTES, 0);
    mend(&mut segment[SEGMENT_HEADER_BYTES as usize..]);
    disk.set_contents("0000000000000000.segment", segment);

    let checked = check_storage(&disk);
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES as u64,
        first_segment_bytes: SEGMENT_BYTES as u64,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let Ok(log) = FileLog::open(disk.clone(), options) else { return };
    let Ok(spill) = FileSpill::open(SimDisk::default(), 1 << 20) else { return };
    let limits = Limits { reserve_bytes: 512, checkpoint_bytes: 512, log_bytes_min: 1_024, ..Limits::default() };
    let Ok(mut store) = Store::open(Box::new(log), Box::new(spill), limits, Instant::now()) else { return };
    let messages = store.store_status().messages as u64;
    let counted = checked.map(|report| (report.messages, report.notes)).ok();
    assert_eq!(counted, Some((messages, store.notes("").count() as u64)), "check and start agree");

    let queues: Vec<_> = store.queues().map(|(id, _)| id).collect();
    // One that says that it expired in 1970 is found and not got.
    store.sweep(0, usize::MAX);
    let mut left = store.store_status().messages as u64;
    for queue in queues {
        while let Some(found) = store.lock_next(queue, None, 0) {
            let _ = store.body(found.id);
            if store.acknowledge(found.id).is_err() {
                return;
            }
            left -= 1;
            if store.flush(Instant::now()).is_err() {
                return;
            }
        }
    }
    assert_eq!(left, 0, "what was found can be got");
}

/// Gives each batch in a row the checksums and the position that it needs to be read.
fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + BATCH_HEADER_BYTES).filter(|header| header.starts_with(&BATCH_MAGIC)) {
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let rest = (bytes.len() - at - BATCH_HEADER_BYTES) as u32;
        let head_bytes = field(4).min(rest) / 8 * 8;
        let body_bytes = field(8).min(rest - head_bytes) / 8 * 8;
        let head_at = at + BATCH_HEADER_BYTES;
        let head = &bytes[head_at..head_at + head_bytes as usize];
        let header =
            BatchHeader { head_bytes, body_bytes, at: at as u64, epoch: 1, head_crc: Chunks::from(head.to_vec()).crc() };
        bytes[at..head_at].copy_from_slice(&header.encode(SALT));
        at = head_at + (head_bytes + body_bytes) as usize;
    }
}
