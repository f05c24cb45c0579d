//! SUB: a subscription that outlives its links.
//!
//! What goes on with subscriptions is in `topics/` of the program; the page is `docs/operating/topics.md`.

use super::noun::commands;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::attributes::{blank, unless_blank};
use crate::parse::Statement;
use crate::reply::{Cell, Failure};
use crate::run::{invalid, unknown};
use crate::table::{Attribute, Command, DESCR, Kind, words};
use bulla_catalog::selector::{SELECTOR_BYTES_MAX, Selector};
use bulla_catalog::system_queues::SYSTEM_PREFIX;
use bulla_catalog::topic_names::{self, CONTAINER_CHARS_MAX, TOPIC_BYTES_MAX};
use bulla_catalog::{Definitions, Sort, Subscription, names};

const WORD: &str = "SUB";

pub(super) static SUBSCRIPTION: ObjectNoun<Subscription> =
    ObjectNoun { word: WORD, short: &[], many: "subscriptions", place: 8, fields: &[FIELDS], commands: &COMMANDS };

static FIELDS: &[Field<Subscription>] = &[
    Field::new(
        "TOPICSTR",
        Kind::Text { chars_max: TOPIC_BYTES_MAX },
        "' '",
        "The topic, or, with TOPICOBJ, what is below its topic. A level + stands for any one level, a level # for any \
         number of them.",
        |of| Cell::word(&of.string),
        |of, value| of.string = value.text(),
    ),
    Field::new(
        "TOPICOBJ",
        Kind::Name { optional: true },
        "' '",
        "A topic object, whose TOPICSTR is the beginning of the topic.",
        |of| blank(of.object.as_deref()),
        |of, value| of.object = unless_blank(&value.text()),
    ),
    Field::new(
        "DEST",
        Kind::Name { optional: true },
        "' '",
        "The queue that publications are put on: a local queue, an alias or a remote queue. Its policy protects them. \
         Needed.",
        |of| Cell::word(&of.destination),
        |of, value| of.destination = value.text(),
    ),
    Field::new(
        "DESTCLAS",
        words(&["PROVIDED", "MANAGED"]),
        "PROVIDED",
        "MANAGED: the queue was made for this subscription, which is an application's, and goes with it.",
        |of| Cell::word(if of.managed { "MANAGED" } else { "PROVIDED" }),
        |of, value| of.managed = value.word() == "MANAGED",
    ),
    Field::new(
        "SELECTOR",
        Kind::Text { chars_max: SELECTOR_BYTES_MAX },
        "' '",
        "Which publications are wanted; blank for all.",
        |of| Cell::word(&of.selector),
        |of, value| of.selector = value.text(),
    ),
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "SUBUSER",
        Kind::Text { chars_max: names::USER_NAME_BYTES_MAX },
        "' '",
        "The user who owns the subscription: no other user may get from it by its name. Blank for a client that has \
         not signed in, and for a subscription that an administrator made.",
        |of| blank(of.user.as_deref()),
        |of, value| of.user = unless_blank(&value.text()),
    ),
    Field::new(
        "SUBSHARE",
        words(&["NO", "YES"]),
        "NO",
        "Whether several links may get from an application's subscription at the same time.",
        |of| Cell::word(if of.shared { "YES" } else { "NO" }),
        |of, value| of.shared = value.word() == "YES",
    ),
    Field::new(
        "NOTFROM",
        Kind::Text { chars_max: CONTAINER_CHARS_MAX },
        "' '",
        "The container id of a client whose own publications are left out (noLocal); blank for none.",
        |of| blank(of.not_from.as_deref()),
        |of, value| of.not_from = unless_blank(&value.text()),
    ),
    Field::new(
        "SUBMODEL",
        Kind::Name { optional: true },
        "' '",
        "Of a MANAGED queue the model that it was made of, whose policy protects the publications.",
        |of| blank(of.model.as_deref()),
        |of, value| of.model = unless_blank(&value.text()),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

static COMMANDS: [Command; 4] = commands(
    Sort::Subscription,
    "subscription",
    WORD,
    ATTRIBUTES,
    ATTRIBUTES,
    [
        Said {
            summary: "Create a subscription: from then on what is published on its topic is put on its queue.",
            examples: &["DEFINE SUB(AUDIT) TOPICSTR('prices/#') DEST(AUDIT.PRICES) SELECTOR('volume > 1000')"],
        },
        Said {
            summary: "Change attributes of a subscription; the others stay, and so does what is on its queue.",
            examples: &["ALTER SUB(AUDIT) SELECTOR(' ')"],
        },
        Said {
            summary: "Delete a subscription. A MANAGED queue goes with it and all that is on it; another one stays.",
            examples: &["DELETE SUB(AUDIT)"],
        },
        Said {
            summary: "Show subscriptions that outlive their links: those defined here, and the durable ones of \
             applications, as CLIENT|NAME. A generic name shows names only, unless attributes or ALL are asked for.",
            examples: &["DISPLAY SUB(*) TOPICSTR DEST", "DIS SUB(*) WHERE(DESTCLAS EQ MANAGED)"],
        },
    ],
);

impl Rules for Subscription {
    /// MQRC_NO_SUBSCRIPTION
    const UNKNOWN: u32 = 2428;

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.cloned().unwrap_or_default())
    }

    fn check(&self, name: &str, definitions: &Definitions) -> Result<(), Failure> {
        queue_stays(definitions.subscriptions.get(name), self)?;
        if let Some(object) = self.object.as_ref().filter(|name| !definitions.topics.contains_key(*name)) {
            return Err(unknown(&Sort::Topic.to_string(), object));
        }
        let whole = self.topic(definitions).unwrap_or_default();
        if whole.is_empty() {
            return Err(invalid("a subscription needs TOPICSTR or TOPICOBJ", None));
        }
        topic_names::check_pattern(&whole).map_err(|why| invalid(format_args!("TOPICSTR {why}"), None))?;
        if self.destination.is_empty() {
            return Err(invalid("a subscription needs DEST", None));
        }
        let is_application_s = topic_names::is_of_application(name);
        if is_application_s != self.managed {
            let message = if is_application_s {
                "NAME|NAME is an application's subscription: it has DESTCLAS(MANAGED)"
            } else {
                "DESTCLAS(MANAGED) is for subscriptions that applications make"
            };
            return Err(invalid(message, None));
        }
        if self.managed && !self.destination.starts_with(topic_names::MANAGED_PREFIX) {
            let message = format!("the queue of a MANAGED subscription begins with {}", topic_names::MANAGED_PREFIX);
            return Err(invalid(message, None));
        }
        if !self.selector.is_empty() {
            Selector::parse(&self.selector).map_err(|error| invalid(error, None))?;
        }
        Ok(())
    }

    /// An application's is its user's.
    fn stays(&self, name: &str) -> bool {
        topic_names::is_of_application(name) || name.starts_with(SYSTEM_PREFIX)
    }

    fn forewarnings(&self, _name: &str, definitions: &Definitions) -> Vec<String> {
        let missing = definitions.resolve_put(&self.destination).is_err();
        missing.then(|| format!("queue {} does not exist yet", self.destination)).into_iter().collect()
    }
}

/// What is sealed for one policy can't be read by another, and a queue without its subscription would stay for ever.
fn queue_stays(before: Option<&Subscription>, after: &Subscription) -> Result<(), Failure> {
    let moves = |before: &Subscription| before.destination != after.destination || before.model != after.model;
    match before.is_some_and(|before| before.managed && moves(before)) {
        true => Err(invalid("the queue of an application's subscription stays as it is", None)),
        false => Ok(()),
    }
}

/// The application's subscription whose own queue that is. A look at every subscription, for names that can be one
/// alone.
pub(crate) fn managing<'a>(queue: &str, definitions: &'a Definitions) -> Option<&'a str> {
    if !queue.starts_with(topic_names::MANAGED_PREFIX) {
        return None;
    }
    let is_its = |(_, of): &(&String, &Subscription)| of.managed && of.destination == queue;
    definitions.subscriptions.iter().find(is_its).map(|(name, _)| name.as_str())
}
