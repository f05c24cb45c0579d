//! Moments as text, all in UTC: for logs and events, for the admin language, for reports.

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// 1970, from which all here is counted.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// How AT takes a moment, and reports write it.
const MOMENT_FORM: &str = "%Y-%m-%d %H:%M:%S";

/// `2026-11-21T21:24:55Z` (RFC 3339), from seconds since 1970.
#[must_use]
pub fn rfc3339(seconds: u64) -> String {
    civil(seconds).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-11-21 14:05:09`, from milliseconds since 1970.
#[must_use]
pub fn moment(unix_ms: u64) -> String {
    civil(unix_ms / 1000).strftime(MOMENT_FORM).to_string()
}

/// Reads what [`moment`] writes; none when there is no such time, or none since 1970.
pub fn moment_ms(text: &str) -> Option<u64> {
    let at = DateTime::strptime(MOMENT_FORM, text).ok()?;
    // Signs, spaces and missing zeros are read too, and never written.
    (at.strftime(MOMENT_FORM).to_string() == text).then_some(())?;
    u64::try_from(at.duration_since(EPOCH).as_millis()).ok()
}

/// `2026-11-21`, as QSTATUS writes it, from milliseconds since 1970.
pub fn date(unix_ms: u64) -> String {
    civil(unix_ms / 1000).strftime("%Y-%m-%d").to_string()
}

/// `14.05.09`, as QSTATUS writes it, from milliseconds since 1970.
pub fn time(unix_ms: u64) -> String {
    civil(unix_ms / 1000).strftime("%H.%M.%S").to_string()
}

/// Date and time in UTC; beyond the year 9999, its last moment.
fn civil(seconds: u64) -> DateTime {
    EPOCH.saturating_add(SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_296_295), "2026-11-21T21:24:55Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn dates_and_times_are_utc_in_the_form_of_qstatus() {
        for (unix_ms, expected) in [
            (0, "1970-01-01 00.00.00"),
            (951_782_399_999, "2000-02-28 23.59.59"),
            (951_782_400_000, "2000-02-29 00.00.00"),
            (1_709_251_200_000, "2024-03-01 00.00.00"),
            (4_107_542_399_000, "2100-02-28 23.59.59"),
            (4_107_542_400_000, "2100-03-01 00.00.00"),
        ] {
            assert_eq!(format!("{} {}", date(unix_ms), time(unix_ms)), expected);
            assert_eq!(moment_ms(&expected.replacen('.', ":", 2)), Some(unix_ms / 1000 * 1000));
        }
    }

    #[test]
    fn a_time_that_does_not_exist_is_none() {
        for text in [
            "",
            "2026-11-22",
            "2026-11-22T10:00:00",
            "2026-02-29 10:00:00",
            "2026-06-31 10:00:00",
            "2026-13-01 10:00:00",
            "2026-00-01 10:00:00",
            "2026-01-00 10:00:00",
            "2026-01-01 24:00:00",
            "2026-01-01 10:60:00",
            "2026-01-01 10:00:60",
            "1969-12-31 23:59:59",
            "2026-01-01 10:00:00 ",
            "+026-01-01 10:00:00",
            "2026-01-01 10:00:0é",
        ] {
            assert_eq!(moment_ms(text), None, "{text}");
        }
    }
}
