//! Rules for connections, as SET CHLAUTH writes them: which address, user or certificate may use which channel, and as
//! whom.
//!
//! Of the mapping rules that fit, the most particular one decides, and it alone. The order is MQ's: first by the
//! channel's name, then by the sort of rule, certificate before user before address, then by how much the certificate's
//! pattern says, then by how few addresses fit. The user that comes of it may then be blocked by the most particular
//! list for the channel.

use super::address::AddressPattern;
use super::record::{ANONYMOUS, SIGNED_IN};
use crate::peer_name::PeerPattern;
use bulla_seal::dn::Dn;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::net::IpAddr;

/// Most rules.
pub const CHANNEL_RULES_MAX: usize = 10_000;
/// The channel that clients are on who name none: every connection that is not a channel's.
pub const CLIENT_CHANNEL: &str = "SYSTEM.DEF.SVRCONN";
/// Longest profile of channels in characters, as MQ has it.
pub const CHANNEL_PROFILE_CHARS_MAX: usize = 20;

/// TYPE of a rule, the more particular first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RuleKind {
    /// SSLPEERMAP: by the certificate of the partner.
    Peer,
    /// USERMAP: by the user who has signed in.
    User,
    /// ADDRESSMAP: by the address of the partner.
    Address,
    /// BLOCKUSER: users who may not use the channel.
    BlockUser,
    /// BLOCKADDR: addresses that are not listened to.
    BlockAddress,
}

impl RuleKind {
    const EVERY: [RuleKind; 5] =
        [RuleKind::Peer, RuleKind::User, RuleKind::Address, RuleKind::BlockUser, RuleKind::BlockAddress];

    /// MQSC's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            RuleKind::Peer => "SSLPEERMAP",
            RuleKind::User => "USERMAP",
            RuleKind::Address => "ADDRESSMAP",
            RuleKind::BlockUser => "BLOCKUSER",
            RuleKind::BlockAddress => "BLOCKADDR",
        }
    }

    /// Of MQSC's word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|kind| kind.word() == word)
    }

    /// Whether it says as whom a partner is let in, or that it is not.
    #[must_use]
    pub fn maps(self) -> bool {
        matches!(self, RuleKind::Peer | RuleKind::User | RuleKind::Address)
    }
}

/// Which rule: two of the same key can't be.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RuleKey {
    /// Channels' names; `*` stands for any characters.
    pub profile: String,
    /// TYPE
    pub kind: RuleKind,
    /// ADDRESS; empty for none.
    pub address: String,
    /// CLNTUSER; empty for none.
    pub user: String,
    /// SSLPEER; empty for none.
    pub peer: String,
    /// SSLCERTI; empty for none.
    pub issuer: String,
}

/// `CHLAUTH(QM2.*) TYPE(ADDRESSMAP) ADDRESS(192.0.2.*)`, for messages.
impl Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CHLAUTH({}) TYPE({})", self.profile, self.kind.word())?;
        let selectors =
            [("ADDRESS", &self.address), ("CLNTUSER", &self.user), ("SSLPEER", &self.peer), ("SSLCERTI", &self.issuer)];
        selectors
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|(word, value)| write!(f, " {word}({value})"))
    }
}

/// USERSRC: as whom a partner is let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UserSource {
    /// CHANNEL: as whom it comes; a channel as its MCAUSER.
    Channel,
    /// MAP: as that user (MCAUSER).
    Map(String),
    /// NOACCESS: it is not.
    NoAccess,
}

/// What a rule says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// DESCR
    pub description: String,
    /// USERSRC and MCAUSER, of a rule that maps.
    pub source: UserSource,
    /// WARN(YES): a client that would be kept out is let in, and the log says so.
    pub warn: bool,
    /// CHCKCLNT(REQUIRED): only who has signed in is let in.
    pub sign_in_required: bool,
    /// USERLIST of BLOCKUSER.
    pub users: BTreeSet<String>,
    /// ADDRLIST of BLOCKADDR, as they were written.
    pub addresses: BTreeSet<String>,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            description: String::new(),
            source: UserSource::Channel,
            warn: false,
            sign_in_required: false,
            users: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }
}

/// Who wants in, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The channel; [`CLIENT_CHANNEL`] for a client.
    pub channel: &'a str,
    /// Where it comes from.
    pub address: IpAddr,
    /// The subject of its certificate, where it has shown one that was verified.
    pub subject: Option<&'a Dn>,
    /// Who signed that.
    pub issuer: Option<&'a Dn>,
    /// The user who has signed in, if one has.
    pub user: Option<&'a str>,
}

/// All rules.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChannelRules {
    rules: BTreeMap<RuleKey, Rule>,
}

impl ChannelRules {
    /// A rule by its key.
    #[must_use]
    pub fn get(&self, key: &RuleKey) -> Option<&Rule> {
        self.rules.get(key)
    }

    /// Every rule, by channel and type.
    pub fn iter(&self) -> impl Iterator<Item = (&RuleKey, &Rule)> {
        self.rules.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Writes a rule: a new one, or over the old one.
    pub fn set(&mut self, key: RuleKey, rule: Rule) {
        self.rules.insert(key, rule);
    }

    /// Takes a rule away, if it is there.
    pub fn remove(&mut self, key: &RuleKey) {
        self.rules.remove(key);
    }

    /// The mapping rule that decides about a caller; none where none fits. A look at every rule, once for each
    /// connection.
    #[must_use]
    pub fn mapping(&self, caller: &Caller<'_>) -> Option<(&RuleKey, &Rule)> {
        self.rules.iter().filter(|(key, _)| key.kind.maps() && key.fits(caller)).min_by(|(a, _), (b, _)| a.before(b))
    }

    /// The list that keeps a user out of a channel, where the most particular one for it names the user; none where no
    /// one has signed in is [`ANONYMOUS`].
    #[must_use]
    pub fn blocking_user(&self, channel: &str, user: Option<&str>) -> Option<(&RuleKey, &Rule)> {
        let lists = self.rules.iter().filter(|(key, _)| key.kind == RuleKind::BlockUser && fits(&key.profile, channel));
        let list = lists.min_by(|(a, _), (b, _)| particular(&a.profile, &b.profile))?;
        let users = &list.1.users;
        let is_named = users.contains(user.unwrap_or(ANONYMOUS)) || user.is_some() && users.contains(SIGNED_IN);
        is_named.then_some(list)
    }

    /// The list that keeps an address out.
    #[must_use]
    pub fn blocking_address(&self, address: IpAddr) -> Option<(&RuleKey, &Rule)> {
        let names = |text: &String| AddressPattern::parse(text).is_ok_and(|pattern| pattern.fits(address));
        self.rules.iter().find(|(key, rule)| key.kind == RuleKind::BlockAddress && rule.addresses.iter().any(names))
    }

    /// Every address pattern that is kept out, and whether that is only a warning.
    pub fn blocked_addresses(&self) -> Vec<(AddressPattern, bool)> {
        let lists = self.rules.iter().filter(|(key, _)| key.kind == RuleKind::BlockAddress);
        let patterns = lists.flat_map(|(_, rule)| rule.addresses.iter().map(|text| (text, rule.warn)));
        patterns.filter_map(|(text, warn)| Some((AddressPattern::parse(text).ok()?, warn))).collect()
    }
}

impl RuleKey {
    /// Whether all that it asks for is so.
    fn fits(&self, caller: &Caller<'_>) -> bool {
        let address = |text: &str| AddressPattern::parse(text).is_ok_and(|pattern| pattern.fits(caller.address));
        let name = |text: &str, name: Option<&Dn>| {
            name.is_some_and(|name| PeerPattern::parse(text).is_ok_and(|pattern| pattern.matches(name)))
        };
        fits(&self.profile, caller.channel)
            && (self.address.is_empty() || address(&self.address))
            && (self.user.is_empty() || caller.user == Some(&self.user))
            && (self.peer.is_empty() || name(&self.peer, caller.subject))
            && (self.issuer.is_empty() || name(&self.issuer, caller.issuer))
    }

    /// The more particular is the lesser.
    fn before(&self, other: &Self) -> Ordering {
        let pattern = |text: &str| PeerPattern::parse(text).map(|pattern| pattern.particularity()).ok();
        // One that is not there is less particular than any that is.
        let by_pattern = |a: &str, b: &str| match (pattern(a), pattern(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        let count = |text: &str| AddressPattern::parse(text).map_or(u128::MAX, |pattern| pattern.count());
        particular(&self.profile, &other.profile)
            .then_with(|| self.kind.cmp(&other.kind))
            .then_with(|| by_pattern(&self.peer, &other.peer))
            .then_with(|| by_pattern(&self.issuer, &other.issuer))
            .then_with(|| count(&self.address).cmp(&count(&other.address)))
            .then_with(|| self.cmp(other))
    }
}

/// True when `text` can stand for channels: a name, with `*` anywhere.
#[must_use]
pub fn is_channel_profile(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._/%*".contains(&byte);
    (1..=CHANNEL_PROFILE_CHARS_MAX).contains(&text.len()) && text.bytes().all(known)
}

/// Whether a channel's name fits a profile: `*` stands for any characters, full stops included.
pub fn fits(profile: &str, name: &str) -> bool {
    super::profile::stars_fit(profile.as_bytes(), name.as_bytes())
}

/// The more particular profile is the lesser: from left to right a character goes before a `*`, and of two alike so far
/// the longer.
fn particular(a: &str, b: &str) -> Ordering {
    let star = |byte: u8| byte == b'*';
    let first = a.bytes().zip(b.bytes()).map(|(a, b)| star(a).cmp(&star(b))).find(|order| order.is_ne());
    first.unwrap_or_else(|| b.len().cmp(&a.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(profile: &str, kind: RuleKind) -> RuleKey {
        let none = String::new;
        RuleKey { profile: profile.into(), kind, address: none(), user: none(), peer: none(), issuer: none() }
    }

    fn by_address(profile: &str, address: &str) -> RuleKey {
        RuleKey { address: address.into(), ..key(profile, RuleKind::Address) }
    }

    fn by_user(profile: &str, user: &str, address: &str) -> RuleKey {
        RuleKey { user: user.into(), address: address.into(), ..key(profile, RuleKind::User) }
    }

    fn by_peer(profile: &str, peer: &str, issuer: &str, address: &str) -> RuleKey {
        RuleKey { peer: peer.into(), issuer: issuer.into(), address: address.into(), ..key(profile, RuleKind::Peer) }
    }

    /// The key of the rule that decides, after each is removed in turn.
    fn order(rules: &[RuleKey], caller: Caller<'_>) -> Vec<RuleKey> {
        let mut all = ChannelRules::default();
        rules.iter().rev().for_each(|key| all.set(key.clone(), Rule::default()));
        let mut order = Vec::new();
        while let Some((key, _)) = all.mapping(&caller) {
            let key = key.clone();
            all.remove(&key);
            order.push(key);
        }
        assert!(all.is_empty(), "every rule fits: {all:?}");
        order
    }

    #[test]
    fn the_most_particular_rule_decides() {
        let (subject, issuer): (Dn, Dn) = ("CN=QM2,OU=Pay,O=Demo".parse().unwrap(), "CN=CA,O=Demo".parse().unwrap());
        let caller = Caller {
            channel: "QM2.QM1",
            address: "192.0.2.7".parse().unwrap(),
            subject: Some(&subject),
            issuer: Some(&issuer),
            user: Some("u"),
        };
        let rules = [
            by_address("QM2.QM1", "*"),
            by_peer("QM2.*", "CN=QM2,O=Demo", "CN=CA", ""),
            by_peer("QM2.*", "CN=QM2,O=Demo", "", "192.0.2.7"),
            by_peer("QM2.*", "CN=QM2,O=Demo", "", ""),
            by_peer("QM2.*", "CN=QM2", "", ""),
            by_peer("QM2.*", "CN=QM*", "", ""),
            by_peer("QM2.*", "O=Demo", "", ""),
            by_user("QM2.*", "u", "192.*"),
            by_user("QM2.*", "u", ""),
            by_address("QM2.*", "192.0.2.7"),
            by_address("QM2.*", "192.0.2.1-9"),
            by_address("QM2.*", "192.0.2.*"),
            by_address("QM2.*", "*"),
            by_peer("*.QM1", "CN=QM2", "", ""),
            by_address("*", "192.0.2.7"),
        ];
        assert_eq!(order(&rules, caller), rules);
    }

    #[test]
    fn a_rule_asks_for_all_that_it_names() {
        let subject: Dn = "CN=QM2,O=Demo".parse().unwrap();
        let caller = Caller {
            channel: CLIENT_CHANNEL,
            address: "192.0.2.7".parse().unwrap(),
            subject: Some(&subject),
            issuer: None,
            user: Some("u"),
        };
        let decides = |key: RuleKey, caller: Caller<'_>| {
            let mut rules = ChannelRules::default();
            rules.set(key, Rule::default());
            rules.mapping(&caller).is_some()
        };
        assert!(decides(by_user("SYSTEM.*", "u", "192.*"), caller));
        assert!(!decides(by_user("SYSTEM.*", "u", "10.*"), caller));
        assert!(!decides(by_user("SYSTEM.*", "v", ""), caller));
        assert!(!decides(by_user("SYSTEM.*", "u", ""), Caller { user: None, ..caller }));
        assert!(!decides(by_peer("*", "CN=QM2", "CN=CA", ""), caller), "an issuer that is not known fits nothing");
        assert!(!decides(by_peer("*", "CN=*", "", ""), Caller { subject: None, ..caller }));
        assert!(!decides(by_address("SYSTEM.DEF", "*"), caller));
        assert!(!decides(key("*", RuleKind::BlockUser), caller));
    }

    #[test]
    fn only_the_most_particular_list_blocks_users() {
        let mut rules = ChannelRules::default();
        let list =
            |users: &[&str]| Rule { users: users.iter().map(|user| (*user).into()).collect(), ..Rule::default() };
        rules.set(key("*", RuleKind::BlockUser), list(&["*", ANONYMOUS]));
        rules.set(key("QM*", RuleKind::BlockUser), list(&["mallory"]));
        let blocked = |channel, user| rules.blocking_user(channel, user).map(|(key, _)| key.profile.as_str());
        assert_eq!(blocked("OTHER", None), Some("*"));
        assert_eq!(blocked("OTHER", Some("u")), Some("*"));
        assert_eq!(blocked("QM1", Some("mallory")), Some("QM*"));
        assert_eq!((blocked("QM1", Some("u")), blocked("QM1", None)), (None, None));
    }

    #[test]
    fn blocked_addresses_are_found() {
        let mut rules = ChannelRules::default();
        let addresses = ["192.0.2.*".to_owned(), "2001:db8::1".to_owned()].into();
        rules.set(key("*", RuleKind::BlockAddress), Rule { addresses, ..Rule::default() });
        for (address, blocked) in [("192.0.2.9", true), ("192.0.3.9", false), ("2001:db8::1", true)] {
            assert_eq!(rules.blocking_address(address.parse().unwrap()).is_some(), blocked, "{address}");
        }
        assert_eq!(rules.blocked_addresses().len(), 2);
    }
}
