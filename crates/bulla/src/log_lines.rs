//! The lines of the operator's log: one an event on standard error, lower case, never a secret or payload.
//!
//! Events are those of `tracing`. A line is text (time, level, message) or JSON, which has the event's fields as well.
//! A queue manager writes its lines on a thread of their own: lines come from threads that hold the queues' lock, and
//! the program that reads standard error may stop reading. What does not fit meanwhile is left out, counted and said.

use crate::calendar::rfc3339;
use bulla_device::role::{self, Role};
use clap::ValueEnum;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Lines that may wait to be written.
const LINES_MAX: usize = 4_096;
/// How long the end of the program waits for the last lines.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(2);

/// How urgent a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Something an operator may want to know
    Note,
    /// Something that went wrong for a user; the queue manager goes on
    Warn,
    /// Something that needs an operator now
    Alarm,
}

impl Level {
    /// The word that a line has for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Warn => "warn",
            Level::Alarm => "alarm",
        }
    }

    fn of(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Level::Alarm,
            tracing::Level::WARN => Level::Warn,
            _ => Level::Note,
        }
    }

    /// What lets this level through, and what is more urgent.
    const fn filter(self) -> LevelFilter {
        match self {
            Level::Note => LevelFilter::INFO,
            Level::Warn => LevelFilter::WARN,
            Level::Alarm => LevelFilter::ERROR,
        }
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Time, level and message
    #[default]
    Text,
    /// A JSON object with time, level, message, and what the event is about
    Json,
}

impl Format {
    /// A line, without its line feed.
    fn line(self, level: Level, Said { message, fields }: Said) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (time, level) = (rfc3339(now.as_secs()), level.as_str());
        match self {
            Format::Text => format!("{time} {level} {message}"),
            Format::Json => {
                let head = [("time", time), ("level", level.to_owned()), ("message", message)];
                let head = head.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text)));
                Value::Object(head.chain(fields).collect()).to_string()
            }
        }
    }
}

/// What an event says: a message on one line, and its fields.
#[derive(Default)]
struct Said {
    message: String,
    fields: Map<String, Value>,
}

impl Said {
    fn take(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = one_line(&format!("{value:?}"));
        if field.name() == "message" { self.message = text } else { self.take(field, text) }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, one_line(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value);
    }
}

/// Makes a line of each event.
struct Log {
    format: Format,
    lines: &'static Lines,
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        if let Some(line) = self.lines.take(self.format.line(Level::of(*event.metadata().level()), said)) {
            // Standard error may be closed; a queue manager does not stop for that.
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    }
}

/// Lines are written in this format from now on, those of at least this level. A later call changes nothing.
pub fn begin(format: Format, level: Level) {
    LINES.lock().format = format;
    crate::log::before_exit(|| LINES.finish(LAST_LINES_WITHIN));
    // What libraries say of themselves tells an operator nothing.
    let log = Log { format, lines: &LINES }.with_filter(filter_fn(|metadata| metadata.target().starts_with("bulla")));
    // Fails where a program that has this library as a part has a subscriber of its own, which gets the events then.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(level.filter()).with(log));
}

/// The lines of this program.
static LINES: Lines = Lines::new();

/// Lines on their way to a writer that may be slow.
struct Lines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    lines: VecDeque<String>,
    /// Lines that there was no room for, since that was last said.
    left_out: u64,
    /// A thread writes them.
    is_written: bool,
    /// That thread has a line in its hands.
    is_writing: bool,
    /// Of the line that says what was left out.
    format: Format,
}

impl Lines {
    const fn new() -> Self {
        let format = Format::Text;
        let waiting = Waiting { lines: VecDeque::new(), left_out: 0, is_written: false, is_writing: false, format };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line for the thread that writes; never waits for it. Gives it back where there is no such thread.
    fn take(&self, line: String) -> Option<String> {
        let mut waiting = self.lock();
        if !waiting.is_written {
            return Some(line);
        }
        if waiting.lines.len() < LINES_MAX {
            waiting.lines.push_back(line);
            self.changed.notify_all();
        } else {
            waiting.left_out += 1;
        }
        None
    }

    /// Writes lines until [`Self::finish`] ends it.
    fn write(&self, mut out: impl Write) {
        loop {
            let mut waiting = self.lock();
            waiting.is_writing = false;
            self.changed.notify_all();
            while waiting.lines.is_empty() && waiting.left_out == 0 && waiting.is_written {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            // What was left out came behind all that waits.
            let line = match (waiting.lines.pop_front(), waiting.left_out) {
                (Some(line), _) => line,
                (None, 0) => return,
                (None, count) => {
                    waiting.left_out = 0;
                    let message = format!("{count} lines were left out: standard error was not read");
                    let fields = Map::from_iter([("lines".to_owned(), count.into())]);
                    waiting.format.line(Level::Warn, Said { message, fields })
                }
            };
            waiting.is_writing = true;
            drop(waiting);
            let _ = writeln!(out, "{line}");
        }
    }

    /// Waits for the last lines, but not longer than `within`. Lines that come later are written where they come from,
    /// unless nothing is read: then they are left out.
    fn finish(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let mut waiting = self.lock();
        while !waiting.lines.is_empty() || waiting.left_out > 0 || waiting.is_writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.is_written = false;
        self.changed.notify_all();
    }
}

/// While it lives, lines are written by a thread of their own. At its end the last ones are waited for.
#[derive(Debug)]
#[must_use]
pub struct Background(());

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start() -> io::Result<Self> {
        LINES.lock().is_written = true;
        let begun = std::thread::Builder::new().name("log".into()).spawn(|| {
            role::begin(Role::Administration);
            LINES.write(io::stderr());
        });
        if let Err(error) = begun {
            LINES.lock().is_written = false;
            return Err(error);
        }
        Ok(Self(()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        LINES.finish(LAST_LINES_WITHIN);
    }
}

/// Bytes of one line at most: some of it may come from unauthenticated clients.
const LINE_BYTES_MAX: usize = 1024;

/// The text on one line: what a peer says can't pass for a line of its own.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if line.len() >= LINE_BYTES_MAX {
            line.push('…');
            break;
        }
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Format, LINE_BYTES_MAX, LINES_MAX, Level, Lines, Log, one_line};
    use serde_json::{Value, json};
    use std::io::{self, Write};
    use std::sync::mpsc;
    use std::time::Duration;
    use tracing_subscriber::layer::SubscriberExt;

    /// The lines of what is done, without their times.
    fn lines_of(format: Format, level: Level, done: impl FnOnce()) -> Vec<String> {
        let lines: &'static Lines = Box::leak(Box::new(Lines::new()));
        lines.lock().is_written = true;
        let subscriber = tracing_subscriber::registry().with(level.filter()).with(Log { format, lines });
        tracing::subscriber::with_default(subscriber, done);
        lines.lock().lines.drain(..).collect()
    }

    fn three_events() {
        let hostile = "a\n2026 alarm \u{1b}[2J";
        crate::note!(queue = "ORDERS", depth = 7_u64, "queue {} is deep", "ORDERS");
        crate::warning!(user = Some("miller"), channel = None::<&str>, why = %hostile, "refused: {hostile}");
        crate::alarm!(messages = -1_i64, full = true, "stopping");
    }

    #[test]
    fn a_line_of_text_is_time_level_and_message() {
        let lines = lines_of(Format::Text, Level::Note, three_events);
        let said: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
        let refused = "warn refused: a\\n2026 alarm \\u{1b}[2J";
        assert_eq!(said, ["note queue ORDERS is deep", refused, "alarm stopping"]);
    }

    #[test]
    fn a_line_of_json_has_the_fields_beside_the_message() {
        let lines = lines_of(Format::Json, Level::Note, three_events);
        let objects = lines.iter().map(|line| {
            let mut object: Value = serde_json::from_str(line).unwrap();
            assert!(line.starts_with("{\"time\":\"20") && !line.contains('\n'), "{line}");
            object.as_object_mut().unwrap().remove("time");
            object
        });
        let hostile = "a\\n2026 alarm \\u{1b}[2J";
        assert_eq!(
            objects.collect::<Vec<_>>(),
            [
                json!({ "level": "note", "message": "queue ORDERS is deep", "queue": "ORDERS", "depth": 7 }),
                json!({
                    "level": "warn", "message": format!("refused: {hostile}"), "user": "miller", "why": hostile,
                }),
                json!({ "level": "alarm", "message": "stopping", "messages": -1, "full": true }),
            ]
        );
    }

    #[test]
    fn lines_below_the_level_are_not_written() {
        for (level, written) in [(Level::Note, 3), (Level::Warn, 2), (Level::Alarm, 1)] {
            assert_eq!(lines_of(Format::Text, level, three_events).len(), written, "{level:?}");
        }
    }

    /// Tells of each line, and goes on with it only when it is let.
    struct Slow {
        line: Vec<u8>,
        begun: mpsc::Sender<String>,
        go_on: mpsc::Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.line.extend_from_slice(bytes);
            if self.line.ends_with(b"\n") {
                self.begun.send(String::from_utf8(std::mem::take(&mut self.line)).unwrap()).unwrap();
                // An error says that nothing holds it up any more.
                let _ = self.go_on.recv();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_reading_holds_up_no_line_and_hears_how_many_are_missing() {
        let lines = Lines::new();
        assert_eq!(lines.take("no thread".into()), Some("no thread".into()));
        lines.lock().is_written = true;
        let (begun, told) = mpsc::channel();
        let (let_on, go_on) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| lines.write(Slow { line: Vec::new(), begun, go_on }));
            assert_eq!(lines.take("first".into()), None);
            assert_eq!(told.recv().unwrap(), "first\n");
            // The first one is held up: as many as fit wait, and the rest is counted.
            for number in 0..LINES_MAX + 7 {
                assert_eq!(lines.take(number.to_string()), None);
            }
            lines.finish(Duration::ZERO);
            drop(let_on);
            lines.finish(Duration::from_secs(60));
        });
        let written: Vec<String> = told.try_iter().collect();
        assert_eq!(written.len(), LINES_MAX + 1);
        assert_eq!(written[LINES_MAX - 1], format!("{}\n", LINES_MAX - 1));
        assert!(
            written[LINES_MAX].ends_with(" warn 7 lines were left out: standard error was not read\n"),
            "{written:?}"
        );
        assert_eq!(lines.take("late".into()), Some("late".into()));
    }

    #[test]
    fn what_a_client_says_stays_on_one_line() {
        assert_eq!(one_line("a\n2026 alarm \u{1b}[2J"), "a\\n2026 alarm \\u{1b}[2J");
        assert!(one_line(&"x".repeat(100_000)).len() <= LINE_BYTES_MAX + 4);
    }
}
