//! The table of commands: verbs, nouns, attributes, their values, defaults and words of explanation.
//!
//! Parser, `HELP`, the reference page and completion read this table and nothing else. An attribute stands here
//! only when something honours it.

mod algorithm_use;
pub(crate) mod channel;
mod commands;
mod connection;
mod device;
mod enrolment;
mod key;
mod key_rotation;
mod key_use;
mod lockout;
mod log_in;
pub(crate) mod messages;
mod protection;
mod queue_status;
pub(crate) mod topic;

use crate::nouns;
use bulla_catalog::authority::Role;
use bulla_catalog::names::is_name;
use bulla_catalog::{Sort, topic_names};
pub(super) use channel::STATUS_BRIEF as CHANNEL_STATUS_BRIEF;
pub(crate) use commands::{
    COMMANDS_OF_DEVICES, COMMANDS_OF_PROTECTION, COMMANDS_OF_TASKS, COMMANDS_OF_UNITS, OTHER_COMMANDS,
};
pub(crate) use device::*;
pub use key::Key;
pub(super) use protection::*;
pub(crate) use queue_status::*;
use std::fmt::{self, Display};

/// Longest description in characters, as MQ has it.
pub const DESCR_CHARS_MAX: usize = 64;
/// Longest distinguished name in characters.
pub const DN_CHARS_MAX: usize = 1024;
/// Highest priority.
pub const PRIORITY_MAX: u64 = 9;
/// Most engines of a device.
pub const ENGINES_MAX: u64 = 16;
/// Highest PENDING in jobs.
pub const PENDING_MAX: u64 = 1024;
/// Shortest TIMEOUT in milliseconds.
pub const TIMEOUT_MS_MIN: u64 = 10;
/// Longest TIMEOUT in milliseconds.
pub const TIMEOUT_MS_MAX: u64 = 600_000;
/// Longest path, URI or list of service times in characters.
pub const DEVICE_TEXT_CHARS_MAX: usize = 1024;
/// Highest limits that are counts, as MQ has them.
pub(crate) const COUNT_MAX: u64 = 999_999_999;
/// Highest UNACKED: a tebibyte.
pub(crate) const UNACKNOWLEDGED_BYTES_MAX: u64 = 1 << 40;
/// Highest number of re-uses that KEYREUSE takes, as MQ has it.
pub const KEY_REUSE_MAX: u64 = 9_999_999;

/// What a command does and takes.
#[derive(Debug)]
pub struct Command {
    /// The command, for the code that carries it out.
    pub act: Act,
    /// First word.
    pub verb: &'static str,
    /// Second word; empty for `HELP`.
    pub noun: &'static str,
    /// What may stand in the parentheses after the noun.
    pub name: NameUse,
    /// What the name names, for messages: `queue`, `policy`, …
    pub object: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Words that steer the command and are not kept with the object.
    pub options: &'static [&'static Attribute],
    /// What DEFINE, ALTER and SET set, and what DISPLAY shows.
    pub attributes: &'static [&'static Attribute],
    /// At least one that works as it stands.
    pub examples: &'static [&'static str],
    /// First version that has it.
    pub since: &'static str,
}

/// The role that each verb needs.
pub const ROLES: [(&str, Role); 16] = [
    ("HELP", Role::Look),
    ("DISPLAY", Role::Look),
    // What it holds together is asked about by itself.
    ("BEGIN", Role::Look),
    ("START", Role::Operate),
    ("STOP", Role::Operate),
    ("PING", Role::Operate),
    ("RESET", Role::Operate),
    ("RESOLVE", Role::Operate),
    ("CLEAR", Role::Operate),
    ("REPLAY", Role::Operate),
    // It changes nothing, and works with the readers' keys. What it takes beyond that is `Statement::role`'s to say.
    ("CHECK", Role::Operate),
    // It opens messages, and gives them the recipients that the policy has.
    ("RESEAL", Role::All),
    ("DEFINE", Role::All),
    ("ALTER", Role::All),
    ("DELETE", Role::All),
    ("SET", Role::All),
];

impl Command {
    /// The role that it takes. A verb that the table does not know takes everything.
    pub fn role(&self) -> Role {
        ROLES.iter().find(|(verb, _)| *verb == self.verb).map_or(Role::All, |(_, role)| *role)
    }

    /// True for commands that show and change nothing.
    pub fn is_display(&self) -> bool {
        self.verb == "DISPLAY"
    }

    /// Finds an option or attribute by a word as typed, in upper case.
    pub fn attribute(&self, word: &str) -> Option<&'static Attribute> {
        self.options.iter().chain(self.attributes).copied().find(|attribute| attribute.answers_to(word))
    }

    /// Each word that may follow in this command, for suggestions and completion.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().chain(self.attributes).flat_map(|attribute| attribute.words())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.noun {
            "" => f.write_str(self.verb),
            noun => write!(f, "{} {noun}", self.verb),
        }
    }
}

/// What a command does, for the code that carries it out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// It changes what is defined, and nothing else.
    Defines(Defining),
    /// It changes nothing that is defined.
    Does(Doing),
}

/// One for each command that changes what is defined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Defining {
    Define(Sort),
    Alter(Sort),
    Delete(Sort),
    Set(Sort),
    AlterManager,
    SetAuthority,
    DeleteAuthority,
    SetChannelRule,
}

/// One for each command that shows something, or works on what runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Doing {
    Display(Sort),
    ClearLocal,
    ReplayLocal,
    ResealLocal,
    CheckPolicy,
    CheckQueue,
    CheckManager,
    DisplayDeadLetters,
    DisplaySubscriptionStatus,
    DisplayTopicStatus,
    DisplayQueue,
    DisplayQueueStatus,
    DisplayManager,
    DisplayPolicyStatus,
    StartGroup,
    StopGroup,
    TakeGroup,
    DisplayGroupStatus,
    StartDevice,
    StopDevice,
    DisplayDeviceStatus,
    StartChannel,
    StopChannel,
    PingChannel,
    ResetChannel,
    ResolveChannel,
    DisplayChannelStatus,
    DisplayInitiator,
    DisplayTaskStatus,
    DisplayCostStatus,
    DisplayAuthority,
    BeginUnit,
    DisplayChannelRule,
    DisplayLimitStatus,
    DisplayKeyUse,
    DisplayAlgorithmUse,
    DisplayKeyRotation,
    DisplayEnrolment,
    DisplayLockout,
    ResetLockout,
    DisplayLogIn,
    StopLogIn,
    DisplayConnection,
    StopConnection,
    PingManager,
    Help,
}

impl Command {
    /// Whether its objects can have that name, or names that begin so.
    pub(super) fn takes_name(&self, name: &str, is_beginning: bool) -> bool {
        match (self.noun, is_beginning) {
            ("SUB" | "SBSTATUS", false) => topic_names::is_subscription_name(name),
            ("SUB" | "SBSTATUS", true) => topic_names::may_begin_subscription_name(name),
            _ => is_name(name),
        }
    }
}

impl Act {
    /// True for commands that change what is defined, and nothing else.
    pub(super) fn is_definition(self) -> bool {
        matches!(self, Act::Defines(_))
    }
}

/// What may stand in the parentheses after the noun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameUse {
    /// There are no parentheses.
    None,
    /// Exactly one object.
    One,
    /// One object, or many by a `*` at the end.
    Generic,
    /// Channels, by a name in which `*` stands for any characters.
    Channels,
    /// A user's name, the beginning of one with a `*`, `*` alone, or `*ANONYMOUS`.
    Users,
    /// A client's address, with a `*` for any characters.
    Addresses,
    /// A topic, in which a level may be a wildcard.
    Topics,
}

/// A word with its values.
#[derive(Debug, Eq, PartialEq)]
pub struct Attribute {
    /// The attribute, for the code that carries it out.
    pub key: Key,
    /// How it is shown and written.
    pub keyword: &'static str,
    /// Other spellings that are taken.
    pub synonyms: &'static [&'static str],
    /// What it takes.
    pub kind: Kind,
    /// What holds when it is not given, as one would write it; empty when there is nothing to say.
    pub default: &'static str,
    /// One or two sentences.
    pub doc: &'static str,
    /// First version that has it.
    pub since: &'static str,
}

impl Attribute {
    /// True when `word`, in upper case, means this attribute.
    pub fn answers_to(&self, word: &str) -> bool {
        self.words().any(|own| own == word)
    }

    /// Every spelling.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        let states: &'static [&'static str] = match &self.kind {
            Kind::Switch(states) => states,
            _ => &[],
        };
        std::iter::once(self.keyword).chain(self.synonyms.iter().copied()).chain(states.iter().copied())
    }
}

/// What an attribute takes.
#[derive(Debug, Eq, PartialEq)]
pub enum Kind {
    /// A whole number, both ends included.
    Number {
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
    },
    /// A whole number, both ends included, or one word that stands for something else.
    NumberOr {
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
        /// The word.
        word: &'static str,
    },
    /// One word of several.
    Word {
        /// The words.
        choices: &'static [&'static str],
        /// Words that are known and refused, with the reason.
        refused: &'static [(&'static str, &'static str)],
    },
    /// A number of re-uses: 0 or DISABLED, a number, `*` or UNLIMITED.
    Reuse {
        /// Highest number.
        max: u64,
    },
    /// An object's name; an empty one (`' '`) where `optional`.
    Name {
        /// May be blank.
        optional: bool,
    },
    /// `QUEUE@QMGR`, comma separated.
    Destinations,
    /// Any characters, in quotes.
    Text {
        /// Longest in characters.
        chars_max: usize,
    },
    /// Distinguished names in quotes, comma separated; the attribute may be repeated.
    DistinguishedNames,
    /// Words of several, comma separated.
    Words {
        /// The words.
        choices: &'static [&'static str],
        /// Words that are known and refused, with the reason.
        refused: &'static [(&'static str, &'static str)],
    },
    /// Objects' names, comma separated.
    Names,
    /// A name, or a pattern for many by `?`, `*` and `**`.
    Profile,
    /// A pattern for addresses.
    Address,
    /// Patterns for addresses, comma separated.
    Addresses,
    /// Users' names, comma separated.
    Users {
        /// The names that stand for several users are taken too.
        special: bool,
        /// May be blank, for no user.
        blank: bool,
    },
    /// Stands alone; one of these words. The first is the default.
    Switch(&'static [&'static str]),
    /// `WHERE(attribute operator value)`.
    Filter,
    /// Shown only.
    Shown,
}

/// Verbs with the short forms that are taken.
pub const VERBS: &[(&str, &[&str])] = &[
    ("ALTER", &["ALT"]),
    ("BEGIN", &[]),
    ("CHECK", &[]),
    ("CLEAR", &[]),
    ("DEFINE", &["DEF"]),
    ("DELETE", &["DEL"]),
    ("DISPLAY", &["DIS"]),
    ("HELP", &[]),
    ("PING", &[]),
    ("REPLAY", &[]),
    ("RESEAL", &[]),
    ("RESET", &[]),
    ("RESOLVE", &["RES"]),
    ("SET", &[]),
    ("START", &["STA"]),
    ("STOP", &[]),
];

/// Nouns that [`nouns`](crate::nouns) has not, with the short forms that are taken.
const NOUNS: &[(&str, &[&str])] = &[
    ("QUEUE", &["Q"]),
    ("SBSTATUS", &[]),
    ("TPSTATUS", &["TPS"]),
    ("QSTATUS", &["QS"]),
    ("DEADMSG", &["DM"]),
    ("QMGR", &[]),
    ("POLSTATUS", &["POLS"]),
    ("DEVSTATUS", &["DEVS"]),
    ("CHSTATUS", &["CHS"]),
    ("CHINIT", &["CHI"]),
    ("TASKSTATUS", &["TASKS"]),
    ("COSTSTATUS", &["COSTS"]),
    ("AUTHREC", &[]),
    ("UNIT", &[]),
    ("LIMITSTATUS", &["LIMS"]),
    ("QSGSTATUS", &["QSGS"]),
    ("CHLAUTH", &[]),
    ("KEYUSE", &["KU"]),
    ("ALGUSE", &["AU"]),
    ("KEYROTATE", &["KR"]),
    ("ENROL", &[]),
    ("LOCKOUT", &[]),
    ("LOGIN", &[]),
    ("CONN", &[]),
];

/// The long form of a verb as typed, in upper case.
pub fn verb(word: &str) -> Option<&'static str> {
    long_form(VERBS.iter().copied(), word)
}

/// The long form of a noun as typed, in upper case.
pub fn noun(word: &str) -> Option<&'static str> {
    long_form(nouns(), word)
}

fn long_form(
    mut known: impl Iterator<Item = (&'static str, &'static [&'static str])>,
    word: &str,
) -> Option<&'static str> {
    known.find(|(long, short)| *long == word || short.contains(&word)).map(|(long, _)| long)
}

/// Finds a command by the long forms of its words.
pub fn command(verb: &str, noun: &str) -> Option<&'static Command> {
    commands().find(|command| command.verb == verb && command.noun == noun)
}

/// Every command, in the order of the reference page.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    nouns::commands()
}

/// Every noun with its short forms.
pub fn nouns() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    NOUNS.iter().copied().chain(nouns::all().map(|noun| (noun.word(), noun.short())))
}

pub(crate) const V1: &str = "0.1";

pub(crate) const fn attribute(
    key: Key,
    keyword: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Attribute {
    Attribute { key, keyword, synonyms: &[], kind, default, doc, since: V1 }
}

pub(crate) const fn shown(key: Key, keyword: &'static str, doc: &'static str) -> Attribute {
    attribute(key, keyword, Kind::Shown, "", doc)
}

pub(crate) const fn words(choices: &'static [&'static str]) -> Kind {
    Kind::Word { choices, refused: &[] }
}

/// What steers DEFINE.
pub(crate) const DEFINE_OPTIONS: &[&Attribute] = &[&REPLACE, &LIKE];
/// What steers DISPLAY.
pub(crate) const DISPLAY_OPTIONS: &[&Attribute] = &[&WHERE, &ALL];

pub(crate) const ENABLED: Kind = words(&["ENABLED", "DISABLED"]);

pub(crate) static DESCR: Attribute = attribute(
    Key::Description,
    "DESCR",
    Kind::Text { chars_max: DESCR_CHARS_MAX },
    "' '",
    "What it is for, in plain words.",
);
pub(crate) static GET: Attribute =
    attribute(Key::Get, "GET", ENABLED, "ENABLED", "Whether applications may get. DISABLED answers 2016.");
pub(crate) static PUT: Attribute =
    attribute(Key::Put, "PUT", ENABLED, "ENABLED", "Whether applications may put. DISABLED answers 2051.");
pub(crate) static DEFPRTY: Attribute = attribute(
    Key::DefaultPriority,
    "DEFPRTY",
    Kind::Number { min: 0, max: PRIORITY_MAX },
    "4",
    "Priority of a message that comes without an AMQP header. The default is AMQP's own, 4.",
);
pub(crate) static DEFPSIST: Attribute = attribute(
    Key::DefaultPersistence,
    "DEFPSIST",
    words(&["YES", "NO"]),
    "NO",
    "Whether a message that comes without an AMQP header is persistent.",
);

pub(crate) static TYPE: Attribute = shown(Key::Type, "TYPE", "QLOCAL, QALIAS, QREMOTE or QMODEL.");
pub(crate) static CURDEPTH: Attribute =
    shown(Key::CurrentDepth, "CURDEPTH", "Messages on the queue, those under delivery included.");
static QMNAME: Attribute = shown(Key::ManagerName, "QMNAME", "Name of the queue manager.");
pub(crate) static VERSION: Attribute = shown(Key::Version, "VERSION", "Version of the program that answers.");

static AT: Attribute = attribute(
    Key::At,
    "AT",
    Kind::Text { chars_max: "YYYY-MM-DD HH:MM:SS".len() },
    "now",
    "As it was at this time, UTC, written 'YYYY-MM-DD HH:MM:SS'. The queue manager keeps the numbers of every minute \
     of the last day in which something was done, and shows the last ones that were kept by then.",
);

static REPLACE: Attribute = attribute(
    Key::Replace,
    "REPLACE",
    Kind::Switch(&["NOREPLACE", "REPLACE"]),
    "NOREPLACE",
    "Whether an object of that name is replaced; attributes that are not given fall back to their defaults. A queue's \
     messages stay.",
);
static LIKE: Attribute = attribute(
    Key::Like,
    "LIKE",
    Kind::Name { optional: false },
    "",
    "Take what is not given here from this object instead of the defaults.",
);
static OF_TYPE: Attribute = attribute(
    Key::OfType,
    "TYPE",
    words(&["ALL", "QLOCAL", "QALIAS", "QREMOTE", "QMODEL"]),
    "ALL",
    "Which queues to show.",
);
static WHERE: Attribute = attribute(
    Key::Where,
    "WHERE",
    Kind::Filter,
    "",
    "Show only what fits: WHERE(attribute operator value). Operators: LT GT EQ NE LE GE; LK and NL, like and not like \
     a value that ends in *; CT and EX, a list contains or excludes the value.",
);
static ALL: Attribute = attribute(Key::All, "ALL", Kind::Switch(&["ALL"]), "", "Show every attribute.");

/// What DISPLAY DEVSTATUS and TASKSTATUS show to programs that ask for everything, and to no other.
pub(super) const FOR_PROGRAMS: [Key; 5] =
    [Key::WaitingSeen, Key::ExecutionTimes, Key::Latencies, Key::LongestRequests, Key::BusyAdapters];

/// `QMNAME` heads what DISPLAY QMGR shows, as a queue's name heads its own.
pub static NAME_OF_MANAGER: &Attribute = &QMNAME;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_command_stands_twice() {
        let mut seen = HashSet::new();
        for command in commands() {
            assert!(seen.insert((command.verb, command.noun)), "{command}");
            assert!(VERBS.iter().any(|(verb, _)| *verb == command.verb));
            assert!(ROLES.iter().any(|(verb, _)| *verb == command.verb), "{command} asks for no role");
            assert!(command.noun.is_empty() || nouns().any(|(noun, _)| noun == command.noun));
        }
    }

    #[test]
    fn no_word_means_two_things_in_one_command() {
        for command in commands() {
            let mut seen = HashSet::new();
            for attribute in command.options.iter().chain(command.attributes) {
                let own: HashSet<_> = attribute.words().collect(); // a switch may be named like one of its states
                for word in own {
                    assert!(seen.insert(word), "{command} knows {word} twice");
                }
            }
        }
        for table in [VERBS.to_vec(), nouns().collect()] {
            let mut seen = HashSet::new();
            for word in table.iter().flat_map(|(long, short)| std::iter::once(long).chain(*short)) {
                assert!(seen.insert(word), "{word}");
            }
        }
    }

    #[test]
    fn every_entry_explains_itself() {
        for command in commands() {
            assert!(command.summary.ends_with('.') && !command.examples.is_empty(), "{command}");
            for attribute in command.options.iter().chain(command.attributes) {
                assert!(attribute.doc.ends_with('.'), "{}", attribute.keyword);
            }
        }
    }
}
