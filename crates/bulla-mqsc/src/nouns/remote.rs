//! QREMOTE: a local name for a queue of another queue manager, or an alias of a queue manager.

use super::noun::{Family, commands};
use super::queues::{MANY, QUEUES};
use super::{Field, ObjectNoun, Rules, Said, attributes, joined};
use crate::attributes::{blank, enabled, unless_blank};
use crate::parse::Statement;
use crate::reply::{Cell, Failure};
use crate::table::{Attribute, Command, DEFPRTY, DEFPSIST, DESCR, Kind, PUT, TYPE};
use bulla_catalog::{Definitions, RemoteQueue, Sort};

const WORD: &str = "QREMOTE";

pub(super) static REMOTE: ObjectNoun<RemoteQueue> =
    ObjectNoun { word: WORD, short: &["QR"], many: MANY, place: 4, fields: &[FIELDS], commands: &COMMANDS };

static FIELDS: &[Field<RemoteQueue>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "RNAME",
        Kind::Name { optional: true },
        "' '",
        "The queue's name at the other queue manager. Blank: this is an alias of a queue manager, for names written \
         QUEUE@QMGR.",
        |of| blank(of.remote_name.as_deref()),
        |of, value| of.remote_name = unless_blank(&value.text()),
    ),
    Field::new(
        "RQMNAME",
        Kind::Name { optional: true },
        "' '",
        "The queue manager that messages are for. Of an alias it may be this one.",
        |of| blank(of.remote_manager.as_deref()),
        |of, value| of.remote_manager = unless_blank(&value.text()),
    ),
    Field::new(
        "XMITQ",
        Kind::Name { optional: true },
        "' '",
        "The transmission queue that leads there; blank for the one named like RQMNAME, or else DEFXMITQ.",
        |of| blank(of.transmission_queue.as_deref()),
        |of, value| of.transmission_queue = unless_blank(&value.text()),
    ),
    Field::shared(&PUT, |of| enabled(of.put_enabled), |of, value| of.put_enabled = value.word() == "ENABLED"),
    Field::shared(
        &DEFPRTY,
        |of| Cell::Number(of.default_priority.into()),
        |of, value| of.default_priority = u8::try_from(value.number()).unwrap_or(u8::MAX),
    ),
    Field::shared(
        &DEFPSIST,
        |of| Cell::word(if of.default_persistent { "YES" } else { "NO" }),
        |of, value| of.default_persistent = value.word() == "YES",
    ),
];

pub(super) const DEFINED: &[&Attribute] = attributes!(FIELDS);
static ATTRIBUTES: &[&Attribute] = DEFINED;
static DISPLAYED: &[&Attribute] = joined![&[&TYPE], DEFINED];

static COMMANDS: [Command; 4] = commands(
    Sort::Remote,
    "queue",
    WORD,
    ATTRIBUTES,
    DISPLAYED,
    [
        Said {
            summary: "Create a local name for a queue of another queue manager, or, without RNAME, an alias of a queue \
             manager.",
            examples: &[
                "DEFINE QREMOTE(BILLING) RNAME(INVOICES) RQMNAME(QM2)",
                "DEF QR(BRANCHES) RQMNAME(QM3) XMITQ(QM2) DESCR('Messages for ANY@BRANCHES go to QM3 by way of QM2')",
            ],
        },
        Said {
            summary: "Change attributes of a remote queue or queue-manager alias; the others stay.",
            examples: &["ALTER QREMOTE(BILLING) XMITQ(QM2.FAST)"],
        },
        Said {
            summary: "Delete a remote queue or queue-manager alias. Messages that wait on a transmission queue still \
             go.",
            examples: &["DELETE QREMOTE(BILLING)"],
        },
        Said {
            summary: "Show remote queues and queue-manager aliases. A generic name shows names only, unless attributes \
             or ALL are asked for.",
            examples: &["DISPLAY QREMOTE(*) RNAME RQMNAME", "DIS QR(*) WHERE(RQMNAME EQ QM2)"],
        },
    ],
);

impl Rules for RemoteQueue {
    const FAMILY: Option<&Family> = Some(&QUEUES);

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn forewarnings(&self, name: &str, definitions: &Definitions) -> Vec<String> {
        let own = &definitions.queue_manager.name;
        let why = match &self.remote_manager {
            None => Some("RQMNAME is blank: opening fails with 2087".to_owned()),
            Some(manager) if manager == own && self.remote_name.is_none() => None,
            Some(manager) if manager == own => {
                Some("RQMNAME is this queue manager: opening fails with 2087".to_owned())
            }
            Some(manager) => {
                let way = definitions.transmission_queue(self, manager);
                way.err().map(|error| format!("opening fails with {}: {error}", error.reason()))
            }
        };
        why.map(|why| format!("{name}: {why}")).into_iter().collect()
    }
}
