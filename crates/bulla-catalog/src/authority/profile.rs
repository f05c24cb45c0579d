//! Profiles: names of objects, and patterns for many (MQ's generic profiles).
//!
//! A name is made of qualifiers with full stops between them. `?` stands for one character and `*` for any number of
//! them, none included, both within a qualifier; `**`, once and as a whole qualifier, for any number of qualifiers,
//! none included.

use std::cmp::Ordering;
use std::fmt::{self, Display};

/// Longest profile in characters: that of a name.
pub const PROFILE_CHARS_MAX: usize = 48;

/// A profile that was understood. Profiles are ordered from the most particular to the most general, so that the first
/// of several that fit a name is the one that counts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Profile {
    text: String,
}

/// True when `text` is a profile.
#[must_use]
pub fn is_profile(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._/%*?".contains(&byte);
    let whole = |qualifier: &str| qualifier == "**" || !qualifier.contains("**");
    (1..=PROFILE_CHARS_MAX).contains(&text.len())
        && text.bytes().all(fits)
        && text.split('.').all(whole)
        && text.split('.').filter(|qualifier| *qualifier == "**").count() <= 1
}

impl Profile {
    /// Understands a profile; none where it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_profile(text).then(|| Self { text: text.to_owned() })
    }

    /// The queue manager's: there is one object, and no name to fit.
    #[must_use]
    pub fn of_queue_manager() -> Self {
        Self { text: String::new() }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it stands for more than one name.
    #[must_use]
    pub fn is_generic(&self) -> bool {
        self.text.contains(['*', '?'])
    }

    /// Whether an object's name fits.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        let Some((before, after)) = self.split() else {
            let (mut wanted, mut found) = (self.text.split('.'), name.split('.'));
            return loop {
                match (wanted.next(), found.next()) {
                    (None, None) => break true,
                    (Some(wanted), Some(found)) if stars_fit(wanted.as_bytes(), found.as_bytes()) => {}
                    _ => break false,
                }
            };
        };
        let found: Vec<&str> = name.split('.').collect();
        let fit = |wanted: &[&str], found: &[&str]| {
            wanted.iter().zip(found).all(|(wanted, found)| stars_fit(wanted.as_bytes(), found.as_bytes()))
        };
        let rest = found.len().checked_sub(after.len()).filter(|rest| *rest >= before.len());
        rest.is_some_and(|rest| fit(&before, &found) && fit(&after, &found[rest..]))
    }

    /// The qualifiers before and after the `**`, where there is one.
    fn split(&self) -> Option<(Vec<&str>, Vec<&str>)> {
        if !self.text.contains("**") {
            return None;
        }
        let qualifiers: Vec<&str> = self.text.split('.').collect();
        let at = qualifiers.iter().position(|qualifier| *qualifier == "**")?;
        Some((qualifiers[..at].to_vec(), qualifiers[at + 1..].to_vec()))
    }

    /// What stands at each place, the more particular the smaller.
    fn ranks(&self) -> impl Iterator<Item = u8> + '_ {
        let bytes = self.text.as_bytes();
        (0..bytes.len()).filter_map(|at| match bytes[at] {
            b'*' if at > 0 && bytes[at - 1] == b'*' => None,
            b'*' if bytes.get(at + 1) == Some(&b'*') => Some(3),
            b'*' => Some(2),
            b'?' => Some(1),
            _ => Some(0),
        })
    }
}

/// `*` and `?` in a text without meaning of its own: any run, and any one character. Each `*` is tried again from one
/// place further on, and the last one alone: at most the product of the two lengths.
pub(super) fn stars_fit(wanted: &[u8], found: &[u8]) -> bool {
    let (mut w, mut f, mut retry) = (0, 0, None);
    while f < found.len() {
        match wanted.get(w) {
            Some(b'*') => {
                retry = Some((w, f));
                w += 1;
            }
            Some(byte) if *byte == b'?' || *byte == found[f] => {
                w += 1;
                f += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                w = star + 1;
                f = from + 1;
            }
        }
    }
    wanted[w..].iter().all(|byte| *byte == b'*')
}

/// MQ's rule: from left to right, a character goes before `?`, that before `*`, and that before `**`; of two that are
/// alike so far, the longer one.
impl Ord for Profile {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut mine, mut theirs) = (self.ranks(), other.ranks());
        loop {
            return match (mine.next(), theirs.next()) {
                (Some(mine), Some(theirs)) if mine == theirs => continue,
                (Some(mine), Some(theirs)) => mine.cmp(&theirs),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => self.text.cmp(&other.text),
            };
        }
    }
}

impl PartialOrd for Profile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(profile: &str, name: &str) -> bool {
        Profile::parse(profile).unwrap().fits(name)
    }

    #[test]
    fn a_profile_fits_what_mq_says_it_fits() {
        for (profile, names, others) in [
            ("ORDERS", vec!["ORDERS"], vec!["ORDERS.EU", "ORDER", "orders"]),
            ("ORDERS.*", vec!["ORDERS.EU", "ORDERS."], vec!["ORDERS", "ORDERS.EU.WEST", "ORDER.EU"]),
            ("*", vec!["ORDERS", "A"], vec!["ORDERS.EU"]),
            ("**", vec!["ORDERS", "ORDERS.EU", "A.B.C.D"], vec![]),
            ("ORDERS.**", vec!["ORDERS", "ORDERS.EU", "ORDERS.EU.WEST"], vec!["ORDERSX", "MY.ORDERS"]),
            ("**.EU", vec!["EU", "ORDERS.EU", "A.B.EU"], vec!["EU.X", "ORDERSEU"]),
            ("A.**.Z", vec!["A.Z", "A.B.Z", "A.B.C.Z"], vec!["A", "Z", "AZ", "A.B"]),
            ("A.*B?.C", vec!["A.BX.C", "A.XXBB.C", "A.BBB.C"], vec!["A.B.C", "A.BX.D", "A..C"]),
            ("A*A*A", vec!["AAA", "ABABA", "AAAA"], vec!["AA", "ABAB"]),
            ("?", vec!["A"], vec!["", "AB", "."]),
        ] {
            for name in names {
                assert!(fits(profile, name), "{profile} fits {name}");
            }
            for name in others {
                assert!(!fits(profile, name), "{profile} does not fit {name:?}");
            }
        }
    }

    #[test]
    fn the_most_particular_comes_first() {
        let order = ["ABCD", "ABC", "AB.CD", "AB?D", "AB?*", "AB*D", "AB*", "A.**.C", "A.**", "*.B", "*", "**.B", "**"];
        let mut profiles: Vec<Profile> = order.iter().rev().map(|text| Profile::parse(text).unwrap()).collect();
        profiles.sort();
        let fitting = |name: &str| profiles.iter().filter(|profile| profile.fits(name)).map(Profile::as_str).collect();
        let all: Vec<&str> = fitting("ABCD");
        assert_eq!(all, ["ABCD", "AB?D", "AB?*", "AB*D", "AB*", "*", "**"]);
        let all: Vec<&str> = fitting("A.B");
        assert_eq!(all, ["A.**", "*.B", "**.B", "**"]);
        let all: Vec<&str> = fitting("A.C");
        assert_eq!(all, ["A.**.C", "A.**", "**"]);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let long = "A".repeat(PROFILE_CHARS_MAX + 1);
        for text in ["", "A B", "***", "A**", "**A", "A.**B", "**.A.**", "A-B", "é", "A@B", &long] {
            assert_eq!(Profile::parse(text), None, "{text:?}");
        }
        assert!(Profile::parse(&long[1..]).is_some() && Profile::parse("A.**.B%/_").is_some());
    }

    #[test]
    fn a_pattern_full_of_stars_takes_no_time() {
        let profile = Profile::parse(&"*A".repeat(PROFILE_CHARS_MAX / 2)).unwrap();
        assert!(!profile.fits(&"A".repeat(4096).replace("AAAA", "AAAB")));
    }
}
