//! Any bytes as what a server with a transit engine answers, in whatever pieces they come: an answer or none, and any
//! text as what a ring and a definition say of it.

#![no_main]

use bulla_device::http::{AnswerReader, Takes};
use bulla_device::transit::protocol::{WHY_BYTES_MAX, fit_to_show, key_facts, refusal, results};
use bulla_device::transit::{ANSWER_BYTES_MAX, Address, TransitUri};
use libfuzzer_sys::fuzz_target;

const TAKES: Takes = Takes { body_bytes_max: ANSWER_BYTES_MAX, to_the_end: false };

fuzz_target!(|data: &[u8]| {
    let mut whole = AnswerReader::new(TAKES);
    let at_once = whole.receive(data).map(|done| done.then(|| whole.finish()).flatten());
    let mut pieces = AnswerReader::new(TAKES);
    let mut done = Ok(false);
    for piece in data.chunks(7) {
        done = pieces.receive(piece);
        if done.is_err() {
            break;
        }
    }
    // What comes behind an answer is refused in both, but it need not be seen at the same byte.
    if let (Ok(Some(one)), Ok(true)) = (&at_once, &done) {
        let other = pieces.finish().expect("a whole answer");
        assert_eq!((one.status, &one.body), (other.status, &other.body));
        assert!(one.body.len() <= ANSWER_BYTES_MAX);
    }
    let answer = at_once.ok().flatten();
    let body = answer.as_ref().map_or(data, |answer| &answer.body);
    for count in 0..3 {
        for of_version in [None, Some(1)] {
            if let Ok(Some(results)) = results(body, count, of_version) {
                assert_eq!(results.len(), count);
            }
        }
    }
    let _ = key_facts(body);
    let said = refusal(body);
    assert!(said.len() <= WHY_BYTES_MAX + '…'.len_utf8() && !said.contains(char::is_control));
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(!fit_to_show(text).contains(char::is_control));
        if let Ok(uri) = text.parse::<TransitUri>() {
            assert_eq!(uri.to_string().parse(), Ok(uri));
        }
        if let Ok(address) = text.parse::<Address>() {
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
});
