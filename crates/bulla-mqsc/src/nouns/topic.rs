//! TOPIC: what holds for a topic and those below it.

use super::noun::commands;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::attributes::{blank, number_of, number_or, unless_blank};
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure, FailureKind};
use crate::run::invalid;
use crate::table::{Attribute, Command, DESCR, Kind, PRIORITY_MAX, words};
use bulla_catalog::topic_names::{self, TOPIC_BYTES_MAX};
use bulla_catalog::{BASE_TOPIC, Definitions, Needed, Sort, Subscription, Topic};

const WORD: &str = "TOPIC";
/// Of an attribute that a topic takes from the one above it.
const AS_PARENT: &str = "ASPARENT";

const SWITCHED: Kind = words(&[AS_PARENT, "ENABLED", "DISABLED"]);
const DELIVERY: Kind = words(&[AS_PARENT, "ALL", "ALLDUR", "ALLAVAIL"]);

pub(super) static TOPIC: ObjectNoun<Topic> =
    ObjectNoun { word: WORD, short: &[], many: "topic objects", place: 7, fields: &[FIELDS], commands: &COMMANDS };

static FIELDS: &[Field<Topic>] = &[
    Field::new(
        "TOPICSTR",
        Kind::Text { chars_max: TOPIC_BYTES_MAX },
        "' '",
        "The topic: levels with / between them, without wildcards. The attributes hold for it and for the topics \
         below, until another topic object says otherwise. Needed; no two topic objects have the same one.",
        |of| Cell::word(&of.string),
        |of, value| of.string = value.text(),
    ),
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "PUB",
        SWITCHED,
        "ASPARENT",
        "Whether applications may publish. DISABLED answers 2051. At the root ASPARENT is ENABLED.",
        |of| switched(of.publish, ["ENABLED", "DISABLED"]),
        |of, value| of.publish = state(value, "ENABLED"),
    ),
    Field::new(
        "SUB",
        SWITCHED,
        "ASPARENT",
        "Whether applications may subscribe. DISABLED answers 2503; subscriptions that there are go on. At the root \
         ASPARENT is ENABLED.",
        |of| switched(of.subscribe, ["ENABLED", "DISABLED"]),
        |of, value| of.subscribe = state(value, "ENABLED"),
    ),
    Field::new(
        "DURSUB",
        words(&["ASPARENT", "YES", "NO"]),
        "ASPARENT",
        "Whether durable subscriptions may be made. NO answers 2436. At the root ASPARENT is YES.",
        |of| switched(of.durable, ["YES", "NO"]),
        |of, value| of.durable = state(value, "YES"),
    ),
    Field::new(
        "DEFPRTY",
        Kind::NumberOr { min: 0, max: PRIORITY_MAX, word: "ASPARENT" },
        "ASPARENT",
        "Priority of a publication that comes without an AMQP header. At the root ASPARENT is 4.",
        |of| number_or(of.default_priority.map(u32::from), AS_PARENT),
        |of, value| of.default_priority = number_of(value).and_then(|number| u8::try_from(number).ok()),
    ),
    Field::new(
        "DEFPSIST",
        words(&["ASPARENT", "YES", "NO"]),
        "ASPARENT",
        "Whether a publication that comes without an AMQP header is persistent. At the root ASPARENT is NO.",
        |of| switched(of.default_persistent, ["YES", "NO"]),
        |of, value| of.default_persistent = state(value, "YES"),
    ),
    Field::new(
        "PMSGDLV",
        DELIVERY,
        "ASPARENT",
        "Which subscriptions must take a persistent publication, or it is refused with 2502 and goes to none: ALL of \
         them, ALLDUR: those that are durable, ALLAVAIL: none, it goes to those that can take it. At the root ASPARENT \
         is ALLDUR.",
        |of| delivery(of.persistent_delivery),
        |of, value| of.persistent_delivery = Needed::of(value.word()),
    ),
    Field::new(
        "NPMSGDLV",
        DELIVERY,
        "ASPARENT",
        "The same of a publication that is not persistent. At the root ASPARENT is ALLAVAIL.",
        |of| delivery(of.non_persistent_delivery),
        |of, value| of.non_persistent_delivery = Needed::of(value.word()),
    ),
    Field::new(
        "MDURMDL",
        Kind::Name { optional: true },
        "' '",
        "The model of the queues of durable subscriptions, and the name whose policy holds for them; blank for the \
         parent's, and at the root for SYSTEM.DEFAULT.MODEL.QUEUE.",
        |of| blank(of.durable_model.as_deref()),
        |of, value| of.durable_model = unless_blank(&value.text()),
    ),
    Field::new(
        "MNDURMDL",
        Kind::Name { optional: true },
        "' '",
        "The same of subscriptions that are not durable.",
        |of| blank(of.non_durable_model.as_deref()),
        |of, value| of.non_durable_model = unless_blank(&value.text()),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 4] = commands(
    Sort::Topic,
    "topic",
    WORD,
    ATTRIBUTES,
    ATTRIBUTES,
    [
        Said {
            summary: "Create a topic object: what holds for a topic and those below it, and a name for rights on them. \
             Topics themselves need none.",
            examples: &["DEFINE TOPIC(PRICES) TOPICSTR('prices') MNDURMDL(PRICES.MODEL) PMSGDLV(ALL)"],
        },
        Said {
            summary: "Change attributes of a topic object; the others stay. SYSTEM.BASE.TOPIC is the root's, and \
             always there.",
            examples: &["ALTER TOPIC(SYSTEM.BASE.TOPIC) DURSUB(NO)"],
        },
        Said {
            summary: "Delete a topic object: from then on its parent's attributes and rights hold for its topics.",
            examples: &["DELETE TOPIC(PRICES)"],
        },
        Said {
            summary: "Show topic objects. A generic name shows names only, unless attributes or ALL are asked for.",
            examples: &["DISPLAY TOPIC(*) TOPICSTR", "DIS TOPIC(SYSTEM.BASE.TOPIC)"],
        },
    ],
);

fn switched(state: Option<bool>, words: [&'static str; 2]) -> Cell {
    Cell::word(state.map_or(AS_PARENT, |on| words[usize::from(!on)]))
}

/// What a word says, of which ASPARENT says nothing.
fn state(value: &Value, on: &str) -> Option<bool> {
    (value.word() != AS_PARENT).then_some(value.word() == on)
}

fn delivery(needed: Option<Needed>) -> Cell {
    Cell::word(needed.map_or(AS_PARENT, Needed::word))
}

impl Rules for Topic {
    const ALWAYS_THERE: Option<&str> = Some(BASE_TOPIC);

    fn is_left_out(&self, name: &str) -> bool {
        name == BASE_TOPIC && *self == Topic::default()
    }

    /// The string is not taken over: no two have the same one.
    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.map(|like| Topic { string: String::new(), ..like.clone() }).unwrap_or_default())
    }

    fn check(&self, name: &str, definitions: &Definitions) -> Result<(), Failure> {
        if name == BASE_TOPIC {
            return match self.string.is_empty() {
                true => Ok(()),
                false => Err(invalid(format_args!("{BASE_TOPIC} is the root's: its TOPICSTR is blank"), None)),
            };
        }
        if self.string.is_empty() {
            return Err(invalid("a topic object needs TOPICSTR", Some("the root's is SYSTEM.BASE.TOPIC")));
        }
        topic_names::check_topic(&self.string).map_err(|why| invalid(format_args!("TOPICSTR {why}"), None))?;
        let same = |(other, of): &(&String, &Topic)| *other != name && of.string == self.string;
        if let Some((other, _)) = definitions.topics.iter().find(same) {
            let message = format!("topic {other} has that TOPICSTR");
            return Err(Failure { kind: FailureKind::Refused, reason: None, message, hint: None });
        }
        still_sensible(name, self, definitions)
    }

    fn check_delete(name: &str, definitions: &Definitions) -> Result<(), Failure> {
        let used = |message| Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint: None };
        if name == BASE_TOPIC {
            return Err(used(format!("{name} is used by the queue manager itself")));
        }
        let uses = |(_, of): &(&String, &Subscription)| of.object.as_deref() == Some(name);
        match definitions.subscriptions.iter().find(uses) {
            Some((subscription, _)) => Err(used(format!("subscription {subscription} has TOPICOBJ({name})"))),
            None => Ok(()),
        }
    }

    fn forewarnings(&self, _name: &str, definitions: &Definitions) -> Vec<String> {
        let models = self.durable_model.iter().chain(&self.non_durable_model);
        let missing = models.filter(|name| !definitions.models.contains_key(*name));
        missing.map(|name| format!("model {name} does not exist yet")).collect()
    }
}

/// Refuses a string that the subscriptions with that TOPICOBJ can't go on below: they would not be read back at the
/// next start.
fn still_sensible(name: &str, topic: &Topic, definitions: &Definitions) -> Result<(), Failure> {
    if definitions.topics.get(name).is_none_or(|before| before.string == topic.string) {
        return Ok(());
    }
    for (subscription, of) in &definitions.subscriptions {
        if of.object.as_deref() == Some(name)
            && let Err(why) = topic_names::check_pattern(&of.below(&topic.string))
        {
            let message = format!("subscription {subscription} has TOPICOBJ({name}): its whole topic {why}");
            return Err(Failure { kind: FailureKind::Refused, reason: None, message, hint: None });
        }
    }
    Ok(())
}
