//! Any bytes as an authority's answer over HTTP, and any text as `enrolment.toml`: an answer is taken whole or not at
//! all, and what has come of it only ever grows.

#![no_main]

use bulla::enrolment::Configuration;
use bulla::enrolment::http::{Url, whole};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let ended = whole(data, "application/pkixcmp", true);
    if let Ok(Some(body)) = whole(data, "application/pkixcmp", false) {
        assert_eq!(ended, Ok(Some(body)), "an answer that is whole stays so when the connection ends");
    }
    if let Ok(Some(body)) = ended {
        assert!(body.len() < data.len());
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(url) = text.parse::<Url>() {
        assert_eq!(url.to_string().parse::<Url>(), Ok(url));
    }
    if let Ok(configuration) = Configuration::parse(&text, Path::new("/data/enrolment.toml")) {
        let authorities = configuration.rings.values().map(|ring| &ring.authority);
        assert!(authorities.into_iter().all(|name| configuration.authorities.contains_key(name)));
    }
});
