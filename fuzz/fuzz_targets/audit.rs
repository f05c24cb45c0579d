//! Any bytes as a line of an audit log: an entry or an error, and an entry says what the bytes say.

#![no_main]

use bulla::audit::{EntryHash, Written};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    // The same with a hash that fits: otherwise nothing would ever come to the fields.
    let mut line = data.strip_suffix(b"\n").unwrap_or(data).to_vec();
    if let Some(end) = line.len().checked_sub(75).filter(|end| line[*end..].starts_with(b",\"hash\":\"")) {
        line.truncate(end);
    }
    let hash = EntryHash::of(&line);
    line.extend_from_slice(format!(",\"hash\":\"{hash}\"}}").as_bytes());
    if let Some(written) = check(&line) {
        assert_eq!(written.hash, hash);
        let mut other = line.clone();
        other[0] ^= 1;
        assert!(Written::parse(&other).is_err(), "a changed line is found");
    }
});

fn check(line: &[u8]) -> Option<Written> {
    let written = Written::parse(line).ok()?;
    assert!(written.who.is_object() && written.what.is_object());
    assert_eq!(EntryHash::parse(&written.hash.to_string()), Some(written.hash.clone()));
    Some(written)
}
