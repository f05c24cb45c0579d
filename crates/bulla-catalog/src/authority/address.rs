//! Patterns for the addresses of partners, as ADDRESS and ADDRLIST of SET CHLAUTH take them.
//!
//! An IPv4 pattern has four parts with full stops between them, an IPv6 pattern eight with colons, of which `::` may
//! stand for several zeros. A part is a number, a range `5-9`, or `*` for any; a `*` as the last part stands for all
//! that are left. `*` alone is every address. Host names are not compared: the owner of the partner's name server would
//! decide who the partner is.

use std::fmt;
use std::net::IpAddr;

/// Longest pattern in bytes: eight ranges of IPv6.
pub const ADDRESS_BYTES_MAX: usize = 79;

/// A pattern that was understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressPattern {
    parts: Parts,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Parts {
    Every,
    V4([Range; 4]),
    V6([Range; 8]),
}

/// From, to: both included.
type Range = (u16, u16);

const ANY_V4: Range = (0, 255);
const ANY_V6: Range = (0, u16::MAX);

/// Why a text is no pattern. The turn of its author.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AddressError {
    /// Nothing, or more than [`ADDRESS_BYTES_MAX`] bytes.
    Length,
    /// Too few or too many parts.
    Parts,
    /// A part that is neither a number in range, nor a range that goes up, nor `*`.
    Part,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "a pattern has 1 to {ADDRESS_BYTES_MAX} characters"),
            Self::Parts => f.write_str("an address has four parts with '.' or eight with ':' between them"),
            Self::Part => f.write_str("a part is a number, a range like 5-9, or *; host names are not compared"),
        }
    }
}

impl std::error::Error for AddressError {}

impl AddressPattern {
    /// Understands a pattern.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() || text.len() > ADDRESS_BYTES_MAX {
            return Err(AddressError::Length);
        }
        let parts = match text {
            "*" => Parts::Every,
            text if text.contains(':') => Parts::V6(v6(text)?),
            text => {
                let read = |part| range(part, 10, ANY_V4);
                let found = text.split('.').map(read).collect::<Result<Vec<_>, _>>()?;
                Parts::V4(filled(found, text.ends_with(".*"), ANY_V4)?)
            }
        };
        Ok(Self { parts })
    }

    /// Whether an address fits. An IPv4 address that comes as IPv6 is compared as IPv4.
    #[must_use]
    pub fn fits(&self, address: IpAddr) -> bool {
        let within = |(range, part): (&Range, u16)| (range.0..=range.1).contains(&part);
        match (&self.parts, address.to_canonical()) {
            (Parts::Every, _) => true,
            (Parts::V4(ranges), IpAddr::V4(address)) => ranges.iter().zip(address.octets().map(u16::from)).all(within),
            (Parts::V6(ranges), IpAddr::V6(address)) => ranges.iter().zip(address.segments()).all(within),
            (Parts::V4(_) | Parts::V6(_), _) => false,
        }
    }

    /// How many addresses fit, the fewer the more particular; every address is the most.
    #[must_use]
    pub fn count(&self) -> u128 {
        let size = |range: &Range| u128::from(range.1 - range.0) + 1;
        match &self.parts {
            Parts::Every => u128::MAX,
            Parts::V4(ranges) => ranges.iter().map(size).product(),
            // All of IPv6 are one more than there is room for.
            Parts::V6(ranges) => ranges.iter().map(size).fold(1, u128::saturating_mul),
        }
    }
}

fn v6(text: &str) -> Result<[Range; 8], AddressError> {
    let parts = |text: &str| match text {
        "" => Ok(Vec::new()),
        text => text.split(':').map(|part| range(part, 16, ANY_V6)).collect::<Result<Vec<_>, _>>(),
    };
    let Some((before, after)) = text.split_once("::") else {
        return filled(parts(text)?, text.ends_with(":*"), ANY_V6);
    };
    if after == "*" {
        // Whatever comes behind: a text with zeros and one part is not meant.
        let before = parts(before)?;
        return if before.len() < 8 { filled(before, true, ANY_V6) } else { Err(AddressError::Parts) };
    }
    let (mut all, after) = (parts(before)?, parts(after)?);
    // At least one zero stands where the two colons are.
    let zeros = 8usize.checked_sub(all.len() + after.len()).filter(|zeros| *zeros > 0).ok_or(AddressError::Parts)?;
    all.extend(std::iter::repeat_n((0, 0), zeros));
    all.extend(after);
    all.try_into().map_err(|_| AddressError::Parts)
}

/// A last `*` stands for as many parts as are left.
fn filled<const N: usize>(mut parts: Vec<Range>, open: bool, any: Range) -> Result<[Range; N], AddressError> {
    if open && parts.len() < N {
        parts.resize(N, any);
    }
    parts.try_into().map_err(|_| AddressError::Parts)
}

fn range(part: &str, radix: u32, any: Range) -> Result<Range, AddressError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.len() <= 4 && text.chars().all(|digit| digit.is_digit(radix));
        let number = digits.then(|| u16::from_str_radix(text, radix).ok()).flatten();
        number.filter(|number| *number <= any.1).ok_or(AddressError::Part)
    };
    match part.split_once('-') {
        _ if part == "*" => Ok(any),
        None => number(part).map(|number| (number, number)),
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            if from <= to { Ok((from, to)) } else { Err(AddressError::Part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, address: &str) -> bool {
        AddressPattern::parse(pattern).unwrap().fits(address.parse().unwrap())
    }

    #[test]
    fn a_pattern_fits_the_addresses_it_names() {
        for (pattern, address) in [
            ("*", "192.0.2.1"),
            ("*", "2001:db8::1"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "::ffff:192.0.2.1"),
            ("192.0.2.*", "192.0.2.200"),
            ("192.*", "192.0.2.200"),
            ("192.*.2.7", "192.5.2.7"),
            ("192.0.2-4.10-20", "192.0.3.20"),
            ("2001:db8::1", "2001:db8:0:0:0:0:0:1"),
            ("2001:DB8:*", "2001:db8::1"),
            ("2001:db8:0-f:*:*:*:*:*", "2001:db8:a::1"),
            ("::", "::"),
            ("::1", "::1"),
            ("fe80::*:1", "fe80::5:1"),
            ("2001:db8::*", "2001:db8:1:2:3:4:5:6"),
            ("::*", "fe80::1"),
        ] {
            assert!(fits(pattern, address), "{pattern} {address}");
        }
        for (pattern, address) in [
            ("192.0.2.1", "192.0.2.10"),
            ("192.0.2.*", "192.0.3.1"),
            ("192.*.2.7", "192.5.3.7"),
            ("192.0.2-4.10-20", "192.0.5.20"),
            ("192.*", "2001:db8::1"),
            ("2001:db8:*", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::2"),
            ("::", "::1"),
            ("2001:db8::*", "2001:db9::1"),
        ] {
            assert!(!fits(pattern, address), "{pattern} {address}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            "1",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.-1",
            "1.2.3.5-2",
            "1.2.3.4-",
            "1..2.3",
            "**",
            "1.2.3.4*",
            "host.example",
            "1.2.*.3.*",
            "1:2",
            "1:2:3:4:5:6:7:8:9",
            "1:2:3:4:5:6:7::8",
            "::1::",
            "1:2:3:4:5:6:7:8::*",
            "12345::",
            "g::",
            ":",
            "1.2.3.00004",
            " 1.2.3.4",
            "é",
        ] {
            assert!(AddressPattern::parse(text).is_err(), "{text:?}");
        }
        assert!(AddressPattern::parse(&"1".repeat(ADDRESS_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_fewer_addresses_the_more_particular() {
        let counts: Vec<u128> = ["1.2.3.4", "1.2.3.4-5", "1.2.3.*", "1.*", "2001:db8::*:*:*:*", "*:*", "*"]
            .map(|text| AddressPattern::parse(text).unwrap().count())
            .to_vec();
        assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]), "{counts:?}");
        assert_eq!(counts[2], 256);
    }
}
