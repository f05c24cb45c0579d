//! The operator's log: one line an event on standard error, lower case, never a secret or payload.
//!
//! A queue manager writes its lines on a thread of their own: lines come from threads that hold the queues' lock, and
//! the program that reads standard error may stop reading. What does not fit meanwhile is left out, counted and said.

use crate::calendar::rfc3339;
use bulla_device::role::{self, Role};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines that may wait to be written.
const LINES_MAX: usize = 4_096;
/// How long the end of the program waits for the last lines.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(2);

/// How urgent a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something an operator may want to know.
    Note,
    /// Something that went wrong for a user; the queue manager goes on.
    Warn,
    /// Something that needs an operator now.
    Alarm,
}

/// Writes one line.
pub fn line(level: Level, text: fmt::Arguments<'_>) {
    let level = match level {
        Level::Note => "note",
        Level::Warn => "warn",
        Level::Alarm => "alarm",
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let line = format!("{} {level} {}", rfc3339(now.as_secs()), one_line(&text.to_string()));
    if let Some(line) = LINES.take(line) {
        // Standard error may be closed; a queue manager does not stop for that.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
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
}

impl Lines {
    const fn new() -> Self {
        let waiting = Waiting { lines: VecDeque::new(), left_out: 0, is_written: false, is_writing: false };
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
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    format!("{} warn {count} lines were left out: standard error was not read", rfc3339(now.as_secs()))
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

/// Bytes of one line at most: some of it may be a stranger's words.
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

/// `note!("…")`: an operator may want to know.
#[macro_export]
macro_rules! note { ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Note, format_args!($($arg)*)) } }
/// `warn!("…")`: something went wrong for a user.
#[macro_export]
macro_rules! warning { ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Warn, format_args!($($arg)*)) } }
/// `alarm!("…")`: an operator is needed now.
#[macro_export]
macro_rules! alarm { ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Alarm, format_args!($($arg)*)) } }

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, LINES_MAX, Lines, one_line};
    use std::io::{self, Write};
    use std::sync::mpsc;
    use std::time::Duration;

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
    fn a_strangers_words_stay_on_one_line() {
        assert_eq!(one_line("a\n2026 alarm \u{1b}[2J"), "a\\n2026 alarm \\u{1b}[2J");
        assert!(one_line(&"x".repeat(100_000)).len() <= LINE_BYTES_MAX + 4);
    }
}
