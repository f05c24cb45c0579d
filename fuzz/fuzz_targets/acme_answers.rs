//! Any bytes as what an authority of ACME answers: each is read or refused, no place that is taken is at another
//! server, and what is shown of it is one short line. And any bytes as what is asked of the listener of proofs.

#![no_main]

use bulla::enrolment::acme::directory::{Directory, same_server};
use bulla::enrolment::acme::http_01::answer;
use bulla::enrolment::acme::order::{Authorization, Order, Proof};
use bulla::enrolment::acme::problem::Problem;
use bulla_device::http::{Answer, AnswerReader, Takes, Url};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

/// As of enrolment.
const TAKES: Takes = Takes { body_bytes_max: 256 << 10, to_the_end: true };

fn look(body: &[u8], at: &Url) {
    if let Ok(directory) = Directory::read(body, at) {
        for place in [directory.new_nonce, directory.new_account, directory.new_order] {
            assert_eq!(place.address, at.address);
        }
    }
    if let Ok(order) = serde_json::from_slice::<Order>(body) {
        for place in order.authorizations.iter().chain([&order.finalize]).chain(&order.certificate) {
            if let Ok(place) = same_server(place, at, "a place") {
                assert_eq!(place.address, at.address);
                assert!(!place.path.contains(['\r', '\n', ' ']));
            }
        }
    }
    if let Ok(authorization) = serde_json::from_slice::<Authorization>(body) {
        for challenge in &authorization.challenges {
            if let Ok(proof) = Proof::new(&authorization.identifier, &challenge.token, "thumb") {
                assert!(!proof.token.contains(['/', '.', '%']));
            }
        }
    }
    let answer = Answer { status: 400, fields: Vec::new(), body: body.to_vec().into(), closes: false };
    let said = Problem::of(&answer).refused().to_string();
    assert!(said.chars().count() < 500 && !said.contains(char::is_control), "{said}");
}

fuzz_target!(|data: &[u8]| {
    let at: Url = "https://ca.example:14000/dir".parse().expect("a URL");
    look(data, &at);
    let mut reader = AnswerReader::new(TAKES);
    if reader.receive(data).is_ok()
        && let Some(answer) = reader.finish_at_end()
    {
        assert!(answer.body.len() <= TAKES.body_bytes_max);
        look(&answer.body, &at);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(url) = text.parse::<Url>()
    {
        assert_eq!(url.to_string().parse(), Ok(url));
    }
    let texts = BTreeMap::from([("abc".to_owned(), "abc.thumb".to_owned())]);
    if let Some(said) = answer(data, &texts) {
        assert!(said.starts_with(b"HTTP/1.1 200 ") || said.starts_with(b"HTTP/1.1 404 "));
    }
});
