//! Until when which algorithm may be used: one table, with the document and section that each date stands in.
//!
//! A date without a source is left out. What the documents say of software signing is not here: nothing of that is in
//! a data directory.

use bulla_seal::certificate::{KeyKind, Strength};

/// A document that sets dates.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Source {
    /// Its short name, as the report shows it.
    pub(crate) name: &'static str,
    /// Title, number and edition.
    pub(crate) title: &'static str,
    /// Where it is published.
    pub(crate) address: &'static str,
}

/// Whose rules a date belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Rules {
    /// NSA's, for national security systems of the United States.
    Cnsa,
    /// NIST's.
    Nist,
}

impl Rules {
    /// Both, in the order of the report.
    pub(crate) const ALL: [Self; 2] = [Self::Cnsa, Self::Nist];

    /// The word for them on the command line and in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cnsa => "cnsa",
            Self::Nist => "nist",
        }
    }

    /// The head of their column.
    pub(crate) const fn head(self) -> &'static str {
        match self {
            Self::Cnsa => "CNSA 2.0",
            Self::Nist => "NIST",
        }
    }
}

/// The requirements of CNSA 2.0, and when they take effect.
pub(crate) static CNSA_FAQ: Source = Source {
    name: "CNSA 2.0 FAQ",
    title: "NSA, The Commercial National Security Algorithm Suite 2.0 and Quantum Computing FAQ, U/OO/194427-22, \
            PP-24-4014, version 2.1, December 2024",
    address: "https://media.defense.gov/2022/Sep/07/2003071836/-1/-1/0/CSI_CNSA_2.0_FAQ_.PDF",
};
/// The years by sort of equipment, and what holds for hybrid schemes.
pub(crate) static CNSA_ADVISORY: Source = Source {
    name: "CNSA 2.0",
    title: "NSA, Announcing the Commercial National Security Algorithm Suite 2.0, U/OO/194427-22, PP-22-1338, version \
            1.0, September 2022",
    address: "https://media.defense.gov/2022/Sep/07/2003071834/-1/-1/0/CSA_CNSA_2.0_ALGORITHMS_.PDF",
};
/// The end of RSA and elliptic curves. A draft: its dates may move.
pub(crate) static NIST_IR_8547: Source = Source {
    name: "NIST IR 8547 ipd",
    title: "NIST IR 8547, Transition to Post-Quantum Cryptography Standards, initial public draft, November 2024",
    address: "https://doi.org/10.6028/NIST.IR.8547.ipd",
};
/// What is too short already.
pub(crate) static NIST_SP_800_131A: Source = Source {
    name: "NIST SP 800-131A",
    title: "NIST SP 800-131A revision 2, Transitioning the Use of Cryptographic Algorithms and Key Lengths, March 2019",
    address: "https://doi.org/10.6028/NIST.SP.800-131Ar2",
};

/// Something that is used, as far as dates tell it apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Used {
    /// An RSA key of so many bits.
    Rsa(u32),
    /// An elliptic curve of so many bits.
    Curve(u32),
    /// RSA or a curve; of which size is not known.
    Classical,
    /// ML-DSA of that parameter set.
    MlDsa(u32),
    /// ML-KEM of that parameter set, alone or beside a curve.
    MlKem(u32),
    /// AES with a key of so many bits.
    Aes(u32),
    /// ChaCha20-Poly1305.
    ChaCha,
    /// SHA-2 of so many bits.
    Sha2(u32),
    /// SHA-1, or something older.
    OldDigest,
}

impl Used {
    /// A key, by kind and bits.
    pub(crate) fn key(kind: KeyKind, bits: u32) -> Self {
        match kind {
            KeyKind::Rsa => Self::Rsa(bits),
            KeyKind::Ec(curve) => Self::Curve(curve.bits()),
            KeyKind::MlDsa(set) => Self::MlDsa(set.number()),
            KeyKind::MlKem(set) => Self::MlKem(set.number()),
            // DSA, Edwards curves: a quantum computer breaks them as well.
            KeyKind::Other => Self::Classical,
        }
    }

    /// A quantum computer breaks it.
    pub(crate) const fn is_classical(self) -> bool {
        matches!(self, Self::Rsa(_) | Self::Curve(_) | Self::Classical)
    }

    /// Bits of security of a key of RSA or of a curve, by NIST SP 800-57 part 1; 0 below its table.
    fn security_bits(self) -> Option<u32> {
        let class = match self {
            Self::Rsa(bits) => Strength::of(KeyKind::Rsa, bits),
            Self::Curve(bits) => Strength::of(KeyKind::Other, bits),
            _ => return None,
        };
        Some(class.map_or(0, |class| class.bits))
    }

    /// The weaker a key, the smaller: what a quantum computer breaks comes first.
    pub(crate) fn rank(self) -> (bool, u32) {
        match self {
            Self::MlDsa(set) | Self::MlKem(set) => (true, set),
            Self::Classical => (false, 0),
            _ => (false, self.security_bits().unwrap_or(u32::MAX)),
        }
    }

    /// Whether CNSA 2.0 has it: the FAQ's table of general purpose algorithms.
    const fn is_of_cnsa(self) -> bool {
        matches!(self, Self::MlDsa(87) | Self::MlKem(1024) | Self::Aes(256) | Self::Sha2(384 | 512))
    }
}

/// A date, and what it is the date of.
#[derive(Debug)]
pub(crate) struct Milestone {
    /// Whose.
    pub(crate) rules: Rules,
    /// The last day, or the first of a requirement; none where it has passed and the document names none.
    pub(crate) date: Option<&'static str>,
    /// What the document calls it.
    pub(crate) status: &'static str,
    /// What it says, in a line.
    pub(crate) says: &'static str,
    /// The document.
    pub(crate) source: &'static Source,
    /// Its section and table.
    pub(crate) section: &'static str,
    /// Whether it is the date of something that is used. None: of new systems, or of sorts of equipment, which is not
    /// seen from here.
    pub(crate) of: Option<fn(Used) -> bool>,
}

/// Every date, by rules and time.
pub(crate) static MILESTONES: &[Milestone] = &[
    Milestone {
        rules: Rules::Cnsa,
        date: Some("2027-01-01"),
        status: "acquired",
        says: "new acquisitions for national security systems have CNSA 2.0, unless otherwise noted",
        source: &CNSA_FAQ,
        section: "Timeframe",
        of: None,
    },
    Milestone {
        rules: Rules::Cnsa,
        date: Some("2030"),
        status: "networking",
        says: "traditional networking equipment prefers CNSA 2.0 by 2026 and uses it exclusively by 2030",
        source: &CNSA_ADVISORY,
        section: "Timing",
        of: None,
    },
    Milestone {
        rules: Rules::Cnsa,
        date: Some("2030-12-31"),
        status: "phased out",
        says: "equipment and services that can't support CNSA 2.0 are phased out, unless otherwise noted",
        source: &CNSA_FAQ,
        section: "Timeframe",
        of: None,
    },
    Milestone {
        rules: Rules::Cnsa,
        date: Some("2031-12-31"),
        status: "mandated",
        says: "ML-KEM-1024, ML-DSA-87, AES-256 and SHA-384 or SHA-512 are mandated, unless otherwise noted",
        source: &CNSA_FAQ,
        section: "Timeframe",
        of: Some(|used| !used.is_of_cnsa()),
    },
    Milestone {
        rules: Rules::Cnsa,
        date: Some("2033"),
        status: "servers, systems",
        says: "web servers and cloud services, operating systems, and custom applications use CNSA 2.0 exclusively, or \
               are replaced",
        source: &CNSA_ADVISORY,
        section: "Timing",
        of: None,
    },
    Milestone {
        rules: Rules::Nist,
        date: None,
        status: "disallowed",
        says: "RSA below 2048 bits, curves below 224 bits and SHA-1 in signatures are disallowed already",
        source: &NIST_SP_800_131A,
        section: "sections 3, 5, 6 and 9",
        of: Some(|used| used == Used::OldDigest || used.security_bits().is_some_and(|bits| bits < 112)),
    },
    Milestone {
        rules: Rules::Nist,
        date: Some("2030-12-31"),
        status: "deprecated",
        says: "RSA and elliptic curves of 112 bits of security (RSA 2048, P-224) are deprecated after 2030",
        source: &NIST_IR_8547,
        section: "sections 4.1.1 and 4.1.2, tables 2 and 4",
        of: Some(|used| used.security_bits() == Some(112)),
    },
    Milestone {
        rules: Rules::Nist,
        date: Some("2035-12-31"),
        status: "disallowed",
        says: "all RSA and elliptic curves, for signatures and for key establishment, are disallowed after 2035",
        source: &NIST_IR_8547,
        section: "sections 4.1.1 and 4.1.2, tables 2 and 4",
        of: Some(Used::is_classical),
    },
];

/// A date that something which is used has.
#[derive(Debug)]
pub(crate) struct Due {
    /// The date.
    pub(crate) milestone: &'static Milestone,
    /// What has it, as the report names it.
    pub(crate) because: Vec<String>,
}

impl Due {
    /// Whether it is due in that year or before.
    pub(crate) fn is_by(&self, year: u16) -> bool {
        let of_date = self.milestone.date.and_then(|date| date.get(..4)).and_then(|digits| digits.parse::<u16>().ok());
        of_date.is_none_or(|date| date <= year)
    }
}

/// Something that is used, and its name in the report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Item {
    /// As `rsa2048`.
    pub(crate) name: String,
    /// What dates make of it.
    pub(crate) used: Used,
}

impl Item {
    pub(crate) fn new(name: impl Into<String>, used: Used) -> Self {
        Self { name: name.into(), used }
    }
}

/// The dates of all that is used, in the order of the table.
pub(crate) fn due(items: &[Item]) -> Vec<Due> {
    let of_milestone = |milestone: &'static Milestone| {
        let applies = milestone.of?;
        let mut because: Vec<String> = Vec::new();
        for item in items.iter().filter(|item| applies(item.used)) {
            if !because.contains(&item.name) {
                because.push(item.name.clone());
            }
        }
        (!because.is_empty()).then_some(Due { milestone, because })
    };
    MILESTONES.iter().filter_map(of_milestone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dates(used: Used) -> Vec<(&'static str, Option<&'static str>)> {
        due(&[Item::new("it", used)]).iter().map(|due| (due.milestone.rules.word(), due.milestone.date)).collect()
    }

    #[test]
    fn each_algorithm_has_the_dates_of_the_documents() {
        let cnsa = ("cnsa", Some("2031-12-31"));
        let (deprecated, disallowed) = (("nist", Some("2030-12-31")), ("nist", Some("2035-12-31")));
        for used in [Used::Rsa(2048), Used::Curve(224)] {
            assert_eq!(dates(used), [cnsa, deprecated, disallowed], "{used:?}");
        }
        for used in [Used::Rsa(3072), Used::Rsa(4096), Used::Curve(256), Used::Curve(521), Used::Classical] {
            assert_eq!(dates(used), [cnsa, disallowed], "{used:?}");
        }
        for used in [Used::Rsa(1024), Used::Rsa(512), Used::Curve(192)] {
            assert_eq!(dates(used), [cnsa, ("nist", None), disallowed], "{used:?}");
        }
        assert_eq!(dates(Used::OldDigest), [cnsa, ("nist", None)]);
        for used in [Used::MlDsa(44), Used::MlDsa(65), Used::MlKem(512), Used::MlKem(768)] {
            assert_eq!(dates(used), [cnsa], "{used:?}");
        }
        for used in [Used::Aes(128), Used::ChaCha, Used::Sha2(256)] {
            assert_eq!(dates(used), [cnsa], "{used:?}");
        }
        for used in [Used::MlDsa(87), Used::MlKem(1024), Used::Aes(256), Used::Sha2(384), Used::Sha2(512)] {
            assert_eq!(dates(used), [], "{used:?}");
        }
    }

    #[test]
    fn each_date_says_where_it_stands_and_the_page_has_it() {
        let page = include_str!("../../../../docs/operating/algorithms.md");
        for milestone in MILESTONES {
            assert!(!milestone.section.is_empty());
            assert!(milestone.source.address.starts_with("https://"));
            let date = milestone.date.unwrap_or("already");
            let row = format!(
                "| {} | {date} | {} | {}, {} |",
                milestone.rules.head(),
                milestone.says,
                milestone.source.name,
                milestone.section
            );
            assert!(page.contains(&row), "{row}");
            let title = milestone.source.title.split_whitespace().collect::<Vec<_>>().join(" ");
            let on_one_line = page.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(on_one_line.contains(&title), "{title}");
            assert!(page.contains(milestone.source.address), "{}", milestone.source.address);
        }
        for rules in Rules::ALL {
            let of_rules = MILESTONES.iter().filter(|milestone| milestone.rules == rules);
            let dates: Vec<_> = of_rules.map(|milestone| milestone.date).collect();
            assert!(dates.is_sorted(), "{dates:?}");
        }
    }

    #[test]
    fn a_date_is_due_in_its_year_and_later() {
        let due = due(&[Item::new("rsa2048", Used::Rsa(2048))]);
        let by = |year| due.iter().filter(|due| due.is_by(year)).count();
        assert_eq!([2029, 2030, 2031, 2034, 2035].map(by), [0, 1, 2, 2, 3]);
        assert!(super::due(&[Item::new("rsa1024", Used::Rsa(1024))]).iter().any(|due| due.is_by(2026)));
    }

    #[test]
    fn the_weakest_key_is_the_one_that_a_quantum_computer_breaks_first() {
        let order = [
            Used::Classical,
            Used::Rsa(1024),
            Used::Rsa(2048),
            Used::Curve(256),
            Used::Curve(384),
            Used::MlKem(512),
            Used::MlKem(768),
            Used::MlKem(1024),
        ];
        assert!(order.map(Used::rank).is_sorted());
        assert!(Used::Curve(521).rank() < Used::MlKem(512).rank());
    }
}
