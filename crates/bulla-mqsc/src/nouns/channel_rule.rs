//! CHLAUTH: which addresses, users and certificates may use a channel, and as whom.
//!
//! A rule is known by its channel, its TYPE and what it compares. SET differs from DEFINE: its ACTION also adds entries
//! to a list and takes them out. DISPLAY differs too: MATCH compares channels' patterns, and RUNCHECK asks the rules.

use super::noun::verb;
use super::{Field, Keyed, KeyedNoun, Said, attributes, joined};
use crate::difference::Parts;
use crate::kept::ObjectName;
use crate::objects::WRAPPED;
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure, FailureKind, Row};
use crate::run::{invalid, too_many};
use crate::table::{
    Act, Attribute, Command, DESCR, DISPLAY_OPTIONS, DN_CHARS_MAX, Defining, Doing, Key, Kind, NameUse, attribute,
    words,
};
use bulla_catalog::authority::{
    CHANNEL_RULES_MAX, Caller, ChannelRules, Rule, RuleKey, RuleKind, UserSource, channel_profile_fits,
};
use bulla_catalog::names::{USER_NAME_BYTES_MAX, is_user_name};
use bulla_catalog::peer_name::PeerPattern;
use bulla_catalog::{Change, Definitions};
use bulla_seal::dn::Dn;
use std::collections::BTreeSet;
use std::net::IpAddr;

const WORD: &str = "CHLAUTH";
const OBJECT: &str = "rule";

const TYPE: &str = "TYPE";
const ADDRESS: &str = "ADDRESS";
const CLNTUSER: &str = "CLNTUSER";
const SSLPEER: &str = "SSLPEER";
const SSLCERTI: &str = "SSLCERTI";
const ADDRLIST: &str = "ADDRLIST";
const USERLIST: &str = "USERLIST";
const USERSRC: &str = "USERSRC";
const MCAUSER: &str = "MCAUSER";
const CHCKCLNT: &str = "CHCKCLNT";

/// USERSRC: the user is MCAUSER.
const MAP: &str = "MAP";
/// USERSRC: the user is the partner's own.
const CHANNEL: &str = "CHANNEL";
/// USERSRC: the partner is refused.
const NOACCESS: &str = "NOACCESS";

/// MQ's reason code for a rule that is there already.
const ALREADY_EXISTS: u32 = 3337;
/// MQ's reason code for a rule that is not there.
const NOT_FOUND: u32 = 3338;
/// Most entries of a list, so that one command can write it.
const LIST_MAX: usize = 10_000;

/// A rule with what it is known by, as the language has it.
pub(crate) struct Known {
    key: RuleKey,
    rule: Rule,
    /// USERSRC and MCAUSER as they are given: `rule.source` comes of both.
    source: (&'static str, String),
}

impl Known {
    fn new(key: RuleKey, rule: Rule) -> Self {
        let source = match &rule.source {
            UserSource::Channel => (CHANNEL, String::new()),
            UserSource::Map(user) => (MAP, user.clone()),
            UserSource::NoAccess => (NOACCESS, String::new()),
        };
        Self { key, rule, source }
    }
}

/// What a rule is known by beside its channel.
static KNOWN_BY: &[Field<Known>] = &[
    Field::new(
        TYPE,
        words(&["ADDRESSMAP", "USERMAP", "SSLPEERMAP", "BLOCKUSER", "BLOCKADDR"]),
        "",
        "How a partner is recognised. ADDRESSMAP: its address. USERMAP: the user who has signed in. SSLPEERMAP: its \
         verified certificate. BLOCKUSER: users who may not use the channel, after the other rules gave the user. \
         BLOCKADDR: addresses whose connections are closed without an answer.",
        |of| Cell::word(of.key.kind.word()),
        |of, value| of.key.kind = RuleKind::of(value.word()).unwrap_or(of.key.kind),
    ),
    Field::new(
        ADDRESS,
        Kind::Address,
        "",
        "Where the partner comes from: four parts with '.', or eight with ':', each a number, a range like 5-9, or *; \
         * alone for everywhere. ADDRESSMAP needs it; USERMAP and SSLPEERMAP ask for it too where it is given.",
        |of| Cell::word(&of.key.address),
        |of, value| of.key.address = value.text(),
    ),
    Field::new(
        CLNTUSER,
        Kind::Text { chars_max: USER_NAME_BYTES_MAX },
        "",
        "The user who has signed in, by name. USERMAP needs it.",
        |of| Cell::word(&of.key.user),
        |of, value| of.key.user = value.text(),
    ),
    Field::new(
        SSLPEER,
        Kind::Text { chars_max: DN_CHARS_MAX },
        "",
        "A pattern for the subject of the partner's certificate, as in DEFINE CHANNEL. SSLPEERMAP needs it.",
        |of| Cell::word(&of.key.peer),
        |of, value| of.key.peer = value.text(),
    ),
    Field::new(
        SSLCERTI,
        Kind::Text { chars_max: DN_CHARS_MAX },
        "",
        "A pattern for who has signed that certificate.",
        |of| Cell::word(&of.key.issuer),
        |of, value| of.key.issuer = value.text(),
    ),
];

/// What a rule says.
static SAYS: &[Field<Known>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.rule.description), |of, value| of.rule.description = value.text()),
    Field::new(
        ADDRLIST,
        Kind::Addresses,
        "",
        "The addresses of BLOCKADDR, written like ADDRESS.",
        |of| list(&of.rule.addresses),
        |of, value| of.rule.addresses.extend(value.list().iter().cloned()),
    ),
    Field::new(
        USERLIST,
        Kind::Users { special: true, blank: false },
        "",
        "The users of BLOCKUSER. '*' stands for every user, '*ANONYMOUS' for all clients that have not signed in.",
        |of| list(&of.rule.users),
        |of, value| of.rule.users.extend(value.list().iter().cloned()),
    ),
    Field::new(
        USERSRC,
        words(&[MAP, CHANNEL, NOACCESS]),
        MAP,
        "The user that the partner becomes. MAP: MCAUSER. CHANNEL: its own user, and for a channel's messages the \
         channel's own MCAUSER. NOACCESS: none, it is refused.",
        |of| Cell::word(of.source.0),
        |of, value| of.source.0 = value.word(),
    ),
    Field::new(
        MCAUSER,
        Kind::Text { chars_max: USER_NAME_BYTES_MAX },
        "",
        "The user of USERSRC(MAP).",
        |of| Cell::word(&of.source.1),
        |of, value| of.source.1 = value.text(),
    ),
    Field::new(
        CHCKCLNT,
        words(&["ASQMGR", "REQUIRED"]),
        "ASQMGR",
        "REQUIRED: only who has signed in is let in by this rule. ASQMGR: as the queue manager's CHCKCLNT says.",
        |of| Cell::word(if of.rule.sign_in_required { "REQUIRED" } else { "ASQMGR" }),
        |of, value| of.rule.sign_in_required = value.word() == "REQUIRED",
    ),
    Field::new(
        "WARN",
        words(&["NO", "YES"]),
        "NO",
        "YES: a partner that the rule would refuse is let in, and the log says so.",
        |of| Cell::word(if of.rule.warn { "YES" } else { "NO" }),
        |of, value| of.rule.warn = value.word() == "YES",
    ),
];

static OF_KEY: &[&Attribute] = attributes!(KNOWN_BY);
/// DISPLAY: what it shows beside what a rule is known by.
static SHOWN: &[&Attribute] = attributes!(SAYS);
static ATTRIBUTES: &[&Attribute] =
    joined![OF_KEY.split_at(1).0, SHOWN.split_at(1).0, OF_KEY.split_at(1).1, SHOWN.split_at(1).1];
/// DISPLAY: what steers it.
static OPTIONS: &[&Attribute] = joined![OF_KEY.split_at(1).0, &[&MATCH], OF_KEY.split_at(1).1, DISPLAY_OPTIONS];

/// What SET CHLAUTH does with the rule.
static ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["ADD", "REPLACE", "REMOVE", "REMOVEALL"]),
    "ADD",
    "ADD: a new rule, or more entries of a list. REPLACE: written anew. REMOVE: the rule goes, or those entries of a \
     list. REMOVEALL: the whole list.",
);
static MATCH: Attribute = attribute(
    Key::Match,
    "MATCH",
    words(&["GENERIC", "EXACT", "ALL", "RUNCHECK"]),
    "GENERIC",
    "Which rules. GENERIC: those whose channel name fits the one given. EXACT: of that very name. ALL: those too that \
     the name given fits. RUNCHECK: those that would apply to a partner at ADDRESS, with CLNTUSER, SSLPEER and \
     SSLCERTI where it has them.",
);

pub(crate) static COMMANDS: [Command; 2] = [
    verb(
        ("SET", WORD, OBJECT),
        Act::Defines(Defining::SetChannelRule),
        NameUse::Channels,
        &[&ACTION],
        ATTRIBUTES,
        Said {
            summary: "Say which addresses, users and certificates may use a channel, and as which user. Of the rules \
             that match, the most specific one decides: by the channel's name, then certificate before user before \
             address. Clients are on the channel SYSTEM.DEF.SVRCONN.",
            examples: &[
                "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS) DESCR('Addresses without a rule are \
                 refused')",
                "SET CHLAUTH(QM2.QM1) TYPE(SSLPEERMAP) SSLPEER('CN=QM2,O=Demo') SSLCERTI('CN=Authority,O=Demo') \
                 MCAUSER('border')",
                "SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(USERMAP) CLNTUSER('orders') ADDRESS('192.0.2.*') \
                 USERSRC(CHANNEL)",
                "SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('*ANONYMOUS')",
                "SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('198.51.100.7', '2001:db8:*')",
            ],
        },
    ),
    verb(
        ("DISPLAY", WORD, OBJECT),
        Act::Does(Doing::DisplayChannelRule),
        NameUse::Channels,
        OPTIONS,
        SHOWN,
        Said {
            summary: "Show the rules for connections, or, with MATCH(RUNCHECK), those that would apply to a partner.",
            examples: &[
                "DISPLAY CHLAUTH(*)",
                "DIS CHLAUTH(QM2.QM1) MATCH(RUNCHECK) ADDRESS('192.0.2.1') SSLPEER('CN=QM2,O=Demo')",
            ],
        },
    ),
];

/// CHLAUTH.
pub(crate) static CHANNEL_RULE: KeyedNoun<Known> =
    KeyedNoun { word: WORD, place: 15, between: WRAPPED, known_by: KNOWN_BY, says: SAYS, shown: &[] };

impl Keyed for Known {
    fn all(definitions: &Definitions) -> Box<dyn Iterator<Item = ObjectName> + '_> {
        Box::new(definitions.channel_rules.iter().map(|(key, _)| ObjectName::Rule(key.clone())))
    }

    fn find(object: &ObjectName, definitions: &Definitions) -> Option<Self> {
        let ObjectName::Rule(key) = object else { return None };
        Some(Known::new(key.clone(), definitions.channel_rules.get(key)?.clone()))
    }

    fn name(&self) -> Option<&str> {
        Some(&self.key.profile)
    }

    fn has(&self, key: Key) -> bool {
        let Key::Own(word) = key else { return true };
        let RuleKey { kind, address, user, peer, issuer, .. } = &self.key;
        goes_with(*kind, word)
            && match word {
                ADDRESS => !address.is_empty(),
                CLNTUSER => !user.is_empty(),
                SSLPEER => !peer.is_empty(),
                SSLCERTI => !issuer.is_empty(),
                MCAUSER => self.source.0 == MAP,
                CHCKCLNT => self.source.0 != NOACCESS,
                _ => true,
            }
    }

    fn removal(object: &Parts, is_known_by: impl Fn(&str) -> bool) -> String {
        let is_list = object.attributes.iter().any(|text| text.starts_with("TYPE(BLOCK"));
        let action = if is_list { "REMOVEALL" } else { "REMOVE" };
        format!("{} ACTION({action})", object.with_those("SET", is_known_by))
    }

    fn change(_before: &Parts, after: &Parts, _is_known_by: impl Fn(&str) -> bool) -> String {
        format!("{} ACTION(REPLACE)", after.command())
    }
}

/// Whether rules of a type have an attribute.
fn goes_with(kind: RuleKind, word: &str) -> bool {
    match word {
        ADDRESS | USERSRC | MCAUSER | CHCKCLNT => kind.maps(),
        CLNTUSER => kind == RuleKind::User,
        SSLPEER | SSLCERTI => kind == RuleKind::Peer,
        USERLIST => kind == RuleKind::BlockUser,
        ADDRLIST => kind == RuleKind::BlockAddress,
        _ => true,
    }
}

/// The attribute that a rule of a type must have.
fn needed(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Address => ADDRESS,
        RuleKind::User => CLNTUSER,
        RuleKind::Peer => SSLPEER,
        RuleKind::BlockUser => USERLIST,
        RuleKind::BlockAddress => ADDRLIST,
    }
}

fn list(entries: &BTreeSet<String>) -> Cell {
    Cell::List(entries.iter().cloned().collect())
}

/// What SET CHLAUTH comes to.
///
/// # Errors
/// It contradicts what is defined, or itself.
pub(crate) fn set(statement: &Statement, rules: &ChannelRules) -> Result<Change, Failure> {
    let Known { key, rule: given, .. } = given(statement)?;
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
            written(statement, key, known.filter(|_| action == "ADD").cloned())
        }
    }
}

/// The rule that the command makes of one that is there, or of none.
///
/// # Errors
/// It contradicts itself, or its list becomes too long.
fn written(statement: &Statement, key: RuleKey, before: Option<Rule>) -> Result<Change, Failure> {
    let mut after = Known { key, rule: before.unwrap_or_default(), source: (MAP, String::new()) };
    CHANNEL_RULE.take_over(&mut after, statement);
    let Known { key, mut rule, source } = after;
    if key.kind.maps() {
        rule.source = source_of(source)?;
        if rule.sign_in_required && rule.source == UserSource::NoAccess {
            return Err(invalid("USERSRC(NOACCESS) has no CHCKCLNT", None));
        }
    }
    if rule.users.len() + rule.addresses.len() > LIST_MAX {
        return Err(too_many(LIST_MAX, "entries in the list"));
    }
    Ok(Change::SetChannelRule(key, rule))
}

fn text(statement: &Statement, word: &'static str) -> String {
    statement.value(Key::Own(word)).map(Value::text).unwrap_or_default()
}

/// The TYPE that the command gives.
fn kind_given(statement: &Statement) -> Option<RuleKind> {
    statement.value(Key::Own(TYPE)).and_then(|value| RuleKind::of(value.word()))
}

/// What the command says of a rule, but for [`source_of`].
///
/// # Errors
/// What is given does not go with the type, or is needed and not given.
fn given(statement: &Statement) -> Result<Known, Failure> {
    let kind = kind_given(statement).ok_or_else(|| invalid("SET CHLAUTH needs TYPE", None))?;
    let needed = needed(kind);
    let words = statement.settings.iter().map(|setting| setting.attribute.keyword);
    if let Some(word) = words.into_iter().find(|word| !goes_with(kind, word)) {
        return Err(invalid(format_args!("TYPE({}) has no {word}", kind.word()), None));
    }
    let whole_list = statement.says(Key::Action, "REMOVEALL") && !kind.maps();
    if statement.value(Key::Own(needed)).is_none() && !whole_list {
        return Err(invalid(format_args!("TYPE({}) needs {needed}", kind.word()), None));
    }
    let profile = statement.name.stem.clone();
    if kind == RuleKind::BlockAddress && profile != "*" {
        let hint = "addresses are kept out before a channel is named: write SET CHLAUTH('*')";
        return Err(invalid("TYPE(BLOCKADDR) is for all channels", Some(hint)));
    }
    let empty = String::new;
    let key = RuleKey { profile, kind, address: empty(), user: empty(), peer: empty(), issuer: empty() };
    let mut given = Known::new(key, Rule::default());
    CHANNEL_RULE.take_over(&mut given, statement);
    let RuleKey { user, peer, issuer, .. } = &given.key;
    for (word, pattern) in [(SSLPEER, peer), (SSLCERTI, issuer)] {
        if !pattern.is_empty() {
            PeerPattern::parse(pattern).map_err(|error| invalid(format_args!("{word}: {error}"), None))?;
        }
    }
    if let Some((blank, _)) =
        [(CLNTUSER, user), (SSLPEER, peer)].iter().find(|(word, value)| *word == needed && value.is_empty())
    {
        return Err(invalid(format_args!("{blank} cannot be empty"), None));
    }
    user_name(CLNTUSER, user)?;
    Ok(given)
}

fn user_name(keyword: &str, name: &str) -> Result<(), Failure> {
    if name.is_empty() || is_user_name(name) {
        return Ok(());
    }
    Err(invalid(format_args!("{keyword}: no user can have the name '{name}'"), None))
}

/// The user that a partner becomes, by USERSRC and MCAUSER.
///
/// # Errors
/// One does not go with the other.
fn source_of((source, user): (&'static str, String)) -> Result<UserSource, Failure> {
    user_name(MCAUSER, &user)?;
    match (source, user.is_empty()) {
        (MAP, false) => Ok(UserSource::Map(user)),
        (MAP, true) => Err(invalid("USERSRC(MAP) needs MCAUSER", None)),
        (source, false) => Err(invalid(format_args!("USERSRC({source}) has no MCAUSER"), None)),
        (NOACCESS, true) => Ok(UserSource::NoAccess),
        (_, true) => Ok(UserSource::Channel),
    }
}

/// What came of a change, for messages; none for changes of others.
pub(crate) fn done(change: &Change) -> Option<String> {
    match change {
        Change::SetChannelRule(key, _) => Some(format!("{key} set")),
        Change::DeleteChannelRule(key) => Some(format!("{key} removed")),
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
    let kind = kind_given(statement);
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
    CHANNEL_RULE.rows(statement, found.into_iter().map(|(key, rule)| Known::new(key.clone(), rule.clone())))
}

/// The rules that would apply to a caller, in the order in which they are asked.
fn run_check<'a>(statement: &Statement, rules: &'a ChannelRules) -> Result<Vec<(&'a RuleKey, &'a Rule)>, Failure> {
    let channel = &statement.name.stem;
    if channel.contains('*') {
        return Err(invalid("MATCH(RUNCHECK) is for one channel", None));
    }
    let address = text(statement, ADDRESS);
    let hint = "write ADDRESS('192.0.2.1'): from where the partner would come";
    let address: IpAddr = address.parse().map_err(|_| invalid("MATCH(RUNCHECK) needs an ADDRESS", Some(hint)))?;
    let name = |word| match text(statement, word) {
        text if text.is_empty() => Ok(None),
        text => text.parse::<Dn>().map(Some).map_err(|error| invalid(error, None)),
    };
    let (subject, issuer) = (name(SSLPEER)?, name(SSLCERTI)?);
    let user = Some(text(statement, CLNTUSER)).filter(|user| !user.is_empty());
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
            SET CHLAUTH(QM2.*) TYPE(SSLPEERMAP) SSLPEER('CN=QM2,O=\"a, b\"') SSLCERTI('CN=CA') ADDRESS('10.1-5.*') \
            MCAUSER('border')\n\
            SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(USERMAP) CLNTUSER('orders') USERSRC(CHANNEL) CHCKCLNT(REQUIRED) \
            WARN(YES)\n\
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
