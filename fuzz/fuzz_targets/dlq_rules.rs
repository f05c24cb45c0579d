//! Any text as a rules file of `bulla dlq`: understood or refused with a line of it, and each message is decided on.

#![no_main]

use bulla::catalog::DeadLetter;
use bulla::dead_letters::rules::Rules;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match Rules::parse(&text) {
        Ok(rules) => {
            assert!(!rules.rules.is_empty() && rules.retry_seconds > 0);
            for (number, reason) in [None, Some(2053), Some(2030)].into_iter().enumerate() {
                let letter = DeadLetter { reason, queue: "ORDERS.EU".into(), ..DeadLetter::default() };
                let decided = rules.decide(&letter, |_| number as u32);
                assert!(decided.is_none_or(|rule| rule.fits(&letter)));
            }
        }
        Err(error) => assert!((1..=text.lines().count().max(1)).contains(&error.line), "{error}"),
    }
});
