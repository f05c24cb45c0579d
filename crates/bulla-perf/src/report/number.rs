//! Numbers as people read them: `12,965`, `124.8`, `0.046`.

/// Beyond this a number is no measurement: it is written with its exponent, and left out of charts.
pub const PLAUSIBLE_MAX: f64 = 1e15;

/// Whether a number can be drawn.
#[must_use]
pub fn is_plausible(number: f64) -> bool {
    number.abs() <= PLAUSIBLE_MAX
}

/// Four digits or so, thousands apart by commas.
#[must_use]
pub fn number(number: f64) -> String {
    let size = number.abs();
    let decimals = match size {
        _ if number.fract() == 0.0 => 0,
        size if size >= 1000.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    with_decimals(number, decimals)
}

/// So many digits after the point, thousands apart by commas.
#[must_use]
pub fn with_decimals(number: f64, decimals: usize) -> String {
    if !is_plausible(number) {
        return format!("{number:e}");
    }
    let text = format!("{:.decimals$}", number.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let mut out = String::from(if number < 0.0 && !is_zero { "−" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// A difference in percent, with its sign: `+3.1 %`.
#[must_use]
pub fn difference(percent: f64) -> String {
    let text = with_decimals(percent, 1);
    if percent > 0.0 && text != "0.0" { format!("+{text} %") } else { format!("{text} %") }
}

/// A size in bytes: `2 KB`, `4 MB`, `1,000 bytes`. KB is 1024 bytes.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const KB: u64 = 1 << 10;
    const MB: u64 = 1 << 20;
    match bytes {
        bytes if bytes >= MB && bytes.is_multiple_of(MB) => format!("{} MB", with_decimals((bytes / MB) as f64, 0)),
        bytes if bytes >= KB && bytes.is_multiple_of(KB) => format!("{} KB", with_decimals((bytes / KB) as f64, 0)),
        bytes => format!("{} bytes", with_decimals(bytes as f64, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_or_so() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0001, "0.000"),
            (12_965.4, "12,965"),
            (1_234_567.0, "1,234,567"),
            (124.84, "124.8"),
            (9.876, "9.88"),
            (0.0461, "0.046"),
            (-1500.0, "−1,500"),
            (100.0, "100"),
            (1e300, "1e300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_difference_has_a_sign_unless_there_is_none() {
        assert_eq!(difference(3.06), "+3.1 %");
        assert_eq!(difference(-12.0), "−12.0 %");
        assert_eq!(difference(0.01), "0.0 %");
    }

    #[test]
    fn sizes_are_told_in_whole_units() {
        assert_eq!(bytes(2048), "2 KB");
        assert_eq!(bytes(4 << 20), "4 MB");
        assert_eq!(bytes(1000), "1,000 bytes");
        assert_eq!(bytes(0), "0 bytes");
    }
}
