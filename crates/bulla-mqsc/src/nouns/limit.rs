//! LIMIT: what one user may have at once; and LIMITSTATUS: what connected users have.

use super::noun::verb;
use super::{Field, ObjectNoun, Rules, Said, attributes};
use crate::attributes::clamped;
use crate::objects::ON_ONE_LINE;
use crate::parse::Statement;
use crate::reply::{Cell, Failure, Row};
use crate::rows::{Candidate, rows, wanted};
use crate::run::unknown;
use crate::table::{
    Act, Attribute, COUNT_MAX, Command, DISPLAY_OPTIONS, Defining, Doing, Kind, NameUse, UNACKNOWLEDGED_BYTES_MAX,
};
use bulla_catalog::Sort;
use bulla_catalog::limits::{
    CONNECTIONS_DEFAULT, KEPT_OBJECTS_DEFAULT, KEY_TIME_MAX, LIMITS_MAX, LINKS_DEFAULT, Limit, RATE_MAX,
    TEMPORARY_DEFAULT, UserStatus,
};

const WORD: &str = "LIMIT";
const OBJECT: &str = "limit";

const NS_PER_MS: u64 = 1_000_000;

/// What MAXSUBS, MAXDYNQ, MAXTMPQ and MAXNDSUB are by themselves.
const KEPT_TEXT: &str = "1000";
const _: () = assert!(KEPT_OBJECTS_DEFAULT == 1_000 && TEMPORARY_DEFAULT == 1_000, "the text says the number");
const _: () = assert!(CONNECTIONS_DEFAULT == 5_000 && LINKS_DEFAULT == 20_000, "the texts say the numbers");

pub(super) static LIMIT: ObjectNoun<Limit> =
    ObjectNoun { word: WORD, short: &[], many: "limits of users", place: 17, fields: &[FIELDS], commands: &COMMANDS };

impl Rules for Limit {
    const MAX: usize = LIMITS_MAX;
    const BETWEEN: &str = ON_ONE_LINE;
    const DONE: [&str; 3] = ["set", "set", "deleted"];

    fn called() -> String {
        "limit of user".to_owned()
    }

    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.copied().unwrap_or_default())
    }

    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        wanted(statement, false)
    }
}

static FIELDS: &[Field<Limit>] = &[
    Field::new(
        "MAXCONNS",
        Kind::Number { min: 0, max: COUNT_MAX },
        "5000",
        "Most connections of one user; 0 for no limit. One more is refused with 2025 user-connections.",
        |of| Cell::Number(of.connections.into()),
        |of, value| of.connections = clamped(value.number()),
    ),
    Field::new(
        "MAXHANDS",
        Kind::Number { min: 0, max: COUNT_MAX },
        "20000",
        "Most links of one user, on all its connections together; 0 for no limit. One more is refused with 2017 \
         user-links.",
        |of| Cell::Number(of.links.into()),
        |of, value| of.links = clamped(value.number()),
    ),
    Field::new(
        "UNACKED",
        Kind::Number { min: 0, max: UNACKNOWLEDGED_BYTES_MAX },
        "0",
        "Bytes of messages delivered to one user and not settled, from which on it is sent no more until it settles \
         some; 0 for no limit.",
        |of| Cell::Number(of.unacknowledged_bytes),
        |of, value| of.unacknowledged_bytes = value.number(),
    ),
    Field::new(
        "MSGRATE",
        Kind::Number { min: 0, max: RATE_MAX as u64 },
        "0",
        "Messages that one user may put a second, by all its links; 0 for no limit. Beyond it credit is held back: \
         nothing is refused, nothing lost.",
        |of| Cell::Number(of.messages_a_second.into()),
        |of, value| of.messages_a_second = clamped(value.number()),
    ),
    Field::new(
        "SEALTIME",
        Kind::Number { min: 0, max: KEY_TIME_MAX as u64 },
        "0",
        "Milliseconds a second that devices and the processor may spend on private keys to seal and open one user's \
         messages; 0 for turns with the others alone. Beyond it its messages wait.",
        |of| Cell::Number(of.key_ms_a_second.into()),
        |of, value| of.key_ms_a_second = clamped(value.number()),
    ),
    Field::new(
        "MAXSUBS",
        Kind::Number { min: 0, max: COUNT_MAX },
        KEPT_TEXT,
        "Most durable subscriptions that one user's applications may have; 0 for no limit. One more is refused with \
         2017 user-subscriptions.",
        |of| Cell::Number(of.subscriptions.into()),
        |of, value| of.subscriptions = clamped(value.number()),
    ),
    Field::new(
        "MAXDYNQ",
        Kind::Number { min: 0, max: COUNT_MAX },
        KEPT_TEXT,
        "Most permanent dynamic queues that one user's applications may have; 0 for no limit. One more is refused with \
         2017 user-dynamic-queues.",
        |of| Cell::Number(of.dynamic_queues.into()),
        |of, value| of.dynamic_queues = clamped(value.number()),
    ),
    Field::new(
        "MAXTMPQ",
        Kind::Number { min: 0, max: COUNT_MAX },
        KEPT_TEXT,
        "Most temporary queues that one user's links may have; 0 for no limit. One more is refused with 2017 \
         user-temporary-queues.",
        |of| Cell::Number(of.temporary_queues.into()),
        |of, value| of.temporary_queues = clamped(value.number()),
    ),
    Field::new(
        "MAXNDSUB",
        Kind::Number { min: 0, max: COUNT_MAX },
        KEPT_TEXT,
        "Most subscriptions that are not durable of one user's links; 0 for no limit. One more is refused with 2017 \
         user-non-durable-subscriptions.",
        |of| Cell::Number(of.non_durable_subscriptions.into()),
        |of, value| of.non_durable_subscriptions = clamped(value.number()),
    ),
];

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);

/// What DISPLAY LIMITSTATUS shows.
static STATUS: &[Field<UserStatus>] = &[
    Field::shown("LIMIT", "The limit that holds for the user; empty for none.", |of| Cell::Text(of.pattern.clone())),
    Field::shown("CURCONNS", "Connections of the user.", |of| Cell::Number(of.connections.into())),
    Field::shown("CURHANDS", "Links on them that put, get, browse or coordinate.", |of| Cell::Number(of.links.into())),
    Field::shown("CURUNACK", "Bytes delivered and not settled; counted from when UNACKED limits them.", |of| {
        Cell::Number(of.unacknowledged_bytes)
    }),
    Field::shown("HELDBACK", "How often MSGRATE left a link less credit than it could have had.", |of| {
        Cell::Number(of.held_back)
    }),
    Field::shown("REFUSED", "Connections, links, subscriptions and queues refused because of the limit.", |of| {
        Cell::Number(of.refused)
    }),
    Field::shown(
        "SEALUSED",
        "Milliseconds that private keys took for the user's messages; counted from when SEALTIME limits them.",
        |of| Cell::Number(of.key_ns / NS_PER_MS),
    ),
    Field::shown("SEALHELD", "How often SEALTIME was used up, so that the user's messages waited.", |of| {
        Cell::Number(of.key_used_up)
    }),
    Field::shown("CURSUBS", "Durable subscriptions that the user's applications have.", |of| {
        Cell::Number(of.subscriptions.into())
    }),
    Field::shown("CURDYNQ", "Permanent dynamic queues that the user's applications have.", |of| {
        Cell::Number(of.dynamic_queues.into())
    }),
    Field::shown("CURTMPQ", "Temporary queues that the user's links have.", |of| {
        Cell::Number(of.temporary_queues.into())
    }),
    Field::shown("CURNDSUB", "Subscriptions of the user's links that are not durable.", |of| {
        Cell::Number(of.non_durable_subscriptions.into())
    }),
];

static STATUS_ATTRIBUTES: &[&Attribute] = attributes!(STATUS);

static COMMANDS: [Command; 4] = [
    verb(
        ("SET", WORD, OBJECT),
        Act::Defines(Defining::Set(Sort::Limit)),
        NameUse::Users,
        &[],
        ATTRIBUTES,
        Said {
            summary: "Limit what one user may have at once. The name may end in *: then the limit is each one's whose \
             name begins so. The name itself comes before the longest beginning. What is not given stays.",
            examples: &[
                "SET LIMIT('app*') MAXCONNS(100) MAXHANDS(1000)",
                "SET LIMIT('*ANONYMOUS') MSGRATE(500) UNACKED(1048576)",
            ],
        },
    ),
    verb(
        ("DELETE", WORD, OBJECT),
        Act::Defines(Defining::Delete(Sort::Limit)),
        NameUse::Users,
        &[],
        &[],
        Said {
            summary: "Delete a limit; its users have that of another pattern that fits them, or none.",
            examples: &["DELETE LIMIT('app*')"],
        },
    ),
    verb(
        ("DISPLAY", WORD, OBJECT),
        Act::Does(Doing::Display(Sort::Limit)),
        NameUse::Users,
        DISPLAY_OPTIONS,
        ATTRIBUTES,
        Said {
            summary: "Show limits of users.",
            examples: &["DISPLAY LIMIT('*')", "DIS LIMIT('*') WHERE(MSGRATE GT 0)"],
        },
    ),
    verb(
        ("DISPLAY", "LIMITSTATUS", "user"),
        Act::Does(Doing::DisplayLimitStatus),
        NameUse::Users,
        DISPLAY_OPTIONS,
        STATUS_ATTRIBUTES,
        Said {
            summary: "Show users that are connected, what they have, and which limit holds for them.",
            examples: &["DISPLAY LIMITSTATUS('*')", "DIS LIMS('*') WHERE(HELDBACK GT 0)"],
        },
    ),
];

/// DISPLAY LIMITSTATUS.
///
/// # Errors
/// There is none; WHERE compares what can't be compared.
pub(crate) fn display_status(statement: &Statement, users: &[UserStatus]) -> Result<Vec<Row>, Failure> {
    let named = users.iter().filter(|user| statement.name.fits(&user.name));
    let candidates: Vec<Candidate<'_>> = named
        .map(|user| -> Candidate<'_> {
            let row = |key| STATUS.iter().find(|row| row.attribute().key == key);
            (&user.name, None, Box::new(move |key| row(key).map(|row| (row.get)(user))))
        })
        .collect();
    if candidates.is_empty() && !statement.name.generic {
        return Err(unknown("connected user", &statement.name.stem));
    }
    rows(statement, "USER", candidates, &wanted(statement, false))
}

#[cfg(test)]
mod tests {
    use crate::execute;
    use crate::objects::AsText;
    use crate::reply::{Outcome, Reply};
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use bulla_catalog::Definitions;
    use bulla_catalog::limits::KEPT_OBJECTS_DEFAULT;

    fn answers(commands: &str, paper: &mut Paper) -> String {
        execute(commands, paper).iter().map(Reply::text).collect()
    }

    fn failure(command: &str, paper: &mut Paper) -> String {
        let replies = execute(command, paper);
        let [Reply { outcome: Outcome::Failed(failure), .. }] = replies.as_slice() else { panic!("{replies:?}") };
        failure.message.clone()
    }

    #[test]
    fn limits_are_read_back_as_they_were_written() {
        let mut paper = Paper::new();
        let set = "SET LIMIT('app*') MAXCONNS(5) MSGRATE(1000); SET LIMIT('*ANONYMOUS') MAXHANDS(3) UNACKED(65536) \
         SEALTIME(250) MAXDYNQ(0)";
        answers(set, &mut paper);
        answers("SET LIMIT('app*') MAXCONNS(6)", &mut paper);
        let definitions = paper.definitions();
        let app = definitions.user_limits.get("app*").unwrap();
        assert_eq!((app.connections, app.messages_a_second), (6, 1000), "what is not given stays");
        assert_eq!((app.subscriptions, app.dynamic_queues), (KEPT_OBJECTS_DEFAULT, KEPT_OBJECTS_DEFAULT));
        assert_eq!(definitions.user_limits.get("*ANONYMOUS").unwrap().dynamic_queues, 0);
        let read = Definitions::from_text(&definitions.text(), "objects.mqsc".as_ref()).unwrap();
        assert_eq!(&read, definitions, "{}", definitions.text());
    }

    #[test]
    fn a_limit_is_shown_and_goes() {
        let mut paper = Paper::new();
        answers("SET LIMIT('app*') MAXCONNS(5); SET LIMIT('bob') UNACKED(7)", &mut paper);
        let shown = answers("DISPLAY LIMIT('*') MAXCONNS", &mut paper);
        assert!(shown.contains("LIMIT(app*)") && shown.contains("MAXCONNS(5)"), "{shown}");
        assert!(shown.contains("LIMIT(bob)") && !shown.contains("UNACKED"), "{shown}");
        let shown = answers("DIS LIMIT('*') WHERE(UNACKED GT 0)", &mut paper);
        assert!(shown.contains("bob") && !shown.contains("app*"), "{shown}");
        let replies = execute("DIS LIMIT('bob') WHERE(UNACKED GT 7)", &mut paper);
        assert!(matches!(&replies[0].outcome, Outcome::Rows(rows) if rows.is_empty()), "it exists: {replies:?}");
        answers("DELETE LIMIT('bob')", &mut paper);
        for gone in ["DISPLAY LIMIT('bob')", "DELETE LIMIT('bob')"] {
            assert!(failure(gone, &mut paper).contains("does not exist"), "{gone}");
        }
    }

    #[test]
    fn names_that_no_user_can_have_are_refused() {
        for bad in ["'a*b'", "''", "'.x'", "'*bob'"] {
            let why = failure(&format!("SET LIMIT({bad}) MAXCONNS(1)"), &mut Paper::new());
            assert!(why.contains("is not a user's name"), "{bad}: {why}");
        }
    }
}
