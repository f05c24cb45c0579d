//! Any text as a profile: read, or refused. What was read is written and read back without a loss, and asked what it is
//! for.

#![no_main]

use bulla_perf::configuration::Configuration;
use bulla_perf::plan::{Profile, hardware, predict};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("profile.toml");
    let Ok(profile) = Profile::parse(&String::from_utf8_lossy(data), path) else { return };
    let written = profile.to_toml().expect("what was read is written");
    let read = Profile::parse(&written, path).expect("what was written is read");
    assert_eq!(read, profile, "nothing is lost on the way to the file and back");
    let _ = hardware::utilisation(&profile);
    let _ = predict(&profile, &Configuration { in_flight: 1, pairs: 1, ..Configuration::default() });
});
