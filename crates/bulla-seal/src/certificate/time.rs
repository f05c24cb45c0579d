//! Dates: between OpenSSL's and the standard library's, and as text.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    let [year, month, day, hour, minute, second] = civil_fields(unix(time));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The moment that a text names: `2026-11-21T21:34:45Z`, `2026-11-21` for its midnight, or seconds since 1970.
pub fn utc_time(text: &str) -> Option<SystemTime> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return from_unix(text.parse().ok()?);
    }
    let (day, clock) = match text.split_once('T') {
        Some((day, clock)) => (day, clock.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let days = days_since_1970(year, month, day);
    let seconds = days * DAY_SECS + hour * 3600 + minute * 60 + second;
    // What is no date, as 30 February, reads back as another one.
    (civil_fields(seconds) == [year, month, day, hour, minute, second]).then(|| from_unix(seconds))?
}

/// Three numbers of so many digits each.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let parts: Vec<&str> = text.split(between).collect();
    let parts = <[&str; 3]>::try_from(parts).ok()?;
    let mut numbers = [0; 3];
    for ((number, part), digits) in numbers.iter_mut().zip(parts).zip(digits) {
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| plain)?;
    }
    Some(numbers)
}

/// The other way round than [`civil`]; any numbers of two digits are taken.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const ERA_DAYS: i64 = 146_097;
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    year.div_euclid(400) * ERA_DAYS + day_of_era - 719_468
}

/// Seconds since 1970 as year, month, day, hour, minute and second in UTC.
pub(crate) fn civil_fields(seconds: i64) -> [i64; 6] {
    let (days, of_day) = (seconds.div_euclid(DAY_SECS), seconds.rem_euclid(DAY_SECS));
    let (year, month, day) = civil(days);
    [year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60]
}

/// Days since 1970 to a date of the Gregorian calendar, counting eras of 400 years from a 1 March,
/// so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    let days = days.saturating_add(719_468); // 1970-01-01 counted from 0000-03-01
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
