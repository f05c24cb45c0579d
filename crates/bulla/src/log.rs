//! The operator's log: one line an event on standard error, lower case, never a secret or payload.

use std::fmt;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

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
    // Standard error may be closed; a queue manager does not stop for that.
    let _ = writeln!(std::io::stderr().lock(), "{} {level} {}", utc(now.as_secs()), one_line(&text.to_string()));
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

/// A moment as `2026-11-21T21:24:55Z` (RFC 3339), from seconds since the epoch.
#[must_use]
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from a day count, by 400-year eras that begin on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
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
    use super::{LINE_BYTES_MAX, one_line, utc};

    #[test]
    fn a_strangers_words_stay_on_one_line() {
        assert_eq!(one_line("a\n2026 alarm \u{1b}[2J"), "a\\n2026 alarm \\u{1b}[2J");
        assert!(one_line(&"x".repeat(100_000)).len() <= LINE_BYTES_MAX + 4);
    }

    #[test]
    fn moments_read_as_rfc_3339() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_296_295), "2026-11-21T21:24:55Z");
    }
}
