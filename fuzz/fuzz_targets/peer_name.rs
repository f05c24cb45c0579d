//! Any SSLPEER against any name: an answer or an error. A second pattern in front makes a pattern stricter, never
//! laxer.

#![no_main]

use bulla::catalog::peer_name::PeerPattern;
use bulla_seal::dn::Dn;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, "CN=QM2,OU=Payments,OU=Europe,O=Example"));
    let (Ok(pattern_alone), Ok(subject)) = (PeerPattern::parse(pattern), name.parse::<Dn>()) else { return };
    if let Ok(more) = PeerPattern::parse(&format!("{pattern},L=*")) {
        assert!(!more.matches(&subject) || pattern_alone.matches(&subject));
    }
});
