//! Any text as `enrolment.toml`: what is understood names nothing that is not there.

#![no_main]

use bulla::enrolment::Configuration;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(configuration) = Configuration::parse(&text, Path::new("/data/enrolment.toml")) {
        let rings = configuration.rings.values().map(|ring| &ring.authority);
        let certificates = configuration.certificates.values().map(|one| &one.authority);
        for name in rings.chain(certificates) {
            assert!(configuration.authorities[name].source().is_ok());
        }
    }
});
