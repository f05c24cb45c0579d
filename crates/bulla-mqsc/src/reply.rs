//! What a command answers: as rows an administrator knows, or as JSON.

use super::parse::Position;
use serde_json::{Map, Value as Json, json};
use std::fmt::{self, Display, Write};

/// Every command did what it says.
pub const EXIT_DONE: u8 = 0;
/// At least one command was not understood, and none was refused.
pub const EXIT_INVALID: u8 = bulla_catalog::exit_codes::EXIT_USAGE;
/// At least one command was understood and refused.
pub const EXIT_REFUSED: u8 = bulla_catalog::exit_codes::EXIT_REFUSED;

/// Width of the first of two columns.
const COLUMN_CHARS: usize = 40;
/// Blanks before a row's second and further lines.
const INDENT: &str = "   ";

/// The answer to one command.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Where the command, or its fault, stands in the text.
    pub at: Position,
    /// The command as it was understood; empty when it was not.
    pub command: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What should be seen to whatever came of it; one line each.
    pub warnings: Vec<String>,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was carried out.
    Done {
        /// One line.
        message: String,
        /// What should be seen to; one line each.
        warnings: Vec<String>,
    },
    /// DISPLAY: one for each object.
    Rows(Vec<Row>),
    /// HELP.
    Help(String),
    /// It was not carried out, and nothing was changed.
    Failed(Failure),
}

/// One object: keywords and values in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// (keyword, value)
    pub cells: Vec<(String, Cell)>,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number.
    Number(u64),
    /// A word, name or text; empty when there is none.
    Text(String),
    /// A short and a long average.
    Pair(u64, u64),
    /// Several.
    List(Vec<String>),
}

impl Cell {
    /// Roughly, with its keyword's own.
    fn bytes(&self) -> usize {
        let texts = match self {
            Cell::Number(_) | Cell::Pair(..) => 0,
            Cell::Text(text) => text.len(),
            Cell::List(list) => list.iter().map(|text| text.len() + size_of::<String>()).sum(),
        };
        texts + size_of::<(String, Self)>()
    }

    pub(super) fn word(word: &str) -> Self {
        Cell::Text(word.into())
    }
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Whether it was understood.
    pub kind: FailureKind,
    /// The reason code, where MQ has one.
    pub reason: Option<u32>,
    /// One lower-case line.
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
}

/// Whose turn it is after a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FailureKind {
    /// The command is wrong whatever the state of things: its writer's turn.
    Invalid,
    /// The command is good, but not now or not here: the administrator's turn.
    Refused,
}

/// Names of the reason codes that an admin command can answer: MQ's `MQRC_…`, and `MQRCCF_…` from 3000 on.
const REASONS: &[(u32, &str)] = &[
    (2009, "MQRC_CONNECTION_BROKEN"),
    (2025, "MQRC_MAX_CONNS_LIMIT_REACHED"),
    (2035, "MQRC_NOT_AUTHORIZED"),
    (2042, "MQRC_OBJECT_IN_USE"),
    (2043, "MQRC_OBJECT_TYPE_ERROR"),
    (2045, "MQRC_OPTION_NOT_VALID_FOR_TYPE"),
    (2055, "MQRC_Q_NOT_EMPTY"),
    (2056, "MQRC_Q_SPACE_NOT_AVAILABLE"),
    (2063, "MQRC_SECURITY_ERROR"),
    (2071, "MQRC_STORAGE_NOT_AVAILABLE"),
    (2082, "MQRC_UNKNOWN_ALIAS_BASE_Q"),
    (2085, "MQRC_UNKNOWN_OBJECT_NAME"),
    (2087, "MQRC_UNKNOWN_REMOTE_Q_MGR"),
    (2091, "MQRC_XMIT_Q_TYPE_ERROR"),
    (2092, "MQRC_XMIT_Q_USAGE_ERROR"),
    (2102, "MQRC_RESOURCE_PROBLEM"),
    (2162, "MQRC_Q_MGR_STOPPING"),
    (2184, "MQRC_REMOTE_Q_NAME_ERROR"),
    (2195, "MQRC_UNEXPECTED_ERROR"),
    (2196, "MQRC_UNKNOWN_XMIT_Q"),
    (2197, "MQRC_UNKNOWN_DEF_XMIT_Q"),
    (2198, "MQRC_DEF_XMIT_Q_TYPE_ERROR"),
    (2199, "MQRC_DEF_XMIT_Q_USAGE_ERROR"),
    (2218, "MQRC_MSG_TOO_BIG_FOR_CHANNEL"),
    (2260, "MQRC_XQH_ERROR"),
    (2277, "MQRC_CD_ERROR"),
    (2292, "MQRC_UNKNOWN_ENTITY"),
    (2345, "MQRC_CF_NOT_AVAILABLE"),
    (2393, "MQRC_SSL_INITIALIZATION_ERROR"),
    (2398, "MQRC_SSL_PEER_NAME_MISMATCH"),
    (2399, "MQRC_SSL_PEER_NAME_ERROR"),
    (2400, "MQRC_UNSUPPORTED_CIPHER_SUITE"),
    (2401, "MQRC_SSL_CERTIFICATE_REVOKED"),
    (2402, "MQRC_SSL_CERT_STORE_ERROR"),
    (2537, "MQRC_CHANNEL_NOT_AVAILABLE"),
    (2538, "MQRC_HOST_NOT_AVAILABLE"),
    (2539, "MQRC_CHANNEL_CONFIG_ERROR"),
    (2540, "MQRC_UNKNOWN_CHANNEL_NAME"),
    (3200, "MQRCCF_NONE_FOUND"),
    (3337, "MQRCCF_CHLAUTH_ALREADY_EXISTS"),
    (3338, "MQRCCF_CHLAUTH_NOT_FOUND"),
    (4001, "MQRCCF_OBJECT_ALREADY_EXISTS"),
    (4009, "MQRCCF_ALLOCATE_FAILED"),
    (4010, "MQRCCF_HOST_NOT_AVAILABLE"),
    (4012, "MQRCCF_CONNECTION_REFUSED"),
    (4014, "MQRCCF_SEND_FAILED"),
    (4015, "MQRCCF_RECEIVED_DATA_ERROR"),
    (4016, "MQRCCF_RECEIVE_FAILED"),
    (4017, "MQRCCF_CONNECTION_CLOSED"),
    (4025, "MQRCCF_CHANNEL_INDOUBT"),
    (4030, "MQRCCF_PING_ERROR"),
    (4031, "MQRCCF_CHANNEL_IN_USE"),
    (4032, "MQRCCF_CHANNEL_NOT_FOUND"),
    (4033, "MQRCCF_UNKNOWN_REMOTE_CHANNEL"),
    (4034, "MQRCCF_REMOTE_QM_UNAVAILABLE"),
    (4035, "MQRCCF_REMOTE_QM_TERMINATING"),
    (4037, "MQRCCF_NOT_XMIT_Q"),
    (4038, "MQRCCF_CHANNEL_DISABLED"),
    (4041, "MQRCCF_WRONG_CHANNEL_TYPE"),
    (4042, "MQRCCF_CHANNEL_ALREADY_EXISTS"),
    (4064, "MQRCCF_CHANNEL_NOT_ACTIVE"),
    (4090, "MQRCCF_CHANNEL_CLOSED"),
    (4092, "MQRCCF_SSL_CIPHER_SPEC_ERROR"),
    (4093, "MQRCCF_SSL_PEER_NAME_ERROR"),
    (4094, "MQRCCF_SSL_CLIENT_AUTH_ERROR"),
];

/// MQ's name of a reason code, if an admin command can answer it.
pub fn reason_name(reason: u32) -> Option<&'static str> {
    REASONS.iter().find(|(code, _)| *code == reason).map(|(_, name)| *name)
}

/// `2055 MQRC_Q_NOT_EMPTY queue ORDERS holds 3 messages`
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = self.reason {
            write!(f, "{reason} ")?;
            if let Some(name) = reason_name(reason) {
                write!(f, "{name} ")?;
            }
        }
        f.write_str(&self.message)
    }
}

impl Reply {
    /// The exit code that this answer asks for; a program exits with the highest of all.
    pub fn exit_code(&self) -> u8 {
        match &self.outcome {
            Outcome::Failed(Failure { kind: FailureKind::Invalid, .. }) => EXIT_INVALID,
            Outcome::Failed(_) => EXIT_REFUSED,
            _ => EXIT_DONE,
        }
    }

    /// Roughly what it takes to hold what is shown, in bytes.
    pub(super) fn shown_bytes(&self) -> usize {
        match &self.outcome {
            Outcome::Rows(rows) => {
                rows.iter().flat_map(|row| &row.cells).map(|(key, cell)| key.len() + cell.bytes()).sum()
            }
            Outcome::Help(text) => text.len(),
            Outcome::Done { .. } | Outcome::Failed(_) => 0,
        }
    }

    /// What goes to the standard output; ends with a newline unless empty.
    pub fn text(&self) -> String {
        match &self.outcome {
            Outcome::Done { message, .. } => format!("{message}\n"),
            Outcome::Rows(rows) => rows.iter().map(Row::text).collect(),
            Outcome::Help(text) => text.clone(),
            Outcome::Failed(_) => String::new(),
        }
    }

    /// What goes to the standard error output, a line each. `file` names the text when places in it help.
    pub fn diagnostics(&self, file: Option<&str>) -> Vec<String> {
        let place = file.map_or(String::new(), |file| format!("{file}:{}:{}: ", self.at.line, self.at.column));
        let warned = self.all_warnings().map(|warning| format!("bulla: warning: {place}{warning}"));
        let said = match &self.outcome {
            Outcome::Failed(failure) => {
                let mut lines = vec![format!("bulla: error: {place}{failure}")];
                lines.extend(failure.hint.iter().map(|hint| format!("bulla: hint: {hint}")));
                lines
            }
            Outcome::Rows(rows) if rows.is_empty() => vec![format!("bulla: {place}{}: nothing found", self.command)],
            _ => Vec::new(),
        };
        warned.chain(said).collect()
    }

    /// What should be seen to: of what came of it, and besides.
    pub fn all_warnings(&self) -> impl Iterator<Item = &String> {
        let own: &[String] = match &self.outcome {
            Outcome::Done { warnings, .. } => warnings,
            _ => &[],
        };
        own.iter().chain(&self.warnings)
    }

    /// The answer as JSON: what `--json` prints and what goes over the socket.
    ///
    /// Always there: `line`, `column`, `command`, `ok`. Then one of `message` with `warnings`; `objects`, each a map of
    /// keywords in lower case; `help`; `error` with `kind`, `message`, and where there is one `reason`, `name`, `hint`.
    /// Any of these may come with `warnings`.
    pub fn to_json(&self) -> Json {
        let mut map = Map::new();
        map.insert("line".into(), self.at.line.into());
        map.insert("column".into(), self.at.column.into());
        map.insert("command".into(), self.command.clone().into());
        map.insert("ok".into(), (!matches!(self.outcome, Outcome::Failed(_))).into());
        let warnings: Vec<&String> = self.all_warnings().collect();
        if !warnings.is_empty() || matches!(self.outcome, Outcome::Done { .. }) {
            map.insert("warnings".into(), json!(warnings));
        }
        match &self.outcome {
            Outcome::Done { message, .. } => {
                map.insert("message".into(), message.clone().into());
            }
            Outcome::Rows(rows) => {
                map.insert("objects".into(), rows.iter().map(Row::to_json).collect());
            }
            Outcome::Help(text) => {
                map.insert("help".into(), text.clone().into());
            }
            Outcome::Failed(failure) => {
                let mut error = Map::new();
                let kind = match failure.kind {
                    FailureKind::Invalid => "invalid",
                    FailureKind::Refused => "refused",
                };
                error.insert("kind".into(), kind.into());
                if let Some(reason) = failure.reason {
                    error.insert("reason".into(), reason.into());
                    error.insert("name".into(), json!(reason_name(reason)));
                }
                error.insert("message".into(), failure.message.clone().into());
                if let Some(hint) = &failure.hint {
                    error.insert("hint".into(), hint.clone().into());
                }
                map.insert("error".into(), error.into());
            }
        }
        map.into()
    }

    /// Reads [`Reply::to_json`]'s form; none when it is something else.
    pub fn from_json(json: &Json) -> Option<Self> {
        let text = |json: &Json, key: &str| json.get(key).and_then(Json::as_str).map(String::from);
        let number = |key| json.get(key).and_then(Json::as_u64).and_then(|number| u32::try_from(number).ok());
        let mut warnings: Vec<String> = match json.get("warnings") {
            Some(warnings) => warnings.as_array()?.iter().filter_map(Json::as_str).map(String::from).collect(),
            None => Vec::new(),
        };
        let outcome = if let Some(message) = text(json, "message") {
            Outcome::Done { message, warnings: std::mem::take(&mut warnings) }
        } else if let Some(rows) = json.get("objects") {
            Outcome::Rows(rows.as_array()?.iter().map(Row::from_json).collect::<Option<_>>()?)
        } else if let Some(help) = text(json, "help") {
            Outcome::Help(help)
        } else {
            let error = json.get("error")?;
            let kind = match error.get("kind")?.as_str()? {
                "invalid" => FailureKind::Invalid,
                "refused" => FailureKind::Refused,
                _ => return None,
            };
            let reason = error.get("reason").and_then(Json::as_u64).and_then(|reason| u32::try_from(reason).ok());
            Outcome::Failed(Failure { kind, reason, message: text(error, "message")?, hint: text(error, "hint") })
        };
        let at = Position { line: number("line")?, column: number("column")? };
        Some(Self { at, command: text(json, "command")?, outcome, warnings })
    }
}

/// What a command line shows of many answers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Shown {
    /// For the standard output.
    pub stdout: String,
    /// For the standard error output.
    pub stderr: String,
    /// The highest that any answer asks for.
    pub exit_code: u8,
}

/// Shows answers as text, or as one JSON array. `file` names the text in front of each diagnostic.
pub fn show(replies: &[Reply], as_json: bool, file: Option<&str>) -> Shown {
    let exit_code = replies.iter().map(Reply::exit_code).max().unwrap_or(EXIT_DONE);
    if as_json {
        let json: Json = replies.iter().map(Reply::to_json).collect();
        return Shown { stdout: format!("{json:#}\n"), stderr: String::new(), exit_code };
    }
    let stdout = replies.iter().map(Reply::text).collect();
    let lines = replies.iter().flat_map(|reply| reply.diagnostics(file));
    let stderr = lines.flat_map(|line| [line, "\n".into()]).collect();
    Shown { stdout, stderr, exit_code }
}

impl Row {
    pub(super) fn push(&mut self, keyword: &str, cell: Cell) {
        self.cells.push((keyword.into(), cell));
    }

    /// Two columns of `KEYWORD(value)`, the object's name in the first line. A list gives one for each entry.
    fn text(&self) -> String {
        let mut shown: Vec<String> = Vec::new();
        for (keyword, cell) in &self.cells {
            match cell {
                // A policy's ENFORCE or TOLERATE, and a queue's TRIGGER, NOTRIGGER, SHARE and NOSHARE, are written as
                // the bare word.
                Cell::Text(word) if ["TOLERATION", "TRIGGER", "SHARE"].contains(&keyword.as_str()) => {
                    shown.push(word.clone())
                }
                Cell::Text(text) if text.is_empty() => shown.push(format!("{keyword}( )")),
                Cell::Text(text) => shown.push(format!("{keyword}({text})")),
                Cell::Number(number) => shown.push(format!("{keyword}({number})")),
                Cell::Pair(short, long) => shown.push(format!("{keyword}({short},{long})")),
                Cell::List(list) if list.is_empty() => shown.push(format!("{keyword}( )")),
                Cell::List(list) => shown.extend(list.iter().map(|entry| format!("{keyword}({entry})"))),
            }
        }
        let mut text = String::new();
        let mut column = 0;
        for (index, cell) in shown.iter_mut().enumerate() {
            if cell.chars().any(char::is_control) {
                // Words of unauthenticated clients are among them: a terminal must not interpret them.
                *cell = escaped(cell);
            }
            let chars = cell.chars().count();
            let fits = column == 1 && chars < COLUMN_CHARS;
            if index > 0 && !fits {
                trim_line(&mut text);
                text.push_str(INDENT);
                column = 0;
            }
            if chars < COLUMN_CHARS && column == 0 {
                let _ = write!(text, "{cell:COLUMN_CHARS$}"); // into a string: cannot fail
                column = 1;
            } else {
                text.push_str(cell);
                column = 2;
            }
        }
        trim_line(&mut text);
        text
    }

    /// Its values, by keyword in lower case: JSON spells all names so.
    pub fn to_json(&self) -> Json {
        self.to_map().into_iter().map(|(keyword, value)| (keyword.to_ascii_lowercase(), value)).collect()
    }

    /// Its values, by keyword as MQSC writes it.
    pub fn to_map(&self) -> Map<String, Json> {
        let cell = |cell: &Cell| match cell {
            Cell::Number(number) => Json::from(*number),
            Cell::Text(text) => Json::from(text.clone()),
            Cell::Pair(short, long) => json!([short, long]),
            Cell::List(list) => Json::from(list.clone()),
        };
        self.cells.iter().map(|(keyword, value)| (keyword.clone(), cell(value))).collect()
    }

    fn from_json(json: &Json) -> Option<Self> {
        let cell = |json: &Json| match json {
            Json::Number(number) => number.as_u64().map(Cell::Number),
            Json::String(text) => Some(Cell::Text(text.clone())),
            Json::Array(list) if list.first().is_some_and(Json::is_number) => match list.as_slice() {
                [short, long] => Some(Cell::Pair(short.as_u64()?, long.as_u64()?)),
                _ => None,
            },
            Json::Array(list) => {
                list.iter().map(|entry| entry.as_str().map(String::from)).collect::<Option<_>>().map(Cell::List)
            }
            _ => None,
        };
        let cells = json.as_object()?.iter().map(|(keyword, value)| Some((keyword.to_ascii_uppercase(), cell(value)?)));
        Some(Self { cells: cells.collect::<Option<_>>()? })
    }
}

/// Control characters as `\u{1b}`.
fn escaped(text: &str) -> String {
    let one = |letter: char| if letter.is_control() { letter.escape_default().collect() } else { String::from(letter) };
    text.chars().map(one).collect()
}

fn trim_line(text: &mut String) {
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_the_socket() {
        let mut row = Row::default();
        row.push("QUEUE", Cell::word("ORDERS"));
        row.push("MAXDEPTH", Cell::Number(5000));
        row.push("RECIP", Cell::List(vec!["CN=a".into(), "CN=b".into()]));
        row.push("XQTIME", Cell::Pair(u64::MAX, 0));
        let failure =
            |reason, hint| Outcome::Failed(Failure { kind: FailureKind::Refused, reason, message: "no".into(), hint });
        let outcomes = [
            Outcome::Done { message: "queue A defined".into(), warnings: vec!["look out".into()] },
            Outcome::Rows(vec![row, Row::default()]),
            Outcome::Rows(Vec::new()),
            Outcome::Help("HELP\n".into()),
            failure(Some(2055), None),
            failure(None, Some("try".into())),
        ];
        for outcome in outcomes {
            let at = Position { line: 3, column: 14 };
            let mut reply = Reply { at, command: "X".into(), outcome, warnings: Vec::new() };
            assert_eq!(Reply::from_json(&reply.to_json()), Some(reply.clone()));
            if !matches!(reply.outcome, Outcome::Done { .. }) {
                reply.warnings = vec!["the disk is full".into()];
                assert_eq!(Reply::from_json(&reply.to_json()), Some(reply.clone()));
                assert!(reply.diagnostics(None).contains(&"bulla: warning: the disk is full".to_owned()));
            }
        }
        assert_eq!(Reply::from_json(&json!({"ok": true})), None);
    }

    #[test]
    fn rows_stand_in_two_columns_and_long_values_alone() {
        let mut row = Row::default();
        row.push("POLICY", Cell::word("ORDERS"));
        row.push("SIGNALG", Cell::word("SHA256"));
        row.push("RECIP", Cell::List(vec!["CN=a".into(), format!("CN={}", "b".repeat(40))]));
        row.push("TOLERATION", Cell::word("ENFORCE"));
        row.push("BINDNAME", Cell::List(Vec::new()));
        let long = format!("   RECIP(CN={})", "b".repeat(40));
        let expected = [
            "POLICY(ORDERS)                          SIGNALG(SHA256)",
            "   RECIP(CN=a)",
            &long,
            "   ENFORCE                                 BINDNAME( )",
            "",
        ];
        assert_eq!(row.text(), expected.join("\n"));
    }

    #[test]
    fn reasons_are_sorted_and_named_once() {
        assert!(REASONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for reason in bulla_catalog::reason::ALL {
            if let Some(name) = reason_name(reason.code.into()) {
                assert_eq!(name.strip_prefix("MQRC_"), Some(reason.name));
            }
        }
    }

    #[test]
    fn a_terminal_does_not_follow_what_is_shown() {
        let mut row = Row::default();
        row.push("DETAILS", Cell::word("a\u{1b}[2J\nb\u{9b}é"));
        assert_eq!(row.text(), "DETAILS(a\\u{1b}[2J\\nb\\u{9b}é)\n");
    }
}
