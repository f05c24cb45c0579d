//! PROCESS: what a queue with TRIGGER starts.

use super::noun::commands;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::parse::Statement;
use crate::reply::{Cell, Failure};
use crate::table::{Attribute, Command, DESCR, Kind};
use bulla_catalog::Sort;
use bulla_catalog::objects::Process;

/// Longest APPLICID in characters, as MQ has it.
const APPLICID_CHARS_MAX: usize = 256;
/// Longest USERDATA and ENVRDATA in characters, as MQ has it.
const DATA_CHARS_MAX: usize = 128;

const WORD: &str = "PROCESS";

pub(super) static PROCESS: ObjectNoun<Process> = ObjectNoun {
    word: WORD,
    short: &["PRO"],
    many: "process definitions",
    place: 6,
    fields: &[FIELDS],
    commands: &COMMANDS,
};

impl Rules for Process {
    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }
}

static FIELDS: &[Field<Process>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "APPLICID",
        Kind::Text { chars_max: APPLICID_CHARS_MAX },
        "' '",
        "What is started: for bulla trigger the absolute path of a program, and nothing else.",
        |of| Cell::word(&of.application),
        |of, value| of.application = value.text(),
    ),
    Field::new(
        "USERDATA",
        Kind::Text { chars_max: DATA_CHARS_MAX },
        "' '",
        "Passed to the program, as one argument.",
        |of| Cell::word(&of.user_data),
        |of, value| of.user_data = value.text(),
    ),
    Field::new(
        "ENVRDATA",
        Kind::Text { chars_max: DATA_CHARS_MAX },
        "' '",
        "Passed to the program, as one argument.",
        |of| Cell::word(&of.environment_data),
        |of, value| of.environment_data = value.text(),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 4] = commands(
    Sort::Process,
    "process",
    WORD,
    ATTRIBUTES,
    ATTRIBUTES,
    [
        Said {
            summary: "Create a process definition: what a queue with TRIGGER starts.",
            examples: &["DEFINE PROCESS(BILLING) APPLICID('/usr/local/bin/billing') USERDATA('--once')"],
        },
        Said {
            summary: "Change attributes of a process definition; the others stay.",
            examples: &["ALTER PROCESS(BILLING) USERDATA(' ')"],
        },
        Said {
            summary: "Delete a process definition. Queues that name it trigger nothing any more.",
            examples: &["DELETE PROCESS(BILLING)"],
        },
        Said {
            summary: "Show process definitions. A generic name shows names only, unless attributes or ALL are asked \
             for.",
            examples: &["DISPLAY PROCESS(*) APPLICID", "DIS PRO(BILLING)"],
        },
    ],
);
