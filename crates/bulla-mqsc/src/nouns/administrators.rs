//! ADMIN: users and groups who may administer.

use super::noun::commands;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::parse::{Setting, Statement};
use crate::reply::{Cell, Failure};
use crate::rows::wanted;
use crate::run::invalid;
use crate::table::{Attribute, Command, DESCR, Kind, words};
use bulla_catalog::Sort;
use bulla_catalog::authority::{ADMINISTRATOR_NAMES_MAX, ADMINISTRATORS_MAX, Administrators, Role};

const WORD: &str = "ADMIN";

pub(super) static ADMINISTRATORS: ObjectNoun<Administrators> =
    ObjectNoun { word: WORD, short: &[], many: "ADMIN objects", place: 13, fields: &[FIELDS], commands: &COMMANDS };

static FIELDS: &[Field<Administrators>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "OSUSER",
        Kind::Users { special: false, blank: true },
        "' '",
        "Users of the operating system, by name or by number; blank for none. Names are those of /etc/passwd.",
        |of| Cell::List(of.users.iter().cloned().collect()),
        |of, value| of.users = value.list().iter().cloned().collect(),
    ),
    Field::new(
        "OSGROUP",
        Kind::Users { special: false, blank: true },
        "' '",
        "Groups of the operating system, by name or by number: users whose process has the group, and its members by \
         /etc/group; blank for none.",
        |of| Cell::List(of.groups.iter().cloned().collect()),
        |of, value| of.groups = value.list().iter().cloned().collect(),
    ),
    Field::new(
        "PRINCIPAL",
        Kind::Users { special: false, blank: true },
        "' '",
        "Users who sign in over HTTPS, by the names that they act under there; blank for none.",
        |of| Cell::List(of.principals.iter().cloned().collect()),
        |of, value| of.principals = value.list().iter().cloned().collect(),
    ),
    Field::new(
        "ROLE",
        words(&["LOOK", "OPERATE", "ALL"]),
        "LOOK",
        "What they may do. LOOK: DISPLAY and reports. OPERATE: START, STOP, PING, RESET, RESOLVE, CLEAR, REPLAY and \
         CHECK, too. ALL: everything, these roles included. Of several the greatest counts; what goes beyond it is \
         refused with 2035.",
        |of| Cell::word(of.role.word()),
        |of, value| of.role = Role::EVERY.into_iter().find(|role| role.word() == value.word()).unwrap_or_default(),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 4] = commands(
    Sort::Administrators,
    "administrators",
    WORD,
    ATTRIBUTES,
    ATTRIBUTES,
    [
        Said {
            summary: "Let users and groups of the operating system administer over the second admin socket (bulla \
             start --admin-directory), and users who sign in over HTTPS. The owner of the queue manager's process may \
             do everything, always.",
            examples: &[
                "DEFINE ADMIN(PLATFORM) PRINCIPAL('carol') ROLE(ALL)",
                "DEFINE ADMIN(OPERATORS) OSGROUP('mqops') ROLE(OPERATE) DESCR('Night shift')",
                "DEFINE ADMIN(AUDITORS) OSUSER('carol', '1004') ROLE(LOOK)",
            ],
        },
        Said {
            summary: "Change administrators: OSUSER, OSGROUP and PRINCIPAL say anew who they are. It holds from the next \
             command on.",
            examples: &["ALTER ADMIN(OPERATORS) OSUSER('dave')"],
        },
        Said { summary: "Let these administer no longer.", examples: &["DELETE ADMIN(AUDITORS)"] },
        Said {
            summary: "Show who may administer, and how much.",
            examples: &["DISPLAY ADMIN(*)", "DIS ADMIN(*) WHERE(OSGROUP CT 'mqops')"],
        },
    ],
);

impl Rules for Administrators {
    const MAX: usize = ADMINISTRATORS_MAX;

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn check_setting(&self, setting: &Setting) -> Result<(), Failure> {
        match setting.value.list().len() {
            names if names > ADMINISTRATOR_NAMES_MAX => {
                Err(invalid(format_args!("{ADMINISTRATOR_NAMES_MAX} names at most, not {names}"), None))
            }
            _ => Ok(()),
        }
    }

    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        wanted(statement, false)
    }
}
