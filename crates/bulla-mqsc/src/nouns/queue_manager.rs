//! The queue manager in the admin language: a row for each attribute.

use super::channel::check_label;
use super::queues::no_transmission_queue;
use super::{Field, Kept, attributes, joined};
use crate::attributes::{Cells, Set, blank, clamped, enabled, number_of, number_or, unless_blank};
use crate::kept::ObjectName;
use crate::objects::{WRAPPED, command};
use crate::parse::Statement;
use crate::reply::{Cell, Failure, Row};
use crate::rows::wanted;
use crate::run::invalid;
use crate::table::channel::{GROUPS_CHARS_MAX, LABEL_CHARS_MAX};
use crate::table::{Attribute, COUNT_MAX, DESCR, ENABLED, Key, Kind, NAME_OF_MANAGER, VERSION};
use bulla_catalog::{Change, Definitions, MESSAGE_BYTES_MAX, QueueManager, tls_group};
use std::fmt::{self, Write};

/// Lowest MAXMSGL of a queue manager in bytes, as MQ has it.
const MANAGER_MESSAGE_BYTES_MIN: u64 = 32_768;
/// Highest TRIGINT in milliseconds, as MQ has it.
const TRIGGER_INTERVAL_MS_MAX: u64 = 999_999_999;
/// Highest MAXUMSGS, as MQ has it.
const UNCOMMITTED_MAX: u64 = 999_999_999;
/// Longest MAXUAGE in seconds: a week.
const UNIT_AGE_SECONDS_MAX: u64 = 604_800;
/// Longest LOGINIDLE and LOGINLIFE in seconds: a week. No cookie is good for ever.
const LOG_IN_SECONDS_MAX: u64 = 604_800;
/// Longest OAUTHISS, OAUTHAUD and OAUTHUSR, in characters.
const TOKEN_WORD_CHARS_MAX: usize = 256;
/// Highest MAXCHL and ACTCHL, as MQ has it.
const CURRENT_CHANNELS_MAX: u64 = 9_999;
/// Most adapters.
const ADAPTERS_MAX: u64 = bulla_catalog::ADAPTERS_MAX as u64;
/// Most dispatchers.
const DISPATCHERS_MAX: u64 = bulla_catalog::DISPATCHERS_MAX as u64;

static FIELDS: &[Field<QueueManager>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "DEADQ",
        Kind::Name { optional: true },
        "SYSTEM.DEAD.LETTER.QUEUE",
        "Where undeliverable messages go; blank for nowhere.",
        |of| blank(of.dead_letter_queue.as_deref()),
        |of, value| of.dead_letter_queue = unless_blank(&value.text()),
    ),
    Field::new(
        "MAXMSGL",
        Kind::Number { min: MANAGER_MESSAGE_BYTES_MIN, max: MESSAGE_BYTES_MAX },
        "104857600",
        "Longest message in bytes that any queue takes, whatever its own MAXMSGL. A longer one is refused with 2031.",
        |of| Cell::Number(of.max_message_bytes.into()),
        |of, value| of.max_message_bytes = clamped(value.number()),
    ),
    Field::new(
        "DEFXMITQ",
        Kind::Name { optional: true },
        "' '",
        "The transmission queue for queue managers to which no other way leads; blank for none: messages for them are \
         refused with 2087.",
        |of| blank(of.default_transmission_queue.as_deref()),
        |of, value| of.default_transmission_queue = unless_blank(&value.text()),
    ),
    Field::new(
        "SSLRKEYC",
        Kind::Number { min: 0, max: COUNT_MAX },
        "0",
        "Bytes sent and received on a TLS channel after which its keys are renewed, 0 for never; 1 to 32768 act as \
         32768. A channel may say otherwise.",
        |of| Cell::Number(of.key_reset_bytes.into()),
        |of, value| of.key_reset_bytes = clamped(value.number()),
    ),
    Field::new(
        "SSLGROUPS",
        Kind::Text { chars_max: GROUPS_CHARS_MAX },
        "' '",
        "The groups by which the keys of TLS may be agreed on, with commas, the first one preferred; blank for all \
         that there are, those with ML-KEM first. Of clients, and of channels that name none.",
        |of| Cell::Text(tls_group::text(&of.key_groups)),
        |of, value| of.key_groups = tls_group::parse(&value.text()).unwrap_or_default(),
    ),
    Field::new(
        "CERTLABL",
        Kind::Text { chars_max: LABEL_CHARS_MAX },
        "' '",
        "Label of the certificate that channels show unless they name one; blank for the server's own.",
        |of| blank(of.certificate_label.as_deref()),
        |of, value| of.certificate_label = unless_blank(&value.text()),
    ),
    Field::new(
        "CHIADAPS",
        Kind::NumberOr { min: 1, max: ADAPTERS_MAX, word: "AUTO" },
        "AUTO",
        "Adapters. AUTO: as many as the queue manager was started with.",
        |of| number_or(of.adapters, "AUTO"),
        |of, value| of.adapters = number_of(value),
    ),
    Field::new(
        "CHIDISPS",
        Kind::NumberOr { min: 1, max: DISPATCHERS_MAX, word: "AUTO" },
        "AUTO",
        "Dispatchers. AUTO: as many as the queue manager was started with.",
        |of| number_or(of.dispatchers, "AUTO"),
        |of, value| of.dispatchers = number_of(value),
    ),
    Field::new(
        "MAXCHL",
        Kind::Number { min: 1, max: CURRENT_CHANNELS_MAX },
        "200",
        "Most instances of channels that are current: active, RETRYING or STOPPED.",
        |of| Cell::Number(of.channels_max.into()),
        |of, value| of.channels_max = clamped(value.number()),
    ),
    Field::new(
        "ACTCHL",
        Kind::Number { min: 1, max: CURRENT_CHANNELS_MAX },
        "200",
        "Most instances of channels that are active, at most MAXCHL.",
        |of| Cell::Number(of.active_channels_max.into()),
        |of, value| of.active_channels_max = clamped(value.number()),
    ),
    Field::new(
        "MAXUMSGS",
        Kind::Number { min: 1, max: UNCOMMITTED_MAX },
        "10000",
        "Most messages put and got in one unit of work. One more put is refused with 2024; one more get, and the unit \
         can only be backed out.",
        |of| Cell::Number(of.max_uncommitted.into()),
        |of, value| of.max_uncommitted = clamped(value.number()),
    ),
    Field::new(
        "MAXUAGE",
        Kind::Number { min: 0, max: UNIT_AGE_SECONDS_MAX },
        "600",
        "Seconds after which a unit of work that was not discharged is backed out (2003); 0 for never.",
        |of| Cell::Number(of.max_unit_age.into()),
        |of, value| of.max_unit_age = clamped(value.number()),
    ),
    Field::new(
        "AUTHOREV",
        ENABLED,
        "DISABLED",
        "Whether each refusal for want of authority (2035) puts a message on SYSTEM.ADMIN.QMGR.EVENT.",
        |of| enabled(of.authority_events),
        |of, value| of.authority_events = value.word() == "ENABLED",
    ),
    Field::new(
        "PERFMEV",
        ENABLED,
        "DISABLED",
        "Whether depths that queues watch (QDPHIEV, QDPLOEV, QDPMAXEV) are told, in the log and on \
         SYSTEM.ADMIN.PERFM.EVENT.",
        |of| enabled(of.performance_events),
        |of, value| of.performance_events = value.word() == "ENABLED",
    ),
    Field::new(
        "CHLEV",
        ENABLED,
        "DISABLED",
        "Whether channels that start, stop or fail in TLS put a message on SYSTEM.ADMIN.CHANNEL.EVENT.",
        |of| enabled(of.channel_events),
        |of, value| of.channel_events = value.word() == "ENABLED",
    ),
    Field::new(
        "TRIGINT",
        Kind::Number { min: 0, max: TRIGGER_INTERVAL_MS_MAX },
        "999999999",
        "Milliseconds after which a queue with TRIGTYPE(FIRST) triggers once more for a message that is not the first \
         on it.",
        |of| Cell::Number(of.trigger_interval_ms.into()),
        |of, value| of.trigger_interval_ms = clamped(value.number()),
    ),
    Field::new(
        "CHLAUTH",
        ENABLED,
        "ENABLED",
        "Whether the rules of SET CHLAUTH are asked.",
        |of| enabled(of.channel_authentication),
        |of, value| of.channel_authentication = value.word() == "ENABLED",
    ),
    Field::new(
        "CHCKCLNT",
        Kind::Word {
            choices: &["OPTIONAL", "REQUIRED"],
            refused: &[
                ("NONE", "a name or password that is given is always checked"),
                ("REQDADM", "there is no administration over AMQP"),
            ],
        },
        "OPTIONAL",
        "Whether clients must sign in, by password or certificate. OPTIONAL: a client that does not is '*ANONYMOUS'. \
         REQUIRED: a client that does not is refused.",
        |of| Cell::word(if of.sign_in_required { "REQUIRED" } else { "OPTIONAL" }),
        |of, value| of.sign_in_required = value.word() == "REQUIRED",
    ),
    Field::new(
        "LOGINIDLE",
        Kind::Number { min: 1, max: LOG_IN_SECONDS_MAX },
        "1800",
        "Seconds without a request after which a log-in over HTTP is over. A change holds for log-ins that are there.",
        |of| Cell::Number(of.log_in_idle_seconds.into()),
        |of, value| of.log_in_idle_seconds = clamped(value.number()),
    ),
    Field::new(
        "LOGINLIFE",
        Kind::Number { min: 1, max: LOG_IN_SECONDS_MAX },
        "28800",
        "Seconds after which a log-in over HTTP is over, however much it is used.",
        |of| Cell::Number(of.log_in_life_seconds.into()),
        |of, value| of.log_in_life_seconds = clamped(value.number()),
    ),
    Field::new(
        "OAUTHISS",
        Kind::Text { chars_max: TOKEN_WORD_CHARS_MAX },
        "' '",
        "Whose tokens clients sign in with: the claim iss, as 'https://issuer.example'. Its keys are in jwks.json in \
         the data directory. Blank: no tokens are taken.",
        |of| blank(of.token_issuer.as_deref()),
        |of, value| of.token_issuer = unless_blank(&value.text()),
    ),
    Field::new(
        "OAUTHAUD",
        Kind::Text { chars_max: TOKEN_WORD_CHARS_MAX },
        "' '",
        "What the claim aud of a token must be, or have among others. Blank: the queue manager's name.",
        |of| blank(of.token_audience.as_deref()),
        |of, value| of.token_audience = unless_blank(&value.text()),
    ),
    Field::new(
        "OAUTHUSR",
        Kind::Text { chars_max: TOKEN_WORD_CHARS_MAX },
        "sub",
        "The claim of a token that is the user's name.",
        |of| Cell::word(&of.token_user_claim),
        |of, value| of.token_user_claim = value.text(),
    ),
];

/// ALTER QMGR.
pub(crate) static ALTERED: &[&Attribute] = attributes!(FIELDS);
/// DISPLAY QMGR.
pub(crate) static SHOWN: &[&Attribute] = joined![ALTERED, &[&VERSION]];

/// QMGR.
pub(crate) struct QueueManagerNoun;

pub(crate) static QUEUE_MANAGER: QueueManagerNoun = QueueManagerNoun;

impl Kept for QueueManagerNoun {
    fn word(&self) -> &'static str {
        "QMGR"
    }

    fn place(&self) -> usize {
        0
    }

    fn objects<'a>(&self, _definitions: &'a Definitions) -> Box<dyn Iterator<Item = ObjectName> + 'a> {
        Box::new(std::iter::once(ObjectName::Manager))
    }

    fn write(&self, f: &mut dyn Write, definitions: &Definitions, _object: &ObjectName) -> Option<fmt::Result> {
        Some(command(f, WRAPPED, "ALTER", self.word(), None, |key| definitions.queue_manager.cell(key)))
    }

    fn stays(&self, _definitions: &Definitions, _object: &ObjectName) -> bool {
        true
    }
}

fn field(key: Key) -> Option<&'static Field<QueueManager>> {
    FIELDS.iter().find(|field| field.attribute().key == key)
}

impl Set for QueueManager {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            if let Some(field) = field(setting.attribute.key) {
                (field.set)(self, &setting.value);
            }
        }
    }
}

impl Cells for QueueManager {
    fn cell(&self, key: Key) -> Option<Cell> {
        match key {
            Key::ManagerName => Some(Cell::Text(self.name.clone())),
            Key::Version => Some(Cell::word(env!("CARGO_PKG_VERSION"))),
            key => field(key).map(|field| (field.get)(self)),
        }
    }
}

/// ALTER QMGR.
///
/// # Errors
/// It contradicts itself.
pub(crate) fn alter(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let mut manager = definitions.queue_manager.clone();
    manager.set(statement);
    for setting in statement.settings.iter().filter(|setting| setting.attribute.keyword == "SSLGROUPS") {
        tls_group::parse(&setting.value.text()).map_err(|error| {
            let hint = "docs/reference/cipherspecs.md lists them, X25519MLKEM768 is one";
            invalid(format!("SSLGROUPS: {error}"), Some(hint))
        })?;
    }
    let label = manager.certificate_label.as_deref().unwrap_or_default();
    check_label(label)?;
    if manager.active_channels_max > manager.channels_max {
        let QueueManager { active_channels_max, channels_max, .. } = manager;
        let message = format!("ACTCHL({active_channels_max}) is more than MAXCHL({channels_max})");
        return Err(invalid(message, None));
    }
    Ok(Change::AlterManager(manager))
}

/// What is allowed and will not work yet.
pub(crate) fn forewarnings(manager: &QueueManager, definitions: &Definitions) -> Vec<String> {
    let missing = |name: &str| !definitions.queues.contains_key(name);
    let mut warnings = Vec::new();
    if let Some(name) = manager.dead_letter_queue.as_ref().filter(|name| missing(name)) {
        warnings.push(format!("dead-letter queue {name} does not exist yet"));
    }
    if let Some(name) = &manager.default_transmission_queue {
        warnings.extend(no_transmission_queue(name, definitions));
    }
    warnings
}

/// DISPLAY QMGR.
pub(crate) fn row(statement: &Statement, manager: &QueueManager) -> Row {
    let mut row = Row::default();
    row.push(NAME_OF_MANAGER.keyword, Cell::Text(manager.name.clone()));
    for attribute in wanted(statement, false) {
        if let Some(cell) = manager.cell(attribute.key) {
            row.push(attribute.keyword, cell);
        }
    }
    row
}
