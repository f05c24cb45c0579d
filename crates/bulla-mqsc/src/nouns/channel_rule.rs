//! Rules for connections in the admin language: SET and DISPLAY CHLAUTH.

use super::Kept;
use crate::difference::Parts;
use crate::kept::ObjectName;
use crate::objects::{WRAPPED, command};
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure, FailureKind, Row};
use crate::run::{fits, invalid, too_many, wanted};
use crate::table::Key;
use bulla_catalog::authority::{
    CHANNEL_RULES_MAX, Caller, ChannelRules, Rule, RuleKey, RuleKind, UserSource, channel_profile_fits,
};
use bulla_catalog::peer_name::PeerPattern;
use bulla_catalog::{Change, Definitions};
use bulla_seal::dn::Dn;
use std::fmt::{self, Write};
use std::net::IpAddr;

/// MQ's reason code for a rule that is there already.
const ALREADY_EXISTS: u32 = 3337;
/// MQ's reason code for a rule that is not there.
const NOT_FOUND: u32 = 3338;
/// Most entries of a list, so that one command can write it.
const LIST_MAX: usize = 10_000;

/// The attributes by which a rule is known beside its channel.
const SELECTORS: [&str; 5] = ["TYPE", "ADDRESS", "CLNTUSER", "SSLPEER", "SSLCERTI"];

/// CHLAUTH.
pub(crate) struct ChannelRuleNoun;

pub(crate) static CHANNEL_RULE: ChannelRuleNoun = ChannelRuleNoun;

impl Kept for ChannelRuleNoun {
    fn word(&self) -> &'static str {
        "CHLAUTH"
    }

    fn place(&self) -> usize {
        14
    }

    fn objects<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = ObjectName> + 'a> {
        Box::new(definitions.channel_rules.iter().map(|(key, _)| ObjectName::Rule(key.clone())))
    }

    fn write(&self, f: &mut dyn Write, definitions: &Definitions, object: &ObjectName) -> Option<fmt::Result> {
        let ObjectName::Rule(of) = object else { return None };
        let rule = definitions.channel_rules.get(of)?;
        Some(command(f, WRAPPED, "SET", self.word(), Some(&of.profile), |key| cell(of, rule, key)))
    }

    fn stays(&self, _definitions: &Definitions, _object: &ObjectName) -> bool {
        false
    }

    fn removal(&self, object: &Parts) -> String {
        let is_list = object.attributes.iter().any(|text| text.starts_with("TYPE(BLOCK"));
        let action = if is_list { "REMOVEALL" } else { "REMOVE" };
        format!("{} ACTION({action})", object.with_those("SET", |word| SELECTORS.contains(&word)))
    }

    fn change(&self, _before: &Parts, after: &Parts) -> String {
        format!("{} ACTION(REPLACE)", after.command())
    }
}

/// What SET CHLAUTH comes to.
///
/// # Errors
/// It contradicts what is defined, or itself.
pub(crate) fn set(statement: &Statement, rules: &ChannelRules) -> Result<Change, Failure> {
    let key = key(statement)?;
    let known = rules.get(&key);
    let action = match statement.value(Key::Action) {
        Some(Value::Word(word)) => *word,
        _ => "ADD",
    };
    let exists = |found: bool| Failure {
        kind: FailureKind::Refused,
        reason: Some(if found { ALREADY_EXISTS } else { NOT_FOUND }),
        message: format!("{key} {}", if found { "exists already" } else { "does not exist" }),
        hint: found.then(|| "ACTION(REPLACE) writes it anew".into()),
    };
    let is_list = !key.kind.maps();
    match (action, known) {
        ("REMOVE" | "REMOVEALL", None) => Err(exists(false)),
        ("REMOVE", Some(known)) if is_list => {
            let given = changed(statement, &key, Rule::default())?;
            let mut rule = known.clone();
            rule.users.retain(|user| !given.users.contains(user));
            rule.addresses.retain(|address| !given.addresses.contains(address));
            Ok(match rule.users.is_empty() && rule.addresses.is_empty() {
                true => Change::DeleteChannelRule(key),
                false => Change::SetChannelRule(key, rule),
            })
        }
        ("REMOVE" | "REMOVEALL", Some(_)) => Ok(Change::DeleteChannelRule(key)),
        ("ADD", Some(_)) if !is_list => Err(exists(true)),
        (_, known) => {
            if known.is_none() && rules.len() >= CHANNEL_RULES_MAX {
                return Err(too_many(CHANNEL_RULES_MAX, "rules for connections"));
            }
            let before = known.filter(|_| action == "ADD").cloned().unwrap_or_default();
            let rule = changed(statement, &key, before)?;
            if rule.users.len() + rule.addresses.len() > LIST_MAX {
                return Err(too_many(LIST_MAX, "entries in the list"));
            }
            Ok(Change::SetChannelRule(key, rule))
        }
    }
}

fn text(statement: &Statement, key: Key) -> String {
    match statement.value(key) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

/// What may be given with a type, and what must.
fn selectors(kind: RuleKind) -> (&'static [Key], Key) {
    match kind {
        RuleKind::Address => (&[Key::RuleAddress], Key::RuleAddress),
        RuleKind::User => (&[Key::RuleAddress, Key::ClientUser], Key::ClientUser),
        RuleKind::Peer => (&[Key::RuleAddress, Key::PeerPattern, Key::PeerIssuerPattern], Key::PeerPattern),
        RuleKind::BlockUser => (&[Key::UserList], Key::UserList),
        RuleKind::BlockAddress => (&[Key::AddressList], Key::AddressList),
    }
}

fn key(statement: &Statement) -> Result<RuleKey, Failure> {
    let kind = match statement.value(Key::RuleType) {
        Some(Value::Word(word)) => RuleKind::of(word),
        _ => None,
    };
    let kind = kind.ok_or_else(|| invalid("SET CHLAUTH needs TYPE", None))?;
    let (known, needed) = selectors(kind);
    let of_a_type =
        [Key::RuleAddress, Key::ClientUser, Key::PeerPattern, Key::PeerIssuerPattern, Key::UserList, Key::AddressList];
    let of_maps = [Key::UserSource, Key::ChannelUser, Key::CheckClient];
    for setting in &statement.settings {
        let key = setting.attribute.key;
        let is_foreign = of_a_type.contains(&key) && !known.contains(&key) || of_maps.contains(&key) && !kind.maps();
        if is_foreign {
            return Err(invalid(format_args!("TYPE({}) has no {}", kind.word(), setting.attribute.keyword), None));
        }
    }
    let whole_list = statement.says(Key::Action, "REMOVEALL") && !kind.maps();
    if statement.value(needed).is_none() && !whole_list {
        let keyword = statement.command.attributes.iter().find(|attribute| attribute.key == needed);
        let keyword = keyword.map_or("a list", |attribute| attribute.keyword);
        return Err(invalid(format_args!("TYPE({}) needs {keyword}", kind.word()), None));
    }
    let profile = statement.name.stem.clone();
    if kind == RuleKind::BlockAddress && profile != "*" {
        let hint = "addresses are kept out before a channel is named: write SET CHLAUTH('*')";
        return Err(invalid("TYPE(BLOCKADDR) is for all channels", Some(hint)));
    }
    let key = RuleKey {
        profile,
        kind,
        address: text(statement, Key::RuleAddress),
        user: text(statement, Key::ClientUser),
        peer: text(statement, Key::PeerPattern),
        issuer: text(statement, Key::PeerIssuerPattern),
    };
    for (keyword, pattern) in [("SSLPEER", &key.peer), ("SSLCERTI", &key.issuer)] {
        if !pattern.is_empty() {
            PeerPattern::parse(pattern).map_err(|error| invalid(format_args!("{keyword}: {error}"), None))?;
        }
    }
    let blank = [(Key::ClientUser, &key.user), (Key::PeerPattern, &key.peer)];
    if let Some((blank, _)) = blank.iter().find(|(key, value)| *key == needed && value.is_empty()) {
        let keyword = if *blank == Key::ClientUser { "CLNTUSER" } else { "SSLPEER" };
        return Err(invalid(format_args!("{keyword} cannot be empty"), None));
    }
    user_name("CLNTUSER", &key.user)?;
    Ok(key)
}

fn user_name(keyword: &str, name: &str) -> Result<(), Failure> {
    if name.is_empty() || bulla_catalog::names::is_user_name(name) {
        return Ok(());
    }
    Err(invalid(format_args!("{keyword}: no user can have the name '{name}'"), None))
}

fn changed(statement: &Statement, key: &RuleKey, mut rule: Rule) -> Result<Rule, Failure> {
    let list = |key| match statement.value(key) {
        Some(Value::List(list)) => list.as_slice(),
        _ => &[],
    };
    rule.users.extend(list(Key::UserList).iter().cloned());
    rule.addresses.extend(list(Key::AddressList).iter().cloned());
    if statement.value(Key::Description).is_some() {
        rule.description = text(statement, Key::Description);
    }
    if let Some(Value::Word(word)) = statement.value(Key::Warn) {
        rule.warn = *word == "YES";
    }
    if !key.kind.maps() {
        return Ok(rule);
    }
    let user = text(statement, Key::ChannelUser);
    user_name("MCAUSER", &user)?;
    let source = match statement.value(Key::UserSource) {
        Some(Value::Word(word)) => *word,
        _ => "MAP",
    };
    rule.source = match (source, user.is_empty()) {
        ("MAP", false) => UserSource::Map(user),
        ("MAP", true) => return Err(invalid("USERSRC(MAP) needs MCAUSER", None)),
        (source, false) => return Err(invalid(format_args!("USERSRC({source}) has no MCAUSER"), None)),
        ("NOACCESS", true) => UserSource::NoAccess,
        (_, true) => UserSource::Channel,
    };
    rule.sign_in_required = statement.says(Key::CheckClient, "REQUIRED");
    if rule.sign_in_required && rule.source == UserSource::NoAccess {
        return Err(invalid("USERSRC(NOACCESS) has no CHCKCLNT", None));
    }
    Ok(rule)
}

/// What came of a change, for messages; none for changes of others.
pub(crate) fn done(change: &Change) -> Option<String> {
    match change {
        Change::SetChannelRule(key, _) => Some(format!("{key} set")),
        Change::DeleteChannelRule(key) => Some(format!("{key} removed")),
        _ => None,
    }
}

/// A rule's attributes as SET CHLAUTH takes them; those that its type has not are none.
pub(crate) fn cell(key: &RuleKey, rule: &Rule, attribute: Key) -> Option<Cell> {
    let given = |text: &String| (!text.is_empty()).then(|| Cell::Text(text.clone()));
    let list = |list: &std::collections::BTreeSet<String>| Some(Cell::List(list.iter().cloned().collect()));
    let maps = key.kind.maps();
    match attribute {
        Key::RuleType => Some(Cell::word(key.kind.word())),
        Key::RuleAddress => given(&key.address),
        Key::ClientUser => given(&key.user),
        Key::PeerPattern => given(&key.peer),
        Key::PeerIssuerPattern => given(&key.issuer),
        Key::AddressList if key.kind == RuleKind::BlockAddress => list(&rule.addresses),
        Key::UserList if key.kind == RuleKind::BlockUser => list(&rule.users),
        Key::UserSource if maps => Some(Cell::word(match rule.source {
            UserSource::Channel => "CHANNEL",
            UserSource::Map(_) => "MAP",
            UserSource::NoAccess => "NOACCESS",
        })),
        Key::ChannelUser => match &rule.source {
            UserSource::Map(user) if maps => Some(Cell::Text(user.clone())),
            _ => None,
        },
        Key::CheckClient if maps && rule.source != UserSource::NoAccess => {
            Some(Cell::word(if rule.sign_in_required { "REQUIRED" } else { "ASQMGR" }))
        }
        Key::Warn => Some(Cell::word(if rule.warn { "YES" } else { "NO" })),
        Key::Description => Some(Cell::Text(rule.description.clone())),
        _ => None,
    }
}

/// DISPLAY CHLAUTH.
///
/// # Errors
/// MATCH(RUNCHECK) lacks what it compares, or no rule would apply; WHERE compares what can't be compared.
pub(crate) fn display(statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure> {
    let rules = &definitions.channel_rules;
    let profile = &statement.name.stem;
    let kind = match statement.value(Key::RuleType) {
        Some(Value::Word(word)) => RuleKind::of(word),
        _ => None,
    };
    let found: Vec<(&RuleKey, &Rule)> = if statement.says(Key::Match, "RUNCHECK") {
        run_check(statement, rules)?
    } else {
        let is_wanted = |key: &RuleKey| match statement.value(Key::Match) {
            Some(Value::Word("EXACT")) => key.profile == *profile,
            Some(Value::Word("ALL")) => {
                channel_profile_fits(&key.profile, profile) || channel_profile_fits(profile, &key.profile)
            }
            _ => channel_profile_fits(profile, &key.profile),
        };
        rules.iter().filter(|(key, _)| is_wanted(key) && kind.is_none_or(|kind| key.kind == kind)).collect()
    };
    let mut rows = Vec::new();
    for (key, rule) in found {
        if let Some(filter) = &statement.filter
            && !fits(filter, cell(key, rule, filter.attribute.key))?
        {
            continue;
        }
        let mut row = Row::default();
        row.push("CHLAUTH", Cell::word(&key.profile));
        row.push("TYPE", Cell::word(key.kind.word()));
        let selectors =
            [("ADDRESS", &key.address), ("CLNTUSER", &key.user), ("SSLPEER", &key.peer), ("SSLCERTI", &key.issuer)];
        for (keyword, value) in selectors.into_iter().filter(|(_, value)| !value.is_empty()) {
            row.push(keyword, Cell::Text(value.clone()));
        }
        for attribute in wanted(statement, false) {
            if let Some(cell) = cell(key, rule, attribute.key) {
                row.push(attribute.keyword, cell);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The rules that would apply to a caller, in the order in which they are asked.
fn run_check<'a>(statement: &Statement, rules: &'a ChannelRules) -> Result<Vec<(&'a RuleKey, &'a Rule)>, Failure> {
    let channel = &statement.name.stem;
    if channel.contains('*') {
        return Err(invalid("MATCH(RUNCHECK) is for one channel", None));
    }
    let address = text(statement, Key::RuleAddress);
    let hint = "write ADDRESS('192.0.2.1'): from where the partner would come";
    let address: IpAddr = address.parse().map_err(|_| invalid("MATCH(RUNCHECK) needs an ADDRESS", Some(hint)))?;
    let name = |key| match text(statement, key) {
        text if text.is_empty() => Ok(None),
        text => text.parse::<Dn>().map(Some).map_err(|error| invalid(error, None)),
    };
    let (subject, issuer) = (name(Key::PeerPattern)?, name(Key::PeerIssuerPattern)?);
    let user = Some(text(statement, Key::ClientUser)).filter(|user| !user.is_empty());
    let caller = Caller { channel, address, subject: subject.as_ref(), issuer: issuer.as_ref(), user: user.as_deref() };
    if let Some(blocked) = rules.blocking_address(address) {
        return Ok(vec![blocked]);
    }
    let mapping = rules.mapping(&caller);
    let in_force = match mapping.map(|(_, rule)| &rule.source) {
        Some(UserSource::NoAccess) => return Ok(mapping.into_iter().collect()),
        Some(UserSource::Map(user)) => Some(user.as_str()),
        _ => user.as_deref(),
    };
    let found: Vec<_> = mapping.into_iter().chain(rules.blocking_user(channel, in_force)).collect();
    if found.is_empty() {
        return Err(Failure {
            kind: FailureKind::Refused,
            reason: Some(NOT_FOUND),
            message: format!("no rule applies: on {channel} the partner is who it says it is"),
            hint: None,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use crate::execute;
    use crate::objects::AsText;
    use crate::reply::Reply;
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use bulla_catalog::Definitions;

    #[test]
    fn rules_are_read_back_as_they_were_written() {
        let mut paper = Paper::new();
        let commands = "\
            SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS) DESCR('back stop')\n\
            SET CHLAUTH(QM2.*) TYPE(SSLPEERMAP) SSLPEER('CN=QM2,O=\"a, b\"') SSLCERTI('CN=CA') ADDRESS('10.1-5.*') MCAUSER('border')\n\
            SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(USERMAP) CLNTUSER('orders') USERSRC(CHANNEL) CHCKCLNT(REQUIRED) WARN(YES)\n\
            SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('mallory', '*ANONYMOUS', '*')\n\
            SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('192.0.2.*', '2001:db8::1') WARN(YES)\n\
            ALTER QMGR CHLAUTH(DISABLED) CHCKCLNT(REQUIRED)\n";
        let replies: Vec<String> = execute(commands, &mut paper).iter().map(Reply::text).collect();
        let definitions = paper.definitions();
        assert_eq!(definitions.channel_rules.len(), 5, "{replies:?}");
        let read = Definitions::from_text(&definitions.text(), "objects.mqsc".as_ref()).unwrap();
        assert_eq!(&read, definitions, "{}", definitions.text());
    }

    #[test]
    fn lists_grow_and_shrink_and_go() {
        let mut paper = Paper::new();
        let mut users = |command: &str| {
            execute(&format!("SET CHLAUTH('*') TYPE(BLOCKUSER) {command}"), &mut paper);
            let rules = &paper.definitions().channel_rules;
            rules.iter().flat_map(|(_, rule)| rule.users.iter().cloned().collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(users("USERLIST('a', 'b')"), ["a", "b"]);
        assert_eq!(users("USERLIST('c') ACTION(ADD)"), ["a", "b", "c"]);
        assert_eq!(users("USERLIST('a', 'x') ACTION(REMOVE)"), ["b", "c"]);
        assert_eq!(users("USERLIST('z') ACTION(REPLACE)"), ["z"]);
        assert_eq!(users("ACTION(REMOVEALL)"), [""; 0]);
    }
}
