//! Spans of time, as they are typed: `7d`, `12h`.

use std::time::Duration;

/// The longest: ten years.
const SPAN_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// Reads a time of at most 3,650 days, as 7d, 12h, 30m, 10s; a number alone is of seconds.
///
/// # Errors
/// What was expected, in words.
pub fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = match text.get(digits.len()..) {
        Some("" | "s") => 1,
        Some("m") => 60,
        Some("h") => 3_600,
        Some("d") => 86_400,
        _ => 0,
    };
    let seconds = digits.parse::<u64>().ok().filter(|_| unit > 0).and_then(|number| number.checked_mul(unit));
    let span = seconds.map(Duration::from_secs).filter(|span| *span <= SPAN_MAX);
    span.ok_or_else(|| "expected a time up to 3650d, as 7d, 12h, 30m or 10s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_unit_and_an_end() {
        let seconds = |text: &str| span(text).map(|span| span.as_secs());
        assert_eq!(seconds("7d"), Ok(7 * 86_400));
        assert_eq!(
            (seconds("12h"), seconds("30m"), seconds("10s"), seconds("0")),
            (Ok(43_200), Ok(1_800), Ok(10), Ok(0))
        );
        for bad in ["", "d", "7w", "-1d", "3651d", "99999999999999999999d", "1 d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
