//! QMODEL: what the queues are like that applications ask for.

use super::local::{LOCAL, OF_DEPTHS_AND_LIMITS, OF_MESSAGES};
use super::noun::{Family, commands};
use super::queues::{MANY, QUEUES, makes_sense, used_by_the_manager};
use super::{Field, ObjectNoun, Rules, Said, joined};
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure};
use crate::table::{Attribute, Command, Key, TYPE, attribute, words};
use bulla_catalog::system_queues::DEFAULT_MODEL;
use bulla_catalog::{Definitions, ModelQueue, Sort};

const WORD: &str = "QMODEL";

pub(super) static MODEL: ObjectNoun<ModelQueue> =
    ObjectNoun { word: WORD, short: &["QM"], many: MANY, place: 5, fields: &[FIELDS], commands: &COMMANDS };

static DEFTYPE: Attribute = attribute(
    Key::DefinitionType,
    "DEFTYPE",
    words(&["TEMPDYN", "PERMDYN"]),
    "TEMPDYN",
    "What is made of the model. TEMPDYN: a queue that goes with the link that it was made for. PERMDYN: one that \
     stays, over restarts too, until it is deleted.",
);

/// The one of its own; the others are the queue's.
static FIELDS: &[Field<ModelQueue>] = &[Field::shared(
    &DEFTYPE,
    |of| Cell::word(if of.permanent { "PERMDYN" } else { "TEMPDYN" }),
    |of, value| of.permanent = value.word() == "PERMDYN",
)];

static DEFINED: &[&Attribute] = joined![&[&DEFTYPE], OF_MESSAGES, OF_DEPTHS_AND_LIMITS];
static DISPLAYED: &[&Attribute] = joined![&[&TYPE], DEFINED];

static COMMANDS: [Command; 4] = commands(
    Sort::Model,
    "queue",
    WORD,
    DEFINED,
    DISPLAYED,
    [
        Said {
            summary: "Create a model: what the queues are like that are made for links which ask for a queue of their \
             own.",
            examples: &["DEFINE QMODEL(REPLIES) MAXDEPTH(100)", "DEF QM(INBOX) DEFTYPE(PERMDYN) DEFPSIST(YES) NOSHARE"],
        },
        Said {
            summary: "Change attributes of a model; the others stay, and so do the queues that were made of it.",
            examples: &["ALTER QMODEL(SYSTEM.DEFAULT.MODEL.QUEUE) MAXDEPTH(50)"],
        },
        Said {
            summary: "Delete a model. The queues that were made of it stay.",
            examples: &["DELETE QMODEL(REPLIES)"],
        },
        Said {
            summary: "Show models. A generic name shows names only, unless attributes or ALL are asked for.",
            examples: &["DISPLAY QMODEL(*) DEFTYPE", "DIS QM(SYSTEM.DEFAULT.MODEL.QUEUE)"],
        },
    ],
);

impl Rules for ModelQueue {
    const FAMILY: Option<&Family> = Some(&QUEUES);
    /// Dynamic queues need one, so it is there before the file is read.
    const ALWAYS_THERE: Option<&str> = Some(DEFAULT_MODEL);

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn cell(&self, key: Key) -> Option<Cell> {
        LOCAL.field(key).map(|field| (field.get)(&self.queue))
    }

    fn set(&mut self, key: Key, value: &Value) {
        if let Some(field) = LOCAL.field(key) {
            (field.set)(&mut self.queue, value);
        }
    }

    fn check(&self, name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        makes_sense(name, &self.queue)
    }

    fn check_delete(name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        if name == DEFAULT_MODEL { Err(used_by_the_manager(name)) } else { Ok(()) }
    }
}
