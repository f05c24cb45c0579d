//! Dates: between OpenSSL's and the standard library's, and as text.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use openssl::asn1::{Asn1Time, Asn1TimeRef};

/// A date outside what X.509 or this machine can hold (years 1 to 9999).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTime;

impl fmt::Display for BadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("date out of range")
    }
}

impl std::error::Error for BadTime {}

const DAY_SECS: i64 = 86_400;
const MOMENT_FORM: &str = "%Y-%m-%dT%H:%M:%SZ";
const DAY_FORM: &str = "%Y-%m-%d";
/// 9999-12-31T23:59:59Z, the last moment of RFC 5280.
const LAST_UNIX_SECS: i64 = 253_402_300_799;

pub(crate) fn from_asn1(time: &Asn1TimeRef) -> Result<SystemTime, BadTime> {
    let epoch = Asn1Time::from_unix(0).map_err(|_| BadTime)?;
    let diff = epoch.diff(time).map_err(|_| BadTime)?;
    let seconds = i64::from(diff.days)
        .checked_mul(DAY_SECS)
        .and_then(|days| days.checked_add(i64::from(diff.secs)))
        .ok_or(BadTime)?;
    from_unix(seconds).ok_or(BadTime)
}

/// Whole seconds; a fraction is dropped.
pub(crate) fn to_asn1(time: SystemTime) -> Result<Asn1Time, BadTime> {
    let seconds = unix(time);
    if !(0..=LAST_UNIX_SECS).contains(&seconds) {
        return Err(BadTime);
    }
    Asn1Time::from_unix(seconds).map_err(|_| BadTime)
}

/// Seconds since 1970, rounded down; saturating.
pub(crate) fn unix(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let up = u64::from(before.subsec_nanos() > 0);
            i64::try_from(before.as_secs().saturating_add(up)).map_or(i64::MIN, |secs| -secs)
        }
    }
}

pub(crate) fn from_unix(seconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

/// A moment as `2026-11-21T21:34:45Z`.
pub fn utc(time: SystemTime) -> String {
    civil(unix(time)).strftime(MOMENT_FORM).to_string()
}

/// The moment that a text names: `2026-11-21T21:34:45Z`, `2026-11-21` for its midnight, or seconds since 1970.
pub fn utc_time(text: &str) -> Option<SystemTime> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return from_unix(text.parse().ok()?);
    }
    let midnight = || Date::strptime(DAY_FORM, text).map(|day| day.at(0, 0, 0, 0));
    let at = DateTime::strptime(MOMENT_FORM, text).or_else(|_| midnight()).ok()?;
    // Signs, spaces and missing zeros are read too, and never written.
    let is_written_so = [MOMENT_FORM, DAY_FORM].iter().any(|form| at.strftime(form).to_string() == text);
    is_written_so.then(|| from_unix(from_civil(at)))?
}

/// 1970, from which seconds are counted. Dates are reckoned without a time zone: jiff's moments end a day before the
/// year 9999 does, and a certificate without a well-known end has that year's last second (RFC 5280, section 4.1.2.5).
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Seconds since 1970 as date and time in UTC; what a calendar of four digits can't hold is its first or last moment.
pub(crate) fn civil(seconds: i64) -> DateTime {
    EPOCH.saturating_add(SignedDuration::from_secs(seconds))
}

/// Date and time in UTC as seconds since 1970.
pub(crate) fn from_civil(at: DateTime) -> i64 {
    at.duration_since(EPOCH).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_296_885, "2026-11-21T21:34:45Z"),
            (LAST_UNIX_SECS, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(from_unix(seconds).unwrap()), text);
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 951_782_400, 1_795_296_885, 4_102_444_799, LAST_UNIX_SECS] {
            let time = from_unix(seconds);
            assert_eq!(utc_time(&utc(time.unwrap())), time);
            assert_eq!(utc_time(&seconds.to_string()), time);
        }
        assert_eq!(utc_time("2026-11-21"), from_unix(1_795_219_200));
        for bad in ["", "2026-02-30x", "2026-02-30", "2026-13-01", "2026-1-1", "2026-11-21T21:34Z", "-1"] {
            assert_eq!(utc_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_survive_openssl() {
        for seconds in [0, 1, 1_795_296_885, 4_000_000_000, LAST_UNIX_SECS] {
            let time = from_unix(seconds).unwrap();
            assert_eq!(from_asn1(&to_asn1(time).unwrap()).unwrap(), time);
        }
        assert_eq!(to_asn1(from_unix(LAST_UNIX_SECS + 1).unwrap()).err(), Some(BadTime));
    }
}
