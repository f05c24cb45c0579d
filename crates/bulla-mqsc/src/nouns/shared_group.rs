//! QSGROUP: a group of shared queues that this queue manager is a member of.

use super::noun::{Running, commands, verb};
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::attributes::{blank, clamped, unless_blank};
use crate::parse::{Setting, Statement};
use crate::reply::{Cell, Failure, FailureKind, Outcome, Row};
use crate::rows::{Candidate, rows, wanted};
use crate::run::{AdminError, Administered, failure, invalid, unknown};
use crate::table::{
    Act, Attribute, Command, DESCR, DISPLAY_OPTIONS, Doing, Key, Kind, NameUse, attribute, shown, words,
};
use bulla_catalog::objects::{
    Redirect, SHARED_GROUP_NAME_CHARS_MAX, SHARED_GROUPS_MAX, SharedGroup, is_shared_group_name,
};
use bulla_catalog::status::{GroupState, GroupStatus, listed_rings};
use bulla_catalog::{Definitions, LocalQueue, Sort, calendar, cipher_spec};
use std::path::{Path, PathBuf};

const WORD: &str = "QSGROUP";
const OBJECT: &str = "shared group";
/// Longest list of addresses, and longest path, in characters.
const TEXT_CHARS_MAX: usize = 1024;
/// Least MAXBYTES: with less there is little room beside the reserve.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// Greatest MAXBYTES: 16 tebibytes.
const LOG_BYTES_MAX: u64 = 16 << 40;
/// Most copies of a log that the engine keeps.
const COPIES_MAX: u64 = 5;
/// Key rings that RINGSWHY has.
const RINGS_LISTED_MAX: usize = 8;

pub(super) static SHARED_GROUP: ObjectNoun<SharedGroup> = ObjectNoun {
    word: WORD,
    short: &["QSG"],
    many: "shared groups",
    // Before queues, which name it.
    place: 1,
    fields: &[FIELDS],
    commands: &COMMANDS,
};

static FIELDS: &[Field<SharedGroup>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "SERVERS",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "",
        "The servers of the engine that keeps the group's log, comma separated, each as HOST:PORT. Needed. They are \
         tried in turn.",
        |of| Cell::Text(of.servers.join(",")),
        |of, value| of.servers = addresses(&value.text()),
    ),
    Field::new(
        "MONITORS",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "' '",
        "Where these servers tell how they run, comma separated, each as HOST:PORT: there alone it can be seen whether \
         they sync each write. Asked over HTTP.",
        |of| Cell::Text(of.monitors.join(",")),
        |of, value| of.monitors = addresses(&value.text()),
    ),
    Field::new(
        "CREDS",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "' '",
        "A file with the credentials of a user of the engine that may use this group's log and no other one, by its \
         absolute path; blank for none.",
        |of| path(of.credentials.as_deref()),
        |of, value| of.credentials = unless_blank(&value.text()).map(PathBuf::from),
    ),
    Field::new(
        "CAFILE",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "' '",
        "The certificates (PEM) of the authorities of which one must have issued the servers' certificates, by the \
         file's absolute path; blank for connections in clear, which are for servers on this machine.",
        |of| path(of.authorities.as_deref()),
        |of, value| of.authorities = unless_blank(&value.text()).map(PathBuf::from),
    ),
    Field::new(
        "CERTFILE",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "' '",
        "This queue manager's certificate (PEM) for the servers, by the file's absolute path. Needed with CAFILE.",
        |of| path(of.certificate.as_deref()),
        |of, value| of.certificate = unless_blank(&value.text()).map(PathBuf::from),
    ),
    Field::new(
        "KEYFILE",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "' '",
        "Its private key (PEM), by the absolute path of a file that only its owner can read. Needed with CAFILE.",
        |of| path(of.key.as_deref()),
        |of, value| of.key = unless_blank(&value.text()).map(PathBuf::from),
    ),
    Field::new(
        "REPLICAS",
        Kind::Number { min: 1, max: COPIES_MAX },
        "3",
        "How many servers keep a copy of the log. It is made so by the first member that starts; a log with fewer \
         copies is refused.",
        |of| Cell::Number(of.copies.into()),
        |of, value| of.copies = clamped(value.number()),
    ),
    Field::new(
        "MAXBYTES",
        Kind::Number { min: LOG_BYTES_MIN, max: LOG_BYTES_MAX },
        "8589934592",
        "Bytes of the log, when it is made by the first member that starts. A reserve is kept for gets.",
        |of| Cell::Number(of.log_bytes),
        |of, value| of.log_bytes = value.number(),
    ),
    Field::new(
        "DURABLE",
        words(&["REQUIRED", "ASFOUND"]),
        "REQUIRED",
        "REQUIRED: the group is not used unless MONITORS show that every server syncs each write. ASFOUND: it is used, \
         and DISPLAY QSGSTATUS says what a confirmation survives.",
        |of| Cell::word(if of.durable_required { "REQUIRED" } else { "ASFOUND" }),
        |of, value| of.durable_required = value.word() == "REQUIRED",
    ),
    Field::new(
        "CONNAME",
        Kind::Text { chars_max: TEXT_CHARS_MAX },
        "' '",
        "Where clients of the group's queues, and the other members, reach this queue manager, as HOST:PORT. While it \
         is the owner, other members forward links there, or send clients there. Blank: they don't.",
        |of| blank(of.address.as_deref()),
        |of, value| of.address = unless_blank(&value.text()),
    ),
    Field::new(
        "REDIRECT",
        words(&["FORWARD", "LINK", "CONNECTION", "NO"]),
        "FORWARD",
        "What becomes of a client here that opens a queue of the group while another member owns it, and has a right \
         on it. FORWARD: its link goes on to the owner by way of this member, and the client need not know. LINK: its \
         link is redirected to that member (amqp:link:redirect). CONNECTION: its connection is \
         (amqp:connection:redirect), which Qpid JMS follows by itself, and connections with links to the group's \
         queues end when the group leaves. NO: the link is refused with 2345.",
        |of| {
            Cell::word(match of.redirect {
                Redirect::Forward => "FORWARD",
                Redirect::Link => "LINK",
                Redirect::Connection => "CONNECTION",
                Redirect::No => "NO",
            })
        },
        |of, value| {
            of.redirect = match value.word() {
                "LINK" => Redirect::Link,
                "CONNECTION" => Redirect::Connection,
                "NO" => Redirect::No,
                _ => Redirect::Forward,
            }
        },
    ),
    Field::new(
        "SSLCIPH",
        Kind::Name { optional: true },
        "' '",
        "The CipherSpec of the connection to the owner that links are forwarded on; its certificate is checked as that \
         of a channel's partner. Blank: in clear, which is for members on one machine.",
        |of| blank(of.cipher_spec.as_deref()),
        |of, value| of.cipher_spec = unless_blank(&value.text()),
    ),
    Field::new(
        "AUTOSTART",
        words(&["YES", "NO"]),
        "YES",
        "Whether the queue manager takes part in the group from its own start on.",
        |of| Cell::word(if of.autostart { "YES" } else { "NO" }),
        |of, value| of.autostart = value.word() == "YES",
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 8] = {
    let [define, alter, delete, display] = commands(
        Sort::SharedGroup,
        OBJECT,
        WORD,
        ATTRIBUTES,
        ATTRIBUTES,
        [
            Said {
                summary: "Make this queue manager a member of a group of shared queues. It takes part once it is \
                 started, or from the next start of the queue manager on.",
                examples: &[
                    "DEFINE QSGROUP(PAYMENTS) SERVERS('n1.example:4222,n2.example:4222,n3.example:4222') \
                     MONITORS('n1.example:8222,n2.example:8222,n3.example:8222') CAFILE('/etc/bulla/engine-ca.pem') \
                     CERTFILE('/etc/bulla/engine.pem') KEYFILE('/etc/bulla/engine.key') CONNAME('qm1.example:5672')",
                    "DEF QSG(TRY) SERVERS('127.0.0.1:4222') REPLICAS(1) DURABLE(ASFOUND)",
                ],
            },
            Said {
                summary: "Change attributes of a shared group here; the others stay. They hold from its next START on.",
                examples: &["ALTER QSGROUP(PAYMENTS) CONNAME('qm1.example:5672')"],
            },
            Said {
                summary: "Leave a shared group that is stopped here. Its queues and their messages stay in its log.",
                examples: &["DELETE QSGROUP(PAYMENTS)"],
            },
            Said {
                summary: "Show shared groups as they are defined here. A generic name shows names only, unless \
                 attributes or ALL are asked for.",
                examples: &["DISPLAY QSGROUP(*)", "DIS QSG(PAYMENTS) SERVERS"],
            },
        ],
    );
    [define, alter, delete, display, START, STOP, RESET, DISPLAY_STATUS]
};

const START: Command = verb(
    ("START", WORD, OBJECT),
    Act::Does(Doing::StartGroup),
    NameUse::One,
    &[],
    &[],
    Said {
        summary: "Take part in a shared group: own it where no other member does, and stand by where one does.",
        examples: &["START QSGROUP(PAYMENTS)"],
    },
);
const STOP: Command = verb(
    ("STOP", WORD, OBJECT),
    Act::Does(Doing::StopGroup),
    NameUse::One,
    &[],
    &[],
    Said {
        summary: "Take no part in a shared group. Where this queue manager owns it, links to its queues end with \
         2009, and another member takes it over at once. It stays stopped until it is started, or until the next \
         start of the queue manager with AUTOSTART(YES).",
        examples: &["STOP QSGROUP(PAYMENTS)"],
    },
);

static TAKEOVER: Attribute = attribute(
    Key::Own("TAKEOVER"),
    "TAKEOVER",
    Kind::Switch(&["NOTAKEOVER", "TAKEOVER"]),
    "NOTAKEOVER",
    "The group is taken over though its owner answers. That one's links to its queues end with 2009. Needed.",
);

const RESET_OPTIONS: &[&Attribute] = &[&TAKEOVER];
const RESET: Command = verb(
    ("RESET", WORD, OBJECT),
    Act::Does(Doing::TakeGroup),
    NameUse::One,
    RESET_OPTIONS,
    &[],
    Said {
        summary: "Own a shared group that another member owns: the operator's word where that one answers and does \
         not work. Nothing that was confirmed is lost.",
        examples: &["RESET QSGROUP(PAYMENTS) TAKEOVER"],
    },
);

const DISPLAY_STATUS: Command = verb(
    ("DISPLAY", "QSGSTATUS", OBJECT),
    Act::Does(Doing::DisplayGroupStatus),
    NameUse::Generic,
    DISPLAY_OPTIONS,
    STATUS,
    Said {
        summary: "Show what goes on in shared groups, as this member sees it: who owns each, how far its log was read \
         or written here, and what a confirmation survives.",
        examples: &["DISPLAY QSGSTATUS(*)", "DIS QSGS(*) WHERE(STATE NE OWNER)"],
    },
);

static STATE: Attribute = shown(
    Key::Own("STATE"),
    "STATE",
    "OWNER: its queues are open here. CLAIMING: they are about to be. STANDBY: another member owns it, and this one \
     reads what that one writes. CONNECTING: its log is looked for, and WHY says what failed last. STOPPED: by \
     command, or AUTOSTART(NO).",
);
static SINCE: Attribute = shown(Key::Own("SINCE"), "SINCE", "Since when it is in that state, UTC.");
static OWNER: Attribute =
    shown(Key::Own("OWNER"), "OWNER", "The queue manager that claimed the group last; blank while it is not known.");
static ADDRESS: Attribute = shown(
    Key::Own("ADDRESS"),
    "ADDRESS",
    "Where the owner's clients reach it, by its CONNAME; blank while it is not known, or where it has none.",
);
static EPOCH: Attribute = shown(Key::Own("EPOCH"), "EPOCH", "How often the group was claimed.");
static POSITION: Attribute = shown(
    Key::Own("POSITION"),
    "POSITION",
    "Bytes of the log since it began, as far as they were read here, or written.",
);
static WAITING_BYTES: Attribute = shown(
    Key::Own("WAITBYTES"),
    "WAITBYTES",
    "At the owner, bytes that were given to the log and are not confirmed yet.",
);
static MESSAGES: Attribute =
    shown(Key::Own("MSGS"), "MSGS", "Messages on the group's queues, as far as the log was read here.");
static CROSSING: Attribute = shown(
    Key::Own("CROSSING"),
    "CROSSING",
    "At the owner, messages of the group that wait for queues of a queue manager's own. What waits for another \
     member's is there when that one owns the group again.",
);
static LOG_BYTES: Attribute =
    shown(Key::Own("LOGBYTES"), "LOGBYTES", "At the owner, bytes of the log that are not let go yet.");
static SURVIVES: Attribute = shown(
    Key::Own("SURVIVES"),
    "SURVIVES",
    "What a confirmed message survives. MINORITYPOWER: the power cut of any minority of the servers. POWER: of the \
     only one. PROCESS: a crash of programs, and no power cut. UNKNOWN: MONITORS did not say.",
);
static RINGS_MISSING: Attribute = shown(
    Key::Own("RINGSMISSING"),
    "RINGSMISSING",
    "How many users' key rings this member lacks, or can't use, of those that the owner uses for the group's queues, \
     or the owner before used. While this member is the owner, what needs them is refused with 2063. \
     GROUP.RINGS.MISSING is the event.",
);
static RINGS_WHY: Attribute = shown(
    Key::Own("RINGSWHY"),
    "RINGSWHY",
    "Whose key rings these are, and why they can't be used; the first eight of them.",
);
static WHY: Attribute =
    shown(Key::Own("WHY"), "WHY", "What failed last and keeps it from going on; blank when nothing does.");

static STATUS: &[&Attribute] = &[
    &STATE,
    &OWNER,
    &ADDRESS,
    &EPOCH,
    &POSITION,
    &WAITING_BYTES,
    &MESSAGES,
    &CROSSING,
    &LOG_BYTES,
    &SURVIVES,
    &RINGS_MISSING,
    &RINGS_WHY,
    &SINCE,
    &WHY,
];

impl Rules for SharedGroup {
    const MAX: usize = SHARED_GROUPS_MAX;

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn check_setting(&self, setting: &Setting) -> Result<(), Failure> {
        let keyword = setting.attribute.keyword;
        let text = setting.value.text();
        match keyword {
            "SERVERS" if addresses(&text).is_empty() => Err(invalid("SERVERS needs an address", Some(SERVERS_HINT))),
            "SERVERS" | "MONITORS" => match addresses(&text).into_iter().find(|address| !is_address(address)) {
                Some(wrong) => Err(invalid(format!("{keyword}: '{wrong}' is not HOST:PORT"), Some(SERVERS_HINT))),
                None => Ok(()),
            },
            "CONNAME" if !text.is_empty() && !is_address(&text) => {
                Err(invalid(format!("CONNAME: '{text}' is not HOST:PORT"), Some("write CONNAME('qm1.example:5672')")))
            }
            "SSLCIPH" if !text.is_empty() && cipher_spec::find(&text).is_none() => {
                Err(invalid(format!("SSLCIPH: '{text}' is no CipherSpec that is known"), None))
            }
            "CREDS" | "CAFILE" | "CERTFILE" | "KEYFILE" if !text.is_empty() && !Path::new(&text).is_absolute() => {
                Err(invalid(format!("{keyword} takes an absolute path"), None))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, name: &str, definitions: &Definitions) -> Result<(), Failure> {
        if !is_shared_group_name(name) {
            let message = format!("'{name}' can't be the name of a shared group");
            let hint = format!("it has 1 to {SHARED_GROUP_NAME_CHARS_MAX} letters, digits, - and _");
            return Err(invalid(message, Some(&hint)));
        }
        // Seals are bound to QUEUE@GROUP as others are to QUEUE@QMGR.
        if name == definitions.queue_manager.name {
            return Err(invalid(format!("{name} is the queue manager's own name"), None));
        }
        if self.servers.is_empty() {
            return Err(invalid("a shared group needs SERVERS", Some(SERVERS_HINT)));
        }
        let tls = [&self.authorities, &self.certificate, &self.key];
        match tls.iter().filter(|file| file.is_some()).count() {
            0 | 3 => Ok(()),
            _ => Err(invalid("CAFILE, CERTFILE and KEYFILE are given together, or none of them", None)),
        }
    }

    fn check_delete(name: &str, definitions: &Definitions) -> Result<(), Failure> {
        let of_it = |queue: &&LocalQueue| queue.group.as_deref() == Some(name);
        let mut channels = definitions.channels.iter();
        if let Some((channel, _)) = channels.find(|(_, channel)| channel.group.as_deref() == Some(name)) {
            let message = format!("channel {channel} belongs to shared group {name}");
            let hint = Some(format!("DELETE CHANNEL({channel}) first"));
            return Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint });
        }
        match definitions.queues.values().filter(of_it).count() {
            0 => Ok(()),
            count => {
                let queues = if count == 1 { "a queue".to_owned() } else { format!("{count} queues") };
                let message = format!("shared group {name} has {queues} open here");
                let hint = Some(format!("STOP QSGROUP({name}) first"));
                Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint })
            }
        }
    }

    fn running(name: &str, change: Running<'_, Self>, target: &dyn Administered) -> Result<Option<String>, Failure> {
        if !target.definitions().shared_groups.contains_key(name) {
            return Ok(None);
        }
        let state = target.group_status(name).map_or(GroupState::Stopped, |status| status.state);
        match change {
            _ if state == GroupState::Stopped => Ok(None),
            Running::Altered(_) => Ok(Some(format!("STOP QSGROUP({name}) and START it for the change to take effect"))),
            Running::Defined(_) | Running::Deleted => {
                let message = format!("shared group {name} is {}", state.word());
                let hint = Some(format!("STOP QSGROUP({name}) first"));
                Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint })
            }
        }
    }
}

const SERVERS_HINT: &str = "write SERVERS('n1.example:4222,n2.example:4222')";

/// The addresses of a list, in their order.
fn addresses(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|address| !address.is_empty()).map(str::to_owned).collect()
}

/// HOST:PORT, where HOST is a name, an address, or one of version 6 in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match in_brackets {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
            !host.is_empty() && host.chars().all(is_letter)
        }
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn path(path: Option<&Path>) -> Cell {
    Cell::Text(path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default())
}

/// START and STOP, and RESET.
///
/// # Errors
/// There is no such group, or the target refuses.
pub(crate) fn carry_out(
    statement: &Statement,
    doing: Doing,
    target: &mut dyn Administered,
) -> Result<Outcome, Failure> {
    let name = &statement.name.stem;
    if !target.definitions().shared_groups.contains_key(name) {
        return Err(unknown(OBJECT, name));
    }
    let is_stopped = target.group_status(name).is_none_or(|status| status.state == GroupState::Stopped);
    let refused = |error: AdminError| failure(&error);
    let message = match doing {
        Doing::StartGroup if !is_stopped => format!("shared group {name} is started already"),
        Doing::StartGroup => {
            target.start_group(name).map_err(refused)?;
            format!("shared group {name} started")
        }
        Doing::StopGroup if is_stopped => format!("shared group {name} is stopped already"),
        Doing::StopGroup => {
            target.stop_group(name).map_err(refused)?;
            format!("shared group {name} stopped")
        }
        _ if !statement.says(Key::Own("TAKEOVER"), "TAKEOVER") => {
            return Err(invalid("RESET QSGROUP needs TAKEOVER", None));
        }
        _ => {
            target.take_group_over(name).map_err(refused)?;
            format!("shared group {name} is taken over")
        }
    };
    Ok(Outcome::Done { message, warnings: Vec::new() })
}

/// DISPLAY QSGSTATUS.
///
/// # Errors
/// There is no such group; WHERE compares what can't be compared.
pub(crate) fn display_status(statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
    let names: Vec<&String> =
        target.definitions().shared_groups.keys().filter(|name| statement.name.fits(name)).collect();
    let all: Vec<(&String, GroupStatus)> =
        names.into_iter().map(|name| (name, target.group_status(name).unwrap_or_default())).collect();
    let candidates =
        all.iter().map(|(name, status)| -> Candidate<'_> { (name.as_str(), None, Box::new(|key| cell(status, key))) });
    rows(statement, WORD, candidates.collect(), &wanted(statement, false))
}

fn cell(status: &GroupStatus, key: Key) -> Option<Cell> {
    Some(match key {
        Key::Own("STATE") => Cell::word(status.state.word()),
        Key::Own("SINCE") => Cell::Text(match status.since_ms {
            0 => String::new(),
            since => calendar::moment(since),
        }),
        Key::Own("OWNER") => Cell::Text(status.owner.clone()),
        Key::Own("ADDRESS") => Cell::Text(status.owner_address.clone()),
        Key::Own("EPOCH") => Cell::Number(status.epoch),
        Key::Own("POSITION") => Cell::Number(status.position),
        Key::Own("WAITBYTES") => Cell::Number(status.waiting_bytes),
        Key::Own("MSGS") => Cell::Number(status.messages),
        Key::Own("CROSSING") => Cell::Number(status.crossing),
        Key::Own("LOGBYTES") => Cell::Number(status.log_bytes),
        Key::Own("SURVIVES") => Cell::word(status.survives),
        Key::Own("RINGSMISSING") => Cell::Number(status.rings_missing.len() as u64),
        Key::Own("RINGSWHY") => {
            Cell::Text(listed_rings(&status.rings_missing, RINGS_LISTED_MAX, status.rings_missing.len()))
        }
        Key::Own("WHY") => Cell::Text(status.why.clone()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for right in ["n1:4222", "127.0.0.1:4222", "[::1]:4222", "a-b.example:1"] {
            assert!(is_address(right), "{right}");
        }
        for wrong in ["", "n1", "n1:", ":4222", "n1:0", "n1:70000", "n 1:4222", "tls://n1:4222", "u:p@n1:4222", "::1:1"]
        {
            assert!(!is_address(wrong), "{wrong}");
        }
        assert_eq!(addresses(" a:1, b:2,"), ["a:1", "b:2"]);
    }
}
