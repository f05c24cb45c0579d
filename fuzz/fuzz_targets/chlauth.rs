//! Any patterns of addresses, channels, certificates and objects: an answer or an error, and never a rule that does not
//! fit.
//!
//! A line each: a pattern for addresses, an address, a profile, a name, a pattern for certificates, a subject.

#![no_main]

use bulla::authority::{AddressPattern, Caller, ChannelRules, Profile, Rule, RuleKey, RuleKind, is_channel_profile};
use bulla::catalog::peer_name::PeerPattern;
use bulla_seal::dn::Dn;
use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, address, profile, name, peer, subject) = (next(), next(), next(), next(), next(), next());
    let address: IpAddr = address.parse().unwrap_or(Ipv4Addr::LOCALHOST.into());
    let subject: Option<Dn> = subject.parse().ok();

    let parsed = AddressPattern::parse(pattern);
    if let Ok(parsed) = &parsed {
        assert!(parsed.count() > 0);
        assert!(AddressPattern::parse("*").expect("every address").fits(address));
    }
    let first = Profile::parse(profile);
    if let (Some(first), Some(second)) = (&first, Profile::parse(name)) {
        assert_eq!(first.cmp(&second), second.cmp(first).reverse(), "profiles have an order");
        assert!(second.is_generic() || second.fits(name), "a name fits itself");
        let _ = first.fits(name);
    }

    let mut rules = ChannelRules::default();
    let key = |kind, address: &str, peer: &str| RuleKey {
        profile: profile.to_owned(),
        kind,
        address: address.to_owned(),
        user: String::new(),
        peer: peer.to_owned(),
        issuer: String::new(),
    };
    // What the admin language takes: patterns that are understood.
    if is_channel_profile(profile) {
        if parsed.is_ok() {
            rules.set(key(RuleKind::Address, pattern, ""), Rule::default());
        }
        if PeerPattern::parse(peer).is_ok() {
            rules.set(key(RuleKind::Peer, "", peer), Rule::default());
            if parsed.is_ok() {
                rules.set(key(RuleKind::Peer, pattern, peer), Rule::default());
            }
        }
    }
    let caller = Caller { channel: name, address, subject: subject.as_ref(), issuer: None, user: None };
    while let Some((found, _)) = rules.mapping(&caller) {
        let found = found.clone();
        let fits = |text: &str| AddressPattern::parse(text).is_ok_and(|pattern| pattern.fits(address));
        assert!(found.address.is_empty() || fits(&found.address));
        assert!(found.peer.is_empty() || subject.is_some());
        rules.remove(&found);
    }
});
