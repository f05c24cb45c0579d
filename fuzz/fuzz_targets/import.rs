//! Any text as what tools of IBM MQ wrote: each command that comes out is one that a queue manager takes.

#![no_main]

use bulla::catalog::Definitions;
use bulla::mqsc::import::{PolicyOptions, definitions, policies};
use bulla::mqsc::objects::AsText;
use bulla::mqsc::policies_from_text;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let raise = data.len() % 2 == 0;
    let initial = || Definitions::initial("FUZZ");
    let read = policies(&text, PolicyOptions { raise, certificates: None, definitions: initial() });
    let set = policies_from_text(&read.to_string()).expect("what is written is a text of policies");
    assert_eq!(set.len(), read.commands().count());
    let read = definitions(&text, raise);
    Definitions::from_commands(&read.to_string(), Path::new("import"), initial()).expect("what is written is taken");
});
