//! ADDRMAP: what addresses that clients name stand for.

use super::noun::verb;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::objects::ON_ONE_LINE;
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure, FailureKind};
use crate::rows::wanted;
use crate::run::invalid;
use crate::table::{Act, Attribute, Command, DISPLAY_OPTIONS, Defining, Doing, Key, Kind, NameUse, attribute, words};
use bulla_catalog::addresses::{ADDRESS_MAPS_MAX, MappedTo, is_queue_for, is_topic_for};
use bulla_catalog::names::NAME_CHARS_MAX;
use bulla_catalog::topic_names::TOPIC_BYTES_MAX;
use bulla_catalog::{Definitions, Sort};

const WORD: &str = "ADDRMAP";
const OBJECT: &str = "address map";

const QUEUE: &str = "QUEUE";
const TOPIC: &str = "TOPIC";

pub(super) static ADDRESS_MAP: ObjectNoun<MappedTo> =
    ObjectNoun { word: WORD, short: &[], many: "address maps", place: 16, fields: &[FIELDS], commands: &COMMANDS };

static FIELDS: &[Field<MappedTo>] = &[
    Field::new(
        QUEUE,
        Kind::Text { chars_max: NAME_CHARS_MAX },
        "",
        "The queue, alias or remote queue that the address stands for; a * is what the address's * stands for.",
        |of| Cell::word(name(of)),
        |of, value| *of = unless_empty(of, MappedTo::Queue(value.text())),
    ),
    Field::new(
        TOPIC,
        Kind::Text { chars_max: TOPIC_BYTES_MAX },
        "",
        "The topic that the address stands for, instead of QUEUE.",
        |of| Cell::word(name(of)),
        |of, value| *of = unless_empty(of, MappedTo::Topic(value.text())),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

/// What SET ADDRMAP does with the entry.
static ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["ADD", "REMOVE"]),
    "ADD",
    "ADD: a new entry, or another meaning of one. REMOVE: the entry goes.",
);

static COMMANDS: [Command; 2] = [
    verb(
        ("SET", WORD, OBJECT),
        Act::Defines(Defining::Set(Sort::AddressMap)),
        NameUse::Addresses,
        &[&ACTION],
        ATTRIBUTES,
        Said {
            summary: "Say what an address stands for that clients name: a queue or a topic. A * in it is for any \
             characters, and a * in the name for the same ones. The address itself comes before patterns, the longest \
             pattern first. What it stands for is not looked up again.",
            examples: &[
                "SET ADDRMAP('test-queue') QUEUE('TEST.QUEUE')",
                "SET ADDRMAP('queue://*') QUEUE('*')",
                "SET ADDRMAP('prices/*') TOPIC('market/*')",
                "SET ADDRMAP('test-queue') ACTION(REMOVE)",
            ],
        },
    ),
    verb(
        ("DISPLAY", WORD, OBJECT),
        Act::Does(Doing::Display(Sort::AddressMap)),
        NameUse::Addresses,
        DISPLAY_OPTIONS,
        ATTRIBUTES,
        Said {
            summary: "Show what clients' addresses stand for; a * at the end is for all that begin so.",
            examples: &["DISPLAY ADDRMAP('*')", "DIS ADDRMAP('*') WHERE(QUEUE EQ 'TEST.QUEUE')"],
        },
    ),
];

impl Rules for MappedTo {
    const MAX: usize = ADDRESS_MAPS_MAX;
    const BETWEEN: &str = ON_ONE_LINE;
    const DONE: [&str; 3] = ["set", "set", "removed"];

    fn is_removed_by(statement: &Statement) -> bool {
        statement.says(Key::Action, "REMOVE")
    }

    fn begin(_statement: &Statement, _like: Option<&Self>) -> Result<Self, Failure> {
        Ok(MappedTo::Queue(String::new()))
    }

    fn has(&self, key: Key) -> bool {
        match self {
            MappedTo::Queue(_) => key == Key::Own(QUEUE),
            MappedTo::Topic(_) => key == Key::Own(TOPIC),
        }
    }

    fn check_statement(&self, statement: &Statement) -> Result<(), Failure> {
        let is_given = |word| matches!(statement.value(Key::Own(word)), Some(Value::Text(text)) if !text.is_empty());
        match is_given(QUEUE) != is_given(TOPIC) {
            true => Ok(()),
            false => Err(invalid("SET ADDRMAP needs one of QUEUE and TOPIC", None)),
        }
    }

    fn check(&self, address: &str, definitions: &Definitions) -> Result<(), Failure> {
        let is_possible = match self {
            MappedTo::Queue(queue) => is_queue_for(queue, address),
            MappedTo::Topic(topic) => is_topic_for(topic, address),
        };
        if !is_possible {
            let hint = "a * stands for what the address's * stands for; a topic has no wildcards";
            return Err(invalid(format_args!("{address} can't stand for {:?}", name(self)), Some(hint)));
        }
        match definitions.address_maps.ambiguous_with(address) {
            None => Ok(()),
            Some(other) => Err(Failure {
                kind: FailureKind::Refused,
                reason: Some(ALREADY_EXISTS),
                message: format!("{address} and {other} are of the same length and fit the same addresses"),
                hint: Some("the longest pattern comes first: make one of them longer".into()),
            }),
        }
    }

    /// None is the queue manager's own.
    fn stays(&self, _address: &str) -> bool {
        false
    }

    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        wanted(statement, false)
    }
}

/// MQ's reason code for an object that is there already: another pattern has the same addresses.
const ALREADY_EXISTS: u32 = 4001;

fn name(of: &MappedTo) -> &str {
    match of {
        MappedTo::Queue(name) | MappedTo::Topic(name) => name,
    }
}

/// An empty name is as none given.
fn unless_empty(before: &MappedTo, given: MappedTo) -> MappedTo {
    if name(&given).is_empty() { before.clone() } else { given }
}

#[cfg(test)]
mod tests {
    use crate::difference;
    use crate::execute;
    use crate::objects::AsText;
    use crate::reply::{Outcome, Reply};
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use bulla_catalog::Definitions;
    use std::path::Path;

    fn answers(commands: &str, paper: &mut Paper) -> String {
        execute(commands, paper).iter().map(Reply::text).collect()
    }

    #[test]
    fn address_maps_are_set_shown_kept_and_removed() {
        let mut paper = Paper::new();
        answers("SET ADDRMAP('test-queue') QUEUE('TEST.QUEUE'); SET ADDRMAP('queue://*') QUEUE('*')", &mut paper);
        answers("SET ADDRMAP('prices/*') TOPIC('market/*'); SET ADDRMAP('test-queue') QUEUE('OTHER')", &mut paper);
        let kept = paper.definitions().text();
        assert!(kept.contains("SET ADDRMAP('test-queue') QUEUE('OTHER')"), "{kept}");
        let read = Definitions::from_commands(&kept, Path::new("x"), Definitions::bare(paper.definitions())).unwrap();
        assert_eq!(&read, paper.definitions());
        let shown = answers("DISPLAY ADDRMAP('*')", &mut paper);
        assert!(shown.contains("ADDRMAP(prices/*)") && shown.contains("TOPIC(market/*)"), "{shown}");
        let shown = answers("DIS ADDRMAP('*') WHERE(QUEUE EQ 'OTHER')", &mut paper);
        assert!(shown.contains("ADDRMAP(test-queue)") && !shown.contains("prices"), "{shown}");
        let steps = difference::steps(paper.definitions(), &Definitions::bare(paper.definitions()));
        let removed = |step: &difference::Step| step.command == "SET ADDRMAP('queue://*') ACTION(REMOVE)";
        assert!(steps.iter().any(removed), "{steps:?}");
        answers("SET ADDRMAP('test-queue') ACTION(REMOVE)", &mut paper);
        assert!(paper.definitions().address_maps.get("test-queue").is_none());
    }

    #[test]
    fn what_can_not_be_an_address_map_is_refused() {
        let mut paper = Paper::new();
        answers("SET ADDRMAP('a*z') QUEUE('A')", &mut paper);
        for (command, why) in [
            ("SET ADDRMAP('az*') QUEUE('B')", "fit the same addresses"),
            ("SET ADDRMAP('x')", "needs one of QUEUE and TOPIC"),
            ("SET ADDRMAP('x') QUEUE('A') TOPIC('a')", "needs one of QUEUE and TOPIC"),
            ("SET ADDRMAP('x') QUEUE('A.*')", "can't stand for"),
            ("SET ADDRMAP('x*') TOPIC('a/#')", "can't stand for"),
            ("SET ADDRMAP('x@QM') QUEUE('A')", "is not an address"),
            ("SET ADDRMAP('x') ACTION(REMOVE)", "does not exist"),
        ] {
            let replies = execute(command, &mut paper);
            let [Reply { outcome: Outcome::Failed(failure), .. }] = replies.as_slice() else { panic!("{replies:?}") };
            assert!(failure.message.contains(why), "{command}: {failure}");
        }
    }
}
