//! Arbitrary bytes as a message of a shared log's stream, also with its checksums mended, so that the mutations reach
//! what is behind them.

#![no_main]

use bulla_shared::frame::{FRAME_HEADER_BYTES, Frame, Kind, PARTS_MAX, encode_parts, parts};
use libfuzzer_sys::fuzz_target;

const GROUP: &str = "ORDERS";

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&mended(bytes));
});

/// What decodes is encoded as the same bytes, and its lengths are those of the message.
fn check(bytes: &[u8]) {
    let Ok((frame, payload)) = Frame::decode(bytes, GROUP) else { return };
    assert_eq!(frame.encode(GROUP), bytes[..FRAME_HEADER_BYTES]);
    assert_eq!(payload, &bytes[FRAME_HEADER_BYTES..]);
    assert!(frame.at.checked_add(frame.batch_bytes()).is_some());
    match frame.kind {
        Kind::Whole => assert_eq!(frame.batch_bytes(), bytes.len() as u64),
        Kind::Parts => {
            let listed: Vec<_> = parts(payload).collect();
            assert!((1..=PARTS_MAX).contains(&listed.len()));
            assert_eq!(encode_parts(&listed), payload);
            let sum: u64 = listed.iter().map(|part| u64::from(part.bytes)).sum();
            assert_eq!(sum + FRAME_HEADER_BYTES as u64, frame.batch_bytes());
        }
        Kind::Epoch => assert_eq!(frame.body_bytes as usize, payload.len()),
    }
    assert!(Frame::decode(bytes, "BILLS").is_err(), "a frame is of one group");
}

/// The bytes with the magic, a version, a kind that there is, lengths that fit as far as they can, and right checksums.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let Some((header, payload)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else { return Vec::new() };
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let long = |at: usize| u64::from(number(at)) | u64::from(number(at + 4)) << 32;
    let (kind, rest) = match header[6] % 4 {
        0 => (Kind::Whole, bytes.len() as u32),
        1 => (Kind::Parts, parts(payload).map(|part| part.bytes).fold(FRAME_HEADER_BYTES as u32, u32::wrapping_add)),
        2 => (Kind::Epoch, payload.len() as u32),
        _ => (Kind::Whole, number(28)),
    };
    let head_bytes = if kind == Kind::Epoch { 0 } else { number(24) % (bytes.len() as u32 + 1) };
    let body_bytes = rest.wrapping_sub(head_bytes);
    let payload_crc = crc32c::crc32c(payload);
    let frame = Frame { kind, epoch: long(8), at: long(16), head_bytes, body_bytes, payload_crc };
    [&frame.encode(GROUP)[..], payload].concat()
}
