//! GROUP: users who share the rights of authority records.

use super::noun::commands;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::parse::{COMMAND_BYTES_MAX, Setting, Statement};
use crate::reply::{Cell, Failure};
use crate::rows::wanted;
use crate::run::invalid;
use crate::table::{Attribute, Command, DESCR, Kind};
use bulla_catalog::authority::{Entity, GROUPS_MAX, Group, MEMBERS_MAX};
use bulla_catalog::names::USER_NAME_BYTES_MAX;
use bulla_catalog::{Definitions, Sort};

const _: () = assert!(MEMBERS_MAX * (USER_NAME_BYTES_MAX + 4) < COMMAND_BYTES_MAX, "a group fits in one command");

const WORD: &str = "GROUP";

pub(super) static GROUP: ObjectNoun<Group> =
    ObjectNoun { word: WORD, short: &[], many: "groups", place: 12, fields: &[FIELDS], commands: &COMMANDS };

static FIELDS: &[Field<Group>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "MEMBERS",
        Kind::Users { special: false, blank: true },
        "' '",
        "Users in the group, by the names they sign in with; blank for none.",
        |of| Cell::List(of.members.iter().cloned().collect()),
        |of, value| of.members = value.list().iter().cloned().collect(),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 4] = commands(
    Sort::Group,
    "group",
    WORD,
    ATTRIBUTES,
    ATTRIBUTES,
    [
        Said {
            summary: "Create a group of users, who share the rights of its authority records.",
            examples: &["DEFINE GROUP(CLERKS) MEMBERS('orders', 'billing') DESCR('Users who handle orders')"],
        },
        Said {
            summary: "Change a group: MEMBERS says anew who is in it.",
            examples: &["ALTER GROUP(CLERKS) MEMBERS('orders', 'billing', 'audit')"],
        },
        Said { summary: "Delete a group, and its authority records with it.", examples: &["DELETE GROUP(CLERKS)"] },
        Said {
            summary: "Show groups and who is in them.",
            examples: &["DISPLAY GROUP(*)", "DIS GROUP(*) WHERE(MEMBERS CT 'orders')"],
        },
    ],
);

impl Rules for Group {
    /// MQRC_UNKNOWN_ENTITY
    const UNKNOWN: u32 = 2292;
    const MAX: usize = GROUPS_MAX;

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn check_setting(&self, setting: &Setting) -> Result<(), Failure> {
        match setting.value.list().len() {
            members if members > MEMBERS_MAX => {
                Err(invalid(format_args!("a group has {MEMBERS_MAX} members at most, not {members}"), None))
            }
            _ => Ok(()),
        }
    }

    fn forewarnings_of_delete(name: &str, definitions: &Definitions) -> Vec<String> {
        match definitions.authorities.records.count_of(&Entity::Group(name.to_owned())) {
            0 => Vec::new(),
            1 => vec!["its authority record is deleted with it".to_owned()],
            count => vec![format!("its {count} authority records are deleted with it")],
        }
    }

    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        wanted(statement, false)
    }
}
