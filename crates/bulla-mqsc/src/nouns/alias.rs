//! QALIAS: another name for a local or remote queue.

use super::noun::{Family, commands};
use super::queues::{MANY, QUEUES, type_of};
use super::{Field, ObjectNoun, Rules, Said, attributes, joined};
use crate::attributes::enabled;
use crate::parse::Statement;
use crate::reply::{Cell, Failure};
use crate::run::invalid;
use crate::table::{Attribute, Command, DESCR, GET, Key, Kind, PUT, TYPE, V1};
use bulla_catalog::{AliasQueue, Definitions, Sort};

const WORD: &str = "QALIAS";

pub(super) static ALIAS: ObjectNoun<AliasQueue> =
    ObjectNoun { word: WORD, short: &["QA"], many: MANY, place: 3, fields: &[FIELDS], commands: &COMMANDS };

static TARGET: Attribute = Attribute {
    key: Key::Own("TARGET"),
    keyword: "TARGET",
    synonyms: &["TARGQ"],
    kind: Kind::Name { optional: false },
    default: "",
    doc: "The local or remote queue that the alias stands for; needed unless LIKE gives one. It need not exist yet.",
    since: V1,
};

static FIELDS: &[Field<AliasQueue>] = &[
    Field::shared(&TARGET, |of| Cell::word(&of.target), |of, value| of.target = value.text()),
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::shared(&GET, |of| enabled(of.get_enabled), |of, value| of.get_enabled = value.word() == "ENABLED"),
    Field::shared(&PUT, |of| enabled(of.put_enabled), |of, value| of.put_enabled = value.word() == "ENABLED"),
];

pub(super) const DEFINED: &[&Attribute] = attributes!(FIELDS);
static ATTRIBUTES: &[&Attribute] = DEFINED;
static DISPLAYED: &[&Attribute] = joined![&[&TYPE], DEFINED];

static COMMANDS: [Command; 4] = commands(
    Sort::Alias,
    "queue",
    WORD,
    ATTRIBUTES,
    DISPLAYED,
    [
        Said {
            summary: "Create another name for a local or remote queue. A policy goes by the name that is opened: an \
             alias without one shows a protected queue's messages as they are stored, sealed.",
            examples: &["DEFINE QALIAS(ORDERS.RAW) TARGET(ORDERS) PUT(DISABLED)"],
        },
        Said {
            summary: "Change attributes of an alias; the others stay.",
            examples: &["ALTER QALIAS(ORDERS.RAW) GET(DISABLED)"],
        },
        Said {
            summary: "Delete an alias. The queue it stands for is not touched.",
            examples: &["DELETE QALIAS(ORDERS.RAW)"],
        },
        Said {
            summary: "Show aliases. A generic name shows names only, unless attributes or ALL are asked for.",
            examples: &["DISPLAY QALIAS(*) TARGET", "DIS QA(*) WHERE(TARGET LK ORD*)"],
        },
    ],
);

impl Rules for AliasQueue {
    const FAMILY: Option<&Family> = Some(&QUEUES);

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn check(&self, _name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        match self.target.is_empty() {
            true => Err(invalid("DEFINE QALIAS needs TARGET or LIKE", None)),
            false => Ok(()),
        }
    }

    fn forewarnings(&self, _name: &str, definitions: &Definitions) -> Vec<String> {
        let why = match type_of(&self.target, definitions) {
            None => "does not exist yet",
            Some((Sort::Alias, _)) => "is an alias itself: opening fails with 2001",
            Some(_) => return Vec::new(),
        };
        vec![format!("target {} {why}", self.target)]
    }
}
