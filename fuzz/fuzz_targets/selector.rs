//! Any selector over any message: an answer or an error, the same for a message in one piece and in many, and of the
//! front alone either that answer or that it is not enough. A line end separates the two.
#![no_main]

use bulla::selector::{Facts, Scratch, Selector, keys_of};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let message = Bytes::copy_from_slice(data.get(end + 1..).unwrap_or_default());
    let pieces: Vec<Bytes> = message.chunks(5).map(Bytes::copy_from_slice).collect();
    // What is no message may show other fields in pieces than in one: it is looked at, and never on a queue.
    let is_message = bulla_amqp::Sections::scan(&bulla_amqp::Payload::from(message.clone())).is_ok();
    let keys = keys_of(&pieces);
    assert!(!is_message || keys == keys_of(std::slice::from_ref(&message)));
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let selector = match Selector::parse(text) {
        Ok(selector) => selector,
        Err(error) => return assert!(error.position >= 1 && error.position <= text.chars().count() + 1),
    };
    let mut scratch = Scratch::default();
    let whole = selector.matches(&mut scratch, Facts::default(), std::slice::from_ref(&message), true);
    assert!(whole.is_some());
    if is_message {
        assert_eq!(selector.matches(&mut scratch, Facts::default(), &pieces, true), whole);
        let front = [message.slice(..message.len() / 2)];
        let said = selector.matches(&mut scratch, Facts::default(), &front, false);
        assert!(said.is_none() || said == whole);
    }
    if let (Some(true), Some(key)) = (whole, selector.key()) {
        assert_eq!(keys_of(&[message]).map(|keys| keys[key.kind]), Some(key.value));
    }
});
